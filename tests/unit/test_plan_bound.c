/* SPDX-License-Identifier: BSD-3-Clause */
/* The bound of all rails, by hand: the busiest node's bytes, in or out, over the rates of its NICs that are up. */
#include "unit/capture.h"
#include "unit/plan_cases.h"

#define RATE 25000000ull
#define HOST 8000000000ull
#define NODES 3
#define NICS 4 /* and as many ranks per node */

static void open_case(plan_case_t *c)
{
    plan_case_machines(c, NODES, NICS, RATE, HOST);
    c->machines[0].nics[1].up       = 0;
    c->machines[1].nics[2].rate_bps = RATE / 2;
    plan_case_build(c, NICS, MPATH_REACH_ALL, 0);
}

static void set(const plan_case_t *c, int source, int destination, uint64_t bytes)
{
    c->demand[source * NODES * NICS + destination] = bytes;
}

/* Seconds of RATE / 2, of which node 0 has 6, node 1 has 7 and node 2 has 8 NICs. */
static void check(plan_case_t *c, uint64_t seconds)
{
    assert_int_equal(mpath_plan_all_rails_bound_ns(c->topo, c->demand), seconds * 1000000000);
    plan_case_release(c);
}

static void test_in(void **state)
{
    plan_case_t c;

    (void)state;
    open_case(&c);
    for (int source = NICS; source < NODES * NICS; source++) {
        set(&c, source, 2, 6 * RATE / 2);
    }
    check(&c, 8); /* 8 pairs come into node 0, 4 leave each of the others */
}

static void test_out(void **state)
{
    plan_case_t c;

    (void)state;
    open_case(&c);
    for (int destination = 0; destination < NICS; destination++) {
        set(&c, NICS, destination, 7 * RATE / 2);
        set(&c, NICS, destination + 2 * NICS, 7 * RATE / 2);
    }
    check(&c, 8); /* node 1 sends 8 pairs; each of the others gets 4 */
}

/* What stays on a node, or on a rank, uses no NIC. */
static void test_inside(void **state)
{
    plan_case_t c;

    (void)state;
    open_case(&c);
    set(&c, 0, 1, 1000 * RATE);
    set(&c, 5, 5, 1000 * RATE);
    set(&c, 8, 0, 6 * RATE / 2);
    check(&c, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in),
        cmocka_unit_test(test_out),
        cmocka_unit_test(test_inside),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
