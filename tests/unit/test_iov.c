/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies of data in several allocations: what comes, what goes back and what stays, and pieces that end too late. */
#include "config.h"
#include "capture.h"
#include "coll/staging.h"
#include "gpu_kinds.h"

#include <stdlib.h>

#define BYTES (UINT64_C(1) << 20)
#define PARTS 3

/* Of two GPUs and of the host. */
static struct {
    gpu_memory_t gpus[PARTS - 1];
    uint64_t address[PARTS];
    unsigned char image[PARTS][BYTES];
} parts;

static int setup(void **state)
{
    (void)state;
    gpu_application_starts();
    for (int i = 0; i < PARTS - 1; i++) {
        gpu_memory_alloc(MPATH_MEMORY_DEVICE, i, BYTES, 1, &parts.gpus[i]);
        parts.address[i] = parts.gpus[i].address;
    }
    parts.address[PARTS - 1] = (uint64_t)(uintptr_t)malloc(BYTES);
    return (parts.address[PARTS - 1] != 0) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    gpu_memory_free(&parts.gpus[0]);
    gpu_memory_free(&parts.gpus[1]);
    free((void *)(uintptr_t)parts.address[PARTS - 1]);
    return 0;
}

static void put_all(uint64_t seed)
{
    for (uint64_t part = 0; part < PARTS; part++) {
        for (uint64_t i = 0; i < BYTES; i++) {
            parts.image[part][i] = gpu_pattern(seed + part, i);
        }
        gpu_memory_write(parts.address[part], parts.image[part], BYTES);
    }
}

static void check_all(void)
{
    static unsigned char found[BYTES];

    for (int part = 0; part < PARTS; part++) {
        gpu_memory_read(parts.address[part], found, BYTES);
        assert_memory_equal(found, parts.image[part], BYTES);
    }
}

static const struct {
    unsigned part;
    uint64_t from, bytes;
} list[] = {{1, 100, 7},     {1, 110, 3000}, {1, 10000, 500000}, {2, 5, 70000},     {2, 80001, 1},
            {0, 900000, 99}, {0, 900099, 1}, {0, 900100, 1},     {0, 4, 60000},     {0, 70000, 8},
            {0, 70016, 8},   {2, 0, 3},      {1, 700001, 1001},  {1, 702003, 1001}, {2, 300000, 9}};

#define LISTED (sizeof(list) / sizeof(list[0]))

static mpath_iov_t *listed(int gapped, unsigned char **host_p)
{
    mpath_iov_t *iov;
    void *host;

    assert_int_equal(mpath_iov_create(&iov), MPATH_OK);
    assert_true(mpath_iov_on_host(iov));
    for (size_t i = 0; i < LISTED; i++) {
        assert_int_equal(
            mpath_iov_add(iov, (void *)(uintptr_t)(parts.address[list[i].part] + list[i].from), list[i].bytes),
            MPATH_OK);
    }
    assert_false(mpath_iov_on_host(iov));
    assert_int_equal(mpath_iov_open(iov, gapped, &host), MPATH_OK);
    *host_p = host;
    return iov;
}

static void check_copies(int gapped)
{
    unsigned char *host, *at;
    mpath_iov_t *iov;

    put_all(10);
    iov = listed(gapped, &host);
    assert_int_equal(mpath_iov_load(iov), MPATH_OK);
    at = host;
    for (size_t i = 0; i < LISTED; i++) {
        unsigned char *image = parts.image[list[i].part] + list[i].from;

        assert_memory_equal(at, image, list[i].bytes);
        for (uint64_t k = 0; k < list[i].bytes; k++) {
            image[k] ^= 0x55;
            at[k] ^= 0x55;
        }
        at += list[i].bytes;
    }
    assert_int_equal(mpath_iov_store(iov), MPATH_OK);
    check_all();
    mpath_iov_destroy(iov);
}

static void test_copies(void **state)
{
    (void)state;
    check_copies(0);
    check_copies(1);
}

/* Without gaps that may be written, none is: the bytes between belong to others, who may write them at this moment. */
static void test_gaps_are_left_alone(void **state)
{
    unsigned char *host;
    mpath_iov_t *iov;

    (void)state;
    put_all(20);
    iov = listed(0, &host);
    assert_int_equal(mpath_iov_load(iov), MPATH_OK);
    put_all(30);
    for (size_t i = 0; i < LISTED; i++) {
        memcpy(parts.image[list[i].part] + list[i].from, host, list[i].bytes);
        host += list[i].bytes;
    }
    assert_int_equal(mpath_iov_store(iov), MPATH_OK);
    check_all();
    mpath_iov_destroy(iov);
}

