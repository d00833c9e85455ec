/* SPDX-License-Identifier: BSD-3-Clause */
/* What goes wrong while device memory moves over relays, on the driver without a GPU: rails that fail, a relay that dies. */
#include "rail/fabric_private.h"
#include "team/team_private.h"
#include "gpu_held.h"
#include "relay_support.h"
#include "unit/capture.h"
#include "wire/wire.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* The rail beside this rank fails after a few chunks: sends give errors, what is sent never arrives, or the rank dies. */
static const mpath_lane_ops_t *sound_ops;
static mpath_status_t broken_send_status;
static int sends_left, send_kills;

static mpath_status_t broken_send(mpath_lane_t *lane, int peer, const mpath_chunk_t *chunk, const void *data,
                                  mpath_lane_op_t *op)
{
    if (sends_left > 0) {
        sends_left--;
        return sound_ops->send(lane, peer, chunk, data, op);
    }
    if (send_kills) {
        kill(getpid(), SIGKILL);
    }
    return broken_send_status;
}

static void break_rail(const member_t *member, int nic, mpath_status_t status, int sends)
{
    static mpath_lane_ops_t broken_ops;
    rail_t *rail = rail_lock(member->context->fabric, member->context->fabric->newest[nic]);

    ranks_check(rail->lane != NULL);
    sound_ops          = rail->lane->ops;
    broken_ops         = *sound_ops;
    broken_ops.send    = broken_send;
    broken_send_status = status;
    sends_left         = sends;
    rail->lane->ops    = &broken_ops;
    rail_unlock(rail);
}

/* Whether the plan of a call was made by pairs of nodes. */
static int round_is_by_pairs(member_t *member, const relay_job_t *job, uint64_t seed)
{
    mpath_record_t *record = mpath_record_open("relay_faults", member->team->rank);
    int is_by_pairs;

    ranks_check(record != NULL);
    mpath_team_set_record(member->team, record);
    member_round(member, A2A_HOT, job->max_bytes, seed);
    is_by_pairs = record->call.algorithm == MPATH_RECORD_PAIRS;
    mpath_team_set_record(member->team, NULL);
    mpath_record_close(record);
    return is_by_pairs;
}

/* Calls, at most, that find rails which are back: others may be silent on a busy machine. */
#define FINDS 3

/* Where such plans are wanted, calls come to them: the one that finds all rails again has a plan of the whole. */
static void rounds_to_pairs(member_t *member, const relay_job_t *job, uint64_t seed)
{
    int calls = 0;

    while (!round_is_by_pairs(member, job, seed) && job->tune != NULL) {
        ranks_check(calls++ < FINDS);
    }
}

/* A communicator that is made now begins without the rail, and uses it when it is back. */
static void run_late(ranks_self_t *self, const member_t *member, const relay_job_t *job)
{
    member_t late = {.context = member->context};
    mpath_coll_counters_t counters;
    mpath_oob_t oob;

    ranks_oob(self, 1, NULL, self->size, &oob);
    relay_member_join(&late, self, &oob, job);
    ranks_check((late.team->lost[0] | late.team->lost[1]) == 1u << 1);
    member_round(&late, A2A_HOT, job->max_bytes, 3);
    ranks_check((late.team->lost[0] | late.team->lost[1]) == 1u << 1);
    late.team->next_probe_ns = 0;
    late.team->recover_in    = 0;
    member_round(&late, A2A_HOT, job->max_bytes, 4);
    member_round(&late, A2A_HOT, job->max_bytes, 5);
    ranks_check((late.team->lost[0] | late.team->lost[1]) == 0);
    rounds_to_pairs(&late, job, 6);
    mpath_coll_counters(late.coll, &counters);
    ranks_check((counters.relay.repeats == 0) && (counters.declined == 0));
    member_leave(&late);
}

