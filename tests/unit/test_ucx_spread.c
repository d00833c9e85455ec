/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How the UCX transport spreads packets: shares by rate, rates by measurement, small messages together. Simulated time.
 */
#include "ucx_tl_mpath/spread.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <string.h>
#include <cmocka.h>

#define PACKET_BYTES 65536ull
#define QUEUE_BYTES (16 * PACKET_BYTES) /* a rail takes no more than this at once, as a socket does */
#define RAILS 4
#define ALL ((1u << RAILS) - 1)

/* Rails that deliver at their true rates. */
typedef struct network {
    mpath_spread_rail_t rails[RAILS];
    uint64_t true_bps[RAILS];
    uint64_t free_ns[RAILS]; /* when the rail has delivered all that it has */
    uint64_t due_ns[RAILS][64];
    int head[RAILS], count[RAILS];
    uint64_t sent_bytes[RAILS];
    uint64_t now_ns;
    int late_binding; /* packets wait in front of the rails, not in their queues */
} network_t;

static void init(network_t *network, const uint64_t *believed_bps, const uint64_t *true_bps)
{
    int rail;

    memset(network, 0, sizeof(*network));
    network->now_ns = 1000000;
    for (rail = 0; rail < RAILS; ++rail) {
        mpath_spread_rail_init(&network->rails[rail], believed_bps[rail]);
        network->true_bps[rail] = true_bps[rail];
    }
}

static void deliver(network_t *network)
{
    int rail;

    for (rail = 0; rail < RAILS; ++rail) {
        while (network->count[rail] > 0 && network->due_ns[rail][network->head[rail]] <= network->now_ns) {
            mpath_spread_delivered(&network->rails[rail], PACKET_BYTES, network->due_ns[rail][network->head[rail]]);
            network->head[rail] = (network->head[rail] + 1) % 64;
            --network->count[rail];
        }
    }
}

/* One packet, as the transport sends it; 0 when no rail takes it now. */
static int send_one(network_t *network)
{
    uint64_t usable = ALL, start_ns;
    int rail, trial, reference = -1;

    while ((rail = mpath_spread_pick(network->rails, usable, PACKET_BYTES, reference)) >= 0) {
        trial = mpath_spread_pick_trial(network->rails, rail, ALL, PACKET_BYTES, network->now_ns);
        rail  = reference < 0 && trial >= 0 ? trial : rail;
        if (network->rails[rail].inflight_bytes + PACKET_BYTES > QUEUE_BYTES ||
            (network->late_binding && !mpath_spread_has_room(&network->rails[rail], PACKET_BYTES))) {
            usable &= ~(1ull << rail);
            reference = reference < 0 ? rail : reference;
            continue;
        }
        start_ns               = network->free_ns[rail] > network->now_ns ? network->free_ns[rail] : network->now_ns;
        network->free_ns[rail] = start_ns + PACKET_BYTES * 1000000000ull / network->true_bps[rail];
        network->due_ns[rail][(network->head[rail] + network->count[rail]++) % 64] = network->free_ns[rail];
        mpath_spread_sent(&network->rails[rail], PACKET_BYTES, network->now_ns);
        network->sent_bytes[rail] += PACKET_BYTES;
        return 1;
    }
    return 0;
}

/* Sends as much as goes for some time. */
static void saturate(network_t *network, uint64_t duration_ns)
{
    uint64_t end_ns = network->now_ns + duration_ns;

    memset(network->sent_bytes, 0, sizeof(network->sent_bytes));
    for (; network->now_ns < end_ns; network->now_ns += 100000) {
        deliver(network);
        while (send_one(network)) {
        }
    }
}

static void assert_shares(const network_t *network)
{
    uint64_t all_bps = 0, all_bytes = 0;
    int rail;

    for (rail = 0; rail < RAILS; ++rail) {
        all_bps += network->true_bps[rail];
        all_bytes += network->sent_bytes[rail];
    }
    for (rail = 0; rail < RAILS; ++rail) {
        double share = (double)network->sent_bytes[rail] / (double)all_bytes;
        double right = (double)network->true_bps[rail] / (double)all_bps;

        assert_true(share > 0.9 * right && share < 1.1 * right);
    }
}

