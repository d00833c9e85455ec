/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI_Alltoallv by the standard: matrices, datatypes, placements, in place, communicators. Arguments: names of cases.
 */
#include "mpi/cases.h"
#include "mpi/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int world_rank, world_size;

static int *matrix_new(int size)
{
    int *units = calloc((size_t)size * (size_t)size, sizeof(int));

    if (units == NULL) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    return units;
}

/* Sizes on both sides of every threshold: nothing, small, a chunk, several chunks. */
static int random_units(sequence_t *sequence, int limit)
{
    switch (sequence_below(sequence, 6)) {
    case 0:
    case 1:
        return 0;
    case 2:
        return (int)sequence_below(sequence, 64);
    case 3:
        return (int)sequence_below(sequence, 5000);
    case 4:
        return (int)sequence_below(sequence, 70000);
    default:
        return (int)sequence_below(sequence, (uint32_t)limit);
    }
}

static long run_bytes(MPI_Comm comm, const int *units, uint32_t round)
{
    exchange_t exchange;

    exchange_init(&exchange, comm, units);
    exchange.round = round;
    return exchange_run(&exchange);
}

static long case_sparse(void)
{
    sequence_t sequence = {4711};
    int *units          = matrix_new(world_size), round, i;
    long errors         = 0;

    for (round = 0; round < 12; round++) {
        for (i = 0; i < world_size * world_size; i++) {
            units[i] = random_units(&sequence, 300000);
        }
        errors += run_bytes(MPI_COMM_WORLD, units, (uint32_t)round);
    }
    free(units);
    return errors;
}

/* The shapes of the list: which cells of the matrix are in use. */
typedef int (*shape_t)(int source, int destination, int size);

static int shape_zero_row(int source, int destination, int size)
{
    (void)destination;
    return source == size / 2 ? 0 : 20000;
}

static int shape_zero_column(int source, int destination, int size)
{
    (void)source;
    return destination == size / 2 ? 0 : 20000;
}

static int shape_nothing(int source, int destination, int size)
{
    (void)source;
    (void)destination;
    (void)size;
    return 0;
}

static int shape_diagonal(int source, int destination, int size)
{
    (void)size;
    return source == destination ? 100000 : 0;
}

static int shape_hot_receiver(int source, int destination, int size)
{
    (void)source;
    (void)size;
    return destination == 0 ? 200000 : 9000;
}

static int shape_hot_sender(int source, int destination, int size)
{
    (void)destination;
    return source == size - 1 ? 200000 : 9000;
}

static int shape_permutation(int source, int destination, int size)
{
    return destination == (source + size / 2 + 1) % size ? 150000 : 0;
}

static int shape_one_pair(int source, int destination, int size)
{
    return source == 0 && destination == size - 1 ? 1000003 : 0;
}

static int shape_small(int source, int destination, int size)
{
    (void)size;
    return 1 + (source * 3 + destination) % 40;
}

static int shape_one_large_among_small(int source, int destination, int size)
{
    return source == size - 1 && destination == 0 ? 500001 : 8;
}

static int shape_equal(int source, int destination, int size)
{
    (void)source;
    (void)destination;
    (void)size;
    return 30000;
}

static long run_shape(MPI_Comm comm, shape_t shape, uint32_t round)
{
    int size, source, destination, *units;
    long errors;

    MPI_Comm_size(comm, &size);
    units = matrix_new(size);
    for (source = 0; source < size; source++) {
        for (destination = 0; destination < size; destination++) {
            units[source * size + destination] = shape(source, destination, size);
        }
    }
    errors = run_bytes(comm, units, round);
    free(units);
    return errors;
}

