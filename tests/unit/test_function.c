/* SPDX-License-Identifier: BSD-3-Clause */
/* Functions: kinds of calls, trials in turns, and that all ranks come to one decision from what the slowest saw. */
#include "tune/function.h"
#include "ranks.h"
#include "util/time.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RANKS 3
#define MOST_BYTES (UINT64_C(4) << 20)

#define BY_HOST (1u << MPATH_FUNCTION_BY_HOST)
#define PREVIOUS (1u << MPATH_FUNCTION_PREVIOUS)

static void test_kinds(void **state)
{
    int last = 0;

    (void)state;
    assert_int_equal(mpath_function_size(0), 0);
    assert_int_equal(mpath_function_size(1), 0);
    assert_int_equal(mpath_function_size(4), 4);
    assert_int_equal(mpath_function_size(5), 4);
    assert_int_equal(mpath_function_size(6), 5);
    assert_int_equal(mpath_function_size((UINT64_C(3) << 29) - 1), 60);
    assert_int_equal(mpath_function_size(UINT64_C(3) << 29), MPATH_FUNCTION_SIZES - 1);
    assert_int_equal(mpath_function_size(UINT64_MAX), MPATH_FUNCTION_SIZES - 1);
    for (uint64_t bytes = 1; bytes <= MOST_BYTES; bytes++) {
        int kind = mpath_function_size(bytes);

        assert_in_range(kind, last, MPATH_FUNCTION_SIZES - 1);
        assert_true(kind <= last + 2);
        last = kind;
    }
}

