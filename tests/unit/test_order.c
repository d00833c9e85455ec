/* SPDX-License-Identifier: BSD-3-Clause */
/* Order of copies between GPUs: every byte once, one receiver at a time, and near the bound. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "coll/alltoallv_order.h"

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

/* Every byte of a pair once and in order, none for a rank itself. */
static void check_covered(const mpath_order_t *order, const uint64_t *demand, int n)
{
    for (int source = 0; source < n; source++) {
        uint64_t next[MPATH_ORDER_MAX_RANKS] = {0};
        const mpath_order_piece_t *pieces;
        uint32_t count;

        pieces = mpath_order_pieces(order, source, &count);
        for (uint32_t i = 0; i < count; i++) {
            assert_in_range(pieces[i].destination, 0, n - 1);
            assert_int_not_equal(pieces[i].destination, source);
            assert_true(pieces[i].bytes > 0);
            assert_int_equal(pieces[i].offset, next[pieces[i].destination]);
            assert_true((i == 0) || (pieces[i].step > pieces[i - 1].step));
            next[pieces[i].destination] += pieces[i].bytes;
        }
        for (int to = 0; to < n; to++) {
            assert_int_equal(next[to], (to == source) ? 0 : demand[source * n + to]);
        }
    }
}

/* Whether every piece that `destination` gets in an earlier step than `step` has been sent. */
static int is_turn(const mpath_order_t *order, int n, const uint32_t *at, int destination, uint32_t step)
{
    for (int s = 0; s < n; s++) {
        uint32_t count;
        const mpath_order_piece_t *pieces = mpath_order_pieces(order, s, &count);

        for (uint32_t i = at[s]; (i < count) && (pieces[i].step < step); i++) {
            if (pieces[i].destination == destination) {
                return 0;
            }
        }
    }
    return 1;
}

/* Whether the piece that `piece` names has been sent. */
static int is_after_done(const mpath_order_piece_t *piece, const uint32_t *at)
{
    return (piece->after_rank < 0) || (at[piece->after_rank] >= piece->after_pieces);
}

/*
 * Runs the pieces: a sender is at one piece at a time, and receivers get theirs in the order of the steps. Returns the
 * time in bytes of a port; fails when nothing can go on, or when two send to one receiver.
 */
static uint64_t simulate(const mpath_order_t *order, int n)
{
    uint32_t at[MPATH_ORDER_MAX_RANKS]   = {0};
    uint64_t left[MPATH_ORDER_MAX_RANKS] = {0}, now = 0;

    for (;;) {
        int senders[MPATH_ORDER_MAX_RANKS] = {0}, active[MPATH_ORDER_MAX_RANKS] = {0}, unfinished = 0, running = 0;
        uint64_t step = UINT64_MAX;

        for (int s = 0; s < n; s++) {
            uint32_t count;
            const mpath_order_piece_t *piece = mpath_order_pieces(order, s, &count) + at[s];

            if (at[s] == count) {
                continue;
            }
            unfinished++;
            left[s] = (left[s] == 0) ? piece->bytes : left[s];
            assert_int_equal(is_after_done(piece, at), is_turn(order, n, at, piece->destination, piece->step));
            if (is_after_done(piece, at)) {
                active[s] = 1;
                running++;
                assert_int_equal(++senders[piece->destination], 1);
                step = (left[s] < step) ? left[s] : step;
            }
        }
        if (unfinished == 0) {
            return now;
        }
        assert_true(running > 0);
        now += step;
        for (int s = 0; s < n; s++) {
            left[s] -= active[s] ? step : 0;
            at[s] += (active[s] && (left[s] == 0)) ? 1 : 0;
        }
    }
}

static void run_case(make_t make, int n, uint64_t least_bytes, double limit)
{
    uint64_t *demand = calloc((size_t)n * (size_t)n, sizeof(*demand));
    mpath_order_t *order;

    assert_non_null(demand);
    assert_int_equal(mpath_order_create(n, &order), MPATH_OK);
    for (int round = 0; round < ((n > 16) ? 1 : 5); round++) {
        make(demand, n);
        mpath_order_compute(order, demand, least_bytes);
        check_covered(order, demand, n);
        assert_true((double)simulate(order, n) <=
                    limit * (double)mpath_order_bound_bytes(order) + (double)n * (double)least_bytes);
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
            /* pairs are rounded up to units of 1/256 of the bound */
            run_case(makes[m], sizes[s], 4096, 1.0 + sizes[s] / 256.0);
            run_case(makes[m], sizes[s], 4 * MIB, 1.0 + sizes[s] / 256.0);
        }
    }
}

static void equal_is_a_ring(void **state)
{
    uint64_t demand[64];
    mpath_order_t *order;

    (void)state;
    make_equal(demand, 8);
    assert_int_equal(mpath_order_create(8, &order), MPATH_OK);
    mpath_order_compute(order, demand, MIB);
    assert_int_equal(mpath_order_num_steps(order), 7);
    for (int source = 0; source < 8; source++) {
        uint32_t count;

        mpath_order_pieces(order, source, &count);
        assert_int_equal(count, 7);
    }
    assert_int_equal(simulate(order, 8), 7 * 32 * MIB);
    mpath_order_destroy(order);
}

/* The hot receiver has a sender from the first to the last byte. */
static void hot_receiver_is_fed(void **state)
{
    uint64_t demand[64];
    mpath_order_t *order;

    (void)state;
    make_hot(demand, 8);
    assert_int_equal(mpath_order_create(8, &order), MPATH_OK);
    mpath_order_compute(order, demand, 4 * MIB);
    assert_true((double)simulate(order, 8) <= 1.01 * (double)mpath_order_bound_bytes(order));
    mpath_order_destroy(order);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_covers_everything),
        cmocka_unit_test(equal_is_a_ring),
        cmocka_unit_test(hot_receiver_is_fed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
