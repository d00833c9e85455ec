/* SPDX-License-Identifier: BSD-3-Clause */
/* Demand matrices: what the generators produce, and what the reader says about bad files. */
#include "unit/capture.h"

#include "plan/demand.h"
#include "plan/matrix.h"

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
    int ranks, shares;

    (void)state;
    assert_int_equal(mpath_matrix_parse("m", text, sizeof(text) - 1, NULL, &ranks, &shares, &demand), MPATH_OK);
    assert_int_equal(ranks, 3);
    assert_int_equal(demand[1], 10);
    assert_int_equal(demand[2], 20);
    assert_int_equal(demand[3], 30);
    assert_int_equal(demand[5], 50);
    assert_true(demand[6] == 4611686018427387ull);
    assert_int_equal(demand[8], 0);
    free(demand);
}

/* What spreadsheets, NumPy and other benchmarks write, as one row each of what it says. */
static void reads_what_programs_write(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes, values[4];
        int shares;
    } cases[] = {
        {"0 1G\n5M 0", 0, {0, 1 << 30, 5 << 20, 0}, 0},
        {"31.25M 500B\n1.5KiB 2t", 0, {32768000, 500, 1536, 2ull << 40}, 0},
        {"0.3k 1kB\n0 0", 0, {307, 1024, 0, 0}, 0}, /* to the nearest */
        {"3.276800000000000000e+07 0.000000000000000000e+00\n1E3 4.5e1", 0, {32768000, 0, 1000, 45}, 0},
        {"1234567890123456789 4.611686018427387903e+18\n1.0 12.50e1",
         0,
         {1234567890123456789, (1ull << 62) - 1, 1, 125},
         0},
        {"0.5,0.25\n1,0", 1 << 20, {1 << 19, 1 << 18, 1 << 20, 0}, 1},
        {"1e-3 0.33333333333333333333333333\n0.0 1.000",
         1ull << 61,
         {2305843009213694, 768614336404564651, 0, 1ull << 61},
         1},
        {"1,0\n0,1", 64, {1, 0, 0, 1}, 0}, /* bytes: nothing says that they are shares */
        {"\xef\xbb\xbf"
         "128,256\r\n0,64\r\n",
         0,
         {128, 256, 0, 64},
         0},
        {"# from a sheet\nrank0, \"rank 1, #1\"\n1,2\n3,4\n", 0, {1, 2, 3, 4}, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const mpath_matrix_format_t format = {.share_bytes = cases[i].bytes};
        uint64_t *demand                   = NULL;
        int ranks = 0, shares = -1;

        if (mpath_matrix_parse("m", cases[i].text, strlen(cases[i].text), &format, &ranks, &shares, &demand) !=
            MPATH_OK) {
            fail_msg("'%s' is refused", cases[i].text);
        }
        assert_int_equal(ranks, 2);
        assert_int_equal(shares, cases[i].shares);
        assert_memory_equal(demand, cases[i].values, sizeof(cases[i].values));
        free(demand);
    }
}

