/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Time model and simulator: exact where the answer can be written down, and against each other over many topologies,
 * demands and policies.
 */
#include "mover/schedule.h"
#include "plan/demand.h"
#include "plan/time_model.h"
#include "tools/plan/simulate.h"
#include "unit/capture.h"
#include "unit/plan_cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MB 1000000u
#define MIB (1u << 20)

/* A pair of 2-rank nodes whose ranks sit beside rails of their own: relays over host memory. */
static void two_nodes(plan_case_t *c, uint64_t rail_bps, uint64_t memory_bps, mpath_access_mode_t access)
{
    plan_case_machines(c, 2, 2, rail_bps, memory_bps);
    plan_case_build(c, 2, access, 0);
}

static mpath_plan_t *plan_for(const mpath_topo_t *topo, const uint64_t *demand, mpath_policy_t policy)
{
    mpath_plan_params_t params;
    mpath_plan_t *plan;

    mpath_plan_params_init(&params);
    params.policy = policy;
    assert_int_equal(mpath_plan_create(topo, demand, &params, &plan), MPATH_OK);
    return plan;
}

static double simulate(const mpath_topo_t *topo, const mpath_plan_t *plan, const mpath_time_params_t *time,
                       simulate_share_t share, double resolution)
{
    simulate_params_t params = {.time = *time, .share = share, .depth = 4, .resolution = resolution};
    simulate_result_t result;

    assert_int_equal(simulate_plan(topo, plan, &params, &result), MPATH_OK);
    return result.seconds;
}

static uint64_t predict(const mpath_topo_t *topo, const mpath_plan_t *plan, const mpath_time_params_t *time)
{
    uint64_t ns;

    assert_int_equal(mpath_time_predict(topo, plan, time, &ns), MPATH_OK);
    return ns;
}

/* Both must give `seconds`; prediction rounds up to whole nanoseconds at each step. */
static void expect(const plan_case_t *c, const mpath_plan_t *plan, const mpath_time_params_t *time, double seconds)
{
    double simulated = simulate(c->topo, plan, time, SIMULATE_SHARE_BYTES, 0);
    double predicted = (double)predict(c->topo, plan, time) / 1e9;

    if (fabs(simulated - seconds) > 1e-6 * seconds || fabs(predicted - seconds) > 1e-6 * seconds) {
        fail_msg("expected %.9f s, simulated %.9f, predicted %.9f", seconds, simulated, predicted);
    }
}

/* One hop: latencies of both NICs and the hop, then bytes over the rate. Several flows of one NIC: their sum. */
static void test_one_hop(void **state)
{
    mpath_time_params_t time = {.chunk_bytes = 64 * 1024, .hop_ns = 700};
    mpath_plan_t *plan;
    plan_case_t c;

    (void)state;
    two_nodes(&c, 100 * MB, 1000 * MB, MPATH_REACH_ALL);
    c.demand[0 * 4 + 2] = 100 * MB;
    plan                = plan_for(c.topo, c.demand, MPATH_POLICY_DIRECT);
    expect(&c, plan, &time, 1 + 2700e-9);
    mpath_plan_destroy(plan);
    c.demand[0 * 4 + 3] = 50 * MB;
    plan                = plan_for(c.topo, c.demand, MPATH_POLICY_DIRECT);
    expect(&c, plan, &time, 1.5 + 2700e-9);
    mpath_plan_destroy(plan);
    c.demand[0 * 4 + 3] = 39900ull * MB; /* nanoseconds of so many bytes take more than 64 bits on the way */
    plan                = plan_for(c.topo, c.demand, MPATH_POLICY_DIRECT);
    expect(&c, plan, &time, 400 + 2700e-9);
    mpath_plan_destroy(plan);
    plan_case_release(&c);
}

