/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Large Allreduces with nothing but writes between GPUs (gpu/reduce_writes.h): the memory that ranks lend each other for it, and who
 * may. Their kernels wait for each other, so all have to run at once: every rank has a GPU of its own, and of a process one
 * such call is under way at a time. A process that is in one already says so in its cell, and then all ranks take the other
 * kernel, which waits for nobody.
 */
#include "coll/allreduce_gpu_private.h"

#include "gpu/usage.h"
#include "util/log.h"
#include "util/time.h"

#include <stdlib.h>
#include <string.h>

#define WRITES_TILE_MAX (UINT64_C(64) << 10)
#define WRITES_TILE_GRAIN UINT64_C(4096)

/* From here on they are faster than the kernel that reads as well: doc/benchmarks. */
#define WRITES_MIN_BYTES (UINT64_C(48) << 20)

/* What each rank tells of its memory. */
typedef struct writes_offer {
    uint64_t good;
    uint64_t address;
    uint64_t tile_bytes; /* as it has room */
    mpath_export_t memory;
} writes_offer_t;

struct gpu_writes {
    int size, me;
    int usable;
    mpath_gpu_t *device;
    mpath_cu_ptr_t memory; /* of this rank */
    uint64_t memory_bytes;
    uint64_t tile_bytes;      /* the least of all ranks */
    writes_offer_t *offers;   /* [size] */
    mpath_import_t **imports; /* [size] */
    uint32_t *places;         /* [size] as the ranks' cells said */
};

static atomic_flag claimed = ATOMIC_FLAG_INIT;

/* -- memory -- */

static void memory_release(gpu_writes_t *writes)
{
    for (int rank = 0; (writes->imports != NULL) && (rank < writes->size); rank++) {
        if (writes->imports[rank] != NULL) {
            mpath_import_put(writes->imports[rank]);
            writes->imports[rank] = NULL;
        }
    }
    if ((writes->memory != 0) && mpath_gpu_available() && (mpath_gpu_enter(writes->device) == MPATH_OK)) {
        mpath_gpu_memory_give(writes->memory, writes->memory_bytes);
        mpath_gpu_leave(writes->device);
    }
    writes->memory = 0;
}

void mpath_gpu_writes_destroy(gpu_writes_t *writes)
{
    if (writes != NULL) {
        memory_release(writes);
        free(writes->offers);
        free(writes->imports);
        free(writes->places);
        free(writes);
    }
}

static gpu_writes_t *writes_create(int size, int me)
{
    gpu_writes_t *writes = calloc(1, sizeof(*writes));

    if (writes == NULL) {
        return NULL;
    }
    writes->size    = size;
    writes->me      = me;
    writes->offers  = calloc((size_t)size, sizeof(*writes->offers));
    writes->imports = calloc((size_t)size, sizeof(mpath_import_t *));
    writes->places  = calloc((size_t)size, sizeof(*writes->places));
    if ((writes->offers == NULL) || (writes->imports == NULL) || (writes->places == NULL)) {
        mpath_gpu_writes_destroy(writes);
        return NULL;
    }
    return writes;
}

/* Zeroed memory of the device; 0: none. */
static mpath_cu_ptr_t memory_alloc(mpath_gpu_t *device, uint64_t bytes)
{
    const mpath_cu_t *cu  = mpath_gpu_driver();
    mpath_cu_ptr_t memory = 0;

    if (mpath_gpu_enter(device) != MPATH_OK) {
        return 0;
    }
    if (mpath_gpu_memory_take(&memory, bytes) != MPATH_CU_SUCCESS) {
        memory = 0;
    } else if ((cu->MemsetD8(memory, 0, bytes) != MPATH_CU_SUCCESS) || (cu->CtxSynchronize() != MPATH_CU_SUCCESS)) {
        mpath_gpu_memory_give(memory, bytes);
        memory = 0;
    }
    mpath_gpu_leave(device);
    return memory;
}

