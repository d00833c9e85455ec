/* SPDX-License-Identifier: BSD-3-Clause */
/* Clusters of GPUs, and what every path of a topology with GPUs must be: its hops, its resources, its latency. */
#include "unit/topo_gpu_support.h"
#include "unit/capture.h"

#include <stdio.h>
#include <string.h>

void cluster_init_gpus(cluster_t *c, int nodes, int gpus, mpath_gpu_link_t link, uint32_t fabric)
{
    int n, g, k;

    memset(c, 0, sizeof(*c));
    c->with_gpus = 1;
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
            assert_true((path->num_hops == 1) || !mpath_topo_params(topo)->peer_legs);
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
        latency += mpath_topo_resource(topo, e.resources[i]).latency_ns;
    }
    assert_int_equal(path->latency_ns, latency);
}

void topo_gpu_check_all_paths(const mpath_topo_t *topo)
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
