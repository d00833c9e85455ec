/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Many calls in a row whose buffers are rewritten at once: a rank that returns while a peer still reads its buffer, or data
 * of one call that reaches the next, is seen. Argument: number of calls (default 20000).
 */
#include "mpi/cases.h"

#include <stdlib.h>
#include <string.h>

#define PIECE_MAX 96

static unsigned char value_of(int source, int destination, int call, int position)
{
    return (unsigned char)(source * 31 + destination * 7 + call * 13 + position);
}

static int piece_bytes(int source, int destination, int call)
{
    return (source * 5 + destination * 3 + call) % 7 == 0 ? 0 : 1 + (source + destination + call) % PIECE_MAX;
}

int main(int argc, char **argv)
{
    int calls = argc > 1 ? atoi(argv[1]) : 20000, rank, size, call, peer, i;
    int *arrays, *send_counts, *send_offsets, *receive_counts, *receive_offsets;
    unsigned char *send, *receive;
    long errors = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    arrays  = malloc((size_t)size * 4 * sizeof(int));
    send    = malloc((size_t)size * PIECE_MAX);
    receive = malloc((size_t)size * PIECE_MAX);
    if (arrays == NULL || send == NULL || receive == NULL) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    send_counts     = arrays;
    send_offsets    = arrays + size;
    receive_counts  = arrays + 2 * size;
    receive_offsets = arrays + 3 * size;
    for (call = 0; call < calls; call++) {
        for (peer = 0; peer < size; peer++) {
            send_counts[peer]     = piece_bytes(rank, peer, call);
            receive_counts[peer]  = piece_bytes(peer, rank, call);
            send_offsets[peer]    = peer * PIECE_MAX;
            receive_offsets[peer] = peer * PIECE_MAX;
            for (i = 0; i < send_counts[peer]; i++) {
                send[peer * PIECE_MAX + i] = value_of(rank, peer, call, i);
            }
        }
        memset(receive, 0, (size_t)size * PIECE_MAX);
        errors += MPI_Alltoallv(send, send_counts, send_offsets, MPI_BYTE, receive, receive_counts, receive_offsets,
                                MPI_BYTE, MPI_COMM_WORLD) != MPI_SUCCESS;
        memset(send, 0xEE, (size_t)size * PIECE_MAX);
        for (peer = 0; peer < size; peer++) {
            for (i = 0; i < receive_counts[peer]; i++) {
                errors += receive[peer * PIECE_MAX + i] != value_of(peer, rank, call, i);
            }
        }
    }
    case_end("small_calls", errors);
    cases_print_calls();
    free(arrays);
    free(send);
    free(receive);
    MPI_Finalize();
    return cases_failed() != 0;
}