/* This rank's memory, as others open it. */
static void memory_make(gpu_writes_t *writes, const mpath_gpu_coll_t *coll, writes_offer_t *offer)
{
    uint64_t size = (uint64_t)writes->size, tile, bytes;
    mpath_memory_t memory;
    void *address;

    memset(offer, 0, sizeof(*offer));
    writes->device = coll->send.gpu;
    tile           = coll->settings->gpu_memory_bytes / (MPATH_WRITES_CTAS * MPATH_WRITES_DEPTH * (size - 1));
    tile           = ((tile < WRITES_TILE_MAX) ? tile : WRITES_TILE_MAX) & ~(WRITES_TILE_GRAIN - 1);
    if ((tile == 0) || !mpath_writes_usable(writes->device)) {
        return;
    }
    bytes                = MPATH_WRITES_MEMORY_BYTES(size, tile);
    writes->memory       = memory_alloc(writes->device, bytes);
    writes->memory_bytes = bytes;
    address              = (void *)(uintptr_t)writes->memory;
    offer->address       = writes->memory;
    offer->tile_bytes    = tile;
    offer->good          = (writes->memory != 0) && (mpath_memory_classify(address, bytes, &memory) == MPATH_OK) &&
                  (mpath_export_make(address, bytes, &memory, &offer->memory) == MPATH_OK);
}

static int memory_open(gpu_writes_t *writes)
{
    int good = 1;

    writes->tile_bytes = WRITES_TILE_MAX;
    for (int rank = 0; rank < writes->size; rank++) {
        uint64_t tile = writes->offers[rank].tile_bytes;

        good               = good && writes->offers[rank].good;
        writes->tile_bytes = (tile < writes->tile_bytes) ? tile : writes->tile_bytes;
    }
    for (int rank = 0; good && (rank < writes->size); rank++) {
        int peer = mpath_gpu_find(&writes->offers[rank].memory.uuid);

        if (rank == writes->me) {
            continue;
        }
        good = ((peer < 0) || mpath_gpu_can_reach(writes->device, peer)) &&
               (mpath_import_get(&writes->offers[rank].memory, writes->device, &writes->imports[rank]) == MPATH_OK);
        if (!good) {
            writes->imports[rank] = NULL;
        }
    }
    return good;
}

/* Whether every rank works on a GPU of its own. */
static int is_alone(const mpath_gpu_coll_t *coll)
{
    for (int a = 0; a < coll->size; a++) {
        for (int b = 0; b < a; b++) {
            if (memcmp(&gpu_cell(coll, a)->sides[MPATH_ROOM_SEND].memory.uuid,
                       &gpu_cell(coll, b)->sides[MPATH_ROOM_SEND].memory.uuid, sizeof(mpath_cu_uuid_t)) == 0) {
                return 0;
            }
        }
    }
    return 1;
}

/* Collective. */
static mpath_status_t memory_share(gpu_writes_t *writes, const mpath_gpu_coll_t *coll)
{
    uint8_t good, all[MPATH_KERNEL_REDUCE_RANKS];
    mpath_status_t status;
    writes_offer_t mine;

    memory_release(writes); /* since it was used last a call has ended on all ranks */
    memory_make(writes, coll, &mine);
    status = mpath_team_allgather(coll->team, &mine, sizeof(mine), writes->offers);
    if (status != MPATH_OK) {
        return status;
    }
    good   = (uint8_t)memory_open(writes);
    status = mpath_team_allgather(coll->team, &good, sizeof(good), all);
    if (status != MPATH_OK) {
        return status;
    }
    writes->usable = is_alone(coll);
    for (int rank = 0; rank < writes->size; rank++) {
        writes->usable       = writes->usable && all[rank];
        writes->places[rank] = gpu_cell(coll, rank)->place;
    }
    if (writes->usable) {
        mpath_debug("device memory of %d ranks can be reduced by writes only, in tiles of %u bytes", writes->size,
                    (unsigned)writes->tile_bytes);
    } else {
        memory_release(writes);
    }
    return MPATH_OK;
}

/* -- a call -- */

