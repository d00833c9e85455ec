/* SPDX-License-Identifier: BSD-3-Clause */
/* What leaves the static routes, and the flows that follow: rows without moves are written straight. */
#include "plan/construct/moves.h"

#include <stdlib.h>
#include <string.h>

/* Maximum flow between the NICs of a node, shortest paths first (Edmonds and Karp, J. ACM 19(2), 1972). */

void mpath_balance_init(mpath_balance_t *balance, int num_nics)
{
    int nic;

    balance->num_nics = num_nics;
    for (nic = 0; nic < num_nics; nic++) {
        memset(balance->left[nic], 0, (size_t)num_nics * sizeof(balance->left[nic][0]));
        memset(balance->flow[nic], 0, (size_t)num_nics * sizeof(balance->flow[nic][0]));
    }
}

int mpath_balance_has_excess(const mpath_balance_t *balance)
{
    int nic = 0;

    while (nic < balance->num_nics && balance->excess[nic] == 0) {
        nic++;
    }
    return nic < balance->num_nics;
}

int mpath_balance_is_tight(const mpath_balance_t *balance)
{
    uint64_t excess = 0, residual = 0;
    int nic;

    for (nic = 0; nic < balance->num_nics; nic++) {
        excess += balance->excess[nic];
        residual += balance->residual[nic];
    }
    return excess > 0 && residual / 2 < excess;
}

/* A shortest path of arcs from overloaded NICs to one with residual capacity; its end, -1: there is none. */
static int find_path(const mpath_balance_t *b, int *from)
{
    int queue[MPATH_MAX_NICS], head = 0, tail = 0, j, k;

    for (k = 0; k < b->num_nics; k++) {
        from[k] = -1;
        if (b->excess[k] > 0) {
            from[k]       = k;
            queue[tail++] = k;
        }
    }
    while (head < tail) {
        j = queue[head++];
        for (k = 0; k < b->num_nics; k++) {
            if (from[k] < 0 && b->left[j][k] > 0) {
                from[k] = j;
                if (b->residual[k] > 0) {
                    return k;
                }
                queue[tail++] = k;
            }
        }
    }
    return -1;
}

/* Sends what the path carries. */
static void augment(mpath_balance_t *b, const int *from, int end)
{
    uint64_t bytes = b->residual[end], back;
    int j, k;

    for (k = end; from[k] != k; k = from[k]) {
        bytes = b->left[from[k]][k] < bytes ? b->left[from[k]][k] : bytes;
    }
    bytes = b->excess[k] < bytes ? b->excess[k] : bytes;
    b->excess[k] -= bytes;
    b->residual[end] -= bytes;
    for (k = end; from[k] != k; k = from[k]) {
        j    = from[k];
        back = b->flow[k][j] < bytes ? b->flow[k][j] : bytes;
        b->flow[k][j] -= back;
        b->flow[j][k] += bytes - back;
        b->left[j][k] -= bytes;
        b->left[k][j] += bytes;
    }
}

void mpath_balance_solve(mpath_balance_t *balance)
{
    int from[MPATH_MAX_NICS], end;

    for (end = find_path(balance, from); end >= 0; end = find_path(balance, from)) {
        augment(balance, from, end);
    }
}

#define FIRST_CAPACITY 128

