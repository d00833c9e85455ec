/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Device memory over relays, on the driver without a GPU: direct links of a node, and two nodes whose rails are copies
 * or UCX over the loopback device. Random demands, every byte checked, send buffers overwritten as soon as a call
 * returns; few and small slots; GPUs that pass nothing on; demands and buffers that take turns; trials of routings; a
 * rank that dies. One NVSwitch takes no relay.
 */
#include "a2a.h"
#include "adapt/choice.h"
#include "coll/alltoallv.h"
#include "exec/fabric_private.h"
#include "exec/relay_clocks.h"
#include "exec/relay_room.h"
#include "exec/team_private.h"
#include "gpu_kinds.h"
#include "lane/rail_gpu.h"
#include "ranks.h"
#include "unit/capture.h"
#include "util/time.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define A2A_GIVEN ((a2a_kind_t)99) /* the demand is in its place already */
#define LINK_BPS 1000000000ull
#define RAIL_BPS 400000000ull

typedef struct job {
    ranks_setup_t setup;
    mpath_gpu_link_t link;
    mpath_emulation_t emulated;
    uint64_t pcie_bps;   /* next to nothing: no path through the host is worth it */
    uint64_t pool_bytes; /* 0: the default */
    uint64_t max_bytes;
    int rounds;
    const char *without;   /* FAKE_CUDA_WITHOUT */
    const char *full;      /* FAKE_CUDA_FULL */
    int discovers;         /* nobody tells of GPUs: the driver does */
    int spine;             /* NICs of all rails reach each other */
    int killed;            /* this rank dies in its second call; -1: none */
    int on_gpu;            /* ranks that share one; 0: 1 */
    int resend_after_s;    /* 0: the default */
    mpath_status_t broken; /* what a rail answers when it has failed */
    int by_gate;           /* the gate chooses between plan and static routes; else always the plan */
} job_t;

typedef struct member {
    mpath_context_t *context;
    mpath_team_t *team;
    mpath_coll_t *coll;
    a2a_t a2a;
    uint64_t *demand;
    gpu_memory_t send, recv;
    int has_none; /* 1: its next call is one without device memory; 2: with host memory instead */
} member_t;

/* The GPUs of a node with one for each of its ranks, and the NIC of its number beside it. */
static void describe_gpus(const ranks_self_t *self, const job_t *job, mpath_node_gpus_t *gpus)
{
    *gpus          = (mpath_node_gpus_t){.link = job->link, .domain = -1};
    gpus->num_gpus = self->size / ((job->setup.nodes > 0) ? job->setup.nodes : 1) /
                     ((job->on_gpu > 0) ? job->on_gpu : 1);
    for (int g = 0; g < gpus->num_gpus; g++) {
        gpus->gpus[g] = (mpath_gpu_t){
            .pcie_up_bps = job->pcie_bps, .pcie_down_bps = job->pcie_bps, .nics = (job->setup.nics > 0) ? 1u << g : 0};
        if (job->link == MPATH_GPU_LINK_SWITCH) {
            gpus->gpus[g].egress_bps = gpus->gpus[g].ingress_bps = LINK_BPS;
        }
        for (int peer = 0; (job->link == MPATH_GPU_LINK_MESH) && (peer < gpus->num_gpus); peer++) {
            gpus->nvlink_bps[g][peer] = (peer != g) ? LINK_BPS : 0;
        }
    }
}

static void member_join(member_t *member, ranks_self_t *self, const mpath_oob_t *oob, const job_t *job)
{
    int device = (self->rank / ((job->on_gpu > 0) ? job->on_gpu : 1)) % 4; /* else rank 5 shares that of rank 1 */
    uint64_t room;

    ranks_check(mpath_team_create(member->context, oob, &member->team) == MPATH_OK);
    ranks_check(mpath_coll_create(member->team, &member->coll) == MPATH_OK);
    a2a_init(&member->a2a, self->rank, self->size);
    member->demand = calloc((size_t)self->size * (size_t)self->size, sizeof(uint64_t));
    room           = ((uint64_t)self->size + 1) * (job->max_bytes + 64);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, device, room, 1, &member->send);
    gpu_memory_alloc((self->rank % 2 == 0) ? MPATH_MEMORY_DEVICE : MPATH_MEMORY_VMM, device, room, 2, &member->recv);
}

