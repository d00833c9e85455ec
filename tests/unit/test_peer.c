/* SPDX-License-Identifier: BSD-3-Clause */
/* Lane "peer": which way is predicted to be fastest, for the loads that the figures come from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lane/peer.h"

#define MIB (1024ull * 1024)

static mpath_peer_way_t fastest(uint64_t port_bytes, uint64_t both_bytes)
{
    const mpath_peer_load_t load = {.port_bytes = port_bytes, .both_bytes = both_bytes, .pieces = 3};
    mpath_peer_way_t best        = MPATH_PEER_KERNEL;

    for (mpath_peer_way_t way = MPATH_PEER_PUSH; way <= MPATH_PEER_PULL; way++) {
        best = (mpath_peer_predict_ns(way, &load) < mpath_peer_predict_ns(best, &load)) ? way : best;
    }
    return best;
}

static void small_goes_by_kernel(void **state)
{
    (void)state;
    for (uint64_t bytes = 1; bytes <= 2 * MIB; bytes *= 2) {
        assert_int_equal(fastest(bytes, 2 * bytes), MPATH_PEER_KERNEL);
        assert_int_equal(fastest(bytes, bytes), MPATH_PEER_KERNEL);
    }
}

static void hot_is_pushed(void **state)
{
    (void)state;
    for (uint64_t bytes = 64 * MIB; bytes <= 4096 * MIB; bytes *= 2) {
        assert_int_equal(fastest(bytes, bytes), MPATH_PEER_PUSH);
        assert_int_equal(fastest(bytes, bytes + bytes / 4), MPATH_PEER_PUSH);
    }
}

static void equal_goes_by_kernel(void **state)
{
    (void)state;
    for (uint64_t bytes = 128 * MIB; bytes <= 4096 * MIB; bytes *= 2) {
        assert_int_equal(fastest(bytes, 2 * bytes), MPATH_PEER_KERNEL);
    }
}

/* More bytes, or more traffic the other way, never take less time; and no neighbouring size takes twice as long. */
static void times_grow_smoothly(void **state)
{
    (void)state;
    for (mpath_peer_way_t way = MPATH_PEER_KERNEL; way <= MPATH_PEER_PULL; way++) {
        for (unsigned percent = 0; percent <= 80; percent += 20) {
            uint64_t before = 0;

            for (uint64_t bytes = 4096; bytes <= 1024 * MIB; bytes += bytes / 8) {
                const mpath_peer_load_t load = {
                    .port_bytes = bytes, .both_bytes = bytes + bytes * percent / 100, .pieces = 1};
                uint64_t now = mpath_peer_predict_ns(way, &load);

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
    assert_int_equal(mpath_peer_predict_ns(MPATH_PEER_KERNEL, &load), 0);
    assert_int_equal(mpath_peer_predict_ns(MPATH_PEER_PULL, &load), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_goes_by_kernel),  cmocka_unit_test(hot_is_pushed),
        cmocka_unit_test(equal_goes_by_kernel),  cmocka_unit_test(times_grow_smoothly),
        cmocka_unit_test(nothing_takes_no_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
