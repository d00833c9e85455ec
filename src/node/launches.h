/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Launches: of kernels that reduce, where there are any, and of those that are started before the agreement. An
 * application mostly works on the same buffers again: a launch with the arguments of an earlier one becomes a repeat
 * (device/graph.h), which is cheaper to start.
 */
#ifndef MPATH_NODE_LAUNCHES_H
#define MPATH_NODE_LAUNCHES_H

#include "device/kernels/reduce.h"
#include "device/stream.h"
#include "node/board.h"
#include "team/call.h"

#include <stddef.h>
#include <stdint.h>

typedef struct gpu_launches gpu_launches_t;

gpu_launches_t *mpath_gpu_launches_create(void); /* NULL: no memory */
void mpath_gpu_launches_destroy(gpu_launches_t *launches);

/*
 * This rank's GPU, if it can work on the buffers and has a kernel for that, which others may count
 * on from then on; else NULL. A launch: the rank's word kernel_done gets the number of the call at the end. Elements,
 * sources and targets of the arguments are set and the rest is zero.
 */
mpath_gpu_t *mpath_gpu_launches_gpu(gpu_launches_t *launches, const mpath_symmetric_buffers_t *buffers,
                                    const mpath_reduce_how_t *how);

/* A kernel that reduces. */
typedef struct gpu_reduce_launch {
    mpath_gpu_t *gpu;
    mpath_board_t *board;
    int me;
    uint64_t number; /* of the call */
    mpath_kernel_reduce_t *arguments;
} gpu_reduce_launch_t;

mpath_status_t mpath_gpu_launches_start(gpu_launches_t *launches, mpath_stream_t *stream, const mpath_reduce_how_t *how,
                                        const gpu_reduce_launch_t *launch);

/* A kernel that is started before the agreement. */
typedef struct gpu_eager_launch {
    mpath_device_function_t function;
    void *arguments; /* begin with the number of the call, 0 here; are compared as bytes */
    size_t bytes;
    unsigned ctas;
    uint64_t number; /* of the call */
    int follows;     /* the GPU's counters have the number before */
    int once;        /* nothing like it will come again */
} gpu_eager_launch_t;

/* Changes the arguments' number. */
mpath_status_t mpath_gpu_launches_start_eager(gpu_launches_t *launches, mpath_stream_t *stream,
                                              const gpu_eager_launch_t *launch);

#endif
