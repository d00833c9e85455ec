/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What mpath takes of this process's GPUs: multiprocessors, by the launches of its kernels, and device memory, by its
 * own allocations. What the driver keeps for a context, a module or a mapping of other ranks' memory is not in it. Any
 * thread.
 */
#ifndef MPATH_GPU_USAGE_H
#define MPATH_GPU_USAGE_H

#include "gpu/device.h"

#include <stddef.h>
#include <stdint.h>

typedef struct mpath_gpu_usage {
    uint64_t launches;     /* of kernels so far, those of graphs included; copy engines need none */
    uint64_t ctas;         /* of all of them */
    uint64_t memory_bytes; /* of device memory that are allocated now */
} mpath_gpu_usage_t;

void mpath_gpu_usage(mpath_gpu_usage_t *usage);

/* A kernel has been enqueued. */
void mpath_gpu_usage_launch(unsigned ctas);

/* As cuMemAlloc() in the context that the caller has entered. */
mpath_cu_result_t mpath_gpu_memory_take(mpath_cu_ptr_t *address_p, size_t bytes);
/* The same, filled with zeros. Also while the application captures a stream, unlike cuCtxSynchronize(). */
mpath_cu_result_t mpath_gpu_memory_take_zeroed(mpath_cu_ptr_t *address_p, size_t bytes);
/* Frees what was taken in this GPU's context; that of a lost one has gone with it. Address 0: there is nothing. */
void mpath_gpu_memory_give(mpath_gpu_t *gpu, mpath_cu_ptr_t address, size_t bytes);

#endif
