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
    const mpath_topo_gpu_kind_t *kind = topo->gpu_nodes[node].kind;

    if (from == to) {
        return 1;
    }
    switch (kind->described.link) {
    case MPATH_GPU_LINK_PCIE:
        return 1;
    case MPATH_GPU_LINK_MESH:
        return kind->nvlink[from][to] >= 0;
    case MPATH_GPU_LINK_SWITCH:
        return (kind->ports[from] >= 0) && (kind->ports[to] >= 0);
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

/* Numbers the resources of a kind. */
static void kind_init(mpath_topo_gpu_kind_t *kind, const mpath_node_gpus_t *gpus)
{
    int next, g, to;

    kind->described = *gpus;
    memset(kind->ports, -1, sizeof(kind->ports));
    memset(kind->nvlink, -1, sizeof(kind->nvlink));
    kind->uplink = (gpus->uplink_bps > 0) ? 0 : -1;
    kind->pcie   = (gpus->uplink_bps > 0) ? 2 : 0;
    next         = kind->pcie + 2 * gpus->num_gpus;
    for (g = 0; g < gpus->num_gpus; g++) {
        if (gpus_have_port(gpus, g)) {
            kind->ports[g] = (int16_t)next;
            next += 2;
        }
    }
    for (g = 0; g < gpus->num_gpus; g++) {
        for (to = 0; to < gpus->num_gpus; to++) {
            if (gpus_have_link(gpus, g, to)) {
                kind->nvlink[g][to] = (int16_t)next++;
                kind->links_to[g] |= 1u << to;
                kind->links_from[to] |= 1u << g;
            }
        }
    }
    kind->num_resources = (int16_t)next;
}

/* In the order of their numbers. */
static void gpus_add_resources(mpath_topo_t *topo, int node)
{
    const mpath_topo_gpu_kind_t *kind = topo->gpu_nodes[node].kind;
    const mpath_node_gpus_t *gpus     = &kind->described;
    int g, to;

    topo->gpu_nodes[node].first_resource = topo->num_resources;
    if (kind->uplink >= 0) {
        topo_add_resource(topo, MPATH_RESOURCE_UPLINK_TX, node, 0, gpus->uplink_bps, 0);
        topo_add_resource(topo, MPATH_RESOURCE_UPLINK_RX, node, 0, gpus->uplink_bps, 0);
    }
    for (g = 0; g < gpus->num_gpus; g++) {
        topo_add_resource(topo, MPATH_RESOURCE_PCIE_UP, node, g, gpus->gpus[g].pcie_up_bps, PCIE_LATENCY_NS);
        topo_add_resource(topo, MPATH_RESOURCE_PCIE_DOWN, node, g, gpus->gpus[g].pcie_down_bps, PCIE_LATENCY_NS);
    }
    for (g = 0; g < gpus->num_gpus; g++) {
        if (kind->ports[g] >= 0) {
            topo_add_resource(topo, MPATH_RESOURCE_GPU_EGRESS, node, g, gpus->gpus[g].egress_bps, PORT_LATENCY_NS);
            topo_add_resource(topo, MPATH_RESOURCE_GPU_INGRESS, node, g, gpus->gpus[g].ingress_bps, PORT_LATENCY_NS);
        }
    }
    for (g = 0; g < gpus->num_gpus; g++) {
        for (to = 0; to < gpus->num_gpus; to++) {
            if (kind->nvlink[g][to] >= 0) {
                topo_add_resource(topo, MPATH_RESOURCE_NVLINK, node, g, gpus->nvlink_bps[g][to], NVLINK_LATENCY_NS);
                topo->resources[topo->num_resources - 1].peer = (int8_t)to;
            }
        }
    }
}

/* --- ranks ------------------------------------------------------------------------------------------------------- */

/* How ranks are sorted. Bit k: the rank counts in bucket k of its node, which lasts from bounds[k] to bounds[k + 1]. */
typedef struct sorting {
    uint64_t (*buckets)(const mpath_topo_t *topo, int rank);
    int32_t *(*bounds)(const mpath_topo_t *topo, int node);
    const mpath_rail_set_t **(*rails)(const mpath_topo_t *topo, int node); /* by NIC: those of a node in use */
} sorting_t;

static uint64_t nic_of(const mpath_topo_t *topo, int rank)
{
    return (topo->places[rank].nic >= 0) ? 1ull << topo->places[rank].nic : 0;
}

static int32_t *bounds_of_nics(const mpath_topo_t *topo, int node)
{
    return topo->nodes[node].beside;
}

static const mpath_rail_set_t **rails_of_nics(const mpath_topo_t *topo, int node)
{
    return &topo->nodes[node].rails;
}

static int serves_on_gpu(const mpath_topo_t *topo, int rank)
{
    return (mpath_topo_gpu(topo, rank) >= 0) && !topo->places[rank].no_relay;
}

static uint64_t gpu_of(const mpath_topo_t *topo, int rank)
{
    return serves_on_gpu(topo, rank) ? 1ull << topo->places[rank].gpu : 0;
}

static int32_t *bounds_of_gpus(const mpath_topo_t *topo, int node)
{
    return topo->gpu_nodes[node].on_gpu;
}

static uint64_t gpu_nics_of(const mpath_topo_t *topo, int rank)
{
    return serves_on_gpu(topo, rank) ? mpath_topo_gpu_nics(topo, rank) : 0;
}

static int32_t *bounds_of_gpu_nics(const mpath_topo_t *topo, int node)
{
    return topo->gpu_nodes[node].beside;
}

static const mpath_rail_set_t **rails_of_gpu_nics(const mpath_topo_t *topo, int node)
{
    return &topo->gpu_nodes[node].rails;
}

static const sorting_t by_nic     = {nic_of, bounds_of_nics, rails_of_nics};
static const sorting_t by_gpu     = {gpu_of, bounds_of_gpus, NULL};
static const sorting_t by_gpu_nic = {gpu_nics_of, bounds_of_gpu_nics, rails_of_gpu_nics};

/*
 * Counting sort of the ranks by (node, bucket), a rank once for each of its buckets; ranks keep their order. The bounds
 * of all nodes, one behind the other, are num_bounds from `all` on; a node has one more than buckets.
 */
static mpath_status_t sort_ranks(const mpath_topo_t *topo, const sorting_t *by, int32_t *all, size_t num_bounds,
                                 int32_t **list_p)
{
    int32_t *list, next = 0;
    uint64_t buckets;

    for (int rank = 0; rank < topo->num_ranks; rank++) {
        for (buckets = by->buckets(topo, rank); buckets != 0; buckets &= buckets - 1) {
            by->bounds(topo, topo->places[rank].node)[__builtin_ctzll(buckets)]++;
        }
    }
    for (size_t i = 0; i < num_bounds; i++) {
        int32_t count = all[i];

        all[i] = next;
        next += count;
    }
    list = malloc(((size_t)next + 1) * sizeof(*list));
    if (list == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    for (int rank = 0; rank < topo->num_ranks; rank++) {
        for (buckets = by->buckets(topo, rank); buckets != 0; buckets &= buckets - 1) {
            list[by->bounds(topo, topo->places[rank].node)[__builtin_ctzll(buckets)]++] = rank;
        }
    }
    /* Filling moved each start to its end, which is the next one's start. */
    memmove(&all[1], &all[0], (num_bounds - 1) * sizeof(*all));
    all[0]  = 0;
    *list_p = list;
    return MPATH_OK;
}

/* A node's NICs in use: those that a rank is beside; without affine access all of them for host memory. */
static void find_rails(const mpath_topo_t *topo, const sorting_t *by, int node, mpath_rail_set_t *rails)
{
    const mpath_machine_t *machine = topo->machines[node];
    const int32_t *bounds          = by->bounds(topo, node);
    int all                        = (by == &by_nic) && (topo->params.access == MPATH_REACH_ALL);
    uint64_t nics                  = 0;

    for (int nic = 0; nic < machine->num_nics; nic++) {
        nics |= (all || (bounds[nic + 1] > bounds[nic])) ? 1ull << nic : 0;
    }
    memset(rails, 0, sizeof(*rails));
    rail_set_init(rails, machine, nics);
}

static int rail_sets_are_equal(const mpath_rail_set_t *a, const mpath_rail_set_t *b)
{
    return a->mask == b->mask && a->num_used == b->num_used && memcmp(a->used, b->used, sizeof(a->used)) == 0 &&
           memcmp(a->nic_of_rail, b->nic_of_rail, sizeof(a->nic_of_rail)) == 0;
}

/* Stores those of all nodes, once where a node has those of the node before it. */
static mpath_status_t list_rails(const mpath_topo_t *topo, const sorting_t *by, mpath_rail_set_t **sets_p)
{
    mpath_rail_set_t rails, before, *sets;
    size_t count = 0;

    for (int node = 0; node < topo->num_nodes; node++, before = rails) {
        find_rails(topo, by, node, &rails);
        count += node == 0 || !rail_sets_are_equal(&rails, &before);
    }
    *sets_p = sets = malloc(count * sizeof(*sets));
    if (sets == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    count = 0;
    for (int node = 0; node < topo->num_nodes; node++) {
        find_rails(topo, by, node, &rails);
        if (node == 0 || !rail_sets_are_equal(&rails, &sets[count - 1])) {
            sets[count++] = rails;
        }
        *by->rails(topo, node) = &sets[count - 1];
    }
    return MPATH_OK;
}

/* --- GPUs: ranks ------------------------------------------------------------------------------------------------- */

/* Of the NICs that a rank's node uses, those beside it and those beside ranks that pass bytes on for it. */
static uint64_t nics_reached(const mpath_topo_t *topo, int rank)
{
    const mpath_topo_gpu_node_t *tables = &topo->gpu_nodes[topo->places[rank].node];
    uint64_t own = mpath_topo_gpu_nics(topo, rank), nics = 0;

    for (int k = 0; k < tables->rails->num_used; k++) {
        int nic = tables->rails->used[k], reaches = (own >> nic) & 1;

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

    for (int k = 0; k < tables->rails->num_used; k++) {
        int nic = tables->rails->used[k];

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
    mpath_status_t status = sort_ranks(topo, &by_gpu, topo->gpu_bounds, topo->num_gpu_bounds, &topo->on_gpu);

    if (status == MPATH_OK) {
        status = sort_ranks(topo, &by_gpu_nic, topo->gpu_beside_bounds, topo->num_bounds, &topo->gpu_beside);
    }
    if (status == MPATH_OK) {
        status = list_rails(topo, &by_gpu_nic, &topo->gpu_rail_sets);
    }
    for (int node = 0; (status == MPATH_OK) && (node < topo->num_nodes); node++) {
        mpath_topo_gpu_node_t *gpus = &topo->gpu_nodes[node];

        for (int g = 0; g < gpus->kind->described.num_gpus; g++) {
            gpus->occupied |= (gpus->on_gpu[g + 1] > gpus->on_gpu[g]) ? 1u << g : 0;
        }
    }
    return (status == MPATH_OK) ? limit_reach(topo) : status;
}

/* --- GPUs: signature --------------------------------------------------------------------------------------------- */

static uint64_t gpus_sign(const mpath_topo_t *topo, uint64_t hash)
{
    const mpath_node_gpus_t *gpus;
    int node, g;

    for (node = 0; node < topo->num_nodes; node++) {
        gpus = mpath_topo_node_gpus(topo, node);
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
        const mpath_resource_t resource = mpath_topo_resource_at(topo, g);

        hash = topo_mix(hash, resource.capacity_bps);
        hash = topo_mix(hash, ((uint64_t)resource.kind << 48) | ((uint64_t)(uint32_t)resource.index << 16) |
                                  (uint16_t)resource.peer);
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

/* Of a node like the first one. */
static void topo_number_as_first(mpath_topo_t *topo, int node)
{
    if (topo->gpu_nodes != NULL) {
        topo->gpu_nodes[node].first_resource = topo->num_resources + topo->gpu_nodes[0].first_resource;
    }
    topo->num_resources += (int)topo->node_resources;
}

static void topo_number_resources(mpath_topo_t *topo)
{
    const mpath_machine_t *machine;
    int node, nic;

    for (node = 0; node < topo->num_nodes; node++) {
        machine                          = topo->machines[node];
        topo->nodes[node].first_resource = topo->num_resources;
        if (topo->node_resources > 0 && node > 0) {
            topo_number_as_first(topo, node);
            continue;
        }
        topo_add_resource(topo, MPATH_RESOURCE_HOST_MEMORY, node, 0, machine->host_memory_bps, HOST_MEMORY_LATENCY_NS);
        for (nic = 0; nic < machine->num_nics; nic++) {
            topo_add_resource(topo, MPATH_RESOURCE_NIC_TX, node, nic, machine->nics[nic].rate_bps, NIC_LATENCY_NS);
            topo_add_resource(topo, MPATH_RESOURCE_NIC_RX, node, nic, machine->nics[nic].rate_bps, NIC_LATENCY_NS);
        }
        if (topo->gpu_nodes != NULL) {
            gpus_add_resources(topo, node);
        }
    }
}

static const mpath_rail_set_t *rails_in_use(const mpath_topo_t *topo, int node)
{
    int on_gpus = (topo->gpu_nodes != NULL) && (topo->gpu_nodes[node].occupied != 0);

    return on_gpus ? topo->gpu_nodes[node].rails : topo->nodes[node].rails;
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
    topo->rails_match = (topo->gpu_nodes == NULL) && (topo->nodes[0].rails->num_used > 0);
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
    return (topo->gpu_nodes != NULL) ? gpus_sign(topo, hash) : hash;
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

static int nodes_have_equal_machines(const void *machines, int a, int b)
{
    const mpath_machine_t *all = machines;

    return machines_are_equal(&all[a], &all[b]);
}

static int nodes_have_equal_gpus(const void *gpus, int a, int b)
{
    const mpath_node_gpus_t *all = gpus;

    return memcmp(&all[a], &all[b], sizeof(all[a])) == 0;
}

/*
 * The first node described as this one, as far as it is looked for: in clusters of several kinds nodes of one kind mostly
 * follow each other. `before`: that of the node before.
 */
static int find_equal(int (*are_equal)(const void *all, int a, int b), const void *all, int node, int before)
{
    return node > 0 && are_equal(all, node, before) ? before : node > 0 && are_equal(all, node, 0) ? 0 : node;
}

/* Stores each once. */
static mpath_status_t topo_take_machines(mpath_topo_t *topo, const mpath_machine_t *machines)
{
    size_t bytes = 0, host_bytes = 0;
    int num_nodes = topo->num_nodes;

    for (int node = 0, first = 0; node < num_nodes; node++) {
        first = find_equal(nodes_have_equal_machines, machines, node, first);
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
        first = find_equal(nodes_have_equal_machines, machines, node, first);
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

/* The same of their GPUs, as kinds. */
static mpath_status_t topo_take_gpus(mpath_topo_t *topo, const mpath_node_gpus_t *gpus)
{
    size_t count = 0, num_nodes = (uint32_t)topo->num_nodes;

    for (int node = 0, first = 0; node < topo->num_nodes; node++) {
        first = find_equal(nodes_have_equal_gpus, gpus, node, first);
        count += first == node;
    }
    topo->gpu_kinds = calloc(count, sizeof(*topo->gpu_kinds));
    topo->gpu_nodes = calloc(num_nodes, sizeof(*topo->gpu_nodes));
    if (topo->gpu_kinds == NULL || topo->gpu_nodes == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    count = 0;
    for (int node = 0, first = 0; node < topo->num_nodes; node++) {
        first = find_equal(nodes_have_equal_gpus, gpus, node, first);
        if (first == node) {
            kind_init(&topo->gpu_kinds[count], &gpus[node]);
            topo->gpu_nodes[node].kind = &topo->gpu_kinds[count++];
        } else {
            topo->gpu_nodes[node].kind = topo->gpu_nodes[first].kind;
        }
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
    if (topo->gpu_nodes != NULL) {
        return MPATH_ERR_UNSUPPORTED;
    }
    topo_drop_extra(topo);
    topo_own_machine(topo, node)->nics[nic].up = (uint8_t)(up != 0);
    find_rails(topo, &by_nic, node, &topo->changed_rail_sets[node]);
    topo->nodes[node].rails = &topo->changed_rail_sets[node];
    topo_compare_rails(topo);
    topo->signature = topo_sign(topo);
    return MPATH_OK;
}

/* --- life -------------------------------------------------------------------------------------------------------- */

/* From so many on resources of nodes that are alike are kept once: below that a look at one is what counts. */
#define MANY_RESOURCES 1024u

/* And up to so many, for the node of one is found by a product of 32 bits (mpath_topo_resource_at()). */
static int nodes_share_resources(const mpath_topo_t *topo, size_t num_resources)
{
    size_t each = num_resources / (size_t)topo->num_nodes;
    int alike   = num_resources >= MANY_RESOURCES && each > 1 && num_resources <= UINT32_MAX / each;

    for (int node = 1; node < topo->num_nodes && alike; node++) {
        alike = topo->machines[node] == topo->machines[0] &&
                (topo->gpu_nodes == NULL || topo->gpu_nodes[node].kind == topo->gpu_nodes[0].kind);
    }
    return alike;
}

/* Tables by NIC, GPU and resource, of as many as the nodes have. */
static mpath_status_t allocate_tables(mpath_topo_t *topo)
{
    size_t num_resources = 0;
    int32_t *bounds, *on_gpu, *beside;

    for (int node = 0; node < topo->num_nodes; node++) {
        const mpath_topo_gpu_kind_t *kind = (topo->gpu_nodes != NULL) ? topo->gpu_nodes[node].kind : NULL;

        num_resources += 1 + 2 * (size_t)topo->machines[node]->num_nics;
        num_resources += (kind != NULL) ? (size_t)kind->num_resources : 0;
        topo->num_bounds += 1 + (size_t)topo->machines[node]->num_nics;
        topo->num_gpu_bounds += (kind != NULL) ? 1 + (size_t)kind->described.num_gpus : 0;
    }
    if (nodes_share_resources(topo, num_resources)) {
        num_resources /= (size_t)topo->num_nodes;
        topo->node_resources = (uint32_t)num_resources;
        topo->node_inverse   = (uint32_t)(((1ull << 32) + num_resources - 1) / num_resources);
    }
    topo->resources         = calloc(num_resources, sizeof(*topo->resources));
    topo->bounds            = calloc(topo->num_bounds, sizeof(*topo->bounds));
    topo->gpu_bounds        = calloc(topo->num_gpu_bounds + 1, sizeof(*topo->gpu_bounds)); /* calloc(0) may be NULL */
    topo->gpu_beside_bounds = (topo->gpu_nodes != NULL) ? calloc(topo->num_bounds, sizeof(*topo->bounds)) : NULL;
    if (topo->resources == NULL || topo->bounds == NULL || topo->gpu_bounds == NULL ||
        (topo->gpu_nodes != NULL && topo->gpu_beside_bounds == NULL)) {
        return MPATH_ERR_NO_MEMORY;
    }
    bounds = topo->bounds;
    on_gpu = topo->gpu_bounds;
    beside = topo->gpu_beside_bounds;
    for (int node = 0; node < topo->num_nodes; node++) {
        topo->nodes[node].beside = bounds;
        bounds += 1 + topo->machines[node]->num_nics;
        if (topo->gpu_nodes != NULL) {
            topo->gpu_nodes[node].on_gpu = on_gpu;
            topo->gpu_nodes[node].beside = beside;
            on_gpu += 1 + topo->gpu_nodes[node].kind->described.num_gpus;
            beside += 1 + topo->machines[node]->num_nics;
        }
    }
    return MPATH_OK;
}

static mpath_status_t topo_allocate(const mpath_machine_t *machines, const mpath_node_gpus_t *gpus, int num_nodes,
                                    const mpath_place_t *places, int num_ranks, mpath_topo_t **topo_p)
{
    mpath_topo_t *topo = calloc(1, sizeof(*topo));

    if (topo == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    *topo_p         = topo;
    topo->num_nodes = num_nodes;
    topo->num_ranks = num_ranks;
    topo->machines  = calloc((size_t)num_nodes, sizeof(*topo->machines));
    topo->nodes     = calloc((size_t)num_nodes, sizeof(*topo->nodes));
    topo->places    = calloc((size_t)num_ranks + 1, sizeof(*topo->places)); /* room for none: calloc(0) may be NULL */
    topo->changed_rail_sets = mpath_reserve((size_t)num_nodes * sizeof(*topo->changed_rail_sets));
    if (topo->machines == NULL || topo->nodes == NULL || topo->places == NULL || topo->changed_rail_sets == NULL ||
        topo_take_machines(topo, machines) != MPATH_OK || (gpus != NULL && topo_take_gpus(topo, gpus) != MPATH_OK)) {
        return MPATH_ERR_NO_MEMORY;
    }
    if (num_ranks > 0) {
        memcpy(topo->places, places, (size_t)num_ranks * sizeof(*places));
    }
    return allocate_tables(topo);
}

/* All that is found from what was given. */
static mpath_status_t topo_fill(mpath_topo_t *topo)
{
    mpath_status_t status;

    topo_number_resources(topo);
    status = sort_ranks(topo, &by_nic, topo->bounds, topo->num_bounds, &topo->beside);
    if (status == MPATH_OK) {
        status = list_rails(topo, &by_nic, &topo->rail_sets);
    }
    if (status == MPATH_OK && topo->gpu_nodes != NULL) {
        status = gpus_place_ranks(topo);
    }
    if (status == MPATH_OK) {
        topo_compare_rails(topo);
        topo->signature = topo_sign(topo);
    }
    return status;
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
    mpath_topo_t *topo    = NULL;
    mpath_status_t status = topo_check(machines, num_nodes, places, num_ranks, params);

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
    if (status == MPATH_OK) {
        topo->params = *params;
        status       = topo_fill(topo);
    }
    if (status != MPATH_OK) {
        mpath_topo_destroy(topo);
        mpath_error("topology: no memory for %d nodes and %d ranks; no topology built", num_nodes, num_ranks);
        return status;
    }
    *topo_p = topo;
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
    free(topo->gpu_rail_sets);
    free(topo->gpu_beside_bounds);
    free(topo->gpu_bounds);
    free(topo->gpu_nodes);
    free(topo->gpu_kinds);
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

mpath_resource_t mpath_topo_resource(const mpath_topo_t *topo, int resource)
{
    return mpath_topo_resource_at(topo, resource);
}

const mpath_node_gpus_t *mpath_topo_gpus(const mpath_topo_t *topo, int node)
{
    return (topo->gpu_nodes != NULL) ? mpath_topo_node_gpus(topo, node) : NULL;
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
    gpus = (topo->gpu_nodes != NULL) ? mpath_topo_node_gpus(topo, node)->num_gpus : 0;
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
        return (topo->gpu_nodes != NULL) && (index == 0) ? mpath_topo_uplink_tx(topo, node) : -1;
    case MPATH_RESOURCE_UPLINK_RX:
        return (topo->gpu_nodes != NULL) && (index == 0) ? mpath_topo_uplink_rx(topo, node) : -1;
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