/* All ranks repeat the call over the other rails, and go on without this one. */
static int rail_fails_body(ranks_self_t *self, void *argument)
{
    const relay_job_t *job = argument;
    mpath_coll_counters_t counters;
    uint32_t lost;
    member_t member;

    relay_member_init(&member, self, job);
    member_round(&member, A2A_HOT, job->max_bytes, 1);
    if (self->rank == 1) {
        break_rail(&member, 1, job->broken, 3);
    }
    ranks_check(round_is_by_pairs(&member, job, 2) == (job->tune != NULL));
    mpath_coll_counters(member.coll, &counters);
    ranks_stay_lost(member.team);
    lost = member.team->lost[0] | member.team->lost[1];
    if (job->broken == MPATH_OK) { /* on a busy machine another rail may be silent for as long */
        ranks_check((counters.relay.repeats > 0) && ((lost & (1u << 1)) != 0));
        member_end(&member);
        return 0;
    }
    ranks_check((counters.relay.repeats == 1) && (lost == 1u << 1));
    for (int round = 0; round < job->rounds; round++) {
        member_round(&member, (a2a_kind_t)(round % 7), job->max_bytes / 10, (uint64_t)round);
    }
    mpath_coll_counters(member.coll, &counters);
    ranks_check((counters.relay.repeats == 1) && (counters.declined == 0));
    ranks_check(counters.relay.moved.calls == (uint64_t)job->rounds + 2);
    rounds_to_pairs(&member, job, 5);
    relay_lose_context(self, job, self->rank % 3 != 0, &member, 1); /* relays without that rail are set up anew */
    member_round(&member, A2A_HOT, job->max_bytes, 3);
    mpath_coll_counters(member.coll, &counters);
    ranks_check((counters.relay.repeats == 1) && (counters.declined == 0));
    run_late(self, &member, job);
    member_end(&member);
    return 0;
}

static void test_rail_fails(void **state)
{
    relay_job_t job = {.setup          = {.size = 8, .nodes = 2, .nics = 4, .nic_bps = 20000000},
                       .link           = MPATH_GPU_LINK_MESH,
                       .pcie_bps       = 50000000000ull,
                       .max_bytes      = 1500000,
                       .rounds         = 7,
                       .broken         = MPATH_ERR_UNREACHABLE,
                       .resend_after_s = 90,
                       .killed         = -1};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, rail_fails_body, &job), 0);
    job.spine      = 1;
    job.host_bytes = 1 << 20; /* slots for those only that send by some path, who are others without the rail */
    assert_int_equal(ranks_run(&job.setup, rail_fails_body, &job), 0);
    job.tune        = "alltoallv:@pairs";
    job.keeps_rates = 1; /* on a spine there is no such plan with a NIC less and others of other rates */
    assert_int_equal(ranks_run(&job.setup, rail_fails_body, &job), 0);
    job.spine = 0;
    assert_int_equal(ranks_run(&job.setup, rail_fails_body, &job), 0);
    job.tune           = NULL;
    job.keeps_rates    = 0;
    job.host_bytes     = 0;
    job.broken         = MPATH_OK; /* silence */
    job.resend_after_s = 4;
    job.emulated       = MPATH_EMULATED_RAILS;
    assert_int_equal(ranks_run(&job.setup, rail_fails_body, &job), 0);
}

/* Ranks that have had their error: before that they may still write to buffers of the others. */
static atomic_int *gave_up;

static void wait_for_others(int ranks)
{
    atomic_fetch_add(gave_up, 1);
    while (atomic_load(gave_up) < ranks) {
        usleep(1000);
    }
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
    const relay_job_t *job = argument;
    mpath_status_t status  = MPATH_OK;
    pthread_t thread;
    member_t member;

    relay_member_init(&member, self, job);
    member_round(&member, A2A_HOT, 1000, 1);
    if ((self->rank == job->killed) && (job->emulated == MPATH_EMULATED_NO)) {
        send_kills = 1;
        break_rail(&member, 0, MPATH_OK, 3);
    } else if (self->rank == job->killed) {
        ranks_check(pthread_create(&thread, NULL, die_soon, NULL) == 0);
    }
    while (status == MPATH_OK) {
        status = member_call(&member, A2A_HOT, job->max_bytes, 1); /* of emulated rates: more than half a second */
    }
    ranks_check(mpath_status_is_error(status));
    wait_for_others(self->size - 1);
    member_end(&member);
    return 0;
}

