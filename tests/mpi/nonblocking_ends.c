/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Non-blocking collectives that do not end well. nonblocking_ends killed RANK: a rank dies while operations are under
 * way, the others must get errors. nonblocking_ends unfinished: MPI_Finalize with an operation that the others never
 * start; it must come back.
 */
#include "mpi/nonblocking_ops.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int run_killed(int rank, int victim)
{
    int status = MPI_SUCCESS, call;

    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (call = 0; (call < 20) && (status == MPI_SUCCESS); call++) {
        operation_t operations[3];

        for (int i = 0; i < 3; i++) {
            operation_make(&operations[i], (kind_t)(i == 1 ? KIND_ALLREDUCE : KIND_ALLTOALLV), MPI_COMM_WORLD, 100000,
                           0, 1);
            (void)operation_start(&operations[i]);
        }
        if ((call == 10) && (rank == victim)) {
            printf("rank %d dies\n", rank);
            fflush(stdout);
            kill(getpid(), SIGKILL);
        }
        for (int i = 0; i < 3; i++) {
            int ended = MPI_Wait(&operations[i].request, MPI_STATUS_IGNORE);

            status = (status != MPI_SUCCESS) ? status : ended;
        }
    }
    printf("rank %d came back with %s after call %d\n", rank, status == MPI_SUCCESS ? "success" : "an error", call);
    fflush(stdout);
    _exit(status == MPI_SUCCESS ? 3 : 0); /* MPI_Finalize would wait for the dead */
}

static int run_unfinished(int rank)
{
    operation_t operation;

    operation_make(&operation, KIND_ALLREDUCE, MPI_COMM_WORLD, 100000, 0, 1);
    operation_start(&operation);
    MPI_Wait(&operation.request, MPI_STATUS_IGNORE);
    if (rank == 0) {
        operation_start(&operation);
    }
    MPI_Finalize();
    printf("rank %d ended\n", rank);
    return 0;
}

int main(int argc, char **argv)
{
    int rank;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if ((argc > 2) && (strcmp(argv[1], "killed") == 0)) {
        return run_killed(rank, atoi(argv[2]));
    }
    return run_unfinished(rank);
}
