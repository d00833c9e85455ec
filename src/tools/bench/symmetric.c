/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpath_bench: MPI_Allreduce and MPI_Reduce_scatter_block of floats, and MPI_Allgather. Elements are small whole
 * numbers, so that sums are exact in whatever order they are made, and each depends on source, position and round.
 */
#include "tools/bench/op.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define PERIOD 61u

/* The element of a source; `source` 0: the sum over all of `size`. */
static float element(int size, int source, uint64_t position, uint32_t round)
{
    uint32_t value = (uint32_t)(position * 7 + position / 4099 + round * 5) % PERIOD;

    return (float)value * (float)(source > 0 ? source : size * (size + 1) / 2);
}

static int elements_of(const bench_data_t *data, uint64_t *count_p)
{
    uint64_t count = data->a_case->bytes / sizeof(float), size = (uint64_t)data->size;

    count    = data->op == &bench_op_reduce_scatter ? count / size * size : count;
    *count_p = count;
    return count <= INT_MAX && (data->op != &bench_op_allgather || count * size <= INT_MAX) ? 0 : -1;
}

/* Elements that this rank gets, and which position of the vector the first one has. */
static void result_of(const bench_data_t *data, uint64_t *count_p, uint64_t *first_p)
{
    uint64_t size = (uint64_t)data->size;

    *first_p = 0;
    *count_p = data->count;
    if (data->op == &bench_op_reduce_scatter) {
        *count_p = data->count / size;
        *first_p = *count_p * (uint64_t)data->rank;
    } else if (data->op == &bench_op_allgather) {
        *count_p = data->count * size;
    }
}

static void destroy(bench_data_t *data)
{
    bench_buffer_destroy(&data->send);
    bench_buffer_destroy(&data->receive);
}

static int create(bench_data_t *data)
{
    uint64_t count, first;

    if (elements_of(data, &data->count) != 0) {
        fprintf(stderr, "mpath_bench: rank %d would count more than %d elements, which int counts cannot express\n",
                data->rank, INT_MAX);
        return -1;
    }
    result_of(data, &count, &first);
    if (bench_buffer_create(data->send.kind, data->count * sizeof(float) + BENCH_GUARD_BYTES, &data->send) != 0 ||
        bench_buffer_create(data->receive.kind, count * sizeof(float) + BENCH_GUARD_BYTES, &data->receive) != 0) {
        fprintf(stderr, "mpath_bench: rank %d: out of memory\n", data->rank);
        destroy(data);
        return -1;
    }
    return 0;
}

static void fill(bench_data_t *data, uint32_t round)
{
    uint64_t bytes = data->count * sizeof(float), done, length, i;

    for (done = 0; done < bytes; done += length) {
        unsigned char *window = bench_buffer_window(&data->send, done, bytes - done, &length);

        for (i = 0; i < length; i += sizeof(float)) {
            float value = element(data->size, data->rank + 1, (done + i) / sizeof(float), round);

            memcpy(window + i, &value, sizeof(value));
        }
        bench_buffer_put(&data->send, done, length);
    }
    bench_buffer_set(&data->receive, BENCH_GUARD_VALUE);
}

static float expected(const bench_data_t *data, uint64_t first, uint64_t index, uint32_t round)
{
    if (data->op == &bench_op_allgather) {
        return element(data->size, (int)(index / data->count) + 1, index % data->count, round);
    }
    return element(data->size, 0, first + index, round);
}

static uint64_t check(bench_data_t *data, uint32_t round)
{
    uint64_t count, first, done, length, i, wrong = 0, guards;

    result_of(data, &count, &first);
    for (done = 0; done < count * sizeof(float); done += length) {
        const unsigned char *window = bench_buffer_get(&data->receive, done, count * sizeof(float) - done, &length);

        for (i = 0; i < length; i += sizeof(float)) {
            float value = expected(data, first, (done + i) / sizeof(float), round);

            if (memcmp(window + i, &value, sizeof(value)) != 0 && wrong++ == 0) {
                fprintf(stderr, "mpath_bench: rank %d: element %llu of %llu is wrong\n", data->rank,
                        (unsigned long long)((done + i) / sizeof(float)), (unsigned long long)count);
            }
        }
    }
    guards = bench_guard_check(&data->receive, count * sizeof(float));
    if (guards != 0) {
        fprintf(stderr, "mpath_bench: rank %d: %llu guard bytes behind the data were overwritten\n", data->rank,
                (unsigned long long)guards);
    }
    return wrong * sizeof(float) + guards;
}

static void weigh_sum(int size, bench_case_t *a_case)
{
    a_case->largest_rank_bytes = a_case->busiest_port_bytes = a_case->bytes;
    a_case->busbw_factor                                    = (double)(size - 1) / (double)size;
}

static void weigh_allreduce(int size, bench_case_t *a_case)
{
    weigh_sum(size, a_case);
    a_case->busbw_factor *= 2;
}

static void weigh_allgather(int size, bench_case_t *a_case)
{
    weigh_sum(size, a_case);
    a_case->largest_rank_bytes = a_case->bytes * (uint64_t)size;
    a_case->busiest_port_bytes = a_case->bytes * (uint64_t)(size - 1);
}

static uint64_t cross_allreduce(uint64_t bytes, int nodes, int ranks)
{
    (void)ranks;
    return 2 * bytes / (uint64_t)nodes;
}

static uint64_t cross_reduce_scatter(uint64_t bytes, int nodes, int ranks)
{
    (void)ranks;
    return bytes / (uint64_t)nodes;
}

