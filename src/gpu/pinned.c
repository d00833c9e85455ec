/* SPDX-License-Identifier: BSD-3-Clause */
/* Host memory registered with the driver. */
#include "gpu/pinned.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

mpath_status_t mpath_pinned_register(mpath_gpu_t *gpu, void *base, size_t bytes, mpath_pinned_t *pinned)
{
    const mpath_cu_t *cu  = mpath_gpu_driver();
    mpath_pinned_t made   = {.base = base, .bytes = bytes, .gpu = gpu};
    const char *call      = "cuMemHostRegister";
    mpath_status_t status = mpath_gpu_enter(gpu);
    mpath_cu_result_t result;

    if (status != MPATH_OK) {
        return status;
    }
    result = cu->MemHostRegister(base, bytes, MPATH_CU_HOST_REGISTER_PORTABLE | MPATH_CU_HOST_REGISTER_DEVICEMAP);
    if (result != MPATH_CU_SUCCESS) {
        goto err_leave;
    }
    call   = "cuMemHostGetDevicePointer";
    result = cu->MemHostGetDevicePointer(&made.device_base, base, 0);
    if (result != MPATH_CU_SUCCESS) {
        cu->MemHostUnregister(base);
        goto err_leave;
    }
    mpath_gpu_leave(gpu);
    *pinned = made;
    return MPATH_OK;

err_leave:
    mpath_gpu_leave(gpu);
    mpath_error("%zu bytes of host memory cannot be made known to GPU %d: %s: %s; is the limit of locked memory "
                "(ulimit -l) high enough?",
                bytes, mpath_gpu_info_of(gpu)->ordinal, call, mpath_cu_error_string(result));
    return mpath_cu_status(result);
}

mpath_status_t mpath_pinned_alloc(mpath_gpu_t *gpu, size_t bytes, mpath_pinned_t *pinned)
{
    mpath_status_t status;
    void *base;

    base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
        mpath_error("%zu bytes of host memory for GPU %d cannot be had: %s", bytes, mpath_gpu_info_of(gpu)->ordinal,
                    strerror(errno));
        return MPATH_ERR_NO_MEMORY;
    }
    status = mpath_pinned_register(gpu, base, bytes, pinned);
    if (status != MPATH_OK) {
        munmap(base, bytes);
        return status;
    }
    pinned->owned = 1;
    return MPATH_OK;
}

void mpath_pinned_release(mpath_pinned_t *pinned)
{
    const mpath_cu_t *cu = mpath_gpu_driver();

    if (pinned->base == NULL) {
        return;
    }
    if ((cu != NULL) && (mpath_gpu_enter(pinned->gpu) == MPATH_OK)) {
        cu->MemHostUnregister(pinned->base);
        mpath_gpu_leave(pinned->gpu);
    }
    if (pinned->owned) {
        munmap(pinned->base, pinned->bytes);
    }
    memset(pinned, 0, sizeof(*pinned));
}

void mpath_pinned_release_lost(mpath_pinned_t *pinned)
{
    if ((pinned->base != NULL) && mpath_gpu_is_lost(pinned->gpu)) {
        mpath_pinned_release(pinned);
    }
}
