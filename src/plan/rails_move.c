/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Moves the bytes that static routes put above the targets. Only overloaded lanes are looked at, and bytes only go
 * where both ends stay within the targets, so that no lane becomes overloaded. Moves that cost few relays come first.
 */
#include "plan/rails.h"

#include <string.h>

#define PASSES 3

/* A lane that sheds bytes, and which moves are allowed. */
typedef struct shedding {
    int receives;
    int node, rail;
    int pass;
    uint64_t excess; /* bytes to go */
} shedding_t;

mpath_status_t mpath_rails_begin_moves(mpath_rails_t *rails)
{
    size_t lanes = (size_t)rails->num_lanes, nodes = (size_t)rails->num_nodes;

    memcpy(rails->saved, rails->tx, (2 * lanes + nodes) * sizeof(*rails->saved)); /* tx, rx and relay stand together */
    rails->saved_relayed_bytes = rails->relayed_bytes;
    return mpath_moves_begin(&rails->moves, rails->demand, rails->num_ranks);
}

void mpath_rails_reset(mpath_rails_t *rails)
{
    size_t lanes = (size_t)rails->num_lanes, nodes = (size_t)rails->num_nodes;

    memcpy(rails->tx, rails->saved, (2 * lanes + nodes) * sizeof(*rails->saved));
    rails->relayed_bytes = rails->saved_relayed_bytes;
    mpath_moves_reset(&rails->moves);
}

/*
 * Adds bytes to a route, modulo 2^64 so that a negative amount takes them away: to its two lanes, and to the relay at
 * each end whose NIC is not the rank's own. Only affine ranks relay.
 */
static void load_route(mpath_rails_t *rails, int source, int destination, mpath_route_t route, uint64_t bytes)
{
    rails->tx[mpath_rails_lane(rails, source, route.tx)] += bytes;
    rails->rx[mpath_rails_lane(rails, destination, route.rx)] += bytes;
    if (rails->affine && route.tx != rails->home[source]) {
        rails->relay[rails->node[source]] += bytes;
        rails->relayed_bytes += bytes;
    }
    if (rails->affine && route.rx != rails->home[destination]) {
        rails->relay[rails->node[destination]] += bytes;
        rails->relayed_bytes += bytes;
    }
}

mpath_status_t mpath_rails_move_pair(mpath_rails_t *rails, int source, int destination, int rail, uint64_t bytes)
{
    mpath_route_t to = {rail, rail};

    load_route(rails, source, destination, mpath_rails_static(rails, source, destination), 0 - bytes);
    load_route(rails, source, destination, to, bytes);
    return mpath_moves_record(&rails->moves, source, destination, rail, bytes);
}

void mpath_rails_undo(mpath_rails_t *rails, int source, int destination, uint32_t move, uint64_t bytes)
{
    mpath_move_t *record = &rails->moves.list[move];
    mpath_route_t from   = {record->via, record->via};

    load_route(rails, source, destination, from, 0 - bytes);
    load_route(rails, source, destination, mpath_rails_static(rails, source, destination), bytes);
    record->bytes -= bytes;
}

static uint64_t room(const mpath_rails_t *rails, const uint64_t *loads, int lane)
{
    return loads[lane] < rails->target[lane] ? rails->target[lane] - loads[lane] : 0;
}

/*
 * Rails that the pass allows the pair, as a mask. Pass 0 has the moves to the rail of the pair's other end, which cost
 * no relay more than a static route over rails and one more than a crossing one; pass 1 those over a third rail by
 * pairs that relay anyhow; pass 2 all.
 */
static uint32_t allowed_rails(const mpath_rails_t *rails, const shedding_t *from, int source, int destination)
{
    int home = rails->home[source], there = rails->home[destination], other;
    uint32_t all = mpath_rails_common(rails, source, destination) & ~(1u << from->rail);

    if (from->pass == PASSES - 1) {
        return all;
    }
    if (!rails->affine || home == there) {
        return 0;
    }
    if (from->pass == 0) {
        other = rails->crossing && from->receives ? home : there;
        return other < 0 ? 0 : all & (1u << other);
    }
    return all;
}

/* The rail of the mask with the most room for the pair; a lane that its static route uses already needs none. -1: no
 * room. */
