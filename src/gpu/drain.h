/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting for all work that the application has under way on GPUs (parameter sync). */
#ifndef MPATH_GPU_DRAIN_H
#define MPATH_GPU_DRAIN_H

#include "gpu/device.h"

/* In one context. Errors are logged. */
mpath_status_t mpath_gpu_drain(mpath_gpu_t *gpu);

/*
 * In all contexts of this process that can be known: those that are primary, those of its buffers so far, and the
 * caller's current one. For memory of the host: any GPU may be writing it.
 */
mpath_status_t mpath_gpu_drain_all(void);

#endif
