/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans that keep earlier routes: noise moves none, a real change moves them at once, and what it costs is bounded. */
#include "unit/capture.h"
#include "unit/plan_cases.h"

#include "plan/demand.h"

#include <stdlib.h>
#include <string.h>

#define MIB (1024 * 1024)
#define FRAGMENT (32 * 1024)
#define GAP_PPM 2000
#define KEEP_PPM 20000
#define CALLS 100
#define KINDS 8

/* A cluster: host ranks or GPUs, in order or not. The machines can be changed and built again. */
static void make_case(plan_case_t *c, int kind)
{
    static const uint64_t gpu_seeds[] = {0, 1, 3, 10}; /* meshes, NVSwitches, a domain, in several states */

    if (kind < 4) {
        plan_case_machines(c, 3, 4, 25000000, 8000000000ull);
        if (kind == 3) {
            c->machines[1].nics[2].rate_bps /= 4;
        }
        plan_case_build(c, 4, kind == 0 ? MPATH_REACH_ALL : MPATH_REACH_AFFINE, kind == 2 ? MPATH_FABRIC_SPINE : 0);
    } else {
        plan_case_draw_gpus(c, gpu_seeds[kind - 4], 16);
    }
}

static size_t num_cells(const plan_case_t *c)
{
    return (size_t)mpath_topo_num_ranks(c->topo) * (size_t)mpath_topo_num_ranks(c->topo);
}

static void set_hot(plan_case_t *c, int hot)
{
    int num_ranks = mpath_topo_num_ranks(c->topo), s, d;

    mpath_demand_hot(num_ranks, hot, 700000, 64 * MIB, 1, c->demand);
    for (s = 0; s < num_ranks; s++) {
        for (d = 0; d < num_ranks; d++) {
            if (s != d && mpath_topo_num_paths(c->topo, s, d) == 0) {
                c->demand[s * num_ranks + d] = 0;
            }
        }
    }
}

/* `value` with up to `ppm` more or less. */
static uint64_t with_noise(uint64_t value, uint64_t *state, uint64_t ppm)
{
    return value - value / 1000000 * ppm + value / 1000000 * (plan_case_random(state) % (2 * ppm + 1));
}

static int has_same_routes(const mpath_plan_t *a, const mpath_plan_t *b)
{
    size_t num_a, num_b, i;
    const mpath_flow_t *x = mpath_plan_flows(a, &num_a), *y = mpath_plan_flows(b, &num_b);

    for (i = 0; i < num_a && num_a == num_b; i++) {
        if (x[i].source != y[i].source || x[i].destination != y[i].destination || x[i].path != y[i].path) {
            return 0;
        }
    }
    return num_a == num_b;
}

static mpath_plan_t *plan_anew(const plan_case_t *c)
{
    mpath_plan_t *plan;

    assert_int_equal(mpath_plan_create(c->topo, c->demand, NULL, &plan), MPATH_OK);
    assert_int_equal(mpath_plan_is_kept(plan, NULL), 0);
    plan_case_check(c, plan);
    return plan;
}

/* Follows the plan and takes its place; the loss is what the header promises. */
static void follow(const plan_case_t *c, mpath_plan_t **plan)
{
    mpath_plan_t *next, *again, *fresh = plan_anew(c);
    double most_ns; /* a search from the old routes may end elsewhere, within the gap that it accepts */
    uint32_t loss_ppm;

    most_ns = (double)mpath_plan_z_ns(fresh) * (1 + GAP_PPM / 1e6);
    assert_int_equal(mpath_plan_follow(c->topo, c->demand, NULL, *plan, &next), MPATH_OK);
    assert_int_equal(mpath_plan_follow(c->topo, c->demand, NULL, *plan, &again), MPATH_OK);
    assert_true(mpath_plan_signature(next) == mpath_plan_signature(again));
    plan_case_check(c, next);
    assert_int_equal(plan_case_crumbs(c, next, FRAGMENT), 0);
    if (mpath_plan_is_kept(next, &loss_ppm)) {
        assert_true(loss_ppm <= KEEP_PPM);
        most_ns *= 1 + loss_ppm / 1e6;
    }
    assert_true((double)mpath_plan_z_ns(next) <= most_ns + 2);
    mpath_plan_destroy(fresh);
    mpath_plan_destroy(again);
    mpath_plan_destroy(*plan);
    *plan = next;
}

