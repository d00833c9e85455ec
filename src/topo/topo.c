/* SPDX-License-Identifier: BSD-3-Clause */
/* Builds a topology from machines and places: numbers the resources, sorts ranks by NIC. */
#include "topo/topo_internal.h"
#include "util/log.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Rough costs of the start of a transfer; a path's latency is the sum over its resources. */
#define HOST_MEMORY_LATENCY_NS 500
#define NIC_LATENCY_NS 1000 /* each end */

/* --- tables ------------------------------------------------------------------------------------------------------ */

void mpath_topo_add_resource(mpath_topo_t *topo, mpath_resource_kind_t kind, int node, int index, uint64_t capacity_bps,
                             uint32_t latency_ns)
{
    mpath_resource_t *resource = &topo->resources[topo->num_resources++];

    resource->kind         = kind;
    resource->node         = node;
    resource->index        = index;
    resource->peer         = -1;
    resource->capacity_bps = capacity_bps;
    resource->latency_ns   = latency_ns;
}

static void topo_number_resources(mpath_topo_t *topo)
{
    const mpath_machine_t *machine;
    int node, nic;

    for (node = 0; node < topo->num_nodes; node++) {
        machine                          = topo->machines[node];
        topo->nodes[node].first_resource = topo->num_resources;
        mpath_topo_add_resource(topo, MPATH_RESOURCE_HOST_MEMORY, node, 0, machine->host_memory_bps,
                                HOST_MEMORY_LATENCY_NS);
        for (nic = 0; nic < machine->num_nics; nic++) {
            mpath_topo_add_resource(topo, MPATH_RESOURCE_NIC_TX, node, nic, machine->nics[nic].rate_bps,
                                    NIC_LATENCY_NS);
            mpath_topo_add_resource(topo, MPATH_RESOURCE_NIC_RX, node, nic, machine->nics[nic].rate_bps,
                                    NIC_LATENCY_NS);
        }
        if (topo->gpus != NULL) {
            mpath_gpus_number_resources(topo, node);
        }
    }
}

/* Counting sort of the ranks that have a NIC by (node, NIC); ranks keep their order. */
static void topo_sort_ranks(mpath_topo_t *topo)
{
    int32_t next = 0, count;
    mpath_topo_node_t *node;
    int i, n, rank;

    for (rank = 0; rank < topo->num_ranks; rank++) {
        if (topo->places[rank].nic >= 0) {
            topo->nodes[topo->places[rank].node].beside[topo->places[rank].nic]++;
        }
    }
    for (i = 0; i < topo->num_nodes; i++) {
        node = &topo->nodes[i];
        for (n = 0; n <= MPATH_MAX_NICS; n++) {
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
        for (n = MPATH_MAX_NICS; n > 0; n--) {
            node->beside[n] = node->beside[n - 1];
        }
        node->beside[0] = (i > 0) ? topo->nodes[i - 1].beside[MPATH_MAX_NICS] : 0;
    }
}

void mpath_rail_set_init(mpath_rail_set_t *set, const mpath_machine_t *machine, uint64_t nics)
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

static void topo_list_rails(mpath_topo_t *topo, int index)
{
    mpath_topo_node_t *node = &topo->nodes[index];
    uint64_t nics           = 0;
    int nic;

    for (nic = 0; nic < MPATH_MAX_NICS; nic++) {
        if ((node->beside[nic + 1] > node->beside[nic]) || (topo->params.access == MPATH_REACH_ALL)) {
            nics |= 1ull << nic;
        }
    }
    mpath_rail_set_init(&node->rails, topo->machines[index], nics);
}

static const mpath_rail_set_t *rails_in_use(const mpath_topo_t *topo, int node)
{
    int on_gpus = (topo->gpus != NULL) && (topo->gpu_nodes[node].occupied != 0);

    return on_gpus ? &topo->gpu_nodes[node].rails : &topo->nodes[node].rails;
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
    const mpath_rail_set_t *first = &topo->nodes[0].rails, *rails = &topo->nodes[node].rails;
    int matches = (rails->mask == first->mask) && (memcmp(rails->used, first->used, sizeof(rails->used)) == 0);

    for (int k = 0; matches && (k < rails->num_used); k++) {
        matches = topo->machines[node]->nics[rails->used[k]].rate_bps ==
                  topo->machines[0]->nics[rails->used[k]].rate_bps;
    }
    return matches;
}

static void topo_compare_rails(mpath_topo_t *topo)
{
    topo->rails_match = (topo->gpus == NULL) && (topo->nodes[0].rails.num_used > 0);
    for (int i = 0; topo->rails_match && (i < topo->num_nodes); i++) {
        topo->rails_match = node_matches(topo, i);
    }
    topo->rails_equal = topo->rails_match && mpath_topo_rails_alike(topo);
}

/* --- signature --------------------------------------------------------------------------------------------------- */

uint64_t mpath_topo_mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) + 0x9e3779b97f4a7c15ull;
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9ull;
    hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebull;
    return hash ^ (hash >> 31);
}

