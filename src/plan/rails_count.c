/* SPDX-License-Identifier: BSD-3-Clause */
/* Loads of the static routes: one pass over the demand, in sums over nodes where all ranks have their rail. */
#include "plan/rails.h"

#include <string.h>

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

mpath_status_t mpath_rails_count(mpath_rails_t *rails)
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
