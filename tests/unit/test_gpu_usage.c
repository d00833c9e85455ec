/* SPDX-License-Identifier: BSD-3-Clause */
/* The sums of what is taken, and the limits: exactly, also where the driver refuses. The driver is made up. */
#include "capture.h"
#include "device/cuda/driver.h"
#include "device/usage.h"

#define MIB (UINT64_C(1) << 20)
#define LIMIT (64 * MIB)

static struct {
    int allocated, freed, streams, zeroed, waited, is_absent, entered;
    mpath_cu_result_t alloc, stream, memset, wait;
} driver;

static mpath_cu_result_t mem_alloc(mpath_cu_ptr_t *address, size_t bytes)
{
    (void)bytes;
    *address = 0x1000;
    driver.allocated += driver.alloc == MPATH_CU_SUCCESS;
    return driver.alloc;
}

static mpath_cu_result_t mem_free(mpath_cu_ptr_t address)
{
    assert_int_equal(address, 0x1000);
    driver.freed++;
    return MPATH_CU_SUCCESS;
}

static mpath_cu_result_t stream_create(mpath_cu_stream_t *stream, unsigned flags, int priority)
{
    assert_int_equal(flags, MPATH_CU_STREAM_NON_BLOCKING);
    (void)priority;
    memset(stream, 0, sizeof(*stream));
    driver.streams += driver.stream == MPATH_CU_SUCCESS;
    return driver.stream;
}

static mpath_cu_result_t stream_destroy(mpath_cu_stream_t stream)
{
    (void)stream;
    driver.streams--;
    return MPATH_CU_SUCCESS;
}

static mpath_cu_result_t fill(mpath_cu_ptr_t address, unsigned char value, size_t bytes, mpath_cu_stream_t stream)
{
    (void)stream;
    assert_int_equal(address, 0x1000);
    assert_int_equal(value, 0);
    assert_int_equal(bytes, 3 * MIB);
    driver.zeroed++;
    return driver.memset;
}

static mpath_cu_result_t stream_wait(mpath_cu_stream_t stream)
{
    (void)stream;
    driver.waited++;
    return driver.wait;
}

const mpath_cu_t *__wrap_mpath_gpu_driver(void);
mpath_status_t __wrap_mpath_gpu_enter(mpath_gpu_t *gpu);
void __wrap_mpath_gpu_leave(mpath_gpu_t *gpu);

const mpath_cu_t *__wrap_mpath_gpu_driver(void)
{
    static const mpath_cu_t table = {.MemAlloc                 = mem_alloc,
                                     .MemFree                  = mem_free,
                                     .StreamCreateWithPriority = stream_create,
                                     .StreamDestroy            = stream_destroy,
                                     .MemsetD8Async            = fill,
                                     .StreamSynchronize        = stream_wait};

    return driver.is_absent ? NULL : &table;
}

mpath_status_t __wrap_mpath_gpu_enter(mpath_gpu_t *gpu)
{
    (void)gpu;
    driver.entered++;
    return MPATH_OK;
}

void __wrap_mpath_gpu_leave(mpath_gpu_t *gpu)
{
    (void)gpu;
    driver.entered--;
}

static void assert_held(uint64_t memory_bytes, uint64_t pinned_bytes)
{
    mpath_gpu_usage_t usage;

    mpath_gpu_usage(&usage);
    assert_int_equal(usage.memory_bytes, memory_bytes);
    assert_int_equal(usage.pinned_bytes, pinned_bytes);
}

static void give(uint64_t bytes)
{
    mpath_gpu_memory_give(NULL, 0x1000, bytes);
    assert_int_equal(driver.entered, 0);
}

static void test_launches(void **state)
{
    mpath_gpu_usage_t usage;

    (void)state;
    mpath_gpu_usage_launch(3);
    mpath_gpu_usage_launch(8);
    mpath_gpu_usage(&usage);
    assert_int_equal(usage.launches, 2);
    assert_int_equal(usage.ctas, 11);
}

static void test_memory(void **state)
{
    mpath_cu_ptr_t address;

    (void)state;
    assert_int_equal(mpath_gpu_memory_take(&address, 5 * MIB), MPATH_CU_SUCCESS);
    assert_held(5 * MIB, 0);
    driver.alloc = MPATH_CU_OUT_OF_MEMORY;
    assert_int_equal(mpath_gpu_memory_take(&address, 5 * MIB), MPATH_CU_OUT_OF_MEMORY);
    assert_int_equal(mpath_gpu_memory_take_within(LIMIT, &address, 5 * MIB), MPATH_CU_OUT_OF_MEMORY);
    assert_held(5 * MIB, 0);
    driver.alloc = MPATH_CU_SUCCESS;
    mpath_gpu_memory_give(NULL, 0, 5 * MIB); /* nothing */
    assert_held(5 * MIB, 0);
    assert_int_equal(driver.freed, 0);
    give(5 * MIB);
    assert_int_equal(driver.freed, 1);
    assert_held(0, 0);
    driver.is_absent = 0;
    assert_int_equal(mpath_gpu_memory_take(&address, MIB), MPATH_CU_SUCCESS);
    driver.is_absent = 1; /* its memory has gone with it */
    give(MIB);
    driver.is_absent = 0;
    assert_int_equal(driver.freed, 1);
    assert_held(0, 0);
}

