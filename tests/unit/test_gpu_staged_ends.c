/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The lane "staged" by streams: nothing waits without end for a rank that gives up or dies, and what comes then is not
 * taken for data.
 */
#include "config.h"
#include "device/cuda/driver.h"
#include "staged_streams.h"
#include "capture.h"

#include <stdlib.h>

static mpath_cu_t *driver;
static __typeof__(((mpath_cu_t *)NULL)->StreamWriteValue64) write_value;
static __typeof__(((mpath_cu_t *)NULL)->StreamQuery) stream_query;

/*
 * Rank 0 has enqueued what two others wait for, and its GPU does no more of it. One of them gives up: its streams come
 * to their end, and so do those of the third, which takes nothing of it for data.
 */
static void test_sender_dies(void **state)
{
    mpath_status_t result = MPATH_OK;

    (void)state;
    ranks_open(3, 4 * MIB, 2);
    message(0, 1, 9 * MIB);
    message(0, 2, 9 * MIB);
    message(2, 1, 9 * MIB);
    gate_close(&send_of[0]);
    start(1);
    for (int i = 0; i < 300; i++) {
        assert_true(look(i % 3) >= 0);
    }
    assert_true(mpath_staged_needs(ranks[1].lane, 0));
    assert_int_equal(ranks[1].told_bytes[0], 0);
    capture_start();
    mpath_staged_abandon(ranks[1].lane, DEADLINE_NS);
    capture_stop();
    assert_int_equal(capture_lines, 0);
    assert_true(is_idle(&receive_of[1]));
    assert_true(is_idle(&receive_of[2])); /* without a look of its host */
    for (int i = 0; (result >= 0) && (i < 1000); i++) {
        result = (mpath_status_t)look(2);
    }
    assert_int_equal(result, MPATH_ERR_UNREACHABLE);
    assert_int_equal(ranks[2].told_bytes[0], 0);
    mpath_staged_abandon(ranks[2].lane, DEADLINE_NS);
    gate_open();
    mpath_staged_abandon(ranks[0].lane, DEADLINE_NS);
    for (int to = 1; to < 3; to++) {
        check_margins(0, to);
    }
    check_margins(2, 1);
    gate_free();
    ranks_close();
}

/* The receiver's GPU does no more: the sender waits for slots, and gives up. */
static void test_receiver_dies(void **state)
{
    (void)state;
    ranks_open(2, 4 * MIB, 2);
    message(0, 1, 16 * MIB);
    gate_close(&receive_of[1]);
    start(1);
    for (int i = 0; i < 200; i++) {
        assert_true(look(i % 2) >= 0);
    }
    assert_true(mpath_staged_needs(ranks[0].lane, 1));
    capture_start();
    mpath_staged_abandon(ranks[0].lane, DEADLINE_NS);
    capture_stop();
    assert_int_equal(capture_lines, 0);
    assert_true(mpath_staged_is_finished(ranks[0].lane));
    assert_true(is_idle(&send_of[0]));
    gate_open();
    mpath_staged_abandon(ranks[1].lane, DEADLINE_NS);
    check_margins(0, 1);
    gate_free();
    ranks_close();
}

/* A rank whose part is done is needed no more, though the other one has not looked since. */
static void test_needs(void **state)
{
    (void)state;
    ranks_open(2, 8 * MIB, 2);
    message(0, 1, 2 * MIB);
    gate_close(&send_of[0]);
    start(1);
    assert_true(mpath_staged_needs(ranks[1].lane, 0));
    assert_true(look(0) > 0);
    assert_true(look(1) > 0);
    assert_true(mpath_staged_needs(ranks[1].lane, 0));
    assert_true(mpath_staged_needs(ranks[0].lane, 1));
    gate_open();
    await(0, 1, 2 * MIB);
    assert_int_equal(ranks[1].told_bytes[0], 0);
    assert_false(mpath_staged_needs(ranks[1].lane, 0));
    assert_false(mpath_staged_needs(ranks[0].lane, 1));
    run();
    check_all();
    gate_free();
    ranks_close();
}

static int refuse_after;

static mpath_cu_result_t refuse_to_write(mpath_cu_stream_t stream, mpath_cu_ptr_t address, uint64_t value,
                                         unsigned flags)
{
    return (refuse_after-- > 0) ? write_value(stream, address, value, flags) : MPATH_CU_OUT_OF_MEMORY;
}

/* The driver refuses a word after a copy: it is under way no more when the call has been given up. */
static void test_write_fails(void **state)
{
    int result = 0;

    (void)state;
    ranks_open(2, 4 * MIB, 1);
    message(0, 1, 16 * MIB);
    start(1);
    capture_start();
    driver->StreamWriteValue64 = refuse_to_write;
    refuse_after               = 5;
    for (int i = 0; (result >= 0) && (i < 1000); i++) {
        result = look(i % 2);
    }
    mpath_staged_abandon(ranks[0].lane, DEADLINE_NS);
    mpath_staged_abandon(ranks[1].lane, DEADLINE_NS);
    driver->StreamWriteValue64 = write_value;
    capture_stop();
    assert_int_equal(result, MPATH_ERR_NO_MEMORY);
    assert_true(is_idle(&send_of[0]));
    assert_true(is_idle(&receive_of[1]));
    check_margins(0, 1);
    ranks_close();
}

static mpath_cu_result_t tell_of_a_fault(mpath_cu_stream_t stream)
{
    (void)stream;
    return 700; /* CUDA_ERROR_ILLEGAL_ADDRESS */
}

/* Work that has failed writes no words: the driver is asked. */
static void test_fault(void **state)
{
    int result = 0;

    (void)state;
    ranks_open(2, 4 * MIB, 2);
    message(0, 1, 4 * MIB);
    gate_close(&send_of[0]);
    start(1);
    assert_true(look(0) > 0);
    assert_true(look(1) > 0);
    capture_start();
    driver->StreamQuery = tell_of_a_fault;
    for (int i = 0; (result >= 0) && (i < 10000); i++) {
        result = look(1);
    }
    driver->StreamQuery = stream_query;
    capture_stop();
    assert_int_equal(result, MPATH_ERR_IO);
    gate_open();
    run();
    check_all();
    gate_free();
    ranks_close();
}

static int setup(void **state)
{
    int status = streams_group_setup(state);

    driver       = (mpath_cu_t *)(uintptr_t)mpath_gpu_driver();
    write_value  = driver->StreamWriteValue64;
    stream_query = driver->StreamQuery;
    return status;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sender_dies), cmocka_unit_test(test_receiver_dies), cmocka_unit_test(test_needs),
        cmocka_unit_test(test_write_fails), cmocka_unit_test(test_fault),
    };

    return cmocka_run_group_tests_name("gpu_staged_ends", tests, setup, gpu_group_teardown);
}