static long case_placements(void)
{
    static const placement_t placements[] = {PLACE_ASCENDING, PLACE_DESCENDING, PLACE_SHUFFLED, PLACE_OVERLAPPING};
    sequence_t sequence                   = {99};
    int *units                            = matrix_new(world_size), i, s, r;
    exchange_t exchange;
    long errors = 0;

    for (s = 0; s < 4; s++) {
        for (r = 0; r < 3; r++) {
            for (i = 0; i < world_size * world_size; i++) {
                units[i] = random_units(&sequence, 80000);
            }
            exchange_init(&exchange, MPI_COMM_WORLD, units);
            exchange.send_placement    = placements[s];
            exchange.receive_placement = placements[r];
            exchange.gap               = r * 5;
            exchange.round             = (uint32_t)(s * 3 + r);
            errors += exchange_run(&exchange);
        }
    }
    free(units);
    return errors;
}

#define NUM_TYPES 7

/* Derived types of ints; *ints_p is the number of ints in one element. */
static MPI_Datatype make_type(int kind, int *ints_p)
{
    static const int lengths[2]     = {1, 2};
    static const int backwards[2]   = {4, 0};
    static const MPI_Aint places[2] = {8, 20};
    MPI_Datatype type, inner;

    switch (kind) {
    case 0:
        MPI_Type_contiguous(1, MPI_INT, &type);
        *ints_p = 1;
        break;
    case 1:
        MPI_Type_contiguous(3, MPI_INT, &type);
        *ints_p = 3;
        break;
    case 2:
        MPI_Type_vector(2, 2, 3, MPI_INT, &type);
        *ints_p = 4;
        break;
    case 3: /* an extent that is larger than the data */
        MPI_Type_vector(2, 1, 2, MPI_INT, &inner);
        MPI_Type_create_resized(inner, 0, 32, &type);
        MPI_Type_free(&inner);
        *ints_p = 2;
        break;
    case 4: /* the later bytes come first */
        MPI_Type_indexed(2, lengths, backwards, MPI_INT, &type);
        *ints_p = 3;
        break;
    case 5: /* begins above its displacement */
        MPI_Type_create_hindexed(2, lengths, places, MPI_INT, &type);
        *ints_p = 3;
        break;
    default: /* a lower bound below zero */
        MPI_Type_create_resized(MPI_INT, -8, 16, &type);
        *ints_p = 1;
        break;
    }
    MPI_Type_commit(&type);
    return type;
}

static long case_datatypes(void)
{
    sequence_t sequence = {1234};
    int *units          = matrix_new(world_size), s, r, i, send_ints, receive_ints;
    exchange_t exchange;
    long errors = 0;

    for (s = 0; s < NUM_TYPES; s++) {
        for (r = 0; r < NUM_TYPES; r += 1 + s % 2) {
            MPI_Datatype send_type = make_type(s, &send_ints), receive_type = make_type(r, &receive_ints);

            for (i = 0; i < world_size * world_size; i++) {
                units[i] = random_units(&sequence, 3000) / (send_ints * receive_ints) / 4;
            }
            exchange_init(&exchange, MPI_COMM_WORLD, units);
            exchange.send_type         = send_type;
            exchange.receive_type      = receive_type;
            exchange.send_per_unit     = receive_ints;
            exchange.receive_per_unit  = send_ints;
            exchange.receive_placement = r % 2 ? PLACE_SHUFFLED : PLACE_ASCENDING;
            exchange.round             = (uint32_t)(s * NUM_TYPES + r);
            errors += exchange_run(&exchange);
            MPI_Type_free(&send_type);
            MPI_Type_free(&receive_type);
        }
    }
    free(units);
    return errors;
}

static long case_in_place(void)
{
    sequence_t sequence = {555};
    int *units          = matrix_new(world_size), round, i, j, ints;
    exchange_t exchange;
    long errors = 0;

    for (round = 0; round < 6; round++) {
        MPI_Datatype type = make_type(round % 2 ? 2 : 0, &ints);

        for (i = 0; i < world_size; i++) {
            for (j = 0; j <= i; j++) {
                units[i * world_size + j] = units[j * world_size + i] = random_units(&sequence, 60000) /
                                                                        (round % 2 ? 8 : 1);
            }
        }
        exchange_init(&exchange, MPI_COMM_WORLD, units);
        exchange.receive_type      = type;
        exchange.in_place          = 1;
        exchange.receive_placement = round % 3 ? PLACE_SHUFFLED : PLACE_ASCENDING;
        exchange.round             = (uint32_t)round;
        errors += exchange_run(&exchange);
        MPI_Type_free(&type);
    }
    free(units);
    return errors;
}

