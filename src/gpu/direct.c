/* SPDX-License-Identifier: BSD-3-Clause */
/* GPUDirect RDMA: the order of a NIC's writes and the GPU's work, as the driver tells of it. */
#include "gpu/direct.h"

#include "util/log.h"

mpath_status_t mpath_gpu_needs_flush(const mpath_gpu_t *gpu, int *needs_p)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    int supported = 0, order = MPATH_CU_RDMA_ORDER_NONE, options = 0;
    mpath_cu_device_t device;

    if ((cu == NULL) || (cu->DeviceGet(&device, mpath_gpu_info_of(gpu)->ordinal) != MPATH_CU_SUCCESS)) {
        return MPATH_ERR_UNSUPPORTED;
    }
    if ((cu->DeviceGetAttribute(&supported, MPATH_CU_DEV_RDMA, device) != MPATH_CU_SUCCESS) || !supported ||
        ((cu->DeviceGetAttribute(&order, MPATH_CU_DEV_RDMA_ORDER, device) == MPATH_CU_SUCCESS) &&
         (order >= MPATH_CU_RDMA_ORDER_OWNER))) {
        *needs_p = 0;
        return MPATH_OK;
    }
    if ((cu->FlushGPUDirectRDMAWrites == NULL) ||
        (cu->DeviceGetAttribute(&options, MPATH_CU_DEV_RDMA_FLUSH, device) != MPATH_CU_SUCCESS) ||
        !(options & MPATH_CU_RDMA_FLUSH_BY_HOST)) {
        return MPATH_ERR_UNSUPPORTED;
    }
    *needs_p = 1;
    return MPATH_OK;
}

mpath_status_t mpath_gpu_flush_writes(mpath_gpu_t *gpu)
{
    const mpath_cu_t *cu  = mpath_gpu_driver();
    mpath_status_t status = mpath_gpu_enter(gpu);
    mpath_cu_result_t result;

    if (status != MPATH_OK) {
        return status;
    }
    result = cu->FlushGPUDirectRDMAWrites(MPATH_CU_RDMA_FLUSH_CURRENT, MPATH_CU_RDMA_FLUSH_TO_OWNER);
    mpath_gpu_leave(gpu);
    if (result != MPATH_CU_SUCCESS) {
        mpath_error("GPU %d: what a NIC has written cannot be flushed: %s; the call fails",
                    mpath_gpu_info_of(gpu)->ordinal, mpath_cu_error_string(result));
        return mpath_cu_status(result);
    }
    return MPATH_OK;
}
