/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls one after the other until a file is there: `running FILE`. For looks from outside at a job that runs (mpath_info --job);
 * all data is checked, whatever happens to the processes meanwhile.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES 60000
#define PAUSE_US 20000

static unsigned char value_of(int source, int destination, int call)
{
    return (unsigned char)(source * 31 + destination * 7 + call * 13);
}

int main(int argc, char **argv)
{
    int rank, size, call, errors = 0, over = 0;
    int *counts, *offsets;
    unsigned char *send, *receive;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    counts  = calloc((size_t)size, sizeof(*counts));
    offsets = calloc((size_t)size, sizeof(*offsets));
    send    = malloc((size_t)size * BYTES);
    receive = malloc((size_t)size * BYTES);
    if (argc != 2 || counts == NULL || offsets == NULL || send == NULL || receive == NULL) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    for (int peer = 0; peer < size; peer++) {
        counts[peer]  = BYTES;
        offsets[peer] = peer * BYTES;
    }
    for (call = 0; !over; call++) {
        int stop = access(argv[1], F_OK) == 0;

        for (int peer = 0; peer < size; peer++) {
            memset(send + offsets[peer], value_of(rank, peer, call), BYTES);
        }
        memset(receive, 0, (size_t)size * BYTES);
        MPI_Alltoallv(send, counts, offsets, MPI_BYTE, receive, counts, offsets, MPI_BYTE, MPI_COMM_WORLD);
        for (int peer = 0; peer < size; peer++) {
            for (int i = 0; i < BYTES; i++) {
                errors += receive[offsets[peer] + i] != value_of(peer, rank, call);
            }
        }
        MPI_Allreduce(&stop, &over, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        usleep(PAUSE_US);
    }
    printf("rank %d: %d calls, %d wrong bytes\n", rank, call, errors);
    MPI_Finalize();
    return errors != 0;
}
