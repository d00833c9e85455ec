/* SPDX-License-Identifier: BSD-3-Clause */
/* The reduction kernels: every operation and type, at every alignment, against arithmetic written once more. */
#include "config.h"
#include "capture.h"
#include "gpu_kinds.h"
#include "reduce_reference.h"
#include "device/pinned.h"
#include "device/usage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEADLINE_NS (UINT64_C(60) * 1000000000)
#define SOURCE_BYTES 32768u
#define GUARD_BYTES 32u

static mpath_gpu_t *gpu;
static mpath_stream_t *stream;
static gpu_memory_t memory; /* SOURCE_BYTES for each source, and as many for two targets */
static unsigned char *host, *expected;
static mpath_status_t (*launch)(mpath_stream_t *, mpath_cu_function_t, mpath_reduce_type_t, mpath_kernel_word_t,
                                mpath_kernel_reduce_t *) = mpath_launch_reduce;

/*
 * Runs a kernel over buffers that begin `shifts` alignments behind a multiple of 16, and compares all bytes of the
 * targets.
 */
static void check(const mpath_reduce_how_t *how, unsigned ranks, uint64_t elements, const unsigned *shifts,
                  int in_place)
{
    unsigned bytes                  = mpath_reduce_bytes(how->type);
    unsigned step                   = mpath_reduce_alignment(how->type);
    mpath_kernel_reduce_t arguments = {
        .elements = elements, .sources_count = ranks, .targets_count = 2, .first = (uint32_t)(elements % ranks)};
    mpath_kernel_word_t flag;
    mpath_cu_function_t function;
    unsigned char *result;
    mpath_mark_t mark;

    memset(host, REFERENCE_HOLE, memory.bytes);
    for (unsigned rank = 0; rank < ranks; rank++) {
        uint64_t at = rank * SOURCE_BYTES + GUARD_BYTES + shifts[rank % 3] * step;

        arguments.sources[rank] = memory.address + at;
        for (uint64_t index = 0; index < elements; index++) {
            reference_fill(how->type, host + at + index * bytes, index, rank);
        }
    }
    gpu_memory_write(memory.address, host, memory.bytes);
    memcpy(expected, host, memory.bytes);
    result               = expected + (arguments.sources[0] - memory.address);
    arguments.targets[0] = arguments.sources[0];
    if (!in_place) {
        uint64_t at = ranks * SOURCE_BYTES + GUARD_BYTES + shifts[1] * step;

        arguments.targets[0] = memory.address + at;
        memcpy(expected + at, result, elements * bytes);
        result = expected + at;
    }
    arguments.targets[1] = memory.address + (ranks + 1) * SOURCE_BYTES + GUARD_BYTES + shifts[2] * step;
    for (unsigned rank = 1; rank < ranks; rank++) {
        for (uint64_t index = 0; index < elements; index++) {
            reference_combine(how, result + index * bytes,
                              host + (arguments.sources[rank] - memory.address) + index * bytes);
        }
    }
    memcpy(expected + (arguments.targets[1] - memory.address), result, elements * bytes);

    assert_int_equal(mpath_reduce_find(gpu, how, NULL, &function), MPATH_OK);
    if (mpath_launch_mark(stream, &flag, &mark) != MPATH_OK) {
        skip();
    }
    assert_int_equal(launch(stream, function, how->type, flag, &arguments), MPATH_OK);
    assert_int_equal(mpath_stream_finish(stream, mark, DEADLINE_NS, "the test"), MPATH_OK);
    gpu_memory_read(memory.address, host, memory.bytes);
    for (uint64_t i = 0; i < memory.bytes; i++) {
        if (host[i] != expected[i]) {
            fail_msg("operation %d, type %d, %u ranks, %llu elements, shifts %u %u %u, in place %d: byte %llu is %02x, "
                     "not %02x",
                     how->op, how->type, ranks, (unsigned long long)elements, shifts[0], shifts[1], shifts[2], in_place,
                     (unsigned long long)i, host[i], expected[i]);
        }
    }
}

static const unsigned same[] = {0, 0, 0}, alike[] = {1, 1, 1}, mixed[] = {0, 1, 3};