static void member_init(member_t *member, ranks_self_t *self, const job_t *job)
{
    mpath_settings_t settings;

    setenv("FAKE_CUDA_DEVICES", "4", 1);
    setenv("FAKE_CUDA_WITHOUT", (job->without != NULL) ? job->without : "", 1);
    setenv("FAKE_CUDA_FULL", (job->full != NULL) ? job->full : "", 1);
    gpu_application_starts();
    mpath_settings_init(&settings);
    settings.gate       = job->by_gate ? MPATH_GATE_AUTO : MPATH_GATE_ALWAYS;
    settings.check_plan = 1;
    settings.timeout_s  = 100;
    settings.gpu_probe  = MPATH_GPU_PROBE_OFF;
    if (job->resend_after_s > 0) {
        settings.resend_after_s = job->resend_after_s;
    }
    if (job->pool_bytes > 0) {
        settings.gpu_relay_bytes = job->pool_bytes;
    }
    memset(member, 0, sizeof(*member));
    member->context = ranks_context(self, &settings);
    if (!job->discovers) {
        describe_gpus(self, job, &member->context->gpus);
        member->context->gpu                = self->local_rank / ((job->on_gpu > 0) ? job->on_gpu : 1);
        member->context->emulated           = job->emulated;
        member->context->topo_params.fabric = job->spine ? MPATH_FABRIC_SPINE : 0;
    }
    member->context->nic       = (job->setup.nics > 0) ? self->local_rank / ((job->on_gpu > 0) ? job->on_gpu : 1) : -1;
    member->context->nic_known = 1;
    member_join(member, self, &self->oob, job);
}

static void member_end(member_t *member)
{
    a2a_end(&member->a2a);
    free(member->demand);
    mpath_coll_destroy(member->coll);
    mpath_team_destroy(member->team);
    mpath_context_destroy(member->context);
    gpu_memory_free(&member->send);
    gpu_memory_free(&member->recv);
    mpath_gpu_cleanup();
}

/* One call: the buffers of the host stand in the device's. */
static mpath_status_t call_device(member_t *member, a2a_kind_t kind, uint64_t max_bytes, uint64_t seed)
{
    a2a_t *a2a = &member->a2a;
    mpath_memory_t send, recv;
    mpath_status_t status;
    mpath_call_t call;

    if (kind != A2A_GIVEN) {
        a2a_demand(kind, a2a->size, max_bytes, seed, member->demand);
    }
    a2a_fill(a2a, member->demand, seed);
    gpu_memory_write(member->send.address, a2a->send, a2a->send_room);
    gpu_memory_write(member->recv.address, a2a->recv, a2a->recv_room);
    ranks_check(mpath_memory_classify((void *)(uintptr_t)member->send.address, a2a->send_room, &send) == MPATH_OK);
    ranks_check(mpath_memory_classify((void *)(uintptr_t)member->recv.address, a2a->recv_room, &recv) == MPATH_OK);
    call             = a2a->call;
    call.send_buffer = (void *)(uintptr_t)member->send.address;
    call.recv_buffer = (void *)(uintptr_t)member->recv.address;
    call.send_memory = member->has_none ? NULL : &send;
    call.recv_memory = member->has_none ? NULL : &recv;
    if (member->has_none == 2) {
        call.send_buffer = a2a->call.send_buffer;
        call.recv_buffer = a2a->call.recv_buffer;
    }
    status = mpath_alltoallv(member->coll, &call);
    a2a_spoil(a2a);
    gpu_memory_write(member->send.address, a2a->send, a2a->send_room);
    gpu_memory_read(member->recv.address, a2a->recv, a2a->recv_room);
    return status;
}

static void call_round(member_t *member, a2a_kind_t kind, uint64_t max_bytes, uint64_t seed)
{
    ranks_check(call_device(member, kind, max_bytes, seed) == MPATH_OK);
    ranks_check(a2a_check(&member->a2a) == 0);
}

/* What was passed on, by rank. */
static void forwarded(const member_t *member, uint64_t *bytes, mpath_coll_counters_t *counters)
{
    mpath_coll_counters(member->coll, counters);
    ranks_check(mpath_team_allgather(member->team, &counters->relay.moved.forwarded_bytes, sizeof(*bytes), bytes) ==
                MPATH_OK);
}

