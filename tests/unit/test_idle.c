/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waits that find nothing: how long they spin, give way and sleep; what the loop asks its engine and when it speaks and
 * fails. By a clock of the test's own.
 */
#include "team/wait.h"
#include "unit/capture.h"
#include "util/time.h"

#include <sched.h>
#include <stdio.h>
#include <time.h>

#define SPINS 2000
#define SPINS_CROWDED 4
#define START_NS (5 * MPATH_NS_PER_S)

static uint64_t now_ns, slept_ns;
static unsigned looks_at_clock, yields, sleeps;

/* Instead of the functions of these names, by the linker. */
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    (void)clock;
    looks_at_clock++;
    *now = (struct timespec){.tv_sec = (time_t)(now_ns / MPATH_NS_PER_S), .tv_nsec = (long)(now_ns % MPATH_NS_PER_S)};
    return 0;
}

int __wrap_sched_yield(void);
int __wrap_sched_yield(void)
{
    yields++;
    return 0;
}

int __wrap_nanosleep(const struct timespec *wanted, struct timespec *left);
int __wrap_nanosleep(const struct timespec *wanted, struct timespec *left)
{
    (void)left;
    sleeps++;
    slept_ns = (uint64_t)wanted->tv_sec * MPATH_NS_PER_S + (uint64_t)wanted->tv_nsec;
    return 0;
}

static int setup(void **state)
{
    (void)state;
    now_ns   = START_NS;
    slept_ns = looks_at_clock = yields = sleeps = 0;
    return 0;
}

/* Looks at nothing but what is waited for. */
static void spin(mpath_idle_t *idle, int rounds)
{
    unsigned before = looks_at_clock + yields + sleeps;

    for (int i = 0; i < rounds; i++) {
        assert_int_equal(mpath_idle_wait(idle), 0);
    }
    assert_int_equal(looks_at_clock + yields + sleeps, before);
}

/* So long after the first look at the clock: gives way, or sleeps for so long. */
static void check_wait(mpath_idle_t *idle, uint64_t waited_ns, uint64_t sleep_ns)
{
    unsigned yields_before = yields, sleeps_before = sleeps;

    now_ns = START_NS + waited_ns;
    assert_int_equal(mpath_idle_wait(idle), waited_ns);
    assert_int_equal(yields - yields_before, sleep_ns == 0);
    assert_int_equal(sleeps - sleeps_before, sleep_ns > 0);
    assert_true((sleep_ns == 0) || (slept_ns == sleep_ns));
}

static void test_sleeps_grow(void **state)
{
    mpath_idle_t idle;

    (void)state;
    mpath_idle_start(&idle);
    spin(&idle, SPINS);
    check_wait(&idle, 0, 0);
    check_wait(&idle, 1000, 0);
    check_wait(&idle, 200 * MPATH_NS_PER_MS, 0);
    check_wait(&idle, 200 * MPATH_NS_PER_MS + 1, 50000);
    check_wait(&idle, 201 * MPATH_NS_PER_MS, 50250);
    check_wait(&idle, 2 * MPATH_NS_PER_S, 500000);
    check_wait(&idle, 4 * MPATH_NS_PER_S - 4000, 999999);
    check_wait(&idle, 4 * MPATH_NS_PER_S, 1000000);
    check_wait(&idle, 1000 * MPATH_NS_PER_S, 1000000);
}

static void test_an_event_ends_the_sleeps(void **state)
{
    mpath_idle_t idle;

    (void)state;
    mpath_idle_start(&idle);
    spin(&idle, SPINS);
    check_wait(&idle, 0, 0);
    check_wait(&idle, MPATH_NS_PER_S, 250000);
    mpath_idle_event(&idle);
    spin(&idle, SPINS);
    now_ns += MPATH_NS_PER_S; /* the time of the spins does not count */
    assert_int_equal(mpath_idle_wait(&idle), 0);
    assert_int_equal(sleeps, 1);
}

/* An engine for which nothing comes: each time that it gives way takes LOOK_NS. */
#define LOOK_NS (10 * MPATH_NS_PER_MS)

typedef struct engine {
    uint64_t start_ns;
    uint64_t ends_ns;          /* after so long it is over; 0: never */
    uint64_t event_ns;         /* something happens then; 0: never */
    uint64_t lands_until_ns;   /* so long others write here */
    uint64_t dead_ns;          /* check() finds then that a process is dead; 0: never */
    int nobody;                /* there is nobody to name */
    unsigned waits;            /* until the last look */
    unsigned checks, named[3]; /* calls of check(), and of edge() by why */
    mpath_page_slot_t *page;
} engine_t;

