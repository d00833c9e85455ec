/* SPDX-License-Identifier: BSD-3-Clause */
/* Which of several options is the fastest, by trial: who decides, for how long, and how often noise makes it wrong. */
#include "tune/trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#define MAX_RANKS 8
#define BOTH (2 * MPATH_TRIAL_RUNS)
#define THREE (3 * MPATH_TRIAL_RUNS)
#define RULE (&mpath_trial_of_calls)

enum { STATIC, PLAN };

/*
 * Runs calls of two ranks that take the given times; the second rank's are `slower` longer. Returns how many took the
 * plan.
 */
static int run_choices(mpath_trial_t *trial, int calls, uint64_t static_ns, uint64_t plan_ns, uint64_t slower_ns)
{
    uint64_t all[2][BOTH];
    int planned = 0, run;

    for (int call = 0; call < calls; call++) {
        unsigned option;

        if (mpath_trial_is_due(trial, RULE)) {
            for (int i = 0; i < BOTH; i++) {
                all[0][i] = trial->times_ns[i];
                all[1][i] = trial->times_ns[i] + slower_ns;
            }
            mpath_trial_decide(trial, RULE, all[0], 2);
        }
        option = mpath_trial_next(trial, RULE, 2, &run);
        planned += (option == PLAN) ? 1 : 0;
        mpath_trial_note(trial, run,
                         (call < 2)         ? 1000 * plan_ns /* set-up */
                         : (option == PLAN) ? plan_ns
                                            : static_ns);
    }
    return planned;
}

static void test_choice(void **state)
{
    mpath_trial_t trial = {0};

    (void)state;
    assert_int_equal(run_choices(&trial, 1000, 700000, 650000, 5), MPATH_TRIAL_RUNS + 1000 - BOTH);
    memset(&trial, 0, sizeof(trial));
    assert_int_equal(run_choices(&trial, 1000, 637000, 756000, 5), MPATH_TRIAL_RUNS);
    memset(&trial, 0, sizeof(trial));
    assert_int_equal(run_choices(&trial, 1000, 700000, 699000, 0), MPATH_TRIAL_RUNS); /* too little to count */

    /* tried again after a while, when the machine may be another */
    assert_int_equal(trial.option, STATIC);
    run_choices(&trial, MPATH_TRIAL_HOLDS + BOTH, 700000, 300000, 0);
    assert_int_equal(trial.option, PLAN);
}

/* The slowest rank's time of a trial counts, not the mean of all. */
static void test_choice_ranks(void **state)
{
    const uint64_t all[2][BOTH] = {{500, 100, 500, 100, 500, 100}, {500, 900, 500, 900, 500, 900}};
    mpath_trial_t trial         = {.runs = BOTH, .options = 2};

    (void)state;
    mpath_trial_decide(&trial, RULE, all[0], 2);
    assert_int_equal(trial.option, STATIC);
    mpath_trial_decide(&trial, RULE, all[0], 1);
    assert_int_equal(trial.option, PLAN);
}

static void test_choice_kinds(void **state)
{
    (void)state;
    assert_int_equal(mpath_trial_kind(0, 0), mpath_trial_kind(8000, 8000));
    assert_int_equal(mpath_trial_kind(1000000, 900000), mpath_trial_kind(1001000, 901000));
    assert_int_not_equal(mpath_trial_kind(1000000, 300000), mpath_trial_kind(1000000, 900000));
    assert_int_not_equal(mpath_trial_kind(1000000, 900000), mpath_trial_kind(1500000, 1350000));
    for (uint64_t a = 1; a != 0; a <<= 1) {
        for (uint64_t b = 1; b != 0; b <<= 1) {
            int kind = mpath_trial_kind(a + a / 3, b + b / 3);

            assert_true((kind >= 0) && (kind < MPATH_TRIAL_KINDS));
        }
    }
    assert_true(mpath_trial_is_open(637000, 300000));
    assert_true(mpath_trial_is_open(300000, 350000));
    assert_false(mpath_trial_is_open(300000, 700000));
    assert_false(mpath_trial_is_open(11009000, 3236000));
}

