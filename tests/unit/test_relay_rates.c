/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls on device memory of two nodes plan with the rates of rails that others have learned, and with those that they
 * show themselves; a slow rail holds up no other one.
 */
#include "tune/history.h"
#include "coll/alltoallv_private.h"
#include "wire/wire.h"
#include "mover/pace.h"
#include "relay_support.h"
#include "step_clock.h"
#include "util/fiber.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const mpath_topo_t *topo;
static uint64_t on_rail[2]; /* of the last plan: what leaves the nodes by it */
static uint64_t own[2];     /* and this rank's node */
static int node;

/* Of a plan by pairs of nodes: once its call has ended. */
static void look_at(const mpath_plan_t *plan)
{
    const uint64_t *loads = mpath_plan_loads(plan);

    memset(on_rail, 0, sizeof(on_rail));
    for (int i = 0; (i < 4) && (loads != NULL); i++) {
        uint64_t load = loads[mpath_topo_resource_find(topo, MPATH_RESOURCE_NIC_TX, i / 2, i % 2)];

        on_rail[i % 2] += load;
        own[i % 2] = (i / 2 == node) ? load : own[i % 2];
    }
}

mpath_status_t __real_mpath_relay_move(mpath_relay_t *relay, const mpath_plan_t *plan);
mpath_status_t __wrap_mpath_relay_move(mpath_relay_t *relay, const mpath_plan_t *plan);
mpath_status_t __wrap_mpath_relay_move(mpath_relay_t *relay, const mpath_plan_t *plan)
{
    look_at(plan);
    return __real_mpath_relay_move(relay, plan);
}

static int body(ranks_self_t *self, void *argument)
{
    const int numbers[2]      = {0, 1};
    const uint64_t nominal[2] = {RELAY_RAIL_BPS, RELAY_RAIL_BPS}, slow[2] = {RELAY_RAIL_BPS, RELAY_RAIL_BPS / 4};
    const relay_job_t *job = argument;
    mpath_coll_counters_t counters;
    member_t member;

    relay_member_init(&member, self, job);
    topo = mpath_team_gpu_topo(member.team);
    member_round(&member, A2A_EVEN, job->max_bytes, 1);
    ranks_check((on_rail[1] > 0) && (on_rail[1] == on_rail[0]));
    ranks_check(mpath_coll_rates_learned(member.coll, 2, numbers, nominal, slow) == MPATH_OK);
    member_round(&member, A2A_EVEN, job->max_bytes, 1);
    ranks_check((on_rail[1] * 3 < on_rail[0]) && (on_rail[1] * 5 > on_rail[0]));
    member_round(&member, A2A_EVEN, job->max_bytes, 1);
    mpath_coll_counters(member.coll, &counters);
    ranks_check((counters.relay.plans == 2) && (counters.relay.plan_hits == 1)); /* once for the new rates */
    ranks_check(mpath_coll_rates_learned(member.coll, 2, numbers, nominal, nominal) == MPATH_OK);
    member_round(&member, A2A_EVEN, job->max_bytes, 1);
    ranks_check(on_rail[1] * 10 > on_rail[0] * 9);
    member_end(&member);
    return 0;
}

static void test_rates(void **state)
{
    relay_job_t job = {.setup     = {.size = 4, .nodes = 2, .nics = 2, .nic_bps = RELAY_RAIL_BPS},
                       .link      = MPATH_GPU_LINK_MESH,
                       .pcie_bps  = 4000000000ull,
                       .max_bytes = 1000000,
                       .killed    = -1};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, body, &job), 0);
}

/* -- what they show themselves: the clock of a rail goes slower than it is declared to -- */

#define SLOWER 5u
#define LEARN_BPS 10000000ull
#define LEARN_CALLS (3 * MPATH_RATES_WINDOW_CALLS)

static uint64_t times_slower = 1; /* the second rail */

mpath_status_t __real_mpath_pace_take(mpath_pace_t *pace, const mpath_path_t *path, int hop, uint64_t bytes,
                                      uint64_t now_ns, uint64_t ahead_ns, uint64_t *when_ns_p);
mpath_status_t __wrap_mpath_pace_take(mpath_pace_t *pace, const mpath_path_t *path, int hop, uint64_t bytes,
                                      uint64_t now_ns, uint64_t ahead_ns, uint64_t *when_ns_p);
