/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Relay, the set-up by the first call on device memory: the room on every host, slots on the GPUs, and who has opened
 * whose. Every rank takes part in all exchanges whatever has failed in it, so that all come to the same end.
 */
#include "exec/relay_private.h"

#include "exec/relay_clocks.h"
#include "exec/relay_rail.h"
#include "exec/team_private.h"
#include "gpu/usage.h"
#include "util/log.h"

#include <stdio.h>
#include <stdlib.h>

#define POOL_LEAST_BYTES (1ull << 20)
#define POOL_SPARE_SHARE 16 /* of a GPU's memory stays free when slots are made */
#define POOL_SHORT_SHARE 64 /* with less free than this, slots are given back */

/* GPU memory for slots, of all communicators of this process. */
static _Atomic uint64_t pool_total_bytes;

/* Half of what the parameter leaves to the process: communicators that come later get some, too. */
static uint64_t pool_budget(uint64_t limit)
{
    uint64_t total = atomic_load(&pool_total_bytes), take;

    do {
        take = (total < limit) ? (limit - total) / 2 : 0;
        take = (take >= POOL_LEAST_BYTES) ? take / POOL_LEAST_BYTES * POOL_LEAST_BYTES : 0;
    } while (!atomic_compare_exchange_weak(&pool_total_bytes, &total, total + take));
    return take;
}

/* What the GPU can spare, in halves of what is asked for. */
static mpath_cu_ptr_t pool_allocate(mpath_gpu_t *gpu, uint64_t *bytes_p)
{
    const mpath_cu_t *cu   = mpath_gpu_driver();
    mpath_cu_ptr_t pointer = 0;
    size_t free_bytes, total_bytes;

    if (mpath_gpu_enter(gpu) != MPATH_OK) {
        return 0;
    }
    if (cu->MemGetInfo(&free_bytes, &total_bytes) != MPATH_CU_SUCCESS) {
        free_bytes = 0;
    } else {
        free_bytes = (free_bytes > total_bytes / POOL_SPARE_SHARE) ? free_bytes - total_bytes / POOL_SPARE_SHARE : 0;
    }
    while ((*bytes_p >= POOL_LEAST_BYTES) &&
           ((*bytes_p > free_bytes) || (mpath_gpu_memory_take(&pointer, (size_t)*bytes_p) != MPATH_CU_SUCCESS))) {
        *bytes_p /= 2;
        pointer = 0;
    }
    mpath_gpu_leave(gpu);
    return pointer;
}

static void pool_free(mpath_relay_t *relay)
{
    mpath_relay_slots_forget_pool(relay);
    mpath_gpu_memory_give(relay->gpu, relay->pool, relay->my_pool_bytes);
    atomic_fetch_sub(&pool_total_bytes, relay->my_pool_bytes);
    relay->pool          = 0;
    relay->my_pool_bytes = 0;
}

/* This rank's slots on its GPU; fewer than the budget allows, or none, when there is no memory for them. */
static void pool_make(mpath_relay_t *relay)
{
    mpath_export_t *export = &relay->room.pools[relay->room.my_member];
    uint64_t taken, bytes;
    mpath_memory_t memory;

    export->how = MPATH_EXPORT_NONE;
    if (relay->gpu == NULL) {
        return;
    }
    taken = bytes = pool_budget(relay->settings->gpu_relay_bytes);
    relay->pool   = pool_allocate(relay->gpu, &bytes);
    if (relay->pool == 0) {
        bytes = 0;
    } else if ((mpath_memory_classify((const void *)(uintptr_t)relay->pool, bytes, &memory) != MPATH_OK) ||
               (mpath_export_make((const void *)(uintptr_t)relay->pool, bytes, &memory, export) != MPATH_OK)) {
        export->how = MPATH_EXPORT_NONE;
    }
    atomic_fetch_sub(&pool_total_bytes, taken - bytes);
    relay->my_pool_bytes = bytes;
    if ((relay->pool != 0) && (export->how == MPATH_EXPORT_NONE)) {
        pool_free(relay);
    }
}

int mpath_relay_is_short(const mpath_relay_t *relay)
{
    size_t free_bytes, total_bytes;
    int is_short = 0;

    if (mpath_gpu_enter(relay->gpu) == MPATH_OK) {
        is_short = (mpath_gpu_driver()->MemGetInfo(&free_bytes, &total_bytes) == MPATH_CU_SUCCESS) &&
                   (free_bytes < total_bytes / POOL_SHORT_SHARE);
        mpath_gpu_leave(relay->gpu);
    }
    return is_short;
}

/* Ranks into whose slots this one would have to write, as a mask: hops that end neither here nor at a destination. */
static uint64_t mates_ahead(const mpath_relay_t *relay, const mpath_topo_t *topo)
{
    uint64_t ahead = 0;

    for (int pair = 0; pair < relay->size * relay->size; pair++) {
        int source = pair / relay->size, destination = pair % relay->size;
        int num = mpath_topo_num_paths(topo, source, destination);

        for (int index = 0; index < num; index++) {
            mpath_path_t path;

            mpath_topo_path(topo, source, destination, index, &path);
            for (int hop = 0; hop + 1 < path.num_hops; hop++) {
                int copies = (path.hops[hop].lane == MPATH_LANE_PEER) || relay->by_copies;

                ahead |= (copies && (path.hops[hop].from == relay->me)) ? 1ull << path.hops[hop].to : 0;
            }
        }
    }
    return ahead;
}

