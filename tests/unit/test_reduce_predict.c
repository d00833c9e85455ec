/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which way of an Allreduce between GPUs is predicted to be fastest: the table of boundaries on H200, and how they move
 * on machines with other links. Predictions alone: nothing is moved.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "node/reduce_predict.h"

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define MOST (256 * MIB)

static mpath_peer_rates_t h200;

/* Those that a call of that size may go, of operations for which there are all kernels, as the call does it. */
static unsigned ways_of(unsigned ranks, uint64_t bytes)
{
    unsigned ordered = MPATH_REDUCE_BIT(MPATH_GPU_REDUCE_WHOLE) | MPATH_REDUCE_BIT(MPATH_GPU_REDUCE_PARTS);

    if (mpath_reduce_in_ring(ranks, bytes)) {
        return MPATH_REDUCE_BIT(MPATH_GPU_REDUCE_RING);
    }
    return (ranks == 2) ? ordered | MPATH_REDUCE_BIT(MPATH_GPU_REDUCE_WRITES) : ordered;
}

static mpath_gpu_reduce_t fastest(const mpath_peer_rates_t *rates, unsigned ranks, uint64_t bytes)
{
    return mpath_reduce_fastest(rates, ways_of(ranks, bytes), ranks, bytes);
}

/* From how many bytes on `way` is the fastest, up to the end of its only range; 0: never. */
static uint64_t first_bytes(const mpath_peer_rates_t *rates, unsigned ranks, mpath_gpu_reduce_t way)
{
    uint64_t first = 0, last = 0;

    for (uint64_t bytes = KIB; bytes <= MOST; bytes += (bytes < 4 * MIB) ? KIB : 64 * KIB) {
        if (fastest(rates, ranks, bytes) == way) {
            assert_true((last == 0) || (last + 64 * KIB >= bytes));
            first = (first == 0) ? bytes : first;
            last  = bytes;
        }
    }
    return first;
}

/* KiB from which on vectors go in parts, directly and by writes or round a ring: those of doc/reductions-design.md. */
static void test_table_of_h200(void **state)
{
    static const struct {
        unsigned ranks;
        uint64_t parts, direct, last;
        mpath_gpu_reduce_t way;
    } table[] = {
        {2, 257, 2007, 48832, MPATH_GPU_REDUCE_WRITES},
        {3, 189, 1835, 10048, MPATH_GPU_REDUCE_RING},
        {4, 105, 1938, 8192, MPATH_GPU_REDUCE_RING},
        {8, 36, 2817, 14144, MPATH_GPU_REDUCE_RING},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        unsigned ranks = table[i].ranks;

        assert_int_equal(fastest(&h200, ranks, 8), MPATH_GPU_REDUCE_WHOLE);
        assert_int_equal(first_bytes(&h200, ranks, MPATH_GPU_REDUCE_PARTS) / KIB, table[i].parts);
        assert_int_equal(first_bytes(&h200, ranks, MPATH_GPU_REDUCE_DIRECT) / KIB, table[i].direct);
        assert_int_equal(first_bytes(&h200, ranks, table[i].way) / KIB, table[i].last);
        assert_int_equal(fastest(&h200, ranks, 4096 * MIB), table[i].way);
    }
}

/* What was measured (doc/benchmarks), microseconds: predicted within a tenth, or 2 us. */
static void test_measured_times(void **state)
{
    static const struct {
        mpath_gpu_reduce_t way;
        unsigned ranks;
        uint64_t bytes, measured_us;
    } table[] = {
        {MPATH_GPU_REDUCE_WHOLE, 2, 8, 8},
        {MPATH_GPU_REDUCE_WHOLE, 4, 64 * KIB, 10},
        {MPATH_GPU_REDUCE_WHOLE, 8, 64 * KIB, 15},
        {MPATH_GPU_REDUCE_PARTS, 2, MIB, 15},
        {MPATH_GPU_REDUCE_PARTS, 4, 256 * KIB, 12},
        {MPATH_GPU_REDUCE_PARTS, 4, MIB, 17},
        {MPATH_GPU_REDUCE_DIRECT, 2, 4 * MIB, 25},
        {MPATH_GPU_REDUCE_DIRECT, 2, 16 * MIB, 63},
        {MPATH_GPU_REDUCE_DIRECT, 4, 2 * MIB, 24},
        {MPATH_GPU_REDUCE_DIRECT, 4, 8 * MIB, 53},
        {MPATH_GPU_REDUCE_DIRECT, 4, 64 * MIB, 328},
        {MPATH_GPU_REDUCE_DIRECT, 8, MIB, 26},
        {MPATH_GPU_REDUCE_DIRECT, 8, 256 * MIB, 1516},
        {MPATH_GPU_REDUCE_WRITES, 2, 64 * MIB, 210},
        {MPATH_GPU_REDUCE_WRITES, 2, 256 * MIB, 767},
        {MPATH_GPU_REDUCE_RING, 4, 64 * MIB, 297},
        {MPATH_GPU_REDUCE_RING, 8, 64 * MIB, 357},
        {MPATH_GPU_REDUCE_RING, 8, 1024 * MIB, 5228},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        uint64_t ns   = mpath_reduce_predict_ns(&h200, table[i].way, table[i].ranks, table[i].bytes);
        uint64_t us   = table[i].measured_us;
        uint64_t most = (us / 10 > 2) ? us / 10 : 2;

        assert_in_range(ns / 1000, us - most, us + most);
    }
}

