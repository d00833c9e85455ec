/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls whose rails carry far less than is declared, with more bytes than hide it: the previous functions are tried for
 * each operation, blocking calls of which others that are not blocking stand between. Then all operations mixed, of the same
 * and of other lengths, some two at a time: where the previous function is faster, and all know that a call is of that kind, it
 * goes there without an agreement. Right results in all.
 */
#include "mpi/cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALLS 36           /* shares may follow the rails in 16 of them before */
#define TRIED_LEAST 3      /* by the previous function */
#define ELEMENTS (2 << 20) /* ints; of them a rank's part is its size-th */
#define MIXED_CALLS 60

static int *mine, *result, *second, *counts, *displacements, rank, size, part;

/* What rank `of` has at `at` is pattern[at] + shift(of, call). */
static int *pattern;

static int shift(int of, int call)
{
    return of * 1009 + call * 31;
}

/* The ints that are not `times` the pattern from `at` on, and `more`. */
static long compare(const int *got, int at, int count, int times, int more)
{
    long errors = 0;
    int i;

    for (i = 0; i < count; i++) {
        errors += got[i] != times * pattern[at + i] + more;
    }
    return errors;
}

static void fill(int call)
{
    int more = shift(rank, call), i;

    for (i = 0; i < size * part; i++) {
        mine[i] = pattern[i] + more;
    }
    memset(result, 0xA5, (size_t)(size * part) * sizeof(int));
}

/* -- operations: `request` NULL for a blocking call -- */

static void exchange(MPI_Request *request)
{
    if (request != NULL) {
        MPI_Ialltoallv(mine, counts, displacements, MPI_INT, result, counts, displacements, MPI_INT, MPI_COMM_WORLD,
                       request);
    } else {
        MPI_Alltoallv(mine, counts, displacements, MPI_INT, result, counts, displacements, MPI_INT, MPI_COMM_WORLD);
    }
}

static void equal_exchange(MPI_Request *request)
{
    if (request != NULL) {
        MPI_Ialltoall(mine, part, MPI_INT, result, part, MPI_INT, MPI_COMM_WORLD, request);
    } else {
        MPI_Alltoall(mine, part, MPI_INT, result, part, MPI_INT, MPI_COMM_WORLD);
    }
}

static long check_exchange(int call)
{
    long errors = 0;
    int peer;

    for (peer = 0; peer < size; peer++) {
        errors += compare(result + peer * part, rank * part, part, 1, shift(peer, call));
    }
    return errors;
}