static void test_equal(void **state)
{
    const uint64_t bps[RAILS] = {25000000, 25000000, 25000000, 25000000};
    network_t network;

    (void)state;
    init(&network, bps, bps);
    saturate(&network, 2000000000ull);
    assert_shares(&network);
}

/* Wrong beliefs are found out, too high and too low ones. */
static void test_measures(void **state)
{
    const uint64_t believed[RAILS] = {25000000, 25000000, 25000000, 25000000};
    const uint64_t truly[RAILS]    = {25000000, 6250000, 100000000, 25000000};
    network_t network;

    (void)state;
    init(&network, believed, truly);
    saturate(&network, 3000000000ull);
    saturate(&network, 3000000000ull);
    assert_shares(&network);
}

/* A belief that is wrong by a factor of hundreds, as of NICs behind a shaper, ends with the first measurements. */
static void test_wrong_by_far(void **state)
{
    const uint64_t believed[RAILS] = {1250000000, 1250000000, 1250000000, 1250000000};
    const uint64_t truly[RAILS]    = {2500000, 2500000, 1250000, 2500000};
    network_t network;
    int rail;

    (void)state;
    init(&network, believed, truly);
    saturate(&network, 500000000ull);
    for (rail = 0; rail < RAILS; ++rail) {
        assert_true(network.rails[rail].rate_bps < truly[rail] * 5 / 4);
        assert_true(network.rails[rail].rate_bps > truly[rail] * 3 / 4);
    }
}

/* A rail that becomes slow gets less, and more again when it recovers. */
static void test_follows(void **state)
{
    const uint64_t bps[RAILS] = {25000000, 25000000, 25000000, 25000000};
    network_t network;

    (void)state;
    init(&network, bps, bps);
    saturate(&network, 500000000ull);
    network.true_bps[3] = 6250000;
    saturate(&network, 3000000000ull);
    saturate(&network, 2000000000ull);
    assert_shares(&network);
    network.true_bps[3] = 25000000;
    saturate(&network, 3000000000ull);
    saturate(&network, 2000000000ull);
    assert_shares(&network);
}

/*
 * A rail so slow at first that the others' queues are always shorter carries nothing more, but for a trial now and then:
 * by that its recovery is noticed.
 */
static void test_tries_again(void **state)
{
    const uint64_t believed[RAILS] = {25000000, 25000000, 25000000, 25000000};
    const uint64_t slow[RAILS]     = {25000000, 25000000, 25000000, 600000};
    network_t network;

    (void)state;
    init(&network, believed, slow);
    network.late_binding = 1;
    saturate(&network, 3000000000ull);
    saturate(&network, 20000000000ull);
    assert_in_range(network.rails[3].rate_bps, 500000, 700000);
    assert_in_range(network.sent_bytes[3], 3 * PACKET_BYTES, 5 * PACKET_BYTES); /* of 0.1 s each */
    network.true_bps[3] = 25000000;
    saturate(&network, 8000000000ull);
    saturate(&network, 2000000000ull);
    assert_shares(&network);
}

