/* SPDX-License-Identifier: BSD-3-Clause */
/* See nonblocking_ops.h. */
#include "mpi/nonblocking_ops.h"
#include "mpi/memory.h"

#include <stdlib.h>
#include <string.h>

#define GUARD 2

/* What rank `from` contributes at `at`; `to` matters where ranks send each other different data. */
static int64_t value(const operation_t *operation, int from, int to, size_t at)
{
    return (int64_t)(from + 1) * 1000003 + (int64_t)(to + 1) * 101 + (int64_t)(at % 4099) * 7 +
           (int64_t)(operation->round % 97) * 13;
}

/* Elements from one rank to another of the unequal kinds; some are 0. */
static int count_of(const operation_t *operation, int from, int to)
{
    return (int)((unsigned)(from * 5 + to * 3) % 4) * (operation->elements / 2);
}

static int64_t *host_new(size_t elements)
{
    int64_t *host = malloc((elements + GUARD) * sizeof(*host));

    if (host == NULL) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    return host;
}

static void set_counts(operation_t *operation)
{
    size_t send = 0, recv = 0;

    for (int peer = 0; peer < operation->size; peer++) {
        switch (operation->kind) {
        case KIND_ALLTOALLV:
            operation->send_counts[peer] = operation->in_place
                                               ? count_of(operation, operation->rank + peer, 0) /* symmetric */
                                               : count_of(operation, operation->rank, peer);
            operation->recv_counts[peer] = operation->in_place ? operation->send_counts[peer]
                                                               : count_of(operation, peer, operation->rank);
            break;
        case KIND_REDUCE_SCATTER:
        case KIND_ALLGATHERV:
            operation->send_counts[peer] = operation->recv_counts[peer] = count_of(operation, peer, 1);
            break;
        default:
            operation->send_counts[peer] = operation->recv_counts[peer] = operation->elements;
        }
        operation->send_offsets[peer] = (int)send;
        operation->recv_offsets[peer] = (int)recv;
        send += (size_t)operation->send_counts[peer];
        recv += (size_t)operation->recv_counts[peer];
    }
    operation->send_elements = send;
    operation->recv_elements = recv;
}

static void set_sizes(operation_t *operation)
{
    switch (operation->kind) {
    case KIND_ALLREDUCE:
        operation->send_elements = operation->recv_elements = (size_t)operation->elements;
        break;
    case KIND_REDUCE_SCATTER:
    case KIND_REDUCE_SCATTER_BLOCK:
        if (!operation->in_place) {
            operation->recv_elements = (size_t)operation->recv_counts[operation->rank];
        }
        break;
    case KIND_ALLGATHER:
    case KIND_ALLGATHERV:
        operation->send_elements = (size_t)operation->send_counts[operation->rank];
        break;
    default:
        break;
    }
}

void operation_make(operation_t *operation, kind_t kind, MPI_Comm comm, int elements, int in_place, uint32_t seed)
{
    memset(operation, 0, sizeof(*operation));
    operation->kind     = kind;
    operation->comm     = comm;
    operation->elements = elements;
    operation->in_place = in_place;
    operation->type     = MPI_INT64_T;
    operation->op       = MPI_SUM;
    operation->request  = MPI_REQUEST_NULL;
    MPI_Comm_rank(comm, &operation->rank);
    MPI_Comm_size(comm, &operation->size);
    operation->send_counts = calloc(4 * (size_t)operation->size, sizeof(int));
    if (operation->send_counts == NULL) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    operation->send_offsets = operation->send_counts + operation->size;
    operation->recv_counts  = operation->send_offsets + operation->size;
    operation->recv_offsets = operation->recv_counts + operation->size;
    set_counts(operation);
    set_sizes(operation);
    operation->send_host = host_new(operation->send_elements);
    operation->recv_host = host_new(operation->recv_elements);
    operation->send      = memory_new((operation->send_elements + GUARD) * sizeof(int64_t), 2 * seed);
    operation->recv      = memory_new((operation->recv_elements + GUARD) * sizeof(int64_t), 2 * seed + 1);
    operation_fill(operation, seed);
}

/* The contribution of `from`, in the layout of a send buffer. */
static int64_t sent(const operation_t *operation, int from, size_t at)
{
    return value(operation, from, 0, at);
}

static void fill_pieces(const operation_t *operation, int64_t *host, const int *counts, const int *offsets)
{
    for (int peer = 0; peer < operation->size; peer++) {
        for (int i = 0; i < counts[peer]; i++) {
            host[offsets[peer] + i] = value(operation, operation->rank, peer, (size_t)i);
        }
    }
}

