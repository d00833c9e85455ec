/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that each rank of a communicator lends the others on its GPU, for kernels that write to each other: made and
 * opened by all together, and anew when a rank has turned to another GPU. Only where every rank works on a GPU of its
 * own, so that their kernels can run at once. Where some rank had none to lend, it is asked for again after a while.
 */
#ifndef MPATH_NODE_SCRATCH_H
#define MPATH_NODE_SCRATCH_H

#include "node/node_private.h"

/* What a rank tells of its memory. */
typedef struct gpu_lent_offer {
    uint64_t good;
    uint64_t address;
    uint64_t unit_bytes;
    uint64_t multiprocessors; /* of its GPU */
    mpath_export_t memory;
} gpu_lent_offer_t;

typedef struct gpu_lent {
    mpath_team_t *team; /* NULL until it was shared */
    int size, me;
    int usable;               /* the same on all ranks, as the next one */
    uint64_t unit_bytes;      /* of what the memory is divided into: the least for which all have room */
    unsigned multiprocessors; /* of the GPU that has the fewest */
    mpath_gpu_t *device;      /* of this rank */
    mpath_device_ptr_t memory;
    uint64_t memory_bytes;
    gpu_lent_offer_t *offers; /* [size] */
    mpath_import_t **imports; /* [size] */
    uint32_t *places;         /* [size] as the ranks' cells said */
    mpath_pause_t pause;      /* the same on all ranks */
} gpu_lent_t;

/* NULL: no memory. */
gpu_lent_t *mpath_gpu_lent_create(int size, int me);
/* Before its team. Where the team is broken, this rank's memory stays lent for good. */
void mpath_gpu_lent_destroy(gpu_lent_t *lent);

/* Bytes that this rank may lend of so many, by what the process has taken already. `lent` may be NULL: it is new. */
uint64_t mpath_gpu_lent_most(const gpu_lent_t *lent, const mpath_gpu_coll_t *coll, uint64_t wanted_bytes);

/* Whether it was shared, with the GPUs that the ranks use in this call. The same on all ranks. */
int mpath_gpu_lent_is_current(const gpu_lent_t *lent, const mpath_gpu_coll_t *coll);

/*
 * Whether a call that wants it is to share it: with other GPUs than before, or again. If not, mpath_gpu_lent_pass()
 * counts the call. The same on all ranks, where the same of their calls are counted.
 */
int mpath_gpu_lent_is_due(const gpu_lent_t *lent, const mpath_gpu_coll_t *coll);
void mpath_gpu_lent_pass(gpu_lent_t *lent);

/*
 * Collective, in a call that all ranks can take part in; no kernel of this rank that writes to the memory is under way.
 * This rank lends `memory_bytes`, which have room for units of `unit_bytes` (0: it lends none), zeroed.
 */
mpath_status_t mpath_gpu_lent_share(gpu_lent_t *lent, const mpath_gpu_coll_t *coll, uint64_t unit_bytes,
                                    uint64_t memory_bytes);

/* A rank's memory, as this process addresses it. */
mpath_device_ptr_t mpath_gpu_lent_address(const gpu_lent_t *lent, int rank);

#endif
