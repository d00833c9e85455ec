/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The problem: each rank on a GPU of its own, GPUs of a node joined in any manner, NICs beside one GPU, several or none; or
 * no rank on a GPU, copies inside a node through its memory, NICs beside ranks, or all NICs beside every rank. A slot is a rail; a lane is the NIC of a node in a slot, driven by the ranks beside it. A route is known by
 * what it goes by:
 *
 *   other node   slot v     s -> a -lane v of s's node, lane v of d's node-> b -> d     a, b: drivers of the lanes
 *                CROSS      the same over lanes of two slots, of which one has no match on the other node
 *   same node    GPU v      s -> the rank on GPU v -> d             (NVLinks only: elsewhere a relay never helps)
 *                STAGED     through host memory
 *   any          STATIC     path 0
 *
 * No list of paths is made. Static routes are counted in one pass over the demand; the cuts give the targets; what is
 * above a target moves to routes on which everything stays below, cheapest relays first.
 */
#ifndef MPATH_PLAN_CONSTRUCT_CONSTRUCT_H
#define MPATH_PLAN_CONSTRUCT_CONSTRUCT_H

#include "plan/construct/moves.h"

#define MPATH_PORTS_NONE UINT32_MAX          /* no such resource */
#define MPATH_PORTS_MAX_SLOTS MPATH_MAX_NICS /* masks have so many bits */

/* What a route goes by, besides slots and GPUs. */
#define MPATH_PORTS_STATIC (-1)
#define MPATH_PORTS_STAGED MPATH_PORTS_MAX_SLOTS
#define MPATH_PORTS_CROSS (MPATH_PORTS_MAX_SLOTS + 1) /* the first of a square of them: by the slots of the two lanes */

/* A rank. The numbers are resources. */
typedef struct mpath_port {
    int32_t node, gpu;        /* gpu -1: on none */
    int32_t slot;             /* of the NIC that it uses by default; -1: none is up beside it */
    mpath_nic_set_t slots;    /* of all NICs beside it, as a mask */
    uint64_t nics;            /* those NICs */
    uint32_t tx, rx;          /* the NIC in `slot` */
    uint32_t egress, ingress; /* what peer copies use: the NVSwitch port, or the PCIe link; not on a mesh */
    uint32_t up, down;        /* PCIe; NONE: the rank is on no GPU */
    uint32_t links_to;        /* GPUs with ranks that it has NVLinks to, as a mask */
    uint32_t links_from;
} mpath_port_t;

typedef struct mpath_ports_lane {
    uint32_t tx, rx;
    int32_t count;  /* of ranks beside it; 0: there is no such lane */
    int32_t driver; /* the only one, or the position of the first in ports->drivers */
} mpath_ports_lane_t;

/* A node with ranks. */
typedef struct mpath_ports_node {
    int32_t link;   /* mpath_gpu_link_t */
    int32_t domain; /* nodes of one NVSwitch; -1: this node alone */
    int32_t num_ranks;
    int32_t by_port;       /* all its ranks have ports, in both directions */
    int32_t first;         /* position of its first rank in ports->members */
    int32_t run;           /* that rank, where the others' numbers follow; else -1 */
    mpath_nic_set_t lanes; /* as a mask of slots */
    uint32_t memory, uplink_tx, uplink_rx;
} mpath_ports_node_t;

/* What the bytes into, or out of, a rank can use together; 0: nothing. */
typedef struct mpath_ports_rates {
    uint64_t all; /* its peer links and its PCIe link */
    uint64_t far; /* its peer links and its NICs: bytes of other nodes */
    int is_last;  /* the next rank has others */
} mpath_ports_rates_t;

/* A resource, and the rank whose bytes leave it when it has too many. */
typedef struct mpath_ports_step {
    uint32_t resource;
    int32_t rank;
    int16_t slot; /* of the NIC that it is; -1: it is none */
    int16_t receives;
} mpath_ports_step_t;

