/* SPDX-License-Identifier: BSD-3-Clause */
/* Alltoallv: the steps of a collective in order, agree, plan, gate, move, and what is counted about them. */
#include "coll/alltoallv_private.h"

#include "coll/dump.h"
#include "coll/reduction.h"
#include "plan/gate.h"
#include "team/wait.h"
#include "util/log.h"
#include "util/reserve.h"
#include "util/time.h"
#include "wire/failover.h"

#include <stdlib.h>
#include <string.h>

/* Alltoallv: what calls before have shown, and which of the next need no agreement or go another way for that. */

/* A rank that sends and receives more does not try copies of all its data on the host. */
#define BY_HOST_MOST_BYTES (UINT64_C(4) << 20)

/* Whether a parameter says something about calls on host memory. */
static int host_is_free(const mpath_coll_t *coll)
{
    return coll->settings->gate == MPATH_GATE_AUTO &&
           !mpath_tuning_has(&coll->tuning, MPATH_OPERATION_ALLTOALLV, MPATH_ON_HOST);
}

/* Whether parameters leave all calls to the previous function. */
static int is_never(const mpath_coll_t *coll)
{
    return coll->settings->gate == MPATH_GATE_NEVER || mpath_tuning_is_never(&coll->tuning, MPATH_OPERATION_ALLTOALLV);
}

/* Emulated rates do not hold on the host. */
static int is_emulated(const mpath_coll_t *coll)
{
    const mpath_topo_t *topo = mpath_team_gpu_topo(coll->team);

    return (topo != NULL) && (mpath_topo_params(topo)->emulated != MPATH_EMULATED_NO);
}

/* Of the call under way, of which coll->demand is what a plan has to carry. */
static const mpath_load_t *coll_load(mpath_coll_t *coll)
{
    if (!coll->has_load) {
        mpath_load_find(mpath_team_topo(coll->team), coll->demand, coll->sums, &coll->load);
        coll->has_load = 1;
    }
    return &coll->load;
}

/* The functions besides relays that may be as fast: the same on all ranks. */
static void open_functions(const mpath_coll_t *coll, const mpath_agreed_t *agreed, const mpath_load_t *load,
                           int may_copy, mpath_function_call_t *call)
{
    int is_short = mpath_function_size(load->busiest) <= mpath_function_size(BY_HOST_MOST_BYTES);

    *call = (mpath_function_call_t){.bytes = load->busiest,
                                    /* in short calls it is not the links that count */
                                    .skew = is_short ? 0 : mpath_function_skew(load->busiest_cross, load->node_cross)};
    if (load->busiest == 0) {
        return;
    }
    call->open = (is_short && may_copy) ? 1u << MPATH_FUNCTION_BY_HOST : 0;
    /* what MPI sends itself may take a rail that has failed since */
    if (!(agreed->flags & MPATH_CALL_FOREIGN) && (mpath_team_topo_version(coll->team) == 0)) {
        call->open |= 1u << MPATH_FUNCTION_PREVIOUS;
    }
}

/*
 * What calls before have shown of one on device memory that relays could carry and for which parameters force nothing: the
 * same on all ranks; may be collective. An error breaks the team.
 */
static mpath_status_t coll_ask_device_tuner(mpath_coll_t *coll, const mpath_agreed_t *agreed, const mpath_load_t *load,
                                            int may_copy, mpath_function_t *function_p)
{
    mpath_function_call_t call;
    mpath_status_t status;

    *function_p = MPATH_FUNCTION_OWN;
    if ((mpath_topo_num_nodes(mpath_team_topo(coll->team)) == 1) || is_emulated(coll) ||
        (coll->settings->gate != MPATH_GATE_AUTO) || (agreed->flags & MPATH_CALL_APART)) {
        return MPATH_OK;
    }
    open_functions(coll, agreed, load, may_copy, &call);
    if (mpath_idle_others_may_rest()) { /* no measure, and copies on the host would hold up whoever progresses it */
        *function_p = (mpath_function_known(&coll->device, &call) == MPATH_FUNCTION_PREVIOUS) ? MPATH_FUNCTION_PREVIOUS
                                                                                              : MPATH_FUNCTION_OWN;
        return MPATH_OK;
    }
    status = mpath_function_next(&coll->device, coll->team, &call, coll->began_ns, function_p);
    if (status != MPATH_OK) {
        mpath_team_break(coll->team, status);
    }
    return status;
}

/* Where calls are kept of which each pair of ranks has so many bytes. */
static mpath_coll_equal_t *equal_of(mpath_coll_t *coll, uint64_t pair_bytes)
{
    return &coll->equals[mpath_function_size(pair_bytes) % MPATH_COLL_EQUALS];
}

/* The ranks have left a call on host memory to the previous function: the next one with as many bytes is of that kind, too. */
static void keep_equal(mpath_coll_t *coll, const mpath_doubt_call_t *call)
{
    if (coll->equal_bytes > 0) {
        *equal_of(coll, coll->equal_bytes) = (mpath_coll_equal_t){
            .pair_bytes = coll->equal_bytes, .bytes = call->bytes, .skew = call->skew};
    }
}

/* Whether the call under way needs no agreement, since it is like one that the ranks have agreed on. */
static int equal_passes(mpath_coll_t *coll)
{
    const mpath_coll_equal_t *equal = equal_of(coll, coll->equal_bytes);

    return coll->equal_bytes > 0 && equal->pair_bytes == coll->equal_bytes &&
           mpath_doubt_passes(&coll->doubt, coll->team, equal->bytes, equal->skew);
}

/*
 * What calls before have shown of one on host memory for which parameters force nothing: the previous function is faster,
 * or that is tried. The same on all ranks; may be collective. An error breaks the team.
 */
static mpath_status_t coll_ask_tuner(mpath_coll_t *coll, const mpath_agreed_t *agreed, const mpath_load_t *load,
                                     const char **because_p)
{
    mpath_doubt_call_t call;
    mpath_status_t status;
    int previous;

    *because_p = NULL;
    if (load->links_ns == 0) {
        return MPATH_OK; /* nothing crosses between nodes */
    }
    call         = (mpath_doubt_call_t){.bytes  = load->busiest_cross,
                                        .skew   = mpath_function_skew(load->busiest_cross, load->node_cross),
                                        .adapts = mpath_coll_rates_follow(coll, load->links_ns)};
    call.is_even = call.skew == 0;
    status       = mpath_doubt_next(&coll->doubt, coll->team, agreed->flags, &call, coll->began_ns, &previous);
    *because_p   = status == MPATH_OK && previous ? MPATH_WHY_FASTER : NULL;
    if (*because_p != NULL) {
        keep_equal(coll, &call);
    }
    return status;
}

/* On one node, and between nodes of one rail each. Not where other rails have failed, which may come back. */
static int gains_small_only(const mpath_coll_t *coll)
{
    const mpath_topo_t *topo = mpath_team_topo(coll->team);

    return (mpath_topo_num_nodes(topo) == 1) ||
           ((mpath_team_topo_version(coll->team) == 0) && mpath_gate_has_one_rail(topo));
}

