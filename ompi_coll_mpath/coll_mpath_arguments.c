/* SPDX-License-Identifier: BSD-3-Clause */
/* The arguments of a collective as data: what a non-blocking operation hands to the functions that carry it. */
#include "coll_mpath_request.h"
#include "coll_mpath_symmetric.h"

#include <stdlib.h>
#include <string.h>

/* Copies an array of the user to where there is room for it, which moves on. */
static void *take_array(const void *data, size_t bytes, char **room)
{
    void *copy = memcpy(*room, data, bytes);

    *room += (bytes + sizeof(uint64_t) - 1) / sizeof(uint64_t) * sizeof(uint64_t);
    return copy;
}

int mca_coll_mpath_arguments_take_arrays(mca_coll_mpath_arguments_t *a, size_t size, void **arrays_p)
{
    bool sends    = (COLL_MPATH_ALLTOALLV == a->kind) && (MPI_IN_PLACE != a->sbuf);
    bool receives = (COLL_MPATH_ALLTOALLV == a->kind) || (COLL_MPATH_ALLGATHERV == a->kind);
    char *room;

    *arrays_p = NULL;
    if (!receives && (COLL_MPATH_REDUCE_SCATTER != a->kind)) {
        return OMPI_SUCCESS;
    }
    room = *arrays_p = malloc(4 * size * sizeof(uint64_t));
    if (NULL == room) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    a->rcounts = COLL_MPATH_COUNTS_AT(
        a->rcounts, take_array(COLL_MPATH_COUNTS_DATA(a->rcounts), size * COLL_MPATH_COUNTS_WIDTH(a->rcounts), &room));
    if (receives) {
        a->rdisps = COLL_MPATH_DISPLS_AT(
            a->rdisps, take_array(COLL_MPATH_DISPLS_DATA(a->rdisps), size * COLL_MPATH_DISPLS_WIDTH(a->rdisps), &room));
    }
    if (sends) {
        a->scounts = COLL_MPATH_COUNTS_AT(a->scounts, take_array(COLL_MPATH_COUNTS_DATA(a->scounts),
                                                                 size * COLL_MPATH_COUNTS_WIDTH(a->scounts), &room));
        a->sdisps  = COLL_MPATH_DISPLS_AT(
             a->sdisps, take_array(COLL_MPATH_DISPLS_DATA(a->sdisps), size * COLL_MPATH_DISPLS_WIDTH(a->sdisps), &room));
    }
    return OMPI_SUCCESS;
}

int mca_coll_mpath_arguments_parts(const mca_coll_mpath_arguments_t *arguments, struct ompi_communicator_t *comm)
{
    bool scatters = (COLL_MPATH_REDUCE_SCATTER == arguments->kind) ||
                    (COLL_MPATH_REDUCE_SCATTER_BLOCK == arguments->kind);

    return scatters ? ompi_comm_size(comm) : mca_coll_mpath_parts(comm);
}

static uint64_t arguments_elements(const mca_coll_mpath_arguments_t *arguments, struct ompi_communicator_t *comm)
{
    uint64_t sum = 0;
    int rank;

    for (rank = 0; rank < mca_coll_mpath_arguments_parts(arguments, comm); rank++) {
        sum += COLL_MPATH_COUNT(arguments->rcounts, rank);
    }
    return sum;
}

static mca_coll_mpath_args_t arguments_block(void *buffer, struct ompi_datatype_t *datatype, uint64_t count)
{
    return (mca_coll_mpath_args_t){.buffer = buffer, .datatype = datatype, .equal = true, .count = (size_t)count};
}

static mca_coll_mpath_args_t arguments_vector(void *buffer, struct ompi_datatype_t *datatype, uint64_t count)
{
    mca_coll_mpath_args_t vector = arguments_block(buffer, datatype, count);

    vector.combined = true;
    return vector;
}