static uint64_t cross_allgather(uint64_t bytes, int nodes, int ranks)
{
    (void)nodes;
    return bytes * (uint64_t)ranks;
}

static void call_allreduce(const bench_data_t *data, const void *send, void *receive, MPI_Comm comm)
{
    MPI_Allreduce(send, receive, (int)data->count, MPI_FLOAT, MPI_SUM, comm);
}

static void start_iallreduce(const bench_data_t *data, const void *send, void *receive, MPI_Comm comm,
                             MPI_Request *request)
{
    MPI_Iallreduce(send, receive, (int)data->count, MPI_FLOAT, MPI_SUM, comm, request);
}

static void call_iallreduce(const bench_data_t *data, const void *send, void *receive, MPI_Comm comm)
{
    MPI_Request request;

    start_iallreduce(data, send, receive, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void call_reduce_scatter(const bench_data_t *data, const void *send, void *receive, MPI_Comm comm)
{
    MPI_Reduce_scatter_block(send, receive, (int)(data->count / (uint64_t)data->size), MPI_FLOAT, MPI_SUM, comm);
}

static void call_allgather(const bench_data_t *data, const void *send, void *receive, MPI_Comm comm)
{
    MPI_Allgather(send, (int)data->count, MPI_FLOAT, receive, (int)data->count, MPI_FLOAT, comm);
}

static void nccl_allreduce(const bench_data_t *data)
{
    bench_nccl_check(bench_nccl.all_reduce(data->send.address, data->receive.address, data->count, BENCH_NCCL_FLOAT,
                                           BENCH_NCCL_SUM, bench_nccl.comm, bench_nccl.stream),
                     "ncclAllReduce");
}

static void nccl_reduce_scatter(const bench_data_t *data)
{
    bench_nccl_check(bench_nccl.reduce_scatter(data->send.address, data->receive.address,
                                               data->count / (uint64_t)data->size, BENCH_NCCL_FLOAT, BENCH_NCCL_SUM,
                                               bench_nccl.comm, bench_nccl.stream),
                     "ncclReduceScatter");
}

static void nccl_allgather(const bench_data_t *data)
{
    bench_nccl_check(bench_nccl.all_gather(data->send.address, data->receive.address, data->count, BENCH_NCCL_FLOAT,
                                           bench_nccl.comm, bench_nccl.stream),
                     "ncclAllGather");
}

/* Numbers as in coll/tuned of Open MPI 4.1 to 6.0. */
static const bench_stock_t stock_allreduce[]      = {{"stock default", 0},
                                                     {"stock nonoverlapping", 2},
                                                     {"stock doubling", 3},
                                                     {"stock ring", 4},
                                                     {"stock segmented", 5},
                                                     {"stock rabenseifner", 6},
                                                     {NULL, 0}};
static const bench_stock_t stock_iallreduce[]     = {{"stock default", 0}, {NULL, 0}};
static const bench_stock_t stock_reduce_scatter[] = {
    {"stock default", 0}, {"stock doubling", 2}, {"stock halving", 3}, {"stock butterfly", 4}, {NULL, 0}};
static const bench_stock_t stock_allgather[] = {
    {"stock default", 0}, {"stock linear", 1},   {"stock bruck", 2}, {"stock doubling", 3},
    {"stock ring", 4},    {"stock neighbor", 5}, {NULL, 0}};

const bench_op_t bench_op_allreduce = {
    .name           = "allreduce",
    .function       = "MPI_Allreduce",
    .stock_variable = "coll_tuned_allreduce_algorithm",
    .stock          = stock_allreduce,
    .crossing_bytes = cross_allreduce,
    .weigh          = weigh_allreduce,
    .create         = create,
    .destroy        = destroy,
    .fill           = fill,
    .check          = check,
    .call           = call_allreduce,
    .call_nccl      = nccl_allreduce,
};

const bench_op_t bench_op_iallreduce = {
    .name           = "iallreduce",
    .function       = "MPI_Iallreduce",
    .stock_variable = "coll_libnbc_iallreduce_algorithm",
    .stock          = stock_iallreduce,
    .crossing_bytes = cross_allreduce,
    .weigh          = weigh_allreduce,
    .create         = create,
    .destroy        = destroy,
    .fill           = fill,
    .check          = check,
    .call           = call_iallreduce,
    .start          = start_iallreduce,
    .call_nccl      = nccl_allreduce,
};

const bench_op_t bench_op_reduce_scatter = {
    .name           = "reduce_scatter",
    .function       = "MPI_Reduce_scatter_block",
    .stock_variable = "coll_tuned_reduce_scatter_block_algorithm",
    .stock          = stock_reduce_scatter,
    .crossing_bytes = cross_reduce_scatter,
    .weigh          = weigh_sum,
    .create         = create,
    .destroy        = destroy,
    .fill           = fill,
    .check          = check,
    .call           = call_reduce_scatter,
    .call_nccl      = nccl_reduce_scatter,
};

const bench_op_t bench_op_allgather = {
    .name           = "allgather",
    .function       = "MPI_Allgather",
    .stock_variable = "coll_tuned_allgather_algorithm",
    .stock          = stock_allgather,
    .crossing_bytes = cross_allgather,
    .weigh          = weigh_allgather,
    .create         = create,
    .destroy        = destroy,
    .fill           = fill,
    .check          = check,
    .call           = call_allgather,
    .call_nccl      = nccl_allgather,
};
