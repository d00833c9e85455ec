/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Large Allreduces with nothing but writes between GPUs (gpu/reduce_writes.h): when they are faster, the memory that
 * ranks lend each other for it, and who may. Their kernels wait for each other, so all have to run at once: every rank
 * has a GPU of its own, and of a process one such call is under way at a time. A process that is in one already says so
 * in its cell, and then all ranks take the other kernel, which waits for nobody.
 */
#include "coll/allreduce_gpu_private.h"

#include "exec/idle.h"
#include "gpu/usage.h"
#include "util/log.h"
#include "util/time.h"

#include <stdlib.h>
#include <string.h>

#define WRITES_TILE_MAX (UINT64_C(64) << 10)
#define WRITES_TILE_GRAIN UINT64_C(4096)

/* How long a kernel waits where other ranks may rest, and the host, which stops it, has no deadline. */
#define WRITES_REST_S 86400u

/*
 * Whether elements are combined in the order of a ring: sizes decide, or the way that is forced, so that a call has the
 * same bits on every machine, whatever is the fastest there.
 */
static int goes_round(mpath_gpu_reduce_t forced, unsigned ranks, uint64_t bytes)
{
    switch (forced) {
    case MPATH_GPU_REDUCE_RING:
        return 1;
    case MPATH_GPU_REDUCE_AUTO:
    case MPATH_GPU_REDUCE_DIRECT:
        return mpath_reduce_in_ring(ranks, bytes);
    default:
        return 0;
    }
}

static void choose(mpath_symmetric_gpu_t *gpu, uint64_t bytes, const mpath_reduce_how_t *how)
{
    mpath_gpu_reduce_t forced = (mpath_gpu_reduce_t)gpu->reduce->settings->gpu_reduce;
    gpu_choice_t *choice      = &gpu->choice;
    unsigned ranks = (unsigned)gpu->size, ways = 0;

    *choice = (gpu_choice_t){.bytes = bytes, .how = *how, .rated = gpu->reduce->rated, .one_shot = -1};
    if (mpath_writes_fits(how)) {
        choice->in_ring = goes_round(forced, ranks, bytes);
        ways            = (ranks == 2) ? MPATH_REDUCE_WAY(MPATH_GPU_REDUCE_WRITES) : 0;
        ways            = choice->in_ring ? MPATH_REDUCE_WAY(MPATH_GPU_REDUCE_RING) : ways;
        choice->way     = ((forced == MPATH_GPU_REDUCE_WRITES) || (forced == MPATH_GPU_REDUCE_RING)) ? forced : 0;
    }
    if (choice->way == 0) {
        ways        = (forced == MPATH_GPU_REDUCE_AUTO) ? ways : 0;
        choice->way = mpath_reduce_fastest(&gpu->reduce->rates, ways, ranks, bytes);
    }
}

void mpath_gpu_writes_choose(mpath_symmetric_gpu_t *gpu, uint64_t bytes, const mpath_reduce_how_t *how)
{
    const gpu_choice_t *choice = &gpu->choice;

    if ((choice->bytes != bytes) || (choice->how.op != how->op) || (choice->how.type != how->type) ||
        (choice->rated != gpu->reduce->rated)) {
        choose(gpu, bytes, how);
    }
    gpu->in_ring = choice->in_ring;
    gpu->way     = choice->way;
}

int mpath_gpu_writes_does_without(mpath_symmetric_gpu_t *gpu, uint32_t flags)
{
    int forced           = gpu->reduce->settings->gpu_reduce; /* or chosen */
    gpu_choice_t *choice = &gpu->choice;

    if ((flags & MPATH_CALL_IN_PLACE) || gpu->in_ring) {
        return 0;
    }
    if (choice->one_shot < 0) {
        if (forced == MPATH_GPU_REDUCE_AUTO) {
            forced = mpath_reduce_fastest(&gpu->reduce->rates,
                                          MPATH_REDUCE_WAY(MPATH_GPU_REDUCE_ONE_SHOT) | MPATH_REDUCE_WAY(gpu->way),
                                          (unsigned)gpu->size, choice->bytes);
        }
        choice->one_shot = forced == MPATH_GPU_REDUCE_ONE_SHOT;
    }
    return choice->one_shot;
}

