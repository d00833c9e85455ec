/* SPDX-License-Identifier: BSD-3-Clause */
/* Topologies whose ranks, GPUs and NICs do not match one to one; resources, signature, rejected input. */
#include "topo/topo.h"
#include "unit/capture.h"
#include "unit/topo_gpu_support.h"

#include <string.h>

static void test_nics_and_gpus(void **state)
{
    mpath_topo_t *topo;
    cluster_t c;

    (void)state;
    /* Two NICs beside each of two GPUs: the second needs no relay either. */
    cluster_init_gpus(&c, 2, 4, MPATH_GPU_LINK_SWITCH, 0);
    c.gpus[0].num_gpus = c.gpus[1].num_gpus = 2;
    c.gpus[0].gpus[0].nics = c.gpus[1].gpus[0].nics = 3;
    c.gpus[0].gpus[1].nics = c.gpus[1].gpus[1].nics = 12;
    c.num_ranks                                     = 4;
    c.places[0]                                     = (mpath_place_t){.node = 0, .nic = -1, .gpu = 0};
    c.places[1]                                     = (mpath_place_t){.node = 0, .nic = 3, .gpu = 1};
    c.places[2]                                     = (mpath_place_t){.node = 1, .nic = 0, .gpu = 0};
    c.places[3]                                     = (mpath_place_t){.node = 1, .nic = 2, .gpu = 1};
    topo                                            = cluster_build(&c);
    topo_gpu_check_all_paths(topo);
    topo_check_text(topo, 0, 2,
                    "0 -rail0-> 2\n"
                    "0 -rail1-> 2\n"
                    "0 -peer-> 1 -rail2-> 3 -peer-> 2\n"
                    "0 -peer-> 1 -rail3-> 3 -peer-> 2\n");
    topo_check_text(topo, 1, 2,
                    "1 -rail3-> 3 -peer-> 2\n"
                    "1 -peer-> 0 -rail0-> 2\n"
                    "1 -peer-> 0 -rail1-> 2\n"
                    "1 -rail2-> 3 -peer-> 2\n");
    mpath_topo_destroy(topo);

    /* Two GPUs beside each NIC share the relaying; two ranks on one GPU copy inside it. */
    cluster_init_gpus(&c, 2, 4, MPATH_GPU_LINK_SWITCH, 0);
    c.machines[0].num_nics = c.machines[1].num_nics = 2;
    c.gpus[0].gpus[0].nics = c.gpus[0].gpus[1].nics = c.gpus[1].gpus[0].nics = c.gpus[1].gpus[1].nics = 1;
    c.gpus[0].gpus[2].nics = c.gpus[0].gpus[3].nics = c.gpus[1].gpus[2].nics = c.gpus[1].gpus[3].nics = 2;
    c.num_ranks                                                                                       = 9;
    c.places[0] = (mpath_place_t){.node = 0, .nic = 0, .gpu = 0};
    c.places[1] = (mpath_place_t){.node = 0, .nic = 0, .gpu = 1};
    c.places[2] = (mpath_place_t){.node = 0, .nic = 1, .gpu = 2};
    c.places[3] = (mpath_place_t){.node = 0, .nic = 1, .gpu = 3};
    c.places[4] = (mpath_place_t){.node = 1, .nic = 0, .gpu = 0};
    c.places[5] = (mpath_place_t){.node = 1, .nic = 0, .gpu = 1};
    c.places[6] = (mpath_place_t){.node = 1, .nic = 1, .gpu = 2};
    c.places[7] = (mpath_place_t){.node = 1, .nic = 1, .gpu = 3};
    c.places[8] = (mpath_place_t){.node = 0, .nic = 0, .gpu = 0};
    topo        = cluster_build(&c);
    topo_gpu_check_all_paths(topo);
    topo_check_text(topo, 0, 4, "0 -rail0-> 4\n0 -peer-> 2 -rail1-> 6 -peer-> 4\n");
    topo_check_text(topo, 0, 5, "0 -rail0-> 5\n0 -peer-> 3 -rail1-> 7 -peer-> 5\n");
    topo_check_text(topo, 0, 8, "0 -peer-> 8\n");
    topo_check_resources(topo, 0, 8, 0, "");
    mpath_topo_destroy(topo);
}

