/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Skewed MPI_Alltoallv calls, every byte checked, on a communicator that returns errors: shows how each rank comes out
 * of a failure that the script "failures" makes meanwhile.
 *
 *   survivor CALLS BYTES_PER_RANK [nonblocking|oneway]
 *
 * nonblocking: MPI_Ialltoallv and MPI_Wait instead of MPI_Alltoallv. oneway: besides, only the second half of the ranks
 * sends. With SURVIVOR_CUDA, path of a CUDA driver, the buffers are in device memory.
 * Each rank prints one line "rank R: completed", "rank R: error in call K: TEXT" or "rank R: wrong bytes in call K",
 * then waits to be ended. Rank 0 prints "under way" after its first WARM_CALLS calls. A rank that sees an error does
 * not finalize: what MPI can still do then is not the matter here.
 */
#include "survivor_cuda.h"

#include <string.h>
#include <unistd.h>

#define HOT_SHARE_PERCENT 70
#define WARM_CALLS 5
#define PERIOD 251
#define UNTOUCHED 255 /* never a payload byte */

typedef struct exchange {
    int rank, size, one_way;
    int *send_counts, *send_offsets, *recv_counts, *recv_offsets;
    unsigned char *send, *recv; /* what the processor reads and writes */
    size_t send_bytes, recv_bytes;
    unsigned long long send_there, recv_there; /* device memory; 0: none */
} exchange_t;

static int count_of(const exchange_t *x, int source, int destination, size_t bytes_per_rank)
{
    size_t hot  = bytes_per_rank * HOT_SHARE_PERCENT / 100;
    size_t even = (bytes_per_rank - hot) / (size_t)x->size;

    if (x->one_way && source < x->size / 2)
        return 0;
    return (int)(even + (destination == 0 ? hot : 0));
}

static unsigned char byte_of(int source, int destination, int call, int i)
{
    return (unsigned char)(((unsigned)source * 17 + (unsigned)destination * 29 + (unsigned)call * 7 + (unsigned)i) %
                           PERIOD);
}

static int exchange_init(exchange_t *x, size_t bytes_per_rank)
{
    int *counts;

    MPI_Comm_rank(MPI_COMM_WORLD, &x->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &x->size);
    counts = calloc(4 * (size_t)x->size, sizeof(*counts));
    if (counts == NULL)
        return -1;
    x->send_counts  = counts;
    x->send_offsets = counts + x->size;
    x->recv_counts  = counts + 2 * x->size;
    x->recv_offsets = counts + 3 * x->size;
    for (int peer = 0; peer < x->size; peer++) {
        x->send_counts[peer]  = count_of(x, x->rank, peer, bytes_per_rank);
        x->recv_counts[peer]  = count_of(x, peer, x->rank, bytes_per_rank);
        x->send_offsets[peer] = (int)x->send_bytes;
        x->recv_offsets[peer] = (int)x->recv_bytes;
        x->send_bytes += (size_t)x->send_counts[peer];
        x->recv_bytes += (size_t)x->recv_counts[peer];
    }
    x->send = malloc(x->send_bytes);
    x->recv = malloc(x->recv_bytes);
    if (start_cuda()) {
        must(cuda.alloc(&x->send_there, x->send_bytes), "cuMemAlloc");
        must(cuda.alloc(&x->recv_there, x->recv_bytes), "cuMemAlloc");
    }
    return x->send == NULL || x->recv == NULL ? -1 : 0;
}

static void exchange_fill(exchange_t *x, int call)
{
    for (int peer = 0; peer < x->size; peer++)
        for (int i = 0; i < x->send_counts[peer]; i++)
            x->send[x->send_offsets[peer] + i] = byte_of(x->rank, peer, call, i);
    memset(x->recv, UNTOUCHED, x->recv_bytes);
    if (x->send_there != 0) {
        must(cuda.write(x->send_there, x->send, x->send_bytes), "cuMemcpyHtoD");
        must(cuda.write(x->recv_there, x->recv, x->recv_bytes), "cuMemcpyHtoD");
    }
}

/* Bytes of a device to where the processor can look at them. */
static void exchange_fetch(const exchange_t *x)
{
    if (x->recv_there != 0)
        must(cuda.read(x->recv, x->recv_there, x->recv_bytes), "cuMemcpyDtoH");
}

static int exchange_is_right(const exchange_t *x, int call)
{
    for (int peer = 0; peer < x->size; peer++)
        for (int i = 0; i < x->recv_counts[peer]; i++)
            if (x->recv[x->recv_offsets[peer] + i] != byte_of(peer, x->rank, call, i))
                return 0;
    return 1;
}

static void report(const exchange_t *x, const char *outcome, int call, const char *text)
{
    if (call < 0)
        printf("rank %d: %s\n", x->rank, outcome);
    else
        printf("rank %d: %s in call %d: %s\n", x->rank, outcome, call, text);
    fflush(stdout);
    pause();
}

static int exchange_run(const exchange_t *x, int nonblocking)
{
    const void *send = x->send_there != 0 ? (void *)x->send_there : x->send;
    void *recv       = x->recv_there != 0 ? (void *)x->recv_there : x->recv;
    MPI_Request request;
    int status;

    if (!nonblocking)
        return MPI_Alltoallv(send, x->send_counts, x->send_offsets, MPI_BYTE, recv, x->recv_counts, x->recv_offsets,
                             MPI_BYTE, MPI_COMM_WORLD);
    status = MPI_Ialltoallv(send, x->send_counts, x->send_offsets, MPI_BYTE, recv, x->recv_counts, x->recv_offsets,
                            MPI_BYTE, MPI_COMM_WORLD, &request);
    return status == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : status;
}

int main(int argc, char **argv)
{
    int one_way     = argc == 4 && strcmp(argv[3], "oneway") == 0;
    int nonblocking = one_way || (argc == 4 && strcmp(argv[3], "nonblocking") == 0);
    int calls       = argc > 1 ? atoi(argv[1]) : 0, length, provided;
    char text[MPI_MAX_ERROR_STRING];
    exchange_t x = {.one_way = one_way};

    MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &provided);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (argc != 3 + nonblocking || calls <= WARM_CALLS || exchange_init(&x, strtoull(argv[2], NULL, 10)) != 0) {
        fprintf(stderr, "usage: survivor CALLS BYTES_PER_RANK [nonblocking|oneway], more than %d calls\n", WARM_CALLS);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (int call = 0; call < calls; call++) {
        int status;

        exchange_fill(&x, call);
        status = exchange_run(&x, nonblocking);
        if (status != MPI_SUCCESS) {
            MPI_Error_string(status, text, &length);
            report(&x, "error", call, text);
        }
        exchange_fetch(&x);
        if (!exchange_is_right(&x, call))
            report(&x, "wrong bytes", call, "a success was returned");
        if (x.rank == 0 && call + 1 == WARM_CALLS) {
            printf("under way\n");
            fflush(stdout);
        }
    }
    report(&x, "completed", -1, "");
    return 0;
}
