/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpath_bench: a collective as its contestants see it. To add one: a file NAME.c with a bench_op_t, a line in
 * bench_ops[] (op.c). The pattern helpers make every 8-byte word of a piece a function of source, destination,
 * round and position, so that a byte that is lost, swapped, late or out of place is seen.
 */
#ifndef MPATH_TOOLS_BENCH_OP_H
#define MPATH_TOOLS_BENCH_OP_H

#include "tools/bench/bench.h"
#include "tools/bench/memory.h"
#include "tools/bench/nccl.h"

/* Buffers of this rank for one case. */
typedef struct bench_data {
    const struct bench_op *op;
    int rank, size;
    const bench_case_t *a_case;
    bench_buffer_t send, receive; /* with their guards */
    bench_buffer_t host_send,
        host_receive; /* for BENCH_HOW_STAGED: copies of what is not in host memory; else zeroed */
    uint64_t align;   /* of the pieces in the buffers */
    uint64_t count;   /* elements, where all ranks have the same */
    /* where each peer has its own */
    int *send_counts, *send_offsets, *receive_counts, *receive_offsets;
} bench_data_t;

/* A function of the MPI library, as coll/tuned lets one choose it. */
typedef struct bench_stock {
    const char *name; /* "stock " + the word of --against */
    int algorithm;    /* 0: the library's own choice */
} bench_stock_t;

typedef struct bench_op {
    const char *name;           /* of --op, and in the JSON */
    const char *function;       /* "MPI_Alltoallv" */
    int has_matrix;             /* uses --hot, --zipf, --matrix */
    const char *stock_variable; /* control variable that chooses among them */
    const bench_stock_t *stock; /* up to one without a name */
    /* Bytes that one node has to send to one other, of `nodes` with `ranks` ranks each; NULL: the matrix says it. */
    uint64_t (*crossing_bytes)(uint64_t bytes, int nodes, int ranks);
    /* What a case weighs: fills largest_rank_bytes, busiest_port_bytes, busbw_factor. */
    void (*weigh)(int size, bench_case_t *a_case);
    /* Allocates buffers; returns 0, or -1 with a message when memory is short or a count exceeds MPI's int. */
    int (*create)(bench_data_t *data);
    void (*destroy)(bench_data_t *data);
    /* New contents for a round; spoils the receive buffer. */
    void (*fill)(bench_data_t *data, uint32_t round);
    /* Number of wrong bytes, guards included; the first is described on standard error. */
    uint64_t (*check)(bench_data_t *data, uint32_t round);
    /* Performs it once on buffers that MPI can read: `send` and `receive` stand for those of the data. */
    void (*call)(const bench_data_t *data, const void *send, void *receive, MPI_Comm comm);
    /* The same without waiting; NULL where the call is blocking. */
    void (*start)(const bench_data_t *data, const void *send, void *receive, MPI_Comm comm, MPI_Request *request);
    /* Enqueues it once on bench_nccl.stream; NULL where NCCL has no such thing. */
    void (*call_nccl)(const bench_data_t *data);
} bench_op_t;

extern const bench_op_t bench_op_alltoallv, bench_op_allreduce, bench_op_reduce_scatter, bench_op_allgather;
extern const bench_op_t bench_op_iallreduce;

/* By the name of --op; NULL when there is none. The first one is the default. */
const bench_op_t *bench_op_find(const char *name);
/* "no such collective; there are alltoallv, ...": a message. */
const char *bench_op_unknown(void);

/* Before, between and behind the pieces. */
#define BENCH_GUARD_BYTES 64
#define BENCH_GUARD_VALUE 0xA5

uint64_t bench_pattern_key(int source, int destination, uint32_t round);
/* A piece of a buffer: writes its contents; counts the bytes that differ. */
void bench_piece_fill(bench_buffer_t *buffer, uint64_t offset, uint64_t bytes, uint64_t key);
uint64_t bench_piece_check(const bench_buffer_t *buffer, uint64_t offset, uint64_t bytes, uint64_t key,
                           uint64_t *first_p);
/* Number of guard bytes at `offset` that were overwritten. */
uint64_t bench_guard_check(const bench_buffer_t *buffer, uint64_t offset);

#endif
