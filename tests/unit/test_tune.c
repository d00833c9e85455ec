/* SPDX-License-Identifier: BSD-3-Clause */
/* Shares of rails from nothing but how long each took: moves, step halving, and when they end. */
#include "tune/start.h"
#include "unit/capture.h"

#define MB 1000000ull

/* Shares by times alone, from equal rates: close to the true ones, whichever rail is the slow one. */
static void test_tune(void **state)
{
    (void)state;
    for (int num_rails = 1; num_rails <= 8; num_rails++) {
        for (int slow = 0; slow < num_rails; slow++) {
            uint64_t nominal[MPATH_MAX_NICS], actual[MPATH_MAX_NICS], times_ns[MPATH_MAX_NICS], slowest, fastest;
            mpath_tune_t tune;
            int rounds = 0;

            for (int rail = 0; rail < num_rails; rail++) {
                nominal[rail] = 25 * MB;
                actual[rail]  = (rail == slow) ? 6 * MB : 25 * MB;
            }
            mpath_tune_init(&tune, num_rails, nominal);
            do {
                slowest = 0;
                fastest = UINT64_MAX;
                for (int rail = 0; rail < num_rails; rail++) {
                    times_ns[rail] = (uint64_t)tune.shares[rail] * 100000 * MB / actual[rail];
                    slowest        = (times_ns[rail] > slowest) ? times_ns[rail] : slowest;
                    fastest        = (times_ns[rail] < fastest) ? times_ns[rail] : fastest;
                }
                assert_true(++rounds <= MPATH_TUNE_ROUNDS + 1);
            } while (mpath_tune_step(&tune, times_ns));
            assert_true((double)slowest < 1.16 * (double)fastest);
        }
    }
}

/* A step takes half of what the slowest has at most, and leaves it enough to be measured by. */
static void test_tune_least(void **state)
{
    const uint64_t small[2] = {1, 9}, tiny[2] = {1, 999}, times_ns[2] = {1000, 10};
    mpath_tune_t tune;

    (void)state;
    mpath_tune_init(&tune, 2, small);
    assert_int_equal(tune.shares[0], MPATH_TUNE_WHOLE / 10);
    assert_int_equal(mpath_tune_step(&tune, times_ns), 1);
    assert_int_equal(tune.shares[0], MPATH_TUNE_WHOLE / 20);
    assert_int_equal(tune.shares[0] + tune.shares[1], MPATH_TUNE_WHOLE);
    mpath_tune_init(&tune, 2, tiny);
    assert_int_equal(mpath_tune_step(&tune, times_ns), 0);
    assert_int_equal(tune.shares[0], MPATH_TUNE_WHOLE / 1000);
}

/* The step halves when the direction turns, at either end of the move, and only then. */
static void test_tune_halves(void **state)
{
    const uint64_t equal[4] = {1, 1, 1, 1};
    mpath_tune_t tune;

    (void)state;
    mpath_tune_init(&tune, 4, equal);
    assert_int_equal(mpath_tune_step(&tune, (const uint64_t[4]){900, 100, 500, 500}), 1); /* from 0 to 1 */
    assert_int_equal(tune.shares[1], 375000);
    assert_int_equal(mpath_tune_step(&tune, (const uint64_t[4]){500, 900, 100, 500}), 1); /* 1 got too much */
    assert_int_equal(tune.shares[1], 375000 - 62500);
    assert_int_equal(tune.shares[2], 250000 + 62500);
    assert_int_equal(mpath_tune_step(&tune, (const uint64_t[4]){500, 100, 500, 900}), 1); /* and gave too much */
    assert_int_equal(tune.shares[3], 250000 - 31250);
    assert_int_equal(tune.shares[1], 375000 - 62500 + 31250);
    assert_int_equal(mpath_tune_step(&tune, (const uint64_t[4]){100, 500, 900, 500}), 1);
    assert_int_equal(tune.shares[2], 250000 + 62500 - 31250);
}

/* Two rails that take turns at being slow: steps get shorter until the least one, and that is the end. */
static void test_tune_ends(void **state)
{
    const uint64_t equal[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    uint64_t times_ns[8];
    mpath_tune_t tune;
    int moves = 0;

    (void)state;
    mpath_tune_init(&tune, 2, equal);
    while (mpath_tune_step(&tune, (const uint64_t[2]){(moves % 2) ? 100 : 900, (moves % 2) ? 900 : 100})) {
        moves++;
    }
    assert_int_equal(moves, 7); /* 250000 halved six times is 3906 */
    /* times that no shares change: each rail but the last seems slow in its turn, and none gets too much */
    mpath_tune_init(&tune, 8, equal);
    for (int call = 0; call < 2 * MPATH_TUNE_ROUNDS; call++) {
        for (int rail = 0; rail < 8; rail++) {
            times_ns[rail] = (rail == call % 7) ? 900 : (rail == 7) ? 100 : 500;
        }
        assert_int_equal(mpath_tune_step(&tune, times_ns), call < MPATH_TUNE_ROUNDS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tune),
        cmocka_unit_test(test_tune_least),
        cmocka_unit_test(test_tune_halves),
        cmocka_unit_test(test_tune_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