/*
 * What the ranks may do without next time. Not where processes use GPUs: the others have to hear of device memory. The
 * same on all ranks.
 */
static mpath_passing_call_t what_it_was(const mpath_coll_t *coll, mpath_status_t status, const mpath_agreed_t *agreed)
{
    if ((agreed->flags & (MPATH_CALL_GPUS | MPATH_CALL_DEVICE)) || !host_is_free(coll) || !gains_small_only(coll)) {
        return MPATH_PASSING_OTHER;
    }
    if (status == MPATH_DECLINED) {
        return MPATH_PASSING_DECLINED;
    }
    return ((status == MPATH_OK) && agreed->finished) ? MPATH_PASSING_SHORT : MPATH_PASSING_OTHER;
}

/* How a call has ended, for those that may do without an agreement: its status, or an error. */
static mpath_status_t coll_note_agreed(mpath_coll_t *coll, mpath_status_t status, const mpath_agreed_t *agreed)
{
    mpath_passing_call_t call = what_it_was(coll, status, agreed);

    mpath_trial_t *due = (call == MPATH_PASSING_SHORT) ? mpath_passing_due(&coll->passing) : NULL;

    if (due != NULL) {
        status = mpath_trial_conclude(due, &mpath_passing_rule, coll->team);
        if (status == MPATH_OK) {
            mpath_passing_decided(&coll->passing);
        } else {
            mpath_team_break(coll->team, status);
        }
        return status;
    }
    if (mpath_passing_agreed(&coll->passing, call)) {
        mpath_passing_short(&coll->passing, agreed->largest_bytes);
    }
    return status;
}

int mpath_coll_passes(mpath_coll_t *coll, uint64_t equal_bytes)
{
    int passes;

    coll->equal_bytes = equal_bytes;
    if (is_never(coll) && (mpath_team_status(coll->team) == MPATH_OK)) {
        (void)mpath_coll_decline(coll, MPATH_WHY_PARAMETER);
        return 1;
    }
    if (mpath_team_status(coll->team) != MPATH_OK) {
        return 0; /* the call fails like all others */
    }
    if (!mpath_passing_has_plans(&coll->passing)) {
        passes = equal_passes(coll);
        if (passes) {
            (void)mpath_coll_decline(coll, MPATH_WHY_FASTER);
        }
        return passes;
    }
    passes = mpath_passing_next(&coll->passing);
    if (mpath_passing_is_timed(&coll->passing)) {
        coll->asked_ns = mpath_time_ns();
    }
    if (passes) {
        (void)mpath_coll_decline(coll, MPATH_WHY_CALLS_BEFORE);
    }
    return passes;
}

void mpath_coll_ended(mpath_coll_t *coll)
{
    if (mpath_passing_is_timed(&coll->passing)) {
        mpath_passing_took(&coll->passing, mpath_time_ns() - coll->asked_ns);
    }
    mpath_trials_ended(&coll->device);
    mpath_doubt_ended(&coll->doubt);
}

#define WATCH_MOST_RANKS 1024 /* for the line of a call; above, the matrix alone takes more than 8 MB of each rank */

/* Where plans are made by pairs of nodes, the ranks bring the matrix together for nothing but this. */
static uint32_t find_watches(const mpath_coll_t *coll)
{
    const mpath_record_t *record = mpath_team_record(coll->team);
    int says = record != NULL && mpath_record_says(record) && mpath_team_size(coll->team) <= WATCH_MOST_RANKS;

    return says || mpath_dump_wanted(coll->settings) ? MPATH_CALL_WATCHED : 0;
}

/* Of all ranks: sums and, behind them, signatures. Most jobs use neither. */
#define SUMS_BYTES(coll) ((MPATH_LOAD_SUMS + 1) * (size_t)mpath_team_size((coll)->team) * sizeof(*(coll)->sums))

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
    coll->watches          = find_watches(coll);
    mpath_tuning_read(settings, mpath_team_rank(team) == 0, &coll->tuning);
    coll->sums = mpath_reserve(SUMS_BYTES(coll));
    if (coll->sums == NULL) {
        goto err_no_memory;
    }
    coll->signatures = coll->sums + MPATH_LOAD_SUMS * size;
    status           = mpath_gpu_coll_create(team, &coll->gpu);
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
        mpath_plans_release(&coll->plans);
        mpath_parts_destroy(coll->parts);
        mpath_coll_rates_release(coll);
        mpath_trials_forget(&coll->device);
        mpath_doubt_release(&coll->doubt);
        mpath_unreserve(coll->sums, SUMS_BYTES(coll));
        free(coll->demand);
        free(coll);
    }
}

void mpath_coll_counters(const mpath_coll_t *coll, mpath_coll_counters_t *counters)
{
    memcpy(counters, &coll->counters, offsetof(mpath_coll_counters_t, gpu)); /* asked for after each call */
    mpath_gpu_coll_counters(coll->gpu, &counters->gpu);
    mpath_relay_coll_counters(coll->relay, &counters->relay);
    counters->plans += counters->gpu.plans + counters->relay.plans;
    counters->plan_hits += counters->gpu.plan_hits + counters->relay.plan_hits;
}

