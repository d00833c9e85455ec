/* SPDX-License-Identifier: BSD-3-Clause */
/* Topologies with GPUs: every kind of interconnect, its paths and resources; random ones; presets. */
#include "plan/plan.h"
#include "topo/topo.h"
#include "unit/capture.h"
#include "unit/topo_gpu_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void test_mesh(void **state)
{
    mpath_topo_t *topo;
    cluster_t c;

    (void)state;
    cluster_init_gpus(&c, 2, 4, MPATH_GPU_LINK_MESH, 0);
    topo = cluster_build(&c);
    topo_gpu_check_all_paths(topo);
    topo_check_text(topo, 0, 2,
                    "0 -peer-> 2\n"
                    "0 -peer-> 1 -peer-> 2\n"
                    "0 -peer-> 3 -peer-> 2\n"
                    "0 -staged-> 2\n");
    topo_check_resources(topo, 0, 2, 0, "node0/nvlink0-2");
    topo_check_resources(topo, 0, 2, 1, "node0/nvlink0-1 node0/nvlink1-2");
    topo_check_resources(topo, 0, 2, 3, "node0/gpu0/pcie-up node0/host-memory node0/gpu2/pcie-down");
    topo_check_text(topo, 1, 6,
                    "1 -rail1-> 5 -peer-> 6\n"
                    "1 -peer-> 0 -rail0-> 4 -peer-> 6\n"
                    "1 -peer-> 2 -rail2-> 6\n"
                    "1 -peer-> 3 -rail3-> 7 -peer-> 6\n");
    topo_check_resources(topo, 1, 6, 1,
                         "node0/nvlink1-0 node0/gpu0/pcie-up node0/nic0/tx node1/nic0/rx node1/gpu0/pcie-down "
                         "node1/nvlink0-2");
    assert_int_equal(mpath_topo_resource(topo, mpath_topo_nvlink_find(topo, 0, 2, 3)).peer, 3);
    assert_true(mpath_topo_resource(topo, mpath_topo_nvlink_find(topo, 0, 2, 3)).capacity_bps == 123 * GBPS);
    assert_int_equal(mpath_topo_nvlink_find(topo, 0, 2, 2), -1);
    assert_false(mpath_topo_rails_match(topo) && mpath_topo_rails_alike(topo));
    assert_true(mpath_topo_is_linked(topo, 0, 2));
    assert_false(mpath_topo_is_linked(topo, 0, 5));
    mpath_topo_destroy(topo);

    /* Nothing through the host. */
    c.params.no_staged = 1;
    topo               = cluster_build(&c);
    topo_gpu_check_all_paths(topo);
    topo_check_text(topo, 0, 2,
                    "0 -peer-> 2\n"
                    "0 -peer-> 1 -peer-> 2\n"
                    "0 -peer-> 3 -peer-> 2\n");
    mpath_topo_destroy(topo);
    c.params.no_staged = 0;

    /* A fabric with a spine: the static route crosses it. */
    c.params.fabric = MPATH_FABRIC_SPINE;
    topo            = cluster_build(&c);
    topo_gpu_check_all_paths(topo);
    topo_check_text(topo, 1, 6,
                    "1 -rail1-2-> 6\n"
                    "1 -peer-> 0 -rail0-> 4 -peer-> 6\n"
                    "1 -rail1-> 5 -peer-> 6\n"
                    "1 -peer-> 2 -rail2-> 6\n"
                    "1 -peer-> 3 -rail3-> 7 -peer-> 6\n");
    mpath_topo_destroy(topo);
}