void mpath_gpu_writes_claim(mpath_symmetric_gpu_t *gpu, uint64_t bytes, const mpath_reduce_how_t *how)
{
    mpath_gpu_coll_t *coll = gpu->reduce;
    int way                = coll->settings->gpu_reduce;

    coll->claimed = mpath_writes_fits(how) && (way != MPATH_GPU_REDUCE_DIRECT) &&
                    ((way == MPATH_GPU_REDUCE_WRITES) || (bytes >= WRITES_MIN_BYTES)) &&
                    !atomic_flag_test_and_set(&claimed);
}

void mpath_gpu_writes_release(mpath_symmetric_gpu_t *gpu)
{
    if (gpu->reduce->claimed) {
        gpu->reduce->claimed = 0;
        atomic_flag_clear(&claimed);
    }
}

mpath_status_t mpath_gpu_writes_prepare(mpath_symmetric_gpu_t *gpu, int *use_p)
{
    mpath_gpu_coll_t *coll = gpu->reduce;
    int same               = gpu->writes != NULL;
    mpath_status_t status  = MPATH_OK;

    *use_p = 0;
    for (int rank = 0; rank < gpu->size; rank++) {
        const mpath_room_cell_t *cell = gpu_cell(coll, rank);

        if (!cell->claimed ||
            ((cell->sides[MPATH_ROOM_SEND].address | cell->sides[MPATH_ROOM_RECV].address) % 16) != 0) {
            return MPATH_OK;
        }
        same = same && (gpu->writes->places[rank] == cell->place);
    }
    if (gpu->writes == NULL) {
        gpu->writes = writes_create(gpu->size, gpu->me);
        if (gpu->writes == NULL) {
            mpath_error("no memory for reductions of %d ranks on device memory; the call fails", gpu->size);
            return MPATH_ERR_NO_MEMORY; /* the others count on it */
        }
    }
    if (!same) {
        status = memory_share(gpu->writes, coll);
    }
    *use_p = gpu->writes->usable;
    return status;
}

mpath_status_t mpath_gpu_writes_start(mpath_symmetric_gpu_t *gpu, const mpath_reduce_how_t *how)
{
    mpath_gpu_coll_t *coll          = gpu->reduce;
    const gpu_writes_t *writes      = gpu->writes;
    mpath_room_words_t *words       = &coll->room.words[gpu->me];
    mpath_kernel_writes_t arguments = {
        .number     = coll->number,
        .stop       = mpath_room_device(&coll->room, &words->stop),
        .tile_bytes = writes->tile_bytes,
        .ranks      = (uint32_t)gpu->size,
        .me         = (uint32_t)gpu->me,
        .send       = (mpath_cu_ptr_t)(uintptr_t)coll->send.buffer,
    };
    mpath_kernel_word_t done = {.address = mpath_room_device(&coll->room, &words->kernel_done), .value = coll->number};
    mpath_cu_function_t function;
    mpath_stream_t *stream;
    mpath_status_t status;

    status = mpath_stream_get(coll->send.gpu, coll->first_stream + 1, &stream);
    if (status == MPATH_OK) {
        status = mpath_writes_find(coll->send.gpu, how, &function);
    }
    if (status != MPATH_OK) {
        return status;
    }
    for (int rank = 0; rank < gpu->size; rank++) {
        arguments.part_offsets[rank] = gpu->part_offsets[rank];
        arguments.part_bytes[rank]   = gpu->part_bytes[rank];
        arguments.targets[rank]      = mpath_reduce_gpu_address(coll, rank, MPATH_ROOM_RECV, 0);
        arguments.memory[rank]       = (rank == gpu->me)
                                           ? writes->memory
                                           : mpath_import_address(writes->imports[rank], writes->offers[rank].address);
    }
    coll->kernel_started = 1;
    coll->counters.kernel_bytes += gpu->part_bytes[gpu->me];
    mpath_gpu_coll_lock();
    status = mpath_launch_writes(stream, function, done, 2 * (uint64_t)coll->settings->timeout_s * MPATH_NS_PER_S,
                                 &arguments);
    mpath_gpu_coll_unlock();
    return status;
}
