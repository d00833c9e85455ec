/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The lane "staged" between ranks of one process: every byte comes to its place once and is told of, however messages
 * are cut, and an error of who is told ends the call. No copy is under way after a call that is given up.
 */
#include "config.h"
#include "device/cuda/driver.h"
#include "capture.h"
#include "gpu_held.h"
#include "staged_ranks.h"
#include "step_through.h"
#include "util/time.h"

#include <stdlib.h>

/* Memory of the host, messages of all lengths, two calls on the same slots. */
static void test_host(void **state)
{
    static const uint64_t lengths[] = {0, 1, 3 * MIB + 5, 100 * KIB, 0, 64 * KIB, 7, 0, 0};

    (void)state;
    region_open(3, 512 * KIB);
    for (uint64_t call = 1; call <= 2; call++) {
        for (int pair = 0; pair < 9; pair++) {
            int from = pair / 3, to = pair % 3;
            uint64_t bytes = lengths[(pair + (int)call - 1) % 9] * (from != to);

            ranks[from].send[to]       = (mpath_staged_message_t){.address = filled(bytes, seed_of(from, to)),
                                                                  .bytes   = bytes};
            ranks[to].receive[from]    = (mpath_staged_message_t){.address = calloc(1, bytes + 1), .bytes = bytes};
            ranks[to].told_bytes[from] = 0;
        }
        begin(call, (mpath_staged_side_t){0}, (mpath_staged_side_t){0});
        run();
        for (int pair = 0; pair < 9; pair++) {
            mpath_staged_message_t *sent = &ranks[pair / 3].send[pair % 3], *got = &ranks[pair % 3].receive[pair / 3];

            assert_memory_equal(got->address, sent->address, sent->bytes);
            assert_int_equal(ranks[pair % 3].told_bytes[pair / 3], sent->bytes);
            free(sent->address);
            free(got->address);
        }
    }
    region_close();
}

/* Two streams for each direction: chunks begin and end short, and are as long as slots between. */
static void exchange_on_device(uint64_t bytes, uint64_t slots_bytes, uint64_t longest)
{
    mpath_staged_side_t send = {0}, receive = {0};
    gpu_memory_t memory[2][2];
    mpath_pinned_t pinned;
    mpath_gpu_t *gpu;

    assert_int_equal(mpath_gpu_get(0, NULL, &gpu), MPATH_OK);
    region_open(2, slots_bytes);
    assert_int_equal(mpath_pinned_register(gpu, region, mpath_staged_region_bytes(&shape), &pinned), MPATH_OK);
    assert_int_equal(mpath_stream_get(gpu, 0, &send.stream), MPATH_OK);
    assert_int_equal(mpath_stream_get(gpu, 1, &send.second), MPATH_OK);
    assert_int_equal(mpath_stream_get(gpu, 2, &receive.stream), MPATH_OK);
    assert_int_equal(mpath_stream_get(gpu, 3, &receive.second), MPATH_OK);
    send.pinned = receive.pinned = &pinned;
    for (int rank = 0; rank < 2; rank++) {
        gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, bytes, 0, &memory[rank][0]);
        gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, bytes, 0, &memory[rank][1]);
        gpu_pattern_write(memory[rank][0].address, bytes, (uint64_t)rank + 1);
        gpu_pattern_write(memory[rank][1].address, bytes, 77);
        ranks[rank].send[1 - rank]    = (mpath_staged_message_t){.address = (char *)(uintptr_t)memory[rank][0].address,
                                                                 .bytes   = bytes};
        ranks[rank].receive[1 - rank] = (mpath_staged_message_t){.address = (char *)(uintptr_t)memory[rank][1].address,
                                                                 .bytes   = bytes};
    }
    begin(1, send, receive);
    run();
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(gpu_pattern_check(memory[rank][1].address, bytes, (uint64_t)(1 - rank) + 1), 0);
        assert_int_equal(ranks[rank].told_bytes[1 - rank], bytes);
        assert_int_equal(ranks[rank].first, 256 * KIB);
        assert_true(ranks[rank].last <= 256 * KIB);
        assert_int_equal(ranks[rank].longest, longest);
        gpu_memory_free(&memory[rank][0]);
        gpu_memory_free(&memory[rank][1]);
    }
    mpath_pinned_release(&pinned);
    region_close();
}