static void names_the_place_of_errors(void **state)
{
    static const struct {
        const char *text, *place;
        uint64_t bytes; /* of a rank, for shares */
    } cases[] = {
        {"1 2\n3 x\n", "matrix m:2:3: 'x' is not part", 0},
        {"1 2\n3 4x\n", "matrix m:2:4: 'x' is not part", 0},
        {"1 -2\n3 4\n", "matrix m:1:3: '-' is not part", 0},
        {"1 2\n3\n", "matrix m:2:2: the row has 1 entries where 2 are needed", 0},
        {"1 2\n\n3 4\n5 6\n", "3 rows of 2 entries are not a square matrix", 0},
        {"", "0 rows of 0 entries", 0},
        {"# nothing\n\n", "0 rows of 0 entries", 0},
        {"99999999999999999999", "matrix m:1:1: the number is larger than 2^62", 0},
        {"1e19", "matrix m:1:1: the number is larger than 2^62", 0},
        {"1e999999999999", "matrix m:1:1: the number is larger than 2^62", 0},
        {"9999999t", "matrix m:1:1: the number is larger than 2^62", 0},
        /* cells without anything in them, in the line where they are */
        {"1,,2\n3,4,5\n6,7,8\n", "matrix m:1:3: the cell is empty; write 0", 0},
        {",1\n2,3\n", "matrix m:1:1: the cell is empty", 0},
        {"1,2\n3, \n", "matrix m:2:4: the cell is empty", 0},
        {"1;2;\n3;4;\n", "matrix m:1:5: the cell is empty", 0},
        /* what is no number says what would be one */
        {"1 2\n3 4G5\n", "matrix m:2:5: '5' is not part of a number: a cell is a number of bytes (4096, 3.2768e+07)",
         0},
        {"1 2e\n3 4\n", "matrix m:1:5: '?' is not part", 0},
        {"1 nan\n3 4\n", "matrix m:1:3: 'n' is not part", 0},
        {"1,2\n\"3\",4\n", "matrix m:2:1: '\"' is not part", 0},
        {"a b\nc d\n1 2\n3 4\n", "matrix m:2:1: 'c' is not part", 0},
        {"a,b,c\n1,2\n3,4\n", "matrix m:1:1: 3 names over 2 columns", 0},
        {"\xff\xfe"
         "1 2",
         "matrix m:1:1: the text is UTF-16; UTF-8 is right", 0},
        /* fractions of bytes beside what is no share, and shares of nothing */
        {"12.5 2\n3 4\n", "matrix m:1:1: this is no whole number of bytes", 0},
        {"0.5 2\n0.25 0\n",
         "matrix m:1:1: this is no whole number of bytes, and the matrix is none of shares, as the cell at 1:5", 8},
        {"0 0.5B\n0 0\n", "matrix m:1:3: this is no whole number of bytes", 0},
        {"1 0\n0.5 0.5\n", "matrix m:2:1: this is a share of what a rank sends; bytes are right here", 0},
        /* lists in brackets */
        {"[[1, 2],\n [3, x]]\n", "matrix m:2:6: 'x' is not part of a number", 0},
        {"[[1, 2],\n [3]]\n", "matrix m:2:4: the row has 1 entries where 2 are needed", 0},
        {"[[1, 2],\n [3,, 4]]\n", "matrix m:2:5: the cell is empty", 0},
        {"[[1, 2],\n [3, 4, ]]\n", "matrix m:2:9: the cell is empty", 0},
        {"[[1, 2],\n [3, 4]\n", "matrix m:3:1: the list has no end: ']' is missing", 0},
        {"[[1, 2],\n [3, 4", "matrix m:2:7: the list has no end: ']' is missing", 0},
        {"[[1, 2], [3, 4]] 5", "matrix m:1:18: text behind the list's end", 0},
        {"[[1, 2], 3]", "matrix m:1:10: '[' and a row's numbers are needed here", 0},
        {"[[[1, 2]]]", "matrix m:1:3: a list in a list of numbers", 0},
        /* UCC's patterns */
        {"[format]\nversion = 1.0\n", "matrix m:1:1: no [collective] in it", 0},
        {"[collective]\ntype = ALLTOALLV\n", "matrix m:1:1: the collective has no counts", 0},
        {"[collective]\ntype = ALLGATHERV\n", "matrix m:2:8: this collective has no matrix", 0},
        {"[collective]\ncounts = {\n 1,2\n 3,x\n}\n", "matrix m:4:4: 'x' is not part of a number", 0},
        {"[collective]\ncounts = {\n 1,2\n 3\n}\n", "matrix m:2:10: 3 counts are not those of any number of ranks", 0},
        {"[collective]\nteam_size = 3\ncounts = {1,2,3,4}\n", "matrix m:3:10: 4 counts are not those of 3 ranks", 0},
        {"[collective]\nteam_size = few\n", "matrix m:2:13: a number of ranks is needed", 0},
        {"[collective]\ndatatype = INT33\n", "matrix m:2:12: no datatype of UCC has this name", 0},
        {"[collective]\ncounts = 1,2\n", "matrix m:2:10: '{' is needed before the counts", 0},
        {"[collective]\ncounts = {1,2\n", "matrix m:3:1: the counts have no end: '}' is missing", 0},
        {"[collective]\ncounts = {1}\ncounts = {1}\n", "matrix m:3:10: the collective has counts already", 0},
        {"[collective]\ncounts = {0.5}\n", "matrix m:2:11: a count is a whole number", 8},
        {"[collective]\ndatatype = INT64\ncounts = {4000000000000000000}\n",
         "matrix m:3:10: a count is larger than 2^62", 0},
        {"[collective\n", "matrix m:1:12: ']' is needed behind the section's name", 0},
        {"[collective]\nnothing\n", "matrix m:2:8: '[section]' or 'name = value' is needed here", 0},
    };
    uint64_t *demand = NULL;
    int ranks        = -7, shares;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const mpath_matrix_format_t format = {.share_bytes = cases[i].bytes};

        capture_start();
        assert_int_equal(
            mpath_matrix_parse("m", cases[i].text, strlen(cases[i].text), &format, &ranks, &shares, &demand),
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

static void reads_lists(void **state)
{
    static const char *const texts[] = {"[[1, 2], [3, 4]]", "# of a program\n[[1 2]\n [3 4]]\n", "[1,2]\n[3,4]",
                                        "[ [1,\n2 ] # row 0\n, [3\n,4]\n]\n", "[1, 2], [3e0, 0.4e1]"};
    static const uint64_t values[]   = {1, 2, 3, 4};

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        uint64_t *demand = NULL;
        int ranks        = 0, shares;

        assert_int_equal(mpath_matrix_parse("m", texts[i], strlen(texts[i]), NULL, &ranks, &shares, &demand), MPATH_OK);
        assert_int_equal(ranks, 2);
        assert_memory_equal(demand, values, sizeof(values));
        free(demand);
    }
}

/* What nccl-tests' alltoallv multiplies by 1024, and others by what they like. */
static void scales_cells(void **state)
{
    static const struct {
        const char *scale, *text;
        uint64_t values[4];
    } cases[]        = {{"1024", "1 2.5\n0 4\n", {1024, 2560, 0, 4096}},
                        {"1k", "1 2.5\n0 4\n", {1024, 2560, 0, 4096}},
                        {"0.5", "[[100, 3], [0, 1e3]]", {50, 2, 0, 500}},
                        {"1e-3", "1M 0\n0 1500\n", {1049, 0, 0, 2}},
                        {"2", "[collective]\ndatatype=INT64\ncounts={1,2,3,4}", {16, 32, 48, 64}},
                        {"1000000", "1t 0\n0 0\n", {1099511627776000000, 0, 0, 0}}};
    uint64_t *demand = NULL;
    int ranks, shares;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const mpath_matrix_format_t format = {.scale = cases[i].scale, .share_bytes = 7};

        assert_true(mpath_matrix_is_scale(cases[i].scale));
        assert_int_equal(
            mpath_matrix_parse("m", cases[i].text, strlen(cases[i].text), &format, &ranks, &shares, &demand), MPATH_OK);
        assert_int_equal(shares, 0);
        assert_memory_equal(demand, cases[i].values, sizeof(cases[i].values));
        free(demand);
    }
    assert_false(mpath_matrix_is_scale("0"));
    assert_false(mpath_matrix_is_scale("-1"));
    assert_false(mpath_matrix_is_scale("2 3"));
    assert_false(mpath_matrix_is_scale(""));
    assert_false(mpath_matrix_is_scale("2t"));
    capture_start();
    assert_int_equal(mpath_matrix_parse("m", "1", 1, &(mpath_matrix_format_t){.scale = "x"}, &ranks, &shares, &demand),
                     MPATH_ERR_PARAM);
    assert_int_equal(mpath_matrix_parse("m", "1 2\n3 9999999t", 14, &(mpath_matrix_format_t){.scale = "1"}, &ranks,
                                        &shares, &demand),
                     MPATH_ERR_PARAM);
    capture_stop();
    assert_non_null(strstr(capture_text(), "m:2:3: the number is larger than 2^62"));
}

