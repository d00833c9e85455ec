/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which pair travels how. A pair goes from GPU to GPU when one of its ranks has managed to open the other's allocation.
 * That only this rank knows: so whenever somebody meets an allocation for the first time, all ranks exchange how opening
 * went. Buffers are mostly the same from call to call, and then no exchange is needed; with the same demand as well,
 * everything is as it was in the call before.
 */
#include "coll/alltoallv_gpu_private.h"

#include "util/log.h"

#include <string.h>

/* Smaller pairs go with the kernel even when engines carry the others. */
#define ENGINE_MIN_BYTES (1u << 20)

/* An engine's piece is not cut smaller for the sake of the order. */
#define ORDER_LEAST_BYTES (2u << 20)

/* The kernel has to be faster by a fiftieth: it takes multiprocessors from the application. */
#define KERNEL_HANDICAP 50

/*
 * Measured from three GPUs to one: until the first bytes are there, and each byte after that; what of the share that
 * follows is taken, since the host's copies vary more than those between GPUs.
 */
#define HOST_START_NS 245000u
#define HOST_BYTE_PS 22u
#define HOST_PERCENT 88u

/* A hot receiver is worth a way through the host from so many bytes on; parts of a message are multiples of the second. */
#define HOST_SHARE_MIN_BYTES (240u << 20)
#define HOST_SHARE_GRAIN (64u << 10)

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

