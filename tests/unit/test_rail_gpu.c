/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rails that read and write memory of GPUs themselves, on the driver without a GPU and a UCX that is made to know CUDA
 * memory (fake_ucx.h): the trial and what it finds wrong, and relays whose slots of rails are on GPUs, also when
 * contexts end. Where one rank cannot, all use pinned host slots. Every byte is checked. With a real driver
 * ($MPATH_TEST_CUDA) and a UCX that knows CUDA memory the same goes over these, without the faults.
 */
#include "rail/fabric_private.h"
#include "team/team_private.h"
#include "fake_ucx.h"
#include "rail/rail.h"
#include "rail/gpu_memory.h"
#include "relay_support.h"
#include "unit/capture.h"
#include "wire/links.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Which rails could do without pinned slots; with folders in place of the system's. */
static void test_judge(void **state)
{
    (void)state;
    assert_int_equal(mpath_rail_gpu_judge(0, 1, 1), MPATH_RAIL_GPU_NO_CUDA);
    assert_int_equal(mpath_rail_gpu_judge(1, 0, 1), MPATH_RAIL_GPU_NO_RDMA);
    assert_int_equal(mpath_rail_gpu_judge(1, 1, 0), MPATH_RAIL_GPU_NO_MODULE);
    assert_int_equal(mpath_rail_gpu_judge(1, 1, 1), MPATH_RAIL_GPU_DIRECT);
    assert_int_equal(mpath_rail_gpu_can("/nonexistent"), 0); /* whatever UCX this is */
    for (int what = MPATH_RAIL_GPU_NO_CUDA; what <= MPATH_RAIL_GPU_DIRECT; what++) {
        assert_int_equal(strstr(mpath_rail_gpu_text((mpath_rail_gpu_t)what), "pinned") != NULL,
                         what != MPATH_RAIL_GPU_DIRECT);
    }
}

/* -- what UCX is told -- */

/* Ranks that may be at the other end, and those of the node at the same NIC: with access "affine" those beside it. */
static int expect_body(ranks_self_t *self, void *argument)
{
    const int *access = argument;
    int affine        = *access == MPATH_ACCESS_AFFINE;
    mpath_settings_t settings;
    mpath_context_t *context;
    mpath_links_t *links;
    mpath_team_t *team;

    mpath_settings_init(&settings);
    settings.access = *access;
    context         = ranks_context(self, &settings);
    team            = ranks_team(self, context);
    ranks_check(mpath_links_get(team, MPATH_LINKS_ALL, &links) == MPATH_OK);
    ranks_check(fake_ucx.num_eps == (affine ? 4 : 8) && fake_ucx.num_ppn == (affine ? 2 : 4));
    ranks_barrier(self);
    mpath_team_destroy(team);
    mpath_context_destroy(context);
    return 0;
}

static void test_expect(void **state)
{
    ranks_setup_t setup = {.size = 12, .nodes = 3, .nics = 2};

    (void)state;
    for (int access = MPATH_ACCESS_ALL; access <= MPATH_ACCESS_AFFINE; access++) {
        assert_int_equal(ranks_run(&setup, expect_body, &access), 0);
    }
}

/* -- the trial -- */

