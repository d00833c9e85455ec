/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Moves the bytes that static routes put above the targets. A flow only goes where every resource of its new route
 * stays within its target, so that nothing else becomes overloaded. Routes with few relays come first.
 */
#include "plan/construct/construct.h"

#include "plan/construct/moves.h"

#include <string.h>

/* Single moves of bytes from the static routes, and the loads that follow. */

mpath_status_t mpath_ports_begin_moves(mpath_ports_t *ports)
{
    memcpy(ports->saved, ports->load, (size_t)ports->num_resources * sizeof(*ports->saved));
    ports->saved_relayed_bytes = ports->relayed_bytes;
    return mpath_moves_begin(&ports->moves, ports->demand, ports->num_ranks);
}

void mpath_ports_reset(mpath_ports_t *ports)
{
    memcpy(ports->load, ports->saved, (size_t)ports->num_resources * sizeof(*ports->saved));
    ports->relayed_bytes = ports->saved_relayed_bytes;
    ports->z.den         = 0;
    mpath_moves_reset(&ports->moves);
}

/* Adds bytes to a route, modulo 2^64 so that a negative amount takes them away. */
static void add_load(mpath_ports_t *ports, const mpath_ports_route_t *route, uint64_t bytes)
{
    int i;

    for (i = 0; i < route->num_resources; i++) {
        ports->load[route->resources[i]] += bytes;
    }
    ports->relayed_bytes += bytes * (uint64_t)route->num_relays;
    ports->z.den = 0;
}

/* Moves bytes of a pair from its static route, which is `from`, to another. */
static mpath_status_t ports_move(mpath_ports_t *ports, int source, int destination, const mpath_ports_route_t *from,
                                 int via, const mpath_ports_route_t *to, uint64_t bytes)
{
    add_load(ports, from, 0 - bytes);
    add_load(ports, to, bytes);
    return mpath_moves_record(&ports->moves, source, destination, via, bytes);
}

mpath_status_t mpath_ports_shift(mpath_ports_t *ports, const mpath_ports_flow_t *from, int via,
                                 const mpath_ports_route_t *to, uint64_t bytes)
{
    add_load(ports, &from->route, 0 - bytes);
    add_load(ports, to, bytes);
    if (from->via != MPATH_PORTS_STATIC) {
        mpath_moves_take(&ports->moves, from->source, from->destination, from->via, bytes);
    }
    if (via == MPATH_PORTS_STATIC) {
        return MPATH_OK; /* what has no move is there */
    }
    return mpath_moves_record(&ports->moves, from->source, from->destination, via, bytes);
}

mpath_status_t mpath_ports_move_pair(mpath_ports_t *ports, int source, int destination, int via, uint64_t bytes)
{
    mpath_ports_route_t from, to;

    mpath_ports_route(ports, source, destination, MPATH_PORTS_STATIC, &from);
    mpath_ports_route(ports, source, destination, via, &to);
    return ports_move(ports, source, destination, &from, via, &to, bytes);
}

/* Stamps the static route, but for a resource that sheds: that has no residual capacity. Nonzero when the route uses it. */
static int ports_stamp(mpath_ports_t *ports, const mpath_ports_route_t *route, uint32_t resource)
{
    int i, found = 0;

    ports->serial++;
    for (i = 0; i < route->num_resources; i++) {
        found |= route->resources[i] == resource;
        ports->stamp[route->resources[i]] = route->resources[i] == resource ? 0 : ports->serial;
    }
    return found;
}

/* Bytes that the copies inside the nodes bear of what leaves the static route, which is stamped. */
static uint64_t residual_of_legs(const mpath_ports_t *ports, const mpath_ports_route_t *route)
{
    uint64_t residual = UINT64_MAX, here;
    int i;

    for (i = 0; i < route->num_resources; i++) {
        if (i < route->rail || i >= route->rail_end) {
            here     = mpath_ports_residual(ports, route->resources[i]);
            residual = here < residual ? here : residual;
        }
    }
    return residual;
}

/*
 * Moves up to `bytes` of a pair, in whole fragments, from its static route to one between the nodes by a slot; the NICs
 * may exceed their targets, the copies inside the nodes not. *moved_p says how many bytes.
 */
