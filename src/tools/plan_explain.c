/* SPDX-License-Identifier: BSD-3-Clause */
/* Why a pair's bytes take the paths that they take: each path with its price, and what else it would lead to. */
#include "tools/plan_report.h"

#include "util/log.h"

#include <math.h>
#include <stdlib.h>

/* How steeply prices fall with the load, as late in the search: 1 % less load, half the price. */
#define ALPHA 100.0
/* A resource this full cannot take more without raising Z; also the planner's accepted gap. */
#define FULL 0.998
/* Prices that the accepted gap makes of one. */
#define SAME_PRICE 1.2

/* Bytes of the pair on one of its paths. */
static uint64_t bytes_on(const mpath_plan_t *plan, int source, int destination, int path)
{
    uint64_t bytes = 0;
    const mpath_flow_t *flows;
    size_t num_flows;

    flows = mpath_plan_flows(plan, &num_flows);
    for (size_t i = 0; i < num_flows; i++) {
        if ((flows[i].source == source) && (flows[i].destination == destination) &&
            ((path < 0) || (flows[i].path == path))) {
            bytes += flows[i].bytes;
        }
    }
    return bytes;
}

/* The loads without the pair. */
static void take_out(const mpath_topo_t *topo, const mpath_plan_t *plan, const plan_alternative_t *alternatives,
                     int count, uint64_t *loads)
{
    for (int r = 0; r < mpath_topo_num_resources(topo); r++) {
        loads[r] = mpath_plan_loads(plan)[r];
    }
    for (int k = 0; k < count; k++) {
        for (int i = 0; i < alternatives[k].route.num_resources; i++) {
            loads[alternatives[k].route.resources[i]] -= alternatives[k].bytes;
        }
    }
}

static double z_with(const mpath_topo_t *topo, const uint64_t *loads, const mpath_path_t *route, uint64_t bytes)
{
    double z = 0;

    for (int r = 0; r < mpath_topo_num_resources(topo); r++) {
        uint64_t load = loads[r];

        for (int i = 0; i < route->num_resources; i++) {
            load += ((int)route->resources[i] == r) ? bytes : 0;
        }
        z = fmax(z, (double)load / (double)mpath_topo_resource(topo, r)->capacity_bps);
    }
    return z;
}

/* Fullest resource and price, from the plan's loads. */
static void appraise(const mpath_topo_t *topo, const mpath_plan_t *plan, double z, plan_alternative_t *alternative)
{
    alternative->fullest = -1;
    for (int i = 0; i < alternative->route.num_resources; i++) {
        int r       = (int)alternative->route.resources[i];
        double fill = (z > 0) ? plan_resource_seconds(topo, plan, r) / z : 0;

        if ((alternative->fullest < 0) || (fill > alternative->fill)) {
            alternative->fullest = r;
            alternative->fill    = fill;
        }
        alternative->price += exp2(ALPHA * (fill - 1)) / (double)mpath_topo_resource(topo, r)->capacity_bps;
    }
}

static const char *verdict(const plan_alternative_t *alternative, const plan_alternative_t *all, int count)
{
    int relays = INT32_MAX;

    for (int k = 0; k < count; k++) {
        if (all[k].bytes > 0 && all[k].route.num_relays < relays) {
            relays = all[k].route.num_relays;
        }
    }
    if (alternative->bytes > 0) {
        return (alternative->fill >= FULL) ? "used; what is on it makes Z" : "used; has room left";
    }
    if ((alternative->fill >= FULL) && (relays != INT32_MAX) && (alternative->route.num_relays > relays) &&
        (alternative->price < SAME_PRICE)) {
        return "not used: as full as those in use, with more relays";
    }
    if (alternative->fill >= FULL) {
        return "not used: full, any byte on it would raise Z";
    }
    if (relays != INT32_MAX && alternative->route.num_relays > relays) {
        return "not used: has room, but costs relays that Z does not need";
    }
    return "not used: has room that Z does not need";
}

mpath_status_t plan_explain(const mpath_topo_t *topo, const mpath_plan_t *plan, int source, int destination,
                            plan_alternative_t **alternatives_p, int *count_p)
{
    int count                        = mpath_topo_num_paths(topo, source, destination);
    plan_alternative_t *alternatives = calloc((size_t)count + 1, sizeof(*alternatives));
    uint64_t *loads                  = calloc((size_t)mpath_topo_num_resources(topo) + 1, sizeof(*loads));
    double z = (double)mpath_plan_z_ns(plan) / 1e9, cheapest = INFINITY;
    uint64_t bytes;

    if ((alternatives == NULL) || (loads == NULL)) {
        free(alternatives);
        free(loads);
        mpath_error("plan: no memory for %d paths; the pair is not explained", count);
        return MPATH_ERR_NO_MEMORY;
    }
    for (int k = 0; k < count; k++) {
        alternatives[k].path = k;
        mpath_topo_path(topo, source, destination, k, &alternatives[k].route);
        alternatives[k].bytes = bytes_on(plan, source, destination, k);
        appraise(topo, plan, z, &alternatives[k]);
        cheapest = fmin(cheapest, alternatives[k].price);
    }
    take_out(topo, plan, alternatives, count, loads);
    bytes = bytes_on(plan, source, destination, -1);
    for (int k = 0; k < count; k++) {
        alternatives[k].z_if_all_s = z_with(topo, loads, &alternatives[k].route, bytes);
        alternatives[k].price      = (cheapest > 0) ? alternatives[k].price / cheapest : 1;
        alternatives[k].verdict    = verdict(&alternatives[k], alternatives, count);
    }
    free(loads);
    *alternatives_p = alternatives;
    *count_p        = count;
    return MPATH_OK;
}
