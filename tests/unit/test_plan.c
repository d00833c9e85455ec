/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans: what each policy does, edge cases, the promises about relays, fragments and equal rails, and determinism. */
#include "unit/plan_support.h"

static void nothing_to_send(void **state)
{
    mpath_policy_t policy;
    mpath_plan_t *plan;
    plan_case_t c;
    int r;

    (void)state;
    plan_case_machines(&c, 2, 2, RATE, HOST);
    plan_case_build(&c, 2, MPATH_REACH_AFFINE, 0);
    for (policy = MPATH_POLICY_MPATH; policy <= MPATH_POLICY_PAIRS; policy++) {
        for (r = 0; r < 4; r++) {
            *cell(&c, r, r) = policy == MPATH_POLICY_DIRECT ? 0 : UINT64_MAX; /* the diagonal does not count */
        }
        plan = make_plan(&c, policy);
        assert_int_equal(num_flows(plan), 0);
        assert_int_equal(mpath_plan_z_ns(plan), 0);
        assert_int_equal(mpath_plan_bottleneck(plan), -1);
        mpath_plan_destroy(plan);
    }
    assert_int_equal(mpath_plan_all_rails_bound_ns(c.topo, c.demand), 0);
    plan_case_release(&c);
}

/* As many rails as a node may have: the last ones are used, and with a spine those that nodes do not share. */
static void as_many_rails_as_there_may_be(void **state)
{
    const uint32_t fabrics[] = {0, MPATH_FABRIC_SPINE};
    mpath_plan_t *plan;
    plan_case_t c;

    (void)state;
    for (int i = 0; i < 2; i++) {
        plan_case_machines(&c, 2, MPATH_MAX_NICS, RATE, 64 * HOST);
        for (int nic = 0; nic < MPATH_MAX_NICS; nic++) {
            c.machines[0].nics[nic].up = (i == 0) || (nic < MPATH_MAX_NICS / 2);
            c.machines[1].nics[nic].up = nic >= MPATH_MAX_NICS / 2;
        }
        plan_case_build(&c, 2, MPATH_REACH_ALL, fabrics[i]);
        *cell(&c, 0, 2) = 256 * MIB;
        *cell(&c, 1, 3) = 64 * MIB;
        plan            = make_plan(&c, MPATH_POLICY_MPATH);
        assert_int_equal(mpath_plan_z_ns(plan), 320ull * MIB * 1000000000 / (MPATH_MAX_NICS / 2 * RATE));
        assert_gap(plan, 0);
        mpath_plan_destroy(plan);
        plan_case_release(&c);
    }
}

static void one_rank(void **state)
{
    mpath_plan_t *plan;
    plan_case_t c;

    (void)state;
    plan_case_machines(&c, 1, 1, RATE, HOST);
    plan_case_build(&c, 1, MPATH_REACH_ALL, 0);
    *cell(&c, 0, 0) = MIB;
    plan            = make_plan(&c, MPATH_POLICY_MPATH);
    assert_int_equal(num_flows(plan), 0);
    mpath_plan_destroy(plan);
    plan_case_release(&c);
}

static void one_pair_takes_every_rail(void **state)
{
    mpath_plan_t *plan;
    plan_case_t c;
    int nic;

    (void)state;
    plan_case_machines(&c, 2, 4, RATE, HOST);
    plan_case_build(&c, 4, MPATH_REACH_ALL, 0);
    *cell(&c, 1, 6) = 8 * MIB;
    plan            = make_plan(&c, MPATH_POLICY_MPATH);
    for (nic = 0; nic < 4; nic++) {
        assert_int_equal(load_of(&c, plan, MPATH_RESOURCE_NIC_TX, 0, nic), 2 * MIB);
        assert_int_equal(load_of(&c, plan, MPATH_RESOURCE_NIC_RX, 1, nic), 2 * MIB);
    }
    assert_int_equal(num_flows(plan), 4);
    assert_int_equal(mpath_plan_relayed_bytes(plan), 0);
    assert_int_equal(mpath_plan_bound_ns(plan), mpath_plan_all_rails_bound_ns(c.topo, c.demand));
    assert_gap(plan, 0);
    mpath_plan_destroy(plan);
    plan_case_release(&c);
}

