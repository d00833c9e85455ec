/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels that have been launched lately, and those that are launched again and again: see allreduce_gpu_launch.c. */
#ifndef MPATH_COLL_GPU_LAUNCHES_H
#define MPATH_COLL_GPU_LAUNCHES_H

#include "gpu/stream.h"

#include <stddef.h>
#include <stdint.h>

typedef struct gpu_launches gpu_launches_t;

gpu_launches_t *mpath_gpu_launches_create(void); /* NULL: no memory */
void mpath_gpu_launches_destroy(gpu_launches_t *launches);

/* A kernel that is started before the agreement. */
typedef struct gpu_eager_launch {
    mpath_cu_function_t function;
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
