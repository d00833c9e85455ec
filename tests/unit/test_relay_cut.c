/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rails that fail under relays when all data has crossed them: what is lost is the word of the other end that its room
 * is free again, without which no call ends. A rank that is late when the others give up. And what has no rail to blame.
 */
#include "team/team_private.h"
#include "wire/wire_private.h"
#include "relay_support.h"
#include "unit/capture.h"
#include "unit/unread.h"
#include "util/fiber.h"
#include "util/time.h"
#include "wire/wire.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define REDUCED_MOST 64 /* topologies that a communicator keeps */
#define RANKS 4
#define NICS 2
#define MUTE 2 /* on NIC 0 of node 1 */
#define CREDIT_HOP 0x80000000u
#define EVEN_BYTES 50000ull
#define LATE_NS (2500 * MPATH_NS_PER_MS)

static int is_mute;   /* this rank's words do not leave it */
static int mute_dead; /* the one that has them does not answer any more */
static uint32_t cut;  /* NICs over which nothing leaves this rank, which it notices */

/* Instead of the functions of these names, by the linker. */
mpath_status_t __real_mpath_wire_send(mpath_wire_t *wire, int nic, int rank, int nic_to, const mpath_chunk_t *chunk,
                                      const void *data, void *item);
mpath_status_t __wrap_mpath_wire_send(mpath_wire_t *wire, int nic, int rank, int nic_to, const mpath_chunk_t *chunk,
                                      const void *data, void *item);
mpath_status_t __wrap_mpath_wire_send(mpath_wire_t *wire, int nic, int rank, int nic_to, const mpath_chunk_t *chunk,
                                      const void *data, void *item)
{
    if ((cut >> nic) & 1) {
        mpath_wire_lose(wire, nic);
        return MPATH_ERR_UNREACHABLE;
    }
    unread_rest();
    if (is_mute && (chunk->hop & CREDIT_HOP)) {
        wire->ops->sent(wire->argument, chunk, item);
        return MPATH_OK;
    }
    return __real_mpath_wire_send(wire, nic, rank, nic_to, chunk, data, item);
}

mpath_status_t __real_mpath_wire_peer_status(mpath_wire_t *wire, int nic, int rank, int nic_to);
mpath_status_t __wrap_mpath_wire_peer_status(mpath_wire_t *wire, int nic, int rank, int nic_to);
mpath_status_t __wrap_mpath_wire_peer_status(mpath_wire_t *wire, int nic, int rank, int nic_to)
{
    return (mute_dead && (rank == MUTE)) ? MPATH_ERR_UNREACHABLE
                                         : __real_mpath_wire_peer_status(wire, nic, rank, nic_to);
}

static int no_way; /* some rank cannot open what it needs in what is left of the topology */

mpath_status_t __real_mpath_topo_create_with_gpus(const mpath_machine_t *machines, const mpath_node_gpus_t *gpus,
                                                  int num_nodes, const mpath_place_t *places, int num_ranks,
                                                  const mpath_topo_params_t *params, mpath_topo_t **topo_p);
mpath_status_t __wrap_mpath_topo_create_with_gpus(const mpath_machine_t *machines, const mpath_node_gpus_t *gpus,
                                                  int num_nodes, const mpath_place_t *places, int num_ranks,
                                                  const mpath_topo_params_t *params, mpath_topo_t **topo_p);
mpath_status_t __wrap_mpath_topo_create_with_gpus(const mpath_machine_t *machines, const mpath_node_gpus_t *gpus,
                                                  int num_nodes, const mpath_place_t *places, int num_ranks,
                                                  const mpath_topo_params_t *params, mpath_topo_t **topo_p)
{
    return no_way ? MPATH_ERR_UNREACHABLE
                  : __real_mpath_topo_create_with_gpus(machines, gpus, num_nodes, places, num_ranks, params, topo_p);
}

static const mpath_stream_t *held; /* copies on it do not end */

mpath_status_t __real_mpath_stream_done(mpath_stream_t *stream, mpath_mark_t mark);
mpath_status_t __wrap_mpath_stream_done(mpath_stream_t *stream, mpath_mark_t mark);
mpath_status_t __wrap_mpath_stream_done(mpath_stream_t *stream, mpath_mark_t mark)
{
    return (stream == held) ? MPATH_INPROGRESS : __real_mpath_stream_done(stream, mark);
}

static relay_job_t job_of(int resend_after_s)
{
    return (relay_job_t){.setup          = {.size = RANKS, .nodes = 2, .nics = NICS, .nic_bps = 20000000},
                         .link           = MPATH_GPU_LINK_MESH,
                         .pcie_bps       = 50000000000ull,
                         .max_bytes      = 300000, /* a few chunks: those for which there is room at once */
                         .resend_after_s = resend_after_s,
                         .killed         = -1};
}

static void begin(member_t *member, ranks_self_t *self, const relay_job_t *job, uint64_t settled_from_ns)
{
    relay_member_init(member, self, job);
    member_round(member, A2A_ONE_PAIR, job->max_bytes, 1);
    member->team->settled_from_ns = settled_from_ns;
    ranks_barrier(self);
    is_mute = self->rank == MUTE;
}

