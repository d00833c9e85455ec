/* SPDX-License-Identifier: BSD-3-Clause */
/* Reductions and gathers of more than 2^31 bytes, in place. They take that much memory in each rank. */
#include "mpi/reduction_large.h"

#include "mpi/reduction_checks.h"

#include <stdlib.h>

static int rank_here, size_here;

static void look_around(void)
{
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_here);
    MPI_Comm_size(MPI_COMM_WORLD, &size_here);
}

static size_t block_elements(void)
{
    return (1u << 28) / (unsigned)size_here + 12345;
}

long reductions_large(void)
{
    size_t count = (1u << 28) + 12345;
    double *data = reductions_get(count * sizeof(double));
    long errors  = 0;

    look_around();
    for (size_t i = 0; i < count; i++) {
        data[i] = (double)((i + (size_t)rank_here) & 0xFFFF);
    }
    errors += MPI_Allreduce(MPI_IN_PLACE, data, (int)count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD) != MPI_SUCCESS;
    for (size_t i = 0; i < count; i++) {
        double expected = 0;

        for (int rank = 0; rank < size_here; rank++) {
            expected += (double)((i + (size_t)rank) & 0xFFFF);
        }
        errors += data[i] != expected;
    }
    free(data);
    return errors;
}

long reductions_large_scatter(void)
{
    size_t most, count, first;
    double *data;
    long errors = 0;

    look_around();
    most  = block_elements();
    first = most * (size_t)rank_here;
    count = most * (size_t)size_here;
    data  = reductions_get(count * sizeof(double));

    for (size_t i = 0; i < count; i++) {
        data[i] = (double)((i + (size_t)rank_here) & 0xFFFF);
    }
    errors += MPI_Reduce_scatter_block(MPI_IN_PLACE, data, (int)most, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD) !=
              MPI_SUCCESS;
    for (size_t i = 0; i < most; i++) {
        double expected = 0;

        for (int rank = 0; rank < size_here; rank++) {
            expected += (double)((first + i + (size_t)rank) & 0xFFFF);
        }
        errors += data[i] != expected;
    }
    free(data);
    return errors;
}

long reductions_large_gather(void)
{
    size_t most, count;
    double *data;
    long errors = 0;

    look_around();
    most  = block_elements();
    count = most * (size_t)size_here;
    data  = reductions_get(count * sizeof(double));

    for (size_t i = 0; i < most; i++) {
        data[most * (size_t)rank_here + i] = (double)i + rank_here;
    }
    errors += MPI_Allgather(MPI_IN_PLACE, 0, MPI_DOUBLE, data, (int)most, MPI_DOUBLE, MPI_COMM_WORLD) != MPI_SUCCESS;
    for (size_t i = 0; i < count; i++) {
        errors += data[i] != (double)(i % most + i / most);
    }
    free(data);
    return errors;
}
