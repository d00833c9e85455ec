/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the construction has left above the bound: flows move from the most loaded resources to the pair's cheapest
 * other route until both cost the same, at prices that grow with the load (those of plan/search/weights.c), and never so far that Z
 * grows. What that loads more passes its own excess on later. Each pass aims at the middle between Z and the bound, or less far
 * after passes that have brought little, and looks at nothing but what is above that.
 */
#include "plan/construct/construct.h"

#include <stdlib.h>
#include <string.h>

/*
 * A better bound than that of the cuts around ranks and nodes: the cut that a plan shows. The bottleneck is in its set;
 * so is what blocks every route around the set for the bytes that cross it. For any set, all bytes times the fewest
 * crossings of their routes, over the sum of its capacities, are at most Z: linear programming duality with a price of
 * 1 on each resource of the set. The cheapest route of a pair follows from what it costs to get out on each lane, and
 * in.
 */

#define NEVER (1u << 30)
#define BLOCKING 20 /* a resource blocks when its load is less than 1 / BLOCKING below the largest */
#define MOST_ROUTES 2000000

typedef struct prices {
    const mpath_ports_t *ports;
    uint32_t *of;       /* by resource */
    uint32_t *out, *in; /* rank * num_slots + slot: by the lane of the rank's node; NEVER: there is none */
    uint32_t *home_out; /* by rank: over its own NIC */
    uint32_t *home_in;
} prices_t;

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t price_of(const prices_t *p, const mpath_ports_route_t *route)
{
    uint32_t price = 0;
    int i;

    for (i = 0; i < route->num_resources; i++) {
        price += p->of[route->resources[i]];
    }
    return price;
}

/* Out of a rank by a lane of its node, or in; the cheapest driver counts. */
static uint32_t lane_price(const prices_t *p, int rank, int slot, int into)
{
    const mpath_ports_t *ports     = p->ports;
    const mpath_port_t *port       = &ports->ports[rank];
    const mpath_ports_node_t *node = &ports->nodes[port->node];
    const mpath_ports_lane_t *lane = mpath_ports_lane(ports, port->node, slot);
    uint32_t price = NEVER, uplink = into ? node->uplink_rx : node->uplink_tx, here;
    int i, driver;

    for (i = 0; i < lane->count; i++) {
        mpath_ports_route_t leg = {.num_resources = 0};

        driver = lane->count == 1 ? lane->driver : ports->drivers[lane->driver + i];
        driver = (port->slots >> slot) & 1 ? rank : driver;
        mpath_ports_add_leg(ports, &leg, into ? driver : rank, into ? rank : driver);
        here = price_of(p, &leg);
        here += ports->on_hosts ? 0 : p->of[into ? ports->ports[driver].down : ports->ports[driver].up];
        price = least(price, here);
    }
    if (lane->count == 0) {
        return NEVER;
    }
    price += p->of[into ? lane->rx : lane->tx];
    return price + (uplink == MPATH_PORTS_NONE ? 0 : p->of[uplink]);
}

static void price_lanes(prices_t *p)
{
    const mpath_ports_t *ports = p->ports;
    int rank, slot, home;

    for (rank = 0; rank < ports->num_ranks; rank++) {
        for (slot = 0; slot < ports->num_slots; slot++) {
            p->out[rank * ports->num_slots + slot] = lane_price(p, rank, slot, 0);
            p->in[rank * ports->num_slots + slot]  = lane_price(p, rank, slot, 1);
        }
        home              = ports->ports[rank].slot;
        p->home_out[rank] = home < 0 ? NEVER : p->out[rank * ports->num_slots + home];
        p->home_in[rank]  = home < 0 ? NEVER : p->in[rank * ports->num_slots + home];
    }
}

/* The cheapest of a mask of lanes. */
static uint32_t cheapest(const uint32_t *lanes, mpath_nic_set_t mask)
{
    uint32_t price = NEVER;

    for (; mask != 0; mask &= mask - 1) {
        price = least(price, lanes[__builtin_ctzll(mask)]);
    }
    return price;
}

