/* SPDX-License-Identifier: BSD-3-Clause */
/* Device buffers at the border to MPI: where they lie, and their copies in host memory. */
#include "coll_mpath_device.h"

#include <stdlib.h>
#include <string.h>

/* To copy so many bytes more takes less time than to start a copy. */
#define DEVICE_GAP_BYTES 65536

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

void mca_coll_mpath_device_span(const mca_coll_mpath_args_t *args, int size, ptrdiff_t *lowest_p, size_t *bytes_p)
{
    ptrdiff_t low = 0, high = 0, from, to;
    int rank;

    for (rank = 0; rank < size; rank++) {
        piece_range(args, rank, &from, &to);
        if (from < to) {
            span_add(from, to, &low, &high);
        }
    }
    *lowest_p = low;
    *bytes_p  = (size_t)(high - low);
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
    mca_coll_mpath_device_span(args, size, &device->lowest, &device->span_bytes);
    if (0 == device->span_bytes) {
        return MPATH_OK;
    }
    device->contiguous = mca_coll_mpath_args_contiguous(args, size);
    return mpath_memory_classify((char *)args->buffer + device->lowest, device->span_bytes, &device->memory);
}

/* Copies that are to be started: ranges of the shadow. */
typedef struct device_copies_t {
    const mca_coll_mpath_device_t *device;
    mpath_shadow_range_t *ranges; /* NULL: each is started at once */
    unsigned count;
    bool store;
    mpath_status_t status;
} device_copies_t;

static void device_add_copy(device_copies_t *copies, ptrdiff_t from, ptrdiff_t to)
{
    const mpath_shadow_t *shadow     = &copies->device->shadow;
    const mpath_shadow_range_t range = {.offset = (size_t)(from - copies->device->lowest),
                                        .bytes  = (size_t)(to - from)};

    if ((0 == range.bytes) || (MPATH_OK != copies->status)) {
        return;
    }
    if (NULL != copies->ranges) {
        copies->ranges[copies->count++] = range;
    } else if (copies->store) {
        copies->status = mpath_shadow_store(shadow, range.offset, range.bytes);
    } else {
        copies->status = mpath_shadow_load(shadow, range.offset, range.bytes);
    }
}

/* Of elements without gaps, where those of a rank end and those of the next one begin, or begin soon, as one copy. */
static mpath_status_t device_start_pieces(int size, const mca_coll_mpath_device_t *device, bool store)
{
    ptrdiff_t gap   = store ? 0 : DEVICE_GAP_BYTES; /* nothing between two ranks' pieces may be written */
    ptrdiff_t begin = 0, end = 0, from, to;
    device_copies_t copies = {.device = device, .store = store};
    int rank;

    if (store && (1 < size)) { /* without memory for them, one after the other */
        copies.ranges = malloc((size_t)size * sizeof(*copies.ranges));
    }
    for (rank = 0; rank < size; rank++) {
        piece_range(&device->user, rank, &from, &to);
        if ((from < to) && (begin < end) && (from >= end) && (from - end <= gap)) {
            end = to;
        } else if (from < to) {
            device_add_copy(&copies, begin, end);
            begin = from;
            end   = to;
        }
    }
    device_add_copy(&copies, begin, end);
    if (NULL != copies.ranges) {
        copies.status = mpath_shadow_store_all(&device->shadow, copies.ranges, copies.count);
        free(copies.ranges);
    }
    return copies.status;
}

static mpath_status_t device_start_whole(const mca_coll_mpath_device_t *device, bool store)
{
    device_copies_t copies = {.device = device, .store = store};

    device_add_copy(&copies, device->lowest, device->lowest + (ptrdiff_t)device->span_bytes);
    return copies.status;
}

static mpath_status_t device_copy(int size, const mca_coll_mpath_device_t *device, bool store)
{
    mpath_status_t status, waited;

    status = device->contiguous ? device_start_pieces(size, device, store) : device_start_whole(device, store);
    waited = mpath_shadow_wait(&device->shadow, store); /* also for what has been started before an error */
    return (MPATH_OK == status) ? waited : status;
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