typedef struct mpath_ports {
    /* Of the topology alone: made once, and kept with it. */
    const mpath_topo_t *topo;
    int num_ranks, num_nodes, num_slots, num_resources;
    int gpus_per_node; /* the most */
    int has_spine;
    int crossing;  /* over it: path 0 goes from the source's NIC to the destination's */
    int uniform;   /* every rank has a NIC, every node the same slots */
    int single;    /* no rank has several */
    int on_hosts;  /* no rank is on a GPU: copies inside a node pass its memory, NICs are beside ranks */
    int all_drive; /* every rank drives all NICs of its node */
    int spreads;   /* and some NICs are no rank's own: static routes leave them empty */
    int unequal;   /* NICs have several rates, or nodes several sets of slots */
    int has_mesh, has_domains, has_switch, one_node;
    uint64_t *capacity;         /* by resource, bytes per second */
    mpath_ports_rates_t *rates; /* by rank: out of it, then of all ranks into it */
    uint64_t *node_rate;        /* 2 * node, then into it: its NICs, or its uplink; 0: nothing */
    mpath_port_t *ports;        /* by rank */
    mpath_ports_lane_t *lanes;  /* by node * num_slots + slot */
    mpath_ports_node_t *nodes;
    int32_t *members;          /* ranks by node */
    int32_t *drivers;          /* ranks by lane, where a lane has several */
    int32_t *on_gpu;           /* by node * gpus_per_node + GPU; -1: none */
    uint32_t *links;           /* NVLinks: (node * gpus_per_node + from) * gpus_per_node + to; NULL: no mesh */
    mpath_ports_step_t *steps; /* NICs and what leads to them, then the others: resources are relieved in this order */
    int num_nic_steps, num_steps;

    /* Of one plan. */
    const uint64_t *demand;
    uint64_t min_fragment_bytes;
    uint64_t *load;      /* by resource: bytes */
    uint64_t *target;    /* bytes that it may carry */
    uint64_t *saved;     /* loads of the static routes */
    uint64_t *lent;      /* by rank, sending and receiving: by how much its port may exceed its target now */
    uint64_t *local_out; /* by rank: bytes to and from its own node, */
    uint64_t *local_in;
    uint64_t *linked_out; /* to and from nodes of its domain, */
    uint64_t *linked_in;
    uint64_t *remote_out; /* to and from others, */
    uint64_t *remote_in;
    uint64_t *odd_out; /* and those of the latter whose static route does not start, or end, at its own NIC */
    uint64_t *odd_in;
    uint64_t *node_bytes; /* 2 * node, then into it: from and to other nodes */
    uint64_t *relayed;    /* by node, what ranks on hosts receive for others, */
    uint64_t *by_lane;    /* and by slot * num_nodes + node: received there */
    uint32_t *stamp;      /* by resource: serial of the static route that uses it */
    uint32_t serial;
    uint64_t relayed_bytes, saved_relayed_bytes;
    mpath_ratio_t z; /* of the loads; den 0: they have changed since it was computed */
    int bottleneck;
    size_t num_pairs; /* with bytes */
    mpath_moves_t moves;
    void *memory;
} mpath_ports_t;

/* The resources of a route. */
typedef struct mpath_ports_route {
    int num_resources;
    int num_relays;
    int rail, rail_end; /* positions: what is between the ranks that drive the NICs */
    uint32_t resources[MPATH_PATH_MAX_RESOURCES];
} mpath_ports_route_t;

/* Bytes of a pair on one route. */
typedef struct mpath_ports_flow {
    int source, destination, via;
    uint64_t bytes;
    mpath_ports_route_t route;
} mpath_ports_flow_t;

/* The static route, matched slots, crossing ones. */
#define MPATH_PORTS_MOST_ROUTES (1 + MPATH_PORTS_MAX_SLOTS + MPATH_PORTS_MAX_SLOTS * MPATH_PORTS_MAX_SLOTS)

static inline int mpath_ports_uses(const mpath_ports_route_t *route, uint32_t resource)
{
    int i;

    for (i = 0; i < route->num_resources; i++) {
        if (route->resources[i] == resource) {
            return 1;
        }
    }
    return 0;
}

