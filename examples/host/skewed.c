// SPDX-License-Identifier: BSD-3-Clause
// A skewed MPI_Alltoallv on host memory: every rank sends half of its bytes to rank 0. Prints whether mpath carried the calls.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

// Reads one of mpath's performance variables; 0 where there is none, as without mpath.
static unsigned long long counter(const char *name)
{
    unsigned long long value = 0;
    MPI_T_pvar_session session;
    MPI_T_pvar_handle handle;
    int index, elements;

    if (MPI_T_pvar_get_index(name, MPI_T_PVAR_CLASS_GENERIC, &index) == MPI_SUCCESS) {
        MPI_T_pvar_session_create(&session);
        MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &elements);
        MPI_T_pvar_read(session, handle, &value);
        MPI_T_pvar_session_free(&session);
    }
    return value;
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 1 << 20, rank, ranks, provided, wrong = 0;

    MPI_Init(&argc, &argv);
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int scounts[ranks], sdispls[ranks], rcounts[ranks], rdispls[ranks];
    for (int r = 0, to = 0, from = 0; r < ranks; to += scounts[r], from += rcounts[r], r++) {
        scounts[r] = n / (2 * ranks) + (r == 0 ? n / 2 : 0); // what I send to r
        rcounts[r] = n / (2 * ranks) + (rank == 0 ? n / 2 : 0);
        sdispls[r] = to, rdispls[r] = from;
    }
    int *send = malloc(sizeof(int) * (size_t)(sdispls[ranks - 1] + scounts[ranks - 1] + 1));
    int *recv = malloc(sizeof(int) * (size_t)(rdispls[ranks - 1] + rcounts[ranks - 1] + 1));
    for (int i = 0; i < sdispls[ranks - 1] + scounts[ranks - 1]; i++)
        send[i] = rank;
    MPI_Alltoallv(send, scounts, sdispls, MPI_INT, recv, rcounts, rdispls, MPI_INT, MPI_COMM_WORLD);
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < rcounts[r]; i++)
            wrong += recv[rdispls[r] + i] != r;
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("skewed: %d wrong values; mpath carried %llu calls, left %llu\n", wrong, counter("coll_mpath_calls"),
               counter("coll_mpath_declined"));
    free(send), free(recv);
    MPI_T_finalize();
    MPI_Finalize();
    return wrong != 0;
}
