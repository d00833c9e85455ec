/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI_THREAD_MULTIPLE: each thread has a communicator of its own and all exchange at the same time. */
#include "mpi/cases.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define NUM_THREADS 3
#define NUM_ROUNDS 12

typedef struct worker {
    pthread_t thread;
    MPI_Comm comm;
    int number;
    long errors;
} worker_t;

/* An Allreduce beside the exchanges of the other threads, from travelling in the agreement to several segments. */
static long sum_up(MPI_Comm comm, int count, int round)
{
    int rank, size, i, *data = malloc((size_t)count * sizeof(int));
    long errors = 0;

    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    if (data == NULL) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    for (i = 0; i < count; i++) {
        data[i] = rank * 3 + i + round;
    }
    errors += MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_INT, MPI_SUM, comm) != MPI_SUCCESS;
    for (i = 0; i < count; i++) {
        errors += data[i] != 3 * (size * (size - 1) / 2) + size * (i + round);
    }
    free(data);
    return errors;
}

static void *work(void *argument)
{
    worker_t *worker    = argument;
    sequence_t sequence = {(uint64_t)worker->number + 17};
    exchange_t exchange;
    int size, round, i, *units;

    MPI_Comm_size(worker->comm, &size);
    units = malloc((size_t)size * (size_t)size * sizeof(int));
    if (units == NULL) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    for (round = 0; round < NUM_ROUNDS; round++) {
        for (i = 0; i < size * size; i++) {
            units[i] = sequence_below(&sequence, 3) ? (int)sequence_below(&sequence, 50000) : 0;
        }
        exchange_init(&exchange, worker->comm, units);
        exchange.round = (uint32_t)(worker->number * 100 + round);
        worker->errors += exchange_run(&exchange);
        worker->errors += sum_up(worker->comm, round % 2 ? 30011 + round : 9 + round, round);
    }
    free(units);
    return NULL;
}

/* All workers at once; `used`: each communicator has been used before by one thread. */
static long run_workers(int used)
{
    worker_t workers[NUM_THREADS];
    long errors = 0;
    int i;

    for (i = 0; i < NUM_THREADS; i++) {
        workers[i].number = i;
        workers[i].errors = 0;
        MPI_Comm_dup(MPI_COMM_WORLD, &workers[i].comm);
        if (used) {
            work(&workers[i]);
        }
    }
    for (i = 0; i < NUM_THREADS; i++) {
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) {
            MPI_Abort(MPI_COMM_WORLD, 98);
        }
    }
    for (i = 0; i < NUM_THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        errors += workers[i].errors;
        MPI_Comm_free(&workers[i].comm);
    }
    return errors;
}

int main(int argc, char **argv)
{
    int provided;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    if (provided < MPI_THREAD_MULTIPLE) {
        printf("case skip threads: this MPI library offers no MPI_THREAD_MULTIPLE\n");
        MPI_Finalize();
        return 0;
    }
    case_end("threads_used_before", run_workers(1));
    case_end("threads_new", run_workers(0));
    cases_print_calls();
    MPI_Finalize();
    return cases_failed() != 0;
}
