/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Datatypes to bytes and back. Extents and true extents as in Open MPI's ompi/mca/coll/base/README.memory_management.
 */
#include "coll_mpath_pack.h"

#include "opal/datatype/opal_convertor.h"
#include "ompi/proc/proc.h"
#if defined(OPAL_CUDA_SUPPORT) && OPAL_CUDA_SUPPORT
#include "opal/datatype/opal_datatype_cuda.h"
#include "opal/runtime/opal_params.h"
#elif OMPI_MAJOR_VERSION >= 5
#include "opal/mca/accelerator/accelerator.h"
#include "opal/mca/accelerator/base/base.h"
#endif

#include <stdlib.h>
#include <string.h>

size_t mca_coll_mpath_args_count(const mca_coll_mpath_args_t *args, int rank)
{
    return args->equal ? args->count : COLL_MPATH_COUNT(args->counts, rank);
}

ptrdiff_t mca_coll_mpath_args_displacement(const mca_coll_mpath_args_t *args, int rank)
{
    ptrdiff_t displ = args->equal ? (ptrdiff_t)args->count * rank : COLL_MPATH_DISPL(args->displs, rank);
    ptrdiff_t lb, extent;

    (void)ompi_datatype_get_extent(args->datatype, &lb, &extent);
    return displ * extent;
}

static size_t args_type_size(const mca_coll_mpath_args_t *args)
{
    size_t size = 0;

    (void)ompi_datatype_type_size(args->datatype, &size);
    return size;
}

/* So many elements of it have no gaps. */
static bool type_is_dense(const struct ompi_datatype_t *datatype, size_t most)
{
    return (0 == most) || ompi_datatype_is_contiguous_memory_layout(datatype, (most > 1) ? 2 : 1);
}

bool mca_coll_mpath_args_contiguous(const mca_coll_mpath_args_t *args, int size)
{
    size_t count, most = 0;
    int rank;

    for (rank = 0; rank < size; rank++) {
        count = mca_coll_mpath_args_count(args, rank);
        most  = (count > most) ? count : most;
    }
    return type_is_dense(args->datatype, most);
}

/*
 * The bytes of each rank, and where they are from the buffer on; the lowest of these where there are any, and the most elements.
 * One look at all arguments: short calls notice each.
 */
static void side_measure(const mca_coll_mpath_args_t *args, int size, mca_coll_mpath_side_t *side, ptrdiff_t *lowest_p,
                         size_t *most_p)
{
    uint64_t *bytes = side->bytes, *offsets = side->offsets, total = 0;
    size_t type_size = args_type_size(args), count, most = 0;
    ptrdiff_t lb, extent, at, lowest = PTRDIFF_MAX;
    int rank;

    (void)ompi_datatype_get_extent(args->datatype, &lb, &extent);
    for (rank = 0; rank < size; rank++) {
        count         = mca_coll_mpath_args_count(args, rank);
        at            = extent * (args->equal ? (ptrdiff_t)args->count * rank : COLL_MPATH_DISPL(args->displs, rank));
        bytes[rank]   = (uint64_t)count * type_size;
        offsets[rank] = (uint64_t)at;
        total += bytes[rank];
        most   = (count > most) ? count : most;
        lowest = ((bytes[rank] > 0) && (at < lowest)) ? at : lowest;
    }
    side->total_bytes = total;
    *lowest_p         = lowest;
    *most_p           = most;
}

/*
 * Where the data lies. Offsets are unsigned and displacements need not be: they count from the lowest address that is
 * used, not from the user's pointer.
 */
static void side_in_place(const mca_coll_mpath_args_t *args, int size, ptrdiff_t lowest, mca_coll_mpath_side_t *side)
{
    ptrdiff_t true_lb, true_extent;
    int rank;

    if (0 == side->total_bytes) {
        memset(side->offsets, 0, (size_t)size * sizeof(*side->offsets));
        return;
    }
    (void)ompi_datatype_get_true_extent(args->datatype, &true_lb, &true_extent);
    side->buffer = (char *)args->buffer + lowest + true_lb;
    for (rank = 0; rank < size; rank++) {
        side->offsets[rank] = (side->bytes[rank] > 0) ? side->offsets[rank] - (uint64_t)lowest : 0;
    }
}

static void side_in_copy(int size, mca_coll_mpath_side_t *side)
{
    uint64_t offset = 0;
    int rank;

    for (rank = 0; rank < size; rank++) {
        side->offsets[rank] = offset;
        offset += side->bytes[rank];
    }
    side->buffer = side->copy;
}

