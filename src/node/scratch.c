/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory on GPUs: what ranks lend each other, allocated, told of, opened; and what a rank has for itself. */
#include "node/scratch.h"
#include "device/kernels/reduce_args.h"
#include "node/reduce_private.h"

#include "device/usage.h"

#include <stdlib.h>
#include <string.h>

/* Of the driver's blocks: what it exports is a block, which nothing else is to lie in. */
#define LENT_GRAIN_BYTES (UINT64_C(2) << 20)

static void lent_release(gpu_lent_t *lent)
{
    for (int rank = 0; (lent->imports != NULL) && (rank < lent->size); rank++) {
        if (lent->imports[rank] != NULL) {
            mpath_import_put(lent->imports[rank]);
            lent->imports[rank] = NULL;
        }
    }
    /* In a team that is broken nobody hears of the end of the others' kernels, which may write to it still. */
    if ((lent->memory != 0) && (mpath_team_status(lent->team) == MPATH_OK)) {
        mpath_gpu_memory_give(lent->device, lent->memory, lent->memory_bytes);
    }
    lent->memory = 0;
}

void mpath_gpu_lent_destroy(gpu_lent_t *lent)
{
    if (lent != NULL) {
        lent_release(lent);
        free(lent->offers);
        free(lent->imports);
        free(lent->places);
        free(lent);
    }
}

gpu_lent_t *mpath_gpu_lent_create(int size, int me)
{
    gpu_lent_t *lent = calloc(1, sizeof(*lent));

    if (lent == NULL) {
        return NULL;
    }
    lent->size    = size;
    lent->me      = me;
    lent->offers  = calloc((size_t)size, sizeof(*lent->offers));
    lent->imports = calloc((size_t)size, sizeof(mpath_import_t *));
    lent->places  = calloc((size_t)size, sizeof(*lent->places)); /* 0: of no rank */
    if ((lent->offers == NULL) || (lent->imports == NULL) || (lent->places == NULL)) {
        mpath_gpu_lent_destroy(lent);
        return NULL;
    }
    return lent;
}

/* Zeroed memory of the device; 0: none. */
static mpath_device_ptr_t lent_alloc(const gpu_lent_t *lent, uint64_t bytes)
{
    uint64_t limit            = mpath_team_settings(lent->team)->gpu_device_bytes;
    mpath_device_ptr_t memory = 0;

    if (mpath_gpu_enter(lent->device) != MPATH_OK) {
        return 0;
    }
    if (mpath_gpu_memory_take_zeroed(limit, &memory, bytes) != MPATH_DEVICE_DONE) {
        memory = 0;
    }
    mpath_gpu_leave(lent->device);
    return memory;
}

/* This rank's memory, as others open it. */
static void lent_make(gpu_lent_t *lent, mpath_gpu_t *device, uint64_t unit_bytes, uint64_t bytes,
                      gpu_lent_offer_t *offer)
{
    mpath_memory_t memory;
    void *address;

    memset(offer, 0, sizeof(*offer));
    lent->device = device;
    if (unit_bytes == 0) {
        return;
    }
    bytes                  = (bytes + LENT_GRAIN_BYTES - 1) / LENT_GRAIN_BYTES * LENT_GRAIN_BYTES;
    lent->memory           = lent_alloc(lent, bytes);
    lent->memory_bytes     = bytes;
    address                = (void *)(uintptr_t)lent->memory;
    offer->address         = lent->memory;
    offer->unit_bytes      = unit_bytes;
    offer->multiprocessors = (uint64_t)mpath_gpu_info_of(device)->multiprocessors;
    offer->good            = (lent->memory != 0) && (mpath_memory_classify(address, bytes, &memory) == MPATH_OK) &&
                  (mpath_export_make(address, bytes, &memory, &offer->memory) == MPATH_OK);
}

static int lent_open(gpu_lent_t *lent)
{
    int good = 1;

    lent->unit_bytes      = lent->offers[0].unit_bytes;
    lent->multiprocessors = (unsigned)lent->offers[0].multiprocessors;
    for (int rank = 0; rank < lent->size; rank++) {
        uint64_t unit = lent->offers[rank].unit_bytes, count = lent->offers[rank].multiprocessors;

        good                  = good && lent->offers[rank].good;
        lent->unit_bytes      = (unit < lent->unit_bytes) ? unit : lent->unit_bytes;
        lent->multiprocessors = (count < lent->multiprocessors) ? (unsigned)count : lent->multiprocessors;
    }
    for (int rank = 0; good && (rank < lent->size); rank++) {
        int peer = mpath_gpu_find(&lent->offers[rank].memory.uuid);

        if (rank == lent->me) {
            continue;
        }
        good = ((peer < 0) || mpath_gpu_can_reach(lent->device, peer)) &&
               (mpath_import_get(&lent->offers[rank].memory, lent->device, &lent->imports[rank]) == MPATH_OK);
        if (!good) {
            lent->imports[rank] = NULL;
        }
    }
    return good;
}

