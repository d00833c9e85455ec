/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which pair travels how. A pair goes from GPU to GPU when the sender's memory is on a device and the sender has managed
 * to open the receiver's allocation. The latter only the sender knows: so whenever a pair meets an allocation for the
 * first time, all ranks exchange how opening went. Buffers are mostly the same from call to call, and then no exchange
 * is needed.
 */
#include "coll/alltoallv_gpu_private.h"

#include "util/log.h"

#include <string.h>

/* From here on a copy engine is worth its start among other engine copies; below, the kernel takes the pair along. */
#define ENGINE_MIN_BYTES (1u << 20)

/* The entry of a rank's receive buffer. */
static gpu_known_t *find_known(mpath_gpu_coll_t *gpu, int rank)
{
    const mpath_export_t *export = &gpu_cell(gpu, rank)->recv;
    gpu_known_list_t *list       = &gpu->known[rank];
    gpu_known_t *known;

    for (int i = 0; i < GPU_KNOWN_EXPORTS; i++) {
        known = &list->exports[i];
        if ((known->buffer_id == export->buffer_id) && (known->base == export->base)) {
            return known;
        }
    }
    known      = &list->exports[list->next];
    list->next = (list->next + 1) % GPU_KNOWN_EXPORTS;
    *known     = (gpu_known_t){.base = export->base, .buffer_id = export->buffer_id};
    return known;
}

static gpu_refused_t *refused_pair(const mpath_gpu_coll_t *gpu, int source, int destination)
{
    return &gpu->refused[(size_t)source * (size_t)gpu->size + (size_t)destination];
}

static int is_refused(const mpath_gpu_coll_t *gpu, int source, int destination)
{
    const gpu_refused_t *refused = refused_pair(gpu, source, destination);

    return (refused->device == gpu_cell(gpu, source)->device) &&
           (memcmp(&refused->uuid, &gpu_cell(gpu, destination)->recv.uuid, sizeof(refused->uuid)) == 0);
}

/* Could go from GPU to GPU, if opening works. */
static int is_candidate(const mpath_gpu_coll_t *gpu, int source, int destination)
{
    return (source != destination) && (gpu_bytes(gpu, source, destination) > 0) &&
           (gpu_cell(gpu, source)->device >= 0) && (gpu_cell(gpu, destination)->recv.how != MPATH_EXPORT_NONE) &&
           !is_refused(gpu, source, destination);
}

/* Opens the receive buffer of a rank; quietly fails where the devices are known not to reach each other. */
static int open_import(mpath_gpu_coll_t *gpu, int to)
{
    const mpath_export_t *export = &gpu_cell(gpu, to)->recv;
    int peer                     = mpath_gpu_find(&export->uuid); /* -1: only the other process sees it */

    return ((peer < 0) || mpath_gpu_can_reach(gpu->send.gpu, peer)) &&
           (mpath_import_get(export, gpu->send.gpu, &gpu->imports[to]) == MPATH_OK);
}

/* Opens what this rank writes to. Returns a mask of those where it failed. */
static uint64_t open_imports(mpath_gpu_coll_t *gpu)
{
    uint64_t failed = 0;

    for (int to = 0; to < gpu->size; to++) {
        if (is_candidate(gpu, gpu->me, to) && (gpu->imports[to] == NULL) &&
            !((find_known(gpu, to)->failed >> gpu->me) & 1) && !open_import(gpu, to)) {
            gpu->imports[to] = NULL;
            failed |= 1ull << to;
        }
    }
    return failed;
}

/* Some pair meets an allocation for the first time. */
static int is_unknown(mpath_gpu_coll_t *gpu, int source, int destination)
{
    const gpu_known_t *known;

    if (!is_candidate(gpu, source, destination)) {
        return 0;
    }
    known = find_known(gpu, destination);
    return !(((known->opened | known->failed) >> source) & 1);
}

