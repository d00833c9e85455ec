/* SPDX-License-Identifier: BSD-3-Clause */
/* Attention: silence proves nothing while a rank does not look at its operation, and proves something once all have. */
#include "team/agree_private.h"
#include "team/attend.h"
#include "unit/ranks.h"
#include "util/fiber.h"
#include "util/time.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define DEADLINE_S 1
#define AWAY_NS (2 * MPATH_NS_PER_S) /* more than a deadline */
/* All look for so long, a beat less than a deadline, before it means something. */
#define LEAST_NS (800 * MPATH_NS_PER_MS)
#define LATER_NS (150 * MPATH_NS_PER_MS)
#define RANKS 5

/* Of all ranks. */
typedef struct common {
    atomic_int convinced;   /* ranks that have found that all look */
    atomic_int before_late; /* of these, before the late rank began to look */
    atomic_ullong late_ns;  /* when it did */
} common_t;

static common_t *common;

typedef struct scene {
    int late;    /* begins to look later than the others; -1: none */
    int through; /* a rank that has come to the end of the operation; -1: none */
    int before;  /* the late one looks for as long as a deadline before, where nobody waits for it */
} scene_t;

typedef struct look {
    mpath_team_t *team;
    const scene_t *scene;
    int all;
} look_t;

/* The end of the operation, at which the ranks wait for each other. */
static void settle(const look_t *look)
{
    uint64_t mine = 0, all[RANKS];
    int marked;

    ranks_check(mpath_team_settle(look->team, 0, &mine, sizeof(mine), all, &marked) == MPATH_OK);
}

/* An operation for which nothing ever comes. */
static void look_body(void *argument)
{
    look_t *look = argument;
    int lookers  = (look->scene->through >= 0) ? RANKS - 1 : RANKS;
    mpath_idle_t idle;

    if (mpath_team_rank(look->team) == look->scene->through) {
        settle(look);
        return;
    }
    mpath_idle_start(&idle);
    while (atomic_load(&common->convinced) < lookers) {
        uint64_t waited_ns = mpath_idle_wait(&idle);

        mpath_attend_look(look->team, &idle, waited_ns);
        ranks_check(mpath_team_status(look->team) == MPATH_OK);
        if (!look->all && mpath_attend_all(look->team, DEADLINE_S)) {
            look->all = 1;
            ranks_check(mpath_time_ns() >= atomic_load(&common->late_ns) + LEAST_NS);
            atomic_fetch_add(&common->convinced, 1);
        }
    }
    ranks_check(look->all);
    if (look->scene->through >= 0) {
        settle(look);
    }
}

/* Nobody waits for what this rank looks at. */
static void look_before_body(void *argument)
{
    look_t *look    = argument;
    uint64_t end_ns = mpath_time_ns() + AWAY_NS;
    mpath_idle_t idle;

    mpath_idle_start(&idle);
    while (mpath_time_ns() < end_ns) {
        mpath_attend_look(look->team, &idle, mpath_idle_wait(&idle));
    }
}

static void run_body(mpath_fiber_t *fiber, mpath_fiber_body_t body, look_t *look)
{
    mpath_fiber_start(fiber, body, look);
    while (mpath_fiber_resume(fiber) != MPATH_FIBER_ENDED) {
        usleep(1000);
    }
}

static void run_scene(ranks_self_t *self, mpath_fiber_t *fiber, mpath_team_t *team, const scene_t *scene)
{
    look_t look = {.team = team, .scene = scene};

    if (scene->before && (self->rank == scene->late)) {
        run_body(fiber, look_before_body, &look);
    }
    ranks_barrier(self);
    if (self->rank == 0) {
        atomic_store(&common->convinced, 0);
        atomic_store(&common->before_late, 0);
        atomic_store(&common->late_ns, 0);
    }
    ranks_barrier(self);
    if (scene->before) {
        team->agree->attend.next_beat_ns = mpath_time_ns() + LATER_NS; /* when the others' wait has begun */
    }
    if (self->rank == scene->late) {
        usleep((useconds_t)(AWAY_NS / 1000));
        atomic_store(&common->before_late, atomic_load(&common->convinced));
        atomic_store(&common->late_ns, mpath_time_ns());
    }
    run_body(fiber, look_body, &look);
    ranks_barrier(self);
    ranks_check(atomic_load(&common->before_late) == 0);
    ranks_check(atomic_load(&common->convinced) == ((scene->through >= 0) ? RANKS - 1 : RANKS));
}

/* `argument`: scenes up to one with nobody in it. */
static int team_body(ranks_self_t *self, void *argument)
{
    const scene_t *scene = argument;
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_fiber_t *fiber;
    mpath_team_t *team;

    mpath_settings_init(&settings);
    settings.timeout_s = 100;
    context            = ranks_context(self, &settings);
    team               = ranks_team(self, context);
    ranks_barrier(self);
    context->settings.timeout_s = context->settings.resend_after_s = DEADLINE_S;
    ranks_check(mpath_attend_all(team, DEADLINE_S)); /* blocking: all look by right */
    ranks_check(mpath_fiber_create(1 << 18, &fiber) == MPATH_OK);
    for (; (scene->late >= 0) || (scene->through >= 0); scene++) {
        run_scene(self, fiber, team, scene);
    }
    mpath_fiber_destroy(fiber);
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    return 0;
}

static void run(scene_t *scenes)
{
    const int node_of[RANKS] = {0, 0, 1, 1, 2};
    ranks_setup_t setup      = {.size = RANKS, .node_of = node_of, .nics = 2};

    assert_int_equal(ranks_run(&setup, team_body, scenes), 0);
}

/* Where leaders talk in rounds. */
static void run_many(scene_t *scenes)
{
    const int node_of[RANKS] = {0, 1, 2, 3, 4};
    ranks_setup_t setup      = {.size = RANKS, .node_of = node_of, .nics = 2};

    assert_int_equal(ranks_run(&setup, team_body, scenes), 0);
}

#define NO_SCENE                                                                                                       \
    {                                                                                                                  \
        .late = -1, .through = -1                                                                                      \
    }

/* The late rank leads its node: nobody speaks for the other one there. */
static void test_late(void **state)
{
    scene_t scenes[] = {{.late = 2, .through = -1}, NO_SCENE};

    (void)state;
    run(scenes);
    run_many(scenes);
}

/* Nobody waits for a node that has come to the end. That does not count in the next operation. */
static void test_through(void **state)
{
    scene_t scenes[] = {{.late = -1, .through = 4}, {.late = 4, .through = -1}, NO_SCENE};

    (void)state;
    run(scenes);
    run_many(scenes);
}

/* What a rank looked at before the wait does not count, either. Its leader speaks for it. */
static void test_before(void **state)
{
    scene_t scenes[] = {{.late = 3, .through = -1, .before = 1}, NO_SCENE};

    (void)state;
    run(scenes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_late), cmocka_unit_test(test_through),
                                       cmocka_unit_test(test_before)};

    common = mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return (common == MAP_FAILED) ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
