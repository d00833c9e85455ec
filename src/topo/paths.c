/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Paths, computed on demand. The paths of a pair over rails are pairs of NICs in this order: matched rails, in rail
 * order; with a spine, crossing pairs of which at least one NIC has no match, in order of the rail of the source and then
 * of the destination. The static route is moved to the front of this list, or put before it when it is not in it.
 *
 * First the paths without a rail between two ranks of which at least one is on a GPU: within a node, or within an NVLink
 * domain. Their order is told in topo.h. The number of a relay is the position of its GPU in a mask, so any path is found
 * at once.
 */
#include "topo/topo_internal.h"

#include <string.h>

/* Whether bytes can go from GPU to GPU of two nodes without touching host memory. */
static int can_peer_across(const mpath_topo_t *topo, int source, int destination)
{
    int from = topo->places[source].node, to = topo->places[destination].node;
    int from_gpu = mpath_topo_gpu(topo, source), to_gpu = mpath_topo_gpu(topo, destination);
    const mpath_topo_gpu_kind_t *kind, *other;

    if ((from_gpu < 0) || (to_gpu < 0)) {
        return 0;
    }
    kind  = topo->gpu_nodes[from].kind;
    other = topo->gpu_nodes[to].kind;
    return (kind->described.domain >= 0) && (kind->described.domain == other->described.domain) &&
           (kind->ports[from_gpu] >= 0) && (other->ports[to_gpu] >= 0);
}

static inline void path_consume(const mpath_topo_t *topo, mpath_path_t *path, int resource)
{
    path->resources[path->num_resources++] = (uint32_t)resource;
    path->latency_ns += mpath_topo_resource_at(topo, resource).latency_ns;
}

static mpath_hop_t *path_add_hop(mpath_path_t *path, mpath_lane_kind_t lane, int from, int to)
{
    mpath_hop_t *hop = &path->hops[path->num_hops++];

    hop->lane           = (uint8_t)lane;
    hop->nic_from       = -1;
    hop->nic_to         = -1;
    hop->first_resource = (uint8_t)path->num_resources;
    hop->from           = from;
    hop->to             = to;
    return hop;
}

/* The ranks are on GPUs that mpath_gpu_can_peer(); between nodes it is always the switch. */
static void add_peer(const mpath_topo_t *topo, mpath_path_t *path, int from, int to)
{
    int from_node = topo->places[from].node, to_node = topo->places[to].node;
    int from_gpu = topo->places[from].gpu, to_gpu = topo->places[to].gpu;

    path_add_hop(path, MPATH_LANE_PEER, from, to);
    if ((from_node == to_node) && (from_gpu == to_gpu)) {
        return; /* a copy inside a GPU: nothing that other bytes could wait for */
    }
    switch (mpath_topo_node_gpus(topo, from_node)->link) {
    case MPATH_GPU_LINK_PCIE:
        path_consume(topo, path, mpath_topo_pcie_up(topo, from_node, from_gpu));
        path_consume(topo, path, mpath_topo_pcie_down(topo, to_node, to_gpu));
        break;
    case MPATH_GPU_LINK_MESH:
        path_consume(topo, path, mpath_topo_nvlink(topo, from_node, from_gpu, to_gpu));
        break;
    default:
        path_consume(topo, path, mpath_topo_egress(topo, from_node, from_gpu));
        path_consume(topo, path, mpath_topo_ingress(topo, to_node, to_gpu));
        break;
    }
}

static void add_staged(const mpath_topo_t *topo, mpath_path_t *path, int from, int to)
{
    int node = topo->places[from].node;

    path_add_hop(path, MPATH_LANE_STAGED, from, to);
    if (mpath_topo_gpu(topo, from) >= 0) {
        path_consume(topo, path, mpath_topo_pcie_up(topo, node, topo->places[from].gpu));
    }
    path_consume(topo, path, topo->nodes[node].first_resource);
    if (mpath_topo_gpu(topo, to) >= 0) {
        path_consume(topo, path, mpath_topo_pcie_down(topo, node, topo->places[to].gpu));
    }
}

/* A hop within a node between such ranks, by the best lane. */
static void gpu_add_hop(const mpath_topo_t *topo, mpath_path_t *path, int from, int to)
{
    if (mpath_gpu_can_peer(topo, topo->places[from].node, topo->places[from].gpu, topo->places[to].gpu)) {
        add_peer(topo, path, from, to);
    } else {
        add_staged(topo, path, from, to);
    }
}