static int rounds_body(ranks_self_t *self, void *argument)
{
    const job_t *job = argument;
    uint64_t passed[RANKS_MAX], sum = 0;
    mpath_coll_counters_t counters;
    member_t member;

    member_init(&member, self, job);
    for (int round = 0; round < job->rounds; round++) {
        call_round(&member, (a2a_kind_t)(round % 7), (round % 3 == 2) ? 3000 : job->max_bytes, (uint64_t)round);
    }
    for (int round = 0; round < 3; round++) {
        call_round(&member, A2A_HOT, job->max_bytes, 77);
    }
    forwarded(&member, passed, &counters);
    for (int rank = 0; rank < self->size; rank++) {
        sum += passed[rank];
    }
    ranks_check(counters.declined == 0);
    ranks_check(sum > 0);
    ranks_check((job->setup.nodes < 2) || (counters.relay.moved.calls >= (uint64_t)job->rounds));
    ranks_check(counters.relay.moved.slot_bytes <= 32 << 20);
    member_end(&member);
    return 0;
}

static void run_rounds(const job_t *given)
{
    job_t job = *given;

    job.link          = (job.link == MPATH_GPU_LINK_NONE) ? MPATH_GPU_LINK_MESH : job.link;
    job.pcie_bps      = (job.pcie_bps == 0) ? 50000000000ull : job.pcie_bps;
    job.setup.nic_bps = RAIL_BPS;
    job.killed        = -1;
    assert_int_equal(ranks_run(&job.setup, rounds_body, &job), 0);
}

static void test_mesh(void **state)
{
    (void)state;
    run_rounds(&(job_t){.setup = {.size = 4}, .max_bytes = 2000000, .rounds = 7, .pcie_bps = 1000});
    run_rounds(
        &(job_t){.setup = {.size = 4}, .max_bytes = 1000000, .rounds = 7}); /* a share through the host as well */
}

static void test_rails_by_copies(void **state)
{
    (void)state;
    run_rounds(&(job_t){.setup     = {.size = 8, .nodes = 2, .nics = 4},
                        .emulated  = MPATH_EMULATED_COPIES,
                        .max_bytes = 700000,
                        .rounds    = 7});
}

static void test_rails_by_ucx(void **state)
{
    (void)state;
    run_rounds(&(job_t){.setup = {.size = 8, .nodes = 2, .nics = 4}, .max_bytes = 500000, .rounds = 7});
}

static void test_discovered(void **state)
{
    (void)state;
    run_rounds(&(job_t){.setup = {.size = 4, .nodes = 2, .nics = 2}, .discovers = 1, .max_bytes = 300000, .rounds = 7});
}

static void test_few_slots(void **state)
{
    (void)state;
    run_rounds(&(job_t){.setup      = {.size = 8, .nodes = 2, .nics = 4},
                        .emulated   = MPATH_EMULATED_COPIES,
                        .pool_bytes = 2 << 20,
                        .max_bytes  = 1000000,
                        .rounds     = 7});
    run_rounds(&(job_t){
        .setup = {.size = 4, .nodes = 2, .nics = 2}, .pool_bytes = 2 << 20, .max_bytes = 1000000, .rounds = 7});
}

static void test_streams_without_values(void **state)
{
    (void)state;
    run_rounds(&(job_t){.setup     = {.size = 4, .nodes = 2, .nics = 2},
                        .emulated  = MPATH_EMULATED_COPIES,
                        .without   = "values,kernels",
                        .max_bytes = 500000,
                        .rounds    = 7});
}

/* A pair alone takes all links of the node, and all rails between nodes. */
static int pair_body(ranks_self_t *self, void *argument)
{
    const job_t *job = argument;
    uint64_t passed[RANKS_MAX];
    mpath_coll_counters_t counters;
    member_t member;

    member_init(&member, self, job);
    call_round(&member, A2A_ONE_PAIR, job->max_bytes, 1);
    forwarded(&member, passed, &counters);
    for (int rank = 0; rank < self->size; rank++) {
        ranks_check((passed[rank] >= job->max_bytes / 6) == ((rank != 0) && (rank != self->size - 1)));
    }
    member_end(&member);
    return 0;
}

static void test_one_pair(void **state)
{
    job_t job = {
        .setup = {.size = 4}, .link = MPATH_GPU_LINK_MESH, .pcie_bps = 1000, .max_bytes = 4000000, .killed = -1};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, pair_body, &job), 0);
    job.setup    = (ranks_setup_t){.size = 8, .nodes = 2, .nics = 4, .nic_bps = RAIL_BPS};
    job.pcie_bps = 50000000000ull;
    job.emulated = MPATH_EMULATED_COPIES;
    assert_int_equal(ranks_run(&job.setup, pair_body, &job), 0);
}

/*
 * Layers take turns with their demands and buffers; one buffer is freed and comes back at the same place, or at
 * another.
 */
