/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Relay, the set-up by the first call on device memory: the room on every host, streams and slots on the GPUs, and the
 * topology that is left where some rank cannot do its part. Every rank takes part in all exchanges whatever has failed
 * in it, so that all come to the same end.
 */
#include "exec/relay_clocks.h"
#include "exec/relay_pool.h"
#include "exec/relay_rail.h"
#include "exec/team_private.h"
#include "util/log.h"

#include <stdlib.h>

static void leave_out(mpath_machine_t *machine, uint32_t nics)
{
    for (; nics != 0; nics &= nics - 1) {
        machine->nics[__builtin_ctz(nics)].up = 0;
    }
}

/* One of before that is the same; else the number of a free place, if there is one. */
static int place_of_reduced(const mpath_relay_t *relay, const mpath_topo_t *topo)
{
    int place = 0;

    while ((place < relay->num_reduced) &&
           (mpath_topo_signature(relay->reduced[place]) != mpath_topo_signature(topo))) {
        place++;
    }
    return place;
}

/* It stays, for plans know it, and serves again when rails that come and go are as they were. */
static void take_reduced(mpath_relay_t *relay, mpath_topo_t *topo)
{
    int place = place_of_reduced(relay, topo);

    if (place < relay->num_reduced) {
        mpath_topo_destroy(topo);
    } else {
        relay->reduced[relay->num_reduced++] = topo;
    }
    relay->topo         = relay->reduced[place];
    relay->topo_version = relay->team->topo_version;
    relay->has_no_way   = 0;
}

/* The team's topology without NICs that have failed, in which the ranks of a mask pass nothing on. */
static mpath_status_t build(const mpath_relay_t *relay, uint64_t without, mpath_topo_t **topo_p)
{
    const mpath_topo_t *topo   = mpath_team_gpu_topo(relay->team);
    int num_nodes              = mpath_topo_num_nodes(topo);
    mpath_machine_t *machines  = calloc((size_t)num_nodes, sizeof(*machines));
    mpath_node_gpus_t *gpus    = calloc((size_t)num_nodes, sizeof(*gpus));
    mpath_topo_params_t params = *mpath_topo_params(topo);
    mpath_place_t places[MPATH_RELAY_MAX_RANKS];
    mpath_status_t status = MPATH_ERR_NO_MEMORY;

    if ((machines != NULL) && (gpus != NULL)) {
        for (int node = 0; node < num_nodes; node++) {
            machines[node] = *mpath_topo_machine(topo, node);
            gpus[node]     = *mpath_topo_gpus(topo, node);
            leave_out(&machines[node], relay->team->lost[node]);
        }
        for (int rank = 0; rank < relay->size; rank++) {
            places[rank]          = *mpath_topo_place(topo, rank);
            places[rank].no_relay = (int32_t)((without >> rank) & 1);
        }
        params.no_staged = relay->no_staged;
        status           = mpath_topo_create_with_gpus(machines, gpus, num_nodes, places, relay->size, &params, topo_p);
    }
    free(machines);
    free(gpus);
    return status;
}

/* Where it has paths through ranks that have no slots, since nothing passed through them before, these do not pass on. */
static mpath_status_t build_with_slots(const mpath_relay_t *relay, mpath_topo_t **topo_p)
{
    uint64_t without = relay->without, more = 0;
    mpath_status_t status;

    do {
        without |= more;
        status = build(relay, without, topo_p);
        more   = (status == MPATH_OK) ? mpath_relay_pool_passers(relay, *topo_p) & ~relay->passers & ~without : 0;
        if (more != 0) {
            mpath_topo_destroy(*topo_p);
            *topo_p = NULL;
        }
    } while (more != 0);
    return status;
}

static mpath_status_t try_to_reduce(mpath_relay_t *relay)
{
    mpath_topo_t *reduced = NULL;
    mpath_status_t status = build_with_slots(relay, &reduced);

    if ((status == MPATH_OK) && (place_of_reduced(relay, reduced) == MPATH_RELAY_MAX_RANKS)) {
        mpath_warn("rails and GPUs have failed in %d ways in this communicator; no relays in it until it is one of "
                   "them again",
                   MPATH_RELAY_MAX_RANKS);
        status = MPATH_ERR_UNREACHABLE;
    }
    if ((status == MPATH_OK) && (mpath_relay_pool_open(relay, reduced) != 0)) {
        status = MPATH_ERR_UNREACHABLE; /* some hops are new: NICs without a match reach others */
    }
    mpath_relay_forget_plans(relay);
    status = mpath_relay_all(relay->team, status);
    if (status == MPATH_OK) {
        take_reduced(relay, reduced);
    } else {
        mpath_topo_destroy(reduced);
    }
    return status;
}

/*
 * The topology in which some ranks pass nothing on, without NICs that have failed, and without host memory where there
 * are no slots in it. What is left may have no way for all; that may change with the rails. Collective.
 */
mpath_status_t mpath_relay_follow_topo(mpath_relay_t *relay)
{
    mpath_status_t status = try_to_reduce(relay);

    if ((status == MPATH_ERR_UNREACHABLE) && (mpath_team_status(relay->team) == MPATH_OK)) {
        relay->has_no_way   = 1;
        relay->topo_version = relay->team->topo_version;
        status              = MPATH_OK;
    }
    return status;
}

/* Who shares memory with this rank: all where a host stands for several nodes, else those of its node. */
static mpath_status_t open_room(mpath_relay_t *relay)
{
    int members[MPATH_RELAY_MAX_RANKS], num = 0;

    for (int rank = 0; rank < relay->size; rank++) {
        if ((mpath_topo_params(mpath_team_gpu_topo(relay->team))->emulated != MPATH_EMULATED_NO) ||
            (relay->team->node_of[rank] == relay->team->node)) {
            members[num++] = rank;
        }
    }
    return mpath_relay_room_open(relay->team, members, num, &relay->room);
}

