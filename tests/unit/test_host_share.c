/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host's share of a hot receiver in closed form: it is what the planner finds for the same capacities, and it
 * leaves the host alone where that is of no use.
 */
#include "node/node_private.h"
#include "plan/demand.h"
#include "plan/plan.h"
#include "topo/topo.h"
#include "unit/capture.h"

#include <stdio.h>
#include <stdlib.h>

#define GBPS 1000000000ull
#define PORT_BPS (390 * GBPS)
#define BYTES (256ull << 20) /* of a rank */

static mpath_topo_t *make_topo(int ranks, uint64_t pcie_bps, uint64_t host_bps)
{
    const mpath_topo_params_t params = {.access = MPATH_REACH_AFFINE};
    mpath_machine_t machine          = {.host = "here", .num_numa = 1, .host_memory_bps = host_bps};
    mpath_node_gpus_t gpus           = {.num_gpus = ranks, .link = MPATH_GPU_LINK_SWITCH, .domain = -1};
    mpath_place_t places[MPATH_MAX_GPUS];
    mpath_topo_t *topo;

    for (int g = 0; g < ranks; g++) {
        places[g]    = (mpath_place_t){.node = 0, .nic = -1, .gpu = g};
        gpus.gpus[g] = (mpath_gpu_t){
            .egress_bps = PORT_BPS, .ingress_bps = PORT_BPS, .pcie_up_bps = pcie_bps, .pcie_down_bps = pcie_bps};
    }
    assert_int_equal(mpath_topo_create_with_gpus(&machine, &gpus, 1, places, ranks, &params, &topo), MPATH_OK);
    return topo;
}

/* What the plan sends to rank 0 through the host. */
static uint64_t staged_bytes(const mpath_topo_t *topo, const mpath_plan_t *plan)
{
    uint64_t bytes = 0;
    const mpath_flow_t *flows;
    mpath_path_t path;
    size_t num_flows;

    flows = mpath_plan_flows(plan, &num_flows);
    for (size_t i = 0; i < num_flows; i++) {
        mpath_topo_path(topo, flows[i].source, flows[i].destination, flows[i].path, &path);
        bytes += ((flows[i].destination == 0) && (path.hops[0].lane == MPATH_LANE_STAGED)) ? flows[i].bytes : 0;
    }
    return bytes;
}

/* The closed form without what the planner does not know of. */
static mpath_host_share_t share_of(const uint64_t *demand, int ranks, uint64_t host_bps)
{
    mpath_host_share_t share = {.host_bps = host_bps, .take_percent = 100, .most_percent = 100};

    for (int source = 1; source < ranks; source++) {
        uint64_t sent = 0;

        share.hot_bytes += demand[source * ranks];
        for (int to = 0; to < ranks; to++) {
            sent += (to != source) ? demand[source * ranks + to] : 0;
        }
        share.next_bytes = (sent > share.next_bytes) ? sent : share.next_bytes;
    }
    share.port_ns = share.hot_bytes / (PORT_BPS / 1000000) * 1000;
    return share;
}

static void compare(int ranks, uint32_t hot_ppm, uint64_t pcie_bps, uint64_t host_bps)
{
    mpath_topo_t *topo = make_topo(ranks, pcie_bps, host_bps);
    uint64_t *demand   = malloc((size_t)ranks * (size_t)ranks * sizeof(*demand));
    uint64_t bytes, by_plan, port_ns, host_ns, z_ns, rate_bps = (pcie_bps < host_bps) ? pcie_bps : host_bps;
    mpath_host_share_t share;
    mpath_plan_t *plan = NULL;

    assert_non_null(demand);
    mpath_demand_hot(ranks, 0, hot_ppm, BYTES, 1, demand);
    assert_int_equal(mpath_plan_create(topo, demand, NULL, &plan), MPATH_OK);
    share   = share_of(demand, ranks, rate_bps);
    bytes   = mpath_host_share_bytes(&share);
    by_plan = staged_bytes(topo, plan);
    port_ns = (share.hot_bytes - bytes) / (PORT_BPS / 1000000) * 1000;
    host_ns = bytes / (rate_bps / 1000000) * 1000;
    z_ns    = (port_ns > host_ns) ? port_ns : host_ns;
    if ((z_ns > mpath_plan_z_ns(plan) / 100 * 101) || (z_ns < mpath_plan_bound_ns(plan) / 100 * 99)) {
        fprintf(stderr, "%d ranks, hot %u: closed form %llu bytes, %llu ns; plan %llu bytes, %llu ns\n", ranks, hot_ppm,
                (unsigned long long)bytes, (unsigned long long)z_ns, (unsigned long long)by_plan,
                (unsigned long long)mpath_plan_z_ns(plan));
    }
    assert_true(bytes > share.hot_bytes / 50);
    assert_true(z_ns <= mpath_plan_z_ns(plan) / 100 * 101); /* as good as the planner's */
    assert_true(z_ns >= mpath_plan_bound_ns(plan) / 100 * 99);
    assert_in_range(by_plan, bytes / 100 * 90, bytes / 100 * 110); /* and the same share */
    mpath_plan_destroy(plan);
    mpath_topo_destroy(topo);
    free(demand);
}

static void test_the_planner_finds_the_same(void **state)
{
    (void)state;
    for (int ranks = 4; ranks <= 8; ranks *= 2) {
        for (uint32_t hot_ppm = 700000; hot_ppm <= 900000; hot_ppm += 100000) {
            compare(ranks, hot_ppm, 50 * GBPS, 1000 * GBPS); /* PCIe is the limit, */
            compare(ranks, hot_ppm, 50 * GBPS, 30 * GBPS);   /* or the host's memory */
        }
    }
}

static void test_limits(void **state)
{
    const mpath_host_share_t hot = {.hot_bytes    = 1000000000,
                                    .next_bytes   = 300000000,
                                    .port_ns      = 2600000,
                                    .host_bps     = 45 * GBPS,
                                    .take_percent = 100,
                                    .most_percent = 100};
    mpath_host_share_t share     = hot;
    uint64_t all                 = mpath_host_share_bytes(&share), late;

    (void)state;
    assert_in_range(all, 100000000, 110000000); /* 2.6 ms against 22.2 ms: a share of 10.5 % */
    share.start_ns = 260000;
    late           = mpath_host_share_bytes(&share);
    assert_in_range(late, all / 100 * 89, all / 100 * 91); /* a tenth of the time is lost */
    share.start_ns = 2600000;
    assert_int_equal(mpath_host_share_bytes(&share), 0); /* too late for anything */
    share              = hot;
    share.take_percent = 50;
    assert_in_range(mpath_host_share_bytes(&share), all / 100 * 49, all / 100 * 51);
    share              = hot;
    share.most_percent = 4;
    assert_int_equal(mpath_host_share_bytes(&share), 40000000);
    share            = hot;
    share.next_bytes = 990000000; /* another port would be the slowest */
    assert_int_equal(mpath_host_share_bytes(&share), 10000000);
    share.next_bytes = 1000000000;
    assert_int_equal(mpath_host_share_bytes(&share), 0);
    share          = hot;
    share.host_bps = 0;
    assert_int_equal(mpath_host_share_bytes(&share), 0);
    share           = hot; /* far beyond what a node has */
    share.hot_bytes = 1ull << 44;
    share.port_ns   = 45000000000ull;
    assert_in_range(mpath_host_share_bytes(&share), (1ull << 44) / 100 * 9, (1ull << 44) / 100 * 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_planner_finds_the_same),
        cmocka_unit_test(test_limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