static void test_missing(void **state)
{
    mpath_topo_t *topo;
    cluster_t c;

    (void)state;
    /* Nodes of three and two GPUs: the third rail has no mate. */
    cluster_init_gpus(&c, 2, 3, MPATH_GPU_LINK_MESH, 0);
    c.gpus[1].num_gpus     = 2;
    c.machines[1].num_nics = 2;
    c.num_ranks            = 5;
    topo                   = cluster_build(&c);
    topo_gpu_check_all_paths(topo);
    topo_check_text(topo, 2, 3, "2 -peer-> 0 -rail0-> 3\n2 -peer-> 1 -rail1-> 4 -peer-> 3\n");
    mpath_topo_destroy(topo);
    /* A NIC that is down, a rail whose GPU has no rank. */
    c.machines[1].nics[0].up = 0;
    topo                     = cluster_build(&c);
    topo_gpu_check_all_paths(topo);
    topo_check_text(topo, 0, 3, "0 -peer-> 1 -rail1-> 4 -peer-> 3\n");
    mpath_topo_destroy(topo);
    c.num_ranks = 4;
    topo        = cluster_build(&c);
    topo_check_text(topo, 0, 3, "");
    mpath_topo_destroy(topo);
    /* A communicator of which no two ranks share a rail. */
    cluster_init_gpus(&c, 2, 2, MPATH_GPU_LINK_SWITCH, 0);
    c.num_ranks = 2;
    c.places[1] = (mpath_place_t){.node = 1, .nic = 1, .gpu = 1};
    topo        = cluster_build(&c);
    topo_check_text(topo, 0, 1, "");
    mpath_topo_destroy(topo);
    c.params.fabric = MPATH_FABRIC_SPINE;
    topo            = cluster_build(&c);
    topo_check_text(topo, 0, 1, "0 -rail0-1-> 1\n");
    mpath_topo_destroy(topo);
}

/* Ranks in host memory beside ranks on GPUs. */
static void test_host_ranks(void **state)
{
    mpath_topo_t *topo;
    cluster_t c;

    (void)state;
    cluster_init_gpus(&c, 2, 2, MPATH_GPU_LINK_SWITCH, 0);
    c.num_ranks = 6;
    c.places[4] = (mpath_place_t){.node = 0, .nic = 0, .gpu = -1};
    c.places[5] = (mpath_place_t){.node = 0, .nic = 1, .gpu = -1};
    topo        = cluster_build(&c);
    topo_gpu_check_all_paths(topo);
    topo_check_text(topo, 0, 4, "0 -staged-> 4\n");
    topo_check_resources(topo, 0, 4, 0, "node0/gpu0/pcie-up node0/host-memory");
    topo_check_resources(topo, 4, 1, 0, "node0/host-memory node0/gpu1/pcie-down");
    topo_check_text(topo, 4, 5, "4 -shm-> 5\n");
    topo_check_text(topo, 4, 2, "4 -rail0-> 2\n4 -shm-> 1 -rail1-> 3 -peer-> 2\n");
    topo_check_resources(topo, 4, 2, 0, "node0/nic0/tx node1/nic0/rx node1/gpu0/pcie-down");
    mpath_topo_destroy(topo);
    c.params.access = MPATH_REACH_ALL;
    topo            = cluster_build(&c);
    topo_gpu_check_all_paths(topo);
    topo_check_text(topo, 4, 2, "4 -rail0-> 2\n4 -rail1-> 3 -peer-> 2\n");
    topo_check_text(topo, 0, 2, "0 -rail0-> 2\n0 -peer-> 1 -rail1-> 3 -peer-> 2\n");
    mpath_topo_destroy(topo);
}

