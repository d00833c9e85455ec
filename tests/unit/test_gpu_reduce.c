/* SPDX-License-Identifier: BSD-3-Clause */
/* The reduction kernels: every operation and type, at every alignment, against arithmetic written once more. */
#include "config.h"
#include "capture.h"
#include "gpu_kinds.h"
#include "gpu/pinned.h"
#include "gpu/reduce_eager.h"
#include "gpu/reduce_writes.h"
#include "gpu/usage.h"

#include <complex.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEADLINE_NS (UINT64_C(60) * 1000000000)
#define ROOM_BYTES 32768u
#define GUARD_BYTES 32u
#define OPS (MPATH_REDUCE_MINLOC + 1)
#define TYPES (MPATH_REDUCE_I64_AT + 1)

static mpath_gpu_t *gpu;
static mpath_stream_t *stream;
static gpu_memory_t memory; /* ROOM_BYTES for each source, and as many for two targets */
static unsigned char *host, *expected;

typedef union element {
    uint8_t bytes[16];
    int64_t i;
    uint64_t u;
    float f;
    double d;
    float _Complex c;
    double _Complex z;
    mpath_reduce_c64_t c_parts;
    mpath_reduce_c128_t z_parts;
#ifdef __FLT16_MANT_DIG__
    _Float16 h;
#endif
    uint16_t half;
    mpath_reduce_f32_at_t f_at;
    mpath_reduce_f64_at_t d_at;
    mpath_reduce_i32_at_t i_at;
    mpath_reduce_i64_at_t l_at;
} element_t;

static int is_signed(mpath_reduce_type_t type)
{
    return type <= MPATH_REDUCE_I64;
}

/* Integers as the widest one that has their value. */
static uint64_t widen(mpath_reduce_type_t type, const unsigned char *from)
{
    unsigned bytes = mpath_reduce_bytes(type);
    uint64_t value = 0;

    memcpy(&value, from, bytes);
    if (is_signed(type) && (bytes < 8) && ((value >> (8 * bytes - 1)) & 1)) {
        value |= ~UINT64_C(0) << (8 * bytes);
    }
    return value;
}

static uint64_t combine_integers(const mpath_reduce_how_t *how, uint64_t a, uint64_t b)
{
    int less = is_signed(how->type) ? ((int64_t)a < (int64_t)b) : (a < b);

    switch (how->op) {
    case MPATH_REDUCE_SUM:
        return a + b;
    case MPATH_REDUCE_PROD:
        return a * b;
    case MPATH_REDUCE_MAX:
        return less ? b : a;
    case MPATH_REDUCE_MIN:
        return less ? a : b;
    case MPATH_REDUCE_BAND:
        return a & b;
    case MPATH_REDUCE_BOR:
        return a | b;
    case MPATH_REDUCE_BXOR:
        return a ^ b;
    case MPATH_REDUCE_LAND:
        return a && b;
    case MPATH_REDUCE_LOR:
        return a || b;
    default:
        return !a != !b;
    }
}

/* Compilers without the type leave half precision to the tests of others. */
static int is_tested(mpath_reduce_type_t type)
{
#ifdef __FLT16_MANT_DIG__
    (void)type;
    return 1;
#else
    return type != MPATH_REDUCE_F16;
#endif
}

static double combine_reals(mpath_reduce_op_t op, double a, double b)
{
    return (op == MPATH_REDUCE_SUM)                ? a + b
           : (op == MPATH_REDUCE_PROD)             ? a * b
           : ((op == MPATH_REDUCE_MAX) == (a > b)) ? a
                                                   : b;
}

/* Whether the second of two values with places replaces the first. */
static int replaces(mpath_reduce_op_t op, double a, int a_place, double b, int b_place)
{
    return (a == b) ? (b_place < a_place) : ((op == MPATH_REDUCE_MAXLOC) == (b > a));
}

