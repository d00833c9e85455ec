/* SPDX-License-Identifier: BSD-3-Clause */
/* The GPUs of a topology: checks of their description, their resources, and the ranks on them. */
#include "topo/topo_internal.h"
#include "util/log.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Half of a flag's round trip between two GPUs of an H200 host, 2.6 us; the rest are rough costs. */
#define NVLINK_LATENCY_NS 1300
#define PORT_LATENCY_NS 650 /* each end */
#define PCIE_LATENCY_NS 1000

/* --- checks ------------------------------------------------------------------------------------------------------ */

int mpath_gpus_described(const mpath_node_gpus_t *gpus, int num_nodes)
{
    int i;

    for (i = 0; i < num_nodes; i++) {
        if ((gpus[i].num_gpus != 0) || (gpus[i].uplink_bps != 0)) {
            return 1;
        }
    }
    return 0;
}

static mpath_status_t gpus_check_rate(int node, int gpu, const char *what, uint64_t rate_bps, uint64_t min_bps)
{
    if ((rate_bps < min_bps) || (rate_bps > MPATH_MAX_RATE_BPS)) {
        mpath_error("topology: node %d: %s rate %llu of GPU %d must be %llu to %lld bytes/s; no topology built", node,
                    what, (unsigned long long)rate_bps, gpu, (unsigned long long)min_bps, MPATH_MAX_RATE_BPS);
        return MPATH_ERR_PARAM;
    }
    return MPATH_OK;
}

static mpath_status_t gpus_check_one(const mpath_machine_t *machine, const mpath_node_gpus_t *gpus, int node, int g)
{
    const mpath_gpu_t *gpu = &gpus->gpus[g];
    mpath_status_t status;
    int peer;

    if (((status = gpus_check_rate(node, g, "PCIe up", gpu->pcie_up_bps, 1)) != MPATH_OK) ||
        ((status = gpus_check_rate(node, g, "PCIe down", gpu->pcie_down_bps, 1)) != MPATH_OK) ||
        ((status = gpus_check_rate(node, g, "egress", gpu->egress_bps, 0)) != MPATH_OK) ||
        ((status = gpus_check_rate(node, g, "ingress", gpu->ingress_bps, 0)) != MPATH_OK)) {
        return status;
    }
    if ((gpu->egress_bps == 0) != (gpu->ingress_bps == 0)) {
        mpath_error("topology: node %d: GPU %d has only one of egress and ingress; no topology built", node, g);
        return MPATH_ERR_PARAM;
    }
    if ((machine->num_nics < MPATH_MAX_NICS) && (gpu->nics >> machine->num_nics)) {
        mpath_error("topology: node %d: NICs 0x%" PRIx64
                    " beside GPU %d are more than the node's %d; no topology built",
                    node, gpu->nics, g, machine->num_nics);
        return MPATH_ERR_PARAM;
    }
    for (peer = 0; peer < gpus->num_gpus; peer++) {
        status = gpus_check_rate(node, g, "NVLink", gpus->nvlink_bps[g][peer], 0);
        if (status != MPATH_OK) {
            return status;
        }
    }
    if (gpus->nvlink_bps[g][g] != 0) {
        mpath_error("topology: node %d: GPU %d has an NVLink to itself; no topology built", node, g);
        return MPATH_ERR_PARAM;
    }
    return MPATH_OK;
}

static mpath_status_t gpus_check_node(const mpath_machine_t *machine, const mpath_node_gpus_t *gpus, int node)
{
    mpath_status_t status;
    int g;

    if ((gpus->num_gpus < 0) || (gpus->num_gpus > MPATH_MAX_GPUS)) {
        mpath_error("topology: node %d: number of GPUs %d must be 0 to %d; no topology built", node, gpus->num_gpus,
                    MPATH_MAX_GPUS);
        return MPATH_ERR_PARAM;
    }
    if ((gpus->link < MPATH_GPU_LINK_NONE) || (gpus->link > MPATH_GPU_LINK_SWITCH) || (gpus->domain < -1)) {
        mpath_error("topology: node %d: kind of GPU links %d or NVLink domain %d is unknown; no topology built", node,
                    gpus->link, gpus->domain);
        return MPATH_ERR_PARAM;
    }
    if (gpus->uplink_bps > MPATH_MAX_RATE_BPS) {
        mpath_error("topology: node %d: uplink rate %llu must be 0 to %lld bytes/s; no topology built", node,
                    (unsigned long long)gpus->uplink_bps, MPATH_MAX_RATE_BPS);
        return MPATH_ERR_PARAM;
    }
    for (g = 0; g < gpus->num_gpus; g++) {
        status = gpus_check_one(machine, gpus, node, g);
        if (status != MPATH_OK) {
            return status;
        }
    }
    return MPATH_OK;
}