/* Opens the slots of mates. Returns a mask of those with whom it failed. */
static uint64_t open_pools(mpath_relay_t *relay, uint64_t ahead)
{
    uint64_t failed = 0;

    for (uint64_t left = ahead; left != 0; left &= left - 1) {
        int rank = __builtin_ctzll(left), member = relay->room.member_of[rank];

        if ((member < 0) || (relay->gpu == NULL) || (relay->pools[rank] != NULL) ||
            (relay->room.pools[member].how == MPATH_EXPORT_NONE)) {
            continue;
        }
        if (mpath_import_get(&relay->room.pools[member], relay->gpu, &relay->pools[rank]) != MPATH_OK) {
            relay->pools[rank] = NULL;
            failed |= 1ull << rank;
        }
    }
    return failed;
}

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

static mpath_status_t try_to_reduce(mpath_relay_t *relay)
{
    const mpath_topo_t *topo   = mpath_team_gpu_topo(relay->team);
    int num_nodes              = mpath_topo_num_nodes(topo);
    mpath_machine_t *machines  = calloc((size_t)num_nodes, sizeof(*machines));
    mpath_node_gpus_t *gpus    = calloc((size_t)num_nodes, sizeof(*gpus));
    mpath_topo_params_t params = *mpath_topo_params(topo);
    mpath_topo_t *reduced      = NULL;
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
            places[rank].no_relay = (int32_t)((relay->without >> rank) & 1);
        }
        params.no_staged = relay->no_staged;
        status = mpath_topo_create_with_gpus(machines, gpus, num_nodes, places, relay->size, &params, &reduced);
    }
    free(machines);
    free(gpus);
    if ((status == MPATH_OK) && (place_of_reduced(relay, reduced) == MPATH_RELAY_MAX_RANKS)) {
        mpath_warn("rails and GPUs have failed in %d ways in this communicator; no relays in it until it is one of "
                   "them again",
                   MPATH_RELAY_MAX_RANKS);
        status = MPATH_ERR_UNREACHABLE;
    }
    if ((status == MPATH_OK) && (open_pools(relay, mates_ahead(relay, reduced)) != 0)) {
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
static mpath_status_t reduce_topo(mpath_relay_t *relay)
{
    mpath_status_t status = try_to_reduce(relay);

    if ((status == MPATH_ERR_UNREACHABLE) && (mpath_team_status(relay->team) == MPATH_OK)) {
        relay->has_no_way   = 1;
        relay->topo_version = relay->team->topo_version;
        status              = MPATH_OK;
    }
    return status;
}

mpath_status_t mpath_relay_follow_topo(mpath_relay_t *relay)
{
    return reduce_topo(relay);
}

/* What a rank tells when slots have been made. */
typedef struct pool_hello {
    uint64_t bytes;  /* 0: it passes nothing on */
    uint64_t failed; /* mask of ranks whose slots it cannot open */
} pool_hello_t;

/* All learn who has slots that everybody can open who has to. */
static mpath_status_t agree_on_pools(mpath_relay_t *relay, uint64_t *without_p)
{
    const mpath_topo_t *whole = mpath_team_gpu_topo(relay->team);
    pool_hello_t mine         = {.bytes = relay->my_pool_bytes}, all[MPATH_RELAY_MAX_RANKS];
    mpath_status_t status     = mpath_team_allgather(relay->team, &mine, sizeof(mine), all); /* exports are there */

    if (status != MPATH_OK) {
        return status;
    }
    mine.failed = open_pools(relay, mates_ahead(relay, whole) | mates_ahead(relay, relay->topo));
    status      = mpath_team_allgather(relay->team, &mine, sizeof(mine), all);
    *without_p  = 0;
    for (int rank = 0; (status == MPATH_OK) && (rank < relay->size); rank++) {
        *without_p |= all[rank].failed | ((all[rank].bytes == 0) ? 1ull << rank : 0);
    }
    for (int rank = 0; (status == MPATH_OK) && (rank < relay->size); rank++) {
        if (!((*without_p >> rank) & 1) && ((relay->pool_bytes == 0) || (all[rank].bytes < relay->pool_bytes))) {
            relay->pool_bytes = all[rank].bytes; /* the same slots on all */
        }
    }
    return status;
}

/* Once as a warning; communicators come and go. */
static void say_who(const mpath_relay_t *relay, uint64_t without, const char *why)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    char text[256]            = "";
    size_t at                 = 0;
    mpath_log_level_t level;

    for (int rank = 0; (rank < relay->size) && (at + 8 < sizeof(text)); rank++) {
        if ((without >> rank) & 1) {
            at += (size_t)snprintf(text + at, sizeof(text) - at, " %d", rank);
        }
    }
    level = atomic_flag_test_and_set(&warned) ? MPATH_LOG_INFO : MPATH_LOG_WARN;
    mpath_log(level, "%s of rank%s; data of others does not pass through in this communicator (gpu_relay_bytes)", why,
              text);
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

static mpath_status_t find_gpu(mpath_relay_t *relay, const mpath_call_t *call)
{
    const mpath_memory_t *memory = mpath_relay_memory(call);

    if (memory != NULL) {
        return mpath_gpu_get(memory->device, memory->context, &relay->gpu);
    }
    /* A rank without data of its own can pass on that of others all the same. */
    if (mpath_gpu_current(&relay->gpu) != MPATH_OK) {
        relay->gpu = NULL;
        mpath_info(
            "rank %d has no GPU in the first call on device memory: it passes nothing on, and calls in which it has "
            "device memory go through the host",
            relay->me);
    }
    return MPATH_OK;
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

/* Of the set-up, what has to do with GPUs. Collective; an error of one is told to all. */
static mpath_status_t set_up_gpus(mpath_relay_t *relay, const mpath_call_t *call)
{
    uint64_t without      = 0;
    mpath_status_t status = (relay->gpu == NULL) ? find_gpu(relay, call) : MPATH_OK;

    if (status == MPATH_OK) {
        pool_make(relay);
    }
    status = mpath_relay_all(relay->team, status);
    if (status == MPATH_OK) {
        status = agree_on_pools(relay, &without);
    }
    if ((status == MPATH_OK) && (without != relay->without)) {
        if ((relay->me == 0) && (without != 0)) {
            say_who(relay, without, "no slots on, or no way to them from all for, the GPUs");
        }
        relay->without = without;
        status         = reduce_topo(relay);
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
    relay->usable = 0;
    return (mpath_team_status(relay->team) == MPATH_OK) ? MPATH_DECLINED : status;
}

mpath_status_t mpath_relay_setup(mpath_relay_t *relay, const mpath_call_t *call)
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
        status = set_up_gpus(relay, call);
    }
    return (status == MPATH_OK) ? MPATH_OK : give_up(relay, status);
}

/* What was made with GPUs, of this rank and of others. No call is under way. */
static void close_gpus(mpath_relay_t *relay)
{
    for (int rank = 0; rank < relay->size; rank++) {
        if (relay->pools[rank] != NULL) {
            mpath_import_put(relay->pools[rank]);
            mpath_import_forget(&relay->room.pools[relay->room.member_of[rank]].owner);
            relay->pools[rank] = NULL;
        }
    }
    mpath_relay_close_buffers(relay);
    mpath_relay_forget_plans(relay);
    pool_free(relay);
    mpath_relay_rails_cleanup(relay);
}

/* The room stays: its slots are free and its rings are empty between calls. */
mpath_status_t mpath_relay_renew(mpath_relay_t *relay, const mpath_call_t *call)
{
    mpath_status_t status;

    mpath_info("rank %d: the application of some rank has ended the context of its GPU: relays are set up anew",
               relay->me);
    close_gpus(relay);
    if ((relay->gpu != NULL) && mpath_gpu_is_lost(relay->gpu)) {
        relay->gpu = NULL;
    }
    relay->pool_bytes = 0;
    relay->num_known  = 0;
    relay->partial    = 0;
    status            = mpath_relay_all(relay->team, MPATH_OK); /* all have read what the others had told of slots */
    if (status == MPATH_OK) {
        status = set_up_gpus(relay, call);
    }
    return (status == MPATH_OK) ? MPATH_OK : give_up(relay, status);
}

/* Afterwards no rank writes to the slots of those in `givers`. */
static mpath_status_t leave_pools(mpath_relay_t *relay, uint64_t givers)
{
    for (uint64_t left = givers; left != 0; left &= left - 1) {
        int rank = __builtin_ctzll(left);

        if (relay->pools[rank] != NULL) {
            mpath_import_put(relay->pools[rank]);
            relay->pools[rank] = NULL;
            mpath_import_forget(&relay->room.pools[relay->room.member_of[rank]].owner);
        }
    }
    return mpath_relay_all(relay->team, MPATH_OK);
}

mpath_status_t mpath_relay_give_back(mpath_relay_t *relay)
{
    uint8_t mine          = (relay->pool != 0) && mpath_relay_is_short(relay), all[MPATH_RELAY_MAX_RANKS];
    mpath_status_t status = mpath_team_allgather(relay->team, &mine, sizeof(mine), all);
    uint64_t givers       = 0;

    for (int rank = 0; (status == MPATH_OK) && (rank < relay->size); rank++) {
        givers |= (all[rank] && !((relay->without >> rank) & 1)) ? 1ull << rank : 0;
    }
    if ((status != MPATH_OK) || (givers == 0)) {
        return status;
    }
    if (relay->me == 0) {
        say_who(relay, givers, "memory is short on the GPUs, which give their slots back,");
    }
    relay->without |= givers;
    status = leave_pools(relay, givers);
    if (status == MPATH_OK) {
        if (mine) {
            pool_free(relay);
        }
        relay->moved = 1; /* plans before this do not count */
        status       = reduce_topo(relay);
    }
    return status;
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
