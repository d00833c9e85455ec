/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which algorithm carries a call: parameters before predicted times, every kind of topology and demand that rows tell
 * apart, and the rules of parameter tune with what is said of wrong ones.
 */
#include "coll/tuning.h"
#include "unit/capture.h"
#include "unit/grid.h"

typedef struct scene {
    mpath_settings_t settings;
    mpath_topo_t *topo;
    mpath_gate_forecast_t forecast;
    int plans;            /* calls of scene_plan() */
    const char *obstacle; /* that it finds */
    int by_pairs;         /* it is made by pairs of nodes */
    mpath_decision_t decision;
} scene_t;

static void open_scene(scene_t *scene, int nodes, int nics, mpath_access_mode_t access)
{
    memset(scene, 0, sizeof(*scene));
    mpath_settings_init(&scene->settings);
    scene->settings.node_min_bytes = 10000;
    scene->topo                    = grid_topo(nodes, 4, nics, access);
}

static void close_scene(scene_t *scene)
{
    mpath_gate_forecast_release(&scene->forecast);
    mpath_topo_destroy(scene->topo);
}

static mpath_status_t scene_plan(mpath_question_t *question)
{
    scene_t *scene = question->planner;

    scene->plans++;
    question->obstacle = scene->obstacle;
    question->forecast = scene->obstacle == NULL ? &scene->forecast : NULL;
    return MPATH_OK;
}

/* The name of what carries an Alltoallv whose agreement has not finished it. */
static const char *choose(scene_t *scene, uint64_t largest_bytes, uint64_t between_bytes, const char *forced)
{
    mpath_question_t question = {.collective    = MPATH_OPERATION_ALLTOALLV,
                                 .memory        = MPATH_ON_HOST,
                                 .settings      = &scene->settings,
                                 .topo          = scene->topo,
                                 .bytes         = largest_bytes,
                                 .largest_bytes = largest_bytes,
                                 .between_bytes = between_bytes,
                                 .by_pairs      = scene->by_pairs,
                                 .agreed        = 1,
                                 .plan          = scene_plan,
                                 .planner       = scene};

    if (forced != NULL) {
        question.forced = mpath_algorithm_find(MPATH_OPERATION_ALLTOALLV, forced);
        assert_non_null(question.forced);
    }
    assert_int_equal(mpath_choose(&question, &scene->decision), MPATH_OK);
    assert_non_null(scene->decision.because);
    return scene->decision.algorithm->name;
}

/* `has_direct`: the plan leaves the static routes. */
static void predict(scene_t *scene, int has_direct, uint64_t plan_ns, uint64_t direct_ns)
{
    uint64_t demand[GRID_MAX_RANKS * GRID_MAX_RANKS] = {0};

    mpath_gate_forecast_release(&scene->forecast);
    scene->forecast = (mpath_gate_forecast_t){.plan_ns = plan_ns, .direct_ns = direct_ns};
    if (has_direct) {
        assert_int_equal(mpath_plan_create(scene->topo, demand, NULL, &scene->forecast.direct), MPATH_OK);
    }
}

static void test_times(void **state)
{
    static const struct {
        int nics;
        mpath_access_mode_t access;
        int has_direct;
        uint64_t plan_ns, direct_ns;
        const char *name;
    } cases[] = {{1, MPATH_REACH_ALL, 0, 100, 100, "previous"}, {1, MPATH_REACH_ALL, 1, 101, 100, "previous"},
                 {1, MPATH_REACH_ALL, 1, 99, 100, "planned"},   {1, MPATH_REACH_AFFINE, 0, 100, 100, "planned"},
                 {2, MPATH_REACH_ALL, 0, 100, 100, "planned"},  {2, MPATH_REACH_ALL, 1, 100, 100, "planned"},
                 {2, MPATH_REACH_ALL, 1, 99, 100, "planned"},   {2, MPATH_REACH_AFFINE, 1, 101, 100, "direct"}};
    scene_t scene;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        open_scene(&scene, 2, cases[i].nics, cases[i].access);
        predict(&scene, cases[i].has_direct, cases[i].plan_ns, cases[i].direct_ns);
        assert_string_equal(choose(&scene, 1 << 20, 1 << 20, NULL), cases[i].name);
        assert_int_equal(scene.plans, 1);
        close_scene(&scene);
    }
}

