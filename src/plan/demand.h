/* SPDX-License-Identifier: BSD-3-Clause */
/* Demand matrices for benchmarks and tests: repeatable generators; and the load that a matrix is. */
#ifndef MPATH_PLAN_DEMAND_H
#define MPATH_PLAN_DEMAND_H

#include "topo/topo.h"
#include "util/status.h"

#include <stddef.h>
#include <stdint.h>

/*
 * Hot spot: each rank sends hot_ppm millionths of `bytes` to rank `hot` and the rest evenly to all num_ranks ranks,
 * itself and the hot one included; the hot rank sends all its bytes evenly. demand has num_ranks^2 entries. All cells
 * are multiples of `unit` bytes; remainders are dropped.
 */
void mpath_demand_hot(int num_ranks, int hot, uint32_t hot_ppm, uint64_t bytes, uint64_t unit, uint64_t *demand);
/* One row of it. */
void mpath_demand_hot_row(int num_ranks, int hot, uint32_t hot_ppm, uint64_t bytes, uint64_t unit, int source,
                          uint64_t *row);

/*
 * Zipf: the share of destination k is proportional to 1 / (rank of k in a permutation drawn from `seed`)^s, with s in
 * millionths; the permutation is shared by all sources (experts of an MoE layer are hot for everybody). Integer
 * arithmetic only.
 */
void mpath_demand_zipf(int num_ranks, uint32_t s_ppm, uint64_t seed, uint64_t bytes, uint64_t unit, uint64_t *demand);
/* The row that all sources have. */
void mpath_demand_zipf_row(int num_ranks, uint32_t s_ppm, uint64_t seed, uint64_t bytes, uint64_t unit, uint64_t *row);

/*
 * Transpose of a square matrix whose rows the ranks have in blocks, as between two passes of a Fourier transform: rank i sends
 * of its rows the columns that become those of rank j. Blocks differ by one row where the ranks do not divide the size.
 */
#define MPATH_TRANSPOSE_MAX_SIZE (1u << 24)
#define MPATH_TRANSPOSE_MAX_BYTES (1u << 12)

typedef struct mpath_transpose {
    uint64_t size;          /* rows, and columns */
    uint64_t element_bytes; /* of one entry */
} mpath_transpose_t;

/* Rows of the matrix that a rank has; what rank i sends to rank j are the rows of both and the bytes of an element, multiplied. */
uint64_t mpath_transpose_block(int num_ranks, const mpath_transpose_t *transpose, int rank);
/* demand has num_ranks^2 entries. */
void mpath_demand_transpose(int num_ranks, const mpath_transpose_t *transpose, uint64_t *demand);

/* Demand of a mixture-of-experts layer: who sends how many tokens to whom. */

#define MPATH_MOE_MAX_TOPK 64
#define MPATH_MOE_MAX_EXPERTS 65536
#define MPATH_MOE_MAX_CHOICES 1000000000ull /* of all tokens together */

typedef struct mpath_moe {
    uint64_t tokens;      /* of each rank */
    uint32_t topk;        /* different experts that a token goes to */
    uint32_t experts;     /* expert e lives on rank e * ranks / experts */
    uint32_t skew_ppm;    /* exponent of the Zipf law of the experts' popularity, millionths; 0: all alike */
    uint64_t seed;        /* of the popularity and of the choices */
    uint64_t token_bytes; /* of one copy of a token */
    /* Popularity of each expert in place of the Zipf law, as of plan/workload.h; NULL: that law. Belongs to the caller. */
    const uint64_t *weights;
} mpath_moe_t;

/*
 * The dispatch of one layer: each token chooses topk different experts, by popularity, and one copy of it goes to the
 * rank of each (two experts on one rank get two copies). The experts' order of popularity is drawn from the seed.
 * Integers only: the same matrix everywhere. demand has num_ranks^2 entries. MPATH_ERR_PARAM, logged, for numbers out
 * of range.
 */
mpath_status_t mpath_demand_moe(int num_ranks, const mpath_moe_t *moe, uint64_t *demand);

/* The same row by row, one source after the other; begun draws are ended. The weights are not needed after the beginning. */
typedef struct mpath_moe_draw {
    mpath_moe_t moe;
    int num_ranks;
    uint64_t state, *sums;
} mpath_moe_draw_t;

mpath_status_t mpath_moe_begin(int num_ranks, const mpath_moe_t *moe, mpath_moe_draw_t *draw);
void mpath_moe_row(mpath_moe_draw_t *draw, uint64_t *row);
void mpath_moe_end(mpath_moe_draw_t *draw);

/* Load: what the messages of a call ask of the busiest rank, and of the links of the busiest node. Pure arithmetic. */

typedef struct mpath_load {
    uint64_t busiest;       /* the most that a rank sends, or receives */
    uint64_t busiest_cross; /* the same, to or from other nodes */
    uint64_t node_cross;    /* the most that a node sends or receives so for each of its ranks, on average */
    uint64_t links_ns;      /* what that takes at least, by all NICs of a node at the rates of `topo` */
} mpath_load_t;

#define MPATH_LOAD_SUMS 4 /* for each rank */

/* demand[source * ranks + destination]; what stays on a rank counts as well. `sums`: capacity MPATH_LOAD_SUMS * ranks. */
void mpath_load_find(const mpath_topo_t *topo, const uint64_t *demand, uint64_t *sums, mpath_load_t *load);

#endif
