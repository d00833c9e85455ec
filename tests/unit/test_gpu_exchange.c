/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernel for short messages: ranks of one process on one GPU, messages of all lengths and alignments, nothing but
 * their bytes; ranks that are late, and kernels that are called back.
 */
#include "config.h"
#include "gpu_kinds.h"
#include "device/kernels/exchange.h"
#include "device/pinned.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define RANKS 3u
#define DEADLINE_NS (UINT64_C(60) * 1000000000)
#define PATIENCE_NS (UINT64_C(20) * 1000000000)
#define SLOT MPATH_EAGER_SLOT_BYTES(UINT64_C(600000))
#define SIDE_BYTES (UINT64_C(1) << 21) /* for what a rank sends, and for what it receives */

static mpath_gpu_t *gpu;
static mpath_cu_function_t function;
static gpu_memory_t memory, scratch[RANKS];
static mpath_pinned_t words[RANKS];
static unsigned char *host, *expected;
static uint64_t number;

/* What each sends to each, and where it lies. */
typedef struct layout {
    uint64_t bytes[RANKS][RANKS], from[RANKS][RANKS], to[RANKS][RANKS];
} layout_t;

static uint64_t buffer_of(unsigned rank, int receives)
{
    return (2 * rank + (unsigned)receives) * SIDE_BYTES;
}

static void lay_out(uint64_t seed, uint64_t longest, layout_t *layout)
{
    uint64_t send[RANKS], receive[RANKS];

    for (unsigned rank = 0; rank < RANKS; rank++) {
        send[rank]    = buffer_of(rank, 0) + seed % 5;
        receive[rank] = buffer_of(rank, 1) + seed % 7 + 1;
    }
    for (unsigned i = 0; i < RANKS * RANKS; i++) {
        unsigned source = i / RANKS, target = i % RANKS;
        uint64_t bytes = (longest == 0) ? 0 : (seed * 7919 + i * 104729) % (longest + 1);

        bytes                         = (i % 4 == seed % 5) ? 0 : (i % 4 == 2) ? longest : bytes;
        layout->bytes[source][target] = bytes;
        layout->from[source][target]  = send[source];
        layout->to[source][target]    = receive[target];
        send[source] += bytes + ((seed % 3 == 0) ? 0 : seed % 9);
        receive[target] += bytes + 3;
    }
}

static void fill(const layout_t *layout)
{
    for (uint64_t i = 0; i < memory.bytes; i++) {
        host[i] = (unsigned char)(i * 31 + i / 253 + number * 17);
    }
    gpu_memory_write(memory.address, host, memory.bytes);
    memcpy(expected, host, memory.bytes);
    for (unsigned i = 0; i < RANKS * RANKS; i++) {
        unsigned source = i / RANKS, target = i % RANKS;

        memcpy(expected + layout->to[source][target], host + layout->from[source][target],
               layout->bytes[source][target]);
    }
}

static void compare(void)
{
    gpu_memory_read(memory.address, host, memory.bytes);
    assert_memory_equal(host, expected, memory.bytes);
}

static uint64_t slot_of(unsigned of, unsigned from)
{
    return scratch[of].address + sizeof(mpath_exchange_head_t) + from * SLOT;
}

