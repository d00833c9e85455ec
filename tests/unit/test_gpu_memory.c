/* SPDX-License-Identifier: BSD-3-Clause */
/* Finding the driver, devices, contexts, memory kinds, and what can be exported. */
#include "capture.h"
#include "child.h"
#include "gpu_kinds.h"
#include "device/ipc_export.h"
#include "device/gpu_private.h"
#include "util/time.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

static int is_fake(void)
{
    return getenv("MPATH_TEST_CUDA") == NULL;
}

static mpath_memory_t classify(uint64_t address, size_t bytes)
{
    mpath_memory_t memory;

    assert_int_equal(mpath_memory_classify((const void *)(uintptr_t)address, bytes, &memory), MPATH_OK);
    return memory;
}

static char variable[100], filled[100] = "x";

/* What is known to be the host's without a driver: the program's variables, and its heap up to the break. */
static void test_memory_of_the_program(void **state)
{
    char *heap     = malloc(1000);
    uintptr_t end  = (uintptr_t)sbrk(0);
    int is_in_heap = (uintptr_t)heap + 1000 <= end && (uintptr_t)heap + (8 * MIB) > end; /* not that of a sanitizer */
    char *mapped   = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_non_null(heap);
    assert_true(mapped != MAP_FAILED);
    assert_true(mpath_memory_is_programs(variable, sizeof(variable)));
    assert_true(mpath_memory_is_programs(filled, sizeof(filled)));
    assert_int_equal(mpath_memory_is_programs(heap, 1000), is_in_heap);
    assert_false(mpath_memory_is_programs(mapped, MIB));
    assert_false(mpath_memory_is_programs(heap, (size_t)(end + 1 - (uintptr_t)heap)));
    assert_false(mpath_memory_is_programs(heap, SIZE_MAX));
    assert_false(mpath_memory_is_programs(variable, SIZE_MAX / 2));
    assert_false(mpath_memory_is_programs(NULL, 1));
    munmap(mapped, MIB);
    free(heap);
}

#define LOOKERS 2
#define LOOKER_CHILDREN 100 /* the second thread comes later each time, by 1 us */

static atomic_int num_ready;

typedef struct looker {
    uint64_t late_ns;
    int found;
} looker_t;

static void *look(void *argument)
{
    looker_t *looker = argument;
    uint64_t start_ns;

    atomic_fetch_add(&num_ready, 1);
    while (atomic_load(&num_ready) < LOOKERS) { /* who sleeps comes too late */
    }
    start_ns = mpath_time_ns();
    while (mpath_time_ns() - start_ns < looker->late_ns) {
    }
    looker->found = mpath_gpu_available();
    return NULL;
}

/* Each of several threads, of which none has looked before, finds the driver: also one that comes while another one looks. */
static int lookers_run(uint64_t late_ns)
{
    void *library = dlopen(gpu_library(), RTLD_NOW | RTLD_GLOBAL);
    looker_t lookers[LOOKERS];
    pthread_t threads[LOOKERS];
    int missed = 0;
    mpath_cu_result_t (*init)(unsigned);

    assert_non_null(library);
    *(void **)&init = dlsym(library, "cuInit");
    assert_int_equal(init(0), MPATH_CU_SUCCESS);
    for (int i = 0; i < LOOKERS; i++) {
        lookers[i].late_ns = (uint64_t)i * late_ns;
        assert_int_equal(pthread_create(&threads[i], NULL, look, &lookers[i]), 0);
    }
    for (int i = 0; i < LOOKERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        missed += !lookers[i].found;
    }
    return missed;
}

