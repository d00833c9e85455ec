/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPUs that fail those whose device memory moves over relays, on the driver without a GPU: without memory for slots, or
 * short of it after a while, and with contexts that applications end.
 */
#include "device/cuda/driver.h"
#include "rail/fabric_private.h"
#include "relay_support.h"
#include "unit/capture.h"

#include <stdlib.h>
#include <unistd.h>

/* A GPU without memory for slots passes nothing on; the others do. */
static int full_body(ranks_self_t *self, void *argument)
{
    const relay_job_t *job = argument;
    uint64_t passed[RANKS_MAX];
    mpath_coll_counters_t counters;
    member_t member;

    relay_member_init(&member, self, job);
    member_round(&member, A2A_ONE_PAIR, job->max_bytes, 1);
    for (int round = 0; round < job->rounds; round++) {
        member_round(&member, (a2a_kind_t)(round % 7), job->max_bytes, (uint64_t)round);
    }
    member_forwarded(&member, passed, &counters);
    ranks_check((passed[1] == 0) && (passed[2] > 0));
    ranks_check(counters.declined == 0);
    ranks_check((counters.relay.moved.slot_bytes == 0) == (self->rank % 4 == 1));
    member_end(&member);
    return 0;
}

static void test_full_gpu(void **state)
{
    relay_job_t job = {.setup     = {.size = 4},
                       .link      = MPATH_GPU_LINK_MESH,
                       .pcie_bps  = 1000,
                       .max_bytes = 2000000,
                       .rounds    = 7,
                       .full      = "1",
                       .killed    = -1};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, full_body, &job), 0);
    job.setup     = (ranks_setup_t){.size = 6, .nodes = 2, .nics = 3, .nic_bps = RELAY_RAIL_BPS};
    job.pcie_bps  = 50000000000ull;
    job.emulated  = MPATH_EMULATED_COPIES;
    job.spine     = 1;
    job.max_bytes = 500000;
    assert_int_equal(ranks_run(&job.setup, full_body, &job), 0);
}

/* A GPU that gets short of memory gives its slots back; its bytes find other ways. */
static int short_body(ranks_self_t *self, void *argument)
{
    const relay_job_t *job = argument;
    uint64_t before[RANKS_MAX], after[RANKS_MAX];
    mpath_coll_counters_t counters;
    member_t member;

    relay_member_init(&member, self, job);
    member_round(&member, A2A_ONE_PAIR, job->max_bytes, 1);
    member_forwarded(&member, before, &counters);
    setenv("FAKE_CUDA_FULL", (self->rank == 1) ? "1" : "", 1);
    for (int round = 0; round < 70; round++) {
        member_round(&member, A2A_EVEN, 2000, (uint64_t)round);
    }
    member_round(&member, A2A_ONE_PAIR, job->max_bytes, 2);
    member_forwarded(&member, after, &counters);
    ranks_check((before[1] > 0) && (after[1] == before[1]));
    ranks_check(after[2] >= before[2] + job->max_bytes / 3);
    ranks_check((counters.relay.moved.slot_bytes == 0) == (self->rank == 1));
    member_end(&member);
    return 0;
}

static void test_short_of_memory(void **state)
{
    relay_job_t job = {
        .setup = {.size = 4}, .link = MPATH_GPU_LINK_MESH, .pcie_bps = 1000, .max_bytes = 2000000, .killed = -1};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, short_body, &job), 0);
}

/* All calls up to now went over relays, and some of their bytes through GPUs on the way. */
static void check_relayed(const member_t *member, uint64_t calls, uint64_t *passed_p)
{
    uint64_t passed[RANKS_MAX], sum = 0;
    mpath_coll_counters_t counters;

    member_forwarded(member, passed, &counters);
    for (int rank = 0; rank < mpath_team_size(member->team); rank++) {
        sum += passed[rank];
    }
    ranks_check((counters.declined == 0) && (counters.relay.moved.calls == calls));
    ranks_check(sum > *passed_p);
    ranks_check(counters.relay.moved.slot_bytes > 0);
    *passed_p = sum;
}

