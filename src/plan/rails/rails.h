/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The problem on rails: a lane is one NIC, node * num_rails + rail, and a pair on two nodes may use each rail that both
 * nodes have. Nothing else is modelled, so the memory of the nodes must not be what limits the plan; who calls looks at
 * the loads.
 *
 * The static routes are kept and only what is above a lane's target moves. On equal rails the targets are known in
 * advance: no node sends or receives faster than all its NICs, and spreading every pair evenly reaches that. On unequal
 * ones rails_solve() finds them from the bytes between nodes.
 */
#ifndef MPATH_PLAN_RAILS_RAILS_H
#define MPATH_PLAN_RAILS_RAILS_H

#include "plan/construct/moves.h"

typedef struct mpath_rails {
    const mpath_topo_t *topo;
    const uint64_t *demand;
    uint64_t min_fragment_bytes;
    int num_ranks, num_nodes, num_rails, num_lanes;
    int affine, spine;
    int crossing;            /* path 0 goes from the source's NIC to the destination's */
    int regular;             /* all nodes have all rails, all ranks have their NIC */
    int equal;               /* all NICs in use have one rate */
    uint8_t *lane_nic;       /* number of the NIC on its node */
    mpath_nic_set_t *in_use; /* by node, of rails */
    int32_t *node;           /* by rank */
    int32_t *home;           /* rail, by rank; -1: none in use */
    int32_t *slot_first; /* ranks by slot: node * (num_rails + 1) + home + 1; slot_ranks[slot_first[slot]] and so on */
    int32_t *slot_ranks;
    int32_t *node_start; /* first rank of each node when its ranks are consecutive; NULL when they are not */
    uint64_t *capacity;  /* by lane, bytes per second; 0: not in use */
    uint64_t *target;    /* by lane: bytes that it may carry */
    uint64_t *tx, *rx;   /* by lane: bytes that it carries */
    uint64_t *relay;     /* by node: bytes through its memory on their way to or from a NIC */
    uint64_t *own;       /* by node: bytes that stay inside */
    uint64_t *out, *in;  /* by node: bytes that leave and enter */
    uint64_t *row;       /* by node: bytes from one rank */
    uint64_t *column;    /* by rank: bytes from other nodes */
    uint64_t *between;   /* by node * num_nodes + node */
    uint64_t *saved;     /* tx, rx and relay of the static routes */
    uint64_t relayed_bytes, saved_relayed_bytes;
    size_t num_pairs;    /* with bytes */
    mpath_moves_t moves; /* by rail */
    void *memory;
} mpath_rails_t;

/* Rails of a route at its two ends. */
typedef struct mpath_route {
    int tx, rx;
} mpath_route_t;

static inline int mpath_rails_lane(const mpath_rails_t *rails, int rank, int rail)
{
    return rails->node[rank] * rails->num_rails + rail;
}

static inline size_t mpath_rails_pair(const mpath_rails_t *rails, int source, int destination)
{
    return (size_t)source * (size_t)rails->num_ranks + (size_t)destination;
}

/* Rails that two nodes have in common. */
static inline mpath_nic_set_t mpath_rails_common(const mpath_rails_t *rails, int source, int destination)
{
    return rails->in_use[rails->node[source]] & rails->in_use[rails->node[destination]];
}

/* The static route where some rank or node lacks a rail; the two nodes have one in common. */
mpath_route_t mpath_rails_irregular_route(const mpath_rails_t *rails, int source, int destination);

/* Path 0 of a pair on two nodes. */
static inline mpath_route_t mpath_rails_static(const mpath_rails_t *rails, int source, int destination)
{
    mpath_route_t route;

    if (!rails->regular) {
        return mpath_rails_irregular_route(rails, source, destination);
    }
    route.tx = rails->home[source];
    route.rx = rails->crossing ? rails->home[destination] : route.tx;
    return route;
}

/* plan/rails/move.c */
mpath_status_t mpath_rails_begin_moves(mpath_rails_t *rails);
/* Forgets all moves: back to the static routes. */
void mpath_rails_reset(mpath_rails_t *rails);
/* Moves bytes of a pair from its static route to a rail. */
mpath_status_t mpath_rails_move_pair(mpath_rails_t *rails, int source, int destination, int rail, uint64_t bytes);

/* Moves what is above the targets to where there is room, cheapest relays first. May leave some of it. */
mpath_status_t mpath_rails_shed(mpath_rails_t *rails);

/* plan/rails/move.c: relieves overloaded NICs by the others of their nodes, where static routes cross. */
mpath_status_t mpath_rails_balance(mpath_rails_t *rails);

/* plan/rails/move.c: gives every rail its share of the bytes between each two nodes, then takes back what the targets
 * allow. */
mpath_status_t mpath_rails_split(mpath_rails_t *rails, const uint64_t *shares);

#endif