static void test_operations_and_types(void **state)
{
    unsigned kernels = 0;

    (void)state;
    for (int op = 0; op < REFERENCE_OPS; op++) {
        for (int type = 0; type < REFERENCE_TYPES; type++) {
            mpath_reduce_how_t how = {.op = (mpath_reduce_op_t)op, .type = (mpath_reduce_type_t)type};

            if (mpath_reduce_fits(&how) && reference_is_tested(how.type)) {
                check(&how, 3, 777, (op % 2 != 0) ? alike : same, op % 3 == 0);
                check(&how, 2, 333, mixed, op % 3 != 0);
                kernels++;
            }
        }
    }
    assert_int_equal(kernels, 4 * 10 + 6 * 8 + 2 * 4 + 2 * 2 + (reference_is_tested(MPATH_REDUCE_F16) ? 4 : 0));
}

static void test_counts_and_ranks(void **state)
{
    static const uint64_t counts[]  = {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 4095};
    static const unsigned ranks[]   = {1, 4, 5, 8, 9, MPATH_KERNEL_REDUCE_RANKS};
    const mpath_reduce_how_t hows[] = {{MPATH_REDUCE_SUM, MPATH_REDUCE_F32}, {MPATH_REDUCE_MIN, MPATH_REDUCE_I8}};

    (void)state;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        for (size_t k = 0; k < sizeof(ranks) / sizeof(ranks[0]); k++) {
            check(&hows[(i + k) % 2], ranks[k], counts[i],
                  ((i % 3) == 0)   ? same
                  : ((i % 3) == 1) ? alike
                                   : mixed,
                  (int)(k % 2));
        }
    }
}

/* With half of the threads, which the last count takes all of otherwise. */
static void test_beside(void **state)
{
    static const uint64_t counts[] = {1, 5, 777, 7000};
    const mpath_reduce_how_t how   = {MPATH_REDUCE_SUM, MPATH_REDUCE_F32};

    (void)state;
    launch = mpath_launch_reduce_beside;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        for (unsigned ranks = 1; ranks <= 3; ranks++) {
            check(&how, ranks, counts[i], (i % 2 != 0) ? mixed : same, ranks == 2);
        }
    }
    launch = mpath_launch_reduce;
}

/* The same launch again and again, on one CTA and on several: new numbers, new data, a result each time. */
static void check_repeat(uint64_t elements)
{
    const mpath_reduce_how_t how    = {MPATH_REDUCE_SUM, MPATH_REDUCE_F32};
    mpath_kernel_reduce_t arguments = {.elements = elements, .sources_count = 2, .targets_count = 1};
    uint64_t part_bytes             = memory.bytes / 3 & ~UINT64_C(15);
    float *sources[2]               = {(float *)(void *)host, (float *)(void *)(host + part_bytes)};
    mpath_cu_function_t function;
    mpath_pinned_t pinned;
    mpath_gpu_usage_t before, now;
    mpath_repeat_t *repeat;
    volatile uint64_t *words;
    mpath_status_t status;

    assert_true(elements * sizeof(float) <= part_bytes);
    assert_int_equal(mpath_pinned_alloc(gpu, 64, &pinned), MPATH_OK);
    words                = pinned.base;
    arguments.sources[0] = memory.address;
    arguments.sources[1] = memory.address + part_bytes;
    arguments.targets[0] = memory.address + 2 * part_bytes;
    assert_int_equal(mpath_reduce_find(gpu, &how, NULL, &function), MPATH_OK);
    status = mpath_repeat_reduce(stream, function, how.type, mpath_pinned_device(&pinned, &words[0]),
                                 mpath_pinned_device(&pinned, &words[1]), &arguments, &repeat);
    if (status == MPATH_ERR_UNSUPPORTED) {
        mpath_pinned_release(&pinned);
        skip();
    }
    assert_int_equal(status, MPATH_OK);
    mpath_gpu_usage(&before);
    for (uint64_t number = 7; number < 40; number += 11) {
        mpath_mark_t mark;

        for (uint64_t i = 0; i < elements; i++) {
            sources[0][i] = (float)(i % 100 + number);
            sources[1][i] = (float)(i % 33);
        }
        gpu_memory_write(memory.address, host, memory.bytes);
        words[1] = number;
        assert_int_equal(mpath_repeat_start(repeat), MPATH_OK);
        assert_int_equal(mpath_stream_mark(stream, &mark), MPATH_OK);
        assert_int_equal(mpath_stream_finish(stream, mark, DEADLINE_NS, "the test"), MPATH_OK);
        assert_int_equal(words[0], number);
        gpu_memory_read(memory.address, expected, memory.bytes);
        for (uint64_t i = 0; i < elements; i++) {
            float sum = ((float *)(void *)(expected + 2 * part_bytes))[i];

            assert_true(sum == (float)(i % 100 + number) + (float)(i % 33));
        }
    }
    mpath_gpu_usage(&now);
    assert_int_equal(now.launches, before.launches + 3);
    assert_int_equal(now.ctas, before.ctas + 3 * ((elements > 4096) ? arguments.control.ctas : 1));
    mpath_repeat_destroy(repeat);
    mpath_pinned_release(&pinned);
}

