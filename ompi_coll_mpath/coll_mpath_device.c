/* SPDX-License-Identifier: BSD-3-Clause */
/* Device buffers at the border to MPI: where they lie, and their copies in host memory. */
#include "coll_mpath_device.h"

#include <string.h>

/* Widens [low, high) by a range. */
static void span_add(ptrdiff_t from, ptrdiff_t to, ptrdiff_t *low_p, ptrdiff_t *high_p)
{
    if (*low_p == *high_p) {
        *low_p  = from;
        *high_p = to;
        return;
    }
    *low_p  = (from < *low_p) ? from : *low_p;
    *high_p = (to > *high_p) ? to : *high_p;
}

/* Where the elements of a rank begin and end, from the user's buffer. */
static void piece_range(const mca_coll_mpath_args_t *args, int rank, ptrdiff_t *from_p, ptrdiff_t *to_p)
{
    ptrdiff_t at = mca_coll_mpath_args_displacement(args, rank), last;
    ptrdiff_t lb, extent, true_lb, true_extent;
    size_t count = mca_coll_mpath_args_count(args, rank);

    *from_p = *to_p = 0;
    if (0 == count) {
        return;
    }
    (void)ompi_datatype_get_extent(args->datatype, &lb, &extent);
    (void)ompi_datatype_get_true_extent(args->datatype, &true_lb, &true_extent);
    last    = at + (ptrdiff_t)(count - 1) * extent; /* an extent may be negative */
    *from_p = ((last < at) ? last : at) + true_lb;
    *to_p   = ((last > at) ? last : at) + true_lb + true_extent;
}

static void device_span(const mca_coll_mpath_args_t *args, int size, mca_coll_mpath_device_t *device)
{
    ptrdiff_t low = 0, high = 0, from, to;
    int rank;

    for (rank = 0; rank < size; rank++) {
        piece_range(args, rank, &from, &to);
        if (from < to) {
            span_add(from, to, &low, &high);
        }
    }
    device->lowest     = low;
    device->span_bytes = (size_t)(high - low);
}

mpath_status_t mca_coll_mpath_device_look(const mca_coll_mpath_args_t *args, int size, mca_coll_mpath_device_t *device)
{
    memset(device, 0, sizeof(*device));
    device->user          = *args;
    device->memory.kind   = MPATH_MEMORY_HOST;
    device->memory.device = -1;
    if (!mpath_gpu_available()) {
        return MPATH_OK;
    }
    device_span(args, size, device);
    if (0 == device->span_bytes) {
        return MPATH_OK;
    }
    device->contiguous = mca_coll_mpath_args_contiguous(args, size);
    return mpath_memory_classify((char *)args->buffer + device->lowest, device->span_bytes, &device->memory);
}

/* Without gaps only the elements are copied, so that nothing between two ranks' pieces is touched. */
static mpath_status_t device_copy(int size, const mca_coll_mpath_device_t *device, bool store)
{
    mpath_status_t status = MPATH_OK;
    int rank;

    if (!device->contiguous) {
        return store ? mpath_shadow_store(&device->shadow, 0, device->span_bytes)
                     : mpath_shadow_load(&device->shadow, 0, device->span_bytes);
    }
    for (rank = 0; (rank < size) && (MPATH_OK == status); rank++) {
        ptrdiff_t from, to;

        piece_range(&device->user, rank, &from, &to);
        if (from < to) {
            size_t offset = (size_t)(from - device->lowest), bytes = (size_t)(to - from);

            status = store ? mpath_shadow_store(&device->shadow, offset, bytes)
                           : mpath_shadow_load(&device->shadow, offset, bytes);
        }
    }
    return status;
}

mpath_status_t mca_coll_mpath_device_open(mca_coll_mpath_args_t *args, mca_coll_mpath_device_t *device)
{
    mpath_status_t status;

    if (!mca_coll_mpath_device_needs_shadow(device)) {
        return MPATH_OK;
    }
    status = mpath_shadow_open((char *)args->buffer + device->lowest, device->span_bytes, &device->memory,
                               &device->shadow);
    if (MPATH_OK == status) {
        args->buffer = (char *)device->shadow.host - device->lowest;
    }
    return status;
}

mpath_status_t mca_coll_mpath_device_load(int size, const mca_coll_mpath_device_t *device)
{
    return (NULL == device->shadow.host) ? MPATH_OK : device_copy(size, device, false);
}

mpath_status_t mca_coll_mpath_device_shadow(mca_coll_mpath_args_t *args, int size, bool load,
                                            mca_coll_mpath_device_t *device)
{
    mpath_status_t status;

    if (!mca_coll_mpath_device_needs_shadow(device)) {
        return MPATH_OK;
    }
    status = mca_coll_mpath_device_open(args, device);
    if ((MPATH_OK == status) && (load || !device->contiguous)) {
        status = device_copy(size, device, false);
    }
    return status;
}

mpath_status_t mca_coll_mpath_device_store(int size, const mca_coll_mpath_device_t *device)
{
    return (NULL == device->shadow.host) ? MPATH_OK : device_copy(size, device, true);
}

void mca_coll_mpath_device_close(mca_coll_mpath_device_t *device)
{
    mpath_shadow_close(&device->shadow);
}

mpath_status_t mca_coll_mpath_device_sync(const mca_coll_mpath_device_t *device)
{
    mpath_cu_result_t result;
    mpath_status_t status;
    mpath_gpu_t *gpu;

    if (device->memory.device < 0) {
        return MPATH_OK;
    }
    status = mpath_gpu_get(device->memory.device, device->memory.context, &gpu);
    if (MPATH_OK != status) {
        return status;
    }
    status = mpath_gpu_enter(gpu);
    if (MPATH_OK != status) {
        return status;
    }
    result = mpath_gpu_driver()->CtxSynchronize();
    mpath_gpu_leave(gpu);
    if (MPATH_CU_SUCCESS != result) {
        mpath_error("waiting for the work on device %d failed: %s; the call fails", device->memory.device,
                    mpath_cu_error_string(result));
        return mpath_cu_status(result);
    }
    return MPATH_OK;
}
