/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests, persistent ones too, and what is freed or comes while they are under way: cases of nonblocking.c. */
#include "mpi/memory.h"
#include "mpi/nonblocking_life.h"
#include "mpi/nonblocking_ops.h"

#include <stdio.h>
#include <stdlib.h>

#define STARTS 20
#define LIMIT_S 400

/* -- the life of requests, types and communicators -- */

static void add(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *count; i++) {
        ((int64_t *)inout)[i] += ((int64_t *)in)[i];
    }
}

/* Operations and communicators may be freed while they are in use; requests, too. */
long case_freed(void)
{
    enum { ELEMENTS = 30000 };
    int64_t *send = malloc(ELEMENTS * sizeof(*send)), *recv = malloc(ELEMENTS * sizeof(*recv));
    MPI_Request request;
    static operation_t given_up; /* its buffers stay: nobody hears when it has ended */
    operation_t left;
    long errors = 0;
    MPI_Comm comm;
    MPI_Op op;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int i = 0; i < ELEMENTS; i++) {
        send[i] = world_rank + i;
    }
    MPI_Op_create(add, 1, &op); /* mpath leaves it to the previous component */
    MPI_Iallreduce(send, recv, ELEMENTS, MPI_INT64_T, op, comm, &request);
    MPI_Op_free(&op);
    errors += MPI_Wait(&request, MPI_STATUS_IGNORE) != MPI_SUCCESS;
    for (int i = 0; i < ELEMENTS; i++) {
        errors += recv[i] != (int64_t)world_size * (world_size - 1) / 2 + (int64_t)world_size * i;
    }
    /* The last operation is given up by its owner, and so is the communicator; both end when it has ended. */
    operation_make(&given_up, KIND_ALLTOALLV, comm, 20000, 0, 5);
    errors += operation_start(&given_up) != MPI_SUCCESS;
    MPI_Request_free(&given_up.request);
    operation_make(&left, KIND_ALLREDUCE, comm, 20000, 0, 6);
    errors += operation_start(&left) != MPI_SUCCESS;
    MPI_Comm_free(&comm);
    errors += MPI_Wait(&left.request, MPI_STATUS_IGNORE) != MPI_SUCCESS;
    errors += operation_check(&left);
    operation_free(&left);
    free(send);
    free(recv);
    return errors;
}

/* Every so many elements one, `count` of them; the next block follows without a gap of its own. */
static MPI_Datatype gaps_type(int count, int stride)
{
    MPI_Datatype vector, type;

    MPI_Type_vector(count, 1, stride, MPI_INT64_T, &vector);
    MPI_Type_create_resized(vector, 0, (MPI_Aint)count * stride * (MPI_Aint)sizeof(int64_t), &type);
    MPI_Type_free(&vector);
    MPI_Type_commit(&type);
    return type;
}

/*
 * Types may be freed while they are in use. Rank 0 does so before the others have called, and makes new ones, which lie
 * where the old ones have lain if nobody has kept these.
 */
