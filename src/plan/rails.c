/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans on equal rails: reads the topology and the demand, sets the target, and decides whether the result is good. */
#include "plan/rails.h"

#include <stdlib.h>
#include <string.h>

/* The rails that nodes use, in rail order, as the topology numbers its paths; 0 when a rank has none of them beside it. */
static int find_rails(mpath_rails_t *rails)
{
    const mpath_machine_t *machine = mpath_topo_machine(rails->topo, 0);
    uint8_t beside[MPATH_MAX_NICS] = {0};
    int rank, nic, i;

    for (rank = 0; rank < rails->num_ranks; rank++) {
        const mpath_place_t *place = mpath_topo_place(rails->topo, rank);

        if (place->nic < 0 || !machine->nics[place->nic].up) {
            return 0;
        }
        beside[place->nic] |= place->node == 0;
    }
    for (nic = 0; nic < machine->num_nics; nic++) {
        if (!machine->nics[nic].up || (rails->affine && !beside[nic])) {
            continue;
        }
        for (i = rails->num_rails++; i > 0 && machine->nics[rails->rail_nic[i - 1]].rail > machine->nics[nic].rail;
             i--) {
            rails->rail_nic[i] = rails->rail_nic[i - 1];
        }
        rails->rail_nic[i] = nic;
    }
    if (rails->num_rails > 0) {
        rails->capacity_bps = machine->nics[rails->rail_nic[0]].rate_bps;
    }
    return rails->num_rails > 0;
}