static void test_skews(void **state)
{
    const struct {
        uint64_t busiest, average;
        unsigned skew;
    } cases[] = {{0, 0, 0},      {100, 100, 0},
                 {125, 100, 0},  {126, 100, 1},
                 {175, 100, 1},  {176, 100, 2},
                 {250, 100, 2},  {251, 100, 3},
                 {350, 100, 3},  {351, 100, 4},
                 {9900, 100, 4}, {1000, 999, 0},
                 {1, 0, 4},      {UINT64_MAX / 2, UINT64_MAX / 2, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(mpath_function_skew(cases[i].busiest, cases[i].average), cases[i].skew);
    }
}

/* A call that is no measure; known() tries nothing. */
static mpath_function_t known(const mpath_trials_t *trials, uint64_t bytes, unsigned skew, unsigned open)
{
    const mpath_function_call_t call = {.bytes = bytes, .skew = skew, .open = open};

    return mpath_function_known(trials, &call);
}

/* The next call; by which function it goes. */
static mpath_function_t next_skewed(mpath_trials_t *trials, mpath_team_t *team, uint64_t bytes, unsigned skew,
                                    unsigned open)
{
    const mpath_function_call_t call = {.bytes = bytes, .skew = skew, .open = open};
    mpath_function_t function        = MPATH_FUNCTIONS;

    ranks_check(mpath_function_next(trials, team, &call, 1, &function) == MPATH_OK);
    mpath_trials_ended(trials);
    return function;
}

static mpath_function_t next(mpath_trials_t *trials, mpath_team_t *team, uint64_t bytes, unsigned open)
{
    return next_skewed(trials, team, bytes, 0, open);
}

/* Trials of what is open, in turns, which are then said to have taken these times on this rank, by way. */
static void try_all(mpath_trials_t *trials, mpath_team_t *team, uint64_t bytes, unsigned open, const uint64_t *times_ns)
{
    int trial = 0;

    for (int i = 0; i < MPATH_TRIAL_RUNS; i++) {
        for (unsigned function = 0; function < MPATH_FUNCTIONS; function++) {
            if ((function > 0) && !((open >> function) & 1)) {
                continue;
            }
            ranks_check(next(trials, team, bytes, open) == function);
            ranks_check(trials->kinds[mpath_function_kind(bytes, 0)].times_ns[trial] > 0);
            trials->kinds[mpath_function_kind(bytes, 0)].times_ns[trial++] = times_ns[function];
        }
    }
}

static int decide_body(ranks_self_t *self, void *argument)
{
    /* one rank alone is slow with each function but the best */
    const struct {
        uint64_t bytes;
        unsigned open;
        mpath_function_t best;
        uint64_t times_ns[MPATH_FUNCTIONS];
    } cases[]             = {{1700, BY_HOST, MPATH_FUNCTION_BY_HOST, {(self->rank == 1) ? 900 : 100, 500, 1}},
                             {1700, BY_HOST, MPATH_FUNCTION_OWN, {500, (self->rank == 2) ? 600 : 100, 1}},
                             {1, BY_HOST | PREVIOUS, MPATH_FUNCTION_PREVIOUS, {500, (self->rank == 0) ? 600 : 100, 450}},
                             {1, BY_HOST | PREVIOUS, MPATH_FUNCTION_BY_HOST, {500, 400, (self->rank == 2) ? 450 : 100}},
                             {UINT64_C(1) << 40, PREVIOUS, MPATH_FUNCTION_PREVIOUS, {(self->rank == 1) ? 900 : 100, 1, 500}},
                             {UINT64_C(1) << 40, PREVIOUS, MPATH_FUNCTION_OWN, {500, 1, (self->rank == 1) ? 900 : 100}}};
    mpath_trials_t trials = {.tried = NULL};
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_team_t *team;

    (void)argument;
    mpath_settings_init(&settings);
    context = ranks_context(self, &settings);
    team    = ranks_team(self, context);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        mpath_trials_forget(&trials);
        ranks_check(next(&trials, team, cases[i].bytes, 0) == MPATH_FUNCTION_OWN); /* no trial */
        ranks_check(known(&trials, cases[i].bytes, 0, cases[i].open) == MPATH_FUNCTION_OWN);
        try_all(&trials, team, cases[i].bytes, cases[i].open, cases[i].times_ns);
        ranks_check(known(&trials, cases[i].bytes, 0, cases[i].open) == MPATH_FUNCTION_OWN); /* undecided */
        ranks_check(next(&trials, team, cases[i].bytes, cases[i].open) == cases[i].best);
        ranks_check(next(&trials, team, cases[i].bytes, cases[i].open) == cases[i].best);
        ranks_check(trials.tried == NULL);
        ranks_check(known(&trials, cases[i].bytes, 0, cases[i].open) == cases[i].best);
        ranks_check(known(&trials, cases[i].bytes, 0, 0) == MPATH_FUNCTION_OWN);
        ranks_check(known(&trials, cases[i].bytes, 0, cases[i].open ^ BY_HOST) == MPATH_FUNCTION_OWN);
        ranks_check(known(&trials, cases[i].bytes, 1, cases[i].open) == MPATH_FUNCTION_OWN);
        /* what is open only now and then leaves the decision alone */
        ranks_check(next(&trials, team, cases[i].bytes, 0) == MPATH_FUNCTION_OWN);
        ranks_check(next(&trials, team, cases[i].bytes, cases[i].open) == cases[i].best);
    }
    mpath_trials_forget(&trials);
    ranks_barrier(self);
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    return 0;
}

static void test_decide(void **state)
{
    const ranks_setup_t setup = {.size = RANKS, .nodes = 2, .nics = 1};

    (void)state;
    assert_int_equal(ranks_run(&setup, decide_body, NULL), 0);
}