/* Launches and their CTAs are counted, those of graphs too, and memory until it is given back. */
static void test_usage(void **state)
{
    const mpath_reduce_how_t how = {MPATH_REDUCE_SUM, MPATH_REDUCE_F32};
    mpath_gpu_usage_t before, now;
    mpath_cu_ptr_t address;

    (void)state;
    mpath_gpu_usage(&before);
    check(&how, 2, 1, same, 0);
    mpath_gpu_usage(&now);
    assert_int_equal(now.launches, before.launches + 1);
    assert_int_equal(now.ctas, before.ctas + 1);
    before = now;
    check(&how, 2, 5000, same, 0); /* 20000 bytes, from two sources to two targets: 16384 of that for each CTA */
    mpath_gpu_usage(&now);
    assert_int_equal(now.launches, before.launches + 1);
    assert_int_equal(now.ctas, before.ctas + 5);
    before = now;
    check(&how, 8, 2000, same, 0); /* less, but from eight */
    mpath_gpu_usage(&now);
    assert_int_equal(now.ctas, before.ctas + 5);
    assert_int_equal(now.memory_bytes, before.memory_bytes);
    assert_int_equal(mpath_gpu_enter(gpu), MPATH_OK);
    assert_int_equal(mpath_gpu_memory_take(&address, 12345), MPATH_CU_SUCCESS);
    mpath_gpu_usage(&now);
    assert_int_equal(now.memory_bytes, before.memory_bytes + 12345);
    mpath_gpu_memory_give(gpu, address, 12345);
    mpath_gpu_leave(gpu);
    mpath_gpu_usage(&now);
    assert_int_equal(now.memory_bytes, before.memory_bytes);
    assert_true(now.memory_bytes > 0); /* the counters of the streams */
}

static void test_repeat(void **state)
{
    (void)state;
    check_repeat(5);
    check_repeat(40000);
}

static void test_what_does_not_fit(void **state)
{
    const mpath_reduce_how_t bad[] = {{MPATH_REDUCE_LAND, MPATH_REDUCE_F32},  {MPATH_REDUCE_BXOR, MPATH_REDUCE_F64},
                                      {MPATH_REDUCE_MAX, MPATH_REDUCE_C64},   {MPATH_REDUCE_MINLOC, MPATH_REDUCE_C128},
                                      {MPATH_REDUCE_LAND, MPATH_REDUCE_F16},  {MPATH_REDUCE_SUM, MPATH_REDUCE_F32_AT},
                                      {MPATH_REDUCE_MAXLOC, MPATH_REDUCE_I32}};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_false(mpath_reduce_fits(&bad[i]));
    }
}

static int setup(void **state)
{
    (void)state;
    gpu_application_starts();
    if ((mpath_gpu_get(0, NULL, &gpu) != MPATH_OK) || (mpath_stream_get(gpu, 0, &stream) != MPATH_OK)) {
        return -1;
    }
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, (MPATH_KERNEL_REDUCE_RANKS + 2) * SOURCE_BYTES, 0, &memory);
    host     = malloc(memory.bytes);
    expected = malloc(memory.bytes);
    return ((host != NULL) && (expected != NULL)) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    free(host);
    free(expected);
    gpu_memory_free(&memory);
    mpath_gpu_cleanup();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operations_and_types),
        cmocka_unit_test(test_counts_and_ranks),
        cmocka_unit_test(test_beside),
        cmocka_unit_test(test_usage),
        cmocka_unit_test(test_repeat),
        cmocka_unit_test(test_what_does_not_fit),
    };

    gpu_application_starts();
    if ((mpath_gpu_get(0, NULL, &gpu) == MPATH_OK) && !gpu_has_kernels(gpu)) {
        printf("1..0 # SKIP no kernels\n");
        return 77;
    }
    return cmocka_run_group_tests_name("gpu_reduce", tests, setup, teardown);
}
