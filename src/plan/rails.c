/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans on rails: static routes where they are good, else what is above the targets moves, else shares per rail. */
#include "plan/follow.h"
#include "plan/rails.h"

#include <stdlib.h>
#include <string.h>

#define MOST_RELAXED_PPM 2000000

static mpath_ratio_t rails_z(const mpath_rails_t *rails)
{
    mpath_ratio_t z = {0, 1}, ratio;
    uint64_t most;
    int lane;

    for (lane = 0; lane < rails->num_lanes; lane++) {
        most = rails->tx[lane] > rails->rx[lane] ? rails->tx[lane] : rails->rx[lane];
        if (most > 0) {
            ratio.num = most;
            ratio.den = rails->capacity[lane];
            z         = mpath_ratio_max(z, ratio);
        }
    }
    return z;
}

/* The most that a node's NICs or its memory must carry whatever the routes are. */
static mpath_ratio_t cut_bound(const mpath_rails_t *rails)
{
    mpath_ratio_t bound = {0, 1}, ratio;
    int node, rail;

    for (node = 0; node < rails->num_nodes; node++) {
        ratio.num = rails->own[node];
        ratio.den = mpath_topo_machine(rails->topo, node)->host_memory_bps;
        bound     = mpath_ratio_max(bound, ratio);
        ratio.num = rails->out[node] > rails->in[node] ? rails->out[node] : rails->in[node];
        for (rail = 0, ratio.den = 0; rail < rails->num_rails; rail++) {
            ratio.den += rails->capacity[node * rails->num_rails + rail]; /* rates are below 2^50 */
        }
        if (ratio.den > 0) {
            bound = mpath_ratio_max(bound, ratio);
        }
    }
    return bound;
}

/* Bytes that a lane of this rate may carry, rounded up: rounding down could leave bytes without a place. */
static void set_targets(mpath_rails_t *rails, mpath_ratio_t z)
{
    uint64_t capacity = 0, target = 0;
    int lane;

    for (lane = 0; lane < rails->num_lanes; lane++) {
        if (rails->capacity[lane] != capacity) {
            capacity = rails->capacity[lane];
            target   = mpath_ratio_times_up(z, capacity);
        }
        rails->target[lane] = target;
    }
}

/* The same share for every rail; only for equal rails. */
static void even_shares(const mpath_rails_t *rails, uint64_t *shares)
{
    size_t pairs   = (size_t)rails->num_nodes * (size_t)rails->num_nodes, i;
    uint64_t count = (uint64_t)rails->num_rails, rail;

    for (i = 0; i < pairs; i++) {
        for (rail = 0; rail < count; rail++) {
            /* the odd bytes of different pairs go to different rails */
            *shares++ = rails->between[i] / count + ((rail + i) % count < rails->between[i] % count);
        }
    }
}

/*
 * Whole small pairs may fit nowhere within the targets: raises the targets step by step until what is left above them
 * finds a place. Each step keeps the moves of the one before.
 */
static mpath_status_t relax(mpath_rails_t *rails, mpath_ratio_t goal, uint32_t gap_ppm)
{
    mpath_status_t status = MPATH_OK;
    uint32_t ppm;

    for (ppm = gap_ppm < 1000 ? 1000 : gap_ppm; ppm < MOST_RELAXED_PPM && status == MPATH_OK; ppm += ppm / 2) {
        if (mpath_ratio_within(rails_z(rails), goal, ppm)) {
            break;
        }
        set_targets(rails, mpath_ratio_raise(goal, ppm));
        status = mpath_rails_shed(rails);
    }
    return status;
}

/* Plan by moves; where lanes stay overloaded, plan by shares, and keep the better. */
static mpath_status_t move_or_split(mpath_rails_t *rails, mpath_ratio_t goal, uint64_t *shares, uint32_t gap_ppm)
{
    mpath_ratio_t z_moved;
    mpath_status_t status;

    status = mpath_rails_balance(rails);
    if (status == MPATH_OK) {
        status = mpath_rails_shed(rails);
    }
    if (status != MPATH_OK) {
        return status;
    }
    z_moved = rails_z(rails);
    if (mpath_ratio_within(z_moved, goal, gap_ppm)) {
        return MPATH_OK;
    }
    mpath_rails_reset(rails);
    if (rails->equal) {
        even_shares(rails, shares);
    }
    status = mpath_rails_split(rails, shares);
    if (status == MPATH_OK && mpath_ratio_less(z_moved, rails_z(rails))) {
        mpath_rails_reset(rails);
        status = mpath_rails_balance(rails);
        if (status == MPATH_OK) {
            status = mpath_rails_shed(rails);
        }
    }
    return status == MPATH_OK ? relax(rails, goal, gap_ppm) : status;
}

