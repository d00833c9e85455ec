/* SPDX-License-Identifier: BSD-3-Clause */
/* Topologies: resources, names, signature, rejected input. */
#include "topo/topo.h"
#include "unit/capture.h"
#include "unit/topo_support.h"

#include <stdlib.h>
#include <string.h>

static void test_resources(void **state)
{
    static const mpath_resource_kind_t of_gpus[] = {
        MPATH_RESOURCE_NVLINK,    MPATH_RESOURCE_GPU_EGRESS, MPATH_RESOURCE_GPU_INGRESS, MPATH_RESOURCE_PCIE_UP,
        MPATH_RESOURCE_PCIE_DOWN, MPATH_RESOURCE_UPLINK_TX,  MPATH_RESOURCE_UPLINK_RX};
    static const char *const names[] = {"node0/host-memory", "node0/nic0/tx",     "node0/nic0/rx", "node0/nic1/tx",
                                        "node0/nic1/rx",     "node1/host-memory", "node1/nic0/tx", "node1/nic0/rx",
                                        "node1/nic1/tx",     "node1/nic1/rx"};
    mpath_topo_t *topo;
    char name[64];
    cluster_t c;
    int i;

    (void)state;
    cluster_of_nics(&c, 2, 2, MPATH_REACH_ALL, 0);
    c.machines[1].nics[1].rate_bps = 7;
    topo                           = cluster_build(&c);
    assert_int_equal(mpath_topo_num_nodes(topo), 2);
    assert_int_equal(mpath_topo_num_ranks(topo), 4);
    assert_int_equal(mpath_topo_num_resources(topo), 10);
    for (i = 0; i < 10; i++) {
        mpath_topo_resource_name(topo, i, name, sizeof(name));
        assert_string_equal(name, names[i]);
        assert_int_equal(mpath_topo_resource(topo, i).peer, -1);
        assert_int_equal(mpath_topo_resource_find(topo, mpath_topo_resource(topo, i).kind,
                                                  mpath_topo_resource(topo, i).node,
                                                  mpath_topo_resource(topo, i).index),
                         i);
    }
    assert_int_equal(mpath_topo_resource(topo, 0).capacity_bps, 8000000000ull);
    assert_int_equal(mpath_topo_resource(topo, 1).capacity_bps, NIC_BPS);
    assert_int_equal(mpath_topo_resource(topo, 9).capacity_bps, 7);
    assert_int_equal(mpath_topo_resource_find(topo, MPATH_RESOURCE_NIC_TX, 2, 0), -1);
    assert_int_equal(mpath_topo_resource_find(topo, MPATH_RESOURCE_NIC_TX, 1, 2), -1);
    for (size_t k = 0; k < sizeof(of_gpus) / sizeof(of_gpus[0]); k++) {
        assert_int_equal(mpath_topo_resource_find(topo, of_gpus[k], 0, 0), -1);
    }
    assert_string_equal(mpath_topo_host(topo, 1), "host1");
    mpath_topo_destroy(topo);
}

/* Many nodes with so many NICs each: every resource is its own node's. */
static void check_many(int num_nodes, int num_nics)
{
    mpath_machine_t *machines        = calloc((size_t)num_nodes, sizeof(*machines));
    const mpath_topo_params_t params = {.access = MPATH_REACH_ALL};
    int each                         = 1 + 2 * num_nics;
    mpath_topo_t *topo;
    cluster_t c;

    assert_non_null(machines);
    cluster_of_nics(&c, 1, 2, MPATH_REACH_ALL, 0);
    for (int node = 0; node < num_nodes; node++) {
        machines[node] = c.machines[0];
        for (int nic = 0; nic < num_nics; nic++) {
            machines[node].nics[nic]      = c.machines[0].nics[0];
            machines[node].nics[nic].rail = nic;
        }
        machines[node].num_nics = num_nics;
    }
    assert_int_equal(mpath_topo_create(machines, num_nodes, NULL, 0, &params, &topo), MPATH_OK);
    free(machines);
    assert_int_equal(mpath_topo_num_resources(topo), num_nodes * each);
    for (int i = 0; i < num_nodes * each; i++) {
        const mpath_resource_t r = mpath_topo_resource(topo, i);

        assert_int_equal(r.node, i / each);
        assert_int_equal(r.kind, i % each == 0  ? MPATH_RESOURCE_HOST_MEMORY
                                 : i % each % 2 ? MPATH_RESOURCE_NIC_TX
                                                : MPATH_RESOURCE_NIC_RX);
    }
    mpath_topo_destroy(topo);
}

