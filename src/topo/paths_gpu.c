/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Paths without a rail between two ranks of which at least one is on a GPU: within a node, or within an NVLink domain.
 * The order is told in topo.h. A relay's number is the position of its GPU in a mask, so any path is found at once.
 */
#include "topo/topo_internal.h"

/* Whether bytes can go from GPU to GPU of one node without touching host memory. */
static int can_peer(const mpath_topo_t *topo, int node, int from, int to)
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

    return can_peer(topo, node, gpu, other) && can_peer(topo, node, other, gpu);
}

/* The same for GPUs of two nodes. */
static int can_peer_across(const mpath_topo_t *topo, int source, int destination)
{
    int from = topo->places[source].node, to = topo->places[destination].node;
    int from_gpu = mpath_topo_gpu(topo, source), to_gpu = mpath_topo_gpu(topo, destination);

    return (from_gpu >= 0) && (to_gpu >= 0) && (topo->gpus[from].domain >= 0) &&
           (topo->gpus[from].domain == topo->gpus[to].domain) && (topo->gpu_nodes[from].egress[from_gpu] >= 0) &&
           (topo->gpu_nodes[to].ingress[to_gpu] >= 0);
}

/* The ranks are on GPUs that can_peer(); between nodes it is always the switch. */
static void add_peer(const mpath_topo_t *topo, mpath_path_t *path, int from, int to)
{
    int from_node = topo->places[from].node, to_node = topo->places[to].node;
    int from_gpu = topo->places[from].gpu, to_gpu = topo->places[to].gpu;

    mpath_path_add_hop(path, MPATH_LANE_PEER, from, to);
    if ((from_node == to_node) && (from_gpu == to_gpu)) {
        return; /* a copy inside a GPU: nothing that other bytes could wait for */
    }
    switch (topo->gpus[from_node].link) {
    case MPATH_GPU_LINK_PCIE:
        mpath_path_consume(topo, path, mpath_topo_pcie_up(topo, from_node, from_gpu));
        mpath_path_consume(topo, path, mpath_topo_pcie_down(topo, to_node, to_gpu));
        break;
    case MPATH_GPU_LINK_MESH:
        mpath_path_consume(topo, path, topo->gpu_nodes[from_node].nvlink[from_gpu][to_gpu]);
        break;
    default:
        mpath_path_consume(topo, path, mpath_topo_egress(topo, from_node, from_gpu));
        mpath_path_consume(topo, path, mpath_topo_ingress(topo, to_node, to_gpu));
        break;
    }
}

static void add_staged(const mpath_topo_t *topo, mpath_path_t *path, int from, int to)
{
    int node = topo->places[from].node;

    mpath_path_add_hop(path, MPATH_LANE_STAGED, from, to);
    if (mpath_topo_gpu(topo, from) >= 0) {
        mpath_path_consume(topo, path, mpath_topo_pcie_up(topo, node, topo->places[from].gpu));
    }
    mpath_path_consume(topo, path, topo->nodes[node].first_resource);
    if (mpath_topo_gpu(topo, to) >= 0) {
        mpath_path_consume(topo, path, mpath_topo_pcie_down(topo, node, topo->places[to].gpu));
    }
}

void mpath_gpu_add_hop(const mpath_topo_t *topo, mpath_path_t *path, int from, int to)
{
    if (can_peer(topo, topo->places[from].node, topo->places[from].gpu, topo->places[to].gpu)) {
        add_peer(topo, path, from, to);
    } else {
        add_staged(topo, path, from, to);
    }
}

/* GPUs with a rank that can relay, as a mask. */
static uint32_t relays_between(const mpath_topo_t *topo, int node, int from, int to)
{
    const mpath_topo_gpu_node_t *tables = &topo->gpu_nodes[node];

    if (from == to) {
        return 0;
    }
    return tables->links_to[from] & tables->links_from[to] & tables->occupied; /* no GPU is linked to itself */
}

int mpath_gpu_num_paths(const mpath_topo_t *topo, int source, int destination)
{
    int node = topo->places[source].node, num_linked;
    int from = mpath_topo_gpu(topo, source), to = mpath_topo_gpu(topo, destination);

    if (node != topo->places[destination].node) {
        return can_peer_across(topo, source, destination);
    }
    if ((from < 0) && (to < 0)) {
        return 0;
    }
    if ((from < 0) || (to < 0) || (from == to)) {
        return 1;
    }
    num_linked = can_peer(topo, node, from, to) + __builtin_popcount(relays_between(topo, node, from, to));
    return num_linked + ((num_linked == 0) || !topo->params.no_staged);
}

void mpath_gpu_path(const mpath_topo_t *topo, int source, int destination, int index, mpath_path_t *path)
{
    int node = topo->places[source].node;
    int from = mpath_topo_gpu(topo, source), to = mpath_topo_gpu(topo, destination);
    uint32_t relays;
    int relay;

    if (node != topo->places[destination].node) {
        add_peer(topo, path, source, destination);
        return;
    }
    if ((from < 0) || (to < 0)) {
        add_staged(topo, path, source, destination);
        return;
    }
    relays = relays_between(topo, node, from, to);
    if (topo->params.no_staged && (relays != 0) && !can_peer(topo, node, from, to)) {
        index++; /* staged would come first */
    }
    if (index == 0) {
        mpath_gpu_add_hop(topo, path, source, destination);
        return;
    }
    for (; (relays != 0) && (index > 1); index--) {
        relays &= relays - 1;
    }
    if (relays == 0) {
        add_staged(topo, path, source, destination);
        return;
    }
    relay = mpath_topo_pick(topo->on_gpu, &topo->gpu_nodes[node].on_gpu[__builtin_ctz(relays)], source, destination);
    add_peer(topo, path, source, relay);
    add_peer(topo, path, relay, destination);
}

int mpath_topo_nvlink_find(const mpath_topo_t *topo, int node, int gpu, int peer)
{
    if ((topo->gpus == NULL) || (node < 0) || (node >= topo->num_nodes) || (gpu < 0) || (gpu >= MPATH_MAX_GPUS) ||
        (peer < 0) || (peer >= MPATH_MAX_GPUS)) {
        return -1;
    }
    return topo->gpu_nodes[node].nvlink[gpu][peer];
}

/* Up, and beside a rank that serves it. */
static int is_used(const mpath_topo_t *topo, int node, int nic)
{
    const mpath_nic_t *given = &topo->machines[node]->nics[nic];

    return given->up && (topo->gpu_nodes[node].rails.nic_of_rail[given->rail] == nic);
}

int mpath_gpu_nic_beside(const mpath_topo_t *topo, int rank)
{
    const mpath_place_t *place = &topo->places[rank];
    uint64_t nics;

    if ((place->nic >= 0) && is_used(topo, place->node, place->nic)) {
        return place->nic;
    }
    for (nics = mpath_topo_gpu_nics(topo, rank); nics != 0; nics &= nics - 1) {
        if (is_used(topo, place->node, __builtin_ctzll(nics))) {
            return __builtin_ctzll(nics);
        }
    }
    return -1;
}
