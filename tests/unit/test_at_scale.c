/* SPDX-License-Identifier: BSD-3-Clause */
/* Thousands of ranks on paper: rows are those of the matrix, loads those of whole plans, rivals those of the matrix. */
#include "unit/capture.h"

#include "plan/plan.h"
#include "tools/plan/at_scale.h"
#include "tools/plan/rivals.h"
#include "tools/plan/simulate.h"

#include <stdlib.h>

static void input_init(plan_input_t *input, int nodes, int local, mpath_access_mode_t access)
{
    plan_input_init(input);
    input->num_nodes          = nodes;
    input->ranks_per_node     = local;
    input->num_nics           = 4;
    input->topo_params.access = access;
    input->bytes              = 9000001;
}

/* A demand of each kind. */
#define KINDS 9
static const char *input_set(plan_input_t *input, int kind)
{
    switch (kind) {
    case 0:
        return "even";
    case 1:
        input->skew_ppm = 700000;
        input->hot_rank = 2;
        return "hot";
    case 2:
        input->zipf     = 1;
        input->skew_ppm = 1200000;
        return "zipf";
    case 3:
        assert_int_equal(plan_parse_moe("300,4,64,1.0", input), 1);
        return "experts";
    case 4:
        assert_int_equal(plan_parse_moe("300,3,10,lognormal:2", input), 1); /* fewer experts than ranks */
        return "few experts";
    case 5:
        input->transpose = (mpath_transpose_t){.size = 1001, .element_bytes = 16};
        return "transpose";
    case 6:
        input->workload = "hot:0.5";
        return "workload hot";
    case 7:
        input->workload = "lognormal:1.5";
        input->bytes    = 40000000;
        return "workload lognormal";
    default:
        input->workload = "mild";
        return "workload mild";
    }
}

/* rows[i * ranks + other] of all ranks are the matrix, or the transposed one. */
static void check_matrix(const uint64_t *rows, const uint64_t *demand, size_t ranks, int is_transposed)
{
    for (size_t i = 0; i < ranks; i++) {
        for (size_t k = 0; k < ranks; k++) {
            assert_true(rows[i * ranks + k] == (is_transposed ? demand[k * ranks + i] : demand[i * ranks + k]));
        }
    }
}

static void rows_are_the_matrix(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        uint64_t *demand, *found;
        plan_input_t input;
        mpath_topo_t *topo;
        plan_rows_t *rows;
        size_t ranks;

        input_init(&input, 4, 6, MPATH_REACH_ALL);
        input_set(&input, kind);
        assert_int_equal(plan_input_make(&input, &topo, &demand), MPATH_OK);
        ranks = (size_t)mpath_topo_num_ranks(topo);
        found = malloc(ranks * ranks * sizeof(*found));
        assert_int_equal(plan_rows_open(&input, (int)ranks, &rows), MPATH_OK);
        for (int turn = 0; turn < 2; turn++) {
            for (int rank = 0; rank < (int)ranks; rank += 6) {
                plan_rows_sends(rows, rank, 6, found + (size_t)rank * ranks);
            }
            check_matrix(found, demand, ranks, turn);
            for (int rank = 0; rank < (int)ranks; rank += 6) {
                plan_rows_receives(rows, rank, 6, found + (size_t)rank * ranks);
            }
            check_matrix(found, demand, ranks, !turn);
            plan_rows_reverse(rows);
        }
        plan_rows_close(rows);
        free(found);
        free(demand);
        mpath_topo_destroy(topo);
    }
}

static mpath_plan_t *whole_plan(const mpath_topo_t *topo, const uint64_t *demand, mpath_policy_t policy)
{
    mpath_plan_params_t params;
    mpath_plan_t *plan;

    mpath_plan_params_init(&params);
    params.policy = policy;
    assert_int_equal(mpath_plan_create(topo, demand, &params, &plan), MPATH_OK);
    return plan;
}

