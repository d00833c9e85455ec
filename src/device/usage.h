/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What mpath takes of this process's GPUs: multiprocessors, by the launches of its kernels, and device memory, by its
 * own allocations. What the driver keeps for a context, a module or a mapping of other ranks' memory is not in it. And
 * what it pins of the host's memory for slots. Any thread.
 *
 * Both have a limit that all communicators of the process share. One that wants much gets at most half of what is left,
 * so that there is something for others. Who gets less, or nothing, does with less or takes another algorithm, which the ranks
 * of the communicator agree on: that of the others may have more.
 */
#ifndef MPATH_DEVICE_USAGE_H
#define MPATH_DEVICE_USAGE_H

#include "device/gpu.h"

#include <stddef.h>
#include <stdint.h>

typedef struct mpath_gpu_usage {
    uint64_t launches;     /* of kernels so far, those of graphs included; copy engines need none */
    uint64_t ctas;         /* of all of them */
    uint64_t memory_bytes; /* of device memory that are allocated now */
    uint64_t pinned_bytes; /* of host memory for slots; this process's part where several share it */
} mpath_gpu_usage_t;

void mpath_gpu_usage(mpath_gpu_usage_t *usage);

/* A kernel has been enqueued. */
void mpath_gpu_usage_launch(unsigned ctas);

/* As cuMemAlloc() in the context that the caller has entered. */
mpath_device_result_t mpath_gpu_memory_take(mpath_device_ptr_t *address_p, size_t bytes);
/* As mpath_gpu_memory_take() where no more than the limit is held then; else MPATH_DEVICE_NO_MEMORY. */
mpath_device_result_t mpath_gpu_memory_take_within(uint64_t limit_bytes, mpath_device_ptr_t *address_p, size_t bytes);
/* The same, filled with zeros. Also while the application captures a stream, unlike cuCtxSynchronize(). */
mpath_device_result_t mpath_gpu_memory_take_zeroed(uint64_t limit_bytes, mpath_device_ptr_t *address_p, size_t bytes);
/*
 * What may be taken of `wanted_bytes`, where the caller gives `own_bytes` back before: all, or half of what is left, in
 * whole blocks of the driver (2 MiB).
 */
uint64_t mpath_gpu_memory_share(uint64_t limit_bytes, uint64_t wanted_bytes, uint64_t own_bytes);

/* Frees what was taken in this GPU's context; that of a lost one has gone with it. Address 0: there is nothing. */
void mpath_gpu_memory_give(mpath_gpu_t *gpu, mpath_device_ptr_t address, size_t bytes);

/* The same for host memory, which the caller allocates and pins. */
uint64_t mpath_pins_share(uint64_t limit_bytes, uint64_t wanted_bytes);
/* Nonzero: it is noted, and the limit holds. */
int mpath_pins_take(uint64_t limit_bytes, uint64_t bytes);
void mpath_pins_give(uint64_t bytes);

#endif
