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
    uint32_t rivals; /* policies whose Z may be below that of this plan, 1 << mpath_policy_t */
};

#define MPATH_PLAN_ALL_RIVALS (1u << MPATH_POLICY_DIRECT | 1u << MPATH_POLICY_STRIPE | 1u << MPATH_POLICY_PXN)

/* Makes room for `more` flows. */
mpath_status_t mpath_plan_reserve(mpath_plan_t *plan, size_t more);

/* Appends one piece; room has been reserved. */
static inline void mpath_plan_append(mpath_plan_t *plan, int source, int destination, int path, uint64_t offset,
                                     uint64_t bytes)
{
    mpath_flow_t *flow = &plan->flows[plan->num_flows++];

    flow->source      = source;
    flow->destination = destination;
    flow->path        = path;
    flow->reserved    = 0;
    flow->offset      = offset;
    flow->bytes       = bytes;
}

/*
 * MPATH_ERR_PARAM, logged, when the demands are too many. The sums of the planner are 64 bits wide: all bytes together,
 * twice (a path may pass a resource twice).
 */
mpath_status_t mpath_plan_check_total(const uint64_t *demand, size_t num_ranks);

/* The pair without a path, logged. */
mpath_status_t mpath_plan_unreachable(int source, int destination, uint64_t bytes);

/* policy.c: the policies without a search. Fills flows, loads and relayed bytes. */
mpath_status_t mpath_plan_static(mpath_plan_t *plan, const mpath_topo_t *topo, const uint64_t *demand,
                                 const mpath_plan_params_t *params);

/*
 * general.c: minimum congestion on any topology. Fills flows, loads, relayed bytes and the bound. The search starts
 * from the routes of `previous`, a plan on a topology with the same paths; NULL: from nothing.
 */
mpath_status_t mpath_plan_general(mpath_plan_t *plan, const mpath_topo_t *topo, const uint64_t *demand,
                                  const mpath_plan_params_t *params, const mpath_plan_t *previous);

/* mpath_plan_create(), with the routes of an earlier plan to start searches from; NULL: none. */
mpath_status_t mpath_plan_create_from(const mpath_topo_t *topo, const uint64_t *demand,
                                      const mpath_plan_params_t *params, const mpath_plan_t *previous,
                                      mpath_plan_t **plan_p);

/*
 * rails.c: the same for nodes joined by rails, without a list of all paths; also the policy direct. MPATH_DECLINED
 * where nodes are joined in other ways. May miss the optimum where the memory of nodes, or crossings of a spine, decide
 * it. Sets Z and the bottleneck too, and which policy without a search may be better.
 */
mpath_status_t mpath_plan_rails(mpath_plan_t *plan, const mpath_topo_t *topo, const uint64_t *demand,
                                const mpath_plan_params_t *params);

/*
 * ports.c: the same for ranks on GPUs, one on each, joined in any way (plan/ports.h). The bound is that of the cuts,
 * and where that is not reached, what prices prove.
 */
mpath_status_t mpath_plan_ports(mpath_plan_t *plan, const mpath_topo_t *topo, const uint64_t *demand,
                                const mpath_plan_params_t *params);

/* bound.c: the all-rails bound as a ratio. */
mpath_status_t mpath_plan_cuts(const mpath_topo_t *topo, const uint64_t *demand, mpath_ratio_t *bound_p);

/* An empty plan; NULL: no memory. */
mpath_plan_t *mpath_plan_new(const mpath_topo_t *topo);
/* Back to an empty plan. */
void mpath_plan_clear(mpath_plan_t *plan);

/* Z and the bottleneck from the loads. */
void mpath_plan_find_bottleneck(mpath_plan_t *plan, const mpath_topo_t *topo);

#endif
