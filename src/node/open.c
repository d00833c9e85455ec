/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which pair travels how. A pair goes from GPU to GPU when one of its ranks has managed to open the other's allocation.
 * That only this rank knows: so whenever somebody meets an allocation for the first time, all ranks exchange how
 * opening went. Buffers are mostly the same from call to call, and then no exchange is needed; with the same demand as
 * well, everything is as it was in the call before.
 */
#include "node/node_private.h"

#include "node/rates.h"
#include "util/log.h"

#include <string.h>

/* A rank that works on another's memory: a sender on a receive buffer (RECV), or a receiver on a send buffer (SEND). */
typedef struct access {
    int opener, owner, side;
} access_t;

static access_t access_of(int source, int destination, int side)
{
    return (side == MPATH_ROOM_RECV) ? (access_t){source, destination, side} : (access_t){destination, source, side};
}

static const mpath_export_t *memory_of(const mpath_gpu_coll_t *gpu, const access_t *access)
{
    return &gpu_cell(gpu, access->owner)->sides[access->side].memory;
}

/* The device with which the opener would work: that of its own side of the message. */
static int32_t device_of(const mpath_gpu_coll_t *gpu, const access_t *access)
{
    return gpu_cell(gpu, access->opener)->sides[MPATH_ROOM_SIDES - 1 - access->side].device;
}

/* What a rank has opened says nothing of its other devices: of one that has turned to another nothing is known. */
static void forget_moved(mpath_gpu_coll_t *gpu)
{
    for (int i = 0; i < MPATH_ROOM_SIDES * gpu->size; i++) {
        int side = i / gpu->size, rank = i % gpu->size, opens = MPATH_ROOM_SIDES - 1 - side;
        int32_t device = gpu_cell(gpu, rank)->sides[side].device;

        if ((device < 0) || (device == gpu->devices[i])) {
            continue;
        }
        gpu->devices[i] = device;
        for (int k = 0; k < gpu->size * GPU_KNOWN_EXPORTS; k++) {
            gpu_known_t *known = &gpu->known[opens * gpu->size + k / GPU_KNOWN_EXPORTS].exports[k % GPU_KNOWN_EXPORTS];

            known->opened &= ~(1ull << rank);
            known->failed &= ~(1ull << rank);
        }
    }
}

static gpu_known_t *find_known(mpath_gpu_coll_t *gpu, const access_t *access)
{
    const mpath_export_t *memory = memory_of(gpu, access);
    gpu_known_list_t *list       = &gpu->known[access->side * gpu->size + access->owner];
    gpu_known_t *known;

    for (int i = 0; i < GPU_KNOWN_EXPORTS; i++) {
        known = &list->exports[i];
        if ((known->buffer_id == memory->buffer_id) && (known->base == memory->base) &&
            (known->bytes == memory->bytes)) {
            return known;
        }
    }
    known      = &list->exports[list->next];
    list->next = (list->next + 1) % GPU_KNOWN_EXPORTS;
    *known     = (gpu_known_t){.base = memory->base, .bytes = memory->bytes, .buffer_id = memory->buffer_id};
    return known;
}

static gpu_refused_t *refused_pair(const mpath_gpu_coll_t *gpu, const access_t *access)
{
    return &gpu->refused[(size_t)access->opener * (size_t)gpu->size + (size_t)access->owner];
}

/* Could work, if opening does. */
static int is_candidate(const mpath_gpu_coll_t *gpu, const access_t *access)
{
    const mpath_export_t *memory = memory_of(gpu, access);
    const gpu_refused_t *refused = refused_pair(gpu, access);
    int32_t device               = device_of(gpu, access);

    return (access->opener != access->owner) && (device >= 0) && (memory->how != MPATH_EXPORT_NONE) &&
           ((refused->device != device) || (memcmp(&refused->uuid, &memory->uuid, sizeof(memory->uuid)) != 0));
}

static int is_unknown(mpath_gpu_coll_t *gpu, const access_t *access)
{
    const gpu_known_t *known = is_candidate(gpu, access) ? find_known(gpu, access) : NULL;

    return (known != NULL) && !(((known->opened | known->failed) >> access->opener) & 1);
}

