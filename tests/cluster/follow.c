/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls on demand, each timed, the results of the first and the last of a command checked, while a script changes the
 * rates of the rails:
 *
 *   follow FIFO
 *
 * Rank 0 reads commands from FIFO, a line each, and tells the others: "allreduce BYTES CALLS" sums a vector of ints,
 * "alltoallv BYTES CALLS" sends BYTES from each rank, 70 % of them to rank 0, "alltoallv_other BYTES CALLS" does so on
 * another communicator of the same ranks, "alltoallv_rest BYTES CALLS" sends BYTES, or less, to all ranks, and most of it
 * between nodes other than the first one, "end". It prints "call OP SECONDS" for each call, by the slowest rank from a
 * common start, then "done OP". A rank with an error or a wrong result prints "rank R: ..." and ends the job. With
 * SURVIVOR_CUDA the buffers of alltoallv are in device memory.
 */
#include "survivor_cuda.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOT_PERCENT 70
#define REST_TIMES 4 /* as much as others */
#define LINE_MAX_BYTES 128

enum { OP_END, OP_ALLREDUCE, OP_ALLTOALLV, OP_ALLTOALLV_OTHER, OP_ALLTOALLV_REST };
static const char *const op_names[] = {"end", "allreduce", "alltoallv", "alltoallv_other", "alltoallv_rest"};

typedef struct work {
    int rank, size;
    int op, bytes, calls; /* what rank 0 has read */
    int *counts;          /* 4 * size: of the sends, their offsets, of the receives, their offsets */
    unsigned char *send, *receive;
    int on_gpu;
    unsigned long long device_send, device_receive;
    MPI_Comm other;
    int per_node; /* ranks: nodes have as many each, one after the other */
} work_t;

