/* SPDX-License-Identifier: BSD-3-Clause */
/* What is kept open of other processes' allocations: noticed to be stale, bounded, taken again, asked for by threads. */
#include "config.h"
#include "capture.h"
#include "gpu_owner.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

static void check_reuse(const owner_t *owner, mpath_memory_kind_t kind, int blocks)
{
    mpath_gpu_t *gpu = gpu_of(0);
    uint64_t stale = import_counts().stale, seed, before = 0;
    mpath_import_t *import;
    gpu_memory_t mine;
    answer_t answer;
    int same = 0;

    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, 16 * MIB, 0, &mine);
    for (seed = 1; seed <= 4; seed++) {
        answer = owner_tell(owner, (order_t){'a', kind, 0, blocks, 4 * MIB, seed, 0});
        same += answer.address == before;
        before = answer.address;
        assert_int_equal(mpath_import_get(&answer.export, gpu, &import), MPATH_OK);
        gpu_copy(gpu, mine.address, mpath_import_address(import, answer.address), answer.bytes);
        assert_int_equal(gpu_pattern_check(mine.address, answer.bytes, seed), 0);
        mpath_import_put(import);
        owner_tell(owner, (order_t){.what = 'f'});
    }
    assert_int_equal(import_counts().stale - stale, same); /* each time the address came back, the old mapping went */
    assert_true((same == 3) || (getenv("MPATH_TEST_CUDA") != NULL));
    mpath_import_forget(&answer.export.owner);
    gpu_memory_free(&mine);
}

static void test_freed_and_allocated_again(void **state)
{
    check_reuse(*state, MPATH_MEMORY_DEVICE, 0);
    check_reuse(*state, MPATH_MEMORY_VMM, 2);
    check_reuse(*state, MPATH_MEMORY_POOL, 1); /* and with it the pool, whose handle comes back as well */
}

static void test_a_stale_import_in_use_goes_with_its_last_use(void **state)
{
    const owner_t *owner = *state;
    mpath_gpu_t *gpu     = gpu_of(0);
    mpath_import_t *old, *fresh;
    answer_t first, second;

    first = owner_tell(owner, (order_t){'a', MPATH_MEMORY_DEVICE, 0, 0, MIB, 1, 0});
    assert_int_equal(mpath_import_get(&first.export, gpu, &old), MPATH_OK);
    owner_tell(owner, (order_t){.what = 'f'});
    second = owner_tell(owner, (order_t){'a', MPATH_MEMORY_DEVICE, 0, 0, MIB, 2, 0});
    assert_int_equal(mpath_import_get(&second.export, gpu, &fresh), MPATH_OK);
    assert_ptr_not_equal(old, fresh);
    assert_int_equal(import_counts().in_use, 2);
    mpath_import_put(old);
    mpath_import_put(fresh);
    assert_true(import_counts().entries <= 2);
    assert_int_equal(import_counts().in_use, 0);
    owner_tell(owner, (order_t){.what = 'f'});
    mpath_import_forget(&first.export.owner);
    assert_int_equal(import_counts().entries, 0);
}

/* Extents that overlap stay open as long as they have the same blocks; those of a block that is no more are closed. */
static void test_a_block_is_mapped_anew(void **state)
{
    const owner_t *owner = *state;
    mpath_gpu_t *gpu     = gpu_of(0);
    uint64_t stale       = import_counts().stale;
    mpath_import_t *import;
    answer_t whole, block;
    gpu_memory_t mine;

    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, 16 * MIB, 0, &mine);
    whole = owner_tell(owner, (order_t){'a', MPATH_MEMORY_VMM, 0, 3, 6 * MIB, 1, 0});
    assert_int_equal(mpath_import_get(&whole.export, gpu, &import), MPATH_OK);
    mpath_import_put(import);
    for (int number = 0; number < 3; number++) {
        block = owner_tell(owner, (order_t){.what = 'p', .blocks = number});
        assert_int_equal(mpath_import_get(&block.export, gpu, &import), MPATH_OK);
        mpath_import_put(import);
        assert_int_equal(mpath_import_get(&whole.export, gpu, &import), MPATH_OK);
        mpath_import_put(import);
    }
    assert_int_equal(import_counts().stale, stale);
    assert_int_equal(import_counts().entries, 4);
    block = owner_tell(owner, (order_t){.what = 'r', .blocks = 1, .seed = 2});
    assert_int_equal(mpath_import_get(&block.export, gpu, &import), MPATH_OK);
    gpu_copy(gpu, mine.address, mpath_import_address(import, block.export.base), block.export.bytes);
    assert_int_equal(gpu_pattern_check(mine.address, block.export.bytes, 2), 0);
    mpath_import_put(import);
    assert_int_equal(import_counts().stale, stale + 2);
    assert_int_equal(import_counts().entries, 3); /* the other blocks, and this one */
    owner_tell(owner, (order_t){.what = 'f'});
    mpath_import_forget(&block.export.owner);
    gpu_memory_free(&mine);
}

