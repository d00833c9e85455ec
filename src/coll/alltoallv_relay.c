/* SPDX-License-Identifier: BSD-3-Clause */
/* Alltoallv on device memory over relays: the plan, what it is predicted to take, and what trials have shown. */
#include "coll/alltoallv_relay.h"

#include "coll/plans.h"
#include "tune/trial.h"
#include "plan/gate.h"
#include "team/wait.h"
#include "util/log.h"
#include "util/time.h"

#include <stdlib.h>

/*
 * For the prediction: what a hop costs beside its links, from the start of a copy until the next process knows of its
 * end.
 */
#define GATE_HOP_NS 15000u
#define GATE_CHUNK_BYTES (1u << 20)

/* What is tried. */
enum { ROUTES_STATIC, ROUTES_PLANNED, ROUTES_OPTIONS };

struct mpath_relay_coll {
    mpath_team_t *team;
    mpath_relay_t *relay;
    mpath_plans_t plans;      /* from the first call on; the relay frees no topology that it has handed out */
    mpath_topo_rates_t rates; /* without rails: nobody has learned any */
    int has_news;             /* plans do not count on them yet */
    const uint64_t *demand;   /* of the call under way, as it was given */
    uint64_t signature;
    mpath_parts_t *parts; /* of this topology at present rates; NULL: it has none, or no call needed it */
    const mpath_topo_t *parted;
    const mpath_plan_t *part; /* of the call under way, in this topology; NULL: its plan is of the whole */
    const mpath_topo_t *part_topo;
    int part_hit;
    mpath_gate_forecast_t by_pairs;
    int is_left;               /* relays do not carry the call under way, and nobody has its demand */
    mpath_trials_t trials;     /* of this topology */
    const mpath_plan_t *moved; /* that the last call was moved by; NULL: by none */
    mpath_relay_counters_t counters;
};

mpath_status_t mpath_relay_coll_create(mpath_team_t *team, mpath_relay_coll_t **coll_p)
{
    mpath_relay_coll_t *coll = calloc(1, sizeof(*coll));
    mpath_status_t status    = MPATH_ERR_NO_MEMORY;

    if (coll == NULL) {
        goto err;
    }
    coll->team             = team;
    coll->trials.num_kinds = MPATH_TRIAL_KINDS;

    status = mpath_relay_create(team, &coll->relay);
    if (status != MPATH_OK) {
        goto err;
    }
    *coll_p = coll;
    return MPATH_OK;

err:
    mpath_error("no memory for relays of %d ranks", mpath_team_size(team));
    mpath_relay_coll_destroy(coll);
    return status;
}

/* Before the topology that they are for goes, or has other rates. */
static void forget_parts(mpath_relay_coll_t *coll)
{
    mpath_parts_destroy(coll->parts);
    coll->parts  = NULL;
    coll->parted = NULL;
}

void mpath_relay_coll_destroy(mpath_relay_coll_t *coll)
{
    if (coll != NULL) {
        forget_parts(coll);
        mpath_plans_release(&coll->plans);
        mpath_relay_destroy(coll->relay);
        mpath_trials_forget(&coll->trials);
        free(coll);
    }
}

int mpath_relay_coll_usable(const mpath_relay_coll_t *coll)
{
    return mpath_relay_usable(coll->relay);
}

void mpath_relay_coll_publish(mpath_relay_coll_t *coll, mpath_call_t *call)
{
    mpath_relay_publish(coll->relay, call);
}

void mpath_relay_coll_take_flags(mpath_relay_coll_t *coll, uint32_t flags)
{
    mpath_relay_take_flags(coll->relay, flags);
}

void mpath_relay_coll_counters(const mpath_relay_coll_t *coll, mpath_relay_counters_t *counters)
{
    *counters = coll->counters;
    mpath_relay_get_stats(coll->relay, &counters->moved);
}

/* Every pair takes the route that it has without a plan. */
static int is_static(const mpath_plan_t *plan)
{
    size_t num_flows;
    const mpath_flow_t *flows = mpath_plan_flows(plan, &num_flows);

    for (size_t i = 0; i < num_flows; i++) {
        if (flows[i].path != 0) {
            return 0;
        }
    }
    return 1;
}

/* What was tried was of another topology. */
static mpath_status_t follow(mpath_relay_coll_t *coll, const mpath_topo_t *topo)
{
    forget_parts(coll);
    mpath_trials_forget(&coll->trials);
    coll->has_news = coll->rates.num_rails > 0;
    return mpath_plans_follow(&coll->plans, mpath_team_settings(coll->team), topo);
}

void mpath_relay_coll_set_rates(mpath_relay_coll_t *coll, const mpath_topo_rates_t *rates)
{
    coll->rates    = (rates != NULL) ? *rates : (mpath_topo_rates_t){.num_rails = 0};
    coll->has_news = coll->rates.num_rails > 0;
}

