/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads a topology as lanes: which node has which rails, where the ranks sit. */
#include "plan/rails.h"

#include <stdlib.h>
#include <string.h>

#define NOT_A_RAIL (-1)

/* Whether nodes have memory and NICs and nothing else that paths consume. */
static int only_rails(const mpath_topo_t *topo)
{
    int resources = 0, node;

    for (node = 0; node < mpath_topo_num_nodes(topo); node++) {
        resources += 1 + 2 * mpath_topo_machine(topo, node)->num_nics;
    }
    return resources == mpath_topo_num_resources(topo);
}

/* NICs that a node uses, as a mask: up, and with affine access beside a rank. */
static uint32_t *nics_in_use(const mpath_rails_t *rails)
{
    uint32_t *beside = calloc((size_t)rails->num_nodes + 1, sizeof(*beside)), mask;
    const mpath_machine_t *machine;
    const mpath_place_t *place;
    int rank, node, nic;

    if (beside == NULL) {
        return NULL;
    }
    for (rank = 0; rank < rails->num_ranks && rails->affine; rank++) {
        place = mpath_topo_place(rails->topo, rank);
        if (place->nic >= 0) {
            beside[place->node] |= 1u << place->nic;
        }
    }
    for (node = 0; node < rails->num_nodes; node++) {
        machine = mpath_topo_machine(rails->topo, node);
        mask    = rails->affine ? beside[node] : UINT32_MAX;
        for (nic = 0, beside[node] = 0; nic < machine->num_nics; nic++) {
            beside[node] |= machine->nics[nic].up && ((mask >> nic) & 1) ? 1u << nic : 0;
        }
    }
    return beside;
}

/* Numbers the rails that any node uses, in rail order; 0 when there are none or too many. */
static int number_rails(mpath_rails_t *rails, const uint32_t *nics, int8_t *index_of_rail)
{
    const mpath_machine_t *machine;
    uint64_t used = 0;
    int node, nic, rail;

    for (node = 0; node < rails->num_nodes; node++) {
        machine = mpath_topo_machine(rails->topo, node);
        for (nic = 0; nic < machine->num_nics; nic++) {
            used |= (nics[node] >> nic) & 1 ? 1ull << machine->nics[nic].rail : 0;
        }
    }
    for (rail = 0; rail < 64; rail++) {
        index_of_rail[rail] = NOT_A_RAIL;
        if ((used >> rail) & 1) {
            if (rails->num_rails == MPATH_MAX_NICS) {
                return 0;
            }
            index_of_rail[rail] = (int8_t)rails->num_rails++;
        }
    }
    return rails->num_rails > 0;
}

