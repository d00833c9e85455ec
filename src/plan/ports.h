/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The problem on GPUs that stand in order: each rank on a GPU of its own with one NIC beside it, on every node the same
 * rails, the GPUs of a node joined by an NVSwitch, by PCIe or by NVLinks between all pairs. Then a rank is its slot on
 * its node, in rail order, and a route is known by the slot that it goes by:
 *
 *   other node   slot v     s -> the rank of slot v on s's node -rail v-> the rank of slot v on d's node -> d
 *   same node    slot v     s -> the rank of slot v -> d             (NVLinks only: elsewhere a relay never helps)
 *                STAGED     through host memory
 *   either       STATIC     path 0
 *
 * Where GPUs have no mesh of NVLinks, nodes may lack rails and ranks their NIC ("loose"): slots are then the rails of all
 * nodes, and some have no rank on some node.
 *
 * No list of paths is made. Static routes are counted in one pass over the demand; the cuts give the targets; what is
 * above a target moves to routes on which everything stays below, cheapest relays first.
 */
#ifndef MPATH_PLAN_PORTS_H
#define MPATH_PLAN_PORTS_H

#include "plan/internal.h"

#define MPATH_PORTS_STATIC (-1)
#define MPATH_PORTS_NONE UINT32_MAX /* no such resource, or rank */
#define MPATH_PORTS_MAX_SLOTS MPATH_MAX_GPUS

/* A rank: its GPU and its NIC. The numbers are resources. */
typedef struct mpath_port {
    int32_t node, slot;       /* slot -1: no NIC is up beside it */
    uint32_t egress, ingress; /* what peer copies use: the NVSwitch port, or the PCIe link; not on a mesh */
    uint32_t up, down;        /* PCIe */
    uint32_t tx, rx;          /* NIC */
} mpath_port_t;

/* A node with ranks. */
typedef struct mpath_ports_node {
    int32_t link; /* mpath_gpu_link_t */
    int32_t num_ranks;
    int32_t first_rank;
    uint32_t occupied; /* GPUs with a rank, as a mask */
    uint32_t memory, uplink_tx, uplink_rx;
    uint64_t staged_bytes; /* that stripes would put through host memory */
    uint64_t remote_out, remote_in;
} mpath_ports_node_t;

/* Bytes of a pair that leave its static route. */
typedef struct mpath_ports_move {
    uint64_t bytes;
    uint32_t next; /* of the same pair; 0 ends the list: entry 0 is not used */
    int32_t via;
} mpath_ports_move_t;

typedef struct mpath_ports {
    const mpath_topo_t *topo;
    const uint64_t *demand;
    uint64_t min_fragment_bytes;
    int num_ranks, num_nodes, num_slots, num_resources;
    int crossing;    /* path 0 goes from the source's NIC to the destination's */
    int consecutive; /* the ranks of each node are */
    int has_mesh;
    int one_node;
    int loose;           /* some node or rank lacks a rail: path 0 is asked of the topology */
    uint64_t *capacity;  /* by resource, bytes per second */
    uint64_t *load;      /* bytes */
    uint64_t *target;    /* bytes that it may carry */
    uint64_t *saved;     /* loads of the static routes */
    uint64_t *lent;      /* by rank, sending and receiving: by how much its port may exceed its target now */
    uint64_t *local_out; /* by rank: bytes to and from its own node, to and from others */
    uint64_t *local_in;
    uint64_t *remote_out;
    uint64_t *remote_in;
    uint32_t *stamp; /* by resource: serial of the static route that uses it */
    uint32_t serial;
    mpath_port_t *ports; /* by rank */
    uint8_t *gpu;        /* by rank */
    uint8_t *is_beside;  /* by rank: its place names its NIC, which PXN looks for */
    int32_t *driver;     /* rank by node * num_slots + slot; -1: none */
    uint32_t *links;     /* NVLinks: (node * num_slots + from) * num_slots + to; NULL: no mesh */
    mpath_ports_node_t *nodes;
    uint64_t relayed_bytes, saved_relayed_bytes;
    size_t num_pairs;          /* with bytes */
    mpath_ports_move_t *moves; /* NULL: nothing moved yet */
    uint32_t num_moves, moves_capacity;
    uint32_t *head;     /* first move of source * num_ranks + destination; NULL with moves */
    uint8_t *row_moves; /* by source: it has moves */
    void *memory;
} mpath_ports_t;

/* The resources of a route. */
typedef struct mpath_ports_route {
    int num_resources;
    int num_relays;
    uint32_t resources[MPATH_PATH_MAX_RESOURCES];
} mpath_ports_route_t;

static inline int mpath_ports_staged(const mpath_ports_t *ports)
{
    return ports->num_slots;
}

static inline int mpath_ports_driver(const mpath_ports_t *ports, int node, int slot)
{
    return ports->driver[node * ports->num_slots + slot];
}

static inline size_t mpath_ports_pair(const mpath_ports_t *ports, int source, int destination)
{
    return (size_t)source * (size_t)ports->num_ranks + (size_t)destination;
}

static inline uint32_t mpath_ports_link(const mpath_ports_t *ports, const mpath_port_t *from, const mpath_port_t *to)
{
    return ports->links[(from->node * ports->num_slots + from->slot) * ports->num_slots + to->slot];
}