static void noise_in_the_demand_moves_no_route(void **state)
{
    uint64_t *base, seed = 1;
    mpath_plan_t *first, *plan;
    plan_case_t c;
    int kind, call;
    size_t i;

    (void)state;
    for (kind = 0; kind < KINDS; kind++) {
        make_case(&c, kind);
        set_hot(&c, 1);
        first = plan_anew(&c);
        plan  = plan_anew(&c);
        base  = malloc(num_cells(&c) * sizeof(*base));
        assert_non_null(base);
        memcpy(base, c.demand, num_cells(&c) * sizeof(*base));
        for (call = 0; call < CALLS; call++) {
            for (i = 0; i < num_cells(&c); i++) {
                c.demand[i] = with_noise(base[i], &seed, 10000);
            }
            follow(&c, &plan);
            assert_true(mpath_plan_is_kept(plan, NULL));
            assert_true(has_same_routes(first, plan));
        }
        free(base);
        mpath_plan_destroy(first);
        mpath_plan_destroy(plan);
        plan_case_release(&c);
    }
}

/* Builds the topology again from the machines as they are now. */
static void rebuild(plan_case_t *c, mpath_topo_t **topo)
{
    int num_ranks = mpath_topo_num_ranks(c->topo), rank;
    mpath_place_t places[64];

    assert_in_range(num_ranks, 1, 64);
    for (rank = 0; rank < num_ranks; rank++) {
        places[rank] = *mpath_topo_place(c->topo, rank);
    }
    assert_int_equal(
        mpath_topo_create_with_gpus(c->machines, c->gpus, c->num_nodes, places, num_ranks, &c->params, topo), MPATH_OK);
}

static void noise_in_the_rates_moves_no_route(void **state)
{
    mpath_machine_t base[PLAN_CASE_MAX_NODES];
    mpath_plan_t *first, *plan;
    int kind, call, node, nic;
    mpath_topo_t *topo;
    uint64_t seed = 2;
    plan_case_t c;

    (void)state;
    for (kind = 0; kind < KINDS; kind++) {
        make_case(&c, kind);
        set_hot(&c, 1);
        first = plan_anew(&c);
        plan  = plan_anew(&c);
        memcpy(base, c.machines, sizeof(base));
        for (call = 0; call < CALLS; call++) {
            for (node = 0; node < c.num_nodes; node++) {
                for (nic = 0; nic < c.machines[node].num_nics; nic++) {
                    c.machines[node].nics[nic].rate_bps = with_noise(base[node].nics[nic].rate_bps, &seed, 10000);
                }
            }
            rebuild(&c, &topo);
            assert_true(mpath_plan_has_same_paths(c.topo, topo));
            mpath_topo_destroy(c.topo);
            c.topo = topo;
            follow(&c, &plan);
            assert_true(mpath_plan_is_kept(plan, NULL));
            assert_true(has_same_routes(first, plan));
        }
        mpath_plan_destroy(first);
        mpath_plan_destroy(plan);
        plan_case_release(&c);
    }
}

static void a_real_change_is_followed_at_once(void **state)
{
    mpath_plan_t *plan;
    mpath_topo_t *topo;
    plan_case_t c;
    int kind;

    (void)state;
    for (kind = 0; kind < 4; kind++) {
        make_case(&c, kind);
        set_hot(&c, 1);
        plan = plan_anew(&c);
        c.machines[1].nics[0].rate_bps /= 4; /* a rail becomes slow */
        set_hot(&c, 5);                      /* where it hurts */
        rebuild(&c, &topo);
        mpath_topo_destroy(c.topo);
        c.topo = topo;
        follow(&c, &plan);
        assert_false(mpath_plan_is_kept(plan, NULL));
        if (kind > 0) { /* other ranks relay for another hot rank; with access all there are none */
            set_hot(&c, 10);
            follow(&c, &plan);
            assert_false(mpath_plan_is_kept(plan, NULL));
        }
        mpath_plan_destroy(plan);
        plan_case_release(&c);
    }
}

