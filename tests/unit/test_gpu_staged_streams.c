/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The lane "staged" by streams, between ranks of one process: every byte comes to its place once and is told of,
 * whatever the hosts do meanwhile, and in whatever queues the driver has the streams.
 */
#include "config.h"
#include "device/cuda/driver.h"
#include "staged_streams.h"
#include "capture.h"

#include <stdlib.h>

static unsigned waits;
static __typeof__(((mpath_cu_t *)NULL)->StreamWaitValue64) wait_value;

static mpath_cu_result_t count_waits(mpath_cu_stream_t stream, mpath_cu_ptr_t address, uint64_t value, unsigned flags)
{
    waits++;
    return wait_value(stream, address, value, flags);
}

/* -- bytes -- */

/* Calls of other shapes on the same slots and words: to one receiver, to many, skewed, by one stream and by two. */
static void exchange(int count, uint64_t slots_bytes, int streams)
{
    static const uint64_t lengths[] = {0, 1, 3 * MIB + 5, 100 * KIB, 0, 64 * KIB, 7, 5 * MIB, 0};

    ranks_open(count, slots_bytes, streams);
    for (unsigned call = 1; call <= 4; call++) {
        memset(ranks[0].send, 0, sizeof(ranks[0].send));
        for (int pair = 0; pair < count * count; pair++) {
            int from = pair / count, to = pair % count;
            uint64_t bytes = lengths[((unsigned)pair * 5 + call) % 9];

            ranks[from].send[to] = ranks[to].receive[from] = (mpath_staged_message_t){0};
            if ((from != to) && (bytes > 0) && ((call != 3) || (to == count - 1))) { /* to one rank only */
                message(from, to, bytes);
            }
        }
        start(call);
        run();
        check_all();
        memory_free();
    }
    ranks_close();
}

static void test_bytes(void **state)
{
    (void)state;
    exchange(2, 512 * KIB, 1);
    exchange(4, 8 * MIB, 2);
    exchange(4, 512 * KIB, 2);
    assert_true(waits > 0);
}

/* The driver has all streams of all ranks in one queue: nothing is enqueued before what it waits for. */
static void test_one_queue(void **state)
{
    (void)state;
    assert_int_equal(setenv("FAKE_CUDA_ONE_QUEUE", "1", 1), 0);
    exchange(4, 1024 * KIB, 2);
    exchange(2, 512 * KIB, 2);
    assert_int_equal(unsetenv("FAKE_CUDA_ONE_QUEUE"), 0);
}

/* What a rank has sent in one call stays in its slots until it is taken, though the next call has begun. */
static void test_next_call(void **state)
{
    mpath_staged_message_t out, in;
    uint64_t sent;

    (void)state;
    ranks_open(3, 4 * MIB, 2);
    message(0, 1, 3 * MIB);
    message(0, 2, 3 * MIB); /* memory cannot be had while a stream waits */
    out              = ranks[0].send[2];
    in               = ranks[2].receive[0];
    ranks[0].send[2] = ranks[2].receive[0] = (mpath_staged_message_t){0};
    gate_close(&receive_of[1]);
    start(1);
    for (uint64_t end_ns = mpath_time_ns() + DEADLINE_NS; !mpath_staged_is_finished(ranks[0].lane);) {
        assert_true(mpath_time_ns() < end_ns);
        assert_true(look(0) >= 0);
        assert_true(look(1) >= 0);
    }
    sent                = mpath_staged_sent_bytes(ranks[0].lane);
    ranks[0].send[1]    = (mpath_staged_message_t){0};
    ranks[0].send[2]    = out;
    ranks[2].receive[0] = in;
    begin_rank(0, 2, send_of[0], receive_of[0]);
    begin_rank(2, 2, send_of[2], receive_of[2]);
    for (int i = 0; i < 1000; i++) {
        assert_true(look(i % 2 * 2) >= 0);
    }
    assert_int_equal(mpath_staged_sent_bytes(ranks[0].lane), sent);
    gate_open();
    run();
    check_message(0, 1);
    check_message(0, 2);
    gate_free();
    ranks_close();
}

/* -- hosts that do not look -- */

