/* SPDX-License-Identifier: BSD-3-Clause */
/* Demand matrices: what the generators produce, and what the reader says about bad files. */
#include "unit/capture.h"

#include "plan/demand.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define N 8

static void hot_spot_shares(void **state)
{
    uint64_t demand[N * N];
    int s, d;

    (void)state;
    mpath_demand_hot(N, 3, 500000, 8000, 1, demand);
    for (s = 0; s < N; s++) {
        for (d = 0; d < N; d++) {
            /* half of it to rank 3, the other half evenly to all; rank 3 sends evenly */
            assert_int_equal(demand[s * N + d], s == 3 ? 1000 : d == 3 ? 4500 : 500);
        }
    }
}

static void hot_spot_extremes(void **state)
{
    uint64_t demand[N * N];
    int s, d;

    (void)state;
    mpath_demand_hot(N, 0, 0, 8007, 1, demand);
    for (s = 0; s < N * N; s++) {
        assert_int_equal(demand[s], 1000);
    }
    mpath_demand_hot(N, 0, 1000000, 8000, 1, demand);
    for (s = 1; s < N; s++) {
        for (d = 0; d < N; d++) {
            assert_int_equal(demand[s * N + d], d == 0 ? 8000 : 0);
        }
    }
    mpath_demand_hot(1, 0, 700000, 100, 1, demand);
    assert_int_equal(demand[0], 100);
}

static void units_are_whole(void **state)
{
    uint64_t demand[N * N];
    int i;

    (void)state;
    mpath_demand_hot(N, 1, 333333, 1000000, 64, demand);
    for (i = 0; i < N * N; i++) {
        assert_int_equal(demand[i] % 64, 0);
    }
    mpath_demand_zipf(N, 800000, 1, 1000000, 64, demand);
    for (i = 0; i < N * N; i++) {
        assert_int_equal(demand[i] % 64, 0);
    }
}

static int descending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? 1 : x > y ? -1 : 0;
}

static void zipf_shares(void **state)
{
    uint64_t demand[N * N], other[N * N], sum = 0;
    int i;

    (void)state;
    mpath_demand_zipf(N, 1000000, 7, 1000000, 1, demand);
    mpath_demand_zipf(N, 1000000, 7, 1000000, 1, other);
    assert_memory_equal(demand, other, sizeof(demand));
    for (i = 0; i < N; i++) {
        sum += demand[i];
        assert_memory_equal(demand, demand + i * N, N * sizeof(demand[0]));
    }
    assert_in_range(sum, 1000000 - N, 1000000);
    qsort(demand, N, sizeof(demand[0]), descending);
    for (i = 1; i < N; i++) {
        /* the k-th has 1 / k of the first, within the table's interpolation */
        assert_in_range(demand[i] * (uint64_t)(i + 1), demand[0] - 300, demand[0] + 300);
    }
}

static void zipf_seeds_shuffle(void **state)
{
    uint64_t demand[N * N], other[N * N];

    (void)state;
    mpath_demand_zipf(N, 1000000, 7, 1000000, 1, demand);
    mpath_demand_zipf(N, 1000000, 8, 1000000, 1, other);
    assert_memory_not_equal(demand, other, sizeof(demand));
    qsort(demand, N, sizeof(demand[0]), descending);
    qsort(other, N, sizeof(other[0]), descending);
    assert_memory_equal(demand, other, N * sizeof(demand[0]));
}

static void zipf_without_skew_is_even(void **state)
{
    uint64_t demand[N * N];
    int i;

    (void)state;
    mpath_demand_zipf(N, 0, 3, 8000, 1, demand);
    for (i = 0; i < N * N; i++) {
        assert_int_equal(demand[i], 1000);
    }
}

static void reads_all_separators(void **state)
{
    static const char text[] = "# a comment\n0, 10,20\r\n 30\t0 50 # more\n\n4611686018427387 7;0\n";
    uint64_t *demand;
    int ranks;

    (void)state;
    assert_int_equal(mpath_demand_parse("m", text, sizeof(text) - 1, &ranks, &demand), MPATH_OK);
    assert_int_equal(ranks, 3);
    assert_int_equal(demand[1], 10);
    assert_int_equal(demand[2], 20);
    assert_int_equal(demand[3], 30);
    assert_int_equal(demand[5], 50);
    assert_true(demand[6] == 4611686018427387ull);
    assert_int_equal(demand[8], 0);
    free(demand);
}

static void names_the_place_of_errors(void **state)
{
    static const struct {
        const char *text, *place;
    } cases[] = {
        {"1 2\n3 x\n", "matrix m:2:3: 'x' is not part"},
        {"1 2\n3 4x\n", "matrix m:2:4: 'x' is not part"},
        {"1 -2\n3 4\n", "matrix m:1:3: '-' is not part"},
        {"1 2\n3\n", "matrix m:2:2: the row has 1 entries where 2 are needed"},
        {"1 2\n\n3 4\n5 6\n", "3 rows of 2 entries are not a square matrix"},
        {"", "0 rows of 0 entries"},
        {"# nothing\n\n", "0 rows of 0 entries"},
        {"99999999999999999999", "matrix m:1:1: the number is larger than 2^62"},
    };
    uint64_t *demand = NULL;
    int ranks        = -7;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        capture_start();
        assert_int_equal(mpath_demand_parse("m", cases[i].text, strlen(cases[i].text), &ranks, &demand),
                         MPATH_ERR_PARAM);
        capture_stop();
        assert_int_equal(capture_count(), 1);
        if (strstr(capture_text(), cases[i].place) == NULL) {
            fail_msg("'%s' says: %s", cases[i].text, capture_text());
        }
        assert_non_null(strstr(capture_text(), "the matrix is not used"));
        assert_null(demand);
        assert_int_equal(ranks, -7);
    }
}

static void loads_files(void **state)
{
    char path[] = "/tmp/mpath_test_demand_XXXXXX";
    int ranks, fd = mkstemp(path);
    uint64_t *demand;

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "0 5\n6 0\n", 8), 8);
    close(fd);
    assert_int_equal(mpath_demand_load(path, &ranks, &demand), MPATH_OK);
    assert_int_equal(ranks, 2);
    assert_int_equal(demand[2], 6);
    free(demand);
    unlink(path);
    capture_start();
    assert_int_equal(mpath_demand_load(path, &ranks, &demand), MPATH_ERR_IO);
    capture_stop();
    assert_non_null(strstr(capture_text(), path));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hot_spot_shares),      cmocka_unit_test(hot_spot_extremes),
        cmocka_unit_test(units_are_whole),      cmocka_unit_test(zipf_shares),
        cmocka_unit_test(zipf_seeds_shuffle),   cmocka_unit_test(zipf_without_skew_is_even),
        cmocka_unit_test(reads_all_separators), cmocka_unit_test(names_the_place_of_errors),
        cmocka_unit_test(loads_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
