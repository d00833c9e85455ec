/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Says where each rank runs and with how many others it shares its node, then sends argv[1] bytes from the first rank
 * to the last and checks them.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define PERIOD 251

static int transfer(int rank, int last, size_t bytes)
{
    unsigned char *buffer = malloc(bytes + 1);
    int wrong             = 0;

    if (buffer == NULL)
        return 1;
    for (size_t i = 0; i < bytes; i++)
        buffer[i] = (unsigned char)(rank == 0 ? i % PERIOD : PERIOD);
    if (rank == 0) {
        MPI_Send(buffer, (int)bytes, MPI_BYTE, last, 0, MPI_COMM_WORLD);
    } else if (rank == last) {
        MPI_Recv(buffer, (int)bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (size_t i = 0; i < bytes; i++)
            wrong |= buffer[i] != i % PERIOD;
    }
    free(buffer);
    return wrong;
}

int main(int argc, char **argv)
{
    char host[MPI_MAX_PROCESSOR_NAME];
    int rank, size, node_size, length, wrong;
    MPI_Comm node;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &node_size);
    MPI_Get_processor_name(host, &length);
    printf("rank %d on %s: %d ranks share the node\n", rank, host, node_size);
    wrong = transfer(rank, size - 1, argc > 1 ? strtoull(argv[1], NULL, 10) : 0);
    if (wrong)
        fprintf(stderr, "rank %d: wrong bytes\n", rank);
    MPI_Comm_free(&node);
    MPI_Finalize();
    return wrong;
}
