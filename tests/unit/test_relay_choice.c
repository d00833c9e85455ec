/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which ways are tried for calls on device memory of two nodes: over relays, by way of the host, by the previous function
 * where the MPI of all ranks knows the memory, however much more some rank has to exchange than its mates.
 */
#include "team/agree.h"
#include "relay_support.h"
#include "util/fiber.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define SHORT_BYTES 20000u
#define LONG_BYTES (3500u << 10) /* twice as much is more than is tried on the host */

enum { BY_GPUS = 1, BY_HOST = 2, BY_PREVIOUS = 4 };

/* What became of a call. */
static int way_of(const member_t *member, mpath_status_t status)
{
    ranks_check((status == MPATH_DECLINED) || (a2a_check(&member->a2a) == 0));
    if (member->was_copied) {
        return BY_HOST;
    }
    return (status == MPATH_OK) ? BY_GPUS : BY_PREVIOUS;
}

/* `hot` times as much to rank 0 from the other node; to its mates on each node nothing. */
static void set_demand(member_t *member, uint64_t bytes, unsigned hot)
{
    int size = member->a2a.size;

    memset(member->demand, 0, (size_t)size * (size_t)size * sizeof(*member->demand));
    for (int source = 0; source < size; source++) {
        for (int destination = 0; destination < size; destination++) {
            if ((source < size / 2) != (destination < size / 2)) {
                member->demand[source * size + destination] = bytes * ((destination == 0) ? hot : 1);
            }
        }
    }
}

/* Calls take the ways in `expected` in turns. */
static void check_trials(member_t *member, uint64_t bytes, unsigned hot, int foreign, int expected)
{
    int seen = 0, turns = 0;

    for (int call = 0; call < 2 * __builtin_popcount((unsigned)expected); call++) {
        mpath_status_t status;
        int way;

        set_demand(member, bytes, hot);
        member->a2a.flags = foreign ? MPATH_CALL_FOREIGN : 0;
        status            = member_call(member, A2A_GIVEN, 0, (uint64_t)call);
        mpath_coll_ended(member->coll);
        way = way_of(member, status);
        turns += (way != seen);
        seen = way;
        ranks_check(way & expected);
    }
    ranks_check((turns == 1) == (__builtin_popcount((unsigned)expected) == 1));
}

/* Calls that others progress try nothing, and go as those have gone that did. */
typedef struct rest {
    member_t *member;
    uint64_t bytes;
    int expected;
} rest_t;

static void rest_fiber(void *argument)
{
    const rest_t *rest = argument;

    for (int call = 0; call < 2; call++) {
        set_demand(rest->member, rest->bytes, 1);
        ranks_check(way_of(rest->member, member_call(rest->member, A2A_GIVEN, 0, (uint64_t)call)) == rest->expected);
    }
}

static void check_rest(member_t *member, uint64_t bytes, int expected)
{
    rest_t rest = {.member = member, .bytes = bytes, .expected = expected};
    mpath_fiber_t *fiber;

    ranks_check(mpath_fiber_create(1 << 20, &fiber) == MPATH_OK);
    mpath_fiber_start(fiber, rest_fiber, &rest);
    while (mpath_fiber_resume(fiber) != MPATH_FIBER_ENDED) {
    }
    mpath_fiber_destroy(fiber);
}

typedef struct choice_job {
    relay_job_t relay;
    uint64_t bytes;
    unsigned hot;
    int foreign; /* to the MPI of rank 1 */
    int expected;
} choice_job_t;

static int choice_body(ranks_self_t *self, void *argument)
{
    const choice_job_t *job = argument;
    member_t member;

    relay_member_init(&member, self, &job->relay);
    member.copies = 1;
    check_trials(&member, job->bytes, job->hot, job->foreign && (self->rank == 1), job->expected);
    member_end(&member);
    return 0;
}

/* In these tests the previous function takes no time. */
static int rest_body(ranks_self_t *self, void *argument)
{
    const choice_job_t *job = argument;
    member_t member;

    relay_member_init(&member, self, &job->relay);
    member.copies = 1;
    check_rest(&member, LONG_BYTES, BY_GPUS);
    check_trials(&member, LONG_BYTES, 1, 0, BY_GPUS | BY_PREVIOUS);
    check_rest(&member, LONG_BYTES, BY_GPUS); /* four of six trials */
    check_trials(&member, LONG_BYTES, 1, 0, BY_GPUS | BY_PREVIOUS);
    check_rest(&member, LONG_BYTES, BY_PREVIOUS);
    check_rest(&member, 4 * SHORT_BYTES, BY_GPUS);
    member_end(&member);
    return 0;
}

static void check_ways(int size, uint64_t bytes, unsigned hot, int foreign, int expected)
{
    choice_job_t job = {.relay    = {.setup     = {.size = size, .nodes = 2, .nics = size / 2, .nic_bps = RELAY_RAIL_BPS},
                                     .link      = MPATH_GPU_LINK_MESH,
                                     .pcie_bps  = 50000000000ull,
                                     .max_bytes = 2 * LONG_BYTES,
                                     .by_gate   = 1,
                                     .killed    = -1},
                        .bytes    = bytes,
                        .hot      = hot,
                        .foreign  = foreign,
                        .expected = expected};

    assert_int_equal(ranks_run(&job.relay.setup, choice_body, &job), 0);
}

static void test_short(void **state)
{
    (void)state;
    check_ways(4, SHORT_BYTES, 1, 0, BY_GPUS | BY_HOST | BY_PREVIOUS);
    check_ways(4, SHORT_BYTES, 9, 0, BY_GPUS | BY_HOST | BY_PREVIOUS);
    check_ways(4, SHORT_BYTES, 1, 1, BY_GPUS | BY_HOST);
}

static void test_long(void **state)
{
    (void)state;
    check_ways(4, LONG_BYTES, 1, 0, BY_GPUS | BY_PREVIOUS);
    check_ways(4, LONG_BYTES, 1, 1, BY_GPUS);
    check_ways(4, LONG_BYTES, 2, 0, BY_GPUS | BY_PREVIOUS); /* a third more than on average */
    check_ways(4, LONG_BYTES, 2, 1, BY_GPUS);
    check_ways(8, LONG_BYTES / 128, 64, 0, BY_GPUS | BY_PREVIOUS); /* 3.8 times the average */
}

static void test_rest(void **state)
{
    choice_job_t job = {.relay = {.setup     = {.size = 4, .nodes = 2, .nics = 2, .nic_bps = RELAY_RAIL_BPS},
                                  .link      = MPATH_GPU_LINK_MESH,
                                  .pcie_bps  = 50000000000ull,
                                  .max_bytes = 2 * LONG_BYTES,
                                  .by_gate   = 1,
                                  .killed    = -1}};

    (void)state;
    assert_int_equal(ranks_run(&job.relay.setup, rest_body, &job), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_short), cmocka_unit_test(test_long),
                                       cmocka_unit_test(test_rest)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
