/* SPDX-License-Identifier: BSD-3-Clause */
/* Rivals on paper: the decomposition, that they move every byte, known small cases, and that mpath is no slower. */
#include "unit/capture.h"

#include "plan/demand.h"
#include "plan/workload.h"
#include "tools/plan/rivals.h"

#include <stdlib.h>

static uint64_t next_number(uint64_t *state)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return *state >> 33;
}

/* The stages add up to the matrix, each row and column has one partner in a stage, and they last as long as the largest sum. */
static void check_stages(int n, const uint64_t *matrix)
{
    size_t size    = (size_t)n;
    uint64_t *left = malloc(size * size * sizeof(*left)), most = 0;
    int *seen = calloc(size, sizeof(*seen));
    rival_stages_t stages;

    memcpy(left, matrix, size * size * sizeof(*left));
    for (size_t i = 0; i < size; i++) {
        uint64_t row = 0, column = 0;

        for (size_t k = 0; k < size; k++) {
            row += matrix[i * size + k];
            column += matrix[k * size + i];
        }
        most = row > most ? row : most;
        most = column > most ? column : most;
    }
    assert_int_equal(rival_decompose(n, matrix, &stages), MPATH_OK);
    assert_int_equal(stages.total, most);
    assert_true(stages.count <= size * size + 2 * size);
    for (size_t stage = 0; stage < stages.count; stage++) {
        memset(seen, 0, size * sizeof(*seen));
        for (size_t row = 0; row < size; row++) {
            size_t to = (size_t)stages.to[stage * size + row];

            assert_true(to < size && !seen[to]);
            seen[to] = 1;
            assert_true(stages.bytes[stage * size + row] <= left[row * size + to]);
            left[row * size + to] -= stages.bytes[stage * size + row];
        }
    }
    for (size_t i = 0; i < size * size; i++) {
        assert_true(left[i] == 0);
    }
    rival_stages_release(&stages);
    free(left);
    free(seen);
}

static void decomposes(void **state)
{
    static const uint64_t cyclic[] = {0, 1, 2, 2, 0, 1, 1, 2, 0}, nothing[4] = {0}, one[] = {7};
    uint64_t matrix[20 * 20], seed = 5;
    rival_stages_t stages;

    (void)state;
    assert_int_equal(rival_decompose(3, cyclic, &stages), MPATH_OK);
    assert_int_equal(stages.count, 2);
    assert_int_equal(stages.total, 3);
    rival_stages_release(&stages);
    assert_int_equal(rival_decompose(2, nothing, &stages), MPATH_OK);
    assert_int_equal(stages.count, 0);
    rival_stages_release(&stages);
    check_stages(3, cyclic);
    check_stages(1, one);
    for (int turn = 0; turn < 200; turn++) {
        int n = 1 + (int)(next_number(&seed) % 20);

        for (int i = 0; i < n * n; i++) {
            matrix[i] = turn % 2 && next_number(&seed) % 3 ? 0 : next_number(&seed) % 1000000;
        }
        check_stages(n, matrix);
    }
}

/* Two nodes of two ranks, a NIC of 1000 bytes/s beside each rank, 8000 bytes/s of memory, no latencies. */
static mpath_topo_t *small_topo(int nodes)
{
    mpath_topo_params_t params = {.access = MPATH_REACH_AFFINE};
    mpath_machine_t machines[4];
    mpath_place_t places[8];
    mpath_topo_t *topo;

    memset(machines, 0, sizeof(machines));
    for (int node = 0; node < nodes; node++) {
        machines[node].num_nics        = 2;
        machines[node].num_numa        = 1;
        machines[node].host_memory_bps = 8000;
        for (int nic = 0; nic < 2; nic++) {
            machines[node].nics[nic].rail     = (int16_t)nic;
            machines[node].nics[nic].rate_bps = 1000;
            machines[node].nics[nic].up       = 1;
            places[node * 2 + nic]            = (mpath_place_t){.node = node, .nic = nic, .gpu = -1};
        }
    }
    assert_int_equal(mpath_topo_create(machines, nodes, places, nodes * 2, &params, &topo), MPATH_OK);
    return topo;
}

static rival_result_t run(rival_t rival, const mpath_topo_t *topo, const uint64_t *demand)
{
    const mpath_time_params_t time = {.chunk_bytes = 1 << 17, .hop_ns = 0};
    rival_result_t result;

    assert_int_equal(rival_run(rival, topo, demand, &time, &result), MPATH_OK);
    return result;
}

/* One pair of 1000 bytes: half of it over each rail, 0.5 s, with a hop inside the node before the one and behind it. */
static void one_pair_over_both_rails(void **state)
{
    mpath_topo_t *topo     = small_topo(2);
    uint64_t demand[4 * 4] = {0};
    rival_result_t fast, sabre;

    (void)state;
    demand[0 * 4 + 2] = 1000;
    fast              = run(RIVAL_FAST, topo, demand);
    assert_int_equal(mpath_plan_z_ns(fast.plan), 500000000);
    assert_int_equal(fast.steps, 3);
    assert_int_equal(fast.crossing_bytes, 1000);
    /* a copy takes twice its bytes of the memory at most: between 2 * 500 / 8000 and twice that, before and after */
    assert_true(fast.seconds > 0.5 + 0.12 && fast.seconds < 0.5 + 0.26);
    sabre = run(RIVAL_SABRE, topo, demand);
    assert_true(sabre.seconds > 0.62 && sabre.seconds < 0.76);
    mpath_plan_destroy(fast.plan);
    mpath_plan_destroy(sabre.plan);
    mpath_topo_destroy(topo);
}

