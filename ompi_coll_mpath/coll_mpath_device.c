/* SPDX-License-Identifier: BSD-3-Clause */
/* Device buffers at the border to MPI: where they lie, also in several pieces, and their copies in host memory. */
#include "coll_mpath_device.h"

#include "ompi/proc/proc.h"
#include "opal/datatype/opal_convertor.h"

#include "device/stream.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Pieces that the convertor is asked for at a time. */
#define IOV_AT_A_TIME 64

void mca_coll_mpath_piece_range(const mca_coll_mpath_args_t *args, int rank, ptrdiff_t *from_p, ptrdiff_t *to_p)
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

/* -- looking -- */

/* The elements of a rank, with gaps, as the convertor walks over them. */
static mpath_status_t gapped_add(const mca_coll_mpath_args_t *args, int rank, mpath_iov_t *iov)
{
    char *user            = (char *)args->buffer + mca_coll_mpath_args_displacement(args, rank);
    size_t elements       = mca_coll_mpath_args_count(args, rank), missing, length;
    mpath_status_t status = MPATH_OK;
    struct iovec runs[IOV_AT_A_TIME];
    opal_convertor_t convertor;
    uint32_t count, i;

    (void)ompi_datatype_type_size(args->datatype, &missing);
    missing *= elements;
    OBJ_CONSTRUCT(&convertor, opal_convertor_t);
    opal_convertor_copy_and_prepare_for_send(ompi_mpi_local_convertor, &args->datatype->super, elements, user, 0,
                                             &convertor);
    while ((0 < missing) && (MPATH_OK == status)) {
        count  = IOV_AT_A_TIME;
        length = missing;
        (void)opal_convertor_raw(&convertor, runs, &count, &length);
        if ((0 == length) || (length > missing)) {
            mpath_error("Open MPI does not tell where the elements of a datatype lie; the call fails");
            status = MPATH_ERR_INTERNAL;
            break;
        }
        missing -= length;
        for (i = 0; (i < count) && (MPATH_OK == status); i++) {
            status = mpath_iov_add(iov, runs[i].iov_base, runs[i].iov_len);
        }
    }
    OBJ_DESTRUCT(&convertor);
    return status;
}

/* What an operation combines keeps its datatype, and gaps in it. */
static mpath_status_t rank_add(const mca_coll_mpath_args_t *args, int rank, bool contiguous, mpath_iov_t *iov)
{
    ptrdiff_t from, to;

    mca_coll_mpath_piece_range(args, rank, &from, &to);
    if (from >= to) {
        return MPATH_OK;
    }
    if (contiguous || args->combined) {
        return mpath_iov_add(iov, (char *)args->buffer + from, (size_t)(to - from));
    }
    return gapped_add(args, rank, iov);
}

static void iov_close(mca_coll_mpath_iov_t *found)
{
    mpath_iov_destroy(found->iov);
    if (NULL != found->datatype) {
        (void)ompi_datatype_destroy(&found->datatype);
    }
    free(found->displs);
    *found = (mca_coll_mpath_iov_t){0};
}

/* Looks where every piece lies. What is found is to be closed, also after an error. */
static mpath_status_t iov_look(const mca_coll_mpath_args_t *args, int size, bool contiguous,
                               mca_coll_mpath_iov_t *found)
{
    mpath_status_t status = mpath_iov_create(&found->iov);
    int rank;

    for (rank = 0; (rank < size) && (MPATH_OK == status); rank++) {
        status = rank_add(args, rank, contiguous, found->iov);
    }
    if ((MPATH_OK == status) && mpath_iov_on_host(found->iov)) {
        iov_close(found);
    }
    return status;
}

/* -- the copy -- */

/* As many bytes as an element of the user's has, without gaps. */
static mpath_status_t dense_type(mca_coll_mpath_args_t *args, mca_coll_mpath_iov_t *found)
{
    size_t size;

    (void)ompi_datatype_type_size(args->datatype, &size);
    found->datatype = ompi_datatype_create(1);
    if ((NULL == found->datatype) ||
        (OMPI_SUCCESS != ompi_datatype_add(found->datatype, &ompi_mpi_byte.dt, size, 0, 1)) ||
        (OMPI_SUCCESS != ompi_datatype_commit(&found->datatype))) {
        mpath_error("no memory for a datatype; the call fails");
        return MPATH_ERR_NO_MEMORY;
    }
    args->datatype = found->datatype;
    return MPATH_OK;
}

