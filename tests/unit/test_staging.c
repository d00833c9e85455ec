/* SPDX-License-Identifier: BSD-3-Clause */
/* Staging buffers: ranges to the host and back; what has been stored is there for every stream, not only for the default one. */
#include "config.h"
#include "coll/staging.h"
#include "device/kernels/copy.h"
#include "device/usage.h"
#include "gpu_kinds.h"
#include "fake_cuda/fake.h"
#include "device/pinned.h"
#include "device/gpu.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define BYTES (UINT64_C(3) << 20)
#define RANGES_BYTES (UINT64_C(64) << 10)
#define RANGES_MOST 40u
#define DEADLINE_NS (UINT64_C(60) * 1000000000)

static const mpath_memory_kind_t kinds[] = {MPATH_MEMORY_DEVICE, MPATH_MEMORY_POOL, MPATH_MEMORY_VMM};

static char ports_path[] = "/tmp/mpath-ports.XXXXXX";
static fake_ports_t *ports; /* the driver without a GPU counts there */
static mpath_gpu_t *gpu;
static mpath_pinned_t pinned;

static void open_staging_of(mpath_memory_kind_t kind, uint64_t bytes, gpu_memory_t *memory, mpath_staging_t *staging)
{
    mpath_memory_t classified;
    void *address;

    gpu_memory_alloc(kind, 0, bytes, 1, memory);
    address = (void *)(uintptr_t)memory->address;
    assert_int_equal(mpath_memory_classify(address, bytes, &classified), MPATH_OK);
    assert_int_equal(mpath_staging_open(address, bytes, &classified, staging), MPATH_OK);
}

static void open_staging(mpath_memory_kind_t kind, gpu_memory_t *memory, mpath_staging_t *staging)
{
    open_staging_of(kind, BYTES, memory, staging);
}

static void close_staging(gpu_memory_t *memory, mpath_staging_t *staging)
{
    mpath_staging_close(staging);
    assert_null(staging->host);
    mpath_staging_close(staging);
    gpu_memory_free(memory);
}

/* As a kernel of another stream would see it: nothing here waits for the default stream. */
static const unsigned char *seen_by_a_stream(uint64_t address, uint64_t bytes)
{
    mpath_stream_t *stream;
    mpath_mark_t mark;

    assert_int_equal(mpath_stream_get(gpu, 0, &stream), MPATH_OK);
    assert_int_equal(mpath_stream_copy(stream, pinned.device_base, address, bytes), MPATH_OK);
    assert_int_equal(mpath_stream_mark(stream, &mark), MPATH_OK);
    assert_int_equal(mpath_stream_finish(stream, mark, DEADLINE_NS, "the test"), MPATH_OK);
    return pinned.base;
}

static void test_stored(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        mpath_staging_t staging;
        gpu_memory_t memory;
        unsigned char *host;

        open_staging(kinds[k], &memory, &staging);
        host = staging.host;
        for (uint64_t i = 0; i < BYTES; i++) {
            host[i] = gpu_pattern(k, i);
        }
        assert_int_equal(mpath_staging_store(&staging, 0, BYTES), MPATH_OK);
        assert_int_equal(mpath_staging_wait(&staging, 1), MPATH_OK);
        assert_memory_equal(seen_by_a_stream(memory.address, BYTES), host, BYTES);
        memset(host + 1000, 0x5a, 7);
        host[5000]++; /* outside of what is stored */
        assert_int_equal(mpath_staging_store(&staging, 1000, 7), MPATH_OK);
        assert_int_equal(mpath_staging_store(&staging, 5000, 0), MPATH_OK);
        assert_int_equal(mpath_staging_wait(&staging, 1), MPATH_OK);
        host[5000]--;
        assert_memory_equal(seen_by_a_stream(memory.address, BYTES), host, BYTES);
        close_staging(&memory, &staging);
    }
}

