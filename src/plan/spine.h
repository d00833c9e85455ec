/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Spine: how the bytes from one node to another one are divided where a route may go from one rail to another, over the spine that
 * joins rails. Each NIC of the sender has a part to send and each of the receiver a part to receive; both sum up to the
 * bytes. Three kinds of routes bring that about:
 *
 *   static     rail i to rail j, of the pairs whose ranks sit beside these; nobody else has this one where both nodes have both rails
 *   matched    rail r to rail r, where both nodes have it
 *   crossing   rail r to rail s, where a node lacks one of them; any pair has these
 *
 * Bytes stay on their static routes as far as the parts at both ends allow. What stays on crossing ones between rails that both nodes
 * have is a circulation over these rails: then a rail has as much left to send as to receive, which matched routes take. As many bytes
 * as that needs, and no more, leave the routes that end where too little is left to receive, along the shortest chains of such routes. What moves takes
 * the rail of its source or of its destination where these have something left, at the cost of one relay, and others then.
 *
 * Integers only, the same on both nodes. The spine itself is no resource: where it is scarce, a topology says so of all NICs of a node
 * together (its uplink), and which of them a route takes does not matter.
 */
#ifndef MPATH_PLAN_SPINE_H
#define MPATH_PLAN_SPINE_H

#include "topo/topo.h"

#include <stdint.h>

#define MPATH_SPINE_RAILS 16 /* at most */
#define MPATH_SPINE_CELLS (MPATH_SPINE_RAILS * MPATH_SPINE_RAILS)
#define MPATH_SPINE_ARCS (3 * MPATH_SPINE_RAILS)

/* Rails of a route: that of the NIC that sends, and that of the one that receives. */
typedef struct mpath_arc {
    int8_t out, in;
} mpath_arc_t;

static inline int mpath_arc_is(mpath_arc_t a, mpath_arc_t b)
{
    return a.out == b.out && a.in == b.in;
}

/* The bytes of a static route, one after the other: some stay, some go matched by the rail that they leave by, or that they arrive by. */
typedef struct mpath_spine_cell {
    uint64_t bytes;   /* given */
    uint64_t keep;    /* up to here they stay, */
    uint64_t out_end; /* up to here they take the rail of the source, */
    uint64_t in_end;  /* and up to here that of the destination */
    uint64_t line_at; /* where the others begin on the line of all that are left */
} mpath_spine_cell_t;

typedef struct mpath_spine_block {
    /* Given. */
    int num_rails;
    mpath_nic_set_t from, to; /* that the nodes have */
    uint64_t out[MPATH_SPINE_RAILS], in[MPATH_SPINE_RAILS];
    mpath_spine_cell_t cells[MPATH_SPINE_CELLS]; /* [out * num_rails + in] */
    /* Found: the line, which these routes take, each up to its end. */
    int moves, num_arcs;
    mpath_arc_t arcs[MPATH_SPINE_ARCS];
    uint64_t arc_end[MPATH_SPINE_ARCS];
} mpath_spine_block_t;

/* The rails of the nodes, no bytes and no parts; nothing moves. */
void mpath_spine_begin(mpath_spine_block_t *block, int num_rails, mpath_nic_set_t from, mpath_nic_set_t to);
static inline mpath_spine_cell_t *mpath_spine_cell(mpath_spine_block_t *block, mpath_arc_t arc)
{
    return &block->cells[arc.out * block->num_rails + arc.in];
}

/* out, in and the bytes of all cells are there, of equal sums. */
void mpath_spine_divide(mpath_spine_block_t *block);

#endif