/* GPUs with a rank that can relay, as a mask. */
static uint32_t relays_between(const mpath_topo_t *topo, int node, int from, int to)
{
    const mpath_topo_gpu_kind_t *kind = topo->gpu_nodes[node].kind;

    if (from == to) {
        return 0;
    }
    return kind->links_to[from] & kind->links_from[to] & topo->gpu_nodes[node].occupied; /* none is linked to itself */
}

/* Paths without a rail between ranks of which one at least is on a GPU. */
static int gpu_num_paths(const mpath_topo_t *topo, int source, int destination)
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
    num_linked = mpath_gpu_can_peer(topo, node, from, to) + __builtin_popcount(relays_between(topo, node, from, to));
    return num_linked + ((num_linked == 0) || !topo->params.no_staged);
}

static void gpu_path(const mpath_topo_t *topo, int source, int destination, int index, mpath_path_t *path)
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
    if (topo->params.no_staged && (relays != 0) && !mpath_gpu_can_peer(topo, node, from, to)) {
        index++; /* staged would come first */
    }
    if (index == 0) {
        gpu_add_hop(topo, path, source, destination);
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
    if ((topo->gpu_nodes == NULL) || (node < 0) || (node >= topo->num_nodes) || (gpu < 0) || (gpu >= MPATH_MAX_GPUS) ||
        (peer < 0) || (peer >= MPATH_MAX_GPUS)) {
        return -1;
    }
    return mpath_topo_nvlink(topo, node, gpu, peer);
}

/* Up, and beside a rank that serves it. */
static int is_used(const mpath_topo_t *topo, int node, int nic)
{
    const mpath_nic_t *given = &topo->machines[node]->nics[nic];

    return given->up && (topo->gpu_nodes[node].rails->nic_of_rail[given->rail] == nic);
}

/* The NIC that a rank on a GPU uses by default; -1: none is up. */
static int gpu_nic_beside(const mpath_topo_t *topo, int rank)
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

enum {
    FROM_GPU = 1u << 0, /* the source's bytes are in GPU memory */
    TO_GPU   = 1u << 1  /* the destination's are */
};

static int ends_on_gpus(const mpath_topo_t *topo, int source, int destination)
{
    int from_gpu = mpath_topo_gpu(topo, source) >= 0, to_gpu = mpath_topo_gpu(topo, destination) >= 0;

    return (from_gpu ? FROM_GPU : 0) | (to_gpu ? TO_GPU : 0);
}

/* What one pair's list of paths over rails looks like. */
typedef struct path_list {
    const mpath_rail_set_t *from, *to;
    const mpath_nic_t *from_nics, *to_nics;
    uint64_t matched; /* rails in use on both nodes */
    int num_matched, num_crossing;
    int affine, spine;
    int direct_from, direct_to; /* NICs beside source and destination; -1: none in use */
    int static_rail;            /* of the static route, when it is a matched rail; else -1 */
} path_list_t;

static int has_rail(uint64_t mask, int rail)
{
    return (int)((mask >> rail) & 1);
}

/* The rails that a rank on a GPU can send and receive over, itself or through relays. */
static const mpath_rail_set_t *gpu_rails_of(const mpath_topo_t *topo, int rank)
{
    return (topo->reach != NULL) ? &topo->reach[rank] : topo->gpu_nodes[topo->places[rank].node].rails;
}

/* The NIC beside a rank, when it is in use. */
static inline int nic_beside(const mpath_topo_t *topo, int rank, int on_gpu)
{
    const mpath_place_t *place = &topo->places[rank];

    if (on_gpu) {
        return gpu_nic_beside(topo, rank);
    }
    if ((place->nic < 0) || !topo->machines[place->node]->nics[place->nic].up) {
        return -1;
    }
    return place->nic;
}

static int matched_position(uint64_t matched, int rail)
{
    uint64_t below = (1ull << rail) - 1;

    return (matched & below) == below ? rail : __builtin_popcountll(matched & below);
}

/* Number of crossing pairs that start at a NIC of this rail. */
static int crossing_count(const path_list_t *list, int from_rail)
{
    return list->to->num_used - (has_rail(list->matched, from_rail) ? list->num_matched : 0);
}

