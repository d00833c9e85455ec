/* SPDX-License-Identifier: BSD-3-Clause */
/* Which of several ways is the fastest, by trial: who decides, for how long, and how often noise makes it wrong. */
#include "tune/choice.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#define MAX_RANKS 8
#define BOTH (2 * MPATH_CHOICE_TRIALS)

enum { STATIC, PLAN };

/*
 * Runs calls of two ranks that take the given times; the second rank's are `slower` longer. Returns how many took the
 * plan.
 */
static int run_choices(mpath_choice_t *choice, int calls, uint64_t static_ns, uint64_t plan_ns, uint64_t slower_ns)
{
    uint64_t all[2][MPATH_CHOICE_TIMES];
    int planned = 0, trial;

    for (int call = 0; call < calls; call++) {
        unsigned way;

        if (mpath_choice_is_due(choice)) {
            for (int i = 0; i < MPATH_CHOICE_TIMES; i++) {
                all[0][i] = choice->times_ns[i];
                all[1][i] = choice->times_ns[i] + slower_ns;
            }
            mpath_choice_decide(choice, all[0], 2);
        }
        way = mpath_choice_next(choice, 2, &trial);
        planned += (way == PLAN) ? 1 : 0;
        mpath_choice_note(choice, trial,
                          (call < 2)      ? 1000 * plan_ns /* set-up */
                          : (way == PLAN) ? plan_ns
                                          : static_ns);
    }
    return planned;
}

static void test_choice(void **state)
{
    mpath_choice_t choice = {0};

    (void)state;
    assert_int_equal(run_choices(&choice, 1000, 700000, 650000, 5), MPATH_CHOICE_TRIALS + 1000 - BOTH);
    memset(&choice, 0, sizeof(choice));
    assert_int_equal(run_choices(&choice, 1000, 637000, 756000, 5), MPATH_CHOICE_TRIALS);
    memset(&choice, 0, sizeof(choice));
    assert_int_equal(run_choices(&choice, 1000, 700000, 699000, 0), MPATH_CHOICE_TRIALS); /* too little to count */

    /* tried again after a while, when the machine may be another */
    assert_int_equal(choice.way, STATIC);
    run_choices(&choice, MPATH_CHOICE_CALLS + BOTH, 700000, 300000, 0);
    assert_int_equal(choice.way, PLAN);
}

/* The slowest rank's time of a trial counts, not the mean of all. */
static void test_choice_ranks(void **state)
{
    const uint64_t all[2][MPATH_CHOICE_TIMES] = {{500, 100, 500, 100, 500, 100}, {500, 900, 500, 900, 500, 900}};
    mpath_choice_t choice                     = {.trials = BOTH, .ways = 2};

    (void)state;
    mpath_choice_decide(&choice, all[0], 2);
    assert_int_equal(choice.way, STATIC);
    mpath_choice_decide(&choice, all[0], 1);
    assert_int_equal(choice.way, PLAN);
}

static void test_choice_kinds(void **state)
{
    (void)state;
    assert_int_equal(mpath_choice_kind(0, 0), mpath_choice_kind(8000, 8000));
    assert_int_equal(mpath_choice_kind(1000000, 900000), mpath_choice_kind(1001000, 901000));
    assert_int_not_equal(mpath_choice_kind(1000000, 300000), mpath_choice_kind(1000000, 900000));
    assert_int_not_equal(mpath_choice_kind(1000000, 900000), mpath_choice_kind(1500000, 1350000));
    for (uint64_t a = 1; a != 0; a <<= 1) {
        for (uint64_t b = 1; b != 0; b <<= 1) {
            int kind = mpath_choice_kind(a + a / 3, b + b / 3);

            assert_true((kind >= 0) && (kind < MPATH_CHOICE_KINDS));
        }
    }
    assert_true(mpath_choice_is_open(637000, 300000));
    assert_true(mpath_choice_is_open(300000, 350000));
    assert_false(mpath_choice_is_open(300000, 700000));
    assert_false(mpath_choice_is_open(11009000, 3236000));
}

/* A decision that trials leave in doubt is tried again soon, and holds the longer the more often it is confirmed. */
static void test_choice_doubt(void **state)
{
    const uint64_t doubtful[MPATH_CHOICE_TIMES] = {690, 700, 800, 700, 800, 700};
    const uint64_t clear[MPATH_CHOICE_TIMES]    = {5000, 700, 800, 700, 800, 5000};
    const uint64_t other[MPATH_CHOICE_TIMES]    = {690, 700, 690, 700, 800, 600};
    mpath_choice_t choice                       = {.ways = 2};

    (void)state;
    for (uint32_t holds = MPATH_CHOICE_CALLS_UNSURE; holds < MPATH_CHOICE_CALLS; holds *= 2) {
        mpath_choice_decide(&choice, doubtful, 1);
        assert_int_equal(choice.way, PLAN);
        assert_int_equal(choice.holds, holds);
    }
    for (int i = 0; i < 2; i++) {
        mpath_choice_decide(&choice, doubtful, 1);
        assert_int_equal(choice.holds, MPATH_CHOICE_CALLS);
    }
    mpath_choice_decide(&choice, other, 1);
    assert_int_equal(choice.way, STATIC);
    assert_int_equal(choice.holds, MPATH_CHOICE_CALLS_UNSURE);
    mpath_choice_decide(&choice, clear, 1);
    assert_int_equal(choice.way, PLAN);
    assert_int_equal(choice.holds, MPATH_CHOICE_CALLS);
}