/* What the system told of a rail may be too little by far; and a trial that is lost is one that took as long. */
static void test_tries_unknown(void **state)
{
    const uint64_t believed[RAILS] = {25000000, 25000000, 25000000, 1000000};
    const uint64_t truly[RAILS]    = {25000000, 25000000, 25000000, 25000000};
    mpath_spread_rail_t *rail;
    network_t network;

    (void)state;
    init(&network, believed, truly);
    network.late_binding = 1;
    network.now_ns       = 10000000000ull;
    saturate(&network, 2000000000ull);
    saturate(&network, 1000000000ull);
    assert_shares(&network);

    init(&network, truly, truly);
    rail = &network.rails[3];
    mpath_spread_sent(&network.rails[0], PACKET_BYTES, 10000000000ull);
    assert_int_equal(mpath_spread_pick_trial(network.rails, 0, 8, PACKET_BYTES, 10000000000ull), 3);
    assert_int_equal(mpath_spread_pick_trial(network.rails, 0, 8, 64, 10000000000ull), -1);
    assert_int_equal(mpath_spread_pick_trial(network.rails, 1, 8, PACKET_BYTES, 10000000000ull),
                     -1); /* has no backlog */
    mpath_spread_sent(rail, PACKET_BYTES, 10000000000ull);
    mpath_spread_lost(rail, PACKET_BYTES, 12000000000ull);
    assert_int_equal(rail->rate_bps, 25000000);
    assert_int_equal(mpath_spread_pick_trial(network.rails, 0, 8, PACKET_BYTES, 111000000000ull), -1);
    assert_int_equal(mpath_spread_pick_trial(network.rails, 0, 8, PACKET_BYTES, 113000000000ull), 3);
}

/* One message: the slow rail may not be what it waits for. */
static void test_finishes_together(void **state)
{
    const uint64_t bps[RAILS] = {25000000, 25000000, 25000000, 6250000};
    uint64_t last_ns          = 0, first_ns;
    network_t network;
    int i, rail;

    (void)state;
    init(&network, bps, bps);
    for (i = 0; i < 52; ++i) {
        assert_true(send_one(&network));
    }
    for (rail = 0; rail < RAILS; ++rail) {
        last_ns = network.free_ns[rail] > last_ns ? network.free_ns[rail] : last_ns;
    }
    first_ns = 52 * PACKET_BYTES * 1000000000ull / 81250000;
    assert_true(last_ns - network.now_ns < first_ns + PACKET_BYTES * 1000000000ull / 6250000);
}

/* Beliefs that are wrong by half hurt the end of a message less when the rails' queues are short. */
static void test_short_queues(void **state)
{
    const uint64_t believed[RAILS] = {25000000, 25000000, 25000000, 12500000};
    const uint64_t truly[RAILS]    = {25000000, 25000000, 25000000, 25000000};
    uint64_t end_ns[2];
    network_t network;
    int late, left, rail;

    (void)state;
    for (late = 0; late < 2; ++late) {
        init(&network, believed, truly);
        network.late_binding = late;
        for (left = 56; left > 0; network.now_ns += 100000) {
            deliver(&network);
            while (left > 0 && send_one(&network)) {
                --left;
            }
        }
        end_ns[late] = 0;
        for (rail = 0; rail < RAILS; ++rail) {
            end_ns[late] = network.free_ns[rail] > end_ns[late] ? network.free_ns[rail] : end_ns[late];
        }
    }
    assert_true(end_ns[1] < end_ns[0]);
}

static void test_room(void **state)
{
    mpath_spread_rail_t slow, fast;

    (void)state;
    mpath_spread_rail_init(&slow, 1000000);
    mpath_spread_rail_init(&fast, 1000000000);
    mpath_spread_sent(&slow, 3 * PACKET_BYTES, 1000);
    mpath_spread_sent(&fast, 100 * PACKET_BYTES, 1000);
    assert_true(mpath_spread_has_room(&slow, PACKET_BYTES));
    assert_true(mpath_spread_has_room(&fast, PACKET_BYTES));
    mpath_spread_sent(&slow, PACKET_BYTES, 1000);
    mpath_spread_sent(&fast, 100 * PACKET_BYTES, 1000);
    assert_false(mpath_spread_has_room(&slow, PACKET_BYTES));
    assert_false(mpath_spread_has_room(&fast, PACKET_BYTES));
}

/*
 * A system may report forty times what a rail carries: once that is measured, the queue is as short as for a rail known
 * to be slow.
 */