/* Each looks once; as much as fits into the slots comes to its place. */
static void test_hosts_away(void **state)
{
    (void)state;
    ranks_open(2, 8 * MIB, 2);
    message(0, 1, 3 * MIB);
    message(1, 0, 2 * MIB);
    start(1);
    assert_true(look(0) > 0); /* has nothing to receive yet */
    assert_true(look(1) > 0);
    assert_true(look(0) > 0);
    await(0, 1, 3 * MIB);
    await(1, 0, 2 * MIB);
    run();
    check_all();
    ranks_close();
}

/* The receiver looks no more, or the sender: the other one's looks bring as much as there are slots. */
static void test_one_away(void **state)
{
    const uint64_t bytes = 16 * MIB, before = 4 * MIB;

    (void)state;
    for (int away = 0; away < 2; away++) {
        ranks_open(2, 8 * MIB, 2);
        message(0, 1, bytes);
        start(1);
        assert_true(look(0) > 0);
        if (away == 1) {
            assert_true(look(1) > 0);
        }
        for (uint64_t end_ns = mpath_time_ns() + DEADLINE_NS; wrong_byte(0, 1, before) != 0;) {
            assert_true(mpath_time_ns() < end_ns);
            assert_true(look(1 - away) >= 0);
        }
        assert_true(ranks[1].told_bytes[0] < bytes);
        run();
        check_all();
        ranks_close();
    }
}

/* Where kernels may wait for other ranks, nothing waits on streams, and everything comes all the same. */
static void test_careful(void **state)
{
    (void)state;
    for (int careful = 1; careful <= 3; careful++) { /* one rank, the other one, both */
        ranks_open(2, 2 * MIB, 2);
        message(0, 1, 7 * MIB + 3);
        message(1, 0, 5 * MIB);
        ranks[0].careful = careful & 1;
        ranks[1].careful = careful >> 1;
        start(1);
        waits = 0;
        for (int rank = 0; (careful < 3) && (rank < 4); rank++) {
            assert_true(look((careful >> 1) ^ (rank & 1)) >= 0); /* the careful one first */
        }
        run();
        assert_true((careful < 3) || (waits == 0));
        check_all();
        ranks_close();
    }
}

/* -- both forms in one call -- */

/* Rank 2 has its data in host memory, rank 1 what it receives. */
static void test_both_forms(void **state)
{
    const uint64_t bytes = 3 * MIB + 17;

    (void)state;
    for (unsigned call = 1; call <= 2; call++) {
        if (call == 1) {
            ranks_open(4, 4 * MIB, 2);
            send_of[2] = receive_of[1] = receive_of[2] = (mpath_staged_side_t){0};
        }
        for (int pair = 0; pair < 16; pair++) {
            int from = pair / 4, to = pair % 4, to_host = (to == 1) || (to == 2);
            mpath_staged_message_t *sent = &ranks[from].send[to], *got = &ranks[to].receive[from];

            if (from == to) {
                continue;
            }
            message(from, to, bytes);
            if (from == 2) {
                sent->address = filled(bytes, seed_of(from, to));
            }
            if (to_host) {
                got->address = calloc(1, bytes);
            }
            sent->by_streams = (from != 2) && !to_host;
        }
        start(call);
        run();
        for (int pair = 0; pair < 16; pair++) {
            int from = pair / 4, to = pair % 4, to_host = (to == 1) || (to == 2);
            char *right;

            if (from == to) {
                continue;
            }
            if (!to_host) {
                check_message(from, to);
            } else {
                right = filled(bytes, seed_of(from, to));
                assert_memory_equal(ranks[to].receive[from].address, right, bytes);
                assert_int_equal(ranks[to].told_bytes[from], bytes);
                free(right);
                free(ranks[to].receive[from].address);
            }
            if (from == 2) {
                free(ranks[from].send[to].address);
            }
        }
        memory_free();
    }
    ranks_close();
}

static int setup(void **state)
{
    int status = streams_group_setup(state);
    mpath_cu_t *driver;

    driver                    = (mpath_cu_t *)(uintptr_t)mpath_gpu_driver();
    wait_value                = driver->StreamWaitValue64;
    driver->StreamWaitValue64 = count_waits;
    return status;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),      cmocka_unit_test(test_one_queue), cmocka_unit_test(test_next_call),
        cmocka_unit_test(test_hosts_away), cmocka_unit_test(test_one_away),  cmocka_unit_test(test_careful),
        cmocka_unit_test(test_both_forms),
    };

    return cmocka_run_group_tests_name("gpu_staged_streams", tests, setup, gpu_group_teardown);
}