/* One block for all tables. */
static mpath_status_t allocate(mpath_rails_t *rails)
{
    size_t ranks = (size_t)rails->num_ranks, nodes = (size_t)rails->num_nodes;
    size_t lanes   = nodes * (size_t)rails->num_rails;
    size_t words   = 6 * lanes + 7 * nodes + nodes * nodes + ranks;
    size_t numbers = 3 * ranks + lanes + nodes + 1 + nodes + 1 + nodes;

    rails->num_lanes = (int)lanes;
    rails->memory    = calloc(words * sizeof(uint64_t) + numbers * sizeof(int32_t) + lanes, 1);
    if (rails->memory == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    rails->tx         = rails->memory;
    rails->rx         = rails->tx + lanes;
    rails->relay      = rails->rx + lanes;
    rails->saved      = rails->relay + nodes;
    rails->capacity   = rails->saved + 2 * lanes + nodes;
    rails->target     = rails->capacity + lanes;
    rails->own        = rails->target + lanes;
    rails->out        = rails->own + nodes;
    rails->in         = rails->out + nodes;
    rails->row        = rails->in + nodes;
    rails->between    = rails->row + nodes + nodes;
    rails->column     = rails->between + nodes * nodes;
    rails->node       = (int32_t *)(rails->column + ranks);
    rails->home       = rails->node + ranks;
    rails->slot_ranks = rails->home + ranks;
    rails->slot_first = rails->slot_ranks + ranks;
    rails->node_start = rails->slot_first + lanes + nodes + 1;
    rails->in_use     = (uint32_t *)(rails->node_start + nodes + 1);
    rails->lane_nic   = (uint8_t *)(rails->in_use + nodes);
    return MPATH_OK;
}

static void fill_lanes(mpath_rails_t *rails, const uint32_t *nics, const int8_t *index_of_rail)
{
    const mpath_machine_t *machine;
    uint64_t rate = 0;
    int node, nic, rail, lane;

    rails->equal   = 1;
    rails->regular = 1;
    for (node = 0; node < rails->num_nodes; node++) {
        machine = mpath_topo_machine(rails->topo, node);
        for (nic = 0; nic < machine->num_nics; nic++) {
            if (!((nics[node] >> nic) & 1)) {
                continue;
            }
            rail                  = index_of_rail[machine->nics[nic].rail];
            lane                  = node * rails->num_rails + rail;
            rails->lane_nic[lane] = (uint8_t)nic;
            rails->capacity[lane] = machine->nics[nic].rate_bps;
            rails->in_use[node] |= 1u << rail;
            rate = rate == 0 ? rails->capacity[lane] : rate;
            rails->equal &= rails->capacity[lane] == rate;
        }
        rails->regular &= rails->in_use[node] == (1u << rails->num_rails) - 1;
    }
    rails->equal &= rails->regular;
}

/* Where ranks are, and the ranks of each slot by a counting sort. */
static void place_ranks(mpath_rails_t *rails, const int8_t *index_of_rail)
{
    int slots = rails->num_nodes * (rails->num_rails + 1), rank, slot, node, next = 0, count, consecutive = 1;
    const mpath_place_t *place;
    int32_t *first = rails->slot_first;

    for (rank = 0; rank < rails->num_ranks; rank++) {
        place             = mpath_topo_place(rails->topo, rank);
        node              = place->node;
        rails->node[rank] = node;
        rails->home[rank] = NOT_A_RAIL;
        if (place->nic >= 0) {
            rails->home[rank] = index_of_rail[mpath_topo_machine(rails->topo, node)->nics[place->nic].rail];
        }
        if (rails->home[rank] >= 0 && (!((rails->in_use[node] >> rails->home[rank]) & 1) ||
                                       rails->lane_nic[node * rails->num_rails + rails->home[rank]] != place->nic)) {
            rails->home[rank] = NOT_A_RAIL;
        }
        rails->regular &= rails->home[rank] >= 0;
        consecutive &= rank == 0 || node >= rails->node[rank - 1];
        first[node * (rails->num_rails + 1) + rails->home[rank] + 1]++;
    }
    for (slot = 0; slot <= slots; slot++) {
        count       = slot < slots ? first[slot] : 0;
        first[slot] = next;
        next += count;
    }
    for (node = 0; node <= rails->num_nodes; node++) {
        rails->node_start[node] = first[node * (rails->num_rails + 1)];
    }
    for (rank = 0; rank < rails->num_ranks; rank++) {
        rails->slot_ranks[first[rails->node[rank] * (rails->num_rails + 1) + rails->home[rank] + 1]++] = rank;
    }
    memmove(first + 1, first, (size_t)slots * sizeof(*first));
    first[0] = 0;
    if (!consecutive) {
        rails->node_start = NULL;
    }
}

mpath_status_t mpath_rails_init(mpath_rails_t *rails, const mpath_topo_t *topo, const uint64_t *demand,
                                uint64_t min_fragment_bytes)
{
    const mpath_topo_params_t *params = mpath_topo_params(topo);
    int8_t index_of_rail[64];
    mpath_status_t status;
    uint32_t *nics;

    memset(rails, 0, sizeof(*rails));
    if (!only_rails(topo)) {
        return MPATH_DECLINED;
    }
    rails->topo               = topo;
    rails->demand             = demand;
    rails->min_fragment_bytes = min_fragment_bytes;
    rails->num_ranks          = mpath_topo_num_ranks(topo);
    rails->num_nodes          = mpath_topo_num_nodes(topo);
    rails->affine             = params->access == MPATH_REACH_AFFINE;
    rails->spine              = (params->fabric & MPATH_FABRIC_SPINE) != 0;
    rails->crossing           = rails->affine && rails->spine;
    nics                      = nics_in_use(rails);
    if (nics == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    status = number_rails(rails, nics, index_of_rail) ? allocate(rails) : MPATH_DECLINED;
    if (status == MPATH_OK) {
        fill_lanes(rails, nics, index_of_rail);
        place_ranks(rails, index_of_rail);
    }
    free(nics);
    return status;
}

void mpath_rails_release(mpath_rails_t *rails)
{
    free(rails->memory);
    mpath_moves_release(&rails->moves);
}

mpath_route_t mpath_rails_irregular_route(const mpath_rails_t *rails, int source, int destination)
{
    uint32_t common = mpath_rails_common(rails, source, destination);
    int from = rails->home[source], to = rails->home[destination], skip;
    mpath_route_t route;

    route.tx = from;
    route.rx = to;
    if (from >= 0 && to >= 0 && rails->crossing) {
        return route;
    }
    if (from >= 0 && ((common >> from) & 1)) {
        route.rx = from;
    } else if (to >= 0 && ((common >> to) & 1)) {
        route.tx = to;
    } else if (from < 0 || to < 0 || !rails->spine) {
        for (skip = source % __builtin_popcount(common); skip > 0; skip--) {
            common &= common - 1;
        }
        route.tx = route.rx = __builtin_ctz(common);
    }
    return route;
}
