/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Builds a topology from machines, places and GPUs. What cannot be used is named, and nothing is built; else the resources
 * are numbered and the ranks sorted by NIC and by GPU.
 */
#include "topo/topo_internal.h"

#include "util/log.h"
#include "util/reserve.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Half of a flag's round trip between two GPUs of an H200 host, 2.6 us; the rest are rough costs. */
#define NVLINK_LATENCY_NS 1300
#define PORT_LATENCY_NS 650 /* each end */
#define PCIE_LATENCY_NS 1000

/* --- entries of tables ------------------------------------------------------------------------------------------- */

static void topo_add_resource(mpath_topo_t *topo, mpath_resource_kind_t kind, int node, int index,
                              uint64_t capacity_bps, uint16_t latency_ns)
{
    mpath_resource_t *resource = &topo->resources[topo->num_resources++];

    resource->kind         = (uint8_t)kind;
    resource->node         = (uint32_t)node;
    resource->index        = (int8_t)index;
    resource->peer         = -1;
    resource->capacity_bps = capacity_bps;
    resource->latency_ns   = latency_ns;
}

/* Adds the NIC of a rail. */
static void rail_set_init(mpath_rail_set_t *set, const mpath_machine_t *machine, uint64_t nics)
{
    int nic, rail;

    memset(set->nic_of_rail, -1, sizeof(set->nic_of_rail));
    for (nic = 0; nic < machine->num_nics; nic++) {
        if (machine->nics[nic].up && ((nics >> nic) & 1)) {
            set->nic_of_rail[machine->nics[nic].rail] = (int8_t)nic;
            set->mask |= 1ull << machine->nics[nic].rail;
        }
    }
    for (rail = 0; rail < MPATH_MAX_RAILS; rail++) {
        if (set->nic_of_rail[rail] >= 0) {
            set->used[set->num_used++] = set->nic_of_rail[rail];
        }
    }
}

/* The finalizer of splitmix64 (Steele, Lea, Flood, OOPSLA 2014), chained. */
static uint64_t topo_mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) + 0x9e3779b97f4a7c15ull;
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9ull;
    hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebull;
    return hash ^ (hash >> 31);
}

/* --- GPUs: links ------------------------------------------------------------------------------------------------- */

int mpath_gpu_can_peer(const mpath_topo_t *topo, int node, int from, int to)
{
    const mpath_topo_gpu_node_t *tables = &topo->gpu_nodes[node];

    if (from == to) {
        return 1;
    }
    switch (topo->gpus[node].link) {
    case MPATH_GPU_LINK_PCIE:
        return 1;
    case MPATH_GPU_LINK_MESH:
        return tables->nvlink[from][to] >= 0;
    case MPATH_GPU_LINK_SWITCH:
        return (tables->egress[from] >= 0) && (tables->ingress[to] >= 0);
    default:
        return 0;
    }
}

int mpath_gpu_can_pass(const mpath_topo_t *topo, int rank, int mate)
{
    int node = topo->places[rank].node, gpu = topo->places[rank].gpu, other = topo->places[mate].gpu;

    return mpath_gpu_can_peer(topo, node, gpu, other) && mpath_gpu_can_peer(topo, node, other, gpu);
}

/* --- GPUs: checks ------------------------------------------------------------------------------------------------ */

/* The parts of mpath_topo_create_with_gpus() that only GPUs need. */
static int gpus_described(const mpath_node_gpus_t *gpus, int num_nodes)
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

static mpath_status_t gpus_check(const mpath_machine_t *machines, const mpath_node_gpus_t *gpus, int num_nodes,
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

/* --- GPUs: resources --------------------------------------------------------------------------------------------- */

static int gpus_have_link(const mpath_node_gpus_t *gpus, int from, int to)
{
    return (gpus->link == MPATH_GPU_LINK_MESH) && (gpus->nvlink_bps[from][to] > 0);
}

static int gpus_have_port(const mpath_node_gpus_t *gpus, int gpu)
{
    return (gpus->link == MPATH_GPU_LINK_SWITCH) && (gpus->gpus[gpu].egress_bps > 0);
}

static size_t gpus_count_resources(const mpath_node_gpus_t *gpus)
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
        topo_add_resource(topo, MPATH_RESOURCE_UPLINK_TX, node, 0, rate_bps, 0);
        tables->uplink_rx = topo->num_resources;
        topo_add_resource(topo, MPATH_RESOURCE_UPLINK_RX, node, 0, rate_bps, 0);
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
            topo_add_resource(topo, MPATH_RESOURCE_GPU_EGRESS, node, g, gpus->gpus[g].egress_bps, PORT_LATENCY_NS);
            tables->ingress[g] = topo->num_resources;
            topo_add_resource(topo, MPATH_RESOURCE_GPU_INGRESS, node, g, gpus->gpus[g].ingress_bps, PORT_LATENCY_NS);
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
            topo_add_resource(topo, MPATH_RESOURCE_NVLINK, node, from, gpus->nvlink_bps[from][to], NVLINK_LATENCY_NS);
            topo->resources[tables->nvlink[from][to]].peer = (int8_t)to;
        }
    }
}