/* Inside nodes long messages are left to who copies them once, without a plan. */
static void test_inside_nodes(void **state)
{
    scene_t scene;

    (void)state;
    open_scene(&scene, 1, 2, MPATH_REACH_ALL);
    predict(&scene, 0, 100, 100);
    assert_string_equal(choose(&scene, 9999, 0, NULL), "planned");
    assert_int_equal(scene.plans, 1);
    assert_string_equal(choose(&scene, 10000, 0, NULL), "previous");
    assert_non_null(strstr(scene.decision.because, "node_min_bytes"));
    assert_int_equal(scene.plans, 1);
    scene.settings.gate = MPATH_GATE_ALWAYS;
    assert_string_equal(choose(&scene, 10000, 0, NULL), "planned");
    scene.settings.gate = MPATH_GATE_NEVER;
    assert_string_equal(choose(&scene, 1, 0, NULL), "previous");
    assert_string_equal(scene.decision.because, "a parameter says never");
    assert_string_equal(choose(&scene, 1, 0, "planned"), "previous");
    assert_int_equal(scene.plans, 2);
    close_scene(&scene);
}

/* A plan by pairs of nodes is the only one of its call. */
static void test_by_pairs(void **state)
{
    scene_t scene;

    (void)state;
    open_scene(&scene, 2, 2, MPATH_REACH_ALL);
    predict(&scene, 0, 100, 100);
    assert_string_equal(choose(&scene, 1 << 20, 1 << 20, NULL), "planned");
    assert_string_equal(choose(&scene, 1 << 20, 1 << 20, "pairs"), "previous");
    scene.by_pairs = 1;
    assert_string_equal(choose(&scene, 1 << 20, 1 << 20, NULL), "pairs");
    assert_string_equal(choose(&scene, 1 << 20, 1 << 20, "pairs"), "pairs");
    assert_string_equal(choose(&scene, 1 << 20, 1 << 20, "planned"), "previous");
    assert_string_equal(scene.decision.because, "the plan is made by pairs of nodes");
    assert_string_equal(choose(&scene, 1 << 20, 0, NULL), "previous");
    close_scene(&scene);
}

/* Parameters come before times, not before what is impossible. */
static void test_forced(void **state)
{
    scene_t scene;

    (void)state;
    open_scene(&scene, 2, 1, MPATH_REACH_ALL);
    predict(&scene, 0, 100, 100);
    assert_string_equal(choose(&scene, 1 << 20, 1 << 20, "planned"), "planned");
    assert_string_equal(choose(&scene, 1 << 20, 1 << 20, "direct"), "direct");
    assert_string_equal(choose(&scene, 1 << 20, 1 << 20, "previous"), "previous");
    assert_string_equal(choose(&scene, 1 << 20, 1 << 20, "inline"), "previous");
    scene.obstacle = "there is no path";
    assert_string_equal(choose(&scene, 1 << 20, 1 << 20, "planned"), "previous");
    assert_string_equal(scene.decision.because, "there is no path");
    scene.settings.gate = MPATH_GATE_ALWAYS;
    assert_string_equal(choose(&scene, 1 << 20, 1 << 20, NULL), "previous");
    close_scene(&scene);
}

/* What was faster comes before what is predicted. */
static void test_tuner(void **state)
{
    mpath_question_t question = {.collective = MPATH_OPERATION_ALLTOALLV, .memory = MPATH_ON_HOST, .agreed = 1};
    scene_t scene;

    (void)state;
    open_scene(&scene, 2, 2, MPATH_REACH_ALL);
    question.settings      = &scene.settings;
    question.topo          = scene.topo;
    question.between_bytes = question.largest_bytes = 1 << 20;
    question.tuner                                  = "it was faster";
    assert_int_equal(mpath_choose(&question, &scene.decision), MPATH_OK);
    assert_string_equal(scene.decision.algorithm->name, "previous");
    assert_string_equal(scene.decision.because, "it was faster");
    question.forced = mpath_algorithm_find(MPATH_OPERATION_ALLTOALLV, "planned");
    assert_int_equal(mpath_choose(&question, &scene.decision), MPATH_OK);
    assert_string_equal(scene.decision.algorithm->name, "planned");
    close_scene(&scene);
}

/* -- device memory -- */

/* The name of what carries an Alltoallv on the GPUs of the scene. */
static const char *choose_on_device(scene_t *scene, mpath_question_t question)
{
    question.collective = MPATH_OPERATION_ALLTOALLV;
    question.memory     = MPATH_ON_DEVICE;
    question.settings   = &scene->settings;
    question.topo       = scene->topo;
    question.agreed     = 1;
    question.plan       = scene_plan;
    question.planner    = scene;
    assert_int_equal(mpath_choose(&question, &scene->decision), MPATH_OK);
    assert_non_null(scene->decision.because);
    return scene->decision.algorithm->name;
}