mpath_status_t mpath_gpus_check(const mpath_machine_t *machines, const mpath_node_gpus_t *gpus, int num_nodes,
                                const mpath_place_t *places, int num_ranks)
{
    mpath_status_t status;
    int i, count;

    for (i = 0; i < num_nodes; i++) {
        status = gpus_check_node(&machines[i], &gpus[i], i);
        if (status != MPATH_OK) {
            return status;
        }
    }
    for (i = 0; i < num_ranks; i++) {
        count = gpus[places[i].node].num_gpus;
        if ((count > 0) && (places[i].gpu >= count)) {
            mpath_error("topology: rank %d: GPU %d must be -1 to %d on node %d; no topology built", i, places[i].gpu,
                        count - 1, places[i].node);
            return MPATH_ERR_PARAM;
        }
    }
    return MPATH_OK;
}

/* --- resources --------------------------------------------------------------------------------------------------- */

static int gpus_have_link(const mpath_node_gpus_t *gpus, int from, int to)
{
    return (gpus->link == MPATH_GPU_LINK_MESH) && (gpus->nvlink_bps[from][to] > 0);
}

static int gpus_have_port(const mpath_node_gpus_t *gpus, int gpu)
{
    return (gpus->link == MPATH_GPU_LINK_SWITCH) && (gpus->gpus[gpu].egress_bps > 0);
}

size_t mpath_gpus_count_resources(const mpath_node_gpus_t *gpus)
{
    size_t count = (gpus->uplink_bps > 0) ? 2 : 0;
    int from, to;

    for (from = 0; from < gpus->num_gpus; from++) {
        count += gpus_have_port(gpus, from) ? 4 : 2;
        for (to = 0; to < gpus->num_gpus; to++) {
            count += gpus_have_link(gpus, from, to) ? 1 : 0;
        }
    }
    return count;
}

static void number_uplink(mpath_topo_t *topo, int node)
{
    mpath_topo_gpu_node_t *tables = &topo->gpu_nodes[node];
    uint64_t rate_bps             = topo->gpus[node].uplink_bps;

    tables->uplink_tx = tables->uplink_rx = -1;
    if (rate_bps > 0) {
        tables->uplink_tx = topo->num_resources;
        mpath_topo_add_resource(topo, MPATH_RESOURCE_UPLINK_TX, node, 0, rate_bps, 0);
        tables->uplink_rx = topo->num_resources;
        mpath_topo_add_resource(topo, MPATH_RESOURCE_UPLINK_RX, node, 0, rate_bps, 0);
    }
}

static void number_ports(mpath_topo_t *topo, int node)
{
    const mpath_node_gpus_t *gpus = &topo->gpus[node];
    mpath_topo_gpu_node_t *tables = &topo->gpu_nodes[node];
    int g;

    for (g = 0; g < MPATH_MAX_GPUS; g++) {
        tables->egress[g] = tables->ingress[g] = -1;
        if ((g < gpus->num_gpus) && gpus_have_port(gpus, g)) {
            tables->egress[g] = topo->num_resources;
            mpath_topo_add_resource(topo, MPATH_RESOURCE_GPU_EGRESS, node, g, gpus->gpus[g].egress_bps,
                                    PORT_LATENCY_NS);
            tables->ingress[g] = topo->num_resources;
            mpath_topo_add_resource(topo, MPATH_RESOURCE_GPU_INGRESS, node, g, gpus->gpus[g].ingress_bps,
                                    PORT_LATENCY_NS);
        }
    }
}

static void number_nvlinks(mpath_topo_t *topo, int node)
{
    const mpath_node_gpus_t *gpus = &topo->gpus[node];
    mpath_topo_gpu_node_t *tables = &topo->gpu_nodes[node];
    int from, to;

    memset(tables->nvlink, -1, sizeof(tables->nvlink));
    for (from = 0; from < gpus->num_gpus; from++) {
        for (to = 0; to < gpus->num_gpus; to++) {
            if (!gpus_have_link(gpus, from, to)) {
                continue;
            }
            tables->nvlink[from][to] = topo->num_resources;
            tables->links_to[from] |= 1u << to;
            tables->links_from[to] |= 1u << from;
            mpath_topo_add_resource(topo, MPATH_RESOURCE_NVLINK, node, from, gpus->nvlink_bps[from][to],
                                    NVLINK_LATENCY_NS);
            topo->resources[tables->nvlink[from][to]].peer = to;
        }
    }
}

