/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams, marks, words, pinned memory and the copy kernel. With the fake driver the program runs itself again for
 * drivers that cannot write values, and that load no kernels.
 */
#include "config.h"
#include "capture.h"
#include "gpu_kinds.h"
#include "device/kernels/copy.h"
#include "device/pinned.h"
#include "util/time.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define DEADLINE_NS (UINT64_C(60) * 1000000000)

static int without_kernels; /* the fake driver loads none */

static mpath_gpu_t *gpu_of(int device)
{
    mpath_gpu_t *gpu;

    assert_int_equal(mpath_gpu_get(device, NULL, &gpu), MPATH_OK);
    return gpu;
}

static mpath_stream_t *stream_of(int device, unsigned index)
{
    mpath_stream_t *stream;

    assert_int_equal(mpath_stream_get(gpu_of(device), index, &stream), MPATH_OK);
    return stream;
}

/* 0: the run without kernels, which says nothing about them. */
static int kernels_or_skip(void)
{
    if (gpu_has_kernels(gpu_of(0))) {
        return 1;
    }
    if (!without_kernels) {
        skip();
    }
    return 0;
}

static void finish(mpath_stream_t *stream)
{
    mpath_mark_t mark;

    assert_int_equal(mpath_stream_mark(stream, &mark), MPATH_OK);
    assert_int_equal(mpath_stream_finish(stream, mark, DEADLINE_NS, "the test"), MPATH_OK);
}

static void test_copies_in_order(void **state)
{
    mpath_stream_t *stream = stream_of(0, 1);
    gpu_memory_t from, to;
    mpath_mark_t marks[20];
    int index;

    (void)state;
    assert_ptr_equal(stream, stream_of(0, 1));
    assert_ptr_equal(mpath_stream_gpu(stream), gpu_of(0));
    assert_int_equal(mpath_stream_done(stream, 0), MPATH_OK);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, 20 * MIB, 0, &from);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, 20 * MIB, 0, &to);
    gpu_pattern_write(from.address, from.bytes, 7);
    assert_int_equal(mpath_stream_enter(stream), MPATH_OK);
    for (index = 0; index < 20; index++) {
        assert_int_equal(mpath_stream_copy(stream, to.address + index * MIB, from.address + index * MIB, MIB),
                         MPATH_OK);
        assert_int_equal(mpath_stream_mark(stream, &marks[index]), MPATH_OK);
        assert_true((index == 0) || (marks[index] > marks[index - 1]));
    }
    assert_int_equal(mpath_stream_copy(stream, to.address, from.address, 0), MPATH_OK);
    mpath_stream_leave(stream);
    assert_int_equal(mpath_stream_finish(stream, marks[19], DEADLINE_NS, "20 copies"), MPATH_OK);
    for (index = 0; index < 20; index++) {
        assert_int_equal(mpath_stream_done(stream, marks[index]), MPATH_OK);
    }
    assert_int_equal(gpu_pattern_check(to.address, to.bytes, 7), 0);
    gpu_memory_free(&from);
    gpu_memory_free(&to);
}

/* In one call of the driver, or one after the other: the same. */
static void test_copies_at_once(void **state)
{
    enum { COPIES = 9 };
    mpath_cu_ptr_t targets[COPIES], sources[COPIES];
    mpath_stream_t *stream = stream_of(0, 1);
    size_t bytes[COPIES];
    gpu_memory_t from, to;
    mpath_mark_t mark;

    (void)state;
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, COPIES * MIB, 0, &from);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, COPIES * MIB, 0, &to);
    for (size_t count = 1; count <= COPIES; count += COPIES - 1) {
        gpu_pattern_write(from.address, from.bytes, count);
        for (size_t i = 0; i < count; i++) {
            targets[i] = to.address + i * MIB;
            sources[i] = from.address + i * MIB;
            bytes[i]   = MIB;
        }
        assert_int_equal(mpath_stream_copy_all(stream, targets, sources, bytes, count), MPATH_OK);
        assert_int_equal(mpath_stream_mark(stream, &mark), MPATH_OK);
        assert_int_equal(mpath_stream_finish(stream, mark, DEADLINE_NS, "copies at once"), MPATH_OK);
        assert_int_equal(gpu_pattern_check(to.address, count * MIB, count), 0);
    }
    gpu_memory_free(&from);
    gpu_memory_free(&to);
}