/* A NIC is no faster than those of its rail on the other nodes: the cut knows it, without a search. */
static void bound_knows_the_other_end_of_a_rail(void **state)
{
    mpath_plan_t *plan;
    plan_case_t c;

    (void)state;
    plan_case_machines(&c, 2, 2, RATE, HOST);
    c.machines[0].nics[1].rate_bps = RATE / 4;
    c.machines[1].nics[0].rate_bps = RATE / 4;
    plan_case_build(&c, 2, MPATH_REACH_ALL, 0);
    *cell(&c, 0, 2) = 8 * MIB;
    plan            = make_plan(&c, MPATH_POLICY_DIRECT);
    assert_int_equal(mpath_plan_bound_ns(plan), 8ull * MIB * 1000000000 / (RATE / 2));
    mpath_plan_destroy(plan);
    plan = make_plan(&c, MPATH_POLICY_MPATH);
    assert_gap(plan, 0);
    mpath_plan_destroy(plan);
    plan_case_release(&c);
}

static void small_pairs_keep_their_static_routes(void **state)
{
    mpath_access_mode_t access;
    const mpath_flow_t *flows;
    size_t count, i;
    mpath_plan_t *plan;
    plan_case_t c;
    int s, d;

    (void)state;
    for (access = MPATH_REACH_ALL; access <= MPATH_REACH_AFFINE; access++) {
        plan_case_machines(&c, 2, 4, RATE, HOST);
        plan_case_build(&c, 4, access, 0);
        for (s = 0; s < 8; s++) {
            for (d = 0; d < 8; d++) {
                *cell(&c, s, d) = 4096;
            }
        }
        plan  = make_plan(&c, MPATH_POLICY_MPATH);
        flows = mpath_plan_flows(plan, &count);
        assert_int_equal(count, 56);
        for (i = 0; i < count; i++) {
            assert_int_equal(flows[i].path, 0);
        }
        assert_gap(plan, 0);
        mpath_plan_destroy(plan);
        plan_case_release(&c);
    }
}

static void pairs_below_two_fragments_stay_whole(void **state)
{
    mpath_plan_t *plan;
    plan_case_t c;

    (void)state;
    plan_case_machines(&c, 2, 4, RATE, HOST);
    plan_case_build(&c, 4, MPATH_REACH_ALL, 0);
    *cell(&c, 0, 4) = 2 * FRAGMENT - 1;
    plan            = make_plan(&c, MPATH_POLICY_MPATH);
    assert_int_equal(num_flows(plan), 1);
    mpath_plan_destroy(plan);
    *cell(&c, 0, 4) = 2 * FRAGMENT;
    plan            = make_plan(&c, MPATH_POLICY_MPATH);
    assert_int_equal(num_flows(plan), 2);
    mpath_plan_destroy(plan);
    plan_case_release(&c);
}

/* Small pairs of one sender still spread, each as a whole. */
static void small_pairs_of_a_hot_sender_spread(void **state)
{
    mpath_plan_t *plan;
    plan_case_t c;
    int d, nic;

    (void)state;
    plan_case_machines(&c, 2, 4, RATE, HOST);
    plan_case_build(&c, 8, MPATH_REACH_ALL, 0);
    for (d = 8; d < 16; d++) {
        *cell(&c, 2, d) = 40000;
    }
    plan = make_plan(&c, MPATH_POLICY_MPATH);
    assert_int_equal(num_flows(plan), 8);
    for (nic = 0; nic < 4; nic++) {
        assert_int_equal(load_of(&c, plan, MPATH_RESOURCE_NIC_TX, 0, nic), 80000);
    }
    mpath_plan_destroy(plan);
    plan_case_release(&c);
}

static void hot_sender_loads_all_rails_equally(void **state)
{
    mpath_plan_t *plan;
    plan_case_t c;
    int d, nic;

    (void)state;
    plan_case_machines(&c, 3, 4, RATE, HOST);
    plan_case_build(&c, 4, MPATH_REACH_ALL, 0);
    for (d = 4; d < 12; d++) {
        *cell(&c, 2, d) = 3 * MIB;
    }
    plan = make_plan(&c, MPATH_POLICY_MPATH);
    for (nic = 0; nic < 4; nic++) {
        assert_int_equal(load_of(&c, plan, MPATH_RESOURCE_NIC_TX, 0, nic), 6 * MIB);
    }
    assert_int_equal(num_flows(plan), 8); /* whole pairs are enough */
    assert_int_equal(mpath_plan_relayed_bytes(plan), 0);
    mpath_plan_destroy(plan);
    plan_case_release(&c);
}