/* GPUs without a link, one-way links, GPUs without a rank. */
static void test_partial_mesh(void **state)
{
    mpath_topo_t *topo;
    cluster_t c;

    (void)state;
    cluster_init_gpus(&c, 1, 4, MPATH_GPU_LINK_MESH, 0);
    c.gpus[0].nvlink_bps[0][2] = 0;
    c.gpus[0].nvlink_bps[1][2] = 0;
    topo                       = cluster_build(&c);
    topo_gpu_check_all_paths(topo);
    topo_check_text(topo, 0, 2, "0 -staged-> 2\n0 -peer-> 3 -peer-> 2\n");
    topo_check_text(topo, 2, 0, "2 -peer-> 0\n2 -peer-> 1 -peer-> 0\n2 -peer-> 3 -peer-> 0\n2 -staged-> 0\n");
    mpath_topo_destroy(topo);
    c.params.no_staged = 1;
    topo               = cluster_build(&c);
    topo_gpu_check_all_paths(topo);
    topo_check_text(topo, 0, 2, "0 -peer-> 3 -peer-> 2\n");
    mpath_topo_destroy(topo);
    c.params.no_staged = 0;
    c.num_ranks        = 3;
    topo               = cluster_build(&c);
    topo_check_text(topo, 0, 2, "0 -staged-> 2\n");
    topo_check_text(topo, 2, 0, "2 -peer-> 0\n2 -peer-> 1 -peer-> 0\n2 -staged-> 0\n");
    mpath_topo_destroy(topo);
    c.params.no_staged = 1; /* no other way is left */
    topo               = cluster_build(&c);
    topo_check_text(topo, 0, 2, "0 -staged-> 2\n");
    topo_check_text(topo, 2, 0, "2 -peer-> 0\n2 -peer-> 1 -peer-> 0\n");
    mpath_topo_destroy(topo);
}

static void test_switch(void **state)
{
    mpath_topo_t *topo;
    cluster_t c;

    (void)state;
    cluster_init_gpus(&c, 2, 3, MPATH_GPU_LINK_SWITCH, 0);
    c.gpus[0].uplink_bps = 60 * GBPS;
    topo                 = cluster_build(&c);
    topo_gpu_check_all_paths(topo);
    topo_check_text(topo, 0, 1, "0 -peer-> 1\n0 -staged-> 1\n");
    topo_check_resources(topo, 0, 1, 0, "node0/gpu0/egress node0/gpu1/ingress");
    topo_check_text(topo, 0, 4,
                    "0 -rail0-> 3 -peer-> 4\n"
                    "0 -peer-> 1 -rail1-> 4\n"
                    "0 -peer-> 2 -rail2-> 5 -peer-> 4\n");
    topo_check_resources(topo, 0, 4, 2,
                         "node0/gpu0/egress node0/gpu2/ingress node0/gpu2/pcie-up node0/nic2/tx node0/uplink0/tx "
                         "node1/nic2/rx node1/gpu2/pcie-down node1/gpu2/egress node1/gpu1/ingress");
    topo_check_resources(topo, 3, 0, 0,
                         "node1/gpu0/pcie-up node1/nic0/tx node0/uplink0/rx node0/nic0/rx node0/gpu0/pcie-down");
    mpath_topo_destroy(topo);

    /* A GPU that is not on the switch. */
    c.gpus[0].gpus[1].egress_bps = c.gpus[0].gpus[1].ingress_bps = 0;
    topo                                                         = cluster_build(&c);
    topo_gpu_check_all_paths(topo);
    topo_check_text(topo, 0, 1, "0 -staged-> 1\n");
    topo_check_text(topo, 0, 4,
                    "0 -rail0-> 3 -peer-> 4\n"
                    "0 -staged-> 1 -rail1-> 4\n"
                    "0 -peer-> 2 -rail2-> 5 -peer-> 4\n");
    mpath_topo_destroy(topo);
    c.params.peer_legs = 1;
    topo               = cluster_build(&c);
    topo_gpu_check_all_paths(topo);
    topo_check_text(topo, 0, 1, "0 -staged-> 1\n");
    topo_check_text(topo, 0, 4,
                    "0 -rail0-> 3 -peer-> 4\n"
                    "0 -peer-> 2 -rail2-> 5 -peer-> 4\n");
    topo_check_text(topo, 1, 4, "1 -rail1-> 4\n");
    topo_check_text(topo, 1, 3, "1 -rail1-> 4 -peer-> 3\n");
    mpath_topo_destroy(topo);
}

