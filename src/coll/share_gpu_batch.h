/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Launches of a GPU's step that belong together, for the files share_gpu*.c only: what follows the piece before it, in
 * all buffers alike, goes with it in one. The streams' lock is held from begin to end.
 */
#ifndef MPATH_COLL_SHARE_GPU_BATCH_H
#define MPATH_COLL_SHARE_GPU_BATCH_H

#include "coll/share_gpu.h"

typedef struct share_batch {
    mpath_share_t *share;
    mpath_stream_t *stream;
    int copies; /* one source, of whatever type: bytes are copied */
    uint64_t bytes;
    mpath_kernel_reduce_t next;
    int launched;
    mpath_status_t status;
} share_batch_t;

/* The functions that copy, on the device of the call: looking for a name costs more than a launch. */
mpath_status_t mpath_share_batch_find(share_gpu_t *gpu);

void mpath_share_batch_begin(mpath_share_t *share, mpath_stream_t *stream, int copies, share_batch_t *batch);
/* `piece` has sources and targets, as many as all pieces of the batch. */
void mpath_share_batch_add(share_batch_t *batch, const mpath_kernel_reduce_t *piece, uint64_t bytes);
/* The mark of the end; 0, which is always done, when there was nothing to do. */
mpath_status_t mpath_share_batch_end(share_batch_t *batch, mpath_mark_t *mark_p);

#endif
