/* SPDX-License-Identifier: BSD-3-Clause */
/* Flows and loads of a plan on rails: rows without moves are written straight, the others pair by pair. */
#include "plan/rails.h"

/* Number of the pair's path over `rail`: the common rails in order, with the static route before them. */
static int path_of_rail(const mpath_rails_t *rails, int source, int destination, int rail)
{
    uint32_t common     = mpath_rails_common(rails, source, destination);
    mpath_route_t route = mpath_rails_static(rails, source, destination);
    int position        = __builtin_popcount(common & ((1u << rail) - 1));

    if (route.tx != route.rx) {
        return position + 1;
    }
    return rail == route.tx ? 0 : rail < route.tx ? position + 1 : position;
}

int mpath_rails_rail_of(const mpath_rails_t *rails, int source, int destination, int path)
{
    uint32_t common     = mpath_rails_common(rails, source, destination);
    mpath_route_t route = mpath_rails_static(rails, source, destination);

    for (; common != 0; common &= common - 1) {
        int rail = __builtin_ctz(common);

        if ((rail != route.tx || rail != route.rx) && path_of_rail(rails, source, destination, rail) == path) {
            return rail;
        }
    }
    return -1;
}

static void emit_row(const mpath_rails_t *rails, mpath_plan_t *plan, int source, const uint64_t *demand)
{
    mpath_flow_t *flow = &plan->flows[plan->num_flows];
    int num_ranks      = rails->num_ranks, destination;

    for (destination = 0; destination < num_ranks; destination++) {
        flow->source      = source;
        flow->destination = destination;
        flow->path        = 0;
        flow->reserved    = 0;
        flow->offset      = 0;
        flow->bytes       = demand[destination];
        flow += demand[destination] != 0 && destination != source;
    }
    plan->num_flows = (size_t)(flow - plan->flows);
}

/* The pair's bytes by rail, in the order of its paths; what did not move is first. */
static void emit_pair(const mpath_rails_t *rails, mpath_plan_t *plan, int source, int destination, uint64_t bytes)
{
    uint32_t move  = rails->head[(size_t)source * (size_t)rails->num_ranks + (size_t)destination];
    uint64_t moved = 0, offset, by_rail[MPATH_MAX_NICS] = {0};
    int rail;

    for (; move != 0; move = rails->moves[move].next) {
        by_rail[rails->moves[move].rail] += rails->moves[move].bytes;
        moved += rails->moves[move].bytes;
    }
    offset = bytes - moved;
    if (offset > 0) {
        mpath_plan_append(plan, source, destination, 0, 0, offset);
    }
    for (rail = 0; rail < rails->num_rails && moved > 0; rail++) {
        if (by_rail[rail] > 0) {
            mpath_plan_append(plan, source, destination, path_of_rail(rails, source, destination, rail), offset,
                              by_rail[rail]);
            offset += by_rail[rail];
            moved -= by_rail[rail];
        }
    }
}

static void set_loads(const mpath_rails_t *rails, mpath_plan_t *plan)
{
    int node, rail, lane, nic;

    for (node = 0; node < rails->num_nodes; node++) {
        plan->loads[mpath_topo_resource_find(rails->topo, MPATH_RESOURCE_HOST_MEMORY, node, 0)] = rails->own[node] +
                                                                                                  rails->relay[node];
        for (rail = 0; rail < rails->num_rails; rail++) {
            lane = node * rails->num_rails + rail;
            nic  = rails->lane_nic[lane];
            if (rails->capacity[lane] > 0) {
                plan->loads[mpath_topo_resource_find(rails->topo, MPATH_RESOURCE_NIC_TX, node, nic)] = rails->tx[lane];
                plan->loads[mpath_topo_resource_find(rails->topo, MPATH_RESOURCE_NIC_RX, node, nic)] = rails->rx[lane];
            }
        }
    }
    plan->relayed_bytes = rails->relayed_bytes;
}

mpath_status_t mpath_rails_emit(const mpath_rails_t *rails, mpath_plan_t *plan)
{
    const uint64_t *demand = rails->demand;
    const uint32_t *head;
    mpath_status_t status;
    int source, destination;

    /* one more: a row is written before it is known whether its last entry counts */
    status = mpath_plan_reserve(plan, rails->num_pairs + rails->num_moves + 1);
    if (status != MPATH_OK) {
        return status;
    }
    for (source = 0; source < rails->num_ranks; source++, demand += rails->num_ranks) {
        if (!rails->row_moves[source]) {
            emit_row(rails, plan, source, demand);
            continue;
        }
        head = rails->head + mpath_rails_pair(rails, source, 0);
        for (destination = 0; destination < rails->num_ranks; destination++) {
            if (head[destination] != 0) {
                emit_pair(rails, plan, source, destination, demand[destination]);
            } else if (demand[destination] > 0 && destination != source) {
                mpath_plan_append(plan, source, destination, 0, 0, demand[destination]);
            }
        }
    }
    set_loads(rails, plan);
    return MPATH_OK;
}