void mpath_gpus_number_resources(mpath_topo_t *topo, int node)
{
    const mpath_node_gpus_t *gpus = &topo->gpus[node];
    int g;

    number_uplink(topo, node);
    topo->gpu_nodes[node].pcie = topo->num_resources;
    for (g = 0; g < gpus->num_gpus; g++) {
        mpath_topo_add_resource(topo, MPATH_RESOURCE_PCIE_UP, node, g, gpus->gpus[g].pcie_up_bps, PCIE_LATENCY_NS);
        mpath_topo_add_resource(topo, MPATH_RESOURCE_PCIE_DOWN, node, g, gpus->gpus[g].pcie_down_bps, PCIE_LATENCY_NS);
    }
    number_ports(topo, node);
    number_nvlinks(topo, node);
}

/* --- ranks ------------------------------------------------------------------------------------------------------- */

/* Bit k: the rank counts in bucket k of its node. */
typedef uint64_t (*bucket_mask_t)(const mpath_topo_t *topo, int rank);

static uint64_t bucket_gpu(const mpath_topo_t *topo, int rank)
{
    return topo->places[rank].no_relay ? 0 : 1ull << topo->places[rank].gpu;
}

static uint64_t bucket_nics(const mpath_topo_t *topo, int rank)
{
    return topo->places[rank].no_relay ? 0 : mpath_topo_gpu_nics(topo, rank);
}

/*
 * Counting sort of the ranks on GPUs by (node, bucket), a rank once for each of its buckets; ranks keep their order.
 * bounds(node)[k] to bounds(node)[k + 1] are bucket k's in the list.
 */
static mpath_status_t sort_ranks(mpath_topo_t *topo, bucket_mask_t mask_of, size_t bounds_offset, int num_buckets,
                                 int32_t **list_p)
{
    int32_t *bounds, *list, next = 0, count;
    uint64_t mask;
    int node, rank, k;

#define BOUNDS(_node) ((int32_t *)((char *)&topo->gpu_nodes[_node] + bounds_offset))
    for (rank = 0; rank < topo->num_ranks; rank++) {
        for (mask = (mpath_topo_gpu(topo, rank) >= 0) ? mask_of(topo, rank) : 0; mask != 0; mask &= mask - 1) {
            BOUNDS(topo->places[rank].node)[__builtin_ctzll(mask)]++;
        }
    }
    for (node = 0; node < topo->num_nodes; node++) {
        for (bounds = BOUNDS(node), k = 0; k <= num_buckets; k++) {
            count     = bounds[k];
            bounds[k] = next;
            next += count;
        }
    }
    list = malloc(((size_t)next + 1) * sizeof(*list));
    if (list == NULL) {
        mpath_error("topology: no memory for %d ranks on GPUs; no topology built", topo->num_ranks);
        return MPATH_ERR_NO_MEMORY;
    }
    for (rank = 0; rank < topo->num_ranks; rank++) {
        for (mask = (mpath_topo_gpu(topo, rank) >= 0) ? mask_of(topo, rank) : 0; mask != 0; mask &= mask - 1) {
            list[BOUNDS(topo->places[rank].node)[__builtin_ctzll(mask)]++] = rank;
        }
    }
    /* Filling moved each start to its end, which is the next one's start. */
    for (node = 0; node < topo->num_nodes; node++) {
        for (bounds = BOUNDS(node), k = num_buckets; k > 0; k--) {
            bounds[k] = bounds[k - 1];
        }
        bounds[0] = (node > 0) ? BOUNDS(node - 1)[num_buckets] : 0;
    }
#undef BOUNDS
    *list_p = list;
    return MPATH_OK;
}

/* Of the NICs that a rank's node uses, those beside it and those beside ranks that pass bytes on for it. */
static uint64_t nics_reached(const mpath_topo_t *topo, int rank)
{
    const mpath_topo_gpu_node_t *tables = &topo->gpu_nodes[topo->places[rank].node];
    uint64_t own = mpath_topo_gpu_nics(topo, rank), nics = 0;

    for (int k = 0; k < tables->rails.num_used; k++) {
        int nic = tables->rails.used[k], reaches = (own >> nic) & 1;

        for (int32_t i = tables->beside[nic]; !reaches && (i < tables->beside[nic + 1]); i++) {
            reaches = mpath_gpu_can_pass(topo, rank, topo->gpu_beside[i]);
        }
        nics |= reaches ? 1ull << nic : 0;
    }
    return nics;
}