static void test_on_host(void **state)
{
    mpath_iov_t *iov;

    (void)state;
    assert_int_equal(mpath_iov_create(&iov), MPATH_OK);
    assert_int_equal(mpath_iov_add(iov, (void *)(uintptr_t)parts.address[2], BYTES), MPATH_OK);
    assert_int_equal(mpath_iov_add(iov, &parts, 10), MPATH_OK);
    assert_true(mpath_iov_on_host(iov));
    mpath_iov_destroy(iov);
    mpath_iov_destroy(NULL);
}

/* -- what the driver is asked for -- */

static struct {
    const mpath_cu_t *real;
    mpath_cu_t table;
    int watches, absent, fails_at, wait_fails_at; /* which copy or wait fails, from 1 */
    int loads, stores, syncs, lost_looks, questions;
} driver;

const mpath_cu_t *__real_mpath_gpu_driver(void);
const mpath_cu_t *__wrap_mpath_gpu_driver(void);
void __real_mpath_gpu_notice_lost(void);
void __wrap_mpath_gpu_notice_lost(void);
mpath_status_t __real_mpath_memory_classify(const void *address, size_t bytes, mpath_memory_t *memory);
mpath_status_t __wrap_mpath_memory_classify(const void *address, size_t bytes, mpath_memory_t *memory);

const mpath_cu_t *__wrap_mpath_gpu_driver(void)
{
    return !driver.watches ? __real_mpath_gpu_driver() : driver.absent ? NULL : &driver.table;
}

void __wrap_mpath_gpu_notice_lost(void)
{
    driver.lost_looks++;
    __real_mpath_gpu_notice_lost();
}

mpath_status_t __wrap_mpath_memory_classify(const void *address, size_t bytes, mpath_memory_t *memory)
{
    driver.questions++;
    return __real_mpath_memory_classify(address, bytes, memory);
}

/* Memory without a home may be copied by any GPU. */
static void assert_entered(mpath_cu_ptr_t address)
{
    mpath_cu_device_t current;
    int ordinal = -1;

    assert_int_equal(driver.real->CtxGetDevice(&current), MPATH_CU_SUCCESS);
    assert_int_equal(driver.real->PointerGetAttribute(&ordinal, MPATH_CU_PTR_DEVICE_ORDINAL, address),
                     MPATH_CU_SUCCESS);
    assert_true((ordinal < 0) || (ordinal == current));
}

/* Never on the default stream. */
static mpath_cu_result_t watch_copy(mpath_cu_ptr_t target, mpath_cu_ptr_t source, size_t bytes,
                                    mpath_cu_stream_t stream)
{
    unsigned type = 0;
    int stores    = (driver.real->PointerGetAttribute(&type, MPATH_CU_PTR_MEMORY_TYPE, target) == MPATH_CU_SUCCESS);

    assert_non_null(stream);
    assert_entered(stores ? target : source);
    driver.loads += !stores;
    driver.stores += stores;
    return (driver.loads + driver.stores == driver.fails_at) ? MPATH_CU_INVALID_VALUE
                                                             : driver.real->MemcpyAsync(target, source, bytes, stream);
}

static mpath_cu_result_t watch_sync(mpath_cu_stream_t stream)
{
    assert_non_null(stream);
    return (++driver.syncs == driver.wait_fails_at) ? MPATH_CU_INVALID_VALUE : driver.real->StreamSynchronize(stream);
}

static void watch_start(void)
{
    memset(&driver, 0, sizeof(driver));
    driver.real                    = __real_mpath_gpu_driver();
    driver.table                   = *driver.real;
    driver.table.MemcpyAsync       = watch_copy;
    driver.table.StreamSynchronize = watch_sync;
    driver.watches                 = 1;
}

/* Whatever has happened, no context is left behind. */
static void assert_copies(mpath_iov_t *iov, int store, int loads, int stores, int syncs)
{
    mpath_cu_context_t before, after;

    driver.loads = driver.stores = driver.syncs = driver.lost_looks = 0;
    assert_int_equal(driver.real->CtxGetCurrent(&before), MPATH_CU_SUCCESS);
    assert_int_equal(store ? mpath_iov_store(iov) : mpath_iov_load(iov), MPATH_OK);
    assert_int_equal(driver.real->CtxGetCurrent(&after), MPATH_CU_SUCCESS);
    assert_ptr_equal(before, after);
    assert_int_equal(driver.loads, loads);
    assert_int_equal(driver.stores, stores);
    assert_int_equal(driver.syncs, syncs);
    assert_int_equal(driver.lost_looks, 1);
}

