/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives of all kinds in a random order on several communicators, as applications mix them: sizes around every
 * limit, in place, empty, communicators that end while others are in use, ranks that come late. Usage: mixed [CALLS
 * [SEED]], or mixed short: a rank whose device buffer is shorter than it says, of which all others have to hear.
 */
#include "mpi/cases.h"
#include "mpi/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMUNICATORS 4

typedef struct call {
    MPI_Comm comm;
    int rank, size, in_place;
    uint32_t round;
} call_t;

/* A buffer of the test and its copy on the host. */
typedef struct buffer {
    int64_t *host;
    void *memory;
    size_t bytes;
} buffer_t;

static int world_rank;

static int64_t value(const call_t *call, int rank, size_t at)
{
    return (int64_t)(rank + 1) * (int64_t)(at % 977 + call->round % 31) + (int64_t)(call->round % 7);
}

static buffer_t buffer_new(size_t elements, unsigned seed)
{
    buffer_t buffer = {.bytes = elements * sizeof(int64_t)};

    if (elements > 0) {
        buffer.host   = malloc(buffer.bytes);
        buffer.memory = memory_new(buffer.bytes, seed);
        if ((buffer.host == NULL) || (buffer.memory == NULL)) {
            MPI_Abort(MPI_COMM_WORLD, 99);
        }
        memset(buffer.host, 0x5a, buffer.bytes);
        memory_fill(buffer.memory, 0x5a, buffer.bytes);
    }
    return buffer;
}

static void buffer_up(const buffer_t *buffer)
{
    if (buffer->bytes > 0) {
        memory_put(buffer->memory, buffer->host, buffer->bytes);
    }
}

static void buffer_down(const buffer_t *buffer)
{
    if (buffer->bytes > 0) {
        memory_get(buffer->host, buffer->memory, buffer->bytes);
    }
}

static void buffer_free(buffer_t *buffer)
{
    if (buffer->bytes > 0) {
        memory_free(buffer->memory);
        free(buffer->host);
    }
}

/* Around the limits of what travels in the agreement, of segments and of slots. */
static size_t choose_elements(sequence_t *sequence)
{
    static const size_t near[] = {0, 1, 2, 7, 511, 512, 513, 2047, 2048, 2049, 8191, 20000, 65537, 150001, 400003};
    size_t elements            = near[sequence_below(sequence, sizeof(near) / sizeof(near[0]))];

    return (elements > 8) ? elements + sequence_below(sequence, 5) - 2 : elements;
}

static int64_t sum_of(const call_t *call, size_t at)
{
    int64_t sum = 0;

    for (int rank = 0; rank < call->size; rank++) {
        sum += value(call, rank, at);
    }
    return sum;
}

static long run_allreduce(const call_t *call, size_t elements, unsigned seed)
{
    buffer_t in = buffer_new(elements, seed), out = buffer_new(elements, seed + 1);
    buffer_t *from = call->in_place ? &out : &in;
    long errors    = 0;

    for (size_t i = 0; i < elements; i++) {
        from->host[i] = value(call, call->rank, i);
    }
    buffer_up(from);
    MPI_Allreduce(call->in_place ? MPI_IN_PLACE : in.memory, out.memory, (int)elements, MPI_INT64_T, MPI_SUM,
                  call->comm);
    buffer_down(&out);
    for (size_t i = 0; i < elements; i++) {
        errors += out.host[i] != sum_of(call, i);
    }
    buffer_free(&in);
    buffer_free(&out);
    return errors;
}