/* sum = sum op next, for one element. */
static void combine(const mpath_reduce_how_t *how, unsigned char *sum, const unsigned char *next)
{
    unsigned bytes = mpath_reduce_bytes(how->type);
    element_t a, b;
    uint64_t value;

    memcpy(&a, sum, bytes);
    memcpy(&b, next, bytes);
    switch (how->type) {
    case MPATH_REDUCE_F32:
        a.f = (float)combine_reals(how->op, a.f, b.f);
        break;
    case MPATH_REDUCE_F64:
        a.d = combine_reals(how->op, a.d, b.d);
        break;
#ifdef __FLT16_MANT_DIG__
    case MPATH_REDUCE_F16: {
        _Float16 sum = a.h + b.h, product = a.h * b.h;

        a.h = (how->op == MPATH_REDUCE_SUM)    ? sum
              : (how->op == MPATH_REDUCE_PROD) ? product
                                               : (_Float16)combine_reals(how->op, (double)a.h, (double)b.h);
        break;
    }
#endif
    case MPATH_REDUCE_C64:
        a.c = (how->op == MPATH_REDUCE_SUM) ? a.c + b.c : a.c * b.c;
        break;
    case MPATH_REDUCE_C128:
        a.z = (how->op == MPATH_REDUCE_SUM) ? a.z + b.z : a.z * b.z;
        break;
    case MPATH_REDUCE_F32_AT:
        a = replaces(how->op, a.f_at.value, a.f_at.place, b.f_at.value, b.f_at.place) ? b : a;
        break;
    case MPATH_REDUCE_F64_AT:
        a = replaces(how->op, a.d_at.value, a.d_at.place, b.d_at.value, b.d_at.place) ? b : a;
        break;
    case MPATH_REDUCE_I32_AT:
        a = replaces(how->op, a.i_at.value, a.i_at.place, b.i_at.value, b.i_at.place) ? b : a;
        break;
    case MPATH_REDUCE_I64_AT:
        a = replaces(how->op, (double)a.l_at.value, a.l_at.place, (double)b.l_at.value, b.l_at.place) ? b : a;
        break;
    default:
        value = combine_integers(how, widen(how->type, sum), widen(how->type, next));
        memcpy(a.bytes, &value, bytes);
    }
    memcpy(sum, a.bytes, bytes);
}

/*
 * Small numbers, so that reals are exact and values meet again; places differ by rank. Half precision and complex
 * numbers are rounded in every step; some complex ones are infinite, and multiplied such that no part of a product is a
 * number until C's rules say so.
 */
static void fill(mpath_reduce_type_t type, unsigned char *to, uint64_t index, unsigned rank)
{
    int number = gpu_pattern(rank + 1, index) % 7 - 2, infinite = index % 97 == 5, first = rank == 0;
    element_t element;

    memset(&element, 0, sizeof(element));
    switch (type) {
    case MPATH_REDUCE_F32:
        element.f = (float)number;
        break;
    case MPATH_REDUCE_F64:
        element.d = number;
        break;
    case MPATH_REDUCE_F16: /* of all signs and digits, exponents around 1 and some without one */
        element.half = (uint16_t)((gpu_pattern(rank + 1, index) << 8) | gpu_pattern(rank + 5, index * 3));
        element.half = (uint16_t)((element.half & 0x8fff) | ((index % 50 == 0) ? 0 : 0x3000));
        break;
    case MPATH_REDUCE_C64:
        element.c_parts = infinite
                              ? (mpath_reduce_c64_t){first ? INFINITY : 0, first ? INFINITY : (float)rank}
                              : (mpath_reduce_c64_t){((float)number + 0.5f) / 3, ((float)(index % 11) + 0.25f) / 7};
        break;
    case MPATH_REDUCE_C128:
        element.z_parts = infinite
                              ? (mpath_reduce_c128_t){first ? (double)INFINITY : 0, first ? (double)INFINITY : rank}
                              : (mpath_reduce_c128_t){(number + 0.5) / 3, ((double)(index % 11) + 0.25) / 7};
        break;
    case MPATH_REDUCE_F32_AT:
        element.f_at = (mpath_reduce_f32_at_t){(float)number, (int)(rank * 7 % 5)};
        break;
    case MPATH_REDUCE_F64_AT:
        element.d_at.value = number;
        element.d_at.place = (int)(rank * 7 % 5);
        break;
    case MPATH_REDUCE_I32_AT:
        element.i_at = (mpath_reduce_i32_at_t){number, (int)(rank * 7 % 5)};
        break;
    case MPATH_REDUCE_I64_AT:
        element.l_at.value = number;
        element.l_at.place = (int)(rank * 7 % 5);
        break;
    default:
        element.i = (index % 3 == 0) ? (int64_t)gpu_pattern(rank + 3, index) << (index % 50) : number;
    }
    memcpy(to, element.bytes, mpath_reduce_bytes(type));
}

/*
 * Runs a kernel over buffers that begin `shifts` alignments behind a multiple of 16, and compares all bytes of the
 * targets.
 */