/* NICs of an emulated cluster are others than those of the same names in another job. */
static void open_owners(mpath_relay_t *relay, const mpath_topo_t *topo, uint64_t scope)
{
    mpath_owners_open(mpath_topo_machine(topo, relay->team->node), relay->team->id, scope, &relay->owners);
}

/* Collective: clocks for emulated rates, those of all communicators of the job. */
static mpath_status_t open_pace(mpath_relay_t *relay, const mpath_topo_t *topo)
{
    mpath_status_t status;
    void *clocks;

    if (mpath_topo_params(topo)->emulated == MPATH_EMULATED_NO) {
        open_owners(relay, topo, 0);
        return MPATH_OK;
    }
    status = mpath_relay_clocks_get(relay->team, &clocks);
    if (status == MPATH_OK) {
        open_owners(relay, topo, mpath_relay_clocks_id(clocks));
        status = mpath_relay_all(relay->team, mpath_pace_open(topo, clocks, &relay->pace));
    }
    return status;
}

/* All that copies of relays may need: one that cannot be had ends a call in the middle. */
static mpath_status_t make_streams(const mpath_relay_t *relay)
{
    mpath_status_t status = MPATH_OK;
    mpath_stream_t *stream;

    for (unsigned i = MPATH_GPU_STREAMS_DIRECT; (i < MPATH_GPU_STREAMS) && (status == MPATH_OK); i++) {
        status = mpath_stream_get(relay->gpu, i, &stream);
    }
    return status;
}

/* Of the set-up, what has to do with GPUs. Collective; an error of one is told to all. */
static mpath_status_t set_up_gpus(mpath_relay_t *relay)
{
    uint64_t without      = 0;
    mpath_status_t status = MPATH_OK;

    relay->gpu = relay->next_gpu;
    if (relay->gpu != NULL) {
        status = make_streams(relay);
    } else {
        mpath_info("rank %d has no GPU so far: it passes nothing on until it has device memory in a call", relay->me);
    }
    if (status == MPATH_OK) {
        mpath_relay_pool_make(relay);
    }
    status = mpath_relay_all(relay->team, status);
    if (status == MPATH_OK) {
        status = mpath_relay_pool_agree(relay, &without);
    }
    if ((status == MPATH_OK) && (without != relay->without)) {
        if ((relay->me == 0) && (without != 0)) {
            mpath_relay_pool_say(relay, without, "no slots on, or no way to them from all for, the GPUs");
        }
        relay->without = without;
        status         = mpath_relay_follow_topo(relay);
    }
    if (status == MPATH_OK) {
        relay->moved = 1; /* nobody has opened anything yet */
        mpath_info("rank %d: %llu bytes of GPU memory for chunks that pass through", relay->me,
                   (unsigned long long)relay->my_pool_bytes);
    }
    return status;
}

/* A set-up has failed for all. */
static mpath_status_t give_up(mpath_relay_t *relay, mpath_status_t status)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    mpath_log_level_t level;

    relay->usable = 0;
    if (mpath_team_status(relay->team) != MPATH_OK) {
        return status;
    }
    if (relay->me == 0) {
        level = atomic_flag_test_and_set(&warned) ? MPATH_LOG_INFO : MPATH_LOG_WARN;
        mpath_log(level,
                  "relays of device memory cannot be set up on some rank (%s); it goes other ways in this communicator",
                  mpath_status_string(status));
    }
    return MPATH_DECLINED;
}

mpath_status_t mpath_relay_setup(mpath_relay_t *relay)
{
    const mpath_topo_t *topo = mpath_team_gpu_topo(relay->team);
    mpath_status_t status    = open_room(relay);

    if (status != MPATH_OK) {
        return give_up(relay, status);
    }
    relay->opened = 1;
    relay->topo   = topo;
    mpath_process_self(&relay->told.process);
    status = open_pace(relay, topo);
    if (status == MPATH_OK) {
        status = set_up_gpus(relay);
    }
    return (status == MPATH_OK) ? MPATH_OK : give_up(relay, status);
}

/* What was made with GPUs, of this rank and of others. No call is under way. */
static void close_gpus(mpath_relay_t *relay)
{
    mpath_relay_pool_close(relay, UINT64_MAX);
    mpath_relay_close_buffers(relay);
    mpath_relay_forget_plans(relay);
    mpath_relay_pool_free(relay);
    mpath_relay_rails_cleanup(relay);
}

/* The room stays: its slots are free and its rings are empty between calls. */
mpath_status_t mpath_relay_renew(mpath_relay_t *relay)
{
    mpath_status_t status;

    mpath_info(
        "rank %d: the application of some rank has ended the context of its GPU, or has begun to use one: relays "
        "are set up anew",
        relay->me);
    close_gpus(relay);
    relay->pool_bytes = 0;
    relay->num_known  = 0;
    relay->partial    = 0;
    status            = mpath_relay_all(relay->team, MPATH_OK); /* all have read what the others had told of slots */
    if (status == MPATH_OK) {
        status = set_up_gpus(relay);
    }
    return (status == MPATH_OK) ? MPATH_OK : give_up(relay, status);
}

void mpath_relay_cleanup(mpath_relay_t *relay)
{
    close_gpus(relay);
    mpath_owners_close(&relay->owners);
    if (relay->pace != NULL) {
        mpath_pace_close(relay->pace);
    }
    mpath_relay_room_close(&relay->room);
    while (relay->num_reduced > 0) {
        mpath_topo_destroy(relay->reduced[--relay->num_reduced]);
    }
}