void mca_coll_mpath_arguments_sides(const mca_coll_mpath_arguments_t *arguments, struct ompi_communicator_t *comm,
                                    mca_coll_mpath_request_t *request)
{
    bool in_place = MPI_IN_PLACE == arguments->sbuf;
    int size = mca_coll_mpath_arguments_parts(arguments, comm), rank = ompi_comm_rank(comm);
    void *sbuf = (void *)arguments->sbuf;
    uint64_t total, mine;

    request->send_parts = request->recv_parts = 1;
    switch (arguments->kind) {
    case COLL_MPATH_ALLTOALLV:
        request->send_parts = request->recv_parts = size;
        request->send                             = (mca_coll_mpath_args_t){
                                        .buffer   = sbuf,
                                        .datatype = arguments->sdtype,
                                        .counts   = arguments->scounts,
                                        .displs   = arguments->sdisps,
        };
        request->recv = (mca_coll_mpath_args_t){.buffer   = arguments->rbuf,
                                                .datatype = arguments->rdtype,
                                                .counts   = arguments->rcounts,
                                                .displs   = arguments->rdisps};
        return;
    case COLL_MPATH_ALLTOALL:
        request->send_parts = request->recv_parts = size;
        request->send                             = arguments_block(sbuf, arguments->sdtype, arguments->scount);
        request->recv = arguments_block(arguments->rbuf, arguments->rdtype, arguments->rcount);
        return;
    case COLL_MPATH_ALLREDUCE:
        request->send = arguments_vector(sbuf, arguments->rdtype, arguments->rcount);
        request->recv = arguments_vector(arguments->rbuf, arguments->rdtype, arguments->rcount);
        return;
    case COLL_MPATH_REDUCE_SCATTER:
    case COLL_MPATH_REDUCE_SCATTER_BLOCK:
        if (COLL_MPATH_REDUCE_SCATTER == arguments->kind) {
            total = arguments_elements(arguments, comm);
            mine  = COLL_MPATH_COUNT(arguments->rcounts, rank);
        } else {
            total = (uint64_t)arguments->rcount * (uint64_t)size;
            mine  = (uint64_t)arguments->rcount;
        }
        request->send = arguments_vector(sbuf, arguments->rdtype, total);
        request->recv = arguments_vector(arguments->rbuf, arguments->rdtype, in_place ? total : mine);
        return;
    case COLL_MPATH_ALLGATHER:
        request->recv_parts = size;
        request->send       = arguments_block(sbuf, arguments->sdtype, arguments->scount);
        request->recv       = arguments_block(arguments->rbuf, arguments->rdtype, arguments->rcount);
        return;
    case COLL_MPATH_ALLGATHERV:
        request->recv_parts = size;
        request->send       = arguments_block(sbuf, arguments->sdtype, arguments->scount);
        request->recv       = (mca_coll_mpath_args_t){.buffer   = arguments->rbuf,
                                                      .datatype = arguments->rdtype,
                                                      .counts   = arguments->rcounts,
                                                      .displs   = arguments->rdisps};
        return;
    case COLL_MPATH_ALLTOALLW:
        return;
    }
}

uint64_t mca_coll_mpath_arguments_bytes(const mca_coll_mpath_arguments_t *arguments, struct ompi_communicator_t *comm)
{
    uint64_t elements = UINT64_MAX;
    size_t bytes      = 0;

    switch (arguments->kind) {
    case COLL_MPATH_ALLTOALLV: /* nobody knows what the others send each other */
    case COLL_MPATH_ALLTOALL:  /* as MPI_Alltoallv */
    case COLL_MPATH_ALLTOALLW:
        return UINT64_MAX;
    case COLL_MPATH_ALLREDUCE:
        elements = (uint64_t)arguments->rcount;
        break;
    case COLL_MPATH_REDUCE_SCATTER_BLOCK:
    case COLL_MPATH_ALLGATHER:
        elements = (uint64_t)arguments->rcount * (uint64_t)mca_coll_mpath_arguments_parts(arguments, comm);
        break;
    case COLL_MPATH_REDUCE_SCATTER:
    case COLL_MPATH_ALLGATHERV:
        elements = arguments_elements(arguments, comm);
        break;
    }
    (void)ompi_datatype_type_size(arguments->rdtype, &bytes);
    return elements * (uint64_t)bytes;
}

bool mca_coll_mpath_arguments_need_copy(const mca_coll_mpath_arguments_t *arguments, struct ompi_communicator_t *comm)
{
    int rank = ompi_comm_rank(comm), size = ompi_comm_size(comm), step;

    if ((COLL_MPATH_ALLTOALLV != arguments->kind) || (MPI_IN_PLACE != arguments->sbuf) || OMPI_COMM_IS_INTER(comm)) {
        return false;
    }
    for (step = 1; step < (size + 1) / 2; step++) {
        if ((0 == COLL_MPATH_COUNT(arguments->rcounts, (rank + step) % size)) !=
            (0 == COLL_MPATH_COUNT(arguments->rcounts, (rank + size - step) % size))) {
            return true;
        }
    }
    return false;
}