/* Rank 0 to rank 3 by way of rank 2, which is beside rank 0's rail: the last chunk crosses host memory alone. */
static void test_two_hops(void **state)
{
    mpath_time_params_t time = {.chunk_bytes = 100000, .hop_ns = 0};
    double chunk             = 100032; /* whole cache lines */
    mpath_plan_t *plan;
    plan_case_t c;

    (void)state;
    two_nodes(&c, 100 * MB, 1000 * MB, MPATH_REACH_AFFINE);
    time.chunk_bytes    = 100032;
    c.demand[0 * 4 + 3] = 100 * MB;
    plan                = plan_for(c.topo, c.demand, MPATH_POLICY_DIRECT);
    expect(&c, plan, &time, 1 + 2000e-9 + chunk / 1e9 + 500e-9);
    mpath_plan_destroy(plan);
    plan_case_release(&c);
    /* the second hop is the slow one: the first chunk is what delays it */
    two_nodes(&c, 100 * MB, 10 * MB, MPATH_REACH_AFFINE);
    time.chunk_bytes    = 10048;
    c.demand[0 * 4 + 3] = 100 * MB;
    plan                = plan_for(c.topo, c.demand, MPATH_POLICY_DIRECT);
    expect(&c, plan, &time, 10 + 2000e-9 + 10048 / 1e8 + 500e-9);
    mpath_plan_destroy(plan);
    plan_case_release(&c);
}

/* A pair over its own rail and, by two relays, over the other one: both halves are at their rail's rate. */
static void test_three_hops(void **state)
{
    mpath_time_params_t time = {.chunk_bytes = 64 * 1024, .hop_ns = 0};
    double rail = 100e6, memory = 1e12, chunk = 64 * 1024;
    mpath_plan_t *plan;
    plan_case_t c;

    (void)state;
    two_nodes(&c, (uint64_t)rail, (uint64_t)memory, MPATH_REACH_AFFINE);
    c.demand[0 * 4 + 2] = 64 * MIB;
    plan                = plan_for(c.topo, c.demand, MPATH_POLICY_MPATH);
    assert_true(mpath_plan_relayed_bytes(plan) == 64 * MIB);
    expect(&c, plan, &time, 32 * MIB / rail + 2 * chunk / memory + 500e-9 + 2000e-9 + 500e-9);
    mpath_plan_destroy(plan);
    plan_case_release(&c);
}

/* Equal shares are those of progressive filling: 3 flows on one NIC, one of them also held back at its other end. */
static void test_fair_shares(void **state)
{
    mpath_time_params_t time = {.chunk_bytes = 64 * 1024, .hop_ns = 0};
    mpath_plan_t *plan;
    plan_case_t c;
    double seconds;

    (void)state;
    plan_case_machines(&c, 4, 1, 120 * MB, 8000u * MB);
    c.machines[3].nics[0].rate_bps = 30 * MB;
    plan_case_build(&c, 1, MPATH_REACH_ALL, 0);
    c.demand[0 * 4 + 1] = 45 * MB; /* (120 - 30) / 2 = 45 MB/s: 1 s, then the NIC is free */
    c.demand[0 * 4 + 2] = 90 * MB; /* 1 s at 45 and 0.5 s at 90 */
    c.demand[0 * 4 + 3] = 60 * MB; /* 2 s at 30 */
    plan                = plan_for(c.topo, c.demand, MPATH_POLICY_DIRECT);
    seconds             = simulate(c.topo, plan, &time, SIMULATE_SHARE_EQUAL, 0);
    assert_true(fabs(seconds - 2 - 2e-6) < 1e-6);
    mpath_plan_destroy(plan);
    c.demand[0 * 4 + 3] = 0;
    c.demand[1 * 4 + 2] = 90 * MB; /* two into node 2: 60 each until 45 MB are through at 0.75 s, then still 60 each */
    plan                = plan_for(c.topo, c.demand, MPATH_POLICY_DIRECT);
    seconds             = simulate(c.topo, plan, &time, SIMULATE_SHARE_EQUAL, 0);
    assert_true(fabs(seconds - 1.5 - 2e-6) < 1e-6);
    mpath_plan_destroy(plan);
    plan_case_release(&c);
}