static uint64_t since(const engine_t *engine)
{
    return now_ns - engine->start_ns;
}

static mpath_status_t engine_look(void *argument, int *events_p)
{
    engine_t *engine = argument;

    now_ns += (yields + sleeps > engine->waits) ? LOOK_NS : 0; /* spins take no time */
    engine->waits = yields + sleeps;
    *events_p     = (engine->event_ns != 0) && (since(engine) >= engine->event_ns);
    if (*events_p) {
        engine->event_ns = 0;
    }
    return ((engine->ends_ns != 0) && (since(engine) >= engine->ends_ns)) ? MPATH_OK : MPATH_INPROGRESS;
}

static mpath_status_t engine_check(void *argument, uint64_t waited_ns)
{
    engine_t *engine = argument;

    engine->checks++;
    assert_true(waited_ns <= since(engine));
    return ((engine->dead_ns != 0) && (since(engine) >= engine->dead_ns)) ? MPATH_ERR_UNREACHABLE : MPATH_OK;
}

static uint64_t engine_landed(const void *argument)
{
    const engine_t *engine = argument;

    return (since(engine) < engine->lands_until_ns) ? since(engine) : engine->lands_until_ns;
}

static int engine_edge(const void *argument, mpath_wait_why_t why, int *rank_p, char *text, size_t size)
{
    engine_t *engine = (engine_t *)argument; /* counts */

    engine->named[why]++;
    *rank_p = 2;
    snprintf(text, size, "rank 1 waits for rank 2");
    return !engine->nobody;
}

static const mpath_wait_ops_t engine_ops = {
    .look = engine_look, .check = engine_check, .landed = engine_landed, .edge = engine_edge};

static mpath_status_t run(engine_t *engine, int limit_s, int word_s)
{
    mpath_wait_t wait = {.limit_s = limit_s, .word_s = word_s, .page = engine->page};

    engine->start_ns = now_ns;
    capture_start();
    mpath_wait_start(&wait);
    return mpath_wait(&wait, &engine_ops, engine);
}

static void check_within(uint64_t value_ns, uint64_t least_ns)
{
    assert_true(value_ns >= least_ns);
    assert_true(value_ns <= least_ns + 100 * MPATH_NS_PER_MS);
}

static void test_deadline(void **state)
{
    engine_t engine = {0};

    (void)state;
    assert_int_equal(run(&engine, 3, 3), MPATH_ERR_TIMED_OUT);
    check_within(since(&engine), 3 * MPATH_NS_PER_S);
    assert_int_equal(engine.named[1], 1);
    assert_int_equal(engine.named[0], 0);
    assert_in_range(engine.checks, 55, 61); /* every 50 ms */
    assert_non_null(strstr(capture_text(), "rank 1 waits for rank 2; nothing came for 3 s, the call fails"));
}

/* Who is late by right is named from time to time. */
static void test_words(void **state)
{
    engine_t engine = {.ends_ns = 3500 * MPATH_NS_PER_MS};

    (void)state;
    assert_int_equal(run(&engine, 0, 1), MPATH_OK);
    assert_int_equal(engine.named[0], 3);
    assert_int_equal(engine.named[1], 0);
    assert_non_null(strstr(capture_text(), "nothing came for 2 s, the call goes on waiting"));
}

/* The deadline is that of silence: events end it, and what comes without one. */
static void test_silence_begins_anew(void **state)
{
    engine_t event = {.event_ns = 2 * MPATH_NS_PER_S}, landed = {.lands_until_ns = 4 * MPATH_NS_PER_S};

    (void)state;
    assert_int_equal(run(&event, 3, 3), MPATH_ERR_TIMED_OUT);
    check_within(since(&event), 5 * MPATH_NS_PER_S);
    assert_int_equal(run(&landed, 3, 3), MPATH_ERR_TIMED_OUT);
    check_within(since(&landed), 7 * MPATH_NS_PER_S);
    assert_int_equal(landed.named[0] + landed.named[1], 1);
}