/* Returns the CTAs. */
static unsigned start(const layout_t *layout, unsigned rank, uint64_t patience_ns, int again, mpath_repeat_t **repeat)
{
    mpath_kernel_exchange_t arguments = {.number           = (repeat == NULL) ? number : 0,
                                         .words            = mpath_pinned_device(&words[rank], words[rank].base),
                                         .patience_ns      = patience_ns,
                                         .memory           = scratch[rank].address,
                                         .generation_bytes = RANKS * SLOT,
                                         .again            = (uint32_t)again};
    mpath_stream_t *own;
    unsigned ctas;

    for (unsigned i = 1; i <= RANKS; i++) {
        unsigned to = (rank + i) % RANKS, from = (rank + RANKS - i) % RANKS;

        if (to != rank) {
            arguments.send[arguments.send_count++] = (mpath_kernel_message_t){.source = memory.address +
                                                                                        layout->from[rank][to],
                                                                              .target = slot_of(to, rank),
                                                                              .bytes  = layout->bytes[rank][to]};
        }
        arguments.receive[arguments.receive_count++] = (mpath_kernel_message_t){
            .source = (from == rank) ? memory.address + layout->from[rank][rank] : slot_of(rank, from),
            .target = memory.address + layout->to[from][rank],
            .bytes  = layout->bytes[from][rank]};
    }
    ctas = mpath_exchange_count(&arguments);
    assert_in_range(ctas, 1, MPATH_EAGER_CTAS);
    assert_int_equal(mpath_stream_get(gpu, 1 + rank, &own), MPATH_OK);
    if (repeat == NULL) {
        assert_int_equal(mpath_launch_uncounted(own, function, &arguments, ctas, MPATH_KERNEL_THREADS), MPATH_OK);
        return ctas;
    }
    if (*repeat == NULL) {
        assert_int_equal(mpath_repeat_create(own, function, &arguments, ctas, MPATH_KERNEL_THREADS, repeat), MPATH_OK);
    }
    assert_int_equal(mpath_repeat_start(*repeat), MPATH_OK);
    return ctas;
}

/* Until all CTAs have said so; nonzero: that they have given up. */
static int end(unsigned rank, unsigned ctas)
{
    volatile uint64_t *of = words[rank].base;
    uint64_t left         = DEADLINE_NS / 1000000;
    int gave_up           = 0;

    for (unsigned cta = 0; cta < ctas; cta++) {
        while (((of[cta] & ~MPATH_EAGER_GAVE_UP) != number) && (left-- > 0)) {
            usleep(1000);
        }
        assert_int_equal(of[cta] & ~MPATH_EAGER_GAVE_UP, number);
        gave_up = gave_up || ((of[cta] & MPATH_EAGER_GAVE_UP) != 0);
        of[cta] = 0;
    }
    return gave_up;
}

static void exchange(const layout_t *layout, mpath_repeat_t **repeats)
{
    unsigned ctas[RANKS];

    number++;
    fill(layout);
    for (unsigned rank = 0; rank < RANKS; rank++) {
        ctas[rank] = start(layout, rank, PATIENCE_NS, 0, (repeats != NULL) ? &repeats[rank] : NULL);
    }
    for (unsigned rank = 0; rank < RANKS; rank++) {
        assert_false(end(rank, ctas[rank]));
    }
    compare();
}

static void test_messages(void **state)
{
    static const uint64_t longest[] = {0, 1, 7, 8, 9, 64, 1000, 4096, 30000};
    layout_t layout;

    (void)state;
    for (size_t i = 0; i < sizeof(longest) / sizeof(longest[0]); i++) {
        for (uint64_t seed = 0; seed < 8; seed++) {
            lay_out(seed, longest[i], &layout);
            exchange(&layout, NULL);
        }
    }
}

/* Numbers that the GPU counts itself. */
static void test_repeats(void **state)
{
    mpath_repeat_t *repeats[RANKS] = {NULL};
    layout_t layout;

    (void)state;
    lay_out(3, 5000, &layout);
    exchange(&layout, NULL);
    for (int i = 0; i < 5; i++) {
        exchange(&layout, repeats);
    }
    for (unsigned rank = 0; rank < RANKS; rank++) {
        mpath_repeat_destroy(repeats[rank]);
    }
}

/*
 * One rank is late: the others give up, and find everything when they look again. Such kernels need not be on the GPU
 * at once, and may be as large as they like.
 */
static void be_late(uint64_t longest)
{
    unsigned ctas[RANKS];
    layout_t layout;

    number++;
    lay_out(1, longest, &layout);
    fill(&layout);
    assert_true((layout.bytes[2][0] > 0) && (layout.bytes[2][1] > 0));
    for (unsigned rank = 0; rank < 2; rank++) {
        ctas[rank] = start(&layout, rank, 1000000, 0, NULL);
        assert_true(end(rank, ctas[rank]));
    }
    ctas[2] = start(&layout, 2, PATIENCE_NS, 0, NULL);
    assert_false(end(2, ctas[2]));
    for (unsigned rank = 0; rank < 2; rank++) {
        ctas[rank] = start(&layout, rank, PATIENCE_NS, 1, NULL);
        assert_false(end(rank, ctas[rank]));
    }
    compare();
}

