/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans of many ranks: dealt to the nodes in any way, many per rail, and clusters too large for a search. */
#include "unit/plan_support.h"

#include <stdlib.h>

/* Ranks dealt to the nodes like cards: nothing may depend on a node's ranks being consecutive. */
static void ranks_dealt_round_robin(void **state)
{
    mpath_place_t places[24];
    mpath_plan_t *plan;
    plan_case_t c;
    int rank;

    (void)state;
    plan_case_machines(&c, 3, 4, RATE, HOST);
    plan_case_build(&c, 8, MPATH_REACH_AFFINE, MPATH_FABRIC_SPINE);
    mpath_topo_destroy(c.topo);
    for (rank = 0; rank < 24; rank++) {
        places[rank].node = rank % 3;
        places[rank].nic  = rank / 3 % 4;
        places[rank].gpu  = -1;
    }
    assert_int_equal(mpath_topo_create(c.machines, 3, places, 24, &c.params, &c.topo), MPATH_OK);
    mpath_demand_zipf(24, 800000, 5, 64 * MIB, 1, c.demand);
    plan = make_plan(&c, MPATH_POLICY_MPATH);
    assert_gap(plan, 2000);
    mpath_plan_destroy(plan);
    plan_case_release(&c);
}

static void many_ranks_per_rail(void **state)
{
    mpath_plan_t *plan;
    plan_case_t c;

    (void)state;
    plan_case_machines(&c, 2, 3, RATE, HOST);
    plan_case_build(&c, 16, MPATH_REACH_AFFINE, MPATH_FABRIC_SPINE);
    mpath_demand_hot(32, 30, 900000, 64 * MIB, 1, c.demand);
    plan = make_plan(&c, MPATH_POLICY_MPATH);
    assert_gap(plan, 2000);
    mpath_plan_destroy(plan);
    plan_case_release(&c);
}

/*
 * Large clusters, where nothing but the rails' construction runs: dense and skewed by receiver, by sender and at
 * random, rails equal, one degraded, one down. In units of many fragments the plan is near the bound.
 */
static void large_clusters_are_near_the_bound(void **state)
{
    uint64_t seed = 1;
    mpath_plan_t *plan;
    plan_case_t c;
    int kind, i;

    (void)state;
    for (kind = 0; kind < 18; kind++) {
        plan_case_machines(&c, 18, 8, RATE, 100 * HOST);
        c.machines[5].nics[3].rate_bps = kind % 3 == 1 ? RATE / 4 : RATE;
        c.machines[7].nics[0].up       = kind % 3 != 2;
        plan_case_build(&c, 8, kind % 2 ? MPATH_REACH_AFFINE : MPATH_REACH_ALL, kind % 4 == 3 ? MPATH_FABRIC_SPINE : 0);
        switch (kind / 6) {
        case 0:
            mpath_demand_zipf(144, 800000, seed++, 512 * MIB, 1, c.demand);
            break;
        case 1:
            mpath_demand_hot(144, 77, 700000, 512 * MIB, 1, c.demand);
            break;
        default:
            for (i = 0; i < 144 * 144; i++) {
                c.demand[i] = plan_case_random(&seed) % (4 * MIB) * (i / 144 % 8 == 1 ? 5 : 1);
            }
            break;
        }
        plan = make_plan(&c, MPATH_POLICY_MPATH);
        assert_gap(plan, 5000);
        mpath_plan_destroy(plan);
        plan_case_release(&c);
    }
}

/* The cluster of a preset with one NIC slow or down; GPUs beside it then have no NIC, and the nodes are unlike. */
static void make_gpus(plan_case_t *c, int kind)
{
    mpath_place_t places[PLAN_CASE_MAX_NODES * 8];
    int num_ranks, i;

    memset(c, 0, sizeof(*c));
    assert_int_equal(mpath_topo_preset("hgx-h200", 18, &c->topo), MPATH_OK);
    num_ranks = mpath_topo_num_ranks(c->topo);
    c->params = *mpath_topo_params(c->topo);
    for (i = 0; i < 18; i++) {
        mpath_topo_copy_machine(c->topo, i, &c->machines[i]);
        c->gpus[i] = *mpath_topo_gpus(c->topo, i);
    }
    for (i = 0; i < num_ranks; i++) {
        places[i] = *mpath_topo_place(c->topo, i);
    }
    if (kind % 3 == 1) {
        c->machines[5].nics[3].rate_bps /= 4;
    } else if (kind % 3 == 2) {
        c->machines[7].nics[0].up = 0;
    }
    mpath_topo_destroy(c->topo);
    assert_int_equal(mpath_topo_create_with_gpus(c->machines, c->gpus, 18, places, num_ranks, &c->params, &c->topo),
                     MPATH_OK);
    c->demand = calloc((size_t)num_ranks * (size_t)num_ranks, sizeof(*c->demand));
    assert_non_null(c->demand);
}

/* The same for GPUs, of which more than 128 are not searched either. */
static void large_gpu_clusters_are_near_the_bound(void **state)
{
    uint64_t seed = 1;
    mpath_plan_t *plan;
    plan_case_t c;
    int kind, i;

    (void)state;
    for (kind = 0; kind < 12; kind++) {
        make_gpus(&c, kind);
        switch (kind / 3) {
        case 0:
            mpath_demand_zipf(144, 800000, seed++, 512 * MIB, 1, c.demand);
            break;
        case 1:
            mpath_demand_hot(144, 77, 700000, 512 * MIB, 1, c.demand);
            break;
        default:
            for (i = 0; i < 144 * 144; i++) {
                c.demand[i] = plan_case_random(&seed) % (4 * MIB) * (kind / 3 == 2 && i / 144 % 8 == 1 ? 5 : 1);
            }
            break;
        }
        plan = make_plan(&c, MPATH_POLICY_MPATH);
        assert_gap(plan, 5000);
        assert_int_equal(plan_case_crumbs(&c, plan, FRAGMENT), 0);
        mpath_plan_destroy(plan);
        plan_case_release(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_dealt_round_robin),
        cmocka_unit_test(many_ranks_per_rail),
        cmocka_unit_test(large_clusters_are_near_the_bound),
        cmocka_unit_test(large_gpu_clusters_are_near_the_bound),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
