/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Relay, slots on the GPUs for chunks that pass through: made in the set-up where a path passes through the rank, opened
 * by those who write to them, and given back when a GPU gets short of memory. Every rank takes part in all exchanges
 * whatever has failed in it, so that all come to the same end.
 */
#include "mover/relay_pool.h"

#include "device/usage.h"
#include "mover/relay_rail.h"
#include "team/team_private.h"
#include "util/log.h"

#include <stdio.h>
#include <string.h>

#define POOL_LEAST_BYTES (1ull << 20)

/*
 * What stays free on a GPU when slots are made: so many times as much as all slots of the process, or this part of its
 * memory, if that is less.
 */
#define POOL_SPARE_TIMES 4

#define POOL_SPARE_SHARE 64
#define LOOK_CALLS 64 /* the question takes the driver some time */

/* GPU memory for slots, of all communicators of this process. */
static _Atomic uint64_t pool_total_bytes;

/* Its calls in communicators with slots, and how often a look has found a GPU short of memory. */
static atomic_uint calls, shortages;

/* What stays free beside so many bytes of slots. They are given back when only half of that is left. */
static uint64_t spare_beside(uint64_t bytes, uint64_t total_bytes)
{
    return (POOL_SPARE_TIMES * bytes < total_bytes / POOL_SPARE_SHARE) ? POOL_SPARE_TIMES * bytes
                                                                       : total_bytes / POOL_SPARE_SHARE;
}

/* Of what is left; communicators that come later get some, too. */
static uint64_t pool_share(uint64_t left, int is_first)
{
    uint64_t share = is_first ? left / 2 + POOL_LEAST_BYTES - 1 : left / 4;

    share = share / POOL_LEAST_BYTES * POOL_LEAST_BYTES;
    share = (share < POOL_LEAST_BYTES) ? POOL_LEAST_BYTES : share;
    return (share <= left) ? share : 0;
}

/* Noted as taken, of what the parameters leave to the process. */
static uint64_t pool_budget(const mpath_settings_t *settings)
{
    uint64_t limit = settings->gpu_relay_bytes, total = atomic_load(&pool_total_bytes), left, take;
    mpath_gpu_usage_t usage;

    mpath_gpu_usage(&usage);
    left = (usage.memory_bytes < settings->gpu_device_bytes) ? settings->gpu_device_bytes - usage.memory_bytes : 0;
    do {
        take = (total < limit) ? limit - total : 0;
        take = pool_share((take < left) ? take : left, total == 0);
    } while (!atomic_compare_exchange_weak(&pool_total_bytes, &total, total + take));
    return take;
}

/* What the GPU can spare, in halves of what is asked for. */
static mpath_device_ptr_t pool_allocate(mpath_gpu_t *gpu, uint64_t limit_bytes, uint64_t *bytes_p)
{
    uint64_t others            = atomic_load(&pool_total_bytes) - *bytes_p; /* of other communicators */
    mpath_device_ptr_t pointer = 0;
    size_t free_bytes, total_bytes;

    if (mpath_gpu_enter(gpu) != MPATH_OK) {
        return 0;
    }
    if (mpath_device()->memory_info(&free_bytes, &total_bytes) != MPATH_DEVICE_DONE) {
        free_bytes = total_bytes = 0;
    }
    while ((*bytes_p >= POOL_LEAST_BYTES) &&
           ((*bytes_p + spare_beside(others + *bytes_p, total_bytes) > free_bytes) ||
            (mpath_gpu_memory_take_within(limit_bytes, &pointer, (size_t)*bytes_p) != MPATH_DEVICE_DONE))) {
        *bytes_p /= 2;
        pointer = 0;
    }
    mpath_gpu_leave(gpu);
    return pointer;
}

void mpath_relay_pool_free(mpath_relay_t *relay)
{
    mpath_relay_slots_forget_pool(relay);
    mpath_gpu_memory_give(relay->gpu, relay->pool, relay->my_pool_bytes);
    atomic_fetch_sub(&pool_total_bytes, relay->my_pool_bytes);
    relay->pool          = 0;
    relay->my_pool_bytes = 0;
}

/* Masks of ranks: into whose slots this one would have to write, and through whose GPU a path passes. */
typedef struct pool_users {
    uint64_t ahead, passers;
} pool_users_t;

/* Of a path, its hops that end neither at this rank's own nor at a destination. */
static void look_along(const mpath_relay_t *relay, const mpath_path_t *path, pool_users_t *users)
{
    for (int hop = 0; hop + 1 < path->num_hops; hop++) {
        int copies = (path->hops[hop].lane == MPATH_LANE_PEER) || relay->by_copies;

        users->ahead |= (copies && (path->hops[hop].from == relay->me)) ? 1ull << path->hops[hop].to : 0;
        users->passers |= 1ull << path->hops[hop].to;
    }
}

static pool_users_t users_of(const mpath_relay_t *relay, const mpath_topo_t *topo)
{
    pool_users_t users = {0, 0};

    for (int pair = 0; pair < relay->size * relay->size; pair++) {
        int source = pair / relay->size, destination = pair % relay->size;
        int num = mpath_topo_num_paths(topo, source, destination);

        for (int index = 0; index < num; index++) {
            mpath_path_t path;

            mpath_topo_path(topo, source, destination, index, &path);
            look_along(relay, &path, &users);
        }
    }
    return users;
}