static void fail(const work_t *work, const char *what)
{
    printf("rank %d: %s of %s\n", work->rank, what, op_names[work->op]);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static void resize(work_t *work, size_t send_bytes, size_t receive_bytes)
{
    free(work->send);
    free(work->receive);
    work->send    = malloc(send_bytes + 1);
    work->receive = malloc(receive_bytes + 1);
    if (work->send == NULL || work->receive == NULL) {
        fail(work, "no memory for the buffers");
    }
    if (work->on_gpu && work->op != OP_ALLREDUCE) { /* what was there before stays: there are a few commands */
        must(cuda.alloc(&work->device_send, send_bytes + 1), "cuMemAlloc");
        must(cuda.alloc(&work->device_receive, receive_bytes + 1), "cuMemAlloc");
    }
}

static double slowest(double seconds)
{
    double most = 0;

    MPI_Reduce(&seconds, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    return most;
}

/* -- allreduce -- */

static double allreduce(work_t *work, int call, int checks)
{
    int *vector = (int *)(void *)work->send, *sum = (int *)(void *)work->receive,
        count = work->bytes / (int)sizeof(int);
    int ranks = work->size * (work->size - 1) / 2;
    double start, end;

    for (int i = 0; checks && i < count; i++) {
        vector[i] = work->rank * (i % 1000) + call;
    }
    if (checks) {
        memset(sum, 0xFF, (size_t)count * sizeof(int));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD); /* ranks leave the second one closer together */
    start = MPI_Wtime();
    if (MPI_Allreduce(vector, sum, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD) != MPI_SUCCESS) {
        fail(work, "error");
    }
    end = MPI_Wtime();
    for (int i = 0; checks && i < count; i++) {
        if (sum[i] != ranks * (i % 1000) + work->size * call) {
            fail(work, "wrong result");
        }
    }
    return end - start;
}

/* -- alltoallv -- */

static unsigned char byte_of(int source, int destination, int call)
{
    return (unsigned char)(source * 17 + destination * 29 + call * 7);
}

/* What a rank sends to another one. */
static int count_of(const work_t *work, int source, int destination)
{
    int hot = work->bytes / 100 * HOT_PERCENT, from = source / work->per_node, to = destination / work->per_node;

    if (work->op == OP_ALLTOALLV_REST) {
        return work->bytes / (work->size * REST_TIMES) * (from != 0 && to != 0 && from != to ? REST_TIMES : 1);
    }
    return (work->bytes - hot) / work->size + (destination == 0 ? hot : 0);
}

static size_t set_counts(work_t *work)
{
    int size    = work->size;
    size_t sent = 0, received = 0;

    for (int peer = 0; peer < size; peer++) {
        work->counts[peer]            = count_of(work, work->rank, peer);
        work->counts[size + peer]     = (int)sent;
        work->counts[2 * size + peer] = count_of(work, peer, work->rank);
        work->counts[3 * size + peer] = (int)received;
        sent += (size_t)work->counts[peer];
        received += (size_t)work->counts[2 * size + peer];
    }
    return received;
}

static double alltoallv(work_t *work, int call, int checks)
{
    int size = work->size, *counts = work->counts;
    void *send      = work->on_gpu ? (void *)(size_t)work->device_send : work->send;
    void *receive   = work->on_gpu ? (void *)(size_t)work->device_receive : work->receive;
    size_t received = (size_t)counts[4 * size - 1] + (size_t)counts[3 * size - 1];
    double start, end;

    for (int peer = 0; checks && peer < size; peer++) {
        memset(work->send + counts[size + peer], byte_of(work->rank, peer, call), (size_t)counts[peer]);
        memset(work->receive + counts[3 * size + peer], byte_of(peer, work->rank, call) ^ 0x55,
               (size_t)counts[2 * size + peer]);
    }
    if (work->on_gpu && checks) {
        must(cuda.write(work->device_send, work->send, (size_t)(counts[2 * size - 1] + counts[size - 1])), "write");
        must(cuda.write(work->device_receive, work->receive, received), "write");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD); /* ranks leave the second one closer together */
    start = MPI_Wtime();
    if (MPI_Alltoallv(send, counts, counts + size, MPI_BYTE, receive, counts + 2 * size, counts + 3 * size, MPI_BYTE,
                      work->op == OP_ALLTOALLV_OTHER ? work->other : MPI_COMM_WORLD) != MPI_SUCCESS) {
        fail(work, "error");
    }
    end = MPI_Wtime();
    if (work->on_gpu && checks) {
        must(cuda.read(work->receive, work->device_receive, received), "read");
    }
    for (int peer = 0; checks && peer < size; peer++) {
        for (int i = 0; i < counts[2 * size + peer]; i++) {
            if (work->receive[counts[3 * size + peer] + i] != byte_of(peer, work->rank, call)) {
                fail(work, "wrong result");
            }
        }
    }
    return end - start;
}

/* -- commands -- */

static void read_command(work_t *work, FILE *in)
{
    char line[LINE_MAX_BYTES], name[16] = "";

    work->op = OP_END; /* also when the script is gone */
    if (fgets(line, sizeof(line), in) == NULL || sscanf(line, "%15s %d %d", name, &work->bytes, &work->calls) < 1) {
        return;
    }
    for (int op = OP_ALLREDUCE; op <= OP_ALLTOALLV_REST; op++) {
        work->op = strcmp(name, op_names[op]) == 0 ? op : work->op;
    }
}

static void run_command(work_t *work)
{
    if (work->op == OP_ALLREDUCE) {
        resize(work, (size_t)work->bytes, (size_t)work->bytes);
    } else {
        size_t received = set_counts(work);

        resize(work, (size_t)(work->counts[2 * work->size - 1] + work->counts[work->size - 1]), received);
    }
    for (int call = 0; call < work->calls; call++) {
        int checks     = call == 0 || call == work->calls - 1;
        double seconds = slowest(work->op == OP_ALLREDUCE ? allreduce(work, call, checks)
                                                          : alltoallv(work, call, checks));

        if (work->rank == 0) {
            printf("call %s %.6f\n", op_names[work->op], seconds);
            fflush(stdout);
        }
    }
    if (work->rank == 0) {
        printf("done %s\n", op_names[work->op]);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    work_t work = {.op = OP_ALLREDUCE};
    MPI_Comm node;
    FILE *in = NULL;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &work.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &work.size);
    MPI_Comm_dup(MPI_COMM_WORLD, &work.other);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, work.rank, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &work.per_node);
    MPI_Comm_free(&node);
    work.on_gpu = start_cuda();
    work.counts = malloc(4 * (size_t)work.size * sizeof(int));
    if (work.rank == 0 && argc == 2) {
        in = fopen(argv[1], "r");
    }
    if (argc != 2 || work.counts == NULL || (work.rank == 0 && in == NULL)) {
        fprintf(stderr, "usage: follow FIFO\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    while (work.op != OP_END) {
        int command[3];

        if (work.rank == 0) {
            read_command(&work, in);
        }
        command[0] = work.op;
        command[1] = work.bytes;
        command[2] = work.calls;
        MPI_Bcast(command, 3, MPI_INT, 0, MPI_COMM_WORLD);
        work.op    = command[0];
        work.bytes = command[1];
        work.calls = command[2];
        if (work.op != OP_END) {
            run_command(&work);
        }
    }
    free(work.send);
    free(work.receive);
    free(work.counts);
    MPI_Comm_free(&work.other);
    MPI_Finalize();
    return 0;
}
