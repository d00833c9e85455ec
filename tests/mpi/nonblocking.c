/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Non-blocking and persistent collectives. Usage: nonblocking [CASE...]. Besides the cases that run by default there
 * are late, for jobs with coll_mpath_timeout_s 20, numbers, for those with pack_bytes 1k of coll_mpath_internals, and threads, which
 * needs MPI_THREAD_MULTIPLE.
 */
#include "mpi/memory.h"
#include "mpi/nonblocking_life.h"
#include "mpi/nonblocking_ops.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define COMMUNICATORS 4
#define AT_A_TIME 6
#define NUM_THREADS 3

int world_rank, world_size;

static void pause_ms(int ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000L};

    nanosleep(&time, NULL);
}

/* Waits by MPI_Test, doing something else in between. */
static int test_until_done(MPI_Request *request)
{
    int done = 0, status = MPI_SUCCESS;

    while (!done && (status == MPI_SUCCESS)) {
        status = MPI_Test(request, &done, MPI_STATUS_IGNORE);
    }
    return status;
}

/* -- one operation at a time, from nothing to several segments -- */

static long case_each(void)
{
    static const int elements[] = {0, 1, 3, 40, 1000, 30011, 200001};
    long errors                 = 0;

    for (int kind = 0; kind < KINDS; kind++) {
        for (size_t i = 0; i < sizeof(elements) / sizeof(elements[0]); i++) {
            for (int in_place = 0; in_place < 2; in_place++) {
                operation_t operation;

                operation_make(&operation, (kind_t)kind, MPI_COMM_WORLD, elements[i], in_place,
                               (uint32_t)(kind + 10 * (int)i));
                errors += operation_start(&operation) != MPI_SUCCESS;
                errors += (((int)i + world_rank) % 2 ? test_until_done(&operation.request)
                                                     : MPI_Wait(&operation.request, MPI_STATUS_IGNORE)) != MPI_SUCCESS;
                errors += operation.request != MPI_REQUEST_NULL;
                errors += operation_check(&operation);
                operation_free(&operation);
            }
        }
    }
    return errors;
}

/* -- many at a time -- */

static void make_communicators(MPI_Comm *comms)
{
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[0]);
    MPI_Comm_split(MPI_COMM_WORLD, 0, world_size - world_rank, &comms[1]);
    MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, world_rank, &comms[2]);
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[3]);
}

/* Point-to-point messages around the ring, beside everything else. */
typedef struct ring {
    int out[1000], in[1000];
    MPI_Request requests[2];
} ring_t;

static void ring_start(ring_t *ring, int round)
{
    for (int i = 0; i < 1000; i++) {
        ring->out[i] = world_rank * 1000 + round + i;
    }
    MPI_Irecv(ring->in, 1000, MPI_INT, (world_rank + world_size - 1) % world_size, 7, MPI_COMM_WORLD,
              &ring->requests[0]);
    MPI_Isend(ring->out, 1000, MPI_INT, (world_rank + 1) % world_size, 7, MPI_COMM_WORLD, &ring->requests[1]);
}

static long ring_end(ring_t *ring, int round)
{
    int from    = (world_rank + world_size - 1) % world_size;
    long errors = 0;

    MPI_Waitall(2, ring->requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < 1000; i++) {
        errors += ring->in[i] != from * 1000 + round + i;
    }
    return errors;
}

/* Ends all, in whatever order they end. */
static long wait_any(operation_t *operations, int count)
{
    MPI_Request requests[COMMUNICATORS * AT_A_TIME];
    long errors = 0;

    for (int i = 0; i < count; i++) {
        requests[i] = operations[i].request;
    }
    for (int i = 0; i < count; i++) {
        int index = -1;

        errors += MPI_Waitany(count, requests, &index, MPI_STATUS_IGNORE) != MPI_SUCCESS;
        if ((index < 0) || (index >= count)) {
            return errors + 1;
        }
        errors += operation_check(&operations[index]);
    }
    return errors;
}

