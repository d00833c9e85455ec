/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Block: the bytes from the ranks of one node to those of another one, and how they are divided over the routes between the nodes.
 *
 * Those of each static route stand one after the other. The first ones stay; others go matched, by the rail that their static route
 * leaves by or that it arrives by; what is left of all static routes is a line, of which each of some routes takes its part.
 */
#ifndef MPATH_PLAN_BLOCK_H
#define MPATH_PLAN_BLOCK_H

#include "topo/topo.h"

#include <stdint.h>

#define MPATH_SPINE_RAILS 16 /* at most, where routes cross: plan/spine.h */
#define MPATH_BLOCK_CELLS (MPATH_SPINE_RAILS * MPATH_SPINE_RAILS)
#define MPATH_BLOCK_ARCS MPATH_MAX_NICS

/* Rails of a route: that of the NIC that sends, and that of the one that receives. */
typedef struct mpath_arc {
    int8_t out, in;
} mpath_arc_t;

static inline int mpath_arc_is(mpath_arc_t a, mpath_arc_t b)
{
    return a.out == b.out && a.in == b.in;
}

/* The bytes of a static route, one after the other: some stay, some go matched by the rail that they leave by, or that they arrive by. */
typedef struct mpath_block_cell {
    mpath_arc_t arc;
    uint64_t bytes;   /* given */
    uint64_t keep;    /* up to here they stay, */
    uint64_t out_end; /* up to here they take the rail of the source, */
    uint64_t in_end;  /* and up to here that of the destination */
    uint64_t line_at; /* where the others begin on the line of all that are left */
} mpath_block_cell_t;

typedef struct mpath_block {
    /* Given. */
    int num_rails, num_cells;
    mpath_nic_set_t from, to; /* that the nodes have */
    uint64_t out[MPATH_MAX_NICS],
        in[MPATH_MAX_NICS]; /* the part of each rail, of equal sums; out where routes are matched */
    mpath_block_cell_t cells[MPATH_BLOCK_CELLS]; /* by rail; where routes cross [out * num_rails + in] */
    /* Found: the line, which these routes take, each up to its end. */
    int moves, num_arcs;
    mpath_arc_t arcs[MPATH_BLOCK_ARCS];
    uint64_t arc_end[MPATH_BLOCK_ARCS];
    /* Of rails below each: those that both nodes have, that the sender has, the receiver. */
    uint8_t below_both[MPATH_MAX_NICS], below_from[MPATH_MAX_NICS], below_to[MPATH_MAX_NICS];
} mpath_block_t;

/* A route takes what is next on the line. */
static inline void mpath_block_add_arc(mpath_block_t *block, int out, int in, uint64_t bytes)
{
    if (bytes > 0) {
        uint64_t begin = block->num_arcs > 0 ? block->arc_end[block->num_arcs - 1] : 0;

        block->arcs[block->num_arcs]      = (mpath_arc_t){(int8_t)out, (int8_t)in};
        block->arc_end[block->num_arcs++] = begin + bytes;
    }
}

/* Names the static routes. For blocks between any nodes. */
void mpath_block_init(mpath_block_t *block, int num_rails, int crosses);
/* The rails of the nodes, no bytes; nothing moves. */
void mpath_block_begin(mpath_block_t *block, mpath_nic_set_t from, mpath_nic_set_t to);
/* Divides over matched routes. The parts and the bytes of all cells are there. mpath_spine_divide() where routes cross. */
void mpath_block_divide(mpath_block_t *block);
/* Number of the path of a route, of a pair whose static route is another one, `first`, which has number 0. */
int mpath_block_path(const mpath_block_t *block, mpath_arc_t first, mpath_arc_t arc);

#endif
