/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Short messages between several GPUs, sent by each before it is known that the others have come: a kernel writes its
 * rank's messages to memory that the receivers have lent, waits a bounded time for those of the others and puts them
 * in their places. As fast as a launch and a trip over the link are.
 */
#ifndef MPATH_DEVICE_KERNELS_EXCHANGE_H
#define MPATH_DEVICE_KERNELS_EXCHANGE_H

#include "device/kernels/exchange_args.h"
#include "device/kernels/copy.h"

/* As mpath_kernel_find() without a pause. */
mpath_status_t mpath_exchange_find(mpath_gpu_t *gpu, mpath_device_function_t *function_p);

/* Sets the messages' ends; the rest of them is there. Returns the CTAs of the launch, each of which writes a word. */
unsigned mpath_exchange_count(mpath_kernel_exchange_t *arguments);

#endif
