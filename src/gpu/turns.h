/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPUs on which several processes work without CUDA MPS. The driver gives the engine for kernels to one process at a
 * time: two that launch a kernel each wait 145 us for every change (H100 and H200, whatever the kernels do).
 * That engine also does copies within the GPU, and copies of less than 32 KiB to it, whose bytes the driver sends with
 * its commands. Copies to the host, longer ones from pinned memory of it, and short ones in rows go by engines of their
 * own, which need no turn: 11 to 16 us with two processes, 14 to 23 with four (H100).
 */
#ifndef MPATH_GPU_TURNS_H
#define MPATH_GPU_TURNS_H

#include "gpu/device.h"

#include <stddef.h>

/* Shorter copies to the GPU are sent with commands. */
#define MPATH_GPU_COMMAND_BYTES (UINT64_C(32) << 10)

/* Of each process that works on the GPU: how long the others wait for it. */
#define MPATH_GPU_TURN_NS 145000u

/* Another process is known to work on the GPU, and they take turns. It stays so. */
void mpath_gpu_set_turns(mpath_gpu_t *gpu);
int mpath_gpu_takes_turns(const mpath_gpu_t *gpu);

/*
 * How long a copy took that may have needed a turn, from the call until it was done. Who has not been told of others
 * supposes them after a few that took as long as a turn, one after the other: nothing is lost by it but some
 * microseconds of each such copy.
 */
void mpath_gpu_note_copy(mpath_gpu_t *gpu, uint64_t took_ns);

/* Enqueues a copy from pinned memory of the host to the GPU, which has been entered: no turn but for a single byte. */
mpath_cu_result_t mpath_gpu_copy_without_turn(mpath_cu_ptr_t target, const void *source, size_t bytes,
                                              mpath_cu_stream_t stream);

#endif