/* Names do not count: they change no path. */
static uint64_t topo_sign(const mpath_topo_t *topo)
{
    uint64_t hash = mpath_topo_mix(0, (uint64_t)topo->num_nodes);
    const mpath_machine_t *machine;
    const mpath_place_t *place;
    const mpath_nic_t *nic;
    int i, n;

    hash = mpath_topo_mix(hash, (uint64_t)topo->num_ranks);
    hash = mpath_topo_mix(hash, ((uint64_t)topo->params.access << 32) | topo->params.fabric);
    if (topo->params.max_paths > 0) {
        hash = mpath_topo_mix(hash, (uint64_t)topo->params.max_paths);
    }
    if (topo->params.no_staged) {
        hash = mpath_topo_mix(hash, 1);
    }
    for (i = 0; i < topo->num_nodes; i++) {
        machine = topo->machines[i];
        hash    = mpath_topo_mix(hash, (uint64_t)machine->num_nics);
        hash    = mpath_topo_mix(hash, machine->host_memory_bps);
        for (n = 0; n < machine->num_nics; n++) {
            nic  = &machine->nics[n];
            hash = mpath_topo_mix(hash, nic->rate_bps);
            hash = mpath_topo_mix(hash, ((uint64_t)nic->rail << 1) | (nic->up != 0));
        }
    }
    for (i = 0; i < topo->num_ranks; i++) {
        place = &topo->places[i];
        hash  = mpath_topo_mix(hash, ((uint64_t)(uint32_t)place->node << 32) | (uint32_t)place->nic);
        hash  = mpath_topo_mix(hash, (uint64_t)(uint32_t)place->gpu | (place->no_relay ? 1ull << 32 : 0));
    }
    return (topo->gpus != NULL) ? mpath_gpus_sign(topo, hash) : hash;
}

/* --- change ------------------------------------------------------------------------------------------------------ */

mpath_status_t mpath_topo_set_nic(mpath_topo_t *topo, int node, int nic, int up)
{
    if (topo->gpus != NULL) {
        return MPATH_ERR_UNSUPPORTED;
    }
    topo->machines[node]->nics[nic].up = (uint8_t)(up != 0);
    memset(&topo->nodes[node].rails, 0, sizeof(topo->nodes[node].rails));
    topo_list_rails(topo, node);
    topo_compare_rails(topo);
    topo->signature = topo_sign(topo);
    return MPATH_OK;
}

/* --- life -------------------------------------------------------------------------------------------------------- */

/* A machine is described with room for very many NICs, and has few. */
static size_t bytes_of(const mpath_machine_t *machine)
{
    return offsetof(mpath_machine_t, nics) + (size_t)machine->num_nics * sizeof(machine->nics[0]);
}

