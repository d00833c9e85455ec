/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Paths, computed on demand. The paths of a pair on two nodes are pairs of NICs in this order: matched rails, in rail
 * order; with a spine, crossing pairs of which at least one NIC has no match, in order of the source's and then the
 * destination's rail. The static route is moved to the front of this list, or put before it when it is not in it.
 */
#include "topo/topo_internal.h"

#include <string.h>

/* What one pair's list of paths looks like. */
typedef struct path_list {
    const mpath_topo_node_t *from, *to;
    const mpath_nic_t *from_nics, *to_nics;
    uint64_t matched; /* rails in use on both nodes */
    int num_matched, num_crossing;
    int direct_from, direct_to; /* NICs beside source and destination; -1: none in use */
    int first;                  /* position of the static route; -1: before the list */
} path_list_t;

static int has_rail(uint64_t mask, int rail)
{
    return (int)((mask >> rail) & 1);
}

/* The NIC beside a rank, when it is in use. */
static int nic_beside(const mpath_topo_t *topo, int rank)
{
    const mpath_place_t *place = &topo->places[rank];

    if ((place->nic < 0) || !topo->machines[place->node].nics[place->nic].up) {
        return -1;
    }
    return place->nic;
}

static int matched_position(uint64_t matched, int rail)
{
    return __builtin_popcountll(matched & ((1ull << rail) - 1));
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
    position += __builtin_popcountll(list->to->rail_mask & ((1ull << to_rail) - 1));
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

/* Where the static route stands; see the header. */
static int list_find_first(const mpath_topo_t *topo, const path_list_t *list, int source)
{
    int from = list->direct_from, to = list->direct_to;
    int spine  = (topo->params.fabric & MPATH_FABRIC_SPINE) && (from >= 0) && (to >= 0);
    int affine = (topo->params.access == MPATH_REACH_AFFINE);
    int from_rail, to_rail, crosses;

    from_rail = (from >= 0) ? list->from_nics[from].rail : -1;
    to_rail   = (to >= 0) ? list->to_nics[to].rail : -1;
    crosses   = spine && (!has_rail(list->matched, from_rail) || !has_rail(list->matched, to_rail));
    if (affine && spine && (from_rail != to_rail)) {
        return crosses ? list->num_matched + crossing_position(list, from, to) : -1;
    }
    if ((from >= 0) && has_rail(list->matched, from_rail)) {
        return matched_position(list->matched, from_rail);
    }
    if ((to >= 0) && has_rail(list->matched, to_rail)) {
        return matched_position(list->matched, to_rail);
    }
    if (crosses) {
        return list->num_matched + crossing_position(list, from, to);
    }
    return (list->num_matched > 0) ? source % list->num_matched : 0;
}

static void list_init(const mpath_topo_t *topo, int source, int destination, path_list_t *list)
{
    int from_node = topo->places[source].node, to_node = topo->places[destination].node;

    list->from         = &topo->nodes[from_node];
    list->to           = &topo->nodes[to_node];
    list->from_nics    = topo->machines[from_node].nics;
    list->to_nics      = topo->machines[to_node].nics;
    list->matched      = list->from->rail_mask & list->to->rail_mask;
    list->num_matched  = __builtin_popcountll(list->matched);
    list->num_crossing = 0;
    if (topo->params.fabric & MPATH_FABRIC_SPINE) {
        list->num_crossing = list->from->num_used * list->to->num_used - list->num_matched * list->num_matched;
    }
    list->direct_from = nic_beside(topo, source);
    list->direct_to   = nic_beside(topo, destination);
    list->first       = list_find_first(topo, list, source);
}

/* The NICs of path `index` of the pair. */
static void list_at(const path_list_t *list, int index, int *from, int *to)
{
    uint64_t rest;
    int rail, k;

    if ((list->first < 0) && (index == 0)) {
        *from = list->direct_from;
        *to   = list->direct_to;
        return;
    }
    if (list->first < 0) {
        index--;
    } else if (index == 0) {
        index = list->first;
    } else if (index <= list->first) {
        index--;
    }
    if (index >= list->num_matched) {
        crossing_at(list, index - list->num_matched, from, to);
        return;
    }
    if (list->matched == list->from->rail_mask) {
        *from = list->from->used[index];
        *to   = list->to->nic_of_rail[list->from_nics[*from].rail];
        return;
    }
    for (rest = list->matched, k = 0; k < index; k++) {
        rest &= rest - 1;
    }
    rail  = __builtin_ctzll(rest);
    *from = list->from->nic_of_rail[rail];
    *to   = list->to->nic_of_rail[rail];
}

/* The rank that drives a NIC for a pair: the pair's own end when it sits there, else one beside the NIC. */
static int nic_driver(const mpath_topo_t *topo, int end, int nic, int source, int destination)
{
    const mpath_topo_node_t *node = &topo->nodes[topo->places[end].node];
    uint32_t count;

    if ((topo->params.access == MPATH_REACH_ALL) || (topo->places[end].nic == nic)) {
        return end;
    }
    count = (uint32_t)(node->beside[nic + 1] - node->beside[nic]);
    return topo->beside[node->beside[nic] + (int32_t)(((uint32_t)source + (uint32_t)destination) % count)];
}

static void path_consume(const mpath_topo_t *topo, mpath_path_t *path, int resource)
{
    path->resources[path->num_resources++] = (uint32_t)resource;
    path->latency_ns += topo->resources[resource].latency_ns;
}

static mpath_hop_t *path_add_hop(mpath_path_t *path, mpath_lane_kind_t lane, int from, int to)
{
    mpath_hop_t *hop = &path->hops[path->num_hops++];

    hop->lane     = (uint8_t)lane;
    hop->nic_from = -1;
    hop->nic_to   = -1;
    hop->from     = from;
    hop->to       = to;
    return hop;
}

static void path_add_shm(const mpath_topo_t *topo, mpath_path_t *path, int from, int to)
{
    path_add_hop(path, MPATH_LANE_SHM, from, to);
    path_consume(topo, path, topo->nodes[topo->places[from].node].first_resource);
}

static void path_add_rail(const mpath_topo_t *topo, mpath_path_t *path, int from, int to, int nic_from, int nic_to)
{
    mpath_hop_t *hop = path_add_hop(path, MPATH_LANE_RAIL, from, to);

    hop->nic_from = (int8_t)nic_from;
    hop->nic_to   = (int8_t)nic_to;
    path_consume(topo, path, mpath_topo_nic_tx(topo, topo->places[from].node, nic_from));
    path_consume(topo, path, mpath_topo_nic_rx(topo, topo->places[to].node, nic_to));
}

int mpath_topo_num_paths(const mpath_topo_t *topo, int source, int destination)
{
    path_list_t list;

    if (source == destination) {
        return 0;
    }
    if (topo->places[source].node == topo->places[destination].node) {
        return 1;
    }
    list_init(topo, source, destination, &list);
    return list.num_matched + list.num_crossing + (list.first < 0);
}

void mpath_topo_path(const mpath_topo_t *topo, int source, int destination, int index, mpath_path_t *path)
{
    int nic_from, nic_to, from, to;
    path_list_t list;

    path->num_hops      = 0;
    path->num_resources = 0;
    path->latency_ns    = 0;
    if (topo->places[source].node == topo->places[destination].node) {
        path_add_shm(topo, path, source, destination);
    } else {
        list_init(topo, source, destination, &list);
        list_at(&list, index, &nic_from, &nic_to);
        from = nic_driver(topo, source, nic_from, source, destination);
        to   = nic_driver(topo, destination, nic_to, source, destination);
        if (from != source) {
            path_add_shm(topo, path, source, from);
        }
        path_add_rail(topo, path, from, to, nic_from, nic_to);
        if (to != destination) {
            path_add_shm(topo, path, to, destination);
        }
    }
    path->num_relays = path->num_hops - 1;
}
