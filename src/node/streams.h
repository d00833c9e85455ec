/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams that the collectives on device memory of all communicators share: two for each communicator, which take turns.
 * Sharing costs nothing but parallelism: no work on them waits for another rank, but for reductions by writes, of which a
 * process has one at a time (mpath_gpu_coll_claim()), and for staged copies by streams, which wait only for what is under
 * way (node/staged.h).
 */
#ifndef MPATH_NODE_STREAMS_H
#define MPATH_NODE_STREAMS_H

#include "node/staged.h"

/* The first of the two of a new communicator. */
unsigned mpath_gpu_coll_streams(void);

/*
 * One at a time uses them. Nothing waits for other ranks under the lock, nor, for those that have yet to come, on the
 * streams but for node/reduce.c.
 */
void mpath_gpu_coll_lock(void);
void mpath_gpu_coll_unlock(void);

/*
 * One call of the process at a time may wait for other ranks on the device: on streams that communicators share, two could
 * wait for each other. Claims that for the coming call, where *claimed is 0, and sets it; whoever cannot have it tells so
 * in its cell, and nobody waits on the device then. Meanwhile staged copies of other calls do not, either.
 */
void mpath_gpu_coll_claim(int *claimed);
void mpath_gpu_coll_release(int *claimed);

/* Of the staged copies of a communicator with this claim. */
mpath_staged_guard_t mpath_gpu_coll_guard(const int *claimed);

#endif