/* Within a GPU, by engines: parts that do not come out even, and what is too short for that. */
static void test_copies_aside(void **state)
{
    static const size_t sizes[] = {MIB, 3 * MIB + 4099, 2 * MIB - 1};
    mpath_cu_t *cu              = (mpath_cu_t *)mpath_gpu_driver();
    mpath_stream_t *stream      = stream_of(0, 1);
    gpu_memory_t from, to;
    mpath_mark_t mark;

    (void)state;
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, 4 * MIB, 0, &from);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, 4 * MIB, 0, &to);
    assert_int_equal(mpath_stream_copy_aside(stream, to.address, from.address, 1000), MPATH_ERR_UNSUPPORTED);
    for (size_t i = 0; (cu->MemcpyBatchAsync != NULL) && (i < sizeof(sizes) / sizeof(sizes[0])); i++) {
        gpu_pattern_write(from.address, from.bytes, i);
        gpu_pattern_write(to.address, to.bytes, 99);
        assert_int_equal(mpath_stream_copy_aside(stream, to.address, from.address, sizes[i]), MPATH_OK);
        assert_int_equal(mpath_stream_mark(stream, &mark), MPATH_OK);
        assert_int_equal(mpath_stream_finish(stream, mark, DEADLINE_NS, "a copy aside"), MPATH_OK);
        assert_int_equal(gpu_pattern_check(to.address, sizes[i], i), 0);
        assert_int_not_equal(gpu_pattern_check(to.address, sizes[i] + 8, i), 0);
    }
    gpu_memory_free(&from);
    gpu_memory_free(&to);
}

/* The application records a graph meanwhile: what mpath asks of the driver neither fails nor spoils it. */
static void test_while_a_stream_is_captured(void **state)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    mpath_cu_result_t (*begin)(mpath_cu_stream_t, int);
    mpath_cu_result_t (*end)(mpath_cu_stream_t, mpath_cu_graph_t *);
    void *library = dlopen(gpu_library(), RTLD_NOW | RTLD_NOLOAD);
    mpath_cu_stream_t captured;
    mpath_stream_t *stream;
    mpath_pinned_t pinned;
    mpath_cu_graph_t graph;
    gpu_memory_t from, to;
    mpath_mark_t mark;

    (void)state;
    *(void **)&begin = dlsym(library, "cuStreamBeginCapture_v2");
    *(void **)&end   = dlsym(library, "cuStreamEndCapture");
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, MIB, 0, &from);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, MIB, 0, &to);
    gpu_pattern_write(from.address, MIB, 3);
    mpath_gpu_cleanup(); /* everything is made anew */
    assert_int_equal(cu->StreamCreateWithPriority(&captured, MPATH_CU_STREAM_NON_BLOCKING, 0), MPATH_CU_SUCCESS);
    assert_int_equal(begin(captured, 0), MPATH_CU_SUCCESS);
    stream = stream_of(0, 5);
    (void)mpath_kernels_usable(gpu_of(0));
    assert_int_equal(mpath_pinned_alloc(gpu_of(0), MIB, &pinned), MPATH_OK);
    assert_int_equal(mpath_stream_copy(stream, mpath_pinned_device(&pinned, pinned.base), from.address, MIB), MPATH_OK);
    assert_int_equal(mpath_stream_copy(stream, to.address, mpath_pinned_device(&pinned, pinned.base), MIB), MPATH_OK);
    assert_int_equal(mpath_stream_mark(stream, &mark), MPATH_OK);
    assert_int_equal(mpath_stream_finish(stream, mark, DEADLINE_NS, "two copies"), MPATH_OK);
    mpath_pinned_release(&pinned);
    assert_int_equal(end(captured, &graph), MPATH_CU_SUCCESS);
    assert_int_equal(cu->StreamDestroy(captured), MPATH_CU_SUCCESS);
    assert_int_equal(gpu_pattern_check(to.address, MIB, 3), 0);
    gpu_memory_free(&from);
    gpu_memory_free(&to);
    assert_int_equal(dlclose(library), 0);
}