static int is_open(mpath_gpu_coll_t *gpu, const access_t *access)
{
    return is_candidate(gpu, access) && ((find_known(gpu, access)->opened >> access->opener) & 1);
}

/* Opens memory of a rank for this one; quietly fails where the devices are known not to reach each other. */
static int open_import(mpath_gpu_coll_t *gpu, const access_t *access)
{
    const mpath_export_t *memory = memory_of(gpu, access);
    mpath_gpu_t *device          = (access->side == MPATH_ROOM_RECV) ? gpu->send.gpu : gpu->receive.gpu;
    int peer                     = mpath_gpu_find(&memory->uuid); /* -1: only the other process sees it */

    return ((peer < 0) || mpath_gpu_can_reach(device, peer)) &&
           (mpath_import_get(memory, device, &gpu->decided.imports[access->side][access->owner]) == MPATH_OK);
}

/* Opens what this rank may work on and has not met before. Returns a mask of the owners with whom it failed. */
static uint64_t open_unknown(mpath_gpu_coll_t *gpu, int side)
{
    uint64_t failed = 0;

    for (int peer = 0; peer < gpu->size; peer++) {
        access_t access = {gpu->me, peer, side};
        uint64_t bytes  = (side == MPATH_ROOM_RECV) ? gpu_bytes(gpu, gpu->me, peer) : gpu_bytes(gpu, peer, gpu->me);

        if ((bytes > 0) && is_unknown(gpu, &access) && !open_import(gpu, &access)) {
            gpu->decided.imports[side][peer] = NULL;
            failed |= 1ull << peer;
        }
    }
    return failed;
}

/* All ranks tell how opening went. */
static mpath_status_t exchange_opened(mpath_gpu_coll_t *gpu, int side, uint64_t failed)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    uint64_t all[MPATH_ORDER_MAX_RANKS];
    mpath_status_t status = mpath_team_allgather(gpu->team, &failed, sizeof(failed), all);

    for (int i = 0; (status == MPATH_OK) && (i < gpu->size * gpu->size); i++) {
        access_t access = access_of(i / gpu->size, i % gpu->size, side);

        if ((gpu->demand[i] > 0) && is_unknown(gpu, &access)) {
            gpu_known_t *known = find_known(gpu, &access);

            if ((all[access.opener] >> access.owner) & 1) {
                known->failed |= 1ull << access.opener;
                *refused_pair(gpu, &access) = (gpu_refused_t){.device = device_of(gpu, &access),
                                                              .uuid   = memory_of(gpu, &access)->uuid};
            } else {
                known->opened |= 1ull << access.opener;
            }
        }
    }
    if ((status == MPATH_OK) && (failed != 0) && !atomic_flag_test_and_set(&warned)) {
        mpath_warn("rank %d cannot reach the device memory of %d other ranks; that data goes through host memory, at "
                   "about a tenth of the speed",
                   gpu->me, __builtin_popcountll(failed));
    }
    gpu->counters.imports++;
    return status;
}

/*
 * Of one side of everybody's memory, those pairs that have data: where all is known nothing is opened. Afterwards
 * is_open() holds where opening works.
 */
static mpath_status_t look_at_side(mpath_gpu_coll_t *gpu, int side)
{
    int unknown = 0;

    for (int i = 0; i < gpu->size * gpu->size; i++) {
        access_t access = access_of(i / gpu->size, i % gpu->size, side);

        unknown = ((gpu->demand[i] > 0) && is_unknown(gpu, &access)) || unknown;
    }
    return unknown ? exchange_opened(gpu, side, open_unknown(gpu, side)) : MPATH_OK;
}

/* Pairs between GPUs are WAY_PUSH so far: gives the kernel what is faster with it. */
static void choose(mpath_gpu_coll_t *gpu)
{
    mpath_gpu_way_t way = mpath_gpu_coll_fastest_way(gpu);

    gpu->decided.pushes = 0;
    for (int i = 0; i < gpu->size * gpu->size; i++) {
        if (gpu->decided.ways[i] != WAY_PUSH) {
            continue;
        }
        if (gpu_cell(gpu, i / gpu->size)->kernels &&
            ((way == MPATH_GPU_WAY_KERNEL) || (gpu->demand[i] < mpath_gpu_coll_engine_least(gpu)))) {
            gpu->decided.ways[i] = WAY_KERNEL;
        } else {
            gpu->decided.pushes = 1;
        }
    }
}

