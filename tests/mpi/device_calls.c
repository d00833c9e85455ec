/* SPDX-License-Identifier: BSD-3-Clause */
/* See device_calls.h. */
#include "mpi/device_calls.h"
#include "mpi/memory.h"

#include <stdint.h>
#include <stdlib.h>

static unsigned number; /* of the call: the same on all ranks */

typedef struct copy {
    void *memory;
    char *buffer; /* inside */
} copy_t;

static size_t extent_of(MPI_Datatype type)
{
    MPI_Aint lb, extent;

    MPI_Type_get_extent(type, &lb, &extent);
    return (size_t)extent;
}

/* At multiples of 16 now, at others of 8 then, differing by rank and side. */
static copy_t copy_of(const void *host, size_t bytes, unsigned side)
{
    copy_t copy;
    int rank;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    copy.memory = memory_new(bytes + 64, 2 * number + side);
    copy.buffer = (char *)(((uintptr_t)copy.memory + 15) / 16 * 16);
    if (number % 3 == 2) {
        copy.buffer += 8 * (((unsigned)rank + side) % 3);
    }
    memory_put(copy.buffer, host, bytes);
    return copy;
}

/* One call: both sides, bytes with the guard. */
typedef struct call {
    const void *send; /* MPI_IN_PLACE, or the copy */
    void *host;
    copy_t sent, received;
    size_t bytes;
} call_t;

static call_t begin(const void *send, size_t send_bytes, void *recv, size_t recv_bytes)
{
    call_t call = {.send = send, .host = recv, .bytes = recv_bytes + DEVICE_GUARD};

    number++;
    if (send != MPI_IN_PLACE) {
        call.sent = copy_of(send, send_bytes, 0);
        call.send = call.sent.buffer;
    }
    call.received = copy_of(recv, call.bytes, 1);
    return call;
}

static int end(call_t *call, int rc)
{
    memory_get(call->host, call->received.buffer, call->bytes);
    memory_free(call->received.memory);
    if (call->sent.memory != NULL) {
        memory_free(call->sent.memory);
    }
    return rc;
}

int device_allreduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    size_t bytes = (size_t)count * extent_of(type);
    call_t call;

    if (!memory_is_special()) {
        return MPI_Allreduce(send, recv, count, type, op, comm);
    }
    call = begin(send, bytes, recv, bytes);
    return end(&call, MPI_Allreduce(call.send, call.received.buffer, count, type, op, comm));
}

int device_reduce_scatter(const void *send, void *recv, const int *counts, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    size_t extent = extent_of(type), total = 0;
    int rank, size;
    call_t call;

    if (!memory_is_special()) {
        return MPI_Reduce_scatter(send, recv, counts, type, op, comm);
    }
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int i = 0; i < size; i++) {
        total += (size_t)counts[i];
    }
    call = begin(send, total * extent, recv, ((send == MPI_IN_PLACE) ? total : (size_t)counts[rank]) * extent);
    return end(&call, MPI_Reduce_scatter(call.send, call.received.buffer, counts, type, op, comm));
}

int device_reduce_scatter_block(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    size_t bytes = (size_t)count * extent_of(type);
    int size;
    call_t call;

    if (!memory_is_special()) {
        return MPI_Reduce_scatter_block(send, recv, count, type, op, comm);
    }
    MPI_Comm_size(comm, &size);
    call = begin(send, bytes * (size_t)size, recv, (send == MPI_IN_PLACE) ? bytes * (size_t)size : bytes);
    return end(&call, MPI_Reduce_scatter_block(call.send, call.received.buffer, count, type, op, comm));
}

int device_allgather(const void *send, int send_count, void *recv, int recv_count, MPI_Datatype type, MPI_Comm comm)
{
    size_t extent = extent_of(type);
    int size;
    call_t call;

    if (!memory_is_special()) {
        return MPI_Allgather(send, send_count, type, recv, recv_count, type, comm);
    }
    MPI_Comm_size(comm, &size);
    call = begin(send, (size_t)send_count * extent, recv, (size_t)recv_count * (size_t)size * extent);
    return end(&call, MPI_Allgather(call.send, send_count, type, call.received.buffer, recv_count, type, comm));
}

int device_allgatherv(const void *send, int send_count, void *recv, const int *counts, const int *displs,
                      MPI_Datatype type, MPI_Comm comm)
{
    size_t extent = extent_of(type), capacity = 0;
    int size;
    call_t call;

    if (!memory_is_special()) {
        return MPI_Allgatherv(send, send_count, type, recv, counts, displs, type, comm);
    }
    MPI_Comm_size(comm, &size);
    for (int i = 0; i < size; i++) {
        size_t last = (size_t)displs[i] + (size_t)counts[i];

        capacity = (last > capacity) ? last : capacity;
    }
    call = begin(send, (size_t)send_count * extent, recv, capacity * extent);
    return end(&call, MPI_Allgatherv(call.send, send_count, type, call.received.buffer, counts, displs, type, comm));
}
