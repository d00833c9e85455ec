/* SPDX-License-Identifier: BSD-3-Clause */
/* The reduction kernels that wait for each other: ranks of one process, all right bytes, and ranks that never come. */
#include "config.h"
#include "capture.h"
#include "gpu_kinds.h"
#include "node/reduce_private.h"
#include "device/pinned.h"
#include "device/kernels/reduce.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEADLINE_NS (UINT64_C(60) * 1000000000)

static mpath_gpu_t *gpu;

/* -- writes: two ranks, on a GPU each -- */

#define WRITES_TILE 4096u
#define WRITES_PART                                                                                                    \
    (UINT64_C(6) * MPATH_WRITES_CTAS * WRITES_TILE + 20) /* more turns than there is room for, and a rest */

typedef struct writer {
    mpath_gpu_t *gpu;
    mpath_stream_t *stream;
    mpath_cu_function_t function;
    gpu_memory_t vector, result, scratch;
    mpath_mark_t mark;
} writer_t;

static writer_t writers[4];

static float writes_value(int rank, uint64_t index)
{
    return (float)((index * 3 + (uint64_t)rank * 7 + index / 8191) % 251);
}

static mpath_cu_ptr_t writes_target(int rank)
{
    return (rank == 1) ? writers[rank].vector.address : writers[rank].result.address; /* rank 1: in place */
}

static void writes_open(int rank, unsigned char *bytes)
{
    const mpath_reduce_how_t how = {MPATH_REDUCE_SUM, MPATH_REDUCE_F32};
    uint64_t scratch_bytes       = MPATH_WRITES_MEMORY_BYTES(2u, WRITES_TILE);
    writer_t *writer             = &writers[rank];
    float *values                = (float *)(void *)bytes;

    assert_true(mpath_writes_fits(&how));
    assert_int_equal(mpath_gpu_get(rank, NULL, &writer->gpu), MPATH_OK);
    assert_int_equal(mpath_stream_get(writer->gpu, 1, &writer->stream), MPATH_OK);
    assert_int_equal(mpath_writes_find(writer->gpu, &how, NULL, &writer->function), MPATH_OK);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, rank, 2 * WRITES_PART, 0, &writer->vector);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, rank, 2 * WRITES_PART, 0, &writer->result);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, rank, scratch_bytes, 0, &writer->scratch);
    for (uint64_t i = 0; i < 2 * WRITES_PART / sizeof(float); i++) {
        values[i] = writes_value(rank, i);
    }
    gpu_memory_write(writer->vector.address, bytes, 2 * WRITES_PART);
    memset(bytes, 0, scratch_bytes);
    gpu_memory_write(writer->scratch.address, bytes, scratch_bytes);
}

static void writes_start(int rank, uint64_t number, const mpath_pinned_t *words, const mpath_kernel_word_t *flag)
{
    writer_t *writer                = &writers[rank];
    mpath_kernel_writes_t arguments = {.number     = number,
                                       .stop       = mpath_pinned_device(words, words->base),
                                       .timeout_ns = DEADLINE_NS,
                                       .tile_bytes = WRITES_TILE,
                                       .ranks      = 2,
                                       .me         = (uint32_t)rank,
                                       .send       = writer->vector.address};

    for (int i = 0; i < 2; i++) {
        arguments.part_offsets[i] = (uint64_t)i * (WRITES_PART - 4); /* a multiple of 16 */
        arguments.part_bytes[i]   = (i == 0) ? WRITES_PART - 4 : WRITES_PART;
        arguments.targets[i]      = writes_target(i);
        arguments.memory[i]       = writers[i].scratch.address;
    }
    assert_int_equal(mpath_launch_writes(writer->stream, writer->function, *flag, &arguments), MPATH_OK);
}