static void test_threads_find_the_driver_together(void **state)
{
    int failed = 0, status;

    (void)state;
    for (int i = 0; i < LOOKER_CHILDREN && is_fake(); i++) {
        pid_t child = child_fork();

        if (child == 0) {
            _exit(lookers_run((uint64_t)i * 1000));
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        failed += child_failed(i, status);
    }
    assert_int_equal(failed, 0);
}

/* The tests run in this order: at first the process has no driver. */
static void test_driver_is_found_when_the_application_starts_it(void **state)
{
    char host[64];

    (void)state;
    assert_false(mpath_gpu_available());
    assert_false(mpath_gpu_was_found());
    assert_int_equal(mpath_gpu_count(), 0);
    assert_int_equal(classify((uint64_t)(uintptr_t)host, sizeof(host)).kind, MPATH_MEMORY_HOST);
    assert_non_null(dlopen(gpu_library(), RTLD_NOW | RTLD_GLOBAL));
    assert_false(mpath_gpu_available()); /* there, but the application has not initialised it */
    assert_int_equal(classify((uint64_t)(uintptr_t)host, sizeof(host)).kind, MPATH_MEMORY_HOST);
    gpu_application_starts();
    assert_true(mpath_gpu_available());
    assert_true(mpath_gpu_was_found());
    assert_true(mpath_gpu_count() > 0);
    assert_int_equal(mpath_gpu_driver_start(), MPATH_OK);
}

static void test_devices_are_described(void **state)
{
    mpath_gpu_info_t info, other;

    (void)state;
    assert_int_equal(mpath_gpu_info(0, &info), MPATH_OK);
    assert_int_equal(info.ordinal, 0);
    assert_true(info.memory_bytes > MIB);
    assert_true(info.capability >= 80);
    assert_true(info.multiprocessors > 0);
    assert_int_equal(strlen(info.pci), strlen("0000:3b:00.0"));
    assert_int_equal(mpath_gpu_find(&info.uuid), 0);
    if (mpath_gpu_count() > 1) {
        assert_int_equal(mpath_gpu_info(1, &other), MPATH_OK);
        assert_string_not_equal(info.pci, other.pci);
        assert_int_equal(mpath_gpu_find(&other.uuid), 1);
    }
    memset(&other.uuid, 0xee, sizeof(other.uuid));
    assert_int_equal(mpath_gpu_find(&other.uuid), -1);
    capture_start();
    assert_int_equal(mpath_gpu_info(99, &other), MPATH_ERR_PARAM);
    capture_stop();
    assert_non_null(strstr(capture_buffer, "there is no GPU 99"));
}

static void check_kind(mpath_memory_kind_t kind, int blocks, int exportable)
{
    gpu_memory_t made;
    mpath_memory_t memory;
    mpath_export_t export;
    mpath_status_t status;

    gpu_memory_alloc(kind, 0, 3 * MIB + 13, blocks, &made);
    if (!mpath_memory_on_host(kind)) {
        assert_false(mpath_memory_is_programs((void *)(uintptr_t)made.address, 1));
    }
    memory = classify(made.address + 12345, 1000);
    assert_string_equal(mpath_memory_kind_name(memory.kind), mpath_memory_kind_name(kind));
    if (!mpath_memory_on_host(kind)) {
        assert_true(memory.base <= made.address);
        assert_true(memory.base + memory.bytes >=
                    made.address + ((kind == MPATH_MEMORY_VMM) ? made.block_bytes : made.bytes));
        assert_int_not_equal(memory.buffer_id, 0);
        if (kind != MPATH_MEMORY_MANAGED) {
            assert_int_equal(memory.device, 0);
        }
    } else {
        assert_int_equal(memory.device, -1);
    }
    assert_int_equal(memory.exportable, exportable);
    assert_int_equal(classify(made.address, 0).kind, MPATH_MEMORY_HOST);
    status = mpath_export_make((void *)(uintptr_t)made.address, 1000, &memory, &export);
    assert_int_equal(status, exportable ? MPATH_OK : MPATH_DECLINED);
    if (exportable) {
        assert_true((export.base <= made.address) && (made.address + 1000 <= export.base + export.bytes));
    }
    gpu_memory_free(&made);
    if (is_fake() && (kind == MPATH_MEMORY_DEVICE)) {
        assert_int_equal(classify(made.address, 1000).kind, MPATH_MEMORY_HOST); /* freed: unknown to the driver */
    }
}

static void test_kinds(void **state)
{
    (void)state;
    check_kind(MPATH_MEMORY_HOST, 0, 0);
    check_kind(MPATH_MEMORY_REGISTERED, 0, 0);
    check_kind(MPATH_MEMORY_DEVICE, 0, 1);
    check_kind(MPATH_MEMORY_MANAGED, 0, 0);
    check_kind(MPATH_MEMORY_VMM, 1, 1);
    check_kind(MPATH_MEMORY_VMM, 3, 1);
    check_kind(MPATH_MEMORY_POOL, 0, 0);
    check_kind(MPATH_MEMORY_POOL, 1, 1);
}

static void test_buffers_over_several_mappings(void **state)
{
    gpu_memory_t made;
    mpath_memory_t memory;
    mpath_export_t export;
    const void *late;

    (void)state;
    gpu_memory_alloc(MPATH_MEMORY_VMM, 0, 12 * MIB, 3, &made);
    memory = classify(made.address, made.bytes);
    assert_int_equal(memory.blocks, 3);
    assert_int_equal(memory.bytes, made.block_bytes);
    assert_int_equal(mpath_export_make((void *)(uintptr_t)made.address, made.bytes, &memory, &export), MPATH_OK);
    assert_int_equal(export.how, MPATH_EXPORT_FDS);
    assert_int_equal(export.blocks, 3);
    assert_int_equal(export.bytes, made.bytes);
    late   = (void *)(uintptr_t)(made.address + made.block_bytes + 100);
    memory = classify((uint64_t)(uintptr_t)late, made.block_bytes);
    assert_int_equal(memory.blocks, 2);
    assert_int_equal(memory.base, made.address + made.block_bytes);
    assert_int_equal(mpath_export_make(late, made.block_bytes, &memory, &export), MPATH_OK);
    assert_int_equal(export.blocks, 2);
    assert_true((export.base <= (uint64_t)(uintptr_t)late) &&
                ((uint64_t)(uintptr_t)late + made.block_bytes <= export.base + export.bytes));
    gpu_memory_free(&made);
}

/* One kind of handle is enough, and descriptors come first; what the driver refuses to export is told of once. */
static void test_fabric_handles(void **state)
{
    gpu_memory_t made;
    mpath_memory_t memory;
    mpath_export_t export;

    (void)state;
    if (!gpu_makes_fabric_handles(0)) {
        skip();
    }
    gpu_memory_alloc(MPATH_MEMORY_VMM, 0, 12 * MIB, -3, &made);
    memory = classify(made.address, made.bytes);
    assert_int_equal(memory.kind, MPATH_MEMORY_VMM);
    assert_true(memory.exportable && memory.fabric);
    if (is_fake()) {
        setenv("FAKE_CUDA_WITHOUT", "imex", 1);
        capture_start();
        for (int round = 0; round < 3; round++) {
            assert_int_equal(mpath_export_make((void *)(uintptr_t)made.address, made.bytes, &memory, &export),
                             MPATH_DECLINED);
        }
        capture_stop();
        unsetenv("FAKE_CUDA_WITHOUT");
        assert_int_equal(capture_lines, 1);
        assert_non_null(strstr(capture_buffer, "IMEX"));
    }
    assert_int_equal(mpath_export_make((void *)(uintptr_t)made.address, made.bytes, &memory, &export), MPATH_OK);
    assert_int_equal(export.how, MPATH_EXPORT_FABRIC);
    assert_int_equal(export.blocks, 3);
    assert_int_equal(export.bytes, made.bytes);
    gpu_memory_free(&made);
    gpu_memory_alloc(MPATH_MEMORY_VMM, 0, 2 * MIB * (MPATH_EXPORT_FABRIC_MAX + 1), -(MPATH_EXPORT_FABRIC_MAX + 1),
                     &made);
    memory = classify(made.address, made.bytes);
    assert_int_equal(mpath_export_make((void *)(uintptr_t)made.address, made.bytes, &memory, &export), MPATH_DECLINED);
    gpu_memory_free(&made);
    gpu_memory_alloc(MPATH_MEMORY_VMM, 0, 2 * MIB, 1, &made);
    assert_false(classify(made.address, made.bytes).fabric);
    gpu_memory_free(&made);
}

static int descriptors_open(void)
{
    int open = 0;

    for (int fd = 0; fd < 2000; fd++) {
        open += fcntl(fd, F_GETFD) >= 0;
    }
    return open;
}

static mpath_status_t export_part(const gpu_memory_t *made, int from, int blocks)
{
    uint64_t address = made->address + (uint64_t)from * made->block_bytes, bytes = (uint64_t)blocks * made->block_bytes;
    mpath_memory_t memory = classify(address, bytes);
    mpath_export_t export;

    return mpath_export_make((void *)(uintptr_t)address, bytes, &memory, &export);
}

/* Exports share the descriptors of their blocks, and take half of what the process may have; the message names that. */
static void test_many_blocks(void **state)
{
    struct rlimit limit, lower;
    int before, low[200];
    gpu_memory_t made;

    (void)state;
    mpath_export_cleanup();
    for (int i = 0; i < 200; i++) {
        low[i] = dup(STDIN_FILENO);
    }
    gpu_memory_alloc(MPATH_MEMORY_VMM, 0, 120 * 2 * MIB, 120, &made); /* the driver's own descriptors are higher ones */
    for (int i = 0; i < 200; i++) {
        close(low[i]);
    }
    before = descriptors_open();
    for (int from = 0; from < 10; from++) {
        assert_int_equal(export_part(&made, from, 100), MPATH_OK);
    }
    if (!is_fake()) { /* which opens more, at its leisure */
        gpu_memory_free(&made);
        return;
    }
    assert_int_equal(descriptors_open() - before, 109 + 10);
    getrlimit(RLIMIT_NOFILE, &limit);
    lower = (struct rlimit){.rlim_cur = 100, .rlim_max = limit.rlim_max};
    setrlimit(RLIMIT_NOFILE, &lower);
    capture_start();
    assert_int_equal(export_part(&made, 0, 60), MPATH_DECLINED);
    capture_stop();
    setrlimit(RLIMIT_NOFILE, &limit);
    assert_non_null(
        strstr(capture_buffer, "can open 50, half as many as this process may have files open (ulimit -n)"));
    assert_int_equal(descriptors_open(), before); /* the older ones had to go */
    assert_int_equal(export_part(&made, 20, 100), MPATH_OK);
    gpu_memory_free(&made);
}

static void test_buffers_beyond_their_allocation(void **state)
{
    gpu_memory_t made;
    mpath_memory_t memory = {.device = 77};

    (void)state;
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, MIB, 0, &made);
    capture_start();
    assert_int_equal(mpath_memory_classify((void *)(uintptr_t)(made.address + 10), 600 * MIB, &memory),
                     MPATH_ERR_PARAM);
    capture_stop();
    assert_non_null(strstr(capture_buffer, "reaches beyond its allocation"));
    assert_int_equal(memory.device, 77);
    gpu_memory_free(&made);
    gpu_memory_alloc(MPATH_MEMORY_VMM, 0, 4 * MIB, 2, &made);
    capture_start();
    assert_int_equal(mpath_memory_classify((void *)(uintptr_t)made.address, made.bytes + 1, &memory), MPATH_ERR_PARAM);
    capture_stop();
    assert_int_equal(capture_lines, 1);
    gpu_memory_free(&made);
}