/* Bridges join pairs of GPUs, each of which has a NIC between them that both are beside, or one each. */
static void test_bridges(void **state)
{
    mpath_topo_t *topo;
    cluster_t c;

    (void)state;
    cluster_init_gpus(&c, 2, 4, MPATH_GPU_LINK_MESH, 0);
    c.params.peer_legs = 1;
    for (int n = 0; n < 2; n++) {
        for (int g = 0; g < 4; g++) {
            for (int peer = 0; peer < 4; peer++) {
                c.gpus[n].nvlink_bps[g][peer] = ((g ^ 1) == peer) ? 100 * GBPS : 0;
            }
        }
    }
    topo = cluster_build(&c);
    topo_gpu_check_all_paths(topo);
    topo_check_text(topo, 0, 1, "0 -peer-> 1\n0 -staged-> 1\n");
    topo_check_text(topo, 0, 2, "0 -staged-> 2\n");
    topo_check_text(topo, 0, 4, "0 -rail0-> 4\n0 -peer-> 1 -rail1-> 5 -peer-> 4\n");
    topo_check_text(topo, 0, 5, "0 -rail0-> 4 -peer-> 5\n0 -peer-> 1 -rail1-> 5\n");
    topo_check_text(topo, 0, 6, "");
    mpath_topo_destroy(topo);

    /* A NIC beside GPUs of both pairs: of the ranks beside it, those pass on that can. */
    c.gpus[0].gpus[2].nics = c.gpus[1].gpus[2].nics = 1u << 0 | 1u << 2;
    topo                                            = cluster_build(&c);
    topo_gpu_check_all_paths(topo);
    topo_check_text(topo, 0, 6, "0 -rail0-> 6\n");
    topo_check_text(topo, 1, 6, "1 -peer-> 0 -rail0-> 6\n");
    topo_check_text(topo, 3, 4, "3 -peer-> 2 -rail0-> 4\n");
    topo_check_text(topo, 3, 5, "3 -peer-> 2 -rail0-> 4 -peer-> 5\n");
    mpath_topo_destroy(topo);
}

static void test_domain(void **state)
{
    mpath_topo_t *topo;
    cluster_t c;

    (void)state;
    cluster_init_gpus(&c, 3, 2, MPATH_GPU_LINK_SWITCH, 0);
    c.gpus[0].domain = c.gpus[1].domain = 7;
    c.gpus[2].domain                    = 8;
    topo                                = cluster_build(&c);
    topo_gpu_check_all_paths(topo);
    topo_check_text(topo, 0, 3,
                    "0 -peer-> 3\n"
                    "0 -rail0-> 2 -peer-> 3\n"
                    "0 -peer-> 1 -rail1-> 3\n");
    topo_check_resources(topo, 0, 3, 0, "node0/gpu0/egress node1/gpu1/ingress");
    topo_check_text(topo, 0, 4, "0 -rail0-> 4\n0 -peer-> 1 -rail1-> 5 -peer-> 4\n");
    assert_true(mpath_topo_is_linked(topo, 0, 3));
    assert_false(mpath_topo_is_linked(topo, 0, 4));
    mpath_topo_destroy(topo);
    /* Without a number each node is alone. */
    c.gpus[0].domain = c.gpus[1].domain = -1;
    topo                                = cluster_build(&c);
    assert_false(mpath_topo_is_linked(topo, 0, 3));
    mpath_topo_destroy(topo);
}

static void test_pcie_and_none(void **state)
{
    mpath_topo_t *topo;
    cluster_t c;

    (void)state;
    cluster_init_gpus(&c, 2, 2, MPATH_GPU_LINK_PCIE, 0);
    topo = cluster_build(&c);
    topo_gpu_check_all_paths(topo);
    topo_check_text(topo, 0, 1, "0 -peer-> 1\n0 -staged-> 1\n");
    topo_check_resources(topo, 0, 1, 0, "node0/gpu0/pcie-up node0/gpu1/pcie-down");
    topo_check_text(topo, 0, 3, "0 -rail0-> 2 -peer-> 3\n0 -peer-> 1 -rail1-> 3\n");
    mpath_topo_destroy(topo);
    cluster_init_gpus(&c, 2, 2, MPATH_GPU_LINK_NONE, 0);
    topo = cluster_build(&c);
    topo_gpu_check_all_paths(topo);
    topo_check_text(topo, 0, 1, "0 -staged-> 1\n");
    topo_check_text(topo, 0, 3, "0 -rail0-> 2 -staged-> 3\n0 -staged-> 1 -rail1-> 3\n");
    mpath_topo_destroy(topo);
    c.params.peer_legs = 1;
    topo               = cluster_build(&c);
    topo_check_text(topo, 0, 2, "0 -rail0-> 2\n");
    topo_check_text(topo, 0, 3, ""); /* nothing is passed on through host memory */
    mpath_topo_destroy(topo);
    c.params.fabric = MPATH_FABRIC_SPINE;
    topo            = cluster_build(&c);
    topo_check_text(topo, 0, 3, "0 -rail0-1-> 3\n");
    mpath_topo_destroy(topo);
}