int mpath_coll_takes_device(const mpath_coll_t *coll)
{
    return (mpath_gpu_coll_usable(coll->gpu) || mpath_relay_coll_usable(coll->relay)) && !is_never(coll);
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

/*
 * The matrix of the call as coll->demand: the whole, or without what has travelled inside the agreement. The ranks exchange
 * their rows where it is another one than that of the last call. Collective; an error breaks the team.
 */
static mpath_status_t coll_take_demand(mpath_coll_t *coll, const mpath_call_t *call, const mpath_agreed_t *agreed)
{
    size_t size            = (size_t)mpath_team_size(coll->team);
    int whole              = (agreed->flags & MPATH_CALL_DEVICE) != 0;
    mpath_agreed_t fetched = *agreed;
    mpath_status_t status;

    if (coll->has_demand && (coll->demand_signature == agreed->signature)) {
        return MPATH_OK;
    }
    coll->has_demand = 0;
    if (coll->demand == NULL) {
        coll->demand = malloc(size * size * sizeof(*coll->demand));
    }
    if (coll->demand == NULL) {
        mpath_error("no memory for the byte counts of %zu ranks; the call fails", size);
        mpath_team_break(coll->team, MPATH_ERR_NO_MEMORY);
        return MPATH_ERR_NO_MEMORY;
    }
    status = mpath_agree_demand(coll->team, call, &fetched);
    if (status != MPATH_OK) {
        return status;
    }
    for (size_t source = 0; source < size; source++) {
        for (size_t destination = 0; destination < size; destination++) {
            uint64_t bytes  = fetched.demand[source * size + destination];
            int is_finished = (source == destination) ||
                              (bytes <= mpath_agreed_inline_bytes(coll->team, agreed, (int)source, (int)destination));

            coll->demand[source * size + destination] = (is_finished && !whole) ? 0 : bytes;
        }
    }
    coll->demand_signature = agreed->signature;
    coll->has_demand       = 1;
    coll->has_view         = 0;
    coll->has_load         = 0;
    coll->is_planned       = 0;
    return MPATH_OK;
}

/* The same of parts of it: both ends of each flow must have it alike. */
static mpath_status_t check_parts(mpath_coll_t *coll, const mpath_plan_t *plan)
{
    uint64_t mine = mpath_pairs_balance(mpath_team_rank(coll->team), plan), sum = 0;
    mpath_status_t status = mpath_team_allgather(coll->team, &mine, sizeof(mine), coll->signatures);

    for (int rank = 0; (status == MPATH_OK) && (rank < mpath_team_size(coll->team)); rank++) {
        sum += coll->signatures[rank];
    }
    if (sum != 0) {
        mpath_error("the ranks' parts of the plan do not fit each other; the call fails");
        status = MPATH_ERR_INTERNAL;
    }
    return status;
}

/* Debugging: all ranks must have come to the same plan. */
static mpath_status_t check_plans(mpath_coll_t *coll, const mpath_plan_t *plan)
{
    uint64_t mine = mpath_plan_signature(plan);
    mpath_status_t status;

    if (mpath_plan_is_part(plan)) {
        return check_parts(coll, plan);
    }
    status = mpath_team_allgather(coll->team, &mine, sizeof(mine), coll->signatures);
    for (int rank = 0; (status == MPATH_OK) && (rank < mpath_team_size(coll->team)); rank++) {
        if (coll->signatures[rank] != coll->signatures[0]) {
            mpath_error("rank %d has another plan (%016llx) than rank 0 (%016llx); the call fails", rank,
                        (unsigned long long)coll->signatures[rank], (unsigned long long)coll->signatures[0]);
            status = MPATH_ERR_INTERNAL;
        }
    }
    return status;
}

/* -- the rows of the table, see coll/algorithm.h -- */

/* A call that the agreement has not finished. */
typedef struct alltoallv_call {
    mpath_coll_t *coll;
    mpath_call_t *call;
    const mpath_agreed_t *agreed;
    mpath_question_t *question; /* NULL: it is not asked about */
    const mpath_plan_t *part;   /* by pairs of nodes; NULL: the plan is of the whole job */
    const mpath_plan_t *plan;
    const mpath_gate_forecast_t *forecast; /* NULL: times do not matter */
    mpath_gate_forecast_t by_pairs;        /* of the part */
    /* On device memory */
    mpath_agreed_t kept; /* `agreed`: gathers on the way would overwrite its demand */
    mpath_load_t load;
    uint64_t start_ns, plan_ns; /* when its time began to count; spent on plans until then */
    int is_copied;              /* copies in host memory have taken its place, in a call of their own */
} alltoallv_call_t;

static const char *inline_able(const mpath_question_t *question)
{
    if (question->agreed) {
        return question->finished ? NULL : MPATH_WHY_NOT_ALL_SHORT;
    }
    return question->largest_bytes <= question->settings->small_bytes ? NULL : MPATH_WHY_NOT_SHORT;
}

static const char *planned_able(const mpath_question_t *question)
{
    return question->obstacle != NULL ? question->obstacle
           : question->by_pairs       ? "the plan is made by pairs of nodes"
                                      : NULL;
}

static const char *pairs_able(const mpath_question_t *question)
{
    return question->obstacle != NULL ? question->obstacle
           : question->by_pairs       ? NULL
                                      : "the plan is of the whole job: ranks are few, or their rails have no other";
}

/* GPUs of one node do better without a plan that takes their links as they are. */
static const char *direct_able(const mpath_question_t *question)
{
    return question->obstacle == NULL && question->memory == MPATH_ON_DEVICE &&
                   mpath_relay_coll_are_mates(question->topo)
               ? "one node has kernels and engines for the links between its GPUs"
               : planned_able(question);
}

static const char *eager_able(const mpath_question_t *question)
{
    if (question->agreed) {
        return question->finished ? NULL : "kernels have not carried it during the agreement";
    }
    if (question->node_obstacle != NULL || question->rates == NULL) {
        return question->node_obstacle != NULL ? question->node_obstacle : "the rates of the GPUs are not known";
    }
    return mpath_gpu_exchange_pays(question->rates, mpath_topo_num_ranks(question->topo), question->bytes,
                                   question->bytes)
               ? NULL
               : "more than kernels carry faster during the agreement than after it";
}

static const char *node_able(const mpath_question_t *question)
{
    return question->node_obstacle;
}

static const char *copied_able(const mpath_question_t *question)
{
    return question->copy_obstacle;
}

static const char *always_able(const mpath_question_t *question)
{
    (void)question;
    return NULL;
}

static void inline_cost(const mpath_question_t *question, mpath_verdict_t *verdict)
{
    (void)question;
    verdict->ns = 0; /* the agreement is there anyway */
}

/* MPI libraries copy large messages inside a node once, where rings copy twice; over one rail they take the same routes. */
static const char *why_pointless(const mpath_question_t *question)
{
    const mpath_gate_forecast_t *forecast = question->forecast;

    if (question->memory == MPATH_ON_DEVICE) {
        return forecast != NULL && forecast->plan_ns > forecast->direct_ns && mpath_relay_coll_are_mates(question->topo)
                   ? "the links between the GPUs are faster, for which one node has kernels and engines"
                   : NULL;
    }
    if (question->between_bytes == 0 && question->largest_bytes >= question->settings->node_min_bytes) {
        return MPATH_WHY_INSIDE_NODES;
    }
    return forecast != NULL && forecast->plan_ns >= forecast->direct_ns && mpath_gate_has_one_rail(question->topo)
               ? MPATH_WHY_ONE_RAIL_ROUTES
               : NULL;
}

static void planned_cost(const mpath_question_t *question, mpath_verdict_t *verdict)
{
    verdict->pointless = why_pointless(question);
    verdict->ns        = question->forecast != NULL ? question->forecast->plan_ns : 0;
}

static void direct_cost(const mpath_question_t *question, mpath_verdict_t *verdict)
{
    const mpath_gate_forecast_t *forecast = question->forecast;

    verdict->pointless = why_pointless(question);
    if (verdict->pointless == NULL && forecast != NULL && forecast->direct == NULL) {
        verdict->pointless = MPATH_WHY_SAME_ROUTES;
    }
    verdict->ns = forecast != NULL ? forecast->direct_ns : MPATH_ALGORITHM_UNPREDICTED;
}

/* It takes the static routes, too, at best as well; on device memory by copies, or whatever else. */
static void previous_cost(const mpath_question_t *question, mpath_verdict_t *verdict)
{
    verdict->ns = question->forecast != NULL && question->memory == MPATH_ON_HOST ? question->forecast->direct_ns
                                                                                  : MPATH_ALGORITHM_UNPREDICTED;
}

/* Nobody predicts it as a whole: it is taken where no plan is of use. */
static void unpredicted_cost(const mpath_question_t *question, mpath_verdict_t *verdict)
{
    (void)question;
    verdict->ns = MPATH_ALGORITHM_UNPREDICTED;
}

static mpath_status_t move_on_host(const alltoallv_call_t *work, const mpath_plan_t *plan)
{
    mpath_coll_t *coll     = work->coll;
    mpath_record_t *record = mpath_team_record(coll->team);
    uint64_t start_ns = mpath_time_ns(), forwarded_bytes = coll->counters.moved.forwarded_bytes;
    mpath_status_t status;
    size_t routes;

    mpath_record_phase(record, MPATH_OPERATION_ALLTOALLV, MPATH_RECORD_MOVE, start_ns);
    status = mpath_move(coll->team, work->call, work->agreed, plan, &coll->counters.moved);
    coll->counters.move_ns += mpath_time_ns() - start_ns;
    if (record != NULL) {
        (void)mpath_plan_flows(plan, &routes);
        record->call.routes = (uint32_t)routes;
        record->call.relayed_bytes += coll->counters.moved.forwarded_bytes - forwarded_bytes;
    }
    if (status == MPATH_DECLINED) {
        return mpath_coll_decline(coll, MPATH_WHY_RAILS_CLOSED);
    }
    return status == MPATH_OK ? mpath_coll_rates_observe(coll, plan) : status;
}

/* Over relays. What cannot be had after all is an obstacle, and the call is asked about again. */
static mpath_status_t move_on_device(const alltoallv_call_t *work, const mpath_plan_t *plan)
{
    mpath_status_t status = mpath_relay_coll_move(work->coll->relay, plan);

    if (status == MPATH_DECLINED) {
        work->question->obstacle = MPATH_WHY_NO_RELAYS;
        return MPATH_AGAIN;
    }
    return status;
}

static mpath_status_t move(const alltoallv_call_t *work, const mpath_plan_t *plan)
{
    return work->question->memory == MPATH_ON_DEVICE ? move_on_device(work, plan) : move_on_host(work, plan);
}

static mpath_status_t inline_run(void *argument)
{
    const alltoallv_call_t *work = argument;

    copy_self(work->coll, work->call);
    return MPATH_OK;
}

static mpath_status_t planned_run(void *argument)
{
    const alltoallv_call_t *work = argument;

    return move(work, work->plan);
}

static mpath_status_t pairs_run(void *argument)
{
    const alltoallv_call_t *work = argument;

    return move(work, work->part);
}

static mpath_status_t direct_run(void *argument)
{
    const alltoallv_call_t *work = argument;
    int differs                  = work->forecast != NULL && work->forecast->direct != NULL;

    return move(work, differs ? work->forecast->direct : work->plan);
}

/* The kernels have ended. */
static mpath_status_t eager_run(void *argument)
{
    (void)argument;
    return MPATH_OK;
}

static const char *find_copy_obstacle(const mpath_coll_t *coll, const mpath_call_t *call)
{
    if (call->to_host == NULL) {
        return MPATH_WHY_NO_COPIES;
    }
    return mpath_topo_num_nodes(mpath_team_topo(coll->team)) == 1 && !mpath_gpu_coll_lacks_slots(coll->gpu)
               ? MPATH_WHY_COPIES_TOO
               : NULL;
}

static mpath_status_t node_run(void *argument)
{
    const alltoallv_call_t *work = argument;
    mpath_coll_t *coll           = work->coll;
    mpath_status_t status        = mpath_gpu_coll_move(coll->gpu, work->call, work->agreed);

    if (status == MPATH_DECLINED) {
        work->question->node_obstacle = mpath_gpu_coll_declined_because(coll->gpu);
        work->question->copy_obstacle = find_copy_obstacle(coll, work->call);
        return MPATH_AGAIN;
    }
    return status;
}

static mpath_status_t agree_and_carry(mpath_coll_t *coll, mpath_call_t *call, mpath_agreed_t *agreed);
static void device_time_ends(alltoallv_call_t *work);

/* With buffers in host memory it is another call, for which there is the rest of the table. */
static mpath_status_t copied_run(void *argument)
{
    alltoallv_call_t *work = argument;
    mpath_agreed_t agreed;
    mpath_status_t status;

    device_time_ends(work);
    status = work->call->to_host(work->call, work->call->user);
    if (status != MPATH_OK) {
        mpath_team_break(work->coll->team, status); /* the others go on, and would wait */
        return status;
    }
    work->is_copied = 1;
    return agree_and_carry(work->coll, work->call, &agreed);
}

#define ON_BOTH (MPATH_ON_HOST | MPATH_ON_DEVICE)

const mpath_algorithm_t mpath_alltoallv_algorithms[] = {
    {"inline", "short messages inside the agreement", MPATH_ON_HOST, 0, inline_able, inline_cost, inline_run},
    {"eager", "short messages by kernels, during the agreement", MPATH_ON_DEVICE, 0, eager_able, inline_cost,
     eager_run},
    {"planned", "the plan's routes over all rails and relays", ON_BOTH, 1, planned_able, planned_cost, planned_run},
    {"direct", "the static route of each pair", ON_BOTH, 1, direct_able, direct_cost, direct_run},
    {"pairs", "as planned, for each pair of nodes by itself", ON_BOTH, 1, pairs_able, planned_cost, pairs_run},
    {"node", "the kernels and engines of a node's GPUs", MPATH_ON_DEVICE, 0, node_able, unpredicted_cost, node_run},
    {"copied", "copies in host memory, and what carries these", MPATH_ON_DEVICE, 0, copied_able, unpredicted_cost,
     copied_run},
    {"previous", "the function that mpath replaces", ON_BOTH, 0, always_able, previous_cost, NULL},
    {.name = NULL}};

static const mpath_algorithm_t *row_of(const char *name)
{
    return mpath_algorithm_find(MPATH_OPERATION_ALLTOALLV, name);
}

/* The same of a plan by pairs of nodes, which is there. */
static mpath_status_t alltoallv_plan_pairs(mpath_question_t *question)
{
    alltoallv_call_t *work = question->planner;
    mpath_coll_t *coll     = work->coll;

    coll->counters.plans += coll->part_hit ? 0 : 1;
    coll->counters.plan_hits += coll->part_hit ? 1 : 0;
    if (coll->settings->gate == MPATH_GATE_AUTO && question->forced == NULL) {
        mpath_parts_predict(coll->parts, &work->by_pairs.plan_ns, &work->by_pairs.direct_ns);
        work->forecast     = &work->by_pairs;
        question->forecast = work->forecast;
    }
    return coll->settings->check_plan ? check_plans(coll, work->part) : MPATH_OK;
}

/* Finds the plan, and what times are predicted where they matter. */
static mpath_status_t alltoallv_plan(mpath_question_t *question)
{
    alltoallv_call_t *work = question->planner;
    mpath_coll_t *coll     = work->coll;
    mpath_time_params_t params;
    mpath_status_t status = MPATH_OK;
    int hit;

    if (work->part != NULL) {
        return alltoallv_plan_pairs(question);
    }
    if (!coll->connected && !mpath_plans_connect(question->topo, coll->demand)) {
        question->obstacle = MPATH_WHY_NO_PATH;
        return MPATH_OK;
    }
    work->plan = coll->is_planned ? mpath_plan_cache_last(coll->plans.cache) : NULL;
    hit        = work->plan != NULL;
    if (!hit) {
        coll->is_planned = 0;
        status = mpath_plan_cache_get(coll->plans.cache, work->agreed->signature, coll->demand, &work->plan, &hit);
        if (mpath_plans_fail_alike(status)) {
            question->obstacle = MPATH_WHY_TOPOLOGY;
            return MPATH_OK;
        }
        if (status != MPATH_OK) {
            return status;
        }
        coll->is_planned = 1;
    }
    coll->counters.plans += hit ? 0 : 1;
    coll->counters.plan_hits += hit ? 1 : 0;
    if (coll->settings->check_plan) {
        status = check_plans(coll, work->plan);
    }
    if (status == MPATH_OK &&
        (question->forced != NULL ? question->forced->run == direct_run : coll->settings->gate == MPATH_GATE_AUTO)) {
        mpath_time_params_init(&params);
        params.chunk_bytes = coll->settings->chunk_bytes;
        status             = mpath_plan_cache_forecast(coll->plans.cache, &params, &work->forecast);
        question->forecast = work->forecast;
    }
    return status;
}

/* Who sends or receives most; for the log. */
static void record_hottest(const mpath_coll_t *coll, mpath_record_t *record)
{
    size_t size = (size_t)mpath_team_size(coll->team);

    for (size_t rank = 0; rank < size; rank++) {
        uint64_t sent = 0, received = 0;

        for (size_t other = 0; other < size; other++) {
            sent += coll->demand[rank * size + other];
            received += coll->demand[other * size + rank];
        }
        sent = sent > received ? sent : received;
        if (sent > record->call.hottest_bytes) {
            record->call.hottest       = (int32_t)rank;
            record->call.hottest_bytes = sent;
        }
    }
}

/* Whether coll->demand is the call's. */
static int knows_matrix(const mpath_coll_t *coll, const mpath_agreed_t *agreed)
{
    return coll->part == NULL || (agreed->flags & MPATH_CALL_WATCHED) != 0;
}

/* What was decided, and what was predicted where times decide. */
static void record_choice(mpath_coll_t *coll, const mpath_agreed_t *agreed, const mpath_question_t *question,
                          const mpath_decision_t *decision)
{
    mpath_record_t *record                = mpath_team_record(coll->team);
    const mpath_algorithm_t *algorithm    = decision->algorithm;
    const mpath_gate_forecast_t *forecast = question->forecast;

    if (record == NULL) {
        return;
    }
    record->call.algorithm = mpath_record_algorithm_find(algorithm->name);
    if (mpath_record_says(record) && knows_matrix(coll, agreed)) {
        record_hottest(coll, record);
    } else if (coll->part != NULL) {
        record->call.hottest       = MPATH_RECORD_HOTTEST_UNKNOWN;
        record->call.hottest_bytes = agreed->busiest_bytes;
    }
    record->call.static_ns = forecast != NULL ? forecast->direct_ns : 0;
    record->call.mpath_ns  = forecast != NULL ? decision->verdicts[algorithm - mpath_alltoallv_algorithms].ns : 0;
}

/*
 * Choose and run; MPATH_AGAIN when the topology has changed meanwhile. `busiest`: bytes of the busiest rank; `tuner`: why the
 * previous function is faster.
 */
static mpath_status_t carry_once(mpath_coll_t *coll, mpath_call_t *call, const mpath_agreed_t *agreed, uint64_t busiest,
                                 const mpath_algorithm_t *forced, const char *tuner)
{
    mpath_question_t question;
    alltoallv_call_t work = {.coll = coll, .call = call, .agreed = agreed, .question = &question, .part = coll->part};
    uint64_t start_ns     = mpath_time_ns();
    mpath_status_t status = MPATH_OK;
    mpath_decision_t decision;

    if (coll->topo_version != mpath_team_topo_version(coll->team)) {
        status = mpath_coll_read_topo(coll);
    }
    if (status == MPATH_OK) {
        if (work.part == NULL && !coll->has_view) {
            mpath_gate_look(mpath_plans_topo(&coll->plans), coll->demand, &coll->view);
            coll->has_view = 1;
        }
        question = (mpath_question_t){
            .collective    = MPATH_OPERATION_ALLTOALLV,
            .memory        = MPATH_ON_HOST,
            .settings      = coll->settings,
            .topo          = mpath_plans_topo(&coll->plans),
            .bytes         = busiest,
            .largest_bytes = work.part != NULL ? agreed->largest_bytes : coll->view.largest_bytes,
            .between_bytes = work.part != NULL ? agreed->node_bytes : coll->view.between_bytes,
            .by_pairs      = work.part != NULL,
            .agreed        = 1,
            .tuner         = tuner,
            .forced        = forced,
            .plan          = alltoallv_plan,
            .planner       = &work};
        status = mpath_choose(&question, &decision);
    }
    coll->counters.plan_ns += mpath_time_ns() - start_ns;
    if (mpath_status_is_error(status)) {
        mpath_team_break(coll->team, status);
        return status;
    }
    record_choice(coll, agreed, &question, &decision);
    return mpath_algorithm_is_previous(decision.algorithm) ? mpath_coll_decline(coll, decision.because)
                                                           : decision.algorithm->run(&work);
}

/* A call was declined, maybe for rails that have failed: the next one shall find those that are back. */
static mpath_status_t recover_declined(mpath_coll_t *coll)
{
    mpath_status_t status = mpath_failover_recover(coll->team);

    if (status != MPATH_OK) {
        mpath_team_break(coll->team, status);
    }
    return (status == MPATH_OK) ? MPATH_DECLINED : status;
}

/* Where times were predicted, and no connections were made, which took most of it. */
static void dump(const mpath_coll_t *coll, const mpath_agreed_t *agreed, const mpath_record_t *record)
{
    const mpath_dump_call_t call = {.name      = mpath_team_name(coll->team),
                                    .number    = record->call.number,
                                    .algorithm = mpath_record_algorithm_name(record->call.algorithm),
                                    .static_ns = record->call.static_ns,
                                    .mpath_ns  = record->call.mpath_ns,
                                    .taken_ns  = record->call.taken_ns,
                                    .topo      = mpath_plans_topo(&coll->plans),
                                    .demand    = coll->demand};

    if (call.static_ns > 0 && !record->call.sets_up && knows_matrix(coll, agreed)) {
        mpath_dump_plan(coll->settings, mpath_team_job_rank(coll->team), &call);
    }
}

/* What parameters force, where there may be no plan by pairs of nodes. */
static const mpath_algorithm_t *forced_without(const mpath_algorithm_t *forced, const mpath_plan_t *part)
{
    return forced != NULL && forced->run == pairs_run && part == NULL ? row_of("planned") : forced;
}

/* The same of a call on host memory; NULL: nothing. */
static const mpath_algorithm_t *coll_forced(const mpath_coll_t *coll, uint64_t busiest)
{
    return forced_without(mpath_tuning_find(&coll->tuning, MPATH_OPERATION_ALLTOALLV, MPATH_ON_HOST, busiest),
                          coll->part);
}

/* Whether a call's plan is to be made by pairs of nodes: of many ranks, or where that is forced. */
static int wants_pairs(const mpath_coll_t *coll, uint32_t memory, const mpath_agreed_t *agreed)
{
    const mpath_algorithm_t *forced = mpath_tuning_find(&coll->tuning, MPATH_OPERATION_ALLTOALLV, memory,
                                                        agreed->busiest_bytes);

    return forced != NULL ? forced->run == pairs_run : mpath_team_size(coll->team) > MPATH_PARTS_WHOLE_RANKS;
}

/*
 * Right after the agreement, while the rows of the node mates are there: coll->part of the call, where its plan is made by
 * pairs of nodes. The same decision on all ranks; collective where nodes are not alike. An error breaks the team.
 */
static mpath_status_t coll_find_part(mpath_coll_t *coll, const mpath_agreed_t *agreed)
{
    uint64_t start_ns;
    mpath_status_t status;

    coll->part = NULL;
    if (!wants_pairs(coll, MPATH_ON_HOST, agreed) || coll->parts == NULL || agreed->node_sends == NULL ||
        agreed->finished || is_never(coll) || (agreed->flags & (MPATH_CALL_INELIGIBLE | MPATH_CALL_DEVICE)) != 0 ||
        coll->topo_version != mpath_team_topo_version(coll->team)) {
        return MPATH_OK;
    }
    start_ns = mpath_time_ns();
    status   = mpath_parts_get(coll->parts, coll->team, agreed, &coll->part, &coll->part_hit);
    coll->counters.plan_ns += mpath_time_ns() - start_ns - mpath_parts_waited_ns(coll->parts);
    return status;
}

/*
 * coll->part once more of a call for which it was there, since the topology or its rates have become others: the rows of the node mates
 * stay until all are in the next call. The matrix where there is none: static routes of another topology are not those that the
 * agreement has counted. As above.
 */
static mpath_status_t coll_find_again(mpath_coll_t *coll, const mpath_call_t *call, const mpath_agreed_t *agreed)
{
    unsigned counted      = coll->topo_version;
    mpath_status_t status = MPATH_OK;

    coll->part = NULL;
    if (counted != mpath_team_topo_version(coll->team)) {
        status = mpath_coll_read_topo(coll);
    }
    if (status != MPATH_OK) {
        mpath_team_break(coll->team, status);
        return status;
    }
    if (coll->parts != NULL && (counted == coll->topo_version || !mpath_parts_are_alike(coll->parts))) {
        status = coll_find_part(coll, agreed);
    }
    return status == MPATH_OK && coll->part == NULL ? coll_take_demand(coll, call, agreed) : status;
}

/* What a plan needs to know of the call, at present rates. Collective; an error breaks the team. */
static mpath_status_t coll_prepare(mpath_coll_t *coll, const mpath_call_t *call, const mpath_agreed_t *agreed)
{
    unsigned number       = coll->parts_number;
    mpath_status_t status = knows_matrix(coll, agreed) ? coll_take_demand(coll, call, agreed) : MPATH_OK;

    if (status == MPATH_OK) {
        status = mpath_coll_rates_take(coll, agreed->flags);
    }
    return status == MPATH_OK && coll->part != NULL && coll->parts_number != number
               ? coll_find_again(coll, call, agreed)
               : status;
}

/* Of a call whose matrix nobody has; without what its links take. */
static mpath_load_t agreed_load(const mpath_coll_t *coll, const mpath_agreed_t *agreed)
{
    uint64_t nodes = (uint64_t)mpath_team_num_nodes(coll->team), ranks = (uint64_t)mpath_team_size(coll->team);

    return (mpath_load_t){.busiest       = agreed->busiest_bytes,
                          .busiest_cross = agreed->cross_bytes,
                          .node_cross    = agreed->node_bytes / ranks * nodes};
}

/* What the agreement has not delivered. Each repetition, which *repeats_p counts, leaves out one rail more at least. */
static mpath_status_t carry(mpath_coll_t *coll, mpath_call_t *call, const mpath_agreed_t *agreed, int *repeats_p)
{
    const mpath_algorithm_t *forced;
    mpath_record_t *record = mpath_team_record(coll->team);
    mpath_agreed_t again   = *agreed;
    const char *tuner      = NULL;
    mpath_status_t status;
    mpath_load_t load;
    uint64_t start_ns, took_ns;

    status = coll_prepare(coll, call, agreed);
    if (status != MPATH_OK) {
        return status;
    }
    load = coll->part != NULL ? agreed_load(coll, agreed) : *coll_load(coll);
    if (coll->part != NULL) {
        load.links_ns = mpath_parts_bound_ns(coll->parts);
    }
    forced = coll_forced(coll, load.busiest);
    if (forced == NULL && coll->settings->gate == MPATH_GATE_AUTO) {
        status = coll_ask_tuner(coll, agreed, &load, &tuner);
    }
    if (status != MPATH_OK) {
        return status;
    }
    start_ns = mpath_time_ns();
    status   = carry_once(coll, call, agreed, load.busiest, forced, tuner);
    if (tuner != NULL) {
        return status;
    }
    took_ns = mpath_time_ns() - start_ns;
    mpath_doubt_took(&coll->doubt, took_ns, load.links_ns);
    while (status == MPATH_AGAIN) {
        *repeats_p += 1;
        again.unmet = agreed->unmet == MPATH_UNMET_NONE ? MPATH_UNMET_NONE : MPATH_UNMET_MANY; /* some may have met */
        status      = coll->part != NULL ? coll_find_again(coll, call, agreed) : coll_take_demand(coll, call, agreed);
        if (status == MPATH_OK) {
            again.call = mpath_team_call(coll->team);
            status     = carry_once(coll, call, &again, load.busiest, coll_forced(coll, load.busiest), NULL);
            took_ns    = mpath_time_ns() - start_ns;
        }
    }
    if (record != NULL) {
        record->call.taken_ns = took_ns;
        record->call.repeats += (uint32_t)*repeats_p;
        if (status == MPATH_OK && mpath_dump_wanted(coll->settings)) {
            dump(coll, agreed, record);
        }
    }
    return (status == MPATH_DECLINED) ? recover_declined(coll) : status;
}

/* What this rank sends; in a call that some rank cannot carry its sizes may be anything. */
static void record_bytes(const mpath_coll_t *coll, const mpath_call_t *call)
{
    mpath_record_t *record = mpath_team_record(coll->team);

    if (record != NULL && !(call->flags & MPATH_CALL_INELIGIBLE)) {
        record->call.bytes = 0;
        for (int rank = 0; rank < mpath_team_size(coll->team); rank++) {
            record->call.bytes += call->send_bytes[rank];
        }
    }
}

/* For who looks from outside (mpath_info --job). */
static void record_is_long(mpath_record_t *record)
{
    mpath_record_is_long(record, record != NULL ? record->call.bytes : 0);
}

static void record_memory(const mpath_coll_t *coll, mpath_record_memory_t memory, mpath_record_algorithm_t algorithm)
{
    mpath_record_t *record = mpath_team_record(coll->team);

    if (record != NULL) {
        record->call.memory    = memory;
        record->call.algorithm = algorithm;
    }
}

/* Spent so far on plans for device memory. */
static uint64_t device_plan_ns(const mpath_coll_t *coll)
{
    mpath_coll_counters_t counters;

    mpath_coll_counters(coll, &counters);
    return counters.gpu.plan_ns + counters.relay.plan_ns;
}

/* What came after work->start_ns counts as planning or moving; once. */
static void device_time_ends(alltoallv_call_t *work)
{
    mpath_coll_t *coll = work->coll;
    uint64_t took_ns, plan_ns;

    if (work->start_ns > 0) {
        took_ns        = mpath_time_ns() - work->start_ns;
        plan_ns        = device_plan_ns(coll) - work->plan_ns;
        work->start_ns = 0;
        mpath_relay_coll_took(coll->relay, took_ns);
        coll->counters.plan_ns += plan_ns;
        coll->counters.move_ns += took_ns - plan_ns;
    }
}

/* Which of two routes are the fastest: on one node the GPUs take the static ones without a plan. */
static const mpath_algorithm_t *tuned_route(const mpath_relay_found_t *found)
{
    return row_of(found->tuned == MPATH_RELAY_PLANNED       ? "planned"
                  : mpath_relay_coll_are_mates(found->topo) ? "node"
                                                            : "direct");
}

static mpath_relay_compares_t what_compares(const mpath_question_t *question)
{
    if (question->settings->gate != MPATH_GATE_AUTO) {
        return MPATH_RELAY_COMPARES_NOT;
    }
    return question->forced == NULL              ? MPATH_RELAY_COMPARES_BY_TRIAL
           : question->forced->run == direct_run ? MPATH_RELAY_COMPARES_BY_TIME
                                                 : MPATH_RELAY_COMPARES_NOT;
}

static mpath_status_t device_plan(mpath_question_t *question)
{
    alltoallv_call_t *work = question->planner;
    mpath_relay_found_t found;
    mpath_status_t status;

    status = mpath_relay_coll_plan(work->coll->relay, work->call, work->agreed, what_compares(question), &found);
    if (status != MPATH_OK) {
        return status;
    }
    question->topo     = found.topo != NULL ? found.topo : question->topo;
    question->obstacle = found.obstacle;
    question->forecast = found.forecast;
    work->plan         = found.plan;
    work->forecast     = found.forecast;
    if (work->part != NULL) {
        return work->coll->settings->check_plan ? check_plans(work->coll, work->part) : MPATH_OK;
    }
    if (found.tuned != MPATH_RELAY_BY_TIME && found.obstacle == NULL) {
        question->tuned = tuned_route(&found);
        question->tuner = "calls like this one are faster so, or that is tried";
    }
    return MPATH_OK;
}

/* What is known of a call on device memory before relays are asked. May be collective; an error breaks the team. */
static mpath_status_t ask_device(alltoallv_call_t *work, mpath_question_t *question)
{
    mpath_coll_t *coll        = work->coll;
    const mpath_topo_t *gpus  = mpath_team_gpu_topo(coll->team);
    int relays                = mpath_relay_coll_usable(coll->relay);
    mpath_status_t status     = MPATH_OK;
    mpath_function_t function = MPATH_FUNCTION_OWN;

    *question = (mpath_question_t){
        .collective    = MPATH_OPERATION_ALLTOALLV,
        .memory        = MPATH_ON_DEVICE,
        .settings      = coll->settings,
        .topo          = gpus != NULL ? gpus : mpath_team_topo(coll->team),
        .by_pairs      = work->part != NULL,
        .bytes         = work->load.busiest,
        .largest_bytes = work->agreed->largest_bytes,
        .agreed        = 1,
        .obstacle      = relays ? NULL : "the GPUs here need no relay, or know of none",
        .node_obstacle = mpath_gpu_coll_usable(coll->gpu) ? NULL : mpath_gpu_coll_declined_because(coll->gpu),
        .copy_obstacle = find_copy_obstacle(coll, work->call),
        .plan          = device_plan,
        .planner       = work};
    mpath_tuning_force(&coll->tuning, question);
    question->forced = forced_without(question->forced, work->part);
    if (relays && question->forced == NULL) {
        status = coll_ask_device_tuner(coll, work->agreed, &work->load, question->copy_obstacle == NULL, &function);
    }
    if (function == MPATH_FUNCTION_BY_HOST) {
        question->tuned = row_of("copied");
        question->tuner = MPATH_WHY_FASTER_BY_HOST;
    } else if (function == MPATH_FUNCTION_PREVIOUS) {
        question->tuner = MPATH_WHY_FASTER;
    }
    return status;
}

static void record_device_choice(const mpath_coll_t *coll, const mpath_algorithm_t *algorithm)
{
    record_memory(coll, MPATH_RECORD_DEVICE, mpath_record_algorithm_find(algorithm->name));
}

/* What relays have done in the call, beyond what they had before. */
static void record_relays(const mpath_coll_t *coll, const mpath_relay_counters_t *before)
{
    mpath_record_t *record = mpath_team_record(coll->team);
    mpath_relay_counters_t after;

    if (record != NULL) {
        mpath_relay_coll_counters(coll->relay, &after);
        record->call.relayed_bytes += after.moved.forwarded_bytes - before->moved.forwarded_bytes;
        record->call.repeats += (uint32_t)(after.repeats - before->repeats);
    }
}

/* Choose and run. MPATH_AGAIN: what was chosen cannot be had, and is out from now on, or another plan is to be made. */
static mpath_status_t carry_device_once(alltoallv_call_t *work)
{
    mpath_question_t *question = work->question;
    mpath_decision_t decision;
    mpath_status_t status = mpath_choose(question, &decision);

    if (status != MPATH_OK) {
        return status;
    }
    record_device_choice(work->coll, decision.algorithm);
    if (mpath_algorithm_is_previous(decision.algorithm)) {
        return mpath_coll_decline(work->coll, decision.because);
    }
    mpath_record_phase(mpath_team_record(work->coll->team), MPATH_OPERATION_ALLTOALLV, MPATH_RECORD_MOVE,
                       mpath_time_ns());
    status = decision.algorithm->run(work);
    if (status == MPATH_AGAIN) { /* trials and times were of the plan */
        question->tuned    = NULL;
        question->tuner    = NULL;
        question->forecast = NULL;
    }
    return status;
}

/* The matrix of the call, for its plan. Collective; an error breaks the team. */
static mpath_status_t begin_whole(alltoallv_call_t *work)
{
    mpath_coll_t *coll    = work->coll;
    mpath_status_t status = coll_take_demand(coll, work->call, work->agreed);

    work->part = NULL;
    if (status == MPATH_OK) {
        work->kept.demand = coll->demand;
        mpath_relay_coll_begin(coll->relay, coll->demand, work->agreed->signature);
    }
    return status;
}

/*
 * A part of a plan by pairs of nodes, at present rates, where ranks are many, or that is forced, and there is one; else the matrix,
 * while it is there, and then the rates. As above.
 */
static mpath_status_t begin_device(alltoallv_call_t *work)
{
    mpath_coll_t *coll           = work->coll;
    const mpath_agreed_t *agreed = work->agreed;
    mpath_status_t status        = MPATH_OK;
    int by_pairs                 = wants_pairs(coll, MPATH_ON_DEVICE, agreed) && agreed->node_sends != NULL &&
                   mpath_relay_coll_usable(coll->relay);

    if (by_pairs) {
        status = mpath_coll_rates_take(coll, agreed->flags);
    }
    if (by_pairs && status == MPATH_OK) {
        status = mpath_relay_coll_begin_part(coll->relay, work->call, agreed, &work->part);
    }
    if (status == MPATH_DECLINED) {
        work->load = agreed_load(coll, agreed);
        return MPATH_OK;
    }
    if (status == MPATH_OK && work->part == NULL) {
        status = begin_whole(work);
    }
    if (status == MPATH_OK) {
        work->load = work->part != NULL ? agreed_load(coll, agreed) : *coll_load(coll);
    }
    return status == MPATH_OK && !by_pairs ? mpath_coll_rates_take(coll, agreed->flags) : status;
}

/* A call whose part cannot be moved. As above. */
static mpath_status_t begin_again(alltoallv_call_t *work)
{
    mpath_status_t status = MPATH_OK;

    work->part = NULL;
    if (work->question->obstacle == NULL) {
        status = mpath_relay_coll_begin_part(work->coll->relay, work->call, work->agreed, &work->part);
    }
    if (status == MPATH_DECLINED) {
        return MPATH_OK;
    }
    return status == MPATH_OK && work->part == NULL ? begin_whole(work) : status;
}

/* The call has device memory on some rank. */
static mpath_status_t carry_device(mpath_coll_t *coll, mpath_call_t *call, const mpath_agreed_t *agreed)
{
    mpath_question_t question;
    alltoallv_call_t work  = {.coll     = coll,
                              .call     = call,
                              .kept     = *agreed,
                              .question = &question,
                              .start_ns = mpath_time_ns(),
                              .plan_ns  = device_plan_ns(coll)};
    mpath_record_t *record = mpath_team_record(coll->team);
    mpath_relay_counters_t relayed;
    mpath_status_t status;

    work.agreed = &work.kept;
    mpath_record_phase(record, MPATH_OPERATION_ALLTOALLV, MPATH_RECORD_PLAN, work.start_ns);
    mpath_relay_coll_counters(coll->relay, &relayed);
    status = begin_device(&work);
    if (status != MPATH_OK) {
        return status;
    }
    status = ask_device(&work, &question);
    while (status == MPATH_OK) {
        question.by_pairs = work.part != NULL;
        status            = carry_device_once(&work);
        if (status != MPATH_AGAIN) {
            break;
        }
        status = work.part != NULL ? begin_again(&work) : MPATH_OK; /* a part was for other rails */
    }
    device_time_ends(&work);
    record_relays(coll, &relayed);
    if (status == MPATH_OK && !work.is_copied) {
        status = mpath_coll_rates_observe_device(coll);
        coll->counters.calls += status == MPATH_OK;
    }
    return status;
}

/* *agreed is written once the ranks have agreed: calls that only agree are short enough to notice each copy of it. */
static mpath_status_t agree_and_carry(mpath_coll_t *coll, mpath_call_t *call, mpath_agreed_t *agreed)
{
    mpath_record_t *record = mpath_team_record(coll->team);
    uint64_t start_ns = mpath_time_ns(), agreed_ns, launch_ns = 0;
    int takes_device = mpath_coll_takes_device(coll), done = 0, repeats = 0;
    mpath_status_t status;

    coll->declined_because = "";
    call->operation        = MPATH_OPERATION_ALLTOALLV;
    call->flags            = (call->flags & ~(uint32_t)(MPATH_CALL_SLOW | MPATH_CALL_RATES)) |
                  mpath_doubt_call_flags(&coll->doubt) | mpath_coll_rates_call_flags(coll) | coll->watches;
    coll->began_ns = start_ns;
    if (takes_device) {
        mpath_gpu_notice_lost();
        if ((call->send_memory != NULL) || (call->recv_memory != NULL)) {
            call->flags |= MPATH_CALL_DEVICE;
        }
        launch_ns = mpath_gpu_coll_publish(coll->gpu, call);
        mpath_relay_coll_publish(coll->relay, call);
    }
    record_bytes(coll, call);
    mpath_record_agree(record, MPATH_OPERATION_ALLTOALLV, mpath_team_call(coll->team) + 1, start_ns);
    status    = mpath_agree(coll->team, call, agreed);
    agreed_ns = mpath_time_ns();
    if (status == MPATH_OK) {
        status = coll_find_part(coll, agreed);
    }
    coll->counters.agree_ns += agreed_ns - start_ns - launch_ns;
    coll->counters.move_ns += launch_ns;
    if (takes_device) {
        status = mpath_gpu_coll_exchanged(coll->gpu, call, status, (status == MPATH_OK) ? agreed->flags : 0, &done);
    }
    if (status != MPATH_OK) {
        return status;
    }
    mpath_relay_coll_take_flags(coll->relay, agreed->flags);
    if (done) {
        record_memory(coll, MPATH_RECORD_DEVICE, MPATH_RECORD_EAGER);
        coll->counters.move_ns += mpath_time_ns() - agreed_ns;
        coll->counters.calls++;
        return MPATH_OK;
    }
    if (agreed->flags & MPATH_CALL_INELIGIBLE) {
        return mpath_coll_decline(coll, MPATH_WHY_NOT_CARRIED);
    }
    if (is_never(coll)) {
        status = mpath_coll_decline(coll, MPATH_WHY_PARAMETER);
    } else if (agreed->flags & MPATH_CALL_DEVICE) {
        record_memory(coll, MPATH_RECORD_DEVICE, MPATH_RECORD_NODE);
        record_is_long(record);
        return carry_device(coll, call, agreed);
    } else if (agreed->finished) {
        record_memory(coll, MPATH_RECORD_HOST, MPATH_RECORD_INLINE);
        copy_self(coll, call);
    } else {
        record_is_long(record);
        mpath_record_phase(record, MPATH_OPERATION_ALLTOALLV, MPATH_RECORD_PLAN, agreed_ns);
        status = carry(coll, call, agreed, &repeats);
    }
    if (status == MPATH_OK) {
        coll->counters.calls++;
    } else if ((status == MPATH_DECLINED) && (call->flags & MPATH_CALL_IN_PLACE)) {
        put_back(coll, call, agreed, repeats > 0);
    }
    return status;
}

mpath_status_t mpath_alltoallv(mpath_coll_t *coll, mpath_call_t *call)
{
    mpath_agreed_t agreed;
    mpath_status_t status;

    agreed.flags         = 0; /* of a call that fails before the ranks have agreed; the rest is not looked at */
    agreed.finished      = 0;
    agreed.largest_bytes = 0;
    status               = agree_and_carry(coll, call, &agreed);
    status               = coll_note_agreed(coll, status, &agreed);
    mpath_team_flush_notices(coll->team);
    return status;
}
