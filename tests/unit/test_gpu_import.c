/* SPDX-License-Identifier: BSD-3-Clause */
/* Allocations of other processes: opened, read, written, closed after the owner's death. */
#include "config.h"
#include "device/cuda/driver.h"
#include "capture.h"
#include "gpu_owner.h"
#include "device/kernels/copy.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static void copy_by_kernel(mpath_gpu_t *gpu, uint64_t to, uint64_t from, size_t bytes)
{
    mpath_kernel_fragment_t fragment = {.target = to, .source = from, .bytes = bytes};
    mpath_stream_t *stream;
    mpath_mark_t mark;

    assert_int_equal(mpath_stream_get(gpu, 1, &stream), MPATH_OK);
    assert_int_equal(mpath_launch_copy(
                         stream, &(mpath_launch_copy_t){.fragments = &fragment, .fragments_count = 1, .mark_p = &mark}),
                     MPATH_OK);
    assert_int_equal(mpath_stream_finish(stream, mark, DEADLINE_NS, "a kernel"), MPATH_OK);
}

/* Reads the owner's memory and checks the pattern, then writes another one, which the owner checks. */
static void check_kind(const owner_t *owner, mpath_memory_kind_t kind, int blocks, int owner_device, int my_device)
{
    mpath_gpu_t *gpu  = gpu_of(my_device);
    uint64_t opened   = import_counts().opened;
    const size_t skip = 1000;
    mpath_import_t *import, *again;
    gpu_memory_t mine;
    answer_t answer;
    uint64_t there;

    answer = owner_tell(owner, (order_t){'a', kind, owner_device, blocks, 5 * MIB + 40, 1, 0});
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, my_device, answer.bytes, 0, &mine);
    assert_int_equal(mpath_import_get(&answer.export, gpu, &import), MPATH_OK);
    there = mpath_import_address(import, answer.address);
    gpu_copy(gpu, mine.address, there, answer.bytes);
    assert_int_equal(gpu_pattern_check(mine.address, answer.bytes, 1), 0);
    if (gpu_has_kernels(gpu)) {
        gpu_pattern_write(mine.address, answer.bytes, 9);
        copy_by_kernel(gpu, mine.address, there, answer.bytes);
        assert_int_equal(gpu_pattern_check(mine.address, answer.bytes, 1), 0);
    }

    gpu_pattern_write(mine.address, answer.bytes, 2);
    gpu_copy(gpu, there, mine.address, skip);
    gpu_copy(gpu, mpath_import_address(import, answer.address + skip), mine.address + skip, answer.bytes - skip);
    mpath_import_put(import);
    assert_int_equal(owner_tell(owner, (order_t){.what = 'c', .seed = 2}).wrong, 0);

    assert_int_equal(mpath_import_get(&answer.export, gpu, &again), MPATH_OK);
    assert_ptr_equal(import, again);
    assert_int_equal(import_counts().opened, opened + 1);
    mpath_import_put(again);
    gpu_memory_free(&mine);
    mpath_import_forget(&answer.export.owner);
    owner_tell(owner, (order_t){.what = 'f'});
}

static void test_kinds_on_same_and_other_device(void **state)
{
    const owner_t *owner = *state;
    int last             = mpath_gpu_count() - 1, to;

    for (to = 0; to <= last; to += (last > 0) ? last : 1) {
        check_kind(owner, MPATH_MEMORY_DEVICE, 0, 0, to);
        check_kind(owner, MPATH_MEMORY_VMM, 1, 0, to);
        check_kind(owner, MPATH_MEMORY_VMM, 3, 0, to);
        check_kind(owner, MPATH_MEMORY_POOL, 1, 0, to);
        if (gpu_makes_fabric_handles(0)) {
            check_kind(owner, MPATH_MEMORY_VMM, -1, 0, to);
            check_kind(owner, MPATH_MEMORY_VMM, -MPATH_EXPORT_FABRIC_MAX, 0, to);
        }
    }
    check_kind(owner, MPATH_MEMORY_VMM, 34, 0, 0);
    assert_int_equal(import_counts().entries, 0);
}

