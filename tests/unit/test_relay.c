/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Device memory over relays, on the driver without a GPU: direct links of a node, and two nodes whose rails are copies
 * or UCX over the loopback device. Random demands, every byte checked, send buffers overwritten as soon as a call
 * returns; few and small slots; demands and buffers that take turns; trials of routings; GPUs that ranks share. One
 * NVSwitch takes no relay.
 */
#include "device/cuda/driver.h"
#include "rail/fabric_private.h"
#include "team/team_private.h"
#include "tune/trial.h"
#include "relay_support.h"
#include "unit/capture.h"

#include <stdlib.h>
#include <string.h>

static void test_mesh(void **state)
{
    (void)state;
    relay_run_rounds(&(relay_job_t){.setup = {.size = 4}, .max_bytes = 2000000, .rounds = 7, .pcie_bps = 1000});
    relay_run_rounds(
        &(relay_job_t){.setup = {.size = 4}, .max_bytes = 1000000, .rounds = 7}); /* a share through the host as well */
}

static void test_rails_by_copies(void **state)
{
    (void)state;
    relay_run_rounds(&(relay_job_t){.setup     = {.size = 8, .nodes = 2, .nics = 4},
                                    .emulated  = MPATH_EMULATED_COPIES,
                                    .max_bytes = 700000,
                                    .rounds    = 7});
}

static void test_rails_by_ucx(void **state)
{
    (void)state;
    relay_run_rounds(&(relay_job_t){.setup = {.size = 8, .nodes = 2, .nics = 4}, .max_bytes = 500000, .rounds = 7});
}

static void close_a_nic(mpath_context_t *context)
{
    if (strcmp(context->machine.host, "virtual1") == 0) {
        context->fabric->rails[1].status = MPATH_ERR_UNSUPPORTED;
    }
}

/* A NIC that UCX does not open on one node: that of a rank alone, or of all ranks, or one that only its GPU asks for. */
static void test_unopened(void **state)
{
    relay_job_t job = {
        .setup = {.size = 8, .nodes = 2, .nics = 4}, .first = close_a_nic, .max_bytes = 300000, .rounds = 7};

    (void)state;
    relay_run_rounds(&job);
    job.affine = 1;
    relay_run_rounds(&job);
    job.setup  = (ranks_setup_t){.size = 6, .nodes = 2, .nics = 3};
    job.beside = RELAY_BESIDE_OTHER;
    relay_run_rounds(&job);
}

/* A rank drives the NICs beside its GPU, too, which are others than that beside its processor, or several. */
static void test_nics_of_gpus(void **state)
{
    relay_job_t job = {.setup     = {.size = 6, .nodes = 2, .nics = 3},
                       .beside    = RELAY_BESIDE_OTHER,
                       .affine    = 1,
                       .max_bytes = 300000,
                       .rounds    = 7};

    (void)state;
    relay_run_rounds(&job);
    job.beside         = RELAY_BESIDE_ALL;
    job.passes_nothing = 1;
    relay_run_rounds(&job);
}

/* GPUs that reach each other through host memory only pass nothing on: each has its own NIC, and the switch between. */
static void test_not_linked(void **state)
{
    relay_job_t job = {.setup          = {.size = 4, .nodes = 2, .nics = 2},
                       .unlinked       = 1,
                       .spine          = 1,
                       .passes_nothing = 1,
                       .max_bytes      = 300000,
                       .rounds         = 7};

    (void)state;
    relay_run_rounds(&job);
    job.affine = 1;
    relay_run_rounds(&job);
}

/* Rails bring chunks to a rank from two others, each of which has slots of its own there. */
static void test_three_nodes(void **state)
{
    (void)state;
    relay_run_rounds(&(relay_job_t){.setup = {.size = 6, .nodes = 3, .nics = 2}, .max_bytes = 2000000, .rounds = 7});
}

/* Memory for a slot of a sender or two: those that send over no path have none. */
static void test_few_slots_of_rails(void **state)
{
    relay_job_t job = {
        .setup = {.size = 12, .nodes = 3, .nics = 4}, .host_bytes = 1 << 20, .max_bytes = 300000, .rounds = 7};

    (void)state;
    relay_run_rounds(&job);
    job.spine      = 1;
    job.host_bytes = 2 << 20;
    relay_run_rounds(&job);
}

/* As with many ranks: by pairs of nodes. */
static void test_pairs(void **state)
{
    relay_job_t job = {
        .setup = {.size = 12, .nodes = 3, .nics = 4}, .tune = "alltoallv:@pairs", .max_bytes = 500000, .rounds = 14};

    (void)state;
    relay_run_rounds(&job);
    job.spine = 1;
    relay_run_rounds(&job);
    job.setup    = (ranks_setup_t){.size = 8, .nodes = 2, .nics = 4};
    job.spine    = 0;
    job.emulated = MPATH_EMULATED_COPIES;
    relay_run_rounds(&job);
}