static inline const mpath_ports_lane_t *mpath_ports_lane(const mpath_ports_t *ports, int node, int slot)
{
    return &ports->lanes[node * ports->num_slots + slot];
}

/* The rank that drives a lane of the node of `end` for a pair: the end itself where it sits beside the NIC. */
static inline int mpath_ports_driver(const mpath_ports_t *ports, int end, int slot, int source, int destination)
{
    const mpath_port_t *port = &ports->ports[end];
    const mpath_ports_lane_t *lane;

    if ((port->slots >> slot) & 1) {
        return end;
    }
    lane = mpath_ports_lane(ports, port->node, slot);
    return lane->count == 1 ? lane->driver
                            : ports->drivers[lane->driver + (int32_t)(((uint32_t)source + (uint32_t)destination) %
                                                                      (uint32_t)lane->count)];
}

/* The NVLink between two ranks of a node. */
static inline uint32_t mpath_ports_link(const mpath_ports_t *ports, const mpath_port_t *from, const mpath_port_t *to)
{
    return ports->links[(from->node * ports->gpus_per_node + from->gpu) * ports->gpus_per_node + to->gpu];
}

/* Whether the ranks are on nodes of one NVSwitch, and both GPUs have a port. */
static inline int mpath_ports_is_linked(const mpath_ports_t *ports, int source, int destination)
{
    const mpath_port_t *s = &ports->ports[source], *d = &ports->ports[destination];

    return ports->has_domains && s->node != d->node && ports->nodes[s->node].domain >= 0 &&
           ports->nodes[s->node].domain == ports->nodes[d->node].domain && s->egress != MPATH_PORTS_NONE &&
           d->ingress != MPATH_PORTS_NONE;
}

/* Whether bytes go between two ranks of a node without host memory. */
static inline int mpath_ports_can_peer(const mpath_ports_t *ports, int from, int to)
{
    const mpath_port_t *a = &ports->ports[from], *b = &ports->ports[to];

    if (ports->has_mesh && ports->nodes[a->node].link == MPATH_GPU_LINK_MESH) {
        return mpath_ports_link(ports, a, b) != MPATH_PORTS_NONE;
    }
    return a->egress != MPATH_PORTS_NONE && b->ingress != MPATH_PORTS_NONE;
}

/* Slots that the nodes of two ranks have both. */
static inline mpath_nic_set_t mpath_ports_matched(const mpath_ports_t *ports, int source, int destination)
{
    return ports->nodes[ports->ports[source].node].lanes & ports->nodes[ports->ports[destination].node].lanes;
}

static inline void mpath_ports_add_staged(const mpath_ports_t *ports, mpath_ports_route_t *route, int from, int to)
{
    if (!ports->on_hosts) {
        route->resources[route->num_resources++] = ports->ports[from].up;
    }
    route->resources[route->num_resources++] = ports->nodes[ports->ports[from].node].memory;
    if (!ports->on_hosts) {
        route->resources[route->num_resources++] = ports->ports[to].down;
    }
}

/* Adds the resources of a hop between two ranks of a node. */
static inline void mpath_ports_add_leg(const mpath_ports_t *ports, mpath_ports_route_t *route, int from, int to)
{
    const mpath_port_t *a = &ports->ports[from], *b = &ports->ports[to];
    uint32_t link;

    if (from == to) {
        return;
    }
    if (ports->has_mesh && ports->nodes[a->node].link == MPATH_GPU_LINK_MESH) {
        link = mpath_ports_link(ports, a, b);
        if (link != MPATH_PORTS_NONE) {
            route->resources[route->num_resources++] = link;
            return;
        }
    } else if (a->egress != MPATH_PORTS_NONE && b->ingress != MPATH_PORTS_NONE) {
        route->resources[route->num_resources++] = a->egress;
        route->resources[route->num_resources++] = b->ingress;
        return;
    }
    mpath_ports_add_staged(ports, route, from, to);
}