/* One block for all tables. */
static mpath_status_t allocate(mpath_rails_t *rails)
{
    size_t ranks = (size_t)rails->num_ranks, nodes = (size_t)rails->num_nodes, lanes = nodes * (size_t)rails->num_rails;
    size_t words   = 2 * lanes + 5 * nodes;
    size_t numbers = 3 * ranks + lanes + 1 + nodes + 1;

    rails->memory = calloc(words * sizeof(uint64_t) + numbers * sizeof(int32_t) + ranks, 1);
    if (rails->memory == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    rails->tx         = rails->memory;
    rails->rx         = rails->tx + lanes;
    rails->own        = rails->rx + lanes;
    rails->relay      = rails->own + nodes;
    rails->out        = rails->relay + nodes;
    rails->in         = rails->out + nodes;
    rails->row        = rails->in + nodes;
    rails->node       = (int32_t *)(rails->row + nodes);
    rails->home       = rails->node + ranks;
    rails->lane_ranks = rails->home + ranks;
    rails->lane_first = rails->lane_ranks + ranks;
    rails->node_start = rails->lane_first + lanes + 1;
    rails->row_moves  = (uint8_t *)(rails->node_start + nodes + 1);
    return MPATH_OK;
}

/* Where ranks are, and the ranks of each lane by a counting sort. */
static int place_ranks(mpath_rails_t *rails)
{
    int lanes = rails->num_nodes * rails->num_rails, rank, lane, node, next = 0, count, consecutive = 1;
    int rail_of_nic[MPATH_MAX_NICS];

    memset(rail_of_nic, 0xff, sizeof(rail_of_nic));
    for (lane = 0; lane < rails->num_rails; lane++) {
        rail_of_nic[rails->rail_nic[lane]] = lane;
    }
    for (rank = 0; rank < rails->num_ranks; rank++) {
        const mpath_place_t *place = mpath_topo_place(rails->topo, rank);

        rails->node[rank] = place->node;
        rails->home[rank] = rail_of_nic[place->nic];
        if (rails->home[rank] < 0) {
            return 0;
        }
        consecutive &= rank == 0 || rails->node[rank] >= rails->node[rank - 1];
        rails->lane_first[mpath_rails_lane(rails, rank, rails->home[rank])]++;
    }
    for (lane = 0; lane <= lanes; lane++) {
        count                   = lane < lanes ? rails->lane_first[lane] : 0;
        rails->lane_first[lane] = next;
        next += count;
    }
    for (node = 0; node <= rails->num_nodes; node++) {
        rails->node_start[node] = rails->lane_first[node * rails->num_rails];
    }
    for (rank = 0; rank < rails->num_ranks; rank++) {
        lane                                         = mpath_rails_lane(rails, rank, rails->home[rank]);
        rails->lane_ranks[rails->lane_first[lane]++] = rank;
    }
    for (lane = lanes; lane > 0; lane--) {
        rails->lane_first[lane] = rails->lane_first[lane - 1];
    }
    rails->lane_first[0] = 0;
    if (!consecutive) {
        rails->node_start = NULL;
    }
    return 1;
}

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

/* Bytes of the row that the static route carries through the memory of the destination's node: those not beside the rail. */
static void count_static_relays(mpath_rails_t *rails, int source, const uint64_t *demand)
{
    int home = rails->home[source], node, lane, i;
    uint64_t bytes;

    for (node = 0; node < rails->num_nodes; node++) {
        if (node == rails->node[source]) {
            continue;
        }
        bytes = rails->row[node];
        lane  = node * rails->num_rails + home;
        for (i = rails->lane_first[lane]; i < rails->lane_first[lane + 1]; i++) {
            bytes -= demand[rails->lane_ranks[i]];
        }
        rails->relay[node] += bytes;
        rails->relayed_bytes += bytes;
    }
}

/* Bytes of the row by the NIC beside each destination. */
static void count_crossing(mpath_rails_t *rails, int source, const uint64_t *demand)
{
    int from = rails->node[source], destination;

    for (destination = 0; destination < rails->num_ranks; destination++) {
        if (rails->node[destination] != from) {
            rails->rx[mpath_rails_lane(rails, destination, rails->home[destination])] += demand[destination];
        }
    }
}

/* Loads of the static routes. */
static void count_static(mpath_rails_t *rails)
{
    const uint64_t *demand = rails->demand;
    uint64_t out;
    int source, node, own, home;

    for (source = 0; source < rails->num_ranks; source++, demand += rails->num_ranks) {
        own  = rails->node[source];
        home = rails->home[source];
        out  = 0;
        rails->num_pairs += sum_row(rails, source, demand);
        rails->own[own] += rails->row[own];
        rails->row[own] = 0;
        for (node = 0; node < rails->num_nodes; node++) {
            out += rails->row[node];
            rails->in[node] += rails->row[node];
        }
        rails->out[own] += out;
        rails->tx[own * rails->num_rails + home] += out;
        if (rails->crossing) {
            count_crossing(rails, source, demand);
            continue;
        }
        for (node = 0; node < rails->num_nodes; node++) {
            rails->rx[node * rails->num_rails + home] += rails->row[node];
        }
        if (rails->affine) {
            count_static_relays(rails, source, demand);
        }
    }
}

/* The most that a node's NICs or its memory must carry whatever the routes are. */
static void set_target(mpath_rails_t *rails, mpath_ratio_t *bound)
{
    mpath_ratio_t ratio;
    uint64_t most = 0;
    int node;

    for (node = 0; node < rails->num_nodes; node++) {
        most = rails->out[node] > most ? rails->out[node] : most;
        most = rails->in[node] > most ? rails->in[node] : most;
    }
    bound->num    = most;
    bound->den    = rails->capacity_bps * (uint64_t)rails->num_rails; /* rates are below 2^50 */
    rails->target = most / (uint64_t)rails->num_rails + (most % (uint64_t)rails->num_rails != 0);
    for (node = 0; node < rails->num_nodes; node++) {
        ratio.num = rails->own[node];
        ratio.den = mpath_topo_machine(rails->topo, node)->host_memory_bps;
        *bound    = mpath_ratio_max(*bound, ratio);
    }
    most          = mpath_ratio_times(*bound, rails->capacity_bps);
    rails->target = most > rails->target ? most : rails->target;
}

static int is_overloaded(const mpath_rails_t *rails, uint32_t gap_ppm)
{
    mpath_u128_t limit = (mpath_u128_t)rails->target * (1000000u + gap_ppm) / 1000000u;
    int lanes          = rails->num_nodes * rails->num_rails, lane;

    for (lane = 0; lane < lanes; lane++) {
        if (rails->tx[lane] > limit || rails->rx[lane] > limit) {
            return 1;
        }
    }
    return 0;
}

static void rails_release(mpath_rails_t *rails)
{
    free(rails->memory);
    free(rails->moves);
    free(rails->head);
}

mpath_status_t mpath_plan_equal_rails(mpath_plan_t *plan, const mpath_topo_t *topo, const uint64_t *demand,
                                      const mpath_plan_params_t *params)
{
    mpath_rails_t rails = {.topo = topo, .demand = demand, .min_fragment_bytes = params->min_fragment_bytes};
    const mpath_topo_params_t *topo_params = mpath_topo_params(topo);
    mpath_status_t status;

    if (!mpath_topo_rails_equal(topo)) {
        return MPATH_DECLINED;
    }
    rails.num_ranks = mpath_topo_num_ranks(topo);
    rails.num_nodes = mpath_topo_num_nodes(topo);
    rails.affine    = topo_params->access == MPATH_REACH_AFFINE;
    rails.crossing  = rails.affine && (topo_params->fabric & MPATH_FABRIC_SPINE) != 0;
    if (!find_rails(&rails)) {
        return MPATH_DECLINED;
    }
    status = allocate(&rails);
    if (status != MPATH_OK) {
        return status;
    }
    if (!place_ranks(&rails)) {
        status = MPATH_DECLINED;
        goto out;
    }
    count_static(&rails);
    set_target(&rails, &plan->bound);
    if (is_overloaded(&rails, params->gap_ppm)) {
        status = mpath_rails_move(&rails);
        if (status != MPATH_OK) {
            goto out;
        }
    }
    status = mpath_rails_emit(&rails, plan);
out:
    rails_release(&rails);
    return status;
}