/* Descriptions that say nothing change nothing. */
static void test_without(void **state)
{
    mpath_topo_t *topo, *plain;
    cluster_t c;
    int i;

    (void)state;
    cluster_init_gpus(&c, 2, 4, MPATH_GPU_LINK_SWITCH, 0);
    memset(c.gpus, 0, sizeof(c.gpus));
    topo = cluster_build(&c);
    assert_int_equal(mpath_topo_create(c.machines, c.num_nodes, c.places, c.num_ranks, &c.params, &plain), MPATH_OK);
    assert_true(mpath_topo_signature(topo) == mpath_topo_signature(plain));
    assert_null(mpath_topo_gpus(topo, 0));
    assert_int_equal(mpath_topo_num_resources(topo), 18);
    assert_int_equal(mpath_topo_resource_find(topo, MPATH_RESOURCE_PCIE_UP, 0, 0), -1);
    assert_int_equal(mpath_topo_resource_find(topo, MPATH_RESOURCE_UPLINK_TX, 0, 0), -1);
    assert_int_equal(mpath_topo_nvlink_find(topo, 0, 0, 1), -1);
    topo_check_text(topo, 0, 1, "0 -shm-> 1\n");
    topo_check_text(plain, 0, 1, "0 -shm-> 1\n");
    mpath_topo_destroy(topo);
    mpath_topo_destroy(plain);
    /* GPUs on one node only; the ranks of the other are in its host memory whatever their numbers. */
    cluster_init_gpus(&c, 2, 2, MPATH_GPU_LINK_MESH, 0);
    memset(&c.gpus[1], 0, sizeof(c.gpus[1]));
    for (i = 2; i < 4; i++) {
        c.places[i].gpu = 100 + i;
    }
    topo = cluster_build(&c);
    topo_gpu_check_all_paths(topo);
    topo_check_text(topo, 2, 3, "2 -shm-> 3\n");
    topo_check_text(topo, 0, 3, "0 -rail0-> 2 -shm-> 3\n0 -peer-> 1 -rail1-> 3\n");
    mpath_topo_destroy(topo);
}

/* Every resource is found by what it says of itself. */
static void test_resources(void **state)
{
    mpath_resource_t r;
    mpath_topo_t *topo;
    cluster_t c;
    int i, kind;

    (void)state;
    for (kind = MPATH_GPU_LINK_NONE; kind <= MPATH_GPU_LINK_SWITCH; kind++) {
        cluster_init_gpus(&c, 2, 4, (mpath_gpu_link_t)kind, 0);
        c.gpus[1].uplink_bps = 77;
        topo                 = cluster_build(&c);
        assert_int_equal(mpath_topo_num_resources(topo), 2 * (1 + 8 + 8) + 2 +
                                                             ((kind == MPATH_GPU_LINK_MESH)     ? 2 * 12
                                                              : (kind == MPATH_GPU_LINK_SWITCH) ? 2 * 8
                                                                                                : 0));
        for (i = 0; i < mpath_topo_num_resources(topo); i++) {
            r = mpath_topo_resource(topo, i);
            if (r.kind == MPATH_RESOURCE_NVLINK) {
                assert_int_equal(mpath_topo_nvlink_find(topo, r.node, r.index, r.peer), i);
                assert_true(r.capacity_bps == c.gpus[r.node].nvlink_bps[r.index][r.peer]);
            } else {
                assert_int_equal(mpath_topo_resource_find(topo, r.kind, r.node, r.index), i);
                assert_int_equal(r.peer, -1);
            }
        }
        assert_int_equal(mpath_topo_resource_find(topo, MPATH_RESOURCE_UPLINK_TX, 0, 0), -1);
        i = mpath_topo_resource_find(topo, MPATH_RESOURCE_UPLINK_RX, 1, 0);
        assert_int_equal(mpath_topo_resource(topo, i).capacity_bps, 77);
        assert_int_equal(mpath_topo_resource_find(topo, MPATH_RESOURCE_PCIE_UP, 0, 4), -1);
        mpath_topo_destroy(topo);
    }
}

