/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Moves the bytes that static routes put above the target. Only overloaded lanes are looked at, and bytes only go where
 * both ends stay within the target, so that no lane becomes overloaded. Moves that cost few relays come first. Where both
 * ends of a pair never have room on the same rail, room is made by moving other pairs first.
 */
#include "plan/rails.h"

#include <stdlib.h>
#include <string.h>

typedef enum side { SIDE_TX, SIDE_RX } side_t;

/* A lane that sheds bytes, and which of its pairs and rails are looked at. */
typedef struct shedding {
    side_t side;
    int node, rail;
    int pass;        /* which moves are allowed, by cost */
    uint64_t excess; /* bytes to go */
} shedding_t;

#define PASSES 3

static uint64_t room(const mpath_rails_t *rails, const uint64_t *loads, int lane)
{
    return loads[lane] < rails->target ? rails->target - loads[lane] : 0;
}

/* Bytes of the pair still on its static route. */
static uint64_t static_bytes(const mpath_rails_t *rails, int source, int destination)
{
    size_t pair    = (size_t)source * (size_t)rails->num_ranks + (size_t)destination;
    uint64_t bytes = rails->demand[pair];
    uint32_t move;

    for (move = rails->head[pair]; move != 0; move = rails->moves[move].next) {
        bytes -= rails->moves[move].bytes;
    }
    return bytes;
}

static int static_rx_rail(const mpath_rails_t *rails, int source, int destination)
{
    return rails->crossing ? rails->home[destination] : rails->home[source];
}

static mpath_status_t record(mpath_rails_t *rails, int source, int destination, int rail, uint64_t bytes)
{
    size_t pair       = (size_t)source * (size_t)rails->num_ranks + (size_t)destination;
    uint32_t capacity = rails->moves_capacity * 2;
    mpath_rail_move_t *moves;

    if (rails->num_moves + 1 >= rails->moves_capacity) {
        moves = realloc(rails->moves, capacity * sizeof(*moves));
        if (moves == NULL) {
            return MPATH_ERR_NO_MEMORY;
        }
        rails->moves          = moves;
        rails->moves_capacity = capacity;
    }
    rails->num_moves++;
    moves                    = &rails->moves[rails->num_moves];
    moves->bytes             = bytes;
    moves->rail              = rail;
    moves->next              = rails->head[pair];
    rails->head[pair]        = rails->num_moves;
    rails->row_moves[source] = 1;
    return MPATH_OK;
}

/* Relays of a route: one at each end whose NIC is not the rank's own. Only affine ranks relay. */
static void count_relays(mpath_rails_t *rails, int source, int destination, int rail_tx, int rail_rx, uint64_t bytes)
{
    if (rails->affine && rail_tx != rails->home[source]) {
        rails->relay[rails->node[source]] += bytes;
        rails->relayed_bytes += bytes;
    }
    if (rails->affine && rail_rx != rails->home[destination]) {
        rails->relay[rails->node[destination]] += bytes;
        rails->relayed_bytes += bytes;
    }
}

static mpath_status_t move_pair(mpath_rails_t *rails, int source, int destination, int rail, uint64_t bytes)
{
    int rx_rail = static_rx_rail(rails, source, destination), tx_rail = rails->home[source];

    rails->tx[mpath_rails_lane(rails, source, tx_rail)] -= bytes;
    rails->rx[mpath_rails_lane(rails, destination, rx_rail)] -= bytes;
    rails->tx[mpath_rails_lane(rails, source, rail)] += bytes;
    rails->rx[mpath_rails_lane(rails, destination, rail)] += bytes;
    count_relays(rails, source, destination, tx_rail, rx_rail, 0 - bytes);
    count_relays(rails, source, destination, rail, rail, bytes);
    return record(rails, source, destination, rail, bytes);
}

/* Room on a rail for the pair; a lane that the pair's static route uses already needs none. */
static uint64_t pair_room(const mpath_rails_t *rails, int source, int destination, int rail)
{
    uint64_t tx = UINT64_MAX, rx = UINT64_MAX;

    if (rail != rails->home[source]) {
        tx = room(rails, rails->tx, mpath_rails_lane(rails, source, rail));
    }
    if (rail != static_rx_rail(rails, source, destination)) {
        rx = room(rails, rails->rx, mpath_rails_lane(rails, destination, rail));
    }
    return tx < rx ? tx : rx;
}

/*
 * Rails that the pass allows the pair: a range. Pass 0 has the moves that cost no relay more or one, to the rail of the
 * pair's other end; pass 1 those over a third rail by pairs that relay anyhow; pass 2 all.
 */
