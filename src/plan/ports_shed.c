/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Moves the bytes that static routes put above the targets. A piece only goes where every resource of its new route
 * stays within its target, so that nothing else becomes overloaded. Routes with few relays come first.
 */
#include "plan/ports.h"

#define PASSES 2

/* A resource that sheds bytes. */
typedef struct shedding {
    uint32_t resource;
    int slot; /* of the NIC that it is; -1: it is none */
    int receives;
    int pass;
    uint64_t excess; /* bytes to go */
} shedding_t;

/* The best route so far. */
typedef struct choice {
    uint64_t room;
    int via;
    mpath_ports_route_t route;
} choice_t;

/* Takes the route when it has more room and does not use the shedding resource. */
static void take(const mpath_ports_t *ports, const shedding_t *from, int via, const mpath_ports_route_t *route,
                 choice_t *best)
{
    uint64_t room = UINT64_MAX, here;
    int i;

    for (i = 0; i < route->num_resources; i++) {
        here = mpath_ports_room_at(ports, route->resources[i]);
        room = here < room ? here : room;
        if (room <= best->room || route->resources[i] == from->resource) {
            return;
        }
    }
    best->room  = room;
    best->via   = via;
    best->route = *route;
}

static void consider(const mpath_ports_t *ports, const shedding_t *from, int source, int destination, int via,
                     choice_t *best)
{
    mpath_ports_route_t route;

    mpath_ports_route(ports, source, destination, via, &route);
    take(ports, from, via, &route, best);
}

/* Inside a node: through host memory, later by relays too. */
static void consider_local(const mpath_ports_t *ports, const shedding_t *from, int source, int destination,
                           choice_t *best)
{
    uint32_t relays = 0;

    if (from->pass > 0) {
        relays = ports->ports[source].links_to & ports->ports[destination].links_from;
    }
    for (; relays != 0; relays &= relays - 1) {
        consider(ports, from, source, destination, __builtin_ctz(relays), best);
    }
    if (mpath_ports_can_peer(ports, source, destination)) {
        consider(ports, from, source, destination, MPATH_PORTS_STAGED, best);
    }
}

/* Lanes of two slots of which one has no match, for pairs whose static route is no such one anyhow. */
static void consider_crossing(const mpath_ports_t *ports, const shedding_t *from, int source, int destination,
                              choice_t *best)
{
    const mpath_port_t *s = &ports->ports[source], *d = &ports->ports[destination];
    uint32_t matched  = mpath_ports_matched(ports, source, destination), i, j;
    uint32_t all_from = ports->nodes[s->node].lanes, all_to = ports->nodes[d->node].lanes;

    for (i = from->pass == 0 && s->slots != 0 ? s->slots : all_from; i != 0; i &= i - 1) {
        if (mpath_ports_room_at(ports, mpath_ports_lane(ports, s->node, __builtin_ctz(i))->tx) <= best->room) {
            continue;
        }
        j = (matched >> __builtin_ctz(i)) & 1 ? all_to & ~matched : all_to;
        for (j &= from->pass == 0 && d->slots != 0 ? d->slots : all_to; j != 0; j &= j - 1) {
            consider(ports, from, source, destination,
                     MPATH_PORTS_CROSS + __builtin_ctz(i) * MPATH_PORTS_MAX_SLOTS + __builtin_ctz(j), best);
        }
    }
}

/* Between nodes, over lanes that have room; at first with one relay at most. */
static void consider_rails(const mpath_ports_t *ports, const shedding_t *from, int source, int destination,
                           choice_t *best)
{
    const mpath_port_t *s = &ports->ports[source], *d = &ports->ports[destination];
    uint32_t slots = mpath_ports_matched(ports, source, destination), rest = slots;
    mpath_ports_route_t route;
    int slot;

    rest &= from->pass == 0 ? s->slots | d->slots : slots;
    for (; rest != 0; rest &= rest - 1) {
        slot = __builtin_ctz(rest);
        if (mpath_ports_room_at(ports, mpath_ports_lane(ports, s->node, slot)->tx) > best->room &&
            mpath_ports_room_at(ports, mpath_ports_lane(ports, d->node, slot)->rx) > best->room) {
            mpath_ports_route_over(ports, source, destination, slot, slot, &route);
            take(ports, from, slot, &route, best);
        }
    }
    if (ports->crossing && ports->nodes[s->node].lanes != ports->nodes[d->node].lanes) {
        consider_crossing(ports, from, source, destination, best);
    }
}

/* Whether the static route may use what sheds, at a glance. */
static int may_use(const mpath_ports_t *ports, const shedding_t *from, int source, int destination)
{
    int slot_from, slot_to;

    return from->slot < 0 || (mpath_ports_static_slots(ports, source, destination, &slot_from, &slot_to) &&
                              (from->receives ? slot_to : slot_from) == from->slot);
}