/* Without latencies and chunks, shares by bytes end all flows at Z: what the executor's order rests on. */
static void test_shares_by_bytes(void **state)
{
    mpath_time_params_t time = {.chunk_bytes = 1, .hop_ns = 0};
    mpath_plan_t *plan;
    plan_case_t c;
    double seconds, z;
    uint64_t seed;

    (void)state;
    for (seed = 1; seed <= 40; seed++) {
        plan_case_draw(&c, seed, 8);
        plan    = plan_for(c.topo, c.demand, MPATH_POLICY_STRIPE);
        z       = (double)mpath_plan_z_ns(plan) / 1e9;
        seconds = simulate(c.topo, plan, &time, SIMULATE_SHARE_BYTES, 0);
        if (seconds < z - 1e-9 || seconds > z * 1.000001 + 20e-6) {
            fail_msg("%s: Z %.9f s, simulated %.9f", c.text, z, seconds);
        }
        mpath_plan_destroy(plan);
        plan_case_release(&c);
    }
}

/* The model's chunks are those that the executor cuts, where its slots do not limit them. */
static void test_chunks_are_the_executors(void **state)
{
    uint32_t slots[PLAN_CASE_MAX_NODES];
    mpath_chunk_limits_t limits = {.rail_bytes = UINT64_MAX, .last_slot_bytes = slots, .relay_slot_bytes = slots};
    mpath_time_params_t time    = {.hop_ns = 0};
    unsigned compared           = 0;
    mpath_schedule_t *schedule;
    const mpath_duty_t *duty;
    const mpath_flow_t *flow;
    mpath_path_t path;
    mpath_plan_t *plan;
    size_t num_flows;
    plan_case_t c;

    (void)state;
    memset(slots, 0x7f, sizeof(slots));
    for (uint64_t seed = 1; seed <= 20; seed++) {
        plan_case_draw(&c, seed, 12);
        plan               = plan_for(c.topo, c.demand, MPATH_POLICY_MPATH);
        time.chunk_bytes   = 4096u << (seed % 9);
        limits.chunk_bytes = time.chunk_bytes;
        for (int rank = 0; rank < mpath_topo_num_ranks(c.topo); rank++) {
            assert_int_equal(mpath_schedule_create(c.topo, rank, plan, &limits, &schedule), MPATH_OK);
            for (size_t i = 0; i < schedule->num_duties; i++) {
                duty = &schedule->duties[i];
                flow = &mpath_plan_flows(plan, &num_flows)[duty->flow];
                mpath_topo_path(c.topo, flow->source, flow->destination, flow->path, &path);
                if (mpath_time_chunk_bytes(c.topo, &path, flow->bytes, &time) !=
                    (duty->chunk_bytes < flow->bytes ? duty->chunk_bytes : flow->bytes)) {
                    fail_msg("%s: %llu bytes over %d hops: the executor cuts %u, the model %llu", c.text,
                             (unsigned long long)flow->bytes, path.num_hops, duty->chunk_bytes,
                             (unsigned long long)mpath_time_chunk_bytes(c.topo, &path, flow->bytes, &time));
                }
                compared++;
            }
            mpath_schedule_destroy(schedule);
        }
        mpath_plan_destroy(plan);
        plan_case_release(&c);
    }
    assert_true(compared > 1000);
}

static uint64_t chunk_of(const plan_case_t *c, int source, int destination, uint64_t flow_bytes, uint64_t chunk_bytes)
{
    mpath_time_params_t time = {.chunk_bytes = chunk_bytes};
    mpath_path_t path;

    mpath_topo_path(c->topo, source, destination, 0, &path);
    return mpath_time_chunk_bytes(c->topo, &path, flow_bytes, &time);
}

