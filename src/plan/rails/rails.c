/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans on rails: static routes where they are good, else what is above the targets moves, else shares per rail. */
#include "plan/follow.h"

#include "plan/rails/rails.h"
#include "plan/search/model.h"

#include <stdlib.h>
#include <string.h>

/* Reads a topology as lanes: which node has which rails, where the ranks sit. */

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
static uint64_t *nics_in_use(const mpath_rails_t *rails)
{
    uint64_t *beside = calloc((size_t)rails->num_nodes + 1, sizeof(*beside)), mask;
    const mpath_machine_t *machine;
    const mpath_place_t *place;
    int rank, node, nic;

    if (beside == NULL) {
        return NULL;
    }
    for (rank = 0; rank < rails->num_ranks && rails->affine; rank++) {
        place = mpath_topo_place(rails->topo, rank);
        if (place->nic >= 0) {
            beside[place->node] |= 1ull << place->nic;
        }
    }
    for (node = 0; node < rails->num_nodes; node++) {
        machine = mpath_topo_machine(rails->topo, node);
        mask    = rails->affine ? beside[node] : UINT64_MAX;
        for (nic = 0, beside[node] = 0; nic < machine->num_nics; nic++) {
            beside[node] |= machine->nics[nic].up && ((mask >> nic) & 1) ? 1ull << nic : 0;
        }
    }
    return beside;
}

/* Numbers the rails that any node uses, in rail order; 0 when there are none. */
static int number_rails(mpath_rails_t *rails, const uint64_t *nics, int8_t *index_of_rail)
{
    const mpath_machine_t *machine;
    uint64_t used = 0;
    int node, nic;

    for (node = 0; node < rails->num_nodes; node++) {
        machine = mpath_topo_machine(rails->topo, node);
        for (nic = 0; nic < machine->num_nics; nic++) {
            used |= (nics[node] >> nic) & 1 ? 1ull << machine->nics[nic].rail : 0;
        }
    }
    memset(index_of_rail, NOT_A_RAIL, MPATH_MAX_RAILS);
    for (; used != 0; used &= used - 1) {
        index_of_rail[mpath_nic_first(used)] = (int8_t)rails->num_rails++;
    }
    return rails->num_rails > 0;
}

/* One block for all tables. */
static mpath_status_t allocate(mpath_rails_t *rails)
{
    size_t ranks = (size_t)rails->num_ranks, nodes = (size_t)rails->num_nodes;
    size_t lanes   = nodes * (size_t)rails->num_rails;
    size_t words   = 6 * lanes + 8 * nodes + nodes * nodes + ranks;
    size_t numbers = 3 * ranks + lanes + nodes + 1 + nodes + 1;

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
    rails->in_use     = rails->column + ranks;
    rails->node       = (int32_t *)(rails->in_use + nodes);
    rails->home       = rails->node + ranks;
    rails->slot_ranks = rails->home + ranks;
    rails->slot_first = rails->slot_ranks + ranks;
    rails->node_start = rails->slot_first + lanes + nodes + 1;
    rails->lane_nic   = (uint8_t *)(rails->node_start + nodes + 1);
    return MPATH_OK;
}

static void fill_lanes(mpath_rails_t *rails, const uint64_t *nics, const int8_t *index_of_rail)
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
            rails->in_use[node] |= mpath_nic_bit(rail);
            rate = rate == 0 ? rails->capacity[lane] : rate;
            rails->equal &= rails->capacity[lane] == rate;
        }
        rails->regular &= rails->in_use[node] == mpath_nics_below(rails->num_rails);
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

/* Reads the topology. MPATH_DECLINED when it is not of this kind. */
static mpath_status_t rails_init(mpath_rails_t *rails, const mpath_topo_t *topo, const uint64_t *demand,
                                 uint64_t min_fragment_bytes)
{
    const mpath_topo_params_t *params = mpath_topo_params(topo);
    int8_t index_of_rail[MPATH_MAX_RAILS];
    mpath_status_t status;
    uint64_t *nics;

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

static void rails_release(mpath_rails_t *rails)
{
    free(rails->memory);
    mpath_moves_release(&rails->moves);
}

mpath_route_t mpath_rails_irregular_route(const mpath_rails_t *rails, int source, int destination)
{
    mpath_nic_set_t common = mpath_rails_common(rails, source, destination);
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
        for (skip = source % mpath_nic_count(common); skip > 0; skip--) {
            common &= common - 1;
        }
        route.tx = route.rx = mpath_nic_first(common);
    }
    return route;
}