static long run_reduce_scatter(const call_t *call, size_t elements, unsigned seed, sequence_t *sequence)
{
    int *counts = calloc((size_t)call->size, sizeof(int)), block = (int)sequence_below(sequence, 2);
    size_t total = 0, first = 0, mine;
    buffer_t in, out;
    long errors = 0;

    for (int rank = 0; rank < call->size; rank++) {
        counts[rank] = (block || (sequence_below(sequence, 3) > 0)) ? (int)(elements / (size_t)call->size) : 0;
        first += (rank < call->rank) ? (size_t)counts[rank] : 0;
        total += (size_t)counts[rank];
    }
    mine = (size_t)counts[call->rank];
    in   = buffer_new(total, seed);
    out  = buffer_new(mine, seed + 1);
    for (size_t i = 0; i < total; i++) {
        in.host[i] = value(call, call->rank, i);
    }
    buffer_up(&in);
    if (block) {
        MPI_Reduce_scatter_block(call->in_place ? MPI_IN_PLACE : in.memory, call->in_place ? in.memory : out.memory,
                                 counts[0], MPI_INT64_T, MPI_SUM, call->comm);
    } else {
        MPI_Reduce_scatter(call->in_place ? MPI_IN_PLACE : in.memory, call->in_place ? in.memory : out.memory, counts,
                           MPI_INT64_T, MPI_SUM, call->comm);
    }
    buffer_down(call->in_place ? &in : &out);
    for (size_t i = 0; i < mine; i++) {
        errors += (call->in_place ? in : out).host[i] != sum_of(call, first + i);
    }
    buffer_free(&in);
    buffer_free(&out);
    free(counts);
    return errors;
}

static long run_allgather(const call_t *call, size_t elements, unsigned seed, sequence_t *sequence)
{
    int *counts = calloc(2 * (size_t)call->size, sizeof(int)), *offsets = counts + call->size;
    int equal    = (int)sequence_below(sequence, 2);
    size_t total = 0, mine;
    buffer_t in, out;
    long errors = 0;

    for (int rank = 0; rank < call->size; rank++) {
        counts[rank]  = (equal || (sequence_below(sequence, 3) > 0)) ? (int)(elements / (size_t)call->size) : 0;
        offsets[rank] = (int)total;
        total += (size_t)counts[rank] + (equal ? 0 : 1);
    }
    mine = (size_t)counts[call->rank];
    in   = buffer_new(mine, seed);
    out  = buffer_new(total, seed + 1);
    for (size_t i = 0; i < mine; i++) {
        in.host[i] = value(call, call->rank, i);
        if (call->in_place) {
            out.host[(size_t)offsets[call->rank] + i] = in.host[i];
        }
    }
    buffer_up(&in);
    buffer_up(&out);
    if (equal) {
        MPI_Allgather(call->in_place ? MPI_IN_PLACE : in.memory, (int)mine, MPI_INT64_T, out.memory, counts[0],
                      MPI_INT64_T, call->comm);
    } else {
        MPI_Allgatherv(call->in_place ? MPI_IN_PLACE : in.memory, (int)mine, MPI_INT64_T, out.memory, counts, offsets,
                       MPI_INT64_T, call->comm);
    }
    buffer_down(&out);
    for (int rank = 0; rank < call->size; rank++) {
        for (int i = 0; i < counts[rank]; i++) {
            errors += out.host[offsets[rank] + i] != value(call, rank, (size_t)i);
        }
    }
    buffer_free(&in);
    buffer_free(&out);
    free(counts);
    return errors;
}

static long run_alltoallv(const call_t *call, size_t elements, sequence_t *sequence)
{
    int *units = calloc((size_t)call->size * (size_t)call->size, sizeof(int)), hot;
    long errors;
    exchange_t exchange;

    hot = (int)sequence_below(sequence, (uint32_t)call->size);
    for (int from = 0; from < call->size; from++) {
        for (int to = 0; to < call->size; to++) {
            int some = (int)(elements * sizeof(int64_t)) / call->size;

            units[from * call->size + to] = (to == hot) ? some : (sequence_below(sequence, 2) ? some / 16 : 0);
        }
    }
    exchange_init(&exchange, call->comm, units);
    exchange.round = call->round;
    errors         = exchange_run(&exchange);
    free(units);
    return errors;
}

/* The number of wrong elements. */
static long run_one(call_t *call, sequence_t *sequence)
{
    uint32_t what   = sequence_below(sequence, 6);
    size_t elements = choose_elements(sequence);
    unsigned seed   = 2 * sequence_next(sequence) + (unsigned)call->rank;

    call->in_place = sequence_below(sequence, 3) == 0;
    switch (what) {
    case 0:
    case 1:
        return run_alltoallv(call, elements, sequence);
    case 2:
    case 3:
        return run_allreduce(call, elements, seed);
    case 4:
        return run_reduce_scatter(call, elements, seed, sequence);
    default:
        return run_allgather(call, elements, seed, sequence);
    }
}

/*
 * Errors of the four collectives of which this rank heard nothing; `count` elements are in the buffers of all ranks but
 * one.
 */