static void gpus_number_resources(mpath_topo_t *topo, int node)
{
    const mpath_node_gpus_t *gpus = &topo->gpus[node];
    int g;

    number_uplink(topo, node);
    topo->gpu_nodes[node].pcie = topo->num_resources;
    for (g = 0; g < gpus->num_gpus; g++) {
        topo_add_resource(topo, MPATH_RESOURCE_PCIE_UP, node, g, gpus->gpus[g].pcie_up_bps, PCIE_LATENCY_NS);
        topo_add_resource(topo, MPATH_RESOURCE_PCIE_DOWN, node, g, gpus->gpus[g].pcie_down_bps, PCIE_LATENCY_NS);
    }
    number_ports(topo, node);
    number_nvlinks(topo, node);
}

/* --- GPUs: ranks ------------------------------------------------------------------------------------------------- */

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
            rail_set_init(&topo->reach[rank], topo->machines[topo->places[rank].node], nics_reached(topo, rank));
        }
    }
    return MPATH_OK;
}

static mpath_status_t gpus_place_ranks(mpath_topo_t *topo)
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
        rail_set_init(&tables->rails, topo->machines[node], nics);
    }
    return limit_reach(topo);
}

/* --- GPUs: signature --------------------------------------------------------------------------------------------- */

static uint64_t gpus_sign(const mpath_topo_t *topo, uint64_t hash)
{
    const mpath_node_gpus_t *gpus;
    int node, g;

    for (node = 0; node < topo->num_nodes; node++) {
        gpus = &topo->gpus[node];
        if (gpus->num_gpus == 0) {
            continue;
        }
        hash = topo_mix(hash, ((uint64_t)(uint32_t)gpus->num_gpus << 32) | (uint32_t)gpus->link);
        hash = topo_mix(hash, (gpus->link == MPATH_GPU_LINK_SWITCH) ? (uint64_t)(uint32_t)gpus->domain : 0);
        for (g = 0; g < gpus->num_gpus; g++) {
            hash = topo_mix(hash, gpus->gpus[g].nics);
        }
    }
    /* The rates, and which links there are. */
    for (g = 0; g < topo->num_resources; g++) {
        hash = topo_mix(hash, topo->resources[g].capacity_bps);
        hash = topo_mix(hash, ((uint64_t)topo->resources[g].kind << 48) |
                                  ((uint64_t)(uint32_t)topo->resources[g].index << 16) |
                                  (uint16_t)topo->resources[g].peer);
    }
    return hash;
}

#define MAX_NODES 65536
#define MAX_RANKS (1 << 20)

/* --- checks ------------------------------------------------------------------------------------------------------ */

static mpath_status_t check_nic(const mpath_machine_t *machine, int node, int nic, uint64_t *rails)
{
    const mpath_nic_t *n = &machine->nics[nic];

    if (memchr(n->name, '\0', sizeof(n->name)) == NULL) {
        mpath_error("topology: node %d: the name of NIC %d has no end; no topology built", node, nic);
        return MPATH_ERR_PARAM;
    }
    if ((n->rate_bps == 0) || (n->rate_bps > MPATH_MAX_RATE_BPS)) {
        mpath_error("topology: node %d: rate %llu of NIC %d '%s' must be 1 to %lld bytes/s; no topology built", node,
                    (unsigned long long)n->rate_bps, nic, n->name, MPATH_MAX_RATE_BPS);
        return MPATH_ERR_PARAM;
    }
    if ((n->rail < 0) || (n->rail >= MPATH_MAX_RAILS)) {
        mpath_error("topology: node %d: rail %d of NIC %d '%s' must be 0 to %d; no topology built", node, n->rail, nic,
                    n->name, MPATH_MAX_RAILS - 1);
        return MPATH_ERR_PARAM;
    }
    if (*rails & (1ull << n->rail)) {
        mpath_error("topology: node %d: NIC %d '%s' is on rail %d as another NIC before it; no topology built", node,
                    nic, n->name, n->rail);
        return MPATH_ERR_PARAM;
    }
    *rails |= 1ull << n->rail;
    return MPATH_OK;
}

