/* SPDX-License-Identifier: BSD-3-Clause */
/* See coll_mpath_pieces.h. */
#include "coll_mpath_pieces.h"

#include "opal/datatype/opal_convertor.h"
#include "ompi/proc/proc.h"

#include <limits.h>
#include <stdlib.h>

/* Pieces that the convertor is asked for at a time. */
#define PIECES_AT_A_TIME 64

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
static mpath_status_t gapped_add(const mca_coll_mpath_args_t *args, int rank, mpath_pieces_t *pieces)
{
    char *user            = (char *)args->buffer + mca_coll_mpath_args_displacement(args, rank);
    size_t elements       = mca_coll_mpath_args_count(args, rank), missing, length;
    mpath_status_t status = MPATH_OK;
    struct iovec runs[PIECES_AT_A_TIME];
    opal_convertor_t convertor;
    uint32_t count, i;

    (void)ompi_datatype_type_size(args->datatype, &missing);
    missing *= elements;
    OBJ_CONSTRUCT(&convertor, opal_convertor_t);
    opal_convertor_copy_and_prepare_for_send(ompi_mpi_local_convertor, &args->datatype->super, elements, user, 0,
                                             &convertor);
    while ((0 < missing) && (MPATH_OK == status)) {
        count  = PIECES_AT_A_TIME;
        length = missing;
        (void)opal_convertor_raw(&convertor, runs, &count, &length);
        if ((0 == length) || (length > missing)) {
            mpath_error("Open MPI does not tell where the elements of a datatype lie; the call fails");
            status = MPATH_ERR_INTERNAL;
            break;
        }
        missing -= length;
        for (i = 0; (i < count) && (MPATH_OK == status); i++) {
            status = mpath_pieces_add(pieces, runs[i].iov_base, runs[i].iov_len);
        }
    }
    OBJ_DESTRUCT(&convertor);
    return status;
}

/* What an operation combines keeps its datatype, and gaps in it. */
static mpath_status_t rank_add(const mca_coll_mpath_args_t *args, int rank, bool contiguous, mpath_pieces_t *pieces)
{
    ptrdiff_t from, to;

    mca_coll_mpath_piece_range(args, rank, &from, &to);
    if (from >= to) {
        return MPATH_OK;
    }
    if (contiguous || args->combined) {
        return mpath_pieces_add(pieces, (char *)args->buffer + from, (size_t)(to - from));
    }
    return gapped_add(args, rank, pieces);
}

mpath_status_t mca_coll_mpath_pieces_look(const mca_coll_mpath_args_t *args, int size, bool contiguous,
                                          mca_coll_mpath_pieces_t *found)
{
    mpath_status_t status = mpath_pieces_create(&found->pieces);
    int rank;

    for (rank = 0; (rank < size) && (MPATH_OK == status); rank++) {
        status = rank_add(args, rank, contiguous, found->pieces);
    }
    if ((MPATH_OK == status) && mpath_pieces_on_host(found->pieces)) {
        mca_coll_mpath_pieces_close(found);
    }
    return status;
}

/* -- the copy -- */

/* As many bytes as an element of the user's has, without gaps. */
static mpath_status_t dense_type(mca_coll_mpath_args_t *args, mca_coll_mpath_pieces_t *found)
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
static mpath_status_t dense_displs(mca_coll_mpath_args_t *args, int size, mca_coll_mpath_pieces_t *found)
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

static mpath_status_t args_lead_there(mca_coll_mpath_args_t *args, int size, mca_coll_mpath_pieces_t *found, char *copy)
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

mpath_status_t mca_coll_mpath_pieces_open(mca_coll_mpath_args_t *args, int size, bool contiguous,
                                          mca_coll_mpath_pieces_t *found, void **copy_p)
{
    mpath_status_t status = mpath_pieces_open(found->pieces, !contiguous, copy_p);

    return (MPATH_OK == status) ? args_lead_there(args, size, found, *copy_p) : status;
}

void mca_coll_mpath_pieces_close(mca_coll_mpath_pieces_t *found)
{
    mpath_pieces_destroy(found->pieces);
    if (NULL != found->datatype) {
        (void)ompi_datatype_destroy(&found->datatype);
    }
    free(found->displs);
    *found = (mca_coll_mpath_pieces_t){0};
}
