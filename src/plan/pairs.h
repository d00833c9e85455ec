/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plan by pairs of nodes: both nodes know the bytes between their ranks from the calls' own counts, and come to the same
 * flows without the matrix of the job.
 *
 * The bytes of each pair of nodes are divided over the rails by their rates. Where all nodes have the same rails every NIC then
 * sends and receives of what its node does as large a part as its rate is of the node's, which no plan can be below (the
 * cut at a node), for all nodes at once. Where a NIC is lost, or has another rate than that of its rail elsewhere, prices say how much each rail takes (plan/prices.h).
 * What cannot be cut finely enough, since a pair has no flows below a fragment, goes whole to the rails that it would be
 * cut to, to each as often as its part is large: the place is a point that runs through a sequence of low discrepancy over
 * pairs of nodes (Weyl; Knuth, TAOCP 3, 6.4). A NIC is never above its part by four fragments for each other node.
 *
 * A rail keeps what its static routes bring, up to its part; the pairs are taken in the order of their ranks, and only what
 * is above that moves to the rails that have less. Where static routes, or others, go from one rail to another, plan/spine.h says what stays there. Where the NIC with most on static routes is within 1 % of the bound, or
 * within a fragment of it, nothing moves at all.
 *
 * Integers only; both ends of a flow have the same number for it.
 */
#ifndef MPATH_PLAN_PAIRS_H
#define MPATH_PLAN_PAIRS_H

#include "plan/plan.h"
#include "plan/prices.h"
#include "topo/topo.h"
#include "util/status.h"

#include <stdint.h>

/* What a topology means for such plans. */
typedef struct mpath_pairs mpath_pairs_t;

/*
 * MPATH_DECLINED where there is no such plan: two nodes have no rail in common; a pair's paths are limited; with GPUs, some rank has none, one with
 * more NICs than one beside it, or one that does not reach all rails of its node, or NVLink joins nodes; ranks are too many for flows
 * to have numbers of 32 bits: 16384 with 16 rails; or routes go from one rail to another, and rails are more than 16. `topo` outlives it.
 */
mpath_status_t mpath_pairs_create(const mpath_topo_t *topo, uint64_t min_fragment_bytes, mpath_pairs_t **pairs_p);
void mpath_pairs_destroy(mpath_pairs_t *pairs);

const mpath_topo_t *mpath_pairs_topo(const mpath_pairs_t *pairs);
int mpath_pairs_num_rails(const mpath_pairs_t *pairs);
/*
 * The rail of path 0 between ranks of two nodes by which it leaves, and that by which it arrives, which is another one over a spine; counted
 * among those in use; see topo/topo.h.
 */
int mpath_pairs_static_rail(const mpath_pairs_t *pairs, int source, int destination);
int mpath_pairs_static_rail_in(const mpath_pairs_t *pairs, int source, int destination);
/* All nodes have the same rails. If they have not, mpath_pairs_price() goes before what needs a load but mpath_pairs_plan() of a call before. */
int mpath_pairs_is_alike(const mpath_pairs_t *pairs);

/* What the ranks of one node, in their order, send to each rank and receive from each. */
typedef struct mpath_pairs_rows {
    const uint64_t *sends;    /* [i * num_ranks + destination] */
    const uint64_t *receives; /* [i * num_ranks + source] */
} mpath_pairs_rows_t;

/* Of the whole job: the most that a node, and that a NIC by the static routes, sends or receives. */
typedef struct mpath_pairs_load {
    uint64_t node_bytes, static_bytes;
    uint64_t largest_bytes;     /* of all pairs of ranks */
    mpath_prices_terms_t terms; /* where nodes are not alike: mpath_pairs_priced() */
} mpath_pairs_load_t;

/*
 * Where nodes are not alike: begins the prices of a matrix; each rank of a node does. Then rounds as in plan/prices.h. The terms are not needed yet.
 * MPATH_ERR_NO_MEMORY, and MPATH_DECLINED where rails are too different.
 */
mpath_status_t mpath_pairs_price(mpath_pairs_t *pairs, int rank, const mpath_pairs_rows_t *rows,
                                 const mpath_pairs_load_t *load);
size_t mpath_pairs_entry_bytes(const mpath_pairs_t *pairs);
int mpath_pairs_say(const mpath_pairs_t *pairs, int rank, mpath_prices_terms_t *terms, mpath_prices_entry_t *entry);
int mpath_pairs_hear(mpath_pairs_t *pairs, const mpath_prices_terms_t *most, const void *entries, size_t count);
/* Sets the terms of the matrix; its plan is made while no other one is begun. */
void mpath_pairs_priced(const mpath_pairs_t *pairs, mpath_pairs_load_t *load);

/* Whether anything leaves its static route. */
int mpath_pairs_moves(const mpath_pairs_t *pairs, const mpath_pairs_load_t *load);
/* What the busiest NIC takes then at least, and what it takes on the static routes (at most, where rates differ). Nanoseconds. */
uint64_t mpath_pairs_bound_ns(const mpath_pairs_t *pairs, const mpath_pairs_load_t *load);
uint64_t mpath_pairs_static_ns(const mpath_pairs_t *pairs, const mpath_pairs_load_t *load);
/* What the plan takes. */
uint64_t mpath_pairs_plan_ns(const mpath_pairs_t *pairs, const mpath_pairs_load_t *load);

/*
 * The part of the plan that has to do with `rank`: what it sends, receives and passes on (mpath_plan_is_part()).
 * Its Z is that of the whole plan without what fragments cost; it has no loads, mpath_plan_loads() is NULL.
 */
mpath_status_t mpath_pairs_plan(const mpath_pairs_t *pairs, int rank, const mpath_pairs_rows_t *rows,
                                const mpath_pairs_load_t *load, mpath_plan_t **plan_p);

/* Debugging: a sum over the flows of which `rank` is an end; over all ranks it is 0 where both ends of each have the same. */
uint64_t mpath_pairs_balance(int rank, const mpath_plan_t *part);

/*
 * For whoever has to know the loads of all NICs: what the flows of which `rank` is an end put on those of its node, bytes sent
 * by rail, then bytes received: share[2 * mpath_pairs_num_rails()]. With the shares of all ranks, by rank, the part has
 * the same loads as all others. MPATH_ERR_NO_MEMORY.
 */
void mpath_pairs_share(const mpath_pairs_t *pairs, int rank, const mpath_plan_t *part, uint64_t *share);
mpath_status_t mpath_pairs_set_loads(const mpath_pairs_t *pairs, const uint64_t *shares, mpath_plan_t *part);

#endif
