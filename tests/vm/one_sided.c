/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * one_sided BYTES ROUNDS: two ranks put into and get from each other's windows, both ways at once, every byte checked.
 * A round puts three pieces (nearly all of BYTES from an odd place on, eight bytes, one byte), flushes, reads them back
 * from the target and gets the target's own part. A flush that returns too early, a get that overtakes a put and bytes
 * at the wrong place all show as wrong bytes. Prints
 *     one_sided rounds=N bytes=B seconds=S wrong=W
 * with the bytes that both ranks together moved; status 1 on a wrong byte.
 */
#include <mpi.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ODD_PLACE 5
#define SMALL_BYTES 8
#define TAIL_BYTES (SMALL_BYTES + 1)
#define MIN_BYTES 64

typedef struct windows {
    int rank, bytes;
    unsigned char *memory; /* the window: where the other one puts, then what the other one gets */
    unsigned char *out, *in;
    MPI_Win window;
    uint64_t wrong;
} windows_t;

static unsigned char byte_of(int round, int writer, int part, int index)
{
    uint32_t mixed = ((uint32_t)round * 4u + (uint32_t)writer * 2u + (uint32_t)part) * 2654435761u;

    mixed = (mixed ^ (uint32_t)index) * 2246822519u;
    return (unsigned char)((mixed >> 24) ^ (mixed >> 11));
}

static void fill(unsigned char *bytes, int count, int round, int writer, int part)
{
    int i;

    for (i = 0; i < count; ++i) {
        bytes[i] = byte_of(round, writer, part, i);
    }
}

static void check(windows_t *windows, const unsigned char *bytes, int first, int round, int writer, int part)
{
    int i;

    for (i = first; i < windows->bytes; ++i) {
        windows->wrong += bytes[i] != byte_of(round, writer, part, i);
    }
}

/* Bytes [first, first + count) of `out` to the same place of the other one's window. */
static void put(windows_t *windows, int first, int count)
{
    MPI_Put(windows->out + first, count, MPI_BYTE, 1 - windows->rank, first, count, MPI_BYTE, windows->window);
}

static void get(windows_t *windows, int displacement)
{
    MPI_Get(windows->in, windows->bytes, MPI_BYTE, 1 - windows->rank, displacement, windows->bytes, MPI_BYTE,
            windows->window);
    MPI_Win_flush(1 - windows->rank, windows->window);
}

/* Returns the seconds that puts and gets took. */
static double run_round(windows_t *windows, int round)
{
    int other = 1 - windows->rank, tail = windows->bytes - TAIL_BYTES;
    double start_s, taken_s;

    fill(windows->out, windows->bytes, round, windows->rank, 0);
    fill(windows->memory + windows->bytes, windows->bytes, round, windows->rank, 1);
    memset(windows->in, 0, (size_t)windows->bytes);
    MPI_Win_sync(windows->window);
    MPI_Barrier(MPI_COMM_WORLD);
    start_s = MPI_Wtime();
    put(windows, ODD_PLACE, tail - ODD_PLACE);
    put(windows, tail, SMALL_BYTES);
    put(windows, tail + SMALL_BYTES, 1);
    MPI_Win_flush(other, windows->window);
    get(windows, 0);
    taken_s = MPI_Wtime() - start_s;
    check(windows, windows->in, ODD_PLACE, round, windows->rank, 0);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_sync(windows->window);
    check(windows, windows->memory, ODD_PLACE, round, other, 0);
    start_s = MPI_Wtime();
    get(windows, windows->bytes);
    taken_s += MPI_Wtime() - start_s;
    check(windows, windows->in, 0, round, other, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    return taken_s;
}

int main(int argc, char **argv)
{
    windows_t windows = {0};
    int size, rounds, round;
    double total_s = 0;
    uint64_t wrong;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &windows.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 3 || size != 2 || atoi(argv[1]) < MIN_BYTES || atoi(argv[2]) < 1) {
        fprintf(stderr, "usage: one_sided BYTES ROUNDS, on two ranks\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    windows.bytes  = atoi(argv[1]);
    rounds         = atoi(argv[2]);
    windows.out    = malloc((size_t)windows.bytes);
    windows.in     = malloc((size_t)windows.bytes);
    windows.memory = malloc(2 * (size_t)windows.bytes);
    if (windows.out == NULL || windows.in == NULL || windows.memory == NULL) {
        fprintf(stderr, "one_sided: no memory\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Win_create(windows.memory, 2 * (MPI_Aint)windows.bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &windows.window);
    MPI_Win_lock_all(0, windows.window);
    for (round = 0; round < rounds; ++round) {
        total_s += run_round(&windows, round);
    }
    MPI_Win_unlock_all(windows.window);
    MPI_Win_free(&windows.window);
    MPI_Reduce(&windows.wrong, &wrong, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (windows.rank == 0) {
        printf("one_sided rounds=%d bytes=%.0f seconds=%.3f wrong=%lu\n", rounds, 6.0 * rounds * windows.bytes, total_s,
               (unsigned long)wrong);
    }
    MPI_Bcast(&wrong, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    free(windows.out);
    free(windows.in);
    free(windows.memory);
    MPI_Finalize();
    return wrong != 0;
}