static void test_discovered(void **state)
{
    (void)state;
    relay_run_rounds(
        &(relay_job_t){.setup = {.size = 4, .nodes = 2, .nics = 2}, .discovers = 1, .max_bytes = 300000, .rounds = 7});
}

static void test_few_slots(void **state)
{
    (void)state;
    relay_run_rounds(&(relay_job_t){.setup      = {.size = 8, .nodes = 2, .nics = 4},
                                    .emulated   = MPATH_EMULATED_COPIES,
                                    .pool_bytes = 2 << 20,
                                    .max_bytes  = 1000000,
                                    .rounds     = 7});
    relay_run_rounds(&(relay_job_t){
        .setup = {.size = 4, .nodes = 2, .nics = 2}, .pool_bytes = 2 << 20, .max_bytes = 1000000, .rounds = 7});
}

static void test_streams_without_values(void **state)
{
    (void)state;
    relay_run_rounds(&(relay_job_t){.setup     = {.size = 4, .nodes = 2, .nics = 2},
                                    .emulated  = MPATH_EMULATED_COPIES,
                                    .without   = "values,kernels",
                                    .max_bytes = 500000,
                                    .rounds    = 7});
}

/* A pair alone takes all links of the node, and all rails between nodes. */
static int pair_body(ranks_self_t *self, void *argument)
{
    const relay_job_t *job = argument;
    uint64_t passed[RANKS_MAX];
    mpath_coll_counters_t counters;
    member_t member;

    relay_member_init(&member, self, job);
    member_round(&member, A2A_ONE_PAIR, job->max_bytes, 1);
    member_forwarded(&member, passed, &counters);
    for (int rank = 0; rank < self->size; rank++) {
        ranks_check((passed[rank] >= job->max_bytes / 6) == ((rank != 0) && (rank != self->size - 1)));
    }
    member_end(&member);
    return 0;
}

static void test_one_pair(void **state)
{
    relay_job_t job = {
        .setup = {.size = 4}, .link = MPATH_GPU_LINK_MESH, .pcie_bps = 1000, .max_bytes = 4000000, .killed = -1};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, pair_body, &job), 0);
    job.setup    = (ranks_setup_t){.size = 8, .nodes = 2, .nics = 4, .nic_bps = RELAY_RAIL_BPS};
    job.pcie_bps = 50000000000ull;
    job.emulated = MPATH_EMULATED_COPIES;
    assert_int_equal(ranks_run(&job.setup, pair_body, &job), 0);
}

/* The first copies of a call, by the allocation that they write to. */
#define WATCHED 4
static __typeof__(((mpath_cu_t *)NULL)->MemcpyAsync) copy_async;
static mpath_cu_ptr_t watched[WATCHED];
static int num_watched;

static mpath_cu_result_t watch_copy(mpath_cu_ptr_t to, mpath_cu_ptr_t from, size_t bytes, mpath_cu_stream_t stream)
{
    size_t size;

    if (num_watched < WATCHED) {
        ranks_check(mpath_gpu_driver()->MemGetAddressRange(&watched[num_watched++], &size, to) == MPATH_CU_SUCCESS);
    }
    return copy_async(to, from, bytes, stream);
}

/* All ways out of a rank get their first chunk before any of them gets another. */
static int first_copies_body(ranks_self_t *self, void *argument)
{
    const relay_job_t *job = argument;
    member_t member;

    relay_member_init(&member, self, job);
    member_round(&member, A2A_ONE_PAIR, job->max_bytes, 1);
    copy_async                                                 = mpath_gpu_driver()->MemcpyAsync;
    ((mpath_cu_t *)(uintptr_t)mpath_gpu_driver())->MemcpyAsync = watch_copy;
    member_round(&member, A2A_ONE_PAIR, job->max_bytes, 2);
    ranks_check((self->rank != 0) || (num_watched == WATCHED));
    for (int i = 0; (i < WATCHED) && (self->rank == 0); i++) {
        for (int k = 0; k < i; k++) {
            ranks_check(watched[i] != watched[k]);
        }
    }
    member_end(&member);
    return 0;
}

static void test_first_copies(void **state)
{
    relay_job_t job = {.setup     = {.size = 8, .nodes = 2, .nics = 4, .nic_bps = RELAY_RAIL_BPS},
                       .link      = MPATH_GPU_LINK_MESH,
                       .emulated  = MPATH_EMULATED_COPIES,
                       .pcie_bps  = 50000000000ull,
                       .max_bytes = 4000000,
                       .killed    = -1};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, first_copies_body, &job), 0);
}