/* Loads of the static routes: one pass over the demand, in sums over nodes where all ranks have their rail. */

/* Bytes from one rank to each node; returns the number of pairs with bytes. */
static size_t sum_row(const mpath_rails_t *rails, int source, const uint64_t *demand)
{
    int node, destination;
    size_t pairs = 0;

    if (rails->node_start == NULL) {
        memset(rails->row, 0, (size_t)rails->num_nodes * sizeof(*rails->row));
        for (destination = 0; destination < rails->num_ranks; destination++) {
            rails->row[rails->node[destination]] += demand[destination];
            pairs += demand[destination] != 0;
        }
    } else {
        for (node = 0; node < rails->num_nodes; node++) {
            uint64_t sum = 0;

            for (destination = rails->node_start[node]; destination < rails->node_start[node + 1]; destination++) {
                sum += demand[destination];
                pairs += demand[destination] != 0;
            }
            rails->row[node] = sum;
        }
    }
    rails->row[rails->node[source]] -= demand[source];
    return pairs - (demand[source] != 0);
}

/* Bytes of the row that pass the memory of the destination's node: all but those to the ranks beside the rail. */
static void count_relays(mpath_rails_t *rails, int source, const uint64_t *demand)
{
    int home = rails->home[source], node, slot, i;
    uint64_t bytes;

    for (node = 0; node < rails->num_nodes; node++) {
        if (node == rails->node[source]) {
            continue;
        }
        bytes = rails->row[node];
        slot  = node * (rails->num_rails + 1) + home + 1;
        for (i = rails->slot_first[slot]; i < rails->slot_first[slot + 1]; i++) {
            bytes -= demand[rails->slot_ranks[i]];
        }
        rails->relay[node] += bytes;
        rails->relayed_bytes += bytes;
    }
}

/* Adds the row to the bytes of each destination, those on other nodes than the source's. */
static void add_columns(mpath_rails_t *rails, int source, const uint64_t *demand)
{
    int from = rails->node[source], first = 0, end = 0, destination;

    if (rails->node_start != NULL) {
        first = rails->node_start[from];
        end   = rails->node_start[from + 1];
    }
    for (destination = 0; destination < first; destination++) {
        rails->column[destination] += demand[destination];
    }
    for (destination = end; destination < rails->num_ranks; destination++) {
        rails->column[destination] += demand[destination];
    }
    if (rails->node_start == NULL) {
        for (destination = 0; destination < rails->num_ranks; destination++) {
            rails->column[destination] -= rails->node[destination] == from ? demand[destination] : 0;
        }
    }
}

/* Crossing routes end at the NIC beside the destination. */
static void load_columns(mpath_rails_t *rails)
{
    int destination;

    for (destination = 0; destination < rails->num_ranks; destination++) {
        rails->rx[mpath_rails_lane(rails, destination, rails->home[destination])] += rails->column[destination];
    }
}

static void count_regular(mpath_rails_t *rails, int source, const uint64_t *demand, uint64_t out)
{
    int home = rails->home[source], node;

    rails->tx[mpath_rails_lane(rails, source, home)] += out;
    if (rails->crossing) {
        add_columns(rails, source, demand);
        return;
    }
    for (node = 0; node < rails->num_nodes; node++) {
        rails->rx[node * rails->num_rails + home] += rails->row[node];
    }
    if (rails->affine) {
        count_relays(rails, source, demand);
    }
}