static int turns_body(ranks_self_t *self, void *argument)
{
    const job_t *job = argument;
    uint64_t room    = ((uint64_t)self->size + 1) * (job->max_bytes + 64);
    mpath_coll_counters_t counters;
    gpu_memory_t spare, other;
    member_t member;

    member_init(&member, self, job);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, self->rank % 4, room, 3, &spare);
    for (int round = 0; round < job->rounds; round++) {
        call_round(&member, (round % 2 == 0) ? A2A_HOT : A2A_EVEN, job->max_bytes, (uint64_t)(round / 2 % 3));
        if ((round % 5 == 4) && (self->rank == 2)) {
            gpu_memory_free(&spare);
            gpu_memory_alloc(MPATH_MEMORY_DEVICE, self->rank % 4, room, 3, &spare);
        }
        other       = member.recv;
        member.recv = spare;
        spare       = other;
    }
    mpath_coll_counters(member.coll, &counters);
    ranks_check(counters.relay.moved.calls == (uint64_t)job->rounds);
    gpu_memory_free(&spare);
    member_end(&member);
    return 0;
}

static void test_turns(void **state)
{
    job_t job = {.setup     = {.size = 8, .nodes = 2, .nics = 4, .nic_bps = RAIL_BPS},
                 .link      = MPATH_GPU_LINK_MESH,
                 .emulated  = MPATH_EMULATED_COPIES,
                 .pcie_bps  = 50000000000ull,
                 .max_bytes = 100000,
                 .rounds    = 24,
                 .killed    = -1};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, turns_body, &job), 0);
}

/* Where the model is not sure, both routings are tried, then all ranks take the same one. */
static int trials_body(ranks_self_t *self, void *argument)
{
    const job_t *job = argument;
    uint64_t first[RANKS_MAX], then[RANKS_MAX], sum = 0, more = 0;
    mpath_coll_counters_t counters;
    member_t member;

    member_init(&member, self, job);
    member.demand[0 * self->size + 4] = job->max_bytes; /* whose static route passes nobody */
    for (int round = 0; round < MPATH_CHOICE_TIMES; round++) {
        call_round(&member, A2A_GIVEN, 0, 5);
    }
    mpath_coll_counters(member.coll, &counters);
    ranks_check(counters.relay.choices == 0);
    forwarded(&member, first, &counters);
    for (int round = 0; round < job->rounds; round++) {
        call_round(&member, A2A_GIVEN, 0, 5);
    }
    forwarded(&member, then, &counters);
    ranks_check(counters.relay.choices == 1);
    for (int rank = 0; rank < self->size; rank++) {
        sum += first[rank];
        more += then[rank] - first[rank];
    }
    ranks_check((sum > 0) && (sum % MPATH_CHOICE_TRIALS == 0)); /* half of the trials went over relays */
    ranks_check((more == 0) || (more == sum / MPATH_CHOICE_TRIALS * (uint64_t)job->rounds));
    member_end(&member);
    return 0;
}

static void test_trials(void **state)
{
    job_t job = {.setup     = {.size = 8, .nodes = 2, .nics = 4, .nic_bps = RAIL_BPS},
                 .link      = MPATH_GPU_LINK_MESH,
                 .emulated  = MPATH_EMULATED_COPIES,
                 .pcie_bps  = 50000000000ull,
                 .max_bytes = 150000,
                 .rounds    = 9,
                 .by_gate   = 1,
                 .killed    = -1};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, trials_body, &job), 0);
}

/* GPUs behind one NVSwitch: no relay is made, and the ways between GPUs carry the calls as ever. */
static int switch_body(ranks_self_t *self, void *argument)
{
    const job_t *job = argument;
    mpath_coll_counters_t counters;
    member_t member;

    member_init(&member, self, job);
    for (int round = 0; round < job->rounds; round++) {
        call_round(&member, (a2a_kind_t)(round % 7), job->max_bytes, (uint64_t)round);
    }
    mpath_coll_counters(member.coll, &counters);
    ranks_check(counters.relay.moved.calls == 0 && counters.relay.plans == 0 && counters.relay.moved.slot_bytes == 0);
    ranks_check(counters.gpu.calls == (uint64_t)job->rounds);
    member_end(&member);
    return 0;
}

static void test_switch(void **state)
{
    job_t job = {.setup     = {.size = 4},
                 .link      = MPATH_GPU_LINK_SWITCH,
                 .pcie_bps  = 50000000000ull,
                 .max_bytes = 1000000,
                 .rounds    = 7,
                 .killed    = -1};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, switch_body, &job), 0);
}