/* Of three ways the best one, if it is better than the first by enough; the others' fastest trials say how sure it is. */
static void test_choice_of_three(void **state)
{
    static const struct {
        uint64_t times[MPATH_CHOICE_WAYS]; /* of trials that do not vary */
        unsigned way;
        int unsure; /* the last trial of that way took as little as nothing; -1: none did */
    } cases[] = {{{500, 400, 300}, 2, -1}, {{500, 300, 400}, 1, -1}, {{300, 400, 500}, 0, -1}, {{500, 499, 497}, 0, -1},
                 {{500, 400, 396}, 2, -1}, {{500, 400, 300}, 2, 1},  {{500, 400, 300}, 2, 0},  {{300, 500, 500}, 0, 2}};
    int trial;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        mpath_choice_t choice = {0};

        for (int call = 0; call < MPATH_CHOICE_TIMES; call++) {
            unsigned way = mpath_choice_next(&choice, MPATH_CHOICE_WAYS, &trial);
            int is_last  = call >= MPATH_CHOICE_TIMES - MPATH_CHOICE_WAYS;

            assert_int_equal(way, call % MPATH_CHOICE_WAYS);
            assert_false(mpath_choice_is_due(&choice) && (call < MPATH_CHOICE_TIMES - 1));
            mpath_choice_note(&choice, trial, (is_last && ((int)way == cases[i].unsure)) ? 1 : cases[i].times[way]);
        }
        assert_true(mpath_choice_is_due(&choice));
        mpath_choice_decide(&choice, choice.times_ns, 1);
        assert_int_equal(choice.way, cases[i].way);
        assert_int_equal(choice.holds, (cases[i].unsure >= 0) ? MPATH_CHOICE_CALLS_UNSURE : MPATH_CHOICE_CALLS);
        assert_int_equal(mpath_choice_next(&choice, MPATH_CHOICE_WAYS, &trial), cases[i].way);
        assert_true(trial < 0);
        /* with another number of ways nothing is known */
        assert_int_equal(mpath_choice_next(&choice, 2, &trial), 0);
        assert_int_equal(trial, 0);
    }
}

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

typedef struct calls {
    uint64_t made, by_slower, exchanges;
} calls_t;

/* Calls of 8 ranks of which one way takes a fifth longer than the other. */
static void run_noisy(unsigned slower, uint64_t seed, int num_calls, calls_t *calls)
{
    uint64_t all[MAX_RANKS][MPATH_CHOICE_TIMES] = {{0}}, random = seed;
    mpath_choice_t choice = {0};
    unsigned way;
    int trial;

    for (int call = 0; call < num_calls; call++) {
        uint64_t common = random_below(&random, 201);

        if (mpath_choice_is_due(&choice)) {
            mpath_choice_decide(&choice, all[0], MAX_RANKS);
            calls->exchanges++;
        }
        way = mpath_choice_next(&choice, 2, &trial);
        calls->made++;
        calls->by_slower += (way == slower) ? 1 : 0;
        for (int rank = 0; (trial >= 0) && (rank < MAX_RANKS); rank++) {
            all[rank][trial] = noisy(&random, (way == slower) ? 60000 : 50000, common);
        }
    }
}

/* One exchange for a thousand calls, and half of the trials, are what it costs where nothing is noisy. */
static void test_choice_noise(void **state)
{
    calls_t calls[2] = {{0}, {0}};

    (void)state;
    for (int slower = 0; slower < 2; slower++) {
        for (uint64_t seed = 1; seed <= 300; seed++) {
            run_noisy((unsigned)slower, seed, 3000, &calls[slower]);
        }
        assert_true(calls[slower].by_slower * 100 < calls[slower].made);
        assert_true(calls[slower].exchanges * 1000 < 2 * calls[slower].made);
    }
}

/* What others have found is where calls begin, and is tried again. */
static void test_choice_resumed(void **state)
{
    mpath_choice_t choice = {0};
    int planned;

    (void)state;
    assert_false(mpath_choice_is_sure(&choice));
    mpath_choice_resume(&choice, 2, PLAN);
    planned = run_choices(&choice, MPATH_CHOICE_CALLS_KEPT, 637000, 756000, 0);
    assert_int_equal(planned, MPATH_CHOICE_CALLS_KEPT);
    assert_false(mpath_choice_is_sure(&choice));
    run_choices(&choice, BOTH + 1, 637000, 756000, 0);
    assert_true(mpath_choice_is_sure(&choice));
    assert_int_equal(choice.way, STATIC);
}

/* Calls of a kind are as long as that says. */
static void test_choice_kind_ns(void **state)
{
    (void)state;
    for (int kind = 0; kind < MPATH_CHOICE_KINDS; kind += MPATH_CHOICE_GAINS) {
        uint64_t ns = mpath_choice_kind_ns(kind);

        assert_int_equal(mpath_choice_kind(ns + ns / 100, UINT64_MAX), kind);
        assert_int_equal(mpath_choice_kind(ns - ns / 100, UINT64_MAX), (kind > 0) ? kind - MPATH_CHOICE_GAINS : 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),         cmocka_unit_test(test_choice_ranks),
        cmocka_unit_test(test_choice_kinds),   cmocka_unit_test(test_choice_doubt),
        cmocka_unit_test(test_choice_noise),   cmocka_unit_test(test_choice_of_three),
        cmocka_unit_test(test_choice_resumed), cmocka_unit_test(test_choice_kind_ns),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
