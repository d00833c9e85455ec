/* SPDX-License-Identifier: BSD-3-Clause */
/* Plan cache: hits, misses, colliding checksums, the order of eviction, routes that are kept. */
#include "plan/cache.h"
#include "unit/capture.h"
#include "unit/grid.h"

#include <stdlib.h>

#define RANKS 4
#define CELLS (RANKS * RANKS)

static mpath_plan_cache_t *make(const mpath_topo_t *topo)
{
    mpath_plan_params_t params;
    mpath_plan_cache_t *cache;

    mpath_plan_params_init(&params);
    assert_int_equal(mpath_plan_cache_create(topo, &params, &cache), MPATH_OK);
    return cache;
}

/*
 * Demand number `id`: rank 0 sends 1 MiB + id to rank 3. Whether it was in the cache; checks that the plan is its own.
 */
static int get(mpath_plan_cache_t *cache, uint64_t signature, uint64_t id)
{
    uint64_t demand[CELLS] = {0}, bytes = 0;
    const mpath_plan_t *plan;
    const mpath_flow_t *flows;
    size_t num_flows;
    int hit = -1;

    demand[3] = (1 << 20) + id;
    assert_int_equal(mpath_plan_cache_get(cache, signature, demand, &plan, &hit), MPATH_OK);
    flows = mpath_plan_flows(plan, &num_flows);
    for (size_t i = 0; i < num_flows; i++) {
        bytes += flows[i].bytes;
    }
    assert_true(bytes == demand[3]);
    return hit;
}

static void test_hits(void **state)
{
    mpath_topo_t *topo        = grid_topo(2, 2, 2, MPATH_REACH_ALL);
    mpath_plan_cache_t *cache = make(topo);

    (void)state;
    assert_int_equal(get(cache, 1, 1), 0);
    assert_int_equal(get(cache, 1, 1), 1);
    assert_int_equal(get(cache, 2, 2), 0);
    assert_int_equal(get(cache, 1, 1), 1);
    assert_int_equal(get(cache, 1, 3), 0); /* the same checksum, another demand */
    assert_int_equal(get(cache, 1, 1), 1);
    assert_int_equal(get(cache, 1, 3), 1);
    mpath_plan_cache_destroy(cache);
    mpath_topo_destroy(topo);
}

static void test_eviction(void **state)
{
    mpath_topo_t *topo        = grid_topo(2, 2, 2, MPATH_REACH_ALL);
    mpath_plan_cache_t *cache = make(topo);

    (void)state;
    for (uint64_t id = 0; id < MPATH_PLAN_CACHE_ENTRIES; id++) {
        assert_int_equal(get(cache, id, id), 0);
    }
    assert_int_equal(get(cache, 0, 0), 1); /* in use again: the oldest is 1 now */
    assert_int_equal(get(cache, 100, 100), 0);
    assert_int_equal(get(cache, 0, 0), 1);
    assert_int_equal(get(cache, 2, 2), 1);
    assert_int_equal(get(cache, 1, 1), 0);
    mpath_plan_cache_destroy(cache);
    mpath_topo_destroy(topo);
}

/* Two nodes of two rails; half of the ranks on each. */
static mpath_topo_t *large_topo(int num_ranks)
{
    mpath_topo_t *small = grid_topo(2, 2, 2, MPATH_REACH_ALL), *topo;
    mpath_machine_t machines[2];
    mpath_place_t *places = calloc((size_t)num_ranks, sizeof(*places));

    assert_non_null(places);
    for (int node = 0; node < 2; node++) {
        mpath_topo_copy_machine(small, node, &machines[node]);
    }
    for (int rank = 0; rank < num_ranks; rank++) {
        places[rank] = (mpath_place_t){.node = rank / (num_ranks / 2), .nic = rank % 2, .gpu = -1};
    }
    assert_int_equal(mpath_topo_create(machines, 2, places, num_ranks, mpath_topo_params(small), &topo), MPATH_OK);
    mpath_topo_destroy(small);
    free(places);
    return topo;
}