static void draw_node(uint64_t *seed, mpath_machine_t *machine, mpath_node_gpus_t *gpus, int node)
{
    int g, k;

    machine->num_nics = topo_draw(seed, 5);
    for (k = 0; k < machine->num_nics; k++) {
        machine->nics[k].up   = (uint8_t)(topo_draw(seed, 5) > 0);
        machine->nics[k].rail = (int16_t)((k * 3 + (node & 1)) % 7);
    }
    gpus->num_gpus   = topo_draw(seed, 5);
    gpus->link       = topo_draw(seed, 4);
    gpus->domain     = topo_draw(seed, 3) - 1;
    gpus->uplink_bps = (uint64_t)topo_draw(seed, 2);
    for (g = 0; g < gpus->num_gpus; g++) {
        gpus->gpus[g].nics        = (uint32_t)topo_draw(seed, 1 << machine->num_nics);
        gpus->gpus[g].egress_bps  = (uint64_t)(topo_draw(seed, 4) > 0);
        gpus->gpus[g].ingress_bps = gpus->gpus[g].egress_bps;
        for (k = 0; k < gpus->num_gpus; k++) {
            gpus->nvlink_bps[g][k] = (k != g) ? (uint64_t)topo_draw(seed, 3) : 0;
        }
    }
}

/* Random topologies: the rules of check_path hold for all of them. */
static void test_random(void **state)
{
    mpath_gpu_link_t link = MPATH_GPU_LINK_SWITCH;
    uint64_t seed         = 4711;
    mpath_topo_t *topo;
    int i, n, r, node;
    cluster_t c;

    (void)state;
    for (i = 0; i < 600; i++) {
        cluster_init_gpus(&c, 1 + topo_draw(&seed, MAX_TEST_NODES), 4, link,
                          topo_draw(&seed, 2) ? MPATH_FABRIC_SPINE : 0);
        c.params.access = topo_draw(&seed, 2) ? MPATH_REACH_ALL : MPATH_REACH_AFFINE;
        for (n = 0; n < c.num_nodes; n++) {
            draw_node(&seed, &c.machines[n], &c.gpus[n], n);
        }
        c.gpus[0].uplink_bps = 1; /* one node that is described */
        c.num_ranks          = topo_draw(&seed, 17);
        for (r = 0; r < c.num_ranks; r++) {
            node        = topo_draw(&seed, c.num_nodes);
            c.places[r] = (mpath_place_t){.node = node,
                                          .nic  = topo_draw(&seed, c.machines[node].num_nics + 1) - 1,
                                          .gpu  = topo_draw(&seed, c.gpus[node].num_gpus + 1) - 1};
        }
        topo = cluster_build(&c);
        topo_gpu_check_all_paths(topo);
        mpath_topo_destroy(topo);
    }
}

/* Each link is its own node's, with the rate that it was described with. */
static void check_links(const mpath_topo_t *topo, const cluster_t *c, int node)
{
    for (int from = 0; from < 4; from++) {
        for (int to = 0; to < 4; to++) {
            int found = mpath_topo_nvlink_find(topo, node, from, to);
            mpath_resource_t link;

            assert_int_equal(found >= 0, c->gpus[node].nvlink_bps[from][to] > 0);
            if (found >= 0) {
                link = mpath_topo_resource(topo, found);
                assert_int_equal(link.kind, MPATH_RESOURCE_NVLINK);
                assert_int_equal(link.node, node);
                assert_int_equal(link.index, from);
                assert_int_equal(link.peer, to);
                assert_true(link.capacity_bps == c->gpus[node].nvlink_bps[from][to]);
            }
        }
    }
}

