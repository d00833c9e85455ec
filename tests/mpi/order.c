/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parameter sync with the value "device": MPI_Alltoallv, MPI_Allreduce and a short MPI_Iallreduce are called while the
 * copies that bring the data, to memory of a device or of the host that it reaches, are still far back on a stream of
 * the application, behind fills with something else, and have to take the right data.
 */
#include "mpi/cases.h"
#include "mpi/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE 5000
#define SHORT 50
#define FILLS 20
#define ROUNDS 3

static unsigned char value_of(int source, int destination, int round, int position)
{
    return (unsigned char)(source * 31 + destination * 7 + round * 13 + position);
}

static int alltoallv_is_right(int rank, int size, int round, unsigned char *host, void *send, void *receive,
                              const int *counts, const int *offsets)
{
    unsigned char *back = malloc((size_t)size * PIECE);
    int wrong           = 0;

    for (int i = 0; i < size * PIECE; i++) {
        host[i] = value_of(rank, i / PIECE, round, i);
    }
    memory_put_late(send, host, (size_t)size * PIECE, FILLS);
    MPI_Alltoallv(send, counts, offsets, MPI_BYTE, receive, counts, offsets, MPI_BYTE, MPI_COMM_WORLD);
    memory_get(back, receive, (size_t)size * PIECE);
    for (int i = 0; i < size * PIECE; i++) {
        wrong += back[i] != value_of(i / PIECE, rank, round, rank * PIECE + i % PIECE);
    }
    free(back);
    return wrong == 0;
}

static int allreduce_is_right(int rank, int size, int round, int count, int *host, void *send, void *receive)
{
    int *back = malloc(PIECE * sizeof(int)), wrong = 0;
    MPI_Request request;

    for (int i = 0; i < count; i++) {
        host[i] = rank + i + round;
    }
    memory_put_late(send, host, (size_t)count * sizeof(int), FILLS);
    if (count == PIECE) {
        MPI_Allreduce(send, receive, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    } else {
        MPI_Iallreduce(send, receive, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    memory_get(back, receive, (size_t)count * sizeof(int));
    for (int i = 0; i < count; i++) {
        wrong += back[i] != size * (size - 1) / 2 + size * (i + round);
    }
    free(back);
    return wrong == 0;
}

int main(int argc, char **argv)
{
    int rank, size, good[3] = {1, 1, 1}, *counts, *offsets;
    void *send, *receive, *host;
    size_t room;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    room    = (size_t)size * PIECE * sizeof(int);
    send    = memory_new(room, 1);
    receive = memory_new(room, 2);
    host    = malloc(room);
    counts  = malloc(2 * (size_t)size * sizeof(int));
    offsets = counts + size;
    for (int peer = 0; peer < size; peer++) {
        counts[peer]  = PIECE;
        offsets[peer] = peer * PIECE;
    }
    for (int round = 0; round < ROUNDS; round++) {
        good[0] = alltoallv_is_right(rank, size, round, host, send, receive, counts, offsets) && good[0];
        good[1] = allreduce_is_right(rank, size, round, PIECE, host, send, receive) && good[1];
        good[2] = allreduce_is_right(rank, size, round, SHORT, host, send, receive) && good[2];
    }
    case_end("alltoallv", !good[0]);
    case_end("allreduce", !good[1]);
    case_end("iallreduce", !good[2]);
    cases_print_calls();
    memory_free(send);
    memory_free(receive);
    free(host);
    free(counts);
    MPI_Finalize();
    return cases_failed() > 0;
}
