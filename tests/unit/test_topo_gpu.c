/* SPDX-License-Identifier: BSD-3-Clause */
/* Topologies with GPUs: every kind of interconnect, its paths and resources; presets; rejected input. */
#include "topo/topo.h"
#include "unit/capture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GBPS 1000000000ull
#define MAX_TEST_NODES 4
#define MAX_TEST_RANKS 32

typedef struct cluster {
    mpath_machine_t machines[MAX_TEST_NODES];
    mpath_node_gpus_t gpus[MAX_TEST_NODES];
    mpath_place_t places[MAX_TEST_RANKS];
    mpath_topo_params_t params;
    int num_nodes, num_ranks;
} cluster_t;

/* Nodes with a NIC beside each GPU and a rank on each; every GPU linked to every other or on the switch. */
static void cluster_init(cluster_t *c, int nodes, int gpus, mpath_gpu_link_t link, uint32_t fabric)
{
    int n, g, k;

    memset(c, 0, sizeof(*c));
    c->num_nodes = nodes;
    c->num_ranks = nodes * gpus;
    c->params    = (mpath_topo_params_t){.access = MPATH_REACH_AFFINE, .fabric = fabric};
    for (n = 0; n < nodes; n++) {
        c->machines[n].num_nics        = gpus;
        c->machines[n].num_numa        = 1;
        c->machines[n].host_memory_bps = 90 * GBPS;
        c->gpus[n].num_gpus            = gpus;
        c->gpus[n].link                = (int32_t)link;
        c->gpus[n].domain              = -1;
        for (g = 0; g < gpus; g++) {
            snprintf(c->machines[n].nics[g].name, MPATH_NIC_NAME_MAX, "rail%d", g);
            c->machines[n].nics[g].rate_bps  = 45 * GBPS;
            c->machines[n].nics[g].rail      = (int16_t)g;
            c->machines[n].nics[g].up        = 1;
            c->gpus[n].gpus[g].pcie_up_bps   = 55 * GBPS;
            c->gpus[n].gpus[g].pcie_down_bps = 50 * GBPS;
            c->gpus[n].gpus[g].nics          = 1u << g;
            if (link == MPATH_GPU_LINK_SWITCH) {
                c->gpus[n].gpus[g].egress_bps  = 390 * GBPS;
                c->gpus[n].gpus[g].ingress_bps = 380 * GBPS;
            }
            for (k = 0; (k < gpus) && (link == MPATH_GPU_LINK_MESH); k++) {
                c->gpus[n].nvlink_bps[g][k] = (k != g) ? (100 + (uint64_t)(10 * g + k)) * GBPS : 0;
            }
            c->places[n * gpus + g] = (mpath_place_t){.node = n, .nic = g, .gpu = g};
        }
    }
}

static mpath_topo_t *cluster_build(const cluster_t *c)
{
    mpath_topo_t *topo = NULL;

    assert_int_equal(
        mpath_topo_create_with_gpus(c->machines, c->gpus, c->num_nodes, c->places, c->num_ranks, &c->params, &topo),
        MPATH_OK);
    assert_non_null(topo);
    return topo;
}

/* --- what holds for every path ----------------------------------------------------------------------------------- */

/* Expected resources of a path, found again from its hops by the public interface. */
typedef struct expectation {
    int resources[MPATH_PATH_MAX_RESOURCES];
    int count;
} expectation_t;

static void expect(expectation_t *e, int resource)
{
    assert_true(resource >= 0);
    assert_true(e->count < MPATH_PATH_MAX_RESOURCES);
    e->resources[e->count++] = resource;
}

static int described_gpu(const mpath_topo_t *topo, int rank)
{
    const mpath_place_t *place = mpath_topo_place(topo, rank);

    return mpath_topo_gpus(topo, place->node)->num_gpus > 0 ? place->gpu : -1;
}

static void expect_peer(const mpath_topo_t *topo, expectation_t *e, const mpath_hop_t *hop)
{
    int from = mpath_topo_place(topo, hop->from)->node, to = mpath_topo_place(topo, hop->to)->node;
    int from_gpu = described_gpu(topo, hop->from), to_gpu = described_gpu(topo, hop->to);

    assert_true((from_gpu >= 0) && (to_gpu >= 0));
    if ((from == to) && (from_gpu == to_gpu)) {
        return;
    }
    switch (mpath_topo_gpus(topo, from)->link) {
    case MPATH_GPU_LINK_PCIE:
        assert_int_equal(from, to);
        expect(e, mpath_topo_resource_find(topo, MPATH_RESOURCE_PCIE_UP, from, from_gpu));
        expect(e, mpath_topo_resource_find(topo, MPATH_RESOURCE_PCIE_DOWN, to, to_gpu));
        break;
    case MPATH_GPU_LINK_MESH:
        assert_int_equal(from, to);
        expect(e, mpath_topo_nvlink_find(topo, from, from_gpu, to_gpu));
        break;
    case MPATH_GPU_LINK_SWITCH:
        assert_true((from == to) || (mpath_topo_gpus(topo, from)->domain == mpath_topo_gpus(topo, to)->domain));
        expect(e, mpath_topo_resource_find(topo, MPATH_RESOURCE_GPU_EGRESS, from, from_gpu));
        expect(e, mpath_topo_resource_find(topo, MPATH_RESOURCE_GPU_INGRESS, to, to_gpu));
        break;
    default:
        fail_msg("a peer hop between GPUs that are not joined");
    }
}

