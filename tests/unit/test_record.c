/* SPDX-License-Identifier: BSD-3-Clause */
/* Record: what is counted of calls, reasons, sums over communicators, reports and the summary of a job. */
#include "unit/capture.h"

#include "record/summary.h"
#include "team/call.h"

#include <stdio.h>
#include <stdlib.h>

#define ALLTOALLV MPATH_OPERATION_ALLTOALLV
#define ALLREDUCE MPATH_OPERATION_ALLREDUCE

static void carry(mpath_record_t *record, uint64_t bytes, mpath_record_algorithm_t algorithm)
{
    mpath_record_phase(record, ALLTOALLV, MPATH_RECORD_AGREE, 1000);
    record->call.bytes     = bytes;
    record->call.algorithm = algorithm;
    mpath_record_end(record, ALLTOALLV, MPATH_RECORD_CARRIED, NULL);
}

static void sum_of(int first_only, unsigned collective, mpath_record_memory_t memory, mpath_record_row_t *row)
{
    mpath_record_row_t rows[MPATH_RECORD_COLLECTIVES][MPATH_RECORD_MEMORIES];

    mpath_record_sum(first_only, rows);
    memcpy(row, &rows[collective][memory], sizeof(*row));
}

/* What a row has more than before. */
static uint64_t grown(const mpath_record_row_t *before, const mpath_record_row_t *after, size_t offset)
{
    const mpath_count_t *old = (const mpath_count_t *)(const void *)((const char *)before + offset);
    const mpath_count_t *now = (const mpath_count_t *)(const void *)((const char *)after + offset);

    return mpath_count_get(now) - mpath_count_get(old);
}

#define GROWN(_field) grown(&before, &after, offsetof(mpath_record_row_t, _field))

static void test_counts(void **state)
{
    mpath_record_row_t before, after;
    mpath_record_t *record;

    (void)state;
    sum_of(0, ALLTOALLV, MPATH_RECORD_HOST, &before);
    record = mpath_record_open("first", 0);
    assert_non_null(record);
    carry(record, 100, MPATH_RECORD_PLANNED);
    record->call.repeats = 2;
    carry(record, 10, MPATH_RECORD_INLINE);
    record->call.bytes = 7;
    mpath_record_end(record, ALLTOALLV, MPATH_RECORD_LEFT, MPATH_WHY_ONE_RAIL);
    mpath_record_end(record, ALLTOALLV, MPATH_RECORD_LEFT, MPATH_WHY_ONE_RAIL);
    mpath_record_end(record, ALLTOALLV, MPATH_RECORD_LEFT, "what nobody has heard of");
    mpath_record_end(record, ALLTOALLV, MPATH_RECORD_FAILED, NULL);
    sum_of(0, ALLTOALLV, MPATH_RECORD_HOST, &after);
    assert_int_equal(GROWN(carried), 2);
    assert_int_equal(GROWN(carried_bytes), 110);
    assert_int_equal(GROWN(left), 3);
    assert_int_equal(GROWN(left_bytes), 7); /* those of one call are not those of the next */
    assert_int_equal(GROWN(failed), 1);
    assert_int_equal(GROWN(repeated), 2);
    assert_int_equal(GROWN(predicted), 0);
    assert_int_equal(GROWN(algorithms[MPATH_RECORD_PLANNED]), 1);
    assert_int_equal(GROWN(algorithms[MPATH_RECORD_INLINE]), 1);
    assert_int_equal(GROWN(reasons[mpath_reason_find(MPATH_WHY_ONE_RAIL)]), 2);
    assert_int_equal(GROWN(reasons[MPATH_REASONS - 1]), 1);
    mpath_record_close(record);
    sum_of(0, ALLTOALLV, MPATH_RECORD_HOST, &after);
    assert_int_equal(GROWN(carried), 2); /* what has ended stays */
    assert_int_equal(GROWN(left), 3);
}

static void predict(mpath_record_t *record, uint64_t taken_ns, int sets_up)
{
    record->call = (mpath_record_call_t){
        .static_ns = 400, .mpath_ns = 100, .taken_ns = taken_ns, .memory = MPATH_RECORD_DEVICE, .sets_up = sets_up};
    mpath_record_end(record, ALLREDUCE, MPATH_RECORD_CARRIED, NULL);
}