static int trial_body(ranks_self_t *self, void *argument)
{
    mpath_rail_params_t params = {
        .nic = "lo", .max_chunk_bytes = 1 << 20, .max_open_arrival_bytes = 1 << 24, .gpu_memory = 1};
    fake_ucx_fault_t fault = *(const fake_ucx_fault_t *)argument;
    int succeeds           = fault == FAKE_UCX_SOUND;
    mpath_stream_t *stream;
    gpu_memory_t memory;
    mpath_lane_t *lane;
    mpath_gpu_t *gpu;

    (void)self;
    setenv("FAKE_CUDA_DEVICES", "1", 1);
    gpu_application_starts();
    if (!fake_ucx_has_fake_gpus() && (fault != FAKE_UCX_SOUND)) {
        return 0; /* real ones cannot be told to fail */
    }
    fake_ucx.fault = fault;
    ranks_check((mpath_gpu_current(&gpu) == MPATH_OK) && (mpath_stream_get(gpu, 0, &stream) == MPATH_OK));
    ranks_check(mpath_rail_open(&params, &lane) == MPATH_OK);
    ranks_check(mpath_rail_memory_usable(lane) == (fault != FAKE_UCX_NO_CUDA));
    for (int i = 0; i < 2; i++) { /* the second time it is known */
        ranks_check(mpath_rail_memory_try(lane, stream) == (succeeds ? MPATH_OK : MPATH_ERR_UNSUPPORTED));
    }
    ranks_check(!fake_ucx_has_fake_gpus() || ((fake_ucx_flushes() > 0) == (succeeds || (fault == FAKE_UCX_CONFUSES))));
    ranks_check(fake_ucx.regions == 0);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, 1 << 20, 1, &memory);
    if (succeeds) {
        ranks_check(mpath_rail_memory_add(lane, gpu, memory.address, 1 << 20) == MPATH_OK);
        ranks_check(mpath_rail_memory_add(lane, gpu, memory.address, 1 << 20) == MPATH_OK); /* it is known */
        ranks_check(fake_ucx.regions == 1);
        mpath_rail_memory_remove(lane, gpu, memory.address);
        mpath_rail_memory_remove(lane, gpu, memory.address);
        ranks_check(fake_ucx.regions == 0);
        ranks_check(mpath_rail_memory_add(lane, gpu, memory.address, 1 << 20) == MPATH_OK); /* and goes with the rail */
    }
    lane->ops->destroy(lane);
    ranks_check(fake_ucx.regions == 0);
    gpu_memory_free(&memory);
    mpath_gpu_cleanup();
    return 0;
}

static void test_trial(void **state)
{
    static const fake_ucx_fault_t faults[] = {FAKE_UCX_SOUND, FAKE_UCX_NO_CUDA,  FAKE_UCX_REFUSES,
                                              FAKE_UCX_FAILS, FAKE_UCX_CONFUSES, FAKE_UCX_LOSES};
    ranks_setup_t setup                    = {.size = 1};

    (void)state;
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        fake_ucx_fault_t fault = faults[i];

        assert_int_equal(ranks_run(&setup, trial_body, &fault), 0);
    }
}

/* -- calls -- */

typedef struct direct_job {
    relay_job_t relay;
    fake_ucx_fault_t fault; /* of the UCX of rank 2 */
    int direct;             /* GPUs' memory goes over rails */
} direct_job_t;

/* Two communicators at a time know their slots; the bytes of both go the same way. */
static int calls_body(ranks_self_t *self, void *argument)
{
    const direct_job_t *job = argument;
    uint64_t passed[RANKS_MAX], sum = 0;
    mpath_coll_counters_t counters;
    mpath_oob_t oob;
    member_t member, second;

    fake_ucx.fault = (self->rank == 2) ? job->fault : FAKE_UCX_SOUND;
    relay_member_init(&member, self, &job->relay);
    for (int round = 0; round < job->relay.rounds; round++) {
        member_round(&member, (a2a_kind_t)(round % 7), (round % 3 == 2) ? 3000 : job->relay.max_bytes, (uint64_t)round);
    }
    memset(&second, 0, sizeof(second));
    second.context = member.context;
    ranks_oob(self, 1, NULL, self->size, &oob);
    relay_member_join(&second, self, &oob, &job->relay);
    member_round(&second, A2A_HOT, job->relay.max_bytes, 77);
    member_round(&member, A2A_HOT, job->relay.max_bytes, 78);
    member_leave(&second);
    member_round(&member, A2A_ONE_PAIR, job->relay.max_bytes, 79);
    member_forwarded(&member, passed, &counters);
    for (int rank = 0; rank < self->size; rank++) {
        sum += passed[rank];
    }
    ranks_check((counters.declined == 0) && (sum > 0) && (counters.relay.moved.calls >= (uint64_t)job->relay.rounds));
    ranks_check((counters.relay.moved.rail_bytes == 0) ||
                (job->direct == (fake_ucx.sent_bytes >= counters.relay.moved.rail_bytes)));
    ranks_check(!job->direct || !fake_ucx_has_fake_gpus() || (fake_ucx_flushes() > 1));
    member_end(&member);
    ranks_check(fake_ucx.regions == 0);
    return 0;
}