/* To the last byte; the driver is not asked for more. Said once. */
static void test_limit(void **state)
{
    mpath_cu_ptr_t address;

    (void)state;
    driver.allocated = 0;
    capture_start();
    assert_int_equal(mpath_gpu_memory_take_within(LIMIT, &address, LIMIT - 1), MPATH_CU_SUCCESS);
    assert_int_equal(capture_lines, 0);
    assert_int_equal(mpath_gpu_memory_take_within(LIMIT, &address, 2), MPATH_CU_OUT_OF_MEMORY);
    assert_int_equal(capture_lines, 1);
    assert_int_equal(mpath_gpu_memory_take_within(LIMIT, &address, UINT64_MAX - 5), MPATH_CU_OUT_OF_MEMORY);
    assert_int_equal(mpath_gpu_memory_take_within(LIMIT, &address, 1), MPATH_CU_SUCCESS);
    assert_int_equal(mpath_gpu_memory_take_within(LIMIT, &address, 1), MPATH_CU_OUT_OF_MEMORY);
    assert_int_equal(mpath_gpu_memory_take_within(LIMIT - 1, &address, 1), MPATH_CU_OUT_OF_MEMORY);
    assert_int_equal(mpath_gpu_memory_take_within(LIMIT, &address, 0), MPATH_CU_SUCCESS);
    assert_int_equal(driver.allocated, 3);
    assert_int_equal(mpath_gpu_memory_share(LIMIT, MIB, 0), 0);
    assert_int_equal(mpath_gpu_memory_share(LIMIT - MIB, MIB, 0), 0);
    capture_stop();
    assert_int_equal(capture_lines, 1);
    assert_non_null(strstr(capture_buffer, "of the 67108864 bytes of GPU memory that this process may take "
                                           "(gpu_device_bytes) there is less left than wanted"));
    give(LIMIT);
    assert_held(0, 0);
}

static void test_zeroed(void **state)
{
    mpath_cu_ptr_t address;

    (void)state;
    driver.freed = driver.streams = driver.waited = driver.zeroed = 0;
    assert_int_equal(mpath_gpu_memory_take_zeroed(LIMIT, &address, 3 * MIB), MPATH_CU_SUCCESS);
    assert_int_equal(driver.zeroed, 1);
    assert_int_equal(driver.waited, 1);
    assert_held(3 * MIB, 0);
    give(3 * MIB);
    driver.freed = 0;
    for (int what = 0; what < 4; what++) {
        driver.alloc  = (what == 0) ? MPATH_CU_INVALID_VALUE : MPATH_CU_SUCCESS;
        driver.stream = (what == 1) ? MPATH_CU_INVALID_VALUE : MPATH_CU_SUCCESS;
        driver.memset = (what == 2) ? MPATH_CU_INVALID_VALUE : MPATH_CU_SUCCESS;
        driver.wait   = (what == 3) ? MPATH_CU_INVALID_VALUE : MPATH_CU_SUCCESS;
        assert_int_equal(mpath_gpu_memory_take_zeroed(LIMIT, &address, 3 * MIB), MPATH_CU_INVALID_VALUE);
        assert_int_equal(driver.freed, what);
        assert_int_equal(driver.streams, 0);
        assert_held(0, 0);
    }
    driver.wait = MPATH_CU_SUCCESS;
}

/* Half of what is left, in blocks of 2 MiB. */
static void test_shares(void **state)
{
    mpath_cu_ptr_t address;

    (void)state;
    assert_int_equal(mpath_gpu_memory_share(LIMIT, 32 * MIB, 0), 32 * MIB);
    assert_int_equal(mpath_gpu_memory_share(LIMIT, 32 * MIB + 1, 0), 32 * MIB);
    assert_int_equal(mpath_gpu_memory_share(LIMIT, 7, 0), 7);
    assert_int_equal(mpath_gpu_memory_take(&address, 51 * MIB), MPATH_CU_SUCCESS);
    assert_int_equal(mpath_gpu_memory_share(LIMIT, LIMIT, 0), 8 * MIB);         /* of 13 */
    assert_int_equal(mpath_gpu_memory_share(LIMIT, LIMIT, 10 * MIB), 12 * MIB); /* of 23 */
    assert_int_equal(mpath_gpu_memory_share(LIMIT, LIMIT, 51 * MIB), 32 * MIB); /* of all */
    assert_int_equal(mpath_gpu_memory_share(LIMIT, LIMIT, 99 * MIB), 32 * MIB); /* of no more than that */
    assert_int_equal(mpath_gpu_memory_share(53 * MIB, LIMIT, 0), 2 * MIB);      /* all that is left */
    assert_int_equal(mpath_gpu_memory_share(53 * MIB - 1, LIMIT, 0), 0);        /* no whole block */
    assert_int_equal(mpath_gpu_memory_share(40 * MIB, LIMIT, 0), 0);            /* the limit was higher */
    give(51 * MIB);
}

static void test_pins(void **state)
{
    (void)state;
    capture_start();
    assert_int_equal(mpath_pins_share(100, 50), 50);
    assert_true(mpath_pins_take(100, 40));
    assert_int_equal(capture_lines, 0);
    assert_false(mpath_pins_take(100, 61));
    assert_int_equal(capture_lines, 1);
    assert_held(0, 40);
    assert_int_equal(mpath_pins_share(100, 31), 30);
    assert_int_equal(mpath_pins_share(30, 31), 0);
    assert_true(mpath_pins_take(100, 60));
    assert_false(mpath_pins_take(100, 1));
    assert_held(0, 100);
    mpath_pins_give(70);
    assert_held(0, 30);
    mpath_pins_give(30);
    capture_stop();
    assert_int_equal(capture_lines, 1);
    assert_non_null(strstr(capture_buffer, "pinned host memory that this process may take (gpu_pinned_bytes)"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_launches), cmocka_unit_test(test_memory),
                                       cmocka_unit_test(test_limit),    cmocka_unit_test(test_zeroed),
                                       cmocka_unit_test(test_shares),   cmocka_unit_test(test_pins)};

    mpath_log_set_level(MPATH_LOG_INFO);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