/* All ranks tell how opening went. */
static mpath_status_t exchange_opened(mpath_gpu_coll_t *gpu, uint64_t failed)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    uint64_t all[MPATH_ORDER_MAX_RANKS];
    mpath_status_t status = mpath_team_allgather(gpu->team, &failed, sizeof(failed), all);

    for (int i = 0; (status == MPATH_OK) && (i < gpu->size * gpu->size); i++) {
        int source = i / gpu->size, destination = i % gpu->size;

        if (is_unknown(gpu, source, destination)) {
            gpu_known_t *known = find_known(gpu, destination);

            if ((all[source] >> destination) & 1) {
                known->failed |= 1ull << source;
                *refused_pair(gpu, source, destination) = (gpu_refused_t){
                    .device = gpu_cell(gpu, source)->device, .uuid = gpu_cell(gpu, destination)->recv.uuid};
            } else {
                known->opened |= 1ull << source;
            }
        }
    }
    if ((status == MPATH_OK) && (failed != 0) && !atomic_flag_test_and_set(&warned)) {
        mpath_warn(
            "rank %d cannot write to the device memory of %d other ranks; that data goes through host memory, at "
            "about a tenth of the speed",
            gpu->me, __builtin_popcountll(failed));
    }
    gpu->counters.imports++;
    return status;
}

/* What the busiest port carries of the pairs for which `engine` holds, and the most pairs of a rank. */
static uint64_t port_load(const mpath_gpu_coll_t *gpu, uint64_t from_bytes, unsigned *pairs_p)
{
    uint64_t most = 0;

    *pairs_p = 0;
    for (int rank = 0; rank < gpu->size; rank++) {
        uint64_t out = 0, in = 0;
        unsigned out_pairs = 0, in_pairs = 0;

        for (int peer = 0; peer < gpu->size; peer++) {
            uint64_t sent = gpu_bytes(gpu, rank, peer), received = gpu_bytes(gpu, peer, rank);

            if ((gpu_way(gpu, rank, peer) == WAY_ENGINE) && (sent >= from_bytes)) {
                out += sent;
                out_pairs++;
            }
            if ((gpu_way(gpu, peer, rank) == WAY_ENGINE) && (received >= from_bytes)) {
                in += received;
                in_pairs++;
            }
        }
        most     = (out > most) ? out : most;
        most     = (in > most) ? in : most;
        *pairs_p = (out_pairs > *pairs_p) ? out_pairs : *pairs_p;
        *pairs_p = (in_pairs > *pairs_p) ? in_pairs : *pairs_p;
    }
    return most;
}

/* Pairs between GPUs are WAY_ENGINE so far: gives the kernel what is faster with it. */
static void choose_kernels(mpath_gpu_coll_t *gpu)
{
    unsigned all_pairs, engine_pairs;
    uint64_t all_bytes    = port_load(gpu, 0, &all_pairs);
    uint64_t engine_bytes = port_load(gpu, ENGINE_MIN_BYTES, &engine_pairs);
    int all_by_kernel;

    all_by_kernel = mpath_peer_kernel_ns(all_bytes) <= mpath_peer_engine_ns(engine_bytes, engine_pairs);
    for (int i = 0; i < gpu->size * gpu->size; i++) {
        if ((gpu->ways[i] == WAY_ENGINE) && (gpu_cell(gpu, i / gpu->size)->flags & MPATH_ROOM_KERNELS) &&
            (all_by_kernel || (gpu->demand[i] < ENGINE_MIN_BYTES))) {
            gpu->ways[i] = WAY_KERNEL;
        }
    }
}

mpath_status_t mpath_gpu_coll_find_ways(mpath_gpu_coll_t *gpu)
{
    int n = gpu->size, unknown = 0, staged = 0;
    mpath_status_t status;
    uint64_t failed;

    for (int i = 0; i < n * n; i++) {
        unknown = is_unknown(gpu, i / n, i % n) || unknown;
    }
    failed = open_imports(gpu);
    if (unknown) {
        status = exchange_opened(gpu, failed);
        if (status != MPATH_OK) {
            return status;
        }
    }
    for (int i = 0; i < n * n; i++) {
        int source = i / n, destination = i % n;

        gpu->ways[i] = WAY_NONE;
        if (is_candidate(gpu, source, destination) && !((find_known(gpu, destination)->failed >> source) & 1)) {
            gpu->ways[i] = WAY_ENGINE;
            if ((source == gpu->me) && (gpu->imports[destination] == NULL)) {
                return MPATH_ERR_UNREACHABLE; /* it was open in an earlier call, and the others count on it */
            }
        } else if ((source != destination) && (gpu->demand[i] > 0)) {
            gpu->ways[i] = WAY_STAGED;
            staged       = 1;
        }
    }
    choose_kernels(gpu);
    if (staged && (gpu->room.staged == NULL)) {
        return mpath_room_open_slots(&gpu->room, gpu->settings->gpu_memory_bytes,
                                     (gpu->send.gpu != NULL) ? gpu->send.gpu : gpu->receive.gpu);
    }
    return MPATH_OK;
}
