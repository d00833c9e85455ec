/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI_Allreduce, MPI_Reduce_scatter, MPI_Reduce_scatter_block, MPI_Allgather and MPI_Allgatherv by the standard: all
 * predefined types and operations, in place, unaligned, odd counts, communicators. Each rank makes everybody's data
 * itself and combines it with MPI_Reduce_local. Arguments: names of cases.
 */
#include "mpi/cases.h"
#include "mpi/device_calls.h"
#include "mpi/reduction_checks.h"
#include "mpi/reduction_large.h"
#include "mpi/reduction_types.h"
#include "mpi/reduction_user.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int world_rank, world_size;

/* -- cases -- */

static type_t int_type    = TYPE(MPI_INT, KIND_INTEGER);
static type_t double_type = TYPE(MPI_DOUBLE, KIND_FLOAT);
static type_t pair_type   = TYPE(MPI_DOUBLE_INT, KIND_PAIR);

static const size_t some_counts[] = {0, 1, 2, 3, 7, 64, 129, 1000, 4097, 33333, 70001, 300007};
#define NUM_COUNTS (sizeof(some_counts) / sizeof(some_counts[0]))

static long case_counts(void)
{
    long errors = 0;

    for (size_t i = 0; i < NUM_COUNTS; i++) {
        errors += check_allreduce(MPI_COMM_WORLD, &int_type, MPI_SUM, some_counts[i], 0, 0, (uint32_t)i);
        errors += check_allreduce(MPI_COMM_WORLD, &double_type, MPI_SUM, some_counts[i], 1, 0, (uint32_t)i);
        errors += check_allreduce(MPI_COMM_WORLD, &pair_type, MPI_MINLOC, some_counts[i], 0, 0, (uint32_t)i);
    }
    return errors;
}

/* Buffers at odd addresses: bytes may lie there by right, and nothing else may be assumed. */
static long case_unaligned(void)
{
    long errors = 0;

    for (size_t shift = 1; shift < 8; shift += 2) {
        type_t type = TYPE(MPI_BYTE, KIND_BYTE);

        errors += check_allreduce(MPI_COMM_WORLD, &type, MPI_BXOR, 100003, (int)(shift % 4 == 1), shift, 3);
        errors += check_allreduce(MPI_COMM_WORLD, &double_type, MPI_MAX, 20011, 0, shift, 4);
    }
    return errors;
}

static void make_counts(int *counts, int size, sequence_t *sequence, int limit)
{
    for (int i = 0; i < size; i++) {
        counts[i] = sequence_below(sequence, 4) == 0 ? 0 : (int)sequence_below(sequence, (uint32_t)limit);
    }
}

static long case_reduce_scatter(void)
{
    static const int limits[] = {5, 300, 9000, 60000};
    sequence_t sequence       = {99};
    int *counts               = reductions_get((size_t)world_size * sizeof(int));
    long errors               = 0;

    for (uint32_t round = 0; round < 8; round++) {
        make_counts(counts, world_size, &sequence, limits[round % 4]);
        errors += check_reduce_scatter(MPI_COMM_WORLD, &int_type, MPI_SUM, counts, 0, (int)(round / 4), round);
        errors += check_reduce_scatter(MPI_COMM_WORLD, &pair_type, MPI_MAXLOC, counts, 0, (int)(round / 4), round);
    }
    for (int i = 0; i < world_size; i++) {
        counts[i] = i == 1 % world_size ? 100000 : 0; /* one block */
    }
    errors += check_reduce_scatter(MPI_COMM_WORLD, &double_type, MPI_SUM, counts, 0, 1, 5);
    for (int i = 0; i < world_size; i++) {
        counts[i] = 0;
    }
    errors += check_reduce_scatter(MPI_COMM_WORLD, &double_type, MPI_SUM, counts, 0, 0, 5);
    free(counts);
    return errors;
}

static long case_reduce_scatter_block(void)
{
    static const int blocks[] = {0, 1, 13, 500, 7001, 30011};
    int *counts               = reductions_get((size_t)world_size * sizeof(int));
    long errors               = 0;

    for (uint32_t i = 0; i < 6; i++) {
        for (int rank = 0; rank < world_size; rank++) {
            counts[rank] = blocks[i];
        }
        errors += check_reduce_scatter(MPI_COMM_WORLD, &double_type, MPI_SUM, counts, 1, 0, i);
        errors += check_reduce_scatter(MPI_COMM_WORLD, &int_type, MPI_BXOR, counts, 1, 1, i);
    }
    free(counts);
    return errors;
}