/* A decision that trials leave in doubt is tried again soon, and holds the longer the more often it is confirmed. */
static void test_choice_doubt(void **state)
{
    const uint64_t doubtful[BOTH] = {690, 700, 800, 700, 800, 700};
    const uint64_t clear[BOTH]    = {5000, 700, 800, 700, 800, 5000};
    const uint64_t other[BOTH]    = {690, 700, 690, 700, 800, 600};
    mpath_trial_t trial           = {.options = 2};

    (void)state;
    for (uint32_t holds = MPATH_TRIAL_HOLDS_UNSURE; holds < MPATH_TRIAL_HOLDS; holds *= 2) {
        mpath_trial_decide(&trial, RULE, doubtful, 1);
        assert_int_equal(trial.option, PLAN);
        assert_int_equal(trial.holds.length, holds);
    }
    for (int i = 0; i < 2; i++) {
        mpath_trial_decide(&trial, RULE, doubtful, 1);
        assert_int_equal(trial.holds.length, MPATH_TRIAL_HOLDS);
    }
    mpath_trial_decide(&trial, RULE, other, 1);
    assert_int_equal(trial.option, STATIC);
    assert_int_equal(trial.holds.length, MPATH_TRIAL_HOLDS_UNSURE);
    mpath_trial_decide(&trial, RULE, clear, 1);
    assert_int_equal(trial.option, PLAN);
    assert_int_equal(trial.holds.length, MPATH_TRIAL_HOLDS);
}

