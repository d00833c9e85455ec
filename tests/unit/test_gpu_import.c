/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allocations of other processes: opened, read, written, noticed to be stale, bounded, closed after the owner's death.
 * The owner is this program started again, which does what it is told through a pipe.
 */
#include "config.h"
#include "capture.h"
#include "gpu_kinds.h"
#include "gpu/import.h"
#include "gpu/launch.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define DEADLINE_NS (UINT64_C(60) * 1000000000)

typedef struct order {
    char what; /* 'a'llocate and fill, 'f'ree, 'c'heck the pattern */
    mpath_memory_kind_t kind;
    int device, pieces;
    uint64_t bytes, seed;
    unsigned slot; /* one of the owner's allocations */
} order_t;

#define SLOTS 6

typedef struct answer {
    mpath_export_t export;
    uint64_t address, bytes, wrong;
} answer_t;

typedef struct owner {
    pid_t pid;
    int to, from;
} owner_t;

static int owner_main(void)
{
    static gpu_memory_t slots[SLOTS];
    mpath_memory_t memory;
    order_t order;

    gpu_application_starts();
    while (read(STDIN_FILENO, &order, sizeof(order)) == (ssize_t)sizeof(order)) {
        answer_t answer    = {.address = 0};
        gpu_memory_t *made = &slots[order.slot];

        switch (order.what) {
        case 'a':
            gpu_memory_alloc(order.kind, order.device, order.bytes, order.pieces, made);
            gpu_pattern_write(made->address, made->bytes, order.seed);
            if ((mpath_memory_classify((void *)(uintptr_t)made->address, made->bytes, &memory) != MPATH_OK) ||
                (mpath_export_make((void *)(uintptr_t)made->address, made->bytes, &memory, &answer.export) !=
                 MPATH_OK)) {
                return 3;
            }
            break;
        case 'f':
            gpu_memory_free(made);
            break;
        default:
            answer.wrong = gpu_pattern_check(made->address, made->bytes, order.seed);
            break;
        }
        answer.address = made->address;
        answer.bytes   = made->bytes;
        if (write(STDOUT_FILENO, &answer, sizeof(answer)) != (ssize_t)sizeof(answer)) {
            return 4;
        }
    }
    mpath_gpu_cleanup();
    return 0;
}

