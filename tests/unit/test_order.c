/* SPDX-License-Identifier: BSD-3-Clause */
/* Order of copies between GPUs: every message once, its time as another model of the machine has it, and near the bound. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "node/order.h"

#define MIB (1024ull * 1024)

static uint64_t random_state;

static uint64_t next_random(void)
{
    random_state += 0x9e3779b97f4a7c15ull;
    uint64_t x = random_state;
    x          = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x          = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

typedef void (*make_t)(uint64_t *demand, int n);

static void make_equal(uint64_t *demand, int n)
{
    for (int i = 0; i < n * n; i++) {
        demand[i] = 32 * MIB;
    }
}

static void make_hot(uint64_t *demand, int n)
{
    for (int i = 0; i < n * n; i++) {
        demand[i] = (256 * MIB * 3 / 10) / (uint64_t)n + ((i % n == 1) ? 256 * MIB * 7 / 10 : 0);
    }
}

static void make_sparse(uint64_t *demand, int n)
{
    for (int i = 0; i < n * n; i++) {
        demand[i] = (next_random() % 3 == 0) ? next_random() % (100 * MIB) : 0;
    }
}

static void make_skewed(uint64_t *demand, int n)
{
    for (int i = 0; i < n * n; i++) {
        demand[i] = (64 * MIB) / (1 + (uint64_t)(i % n) * (1 + next_random() % 3)) + next_random() % 1000;
    }
}

static void make_tiny(uint64_t *demand, int n)
{
    for (int i = 0; i < n * n; i++) {
        demand[i] = next_random() % 5;
    }
}

static void make_zero(uint64_t *demand, int n)
{
    memset(demand, 0, (size_t)n * (size_t)n * sizeof(*demand));
}

static const mpath_order_rates_t rates = {.port_bps = 400000000000, .fragment_ns = 4000};

/* Every byte of a message once and in order, none of a rank to itself; two fragments in a row go to different ranks. */
static void check_covered(const mpath_order_t *order, const uint64_t *demand, int n)
{
    for (int source = 0; source < n; source++) {
        uint64_t sent[MPATH_ORDER_MAX_RANKS] = {0};
        const mpath_order_fragment_t *fragments;
        uint32_t count;

        fragments = mpath_order_fragments(order, source, &count);
        for (uint32_t i = 0; i < count; i++) {
            assert_in_range(fragments[i].destination, 0, n - 1);
            assert_int_not_equal(fragments[i].destination, source);
            assert_true(fragments[i].bytes > 0);
            assert_int_equal(fragments[i].offset, sent[fragments[i].destination]);
            assert_true((i == 0) || (fragments[i].destination != fragments[i - 1].destination));
            sent[fragments[i].destination] += fragments[i].bytes;
        }
        for (int to = 0; to < n; to++) {
            assert_int_equal(sent[to], (to == source) ? 0 : demand[source * n + to]);
        }
    }
}

/*
 * Microseconds until all fragments are through, in steps of time of a fixed length: another way to the same end than the
 * one under test. A sender is at one fragment at a time; those at a receiver share its port.
 */
static double simulate(const mpath_order_t *order, int n, double step_us)
{
    double left[MPATH_ORDER_MAX_RANKS] = {0}, begin_us[MPATH_ORDER_MAX_RANKS], now_us = 0;
    double bytes_per_us = (double)rates.port_bps / 1e6, fragment_us = (double)rates.fragment_ns / 1e3;
    uint32_t at[MPATH_ORDER_MAX_RANKS] = {0};
    int unfinished                     = 1;

    for (int s = 0; s < n; s++) {
        begin_us[s] = fragment_us;
    }
    for (; unfinished; now_us += step_us) {
        int senders[MPATH_ORDER_MAX_RANKS] = {0}, to[MPATH_ORDER_MAX_RANKS];

        unfinished = 0;
        for (int s = 0; s < n; s++) {
            uint32_t count;
            const mpath_order_fragment_t *fragments = mpath_order_fragments(order, s, &count);

            to[s]   = (at[s] < count) ? fragments[at[s]].destination : -1;
            left[s] = ((to[s] >= 0) && (left[s] <= 0)) ? (double)fragments[at[s]].bytes : left[s];
            unfinished += (to[s] >= 0);
            if ((to[s] >= 0) && (begin_us[s] <= now_us)) {
                senders[to[s]]++;
            }
        }
        for (int s = 0; s < n; s++) {
            if ((to[s] >= 0) && (begin_us[s] <= now_us)) {
                left[s] -= step_us * bytes_per_us / senders[to[s]];
                if (left[s] <= 0) {
                    at[s]++;
                    begin_us[s] = now_us + step_us + fragment_us;
                }
            }
        }
    }
    return now_us;
}

static void run_case(make_t make, int n)
{
    uint64_t *demand = calloc((size_t)n * (size_t)n, sizeof(*demand));
    mpath_order_t *order;

    assert_non_null(demand);
    assert_int_equal(mpath_order_create(n, &order), MPATH_OK);
    for (int round = 0; round < ((n > 16) ? 1 : 5); round++) {
        double model_us, bound_us, seen_us;

        make(demand, n);
        mpath_order_compute(order, demand, &rates);
        check_covered(order, demand, n);
        model_us = (double)mpath_order_time_ns(order) / 1e3;
        bound_us = (double)mpath_order_bound_ns(order) / 1e3;
        seen_us  = simulate(order, n, 0.5);
        assert_true(model_us + 1.0 * n >= bound_us); /* a fragment may end a microsecond early */
        /* what ends within a microsecond ends together: a tie that another model may break another way */
        assert_true((seen_us >= 0.97 * model_us - 10.0 * n) && (seen_us <= 1.03 * model_us + 10.0 * n));
        /* a list schedule is at most twice the optimum, and what the fragments cost */
        assert_true(model_us <= 2 * bound_us + 2 * n * (double)rates.fragment_ns / 1e3);
    }
    mpath_order_destroy(order);
    free(demand);
}