/* Inside a node. */
static uint32_t local_price(const prices_t *p, int source, int destination)
{
    const mpath_ports_t *ports = p->ports;
    mpath_ports_route_t route;
    uint32_t price, relays;

    mpath_ports_route(ports, source, destination, MPATH_PORTS_STATIC, &route);
    price  = price_of(p, &route);
    relays = ports->ports[source].links_to & ports->ports[destination].links_from;
    for (; relays != 0; relays &= relays - 1) {
        mpath_ports_route(ports, source, destination, __builtin_ctz(relays), &route);
        price = least(price, price_of(p, &route));
    }
    mpath_ports_route(ports, source, destination, MPATH_PORTS_STAGED, &route);
    return least(price, price_of(p, &route));
}

/* A row's bytes to one other node on their cheapest routes. */
static mpath_u128_t node_value(const prices_t *p, int source, const mpath_ports_node_t *to, const uint64_t *demand)
{
    const mpath_ports_t *ports = p->ports;
    const uint32_t *out        = &p->out[source * ports->num_slots], *in;
    mpath_nic_set_t from = ports->nodes[ports->ports[source].node].lanes, matched = from & to->lanes, rest;
    uint32_t unmatched = ports->crossing ? cheapest(out, from & ~matched) : NEVER, any = cheapest(out, from), price;
    mpath_u128_t value = 0;
    int i, destination, slot, all = __builtin_popcountll(matched) == ports->num_slots;

    for (i = to->first; i < to->first + to->num_ranks; i++) {
        destination = ports->members[i];
        in          = &p->in[destination * ports->num_slots];
        price       = ports->crossing ? least(NEVER, p->home_out[source] + p->home_in[destination]) : NEVER;
        for (slot = 0; slot < ports->num_slots && all; slot++) {
            price = least(price, out[slot] + in[slot]);
        }
        for (rest = all ? 0 : matched; rest != 0; rest &= rest - 1) {
            slot  = __builtin_ctzll(rest);
            price = least(price, out[slot] + in[slot]);
        }
        if (ports->crossing && from != to->lanes) {
            price = least(price, unmatched + cheapest(in, to->lanes));
            price = least(price, any + cheapest(in, to->lanes & ~matched));
        }
        if (mpath_ports_is_linked(ports, source, destination)) {
            price = least(price, p->of[ports->ports[source].egress] + p->of[ports->ports[destination].ingress]);
        }
        value += (mpath_u128_t)demand[destination] * price;
    }
    return value;
}

static mpath_u128_t row_value(const prices_t *p, int source, const uint64_t *demand)
{
    const mpath_ports_t *ports = p->ports;
    const mpath_ports_node_t *node;
    mpath_u128_t value = 0;
    int n, i;

    for (n = 0; n < ports->num_nodes; n++) {
        node = &ports->nodes[n];
        if (n != ports->ports[source].node) {
            value += node_value(p, source, node, demand);
            continue;
        }
        for (i = node->first; i < node->first + node->num_ranks; i++) {
            if (ports->members[i] != source && demand[ports->members[i]] > 0) {
                value += (mpath_u128_t)demand[ports->members[i]] * local_price(p, source, ports->members[i]);
            }
        }
    }
    return value;
}

/* The bound that the present prices prove. */
static mpath_ratio_t bound_of(const prices_t *p)
{
    const mpath_ports_t *ports = p->ports;
    const uint64_t *demand     = ports->demand;
    mpath_u128_t num = 0, den = 0;
    mpath_ratio_t none = {0, 1};
    int r, source;

    price_lanes((prices_t *)p);
    for (source = 0; source < ports->num_ranks; source++, demand += ports->num_ranks) {
        num += row_value(p, source, demand); /* below 2^62 bytes in all, prices below 2^31 */
    }
    for (r = 0; r < ports->num_resources; r++) {
        den += (mpath_u128_t)ports->capacity[r] * p->of[r];
    }
    return den == 0 ? none : mpath_ratio_floor(num, den);
}

