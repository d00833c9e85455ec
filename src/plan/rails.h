/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The problem on equal rails: every node has the same R rails of the same rate, and every rank has its NIC. A lane is one
 * NIC: node * R + rail. Path 0 of a pair uses the source's rail at both ends, or, with affine access and a spine, the
 * source's NIC and the destination's. The optimum is known in advance (no node sends or receives faster than R NICs, and
 * spreading every pair evenly reaches that), so nothing is searched: the static routes are kept, and only what is above
 * the target moves to lanes that are below it.
 */
#ifndef MPATH_PLAN_RAILS_H
#define MPATH_PLAN_RAILS_H

#include "plan/internal.h"

/* Bytes of a pair that leave its static route for another rail. */
typedef struct mpath_rail_move {
    uint64_t bytes;
    uint32_t next; /* of the same pair; 0 ends the list: entry 0 is not used */
    int32_t rail;
} mpath_rail_move_t;

typedef struct mpath_rails {
    const mpath_topo_t *topo;
    const uint64_t *demand;
    uint64_t min_fragment_bytes;
    int num_ranks, num_nodes, num_rails;
    int affine;
    int crossing; /* path 0 goes from the source's NIC to the destination's */
    int rail_nic[MPATH_MAX_NICS];
    uint64_t capacity_bps; /* of each NIC */
    uint64_t target;       /* bytes that every lane may carry */
    int32_t *node;         /* by rank */
    int32_t *home;         /* rail, by rank */
    int32_t *lane_first;   /* ranks beside lane l: lane_ranks[lane_first[l]] up to lane_first[l + 1] */
    int32_t *lane_ranks;   /* so that a node's ranks stand together, too */
    int32_t *node_start;   /* first rank of each node when its ranks are consecutive; NULL when they are not */
    uint64_t *tx, *rx;     /* bytes by lane */
    uint64_t *own, *relay; /* bytes through a node's memory: inside the node, and on their way to or from a NIC */
    uint64_t *out, *in;    /* bytes that leave and enter a node */
    uint64_t *row;         /* bytes from one rank to each node */
    uint64_t relayed_bytes;
    size_t num_pairs;         /* with bytes */
    mpath_rail_move_t *moves; /* NULL: nothing moved */
    uint32_t num_moves, moves_capacity;
    uint32_t *head;     /* first move of source * num_ranks + destination; NULL with moves */
    uint8_t *row_moves; /* by source: it has moves */
    void *memory;
} mpath_rails_t;

static inline int mpath_rails_lane(const mpath_rails_t *rails, int rank, int rail)
{
    return rails->node[rank] * rails->num_rails + rail;
}

/* rails_move.c: moves what is above the target. */
mpath_status_t mpath_rails_move(mpath_rails_t *rails);

/* rails_emit.c: the flows and loads. */
mpath_status_t mpath_rails_emit(const mpath_rails_t *rails, mpath_plan_t *plan);

#endif