/* Shared by the ranks: how many of them have said who waits for whom. */
static atomic_int *who_said;

/* The call is repeated over the other rails; the end that has waited for long enough first says so. */
static int repeated_body(ranks_self_t *self, void *argument)
{
    mpath_coll_counters_t counters;
    member_t member;

    begin(&member, self, argument, 0);
    capture_start();
    member_round(&member, A2A_ONE_PAIR, 300000, 2);
    atomic_fetch_add(who_said, strstr(capture_text(), "to rank 2 (virtual1) by rail lo for 4 s") != NULL);
    ranks_barrier(self);
    ranks_check(atomic_load(who_said) > 0);
    mpath_coll_counters(member.coll, &counters);
    ranks_check((counters.relay.repeats == 1) && (counters.declined == 0));
    ranks_check((member.team->lost[0] | member.team->lost[1]) == 1u << 0);
    member_end(&member);
    return 0;
}

static void test_repeated(void **state)
{
    relay_job_t job = job_of(4);

    (void)state;
    who_said = mmap(NULL, sizeof(*who_said), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(who_said != MAP_FAILED);
    assert_int_equal(ranks_run(&job.setup, repeated_body, &job), 0);
    munmap(who_said, sizeof(*who_said));
}

/*
 * A rank is late when another one loses its rail: what its mate sends to it is not given up before it has come, and the
 * connection stays.
 */
static int late_body(ranks_self_t *self, void *argument)
{
    mpath_coll_counters_t counters;
    member_t member;

    begin(&member, self, argument, 0);
    is_mute   = 0;
    cut       = (self->rank == 1) ? 1u << 1 : 0;
    late_ns   = (self->rank == MUTE) ? mpath_time_ns() + LATE_NS : 0;
    unread_ns = (self->rank == 0) ? mpath_time_ns() + LATE_NS : 0;
    member_round(&member, A2A_ONE_PAIR, 300000, 2);
    mpath_coll_counters(member.coll, &counters);
    ranks_check((counters.relay.repeats == 1) && (counters.declined == 0));
    ranks_check((member.team->lost[0] | member.team->lost[1]) == 1u << 1);
    ranks_check(aborts == 0);
    member_end(&member);
    return 0;
}

static void test_late(void **state)
{
    relay_job_t job = job_of(60);

    (void)state;
    assert_int_equal(ranks_run(&job.setup, late_body, &job), 0);
}

/* It cannot be: who waits for the word asks whether the other end still answers, and need not wait for the deadline. */
static int dead_body(ranks_self_t *self, void *argument)
{
    mpath_status_t status;
    member_t member;

    begin(&member, self, argument, UINT64_MAX);
    mute_dead = self->node == 0;
    capture_start();
    status = member_call(&member, A2A_ONE_PAIR, 300000, 2);
    ranks_check(status != MPATH_ERR_TIMED_OUT);
    ranks_check((self->rank != 0) || (status == MPATH_ERR_UNREACHABLE));
    ranks_check((self->rank != 0) ||
                (strstr(capture_text(), "rank 2 (virtual1) can no longer be reached by rail lo") != NULL));
    ranks_barrier(self);
    member_end(&member);
    return 0;
}

static void test_dead(void **state)
{
    relay_job_t job = job_of(0);

    (void)state;
    assert_int_equal(ranks_run(&job.setup, dead_body, &job), 0);
}

static uint32_t lost_of(const member_t *member)
{
    return member->team->lost[0] | member->team->lost[1];
}

static void rails_return(member_t *member, uint64_t round)
{
    cut                         = 0;
    member->team->next_probe_ns = 0;
    member->team->recover_in    = 0;
    member_round(member, A2A_EVEN, EVEN_BYTES, round);
    ranks_check(lost_of(member) == 0);
}

/* As all ranks do it when these have failed, and others are back. */
static void leave_out(mpath_team_t *team, uint32_t nics)
{
    for (int node = 0; node < team->num_nodes; node++) {
        team->lost[node] = nics;
    }
    team->next_probe_ns = UINT64_MAX;
    team->topo_version++;
}

/* Rails fail and come back: relays do so with them, after all had failed, or too many, and however often one does. */
static int back_body(ranks_self_t *self, void *argument)
{
    mpath_coll_counters_t counters;
    uint64_t round = 2;
    member_t member;

    begin(&member, self, argument, 0);
    is_mute = 0;
    cut     = (1u << NICS) - 1;
    ranks_check(member_call(&member, A2A_EVEN, EVEN_BYTES, round++) == MPATH_DECLINED);
    ranks_check(member_call(&member, A2A_EVEN, EVEN_BYTES, round++) == MPATH_DECLINED);
    ranks_check(lost_of(&member) == (1u << NICS) - 1);
    rails_return(&member, round++);
    no_way = self->rank == 1;
    leave_out(member.team, 1);
    ranks_check(member_call(&member, A2A_EVEN, EVEN_BYTES, round++) == MPATH_DECLINED);
    ranks_check(member_call(&member, A2A_EVEN, EVEN_BYTES, round++) == MPATH_DECLINED);
    no_way = 0;
    leave_out(member.team, 0);
    for (int i = 0; i < REDUCED_MOST; i++) {
        member_round(&member, A2A_EVEN, EVEN_BYTES, round++);
        leave_out(member.team, (i % 2 == 0) ? 1 : 0);
    }
    mpath_coll_counters(member.coll, &counters);
    ranks_check((counters.declined == 4) && (counters.relay.moved.calls == 2 + REDUCED_MOST));
    member_end(&member);
    return 0;
}

static void test_back(void **state)
{
    relay_job_t job = job_of(60);

    (void)state;
    assert_int_equal(ranks_run(&job.setup, back_body, &job), 0);
    job.affine = 1;
    job.beside = RELAY_BESIDE_ALL; /* rails that only device memory needs */
    assert_int_equal(ranks_run(&job.setup, back_body, &job), 0);
}

/*
 * Relays are made anew, since a GPU's context has ended, while what is left of the rails has no way: they serve when the
 * rails are back.
 */
static int anew_body(ranks_self_t *self, void *argument)
{
    mpath_coll_counters_t before, after;
    member_t member;

    begin(&member, self, argument, 0);
    is_mute = 0;
    member_round(&member, A2A_EVEN, EVEN_BYTES, 2);
    no_way = self->rank == 1;
    leave_out(member.team, 1);
    if (self->rank == 0) {
        member.context->settings.gpu_relay_bytes = 0; /* another topology than before: this one passes nothing on */
    }
    relay_lose_context(self, argument, self->rank == 0, &member, 1);
    ranks_check(member_call(&member, A2A_EVEN, EVEN_BYTES, 3) == MPATH_DECLINED);
    ranks_check(member_call(&member, A2A_EVEN, EVEN_BYTES, 4) == MPATH_DECLINED);
    no_way = 0;
    leave_out(member.team, 0);
    mpath_coll_counters(member.coll, &before);
    member_round(&member, A2A_EVEN, EVEN_BYTES, 5);
    mpath_coll_counters(member.coll, &after);
    ranks_check(after.relay.moved.calls == before.relay.moved.calls + 1);
    member_end(&member);
    return 0;
}

static void test_anew(void **state)
{
    relay_job_t job = job_of(60);

    (void)state;
    assert_int_equal(ranks_run(&job.setup, anew_body, &job), 0);
}

/*
 * No rail is to blame for a copy inside a node that does not end. All look at the non-blocking call, which could be
 * repeated, so it has a deadline all the same.
 */
typedef struct operation {
    member_t member;
    mpath_status_t status;
} operation_t;

static void operation_body(void *argument)
{
    operation_t *operation = argument;

    operation->status = member_call(&operation->member, A2A_GIVEN, 0, 2);
}

static int stuck_body(ranks_self_t *self, void *argument)
{
    operation_t operation = {.status = MPATH_OK};
    member_t *member      = &operation.member;
    mpath_stream_t *stream;
    mpath_fiber_t *fiber;
    mpath_gpu_t *gpu;

    begin(member, self, argument, 0);
    is_mute                             = 0;
    member->context->settings.timeout_s = 4;
    memset(member->demand, 0, RANKS * RANKS * sizeof(*member->demand));
    member->demand[1]        = 300000; /* from rank 0 to its mate */
    member->demand[NICS + 0] = 30000;  /* and, by one rail, to the other node */
    if (self->rank == 0) {
        ranks_check(mpath_gpu_current(&gpu) == MPATH_OK);
        ranks_check(mpath_stream_get(gpu, MPATH_GPU_STREAMS_DIRECT + 1, &stream) == MPATH_OK);
        held = stream;
    }
    ranks_check(mpath_fiber_create(1 << 20, &fiber) == MPATH_OK);
    mpath_fiber_start(fiber, operation_body, &operation);
    while (mpath_fiber_resume(fiber) != MPATH_FIBER_ENDED) {
        usleep(100);
    }
    held = NULL;
    ranks_check(mpath_status_is_error(operation.status));
    ranks_check((self->rank != 0) || (operation.status == MPATH_ERR_TIMED_OUT));
    ranks_barrier(self);
    mpath_fiber_destroy(fiber);
    member_end(member);
    return 0;
}

static void test_stuck(void **state)
{
    relay_job_t job = job_of(2);

    (void)state;
    assert_int_equal(ranks_run(&job.setup, stuck_body, &job), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_repeated), cmocka_unit_test(test_late),
                                       cmocka_unit_test(test_dead),     cmocka_unit_test(test_back),
                                       cmocka_unit_test(test_anew),     cmocka_unit_test(test_stuck)};

    cmocka_set_test_filter(getenv("MPATH_TEST_FILTER")); /* NULL: all */
    return cmocka_run_group_tests_name("relay_cut", tests, NULL, NULL);
}
