/* SPDX-License-Identifier: BSD-3-Clause */
/* Constructions of plans, and what they need to keep the routes of an earlier one. */
#ifndef MPATH_PLAN_FOLLOW_H
#define MPATH_PLAN_FOLLOW_H

#include "plan/internal.h"

/* Bytes of a pair that take a path other than 0. */
typedef struct mpath_moved_flow {
    int32_t source, destination, path;
    uint64_t bytes;
} mpath_moved_flow_t;

/*
 * The flows of `previous` off path 0, scaled to `demand`: each pair is divided as it was, in whole fragments; flows
 * go where a pair has become too small for them. Malloc'ed, in the order of flows.
 */
mpath_status_t mpath_plan_scale(const mpath_plan_t *previous, const uint64_t *demand, int num_ranks, uint64_t smallest,
                                mpath_moved_flow_t **moved_p, size_t *num_moved_p);

/*
 * Fills a plan from moved flows; what they leave takes path 0. Sets flows, loads, relayed bytes, Z and the bottleneck, on any
 * topology. MPATH_DECLINED: it has no such path.
 */
mpath_status_t mpath_plan_replay(mpath_plan_t *plan, const mpath_topo_t *topo, const uint64_t *demand,
                                 const mpath_moved_flow_t *moved, size_t num_moved);

/* What a construction moves off the static routes: what Z asks for, or what is known. */
typedef struct mpath_wanted {
    const mpath_plan_params_t *params; /* of the policy mpath, or direct, which moves nothing; NULL: `moved` */
    const mpath_moved_flow_t *moved;
    size_t num_moved;
} mpath_wanted_t;

/*
 * Fills a plan without a list of all paths: flows, loads, relayed bytes, Z, the bottleneck and the bound, that of the
 * cuts or a better one. MPATH_DECLINED: the topology is of no kind that is known, or lacks the path of a moved flow; the plan
 * is empty.
 */
mpath_status_t mpath_plan_construct(mpath_plan_t *plan, const mpath_topo_t *topo, const uint64_t *demand,
                                    const mpath_wanted_t *wanted);

/* plan/construct/construct.c: for ranks on GPUs, one on each, joined in any manner, and for ranks on hosts. */
mpath_status_t mpath_plan_ports(mpath_plan_t *plan, const mpath_topo_t *topo, const uint64_t *demand,
                                const mpath_wanted_t *wanted);

#endif
