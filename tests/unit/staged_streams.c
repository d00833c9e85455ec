/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks of one process, with a GPU each, that send through the host by streams. */
#include "config.h"
#include "staged_streams.h"
#include "capture.h"

#include <sched.h>
#include <stdlib.h>

#define STREAMS_OF_RANK 4u

mpath_staged_side_t send_of[RANKS_MAX], receive_of[RANKS_MAX];
static mpath_pinned_t pinned;
static gpu_memory_t memories[2 * RANKS_MAX * RANKS_MAX];
static unsigned num_memories;

int streams_group_setup(void **state)
{
    assert_int_equal(setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1), 0);
    return gpu_group_setup(state);
}

static mpath_gpu_t *gpu_of(int rank)
{
    mpath_gpu_t *gpu;

    assert_int_equal(mpath_gpu_get(rank % mpath_gpu_count(), NULL, &gpu), MPATH_OK);
    return gpu;
}

void ranks_open(int count, uint64_t bytes, int streams)
{
    region_open(count, bytes);
    assert_int_equal(mpath_pinned_register(gpu_of(0), region, mpath_staged_region_bytes(&shape), &pinned), MPATH_OK);
    for (int rank = 0; rank < count; rank++) {
        mpath_stream_t **all[] = {&send_of[rank].stream, &receive_of[rank].stream, &send_of[rank].second,
                                  &receive_of[rank].second};

        send_of[rank] = receive_of[rank] = (mpath_staged_side_t){.pinned = &pinned};
        for (unsigned i = 0; i < 2 * (unsigned)streams; i++) {
            assert_int_equal(mpath_stream_get(gpu_of(rank), (unsigned)rank * STREAMS_OF_RANK + i, all[i]), MPATH_OK);
        }
    }
}

void memory_free(void)
{
    while (num_memories > 0) {
        gpu_memory_free(&memories[--num_memories]);
    }
}

void ranks_close(void)
{
    memory_free();
    mpath_pinned_release(&pinned);
    region_close();
}

static char *device_memory(int rank, uint64_t bytes)
{
    gpu_memory_t *memory = &memories[num_memories++];

    gpu_memory_alloc(MPATH_MEMORY_DEVICE, rank % mpath_gpu_count(), bytes + 2 * MARGIN, 0, memory);
    gpu_memory_fill(memory->address, 0xee, bytes + 2 * MARGIN);
    return (char *)(uintptr_t)(memory->address + MARGIN);
}

void message(int from, int to, uint64_t bytes)
{
    ranks[from].send[to] = (mpath_staged_message_t){
        .address = device_memory(from, bytes), .bytes = bytes, .by_streams = 1};
    ranks[to].receive[from] = (mpath_staged_message_t){.address = device_memory(to, bytes), .bytes = bytes};
    gpu_pattern_write((uint64_t)(uintptr_t)ranks[from].send[to].address, bytes, seed_of(from, to));
    ranks[to].told_bytes[from] = 0;
}

uint64_t wrong_byte(int from, int to, uint64_t bytes)
{
    return gpu_pattern_check((uint64_t)(uintptr_t)ranks[to].receive[from].address, bytes, seed_of(from, to));
}

void check_margins(int from, int to)
{
    const mpath_staged_message_t *got = &ranks[to].receive[from];
    unsigned char margins[2][MARGIN];

    gpu_memory_read((uint64_t)(uintptr_t)got->address - MARGIN, margins[0], MARGIN);
    gpu_memory_read((uint64_t)(uintptr_t)got->address + got->bytes, margins[1], MARGIN);
    for (unsigned i = 0; i < 2 * MARGIN; i++) {
        assert_int_equal(margins[i / MARGIN][i % MARGIN], 0xee);
    }
}

void check_message(int from, int to)
{
    uint64_t bytes = ranks[to].receive[from].bytes;

    assert_int_equal(wrong_byte(from, to, bytes), 0);
    assert_int_equal(ranks[to].told_bytes[from], bytes);
    check_margins(from, to);
}

void check_all(void)
{
    for (int pair = 0; pair < num_ranks * num_ranks; pair++) {
        if (ranks[pair / num_ranks].send[pair % num_ranks].bytes > 0) {
            check_message(pair / num_ranks, pair % num_ranks);
        }
    }
}

void start(uint64_t call)
{
    for (int rank = 0; rank < num_ranks; rank++) {
        begin_rank(rank, call, send_of[rank], receive_of[rank]);
    }
}

int look(int rank)
{
    return mpath_staged_progress(ranks[rank].lane);
}

void await(int from, int to, uint64_t bytes)
{
    uint64_t end_ns = mpath_time_ns() + DEADLINE_NS;

    while (wrong_byte(from, to, bytes) != 0) {
        assert_true(mpath_time_ns() < end_ns);
        sched_yield();
    }
}

int is_idle(const mpath_staged_side_t *side)
{
    mpath_mark_t mark;

    assert_int_equal(mpath_stream_mark(side->stream, &mark), MPATH_OK);
    return mpath_stream_finish(side->stream, mark, DEADLINE_NS, "nothing") == MPATH_OK;
}

/* Streams of a side come to nothing until this word is 1. */
static mpath_pinned_t gate;

void gate_open(void)
{
    __atomic_store_n((uint64_t *)gate.base, 1, __ATOMIC_RELEASE);
}

void gate_free(void)
{
    mpath_pinned_release(&gate);
}

/* Whether streams of the other ranks do not share a queue with the held ones. */
static int others_go_on(const mpath_staged_side_t *held)
{
    mpath_status_t status = MPATH_OK;
    mpath_mark_t mark;

    for (int rank = 0; rank < num_ranks; rank++) {
        const mpath_staged_side_t *sides[] = {&send_of[rank], &receive_of[rank]};

        for (int i = 0; (i < 2) && (status == MPATH_OK); i++) {
            if (sides[i] != held) {
                assert_int_equal(mpath_stream_mark(sides[i]->stream, &mark), MPATH_OK);
                status = mpath_stream_finish(sides[i]->stream, mark, MPATH_NS_PER_S, "a mark");
            }
        }
    }
    return status == MPATH_OK;
}

void gate_close(const mpath_staged_side_t *side)
{
    int goes_on;

    assert_int_equal(mpath_pinned_alloc(gpu_of(0), 4096, &gate), MPATH_OK);
    assert_int_equal(mpath_stream_wait(side->stream, gate.device_base, 1), MPATH_OK);
    assert_int_equal(mpath_stream_wait(side->second, gate.device_base, 1), MPATH_OK);
    capture_start();
    goes_on = others_go_on(side);
    capture_stop();
    if (!goes_on) {
        gate_open();
        (void)is_idle(side);
        gate_free();
        ranks_close();
        skip();
    }
}
