/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Applications that end the CUDA context in which mpath has worked (cudaDeviceReset) and go on in a new one: on all
 * ranks or on one, with calls of every length before and after it; also right before MPI_Finalize. Arguments: the cases
 * to run.
 */
#include "mpi/cases.h"
#include "mpi/memory.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_MAX 16
#define LENGTHS 5

#define LONGEST 1100000

static const int lengths[LENGTHS] = {300, 5000, 70000, 600000, LONGEST}; /* bytes of a pair, or of a vector */

static int rank, size;

/* Byte i of a message is this and rising[i]. */
static unsigned char first_of(int source, int destination, int round)
{
    return (unsigned char)(source * 31 + destination * 7 + round * 13);
}

static unsigned char rising[LONGEST];

/* A buffer of this rank, aligned for integers; `host` is copied there. */
static unsigned char *buffer_new(const void *host, size_t bytes, unsigned char **allocation_p, unsigned seed)
{
    unsigned char *address;

    *allocation_p = memory_new(bytes + sizeof(int), seed);
    address       = *allocation_p + (sizeof(int) - (uintptr_t)*allocation_p % sizeof(int)) % sizeof(int);
    memory_put(address, host, bytes);
    return address;
}

static long alltoallv(MPI_Comm comm, int length, int round)
{
    size_t bytes = (size_t)length * (size_t)size;
    unsigned char *send_capacity, *recv_room, *host = malloc(bytes), *send, *recv;
    int counts[RANKS_MAX], offsets[RANKS_MAX];
    long errors;

    for (int peer = 0; peer < size; peer++) {
        unsigned char first = first_of(rank, peer, round);

        counts[peer]  = length;
        offsets[peer] = peer * length;
        for (int i = 0; i < length; i++) {
            host[offsets[peer] + i] = (unsigned char)(first + rising[i]);
        }
    }
    send = buffer_new(host, bytes, &send_capacity, (unsigned)round);
    memset(host, 0x5a, bytes);
    recv   = buffer_new(host, bytes, &recv_room, (unsigned)round + 1);
    errors = MPI_Alltoallv(send, counts, offsets, MPI_BYTE, recv, counts, offsets, MPI_BYTE, comm) != MPI_SUCCESS;
    memory_get(host, recv, bytes);
    for (int peer = 0; peer < size; peer++) {
        unsigned char first = first_of(peer, rank, round);

        for (int i = 0; i < length; i++) {
            errors += host[offsets[peer] + i] != (unsigned char)(first + rising[i]);
        }
    }
    memory_free(send_capacity);
    memory_free(recv_room);
    free(host);
    return errors;
}

static long allreduce(MPI_Comm comm, int length, int round, int blocking)
{
    int count = length / (int)sizeof(int), *host = malloc((size_t)length);
    unsigned char *send_capacity, *recv_room, *send, *recv;
    MPI_Request request;
    long errors;

    for (int i = 0; i < count; i++) {
        host[i] = rank * 100 + i % 1000 + round;
    }
    send = buffer_new(host, (size_t)length, &send_capacity, (unsigned)round);
    memset(host, 0x5a, (size_t)length);
    recv = buffer_new(host, (size_t)length, &recv_room, (unsigned)round);
    if (blocking) {
        errors = MPI_Allreduce(send, recv, count, MPI_INT, MPI_SUM, comm) != MPI_SUCCESS;
    } else {
        errors = MPI_Iallreduce(send, recv, count, MPI_INT, MPI_SUM, comm, &request) != MPI_SUCCESS;
        errors += MPI_Wait(&request, MPI_STATUS_IGNORE) != MPI_SUCCESS;
    }
    memory_get(host, recv, (size_t)length);
    for (int i = 0; i < count; i++) {
        errors += host[i] != size * (size - 1) / 2 * 100 + size * (i % 1000 + round);
    }
    memory_free(send_capacity);
    memory_free(recv_room);
    free(host);
    return errors;
}