static long case_null_buffers(void)
{
    int *zeros  = matrix_new(world_size);
    long errors = MPI_Alltoallv(NULL, zeros, zeros, MPI_INT, NULL, zeros, zeros, MPI_INT, MPI_COMM_WORLD) !=
                  MPI_SUCCESS;

    free(zeros);
    return errors;
}

/* Both buffers in the memory of the tests; `host` has what is sent, and what came afterwards. */
static int alltoall_on_memory(int *host, int count)
{
    size_t bytes = (size_t)world_size * (size_t)count * sizeof(int);
    void *send = memory_new(bytes, 2 * (unsigned)count), *receive = memory_new(bytes, 2 * (unsigned)count + 1);
    int rc;

    memory_put(send, host, bytes);
    memory_fill(receive, 0xff, bytes);
    rc = MPI_Alltoall(send, count, MPI_INT, receive, count, MPI_INT, MPI_COMM_WORLD);
    memory_get(host, receive, bytes);
    memory_free(send);
    memory_free(receive);
    return rc;
}

static long case_alltoall(void)
{
    static const int counts[] = {1, 17, 5000, 40000};
    long errors               = 0;

    for (int which = 0; which < 4; which++) {
        int count = counts[which], *host = malloc((size_t)world_size * (size_t)count * sizeof(int));

        if (host == NULL) {
            MPI_Abort(MPI_COMM_WORLD, 99);
        }
        for (int i = 0; i < world_size * count; i++) {
            host[i] = world_rank * 1000003 + i;
        }
        errors += alltoall_on_memory(host, count) != MPI_SUCCESS;
        for (int peer = 0; peer < world_size; peer++) {
            for (int i = 0; i < count; i++) {
                errors += host[peer * count + i] != peer * 1000003 + world_rank * count + i;
            }
        }
        free(host);
    }
    return errors;
}

static long on_split(int color, int key, uint32_t round)
{
    MPI_Comm comm;
    long errors = 0;

    MPI_Comm_split(MPI_COMM_WORLD, color, key, &comm);
    if (comm != MPI_COMM_NULL) {
        errors += run_shape(comm, shape_hot_receiver, round);
        errors += run_shape(comm, shape_small, round + 1);
        errors += run_shape(comm, shape_permutation, round + 2);
        MPI_Comm_free(&comm);
    }
    return errors;
}

static long case_communicators(void)
{
    MPI_Comm live[4];
    long errors = 0;
    int i;

    errors += on_split(world_rank % 2, world_rank, 1);
    errors += on_split(0, -world_rank, 10);                                              /* reversed */
    errors += on_split(world_rank < (world_size + 1) / 2 ? 0 : 1, world_rank, 20);       /* halves */
    errors += on_split(world_rank % 3 == 1 ? MPI_UNDEFINED : 0, world_rank, 30);         /* some have no part */
    errors += on_split(world_rank, 0, 40);                                               /* everybody alone */
    errors += on_split(world_rank == 0 || world_rank == world_size - 1, world_rank, 50); /* no rail-mates */
    for (i = 0; i < 4; i++) {
        MPI_Comm_split(MPI_COMM_WORLD, 0, i % 2 ? -world_rank : world_rank, &live[i]);
    }
    for (i = 0; i < 12; i++) {
        errors += run_shape(live[(i * 3) % 4], i % 2 ? shape_hot_sender : shape_small, (uint32_t)(60 + i));
    }
    for (i = 3; i >= 0; i--) {
        MPI_Comm_free(&live[i]);
    }
    return errors;
}

