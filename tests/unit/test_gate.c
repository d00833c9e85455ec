/* SPDX-License-Identifier: BSD-3-Clause */
/* Gate: what it sees of a demand, and which times it predicts; who runs by that: test_algorithm. */
#include "plan/gate.h"
#include "unit/capture.h"
#include "unit/grid.h"

static void test_view(void **state)
{
    mpath_topo_t *topo     = grid_topo(2, 2, 2, MPATH_REACH_ALL);
    uint64_t demand[4 * 4] = {0};
    mpath_gate_view_t view;

    (void)state;
    demand[0 * 4 + 0] = 9000; /* to itself */
    demand[0 * 4 + 1] = 7000; /* inside a node */
    demand[0 * 4 + 2] = 300;
    demand[3 * 4 + 0] = 5000;
    demand[3 * 4 + 2] = 20;
    mpath_gate_look(topo, demand, &view);
    assert_int_equal(view.largest_bytes, 7000);
    assert_int_equal(view.between_bytes, 5300);
    mpath_topo_destroy(topo);
}

/* The forecast for one pair from rank 0 to rank 4, both beside rail 0: relays over the other rails pay or do not. */
static void forecast_pair(uint64_t bytes, mpath_access_mode_t access, uint32_t hop_ns, mpath_gate_forecast_t *forecast)
{
    mpath_topo_t *topo              = grid_topo(2, 4, 4, access);
    uint64_t demand[8 * 8]          = {0};
    mpath_time_params_t time_params = {.chunk_bytes = 128 * 1024, .hop_ns = hop_ns};
    mpath_plan_params_t params;
    mpath_plan_t *plan;

    demand[4] = bytes;
    mpath_plan_params_init(&params);
    assert_int_equal(mpath_plan_create(topo, demand, &params, &plan), MPATH_OK);
    assert_int_equal(mpath_gate_forecast(topo, demand, &params, &time_params, plan, forecast), MPATH_OK);
    mpath_gate_forecast_release(forecast);
    mpath_plan_destroy(plan);
    mpath_topo_destroy(topo);
}

static void test_forecast(void **state)
{
    mpath_gate_forecast_t forecast = {0};

    (void)state;
    forecast_pair(60000, MPATH_REACH_AFFINE, 500, &forecast); /* below two fragments: it stays whole */
    assert_true(forecast.plan_ns == forecast.direct_ns);
    assert_true(forecast.plan_ns == 60000 * 40);
    forecast_pair(1 << 20, MPATH_REACH_AFFINE, 500, &forecast); /* told apart by Z: 25 MB/s on one rail and on four */
    assert_true(forecast.direct_ns == (1 << 20) * 40);
    assert_true(forecast.plan_ns == (1 << 20) * 10);
    /* 64 KiB in two halves: 1.3 ms each and what the relay adds */
    forecast_pair(1 << 16, MPATH_REACH_AFFINE, 500, &forecast);
    assert_true(forecast.direct_ns == (1 << 16) * 40); /* by Z again */
    forecast_pair(1 << 16, MPATH_REACH_ALL, 500, &forecast);
    assert_true(forecast.plan_ns < forecast.direct_ns);
}

/* On fast rails the hops of a relay cost more than its rail gains. */
static void test_forecast_of_short_flows(void **state)
{
    mpath_machine_t machines[2];
    mpath_place_t places[4];
    mpath_topo_params_t topo_params = {.access = MPATH_REACH_AFFINE};
    uint64_t demand[4 * 4]          = {0};
    mpath_time_params_t time_params;
    mpath_gate_forecast_t forecast = {0};
    mpath_plan_params_t params;
    mpath_topo_t *topo;
    mpath_plan_t *plan;

    (void)state;
    memset(machines, 0, sizeof(machines));
    for (int node = 0; node < 2; node++) {
        machines[node].num_nics        = 2;
        machines[node].num_numa        = 1;
        machines[node].host_memory_bps = 400000000000ull;
        for (int nic = 0; nic < 2; nic++) {
            snprintf(machines[node].nics[nic].name, MPATH_NIC_NAME_MAX, "rail%d", nic);
            machines[node].nics[nic].rate_bps = 50000000000ull;
            machines[node].nics[nic].rail     = (int16_t)nic;
            machines[node].nics[nic].up       = 1;
            places[node * 2 + nic]            = (mpath_place_t){.node = node, .nic = nic, .gpu = -1};
        }
    }
    assert_int_equal(mpath_topo_create(machines, 2, places, 4, &topo_params, &topo), MPATH_OK);
    mpath_plan_params_init(&params);
    mpath_time_params_init(&time_params);
    for (int shift = 16; shift <= 26; shift += 10) {
        demand[2] = 1ull << shift;
        assert_int_equal(mpath_plan_create(topo, demand, &params, &plan), MPATH_OK);
        assert_int_equal(mpath_gate_forecast(topo, demand, &params, &time_params, plan, &forecast), MPATH_OK);
        assert_non_null(forecast.direct);
        /* 64 KiB take 1.3 us on one rail, less than the three hops over the other; 64 MiB 1342 us and 671 us */
        assert_int_equal(forecast.direct_ns < forecast.plan_ns, shift == 16);
        mpath_gate_forecast_release(&forecast);
        mpath_plan_destroy(plan);
    }
    /*
     * 42 us on one rail and 21 us on both do not decide it while a hop takes 20 us: three of them are on the relay's
     * way
     */
    demand[2]          = 2 << 20;
    time_params.hop_ns = 20000;
    assert_int_equal(mpath_plan_create(topo, demand, &params, &plan), MPATH_OK);
    assert_int_equal(mpath_gate_forecast(topo, demand, &params, &time_params, plan, &forecast), MPATH_OK);
    assert_true(forecast.direct_ns < forecast.plan_ns);
    mpath_gate_forecast_release(&forecast);
    mpath_plan_destroy(plan);
    mpath_topo_destroy(topo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_view),
        cmocka_unit_test(test_forecast),
        cmocka_unit_test(test_forecast_of_short_flows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