static const mpath_algorithm_t *row(const char *name)
{
    return mpath_algorithm_find(MPATH_OPERATION_ALLTOALLV, name);
}

/* Between nodes: the plan or the static routes by time, copies where relays cannot, the previous function where nothing can. */
static void test_gpus_of_nodes(void **state)
{
    const char *no_node = "several nodes", *no_copy = "no copies";
    scene_t scene;

    (void)state;
    open_scene(&scene, 2, 4, MPATH_REACH_ALL);
    predict(&scene, 1, 100, 100);
    assert_string_equal(choose_on_device(&scene, (mpath_question_t){.node_obstacle = no_node}), "planned");
    predict(&scene, 1, 101, 100);
    assert_string_equal(choose_on_device(&scene, (mpath_question_t){.node_obstacle = no_node}), "direct");
    assert_string_equal(
        choose_on_device(&scene, (mpath_question_t){.node_obstacle = no_node, .forced = row("planned")}), "planned");
    assert_string_equal(choose_on_device(&scene, (mpath_question_t){.node_obstacle = no_node, .forced = row("copied")}),
                        "copied");
    assert_int_equal(scene.plans, 3);
    assert_string_equal(choose_on_device(&scene, (mpath_question_t){.node_obstacle = no_node, .obstacle = "no relays"}),
                        "copied");
    assert_string_equal(
        choose_on_device(
            &scene, (mpath_question_t){.node_obstacle = no_node, .obstacle = "no relays", .copy_obstacle = no_copy}),
        "previous");
    assert_string_equal(scene.decision.because, "no relays");
    scene.obstacle = "there is no path";
    assert_string_equal(choose_on_device(&scene, (mpath_question_t){.node_obstacle = no_node}), "copied");
    assert_int_equal(scene.plans, 4);
    close_scene(&scene);
}

/* Inside one: a plan that is better than the links as they are, else the GPUs' own copies. */
static void test_gpus_of_a_node(void **state)
{
    const char *no_copy = "on one node";
    scene_t scene;

    (void)state;
    open_scene(&scene, 1, 4, MPATH_REACH_ALL);
    predict(&scene, 1, 99, 100);
    assert_string_equal(choose_on_device(&scene, (mpath_question_t){.copy_obstacle = no_copy}), "planned");
    predict(&scene, 1, 101, 100);
    assert_string_equal(choose_on_device(&scene, (mpath_question_t){.copy_obstacle = no_copy}), "node");
    scene.settings.gate = MPATH_GATE_ALWAYS;
    assert_string_equal(choose_on_device(&scene, (mpath_question_t){.copy_obstacle = no_copy}), "planned");
    assert_string_equal(choose_on_device(&scene, (mpath_question_t){.copy_obstacle = no_copy, .obstacle = "no relays"}),
                        "node");
    scene.settings.gate = MPATH_GATE_AUTO;
    assert_string_equal(choose_on_device(&scene, (mpath_question_t){.copy_obstacle = no_copy, .finished = 1}), "eager");
    assert_string_equal(choose_on_device(&scene, (mpath_question_t){.obstacle      = "no relays",
                                                                    .copy_obstacle = no_copy,
                                                                    .node_obstacle = "they take turns"}),
                        "previous");
    assert_string_equal(scene.decision.because, "they take turns");
    close_scene(&scene);
}

/* A rule that names no memory leaves a call on device memory alone that its row cannot carry; one that names it does not. */
static void test_forced_on_device(void **state)
{
    scene_t scene;

    (void)state;
    open_scene(&scene, 1, 4, MPATH_REACH_ALL);
    assert_string_equal(choose_on_device(&scene, (mpath_question_t){.obstacle = "no relays", .forced = row("planned")}),
                        "node");
    assert_string_equal(
        choose_on_device(&scene, (mpath_question_t){.obstacle = "no relays", .forced = row("planned"), .insists = 1}),
        "previous");
    assert_string_equal(scene.decision.because, "no relays");
    assert_string_equal(choose_on_device(&scene, (mpath_question_t){.forced = row("direct")}), "planned");
    assert_string_equal(choose_on_device(&scene, (mpath_question_t){.forced = row("node")}), "node");
    assert_string_equal(choose_on_device(&scene, (mpath_question_t){.forced = row("previous")}), "previous");
    assert_string_equal(scene.decision.because, "a parameter says never");
    close_scene(&scene);
}