/* The rule that the header states: rank 0 reaches rank 2 over one hop and rank 3 over two. */
static void test_chunk_sizes(void **state)
{
    plan_case_t c;

    (void)state;
    two_nodes(&c, 20 * MB, 1000 * MB, MPATH_REACH_AFFINE);
    assert_int_equal(chunk_of(&c, 0, 2, MIB, 16384), 16384);
    assert_int_equal(chunk_of(&c, 0, 2, MIB, MIB), 40000); /* what 20 MB/s carry in 2 ms */
    assert_int_equal(chunk_of(&c, 0, 2, 5000, MIB), 5000);
    assert_int_equal(chunk_of(&c, 0, 2, 5000, 4096), 4096);
    assert_int_equal(chunk_of(&c, 0, 3, 65536, MIB), 16384); /* four of them */
    assert_int_equal(chunk_of(&c, 0, 3, 65536 + 4, MIB), 16384 + 64);
    assert_int_equal(chunk_of(&c, 0, 3, 16384, MIB), 8192);
    assert_int_equal(chunk_of(&c, 0, 3, 16384, 4096), 4096);
    plan_case_release(&c);
    two_nodes(&c, MB, 1000 * MB, MPATH_REACH_AFFINE);
    assert_int_equal(chunk_of(&c, 0, 2, MIB, MIB), 8192); /* 2000 bytes in 2 ms */
    plan_case_release(&c);
}

/*
 * More flows over several hops than the prediction keeps in memory: from every rank of node 0 to those of node 1 that
 * are beside the other rail. The last two flows, of 50 MB each over one rail, decide; one of them has a second hop.
 */
static void test_many_flows(void **state)
{
    enum { EACH = 364, ALL = 2 * EACH };
    mpath_time_params_t time = {.chunk_bytes = 100032, .hop_ns = 0};
    mpath_plan_t *plan;
    plan_case_t c;

    (void)state;
    plan_case_machines(&c, 2, 2, 100 * MB, 1000 * MB);
    plan_case_build(&c, EACH, MPATH_REACH_AFFINE, 0);
    for (int source = 0; source < EACH; source++) {
        for (int destination = EACH + 1 - source % 2; destination < ALL; destination += 2) {
            c.demand[source * ALL + destination] = 100;
        }
    }
    c.demand[(ALL - 1) * ALL + 0] = 50 * MB;
    c.demand[(ALL - 1) * ALL + 1] = 50 * MB;
    plan                          = plan_for(c.topo, c.demand, MPATH_POLICY_DIRECT);
    assert_true(fabs((double)predict(c.topo, plan, &time) - (1e9 + 2000 + 100032 + 500)) < 10);
    mpath_plan_destroy(plan);
    plan_case_release(&c);
}

/* How far prediction and simulation are apart. */
typedef struct spread {
    double least, most, sum;
    unsigned count, off_5_percent;
} spread_t;

static void compare(spread_t *spread, const mpath_topo_t *topo, const mpath_plan_t *plan, simulate_share_t share,
                    const char *text)
{
    mpath_time_params_t time;
    double ratio, seconds, z = (double)mpath_plan_z_ns(plan) / 1e9;

    mpath_time_params_init(&time);
    seconds = simulate(topo, plan, &time, share, 0.002);
    if (seconds < z * 0.999999 - 1e-9) {
        fail_msg("%s: simulated %.9f s, less than Z %.9f", text, seconds, z);
    }
    if (z == 0) {
        return;
    }
    ratio         = seconds * 1e9 / (double)predict(topo, plan, &time);
    spread->least = (spread->count == 0 || ratio < spread->least) ? ratio : spread->least;
    spread->most  = ratio > spread->most ? ratio : spread->most;
    spread->sum += ratio;
    spread->off_5_percent += ratio < 0.95 || ratio > 1.05;
    spread->count++;
}

/* Stated in doc/planner.md. */
static void expect_close(const spread_t *spread, const char *what)
{
    double mean = spread->sum / spread->count;

    print_message("  %s: %u plans, simulated / predicted %.3f to %.3f, mean %.3f; %u off by more than 5 %%\n", what,
                  spread->count, spread->least, spread->most, mean, spread->off_5_percent);
    assert_true(spread->count >= 100);
    assert_true(spread->least >= 0.88 && spread->most <= 1.12);
    assert_true(mean >= 0.99 && mean <= 1.01);
    assert_true(spread->off_5_percent * 20 <= spread->count);
}