/* Nonzero: all ranks beside a NIC can pass bytes on for all other ranks on GPUs of their node. */
static int all_pass(const mpath_topo_t *topo, int rank)
{
    const mpath_topo_gpu_node_t *tables = &topo->gpu_nodes[topo->places[rank].node];
    uint64_t own                        = mpath_topo_gpu_nics(topo, rank);
    int all                             = 1;

    for (int k = 0; k < tables->rails.num_used; k++) {
        int nic = tables->rails.used[k];

        for (int32_t i = tables->beside[nic]; !((own >> nic) & 1) && all && (i < tables->beside[nic + 1]); i++) {
            all = mpath_gpu_can_pass(topo, rank, topo->gpu_beside[i]);
        }
    }
    return all;
}

/* With peer_legs some ranks may not reach all NICs of their node. */
static mpath_status_t limit_reach(mpath_topo_t *topo)
{
    int limited = 0, several = 0;

    for (int rank = 0; topo->params.peer_legs && (rank < topo->num_ranks); rank++) {
        limited = limited || ((mpath_topo_gpu(topo, rank) >= 0) && !all_pass(topo, rank));
        several = several || (topo->places[rank].node != topo->places[0].node);
    }
    if (!limited || !several) {
        return MPATH_OK;
    }
    topo->reach = calloc((size_t)topo->num_ranks, sizeof(*topo->reach));
    if (topo->reach == NULL) {
        mpath_error("topology: no memory for the rails of %d ranks; no topology built", topo->num_ranks);
        return MPATH_ERR_NO_MEMORY;
    }
    for (int rank = 0; rank < topo->num_ranks; rank++) {
        if (mpath_topo_gpu(topo, rank) >= 0) {
            mpath_rail_set_init(&topo->reach[rank], topo->machines[topo->places[rank].node], nics_reached(topo, rank));
        }
    }
    return MPATH_OK;
}

mpath_status_t mpath_gpus_place_ranks(mpath_topo_t *topo)
{
    mpath_topo_gpu_node_t *tables;
    mpath_status_t status;
    uint64_t nics;
    int node, k;

    status = sort_ranks(topo, bucket_gpu, offsetof(mpath_topo_gpu_node_t, on_gpu), MPATH_MAX_GPUS, &topo->on_gpu);
    if (status != MPATH_OK) {
        return status;
    }
    status = sort_ranks(topo, bucket_nics, offsetof(mpath_topo_gpu_node_t, beside), MPATH_MAX_NICS, &topo->gpu_beside);
    if (status != MPATH_OK) {
        return status;
    }
    for (node = 0; node < topo->num_nodes; node++) {
        tables = &topo->gpu_nodes[node];
        for (k = 0, nics = 0; k < MPATH_MAX_NICS; k++) {
            nics |= (tables->beside[k + 1] > tables->beside[k]) ? 1ull << k : 0;
        }
        for (k = 0; k < MPATH_MAX_GPUS; k++) {
            tables->occupied |= (tables->on_gpu[k + 1] > tables->on_gpu[k]) ? 1u << k : 0;
        }
        mpath_rail_set_init(&tables->rails, topo->machines[node], nics);
    }
    return limit_reach(topo);
}

/* --- signature --------------------------------------------------------------------------------------------------- */

uint64_t mpath_gpus_sign(const mpath_topo_t *topo, uint64_t hash)
{
    const mpath_node_gpus_t *gpus;
    int node, g;

    for (node = 0; node < topo->num_nodes; node++) {
        gpus = &topo->gpus[node];
        if (gpus->num_gpus == 0) {
            continue;
        }
        hash = mpath_topo_mix(hash, ((uint64_t)(uint32_t)gpus->num_gpus << 32) | (uint32_t)gpus->link);
        hash = mpath_topo_mix(hash, (gpus->link == MPATH_GPU_LINK_SWITCH) ? (uint64_t)(uint32_t)gpus->domain : 0);
        for (g = 0; g < gpus->num_gpus; g++) {
            hash = mpath_topo_mix(hash, gpus->gpus[g].nics);
        }
    }
    /* The rates, and which links there are. */
    for (g = 0; g < topo->num_resources; g++) {
        hash = mpath_topo_mix(hash, topo->resources[g].capacity_bps);
        hash = mpath_topo_mix(hash, ((uint64_t)topo->resources[g].kind << 48) |
                                        ((uint64_t)(uint32_t)topo->resources[g].index << 16) |
                                        (uint16_t)topo->resources[g].peer);
    }
    return hash;
}
