/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How peers of the UCX transport divide its rails: by the planner, so that those with slow rails are not left behind.
 */
#include "ucx_tl_mpath/shares.h"
#include "topo/topo.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <string.h>
#include <cmocka.h>

#define RAILS 4
#define PEERS 2
#define MB 1000000ull

static uint64_t sum_of_peer(const uint64_t *share_bps, int peer)
{
    uint64_t sum = 0;
    int rail;

    for (rail = 0; rail < RAILS; ++rail) {
        sum += share_bps[peer * RAILS + rail];
    }
    return sum;
}

static void assert_near(uint64_t value, uint64_t right)
{
    assert_true(value >= right * 96 / 100);
    assert_true(value <= right * 104 / 100);
}

/* One peer: every rail gives what it has, and the weaker end counts. */
static void test_one_peer(void **state)
{
    const uint64_t own[RAILS]  = {25 * MB, 25 * MB, 6 * MB, 25 * MB};
    const uint64_t peer[RAILS] = {25 * MB, 12 * MB, 25 * MB, 25 * MB};
    const uint64_t bytes       = 1 << 20;
    const mpath_shares_t input = {1, RAILS, own, peer, &bytes};
    uint64_t share[RAILS];

    (void)state;
    assert_int_equal(mpath_shares_plan(&input, share), MPATH_OK);
    assert_near(share[0], 25 * MB);
    assert_near(share[1], 12 * MB);
    assert_near(share[2], 6 * MB);
    assert_near(share[3], 25 * MB);
}

/* The peer whose third rail is slow gets more of the others; both get the same in all. */
static void test_slow_peer(void **state)
{
    const uint64_t own[RAILS]           = {25 * MB, 25 * MB, 25 * MB, 25 * MB};
    const uint64_t peers[PEERS * RAILS] = {25 * MB, 25 * MB, 25 * MB, 6 * MB, 25 * MB, 25 * MB, 25 * MB, 25 * MB};
    const uint64_t bytes[PEERS]         = {1 << 24, 1 << 24};
    const mpath_shares_t input          = {PEERS, RAILS, own, peers, bytes};
    uint64_t share[PEERS * RAILS];
    int rail;

    (void)state;
    assert_int_equal(mpath_shares_plan(&input, share), MPATH_OK);
    assert_near(sum_of_peer(share, 0), 50 * MB);
    assert_near(sum_of_peer(share, 1), 50 * MB);
    assert_true(share[3] <= 6 * MB * 104 / 100);
    for (rail = 0; rail < RAILS; ++rail) {
        assert_true(share[rail] + share[RAILS + rail] <= 25 * MB * 104 / 100);
    }
}

/* A peer with three quarters of the bytes gets three quarters; one without a rail is not given it. */
static void test_demand_and_missing_rail(void **state)
{
    const uint64_t own[RAILS]           = {25 * MB, 25 * MB, 25 * MB, 25 * MB};
    const uint64_t peers[PEERS * RAILS] = {25 * MB, 25 * MB, 25 * MB, 25 * MB, 25 * MB, 25 * MB, 0, 0};
    const uint64_t bytes[PEERS]         = {3 << 24, 1 << 24};
    const mpath_shares_t input          = {PEERS, RAILS, own, peers, bytes};
    uint64_t share[PEERS * RAILS];

    (void)state;
    assert_int_equal(mpath_shares_plan(&input, share), MPATH_OK);
    assert_near(sum_of_peer(share, 0), 75 * MB);
    assert_near(sum_of_peer(share, 1), 25 * MB);
    assert_int_equal(share[RAILS + 2] + share[RAILS + 3], 0);
}

static void test_bad_input(void **state)
{
    const uint64_t own[RAILS] = {25 * MB, 25 * MB, 25 * MB, 25 * MB};
    const uint64_t none[2]    = {0, 0};
    uint64_t share[RAILS];
    const mpath_shares_t no_peers   = {0, RAILS, own, own, none};
    const mpath_shares_t many_peers = {MPATH_SHARES_MAX_PEERS + 1, RAILS, own, own, none};
    const mpath_shares_t many_rails = {1, MPATH_MAX_NICS + 1, own, own, none};
    const mpath_shares_t no_bytes   = {1, RAILS, own, own, none};

    (void)state;
    assert_int_equal(mpath_shares_plan(&no_peers, share), MPATH_ERR_PARAM);
    assert_int_equal(mpath_shares_plan(&many_peers, share), MPATH_ERR_PARAM);
    assert_int_equal(mpath_shares_plan(&many_rails, share), MPATH_ERR_PARAM);
    assert_int_equal(mpath_shares_plan(&no_bytes, share), MPATH_ERR_PARAM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_peer),
        cmocka_unit_test(test_slow_peer),
        cmocka_unit_test(test_demand_and_missing_rail),
        cmocka_unit_test(test_bad_input),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