static void test_values(void **state)
{
    mpath_stream_t *stream = stream_of(0, 0);
    uint64_t end_ns        = mpath_time_ns() + DEADLINE_NS, seen;
    mpath_pinned_t pinned;
    volatile uint64_t *words;
    gpu_memory_t from, to;

    (void)state;
    assert_int_equal(mpath_pinned_alloc(gpu_of(0), 8192, &pinned), MPATH_OK);
    words = pinned.base;
    assert_int_equal(words[9], 0);
    if (!mpath_stream_has_values(stream)) {
        assert_int_equal(mpath_stream_write(stream, pinned.device_base, 1), MPATH_ERR_UNSUPPORTED);
        mpath_pinned_release(&pinned);
        return;
    }
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, MIB, 0, &from);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, MIB, 0, &to);
    gpu_pattern_write(from.address, MIB, 1);
    gpu_pattern_write(to.address, MIB, 2);
    assert_int_equal(mpath_stream_copy(stream, to.address, from.address, MIB), MPATH_OK);
    assert_int_equal(mpath_stream_write(stream, mpath_pinned_device(&pinned, &words[9]), UINT64_C(1) << 40), MPATH_OK);
    while ((seen = words[9]) != UINT64_C(1) << 40) { /* who sees the word sees the copy */
        assert_int_equal(seen, 0);
        assert_true(mpath_time_ns() < end_ns);
    }
    assert_int_equal(gpu_pattern_check(to.address, MIB, 1), 0);
    assert_int_equal(words[8], 0);
    assert_int_equal(words[10], 0);
    mpath_pinned_release(&pinned);
    mpath_pinned_release(&pinned);
    gpu_memory_free(&from);
    gpu_memory_free(&to);
}

static void test_staging_through_registered_memory(void **state)
{
    mpath_stream_t *stream = stream_of(0, 2);
    mpath_pinned_t pinned, twice;
    gpu_memory_t from, to;
    void *base;

    (void)state;
    base = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(base, MAP_FAILED);
    assert_int_equal(mpath_pinned_register(gpu_of(0), base, MIB, &pinned), MPATH_OK);
    capture_start();
    assert_int_not_equal(mpath_pinned_register(gpu_of(0), base, MIB, &twice), MPATH_OK);
    capture_stop();
    assert_int_equal(capture_lines, 1);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, MIB, 0, &from);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, mpath_gpu_count() - 1, MIB, 0, &to);
    gpu_pattern_write(from.address, MIB, 11);
    assert_int_equal(mpath_stream_copy(stream, pinned.device_base, from.address, MIB), MPATH_OK);
    finish(stream);
    stream = stream_of(mpath_gpu_count() - 1, 2);
    assert_int_equal(mpath_stream_copy(stream, to.address, pinned.device_base, MIB), MPATH_OK);
    finish(stream);
    assert_int_equal(gpu_pattern_check(to.address, MIB, 11), 0);
    gpu_memory_free(&from);
    gpu_memory_free(&to);
    mpath_pinned_release(&pinned);
    munmap(base, MIB);
}

static void launch(mpath_stream_t *stream, const mpath_launch_copy_t *copy)
{
    mpath_launch_copy_t marked = *copy;
    mpath_mark_t mark;

    marked.mark_p = &mark;
    assert_int_equal(mpath_launch_copy(stream, &marked), MPATH_OK);
    assert_int_equal(mpath_stream_finish(stream, mark, DEADLINE_NS, "a kernel"), MPATH_OK);
}

#define FIELD (3 * MIB)