static void test_device(void **state)
{
    (void)state;
    exchange_on_device(13 * MIB + 12, 8 * MIB, MIB);
    exchange_on_device(13 * MIB + 12, 16 * MIB, 2 * MIB);
    exchange_on_device(700 * KIB + 4, 8 * MIB, 256 * KIB);
}

static void test_error(void **state)
{
    int result = 0;

    (void)state;
    region_open(2, 512 * KIB);
    ranks[0].send[1]      = (mpath_staged_message_t){.address = filled(MIB, 1), .bytes = MIB};
    ranks[1].receive[0]   = (mpath_staged_message_t){.address = calloc(1, MIB), .bytes = MIB};
    ranks[1].errors_after = 2;
    begin(1, (mpath_staged_side_t){0}, (mpath_staged_side_t){0});
    for (int round = 0; (result >= 0) && (round < 100); round++) {
        assert_true(mpath_staged_progress(ranks[0].lane) >= 0);
        result = mpath_staged_progress(ranks[1].lane);
    }
    assert_int_equal(result, MPATH_ERR_IO);
    assert_int_equal(ranks[1].count, 2);
    mpath_staged_abandon(ranks[1].lane, 1000);
    assert_true(mpath_staged_is_finished(ranks[1].lane));
    free(ranks[0].send[1].address);
    free(ranks[1].receive[0].address);
    region_close();
}

/* Marks that the driver refuses, after copies into that direction; copies that take long. */
#define FILLERS 3000
static __typeof__(((mpath_cu_t *)NULL)->MemcpyAsync) copy_async;
static __typeof__(((mpath_cu_t *)NULL)->StreamWriteValue64) write_value;
static mpath_cu_ptr_t filler;
static mpath_cu_stream_t used;
static int refuses_to_device, goes_to_device, refused;

static mpath_cu_result_t copy_slowly(mpath_cu_ptr_t to, mpath_cu_ptr_t from, size_t bytes, mpath_cu_stream_t stream)
{
    used           = stream;
    goes_to_device = to < filler || to >= filler + mpath_staged_region_bytes(&shape);
    for (int i = 0; (goes_to_device == refuses_to_device) && (i < FILLERS); i++) {
        (void)copy_async(filler, filler, 1, stream);
    }
    return copy_async(to, from, bytes, stream);
}

static mpath_cu_result_t refuse_to_write(mpath_cu_stream_t stream, mpath_cu_ptr_t address, uint64_t value,
                                         unsigned flags)
{
    if (goes_to_device == refuses_to_device) {
        refused++;
        return MPATH_CU_OUT_OF_MEMORY;
    }
    return write_value(stream, address, value, flags);
}

/* A copy is enqueued, but its mark is not: it has ended all the same when the call has been given up. */
static void give_up_after_a_mark(int to_device)
{
    mpath_cu_t *driver       = (mpath_cu_t *)(uintptr_t)mpath_gpu_driver();
    mpath_staged_side_t side = {0};
    gpu_memory_t send, receive;
    mpath_pinned_t pinned;
    mpath_gpu_t *gpu;
    int result = 0;

    assert_int_equal(mpath_gpu_get(0, NULL, &gpu), MPATH_OK);
    region_open(2, 512 * KIB);
    assert_int_equal(mpath_pinned_register(gpu, region, mpath_staged_region_bytes(&shape), &pinned), MPATH_OK);
    assert_int_equal(mpath_stream_get(gpu, 0, &side.stream), MPATH_OK);
    side.pinned = &pinned;
    filler      = pinned.device_base;
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, MIB, 0, &send);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, MIB, 0, &receive);
    ranks[0].send[1]           = (mpath_staged_message_t){.address = (char *)(uintptr_t)send.address, .bytes = MIB};
    ranks[1].receive[0]        = (mpath_staged_message_t){.address = (char *)(uintptr_t)receive.address, .bytes = MIB};
    ranks[1].send[0]           = (mpath_staged_message_t){0};
    ranks[0].receive[1]        = (mpath_staged_message_t){0};
    copy_async                 = driver->MemcpyAsync;
    write_value                = driver->StreamWriteValue64;
    refuses_to_device          = to_device;
    refused                    = 0;
    driver->MemcpyAsync        = copy_slowly;
    driver->StreamWriteValue64 = refuse_to_write;
    begin(1, side, side);
    capture_start();
    for (int round = 0; result >= 0; round++) {
        result = mpath_staged_progress(ranks[round % 2].lane);
    }
    for (int rank = 0; rank < 2; rank++) {
        mpath_staged_abandon(ranks[rank].lane, 5 * MPATH_NS_PER_S);
    }
    capture_stop();
    driver->MemcpyAsync        = copy_async;
    driver->StreamWriteValue64 = write_value;
    assert_int_equal(refused, 1);
    assert_int_equal(mpath_gpu_enter(gpu), MPATH_OK);
    assert_int_equal(driver->StreamQuery(used), MPATH_CU_SUCCESS); /* the memory may be used for something else */
    mpath_gpu_leave(gpu);
    gpu_memory_free(&send);
    gpu_memory_free(&receive);
    mpath_pinned_release(&pinned);
    region_close();
}