/* Bytes of copies, in the order in which they were given to the driver, by allocation. */
#define LOGGED 512
static mpath_cu_ptr_t logged_base[LOGGED];
static size_t logged_bytes[LOGGED];
static int num_logged;

static mpath_cu_result_t log_copy(mpath_cu_ptr_t to, mpath_cu_ptr_t from, size_t bytes, mpath_cu_stream_t stream)
{
    size_t size;

    ranks_check(num_logged < LOGGED);
    ranks_check(mpath_gpu_driver()->MemGetAddressRange(&logged_base[num_logged], &size, to) == MPATH_CU_SUCCESS);
    logged_bytes[num_logged++] = bytes;
    return copy_async(to, from, bytes, stream);
}

/* The last copy to the allocation that has got so many bytes in all; -1: there is none. */
static int last_copy(size_t bytes)
{
    int last = -1;

    for (int i = 0; i < num_logged; i++) {
        size_t sum = 0;

        for (int k = 0; k < num_logged; k++) {
            sum += (logged_base[k] == logged_base[i]) ? logged_bytes[k] : 0;
        }
        last = (sum == bytes) ? i : last;
    }
    return last;
}

/*
 * Rank 1 sends to rank 2 through rank 3, which is slow to pass on, and to rank 3 over the same NIC: what is for rank 3
 * does not wait for slots there.
 */
static int no_slot_body(ranks_self_t *self, void *argument)
{
    const relay_job_t *job = argument;
    uint64_t near          = job->max_bytes / 4;
    member_t member;

    setenv("FAKE_CUDA_DELAY_US", (self->rank == 3) ? "40000" : "30", 1);
    relay_member_init(&member, self, job);
    member.demand[1 * 4 + 2] = job->max_bytes;
    member.demand[1 * 4 + 3] = near;
    member_round(&member, A2A_GIVEN, 0, 1);
    copy_async                                                 = mpath_gpu_driver()->MemcpyAsync;
    ((mpath_cu_t *)(uintptr_t)mpath_gpu_driver())->MemcpyAsync = log_copy;
    member_round(&member, A2A_GIVEN, 0, 2);
    ranks_check((self->rank != 1) || ((last_copy(near) >= 0) && (last_copy(near) < num_logged - 8)));
    member_end(&member);
    return 0;
}

static void test_no_slot(void **state)
{
    relay_job_t job = {.setup      = {.size = 4, .nodes = 2, .nics = 2, .nic_bps = RELAY_RAIL_BPS},
                       .link       = MPATH_GPU_LINK_MESH,
                       .emulated   = MPATH_EMULATED_COPIES,
                       .pcie_bps   = 50000000000ull,
                       .pool_bytes = 2 << 20,
                       .max_bytes  = 4000000,
                       .killed     = -1};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, no_slot_body, &job), 0);
}

/*
 * Layers take turns with their demands and buffers; one buffer is freed and comes back at the same place, or at
 * another.
 */
