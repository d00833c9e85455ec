/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the GPU room costs on this machine: nanoseconds of its calls, latency of streams and kernels, bandwidth of the
 * copy kernel and the copy engine. No test: prints figures. Runs on the driver of the machine unless MPATH_TEST_CUDA
 * says else.
 */
#include "config.h"
#include "gpu_kinds.h"
#include "device/ipc_export.h"
#include "device/ipc_import.h"
#include "device/kernels/copy.h"
#include "util/time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define ROUNDS 301
#define DEADLINE_NS (UINT64_C(20) * 1000000000)

static void require(mpath_status_t status, const char *what)
{
    if (status != MPATH_OK) {
        fprintf(stderr, "%s: %s\n", what, mpath_status_string(status));
        exit(1);
    }
}

static int compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

    return (a > b) - (a < b);
}

static uint64_t samples[ROUNDS];

static void report(const char *what)
{
    qsort(samples, ROUNDS, sizeof(samples[0]), compare);
    printf("%-46s median %8.2f us   min %8.2f   p99 %8.2f\n", what, (double)samples[ROUNDS / 2] / 1e3,
           (double)samples[0] / 1e3, (double)samples[ROUNDS * 99 / 100] / 1e3);
    fflush(stdout);
}

#define MEASURE(_what, ...)                                                                                            \
    do {                                                                                                               \
        int measure_round;                                                                                             \
        for (measure_round = 0; measure_round < ROUNDS; measure_round++) {                                             \
            uint64_t measure_start = mpath_time_ns();                                                                  \
            __VA_ARGS__;                                                                                               \
            samples[measure_round] = mpath_time_ns() - measure_start;                                                  \
        }                                                                                                              \
        report(_what);                                                                                                 \
    } while (0)

static void figures_classify(void)
{
    static const mpath_memory_kind_t kinds[] = {MPATH_MEMORY_HOST, MPATH_MEMORY_REGISTERED, MPATH_MEMORY_DEVICE,
                                                MPATH_MEMORY_POOL, MPATH_MEMORY_VMM,        MPATH_MEMORY_MANAGED};
    mpath_memory_t memory;
    gpu_memory_t made;
    char text[80];
    size_t index;

    for (index = 0; index < sizeof(kinds) / sizeof(kinds[0]); index++) {
        gpu_memory_alloc(kinds[index], 0, 8 * MIB, (kinds[index] == MPATH_MEMORY_VMM) ? 2 : 0, &made);
        snprintf(text, sizeof(text), "classify %s memory", mpath_memory_kind_name(kinds[index]));
        MEASURE(text, require(mpath_memory_classify((void *)(uintptr_t)made.address, 100, &memory), "classify"));
        if (kinds[index] == MPATH_MEMORY_VMM) {
            printf("  vmm of 2 x %llu: base +%lld, %llu bytes, buffer id %llu\n", (unsigned long long)made.block_bytes,
                   (long long)(memory.base - made.address), (unsigned long long)memory.bytes,
                   (unsigned long long)memory.buffer_id);
        }
        gpu_memory_free(&made);
    }
}

/* Another process opens what this one names. */
static void figures_import(void)
{
    static const struct {
        mpath_memory_kind_t kind;
        int fragments;
        const char *name;
    } cases[] = {{MPATH_MEMORY_DEVICE, 0, "device, 64 MiB"},
                 {MPATH_MEMORY_VMM, 1, "vmm, 64 MiB, 1 fragment"},
                 {MPATH_MEMORY_VMM, 8, "vmm, 64 MiB, 8 fragments"},
                 {MPATH_MEMORY_POOL, 1, "exportable pool, 64 MiB"}};
    mpath_export_t export;
    mpath_memory_t memory;
    gpu_memory_t made;
    uint64_t start;
    size_t index;
    char path[64];
    int pipes[2];
    pid_t pid;

    for (index = 0; index < sizeof(cases) / sizeof(cases[0]); index++) {
        gpu_memory_alloc(cases[index].kind, 0, 64 * MIB, cases[index].fragments, &made);
        require(mpath_memory_classify((void *)(uintptr_t)made.address, made.bytes, &memory), "classify");
        start = mpath_time_ns();
        require(mpath_export_make((void *)(uintptr_t)made.address, made.bytes, &memory, &export), "export");
        printf("%-46s first  %8.2f us\n", "export", (double)(mpath_time_ns() - start) / 1e3);
        MEASURE("export, cached",
                require(mpath_export_make((void *)(uintptr_t)made.address, made.bytes, &memory, &export), "export"));
        fflush(stdout);
        if (pipe(pipes) != 0) {
            exit(1);
        }
        pid = fork();
        if (pid == 0) {
            dup2(pipes[0], STDIN_FILENO);
            snprintf(path, sizeof(path), "%s", cases[index].name);
            execl("/proc/self/exe", "gpu_figures", "import", path, (char *)NULL);
            _exit(127);
        }
        if (write(pipes[1], &export, sizeof(export)) != (ssize_t)sizeof(export)) {
            exit(1);
        }
        waitpid(pid, NULL, 0);
        close(pipes[0]);
        close(pipes[1]);
        gpu_memory_free(&made);
    }
}

