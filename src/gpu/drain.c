/* SPDX-License-Identifier: BSD-3-Clause */
/* See drain.h. */
#include "gpu/drain.h"
#include "gpu/private.h"

mpath_status_t mpath_gpu_drain(mpath_gpu_t *gpu)
{
    mpath_cu_result_t result;
    mpath_status_t status = mpath_gpu_enter(gpu);

    if (status != MPATH_OK) {
        return status;
    }
    result = mpath_gpu_driver()->CtxSynchronize();
    mpath_gpu_leave(gpu);
    if (result != MPATH_CU_SUCCESS) {
        mpath_error("waiting for the work on GPU %d failed: %s; the call fails", gpu->info.ordinal,
                    mpath_cu_error_string(result));
        return mpath_cu_status(result);
    }
    return MPATH_OK;
}

/* Makes an object for a primary context that the application has begun; none for others. */
static mpath_status_t know_primary(const mpath_cu_t *cu, int ordinal)
{
    mpath_cu_device_t device;
    mpath_gpu_t *gpu;
    unsigned flags;
    int active = 0;

    if ((cu->DeviceGet(&device, ordinal) != MPATH_CU_SUCCESS) ||
        (cu->DevicePrimaryCtxGetState(device, &flags, &active) != MPATH_CU_SUCCESS) || !active) {
        return MPATH_OK;
    }
    return mpath_gpu_get(ordinal, NULL, &gpu);
}

mpath_status_t mpath_gpu_drain_all(void)
{
    const mpath_cu_t *cu  = mpath_gpu_driver();
    mpath_status_t status = MPATH_OK;
    mpath_gpu_t *gpu;

    if (cu == NULL) {
        return MPATH_OK;
    }
    mpath_gpu_notice_lost();
    for (int ordinal = 0, count = mpath_gpu_count(); (ordinal < count) && (status == MPATH_OK); ordinal++) {
        status = know_primary(cu, ordinal);
    }
    (void)mpath_gpu_current(&gpu);
    for (gpu = mpath_gpu_next(NULL); (gpu != NULL) && (status == MPATH_OK); gpu = mpath_gpu_next(gpu)) {
        status = mpath_gpu_drain(gpu);
    }
    return status;
}
