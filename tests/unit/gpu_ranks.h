/* SPDX-License-Identifier: BSD-3-Clause */
/* For unit tests: the ranks of a node with a GPU each, on the driver without a GPU, and reductions on their memory. */
#ifndef MPATH_TESTS_UNIT_GPU_RANKS_H
#define MPATH_TESTS_UNIT_GPU_RANKS_H

#include "node/reduce.h"
#include "gpu_kinds.h"
#include "ranks.h"

/*
 * The application starts, on so many devices whose driver lacks `without` (FAKE_CUDA_WITHOUT). The settings, which may be
 * changed before a context is made: the gate always opens, and nothing is measured.
 */
void gpu_ranks_start(int devices, const char *without, mpath_settings_t *settings);

/* Vectors of floats on the device of the rank's number, and their sums or maxima. */
typedef struct gpu_sums {
    mpath_symmetric_gpu_t *gpu;
    gpu_memory_t send, recv;
    float *host;
    int me, size;
    int in_place;
    mpath_reduce_op_t op; /* MPATH_REDUCE_SUM, or MAX */
} gpu_sums_t;

void gpu_sums_open(gpu_sums_t *sums, mpath_team_t *team, uint64_t most);
/* One Allreduce; every element has to be right, unless the call is declined. */
mpath_status_t gpu_sums_call(gpu_sums_t *sums, uint64_t elements, uint64_t round);
/* The same, which has to succeed. */
void gpu_sums_round(gpu_sums_t *sums, uint64_t elements, uint64_t round);
/* Before its team. */
void gpu_sums_close(gpu_sums_t *sums);

#endif
