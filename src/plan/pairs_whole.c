/* SPDX-License-Identifier: BSD-3-Clause */
/* Plan by pairs of nodes: the whole, of a matrix. */
#include "plan/pairs_private.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of each node and of each NIC by static routes: [0] out, [1] in. between: [from * num_nodes + to], and after all of them [to * num_nodes + from]. */
static void whole_load(const mpath_pairs_t *pairs, const uint64_t *demand, uint64_t (*node_bytes)[2],
                       uint64_t (*nic_bytes)[2], uint64_t *between, size_t *num_pairs_p, mpath_pairs_load_t *load)
{
    size_t nodes = (size_t)pairs->num_nodes;

    memset(load, 0, sizeof(*load));
    for (int source = 0; source < pairs->num_ranks; source++) {
        for (int destination = 0; destination < pairs->num_ranks; destination++, demand++) {
            int from = mpath_pairs_node(pairs, source), to = mpath_pairs_node(pairs, destination);
            mpath_arc_t arc;

            if (*demand == 0 || source == destination) {
                continue;
            }
            *num_pairs_p += 1;
            load->largest_bytes = *demand > load->largest_bytes ? *demand : load->largest_bytes;
            if (from == to) {
                continue;
            }
            arc = mpath_pairs_static_arc(pairs, from, to, source, destination);
            node_bytes[from][0] += *demand;
            node_bytes[to][1] += *demand;
            nic_bytes[from * pairs->num_rails + arc.out][0] += *demand;
            nic_bytes[to * pairs->num_rails + arc.in][1] += *demand;
            between[(size_t)from * nodes + (size_t)to] += *demand;
            between[((size_t)to + nodes) * nodes + (size_t)from] += *demand;
        }
    }
    for (int node = 0; node < pairs->num_nodes; node++) {
        for (int is_in = 0; is_in < 2; is_in++) {
            load->node_bytes = node_bytes[node][is_in] > load->node_bytes ? node_bytes[node][is_in] : load->node_bytes;
            for (int rail = 0; rail < pairs->num_rails; rail++) {
                uint64_t bytes = nic_bytes[node * pairs->num_rails + rail][is_in];

                load->static_bytes = bytes > load->static_bytes ? bytes : load->static_bytes;
            }
        }
    }
}