/* Both ways of one demand, held against whole plans, a simulation of their flows, and the rivals of the matrix. */
static void check_demand(const plan_input_t *input, const char *name, int nodes_simulated)
{
    static const rival_t rivals[] = {RIVAL_SABRE, RIVAL_FAST};
    uint64_t *demand, *back;
    at_scale_params_t params;
    mpath_topo_t *topo;
    plan_rows_t *rows;
    size_t ranks;

    assert_int_equal(plan_input_make(input, &topo, &demand), MPATH_OK);
    ranks = (size_t)mpath_topo_num_ranks(topo);
    back  = malloc(ranks * ranks * sizeof(*back));
    for (size_t i = 0; i < ranks * ranks; i++) {
        back[i] = demand[i % ranks * ranks + i / ranks];
    }
    at_scale_params_init(&params);
    params.fast_ranks = 0;
    assert_int_equal(plan_rows_open(input, (int)ranks, &rows), MPATH_OK);
    for (int turn = 0; turn < 2; turn++, plan_rows_reverse(rows)) {
        const uint64_t *matrix = turn ? back : demand;
        mpath_plan_t *plans[2] = {whole_plan(topo, matrix, MPATH_POLICY_DIRECT),
                                  whole_plan(topo, matrix, MPATH_POLICY_PAIRS)};
        simulate_params_t simulation;
        at_scale_result_t result;

        simulate_params_init(&simulation);
        simulation.resolution = 0.001;
        assert_int_equal(at_scale_run(topo, rows, &params, &result), MPATH_OK);
        for (int i = 0; i < 2; i++) {
            const at_scale_way_t *way = &result.ways[i == 0 ? AT_SCALE_STATIC : AT_SCALE_FIRST];
            double z                  = (double)mpath_plan_z_ns(plans[i]) / 1e9;
            simulate_result_t played;

            for (int r = 0; r < mpath_topo_num_resources(topo); r++) {
                assert_true(result.loads[i][r] == mpath_plan_loads(plans[i])[r]);
            }
            assert_true(way->z <= z && way->z > z - 2e-9);
            if (mpath_topo_num_nodes(topo) > nodes_simulated) {
                continue;
            }
            assert_int_equal(simulate_plan(topo, plans[i], &simulation, &played), MPATH_OK);
            if (way->network < played.seconds * 0.9 || way->network > played.seconds * 1.1 + 20e-6) {
                fail_msg("%s, %s, %s: the network takes %.6f, simulated %.6f", name, turn ? "back" : "there",
                         i == 0 ? "static" : "mpath", way->network, played.seconds);
            }
        }
        for (int i = 0; i < 2; i++) {
            double seconds       = result.ways[i == 0 ? AT_SCALE_SABRE : AT_SCALE_FAST].total;
            rival_result_t whole = {0};

            assert_int_equal(rival_run(rivals[i], topo, matrix, &params.time, &whole), MPATH_OK);
            /* the pipelines of the whole are predicted more closely where a relay is on the way */
            if (i == 0 ? seconds < whole.seconds * 0.97 - 1e-9 || seconds > whole.seconds * 1.03 + 20e-6
                       : seconds > whole.seconds + 1e-9) {
                fail_msg("%s, %s, %s: %.6f by nodes, %.6f of the matrix", name, turn ? "back" : "there",
                         i == 0 ? "SABRE" : "FAST", seconds, whole.seconds);
            }
            mpath_plan_destroy(whole.plan);
            mpath_plan_destroy(plans[i]);
        }
        at_scale_release(&result);
    }
    plan_rows_close(rows);
    free(back);
    free(demand);
    mpath_topo_destroy(topo);
}

static void loads_are_those_of_whole_plans(void **state)
{
    static const struct {
        int nodes, local;
    } shapes[] = {{2, 4}, {5, 8}, {6, 3}, {1, 4}};

    (void)state;
    for (size_t shape = 0; shape < sizeof(shapes) / sizeof(shapes[0]); shape++) {
        for (int kind = 0; kind < KINDS; kind++) {
            for (int affine = 0; affine < 3; affine++) {
                plan_input_t input;
                const char *name;

                input_init(&input, shapes[shape].nodes, shapes[shape].local,
                           affine ? MPATH_REACH_AFFINE : MPATH_REACH_ALL);
                input.topo_params.fabric = affine == 2 ? MPATH_FABRIC_SPINE : 0;
                name                     = input_set(&input, kind);
                check_demand(&input, name, 5);
            }
        }
    }
}