static void check(const mpath_reduce_how_t *how, unsigned ranks, uint64_t elements, const unsigned *shifts,
                  int in_place)
{
    unsigned bytes                  = mpath_reduce_bytes(how->type);
    unsigned step                   = mpath_reduce_alignment(how->type);
    mpath_kernel_reduce_t arguments = {.elements = elements, .sources_count = ranks, .targets_count = 2};
    mpath_kernel_word_t flag;
    mpath_cu_function_t function;
    unsigned char *result;
    mpath_mark_t mark;

    memset(host, 0x5a, memory.bytes);
    for (unsigned rank = 0; rank < ranks; rank++) {
        uint64_t at = rank * ROOM_BYTES + GUARD_BYTES + shifts[rank % 3] * step;

        arguments.sources[rank] = memory.address + at;
        for (uint64_t index = 0; index < elements; index++) {
            fill(how->type, host + at + index * bytes, index, rank);
        }
    }
    gpu_memory_write(memory.address, host, memory.bytes);
    memcpy(expected, host, memory.bytes);
    result               = expected + (arguments.sources[0] - memory.address);
    arguments.targets[0] = arguments.sources[0];
    if (!in_place) {
        uint64_t at = ranks * ROOM_BYTES + GUARD_BYTES + shifts[1] * step;

        arguments.targets[0] = memory.address + at;
        memcpy(expected + at, result, elements * bytes);
        result = expected + at;
    }
    arguments.targets[1] = memory.address + (ranks + 1) * ROOM_BYTES + GUARD_BYTES + shifts[2] * step;
    for (unsigned rank = 1; rank < ranks; rank++) {
        for (uint64_t index = 0; index < elements; index++) {
            combine(how, result + index * bytes, host + (arguments.sources[rank] - memory.address) + index * bytes);
        }
    }
    memcpy(expected + (arguments.targets[1] - memory.address), result, elements * bytes);

    assert_int_equal(mpath_reduce_find(gpu, how, &function), MPATH_OK);
    if (mpath_launch_mark(stream, &flag, &mark) != MPATH_OK) {
        skip();
    }
    assert_int_equal(mpath_launch_reduce(stream, function, how->type, flag, &arguments), MPATH_OK);
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
    for (int op = 0; op < OPS; op++) {
        for (int type = 0; type < TYPES; type++) {
            mpath_reduce_how_t how = {.op = (mpath_reduce_op_t)op, .type = (mpath_reduce_type_t)type};

            if (mpath_reduce_fits(&how) && is_tested(how.type)) {
                check(&how, 3, 777, (op % 2 != 0) ? alike : same, op % 3 == 0);
                check(&how, 2, 333, mixed, op % 3 != 0);
                kernels++;
            }
        }
    }
    assert_int_equal(kernels, 4 * 10 + 6 * 8 + 2 * 4 + 2 * 2 + (is_tested(MPATH_REDUCE_F16) ? 4 : 0));
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

/* The same launch again and again, on one CTA and on several: new numbers, new data, a result each time. */
static void check_repeat(uint64_t elements)
{
    const mpath_reduce_how_t how    = {MPATH_REDUCE_SUM, MPATH_REDUCE_F32};
    mpath_kernel_reduce_t arguments = {.elements = elements, .sources_count = 2, .targets_count = 1};
    uint64_t room                   = memory.bytes / 3 & ~UINT64_C(15);
    float *sources[2]               = {(float *)(void *)host, (float *)(void *)(host + room)};
    mpath_cu_function_t function;
    mpath_pinned_t pinned;
    mpath_gpu_usage_t before, now;
    mpath_repeat_t *repeat;
    volatile uint64_t *words;
    mpath_status_t status;

    assert_true(elements * sizeof(float) <= room);
    assert_int_equal(mpath_pinned_alloc(gpu, 64, &pinned), MPATH_OK);
    words                = pinned.base;
    arguments.sources[0] = memory.address;
    arguments.sources[1] = memory.address + room;
    arguments.targets[0] = memory.address + 2 * room;
    assert_int_equal(mpath_reduce_find(gpu, &how, &function), MPATH_OK);
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
            float sum = ((float *)(void *)(expected + 2 * room))[i];

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
    check(&how, 2, 5000, same, 0); /* 20000 bytes, 16384 of which a CTA takes */
    mpath_gpu_usage(&now);
    assert_int_equal(now.launches, before.launches + 1);
    assert_int_equal(now.ctas, before.ctas + 2);
    assert_int_equal(now.memory_bytes, before.memory_bytes);
    assert_int_equal(mpath_gpu_enter(gpu), MPATH_OK);
    assert_int_equal(mpath_gpu_memory_take(&address, 12345), MPATH_CU_SUCCESS);
    mpath_gpu_usage(&now);
    assert_int_equal(now.memory_bytes, before.memory_bytes + 12345);
    mpath_gpu_memory_give(address, 12345);
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

/* Two ranks in this process, on a GPU each. */
#define WRITES_TILE 4096u
#define WRITES_PART                                                                                                    \
    (UINT64_C(6) * MPATH_WRITES_CTAS * WRITES_TILE + 20) /* more turns than there is room for, and a rest */

typedef struct writer {
    mpath_gpu_t *gpu;
    mpath_stream_t *stream;
    mpath_cu_function_t function;
    gpu_memory_t vector, result, room;
    mpath_mark_t mark;
} writer_t;

static writer_t writers[2];

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
    uint64_t room_bytes          = MPATH_WRITES_MEMORY_BYTES(2u, WRITES_TILE);
    writer_t *writer             = &writers[rank];
    float *values                = (float *)(void *)bytes;

    assert_true(mpath_writes_fits(&how));
    assert_int_equal(mpath_gpu_get(rank, NULL, &writer->gpu), MPATH_OK);
    assert_int_equal(mpath_stream_get(writer->gpu, 1, &writer->stream), MPATH_OK);
    assert_int_equal(mpath_writes_find(writer->gpu, &how, &writer->function), MPATH_OK);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, rank, 2 * WRITES_PART, 0, &writer->vector);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, rank, 2 * WRITES_PART, 0, &writer->result);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, rank, room_bytes, 0, &writer->room);
    for (uint64_t i = 0; i < 2 * WRITES_PART / sizeof(float); i++) {
        values[i] = writes_value(rank, i);
    }
    gpu_memory_write(writer->vector.address, bytes, 2 * WRITES_PART);
    memset(bytes, 0, room_bytes);
    gpu_memory_write(writer->room.address, bytes, room_bytes);
}