static void run_calls(const direct_job_t *given)
{
    direct_job_t job = *given;

    job.relay.link          = MPATH_GPU_LINK_MESH;
    job.relay.pcie_bps      = 50000000000ull;
    job.relay.setup.nic_bps = RELAY_RAIL_BPS;
    job.relay.killed        = -1;
    assert_int_equal(ranks_run(&job.relay.setup, calls_body, &job), 0);
}

static void test_direct(void **state)
{
    (void)state;
    run_calls(&(direct_job_t){.relay  = {.setup     = {.size = 8, .nodes = 2, .nics = 4},
                                         .gpu_rail  = MPATH_GPU_RAIL_DIRECT,
                                         .max_bytes = 400000,
                                         .rounds    = 5},
                              .direct = 1});
    run_calls(&(direct_job_t){.relay  = {.setup      = {.size = 4, .nodes = 2, .nics = 2},
                                         .gpu_rail   = MPATH_GPU_RAIL_DIRECT,
                                         .pool_bytes = 6 << 20, /* few slots */
                                         .max_bytes  = 1000000,
                                         .rounds     = 5},
                              .direct = 1});
}

static void test_through_the_host(void **state)
{
    direct_job_t job = {
        .relay = {.setup = {.size = 4, .nodes = 2, .nics = 2}, .gpu_rail = MPATH_GPU_RAIL_DIRECT, .max_bytes = 200000}};

    (void)state;
    if (getenv("MPATH_TEST_CUDA") != NULL) {
        skip(); /* rank 2 would have to have another UCX */
    }
    job.fault = FAKE_UCX_NO_CUDA;
    run_calls(&job);
    job.fault = FAKE_UCX_CONFUSES;
    run_calls(&job);
}

/* -- rails that are open before -- */

static void open_rails(mpath_context_t *context)
{
    const void *address;
    size_t bytes;

    for (int nic = 0; nic < context->machine.num_nics; nic++) {
        ranks_check(mpath_fabric_address(context->fabric, nic, &address, &bytes) == MPATH_OK);
    }
}

static int late_body(ranks_self_t *self, void *argument)
{
    const direct_job_t *job = argument;
    mpath_coll_counters_t counters;
    member_t member;

    relay_member_init(&member, self, &job->relay);
    mpath_log_set_level(MPATH_LOG_INFO);
    capture_start();
    member_round(&member, A2A_HOT, job->relay.max_bytes, 1);
    capture_stop();
    mpath_coll_counters(member.coll, &counters);
    ranks_check((counters.declined == 0) && (counters.relay.moved.calls == 1) && (fake_ucx.sent_bytes == 0));
    ranks_check((strstr(capture_text(), "was opened before the application used CUDA") != NULL) ==
                (job->relay.first != NULL && self->rank == 0)); /* who speaks for all */
    member_end(&member);
    return 0;
}

static void test_rails_are_open_before(void **state)
{
    direct_job_t job = {.relay = {.setup     = {.size = 4, .nodes = 2, .nics = 2, .nic_bps = RELAY_RAIL_BPS},
                                  .link      = MPATH_GPU_LINK_MESH,
                                  .pcie_bps  = 50000000000ull,
                                  .gpu_rail  = MPATH_GPU_RAIL_DIRECT,
                                  .first     = open_rails,
                                  .max_bytes = 200000}};

    (void)state;
    assert_int_equal(ranks_run(&job.relay.setup, late_body, &job), 0);
    job.relay.first    = NULL;
    job.relay.gpu_rail = MPATH_GPU_RAIL_HOST;
    assert_int_equal(ranks_run(&job.relay.setup, late_body, &job), 0);
}