/* `visible`: CUDA_VISIBLE_DEVICES of the owner; NULL: as here. */
static owner_t owner_start_seeing(const char *visible)
{
    int to[2], from[2];
    owner_t owner;

    assert_int_equal(pipe2(to, O_CLOEXEC), 0); /* another owner must not hold them open */
    assert_int_equal(pipe2(from, O_CLOEXEC), 0);
    owner.pid = fork();
    assert_true(owner.pid >= 0);
    if (owner.pid == 0) {
        dup2(to[0], STDIN_FILENO);
        dup2(from[1], STDOUT_FILENO);
        if (visible != NULL) {
            setenv("CUDA_VISIBLE_DEVICES", visible, 1);
        }
        execl("/proc/self/exe", "test_gpu_import", "owner", (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    owner.to   = to[1];
    owner.from = from[0];
    return owner;
}

static owner_t owner_start(void)
{
    return owner_start_seeing(NULL);
}

static answer_t owner_tell(const owner_t *owner, order_t order)
{
    answer_t answer;
    size_t got = 0;
    ssize_t part;

    assert_int_equal(write(owner->to, &order, sizeof(order)), sizeof(order));
    while (got < sizeof(answer)) {
        part = read(owner->from, (char *)&answer + got, sizeof(answer) - got);
        assert_true(part > 0);
        got += (size_t)part;
    }
    return answer;
}

static void owner_stop(const owner_t *owner)
{
    int status;

    close(owner->to);
    assert_int_equal(waitpid(owner->pid, &status, 0), owner->pid);
    assert_int_equal(status, 0);
    close(owner->from);
}

static void owner_kill(const owner_t *owner)
{
    int status;

    kill(owner->pid, SIGKILL);
    waitpid(owner->pid, &status, 0);
    close(owner->to);
    close(owner->from);
}

static mpath_import_counts_t counts(void)
{
    mpath_import_counts_t now;

    mpath_import_counts(&now);
    return now;
}

static mpath_gpu_t *gpu_of(int device)
{
    mpath_gpu_t *gpu;

    assert_int_equal(mpath_gpu_get(device, NULL, &gpu), MPATH_OK);
    return gpu;
}

/* Copies through a stream of `gpu`, as collectives do. */
static void copy(mpath_gpu_t *gpu, uint64_t to, uint64_t from, size_t bytes)
{
    mpath_stream_t *stream;
    mpath_mark_t mark;

    assert_int_equal(mpath_stream_get(gpu, 0, &stream), MPATH_OK);
    assert_int_equal(mpath_stream_copy(stream, to, from, bytes), MPATH_OK);
    assert_int_equal(mpath_stream_mark(stream, &mark), MPATH_OK);
    assert_int_equal(mpath_stream_finish(stream, mark, DEADLINE_NS, "a copy"), MPATH_OK);
}

static void copy_by_kernel(mpath_gpu_t *gpu, uint64_t to, uint64_t from, size_t bytes)
{
    mpath_kernel_piece_t piece = {.target = to, .source = from, .bytes = bytes};
    mpath_stream_t *stream;
    mpath_mark_t mark;

    assert_int_equal(mpath_stream_get(gpu, 1, &stream), MPATH_OK);
    assert_int_equal(
        mpath_launch_copy(stream, &(mpath_launch_copy_t){.pieces = &piece, .pieces_count = 1, .mark_p = &mark}),
        MPATH_OK);
    assert_int_equal(mpath_stream_finish(stream, mark, DEADLINE_NS, "a kernel"), MPATH_OK);
}

/* Reads the owner's memory and checks the pattern, then writes another one, which the owner checks. */
static void check_kind(const owner_t *owner, mpath_memory_kind_t kind, int pieces, int owner_device, int my_device)
{
    mpath_gpu_t *gpu  = gpu_of(my_device);
    uint64_t opened   = counts().opened;
    const size_t skip = 1000;
    mpath_import_t *import, *again;
    gpu_memory_t mine;
    answer_t answer;
    uint64_t there;

    answer = owner_tell(owner, (order_t){'a', kind, owner_device, pieces, 5 * MIB + 40, 1, 0});
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, my_device, answer.bytes, 0, &mine);
    assert_int_equal(mpath_import_get(&answer.export, gpu, &import), MPATH_OK);
    there = mpath_import_address(import, answer.address);
    copy(gpu, mine.address, there, answer.bytes);
    assert_int_equal(gpu_pattern_check(mine.address, answer.bytes, 1), 0);
    if (mpath_kernels_usable(gpu)) {
        gpu_pattern_write(mine.address, answer.bytes, 9);
        copy_by_kernel(gpu, mine.address, there, answer.bytes);
        assert_int_equal(gpu_pattern_check(mine.address, answer.bytes, 1), 0);
    }

    gpu_pattern_write(mine.address, answer.bytes, 2);
    copy(gpu, there, mine.address, skip);
    copy(gpu, mpath_import_address(import, answer.address + skip), mine.address + skip, answer.bytes - skip);
    mpath_import_put(import);
    assert_int_equal(owner_tell(owner, (order_t){.what = 'c', .seed = 2}).wrong, 0);

    assert_int_equal(mpath_import_get(&answer.export, gpu, &again), MPATH_OK);
    assert_ptr_equal(import, again);
    assert_int_equal(counts().opened, opened + 1);
    mpath_import_put(again);
    gpu_memory_free(&mine);
    mpath_import_forget(&answer.export.owner);
    owner_tell(owner, (order_t){.what = 'f'});
}

static void test_kinds_on_same_and_other_device(void **state)
{
    owner_t owner = owner_start();
    int last      = mpath_gpu_count() - 1, to;

    (void)state;
    for (to = 0; to <= last; to += (last > 0) ? last : 1) {
        check_kind(&owner, MPATH_MEMORY_DEVICE, 0, 0, to);
        check_kind(&owner, MPATH_MEMORY_VMM, 1, 0, to);
        check_kind(&owner, MPATH_MEMORY_VMM, 3, 0, to);
        check_kind(&owner, MPATH_MEMORY_POOL, 1, 0, to);
        if (gpu_makes_fabric_handles(0)) {
            check_kind(&owner, MPATH_MEMORY_VMM, -1, 0, to);
            check_kind(&owner, MPATH_MEMORY_VMM, -MPATH_EXPORT_FABRIC_MAX, 0, to);
        }
    }
    assert_int_equal(counts().entries, 0);
    owner_stop(&owner);
}

/* Small allocations lie side by side in one block of the driver's; all of them are open at once, on two devices. */
static void test_small_neighbours(void **state)
{
    owner_t owner = owner_start();
    mpath_import_t *import[2][SLOTS];
    answer_t answer[SLOTS];
    gpu_memory_t mine;
    unsigned slot, side;

    (void)state;
    for (slot = 0; slot < SLOTS; slot++) {
        answer[slot] = owner_tell(&owner, (order_t){'a', MPATH_MEMORY_DEVICE, 0, 0, 1000 + 777 * slot, slot, slot});
    }
    for (side = 0; side < 2; side++) {
        mpath_gpu_t *gpu = gpu_of(side ? mpath_gpu_count() - 1 : 0);

        gpu_memory_alloc(MPATH_MEMORY_DEVICE, mpath_gpu_info_of(gpu)->ordinal, 65536, 0, &mine);
        for (slot = 0; slot < SLOTS; slot++) {
            assert_int_equal(mpath_import_get(&answer[slot].export, gpu, &import[side][slot]), MPATH_OK);
        }
        for (slot = 0; slot < SLOTS; slot++) {
            copy(gpu, mine.address, mpath_import_address(import[side][slot], answer[slot].address), answer[slot].bytes);
            assert_int_equal(gpu_pattern_check(mine.address, answer[slot].bytes, slot), 0);
            if (mpath_kernels_usable(gpu)) {
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
    owner_tell(&owner, (order_t){.what = 'f', .slot = 2});
    answer[2] = owner_tell(&owner, (order_t){'a', MPATH_MEMORY_DEVICE, 0, 0, 1000 + 777 * 2, 50, 2});
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, 65536, 0, &mine);
    for (slot = 0; slot < SLOTS; slot++) {
        assert_int_equal(mpath_import_get(&answer[slot].export, gpu_of(0), &import[0][slot]), MPATH_OK);
        copy(gpu_of(0), mine.address, mpath_import_address(import[0][slot], answer[slot].address), answer[slot].bytes);
        assert_int_equal(gpu_pattern_check(mine.address, answer[slot].bytes, (slot == 2) ? 50 : slot), 0);
        mpath_import_put(import[0][slot]);
    }
    gpu_memory_free(&mine);
    mpath_import_forget(&answer[0].export.owner);
    assert_int_equal(counts().entries, 0);
    owner_stop(&owner);
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
        copy(gpu_of(number), mine.address, mpath_import_address(import, answer.address), MIB);
        assert_int_equal(gpu_pattern_check(mine.address, MIB, 1), 0);
        mpath_import_put(import);
        mpath_import_forget(&answer.export.owner);
        gpu_memory_free(&mine);
        owner_tell(&owner, (order_t){.what = 'f'});
    }
    owner_stop(&owner);
}

static void check_reuse(const owner_t *owner, mpath_memory_kind_t kind, int pieces)
{
    mpath_gpu_t *gpu = gpu_of(0);
    uint64_t stale = counts().stale, seed, before = 0;
    mpath_import_t *import;
    gpu_memory_t mine;
    answer_t answer;
    int same = 0;

    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, 16 * MIB, 0, &mine);
    for (seed = 1; seed <= 4; seed++) {
        answer = owner_tell(owner, (order_t){'a', kind, 0, pieces, 4 * MIB, seed, 0});
        same += answer.address == before;
        before = answer.address;
        assert_int_equal(mpath_import_get(&answer.export, gpu, &import), MPATH_OK);
        copy(gpu, mine.address, mpath_import_address(import, answer.address), answer.bytes);
        assert_int_equal(gpu_pattern_check(mine.address, answer.bytes, seed), 0);
        mpath_import_put(import);
        owner_tell(owner, (order_t){.what = 'f'});
    }
    assert_int_equal(counts().stale - stale, same); /* each time the address came back, the old mapping went */
    assert_true((same == 3) || (getenv("MPATH_TEST_CUDA") != NULL));
    mpath_import_forget(&answer.export.owner);
    gpu_memory_free(&mine);
}

static void test_freed_and_allocated_again(void **state)
{
    owner_t owner = owner_start();

    (void)state;
    check_reuse(&owner, MPATH_MEMORY_DEVICE, 0);
    check_reuse(&owner, MPATH_MEMORY_VMM, 2);
    owner_stop(&owner);
}

static void test_a_stale_import_in_use_goes_with_its_last_use(void **state)
{
    owner_t owner    = owner_start();
    mpath_gpu_t *gpu = gpu_of(0);
    mpath_import_t *old, *fresh;
    answer_t first, second;

    (void)state;
    first = owner_tell(&owner, (order_t){'a', MPATH_MEMORY_DEVICE, 0, 0, MIB, 1, 0});
    assert_int_equal(mpath_import_get(&first.export, gpu, &old), MPATH_OK);
    owner_tell(&owner, (order_t){.what = 'f'});
    second = owner_tell(&owner, (order_t){'a', MPATH_MEMORY_DEVICE, 0, 0, MIB, 2, 0});
    assert_int_equal(mpath_import_get(&second.export, gpu, &fresh), MPATH_OK);
    assert_ptr_not_equal(old, fresh);
    assert_int_equal(counts().in_use, 2);
    mpath_import_put(old);
    mpath_import_put(fresh);
    assert_true(counts().entries <= 2);
    assert_int_equal(counts().in_use, 0);
    owner_stop(&owner);
    mpath_import_forget(&first.export.owner);
    assert_int_equal(counts().entries, 0);
}

#define OWNERS 4

static void test_the_cache_is_bounded(void **state)
{
    mpath_gpu_t *gpu = gpu_of(0);
    uint64_t evicted = counts().evicted;
    mpath_import_t *import[OWNERS], *again;
    answer_t answer[OWNERS];
    owner_t owner[OWNERS];
    int index;

    (void)state;
    mpath_import_set_limit(2);
    for (index = 0; index < OWNERS; index++) {
        owner[index]  = owner_start();
        answer[index] = owner_tell(&owner[index], (order_t){'a', MPATH_MEMORY_DEVICE, 0, 0, MIB, 1, 0});
        assert_int_equal(mpath_import_get(&answer[index].export, gpu, &import[index]), MPATH_OK);
    }
    assert_int_equal(counts().entries, OWNERS); /* in use: not counted against the limit */
    assert_int_equal(counts().in_use, OWNERS);
    for (index = 0; index < OWNERS; index++) {
        mpath_import_put(import[index]);
    }
    assert_int_equal(counts().entries, 2);
    assert_int_equal(counts().evicted - evicted, OWNERS - 2);
    assert_int_equal(mpath_import_get(&answer[OWNERS - 1].export, gpu, &again),
                     MPATH_OK); /* the latest is still there */
    assert_ptr_equal(again, import[OWNERS - 1]);
    mpath_import_put(again);
    mpath_import_set_limit(128);
    for (index = 0; index < OWNERS; index++) {
        mpath_import_forget(&answer[index].export.owner);
        owner_stop(&owner[index]);
    }
    assert_int_equal(counts().entries, 0);
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
    owner_t owner = owner_start();
    worker_t workers[THREADS];
    gpu_memory_t mine[THREADS];
    answer_t answers[SLOTS];
    unsigned number;

    (void)state;
    for (number = 0; number < SLOTS; number++) {
        answers[number] = owner_tell(&owner, (order_t){'a', MPATH_MEMORY_DEVICE, 0, 0, 10000 + number, number, number});
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
    assert_int_equal(counts().entries, 0);
    mpath_import_set_limit(128);
    for (number = 0; number < THREADS; number++) {
        gpu_memory_free(&mine[number]);
    }
    owner_stop(&owner);
}

static void check_dead(mpath_memory_kind_t kind, int pieces)
{
    owner_t owner    = owner_start();
    mpath_gpu_t *gpu = gpu_of(0);
    mpath_import_t *import, *other;
    answer_t answer;

    answer = owner_tell(&owner, (order_t){'a', kind, 0, pieces, MIB, 1, 0});
    assert_int_equal(mpath_import_get(&answer.export, gpu, &import), MPATH_OK);
    owner_kill(&owner);
    mpath_import_put(import);
    mpath_import_forget(&answer.export.owner); /* closes what the dead process owned */
    assert_int_equal(counts().entries, 0);
    capture_start();
    assert_int_equal(mpath_import_get(&answer.export, gpu, &other), MPATH_ERR_UNREACHABLE);
    capture_stop();
    assert_int_equal(capture_lines, 1);
}

static void test_owners_that_died(void **state)
{
    (void)state;
    check_dead(MPATH_MEMORY_DEVICE, 0);
    check_dead(MPATH_MEMORY_VMM, 2);
    check_dead(MPATH_MEMORY_POOL, 1);
}

/* Imports that are put and taken again together, as long as nothing has been closed meanwhile. */
static void test_taken_again(void **state)
{
    mpath_gpu_t *gpu        = gpu_of(0);
    mpath_import_t *list[4] = {NULL}, *fresh;
    owner_t owner[2];
    answer_t answer[2], later;
    uint64_t stamp;

    (void)state;
    for (int i = 0; i < 2; i++) {
        owner[i]  = owner_start();
        answer[i] = owner_tell(&owner[i], (order_t){'a', MPATH_MEMORY_DEVICE, 0, 0, MIB, 1, 0});
        assert_int_equal(mpath_import_get(&answer[i].export, gpu, &list[1 + i]), MPATH_OK);
    }
    stamp = mpath_import_put_all(list, 4);
    assert_int_equal(counts().in_use, 0);
    assert_true(mpath_import_take_again(list, 4, stamp));
    assert_int_equal(counts().in_use, 2);
    assert_true(mpath_import_take_again(list, 4, stamp));
    (void)mpath_import_put_all(list, 4);
    assert_int_equal(counts().in_use, 2);

    /* Given up while it is in use, by others too. */
    owner_tell(&owner[1], (order_t){.what = 'f'});
    later = owner_tell(&owner[1], (order_t){'a', MPATH_MEMORY_DEVICE, 0, 0, MIB, 2, 0});
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
    assert_int_equal(counts().in_use, 0);

    /* Closed, and evicted by the very put. */
    assert_int_equal(mpath_import_get(&answer[0].export, gpu, &list[1]), MPATH_OK);
    mpath_import_set_limit(0);
    list[2] = NULL;
    stamp   = mpath_import_put_all(list, 4);
    assert_int_equal(counts().entries, 0);
    assert_false(mpath_import_take_again(list, 4, stamp));
    mpath_import_set_limit(128);
    for (int i = 0; i < 2; i++) {
        owner_stop(&owner[i]);
    }
}

static void test_own_exports(void **state)
{
    mpath_memory_t memory;
    mpath_export_t export = {.how = MPATH_EXPORT_NONE};
    mpath_import_t *import;
    gpu_memory_t mine;

    (void)state;
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, MIB, 0, &mine);
    assert_int_equal(mpath_memory_classify((void *)(uintptr_t)mine.address, MIB, &memory), MPATH_OK);
    assert_int_equal(mpath_export_make((void *)(uintptr_t)mine.address, MIB, &memory, &export), MPATH_OK);
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

static int setup(void **state)
{
    (void)state;
    gpu_application_starts();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    mpath_gpu_cleanup();
    return 0;
}

int main(int count, char **words)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_exports),
        cmocka_unit_test(test_kinds_on_same_and_other_device),
        cmocka_unit_test(test_devices_in_another_order),
        cmocka_unit_test(test_small_neighbours),
        cmocka_unit_test(test_freed_and_allocated_again),
        cmocka_unit_test(test_a_stale_import_in_use_goes_with_its_last_use),
        cmocka_unit_test(test_the_cache_is_bounded),
        cmocka_unit_test(test_taken_again),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_owners_that_died),
    };

    signal(SIGPIPE, SIG_IGN);
    if ((count > 1) && (strcmp(words[1], "owner") == 0)) {
        return owner_main();
    }
    return cmocka_run_group_tests_name("gpu_import", tests, setup, teardown);
}
