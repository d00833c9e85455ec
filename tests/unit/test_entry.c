/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How reductions come to be asked about: when the ranks compare whether all use GPUs, when a team is made, and which calls
 * pass without a word to anybody. The communicator is replaced.
 */
#include "coll/entry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define LONG_BYTES (UINT64_C(1) << 20)

typedef struct scene {
    mpath_settings_t settings;
    mpath_tuning_t tuning;
    mpath_entry_t entry;
    int is_different;           /* the ranks have other parameters */
    int tried;                  /* a team; there never is one */
    int teams, asked, compared; /* calls of the functions below */
    int copies, asks;           /* of to_host(), and of these how many are for mpath */
} scene_t;

static int scene_team(void *user, int makes, mpath_symmetric_t **symmetric_p)
{
    scene_t *scene = user;

    scene->teams += makes && !scene->tried;
    scene->tried |= makes;
    *symmetric_p = NULL;
    return scene->tried;
}

static int scene_all(void *user, int mine, int here)
{
    scene_t *scene = user;

    (void)mine;
    (void)here;
    scene->asked++;
    return 0;
}

static int scene_same(void *user, uint64_t key)
{
    scene_t *scene = user;

    assert_true(key != 0);
    scene->compared++;
    return !scene->is_different;
}

static int scene_knows(void *user)
{
    (void)user;
    return 0;
}

static const char *scene_name(void *user)
{
    (void)user;
    return "a communicator";
}

static void open_scene(scene_t *scene, int size, const char *tune)
{
    static const mpath_entry_ops_t ops = {
        .team = scene_team, .all = scene_all, .same = scene_same, .knows_devices = scene_knows, .name = scene_name};
    char message[MPATH_TUNING_MESSAGE];

    *scene = (scene_t){.teams = 0};
    mpath_settings_init(&scene->settings);
    assert_int_equal(mpath_tuning_parse(tune, &scene->tuning, message, sizeof(message)), MPATH_OK);
    mpath_entry_init(&scene->entry, &scene->settings, &scene->tuning, &ops, scene, size, 0, 1);
}

static mpath_status_t to_host(mpath_reduction_t *call, int asks, void *user)
{
    scene_t *scene = user;

    (void)call;
    scene->copies++;
    scene->asks += asks;
    return MPATH_OK;
}

static mpath_status_t run(scene_t *scene, uint64_t bytes)
{
    mpath_reduction_t call = {
        .collective = MPATH_OPERATION_ALLGATHER, .bytes = bytes, .to_host = to_host, .user = scene};

    return mpath_entry_run(&scene->entry, &call);
}

/* In the 1st, 2nd, 4th, 8th ... call that is long enough, as long as nobody makes a team. */
static void test_asks_again(void **state)
{
    scene_t scene;

    (void)state;
    open_scene(&scene, 4, "allgather:@previous:host");
    for (int call = 1; call <= 16; call++) {
        assert_int_equal(run(&scene, LONG_BYTES), MPATH_DECLINED);
        assert_int_equal(run(&scene, 1), MPATH_DECLINED);
        assert_int_equal(scene.asked, call < 2 ? 1 : call < 4 ? 2 : call < 8 ? 3 : call < 16 ? 4 : 5);
    }
    assert_int_equal(scene.compared, 1);
    assert_int_equal(scene.teams, 0);
    assert_int_equal(scene.copies, 32);
    assert_int_equal(scene.asks, 0);
}

/* One that may gain makes the team; once, and where there is none nobody is asked any more. */
static void test_makes_a_team(void **state)
{
    scene_t scene;

    (void)state;
    open_scene(&scene, 4, "");
    assert_int_equal(run(&scene, 1), MPATH_DECLINED);
    assert_int_equal(scene.teams, 0);
    for (int call = 0; call < 3; call++) {
        assert_int_equal(run(&scene, LONG_BYTES), MPATH_DECLINED);
    }
    assert_int_equal(scene.teams, 1);
    assert_int_equal(scene.asked, 1);
    assert_true(mpath_entry_passes(&scene.entry, MPATH_OPERATION_ALLGATHER, LONG_BYTES));
    mpath_entry_ended(&scene.entry);
}

/* Other parameters on some rank, a rank alone, a gate that says never, a communicator that is not asked about. */
static void test_never(void **state)
{
    scene_t scene;

    (void)state;
    open_scene(&scene, 4, "");
    scene.is_different = 1;
    assert_int_equal(run(&scene, LONG_BYTES), MPATH_DECLINED);
    assert_int_equal(run(&scene, LONG_BYTES), MPATH_DECLINED);
    assert_int_equal(scene.compared, 1);
    assert_int_equal(scene.asked + scene.teams, 0);
    assert_true(mpath_entry_passes(&scene.entry, MPATH_OPERATION_ALLGATHER, LONG_BYTES));

    open_scene(&scene, 4, "");
    scene.settings.gate = MPATH_GATE_NEVER;
    assert_int_equal(run(&scene, LONG_BYTES), MPATH_DECLINED);
    assert_int_equal(scene.asked + scene.teams, 0);
    assert_false(mpath_entry_passes(&scene.entry, MPATH_OPERATION_ALLGATHER, LONG_BYTES)); /* only "auto" is so fast */

    open_scene(&scene, 4, "");
    mpath_entry_init(&scene.entry, &scene.settings, &scene.tuning, NULL, NULL, 4, 0, 1);
    assert_int_equal(run(&scene, LONG_BYTES), MPATH_DECLINED);
    assert_int_equal(scene.copies, 1);
    assert_true(mpath_entry_passes(&scene.entry, MPATH_OPERATION_ALLGATHER, LONG_BYTES));
    mpath_entry_ended(&scene.entry);
}

/* Before the ranks have compared anything, and where a call may gain, none passes. */
static void test_passes(void **state)
{
    scene_t scene;

    (void)state;
    open_scene(&scene, 4, "");
    assert_false(mpath_entry_passes(&scene.entry, MPATH_OPERATION_ALLREDUCE, 1));
    assert_int_equal(run(&scene, 1), MPATH_DECLINED);
    assert_true(mpath_entry_passes(&scene.entry, MPATH_OPERATION_ALLREDUCE, 1));
    assert_false(mpath_entry_passes(&scene.entry, MPATH_OPERATION_ALLREDUCE, LONG_BYTES));
    open_scene(&scene, 4, "allreduce:@previous:1m-inf");
    assert_int_equal(run(&scene, 1), MPATH_DECLINED);
    assert_false(mpath_entry_passes(&scene.entry, MPATH_OPERATION_ALLREDUCE, 1));
    assert_true(mpath_entry_passes(&scene.entry, MPATH_OPERATION_ALLGATHER, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_asks_again),
        cmocka_unit_test(test_makes_a_team),
        cmocka_unit_test(test_never),
        cmocka_unit_test(test_passes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
