/* SPDX-License-Identifier: BSD-3-Clause */
/* Alltoallv: the steps of a collective in order, agree, plan, gate, move, and what is counted about them. */
#include "coll/alltoallv_private.h"

#include "coll/gate.h"
#include "coll/symmetric.h"
#include "util/log.h"
#include "util/time.h"

#include <stdlib.h>
#include <string.h>

/* In a communicator of ranks beside different rails, affine ranks do not reach each other. */
static int is_connected(const mpath_topo_t *topo, const uint64_t *demand)
{
    int size = mpath_topo_num_ranks(topo);

    for (int source = 0; source < size; source++) {
        for (int destination = 0; destination < size; destination++) {
            if ((source != destination) &&
                ((demand == NULL) || (demand[(size_t)source * (size_t)size + (size_t)destination] > 0)) &&
                (mpath_topo_num_paths(topo, source, destination) == 0)) {
                return 0;
            }
        }
    }
    return 1;
}

static mpath_status_t make_cache(const mpath_settings_t *settings, const mpath_topo_t *topo,
                                 mpath_plan_cache_t **cache_p)
{
    mpath_plan_params_t params;

    mpath_plan_params_init(&params);
    params.min_fragment_bytes = settings->min_fragment_bytes;
    params.keep_ppm           = (uint32_t)settings->keep_routes_ppm;
    return mpath_plan_cache_create(topo, &params, cache_p);
}

/* Rates that were learned are heard of again. */
mpath_status_t mpath_coll_read_topo(mpath_coll_t *coll)
{
    const mpath_topo_t *topo = mpath_team_topo(coll->team);
    mpath_plan_cache_t *cache;
    mpath_status_t status;

    status = make_cache(coll->settings, topo, &cache);
    if (status != MPATH_OK) {
        return status;
    }
    if (coll->cache != NULL) {
        mpath_plan_cache_destroy(coll->cache);
    }
    if (coll->rated != NULL) {
        mpath_topo_destroy(coll->rated);
        coll->rated = NULL;
    }
    coll->cache        = cache;
    coll->connected    = is_connected(topo, NULL);
    coll->topo_version = mpath_team_topo_version(coll->team);
    return mpath_coll_rates_init(coll);
}

mpath_status_t mpath_coll_create(mpath_team_t *team, mpath_coll_t **coll_p)
{
    const mpath_settings_t *settings = mpath_team_settings(team);
    mpath_coll_t *coll               = calloc(1, sizeof(*coll));
    size_t size                      = (size_t)mpath_team_size(team);
    mpath_status_t status;

    if (coll == NULL) {
        goto err_no_memory;
    }
    coll->team             = team;
    coll->settings         = settings;
    coll->declined_because = "";
    coll->demand           = malloc(size * size * sizeof(*coll->demand));
    coll->signatures       = malloc(size * sizeof(*coll->signatures));
    coll->sums             = malloc(MPATH_LOAD_SUMS * size * sizeof(*coll->sums));
    if ((coll->demand == NULL) || (coll->signatures == NULL) || (coll->sums == NULL)) {
        goto err_no_memory;
    }
    status = mpath_gpu_coll_create(team, &coll->gpu);
    if (status == MPATH_OK) {
        status = mpath_gpu_exchange_create(coll->gpu);
    }
    if (status == MPATH_OK) {
        status = mpath_relay_coll_create(team, &coll->relay);
    }
    if (status != MPATH_OK) {
        mpath_coll_destroy(coll);
        return status;
    }
    status = mpath_coll_read_topo(coll);
    if (status != MPATH_OK) {
        mpath_coll_destroy(coll);
        return status;
    }
    *coll_p = coll;
    return MPATH_OK;

err_no_memory:
    mpath_error("no memory for the collectives of a communicator of %zu ranks", size);
    mpath_coll_destroy(coll);
    return MPATH_ERR_NO_MEMORY;
}