/* Position of a pair of NICs in use among the crossing pairs. */
static int crossing_position(const path_list_t *list, int from, int to)
{
    int from_rail = list->from_nics[from].rail, to_rail = list->to_nics[to].rail;
    int position = 0, k;

    for (k = 0; list->from->used[k] != from; k++) {
        position += crossing_count(list, list->from_nics[list->from->used[k]].rail);
    }
    position += __builtin_popcountll(list->to->mask & ((1ull << to_rail) - 1));
    if (has_rail(list->matched, from_rail)) {
        position -= matched_position(list->matched, to_rail);
    }
    return position;
}

static void crossing_at(const path_list_t *list, int position, int *from, int *to)
{
    int from_rail, to_rail, count, k;

    for (k = 0;; k++) {
        from_rail = list->from_nics[list->from->used[k]].rail;
        count     = crossing_count(list, from_rail);
        if (position < count) {
            break;
        }
        position -= count;
    }
    *from = list->from->used[k];
    for (k = 0;; k++) {
        to_rail = list->to_nics[list->to->used[k]].rail;
        if (has_rail(list->matched, from_rail) && has_rail(list->matched, to_rail)) {
            continue;
        }
        if (position-- == 0) {
            break;
        }
    }
    *to = list->to->used[k];
}

/* Nonzero: the static route may go from the NIC beside the source to that beside the destination, whatever their rails. */
static int has_direct(const path_list_t *list)
{
    return list->spine && list->direct_from >= 0 && list->direct_to >= 0;
}

/* The rail of this position among the matched ones. */
static int matched_at(const path_list_t *list, int position)
{
    uint64_t rest = list->matched;

    while (position-- > 0) {
        rest &= rest - 1;
    }
    return __builtin_ctzll(rest);
}

/* The matched rail of the static route; -1: it goes from one rail to another, or there is none. */
static inline int find_static_rail(const path_list_t *list, int source)
{
    int from_rail = list->direct_from >= 0 ? list->from_nics[list->direct_from].rail : -1;
    int to_rail   = list->direct_to >= 0 ? list->to_nics[list->direct_to].rail : -1;

    if (list->affine && from_rail != to_rail && has_direct(list)) {
        return -1;
    }
    if (from_rail >= 0 && has_rail(list->matched, from_rail)) {
        return from_rail;
    }
    if (to_rail >= 0 && has_rail(list->matched, to_rail)) {
        return to_rail;
    }
    return list->num_matched > 0 && !has_direct(list) ? matched_at(list, source % list->num_matched) : -1;
}

/* Where the static route stands; -1: before the list. See the header. */
static int list_first(const path_list_t *list)
{
    int from = list->direct_from, to = list->direct_to;

    if (list->static_rail >= 0) {
        return matched_position(list->matched, list->static_rail);
    }
    if (!has_direct(list)) {
        return 0;
    }
    if (has_rail(list->matched, list->from_nics[from].rail) && has_rail(list->matched, list->to_nics[to].rail)) {
        return -1;
    }
    return list->num_matched + crossing_position(list, from, to);
}

static inline void list_init(const mpath_topo_t *topo, int source, int destination, int on_gpus, path_list_t *list)
{
    int from_node = topo->places[source].node, to_node = topo->places[destination].node;

    list->affine       = topo->params.access == MPATH_REACH_AFFINE || on_gpus != 0;
    list->spine        = (topo->params.fabric & MPATH_FABRIC_SPINE) != 0;
    list->from         = on_gpus & FROM_GPU ? gpu_rails_of(topo, source) : topo->nodes[from_node].rails;
    list->to           = on_gpus & TO_GPU ? gpu_rails_of(topo, destination) : topo->nodes[to_node].rails;
    list->from_nics    = topo->machines[from_node]->nics;
    list->to_nics      = topo->machines[to_node]->nics;
    list->matched      = list->from->mask & list->to->mask;
    list->num_matched  = list->from == list->to ? list->from->num_used : __builtin_popcountll(list->matched);
    list->num_crossing = 0;
    if (list->spine) {
        list->num_crossing = list->from->num_used * list->to->num_used - list->num_matched * list->num_matched;
    }
    list->direct_from = nic_beside(topo, source, on_gpus & FROM_GPU);
    list->direct_to   = nic_beside(topo, destination, on_gpus & TO_GPU);
    list->static_rail = find_static_rail(list, source);
}

