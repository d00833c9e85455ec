/* SPDX-License-Identifier: BSD-3-Clause */
/* A second path beside a first one: found, followed, left alone. */
#include "config.h"
#include "tune/share.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#define BYTES UINT64_C(268435456)

/* Two paths that share nothing: rates, and what the second takes until its first bytes are there. */
typedef struct paths {
    uint64_t first_bps, second_bps, start_ns;
} paths_t;

static uint64_t time_ns(uint64_t bytes, uint64_t bps)
{
    return bytes * 1000 / (bps / 1000000);
}

/* One call: how long both took together. */
static uint64_t call(mpath_beside_t *beside, const paths_t *paths)
{
    uint64_t second   = BYTES / MPATH_TUNE_WHOLE * mpath_beside_share(beside);
    uint64_t first_ns = time_ns(BYTES - second, paths->first_bps), second_ns = 0;

    if (second > 0) {
        second_ns = paths->start_ns + time_ns(second, paths->second_bps);
    }
    mpath_beside_note(beside, first_ns, second_ns);
    return (first_ns > second_ns) ? first_ns : second_ns;
}

static uint64_t calls(mpath_beside_t *beside, const paths_t *paths, int count)
{
    uint64_t ns = 0;

    for (int i = 0; i < count; i++) {
        ns = call(beside, paths);
    }
    return ns;
}

static uint64_t alone_ns(const paths_t *paths)
{
    return time_ns(BYTES, paths->first_bps);
}

/* What no division of the bytes goes below. */
static uint64_t best_ns(const paths_t *paths)
{
    uint64_t rate = paths->first_bps + paths->second_bps;

    return time_ns(BYTES, rate) + paths->start_ns / 1000 * (paths->second_bps / 1000000) / (rate / 1000000) * 1000;
}

static void test_found(void **state)
{
    static const paths_t paths[] = {
        {360000000000, 40000000000, 60000}, {200000000000, 43000000000, 40000}, {100000000000, 90000000000, 20000}};

    (void)state;
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        mpath_beside_t beside;
        uint64_t ns;

        mpath_beside_init(&beside, 355000000000, 30000000000);
        assert_int_equal(mpath_beside_share(&beside), 0);
        ns = calls(&beside, &paths[i], MPATH_BESIDE_WINDOW * (MPATH_BESIDE_ROUNDS + 1) + 1);
        assert_int_equal(beside.state, MPATH_BESIDE_KEPT);
        assert_true(ns < best_ns(&paths[i]) * 102 / 100);
        assert_true(ns < alone_ns(&paths[i]) * 99 / 100);
    }
}

/* It is the second path that ends earlier, if one does: what it is late for is lost whole. */
static void test_early(void **state)
{
    static const uint64_t starts_ns[] = {0, 20000, 50000, 100000, 150000};

    (void)state;
    for (size_t i = 0; i < sizeof(starts_ns) / sizeof(starts_ns[0]); i++) {
        const paths_t paths = {360000000000, 37000000000, starts_ns[i]};
        mpath_beside_t beside;
        uint64_t second;

        mpath_beside_init(&beside, 355000000000, 30000000000);
        calls(&beside, &paths, 100);
        assert_int_equal(beside.state, MPATH_BESIDE_KEPT);
        second = BYTES / MPATH_TUNE_WHOLE * mpath_beside_share(&beside);
        assert_true(paths.start_ns + time_ns(second, paths.second_bps) <
                    time_ns(BYTES - second, paths.first_bps) * 1005 / 1000);
        assert_true(call(&beside, &paths) < best_ns(&paths) * 1005 / 1000);
    }
}

/* The second path gets slower while it is in use: it gives share back. */
static void test_followed(void **state)
{
    const paths_t before = {360000000000, 40000000000, 60000}, after = {360000000000, 20000000000, 60000};
    mpath_beside_t beside;
    uint32_t share;

    (void)state;
    mpath_beside_init(&beside, 355000000000, 30000000000);
    calls(&beside, &before, 100);
    share = mpath_beside_share(&beside);
    calls(&beside, &after, 20);
    assert_true(calls(&beside, &after, 80) < best_ns(&after) * 104 / 100);
    assert_true(mpath_beside_share(&beside) < share * 3 / 4);
}