/* A pattern file as UCC's own example is written, and which of its collectives is taken. */
static void reads_patterns(void **state)
{
    static const char text[]    = "[format]\nversion = 1.0\ndescription = UCC Collective Pattern File\n\n"
                                  "[collective]\ntype = ALLTOALLV\nteam_size = 2\ndatatype = INT32\nflags = COUNT_32BIT\n"
                                  "counts = {\n    100,200\n    300,400\n}\n\n; the next\n"
                                  "[collective]\ntype = ALLTOALLV\nteam_size = 3\ndatatype = BFLOAT16\n"
                                  "counts = {\n    1,1,1\n    2,2,2\n    3,3,3\n}\n";
    static const uint64_t two[] = {400, 800, 1200, 1600}, three[] = {2, 2, 2, 4, 4, 4, 6, 6, 6};
    uint64_t *demand;
    int ranks, shares;

    (void)state;
    for (uint64_t step = 0; step < 4; step++) {
        const mpath_matrix_format_t format = {.step = step};

        assert_int_equal(mpath_matrix_parse("m", text, sizeof(text) - 1, &format, &ranks, &shares, &demand), MPATH_OK);
        assert_int_equal(ranks, step % 2 == 0 ? 2 : 3);
        assert_memory_equal(demand, step % 2 == 0 ? two : three, step % 2 == 0 ? sizeof(two) : sizeof(three));
        free(demand);
    }
}