static mpath_status_t ports_move_over(mpath_ports_t *ports, int source, int destination, int via, uint64_t bytes,
                                      uint64_t *moved_p)
{
    uint64_t all = mpath_moves_left(&ports->moves, source, destination), residual;
    mpath_ports_route_t from, to;

    *moved_p = 0;
    if (all == 0) {
        return MPATH_OK;
    }
    mpath_ports_route(ports, source, destination, MPATH_PORTS_STATIC, &from);
    mpath_ports_route_over(ports, source, destination, via, via, &to);
    ports_stamp(ports, &from, MPATH_PORTS_NONE);
    residual = residual_of_legs(ports, &to);
    bytes    = bytes < residual ? bytes : residual;
    bytes    = bytes == 0 ? 0 : mpath_moves_fit(all, bytes, residual, ports->min_fragment_bytes);
    *moved_p = bytes;
    return bytes == 0 ? MPATH_OK : ports_move(ports, source, destination, &from, via, &to, bytes);
}

/* The routes of a pair, and the flows that use a resource. */

int mpath_ports_list_routes(const mpath_ports_t *ports, int source, int destination, int *vias)
{
    const mpath_port_t *s = &ports->ports[source], *d = &ports->ports[destination];
    mpath_nic_set_t matched, from, to;
    int count = 0;

    vias[count++] = MPATH_PORTS_STATIC;
    if (s->node == d->node) {
        for (from = s->links_to & d->links_from; from != 0; from &= from - 1) {
            vias[count++] = __builtin_ctzll(from);
        }
        if (mpath_ports_can_peer(ports, source, destination)) {
            vias[count++] = MPATH_PORTS_STAGED;
        }
        return count;
    }
    matched = mpath_ports_matched(ports, source, destination);
    for (from = matched; from != 0; from &= from - 1) {
        vias[count++] = __builtin_ctzll(from);
    }
    if (!ports->crossing || ports->nodes[s->node].lanes == ports->nodes[d->node].lanes) {
        return count;
    }
    for (from = ports->nodes[s->node].lanes; from != 0; from &= from - 1) {
        to = ports->nodes[d->node].lanes & ((matched >> __builtin_ctzll(from)) & 1 ? ~matched : ~UINT64_C(0));
        for (; to != 0; to &= to - 1) {
            vias[count++] = MPATH_PORTS_CROSS + __builtin_ctzll(from) * MPATH_PORTS_MAX_SLOTS + __builtin_ctzll(to);
        }
    }
    return count;
}

typedef struct visitor {
    uint32_t resource;
    mpath_ports_visit_t visit;
    void *arg;
} visitor_t;

static mpath_status_t visit_flow(mpath_ports_t *ports, const visitor_t *v, int source, int destination, int via,
                                 uint64_t bytes)
{
    mpath_ports_flow_t flow = {.source = source, .destination = destination, .via = via, .bytes = bytes};

    mpath_ports_route(ports, source, destination, via, &flow.route);
    return mpath_ports_uses(&flow.route, v->resource) ? v->visit(v->arg, &flow) : MPATH_OK;
}

static mpath_status_t visit_pair(mpath_ports_t *ports, const visitor_t *v, int source, int destination)
{
    size_t pair           = mpath_moves_pair(&ports->moves, source, destination);
    mpath_status_t status = MPATH_OK;
    uint64_t bytes        = ports->demand[pair];
    uint32_t move, next;

    if (bytes == 0 || source == destination) {
        return MPATH_OK;
    }
    for (move = ports->moves.head[pair]; move != 0; move = ports->moves.list[move].next) {
        bytes -= ports->moves.list[move].bytes;
    }
    move = ports->moves.head[pair];
    if (bytes > 0) {
        status = visit_flow(ports, v, source, destination, MPATH_PORTS_STATIC, bytes);
    }
    for (; move != 0 && status == MPATH_OK; move = next) { /* moves that are added meanwhile stand before */
        next  = ports->moves.list[move].next;
        bytes = ports->moves.list[move].bytes;
        if (bytes > 0) {
            status = visit_flow(ports, v, source, destination, ports->moves.list[move].via, bytes);
        }
    }
    return status;
}

/* All pairs that a node's ranks send or receive. */
static mpath_status_t visit_node(mpath_ports_t *ports, const visitor_t *v, int node, int receives)
{
    const mpath_ports_node_t *n = &ports->nodes[node];
    mpath_status_t status       = MPATH_OK;
    int i, own, other;

    for (i = n->first; i < n->first + n->num_ranks; i++) {
        own = ports->members[i];
        for (other = 0; other < ports->num_ranks && status == MPATH_OK; other++) {
            if (!receives || ports->ports[other].node != node) { /* pairs inside have been sent */
                status = visit_pair(ports, v, receives ? other : own, receives ? own : other);
            }
        }
    }
    return status;
}