/* A load writes to no device; where gaps may be written, near pieces are one copy. A wait for each turn of a GPU and each window. */
static void test_copies_are_few(void **state)
{
    unsigned char *host;
    mpath_iov_t *iov;

    (void)state;
    for (int gapped = 0; gapped < 2; gapped++) {
        iov = listed(gapped, &host);
        watch_start();
        assert_copies(iov, 0, gapped ? 4 : 9, 0, gapped ? 6 : 3);
        assert_copies(iov, 1, gapped ? 3 : 0, gapped ? 4 : 9, gapped ? 6 : 3);
        driver.watches = 0;
        mpath_iov_destroy(iov);
    }
}

/* Two lists of pieces, and the copies that they take together. */
static void assert_pair(const gpu_memory_t *memory, uint64_t first, uint64_t gap, uint64_t second, int copies)
{
    mpath_iov_t *iov;
    void *host;

    assert_int_equal(mpath_iov_create(&iov), MPATH_OK);
    assert_int_equal(mpath_iov_add(iov, (void *)(uintptr_t)(memory->address + 5), first), MPATH_OK);
    assert_int_equal(mpath_iov_add(iov, (void *)(uintptr_t)(memory->address + 5 + first + gap), second), MPATH_OK);
    assert_int_equal(mpath_iov_open(iov, 1, &host), MPATH_OK);
    watch_start();
    assert_copies(iov, 0, copies, 0, (copies == 1) ? 2 : 1);
    driver.watches = 0;
    mpath_iov_destroy(iov);
}

/* Of many near pieces a window takes as many as fit. */
static void test_windows(void **state)
{
    const uint64_t window = 4 * BYTES;
    static unsigned char found[9 * BYTES + 10], expected[sizeof(found)];
    gpu_memory_t memory;
    mpath_iov_t *iov;
    unsigned char *at;
    void *host;

    (void)state;
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 1, sizeof(found), 1, &memory);
    gpu_pattern_write(memory.address, sizeof(found), 40);
    gpu_memory_read(memory.address, expected, sizeof(found));
    assert_int_equal(mpath_iov_create(&iov), MPATH_OK);
    for (uint64_t i = 0; i < 150; i++) {
        assert_int_equal(mpath_iov_add(iov, (void *)(uintptr_t)(memory.address + i * 60000), 50000), MPATH_OK);
    }
    assert_int_equal(mpath_iov_open(iov, 1, &host), MPATH_OK);
    watch_start();
    assert_copies(iov, 0, 3, 0, 4);
    at = host;
    for (uint64_t i = 0; i < 150; i++) {
        assert_memory_equal(at, expected + i * 60000, 50000);
        memset(at, (int)i, 50000);
        memset(expected + i * 60000, (int)i, 50000);
        at += 50000;
    }
    assert_copies(iov, 1, 3, 3, 4);
    driver.watches = 0;
    gpu_memory_read(memory.address, found, sizeof(found));
    assert_memory_equal(found, expected, sizeof(found));
    mpath_iov_destroy(iov);
    assert_pair(&memory, 10, 65536, 10, 1);
    assert_pair(&memory, 10, 65537, 10, 2);
    assert_pair(&memory, window - 7, 3, 4, 1);
    assert_pair(&memory, window - 7, 3, 5, 2);
    gpu_memory_free(&memory);
}

static void test_failures(void **state)
{
    unsigned char *host;
    mpath_iov_t *iov;
    const struct {
        int store, fails_at, wait_fails_at; /* which copy, or which wait: for a window, for the turn of a GPU */
        int copies;
        const char *text;
    } cases[] = {{0, 1, 0, 1, "memory of GPU 1 failed"}, {0, 2, 0, 2, "memory of GPU 0 failed"},
                 {1, 1, 0, 1, "memory of GPU 1 failed"}, {1, 2, 0, 2, "memory of GPU 1 failed"},
                 {1, 3, 0, 3, "memory of GPU 0 failed"}, {0, 0, 1, 1, "memory of GPU 1 failed"},
                 {0, 0, 2, 1, "memory of GPU 1 failed"}, {0, 0, 4, 3, "memory of GPU 0 failed"},
                 {0, 0, 5, 4, "memory of GPU 1 failed"}, {0, 0, 6, 4, "memory of GPU 1 failed"}};

    (void)state;
    iov = listed(1, &host);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        mpath_cu_context_t before, after;

        watch_start();
        driver.fails_at      = cases[i].fails_at;
        driver.wait_fails_at = cases[i].wait_fails_at;
        capture_start();
        assert_int_equal(driver.real->CtxGetCurrent(&before), MPATH_CU_SUCCESS);
        assert_int_equal(cases[i].store ? mpath_iov_store(iov) : mpath_iov_load(iov), MPATH_ERR_IO);
        capture_stop();
        assert_int_equal(driver.real->CtxGetCurrent(&after), MPATH_CU_SUCCESS);
        driver.watches = 0;
        assert_ptr_equal(before, after);
        assert_int_equal(capture_lines, 1);
        assert_non_null(strstr(capture_buffer, cases[i].text));
        assert_int_equal(driver.loads + driver.stores, cases[i].copies);
    }
    watch_start();
    driver.absent = 1;
    capture_start();
    assert_int_equal(mpath_iov_load(iov), MPATH_ERR_IO);
    capture_stop();
    driver.watches = 0;
    assert_int_equal(capture_lines, 1);
    mpath_iov_destroy(iov);
}

