/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank does not come to a collective, or comes late: `absent COLLECTIVE GOOD_CALLS SECONDS`. After GOOD_CALLS calls
 * of all ranks the last rank stays away until the others have come back from the next one, each with an error; with
 * SECONDS > 0 it comes after that time, and nobody may have an error. The collective is alltoallv or allreduce.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES 100000
#define TAG 3

typedef struct buffers {
    int *counts, *offsets;
    char *send, *receive;
} buffers_t;

static int call(const buffers_t *b, int reduces)
{
    return reduces ? MPI_Allreduce(b->send, b->receive, BYTES / (int)sizeof(int), MPI_INT, MPI_SUM, MPI_COMM_WORLD)
                   : MPI_Alltoallv(b->send, b->counts, b->offsets, MPI_BYTE, b->receive, b->counts, b->offsets,
                                   MPI_BYTE, MPI_COMM_WORLD);
}

static int buffers_init(buffers_t *b, int size)
{
    b->counts  = malloc((size_t)size * sizeof(int));
    b->offsets = malloc((size_t)size * sizeof(int));
    b->send    = calloc((size_t)size, BYTES);
    b->receive = calloc((size_t)size, BYTES);
    if (b->counts == NULL || b->offsets == NULL || b->send == NULL || b->receive == NULL) {
        return -1;
    }
    for (int peer = 0; peer < size; peer++) {
        b->counts[peer]  = BYTES;
        b->offsets[peer] = peer * BYTES;
    }
    return 0;
}

int main(int argc, char **argv)
{
    int rank, size, reduces, good_calls, seconds, status = MPI_SUCCESS, bad = 0, worst = 0;
    buffers_t b = {NULL, NULL, NULL, NULL};

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 4 || buffers_init(&b, size) != 0) {
        fprintf(stderr, "usage: absent alltoallv|allreduce GOOD_CALLS SECONDS\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    reduces    = strcmp(argv[1], "allreduce") == 0;
    good_calls = atoi(argv[2]);
    seconds    = atoi(argv[3]);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 0; i < good_calls; i++) {
        bad = bad || call(&b, reduces) != MPI_SUCCESS;
    }
    if (rank == size - 1) {
        sleep((unsigned)seconds);
    }
    if (rank != size - 1 || seconds > 0) {
        status = call(&b, reduces);
        bad    = bad || (status == MPI_SUCCESS) != (seconds > 0);
    }
    for (int peer = 0; peer < size - 1 && rank == size - 1; peer++) {
        int theirs = 1;

        MPI_Recv(&theirs, 1, MPI_INT, peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        worst = theirs > worst ? theirs : worst;
    }
    if (rank != size - 1) {
        MPI_Send(&bad, 1, MPI_INT, size - 1, TAG, MPI_COMM_WORLD);
    } else {
        printf("case %s %s\n", bad || worst ? "bad" : "ok", argv[1]);
    }
    MPI_Finalize();
    return 0;
}
