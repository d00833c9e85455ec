/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies that are made again: the same bytes and words as launches of their own, whatever comes between, and with
 * drivers that have no graphs or kernels.
 */
#include "config.h"
#include "gpu_kinds.h"
#include "device/kernels/copy.h"
#include "device/pinned.h"
#include "device/usage.h"
#include "node/peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define FRAGMENTS_MOST 20
#define DEADLINE_NS (UINT64_C(120) * 1000000000)

static mpath_gpu_t *gpu;
static mpath_stream_t *stream;
static gpu_memory_t from, to;
static mpath_pinned_t pinned;
static volatile uint64_t *flag;
static mpath_peer_number_t number;
static uint64_t calls;

/* `count` fragments whose places depend on `seed`. */
static void lay_out(uint64_t seed, unsigned count, mpath_kernel_fragment_t *fragments)
{
    const uint64_t room = MIB / FRAGMENTS_MOST;

    for (unsigned i = 0; i < count; i++) {
        fragments[i] = (mpath_kernel_fragment_t){.target = to.address + i * room + seed % 13,
                                                 .source = from.address + (count - 1 - i) * room + seed % 7,
                                                 .bytes  = (i % 5 == 4) ? 0 : room / (1 + (seed + i) % 9) - 16};
    }
}

/* New data, one launch, and every byte that it should have copied and that it should have left alone. */
static void exchange(mpath_peer_again_t *again, uint64_t seed, unsigned count, unsigned ctas)
{
    static unsigned char source[MIB], expected[MIB], found[MIB];
    mpath_kernel_fragment_t fragments[FRAGMENTS_MOST];
    mpath_mark_t mark;
    mpath_kernel_word_t done = {.address = mpath_pinned_device(&pinned, flag), .value = ++calls};
    mpath_launch_copy_t launch;

    lay_out(seed, count, fragments);
    launch = (mpath_launch_copy_t){
        .fragments = fragments, .fragments_count = count, .flags = &done, .flags_count = 1, .ctas = ctas};
    gpu_pattern_write(from.address, MIB, calls);
    gpu_memory_read(from.address, source, MIB);
    memset(expected, 0xee, MIB);
    gpu_memory_write(to.address, expected, MIB);
    for (unsigned i = 0; i < count; i++) {
        memcpy(expected + (fragments[i].target - to.address), source + (fragments[i].source - from.address),
               fragments[i].bytes);
    }
    assert_int_equal(mpath_peer_again_launch(again, stream, &launch, &number), MPATH_OK);
    assert_int_equal(mpath_stream_mark(stream, &mark), MPATH_OK);
    assert_int_equal(mpath_stream_finish(stream, mark, DEADLINE_NS, "a copy that is made again"), MPATH_OK);
    assert_int_equal(*flag, calls);
    gpu_memory_read(to.address, found, MIB);
    assert_memory_equal(found, expected, MIB);
}

static void test_again(void **state)
{
    mpath_peer_again_t *again = mpath_peer_again_create();
    mpath_gpu_usage_t before, now;

    (void)state;
    if (!gpu_has_kernels(gpu)) {
        mpath_peer_again_destroy(again);
        skip();
    }
    assert_non_null(again);
    mpath_gpu_usage(&before);
    for (int round = 0; round < 8; round++) { /* from a launch of its own to a repeat */
        exchange(again, 3, 8, 0);
    }
    for (int round = 0; round < 6; round++) { /* several that take turns, and more CTAs or fewer */
        exchange(again, 5, 8, 0);
        exchange(again, 6, 7, 0);
        exchange(again, 6, 7, 1);
        exchange(again, 3, 8, 0);
    }
    mpath_gpu_usage(&now);
    assert_int_equal(now.launches, before.launches + 32);
    for (uint64_t seed = 10; seed < 50; seed++) { /* more than are kept; each the second time in its place */
        for (int round = 0; round < 4; round++) {
            exchange(again, seed, 1 + (unsigned)seed % 12, 0);
        }
    }
    exchange(again, 3, 8, 0);
    exchange(again, 4, FRAGMENTS_MOST, 0); /* too many for a repeat */
    exchange(again, 4, FRAGMENTS_MOST, 0);
    exchange(again, 4, FRAGMENTS_MOST, 0);
    mpath_peer_again_destroy(again);
}

/* Without room for it, or for a launch that nobody asked to repeat, all is as ever. */
static void test_without(void **state)
{
    const mpath_kernel_word_t flags[2] = {{.address = mpath_pinned_device(&pinned, flag)},
                                          {.address = mpath_pinned_device(&pinned, flag + 1)}};
    mpath_launch_copy_t launch         = {.flags = flags, .flags_count = 2};
    mpath_repeat_t *repeat;

    (void)state;
    assert_int_equal(mpath_repeat_copy(stream, &launch, number.address, &repeat), MPATH_ERR_UNSUPPORTED);
    if (!gpu_has_kernels(gpu)) {
        skip();
    }
    for (int round = 0; round < 4; round++) {
        exchange(NULL, 3, 8, 0);
    }
}

static int setup(void **state)
{
    (void)state;
    gpu_application_starts();
    if (mpath_gpu_get(0, NULL, &gpu) != MPATH_OK || mpath_stream_get(gpu, 1, &stream) != MPATH_OK ||
        mpath_pinned_alloc(gpu, 64, &pinned) != MPATH_OK) {
        return -1;
    }
    flag   = pinned.base;
    number = (mpath_peer_number_t){.word    = (_Atomic uint64_t *)pinned.base + 2,
                                   .address = mpath_pinned_device(&pinned, (_Atomic uint64_t *)pinned.base + 2)};
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, MIB, 0, &from);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, MIB, 0, &to);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    gpu_memory_free(&from);
    gpu_memory_free(&to);
    mpath_pinned_release(&pinned);
    mpath_gpu_cleanup();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_again), cmocka_unit_test(test_without)};

    return cmocka_run_group_tests_name("gpu_again", tests, setup, teardown);
}