static void test_blocks_of_different_sizes(void **state)
{
    const owner_t *owner = *state;
    mpath_gpu_t *gpu     = gpu_of(0);
    mpath_import_t *import;
    answer_t answer;
    gpu_memory_t mine;

    owner_tell(owner, (order_t){'a', MPATH_MEMORY_VMM, 0, 5, 10 * MIB, 1, 0});
    answer = owner_tell(owner, (order_t){.what = 'j', .blocks = 1, .seed = 3});
    assert_int_equal(answer.export.blocks, 4);
    assert_int_equal(answer.export.bytes, answer.bytes);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, answer.bytes, 0, &mine);
    assert_int_equal(mpath_import_get(&answer.export, gpu, &import), MPATH_OK);
    gpu_copy(gpu, mine.address, mpath_import_address(import, answer.address), answer.bytes);
    assert_int_equal(gpu_pattern_check(mine.address, answer.bytes, 3), 0);
    mpath_import_put(import);
    mpath_import_forget(&answer.export.owner);
    gpu_memory_free(&mine);
    owner_tell(owner, (order_t){.what = 'f'});
    assert_int_equal(import_counts().entries, 0);
}

/* Small allocations lie side by side in one block of the driver's; all of them are open at once, on two devices. */
static void test_small_neighbours(void **state)
{
    const owner_t *owner = *state;
    mpath_import_t *import[2][SLOTS];
    answer_t answer[SLOTS];
    gpu_memory_t mine;
    unsigned slot, side;

    for (slot = 0; slot < SLOTS; slot++) {
        answer[slot] = owner_tell(owner, (order_t){'a', MPATH_MEMORY_DEVICE, 0, 0, 1000 + 777 * slot, slot, slot});
    }
    for (side = 0; side < 2; side++) {
        mpath_gpu_t *gpu = gpu_of(side ? mpath_gpu_count() - 1 : 0);

        gpu_memory_alloc(MPATH_MEMORY_DEVICE, mpath_gpu_info_of(gpu)->ordinal, 65536, 0, &mine);
        for (slot = 0; slot < SLOTS; slot++) {
            assert_int_equal(mpath_import_get(&answer[slot].export, gpu, &import[side][slot]), MPATH_OK);
        }
        for (slot = 0; slot < SLOTS; slot++) {
            gpu_copy(gpu, mine.address, mpath_import_address(import[side][slot], answer[slot].address),
                     answer[slot].bytes);
            assert_int_equal(gpu_pattern_check(mine.address, answer[slot].bytes, slot), 0);
            if (gpu_has_kernels(gpu)) {
                gpu_pattern_write(mine.address, 65536, 99);
                copy_by_kernel(gpu, mine.address, mpath_import_address(import[side][slot], answer[slot].address),
                               answer[slot].bytes);
                assert_int_equal(gpu_pattern_check(mine.address, answer[slot].bytes, slot), 0);
            }
        }
        gpu_memory_free(&mine);
    }
    for (slot = 0; slot < SLOTS; slot++) {
        mpath_import_put(import[0][slot]);
        mpath_import_put(import[1][slot]);
    }
    /* One of them is freed and allocated again: the others stay as they are. */
    owner_tell(owner, (order_t){.what = 'f', .slot = 2});
    answer[2] = owner_tell(owner, (order_t){'a', MPATH_MEMORY_DEVICE, 0, 0, 1000 + 777 * 2, 50, 2});
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, 65536, 0, &mine);
    for (slot = 0; slot < SLOTS; slot++) {
        assert_int_equal(mpath_import_get(&answer[slot].export, gpu_of(0), &import[0][slot]), MPATH_OK);
        gpu_copy(gpu_of(0), mine.address, mpath_import_address(import[0][slot], answer[slot].address),
                 answer[slot].bytes);
        assert_int_equal(gpu_pattern_check(mine.address, answer[slot].bytes, (slot == 2) ? 50 : slot), 0);
        mpath_import_put(import[0][slot]);
    }
    gpu_memory_free(&mine);
    mpath_import_forget(&answer[0].export.owner);
    assert_int_equal(import_counts().entries, 0);
    for (slot = 0; slot < SLOTS; slot++) {
        owner_tell(owner, (order_t){.what = 'f', .slot = slot});
    }
}