/* Moves what the shedding resource needs of one pair. */
static mpath_status_t shed_pair(mpath_ports_t *ports, shedding_t *from, int source, int destination)
{
    uint64_t bytes = ports->demand[(size_t)source * (size_t)ports->num_ranks + (size_t)destination], amount;
    mpath_ports_route_t fixed;
    mpath_status_t status;
    choice_t best;

    if (bytes == 0 || source == destination || !may_use(ports, from, source, destination)) {
        return MPATH_OK;
    }
    mpath_ports_route(ports, source, destination, MPATH_PORTS_STATIC, &fixed);
    if (!mpath_ports_stamp(ports, &fixed, from->resource)) {
        return MPATH_OK;
    }
    bytes = mpath_moves_left(&ports->moves, source, destination);
    while (from->excess > 0 && bytes > 0) {
        best.room = 0;
        if (ports->ports[source].node == ports->ports[destination].node) {
            consider_local(ports, from, source, destination, &best);
        } else {
            consider_rails(ports, from, source, destination, &best);
        }
        amount = from->excess < best.room ? from->excess : best.room;
        amount = amount == 0 ? 0 : mpath_moves_fit(bytes, amount, best.room, ports->min_fragment_bytes);
        if (amount == 0) {
            break;
        }
        status = mpath_ports_move(ports, source, destination, &fixed, best.via, &best.route, amount);
        if (status != MPATH_OK) {
            return status;
        }
        from->excess -= amount < from->excess ? amount : from->excess;
        bytes -= amount;
    }
    return MPATH_OK;
}

/* Pairs of a rank with all others. */
static mpath_status_t shed_rank(mpath_ports_t *ports, shedding_t *from, int rank)
{
    mpath_status_t status = MPATH_OK;
    int other;

    for (other = 0; other < ports->num_ranks && from->excess > 0 && status == MPATH_OK; other++) {
        status = shed_pair(ports, from, from->receives ? other : rank, from->receives ? rank : other);
    }
    return status;
}

/* All pairs of the ranks of a node with others, received or sent; `slots`: only with others beside these. */
static mpath_status_t shed_node(mpath_ports_t *ports, shedding_t *from, int node, int receives, uint32_t slots)
{
    const mpath_ports_node_t *n = &ports->nodes[node];
    mpath_status_t status       = MPATH_OK;
    int other, i, own;

    for (other = 0; other < ports->num_ranks && from->excess > 0; other++) {
        if (ports->ports[other].node == node || (slots != 0 && !((slots >> ports->ports[other].slot) & 1))) {
            continue;
        }
        for (i = n->first; i < n->first + n->num_ranks && from->excess > 0; i++) {
            own    = ports->members[i];
            status = shed_pair(ports, from, receives ? other : own, receives ? own : other);
            if (status != MPATH_OK) {
                return status;
            }
        }
    }
    return MPATH_OK;
}

/* A NIC: pairs of the ranks beside it, then what else uses it. */
static mpath_status_t shed_lane_pairs(mpath_ports_t *ports, shedding_t *from, int node)
{
    const mpath_ports_node_t *n = &ports->nodes[node];
    mpath_status_t status       = MPATH_OK;
    int i;

    for (i = n->first; i < n->first + n->num_ranks && from->excess > 0 && status == MPATH_OK; i++) {
        if (ports->ports[ports->members[i]].slot == from->slot) {
            status = shed_rank(ports, from, ports->members[i]);
        }
    }
    if (status != MPATH_OK || from->excess == 0 || (ports->uniform && (ports->crossing || !from->receives))) {
        return status;
    }
    return shed_node(ports, from, node, from->receives, ports->uniform ? 1u << from->slot : 0);
}

/* A port, or a link: pairs of its rank, then those that the rank forwards. */
static mpath_status_t shed_port_pairs(mpath_ports_t *ports, shedding_t *from, int rank)
{
    mpath_status_t status = shed_rank(ports, from, rank);
    int node              = ports->ports[rank].node;

    if (status != MPATH_OK || from->excess == 0 || (ports->uniform && ports->crossing)) {
        return status;
    }
    if (ports->uniform) {
        return shed_node(ports, from, node, 1, ports->ports[rank].slots);
    }
    status = shed_node(ports, from, node, 1, 0);
    return status == MPATH_OK ? shed_node(ports, from, node, 0, 0) : status;
}

/* Sheds from an overloaded NIC in a slot of the rank's node, or from another resource of the rank. */
static mpath_status_t shed_overloaded(mpath_ports_t *ports, uint32_t resource, int slot, int rank, int receives)
{
    shedding_t from       = {.resource = resource, .slot = slot, .receives = receives};
    mpath_status_t status = MPATH_OK;

    for (; from.pass < PASSES && status == MPATH_OK; from.pass++) {
        if (ports->load[resource] <= ports->target[resource]) {
            break;
        }
        from.excess = ports->load[resource] - ports->target[resource];
        status      = slot >= 0 ? shed_lane_pairs(ports, &from, ports->ports[rank].node)
                                : shed_port_pairs(ports, &from, rank);
    }
    return status;
}

static inline mpath_status_t shed_resource(mpath_ports_t *ports, uint32_t resource, int slot, int rank, int receives)
{
    return ports->load[resource] <= ports->target[resource] ? MPATH_OK
                                                            : shed_overloaded(ports, resource, slot, rank, receives);
}