/* The fragments, in the order of their targets, and nothing else have come: `host` and `source` are copies of both sides. */
static void check_field(const mpath_kernel_fragment_t *fragments, unsigned count, uint64_t to, uint64_t from,
                        const unsigned char *host, const unsigned char *source)
{
    uint64_t at = 0, i;

    for (unsigned number = 0; number < count; number++) {
        const uint64_t begin = fragments[number].target - to, end = begin + fragments[number].bytes;

        for (; at < begin; at++) {
            assert_int_equal(host[at], 0xee);
        }
        for (i = 0; at < end; at++, i++) {
            if (host[at] != source[fragments[number].source - from + i]) {
                fail_msg("fragment of %llu bytes from alignment %llu to %llu: byte %llu is wrong",
                         (unsigned long long)fragments[number].bytes, (unsigned long long)fragments[number].source % 16,
                         (unsigned long long)begin % 16, (unsigned long long)i);
            }
        }
    }
    for (; at < FIELD; at++) {
        if (host[at] != 0xee) {
            fail_msg("byte %llu behind the last fragment was written", (unsigned long long)at);
        }
    }
}

/* Every alignment of source and target against each other, lengths around what vectors and CTAs cut. */
static void test_kernel_alignments_and_lengths(void **state)
{
    static const uint64_t lengths[] = {0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 33, 64, 100, 511, 513, 4096, 66000, 300001};
    mpath_stream_t *stream          = stream_of(0, 0);
    mpath_kernel_fragment_t fragments[MPATH_KERNEL_FRAGMENTS_MAX];
    unsigned shift, length, count, checked = 0;
    unsigned char *host, *source;
    gpu_memory_t from, to;
    uint64_t at;

    (void)state;
    if (!kernels_or_skip()) {
        return;
    }
    host   = malloc(FIELD);
    source = malloc(FIELD);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, FIELD, 0, &from);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, mpath_gpu_count() - 1, FIELD, 0, &to);
    assert_true(mpath_gpu_reaches(gpu_of(0), mpath_gpu_count() - 1));
    gpu_pattern_write(from.address, FIELD, 3);
    gpu_memory_read(from.address, source, FIELD);
    for (shift = 0; shift < 256; shift += 5) { /* 52 pairs (source, target) of shifts, each remainder met */
        const uint64_t source_shift = shift % 16, target_shift = shift / 16;

        gpu_memory_fill(to.address, 0xee, FIELD);
        at = 0;
        for (length = 0, count = 0; length < sizeof(lengths) / sizeof(lengths[0]); length++, count++) {
            fragments[count] = (mpath_kernel_fragment_t){.target = to.address + at + target_shift,
                                                         .source = from.address + FIELD / 2 - at / 2 + source_shift,
                                                         .bytes  = lengths[length]};
            fragments[count].source &= ~UINT64_C(15);
            fragments[count].source += source_shift;
            at += (lengths[length] + 64 + 15) / 16 * 16;
        }
        if (shift % 2 == 0) {
            launch(stream, &(mpath_launch_copy_t){.fragments = fragments, .fragments_count = count, .ctas = shift % 7});
        } else { /* few fragments have a kernel of their own */
            launch(stream, &(mpath_launch_copy_t){.fragments = fragments, .fragments_count = 8, .ctas = shift % 7});
            launch(stream,
                   &(mpath_launch_copy_t){.fragments = fragments + 8, .fragments_count = count - 8, .ctas = shift % 7});
        }
        gpu_memory_read(to.address, host, FIELD);
        check_field(fragments, count, to.address, from.address, host, source);
        checked += count;
    }
    assert_int_equal(checked, 52 * sizeof(lengths) / sizeof(lengths[0]));
    gpu_memory_free(&from);
    gpu_memory_free(&to);
    free(host);
    free(source);
}

