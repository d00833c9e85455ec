/* SPDX-License-Identifier: BSD-3-Clause */
/* The inside of plans by pairs of nodes, for the files pairs*.c only. */
#ifndef MPATH_PLAN_PAIRS_PRIVATE_H
#define MPATH_PLAN_PAIRS_PRIVATE_H

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
    int has_homes; /* all ranks have one */
    int is_alike;  /* all nodes have all rails, with the same rates */
    int is_even;   /* and so have all rails */
    int crosses;   /* routes may go from one rail to another, over a spine: plan/spine.h */
    int is_cut; /* on a spine, and nodes have different rails, but each has one rate wherever it is: all reach their cuts */
    int pieces; /* that a pair may have */
    uint64_t min_fragment_bytes;
    uint64_t slowest_bps, before_bps[MPATH_MAX_NICS + 1]; /* sums of the rates of the rails before each, and of all */
    int8_t rails[MPATH_MAX_NICS];                         /* their numbers */
    int8_t *home;                                         /* by rank; -1: none */
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

/* Of a node's NIC on a rail; 0: it has none. */
uint64_t mpath_pairs_rate(const mpath_pairs_t *pairs, int node, int rail);
/* All NICs of a node. */
uint64_t mpath_pairs_node_rate(const mpath_pairs_t *pairs, int node);
/* The static route between two ranks of these nodes where some cross: see topo/topo.h. */
mpath_arc_t mpath_pairs_static_arc(const mpath_pairs_t *pairs, int from, int to, int source, int destination);
mpath_ratio_t mpath_pairs_bound(const mpath_pairs_t *pairs, const mpath_pairs_load_t *load);

/* Where the bytes of a pair stand. */
typedef struct mpath_pairs_table {
    const uint64_t *bytes;
    size_t by_source, by_destination; /* steps: of a rank's number, or of its place on the node */
    int sources, destinations;        /* 1: places */
} mpath_pairs_table_t;

/* Flows for so many pairs and blocks. */
size_t mpath_pairs_flows_room(const mpath_pairs_t *pairs, size_t num_pairs, size_t num_blocks);
/* The division of the block from one node to another one. Room for the flows is there. `only` -1: of all ranks. */
void mpath_pairs_block_place(const mpath_pairs_t *pairs, const mpath_pairs_table_t *table, int from, int to, int moves,
                             int only, mpath_plan_t *plan);
/* Inside of a node there is one path that counts. */
void mpath_pairs_local_place(const mpath_pairs_t *pairs, int source, int destination, uint64_t bytes,
                             mpath_plan_t *plan);
mpath_status_t mpath_pairs_sort(const mpath_pairs_t *pairs, mpath_plan_t *plan);

/* pairs_price.c, of a node: begins the prices of a matrix, and what it says in a round; 1: it has an entry. */
mpath_status_t mpath_pairs_price_begin(mpath_pairs_t *pairs, const mpath_pairs_load_t *load);
int mpath_pairs_node_say(const mpath_pairs_t *pairs, int node, const uint64_t *out_bytes, const uint64_t *in_bytes,
                         mpath_prices_terms_t *terms, mpath_prices_entry_t *entry);

#endif