void operation_fill(operation_t *operation, uint32_t round)
{
    int64_t *send = operation->in_place ? operation->recv_host : operation->send_host;
    int gathers   = (operation->kind == KIND_ALLGATHER) || (operation->kind == KIND_ALLGATHERV);

    operation->round = round;
    for (size_t i = 0; i < operation->recv_elements + GUARD; i++) {
        operation->recv_host[i] = -7;
    }
    if ((operation->kind == KIND_ALLTOALLV) || (operation->kind == KIND_ALLTOALL)) {
        fill_pieces(operation, send, operation->send_counts, operation->send_offsets);
    } else {
        size_t first = (gathers && operation->in_place) ? (size_t)operation->recv_offsets[operation->rank] : 0;

        for (size_t i = 0; i < operation->send_elements; i++) {
            send[first + i] = sent(operation, operation->rank, i);
        }
    }
    memory_put(operation->send, operation->send_host, operation->send_elements * sizeof(int64_t));
    memory_put(operation->recv, operation->recv_host, (operation->recv_elements + GUARD) * sizeof(int64_t));
}

#define SEND(_operation) ((_operation)->in_place ? MPI_IN_PLACE : (_operation)->send)

static int start(operation_t *o)
{
    switch (o->kind) {
    case KIND_ALLTOALLV:
        return MPI_Ialltoallv(SEND(o), o->send_counts, o->send_offsets, o->type, o->recv, o->recv_counts,
                              o->recv_offsets, o->type, o->comm, &o->request);
    case KIND_ALLTOALL:
        return MPI_Ialltoall(SEND(o), o->elements, o->type, o->recv, o->elements, o->type, o->comm, &o->request);
    case KIND_ALLREDUCE:
        return MPI_Iallreduce(SEND(o), o->recv, o->elements, o->type, o->op, o->comm, &o->request);
    case KIND_REDUCE_SCATTER:
        return MPI_Ireduce_scatter(SEND(o), o->recv, o->recv_counts, o->type, o->op, o->comm, &o->request);
    case KIND_REDUCE_SCATTER_BLOCK:
        return MPI_Ireduce_scatter_block(SEND(o), o->recv, o->elements, o->type, o->op, o->comm, &o->request);
    case KIND_ALLGATHER:
        return MPI_Iallgather(SEND(o), o->elements, o->type, o->recv, o->elements, o->type, o->comm, &o->request);
    default:
        return MPI_Iallgatherv(SEND(o), (int)o->send_elements, o->type, o->recv, o->recv_counts, o->recv_offsets,
                               o->type, o->comm, &o->request);
    }
}

static int init(operation_t *o)
{
#if OPS_PERSISTENT
    const MPI_Info info = MPI_INFO_NULL;

    switch (o->kind) {
    case KIND_ALLTOALLV:
        return OPS_INIT(Alltoallv)(SEND(o), o->send_counts, o->send_offsets, o->type, o->recv, o->recv_counts,
                                   o->recv_offsets, o->type, o->comm, info, &o->request);
    case KIND_ALLTOALL:
        return OPS_INIT(Alltoall)(SEND(o), o->elements, o->type, o->recv, o->elements, o->type, o->comm, info,
                                  &o->request);
    case KIND_ALLREDUCE:
        return OPS_INIT(Allreduce)(SEND(o), o->recv, o->elements, o->type, o->op, o->comm, info, &o->request);
    case KIND_REDUCE_SCATTER:
        return OPS_INIT(Reduce_scatter)(SEND(o), o->recv, o->recv_counts, o->type, o->op, o->comm, info, &o->request);
    case KIND_REDUCE_SCATTER_BLOCK:
        return OPS_INIT(Reduce_scatter_block)(SEND(o), o->recv, o->elements, o->type, o->op, o->comm, info,
                                              &o->request);
    case KIND_ALLGATHER:
        return OPS_INIT(Allgather)(SEND(o), o->elements, o->type, o->recv, o->elements, o->type, o->comm, info,
                                   &o->request);
    default:
        return OPS_INIT(Allgatherv)(SEND(o), (int)o->send_elements, o->type, o->recv, o->recv_counts, o->recv_offsets,
                                    o->type, o->comm, info, &o->request);
    }
#else
    (void)o;
    return MPI_ERR_OTHER;
#endif
}

/* With arrays that are overwritten and freed when the call has returned, as those of a binding such as mpi4py's are. */
static int with_short_lived_arrays(operation_t *operation, int (*call)(operation_t *))
{
    size_t bytes     = 4 * (size_t)operation->size * sizeof(int);
    operation_t lent = *operation;
    int status;

    lent.send_counts = malloc(bytes);
    if (lent.send_counts == NULL) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    memcpy(lent.send_counts, operation->send_counts, bytes);
    lent.send_offsets = lent.send_counts + operation->size;
    lent.recv_counts  = lent.send_offsets + operation->size;
    lent.recv_offsets = lent.recv_counts + operation->size;
    status            = call(&lent);
    memset(lent.send_counts, 0x5a, bytes);
    free(lent.send_counts);
    operation->request = lent.request;
    return status;
}

int operation_start(operation_t *operation)
{
    return with_short_lived_arrays(operation, start);
}

int operation_init(operation_t *operation)
{
    return with_short_lived_arrays(operation, init);
}

