/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * More GPUs than the general search takes, in no order: NICs shared, doubled, unequal or down, links missing, NVLink
 * domains, host memory only. The plans are valid, near their bounds, and no policy without a search is better.
 */
#include "plan/demand.h"
#include "tools/plan/clusters.h"
#include "unit/plan_support.h"

#include <stdlib.h>
#include <string.h>

#define NUM_RANKS 136
#define MOST_PPM 10000

static void set_demand(plan_case_t *c, int kind, int num_ranks)
{
    uint64_t seed = 1;
    int i;

    switch (kind) {
    case 0:
        mpath_demand_hot(num_ranks, num_ranks / 2 + 1, 700000, (uint64_t)num_ranks * MIB, 1, c->demand);
        break;
    case 1:
        mpath_demand_zipf(num_ranks, 800000, 1, (uint64_t)num_ranks * MIB, 1, c->demand);
        break;
    default: /* one rank of eight sends much */
        for (i = 0; i < num_ranks * num_ranks; i++) {
            c->demand[i] = plan_case_random(&seed) % (2 * MIB) * (i / num_ranks % 8 == 1 ? 5 : 1);
        }
        break;
    }
}

static void compare_with_policies(const plan_case_t *c, const mpath_plan_t *plan, const char *what)
{
    static const mpath_policy_t policies[] = {MPATH_POLICY_DIRECT, MPATH_POLICY_STRIPE, MPATH_POLICY_PXN};
    mpath_plan_t *other;
    size_t i;

    for (i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
        other = make_plan(c, policies[i]);
        if (mpath_plan_z_ns(plan) > mpath_plan_z_ns(other)) {
            fail_msg("%s: Z is %llu ns, that of policy %d %llu ns", what, (unsigned long long)mpath_plan_z_ns(plan),
                     (int)policies[i], (unsigned long long)mpath_plan_z_ns(other));
        }
        mpath_plan_destroy(other);
    }
}

static void examine(plan_case_t *c, int kind, int demand)
{
    mpath_plan_t *plan = make_plan(c, MPATH_POLICY_MPATH), *kept;
    double gap         = (double)mpath_plan_z_ns(plan) / (double)mpath_plan_bound_ns(plan) - 1;

    if (gap > MOST_PPM / 1e6) {
        fail_msg("%s, demand %d: Z is %.2f %% above the bound", plan_cluster_name(kind), demand, gap * 100);
    }
    assert_int_equal(plan_case_crumbs(c, plan, 32 * 1024), 0);
    compare_with_policies(c, plan, plan_cluster_name(kind));
    /* every path of the plan is found again */
    assert_int_equal(mpath_plan_follow(c->topo, c->demand, NULL, plan, &kept), MPATH_OK);
    assert_true(mpath_plan_is_kept(kept, NULL));
    assert_true(mpath_plan_signature(kept) == mpath_plan_signature(plan));
    plan_case_check(c, kept);
    mpath_plan_destroy(kept);
    mpath_plan_destroy(plan);
}

static void irregular_clusters_are_near_the_bound(void **state)
{
    int kind, fabric, demand, num_ranks;
    plan_case_t c;

    (void)state;
    for (kind = 0; kind < PLAN_NUM_CLUSTERS; kind++) {
        for (fabric = plan_cluster_needs_spine(kind); fabric < 2; fabric++) {
            memset(&c, 0, sizeof(c));
            assert_int_equal(plan_cluster_make(kind, NUM_RANKS, fabric ? MPATH_FABRIC_SPINE : 0, &c.topo), MPATH_OK);
            num_ranks = mpath_topo_num_ranks(c.topo);
            c.demand  = calloc((size_t)num_ranks * (size_t)num_ranks, sizeof(*c.demand));
            assert_non_null(c.demand);
            for (demand = 0; demand < 3; demand++) {
                set_demand(&c, demand, num_ranks);
                examine(&c, kind, demand);
            }
            plan_case_release(&c);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(irregular_clusters_are_near_the_bound)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