/* Many ranges at once, in so many launches of a kernel; and what is between them stays. */
static void store_ranges(size_t kind, unsigned count, uint64_t launches)
{
    static unsigned char wanted[RANGES_BYTES];
    mpath_staging_range_t ranges[RANGES_MOST];
    mpath_gpu_usage_t before, after;
    mpath_staging_t staging;
    gpu_memory_t memory;
    unsigned char *host;
    size_t at = 3;

    open_staging_of(kinds[kind], RANGES_BYTES, &memory, &staging);
    host = staging.host;
    gpu_pattern_write(memory.address, RANGES_BYTES, kind);
    for (uint64_t i = 0; i < RANGES_BYTES; i++) {
        wanted[i] = gpu_pattern(kind, i);
        host[i]   = gpu_pattern(kind + 50, i);
    }
    for (unsigned i = 0; i < count; i++) {
        ranges[i] = (mpath_staging_range_t){.offset = at, .bytes = 1 + i * 17};
        memcpy(wanted + at, host + at, ranges[i].bytes);
        at += ranges[i].bytes + 1 + i % 5;
    }
    assert_true(at < RANGES_BYTES);
    mpath_gpu_usage(&before);
    assert_int_equal(mpath_staging_store_all(&staging, ranges, count), MPATH_OK);
    assert_int_equal(mpath_staging_wait(&staging, 1), MPATH_OK);
    mpath_gpu_usage(&after);
    assert_memory_equal(seen_by_a_stream(memory.address, RANGES_BYTES), wanted, RANGES_BYTES);
    assert_int_equal(after.launches - before.launches, launches);
    close_staging(&memory, &staging);
}

/* By a kernel where the host's memory is known to the GPU. */
static void test_stored_all(void **state)
{
    uint64_t launches = mpath_kernels_usable(gpu) ? 1 : 0;

    (void)state;
    for (size_t kind = 0; kind < sizeof(kinds) / sizeof(kinds[0]); kind++) {
        store_ranges(kind, 1, 0);
        store_ranges(kind, 2, 0);
        store_ranges(kind, 3, launches);
        store_ranges(kind, RANGES_MOST, launches);
    }
}

/* -- what the driver refuses once is asked for again, and not in each call -- */

#define PAUSE 64 /* calls, then twice as many */

static int refusals;

static mpath_cu_result_t refuse_stream(mpath_cu_stream_t *stream, unsigned flags, int priority)
{
    (void)stream;
    (void)flags;
    (void)priority;
    refusals++;
    return MPATH_CU_OUT_OF_MEMORY;
}

static mpath_cu_result_t refuse_to_register(void *memory, size_t bytes, unsigned flags)
{
    (void)memory;
    (void)bytes;
    (void)flags;
    refusals++;
    return MPATH_CU_OUT_OF_MEMORY;
}

/* Before another test has made the stream: copies on the default one do what the kernel does otherwise. */
static void test_refused_stream(void **state)
{
    mpath_cu_t *driver                                  = (mpath_cu_t *)(uintptr_t)mpath_gpu_driver();
    __typeof__(driver->StreamCreateWithPriority) create = driver->StreamCreateWithPriority;
    uint64_t launches                                   = mpath_kernels_usable(gpu) ? 1 : 0;
    mpath_stream_t *stream;

    (void)state;
    assert_int_equal(mpath_stream_get(gpu, 0, &stream), MPATH_OK); /* the test looks through this one */
    refusals                         = 0;
    driver->StreamCreateWithPriority = refuse_stream;
    for (int call = 0; call < 1 + PAUSE + 1; call++) {
        store_ranges(0, 3, 0);
    }
    driver->StreamCreateWithPriority = create;
    assert_int_equal(refusals, 2);
    for (int call = 0; call < 2 * PAUSE; call++) {
        store_ranges(0, 3, 0);
    }
    store_ranges(0, 3, launches);
}