/* One that does not shorten the call is not used, and seldom tried again. */
static void test_left_alone(void **state)
{
    const paths_t useless = {360000000000, 2000000000, 700000}, useful = {360000000000, 40000000000, 60000};
    mpath_beside_t beside;
    int used = 0;

    (void)state;
    mpath_beside_init(&beside, 355000000000, 30000000000);
    for (unsigned i = 0; i < 100; i++) {
        used += mpath_beside_share(&beside) != 0;
        call(&beside, &useless);
    }
    assert_int_equal(beside.state, MPATH_BESIDE_OFF);
    assert_in_range(used, 1, MPATH_BESIDE_PATIENCE * MPATH_BESIDE_WINDOW);
    used = 0;
    for (unsigned i = 0; i < MPATH_BESIDE_REST - 120; i++) {
        used += mpath_beside_share(&beside) != 0;
        assert_int_equal(call(&beside, &useless), alone_ns(&useless));
    }
    assert_int_equal(used, 0);
    calls(&beside, &useful, 300);
    assert_int_equal(beside.state, MPATH_BESIDE_KEPT);
}

/* It gets faster: calls are shorter than without it all the while, and still it takes more. */
static void test_followed_up(void **state)
{
    const paths_t before = {360000000000, 40000000000, 60000}, after = {360000000000, 80000000000, 60000};
    mpath_beside_t beside;
    uint32_t share;

    (void)state;
    mpath_beside_init(&beside, 355000000000, 30000000000);
    calls(&beside, &before, 100);
    share = mpath_beside_share(&beside);
    assert_true(calls(&beside, &after, 100) < best_ns(&after) * 102 / 100);
    assert_true(mpath_beside_share(&beside) > share * 3 / 2);
}

/* One that was useful for a time and is not any more is tried as seldom, and as shortly, as one that never was. */
static void test_useless_later(void **state)
{
    const paths_t useful = {360000000000, 40000000000, 60000}, useless = {360000000000, 2000000000, 700000};
    const paths_t busy = {300000000000, 33000000000, 60000}; /* both are slower, and end together */
    mpath_beside_t beside;
    int used = 0;

    (void)state;
    mpath_beside_init(&beside, 355000000000, 30000000000);
    calls(&beside, &useful, 100);
    assert_int_equal(beside.state, MPATH_BESIDE_KEPT);
    calls(&beside, &busy, 2 * MPATH_BESIDE_WATCH);
    assert_int_equal(beside.state, MPATH_BESIDE_OFF);
    for (unsigned i = 0; i < MPATH_BESIDE_REST + 50; i++) {
        used += mpath_beside_share(&beside) != 0;
        call(&beside, &useless);
    }
    assert_int_equal(beside.state, MPATH_BESIDE_OFF);
    assert_in_range(used, 1, MPATH_BESIDE_PATIENCE * MPATH_BESIDE_WINDOW);
}

/* Whatever the times are, a share is a part of the whole: here the second path seems to take none. */
static void test_no_more_than_all(void **state)
{
    mpath_beside_t beside;

    (void)state;
    mpath_beside_init(&beside, 100000000000, 100000000000);
    for (int i = 0; i < 100; i++) {
        mpath_beside_note(&beside, 1000000, (mpath_beside_share(&beside) > 0) ? 1 : 0);
        assert_true(mpath_beside_share(&beside) < MPATH_TUNE_WHOLE);
    }
}

/* Single slow calls change nothing. */
static void test_outliers(void **state)
{
    const paths_t paths = {360000000000, 40000000000, 60000};
    mpath_beside_t beside;
    uint32_t share;

    (void)state;
    mpath_beside_init(&beside, 355000000000, 30000000000);
    calls(&beside, &paths, 100);
    share = mpath_beside_share(&beside);
    for (int i = 0; i < 200; i++) {
        call(&beside, &paths);
        if (i % 4 == 0) {
            mpath_beside_note(&beside, alone_ns(&paths) * 3, (i % 8 == 0) ? alone_ns(&paths) * 5 : 1);
        }
    }
    assert_int_equal(mpath_beside_share(&beside), share);
    assert_int_equal(beside.state, MPATH_BESIDE_KEPT);
}

