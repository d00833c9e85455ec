/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls that mpath cannot speed up, on one node or between nodes of one rail: after a while the previous function serves
 * them without the ranks' asking each other, whether blocking or not. Sizes change, ranks are late in turn, small calls
 * come between: right bytes in all.
 */
#include "mpi/cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CALLS 1000
#define ASKED_MOST 60 /* of these */
#define TRIED_LEAST 8 /* of short ones, by the previous function */
#define BLOCK 2048    /* ints */

static int *send_buffer, *receive_buffer, *counts, *displacements, rank, size;

static void fill(int call)
{
    int peer, i;

    for (peer = 0; peer < size; peer++) {
        for (i = 0; i < BLOCK; i++) {
            send_buffer[peer * BLOCK + i] = rank * 1000003 + peer * 1009 + call * 31 + i;
        }
        counts[peer]        = (call % 50 == 49) ? 3 : BLOCK;
        displacements[peer] = peer * BLOCK;
    }
}

static long check(int call)
{
    long errors = 0;
    int peer, i;

    for (peer = 0; peer < size; peer++) {
        for (i = 0; i < counts[peer]; i++) {
            errors += receive_buffer[peer * BLOCK + i] != peer * 1000003 + rank * 1009 + call * 31 + i;
        }
    }
    return errors;
}

/* Some rank comes to a call after the others. */
static void be_late(int call)
{
    if (call % 100 == 10 + rank) {
        usleep(3000);
    }
}

/* What has been filled. `asked`: calls in which this rank agreed with the others. */
static long move(int call, int nonblocking, int *asked)
{
    unsigned long long before = cases_counter("coll_mpath_agree_ns");
    MPI_Request request;

    if (nonblocking) {
        MPI_Ialltoallv(send_buffer, counts, displacements, MPI_INT, receive_buffer, counts, displacements, MPI_INT,
                       MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        MPI_Alltoallv(send_buffer, counts, displacements, MPI_INT, receive_buffer, counts, displacements, MPI_INT,
                      MPI_COMM_WORLD);
    }
    *asked += cases_counter("coll_mpath_agree_ns") != before;
    return check(call);
}

static long case_exchange(int nonblocking)
{
    long errors = 0;
    int call, asked = 0;

    for (call = 0; call < CALLS; call++) {
        fill(call);
        be_late(call);
        errors += move(call, nonblocking, &asked);
    }
    if (asked > ASKED_MOST) {
        fprintf(stderr, "rank %d has agreed with the others on %d of %d calls\n", rank, asked, CALLS);
        errors++;
    }
    return errors;
}

/* Short ones, of which some pass in trials, now and then non-blocking; a part of the ranks sends others nothing. */
static long case_short(void)
{
    unsigned long long before = cases_counter("coll_mpath_declined"), passed;
    long errors               = 0;
    int call, peer, asked = 0;

    for (call = 0; call < CALLS; call++) {
        fill(call);
        be_late(call);
        for (peer = 0; peer < size; peer++) {
            counts[peer] = (call * 7 + rank + peer) % 150;
        }
        errors += move(call, call % 5 == 4, &asked);
    }
    passed = cases_counter("coll_mpath_declined") - before;
    if (passed < TRIED_LEAST) {
        fprintf(stderr, "rank %d: %llu of %d short calls have passed, no trial was made\n", rank, passed, CALLS);
        errors++;
    }
    return errors;
}

/* Several at a time, of two kinds, ended in another order than they were started. */
static long exchange_and_sum(int call)
{
    MPI_Request requests[3];
    int mine[500], sum[500], all[2000], i;
    long errors = 0;

    fill(call);
    be_late(call);
    for (i = 0; i < 500; i++) {
        mine[i] = rank + i + call;
    }
    MPI_Iallreduce(mine, sum, 500, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[2]);
    MPI_Ialltoallv(send_buffer, counts, displacements, MPI_INT, receive_buffer, counts, displacements, MPI_INT,
                   MPI_COMM_WORLD, &requests[1]);
    MPI_Iallgather(mine, 500, MPI_INT, all, 500, MPI_INT, MPI_COMM_WORLD, &requests[0]);
    if ((call + rank) % 3 == 0) {
        MPI_Wait(&requests[call % 3], MPI_STATUS_IGNORE);
    }
    MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
    for (i = 0; i < 500; i++) {
        errors += sum[i] != size * (size - 1) / 2 + size * (i + call);
        errors += all[(size - 1) * 500 + i] != size - 1 + i + call;
    }
    return errors + check(call);
}

static long case_outstanding(void)
{
    long errors = 0;
    int call;

    for (call = 0; call < CALLS; call++) {
        errors += exchange_and_sum(call);
    }
    return errors;
}

/* What is left to the previous function costs no request of mpath's. */
static long case_reduce(void)
{
    unsigned long long before = cases_counter("coll_mpath_started"), started;
    int vector[2048], sum[2048], call, i;
    MPI_Request request;
    long errors = 0;

    for (call = 0; call < CALLS; call++) {
        int count = (call % 2 == 0) ? 2048 : 300;

        be_late(call);
        for (i = 0; i < count; i++) {
            vector[i] = rank + i + call;
        }
        MPI_Iallreduce(vector, sum, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (i = 0; i < count; i++) {
            errors += sum[i] != size * (size - 1) / 2 + size * (i + call);
        }
    }
    started = cases_counter("coll_mpath_started") - before;
    if (started > ASKED_MOST) {
        fprintf(stderr, "rank %d has started %llu operations of mpath in %d calls\n", rank, started, CALLS);
        errors++;
    }
    return errors;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    send_buffer    = malloc((size_t)size * BLOCK * sizeof(int));
    receive_buffer = malloc((size_t)size * BLOCK * sizeof(int));
    counts         = malloc((size_t)size * 2 * sizeof(int));
    if (size > 4 || send_buffer == NULL || receive_buffer == NULL || counts == NULL) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    displacements = counts + size;
    if (case_wanted(argc, argv, "exchange")) {
        case_end("exchange", case_exchange(0));
    }
    if (case_wanted(argc, argv, "iexchange")) {
        case_end("iexchange", case_exchange(1));
    }
    if (case_wanted(argc, argv, "short")) {
        case_end("short", case_short());
    }
    if (case_wanted(argc, argv, "reduce")) {
        case_end("reduce", case_reduce());
    }
    if (case_wanted(argc, argv, "outstanding")) {
        case_end("outstanding", case_outstanding());
    }
    cases_print_calls();
    free(send_buffer);
    free(receive_buffer);
    free(counts);
    MPI_Finalize();
    return cases_failed() ? 1 : 0;
}