static void same_node_has_one_path(void **state)
{
    mpath_plan_t *plan;
    plan_case_t c;

    (void)state;
    plan_case_machines(&c, 1, 4, RATE, HOST);
    plan_case_build(&c, 4, MPATH_REACH_AFFINE, 0);
    *cell(&c, 0, 3) = 8 * MIB;
    plan            = make_plan(&c, MPATH_POLICY_MPATH);
    assert_int_equal(num_flows(plan), 1);
    assert_int_equal(mpath_plan_z_ns(plan), (8 * MIB * 1000000000 + HOST - 1) / HOST);
    assert_gap(plan, 0);
    mpath_plan_destroy(plan);
    plan_case_release(&c);
}

/* A hot receiver behind one NIC: what is above the target moves, and each moved byte passes one relay. */
static void hot_receiver_pays_one_relay_per_moved_byte(void **state)
{
    uint64_t direct, moved;
    mpath_plan_t *plan, *other;
    plan_case_t c;

    (void)state;
    plan_case_machines(&c, 2, 4, RATE, HOST);
    plan_case_build(&c, 4, MPATH_REACH_AFFINE, MPATH_FABRIC_SPINE);
    mpath_demand_hot(8, 1, 700000, 8 * MIB, 1, c.demand);
    other  = make_plan(&c, MPATH_POLICY_DIRECT);
    direct = load_of(&c, other, MPATH_RESOURCE_NIC_RX, 0, 1);
    plan   = make_plan(&c, MPATH_POLICY_MPATH);
    moved  = direct - load_of(&c, plan, MPATH_RESOURCE_NIC_RX, 0, 1);
    assert_gap(plan, 10);
    assert_true(mpath_plan_z_ns(other) > 3 * mpath_plan_z_ns(plan));
    assert_int_equal(mpath_plan_relayed_bytes(other), 0);
    assert_true(mpath_plan_relayed_bytes(plan) >= moved);
    assert_true(mpath_plan_relayed_bytes(plan) <= moved + moved / 100);
    mpath_plan_destroy(plan);
    mpath_plan_destroy(other);
    plan_case_release(&c);
}

static void degraded_rail_gets_its_share(void **state)
{
    mpath_plan_t *plan;
    plan_case_t c;
    int s, d;

    (void)state;
    plan_case_machines(&c, 2, 4, RATE, HOST);
    c.machines[0].nics[2].rate_bps = RATE / 4;
    plan_case_build(&c, 4, MPATH_REACH_ALL, 0);
    for (s = 0; s < 8; s++) {
        for (d = 0; d < 8; d++) {
            *cell(&c, s, d) = 8 * MIB;
        }
    }
    plan = make_plan(&c, MPATH_POLICY_MPATH);
    assert_gap(plan, 10000);
    /* 16 pairs of 8 MiB leave node 0 over 3.25 rails */
    assert_true(mpath_plan_z_ns(plan) <= (uint64_t)(128 * MIB * 4 / 13) * 1000000000 / RATE * 101 / 100);
    mpath_plan_destroy(plan);
    plan_case_release(&c);
}

/*
 * Pairs too small to split, in sum four times more than the slow rail should take: they go elsewhere, each as a whole.
 */
static void small_pairs_leave_a_degraded_rail(void **state)
{
    mpath_access_mode_t access;
    mpath_plan_t *plan, *direct;
    plan_case_t c;

    (void)state;
    for (access = MPATH_REACH_ALL; access <= MPATH_REACH_AFFINE; access++) {
        plan_case_machines(&c, 3, 4, RATE, HOST);
        c.machines[0].nics[1].rate_bps = RATE / 4;
        plan_case_build(&c, 6, access, access == MPATH_REACH_AFFINE ? MPATH_FABRIC_SPINE : 0);
        mpath_demand_zipf(18, 800000, 7, 18 * 24 * 1024, 1, c.demand);
        plan   = make_plan(&c, MPATH_POLICY_MPATH);
        direct = make_plan(&c, MPATH_POLICY_DIRECT);
        assert_gap(plan, 100000);
        assert_true(mpath_plan_z_ns(direct) > 2 * mpath_plan_z_ns(plan));
        assert_int_equal(plan_case_crumbs(&c, plan, FRAGMENT), 0);
        mpath_plan_destroy(plan);
        mpath_plan_destroy(direct);
        plan_case_release(&c);
    }
}

