/* SPDX-License-Identifier: BSD-3-Clause */
/* Which calls pass: grants that double, trials of short calls in both ways, and decisions that hold for their size. */
#include "tune/choice.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define RANKS 3

/* How long a call takes the rank that comes last, and the size of its largest pair. */
typedef struct world {
    mpath_passing_t ranks[RANKS];
    uint32_t agreed_ns, passed_ns;
    uint64_t bytes;
    unsigned agreed, passed; /* calls so far */
    int unmeasured;          /* a rank that does not look at the clock; -1: all do */
} world_t;

static void world_init(world_t *world, uint32_t agreed_ns, uint32_t passed_ns)
{
    memset(world, 0, sizeof(*world));
    world->agreed_ns  = agreed_ns;
    world->passed_ns  = passed_ns;
    world->bytes      = 8;
    world->unmeasured = -1;
}

static void decide_together(world_t *world)
{
    uint32_t all[RANKS * MPATH_PASSING_TIMES];

    for (int rank = 0; rank < RANKS; rank++) {
        memcpy(all + rank * MPATH_PASSING_TIMES, world->ranks[rank].times_ns, sizeof(world->ranks[rank].times_ns));
    }
    for (int rank = 0; rank < RANKS; rank++) {
        mpath_passing_decide(&world->ranks[rank], all, RANKS);
    }
}

/* Rank `call % RANKS` comes last; the others wait for it, some 20 us. */
static void measure(world_t *world, uint32_t took_ns)
{
    unsigned last = (world->agreed + world->passed) % RANKS;

    for (unsigned rank = 0; rank < RANKS; rank++) {
        if (mpath_passing_is_timed(&world->ranks[rank]) && ((int)rank != world->unmeasured)) {
            mpath_passing_took(&world->ranks[rank], took_ns + ((rank == last) ? 0 : 20000 + 1000 * rank));
        }
    }
}

/* One call; whether it passed. Some ranks ask twice when the answer is no, as non-blocking calls do. */
static int call(world_t *world, mpath_passing_call_t what)
{
    int passes[RANKS], due = 0;

    for (int rank = 0; rank < RANKS; rank++) {
        passes[rank] = mpath_passing_next(&world->ranks[rank]);
        if (!passes[rank] && (rank > 0)) {
            assert_false(mpath_passing_next(&world->ranks[rank]));
        }
        assert_int_equal(passes[rank], passes[0]);
    }
    if (passes[0]) {
        measure(world, world->passed_ns);
        world->passed++;
        return 1;
    }
    for (int rank = 0; rank < RANKS; rank++) {
        due = (what == MPATH_PASSING_SHORT) && mpath_passing_is_due(&world->ranks[rank]);
        if (!due && mpath_passing_agreed(&world->ranks[rank], what)) {
            mpath_passing_short(&world->ranks[rank], world->bytes);
        }
    }
    if (due) {
        decide_together(world);
    }
    measure(world, world->agreed_ns);
    world->agreed++;
    return 0;
}

static unsigned count_passed(world_t *world, unsigned calls, mpath_passing_call_t what)
{
    unsigned passed = 0;

    for (unsigned i = 0; i < calls; i++) {
        passed += call(world, what) ? 1 : 0;
    }
    return passed;
}

static void test_declined_calls_pass_more_and_more(void **state)
{
    world_t world;

    (void)state;
    world_init(&world, 100, 100);
    for (unsigned granted = 1; granted <= 63; granted = 2 * granted + 1) {
        assert_false(call(&world, MPATH_PASSING_DECLINED));
        assert_int_equal(count_passed(&world, granted, MPATH_PASSING_DECLINED), granted);
    }
    for (int i = 0; i < 3; i++) { /* no more than that */
        assert_false(call(&world, MPATH_PASSING_DECLINED));
        assert_int_equal(count_passed(&world, 63, MPATH_PASSING_DECLINED), 63);
    }
    assert_false(call(&world, MPATH_PASSING_OTHER));
    assert_false(call(&world, MPATH_PASSING_OTHER));
    assert_false(call(&world, MPATH_PASSING_DECLINED)); /* and from the beginning */
    assert_int_equal(count_passed(&world, 2, MPATH_PASSING_DECLINED), 1);
}

static void test_few_short_calls_are_not_tried(void **state)
{
    world_t world;

    (void)state;
    world_init(&world, 1000, 100);
    for (int round = 0; round < 20; round++) {
        assert_int_equal(count_passed(&world, MPATH_PASSING_ROW - 1, MPATH_PASSING_SHORT), 0);
        assert_false(call(&world, MPATH_PASSING_OTHER));
    }
}

