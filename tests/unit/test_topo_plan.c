/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans on the presets: better than the static routes, never below the bound, the known gain where NICs decide. */
#include "plan/demand.h"
#include "plan/plan.h"
#include "topo/topo.h"
#include "unit/capture.h"

#include <stdlib.h>
#include <string.h>

#define BYTES (64ull << 20)

static uint64_t *hot_demand(const mpath_topo_t *topo, uint32_t hot_ppm)
{
    int ranks        = mpath_topo_num_ranks(topo);
    uint64_t *demand = malloc((size_t)ranks * (size_t)ranks * sizeof(*demand));

    assert_non_null(demand);
    mpath_demand_hot(ranks, 0, hot_ppm, BYTES, 1, demand);
    return demand;
}

static mpath_plan_t *make_plan(const mpath_topo_t *topo, const uint64_t *demand, mpath_policy_t policy)
{
    mpath_plan_params_t params;
    mpath_plan_t *plan = NULL;

    mpath_plan_params_init(&params);
    params.policy = policy;
    assert_int_equal(mpath_plan_create(topo, demand, &params, &plan), MPATH_OK);
    return plan;
}

/* All bytes are shipped, and the loads are those of the flows' paths. */
static void check_plan(const mpath_topo_t *topo, const uint64_t *demand, const mpath_plan_t *plan)
{
    int ranks = mpath_topo_num_ranks(topo), resources = mpath_topo_num_resources(topo), r;
    uint64_t *left = malloc((size_t)ranks * (size_t)ranks * sizeof(*left)), *loads = calloc((size_t)resources, 8);
    const mpath_flow_t *flows;
    size_t num_flows, i;
    mpath_path_t path;

    assert_non_null(left);
    assert_non_null(loads);
    memcpy(left, demand, (size_t)ranks * (size_t)ranks * sizeof(*left));
    flows = mpath_plan_flows(plan, &num_flows);
    for (i = 0; i < num_flows; i++) {
        assert_in_range(flows[i].path, 0, mpath_topo_num_paths(topo, flows[i].source, flows[i].destination) - 1);
        assert_true(left[flows[i].source * ranks + flows[i].destination] >= flows[i].bytes);
        left[flows[i].source * ranks + flows[i].destination] -= flows[i].bytes;
        mpath_topo_path(topo, flows[i].source, flows[i].destination, flows[i].path, &path);
        for (r = 0; r < path.num_resources; r++) {
            loads[path.resources[r]] += flows[i].bytes;
        }
    }
    for (i = 0; i < (size_t)ranks * (size_t)ranks; i++) {
        assert_true((left[i] == 0) || (i % ((size_t)ranks + 1) == 0));
    }
    assert_memory_equal(loads, mpath_plan_loads(plan), (size_t)resources * sizeof(*loads));
    free(left);
    free(loads);
}

static void test_presets(void **state)
{
    static const char *const names[] = {"h100-mesh4", "hgx-h100", "hgx-h200", "h800", "a100", "gb200-nvl72"};
    mpath_plan_t *direct, *plan;
    mpath_topo_t *topo;
    uint64_t *demand;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_int_equal(mpath_topo_preset(names[i], 0, &topo), MPATH_OK);
        demand = hot_demand(topo, 700000);
        direct = make_plan(topo, demand, MPATH_POLICY_DIRECT);
        plan   = make_plan(topo, demand, MPATH_POLICY_MPATH);
        check_plan(topo, demand, direct);
        check_plan(topo, demand, plan);
        assert_true(mpath_plan_z_ns(plan) < mpath_plan_z_ns(direct));
        assert_true(mpath_plan_bound_ns(plan) <= mpath_plan_z_ns(plan));
        assert_true(mpath_plan_bound_ns(direct) <= mpath_plan_z_ns(direct));
        /* the search is good to a fifth of a percent; twice that leaves room for rounding to fragments */
        assert_true(mpath_plan_z_ns(plan) <= mpath_plan_bound_ns(plan) + mpath_plan_bound_ns(plan) / 250);
        mpath_plan_destroy(direct);
        mpath_plan_destroy(plan);
        free(demand);
        mpath_topo_destroy(topo);
    }
}