/* Trials name a row, which counts where it is able; without a plan where it needs none. */
static void test_tuned(void **state)
{
    scene_t scene;

    (void)state;
    open_scene(&scene, 2, 4, MPATH_REACH_ALL);
    predict(&scene, 1, 99, 100);
    assert_string_equal(choose_on_device(&scene, (mpath_question_t){.tuner = "it was faster", .tuned = row("copied")}),
                        "copied");
    assert_string_equal(choose_on_device(&scene, (mpath_question_t){.tuner = "it was faster"}), "previous");
    assert_string_equal(scene.decision.because, "it was faster");
    assert_int_equal(scene.plans, 0);
    assert_string_equal(choose_on_device(&scene, (mpath_question_t){.tuner = "it was faster", .tuned = row("direct")}),
                        "direct");
    assert_string_equal(
        choose_on_device(
            &scene, (mpath_question_t){.tuner = "it was faster", .tuned = row("copied"), .copy_obstacle = "no copies"}),
        "planned");
    close_scene(&scene);
}

/* Reductions on the GPUs of one node: theirs, whatever rule is about nodes; copies where they cannot. */
static void test_reductions_of_a_node(void **state)
{
    static const mpath_operation_t collectives[] = {MPATH_OPERATION_ALLREDUCE, MPATH_OPERATION_REDUCE_SCATTER,
                                                    MPATH_OPERATION_ALLGATHER};
    mpath_decision_t decision;
    scene_t scene;

    (void)state;
    open_scene(&scene, 1, 4, MPATH_REACH_ALL);
    for (size_t i = 0; i < sizeof(collectives) / sizeof(collectives[0]); i++) {
        mpath_question_t question = {.collective = collectives[i],
                                     .memory     = MPATH_ON_DEVICE,
                                     .settings   = &scene.settings,
                                     .topo       = scene.topo,
                                     .bytes      = 1000};

        assert_int_equal(mpath_choose(&question, &decision), MPATH_OK);
        assert_string_equal(decision.algorithm->name, "node");
        question.forced = mpath_algorithm_find(collectives[i], "pipeline");
        assert_int_equal(mpath_choose(&question, &decision), MPATH_OK);
        assert_string_equal(decision.algorithm->name, "node");
        question.forced = mpath_algorithm_find(collectives[i], "copied");
        assert_int_equal(mpath_choose(&question, &decision), MPATH_OK);
        assert_string_equal(decision.algorithm->name, "copied");
        question.forced        = NULL;
        question.node_obstacle = "no kernels";
        assert_int_equal(mpath_choose(&question, &decision), MPATH_OK);
        assert_string_equal(decision.algorithm->name, "copied");
    }
    close_scene(&scene);
}

/* -- parameter tune -- */

static const char *find(const mpath_tuning_t *tuning, mpath_operation_t collective, uint32_t memory, uint64_t bytes)
{
    const mpath_algorithm_t *algorithm = mpath_tuning_find(tuning, collective, memory, bytes);

    return algorithm != NULL ? algorithm->name : "";
}

static void test_rules(void **state)
{
    char message[MPATH_TUNING_MESSAGE];
    mpath_tuning_t tuning;

    (void)state;
    assert_int_equal(mpath_tuning_parse("", &tuning, message, sizeof(message)), MPATH_OK);
    assert_int_equal(tuning.count, 0);
    assert_int_equal(mpath_tuning_parse("alltoallv:@planned:4k-inf,allreduce:@previous,allreduce:1m-2m:@PIPELINE:host",
                                        &tuning, message, sizeof(message)),
                     MPATH_OK);
    assert_string_equal(find(&tuning, MPATH_OPERATION_ALLTOALLV, MPATH_ON_HOST, 4095), "");
    assert_string_equal(find(&tuning, MPATH_OPERATION_ALLTOALLV, MPATH_ON_HOST, 4096), "planned");
    assert_string_equal(find(&tuning, MPATH_OPERATION_ALLTOALLV, MPATH_ON_HOST, UINT64_MAX), "planned");
    assert_string_equal(find(&tuning, MPATH_OPERATION_ALLTOALLV, MPATH_ON_DEVICE, 4096), "planned");
    assert_string_equal(find(&tuning, MPATH_OPERATION_ALLREDUCE, MPATH_ON_HOST, 1 << 20), "pipeline");
    assert_string_equal(find(&tuning, MPATH_OPERATION_ALLREDUCE, MPATH_ON_DEVICE, 1 << 20), "previous");
    assert_string_equal(find(&tuning, MPATH_OPERATION_ALLREDUCE, MPATH_ON_HOST, 2 << 20), "previous");
    assert_string_equal(find(&tuning, MPATH_OPERATION_ALLGATHER, MPATH_ON_HOST, 1 << 20), "");
    assert_true(mpath_tuning_has(&tuning, MPATH_OPERATION_ALLREDUCE, MPATH_ON_DEVICE));
    assert_false(mpath_tuning_has(&tuning, MPATH_OPERATION_REDUCE_SCATTER, MPATH_ON_HOST));
    assert_false(mpath_tuning_is_never(&tuning, MPATH_OPERATION_ALLREDUCE)); /* the last rule is another */
    assert_int_equal(mpath_tuning_parse("alltoall:@previous", &tuning, message, sizeof(message)), MPATH_OK);
    assert_true(mpath_tuning_is_never(&tuning, MPATH_OPERATION_ALLTOALLV));
}