/* Entries of a large communicator: there is memory for a few of them only. */
static void test_eviction_by_bytes(void **state)
{
    enum { LARGE = 1536, FIT = MPATH_PLAN_CACHE_BYTES / (LARGE * LARGE * sizeof(uint64_t)) };
    mpath_topo_t *topo = large_topo(LARGE);
    uint64_t *demand   = calloc((size_t)LARGE * LARGE, sizeof(*demand));
    mpath_plan_cache_t *cache;
    const mpath_plan_t *plan;
    int hit;

    (void)state;
    assert_true(FIT > 1 && FIT + 2 < MPATH_PLAN_CACHE_ENTRIES);
    assert_non_null(demand);
    cache = make(topo);
    for (uint64_t id = 0; id < FIT + 2; id++) {
        demand[LARGE - 1] = (1 << 20) + id;
        assert_int_equal(mpath_plan_cache_get(cache, id, demand, &plan, &hit), MPATH_OK);
        assert_int_equal(hit, 0);
        assert_int_equal(mpath_plan_cache_get(cache, id, demand, &plan, &hit), MPATH_OK);
        assert_int_equal(hit, 1);
    }
    demand[LARGE - 1] = 1 << 20;
    assert_int_equal(mpath_plan_cache_get(cache, 0, demand, &plan, &hit), MPATH_OK);
    assert_int_equal(hit, 0);
    mpath_plan_cache_destroy(cache);
    mpath_topo_destroy(topo);
    free(demand);
}

/* How many of so many dense demands of 512 ranks are still there afterwards, with the forecasts of all or without. */
static int dense_kept(int entries, int forecasts)
{
    enum { DENSE = 512 };
    mpath_topo_t *topo = large_topo(DENSE);
    uint64_t *demand   = malloc((size_t)DENSE * DENSE * sizeof(*demand));
    const mpath_gate_forecast_t *forecast;
    mpath_plan_cache_t *cache;
    const mpath_plan_t *plan;
    mpath_time_params_t params;
    int hit = 1, kept = 0;

    assert_non_null(demand);
    cache = make(topo);
    mpath_time_params_init(&params);
    for (size_t i = 0; i < (size_t)DENSE * DENSE; i++) {
        demand[i] = 1000;
    }
    for (int id = 0; id < entries; id++) {
        demand[DENSE - 1] = (64 << 20) + (uint64_t)id;
        assert_int_equal(mpath_plan_cache_get(cache, (uint64_t)id, demand, &plan, &hit), MPATH_OK);
        if (forecasts) {
            assert_int_equal(mpath_plan_cache_forecast(cache, &params, &forecast), MPATH_OK);
            assert_non_null(forecast->direct);
        }
    }
    for (int id = entries - 1; hit || (id == entries - 1); id--) {
        demand[DENSE - 1] = (64 << 20) + (uint64_t)id;
        assert_int_equal(mpath_plan_cache_get(cache, (uint64_t)id, demand, &plan, &hit), MPATH_OK);
        kept += hit;
    }
    mpath_plan_cache_destroy(cache);
    mpath_topo_destroy(topo);
    free(demand);
    return kept;
}

/* Plans count too, 10 MiB for 2 MiB of demand, and so do the static routes of a forecast, 8 MiB more. */
static void test_eviction_by_flows(void **state)
{
    (void)state;
    assert_int_equal(dense_kept(MPATH_PLAN_CACHE_ENTRIES, 0), 7);
    assert_int_equal(dense_kept(MPATH_PLAN_CACHE_ENTRIES, 1), 4);
}

static void test_forecast(void **state)
{
    mpath_topo_t *topo        = grid_topo(2, 2, 2, MPATH_REACH_ALL);
    mpath_plan_cache_t *cache = make(topo);
    const mpath_gate_forecast_t *forecast, *again;
    mpath_time_params_t params;

    (void)state;
    mpath_time_params_init(&params);
    assert_int_equal(get(cache, 0, 0), 0);
    assert_int_equal(mpath_plan_cache_forecast(cache, &params, &forecast), MPATH_OK);
    assert_true(forecast->direct_ns >= (1 << 20) * 40ull); /* 25 MB/s, one rail */
    assert_non_null(forecast->direct);
    assert_int_equal(get(cache, 1, 1 << 20), 0);
    assert_int_equal(mpath_plan_cache_forecast(cache, &params, &forecast), MPATH_OK);
    assert_true(forecast->direct_ns >= (2 << 20) * 40ull);
    assert_int_equal(mpath_plan_cache_forecast(cache, &params, &again), MPATH_OK);
    assert_ptr_equal(forecast->direct, again->direct); /* not computed again */
    mpath_plan_cache_destroy(cache);
    mpath_topo_destroy(topo);
}