/* Three nodes in a cycle need two stages; what is between ranks beside one rail needs no hop inside a node. */
static void stages_follow_each_other(void **state)
{
    static const uint64_t between[] = {0, 1, 2, 2, 0, 1, 1, 2, 0};
    mpath_topo_t *topo              = small_topo(3);
    uint64_t demand[6 * 6]          = {0};
    rival_result_t fast;

    (void)state;
    for (int from = 0; from < 6; from++) {
        for (int to = from % 2; to < 6; to += 2) {
            demand[from * 6 + to] = 1000 * between[from / 2 * 3 + to / 2];
        }
    }
    fast = run(RIVAL_FAST, topo, demand);
    assert_int_equal(fast.steps, 2);
    assert_true(fast.seconds > 2.999 && fast.seconds < 3.001);
    assert_int_equal(mpath_plan_relayed_bytes(fast.plan), 0);
    mpath_plan_destroy(fast.plan);
    mpath_topo_destroy(topo);
}

static void check_against_mpath(const mpath_topo_t *topo, const uint64_t *demand)
{
    size_t ranks      = (size_t)mpath_topo_num_ranks(topo);
    uint64_t crossing = 0;
    mpath_plan_params_t params;
    mpath_plan_t *plan;

    mpath_plan_params_init(&params);
    params.min_fragment_bytes = 1;
    assert_int_equal(mpath_plan_create(topo, demand, &params, &plan), MPATH_OK);
    for (size_t i = 0; i < ranks * ranks; i++) {
        crossing += mpath_topo_place(topo, (int)(i / ranks))->node != mpath_topo_place(topo, (int)(i % ranks))->node
                        ? demand[i]
                        : 0;
    }
    for (int rival = RIVAL_FAST; rival <= RIVAL_SABRE; rival++) {
        rival_result_t result = run((rival_t)rival, topo, demand);
        uint64_t z_ns         = mpath_plan_z_ns(result.plan);

        /* that the flows are the demand, rival_run() has had checked */
        assert_int_equal(result.crossing_bytes, crossing);
        assert_true(result.seconds * 1e9 >= (double)z_ns * 0.999999);
        assert_true(mpath_plan_z_ns(plan) <= z_ns + z_ns / 500 + 1); /* the gap that a plan may have */
        mpath_plan_destroy(result.plan);
    }
    mpath_plan_destroy(plan);
}

static void moves_everything_and_is_not_faster(void **state)
{
    static const char *const presets[]   = {"h100-mesh4", "hgx-h200", "a100"};
    static const char *const workloads[] = {"balanced", "mild", "hot:0.7", "zipf", "lognormal"};

    (void)state;
    for (size_t p = 0; p < 3; p++) {
        for (int nodes = 1; nodes <= 5; nodes += 2) {
            mpath_topo_t *topo;
            uint64_t *demand;
            int ranks;

            assert_int_equal(mpath_topo_preset(presets[p], nodes, &topo), MPATH_OK);
            ranks  = mpath_topo_num_ranks(topo);
            demand = calloc((size_t)ranks * (size_t)ranks, sizeof(*demand));
            for (size_t w = 0; w < 5; w++) {
                mpath_workload_t workload;

                assert_int_equal(mpath_workload_open(workloads[w], &workload), MPATH_OK);
                assert_int_equal(mpath_workload_demand(&workload, ranks, 3, 0, 16 << 20, 1, demand), MPATH_OK);
                check_against_mpath(topo, demand);
            }
            mpath_demand_hot(ranks, ranks - 1, 900000, 1 << 20, 1, demand);
            check_against_mpath(topo, demand);
            free(demand);
            mpath_topo_destroy(topo);
        }
    }
}

/* Flows that are not the demand are no plan. */
static void refuses_other_flows(void **state)
{
    mpath_topo_t *topo     = small_topo(2);
    uint64_t demand[4 * 4] = {0};
    mpath_flow_t flows[2]  = {{.source = 0, .destination = 2, .bytes = 600},
                              {.source = 0, .destination = 2, .path = 1, .offset = 600, .bytes = 400}};
    mpath_plan_t *plan     = NULL;

    (void)state;
    demand[2] = 1000;
    assert_int_equal(mpath_plan_from_flows(topo, demand, flows, 2, &plan), MPATH_OK);
    assert_int_equal(mpath_plan_z_ns(plan), 600000000);
    mpath_plan_destroy(plan);
    capture_start();
    assert_int_equal(mpath_plan_from_flows(topo, demand, flows, 1, &plan), MPATH_ERR_PARAM);
    flows[1].offset = 500;
    assert_int_equal(mpath_plan_from_flows(topo, demand, flows, 2, &plan), MPATH_ERR_PARAM);
    flows[1].offset = 600;
    flows[1].path   = 9;
    assert_int_equal(mpath_plan_from_flows(topo, demand, flows, 2, &plan), MPATH_ERR_PARAM);
    flows[1].path        = 1;
    flows[1].destination = 3;
    assert_int_equal(mpath_plan_from_flows(topo, demand, flows, 2, &plan), MPATH_ERR_PARAM);
    capture_stop();
    assert_int_equal(capture_count(), 4);
    mpath_topo_destroy(topo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decomposes),
        cmocka_unit_test(one_pair_over_both_rails),
        cmocka_unit_test(stages_follow_each_other),
        cmocka_unit_test(moves_everything_and_is_not_faster),
        cmocka_unit_test(refuses_other_flows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