static long case_many_communicators(void)
{
    MPI_Comm comm;
    long errors = 0;
    int i;

    for (i = 0; i < 60; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        errors += run_shape(comm, i % 3 ? shape_small : shape_one_pair, (uint32_t)i);
        MPI_Comm_free(&comm);
    }
    return errors;
}

/* One number from each rank of a group to each of the other. */
static long over_intercommunicator(MPI_Comm inter, int color)
{
    int remote_size, *counts, *displacements, *host;
    void *send, *receive;
    long errors;
    size_t bytes;

    MPI_Comm_remote_size(inter, &remote_size);
    bytes  = (size_t)remote_size * sizeof(int);
    counts = malloc(3 * bytes);
    if (counts == NULL) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    displacements = counts + remote_size;
    host          = displacements + remote_size;
    send          = memory_new(bytes, 5);
    receive       = memory_new(bytes, 6);
    for (int i = 0; i < remote_size; i++) {
        counts[i]        = 1;
        displacements[i] = i;
        host[i]          = world_rank * 100 + i;
    }
    memory_put(send, host, bytes);
    memory_fill(receive, 0, bytes);
    errors = MPI_Alltoallv(send, counts, displacements, MPI_INT, receive, counts, displacements, MPI_INT, inter) !=
             MPI_SUCCESS;
    memory_get(host, receive, bytes);
    for (int i = 0; i < remote_size; i++) {
        errors += host[i] != (2 * i + 1 - color) * 100 + world_rank / 2;
    }
    memory_free(send);
    memory_free(receive);
    free(counts);
    return errors;
}

static long case_intercommunicator(void)
{
    int color = world_rank % 2;
    MPI_Comm local, inter;
    long errors;

    if (world_size < 2) {
        return 0;
    }
    MPI_Comm_split(MPI_COMM_WORLD, color, world_rank, &local);
    MPI_Intercomm_create(local, 0, MPI_COMM_WORLD, 1 - color, 7, &inter);
    errors = over_intercommunicator(inter, color);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&local);
    return errors;
}

#define SHAPE_CASE(_name)                                                                                              \
    static long case_##_name(void)                                                                                     \
    {                                                                                                                  \
        return run_shape(MPI_COMM_WORLD, shape_##_name, 1) + run_shape(MPI_COMM_WORLD, shape_##_name, 2);              \
    }
SHAPE_CASE(zero_row)
SHAPE_CASE(zero_column)
SHAPE_CASE(nothing)
SHAPE_CASE(diagonal)
SHAPE_CASE(hot_receiver)
SHAPE_CASE(hot_sender)
SHAPE_CASE(permutation)
SHAPE_CASE(one_pair)
SHAPE_CASE(small)
SHAPE_CASE(one_large_among_small)
SHAPE_CASE(equal)

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        long (*run)(void);
    } cases[] = {{"sparse", case_sparse},
                 {"zero_row", case_zero_row},
                 {"zero_column", case_zero_column},
                 {"nothing", case_nothing},
                 {"diagonal", case_diagonal},
                 {"hot_receiver", case_hot_receiver},
                 {"hot_sender", case_hot_sender},
                 {"permutation", case_permutation},
                 {"one_pair", case_one_pair},
                 {"small", case_small},
                 {"one_large_among_small", case_one_large_among_small},
                 {"equal", case_equal},
                 {"null_buffers", case_null_buffers},
                 {"placements", case_placements},
                 {"datatypes", case_datatypes},
                 {"in_place", case_in_place},
                 {"alltoall", case_alltoall},
                 {"communicators", case_communicators},
                 {"many_communicators", case_many_communicators},
                 {"intercommunicator", case_intercommunicator}};
    size_t i;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (case_wanted(argc, argv, cases[i].name)) {
            case_end(cases[i].name, cases[i].run());
        }
    }
    cases_print_calls();
    MPI_Finalize();
    return cases_failed() != 0;
}