/* However the demand wanders, kept routes cost no more than promised; follow() looks. */
static void losses_do_not_add_up(void **state)
{
    uint64_t seed = 3;
    mpath_plan_t *plan;
    plan_case_t c;
    int draw, call;
    size_t i;

    (void)state;
    for (draw = 0; draw < 40; draw++) {
        if (draw % 2) {
            plan_case_draw(&c, (uint64_t)draw, 16);
        } else {
            plan_case_draw_gpus(&c, (uint64_t)draw, 16);
        }
        plan = plan_anew(&c);
        for (call = 0; call < 20; call++) {
            for (i = 0; i < num_cells(&c); i++) {
                c.demand[i] = with_noise(c.demand[i], &seed, 20000u * (unsigned)(call % 10));
            }
            follow(&c, &plan);
        }
        mpath_plan_destroy(plan);
        plan_case_release(&c);
    }
}

/* A pair that has become too small for its pieces gives some up; one that was not there takes its static route. */
static void pieces_stay_whole_fragments(void **state)
{
    static const uint64_t sizes[] = {3, 1, 0, 2, 40000, 65536, 70000, 100000, 131072, 200000, 5 * MIB};
    mpath_plan_t *plan;
    plan_case_t c;
    size_t i;

    (void)state;
    plan_case_machines(&c, 2, 4, 25000000, 8000000000ull);
    plan_case_build(&c, 4, MPATH_REACH_ALL, 0);
    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        c.demand[1 * 8 + 5] = 64 * MIB;
        plan                = plan_anew(&c);
        c.demand[1 * 8 + 5] = sizes[i];
        c.demand[2 * 8 + 6] = 100;
        follow(&c, &plan);
        c.demand[2 * 8 + 6] = 0;
        mpath_plan_destroy(plan);
    }
    plan_case_release(&c);
}

/* Builds it with the machines, GPUs and places as they are now; whether its paths are those of the case. */
static int has_same_paths(const plan_case_t *c, const mpath_place_t *places, int num_ranks)
{
    mpath_topo_t *topo;
    int same;

    assert_int_equal(
        mpath_topo_create_with_gpus(c->machines, c->gpus, c->num_nodes, places, num_ranks, &c->params, &topo),
        MPATH_OK);
    same = mpath_plan_has_same_paths(c->topo, topo);
    assert_int_equal(mpath_plan_has_same_paths(topo, c->topo), same);
    mpath_topo_destroy(topo);
    return same;
}

static void other_paths_are_told_apart(void **state)
{
    mpath_place_t places[64];
    plan_case_t c;

    (void)state;
    for (int kind = 1; kind < KINDS; kind++) {
        int num_ranks, last, nic;

        make_case(&c, kind);
        num_ranks = mpath_topo_num_ranks(c.topo);
        last      = c.num_nodes - 1;
        assert_in_range(num_ranks, 2, 64);
        for (int rank = 0; rank < num_ranks; rank++) {
            places[rank] = *mpath_topo_place(c.topo, rank);
        }
        assert_true(has_same_paths(&c, places, num_ranks));
        assert_false(has_same_paths(&c, places, num_ranks - 1));
        for (int node = 0; node <= last; node += (last > 0) ? last : 1) {
            for (nic = 0; nic < c.machines[node].num_nics; nic++) {
                mpath_nic_t *changed = &c.machines[node].nics[nic];

                changed->up = !changed->up;
                assert_false(has_same_paths(&c, places, num_ranks));
                changed->up = !changed->up;
                changed->rail += 8;
                assert_false(has_same_paths(&c, places, num_ranks));
                changed->rail -= 8;
                changed->rate_bps /= 2;
                assert_true(has_same_paths(&c, places, num_ranks));
            }
            for (int gpu = 0; gpu < c.gpus[node].num_gpus; gpu++) {
                c.gpus[node].gpus[gpu].nics ^= 2;
                assert_false(has_same_paths(&c, places, num_ranks));
                c.gpus[node].gpus[gpu].nics ^= 2;
            }
        }
        for (int rank = 0; rank < num_ranks; rank += num_ranks - 1) {
            places[rank].nic = (places[rank].nic == 0) ? 1 : 0;
            assert_false(has_same_paths(&c, places, num_ranks));
            places[rank] = *mpath_topo_place(c.topo, rank);
        }
        c.params.fabric ^= MPATH_FABRIC_SPINE;
        assert_false(has_same_paths(&c, places, num_ranks));
        c.params.fabric ^= MPATH_FABRIC_SPINE;
        c.params.access = (c.params.access == MPATH_REACH_ALL) ? MPATH_REACH_AFFINE : MPATH_REACH_ALL;
        assert_false(has_same_paths(&c, places, num_ranks));
        plan_case_release(&c);
    }
}

