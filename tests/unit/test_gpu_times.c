/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What counts as agreement, as planning and as moving in calls on device memory, on the driver without a GPU: steps that
 * are made slow show where they should, and no time is counted twice.
 */
#include "node/order.h"
#include "plan/cache.h"
#include "node/launches.h"
#include "gpu_ranks.h"
#include "relay_support.h"
#include "util/time.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

#define SLOW_NS 30000000u
#define MIB (UINT64_C(1) << 20)

/* --- slow steps ---------------------------------------------------------------------------------------------------- */

static int is_slow;

static void be_slow(void)
{
    uint64_t end_ns = mpath_time_ns() + SLOW_NS;

    while (is_slow && (mpath_time_ns() < end_ns)) {
        usleep(1000);
    }
}

void __real_mpath_order_compute(mpath_order_t *order, const uint64_t *demand, const mpath_order_rates_t *rates);
void __wrap_mpath_order_compute(mpath_order_t *order, const uint64_t *demand, const mpath_order_rates_t *rates);
void __wrap_mpath_order_compute(mpath_order_t *order, const uint64_t *demand, const mpath_order_rates_t *rates)
{
    be_slow();
    __real_mpath_order_compute(order, demand, rates);
}

mpath_status_t __real_mpath_plan_cache_get(mpath_plan_cache_t *cache, uint64_t signature, const uint64_t *demand,
                                           const mpath_plan_t **plan_p, int *hit_p);
mpath_status_t __wrap_mpath_plan_cache_get(mpath_plan_cache_t *cache, uint64_t signature, const uint64_t *demand,
                                           const mpath_plan_t **plan_p, int *hit_p);
mpath_status_t __wrap_mpath_plan_cache_get(mpath_plan_cache_t *cache, uint64_t signature, const uint64_t *demand,
                                           const mpath_plan_t **plan_p, int *hit_p)
{
    be_slow();
    return __real_mpath_plan_cache_get(cache, signature, demand, plan_p, hit_p);
}

mpath_status_t __real_mpath_gpu_launches_start_eager(gpu_launches_t *launches, mpath_stream_t *stream,
                                                     const gpu_eager_launch_t *launch);
mpath_status_t __wrap_mpath_gpu_launches_start_eager(gpu_launches_t *launches, mpath_stream_t *stream,
                                                     const gpu_eager_launch_t *launch);
mpath_status_t __wrap_mpath_gpu_launches_start_eager(gpu_launches_t *launches, mpath_stream_t *stream,
                                                     const gpu_eager_launch_t *launch)
{
    be_slow();
    return __real_mpath_gpu_launches_start_eager(launches, stream, launch);
}

/* --- calls --------------------------------------------------------------------------------------------------------- */

/* A call in which each pair has so many bytes; what it adds to this rank's counters, no more than it takes in all. */
static mpath_coll_counters_t count_call(member_t *member, uint64_t bytes, int round)
{
    int size = member->a2a.size;
    mpath_coll_counters_t before, now;
    uint64_t start_ns, took_ns;

    for (int i = 0; i < size * size; i++) {
        member->demand[i] = bytes;
    }
    mpath_coll_counters(member->coll, &before);
    start_ns = mpath_time_ns();
    member_round(member, A2A_GIVEN, 0, (uint64_t)round);
    took_ns = mpath_time_ns() - start_ns;
    mpath_coll_counters(member->coll, &now);
    now.agree_ns -= before.agree_ns;
    now.plan_ns -= before.plan_ns;
    now.move_ns -= before.move_ns;
    now.plans -= before.plans;
    now.plan_hits -= before.plan_hits;
    now.gpu.eager -= before.gpu.eager;
    ranks_check(now.agree_ns + now.plan_ns + now.move_ns <= took_ns);
    return now;
}

/* Two sizes by turns, each of which comes twice. */
static void check_plans(member_t *member, uint64_t bytes, unsigned *misses_p)
{
    mpath_coll_counters_t now;

    for (int round = 0; round < 4; round++) {
        now = count_call(member, (uint64_t)(1 + round / 2) * bytes, round);
        ranks_check(now.plans == ((round % 2) ? 0 : 1) && now.plan_hits == 1 - now.plans);
        ranks_check(now.plan_ns > 0 && now.agree_ns > 0 && now.move_ns > 0);
        ranks_check(now.plan_ns >= SLOW_NS || (now.plans == 0));
        *misses_p += (unsigned)now.plans;
    }
}

static int node_body(ranks_self_t *self, void *argument)
{
    mpath_settings_t settings;
    unsigned misses = 0;
    member_t member;

    (void)argument;
    gpu_ranks_start(2, "", &settings);
    settings.gpu_way = MPATH_GPU_WAY_PUSH;
    member_open(&member, self, &settings, 8 * MIB);
    is_slow = 1;
    check_plans(&member, MIB, &misses);
    ranks_check(misses == 2);
    member_end(&member);
    return 0;
}

static void test_order_is_planning(void **state)
{
    ranks_setup_t setup = {.size = 2};

    (void)state;
    assert_int_equal(ranks_run(&setup, node_body, NULL), 0);
}

static int relay_body(ranks_self_t *self, void *argument)
{
    unsigned misses = 0;
    member_t member;

    relay_member_init(&member, self, argument);
    is_slow = 1;
    check_plans(&member, MIB / 4, &misses);
    ranks_check(misses == 2);
    member_end(&member);
    return 0;
}

static void test_routing_is_planning(void **state)
{
    relay_job_t job = {.setup     = {.size = 4, .nodes = 2, .nics = 2, .nic_bps = RELAY_RAIL_BPS},
                       .link      = MPATH_GPU_LINK_MESH,
                       .pcie_bps  = 50000000000ull,
                       .max_bytes = 2 * MIB,
                       .killed    = -1};

    (void)state;
    assert_int_equal(ranks_run(&job.setup, relay_body, &job), 0);
}

/* Only rank 0 is slow, so that nobody waits for another's kernel. */
static int launch_body(ranks_self_t *self, void *argument)
{
    mpath_coll_counters_t now = {0};
    mpath_settings_t settings;
    member_t member;
    int round = 0;

    (void)argument;
    gpu_ranks_start(2, "", &settings);
    member_open(&member, self, &settings, MIB);
    is_slow = self->rank == 0;
    while ((now.gpu.eager == 0) && (round < 10)) {
        now = count_call(&member, 256, round++);
    }
    ranks_check(now.gpu.eager == 1);
    ranks_check(now.move_ns >= SLOW_NS || !is_slow);
    member_end(&member);
    return 0;
}

static void test_launch_is_no_agreement(void **state)
{
    ranks_setup_t setup = {.size = 2};

    (void)state;
    assert_int_equal(ranks_run(&setup, launch_body, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_order_is_planning),
                                       cmocka_unit_test(test_routing_is_planning),
                                       cmocka_unit_test(test_launch_is_no_agreement)};

    return cmocka_run_group_tests_name("gpu_times", tests, NULL, NULL);
}
