/* SPDX-License-Identifier: BSD-3-Clause */
/* Workloads by name, seed and step: what they look like, that they repeat, and what is refused. */
#include "unit/capture.h"

#include "plan/workload.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define N 16

static void popularity_of(const char *name, uint32_t experts, uint64_t seed, uint64_t step, uint64_t *weights)
{
    mpath_workload_t workload;

    assert_int_equal(mpath_workload_open(name, &workload), MPATH_OK);
    assert_int_equal(mpath_workload_popularity(&workload, experts, seed, step, weights), MPATH_OK);
    mpath_workload_close(&workload);
}

static uint64_t sum(const uint64_t *weights, int count)
{
    uint64_t total = 0;

    for (int i = 0; i < count; i++) {
        total += weights[i];
    }
    return total;
}

static int busiest(const uint64_t *weights, int count)
{
    int most = 0;

    for (int i = 1; i < count; i++) {
        most = weights[i] > weights[most] ? i : most;
    }
    return most;
}

static int descending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? 1 : x > y ? -1 : 0;
}

static void repeat_by_seed_and_step(void **state)
{
    static const char *const names[] = {"balanced", "mild",     "hot",       "hot:0.5",      "moving",
                                        "burst",    "zipf:1.2", "lognormal", "lognormal:0.5"};
    uint64_t weights[N], other[N];

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        for (uint64_t step = 0; step < 10; step++) {
            popularity_of(names[i], N, 3, step, weights);
            popularity_of(names[i], N, 3, step, other);
            assert_memory_equal(weights, other, sizeof(weights));
            assert_true(sum(weights, N) > 0);
        }
    }
    for (size_t i = 0; i < 3; i++) {
        const char *drawn[] = {"mild", "zipf", "lognormal"};

        popularity_of(drawn[i], N, 1, 0, weights);
        popularity_of(drawn[i], N, 2, 0, other);
        assert_memory_not_equal(weights, other, sizeof(weights));
    }
}

static void hot_experts_move_and_burst(void **state)
{
    uint64_t weights[8];

    (void)state;
    popularity_of("hot:0.7", 8, 2, 5, weights);
    assert_int_equal(busiest(weights, 8), 2);
    assert_int_equal(weights[2] * 1000 / sum(weights, 8), 737); /* 0.7 + 0.3 / 8 */
    assert_int_equal(weights[0] * 10000 / sum(weights, 8), 375);
    for (uint64_t step = 0; step < 9; step++) {
        popularity_of("moving", 8, 1, step, weights);
        assert_int_equal(busiest(weights, 8), (int)((1 + step) % 8));
        popularity_of("burst", 8, 3, step, weights);
        assert_int_equal(weights[3] > weights[4], step % 8 == 0);
    }
    popularity_of("moving", 8, UINT64_MAX, UINT64_MAX, weights);
    assert_int_equal(busiest(weights, 8), 7 * 2 % 8);
    popularity_of("hot:1", 8, 0, 0, weights);
    assert_int_equal(weights[1], 0);
}

static void mild_is_mild(void **state)
{
    uint64_t weights[N];

    (void)state;
    popularity_of("mild", N, 5, 0, weights);
    qsort(weights, N, sizeof(weights[0]), descending);
    assert_true(weights[0] == 2 * weights[N - 1]);
    assert_true(weights[0] - weights[1] == weights[N - 2] - weights[N - 1]);
    popularity_of("mild", 1, 5, 0, weights);
    assert_true(weights[0] > 0);
}

/* Of many experts the logarithms have the deviation that was asked for, about the right number of them within one and two of it. */
static void lognormal_is_lognormal(void **state)
{
    enum { MANY = 20000 };
    uint64_t *weights = calloc(MANY, sizeof(*weights)), middle;
    int within_one = 0, within_two = 0;

    (void)state;
    popularity_of("lognormal:0.5", MANY, 11, 0, weights);
    qsort(weights, MANY, sizeof(weights[0]), descending);
    middle = weights[MANY / 2];
    for (int i = 0; i < MANY; i++) { /* e^0.5 = 1.6487, e^1 = 2.7183 */
        within_one += weights[i] * 16487 > middle * 10000 && weights[i] * 10000 < middle * 16487;
        within_two += weights[i] * 27183 > middle * 10000 && weights[i] * 10000 < middle * 27183;
    }
    assert_in_range(within_one, MANY * 67 / 100, MANY * 695 / 1000); /* 0.6827 */
    assert_in_range(within_two, MANY * 945 / 1000, MANY * 96 / 100); /* 0.9545 */
    popularity_of("lognormal:0", N, 1, 0, weights);
    assert_true(weights[0] == weights[N - 1]);
    free(weights);
}