static mpath_status_t check_machine(const mpath_machine_t *machine, int node)
{
    mpath_status_t status;
    uint64_t rails = 0;
    int nic;

    if (memchr(machine->host, '\0', sizeof(machine->host)) == NULL) {
        mpath_error("topology: node %d: the host name has no end; no topology built", node);
        return MPATH_ERR_PARAM;
    }
    if ((machine->num_nics < 0) || (machine->num_nics > MPATH_MAX_NICS)) {
        mpath_error("topology: node %d: number of NICs %d must be 0 to %d; no topology built", node, machine->num_nics,
                    MPATH_MAX_NICS);
        return MPATH_ERR_PARAM;
    }
    if ((machine->host_memory_bps == 0) || (machine->host_memory_bps > MPATH_MAX_RATE_BPS)) {
        mpath_error("topology: node %d: host memory rate %llu must be 1 to %lld bytes/s; no topology built", node,
                    (unsigned long long)machine->host_memory_bps, MPATH_MAX_RATE_BPS);
        return MPATH_ERR_PARAM;
    }
    for (nic = 0; nic < machine->num_nics; nic++) {
        status = check_nic(machine, node, nic, &rails);
        if (status != MPATH_OK) {
            return status;
        }
    }
    return MPATH_OK;
}

static mpath_status_t check_place(const mpath_machine_t *machines, int num_nodes, const mpath_place_t *place, int rank)
{
    if ((place->node < 0) || (place->node >= num_nodes)) {
        mpath_error("topology: rank %d: node %d must be 0 to %d; no topology built", rank, place->node, num_nodes - 1);
        return MPATH_ERR_PARAM;
    }
    if ((place->nic < -1) || (place->nic >= machines[place->node].num_nics)) {
        mpath_error("topology: rank %d: NIC %d must be -1 to %d on node %d; no topology built", rank, place->nic,
                    machines[place->node].num_nics - 1, place->node);
        return MPATH_ERR_PARAM;
    }
    if (place->gpu < -1) {
        mpath_error("topology: rank %d: GPU %d must be -1 or more; no topology built", rank, place->gpu);
        return MPATH_ERR_PARAM;
    }
    return MPATH_OK;
}

/* MPATH_ERR_PARAM, logged, when no topology can be built from them. */
static mpath_status_t topo_check(const mpath_machine_t *machines, int num_nodes, const mpath_place_t *places,
                                 int num_ranks, const mpath_topo_params_t *params)
{
    mpath_status_t status;
    int i;

    if ((num_nodes < 1) || (num_nodes > MAX_NODES) || (num_ranks < 0) || (num_ranks > MAX_RANKS)) {
        mpath_error("topology: %d nodes and %d ranks must be 1 to %d and 0 to %d; no topology built", num_nodes,
                    num_ranks, MAX_NODES, MAX_RANKS);
        return MPATH_ERR_PARAM;
    }
    if ((params->access != MPATH_REACH_ALL) && (params->access != MPATH_REACH_AFFINE)) {
        mpath_error("topology: access mode %d is unknown; no topology built", (int)params->access);
        return MPATH_ERR_PARAM;
    }
    for (i = 0; i < num_nodes; i++) {
        status = check_machine(&machines[i], i);
        if (status != MPATH_OK) {
            return status;
        }
    }
    for (i = 0; i < num_ranks; i++) {
        status = check_place(machines, num_nodes, &places[i], i);
        if (status != MPATH_OK) {
            return status;
        }
    }
    return MPATH_OK;
}

/* Rough costs of the start of a transfer; a path's latency is the sum over its resources. */
#define HOST_MEMORY_LATENCY_NS 500
#define NIC_LATENCY_NS 1000 /* each end */

/* --- tables ------------------------------------------------------------------------------------------------------ */

static void topo_number_resources(mpath_topo_t *topo)
{
    const mpath_machine_t *machine;
    int node, nic;

    for (node = 0; node < topo->num_nodes; node++) {
        machine                          = topo->machines[node];
        topo->nodes[node].first_resource = topo->num_resources;
        topo_add_resource(topo, MPATH_RESOURCE_HOST_MEMORY, node, 0, machine->host_memory_bps, HOST_MEMORY_LATENCY_NS);
        for (nic = 0; nic < machine->num_nics; nic++) {
            topo_add_resource(topo, MPATH_RESOURCE_NIC_TX, node, nic, machine->nics[nic].rate_bps, NIC_LATENCY_NS);
            topo_add_resource(topo, MPATH_RESOURCE_NIC_RX, node, nic, machine->nics[nic].rate_bps, NIC_LATENCY_NS);
        }
        if (topo->gpus != NULL) {
            gpus_number_resources(topo, node);
        }
    }
}