static void test_late(void **state)
{
    (void)state;
    be_late(3000);
    be_late(600000);
}

/* Nobody else comes: the word in its memory ends the wait, long before its patience does; later calls are not meant. */
static void test_called_back(void **state)
{
    mpath_stream_t *other;
    unsigned ctas;
    layout_t layout;

    (void)state;
    assert_int_equal(mpath_stream_get(gpu, 0, &other), MPATH_OK);
    if (!mpath_stream_has_values(other)) {
        skip();
    }
    number++;
    lay_out(1, 20000, &layout);
    fill(&layout);
    ctas = start(&layout, 0, 2 * DEADLINE_NS, 0, NULL);
    assert_int_equal(mpath_stream_write(other, scratch[0].address + offsetof(mpath_exchange_head_t, stop), number),
                     MPATH_OK);
    assert_true(end(0, ctas));
    exchange(&layout, NULL);
}

/* CTAs for the side that has more to do, a unit for each thread, and no more than there are counters. */
static void test_count(void **state)
{
    const uint64_t cta_bytes = MPATH_KERNEL_THREADS * UINT64_C(8);
    mpath_kernel_exchange_t arguments;

    (void)state;
    for (int receives = 0; receives < 2; receives++) {
        mpath_kernel_message_t *messages = receives ? arguments.receive : arguments.send;

        for (uint64_t ctas = 1; ctas <= MPATH_EAGER_CTAS; ctas++) {
            memset(&arguments, 0, sizeof(arguments));
            arguments.send_count = arguments.receive_count = 2;
            messages[0].bytes                              = 3; /* a unit of its own */
            messages[1].bytes                              = ctas * cta_bytes - 8;
            assert_int_equal(mpath_exchange_count(&arguments), ctas);
            messages[1].bytes++;
            assert_int_equal(mpath_exchange_count(&arguments), (ctas < MPATH_EAGER_CTAS) ? ctas + 1 : ctas);
        }
    }
    memset(&arguments, 0, sizeof(arguments));
    assert_int_equal(mpath_exchange_count(&arguments), 1);
}

static int setup(void **state)
{
    size_t bytes         = MPATH_EXCHANGE_MEMORY_BYTES(RANKS, SLOT);
    unsigned char *zeros = calloc(1, bytes);

    (void)state;
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, 2 * RANKS * SIDE_BYTES, 0, &memory);
    host     = malloc(memory.bytes);
    expected = malloc(memory.bytes);
    if ((zeros == NULL) || (host == NULL) || (expected == NULL) || (mpath_exchange_find(gpu, &function) != MPATH_OK)) {
        return -1;
    }
    for (unsigned rank = 0; rank < RANKS; rank++) {
        gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, bytes, 0, &scratch[rank]);
        gpu_memory_write(scratch[rank].address, zeros, bytes);
        if (mpath_pinned_alloc(gpu, MPATH_EAGER_CTAS * 8, &words[rank]) != MPATH_OK) {
            return -1;
        }
        memset(words[rank].base, 0, MPATH_EAGER_CTAS * 8);
    }
    free(zeros);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (unsigned rank = 0; rank < RANKS; rank++) {
        gpu_memory_free(&scratch[rank]);
        mpath_pinned_release(&words[rank]);
    }
    free(host);
    free(expected);
    gpu_memory_free(&memory);
    mpath_gpu_cleanup();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_count), cmocka_unit_test(test_messages),    cmocka_unit_test(test_repeats),
        cmocka_unit_test(test_late),  cmocka_unit_test(test_called_back),
    };

    gpu_application_starts();
    if ((mpath_gpu_get(0, NULL, &gpu) != MPATH_OK) || !gpu_has_kernels(gpu)) {
        printf("1..0 # SKIP no kernels\n");
        return 77;
    }
    return cmocka_run_group_tests_name("gpu_exchange", tests, setup, teardown);
}
