/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared memory of a node. Arguments: communicators that are used at the same time, MiB of /dev/shm that everything may
 * take meanwhile, percent of the calls that mpath has to carry; "reductions": these are reductions and gathers. Every byte
 * of every call is checked; afterwards the communicators are freed, and so is their memory.
 */
#include "mpi/cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#define SPARE_MB 1.0 /* what comes and goes elsewhere */

static double used_mb(void)
{
    struct statvfs info;

    MPI_Barrier(MPI_COMM_WORLD);
    if (statvfs("/dev/shm", &info) != 0) {
        MPI_Abort(MPI_COMM_WORLD, 98);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return (double)(info.f_blocks - info.f_bfree) * (double)info.f_frsize / 1048576.0;
}

static long exchange_equal(MPI_Comm comm, int bytes, uint32_t round)
{
    exchange_t exchange;
    int size, *units;
    long errors;

    MPI_Comm_size(comm, &size);
    units = calloc((size_t)size * (size_t)size, sizeof(int));
    for (int i = 0; (units != NULL) && (i < size * size); i++) {
        units[i] = bytes;
    }
    if (units == NULL) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    exchange_init(&exchange, comm, units);
    exchange.round = round;
    errors         = exchange_run(&exchange);
    free(units);
    return errors;
}

static long reduce(MPI_Comm comm, int count)
{
    int *values = malloc((size_t)count * sizeof(int)), size;
    long errors = 0;

    MPI_Comm_size(comm, &size);
    for (int i = 0; i < count; i++) {
        values[i] = i;
    }
    MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_INT, MPI_SUM, comm);
    for (int i = 0; i < count; i++) {
        errors += values[i] != size * i;
    }
    free(values);
    return errors;
}

/* One rank's block is `count` numbers. */
static long gather(MPI_Comm comm, int count)
{
    int *mine   = malloc((size_t)count * sizeof(int)), *all, size, rank;
    long errors = 0;

    MPI_Comm_size(comm, &size);
    MPI_Comm_rank(comm, &rank);
    all = malloc((size_t)size * (size_t)count * sizeof(int));
    for (int i = 0; i < count; i++) {
        mine[i] = rank * count + i;
    }
    MPI_Allgather(mine, count, MPI_INT, all, count, MPI_INT, comm);
    for (int i = 0; i < size * count; i++) {
        errors += all[i] != i;
    }
    free(all);
    free(mine);
    return errors;
}

/* One on each communicator at the same time, begun in another order by every second rank. */
static long reduce_together(const MPI_Comm *comms, int count, int elements)
{
    int *values           = malloc((size_t)count * (size_t)elements * sizeof(int)), size, rank;
    MPI_Request *requests = malloc((size_t)count * sizeof(*requests));
    long errors           = 0;

    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < count * elements; i++) {
        values[i] = i;
    }
    for (int i = 0; i < count; i++) {
        int which = rank % 2 ? count - 1 - i : i;

        MPI_Iallreduce(MPI_IN_PLACE, values + (size_t)which * (size_t)elements, elements, MPI_INT, MPI_SUM,
                       comms[which], &requests[which]);
    }
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < count * elements; i++) {
        errors += values[i] != size * i;
    }
    free(requests);
    free(values);
    return errors;
}

/* Every second one has its ranks the other way round. */
static void communicator_make(int number, MPI_Comm *comm)
{
    int rank;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, 0, number % 2 ? -rank : rank, comm);
}

static int run_reductions(int count, double most, int percent)
{
    MPI_Comm *comms            = calloc((size_t)count, sizeof(*comms));
    unsigned long long carried = 0;
    double before              = used_mb(), during, after;
    long errors                = 0;
    int rank;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < count; i++) {
        unsigned long long calls = cases_counter("coll_mpath_calls");

        communicator_make(i, &comms[i]);
        errors += reduce(comms[i], 100000) + gather(comms[i], 20000);
        carried += cases_counter("coll_mpath_calls") - calls;
    }
    during = used_mb();
    errors += reduce_together(comms, count, 30000) + reduce_together(comms, count, 30000);
    for (int i = 0; i < count; i++) {
        errors += reduce(comms[i], 50000);
        MPI_Comm_free(&comms[i]);
    }
    after = used_mb();
    if (rank == 0) {
        printf("MiB of /dev/shm: %.1f before, %.1f with %d communicators, %.1f after; at most %.0f\n", before, during,
               count, after, most);
    }
    case_end("right", errors);
    case_end("carried", carried * 100 < (unsigned long long)count * 2 * (unsigned long long)percent);
    case_end("bounded", during > most);
    case_end("given_back", after > before + (during - before) / 4 + SPARE_MB);
    cases_print_calls();
    free(comms);
    return cases_failed() != 0;
}

int main(int argc, char **argv)
{
    int count = (argc > 1) ? atoi(argv[1]) : 60, percent = (argc > 3) ? atoi(argv[3]) : 0, rank, size;
    double most                = (argc > 2) ? atof(argv[2]) : 1e9, before, during, after;
    MPI_Comm *comms            = calloc((size_t)count, sizeof(*comms));
    unsigned long long carried = 0;
    long errors                = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 4 && strcmp(argv[4], "reductions") == 0) {
        free(comms);
        errors = run_reductions(count, most, percent);
        MPI_Finalize();
        return errors != 0;
    }
    before = used_mb();
    for (int i = 0; i < count; i++) {
        unsigned long long calls = cases_counter("coll_mpath_calls");

        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
        errors += exchange_equal(comms[i], 2000, (uint32_t)i);
        errors += exchange_equal(comms[i], (size > 16) ? 6000 : 20000, (uint32_t)i);
        carried += cases_counter("coll_mpath_calls") - calls;
        errors += reduce(comms[i], 20000);
    }
    for (int i = 0; i < count; i++) {
        errors += exchange_equal(comms[i], 300, (uint32_t)(count + i));
    }
    during = used_mb();
    for (int i = 0; i < count; i++) {
        MPI_Comm_free(&comms[i]);
    }
    after = used_mb();
    if (rank == 0) {
        printf("MiB of /dev/shm: %.1f before, %.1f with %d communicators, %.1f after; at most %.0f\n", before, during,
               count, after, most);
    }
    case_end("right", errors);
    if (percent > 0) {
        case_end("carried", carried * 100 < (unsigned long long)count * 2 * (unsigned long long)percent);
    }
    case_end("bounded", during > most);
    case_end("given_back", after > before + (during - before) / 4 + SPARE_MB);
    cases_print_calls();
    free(comms);
    MPI_Finalize();
    return cases_failed() != 0;
}
