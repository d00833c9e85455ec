/* SPDX-License-Identifier: BSD-3-Clause */
/* Which calls pass: grants that double, trials of short calls in both ways, and decisions that hold for their size. */
#include "tune/passing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
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
    uint64_t all[RANKS * MPATH_PASSING_TIMES];

    for (int rank = 0; rank < RANKS; rank++) {
        memcpy(all + rank * MPATH_PASSING_TIMES, mpath_passing_due(&world->ranks[rank])->times_ns,
               MPATH_PASSING_TIMES * sizeof(*all));
    }
    for (int rank = 0; rank < RANKS; rank++) {
        mpath_trial_decide(mpath_passing_due(&world->ranks[rank]), &mpath_passing_rule, all, RANKS);
        mpath_passing_decided(&world->ranks[rank]);
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
        due = (what == MPATH_PASSING_SHORT) && (mpath_passing_due(&world->ranks[rank]) != NULL);
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

/* Calls that passed, of each 200, since trials began. */
static const struct {
    uint64_t seed, agreed_ns, passed_ns;
    const char *passed;
} recorded[] = {
    {1, 1000, 1000, " 9 10 1 1 0 1 0 0 0 0 9 0 1 0 0 0 0 0 0 0 1 151 197 197 197 197 197 196 197 197"},
    {2, 1000, 940,
     " 16 0 1 0 0 0 0 1 0 0 0 167 197 197 197 196 197 197 197 197 197 184 197 197 196 197 197 197 197 197"},
    {3, 1000, 960, " 169 197 197 196 197 197 197 197 168 197 179 0 1 0 0 0 0 0 0 0 0 8 0 0 1 0 0 0 0 0"},
    {4, 1000, 500,
     " 169 184 197 197 197 196 197 197 197 197 197 184 197 197 197 196 197 197 197 197 197 184 197 197 197 196 197 197 197 "
     "197"},
    {5, 700, 1000, " 8 0 8 0 0 0 0 0 0 1 8 0 0 0 0 0 1 0 0 0 2 8 0 0 0 0 1 0 0 0"}};

static uint64_t random_below(uint64_t *random, uint64_t limit)
{
    *random = *random * 6364136223846793005ull + 1442695040888963407ull;
    return (*random >> 33) % limit;
}

/* Ten per cent to either side for all ranks, four for each, and now and then ten times as much. */
static uint64_t noisy(uint64_t *random, uint64_t time_ns, uint64_t common)
{
    uint64_t seen_ns = time_ns * (900 + common) * (960 + random_below(random, 81)) / 1000000;

    return (random_below(random, 100) == 0) ? 10 * seen_ns : seen_ns;
}

/* One call in a thousand is mpath's, one is declined, the others are short, of two sizes. Whether it passed. */
static int recorded_call(world_t *world, uint64_t *random)
{
    uint64_t draw = random_below(random, 1000), common;
    int passes = 0, due = 0;
    mpath_passing_call_t what = (draw == 0)   ? MPATH_PASSING_OTHER
                                : (draw == 1) ? MPATH_PASSING_DECLINED
                                              : MPATH_PASSING_SHORT;

    world->bytes = (random_below(random, 50) == 0) ? 300 : 8;
    common       = random_below(random, 201);
    for (int rank = 0; rank < RANKS; rank++) {
        passes = mpath_passing_next(&world->ranks[rank]);
    }
    for (int rank = 0; !passes && (rank < RANKS); rank++) {
        due = (what == MPATH_PASSING_SHORT) && (mpath_passing_due(&world->ranks[rank]) != NULL);
        if (!due && mpath_passing_agreed(&world->ranks[rank], what)) {
            mpath_passing_short(&world->ranks[rank], world->bytes);
        }
    }
    if (due) {
        decide_together(world);
    }
    for (int rank = 0; rank < RANKS; rank++) {
        uint64_t took_ns = noisy(random, passes ? world->passed_ns : world->agreed_ns, common);

        if (mpath_passing_is_timed(&world->ranks[rank])) {
            mpath_passing_took(&world->ranks[rank], took_ns);
        }
    }
    return passes;
}

static void test_recorded(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(recorded) / sizeof(recorded[0]); i++) {
        uint64_t random  = recorded[i].seed;
        char passed[256] = "";
        int count        = 0;
        world_t world;

        world_init(&world, (uint32_t)recorded[i].agreed_ns, (uint32_t)recorded[i].passed_ns);
        for (int call = 1; call <= 6000; call++) {
            count += recorded_call(&world, &random);
            if (call % 200 == 0) {
                snprintf(passed + strlen(passed), sizeof(passed) - strlen(passed), " %d", count);
                count = 0;
            }
        }
        assert_string_equal(passed, recorded[i].passed);
    }
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
        cmocka_unit_test(test_recorded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
