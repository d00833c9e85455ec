/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bytes that leave the static routes of their pairs: the part of a plan that the construction (plan/construct/construct.h)
 * decides. Each pair has a list of moves, at most one for each route (`via`) that it can take; what they leave stays on
 * path 0.
 */
#ifndef MPATH_PLAN_CONSTRUCT_MOVES_H
#define MPATH_PLAN_CONSTRUCT_MOVES_H

#include "plan/internal.h"
#include "topo/topo.h"

#include <stdint.h>

typedef struct mpath_move {
    uint64_t bytes;
    uint32_t next; /* of the same pair; 0 ends the list: entry 0 is not used */
    int32_t via;   /* a number of the construction; flows of a pair stand in its order */
} mpath_move_t;

typedef struct mpath_moves {
    const uint64_t *demand;
    size_t num_ranks;
    mpath_move_t *list; /* NULL: mpath_moves_begin() has not been called */
    uint32_t count, capacity;
    uint32_t *head; /* first move of source * num_ranks + destination */
    uint8_t *row;   /* by source: it has moves */
    void *memory;
} mpath_moves_t;

/* Number of the path of a pair by `via`. */
typedef int (*mpath_moves_path_t)(const void *problem, int source, int destination, int via);

/* All zero before, and after release. */
mpath_status_t mpath_moves_begin(mpath_moves_t *moves, const uint64_t *demand, int num_ranks);

void mpath_moves_release(mpath_moves_t *moves);

/* Forgets all moves. */
void mpath_moves_reset(mpath_moves_t *moves);

/* Adds a move, or to the one that the pair has. */
mpath_status_t mpath_moves_record(mpath_moves_t *moves, int source, int destination, int via, uint64_t bytes);

/* Takes bytes of a move back, which the pair has; the record stays, smaller. */
void mpath_moves_take(mpath_moves_t *moves, int source, int destination, int via, uint64_t bytes);

static inline size_t mpath_moves_pair(const mpath_moves_t *moves, int source, int destination)
{
    return (size_t)source * moves->num_ranks + (size_t)destination;
}

/* Bytes of a pair, by its number, still on its static route. */
static inline uint64_t mpath_moves_left_of(const mpath_moves_t *moves, size_t pair)
{
    uint64_t bytes = moves->demand[pair];
    uint32_t move;

    for (move = moves->head[pair]; move != 0; move = moves->list[move].next) {
        bytes -= moves->list[move].bytes;
    }
    return bytes;
}

static inline uint64_t mpath_moves_left(const mpath_moves_t *moves, int source, int destination)
{
    return mpath_moves_left_of(moves, mpath_moves_pair(moves, source, destination));
}

/*
 * How much of `most` bytes may leave a flow of `bytes` for a route with `residual` bytes of capacity left, so that both
 * sides are whole fragments; 0: nothing. May be more than `most`.
 */
uint64_t mpath_moves_fit(uint64_t bytes, uint64_t most, uint64_t residual, uint64_t smallest);

/* The least residual capacity for which mpath_moves_fit() may say something else than nothing. */
static inline uint64_t mpath_moves_least(uint64_t bytes, uint64_t smallest)
{
    return bytes / 2 < smallest ? bytes : smallest;
}

/* Appends all flows to the plan, by source and destination; `num_pairs` have bytes. */
mpath_status_t mpath_moves_emit(const mpath_moves_t *moves, mpath_plan_t *plan, const uint64_t *demand, int num_ranks,
                                size_t num_pairs, mpath_moves_path_t path_of, const void *problem);

/*
 * Balances the NICs of one node without touching those at the other ends, where static routes cross from rail to rail.
 * A byte from a rank beside rail k to a rank beside rail j arrives on NIC j; over rail k it arrives on NIC k and leaves
 * its own node as before. So the bytes between ranks of two rails are an arc between the node's NICs, and a maximum
 * flow over the arcs, from the overloaded NICs to those with residual capacity, says how many bytes take which. Sending is
 * the same with the directions exchanged.
 */

typedef struct mpath_balance {
    int num_nics;
    uint64_t excess[MPATH_MAX_NICS], residual[MPATH_MAX_NICS]; /* by NIC, bytes above and below its target */
    uint64_t left[MPATH_MAX_NICS][MPATH_MAX_NICS];             /* [j][k]: bytes on NIC j that could be on NIC k */
    uint64_t flow[MPATH_MAX_NICS][MPATH_MAX_NICS];             /* [j][k]: bytes that move from NIC j to NIC k */
} mpath_balance_t;

/* Clears the arcs. */
void mpath_balance_init(mpath_balance_t *balance, int num_nics);

/* States the load of a NIC. */
static inline void mpath_balance_set_load(mpath_balance_t *balance, int nic, uint64_t load, uint64_t target)
{
    balance->excess[nic]   = load > target ? load - target : 0;
    balance->residual[nic] = load < target ? target - load : 0;
}

/* Nonzero when some NIC is overloaded. */
int mpath_balance_has_excess(const mpath_balance_t *balance);

/* Nonzero when some NIC is overloaded and the others have little more capacity left than it takes: else no care is needed. */
int mpath_balance_is_tight(const mpath_balance_t *balance);

/* Finds the flow; uses up excess, residual and left. */
void mpath_balance_solve(mpath_balance_t *balance);

#endif
