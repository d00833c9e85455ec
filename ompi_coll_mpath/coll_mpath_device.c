/* SPDX-License-Identifier: BSD-3-Clause */
/* Device buffers at the border to MPI: where they lie, and their copies in host memory. */
#include "coll_mpath_device.h"

#include "device/stream.h"

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

void mca_coll_mpath_device_span(const mca_coll_mpath_args_t *args, int size, ptrdiff_t *lowest_p, size_t *bytes_p)
{
    ptrdiff_t low = 0, high = 0, from, to;
    int rank;

    for (rank = 0; rank < size; rank++) {
        mca_coll_mpath_piece_range(args, rank, &from, &to);
        if (from < to) {
            span_add(from, to, &low, &high);
        }
    }
    *lowest_p = low;
    *bytes_p  = (size_t)(high - low);
}

#define DEVICE_OUT_RANKS 16 /* the arguments of more take longer than to look */

bool mca_coll_mpath_device_is_out(const mca_coll_mpath_args_t *args, int size)
{
    ptrdiff_t lb, extent, true_lb, true_extent, first = 0, end = (ptrdiff_t)args->count * size, displ;
    int rank;

    if (DEVICE_OUT_RANKS < size) {
        return false;
    }
    if (!args->equal) { /* wider where a rank without elements has a displacement */
        first = PTRDIFF_MAX;
        end   = PTRDIFF_MIN;
        for (rank = 0; rank < size; rank++) {
            displ = COLL_MPATH_DISPL(args->displs, rank);
            first = (displ < first) ? displ : first;
            displ += (ptrdiff_t)COLL_MPATH_COUNT(args->counts, rank);
            end = (displ > end) ? displ : end;
        }
    }
    (void)ompi_datatype_get_extent(args->datatype, &lb, &extent);
    (void)ompi_datatype_get_true_extent(args->datatype, &true_lb, &true_extent);
    return (first >= end) ||
           ((0 <= extent) && mpath_memory_is_programs((char *)args->buffer + first * extent + true_lb,
                                                      (size_t)((end - 1 - first) * extent + true_extent)));
}

/* The span begins in one kind of memory, or allocation, and may end in another: looks at every piece. */
static mpath_status_t device_look_closely(const mca_coll_mpath_args_t *args, int size, mca_coll_mpath_device_t *device)
{
    mpath_status_t status = mca_coll_mpath_pieces_look(args, size, device->contiguous, &device->parts);

    if (mca_coll_mpath_device_in_parts(device)) {
        device->memory = (mpath_memory_t){.kind = MPATH_MEMORY_DEVICE, .device = -1};
    }
    return status;
}

/* Nothing of the span can be in other memory than its first byte. */
static bool device_is_one(const mca_coll_mpath_device_t *device, const char *first)
{
    uintptr_t last = (uintptr_t)first + device->span_bytes - 1;

    return mpath_memory_on_host(device->memory.kind)
               ? ((uintptr_t)first / MPATH_MEMORY_BLOCK_BYTES == last / MPATH_MEMORY_BLOCK_BYTES)
               : (0 < device->memory.pieces);
}

mpath_status_t mca_coll_mpath_device_look(const mca_coll_mpath_args_t *args, int size, mca_coll_mpath_device_t *device)
{
    const char *first;
    mpath_status_t status;

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
    first              = (const char *)args->buffer + device->lowest;
    device->contiguous = mca_coll_mpath_args_contiguous(args, size);
    status             = mpath_memory_find(first, device->span_bytes, &device->memory);
    if ((MPATH_OK != status) || device_is_one(device, first)) {
        return status;
    }
    return device_look_closely(args, size, device);
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
        mca_coll_mpath_piece_range(&device->user, rank, &from, &to);
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

    if (mca_coll_mpath_device_in_parts(device)) {
        return store ? mpath_pieces_store(device->parts.pieces) : mpath_pieces_load(device->parts.pieces);
    }
    status = device->contiguous ? device_start_pieces(size, device, store) : device_start_whole(device, store);
    waited = mpath_shadow_wait(&device->shadow, store); /* also for what has been started before an error */
    return (MPATH_OK == status) ? waited : status;
}

static mpath_status_t device_open_parts(mca_coll_mpath_args_t *args, int size, mca_coll_mpath_device_t *device)
{
    mpath_status_t status;

    status = mca_coll_mpath_pieces_open(args, size, device->contiguous, &device->parts, &device->copy);
    device->contiguous |= !args->combined; /* the copy is */
    return status;
}

mpath_status_t mca_coll_mpath_device_open(mca_coll_mpath_args_t *args, int size, mca_coll_mpath_device_t *device)
{
    mpath_status_t status;

    if (!mca_coll_mpath_device_needs_shadow(device)) {
        return MPATH_OK;
    }
    if (mca_coll_mpath_device_in_parts(device)) {
        return device_open_parts(args, size, device);
    }
    status = mpath_shadow_open((char *)args->buffer + device->lowest, device->span_bytes, &device->memory,
                               &device->shadow);
    if (MPATH_OK == status) {
        device->copy = device->shadow.host;
        args->buffer = (char *)device->copy - device->lowest;
    }
    return status;
}

mpath_status_t mca_coll_mpath_device_load(int size, const mca_coll_mpath_device_t *device)
{
    return (NULL == device->copy) ? MPATH_OK : device_copy(size, device, false);
}

mpath_status_t mca_coll_mpath_device_shadow(mca_coll_mpath_args_t *args, int size, bool load,
                                            mca_coll_mpath_device_t *device)
{
    mpath_status_t status;

    if (!mca_coll_mpath_device_needs_shadow(device)) {
        return MPATH_OK;
    }
    status = mca_coll_mpath_device_open(args, size, device);
    if ((MPATH_OK == status) && (load || !device->contiguous)) {
        status = device_copy(size, device, false);
    }
    return status;
}

mpath_status_t mca_coll_mpath_device_store(int size, const mca_coll_mpath_device_t *device)
{
    return (NULL == device->copy) ? MPATH_OK : device_copy(size, device, true);
}

void mca_coll_mpath_device_close(mca_coll_mpath_device_t *device)
{
    mpath_shadow_close(&device->shadow);
    mca_coll_mpath_pieces_close(&device->parts);
    device->copy = NULL;
}

/* Any device may be at work on the memory. */
static bool device_is_anybodys(const mca_coll_mpath_device_t *device)
{
    return (MPATH_MEMORY_REGISTERED == device->memory.kind) || (MPATH_MEMORY_MANAGED == device->memory.kind) ||
           mca_coll_mpath_device_in_parts(device);
}

static mpath_status_t device_sync_one(const mca_coll_mpath_device_t *device)
{
    mpath_status_t status;
    mpath_gpu_t *gpu;

    if (mpath_memory_on_host(device->memory.kind)) {
        return MPATH_OK;
    }
    status = mpath_gpu_get(device->memory.device, device->memory.context, &gpu);
    return (MPATH_OK == status) ? mpath_gpu_drain(gpu) : status;
}

mpath_status_t mca_coll_mpath_device_sync(const mca_coll_mpath_device_t *send, const mca_coll_mpath_device_t *recv)
{
    mpath_status_t status;

    if (device_is_anybodys(recv) || ((NULL != send) && device_is_anybodys(send))) {
        return mpath_gpu_drain_all();
    }
    status = device_sync_one(recv);
    return ((MPATH_OK == status) && (NULL != send)) ? device_sync_one(send) : status;
}