int operation_block(operation_t *o)
{
    switch (o->kind) {
    case KIND_ALLTOALLV:
        return MPI_Alltoallv(SEND(o), o->send_counts, o->send_offsets, o->type, o->recv, o->recv_counts,
                             o->recv_offsets, o->type, o->comm);
    case KIND_ALLTOALL:
        return MPI_Alltoall(SEND(o), o->elements, o->type, o->recv, o->elements, o->type, o->comm);
    case KIND_ALLREDUCE:
        return MPI_Allreduce(SEND(o), o->recv, o->elements, o->type, o->op, o->comm);
    case KIND_REDUCE_SCATTER:
        return MPI_Reduce_scatter(SEND(o), o->recv, o->recv_counts, o->type, o->op, o->comm);
    case KIND_REDUCE_SCATTER_BLOCK:
        return MPI_Reduce_scatter_block(SEND(o), o->recv, o->elements, o->type, o->op, o->comm);
    case KIND_ALLGATHER:
        return MPI_Allgather(SEND(o), o->elements, o->type, o->recv, o->elements, o->type, o->comm);
    default:
        return MPI_Allgatherv(SEND(o), (int)o->send_elements, o->type, o->recv, o->recv_counts, o->recv_offsets,
                              o->type, o->comm);
    }
}

static int64_t sum_of(const operation_t *operation, size_t at)
{
    int64_t sum = 0;

    for (int rank = 0; rank < operation->size; rank++) {
        sum += sent(operation, rank, at);
    }
    return sum;
}

static long check_pieces(const operation_t *operation)
{
    long errors = 0;

    for (int peer = 0; peer < operation->size; peer++) {
        for (int i = 0; i < operation->recv_counts[peer]; i++) {
            int64_t expected = ((operation->kind == KIND_ALLTOALLV) || (operation->kind == KIND_ALLTOALL))
                                   ? value(operation, peer, operation->rank, (size_t)i)
                                   : sent(operation, peer, (size_t)i);

            errors += operation->recv_host[operation->recv_offsets[peer] + i] != expected;
        }
    }
    return errors;
}

long operation_check(operation_t *operation)
{
    size_t first = 0, count = 0;
    long errors = 0;

    memory_get(operation->recv_host, operation->recv, (operation->recv_elements + GUARD) * sizeof(int64_t));
    for (size_t i = operation->recv_elements; i < operation->recv_elements + GUARD; i++) {
        errors += operation->recv_host[i] != -7;
    }
    switch (operation->kind) {
    case KIND_ALLREDUCE:
        count = (size_t)operation->elements;
        break;
    case KIND_REDUCE_SCATTER:
    case KIND_REDUCE_SCATTER_BLOCK:
        first = (size_t)operation->recv_offsets[operation->rank];
        count = (size_t)operation->recv_counts[operation->rank];
        break;
    default:
        return errors + check_pieces(operation);
    }
    for (size_t i = 0; i < count; i++) {
        errors += operation->recv_host[i] != sum_of(operation, first + i);
    }
    return errors;
}

void operation_free(operation_t *operation)
{
    free(operation->send_counts);
    free(operation->send_host);
    free(operation->recv_host);
    memory_free(operation->send);
    memory_free(operation->recv);
}

/* -- user-defined operations -- */

/* Open MPI's own functions give it vectors at any address. */
static void user_sum(void *in, void *inout, int *count, MPI_Datatype *type)
{
    char *to = inout, *from = in;

    (void)type;
    for (int i = 0; i < *count; i++, to += sizeof(int64_t), from += sizeof(int64_t)) {
        int64_t left, right;

        memcpy(&left, from, sizeof(left));
        memcpy(&right, to, sizeof(right));
        left += right;
        memcpy(to, &left, sizeof(left));
    }
}

/* Two calls by a request, which is made anew for each where it is not persistent. */
static long check_user(operation_t *operation, int persistent)
{
    long errors = persistent ? operation_init(operation) != MPI_SUCCESS : 0;

    for (uint32_t round = 0; round < 2; round++) {
        operation_fill(operation, round);
        errors += (persistent ? MPI_Start(&operation->request) : operation_start(operation)) != MPI_SUCCESS;
        errors += MPI_Wait(&operation->request, MPI_STATUS_IGNORE) != MPI_SUCCESS;
        errors += operation_check(operation);
    }
    if (persistent) {
        MPI_Request_free(&operation->request);
    }
    return errors;
}

long operations_user(void)
{
    static const kind_t kinds[] = {KIND_ALLREDUCE, KIND_REDUCE_SCATTER, KIND_REDUCE_SCATTER_BLOCK};
    long errors                 = 0;

    for (int commutes = 0; commutes < 2; commutes++) {
        MPI_Op op;

        MPI_Op_create(user_sum, commutes, &op);
        for (size_t i = 0; i < 2 * sizeof(kinds) / sizeof(kinds[0]); i++) {
            operation_t operation;

            operation_make(&operation, kinds[i / 2], MPI_COMM_WORLD, (i % 2) ? 20 : 9000, (int)(i % 2), 7);
            operation.op = op;
            errors += check_user(&operation, 0);
            errors += OPS_PERSISTENT ? check_user(&operation, 1) : 0;
            operation_free(&operation);
        }
        MPI_Op_free(&op);
    }
    return errors;
}
