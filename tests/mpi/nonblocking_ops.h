/* SPDX-License-Identifier: BSD-3-Clause */
/* One non-blocking or persistent operation with its buffers, whose result can be checked: for nonblocking.c. */
#ifndef MPATH_TESTS_MPI_NONBLOCKING_OPS_H
#define MPATH_TESTS_MPI_NONBLOCKING_OPS_H

#include "mpi/cases.h"
#include "mpi/persistent.h"

#include <mpi.h>

typedef enum kind {
    KIND_ALLTOALLV,
    KIND_ALLTOALL,
    KIND_ALLREDUCE,
    KIND_REDUCE_SCATTER,
    KIND_REDUCE_SCATTER_BLOCK,
    KIND_ALLGATHER,
    KIND_ALLGATHERV,
    KINDS
} kind_t;

typedef struct operation {
    kind_t kind;
    MPI_Comm comm;
    int rank, size, in_place;
    int elements; /* about as many int64_t for each rank */
    uint32_t round;
    MPI_Datatype type;
    MPI_Op op; /* MPI_SUM, or one that does the same */
    int *send_counts, *send_offsets, *recv_counts, *recv_offsets;
    size_t send_elements, recv_elements;
    int64_t *send_host, *recv_host;
    void *send, *recv; /* in the kind of memory that the tests run on; 16 bytes of guard behind recv */
    MPI_Request request;
} operation_t;

/* Makes the buffers. The same arguments on all ranks. */
void operation_make(operation_t *operation, kind_t kind, MPI_Comm comm, int elements, int in_place, uint32_t seed);
/* Fills the buffers with the contents of a round. */
void operation_fill(operation_t *operation, uint32_t round);
/* Starts it; an MPI error code. Of its counts and offsets the call gets copies that go when it returns. */
int operation_start(operation_t *operation);
/* Makes a persistent request, likewise; nonzero: this MPI has none. */
int operation_init(operation_t *operation);
/* The blocking function. */
int operation_block(operation_t *operation);
/* Number of wrong elements. */
long operation_check(operation_t *operation);
void operation_free(operation_t *operation);

/* Reductions with user-defined operations, which the previous functions run: non-blocking and persistent. Errors. */
long operations_user(void);

#endif
