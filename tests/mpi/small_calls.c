/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Many calls in a row whose buffers are rewritten at once: a rank that returns while a peer still reads its buffer, or
 * data of one call that reaches the next, is seen. Arguments: number of calls (default 20000), and of others on the heap before
 * the program loads a driver for the memory of these.
 */
#include "mpi/cases.h"
#include "mpi/memory.h"

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

/* Nothing that is learned here may be used for what comes. */
static void call_on_heap(int calls, int size)
{
    char *send = calloc((size_t)size, PIECE_MAX), *receive = calloc((size_t)size, PIECE_MAX);

    for (int call = 0; send != NULL && receive != NULL && call < calls; call++) {
        MPI_Alltoall(send, PIECE_MAX, MPI_BYTE, receive, PIECE_MAX, MPI_BYTE, MPI_COMM_WORLD);
    }
    free(send);
    free(receive);
}

int main(int argc, char **argv)
{
    int calls = argc > 1 ? atoi(argv[1]) : 20000, before = argc > 2 ? atoi(argv[2]) : 0, rank, size, call, peer, i;
    int *arrays, *send_counts, *send_offsets, *receive_counts, *receive_offsets;
    unsigned char *send, *receive, *send_image, *receive_image; /* images: what the processor reads and writes */
    size_t capacity;
    long errors = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    call_on_heap(before, size);
    capacity      = (size_t)size * PIECE_MAX;
    arrays        = malloc((size_t)size * 4 * sizeof(int));
    send          = memory_new(capacity, 1);
    receive       = memory_new(capacity, 2);
    send_image    = memory_is_special() ? malloc(capacity) : send;
    receive_image = memory_is_special() ? malloc(capacity) : receive;
    if (arrays == NULL || send_image == NULL || receive_image == NULL) {
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
                send_image[peer * PIECE_MAX + i] = value_of(rank, peer, call, i);
            }
        }
        memory_fill(receive, 0, capacity);
        if (send_image != send) {
            memory_put(send, send_image, capacity);
        }
        errors += MPI_Alltoallv(send, send_counts, send_offsets, MPI_BYTE, receive, receive_counts, receive_offsets,
                                MPI_BYTE, MPI_COMM_WORLD) != MPI_SUCCESS;
        memory_fill(send, 0xEE, capacity);
        if (receive_image != receive) {
            memory_get(receive_image, receive, capacity);
        }
        for (peer = 0; peer < size; peer++) {
            for (i = 0; i < receive_counts[peer]; i++) {
                errors += receive_image[peer * PIECE_MAX + i] != value_of(peer, rank, call, i);
            }
        }
    }
    case_end("small_calls", errors);
    cases_print_calls();
    free(arrays);
    if (memory_is_special()) {
        free(send_image);
        free(receive_image);
    }
    memory_free(send);
    memory_free(receive);
    MPI_Finalize();
    return cases_failed() != 0;
}