/* Nodes whose GPUs are described alike share that, another one has its own, be it the first or not. */
static void test_shared(void **state)
{
    mpath_topo_t *topo;
    cluster_t c;

    (void)state;
    for (int other = 0; other < 4; other++) {
        cluster_init_gpus(&c, 4, 4, MPATH_GPU_LINK_MESH, 0);
        c.machines[1].num_nics            = 3; /* what GPUs share does not depend on NICs */
        c.places[7].nic                   = -1;
        c.gpus[other].nvlink_bps[0][2]    = 0;
        c.gpus[other].uplink_bps          = 100 * GBPS;
        c.gpus[other].gpus[1].pcie_up_bps = 5 * GBPS;
        for (int node = 0; node < 4; node++) {
            c.gpus[node].gpus[3].nics = 1u << 2;
        }
        topo = cluster_build(&c);
        for (int node = 0; node < 4; node++) {
            for (int mate = 0; mate < 4; mate++) {
                assert_int_equal(mpath_topo_gpus(topo, node) == mpath_topo_gpus(topo, mate),
                                 (node == other) == (mate == other));
            }
            assert_memory_equal(mpath_topo_gpus(topo, node), &c.gpus[node], sizeof(c.gpus[node]));
            assert_int_equal(mpath_topo_resource_find(topo, MPATH_RESOURCE_UPLINK_TX, node, 0) >= 0, node == other);
            check_links(topo, &c, node);
        }
        topo_gpu_check_all_paths(topo);
        mpath_topo_destroy(topo);
    }
}

#define MANY 300

/* As many nodes as this one, the last with other host memory where that is told. */
static mpath_topo_t *build_many(const cluster_t *c, uint64_t last_bps)
{
    mpath_machine_t *machines = calloc(MANY, sizeof(*machines));
    mpath_node_gpus_t *gpus   = calloc(MANY, sizeof(*gpus));
    mpath_topo_t *topo;

    assert_true(machines != NULL && gpus != NULL);
    for (int node = 0; node < MANY; node++) {
        machines[node] = c->machines[0];
        gpus[node]     = c->gpus[0];
        snprintf(machines[node].host, sizeof(machines[node].host), "host%d", node);
    }
    machines[MANY - 1].host_memory_bps = last_bps;
    assert_int_equal(mpath_topo_create_with_gpus(machines, gpus, MANY, NULL, 0, &c->params, &topo), MPATH_OK);
    free(machines);
    free(gpus);
    return topo;
}

/* Resources of many nodes that are alike, which are kept once, are those of nodes of which one is another one. */
static void test_many(void **state)
{
    cluster_t c;
    mpath_topo_t *alike, *others;
    char name[64], other_name[64];

    (void)state;
    cluster_init_gpus(&c, 1, 4, MPATH_GPU_LINK_MESH, 0);
    alike  = build_many(&c, c.machines[0].host_memory_bps);
    others = build_many(&c, 7);
    assert_int_equal(mpath_topo_num_resources(alike), MANY * (1 + 8 + 8 + 12));
    assert_int_equal(mpath_topo_num_resources(alike), mpath_topo_num_resources(others));
    assert_true(mpath_topo_signature(alike) != mpath_topo_signature(others));
    for (int i = 0; i < mpath_topo_num_resources(alike); i++) {
        const mpath_resource_t r = mpath_topo_resource(alike, i), other = mpath_topo_resource(others, i);
        int is_changed = r.kind == MPATH_RESOURCE_HOST_MEMORY && r.node == MANY - 1;

        assert_int_equal(r.node, i / (1 + 8 + 8 + 12));
        assert_true(r.kind == other.kind && r.node == other.node && r.index == other.index && r.peer == other.peer);
        assert_int_equal(r.latency_ns, other.latency_ns);
        assert_true(other.capacity_bps == (is_changed ? 7 : r.capacity_bps));
        assert_int_equal(r.kind == MPATH_RESOURCE_NVLINK
                             ? mpath_topo_nvlink_find(alike, (int)r.node, r.index, r.peer)
                             : mpath_topo_resource_find(alike, (mpath_resource_kind_t)r.kind, (int)r.node, r.index),
                         i);
        mpath_topo_resource_name(alike, i, name, sizeof(name));
        mpath_topo_resource_name(others, i, other_name, sizeof(other_name));
        assert_string_equal(name, other_name);
    }
    mpath_topo_destroy(alike);
    mpath_topo_destroy(others);
}

static void check_capacity(const mpath_topo_t *topo, mpath_resource_kind_t kind, uint64_t capacity_bps)
{
    int resource = mpath_topo_resource_find(topo, kind, 1, 1);

    assert_true(resource >= 0);
    assert_true(mpath_topo_resource(topo, resource).capacity_bps == capacity_bps);
}