static long run_short(void)
{
    enum { COUNT = 60000, SOME = 16 };
    size_t bytes = (world_rank == 1 ? SOME : COUNT) * sizeof(int64_t);
    int world_size, mine, sizes[64];
    long silent = 0;

    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    mine = COUNT / world_size;
    for (int rank = 0; rank < world_size; rank++) {
        sizes[rank] = mine;
    }
    for (int what = 0; what < 4; what++) {
        int64_t *good = memory_new(COUNT * sizeof(int64_t), 1), *bad = memory_new(bytes, 2);
        int64_t *other = memory_new(COUNT * sizeof(int64_t), 3);
        MPI_Comm comm;
        int rc;

        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        rc = MPI_Allreduce(good, other, COUNT, MPI_INT64_T, MPI_SUM, comm); /* mpath has set itself up afterwards */
        if (rc != MPI_SUCCESS) {
            silent++;
        }
        MPI_Barrier(MPI_COMM_WORLD); /* a rank that is still in that call would hear of the next one's error in it */
        switch (what) {
        case 0:
            rc = MPI_Allreduce(bad, other, COUNT, MPI_INT64_T, MPI_SUM, comm);
            break;
        case 1:
            rc = MPI_Reduce_scatter(bad, other, sizes, MPI_INT64_T, MPI_SUM, comm);
            break;
        case 2:
            rc = MPI_Reduce_scatter_block(bad, other, mine, MPI_INT64_T, MPI_SUM, comm);
            break;
        default:
            rc = MPI_Allgather(other, mine, MPI_INT64_T, bad, mine, MPI_INT64_T, comm);
            break;
        }
        silent += rc == MPI_SUCCESS;
        MPI_Comm_free(&comm); /* messages about the failure may still be under way in it */
        memory_free(good);
        memory_free(bad);
        memory_free(other);
    }
    return silent;
}

/* A communicator over all ranks, in another order, or over some of them. */
static MPI_Comm make_comm(sequence_t *sequence)
{
    uint32_t how = sequence_below(sequence, 3), parts = 1 + sequence_below(sequence, 2);
    MPI_Comm comm;

    if (how == 0) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    } else {
        MPI_Comm_split(MPI_COMM_WORLD, (how == 1) ? 0 : world_rank % (int)parts, (how == 1) ? -world_rank : world_rank,
                       &comm);
    }
    return comm;
}

int main(int argc, char **argv)
{
    MPI_Comm comms[COMMUNICATORS];
    int calls   = (argc > 1) ? atoi(argv[1]) : 200, world_size;
    long errors = 0;
    sequence_t sequence;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    if ((argc > 1) && (strcmp(argv[1], "short") == 0)) {
        case_end("short", run_short());
        cases_print_calls();
        MPI_Finalize();
        return cases_failed();
    }
    sequence.state = (argc > 2) ? (uint64_t)atoll(argv[2]) : 1;
    for (int i = 0; i < COMMUNICATORS; i++) {
        comms[i] = make_comm(&sequence);
    }
    for (int i = 0; i < calls; i++) {
        int number        = (int)sequence_below(&sequence, COMMUNICATORS);
        uint32_t late     = sequence_below(&sequence, 4 * (uint32_t)world_size);
        sequence_t inside = {.state = sequence_next(&sequence) + 1};
        call_t call       = {.comm = comms[number], .round = (uint32_t)i};
        long wrong;

        MPI_Comm_rank(call.comm, &call.rank);
        MPI_Comm_size(call.comm, &call.size);
        if ((int)late == world_rank) {
            usleep(3000);
        }
        wrong = run_one(&call, &inside);
        if (wrong > 0) {
            fprintf(stderr, "rank %d: call %d: %ld wrong elements\n", world_rank, i, wrong);
        }
        errors += wrong;
        if (sequence_below(&sequence, 25) == 0) {
            MPI_Comm_free(&comms[number]);
            comms[number] = make_comm(&sequence);
        }
    }
    for (int i = 0; i < COMMUNICATORS - 1; i++) { /* the last one is left to MPI_Finalize */
        MPI_Comm_free(&comms[i]);
    }
    case_end("mixed", errors);
    cases_print_calls();
    MPI_Finalize();
    return cases_failed();
}