static long allgather(MPI_Comm comm, int length, int round)
{
    size_t bytes = (size_t)length * (size_t)size;
    unsigned char *send_capacity, *recv_room, *host = malloc(bytes), *send, *recv;
    long errors;

    for (int i = 0; i < length; i++) {
        host[i] = (unsigned char)(first_of(rank, 0, round) + rising[i]);
    }
    send = buffer_new(host, (size_t)length, &send_capacity, (unsigned)round);
    memset(host, 0x5a, bytes);
    recv   = buffer_new(host, bytes, &recv_room, (unsigned)round);
    errors = MPI_Allgather(send, length, MPI_BYTE, recv, length, MPI_BYTE, comm) != MPI_SUCCESS;
    memory_get(host, recv, bytes);
    for (int peer = 0; peer < size; peer++) {
        unsigned char first = first_of(peer, 0, round);

        for (int i = 0; i < length; i++) {
            errors += host[peer * length + i] != (unsigned char)(first + rising[i]);
        }
    }
    memory_free(send_capacity);
    memory_free(recv_room);
    free(host);
    return errors;
}

#define CALLS 3 /* of each length: some ways are taken from the second or third one on */

static long calls(MPI_Comm comm, int round)
{
    long errors = 0;

    for (int i = 0; i < CALLS * LENGTHS; i++) {
        int length = lengths[i / CALLS];

        errors += alltoallv(comm, length, round + i);
        errors += allreduce(comm, length, round + i, i % CALLS != CALLS - 1);
        errors += allgather(comm, length, round + i);
    }
    return errors;
}

/* Not in the middle of somebody's call: what others still read of this rank's memory would go with the context. */
static void reset(MPI_Comm comm, int mine)
{
    MPI_Barrier(comm);
    if (mine) {
        memory_reset();
    }
}

static void run_all(void)
{
    long errors = calls(MPI_COMM_WORLD, 0);

    for (int round = 1; round <= 2; round++) {
        reset(MPI_COMM_WORLD, 1);
        errors += calls(MPI_COMM_WORLD, round * 100);
    }
    case_end("all", errors);
}

static void run_one(void)
{
    long errors = calls(MPI_COMM_WORLD, 0);

    for (int round = 1; round <= 2; round++) {
        reset(MPI_COMM_WORLD, rank == round - 1);
        errors += calls(MPI_COMM_WORLD, round * 100);
    }
    case_end("one", errors);
}

/* What mpath has moved from GPU to GPU so far. */
static unsigned long long moved_bytes(void)
{
    return cases_counter("coll_mpath_kernel_bytes") + cases_counter("coll_mpath_engine_bytes");
}

/* A communicator outlives the context in which it worked, and works in the next one; another one begins and outlives it. */
static void run_communicators(void)
{
    unsigned long long before = moved_bytes();
    long errors               = 0;
    int moves; /* memory that other processes cannot open goes through the host, before and after */
    MPI_Comm old, new;

    MPI_Comm_dup(MPI_COMM_WORLD, &old);
    errors += calls(old, 0);
    moves = moved_bytes() != before;
    reset(old, rank % 2 == 0);
    MPI_Comm_dup(MPI_COMM_WORLD, &new);
    errors += calls(new, 100);
    before = moved_bytes();
    errors += calls(old, 150);
    errors += (moved_bytes() != before) != moves;
    MPI_Comm_free(&old);
    errors += calls(new, 200);
    reset(new, 1);
    MPI_Comm_free(&new);
    case_end("communicators", errors);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"all", run_all}, {"one", run_one}, {"communicators", run_communicators}};

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < LONGEST; i++) {
        rising[i] = (unsigned char)(i + i / 251);
    }
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (case_wanted(argc, argv, cases[i].name)) {
            cases[i].run();
        }
    }
    cases_print_calls();
    reset(MPI_COMM_WORLD, 1);
    MPI_Finalize();
    return cases_failed() > 0;
}