static void test_short_calls_pass_where_that_is_faster(void **state)
{
    world_t world;
    unsigned passed;

    (void)state;
    world_init(&world, 1000, 400);
    assert_int_equal(count_passed(&world, MPATH_PASSING_ROW, MPATH_PASSING_SHORT), 0);
    assert_int_equal(count_passed(&world, MPATH_PASSING_TIMES, MPATH_PASSING_SHORT), MPATH_PASSING_TRIALS);
    passed = count_passed(&world, 1000, MPATH_PASSING_SHORT);
    assert_in_range(passed, 960, 990);
}

static void test_short_calls_stay_where_that_is_faster(void **state)
{
    const uint32_t passed_ns[] = {2000, 1000, 960}; /* the last is better, by less than the margin */
    world_t world;

    (void)state;
    for (size_t i = 0; i < sizeof(passed_ns) / sizeof(passed_ns[0]); i++) {
        world_init(&world, 1000, passed_ns[i]);
        assert_int_equal(count_passed(&world, MPATH_PASSING_ROW + MPATH_PASSING_TIMES, MPATH_PASSING_SHORT),
                         MPATH_PASSING_TRIALS);
        assert_int_equal(count_passed(&world, 1000, MPATH_PASSING_SHORT), 0);
    }
}

static void test_decisions_are_made_anew(void **state)
{
    world_t world;

    (void)state;
    world_init(&world, 1000, 2000);
    (void)count_passed(&world, 1000, MPATH_PASSING_SHORT);
    world.passed_ns = 300;
    (void)count_passed(&world, MPATH_PASSING_HOLDS, MPATH_PASSING_SHORT);
    assert_in_range(count_passed(&world, 500, MPATH_PASSING_SHORT), 470, 499);
    world.passed_ns = 2000;
    (void)count_passed(&world, MPATH_PASSING_HOLDS + 100, MPATH_PASSING_SHORT);
    assert_in_range(count_passed(&world, 1000, MPATH_PASSING_SHORT), 0, MPATH_PASSING_TRIALS); /* at most one trial */
}

static void test_sizes_have_decisions_of_their_own(void **state)
{
    world_t world;

    (void)state;
    world_init(&world, 1000, 400);
    (void)count_passed(&world, 200, MPATH_PASSING_SHORT);
    assert_in_range(count_passed(&world, 128, MPATH_PASSING_SHORT), 120, 127);
    world.bytes     = 4096;
    world.passed_ns = 3000;
    (void)count_passed(&world, 64 + MPATH_PASSING_TIMES + 1, MPATH_PASSING_SHORT); /* what is granted, and a trial */
    assert_int_equal(count_passed(&world, 500, MPATH_PASSING_SHORT), 0);
    world.bytes     = 9; /* another octave than 4 KiB, and than 8 */
    world.passed_ns = 400;
    (void)count_passed(&world, 2 * MPATH_PASSING_ROW + MPATH_PASSING_TIMES + 8, MPATH_PASSING_SHORT);
    assert_in_range(count_passed(&world, 500, MPATH_PASSING_SHORT), 470, 499);
}

/* A call in another way than the trial had in mind, and calls that a rank cannot time. */
static void test_trials_that_fail(void **state)
{
    world_t world;

    (void)state;
    world_init(&world, 1000, 400);
    (void)count_passed(&world, MPATH_PASSING_ROW + 3, MPATH_PASSING_SHORT);
    assert_false(call(&world, MPATH_PASSING_OTHER));
    assert_int_equal(count_passed(&world, MPATH_PASSING_ROW, MPATH_PASSING_SHORT), 0); /* from the beginning */
    world_init(&world, 1000, 400);
    world.unmeasured = 1;
    assert_int_equal(count_passed(&world, 1000, MPATH_PASSING_SHORT), MPATH_PASSING_TRIALS);
}

/* Calls that alternate between two sizes, of which the longer ones take ten times as long, are compared fairly. */
static void test_patterns_do_not_decide(void **state)
{
    world_t world;
    int passed = 0;

    (void)state;
    world_init(&world, 0, 0);
    for (unsigned i = 0; i < MPATH_PASSING_ROW + MPATH_PASSING_TIMES + 1 + 200; i++) {
        uint32_t times = (i % 2 == 0) ? 1 : 10;

        world.agreed_ns = 1000 * times;
        world.passed_ns = 700 * times;
        passed += call(&world, MPATH_PASSING_SHORT);
    }
    assert_in_range(passed, 180, 230);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_declined_calls_pass_more_and_more),
        cmocka_unit_test(test_few_short_calls_are_not_tried),
        cmocka_unit_test(test_short_calls_pass_where_that_is_faster),
        cmocka_unit_test(test_short_calls_stay_where_that_is_faster),
        cmocka_unit_test(test_decisions_are_made_anew),
        cmocka_unit_test(test_sizes_have_decisions_of_their_own),
        cmocka_unit_test(test_trials_that_fail),
        cmocka_unit_test(test_patterns_do_not_decide),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
