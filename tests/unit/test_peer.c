/* SPDX-License-Identifier: BSD-3-Clause */
/* Lane "peer": which way is predicted to be fastest, for the loads that the figures come from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "node/peer.h"

#define MIB (1024ull * 1024)

static mpath_peer_rates_t rates;

static mpath_peer_lane_t fastest(uint64_t port_bytes, uint64_t both_bytes, int small_pages)
{
    const mpath_peer_load_t load = {
        .port_bytes = port_bytes, .both_bytes = both_bytes, .fragments = 3, .small_pages = small_pages};
    uint64_t push_ns = mpath_peer_predict_ns(&rates, MPATH_PEER_PUSH, &load);

    return (push_ns < mpath_peer_predict_ns(&rates, MPATH_PEER_KERNEL, &load)) ? MPATH_PEER_PUSH : MPATH_PEER_KERNEL;
}

static void small_goes_by_kernel(void **state)
{
    (void)state;
    for (uint64_t bytes = 1; bytes <= 2 * MIB; bytes *= 2) {
        for (int small_pages = 0; small_pages <= 1; small_pages++) {
            assert_int_equal(fastest(bytes, 2 * bytes, small_pages), MPATH_PEER_KERNEL);
            assert_int_equal(fastest(bytes, bytes, small_pages), MPATH_PEER_KERNEL);
        }
    }
}

static void hot_is_pushed(void **state)
{
    (void)state;
    for (uint64_t bytes = 64 * MIB; bytes <= 4096 * MIB; bytes *= 2) {
        for (int small_pages = 0; small_pages <= 1; small_pages++) {
            assert_int_equal(fastest(bytes, bytes, small_pages), MPATH_PEER_PUSH);
            assert_int_equal(fastest(bytes, bytes + bytes / 4, small_pages), MPATH_PEER_PUSH);
        }
    }
}

/* Engines that write both ways are slow where memory is mapped in small pages, and the fastest where it is not. */
static void equal_goes_as_pages_allow(void **state)
{
    (void)state;
    for (uint64_t bytes = 128 * MIB; bytes <= 4096 * MIB; bytes *= 2) {
        assert_int_equal(fastest(bytes, 2 * bytes, 1), MPATH_PEER_KERNEL);
        assert_int_equal(fastest(bytes, 2 * bytes, 0), MPATH_PEER_PUSH);
    }
}

/* What the fragments' order takes counts where it is longer than what the busiest port does; never for a kernel. */
static void order_counts(void **state)
{
    mpath_peer_load_t load = {.port_bytes = 256 * MIB, .both_bytes = 256 * MIB, .fragments = 1};
    uint64_t port_ns       = mpath_peer_predict_ns(&rates, MPATH_PEER_PUSH, &load);
    uint64_t kernel_ns     = mpath_peer_predict_ns(&rates, MPATH_PEER_KERNEL, &load);
    uint64_t port_bps, fragment_ns;

    (void)state;
    load.order_ns = port_ns / 2;
    assert_int_equal(mpath_peer_predict_ns(&rates, MPATH_PEER_PUSH, &load), port_ns);
    load.order_ns = 2 * port_ns;
    assert_true(mpath_peer_predict_ns(&rates, MPATH_PEER_PUSH, &load) >= 2 * port_ns);
    assert_int_equal(mpath_peer_predict_ns(&rates, MPATH_PEER_KERNEL, &load), kernel_ns);
    mpath_peer_order_rates(&rates, &port_bps, &fragment_ns);
    assert_in_range(port_bps, 390000000000, 400000000000);
    assert_in_range(fragment_ns, 1000, 10000);
}

/* What a machine's own rates change. */
static void measured_rates_decide(void **state)
{
    const mpath_peer_load_t load = {.port_bytes = 256 * MIB, .both_bytes = 512 * MIB, .fragments = 3};
    mpath_gpu_probe_t probe      = {.num_gpus   = 2,
                                    .down_bps   = {20000000000, 24000000000},
                                    .host_bps   = 30000000000,
                                    .copy_bps   = {{0, 100000000000}, {90000000000, 0}},
                                    .kernel_bps = {181000000000, 0}};
    mpath_peer_rates_t measured  = rates;
    uint64_t h200_ns, push_ns;

    (void)state;
    mpath_peer_rates_set(&measured, &probe);
    assert_int_equal(measured.pair_bps, 90000000000);
    assert_int_equal(measured.kernel_bps, 181000000000);
    assert_int_equal(measured.staged_bps, 20000000000ull / 1000 * 826);
    assert_int_equal(measured.engine_ns, rates.engine_ns); /* not measured */
    probe.host_bps = 9000000000;
    mpath_peer_rates_set(&measured, &probe);
    assert_int_equal(measured.staged_bps, 9000000000); /* the host's ceiling */
    assert_int_equal(measured.host_bps, 9000000000);

    h200_ns = mpath_peer_predict_ns(&rates, MPATH_PEER_PUSH, &load);
    push_ns = mpath_peer_predict_ns(&measured, MPATH_PEER_PUSH, &load);
    assert_true((push_ns > 7 * h200_ns / 2) && (push_ns < 9 * h200_ns / 2)); /* a quarter of the rate */
    /* Engines at a quarter and the kernel at half of the H200's: the kernel's turn. */
    assert_true(mpath_peer_predict_ns(&rates, MPATH_PEER_KERNEL, &load) > h200_ns);
    assert_true(mpath_peer_predict_ns(&measured, MPATH_PEER_KERNEL, &load) < push_ns);
    probe = (mpath_gpu_probe_t){.num_gpus = 2, .copy_latency_ns = 108300, .kernel_latency_ns = 14300};
    mpath_peer_rates_set(&measured, &probe);
    assert_int_equal(mpath_peer_predict_ns(&measured, MPATH_PEER_PUSH, &load), push_ns + 100000);
}