/* Once for each allocation in a row, and for each 64 KiB of host memory. */
static void test_questions(void **state)
{
    char *block = (char *)(((uintptr_t)parts.address[PARTS - 1] + 65535) / 65536 * 65536);
    mpath_iov_t *iov;

    (void)state;
    driver.questions = 0;
    assert_int_equal(mpath_iov_create(&iov), MPATH_OK);
    for (uint64_t i = 0; i < BYTES; i += BYTES / 64) {
        assert_int_equal(mpath_iov_add(iov, (void *)(uintptr_t)(parts.address[0] + i), 100), MPATH_OK);
    }
    assert_int_equal(driver.questions, 1);
    for (int i = 0; i < 131072; i += 8192) {
        assert_int_equal(mpath_iov_add(iov, block + i, 8192), MPATH_OK);
    }
    assert_int_equal(driver.questions, 3);
    mpath_iov_destroy(iov);
}

/* Managed memory has no home: any GPU copies it. */
static void test_managed(void **state)
{
    gpu_memory_t memory;
    mpath_iov_t *iov;
    void *host;

    (void)state;
    gpu_memory_alloc(MPATH_MEMORY_MANAGED, 1, 1000, 1, &memory);
    gpu_pattern_write(memory.address, 1000, 50);
    assert_int_equal(mpath_iov_create(&iov), MPATH_OK);
    assert_int_equal(mpath_iov_add(iov, (void *)(uintptr_t)memory.address, 1000), MPATH_OK);
    assert_int_equal(mpath_iov_open(iov, 0, &host), MPATH_OK);
    assert_int_equal(mpath_iov_load(iov), MPATH_OK);
    for (uint64_t i = 0; i < 1000; i++) {
        assert_int_equal(((unsigned char *)host)[i], gpu_pattern(50, i));
    }
    mpath_iov_destroy(iov);
    gpu_memory_free(&memory);
}

/* A piece over two GPUs is taken, and copied by each; one that ends where nothing is mapped is not. */
static void test_ends(void **state)
{
    mpath_iov_t *iov;
    gpu_memory_t vmm;
    void *host;

    (void)state;
    gpu_memory_alloc(MPATH_MEMORY_VMM, 0, 4 * BYTES, 2, &vmm);
    assert_int_equal(mpath_iov_create(&iov), MPATH_OK);
    assert_int_equal(mpath_iov_add(iov, (void *)(uintptr_t)(vmm.address + 1), vmm.bytes - 1), MPATH_OK);
    assert_int_equal(mpath_iov_open(iov, 0, &host), MPATH_OK);
    watch_start();
    assert_copies(iov, 0, 2, 0, 1);
    driver.watches = 0;
    mpath_iov_destroy(iov);
    assert_int_equal(mpath_iov_create(&iov), MPATH_OK);
    capture_start();
    assert_int_equal(mpath_iov_add(iov, (void *)(uintptr_t)(vmm.address + 1), vmm.bytes), MPATH_ERR_PARAM);
    assert_int_equal(mpath_iov_add(iov, (void *)(uintptr_t)(parts.address[0] + 9), BYTES), MPATH_ERR_PARAM);
    capture_stop();
    assert_int_equal(capture_lines, 2);
    assert_non_null(strstr(capture_buffer, "reaches beyond its allocation in vmm memory of GPU 0"));
    mpath_iov_destroy(iov);
    gpu_memory_free(&vmm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies),   cmocka_unit_test(test_gaps_are_left_alone), cmocka_unit_test(test_on_host),
        cmocka_unit_test(test_ends),     cmocka_unit_test(test_copies_are_few),      cmocka_unit_test(test_windows),
        cmocka_unit_test(test_failures), cmocka_unit_test(test_questions),           cmocka_unit_test(test_managed)};

    return cmocka_run_group_tests_name("iov", tests, setup, teardown);
}