static void test_the_dead_end_it(void **state)
{
    engine_t engine = {.dead_ns = MPATH_NS_PER_S};

    (void)state;
    assert_int_equal(run(&engine, 3, 3), MPATH_ERR_UNREACHABLE);
    check_within(since(&engine), MPATH_NS_PER_S);
    assert_int_equal(engine.named[0] + engine.named[1], 0); /* check() has said it */
}

static void test_nobody_to_name(void **state)
{
    engine_t engine = {.ends_ns = 5 * MPATH_NS_PER_S, .nobody = 1};

    (void)state;
    assert_int_equal(run(&engine, 3, 1), MPATH_OK);
    assert_null(strstr(capture_text(), "waits"));
}

/* What others of the user see: who is waited for as long as it is, from a moment on. An event ends it. */
static void test_page(void **state)
{
    mpath_page_slot_t *slot;
    engine_t engine = {.ends_ns = MPATH_NS_PER_S};

    (void)state;
    mpath_page_open(1, 0, 4);
    slot        = mpath_page_slot_take("world", 1, 4);
    engine.page = slot;
    assert_int_equal(run(&engine, 3, 3), MPATH_OK);
    assert_in_range(engine.named[MPATH_WAIT_PAGE], 17, 20);
    assert_int_equal(engine.named[MPATH_WAIT_WORD] + engine.named[MPATH_WAIT_FAILS], 0);
    assert_in_range(slot->edge, 1, 2);
    assert_int_equal(slot->edges[slot->edge - 1].rank, 2);
    assert_string_equal(slot->edges[slot->edge - 1].text, "rank 1 waits for rank 2");
    check_within(slot->edges[slot->edge - 1].looked_ns - slot->edges[slot->edge - 1].since_ns, 880 * MPATH_NS_PER_MS);
    engine = (engine_t){.page = slot, .event_ns = 500 * MPATH_NS_PER_MS, .ends_ns = 540 * MPATH_NS_PER_MS};
    assert_int_equal(run(&engine, 3, 3), MPATH_OK);
    assert_int_equal(slot->edge, 0);
    mpath_page_slot_give(slot);
    mpath_page_close();
}

/* A short wait looks, and asks nothing. */
static void test_short(void **state)
{
    engine_t engine = {.ends_ns = 40 * MPATH_NS_PER_MS, .page = mpath_page_slot_take("none", 0, 1)};

    (void)state;
    assert_int_equal(run(&engine, 3, 3), MPATH_OK);
    assert_int_equal(engine.named[MPATH_WAIT_PAGE], 0);
    assert_int_equal(engine.checks, 0);
    assert_false(mpath_idle_others_may_rest());
}

/* Last: it holds for the whole process. */
static void test_crowded(void **state)
{
    mpath_idle_t idle;

    (void)state;
    mpath_idle_set_load(2, 2);
    assert_false(mpath_idle_is_crowded());
    mpath_idle_yield();
    assert_int_equal(yields, 0);
    mpath_idle_set_load(3, 2);
    assert_true(mpath_idle_is_crowded());
    mpath_idle_yield();
    assert_int_equal(yields, 1);
    mpath_idle_start(&idle);
    spin(&idle, SPINS_CROWDED);
    check_wait(&idle, 0, 0);
    check_wait(&idle, 20 * MPATH_NS_PER_MS, 0);
    check_wait(&idle, 20 * MPATH_NS_PER_MS + 1, 100000);
    check_wait(&idle, 100 * MPATH_NS_PER_MS, 500000);
    check_wait(&idle, 200 * MPATH_NS_PER_MS, 1000000);
    check_wait(&idle, 2 * MPATH_NS_PER_S, 1000000);
    mpath_idle_set_load(1, 2);
    assert_true(mpath_idle_is_crowded()); /* from then on */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_sleeps_grow, setup),
        cmocka_unit_test_setup(test_an_event_ends_the_sleeps, setup),
        cmocka_unit_test_setup(test_deadline, setup),
        cmocka_unit_test_setup(test_words, setup),
        cmocka_unit_test_setup(test_silence_begins_anew, setup),
        cmocka_unit_test_setup(test_the_dead_end_it, setup),
        cmocka_unit_test_setup(test_nobody_to_name, setup),
        cmocka_unit_test_setup(test_page, setup),
        cmocka_unit_test_setup(test_short, setup),
        cmocka_unit_test_setup(test_crowded, setup),
    };

    return cmocka_run_group_tests_name("idle", tests, NULL, NULL);
}