static void test_exports_follow_the_allocation(void **state)
{
    mpath_export_t first, second;
    mpath_memory_t memory;
    gpu_memory_t made;

    (void)state;
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, MIB, 0, &made);
    memory = classify(made.address + 100, 100);
    assert_int_equal(mpath_export_make((void *)(uintptr_t)(made.address + 100), 100, &memory, &first), MPATH_OK);
    memory = classify(made.address + 5000, 10);
    assert_int_equal(mpath_export_make((void *)(uintptr_t)(made.address + 5000), 10, &memory, &second), MPATH_OK);
    assert_memory_equal(&first, &second, sizeof(first));
    gpu_memory_free(&made);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, MIB, 0, &made);
    memory = classify(made.address, 100);
    assert_int_equal(mpath_export_make((void *)(uintptr_t)made.address, 100, &memory, &second), MPATH_OK);
    assert_int_not_equal(first.buffer_id, second.buffer_id);
    if (is_fake()) {
        assert_int_equal(first.base, second.base);
    }
    gpu_memory_free(&made);
}

/* What the driver refuses is told of once, not in each call. */
static void test_refused_exports(void **state)
{
    mpath_memory_t memory;
    mpath_export_t export;
    gpu_memory_t made[2];

    (void)state;
    if (!is_fake()) {
        skip();
    }
    setenv("FAKE_CUDA_WITHOUT", "ipc", 1);
    capture_start();
    for (int i = 0; i < 4; i++) {
        if (i < 2) {
            gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, MIB, 0, &made[i]);
        }
        memory = classify(made[i % 2].address, MIB);
        assert_int_equal(mpath_export_make((void *)(uintptr_t)made[i % 2].address, MIB, &memory, &export),
                         MPATH_DECLINED);
    }
    capture_stop();
    unsetenv("FAKE_CUDA_WITHOUT");
    assert_int_equal(capture_lines, 1);
    assert_non_null(strstr(capture_buffer, "cuIpcGetMemHandle"));
    gpu_memory_free(&made[0]);
    gpu_memory_free(&made[1]);
}

