/* SPDX-License-Identifier: BSD-3-Clause */
/* What calls on device memory of a node have shown: the machine, the exchange, the file. */
#include "node/history.h"

#include "device/device.h"
#include "node/node_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* FNV-1a, 64 bits. */
static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t length)
{
    const unsigned char *byte = bytes;

    for (; length > 0; length--, byte++) {
        hash = (hash ^ *byte) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static int compare(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(mpath_device_uuid_t));
}

/* The same on all ranks: all have published their buffers. */
static uint64_t machine_of(const mpath_gpu_coll_t *gpu)
{
    const mpath_device_ops_t *device = mpath_device();
    const uint64_t port_bps          = 0; /* histories may be of a time when ports were emulated: these are not read */
    mpath_device_uuid_t uuids[MPATH_ORDER_MAX_RANKS];
    uint64_t hash  = UINT64_C(0xcbf29ce484222325);
    int32_t driver = 0;

    memset(uuids, 0, sizeof(uuids));
    for (int rank = 0; rank < gpu->size; rank++) {
        const mpath_board_side_t *sides = gpu_cell(gpu, rank)->sides;
        const mpath_board_side_t
            *side = &sides[(sides[MPATH_BOARD_SEND].device >= 0) ? MPATH_BOARD_SEND : MPATH_BOARD_RECV];

        if (side->device >= 0) { /* none: host memory */
            uuids[rank] = side->memory.uuid;
        }
    }
    qsort(uuids, (size_t)gpu->size, sizeof(uuids[0]), compare);
    if ((device == NULL) || (device->driver_version(&driver) != MPATH_DEVICE_DONE)) {
        driver = 0;
    }
    hash = hash_bytes(hash, &driver, sizeof(driver));
    hash = hash_bytes(hash, &port_bps, sizeof(port_bps));
    return hash_bytes(hash, uuids, (size_t)gpu->size * sizeof(uuids[0]));
}

static mpath_history_key_t key_of(const mpath_gpu_coll_t *gpu, mpath_history_kind_t kind, const char *operation,
                                  int size_class)
{
    mpath_history_key_t key = {.machine = machine_of(gpu), .kind = kind, .size_class = size_class};

    snprintf(key.operation, sizeof(key.operation), "%s", operation);
    return key;
}

/* Rank 0 reads and writes. */
static const char *file_of(const mpath_gpu_coll_t *gpu)
{
    const char *path = gpu->settings->adapt_file;

    return ((gpu->me == 0) && (path[0] != '\0')) ? path : NULL;
}

mpath_status_t mpath_gpu_history_take(const mpath_gpu_coll_t *gpu, mpath_history_kind_t kind, const char *operation,
                                      int size_class, mpath_learned_t *learned_p)
{
    const mpath_history_key_t key = key_of(gpu, kind, operation, size_class);

    *learned_p = (mpath_learned_t){.learned_ns = 0};
    if (gpu->settings->adapt == MPATH_ADAPT_OFF) {
        return MPATH_OK;
    }
    if (file_of(gpu) != NULL) {
        mpath_history_look(file_of(gpu), key.machine);
    }
    *learned_p = mpath_history_of(&key);
    return mpath_history_agree(gpu->team, learned_p, 1);
}

void mpath_gpu_history_note(const mpath_gpu_coll_t *gpu, mpath_history_kind_t kind, const char *operation,
                            int size_class, uint64_t value)
{
    mpath_history_line_t line     = {.key = key_of(gpu, kind, operation, size_class), .value = value};
    const mpath_learned_t learned = {.learned_ns = mpath_history_now(), .value = value};
    const mpath_learned_t before  = mpath_history_of(&line.key);

    if (gpu->settings->adapt == MPATH_ADAPT_OFF) {
        return;
    }
    (void)mpath_history_note(&line.key, &learned);
    if ((file_of(gpu) != NULL) && ((before.learned_ns == 0) || (before.value != value))) {
        (void)mpath_history_put(file_of(gpu), &line, 1);
    }
}