/* -- a rail that fails -- */

static const mpath_lane_ops_t *sound_ops;
static int sends_left;

static mpath_status_t broken_send(mpath_lane_t *lane, int peer, const mpath_chunk_t *chunk, const void *data,
                                  mpath_lane_op_t *op)
{
    return (sends_left-- > 0) ? sound_ops->send(lane, peer, chunk, data, op) : MPATH_ERR_UNREACHABLE;
}

/* The slots of the call that is given up are in order again, those in the pool too. */
static int fails_body(ranks_self_t *self, void *argument)
{
    static mpath_lane_ops_t broken_ops;
    const direct_job_t *job = argument;
    mpath_coll_counters_t counters;
    member_t member;

    relay_member_init(&member, self, &job->relay);
    member_round(&member, A2A_HOT, job->relay.max_bytes, 1);
    if (self->rank == 1) {
        rail_t *rail = rail_lock(member.context->fabric, member.context->fabric->newest[1]);

        sound_ops       = rail->lane->ops;
        broken_ops      = *sound_ops;
        broken_ops.send = broken_send;
        sends_left      = 3;
        rail->lane->ops = &broken_ops;
        rail_unlock(rail);
    }
    for (int round = 0; round < job->relay.rounds; round++) {
        member_round(&member, A2A_HOT, job->relay.max_bytes, (uint64_t)round + 2);
    }
    mpath_coll_counters(member.coll, &counters);
    ranks_check((counters.relay.repeats == 1) && (counters.declined == 0));
    ranks_check(fake_ucx.sent_bytes >= counters.relay.moved.rail_bytes);
    member_end(&member);
    return 0;
}

static void test_rail_fails(void **state)
{
    direct_job_t job = {.relay = {.setup          = {.size = 8, .nodes = 2, .nics = 4, .nic_bps = 20000000},
                                  .link           = MPATH_GPU_LINK_MESH,
                                  .pcie_bps       = 50000000000ull,
                                  .gpu_rail       = MPATH_GPU_RAIL_DIRECT,
                                  .max_bytes      = 1500000,
                                  .rounds         = 1,
                                  .resend_after_s = 90,
                                  .killed         = -1}};

    (void)state;
    assert_int_equal(ranks_run(&job.relay.setup, fails_body, &job), 0);
}

/* -- contexts that end -- */

#define LOST_MEMBERS 3

static void lose(const ranks_self_t *self, const direct_job_t *job, int mine, member_t *members, int num)
{
    relay_lose_context(self, &job->relay, mine, members, num);
    if (mine) {
        fake_ucx_context_ends();
    }
}

static void open_rail(mpath_fabric_t *fabric, int nic)
{
    const void *address;
    size_t bytes;

    ranks_check(mpath_fabric_address(fabric, nic, &address, &bytes) == MPATH_OK);
}

/* The system may give addresses of GPU memory that has gone to the host. Rail 0 sends from there to rail 1. */
static void send_from_host_memory_at(mpath_fabric_t *fabric, uint64_t address)
{
    mpath_chunk_t chunk   = {.team = 1, .bytes = 3000};
    mpath_lane_op_t op    = {.status = MPATH_INPROGRESS};
    mpath_status_t status = MPATH_INPROGRESS;
    const void *peer;
    size_t bytes;
    int number;
    void *data;

    data = mmap((void *)(uintptr_t)address, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                0);
    ranks_check(data != MAP_FAILED);
    ranks_check(mpath_fabric_address(fabric, 1, &peer, &bytes) == MPATH_OK);
    number = mpath_fabric_peer(fabric, 0, peer, bytes, "rail 1");
    ranks_check(number >= 0);
    status = mpath_fabric_send(fabric, 0, number, &chunk, data, &op);
    while (status == MPATH_INPROGRESS) {
        ranks_check((mpath_fabric_progress(fabric, 0) >= 0) && (mpath_fabric_progress(fabric, 1) >= 0));
        status = mpath_fabric_op_status(fabric, 0, &op);
    }
    ranks_check(status == MPATH_OK);
    mpath_fabric_forget_peer(fabric, 0, number);
}