mpath_status_t mpath_ports_visit(mpath_ports_t *ports, uint32_t resource, mpath_ports_visit_t visit, void *arg)
{
    const mpath_resource_t r = mpath_topo_resource(ports->topo, (int)resource);
    visitor_t v              = {.resource = resource, .visit = visit, .arg = arg};
    int is_sender            = r.kind == MPATH_RESOURCE_NIC_TX || r.kind == MPATH_RESOURCE_UPLINK_TX;
    int is_receiver          = r.kind == MPATH_RESOURCE_NIC_RX || r.kind == MPATH_RESOURCE_UPLINK_RX;
    mpath_status_t status    = MPATH_OK;

    /* ports and links inside a node carry what it sends and what it receives */
    if (!is_receiver) {
        status = visit_node(ports, &v, r.node, 0);
    }
    return status == MPATH_OK && !is_sender ? visit_node(ports, &v, r.node, 1) : status;
}

/* Balances the NICs of a node of GPUs: which bytes could arrive on, or leave by, which of its NICs, and their moves. */

static void set_loads(const mpath_ports_t *ports, mpath_balance_t *balance, int node, int receives)
{
    const mpath_ports_lane_t *lane;
    uint32_t nic;
    int slot;

    for (slot = 0; slot < ports->num_slots; slot++) {
        lane = mpath_ports_lane(ports, node, slot);
        nic  = receives ? lane->rx : lane->tx;
        mpath_balance_set_load(balance, slot, ports->load[nic], ports->target[nic]);
    }
}

/* Bytes on static routes between the slots. */
static void count_arcs(const mpath_ports_t *ports, mpath_balance_t *balance, const mpath_ports_node_t *node,
                       int receives)
{
    size_t ranks = (size_t)ports->num_ranks, step = receives ? 1 : ranks, pair;
    const int32_t *first = ports->members + node->first, *end = first + node->num_ranks, *own;
    int other, from, to;

    for (other = 0; other < ports->num_ranks; other++) {
        to = ports->ports[other].slot;
        if (&ports->nodes[ports->ports[other].node] == node) {
            continue;
        }
        for (own = first; own < end; own++) {
            from = ports->ports[*own].slot;
            pair = (size_t)other * (receives ? ranks : 1) + (size_t)*own * step;
            if (from != to && !mpath_ports_is_linked(ports, *own, other)) {
                balance->left[from][to] += mpath_moves_left_of(&ports->moves, pair);
            }
        }
    }
}

/* Moves the bytes of one arc, pair by pair: those with ranks that have their NIC in the slot `via`. */
static mpath_status_t move_arc(mpath_ports_t *ports, const mpath_ports_node_t *node, int receives, int own, int via,
                               uint64_t *left)
{
    mpath_status_t status = MPATH_OK;
    const mpath_ports_lane_t *lane;
    uint64_t moved;
    int n, i, other;

    for (n = 0; n < ports->num_nodes; n++) {
        lane = mpath_ports_lane(ports, n, via);
        for (i = 0; i<lane->count && & ports->nodes[n] != node && * left> 0 && status == MPATH_OK; i++) {
            other = lane->count == 1 ? lane->driver : ports->drivers[lane->driver + i];
            if (ports->ports[other].slot == via && !mpath_ports_is_linked(ports, own, other)) {
                status = ports_move_over(ports, receives ? other : own, receives ? own : other, via, *left, &moved);
                *left -= moved < *left ? moved : *left;
            }
        }
    }
    return status;
}

mpath_status_t mpath_ports_balance(mpath_ports_t *ports, int node, int receives)
{
    const mpath_ports_node_t *n = &ports->nodes[node];
    mpath_status_t status       = MPATH_OK;
    mpath_balance_t balance;
    int slot, via, i, own;

    if (n->num_ranks == 0) {
        return MPATH_OK;
    }
    balance.num_nics = ports->num_slots;
    set_loads(ports, &balance, node, receives);
    if (!mpath_balance_is_tight(&balance)) {
        return MPATH_OK;
    }
    mpath_balance_init(&balance, ports->num_slots);
    count_arcs(ports, &balance, n, receives);
    mpath_balance_solve(&balance);
    for (slot = 0; slot < ports->num_slots; slot++) {
        for (via = 0; via < ports->num_slots; via++) {
            if (balance.flow[slot][via] == 0) {
                continue;
            }
            for (i = 0; i < n->num_ranks && balance.flow[slot][via] > 0 && status == MPATH_OK; i++) {
                own = ports->members[n->first + i];
                if (ports->ports[own].slot == slot) {
                    status = move_arc(ports, n, receives, own, via, &balance.flow[slot][via]);
                }
            }
        }
    }
    return status;
}