static int import_main(const char *name)
{
    mpath_import_t *import;
    mpath_export_t export;
    mpath_gpu_t *gpu;
    uint64_t start;
    int round, device;

    gpu_application_starts();
    if (read(STDIN_FILENO, &export, sizeof(export)) != (ssize_t)sizeof(export)) {
        return 1;
    }
    device = mpath_gpu_count() - 1;
    require(mpath_gpu_get(device, NULL, &gpu), "gpu");
    for (round = 0; round < 3; round++) {
        start = mpath_time_ns();
        require(mpath_import_get(&export, gpu, &import), "import");
        printf("import of %s on GPU %d: open %.1f us, ", name, device, (double)(mpath_time_ns() - start) / 1e3);
        mpath_import_put(import);
        start = mpath_time_ns();
        mpath_import_forget(&export.owner);
        printf("close %.1f us\n", (double)(mpath_time_ns() - start) / 1e3);
    }
    require(mpath_import_get(&export, gpu, &import), "import");
    mpath_import_put(import);
    MEASURE("import, cached", require(mpath_import_get(&export, gpu, &import), "import"); mpath_import_put(import));
    mpath_gpu_cleanup();
    return 0;
}

static void finish(mpath_stream_t *stream, mpath_mark_t mark)
{
    require(mpath_stream_finish(stream, mark, DEADLINE_NS, "figures"), "finish");
}

static void launch(mpath_stream_t *stream, mpath_launch_copy_t copy)
{
    mpath_mark_t mark;

    copy.mark_p = &mark;
    require(mpath_launch_copy(stream, &copy), "launch");
    finish(stream, mark);
}

static void figures_kernels(mpath_stream_t *stream, const gpu_memory_t *from, const gpu_memory_t *to)
{
    mpath_kernel_fragment_t fragments[8];
    mpath_mark_t mark;
    int index;

    for (index = 0; index < 8; index++) {
        fragments[index] = (mpath_kernel_fragment_t){.target = to->address + (uint64_t)index * MIB,
                                                     .source = from->address + (uint64_t)index * MIB,
                                                     .bytes  = 4096};
    }
    MEASURE("kernel without fragments, until its mark is seen", launch(stream, (mpath_launch_copy_t){.ctas = 1}));
    MEASURE("kernel, 8 x 4 KiB, 1 CTA",
            launch(stream, (mpath_launch_copy_t){.fragments = fragments, .fragments_count = 8, .ctas = 1}));
    MEASURE("kernel, 8 x 4 KiB", launch(stream, (mpath_launch_copy_t){.fragments = fragments, .fragments_count = 8}));
    for (index = 0; index < 8; index++) {
        fragments[index].bytes = 65536;
    }
    MEASURE("kernel, 8 x 64 KiB", launch(stream, (mpath_launch_copy_t){.fragments = fragments, .fragments_count = 8}));
    MEASURE("kernel, 8 x 64 KiB, 8 CTAs",
            launch(stream, (mpath_launch_copy_t){.fragments = fragments, .fragments_count = 8, .ctas = 8}));
    MEASURE("kernel enqueued (host's part)",
            require(mpath_launch_copy(stream, &(mpath_launch_copy_t){.fragments = fragments, .fragments_count = 8}),
                    "launch"));
    require(mpath_stream_mark(stream, &mark), "mark");
    finish(stream, mark);
}

