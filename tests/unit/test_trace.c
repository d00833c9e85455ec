/* SPDX-License-Identifier: BSD-3-Clause */
/* Trace: nothing is kept while it is off, the last events are kept in bounded memory, and the timeline that is written. */
#include "unit/capture.h"

#include "record/record.h"
#include "team/call.h"
#include "util/time.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_CHUNKS 64

static char *written(void)
{
    const mpath_trace_about_t about = {.version    = "1.2.3",
                                       .host       = "node0",
                                       .rank       = 3,
                                       .num_ranks  = 8,
                                       .has_offset = 1,
                                       .offset_ns  = -5,
                                       .error_ns   = 7};
    size_t size;
    char *text;
    FILE *out = open_memstream(&text, &size);

    assert_non_null(out);
    assert_int_equal(mpath_trace_write(&about, out), MPATH_OK);
    fclose(out);
    return text;
}

static void expect(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("'%s' is not in:\n%s", part, text);
    }
}

static int count(const char *text, const char *part)
{
    int found = 0;

    for (; (text = strstr(text, part)) != NULL; text++) {
        found++;
    }
    return found;
}

static void test_off(void **state)
{
    mpath_record_t *record          = mpath_record_open("before", 0);
    const mpath_trace_about_t about = {.version = "1", .host = "node0"};

    (void)state;
    assert_int_equal(mpath_trace_is_on(), 0);
    mpath_record_phase(record, MPATH_OPERATION_ALLTOALLV, MPATH_RECORD_AGREE, 10);
    mpath_record_end(record, MPATH_OPERATION_ALLTOALLV, MPATH_RECORD_CARRIED, NULL);
    mpath_record_close(record);
    assert_int_equal(mpath_trace_write(&about, stdout), MPATH_ERR_PARAM);
}

/* A line for each chunk at level trace, whether or not they are kept. */
static void test_log(void **state)
{
    const mpath_trace_chunk_t chunk = {.began_ns = 1000,
                                       .ended_ns = 3500,
                                       .call     = 4,
                                       .flow     = 2,
                                       .bytes    = 4096,
                                       .offset   = 8192,
                                       .lane     = MPATH_TRACE_SHM};

    (void)state;
    capture_start();
    mpath_log_set_level(MPATH_LOG_TRACE);
    mpath_trace_log();
    mpath_trace_add_chunk(&chunk);
    mpath_log_set_level(MPATH_LOG_DEBUG);
    mpath_trace_add_chunk(&chunk);
    mpath_log_set_level(MPATH_LOG_WARN);
    capture_stop();
    assert_int_equal(capture_count(), 1);
    expect(capture_text(), "call 4: send by shared memory: flow 2, hop 0, 4096 bytes at 8192, 2500 ns");
    atomic_store(&mpath_trace_state, 0);
}

static void test_calls(void **state)
{
    mpath_record_t *record;
    char *text;

    (void)state;
    assert_int_equal(mpath_trace_open(MAX_CHUNKS), MPATH_OK);
    assert_int_equal(mpath_trace_open(MAX_CHUNKS), MPATH_OK);
    record = mpath_record_open("a \"communicator\"", 0);
    mpath_record_enter_team(record, 0xabc, 0, 2);
    mpath_record_phase(record, MPATH_OPERATION_ALLTOALLV, MPATH_RECORD_AGREE, 1000);
    record->call.number    = 17;
    record->call.bytes     = 4096;
    record->call.algorithm = MPATH_RECORD_PLANNED;
    record->call.static_ns = 90;
    mpath_record_phase(record, MPATH_OPERATION_ALLTOALLV, MPATH_RECORD_PLAN, 3500);
    mpath_record_phase(record, MPATH_OPERATION_ALLTOALLV, MPATH_RECORD_MOVE, 4000);
    mpath_record_end(record, MPATH_OPERATION_ALLTOALLV, MPATH_RECORD_CARRIED, NULL);
    mpath_record_phase(record, MPATH_OPERATION_ALLREDUCE, MPATH_RECORD_AGREE, 9000);
    record->call.number = 18;
    mpath_record_end(record, MPATH_OPERATION_ALLREDUCE, MPATH_RECORD_LEFT, MPATH_WHY_ONE_RAIL);
    /* What the previous function calls is in it; the first one passes at once. */
    mpath_record_end(record, MPATH_OPERATION_ALLREDUCE, MPATH_RECORD_LEFT, MPATH_WHY_LESS);
    mpath_record_phase(record, MPATH_OPERATION_ALLGATHER, MPATH_RECORD_AGREE, mpath_time_ns());
    mpath_record_end(record, MPATH_OPERATION_ALLGATHER, MPATH_RECORD_LEFT, MPATH_WHY_NOT_CARRIED);
    mpath_record_over(record);
    mpath_record_over(record);
    mpath_record_close(record);
    text = written();
    expect(text,
           "\"format\": \"mpath-trace\", \"version\": 1, \"mpath\": \"1.2.3\", \"rank\": 3, \"ranks\": 8, \"host\": "
           "\"node0\"");
    expect(text, "\"offset_ns\": -5, \"error_ns\": 7}");
    expect(text, "\"name\": \"process_name\", \"pid\": 3, \"tid\": 0, \"args\": {\"name\": \"rank 3 (node0)\"}");
    expect(text, "\"args\": {\"name\": \"calls on a \\\"communicator\\\"\"}");
    expect(text,
           "{\"ph\": \"X\", \"cat\": \"phase\", \"name\": \"agree\", \"pid\": 3, \"tid\": 0, \"ts\": 1.000, \"dur\": "
           "2.500, \"args\": {\"comm\": \"a \\\"communicator\\\"\", \"team\": \"0000000000000abc\", \"call\": 17}}");
    expect(text, "\"name\": \"plan\", \"pid\": 3, \"tid\": 0, \"ts\": 3.500, \"dur\": 0.500");
    expect(text, "\"cat\": \"call\", \"name\": \"alltoallv\", \"pid\": 3, \"tid\": 0, \"ts\": 1.000");
    expect(text, "\"memory\": \"host\", \"bytes\": 4096, \"static_ns\": 90, \"algorithm\": \"planned\"}}");
    expect(text, "\"left\": \"there is one rail\"}}");
    assert_int_equal(count(text, "\"cat\": \"call\""), 3);
    assert_int_equal(count(text, "\"cat\": \"call\", \"name\": \"allreduce\""), 1);
    assert_int_equal(count(text, "\"name\": \"previous\""), 1);
    expect(strstr(text, "\"name\": \"previous\""), "\"call\": 18}}");
    assert_null(strstr(text, "less than"));
    free(text);
}