mpath_status_t mpath_moves_begin(mpath_moves_t *moves, const uint64_t *demand, int num_ranks)
{
    size_t ranks = (size_t)num_ranks, bytes = ranks * ranks * sizeof(*moves->head) + ranks;

    moves->demand    = demand;
    moves->num_ranks = ranks;
    moves->capacity  = FIRST_CAPACITY;
    moves->memory    = calloc(1, bytes + FIRST_CAPACITY * sizeof(*moves->list));
    if (moves->memory == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    moves->list = moves->memory; /* the first ones, in one block with the rest: a call less */
    moves->head = (uint32_t *)(moves->list + FIRST_CAPACITY);
    moves->row  = (uint8_t *)(moves->head + ranks * ranks);
    return MPATH_OK;
}

void mpath_moves_release(mpath_moves_t *moves)
{
    if (moves->list != moves->memory) {
        free(moves->list);
    }
    free(moves->memory);
    memset(moves, 0, sizeof(*moves));
}

void mpath_moves_reset(mpath_moves_t *moves)
{
    size_t source;

    for (source = 0; source < moves->num_ranks; source++) {
        if (moves->row[source]) {
            memset(moves->head + source * moves->num_ranks, 0, moves->num_ranks * sizeof(*moves->head));
        }
    }
    memset(moves->row, 0, moves->num_ranks);
    moves->count = 0;
}

mpath_status_t mpath_moves_record(mpath_moves_t *moves, int source, int destination, int via, uint64_t bytes)
{
    size_t pair = mpath_moves_pair(moves, source, destination);
    mpath_move_t *list;
    uint32_t move;

    for (move = moves->head[pair]; move != 0; move = moves->list[move].next) {
        if (moves->list[move].via == via) {
            moves->list[move].bytes += bytes;
            return MPATH_OK;
        }
    }
    if (moves->count + 1 >= moves->capacity) {
        list = realloc(moves->list == moves->memory ? NULL : moves->list, 2 * (size_t)moves->capacity * sizeof(*list));
        if (list == NULL) {
            return MPATH_ERR_NO_MEMORY;
        }
        if (moves->list == moves->memory) {
            memcpy(list, moves->list, moves->capacity * sizeof(*list));
        }
        moves->list = list;
        moves->capacity *= 2;
    }
    move                    = ++moves->count;
    moves->list[move].bytes = bytes;
    moves->list[move].via   = via;
    moves->list[move].next  = moves->head[pair];
    moves->head[pair]       = move;
    moves->row[source]      = 1;
    return MPATH_OK;
}

void mpath_moves_take(mpath_moves_t *moves, int source, int destination, int via, uint64_t bytes)
{
    uint32_t move = moves->head[mpath_moves_pair(moves, source, destination)];

    while (moves->list[move].via != via) {
        move = moves->list[move].next;
    }
    moves->list[move].bytes -= bytes;
}

uint64_t mpath_moves_fit(uint64_t bytes, uint64_t most, uint64_t residual, uint64_t smallest)
{
    if (most >= bytes) {
        return bytes;
    }
    if (bytes / 2 < smallest) {
        return bytes <= residual ? bytes : 0;
    }
    most = most < smallest ? smallest : most;
    if (bytes - most < smallest) {
        most = bytes <= residual ? bytes : bytes - smallest;
    }
    return most <= residual && most >= smallest ? most : 0;
}

/* The pair's move with bytes whose `via` is the next after `last`; 0: none. */
static uint32_t next_move(const mpath_move_t *list, uint32_t first, int last)
{
    uint32_t move, best = 0;

    for (move = first; move != 0; move = list[move].next) {
        if (list[move].bytes > 0 && list[move].via > last && (best == 0 || list[move].via < list[best].via)) {
            best = move;
        }
    }
    return best;
}

/* The flows of a pair with moves: what did not move comes first. Returns where the next flow goes. */
static mpath_flow_t *emit_pair(const mpath_moves_t *moves, mpath_flow_t *flow, int source, int destination,
                               mpath_moves_path_t path_of, const void *problem)
{
    size_t pair              = mpath_moves_pair(moves, source, destination);
    const mpath_move_t *list = moves->list;
    uint32_t first           = moves->head[pair], move;
    uint64_t offset          = mpath_moves_left_of(moves, pair);

    if (offset > 0) {
        mpath_flow_put(flow++, source, destination, 0, 0, offset);
    }
    for (move = next_move(list, first, -1); move != 0;
         move = list[first].next == 0 ? 0 : next_move(list, first, list[move].via)) {
        mpath_flow_put(flow++, source, destination, path_of(problem, source, destination, list[move].via), offset,
                       list[move].bytes);
        offset += list[move].bytes;
    }
    return flow;
}

static mpath_flow_t *emit_row(mpath_flow_t *flow, int source, const uint64_t *demand, int num_ranks)
{
    int destination;

    for (destination = 0; destination < num_ranks; destination++) {
        mpath_flow_put(flow, source, destination, 0, 0, demand[destination]);
        flow += demand[destination] != 0 && destination != source;
    }
    return flow;
}

/* The same where some pairs have moves. */
static mpath_flow_t *emit_moved_row(const mpath_moves_t *moves, mpath_flow_t *flow, int source, const uint64_t *demand,
                                    mpath_moves_path_t path_of, const void *problem)
{
    int num_ranks        = (int)moves->num_ranks, destination;
    const uint32_t *head = moves->head + mpath_moves_pair(moves, source, 0);

    for (destination = 0; destination < num_ranks; destination++) {
        if (head[destination] != 0) {
            flow = emit_pair(moves, flow, source, destination, path_of, problem);
            continue;
        }
        mpath_flow_put(flow, source, destination, 0, 0, demand[destination]);
        flow += demand[destination] != 0 && destination != source;
    }
    return flow;
}

mpath_status_t mpath_moves_emit(const mpath_moves_t *moves, mpath_plan_t *plan, const uint64_t *demand, int num_ranks,
                                size_t num_pairs, mpath_moves_path_t path_of, const void *problem)
{
    mpath_status_t status;
    mpath_flow_t *flow;
    int source;

    /* one more: a flow is written before it is known whether it counts */
    status = mpath_plan_reserve(plan, num_pairs + moves->count + 1);
    if (status != MPATH_OK) {
        return status;
    }
    flow = plan->flows + plan->num_flows;
    for (source = 0; source < num_ranks; source++, demand += num_ranks) {
        if (moves->list == NULL || !moves->row[source]) {
            flow = emit_row(flow, source, demand, num_ranks);
        } else {
            flow = emit_moved_row(moves, flow, source, demand, path_of, problem);
        }
    }
    plan->num_flows = (size_t)(flow - plan->flows);
    return MPATH_OK;
}
