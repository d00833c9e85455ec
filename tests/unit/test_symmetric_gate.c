/* SPDX-License-Identifier: BSD-3-Clause */
/* When the symmetric collectives are left to the previous functions: settings, sizes, topologies, predicted times. */
#include "coll/symmetric_private.h"
#include "exec/team_private.h"
#include "unit/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define RANKS 4
#define MIB (UINT64_C(1) << 20)
#define REDUCES MPATH_SHARE_REDUCE
#define GATHERS MPATH_SHARE_GATHER

typedef struct scene {
    mpath_settings_t *settings; /* the context's, for changes */
    mpath_context_t *context;
    mpath_team_t *team;
    mpath_coll_t *coll;
    mpath_symmetric_t *symmetric;
} scene_t;

static void open_scene(scene_t *scene, ranks_self_t *self)
{
    mpath_settings_t settings;

    mpath_settings_init(&settings);
    settings.memory_bytes = 8 * MIB;
    scene->context        = ranks_context(self, &settings);
    scene->settings       = &scene->context->settings;
    scene->team           = ranks_team(self, scene->context);
    ranks_check(mpath_coll_create(scene->team, &scene->coll) == MPATH_OK);
    ranks_check(mpath_symmetric_create(scene->team, scene->coll, &scene->symmetric) == MPATH_OK);
}

static int close_scene(scene_t *scene)
{
    mpath_symmetric_destroy(scene->symmetric);
    mpath_coll_destroy(scene->coll);
    mpath_team_destroy(scene->team);
    mpath_context_destroy(scene->context);
    return 0;
}

/* `because` NULL: mpath goes on. */
static void check_gate(scene_t *scene, int algorithm, unsigned flags, uint64_t bytes, const char *because)
{
    mpath_status_t status = mpath_symmetric_gate(scene->symmetric, algorithm, flags, bytes, bytes, 0);

    ranks_check(status == ((because == NULL) ? MPATH_OK : MPATH_DECLINED));
    ranks_check(strcmp(mpath_symmetric_declined_because(scene->symmetric), (because == NULL) ? "" : because) == 0);
}

/* Slow rails, of which there are two. */
static int rails_body(ranks_self_t *self, void *argument)
{
    const unsigned kinds[] = {REDUCES | GATHERS, REDUCES, GATHERS};
    scene_t scene;

    (void)argument;
    open_scene(&scene, self);
    check_gate(&scene, MPATH_ALGORITHM_AUTO, REDUCES | GATHERS, 4 * MIB, NULL);
    check_gate(&scene, MPATH_ALGORITHM_AUTO, GATHERS, 4 * MIB, NULL);
    check_gate(&scene, MPATH_ALGORITHM_PREVIOUS, GATHERS, 4 * MIB, "a parameter says never");
    check_gate(&scene, MPATH_ALGORITHM_SMALL, GATHERS, 4 * MIB, "more than travels in the agreement");
    check_gate(&scene, MPATH_ALGORITHM_SMALL, GATHERS, 8, NULL);
    check_gate(&scene, MPATH_ALGORITHM_LANES, GATHERS, 8, NULL);
    scene.settings->symmetric_min_bytes = 4 * MIB + 1;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        check_gate(&scene, MPATH_ALGORITHM_AUTO, kinds[i], 4 * MIB, "less than symmetric_min_bytes");
    }
    check_gate(&scene, MPATH_ALGORITHM_LANES, GATHERS, 4 * MIB, NULL);
    scene.settings->gate = MPATH_GATE_ALWAYS;
    check_gate(&scene, MPATH_ALGORITHM_AUTO, GATHERS, 4 * MIB, NULL);
    scene.settings->gate = MPATH_GATE_NEVER;
    check_gate(&scene, MPATH_ALGORITHM_LANES, GATHERS, 4 * MIB, "a parameter says never");
    return close_scene(&scene);
}

/* `argument`: why there is nothing to gain, however large the vector. */
static int no_gain_body(ranks_self_t *self, void *argument)
{
    scene_t scene;

    open_scene(&scene, self);
    check_gate(&scene, MPATH_ALGORITHM_AUTO, REDUCES | GATHERS, 64 * MIB, argument);
    check_gate(&scene, MPATH_ALGORITHM_AUTO, GATHERS, 64 * MIB, argument);
    scene.settings->gate = MPATH_GATE_ALWAYS;
    check_gate(&scene, MPATH_ALGORITHM_AUTO, GATHERS, 64 * MIB, NULL);
    return close_scene(&scene);
}

/* Rails so fast that only the messages of the agreement count. */
static int fast_body(ranks_self_t *self, void *argument)
{
    scene_t scene;

    (void)argument;
    open_scene(&scene, self);
    check_gate(&scene, MPATH_ALGORITHM_AUTO, REDUCES | GATHERS, 32768,
               "predicted to be no faster than the previous function");
    return close_scene(&scene);
}

static void run(int nodes, int nics, uint64_t nic_bps, ranks_body_t body, const char *argument)
{
    ranks_setup_t setup = {.size = RANKS, .nodes = nodes, .nics = nics, .nic_bps = nic_bps, .limit_s = 120};

    assert_int_equal(ranks_run(&setup, body, (void *)(uintptr_t)argument), 0);
}

static void test_rails(void **state)
{
    (void)state;
    run(2, 2, 25000000, rails_body, NULL);
}

static void test_no_gain(void **state)
{
    (void)state;
    run(1, 2, 25000000, no_gain_body, "all ranks share one node");
    run(2, 1, 25000000, no_gain_body, "there is one rail");
}

static void test_fast(void **state)
{
    (void)state;
    run(2, 2, UINT64_C(100000000000), fast_body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rails),
        cmocka_unit_test(test_no_gain),
        cmocka_unit_test(test_fast),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