#define PASSES 2
#define MOST_RESIDUAL (UINT64_MAX / MPATH_PORTS_MAX_SLOTS) /* of a lane: all together have no more than 64 bits */

/* A resource that sheds bytes. */
typedef struct shedding {
    uint32_t resource;
    int slot;       /* of the NIC that it is; -1: it is none */
    int only_local; /* no static route between nodes uses it */
    int receives;
    int pass;
    uint64_t excess; /* bytes to go */
    uint64_t load;   /* of which they go, where all pairs lose as large a part; 0: the first ones lose all */
    uint64_t due;    /* bytes of the pairs so far that have not gone yet */
} shedding_t;

/* The best route so far. */
typedef struct choice {
    uint64_t residual; /* of it; or the most that is too little */
    int found;
    int via;
    mpath_ports_route_t route;
} choice_t;

/* Takes the route when it has more residual capacity. */
static void take(const mpath_ports_t *ports, int via, const mpath_ports_route_t *route, choice_t *best)
{
    uint64_t residual = UINT64_MAX, here;
    int i;

    for (i = 0; i < route->num_resources; i++) {
        here = mpath_ports_residual(ports, route->resources[i]);
        if (here <= best->residual) {
            return;
        }
        residual = here < residual ? here : residual;
    }
    best->residual = residual;
    best->found    = 1;
    best->via      = via;
    best->route    = *route;
}

static void consider(const mpath_ports_t *ports, int source, int destination, int via, choice_t *best)
{
    mpath_ports_route_t route;

    mpath_ports_route(ports, source, destination, via, &route);
    take(ports, via, &route, best);
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
        consider(ports, source, destination, __builtin_ctz(relays), best);
    }
    if (mpath_ports_can_peer(ports, source, destination)) {
        consider(ports, source, destination, MPATH_PORTS_STAGED, best);
    }
}

/* Lanes of two slots of which one has no match, for pairs whose static route is no such one anyhow. */
static void consider_crossing(const mpath_ports_t *ports, const shedding_t *from, int source, int destination,
                              choice_t *best)
{
    const mpath_port_t *s = &ports->ports[source], *d = &ports->ports[destination];
    mpath_nic_set_t matched  = mpath_ports_matched(ports, source, destination), i, j;
    mpath_nic_set_t all_from = ports->nodes[s->node].lanes, all_to = ports->nodes[d->node].lanes;

    for (i = from->pass == 0 && s->slots != 0 ? s->slots : all_from; i != 0; i &= i - 1) {
        if (mpath_ports_residual(ports, mpath_ports_lane(ports, s->node, __builtin_ctzll(i))->tx) <= best->residual) {
            continue;
        }
        j = (matched >> __builtin_ctzll(i)) & 1 ? all_to & ~matched : all_to;
        for (j &= from->pass == 0 && d->slots != 0 ? d->slots : all_to; j != 0; j &= j - 1) {
            consider(ports, source, destination,
                     MPATH_PORTS_CROSS + __builtin_ctzll(i) * MPATH_PORTS_MAX_SLOTS + __builtin_ctzll(j), best);
        }
    }
}

/* Between nodes, over lanes that have capacity left; at first with one relay at most. */
static void consider_rails(const mpath_ports_t *ports, const shedding_t *from, int source, int destination,
                           choice_t *best)
{
    const mpath_port_t *s = &ports->ports[source], *d = &ports->ports[destination];
    mpath_nic_set_t slots = mpath_ports_matched(ports, source, destination), rest = slots;
    mpath_ports_route_t route;
    int slot;

    rest &= from->pass == 0 ? s->slots | d->slots : slots;
    for (; rest != 0; rest &= rest - 1) {
        slot = __builtin_ctzll(rest);
        if (mpath_ports_residual(ports, mpath_ports_lane(ports, s->node, slot)->tx) > best->residual &&
            mpath_ports_residual(ports, mpath_ports_lane(ports, d->node, slot)->rx) > best->residual) {
            mpath_ports_route_over(ports, source, destination, slot, slot, &route);
            take(ports, slot, &route, best);
        }
    }
    if (ports->crossing && ports->nodes[s->node].lanes != ports->nodes[d->node].lanes) {
        consider_crossing(ports, from, source, destination, best);
    }
}

