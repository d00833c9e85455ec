/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which policy without a search loads everything with less than a plan does: told from tables without a plan, so held
 * against the plans of these policies, at every Z at which the answer changes. A plan is seldom worse than they are, so
 * these Z are put in place of its own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/plan_cases.h"

#include "plan/internal.h"
#include "plan/ports.h"
#include "plan/rails.h"

#include <stdlib.h>

#define CASES 100
#define MAX_RANKS 16
#define FRAGMENT (32 * 1024)

/* In the order in which the first of equals is taken. */
static const mpath_policy_t policies[] = {MPATH_POLICY_DIRECT, MPATH_POLICY_PXN, MPATH_POLICY_STRIPE};

#define POLICIES (sizeof(policies) / sizeof(policies[0]))

static plan_case_t the_case;
static mpath_ratio_t policy_z[POLICIES]; /* of the plans of the case */
static int asked_rails, asked_ports;     /* how often the planner has asked */

mpath_status_t __real_mpath_rails_rivals(const mpath_rails_t *rails, mpath_ratio_t z, uint32_t *rivals_p);
mpath_status_t __wrap_mpath_rails_rivals(const mpath_rails_t *rails, mpath_ratio_t z, uint32_t *rivals_p);
mpath_status_t __real_mpath_ports_rivals(const mpath_ports_t *ports, mpath_ratio_t z, uint32_t *rivals_p);
mpath_status_t __wrap_mpath_ports_rivals(const mpath_ports_t *ports, mpath_ratio_t z, uint32_t *rivals_p);

static void assert_rivals(uint32_t found, uint32_t expected, mpath_ratio_t z)
{
    if (found != expected) {
        fail_msg("%s: rivals below %llu/%llu are 0x%x, not 0x%x", the_case.text, (unsigned long long)z.num,
                 (unsigned long long)z.den, expected, found);
    }
}

/* The best one. Where nothing has been moved, direct is the plan, and cannot be better. */
static void check_rails(const mpath_rails_t *rails, mpath_ratio_t z)
{
    mpath_ratio_t least = z;
    uint32_t expected   = 0, found;

    if ((rails->moves.list == NULL) && mpath_ratio_less(policy_z[0], z)) {
        return;
    }
    for (size_t i = 0; i < POLICIES; i++) {
        if (mpath_ratio_less(policy_z[i], least)) {
            least    = policy_z[i];
            expected = 1u << policies[i];
        }
    }
    if (!rails->affine && rails->spine && !rails->regular) {
        expected = MPATH_PLAN_ALL_RIVALS;
    }
    assert_int_equal(__real_mpath_rails_rivals(rails, z, &found), MPATH_OK);
    assert_rivals(found, expected, z);
}

/* All of them. */
static void check_ports(const mpath_ports_t *ports, mpath_ratio_t z)
{
    uint32_t expected = 0, found;

    for (size_t i = 0; i < POLICIES; i++) {
        expected |= mpath_ratio_less(policy_z[i], z) ? 1u << policies[i] : 0;
    }
    assert_int_equal(__real_mpath_ports_rivals(ports, z, &found), MPATH_OK);
    assert_rivals(found, expected, z);
}

/* Just below the Z of a policy, at it, just above it and far above. */
static mpath_ratio_t beside(size_t policy, int which)
{
    mpath_ratio_t z = policy_z[policy];

    z.num = (which == 0) ? z.num - (z.num > 0) : (which == 1) ? z.num : (which == 2) ? z.num + 1 : 3 * z.num + 1;
    return z;
}

mpath_status_t __wrap_mpath_rails_rivals(const mpath_rails_t *rails, mpath_ratio_t z, uint32_t *rivals_p)
{
    asked_rails++;
    for (size_t i = 0; i < POLICIES; i++) {
        for (int which = 0; which < 4; which++) {
            check_rails(rails, beside(i, which));
        }
    }
    check_rails(rails, z);
    return __real_mpath_rails_rivals(rails, z, rivals_p);
}

mpath_status_t __wrap_mpath_ports_rivals(const mpath_ports_t *ports, mpath_ratio_t z, uint32_t *rivals_p)
{
    asked_ports++;
    for (size_t i = 0; i < POLICIES; i++) {
        for (int which = 0; which < 4; which++) {
            check_ports(ports, beside(i, which));
        }
    }
    check_ports(ports, z);
    return __real_mpath_ports_rivals(ports, z, rivals_p);
}

/* With a fragment that pairs are larger than, or smaller. */
static void check_case(uint64_t min_fragment_bytes)
{
    mpath_plan_params_t params;
    mpath_plan_t *plan;

    mpath_plan_params_init(&params);
    params.min_fragment_bytes = min_fragment_bytes;
    for (size_t i = 0; i < POLICIES; i++) {
        params.policy = policies[i];
        assert_int_equal(mpath_plan_create(the_case.topo, the_case.demand, &params, &plan), MPATH_OK);
        policy_z[i] = plan->z;
        mpath_plan_destroy(plan);
    }
    params.policy  = MPATH_POLICY_MPATH;
    params.gap_ppm = 0; /* moves what it can */
    assert_int_equal(mpath_plan_create(the_case.topo, the_case.demand, &params, &plan), MPATH_OK);
    mpath_plan_destroy(plan);
}

/* The memory of nodes decides. */
static void slow_memory(void)
{
    int num_ranks = mpath_topo_num_ranks(the_case.topo);
    mpath_place_t places[MAX_RANKS];

    assert_in_range(num_ranks, 0, MAX_RANKS);
    for (int rank = 0; rank < num_ranks; rank++) {
        places[rank] = *mpath_topo_place(the_case.topo, rank);
    }
    for (int node = 0; node < the_case.num_nodes; node++) {
        the_case.machines[node].host_memory_bps /= 16;
    }
    mpath_topo_destroy(the_case.topo);
    assert_int_equal(mpath_topo_create_with_gpus(the_case.machines, the_case.gpus, the_case.num_nodes, places,
                                                 num_ranks, &the_case.params, &the_case.topo),
                     MPATH_OK);
}

static void check_seed(uint64_t seed, int on_gpus)
{
    if (on_gpus) {
        plan_case_draw_gpus(&the_case, seed, MAX_RANKS);
    } else {
        plan_case_draw(&the_case, seed, MAX_RANKS);
    }
    if (seed % 2 == 0) {
        slow_memory();
    }
    check_case((seed % 3 == 0) ? 8 * FRAGMENT : FRAGMENT);
    plan_case_release(&the_case);
}

/* The seeds beyond the first are those that told of mistakes which these did not show. */
static void of_rails(void **state)
{
    (void)state;
    asked_rails = 0;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        check_seed(seed, 0);
    }
    check_seed(317, 0);
    assert_true(asked_rails > CASES / 4);
}

static void of_ports(void **state)
{
    static const uint64_t more[] = {165, 169, 178, 219, 275, 278, 453, 494, 722, 737, 822, 823};

    (void)state;
    asked_ports = 0;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        check_seed(seed, 1);
    }
    for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++) {
        check_seed(more[i], 1);
    }
    assert_true(asked_ports > CASES / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(of_rails), cmocka_unit_test(of_ports)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
