/* SPDX-License-Identifier: BSD-3-Clause */
/* The inside of plans by pairs of nodes, for the files pairs*.c only. */
#ifndef MPATH_PLAN_PAIRS_PRIVATE_H
#define MPATH_PLAN_PAIRS_PRIVATE_H

#include "plan/block.h"
#include "plan/internal.h"
#include "plan/pairs.h"
#include "plan/prices.h"
#include "plan/spine.h"

#define MPATH_PAIRS_STATIC_PPM 10000 /* static routes that are so near the bound stay */
#define MPATH_PAIRS_SECOND_NS 1000000000u

struct mpath_pairs {
    const mpath_topo_t *topo;
    int num_ranks, num_nodes, num_rails;
    int affine;
    int in_order;       /* ranks lie by node in the order of these */
    int is_alike;       /* all nodes have all rails, with the same rates */
    int is_even;        /* and so have all rails */
    int crosses;        /* routes may go from one rail to another, over a spine: plan/spine.h */
    int has_same_rails; /* on a spine: all nodes have all rails, with whatever rates */
    int is_cut; /* on a spine, and nodes have different rails, but each has one rate wherever it is: all reach their cuts */
    int flows_per_pair; /* at most */
    uint64_t min_fragment_bytes;
    uint64_t slowest_bps, before_bps[MPATH_MAX_NICS + 1]; /* sums of the rates of the rails before each, and of all */
    int8_t rails[MPATH_MAX_NICS];                         /* their numbers */
    int8_t *home, *home_at;                               /* by rank, and as ranks[]; -1: none */
    int32_t *ranks, *first_on;                            /* ranks[first_on[node]] up to ranks[first_on[node + 1]] */
    mpath_nic_set_t *has;                                 /* by node: its rails, as they are counted here */
    mpath_prices_t *prices;                               /* where nodes are not alike; NULL: of no matrix yet */
    mpath_prices_terms_t cut;                             /* the same where is_cut: of the matrix, */
    uint64_t slack_ns;                                    /* and what does not count in it */
    uint64_t fastest_node_bps;                            /* where routes cross: the most that a node's rails carry */
    uint64_t rail_bps[MPATH_SPINE_RAILS];                 /* where is_cut: of each rail, on the nodes that have it */
    uint64_t *sums, static_ns; /* of a node and the matrix: bytes to each node, then from each; its busiest NIC */
};

static inline int mpath_pairs_node(const mpath_pairs_t *pairs, int rank)
{
    return mpath_topo_place(pairs->topo, rank)->node;
}

/* The NIC of a rail, which the node has. */
int mpath_pairs_nic(const mpath_pairs_t *pairs, int node, int rail);
/* Of a node's NIC on a rail; 0: it has none. */
uint64_t mpath_pairs_rate(const mpath_pairs_t *pairs, int node, int rail);
/* All NICs of a node. */
uint64_t mpath_pairs_node_rate(const mpath_pairs_t *pairs, int node);
/* The static route between two ranks of these nodes where some cross: see topo/topo.h. */
mpath_arc_t mpath_pairs_static_arc(const mpath_pairs_t *pairs, int from, int to, int source, int destination);
/* At most: nobody says on which rail the NIC is that has most. */
mpath_ratio_t mpath_pairs_static(const mpath_pairs_t *pairs, const mpath_pairs_load_t *load);
mpath_ratio_t mpath_pairs_bound(const mpath_pairs_t *pairs, const mpath_pairs_load_t *load);

/* Bytes of pairs, in rows of as many as there are ranks. */
typedef enum mpath_pairs_rows_by {
    MPATH_PAIRS_MATRIX,  /* what each rank sends */
    MPATH_PAIRS_SENDS,   /* what each rank of a node sends */
    MPATH_PAIRS_RECEIVES /* what each rank of a node receives */
} mpath_pairs_rows_by_t;

typedef struct mpath_pairs_table {
    mpath_pairs_rows_by_t by;
    const uint64_t *bytes;
} mpath_pairs_table_t;

/* Makes flows of blocks: those of all pairs, or those that one rank sends, receives or passes on. */
typedef struct mpath_placer {
    const mpath_pairs_t *pairs;
    mpath_plan_t *plan;
    int moves;            /* some flows leave their static routes */
    int rank, place;      /* of the part, and its place on its node; -1: all */
    int rail;             /* by which the rank passes bytes on; -1: by none */
    uint32_t turn, turns; /* of ranks beside a NIC: mpath_topo_turn() */
    /* The block. */
    const mpath_pairs_table_t *table;
    int from, to;
    int is_out; /* the rank's node sends */
    int num_sources, num_destinations;
    const int32_t *sources, *destinations;
    uint64_t *values; /* of a source, by destination */
    /* By source: all its bytes, those for ranks before that of the part, and its static route, if it has one for all, with where they begin there; */
    uint64_t *sums, *before, *source_at;
    int16_t *cell_of_source; /* -1: it has several */
    /* then, by source and destination, where the bytes begin on their static route, and which this is. */
    uint64_t *at;
    uint8_t *cell;
    uint32_t dither;
    mpath_block_t block;
    uint64_t line_begin, line_end; /* of its line, what may go over the NIC of the rank */
} mpath_placer_t;

/* rank -1: flows of all. MPATH_ERR_NO_MEMORY; ends all the same. */
mpath_status_t mpath_placer_begin(mpath_placer_t *placer, const mpath_pairs_t *pairs, int rank, int moves,
                                  mpath_plan_t *plan);
void mpath_placer_end(mpath_placer_t *placer);
/* The block from one node to another one; then what a rank has for another one of its node, or itself, which has one path that counts. */
mpath_status_t mpath_placer_block(mpath_placer_t *placer, const mpath_pairs_table_t *table, int from, int to);
mpath_status_t mpath_placer_local(mpath_placer_t *placer, int source, int destination, uint64_t bytes);
/* Brings the flows from this one on into their order. */
mpath_status_t mpath_placer_sort(mpath_placer_t *placer, size_t begin);

/* pairs_price.c, of a node: begins the prices of a matrix, and what it says in a round; 1: it has an entry. */
mpath_status_t mpath_pairs_price_begin(mpath_pairs_t *pairs, const mpath_pairs_load_t *load);
int mpath_pairs_node_say(const mpath_pairs_t *pairs, int node, const uint64_t *out_bytes, const uint64_t *in_bytes,
                         mpath_prices_terms_t *terms, mpath_prices_entry_t *entry);

#endif