/* Bytes of a tile for which there is memory; 0: none. */
static uint64_t tile_bytes(const gpu_lent_t *lent, const mpath_gpu_coll_t *coll)
{
    uint64_t blocks = (uint64_t)MPATH_WRITES_CTAS * MPATH_WRITES_DEPTH * ((uint64_t)coll->size - 1);
    uint64_t tile   = mpath_gpu_lent_most(lent, coll, coll->settings->gpu_memory_bytes) / blocks;

    tile = (tile < WRITES_TILE_MAX) ? tile : WRITES_TILE_MAX;
    return mpath_writes_usable(coll->send.gpu) ? tile & ~(WRITES_TILE_GRAIN - 1) : 0;
}

/* The kernel of the way that has been chosen. */
static mpath_status_t find_function(mpath_symmetric_gpu_t *gpu, mpath_gpu_t *device, const mpath_reduce_how_t *how)
{
    gpu_found_t *found    = &gpu->found;
    mpath_status_t status = MPATH_OK;

    if ((found->device != device) || (found->way != gpu->way) || (found->how.op != how->op) ||
        (found->how.type != how->type)) {
        status        = (gpu->way == MPATH_GPU_REDUCE_RING)
                            ? mpath_ring_find(device, how, &gpu->no_writes, &found->function)
                            : mpath_writes_find(device, how, &gpu->no_writes, &found->function);
        found->device = (status == MPATH_OK) ? device : NULL;
        found->way    = gpu->way;
        found->how    = *how;
    }
    return status;
}

void mpath_gpu_writes_claim(mpath_symmetric_gpu_t *gpu, mpath_gpu_t *device, const mpath_reduce_how_t *how)
{
    if ((gpu->way != MPATH_GPU_REDUCE_DIRECT) && (find_function(gpu, device, how) == MPATH_OK)) {
        mpath_gpu_coll_claim(gpu->reduce);
    }
}

void mpath_gpu_writes_release(mpath_symmetric_gpu_t *gpu)
{
    mpath_gpu_coll_release(gpu->reduce);
}

/* Whether all ranks have claimed what they need, for buffers that such a kernel takes. */
static int is_claimed(const mpath_symmetric_gpu_t *gpu)
{
    int all = 1;

    for (int rank = 0; rank < gpu->size; rank++) {
        const mpath_room_cell_t *cell = gpu_cell(gpu->reduce, rank);

        all = all && cell->claimed &&
              ((cell->sides[MPATH_ROOM_SEND].address | cell->sides[MPATH_ROOM_RECV].address) % 16 == 0);
    }
    return all;
}

int mpath_gpu_writes_works(const mpath_symmetric_gpu_t *gpu, int may_write)
{
    return (gpu->part_bytes[gpu->me] > 0) ||
           (may_write && is_claimed(gpu) &&
            ((gpu->writes == NULL) || gpu->writes->usable || mpath_gpu_lent_is_due(gpu->writes, gpu->reduce)));
}

mpath_status_t mpath_gpu_writes_prepare(mpath_symmetric_gpu_t *gpu, int *use_p)
{
    mpath_gpu_coll_t *coll = gpu->reduce;
    mpath_status_t status  = MPATH_OK;
    uint64_t tile;

    *use_p = 0;
    if (!is_claimed(gpu)) {
        return MPATH_OK;
    }
    if (gpu->writes == NULL) {
        gpu->writes = mpath_gpu_lent_create(gpu->size, gpu->me);
        if (gpu->writes == NULL) {
            mpath_error("no memory for reductions of %d ranks on device memory; the call fails", gpu->size);
            return MPATH_ERR_NO_MEMORY; /* the others count on it */
        }
    }
    if (!mpath_gpu_lent_is_due(gpu->writes, coll)) {
        mpath_gpu_lent_pass(gpu->writes);
    } else {
        tile   = tile_bytes(gpu->writes, coll);
        status = mpath_gpu_lent_share(gpu->writes, coll, tile, MPATH_WRITES_MEMORY_BYTES((uint64_t)gpu->size, tile));
        if ((status == MPATH_OK) && gpu->writes->usable) {
            mpath_debug(
                "device memory of %d ranks can be reduced by writes only, in tiles of %u bytes, and round a ring "
                "with %u CTAs",
                gpu->size, (unsigned)gpu->writes->unit_bytes, mpath_ring_ctas(gpu->writes->multiprocessors));
        }
    }
    *use_p = gpu->writes->usable;
    return status;
}