static void reads_tables(void **state)
{
    /* the example of EPLB's own README: two layers of 12 experts */
    static const char text[] = "[[ 90, 132,  40,  61, 104, 165,  39,   4,  73,  56, 183,  86],\n"
                               " [ 20, 107, 104,  64,  19, 197, 187, 157, 172,  86,  16,  27]]";
    mpath_table_t table;

    (void)state;
    assert_int_equal(mpath_table_parse("t", text, sizeof(text) - 1, &table), MPATH_OK);
    assert_int_equal(table.rows, 2);
    assert_int_equal(table.columns, 12);
    assert_true(table.values[1] == 132 * (table.values[7] / 4));
    assert_true(table.values[12 + 5] == 197 * (table.values[7] / 4));
    mpath_table_release(&table);
    assert_int_equal(mpath_table_parse("t", "0.5 0\n1e12,1e-6\n", 16, &table), MPATH_OK);
    assert_true(table.values[0] > 0 && table.values[1] == 0);
    assert_true(table.values[2] < 1ull << 40 && table.values[3] == 1);
    mpath_table_release(&table);
    capture_start();
    assert_int_equal(mpath_table_parse("t", "1 2\n0 0\n", 8, &table), MPATH_ERR_PARAM);
    assert_non_null(strstr(capture_text(), "all loads of row 1 are 0; the table is not used"));
    assert_int_equal(mpath_table_parse("t", "1 2\n3 -4\n", 9, &table), MPATH_ERR_PARAM);
    assert_non_null(strstr(capture_text(), "table t:2:3: '-' is not part of a number: a load is a number"));
    assert_int_equal(mpath_table_parse("t", "", 0, &table), MPATH_ERR_PARAM);
    assert_int_equal(mpath_table_load("/nowhere/loads", &table), MPATH_ERR_IO);
    capture_stop();
}

static void loads_files(void **state)
{
    char path[] = "/tmp/mpath_test_demand_XXXXXX";
    int ranks, shares, fd = mkstemp(path);
    uint64_t *demand;

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "0 5\n6 0\n", 8), 8);
    close(fd);
    assert_int_equal(mpath_matrix_load(path, NULL, &ranks, &shares, &demand), MPATH_OK);
    assert_int_equal(ranks, 2);
    assert_int_equal(demand[2], 6);
    free(demand);
    unlink(path);
    capture_start();
    assert_int_equal(mpath_matrix_load(path, NULL, &ranks, &shares, &demand), MPATH_ERR_IO);
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
        cmocka_unit_test(loads_files),          cmocka_unit_test(reads_what_programs_write),
        cmocka_unit_test(reads_lists),          cmocka_unit_test(scales_cells),
        cmocka_unit_test(reads_patterns),       cmocka_unit_test(reads_tables),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