static void test_many(void **state)
{
    (void)state;
    check_many(2000, 0);
    check_many(2000, 1);
    check_many(500, 8);
    check_many(3000, 64);
}

static void test_signature(void **state)
{
    cluster_t base, c;
    uint64_t first;

    (void)state;
    cluster_of_nics(&base, 2, 2, MPATH_REACH_ALL, 0);
    first = topo_signature_of(&base);
    c     = base;
    strcpy(c.machines[0].host, "renamed");
    strcpy(c.machines[0].nics[0].name, "renamed");
    assert_true(topo_signature_of(&c) == first);
    c                              = base;
    c.machines[1].nics[1].rate_bps = NIC_BPS - 1;
    assert_true(topo_signature_of(&c) != first);
    c                        = base;
    c.machines[1].nics[1].up = 0;
    assert_true(topo_signature_of(&c) != first);
    c                          = base;
    c.machines[0].nics[1].rail = 5;
    assert_true(topo_signature_of(&c) != first);
    c                             = base;
    c.machines[0].host_memory_bps = 1;
    assert_true(topo_signature_of(&c) != first);
    c               = base;
    c.places[3].nic = 0;
    assert_true(topo_signature_of(&c) != first);
    c               = base;
    c.params.access = MPATH_REACH_AFFINE;
    assert_true(topo_signature_of(&c) != first);
    c               = base;
    c.params.fabric = MPATH_FABRIC_SPINE;
    assert_true(topo_signature_of(&c) != first);
    c           = base;
    c.num_ranks = 3;
    assert_true(topo_signature_of(&c) != first);
}

static void test_rejected(void **state)
{
    cluster_t base, c;

    (void)state;
    cluster_of_nics(&base, 2, 2, MPATH_REACH_ALL, 0);
    c           = base;
    c.num_nodes = 0;
    topo_check_rejected(&c, "0 nodes");
    c           = base;
    c.num_ranks = -1;
    topo_check_rejected(&c, "-1 ranks");
    c               = base;
    c.params.access = (mpath_access_mode_t)7;
    topo_check_rejected(&c, "access mode 7");
    c                      = base;
    c.machines[1].num_nics = MPATH_MAX_NICS + 1;
    topo_check_rejected(&c, "node 1: number of NICs 65 must be 0 to 64");
    c                             = base;
    c.machines[1].host_memory_bps = 0;
    topo_check_rejected(&c, "node 1: host memory rate 0");
    c                              = base;
    c.machines[1].nics[1].rate_bps = 0;
    topo_check_rejected(&c, "node 1: rate 0 of NIC 1 'rail1'");
    c                              = base;
    c.machines[1].nics[1].rate_bps = MPATH_MAX_RATE_BPS + 1;
    topo_check_rejected(&c, "node 1: rate 10000000000001 of NIC 1 'rail1'");
    c                          = base;
    c.machines[0].nics[1].rail = MPATH_MAX_RAILS;
    topo_check_rejected(&c, "node 0: rail 64 of NIC 1 'rail1' must be 0 to 63");
    c                          = base;
    c.machines[0].nics[1].rail = 0;
    topo_check_rejected(&c, "NIC 1 'rail1' is on rail 0 as another NIC");
    c = base;
    memset(c.machines[0].nics[0].name, 'x', MPATH_NIC_NAME_MAX);
    topo_check_rejected(&c, "the name of NIC 0 has no end");
    c = base;
    memset(c.machines[1].host, 'x', MPATH_HOST_NAME_MAX);
    topo_check_rejected(&c, "node 1: the host name has no end");
    c                = base;
    c.places[3].node = 2;
    topo_check_rejected(&c, "rank 3: node 2 must be 0 to 1");
    c               = base;
    c.places[3].nic = 2;
    topo_check_rejected(&c, "rank 3: NIC 2 must be -1 to 1 on node 1");
    c               = base;
    c.places[0].gpu = -2;
    topo_check_rejected(&c, "rank 0: GPU -2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resources),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_signature),
        cmocka_unit_test(test_rejected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
