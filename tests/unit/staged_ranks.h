/* SPDX-License-Identifier: BSD-3-Clause */
/* For tests of the lane "staged": ranks of one process that share a region. */
#ifndef MPATH_TESTS_UNIT_STAGED_RANKS_H
#define MPATH_TESTS_UNIT_STAGED_RANKS_H

#include "gpu_kinds.h"
#include "node/staged.h"

#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1) << 20)
#define RANKS_MAX 4

typedef struct rank {
    mpath_staged_t *lane;
    mpath_staged_message_t send[RANKS_MAX], receive[RANKS_MAX];
    uint64_t told_bytes[RANKS_MAX];
    uint64_t first, last, longest; /* chunks of any message */
    unsigned count, errors_after;  /* 0: none */
    int careful;                   /* what it enqueues may not wait */
} rank_t;

extern rank_t ranks[RANKS_MAX];
extern int num_ranks;
extern mpath_staged_shape_t shape;
extern void *region;

void region_open(int count, uint64_t bytes);
void region_close(void);

/* A call of one rank, with its messages; the sides have streams. */
void begin_rank(int rank, uint64_t call, mpath_staged_side_t send, mpath_staged_side_t receive);
/* The same for all. */
void begin(uint64_t call, mpath_staged_side_t send, mpath_staged_side_t receive);
/* Until all have finished. */
void run(void);

uint64_t seed_of(int from, int to);
/* Allocated, with the pattern of a seed. */
char *filled(uint64_t bytes, uint64_t seed);

#endif
