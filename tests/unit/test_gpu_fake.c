/* SPDX-License-Identifier: BSD-3-Clause */
/* The fake driver notices misuse: each case runs in a process of its own, which has to die, and to say why. */
#include "config.h"
#include "capture.h"
#include "gpu_kinds.h"
#include "device/kernels/copy.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define KIB UINT64_C(1024)

static const mpath_cu_t *cu;
static mpath_gpu_t *gpu;
static mpath_stream_t *stream;
static gpu_memory_t memory;

static void synchronize(void)
{
    mpath_mark_t mark;

    mpath_stream_mark(stream, &mark);
    mpath_stream_finish(stream, mark, UINT64_C(20) * 1000000000, "the case");
}

static void host_reads_device_memory(void)
{
    printf("%d\n", *(volatile char *)(uintptr_t)memory.address);
}

static void copy_beyond_the_end(void)
{
    mpath_stream_copy(stream, memory.address, memory.address + memory.bytes - 10, 11);
    synchronize();
}

static void copy_after_free(void)
{
    gpu_memory_free(&memory);
    mpath_stream_copy(stream, memory.address, memory.address + 100, 10);
    synchronize();
}

static void free_twice(void)
{
    gpu_memory_free(&memory);
    gpu_memory_free(&memory);
}

static void write_to_memory_that_is_not_registered(void)
{
    uint64_t word = 0;

    mpath_stream_write(stream, (uint64_t)(uintptr_t)&word, 1);
    synchronize();
}

static void kernel_on_pageable_memory(void)
{
    char bytes[64];
    mpath_kernel_fragment_t fragment = {.target = memory.address, .source = (uint64_t)(uintptr_t)bytes, .bytes = 64};

    mpath_launch_copy(stream, &(mpath_launch_copy_t){.fragments = &fragment, .fragments_count = 1});
    synchronize();
}

static void kernel_without_peer_access(void)
{
    mpath_kernel_fragment_t fragment = {.target = memory.address, .bytes = 64};
    gpu_memory_t other;

    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 1, KIB, 0, &other);
    fragment.source = other.address;
    mpath_launch_copy(stream, &(mpath_launch_copy_t){.fragments = &fragment, .fragments_count = 1});
    synchronize();
}

static void stream_in_another_context(void)
{
    mpath_cu_stream_t own;
    mpath_gpu_t *other;

    mpath_gpu_enter(gpu);
    cu->StreamCreateWithPriority(&own, MPATH_CU_STREAM_NON_BLOCKING, 0);
    mpath_gpu_get(1, NULL, &other);
    mpath_gpu_enter(other);
    cu->MemcpyAsync(memory.address, memory.address + 100, 10, own);
}

static void close_what_is_not_open(void)
{
    mpath_gpu_enter(gpu);
    cu->IpcCloseMemHandle(memory.address);
}

static const struct {
    const char *name;
    void (*run)(void);
    const char *says; /* NULL: killed by the access itself */
} cases[] = {
    {"host reads device memory", host_reads_device_memory, NULL},
    {"copy beyond the end", copy_beyond_the_end, "lie outside every allocation"},
    {"copy after free", copy_after_free, "lie outside every allocation"},
    {"free twice", free_twice, "no allocation that this call frees"},
    {"word not registered", write_to_memory_that_is_not_registered, "is not registered"},
    {"kernel on pageable memory", kernel_on_pageable_memory, "is not registered"},
    {"kernel without peer access", kernel_without_peer_access, "no peer access"},
    {"stream in another context", stream_in_another_context, "on a stream of device 0 while the context of device 1"},
    {"close what is not open", close_what_is_not_open, "which is no open import"},
};

#define CASES (sizeof(cases) / sizeof(cases[0]))

static int case_main(size_t index)
{
    const struct rlimit none = {0, 0};

    setrlimit(RLIMIT_CORE, &none);
    gpu_application_starts();
    cu = mpath_gpu_driver();
    if ((mpath_gpu_get(0, NULL, &gpu) != MPATH_OK) || (mpath_stream_get(gpu, 0, &stream) != MPATH_OK)) {
        return 3;
    }
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, 100 * KIB, 0, &memory);
    cases[index].run();
    return 0; /* not noticed */
}

static void test_misuse_ends_the_process(void **state)
{
    char said[4096], number[16];
    int pipes[2], status;
    ssize_t part;
    size_t index, length;
    pid_t pid;

    (void)state;
    for (index = 0; index < CASES; index++) {
        snprintf(number, sizeof(number), "%zu", index);
        assert_int_equal(pipe(pipes), 0);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            dup2(pipes[1], STDERR_FILENO);
            close(pipes[0]);
            close(pipes[1]);
            execl("/proc/self/exe", "test_gpu_fake", number, (char *)NULL);
            _exit(127);
        }
        close(pipes[1]);
        length = 0;
        while ((part = read(pipes[0], said + length, sizeof(said) - 1 - length)) > 0) {
            length += (size_t)part;
        }
        said[length] = '\0';
        close(pipes[0]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (WIFEXITED(status) && (WEXITSTATUS(status) == 0)) {
            fail_msg("%s: not noticed", cases[index].name);
        }
        if ((cases[index].says != NULL) && (strstr(said, cases[index].says) == NULL)) {
            fail_msg("%s: said \"%s\"", cases[index].name, said);
        }
    }
}

int main(int count, char **words)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_misuse_ends_the_process)};

    if (count > 1) {
        return case_main((size_t)atoi(words[1]) % CASES);
    }
    return cmocka_run_group_tests_name("gpu_fake", tests, NULL, NULL);
}
