/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parameter sync with the value "device": MPI_Alltoallv, MPI_Allreduce and a short MPI_Iallreduce are called while the
 * copies that bring the data, to memory of a device or of the host that it reaches, are still far back on a stream of
 * the application, behind fills with something else, and have to take the right data. Argument: MiB that each fill writes
 * besides, which keep a real GPU busy long enough (default 0). A run in which no call ever came before its data says
 * nothing, and fails.
 */
#include "mpi/cases.h"
#include "mpi/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE 5000
#define SHORT 50
#define FILLS 20
#define ROUNDS 3

typedef struct job {
    int rank, size;
    int *host; /* pinned: copies from it wait on the stream, not in the call that enqueues them */
    void *send, *receive, *scratch;
    size_t scratch_bytes;
    int *counts, *offsets;
    int was_late; /* calls that began before their data was there */
} job_t;

static unsigned char value_of(int source, int destination, int round, int position)
{
    return (unsigned char)(source * 31 + destination * 7 + round * 13 + position);
}

static void put_late(job_t *job, size_t bytes)
{
    memory_put_late(&(memory_late_t){.memory        = job->send,
                                     .host          = job->host,
                                     .bytes         = bytes,
                                     .scratch       = job->scratch,
                                     .scratch_bytes = job->scratch_bytes,
                                     .fills         = FILLS});
    job->was_late += memory_is_late();
}

static int alltoallv_is_right(job_t *job, int round)
{
    int bytes = job->size * PIECE, wrong = 0;
    unsigned char *back = malloc((size_t)bytes), *host = (unsigned char *)job->host;

    for (int i = 0; i < bytes; i++) {
        host[i] = value_of(job->rank, i / PIECE, round, i);
    }
    put_late(job, (size_t)bytes);
    MPI_Alltoallv(job->send, job->counts, job->offsets, MPI_BYTE, job->receive, job->counts, job->offsets, MPI_BYTE,
                  MPI_COMM_WORLD);
    memory_get(back, job->receive, (size_t)bytes);
    for (int i = 0; i < bytes; i++) {
        wrong += back[i] != value_of(i / PIECE, job->rank, round, job->rank * PIECE + i % PIECE);
    }
    free(back);
    return wrong == 0;
}

static int allreduce_is_right(job_t *job, int round, int count)
{
    int *back = malloc(PIECE * sizeof(int)), size = job->size, wrong = 0;
    MPI_Request request;

    for (int i = 0; i < count; i++) {
        job->host[i] = job->rank + i + round;
    }
    put_late(job, (size_t)count * sizeof(int));
    if (count == PIECE) {
        MPI_Allreduce(job->send, job->receive, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    } else {
        MPI_Iallreduce(job->send, job->receive, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    memory_get(back, job->receive, (size_t)count * sizeof(int));
    for (int i = 0; i < count; i++) {
        wrong += back[i] != size * (size - 1) / 2 + size * (i + round);
    }
    free(back);
    return wrong == 0;
}

static void make(job_t *job, size_t scratch_mib)
{
    size_t capacity;

    MPI_Comm_rank(MPI_COMM_WORLD, &job->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &job->size);
    capacity           = (size_t)job->size * PIECE * sizeof(int);
    job->send          = memory_new(capacity, 1);
    job->receive       = memory_new(capacity, 2);
    job->scratch_bytes = scratch_mib << 20;
    job->scratch       = memory_new(job->scratch_bytes + 1, 3);
    job->host          = memory_new_pinned(capacity);
    job->counts        = malloc(2 * (size_t)job->size * sizeof(int));
    job->offsets       = job->counts + job->size;
    for (int peer = 0; peer < job->size; peer++) {
        job->counts[peer]  = PIECE;
        job->offsets[peer] = peer * PIECE;
    }
}

int main(int argc, char **argv)
{
    int good[3] = {1, 1, 1}, late;
    job_t job   = {.rank = 0};

    MPI_Init(&argc, &argv);
    make(&job, (argc > 1) ? (size_t)atoi(argv[1]) : 0);
    for (int round = 0; round < ROUNDS; round++) {
        good[0] = alltoallv_is_right(&job, round) && good[0];
        good[1] = allreduce_is_right(&job, round, PIECE) && good[1];
        good[2] = allreduce_is_right(&job, round, SHORT) && good[2];
    }
    MPI_Allreduce(&job.was_late, &late, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    case_end("alltoallv", !good[0]);
    case_end("allreduce", !good[1]);
    case_end("iallreduce", !good[2]);
    case_end("late", late == 0);
    cases_print_calls();
    memory_free(job.send);
    memory_free(job.receive);
    memory_free(job.scratch);
    memory_free(job.host);
    free(job.counts);
    MPI_Finalize();
    return cases_failed() > 0;
}