/* The NVLinks of a rank to or from the others of its node. */
static mpath_status_t shed_links(mpath_ports_t *ports, int rank, int receives)
{
    const mpath_port_t *port = &ports->ports[rank], *other;
    mpath_status_t status    = MPATH_OK;
    uint32_t gpus;

    for (gpus = receives ? port->links_from : port->links_to; gpus != 0 && status == MPATH_OK; gpus &= gpus - 1) {
        other  = &ports->ports[ports->on_gpu[port->node * ports->gpus_per_node + __builtin_ctz(gpus)]];
        status = shed_resource(ports,
                               receives ? mpath_ports_link(ports, other, port) : mpath_ports_link(ports, port, other),
                               -1, rank, receives);
    }
    return status;
}

/* The NICs that a rank drives, and the PCIe link that leads to them. */
static mpath_status_t shed_nics(mpath_ports_t *ports, int rank, int receives)
{
    const mpath_port_t *port = &ports->ports[rank];
    mpath_status_t status    = MPATH_OK;
    const mpath_ports_lane_t *lane;
    uint32_t slots;

    for (slots = port->slots; slots != 0 && status == MPATH_OK; slots &= slots - 1) {
        lane   = mpath_ports_lane(ports, port->node, __builtin_ctz(slots));
        status = shed_resource(ports, receives ? lane->rx : lane->tx, __builtin_ctz(slots), rank, receives);
    }
    if (status == MPATH_OK && port->slots != 0) {
        status = shed_resource(ports, receives ? port->down : port->up, -1, rank, receives);
    }
    return status;
}

/* Ports, or NVLinks. */
static mpath_status_t shed_ports(mpath_ports_t *ports, int rank, int receives)
{
    const mpath_port_t *port = &ports->ports[rank];
    uint32_t resource        = receives ? port->ingress : port->egress;

    if (ports->nodes[port->node].link == MPATH_GPU_LINK_MESH) {
        return shed_links(ports, rank, receives);
    }
    return resource == MPATH_PORTS_NONE ? MPATH_OK : shed_resource(ports, resource, -1, rank, receives);
}

static mpath_status_t shed_all(mpath_ports_t *ports, mpath_status_t (*shed)(mpath_ports_t *, int, int))
{
    mpath_status_t status = MPATH_OK;
    int rank, receives;

    for (receives = 0; receives < 2; receives++) {
        for (rank = 0; rank < ports->num_ranks && status == MPATH_OK; rank++) {
            status = shed(ports, rank, receives);
        }
    }
    return status;
}

static uint64_t above(uint64_t bytes, uint64_t limit)
{
    return bytes > limit ? bytes - limit : 0;
}

/* What the NICs beside a rank may carry. */
static uint64_t nics_target(const mpath_ports_t *ports, const mpath_port_t *port, int receives)
{
    const mpath_ports_lane_t *lane;
    uint64_t target = 0;
    uint32_t slots;

    for (slots = port->slots; slots != 0; slots &= slots - 1) {
        lane = mpath_ports_lane(ports, port->node, __builtin_ctz(slots));
        target += ports->target[receives ? lane->rx : lane->tx];
    }
    return target;
}

/*
 * Bytes that a port must pass on to host memory once it has taken over what is too much for the NICs of its rank: while
 * these shed, the port may exceed its target by them.
 */
static uint64_t staging_need(const mpath_ports_t *ports, int rank, int receives)
{
    const mpath_port_t *port = &ports->ports[rank];
    uint64_t local           = receives ? ports->local_in[rank] : ports->local_out[rank], need, spare;
    uint64_t linked          = receives ? ports->linked_in[rank] : ports->linked_out[rank];
    uint64_t remote          = receives ? ports->remote_in[rank] : ports->remote_out[rank];
    uint64_t by_peer         = ports->target[receives ? port->ingress : port->egress];
    uint64_t by_pcie         = ports->target[receives ? port->down : port->up];
    uint64_t by_nic          = nics_target(ports, port, receives);

    need  = above(local + linked + above(remote, by_nic), by_peer);
    need  = need < local ? need : local;
    spare = above(by_pcie, remote < by_nic ? remote : by_nic);
    return need < spare ? need : spare;
}

/* Raises the ports' targets by what they may pass on, or lowers them again; the need follows from other targets. */
static void lend_to_ports(mpath_ports_t *ports, int lend)
{
    const mpath_port_t *port;
    uint64_t need, *target;
    int rank, receives;

    for (rank = 0; rank < ports->num_ranks; rank++) {
        port = &ports->ports[rank];
        if (ports->nodes[port->node].link != MPATH_GPU_LINK_SWITCH || port->egress == MPATH_PORTS_NONE ||
            port->ingress == MPATH_PORTS_NONE) {
            continue;
        }
        for (receives = 0; receives < 2; receives++) {
            target = &ports->target[receives ? port->ingress : port->egress];
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
    mpath_status_t status = MPATH_OK;

    if (!ports->one_node) {
        lend_to_ports(ports, 1);
        status = shed_all(ports, shed_nics);
        lend_to_ports(ports, 0);
    }
    return status == MPATH_OK ? shed_all(ports, shed_ports) : status;
}
