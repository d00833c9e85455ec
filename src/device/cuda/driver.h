/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CUDA driver, libcuda.so.1, found at run time.
 *
 * A library that an application links may not start the driver: loading it costs memory and initialising it a fraction
 * of a second, also in processes that use no GPU. So mpath_gpu_driver() only looks whether the application has loaded
 * and initialised it (before that no pointer can be a device pointer), which costs about a tenth of a microsecond until
 * it has and a load afterwards. Tools that want to see the GPUs themselves call mpath_gpu_driver_start().
 *
 * Thread-safety: every function may be called by any thread.
 */
#ifndef MPATH_DEVICE_CUDA_DRIVER_H
#define MPATH_DEVICE_CUDA_DRIVER_H

#include "device/cuda/cuda_abi.h"
#include "device/device.h"
#include "util/log.h"

/* The functions; NULL while the application has not loaded and initialised the driver. Silent. */
const mpath_cu_t *mpath_gpu_driver(void);

/* For the table of cuda.c: as mpath_gpu_driver_start() and mpath_device_error_string(). */
mpath_status_t mpath_cuda_start(void);

const char *mpath_cuda_error_string(mpath_cu_result_t result);

#endif