/* 8 ranks on 2 nodes, 1,000,000 bytes for everybody: what is left is told by hand. */
static void costs_add_up(void **state)
{
    const at_scale_way_t *first, *again, *stays;
    at_scale_params_t params;
    at_scale_result_t result;
    plan_input_t input;
    mpath_topo_t *topo;
    plan_rows_t *rows;

    (void)state;
    input_init(&input, 2, 4, MPATH_REACH_ALL);
    input.bytes = 8 * 65536;
    at_scale_params_init(&params);
    params.costs = (at_scale_costs_t){1000, 10, 100, 7, 11, 5000};
    assert_int_equal(plan_input_make_topo(&input, &topo), MPATH_OK);
    assert_int_equal(plan_rows_open(&input, 8, &rows), MPATH_OK);
    assert_int_equal(at_scale_run(topo, rows, &params, &result), MPATH_OK);
    first = &result.ways[AT_SCALE_FIRST];
    again = &result.ways[AT_SCALE_AGAIN];
    stays = &result.ways[AT_SCALE_STATIC];
    /* everybody sends 7 messages of one chunk and receives 7; a NIC carries 4 of them each way */
    assert_int_equal(first->most_messages, 14);
    assert_true(first->messages > 69.9e-6 && first->messages < 70.1e-6);
    assert_true(result.bound > 10.4e-6 && result.bound < 10.6e-6);
    assert_true(first->z > 10.4e-6 && first->z < 10.6e-6);
    assert_true(first->network > first->z + 2.4e-6 && first->network < first->z + 2.6e-6);
    /* of two nodes one message: 100, and twice 1000 of NICs and 500 of the hop */
    assert_true(first->agree > 3.67e-6 && first->agree < 3.69e-6);
    assert_true(first->plan > 97e-9 && first->plan < 99e-9);
    assert_true(first->schedule > 153e-9 && first->schedule < 155e-9);
    assert_true(first->total > first->agree + first->plan + first->schedule + first->messages - 1e-9);
    assert_true(again->plan == 0 && again->schedule == 0 && again->total < first->total);
    assert_true(stays->agree == 0 && stays->total > stays->messages - 1e-12 && stays->total < again->total);
    assert_int_equal(result.fast_is_least, 0);
    at_scale_release(&result);

    at_scale_costs_init(0, &params.costs);
    assert_int_equal(at_scale_run(topo, rows, &params, &result), MPATH_OK);
    for (int i = AT_SCALE_STATIC; i <= AT_SCALE_AGAIN; i++) {
        assert_true(result.ways[i].total == result.ways[i].network);
    }
    at_scale_release(&result);
    plan_rows_close(rows);
    mpath_topo_destroy(topo);
}

/* Rounds of an agreement: 1 up to 4 nodes, then as often as doubling reaches all. */
static void rounds_follow_the_nodes(void **state)
{
    static const int nodes[] = {1, 2, 4, 5, 8, 9, 64, 65}, rounds[] = {0, 1, 1, 3, 3, 4, 6, 7};

    (void)state;
    for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
        at_scale_params_t params;
        at_scale_result_t result;
        plan_input_t input;
        mpath_topo_t *topo;
        plan_rows_t *rows;
        double ns;

        input_init(&input, nodes[i], 2, MPATH_REACH_ALL);
        at_scale_params_init(&params);
        params.with_rivals = 0;
        params.costs       = (at_scale_costs_t){.agree_ns = 1, .round_ns = 7500};
        assert_int_equal(plan_input_make_topo(&input, &topo), MPATH_OK);
        assert_int_equal(plan_rows_open(&input, 2 * nodes[i], &rows), MPATH_OK);
        assert_int_equal(at_scale_run(topo, rows, &params, &result), MPATH_OK);
        ns = result.ways[AT_SCALE_AGAIN].agree * 1e9;
        assert_true(ns > 10000 * rounds[i] + 0.9 && ns < 10000 * rounds[i] + 1.1);
        at_scale_release(&result);
        plan_rows_close(rows);
        mpath_topo_destroy(topo);
    }
}

static void others_are_refused(void **state)
{
    at_scale_params_t params;
    at_scale_result_t result;
    plan_input_t input;
    mpath_topo_t *topo;
    plan_rows_t *rows;

    (void)state;
    capture_start();
    at_scale_params_init(&params);
    plan_input_init(&input);
    input.matrix_path = "matrix";
    assert_int_equal(plan_rows_open(&input, 8, &rows), MPATH_ERR_UNSUPPORTED);
    input.matrix_path = NULL;
    assert_int_equal(plan_parse_moe("70000,1,4,0", &input), 1);
    assert_int_equal(plan_rows_open(&input, 8, &rows), MPATH_ERR_PARAM);
    assert_int_equal(plan_parse_moe("40000,2,8,0", &input), 1); /* both experts of a token on one rank */
    assert_int_equal(plan_rows_open(&input, 1, &rows), MPATH_ERR_PARAM);
    plan_input_init(&input);
    input.preset    = "gb200-nvl72"; /* NVLink joins its nodes */
    input.num_nodes = 18;
    assert_int_equal(plan_input_make_topo(&input, &topo), MPATH_OK);
    assert_int_equal(plan_rows_open(&input, mpath_topo_num_ranks(topo), &rows), MPATH_OK);
    assert_int_equal(at_scale_run(topo, rows, &params, &result), MPATH_ERR_UNSUPPORTED);
    plan_rows_close(rows);
    mpath_topo_destroy(topo);
    capture_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_the_matrix), cmocka_unit_test(loads_are_those_of_whole_plans),
        cmocka_unit_test(costs_add_up),        cmocka_unit_test(rounds_follow_the_nodes),
        cmocka_unit_test(others_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
