/* SPDX-License-Identifier: BSD-3-Clause */
/* Reserved memory takes the pages that are written to, and gives them back. */
#include "util/reserve.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGES 1024

static size_t page_bytes;

static int pages_there(void *memory)
{
    unsigned char there[PAGES];
    int count = 0;

    assert_int_equal(mincore(memory, PAGES * page_bytes, there), 0);
    for (int i = 0; i < PAGES; i++) {
        count += there[i] & 1;
    }
    return count;
}

static void test_pages(void **state)
{
    char *memory = mpath_reserve(PAGES * page_bytes);

    (void)state;
    assert_non_null(memory);
    assert_int_equal(pages_there(memory), 0);
    memory[5 * page_bytes]           = 1;
    memory[(PAGES - 1) * page_bytes] = 2;
    assert_int_equal(pages_there(memory), 2);
    assert_int_equal(memory[5 * page_bytes + 1], 0);
    mpath_reserve_clear(memory, PAGES * page_bytes);
    assert_int_equal(pages_there(memory), 0);
    assert_int_equal(memory[5 * page_bytes], 0);
    mpath_unreserve(memory, PAGES * page_bytes);
}

static void test_sizes(void **state)
{
    const size_t sizes[] = {0, 1, MPATH_RESERVE_LEAST_BYTES - 1, MPATH_RESERVE_LEAST_BYTES,
                            MPATH_RESERVE_LEAST_BYTES + 1};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char *memory = mpath_reserve(sizes[i]);

        assert_non_null(memory);
        for (int round = 0; round < 2; round++) {
            for (size_t at = 0; at < sizes[i]; at++) {
                assert_int_equal(memory[at], 0);
                memory[at] = 1;
            }
            mpath_reserve_clear(memory, sizes[i]);
        }
        mpath_unreserve(memory, sizes[i]);
    }
    mpath_unreserve(NULL, 0);
    mpath_unreserve(NULL, PAGES * page_bytes);
}

/* More than there are addresses for. */
static void test_none(void **state)
{
    (void)state;
    assert_null(mpath_reserve((size_t)1 << 60));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pages), cmocka_unit_test(test_sizes),
                                       cmocka_unit_test(test_none)};

    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
