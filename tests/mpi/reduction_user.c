/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * User-defined operations in Allreduce, Reduce_scatter and Reduce_scatter_block, in whatever memory: one
 * that commutes, and one whose result tells the order of the ranks. What is left to others goes through the host.
 */
#include "mpi/reduction_user.h"

#include "mpi/device_calls.h"
#include "mpi/reduction_checks.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MOST 40009 /* elements of an Allreduce, and about of the others */

static int rank, size;

static void sum(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *count; i++) {
        ((uint32_t *)inout)[i] += ((uint32_t *)in)[i];
    }
}

/* x -> a x + b mod 65536, a above b: first `first`, then `second`. Associative. */
static uint32_t chained(uint32_t first, uint32_t second)
{
    uint32_t a = (first >> 16) * (second >> 16), b = (second >> 16) * (first & 0xFFFF) + (second & 0xFFFF);

    return (a << 16) | (b & 0xFFFF);
}

static void chain(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *count; i++) {
        ((uint32_t *)inout)[i] = chained(((uint32_t *)in)[i], ((uint32_t *)inout)[i]);
    }
}

static uint32_t value_of(int source, size_t i)
{
    return ((uint32_t)i * 2654435761u + (uint32_t)source * 40503u) | 0x10000u; /* a is odd: nothing is forgotten */
}

static uint32_t expected_of(int commutes, size_t i)
{
    uint32_t result = value_of(0, i);

    for (int source = 1; source < size; source++) {
        result = commutes ? result + value_of(source, i) : chained(result, value_of(source, i));
    }
    return result;
}

static void fill(uint32_t *data, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        data[i] = value_of(rank, i);
    }
}

static long compare(const uint32_t *result, size_t first, size_t count, int commutes)
{
    long errors = 0;

    for (size_t i = 0; i < count; i++) {
        errors += result[i] != expected_of(commutes, first + i);
    }
    return errors;
}

static long check(MPI_Op op, int commutes, int part, int in_place, uint32_t *data, uint32_t *result, int *counts)
{
    const void *send = in_place ? MPI_IN_PLACE : data;
    uint32_t *from   = in_place ? result : data;
    size_t all = 0, first = 0;
    long errors;

    for (int i = 0; i < size; i++) {
        counts[i] = part + ((part > 1) ? i : 0);
        first += (i < rank) ? (size_t)counts[i] : 0;
        all += (size_t)counts[i];
    }
    fill(from, (size_t)part * (size_t)size);
    errors = device_allreduce(send, result, part * size, MPI_UNSIGNED, op, MPI_COMM_WORLD) != MPI_SUCCESS;
    errors += compare(result, 0, (size_t)part * (size_t)size, commutes);
    fill(from, all);
    errors += device_reduce_scatter(send, result, counts, MPI_UNSIGNED, op, MPI_COMM_WORLD) != MPI_SUCCESS;
    errors += compare(result, first, (size_t)counts[rank], commutes);
    fill(from, (size_t)part * (size_t)size);
    errors += device_reduce_scatter_block(send, result, part, MPI_UNSIGNED, op, MPI_COMM_WORLD) != MPI_SUCCESS;
    errors += compare(result, (size_t)rank * (size_t)part, (size_t)part, commutes);
    return errors;
}

long reductions_user(void)
{
    static MPI_User_function *const functions[] = {chain, sum}; /* by whether it commutes */
    uint32_t *data, *result;
    int *counts;
    long errors = 0;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const int parts[]     = {1, 129, MOST / size};
    const size_t capacity = (size_t)(MOST + size * size) * sizeof(*data) + DEVICE_GUARD;

    data   = reductions_get(capacity);
    result = reductions_get(capacity);
    counts = reductions_get((size_t)size * sizeof(*counts));
    for (int commutes = 0; commutes < 2; commutes++) {
        MPI_Op op;

        MPI_Op_create(functions[commutes], commutes, &op);
        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
            errors += check(op, commutes, parts[i], 0, data, result, counts);
            errors += check(op, commutes, parts[i], 1, data, result, counts);
        }
        MPI_Op_free(&op);
    }
    free(data);
    free(result);
    free(counts);
    return errors;
}
