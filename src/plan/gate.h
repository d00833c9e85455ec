/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Gate: what step 4 of a collective knows of a plan, for who chooses (coll/algorithm.h): bytes inside nodes and between
 * them, and the predicted times of the plan and of the static routes. From agreed data and from the topology only, so that
 * all ranks have the same.
 *
 * Between nodes static routes alone are as fast as the functions that mpath replaces, which take them too, and every
 * further rail is a gain. Relays cost time of their own: where the time model (plan/time_model.h) says that the static
 * routes end before the plan, mpath takes those.
 */
#ifndef MPATH_PLAN_GATE_H
#define MPATH_PLAN_GATE_H

#include "plan/plan.h"
#include "plan/time_model.h"
#include "topo/topo.h"

#include <stdint.h>

/* What the decision needs to know of the bytes that are to be moved. */
typedef struct mpath_gate_view {
    uint64_t largest_bytes; /* of a pair */
    uint64_t between_bytes; /* from node to node, all pairs */
} mpath_gate_view_t;

/* demand[source * ranks + destination] of what the plan has to carry. */
void mpath_gate_look(const mpath_topo_t *topo, const uint64_t *demand, mpath_gate_view_t *view);

/* What the time model says of a plan and of the static routes (at least) for the same demand. */
typedef struct mpath_gate_forecast {
    uint64_t plan_ns, direct_ns;
    mpath_plan_t *direct; /* the static routes; NULL where the plan takes no others */
} mpath_gate_forecast_t;

/*
 * Makes the plan of the static routes, unless `plan` is that, and predicts the times of both. Where Z alone tells them
 * apart, or for more than MPATH_GATE_MAX_FLOWS flows, the times are Z. `plan_params` are those of the plan.
 */
#define MPATH_GATE_MAX_FLOWS 65536
mpath_status_t mpath_gate_forecast(const mpath_topo_t *topo, const uint64_t *demand,
                                   const mpath_plan_params_t *plan_params, const mpath_time_params_t *time_params,
                                   const mpath_plan_t *plan, mpath_gate_forecast_t *forecast);
void mpath_gate_forecast_release(mpath_gate_forecast_t *forecast);

/* Nodes have one rail that every rank drives: there is nothing but the static routes. */
int mpath_gate_has_one_rail(const mpath_topo_t *topo);

#endif