static void writes_start(int rank, uint64_t number, const mpath_pinned_t *words)
{
    writer_t *writer                = &writers[rank];
    mpath_kernel_writes_t arguments = {.number     = number,
                                       .stop       = mpath_pinned_device(words, words->base),
                                       .tile_bytes = WRITES_TILE,
                                       .ranks      = 2,
                                       .me         = (uint32_t)rank,
                                       .send       = writer->vector.address};
    mpath_kernel_word_t flag;

    for (int i = 0; i < 2; i++) {
        arguments.part_offsets[i] = (uint64_t)i * (WRITES_PART - 4); /* a multiple of 16 */
        arguments.part_bytes[i]   = (i == 0) ? WRITES_PART - 4 : WRITES_PART;
        arguments.targets[i]      = writes_target(i);
        arguments.memory[i]       = writers[i].room.address;
    }
    assert_int_equal(mpath_launch_mark(writer->stream, &flag, &writer->mark), MPATH_OK);
    assert_int_equal(mpath_launch_writes(writer->stream, writer->function, flag, DEADLINE_NS, &arguments), MPATH_OK);
}

static void test_writes(void **state)
{
    unsigned char *bytes;
    mpath_pinned_t words[2];

    (void)state;
    if ((mpath_gpu_count() < 2) || !mpath_stream_has_values(stream)) {
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
    writes_start(0, 5, &words[0]);
    writes_start(1, 5, &words[1]);
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
    /* A rank that never comes: the other one gives up when the host says so, and later work on its stream runs. */
    writes_start(0, 6, &words[0]);
    *(volatile uint64_t *)words[0].base = 6;
    assert_int_equal(mpath_stream_finish(writers[0].stream, writers[0].mark, DEADLINE_NS, "the test"),
                     MPATH_ERR_TIMED_OUT);
    assert_int_equal(mpath_stream_mark(writers[0].stream, &writers[0].mark), MPATH_OK);
    assert_int_equal(mpath_stream_finish(writers[0].stream, writers[0].mark, DEADLINE_NS, "the test"), MPATH_OK);
    for (int rank = 0; rank < 2; rank++) {
        gpu_memory_free(&writers[rank].vector);
        gpu_memory_free(&writers[rank].result);
        gpu_memory_free(&writers[rank].room);
        mpath_pinned_release(&words[rank]);
    }
    free(bytes);
}

/* Three ranks in this process, on one GPU: their vectors are short enough to be there at once. */
#define EAGER_RANKS 3u
#define EAGER_SLOT MPATH_EAGER_SLOT_BYTES(32768u)
#define EAGER_PATIENCE_NS (UINT64_C(20) * 1000000000)

typedef struct eager_test {
    const mpath_reduce_how_t *how;
    uint64_t number, elements;
    unsigned shift; /* of vectors, in elements; rank 1 works in place, rank 2 is not shifted */
    gpu_memory_t rooms[EAGER_RANKS];
    mpath_pinned_t words[EAGER_RANKS];
} eager_test_t;

static uint64_t eager_at(const eager_test_t *test, unsigned rank, int result)
{
    uint64_t shift = (rank == 2) ? 0 : test->shift * mpath_reduce_bytes(test->how->type);

    return ((result && (rank != 1)) ? rank + EAGER_RANKS : rank) * ROOM_BYTES + GUARD_BYTES + shift;
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
                                      .slot_bytes  = EAGER_SLOT,
                                      .ranks       = EAGER_RANKS,
                                      .me          = rank,
                                      .again       = (uint32_t)again};
    mpath_cu_function_t function;
    mpath_stream_t *own;

    for (unsigned i = 0; i < EAGER_RANKS; i++) {
        arguments.memory[i] = test->rooms[i].address;
    }
    assert_int_equal(mpath_stream_get(gpu, 1 + rank, &own), MPATH_OK);
    assert_int_equal(mpath_eager_find(gpu, test->how, &function), MPATH_OK);
    if (repeat == NULL) {
        assert_int_equal(mpath_launch_eager(own, function, test->how->type, &arguments), MPATH_OK);
        return;
    }
    if (*repeat == NULL) {
        arguments.number = 0;
        assert_int_equal(mpath_repeat_eager(own, function, test->how->type, &arguments, repeat), MPATH_OK);
    }
    assert_int_equal(mpath_repeat_start(*repeat), MPATH_OK);
}

