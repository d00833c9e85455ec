/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Gate: step 4 of a collective. Does mpath carry this call, or the function that it replaces? Decided from agreed data
 * and from the topology only, so that all ranks decide alike.
 *
 * Between nodes mpath runs: its static routes alone are as fast as the functions it replaces, which take them too, and
 * every further rail is a gain. Relays cost time of their own: where the time model (plan/time_model.h) says that the
 * static routes end before the plan, mpath takes those. It steps aside where it has nothing to offer: between nodes
 * with a single rail that every rank may drive anyway, when the plan is predicted to be no faster than the static
 * routes; and inside one node for large messages, which MPI libraries copy once where mpath's rings copy twice.
 */
#ifndef MPATH_COLL_GATE_H
#define MPATH_COLL_GATE_H

#include "plan/plan.h"
#include "plan/time_model.h"
#include "topo/topo.h"
#include "util/param.h"

#include <stdint.h>

/* What the decision needs to know of the bytes that are to be moved. */
typedef struct mpath_gate_view {
    uint64_t largest_bytes; /* of a pair */
    uint64_t between_bytes; /* from node to node, all pairs */
} mpath_gate_view_t;

/* demand[source * ranks + destination] of what the plan has to carry. */
void mpath_gate_look(const mpath_topo_t *topo, const uint64_t *demand, mpath_gate_view_t *view);

/* Parameter gate, which a forced algorithm of MPI_Alltoallv overrides. */
int mpath_gate_of(const mpath_settings_t *settings);

/* Why mpath steps aside, a static text; NULL when it does not. */
const char *mpath_gate_before_plan(const mpath_settings_t *settings, const mpath_gate_view_t *view);

/* What the time model says of a plan and of the static routes (at least) for the same demand. */
typedef struct mpath_gate_forecast {
    uint64_t plan_ns, direct_ns;
    mpath_plan_t *direct; /* the static routes; NULL where the plan takes no others */
} mpath_gate_forecast_t;

/*
 * Makes the plan of the static routes, unless `plan` is that, and predicts the times of both. Where Z alone tells them
 * apart, or for more than MPATH_GATE_MAX_FLOWS pieces, the times are Z. `plan_params` are those of the plan.
 */
#define MPATH_GATE_MAX_FLOWS 65536
mpath_status_t mpath_gate_forecast(const mpath_topo_t *topo, const uint64_t *demand,
                                   const mpath_plan_params_t *plan_params, const mpath_time_params_t *time_params,
                                   const mpath_plan_t *plan, mpath_gate_forecast_t *forecast);
void mpath_gate_forecast_release(mpath_gate_forecast_t *forecast);

/* Nodes have one rail that every rank drives: there is nothing but the static routes. */
int mpath_gate_has_one_rail(const mpath_topo_t *topo);

/* Whether the forecast, or the static routes in it, are asked for. */
int mpath_gate_compares(const mpath_settings_t *settings);

typedef enum mpath_gate_choice {
    MPATH_GATE_PLAN,   /* move the plan's flows */
    MPATH_GATE_DIRECT, /* move those of forecast->direct */
    MPATH_GATE_ASIDE   /* the previous function runs; *because_p says why */
} mpath_gate_choice_t;

mpath_gate_choice_t mpath_gate_after_plan(const mpath_topo_t *topo, const mpath_gate_forecast_t *forecast,
                                          const char **because_p);

#endif