/*
 * Two nodes of four GPUs, where NICs decide. Per byte that a rank sends, the far ranks put 4 (h + (1 - h) / 8) on the
 * hot rank's NIC over static routes, and 4 (h + (1 - h) / 2) / 4 on each NIC of its node over all rails: a gain of
 * (1 + 7 h) / (1 + h). Without the even traffic to the hot rank that is the 8 h / (1 + h) of NIMBLE's rail bound.
 */
static void test_rail_bound(void **state)
{
    mpath_plan_t *direct, *plan;
    mpath_topo_t *topo;
    uint64_t *demand;
    double h, gain;
    uint32_t ppm;

    (void)state;
    assert_int_equal(mpath_topo_preset("h100-mesh4", 2, &topo), MPATH_OK);
    for (ppm = 300000; ppm <= 1000000; ppm += 100000) {
        h      = ppm / 1e6;
        demand = hot_demand(topo, ppm);
        direct = make_plan(topo, demand, MPATH_POLICY_DIRECT);
        plan   = make_plan(topo, demand, MPATH_POLICY_MPATH);
        gain   = (double)mpath_plan_z_ns(direct) / (double)mpath_plan_z_ns(plan);
        if ((gain < (1 + 7 * h) / (1 + h) * 0.99) || (gain > (1 + 7 * h) / (1 + h) * 1.001)) {
            fail_msg("h %.1f: gain %f", h, gain);
        }
        mpath_plan_destroy(direct);
        mpath_plan_destroy(plan);
        free(demand);
    }
    mpath_topo_destroy(topo);
}

/* A single pair of a mesh: 120 directly, 120 through each of two relays, and the host. */
static void test_mesh_pair(void **state)
{
    uint64_t demand[16] = {0};
    mpath_plan_t *direct, *plan;
    mpath_topo_t *topo;
    double gain;

    (void)state;
    assert_int_equal(mpath_topo_preset("h100-mesh4", 1, &topo), MPATH_OK);
    demand[1] = BYTES;
    direct    = make_plan(topo, demand, MPATH_POLICY_DIRECT);
    plan      = make_plan(topo, demand, MPATH_POLICY_MPATH);
    check_plan(topo, demand, plan);
    gain = (double)mpath_plan_z_ns(direct) / (double)mpath_plan_z_ns(plan);
    assert_true((gain > 0.99 * 415 / 120) && (gain < 1.001 * 415 / 120));
    mpath_plan_destroy(direct);
    mpath_plan_destroy(plan);
    mpath_topo_destroy(topo);
}

/* Nodes of one NVLink domain do not need their NICs, and bounds must not say so. */
static void test_domain_bound(void **state)
{
    uint64_t demand[64] = {0};
    mpath_topo_t *topo;
    mpath_plan_t *plan;

    (void)state;
    assert_int_equal(mpath_topo_preset("gb200-nvl72", 2, &topo), MPATH_OK);
    demand[7] = BYTES; /* rank 0 to rank 7, the other node */
    assert_int_equal(mpath_plan_all_rails_bound_ns(topo, demand), 0);
    plan = make_plan(topo, demand, MPATH_POLICY_MPATH);
    check_plan(topo, demand, plan);
    assert_true(mpath_plan_z_ns(plan) <= BYTES * 1000000000 / 900000000000ull + 1);
    assert_true(mpath_plan_bound_ns(plan) <= mpath_plan_z_ns(plan));
    mpath_plan_destroy(plan);
    mpath_topo_destroy(topo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_presets),
        cmocka_unit_test(test_rail_bound),
        cmocka_unit_test(test_mesh_pair),
        cmocka_unit_test(test_domain_bound),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
