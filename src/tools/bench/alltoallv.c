/* SPDX-License-Identifier: BSD-3-Clause */
/* mpath_bench: MPI_Alltoallv. The pieces of a buffer lie behind each other in rank order, with guards between. */
#include "tools/bench/op.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static void weigh(int size, bench_case_t *a_case)
{
    uint64_t sent, received, own;
    int i, j;

    for (i = 0; i < size; i++) {
        sent = received = 0;
        own             = a_case->demand[(size_t)i * (size_t)size + (size_t)i];
        for (j = 0; j < size; j++) {
            sent += a_case->demand[(size_t)i * (size_t)size + (size_t)j];
            received += a_case->demand[(size_t)j * (size_t)size + (size_t)i];
        }
        sent                       = sent > received ? sent : received;
        a_case->largest_rank_bytes = sent > a_case->largest_rank_bytes ? sent : a_case->largest_rank_bytes;
        a_case->busiest_port_bytes = sent - own > a_case->busiest_port_bytes ? sent - own : a_case->busiest_port_bytes;
    }
    a_case->busbw_factor = (double)(size - 1) / (double)size;
}

/* Lays the pieces out; returns the size of the buffer, 0 if MPI cannot count it. */
static uint64_t lay_out(int size, const uint64_t *bytes, size_t stride, uint64_t align, int *counts, int *offsets)
{
    uint64_t offset = (BENCH_GUARD_BYTES + align - 1) / align * align;
    int peer;

    for (peer = 0; peer < size; peer++) {
        if (bytes[(size_t)peer * stride] > INT_MAX || offset > INT_MAX) {
            return 0;
        }
        counts[peer]  = (int)bytes[(size_t)peer * stride];
        offsets[peer] = (int)offset;
        offset        = (offset + bytes[(size_t)peer * stride] + BENCH_GUARD_BYTES + align - 1) / align * align;
    }
    return offset;
}

static void destroy(bench_data_t *data)
{
    free(data->send_counts);
    free(data->send_offsets);
    free(data->receive_counts);
    free(data->receive_offsets);
    bench_buffer_destroy(&data->send);
    bench_buffer_destroy(&data->receive);
}

static int create(bench_data_t *data)
{
    const uint64_t *demand = data->a_case->demand;
    size_t entries         = (size_t)data->size * sizeof(int);
    uint64_t send_bytes, receive_bytes;

    data->send_counts     = malloc(entries);
    data->send_offsets    = malloc(entries);
    data->receive_counts  = malloc(entries);
    data->receive_offsets = malloc(entries);
    if (!data->send_counts || !data->send_offsets || !data->receive_counts || !data->receive_offsets) {
        goto err_memory;
    }
    send_bytes    = lay_out(data->size, demand + (size_t)data->rank * (size_t)data->size, 1, data->align,
                            data->send_counts, data->send_offsets);
    receive_bytes = lay_out(data->size, demand + data->rank, (size_t)data->size, data->align, data->receive_counts,
                            data->receive_offsets);
    if (send_bytes == 0 || receive_bytes == 0) {
        fprintf(stderr, "mpath_bench: rank %d would send or receive more than 2 GiB, which int counts cannot express\n",
                data->rank);
        destroy(data);
        return -1;
    }
    if (bench_buffer_create(data->send.kind, send_bytes, &data->send) != 0 ||
        bench_buffer_create(data->receive.kind, receive_bytes, &data->receive) != 0) {
        goto err_memory;
    }
    bench_buffer_set(&data->send, BENCH_GUARD_VALUE);
    return 0;

err_memory:
    fprintf(stderr, "mpath_bench: rank %d: out of memory\n", data->rank);
    destroy(data);
    return -1;
}

static void fill(bench_data_t *data, uint32_t round)
{
    int peer;

    for (peer = 0; peer < data->size; peer++) {
        bench_piece_fill(&data->send, (uint64_t)data->send_offsets[peer], (uint64_t)data->send_counts[peer],
                         bench_pattern_key(data->rank, peer, round));
    }
    bench_buffer_set(&data->receive, BENCH_GUARD_VALUE);
}

static uint64_t check(bench_data_t *data, uint32_t round)
{
    uint64_t wrong = 0, here, first = 0, offset, bytes;
    int peer;

    for (peer = 0; peer < data->size; peer++) {
        offset = (uint64_t)data->receive_offsets[peer];
        bytes  = (uint64_t)data->receive_counts[peer];
        here   = bench_piece_check(&data->receive, offset, bytes, bench_pattern_key(peer, data->rank, round), &first);
        if (here != 0 && wrong == 0) {
            fprintf(stderr, "mpath_bench: rank %d: %llu of %llu bytes from rank %d are wrong, the first at %llu\n",
                    data->rank, (unsigned long long)here, (unsigned long long)bytes, peer, (unsigned long long)first);
        }
        wrong += here;
        here = bench_guard_check(&data->receive, offset - BENCH_GUARD_BYTES) +
               bench_guard_check(&data->receive, offset + bytes);
        if (here != 0) {
            fprintf(stderr, "mpath_bench: rank %d: %llu guard bytes around the data from rank %d were overwritten\n",
                    data->rank, (unsigned long long)here, peer);
        }
        wrong += here;
    }
    return wrong;
}

static void call(const bench_data_t *data, const void *send, void *receive, MPI_Comm comm)
{
    MPI_Alltoallv(send, data->send_counts, data->send_offsets, MPI_BYTE, receive, data->receive_counts,
                  data->receive_offsets, MPI_BYTE, comm);
}

static void call_nccl(const bench_data_t *data)
{
    const bench_nccl_t *nccl = &bench_nccl;
    int peer;

    bench_nccl_check(nccl->group_start(), "ncclGroupStart");
    for (peer = 0; peer < data->size; peer++) {
        if (data->send_counts[peer] > 0) {
            bench_nccl_check(nccl->send(data->send.address + data->send_offsets[peer], (size_t)data->send_counts[peer],
                                        BENCH_NCCL_UINT8, peer, nccl->comm, nccl->stream),
                             "ncclSend");
        }
        if (data->receive_counts[peer] > 0) {
            bench_nccl_check(nccl->recv(data->receive.address + data->receive_offsets[peer],
                                        (size_t)data->receive_counts[peer], BENCH_NCCL_UINT8, peer, nccl->comm,
                                        nccl->stream),
                             "ncclRecv");
        }
    }
    bench_nccl_check(nccl->group_end(), "ncclGroupEnd");
}

static const bench_stock_t stock[] = {{"stock linear", 1}, {"stock pairwise", 2}, {NULL, 0}};

const bench_op_t bench_op_alltoallv = {
    .name           = "alltoallv",
    .function       = "MPI_Alltoallv",
    .has_matrix     = 1,
    .stock_variable = "coll_tuned_alltoallv_algorithm",
    .stock          = stock,
    .weigh          = weigh,
    .create         = create,
    .destroy        = destroy,
    .fill           = fill,
    .check          = check,
    .call           = call,
    .call_nccl      = call_nccl,
};