/* The NICs of path `index` of the pair. */
static void list_at(const path_list_t *list, int index, int *from, int *to)
{
    int rail = list->static_rail, first;

    if (index > 0 || rail < 0) {
        first = list_first(list);
        if (first < 0 && index == 0) {
            *from = list->direct_from;
            *to   = list->direct_to;
            return;
        }
        index = first >= 0 && index == 0 ? first : first < 0 || index <= first ? index - 1 : index;
        if (index >= list->num_matched) {
            crossing_at(list, index - list->num_matched, from, to);
            return;
        }
        rail = list->matched == list->from->mask ? list->from_nics[list->from->used[index]].rail
                                                 : matched_at(list, index);
    }
    *from = list->from->nic_of_rail[rail];
    *to   = list->to->nic_of_rail[rail];
}

/* Of the ranks on GPUs beside a NIC, the one that relays for a pair: one that its end reaches without host memory. */
static int pick_mate(const mpath_topo_t *topo, int end, int nic, int source, int destination)
{
    const int32_t *bounds = &topo->gpu_nodes[topo->places[end].node].beside[nic];
    uint32_t count        = 0;
    int32_t i;

    if (topo->reach == NULL) {
        return mpath_topo_pick(topo->gpu_beside, bounds, source, destination);
    }
    for (i = bounds[0]; i < bounds[1]; i++) {
        count += mpath_gpu_can_pass(topo, end, topo->gpu_beside[i]) ? 1 : 0;
    }
    count = ((uint32_t)source + (uint32_t)destination) % count;
    for (i = bounds[0]; !mpath_gpu_can_pass(topo, end, topo->gpu_beside[i]) || (count-- > 0); i++) {
    }
    return topo->gpu_beside[i];
}

/* The rank that drives a NIC for a pair: the pair's own end when it sits there, else one beside the NIC. */
static inline int nic_driver(const mpath_topo_t *topo, int end, int nic, int source, int destination, int on_gpu)
{
    if (on_gpu) {
        if ((mpath_topo_gpu_nics(topo, end) >> nic) & 1) {
            return end;
        }
        return pick_mate(topo, end, nic, source, destination);
    }
    if ((topo->params.access == MPATH_REACH_ALL) || (topo->places[end].nic == nic)) {
        return end;
    }
    return mpath_topo_pick(topo->beside, &topo->nodes[topo->places[end].node].beside[nic], source, destination);
}

int mpath_topo_nic_beside(const mpath_topo_t *topo, int rank)
{
    return nic_beside(topo, rank, mpath_topo_gpu(topo, rank) >= 0);
}

uint32_t mpath_topo_turn(const mpath_topo_t *topo, int rank, uint32_t *turns_p)
{
    int node = topo->places[rank].node, on_gpu = mpath_topo_gpu(topo, rank) >= 0;
    int nic               = mpath_topo_nic_beside(topo, rank);
    const int32_t *bounds = on_gpu ? &topo->gpu_nodes[node].beside[nic] : &topo->nodes[node].beside[nic];
    const int32_t *ranks  = on_gpu ? topo->gpu_beside : topo->beside;
    uint32_t turn         = 0;

    *turns_p = (uint32_t)(bounds[1] - bounds[0]);
    while (ranks[bounds[0] + (int32_t)turn] != rank) {
        turn++;
    }
    return turn;
}

static void path_add_shm(const mpath_topo_t *topo, mpath_path_t *path, int from, int to)
{
    path_add_hop(path, MPATH_LANE_SHM, from, to);
    path_consume(topo, path, topo->nodes[topo->places[from].node].first_resource);
}

/* Nodes without an uplink have -1. */
static void path_consume_uplink(const mpath_topo_t *topo, mpath_path_t *path, int resource)
{
    if (resource >= 0) {
        path_consume(topo, path, resource);
    }
}

/* A hop over NICs, which read and write memory of the same sort as the pair's ends have. */
static inline void path_add_rail(const mpath_topo_t *topo, mpath_path_t *path, int from, int to, int nic_from,
                                 int nic_to, int on_gpus)
{
    mpath_hop_t *hop = path_add_hop(path, MPATH_LANE_RAIL, from, to);

    hop->nic_from = (int8_t)nic_from;
    hop->nic_to   = (int8_t)nic_to;
    if (on_gpus & FROM_GPU) {
        path_consume(topo, path, mpath_topo_pcie_up(topo, topo->places[from].node, topo->places[from].gpu));
    }
    path_consume(topo, path, mpath_topo_nic_tx(topo, topo->places[from].node, nic_from));
    if (topo->gpu_nodes != NULL) {
        path_consume_uplink(topo, path, mpath_topo_uplink_tx(topo, topo->places[from].node));
        path_consume_uplink(topo, path, mpath_topo_uplink_rx(topo, topo->places[to].node));
    }
    path_consume(topo, path, mpath_topo_nic_rx(topo, topo->places[to].node, nic_to));
    if (on_gpus & TO_GPU) {
        path_consume(topo, path, mpath_topo_pcie_down(topo, topo->places[to].node, topo->places[to].gpu));
    }
}