mpath_status_t mca_coll_mpath_side_init(const mca_coll_mpath_args_t *args, int size, bool force_copy,
                                        uint64_t *budget_bytes, uint64_t *bytes, uint64_t *offsets,
                                        mca_coll_mpath_side_t *side)
{
    ptrdiff_t lowest;
    size_t most;

    side->bytes   = bytes;
    side->offsets = offsets;
    side->buffer  = NULL;
    side->copy    = NULL;
    side_measure(args, size, side, &lowest, &most);
    if ((!force_copy && type_is_dense(args->datatype, most)) || (0 == side->total_bytes)) {
        side_in_place(args, size, lowest, side);
        return MPATH_OK;
    }
    if (side->total_bytes > *budget_bytes) {
        return MPATH_ERR_NO_MEMORY;
    }
    side->copy = malloc(side->total_bytes);
    if (NULL == side->copy) {
        return MPATH_ERR_NO_MEMORY;
    }
    *budget_bytes -= side->total_bytes;
    side_in_copy(size, side);
    return MPATH_OK;
}

void mca_coll_mpath_side_free(mca_coll_mpath_side_t *side)
{
    free(side->copy);
    side->copy = NULL;
}

/* Between the user's elements of one rank and `bytes` packed ones. */
static mpath_status_t side_convert(const mca_coll_mpath_args_t *args, int rank, void *packed, uint64_t bytes,
                                   bool to_packed)
{
    char *user         = (char *)args->buffer + mca_coll_mpath_args_displacement(args, rank);
    struct iovec iov   = {.iov_base = packed, .iov_len = bytes};
    uint32_t iov_count = 1;
    size_t done        = bytes;
    opal_convertor_t convertor;
    mpath_status_t status = MPATH_OK;

    OBJ_CONSTRUCT(&convertor, opal_convertor_t);
    if (to_packed) {
        opal_convertor_copy_and_prepare_for_send(ompi_mpi_local_convertor, &args->datatype->super,
                                                 mca_coll_mpath_args_count(args, rank), user, 0, &convertor);
        opal_convertor_pack(&convertor, &iov, &iov_count, &done);
    } else {
        opal_convertor_copy_and_prepare_for_recv(ompi_mpi_local_convertor, &args->datatype->super,
                                                 mca_coll_mpath_args_count(args, rank), user, 0, &convertor);
        opal_convertor_unpack(&convertor, &iov, &iov_count, &done);
    }
    if (done != bytes) {
        status = MPATH_ERR_INTERNAL;
    }
    OBJ_DESTRUCT(&convertor);
    return status;
}

static mpath_status_t side_convert_all(const mca_coll_mpath_args_t *args, int size, const mca_coll_mpath_side_t *side,
                                       bool to_packed)
{
    mpath_status_t status = MPATH_OK;
    int rank;

    if (NULL == side->copy) {
        return MPATH_OK;
    }
    for (rank = 0; (rank < size) && (MPATH_OK == status); rank++) {
        if (side->bytes[rank] > 0) {
            status = side_convert(args, rank, (char *)side->copy + side->offsets[rank], side->bytes[rank], to_packed);
        }
    }
    return status;
}

mpath_status_t mca_coll_mpath_side_pack(const mca_coll_mpath_args_t *args, int size, const mca_coll_mpath_side_t *side)
{
    return side_convert_all(args, size, side, true);
}

mpath_status_t mca_coll_mpath_side_unpack(const mca_coll_mpath_args_t *args, int size,
                                          const mca_coll_mpath_side_t *side)
{
    return side_convert_all(args, size, side, false);
}

bool mca_coll_mpath_is_device(const void *buffer)
{
#if defined(OPAL_CUDA_SUPPORT) && OPAL_CUDA_SUPPORT
    return opal_cuda_check_bufs((char *)buffer, NULL);
#elif OMPI_MAJOR_VERSION >= 5
    uint64_t flags;
    int device;

    return (NULL != buffer) && (0 < opal_accelerator.check_addr(buffer, &device, &flags));
#else
    (void)buffer;
    return false;
#endif
}

bool mca_coll_mpath_knows_devices(void)
{
#if defined(OPAL_CUDA_SUPPORT) && OPAL_CUDA_SUPPORT
    return opal_cuda_support;
#elif OMPI_MAJOR_VERSION >= 5
    return 0 == strcmp("cuda", opal_accelerator_base_selected_component.base_version.mca_component_name);
#else
    return false;
#endif
}