/* plan/construct/setup.c: the lanes of path 0 over rails where it is irregular; 0: there is no path. */
int mpath_ports_odd_slots(const mpath_ports_t *ports, int source, int destination, int *from_p, int *to_p);

/* The slots of the lanes of path 0 over rails; 0: there is no path. */
static inline int mpath_ports_static_slots(const mpath_ports_t *ports, int source, int destination, int *from_p,
                                           int *to_p)
{
    int from = ports->ports[source].slot, to = ports->ports[destination].slot;

    if (ports->crossing ? from < 0 || to < 0
                        : from < 0 || !((mpath_ports_matched(ports, source, destination) >> from) & 1)) {
        return mpath_ports_odd_slots(ports, source, destination, from_p, to_p);
    }
    *from_p = from;
    *to_p   = ports->crossing ? to : from;
    return 1;
}

/* Adds the resources between the NICs of two ranks that drive them, these included. */
static inline void mpath_ports_add_rail(const mpath_ports_t *ports, mpath_ports_route_t *route,
                                        const mpath_port_t *from, uint32_t tx, uint32_t rx, const mpath_port_t *to)
{
    const mpath_ports_node_t *node_from = &ports->nodes[from->node], *node_to = &ports->nodes[to->node];
    int n = route->num_resources;

    route->rail = n;
    if (!ports->on_hosts) {
        route->resources[n++] = from->up;
    }
    route->resources[n++] = tx;
    if (node_from->uplink_tx != MPATH_PORTS_NONE) {
        route->resources[n++] = node_from->uplink_tx;
    }
    if (node_to->uplink_rx != MPATH_PORTS_NONE) {
        route->resources[n++] = node_to->uplink_rx;
    }
    route->resources[n++] = rx;
    if (!ports->on_hosts) {
        route->resources[n++] = to->down;
    }
    route->num_resources = route->rail_end = n;
}

/* A pair's route over two lanes. */
static inline void mpath_ports_route_over(const mpath_ports_t *ports, int source, int destination, int slot_from,
                                          int slot_to, mpath_ports_route_t *route)
{
    int from = mpath_ports_driver(ports, source, slot_from, source, destination);
    int to   = mpath_ports_driver(ports, destination, slot_to, source, destination);

    route->num_resources = 0;
    mpath_ports_add_leg(ports, route, source, from);
    mpath_ports_add_rail(ports, route, &ports->ports[from],
                         mpath_ports_lane(ports, ports->ports[from].node, slot_from)->tx,
                         mpath_ports_lane(ports, ports->ports[to].node, slot_to)->rx, &ports->ports[to]);
    mpath_ports_add_leg(ports, route, to, destination);
    route->num_relays = (from != source) + (to != destination);
}

/* A pair's route by `via`, which it has; STATIC may have none, with no resources, where nodes lack slots. */
static inline void mpath_ports_route(const mpath_ports_t *ports, int source, int destination, int via,
                                     mpath_ports_route_t *route)
{
    const mpath_port_t *s = &ports->ports[source], *d = &ports->ports[destination];
    int from = via, to = via;

    route->num_resources = 0;
    route->num_relays    = 0;
    if (s->node == d->node) {
        if (via == MPATH_PORTS_STATIC) {
            mpath_ports_add_leg(ports, route, source, destination);
        } else if (via == MPATH_PORTS_STAGED) {
            mpath_ports_add_staged(ports, route, source, destination);
        } else {
            from = ports->on_gpu[s->node * ports->gpus_per_node + via];
            mpath_ports_add_leg(ports, route, source, from);
            mpath_ports_add_leg(ports, route, from, destination);
            route->num_relays = 1;
        }
        return;
    }
    if (via == MPATH_PORTS_STATIC) {
        if (mpath_ports_is_linked(ports, source, destination)) {
            mpath_ports_add_leg(ports, route, source, destination);
            return;
        }
        if (ports->crossing && s->slot >= 0 && d->slot >= 0) { /* most of them */
            mpath_ports_add_rail(ports, route, s, s->tx, d->rx, d);
            return;
        }
        if (!mpath_ports_static_slots(ports, source, destination, &from, &to)) {
            return;
        }
    } else if (via >= MPATH_PORTS_CROSS) {
        from = (via - MPATH_PORTS_CROSS) / MPATH_PORTS_MAX_SLOTS;
        to   = (via - MPATH_PORTS_CROSS) % MPATH_PORTS_MAX_SLOTS;
    }
    mpath_ports_route_over(ports, source, destination, from, to, route);
}