#define ENTRIES 4

static void test_the_cache_is_bounded(void **state)
{
    const owner_t *owner = *state;
    mpath_gpu_t *gpu     = gpu_of(0);
    uint64_t evicted     = import_counts().evicted;
    mpath_import_t *import[ENTRIES], *again;
    answer_t answer[ENTRIES];
    unsigned index;

    mpath_import_set_limit(2);
    for (index = 0; index < ENTRIES; index++) {
        answer[index] = owner_tell(owner, (order_t){'a', MPATH_MEMORY_DEVICE, 0, 0, MIB, 1, index});
        assert_int_equal(mpath_import_get(&answer[index].export, gpu, &import[index]), MPATH_OK);
    }
    assert_int_equal(import_counts().entries, ENTRIES); /* in use: not counted against the limit */
    assert_int_equal(import_counts().in_use, ENTRIES);
    for (index = 0; index < ENTRIES; index++) {
        mpath_import_put(import[index]);
    }
    assert_int_equal(import_counts().entries, 2);
    assert_int_equal(import_counts().evicted - evicted, ENTRIES - 2);
    assert_int_equal(mpath_import_get(&answer[ENTRIES - 1].export, gpu, &again),
                     MPATH_OK); /* the latest is still there */
    assert_ptr_equal(again, import[ENTRIES - 1]);
    mpath_import_put(again);
    mpath_import_set_limit(128);
    for (index = 0; index < ENTRIES; index++) {
        owner_tell(owner, (order_t){.what = 'f', .slot = index});
    }
    mpath_import_forget(&answer[0].export.owner);
    assert_int_equal(import_counts().entries, 0);
}

/* Imports that are put and taken again together, as long as nothing has been closed meanwhile. */
static void test_taken_again(void **state)
{
    const owner_t *owner    = *state;
    mpath_gpu_t *gpu        = gpu_of(0);
    mpath_import_t *list[4] = {NULL}, *fresh;
    answer_t answer[2], later;
    uint64_t stamp;

    for (unsigned i = 0; i < 2; i++) {
        answer[i] = owner_tell(owner, (order_t){'a', MPATH_MEMORY_DEVICE, 0, 0, MIB, 1, i});
        assert_int_equal(mpath_import_get(&answer[i].export, gpu, &list[1 + i]), MPATH_OK);
    }
    stamp = mpath_import_put_all(list, 4);
    assert_int_equal(import_counts().in_use, 0);
    assert_true(mpath_import_take_again(list, 4, stamp));
    assert_int_equal(import_counts().in_use, 2);
    assert_true(mpath_import_take_again(list, 4, stamp));
    (void)mpath_import_put_all(list, 4);
    assert_int_equal(import_counts().in_use, 2);

    /* Given up while it is in use, by others too. */
    owner_tell(owner, (order_t){.what = 'f', .slot = 1});
    later = owner_tell(owner, (order_t){'a', MPATH_MEMORY_DEVICE, 0, 0, MIB, 2, 1});
    assert_int_equal(mpath_import_get(&later.export, gpu, &fresh), MPATH_OK);
    assert_true(mpath_import_take_again(list, 2, mpath_import_put_all(list, 2)));
    if (later.address == answer[1].address) {
        assert_false(mpath_import_take_again(list, 4, stamp));
        assert_true(mpath_import_take_again(&list[1], 1, mpath_import_put_all(&list[1], 1)));
        stamp = mpath_import_put_all(list, 4);
        assert_false(mpath_import_take_again(list, 4, stamp));
        list[2] = NULL;
    } else {
        stamp = mpath_import_put_all(list, 4);
        assert_true(mpath_import_take_again(list, 4, stamp));
        stamp = mpath_import_put_all(list, 4);
    }
    mpath_import_put(fresh);
    assert_int_equal(import_counts().in_use, 0);

    /* Closed, and evicted by the very put. */
    assert_int_equal(mpath_import_get(&answer[0].export, gpu, &list[1]), MPATH_OK);
    mpath_import_set_limit(0);
    list[2] = NULL;
    stamp   = mpath_import_put_all(list, 4);
    assert_int_equal(import_counts().entries, 0);
    assert_false(mpath_import_take_again(list, 4, stamp));
    mpath_import_set_limit(128);
    for (unsigned i = 0; i < 2; i++) {
        owner_tell(owner, (order_t){.what = 'f', .slot = i});
    }
}

