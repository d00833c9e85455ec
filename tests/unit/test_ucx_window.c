/* SPDX-License-Identifier: BSD-3-Clause */
/* The windows of numbered packets of the UCX transport: order, growth, duplicates, wrapping numbers. */
#include "ucx_tl_mpath/window.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdlib.h>
#include <cmocka.h>

#define MAX 256u

static void shuffle(uint32_t *numbers, uint32_t count, unsigned seed)
{
    uint32_t i, j, swap;

    srand(seed);
    for (i = count; i > 1; --i) {
        j              = (uint32_t)rand() % i;
        swap           = numbers[j];
        numbers[j]     = numbers[i - 1];
        numbers[i - 1] = swap;
    }
}

/* The base moves over what is done and no further. */
static void test_tx_done_in_any_order(void **state)
{
    mpath_tx_window_t window;
    uint32_t numbers[MAX], i;
    uint8_t done[MAX] = {0};

    (void)state;
    assert_int_equal(mpath_tx_window_init(&window, MAX), MPATH_OK);
    for (i = 0; i < MAX; ++i) {
        assert_int_equal(mpath_tx_window_take(&window, &numbers[i]), MPATH_OK);
        assert_int_equal(numbers[i], i);
    }
    assert_int_equal(mpath_tx_window_take(&window, &i), MPATH_NO_RESOURCE);
    shuffle(numbers, MAX, 7);
    for (i = 0; i < MAX; ++i) {
        uint32_t base = 0;

        done[numbers[i]] = 1;
        while (base < MAX && done[base]) {
            ++base;
        }
        mpath_tx_window_done(&window, numbers[i]);
        assert_int_equal(window.base, base);
    }
    assert_int_equal(mpath_tx_window_outstanding(&window), 0);
    assert_int_equal(mpath_tx_window_done(&window, 3), 0); /* long done */
    mpath_tx_window_release(&window);
}

static void test_tx_untake(void **state)
{
    mpath_tx_window_t window;
    uint32_t first, second;

    (void)state;
    assert_int_equal(mpath_tx_window_init(&window, MAX), MPATH_OK);
    assert_int_equal(mpath_tx_window_take(&window, &first), MPATH_OK);
    mpath_tx_window_untake(&window);
    assert_int_equal(mpath_tx_window_outstanding(&window), 0);
    assert_int_equal(mpath_tx_window_take(&window, &second), MPATH_OK);
    assert_int_equal(first, second);
    mpath_tx_window_release(&window);
}

/* The other side's window may turn out to be smaller than what this one starts with. */
static void test_tx_smaller_peer(void **state)
{
    mpath_tx_window_t window;
    uint32_t psn, i;

    (void)state;
    assert_int_equal(mpath_tx_window_init(&window, MAX), MPATH_OK);
    window.max = 16;
    for (i = 0; i < 16; ++i) {
        assert_int_equal(mpath_tx_window_take(&window, &psn), MPATH_OK);
    }
    assert_int_equal(mpath_tx_window_take(&window, &psn), MPATH_NO_RESOURCE);
    assert_int_equal(mpath_tx_window_done(&window, 0), 1);
    assert_int_equal(mpath_tx_window_take(&window, &psn), MPATH_OK);
    assert_int_equal(psn, 16);
    assert_int_equal(mpath_tx_window_take(&window, &psn), MPATH_NO_RESOURCE);
    mpath_tx_window_release(&window);
}

static void test_tx_wraps(void **state)
{
    mpath_tx_window_t window;
    uint32_t psn, i;

    (void)state;
    assert_int_equal(mpath_tx_window_init(&window, MAX), MPATH_OK);
    window.base = window.next = UINT32_MAX - 10;
    for (i = 0; i < 100; ++i) {
        assert_int_equal(mpath_tx_window_take(&window, &psn), MPATH_OK);
        assert_int_equal(psn, UINT32_MAX - 10 + i);
    }
    for (i = 0; i < 100; ++i) {
        assert_int_equal(mpath_tx_window_done(&window, UINT32_MAX - 10 + i), 1);
    }
    assert_int_equal(window.base, 89);
    assert_true(mpath_psn_before(UINT32_MAX, 0));
    assert_false(mpath_psn_before(0, UINT32_MAX));
    assert_false(mpath_psn_before(5, 5));
    mpath_tx_window_release(&window);
}

static void no_drop(void *entry, void *arg)
{
    (void)entry;
    ++*(int *)arg;
}

/* Receives `count` packets from `start` in a random order, each twice: each comes out once, in order. */
static void receive_shuffled(uint32_t start, unsigned seed)
{
    uint32_t numbers[MAX], i, expected = start;
    uint32_t stored[MAX];
    mpath_rx_window_t window;
    int dropped = 0;
    void *entry;

    assert_int_equal(mpath_rx_window_init(&window, MAX), MPATH_OK);
    window.next = start;
    for (i = 0; i < MAX; ++i) {
        numbers[i] = i;
    }
    shuffle(numbers, MAX, seed);
    for (i = 0; i < MAX; ++i) {
        uint32_t psn = start + numbers[i];

        switch (mpath_rx_window_classify(&window, psn)) {
        case MPATH_RX_IN_ORDER:
            assert_int_equal(psn, expected);
            ++expected;
            while ((entry = mpath_rx_window_step(&window)) != NULL) {
                assert_int_equal(*(uint32_t *)entry, expected);
                ++expected;
            }
            break;
        case MPATH_RX_EARLY:
            stored[numbers[i]] = psn;
            assert_int_equal(mpath_rx_window_keep(&window, psn, &stored[numbers[i]]), MPATH_OK);
            break;
        default:
            fail_msg("packet %u came for the first time", psn);
        }
        assert_int_equal(mpath_rx_window_classify(&window, psn), MPATH_RX_DUPLICATE);
    }
    assert_int_equal(expected, start + MAX);
    mpath_rx_window_release(&window, no_drop, &dropped);
    assert_int_equal(dropped, 0);
}

static void test_rx_any_order(void **state)
{
    unsigned seed;

    (void)state;
    for (seed = 1; seed <= 50; ++seed) {
        receive_shuffled(0, seed);
        receive_shuffled(UINT32_MAX - 100, seed);
    }
}

static void test_rx_bounds(void **state)
{
    mpath_rx_window_t window;
    int dropped = 0, entry;

    (void)state;
    assert_int_equal(mpath_rx_window_init(&window, MAX), MPATH_OK);
    assert_int_equal(mpath_rx_window_classify(&window, MAX - 1), MPATH_RX_EARLY);
    assert_int_equal(mpath_rx_window_classify(&window, MAX), MPATH_RX_OUTSIDE);
    assert_int_equal(mpath_rx_window_classify(&window, UINT32_MAX), MPATH_RX_DUPLICATE);
    assert_int_equal(mpath_rx_window_keep(&window, MAX - 1, &entry), MPATH_OK);
    assert_int_equal(mpath_rx_window_keep(&window, 1, &entry), MPATH_OK);
    mpath_rx_window_release(&window, no_drop, &dropped);
    assert_int_equal(dropped, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tx_done_in_any_order), cmocka_unit_test(test_tx_untake),
        cmocka_unit_test(test_tx_smaller_peer),      cmocka_unit_test(test_tx_wraps),
        cmocka_unit_test(test_rx_any_order),         cmocka_unit_test(test_rx_bounds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
