// SPDX-License-Identifier: BSD-3-Clause
// A skewed exchange beside computation, twice: MPI_Ialltoallv, and where MPI has it a persistent MPI_Alltoallv_init that is
// started again and again. Open MPI 4.1 has the latter as MPIX_Alltoallv_init.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION < 5
#include <mpi-ext.h>
#define MPI_Alltoallv_init MPIX_Alltoallv_init
#endif

#define STEPS 3

// Some arithmetic, which calls MPI_Test now and then: mpath has no thread, its bytes move in calls of MPI.
static double compute_until(MPI_Request *request)
{
    double sum = 0;
    int done   = 0;

    while (!done) {
        for (int i = 1; i < 20000; i++)
            sum += 1.0 / i;
        MPI_Test(request, &done, MPI_STATUS_IGNORE);
    }
    return sum;
}

// Rank r sent r + step.
static int count_wrong(const int *recv, const int *rcounts, const int *rdispls, int ranks, int step)
{
    int wrong = 0;

    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < rcounts[r]; i++)
            wrong += recv[rdispls[r] + i] != r + step;
    return wrong;
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 1 << 20, rank, ranks, step, wrong = 0;
    double sum = 0;
    MPI_Request request;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int scounts[ranks], sdispls[ranks], rcounts[ranks], rdispls[ranks], to = 0, from = 0;
    for (int r = 0; r < ranks; to += scounts[r], from += rcounts[r], r++) {
        scounts[r] = n / (2 * ranks) + (r == 0 ? n / 2 : 0);
        rcounts[r] = n / (2 * ranks) + (rank == 0 ? n / 2 : 0);
        sdispls[r] = to, rdispls[r] = from;
    }
    int *send = malloc(sizeof(int) * (size_t)(to + 1)), *recv = malloc(sizeof(int) * (size_t)(from + 1));

    for (step = 0; step < STEPS; step++) {
        for (int i = 0; i < to; i++)
            send[i] = rank + step;
        MPI_Ialltoallv(send, scounts, sdispls, MPI_INT, recv, rcounts, rdispls, MPI_INT, MPI_COMM_WORLD, &request);
        sum += compute_until(&request);
        wrong += count_wrong(recv, rcounts, rdispls, ranks, step);
    }
    MPI_Alltoallv_init(send, scounts, sdispls, MPI_INT, recv, rcounts, rdispls, MPI_INT, MPI_COMM_WORLD, MPI_INFO_NULL,
                       &request);
    for (; step < 2 * STEPS; step++) {
        for (int i = 0; i < to; i++)
            send[i] = rank + step;
        MPI_Start(&request);
        sum += compute_until(&request);
        wrong += count_wrong(recv, rcounts, rdispls, ranks, step);
    }
    MPI_Request_free(&request);
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("overlap: %d wrong values in %d exchanges; computed %s\n", wrong, 2 * STEPS,
               sum > 0 ? "beside them" : "nothing");
    free(send), free(recv);
    MPI_Finalize();
    return wrong != 0;
}