static void order_covers_everything(void **state)
{
    static const make_t makes[] = {make_equal, make_hot, make_sparse, make_skewed, make_tiny, make_zero};
    static const int sizes[]    = {2, 3, 4, 8, 13, 64};

    (void)state;
    for (size_t m = 0; m < sizeof(makes) / sizeof(makes[0]); m++) {
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
            random_state = m * 100 + s;
            run_case(makes[m], sizes[s]);
        }
    }
}

/* Each sends to the next, then to the one after it: one copy into each GPU at a time. */
static void equal_is_a_ring(void **state)
{
    uint64_t demand[64];
    mpath_order_t *order;

    (void)state;
    make_equal(demand, 8);
    assert_int_equal(mpath_order_create(8, &order), MPATH_OK);
    mpath_order_compute(order, demand, &rates);
    for (int source = 0; source < 8; source++) {
        uint32_t count;
        const mpath_order_fragment_t *fragments = mpath_order_fragments(order, source, &count);

        assert_int_equal(count, 7);
        for (int i = 0; i < 7; i++) {
            assert_int_equal(fragments[i].destination, (source + i + 1) % 8);
        }
    }
    assert_in_range(mpath_order_time_ns(order), mpath_order_bound_ns(order) - 10, mpath_order_bound_ns(order) + 10);
    assert_in_range(mpath_order_bound_ns(order), 7 * (32 * MIB / 400000 + 4) * 1000,
                    7 * (32 * MIB / 400000 + 5) * 1000);
    mpath_order_destroy(order);
}

static uint64_t to_hot(int source, int destination, double hot)
{
    (void)source;
    return (uint64_t)(256.0 * (double)MIB * ((destination == 5) ? hot + (1 - hot) / 8 : (1 - hot) / 8));
}

/* A hot receiver has a sender from the first to the last microsecond, popular ones nearly. */
static void skew_is_near_the_bound(void **state)
{
    static const double hots[] = {0.3, 0.5, 0.7, 0.9};
    uint64_t demand[64];
    mpath_order_t *order;

    (void)state;
    assert_int_equal(mpath_order_create(8, &order), MPATH_OK);
    for (size_t h = 0; h < sizeof(hots) / sizeof(hots[0]); h++) {
        for (int i = 0; i < 64; i++) {
            demand[i] = to_hot(i / 8, i % 8, hots[h]);
        }
        mpath_order_compute(order, demand, &rates);
        assert_true((double)mpath_order_time_ns(order) <= 1.01 * (double)mpath_order_bound_ns(order));
    }
    for (int i = 0; i < 64; i++) {
        demand[i] = (uint64_t)(60.0 * (double)MIB * pow(1 + (i % 8 * 5 + 2) % 8, -0.8));
    }
    mpath_order_compute(order, demand, &rates);
    assert_true((double)mpath_order_time_ns(order) <= 1.03 * (double)mpath_order_bound_ns(order));
    mpath_order_destroy(order);
}

/* Where every pair draws its bytes, messages are cut; the mean of many is what the header says. */
static void irregular_is_near_the_bound(void **state)
{
    const int rounds = 50;
    uint64_t demand[64];
    mpath_order_t *order;
    double sum = 0;
    int cut    = 0;

    (void)state;
    random_state = 7;
    assert_int_equal(mpath_order_create(8, &order), MPATH_OK);
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < 64; i++) {
            demand[i] = next_random() % (64 * MIB);
        }
        mpath_order_compute(order, demand, &rates);
        check_covered(order, demand, 8);
        sum += (double)mpath_order_time_ns(order) / (double)mpath_order_bound_ns(order);
        for (int source = 0; source < 8; source++) {
            uint32_t count;

            (void)mpath_order_fragments(order, source, &count);
            assert_true(count <= mpath_order_max_fragments(order));
            cut += count > 7;
        }
    }
    assert_true(sum / rounds <= 1.08);
    assert_true(cut > 0);
    mpath_order_destroy(order);
}

/* Only what is in the demand counts, not what was in it before. */
static void nothing_is_left_of_the_call_before(void **state)
{
    uint64_t first[64], second[64];
    mpath_order_t *order;
    uint64_t time_ns;

    (void)state;
    make_equal(first, 8);
    make_hot(second, 8);
    assert_int_equal(mpath_order_create(8, &order), MPATH_OK);
    mpath_order_compute(order, first, &rates);
    time_ns = mpath_order_time_ns(order);
    mpath_order_compute(order, second, &rates);
    assert_true(mpath_order_time_ns(order) > time_ns);
    mpath_order_compute(order, first, &rates);
    assert_int_equal(mpath_order_time_ns(order), time_ns);
    check_covered(order, first, 8);
    mpath_order_destroy(order);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_covers_everything),
        cmocka_unit_test(equal_is_a_ring),
        cmocka_unit_test(skew_is_near_the_bound),
        cmocka_unit_test(irregular_is_near_the_bound),
        cmocka_unit_test(nothing_is_left_of_the_call_before),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