/* Which rails could do without pinned slots; with folders in place of the system's. */
static void test_rail_gpu(void **state)
{
    (void)state;
    assert_int_equal(mpath_rail_gpu_judge(0, 1, 1), MPATH_RAIL_GPU_NO_CUDA);
    assert_int_equal(mpath_rail_gpu_judge(1, 0, 1), MPATH_RAIL_GPU_NO_RDMA);
    assert_int_equal(mpath_rail_gpu_judge(1, 1, 0), MPATH_RAIL_GPU_NO_MODULE);
    assert_int_equal(mpath_rail_gpu_judge(1, 1, 1), MPATH_RAIL_GPU_DIRECT);
    assert_int_not_equal(mpath_rail_gpu_find("/nonexistent"), MPATH_RAIL_GPU_DIRECT); /* whatever UCX this is */
}

/*
 * Two ranks on each GPU, whose NIC they share: any of them may be asked to pass on, and none sends to a GPU that it
 * has. With every demand.
 */
static void test_shared_gpus(void **state)
{
    (void)state;
    run_rounds(&(job_t){.setup     = {.size = 8, .nodes = 2, .nics = 2},
                        .emulated  = MPATH_EMULATED_COPIES,
                        .on_gpu    = 2,
                        .max_bytes = 300000,
                        .rounds    = 7});
    run_rounds(&(job_t){.setup = {.size = 8, .nodes = 2, .nics = 2}, .on_gpu = 2, .max_bytes = 200000, .rounds = 4});
    run_rounds(&(job_t){.setup = {.size = 6}, .on_gpu = 2, .max_bytes = 500000, .rounds = 7, .pcie_bps = 1000});
}

/* A rank with its data in host memory among GPUs: all decline together, and nothing is moved. */
static int host_body(ranks_self_t *self, void *argument)
{
    const job_t *job = argument;
    mpath_coll_counters_t counters;
    member_t member;

    member_init(&member, self, job);
    call_round(&member, A2A_HOT, job->max_bytes, 1);
    member.has_none = (self->rank == 2) ? 2 : 0;
    ranks_check(call_device(&member, A2A_HOT, job->max_bytes, 2) == MPATH_DECLINED);
    ranks_check(mpath_coll_wants_host(member.coll)); /* who asks stages all of it through the host */
    member.has_none = 0;
    call_round(&member, A2A_EVEN, job->max_bytes, 3);
    mpath_coll_counters(member.coll, &counters);
    ranks_check((counters.relay.moved.calls == 2) && (counters.declined == 1));
    member_end(&member);
    return 0;
}

static void test_host_among_gpus(void **state)
{
    job_t job = {.setup     = {.size = 4, .nodes = 2, .nics = 2, .nic_bps = RAIL_BPS},
                 .link      = MPATH_GPU_LINK_MESH,
                 .pcie_bps  = 50000000000ull,
                 .max_bytes = 100000,
                 .killed    = -1};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, host_body, &job), 0);
}

/*
 * A rank that has no GPU yet when slots and rails are made: what has device memory of it later does not go over them.
 */
static int late_body(ranks_self_t *self, void *argument)
{
    const job_t *job = argument;
    mpath_coll_counters_t counters;
    member_t member;

    member_init(&member, self, job);
    if (self->rank == 1) {
        ranks_check(mpath_gpu_driver()->CtxSetCurrent(NULL) == MPATH_CU_SUCCESS);
        member.has_none = 1;
    }
    call_round(&member, A2A_ONE_PAIR, job->max_bytes, 1);
    member.has_none = 0;
    ranks_check(call_device(&member, A2A_HOT, job->max_bytes, 2) == MPATH_DECLINED);
    member.has_none = self->rank == 1;
    call_round(&member, A2A_ONE_PAIR, job->max_bytes, 3);
    mpath_coll_counters(member.coll, &counters);
    ranks_check(counters.relay.moved.calls == 2 && counters.declined == 1);
    member_end(&member);
    return 0;
}

static void test_late_gpu(void **state)
{
    job_t job = {.setup     = {.size = 4, .nodes = 2, .nics = 2, .nic_bps = RAIL_BPS},
                 .link      = MPATH_GPU_LINK_MESH,
                 .pcie_bps  = 50000000000ull,
                 .max_bytes = 1000000,
                 .killed    = -1};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, late_body, &job), 0);
}

