/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Windows: memory of each rank's GPU that the kernels of the other ranks write to. All ranks make and open them together,
 * and anew when a rank has turned to another GPU. Only where every rank works on a GPU of its own, so that their kernels
 * can run at once. Where some rank had no memory for one, windows are tried again after a while.
 */
#ifndef MPATH_NODE_WINDOW_H
#define MPATH_NODE_WINDOW_H

#include "node/node_private.h"

/* What a rank tells of its memory. */
typedef struct gpu_window_offer {
    uint64_t good;
    uint64_t address;
    uint64_t unit_bytes;
    uint64_t multiprocessors; /* of its GPU */
    mpath_export_t memory;
} gpu_window_offer_t;

typedef struct gpu_window {
    mpath_team_t *team; /* NULL until it was shared */
    int size, me;
    int usable;               /* the same on all ranks, as the next one */
    uint64_t unit_bytes;      /* of what the memory is divided into: the least that all have memory for */
    unsigned multiprocessors; /* of the GPU that has the fewest */
    mpath_gpu_t *device;      /* of this rank */
    mpath_device_ptr_t memory;
    uint64_t memory_bytes;
    gpu_window_offer_t *offers; /* [size] */
    mpath_import_t **imports;   /* [size] */
    uint32_t *places;           /* [size] as the ranks' cells said */
    mpath_pause_t pause;        /* the same on all ranks */
} gpu_window_t;

/* NULL: no memory. */
gpu_window_t *mpath_gpu_window_create(int size, int me);
/* Before its team. Where the team is broken, this rank's window is never freed. */
void mpath_gpu_window_destroy(gpu_window_t *window);

/* How much of so many bytes this rank's window may have, by what the process has taken already. `window` may be NULL: it is new. */
uint64_t mpath_gpu_window_most(const gpu_window_t *window, const mpath_gpu_coll_t *coll, uint64_t wanted_bytes);

/* Whether it was shared, with the GPUs that the ranks use in this call. The same on all ranks. */
int mpath_gpu_window_is_current(const gpu_window_t *window, const mpath_gpu_coll_t *coll);

/*
 * Whether a call that wants it is to share it: with other GPUs than before, or again. If not, mpath_gpu_window_pass()
 * counts the call. The same on all ranks, where the same of their calls are counted.
 */
int mpath_gpu_window_is_due(const gpu_window_t *window, const mpath_gpu_coll_t *coll);
void mpath_gpu_window_pass(gpu_window_t *window);

/*
 * Collective, in a call that all ranks can take part in; no kernel of this rank that writes to the memory is under way.
 * This rank's window has `memory_bytes`, zeroed, enough for units of `unit_bytes` (0: it has none).
 */
mpath_status_t mpath_gpu_window_share(gpu_window_t *window, const mpath_gpu_coll_t *coll, uint64_t unit_bytes,
                                      uint64_t memory_bytes);

/* A rank's memory, as this process addresses it. */
mpath_device_ptr_t mpath_gpu_window_address(const gpu_window_t *window, int rank);

#endif