static void test_mark_fails(void **state)
{
    (void)state;
    give_up_after_a_mark(0);
    give_up_after_a_mark(1);
}

static void last_rank_looks(void *argument)
{
    (void)argument;
    (void)mpath_staged_progress(ranks[3].lane);
}

/* Rank 1 empties the first slot, which rank 0 begins to fill for the last rank. */
static void slot_turns_over(void *argument)
{
    (void)argument;
    (void)mpath_staged_progress(ranks[1].lane);
    (void)mpath_staged_progress(ranks[0].lane);
}

/* Both slots of rank 0 are full, for ranks 1 and 2; its GPU comes to nothing more until all have looked. */
static int look_at(uint64_t call, mpath_staged_side_t send, unsigned at)
{
    uint64_t before = mpath_staged_sent_bytes(ranks[0].lane);
    int within;

    begin(call, send, (mpath_staged_side_t){0});
    while (mpath_staged_sent_bytes(ranks[0].lane) < before + 2 * ranks[0].send[1].bytes) {
        assert_true(mpath_staged_progress(ranks[0].lane) >= 0);
    }
    gpu_is_held = 1;
    within      = step_through(last_rank_looks, slot_turns_over, NULL, at);
    gpu_is_held = 0;
    assert_int_equal(ranks[3].told_bytes[0], 0);
    run();
    return within;
}

/* Whenever that happens while the last rank looks at the slot: it takes nothing that is not there yet. */
static void test_looks(void **state)
{
    mpath_staged_side_t send = {0};
    uint64_t bytes           = 64 * KIB;
    mpath_pinned_t pinned;
    gpu_memory_t memory;
    mpath_gpu_t *gpu;
    int within = 1;
    char *sent;

    (void)state;
    if (!CAN_STEP) {
        skip();
    }
    sent = filled(4 * bytes, 1);
    assert_int_equal(mpath_gpu_get(0, NULL, &gpu), MPATH_OK);
    region_open(4, 2 * bytes);
    assert_int_equal(mpath_pinned_register(gpu, region, mpath_staged_region_bytes(&shape), &pinned), MPATH_OK);
    assert_int_equal(mpath_stream_get(gpu, 0, &send.stream), MPATH_OK);
    send.pinned = &pinned;
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, 4 * bytes, 0, &memory);
    gpu_pattern_write(memory.address, 4 * bytes, 1);
    for (uint64_t to = 1; to < 4; to++) {
        ranks[0].send[to]    = (mpath_staged_message_t){.address = (char *)(uintptr_t)memory.address + to * bytes,
                                                        .bytes   = bytes};
        ranks[to].receive[0] = (mpath_staged_message_t){.address = malloc(bytes), .bytes = bytes};
    }
    for (unsigned at = 0; within; at += STEP_STRIDE) {
        for (int to = 1; to < 4; to++) {
            memset(ranks[to].receive[0].address, 0, bytes);
            ranks[to].told_bytes[0] = 0;
        }
        within = look_at(at + 1, send, at);
        for (int to = 1; to < 4; to++) {
            assert_int_equal(ranks[to].told_bytes[0], bytes);
            assert_memory_equal(ranks[to].receive[0].address, sent + (uint64_t)to * bytes, bytes);
        }
    }
    free(sent);
    gpu_memory_free(&memory);
    for (int to = 1; to < 4; to++) {
        free(ranks[to].receive[0].address);
    }
    mpath_pinned_release(&pinned);
    region_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host),  cmocka_unit_test(test_looks),      cmocka_unit_test(test_device),
        cmocka_unit_test(test_error), cmocka_unit_test(test_mark_fails),
    };

    return cmocka_run_group_tests_name("gpu_staged", tests, gpu_group_setup, gpu_group_teardown);
}