/* The memory of one that has ended is not shown to UCX again; what has its address now is registered for itself. */
static int ended_body(ranks_self_t *self, void *unused)
{
    mpath_settings_t settings;
    gpu_memory_t before, after;
    mpath_context_t *context;
    mpath_fabric_t *fabric;
    mpath_gpu_t *old, *new;

    (void)unused;
    setenv("FAKE_CUDA_DEVICES", "1", 1);
    gpu_application_starts();
    mpath_settings_init(&settings);
    settings.gpu_rail = MPATH_GPU_RAIL_DIRECT;
    context           = ranks_context(self, &settings);
    fabric            = context->fabric;
    ranks_check(mpath_gpu_get(0, NULL, &old) == MPATH_OK);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, 1 << 20, 1, &before);
    open_rail(fabric, 0);
    ranks_check(mpath_fabric_add_memory(fabric, old, before.address, 1 << 20) == MPATH_OK);
    gpu_application_resets(0);
    fake_ucx_context_ends();
    mpath_gpu_notice_lost();
    open_rail(fabric, 1);
    if (fake_ucx_has_fake_gpus()) {
        ranks_check(fake_ucx.regions == 1);
        send_from_host_memory_at(fabric, before.address);
    }
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, 0, 1 << 20, 1, &after);
    ranks_check(!fake_ucx_has_fake_gpus() || (after.address == before.address));
    ranks_check(mpath_gpu_get(0, NULL, &new) == MPATH_OK);
    ranks_check(mpath_fabric_add_memory(fabric, new, after.address, 1 << 20) == MPATH_OK);
    ranks_check((fake_ucx.regions == 2) && fake_ucx_knows(after.address, 1 << 20));
    mpath_fabric_remove_memory(fabric, old, before.address);
    open_rail(fabric, 2);
    ranks_check((fake_ucx.regions == 3) && fake_ucx_knows(after.address, 1 << 20));
    mpath_fabric_remove_memory(fabric, new, after.address);
    ranks_check(fake_ucx.regions == 0);
    gpu_memory_free(&after);
    mpath_context_destroy(context);
    mpath_gpu_cleanup();
    return 0;
}

static void test_ended_context(void **state)
{
    ranks_setup_t setup = {.size = 1, .nics = 3};

    (void)state;
    assert_int_equal(ranks_run(&setup, ended_body, NULL), 0);
}

/*
 * What communicators of before have registered is dead. Each makes its slots anew in a call of its own, at addresses
 * where those of the others may have been; one ends without such a call.
 */
static int lost_body(ranks_self_t *self, void *argument)
{
    const direct_job_t *job = argument;
    member_t members[LOST_MEMBERS];
    mpath_oob_t oobs[LOST_MEMBERS];
    mpath_coll_counters_t counters;

    relay_member_init(&members[0], self, &job->relay);
    for (int i = 1; i < LOST_MEMBERS; i++) {
        members[i] = (member_t){.context = members[0].context};
        ranks_oob(self, i, NULL, self->size, &oobs[i]);
        relay_member_join(&members[i], self, &oobs[i], &job->relay);
    }
    for (int round = 0; round < job->relay.rounds; round++) {
        if (round > 0) {
            lose(self, job, (round % 2 == 1) || (self->rank == round % self->size), members, LOST_MEMBERS);
        }
        for (int i = 0; i < 2 * LOST_MEMBERS; i++) {
            member_round(&members[(round + 2 * i) % LOST_MEMBERS], A2A_HOT, job->relay.max_bytes, (uint64_t)i);
        }
    }
    lose(self, job, 1, members, LOST_MEMBERS);
    member_round(&members[1], A2A_HOT, job->relay.max_bytes, 90);
    member_leave(&members[2]);
    member_round(&members[1], A2A_HOT, job->relay.max_bytes, 91);
    mpath_coll_counters(members[1].coll, &counters);
    ranks_check((counters.declined == 0) && (counters.relay.moved.calls == 2 * (uint64_t)job->relay.rounds + 2));
    ranks_check(fake_ucx.sent_bytes >= counters.relay.moved.rail_bytes);
    member_leave(&members[1]);
    member_end(&members[0]);
    ranks_check(fake_ucx.regions == 0);
    return 0;
}