/* The same GPU has another number in the other process. */
static void test_devices_in_another_order(void **state)
{
    int last = mpath_gpu_count() - 1, number;
    char visible[256];
    size_t length = 0;
    mpath_import_t *import;
    gpu_memory_t mine;
    answer_t answer;
    owner_t owner;

    (void)state;
    if (getenv("CUDA_VISIBLE_DEVICES") != NULL) {
        skip(); /* numbers here are not those of the machine */
    }
    for (number = last; number >= 0; number--) {
        length += (size_t)snprintf(visible + length, sizeof(visible) - length, "%d%s", number, (number > 0) ? "," : "");
    }
    owner = owner_start_seeing(visible);
    for (number = 0; number <= last; number += (last > 0) ? last : 1) {
        answer = owner_tell(&owner, (order_t){'a', MPATH_MEMORY_DEVICE, number, 0, MIB, 1, 0});
        assert_int_equal(mpath_gpu_find(&answer.export.uuid), last - number);
        gpu_memory_alloc(MPATH_MEMORY_DEVICE, number, MIB, 0, &mine);
        assert_int_equal(mpath_import_get(&answer.export, gpu_of(number), &import), MPATH_OK);
        gpu_copy(gpu_of(number), mine.address, mpath_import_address(import, answer.address), MIB);
        assert_int_equal(gpu_pattern_check(mine.address, MIB, 1), 0);
        mpath_import_put(import);
        mpath_import_forget(&answer.export.owner);
        gpu_memory_free(&mine);
        owner_tell(&owner, (order_t){.what = 'f'});
    }
    owner_stop(&owner);
}

static void test_owners_that_died(void **state)
{
    static const struct {
        mpath_memory_kind_t kind;
        int blocks;
    } memory[]       = {{MPATH_MEMORY_DEVICE, 0}, {MPATH_MEMORY_VMM, 2}, {MPATH_MEMORY_POOL, 1}};
    owner_t owner    = owner_start();
    mpath_gpu_t *gpu = gpu_of(0);
    mpath_import_t *import[3], *other;
    answer_t answer[3];
    unsigned i;

    (void)state;
    for (i = 0; i < 3; i++) {
        answer[i] = owner_tell(&owner, (order_t){'a', memory[i].kind, 0, memory[i].blocks, MIB, 1, i});
        assert_int_equal(mpath_import_get(&answer[i].export, gpu, &import[i]), MPATH_OK);
    }
    owner_kill(&owner);
    for (i = 0; i < 3; i++) {
        mpath_import_put(import[i]);
    }
    mpath_import_forget(&answer[0].export.owner); /* closes what the dead process owned */
    assert_int_equal(import_counts().entries, 0);
    for (i = 0; i < 3; i++) {
        capture_start();
        assert_int_equal(mpath_import_get(&answer[i].export, gpu, &other), MPATH_ERR_UNREACHABLE);
        capture_stop();
        assert_int_equal(capture_lines, 1);
    }
}

static void test_own_exports(void **state)
{
    unsigned settled = 0;
    mpath_memory_t memory;
    mpath_export_t export = {.how = MPATH_EXPORT_NONE};
    mpath_import_t *import;
    gpu_memory_t mine;

    (void)state;
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, MIB, 0, &mine);
    assert_int_equal(mpath_memory_classify((void *)(uintptr_t)mine.address, MIB, &memory), MPATH_OK);
    assert_int_equal(mpath_export_make((void *)(uintptr_t)mine.address, MIB, &memory, &export), MPATH_OK);
    assert_int_equal(mpath_gpu_driver()->PointerGetAttribute(&settled, MPATH_CU_PTR_SYNC_MEMOPS, mine.address), 0);
    assert_int_equal(settled, 1); /* copies of the application into it end before they return */
    assert_int_equal(mpath_import_get(&export, gpu_of(0), &import), MPATH_OK);
    assert_int_equal(mpath_import_address(import, mine.address + 77), mine.address + 77);
    mpath_import_put(import);
    gpu_memory_free(&mine);
    memset(&export, 0, sizeof(export));
    capture_start();
    assert_int_equal(mpath_import_get(&export, gpu_of(0), &import), MPATH_ERR_PARAM);
    capture_stop();
    assert_int_equal(capture_lines, 1);
}

int main(int count, char **words)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_exports),
        cmocka_unit_test(test_kinds_on_same_and_other_device),
        cmocka_unit_test(test_blocks_of_different_sizes),
        cmocka_unit_test(test_devices_in_another_order),
        cmocka_unit_test(test_small_neighbours),
        cmocka_unit_test(test_owners_that_died),
    };

    signal(SIGPIPE, SIG_IGN);
    if ((count > 1) && (strcmp(words[1], "owner") == 0)) {
        return owner_main();
    }
    return cmocka_run_group_tests_name("gpu_import", tests, owner_setup, owner_teardown);
}
