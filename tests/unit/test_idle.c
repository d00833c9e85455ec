/* SPDX-License-Identifier: BSD-3-Clause */
/* Waits that find nothing: how long they spin, give way and sleep, by a clock of the test's own. */
#include "exec/idle.h"
#include "util/time.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

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

static void test_deadlines(void **state)
{
    mpath_idle_t idle;

    (void)state;
    mpath_idle_start(&idle);
    assert_int_equal(mpath_idle_patience(&idle, 3 * MPATH_NS_PER_S, 3), MPATH_OK);
    assert_int_equal(mpath_idle_patience(&idle, 3 * MPATH_NS_PER_S + 1, 3), MPATH_ERR_TIMED_OUT);
    assert_int_equal(mpath_idle_patience(&idle, 3 * MPATH_NS_PER_S + 1, 3), MPATH_ERR_TIMED_OUT); /* again */
    assert_false(mpath_idle_others_may_rest());
}

/* Last: it holds for the whole process. */
static void test_crowded(void **state)
{
    mpath_idle_t idle;

    (void)state;
    mpath_idle_set_load(2, 2);
    assert_false(mpath_idle_is_crowded());
    mpath_idle_give_way();
    assert_int_equal(yields, 0);
    mpath_idle_set_load(3, 2);
    assert_true(mpath_idle_is_crowded());
    mpath_idle_give_way();
    assert_int_equal(yields, 1);
    mpath_idle_start(&idle);
    spin(&idle, SPINS_CROWDED);
    check_wait(&idle, 0, 0);
    mpath_idle_set_load(1, 2);
    assert_true(mpath_idle_is_crowded()); /* from then on */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_sleeps_grow, setup),
        cmocka_unit_test_setup(test_an_event_ends_the_sleeps, setup),
        cmocka_unit_test_setup(test_deadlines, setup),
        cmocka_unit_test_setup(test_crowded, setup),
    };

    return cmocka_run_group_tests_name("idle", tests, NULL, NULL);
}