/* The elements of each rank begin where those of the rank before end. */
static mpath_status_t dense_displs(mca_coll_mpath_args_t *args, int size, mca_coll_mpath_iov_t *found)
{
    size_t width = COLL_MPATH_DISPLS_WIDTH(args->displs), at = 0;
    int rank;

    found->displs = malloc((size_t)size * width);
    for (rank = 0; (NULL != found->displs) && (rank < size); rank++) {
        if ((sizeof(int) == width) && (at > INT_MAX)) {
            mpath_error("the buffer lies in several allocations, and its copy has more elements than a displacement "
                        "can name; the call fails");
            return MPATH_ERR_NO_MEMORY;
        }
        if (sizeof(int) == width) {
            ((int *)found->displs)[rank] = (int)at;
        } else {
            ((ptrdiff_t *)found->displs)[rank] = (ptrdiff_t)at;
        }
        at += mca_coll_mpath_args_count(args, rank);
    }
    if (NULL == found->displs) {
        mpath_error("no memory for %d displacements; the call fails", size);
        return MPATH_ERR_NO_MEMORY;
    }
    args->displs = COLL_MPATH_DISPLS_AT(args->displs, found->displs);
    return MPATH_OK;
}

static mpath_status_t args_lead_there(mca_coll_mpath_args_t *args, int size, mca_coll_mpath_iov_t *found, char *copy)
{
    ptrdiff_t from, to;
    mpath_status_t status;

    if (args->combined) { /* one vector */
        mca_coll_mpath_piece_range(args, 0, &from, &to);
        args->buffer = copy - from;
        return MPATH_OK;
    }
    status = dense_type(args, found);
    if ((MPATH_OK == status) && !args->equal) {
        status = dense_displs(args, size, found);
    }
    args->buffer = copy;
    return status;
}

/* Makes the copy, without contents; `args` leads to it afterwards. Errors are logged. */
static mpath_status_t iov_open(mca_coll_mpath_args_t *args, int size, bool contiguous, mca_coll_mpath_iov_t *found,
                               void **copy_p)
{
    mpath_status_t status = mpath_iov_open(found->iov, !contiguous, copy_p);

    return (MPATH_OK == status) ? args_lead_there(args, size, found, *copy_p) : status;
}

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
    mpath_status_t status = iov_look(args, size, device->contiguous, &device->parts);

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
               : (0 < device->memory.blocks);
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

/* Copies that are to be started: ranges of the staging buffer. */
typedef struct device_copies_t {
    const mca_coll_mpath_device_t *device;
    mpath_staging_range_t *ranges; /* NULL: each is started at once */
    unsigned count;
    bool store;
    mpath_status_t status;
} device_copies_t;

static void device_add_copy(device_copies_t *copies, ptrdiff_t from, ptrdiff_t to)
{
    const mpath_staging_t *staging    = &copies->device->staging;
    const mpath_staging_range_t range = {.offset = (size_t)(from - copies->device->lowest),
                                         .bytes  = (size_t)(to - from)};

    if ((0 == range.bytes) || (MPATH_OK != copies->status)) {
        return;
    }
    if (NULL != copies->ranges) {
        copies->ranges[copies->count++] = range;
    } else if (copies->store) {
        copies->status = mpath_staging_store(staging, range.offset, range.bytes);
    } else {
        copies->status = mpath_staging_load(staging, range.offset, range.bytes);
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
        copies.status = mpath_staging_store_all(&device->staging, copies.ranges, copies.count);
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
        return store ? mpath_iov_store(device->parts.iov) : mpath_iov_load(device->parts.iov);
    }
    status = mpath_staging_settle(&device->staging);
    if (MPATH_OK != status) {
        return status;
    }
    status = device->contiguous ? device_start_pieces(size, device, store) : device_start_whole(device, store);
    waited = mpath_staging_wait(&device->staging, store); /* also for what has been started before an error */
    return (MPATH_OK == status) ? waited : status;
}

static mpath_status_t device_open_parts(mca_coll_mpath_args_t *args, int size, mca_coll_mpath_device_t *device)
{
    mpath_status_t status;

    status = iov_open(args, size, device->contiguous, &device->parts, &device->copy);
    device->contiguous |= !args->combined; /* the copy is */
    return status;
}

mpath_status_t mca_coll_mpath_device_open(mca_coll_mpath_args_t *args, int size, mca_coll_mpath_device_t *device)
{
    mpath_status_t status;

    if (!mca_coll_mpath_device_needs_staging(device)) {
        return MPATH_OK;
    }
    if (mca_coll_mpath_device_in_parts(device)) {
        return device_open_parts(args, size, device);
    }
    status = mpath_staging_open((char *)args->buffer + device->lowest, device->span_bytes, &device->memory,
                                &device->staging);
    if (MPATH_OK == status) {
        device->copy = device->staging.host;
        args->buffer = (char *)device->copy - device->lowest;
    }
    return status;
}

mpath_status_t mca_coll_mpath_device_load(int size, const mca_coll_mpath_device_t *device)
{
    return (NULL == device->copy) ? MPATH_OK : device_copy(size, device, false);
}

mpath_status_t mca_coll_mpath_device_staging(mca_coll_mpath_args_t *args, int size, bool load,
                                             mca_coll_mpath_device_t *device)
{
    mpath_status_t status;

    if (!mca_coll_mpath_device_needs_staging(device)) {
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
    mpath_staging_close(&device->staging);
    iov_close(&device->parts);
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