/* Plans count on what was learned; what was tried with other rates is tried anew. */
static mpath_status_t take_rates(mpath_relay_coll_t *coll)
{
    mpath_status_t status;

    forget_parts(coll);
    mpath_relay_forget_plans(coll->relay); /* which knows parts by their calls */
    status = mpath_plans_rate(&coll->plans, &coll->rates);
    if (status != MPATH_OK) {
        return status;
    }
    mpath_trials_forget(&coll->trials);
    coll->has_news = 0;
    return MPATH_OK;
}

/* By trial, where the model cannot tell. Collective when a decision is due, on all ranks alike. */
static mpath_status_t choose_by_trial(mpath_relay_coll_t *coll, mpath_relay_found_t *found)
{
    int kind = mpath_trial_kind(found->forecast->direct_ns, found->forecast->plan_ns), decided;
    mpath_status_t status;
    unsigned option;

    status = mpath_trials_next(&coll->trials, coll->team, kind, ROUTES_OPTIONS, 0, &option, &decided);
    if (status != MPATH_OK) {
        return status;
    }
    if (decided) {
        coll->counters.choices++;
        mpath_debug("GPUs: calls like this one have been measured: they take %s from now on",
                    (option == ROUTES_PLANNED) ? "the plan" : "the static routes");
    }
    found->tuned = (option == ROUTES_PLANNED) ? MPATH_RELAY_PLANNED : MPATH_RELAY_STATIC;
    return MPATH_OK;
}

void mpath_relay_coll_time_params(mpath_time_params_t *params)
{
    mpath_time_params_init(params);
    params->chunk_bytes = GATE_CHUNK_BYTES;
    params->hop_ns      = GATE_HOP_NS;
}

/*
 * What plan and static routes are predicted to take; for calls so short that the model may be wrong, what both have
 * taken. Operations that others progress are no measure: their ranks compute meanwhile.
 */
static mpath_status_t compare_routes(mpath_relay_coll_t *coll, mpath_relay_compares_t compares,
                                     mpath_relay_found_t *found)
{
    mpath_time_params_t params;
    mpath_status_t status;

    mpath_relay_coll_time_params(&params);
    status = mpath_plan_cache_forecast(coll->plans.cache, &params, &found->forecast);
    if ((status != MPATH_OK) || (found->forecast->direct == NULL) || (compares != MPATH_RELAY_COMPARES_BY_TRIAL) ||
        !mpath_trial_is_open(found->forecast->direct_ns, found->forecast->plan_ns) || mpath_idle_others_may_rest()) {
        return status;
    }
    return choose_by_trial(coll, found);
}

/* Plans are for this topology, with what has been learned of its rails. */
static mpath_status_t plan_for(mpath_relay_coll_t *coll, const mpath_topo_t *topo)
{
    mpath_status_t status = (coll->plans.topo != topo) ? follow(coll, topo) : MPATH_OK;

    return ((status == MPATH_OK) && coll->has_news) ? take_rates(coll) : status;
}

/* The part of the call under way, which is there. */
static void take_part(mpath_relay_coll_t *coll, mpath_relay_compares_t compares, mpath_relay_found_t *found)
{
    found->plan = coll->part;
    coll->counters.plans += coll->part_hit ? 0 : 1;
    coll->counters.plan_hits += coll->part_hit ? 1 : 0;
    if (compares != MPATH_RELAY_COMPARES_NOT) {
        mpath_parts_predict(coll->parts, &coll->by_pairs.plan_ns, &coll->by_pairs.direct_ns);
        found->forecast = &coll->by_pairs;
    }
}

static mpath_status_t find_plan(mpath_relay_coll_t *coll, mpath_relay_compares_t compares, mpath_relay_found_t *found)
{
    mpath_status_t status = plan_for(coll, found->topo);
    int hit;

    if (status == MPATH_OK) {
        status = mpath_plan_cache_get(coll->plans.cache, coll->signature, coll->demand, &found->plan, &hit);
    }
    if (status != MPATH_OK) {
        return status;
    }
    coll->counters.plans += hit ? 0 : 1;
    coll->counters.plan_hits += hit ? 1 : 0;
    return (compares != MPATH_RELAY_COMPARES_NOT) ? compare_routes(coll, compares, found) : MPATH_OK;
}

void mpath_relay_coll_begin(mpath_relay_coll_t *coll, const uint64_t *demand, uint64_t signature)
{
    mpath_trials_drop(&coll->trials);
    coll->moved     = NULL;
    coll->part      = NULL;
    coll->is_left   = 0;
    coll->demand    = demand;
    coll->signature = signature;
}

/* Parts of plans for the rails that the GPUs have, with what has been learned of them. */
static mpath_status_t find_parts(mpath_relay_coll_t *coll, const mpath_topo_t *topo)
{
    mpath_status_t status = plan_for(coll, topo);

    if ((status == MPATH_OK) && (coll->parted != mpath_plans_topo(&coll->plans))) {
        coll->parted = mpath_plans_topo(&coll->plans);
        status       = mpath_parts_create(coll->parted, mpath_team_settings(coll->team), &coll->parts);
        status       = (status == MPATH_DECLINED) ? MPATH_OK : status;
    }
    if (status != MPATH_OK) {
        mpath_team_break(coll->team, status);
    }
    return status;
}