/* Of whichever kind the topology is, with fewer paths of a pair than the routes of before need. */
static void paths_beyond_the_limit_are_not_kept(void **state)
{
    mpath_plan_t *plan;
    mpath_topo_t *topo;
    plan_case_t c;
    int kind, limit;

    (void)state;
    for (kind = 0; kind < KINDS; kind++) {
        make_case(&c, kind);
        set_hot(&c, 1);
        plan = plan_anew(&c);
        for (limit = 3; limit > 0; limit--) {
            c.params.max_paths = limit;
            rebuild(&c, &topo);
            assert_false(mpath_plan_has_same_paths(c.topo, topo));
            mpath_topo_destroy(c.topo);
            c.topo = topo;
            follow(&c, &plan);
            follow(&c, &plan);
        }
        mpath_plan_destroy(plan);
        plan_case_release(&c);
    }
}

static void without_a_plan_or_a_tolerance_it_plans_anew(void **state)
{
    mpath_plan_t *plan, *next;
    mpath_plan_params_t params;
    plan_case_t c;

    (void)state;
    make_case(&c, 1);
    set_hot(&c, 1);
    plan = plan_anew(&c);
    assert_int_equal(mpath_plan_follow(c.topo, c.demand, NULL, NULL, &next), MPATH_OK);
    assert_false(mpath_plan_is_kept(next, NULL));
    mpath_plan_destroy(next);
    mpath_plan_params_init(&params);
    params.keep_ppm = 0;
    assert_int_equal(mpath_plan_follow(c.topo, c.demand, &params, plan, &next), MPATH_OK);
    assert_false(mpath_plan_is_kept(next, NULL));
    mpath_plan_destroy(next);
    /* pieces of any size */
    mpath_plan_params_init(&params);
    params.min_fragment_bytes = 0;
    assert_int_equal(mpath_plan_follow(c.topo, c.demand, &params, plan, &next), MPATH_OK);
    assert_true(mpath_plan_is_kept(next, NULL));
    plan_case_check(&c, next);
    mpath_plan_destroy(next);
    /* more than can be added up */
    c.demand[1] = UINT64_MAX / 2;
    c.demand[2] = UINT64_MAX / 2;
    capture_start();
    assert_int_equal(mpath_plan_follow(c.topo, c.demand, NULL, plan, &next), MPATH_ERR_PARAM);
    capture_stop();
    assert_int_equal(capture_count(), 1);
    mpath_plan_destroy(plan);
    plan_case_release(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(noise_in_the_demand_moves_no_route),
        cmocka_unit_test(noise_in_the_rates_moves_no_route),
        cmocka_unit_test(a_real_change_is_followed_at_once),
        cmocka_unit_test(losses_do_not_add_up),
        cmocka_unit_test(pieces_stay_whole_fragments),
        cmocka_unit_test(other_paths_are_told_apart),
        cmocka_unit_test(paths_beyond_the_limit_are_not_kept),
        cmocka_unit_test(without_a_plan_or_a_tolerance_it_plans_anew),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
