/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPUDirect RDMA: memory of a GPU that a NIC reads and writes itself. A NIC's writes may still be on their way when its
 * completion is seen by the processor (CUDA driver API, cuFlushGPUDirectRDMAWrites); on GPUs that do not keep that
 * order themselves a flush has to come before the first work that reads them.
 */
#ifndef MPATH_GPU_DIRECT_H
#define MPATH_GPU_DIRECT_H

#include "gpu/device.h"

/*
 * Whether this GPU needs mpath_gpu_flush_writes(); one whose memory NICs cannot reach does not. MPATH_ERR_UNSUPPORTED,
 * silent: it would, and the driver has none.
 */
mpath_status_t mpath_gpu_needs_flush(const mpath_gpu_t *gpu, int *needs_p);

/* What NICs have written, as far as their completions were seen, is seen by work that is enqueued from now on. */
mpath_status_t mpath_gpu_flush_writes(mpath_gpu_t *gpu);

#endif