static mpath_status_t count_irregular(mpath_rails_t *rails, int source, const uint64_t *demand)
{
    int from = rails->node[source], destination;
    mpath_route_t route;

    for (destination = 0; destination < rails->num_ranks; destination++) {
        if (rails->node[destination] == from || demand[destination] == 0) {
            continue;
        }
        if (mpath_rails_common(rails, source, destination) == 0) {
            return MPATH_DECLINED;
        }
        route = mpath_rails_irregular_route(rails, source, destination);
        rails->tx[mpath_rails_lane(rails, source, route.tx)] += demand[destination];
        rails->rx[mpath_rails_lane(rails, destination, route.rx)] += demand[destination];
        if (rails->affine && route.tx != rails->home[source]) {
            rails->relay[from] += demand[destination];
            rails->relayed_bytes += demand[destination];
        }
        if (rails->affine && route.rx != rails->home[destination]) {
            rails->relay[rails->node[destination]] += demand[destination];
            rails->relayed_bytes += demand[destination];
        }
    }
    return MPATH_OK;
}

/* Loads of the static routes. MPATH_DECLINED when a pair with bytes has no rail in common. */
static mpath_status_t rails_count(mpath_rails_t *rails)
{
    const uint64_t *demand = rails->demand;
    mpath_status_t status;
    uint64_t out, *between;
    int source, node, own;

    for (source = 0; source < rails->num_ranks; source++, demand += rails->num_ranks) {
        own     = rails->node[source];
        out     = 0;
        between = &rails->between[(size_t)own * (size_t)rails->num_nodes];
        rails->num_pairs += sum_row(rails, source, demand);
        rails->own[own] += rails->row[own];
        rails->row[own] = 0;
        for (node = 0; node < rails->num_nodes; node++) {
            out += rails->row[node];
            rails->in[node] += rails->row[node];
            between[node] += rails->row[node];
        }
        rails->out[own] += out;
        if (rails->regular) {
            count_regular(rails, source, demand, out);
            continue;
        }
        status = count_irregular(rails, source, demand);
        if (status != MPATH_OK) {
            return status;
        }
    }
    if (rails->regular && rails->crossing) {
        load_columns(rails);
    }
    return MPATH_OK;
}

/* Shares of unequal rails: the weights' search over the bytes between nodes, one group per pair of nodes. */

static void add_group(mpath_model_t *model, const mpath_rails_t *rails, int from, int to)
{
    mpath_model_group_t *group = &model->groups[model->num_groups++];
    mpath_nic_set_t common     = rails->in_use[from] & rails->in_use[to];
    mpath_model_path_t *path;
    uint32_t *resources;
    int rail;

    group->bytes      = rails->between[(size_t)from * (size_t)rails->num_nodes + (size_t)to];
    group->first_path = model->num_group_paths;
    model->total_bytes += group->bytes;
    for (rail = 0; rail < rails->num_rails; rail++) {
        if ((common >> rail) & 1) {
            path                 = &model->group_paths[model->num_group_paths++];
            path->first_resource = (uint32_t)model->num_group_path_resources;
            path->num_resources  = 2;
            path->group_path     = (uint32_t)rail;
            resources            = &model->group_resources[model->num_group_path_resources];
            resources[0]         = (uint32_t)(from * rails->num_rails + rail);
            resources[1]         = (uint32_t)(rails->num_lanes + to * rails->num_rails + rail);
            model->num_group_path_resources += 2;
            group->num_paths++;
        }
    }
}

/* Transmitting lanes are resources 0 up to num_lanes, receiving ones follow. */
static mpath_status_t make_model(mpath_model_t *model, const mpath_rails_t *rails)
{
    size_t nodes = (size_t)rails->num_nodes, lanes = (size_t)rails->num_lanes, from, to, groups = 0, i;

    memset(model, 0, sizeof(*model));
    for (i = 0; i < nodes * nodes; i++) {
        groups += rails->between[i] > 0;
    }
    model->num_resources   = (uint32_t)(2 * lanes);
    model->capacity        = calloc(2 * lanes, 3 * sizeof(*model->capacity));
    model->groups          = calloc(groups + 1, sizeof(*model->groups));
    model->group_paths     = calloc(groups * (size_t)rails->num_rails + 1, sizeof(*model->group_paths));
    model->group_resources = calloc(groups * (size_t)rails->num_rails * 2 + 1, sizeof(*model->group_resources));
    if (model->capacity == NULL || model->groups == NULL || model->group_paths == NULL ||
        model->group_resources == NULL) {
        mpath_model_release(model);
        return MPATH_ERR_NO_MEMORY;
    }
    model->load = model->capacity + 2 * lanes;
    model->base = model->load + 2 * lanes;
    memcpy(model->capacity, rails->capacity, lanes * sizeof(*model->capacity));
    memcpy(model->capacity + lanes, rails->capacity, lanes * sizeof(*model->capacity));
    for (from = 0; from < nodes; from++) {
        for (to = 0; to < nodes; to++) {
            if (rails->between[from * nodes + to] > 0) {
                add_group(model, rails, (int)from, (int)to);
            }
        }
    }
    return MPATH_OK;
}