void mpath_coll_destroy(mpath_coll_t *coll)
{
    if (coll != NULL) {
        mpath_gpu_notice_lost();
        mpath_gpu_coll_destroy(coll->gpu);
        mpath_relay_coll_destroy(coll->relay);
        mpath_plan_cache_destroy(coll->cache);
        if (coll->rated != NULL) {
            mpath_topo_destroy(coll->rated);
        }
        mpath_coll_rates_release(coll);
        free(coll->times_ns);
        mpath_doubt_release(&coll->doubt);
        free(coll->sums);
        free(coll->signatures);
        free(coll->demand);
        free(coll);
    }
}

static const mpath_topo_t *topo_of(const mpath_coll_t *coll)
{
    return (coll->rated != NULL) ? coll->rated : mpath_team_topo(coll->team);
}

void mpath_coll_counters(const mpath_coll_t *coll, mpath_coll_counters_t *counters)
{
    *counters = coll->counters;
    mpath_gpu_coll_counters(coll->gpu, &counters->gpu);
    mpath_relay_coll_counters(coll->relay, &counters->relay);
    counters->plans += counters->gpu.plans + counters->relay.plans;
    counters->plan_hits += counters->gpu.plan_hits + counters->relay.plan_hits;
}

int mpath_coll_takes_device(const mpath_coll_t *coll)
{
    return (mpath_gpu_coll_usable(coll->gpu) || mpath_relay_coll_usable(coll->relay)) &&
           (mpath_gate_of(coll->settings) != MPATH_GATE_NEVER);
}

int mpath_coll_wants_host(const mpath_coll_t *coll)
{
    return coll->wants_host;
}

const char *mpath_coll_declined_because(const mpath_coll_t *coll)
{
    return coll->declined_because;
}

static void copy_self(const mpath_coll_t *coll, const mpath_call_t *call)
{
    int me = mpath_team_rank(coll->team);

    if (call->send_bytes[me] > 0) {
        memcpy((char *)call->recv_buffer + call->recv_offsets[me],
               (const char *)call->send_buffer + call->send_offsets[me], call->send_bytes[me]);
    }
}

/*
 * In place, the previous function reads its data where the agreement has already put the small pairs. `all`: an attempt
 * that was given up has put others there.
 */
static void put_back(const mpath_coll_t *coll, const mpath_call_t *call, const mpath_agreed_t *agreed, int all)
{
    int me = mpath_team_rank(coll->team);

    for (int rank = 0; rank < mpath_team_size(coll->team); rank++) {
        uint64_t bytes = call->recv_bytes[rank];

        if ((rank != me) && (bytes > 0) &&
            (all || (bytes <= mpath_agreed_inline_bytes(coll->team, agreed, rank, me)))) {
            memcpy((char *)call->recv_buffer + call->recv_offsets[rank],
                   (const char *)call->send_buffer + call->send_offsets[rank], bytes);
        }
    }
}

/* The agreed demand without what has travelled inside the agreement. */
static void set_demand(mpath_coll_t *coll, const mpath_agreed_t *agreed)
{
    size_t size = (size_t)mpath_team_size(coll->team);

    for (size_t i = 0; i < size * size; i++) {
        uint64_t bytes = agreed->demand[i];

        coll->demand[i] = ((bytes <= mpath_agreed_inline_bytes(coll->team, agreed, (int)(i / size), (int)(i % size))) ||
                           (i / size == i % size))
                              ? 0
                              : bytes;
    }
}

/* Debugging: all ranks must have come to the same plan. */
static mpath_status_t check_plans(mpath_coll_t *coll, const mpath_plan_t *plan)
{
    uint64_t mine         = mpath_plan_signature(plan);
    mpath_status_t status = mpath_team_allgather(coll->team, &mine, sizeof(mine), coll->signatures);

    for (int rank = 0; (status == MPATH_OK) && (rank < mpath_team_size(coll->team)); rank++) {
        if (coll->signatures[rank] != coll->signatures[0]) {
            mpath_error("rank %d has another plan (%016llx) than rank 0 (%016llx); the call fails", rank,
                        (unsigned long long)coll->signatures[rank], (unsigned long long)coll->signatures[0]);
            status = MPATH_ERR_INTERNAL;
        }
    }
    return status;
}

