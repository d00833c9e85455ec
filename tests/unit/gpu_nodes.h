/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For the tests of reductions and gathers between nodes of GPUs: a rank with two buffers in device memory, and calls
 * on them, whose results are checked bit for bit, with guard bytes around them.
 */
#ifndef MPATH_TESTS_UNIT_GPU_NODES_H
#define MPATH_TESTS_UNIT_GPU_NODES_H

#include "gpu_kinds.h"
#include "symmetric_support.h"

#define MOST 200000ull /* elements of a buffer, at least */

/* Buffers of a rank, and what the host has put there. */
typedef struct side {
    gpu_memory_t gpu;
    mpath_memory_t memory;
    double *host;
} side_t;

/* Rails so fast that the ways between GPUs and host decide how long a reduction takes. */
#define FAST_RAIL_BPS UINT64_C(100000000000)

typedef struct own {
    ranks_self_t *self;
    member_t member;
    side_t send, recv;
    uint64_t parts[RANKS_MAX], parted; /* of the last number of elements that an Allreduce had, by rank */
} own_t;

extern const mpath_reduce_how_t sums;

/* `blocks` as in gpu_memory_alloc(). */
void side_alloc(side_t *side, int device, mpath_memory_kind_t kind, int blocks);
void side_free(side_t *side);
void own_alloc(own_t *own, mpath_memory_kind_t kind);
void own_free(own_t *own);
/* On eight devices, of which each rank has the one of its number, and of more ranks some have the same. */
void own_init(own_t *own, ranks_self_t *self, const job_t *job);
void own_end(own_t *own);

/* `skip` bytes into both buffers. */
mpath_symmetric_buffers_t buffers_of(const own_t *own, int in_place, uint64_t skip);
uint64_t gpu_calls(const own_t *own);

/* In place in odd rounds; `skip` elements into the buffers. */
mpath_status_t allreduce(own_t *own, uint64_t elements, uint64_t round, uint64_t skip);
void check_sums(own_t *own, uint64_t elements, uint64_t round, uint64_t skip);

/* Blocks of about so many elements, some empty. */
uint64_t block_of(int rank, uint64_t about, uint64_t round);
mpath_status_t reduce_scatter(own_t *own, uint64_t about, uint64_t round);
void check_blocks(own_t *own, uint64_t about, uint64_t round);

/* Blocks in an order that differs between ranks, with guard bytes between them; of odd sizes, or multiples of 16. */
mpath_status_t allgather(own_t *own, uint64_t about, uint64_t round);
void check_gathered(own_t *own, uint64_t about, uint64_t round);

#endif