/* Counting sort of the ranks that have a NIC by (node, NIC); ranks keep their order. */
static void topo_sort_ranks(mpath_topo_t *topo)
{
    int32_t next = 0, count, *bounds = topo->bounds;
    mpath_topo_node_t *node;
    int i, n, rank;

    for (i = 0; i < topo->num_nodes; i++) {
        topo->nodes[i].beside = bounds;
        bounds += topo->machines[i]->num_nics + 1;
    }
    for (rank = 0; rank < topo->num_ranks; rank++) {
        if (topo->places[rank].nic >= 0) {
            topo->nodes[topo->places[rank].node].beside[topo->places[rank].nic]++;
        }
    }
    for (i = 0; i < topo->num_nodes; i++) {
        node = &topo->nodes[i];
        for (n = 0; n <= topo->machines[i]->num_nics; n++) {
            count           = node->beside[n];
            node->beside[n] = next;
            next += count;
        }
    }
    for (rank = 0; rank < topo->num_ranks; rank++) {
        if (topo->places[rank].nic >= 0) {
            node                                                 = &topo->nodes[topo->places[rank].node];
            topo->beside[node->beside[topo->places[rank].nic]++] = rank;
        }
    }
    /* Filling moved each start to its end, which is the next one's start. */
    for (i = 0; i < topo->num_nodes; i++) {
        node = &topo->nodes[i];
        for (n = topo->machines[i]->num_nics; n > 0; n--) {
            node->beside[n] = node->beside[n - 1];
        }
        node->beside[0] = (i > 0) ? node->beside[-1] : 0; /* the last of the node before */
    }
}

/* The NICs of a node in use. */
static void topo_find_rails(const mpath_topo_t *topo, int index, mpath_rail_set_t *rails)
{
    const mpath_topo_node_t *node = &topo->nodes[index];
    uint64_t nics                 = 0;
    int nic;

    for (nic = 0; nic < topo->machines[index]->num_nics; nic++) {
        if ((node->beside[nic + 1] > node->beside[nic]) || (topo->params.access == MPATH_REACH_ALL)) {
            nics |= 1ull << nic;
        }
    }
    memset(rails, 0, sizeof(*rails));
    rail_set_init(rails, topo->machines[index], nics);
}

static int rail_sets_are_equal(const mpath_rail_set_t *a, const mpath_rail_set_t *b)
{
    return a->mask == b->mask && a->num_used == b->num_used && memcmp(a->used, b->used, sizeof(a->used)) == 0 &&
           memcmp(a->nic_of_rail, b->nic_of_rail, sizeof(a->nic_of_rail)) == 0;
}