/* What may block a flow's routes, of which all that are found get a price. */
typedef struct closure {
    mpath_ports_t *ports;
    uint32_t *price; /* by resource: 1 in the set */
    uint32_t *queue;
    int head, tail;
    mpath_ratio_t least; /* load that blocks */
    uint64_t budget;     /* routes to look at */
} closure_t;

static int crosses(const uint32_t *price, const mpath_ports_route_t *route)
{
    int i;

    for (i = 0; i < route->num_resources; i++) {
        if (price[route->resources[i]] > 0) {
            return 1;
        }
    }
    return 0;
}

/* The most loaded resource of a route that crosses nothing in the set joins it. */
static mpath_status_t close_route(closure_t *c, const mpath_ports_route_t *route)
{
    const mpath_ports_t *ports = c->ports;
    mpath_ratio_t worst        = c->least, ratio;
    uint32_t joins             = MPATH_PORTS_NONE;
    int i;

    for (i = 0; i < route->num_resources; i++) {
        ratio.num = ports->load[route->resources[i]];
        ratio.den = ports->capacity[route->resources[i]];
        if (mpath_ratio_less(worst, ratio)) {
            worst = ratio;
            joins = route->resources[i];
        }
    }
    if (joins != MPATH_PORTS_NONE) {
        c->price[joins]     = 1;
        c->queue[c->tail++] = joins;
    }
    return MPATH_OK;
}

static mpath_status_t close_flow(void *arg, const mpath_ports_flow_t *flow)
{
    closure_t *c = arg;
    int vias[MPATH_PORTS_MOST_ROUTES], count = mpath_ports_list_routes(c->ports, flow->source, flow->destination, vias),
                                       i;
    mpath_ports_route_t route;

    if (c->budget < (uint64_t)count) {
        return MPATH_DECLINED;
    }
    c->budget -= (uint64_t)count;
    for (i = 0; i < count; i++) {
        mpath_ports_route(c->ports, flow->source, flow->destination, vias[i], &route);
        if (!crosses(c->price, &route)) {
            close_route(c, &route);
        }
    }
    return MPATH_OK;
}

/* Prices the bottleneck, and what keeps its bytes and those of the others in the set from going elsewhere. */
static mpath_status_t close_set(mpath_ports_t *ports, uint32_t *price, uint32_t *queue)
{
    mpath_ratio_t z       = mpath_ports_z(ports);
    closure_t c           = {.ports = ports, .price = price, .queue = queue, .least = z, .budget = MOST_ROUTES};
    mpath_status_t status = MPATH_OK;
    int r;

    c.least.num -= z.num / BLOCKING;
    memset(price, 0, (size_t)ports->num_resources * sizeof(*price));
    for (r = 0; r < ports->num_resources && c.tail == 0; r++) {
        if ((mpath_u128_t)ports->load[r] * z.den == (mpath_u128_t)z.num * ports->capacity[r]) {
            price[r]        = 1;
            queue[c.tail++] = (uint32_t)r;
        }
    }
    while (c.head < c.tail && status == MPATH_OK) {
        status = mpath_ports_visit(ports, queue[c.head++], close_flow, &c);
    }
    return status == MPATH_DECLINED ? MPATH_OK : status;
}

/*
 * plan/construct/repair.c: raises the bound by what prices per byte (by resource, below 2^26) prove, and by the cut that the
 * present routes show.
 */
