/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reductions of large vectors over several GPUs, each with a kernel that waits for those of the others: the exception
 * to "nothing on a stream waits for other ranks". They must run at once: each on a GPU of its own, one of a process at
 * a time.
 */
#ifndef MPATH_GPU_REDUCE_WRITES_H
#define MPATH_GPU_REDUCE_WRITES_H

#include "gpu/reduce.h"
#include "gpu/reduce_writes_args.h"

/* Whether there is such a kernel; the same in all processes. */
int mpath_writes_fits(const mpath_reduce_how_t *how);

/* Whether all CTAs run at once on this GPU. */
int mpath_writes_usable(const mpath_gpu_t *gpu);

/* How many CTAs a ring has on GPUs of so many multiprocessors: one on each, which leaves room for other kernels. */
unsigned mpath_ring_ctas(unsigned multiprocessors);

/* Bytes of the tiles of a ring, of which the longest part has `part_bytes`: equal turns. `most`: as there is memory. */
uint64_t mpath_ring_tile(uint64_t part_bytes, unsigned ctas, uint64_t most);

/* As mpath_reduce_find(). `how` fits. */
mpath_status_t mpath_writes_find(mpath_gpu_t *gpu, const mpath_reduce_how_t *how, mpath_pause_t *pause,
                                 mpath_cu_function_t *function_p);
mpath_status_t mpath_ring_find(mpath_gpu_t *gpu, const mpath_reduce_how_t *how, mpath_pause_t *pause,
                               mpath_cu_function_t *function_p);

/*
 * Enqueues. The caller has set all but control and flags; `flag` is written when this rank's part is everywhere. A
 * kernel that has given up writes no flag, and its stream goes on: others may have work on it.
 */
mpath_status_t mpath_launch_writes(mpath_stream_t *stream, mpath_cu_function_t function, mpath_kernel_word_t flag,
                                   mpath_kernel_writes_t *arguments);

/* The same round a ring, with as many CTAs on all ranks. */
mpath_status_t mpath_launch_ring(mpath_stream_t *stream, mpath_cu_function_t function, unsigned ctas,
                                 mpath_kernel_word_t flag, mpath_kernel_writes_t *arguments);

#endif
