/* SPDX-License-Identifier: BSD-3-Clause */
/* Attention: silence proves nothing while a rank does not look at its operation, and proves something once all have. */
#include "exec/attend.h"
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
#define AWAY_NS (1300 * MPATH_NS_PER_MS) /* more than a deadline */
#define RANKS 5

/* Of all ranks. */
typedef struct common {
    atomic_int convinced;   /* ranks that have found that all look */
    atomic_int before_late; /* of these, before the late rank began to look */
} common_t;

static common_t *common;

typedef struct look {
    mpath_team_t *team;
    int all;
} look_t;

/* An operation for which nothing ever comes. */
static void look_body(void *argument)
{
    look_t *look = argument;
    mpath_idle_t idle;

    mpath_idle_start(&idle);
    while (atomic_load(&common->convinced) < RANKS) {
        uint64_t waited_ns = mpath_idle_wait(&idle);

        mpath_attend_look(look->team, &idle, waited_ns);
        if (mpath_team_status(look->team) != MPATH_OK) {
            return;
        }
        if (!look->all && mpath_attend_all(look->team, DEADLINE_S)) {
            look->all = 1;
            atomic_fetch_add(&common->convinced, 1);
        }
    }
}

static int team_body(ranks_self_t *self, void *argument)
{
    int late = *(const int *)argument;
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_fiber_t *fiber;
    look_t look = {0};

    mpath_settings_init(&settings);
    settings.timeout_s = settings.resend_after_s = DEADLINE_S;
    context                                      = ranks_context(self, &settings);
    look.team                                    = ranks_team(self, context);
    ranks_check(mpath_attend_all(look.team, DEADLINE_S)); /* blocking: all look by right */
    ranks_check(mpath_fiber_create(1 << 18, &fiber) == MPATH_OK);
    if (self->rank == late) {
        usleep((useconds_t)(AWAY_NS / 1000));
        atomic_store(&common->before_late, atomic_load(&common->convinced));
    }
    mpath_fiber_start(fiber, look_body, &look);
    while (mpath_fiber_resume(fiber) != MPATH_FIBER_ENDED) {
        usleep(1000);
    }
    ranks_check(look.all);
    ranks_barrier(self);
    mpath_fiber_destroy(fiber);
    mpath_team_destroy(look.team);
    mpath_context_destroy(context);
    return 0;
}

/* The late rank leads its node: nobody speaks for the other one there. */
static void test_late(void **state)
{
    const int node_of[RANKS] = {0, 0, 1, 1, 2};
    int late                 = 2;
    ranks_setup_t setup      = {.size = RANKS, .node_of = node_of, .nics = 2, .limit_s = 120};

    (void)state;
    assert_int_equal(ranks_run(&setup, team_body, &late), 0);
    assert_int_equal(atomic_load(&common->before_late), 0);
    assert_int_equal(atomic_load(&common->convinced), RANKS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_late)};

    common = mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return (common == MAP_FAILED) ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