mpath_status_t mpath_relay_coll_begin_part(mpath_relay_coll_t *coll, const mpath_call_t *call,
                                           const mpath_agreed_t *agreed, const mpath_plan_t **part_p)
{
    const mpath_topo_t *counted = mpath_team_gpu_topo_left(coll->team), *topo;
    mpath_status_t status;
    uint64_t start_ns;

    coll->moved   = NULL;
    coll->part    = NULL;
    coll->is_left = 0;
    *part_p       = NULL;
    do {
        status = mpath_relay_prepare(coll->relay, call, agreed, &topo);
    } while (status == MPATH_AGAIN);
    if (status == MPATH_DECLINED) {
        coll->is_left = 1;
        return MPATH_DECLINED;
    }
    counted  = (counted != NULL) ? counted : mpath_team_gpu_topo(coll->team); /* the GPUs were found in this call */
    start_ns = mpath_time_ns();
    status   = (status == MPATH_OK) ? find_parts(coll, topo) : status;
    /* rails have failed or are back since the agreement: it has counted other static routes */
    if ((status == MPATH_OK) && (coll->parts != NULL) && ((topo == counted) || !mpath_parts_are_alike(coll->parts))) {
        status = mpath_parts_get(coll->parts, coll->team, agreed, part_p, &coll->part_hit);
        start_ns += mpath_parts_waited_ns(coll->parts);
    }
    coll->counters.plan_ns += mpath_time_ns() - start_ns;
    coll->part      = *part_p;
    coll->part_topo = topo;
    return status;
}

mpath_status_t mpath_relay_coll_plan(mpath_relay_coll_t *coll, const mpath_call_t *call, const mpath_agreed_t *agreed,
                                     mpath_relay_compares_t compares, mpath_relay_found_t *found)
{
    mpath_status_t status;
    uint64_t start_ns;

    *found = (mpath_relay_found_t){.tuned = MPATH_RELAY_BY_TIME};
    mpath_trials_drop(&coll->trials);
    if (coll->is_left) {
        found->obstacle = MPATH_WHY_NOT_RELAYED;
        return MPATH_OK;
    }
    do {
        status = mpath_relay_prepare(coll->relay, call, agreed, &found->topo);
    } while (status == MPATH_AGAIN);
    if (status == MPATH_DECLINED) {
        found->topo     = NULL;
        found->obstacle = MPATH_WHY_NOT_RELAYED;
        return MPATH_OK;
    }
    if (status != MPATH_OK) {
        return status;
    }
    if (coll->part != NULL) {
        found->obstacle = (found->topo == coll->part_topo) ? NULL : MPATH_WHY_NO_RELAYS;
        take_part(coll, compares, found);
        return MPATH_OK;
    }
    if (!mpath_plans_connect(found->topo, coll->demand)) {
        found->obstacle = MPATH_WHY_NO_GPU_PATH;
        return MPATH_OK;
    }
    start_ns = mpath_time_ns();
    status   = find_plan(coll, compares, found);
    coll->counters.plan_ns += mpath_time_ns() - start_ns;
    if (mpath_plans_fail_alike(status)) {
        found->obstacle = MPATH_WHY_TOPOLOGY;
        return MPATH_OK;
    }
    if (status != MPATH_OK) {
        mpath_team_break(coll->team, status);
        return status;
    }
    if (mpath_relay_coll_are_mates(found->topo) && is_static(found->plan)) {
        found->obstacle = MPATH_RELAY_MATES_KNOW_MORE;
    }
    return MPATH_OK;
}

mpath_status_t mpath_relay_coll_move(mpath_relay_coll_t *coll, const mpath_plan_t *plan)
{
    mpath_status_t status = mpath_relay_provide(coll->relay, plan);

    if (status == MPATH_OK) {
        status      = mpath_relay_move(coll->relay, plan);
        coll->moved = (status == MPATH_OK) ? plan : NULL;
        coll->counters.repeats += (status == MPATH_AGAIN) ? 1 : 0;
    }
    return status;
}

const mpath_plan_t *mpath_relay_coll_moved(const mpath_relay_coll_t *coll, const mpath_topo_t **topo_p)
{
    *topo_p = mpath_plans_topo(&coll->plans);
    return coll->moved;
}

mpath_parts_t *mpath_relay_coll_parts(const mpath_relay_coll_t *coll)
{
    return coll->parts;
}

void mpath_relay_coll_times(mpath_relay_coll_t *coll, mpath_rail_times_t *times)
{
    mpath_relay_times(coll->relay, mpath_plans_topo(&coll->plans), coll->moved, times);
}

void mpath_relay_coll_took(mpath_relay_coll_t *coll, uint64_t took_ns)
{
    mpath_trials_took(&coll->trials, took_ns);
}
