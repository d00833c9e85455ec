/* SPDX-License-Identifier: BSD-3-Clause */
/* The non-blocking and the persistent functions of the module: each is its arguments and a request. */
#include "coll_mpath_request.h"

#define COUNT mca_coll_mpath_count_t
#define COUNTS mca_coll_mpath_counts_t
#define DISPLS mca_coll_mpath_displs_t
#define DATATYPE struct ompi_datatype_t *

/*
 * Defines both functions of a collective: its parameters, and initialisers of mca_coll_mpath_arguments_t. What follows
 * the parameters is the same for all: the communicator, of the persistent one an info, the request, the module.
 */
#define NONBLOCKING(_name, _kind, _parameters, ...)                                                                    \
    int mca_coll_mpath_i##_name(COLL_MPATH_UNPACK _parameters, struct ompi_communicator_t *comm,                       \
                                ompi_request_t **request, mca_coll_base_module_t *base)                                \
    {                                                                                                                  \
        const mca_coll_mpath_arguments_t arguments = {.kind = _kind, __VA_ARGS__};                                     \
                                                                                                                       \
        (void)comm;                                                                                                    \
        return mca_coll_mpath_request_make((mca_coll_mpath_module_t *)base, &arguments, false, request);               \
    }                                                                                                                  \
    int mca_coll_mpath_##_name##_init(COLL_MPATH_UNPACK _parameters, struct ompi_communicator_t *comm,                 \
                                      struct ompi_info_t *info, ompi_request_t **request,                              \
                                      mca_coll_base_module_t *base)                                                    \
    {                                                                                                                  \
        const mca_coll_mpath_arguments_t arguments = {.kind = _kind, __VA_ARGS__};                                     \
                                                                                                                       \
        (void)comm;                                                                                                    \
        (void)info;                                                                                                    \
        return mca_coll_mpath_request_make((mca_coll_mpath_module_t *)base, &arguments, true, request);                \
    }

NONBLOCKING(alltoallv, COLL_MPATH_ALLTOALLV,
            (const void *sbuf, COUNTS scounts, DISPLS sdisps, DATATYPE sdtype, void *rbuf, COUNTS rcounts,
             DISPLS rdisps, DATATYPE rdtype),
            .sbuf = sbuf, .scounts = scounts, .sdisps = sdisps, .sdtype = sdtype, .rbuf = rbuf, .rcounts = rcounts,
            .rdisps = rdisps, .rdtype = rdtype)

NONBLOCKING(alltoall, COLL_MPATH_ALLTOALL,
            (const void *sbuf, COUNT scount, DATATYPE sdtype, void *rbuf, COUNT rcount, DATATYPE rdtype), .sbuf = sbuf,
            .scount = scount, .sdtype = sdtype, .rbuf = rbuf, .rcount = rcount, .rdtype = rdtype)

NONBLOCKING(allreduce, COLL_MPATH_ALLREDUCE,
            (const void *sbuf, void *rbuf, COUNT rcount, DATATYPE rdtype, struct ompi_op_t *op), .sbuf = sbuf,
            .rbuf = rbuf, .rcount = rcount, .rdtype = rdtype, .op = op)

NONBLOCKING(reduce_scatter, COLL_MPATH_REDUCE_SCATTER,
            (const void *sbuf, void *rbuf, COUNTS rcounts, DATATYPE rdtype, struct ompi_op_t *op), .sbuf = sbuf,
            .rbuf = rbuf, .rcounts = rcounts, .rdtype = rdtype, .op = op)

NONBLOCKING(reduce_scatter_block, COLL_MPATH_REDUCE_SCATTER_BLOCK,
            (const void *sbuf, void *rbuf, COUNT rcount, DATATYPE rdtype, struct ompi_op_t *op), .sbuf = sbuf,
            .rbuf = rbuf, .rcount = rcount, .rdtype = rdtype, .op = op)

NONBLOCKING(allgather, COLL_MPATH_ALLGATHER,
            (const void *sbuf, COUNT scount, DATATYPE sdtype, void *rbuf, COUNT rcount, DATATYPE rdtype), .sbuf = sbuf,
            .scount = scount, .sdtype = sdtype, .rbuf = rbuf, .rcount = rcount, .rdtype = rdtype)

NONBLOCKING(allgatherv, COLL_MPATH_ALLGATHERV,
            (const void *sbuf, COUNT scount, DATATYPE sdtype, void *rbuf, COUNTS rcounts, DISPLS rdisps,
             DATATYPE rdtype),
            .sbuf = sbuf, .scount = scount, .sdtype = sdtype, .rbuf = rbuf, .rcounts = rcounts, .rdisps = rdisps,
            .rdtype = rdtype)