static void sum(MPI_Request *request)
{
    if (request != NULL) {
        MPI_Iallreduce(mine, result, size * part, MPI_INT, MPI_SUM, MPI_COMM_WORLD, request);
    } else {
        MPI_Allreduce(mine, result, size * part, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    }
}

static long check_summed(int at, int count, int call)
{
    int peer, more = 0;

    for (peer = 0; peer < size; peer++) {
        more += shift(peer, call);
    }
    return compare(result, at, count, size, more);
}

static long check_sum(int call)
{
    return check_summed(0, size * part, call);
}

static void scatter(MPI_Request *request)
{
    if (request != NULL) {
        MPI_Ireduce_scatter(mine, result, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD, request);
    } else {
        MPI_Reduce_scatter(mine, result, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    }
}

static void scatter_block(MPI_Request *request)
{
    if (request != NULL) {
        MPI_Ireduce_scatter_block(mine, result, part, MPI_INT, MPI_SUM, MPI_COMM_WORLD, request);
    } else {
        MPI_Reduce_scatter_block(mine, result, part, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    }
}

static long check_scatter(int call)
{
    return check_summed(rank * part, part, call);
}

static void gather(MPI_Request *request)
{
    if (request != NULL) {
        MPI_Iallgather(mine, part, MPI_INT, result, part, MPI_INT, MPI_COMM_WORLD, request);
    } else {
        MPI_Allgather(mine, part, MPI_INT, result, part, MPI_INT, MPI_COMM_WORLD);
    }
}

static void gather_blocks(MPI_Request *request)
{
    if (request != NULL) {
        MPI_Iallgatherv(mine, part, MPI_INT, result, counts, displacements, MPI_INT, MPI_COMM_WORLD, request);
    } else {
        MPI_Allgatherv(mine, part, MPI_INT, result, counts, displacements, MPI_INT, MPI_COMM_WORLD);
    }
}

static long check_gather(int call)
{
    long errors = 0;
    int peer;

    for (peer = 0; peer < size; peer++) {
        errors += compare(result + peer * part, 0, part, 1, shift(peer, call));
    }
    return errors;
}

static const struct {
    const char *name;
    void (*run)(MPI_Request *request);
    long (*check)(int call);
    int is_known; /* calls of the one before have shown which way is the faster */
} operations[] = {{"alltoallv", exchange, check_exchange, 0},
                  {"alltoall", equal_exchange, check_exchange, 1},
                  {"allreduce", sum, check_sum, 0},
                  {"reduce_scatter", scatter, check_scatter, 0},
                  {"reduce_scatter_block", scatter_block, check_scatter, 1},
                  {"allgather", gather, check_gather, 0},
                  {"allgatherv", gather_blocks, check_gather, 1}};

#define OPERATIONS (sizeof(operations) / sizeof(operations[0]))

static void set_part(int elements)
{
    int peer;

    part = elements;
    for (peer = 0; peer < size; peer++) {
        counts[peer]        = part;
        displacements[peer] = peer * part;
    }
}

static long run_operation(size_t operation)
{
    unsigned long long before = cases_counter("coll_mpath_declined"), declined;
    MPI_Request request;
    long errors = 0;
    int call;

    for (call = 0; call < CALLS; call++) {
        fill(call);
        if (call % 5 == 4) {
            operations[operation].run(&request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            operations[operation].run(NULL);
        }
        errors += operations[operation].check(call);
    }
    declined = cases_counter("coll_mpath_declined") - before;
    if (rank == 0) {
        printf("%s: %llu of %d calls by the previous function\n", operations[operation].name, declined, CALLS);
    }
    if ((declined < TRIED_LEAST) && !operations[operation].is_known) {
        fprintf(stderr, "rank %d: %llu of %d calls of %s were left to the previous function, no trial was made\n", rank,
                declined, CALLS, operations[operation].name);
        errors++;
    }
    return errors;
}

/* The same numbers on all ranks. */
static unsigned draw(unsigned below)
{
    static unsigned long long state = 1;

    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(state >> 33) % below;
}

/* Two calls at a time, of the same bytes and from the same place. */
static long run_two(size_t operation, int call)
{
    MPI_Request requests[2];
    int *first = result;
    long errors;

    operations[operation].run(&requests[0]);
    result = second;
    memset(result, 0xA5, (size_t)(size * part) * sizeof(int));
    operations[operation].run(&requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    errors = operations[operation].check(call);
    result = first;
    return errors + operations[operation].check(call);
}

/* Most calls are as long as those before: what these have shown holds for them. */
static long run_mixed(void)
{
    static const int divisors[] = {1, 1, 1, 1, 1, 64, 4096};
    unsigned long long before, asked = 0;
    long errors = 0;
    int call;

    for (call = 0; call < MIXED_CALLS; call++) {
        size_t operation = draw(OPERATIONS);

        set_part(ELEMENTS / size / divisors[draw(sizeof(divisors) / sizeof(divisors[0]))]);
        fill(call);
        before = cases_counter("coll_mpath_agree_ns");
        if (draw(6) == 0) {
            errors += run_two(operation, call);
        } else {
            operations[operation].run(NULL);
            errors += operations[operation].check(call);
        }
        asked += cases_counter("coll_mpath_agree_ns") > before;
    }
    if (rank == 0) {
        printf("mixed: the ranks agreed on %llu of %d calls or pairs of calls\n", asked, MIXED_CALLS);
    }
    return errors;
}

int main(int argc, char **argv)
{
    size_t operation;
    int i;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    mine          = malloc(ELEMENTS * sizeof(int));
    result        = malloc(ELEMENTS * sizeof(int));
    second        = malloc(ELEMENTS * sizeof(int));
    pattern       = malloc(ELEMENTS * sizeof(int));
    counts        = malloc((size_t)size * sizeof(int));
    displacements = malloc((size_t)size * sizeof(int));
    if ((mine == NULL) || (result == NULL) || (second == NULL) || (pattern == NULL) || (counts == NULL) ||
        (displacements == NULL)) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    set_part(ELEMENTS / size);
    for (i = 0; i < ELEMENTS; i++) {
        pattern[i] = i % 1000003 * 3;
    }
    for (operation = 0; operation < OPERATIONS; operation++) {
        if (case_wanted(argc, argv, operations[operation].name)) {
            case_end(operations[operation].name, run_operation(operation));
        }
    }
    if (case_wanted(argc, argv, "mixed")) {
        case_end("mixed", run_mixed());
    }
    cases_print_calls();
    free(second);
    free(displacements);
    free(counts);
    free(pattern);
    free(result);
    free(mine);
    MPI_Finalize();
    return cases_failed() ? 1 : 0;
}