/* A hop within a node that leads to or from a NIC. */
static void path_add_leg(const mpath_topo_t *topo, mpath_path_t *path, int from, int to, int on_gpu)
{
    if (from == to) {
        return;
    }
    if (on_gpu) {
        gpu_add_hop(topo, path, from, to);
    } else {
        path_add_shm(topo, path, from, to);
    }
}

/* Path `index` of those over rails. */
static inline void path_over_rails(const mpath_topo_t *topo, int source, int destination, int index, mpath_path_t *path)
{
    int on_gpus = ends_on_gpus(topo, source, destination), nic_from, nic_to, from, to;
    path_list_t list;

    list_init(topo, source, destination, on_gpus, &list);
    list_at(&list, index, &nic_from, &nic_to);
    from = nic_driver(topo, source, nic_from, source, destination, on_gpus & FROM_GPU);
    to   = nic_driver(topo, destination, nic_to, source, destination, on_gpus & TO_GPU);
    path_add_leg(topo, path, source, from, on_gpus & FROM_GPU);
    path_add_rail(topo, path, from, to, nic_from, nic_to, on_gpus);
    path_add_leg(topo, path, to, destination, on_gpus & TO_GPU);
}

static int num_paths_over_rails(const mpath_topo_t *topo, int source, int destination)
{
    path_list_t list;

    list_init(topo, source, destination, ends_on_gpus(topo, source, destination), &list);
    return list.num_matched + list.num_crossing + (list_first(&list) < 0);
}

int mpath_topo_is_linked(const mpath_topo_t *topo, int source, int destination)
{
    if (topo->places[source].node == topo->places[destination].node) {
        return 1;
    }
    return (topo->gpu_nodes != NULL) && (gpu_num_paths(topo, source, destination) > 0);
}

static int count_paths(const mpath_topo_t *topo, int source, int destination)
{
    int count = 0;

    if (source == destination) {
        return 0;
    }
    if (topo->gpu_nodes != NULL) {
        count = gpu_num_paths(topo, source, destination);
    }
    if (topo->places[source].node == topo->places[destination].node) {
        return (count > 0) ? count : 1;
    }
    return count + num_paths_over_rails(topo, source, destination);
}

int mpath_topo_num_paths(const mpath_topo_t *topo, int source, int destination)
{
    int count = count_paths(topo, source, destination), limit = topo->params.max_paths;

    return ((limit > 0) && (count > limit)) ? limit : count;
}

/* From `node` on, as many as have the same rails in use, one after the other. */
static int count_alike(const mpath_topo_t *topo, int node)
{
    int end = node + 1;

    while (end < topo->num_nodes && topo->nodes[end].rails->mask == topo->nodes[node].rails->mask) {
        end++;
    }
    return end - node;
}

/* By nodes that are alike: there are few kinds of them. */
size_t mpath_topo_num_apart(const mpath_topo_t *topo)
{
    int spine    = (topo->params.fabric & MPATH_FABRIC_SPINE) != 0;
    size_t apart = 0;

    for (int from = 0, num_from; from < topo->num_nodes; from += num_from) {
        uint64_t mask = topo->nodes[from].rails->mask;

        num_from = count_alike(topo, from);
        for (int to = 0, num_to; to < topo->num_nodes; to += num_to) {
            uint64_t other = topo->nodes[to].rails->mask;

            num_to = count_alike(topo, to);
            if ((mask & other) == 0 && (!spine || mask == 0 || other == 0)) {
                apart += (size_t)num_from * (size_t)(from == to ? num_from - 1 : num_to);
            }
        }
    }
    return apart;
}

void mpath_topo_path(const mpath_topo_t *topo, int source, int destination, int index, mpath_path_t *path)
{
    int count = (topo->gpu_nodes != NULL) ? gpu_num_paths(topo, source, destination) : 0;

    path->num_hops      = 0;
    path->num_resources = 0;
    path->latency_ns    = 0;
    if (index < count) {
        gpu_path(topo, source, destination, index, path);
    } else if (topo->places[source].node == topo->places[destination].node) {
        path_add_shm(topo, path, source, destination);
    } else {
        path_over_rails(topo, source, destination, index - count, path);
    }
    path->num_relays = path->num_hops - 1;
}
