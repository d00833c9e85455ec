/* SPDX-License-Identifier: BSD-3-Clause */
/* Balances the NICs of a node: which bytes could arrive on, or leave by, which of its rails, and their moves. */
#include "plan/balance.h"
#include "plan/rails.h"

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

/* The move of a pair in two pieces to the rail of its other end; 0: it is in one piece, or has no such move. */
static uint32_t move_of(const mpath_rails_t *rails, int receives, int own, int other)
{
    uint32_t move = rails->moves
                        .head[receives ? mpath_rails_pair(rails, other, own) : mpath_rails_pair(rails, own, other)];

    while (move != 0 && rails->moves.list[move].via != rails->home[other]) {
        move = rails->moves.list[move].next;
    }
    return move != 0 && pair_bytes(rails, receives, own, other) > 0 ? move : 0;
}

/* The same arcs again, for pairs in two pieces: by how much they can be divided differently. */
static void count_divisible(const mpath_rails_t *rails, mpath_balance_t *balance, int node, int receives)
{
    int slot = node * (rails->num_rails + 1), first = rails->slot_first[slot];
    int end = rails->slot_first[slot + rails->num_rails + 1], other, i, own;
    uint32_t move;

    for (other = 0; other < rails->num_ranks; other++) {
        for (i = first; i < end && rails->node[other] != node; i++) {
            own  = rails->slot_ranks[i];
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
        mpath_rails_undo(rails, source, destination, move, bytes);
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
    mpath_balance_init(balance, rails->num_rails);
    count_divisible(rails, balance, node, receives);
    mpath_balance_solve(balance);
    for (other = 0; other < rails->num_ranks; other++) {
        for (i = first; i < end && rails->node[other] != node && status == MPATH_OK; i++) {
            status = divide_pair(rails, balance, receives, rails->slot_ranks[i], other);
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