mpath_status_t __wrap_mpath_pace_take(mpath_pace_t *pace, const mpath_path_t *path, int hop, uint64_t bytes,
                                      uint64_t now_ns, uint64_t ahead_ns, uint64_t *when_ns_p)
{
    int slow = (path->hops[hop].lane == MPATH_LANE_RAIL) && (path->hops[hop].nic_from == 1);

    return __real_mpath_pace_take(pace, path, hop, slow ? times_slower * bytes : bytes, now_ns, ahead_ns, when_ns_p);
}

static void round_and_look(member_t *member, const relay_job_t *job)
{
    const mpath_topo_t *rated;

    member_round(member, A2A_EVEN, job->max_bytes, 1);
    look_at(mpath_relay_coll_moved(member->coll->relay, &rated));
}

/* Calls, some at most, until the second rail has less than a part of what the first one has, or else more. */
static void call_until(member_t *member, const relay_job_t *job, int less, uint64_t part)
{
    int calls = 0;

    do {
        ranks_check(++calls <= LEARN_CALLS);
        round_and_look(member, job);
    } while ((on_rail[1] * part < on_rail[0]) != less);
}

static int file_has_less(const char *path)
{
    unsigned long long first, second;
    char line[256];
    FILE *in  = fopen(path, "r");
    int found = 0;

    while ((in != NULL) && (fgets(line, sizeof(line), in) != NULL)) {
        found |= (sscanf(line, "%*x alltoallv 0 node-rates %*d %llu %llu", &first, &second) == 2) &&
                 (2 * second < first);
    }
    if (in != NULL) {
        fclose(in);
    }
    return found;
}

/* Its share falls, here and in another communicator, and rises again. */
static int learn_body(ranks_self_t *self, void *argument)
{
    const relay_job_t *job = argument;
    uint64_t known_bps     = LEARN_BPS;
    member_t member, other;
    mpath_oob_t oob;

    step_clock_start(self->rank);
    relay_member_init(&member, self, job);
    topo = mpath_team_gpu_topo(member.team);
    round_and_look(&member, job);
    ranks_check((on_rail[1] > 0) && (on_rail[1] == on_rail[0]));
    times_slower = SLOWER;
    call_until(&member, job, 1, 2);
    for (int host = 0; host < 2; host++) { /* either end of the rail may be blamed */
        const mpath_history_key_t nic = mpath_history_nic(mpath_topo_host(mpath_team_topo(member.team), host), 1);

        known_bps = (mpath_history_of(&nic).value < known_bps) ? mpath_history_of(&nic).value : known_bps;
    }
    ranks_check((known_bps > 0) && (2 * known_bps < LEARN_BPS));
    ranks_check((self->rank != 0) || file_has_less(job->adapt_file));
    other = (member_t){.context = member.context};
    ranks_oob(self, 1, NULL, self->size, &oob);
    relay_member_join(&other, self, &oob, job);
    round_and_look(&other, job);
    ranks_check(2 * on_rail[1] < on_rail[0]);
    member_leave(&other);
    times_slower = 1;
    call_until(&member, job, 0, 2);
    step_clock_end();
    member_end(&member);
    return 0;
}

static char path[64];

static const relay_job_t learn_job = {.setup      = {.size = 4, .nodes = 2, .nics = 2, .nic_bps = LEARN_BPS},
                                      .link       = MPATH_GPU_LINK_MESH,
                                      .emulated   = MPATH_EMULATED_RAILS,
                                      .pcie_bps   = 4000000000ull,
                                      .max_bytes  = 300000,
                                      .adapt_file = path,
                                      .killed     = -1};

static void test_learn(void **state)
{
    relay_job_t job = learn_job;

    (void)state;
    step_clock_make(job.setup.size);
    assert_int_equal(ranks_run(&job.setup, learn_body, &job), 0);
}

static void test_learn_by_pairs(void **state)
{
    relay_job_t job = learn_job;

    (void)state;
    job.tune = "alltoallv:@pairs";
    step_clock_make(job.setup.size);
    assert_int_equal(ranks_run(&job.setup, learn_body, &job), 0);
}

