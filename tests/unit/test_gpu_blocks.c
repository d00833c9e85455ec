/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Exports of very many blocks, up to the limit and beyond, and the list of them as importers read it. The blocks are
 * made up: the driver's answers are given by the test, so that nothing is mapped.
 */
#include "capture.h"
#include "device/cuda/driver.h"
#include "device/ipc_export.h"
#include "device/gpu_private.h"
#include "gpu_kinds.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#define BASE (UINT64_C(7) << 44)
#define BLOCK_BYTES (UINT64_C(2) << 20)
#define BLOCKS 8
#define MOST MPATH_EXPORT_BLOCKS_MAX

/* The first `mapped` blocks from BASE on, of BLOCKS physical allocations in turns. */
static uint64_t mapped;
static int made_up; /* the driver is, too */

const mpath_cu_t *__real_mpath_gpu_driver(void);
const mpath_cu_t *__wrap_mpath_gpu_driver(void);
mpath_status_t __real_mpath_memory_block(uint64_t address, mpath_memory_block_t *block_p);
mpath_status_t __wrap_mpath_memory_block(uint64_t address, mpath_memory_block_t *block_p);

mpath_status_t __wrap_mpath_memory_block(uint64_t address, mpath_memory_block_t *block_p)
{
    uint64_t number = (address - BASE) / BLOCK_BYTES;

    if ((address < BASE) || (number >= mapped)) {
        return MPATH_ERR_PARAM;
    }
    *block_p = (mpath_memory_block_t){
        .base = BASE + number * BLOCK_BYTES, .bytes = BLOCK_BYTES, .block_id = 100 + number % BLOCKS};
    return MPATH_OK;
}

static mpath_cu_result_t retain(mpath_cu_mem_t *handle, void *pointer)
{
    (void)pointer;
    memset(handle, 0, sizeof(*handle));
    return MPATH_CU_SUCCESS;
}

static mpath_cu_result_t export_one(void *fd_p, mpath_cu_mem_t handle, int kind, unsigned long long flags)
{
    (void)handle;
    (void)flags;
    assert_int_equal(kind, MPATH_CU_HANDLE_FD);
    *(int *)fd_p = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return MPATH_CU_SUCCESS;
}

static mpath_cu_result_t release(mpath_cu_mem_t handle)
{
    (void)handle;
    return MPATH_CU_SUCCESS;
}

const mpath_cu_t *__wrap_mpath_gpu_driver(void)
{
    static mpath_cu_t table;

    if (!made_up || (__real_mpath_gpu_driver() == NULL)) {
        return __real_mpath_gpu_driver();
    }
    table                            = *__real_mpath_gpu_driver();
    table.MemRetainAllocationHandle  = retain;
    table.MemExportToShareableHandle = export_one;
    table.MemRelease                 = release;
    return &table;
}

static int descriptors_open(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count   = 0;

    assert_non_null(folder);
    while (readdir(folder) != NULL) {
        count++;
    }
    closedir(folder);
    return count;
}

static mpath_status_t export_blocks(uint64_t from, uint64_t count, mpath_export_t *made)
{
    mpath_memory_t memory = {.kind       = MPATH_MEMORY_VMM,
                             .base       = BASE + from * BLOCK_BYTES,
                             .bytes      = BLOCK_BYTES,
                             .blocks     = (int)count,
                             .exportable = 1};

    /* the last block counts from its first byte on */
    return mpath_export_make((void *)(uintptr_t)memory.base, (count - 1) * BLOCK_BYTES + 1, &memory, made);
}

static void assert_list(const mpath_export_t *made, uint64_t from)
{
    mpath_export_block_t *list;

    assert_int_equal(mpath_import_blocks(made, &list), MPATH_OK);
    for (uint32_t i = 0; i < made->blocks; i++) {
        assert_int_equal(list[i].bytes, BLOCK_BYTES);
        assert_int_equal(list[i].id, 100 + (from + i) % BLOCKS);
        assert_int_equal(list[i].fd, list[i % BLOCKS].fd); /* one for each physical allocation */
    }
    free(list);
}

static void test_the_most_blocks(void **state)
{
    int before;
    mpath_export_t made;

    (void)state;
    made_up = 1;
    mapped  = MOST + 1;
    before  = descriptors_open();
    assert_int_equal(export_blocks(0, MOST, &made), MPATH_OK);
    assert_int_equal(made.how, MPATH_EXPORT_FDS);
    assert_int_equal(made.blocks, MOST);
    assert_int_equal(made.bytes, MOST * BLOCK_BYTES);
    assert_int_equal(descriptors_open(), before + BLOCKS + 1);
    assert_list(&made, 0);
    assert_int_equal(export_blocks(1, MOST, &made), MPATH_OK); /* it overlaps the first, which stays */
    assert_int_equal(descriptors_open(), before + BLOCKS + 2);
    assert_list(&made, 1);

    capture_start();
    assert_int_equal(export_blocks(0, MOST + 1, &made), MPATH_DECLINED);
    capture_stop();
    assert_int_equal(capture_lines, 1);
    assert_non_null(strstr(capture_buffer, "lies in 4096 pieces or more (8589934592 bytes up to there), and other "
                                           "processes can open 4096; larger pieces help"));
    capture_start();
    assert_int_equal(export_blocks(0, MOST + 1, &made), MPATH_DECLINED);
    capture_stop();
    assert_int_equal(capture_lines, 0);
    assert_int_equal(descriptors_open(), before + BLOCKS + 2);

    mapped = 0; /* freed: the next export closes what was held for these */
    mpath_export_cleanup();
    assert_int_equal(descriptors_open(), before);
    made_up = 0;
}