/* Relays are set up anew in the new context, of all ranks or of one; also of a communicator that was idle meanwhile. */
static int lost_body(ranks_self_t *self, void *argument)
{
    const relay_job_t *job = argument;
    member_t members[2];
    uint64_t calls = 0, passed[2] = {0, 0};
    mpath_oob_t oob;

    relay_member_init(&members[0], self, job);
    members[1] = (member_t){.context = members[0].context};
    ranks_oob(self, 1, NULL, self->size, &oob);
    relay_member_join(&members[1], self, &oob, job);
    for (int round = 0; round < job->rounds; round++) {
        if (round > 0) {
            relay_lose_context(self, job, (round % 2 == 1) || (self->rank == round % self->size), members, 2);
        }
        for (int i = 0; i < 2; i++) {
            member_t *member = &members[(round + i) % 2];

            for (int call = 0; call < 3; call++) {
                member_round(member, A2A_HOT, job->max_bytes, (uint64_t)(calls + call));
            }
            check_relayed(member, calls + 3, &passed[(round + i) % 2]);
        }
        calls += 3;
    }
    relay_lose_context(self, job, 1, members, 2);
    member_leave(&members[1]);
    member_end(&members[0]);
    return 0;
}

static void test_lost_contexts(void **state)
{
    relay_job_t job = {.setup     = {.size = 8, .nodes = 2, .nics = 4, .nic_bps = RELAY_RAIL_BPS},
                       .link      = MPATH_GPU_LINK_MESH,
                       .pcie_bps  = 50000000000ull,
                       .emulated  = MPATH_EMULATED_COPIES,
                       .max_bytes = 500000,
                       .rounds    = 4,
                       .killed    = -1};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, lost_body, &job), 0);
    job.setup    = (ranks_setup_t){.size = 4, .nodes = 2, .nics = 2, .nic_bps = RELAY_RAIL_BPS};
    job.emulated = MPATH_EMULATED_NO;
    assert_int_equal(ranks_run(&job.setup, lost_body, &job), 0);
    job.setup     = (ranks_setup_t){.size = 4};
    job.max_bytes = 2000000; /* through the host as well */
    assert_int_equal(ranks_run(&job.setup, lost_body, &job), 0);
}

/* A rank has no memory on a GPU in the calls after it: they are declined, until it has. GPUs that were full are not. */
static int lost_late_body(ranks_self_t *self, void *argument)
{
    const relay_job_t *job = argument;
    mpath_coll_counters_t counters;
    member_t member;

    relay_member_init(&member, self, job);
    member_round(&member, A2A_HOT, job->max_bytes, 1);
    relay_lose_context(self, job, self->rank != 2, &member, 1);
    member.memory = (self->rank == 1) ? MEMBER_HOST : MEMBER_DEVICE;
    ranks_check(member_call(&member, A2A_HOT, job->max_bytes, 2) == MPATH_DECLINED);
    ranks_check(member_call(&member, A2A_HOT, job->max_bytes, 3) == MPATH_DECLINED);
    member.memory = MEMBER_DEVICE;
    setenv("FAKE_CUDA_FULL", "", 1);
    for (int round = 0; round < 7; round++) {
        member_round(&member, (a2a_kind_t)round, job->max_bytes, (uint64_t)round);
    }
    mpath_coll_counters(member.coll, &counters);
    ranks_check((counters.declined == 2) && (counters.relay.moved.calls == 8));
    ranks_check(counters.relay.moved.slot_bytes > 0);
    member_end(&member);
    return 0;
}

static void test_lost_before_others_have_memory(void **state)
{
    relay_job_t job = {.setup     = {.size = 4, .nodes = 2, .nics = 2, .nic_bps = RELAY_RAIL_BPS},
                       .link      = MPATH_GPU_LINK_MESH,
                       .pcie_bps  = 50000000000ull,
                       .max_bytes = 300000,
                       .full      = "3",
                       .killed    = -1};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, lost_late_body, &job), 0);
}