#define POOLS (MPATH_EXPORTS_MAX + 4)

/* More than are kept: each of them can be exported, the first one again after the others. */
static void test_many_pools(void **state)
{
    gpu_memory_t made[POOLS];
    mpath_export_t export, first = {.how = MPATH_EXPORT_NONE};
    mpath_memory_t memory;

    (void)state;
    for (int i = 0; i <= POOLS; i++) {
        int number = i % POOLS;

        if (i < POOLS) {
            gpu_memory_alloc(MPATH_MEMORY_POOL, 0, 100000, 1, &made[number]);
        }
        memory = classify(made[number].address, 100000);
        assert_int_equal(mpath_export_make((void *)(uintptr_t)made[number].address, 100000, &memory, &export),
                         MPATH_OK);
        assert_int_equal(export.how, MPATH_EXPORT_POOL);
        assert_true(fcntl(export.handle.pool.fd, F_GETFD) >= 0);
        if (i == 0) {
            first = export;
        } else {
            assert_int_not_equal(export.handle.pool.pool, first.handle.pool.pool);
        }
    }
    for (int i = 0; i < POOLS; i++) {
        gpu_memory_free(&made[i]);
    }
}

static void test_the_current_context_stays(void **state)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    mpath_cu_context_t before, after;
    mpath_export_t export;
    mpath_memory_t memory;
    gpu_memory_t made;
    mpath_gpu_t *gpu, *same;
    int device = mpath_gpu_count() - 1;

    (void)state;
    assert_int_equal(cu->CtxGetCurrent(&before), MPATH_CU_SUCCESS);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, device, MIB, 0, &made);
    memory = classify(made.address, made.bytes);
    assert_int_equal(memory.device, device);
    assert_int_equal(mpath_export_make((void *)(uintptr_t)made.address, made.bytes, &memory, &export), MPATH_OK);
    assert_int_equal(mpath_gpu_get(device, NULL, &gpu), MPATH_OK);
    assert_int_equal(mpath_gpu_get(memory.device, memory.context, &same), MPATH_OK);
    assert_ptr_equal(gpu, same); /* the primary context, by either name */
    assert_int_equal(mpath_gpu_enter(gpu), MPATH_OK);
    assert_int_equal(mpath_gpu_enter(gpu), MPATH_OK);
    mpath_gpu_leave(gpu);
    mpath_gpu_leave(gpu);
    capture_start();
    mpath_gpu_leave(gpu);
    capture_stop();
    assert_int_equal(capture_lines, 1);
    assert_int_equal(cu->CtxGetCurrent(&after), MPATH_CU_SUCCESS);
    assert_ptr_equal(before, after);
    gpu_memory_free(&made);
}