/* A trial is timed from the start of its call, once. What ends without one is not. */
static int times_body(ranks_self_t *self, void *argument)
{
    const mpath_function_call_t call = {.bytes = 1, .open = PREVIOUS};
    mpath_trials_t trials            = {.tried = NULL};
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_team_t *team;
    uint64_t start_ns, took_ns;
    mpath_function_t function;

    (void)argument;
    mpath_settings_init(&settings);
    context  = ranks_context(self, &settings);
    team     = ranks_team(self, context);
    start_ns = mpath_time_ns() - UINT64_C(3600) * MPATH_NS_PER_S;
    ranks_check(mpath_function_next(&trials, team, &call, start_ns, &function) == MPATH_OK);
    mpath_trials_ended(&trials);
    took_ns = trials.kinds[0].times_ns[0];
    ranks_check((took_ns >= UINT64_C(3600) * MPATH_NS_PER_S) && (took_ns <= mpath_time_ns() - start_ns));
    mpath_trials_ended(&trials);
    ranks_check(trials.kinds[0].times_ns[0] == took_ns);
    /* a call in between that goes no other way is not taken for the trial that was begun */
    ranks_check(mpath_function_next(&trials, team, &call, start_ns, &function) == MPATH_OK);
    ranks_check(next(&trials, team, 1, 0) == MPATH_FUNCTION_OWN);
    ranks_check(trials.kinds[0].times_ns[1] == 0);
    mpath_trials_forget(&trials);
    ranks_barrier(self);
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    return 0;
}

static void test_times(void **state)
{
    const ranks_setup_t setup = {.size = 2, .nodes = 1, .nics = 1};

    (void)state;
    assert_int_equal(ranks_run(&setup, times_body, NULL), 0);
}

/* Skewed calls try by themselves, until the less skewed have found relays to be the fastest. */
static int skew_body(ranks_self_t *self, void *argument)
{
    const uint64_t bytes        = UINT64_C(1) << 25;
    const uint64_t relays_win[] = {100, 1, 500}, relays_lose[] = {500, 1, 100};
    mpath_trials_t trials = {.tried = NULL};
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_team_t *team;

    (void)argument;
    mpath_settings_init(&settings);
    context = ranks_context(self, &settings);
    team    = ranks_team(self, context);
    ranks_check(next_skewed(&trials, team, bytes, 2, PREVIOUS) == MPATH_FUNCTION_OWN);
    ranks_check(next_skewed(&trials, team, bytes, 2, PREVIOUS) == MPATH_FUNCTION_PREVIOUS);
    try_all(&trials, team, bytes, PREVIOUS, relays_lose);
    ranks_check(next(&trials, team, bytes, PREVIOUS) == MPATH_FUNCTION_PREVIOUS);
    /* the trials of the skewed go on */
    ranks_check(next_skewed(&trials, team, bytes, 2, PREVIOUS) == MPATH_FUNCTION_OWN);
    ranks_check(next_skewed(&trials, team, bytes, 2, PREVIOUS) == MPATH_FUNCTION_PREVIOUS);
    memset(&trials.kinds[mpath_function_kind(bytes, 0)], 0, sizeof(trials.kinds[0]));
    try_all(&trials, team, bytes, PREVIOUS, relays_win);
    ranks_check(next(&trials, team, bytes, PREVIOUS) == MPATH_FUNCTION_OWN);
    trials.kinds[mpath_function_kind(bytes, 2)] = (mpath_trial_t){.holds = {.length = 1}, .option = 1, .options = 2};
    ranks_check(known(&trials, bytes, 2, PREVIOUS) == MPATH_FUNCTION_OWN);
    for (int call = 0; call < 4; call++) {
        ranks_check(next_skewed(&trials, team, bytes, 2, PREVIOUS) == MPATH_FUNCTION_OWN);
    }
    /* of another length they are tried */
    ranks_check(next_skewed(&trials, team, 2 * bytes, 2, PREVIOUS) == MPATH_FUNCTION_OWN);
    ranks_check(next_skewed(&trials, team, 2 * bytes, 2, PREVIOUS) == MPATH_FUNCTION_PREVIOUS);
    mpath_trials_forget(&trials);
    ranks_barrier(self);
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    return 0;
}

static void test_skewed(void **state)
{
    const ranks_setup_t setup = {.size = RANKS, .nodes = 2, .nics = 1};

    (void)state;
    assert_int_equal(ranks_run(&setup, skew_body, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kinds), cmocka_unit_test(test_skews),
                                       cmocka_unit_test(test_decide), cmocka_unit_test(test_times),
                                       cmocka_unit_test(test_skewed)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