static void assert_near(uint64_t value, uint64_t expected)
{
    assert_in_range(value, expected - expected / 40, expected + expected / 40);
}

/* Every boundary that neither memory nor the order decides is in proportion to rate and latency. */
static void check_moves(const mpath_peer_rates_t *rates, uint64_t times, uint64_t parts)
{
    for (unsigned ranks = 2; ranks <= 8; ranks++) {
        mpath_gpu_reduce_t long_way = (ranks == 2) ? MPATH_GPU_REDUCE_WRITES : MPATH_GPU_REDUCE_RING;
        uint64_t whole = mpath_reduce_most_bytes(&h200, MPATH_GPU_REDUCE_WHOLE, MPATH_GPU_REDUCE_PARTS, ranks, MIB / 4);
        uint64_t now   = mpath_reduce_most_bytes(rates, MPATH_GPU_REDUCE_WHOLE, MPATH_GPU_REDUCE_PARTS, ranks, MIB / 4);
        uint64_t direct = mpath_reduce_most_bytes(&h200, MPATH_GPU_REDUCE_DIRECT, long_way, ranks, MOST);

        whole = whole * times / parts;
        if ((now < MPATH_REDUCE_WHOLE_MAX_BYTES) && (whole < MPATH_REDUCE_WHOLE_MAX_BYTES) && (ranks > 2)) {
            assert_near(now, whole);
        }
        assert_near(mpath_reduce_most_bytes(rates, MPATH_GPU_REDUCE_DIRECT, long_way, ranks, MOST),
                    direct * times / parts);
    }
}

static void test_boundaries_move_with_the_machine(void **state)
{
    mpath_peer_rates_t slow = h200, far = h200, fast = h200;

    (void)state;
    slow.kernel_bps = h200.kernel_bps / 2;
    far.kernel_ns   = h200.kernel_ns * 2;
    check_moves(&slow, 1, 2);
    check_moves(&far, 2, 1);
    assert_near(first_bytes(&slow, 4, MPATH_GPU_REDUCE_DIRECT), first_bytes(&h200, 4, MPATH_GPU_REDUCE_DIRECT) / 2);
    assert_near(first_bytes(&slow, 2, MPATH_GPU_REDUCE_WRITES), first_bytes(&h200, 2, MPATH_GPU_REDUCE_WRITES) / 2);
    assert_near(first_bytes(&far, 8, MPATH_GPU_REDUCE_RING), 2 * first_bytes(&h200, 8, MPATH_GPU_REDUCE_RING));
    /* A job finds shorter latencies on the H200 itself than the median that the figures go with. */
    fast.kernel_ns = h200.kernel_ns / 2;
    check_moves(&fast, 1, 1);
    /* The host's part begins as late, whatever the links carry meanwhile. */
    assert_near(mpath_reduce_host_least_bytes(h200.pair_bps), 127 * MIB);
    assert_near(mpath_reduce_host_least_bytes(h200.pair_bps / 2), 127 * MIB / 2);
}

/* The order of combination, and with it the bits, are the same on every machine. */
static void test_order_knows_sizes_only(void **state)
{
    mpath_peer_rates_t slow = h200;

    (void)state;
    slow.kernel_bps /= 16;
    for (unsigned ranks = 2; ranks <= 16; ranks++) {
        for (uint64_t bytes = KIB; bytes <= MOST; bytes *= 2) {
            mpath_gpu_reduce_t way = fastest(&slow, ranks, bytes);

            assert_int_equal(mpath_reduce_in_ring(ranks, bytes), (ranks > 2) && (bytes > 3 * MIB));
            assert_true((way != MPATH_GPU_REDUCE_RING) || (bytes > 3 * MIB));
            assert_true((way == MPATH_GPU_REDUCE_RING) || (way == MPATH_GPU_REDUCE_DIRECT) || (ranks == 2) ||
                        (bytes <= 3 * MIB));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_of_h200),
        cmocka_unit_test(test_measured_times),
        cmocka_unit_test(test_boundaries_move_with_the_machine),
        cmocka_unit_test(test_order_knows_sizes_only),
    };

    mpath_peer_rates_init(&h200);
    return cmocka_run_group_tests_name("reduce_predict", tests, NULL, NULL);
}