/* A demand that has no path is reported, not kept. */
static void test_no_path(void **state)
{
    mpath_topo_t *topo        = grid_topo(2, 2, 0, MPATH_REACH_ALL);
    mpath_plan_cache_t *cache = make(topo);
    uint64_t demand[CELLS]    = {0};
    const mpath_plan_t *plan;
    int hit;

    (void)state;
    demand[3] = 1 << 20;
    capture_start();
    assert_int_equal(mpath_plan_cache_get(cache, 7, demand, &plan, &hit), MPATH_ERR_UNREACHABLE);
    assert_int_equal(mpath_plan_cache_get(cache, 7, demand, &plan, &hit), MPATH_ERR_UNREACHABLE);
    capture_stop();
    mpath_plan_cache_destroy(cache);
    mpath_topo_destroy(topo);
}

/* A demand near an earlier one keeps its routes, one far from all does not; A and B may alternate. */
static void test_keeps_routes(void **state)
{
    mpath_topo_t *topo        = grid_topo(2, 2, 2, MPATH_REACH_AFFINE);
    mpath_plan_cache_t *cache = make(topo);
    uint64_t demand[CELLS]    = {0};
    const mpath_plan_t *plan;
    int hit;

    (void)state;
    for (uint64_t call = 0; call < 3 * MPATH_PLAN_CACHE_ENTRIES; call++) {
        memset(demand, 0, sizeof(demand));
        demand[(call % 2) ? 2 : 7] = (8 << 20) + call * 1000; /* from 0 to 2, or from 1 to 3 */
        demand[(call % 2) ? 6 : 3] = 1 << 20;
        assert_int_equal(mpath_plan_cache_get(cache, call, demand, &plan, &hit), MPATH_OK);
        assert_int_equal(hit, 0);
        assert_int_equal(mpath_plan_is_kept(plan, NULL), call >= 2);
    }
    mpath_plan_cache_destroy(cache);
    mpath_topo_destroy(topo);
}

static void test_new_topology(void **state)
{
    mpath_topo_t *topo = grid_topo(2, 2, 2, MPATH_REACH_ALL), *same = grid_topo(2, 2, 2, MPATH_REACH_ALL);
    mpath_topo_t *other       = grid_topo(2, 2, 1, MPATH_REACH_ALL);
    mpath_plan_cache_t *cache = make(topo);
    uint64_t demand[CELLS]    = {0};
    const mpath_plan_t *plan;
    int hit;

    (void)state;
    demand[3] = 8 << 20;
    assert_int_equal(mpath_plan_cache_get(cache, 1, demand, &plan, &hit), MPATH_OK);
    mpath_plan_cache_set_topo(cache, same);
    mpath_topo_destroy(topo);
    assert_int_equal(mpath_plan_cache_get(cache, 1, demand, &plan, &hit), MPATH_OK);
    assert_int_equal(hit, 0); /* the times are others */
    assert_int_equal(mpath_plan_is_kept(plan, NULL), 1);
    assert_int_equal(mpath_plan_cache_get(cache, 1, demand, &plan, &hit), MPATH_OK);
    assert_int_equal(hit, 1);
    mpath_plan_cache_set_topo(cache, other);
    mpath_topo_destroy(same);
    assert_int_equal(mpath_plan_cache_get(cache, 1, demand, &plan, &hit), MPATH_OK);
    assert_int_equal(hit, 0);
    assert_int_equal(mpath_plan_is_kept(plan, NULL), 0); /* a rail less: other paths */
    mpath_plan_cache_destroy(cache);
    mpath_topo_destroy(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hits),
        cmocka_unit_test(test_eviction),
        cmocka_unit_test(test_eviction_by_bytes),
        cmocka_unit_test(test_eviction_by_flows),
        cmocka_unit_test(test_forecast),
        cmocka_unit_test(test_no_path),
        cmocka_unit_test(test_keeps_routes),
        cmocka_unit_test(test_new_topology),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