/* Before another test has left blocks. */
static void test_refused_blocks(void **state)
{
    mpath_cu_t *driver                              = (mpath_cu_t *)(uintptr_t)mpath_gpu_driver();
    __typeof__(driver->MemHostRegister) register_it = driver->MemHostRegister;
    mpath_pinned_t block;

    (void)state;
    refusals                = 0;
    driver->MemHostRegister = refuse_to_register;
    for (int call = 0; call < 1 + PAUSE + 1; call++) {
        assert_int_not_equal(mpath_pinned_take(gpu, BYTES, &block), MPATH_OK);
    }
    driver->MemHostRegister = register_it;
    assert_int_equal(refusals, 2);
    for (int call = 0; call < 2 * PAUSE; call++) {
        assert_int_equal(mpath_pinned_take(gpu, BYTES, &block), MPATH_ERR_UNSUPPORTED);
    }
    assert_int_equal(mpath_pinned_take(gpu, BYTES, &block), MPATH_OK);
    mpath_pinned_give(&block);
}

static void test_loaded(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        mpath_staging_t staging;
        gpu_memory_t memory;
        unsigned char *host;

        open_staging(kinds[k], &memory, &staging);
        host = staging.host;
        gpu_pattern_write(memory.address, BYTES, 10 + k);
        memset(host, 0, BYTES);
        assert_int_equal(mpath_staging_load(&staging, 100, BYTES - 300), MPATH_OK);
        assert_int_equal(mpath_staging_wait(&staging, 1), MPATH_OK);
        for (uint64_t i = 0; i < BYTES; i++) {
            assert_int_equal(host[i], ((i >= 100) && (i < BYTES - 200)) ? gpu_pattern(10 + k, i) : 0);
        }
        close_staging(&memory, &staging);
    }
}

/* The application's copy from pageable memory has returned before its last bytes are there, of any kind of memory. */
static void test_loaded_after_copies(void **state)
{
    unsigned char *data = malloc(BYTES);

    (void)state;
    assert_non_null(data);
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        mpath_staging_t staging;
        gpu_memory_t memory;

        open_staging(kinds[k], &memory, &staging);
        for (uint64_t i = 0; i < BYTES; i++) {
            data[i] = gpu_pattern(30 + k, i);
        }
        assert_int_equal(mpath_gpu_enter(gpu), MPATH_OK);
        assert_int_equal(mpath_gpu_driver()->MemcpyHtoD(memory.address, data, BYTES), MPATH_CU_SUCCESS);
        mpath_gpu_leave(gpu);
        assert_int_equal(mpath_staging_settle(&staging), MPATH_OK);
        assert_int_equal(mpath_staging_load(&staging, 0, BYTES), MPATH_OK);
        assert_int_equal(mpath_staging_wait(&staging, 0), MPATH_OK);
        assert_memory_equal(staging.host, data, BYTES);
        close_staging(&memory, &staging);
    }
    free(data);
}

/* Of memory that the driver has been told of before, nobody has to wait for them. */
static void test_settled_once(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        mpath_memory_t classified;
        mpath_staging_t first, again;
        gpu_memory_t memory;

        open_staging(kinds[k], &memory, &first);
        assert_int_equal(mpath_memory_classify((void *)(uintptr_t)memory.address, BYTES, &classified), MPATH_OK);
        assert_int_equal(mpath_staging_open((void *)(uintptr_t)memory.address, BYTES, &classified, &again), MPATH_OK);
        assert_false(first.settled);
        assert_int_equal(again.settled, kinds[k] == MPATH_MEMORY_DEVICE);
        mpath_staging_close(&again);
        close_staging(&memory, &first);
    }
}

/* What the application has on the default stream may itself wait for the call, which must not wait for it. */
static void test_default_stream_stands(void **state)
{
    uint64_t *word = pinned.base;

    (void)state;
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        mpath_staging_t staging;
        gpu_memory_t memory;
        unsigned char *host;

        open_staging(kinds[k], &memory, &staging);
        host = staging.host;
        gpu_pattern_write(memory.address, BYTES, 60 + k);
        *word = 0;
        assert_int_equal(mpath_gpu_enter(gpu), MPATH_OK);
        assert_int_equal(mpath_gpu_driver()->StreamWaitValue64(NULL, pinned.device_base, 1, MPATH_CU_WAIT_GEQ),
                         MPATH_CU_SUCCESS);
        mpath_gpu_leave(gpu);
        assert_int_equal(mpath_staging_settle(&staging), MPATH_OK);
        assert_int_equal(mpath_staging_load(&staging, 0, BYTES), MPATH_OK);
        assert_int_equal(mpath_staging_wait(&staging, 0), MPATH_OK);
        assert_int_equal(host[BYTES - 1], gpu_pattern(60 + k, BYTES - 1));
        assert_int_equal(mpath_staging_store(&staging, 0, BYTES), MPATH_OK);
        assert_int_equal(mpath_staging_wait(&staging, 1), MPATH_OK);
        __atomic_store_n(word, 1, __ATOMIC_RELEASE);
        assert_int_equal(mpath_gpu_enter(gpu), MPATH_OK);
        assert_int_equal(mpath_gpu_driver()->StreamSynchronize(NULL), MPATH_CU_SUCCESS);
        mpath_gpu_leave(gpu);
        close_staging(&memory, &staging);
    }
}

