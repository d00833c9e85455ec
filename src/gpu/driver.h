/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CUDA driver, libcuda.so.1, found at run time.
 *
 * A library that an application links may not start the driver: loading it costs memory and initialising it a fraction
 * of a second, also in processes that use no GPU. So mpath_gpu_driver() only looks whether the application has loaded
 * and initialised it (before that no pointer can be a device pointer), which costs about a tenth of a microsecond until
 * it has and a load afterwards. Tools that want to see the GPUs themselves call mpath_gpu_driver_start().
 *
 * Thread-safety: every function may be called by any thread. After fork(), the child must not use the driver (CUDA's
 * rule).
 */
#ifndef MPATH_GPU_DRIVER_H
#define MPATH_GPU_DRIVER_H

#include "gpu/cuda_abi.h"
#include "util/log.h"
#include "util/status.h"

/* The functions; NULL while the application has not loaded and initialised the driver. Silent. */
const mpath_cu_t *mpath_gpu_driver(void);

/*
 * Loads and initialises the driver. MPATH_ERR_UNSUPPORTED, without a message: no driver or no device on this machine;
 * MPATH_ERR_IO, logged: there is one that fails.
 */
mpath_status_t mpath_gpu_driver_start(void);

static inline int mpath_gpu_available(void)
{
    return mpath_gpu_driver() != NULL;
}

/* Static text of a driver error: "CUDA_ERROR_INVALID_VALUE (invalid argument)". */
const char *mpath_cu_error_string(mpath_cu_result_t result);

/* MPATH_ERR_NO_MEMORY, MPATH_ERR_UNSUPPORTED or MPATH_ERR_IO. */
mpath_status_t mpath_cu_status(mpath_cu_result_t result);

#endif
