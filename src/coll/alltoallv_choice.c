/* SPDX-License-Identifier: BSD-3-Clause */
/* Alltoallv: what calls before have shown, and which of the next need no agreement or go another way for that. */
#include "coll/alltoallv_private.h"

#include "coll/gate.h"
#include "exec/idle.h"
#include "util/time.h"

#include <stdlib.h>

/* A rank that sends and receives more does not try copies of all its data on the host. */
#define BY_HOST_MOST_BYTES (UINT64_C(4) << 20)

/* Emulated rates do not hold on the host. */
static int is_emulated(const mpath_coll_t *coll)
{
    const mpath_topo_t *topo = mpath_team_gpu_topo(coll->team);

    return (topo != NULL) && (mpath_topo_params(topo)->emulated != MPATH_EMULATED_NO);
}

/* The ways besides relays that may be as fast: the same on all ranks. */
static void open_ways(mpath_coll_t *coll, const mpath_agreed_t *agreed, mpath_way_call_t *call)
{
    int is_short;
    mpath_load_t load;

    mpath_load_find(mpath_team_topo(coll->team), agreed->demand, coll->sums, &load);
    is_short = mpath_way_choice_kind(load.busiest) <= mpath_way_choice_kind(BY_HOST_MOST_BYTES);
    *call    = (mpath_way_call_t){.bytes = load.busiest,
                                  /* in short calls it is not the links that count */
                                  .skew = is_short ? 0 : mpath_way_choice_skew(load.busiest_cross, load.node_cross)};
    if (load.busiest == 0) {
        return;
    }
    call->open = is_short ? 1u << MPATH_WAY_BY_HOST : 0;
    /* what MPI sends itself may take a rail that has failed since */
    if (!(agreed->flags & MPATH_CALL_FOREIGN) && (mpath_team_topo_version(coll->team) == 0)) {
        call->open |= 1u << MPATH_WAY_PREVIOUS;
    }
}

mpath_status_t mpath_coll_choose_device(mpath_coll_t *coll, const mpath_agreed_t *agreed, mpath_way_t *way_p)
{
    mpath_way_call_t call;
    mpath_status_t status;

    *way_p = MPATH_WAY_OWN;
    if ((mpath_topo_num_nodes(mpath_team_topo(coll->team)) == 1) || is_emulated(coll) ||
        !mpath_gate_compares(coll->settings) || (agreed->flags & MPATH_CALL_APART)) {
        return MPATH_OK;
    }
    open_ways(coll, agreed, &call);
    if (mpath_idle_others_may_rest()) { /* no measure, and copies on the host would hold up whoever progresses it */
        *way_p = (mpath_way_choice_known(&coll->device, &call) == MPATH_WAY_PREVIOUS) ? MPATH_WAY_PREVIOUS
                                                                                      : MPATH_WAY_OWN;
        return MPATH_OK;
    }
    status = mpath_way_choice_next(&coll->device, coll->team, &call, coll->began_ns, way_p);
    if (status != MPATH_OK) {
        mpath_team_break(coll->team, status);
    }
    return status;
}

mpath_status_t mpath_coll_choose_host(mpath_coll_t *coll, const mpath_agreed_t *agreed, int *previous_p)
{
    const mpath_load_t *load = &coll->load;
    mpath_doubt_call_t call;

    *previous_p = 0;
    if (mpath_gate_of(coll->settings) != MPATH_GATE_AUTO) {
        return MPATH_OK;
    }
    if (!coll->has_load || (coll->load_signature != agreed->signature)) {
        mpath_load_find(mpath_team_topo(coll->team), coll->demand, coll->sums, &coll->load);
        coll->load_signature = agreed->signature;
        coll->has_load       = 1;
    }
    if (load->links_ns == 0) {
        return MPATH_OK; /* nothing crosses between nodes */
    }
    call = (mpath_doubt_call_t){.bytes  = load->busiest_cross,
                                .skew   = mpath_way_choice_skew(load->busiest_cross, load->node_cross),
                                .adapts = mpath_coll_rates_follow(coll, load->links_ns)};
    return mpath_doubt_next(&coll->doubt, coll->team, agreed->flags, &call, coll->began_ns, previous_p);
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
    if ((agreed->flags & (MPATH_CALL_GPUS | MPATH_CALL_DEVICE)) || (mpath_gate_of(coll->settings) != MPATH_GATE_AUTO) ||
        !gains_small_only(coll)) {
        return MPATH_PASSING_OTHER;
    }
    if (status == MPATH_DECLINED) {
        return MPATH_PASSING_DECLINED;
    }
    return ((status == MPATH_OK) && agreed->finished) ? MPATH_PASSING_SHORT : MPATH_PASSING_OTHER;
}

static uint64_t largest_pair(const mpath_coll_t *coll, const uint64_t *demand)
{
    size_t size      = (size_t)mpath_team_size(coll->team);
    uint64_t largest = 0;

    for (size_t i = 0; i < size * size; i++) {
        largest = ((i / size != i % size) && (demand[i] > largest)) ? demand[i] : largest;
    }
    return largest;
}

/* The trials of short calls are over. */
static mpath_status_t compare_times(mpath_coll_t *coll)
{
    int size = mpath_team_size(coll->team);
    mpath_status_t status;

    if (coll->times_ns == NULL) {
        coll->times_ns = malloc((size_t)size * sizeof(coll->passing.times_ns));
    }
    if (coll->times_ns == NULL) {
        mpath_team_break(coll->team, MPATH_ERR_NO_MEMORY);
        return MPATH_ERR_NO_MEMORY;
    }
    status = mpath_team_allgather(coll->team, coll->passing.times_ns, sizeof(coll->passing.times_ns), coll->times_ns);
    if (status == MPATH_OK) {
        mpath_passing_decide(&coll->passing, coll->times_ns, size);
    }
    return status;
}

mpath_status_t mpath_coll_note_agreed(mpath_coll_t *coll, mpath_status_t status, const mpath_agreed_t *agreed)
{
    mpath_passing_call_t call = what_it_was(coll, status, agreed);

    if ((call == MPATH_PASSING_SHORT) && mpath_passing_is_due(&coll->passing)) {
        return compare_times(coll);
    }
    if (mpath_passing_agreed(&coll->passing, call)) {
        mpath_passing_short(&coll->passing, largest_pair(coll, agreed->demand));
    }
    return status;
}

int mpath_coll_passes(mpath_coll_t *coll)
{
    int passes;

    if ((mpath_gate_of(coll->settings) == MPATH_GATE_NEVER) && (mpath_team_status(coll->team) == MPATH_OK)) {
        (void)mpath_coll_decline(coll, "a parameter says never");
        return 1;
    }
    if (!mpath_passing_has_plans(&coll->passing) || (mpath_team_status(coll->team) != MPATH_OK)) {
        return 0; /* the latter: the call fails like all others */
    }
    passes = mpath_passing_next(&coll->passing);
    if (mpath_passing_is_timed(&coll->passing)) {
        coll->asked_ns = mpath_time_ns();
    }
    if (passes) {
        (void)mpath_coll_decline(coll,
                                 "the calls before it could not gain: short, inside a node, or there is one rail");
    }
    return passes;
}

void mpath_coll_ended(mpath_coll_t *coll)
{
    if (mpath_passing_is_timed(&coll->passing)) {
        mpath_passing_took(&coll->passing, mpath_time_ns() - coll->asked_ns);
    }
    mpath_way_choice_ended(&coll->device);
    mpath_doubt_ended(&coll->doubt);
}
