/* SPDX-License-Identifier: BSD-3-Clause */
/* Load: sums of matrices on nodes of different sizes, and the time that their NICs need. */
#include "plan/demand.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define RANKS 5
#define NODES 3

/* Ranks 0 and 3 on node 0, 1 and 4 on node 1, 2 on node 2; two NICs of 1 GB/s each, of node 1 one is down. */
static mpath_topo_t *make_topo(void)
{
    mpath_machine_t machines[NODES];
    mpath_place_t places[RANKS];
    const mpath_topo_params_t params = {.access = MPATH_REACH_ALL};
    mpath_topo_t *topo;

    memset(machines, 0, sizeof(machines));
    memset(places, 0, sizeof(places));
    for (int node = 0; node < NODES; node++) {
        machines[node].host[0]         = (char)('a' + node);
        machines[node].num_nics        = 2;
        machines[node].num_numa        = 1;
        machines[node].host_memory_bps = 10000000000u;
        for (int nic = 0; nic < 2; nic++) {
            machines[node].nics[nic] = (mpath_nic_t){.name     = {'e', (char)('0' + nic)},
                                                     .rate_bps = 1000000000u,
                                                     .numa     = -1,
                                                     .rail     = (int16_t)nic,
                                                     .up       = (node != 1) || (nic == 0)};
        }
    }
    for (int rank = 0; rank < RANKS; rank++) {
        places[rank] = (mpath_place_t){.node = rank % NODES, .nic = -1, .gpu = -1};
    }
    assert_int_equal(mpath_topo_create(machines, NODES, places, RANKS, &params, &topo), MPATH_OK);
    return topo;
}

static void test_load(void **state)
{
    static const struct {
        int source, destination;
        uint64_t bytes;
        mpath_load_t load;
    } cases[]          = {{0, 0, 100, {100, 0, 0, 0}},
                          {0, 3, 100, {100, 0, 0, 0}},
                          {0, 1, 1000, {1000, 1000, 500, 1000}}, /* the one NIC of node 1 */
                          {0, 2, 1000, {1000, 1000, 1000, 500}}, /* both of nodes 0 and 2 */
                          {4, 0, 3000000, {3000000, 3000000, 1500000, 3000000}}};
    mpath_topo_t *topo = make_topo();
    uint64_t demand[RANKS * RANKS], sums[MPATH_LOAD_SUMS * RANKS];
    mpath_load_t load;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        memset(demand, 0, sizeof(demand));
        memset(sums, 0xff, sizeof(sums));
        demand[cases[i].source * RANKS + cases[i].destination] = cases[i].bytes;
        mpath_load_find(topo, demand, sums, &load);
        assert_memory_equal(&load, &cases[i].load, sizeof(load));
    }
    /* everybody 1000 bytes to everybody, itself as well */
    for (int pair = 0; pair < RANKS * RANKS; pair++) {
        demand[pair] = 1000;
    }
    mpath_load_find(topo, demand, sums, &load);
    assert_int_equal(load.busiest, 5000);
    assert_int_equal(load.busiest_cross, 4000); /* of rank 2, alone on its node */
    assert_int_equal(load.node_cross, 4000);
    assert_int_equal(load.links_ns, 6000); /* of node 1: two ranks to three others, or back, by one NIC */
    /* rank 1 receives twice as much from rank 0 */
    demand[0 * RANKS + 1] = 2000;
    mpath_load_find(topo, demand, sums, &load);
    assert_int_equal(load.busiest, 6000);
    assert_int_equal(load.busiest_cross, 4000);
    assert_int_equal(load.links_ns, 7000);
    mpath_topo_destroy(topo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_load)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