static void expect_staged(const mpath_topo_t *topo, expectation_t *e, const mpath_hop_t *hop)
{
    int node = mpath_topo_place(topo, hop->from)->node;

    assert_int_equal(mpath_topo_place(topo, hop->to)->node, node);
    if (described_gpu(topo, hop->from) >= 0) {
        expect(e, mpath_topo_resource_find(topo, MPATH_RESOURCE_PCIE_UP, node, described_gpu(topo, hop->from)));
    }
    expect(e, mpath_topo_resource_find(topo, MPATH_RESOURCE_HOST_MEMORY, node, 0));
    if (described_gpu(topo, hop->to) >= 0) {
        expect(e, mpath_topo_resource_find(topo, MPATH_RESOURCE_PCIE_DOWN, node, described_gpu(topo, hop->to)));
    }
}

/* A rank on a GPU drives the NICs beside the GPU and its own; one in host memory as the access mode says. */
static void check_drives(const mpath_topo_t *topo, int rank, int nic, int on_gpu)
{
    const mpath_place_t *place = mpath_topo_place(topo, rank);

    assert_true(mpath_topo_machine(topo, place->node)->nics[nic].up);
    if (on_gpu) {
        assert_true((place->nic == nic) || ((mpath_topo_gpus(topo, place->node)->gpus[place->gpu].nics >> nic) & 1));
    } else if (mpath_topo_params(topo)->access == MPATH_REACH_AFFINE) {
        assert_int_equal(place->nic, nic);
    }
}

static void expect_rail(const mpath_topo_t *topo, expectation_t *e, const mpath_hop_t *hop, int source, int destination)
{
    int from = mpath_topo_place(topo, hop->from)->node, to = mpath_topo_place(topo, hop->to)->node;
    int from_gpu = described_gpu(topo, source) >= 0, to_gpu = described_gpu(topo, destination) >= 0;

    assert_int_not_equal(from, to);
    check_drives(topo, hop->from, hop->nic_from, from_gpu);
    check_drives(topo, hop->to, hop->nic_to, to_gpu);
    assert_true((mpath_topo_params(topo)->fabric & MPATH_FABRIC_SPINE) ||
                (mpath_topo_machine(topo, from)->nics[hop->nic_from].rail ==
                 mpath_topo_machine(topo, to)->nics[hop->nic_to].rail));
    if (from_gpu) {
        expect(e, mpath_topo_resource_find(topo, MPATH_RESOURCE_PCIE_UP, from, mpath_topo_place(topo, hop->from)->gpu));
    }
    expect(e, mpath_topo_resource_find(topo, MPATH_RESOURCE_NIC_TX, from, hop->nic_from));
    if (mpath_topo_gpus(topo, from)->uplink_bps > 0) {
        expect(e, mpath_topo_resource_find(topo, MPATH_RESOURCE_UPLINK_TX, from, 0));
    }
    if (mpath_topo_gpus(topo, to)->uplink_bps > 0) {
        expect(e, mpath_topo_resource_find(topo, MPATH_RESOURCE_UPLINK_RX, to, 0));
    }
    expect(e, mpath_topo_resource_find(topo, MPATH_RESOURCE_NIC_RX, to, hop->nic_to));
    if (to_gpu) {
        expect(e, mpath_topo_resource_find(topo, MPATH_RESOURCE_PCIE_DOWN, to, mpath_topo_place(topo, hop->to)->gpu));
    }
}