static void test_signature(void **state)
{
    cluster_t base, c;
    uint64_t first;

    (void)state;
    cluster_init_gpus(&base, 2, 2, MPATH_GPU_LINK_SWITCH, 0);
    first                        = topo_signature_of(&base);
    c                            = base;
    c.gpus[1].gpus[1].egress_bps = 1;
    assert_true(topo_signature_of(&c) != first);
    c                               = base;
    c.gpus[1].gpus[0].pcie_down_bps = 1;
    assert_true(topo_signature_of(&c) != first);
    c                      = base;
    c.gpus[1].gpus[0].nics = 3;
    assert_true(topo_signature_of(&c) != first);
    c                = base;
    c.gpus[1].domain = 2;
    assert_true(topo_signature_of(&c) != first);
    c                    = base;
    c.gpus[1].uplink_bps = 1;
    assert_true(topo_signature_of(&c) != first);
    c              = base;
    c.gpus[1].link = MPATH_GPU_LINK_PCIE;
    assert_true(topo_signature_of(&c) != first);
    /* A link between other GPUs. */
    cluster_init_gpus(&base, 1, 3, MPATH_GPU_LINK_MESH, 0);
    memset(base.gpus[0].nvlink_bps, 0, sizeof(base.gpus[0].nvlink_bps));
    c                             = base;
    base.gpus[0].nvlink_bps[0][1] = 5;
    c.gpus[0].nvlink_bps[0][2]    = 5;
    assert_true(topo_signature_of(&c) != topo_signature_of(&base));
}

static void test_rejected(void **state)
{
    cluster_t base, c;

    (void)state;
    cluster_init_gpus(&base, 2, 2, MPATH_GPU_LINK_MESH, 0);
    c                  = base;
    c.gpus[1].num_gpus = MPATH_MAX_GPUS + 1;
    topo_check_rejected(&c, "node 1: number of GPUs 17 must be 0 to 16");
    c              = base;
    c.gpus[0].link = 4;
    topo_check_rejected(&c, "node 0: kind of GPU links 4");
    c                = base;
    c.gpus[0].domain = -2;
    topo_check_rejected(&c, "NVLink domain -2");
    c                    = base;
    c.gpus[1].uplink_bps = MPATH_MAX_RATE_BPS + 1;
    topo_check_rejected(&c, "node 1: uplink rate 10000000000001 must be 0 to");
    c                             = base;
    c.gpus[1].gpus[1].pcie_up_bps = 0;
    topo_check_rejected(&c, "node 1: PCIe up rate 0 of GPU 1 must be 1 to");
    c                             = base;
    c.gpus[1].gpus[1].ingress_bps = MPATH_MAX_RATE_BPS + 1;
    topo_check_rejected(&c, "node 1: ingress rate 10000000000001 of GPU 1");
    c                            = base;
    c.gpus[0].gpus[0].egress_bps = 1;
    topo_check_rejected(&c, "node 0: GPU 0 has only one of egress and ingress");
    c                      = base;
    c.gpus[0].gpus[1].nics = 4;
    topo_check_rejected(&c, "node 0: NICs 0x4 beside GPU 1 are more than the node's 2");
    c                          = base;
    c.gpus[0].nvlink_bps[1][1] = 1;
    topo_check_rejected(&c, "node 0: GPU 1 has an NVLink to itself");
    c                          = base;
    c.gpus[0].nvlink_bps[1][0] = MPATH_MAX_RATE_BPS + 1;
    topo_check_rejected(&c, "node 0: NVLink rate 10000000000001 of GPU 1");
    c               = base;
    c.places[2].gpu = 2;
    topo_check_rejected(&c, "rank 2: GPU 2 must be -1 to 1 on node 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nics_and_gpus), cmocka_unit_test(test_missing),   cmocka_unit_test(test_host_ranks),
        cmocka_unit_test(test_without),       cmocka_unit_test(test_resources), cmocka_unit_test(test_signature),
        cmocka_unit_test(test_rejected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
