/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams that the collectives on device memory of all communicators share: two for each communicator, which take
 * turns. Sharing costs nothing but parallelism: no work on them waits for another rank, but for reductions by writes, of
 * which a process has one at a time (mpath_gpu_coll_claim()), and for staged copies by streams, which wait only for what
 * is under way (lane/staged.h).
 */
#ifndef MPATH_COLL_GPU_STREAMS_H
#define MPATH_COLL_GPU_STREAMS_H

#include <pthread.h>

/* The first of the two of a new communicator. */
unsigned mpath_gpu_coll_streams(void);

/*
 * One at a time uses them. Nothing waits for other ranks under the lock, nor, for those that have yet to come, on the
 * streams but for allreduce_gpu_writes.c.
 */
void mpath_gpu_coll_lock(void);
void mpath_gpu_coll_unlock(void);
pthread_mutex_t *mpath_gpu_coll_mutex(void);

#endif
