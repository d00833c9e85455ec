/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives between the two groups of an intercommunicator, on the kinds of memory that MPATH_TEST_MEMORY names:
 * groups of different sizes, blocking, non-blocking and persistent, short and long. mpath has no part in them but that
 * buffers which only devices can read get copies.
 */
#include "mpi/memory.h"
#include "mpi/nonblocking_ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An intercommunicator, and this rank's place in it: the others are group 1 - group. */
typedef struct place {
    MPI_Comm comm;
    int group, rank, size, others;
} place_t;

/* Element `i` of what the rank of a group hands over. */
static int element(int group, int rank, int i)
{
    return group * 100000 + rank * 10000 + i % 9000;
}

/* In memory of the tests; the copy on the host is made by rank and group. */
static int *sent(const place_t *place, int count, unsigned number)
{
    int *host = malloc((size_t)count * sizeof(int) + 4), *memory = memory_new((size_t)count * sizeof(int) + 4, number);

    for (int i = 0; i < count; i++) {
        host[i] = element(place->group, place->rank, i);
    }
    memory_put(memory, host, (size_t)count * sizeof(int));
    free(host);
    return memory;
}

/* Frees both buffers. `received` has come to the host. */
static int *took(int *send, int *recv, int count)
{
    int *received = malloc((size_t)count * sizeof(int) + 4);

    memory_get(received, recv, (size_t)count * sizeof(int));
    memory_free(send);
    memory_free(recv);
    return received;
}

typedef enum how { BLOCKING, NONBLOCKING, PERSISTENT, HOWS } how_t;

static int finish(int rc, MPI_Request *request)
{
    return (rc == MPI_SUCCESS) ? MPI_Wait(request, MPI_STATUS_IGNORE) : rc;
}

#if OPS_PERSISTENT
/* Twice, with the same data. */
static int finish_twice(int rc, MPI_Request *request)
{
    for (int i = 0; (rc == MPI_SUCCESS) && (i < 2); i++) {
        rc = MPI_Start(request);
        rc = finish(rc, request);
    }
    return (rc == MPI_SUCCESS) ? MPI_Request_free(request) : rc;
}

#define CALL_PERSISTENT(_Name, _request, ...)                                                                          \
    finish_twice(OPS_INIT(_Name)(__VA_ARGS__, MPI_INFO_NULL, _request), _request)
#else
#define CALL_PERSISTENT(_Name, _request, ...) MPI_##_Name(__VA_ARGS__)
#endif

