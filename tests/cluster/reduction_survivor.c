/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reductions and gathers, every result checked, on a communicator that returns errors, while the script "failures" cuts
 * a rail:
 *
 *   reduction_survivor CALLS BYTES KIND
 *
 * KIND: blocking: MPI_Allreduce, MPI_Reduce_scatter_block, the latter in place, and MPI_Allgather in turn; nonblocking:
 * their non-blocking forms; in_place: MPI_Allreduce in place. BYTES: of the vector. Lines and their meaning as in
 * survivor.c. With SURVIVOR_CUDA, path of a CUDA driver, all buffers are in device memory and nothing is in place but the
 * kind of that name.
 */
#include "survivor_cuda.h"

#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define WARM_CALLS 5

enum { ALLREDUCE, REDUCE_SCATTER, REDUCE_SCATTER_IN_PLACE, ALLGATHER, OPS };

typedef struct work {
    int rank, size, nonblocking, in_place;
    int block; /* ints of each rank; the vector has size of them */
    int *send, *recv;
    unsigned long long send_there, recv_there; /* device memory; 0: none */
} work_t;

/* -- buffers -- */

static void make_buffers(work_t *work)
{
    size_t bytes = (size_t)work->block * (size_t)work->size * sizeof(int);

    work->send = malloc(bytes);
    work->recv = malloc(bytes);
    if (work->send == NULL || work->recv == NULL)
        MPI_Abort(MPI_COMM_WORLD, 2);
    if (start_cuda()) {
        must(cuda.alloc(&work->send_there, bytes), "cuMemAlloc");
        must(cuda.alloc(&work->recv_there, bytes), "cuMemAlloc");
    }
}

/* What the host's buffers hold to the device's. */
static void put(const work_t *work)
{
    size_t bytes = (size_t)work->block * (size_t)work->size * sizeof(int);

    if (work->send_there != 0) {
        must(cuda.write(work->send_there, work->send, bytes), "cuMemcpyHtoD");
        must(cuda.write(work->recv_there, work->recv, bytes), "cuMemcpyHtoD");
    }
}

static void get(const work_t *work)
{
    if (work->recv_there != 0)
        must(cuda.read(work->recv, work->recv_there, (size_t)work->block * (size_t)work->size * sizeof(int)),
             "cuMemcpyDtoH");
}

/* -- the calls -- */

static void report(const work_t *work, const char *outcome, int call, const char *text)
{
    if (call < 0)
        printf("rank %d: %s\n", work->rank, outcome);
    else
        printf("rank %d: %s in call %d: %s\n", work->rank, outcome, call, text);
    fflush(stdout);
    pause();
}

static int op_of(const work_t *work, int call)
{
    if (work->in_place)
        return ALLREDUCE;
    return work->send_there != 0 && call % OPS == REDUCE_SCATTER_IN_PLACE ? ALLREDUCE : call % OPS;
}

static int value_of(int rank, int i, int call)
{
    return rank * (i % 1000) + call;
}

static int sum_of(const work_t *work, int i, int call)
{
    return work->size * (work->size - 1) / 2 * (i % 1000) + work->size * call;
}

static void fill(const work_t *work, int call)
{
    int op = op_of(work, call), whole = work->block * work->size;
    int *data = work->in_place || op == REDUCE_SCATTER_IN_PLACE ? work->recv : work->send;

    memset(work->recv, 0xFF, (size_t)whole * sizeof(int));
    for (int i = 0; i < whole; i++)
        data[i] = value_of(work->rank, i, call);
    put(work);
}

/* The blocking call, or the start of the other. */
static int start(const work_t *work, int op, MPI_Request *request)
{
    int whole  = work->block * work->size;
    void *recv = work->recv_there != 0 ? (void *)(uintptr_t)work->recv_there : work->recv;
    void *send = work->send_there != 0 ? (void *)(uintptr_t)work->send_there : work->send;

    if (work->in_place || op == REDUCE_SCATTER_IN_PLACE)
        send = MPI_IN_PLACE;

    switch (op) {
    case ALLREDUCE:
        return work->nonblocking ? MPI_Iallreduce(send, recv, whole, MPI_INT, MPI_SUM, MPI_COMM_WORLD, request)
                                 : MPI_Allreduce(send, recv, whole, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    case REDUCE_SCATTER:
    case REDUCE_SCATTER_IN_PLACE:
        return work->nonblocking
                   ? MPI_Ireduce_scatter_block(send, recv, work->block, MPI_INT, MPI_SUM, MPI_COMM_WORLD, request)
                   : MPI_Reduce_scatter_block(send, recv, work->block, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    default:
        return work->nonblocking
                   ? MPI_Iallgather(send, work->block, MPI_INT, recv, work->block, MPI_INT, MPI_COMM_WORLD, request)
                   : MPI_Allgather(send, work->block, MPI_INT, recv, work->block, MPI_INT, MPI_COMM_WORLD);
    }
}

static int run(const work_t *work, int call)
{
    MPI_Request request;
    int status = start(work, op_of(work, call), &request);

    return work->nonblocking && status == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : status;
}

static int is_right(const work_t *work, int call)
{
    int op = op_of(work, call), scattered = op == REDUCE_SCATTER || op == REDUCE_SCATTER_IN_PLACE;
    int first = scattered ? work->rank * work->block : 0, count = work->block * (scattered ? 1 : work->size);

    get(work);
    for (int i = 0; i < count; i++) {
        int expected = op == ALLGATHER ? value_of(i / work->block, i % work->block, call)
                                       : sum_of(work, first + i, call);

        if (work->recv[i] != expected)
            return 0;
    }
    return 1;
}

int main(int argc, char **argv)
{
    int calls = argc > 1 ? atoi(argv[1]) : 0, length;
    char text[MPI_MAX_ERROR_STRING];
    work_t work = {0};

    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &work.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &work.size);
    if (argc != 4 || calls <= WARM_CALLS) {
        fprintf(stderr, "usage: reduction_survivor CALLS BYTES blocking|nonblocking|in_place, more than %d calls\n",
                WARM_CALLS);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    work.nonblocking = strcmp(argv[3], "nonblocking") == 0;
    work.in_place    = strcmp(argv[3], "in_place") == 0;
    work.block       = atoi(argv[2]) / (int)sizeof(int) / work.size;
    make_buffers(&work);
    for (int call = 0; call < calls; call++) {
        int status;

        fill(&work, call);
        status = run(&work, call);
        if (status != MPI_SUCCESS) {
            MPI_Error_string(status, text, &length);
            report(&work, "error", call, text);
        }
        if (!is_right(&work, call))
            report(&work, "wrong bytes", call, "a success was returned");
        if (work.rank == 0 && call + 1 == WARM_CALLS) {
            printf("under way\n");
            fflush(stdout);
        }
    }
    report(&work, "completed", -1, "");
    return 0;
}