/*
 * shares[(from * num_nodes + to) * num_rails + rail] of the bytes between nodes that minimise Z over the
 * common rails, and what they load the most loaded lane with. Raises the bound where the rails in common are all the
 * paths.
 */
static mpath_status_t rails_solve(const mpath_rails_t *rails, uint32_t gap_ppm, uint32_t rounds, uint64_t *shares,
                                  mpath_ratio_t *bound, mpath_ratio_t *z_p)
{
    size_t nodes = (size_t)rails->num_nodes, i, next = 0;
    mpath_status_t status;
    mpath_model_t model;
    uint32_t k;

    status = make_model(&model, rails);
    if (status != MPATH_OK) {
        return status;
    }
    model.bound = *bound;
    status      = mpath_weights_solve(&model, gap_ppm, rounds, 0, z_p);
    if (status == MPATH_OK) {
        memset(shares, 0, nodes * nodes * (size_t)rails->num_rails * sizeof(*shares));
        for (i = 0; i < nodes * nodes; i++) {
            if (rails->between[i] == 0) {
                continue;
            }
            for (k = 0; k < model.groups[next].num_paths; k++) {
                const mpath_model_path_t *path = &model.group_paths[model.groups[next].first_path + k];

                shares[i * (size_t)rails->num_rails + path->group_path] = path->bytes;
            }
            next++;
        }
        if (!rails->spine) { /* a spine has more paths than these */
            *bound = mpath_ratio_max(*bound, model.bound);
        }
    }
    mpath_model_release(&model);
    return status;
}

/* Flows and loads of a plan on rails, and which of a pair's paths a rail is. */

/* Number of the pair's path over `rail`: the common rails in order, with the static route before them. */
static int path_of_rail(const mpath_rails_t *rails, int source, int destination, int rail)
{
    mpath_nic_set_t common = mpath_rails_common(rails, source, destination);
    mpath_route_t route    = mpath_rails_static(rails, source, destination);
    int position           = mpath_nic_count(common & mpath_nics_below(rail));

    if (route.tx != route.rx) {
        return position + 1;
    }
    return rail == route.tx ? 0 : rail < route.tx ? position + 1 : position;
}

/* The rail of a path that is not the static route; -1: none, as for a crossing. */
static int rails_rail_of(const mpath_rails_t *rails, int source, int destination, int path)
{
    mpath_nic_set_t common = mpath_rails_common(rails, source, destination);
    mpath_route_t route    = mpath_rails_static(rails, source, destination);

    for (; common != 0; common &= common - 1) {
        int rail = mpath_nic_first(common);

        if ((rail != route.tx || rail != route.rx) && path_of_rail(rails, source, destination, rail) == path) {
            return rail;
        }
    }
    return -1;
}

static int path_of(const void *problem, int source, int destination, int via)
{
    return path_of_rail(problem, source, destination, via);
}

static void set_loads(const mpath_rails_t *rails, mpath_plan_t *plan)
{
    int node, rail, lane, nic;

    for (node = 0; node < rails->num_nodes; node++) {
        plan->loads[mpath_topo_resource_find(rails->topo, MPATH_RESOURCE_HOST_MEMORY, node, 0)] = rails->own[node] +
                                                                                                  rails->relay[node];
        for (rail = 0; rail < rails->num_rails; rail++) {
            lane = node * rails->num_rails + rail;
            nic  = rails->lane_nic[lane];
            if (rails->capacity[lane] > 0) {
                plan->loads[mpath_topo_resource_find(rails->topo, MPATH_RESOURCE_NIC_TX, node, nic)] = rails->tx[lane];
                plan->loads[mpath_topo_resource_find(rails->topo, MPATH_RESOURCE_NIC_RX, node, nic)] = rails->rx[lane];
            }
        }
    }
    plan->relayed_bytes = rails->relayed_bytes;
}