static void refused(const char *text, const char *place, const char *why)
{
    char message[MPATH_TUNING_MESSAGE] = "";
    mpath_tuning_t tuning;

    assert_int_equal(mpath_tuning_parse(text, &tuning, message, sizeof(message)), MPATH_ERR_PARAM);
    assert_int_equal(tuning.count, 0);
    assert_non_null(strstr(message, place));
    assert_non_null(strstr(message, why));
}

static void test_refused(void **state)
{
    char many[33 * sizeof("allgather:@inline")] = "";

    (void)state;
    refused("alltoallv:@plannd", "character 12",
            "did you mean 'planned'? There are inline, eager, planned, direct, pairs, node, copied, previous");
    refused("allreduce:@inline,alreduce:@inline", "character 19", "is no collective; did you mean 'allreduce'?");
    refused("allreduce:@qwxyz", "'qwxyz'",
            "is no algorithm of allreduce. There are inline, node, pipeline, copied, previous");
    refused("allreduce:4k-1k:@inline", "character 11: '4k-1k'", "the larger behind the dash");
    refused("allreduce:@inline:x-1k", "character 19", "is no range");
    refused("allreduce:@inline:gpu", "character 19", "is neither @ALGORITHM nor LOW-HIGH");
    refused("allreduce:4k-inf", "'allreduce:4k-inf'", "names no algorithm");
    refused("allreduce", "'allreduce'", "names no algorithm");
    refused("allreduce:@inline:device", "character 1", "is for memory that the algorithm does not know");
    refused("allreduce:@inline,", "character 18", "has no rule behind it");
    refused(",allreduce:@inline", "character 1", "is no collective");
    for (int i = 0; i < 33; i++) {
        strcat(many, i > 0 ? ",allgather:@inline" : "allgather:@inline");
    }
    refused(many, "too much", "32 rules");
}

/* The parameters that tune replaces count where it has no rule. */
static void test_old_parameters(void **state)
{
    mpath_settings_t settings;
    mpath_tuning_t tuning;

    (void)state;
    mpath_settings_init(&settings);
    settings.tune                = "allreduce:@inline:0-1k";
    settings.alltoallv_algorithm = MPATH_ROUTES_LANES;
    settings.allreduce_algorithm = MPATH_ALGORITHM_LANES;
    settings.allgather_algorithm = MPATH_ALGORITHM_SMALL;
    capture_start();
    mpath_tuning_read(&settings, 1, &tuning);
    assert_string_equal(find(&tuning, MPATH_OPERATION_ALLTOALLV, MPATH_ON_HOST, 1), "planned");
    assert_string_equal(find(&tuning, MPATH_OPERATION_ALLREDUCE, MPATH_ON_HOST, 1), "inline");
    assert_string_equal(find(&tuning, MPATH_OPERATION_ALLREDUCE, MPATH_ON_HOST, 1024), "");
    assert_string_equal(find(&tuning, MPATH_OPERATION_ALLGATHER, MPATH_ON_HOST, 1024), "inline");
    capture_start();
    settings.tune = "allreduce:@ring";
    mpath_tuning_read(&settings, 1, &tuning);
    assert_int_equal(capture_count(), 0);
    assert_string_equal(find(&tuning, MPATH_OPERATION_ALLREDUCE, MPATH_ON_HOST, 1), "pipeline");
    capture_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_inside_nodes),
        cmocka_unit_test(test_by_pairs),
        cmocka_unit_test(test_forced),
        cmocka_unit_test(test_tuner),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_old_parameters),
        cmocka_unit_test(test_gpus_of_nodes),
        cmocka_unit_test(test_gpus_of_a_node),
        cmocka_unit_test(test_forced_on_device),
        cmocka_unit_test(test_tuned),
        cmocka_unit_test(test_reductions_of_a_node),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