/* Three bytes of four: a gap behind each element. */
static MPI_Datatype gapped_type(void)
{
    MPI_Datatype three, four;

    MPI_Type_contiguous(3, MPI_BYTE, &three);
    MPI_Type_create_resized(three, 0, 4, &four);
    MPI_Type_commit(&four);
    MPI_Type_free(&three);
    return four;
}

static long case_allgather(void)
{
    static const int blocks[] = {0, 1, 40, 700, 5000, 90001};
    MPI_Datatype gapped       = gapped_type();
    int *counts               = reductions_get((size_t)world_size * sizeof(int));
    long errors               = 0;

    for (uint32_t i = 0; i < 6; i++) {
        for (int rank = 0; rank < world_size; rank++) {
            counts[rank] = blocks[i];
        }
        for (int in_place = 0; in_place < 2; in_place++) {
            errors += check_allgather(MPI_COMM_WORLD, counts, 1, in_place, MPI_BYTE, i);
            errors += check_allgather(MPI_COMM_WORLD, counts, 1, in_place, gapped, i);
        }
    }
    MPI_Type_free(&gapped);
    free(counts);
    return errors;
}

static long case_allgatherv(void)
{
    static const int limits[] = {6, 900, 30000, 200000};
    MPI_Datatype gapped       = gapped_type();
    sequence_t sequence       = {7};
    int *counts               = reductions_get((size_t)world_size * sizeof(int));
    long errors               = 0;

    for (uint32_t round = 0; round < 8; round++) {
        make_counts(counts, world_size, &sequence, limits[round % 4]);
        errors += check_allgather(MPI_COMM_WORLD, counts, 0, (int)(round / 4), MPI_BYTE, round);
        errors += check_allgather(MPI_COMM_WORLD, counts, 0, (int)(round / 4), gapped, round);
    }
    for (int rank = 0; rank < world_size; rank++) {
        counts[rank] = rank == world_size - 1 ? 500000 : 0; /* one rank has all */
    }
    errors += check_allgather(MPI_COMM_WORLD, counts, 0, 0, MPI_BYTE, 77);
    MPI_Type_free(&gapped);
    free(counts);
    return errors;
}

static long all_on(MPI_Comm comm, uint32_t round)
{
    int size, *counts;
    long errors = 0;

    MPI_Comm_size(comm, &size);
    counts = reductions_get((size_t)size * sizeof(int));
    for (int i = 0; i < size; i++) {
        counts[i] = 20000 + 1000 * ((i + (int)round) % 5);
    }
    errors += check_allreduce(comm, &int_type, MPI_SUM, 50021, 0, 0, round);
    errors += check_allreduce(comm, &int_type, MPI_SUM, 11, 0, 0, round);
    errors += check_reduce_scatter(comm, &int_type, MPI_SUM, counts, 0, 0, round);
    errors += check_allgather(comm, counts, 0, 0, MPI_BYTE, round);
    free(counts);
    return errors;
}

/* Halves, odd and even ranks, the reverse order, duplicates; several at a time. */
static long case_communicators(void)
{
    MPI_Comm comms[4];
    long errors = 0;

    MPI_Comm_split(MPI_COMM_WORLD, world_rank < world_size / 2, world_rank, &comms[0]);
    MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, world_rank, &comms[1]);
    MPI_Comm_split(MPI_COMM_WORLD, 0, world_size - world_rank, &comms[2]);
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[3]);
    for (uint32_t round = 0; round < 3; round++) {
        for (int i = 0; i < 4; i++) {
            errors += all_on(comms[i], round);
        }
    }
    for (int i = 0; i < 4; i++) {
        MPI_Comm_free(&comms[i]);
    }
    return errors;
}

/* Not associative: rounding tells in which order numbers were added. */
static void fill_rough(double *data, size_t count, int source)
{
    sequence_t sequence = {(uint64_t)source * 101 + 3};

    for (size_t i = 0; i < count; i++) {
        data[i] = ((double)sequence_next(&sequence) - 2e9) * (double)(1u << sequence_below(&sequence, 30)) / 3.0;
    }
}

