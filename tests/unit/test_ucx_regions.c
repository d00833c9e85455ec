/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of registered memory of the UCX transport: what lies inside, what went, ids that come again, threads. */
#include "ucx_tl_mpath/regions.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define COUNT 100
#define ROUNDS 20000
#define BYTES 64

static int inside(mpath_regions_t *regions, uint64_t id, uint64_t address, uint64_t bytes)
{
    int found = mpath_regions_enter(regions, id, address, bytes);

    if (found) {
        mpath_regions_leave(regions);
    }
    return found;
}

static void test_bounds(void **state)
{
    const uint64_t top = UINT64_MAX - 99;
    mpath_regions_t regions;
    uint64_t id, last;

    (void)state;
    assert_int_equal(mpath_regions_init(&regions), MPATH_OK);
    assert_false(inside(&regions, 0, 0, 0));
    assert_int_equal(mpath_regions_add(&regions, (void *)1000, 100, &id), MPATH_OK);
    assert_int_equal(mpath_regions_add(&regions, (void *)(uintptr_t)top, 99, &last), MPATH_OK);
    assert_int_not_equal(id, 0);
    assert_true(inside(&regions, id, 1000, 100));
    assert_true(inside(&regions, id, 1099, 1));
    assert_true(inside(&regions, id, 1050, 50));
    assert_false(inside(&regions, id, 999, 1));
    assert_false(inside(&regions, id, 999, 102));
    assert_false(inside(&regions, id, 1001, 100));
    assert_false(inside(&regions, id, 1100, 1));
    assert_false(inside(&regions, id, 1050, UINT64_MAX));
    assert_false(inside(&regions, 0, 1000, 1));
    assert_false(inside(&regions, id + 100, 1000, 1)); /* a slot that does not exist */
    assert_true(inside(&regions, last, top, 99));
    assert_false(inside(&regions, last, top, 100)); /* its end would wrap */
    mpath_regions_release(&regions);
}

/* An id is never valid again, whatever takes its place. */
static void test_removed(void **state)
{
    mpath_regions_t regions;
    uint64_t id, next;
    int round;

    (void)state;
    assert_int_equal(mpath_regions_init(&regions), MPATH_OK);
    assert_int_equal(mpath_regions_add(&regions, (void *)1000, 100, &id), MPATH_OK);
    for (round = 0; round < COUNT; ++round) {
        mpath_regions_remove(&regions, id);
        assert_false(inside(&regions, id, 1000, 1));
        assert_false(inside(&regions, id, 1000, 0));
        mpath_regions_remove(&regions, id); /* a second time: nothing */
        assert_int_equal(mpath_regions_add(&regions, (void *)1000, 100, &next), MPATH_OK);
        assert_int_not_equal(next, id);
        assert_int_equal((uint32_t)next, (uint32_t)id); /* the same slot */
        assert_false(inside(&regions, id, 1000, 1));
        assert_true(inside(&regions, next, 1000, 1));
        id = next;
    }
    mpath_regions_release(&regions);
}

static void test_grows(void **state)
{
    mpath_regions_t regions;
    uint64_t id[COUNT];
    uintptr_t i, j;

    (void)state;
    assert_int_equal(mpath_regions_init(&regions), MPATH_OK);
    for (i = 0; i < COUNT; ++i) {
        assert_int_equal(mpath_regions_add(&regions, (void *)(4096 * (i + 1)), 4096, &id[i]), MPATH_OK);
    }
    for (i = 0; i < COUNT; i += 3) {
        mpath_regions_remove(&regions, id[i]);
    }
    for (i = 0; i < COUNT; ++i) {
        for (j = 0; j < COUNT; ++j) {
            assert_int_equal(inside(&regions, id[i], 4096 * (j + 1), 1), i == j && i % 3 != 0);
        }
    }
    mpath_regions_release(&regions);
}

typedef struct shared {
    mpath_regions_t regions;
    uint64_t id; /* atomic */
    unsigned wrong, entered;
} shared_t;

/* What is entered keeps its contents until it is left; the other thread spoils them once it has removed the region. */
static void *access_memory(void *arg)
{
    static char memory[BYTES];
    shared_t *shared = arg;
    uint64_t id;
    int round;

    for (round = 0; round < ROUNDS; ++round) {
        id = __atomic_load_n(&shared->id, __ATOMIC_ACQUIRE);
        if (mpath_regions_enter(&shared->regions, id, (uint64_t)(uintptr_t)shared, BYTES)) {
            ++shared->entered;
            shared->wrong += __atomic_load_n(&shared->id, __ATOMIC_ACQUIRE) != id;
            memset(memory, round, sizeof(memory));
            shared->wrong += __atomic_load_n(&shared->id, __ATOMIC_ACQUIRE) != id;
            mpath_regions_leave(&shared->regions);
        }
    }
    return NULL;
}

static void test_threads(void **state)
{
    static shared_t shared;
    uint64_t id;
    pthread_t thread;
    int round;

    (void)state;
    assert_int_equal(mpath_regions_init(&shared.regions), MPATH_OK);
    assert_int_equal(mpath_regions_add(&shared.regions, &shared, BYTES, &id), MPATH_OK);
    __atomic_store_n(&shared.id, id, __ATOMIC_RELEASE);
    assert_int_equal(pthread_create(&thread, NULL, access_memory, &shared), 0);
    for (round = 0; round < ROUNDS / 10; ++round) {
        mpath_regions_remove(&shared.regions, id);
        __atomic_store_n(&shared.id, 0, __ATOMIC_RELEASE); /* nobody may be inside any more */
        assert_int_equal(mpath_regions_add(&shared.regions, &shared, BYTES, &id), MPATH_OK);
        __atomic_store_n(&shared.id, id, __ATOMIC_RELEASE);
    }
    pthread_join(thread, NULL);
    assert_int_equal(shared.wrong, 0);
    mpath_regions_release(&shared.regions);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_removed),
        cmocka_unit_test(test_grows),
        cmocka_unit_test(test_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