/* More fragments than one launch takes, one of them large; flags only when all have landed. */
static void test_kernel_many_fragments_and_flags(void **state)
{
    enum { MANY = 3 * MPATH_KERNEL_FRAGMENTS_MAX + 5 };
    static mpath_kernel_fragment_t fragments[MANY];
    mpath_stream_t *stream = stream_of(0, 1);
    mpath_kernel_word_t flags[3];
    mpath_pinned_t pinned;
    gpu_memory_t from, to;
    uint64_t at = 0, bytes, round;
    volatile uint64_t *words;
    int index;

    (void)state;
    if (!kernels_or_skip()) {
        return;
    }
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, 8 * MIB, 0, &from);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, 8 * MIB, 0, &to);
    assert_int_equal(mpath_pinned_alloc(gpu_of(0), 4096, &pinned), MPATH_OK);
    words = pinned.base;
    for (index = 0; index < MANY; index++) {
        bytes            = (index == 7) ? 5 * MIB + 3 : (uint64_t)(index * 37 % 4001);
        fragments[index] = (mpath_kernel_fragment_t){
            .target = to.address + at, .source = from.address + at, .bytes = bytes};
        at += bytes;
    }
    assert_true(at < from.bytes);
    for (round = 1; round <= 5; round++) {
        gpu_pattern_write(from.address, at, round);
        for (index = 0; index < 3; index++) {
            flags[index] = (mpath_kernel_word_t){.address = mpath_pinned_device(&pinned, &words[16 * index]),
                                                 .value   = round + (uint64_t)index};
        }
        launch(stream,
               &(mpath_launch_copy_t){
                   .fragments = fragments, .fragments_count = MANY, .flags = flags, .flags_count = 3, .ctas = 16});
        for (index = 0; index < 3; index++) {
            assert_int_equal(words[16 * index], round + (uint64_t)index);
        }
        assert_int_equal(gpu_pattern_check(to.address, at, round), 0);
    }
    /* No fragment at all still writes its flags. */
    flags[0].value = 99;
    launch(stream, &(mpath_launch_copy_t){.flags = flags, .flags_count = 1});
    assert_int_equal(words[0], 99);
    capture_start();
    assert_int_equal(mpath_launch_copy(stream, &(mpath_launch_copy_t){.flags_count = MPATH_KERNEL_FLAGS_MAX}),
                     MPATH_ERR_PARAM);
    capture_stop();
    assert_int_equal(capture_lines, 1);
    mpath_pinned_release(&pinned);
    gpu_memory_free(&from);
    gpu_memory_free(&to);
}

static void test_without_kernels(void **state)
{
    mpath_cu_function_t function;

    (void)state;
    if (gpu_has_kernels(gpu_of(0))) {
        capture_start();
        assert_int_equal(mpath_kernel_find(gpu_of(0), "mpath_no_such_kernel", NULL, &function), MPATH_ERR_PARAM);
        capture_stop();
        assert_int_equal(capture_lines, 1);
        return;
    }
    assert_int_equal(mpath_launch_copy(stream_of(0, 0), &(mpath_launch_copy_t){.ctas = 0}), MPATH_ERR_UNSUPPORTED);
    assert_int_equal(mpath_kernel_find(gpu_of(0), MPATH_KERNEL_COPY, NULL, &function), MPATH_ERR_UNSUPPORTED);
}

/* The program again, in a process of its own, since what the driver can do is found out once. */
static int run_without(const char *what)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        setenv("FAKE_CUDA_WITHOUT", what, 1);
        execl("/proc/self/exe", "test_gpu_stream", "run", (char *)NULL);
        _exit(127);
    }
    return ((waitpid(pid, &status, 0) == pid) && WIFEXITED(status)) ? WEXITSTATUS(status) : 1;
}

int main(int count, char **words)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies_in_order),
        cmocka_unit_test(test_copies_at_once),
        cmocka_unit_test(test_copies_aside),
        cmocka_unit_test(test_while_a_stream_is_captured),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_staging_through_registered_memory),
        cmocka_unit_test(test_kernel_alignments_and_lengths),
        cmocka_unit_test(test_kernel_many_fragments_and_flags),
        cmocka_unit_test(test_without_kernels),
    };

    (void)words;
    without_kernels = (getenv("FAKE_CUDA_WITHOUT") != NULL) && (strcmp(getenv("FAKE_CUDA_WITHOUT"), "kernels") == 0);
    if ((count == 1) && (getenv("MPATH_TEST_CUDA") == NULL) &&
        ((run_without("values") != 0) || (run_without("kernels") != 0))) {
        return 1;
    }
    return cmocka_run_group_tests_name("gpu_stream", tests, gpu_group_setup, gpu_group_teardown);
}