static mpath_status_t improve(mpath_rails_t *rails, mpath_plan_t *plan, const mpath_plan_params_t *params)
{
    size_t nodes = (size_t)rails->num_nodes;
    uint64_t *shares;
    mpath_ratio_t goal = plan->bound;
    mpath_status_t status;

    shares = malloc(nodes * nodes * (size_t)rails->num_rails * sizeof(*shares));
    if (shares == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    status = mpath_rails_begin_moves(rails);
    if (status == MPATH_OK && !rails->equal) {
        status = mpath_rails_solve(rails, params->gap_ppm, params->max_rounds, shares, &plan->bound, &goal);
    }
    if (status == MPATH_OK) {
        set_targets(rails, goal);
        status = move_or_split(rails, goal, shares, params->gap_ppm);
    }
    free(shares);
    return status;
}

mpath_status_t mpath_plan_rails(mpath_plan_t *plan, const mpath_topo_t *topo, const uint64_t *demand,
                                const mpath_plan_params_t *params)
{
    mpath_status_t status;
    mpath_rails_t rails;

    status = mpath_rails_init(&rails, topo, demand, params->min_fragment_bytes);
    if (status != MPATH_OK) {
        return status;
    }
    status = mpath_rails_count(&rails);
    if (status == MPATH_OK) {
        plan->bound = cut_bound(&rails);
        if (params->policy == MPATH_POLICY_MPATH &&
            !mpath_ratio_within(rails_z(&rails), plan->bound, params->gap_ppm)) {
            status = improve(&rails, plan, params);
        }
    }
    if (status == MPATH_OK) {
        status = mpath_rails_emit(&rails, plan);
    }
    if (status == MPATH_OK) {
        mpath_plan_find_bottleneck(plan, topo);
        if (params->policy == MPATH_POLICY_MPATH && mpath_ratio_less(plan->bound, plan->z)) {
            status = mpath_rails_rivals(&rails, plan->z, &plan->rivals);
        }
    }
    mpath_rails_release(&rails);
    return status;
}

static mpath_status_t move_pieces(mpath_rails_t *rails, const mpath_piece_t *pieces, size_t num_pieces)
{
    mpath_status_t status = mpath_rails_begin_moves(rails);
    size_t i;
    int rail;

    for (i = 0; i < num_pieces && status == MPATH_OK; i++) {
        if (rails->node[pieces[i].source] == rails->node[pieces[i].destination]) {
            return MPATH_DECLINED;
        }
        rail = mpath_rails_rail_of(rails, pieces[i].source, pieces[i].destination, pieces[i].path);
        if (rail < 0) {
            return MPATH_DECLINED;
        }
        status = mpath_rails_move_pair(rails, pieces[i].source, pieces[i].destination, rail, pieces[i].bytes);
    }
    return status;
}

mpath_status_t mpath_plan_replay_rails(mpath_plan_t *plan, const mpath_topo_t *topo, const uint64_t *demand,
                                       const mpath_piece_t *pieces, size_t num_pieces)
{
    mpath_status_t status;
    mpath_rails_t rails;

    status = mpath_rails_init(&rails, topo, demand, 1);
    if (status != MPATH_OK) {
        return status;
    }
    status = mpath_rails_count(&rails);
    if (status == MPATH_OK) {
        plan->bound = cut_bound(&rails);
        status      = num_pieces > 0 ? move_pieces(&rails, pieces, num_pieces) : MPATH_OK;
    }
    if (status == MPATH_OK) {
        status = mpath_rails_emit(&rails, plan);
    }
    if (status == MPATH_OK) {
        mpath_plan_find_bottleneck(plan, topo);
    }
    mpath_rails_release(&rails);
    return status;
}