void mpath_gpu_coll_forget_ways(mpath_gpu_coll_t *gpu)
{
    gpu->decided.valid = 0;
    mpath_gpu_coll_close_imports(gpu);
}

void mpath_gpu_coll_close_imports(mpath_gpu_coll_t *gpu)
{
    gpu_decided_t *decided   = &gpu->decided;
    mpath_import_t **imports = decided->imports[MPATH_ROOM_RECV]; /* of both sides */
    unsigned count           = 2 * (unsigned)gpu->size;

    decided->closed_stamp = mpath_import_put_all(imports, count);
    memcpy(decided->closed, imports, count * sizeof(mpath_import_t *));
    memset(imports, 0, count * sizeof(mpath_import_t *));
}

/* Whether all is as in the call before. All ranks find the same. */
static int is_decided(mpath_gpu_coll_t *gpu)
{
    gpu_decided_t *decided = &gpu->decided;
    size_t cells           = (size_t)gpu->size * (size_t)gpu->size;
    int same               = decided->valid;

    for (int rank = 0; rank < gpu->size; rank++) {
        same                       = same && (decided->generations[rank] == gpu_cell(gpu, rank)->generation);
        decided->generations[rank] = gpu_cell(gpu, rank)->generation;
    }
    same = same && (memcmp(decided->demand, gpu->demand, cells * sizeof(*gpu->demand)) == 0);
    if (!same) {
        memcpy(decided->demand, gpu->demand, cells * sizeof(*gpu->demand));
    }
    return same;
}

/*
 * Notes what this rank works on. Nothing else may be opened now: its owner waits for nobody who has no work on it, and
 * may have ended the call and freed the memory.
 */
static void note_wanted(mpath_gpu_coll_t *gpu)
{
    memset(gpu->decided.wanted, 0, sizeof(gpu->decided.wanted));
    for (int rank = 0; rank < gpu->size; rank++) {
        gpu_way_t to = gpu_way(gpu, gpu->me, rank);

        gpu->decided.wanted[MPATH_ROOM_RECV] |= ((to == WAY_KERNEL) || (to == WAY_PUSH)) ? 1ull << rank : 0;
    }
}

/* In a call like the one before, what was open in that: the cache of imports has it. */
static void open_again(mpath_gpu_coll_t *gpu)
{
    unsigned count = 2 * (unsigned)gpu->size;

    if (mpath_import_take_again(gpu->decided.closed, count, gpu->decided.closed_stamp)) {
        memcpy(gpu->decided.imports[MPATH_ROOM_RECV], gpu->decided.closed, count * sizeof(mpath_import_t *));
    }
}

static mpath_status_t open_wanted(mpath_gpu_coll_t *gpu)
{
    for (int side = 0; side < MPATH_ROOM_SIDES; side++) {
        for (int rank = 0; rank < gpu->size; rank++) {
            access_t access = {gpu->me, rank, side};

            if (((gpu->decided.wanted[side] >> rank) & 1) && (gpu->decided.imports[side][rank] == NULL) &&
                !open_import(gpu, &access)) {
                gpu->decided.imports[side][rank] = NULL;
                return MPATH_ERR_UNREACHABLE; /* the others count on it */
            }
        }
    }
    return MPATH_OK;
}

mpath_status_t mpath_gpu_coll_find_rates(mpath_gpu_coll_t *gpu)
{
    mpath_node_rates_t node;
    mpath_status_t status;

    if (gpu->rated) {
        return MPATH_OK;
    }
    gpu->rated = 1;
    status     = mpath_gpu_rates_agree(gpu->team, (gpu->send.gpu != NULL) ? gpu->send.gpu : gpu->receive.gpu, &node);
    if ((status == MPATH_OK) && node.known) {
        mpath_peer_rates_set(&gpu->rates, &node.probe);
    }
    return status;
}