/* Whether the static route may use what sheds, at a glance. */
static int may_use(const mpath_ports_t *ports, const shedding_t *from, int source, int destination)
{
    int is_local = ports->ports[source].node == ports->ports[destination].node, slot_from, slot_to;

    if (from->slot < 0) {
        return is_local || !from->only_local;
    }
    return !is_local && mpath_ports_static_slots(ports, source, destination, &slot_from, &slot_to) &&
           (from->receives ? slot_to : slot_from) == from->slot;
}

/* Lanes between two nodes that have capacity left, but the one that sheds, and how much. */
static mpath_nic_set_t open_lanes(const mpath_ports_t *ports, const shedding_t *from, int source, int destination,
                                  uint64_t *residual, uint64_t *all_p)
{
    int s = ports->ports[source].node, d = ports->ports[destination].node, slot;
    mpath_nic_set_t open = 0, rest = mpath_ports_matched(ports, source, destination) & ~(UINT64_C(1) << from->slot);
    uint64_t tx, rx;

    *all_p = 0;
    for (; rest != 0; rest &= rest - 1) {
        slot           = __builtin_ctzll(rest);
        tx             = mpath_ports_residual(ports, mpath_ports_lane(ports, s, slot)->tx);
        rx             = mpath_ports_residual(ports, mpath_ports_lane(ports, d, slot)->rx);
        residual[slot] = tx < rx ? tx : rx;
        residual[slot] = residual[slot] < MOST_RESIDUAL ? residual[slot] : MOST_RESIDUAL;
        *all_p += residual[slot];
        open |= residual[slot] > 0 ? UINT64_C(1) << slot : 0;
    }
    return open;
}

static uint64_t part_of(uint64_t bytes, uint64_t part, uint64_t whole)
{
    return (uint64_t)((mpath_u128_t)bytes * part / whole);
}

/*
 * Moves the pair's part of the excess, to all lanes by their residual capacities. What is no whole fragment is added to what the
 * next lane, or the next pair, is to take.
 */
