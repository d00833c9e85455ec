/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank dies in the middle: the others must come back from MPI_Alltoallv with an error, or the job must end; nobody
 * may hang. Errors are returned here, so that mpath's own detection shows when the launcher is told to leave the job
 * alone. Arguments: the rank that dies, bytes per pair.
 */
#include "mpi/cases.h"
#include "mpi/memory.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int victim, bytes, rank, size, peer, call, status = MPI_SUCCESS, *counts, *offsets;
    char *send, *receive;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    victim  = argc > 1 ? atoi(argv[1]) : size - 1;
    bytes   = argc > 2 ? atoi(argv[2]) : 100000;
    counts  = malloc((size_t)size * sizeof(int));
    offsets = malloc((size_t)size * sizeof(int));
    send    = memory_new((size_t)size * (size_t)bytes, 1);
    receive = memory_new((size_t)size * (size_t)bytes, 2);
    if (counts == NULL || offsets == NULL) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    memory_fill(send, 7, (size_t)size * (size_t)bytes);
    for (peer = 0; peer < size; peer++) {
        counts[peer]  = bytes;
        offsets[peer] = peer * bytes;
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (call = 0; call < 40 && status == MPI_SUCCESS; call++) {
        if (call == 20 && rank == victim) {
            printf("rank %d dies\n", rank);
            fflush(stdout);
            kill(getpid(), SIGKILL);
        }
        status = MPI_Alltoallv(send, counts, offsets, MPI_BYTE, receive, counts, offsets, MPI_BYTE, MPI_COMM_WORLD);
    }
    printf("rank %d came back with %s after call %d\n", rank, status == MPI_SUCCESS ? "success" : "an error", call);
    fflush(stdout);
    _exit(status == MPI_SUCCESS && call >= 40 ? 3 : 0); /* MPI_Finalize would wait for the dead */
}