/* The way of each pair, with memory open and rates known; the order of the engines. */
static void decide(mpath_gpu_coll_t *gpu)
{
    gpu_decided_t *decided = &gpu->decided;

    for (int i = 0; i < gpu->size * gpu->size; i++) {
        access_t access = access_of(i / gpu->size, i % gpu->size, MPATH_ROOM_RECV);

        decided->ways[i]   = WAY_NONE;
        decided->beside[i] = decided->helped[i] = 0;
        if ((gpu->demand[i] > 0) && (access.opener != access.owner)) {
            decided->ways[i] = is_open(gpu, &access) ? WAY_PUSH : WAY_STAGED;
        }
    }
    choose(gpu);
    mpath_gpu_coll_make_order(gpu);
    note_wanted(gpu);
    decided->valid = 1;
}

/* What is kept of the call before; it counts as a plan that was there. */
static int keeps_ways(mpath_gpu_coll_t *gpu)
{
    int kept;

    gpu_plan_begins(gpu);
    kept = is_decided(gpu);
    gpu_plan_ends(gpu);
    gpu->counters.plan_hits += kept ? 1 : 0;
    return kept;
}

mpath_status_t mpath_gpu_coll_find_ways(mpath_gpu_coll_t *gpu)
{
    gpu_decided_t *decided = &gpu->decided;
    mpath_status_t status;

    if (keeps_ways(gpu)) {
        open_again(gpu);
        status = mpath_gpu_coll_share_direct(gpu);
        return (status == MPATH_OK) ? open_wanted(gpu) : status;
    }
    mpath_gpu_coll_forget_ways(gpu);
    forget_moved(gpu);
    decided->share_ppm = decided->help_percent = 0;
    status                                     = look_at_side(gpu, MPATH_ROOM_RECV);
    if (status == MPATH_OK) {
        status = mpath_gpu_coll_find_rates(gpu);
    }
    if (status == MPATH_OK) {
        gpu_plan_begins(gpu);
        decide(gpu);
        gpu_plan_ends(gpu);
        gpu->counters.plans++;
    }
    if (status == MPATH_OK) {
        status = mpath_gpu_coll_open_slots(gpu);
    }
    if (status == MPATH_OK) {
        status = mpath_gpu_coll_share_direct(gpu);
    }
    return (status == MPATH_OK) ? open_wanted(gpu) : status;
}

mpath_status_t mpath_gpu_coll_open_all(mpath_gpu_coll_t *gpu, int works)
{
    gpu_decided_t *decided = &gpu->decided;
    mpath_status_t status  = MPATH_OK;

    if (is_decided(gpu)) {
        open_again(gpu);
    } else {
        mpath_gpu_coll_forget_ways(gpu);
        forget_moved(gpu);
        for (int side = 0; (status == MPATH_OK) && (side < MPATH_ROOM_SIDES); side++) {
            status = look_at_side(gpu, side);
        }
        decided->valid  = status == MPATH_OK;
        decided->all    = 1;
        decided->pushes = 0;
        for (int i = 0; decided->valid && (i < gpu->size * gpu->size); i++) {
            access_t write = access_of(i / gpu->size, i % gpu->size, MPATH_ROOM_RECV);
            access_t read  = access_of(i / gpu->size, i % gpu->size, MPATH_ROOM_SEND);
            int other      = (gpu->demand[i] > 0) && (write.opener != write.owner);

            decided->all = decided->all && gpu_cell(gpu, write.opener)->kernels &&
                           (!other || (is_open(gpu, &write) && is_open(gpu, &read)));
        }
    }
    if (status != MPATH_OK) {
        return status;
    }
    memset(decided->wanted, 0, sizeof(decided->wanted));
    for (int rank = 0; works && (rank < gpu->size); rank++) {
        uint64_t bit = (rank != gpu->me) ? 1ull << rank : 0;

        decided->wanted[MPATH_ROOM_RECV] |= (gpu_bytes(gpu, gpu->me, rank) > 0) ? bit : 0;
        decided->wanted[MPATH_ROOM_SEND] |= (gpu_bytes(gpu, rank, gpu->me) > 0) ? bit : 0;
    }
    return decided->all ? open_wanted(gpu) : MPATH_DECLINED;
}