/* An importer does not take for the list what is none, or another one's. */
static void test_other_lists(void **state)
{
    mpath_export_block_t *list = NULL;
    mpath_export_t made, other;
    int no_list = open("/dev/zero", O_RDONLY | O_CLOEXEC);

    (void)state;
    made_up = 1;
    mapped  = 3;
    assert_int_equal(export_blocks(0, 3, &made), MPATH_OK);
    assert_list(&made, 0);
    for (int i = 0; i < 5; i++) {
        other = made;
        other.base += (i == 0);
        other.bytes += (i == 1);
        other.buffer_id += (i == 2);
        other.blocks -= (i == 3);
        other.handle.list = (i == 4) ? no_list : made.handle.list;
        capture_start();
        assert_int_equal(mpath_import_blocks(&other, &list), MPATH_ERR_UNSUPPORTED);
        capture_stop();
        assert_int_equal(capture_lines, 1);
        assert_non_null(strstr(capture_buffer, "is no longer there"));
        assert_null(list);
    }
    close(no_list);
    mpath_export_cleanup();
    made_up = 0;
}

static void test_numbers_of_blocks(void **state)
{
    const struct {
        uint32_t how, blocks;
    } refused[]                = {{MPATH_EXPORT_FDS, 0},
                                  {MPATH_EXPORT_FDS, MOST + 1},
                                  {MPATH_EXPORT_FABRIC, 0},
                                  {MPATH_EXPORT_FABRIC, MPATH_EXPORT_FABRIC_MAX + 1}};
    mpath_export_t export      = {.how = MPATH_EXPORT_FABRIC, .blocks = MPATH_EXPORT_FABRIC_MAX, .block_bytes = 100};
    mpath_export_block_t *list = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        const mpath_export_t wrong = {.how = refused[i].how, .blocks = refused[i].blocks};

        capture_start();
        assert_int_equal(mpath_import_blocks(&wrong, &list), MPATH_ERR_PARAM);
        capture_stop();
        assert_int_equal(capture_lines, 1);
        assert_null(list);
    }
    export.bytes = (MPATH_EXPORT_FABRIC_MAX - 1) * export.block_bytes + 30;
    for (uint32_t i = 0; i < MPATH_EXPORT_FABRIC_MAX; i++) {
        export.fabric_ids[i] = 7 * i;
    }
    assert_int_equal(mpath_import_blocks(&export, &list), MPATH_OK);
    for (uint32_t i = 0; i < MPATH_EXPORT_FABRIC_MAX; i++) {
        assert_int_equal(list[i].bytes, (i + 1 < MPATH_EXPORT_FABRIC_MAX) ? 100 : 30);
        assert_int_equal(list[i].id, 7 * i);
    }
    free(list);
}

/* Extents that overlap: which blocks they have in common must be the same ones. */
static void test_extents_that_differ(void **state)
{
    static const struct {
        uint64_t base;
        uint32_t count;
        mpath_export_block_t list[3];
        int differs;
    } cases[] = {
        {1000, 3, {{.bytes = 100, .id = 1}, {.bytes = 50, .id = 2}, {.bytes = 100, .id = 3}}, 0},
        {1000, 2, {{.bytes = 100, .id = 1}, {.bytes = 50, .id = 2}}, 0},
        {1100, 3, {{.bytes = 50, .id = 2}, {.bytes = 100, .id = 3}, {.bytes = 9, .id = 4}}, 0},
        {900, 2, {{.bytes = 100, .id = 9}, {.bytes = 100, .id = 1}}, 0},
        {1250, 1, {{.bytes = 100, .id = 4}}, 0}, /* behind it */
        {900, 1, {{.bytes = 100, .id = 4}}, 0},  /* before it */
        {1000, 1, {{.bytes = 100, .id = 2}}, 1}, /* another one there */
        {1000, 1, {{.bytes = 50, .id = 1}}, 1},  /* a smaller one */
        {1100, 1, {{.bytes = 50, .id = 3}}, 1},  /* another one in the middle */
        {1050, 1, {{.bytes = 100, .id = 1}}, 1}, /* none begins there */
        {950, 1, {{.bytes = 100, .id = 9}}, 1},  /* it reaches over the beginning */
        {1000, 3, {{.bytes = 100, .id = 1}, {.bytes = 50, .id = 2}, {.bytes = 100, .id = 4}}, 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const mpath_export_t a = {.base = cases[0].base, .blocks = cases[0].count};
        const mpath_export_t b = {.base = cases[i].base, .blocks = cases[i].count};

        assert_int_equal(mpath_export_blocks_differ(&a, cases[0].list, &b, cases[i].list), cases[i].differs);
        assert_int_equal(mpath_export_blocks_differ(&b, cases[i].list, &a, cases[0].list), cases[i].differs);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_the_most_blocks), cmocka_unit_test(test_other_lists),
                                       cmocka_unit_test(test_numbers_of_blocks),
                                       cmocka_unit_test(test_extents_that_differ)};

    return cmocka_run_group_tests(tests, gpu_group_setup, NULL);
}