/* An ordinary stream is recorded meanwhile: the default one is not looked at, and the call neither fails nor spoils it. */
static void test_while_a_stream_is_captured(void **state)
{
    void *library = dlopen(gpu_library(), RTLD_NOW | RTLD_NOLOAD);
    mpath_cu_result_t (*begin)(mpath_cu_stream_t, int);
    mpath_cu_result_t (*end)(mpath_cu_stream_t, mpath_cu_graph_t *);

    (void)state;
    *(void **)&begin = dlsym(library, "cuStreamBeginCapture_v2");
    *(void **)&end   = dlsym(library, "cuStreamEndCapture");
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        mpath_staging_t staging;
        gpu_memory_t memory;
        mpath_cu_graph_t graph;

        open_staging(kinds[k], &memory, &staging);
        gpu_pattern_write(memory.address, BYTES, 70 + k);
        assert_int_equal(begin(NULL, 0), MPATH_CU_SUCCESS);
        assert_int_equal(mpath_staging_settle(&staging), MPATH_OK);
        assert_int_equal(mpath_staging_load(&staging, 0, BYTES), MPATH_OK);
        assert_int_equal(mpath_staging_wait(&staging, 0), MPATH_OK);
        assert_int_equal(end(NULL, &graph), MPATH_CU_SUCCESS);
        assert_int_equal(((unsigned char *)staging.host)[1], gpu_pattern(70 + k, 1));
        close_staging(&memory, &staging);
    }
    assert_int_equal(dlclose(library), 0);
}

/* Every length has its way to the device; with a driver that counts them, none is sent with commands. */
static void test_stored_without_turns(void **state)
{
    uint64_t lengths[] = {2, 3, 4, 5, 7, 64, 255, 4095, 4096, 4097, 32767, 32768, 65535, 65536, 65537, 1000003};

    (void)state;
    mpath_gpu_set_turns(gpu);
    for (size_t k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++) {
        unsigned char before, *host;
        mpath_staging_t staging;
        gpu_memory_t memory;
        uint64_t at;

        open_staging_of(MPATH_MEMORY_DEVICE, MPATH_PINNED_TAKE_MAX / 2, &memory, &staging);
        host = staging.host;
        at   = k * 1021 + 1;
        gpu_pattern_write(memory.address, staging.bytes, 20 + k);
        assert_int_equal(mpath_staging_load(&staging, 0, staging.bytes), MPATH_OK);
        assert_int_equal(mpath_staging_wait(&staging, 1), MPATH_OK);
        before = host[at + lengths[k]];
        for (uint64_t i = 0; i < lengths[k]; i++) {
            host[at + i] ^= 0xff;
        }
        host[at + lengths[k]]++; /* outside of what is stored */
        atomic_store(&ports->commands, 0);
        assert_int_equal(mpath_staging_store(&staging, at, lengths[k]), MPATH_OK);
        assert_int_equal(mpath_staging_wait(&staging, 1), MPATH_OK);
        assert_int_equal(atomic_load(&ports->commands), 0);
        host[at + lengths[k]] = before;
        assert_memory_equal(seen_by_a_stream(memory.address, staging.bytes), host, staging.bytes);
        close_staging(&memory, &staging);
    }
}

#define KEPT 8 /* blocks */
#define MARK 0x5a