/* The thread's context is that of the rank's GPU, as with the CUDA runtime, and ends, with the buffers of its members. */
static void end_current_context(int device, member_t *members, int num)
{
    mpath_cu_context_t context;

    for (int i = 0; i < num; i++) {
        gpu_memory_free(&members[i].send);
        gpu_memory_free(&members[i].recv);
    }
    ranks_check(mpath_gpu_driver()->DevicePrimaryCtxRetain(&context, device) == MPATH_CU_SUCCESS);
    ranks_check(mpath_gpu_driver()->CtxSetCurrent(context) == MPATH_CU_SUCCESS);
    gpu_application_resets(device);
}

/* A rank without buffers and context in a communicator's first call passes nothing on there; the others do. */
static int lost_first_body(ranks_self_t *self, void *argument)
{
    const relay_job_t *job = argument;
    uint64_t room = ((uint64_t)self->size + 1) * (job->max_bytes + 64), none = 0, all[RANKS_MAX];
    int loses = self->rank == 1;
    mpath_coll_counters_t counters;
    member_t members[2];
    a2a_t *a2a = &members[1].a2a;
    mpath_oob_t oob;

    relay_member_init(&members[0], self, job);
    members[1] = (member_t){.context = members[0].context};
    ranks_oob(self, 1, NULL, self->size, &oob);
    relay_member_join(&members[1], self, &oob, job);
    member_round(&members[0], A2A_HOT, job->max_bytes, 1);
    ranks_check(mpath_team_allgather(members[0].team, &none, sizeof(none), all) == MPATH_OK);
    if (loses) {
        end_current_context(1, members, 2);
        a2a_demand(A2A_ONE_PAIR, self->size, job->max_bytes, 2, members[1].demand);
        a2a_fill(a2a, members[1].demand, 2);
        ranks_check(mpath_alltoallv(members[1].coll, &a2a->call) == MPATH_OK);
        ranks_check(a2a_check(a2a) == 0);
    } else {
        member_round(&members[1], A2A_ONE_PAIR, job->max_bytes, 2);
    }
    mpath_coll_counters(members[1].coll, &counters);
    ranks_check((counters.declined == 0) && (counters.relay.moved.calls == 1));
    ranks_check((counters.relay.moved.slot_bytes == 0) == loses);
    for (int i = 0; loses && (i < 2); i++) {
        gpu_memory_alloc(MPATH_MEMORY_DEVICE, 1, room, 1, &members[i].send);
        gpu_memory_alloc(MPATH_MEMORY_DEVICE, 1, room, 1, &members[i].recv);
    }
    member_round(&members[0], A2A_HOT, job->max_bytes, 3);
    mpath_coll_counters(members[0].coll, &counters);
    ranks_check((counters.declined == 0) && (counters.relay.moved.calls == 2));
    member_leave(&members[1]);
    member_end(&members[0]);
    return 0;
}

static void test_lost_before_the_first_call(void **state)
{
    relay_job_t job = {.setup     = {.size = 4, .nodes = 2, .nics = 2, .nic_bps = RELAY_RAIL_BPS},
                       .link      = MPATH_GPU_LINK_MESH,
                       .pcie_bps  = 50000000000ull,
                       .max_bytes = 300000,
                       .killed    = -1};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, lost_first_body, &job), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_gpu),
        cmocka_unit_test(test_short_of_memory),
        cmocka_unit_test(test_lost_contexts),
        cmocka_unit_test(test_lost_before_others_have_memory),
        cmocka_unit_test(test_lost_before_the_first_call),
    };

    cmocka_set_test_filter(getenv("MPATH_TEST_FILTER")); /* NULL: all */
    return cmocka_run_group_tests_name("relay_gpus", tests, NULL, NULL);
}