/* What a job has learned says nothing to the next one. */
static int forget(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

/* -- calls that show nothing -- */

static void round_fiber(void *argument)
{
    member_round(argument, A2A_EVEN, learn_job.max_bytes, 1);
}

/* Short ones, those that others progress, and those whose rails are copies. */
static int nothing_body(ranks_self_t *self, void *argument)
{
    const relay_job_t *job = argument;
    int copies             = job->emulated == MPATH_EMULATED_COPIES;
    mpath_fiber_t *fiber;
    member_t member;

    relay_member_init(&member, self, job);
    topo = mpath_team_gpu_topo(member.team);
    member_round(&member, A2A_EVEN, LEARN_BPS / 5000, 1); /* two pairs of each rank are 0.4 ms on its rail */
    ranks_check(member.coll->rates.nics.window.calls == 0);
    ranks_check(mpath_fiber_create(1 << 20, &fiber) == MPATH_OK);
    mpath_fiber_start(fiber, round_fiber, &member);
    while (mpath_fiber_resume(fiber) != MPATH_FIBER_ENDED) {
    }
    mpath_fiber_destroy(fiber);
    ranks_check(member.coll->rates.nics.window.calls == 0);
    member_round(&member, A2A_EVEN, job->max_bytes, 1);
    ranks_check(member.coll->rates.nics.window.calls == (copies ? 0 : 1));
    for (int rail = 0; rail < 2; rail++) {
        ranks_check(member.coll->rates.nics.samples[2 * self->node + rail].count ==
                    ((!copies && (rail == self->rank % 2)) ? 1 : 0));
    }
    member_end(&member);
    return 0;
}

static void test_nothing(void **state)
{
    relay_job_t job = learn_job;

    (void)state;
    assert_int_equal(ranks_run(&job.setup, nothing_body, &job), 0);
    job.emulated = MPATH_EMULATED_COPIES;
    assert_int_equal(ranks_run(&job.setup, nothing_body, &job), 0);
}

/* -- a rail that takes nothing holds up no other one of the rank -- */

#define HELD_BYTES 6000000 /* by each rail many more chunks than there are slots */

static int holds;           /* the second rail takes chunks when the first one has had all of its own */
static uint64_t first_sent; /* by this rank, of the call */

mpath_status_t __real_mpath_wire_send(mpath_wire_t *wire, int nic, int rank, int nic_to, const mpath_chunk_t *chunk,
                                      const void *data, void *item);
mpath_status_t __wrap_mpath_wire_send(mpath_wire_t *wire, int nic, int rank, int nic_to, const mpath_chunk_t *chunk,
                                      const void *data, void *item);
mpath_status_t __wrap_mpath_wire_send(mpath_wire_t *wire, int nic, int rank, int nic_to, const mpath_chunk_t *chunk,
                                      const void *data, void *item)
{
    int is_data = chunk->bytes > sizeof(uint64_t); /* else a credit */
    mpath_status_t status;

    if (holds && is_data && (nic == 1) && (first_sent < own[0])) {
        return MPATH_NO_RESOURCE;
    }
    status = __real_mpath_wire_send(wire, nic, rank, nic_to, chunk, data, item);
    first_sent += ((status == MPATH_OK) && is_data && (nic == 0)) ? chunk->bytes : 0;
    return status;
}

static int held_body(ranks_self_t *self, void *argument)
{
    const relay_job_t *job = argument;
    mpath_coll_counters_t counters;
    member_t member;

    relay_member_init(&member, self, job);
    topo  = mpath_team_gpu_topo(member.team);
    node  = self->node;
    holds = 1;
    for (int call = 0; call < 2; call++) {
        first_sent = 0;
        member_round(&member, A2A_EVEN, job->max_bytes, 1);
        ranks_check((own[0] > 0) && (own[1] > 0) && (first_sent == own[0]));
    }
    mpath_coll_counters(member.coll, &counters);
    ranks_check(counters.relay.repeats == 0);
    member_end(&member);
    return 0;
}

static void test_held(void **state)
{
    relay_job_t job = {.setup          = {.size = 2, .nodes = 2, .nics = 2, .nic_bps = RELAY_RAIL_BPS},
                       .link           = MPATH_GPU_LINK_MESH,
                       .beside         = RELAY_BESIDE_ALL,
                       .pcie_bps       = 4000000000ull,
                       .max_bytes      = HELD_BYTES,
                       .resend_after_s = 90,
                       .killed         = -1};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, held_body, &job), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rates), cmocka_unit_test_teardown(test_learn, forget),
                                       cmocka_unit_test_teardown(test_learn_by_pairs, forget),
                                       cmocka_unit_test_teardown(test_nothing, forget), cmocka_unit_test(test_held)};

    snprintf(path, sizeof(path), "/tmp/mpath-test-relay-rates.%ld", (long)getpid());
    cmocka_set_test_filter(getenv("MPATH_TEST_FILTER")); /* NULL: all */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