static long case_outstanding(void)
{
    operation_t operations[COMMUNICATORS * AT_A_TIME];
    MPI_Comm comms[COMMUNICATORS];
    sequence_t sequence = {11};
    ring_t *ring        = malloc(sizeof(*ring));
    long errors         = 0;

    make_communicators(comms);
    for (int round = 0; round < 6; round++) {
        int count = 0;

        pause_ms((world_rank == round % world_size) ? 5 : 0);
        ring_start(ring, round);
        for (int i = 0; i < AT_A_TIME; i++) {
            for (int c = 0; c < COMMUNICATORS; c++) {
                kind_t kind  = (kind_t)sequence_below(&sequence, KINDS);
                int elements = (int)sequence_below(&sequence, 2) ? (int)sequence_below(&sequence, 60000)
                                                                 : (int)sequence_below(&sequence, 300);

                operation_make(&operations[count], kind, comms[c], elements, (int)sequence_below(&sequence, 2),
                               (uint32_t)(round * 100 + count));
                errors += operation_start(&operations[count]) != MPI_SUCCESS;
                count++;
            }
        }
        errors += wait_any(operations, count);
        errors += ring_end(ring, round);
        for (int i = 0; i < count; i++) {
            operation_free(&operations[i]);
        }
    }
    for (int c = 0; c < COMMUNICATORS; c++) {
        MPI_Comm_free(&comms[c]);
    }
    free(ring);
    return errors;
}

/*
 * Blocking calls, and collectives that mpath does not serve, between operations that are under way on the same
 * communicator.
 */
static long case_between(void)
{
    sequence_t sequence = {23};
    long errors         = 0;
    MPI_Comm comm;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int round = 0; round < 25; round++) {
        operation_t first, second, block;
        int word = (world_rank == 0) ? round : -1, elements = (int)sequence_below(&sequence, 2) ? 20000 : 60;
        MPI_Request others[2];

        operation_make(&first, (kind_t)sequence_below(&sequence, KINDS), comm, elements, 0, (uint32_t)round);
        operation_make(&second, (kind_t)sequence_below(&sequence, KINDS), comm, elements, 0, (uint32_t)round + 1000);
        operation_make(&block, (kind_t)sequence_below(&sequence, KINDS), comm, elements, 0, (uint32_t)round + 2000);
        pause_ms((world_rank == round % world_size) ? 2 : 0);
        errors += operation_start(&first) != MPI_SUCCESS;
        MPI_Ibcast(&word, 1, MPI_INT, 0, comm, &others[0]);
        pause_ms((world_rank == (round + 1) % world_size) ? 2 : 0);
        errors += operation_start(&second) != MPI_SUCCESS;
        MPI_Ibarrier(comm, &others[1]);
        if (round % 3 == 0) {
            errors += operation_block(&block) != MPI_SUCCESS;
            errors += operation_check(&block);
        }
        if (round % 3 == 1) {
            MPI_Barrier(comm);
        }
        errors += MPI_Waitall(2, others, MPI_STATUSES_IGNORE) != MPI_SUCCESS;
        errors += word != round;
        errors += MPI_Wait(&second.request, MPI_STATUS_IGNORE) != MPI_SUCCESS;
        errors += MPI_Wait(&first.request, MPI_STATUS_IGNORE) != MPI_SUCCESS;
        errors += operation_check(&first) + operation_check(&second);
        operation_free(&first);
        operation_free(&second);
        operation_free(&block);
    }
    MPI_Comm_free(&comm);
    return errors;
}

/*
 * A rank that computes in the middle of operations, longer than the deadline of blocking calls (which the job sets to 20
 * s): no error. One operation is past its agreement then, the other has yet to begin.
 */
static long case_late(void)
{
    operation_t operations[2];
    long errors = 0;

    for (int i = 0; i < 2; i++) {
        operation_make(&operations[i], i ? KIND_ALLREDUCE : KIND_ALLTOALLV, MPI_COMM_WORLD, 400000, 0, 3);
        errors += operation_start(&operations[i]) != MPI_SUCCESS; /* the second time everything is set up */
        errors += MPI_Wait(&operations[i].request, MPI_STATUS_IGNORE) != MPI_SUCCESS;
        operation_fill(&operations[i], 4);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 2; i++) {
        errors += operation_start(&operations[i]) != MPI_SUCCESS;
    }
    if (world_rank == 1) {
        int done;

        for (int i = 0; i < 8; i++) {
            MPI_Test(&operations[0].request, &done, MPI_STATUS_IGNORE);
            pause_ms(1);
        }
        pause_ms(25000);
    }
    for (int i = 0; i < 2; i++) {
        errors += MPI_Wait(&operations[i].request, MPI_STATUS_IGNORE) != MPI_SUCCESS;
        errors += operation_check(&operations[i]);
        operation_free(&operations[i]);
    }
    return errors;
}

/* -- overlap: the bytes of an operation move in slices, while this thread computes between calls of MPI_Test -- */