/* Taken times stand beside predictions of just the same calls. */
static void test_predictions(void **state)
{
    mpath_record_t *record = mpath_record_open("predicted", 0);
    mpath_record_row_t before, after;

    (void)state;
    sum_of(0, ALLREDUCE, MPATH_RECORD_DEVICE, &before);
    predict(record, 120, 0);
    predict(record, 130, 0);
    predict(record, 0, 0);        /* not measured */
    predict(record, 50000000, 1); /* connections were made */
    sum_of(0, ALLREDUCE, MPATH_RECORD_DEVICE, &after);
    assert_int_equal(GROWN(carried), 4);
    assert_int_equal(GROWN(predicted), 2);
    assert_int_equal(GROWN(static_ns), 800);
    assert_int_equal(GROWN(mpath_ns), 200);
    assert_int_equal(GROWN(taken_ns), 250);
    mpath_record_close(record);
}

/* A call of a communicator counts on one of its ranks. */
static void test_first(void **state)
{
    mpath_record_t *first, *other;
    mpath_record_row_t before, after;

    (void)state;
    sum_of(1, ALLTOALLV, MPATH_RECORD_HOST, &before);
    first = mpath_record_open("rank 0 of it", 0);
    other = mpath_record_open("rank 3 of it", 3);
    carry(first, 1, MPATH_RECORD_DIRECT);
    carry(other, 2, MPATH_RECORD_DIRECT);
    mpath_record_close(other);
    sum_of(1, ALLTOALLV, MPATH_RECORD_HOST, &after);
    assert_int_equal(GROWN(carried), 1);
    assert_int_equal(GROWN(carried_bytes), 1);
    mpath_record_close(first);
    sum_of(1, ALLTOALLV, MPATH_RECORD_HOST, &after);
    assert_int_equal(GROWN(carried), 1);
}

static void test_nobody(void **state)
{
    (void)state;
    mpath_record_phase(NULL, ALLTOALLV, MPATH_RECORD_AGREE, 1);
    mpath_record_setup(NULL, 1);
    mpath_record_end(NULL, ALLTOALLV, MPATH_RECORD_CARRIED, NULL);
    mpath_record_close(NULL);
}

/* What a communicator is at, as others see it: tests/unit/test_page.c reads it from outside. */
static void test_state(void **state)
{
    mpath_record_t *record        = mpath_record_open("looked at", 1);
    const mpath_page_slot_t *seen = record->slot;

    (void)state;
    assert_int_equal(atomic_load(&seen->phase), MPATH_RECORD_IDLE);
    mpath_record_phase(record, ALLREDUCE, MPATH_RECORD_AGREE, 50);
    mpath_record_phase(record, ALLREDUCE, MPATH_RECORD_MOVE, 70);
    assert_int_equal(atomic_load(&seen->phase), MPATH_RECORD_MOVE);
    assert_int_equal(atomic_load(&seen->collective), ALLREDUCE);
    assert_int_equal(mpath_count_get(&seen->began_ns), 50);
    assert_int_equal(mpath_count_get(&seen->since_ns), 70);
    assert_int_equal(mpath_count_get(&seen->calls), 1);
    mpath_record_end(record, ALLREDUCE, MPATH_RECORD_FAILED, NULL);
    assert_int_equal(atomic_load(&seen->phase), MPATH_RECORD_IDLE);
    assert_int_equal(atomic_load(&seen->end), MPATH_RECORD_FAILED);
    mpath_record_end(record, ALLTOALLV, MPATH_RECORD_LEFT, MPATH_WHY_CALLS_BEFORE); /* it was not asked about */
    assert_int_equal(atomic_load(&seen->end), MPATH_RECORD_FAILED);
    mpath_record_phase(record, ALLTOALLV, MPATH_RECORD_AGREE, 90);
    assert_int_equal(mpath_count_get(&seen->calls), 2);
    mpath_record_close(record);
}

static void test_reasons(void **state)
{
    int named[MPATH_REASON_KEYS] = {0};

    (void)state;
    for (int reason = 0; reason < MPATH_REASONS; reason++) {
        assert_non_null(mpath_reason_text(reason));
        assert_int_equal(mpath_reason_find(mpath_reason_text(reason)), reason);
        assert_string_equal(mpath_reason_key(reason), mpath_reason_key_name(mpath_reason_key_of(reason)));
        named[mpath_reason_key_of(reason)] = 1;
    }
    for (int key = 0; key < MPATH_REASON_KEYS; key++) {
        assert_true(named[key]);
        assert_true(strlen(mpath_reason_key_text(key)) > 0);
        for (int other = 0; other < key; other++) {
            assert_string_not_equal(mpath_reason_key_name(key), mpath_reason_key_name(other));
        }
    }
    assert_string_equal(mpath_reason_key(mpath_reason_find(NULL)), "other");
}