/* The flows and loads. */
static mpath_status_t rails_emit(const mpath_rails_t *rails, mpath_plan_t *plan)
{
    mpath_status_t status = mpath_moves_emit(&rails->moves, plan, rails->demand, rails->num_ranks, rails->num_pairs,
                                             path_of, rails);

    if (status == MPATH_OK) {
        set_loads(rails, plan);
    }
    return status;
}

#define MOST_RELAXED_PPM 2000000

static mpath_ratio_t rails_z(const mpath_rails_t *rails)
{
    mpath_ratio_t z = {0, 1}, ratio;
    uint64_t most;
    int lane;

    for (lane = 0; lane < rails->num_lanes; lane++) {
        most = rails->tx[lane] > rails->rx[lane] ? rails->tx[lane] : rails->rx[lane];
        if (most > 0) {
            ratio.num = most;
            ratio.den = rails->capacity[lane];
            z         = mpath_ratio_max(z, ratio);
        }
    }
    return z;
}

/* The most that a node's NICs or its memory must carry whatever the routes are. */
static mpath_ratio_t cut_bound(const mpath_rails_t *rails)
{
    mpath_ratio_t bound = {0, 1}, ratio;
    int node, rail;

    for (node = 0; node < rails->num_nodes; node++) {
        ratio.num = rails->own[node];
        ratio.den = mpath_topo_machine(rails->topo, node)->host_memory_bps;
        bound     = mpath_ratio_max(bound, ratio);
        ratio.num = rails->out[node] > rails->in[node] ? rails->out[node] : rails->in[node];
        for (rail = 0, ratio.den = 0; rail < rails->num_rails; rail++) {
            ratio.den += rails->capacity[node * rails->num_rails + rail]; /* rates are below 2^50 */
        }
        if (ratio.den > 0) {
            bound = mpath_ratio_max(bound, ratio);
        }
    }
    return bound;
}

/* Bytes that a lane of this rate may carry, rounded up: rounding down could leave bytes without a place. */
static void set_targets(mpath_rails_t *rails, mpath_ratio_t z)
{
    uint64_t capacity = 0, target = 0;
    int lane;

    for (lane = 0; lane < rails->num_lanes; lane++) {
        if (rails->capacity[lane] != capacity) {
            capacity = rails->capacity[lane];
            target   = mpath_ratio_times_up(z, capacity);
        }
        rails->target[lane] = target;
    }
}

/* The same share for every rail; only for equal rails. */
static void even_shares(const mpath_rails_t *rails, uint64_t *shares)
{
    size_t pairs   = (size_t)rails->num_nodes * (size_t)rails->num_nodes, i;
    uint64_t count = (uint64_t)rails->num_rails, rail;

    for (i = 0; i < pairs; i++) {
        for (rail = 0; rail < count; rail++) {
            /* the odd bytes of different pairs go to different rails */
            *shares++ = rails->between[i] / count + ((rail + i) % count < rails->between[i] % count);
        }
    }
}

/*
 * Whole small pairs may fit nowhere within the targets: raises the targets step by step until what is left above them
 * finds a place. Each step keeps the moves of the one before.
 */
static mpath_status_t relax(mpath_rails_t *rails, mpath_ratio_t goal, uint32_t gap_ppm)
{
    mpath_status_t status = MPATH_OK;
    uint32_t ppm;

    for (ppm = gap_ppm < 1000 ? 1000 : gap_ppm; ppm < MOST_RELAXED_PPM && status == MPATH_OK; ppm += ppm / 2) {
        if (mpath_ratio_within(rails_z(rails), goal, ppm)) {
            break;
        }
        set_targets(rails, mpath_ratio_raise(goal, ppm));
        status = mpath_rails_shed(rails);
    }
    return status;
}