/* A GPU without memory for slots passes nothing on; the others do. */
static int full_body(ranks_self_t *self, void *argument)
{
    const job_t *job = argument;
    uint64_t passed[RANKS_MAX];
    mpath_coll_counters_t counters;
    member_t member;

    member_init(&member, self, job);
    call_round(&member, A2A_ONE_PAIR, job->max_bytes, 1);
    for (int round = 0; round < job->rounds; round++) {
        call_round(&member, (a2a_kind_t)(round % 7), job->max_bytes, (uint64_t)round);
    }
    forwarded(&member, passed, &counters);
    ranks_check((passed[1] == 0) && (passed[2] > 0));
    ranks_check(counters.declined == 0);
    ranks_check((counters.relay.moved.slot_bytes == 0) == (self->rank % 4 == 1));
    member_end(&member);
    return 0;
}

static void test_full_gpu(void **state)
{
    job_t job = {.setup     = {.size = 4},
                 .link      = MPATH_GPU_LINK_MESH,
                 .pcie_bps  = 1000,
                 .max_bytes = 2000000,
                 .rounds    = 7,
                 .full      = "1",
                 .killed    = -1};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, full_body, &job), 0);
    job.setup     = (ranks_setup_t){.size = 6, .nodes = 2, .nics = 3, .nic_bps = RAIL_BPS};
    job.pcie_bps  = 50000000000ull;
    job.emulated  = MPATH_EMULATED_COPIES;
    job.spine     = 1;
    job.max_bytes = 500000;
    assert_int_equal(ranks_run(&job.setup, full_body, &job), 0);
}

/* A GPU that gets short of memory gives its slots back; its bytes find other ways. */
static int short_body(ranks_self_t *self, void *argument)
{
    const job_t *job = argument;
    uint64_t before[RANKS_MAX], after[RANKS_MAX];
    mpath_coll_counters_t counters;
    member_t member;

    member_init(&member, self, job);
    call_round(&member, A2A_ONE_PAIR, job->max_bytes, 1);
    forwarded(&member, before, &counters);
    setenv("FAKE_CUDA_FULL", (self->rank == 1) ? "1" : "", 1);
    for (int round = 0; round < 70; round++) {
        call_round(&member, A2A_EVEN, 2000, (uint64_t)round);
    }
    call_round(&member, A2A_ONE_PAIR, job->max_bytes, 2);
    forwarded(&member, after, &counters);
    ranks_check((before[1] > 0) && (after[1] == before[1]));
    ranks_check(after[2] >= before[2] + job->max_bytes / 3);
    ranks_check((counters.relay.moved.slot_bytes == 0) == (self->rank == 1));
    member_end(&member);
    return 0;
}

static void test_short_of_memory(void **state)
{
    job_t job = {
        .setup = {.size = 4}, .link = MPATH_GPU_LINK_MESH, .pcie_bps = 1000, .max_bytes = 2000000, .killed = -1};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, short_body, &job), 0);
}

/* The second communicator of two threads that run at a time. */
typedef struct other {
    member_t member;
    const job_t *job;
    mpath_cu_context_t context;
    pthread_barrier_t start; /* of a round, for both threads */
    int rounds;
} other_t;

static void *other_thread(void *argument)
{
    other_t *other = argument;

    ranks_check(mpath_gpu_driver()->CtxSetCurrent(other->context) == MPATH_CU_SUCCESS);
    for (int round = 0; round < other->rounds; round++) {
        pthread_barrier_wait(&other->start);
        call_round(&other->member, A2A_GIVEN, 0, (uint64_t)round);
    }
    return NULL;
}

/* Both communicators make their calls at a time. Nanoseconds that it took this rank. */
static uint64_t run_both(member_t *member, other_t *other)
{
    uint64_t start_ns = mpath_time_ns();
    pthread_t thread;

    ranks_check(mpath_gpu_driver()->CtxGetCurrent(&other->context) == MPATH_CU_SUCCESS);
    pthread_barrier_init(&other->start, NULL, 2);
    ranks_check(pthread_create(&thread, NULL, other_thread, other) == 0);
    for (int round = 0; round < other->rounds; round++) {
        pthread_barrier_wait(&other->start);
        call_round(member, A2A_GIVEN, 0, (uint64_t)round);
    }
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&other->start);
    return mpath_time_ns() - start_ns;
}

static void other_join(other_t *other, const member_t *member, ranks_self_t *self)
{
    mpath_oob_t oob;

    ranks_oob(self, 1, NULL, self->size, &oob);
    other->member.context = member->context;
    member_join(&other->member, self, &oob, other->job);
}

static void other_end(other_t *other)
{
    mpath_coll_destroy(other->member.coll);
    mpath_team_destroy(other->member.team);
    a2a_end(&other->member.a2a);
    free(other->member.demand);
    gpu_memory_free(&other->member.send);
    gpu_memory_free(&other->member.recv);
}