int mca_coll_mpath_arguments_init(const mca_coll_mpath_arguments_t *a, mca_coll_mpath_module_t *m,
                                  struct ompi_communicator_t *comm, ompi_request_t **request_p)
{
    struct ompi_info_t *info = MPI_INFO_NULL;

    switch (a->kind) {
    case COLL_MPATH_ALLTOALLV:
        return m->previous_alltoallv_init(a->sbuf, a->scounts, a->sdisps, a->sdtype, a->rbuf, a->rcounts, a->rdisps,
                                          a->rdtype, comm, info, request_p, m->previous_alltoallv_init_module);
    case COLL_MPATH_ALLTOALL:
        return m->previous_alltoall_init(a->sbuf, a->scount, a->sdtype, a->rbuf, a->rcount, a->rdtype, comm, info,
                                         request_p, m->previous_alltoall_init_module);
    case COLL_MPATH_ALLREDUCE:
        return m->previous_allreduce_init(a->sbuf, a->rbuf, a->rcount, a->rdtype, a->op, comm, info, request_p,
                                          m->previous_allreduce_init_module);
    case COLL_MPATH_REDUCE_SCATTER:
        return m->previous_reduce_scatter_init(a->sbuf, a->rbuf, a->rcounts, a->rdtype, a->op, comm, info, request_p,
                                               m->previous_reduce_scatter_init_module);
    case COLL_MPATH_REDUCE_SCATTER_BLOCK:
        return m->previous_reduce_scatter_block_init(a->sbuf, a->rbuf, a->rcount, a->rdtype, a->op, comm, info,
                                                     request_p, m->previous_reduce_scatter_block_init_module);
    case COLL_MPATH_ALLGATHER:
        return m->previous_allgather_init(a->sbuf, a->scount, a->sdtype, a->rbuf, a->rcount, a->rdtype, comm, info,
                                          request_p, m->previous_allgather_init_module);
    case COLL_MPATH_ALLGATHERV:
        return m->previous_allgatherv_init(a->sbuf, a->scount, a->sdtype, a->rbuf, a->rcounts, a->rdisps, a->rdtype,
                                           comm, info, request_p, m->previous_allgatherv_init_module);
    case COLL_MPATH_ALLTOALLW:
        break;
    }
    return OMPI_ERR_NOT_SUPPORTED;
}

int mca_coll_mpath_arguments_pass(const mca_coll_mpath_arguments_t *a, mca_coll_mpath_module_t *m,
                                  struct ompi_communicator_t *comm, ompi_request_t **request_p)
{
    switch (a->kind) {
    case COLL_MPATH_ALLTOALLV:
        return m->previous_ialltoallv(a->sbuf, a->scounts, a->sdisps, a->sdtype, a->rbuf, a->rcounts, a->rdisps,
                                      a->rdtype, comm, request_p, m->previous_ialltoallv_module);
    case COLL_MPATH_ALLTOALL:
        return m->previous_ialltoall(a->sbuf, a->scount, a->sdtype, a->rbuf, a->rcount, a->rdtype, comm, request_p,
                                     m->previous_ialltoall_module);
    case COLL_MPATH_ALLREDUCE:
        return m->previous_iallreduce(a->sbuf, a->rbuf, a->rcount, a->rdtype, a->op, comm, request_p,
                                      m->previous_iallreduce_module);
    case COLL_MPATH_REDUCE_SCATTER:
        return m->previous_ireduce_scatter(a->sbuf, a->rbuf, a->rcounts, a->rdtype, a->op, comm, request_p,
                                           m->previous_ireduce_scatter_module);
    case COLL_MPATH_REDUCE_SCATTER_BLOCK:
        return m->previous_ireduce_scatter_block(a->sbuf, a->rbuf, a->rcount, a->rdtype, a->op, comm, request_p,
                                                 m->previous_ireduce_scatter_block_module);
    case COLL_MPATH_ALLGATHER:
        return m->previous_iallgather(a->sbuf, a->scount, a->sdtype, a->rbuf, a->rcount, a->rdtype, comm, request_p,
                                      m->previous_iallgather_module);
    case COLL_MPATH_ALLGATHERV:
        return m->previous_iallgatherv(a->sbuf, a->scount, a->sdtype, a->rbuf, a->rcounts, a->rdisps, a->rdtype, comm,
                                       request_p, m->previous_iallgatherv_module);
    case COLL_MPATH_ALLTOALLW:
        break;
    }
    return OMPI_ERR_NOT_SUPPORTED;
}