static int allowed_rails(const mpath_rails_t *rails, const shedding_t *from, int source, int destination, int *last)
{
    int home = rails->home[source], there = rails->home[destination];

    *last = rails->num_rails - 1;
    if (!rails->affine) {
        return from->pass == PASSES - 1 ? 0 : rails->num_rails;
    }
    if (from->pass == PASSES - 1) {
        return 0;
    }
    if (home == there) {
        return rails->num_rails;
    }
    if (from->pass == 0) {
        return *last = rails->crossing && from->side == SIDE_RX ? home : there;
    }
    return 0;
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

/* Moves what the shedding lane needs of one pair, to the allowed rails with the most room. */
static mpath_status_t shed_pair(mpath_rails_t *rails, shedding_t *from, int source, int destination)
{
    int first, last, rail, best;
    uint64_t bytes, most, amount;
    mpath_status_t status;

    first = allowed_rails(rails, from, source, destination, &last);
    if (first > last) {
        return MPATH_OK;
    }
    bytes = static_bytes(rails, source, destination);
    while (bytes > 0 && from->excess > 0) {
        best = -1;
        most = 0;
        for (rail = first; rail <= last; rail++) {
            amount = rail == from->rail ? 0 : pair_room(rails, source, destination, rail);
            if (amount > most) {
                most = amount;
                best = rail;
            }
        }
        amount = from->excess < most ? from->excess : most;
        amount = best < 0 ? 0 : whole_fragments(bytes, amount, most, rails->min_fragment_bytes);
        if (amount == 0) {
            break;
        }
        status = move_pair(rails, source, destination, best, amount);
        if (status != MPATH_OK) {
            return status;
        }
        bytes -= amount;
        from->excess -= amount < from->excess ? amount : from->excess;
    }
    return MPATH_OK;
}

/* The pairs of a transmitting lane: from its ranks to all other nodes. */
static mpath_status_t shed_tx(mpath_rails_t *rails, shedding_t *from)
{
    int lane = from->node * rails->num_rails + from->rail, i, source, destination;
    mpath_status_t status;

    for (i = rails->lane_first[lane]; i < rails->lane_first[lane + 1]; i++) {
        source = rails->lane_ranks[i];
        for (destination = 0; destination < rails->num_ranks && from->excess > 0; destination++) {
            if (rails->node[destination] != from->node &&
                rails->demand[(size_t)source * (size_t)rails->num_ranks + (size_t)destination] > 0) {
                status = shed_pair(rails, from, source, destination);
                if (status != MPATH_OK) {
                    return status;
                }
            }
        }
    }
    return MPATH_OK;
}

/* The pairs of a receiving lane: those whose static route ends there. */
static mpath_status_t shed_rx(mpath_rails_t *rails, shedding_t *from)
{
    int lane  = from->node * rails->num_rails, i, source, destination;
    int first = rails->lane_first[lane + (rails->crossing ? from->rail : 0)];
    int end   = rails->lane_first[rails->crossing ? lane + from->rail + 1 : lane + rails->num_rails];
    mpath_status_t status;

    for (source = 0; source < rails->num_ranks && from->excess > 0; source++) {
        if (rails->node[source] == from->node || (!rails->crossing && rails->home[source] != from->rail)) {
            continue;
        }
        for (i = first; i < end && from->excess > 0; i++) {
            destination = rails->lane_ranks[i];
            if (rails->demand[(size_t)source * (size_t)rails->num_ranks + (size_t)destination] > 0) {
                status = shed_pair(rails, from, source, destination);
                if (status != MPATH_OK) {
                    return status;
                }
            }
        }
    }
    return MPATH_OK;
}

static mpath_status_t shed_lane(mpath_rails_t *rails, side_t side, int lane)
{
    const uint64_t *loads = side == SIDE_TX ? rails->tx : rails->rx;
    shedding_t from       = {.side = side, .node = lane / rails->num_rails, .rail = lane % rails->num_rails};
    mpath_status_t status = MPATH_OK;

    for (from.pass = 0; from.pass < PASSES && loads[lane] > rails->target && status == MPATH_OK; from.pass++) {
        from.excess = loads[lane] - rails->target;
        status      = side == SIDE_TX ? shed_tx(rails, &from) : shed_rx(rails, &from);
    }
    return status;
}

mpath_status_t mpath_rails_move(mpath_rails_t *rails)
{
    int lanes             = rails->num_nodes * rails->num_rails, lane;
    mpath_status_t status = MPATH_OK;

    rails->moves_capacity = 256;
    rails->moves          = malloc(rails->moves_capacity * sizeof(*rails->moves));
    rails->head           = calloc((size_t)rails->num_ranks * (size_t)rails->num_ranks, sizeof(*rails->head));
    if (rails->moves == NULL || rails->head == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    for (lane = 0; lane < lanes && status == MPATH_OK; lane++) {
        status = shed_lane(rails, SIDE_TX, lane);
    }
    for (lane = 0; lane < lanes && status == MPATH_OK; lane++) {
        status = shed_lane(rails, SIDE_RX, lane);
    }
    return status;
}