/* On its GPU; fewer than the budget allows, or none, when there is no memory for them. */
static void make_slots(mpath_relay_t *relay, mpath_export_t *export)
{
    uint64_t taken = pool_budget(relay->settings), bytes = taken;
    mpath_memory_t memory;

    relay->pool = pool_allocate(relay->gpu, relay->settings->gpu_device_bytes, &bytes);
    if (relay->pool == 0) {
        bytes = 0;
    } else if ((mpath_memory_classify((const void *)(uintptr_t)relay->pool, bytes, &memory) != MPATH_OK) ||
               (mpath_export_make((const void *)(uintptr_t)relay->pool, bytes, &memory, export) != MPATH_OK)) {
        export->how = MPATH_EXPORT_NONE;
    }
    atomic_fetch_sub(&pool_total_bytes, taken - bytes);
    relay->my_pool_bytes = bytes;
    if ((relay->pool != 0) && (export->how == MPATH_EXPORT_NONE)) {
        mpath_relay_pool_free(relay);
    }
}

uint64_t mpath_relay_pool_passers(const mpath_relay_t *relay, const mpath_topo_t *topo)
{
    return users_of(relay, topo).passers;
}

void mpath_relay_pool_make(mpath_relay_t *relay)
{
    mpath_export_t *export = &relay->room.pools[relay->room.my_member];

    export->how    = MPATH_EXPORT_NONE;
    relay->passers = mpath_relay_pool_passers(relay, mpath_team_gpu_topo(relay->team));
    if ((relay->gpu != NULL) && ((relay->passers >> relay->me) & 1)) {
        make_slots(relay, export);
    }
    relay->shortages = atomic_load(&shortages);
}

uint64_t mpath_relay_pool_open(mpath_relay_t *relay, const mpath_topo_t *topo)
{
    uint64_t ahead = users_of(relay, topo).ahead, failed = 0;

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

/* What a rank tells when slots have been made. */
typedef struct pool_hello {
    uint64_t bytes;  /* 0: it passes nothing on */
    uint64_t failed; /* mask of ranks whose slots it cannot open */
} pool_hello_t;

mpath_status_t mpath_relay_pool_agree(mpath_relay_t *relay, uint64_t *without_p)
{
    const mpath_topo_t *whole = mpath_team_gpu_topo(relay->team);
    pool_hello_t mine         = {.bytes = relay->my_pool_bytes}, all[MPATH_RELAY_MAX_RANKS];
    mpath_status_t status     = mpath_team_allgather(relay->team, &mine, sizeof(mine), all); /* exports are there */

    if (status != MPATH_OK) {
        return status;
    }
    mine.failed = mpath_relay_pool_open(relay, whole) | mpath_relay_pool_open(relay, relay->topo);
    status      = mpath_team_allgather(relay->team, &mine, sizeof(mine), all);
    *without_p  = 0;
    for (int rank = 0; (status == MPATH_OK) && (rank < relay->size); rank++) {
        *without_p |= all[rank].failed | ((all[rank].bytes == 0) ? relay->passers & (1ull << rank) : 0);
    }
    for (int rank = 0; (status == MPATH_OK) && (rank < relay->size); rank++) {
        if (((relay->passers & ~*without_p) >> rank & 1) &&
            ((relay->pool_bytes == 0) || (all[rank].bytes < relay->pool_bytes))) {
            relay->pool_bytes = all[rank].bytes; /* the same slots on all */
        }
    }
    return status;
}

/* Communicators come and go. */
void mpath_relay_pool_say(const mpath_relay_t *relay, uint64_t without, const char *why)
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

void mpath_relay_pool_close(mpath_relay_t *relay, uint64_t ranks)
{
    for (int rank = 0; rank < relay->size; rank++) {
        if (((ranks >> rank) & 1) && (relay->pools[rank] != NULL)) {
            mpath_import_put(relay->pools[rank]);
            mpath_import_forget(&relay->room.pools[relay->room.member_of[rank]].owner);
            relay->pools[rank] = NULL;
        }
    }
}

/* -- when memory is short -- */

int mpath_relay_pool_is_short_now(const mpath_relay_t *relay)
{
    size_t free_bytes, total_bytes;
    int found = 0;

    if ((relay->pool != 0) && (mpath_gpu_enter(relay->gpu) == MPATH_OK)) {
        found = (mpath_device()->memory_info(&free_bytes, &total_bytes) == MPATH_DEVICE_DONE) &&
                (free_bytes < spare_beside(atomic_load(&pool_total_bytes), total_bytes) / 2);
        mpath_gpu_leave(relay->gpu);
    }
    return found;
}

int mpath_relay_pool_is_short(mpath_relay_t *relay)
{
    unsigned found = atomic_load_explicit(&shortages, memory_order_relaxed);
    int is_due, is;

    if (relay->pool == 0) {
        return 0;
    }
    is_due = (atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed) + 1) % LOOK_CALLS == 0;
    if (!is_due && (relay->shortages == found)) {
        return 0;
    }
    relay->shortages = found;
    is               = mpath_relay_pool_is_short_now(relay);
    if (is && is_due) {
        relay->shortages = atomic_fetch_add(&shortages, 1) + 1;
    }
    return is;
}
