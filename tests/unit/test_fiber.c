/* SPDX-License-Identifier: BSD-3-Clause */
/* Fibers: rest and slices, resumption by another thread, many at once, the end of one that waits; waits on a fiber. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "team/wait.h"
#include "util/fiber.h"
#include "util/time.h"

#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define STACK_BYTES (256u * 1024u)
#define MANY 100

typedef struct work {
    int rounds, seen;
    long threads[3];
    uint64_t waited_ns;
    int stop;
} work_t;

static void rest_body(void *argument)
{
    work_t *work = argument;
    char local[4096];

    memset(local, work->rounds, sizeof(local));
    for (int i = 0; i < work->rounds; i++) {
        work->seen++;
        assert_int_equal(mpath_fiber_is_on(), 1);
        assert_int_equal(mpath_fiber_rest(), 1);
        assert_int_equal(local[4095], (char)work->rounds); /* the stack is as it was */
    }
}

static void test_rest(void **state)
{
    mpath_fiber_t *fiber;
    work_t work = {.rounds = 3};

    (void)state;
    assert_int_equal(mpath_fiber_create(STACK_BYTES, &fiber), MPATH_OK);
    assert_int_equal(mpath_fiber_resume(fiber), MPATH_FIBER_ENDED); /* nothing started */
    assert_int_equal(mpath_fiber_rest(), 0);
    mpath_fiber_breathe(); /* nobody to leave */
    for (int again = 0; again < 2; again++) {
        work.seen = 0;
        mpath_fiber_start(fiber, rest_body, &work);
        assert_int_equal(work.seen, 0);
        for (int i = 1; i <= 3; i++) {
            assert_int_equal(mpath_fiber_resume(fiber), MPATH_FIBER_IDLE);
            assert_int_equal(work.seen, i);
            assert_int_equal(mpath_fiber_is_on(), 0);
        }
        assert_int_equal(mpath_fiber_resume(fiber), MPATH_FIBER_ENDED);
        assert_int_equal(mpath_fiber_resume(fiber), MPATH_FIBER_ENDED);
    }
    mpath_fiber_destroy(fiber);
    mpath_fiber_destroy(NULL);
}

/* Events without end leave the fiber when its slice is over. */
static void busy_body(void *argument)
{
    work_t *work = argument;
    mpath_idle_t idle;

    mpath_idle_start(&idle);
    while (!work->stop) {
        work->seen++;
        mpath_idle_event(&idle);
    }
}

static void test_slices(void **state)
{
    mpath_fiber_t *fiber;
    work_t work = {0};

    (void)state;
    assert_int_equal(mpath_fiber_create(STACK_BYTES, &fiber), MPATH_OK);
    mpath_fiber_start(fiber, busy_body, &work);
    for (int i = 0; i < 3; i++) {
        int before = work.seen;

        assert_int_equal(mpath_fiber_resume(fiber), MPATH_FIBER_BUSY);
        assert_true(work.seen > before);
    }
    work.stop = 1;
    assert_int_equal(mpath_fiber_resume(fiber), MPATH_FIBER_ENDED);
    mpath_fiber_destroy(fiber);
}

static void breathe_body(void *argument)
{
    (void)argument;
    mpath_fiber_breathe();
}

/* What takes no time is not left in the middle; a loaded machine may take a slice now and then. */
static void test_within_slice(void **state)
{
    mpath_fiber_t *fiber;
    int whole = 0;

    (void)state;
    assert_int_equal(mpath_fiber_create(STACK_BYTES, &fiber), MPATH_OK);
    for (int i = 0; i < MANY; i++) {
        mpath_fiber_start(fiber, breathe_body, NULL);
        whole += mpath_fiber_resume(fiber) == MPATH_FIBER_ENDED;
        (void)mpath_fiber_resume(fiber);
    }
    assert_true(whole > 0);
    mpath_fiber_destroy(fiber);
}

/* pthread_self() would not do: the compiler may take it for constant within a function. */
static void thread_body(void *argument)
{
    work_t *work = argument;

    for (int i = 0; i < 3; i++) {
        work->threads[i] = syscall(SYS_gettid);
        assert_int_equal(mpath_fiber_is_on(), 1);
        (void)mpath_fiber_rest();
    }
}

static void *resume(void *argument)
{
    assert_int_equal(mpath_fiber_resume(argument), MPATH_FIBER_IDLE);
    assert_int_equal(mpath_fiber_is_on(), 0);
    return NULL;
}

static void test_threads(void **state)
{
    mpath_fiber_t *fiber;
    work_t work = {0};
    pthread_t thread;

    (void)state;
    assert_int_equal(mpath_fiber_create(STACK_BYTES, &fiber), MPATH_OK);
    mpath_fiber_start(fiber, thread_body, &work);
    assert_int_equal(mpath_fiber_resume(fiber), MPATH_FIBER_IDLE);
    assert_int_equal(pthread_create(&thread, NULL, resume, fiber), 0);
    pthread_join(thread, NULL);
    assert_int_equal(mpath_fiber_resume(fiber), MPATH_FIBER_IDLE);
    assert_int_equal(mpath_fiber_resume(fiber), MPATH_FIBER_ENDED);
    assert_int_equal(work.threads[0], syscall(SYS_gettid));
    assert_int_not_equal(work.threads[1], work.threads[0]);
    assert_int_equal(work.threads[2], work.threads[0]);
    mpath_fiber_destroy(fiber);
}

