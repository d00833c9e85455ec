/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contexts that the application ends (cudaDeviceReset, cuCtxDestroy) while mpath has streams, kernels, registered memory
 * and imports in them: nothing of these is handed to the driver again, and what is asked for next works in the new one.
 */
#include "config.h"
#include "device/cuda/driver.h"
#include "capture.h"
#include "gpu_owner.h"
#include "device/kernels/copy.h"
#include "device/pinned.h"
#include "device/usage.h"

#include <dlfcn.h>
#include <signal.h>
#include <string.h>

/* Copies within the device by an engine, and by a kernel where there is one. */
static void check_works(mpath_gpu_t *gpu, uint64_t seed)
{
    int device = mpath_gpu_info_of(gpu)->ordinal;
    mpath_kernel_fragment_t fragment;
    mpath_stream_t *stream;
    gpu_memory_t from, to;
    mpath_mark_t mark;

    gpu_memory_alloc(MPATH_MEMORY_DEVICE, device, MIB, 0, &from);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, device, MIB, 0, &to);
    gpu_pattern_write(from.address, MIB, seed);
    gpu_copy(gpu, to.address, from.address, MIB);
    assert_int_equal(gpu_pattern_check(to.address, MIB, seed), 0);
    if (gpu_has_kernels(gpu)) {
        fragment = (mpath_kernel_fragment_t){.target = to.address, .source = from.address, .bytes = MIB};
        gpu_pattern_write(from.address, MIB, seed + 1);
        assert_int_equal(mpath_stream_get(gpu, 1, &stream), MPATH_OK);
        assert_int_equal(
            mpath_launch_copy(stream,
                              &(mpath_launch_copy_t){.fragments = &fragment, .fragments_count = 1, .mark_p = &mark}),
            MPATH_OK);
        assert_int_equal(mpath_stream_finish(stream, mark, DEADLINE_NS, "a kernel"), MPATH_OK);
        assert_int_equal(gpu_pattern_check(to.address, MIB, seed + 1), 0);
    }
    gpu_memory_free(&from);
    gpu_memory_free(&to);
}

static void test_a_new_object_for_the_new_context(void **state)
{
    mpath_gpu_t *old = gpu_of(0), *new;
    mpath_stream_t *stream, *other;

    (void)state;
    check_works(old, 1);
    assert_int_equal(mpath_stream_get(old, 1, &stream), MPATH_OK);
    mpath_gpu_notice_lost();
    assert_false(mpath_gpu_is_lost(old));
    gpu_application_resets(0);
    mpath_gpu_notice_lost();
    assert_true(mpath_gpu_is_lost(old));
    assert_int_equal(mpath_gpu_enter(old), MPATH_ERR_UNREACHABLE);
    assert_int_equal(mpath_stream_get(old, 1, &other), MPATH_ERR_UNREACHABLE);
    new = gpu_of(0);
    assert_ptr_not_equal(new, old);
    assert_int_not_equal(mpath_gpu_number(new), mpath_gpu_number(old));
    check_works(new, 3);
    assert_int_equal(mpath_stream_get(new, 1, &other), MPATH_OK);
    assert_ptr_not_equal(stream, other);
    mpath_gpu_notice_lost();
    assert_false(mpath_gpu_is_lost(new));
    assert_ptr_equal(gpu_of(0), new);
}

/* The thread's context is still that which has ended, until the application makes a call that takes a new one. */
static void test_no_current_context(void **state)
{
    mpath_gpu_t *gpu = gpu_of(0), *current;

    (void)state;
    assert_int_equal(mpath_gpu_current(&current), MPATH_OK);
    assert_ptr_equal(current, gpu);
    gpu_application_resets(0);
    mpath_gpu_notice_lost();
    current = NULL;
    assert_int_equal(mpath_gpu_current(&current), MPATH_ERR_UNSUPPORTED);
    assert_null(current);
    gpu = gpu_of(0);
    assert_int_equal(mpath_gpu_current(&current), MPATH_OK);
    assert_ptr_equal(current, gpu);
    check_works(gpu, 10);
}

/* What was taken is given back to nobody, and no longer counted. */
static void test_memory_and_registered_memory(void **state)
{
    mpath_gpu_t *gpu = gpu_of(0);
    mpath_pinned_t pinned, kept, block;
    mpath_gpu_usage_t before, after;
    mpath_cu_ptr_t memory;

    (void)state;
    mpath_gpu_usage(&before);
    assert_int_equal(mpath_gpu_enter(gpu), MPATH_OK);
    assert_int_equal(mpath_gpu_memory_take(&memory, MIB), MPATH_CU_SUCCESS);
    mpath_gpu_leave(gpu);
    assert_int_equal(mpath_pinned_alloc(gpu, 8192, &pinned), MPATH_OK);
    kept = pinned;
    mpath_pinned_release_lost(&kept);
    assert_ptr_equal(kept.base, pinned.base);
    assert_int_equal(mpath_pinned_take(gpu, 100, &block), MPATH_OK);
    memset(block.base, 1, 100);
    mpath_pinned_give(&block);
    gpu_application_resets(0);
    mpath_gpu_notice_lost();
    memset(pinned.base, 2, 8192); /* it stays the process's */
    mpath_pinned_release_lost(&pinned);
    assert_null(pinned.base);
    mpath_gpu_memory_give(gpu, memory, MIB);
    mpath_gpu_usage(&after);
    assert_int_equal(after.memory_bytes, before.memory_bytes);
    gpu = gpu_of(0);
    assert_int_equal(mpath_pinned_take(gpu, 100, &block), MPATH_OK);
    assert_ptr_equal(block.gpu, gpu);
    mpath_pinned_give(&block);
    check_works(gpu, 5);
}