/* Errors that every rank comes to from the same data are a reason to step aside; the others end the call. */
static int is_common(mpath_status_t status)
{
    return (status == MPATH_ERR_UNREACHABLE) || (status == MPATH_ERR_UNSUPPORTED) || (status == MPATH_ERR_PARAM);
}

/* Asks the gate about the plan: it may be left for the static routes, or the call declined. */
static mpath_status_t choose_routes(mpath_coll_t *coll, const mpath_plan_t **plan_p)
{
    const mpath_gate_forecast_t *forecast;
    mpath_time_params_t params;
    mpath_status_t status;
    const char *because;

    mpath_time_params_init(&params);
    params.chunk_bytes = coll->settings->chunk_bytes;
    status             = mpath_plan_cache_forecast(coll->cache, &params, &forecast);
    if (status != MPATH_OK) {
        return status;
    }
    if (coll->settings->alltoallv_algorithm == MPATH_ROUTES_DIRECT) {
        *plan_p = (forecast->direct != NULL) ? forecast->direct : *plan_p;
        return MPATH_OK;
    }
    switch (mpath_gate_after_plan(topo_of(coll), forecast, &because)) {
    case MPATH_GATE_ASIDE:
        return mpath_coll_decline(coll, because);
    case MPATH_GATE_DIRECT:
        mpath_debug("the static routes are predicted to take %llu ns, the plan's %llu ns; the call takes the former",
                    (unsigned long long)forecast->direct_ns, (unsigned long long)forecast->plan_ns);
        *plan_p = forecast->direct;
        return MPATH_OK;
    default:
        return MPATH_OK;
    }
}

/* Finds the plan, and asks the gate. MPATH_DECLINED with the reason noted, or an error of this rank. */
static mpath_status_t plan_call(mpath_coll_t *coll, const mpath_agreed_t *agreed, const mpath_plan_t **plan_p)
{
    const mpath_topo_t *topo;
    mpath_gate_view_t view;
    mpath_status_t status;
    const char *because;
    int hit;

    if (coll->topo_version != mpath_team_topo_version(coll->team)) {
        status = mpath_coll_read_topo(coll);
        if (status != MPATH_OK) {
            return status;
        }
    }
    topo = topo_of(coll);
    mpath_gate_look(topo, coll->demand, &view);
    because = mpath_gate_before_plan(coll->settings, &view);
    if (because != NULL) {
        return mpath_coll_decline(coll, because);
    }
    if (!coll->connected && !is_connected(topo, coll->demand)) {
        return mpath_coll_decline(coll, "some pair of ranks with data has no path");
    }
    status = mpath_plan_cache_get(coll->cache, agreed->signature, coll->demand, plan_p, &hit);
    if (status != MPATH_OK) {
        return is_common(status) ? mpath_coll_decline(coll, "the topology cannot carry the data") : status;
    }
    coll->counters.plans += hit ? 0 : 1;
    coll->counters.plan_hits += hit ? 1 : 0;
    if (coll->settings->check_plan) {
        status = check_plans(coll, *plan_p);
        if (status != MPATH_OK) {
            return status;
        }
    }
    return mpath_gate_compares(coll->settings) ? choose_routes(coll, plan_p) : MPATH_OK;
}