static void test_writes(void **state)
{
    mpath_stream_t *first;
    unsigned char *bytes;
    mpath_pinned_t words[2];
    mpath_kernel_word_t flag;
    mpath_mark_t end;

    (void)state;
    assert_int_equal(mpath_stream_get(gpu, 0, &first), MPATH_OK);
    if ((mpath_gpu_count() < 2) || !mpath_stream_has_values(first)) {
        skip();
    }
    bytes = malloc(2 * WRITES_PART + MPATH_WRITES_MEMORY_BYTES(2u, WRITES_TILE));
    assert_non_null(bytes);
    for (int rank = 0; rank < 2; rank++) {
        writes_open(rank, bytes);
        assert_int_equal(mpath_pinned_alloc(writers[rank].gpu, 64, &words[rank]), MPATH_OK);
        memset(words[rank].base, 0, 64);
    }
    if (!mpath_gpu_reaches(writers[0].gpu, 1) || !mpath_gpu_reaches(writers[1].gpu, 0)) {
        skip();
    }
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(mpath_launch_mark(writers[rank].stream, &flag, &writers[rank].mark), MPATH_OK);
        writes_start(rank, 5, &words[rank], &flag);
    }
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(mpath_stream_finish(writers[rank].stream, writers[rank].mark, DEADLINE_NS, "the test"),
                         MPATH_OK);
    }
    for (int rank = 0; rank < 2; rank++) {
        gpu_memory_read(writes_target(rank), bytes, 2 * WRITES_PART - 4);
        for (uint64_t i = 0; i < (2 * WRITES_PART - 4) / sizeof(float); i++) {
            assert_true(((float *)(void *)bytes)[i] == writes_value(0, i) + writes_value(1, i));
        }
    }
    /*
     * A rank that never comes: the other one gives up when the host says so, and writes no flag. Who has other work on
     * its stream waits for it, and hears nothing of that.
     */
    flag = (mpath_kernel_word_t){.address = mpath_pinned_device(&words[0], (uint64_t *)words[0].base + 1), .value = 6};
    writes_start(0, 6, &words[0], &flag);
    assert_int_equal(mpath_stream_mark(writers[0].stream, &end), MPATH_OK);
    capture_start();
    assert_int_equal(mpath_stream_finish(writers[0].stream, end, 5000000, "the kernel"), MPATH_ERR_TIMED_OUT);
    capture_stop();
    assert_non_null(strstr(capture_buffer, "the kernel has not ended within 5 ms"));
    *(volatile uint64_t *)words[0].base = 6;
    assert_int_equal(mpath_stream_finish(writers[0].stream, end, DEADLINE_NS, "the test"), MPATH_OK);
    assert_int_equal(((volatile uint64_t *)words[0].base)[1], 0);
    for (int rank = 0; rank < 2; rank++) {
        gpu_memory_free(&writers[rank].vector);
        gpu_memory_free(&writers[rank].result);
        gpu_memory_free(&writers[rank].scratch);
        mpath_pinned_release(&words[rank]);
    }
    free(bytes);
}

/* -- a ring: as many ranks as GPUs, up to four -- */

#define RING_CTAS 24u
#define RING_SHORT_TILE 1024u
#define RING_PART (53u * RING_SHORT_TILE) /* three turns of short tiles, the last one of few CTAs */
#define RING_REST 1012u                   /* that the last part lacks: its end is no vector */

typedef struct ring_test {
    unsigned ranks;
    uint64_t number, tile_bytes;
    unsigned char *bytes;
    mpath_pinned_t words;
} ring_test_t;

static uint64_t ring_bytes(const ring_test_t *test, unsigned part)
{
    return RING_PART - ((part + 1 == test->ranks) ? RING_REST : 0);
}

/* Sums of them depend on their order. */
static float ring_value(const ring_test_t *test, unsigned rank, uint64_t index)
{
    return (float)((index * 7919 + rank * 104729 + test->number) % 100003) * ((rank % 2 == 0) ? 1.0f : 1.001e-3f);
}