/* Plan by moves; where lanes stay overloaded, plan by shares, and keep the better. */
static mpath_status_t move_or_split(mpath_rails_t *rails, mpath_ratio_t goal, uint64_t *shares, uint32_t gap_ppm)
{
    mpath_ratio_t z_moved;
    mpath_status_t status;

    status = mpath_rails_balance(rails);
    if (status == MPATH_OK) {
        status = mpath_rails_shed(rails);
    }
    if (status != MPATH_OK) {
        return status;
    }
    z_moved = rails_z(rails);
    if (mpath_ratio_within(z_moved, goal, gap_ppm)) {
        return MPATH_OK;
    }
    mpath_rails_reset(rails);
    if (rails->equal) {
        even_shares(rails, shares);
    }
    status = mpath_rails_split(rails, shares);
    if (status == MPATH_OK && mpath_ratio_less(z_moved, rails_z(rails))) {
        mpath_rails_reset(rails);
        status = mpath_rails_balance(rails);
        if (status == MPATH_OK) {
            status = mpath_rails_shed(rails);
        }
    }
    return status == MPATH_OK ? relax(rails, goal, gap_ppm) : status;
}

static mpath_status_t improve(mpath_rails_t *rails, mpath_plan_t *plan, const mpath_plan_params_t *params)
{
    size_t nodes = (size_t)rails->num_nodes;
    uint64_t *shares;
    mpath_ratio_t goal = plan->bound;
    mpath_status_t status;

    shares = malloc(nodes * nodes * (size_t)rails->num_rails * sizeof(*shares));
    if (shares == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    status = mpath_rails_begin_moves(rails);
    if (status == MPATH_OK && !rails->equal) {
        status = rails_solve(rails, params->gap_ppm, params->max_rounds, shares, &plan->bound, &goal);
    }
    if (status == MPATH_OK) {
        set_targets(rails, goal);
        status = move_or_split(rails, goal, shares, params->gap_ppm);
    }
    free(shares);
    return status;
}

static mpath_status_t move_pieces(mpath_rails_t *rails, const mpath_wanted_t *wanted)
{
    mpath_status_t status = wanted->num_pieces > 0 ? mpath_rails_begin_moves(rails) : MPATH_OK;
    const mpath_piece_t *piece;
    size_t i;
    int rail;

    for (i = 0; i < wanted->num_pieces && status == MPATH_OK; i++) {
        piece = &wanted->pieces[i];
        if (rails->node[piece->source] == rails->node[piece->destination]) {
            return MPATH_DECLINED;
        }
        rail   = rails_rail_of(rails, piece->source, piece->destination, piece->path);
        status = rail < 0 ? MPATH_DECLINED
                          : mpath_rails_move_pair(rails, piece->source, piece->destination, rail, piece->bytes);
    }
    return status;
}

/* Moves what is wanted. */
static mpath_status_t rails_move(mpath_rails_t *rails, mpath_plan_t *plan, const mpath_wanted_t *wanted)
{
    const mpath_plan_params_t *params = wanted->params;

    if (params == NULL) {
        return move_pieces(rails, wanted);
    }
    if (params->policy != MPATH_POLICY_MPATH || mpath_ratio_within(rails_z(rails), plan->bound, params->gap_ppm)) {
        return MPATH_OK;
    }
    return improve(rails, plan, params);
}

mpath_status_t mpath_plan_rails(mpath_plan_t *plan, const mpath_topo_t *topo, const uint64_t *demand,
                                const mpath_wanted_t *wanted)
{
    mpath_status_t status;
    mpath_rails_t rails;

    status = rails_init(&rails, topo, demand, wanted->params == NULL ? 1 : wanted->params->min_fragment_bytes);
    if (status != MPATH_OK) {
        return status;
    }
    status = rails_count(&rails);
    if (status == MPATH_OK) {
        plan->bound = cut_bound(&rails);
        status      = rails_move(&rails, plan, wanted);
    }
    if (status == MPATH_OK) {
        status = rails_emit(&rails, plan);
    }
    if (status == MPATH_OK) {
        mpath_plan_find_bottleneck(plan, topo);
    }
    rails_release(&rails);
    return status;
}