/* Until all CTAs have said the same; nonzero: that they have given up. */
static int eager_end(const eager_test_t *test, unsigned rank)
{
    volatile uint64_t *words = test->words[rank].base;
    unsigned ctas            = mpath_eager_ctas(test->elements * mpath_reduce_bytes(test->how->type));
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
            fill(test->how->type, host + eager_at(test, rank, 0) + index * bytes, index + test->number, rank);
        }
    }
    gpu_memory_write(memory.address, host, memory.bytes);
    memcpy(expected, host, memory.bytes);
    for (uint64_t index = 0; index < test->elements; index++) {
        memcpy(sum, host + eager_at(test, 0, 0) + index * bytes, bytes);
        for (unsigned rank = 1; rank < EAGER_RANKS; rank++) {
            combine(test->how, sum, host + eager_at(test, rank, 0) + index * bytes);
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
            fail_msg("operation %d, type %d, %llu elements, shift %u: byte %llu is %02x, not %02x", test->how->op,
                     test->how->type, (unsigned long long)test->elements, test->shift, (unsigned long long)i, host[i],
                     expected[i]);
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

static void test_eager(void **state)
{
    static const uint64_t counts[]       = {1, 2, 3, 5, 513, 2048, 4000};
    static const mpath_reduce_how_t sum  = {MPATH_REDUCE_SUM, MPATH_REDUCE_F32};
    mpath_repeat_t *repeats[EAGER_RANKS] = {NULL};
    eager_test_t test                    = {.number = 1};
    unsigned kernels                     = 0;

    (void)state;
    memset(host, 0, memory.bytes);
    for (unsigned rank = 0; rank < EAGER_RANKS; rank++) {
        gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, MPATH_EAGER_MEMORY_BYTES(EAGER_RANKS, EAGER_SLOT), 0,
                         &test.rooms[rank]);
        gpu_memory_write(test.rooms[rank].address, host, MPATH_EAGER_MEMORY_BYTES(EAGER_RANKS, EAGER_SLOT));
        assert_int_equal(mpath_pinned_alloc(gpu, MPATH_EAGER_CTAS * 8, &test.words[rank]), MPATH_OK);
    }
    for (int op = 0; op < OPS; op++) {
        for (int type = 0; type < TYPES; type++) {
            mpath_reduce_how_t how = {.op = (mpath_reduce_op_t)op, .type = (mpath_reduce_type_t)type};

            if (mpath_reduce_fits(&how) && mpath_eager_fits(&how) && is_tested(how.type)) {
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
        gpu_memory_free(&test.rooms[rank]);
        mpath_pinned_release(&test.words[rank]);
    }
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
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, (MPATH_KERNEL_REDUCE_RANKS + 2) * ROOM_BYTES, 0, &memory);
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
        cmocka_unit_test(test_usage),
        cmocka_unit_test(test_repeat),
        cmocka_unit_test(test_writes),
        cmocka_unit_test(test_eager),
        cmocka_unit_test(test_what_does_not_fit),
    };

    gpu_application_starts();
    if ((mpath_gpu_get(0, NULL, &gpu) == MPATH_OK) && !mpath_kernels_usable(gpu)) {
        printf("1..0 # SKIP no kernels\n");
        return 77;
    }
    return cmocka_run_group_tests_name("gpu_reduce", tests, setup, teardown);
}
