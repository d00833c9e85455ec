/* SPDX-License-Identifier: BSD-3-Clause */
/* The reduction kernels for short vectors, whole and in parts: ranks of one process, all right bytes, late ranks. */
#include "config.h"
#include "capture.h"
#include "gpu_kinds.h"
#include "reduce_reference.h"
#include "device/pinned.h"
#include "device/kernels/reduce.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEADLINE_NS (UINT64_C(60) * 1000000000)

static mpath_gpu_t *gpu;

/* -- eager: three ranks on one GPU, whose vectors are short enough to be there at once -- */

#define SIDE_BYTES 32768u /* for each source and each result */
#define GUARD_BYTES 32u
#define EAGER_RANKS 3u
#define EAGER_PATIENCE_NS (UINT64_C(20) * 1000000000)

static gpu_memory_t memory;
static unsigned char *host, *expected;

typedef struct eager_test {
    mpath_eager_form_t form;
    const mpath_reduce_how_t *how;
    uint64_t number, elements;
    unsigned shift; /* of vectors, in elements; rank 1 works in place, rank 2 is not shifted */
    gpu_memory_t scratch[EAGER_RANKS];
    mpath_pinned_t words[EAGER_RANKS];
} eager_test_t;

static uint64_t eager_slot(const eager_test_t *test)
{
    return mpath_eager_slot_bytes(test->form, EAGER_RANKS, SIDE_BYTES);
}

static unsigned eager_ctas(const eager_test_t *test)
{
    return mpath_eager_ctas(test->form, EAGER_RANKS, test->elements * mpath_reduce_bytes(test->how->type));
}

static uint64_t eager_at(const eager_test_t *test, unsigned rank, int result)
{
    uint64_t shift = (rank == 2) ? 0 : test->shift * mpath_reduce_bytes(test->how->type);

    return ((result && (rank != 1)) ? rank + EAGER_RANKS : rank) * SIDE_BYTES + GUARD_BYTES + shift;
}

static void eager_start(const eager_test_t *test, unsigned rank, uint64_t patience_ns, int again,
                        mpath_repeat_t **repeat)
{
    mpath_kernel_eager_t arguments = {.number      = test->number,
                                      .elements    = test->elements,
                                      .send        = memory.address + eager_at(test, rank, 0),
                                      .recv        = memory.address + eager_at(test, rank, 1),
                                      .words       = mpath_pinned_device(&test->words[rank], test->words[rank].base),
                                      .patience_ns = patience_ns,
                                      .slot_bytes  = eager_slot(test),
                                      .ranks       = EAGER_RANKS,
                                      .me          = rank,
                                      .again       = (uint32_t)again};
    unsigned ctas                  = eager_ctas(test);
    mpath_cu_function_t function;
    mpath_stream_t *own;

    for (unsigned i = 0; i < EAGER_RANKS; i++) {
        arguments.memory[i] = test->scratch[i].address;
    }
    assert_int_equal(mpath_stream_get(gpu, 1 + rank, &own), MPATH_OK);
    assert_int_equal(mpath_eager_find(gpu, test->how, test->form, &function), MPATH_OK);
    if (repeat == NULL) {
        assert_int_equal(mpath_launch_uncounted(own, function, &arguments, ctas, MPATH_KERNEL_THREADS), MPATH_OK);
        return;
    }
    if (*repeat == NULL) {
        arguments.number = 0;
        assert_int_equal(mpath_repeat_create(own, function, &arguments, ctas, MPATH_KERNEL_THREADS, repeat), MPATH_OK);
    }
    assert_int_equal(mpath_repeat_start(*repeat), MPATH_OK);
}

/* Until all CTAs have said the same; nonzero: that they have given up. */
static int eager_end(const eager_test_t *test, unsigned rank)
{
    volatile uint64_t *words = test->words[rank].base;
    unsigned ctas            = eager_ctas(test);
    uint64_t left = DEADLINE_NS / 1000000, gave_up = words[0] & MPATH_EAGER_GAVE_UP;

    for (unsigned cta = 0; cta < ctas; cta++) {
        while (((words[cta] & ~MPATH_EAGER_GAVE_UP) != test->number) && (left-- > 0)) {
            usleep(1000);
        }
        assert_int_equal(words[cta] & ~MPATH_EAGER_GAVE_UP, test->number);
        gave_up |= words[cta] & MPATH_EAGER_GAVE_UP;
    }
    return gave_up != 0;
}

static void eager_fill(const eager_test_t *test)
{
    unsigned bytes = mpath_reduce_bytes(test->how->type);
    unsigned char sum[16];

    memset(host, 0x5a, memory.bytes);
    for (unsigned rank = 0; rank < EAGER_RANKS; rank++) {
        for (uint64_t index = 0; index < test->elements; index++) {
            reference_fill(test->how->type, host + eager_at(test, rank, 0) + index * bytes, index + test->number, rank);
        }
    }
    gpu_memory_write(memory.address, host, memory.bytes);
    memcpy(expected, host, memory.bytes);
    for (uint64_t index = 0; index < test->elements; index++) {
        memcpy(sum, host + eager_at(test, 0, 0) + index * bytes, bytes);
        for (unsigned rank = 1; rank < EAGER_RANKS; rank++) {
            reference_combine(test->how, sum, host + eager_at(test, rank, 0) + index * bytes);
        }
        for (unsigned rank = 0; rank < EAGER_RANKS; rank++) {
            memcpy(expected + eager_at(test, rank, 1) + index * bytes, sum, bytes);
        }
    }
}