#define CALL(_how, _Name, _name, _request, ...)                                                                        \
    (((_how) == BLOCKING)      ? MPI_##_Name(__VA_ARGS__)                                                              \
     : ((_how) == NONBLOCKING) ? finish(MPI_I##_name(__VA_ARGS__, _request), _request)                                 \
                               : CALL_PERSISTENT(_Name, _request, __VA_ARGS__))

/* What rank r of the others has for this rank begins at r + 1 times count of its data, with gaps between here. */
static long check_alltoallv(const place_t *place, int count, how_t how)
{
    int n = place->others, stride = count + 3, total = n * stride;
    int *send = sent(place, (n + 1) * count, 2), *recv = sent(place, total, 3), *received;
    int *counts = malloc(3 * (size_t)n * sizeof(int)), *from = counts + n, *to = counts + 2 * n, rc;
    MPI_Request request;
    long errors;

    for (int i = 0; i < n; i++) {
        counts[i] = count;
        from[i]   = i * count;
        to[i]     = i * stride;
    }
    rc = CALL(how, Alltoallv, alltoallv, &request, send, counts, from, MPI_INT, recv, counts, to, MPI_INT, place->comm);
    errors   = rc != MPI_SUCCESS;
    received = took(send, recv, total);
    for (int i = 0; i < total; i++) {
        int expected = (i % stride < count) ? element(1 - place->group, i / stride, place->rank * count + i % stride)
                                            : element(place->group, place->rank, i);

        errors += received[i] != expected;
    }
    free(counts);
    free(received);
    return errors;
}

static long check_alltoall(const place_t *place, int count, how_t how)
{
    int n = place->others, *send = sent(place, n * count, 4), *recv = sent(place, n * count, 5), *received, rc;
    MPI_Request request;
    long errors;

    rc       = CALL(how, Alltoall, alltoall, &request, send, count, MPI_INT, recv, count, MPI_INT, place->comm);
    errors   = rc != MPI_SUCCESS;
    received = took(send, recv, n * count);
    for (int i = 0; i < n * count; i++) {
        errors += received[i] != element(1 - place->group, i / count, place->rank * count + i % count);
    }
    free(received);
    return errors;
}

/* The others' sum. */
static long check_allreduce(const place_t *place, int count, how_t how)
{
    int *send = sent(place, count, 6), *recv = sent(place, count, 7), *received, rc;
    MPI_Request request;
    long errors;

    rc       = CALL(how, Allreduce, allreduce, &request, send, recv, count, MPI_INT, MPI_SUM, place->comm);
    errors   = rc != MPI_SUCCESS;
    received = took(send, recv, count);
    for (int i = 0; i < count; i++) {
        int sum = 0;

        for (int rank = 0; rank < place->others; rank++) {
            sum += element(1 - place->group, rank, i);
        }
        errors += received[i] != sum;
    }
    free(received);
    return errors;
}

/* Of the others' sum, as many elements for each rank of a group as the other group has ranks: both have the same. */
static long check_reduce_scatter(const place_t *place, int count, how_t how, int block)
{
    int mine = count * place->others, total = mine * place->size;
    int *send = sent(place, total, 8), *recv = sent(place, mine, 9), *received, rc;
    int *counts = malloc((size_t)place->size * sizeof(int));
    MPI_Request request;
    long errors;

    for (int rank = 0; rank < place->size; rank++) {
        counts[rank] = mine;
    }
    rc     = block ? CALL(how, Reduce_scatter_block, reduce_scatter_block, &request, send, recv, mine, MPI_INT, MPI_SUM,
                          place->comm)
                   : CALL(how, Reduce_scatter, reduce_scatter, &request, send, recv, counts, MPI_INT, MPI_SUM, place->comm);
    errors = rc != MPI_SUCCESS;
    received = took(send, recv, mine);
    for (int i = 0; i < mine; i++) {
        int sum = 0;

        for (int rank = 0; rank < place->others; rank++) {
            sum += element(1 - place->group, rank, place->rank * mine + i);
        }
        errors += received[i] != sum;
    }
    free(counts);
    free(received);
    return errors;
}

/* All blocks of the others; with displacements in the opposite order. */
static long check_allgather(const place_t *place, int count, how_t how, int with_counts)
{
    int n = place->others, *send = sent(place, count, 10), *recv = sent(place, n * count, 11), *received, rc;
    int *counts = malloc(2 * (size_t)n * sizeof(int)), *at = counts + n;
    MPI_Request request;
    long errors;

    for (int rank = 0; rank < n; rank++) {
        counts[rank] = count;
        at[rank]     = (n - 1 - rank) * count;
    }
    rc       = with_counts
                   ? CALL(how, Allgatherv, allgatherv, &request, send, count, MPI_INT, recv, counts, at, MPI_INT, place->comm)
                   : CALL(how, Allgather, allgather, &request, send, count, MPI_INT, recv, count, MPI_INT, place->comm);
    errors   = rc != MPI_SUCCESS;
    received = took(send, recv, n * count);
    for (int i = 0; i < n * count; i++) {
        int rank = with_counts ? n - 1 - i / count : i / count;

        errors += received[i] != element(1 - place->group, rank, i % count);
    }
    free(counts);
    free(received);
    return errors;
}

typedef long (*check_t)(const place_t *place, int count, how_t how);

static long reduce_scatter(const place_t *place, int count, how_t how)
{
    return check_reduce_scatter(place, count, how, 0);
}

static long reduce_scatter_block(const place_t *place, int count, how_t how)
{
    return check_reduce_scatter(place, count, how, 1);
}

static long allgather(const place_t *place, int count, how_t how)
{
    return check_allgather(place, count, how, 0);
}

static long allgatherv(const place_t *place, int count, how_t how)
{
    return check_allgather(place, count, how, 1);
}

/* Rank 0 alone in group 0: the groups differ in size. */
static void place_make(place_t *place)
{
    MPI_Comm local;
    int rank;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    place->group = rank > 0;
    MPI_Comm_split(MPI_COMM_WORLD, place->group, rank, &local);
    MPI_Intercomm_create(local, 0, MPI_COMM_WORLD, 1 - place->group, 7, &place->comm);
    MPI_Comm_free(&local);
    MPI_Comm_rank(place->comm, &place->rank);
    MPI_Comm_size(place->comm, &place->size);
    MPI_Comm_remote_size(place->comm, &place->others);
}

int main(int argc, char **argv)
{
    const struct {
        const char *name;
        check_t check;
    } cases[]          = {{"alltoallv", check_alltoallv},
                          {"alltoall", check_alltoall},
                          {"allreduce", check_allreduce},
                          {"reduce_scatter", reduce_scatter},
                          {"reduce_scatter_block", reduce_scatter_block},
                          {"allgather", allgather},
                          {"allgatherv", allgatherv}};
    const int counts[] = {1, 17, 30000};
    place_t place;

    MPI_Init(&argc, &argv);
    place_make(&place);
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        long errors = 0;

        for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
            for (int how = 0; how < HOWS; how++) {
                errors += cases[c].check(&place, counts[k], (how_t)how);
            }
        }
        case_end(cases[c].name, errors);
    }
    MPI_Comm_free(&place.comm);
    MPI_Finalize();
    return cases_failed() != 0;
}
