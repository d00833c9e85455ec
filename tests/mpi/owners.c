/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two communicators over the same NICs at a time, on nodes of four GPUs: rank 1 sends over the NIC beside it, which rank 0
 * borrows in the other one. That chunks have made way is seen in the performance variables.
 *
 * "figures CALLS" prints instead what a message takes alone and beside the other: medians in seconds, by the slowest rank.
 */
#include "mpi/cases.h"
#include "mpi/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES 6000000
#define RANKS 8
#define ROUNDS 20

static int rank;

/* All bytes of one rank to its counterpart on the other node. */
typedef struct pair {
    MPI_Comm comm;
    int source, send[RANKS], receive[RANKS], offsets[RANKS];
    char *from, *to;
    MPI_Request request;
} pair_t;

static void pair_make(pair_t *pair, int source)
{
    memset(pair, 0, sizeof(*pair));
    MPI_Comm_dup(MPI_COMM_WORLD, &pair->comm);
    pair->source                   = source;
    pair->send[source + RANKS / 2] = (rank == source) ? BYTES : 0;
    pair->receive[source]          = (rank == source + RANKS / 2) ? BYTES : 0;
    pair->from                     = memory_new(BYTES, (unsigned)source);
    pair->to                       = memory_new(BYTES, (unsigned)source);
    memory_fill(pair->from, (unsigned char)(source + 1), BYTES);
}

static void pair_free(pair_t *pair)
{
    memory_free(pair->from);
    memory_free(pair->to);
    MPI_Comm_free(&pair->comm);
}

static long pair_start(pair_t *pair)
{
    memory_fill(pair->to, 0x5a, BYTES);
    return MPI_Ialltoallv(pair->from, pair->send, pair->offsets, MPI_BYTE, pair->to, pair->receive, pair->offsets,
                          MPI_BYTE, pair->comm, &pair->request) != MPI_SUCCESS;
}

static long pair_check(const pair_t *pair)
{
    unsigned char *host = malloc(BYTES);
    long errors         = 0;

    memory_get(host, pair->to, BYTES);
    for (int i = 0; i < BYTES; i++) {
        errors += host[i] != ((rank == pair->source + RANKS / 2) ? pair->source + 1 : 0x5a);
    }
    free(host);
    return errors;
}

/* Calls may miss each other on a busy machine. */
static long make_way(pair_t *pairs)
{
    unsigned long long mine[2], all[2] = {0, 0};
    long errors = 0;

    for (int round = 0; (round < ROUNDS) && ((all[0] == 0) || (all[1] == 0)); round++) {
        errors += pair_start(&pairs[0]) + pair_start(&pairs[1]);
        errors += MPI_Wait(&pairs[0].request, MPI_STATUS_IGNORE) != MPI_SUCCESS;
        errors += MPI_Wait(&pairs[1].request, MPI_STATUS_IGNORE) != MPI_SUCCESS;
        errors += pair_check(&pairs[0]) + pair_check(&pairs[1]);
        mine[0] = cases_counter("coll_mpath_yields");
        mine[1] = cases_counter("coll_mpath_receive_yields");
        MPI_Allreduce(mine, all, 2, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    }
    if ((rank == 0) && ((all[0] == 0) || (all[1] == 0))) {
        printf("%llu chunks have made way to what a NIC sends, %llu to what it receives\n", all[0], all[1]);
        errors++;
    }
    return errors;
}

static int compare_times(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static double median_of(double *times, int count)
{
    qsort(times, (size_t)count, sizeof(*times), compare_times);
    return times[count / 2];
}

/* Starts those of `which`, a mask; what each took until its last rank had it, on rank 0. */
static void time_calls(pair_t *pairs, int which, double took[2])
{
    double began_s, mine[2] = {0, 0};
    int done[2] = {!(which & 1), !(which & 2)}, i;

    MPI_Barrier(MPI_COMM_WORLD);
    began_s = MPI_Wtime();
    for (i = 0; i < 2; i++) {
        if (!done[i]) {
            pair_start(&pairs[i]);
        }
    }
    while (!done[0] || !done[1]) {
        for (i = 0; i < 2; i++) {
            if (!done[i]) {
                MPI_Test(&pairs[i].request, &done[i], MPI_STATUS_IGNORE);
                mine[i] = MPI_Wtime() - began_s;
            }
        }
    }
    MPI_Reduce(mine, took, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
}

static void print_figures(pair_t *pairs, int calls)
{
    static const char *const names[] = {"owner alone", "borrower alone", "owner beside borrower",
                                        "borrower beside owner"};
    double *times                    = calloc(4 * (size_t)calls, sizeof(*times)), took[2];
    unsigned long long mine, all;

    for (int call = -2; call < calls; call++) { /* two to warm up */
        for (int which = 1; which <= 3; which++) {
            time_calls(pairs, which, took);
            if ((call >= 0) && (which < 3)) {
                times[(which - 1) * calls + call] = took[which - 1];
            } else if (call >= 0) {
                times[2 * calls + call] = took[0];
                times[3 * calls + call] = took[1];
            }
        }
    }
    mine = cases_counter("coll_mpath_yields") + cases_counter("coll_mpath_receive_yields");
    MPI_Reduce(&mine, &all, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("chunks that made way %llu\n", all);
    }
    for (int i = 0; (i < 4) && (rank == 0); i++) {
        printf("figure %s %.6f\n", names[i], median_of(times + i * calls, calls));
    }
    free(times);
}

int main(int argc, char **argv)
{
    pair_t pairs[2];
    int size;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != RANKS) {
        fprintf(stderr, "owners: needs %d ranks, not %d\n", RANKS, size);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    pair_make(&pairs[0], 1);
    pair_make(&pairs[1], 0);
    if ((argc > 2) && (strcmp(argv[1], "figures") == 0) && (atoi(argv[2]) > 0)) {
        print_figures(pairs, atoi(argv[2]));
    } else {
        case_end("make_way", make_way(pairs));
    }
    pair_free(&pairs[0]);
    pair_free(&pairs[1]);
    cases_print_calls();
    MPI_Finalize();
    return cases_failed() != 0;
}