/* Rank 1 sends over its NIC in one communicator, and rank 0 would borrow it in another: rank 0's chunks wait. */
static int owner_body(ranks_self_t *self, void *argument)
{
    const job_t *job = argument;
    other_t other    = {.job = job, .rounds = job->rounds};
    uint64_t yields[2], all[4][2] = {{0}};
    mpath_coll_counters_t counters;
    member_t member;

    member_init(&member, self, job);
    other_join(&other, &member, self);
    member.demand[0 * 4 + 2]       = job->max_bytes;
    other.member.demand[1 * 4 + 3] = job->max_bytes;
    for (int i = 0; (i < 20) && ((all[0][0] == 0) || (all[1][1] == 0));
         i++) { /* calls may miss each other on a busy machine */
        run_both(&member, &other);
        mpath_coll_counters(member.coll, &counters);
        yields[0] = counters.relay.moved.yields;
        mpath_coll_counters(other.member.coll, &counters);
        yields[1] = counters.relay.moved.yields;
        ranks_check(mpath_team_allgather(member.team, yields, sizeof(yields), all) == MPATH_OK);
    }
    ranks_check((yields[0] > 0) == (self->rank == 0));
    ranks_check((yields[1] > 0) == (self->rank == 1)); /* and the other way round */
    other_end(&other);
    member_end(&member);
    return 0;
}

/* Two communicators over the same emulated ports: together no faster than these. */
static int shared_ports_body(ranks_self_t *self, void *argument)
{
    const job_t *job   = argument;
    other_t other      = {.job = job, .rounds = job->rounds};
    uint64_t rails_bps = 2 * job->setup.nic_bps, bytes = 2 * job->max_bytes * (uint64_t)job->rounds, took_ns;
    void *mine, *theirs;
    member_t member;

    member_init(&member, self, job);
    other_join(&other, &member, self);
    member.demand[0 * 4 + 2]       = job->max_bytes;
    other.member.demand[0 * 4 + 2] = job->max_bytes;
    took_ns                        = run_both(&member, &other);
    ranks_check((self->rank != 0) || (took_ns >= bytes * (MPATH_NS_PER_S / 100) / rails_bps * 97));
    ranks_check(mpath_relay_clocks_get(member.team, &mine) == MPATH_OK);
    ranks_check(mpath_relay_clocks_get(other.member.team, &theirs) == MPATH_OK);
    if (self->rank == 0) {
        ((uint64_t *)mine)[1] += 1ull << 62; /* a clock; nothing moves any more */
    }
    ranks_check(mpath_relay_all(member.team, MPATH_OK) == MPATH_OK);
    ranks_check((mine == theirs) && (((uint64_t *)theirs)[1] >= 1ull << 62));
    other_end(&other);
    member_end(&member);
    return 0;
}

static void test_owner(void **state)
{
    job_t job = {.setup     = {.size = 4, .nodes = 2, .nics = 2, .nic_bps = 20000000},
                 .link      = MPATH_GPU_LINK_MESH,
                 .emulated  = MPATH_EMULATED_COPIES,
                 .pcie_bps  = 50000000000ull,
                 .max_bytes = 2000000,
                 .rounds    = 2,
                 .killed    = -1};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, owner_body, &job), 0);
    job.rounds = 1;
    assert_int_equal(ranks_run(&job.setup, shared_ports_body, &job), 0);
}

/* The rail beside this rank fails after a few chunks: sends give errors, or what is sent never arrives. */
static const mpath_lane_ops_t *sound_ops;
static mpath_status_t broken_send_status;
static int sends_left;

static mpath_status_t broken_send(mpath_lane_t *lane, int peer, const mpath_chunk_t *chunk, const void *data,
                                  mpath_lane_op_t *op)
{
    if (sends_left > 0) {
        sends_left--;
        return sound_ops->send(lane, peer, chunk, data, op);
    }
    return broken_send_status;
}

static void break_rail(const member_t *member, int nic, mpath_status_t status, int sends)
{
    static mpath_lane_ops_t broken_ops;
    rail_t *rail = rail_lock(member->context->fabric, mpath_fabric_rail(member->context->fabric, nic));

    ranks_check(rail->lane != NULL);
    sound_ops          = rail->lane->ops;
    broken_ops         = *sound_ops;
    broken_ops.send    = broken_send;
    broken_send_status = status;
    sends_left         = sends;
    rail->lane->ops    = &broken_ops;
    rail_unlock(rail);
}