/* What a communicator has found the next one begins with: nothing moves, and calls without it come once, to compare. */
static void test_resumed(void **state)
{
    static const paths_t paths = {360000000000, 40000000000, 60000};
    mpath_beside_t first, next;
    uint32_t found = 0;
    int alone      = 0;

    (void)state;
    mpath_beside_init(&first, 355000000000, 30000000000);
    assert_int_equal(mpath_beside_found(&first, &found), 0);
    calls(&first, &paths, 100);
    assert_int_equal(mpath_beside_found(&first, &found), 1);
    assert_int_equal(found, mpath_beside_share(&first));
    assert_int_equal(mpath_beside_found(&first, &found), 0);

    mpath_beside_init(&next, 355000000000, 30000000000);
    mpath_beside_resume(&next, found);
    for (unsigned i = 0; i < 100; i++) {
        uint32_t share = mpath_beside_share(&next);

        assert_int_equal(share,
                         ((i >= MPATH_BESIDE_WATCH) && (i < MPATH_BESIDE_WATCH + MPATH_BESIDE_WINDOW)) ? 0 : found);
        alone += share == 0;
        call(&next, &paths);
    }
    assert_int_equal(alone, MPATH_BESIDE_WINDOW);
    assert_int_equal(next.state, MPATH_BESIDE_KEPT);
    assert_int_equal(mpath_beside_found(&next, &found), 0);
}

/* The machine is another one than it was: the share moves from where it is, and what is found then is told. */
static void test_resumed_wrong(void **state)
{
    static const paths_t paths         = {360000000000, 40000000000, 60000};
    static const uint64_t wrong_ones[] = {1, 10000, 50000, 400000};
    static const paths_t useless       = {360000000000, 2000000000, 700000};
    mpath_beside_t beside;
    uint32_t found;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong_ones) / sizeof(wrong_ones[0]); i++) {
        mpath_beside_init(&beside, 355000000000, 30000000000);
        mpath_beside_resume(&beside, wrong_ones[i]);
        assert_true(calls(&beside, &paths, 80) < best_ns(&paths) * 102 / 100);
        assert_int_equal(beside.state, MPATH_BESIDE_KEPT);
        assert_int_equal(mpath_beside_found(&beside, &found), 1);
        assert_int_equal(found, mpath_beside_share(&beside));
    }
    mpath_beside_init(&beside, 355000000000, 30000000000);
    mpath_beside_resume(&beside, 90000);
    assert_int_equal(calls(&beside, &useless, 80), alone_ns(&useless));
    assert_int_equal(mpath_beside_found(&beside, &found), 1);
    assert_int_equal(found, 0);
}

/* That it is of no use holds for a while; what cannot be a share is none. */
static void test_resumed_off(void **state)
{
    static const paths_t paths = {360000000000, 40000000000, 60000};
    mpath_beside_t beside;
    uint32_t found;

    (void)state;
    mpath_beside_init(&beside, 355000000000, 30000000000);
    mpath_beside_resume(&beside, 0);
    for (unsigned i = 0; i < MPATH_BESIDE_REST_KEPT; i++) {
        assert_int_equal(mpath_beside_share(&beside), 0);
        call(&beside, &paths);
    }
    assert_int_equal(beside.state, MPATH_BESIDE_ALONE);
    assert_int_equal(mpath_beside_found(&beside, &found), 0);
    calls(&beside, &paths, 100);
    assert_int_equal(beside.state, MPATH_BESIDE_KEPT);
    assert_int_equal(mpath_beside_found(&beside, &found), 1);
    assert_true(found > 0);

    mpath_beside_init(&beside, 355000000000, 30000000000);
    mpath_beside_resume(&beside, MPATH_TUNE_WHOLE);
    assert_int_equal(mpath_beside_share(&beside), 0);
    assert_int_equal(beside.state, MPATH_BESIDE_ALONE);
}

/* Calls that take longer under watch end the use of the path, but others do not hear that it is of none. */
static void test_told_seldom(void **state)
{
    const paths_t useful = {360000000000, 40000000000, 60000};
    const paths_t busy   = {300000000000, 33000000000, 60000};
    mpath_beside_t beside;
    uint32_t found;

    (void)state;
    mpath_beside_init(&beside, 355000000000, 30000000000);
    calls(&beside, &useful, 100);
    assert_int_equal(mpath_beside_found(&beside, &found), 1);
    calls(&beside, &busy, 2 * MPATH_BESIDE_WATCH);
    assert_int_equal(beside.state, MPATH_BESIDE_OFF);
    assert_int_equal(mpath_beside_found(&beside, &found), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found),       cmocka_unit_test(test_early),
        cmocka_unit_test(test_followed),    cmocka_unit_test(test_followed_up),
        cmocka_unit_test(test_left_alone),  cmocka_unit_test(test_useless_later),
        cmocka_unit_test(test_outliers),    cmocka_unit_test(test_no_more_than_all),
        cmocka_unit_test(test_resumed),     cmocka_unit_test(test_resumed_wrong),
        cmocka_unit_test(test_resumed_off), cmocka_unit_test(test_told_seldom),
    };

    return cmocka_run_group_tests_name("beside", tests, NULL, NULL);
}
