/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the construction has left above the bound: pieces move from the most loaded resources to the pair's cheapest
 * other route until both cost the same, at prices that grow with the load (those of weights.c), and never so far that Z
 * grows. What that loads more passes its own excess on later. Each pass aims half way from Z to the bound, or less far
 * after passes that have brought little, and looks at nothing but what is above that.
 */
#include "plan/ports.h"

#include <stdlib.h>

#define MOST_PASSES 64
#define PATIENCE 4         /* passes that bring little */
#define PIECES_PER_PAIR 24 /* that are looked at, in all */
#define PRICE_BITS 24      /* of the most loaded resource, when it is the narrowest one */
#define ONE_BITS 20
#define STEEPNESS 8000000 /* alpha times the gap in parts per million */
#define MOST_STEEP 8192

typedef struct repair {
    mpath_ports_t *ports;
    uint32_t resource; /* that sheds */
    uint64_t goal;     /* bytes that it may keep */
    uint64_t budget;   /* pieces to look at */
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
static uint64_t room_on(const repair_t *r, const mpath_ports_route_t *from, const mpath_ports_route_t *to)
{
    uint64_t room = UINT64_MAX, load, full;
    int i;

    for (i = 0; i < to->num_resources; i++) {
        load = r->ports->load[to->resources[i]];
        full = r->full[to->resources[i]];
        if (!mpath_ports_uses(from, to->resources[i])) {
            room = load >= full ? 0 : full - load < room ? full - load : room;
        }
    }
    return room;
}

/* Of a piece of `bytes`, how many go; `there` are on the way already, and whole fragments stay. */
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

/* The pair's cheapest other way that has room; 0: the piece stays. */
static int find_way(const repair_t *r, const mpath_ports_piece_t *piece, int *via_p, mpath_ports_route_t *best)
{
    int vias[MPATH_PORTS_MOST_WAYS], count, i, found = 0;
    uint64_t least = cost_of(r, &piece->route), cost;
    mpath_ports_route_t route;

    count = mpath_ports_list_ways(r->ports, piece->source, piece->destination, vias);
    for (i = 0; i < count; i++) {
        if (vias[i] == piece->via) {
            continue;
        }
        mpath_ports_route(r->ports, piece->source, piece->destination, vias[i], &route);
        cost = cost_of(r, &route);
        if (cost < least && room_on(r, &piece->route, &route) > 0) {
            least  = cost;
            found  = 1;
            *via_p = vias[i];
            *best  = route;
        }
    }
    return found;
}

/* Moves what it may of one piece; MPATH_DECLINED: enough has moved. */
static mpath_status_t repair_piece(void *arg, const mpath_ports_piece_t *piece)
{
    repair_t *r          = arg;
    mpath_ports_t *ports = r->ports;
    uint64_t most, room, amount;
    mpath_ports_route_t route;
    mpath_status_t status;
    int via;

    if (ports->load[r->resource] <= r->goal || r->budget == 0) {
        return MPATH_DECLINED;
    }
    r->budget--;
    if (!find_way(r, piece, &via, &route)) {
        return MPATH_OK;
    }
    room   = room_on(r, &piece->route, &route);
    most   = until_equal(r, &piece->route, &route);
    amount = most < room ? most : room;
    amount = amount_of(ports, piece->bytes, amount, bytes_by(ports, piece->source, piece->destination, via));
    if (amount == 0 || amount > room) {
        return MPATH_OK;
    }
    status = mpath_ports_shift(ports, piece, via, &route, amount);
    set_prices_on(r, &piece->route);
    set_prices_on(r, &route);
    return status;
}

/* One pass over what is above the goal. */
static mpath_status_t repair_all(repair_t *r, mpath_ratio_t goal)
{
    mpath_ports_t *ports = r->ports;
    mpath_status_t status;
    int resource;

    for (resource = 0; resource < ports->num_resources; resource++) {
        r->resource = (uint32_t)resource;
        if (mpath_ratio_less(goal, level(ports, r->resource))) {
            r->goal = mpath_ratio_times_up(goal, ports->capacity[resource]);
            status  = mpath_ports_visit(ports, r->resource, repair_piece, r);
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
    mpath_ratio_t z      = mpath_ports_z(ports, ports->load), before;
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
        z    = mpath_ports_z(ports, ports->load);
        idle = mpath_ratio_less(z, before) && mpath_ratio_excess_ppm(before, z) >= gap_ppm / 2 ? 0 : idle + 1;
        if (idle > 0 && !mpath_ratio_within(z, *bound, gap_ppm)) {
            status = mpath_ports_prove(ports, r->price, bound);
            if (status != MPATH_OK) {
                return status;
            }
        }
    }
    return MPATH_OK;
}

mpath_status_t mpath_ports_repair(mpath_ports_t *ports, mpath_ratio_t *bound, uint32_t gap_ppm)
{
    repair_t r = {.ports = ports, .budget = PIECES_PER_PAIR * (uint64_t)ports->num_pairs, .smallest = UINT64_MAX};
    mpath_status_t status;
    int resource;

    if (mpath_ratio_within(mpath_ports_z(ports, ports->load), *bound, gap_ppm)) {
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