/* Opens what this rank works on. Returns a mask of the owners with whom it failed. */
static uint64_t open_imports(mpath_gpu_coll_t *gpu, int side)
{
    uint64_t failed = 0;

    for (int peer = 0; peer < gpu->size; peer++) {
        access_t access = {gpu->me, peer, side};
        uint64_t bytes  = (side == MPATH_ROOM_RECV) ? gpu_bytes(gpu, gpu->me, peer) : gpu_bytes(gpu, peer, gpu->me);

        if ((bytes > 0) && is_candidate(gpu, &access) && !((find_known(gpu, &access)->failed >> gpu->me) & 1) &&
            !open_import(gpu, &access)) {
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

/* Opens one side of everybody's memory, for those pairs that have data. Afterwards is_open() holds where it went well. */
static mpath_status_t open_side(mpath_gpu_coll_t *gpu, int side)
{
    mpath_status_t status = MPATH_OK;
    int unknown           = 0;
    uint64_t failed;

    for (int i = 0; i < gpu->size * gpu->size; i++) {
        access_t access = access_of(i / gpu->size, i % gpu->size, side);

        unknown = ((gpu->demand[i] > 0) && is_unknown(gpu, &access)) || unknown;
    }
    failed = open_imports(gpu, side);
    if (unknown) {
        status = exchange_opened(gpu, side, failed);
    }
    for (int peer = 0; (status == MPATH_OK) && (peer < gpu->size); peer++) {
        access_t access = {gpu->me, peer, side};

        if (((failed >> peer) & 1) && is_open(gpu, &access)) {
            status = MPATH_ERR_UNREACHABLE; /* it was open in an earlier call, and the others count on it */
        }
    }
    return status;
}

/* What the GPUs carry of the pairs on `way` with at least `least_bytes`. */
static void find_load(const mpath_gpu_coll_t *gpu, gpu_way_t way, uint64_t least_bytes, mpath_peer_load_t *load)
{
    *load = (mpath_peer_load_t){0};
    for (int rank = 0; rank < gpu->size; rank++) {
        uint64_t out = 0, in = 0;
        unsigned pieces = 0;

        for (int peer = 0; peer < gpu->size; peer++) {
            uint64_t sent = gpu_bytes(gpu, rank, peer), received = gpu_bytes(gpu, peer, rank);

            if ((gpu_way(gpu, rank, peer) == way) && (sent >= least_bytes)) {
                out += sent;
                pieces++;
            }
            in += ((gpu_way(gpu, peer, rank) == way) && (received >= least_bytes)) ? received : 0;
        }
        load->port_bytes = (out > load->port_bytes) ? out : load->port_bytes;
        load->port_bytes = (in > load->port_bytes) ? in : load->port_bytes;
        load->both_bytes = (in + out > load->both_bytes) ? in + out : load->both_bytes;
        load->pieces     = (pieces > load->pieces) ? pieces : load->pieces;
    }
}

/* From which size on a pair is worth an engine. */
static uint64_t engine_least(const mpath_gpu_coll_t *gpu)
{
    return (gpu->settings->gpu_way == MPATH_GPU_WAY_AUTO) ? ENGINE_MIN_BYTES : 0;
}

/* Pairs that are WAY_PUSH become pulls, unless somebody cannot. */
static mpath_status_t try_pull(mpath_gpu_coll_t *gpu)
{
    int num_pairs = gpu->size * gpu->size, all = 1;
    mpath_status_t status = MPATH_OK;

    for (int i = 0; i < num_pairs; i++) {
        access_t access = access_of(i / gpu->size, i % gpu->size, MPATH_ROOM_SEND);

        all = all && ((gpu->decided.ways[i] != WAY_PUSH) || is_candidate(gpu, &access));
    }
    if (all) {
        status = open_side(gpu, MPATH_ROOM_SEND);
    }
    for (int i = 0; (status == MPATH_OK) && all && (i < num_pairs); i++) {
        access_t access = access_of(i / gpu->size, i % gpu->size, MPATH_ROOM_SEND);

        all = (gpu->decided.ways[i] != WAY_PUSH) || is_open(gpu, &access);
    }
    for (int i = 0; (status == MPATH_OK) && all && (i < num_pairs); i++) {
        if (gpu->decided.ways[i] == WAY_PUSH) {
            gpu->decided.ways[i] = WAY_PULL;
            gpu->decided.engine  = WAY_PULL;
        }
    }
    return status;
}

/* What carries most: MPATH_GPU_WAY_KERNEL, _PUSH or _PULL. */
static mpath_gpu_way_t fastest_way(const mpath_gpu_coll_t *gpu)
{
    uint64_t kernel_ns, push_ns, pull_ns;
    mpath_peer_load_t all, large;

    if (gpu->settings->gpu_way != MPATH_GPU_WAY_AUTO) {
        return (mpath_gpu_way_t)gpu->settings->gpu_way;
    }
    find_load(gpu, WAY_PUSH, 0, &all);
    find_load(gpu, WAY_PUSH, ENGINE_MIN_BYTES, &large);
    if (large.port_bytes == 0) {
        return MPATH_GPU_WAY_KERNEL;
    }
    kernel_ns = mpath_peer_predict_ns(MPATH_PEER_KERNEL, &all);
    push_ns   = mpath_peer_predict_ns(MPATH_PEER_PUSH, &large);
    pull_ns   = mpath_peer_predict_ns(MPATH_PEER_PULL, &large);
    mpath_debug(
        "call %llu on device memory: %llu bytes through the busiest port; predicted: kernel %llu ns, push %llu ns, "
        "pull %llu ns",
        (unsigned long long)gpu->number, (unsigned long long)all.port_bytes, (unsigned long long)kernel_ns,
        (unsigned long long)push_ns, (unsigned long long)pull_ns);
    kernel_ns += kernel_ns / KERNEL_HANDICAP;
    if ((kernel_ns <= push_ns) && (kernel_ns <= pull_ns)) {
        return MPATH_GPU_WAY_KERNEL;
    }
    return (pull_ns < push_ns) ? MPATH_GPU_WAY_PULL : MPATH_GPU_WAY_PUSH;
}

/* Pairs between GPUs are WAY_PUSH so far: gives the kernel, or pulls, what is faster with them. */
static mpath_status_t choose(mpath_gpu_coll_t *gpu)
{
    mpath_gpu_way_t way = fastest_way(gpu);

    gpu->decided.engine = WAY_NONE;
    for (int i = 0; i < gpu->size * gpu->size; i++) {
        if (gpu->decided.ways[i] != WAY_PUSH) {
            continue;
        }
        if (gpu_cell(gpu, i / gpu->size)->kernels &&
            ((way == MPATH_GPU_WAY_KERNEL) || (gpu->demand[i] < engine_least(gpu)))) {
            gpu->decided.ways[i] = WAY_KERNEL;
        } else {
            gpu->decided.engine = WAY_PUSH;
        }
    }
    return ((gpu->decided.engine == WAY_PUSH) && (way == MPATH_GPU_WAY_PULL)) ? try_pull(gpu) : MPATH_OK;
}

/* What a rank receives, or sends, by pushes. */
static uint64_t pushed(const mpath_gpu_coll_t *gpu, int rank, int receives)
{
    uint64_t bytes = 0;

    for (int peer = 0; peer < gpu->size; peer++) {
        int source = receives ? peer : rank, destination = receives ? rank : peer;

        bytes += (gpu_way(gpu, source, destination) == WAY_PUSH) ? gpu_bytes(gpu, source, destination) : 0;
    }
    return bytes;
}

/*
 * A hot receiver gets a share of its bytes through host memory as well, over a link that is idle otherwise; not so much
 * that another port, or the copies of the host, would take longer than its own.
 */
static void share_with_host(mpath_gpu_coll_t *gpu)
{
    uint64_t most = 0, next = 0, next_of_hot = 0, share, limit, push_ns;
    int hot = -1;

    for (int rank = 0; rank < gpu->size; rank++) {
        uint64_t in = pushed(gpu, rank, 1), out = pushed(gpu, rank, 0);

        next = (out > next) ? out : next;
        if (in > most) {
            next        = (most > next) ? most : next;
            most        = in;
            next_of_hot = out;
            hot         = rank;
        } else {
            next = (in > next) ? in : next;
        }
    }
    if ((gpu->decided.engine != WAY_PUSH) || (most < HOST_SHARE_MIN_BYTES)) {
        return;
    }
    push_ns = mpath_peer_predict_ns(MPATH_PEER_PUSH, &(mpath_peer_load_t){most, most + next_of_hot, 1});
    if (push_ns <= HOST_START_NS) {
        return;
    }
    /* Both would end together with share x HOST_BYTE_PS + HOST_START_NS = (most - share) x push_ns / most. */
    share = (push_ns - HOST_START_NS) / 1000 * most / ((push_ns + most / 1000 * HOST_BYTE_PS) / 1000) / 100 *
            HOST_PERCENT;
    limit = most / 100 * (uint64_t)gpu->settings->gpu_host_percent;
    share = (share < limit) ? share : limit;
    share = (share > most - next) ? most - next : share;
    for (int source = 0; source < gpu->size; source++) {
        size_t pair    = (size_t)source * (size_t)gpu->size + (size_t)hot;
        uint64_t bytes = gpu->demand[pair],
                 part  = bytes / 1000 * (share / (most / 1000)) & ~(uint64_t)(HOST_SHARE_GRAIN - 1);

        if ((gpu->decided.ways[pair] == WAY_PUSH) && (part < bytes)) {
            gpu->decided.beside[pair] = part;
        }
    }
}

/* The order of the engines' pieces: rows are the ranks whose engines work. */
static void make_order(mpath_gpu_coll_t *gpu)
{
    gpu_decided_t *decided = &gpu->decided;

    for (int i = 0; i < gpu->size * gpu->size; i++) {
        int source = i / gpu->size, destination = i % gpu->size;
        int by_engine = (decided->ways[i] == WAY_PUSH) || (decided->ways[i] == WAY_PULL);
        int cell      = (decided->engine == WAY_PULL) ? destination * gpu->size + source : i;

        decided->by_engine[cell] = by_engine ? gpu->demand[i] - decided->beside[i] : 0;
    }
    mpath_order_compute(gpu->order, decided->by_engine, ORDER_LEAST_BYTES);
}

void mpath_gpu_coll_forget_ways(mpath_gpu_coll_t *gpu)
{
    gpu->decided.valid = 0;
    mpath_gpu_coll_close_imports(gpu);
}

void mpath_gpu_coll_close_imports(mpath_gpu_coll_t *gpu)
{
    for (int side = 0; side < MPATH_ROOM_SIDES; side++) {
        for (int rank = 0; rank < gpu->size; rank++) {
            if (gpu->decided.imports[side][rank] != NULL) {
                mpath_import_put(gpu->decided.imports[side][rank]);
                gpu->decided.imports[side][rank] = NULL;
            }
        }
    }
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

/* Notes what is open, for the calls that follow. */
static void note_wanted(mpath_gpu_coll_t *gpu)
{
    for (int side = 0; side < MPATH_ROOM_SIDES; side++) {
        gpu->decided.wanted[side] = 0;
        for (int rank = 0; rank < gpu->size; rank++) {
            gpu->decided.wanted[side] |= (gpu->decided.imports[side][rank] != NULL) ? 1ull << rank : 0;
        }
    }
}

/* Opens the same again, which the cache of imports has. */
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

/* Where one rank cannot have them, none can: no call has device memory carried from then on. */
static mpath_status_t open_slots(mpath_gpu_coll_t *gpu)
{
    mpath_status_t status = MPATH_OK;

    if (gpu->room.staged == NULL) {
        status = mpath_room_open_slots(&gpu->room, gpu->settings->gpu_memory_bytes,
                                       (gpu->send.gpu != NULL) ? gpu->send.gpu : gpu->receive.gpu);
    }
    if (!mpath_status_is_error(status) || (mpath_team_status(gpu->team) != MPATH_OK)) {
        return status;
    }
    mpath_info("a rank cannot have the slots for device memory on its way through the host (%s); calls with device "
               "memory are left to the previous function",
               mpath_status_string(status));
    gpu->usable = 0;
    return MPATH_DECLINED;
}

mpath_status_t mpath_gpu_coll_find_ways(mpath_gpu_coll_t *gpu)
{
    gpu_decided_t *decided = &gpu->decided;
    int staged             = 0;
    mpath_status_t status;

    if (is_decided(gpu)) {
        return open_wanted(gpu);
    }
    mpath_gpu_coll_forget_ways(gpu);
    status = open_side(gpu, MPATH_ROOM_RECV);
    for (int i = 0; (status == MPATH_OK) && (i < gpu->size * gpu->size); i++) {
        access_t access = access_of(i / gpu->size, i % gpu->size, MPATH_ROOM_RECV);

        decided->ways[i]   = WAY_NONE;
        decided->beside[i] = 0;
        if ((gpu->demand[i] > 0) && (access.opener != access.owner)) {
            decided->ways[i] = is_open(gpu, &access) ? WAY_PUSH : WAY_STAGED;
            staged           = staged || (decided->ways[i] == WAY_STAGED);
        }
    }
    if (status == MPATH_OK) {
        status = choose(gpu);
    }
    if (status == MPATH_OK) {
        share_with_host(gpu);
        make_order(gpu);
        for (int i = 0; i < gpu->size * gpu->size; i++) {
            staged = staged || (decided->beside[i] > 0);
        }
        note_wanted(gpu);
        decided->valid = 1;
    }
    return ((status == MPATH_OK) && staged) ? open_slots(gpu) : status;
}

mpath_status_t mpath_gpu_coll_open_all(mpath_gpu_coll_t *gpu)
{
    gpu_decided_t *decided = &gpu->decided;
    mpath_status_t status  = MPATH_OK;

    if (!is_decided(gpu)) {
        mpath_gpu_coll_forget_ways(gpu);
        for (int side = 0; (status == MPATH_OK) && (side < MPATH_ROOM_SIDES); side++) {
            status = open_side(gpu, side);
        }
        decided->valid  = status == MPATH_OK;
        decided->all    = 1;
        decided->engine = WAY_NONE;
        for (int i = 0; decided->valid && (i < gpu->size * gpu->size); i++) {
            access_t write = access_of(i / gpu->size, i % gpu->size, MPATH_ROOM_RECV);
            access_t read  = access_of(i / gpu->size, i % gpu->size, MPATH_ROOM_SEND);
            int other      = (gpu->demand[i] > 0) && (write.opener != write.owner);

            decided->all = decided->all && gpu_cell(gpu, write.opener)->kernels &&
                           (!other || (is_open(gpu, &write) && is_open(gpu, &read)));
        }
    }
    return ((status == MPATH_OK) && !decided->all) ? MPATH_DECLINED : status;
}