/* Memory of another process, which the ended context had open. */
static void check_import(const owner_t *owner, mpath_memory_kind_t kind, int fragments)
{
    mpath_gpu_t *gpu = gpu_of(0);
    mpath_import_t *import;
    gpu_memory_t mine;
    answer_t answer;

    answer = owner_tell(owner, (order_t){'a', kind, 0, fragments, 3 * MIB + 40, 7, 0});
    assert_int_equal(mpath_import_get(&answer.export, gpu, &import), MPATH_OK);
    mpath_import_put(import);
    gpu_application_resets(0);
    mpath_gpu_notice_lost();
    gpu = gpu_of(0);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, answer.bytes, 0, &mine);
    assert_int_equal(mpath_import_get(&answer.export, gpu, &import), MPATH_OK);
    gpu_copy(gpu, mine.address, mpath_import_address(import, answer.address), answer.bytes);
    assert_int_equal(gpu_pattern_check(mine.address, answer.bytes, 7), 0);
    mpath_import_put(import);
    assert_int_equal(import_counts().entries, 1);
    gpu_memory_free(&mine);
    mpath_import_forget(&answer.export.owner);
    owner_tell(owner, (order_t){.what = 'f'});
}

static void test_imports(void **state)
{
    check_import(*state, MPATH_MEMORY_DEVICE, 0);
    check_import(*state, MPATH_MEMORY_VMM, 1);
    check_import(*state, MPATH_MEMORY_POOL, 1);
}

/* The one that is made next may get the handle of the one before. */
static void test_contexts_of_the_application(void **state)
{
    mpath_cu_result_t (*create)(mpath_cu_context_t *, unsigned, mpath_cu_device_t);
    mpath_cu_result_t (*destroy)(mpath_cu_context_t);
    void *library    = dlopen(gpu_library(), RTLD_NOW | RTLD_NOLOAD);
    mpath_gpu_t *old = NULL, *gpu;
    mpath_cu_context_t context;
    mpath_stream_t *stream;
    mpath_mark_t mark;

    (void)state;
    *(void **)&create  = dlsym(library, "cuCtxCreate_v2");
    *(void **)&destroy = dlsym(library, "cuCtxDestroy_v2");
    for (int round = 0; round < 3; round++) {
        assert_int_equal(create(&context, 0, 0), MPATH_CU_SUCCESS);
        mpath_gpu_notice_lost();
        assert_int_equal(mpath_gpu_get(0, context, &gpu), MPATH_OK);
        assert_ptr_not_equal(gpu, old);
        assert_int_equal(mpath_stream_get(gpu, 0, &stream), MPATH_OK);
        assert_int_equal(mpath_stream_mark(stream, &mark), MPATH_OK);
        assert_int_equal(mpath_stream_finish(stream, mark, DEADLINE_NS, "a word"), MPATH_OK);
        old = gpu;
        assert_int_equal(destroy(context), MPATH_CU_SUCCESS);
    }
    assert_int_equal(dlclose(library), 0);
}

/* At the end of the application, mostly: cudaDeviceReset(), then MPI_Finalize(). */
static void test_cleanup_afterwards(void **state)
{
    (void)state;
    check_works(gpu_of(0), 8);
    gpu_application_resets(0);
    mpath_gpu_cleanup();
    check_works(gpu_of(0), 9);
    gpu_application_resets(0);
    (void)mpath_gpu_driver()->DevicePrimaryCtxRetain(&(mpath_cu_context_t){NULL}, 0);
    mpath_gpu_cleanup();
}

int main(int count, char **words)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_new_object_for_the_new_context), cmocka_unit_test(test_no_current_context),
        cmocka_unit_test(test_memory_and_registered_memory),     cmocka_unit_test(test_imports),
        cmocka_unit_test(test_contexts_of_the_application),      cmocka_unit_test(test_cleanup_afterwards),
    };

    signal(SIGPIPE, SIG_IGN);
    if ((count > 1) && (strcmp(words[1], "owner") == 0)) {
        return owner_main();
    }
    return cmocka_run_group_tests_name("gpu_lost", tests, owner_setup, owner_teardown);
}