/*
 * plan/construct/setup.c: a plan of a demand, with no bytes counted yet. What follows from the topology is read when its
 * first plan is made, and kept with it. MPATH_DECLINED when it is not of this kind.
 */
mpath_status_t mpath_ports_init(mpath_ports_t *ports, const mpath_topo_t *topo, const uint64_t *demand,
                                uint64_t min_fragment_bytes);
void mpath_ports_release(mpath_ports_t *ports);

/* plan/construct/setup.c: loads of the static routes. MPATH_DECLINED when a pair has no route. */
mpath_status_t mpath_ports_count(mpath_ports_t *ports);

/* plan/construct/setup.c: what no routes can avoid. */
mpath_ratio_t mpath_ports_cuts(const mpath_ports_t *ports);
/* The largest load over capacity; ports->bottleneck is the first resource that has it, -1: nothing is loaded. */
mpath_ratio_t mpath_ports_z(mpath_ports_t *ports);

/* plan/construct/shed.c: single moves. */
mpath_status_t mpath_ports_begin_moves(mpath_ports_t *ports);
/* Forgets all moves: back to the static routes. */
void mpath_ports_reset(mpath_ports_t *ports);

/* Moves bytes of a pair from its static route, which is `from`, to another. */
mpath_status_t mpath_ports_move_pair(mpath_ports_t *ports, int source, int destination, int via, uint64_t bytes);

/* Moves bytes of a flow to another route; either may be the static one. */
mpath_status_t mpath_ports_shift(mpath_ports_t *ports, const mpath_ports_flow_t *from, int via,
                                 const mpath_ports_route_t *to, uint64_t bytes);

/* Residual capacity: bytes that a resource may still take below its target. */
static inline uint64_t mpath_ports_residual(const mpath_ports_t *ports, uint32_t r)
{
    if (ports->stamp[r] == ports->serial) {
        return UINT64_MAX; /* the static route uses it already */
    }
    return ports->load[r] < ports->target[r] ? ports->target[r] - ports->load[r] : 0;
}

/* plan/construct/shed.c: moves what is above the targets to where capacity is left, cheapest relays first. May leave some of it. */
mpath_status_t mpath_ports_shed(mpath_ports_t *ports);

/*
 * plan/construct/shed.c: relieves NICs that are to lose half of their bytes or more: all pairs lose as large a part, to all NICs by the
 * capacity that these have left. So every pair has bytes on every rail, whose rates it learns. For ports->spreads.
 */
mpath_status_t mpath_ports_share(mpath_ports_t *ports);

/* plan/construct/shed.c: what a pair can go by, the static route first; returns their number. */
int mpath_ports_list_routes(const mpath_ports_t *ports, int source, int destination, int *vias);

/* Visits the flows that use a resource, until one says something else than MPATH_OK, which is returned. */
typedef mpath_status_t (*mpath_ports_visit_t)(void *arg, const mpath_ports_flow_t *flow);

mpath_status_t mpath_ports_visit(mpath_ports_t *ports, uint32_t resource, mpath_ports_visit_t visit, void *arg);

/*
 * plan/construct/repair.c: evens out what is left above the bound, until Z is within the gap of it or nothing helps; raises the
 * bound where that does not.
 */
mpath_status_t mpath_ports_repair(mpath_ports_t *ports, mpath_ratio_t *bound, uint32_t gap_ppm);

/*
 * plan/construct/shed.c: relieves the overloaded NICs of a node by the others; where static routes cross, on uniform nodes.
 */
mpath_status_t mpath_ports_balance(mpath_ports_t *ports, int node, int receives);

#endif
