/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows: allocated, published, opened. */
#include "node/window.h"
#include "device/kernels/reduce_args.h"

#include "device/usage.h"

#include <stdlib.h>
#include <string.h>

/* Of the driver's blocks: what it exports is a block, which nothing else is to lie in. */
#define WINDOW_GRAIN_BYTES (UINT64_C(2) << 20)

static void window_release(gpu_window_t *window)
{
    for (int rank = 0; (window->imports != NULL) && (rank < window->size); rank++) {
        if (window->imports[rank] != NULL) {
            mpath_import_put(window->imports[rank]);
            window->imports[rank] = NULL;
        }
    }
    /* In a team that is broken nobody hears of the end of the others' kernels, which may write to it still. */
    if ((window->memory != 0) && (mpath_team_status(window->team) == MPATH_OK)) {
        mpath_gpu_memory_give(window->device, window->memory, window->memory_bytes);
    }
    window->memory = 0;
}

void mpath_gpu_window_destroy(gpu_window_t *window)
{
    if (window != NULL) {
        window_release(window);
        free(window->offers);
        free(window->imports);
        free(window->places);
        free(window);
    }
}

gpu_window_t *mpath_gpu_window_create(int size, int me)
{
    gpu_window_t *window = calloc(1, sizeof(*window));

    if (window == NULL) {
        return NULL;
    }
    window->size    = size;
    window->me      = me;
    window->offers  = calloc((size_t)size, sizeof(*window->offers));
    window->imports = calloc((size_t)size, sizeof(mpath_import_t *));
    window->places  = calloc((size_t)size, sizeof(*window->places)); /* 0: of no rank */
    if ((window->offers == NULL) || (window->imports == NULL) || (window->places == NULL)) {
        mpath_gpu_window_destroy(window);
        return NULL;
    }
    return window;
}

/* Zeroed memory of the device; 0: none. */
static mpath_device_ptr_t window_alloc(const gpu_window_t *window, uint64_t bytes)
{
    uint64_t limit            = mpath_team_settings(window->team)->gpu_device_bytes;
    mpath_device_ptr_t memory = 0;

    if (mpath_gpu_enter(window->device) != MPATH_OK) {
        return 0;
    }
    if (mpath_gpu_memory_take_zeroed(limit, &memory, bytes) != MPATH_DEVICE_DONE) {
        memory = 0;
    }
    mpath_gpu_leave(window->device);
    return memory;
}

/* This rank's memory, as others open it. */
static void window_make(gpu_window_t *window, mpath_gpu_t *device, uint64_t unit_bytes, uint64_t bytes,
                        gpu_window_offer_t *offer)
{
    mpath_memory_t memory;
    void *address;

    memset(offer, 0, sizeof(*offer));
    window->device = device;
    if (unit_bytes == 0) {
        return;
    }
    bytes                  = (bytes + WINDOW_GRAIN_BYTES - 1) / WINDOW_GRAIN_BYTES * WINDOW_GRAIN_BYTES;
    window->memory         = window_alloc(window, bytes);
    window->memory_bytes   = bytes;
    address                = (void *)(uintptr_t)window->memory;
    offer->address         = window->memory;
    offer->unit_bytes      = unit_bytes;
    offer->multiprocessors = (uint64_t)mpath_gpu_info_of(device)->multiprocessors;
    offer->good            = (window->memory != 0) && (mpath_memory_classify(address, bytes, &memory) == MPATH_OK) &&
                  (mpath_export_make(address, bytes, &memory, &offer->memory) == MPATH_OK);
}