/* All ranks repeat the call over the other rails, and go on without this one. */
static int rail_fails_body(ranks_self_t *self, void *argument)
{
    const job_t *job = argument;
    mpath_coll_counters_t counters;
    uint32_t lost;
    member_t member;

    member_init(&member, self, job);
    call_round(&member, A2A_HOT, job->max_bytes, 1);
    if (self->rank == 1) {
        break_rail(&member, 1, job->broken, 3);
    }
    call_round(&member, A2A_HOT, job->max_bytes, 2);
    mpath_coll_counters(member.coll, &counters);
    lost = member.team->lost[0] | member.team->lost[1];
    if (job->broken == MPATH_OK) { /* on a busy machine another rail may be silent for as long */
        ranks_check((counters.relay.repeats > 0) && ((lost & (1u << 1)) != 0));
        member_end(&member);
        return 0;
    }
    ranks_check((counters.relay.repeats == 1) && (lost == 1u << 1));
    for (int round = 0; round < job->rounds; round++) {
        call_round(&member, (a2a_kind_t)(round % 7), job->max_bytes / 10, (uint64_t)round);
    }
    mpath_coll_counters(member.coll, &counters);
    ranks_check((counters.relay.repeats == 1) && (counters.declined == 0));
    ranks_check(counters.relay.moved.calls == (uint64_t)job->rounds + 2);
    member_end(&member);
    return 0;
}

static void test_rail_fails(void **state)
{
    job_t job = {.setup          = {.size = 8, .nodes = 2, .nics = 4, .nic_bps = 20000000},
                 .link           = MPATH_GPU_LINK_MESH,
                 .pcie_bps       = 50000000000ull,
                 .max_bytes      = 1500000,
                 .rounds         = 7,
                 .broken         = MPATH_ERR_UNREACHABLE,
                 .resend_after_s = 90,
                 .killed         = -1};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, rail_fails_body, &job), 0);
    job.broken         = MPATH_OK; /* silence */
    job.resend_after_s = 2;
    job.emulated       = MPATH_EMULATED_RAILS;
    assert_int_equal(ranks_run(&job.setup, rail_fails_body, &job), 0);
}

/* A relay dies: those who need it get an error, soon and not at the deadline. */
static void *die_soon(void *unused)
{
    (void)unused;
    usleep(200000);
    kill(getpid(), SIGKILL);
    return NULL;
}

static int killed_body(ranks_self_t *self, void *argument)
{
    const job_t *job      = argument;
    mpath_status_t status = MPATH_OK;
    pthread_t thread;
    member_t member;

    member_init(&member, self, job);
    call_round(&member, A2A_HOT, 1000, 1);
    if (self->rank == job->killed) {
        ranks_check(pthread_create(&thread, NULL, die_soon, NULL) == 0);
    }
    while (status == MPATH_OK) {
        status = call_device(&member, A2A_HOT, job->max_bytes, 1); /* which takes more than half a second */
    }
    ranks_check(mpath_status_is_error(status));
    member_end(&member);
    return 0;
}

static void test_killed(void **state)
{
    job_t job = {.setup     = {.size = 4, .nodes = 2, .nics = 2, .nic_bps = 4000000, .may_die = 1u << 2, .limit_s = 90},
                 .link      = MPATH_GPU_LINK_MESH,
                 .emulated  = MPATH_EMULATED_COPIES,
                 .pcie_bps  = 50000000000ull,
                 .max_bytes = 2000000,
                 .killed    = 2};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, killed_body, &job), 0);
    job.emulated = MPATH_EMULATED_RAILS;
    assert_int_equal(ranks_run(&job.setup, killed_body, &job), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mesh),
        cmocka_unit_test(test_rails_by_copies),
        cmocka_unit_test(test_one_pair),
        cmocka_unit_test(test_rails_by_ucx),
        cmocka_unit_test(test_discovered),
        cmocka_unit_test(test_few_slots),
        cmocka_unit_test(test_streams_without_values),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_trials),
        cmocka_unit_test(test_switch),
        cmocka_unit_test(test_shared_gpus),
        cmocka_unit_test(test_host_among_gpus),
        cmocka_unit_test(test_rail_gpu),
        cmocka_unit_test(test_late_gpu),
        cmocka_unit_test(test_full_gpu),
        cmocka_unit_test(test_short_of_memory),
        cmocka_unit_test(test_owner),
        cmocka_unit_test(test_rail_fails),
        cmocka_unit_test(test_killed),
    };

    cmocka_set_test_filter(getenv("MPATH_TEST_FILTER")); /* NULL: all */
    return cmocka_run_group_tests_name("relay", tests, NULL, NULL);
}
