// SPDX-License-Identifier: BSD-3-Clause
// From a job to a plan: write the bytes of an exchange as a matrix that mpath_plan and mpath_bench read, a row per sender.
// Copy write_matrix() and call it with the counts of your MPI_Alltoallv. usage: matrix FILE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int write_matrix(const char *path, const int *scounts, MPI_Datatype type, MPI_Comm comm)
{
    int rank, ranks, size, bad = 0;
    long long *all = NULL;
    FILE *file;

    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    MPI_Type_size(type, &size);
    long long row[ranks];
    for (int r = 0; r < ranks; r++)
        row[r] = (long long)scounts[r] * size;
    if (rank == 0)
        all = malloc(sizeof(*all) * (size_t)ranks * (size_t)ranks);
    MPI_Gather(row, ranks, MPI_LONG_LONG, all, ranks, MPI_LONG_LONG, 0, comm);
    if (rank == 0) {
        file = fopen(path, "w");
        for (int i = 0; file != NULL && i < ranks * ranks; i++)
            fprintf(file, "%lld%c", all[i], (i + 1) % ranks == 0 ? '\n' : ' ');
        bad = file == NULL || fclose(file) != 0;
        if (bad)
            perror(path);
        free(all);
    }
    MPI_Bcast(&bad, 1, MPI_INT, 0, comm);
    return bad;
}

int main(int argc, char **argv)
{
    int ranks, bad;

    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int scounts[ranks];
    for (int r = 0; r < ranks; r++)
        scounts[r] = r == 0 ? 1 << 20 : 1 << 16; // those of your program
    bad = write_matrix(argc > 1 ? argv[1] : "matrix.txt", scounts, MPI_INT, MPI_COMM_WORLD);
    MPI_Finalize();
    return bad;
}