static int window_open(gpu_window_t *window)
{
    int good = 1;

    window->unit_bytes      = window->offers[0].unit_bytes;
    window->multiprocessors = (unsigned)window->offers[0].multiprocessors;
    for (int rank = 0; rank < window->size; rank++) {
        uint64_t unit = window->offers[rank].unit_bytes, count = window->offers[rank].multiprocessors;

        good                    = good && window->offers[rank].good;
        window->unit_bytes      = (unit < window->unit_bytes) ? unit : window->unit_bytes;
        window->multiprocessors = (count < window->multiprocessors) ? (unsigned)count : window->multiprocessors;
    }
    for (int rank = 0; good && (rank < window->size); rank++) {
        int peer = mpath_gpu_find(&window->offers[rank].memory.uuid);

        if (rank == window->me) {
            continue;
        }
        good = ((peer < 0) || mpath_gpu_can_reach(window->device, peer)) &&
               (mpath_import_get(&window->offers[rank].memory, window->device, &window->imports[rank]) == MPATH_OK);
        if (!good) {
            window->imports[rank] = NULL;
        }
    }
    return good;
}

/* Whether every rank works on a GPU of its own. */
static int window_is_alone(const gpu_window_t *window)
{
    for (int a = 0; a < window->size; a++) {
        for (int b = 0; b < a; b++) {
            if (memcmp(&window->offers[a].memory.uuid, &window->offers[b].memory.uuid, sizeof(mpath_device_uuid_t)) ==
                0) {
                return 0;
            }
        }
    }
    return 1;
}

uint64_t mpath_gpu_window_most(const gpu_window_t *window, const mpath_gpu_coll_t *coll, uint64_t wanted_bytes)
{
    uint64_t own = ((window != NULL) && (window->memory != 0)) ? window->memory_bytes : 0;

    return mpath_gpu_memory_share(coll->settings->gpu_device_bytes, wanted_bytes, own);
}

int mpath_gpu_window_is_current(const gpu_window_t *window, const mpath_gpu_coll_t *coll)
{
    for (int rank = 0; rank < window->size; rank++) {
        if (window->places[rank] != gpu_cell(coll, rank)->place) {
            return 0;
        }
    }
    return 1;
}

int mpath_gpu_window_is_due(const gpu_window_t *window, const mpath_gpu_coll_t *coll)
{
    return mpath_pause_is_over(&window->pause) || !mpath_gpu_window_is_current(window, coll);
}

void mpath_gpu_window_pass(gpu_window_t *window)
{
    (void)mpath_pause_passes(&window->pause);
}

/* Memory may be free later. What ranks cannot open, or GPUs that they share, stay so. */
static void set_pause(gpu_window_t *window)
{
    int had_memory = 1;

    for (int rank = 0; rank < window->size; rank++) {
        had_memory = had_memory && window->offers[rank].good;
    }
    mpath_pause_note(&window->pause, had_memory);
}

mpath_status_t mpath_gpu_window_share(gpu_window_t *window, const mpath_gpu_coll_t *coll, uint64_t unit_bytes,
                                      uint64_t memory_bytes)
{
    uint8_t good = 0, all[MPATH_KERNEL_REDUCE_RANKS];
    mpath_status_t status;
    gpu_window_offer_t mine;

    window->usable = 0;
    window->team   = coll->team;
    status         = mpath_team_allgather(coll->team, &good, sizeof(good), all); /* all kernels have ended */
    if (status != MPATH_OK) {
        return status;
    }
    window_release(window);
    window_make(window, coll->send.gpu, unit_bytes, memory_bytes, &mine);
    status = mpath_team_allgather(coll->team, &mine, sizeof(mine), window->offers);
    if (status != MPATH_OK) {
        return status;
    }
    good   = (uint8_t)window_open(window);
    status = mpath_team_allgather(coll->team, &good, sizeof(good), all);
    if (status != MPATH_OK) {
        return status;
    }
    window->usable = window_is_alone(window);
    for (int rank = 0; rank < window->size; rank++) {
        window->usable       = window->usable && all[rank];
        window->places[rank] = gpu_cell(coll, rank)->place;
    }
    if (!window->usable) {
        window_release(window);
    }
    set_pause(window);
    return MPATH_OK;
}

mpath_device_ptr_t mpath_gpu_window_address(const gpu_window_t *window, int rank)
{
    return (rank == window->me) ? window->memory
                                : mpath_import_address(window->imports[rank], window->offers[rank].address);
}
