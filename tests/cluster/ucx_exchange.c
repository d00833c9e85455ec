/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx_exchange BYTES WINDOW SECONDS one|two: two ranks send messages of BYTES, WINDOW of them at a time, for SECONDS;
 * from rank 0 to rank 1 only or both ways at once. Of more ranks it is rank 0 and the one in the middle, which is the
 * first of the second of two nodes; the others wait inside of MPI, where they may relay. Every word of every message is
 * checked. Prints
 *     exchange bytes_per_second=B messages=N wrong=W
 * and, where the hook component is there, what the transport counted in rank 0 and the bytes of its messages:
 *     counted sent_bytes=S of B
 * with the bytes per second that rank 1 (one) or each rank (two, the slower of both) received; status 1 on a wrong
 * word.
 */
#include <mpi.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WINDOW 64
#define MIN_BYTES 8

typedef struct exchange {
    int rank, other, window, words; /* other: the rank at the other end; -1: this one only waits */
    uint64_t *out[MAX_WINDOW], *in[MAX_WINDOW];
    uint64_t wrong;
} exchange_t;

static uint64_t word(uint64_t message, int sender, int index)
{
    uint64_t mixed = (message * 2 + (uint64_t)sender) * 0x9e3779b97f4a7c15ull + (uint64_t)index * 0xbf58476d1ce4e5b9ull;

    return mixed ^ (mixed >> 29);
}

static void fill(exchange_t *exchange, uint64_t first)
{
    int slot, i;

    for (slot = 0; slot < exchange->window; ++slot) {
        for (i = 0; i < exchange->words; ++i) {
            exchange->out[slot][i] = word(first + (uint64_t)slot, exchange->rank, i);
        }
    }
}

static void check(exchange_t *exchange, uint64_t first)
{
    int slot, i;

    for (slot = 0; slot < exchange->window; ++slot) {
        for (i = 0; i < exchange->words; ++i) {
            exchange->wrong += exchange->in[slot][i] != word(first + (uint64_t)slot, exchange->other, i);
        }
        memset(exchange->in[slot], 0, (size_t)exchange->words * sizeof(uint64_t));
    }
}

/* One window. Returns the seconds that the transfer took. */
static double transfer(exchange_t *exchange, int sends, int receives)
{
    MPI_Request requests[2 * MAX_WINDOW];
    int slot, count = 0;
    double start_s;

    MPI_Barrier(MPI_COMM_WORLD);
    start_s = MPI_Wtime();
    for (slot = 0; receives && slot < exchange->window; ++slot) {
        MPI_Irecv(exchange->in[slot], exchange->words, MPI_UINT64_T, exchange->other, slot, MPI_COMM_WORLD,
                  &requests[count++]);
    }
    for (slot = 0; sends && slot < exchange->window; ++slot) {
        MPI_Isend(exchange->out[slot], exchange->words, MPI_UINT64_T, exchange->other, slot, MPI_COMM_WORLD,
                  &requests[count++]);
    }
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    return MPI_Wtime() - start_s;
}

static void allocate(exchange_t *exchange)
{
    int slot;

    for (slot = 0; slot < exchange->window; ++slot) {
        exchange->out[slot] = calloc((size_t)exchange->words, sizeof(uint64_t));
        exchange->in[slot]  = calloc((size_t)exchange->words, sizeof(uint64_t));
        if (exchange->out[slot] == NULL || exchange->in[slot] == NULL) {
            fprintf(stderr, "ucx_exchange: no memory\n");
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
}

/* The transport's counter through MPI_T; 0 when there is none. */
static unsigned long long counted_bytes(void)
{
    MPI_T_pvar_session session;
    MPI_T_pvar_handle handle;
    int index, provided, count = 0;
    unsigned long long value = 0;

    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    if (MPI_T_pvar_get_index("hook_mpath_sent_bytes", MPI_T_PVAR_CLASS_GENERIC, &index) == MPI_SUCCESS &&
        MPI_T_pvar_session_create(&session) == MPI_SUCCESS) {
        if (MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count) == MPI_SUCCESS) {
            MPI_T_pvar_read(session, handle, &value);
            MPI_T_pvar_handle_free(session, &handle);
        }
        MPI_T_pvar_session_free(&session);
    }
    MPI_T_finalize();
    return value;
}

int main(int argc, char **argv)
{
    double limit_s, taken_s, slowest_s, total_s = 0, started_s;
    exchange_t exchange = {0};
    uint64_t messages   = 0, wrong;
    int size, two_way, more, involved;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &exchange.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 5 || size < 2 || atoi(argv[1]) < MIN_BYTES || atoi(argv[2]) < 1 || atoi(argv[2]) > MAX_WINDOW) {
        fprintf(stderr, "usage: ucx_exchange BYTES WINDOW SECONDS one|two, on two ranks or more\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    exchange.words  = atoi(argv[1]) / (int)sizeof(uint64_t);
    exchange.window = atoi(argv[2]);
    limit_s         = atof(argv[3]);
    two_way         = strcmp(argv[4], "two") == 0;
    exchange.other  = exchange.rank == 0 ? size / 2 : exchange.rank == size / 2 ? 0 : -1;
    involved        = exchange.other >= 0;
    allocate(&exchange);
    fill(&exchange, 0);
    transfer(&exchange, involved, involved); /* connects */
    if (involved) {
        check(&exchange, 0);
    }
    started_s = MPI_Wtime();
    do {
        fill(&exchange, messages);
        taken_s = transfer(&exchange, involved && (two_way || exchange.rank == 0),
                           involved && (two_way || exchange.rank != 0));
        if (involved && (two_way || exchange.rank != 0)) {
            check(&exchange, messages);
        }
        MPI_Allreduce(&taken_s, &slowest_s, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        total_s += slowest_s;
        messages += (uint64_t)exchange.window;
        more = MPI_Wtime() - started_s < limit_s;
        MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
    } while (more);
    MPI_Reduce(&exchange.wrong, &wrong, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (exchange.rank == 0) {
        printf("exchange bytes_per_second=%.0f messages=%lu wrong=%lu\n",
               (double)messages * exchange.words * (double)sizeof(uint64_t) / total_s, (unsigned long)messages,
               (unsigned long)wrong);
        if (counted_bytes() > 0) {
            printf("counted sent_bytes=%llu of %llu\n", counted_bytes(),
                   (unsigned long long)messages * exchange.words * sizeof(uint64_t));
        }
    }
    MPI_Bcast(&wrong, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    MPI_Finalize();
    return wrong != 0;
}