/* Whether every rank works on a GPU of its own. */
static int lent_is_alone(const gpu_lent_t *lent)
{
    for (int a = 0; a < lent->size; a++) {
        for (int b = 0; b < a; b++) {
            if (memcmp(&lent->offers[a].memory.uuid, &lent->offers[b].memory.uuid, sizeof(mpath_device_uuid_t)) == 0) {
                return 0;
            }
        }
    }
    return 1;
}

uint64_t mpath_gpu_lent_most(const gpu_lent_t *lent, const mpath_gpu_coll_t *coll, uint64_t wanted_bytes)
{
    uint64_t own = ((lent != NULL) && (lent->memory != 0)) ? lent->memory_bytes : 0;

    return mpath_gpu_memory_share(coll->settings->gpu_device_bytes, wanted_bytes, own);
}

int mpath_gpu_lent_is_current(const gpu_lent_t *lent, const mpath_gpu_coll_t *coll)
{
    for (int rank = 0; rank < lent->size; rank++) {
        if (lent->places[rank] != gpu_cell(coll, rank)->place) {
            return 0;
        }
    }
    return 1;
}

int mpath_gpu_lent_is_due(const gpu_lent_t *lent, const mpath_gpu_coll_t *coll)
{
    return mpath_pause_is_over(&lent->pause) || !mpath_gpu_lent_is_current(lent, coll);
}

void mpath_gpu_lent_pass(gpu_lent_t *lent)
{
    (void)mpath_pause_passes(&lent->pause);
}

/* Memory may be free later. What ranks cannot open, or GPUs that they share, stay so. */
static void set_pause(gpu_lent_t *lent)
{
    int had_memory = 1;

    for (int rank = 0; rank < lent->size; rank++) {
        had_memory = had_memory && lent->offers[rank].good;
    }
    mpath_pause_note(&lent->pause, had_memory);
}

mpath_status_t mpath_gpu_lent_share(gpu_lent_t *lent, const mpath_gpu_coll_t *coll, uint64_t unit_bytes,
                                    uint64_t memory_bytes)
{
    uint8_t good = 0, all[MPATH_KERNEL_REDUCE_RANKS];
    mpath_status_t status;
    gpu_lent_offer_t mine;

    lent->usable = 0;
    lent->team   = coll->team;
    status       = mpath_team_allgather(coll->team, &good, sizeof(good), all); /* all kernels have ended */
    if (status != MPATH_OK) {
        return status;
    }
    lent_release(lent);
    lent_make(lent, coll->send.gpu, unit_bytes, memory_bytes, &mine);
    status = mpath_team_allgather(coll->team, &mine, sizeof(mine), lent->offers);
    if (status != MPATH_OK) {
        return status;
    }
    good   = (uint8_t)lent_open(lent);
    status = mpath_team_allgather(coll->team, &good, sizeof(good), all);
    if (status != MPATH_OK) {
        return status;
    }
    lent->usable = lent_is_alone(lent);
    for (int rank = 0; rank < lent->size; rank++) {
        lent->usable       = lent->usable && all[rank];
        lent->places[rank] = gpu_cell(coll, rank)->place;
    }
    if (!lent->usable) {
        lent_release(lent);
    }
    set_pause(lent);
    return MPATH_OK;
}

mpath_device_ptr_t mpath_gpu_lent_address(const gpu_lent_t *lent, int rank)
{
    return (rank == lent->me) ? lent->memory : mpath_import_address(lent->imports[rank], lent->offers[rank].address);
}

/* -- of this rank alone -- */

void mpath_gpu_scratch_free(mpath_symmetric_gpu_t *gpu)
{
    mpath_gpu_memory_give(gpu->scratch_gpu, gpu->scratch, (size_t)gpu->scratch_bytes);
    gpu->scratch       = 0;
    gpu->scratch_bytes = 0;
}

int mpath_gpu_scratch_get(mpath_symmetric_gpu_t *gpu, const mpath_memory_t *memory, uint64_t bytes)
{
    mpath_device_result_t result;
    mpath_gpu_t *device;

    if ((bytes > gpu->reduce->settings->gpu_memory_bytes) ||
        (mpath_gpu_get(memory->device, memory->context, &device) != MPATH_OK)) {
        return 0;
    }
    if ((device == gpu->scratch_gpu) && (bytes <= gpu->scratch_bytes)) {
        return 1;
    }
    mpath_gpu_scratch_free(gpu);
    if (mpath_gpu_enter(device) != MPATH_OK) {
        return 0;
    }
    result = mpath_gpu_memory_take_within(gpu->reduce->settings->gpu_device_bytes, &gpu->scratch, (size_t)bytes);
    mpath_gpu_leave(device);
    if (result != MPATH_DEVICE_DONE) {
        gpu->scratch = 0;
        return 0;
    }
    gpu->scratch_gpu   = device;
    gpu->scratch_bytes = bytes;
    return 1;
}