static void test_room_of_measured(void **state)
{
    const uint64_t packet_ns = PACKET_BYTES * 1000000000ull / 25000000;
    mpath_spread_rail_t rail;
    uint64_t now_ns = 1000;
    int i;

    (void)state;
    mpath_spread_rail_init(&rail, 1250000000);
    mpath_spread_sent(&rail, 100 * PACKET_BYTES, now_ns);
    assert_true(mpath_spread_has_room(&rail, PACKET_BYTES));
    for (i = 0; i < 60; ++i) {
        now_ns += packet_ns;
        mpath_spread_delivered(&rail, PACKET_BYTES, now_ns);
    }
    assert_in_range(rail.rate_bps, 24000000, 26000000);
    assert_false(mpath_spread_has_room(&rail, PACKET_BYTES));
    for (; i < 97; ++i) {
        now_ns += packet_ns;
        mpath_spread_delivered(&rail, PACKET_BYTES, now_ns);
    }
    assert_true(mpath_spread_has_room(&rail, PACKET_BYTES));
}

static void test_small_stay_together(void **state)
{
    mpath_spread_rail_t rails[RAILS];
    int rail, i;

    (void)state;
    for (rail = 0; rail < RAILS; ++rail) {
        mpath_spread_rail_init(&rails[rail], 25000000);
    }
    for (i = 0; i < 100; ++i) {
        assert_int_equal(mpath_spread_pick(rails, ALL, 64, -1), 0);
        mpath_spread_sent(&rails[0], 64, 1000);
    }
    /* Acknowledged late and few: that says nothing about the rate. */
    for (i = 0; i < 100; ++i) {
        mpath_spread_delivered(&rails[0], 64, 1000 + 50000000ull * (uint64_t)i);
    }
    assert_int_equal(rails[0].rate_bps, 25000000);
}

static void test_full_and_unusable(void **state)
{
    mpath_spread_rail_t rails[RAILS];
    int rail;

    (void)state;
    for (rail = 0; rail < RAILS; ++rail) {
        mpath_spread_rail_init(&rails[rail], 25000000);
    }
    assert_int_equal(mpath_spread_pick(rails, 0, PACKET_BYTES, -1), -1);
    assert_int_equal(mpath_spread_pick(rails, 4, PACKET_BYTES, -1), 2);
    rails[3].rate_bps = 1000000;
    assert_int_equal(mpath_spread_pick(rails, 8, PACKET_BYTES, 0), -1); /* waiting for rail 0 is sooner */
    mpath_spread_sent(&rails[0], 100 * PACKET_BYTES, 1000);
    assert_int_equal(mpath_spread_pick(rails, 8, PACKET_BYTES, 0), 3);
    mpath_spread_lost(&rails[0], 100 * PACKET_BYTES, 1000);
    assert_int_equal(rails[0].inflight_bytes, 0);
}

/*
 * A rail behind relays takes longer whatever its rate: small messages leave it alone, a backlog on the others does not.
 */
static void test_detour(void **state)
{
    mpath_spread_rail_t rails[2];

    (void)state;
    mpath_spread_rail_init(&rails[0], 25000000);
    mpath_spread_rail_init(&rails[1], 25000000);
    rails[0].detour_ns = 20000;
    assert_int_equal(mpath_spread_pick(rails, 3, 64, -1), 1);
    assert_int_equal(mpath_spread_pick(rails, 3, PACKET_BYTES, -1), 1);
    mpath_spread_sent(&rails[1], PACKET_BYTES, 1000);
    assert_int_equal(mpath_spread_pick(rails, 3, PACKET_BYTES, -1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal),
        cmocka_unit_test(test_measures),
        cmocka_unit_test(test_wrong_by_far),
        cmocka_unit_test(test_follows),
        cmocka_unit_test(test_tries_again),
        cmocka_unit_test(test_tries_unknown),
        cmocka_unit_test(test_finishes_together),
        cmocka_unit_test(test_short_queues),
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_room_of_measured),
        cmocka_unit_test(test_small_stay_together),
        cmocka_unit_test(test_full_and_unusable),
        cmocka_unit_test(test_detour),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