long case_freed_types(void)
{
    enum { BLOCK = 5000, STRIDE_OUT = 2, STRIDE_IN = 3, NEW_TYPES = 8 };
    MPI_Datatype out = gaps_type(BLOCK, STRIDE_OUT), in = gaps_type(BLOCK, STRIDE_IN), others[NEW_TYPES];
    size_t places = (size_t)world_size * BLOCK * STRIDE_IN;
    int64_t *send = malloc(BLOCK * STRIDE_OUT * sizeof(*send)), *recv = malloc(places * sizeof(*recv));
    int word    = 0;
    long errors = 0;
    MPI_Request request;

    for (int i = 0; i < BLOCK * STRIDE_OUT; i++) {
        send[i] = (int64_t)world_rank * 1000000 + i;
    }
    /* from the second call on nothing is made for the previous function before it is wanted, which would keep the types */
    MPI_Iallgather(send, BLOCK, MPI_INT64_T, recv, BLOCK, MPI_INT64_T, MPI_COMM_WORLD, &request);
    errors += MPI_Wait(&request, MPI_STATUS_IGNORE) != MPI_SUCCESS;
    for (size_t i = 0; i < places; i++) {
        recv[i] = -1;
    }
    if (world_rank > 0) {
        MPI_Recv(&word, 1, MPI_INT, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    errors += MPI_Iallgather(send, 1, out, recv, 1, in, MPI_COMM_WORLD, &request) != MPI_SUCCESS;
    MPI_Type_free(&out);
    MPI_Type_free(&in);
    for (int i = 0; i < NEW_TYPES; i++) {
        others[i] = gaps_type(BLOCK / 2, 1);
    }
    for (int rank = 1; (world_rank == 0) && (rank < world_size); rank++) {
        MPI_Send(&word, 1, MPI_INT, rank, 9, MPI_COMM_WORLD);
    }
    errors += MPI_Wait(&request, MPI_STATUS_IGNORE) != MPI_SUCCESS;
    for (size_t i = 0; i < places; i++) {
        int64_t rank = (int64_t)(i / (BLOCK * STRIDE_IN)), at = (int64_t)(i % (BLOCK * STRIDE_IN));

        errors += recv[i] != ((at % STRIDE_IN == 0) ? rank * 1000000 + at / STRIDE_IN * STRIDE_OUT : -1);
    }
    for (int i = 0; i < NEW_TYPES; i++) {
        MPI_Type_free(&others[i]);
    }
    free(send);
    free(recv);
    return errors;
}

/* -- the order of calls that mpath leaves to the previous component, which all ranks have to number alike -- */

/* Calls that have been numbered differently never end. */
static long wait_limited(MPI_Request *requests, int count)
{
    int done    = 0;
    long errors = 0;

    for (double end_s = MPI_Wtime() + LIMIT_S; !done;) {
        errors += MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS;
        if (!done && (MPI_Wtime() > end_s)) {
            printf("rank %d: operations do not end\n", world_rank);
            fflush(stdout);
            MPI_Abort(MPI_COMM_WORLD, 97);
        }
    }
    return errors;
}

/*
 * Three operations with gaps, for jobs whose pack_bytes of coll_mpath_internals is less: the ranks agree to decline them. Rank 0
 * learns that of the first one while it waits for the others with the second, and starts the third then; the others
 * start both after the first.
 */
long case_numbers(void)
{
    enum { BLOCK = 1000, STRIDE = 2, OPERATIONS = 4 };
    MPI_Datatype gaps = gaps_type(BLOCK, STRIDE);
    size_t places     = (size_t)world_size * BLOCK * STRIDE;
    int64_t *send     = malloc((size_t)world_size * BLOCK * sizeof(*send)),
            *recv     = calloc(OPERATIONS * places, sizeof(*recv));
    MPI_Request requests[OPERATIONS];
    int word    = 0;
    long errors = 0;
    MPI_Comm comm;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int i = 0; i < world_size * BLOCK; i++) {
        send[i] = (int64_t)world_rank * 1000000 + i;
    }
    for (int i = 0; i < OPERATIONS; i++) {
        errors += MPI_Ialltoall(send, BLOCK, MPI_INT64_T, recv + (size_t)i * places, 1, gaps, comm, &requests[i]) !=
                  MPI_SUCCESS;
        if (i == 0) { /* shows how the previous function numbers */
            errors += MPI_Wait(&requests[0], MPI_STATUS_IGNORE) != MPI_SUCCESS;
        } else if (i == ((world_rank == 0) ? 2 : 1)) {
            errors += MPI_Wait(&requests[1], MPI_STATUS_IGNORE) != MPI_SUCCESS;
        }
        if ((i == 1) && (world_rank > 0)) {
            MPI_Recv(&word, 1, MPI_INT, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    }
    for (int rank = 1; (world_rank == 0) && (rank < world_size); rank++) {
        MPI_Send(&word, 1, MPI_INT, rank, 9, MPI_COMM_WORLD);
    }
    errors += wait_limited(requests, OPERATIONS);
    for (size_t i = 0; i < OPERATIONS * places; i += STRIDE) {
        int64_t at = (int64_t)(i % places / STRIDE);

        errors += recv[i] != at / BLOCK * 1000000 + (int64_t)world_rank * BLOCK + at % BLOCK;
    }
    MPI_Type_free(&gaps);
    MPI_Comm_free(&comm);
    free(send);
    free(recv);
    return errors;
}

/* In place, MPI ignores the datatype of the send side, whatever it is. */
long case_no_send_type(void)
{
    static const int elements[] = {1, 40, 30011};
    MPI_Datatype no_type        = (MPI_Datatype)(uintptr_t)16; /* NOLINT: no address of anything */
    long errors                 = 0;

    for (size_t i = 0; i < sizeof(elements) / sizeof(elements[0]); i++) {
        operation_t operation;

        operation_make(&operation, KIND_ALLTOALL, MPI_COMM_WORLD, elements[i], 1, 3);
        operation_fill(&operation, 3);
        errors += MPI_Ialltoall(MPI_IN_PLACE, 0, no_type, operation.recv, elements[i], MPI_INT64_T, MPI_COMM_WORLD,
                                &operation.request) != MPI_SUCCESS;
        errors += MPI_Wait(&operation.request, MPI_STATUS_IGNORE) != MPI_SUCCESS;
        errors += operation_check(&operation);
        operation_free(&operation);
    }
    return errors;
}

/* A communicator of one process, on some processes only: the others' calls must not notice. */
long case_self(void)
{
    long errors = 0;

    for (int round = 0; round < 3; round++) {
        operation_t world, self;

        operation_make(&world, KIND_ALLTOALLV, MPI_COMM_WORLD, 20000, 0, (uint32_t)round);
        errors += operation_start(&world) != MPI_SUCCESS;
        if (world_rank % 2 == 0) {
            operation_make(&self, KIND_ALLTOALL, MPI_COMM_SELF, 500, 0, (uint32_t)round);
            errors += operation_start(&self) != MPI_SUCCESS;
            errors += MPI_Wait(&self.request, MPI_STATUS_IGNORE) != MPI_SUCCESS;
            errors += operation_check(&self);
            operation_free(&self);
        }
        errors += MPI_Wait(&world.request, MPI_STATUS_IGNORE) != MPI_SUCCESS;
        errors += operation_check(&world);
        operation_free(&world);
    }
    return errors;
}

/* Communicators that come and go while operations are under way on others. */
long case_communicators(void)
{
    long errors = 0;

    for (int round = 0; round < 8; round++) {
        operation_t operation, inner;
        MPI_Request request;
        MPI_Comm comm;

        operation_make(&operation, KIND_ALLREDUCE, MPI_COMM_WORLD, 50000, 0, (uint32_t)round);
        errors += operation_start(&operation) != MPI_SUCCESS;
        if (round % 2) {
            MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        } else {
            MPI_Comm_idup(MPI_COMM_WORLD, &comm, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        operation_make(&inner, (kind_t)(round % KINDS), comm, 3000, 0, (uint32_t)round);
        errors += operation_start(&inner) != MPI_SUCCESS;
        MPI_Comm_free(&comm);
        errors += MPI_Wait(&operation.request, MPI_STATUS_IGNORE) != MPI_SUCCESS;
        errors += MPI_Wait(&inner.request, MPI_STATUS_IGNORE) != MPI_SUCCESS;
        errors += operation_check(&operation) + operation_check(&inner);
        operation_free(&operation);
        operation_free(&inner);
    }
    return errors;
}

/* -- persistent requests -- */

static long start_many(operation_t *operations, int count)
{
    MPI_Request requests[KINDS];
    long errors = 0;

    for (int start = 0; start < STARTS; start++) {
        for (int i = 0; i < count; i++) {
            operation_fill(&operations[i], (uint32_t)(start * 10 + i));
            requests[i] = operations[i].request;
        }
        if (start % 2) {
            errors += MPI_Startall(count, requests) != MPI_SUCCESS;
        } else {
            for (int i = 0; i < count; i++) {
                errors += MPI_Start(&requests[i]) != MPI_SUCCESS;
            }
        }
        errors += MPI_Waitall(count, requests, MPI_STATUSES_IGNORE) != MPI_SUCCESS;
        for (int i = 0; i < count; i++) {
            errors += requests[i] != operations[i].request; /* still there */
            errors += operation_check(&operations[i]);
        }
    }
    return errors;
}

long case_persistent(void)
{
    operation_t operations[KINDS];
    unsigned long long plans;
    long errors = 0;

    for (int i = 0; i < KINDS; i++) {
        operation_make(&operations[i], (kind_t)i, MPI_COMM_WORLD, (i % 2) ? 20 : 3000, 0, (uint32_t)i);
        errors += operation_init(&operations[i]) != MPI_SUCCESS;
    }
    errors += start_many(operations, KINDS);
    plans = cases_counter("coll_mpath_plans");
    errors += start_many(operations, KINDS);
    /* between GPUs of a node ways are kept from the call before only */
    if (!memory_is_special() && (cases_counter("coll_mpath_plans") != plans)) {
        printf("rank %d: %llu plans for calls whose plan was known\n", world_rank,
               cases_counter("coll_mpath_plans") - plans);
        errors++;
    }
    for (int i = 0; i < KINDS; i++) {
        MPI_Request_free(&operations[i].request);
        operation_free(&operations[i]);
    }
    return errors;
}

/* Persistent requests of a communicator that is freed: one before it was ever used, others at different moments. */
long case_persistent_freed(void)
{
    operation_t operations[2];
    MPI_Request *requests[2] = {&operations[0].request, &operations[1].request};
    long errors              = 0;

    for (int used = 0; used < 3; used++) {
        MPI_Comm comm;

        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        for (int i = 0; i < 2; i++) {
            operation_make(&operations[i], i ? KIND_ALLREDUCE : KIND_ALLTOALLV, comm, 40000, 0, (uint32_t)i);
            errors += operation_init(&operations[i]) != MPI_SUCCESS;
        }
        if (used > 0) {
            errors += MPI_Start(requests[0]) != MPI_SUCCESS;
        }
        MPI_Comm_free(&comm);
        if (used == 0) {
            errors += MPI_Start(requests[0]) != MPI_SUCCESS;
        }
        if ((world_rank == 0) || (used == 2)) {
            errors += MPI_Wait(requests[0], MPI_STATUS_IGNORE) != MPI_SUCCESS;
        }
        errors += MPI_Start(requests[1]) != MPI_SUCCESS; /* on the other ranks the first one may still be under way */
        for (int i = 0; i < 2; i++) {
            errors += MPI_Wait(requests[i], MPI_STATUS_IGNORE) != MPI_SUCCESS;
            errors += operation_check(&operations[i]);
            MPI_Request_free(requests[i]);
            operation_free(&operations[i]);
        }
    }
    return errors;
}