static void test_lost_contexts(void **state)
{
    direct_job_t job = {.relay = {.setup     = {.size = 4, .nodes = 2, .nics = 2, .nic_bps = RELAY_RAIL_BPS},
                                  .link      = MPATH_GPU_LINK_MESH,
                                  .pcie_bps  = 50000000000ull,
                                  .gpu_rail  = MPATH_GPU_RAIL_DIRECT,
                                  .max_bytes = 300000,
                                  .rounds    = 4,
                                  .killed    = -1}};

    (void)state;
    assert_int_equal(ranks_run(&job.relay.setup, lost_body, &job), 0);
}

/* Communicators of all and of pairs: which is set up anew first is another one on every rank. */
static int pairs_body(ranks_self_t *self, void *argument)
{
    static const int pairs[4][2] = {{0, 2}, {1, 3}, {0, 3}, {1, 2}};
    const direct_job_t *job      = argument;
    member_t members[3];
    mpath_oob_t oobs[4];
    int num = 1;

    relay_member_init(&members[0], self, &job->relay);
    for (int pair = 0; pair < 4; pair++) {
        if ((pairs[pair][0] == self->rank) || (pairs[pair][1] == self->rank)) {
            members[num] = (member_t){.context = members[0].context};
            ranks_oob(self, pair + 1, pairs[pair], 2, &oobs[pair]);
            relay_member_join(&members[num++], self, &oobs[pair], &job->relay);
        }
    }
    ranks_check(num == 3);
    for (int round = 0; round < job->relay.rounds; round++) {
        if (round > 0) {
            lose(self, job, (round % 2 == 1) || (self->rank == round % self->size), members, 3);
        }
        for (int i = 0; i < 6; i++) {
            member_round(&members[(round + i) % 3], A2A_EVEN, job->relay.max_bytes, (uint64_t)i);
        }
    }
    lose(self, job, 1, members, 3);
    member_round(&members[1], A2A_EVEN, job->relay.max_bytes, 90);
    member_leave(&members[2]);
    member_leave(&members[1]);
    member_round(&members[0], A2A_EVEN, job->relay.max_bytes, 91);
    member_end(&members[0]);
    ranks_check(fake_ucx.regions == 0);
    return 0;
}

static void test_lost_pairs(void **state)
{
    direct_job_t job = {.relay = {.setup     = {.size = 4, .nodes = 2, .nics = 2, .nic_bps = RELAY_RAIL_BPS},
                                  .link      = MPATH_GPU_LINK_MESH,
                                  .pcie_bps  = 50000000000ull,
                                  .gpu_rail  = MPATH_GPU_RAIL_DIRECT,
                                  .max_bytes = 300000,
                                  .rounds    = 4,
                                  .spine     = 1, /* {0, 3} and {1, 2} have other NICs beside them */
                                  .killed    = -1}};

    (void)state;
    assert_int_equal(ranks_run(&job.relay.setup, pairs_body, &job), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_judge),
        cmocka_unit_test(test_expect),
        cmocka_unit_test(test_trial),
        cmocka_unit_test(test_direct),
        cmocka_unit_test(test_through_the_host),
        cmocka_unit_test(test_rails_are_open_before),
        cmocka_unit_test(test_rail_fails),
        cmocka_unit_test(test_ended_context),
        cmocka_unit_test(test_lost_contexts),
        cmocka_unit_test(test_lost_pairs),
    };

    cmocka_set_test_filter(getenv("MPATH_TEST_FILTER")); /* NULL: all */
    return cmocka_run_group_tests_name("rail_gpu", tests, NULL, NULL);
}