/* Adds the resources of a copy between two ranks of a node. */
static inline void mpath_ports_add_leg(const mpath_ports_t *ports, mpath_ports_route_t *route, int from, int to)
{
    const mpath_port_t *a = &ports->ports[from], *b = &ports->ports[to];

    if (from == to) {
        return;
    }
    if (ports->has_mesh && ports->nodes[a->node].link == MPATH_GPU_LINK_MESH) {
        route->resources[route->num_resources++] = mpath_ports_link(ports, a, b);
        return;
    }
    route->resources[route->num_resources++] = a->egress;
    route->resources[route->num_resources++] = b->ingress;
}

/* ports_setup.c: path 0 of a pair as the topology has it. */
void mpath_ports_ask_static(const mpath_ports_t *ports, int source, int destination, mpath_ports_route_t *route);

/* Whether a pair on two nodes has a route by a slot. */
static inline int mpath_ports_has_route(const mpath_ports_t *ports, int source, int destination, int slot)
{
    return mpath_ports_driver(ports, ports->ports[source].node, slot) >= 0 &&
           mpath_ports_driver(ports, ports->ports[destination].node, slot) >= 0;
}

/* A pair's route by `via`, which it has. */
static inline void mpath_ports_route(const mpath_ports_t *ports, int source, int destination, int via,
                                     mpath_ports_route_t *route)
{
    const mpath_port_t *s = &ports->ports[source], *d = &ports->ports[destination], *a, *b;
    uint32_t *list = route->resources;
    int from, to, n;

    route->num_resources = 0;
    if (s->node == d->node) {
        route->num_relays = via >= 0 && via < ports->num_slots;
        if (via == MPATH_PORTS_STATIC) {
            mpath_ports_add_leg(ports, route, source, destination);
        } else if (via == mpath_ports_staged(ports)) {
            list[0]              = s->up;
            list[1]              = ports->nodes[s->node].memory;
            list[2]              = d->down;
            route->num_resources = 3;
        } else {
            from = mpath_ports_driver(ports, s->node, via);
            mpath_ports_add_leg(ports, route, source, from);
            mpath_ports_add_leg(ports, route, from, destination);
        }
        return;
    }
    if (via == MPATH_PORTS_STATIC && ports->loose) {
        mpath_ports_ask_static(ports, source, destination, route);
        return;
    }
    from = via < 0 ? source : mpath_ports_driver(ports, s->node, via);
    to   = via >= 0          ? mpath_ports_driver(ports, d->node, via)
           : ports->crossing ? destination
                             : mpath_ports_driver(ports, d->node, s->slot);
    mpath_ports_add_leg(ports, route, source, from);
    a         = &ports->ports[from];
    b         = &ports->ports[to];
    n         = route->num_resources;
    list[n++] = a->up;
    list[n++] = a->tx;
    if (ports->nodes[s->node].uplink_tx != MPATH_PORTS_NONE) {
        list[n++] = ports->nodes[s->node].uplink_tx;
    }
    if (ports->nodes[d->node].uplink_rx != MPATH_PORTS_NONE) {
        list[n++] = ports->nodes[d->node].uplink_rx;
    }
    list[n++]            = b->rx;
    list[n++]            = b->down;
    route->num_resources = n;
    mpath_ports_add_leg(ports, route, to, destination);
    route->num_relays = (from != source) + (to != destination);
}

/* ports_setup.c: reads the topology. MPATH_DECLINED when it is not of this kind. */
mpath_status_t mpath_ports_init(mpath_ports_t *ports, const mpath_topo_t *topo, const uint64_t *demand,
                                uint64_t min_fragment_bytes);
void mpath_ports_release(mpath_ports_t *ports);

/* ports_count.c: loads of the static routes, and what no routes can avoid. MPATH_DECLINED when a pair has no route. */
mpath_status_t mpath_ports_count(mpath_ports_t *ports);
mpath_ratio_t mpath_ports_cuts(const mpath_ports_t *ports);
/* The largest load over capacity. */
mpath_ratio_t mpath_ports_z(const mpath_ports_t *ports, const uint64_t *load);

/* ports_move.c */
mpath_status_t mpath_ports_begin_moves(mpath_ports_t *ports);
/* Bytes of a pair still on its static route. */
uint64_t mpath_ports_static_bytes(const mpath_ports_t *ports, int source, int destination);
/* Moves bytes of a pair from its static route to another. */
mpath_status_t mpath_ports_move_pair(mpath_ports_t *ports, int source, int destination, int via, uint64_t bytes);
/*
 * Moves up to `bytes` of a pair, in whole fragments, from its static route to one between the nodes by a slot; the NICs
 * may exceed their targets, the copies inside the nodes not. *moved_p says how many bytes.
 */
mpath_status_t mpath_ports_move_over(mpath_ports_t *ports, int source, int destination, int via, uint64_t bytes,
                                     uint64_t *moved_p);
/* Moves what is above the targets to where there is room, cheapest relays first. May leave some of it. */
mpath_status_t mpath_ports_shed(mpath_ports_t *ports);

/* ports_balance.c: relieves the overloaded NICs of a node by the others; where static routes cross. */
mpath_status_t mpath_ports_balance(mpath_ports_t *ports, int node, int receives);

/* ports_rivals.c: the policies without a search whose Z is below z, as a mask. */
mpath_status_t mpath_ports_rivals(const mpath_ports_t *ports, mpath_ratio_t z, uint32_t *rivals_p);

/* ports_emit.c: the flows and loads. */
/* What a path other than the static route goes by; MPATH_PORTS_STATIC: there is no such path. */
int mpath_ports_via_of(const mpath_ports_t *ports, int source, int destination, int path);
mpath_status_t mpath_ports_emit(const mpath_ports_t *ports, mpath_plan_t *plan);

#endif