/* The same bits on all ranks, in every call, for parts of the vector as for the whole. */
static long case_same_bits(void)
{
    size_t count = 200003, part = 777, bytes = count * sizeof(double);
    double *send = reductions_get(bytes), *first = reductions_get(bytes + GUARD),
           *again = reductions_get(bytes + GUARD), *root = reductions_get(bytes);
    long errors = 0;

    fill_rough(send, count, world_rank);
    device_allreduce(send, first, (int)count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    memcpy(root, first, bytes);
    MPI_Bcast(root, (int)count, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    errors += memcmp(root, first, bytes) != 0;
    for (int round = 0; round < 3; round++) {
        memset(again, 0, bytes);
        device_allreduce(send, again, (int)count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        errors += memcmp(again, first, bytes) != 0;
    }
    /* cut otherwise, and small enough to travel in the agreement */
    for (size_t at = 0; at + part <= 20 * part; at += part) {
        device_allreduce(send + at, again + at, (int)part, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        errors += memcmp(again + at, first + at, part * sizeof(double)) != 0;
    }
    for (size_t at = 0; at < 40; at += 8) {
        device_allreduce(send + at, again + at, 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        errors += memcmp(again + at, first + at, 8 * sizeof(double)) != 0;
    }
    free(send);
    free(first);
    free(again);
    free(root);
    return errors;
}

/*
 * Vectors for which the GPUs of more than two ranks form a ring, or would: each part of the vector, in units of 256
 * bytes, is combined from the rank after its own on, whatever the way, in place or not, again and again.
 */
static long case_ring_order(void)
{
    const size_t count = 3000003, unit = 256 / sizeof(double), units = (count + unit - 1) / unit;
    const size_t bytes = count * sizeof(double), size = (size_t)world_size;
    double *data = reductions_get(bytes * size), *expected = reductions_get(bytes), *result = reductions_get(bytes);
    long errors = 0;

    for (size_t rank = 0; rank < size; rank++) {
        fill_rough(data + rank * count, count, (int)rank);
    }
    for (size_t part = 0, at = 0; part < size; part++) {
        size_t end = at + (units / size + (part < units % size)) * unit;

        for (; at < ((end < count) ? end : count); at++) {
            expected[at] = data[(part + 1) % size * count + at];
            for (size_t k = 2; k <= size; k++) {
                expected[at] = data[(part + k) % size * count + at] + expected[at];
            }
        }
    }
    for (int round = 0; round < 7; round++) { /* from the fourth on a part may go through the host */
        const double *send = data + (size_t)world_rank * count;

        memcpy(result, send, bytes);
        device_allreduce((round % 2 == 0) ? send : MPI_IN_PLACE, result, (int)count, MPI_DOUBLE, MPI_SUM,
                         MPI_COMM_WORLD);
        errors += memcmp(result, expected, bytes) != 0;
    }
    free(data);
    free(expected);
    free(result);
    return errors;
}

static void user_sum(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *count; i++) {
        ((unsigned *)inout)[i] += ((unsigned *)in)[i]; /* wraps */
    }
}

/* What mpath leaves alone goes to the previous function on all ranks, and mpath's own calls work before and after. */
static long case_left_alone(void)
{
    size_t count    = 40009;
    int commutative = 0, *expected = reductions_get(count * sizeof(int)), *send = reductions_get(count * sizeof(int)),
        *recv = reductions_get(count * sizeof(int));
    MPI_Op op;
    MPI_Datatype copy;
    long errors = 0;

    reductions_reference(&int_type, MPI_SUM, count, world_size, 1, expected);
    reductions_fill(&int_type, send, count, world_rank, 1);
    for (commutative = 0; commutative < 2; commutative++) {
        MPI_Op_create(user_sum, commutative, &op);
        errors += MPI_Allreduce(send, recv, (int)count, MPI_INT, op, MPI_COMM_WORLD) != MPI_SUCCESS;
        errors += memcmp(recv, expected, count * sizeof(int)) != 0;
        MPI_Op_free(&op);
        errors += check_allreduce(MPI_COMM_WORLD, &int_type, MPI_SUM, count, 0, 0, 2);
    }
    MPI_Type_dup(MPI_INT, &copy);
    MPI_Op_create(user_sum, 1, &op);
    errors += MPI_Allreduce(send, recv, (int)count, copy, op, MPI_COMM_WORLD) != MPI_SUCCESS;
    errors += memcmp(recv, expected, count * sizeof(int)) != 0;
    MPI_Op_free(&op);
    MPI_Type_free(&copy);
    free(expected);
    free(send);
    free(recv);
    return errors;
}

/* Many calls in a row on buffers that are rewritten at once. */
static long case_repeat(void)
{
    enum { COUNT = 6000 };
    int *send = reductions_get(COUNT * sizeof(int)), *recv = reductions_get(COUNT * sizeof(int));
    long errors = 0;

    for (int call = 0; call < 150; call++) {
        int count = call % 3 == 0 ? 17 : COUNT - call, sum = 0;

        for (int i = 0; i < count; i++) {
            send[i] = world_rank * 3 + call + i;
        }
        errors += MPI_Allreduce(send, recv, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD) != MPI_SUCCESS;
        memset(send, 0x55, (size_t)count * sizeof(int));
        for (int rank = 0; rank < world_size; rank++) {
            sum += rank * 3 + call;
        }
        for (int i = 0; i < count; i++) {
            errors += recv[i] != sum + world_size * i;
        }
        memset(recv, 0x33, (size_t)count * sizeof(int));
    }
    free(send);
    free(recv);
    return errors;
}

/* Long enough for a way through the host where parameters say so, and often enough for it to be tried. */
enum { HOST_COUNT = 1200011, HOST_CALLS = 7 };

static long case_host_reduce(void)
{
    long errors = 0;

    for (int call = 0; call < HOST_CALLS; call++) {
        errors += check_allreduce(MPI_COMM_WORLD, &int_type, MPI_SUM, HOST_COUNT + (size_t)call, 0, 0, (uint32_t)call);
        errors += check_allreduce(MPI_COMM_WORLD, &int_type, MPI_SUM, HOST_COUNT, 1, 0, (uint32_t)call);
    }
    return errors;
}

/* So long that two ranks combine what goes through the host in batches; in place it may be more than there is room for. */
static long case_host_long(void)
{
    enum { COUNT = 12000011 };
    int *send = reductions_get(COUNT * sizeof(*send)), *recv = reductions_get(COUNT * sizeof(*recv));
    long errors = 0;

    for (int call = 0; call < HOST_CALLS; call++) {
        int in_place = call % 2, *mine = in_place ? recv : send;

        memset(recv, 0x33, COUNT * sizeof(*recv));
        for (int i = 0; i < COUNT; i++) {
            mine[i] = i % 1000003 * (world_rank + 1) + call;
        }
        errors += device_allreduce(in_place ? MPI_IN_PLACE : send, recv, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD) !=
                  MPI_SUCCESS;
        for (int i = 0; i < COUNT; i++) {
            errors += recv[i] != i % 1000003 * (world_size * (world_size + 1) / 2) + call * world_size;
        }
    }
    free(send);
    free(recv);
    return errors;
}

static long case_host_gather(void)
{
    int *counts = reductions_get((size_t)world_size * sizeof(*counts));
    long errors = 0;

    for (int call = 0; call < HOST_CALLS; call++) {
        for (int rank = 0; rank < world_size; rank++) {
            counts[rank] = HOST_COUNT + call;
        }
        errors += check_allgather(MPI_COMM_WORLD, counts, 1, call % 2, MPI_INT, (uint32_t)call);
    }
    free(counts);
    return errors;
}

static long types(void)
{
    return case_types(world_rank);
}

static long rounded(void)
{
    return case_rounded(world_rank, world_size);
}

static long complex_and_half(void)
{
    return case_complex_and_half(world_rank);
}

static const struct {
    const char *name;
    long (*run)(void);
    int only_named;
} cases[] = {
    {"types", types, 0},
    {"rounded", rounded, 0},
    {"counts", case_counts, 0},
    {"unaligned", case_unaligned, 0},
    {"reduce_scatter", case_reduce_scatter, 0},
    {"reduce_scatter_block", case_reduce_scatter_block, 0},
    {"allgather", case_allgather, 0},
    {"allgatherv", case_allgatherv, 0},
    {"communicators", case_communicators, 0},
    {"same_bits", case_same_bits, 0},
    {"left_alone", case_left_alone, 0},
    {"user", reductions_user, 0},
    {"repeat", case_repeat, 0},
    {"complex_and_half", complex_and_half, 1},
    {"ring_order", case_ring_order, 1},
    {"host_reduce", case_host_reduce, 1},
    {"host_long", case_host_long, 1},
    {"host_gather", case_host_gather, 1},
    {"large", reductions_large, 1},
    {"large_scatter", reductions_large_scatter, 1},
    {"large_gather", reductions_large_gather, 1},
};

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if ((argc > 1 || !cases[i].only_named) && case_wanted(argc, argv, cases[i].name)) {
            case_end(cases[i].name, cases[i].run());
        }
    }
    cases_print_calls();
    MPI_Finalize();
    return cases_failed() != 0;
}
