/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Moves the bytes that static routes put above the targets. A piece only goes where every resource of its new route
 * stays within its target, so that nothing else becomes overloaded. Routes with few relays come first.
 */
#include "plan/ports.h"

#include <stdlib.h>
#include <string.h>

#define PASSES 2
#define FIRST_CAPACITY 128

/* A resource that sheds bytes. */
typedef struct shedding {
    uint32_t resource;
    int pass;
    uint64_t excess; /* bytes to go */
} shedding_t;

mpath_status_t mpath_ports_begin_moves(mpath_ports_t *ports)
{
    ports->moves_capacity = FIRST_CAPACITY;
    ports->moves          = malloc(ports->moves_capacity * sizeof(*ports->moves));
    ports->head           = calloc((size_t)ports->num_ranks * (size_t)ports->num_ranks, sizeof(*ports->head));
    if (ports->moves == NULL || ports->head == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    memcpy(ports->saved, ports->load, (size_t)ports->num_resources * sizeof(*ports->saved));
    ports->saved_relayed_bytes = ports->relayed_bytes;
    return MPATH_OK;
}

static mpath_status_t record(mpath_ports_t *ports, int source, int destination, int via, uint64_t bytes)
{
    size_t pair = mpath_ports_pair(ports, source, destination);
    mpath_ports_move_t *moves;
    uint32_t move;

    for (move = ports->head[pair]; move != 0; move = ports->moves[move].next) {
        if (ports->moves[move].via == via) {
            ports->moves[move].bytes += bytes;
            return MPATH_OK;
        }
    }
    if (ports->num_moves + 1 >= ports->moves_capacity) {
        moves = realloc(ports->moves, 2 * (size_t)ports->moves_capacity * sizeof(*moves));
        if (moves == NULL) {
            return MPATH_ERR_NO_MEMORY;
        }
        ports->moves = moves;
        ports->moves_capacity *= 2;
    }
    move                     = ++ports->num_moves;
    ports->moves[move].bytes = bytes;
    ports->moves[move].via   = via;
    ports->moves[move].next  = ports->head[pair];
    ports->head[pair]        = move;
    ports->row_moves[source] = 1;
    return MPATH_OK;
}

/* Adds bytes to a route, modulo 2^64 so that a negative amount takes them away. */
static void add_load(mpath_ports_t *ports, const mpath_ports_route_t *route, uint64_t bytes)
{
    int i;

    for (i = 0; i < route->num_resources; i++) {
        ports->load[route->resources[i]] += bytes;
    }
    ports->relayed_bytes += bytes * (uint64_t)route->num_relays;
}

uint64_t mpath_ports_static_bytes(const mpath_ports_t *ports, int source, int destination)
{
    size_t pair    = mpath_ports_pair(ports, source, destination);
    uint64_t bytes = ports->demand[pair];
    uint32_t move;

    for (move = ports->head[pair]; move != 0; move = ports->moves[move].next) {
        bytes -= ports->moves[move].bytes;
    }
    return bytes;
}

static uint64_t room_at(const mpath_ports_t *ports, uint32_t r)
{
    if (ports->stamp[r] == ports->serial) {
        return UINT64_MAX; /* the static route uses it already */
    }
    return ports->load[r] < ports->target[r] ? ports->target[r] - ports->load[r] : 0;
}

/* Bytes that fit on a route when they leave the static one, whose resources are stamped. */
static uint64_t room_on(const mpath_ports_t *ports, const mpath_ports_route_t *route)
{
    uint64_t room = UINT64_MAX, here;
    int i;

    for (i = 0; i < route->num_resources && room > 0; i++) {
        here = room_at(ports, route->resources[i]);
        room = here < room ? here : room;
    }
    return room;
}

/* Whether the pair may go by a slot at all: it is not an end of a local pair, and its NICs have room. */
static int is_open(const mpath_ports_t *ports, const mpath_port_t *s, const mpath_port_t *d, int via)
{
    if (s->node == d->node) {
        return via == mpath_ports_staged(ports) ||
               (ports->nodes[s->node].link == MPATH_GPU_LINK_MESH && via != s->slot && via != d->slot);
    }
    return via != mpath_ports_staged(ports) && mpath_ports_driver(ports, s->node, via) >= 0 &&
           mpath_ports_driver(ports, d->node, via) >= 0 &&
           room_at(ports, ports->ports[mpath_ports_driver(ports, s->node, via)].tx) > 0 &&
           room_at(ports, ports->ports[mpath_ports_driver(ports, d->node, via)].rx) > 0;
}

/* The routes that pass 0 allows have at most one relay between nodes, none inside. */
static int is_allowed(const mpath_ports_t *ports, const mpath_port_t *s, const mpath_port_t *d, int via, int pass)
{
    if (pass > 0) {
        return 1;
    }
    return s->node == d->node ? via == mpath_ports_staged(ports) : via == s->slot || via == d->slot;
}

/* The allowed route with the most room that does not use the resource; 0 bytes: there is none. */
static uint64_t find_roomiest(const mpath_ports_t *ports, const shedding_t *from, int source, int destination,
                              int *via_p, mpath_ports_route_t *best)
{
    const mpath_port_t *s = &ports->ports[source], *d = &ports->ports[destination];
    mpath_ports_route_t route;
    uint64_t most = 0, room;
    int via, i;

    for (via = 0; via <= mpath_ports_staged(ports); via++) {
        if (!is_allowed(ports, s, d, via, from->pass) || !is_open(ports, s, d, via)) {
            continue;
        }
        mpath_ports_route(ports, source, destination, via, &route);
        room = room_on(ports, &route);
        for (i = 0; i < route.num_resources && room > most && route.resources[i] != from->resource; i++) {
        }
        if (room > most && i == route.num_resources) {
            most   = room;
            *via_p = via;
            *best  = route;
        }
    }
    return most;
}

/* How much of `most` bytes may leave a piece of `bytes` so that both sides are whole fragments; 0: nothing. */
static uint64_t whole_fragments(uint64_t bytes, uint64_t most, uint64_t most_room, uint64_t smallest)
{
    if (most >= bytes) {
        return bytes;
    }
    if (bytes / 2 < smallest) {
        return bytes <= most_room ? bytes : 0;
    }
    most = most < smallest ? smallest : most;
    if (bytes - most < smallest) {
        most = bytes <= most_room ? bytes : bytes - smallest;
    }
    return most <= most_room && most >= smallest ? most : 0;
}

/* Stamps the static route; nonzero when it uses the resource. */
static int stamp_static(mpath_ports_t *ports, const mpath_ports_route_t *route, uint32_t resource)
{
    int i, found = 0;

    ports->serial++;
    for (i = 0; i < route->num_resources; i++) {
        ports->stamp[route->resources[i]] = ports->serial;
        found |= route->resources[i] == resource;
    }
    return found;
}

static void move_bytes(mpath_ports_t *ports, const mpath_ports_route_t *from, const mpath_ports_route_t *to,
                       uint64_t bytes)
{
    add_load(ports, from, 0 - bytes);
    add_load(ports, to, bytes);
}

/* Moves what the shedding resource needs of one pair. */
static mpath_status_t shed_pair(mpath_ports_t *ports, shedding_t *from, int source, int destination)
{
    uint64_t bytes = ports->demand[mpath_ports_pair(ports, source, destination)], most, amount;
    mpath_ports_route_t fixed, route = {.num_resources = 0};
    mpath_status_t status;
    int via = 0;

    if (bytes == 0 || source == destination) {
        return MPATH_OK;
    }
    mpath_ports_route(ports, source, destination, MPATH_PORTS_STATIC, &fixed);
    if (!stamp_static(ports, &fixed, from->resource)) {
        return MPATH_OK;
    }
    bytes = mpath_ports_static_bytes(ports, source, destination);
    while (from->excess > 0 && bytes > 0) {
        most   = find_roomiest(ports, from, source, destination, &via, &route);
        amount = from->excess < most ? from->excess : most;
        amount = amount == 0 ? 0 : whole_fragments(bytes, amount, most, ports->min_fragment_bytes);
        if (amount == 0) {
            break;
        }
        move_bytes(ports, &fixed, &route, amount);
        status = record(ports, source, destination, via, amount);
        if (status != MPATH_OK) {
            return status;
        }
        from->excess -= amount < from->excess ? amount : from->excess;
        bytes -= amount;
    }
    return MPATH_OK;
}

mpath_status_t mpath_ports_move_pair(mpath_ports_t *ports, int source, int destination, int via, uint64_t bytes)
{
    mpath_ports_route_t fixed, route;

    mpath_ports_route(ports, source, destination, MPATH_PORTS_STATIC, &fixed);
    mpath_ports_route(ports, source, destination, via, &route);
    move_bytes(ports, &fixed, &route, bytes);
    return record(ports, source, destination, via, bytes);
}

mpath_status_t mpath_ports_move_over(mpath_ports_t *ports, int source, int destination, int via, uint64_t bytes,
                                     uint64_t *moved_p)
{
    const mpath_port_t *s = &ports->ports[source], *d = &ports->ports[destination];
    mpath_ports_route_t fixed, route, legs = {.num_resources = 0};
    uint64_t all = mpath_ports_static_bytes(ports, source, destination), room;

    mpath_ports_route(ports, source, destination, MPATH_PORTS_STATIC, &fixed);
    mpath_ports_route(ports, source, destination, via, &route);
    mpath_ports_add_leg(ports, &legs, source, mpath_ports_driver(ports, s->node, via));
    mpath_ports_add_leg(ports, &legs, mpath_ports_driver(ports, d->node, via), destination);
    stamp_static(ports, &fixed, 0);
    room     = room_on(ports, &legs);
    bytes    = bytes < room ? bytes : room;
    bytes    = bytes == 0 ? 0 : whole_fragments(all, bytes, room, ports->min_fragment_bytes);
    *moved_p = bytes;
    if (bytes == 0) {
        return MPATH_OK;
    }
    move_bytes(ports, &fixed, &route, bytes);
    return record(ports, source, destination, via, bytes);
}

/* Pairs whose static routes are forwarded by a rank: from its slot on other nodes to the ranks of its node. */
static mpath_status_t shed_forwarded(mpath_ports_t *ports, shedding_t *from, const mpath_port_t *port)
{
    mpath_status_t status = MPATH_OK;
    int node, slot;

    for (node = 0; node < ports->num_nodes && !ports->crossing; node++) {
        if (node == port->node || ports->nodes[node].num_ranks == 0) {
            continue;
        }
        for (slot = 0; slot < ports->num_slots && from->excess > 0 && status == MPATH_OK; slot++) {
            status = shed_pair(ports, from, mpath_ports_driver(ports, node, port->slot),
                               mpath_ports_driver(ports, port->node, slot));
        }
    }
    return status;
}

/* The same where static routes are in no order: all pairs of the node. */
static mpath_status_t shed_loose(mpath_ports_t *ports, shedding_t *from, int node)
{
    mpath_status_t status = MPATH_OK;
    int own, other;

    for (own = 0; own < ports->num_ranks; own++) {
        for (other = 0; ports->ports[own].node == node && other < ports->num_ranks && from->excess > 0; other++) {
            status = shed_pair(ports, from, own, other);
            if (status == MPATH_OK && ports->ports[other].node != node) {
                status = shed_pair(ports, from, other, own);
            }
            if (status != MPATH_OK) {
                return status;
            }
        }
    }
    return MPATH_OK;
}

/* Sheds from a resource of a rank: pairs that it sends or receives, and those that it forwards. */
static mpath_status_t shed_resource(mpath_ports_t *ports, uint32_t resource, int rank, int receives)
{
    shedding_t from       = {.resource = resource};
    mpath_status_t status = MPATH_OK;
    int other;

    for (from.pass = 0; from.pass < PASSES && status == MPATH_OK; from.pass++) {
        if (ports->load[resource] <= ports->target[resource]) {
            break;
        }
        from.excess = ports->load[resource] - ports->target[resource];
        for (other = 0; other < ports->num_ranks && from.excess > 0 && status == MPATH_OK; other++) {
            status = shed_pair(ports, &from, receives ? other : rank, receives ? rank : other);
        }
        if (from.excess > 0 && status == MPATH_OK) {
            status = ports->loose ? shed_loose(ports, &from, ports->ports[rank].node)
                                  : shed_forwarded(ports, &from, &ports->ports[rank]);
        }
    }
    return status;
}

/* The NVLinks of a rank to or from the others of its node. */
static mpath_status_t shed_links(mpath_ports_t *ports, int rank, int receives)
{
    const mpath_port_t *port = &ports->ports[rank], *other;
    mpath_status_t status    = MPATH_OK;
    int slot;

    for (slot = 0; slot < ports->num_slots && status == MPATH_OK; slot++) {
        other = &ports->ports[mpath_ports_driver(ports, port->node, slot)];
        if (other != port) {
            status = shed_resource(
                ports, receives ? mpath_ports_link(ports, other, port) : mpath_ports_link(ports, port, other), rank,
                receives);
        }
    }
    return status;
}

/* NICs, and the PCIe links that lead to them. */
static mpath_status_t shed_nics(mpath_ports_t *ports)
{
    mpath_status_t status = MPATH_OK;
    const mpath_port_t *port;
    int rank, receives;

    for (receives = 0; receives < 2; receives++) {
        for (rank = 0; rank < ports->num_ranks && status == MPATH_OK; rank++) {
            port = &ports->ports[rank];
            if (port->slot < 0) {
                continue;
            }
            status = shed_resource(ports, receives ? port->rx : port->tx, rank, receives);
            if (status == MPATH_OK) {
                status = shed_resource(ports, receives ? port->down : port->up, rank, receives);
            }
        }
    }
    return status;
}

/* Ports, or NVLinks. */
static mpath_status_t shed_ports(mpath_ports_t *ports)
{
    mpath_status_t status = MPATH_OK;
    const mpath_port_t *port;
    int rank, receives;

    for (receives = 0; receives < 2; receives++) {
        for (rank = 0; rank < ports->num_ranks && status == MPATH_OK; rank++) {
            port = &ports->ports[rank];
            if (ports->nodes[port->node].link == MPATH_GPU_LINK_MESH) {
                status = shed_links(ports, rank, receives);
            } else {
                status = shed_resource(ports, receives ? port->ingress : port->egress, rank, receives);
            }
        }
    }
    return status;
}

static uint64_t above(uint64_t bytes, uint64_t limit)
{
    return bytes > limit ? bytes - limit : 0;
}

/*
 * Bytes that a port must pass on to host memory once it has taken over what is too much for the NIC of its rank: while
 * the NIC sheds, the port may exceed its target by them.
 */
static uint64_t staging_need(const mpath_ports_t *ports, int rank, int receives)
{
    const mpath_port_t *port = &ports->ports[rank];
    uint64_t local           = receives ? ports->local_in[rank] : ports->local_out[rank], need, spare;
    uint64_t remote          = receives ? ports->remote_in[rank] : ports->remote_out[rank];
    uint64_t by_peer         = ports->target[receives ? port->ingress : port->egress];
    uint64_t by_pcie         = ports->target[receives ? port->down : port->up];
    uint64_t by_nic          = port->slot < 0 ? 0 : ports->target[receives ? port->rx : port->tx];

    need  = above(local + above(remote, by_nic), by_peer);
    need  = need < local ? need : local;
    spare = above(by_pcie, remote < by_nic ? remote : by_nic);
    return need < spare ? need : spare;
}

/* Raises the ports' targets by what they may pass on, or lowers them again; the need follows from other targets. */
static void lend_to_ports(mpath_ports_t *ports, int lend)
{
    uint64_t need, *target;
    int rank, receives;

    for (rank = 0; rank < ports->num_ranks; rank++) {
        if (ports->nodes[ports->ports[rank].node].link != MPATH_GPU_LINK_SWITCH) {
            continue;
        }
        for (receives = 0; receives < 2; receives++) {
            target = &ports->target[receives ? ports->ports[rank].ingress : ports->ports[rank].egress];
            if (lend) {
                need                             = staging_need(ports, rank, receives);
                ports->lent[2 * rank + receives] = need;
                *target += need;
            } else {
                *target -= ports->lent[2 * rank + receives];
            }
        }
    }
}

mpath_status_t mpath_ports_shed(mpath_ports_t *ports)
{
    int has_nics = !ports->one_node, first = ports->num_moves == 0 && ports->crossing && !ports->loose, node;
    mpath_status_t status = MPATH_OK;

    for (node = 0; node < 2 * ports->num_nodes && has_nics && first; node++) {
        status = mpath_ports_balance(ports, node % ports->num_nodes, node < ports->num_nodes);
        if (status != MPATH_OK) {
            return status;
        }
    }
    if (has_nics) {
        lend_to_ports(ports, 1);
        status = shed_nics(ports);
        lend_to_ports(ports, 0);
    }
    return status == MPATH_OK ? shed_ports(ports) : status;
}