static void test_killed(void **state)
{
    relay_job_t job = {.setup     = {.size = 4, .nodes = 2, .nics = 2, .nic_bps = 4000000, .may_die = 1u << 2},
                       .link      = MPATH_GPU_LINK_MESH,
                       .emulated  = MPATH_EMULATED_COPIES,
                       .pcie_bps  = 50000000000ull,
                       .max_bytes = 2000000,
                       .killed    = 2};

    (void)state;
    gave_up = mmap(NULL, sizeof(*gave_up), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(gave_up, MAP_FAILED);
    assert_int_equal(ranks_run(&job.setup, killed_body, &job), 0);
    atomic_store(gave_up, 0);
    job.emulated = MPATH_EMULATED_RAILS;
    assert_int_equal(ranks_run(&job.setup, killed_body, &job), 0);
    /* ranks of other nodes share no memory with it: rails, and ranks that do, tell them */
    atomic_store(gave_up, 0);
    job.emulated   = MPATH_EMULATED_NO;
    job.setup.deaf = 1;
    assert_int_equal(ranks_run(&job.setup, killed_body, &job), 0);
    munmap(gave_up, sizeof(*gave_up));
}

/* Instead of the function of this name, by the linker: this rank does not answer over rails any more; -1: all do. */
static int dead_rank = -1;

mpath_status_t __real_mpath_wire_peer_status(mpath_wire_t *wire, int nic, int rank, int nic_to);
mpath_status_t __wrap_mpath_wire_peer_status(mpath_wire_t *wire, int nic, int rank, int nic_to);
mpath_status_t __wrap_mpath_wire_peer_status(mpath_wire_t *wire, int nic, int rank, int nic_to)
{
    return (rank == dead_rank) ? MPATH_ERR_UNREACHABLE : __real_mpath_wire_peer_status(wire, nic, rank, nic_to);
}

/* What a rank takes for sent is lost, in a call that is too short to be repeated: who misses it asks, and all learn it. */
static int dead_end_body(ranks_self_t *self, void *argument)
{
    const relay_job_t *job = argument;
    mpath_status_t status;
    member_t member;

    relay_member_init(&member, self, job);
    member_round(&member, A2A_HOT, job->max_bytes, 1);
    dead_rank = (self->node == 0) ? 5 : -1;
    if (self->rank == 5) {
        break_rail(&member, 1, MPATH_OK, 0);
    }
    status = member_call(&member, A2A_HOT, job->max_bytes, 2);
    ranks_check(status != MPATH_ERR_TIMED_OUT);
    ranks_check((self->rank > 1) || mpath_status_is_error(status)); /* who misses it, and who passes it on */
    wait_for_others(self->size);
    member_end(&member);
    return 0;
}

static void test_dead_end(void **state)
{
    relay_job_t job = {.setup     = {.size = 8, .nodes = 2, .nics = 4, .nic_bps = 50000000},
                       .link      = MPATH_GPU_LINK_MESH,
                       .emulated  = MPATH_EMULATED_RAILS,
                       .pcie_bps  = 50000000000ull,
                       .max_bytes = 100000,
                       .killed    = -1};

    (void)state;
    gave_up = mmap(NULL, sizeof(*gave_up), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(gave_up, MAP_FAILED);
    assert_int_equal(ranks_run(&job.setup, dead_end_body, &job), 0);
    munmap(gave_up, sizeof(*gave_up));
}

/* A rail fails, and a rank has copies under way that could write to slots of another attempt: there is none. */
static int held_body(ranks_self_t *self, void *argument)
{
    const relay_job_t *job = argument;
    mpath_coll_counters_t counters;
    member_t member;

    relay_member_init(&member, self, job);
    member_round(&member, A2A_HOT, job->max_bytes, 1);
    member.context->settings.timeout_s = 3;
    ranks_barrier(self);
    gpu_is_held = self->rank == 2;
    if (self->rank == 1) {
        break_rail(&member, 1, job->broken, 3);
    }
    ranks_check(mpath_status_is_error(member_call(&member, A2A_HOT, job->max_bytes, 2)));
    gpu_is_held = 0;
    mpath_coll_counters(member.coll, &counters);
    ranks_check(counters.relay.repeats == 0);
    wait_for_others(self->size);
    member_end(&member);
    return 0;
}

static void test_held(void **state)
{
    relay_job_t job = {.setup          = {.size = 8, .nodes = 2, .nics = 4, .nic_bps = 20000000},
                       .link           = MPATH_GPU_LINK_MESH,
                       .pcie_bps       = 50000000000ull,
                       .max_bytes      = 1500000,
                       .broken         = MPATH_ERR_UNREACHABLE,
                       .resend_after_s = 60,
                       .killed         = -1};

    (void)state;
    gave_up = mmap(NULL, sizeof(*gave_up), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(gave_up, MAP_FAILED);
    assert_int_equal(ranks_run(&job.setup, held_body, &job), 0);
    munmap(gave_up, sizeof(*gave_up));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rail_fails),
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_dead_end),
        cmocka_unit_test(test_held),
    };

    cmocka_set_test_filter(getenv("MPATH_TEST_FILTER")); /* NULL: all */
    return cmocka_run_group_tests_name("relay_faults", tests, NULL, NULL);
}