static void policies_take_the_paths_they_promise(void **state)
{
    const mpath_flow_t *flows;
    size_t count, i;
    mpath_plan_t *plan;
    mpath_path_t path;
    plan_case_t c;

    (void)state;
    plan_case_machines(&c, 2, 4, RATE, HOST);
    plan_case_build(&c, 4, MPATH_REACH_AFFINE, 0);
    mpath_demand_hot(8, 1, 500000, 8 * MIB, 1, c.demand);
    plan  = make_plan(&c, MPATH_POLICY_DIRECT);
    flows = mpath_plan_flows(plan, &count);
    for (i = 0; i < count; i++) {
        assert_int_equal(flows[i].path, 0);
    }
    mpath_plan_destroy(plan);
    plan  = make_plan(&c, MPATH_POLICY_PXN);
    flows = mpath_plan_flows(plan, &count);
    for (i = 0; i < count; i++) {
        mpath_topo_path(c.topo, flows[i].source, flows[i].destination, flows[i].path, &path);
        if (flows[i].source / 4 != flows[i].destination / 4) {
            assert_int_equal(path.hops[path.num_hops - 1].lane, MPATH_LANE_RAIL);
            assert_int_equal(path.hops[path.num_hops - 1].nic_to, flows[i].destination % 4);
            assert_true(path.num_relays <= 1);
        }
    }
    mpath_plan_destroy(plan);
    plan_case_release(&c);

    plan_case_machines(&c, 2, 4, RATE, HOST);
    plan_case_build(&c, 1, MPATH_REACH_ALL, 0);
    *cell(&c, 0, 1) = 8 * MIB + 3;
    *cell(&c, 1, 0) = 3 * FRAGMENT; /* enough for three pieces only */
    plan            = make_plan(&c, MPATH_POLICY_STRIPE);
    flows           = mpath_plan_flows(plan, &count);
    assert_int_equal(count, 7);
    assert_int_equal(flows[0].bytes, 2 * MIB + 1);
    assert_int_equal(flows[3].bytes, 2 * MIB);
    mpath_plan_destroy(plan);
    plan_case_release(&c);
}

static void unreachable_pairs_are_named(void **state)
{
    mpath_policy_t policy;
    mpath_plan_t *plan = NULL;
    mpath_plan_params_t params;
    plan_case_t c;

    (void)state;
    plan_case_machines(&c, 2, 2, RATE, HOST);
    c.machines[0].nics[0].up = 0;
    c.machines[1].nics[1].up = 0;
    plan_case_build(&c, 2, MPATH_REACH_ALL, 0);
    *cell(&c, 1, 2) = 77;
    mpath_plan_params_init(&params);
    for (policy = MPATH_POLICY_MPATH; policy <= MPATH_POLICY_PAIRS; policy++) {
        params.policy = policy;
        capture_start();
        assert_int_equal(mpath_plan_create(c.topo, c.demand, &params, &plan), MPATH_ERR_UNREACHABLE);
        capture_stop();
        assert_int_equal(capture_count(), 1);
        assert_non_null(strstr(capture_text(), "rank 1 has 77 bytes for rank 2, but no path"));
        assert_null(plan);
    }
    plan_case_release(&c);
}

/* Several equal machines, all NICs down on all: equal rails, but none. */
static void no_rails_at_all(void **state)
{
    mpath_plan_t *plan = NULL;
    plan_case_t c;

    (void)state;
    plan_case_machines(&c, 2, 1, RATE, HOST);
    c.machines[0].nics[0].up = 0;
    c.machines[1].nics[0].up = 0;
    plan_case_build(&c, 2, MPATH_REACH_ALL, 0);
    *cell(&c, 0, 1) = MIB;
    plan            = make_plan(&c, MPATH_POLICY_MPATH);
    assert_int_equal(num_flows(plan), 1);
    mpath_plan_destroy(plan);
    plan_case_release(&c);
}