/* Plan, gate, move; MPATH_AGAIN when the topology has changed meanwhile. */
static mpath_status_t carry_once(mpath_coll_t *coll, const mpath_call_t *call, const mpath_agreed_t *agreed)
{
    uint64_t start_ns = mpath_time_ns(), planned_ns;
    const mpath_plan_t *plan;
    mpath_status_t status;

    status     = plan_call(coll, agreed, &plan);
    planned_ns = mpath_time_ns();
    coll->counters.plan_ns += planned_ns - start_ns;
    if (mpath_status_is_error(status)) {
        mpath_team_break(coll->team, status);
    }
    if (status != MPATH_OK) {
        return status;
    }
    status = mpath_move(coll->team, call, agreed, plan, &coll->counters.moved);
    coll->counters.move_ns += mpath_time_ns() - planned_ns;
    if (status == MPATH_DECLINED) {
        return mpath_coll_decline(coll, "some rank could not open its rails");
    }
    return (status == MPATH_OK) ? mpath_coll_rates_observe(coll, plan) : status;
}

/* A call was declined, maybe for rails that have failed: the next one shall find those that are back. */
static mpath_status_t recover_declined(mpath_coll_t *coll)
{
    mpath_status_t status = mpath_move_recover(coll->team);

    if (status != MPATH_OK) {
        mpath_team_break(coll->team, status);
    }
    return (status == MPATH_OK) ? MPATH_DECLINED : status;
}

/* What the agreement has not delivered. Each repetition, which *repeats_p counts, leaves out one rail more at least. */
static mpath_status_t carry(mpath_coll_t *coll, const mpath_call_t *call, const mpath_agreed_t *agreed, int *repeats_p)
{
    mpath_agreed_t again = *agreed;
    mpath_status_t status;
    uint64_t start_ns;
    int previous;

    set_demand(coll, agreed);
    status = mpath_coll_rates_take(coll, agreed->flags);
    if (status == MPATH_OK) {
        status = mpath_coll_choose_host(coll, agreed, &previous);
    }
    if (status != MPATH_OK) {
        return status;
    }
    if (previous) {
        return mpath_coll_decline(coll, "calls like this one are faster with it, or that is tried");
    }
    start_ns = mpath_time_ns();
    status   = carry_once(coll, call, agreed);
    mpath_doubt_took(&coll->doubt, mpath_time_ns() - start_ns, coll->load.links_ns);
    while (status == MPATH_AGAIN) {
        *repeats_p += 1;
        again.call = mpath_team_call(coll->team);
        status     = carry_once(coll, call, &again);
    }
    return (status == MPATH_DECLINED) ? recover_declined(coll) : status;
}

/* Spent so far on plans for device memory. */
static uint64_t device_plan_ns(const mpath_coll_t *coll)
{
    mpath_coll_counters_t counters;

    mpath_coll_counters(coll, &counters);
    return counters.gpu.plan_ns + counters.relay.plan_ns;
}

/* The call has device memory on some rank. */
static mpath_status_t carry_device(mpath_coll_t *coll, const mpath_call_t *call, const mpath_agreed_t *agreed)
{
    size_t size         = (size_t)mpath_team_size(coll->team);
    uint64_t start_ns   = mpath_time_ns();
    mpath_agreed_t kept = *agreed; /* gathers on the way would overwrite its demand */
    mpath_status_t status;
    mpath_way_t way;
    uint64_t plan_ns, took_ns;

    memcpy(coll->demand, agreed->demand, size * size * sizeof(*coll->demand));
    kept.demand = coll->demand;
    status      = mpath_coll_rates_take(coll, agreed->flags);
    if (status != MPATH_OK) {
        return status;
    }
    plan_ns = device_plan_ns(coll);
    status  = MPATH_DECLINED;
    if (mpath_relay_coll_usable(coll->relay)) {
        status = mpath_coll_choose_device(coll, &kept, &way);
        if (status != MPATH_OK) {
            return status;
        }
        if (way == MPATH_WAY_BY_HOST) {
            coll->wants_host       = 1;
            coll->declined_because = "calls like this one are faster by way of the host, or that is tried";
            return MPATH_DECLINED;
        }
        if (way == MPATH_WAY_PREVIOUS) {
            return mpath_coll_decline(coll, "calls like this one are faster with it, or that is tried");
        }
        status = mpath_relay_coll_move(coll->relay, call, &kept);
    }
    if ((status == MPATH_DECLINED) && mpath_gpu_coll_usable(coll->gpu)) {
        status = mpath_gpu_coll_move(coll->gpu, call, &kept);
    }
    took_ns = mpath_time_ns() - start_ns;
    plan_ns = device_plan_ns(coll) - plan_ns;
    mpath_relay_coll_took(coll->relay, took_ns);
    if (status == MPATH_OK) {
        status = mpath_coll_rates_observe_device(coll);
    }
    coll->counters.plan_ns += plan_ns;
    coll->counters.move_ns += took_ns - plan_ns;
    coll->wants_host = (status == MPATH_DECLINED) && ((mpath_topo_num_nodes(mpath_team_topo(coll->team)) > 1) ||
                                                      mpath_gpu_coll_lacks_slots(coll->gpu));
    return (status == MPATH_DECLINED) ? mpath_coll_decline(coll, mpath_gpu_coll_declined_because(coll->gpu)) : status;
}