/* What the busiest of a node's NICs takes on static routes. */
static uint64_t whole_static_ns(const mpath_pairs_t *pairs, int node, uint64_t (*nic_bytes)[2])
{
    mpath_ratio_t most = {0, 1};

    for (int rail = 0; rail < pairs->num_rails; rail++) {
        const uint64_t *bytes = nic_bytes[node * pairs->num_rails + rail];

        if (bytes[0] + bytes[1] > 0) {
            most = mpath_ratio_max(
                most, (mpath_ratio_t){bytes[0] > bytes[1] ? bytes[0] : bytes[1], mpath_pairs_rate(pairs, node, rail)});
        }
    }
    return mpath_ratio_ns_ceil(most);
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The rounds of all nodes. */
static mpath_status_t whole_price(mpath_pairs_t *pairs, uint64_t (*nic_bytes)[2], const uint64_t *between,
                                  mpath_pairs_load_t *load)
{
    size_t nodes          = (size_t)pairs->num_nodes, bytes, count;
    mpath_status_t status = mpath_pairs_price_begin(pairs, load);
    int goes_on           = 1;
    char *entries;

    if (status != MPATH_OK) {
        return status;
    }
    bytes   = mpath_pairs_entry_bytes(pairs);
    entries = malloc(nodes * bytes);
    if (entries == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    while (goes_on > 0) {
        mpath_prices_terms_t most = {.bound_ns = 0};

        count = 0;
        for (size_t node = 0; node < nodes; node++) {
            mpath_prices_terms_t terms = {.static_ns = whole_static_ns(pairs, (int)node, nic_bytes)};
            mpath_prices_entry_t entry;

            if (mpath_pairs_node_say(pairs, (int)node, between + node * nodes, between + (nodes + node) * nodes, &terms,
                                     &entry)) {
                memcpy(entries + count++ * bytes, &entry, bytes);
            }
            most.bound_ns  = larger(most.bound_ns, terms.bound_ns);
            most.split_ns  = larger(most.split_ns, terms.split_ns);
            most.static_ns = larger(most.static_ns, terms.static_ns);
        }
        goes_on = mpath_pairs_hear(pairs, &most, entries, count);
    }
    mpath_pairs_priced(pairs, load);
    free(entries);
    return MPATH_OK;
}

/* What the ranks of a node have for each other. */
static mpath_status_t whole_place_node(mpath_placer_t *placer, const uint64_t *demand, int node)
{
    const mpath_pairs_t *pairs = placer->pairs;
    mpath_status_t status      = MPATH_OK;

    for (int i = pairs->first_on[node]; i < pairs->first_on[node + 1]; i++) {
        int source          = pairs->ranks[i];
        const uint64_t *row = demand + (size_t)source * (size_t)pairs->num_ranks;

        for (int k = pairs->first_on[node]; k < pairs->first_on[node + 1] && status == MPATH_OK; k++) {
            status = mpath_placer_local(placer, source, pairs->ranks[k], row[pairs->ranks[k]]);
        }
    }
    return status;
}

static mpath_status_t whole_place(mpath_placer_t *placer, const uint64_t *demand)
{
    const mpath_pairs_table_t table = {.by = MPATH_PAIRS_MATRIX, .bytes = demand};
    int num_nodes                   = placer->pairs->num_nodes;
    mpath_status_t status           = MPATH_OK;

    for (int from = 0; from < num_nodes; from++) {
        for (int to = 0; to < num_nodes && status == MPATH_OK; to++) {
            status = from == to ? whole_place_node(placer, demand, from) : mpath_placer_block(placer, &table, from, to);
        }
    }
    return status == MPATH_OK ? mpath_placer_sort(placer, 0) : status;
}

static void add_loads(const mpath_topo_t *topo, mpath_plan_t *plan)
{
    mpath_path_t path;

    for (size_t i = 0; i < plan->num_flows; i++) {
        const mpath_flow_t *flow = &plan->flows[i];

        mpath_topo_path(topo, flow->source, flow->destination, flow->path, &path);
        for (int k = 0; k < path.num_resources; k++) {
            plan->loads[path.resources[k]] += flow->bytes;
        }
        plan->relayed_bytes += flow->bytes * (uint64_t)path.num_relays;
    }
}

mpath_status_t mpath_plan_pairs(mpath_plan_t *plan, const mpath_topo_t *topo, const uint64_t *demand,
                                const mpath_plan_params_t *params)
{
    size_t nodes, num_pairs = 0;
    uint64_t(*sums)[2], *between;
    mpath_pairs_load_t load;
    mpath_pairs_t *pairs;
    mpath_status_t status = mpath_pairs_create(topo, params->min_fragment_bytes, &pairs);

    if (status != MPATH_OK) {
        return status;
    }
    nodes = (size_t)pairs->num_nodes;
    sums  = calloc(nodes * (1 + (size_t)pairs->num_rails + nodes), sizeof(*sums));
    if (sums == NULL) {
        mpath_pairs_destroy(pairs);
        return MPATH_ERR_NO_MEMORY;
    }
    between = sums[nodes * (1 + (size_t)pairs->num_rails)];
    whole_load(pairs, demand, sums, sums + nodes, between, &num_pairs, &load);
    status = pairs->is_alike ? MPATH_OK : whole_price(pairs, sums + nodes, between, &load);
    if (status == MPATH_OK) {
        status = mpath_plan_reserve(plan, num_pairs);
    }
    if (status == MPATH_OK) {
        mpath_placer_t placer;

        status = mpath_placer_begin(&placer, pairs, -1, mpath_pairs_moves(pairs, &load), plan);
        status = status == MPATH_OK ? whole_place(&placer, demand) : status;
        mpath_placer_end(&placer);
    }
    if (status == MPATH_OK) {
        add_loads(topo, plan);
        plan->bound = mpath_pairs_bound(pairs, &load);
        mpath_plan_find_bottleneck(plan, topo);
    }
    free(sums);
    mpath_pairs_destroy(pairs);
    return status;
}