static void take_all(mpath_pinned_t *blocks, size_t bytes)
{
    for (size_t i = 0; i < KEPT; i++) {
        assert_int_equal(mpath_pinned_take(gpu, bytes, &blocks[i]), MPATH_OK);
        assert_true(blocks[i].bytes >= bytes);
        for (size_t k = 0; k < i; k++) {
            assert_ptr_not_equal(blocks[k].base, blocks[i].base);
        }
    }
}

static void give_all(mpath_pinned_t *blocks)
{
    for (size_t i = 0; i < KEPT; i++) {
        mpath_pinned_give(&blocks[i]);
    }
}

/* Long blocks take the places of short ones, so that they need not be registered again; new ones are zeroed. */
static void test_blocks_are_kept(void **state)
{
    mpath_pinned_t longs[KEPT], shorts[KEPT];

    (void)state;
    take_all(longs, MPATH_PINNED_TAKE_MAX + 32);
    take_all(shorts, 1000);
    give_all(shorts);
    for (size_t i = 0; i < KEPT; i++) {
        *(unsigned char *)longs[i].base = MARK;
    }
    give_all(longs);
    take_all(longs, MPATH_PINNED_TAKE_MAX + 32);
    for (size_t i = 0; i < KEPT; i++) {
        assert_int_equal(*(unsigned char *)longs[i].base, MARK);
    }
    give_all(longs);
    assert_int_equal(mpath_pinned_take(gpu, 2 * MPATH_PINNED_TAKE_MAX, &longs[0]), MPATH_ERR_UNSUPPORTED);
}

/* Who finds short copies slow goes without turns from then on, whatever is known of others. */
static void test_slow_copies(void **state)
{
    mpath_gpu_t *other;

    (void)state;
    assert_int_equal(mpath_gpu_get(1, NULL, &other), MPATH_OK);
    for (int i = 0; i < 3; i++) {
        mpath_gpu_note_copy(other, 10 * MPATH_GPU_TURN_NS);
    }
    mpath_gpu_note_copy(other, MPATH_GPU_TURN_NS / 10);
    for (int i = 0; i < 3; i++) {
        mpath_gpu_note_copy(other, MPATH_GPU_TURN_NS);
        assert_false(mpath_gpu_takes_turns(other));
    }
    mpath_gpu_note_copy(other, MPATH_GPU_TURN_NS);
    assert_true(mpath_gpu_takes_turns(other));
}

static int setup(void **state)
{
    int file = mkstemp(ports_path);

    (void)state;
    if ((file < 0) || (ftruncate(file, sizeof(*ports)) != 0)) {
        return -1;
    }
    ports = mmap(NULL, sizeof(*ports), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (ports == MAP_FAILED) {
        return -1;
    }
    setenv("FAKE_CUDA_PORTS", ports_path, 1);
    setenv("FAKE_CUDA_LATE", "1", 1);
    setenv("FAKE_CUDA_WITHOUT", "mps", 1);
    gpu_application_starts();
    return ((mpath_gpu_get(0, NULL, &gpu) == MPATH_OK) && (mpath_pinned_alloc(gpu, BYTES, &pinned) == MPATH_OK)) ? 0
                                                                                                                 : -1;
}

static int teardown(void **state)
{
    (void)state;
    mpath_pinned_release(&pinned);
    mpath_gpu_cleanup();
    munmap(ports, sizeof(*ports));
    return unlink(ports_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_refused_blocks),
                                       cmocka_unit_test(test_refused_stream),
                                       cmocka_unit_test(test_stored),
                                       cmocka_unit_test(test_stored_all),
                                       cmocka_unit_test(test_loaded),
                                       cmocka_unit_test(test_loaded_after_copies),
                                       cmocka_unit_test(test_settled_once),
                                       cmocka_unit_test(test_default_stream_stands),
                                       cmocka_unit_test(test_while_a_stream_is_captured),
                                       cmocka_unit_test(test_stored_without_turns),
                                       cmocka_unit_test(test_slow_copies),
                                       cmocka_unit_test(test_blocks_are_kept)};

    return cmocka_run_group_tests_name("staging", tests, setup, teardown);
}