static void too_many_bytes_are_refused(void **state)
{
    mpath_plan_t *plan = NULL;
    plan_case_t c;

    (void)state;
    plan_case_machines(&c, 2, 2, RATE, HOST);
    plan_case_build(&c, 1, MPATH_REACH_ALL, 0);
    *cell(&c, 0, 1) = 1ull << 62;
    capture_start();
    assert_int_equal(mpath_plan_create(c.topo, c.demand, NULL, &plan), MPATH_ERR_PARAM);
    capture_stop();
    assert_non_null(strstr(capture_text(), "add up to 2^62 bytes or more"));
    *cell(&c, 0, 1) = (1ull << 62) - 1;
    assert_int_equal(mpath_plan_create(c.topo, c.demand, NULL, &plan), MPATH_OK);
    assert_true(mpath_plan_z_ns(plan) >= mpath_plan_bound_ns(plan));
    mpath_plan_destroy(plan);
    plan_case_release(&c);
}

/*
 * The same bits whatever the compiler: a checksum over the plans of drawn cases, made and kept. tests/golden/compilers
 * runs this with several compilers. When the planner is changed on purpose, the failure's message has the new value.
 */
static void plans_are_the_same_everywhere(void **state)
{
    const uint64_t expected = 0xbdfd3d1242c9003dull;
    mpath_plan_t *plan, *again, *kept;
    uint64_t seed, all = 0;
    plan_case_t c;
    size_t cells;

    (void)state;
    for (seed = 0; seed < 600; seed++) {
        if (seed < 400) {
            plan_case_draw(&c, seed, 32);
        } else {
            plan_case_draw_gpus(&c, seed, 24);
        }
        cells = (size_t)mpath_topo_num_ranks(c.topo) * (size_t)mpath_topo_num_ranks(c.topo);
        plan  = make_plan(&c, MPATH_POLICY_MPATH);
        again = make_plan(&c, MPATH_POLICY_MPATH);
        assert_true(mpath_plan_signature(plan) == mpath_plan_signature(again));
        if (cells > 1) {
            c.demand[1] += c.demand[1] / 50;
        }
        assert_int_equal(mpath_plan_follow(c.topo, c.demand, NULL, plan, &kept), MPATH_OK);
        all = (all ^ mpath_plan_signature(plan) ^ mpath_plan_bound_ns(plan)) * 0x9e3779b97f4a7c15ull;
        all ^= all >> 29;
        all = (all ^ mpath_plan_signature(kept)) * 0x9e3779b97f4a7c15ull;
        mpath_plan_destroy(plan);
        mpath_plan_destroy(again);
        mpath_plan_destroy(kept);
        plan_case_release(&c);
    }
    if (all != expected) {
        fail_msg("the plans have checksum 0x%016llx", (unsigned long long)all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_to_send),
        cmocka_unit_test(one_rank),
        cmocka_unit_test(one_pair_takes_every_rail),
        cmocka_unit_test(as_many_rails_as_there_may_be),
        cmocka_unit_test(bound_knows_the_other_end_of_a_rail),
        cmocka_unit_test(small_pairs_keep_their_static_routes),
        cmocka_unit_test(pairs_below_two_fragments_stay_whole),
        cmocka_unit_test(small_pairs_of_a_hot_sender_spread),
        cmocka_unit_test(hot_sender_loads_all_rails_equally),
        cmocka_unit_test(same_node_has_one_path),
        cmocka_unit_test(hot_receiver_pays_one_relay_per_moved_byte),
        cmocka_unit_test(degraded_rail_gets_its_share),
        cmocka_unit_test(small_pairs_leave_a_degraded_rail),
        cmocka_unit_test(policies_take_the_paths_they_promise),
        cmocka_unit_test(unreachable_pairs_are_named),
        cmocka_unit_test(no_rails_at_all),
        cmocka_unit_test(too_many_bytes_are_refused),
        cmocka_unit_test(plans_are_the_same_everywhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