/* Of three options the best one, if it is better than the first by enough; the others' fastest trials say how sure it is. */
static void test_choice_of_three(void **state)
{
    static const struct {
        uint64_t times[MPATH_TRIAL_OPTIONS]; /* of trials that do not vary */
        unsigned option;
        int unsure; /* the last trial of that way took as little as nothing; -1: none did */
    } cases[] = {{{500, 400, 300}, 2, -1}, {{500, 300, 400}, 1, -1}, {{300, 400, 500}, 0, -1}, {{500, 499, 497}, 0, -1},
                 {{500, 400, 396}, 2, -1}, {{500, 400, 300}, 2, 1},  {{500, 400, 300}, 2, 0},  {{300, 500, 500}, 0, 2}};
    int run;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        mpath_trial_t trial = {0};

        for (int call = 0; call < THREE; call++) {
            unsigned option = mpath_trial_next(&trial, RULE, MPATH_TRIAL_OPTIONS, &run);
            int is_last     = call >= THREE - MPATH_TRIAL_OPTIONS;

            assert_int_equal(option, call % MPATH_TRIAL_OPTIONS);
            assert_false(mpath_trial_is_due(&trial, RULE) && (call < THREE - 1));
            mpath_trial_note(&trial, run, (is_last && ((int)option == cases[i].unsure)) ? 1 : cases[i].times[option]);
        }
        assert_true(mpath_trial_is_due(&trial, RULE));
        mpath_trial_decide(&trial, RULE, trial.times_ns, 1);
        assert_int_equal(trial.option, cases[i].option);
        assert_int_equal(trial.holds.length, (cases[i].unsure >= 0) ? MPATH_TRIAL_HOLDS_UNSURE : MPATH_TRIAL_HOLDS);
        assert_int_equal(mpath_trial_next(&trial, RULE, MPATH_TRIAL_OPTIONS, &run), cases[i].option);
        assert_true(run < 0);
        /* with another number of options nothing is known */
        assert_int_equal(mpath_trial_next(&trial, RULE, 2, &run), 0);
        assert_int_equal(run, 0);
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

/* Calls of 8 ranks of which one option takes a fifth longer than the other. */
static void run_noisy(unsigned slower, uint64_t seed, int num_calls, calls_t *calls)
{
    uint64_t all[MAX_RANKS][BOTH] = {{0}}, random = seed;
    mpath_trial_t trial = {0};
    unsigned option;
    int run;

    for (int call = 0; call < num_calls; call++) {
        uint64_t common = random_below(&random, 201);

        if (mpath_trial_is_due(&trial, RULE)) {
            mpath_trial_decide(&trial, RULE, all[0], MAX_RANKS);
            calls->exchanges++;
        }
        option = mpath_trial_next(&trial, RULE, 2, &run);
        calls->made++;
        calls->by_slower += (option == slower) ? 1 : 0;
        for (int rank = 0; (run >= 0) && (rank < MAX_RANKS); rank++) {
            all[rank][run] = noisy(&random, (option == slower) ? 60000 : 50000, common);
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

/* An option with a run that nobody has measured is not chosen, and tried again soon. */
static void test_unmeasured(void **state)
{
    const uint64_t all[BOTH] = {700, 100, 700, 0, 700, 100};
    mpath_trial_t trial      = {.options = 2};

    (void)state;
    mpath_trial_decide(&trial, RULE, all, 1);
    assert_int_equal(trial.option, STATIC);
    assert_int_equal(trial.holds.length, MPATH_TRIAL_HOLDS_UNSURE);
}

/* Sequences of calls, with what has been decided in them since trials began: the option, and for how many calls. */
static const struct {
    unsigned options;
    int ranks;
    uint64_t seed, times_ns[MPATH_TRIAL_OPTIONS];
    const char *decisions;
} recorded[] = {{2, 8, 1, {50000, 50000}, " 0:1000 0:1000 0:1000"},
                {2, 4, 2, {52000, 50000}, " 1:32 0:32 1:1000 1:1000 1:1000"},
                {2, 2, 3, {50000, 51000}, " 0:1000 1:1000 0:1000"},
                {2, 1, 4, {50000, 49000}, " 0:32 0:1000 0:1000 1:1000"},
                {3, 8, 5, {50000, 50000, 50000}, " 0:32 1:1000 0:32 2:1000 2:1000"},
                {3, 4, 6, {52000, 51000, 50000}, " 2:1000 2:1000 1:1000"},
                {3, 2, 7, {50000, 52000, 49000}, " 2:1000 2:1000 2:1000"},
                {3, 1, 8, {60000, 50000, 70000}, " 1:1000 1:1000 1:1000"}};

static void test_recorded(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(recorded) / sizeof(recorded[0]); i++) {
        unsigned options = recorded[i].options, row = options * MPATH_TRIAL_RUNS, option;
        uint64_t all[MAX_RANKS * THREE] = {0}, random = recorded[i].seed;
        char decisions[256] = "";
        mpath_trial_t trial = {0};
        int run;

        for (int call = 0; call < 3000; call++) {
            uint64_t common = random_below(&random, 201);

            if (mpath_trial_is_due(&trial, RULE)) {
                mpath_trial_decide(&trial, RULE, all, recorded[i].ranks);
                snprintf(decisions + strlen(decisions), sizeof(decisions) - strlen(decisions), " %u:%u", trial.option,
                         trial.holds.length);
            }
            option = mpath_trial_next(&trial, RULE, options, &run);
            for (int rank = 0; (run >= 0) && (rank < recorded[i].ranks); rank++) {
                all[(unsigned)rank * row + (unsigned)run] = noisy(&random, recorded[i].times_ns[option], common);
            }
        }
        assert_string_equal(decisions, recorded[i].decisions);
    }
}

/* What others have found is where calls begin, and is tried again. */
static void test_choice_resumed(void **state)
{
    mpath_trial_t trial = {0};
    int planned;

    (void)state;
    assert_false(mpath_trial_is_sure(&trial, RULE));
    mpath_trial_resume(&trial, RULE, 2, PLAN);
    planned = run_choices(&trial, MPATH_TRIAL_HOLDS_KEPT, 637000, 756000, 0);
    assert_int_equal(planned, MPATH_TRIAL_HOLDS_KEPT);
    assert_false(mpath_trial_is_sure(&trial, RULE));
    run_choices(&trial, BOTH + 1, 637000, 756000, 0);
    assert_true(mpath_trial_is_sure(&trial, RULE));
    assert_int_equal(trial.option, STATIC);
}

/* Calls of a kind are as long as that says. */
static void test_choice_kind_ns(void **state)
{
    (void)state;
    for (int kind = 0; kind < MPATH_TRIAL_KINDS; kind += MPATH_TRIAL_GAINS) {
        uint64_t ns = mpath_trial_kind_ns(kind);

        assert_int_equal(mpath_trial_kind(ns + ns / 100, UINT64_MAX), kind);
        assert_int_equal(mpath_trial_kind(ns - ns / 100, UINT64_MAX), (kind > 0) ? kind - MPATH_TRIAL_GAINS : 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),         cmocka_unit_test(test_choice_ranks),
        cmocka_unit_test(test_choice_kinds),   cmocka_unit_test(test_choice_doubt),
        cmocka_unit_test(test_choice_noise),   cmocka_unit_test(test_choice_of_three),
        cmocka_unit_test(test_choice_resumed), cmocka_unit_test(test_choice_kind_ns),
        cmocka_unit_test(test_unmeasured),     cmocka_unit_test(test_recorded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