/* The host's way into a GPU: as on H200, as far as it adds to what links bring, and later where it is slower. */
static void host_is_what_it_adds(void **state)
{
    mpath_gpu_probe_t probe = {.num_gpus   = 2,
                               .up_bps     = {54000000000, 55000000000},
                               .down_bps   = {55030000000, 56000000000},
                               .both_bps   = {46000000000, 44500000000},
                               .beside_bps = {52000000000, 53000000000},
                               .host_bps   = 80000000000};
    mpath_peer_rates_t h200 = rates, measured = rates;
    uint64_t bps, start_ns;

    (void)state;
    mpath_peer_beside(&h200, 3, &bps, &start_ns);
    assert_int_equal(bps, 45450000000);
    assert_int_equal(start_ns, 245000);
    mpath_peer_beside(&h200, 1, &bps, &start_ns);
    assert_in_range(bps, 34000000000, 34100000000);
    assert_int_equal(start_ns, 60000);
    assert_int_equal(h200.both_bps, 40000000000);

    mpath_peer_rates_set(&measured, &probe); /* what H200 showed: the same within a hundredth */
    mpath_peer_beside(&measured, 3, &bps, &start_ns);
    assert_in_range(bps, 45000000000, 46000000000);
    assert_in_range(start_ns, 243000, 248000);
    mpath_peer_beside(&measured, 1, &bps, &start_ns);
    assert_in_range(bps, 33700000000, 34400000000);
    assert_in_range(measured.both_bps, 39600000000, 40400000000);

    probe.beside_bps[1] = 5000000000; /* links and host share a ceiling */
    mpath_peer_rates_set(&measured, &probe);
    mpath_peer_beside(&measured, 3, &bps, &start_ns);
    assert_int_equal(bps, 5000000000);
    assert_in_range(start_ns, 9 * 245000, 91 * 24500);
    assert_int_equal(measured.staged_bps, 55030000000ull / 1000 * 826); /* where nothing else comes in */
    probe.beside_bps[1] = 1;
    mpath_peer_rates_set(&measured, &probe);
    mpath_peer_beside(&measured, 1, &bps, &start_ns);
    assert_true(bps < 1000);

    probe.up_bps[0]     = 20000000000;             /* one sender's way to the host */
    probe.beside_bps[0] = probe.beside_bps[1] = 0; /* as an older probe has left it */
    mpath_peer_rates_set(&measured, &probe);
    assert_int_equal(measured.beside_bps, measured.staged_bps);
    assert_int_equal(measured.one_bps, 20000000000ull / 1000 * 630);
}

/* More bytes, or more traffic the other lane, never take less time; and no neighbouring size takes twice as long. */
static void times_grow_smoothly(void **state)
{
    (void)state;
    for (mpath_peer_lane_t lane = MPATH_PEER_KERNEL; lane <= MPATH_PEER_PUSH; lane++) {
        for (unsigned percent = 0; percent <= 80; percent += 20) {
            uint64_t before = 0;

            for (uint64_t bytes = 4096; bytes <= 1024 * MIB; bytes += bytes / 8) {
                const mpath_peer_load_t load = {
                    .port_bytes = bytes, .both_bytes = bytes + bytes * percent / 100, .fragments = 1};
                uint64_t now = mpath_peer_predict_ns(&rates, lane, &load);

                assert_true(now >= before);
                assert_true((before == 0) || (now <= before * 3 / 2));
                before = now;
            }
        }
    }
}

static void nothing_takes_no_time(void **state)
{
    const mpath_peer_load_t load = {0};

    (void)state;
    assert_int_equal(mpath_peer_predict_ns(&rates, MPATH_PEER_KERNEL, &load), 0);
    assert_int_equal(mpath_peer_predict_ns(&rates, MPATH_PEER_PUSH, &load), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_goes_by_kernel),      cmocka_unit_test(hot_is_pushed),
        cmocka_unit_test(equal_goes_as_pages_allow), cmocka_unit_test(times_grow_smoothly),
        cmocka_unit_test(nothing_takes_no_time),     cmocka_unit_test(order_counts),
        cmocka_unit_test(measured_rates_decide),     cmocka_unit_test(host_is_what_it_adds),
    };

    mpath_peer_rates_init(&rates);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