static void check_path(const mpath_topo_t *topo, const mpath_path_t *path, int source, int destination)
{
    expectation_t e  = {.count = 0};
    uint32_t latency = 0;
    const mpath_hop_t *hop;
    int i;

    assert_in_range(path->num_hops, 1, 3);
    assert_int_equal(path->num_relays, path->num_hops - 1);
    assert_int_equal(path->hops[0].from, source);
    assert_int_equal(path->hops[path->num_hops - 1].to, destination);
    for (i = 0; i < path->num_hops; i++) {
        hop = &path->hops[i];
        assert_true((i == 0) || (path->hops[i - 1].to == hop->from));
        assert_int_not_equal(hop->from, hop->to);
        switch (hop->lane) {
        case MPATH_LANE_PEER:
            expect_peer(topo, &e, hop);
            break;
        case MPATH_LANE_STAGED:
            expect_staged(topo, &e, hop);
            break;
        case MPATH_LANE_RAIL:
            expect_rail(topo, &e, hop, source, destination);
            break;
        default:
            assert_int_equal(mpath_topo_place(topo, hop->from)->node, mpath_topo_place(topo, hop->to)->node);
            expect(&e, mpath_topo_resource_find(topo, MPATH_RESOURCE_HOST_MEMORY,
                                                mpath_topo_place(topo, hop->from)->node, 0));
            break;
        }
    }
    assert_int_equal(path->num_resources, e.count);
    for (i = 0; i < e.count; i++) {
        assert_int_equal(path->resources[i], e.resources[i]);
        latency += mpath_topo_resource(topo, e.resources[i])->latency_ns;
    }
    assert_int_equal(path->latency_ns, latency);
}

/* Every path of every pair, none of them twice. */
static void check_all_paths(const mpath_topo_t *topo)
{
    int s, d, k, j, count, ranks = mpath_topo_num_ranks(topo);
    char seen[64][160];
    mpath_path_t path;

    for (s = 0; s < ranks; s++) {
        for (d = 0; d < ranks; d++) {
            count = mpath_topo_num_paths(topo, s, d);
            assert_in_range(count, 0, 63);
            assert_true((s != d) || (count == 0));
            for (k = 0; k < count; k++) {
                mpath_topo_path(topo, s, d, k, &path);
                check_path(topo, &path, s, d);
                mpath_topo_path_format(topo, &path, seen[k], sizeof(seen[k]));
                for (j = 0; j < k; j++) {
                    assert_string_not_equal(seen[j], seen[k]);
                }
            }
        }
    }
}

/* The pair's paths, one per line, against `expected`. */
static void check_text(const mpath_topo_t *topo, int source, int destination, const char *expected)
{
    char text[2048] = "", line[160];
    mpath_path_t path;
    int k;

    for (k = 0; k < mpath_topo_num_paths(topo, source, destination); k++) {
        mpath_topo_path(topo, source, destination, k, &path);
        mpath_topo_path_format(topo, &path, line, sizeof(line));
        assert_true(strlen(text) + strlen(line) + 2 < sizeof(text));
        strcat(text, line);
        strcat(text, "\n");
    }
    assert_string_equal(text, expected);
}

/* The resources of one path by name. */
static void check_resources(const mpath_topo_t *topo, int source, int destination, int index, const char *expected)
{
    char text[1024] = "", name[64];
    mpath_path_t path;
    int i;

    mpath_topo_path(topo, source, destination, index, &path);
    for (i = 0; i < path.num_resources; i++) {
        mpath_topo_resource_name(topo, (int)path.resources[i], name, sizeof(name));
        strcat(text, (i > 0) ? " " : "");
        strcat(text, name);
    }
    assert_string_equal(text, expected);
}

/* --- kinds of interconnect --------------------------------------------------------------------------------------- */

