/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host memory that GPUs reach: flags that kernels and streams write and wait for, buffers of staged copies. Registered
 * once for all devices and contexts (portable); each process registers its own mapping of a shared memory segment.
 */
#ifndef MPATH_DEVICE_PINNED_H
#define MPATH_DEVICE_PINNED_H

#include "device/gpu.h"

typedef struct mpath_pinned {
    void *base;
    size_t bytes;
    mpath_device_ptr_t device_base; /* the same bytes as devices address them */
    mpath_gpu_t *gpu;               /* whose context registered it */
    int owned;                      /* memory of mpath_pinned_alloc() */
} mpath_pinned_t;

/* Registers memory that exists; `base` at the start of a page. Errors are logged. */
mpath_status_t mpath_pinned_register(mpath_gpu_t *gpu, void *base, size_t bytes, mpath_pinned_t *pinned);
/* Allocates zeroed memory of this process and registers it. */
mpath_status_t mpath_pinned_alloc(mpath_gpu_t *gpu, size_t bytes, mpath_pinned_t *pinned);
/* Ends either; no copy may use it any more. A zeroed struct is left alone. */
void mpath_pinned_release(mpath_pinned_t *pinned);
/* The same where the GPU that registered it is lost (device/gpu.h): to be registered anew then. */
void mpath_pinned_release_lost(mpath_pinned_t *pinned);

/*
 * Memory of at least `bytes` bytes for short use, mostly of an earlier one; the contents are undefined. Of what
 * is given back the 8 longest are kept until mpath_gpu_cleanup(), 32 MiB at most. MPATH_ERR_UNSUPPORTED, silent, for
 * more than can be had, and for a while (util/pause.h) after registering has failed, which is logged. By any thread.
 */
#define MPATH_PINNED_TAKE_MAX (UINT64_C(4) << 20) /* and a few bytes more */
mpath_status_t mpath_pinned_take(mpath_gpu_t *gpu, size_t bytes, mpath_pinned_t *pinned);
void mpath_pinned_give(mpath_pinned_t *pinned);

/* Device address of a host address inside. */
static inline mpath_device_ptr_t mpath_pinned_device(const mpath_pinned_t *pinned, const volatile void *address)
{
    return pinned->device_base + (mpath_device_ptr_t)((const volatile char *)address - (const char *)pinned->base);
}

/* For mpath_gpu_cleanup(). */
void mpath_pinned_cleanup(void);

#endif
