/* SPDX-License-Identifier: BSD-3-Clause */
/* Alltoallv: what calls before have shown, and which of the next need no agreement or go another way for that. */
#include "coll/alltoallv_private.h"

#include "coll/gate.h"
#include "exec/idle.h"
#include "util/time.h"

#include <stdlib.h>

/* Emulated rates do not hold on the host. */
static int is_emulated(const mpath_coll_t *coll)
{
    const mpath_topo_t *topo = mpath_team_gpu_topo(coll->team);

    return (topo != NULL) && (mpath_topo_params(topo)->emulated != MPATH_EMULATED_NO);
}

mpath_status_t mpath_coll_choose_host(mpath_coll_t *coll, const mpath_agreed_t *agreed, int *by_host_p)
{
    mpath_status_t status;

    *by_host_p = 0;
    if ((mpath_topo_num_nodes(mpath_team_topo(coll->team)) == 1) || is_emulated(coll) ||
        !mpath_gate_compares(coll->settings) || (agreed->flags & MPATH_CALL_APART) || mpath_idle_others_may_rest()) {
        return MPATH_OK;
    }
    status = mpath_host_choice_next(&coll->by_host, coll->team, agreed->demand, coll->began_ns, by_host_p);
    if (status != MPATH_OK) {
        mpath_team_break(coll->team, status);
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
    mpath_host_choice_ended(&coll->by_host);
}
