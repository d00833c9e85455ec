/* SPDX-License-Identifier: BSD-3-Clause */
/* Gate: who runs, for every kind of topology and demand it tells apart. */
#include "coll/gate.h"
#include "unit/capture.h"
#include "unit/grid.h"

static const char *before(const mpath_settings_t *settings, const mpath_topo_t *topo, int source, int destination,
                          uint64_t bytes)
{
    uint64_t demand[GRID_MAX_RANKS * GRID_MAX_RANKS] = {0};
    mpath_gate_view_t view;

    demand[source * mpath_topo_num_ranks(topo) + destination] = bytes;
    demand[0]                                                 = 1 << 30; /* the diagonal counts for nothing */
    mpath_gate_look(topo, demand, &view);
    assert_true(view.largest_bytes == bytes);
    return mpath_gate_before_plan(settings, &view);
}

static void test_one_node(void **state)
{
    mpath_topo_t *topo = grid_topo(1, 4, 2, MPATH_REACH_ALL);
    mpath_settings_t settings;

    (void)state;
    mpath_settings_init(&settings);
    settings.node_min_bytes = 10000;
    assert_null(before(&settings, topo, 0, 1, 9999));
    assert_non_null(before(&settings, topo, 0, 1, 10000));
    settings.gate = MPATH_GATE_ALWAYS;
    assert_null(before(&settings, topo, 0, 1, 10000));
    settings.gate = MPATH_GATE_NEVER;
    assert_non_null(before(&settings, topo, 0, 1, 1));
    mpath_topo_destroy(topo);
}

static void test_nodes(void **state)
{
    mpath_topo_t *topo = grid_topo(2, 4, 4, MPATH_REACH_AFFINE);
    mpath_settings_t settings;

    (void)state;
    mpath_settings_init(&settings);
    settings.node_min_bytes = 10000;
    assert_null(before(&settings, topo, 0, 7, 1 << 20));
    assert_non_null(before(&settings, topo, 4, 7, 1 << 20));
    assert_null(before(&settings, topo, 4, 7, 9999));
    settings.gate = MPATH_GATE_NEVER;
    assert_non_null(before(&settings, topo, 0, 7, 1 << 20));
    mpath_topo_destroy(topo);
}

static int compares(int nics, mpath_access_mode_t access, int gate)
{
    mpath_topo_t *topo = grid_topo(2, 4, nics, access);
    mpath_settings_t settings;
    int result;

    mpath_settings_init(&settings);
    settings.gate = gate;
    result        = mpath_gate_compares(topo, &settings);
    mpath_topo_destroy(topo);
    return result;
}

static void test_static_route(void **state)
{
    (void)state;
    assert_true(compares(1, MPATH_REACH_ALL, MPATH_GATE_AUTO));
    assert_false(compares(1, MPATH_REACH_ALL, MPATH_GATE_ALWAYS));
    assert_false(compares(1, MPATH_REACH_AFFINE, MPATH_GATE_AUTO));
    assert_false(compares(2, MPATH_REACH_ALL, MPATH_GATE_AUTO));
    assert_null(mpath_gate_after_plan(99, 100));
    assert_non_null(mpath_gate_after_plan(100, 100));
    assert_non_null(mpath_gate_after_plan(101, 100));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_node),
        cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_static_route),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