static long case_overlap(void)
{
    unsigned long long calls = cases_counter("coll_mpath_calls"), slices = cases_counter("coll_mpath_slices");
    volatile double sum = 0;
    operation_t operation;
    int done = 0, computed = 0;
    long errors = 0;

    operation_make(&operation, KIND_ALLREDUCE, MPI_COMM_WORLD, 1000000, 0, 9);
    errors += operation_start(&operation) != MPI_SUCCESS;
    while (!done) {
        for (int i = 0; i < 1000; i++) {
            sum = sum + 1.0 / (1 + i + computed);
        }
        computed++;
        errors += MPI_Test(&operation.request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS;
    }
    errors += operation_check(&operation);
    operation_free(&operation);
    calls  = cases_counter("coll_mpath_calls") - calls;
    slices = cases_counter("coll_mpath_slices") - slices;
    if ((calls > 0) && ((slices < 10) || (computed < 5))) { /* 8 MB do not move in one call of MPI_Test */
        printf("rank %d: %llu slices beside %d computations\n", world_rank, slices, computed);
        errors++;
    }
    return errors;
}

/* -- threads: each its communicator, operations under way on all of them, progressed by whoever comes -- */

typedef struct worker {
    pthread_t thread;
    MPI_Comm comm;
    int number;
    long errors;
} worker_t;

static void *work(void *argument)
{
    worker_t *worker    = argument;
    sequence_t sequence = {(uint64_t)worker->number + 3};

    for (int round = 0; round < 12; round++) {
        operation_t operations[3];

        for (int i = 0; i < 3; i++) {
            operation_make(&operations[i], (kind_t)sequence_below(&sequence, KINDS), worker->comm,
                           (int)sequence_below(&sequence, 30000), 0, (uint32_t)(round * 7 + i));
            worker->errors += operation_start(&operations[i]) != MPI_SUCCESS;
        }
        if (round % 4 == worker->number) {
            operation_t block;

            operation_make(&block, KIND_ALLTOALLV, worker->comm, 5000, 0, (uint32_t)round);
            worker->errors += operation_block(&block) != MPI_SUCCESS;
            worker->errors += operation_check(&block);
            operation_free(&block);
        }
        for (int i = 2; i >= 0; i--) {
            worker->errors += ((round + i) % 2 ? test_until_done(&operations[i].request)
                                               : MPI_Wait(&operations[i].request, MPI_STATUS_IGNORE)) != MPI_SUCCESS;
            worker->errors += operation_check(&operations[i]);
            operation_free(&operations[i]);
        }
    }
    return NULL;
}

static long case_threads(void)
{
    worker_t workers[NUM_THREADS];
    long errors = 0;

    for (int i = 0; i < NUM_THREADS; i++) {
        workers[i] = (worker_t){.number = i};
        MPI_Comm_dup(MPI_COMM_WORLD, &workers[i].comm);
    }
    for (int i = 0; i < NUM_THREADS; i++) {
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) {
            MPI_Abort(MPI_COMM_WORLD, 98);
        }
    }
    for (int i = 0; i < NUM_THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        errors += workers[i].errors;
        MPI_Comm_free(&workers[i].comm);
    }
    return errors;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        long (*run)(void);
        int by_default;
    } cases[] = {
        {"each", case_each, 1},
        {"outstanding", case_outstanding, 1},
        {"between", case_between, 1},
        {"freed", case_freed, 1},
        {"freed_types", case_freed_types, 1},
        {"no_send_type", case_no_send_type, 1},
        {"self", case_self, 1},
        {"communicators", case_communicators, 1},
        {"overlap", case_overlap, 1},
        {"user", operations_user, 1},
        {"persistent", case_persistent, 1},
        {"persistent_freed", case_persistent_freed, 1},
        {"late", case_late, 0},
        {"numbers", case_numbers, 0},
        {"threads", case_threads, 0},
    };
    int provided, threads = case_wanted(argc, argv, "threads") && (argc > 1);

    MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int persistent = (cases[i].run == case_persistent) || (cases[i].run == case_persistent_freed);

        if (!case_wanted(argc, argv, cases[i].name) || ((argc == 1) && !cases[i].by_default)) {
            continue;
        }
        if ((threads && (provided < MPI_THREAD_MULTIPLE)) || (persistent && !OPS_PERSISTENT)) {
            if (world_rank == 0) {
                printf("case skip %s: this MPI library does not offer it\n", cases[i].name);
            }
            continue;
        }
        case_end(cases[i].name, cases[i].run());
    }
    cases_print_calls();
    MPI_Finalize();
    return cases_failed();
}