static void ring_open(ring_test_t *test)
{
    const mpath_reduce_how_t how = {MPATH_REDUCE_SUM, MPATH_REDUCE_F32};
    uint64_t scratch_bytes = MPATH_WRITES_TILES_AT(test->ranks) + RING_CTAS * MPATH_RING_DEPTH * MPATH_RING_TILE_MAX;

    for (unsigned rank = 0; rank < test->ranks; rank++) {
        writer_t *writer = &writers[rank];

        assert_int_equal(mpath_gpu_get((int)rank, NULL, &writer->gpu), MPATH_OK);
        assert_int_equal(mpath_stream_get(writer->gpu, 1, &writer->stream), MPATH_OK);
        assert_int_equal(mpath_ring_find(writer->gpu, &how, NULL, &writer->function), MPATH_OK);
        gpu_memory_alloc(MPATH_MEMORY_DEVICE, (int)rank, test->ranks * RING_PART, 0, &writer->vector);
        gpu_memory_alloc(MPATH_MEMORY_DEVICE, (int)rank, test->ranks * RING_PART, 0, &writer->result);
        gpu_memory_alloc(MPATH_MEMORY_DEVICE, (int)rank, scratch_bytes, 0, &writer->scratch);
        memset(test->bytes, 0, scratch_bytes);
        gpu_memory_write(writer->scratch.address, test->bytes, scratch_bytes);
    }
    assert_int_equal(mpath_pinned_alloc(writers[0].gpu, 64, &test->words), MPATH_OK);
    memset(test->words.base, 0, 64);
}

static void ring_start(const ring_test_t *test, unsigned rank, uint64_t timeout_ns)
{
    writer_t *writer                = &writers[rank];
    mpath_kernel_writes_t arguments = {.number     = test->number,
                                       .stop       = mpath_pinned_device(&test->words, test->words.base),
                                       .timeout_ns = timeout_ns,
                                       .tile_bytes = test->tile_bytes,
                                       .ranks      = test->ranks,
                                       .me         = rank,
                                       .send       = writer->vector.address};
    mpath_kernel_word_t flag;

    for (unsigned i = 0; i < test->ranks; i++) {
        arguments.part_offsets[i] = i * RING_PART;
        arguments.part_bytes[i]   = ring_bytes(test, i);
        arguments.targets[i]      = writes_target((int)i);
        arguments.memory[i]       = writers[i].scratch.address;
    }
    assert_int_equal(mpath_launch_mark(writer->stream, &flag, &writer->mark), MPATH_OK);
    assert_int_equal(mpath_launch_ring(writer->stream, writer->function, RING_CTAS, flag, &arguments), MPATH_OK);
}

/* All ranks have the sums, each part in its order: from the next rank on, that of the part last. */
static void ring_run(ring_test_t *test)
{
    float *values = (float *)(void *)test->bytes;

    for (unsigned rank = 0; rank < test->ranks; rank++) {
        for (uint64_t i = 0; i < test->ranks * RING_PART / sizeof(float); i++) {
            values[i] = ring_value(test, rank, i);
        }
        gpu_memory_write(writers[rank].vector.address, test->bytes, test->ranks * RING_PART);
    }
    for (unsigned rank = 0; rank < test->ranks; rank++) {
        ring_start(test, rank, DEADLINE_NS);
    }
    for (unsigned rank = 0; rank < test->ranks; rank++) {
        assert_int_equal(mpath_stream_finish(writers[rank].stream, writers[rank].mark, DEADLINE_NS, "the test"),
                         MPATH_OK);
    }
    for (unsigned rank = 0; rank < test->ranks; rank++) {
        gpu_memory_read(writes_target((int)rank), test->bytes, test->ranks * RING_PART - RING_REST);
        for (uint64_t i = 0; i < (test->ranks * RING_PART - RING_REST) / sizeof(float); i++) {
            unsigned part = (unsigned)(i * sizeof(float) / RING_PART);
            float sum     = ring_value(test, (part + 1) % test->ranks, i);

            for (unsigned k = 2; k <= test->ranks; k++) {
                sum = ring_value(test, (part + k) % test->ranks, i) + sum;
            }
            assert_true(values[i] == sum);
        }
    }
    test->number++;
}