/* Emulation: tiles of a paced port, which is idle for up to two of them at the end. */
#define WRITES_PACED_TILE (UINT64_C(16) << 10)

static uint64_t used_tile(const mpath_gpu_coll_t *coll, uint64_t tile)
{
    return ((coll->settings->gpu_port_bps > 0) && (tile > WRITES_PACED_TILE)) ? WRITES_PACED_TILE : tile;
}

/* Emulation: what a CTA takes for a tile where all together have a port of that rate. */
static uint64_t pace_ns(const mpath_gpu_coll_t *coll, uint64_t tile, unsigned ctas)
{
    uint64_t bps = coll->settings->gpu_port_bps;

    return (bps == 0) ? 0 : tile * ctas * 1000 / (bps / 1000000 + 1);
}

/* The kernel's own deadline is later than the host's. */
static uint64_t timeout_ns(const mpath_gpu_coll_t *coll)
{
    return (mpath_idle_others_may_rest() ? WRITES_REST_S : 2 * (uint64_t)coll->settings->timeout_s) * MPATH_NS_PER_S;
}

static mpath_status_t launch(mpath_symmetric_gpu_t *gpu, const mpath_reduce_how_t *how, unsigned ctas,
                             mpath_kernel_writes_t *arguments)
{
    mpath_gpu_coll_t *coll   = gpu->reduce;
    mpath_kernel_word_t done = {.address = mpath_room_device(&coll->room, &coll->room.words[gpu->me].kernel_done),
                                .value   = coll->number};
    mpath_stream_t *stream;
    mpath_status_t status = mpath_stream_get(coll->send.gpu, coll->first_stream + 1, &stream);

    if (status == MPATH_OK) {
        status = find_function(gpu, coll->send.gpu, how);
    }
    if (status != MPATH_OK) {
        return status;
    }
    coll->kernel_started = 1;
    coll->counters.kernel_bytes += gpu->part_bytes[gpu->me];
    mpath_gpu_coll_lock();
    status = (gpu->way == MPATH_GPU_REDUCE_RING) ? mpath_launch_ring(stream, gpu->found.function, ctas, done, arguments)
                                                 : mpath_launch_writes(stream, gpu->found.function, done, arguments);
    mpath_gpu_coll_unlock();
    return status;
}

mpath_status_t mpath_gpu_writes_start(mpath_symmetric_gpu_t *gpu, const mpath_reduce_how_t *how)
{
    mpath_gpu_coll_t *coll          = gpu->reduce;
    const gpu_lent_t *writes        = gpu->writes;
    unsigned ctas                   = MPATH_WRITES_CTAS;
    uint64_t tile                   = used_tile(coll, writes->unit_bytes);
    mpath_kernel_writes_t arguments = {
        .number     = coll->number,
        .stop       = mpath_room_device(&coll->room, &coll->room.words[gpu->me].stop),
        .timeout_ns = timeout_ns(coll),
        .ranks      = (uint32_t)gpu->size,
        .me         = (uint32_t)gpu->me,
        .send       = (mpath_cu_ptr_t)(uintptr_t)coll->send.buffer,
    };

    if (gpu->way == MPATH_GPU_REDUCE_RING) { /* the first part is the longest */
        ctas                 = mpath_ring_ctas(writes->multiprocessors);
        tile                 = mpath_ring_tile(gpu->part_bytes[0], ctas,
                                               MPATH_RING_TILE_BYTES((uint64_t)gpu->size, ctas, writes->unit_bytes));
        arguments.stagger_ns = mpath_reduce_ring_ns(&coll->rates, tile * ctas / MPATH_RING_GROUPS);
    }
    arguments.tile_bytes = tile;
    arguments.pace_ns    = pace_ns(coll, tile, ctas);
    for (int rank = 0; rank < gpu->size; rank++) {
        arguments.part_offsets[rank] = gpu->part_offsets[rank];
        arguments.part_bytes[rank]   = gpu->part_bytes[rank];
        arguments.targets[rank]      = mpath_reduce_gpu_address(coll, rank, MPATH_ROOM_RECV, 0);
        arguments.memory[rank]       = mpath_gpu_lent_address(writes, rank);
    }
    return launch(gpu, how, ctas, &arguments);
}