static mpath_status_t ports_prove(mpath_ports_t *ports, const uint64_t *prices, mpath_ratio_t *bound)
{
    size_t lanes = (size_t)ports->num_ranks * (size_t)ports->num_slots, ranks = (size_t)ports->num_ranks;
    size_t resources = (size_t)ports->num_resources;
    prices_t p       = {.ports = ports};
    mpath_status_t status;
    size_t i;

    p.of = malloc((2 * resources + 2 * lanes + 2 * ranks) * sizeof(*p.of));
    if (p.of == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    p.out      = p.of + 2 * resources;
    p.in       = p.out + lanes;
    p.home_out = p.in + lanes;
    p.home_in  = p.home_out + ranks;
    for (i = 0; i < resources; i++) {
        p.of[i] = (uint32_t)prices[i];
    }
    *bound = mpath_ratio_max(*bound, bound_of(&p));
    status = close_set(ports, p.of, p.of + resources);
    if (status == MPATH_OK) {
        *bound = mpath_ratio_max(*bound, bound_of(&p));
    }
    free(p.of);
    return status;
}

#define MOST_PASSES 64
#define MOST_RELAYS 2     /* of a route */
#define PATIENCE 4        /* passes that bring little */
#define FLOWS_PER_PAIR 24 /* that are looked at, in all */
#define PRICE_BITS 24     /* of the most loaded resource, when it is the narrowest one */
#define ONE_BITS 20
#define STEEPNESS 8000000 /* alpha times the gap in parts per million */
#define MOST_STEEP 8192

typedef struct repair {
    mpath_ports_t *ports;
    uint32_t resource; /* that sheds */
    uint64_t goal;     /* bytes that it may keep */
    int more_relays;   /* that a flow's other route may have */
    uint64_t budget;   /* flows to look at */
    uint64_t alpha;
    uint64_t smallest; /* capacity */
    uint64_t *full;    /* by resource: bytes at which it is as loaded as the most loaded one is */
    uint64_t *price;
} repair_t;

static mpath_ratio_t level(const mpath_ports_t *ports, uint32_t resource)
{
    mpath_ratio_t ratio = {ports->load[resource], ports->capacity[resource]};

    return ratio;
}

static void set_price(repair_t *r, uint32_t resource)
{
    uint64_t load = r->ports->load[resource], full = r->full[resource], below = 0, value;

    if (load < full) {
        below = (uint64_t)(((mpath_u128_t)(full - load) << ONE_BITS) / full);
    }
    value              = mpath_exp2_negative(r->alpha * below) >> (32 - PRICE_BITS);
    r->price[resource] = 1 + (uint64_t)((mpath_u128_t)value * r->smallest / r->ports->capacity[resource]);
}

static void set_prices(repair_t *r, mpath_ratio_t z, uint32_t gap_ppm)
{
    const mpath_ports_t *ports = r->ports;
    int resource;

    r->alpha = STEEPNESS / (gap_ppm == 0 ? 1 : gap_ppm);
    r->alpha = r->alpha < 16 ? 16 : r->alpha > MOST_STEEP ? MOST_STEEP : r->alpha;
    for (resource = 0; resource < ports->num_resources; resource++) {
        r->full[resource] = mpath_ratio_times_up(z, ports->capacity[resource]);
        set_price(r, (uint32_t)resource);
    }
}

static void set_prices_on(repair_t *r, const mpath_ports_route_t *route)
{
    int i;

    for (i = 0; i < route->num_resources; i++) {
        set_price(r, route->resources[i]);
    }
}

static uint64_t cost_of(const repair_t *r, const mpath_ports_route_t *route)
{
    uint64_t cost = 0;
    int i;

    for (i = 0; i < route->num_resources; i++) {
        cost += r->price[route->resources[i]];
    }
    return cost;
}

/* The cost of what a route does not share with another, and 2^62 times its relative growth per byte and alpha. */
static uint64_t own_cost(const repair_t *r, const mpath_ports_route_t *route, const mpath_ports_route_t *other,
                         uint64_t *growth_p)
{
    mpath_u128_t growth = 0;
    uint64_t cost       = 0, price;
    int i;

    for (i = 0; i < route->num_resources; i++) {
        if (!mpath_ports_uses(other, route->resources[i])) {
            price = r->price[route->resources[i]];
            cost += price;
            growth += (mpath_u128_t)price * ((1ull << 62) / r->full[route->resources[i]]);
        }
    }
    *growth_p = cost == 0 ? 0 : (uint64_t)(growth / cost);
    return cost;
}

/* Bytes after which the two routes cost the same, by one step of Newton's method on the logarithms. */
static uint64_t until_equal(const repair_t *r, const mpath_ports_route_t *from, const mpath_ports_route_t *to)
{
    uint64_t growth_from, growth_to, cost_from = own_cost(r, from, to, &growth_from);
    uint64_t cost_to    = own_cost(r, to, from, &growth_to);
    mpath_u128_t growth = (mpath_u128_t)r->alpha * ((mpath_u128_t)growth_from + growth_to);
    int64_t distance;

    if (cost_to == 0) {
        return UINT64_MAX;
    }
    distance = cost_from <= cost_to ? 0 : mpath_log2(cost_from) - mpath_log2(cost_to);
    return distance <= 0 ? 0
           : growth == 0 ? UINT64_MAX
                         : (uint64_t)(((mpath_u128_t)distance << (62 - ONE_BITS)) / growth);
}

/* Bytes that the other route bears before it is as loaded as the most loaded resource. */
static uint64_t residual_of(const repair_t *r, const mpath_ports_route_t *from, const mpath_ports_route_t *to)
{
    uint64_t residual = UINT64_MAX, load, full;
    int i;

    for (i = 0; i < to->num_resources; i++) {
        load = r->ports->load[to->resources[i]];
        full = r->full[to->resources[i]];
        if (!mpath_ports_uses(from, to->resources[i])) {
            residual = load >= full ? 0 : full - load < residual ? full - load : residual;
        }
    }
    return residual;
}

/* Of a flow of `bytes`, how many go; `there` are on the route already, and whole fragments stay. */
static uint64_t amount_of(const mpath_ports_t *ports, uint64_t bytes, uint64_t most, uint64_t there)
{
    uint64_t smallest = ports->min_fragment_bytes;

    if (most >= bytes) {
        return bytes;
    }
    if (bytes <= smallest) {
        return 0;
    }
    most = bytes - most < smallest ? bytes - smallest : most;
    return there + most >= smallest ? most : 0;
}

static uint64_t bytes_by(const mpath_ports_t *ports, int source, int destination, int via)
{
    uint32_t move = ports->moves.head[mpath_moves_pair(&ports->moves, source, destination)];

    if (via == MPATH_PORTS_STATIC) {
        return mpath_moves_left(&ports->moves, source, destination);
    }
    while (move != 0 && ports->moves.list[move].via != via) {
        move = ports->moves.list[move].next;
    }
    return move == 0 ? 0 : ports->moves.list[move].bytes;
}

/* The pair's cheapest other route that has capacity left; 0: the flow stays. */
static int find_route(const repair_t *r, const mpath_ports_flow_t *flow, int *via_p, mpath_ports_route_t *best)
{
    int vias[MPATH_PORTS_MOST_ROUTES], count, i, found = 0;
    uint64_t least = cost_of(r, &flow->route), cost;
    mpath_ports_route_t route;

    count = mpath_ports_list_routes(r->ports, flow->source, flow->destination, vias);
    for (i = 0; i < count; i++) {
        if (vias[i] == flow->via) {
            continue;
        }
        mpath_ports_route(r->ports, flow->source, flow->destination, vias[i], &route);
        if (route.num_relays > flow->route.num_relays + r->more_relays) {
            continue;
        }
        cost = cost_of(r, &route);
        if (cost < least && residual_of(r, &flow->route, &route) > 0) {
            least  = cost;
            found  = 1;
            *via_p = vias[i];
            *best  = route;
        }
    }
    return found;
}

/* Moves what it may of one flow; MPATH_DECLINED: enough has moved. */
static mpath_status_t repair_flow(void *arg, const mpath_ports_flow_t *flow)
{
    repair_t *r          = arg;
    mpath_ports_t *ports = r->ports;
    uint64_t most, residual, amount;
    mpath_ports_route_t route;
    mpath_status_t status;
    int via;

    if (ports->load[r->resource] <= r->goal || r->budget == 0) {
        return MPATH_DECLINED;
    }
    r->budget--;
    if (!find_route(r, flow, &via, &route)) {
        return MPATH_OK;
    }
    residual = residual_of(r, &flow->route, &route);
    most     = until_equal(r, &flow->route, &route);
    amount   = most < residual ? most : residual;
    amount   = amount_of(ports, flow->bytes, amount, bytes_by(ports, flow->source, flow->destination, via));
    if (amount == 0 || amount > residual) {
        return MPATH_OK;
    }
    status = mpath_ports_shift(ports, flow, via, &route, amount);
    set_prices_on(r, &flow->route);
    set_prices_on(r, &route);
    return status;
}

/* One pass over what is above the goal. */
static mpath_status_t repair_all(repair_t *r, mpath_ratio_t goal)
{
    mpath_ports_t *ports = r->ports;
    mpath_status_t status;
    int resource, by_relays = ports->on_hosts && !ports->all_drive;

    for (resource = 0; resource < ports->num_resources; resource++) {
        r->resource = (uint32_t)resource;
        if (mpath_ratio_less(goal, level(ports, r->resource))) {
            r->goal = mpath_ratio_times_up(goal, ports->capacity[resource]);
            status  = MPATH_OK;
            for (r->more_relays = by_relays ? 1 : MOST_RELAYS; r->more_relays <= MOST_RELAYS && status == MPATH_OK;
                 r->more_relays++) {
                status = mpath_ports_visit(ports, r->resource, repair_flow, r);
            }
            if (status != MPATH_OK && status != MPATH_DECLINED) {
                return status;
            }
        }
    }
    return MPATH_OK;
}

static mpath_status_t repair(repair_t *r, mpath_ratio_t *bound, uint32_t gap_ppm)
{
    mpath_ports_t *ports = r->ports;
    mpath_ratio_t z      = mpath_ports_z(ports), before;
    int pass, idle = 0;
    mpath_status_t status;
    uint32_t gap;

    for (pass = 0; pass < MOST_PASSES && idle < PATIENCE && !mpath_ratio_within(z, *bound, gap_ppm); pass++) {
        before = z;
        gap    = mpath_ratio_excess_ppm(z, *bound);
        set_prices(r, z, gap >> idle);
        status = repair_all(r, mpath_ratio_raise(*bound, gap - (gap >> (1 + idle))));
        if (status != MPATH_OK) {
            return status;
        }
        z    = mpath_ports_z(ports);
        idle = mpath_ratio_less(z, before) && mpath_ratio_excess_ppm(before, z) >= gap_ppm / 2 ? 0 : idle + 1;
        if (idle > 0 && !mpath_ratio_within(z, *bound, gap_ppm)) {
            status = ports_prove(ports, r->price, bound);
            if (status != MPATH_OK) {
                return status;
            }
        }
    }
    return MPATH_OK;
}

mpath_status_t mpath_ports_repair(mpath_ports_t *ports, mpath_ratio_t *bound, uint32_t gap_ppm)
{
    repair_t r = {.ports = ports, .budget = FLOWS_PER_PAIR * (uint64_t)ports->num_pairs, .smallest = UINT64_MAX};
    mpath_status_t status;
    int resource;

    if (mpath_ratio_within(mpath_ports_z(ports), *bound, gap_ppm)) {
        return MPATH_OK;
    }
    r.full = malloc(2 * (size_t)ports->num_resources * sizeof(*r.full));
    if (r.full == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    r.price = r.full + ports->num_resources;
    for (resource = 0; resource < ports->num_resources; resource++) {
        r.smallest = ports->capacity[resource] < r.smallest ? ports->capacity[resource] : r.smallest;
    }
    status = repair(&r, bound, gap_ppm);
    free(r.full);
    return status;
}