static void test_ring(void **state)
{
    ring_test_t test = {.number = 5};
    mpath_stream_t *first;
    mpath_mark_t end;

    (void)state;
    test.ranks = (mpath_gpu_count() < 4) ? (unsigned)mpath_gpu_count() : 4;
    assert_int_equal(mpath_stream_get(gpu, 0, &first), MPATH_OK);
    if ((test.ranks < 2) || !mpath_stream_has_values(first)) {
        skip();
    }
    test.bytes = malloc(test.ranks * RING_PART + 2 * RING_CTAS * MPATH_RING_DEPTH * MPATH_RING_TILE_MAX);
    assert_non_null(test.bytes);
    ring_open(&test);
    for (unsigned rank = 0; rank < test.ranks; rank++) {
        if (!mpath_gpu_reaches(writers[rank].gpu, (int)((rank + 1) % test.ranks)) ||
            !mpath_gpu_reaches(writers[rank].gpu, (int)((rank + test.ranks - 1) % test.ranks))) {
            skip();
        }
    }
    for (int round = 0; round < 2; round++) {
        test.tile_bytes = RING_SHORT_TILE;
        ring_run(&test);
        test.tile_bytes = MPATH_RING_TILE_MAX; /* all passes, and a tile that is not full */
        ring_run(&test);
    }
    ring_start(&test, 1, 1); /* a rank before it that never comes: it gives up by itself */
    assert_int_equal(mpath_stream_mark(writers[1].stream, &end), MPATH_OK);
    assert_int_equal(mpath_stream_finish(writers[1].stream, end, DEADLINE_NS, "the test"), MPATH_OK);
    ring_start(&test, 1, DEADLINE_NS); /* the same, stopped by the host */
    assert_int_equal(mpath_stream_mark(writers[1].stream, &end), MPATH_OK);
    *(volatile uint64_t *)test.words.base = test.number;
    assert_int_equal(mpath_stream_finish(writers[1].stream, end, DEADLINE_NS, "the test"), MPATH_OK);
    for (unsigned rank = 0; rank < test.ranks; rank++) {
        gpu_memory_free(&writers[rank].vector);
        gpu_memory_free(&writers[rank].result);
        gpu_memory_free(&writers[rank].scratch);
    }
    mpath_pinned_release(&test.words);
    free(test.bytes);
}

/* Tiles fill equal turns. */
static void test_tiles(void **state)
{
    const uint64_t mib = UINT64_C(1) << 20;

    (void)state;
    assert_int_equal(mpath_ring_tile(8, 128, 100000), 512);
    assert_int_equal(mpath_ring_tile(2 * mib, 128, 100000), 16384);
    assert_int_equal(mpath_ring_tile(8 * mib, 128, 100000), 65536);
    assert_int_equal(mpath_ring_tile(12 * mib, 128, 100000), 49152);
    assert_int_equal(mpath_ring_tile(6 * mib, 128, 4100), 4096);
    assert_int_equal(mpath_ring_ctas(132), 128);
    assert_int_equal(mpath_ring_ctas(108), 108);
}

static int setup(void **state)
{
    (void)state;
    gpu_application_starts();
    return (mpath_gpu_get(0, NULL, &gpu) == MPATH_OK) ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_writes),
        cmocka_unit_test(test_ring),
        cmocka_unit_test(test_tiles),
    };

    gpu_application_starts();
    if ((mpath_gpu_get(0, NULL, &gpu) == MPATH_OK) && !gpu_has_kernels(gpu)) {
        printf("1..0 # SKIP no kernels\n");
        return 77;
    }
    return cmocka_run_group_tests_name("gpu_reduce_writes", tests, setup, gpu_group_teardown);
}