/* An application that makes its own contexts: memory belongs to the one that allocated it. */
static void test_contexts_of_the_application(void **state)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    mpath_cu_result_t (*create)(mpath_cu_context_t *, unsigned, mpath_cu_device_t);
    mpath_cu_result_t (*destroy)(mpath_cu_context_t);
    void *library = dlopen(gpu_library(), RTLD_NOW | RTLD_NOLOAD);
    mpath_cu_context_t context, current;
    mpath_gpu_t *gpu, *primary;
    mpath_stream_t *stream;
    mpath_memory_t memory;
    mpath_export_t export;
    mpath_mark_t mark;
    mpath_cu_ptr_t pointer;

    (void)state;
    *(void **)&create  = dlsym(library, "cuCtxCreate_v2");
    *(void **)&destroy = dlsym(library, "cuCtxDestroy_v2");
    assert_int_equal(create(&context, 0, 0), MPATH_CU_SUCCESS);
    assert_int_equal(cu->MemAlloc(&pointer, MIB), MPATH_CU_SUCCESS);
    memory = classify(pointer, MIB);
    assert_ptr_equal(memory.context, context);
    assert_int_equal(mpath_gpu_get(memory.device, memory.context, &gpu), MPATH_OK);
    assert_int_equal(mpath_gpu_get(memory.device, NULL, &primary), MPATH_OK);
    assert_ptr_not_equal(gpu, primary);
    assert_int_equal(mpath_export_make((void *)(uintptr_t)pointer, MIB, &memory, &export), MPATH_OK);
    assert_int_equal(mpath_stream_get(gpu, 0, &stream), MPATH_OK);
    assert_int_equal(mpath_stream_copy(stream, pointer, pointer + MIB / 2, MIB / 2), MPATH_OK);
    assert_int_equal(mpath_stream_mark(stream, &mark), MPATH_OK);
    assert_int_equal(mpath_stream_finish(stream, mark, UINT64_C(20) * 1000000000, "a copy"), MPATH_OK);
    assert_int_equal(cu->CtxGetCurrent(&current), MPATH_CU_SUCCESS);
    assert_ptr_equal(current, context);
    assert_int_equal(cu->MemFree(pointer), MPATH_CU_SUCCESS);
    mpath_gpu_cleanup();
    assert_int_equal(destroy(context), MPATH_CU_SUCCESS);
    assert_int_equal(dlclose(library), 0);
}

static void test_cleanup_and_again(void **state)
{
    (void)state;
    mpath_gpu_cleanup();
    mpath_gpu_cleanup();
    check_kind(MPATH_MEMORY_DEVICE, 0, 1);
    check_kind(MPATH_MEMORY_VMM, 2, 1);
    mpath_gpu_cleanup();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_of_the_program),
        cmocka_unit_test(test_threads_find_the_driver_together),
        cmocka_unit_test(test_driver_is_found_when_the_application_starts_it),
        cmocka_unit_test(test_devices_are_described),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_buffers_over_several_mappings),
        cmocka_unit_test(test_fabric_handles),
        cmocka_unit_test(test_many_blocks),
        cmocka_unit_test(test_buffers_beyond_their_allocation),
        cmocka_unit_test(test_exports_follow_the_allocation),
        cmocka_unit_test(test_refused_exports),
        cmocka_unit_test(test_many_pools),
        cmocka_unit_test(test_the_current_context_stays),
        cmocka_unit_test(test_contexts_of_the_application),
        cmocka_unit_test(test_cleanup_and_again),
    };

    return cmocka_run_group_tests_name("gpu_memory", tests, NULL, NULL);
}