static void eager_compare(const eager_test_t *test)
{
    gpu_memory_read(memory.address, host, memory.bytes);
    for (uint64_t i = 0; i < memory.bytes; i++) {
        if (host[i] != expected[i]) {
            fail_msg("form %d, operation %d, type %d, %llu elements, shift %u: byte %llu is %02x, not %02x", test->form,
                     test->how->op, test->how->type, (unsigned long long)test->elements, test->shift,
                     (unsigned long long)i, host[i], expected[i]);
        }
    }
}

/* One rank is late: the others give up, have written nothing, and find everything when they look again. */
static void eager_late(eager_test_t *test)
{
    eager_fill(test);
    eager_start(test, 0, 1000000, 0, NULL);
    eager_start(test, 1, 1000000, 0, NULL);
    assert_true(eager_end(test, 0));
    assert_true(eager_end(test, 1));
    gpu_memory_read(memory.address, host, memory.bytes);
    for (uint64_t i = 0; i < test->elements * mpath_reduce_bytes(test->how->type); i++) {
        assert_int_equal(host[eager_at(test, 0, 1) + i], 0x5a);
    }
    memset(test->words[0].base, 0, MPATH_EAGER_CTAS * 8);
    memset(test->words[1].base, 0, MPATH_EAGER_CTAS * 8);
    eager_start(test, 2, EAGER_PATIENCE_NS, 0, NULL);
    eager_start(test, 0, EAGER_PATIENCE_NS, 1, NULL);
    eager_start(test, 1, EAGER_PATIENCE_NS, 1, NULL);
    for (unsigned rank = 0; rank < EAGER_RANKS; rank++) {
        assert_false(eager_end(test, rank));
    }
    eager_compare(test);
}

static void eager_run(eager_test_t *test, mpath_repeat_t **repeats)
{
    eager_fill(test);
    for (unsigned rank = 0; rank < EAGER_RANKS; rank++) {
        eager_start(test, rank, EAGER_PATIENCE_NS, 0, (repeats != NULL) ? &repeats[rank] : NULL);
    }
    for (unsigned rank = 0; rank < EAGER_RANKS; rank++) {
        assert_false(eager_end(test, rank));
    }
    eager_compare(test);
    test->number++;
}

static void eager_open(eager_test_t *test)
{
    size_t bytes         = mpath_eager_memory_bytes(test->form, EAGER_RANKS, eager_slot(test));
    unsigned char *zeros = calloc(1, bytes);

    assert_non_null(zeros);
    for (unsigned rank = 0; rank < EAGER_RANKS; rank++) {
        gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, bytes, 0, &test->scratch[rank]);
        gpu_memory_write(test->scratch[rank].address, zeros, bytes);
        assert_int_equal(mpath_pinned_alloc(gpu, MPATH_EAGER_CTAS * 8, &test->words[rank]), MPATH_OK);
    }
    free(zeros);
}

static void run_form(mpath_eager_form_t form)
{
    static const uint64_t counts[]       = {1, 2, 3, 5, 191, 192, 193, 513, 577, 2048, 4000};
    static const mpath_reduce_how_t sum  = {MPATH_REDUCE_SUM, MPATH_REDUCE_F32};
    mpath_repeat_t *repeats[EAGER_RANKS] = {NULL};
    eager_test_t test                    = {.form = form, .number = 1};
    unsigned kernels                     = 0;

    eager_open(&test);
    for (int op = 0; op < REFERENCE_OPS; op++) {
        for (int type = 0; type < REFERENCE_TYPES; type++) {
            mpath_reduce_how_t how = {.op = (mpath_reduce_op_t)op, .type = (mpath_reduce_type_t)type};

            if (mpath_reduce_fits(&how) && mpath_eager_fits(&how) && reference_is_tested(how.type)) {
                test.how      = &how;
                test.elements = 333 + (unsigned)type;
                test.shift    = (unsigned)type % 3;
                eager_run(&test, NULL);
                kernels++;
            }
        }
    }
    assert_true(kernels >= 24);
    test.how = &sum;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        test.elements = counts[i];
        test.shift    = (unsigned)i % 3;
        eager_run(&test, NULL);
        eager_run(&test, NULL);
    }
    eager_late(&test);
    test.number++;
    for (int i = 0; i < 5; i++) { /* numbers that the GPU counts itself */
        eager_run(&test, repeats);
    }
    for (unsigned rank = 0; rank < EAGER_RANKS; rank++) {
        mpath_repeat_destroy(repeats[rank]);
        gpu_memory_free(&test.scratch[rank]);
        mpath_pinned_release(&test.words[rank]);
    }
}

static void test_eager(void **state)
{
    (void)state;
    run_form(MPATH_EAGER_WHOLE);
}

static void test_eager_parts(void **state)
{
    (void)state;
    run_form(MPATH_EAGER_PARTS);
}

static int setup(void **state)
{
    (void)state;
    gpu_application_starts();
    if (mpath_gpu_get(0, NULL, &gpu) != MPATH_OK) {
        return -1;
    }
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, 2 * EAGER_RANKS * SIDE_BYTES, 0, &memory);
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
        cmocka_unit_test(test_eager),
        cmocka_unit_test(test_eager_parts),
    };

    gpu_application_starts();
    if ((mpath_gpu_get(0, NULL, &gpu) == MPATH_OK) && !gpu_has_kernels(gpu)) {
        printf("1..0 # SKIP no kernels\n");
        return 77;
    }
    return cmocka_run_group_tests_name("gpu_reduce_ranks", tests, setup, teardown);
}
