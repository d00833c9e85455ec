/* SPDX-License-Identifier: BSD-3-Clause */
/* A plan under construction, shared by the files that build plans. */
#ifndef MPATH_PLAN_INTERNAL_H
#define MPATH_PLAN_INTERNAL_H

#include "plan/fixed.h"
#include "plan/plan.h"

struct mpath_plan {
    mpath_flow_t *flows;
    size_t num_flows, capacity;
    uint64_t *loads; /* by resource */
    int num_resources;
    int bottleneck;
    mpath_ratio_t z, bound;
    uint64_t relayed_bytes;
    uint32_t kept_loss_ppm;
    int is_kept;
    int is_part;        /* mpath_plan_is_part() */
    uint64_t signature; /* of a part */
};

/* Grows the capacity to hold `more` flows. */
mpath_status_t mpath_plan_reserve(mpath_plan_t *plan, size_t more);

/* Writes a flow. */
static inline void mpath_flow_put(mpath_flow_t *flow, int source, int destination, int path, uint64_t offset,
                                  uint64_t bytes)
{
    flow->source      = source;
    flow->destination = destination;
    flow->path        = path;
    flow->number      = 0;
    flow->offset      = offset;
    flow->bytes       = bytes;
}

/* Appends one flow; its memory has been reserved. */
static inline void mpath_plan_append(mpath_plan_t *plan, int source, int destination, int path, uint64_t offset,
                                     uint64_t bytes)
{
    mpath_flow_put(&plan->flows[plan->num_flows++], source, destination, path, offset, bytes);
}

/*
 * MPATH_ERR_PARAM, logged, when the demands are too many. The sums of the planner are 64 bits wide: all bytes together,
 * twice (a path may pass a resource twice).
 */
mpath_status_t mpath_plan_check_total(const uint64_t *demand, size_t num_ranks);

/* The pair without a path, logged. */
mpath_status_t mpath_plan_unreachable(int source, int destination, uint64_t bytes);

/*
 * plan/search/search.c: minimum congestion on any topology. Fills flows, loads, relayed bytes and the bound. The search starts
 * from the routes of `previous`, a plan on a topology with the same paths; NULL: from nothing.
 */
mpath_status_t mpath_plan_general(mpath_plan_t *plan, const mpath_topo_t *topo, const uint64_t *demand,
                                  const mpath_plan_params_t *params, const mpath_plan_t *previous);

/* mpath_plan_create(), with the routes of an earlier plan to start searches from; NULL: none. */
mpath_status_t mpath_plan_create_from(const mpath_topo_t *topo, const uint64_t *demand,
                                      const mpath_plan_params_t *params, const mpath_plan_t *previous,
                                      mpath_plan_t **plan_p);

/* plan/pairs.c: by pairs of nodes. MPATH_DECLINED where rails are not equal. Sets Z and the bottleneck, too. */
mpath_status_t mpath_plan_pairs(mpath_plan_t *plan, const mpath_topo_t *topo, const uint64_t *demand,
                                const mpath_plan_params_t *params);

/* plan/plan.c: the all-rails bound as a ratio. */
mpath_status_t mpath_plan_cuts(const mpath_topo_t *topo, const uint64_t *demand, mpath_ratio_t *bound_p);

/* An empty plan; NULL: no memory. `topo` NULL: one without loads. */
mpath_plan_t *mpath_plan_new(const mpath_topo_t *topo);
/* Computes what mpath_plan_signature() returns. */
uint64_t mpath_plan_sign(const mpath_plan_t *plan);
/* Back to an empty plan. */
void mpath_plan_clear(mpath_plan_t *plan);

/* Z and the bottleneck from the loads. */
void mpath_plan_find_bottleneck(mpath_plan_t *plan, const mpath_topo_t *topo);

#endif
