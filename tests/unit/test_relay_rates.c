/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls on device memory of two nodes plan with the rates of rails that others have learned. */
#include "relay_support.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const mpath_topo_t *topo;
static uint64_t on_rail[2]; /* of the last plan: what leaves the nodes by it */

mpath_status_t __real_mpath_relay_move(mpath_relay_t *relay, const mpath_plan_t *plan);
mpath_status_t __wrap_mpath_relay_move(mpath_relay_t *relay, const mpath_plan_t *plan);
mpath_status_t __wrap_mpath_relay_move(mpath_relay_t *relay, const mpath_plan_t *plan)
{
    const uint64_t *loads = mpath_plan_loads(plan);

    memset(on_rail, 0, sizeof(on_rail));
    for (int i = 0; i < 4; i++) {
        on_rail[i % 2] += loads[mpath_topo_resource_find(topo, MPATH_RESOURCE_NIC_TX, i / 2, i % 2)];
    }
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rates)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