#define THREADS 4

typedef struct worker {
    pthread_t thread;
    unsigned number;
    const answer_t *answers;
    uint64_t mine, wrong;
} worker_t;

/* No assertion of cmocka's in a thread. */
static void *worker_main(void *argument)
{
    worker_t *worker = argument;
    mpath_stream_t *stream;
    mpath_import_t *import;
    mpath_memory_t memory;
    mpath_mark_t mark;
    mpath_gpu_t *gpu;
    unsigned round;

    for (round = 0; round < 30; round++) {
        const answer_t *answer = &worker->answers[(round + worker->number) % SLOTS];

        if ((mpath_memory_classify((void *)(uintptr_t)worker->mine, 100, &memory) != MPATH_OK) ||
            (mpath_gpu_get(memory.device, memory.context, &gpu) != MPATH_OK) ||
            (mpath_stream_get(gpu, worker->number, &stream) != MPATH_OK) ||
            (mpath_import_get(&answer->export, gpu, &import) != MPATH_OK) ||
            (mpath_stream_copy(stream, worker->mine, mpath_import_address(import, answer->address), answer->bytes) !=
             MPATH_OK) ||
            (mpath_stream_mark(stream, &mark) != MPATH_OK) ||
            (mpath_stream_finish(stream, mark, DEADLINE_NS, "a thread's copy") != MPATH_OK)) {
            worker->wrong = 1;
            return NULL;
        }
        mpath_import_put(import);
        worker->wrong += gpu_pattern_check(worker->mine, answer->bytes, (round + worker->number) % SLOTS) != 0;
    }
    return NULL;
}

/* Several threads, the same exports, and a cache that keeps nothing: every put may close what another just asks for. */
static void test_threads(void **state)
{
    const owner_t *owner = *state;
    worker_t workers[THREADS];
    gpu_memory_t mine[THREADS];
    answer_t answers[SLOTS];
    unsigned number;

    for (number = 0; number < SLOTS; number++) {
        answers[number] = owner_tell(owner, (order_t){'a', MPATH_MEMORY_DEVICE, 0, 0, 10000 + number, number, number});
    }
    mpath_import_set_limit(0);
    for (number = 0; number < THREADS; number++) {
        gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, 20000, 0, &mine[number]);
        workers[number] = (worker_t){.number = number, .answers = answers, .mine = mine[number].address};
        assert_int_equal(pthread_create(&workers[number].thread, NULL, worker_main, &workers[number]), 0);
    }
    for (number = 0; number < THREADS; number++) {
        pthread_join(workers[number].thread, NULL);
        assert_int_equal(workers[number].wrong, 0);
    }
    assert_int_equal(import_counts().entries, 0);
    mpath_import_set_limit(128);
    for (number = 0; number < THREADS; number++) {
        gpu_memory_free(&mine[number]);
    }
    for (number = 0; number < SLOTS; number++) {
        owner_tell(owner, (order_t){.what = 'f', .slot = number});
    }
}

int main(int count, char **words)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_freed_and_allocated_again),
        cmocka_unit_test(test_a_stale_import_in_use_goes_with_its_last_use),
        cmocka_unit_test(test_a_block_is_mapped_anew),
        cmocka_unit_test(test_the_cache_is_bounded),
        cmocka_unit_test(test_taken_again),
        cmocka_unit_test(test_threads),
    };

    signal(SIGPIPE, SIG_IGN);
    if ((count > 1) && (strcmp(words[1], "owner") == 0)) {
        return owner_main();
    }
    return cmocka_run_group_tests_name("gpu_import_cache", tests, owner_setup, owner_teardown);
}