static mpath_status_t share_pair(mpath_ports_t *ports, shedding_t *from, int source, int destination,
                                 const mpath_ports_route_t *fixed)
{
    uint64_t bytes = mpath_moves_left(&ports->moves, source, destination), residual[MPATH_PORTS_MAX_SLOTS], all, amount;
    mpath_nic_set_t open  = open_lanes(ports, from, source, destination, residual, &all);
    mpath_status_t status = MPATH_OK;
    mpath_ports_route_t route;
    int slot;

    from->due += part_of(bytes, from->excess, from->load);
    for (; open != 0 && bytes > 0 && status == MPATH_OK; open &= open - 1) {
        slot   = __builtin_ctzll(open);
        amount = part_of(from->due, residual[slot], all);
        all -= residual[slot];
        if (amount < mpath_moves_least(bytes, ports->min_fragment_bytes) / 2) {
            continue;
        }
        amount = amount < residual[slot] ? amount : residual[slot];
        amount = mpath_moves_fit(bytes, amount, residual[slot], ports->min_fragment_bytes);
        if (amount > 0) {
            mpath_ports_route(ports, source, destination, slot, &route);
            status = ports_move(ports, source, destination, fixed, slot, &route, amount);
            from->due -= amount < from->due ? amount : from->due;
            bytes -= amount;
        }
    }
    return status;
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
    if (!ports_stamp(ports, &fixed, from->resource)) {
        return MPATH_OK;
    }
    if (from->load > 0) {
        return share_pair(ports, from, source, destination, &fixed);
    }
    bytes                    = mpath_moves_left(&ports->moves, source, destination);
    best.via                 = MPATH_PORTS_STATIC; /* compilers do not see that it is only used when found */
    best.route.num_resources = best.route.num_relays = 0;
    while (from->excess > 0 && bytes > 0) {
        best.residual = mpath_moves_least(bytes, ports->min_fragment_bytes) - 1;
        best.found    = 0;
        if (ports->ports[source].node == ports->ports[destination].node) {
            consider_local(ports, from, source, destination, &best);
        } else {
            consider_rails(ports, from, source, destination, &best);
        }
        amount = from->excess < best.residual ? from->excess : best.residual;
        amount = best.found ? mpath_moves_fit(bytes, amount, best.residual, ports->min_fragment_bytes) : 0;
        if (amount == 0) {
            break;
        }
        status = ports_move(ports, source, destination, &fixed, best.via, &best.route, amount);
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
static mpath_status_t shed_node(mpath_ports_t *ports, shedding_t *from, int node, int receives, mpath_nic_set_t slots)
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
    return shed_node(ports, from, node, from->receives, ports->uniform ? UINT64_C(1) << from->slot : 0);
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
    const mpath_port_t *port = &ports->ports[rank];
    shedding_t from          = {.resource = resource, .slot = slot, .receives = receives};
    mpath_status_t status    = MPATH_OK;

    from.only_local = ports->crossing && ports->uniform && !ports->has_domains && resource != port->up &&
                      resource != port->down;
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

/* Relieves the resources of some steps. */
static mpath_status_t shed_steps(mpath_ports_t *ports, int first, int end)
{
    const uint64_t *load = ports->load, *target = ports->target;
    const mpath_ports_step_t *step = ports->steps + first, *last = ports->steps + end;
    mpath_status_t status;

    for (; step < last; step++) {
        if (load[step->resource] > target[step->resource]) {
            status = shed_overloaded(ports, step->resource, step->slot, step->rank, step->receives);
            if (status != MPATH_OK) {
                return status;
            }
        }
    }
    return MPATH_OK;
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
    mpath_nic_set_t slots;

    for (slots = port->slots; slots != 0; slots &= slots - 1) {
        lane = mpath_ports_lane(ports, port->node, __builtin_ctzll(slots));
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
    uint64_t by_pcie         = ports->target[receives ? port->down : port->up], by_nic;

    if (local == 0 || local + linked + remote <= by_peer) {
        return 0; /* mostly */
    }
    by_nic = nics_target(ports, port, receives);
    need   = above(local + linked + above(remote, by_nic), by_peer);
    need   = need < local ? need : local;
    spare  = above(by_pcie, remote < by_nic ? remote : by_nic);
    return need < spare ? need : spare;
}

/* Raises the ports' targets by what they may pass on; returns whether any. The need follows from other targets. */
static int lend_to_ports(mpath_ports_t *ports)
{
    const mpath_port_t *port;
    int rank, receives, any = 0;
    uint64_t need;

    for (rank = 0; rank < ports->num_ranks && ports->has_switch; rank++) {
        port = &ports->ports[rank];
        if (ports->nodes[port->node].link != MPATH_GPU_LINK_SWITCH || port->egress == MPATH_PORTS_NONE ||
            port->ingress == MPATH_PORTS_NONE) {
            continue;
        }
        for (receives = 0; receives < 2; receives++) {
            need                             = staging_need(ports, rank, receives);
            ports->lent[2 * rank + receives] = need;
            ports->target[receives ? port->ingress : port->egress] += need;
            any |= need > 0;
        }
    }
    return any;
}

/* Lowers them again. */
static void take_from_ports(mpath_ports_t *ports)
{
    int i;

    for (i = 0; i < 2 * ports->num_ranks; i++) {
        if (ports->lent[i] > 0) {
            ports->target[i & 1 ? ports->ports[i / 2].ingress : ports->ports[i / 2].egress] -= ports->lent[i];
        }
    }
}

mpath_status_t mpath_ports_shed(mpath_ports_t *ports)
{
    mpath_status_t status = MPATH_OK;
    int has_lent;

    if (ports->num_nic_steps > 0) {
        has_lent = lend_to_ports(ports);
        status   = shed_steps(ports, 0, ports->num_nic_steps);
        if (has_lent) {
            take_from_ports(ports);
        }
    }
    return status == MPATH_OK ? shed_steps(ports, ports->num_nic_steps, ports->num_steps) : status;
}

mpath_status_t mpath_ports_share(mpath_ports_t *ports)
{
    const mpath_ports_step_t *step = ports->steps, *end = ports->steps + ports->num_nic_steps;
    mpath_status_t status = MPATH_OK;
    uint64_t load, target;

    for (; step < end && status == MPATH_OK; step++) {
        load   = ports->load[step->resource];
        target = ports->target[step->resource];
        if (load > target && load - target >= load / 2) {
            shedding_t from = {.resource = step->resource,
                               .slot     = step->slot,
                               .receives = step->receives,
                               .load     = load,
                               .excess   = load - target};

            status = shed_lane_pairs(ports, &from, ports->ports[step->rank].node);
        }
    }
    return status;
}