/* Stores those of all nodes, once where a node has those of the node before it. */
static mpath_status_t topo_list_rails(mpath_topo_t *topo)
{
    mpath_rail_set_t rails, before;
    size_t count = 0;

    for (int node = 0; node < topo->num_nodes; node++, before = rails) {
        topo_find_rails(topo, node, &rails);
        count += node == 0 || !rail_sets_are_equal(&rails, &before);
    }
    topo->rail_sets         = malloc(count * sizeof(*topo->rail_sets));
    topo->changed_rail_sets = mpath_reserve((size_t)topo->num_nodes * sizeof(*topo->changed_rail_sets));
    if (topo->rail_sets == NULL || topo->changed_rail_sets == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    count = 0;
    for (int node = 0; node < topo->num_nodes; node++) {
        topo_find_rails(topo, node, &rails);
        if (node == 0 || !rail_sets_are_equal(&rails, topo->nodes[node - 1].rails)) {
            topo->rail_sets[count++] = rails;
        }
        topo->nodes[node].rails = &topo->rail_sets[count - 1];
    }
    return MPATH_OK;
}

static const mpath_rail_set_t *rails_in_use(const mpath_topo_t *topo, int node)
{
    int on_gpus = (topo->gpus != NULL) && (topo->gpu_nodes[node].occupied != 0);

    return on_gpus ? &topo->gpu_nodes[node].rails : topo->nodes[node].rails;
}

int mpath_topo_rails_alike(const mpath_topo_t *topo)
{
    const mpath_rail_set_t *first = rails_in_use(topo, 0), *rails;
    uint64_t rate_bps;

    if (first->num_used == 0) {
        return 0;
    }
    rate_bps = topo->machines[0]->nics[first->used[0]].rate_bps;
    for (int i = 0; i < topo->num_nodes; i++) {
        rails = rails_in_use(topo, i);
        if (rails->mask != first->mask) {
            return 0;
        }
        for (int k = 0; k < rails->num_used; k++) {
            if (topo->machines[i]->nics[rails->used[k]].rate_bps != rate_bps) {
                return 0;
            }
        }
    }
    return 1;
}

/* Whether a node has the NICs in use of the first one, rail by rail with their rates. */
static int node_matches(const mpath_topo_t *topo, int node)
{
    const mpath_rail_set_t *first = topo->nodes[0].rails, *rails = topo->nodes[node].rails;
    int matches = (rails->mask == first->mask) && (memcmp(rails->used, first->used, sizeof(rails->used)) == 0);

    for (int k = 0; matches && (k < rails->num_used); k++) {
        matches = topo->machines[node]->nics[rails->used[k]].rate_bps ==
                  topo->machines[0]->nics[rails->used[k]].rate_bps;
    }
    return matches;
}

static void topo_compare_rails(mpath_topo_t *topo)
{
    topo->rails_match = (topo->gpus == NULL) && (topo->nodes[0].rails->num_used > 0);
    for (int i = 0; topo->rails_match && (i < topo->num_nodes); i++) {
        topo->rails_match = node_matches(topo, i);
    }
}

/* --- signature --------------------------------------------------------------------------------------------------- */

/* Names do not count: they change no path. */
static uint64_t topo_sign(const mpath_topo_t *topo)
{
    uint64_t hash = topo_mix(0, (uint64_t)topo->num_nodes);
    const mpath_machine_t *machine;
    const mpath_place_t *place;
    const mpath_nic_t *nic;
    int i, n;

    hash = topo_mix(hash, (uint64_t)topo->num_ranks);
    hash = topo_mix(hash, ((uint64_t)topo->params.access << 32) | topo->params.fabric);
    if (topo->params.max_paths > 0) {
        hash = topo_mix(hash, (uint64_t)topo->params.max_paths);
    }
    if (topo->params.no_staged) {
        hash = topo_mix(hash, 1);
    }
    for (i = 0; i < topo->num_nodes; i++) {
        machine = topo->machines[i];
        hash    = topo_mix(hash, (uint64_t)machine->num_nics);
        hash    = topo_mix(hash, machine->host_memory_bps);
        for (n = 0; n < machine->num_nics; n++) {
            nic  = &machine->nics[n];
            hash = topo_mix(hash, nic->rate_bps);
            hash = topo_mix(hash, ((uint64_t)nic->rail << 1) | (nic->up != 0));
        }
    }
    for (i = 0; i < topo->num_ranks; i++) {
        place = &topo->places[i];
        hash  = topo_mix(hash, ((uint64_t)(uint32_t)place->node << 32) | (uint32_t)place->nic);
        hash  = topo_mix(hash, (uint64_t)(uint32_t)place->gpu | (place->no_relay ? 1ull << 32 : 0));
    }
    return (topo->gpus != NULL) ? gpus_sign(topo, hash) : hash;
}

/* --- machines ---------------------------------------------------------------------------------------------------- */

/* A machine is described with room for very many NICs, and has few. */
static size_t bytes_of(const mpath_machine_t *machine)
{
    return offsetof(mpath_machine_t, nics) + (size_t)machine->num_nics * sizeof(machine->nics[0]);
}

/* But for their names. */
static int machines_are_equal(const mpath_machine_t *a, const mpath_machine_t *b)
{
    size_t head = offsetof(mpath_machine_t, num_nics);

    return a->num_nics == b->num_nics &&
           memcmp((const char *)a + head, (const char *)b + head, bytes_of(a) - head) == 0;
}

/*
 * The first node with the machine of this one, as far as it is looked for: in clusters of several kinds nodes of one kind mostly follow
 * each other. `before`: that of the node before.
 */
static int find_equal(const mpath_machine_t *machines, int node, int before)
{
    return node > 0 && machines_are_equal(&machines[node], &machines[before]) ? before
           : node > 0 && machines_are_equal(&machines[node], &machines[0])    ? 0
                                                                              : node;
}

/* Stores each once. */
static mpath_status_t topo_take_machines(mpath_topo_t *topo, const mpath_machine_t *machines)
{
    size_t bytes = 0, host_bytes = 0;
    int num_nodes = topo->num_nodes;

    for (int node = 0, first = 0; node < num_nodes; node++) {
        first = find_equal(machines, node, first);
        bytes += first == node ? bytes_of(&machines[node]) : 0;
        host_bytes += strlen(machines[node].host) + 1;
        topo->changed_bytes += bytes_of(&machines[node]);
    }
    topo->machine_memory   = calloc(1, bytes);
    topo->changed_machines = mpath_reserve(topo->changed_bytes);
    topo->hosts            = malloc(host_bytes);
    topo->host_places      = malloc((size_t)num_nodes * sizeof(*topo->host_places));
    if (topo->machine_memory == NULL || topo->changed_machines == NULL || topo->hosts == NULL ||
        topo->host_places == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    bytes = host_bytes = 0;
    for (int node = 0, first = 0; node < num_nodes; node++) {
        first = find_equal(machines, node, first);
        if (first == node) {
            topo->machines[node] = (mpath_machine_t *)(void *)((char *)topo->machine_memory + bytes);
            memcpy(topo->machines[node], &machines[node], bytes_of(&machines[node]));
            memset(topo->machines[node]->host, 0, sizeof(topo->machines[node]->host));
            bytes += bytes_of(&machines[node]);
        } else {
            topo->machines[node] = topo->machines[first];
        }
        topo->host_places[node] = (uint32_t)host_bytes;
        strcpy(topo->hosts + host_bytes, machines[node].host);
        host_bytes += strlen(machines[node].host) + 1;
    }
    return MPATH_OK;
}

/* That node's, which it shares with no other any more. */
static mpath_machine_t *topo_own_machine(mpath_topo_t *topo, int node)
{
    size_t at = 0;
    mpath_machine_t *own;

    for (int before = 0; before < node; before++) {
        at += bytes_of(topo->machines[before]);
    }
    own = (mpath_machine_t *)(void *)((char *)topo->changed_machines + at);
    if (topo->machines[node] != own) {
        memcpy(own, topo->machines[node], bytes_of(topo->machines[node]));
        topo->machines[node] = own;
    }
    return own;
}

/* --- change ------------------------------------------------------------------------------------------------------ */

static void topo_drop_extra(mpath_topo_t *topo)
{
    mpath_topo_extra_t *extra = atomic_exchange(&topo->extra, NULL);

    if (extra != NULL) {
        extra->release(extra);
    }
}

mpath_status_t mpath_topo_set_nic(mpath_topo_t *topo, int node, int nic, int up)
{
    if (topo->gpus != NULL) {
        return MPATH_ERR_UNSUPPORTED;
    }
    topo_drop_extra(topo);
    topo_own_machine(topo, node)->nics[nic].up = (uint8_t)(up != 0);
    topo_find_rails(topo, node, &topo->changed_rail_sets[node]);
    topo->nodes[node].rails = &topo->changed_rail_sets[node];
    topo_compare_rails(topo);
    topo->signature = topo_sign(topo);
    return MPATH_OK;
}

/* --- life -------------------------------------------------------------------------------------------------------- */

static mpath_status_t topo_no_memory(int num_nodes, int num_ranks)
{
    mpath_error("topology: no memory for %d nodes and %d ranks; no topology built", num_nodes, num_ranks);
    return MPATH_ERR_NO_MEMORY;
}

static mpath_status_t topo_allocate(const mpath_machine_t *machines, const mpath_node_gpus_t *gpus, int num_nodes,
                                    const mpath_place_t *places, int num_ranks, mpath_topo_t **topo_p)
{
    size_t num_resources = 0, num_bounds = 0;
    mpath_topo_t *topo;
    int i;

    topo = calloc(1, sizeof(*topo));
    if (topo == NULL) {
        goto err;
    }
    for (i = 0; i < num_nodes; i++) {
        num_resources += 1 + 2 * (size_t)machines[i].num_nics;
        num_bounds += 1 + (size_t)machines[i].num_nics;
        num_resources += (gpus != NULL) ? gpus_count_resources(&gpus[i]) : 0;
    }
    topo->num_nodes = num_nodes;
    topo->num_ranks = num_ranks;
    topo->machines  = calloc((size_t)num_nodes, sizeof(*topo->machines));
    topo->nodes     = calloc((size_t)num_nodes, sizeof(*topo->nodes));
    topo->resources = calloc(num_resources, sizeof(*topo->resources));
    topo->places    = calloc((size_t)num_ranks + 1, sizeof(*topo->places)); /* room for none: calloc(0) may be NULL */
    topo->beside    = calloc((size_t)num_ranks + 1, sizeof(*topo->beside));
    topo->bounds    = calloc(num_bounds, sizeof(*topo->bounds));
    if ((topo->machines == NULL) || (topo->nodes == NULL) || (topo->resources == NULL) || (topo->places == NULL) ||
        (topo->beside == NULL) || (topo->bounds == NULL) || (topo_take_machines(topo, machines) != MPATH_OK)) {
        goto err_destroy;
    }
    if (gpus != NULL) {
        topo->gpus      = calloc((size_t)num_nodes, sizeof(*topo->gpus));
        topo->gpu_nodes = calloc((size_t)num_nodes, sizeof(*topo->gpu_nodes));
        if ((topo->gpus == NULL) || (topo->gpu_nodes == NULL)) {
            goto err_destroy;
        }
        memcpy(topo->gpus, gpus, (size_t)num_nodes * sizeof(*gpus));
    }
    if (num_ranks > 0) {
        memcpy(topo->places, places, (size_t)num_ranks * sizeof(*places));
    }
    *topo_p = topo;
    return MPATH_OK;

err_destroy:
    mpath_topo_destroy(topo);
err:
    return topo_no_memory(num_nodes, num_ranks);
}

mpath_status_t mpath_topo_create(const mpath_machine_t *machines, int num_nodes, const mpath_place_t *places,
                                 int num_ranks, const mpath_topo_params_t *params, mpath_topo_t **topo_p)
{
    return mpath_topo_create_with_gpus(machines, NULL, num_nodes, places, num_ranks, params, topo_p);
}

mpath_status_t mpath_topo_create_with_gpus(const mpath_machine_t *machines, const mpath_node_gpus_t *gpus,
                                           int num_nodes, const mpath_place_t *places, int num_ranks,
                                           const mpath_topo_params_t *params, mpath_topo_t **topo_p)
{
    mpath_status_t status;
    mpath_topo_t *topo;

    status = topo_check(machines, num_nodes, places, num_ranks, params);
    if (status != MPATH_OK) {
        return status;
    }
    if ((gpus != NULL) && !gpus_described(gpus, num_nodes)) {
        gpus = NULL;
    }
    if (gpus != NULL) {
        status = gpus_check(machines, gpus, num_nodes, places, num_ranks);
        if (status != MPATH_OK) {
            return status;
        }
    }
    status = topo_allocate(machines, gpus, num_nodes, places, num_ranks, &topo);
    if (status != MPATH_OK) {
        return status;
    }
    topo->params = *params;
    topo_number_resources(topo);
    topo_sort_ranks(topo);
    status = topo_list_rails(topo);
    if (status != MPATH_OK) {
        mpath_topo_destroy(topo);
        return topo_no_memory(num_nodes, num_ranks);
    }
    if (gpus != NULL) {
        status = gpus_place_ranks(topo);
        if (status != MPATH_OK) {
            mpath_topo_destroy(topo);
            return status;
        }
    }
    topo_compare_rails(topo);
    topo->signature = topo_sign(topo);
    *topo_p         = topo;
    return MPATH_OK;
}

void mpath_topo_destroy(mpath_topo_t *topo)
{
    if (topo == NULL) {
        return;
    }
    topo_drop_extra(topo);
    free(topo->gpu_beside);
    free(topo->reach);
    free(topo->on_gpu);
    free(topo->gpu_nodes);
    free(topo->gpus);
    free(topo->beside);
    free(topo->bounds);
    free(topo->places);
    free(topo->resources);
    free(topo->nodes);
    free(topo->machines);
    free(topo->machine_memory);
    mpath_unreserve(topo->changed_machines, topo->changed_bytes);
    mpath_unreserve(topo->changed_rail_sets, (size_t)topo->num_nodes * sizeof(*topo->changed_rail_sets));
    free(topo->rail_sets);
    free(topo->hosts);
    free(topo->host_places);
    free(topo);
}

const mpath_topo_extra_t *mpath_topo_extra(const mpath_topo_t *topo)
{
    return atomic_load_explicit(&topo->extra, memory_order_acquire);
}

const mpath_topo_extra_t *mpath_topo_keep(const mpath_topo_t *topo, mpath_topo_extra_t *extra)
{
    mpath_topo_t *kept          = (mpath_topo_t *)topo; /* what is kept is no part of what users may not change */
    mpath_topo_extra_t *present = NULL;

    if (atomic_compare_exchange_strong(&kept->extra, &present, extra)) {
        return extra;
    }
    extra->release(extra);
    return present;
}

/* --- accessors --------------------------------------------------------------------------------------------------- */

int mpath_topo_num_ranks(const mpath_topo_t *topo)
{
    return topo->num_ranks;
}

int mpath_topo_num_nodes(const mpath_topo_t *topo)
{
    return topo->num_nodes;
}

const mpath_place_t *mpath_topo_place(const mpath_topo_t *topo, int rank)
{
    return &topo->places[rank];
}

int mpath_topo_most_nics(const mpath_topo_t *topo)
{
    int most = 0;

    for (int node = 0; node < mpath_topo_num_nodes(topo); node++) {
        int num_nics = mpath_topo_machine(topo, node)->num_nics;

        most = num_nics > most ? num_nics : most;
    }
    return most;
}

const mpath_machine_t *mpath_topo_machine(const mpath_topo_t *topo, int node)
{
    return topo->machines[node];
}

const char *mpath_topo_host(const mpath_topo_t *topo, int node)
{
    return topo->hosts + topo->host_places[node];
}

void mpath_topo_copy_machine(const mpath_topo_t *topo, int node, mpath_machine_t *machine)
{
    memset(machine, 0, sizeof(*machine));
    memcpy(machine, topo->machines[node], bytes_of(topo->machines[node]));
    strcpy(machine->host, mpath_topo_host(topo, node));
}

const mpath_topo_params_t *mpath_topo_params(const mpath_topo_t *topo)
{
    return &topo->params;
}

int mpath_topo_num_resources(const mpath_topo_t *topo)
{
    return topo->num_resources;
}

const mpath_resource_t *mpath_topo_resource(const mpath_topo_t *topo, int resource)
{
    return &topo->resources[resource];
}

const mpath_node_gpus_t *mpath_topo_gpus(const mpath_topo_t *topo, int node)
{
    return (topo->gpus != NULL) ? &topo->gpus[node] : NULL;
}

int mpath_topo_reach_is_limited(const mpath_topo_t *topo)
{
    return topo->reach != NULL;
}

uint64_t mpath_topo_nics_beside(const mpath_topo_t *topo, int rank)
{
    return (mpath_topo_gpu(topo, rank) >= 0) ? mpath_topo_gpu_nics(topo, rank) : 0;
}

int mpath_topo_resource_find(const mpath_topo_t *topo, mpath_resource_kind_t kind, int node, int index)
{
    int nics, gpus;

    if ((node < 0) || (node >= topo->num_nodes) || (index < 0)) {
        return -1;
    }
    nics = topo->machines[node]->num_nics;
    gpus = (topo->gpus != NULL) ? topo->gpus[node].num_gpus : 0;
    switch (kind) {
    case MPATH_RESOURCE_HOST_MEMORY:
        return (index == 0) ? topo->nodes[node].first_resource : -1;
    case MPATH_RESOURCE_NIC_TX:
        return (index < nics) ? mpath_topo_nic_tx(topo, node, index) : -1;
    case MPATH_RESOURCE_NIC_RX:
        return (index < nics) ? mpath_topo_nic_rx(topo, node, index) : -1;
    case MPATH_RESOURCE_PCIE_UP:
        return (index < gpus) ? mpath_topo_pcie_up(topo, node, index) : -1;
    case MPATH_RESOURCE_PCIE_DOWN:
        return (index < gpus) ? mpath_topo_pcie_down(topo, node, index) : -1;
    case MPATH_RESOURCE_GPU_EGRESS:
        return (index < gpus) ? mpath_topo_egress(topo, node, index) : -1;
    case MPATH_RESOURCE_GPU_INGRESS:
        return (index < gpus) ? mpath_topo_ingress(topo, node, index) : -1;
    case MPATH_RESOURCE_UPLINK_TX:
        return (topo->gpus != NULL) && (index == 0) ? topo->gpu_nodes[node].uplink_tx : -1;
    case MPATH_RESOURCE_UPLINK_RX:
        return (topo->gpus != NULL) && (index == 0) ? topo->gpu_nodes[node].uplink_rx : -1;
    default:
        return -1;
    }
}

int mpath_topo_rails_match(const mpath_topo_t *topo)
{
    return topo->rails_match && (topo->params.max_paths == 0);
}

uint64_t mpath_topo_signature(const mpath_topo_t *topo)
{
    return topo->signature;
}
