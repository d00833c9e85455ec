/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Moves the bytes that static routes put above the targets. Only overloaded lanes are looked at, and bytes only go
 * where both ends stay within the targets, so that no lane becomes overloaded. Moves that cost few relays come first.
 */
#include "plan/rails/rails.h"

#include "plan/construct/moves.h"

#include <stdlib.h>
#include <string.h>

#define PASSES 3

/* A lane that sheds bytes, and which moves are allowed. */
typedef struct shedding {
    int receives;
    int node, rail;
    int pass;
    mpath_nic_set_t open; /* rails on which the node has had room: a move needs it, whatever the pair */
    uint64_t excess;      /* bytes to go */
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

/* Takes bytes of a move back to the static route; the record stays, smaller. */
static void rails_undo(mpath_rails_t *rails, int source, int destination, uint32_t move, uint64_t bytes)
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
static mpath_nic_set_t allowed_rails(const mpath_rails_t *rails, const shedding_t *from, int source, int destination)
{
    int home = rails->home[source], there = rails->home[destination], other;
    mpath_nic_set_t all = mpath_rails_common(rails, source, destination) & from->open;

    if (from->pass == PASSES - 1) {
        return all;
    }
    if (!rails->affine || home == there) {
        return 0;
    }
    if (from->pass == 0) {
        other = rails->crossing && from->receives ? home : there;
        return other < 0 ? 0 : all & mpath_nic_bit(other);
    }
    return all;
}

/* The rail of the mask with the most room for the pair; a lane that its static route uses already needs none. -1: no
 * room. */
static int roomiest(const mpath_rails_t *rails, int source, int destination, mpath_nic_set_t mask, mpath_route_t route,
                    uint64_t *room_p)
{
    int tx_lane = mpath_rails_lane(rails, source, 0), rx_lane = mpath_rails_lane(rails, destination, 0), rail,
        best      = -1;
    uint64_t most = 0, here, there;

    for (; mask != 0; mask &= mask - 1) {
        rail  = mpath_nic_first(mask);
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
    mpath_nic_set_t mask = allowed_rails(rails, from, source, destination);
    uint64_t bytes       = 0, most, amount;
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

/* The other rails of the node on which it can send, or receive, more. */
static mpath_nic_set_t open_rails(const mpath_rails_t *rails, const uint64_t *loads, int node, int except)
{
    mpath_nic_set_t open = 0;
    int rail;

    for (rail = 0; rail < rails->num_rails; rail++) {
        open |= rail != except && room(rails, loads, node * rails->num_rails + rail) > 0 ? mpath_nic_bit(rail) : 0;
    }
    return open;
}

static mpath_status_t shed_lane(mpath_rails_t *rails, int receives, int lane)
{
    const uint64_t *loads = receives ? rails->rx : rails->tx;
    shedding_t from       = {.receives = receives, .node = lane / rails->num_rails, .rail = lane % rails->num_rails};
    mpath_status_t status = MPATH_OK;

    for (from.pass = 0; from.pass < PASSES && loads[lane] > rails->target[lane] && status == MPATH_OK; from.pass++) {
        from.open = open_rails(rails, loads, from.node, from.rail);
        if (from.open == 0) {
            return MPATH_OK;
        }
        from.excess = loads[lane] - rails->target[lane];
        status      = receives ? shed_rx(rails, &from) : shed_tx(rails, &from);
    }
    return status;
}

mpath_status_t mpath_rails_shed(mpath_rails_t *rails)
{
    mpath_status_t status = MPATH_OK;
    int lane;

    for (lane = 0; lane < rails->num_lanes && status == MPATH_OK; lane++) {
        status = rails->tx[lane] > rails->target[lane] ? shed_lane(rails, 0, lane) : MPATH_OK;
    }
    for (lane = 0; lane < rails->num_lanes && status == MPATH_OK; lane++) {
        status = rails->rx[lane] > rails->target[lane] ? shed_lane(rails, 1, lane) : MPATH_OK;
    }
    return status;
}

/* Balances the NICs of a node: which bytes could arrive on, or leave by, which of its rails, and their moves. */

static void set_loads(const mpath_rails_t *rails, mpath_balance_t *balance, int node, int receives)
{
    const uint64_t *loads = receives ? rails->rx : rails->tx;
    int rail, lane;

    for (rail = 0; rail < rails->num_rails; rail++) {
        lane = node * rails->num_rails + rail;
        mpath_balance_set_load(balance, rail, loads[lane], rails->target[lane]);
    }
}

static uint64_t pair_bytes(const mpath_rails_t *rails, int receives, int own, int other)
{
    return receives ? mpath_moves_left(&rails->moves, other, own) : mpath_moves_left(&rails->moves, own, other);
}

/* Bytes on static routes between the ranks of the node and those beside each rail. */
static void count_arcs(const mpath_rails_t *rails, mpath_balance_t *balance, int node, int receives)
{
    int slot = node * (rails->num_rails + 1), first = rails->slot_first[slot];
    int end = rails->slot_first[slot + rails->num_rails + 1], other, i, own;

    for (other = 0; other < rails->num_ranks; other++) {
        for (i = first; i < end && rails->node[other] != node; i++) {
            own = rails->slot_ranks[i];
            if (rails->home[own] != rails->home[other]) {
                balance->left[rails->home[own]][rails->home[other]] += pair_bytes(rails, receives, own, other);
            }
        }
    }
}

/* Whole fragments of a pair's bytes: `most`, or what of 0, a fragment and all bytes is near it. */
static uint64_t whole_fragments(const mpath_rails_t *rails, uint64_t bytes, uint64_t most)
{
    uint64_t smallest = rails->min_fragment_bytes;

    if (most >= bytes) {
        return bytes;
    }
    if (bytes / 2 < smallest) {
        return most < bytes / 2 ? 0 : bytes;
    }
    if (most < smallest / 2) {
        return 0;
    }
    most = most < smallest ? smallest : most;
    return bytes - most < smallest ? bytes - smallest : most;
}

/* Moves the bytes of one arc, pair by pair. */
static mpath_status_t move_arc(mpath_rails_t *rails, int node, int receives, int own, int rail, uint64_t *left)
{
    mpath_status_t status = MPATH_OK;
    uint64_t bytes;
    int to, slot, i, other;

    for (to = 0; to<rails->num_nodes && * left> 0; to++) {
        slot = to * (rails->num_rails + 1) + rail + 1;
        for (i = rails->slot_first[slot]; i < rails->slot_first[slot + 1] && to != node && *left > 0; i++) {
            other = rails->slot_ranks[i];
            bytes = whole_fragments(rails, pair_bytes(rails, receives, own, other), *left);
            if (bytes == 0) {
                continue;
            }
            status = mpath_rails_move_pair(rails, receives ? other : own, receives ? own : other, rail, bytes);
            if (status != MPATH_OK) {
                return status;
            }
            *left -= bytes < *left ? bytes : *left;
        }
    }
    return MPATH_OK;
}

/* Bytes that a piece can lose and stay a whole fragment. */
static uint64_t spare(const mpath_rails_t *rails, uint64_t bytes)
{
    return bytes > rails->min_fragment_bytes ? bytes - rails->min_fragment_bytes : 0;
}

static inline int has_moved(const mpath_rails_t *rails, int receives, int own, int other)
{
    return rails->moves.head[receives ? mpath_rails_pair(rails, other, own) : mpath_rails_pair(rails, own, other)] != 0;
}

/* The move of a pair in two pieces to the rail of its other end; 0: it is in one piece, or has no such move. */
static uint32_t move_of(const mpath_rails_t *rails, int receives, int own, int other)
{
    size_t pair   = receives ? mpath_rails_pair(rails, other, own) : mpath_rails_pair(rails, own, other);
    uint32_t move = rails->moves.head[pair];

    while (move != 0 && rails->moves.list[move].via != rails->home[other]) {
        move = rails->moves.list[move].next;
    }
    return move != 0 && mpath_moves_left_of(&rails->moves, pair) > 0 ? move : 0;
}

/* The same arcs again, for pairs in two pieces: by how much they can be divided differently. */
static void count_divisible(const mpath_rails_t *rails, mpath_balance_t *balance, int node, int receives)
{
    int slot = node * (rails->num_rails + 1), first = rails->slot_first[slot];
    int end = rails->slot_first[slot + rails->num_rails + 1], other, i, own;
    uint32_t move;

    for (other = 0; other < rails->num_ranks; other++) {
        for (i = first; i < end && rails->node[other] != node; i++) {
            own = rails->slot_ranks[i];
            if (!has_moved(rails, receives, own, other)) {
                continue; /* most pairs */
            }
            move = move_of(rails, receives, own, other);
            if (move != 0 && rails->home[own] != rails->home[other]) {
                balance->left[rails->home[own]][rails->home[other]] += spare(rails,
                                                                             pair_bytes(rails, receives, own, other));
                balance->left[rails->home[other]][rails->home[own]] += spare(rails, rails->moves.list[move].bytes);
            }
        }
    }
}

/* Divides one pair differently: more of it on the rail of its other end, or less. */
static mpath_status_t divide_pair(mpath_rails_t *rails, mpath_balance_t *balance, int receives, int own, int other)
{
    int source = receives ? other : own, destination = receives ? own : other;
    int here = rails->home[own], there = rails->home[other];
    uint32_t move = move_of(rails, receives, own, other);
    uint64_t more, less, bytes;

    if (move == 0 || here == there) {
        return MPATH_OK;
    }
    more = balance->flow[here][there];
    less = balance->flow[there][here];
    if (more > 0) {
        bytes = spare(rails, pair_bytes(rails, receives, own, other));
        bytes = bytes < more ? bytes : more;
        balance->flow[here][there] -= bytes;
        return bytes == 0 ? MPATH_OK : mpath_rails_move_pair(rails, source, destination, there, bytes);
    }
    if (less > 0) {
        bytes = spare(rails, rails->moves.list[move].bytes);
        bytes = bytes < less ? bytes : less;
        balance->flow[there][here] -= bytes;
        rails_undo(rails, source, destination, move, bytes);
    }
    return MPATH_OK;
}

/* After moves in whole fragments: what these have missed, by the pairs that they divided. */
static mpath_status_t refine_node(mpath_rails_t *rails, mpath_balance_t *balance, int node, int receives)
{
    int slot = node * (rails->num_rails + 1), first = rails->slot_first[slot];
    int end               = rails->slot_first[slot + rails->num_rails + 1], other, i;
    mpath_status_t status = MPATH_OK;

    set_loads(rails, balance, node, receives);
    if (!mpath_balance_has_excess(balance)) {
        return MPATH_OK;
    }
    mpath_balance_init(balance, rails->num_rails);
    count_divisible(rails, balance, node, receives);
    mpath_balance_solve(balance);
    for (other = 0; other < rails->num_ranks; other++) {
        for (i = first; i < end && rails->node[other] != node && status == MPATH_OK; i++) {
            if (has_moved(rails, receives, rails->slot_ranks[i], other)) {
                status = divide_pair(rails, balance, receives, rails->slot_ranks[i], other);
            }
        }
    }
    return status;
}

static mpath_status_t balance_node(mpath_rails_t *rails, int node, int receives)
{
    int slot = node * (rails->num_rails + 1) + 1, rail, via, i;
    mpath_status_t status;
    mpath_balance_t balance;

    balance.num_nics = rails->num_rails;
    set_loads(rails, &balance, node, receives);
    if (!mpath_balance_is_tight(&balance)) {
        return MPATH_OK;
    }
    mpath_balance_init(&balance, rails->num_rails);
    count_arcs(rails, &balance, node, receives);
    mpath_balance_solve(&balance);
    for (rail = 0; rail < rails->num_rails; rail++) {
        for (via = 0; via < rails->num_rails; via++) {
            if (balance.flow[rail][via] == 0) {
                continue;
            }
            for (i = rails->slot_first[slot + rail];
                 i < rails->slot_first[slot + rail + 1] && balance.flow[rail][via] > 0; i++) {
                status = move_arc(rails, node, receives, rails->slot_ranks[i], via, &balance.flow[rail][via]);
                if (status != MPATH_OK) {
                    return status;
                }
            }
        }
    }
    return refine_node(rails, &balance, node, receives);
}

mpath_status_t mpath_rails_balance(mpath_rails_t *rails)
{
    mpath_status_t status = MPATH_OK;
    int i;

    for (i = 0; i < 2 * rails->num_nodes && rails->crossing && rails->regular && status == MPATH_OK; i++) {
        status = balance_node(rails, i % rails->num_nodes, i < rails->num_nodes);
    }
    return status;
}

/*
 * Plans from shares: every rail has a share of the bytes between two nodes, and the ranks of the two nodes take from
 * the shares in whole fragments, first what costs no more relays than their static route. Then moves that the targets
 * do not need are taken back.
 */

/* What the pair may take from in a pass: its static rails, the rails of its ends, any rail. */
static mpath_nic_set_t pass_rails(const mpath_rails_t *rails, int pass, int source, int destination,
                                  mpath_route_t route)
{
    mpath_nic_set_t all = mpath_rails_common(rails, source, destination), near = 0;

    if (pass == 0) {
        return route.tx == route.rx ? mpath_nic_bit(route.tx) : 0;
    }
    if (pass == 2) {
        return all;
    }
    near |= rails->home[source] >= 0 ? mpath_nic_bit(rails->home[source]) : 0;
    near |= rails->home[destination] >= 0 ? mpath_nic_bit(rails->home[destination]) : 0;
    return rails->affine ? near & all : 0;
}

/* The amount of `most` that leaves whole fragments of a rest of `bytes`. */
static uint64_t rails_split_whole_fragments(const mpath_rails_t *rails, uint64_t bytes, uint64_t most)
{
    if (most >= bytes) {
        return bytes;
    }
    if (bytes - most < rails->min_fragment_bytes) {
        if (bytes < rails->min_fragment_bytes) {
            return 0;
        }
        most = bytes - rails->min_fragment_bytes;
    }
    return most >= rails->min_fragment_bytes ? most : 0;
}

/* Takes what the allowed rails offer; `left` is what of the pair has no rail yet. */
static mpath_status_t take(mpath_rails_t *rails, int source, int destination, mpath_route_t route,
                           mpath_nic_set_t allowed, int64_t *offers, uint64_t *left)
{
    uint64_t amount;
    mpath_status_t status;
    int rail;

    for (rail = 0; rail<rails->num_rails && * left> 0; rail++) {
        if (!((allowed >> rail) & 1) || offers[rail] <= 0) {
            continue;
        }
        amount = rails_split_whole_fragments(rails, *left, (uint64_t)offers[rail]);
        if (amount == 0) {
            continue;
        }
        offers[rail] -= (int64_t)amount;
        *left -= amount;
        if (rail != route.tx || rail != route.rx) {
            status = mpath_rails_move_pair(rails, source, destination, rail, amount);
            if (status != MPATH_OK) {
                return status;
            }
        }
    }
    return MPATH_OK;
}

/* What is left after the last pass stays on the static route. */
static void keep(int64_t *offers, mpath_route_t route, uint64_t left)
{
    if (route.tx == route.rx) {
        offers[route.tx] -= (int64_t)left;
    }
}

/* All pairs from one node to another; `left` holds the bytes of each pair without a rail, in order. */
static mpath_status_t split_nodes(mpath_rails_t *rails, int from, int to, int64_t *offers, uint64_t *left)
{
    int slots      = rails->num_rails + 1, pass, i, j;
    int from_first = rails->slot_first[from * slots], from_end = rails->slot_first[(from + 1) * slots];
    int to_first = rails->slot_first[to * slots], to_end = rails->slot_first[(to + 1) * slots];
    mpath_status_t status = MPATH_OK;
    mpath_route_t route;
    uint64_t *at;

    for (pass = 0; pass < 3; pass++) {
        at = left;
        for (i = from_first; i < from_end; i++) {
            for (j = to_first; j < to_end && status == MPATH_OK; j++, at++) {
                int source = rails->slot_ranks[i], destination = rails->slot_ranks[j];

                *at = pass == 0 ? rails->demand[mpath_rails_pair(rails, source, destination)] : *at;
                if (*at > 0) {
                    route  = mpath_rails_static(rails, source, destination);
                    status = take(rails, source, destination, route,
                                  pass_rails(rails, pass, source, destination, route), offers, at);
                    if (pass == 2) {
                        keep(offers, route, *at);
                    }
                }
            }
        }
    }
    return status;
}

/* Bytes that can go back to the static route within the targets. */
static uint64_t room_back(const mpath_rails_t *rails, int source, int destination, int rail, mpath_route_t route)
{
    int tx = mpath_rails_lane(rails, source, route.tx), rx = mpath_rails_lane(rails, destination, route.rx);
    uint64_t room = UINT64_MAX, here;

    if (route.tx != rail) {
        room = rails->tx[tx] < rails->target[tx] ? rails->target[tx] - rails->tx[tx] : 0;
    }
    if (route.rx != rail) {
        here = rails->rx[rx] < rails->target[rx] ? rails->target[rx] - rails->rx[rx] : 0;
        room = here < room ? here : room;
    }
    return room;
}

/* Takes back the pair's moves as far as there is room and whole fragments remain. */
static void give_back_pair(mpath_rails_t *rails, int source, int destination)
{
    uint32_t move       = rails->moves.head[mpath_rails_pair(rails, source, destination)];
    mpath_route_t route = mpath_rails_static(rails, source, destination);
    uint64_t amount, room, bytes;

    for (; move != 0; move = rails->moves.list[move].next) {
        bytes  = rails->moves.list[move].bytes;
        room   = room_back(rails, source, destination, rails->moves.list[move].via, route);
        amount = room < bytes ? room : bytes;
        if (amount < bytes && bytes - amount < rails->min_fragment_bytes) {
            amount = bytes > rails->min_fragment_bytes ? bytes - rails->min_fragment_bytes : 0;
        }
        if (amount > 0 && mpath_moves_left(&rails->moves, source, destination) + amount >= rails->min_fragment_bytes) {
            rails_undo(rails, source, destination, move, amount);
        } else if (amount == bytes) {
            rails_undo(rails, source, destination, move, amount); /* a small pair, whole */
        }
    }
}

static void give_back(mpath_rails_t *rails)
{
    int source, destination;

    for (source = 0; source < rails->num_ranks; source++) {
        if (!rails->moves.row[source]) {
            continue;
        }
        for (destination = 0; destination < rails->num_ranks; destination++) {
            if (rails->moves.head[mpath_rails_pair(rails, source, destination)] != 0) {
                give_back_pair(rails, source, destination);
            }
        }
    }
}

static int most_ranks_of_a_node(const mpath_rails_t *rails)
{
    int slots = rails->num_rails + 1, most = 0, node, count;

    for (node = 0; node < rails->num_nodes; node++) {
        count = rails->slot_first[(node + 1) * slots] - rails->slot_first[node * slots];
        most  = count > most ? count : most;
    }
    return most;
}

mpath_status_t mpath_rails_split(mpath_rails_t *rails, const uint64_t *shares)
{
    size_t nodes          = (size_t)rails->num_nodes, from, to, pair;
    size_t ranks          = (size_t)most_ranks_of_a_node(rails);
    uint64_t *left        = malloc((ranks * ranks + 1) * sizeof(*left));
    mpath_status_t status = MPATH_OK;
    int64_t offers[MPATH_MAX_NICS];
    int rail;

    if (left == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    for (from = 0; from < nodes; from++) {
        for (to = 0; to < nodes && status == MPATH_OK; to++) {
            pair = from * nodes + to;
            if (rails->between[pair] == 0) {
                continue;
            }
            for (rail = 0; rail < rails->num_rails; rail++) {
                offers[rail] = (int64_t)shares[pair * (size_t)rails->num_rails + (size_t)rail];
            }
            status = split_nodes(rails, (int)from, (int)to, offers, left);
        }
    }
    free(left);
    if (status == MPATH_OK) {
        give_back(rails);
    }
    return status;
}