static void test_presets(void **state)
{
    static const struct {
        const char *name;
        int nodes, gpus;
        uint64_t port_mbps, pcie_mbps, nic_mbps;
    } expected[] = {{"h100-mesh4", 2, 4, 0, 55000, 45100},    {"hgx-h100", 2, 8, 391000, 55000, 50000},
                    {"hgx-h200", 2, 8, 391000, 55000, 50000}, {"h800", 2, 8, 200000, 55000, 50000},
                    {"a100", 2, 8, 300000, 31500, 25000},     {"gb200-nvl72", 18, 4, 900000, 225000, 50000}};
    mpath_topo_t *topo;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        assert_int_equal(mpath_topo_preset(expected[i].name, 0, &topo), MPATH_OK);
        assert_int_equal(mpath_topo_num_nodes(topo), expected[i].nodes);
        assert_int_equal(mpath_topo_num_ranks(topo), expected[i].nodes * expected[i].gpus);
        if (expected[i].port_mbps > 0) {
            check_capacity(topo, MPATH_RESOURCE_GPU_EGRESS, expected[i].port_mbps * 1000000);
            check_capacity(topo, MPATH_RESOURCE_GPU_INGRESS, expected[i].port_mbps * 1000000);
        } else {
            assert_true(mpath_topo_nvlink_find(topo, 1, 0, 1) >= 0);
        }
        check_capacity(topo, MPATH_RESOURCE_PCIE_UP, expected[i].pcie_mbps * 1000000);
        check_capacity(topo, MPATH_RESOURCE_NIC_TX, expected[i].nic_mbps * 1000000);
        topo_gpu_check_all_paths(topo);
        mpath_topo_destroy(topo);
    }
    /* A rack and a tray of the next one. */
    assert_int_equal(mpath_topo_preset("gb200-nvl72", 19, &topo), MPATH_OK);
    assert_true(mpath_topo_is_linked(topo, 0, 71));
    assert_false(mpath_topo_is_linked(topo, 0, 72));
    mpath_topo_destroy(topo);
    capture_start();
    assert_int_equal(mpath_topo_preset("h101", 0, &topo), MPATH_ERR_PARAM);
    assert_int_equal(mpath_topo_preset("a100", -1, &topo), MPATH_ERR_PARAM);
    capture_stop();
    assert_int_equal(capture_count(), 2);
    assert_non_null(
        strstr(capture_text(), "preset 'h101' is none of h100-mesh4, hgx-h100, hgx-h200, h800, a100, gb200"));
    assert_non_null(strstr(capture_text(), "-1 nodes of preset 'a100'"));
}

/* Fewer paths are the first ones of all, with another signature; plans are made of them. */
static void test_max_paths(void **state)
{
    uint64_t all_paths, demand[64] = {[2] = 1 << 20};
    mpath_plan_t *plan;
    mpath_topo_t *topo;
    cluster_t c;

    (void)state;
    cluster_init_gpus(&c, 2, 4, MPATH_GPU_LINK_MESH, MPATH_FABRIC_SPINE);
    all_paths = topo_signature_of(&c);
    for (int limit = 1; limit <= 5; limit++) {
        uint32_t used = 0;
        size_t num_flows;

        c.params.max_paths = limit;
        topo               = cluster_build(&c);
        assert_int_equal(mpath_topo_num_paths(topo, 0, 2), (limit < 4) ? limit : 4);
        assert_int_equal(mpath_topo_num_paths(topo, 0, 4), (limit < 4) ? limit : 4);
        assert_int_equal(mpath_topo_num_paths(topo, 1, 6), limit);
        assert_true(mpath_topo_signature(topo) != all_paths);
        assert_int_equal(mpath_plan_create(topo, demand, NULL, &plan), MPATH_OK);
        for (const mpath_flow_t *flow = mpath_plan_flows(plan, &num_flows); num_flows > 0; flow++, num_flows--) {
            used |= 1u << flow->path;
        }
        assert_int_equal(__builtin_popcount(used), (limit < 4) ? limit : 4);
        assert_true(used < (1u << limit));
        mpath_plan_destroy(plan);
        mpath_topo_destroy(topo);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mesh),      cmocka_unit_test(test_partial_mesh), cmocka_unit_test(test_switch),
        cmocka_unit_test(test_bridges),   cmocka_unit_test(test_domain),       cmocka_unit_test(test_pcie_and_none),
        cmocka_unit_test(test_random),    cmocka_unit_test(test_shared),       cmocka_unit_test(test_presets),
        cmocka_unit_test(test_max_paths), cmocka_unit_test(test_many),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