static void test_clusters(void **state)
{
    static const mpath_policy_t policies[] = {MPATH_POLICY_MPATH, MPATH_POLICY_DIRECT, MPATH_POLICY_STRIPE,
                                              MPATH_POLICY_PXN};
    spread_t spread                        = {0};
    mpath_plan_t *plan;
    plan_case_t c;
    size_t i;

    (void)state;
    for (uint64_t seed = 1000; seed < 1080; seed++) {
        plan_case_draw(&c, seed, 12);
        for (i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
            plan = plan_for(c.topo, c.demand, policies[i]);
            compare(&spread, c.topo, plan, SIMULATE_SHARE_BYTES, c.text);
            mpath_plan_destroy(plan);
        }
        plan_case_release(&c);
    }
    expect_close(&spread, "host memory and rails");
}

static void test_gpus(void **state)
{
    static const struct {
        const char *preset;
        int num_nodes;
    } machines[]    = {{"h100-mesh4", 1}, {"h100-mesh4", 2}, {"hgx-h200", 1}, {"hgx-h200", 2}, {"a100", 2}};
    spread_t spread = {0};
    mpath_plan_t *plan;
    mpath_topo_t *topo;
    uint64_t *demand;
    char text[64];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(machines) / sizeof(machines[0]); i++) {
        assert_int_equal(mpath_topo_preset(machines[i].preset, machines[i].num_nodes, &topo), MPATH_OK);
        demand = calloc((size_t)mpath_topo_num_ranks(topo) * (size_t)mpath_topo_num_ranks(topo), sizeof(*demand));
        assert_non_null(demand);
        for (int draw = 0; draw < 12; draw++) {
            uint64_t bytes = (uint64_t)MIB << (draw % 3 * 4);

            if (draw < 6) {
                mpath_demand_hot(mpath_topo_num_ranks(topo), 0, (uint32_t)draw * 180000, bytes, 1, demand);
            } else {
                mpath_demand_zipf(mpath_topo_num_ranks(topo), (uint32_t)draw * 100000, (uint64_t)draw, bytes, 1,
                                  demand);
            }
            snprintf(text, sizeof(text), "%s, %d nodes, draw %d", machines[i].preset, machines[i].num_nodes, draw);
            for (int policy = MPATH_POLICY_MPATH; policy <= MPATH_POLICY_PXN; policy++) {
                plan = plan_for(topo, demand, (mpath_policy_t)policy);
                compare(&spread, topo, plan, SIMULATE_SHARE_BYTES, text);
                mpath_plan_destroy(plan);
            }
        }
        free(demand);
        mpath_topo_destroy(topo);
    }
    expect_close(&spread, "GPUs");
}

/* What is empty takes no time. */
static void test_nothing(void **state)
{
    mpath_time_params_t time;
    mpath_plan_t *plan;
    plan_case_t c;

    (void)state;
    mpath_time_params_init(&time);
    two_nodes(&c, 100 * MB, 1000 * MB, MPATH_REACH_ALL);
    plan = plan_for(c.topo, c.demand, MPATH_POLICY_MPATH);
    assert_true(predict(c.topo, plan, &time) == 0);
    assert_true(simulate(c.topo, plan, &time, SIMULATE_SHARE_BYTES, 0) == 0);
    mpath_plan_destroy(plan);
    plan_case_release(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks_are_the_executors),
        cmocka_unit_test(test_chunk_sizes),
        cmocka_unit_test(test_many_flows),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_one_hop),
        cmocka_unit_test(test_two_hops),
        cmocka_unit_test(test_three_hops),
        cmocka_unit_test(test_fair_shares),
        cmocka_unit_test(test_shares_by_bytes),
        cmocka_unit_test(test_clusters),
        cmocka_unit_test(test_gpus),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