static int turns_body(ranks_self_t *self, void *argument)
{
    const relay_job_t *job = argument;
    uint64_t room          = ((uint64_t)self->size + 1) * (job->max_bytes + 64);
    mpath_coll_counters_t counters;
    gpu_memory_t spare, other;
    member_t member;

    relay_member_init(&member, self, job);
    gpu_memory_alloc(MPATH_MEMORY_DEVICE, self->rank % 4, room, 3, &spare);
    for (int round = 0; round < job->rounds; round++) {
        member_round(&member, (round % 2 == 0) ? A2A_HOT : A2A_EVEN, job->max_bytes, (uint64_t)(round / 2 % 3));
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
    relay_job_t job = {.setup     = {.size = 8, .nodes = 2, .nics = 4, .nic_bps = RELAY_RAIL_BPS},
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
    const relay_job_t *job = argument;
    uint64_t first[RANKS_MAX], then[RANKS_MAX], sum = 0, more = 0;
    mpath_coll_counters_t counters;
    member_t member;

    relay_member_init(&member, self, job);
    member.demand[0 * self->size + 4] = job->max_bytes; /* whose static route passes nobody */
    for (int round = 0; round < 2 * MPATH_TRIAL_RUNS; round++) {
        member_round(&member, A2A_GIVEN, 0, 5);
    }
    mpath_coll_counters(member.coll, &counters);
    ranks_check(counters.relay.choices == 0);
    member_forwarded(&member, first, &counters);
    for (int round = 0; round < job->rounds; round++) {
        member_round(&member, A2A_GIVEN, 0, 5);
    }
    member_forwarded(&member, then, &counters);
    ranks_check(counters.relay.choices == 1);
    for (int rank = 0; rank < self->size; rank++) {
        sum += first[rank];
        more += then[rank] - first[rank];
    }
    ranks_check((sum > 0) && (sum % MPATH_TRIAL_RUNS == 0)); /* half of the trials went over relays */
    ranks_check((more == 0) || (more == sum / MPATH_TRIAL_RUNS * (uint64_t)job->rounds));
    member_end(&member);
    return 0;
}

static void test_trials(void **state)
{
    relay_job_t job = {.setup     = {.size = 8, .nodes = 2, .nics = 4, .nic_bps = RELAY_RAIL_BPS},
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
    const relay_job_t *job = argument;
    mpath_coll_counters_t counters;
    member_t member;

    relay_member_init(&member, self, job);
    for (int round = 0; round < job->rounds; round++) {
        member_round(&member, (a2a_kind_t)(round % 7), job->max_bytes, (uint64_t)round);
    }
    mpath_coll_counters(member.coll, &counters);
    ranks_check(counters.relay.moved.calls == 0 && counters.relay.plans == 0 && counters.relay.moved.slot_bytes == 0);
    ranks_check(counters.gpu.calls == (uint64_t)job->rounds);
    member_end(&member);
    return 0;
}

static void test_switch(void **state)
{
    relay_job_t job = {.setup     = {.size = 4},
                       .link      = MPATH_GPU_LINK_SWITCH,
                       .pcie_bps  = 50000000000ull,
                       .max_bytes = 1000000,
                       .rounds    = 7,
                       .killed    = -1};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, switch_body, &job), 0);
}

/*
 * Two ranks on each GPU, whose NIC they share: any of them may be asked to pass on, and none sends to a GPU that it
 * has. With every demand.
 */
static void test_shared_gpus(void **state)
{
    (void)state;
    relay_run_rounds(&(relay_job_t){.setup     = {.size = 8, .nodes = 2, .nics = 2},
                                    .emulated  = MPATH_EMULATED_COPIES,
                                    .on_gpu    = 2,
                                    .max_bytes = 300000,
                                    .rounds    = 7});
    relay_run_rounds(
        &(relay_job_t){.setup = {.size = 8, .nodes = 2, .nics = 2}, .on_gpu = 2, .max_bytes = 200000, .rounds = 4});
    relay_run_rounds(
        &(relay_job_t){.setup = {.size = 6}, .on_gpu = 2, .max_bytes = 500000, .rounds = 7, .pcie_bps = 1000});
}

/*
 * A rank with its data in host memory among GPUs: all decline together, and nothing is moved, unless there are copies on
 * the host.
 */
static int host_body(ranks_self_t *self, void *argument)
{
    const relay_job_t *job = argument;
    mpath_coll_counters_t counters;
    member_t member;

    relay_member_init(&member, self, job);
    member_round(&member, A2A_HOT, job->max_bytes, 1);
    member.memory = (self->rank == 2) ? MEMBER_HOST : MEMBER_DEVICE;
    ranks_check(member_call(&member, A2A_HOT, job->max_bytes, 2) == MPATH_DECLINED);
    member.copies = 1;
    member_round(&member, A2A_HOT, job->max_bytes, 2);
    ranks_check(member.was_copied);
    member.memory = MEMBER_DEVICE;
    member_round(&member, A2A_EVEN, job->max_bytes, 3);
    ranks_check(!member.was_copied);
    mpath_coll_counters(member.coll, &counters);
    ranks_check((counters.relay.moved.calls == 2) && (counters.declined == 1) && (counters.calls == 3));
    member_end(&member);
    return 0;
}

static void test_host_among_gpus(void **state)
{
    relay_job_t job = {.setup     = {.size = 4, .nodes = 2, .nics = 2, .nic_bps = RELAY_RAIL_BPS},
                       .link      = MPATH_GPU_LINK_MESH,
                       .pcie_bps  = 50000000000ull,
                       .max_bytes = 100000,
                       .killed    = -1};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, host_body, &job), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mesh),
        cmocka_unit_test(test_rails_by_copies),
        cmocka_unit_test(test_one_pair),
        cmocka_unit_test(test_first_copies),
        cmocka_unit_test(test_no_slot),
        cmocka_unit_test(test_rails_by_ucx),
        cmocka_unit_test(test_three_nodes),
        cmocka_unit_test(test_few_slots_of_rails),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_nics_of_gpus),
        cmocka_unit_test(test_unopened),
        cmocka_unit_test(test_not_linked),
        cmocka_unit_test(test_discovered),
        cmocka_unit_test(test_few_slots),
        cmocka_unit_test(test_streams_without_values),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_trials),
        cmocka_unit_test(test_switch),
        cmocka_unit_test(test_shared_gpus),
        cmocka_unit_test(test_host_among_gpus),
    };

    cmocka_set_test_filter(getenv("MPATH_TEST_FILTER")); /* NULL: all */
    return cmocka_run_group_tests_name("relay", tests, NULL, NULL);
}