static void test_many(void **state)
{
    mpath_fiber_t *fibers[MANY];
    work_t work[MANY];
    int left = MANY;

    (void)state;
    for (int i = 0; i < MANY; i++) {
        work[i] = (work_t){.rounds = i % 7};
        assert_int_equal(mpath_fiber_create(STACK_BYTES, &fibers[i]), MPATH_OK);
        mpath_fiber_start(fibers[i], rest_body, &work[i]);
    }
    for (int round = 0; round < 7; round++) {
        left = 0;
        for (int i = 0; i < MANY; i++) {
            left += mpath_fiber_resume(fibers[i]) != MPATH_FIBER_ENDED;
        }
    }
    assert_int_equal(left, 0);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(work[i].seen, i % 7);
        mpath_fiber_destroy(fibers[i]);
    }
}

static void ending_body(void *argument)
{
    work_t *work = argument;

    while (!mpath_fiber_is_ending()) {
        work->seen++;
        (void)mpath_fiber_rest();
    }
}

static void test_ending(void **state)
{
    mpath_fiber_t *fiber;
    work_t work = {0};

    (void)state;
    assert_int_equal(mpath_fiber_is_ending(), 0);
    assert_int_equal(mpath_fiber_create(STACK_BYTES, &fiber), MPATH_OK);
    mpath_fiber_start(fiber, ending_body, &work);
    assert_int_equal(mpath_fiber_resume(fiber), MPATH_FIBER_IDLE);
    assert_int_equal(mpath_fiber_resume(fiber), MPATH_FIBER_IDLE);
    mpath_fiber_end_soon(fiber);
    assert_int_equal(mpath_fiber_resume(fiber), MPATH_FIBER_ENDED);
    assert_int_equal(work.seen, 2);
    mpath_fiber_destroy(fiber);
}

/* Time in which nobody looks is no waiting: 300 ms away count as 10. */
static void away_body(void *argument)
{
    work_t *work = argument;
    mpath_idle_t idle;

    mpath_idle_start(&idle);
    work->waited_ns = mpath_idle_wait(&idle);
}

/* Silence on a fiber: a word in place of the deadline, which is an end of the wait here. */
typedef struct silence {
    int words, failures;
    mpath_status_t status;
} silence_t;

static mpath_status_t silence_look(void *engine, int *events_p)
{
    const silence_t *silence = engine;

    *events_p = 0;
    return (silence->words > 0) ? MPATH_OK : MPATH_INPROGRESS;
}

static int silence_edge(const void *engine, mpath_wait_why_t why, int *rank_p, char *text, size_t size)
{
    silence_t *silence = (silence_t *)engine; /* counts */

    *(why == MPATH_WAIT_FAILS ? &silence->failures : &silence->words) += 1;
    *rank_p = 2;
    snprintf(text, size, "rank 1 waits for rank 2");
    return 1;
}

static void silence_body(void *argument)
{
    static const mpath_wait_ops_t ops = {.look = silence_look, .edge = silence_edge};
    mpath_wait_t wait                 = {.limit_s = 1, .word_s = 1};
    silence_t *silence                = argument;

    mpath_wait_start(&wait);
    silence->status = mpath_wait(&wait, &ops, silence);
}

static void test_silence(void **state)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    silence_t silence            = {.status = MPATH_INPROGRESS};
    mpath_fiber_t *fiber;

    (void)state;
    assert_int_equal(mpath_fiber_create(STACK_BYTES, &fiber), MPATH_OK);
    mpath_fiber_start(fiber, silence_body, &silence);
    while (mpath_fiber_resume(fiber) != MPATH_FIBER_ENDED) {
        nanosleep(&moment, NULL);
    }
    assert_int_equal(silence.status, MPATH_OK);
    assert_int_equal(silence.words, 1);
    assert_int_equal(silence.failures, 0);
    mpath_fiber_destroy(fiber);
}

static void test_away(void **state)
{
    const struct timespec away = {.tv_nsec = 300000000};
    mpath_fiber_t *fiber;
    work_t work = {0};

    (void)state;
    assert_int_equal(mpath_fiber_create(STACK_BYTES, &fiber), MPATH_OK);
    mpath_fiber_start(fiber, away_body, &work);
    assert_int_equal(mpath_fiber_resume(fiber), MPATH_FIBER_IDLE);
    nanosleep(&away, NULL);
    assert_int_equal(mpath_fiber_resume(fiber), MPATH_FIBER_ENDED);
    assert_true(work.waited_ns > 0);
    assert_true(work.waited_ns <= 10 * MPATH_NS_PER_MS);
    mpath_fiber_destroy(fiber);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rest),    cmocka_unit_test(test_slices),  cmocka_unit_test(test_within_slice),
        cmocka_unit_test(test_threads), cmocka_unit_test(test_many),    cmocka_unit_test(test_ending),
        cmocka_unit_test(test_away),    cmocka_unit_test(test_silence),
    };

    return cmocka_run_group_tests_name("fiber", tests, NULL, NULL);
}
