/* SPDX-License-Identifier: BSD-3-Clause */
/* Bounds that need no plan: what a node's NICs, or the memory of a node, must carry whatever the routes are. */
#include "plan/internal.h"

#include <stdlib.h>

static uint64_t add_capped(uint64_t a, uint64_t b)
{
    return a + b < a ? UINT64_MAX : a + b;
}

/* Bytes that leave [0] and enter [1] each node over its NICs; `node` is by rank. */
static void count_node_bytes(const int32_t *node, int num_ranks, const uint64_t *demand, uint64_t (*bytes)[2])
{
    int source, destination, from;
    uint64_t out;

    for (source = 0; source < num_ranks; source++, demand += num_ranks) {
        from = node[source];
        out  = 0;
        for (destination = 0; destination < num_ranks; destination++) {
            if (node[destination] != from) {
                out += demand[destination];
                bytes[node[destination]][1] += demand[destination];
            }
        }
        bytes[from][0] += out;
    }
}

/* The same where some pairs of nodes are joined by more than NICs. */
static void count_unlinked_bytes(const mpath_topo_t *topo, const uint64_t *demand, uint64_t (*bytes)[2])
{
    int num_ranks = mpath_topo_num_ranks(topo), source, destination;

    for (source = 0; source < num_ranks; source++) {
        for (destination = 0; destination < num_ranks; destination++, demand++) {
            if (*demand > 0 && !mpath_topo_is_linked(topo, source, destination)) {
                bytes[mpath_topo_place(topo, source)->node][0] += *demand;
                bytes[mpath_topo_place(topo, destination)->node][1] += *demand;
            }
        }
    }
}

static mpath_ratio_t node_bound(const mpath_machine_t *machine, const uint64_t *bytes)
{
    mpath_ratio_t bound = {0, 1};
    uint64_t rate       = 0;
    int nic;

    for (nic = 0; nic < machine->num_nics; nic++) {
        if (machine->nics[nic].up) {
            rate = add_capped(rate, machine->nics[nic].rate_bps);
        }
    }
    if (rate > 0) {
        bound.num = bytes[0] > bytes[1] ? bytes[0] : bytes[1];
        bound.den = rate;
    }
    return bound;
}

mpath_status_t mpath_plan_cuts(const mpath_topo_t *topo, const uint64_t *demand, mpath_ratio_t *bound_p)
{
    int num_nodes = mpath_topo_num_nodes(topo), num_ranks = mpath_topo_num_ranks(topo), i;
    uint64_t(*bytes)[2] = calloc((size_t)num_nodes + 1, sizeof(*bytes));
    int32_t *node       = malloc(((size_t)num_ranks + 1) * sizeof(*node));
    mpath_ratio_t bound = {0, 1};

    if (bytes == NULL || node == NULL) {
        free(bytes);
        free(node);
        return MPATH_ERR_NO_MEMORY;
    }
    for (i = 0; i < num_ranks; i++) {
        node[i] = mpath_topo_place(topo, i)->node;
    }
    if (mpath_topo_gpus(topo, 0) == NULL) {
        count_node_bytes(node, num_ranks, demand, bytes);
    } else {
        count_unlinked_bytes(topo, demand, bytes);
    }
    for (i = 0; i < num_nodes; i++) {
        bound = mpath_ratio_max(bound, node_bound(mpath_topo_machine(topo, i), bytes[i]));
    }
    free(bytes);
    free(node);
    *bound_p = bound;
    return MPATH_OK;
}

uint64_t mpath_plan_all_rails_bound_ns(const mpath_topo_t *topo, const uint64_t *demand)
{
    mpath_ratio_t bound = {0, 1};

    if (mpath_plan_cuts(topo, demand, &bound) != MPATH_OK) {
        return 0; /* a weaker bound, still true */
    }
    return mpath_ratio_ns_floor(bound);
}
