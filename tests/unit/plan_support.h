/* SPDX-License-Identifier: BSD-3-Clause */
/* For the tests of plans: makes and checks the plan of a case, and reads it. */
#ifndef MPATH_TESTS_UNIT_PLAN_SUPPORT_H
#define MPATH_TESTS_UNIT_PLAN_SUPPORT_H

#include "unit/capture.h"
#include "unit/plan_cases.h"

#include "plan/demand.h"

#define RATE 25000000ull
#define HOST 8000000000ull
#define MIB (1024ull * 1024)
#define FRAGMENT (32 * 1024)

static inline mpath_plan_t *make_plan(const plan_case_t *c, mpath_policy_t policy)
{
    mpath_plan_params_t params;
    mpath_plan_t *plan;

    mpath_plan_params_init(&params);
    params.policy = policy;
    assert_int_equal(mpath_plan_create(c->topo, c->demand, &params, &plan), MPATH_OK);
    plan_case_check(c, plan);
    return plan;
}

static inline uint64_t *cell(const plan_case_t *c, int source, int destination)
{
    return &c->demand[source * mpath_topo_num_ranks(c->topo) + destination];
}

static inline uint64_t load_of(const plan_case_t *c, const mpath_plan_t *plan, mpath_resource_kind_t kind, int node,
                               int index)
{
    return mpath_plan_loads(plan)[mpath_topo_resource_find(c->topo, kind, node, index)];
}

static inline size_t num_flows(const mpath_plan_t *plan)
{
    size_t count;

    mpath_plan_flows(plan, &count);
    return count;
}

static inline void assert_gap(const mpath_plan_t *plan, uint64_t ppm)
{
    assert_true(mpath_plan_z_ns(plan) <= mpath_plan_bound_ns(plan) * (1000000 + ppm) / 1000000 + 1);
}

#endif
