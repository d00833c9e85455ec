/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans on ports: static routes where they are good, else what is above the targets moves. */
#include "plan/follow.h"
#include "plan/ports.h"

/* Bytes that a resource may carry, rounded up: rounding down could leave bytes without a place. */
static void set_targets(mpath_ports_t *ports, mpath_ratio_t z)
{
    uint64_t capacity = 0, target = 0;
    int r;

    for (r = 0; r < ports->num_resources; r++) {
        if (ports->capacity[r] != capacity) {
            capacity = ports->capacity[r];
            target   = mpath_ratio_times_up(z, capacity);
        }
        ports->target[r] = target;
    }
}

/* Balances the NICs of every node first; where static routes cross, and on uniform nodes only. */
static mpath_status_t balance_and_shed(mpath_ports_t *ports)
{
    mpath_status_t status = MPATH_OK;
    int node;

    for (node = 0; node < 2 * ports->num_nodes && status == MPATH_OK; node++) {
        status = mpath_ports_balance(ports, node % ports->num_nodes, node < ports->num_nodes);
    }
    return status == MPATH_OK ? mpath_ports_shed(ports) : status;
}

static int is_good(const mpath_ports_t *ports, mpath_ratio_t bound, uint32_t gap_ppm)
{
    return mpath_ratio_within(mpath_ports_z(ports, ports->load), bound, gap_ppm);
}

/*
 * Moves what is above the bound to where there is room. Several nodes mostly leave room enough on both ends; between
 * two the NICs have to be balanced with care.
 */
static mpath_status_t move(mpath_ports_t *ports, mpath_ratio_t bound, uint32_t gap_ppm)
{
    int can_balance       = !ports->one_node && ports->crossing && ports->uniform;
    mpath_status_t status = MPATH_OK;

    if (!can_balance || ports->num_nodes > 2) {
        status = mpath_ports_shed(ports);
        if (status != MPATH_OK || !can_balance || is_good(ports, bound, gap_ppm)) {
            return status;
        }
        mpath_ports_reset(ports);
    }
    return balance_and_shed(ports);
}

/* The same, then to where there is as little too much as is good enough; then evens out the rest. */
static mpath_status_t improve(mpath_ports_t *ports, mpath_ratio_t *bound, uint32_t gap_ppm)
{
    mpath_status_t status = mpath_ports_begin_moves(ports);

    if (status == MPATH_OK) {
        set_targets(ports, *bound);
        status = move(ports, *bound, gap_ppm);
    }
    if (status != MPATH_OK || is_good(ports, *bound, gap_ppm)) {
        return status;
    }
    set_targets(ports, mpath_ratio_raise(*bound, gap_ppm));
    status = mpath_ports_shed(ports);
    return status == MPATH_OK ? mpath_ports_repair(ports, bound, gap_ppm) : status;
}

mpath_status_t mpath_plan_ports(mpath_plan_t *plan, const mpath_topo_t *topo, const uint64_t *demand,
                                const mpath_plan_params_t *params)
{
    mpath_status_t status;
    mpath_ports_t ports;

    status = mpath_ports_init(&ports, topo, demand, params->min_fragment_bytes);
    if (status != MPATH_OK) {
        return status;
    }
    status = mpath_ports_count(&ports);
    if (status == MPATH_OK) {
        plan->bound    = mpath_ports_cuts(&ports);
        ports.static_z = mpath_ports_z(&ports, ports.load);
    }
    if (status == MPATH_OK && params->policy == MPATH_POLICY_MPATH &&
        !mpath_ratio_within(ports.static_z, plan->bound, params->gap_ppm)) {
        status = improve(&ports, &plan->bound, params->gap_ppm);
    }
    if (status == MPATH_OK) {
        status = mpath_ports_emit(&ports, plan);
    }
    if (status == MPATH_OK) {
        plan->z = mpath_ports_z_at(&ports, ports.load, &plan->bottleneck);
        if (params->policy == MPATH_POLICY_MPATH && mpath_ratio_less(plan->bound, plan->z)) {
            status = mpath_ports_rivals(&ports, plan->z, &plan->rivals);
        }
    }
    mpath_ports_release(&ports);
    return status;
}

static mpath_status_t move_pieces(mpath_ports_t *ports, const mpath_piece_t *pieces, size_t num_pieces)
{
    mpath_status_t status = mpath_ports_begin_moves(ports);
    size_t i;
    int via;

    for (i = 0; i < num_pieces && status == MPATH_OK; i++) {
        via = mpath_ports_via_of(ports, pieces[i].source, pieces[i].destination, pieces[i].path);
        if (via == MPATH_PORTS_STATIC) {
            return MPATH_DECLINED;
        }
        status = mpath_ports_move_pair(ports, pieces[i].source, pieces[i].destination, via, pieces[i].bytes);
    }
    return status;
}

mpath_status_t mpath_plan_replay_ports(mpath_plan_t *plan, const mpath_topo_t *topo, const uint64_t *demand,
                                       const mpath_piece_t *pieces, size_t num_pieces)
{
    mpath_status_t status;
    mpath_ports_t ports;

    status = mpath_ports_init(&ports, topo, demand, 1);
    if (status != MPATH_OK) {
        return status;
    }
    status = mpath_ports_count(&ports);
    if (status == MPATH_OK) {
        plan->bound = mpath_ports_cuts(&ports);
        status      = num_pieces > 0 ? move_pieces(&ports, pieces, num_pieces) : MPATH_OK;
    }
    if (status == MPATH_OK) {
        status = mpath_ports_emit(&ports, plan);
    }
    if (status == MPATH_OK) {
        plan->z = mpath_ports_z_at(&ports, ports.load, &plan->bottleneck);
    }
    mpath_ports_release(&ports);
    return status;
}
