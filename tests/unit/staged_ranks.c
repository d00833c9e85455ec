/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks of one process that share a region of the lane "staged". */
#include "config.h"
#include "staged_ranks.h"
#include "capture.h"

#include <stdlib.h>
#include <sys/mman.h>

#define ROUNDS_MAX 100000000u /* of all ranks, before the test gives up */

rank_t ranks[RANKS_MAX];
int num_ranks;
mpath_staged_shape_t shape;
void *region;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void region_open(int count, uint64_t bytes)
{
    num_ranks = count;
    mpath_staged_shape_choose(count, bytes, &shape);
    region = mmap(NULL, mpath_staged_region_bytes(&shape), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(region, MAP_FAILED);
    for (int rank = 0; rank < count; rank++) {
        ranks[rank] = (rank_t){0};
        assert_int_equal(mpath_staged_open(region, &shape, rank, &ranks[rank].lane), MPATH_OK);
    }
}

void region_close(void)
{
    for (int rank = 0; rank < num_ranks; rank++) {
        mpath_staged_close(ranks[rank].lane);
    }
    munmap(region, mpath_staged_region_bytes(&shape));
}

static mpath_status_t arrived(void *owner, int from, uint64_t offset, uint64_t bytes)
{
    rank_t *rank = owner;

    assert_in_range(from, 0, num_ranks - 1);
    assert_true(offset + bytes <= rank->receive[from].bytes);
    rank->told_bytes[from] += bytes;
    rank->first   = (offset == 0) ? bytes : rank->first;
    rank->last    = (offset + bytes == rank->receive[from].bytes) ? bytes : rank->last;
    rank->longest = (bytes > rank->longest) ? bytes : rank->longest;
    return (++rank->count == rank->errors_after) ? MPATH_ERR_IO : MPATH_OK;
}

/* Under the lock. */
static int may_wait(const void *owner)
{
    return !((const rank_t *)owner)->careful;
}

void begin_rank(int rank, uint64_t call, mpath_staged_side_t send, mpath_staged_side_t receive)
{
    const mpath_staged_guard_t guard = {.lock = &lock, .may_wait = may_wait, .owner = &ranks[rank]};

    send.messages    = ranks[rank].send;
    receive.messages = ranks[rank].receive;
    receive.arrived  = arrived;
    receive.owner    = &ranks[rank];
    mpath_staged_begin(ranks[rank].lane, call, &send, &receive, &guard);
}

void begin(uint64_t call, mpath_staged_side_t send, mpath_staged_side_t receive)
{
    for (int rank = 0; rank < num_ranks; rank++) {
        begin_rank(rank, call, send, receive);
    }
}

void run(void)
{
    int left = num_ranks;

    for (unsigned round = 0; left > 0; round++) {
        left = 0;
        assert_true(round < ROUNDS_MAX);
        for (int rank = 0; rank < num_ranks; rank++) {
            assert_true(mpath_staged_progress(ranks[rank].lane) >= 0);
            left += !mpath_staged_is_finished(ranks[rank].lane);
        }
    }
}

uint64_t seed_of(int from, int to)
{
    return (uint64_t)(from * RANKS_MAX + to + 1);
}

char *filled(uint64_t bytes, uint64_t seed)
{
    char *data = malloc(bytes + 1);

    assert_non_null(data);
    for (uint64_t i = 0; i < bytes; i++) {
        data[i] = (char)gpu_pattern(seed, i);
    }
    return data;
}
