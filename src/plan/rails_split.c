/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plans from shares: every rail has a share of the bytes between two nodes, and the ranks of the two nodes take from
 * the shares in whole fragments, first what costs no more relays than their static route. Then moves that the targets
 * do not need are taken back.
 */
#include "plan/rails.h"

#include <stdlib.h>
#include <string.h>

/* What the pair may take from in a pass: its static rails, the rails of its ends, any rail. */
static uint32_t pass_rails(const mpath_rails_t *rails, int pass, int source, int destination, mpath_route_t route)
{
    uint32_t all = mpath_rails_common(rails, source, destination), near = 0;

    if (pass == 0) {
        return route.tx == route.rx ? 1u << route.tx : 0;
    }
    if (pass == 2) {
        return all;
    }
    near |= rails->home[source] >= 0 ? 1u << rails->home[source] : 0;
    near |= rails->home[destination] >= 0 ? 1u << rails->home[destination] : 0;
    return rails->affine ? near & all : 0;
}

/* The amount of `most` that leaves whole fragments of a rest of `bytes`. */
static uint64_t whole_fragments(const mpath_rails_t *rails, uint64_t bytes, uint64_t most)
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
static mpath_status_t take(mpath_rails_t *rails, int source, int destination, mpath_route_t route, uint32_t allowed,
                           int64_t *offers, uint64_t *left)
{
    uint64_t amount;
    mpath_status_t status;
    int rail;

    for (rail = 0; rail<rails->num_rails && * left> 0; rail++) {
        if (!((allowed >> rail) & 1) || offers[rail] <= 0) {
            continue;
        }
        amount = whole_fragments(rails, *left, (uint64_t)offers[rail]);
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
            mpath_rails_undo(rails, source, destination, move, amount);
        } else if (amount == bytes) {
            mpath_rails_undo(rails, source, destination, move, amount); /* a small pair, whole */
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