static void test_rails(void **state)
{
    mpath_page_rail_t *rail = mpath_page_rail("mlx5_0:1", 0);

    (void)state;
    assert_ptr_equal(mpath_page_rail("mlx5_0:1", 0), rail);
    assert_ptr_not_equal(mpath_page_rail("mlx5_0:1", 1), rail); /* virtual nodes share a NIC */
    assert_ptr_not_equal(mpath_page_rail("mlx5_1:1", 0), rail);
    for (int i = 0; i < 2 * MPATH_PAGE_RAILS; i++) {
        char name[16];

        snprintf(name, sizeof(name), "nic%d", i);
        assert_non_null(mpath_page_rail(name, i));
    }
    assert_ptr_equal(mpath_page_rail("mlx5_0:1", 0), rail);
}

/* -- the summary -- */

static mpath_report_t report_of(int rank, const char *host)
{
    mpath_report_t report;

    mpath_report_make(rank, &report);
    memset(report.rows, 0, sizeof(report.rows));
    memset(report.rails, 0, sizeof(report.rails));
    snprintf(report.host, sizeof(report.host), "%s", host);
    report.num_rails = 1;
    snprintf(report.rails[0].name, sizeof(report.rails[0].name), "rail0");
    report.rails[0].sent_bytes     = 1000;
    report.rails[0].received_bytes = 500;
    report.rails[0].failures       = 1;
    report.job_ns                  = 1500000000;
    return report;
}

static char *written(const mpath_summary_t *summary, void (*write)(const mpath_summary_t *, FILE *))
{
    size_t size;
    char *text;
    FILE *out = open_memstream(&text, &size);

    assert_non_null(out);
    write(summary, out);
    fclose(out);
    return text;
}

static void expect_text(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("'%s' is not in:\n%s", part, text);
    }
}

static void test_summary(void **state)
{
    mpath_summary_t *summary;
    mpath_report_row_t *row;
    mpath_report_t report;
    char *text;

    (void)state;
    assert_int_equal(mpath_summary_create(4, "9.8.7", &summary), MPATH_OK);
    report                                                  = report_of(0, "node\"0");
    row                                                     = &report.rows[ALLTOALLV][MPATH_RECORD_HOST];
    row->carried                                            = 20;
    row->left                                               = 5;
    row->repeated                                           = 1;
    row->carried_bytes                                      = 3000;
    row->predicted                                          = 19;
    row->static_ns                                          = 4000000000;
    row->mpath_ns                                           = 1000000000;
    row->taken_ns                                           = 1250000000;
    row->algorithms[MPATH_RECORD_PLANNED]                   = 20;
    row->reasons[mpath_reason_find(MPATH_WHY_FASTER)]       = 1;
    row->reasons[mpath_reason_find(MPATH_WHY_INSIDE_NODES)] = 4;
    report.agree_ns                                         = 2000000;
    assert_int_equal(mpath_summary_add(summary, &report), MPATH_OK);
    report                                                  = report_of(1, "node\"0");
    report.rows[ALLTOALLV][MPATH_RECORD_HOST].carried_bytes = 1000;
    report.relayed_bytes                                    = 77;
    assert_int_equal(mpath_summary_add(summary, &report), MPATH_OK);
    report = report_of(3, "node1");
    assert_int_equal(mpath_summary_add(summary, &report), MPATH_OK);

    text = written(summary, mpath_summary_write_text);
    expect_text(text, "mpath 9.8.7 in this job: 4 ranks on 2 nodes, 1.5 s\n");
    expect_text(text,
                "  alltoallv host                20         5       0         1      19         4 s         1 s      "
                "1.25 s\n");
    expect_text(text,
                "  alltoallv host                 4  all data stays inside nodes, in messages of node_min_bytes or "
                "more (one_node)\n"
                "  alltoallv host                 1  calls like this one are faster with it, or that is tried "
                "(faster_before)\n"); /* the most frequent first */
    expect_text(text, "bytes of alltoallv host  carried 4 kB, left 0 B\n");
    expect_text(text, "time of rank 0          agree 2 ms, plan 0 s, move 0 s\n");
    expect_text(
        text,
        "  node\"0 rail0 (0)                      2 kB        1 kB         1\n"); /* both ranks heard of one failure */
    expect_text(text, "without what these ranks have counted: 2\n");
    assert_null(strstr(text, "allreduce"));
    free(text);

    text = written(summary, mpath_summary_write_json);
    expect_text(text, "\"format\": \"mpath-summary\", \"version\": 1, \"mpath\": \"9.8.7\"");
    expect_text(text, "\"hosts\": [\"node\\\"0\", \"node1\"]");
    expect_text(text, "\"missing\": [2]");
    expect_text(text, "\"calls\": {\"carried\": 20, \"left\": 5, \"failed\": 0, \"repeated\": 1}");
    expect_text(text, "\"algorithms\": {\"planned\": 20}");
    expect_text(text, "[{\"reason\": \"one_node\", ");
    expect_text(text,
                "\"predicted\": {\"calls\": 19, \"static_s\": 4.000000000, \"mpath_s\": 1.000000000, \"taken_s\": "
                "1.250000000}");
    expect_text(text,
                "{\"node\": 0, \"rail\": \"rail0\", \"number\": 0, \"sent_bytes\": 2000, \"received_bytes\": 1000, "
                "\"failures\": 1}");
    expect_text(text, "{\"rank\": 1, \"node\": 0, \"sent_bytes\": 1000, \"relayed_bytes\": 77,");
    assert_null(strstr(text, "\"rank\": 2"));
    free(text);
    mpath_summary_destroy(summary);
}

