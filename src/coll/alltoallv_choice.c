/* SPDX-License-Identifier: BSD-3-Clause */
/* Alltoallv: what calls before have shown, and which of the next need no agreement or go another way for that. */
#include "coll/alltoallv_private.h"

#include "coll/gate.h"
#include "exec/idle.h"
#include "util/time.h"

#include <stdlib.h>

/* A rank that sends and receives more does not try copies of all its data on the host. */
#define BY_HOST_MOST_BYTES (UINT64_C(4) << 20)

/*
 * In longer calls relays gain where a rank has more to exchange with other nodes than its node's ranks have on average;
 * where it is by this part more, the previous function is not tried: such trials would cost more than they may find.
 */
#define EVEN_PART 4u

/* Emulated rates do not hold on the host. */
static int is_emulated(const mpath_coll_t *coll)
{
    const mpath_topo_t *topo = mpath_team_gpu_topo(coll->team);

    return (topo != NULL) && (mpath_topo_params(topo)->emulated != MPATH_EMULATED_NO);
}

/* What a call loads the ranks with. */
typedef struct load {
    uint64_t busiest;       /* the most that a rank sends, or receives */
    uint64_t busiest_cross; /* the same, to or from other nodes */
    uint64_t node_cross;    /* the most that a node sends or receives so for each of its ranks, on average */
} load_t;

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return (a < b) ? b : a;
}

/* Of `rank`'s messages: sent, or received. */
static void add_messages(const mpath_coll_t *coll, const uint64_t *demand, int rank, int received, uint64_t *all,
                         uint64_t *cross)
{
    const mpath_topo_t *topo = mpath_team_topo(coll->team);
    int size = mpath_team_size(coll->team), node = mpath_topo_place(topo, rank)->node;

    for (int peer = 0; peer < size; peer++) {
        uint64_t bytes = received ? demand[(size_t)peer * (size_t)size + (size_t)rank]
                                  : demand[(size_t)rank * (size_t)size + (size_t)peer];

        *all += bytes;
        *cross += (mpath_topo_place(topo, peer)->node != node) ? bytes : 0;
    }
}

static void find_load(const mpath_coll_t *coll, const uint64_t *demand, load_t *load)
{
    const mpath_topo_t *topo = mpath_team_topo(coll->team);

    *load = (load_t){0};
    for (int node = 0; node < mpath_topo_num_nodes(topo); node++) {
        uint64_t of_node[2] = {0, 0}, ranks = 0;

        for (int rank = 0; rank < mpath_team_size(coll->team); rank++) {
            if (mpath_topo_place(topo, rank)->node != node) {
                continue;
            }
            ranks++;
            for (int received = 0; received < 2; received++) {
                uint64_t all = 0, cross = 0;

                add_messages(coll, demand, rank, received, &all, &cross);
                load->busiest       = max_u64(load->busiest, all);
                load->busiest_cross = max_u64(load->busiest_cross, cross);
                of_node[received] += cross;
            }
        }
        load->node_cross = max_u64(load->node_cross, max_u64(of_node[0], of_node[1]) / max_u64(ranks, 1));
    }
}

/* The ways besides relays that may be as fast: the same on all ranks. */
static unsigned open_ways(const mpath_coll_t *coll, const mpath_agreed_t *agreed, const load_t *load)
{
    int is_short = mpath_device_choice_kind(load->busiest) <= mpath_device_choice_kind(BY_HOST_MOST_BYTES);
    int is_even  = load->busiest_cross <= load->node_cross + load->node_cross / EVEN_PART;
    /* what MPI sends itself may take a rail that has failed since */
    int previous = (load->busiest > 0) && !(agreed->flags & MPATH_CALL_FOREIGN) &&
                   (mpath_team_topo_version(coll->team) == 0);

    return ((is_short && (load->busiest > 0)) ? 1u << MPATH_DEVICE_BY_HOST : 0) |
           ((previous && (is_short || is_even)) ? 1u << MPATH_DEVICE_PREVIOUS : 0);
}

mpath_status_t mpath_coll_choose_device(mpath_coll_t *coll, const mpath_agreed_t *agreed, mpath_device_way_t *way_p)
{
    mpath_status_t status;
    load_t load;

    *way_p = MPATH_DEVICE_BY_GPUS;
    if ((mpath_topo_num_nodes(mpath_team_topo(coll->team)) == 1) || is_emulated(coll) ||
        !mpath_gate_compares(coll->settings) || (agreed->flags & MPATH_CALL_APART) || mpath_idle_others_may_rest()) {
        return MPATH_OK;
    }
    find_load(coll, agreed->demand, &load);
    status = mpath_device_choice_next(&coll->device, coll->team, load.busiest, open_ways(coll, agreed, &load),
                                      coll->began_ns, way_p);
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
    mpath_device_choice_ended(&coll->device);
}
