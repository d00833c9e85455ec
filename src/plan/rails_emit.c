/* SPDX-License-Identifier: BSD-3-Clause */
/* Flows and loads of a plan on rails, and which of a pair's paths a rail is. */
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

static int path_of(const void *problem, int source, int destination, int via)
{
    return path_of_rail(problem, source, destination, via);
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
    mpath_status_t status = mpath_moves_emit(&rails->moves, plan, rails->demand, rails->num_ranks, rails->num_pairs,
                                             path_of, rails);

    if (status == MPATH_OK) {
        set_loads(rails, plan);
    }
    return status;
}