static void add(uint64_t began_ns, uint64_t ended_ns, uint32_t flow, unsigned lane)
{
    const mpath_trace_chunk_t chunk = {
        .began_ns = began_ns, .ended_ns = ended_ns, .flow = flow, .bytes = 100, .lane = (uint8_t)lane};

    mpath_trace_add_chunk(&chunk);
}

/* What a GPU does is no chunk: it has neither flow nor place. */
static void test_gpu(void **state)
{
    mpath_record_t *record = mpath_record_open("on a GPU", 0);
    char *text;

    (void)state;
    mpath_record_enter_team(record, 0xdef, 0, 2);
    mpath_record_trace_gpu(record, 5, MPATH_TRACE_GPU_KERNEL, UINT64_C(6) << 30, 1000);
    record->call.number = 7;
    mpath_record_trace_gpu(record, 5, MPATH_TRACE_GPU_ENGINE, 10, 2000);
    mpath_record_trace_gpu(NULL, 5, MPATH_TRACE_GPU_ENGINE, 10, 2000);
    mpath_record_close(record);
    text = written();
    expect(text, "\"cat\": \"gpu\", \"name\": \"kernel\", \"pid\": 3, \"tid\": 5160, \"ts\": 1.000");
    expect(text, "\"args\": {\"lane\": \"GPU kernels\", \"bytes\": 6442450944, \"team\": \"0000000000000def\", "
                 "\"call\": 5}}");
    expect(text, "\"name\": \"copy\", \"pid\": 3, \"tid\": 5224, \"ts\": 2.000");
    expect(text, "\"lane\": \"GPU copy engines\", \"bytes\": 10, \"team\": \"0000000000000def\", \"call\": 7}}");
    expect(text, "\"args\": {\"name\": \"lane GPU copy engines\"}");
    assert_int_equal(count(text, "\"cat\": \"gpu\""), 2);
    free(text);
}

/* Slices of a row do not overlap: chunks that do have rows of their own. */
static void test_rows(void **state)
{
    unsigned lane = (unsigned)(mpath_page_rail("rail7", 7) - mpath_page()->rails);
    char expected[128], *text;

    (void)state;
    add(1000, 5000, 1, lane);
    add(2000, 3000, 2, lane);
    add(3000, 9000, 3, lane); /* after the second one, in its row */
    add(1000, 2000, 4, MPATH_TRACE_SHM);
    text = written();
    snprintf(expected, sizeof(expected), "\"tid\": %u, \"args\": {\"name\": \"lane rail7 (7)\"}", 1000 + 64 * lane);
    expect(text, expected);
    snprintf(expected, sizeof(expected), "\"tid\": %u, \"args\": {\"name\": \"lane rail7 (7), 2\"}", 1001 + 64 * lane);
    expect(text, expected);
    assert_null(strstr(text, "lane rail7 (7), 3"));
    snprintf(expected, sizeof(expected), "\"tid\": %u, \"ts\": 2.000, \"dur\": 1.000", 1001 + 64 * lane);
    expect(text, expected);
    snprintf(expected, sizeof(expected), "\"tid\": %u, \"ts\": 3.000, \"dur\": 6.000", 1001 + 64 * lane);
    expect(text, expected);
    expect(text, "\"args\": {\"name\": \"lane shared memory\"}");
    free(text);
}

/* The last chunks are kept, the others counted. */
static void test_dropped(void **state)
{
    char *text;

    (void)state;
    for (uint32_t i = 0; i < 3 * MAX_CHUNKS; i++) {
        add(i * 10, i * 10 + 5, i, MPATH_TRACE_SHM);
    }
    text = written();
    assert_int_equal(count(text, "\"cat\": \"chunk\""), MAX_CHUNKS);
    expect(text, "\"flow\": 191,");
    expect(text, "\"flow\": 128,");
    assert_null(strstr(text, "\"flow\": 127,"));
    expect(text, "\"chunks\": 64}, \"dropped\": {\"calls\": 0, \"chunks\": 134}"); /* 6 of the tests before */
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_off),   cmocka_unit_test(test_log),
                                       cmocka_unit_test(test_calls), cmocka_unit_test(test_gpu),
                                       cmocka_unit_test(test_rows),  cmocka_unit_test(test_dropped)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