static void test_mesh(void **state)
{
    mpath_topo_t *topo;
    cluster_t c;

    (void)state;
    cluster_init(&c, 2, 4, MPATH_GPU_LINK_MESH, 0);
    topo = cluster_build(&c);
    check_all_paths(topo);
    check_text(topo, 0, 2,
               "0 -peer-> 2\n"
               "0 -peer-> 1 -peer-> 2\n"
               "0 -peer-> 3 -peer-> 2\n"
               "0 -staged-> 2\n");
    check_resources(topo, 0, 2, 0, "node0/nvlink0-2");
    check_resources(topo, 0, 2, 1, "node0/nvlink0-1 node0/nvlink1-2");
    check_resources(topo, 0, 2, 3, "node0/gpu0/pcie-up node0/host-memory node0/gpu2/pcie-down");
    check_text(topo, 1, 6,
               "1 -rail1-> 5 -peer-> 6\n"
               "1 -peer-> 0 -rail0-> 4 -peer-> 6\n"
               "1 -peer-> 2 -rail2-> 6\n"
               "1 -peer-> 3 -rail3-> 7 -peer-> 6\n");
    check_resources(topo, 1, 6, 1,
                    "node0/nvlink1-0 node0/gpu0/pcie-up node0/nic0/tx node1/nic0/rx node1/gpu0/pcie-down "
                    "node1/nvlink0-2");
    assert_int_equal(mpath_topo_resource(topo, mpath_topo_nvlink_find(topo, 0, 2, 3))->peer, 3);
    assert_true(mpath_topo_resource(topo, mpath_topo_nvlink_find(topo, 0, 2, 3))->capacity_bps == 123 * GBPS);
    assert_int_equal(mpath_topo_nvlink_find(topo, 0, 2, 2), -1);
    assert_false(mpath_topo_rails_equal(topo));
    assert_true(mpath_topo_is_linked(topo, 0, 2));
    assert_false(mpath_topo_is_linked(topo, 0, 5));
    mpath_topo_destroy(topo);

    /* A fabric with a spine: the static route crosses it. */
    c.params.fabric = MPATH_FABRIC_SPINE;
    topo            = cluster_build(&c);
    check_all_paths(topo);
    check_text(topo, 1, 6,
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
    cluster_init(&c, 1, 4, MPATH_GPU_LINK_MESH, 0);
    c.gpus[0].nvlink_bps[0][2] = 0;
    c.gpus[0].nvlink_bps[1][2] = 0;
    topo                       = cluster_build(&c);
    check_all_paths(topo);
    check_text(topo, 0, 2, "0 -staged-> 2\n0 -peer-> 3 -peer-> 2\n");
    check_text(topo, 2, 0, "2 -peer-> 0\n2 -peer-> 1 -peer-> 0\n2 -peer-> 3 -peer-> 0\n2 -staged-> 0\n");
    mpath_topo_destroy(topo);
    c.num_ranks = 3;
    topo        = cluster_build(&c);
    check_text(topo, 0, 2, "0 -staged-> 2\n");
    check_text(topo, 2, 0, "2 -peer-> 0\n2 -peer-> 1 -peer-> 0\n2 -staged-> 0\n");
    mpath_topo_destroy(topo);
}

static void test_switch(void **state)
{
    mpath_topo_t *topo;
    cluster_t c;

    (void)state;
    cluster_init(&c, 2, 3, MPATH_GPU_LINK_SWITCH, 0);
    c.gpus[0].uplink_bps = 60 * GBPS;
    topo                 = cluster_build(&c);
    check_all_paths(topo);
    check_text(topo, 0, 1, "0 -peer-> 1\n0 -staged-> 1\n");
    check_resources(topo, 0, 1, 0, "node0/gpu0/egress node0/gpu1/ingress");
    check_text(topo, 0, 4,
               "0 -rail0-> 3 -peer-> 4\n"
               "0 -peer-> 1 -rail1-> 4\n"
               "0 -peer-> 2 -rail2-> 5 -peer-> 4\n");
    check_resources(topo, 0, 4, 2,
                    "node0/gpu0/egress node0/gpu2/ingress node0/gpu2/pcie-up node0/nic2/tx node0/uplink0/tx "
                    "node1/nic2/rx node1/gpu2/pcie-down node1/gpu2/egress node1/gpu1/ingress");
    check_resources(topo, 3, 0, 0,
                    "node1/gpu0/pcie-up node1/nic0/tx node0/uplink0/rx node0/nic0/rx node0/gpu0/pcie-down");
    mpath_topo_destroy(topo);

    /* A GPU that is not on the switch. */
    c.gpus[0].gpus[1].egress_bps = c.gpus[0].gpus[1].ingress_bps = 0;
    topo                                                         = cluster_build(&c);
    check_all_paths(topo);
    check_text(topo, 0, 1, "0 -staged-> 1\n");
    check_text(topo, 0, 4,
               "0 -rail0-> 3 -peer-> 4\n"
               "0 -staged-> 1 -rail1-> 4\n"
               "0 -peer-> 2 -rail2-> 5 -peer-> 4\n");
    mpath_topo_destroy(topo);
}

static void test_domain(void **state)
{
    mpath_topo_t *topo;
    cluster_t c;

    (void)state;
    cluster_init(&c, 3, 2, MPATH_GPU_LINK_SWITCH, 0);
    c.gpus[0].domain = c.gpus[1].domain = 7;
    c.gpus[2].domain                    = 8;
    topo                                = cluster_build(&c);
    check_all_paths(topo);
    check_text(topo, 0, 3,
               "0 -peer-> 3\n"
               "0 -rail0-> 2 -peer-> 3\n"
               "0 -peer-> 1 -rail1-> 3\n");
    check_resources(topo, 0, 3, 0, "node0/gpu0/egress node1/gpu1/ingress");
    check_text(topo, 0, 4, "0 -rail0-> 4\n0 -peer-> 1 -rail1-> 5 -peer-> 4\n");
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
    cluster_init(&c, 2, 2, MPATH_GPU_LINK_PCIE, 0);
    topo = cluster_build(&c);
    check_all_paths(topo);
    check_text(topo, 0, 1, "0 -peer-> 1\n0 -staged-> 1\n");
    check_resources(topo, 0, 1, 0, "node0/gpu0/pcie-up node0/gpu1/pcie-down");
    check_text(topo, 0, 3, "0 -rail0-> 2 -peer-> 3\n0 -peer-> 1 -rail1-> 3\n");
    mpath_topo_destroy(topo);
    cluster_init(&c, 2, 2, MPATH_GPU_LINK_NONE, 0);
    topo = cluster_build(&c);
    check_all_paths(topo);
    check_text(topo, 0, 1, "0 -staged-> 1\n");
    check_text(topo, 0, 3, "0 -rail0-> 2 -staged-> 3\n0 -staged-> 1 -rail1-> 3\n");
    mpath_topo_destroy(topo);
}

/* --- ranks, GPUs and NICs that do not match one to one ----------------------------------------------------------- */

static void test_nics_and_gpus(void **state)
{
    mpath_topo_t *topo;
    cluster_t c;

    (void)state;
    /* Two NICs beside each of two GPUs: the second needs no relay either. */
    cluster_init(&c, 2, 4, MPATH_GPU_LINK_SWITCH, 0);
    c.gpus[0].num_gpus = c.gpus[1].num_gpus = 2;
    c.gpus[0].gpus[0].nics = c.gpus[1].gpus[0].nics = 3;
    c.gpus[0].gpus[1].nics = c.gpus[1].gpus[1].nics = 12;
    c.num_ranks                                     = 4;
    c.places[0]                                     = (mpath_place_t){0, -1, 0};
    c.places[1]                                     = (mpath_place_t){0, 3, 1};
    c.places[2]                                     = (mpath_place_t){1, 0, 0};
    c.places[3]                                     = (mpath_place_t){1, 2, 1};
    topo                                            = cluster_build(&c);
    check_all_paths(topo);
    check_text(topo, 0, 2,
               "0 -rail0-> 2\n"
               "0 -rail1-> 2\n"
               "0 -peer-> 1 -rail2-> 3 -peer-> 2\n"
               "0 -peer-> 1 -rail3-> 3 -peer-> 2\n");
    check_text(topo, 1, 2,
               "1 -rail3-> 3 -peer-> 2\n"
               "1 -peer-> 0 -rail0-> 2\n"
               "1 -peer-> 0 -rail1-> 2\n"
               "1 -rail2-> 3 -peer-> 2\n");
    mpath_topo_destroy(topo);

    /* Two GPUs beside each NIC share the relaying; two ranks on one GPU copy inside it. */
    cluster_init(&c, 2, 4, MPATH_GPU_LINK_SWITCH, 0);
    c.machines[0].num_nics = c.machines[1].num_nics = 2;
    c.gpus[0].gpus[0].nics = c.gpus[0].gpus[1].nics = c.gpus[1].gpus[0].nics = c.gpus[1].gpus[1].nics = 1;
    c.gpus[0].gpus[2].nics = c.gpus[0].gpus[3].nics = c.gpus[1].gpus[2].nics = c.gpus[1].gpus[3].nics = 2;
    c.num_ranks                                                                                       = 9;
    c.places[0] = (mpath_place_t){0, 0, 0};
    c.places[1] = (mpath_place_t){0, 0, 1};
    c.places[2] = (mpath_place_t){0, 1, 2};
    c.places[3] = (mpath_place_t){0, 1, 3};
    c.places[4] = (mpath_place_t){1, 0, 0};
    c.places[5] = (mpath_place_t){1, 0, 1};
    c.places[6] = (mpath_place_t){1, 1, 2};
    c.places[7] = (mpath_place_t){1, 1, 3};
    c.places[8] = (mpath_place_t){0, 0, 0};
    topo        = cluster_build(&c);
    check_all_paths(topo);
    check_text(topo, 0, 4, "0 -rail0-> 4\n0 -peer-> 2 -rail1-> 6 -peer-> 4\n");
    check_text(topo, 0, 5, "0 -rail0-> 5\n0 -peer-> 3 -rail1-> 7 -peer-> 5\n");
    check_text(topo, 0, 8, "0 -peer-> 8\n");
    check_resources(topo, 0, 8, 0, "");
    mpath_topo_destroy(topo);
}

static void test_missing(void **state)
{
    mpath_topo_t *topo;
    cluster_t c;

    (void)state;
    /* Nodes of three and two GPUs: the third rail has no mate. */
    cluster_init(&c, 2, 3, MPATH_GPU_LINK_MESH, 0);
    c.gpus[1].num_gpus     = 2;
    c.machines[1].num_nics = 2;
    c.num_ranks            = 5;
    topo                   = cluster_build(&c);
    check_all_paths(topo);
    check_text(topo, 2, 3, "2 -peer-> 0 -rail0-> 3\n2 -peer-> 1 -rail1-> 4 -peer-> 3\n");
    mpath_topo_destroy(topo);
    /* A NIC that is down, a rail whose GPU has no rank. */
    c.machines[1].nics[0].up = 0;
    topo                     = cluster_build(&c);
    check_all_paths(topo);
    check_text(topo, 0, 3, "0 -peer-> 1 -rail1-> 4 -peer-> 3\n");
    mpath_topo_destroy(topo);
    c.num_ranks = 4;
    topo        = cluster_build(&c);
    check_text(topo, 0, 3, "");
    mpath_topo_destroy(topo);
    /* A communicator of which no two ranks share a rail. */
    cluster_init(&c, 2, 2, MPATH_GPU_LINK_SWITCH, 0);
    c.num_ranks = 2;
    c.places[1] = (mpath_place_t){1, 1, 1};
    topo        = cluster_build(&c);
    check_text(topo, 0, 1, "");
    mpath_topo_destroy(topo);
    c.params.fabric = MPATH_FABRIC_SPINE;
    topo            = cluster_build(&c);
    check_text(topo, 0, 1, "0 -rail0-1-> 1\n");
    mpath_topo_destroy(topo);
}

/* Ranks in host memory beside ranks on GPUs. */
static void test_host_ranks(void **state)
{
    mpath_topo_t *topo;
    cluster_t c;

    (void)state;
    cluster_init(&c, 2, 2, MPATH_GPU_LINK_SWITCH, 0);
    c.num_ranks = 6;
    c.places[4] = (mpath_place_t){0, 0, -1};
    c.places[5] = (mpath_place_t){0, 1, -1};
    topo        = cluster_build(&c);
    check_all_paths(topo);
    check_text(topo, 0, 4, "0 -staged-> 4\n");
    check_resources(topo, 0, 4, 0, "node0/gpu0/pcie-up node0/host-memory");
    check_resources(topo, 4, 1, 0, "node0/host-memory node0/gpu1/pcie-down");
    check_text(topo, 4, 5, "4 -shm-> 5\n");
    check_text(topo, 4, 2, "4 -rail0-> 2\n4 -shm-> 1 -rail1-> 3 -peer-> 2\n");
    check_resources(topo, 4, 2, 0, "node0/nic0/tx node1/nic0/rx node1/gpu0/pcie-down");
    mpath_topo_destroy(topo);
    c.params.access = MPATH_REACH_ALL;
    topo            = cluster_build(&c);
    check_all_paths(topo);
    check_text(topo, 4, 2, "4 -rail0-> 2\n4 -rail1-> 3 -peer-> 2\n");
    check_text(topo, 0, 2, "0 -rail0-> 2\n0 -peer-> 1 -rail1-> 3 -peer-> 2\n");
    mpath_topo_destroy(topo);
}

/* Descriptions that say nothing change nothing. */
static void test_without(void **state)
{
    mpath_topo_t *topo, *plain;
    cluster_t c;
    int i;

    (void)state;
    cluster_init(&c, 2, 4, MPATH_GPU_LINK_SWITCH, 0);
    memset(c.gpus, 0, sizeof(c.gpus));
    topo = cluster_build(&c);
    assert_int_equal(mpath_topo_create(c.machines, c.num_nodes, c.places, c.num_ranks, &c.params, &plain), MPATH_OK);
    assert_true(mpath_topo_signature(topo) == mpath_topo_signature(plain));
    assert_null(mpath_topo_gpus(topo, 0));
    assert_int_equal(mpath_topo_num_resources(topo), 18);
    assert_int_equal(mpath_topo_resource_find(topo, MPATH_RESOURCE_PCIE_UP, 0, 0), -1);
    assert_int_equal(mpath_topo_resource_find(topo, MPATH_RESOURCE_UPLINK_TX, 0, 0), -1);
    assert_int_equal(mpath_topo_nvlink_find(topo, 0, 0, 1), -1);
    check_text(topo, 0, 1, "0 -shm-> 1\n");
    check_text(plain, 0, 1, "0 -shm-> 1\n");
    mpath_topo_destroy(topo);
    mpath_topo_destroy(plain);
    /* GPUs on one node only; the ranks of the other are in its host memory whatever their numbers. */
    cluster_init(&c, 2, 2, MPATH_GPU_LINK_MESH, 0);
    memset(&c.gpus[1], 0, sizeof(c.gpus[1]));
    for (i = 2; i < 4; i++) {
        c.places[i].gpu = 100 + i;
    }
    topo = cluster_build(&c);
    check_all_paths(topo);
    check_text(topo, 2, 3, "2 -shm-> 3\n");
    check_text(topo, 0, 3, "0 -rail0-> 2 -shm-> 3\n0 -peer-> 1 -rail1-> 3\n");
    mpath_topo_destroy(topo);
}

/* Every resource is found by what it says of itself. */
static void test_resources(void **state)
{
    const mpath_resource_t *r;
    mpath_topo_t *topo;
    cluster_t c;
    int i, kind;

    (void)state;
    for (kind = MPATH_GPU_LINK_NONE; kind <= MPATH_GPU_LINK_SWITCH; kind++) {
        cluster_init(&c, 2, 4, (mpath_gpu_link_t)kind, 0);
        c.gpus[1].uplink_bps = 77;
        topo                 = cluster_build(&c);
        assert_int_equal(mpath_topo_num_resources(topo), 2 * (1 + 8 + 8) + 2 +
                                                             ((kind == MPATH_GPU_LINK_MESH)     ? 2 * 12
                                                              : (kind == MPATH_GPU_LINK_SWITCH) ? 2 * 8
                                                                                                : 0));
        for (i = 0; i < mpath_topo_num_resources(topo); i++) {
            r = mpath_topo_resource(topo, i);
            if (r->kind == MPATH_RESOURCE_NVLINK) {
                assert_int_equal(mpath_topo_nvlink_find(topo, r->node, r->index, r->peer), i);
                assert_true(r->capacity_bps == c.gpus[r->node].nvlink_bps[r->index][r->peer]);
            } else {
                assert_int_equal(mpath_topo_resource_find(topo, r->kind, r->node, r->index), i);
                assert_int_equal(r->peer, -1);
            }
        }
        assert_int_equal(mpath_topo_resource_find(topo, MPATH_RESOURCE_UPLINK_TX, 0, 0), -1);
        i = mpath_topo_resource_find(topo, MPATH_RESOURCE_UPLINK_RX, 1, 0);
        assert_int_equal(mpath_topo_resource(topo, i)->capacity_bps, 77);
        assert_int_equal(mpath_topo_resource_find(topo, MPATH_RESOURCE_PCIE_UP, 0, 4), -1);
        mpath_topo_destroy(topo);
    }
}

static uint64_t signature_of(const cluster_t *c)
{
    mpath_topo_t *topo = cluster_build(c);
    uint64_t signature = mpath_topo_signature(topo);

    mpath_topo_destroy(topo);
    return signature;
}

static void test_signature(void **state)
{
    cluster_t base, c;
    uint64_t first;

    (void)state;
    cluster_init(&base, 2, 2, MPATH_GPU_LINK_SWITCH, 0);
    first                        = signature_of(&base);
    c                            = base;
    c.gpus[1].gpus[1].egress_bps = 1;
    assert_true(signature_of(&c) != first);
    c                               = base;
    c.gpus[1].gpus[0].pcie_down_bps = 1;
    assert_true(signature_of(&c) != first);
    c                      = base;
    c.gpus[1].gpus[0].nics = 3;
    assert_true(signature_of(&c) != first);
    c                = base;
    c.gpus[1].domain = 2;
    assert_true(signature_of(&c) != first);
    c                    = base;
    c.gpus[1].uplink_bps = 1;
    assert_true(signature_of(&c) != first);
    c              = base;
    c.gpus[1].link = MPATH_GPU_LINK_PCIE;
    assert_true(signature_of(&c) != first);
    /* A link between other GPUs. */
    cluster_init(&base, 1, 3, MPATH_GPU_LINK_MESH, 0);
    memset(base.gpus[0].nvlink_bps, 0, sizeof(base.gpus[0].nvlink_bps));
    c                             = base;
    base.gpus[0].nvlink_bps[0][1] = 5;
    c.gpus[0].nvlink_bps[0][2]    = 5;
    assert_true(signature_of(&c) != signature_of(&base));
}

static void check_rejected(const cluster_t *c, const char *expected)
{
    mpath_topo_t *topo = NULL;

    capture_start();
    assert_int_equal(
        mpath_topo_create_with_gpus(c->machines, c->gpus, c->num_nodes, c->places, c->num_ranks, &c->params, &topo),
        MPATH_ERR_PARAM);
    capture_stop();
    assert_null(topo);
    assert_int_equal(capture_count(), 1);
    if (strstr(capture_text(), expected) == NULL) {
        fail_msg("'%s' lacks '%s'", capture_text(), expected);
    }
}

static void test_rejected(void **state)
{
    cluster_t base, c;

    (void)state;
    cluster_init(&base, 2, 2, MPATH_GPU_LINK_MESH, 0);
    c                  = base;
    c.gpus[1].num_gpus = MPATH_MAX_GPUS + 1;
    check_rejected(&c, "node 1: number of GPUs 17 must be 0 to 16");
    c              = base;
    c.gpus[0].link = 4;
    check_rejected(&c, "node 0: kind of GPU links 4");
    c                = base;
    c.gpus[0].domain = -2;
    check_rejected(&c, "NVLink domain -2");
    c                    = base;
    c.gpus[1].uplink_bps = MPATH_MAX_RATE_BPS + 1;
    check_rejected(&c, "node 1: uplink rate 10000000000001 must be 0 to");
    c                             = base;
    c.gpus[1].gpus[1].pcie_up_bps = 0;
    check_rejected(&c, "node 1: PCIe up rate 0 of GPU 1 must be 1 to");
    c                             = base;
    c.gpus[1].gpus[1].ingress_bps = MPATH_MAX_RATE_BPS + 1;
    check_rejected(&c, "node 1: ingress rate 10000000000001 of GPU 1");
    c                            = base;
    c.gpus[0].gpus[0].egress_bps = 1;
    check_rejected(&c, "node 0: GPU 0 has only one of egress and ingress");
    c                      = base;
    c.gpus[0].gpus[1].nics = 4;
    check_rejected(&c, "node 0: NICs 0x4 beside GPU 1 are more than the node's 2");
    c                          = base;
    c.gpus[0].nvlink_bps[1][1] = 1;
    check_rejected(&c, "node 0: GPU 1 has an NVLink to itself");
    c                          = base;
    c.gpus[0].nvlink_bps[1][0] = MPATH_MAX_RATE_BPS + 1;
    check_rejected(&c, "node 0: NVLink rate 10000000000001 of GPU 1");
    c               = base;
    c.places[2].gpu = 2;
    check_rejected(&c, "rank 2: GPU 2 must be -1 to 1 on node 1");
}

/* 0 to limit - 1; a linear congruential generator (Knuth's MMIX). */
static int draw(uint64_t *seed, int limit)
{
    *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
    return (int)(*seed >> 33) % limit;
}

static void draw_node(uint64_t *seed, mpath_machine_t *machine, mpath_node_gpus_t *gpus, int node)
{
    int g, k;

    machine->num_nics = draw(seed, 5);
    for (k = 0; k < machine->num_nics; k++) {
        machine->nics[k].up   = (uint8_t)(draw(seed, 5) > 0);
        machine->nics[k].rail = (int16_t)((k * 3 + (node & 1)) % 7);
    }
    gpus->num_gpus   = draw(seed, 5);
    gpus->link       = draw(seed, 4);
    gpus->domain     = draw(seed, 3) - 1;
    gpus->uplink_bps = (uint64_t)draw(seed, 2);
    for (g = 0; g < gpus->num_gpus; g++) {
        gpus->gpus[g].nics        = (uint32_t)draw(seed, 1 << machine->num_nics);
        gpus->gpus[g].egress_bps  = (uint64_t)(draw(seed, 4) > 0);
        gpus->gpus[g].ingress_bps = gpus->gpus[g].egress_bps;
        for (k = 0; k < gpus->num_gpus; k++) {
            gpus->nvlink_bps[g][k] = (k != g) ? (uint64_t)draw(seed, 3) : 0;
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
        cluster_init(&c, 1 + draw(&seed, MAX_TEST_NODES), 4, link, draw(&seed, 2) ? MPATH_FABRIC_SPINE : 0);
        c.params.access = draw(&seed, 2) ? MPATH_REACH_ALL : MPATH_REACH_AFFINE;
        for (n = 0; n < c.num_nodes; n++) {
            draw_node(&seed, &c.machines[n], &c.gpus[n], n);
        }
        c.gpus[0].uplink_bps = 1; /* one node that is described */
        c.num_ranks          = draw(&seed, 17);
        for (r = 0; r < c.num_ranks; r++) {
            node        = draw(&seed, c.num_nodes);
            c.places[r] = (mpath_place_t){.node = node,
                                          .nic  = draw(&seed, c.machines[node].num_nics + 1) - 1,
                                          .gpu  = draw(&seed, c.gpus[node].num_gpus + 1) - 1};
        }
        topo = cluster_build(&c);
        check_all_paths(topo);
        mpath_topo_destroy(topo);
    }
}

/* --- presets ----------------------------------------------------------------------------------------------------- */

static void check_capacity(const mpath_topo_t *topo, mpath_resource_kind_t kind, uint64_t capacity_bps)
{
    int resource = mpath_topo_resource_find(topo, kind, 1, 1);

    assert_true(resource >= 0);
    assert_true(mpath_topo_resource(topo, resource)->capacity_bps == capacity_bps);
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
        check_all_paths(topo);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mesh),      cmocka_unit_test(test_partial_mesh),  cmocka_unit_test(test_switch),
        cmocka_unit_test(test_domain),    cmocka_unit_test(test_pcie_and_none), cmocka_unit_test(test_nics_and_gpus),
        cmocka_unit_test(test_missing),   cmocka_unit_test(test_host_ranks),    cmocka_unit_test(test_without),
        cmocka_unit_test(test_resources), cmocka_unit_test(test_signature),     cmocka_unit_test(test_rejected),
        cmocka_unit_test(test_random),    cmocka_unit_test(test_presets),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