static void makes_matrices(void **state)
{
    uint64_t demand[8 * 8], row;
    mpath_workload_t workload;

    (void)state;
    assert_int_equal(mpath_workload_open("zipf:1", &workload), MPATH_OK);
    assert_int_equal(mpath_workload_demand(&workload, 8, 1, 0, 1 << 20, 64, demand), MPATH_OK);
    row = sum(demand, 8);
    assert_in_range(row, (1 << 20) - 8 * 64, 1 << 20);
    for (int i = 0; i < 64; i++) {
        assert_int_equal(demand[i] % 64, 0);
        assert_true(demand[i] == demand[i % 8]);
    }
    mpath_workload_close(&workload);
}

/* Experts of a table lie on the ranks in order, some on each. */
static void tables_of_loads(void **state)
{
    char path[]              = "/tmp/mpath_test_workload_XXXXXX", name[64];
    int fd                   = mkstemp(path);
    static const char text[] = "[[1,1,2,2,3,3,4,4],\n [8,0,0,0,0,0,0,0]]\n";
    uint64_t demand[4 * 4], weights[8];
    mpath_workload_t workload;

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    snprintf(name, sizeof(name), "file:%s", path);
    assert_int_equal(mpath_workload_open(name, &workload), MPATH_OK);
    assert_int_equal(mpath_workload_experts(&workload), 8);
    assert_int_equal(mpath_workload_demand(&workload, 4, 0, 0, 1000, 1, demand), MPATH_OK);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(demand[i], 100 * (i + 1));
    }
    assert_int_equal(mpath_workload_demand(&workload, 4, 0, 3, 1000, 1, demand), MPATH_OK);
    assert_int_equal(demand[4], 1000);
    capture_start();
    assert_int_equal(mpath_workload_popularity(&workload, 4, 0, 0, weights), MPATH_ERR_PARAM);
    capture_stop();
    assert_non_null(strstr(capture_text(), "the table has loads of 8 experts, and 4 are needed"));
    mpath_workload_close(&workload);
    snprintf(name, sizeof(name), "file:%s:1", path);
    popularity_of(name, 8, 0, 0, weights);
    assert_true(weights[0] > 0 && weights[1] == 0);
    snprintf(name, sizeof(name), "file:%s:2", path);
    capture_start();
    assert_int_equal(mpath_workload_open(name, &workload), MPATH_ERR_PARAM);
    capture_stop();
    assert_non_null(strstr(capture_text(), "the table has layers 0 to 1"));
    unlink(path);
}

static void refuses_what_is_none(void **state)
{
    static const struct {
        const char *name, *text;
        int is_name;
    } cases[] = {{"cold", "there are balanced, mild, hot", 0},
                 {"", "there are balanced", 0},
                 {"hot:2", "the value is a number between 0 and 1", 1},
                 {"hot:", "the value is a number between 0 and 1", 1},
                 {"zipf:-1", "the value is a number between 0 and 4", 1},
                 {"lognormal:99999999999999999999", "the value is a number between 0 and 8", 1},
                 {"balanced:1", "this workload takes no value", 1},
                 {"file", "the table's path is missing", 1},
                 {"file:", "the table's path is missing", 1},
                 {"file:/nowhere/a:b", "table /nowhere/a:b: cannot be opened", 1}};
    mpath_workload_t workload;
    uint64_t weights[1];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        capture_start();
        assert_int_not_equal(mpath_workload_open(cases[i].name, &workload), MPATH_OK);
        capture_stop();
        assert_int_equal(mpath_workload_is_name(cases[i].name) != 0, cases[i].is_name);
        if (capture_count() != 1 || strstr(capture_text(), cases[i].text) == NULL) {
            fail_msg("'%s' says: %s", cases[i].name, capture_text());
        }
    }
    assert_int_equal(mpath_workload_open("hot", &workload), MPATH_OK);
    capture_start();
    assert_int_equal(mpath_workload_popularity(&workload, 0, 0, 0, weights), MPATH_ERR_PARAM);
    assert_int_equal(mpath_workload_popularity(&workload, 65537, 0, 0, weights), MPATH_ERR_PARAM);
    capture_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repeat_by_seed_and_step),
        cmocka_unit_test(hot_experts_move_and_burst),
        cmocka_unit_test(mild_is_mild),
        cmocka_unit_test(lognormal_is_lognormal),
        cmocka_unit_test(makes_matrices),
        cmocka_unit_test(tables_of_loads),
        cmocka_unit_test(refuses_what_is_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