static mpath_status_t topo_allocate(const mpath_machine_t *machines, const mpath_node_gpus_t *gpus, int num_nodes,
                                    const mpath_place_t *places, int num_ranks, mpath_topo_t **topo_p)
{
    size_t num_resources = 0, machine_bytes = 0;
    mpath_topo_t *topo;
    int i;

    topo = calloc(1, sizeof(*topo));
    if (topo == NULL) {
        goto err;
    }
    for (i = 0; i < num_nodes; i++) {
        num_resources += 1 + 2 * (size_t)machines[i].num_nics;
        machine_bytes += bytes_of(&machines[i]);
        num_resources += (gpus != NULL) ? mpath_gpus_count_resources(&gpus[i]) : 0;
    }
    topo->num_nodes = num_nodes;
    topo->num_ranks = num_ranks;
    topo->machines  = calloc((size_t)num_nodes, sizeof(*topo->machines));
    topo->nodes     = calloc((size_t)num_nodes, sizeof(*topo->nodes));
    topo->resources = calloc(num_resources, sizeof(*topo->resources));
    topo->places    = calloc((size_t)num_ranks + 1, sizeof(*topo->places)); /* room for none: calloc(0) may be NULL */
    topo->beside    = calloc((size_t)num_ranks + 1, sizeof(*topo->beside));
    topo->machine_memory = malloc(machine_bytes);
    if ((topo->machines == NULL) || (topo->machine_memory == NULL) || (topo->nodes == NULL) ||
        (topo->resources == NULL) || (topo->places == NULL) || (topo->beside == NULL)) {
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
    for (i = 0, machine_bytes = 0; i < num_nodes; i++) {
        topo->machines[i] = (mpath_machine_t *)(void *)((char *)topo->machine_memory + machine_bytes);
        memcpy(topo->machines[i], &machines[i], bytes_of(&machines[i]));
        machine_bytes += bytes_of(&machines[i]);
    }
    if (num_ranks > 0) {
        memcpy(topo->places, places, (size_t)num_ranks * sizeof(*places));
    }
    *topo_p = topo;
    return MPATH_OK;

err_destroy:
    mpath_topo_destroy(topo);
err:
    mpath_error("topology: no memory for %d nodes and %d ranks; no topology built", num_nodes, num_ranks);
    return MPATH_ERR_NO_MEMORY;
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
    int i;

    status = mpath_topo_check(machines, num_nodes, places, num_ranks, params);
    if (status != MPATH_OK) {
        return status;
    }
    if ((gpus != NULL) && !mpath_gpus_described(gpus, num_nodes)) {
        gpus = NULL;
    }
    if (gpus != NULL) {
        status = mpath_gpus_check(machines, gpus, num_nodes, places, num_ranks);
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
    for (i = 0; i < num_nodes; i++) {
        topo_list_rails(topo, i);
    }
    if (gpus != NULL) {
        status = mpath_gpus_place_ranks(topo);
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
    free(topo->gpu_beside);
    free(topo->reach);
    free(topo->on_gpu);
    free(topo->gpu_nodes);
    free(topo->gpus);
    free(topo->beside);
    free(topo->places);
    free(topo->resources);
    free(topo->nodes);
    free(topo->machines);
    free(topo->machine_memory);
    free(topo);
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

void mpath_topo_copy_machine(const mpath_topo_t *topo, int node, mpath_machine_t *machine)
{
    memset(machine, 0, sizeof(*machine));
    memcpy(machine, topo->machines[node], bytes_of(topo->machines[node]));
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

int mpath_topo_rails_equal(const mpath_topo_t *topo)
{
    return topo->rails_equal && (topo->params.max_paths == 0);
}

int mpath_topo_rails_match(const mpath_topo_t *topo)
{
    return topo->rails_match && (topo->params.max_paths == 0);
}

uint64_t mpath_topo_signature(const mpath_topo_t *topo)
{
    return topo->signature;
}