static void test_no_calls(void **state)
{
    mpath_report_t report = report_of(0, "node0");
    mpath_summary_t *summary;
    char *text;

    (void)state;
    report.num_rails = 0;
    assert_int_equal(mpath_summary_create(1, "1", &summary), MPATH_OK);
    assert_int_equal(mpath_summary_add(summary, &report), MPATH_OK);
    text = written(summary, mpath_summary_write_text);
    expect_text(text, "none that mpath may carry\n");
    assert_null(strstr(text, "rails"));
    free(text);
    text = written(summary, mpath_summary_write_json);
    expect_text(text, "\"collectives\": [],");
    expect_text(text, "\"rails\": [],");
    free(text);
    mpath_summary_destroy(summary);
}

static void say_call(mpath_record_t *record, mpath_record_algorithm_t algorithm, int32_t hottest)
{
    record->call.algorithm     = algorithm;
    record->call.routes        = 12;
    record->call.hottest       = hottest;
    record->call.hottest_bytes = 3700000;
    capture_start();
    mpath_record_end(record, ALLTOALLV, MPATH_RECORD_CARRIED, NULL);
    capture_stop();
}

/* Of a call whose matrix nobody has the line says how much the hottest rank has, and why not who. */
static void test_line(void **state)
{
    mpath_record_t *record = mpath_record_open("spoken of", 0);

    (void)state;
    mpath_log_set_level(MPATH_LOG_DEBUG);
    say_call(record, MPATH_RECORD_PLANNED, 5);
    expect_text(capture_text(), ": planned, 12 routes, hottest rank 5 with 3.7 MB");
    say_call(record, MPATH_RECORD_PAIRS, 5);
    expect_text(capture_text(), ": pairs, 12 routes of this rank, hottest rank 5 with 3.7 MB");
    say_call(record, MPATH_RECORD_PAIRS, MPATH_RECORD_HOTTEST_UNKNOWN);
    expect_text(capture_text(), ", hottest rank (not known, as pairs of nodes plan by themselves) with 3.7 MB");
    mpath_log_set_level(MPATH_LOG_WARN);
    mpath_record_close(record);
}

static void refuse(mpath_summary_t *summary, const mpath_report_t *report)
{
    capture_start();
    assert_int_equal(mpath_summary_add(summary, report), MPATH_ERR_PARAM);
    capture_stop();
    assert_non_null(strstr(capture_text(), "it is missing in the summary"));
}

/* Messages may be anybody's. */
static void test_refused(void **state)
{
    mpath_report_t report = report_of(0, "node0"), other;
    mpath_summary_t *summary;

    (void)state;
    assert_int_equal(mpath_summary_create(2, "1", &summary), MPATH_OK);
    other = report;
    other.magic++;
    refuse(summary, &other);
    other      = report;
    other.rank = 2;
    refuse(summary, &other);
    other.rank = -1;
    refuse(summary, &other);
    other           = report;
    other.num_rails = MPATH_PAGE_RAILS + 1;
    refuse(summary, &other);
    other = report;
    memset(other.host, 'x', sizeof(other.host));
    refuse(summary, &other);
    other = report;
    memset(other.rails[0].name, 'x', sizeof(other.rails[0].name));
    refuse(summary, &other);
    assert_int_equal(mpath_summary_add(summary, &report), MPATH_OK);
    refuse(summary, &report); /* twice */
    mpath_summary_destroy(summary);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),  cmocka_unit_test(test_predictions), cmocka_unit_test(test_first),
        cmocka_unit_test(test_nobody),  cmocka_unit_test(test_state),       cmocka_unit_test(test_reasons),
        cmocka_unit_test(test_rails),   cmocka_unit_test(test_summary),     cmocka_unit_test(test_no_calls),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_line)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