static mpath_status_t agree_and_carry(mpath_coll_t *coll, mpath_call_t *call, mpath_agreed_t *agreed_p)
{
    uint64_t start_ns = mpath_time_ns(), agreed_ns, launch_ns = 0;
    int takes_device = mpath_coll_takes_device(coll), done = 0, repeats = 0;
    mpath_agreed_t agreed;
    mpath_status_t status;

    coll->declined_because = "";
    coll->wants_host       = 0;
    call->operation        = MPATH_OPERATION_ALLTOALLV;
    call->flags = (call->flags & ~(uint32_t)(MPATH_CALL_SLOW | MPATH_CALL_RATES)) | mpath_doubt_tell(&coll->doubt) |
                  mpath_coll_rates_tell(coll);
    coll->began_ns = start_ns;
    if (takes_device) {
        mpath_gpu_notice_lost();
        if ((call->send_memory != NULL) || (call->recv_memory != NULL)) {
            call->flags |= MPATH_CALL_DEVICE;
        }
        launch_ns = mpath_gpu_coll_publish(coll->gpu, call);
        mpath_relay_coll_publish(coll->relay, call);
    }
    status    = mpath_agree(coll->team, call, &agreed);
    agreed_ns = mpath_time_ns();
    coll->counters.agree_ns += agreed_ns - start_ns - launch_ns;
    coll->counters.move_ns += launch_ns;
    if (takes_device) {
        status = mpath_gpu_coll_exchanged(coll->gpu, call, status, (status == MPATH_OK) ? agreed.flags : 0, &done);
    }
    if (status != MPATH_OK) {
        return status;
    }
    *agreed_p = agreed;
    mpath_relay_coll_hear(coll->relay, agreed.flags);
    if (done) {
        coll->counters.move_ns += mpath_time_ns() - agreed_ns;
        coll->counters.calls++;
        return MPATH_OK;
    }
    if (agreed.flags & MPATH_CALL_INELIGIBLE) {
        return mpath_coll_decline(coll, "some rank has data that mpath does not carry");
    }
    if (mpath_gate_of(coll->settings) == MPATH_GATE_NEVER) {
        status = mpath_coll_decline(coll, "a parameter says never");
    } else if (agreed.flags & MPATH_CALL_DEVICE) {
        status = carry_device(coll, call, &agreed);
    } else if (agreed.finished) {
        copy_self(coll, call);
    } else {
        status = carry(coll, call, &agreed, &repeats);
    }
    if (status == MPATH_OK) {
        coll->counters.calls++;
    } else if ((status == MPATH_DECLINED) && (call->flags & MPATH_CALL_IN_PLACE)) {
        put_back(coll, call, &agreed, repeats > 0);
    }
    return status;
}

mpath_status_t mpath_alltoallv(mpath_coll_t *coll, mpath_call_t *call)
{
    mpath_agreed_t agreed = {.flags = 0};
    mpath_status_t status = agree_and_carry(coll, call, &agreed);

    return mpath_coll_note_agreed(coll, status, &agreed);
}
