/* SPDX-License-Identifier: BSD-3-Clause */
/* The non-blocking and the persistent functions of the module: each is its arguments and a request. */
#include "coll_mpath_request.h"
#include "coll_mpath_symmetric.h"

/* mpath's blocking function. */
static int nonblocking_run(const mca_coll_mpath_arguments_t *a, mca_coll_mpath_module_t *module)
{
    struct ompi_communicator_t *comm = module->comm;
    mca_coll_base_module_t *base     = &module->super;

    switch (a->kind) {
    case COLL_MPATH_ALLTOALLV:
        return mca_coll_mpath_alltoallv(a->sbuf, a->scounts, a->sdisps, a->sdtype, a->rbuf, a->rcounts, a->rdisps,
                                        a->rdtype, comm, base);
    case COLL_MPATH_ALLTOALL:
        return mca_coll_mpath_alltoall(a->sbuf, a->scount, a->sdtype, a->rbuf, a->rcount, a->rdtype, comm, base);
    case COLL_MPATH_ALLREDUCE:
        return mca_coll_mpath_allreduce(a->sbuf, a->rbuf, a->rcount, a->rdtype, a->op, comm, base);
    case COLL_MPATH_REDUCE_SCATTER:
        return mca_coll_mpath_reduce_scatter(a->sbuf, a->rbuf, a->rcounts, a->rdtype, a->op, comm, base);
    case COLL_MPATH_REDUCE_SCATTER_BLOCK:
        return mca_coll_mpath_reduce_scatter_block(a->sbuf, a->rbuf, a->rcount, a->rdtype, a->op, comm, base);
    case COLL_MPATH_ALLGATHER:
        return mca_coll_mpath_allgather(a->sbuf, a->scount, a->sdtype, a->rbuf, a->rcount, a->rdtype, comm, base);
    case COLL_MPATH_ALLGATHERV:
        return mca_coll_mpath_allgatherv(a->sbuf, a->scount, a->sdtype, a->rbuf, a->rcounts, a->rdisps, a->rdtype, comm,
                                         base);
    case COLL_MPATH_ALLTOALLW:
        break;
    }
    return OMPI_ERR_NOT_SUPPORTED;
}

/* Reductions count the gaps in the type, too: where there are any, `bytes` is not what they go by. */
static bool nonblocking_has_gaps(const mca_coll_mpath_arguments_t *arguments)
{
    ptrdiff_t lb, extent;
    size_t bytes;

    (void)ompi_datatype_type_size(arguments->rdtype, &bytes);
    (void)ompi_datatype_get_extent(arguments->rdtype, &lb, &extent);
    return (ptrdiff_t)bytes != extent;
}

static bool nonblocking_passes(const mca_coll_mpath_arguments_t *arguments, mca_coll_mpath_module_t *module)
{
    mpath_operation_t collective = MPATH_OPERATION_REDUCE_SCATTER;
    size_t bytes                 = 0;

    switch (arguments->kind) {
    case COLL_MPATH_ALLTOALLV:
        return mca_coll_mpath_alltoallv_passes(module, 0);
    case COLL_MPATH_ALLTOALL:
        (void)ompi_datatype_type_size(arguments->rdtype, &bytes);
        return mca_coll_mpath_alltoallv_passes(module, (uint64_t)arguments->rcount * (uint64_t)bytes);
    case COLL_MPATH_ALLREDUCE:
        collective = MPATH_OPERATION_ALLREDUCE;
        break;
    case COLL_MPATH_ALLGATHER:
    case COLL_MPATH_ALLGATHERV:
        collective = MPATH_OPERATION_ALLGATHER;
        break;
    default:
        break;
    }
    return ((NULL == arguments->op) || !nonblocking_has_gaps(arguments)) &&
           mca_coll_mpath_symmetric_passes(module, collective, mca_coll_mpath_arguments_bytes(arguments, module->comm));
}

static const mca_coll_mpath_request_ops_t nonblocking_ops = {.run = nonblocking_run, .passes = nonblocking_passes};

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
        return mca_coll_mpath_request_make((mca_coll_mpath_module_t *)base, &arguments, &nonblocking_ops, false,       \
                                           request);                                                                   \
    }                                                                                                                  \
    int mca_coll_mpath_##_name##_init(COLL_MPATH_UNPACK _parameters, struct ompi_communicator_t *comm,                 \
                                      struct ompi_info_t *info, ompi_request_t **request,                              \
                                      mca_coll_base_module_t *base)                                                    \
    {                                                                                                                  \
        const mca_coll_mpath_arguments_t arguments = {.kind = _kind, __VA_ARGS__};                                     \
                                                                                                                       \
        (void)comm;                                                                                                    \
        (void)info;                                                                                                    \
        return mca_coll_mpath_request_make((mca_coll_mpath_module_t *)base, &arguments, &nonblocking_ops, true,        \
                                           request);                                                                   \
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