static void figures_latency(void)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    mpath_stream_t *stream;
    mpath_cu_stream_t own;
    mpath_cu_event_t event;
    gpu_memory_t from, to;
    mpath_mark_t mark;
    mpath_gpu_t *gpu;
    uint64_t start;
    int has_kernels;

    require(mpath_gpu_get(0, NULL, &gpu), "gpu");
    require(mpath_stream_get(gpu, 0, &stream), "stream");
    MEASURE("enter and leave", require(mpath_gpu_enter(gpu), "enter"); mpath_gpu_leave(gpu));
    start       = mpath_time_ns();
    has_kernels = mpath_kernels_usable(gpu);
    printf("kernels: %s, loaded in %.1f ms; values: %s\n", has_kernels ? "usable" : "none",
           (double)(mpath_time_ns() - start) / 1e6, mpath_stream_has_values(stream) ? "yes" : "no");
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, 16 * MIB, 0, &from);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, mpath_gpu_count() - 1, 16 * MIB, 0, &to);
    if (!mpath_gpu_reaches(gpu, mpath_gpu_count() - 1)) {
        printf("no peer access\n");
    }
    MEASURE("mark, until seen", require(mpath_stream_mark(stream, &mark), "mark"); finish(stream, mark));
    MEASURE("copy of 8 bytes + mark, until seen",
            require(mpath_stream_copy(stream, to.address, from.address, 8), "copy");
            require(mpath_stream_mark(stream, &mark), "mark"); finish(stream, mark));
    MEASURE("copy of 64 KiB + mark, until seen",
            require(mpath_stream_copy(stream, to.address, from.address, 65536), "copy");
            require(mpath_stream_mark(stream, &mark), "mark"); finish(stream, mark));
    require(mpath_gpu_enter(gpu), "enter");
    cu->EventCreate(&event, MPATH_CU_EVENT_DISABLE_TIMING);
    cu->StreamCreateWithPriority(&own, MPATH_CU_STREAM_NON_BLOCKING, 0);
    MEASURE("copy of 8 bytes + event, until queried", cu->MemcpyAsync(to.address, from.address, 8, own);
            cu->EventRecord(event, own); while (cu->EventQuery(event) == MPATH_CU_NOT_READY){});
    cu->StreamDestroy(own);
    cu->EventDestroy(event);
    mpath_gpu_leave(gpu);
    MEASURE("copy enqueued (host's part)", require(mpath_stream_copy(stream, to.address, from.address, 8), "copy"));
    require(mpath_stream_mark(stream, &mark), "mark");
    finish(stream, mark);
    MEASURE("mark enqueued (host's part)", require(mpath_stream_mark(stream, &mark), "mark"));
    finish(stream, mark);
    if (has_kernels) {
        figures_kernels(stream, &from, &to);
    }
    gpu_memory_free(&from);
    gpu_memory_free(&to);
}

static void bandwidth_of(mpath_stream_t *stream, const char *what, uint64_t target, uint64_t source, uint64_t bytes,
                         int kernel, unsigned ctas)
{
    mpath_kernel_fragment_t fragment = {.target = target, .source = source, .bytes = bytes};
    uint64_t start, best = UINT64_MAX, took;
    mpath_mark_t mark;
    int round;

    for (round = 0; round < 5; round++) {
        start = mpath_time_ns();
        if (kernel) {
            launch(stream, (mpath_launch_copy_t){.fragments = &fragment, .fragments_count = 1, .ctas = ctas});
        } else {
            require(mpath_stream_copy(stream, target, source, bytes), "copy");
            require(mpath_stream_mark(stream, &mark), "mark");
            finish(stream, mark);
        }
        took = mpath_time_ns() - start;
        best = (took < best) ? took : best;
    }
    printf("%-46s %8.1f GB/s\n", what, (double)bytes / (double)best);
    fflush(stdout);
}

static void figures_bandwidth(void)
{
    const uint64_t bytes = 256 * MIB;
    int peer             = mpath_gpu_count() - 1;
    mpath_stream_t *stream;
    gpu_memory_t from, to;
    mpath_gpu_t *gpu;
    unsigned ctas, shift;
    char text[80];

    require(mpath_gpu_get(0, NULL, &gpu), "gpu");
    require(mpath_stream_get(gpu, 0, &stream), "stream");
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, bytes + 64, 0, &from);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, peer, bytes + 64, 0, &to);
    if (!mpath_gpu_reaches(gpu, peer)) {
        return;
    }
    snprintf(text, sizeof(text), "copy engine, GPU 0 to %d", peer);
    bandwidth_of(stream, text, to.address, from.address, bytes, 0, 0);
    bandwidth_of(stream, "copy engine, back", from.address, to.address, bytes, 0, 0);
    if (mpath_kernels_usable(gpu)) {
        for (ctas = 4; ctas <= 64; ctas *= 2) {
            snprintf(text, sizeof(text), "kernel, %u CTAs, write", ctas);
            bandwidth_of(stream, text, to.address, from.address, bytes, 1, ctas);
            snprintf(text, sizeof(text), "kernel, %u CTAs, read", ctas);
            bandwidth_of(stream, text, from.address, to.address, bytes, 1, ctas);
        }
        for (shift = 8; shift > 0; shift /= 2) {
            snprintf(text, sizeof(text), "kernel, 64 CTAs, write, %u bytes out of line", shift);
            bandwidth_of(stream, text, to.address + shift, from.address, bytes, 1, 64);
        }
    }
    gpu_memory_free(&from);
    gpu_memory_free(&to);
}

int main(int count, char **words)
{
    char host[64];
    mpath_memory_t memory;
    uint64_t start;

    setenv("MPATH_TEST_CUDA", "libcuda.so.1", 0);
    if ((count > 2) && (strcmp(words[1], "import") == 0)) {
        return import_main(words[2]);
    }
    MEASURE("classify, no driver in the process",
            require(mpath_memory_classify(host, sizeof(host), &memory), "classify"));
    start = mpath_time_ns();
    gpu_application_starts();
    printf("driver started in %.1f ms, %d GPUs\n", (double)(mpath_time_ns() - start) / 1e6, mpath_gpu_count());
    figures_classify();
    figures_import();
    figures_latency();
    figures_bandwidth();
    mpath_gpu_cleanup();
    return 0;
}