static int roomiest(const mpath_rails_t *rails, int source, int destination, uint32_t mask, mpath_route_t route,
                    uint64_t *room_p)
{
    int tx_lane = mpath_rails_lane(rails, source, 0), rx_lane = mpath_rails_lane(rails, destination, 0), rail,
        best      = -1;
    uint64_t most = 0, here, there;

    for (; mask != 0; mask &= mask - 1) {
        rail  = __builtin_ctz(mask);
        here  = rail == route.tx ? UINT64_MAX : room(rails, rails->tx, tx_lane + rail);
        there = rail == route.rx ? UINT64_MAX : room(rails, rails->rx, rx_lane + rail);
        here  = here < there ? here : there;
        if (here > most) {
            most = here;
            best = rail;
        }
    }
    *room_p = most;
    return best;
}

/*
 * Moves what the shedding lane needs of one pair, to the allowed rails with the most room. The demand is looked at
 * last: it is far away in memory.
 */
static mpath_status_t shed_pair(mpath_rails_t *rails, shedding_t *from, int source, int destination)
{
    uint32_t mask  = allowed_rails(rails, from, source, destination);
    uint64_t bytes = 0, most, amount;
    mpath_status_t status;
    mpath_route_t route;
    int best;

    if (mask == 0) {
        return MPATH_OK;
    }
    route = mpath_rails_static(rails, source, destination);
    if ((from->receives ? route.rx : route.tx) != from->rail) {
        return MPATH_OK;
    }
    while (from->excess > 0) {
        best = roomiest(rails, source, destination, mask, route, &most);
        if (best < 0) {
            break;
        }
        bytes  = bytes == 0 ? mpath_moves_left(&rails->moves, source, destination) : bytes;
        amount = from->excess < most ? from->excess : most;
        amount = mpath_moves_fit(bytes, amount, most, rails->min_fragment_bytes);
        if (amount == 0) {
            break;
        }
        status = mpath_rails_move_pair(rails, source, destination, best, amount);
        if (status != MPATH_OK) {
            return status;
        }
        from->excess -= amount < from->excess ? amount : from->excess;
        if (amount == bytes) {
            break;
        }
        bytes -= amount;
    }
    return MPATH_OK;
}

/* The ranks of the node that may have static routes over the rail: those beside it, or all. */
static void own_ranks(const mpath_rails_t *rails, const shedding_t *from, int only_beside, int *first, int *end)
{
    int slot = from->node * (rails->num_rails + 1);

    *first = rails->slot_first[only_beside ? slot + from->rail + 1 : slot];
    *end   = rails->slot_first[only_beside ? slot + from->rail + 2 : slot + rails->num_rails + 1];
}

static mpath_status_t shed_tx(mpath_rails_t *rails, shedding_t *from)
{
    int first, end, i, source, destination;
    mpath_status_t status;

    own_ranks(rails, from, rails->regular, &first, &end);
    for (i = first; i < end; i++) {
        source = rails->slot_ranks[i];
        for (destination = 0; destination < rails->num_ranks && from->excess > 0; destination++) {
            if (rails->node[destination] != from->node) {
                status = shed_pair(rails, from, source, destination);
                if (status != MPATH_OK) {
                    return status;
                }
            }
        }
    }
    return MPATH_OK;
}

static mpath_status_t shed_rx(mpath_rails_t *rails, shedding_t *from)
{
    int first, end, i, source, destination;
    mpath_status_t status;

    own_ranks(rails, from, rails->regular && rails->crossing, &first, &end);
    for (source = 0; source < rails->num_ranks && from->excess > 0; source++) {
        if (rails->node[source] == from->node ||
            (rails->regular && !rails->crossing && rails->home[source] != from->rail)) {
            continue;
        }
        for (i = first; i < end && from->excess > 0; i++) {
            destination = rails->slot_ranks[i];
            status      = shed_pair(rails, from, source, destination);
            if (status != MPATH_OK) {
                return status;
            }
        }
    }
    return MPATH_OK;
}

static mpath_status_t shed_lane(mpath_rails_t *rails, int receives, int lane)
{
    const uint64_t *loads = receives ? rails->rx : rails->tx;
    shedding_t from       = {.receives = receives, .node = lane / rails->num_rails, .rail = lane % rails->num_rails};
    mpath_status_t status = MPATH_OK;

    for (from.pass = 0; from.pass < PASSES && loads[lane] > rails->target[lane] && status == MPATH_OK; from.pass++) {
        from.excess = loads[lane] - rails->target[lane];
        status      = receives ? shed_rx(rails, &from) : shed_tx(rails, &from);
    }
    return status;
}

mpath_status_t mpath_rails_shed(mpath_rails_t *rails)
{
    mpath_status_t status = MPATH_OK;
    int lane;

    for (lane = 0; lane < 2 * rails->num_lanes && status == MPATH_OK; lane++) {
        status = shed_lane(rails, lane >= rails->num_lanes, lane % rails->num_lanes);
    }
    return status;
}
