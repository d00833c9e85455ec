/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans: what they are made of, accessors, and the bound of inter-node traffic. */
#include "plan/internal.h"

#include "util/log.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Bounds that need no plan: what a node's NICs, or the memory of a node, must carry whatever the routes are. */

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

mpath_status_t mpath_plan_reserve(mpath_plan_t *plan, size_t more)
{
    size_t needed = plan->num_flows + more, capacity = plan->capacity + plan->capacity / 2;
    mpath_flow_t *flows;

    if (needed <= plan->capacity) {
        return MPATH_OK;
    }
    capacity = capacity < needed ? needed : capacity;
    flows    = realloc(plan->flows, capacity * sizeof(*flows));
    if (flows == NULL) {
        mpath_error("plan: no memory for %zu flows; the collective cannot be planned", capacity);
        return MPATH_ERR_NO_MEMORY;
    }
    plan->flows    = flows;
    plan->capacity = capacity;
    return MPATH_OK;
}

mpath_status_t mpath_plan_unreachable(int source, int destination, uint64_t bytes)
{
    mpath_error("plan: rank %d has %llu bytes for rank %d, but no path leads there; the collective cannot be planned",
                source, (unsigned long long)bytes, destination);
    return MPATH_ERR_UNREACHABLE;
}

void mpath_plan_find_bottleneck(mpath_plan_t *plan, const mpath_topo_t *topo)
{
    mpath_ratio_t ratio;
    int r;

    plan->bottleneck = -1;
    plan->z.num      = 0;
    plan->z.den      = 1;
    for (r = 0; r < plan->num_resources; r++) {
        ratio.num = plan->loads[r];
        if (ratio.num > 0) {
            ratio.den = mpath_topo_resource(topo, r).capacity_bps;
            if (ratio.den == plan->z.den ? ratio.num > plan->z.num : mpath_ratio_less(plan->z, ratio)) {
                plan->z          = ratio;
                plan->bottleneck = r;
            }
        }
    }
}

mpath_plan_t *mpath_plan_new(const mpath_topo_t *topo)
{
    mpath_plan_t *plan = calloc(1, sizeof(*plan));

    if (plan == NULL) {
        return NULL;
    }
    plan->num_resources = topo != NULL ? mpath_topo_num_resources(topo) : 0;
    plan->loads         = calloc((size_t)plan->num_resources + 1, sizeof(*plan->loads));
    plan->z.den         = 1;
    plan->bound.den     = 1;
    if (plan->loads == NULL) {
        free(plan);
        return NULL;
    }
    return plan;
}

void mpath_plan_clear(mpath_plan_t *plan)
{
    memset(plan->loads, 0, (size_t)plan->num_resources * sizeof(*plan->loads));
    plan->num_flows     = 0;
    plan->relayed_bytes = 0;
}

mpath_status_t mpath_plan_check_total(const uint64_t *demand, size_t num_ranks)
{
    uint64_t total = 0, seen = 0;
    size_t row, i;

    for (i = 0; i + 4 <= num_ranks * num_ranks; i += 4) {
        seen |= demand[i] | demand[i + 1] | demand[i + 2] | demand[i + 3];
    }
    for (; i < num_ranks * num_ranks; i++) {
        seen |= demand[i];
    }
    if (seen < (1ull << 62) / (num_ranks * num_ranks + 1)) {
        return MPATH_OK; /* mostly: none is that large */
    }
    for (row = 0; row < num_ranks; row++, demand += num_ranks) {
        for (i = 0; i < num_ranks; i++) {
            total = i == row ? total : add_capped(total, demand[i]);
        }
    }
    if (total >> 62) {
        mpath_error("plan: the demands add up to 2^62 bytes or more; the collective cannot be planned");
        return MPATH_ERR_PARAM;
    }
    return MPATH_OK;
}

void mpath_plan_destroy(mpath_plan_t *plan)
{
    if (plan != NULL) {
        free(plan->flows);
        free(plan->loads);
        free(plan);
    }
}

const mpath_flow_t *mpath_plan_flows(const mpath_plan_t *plan, size_t *num_flows_p)
{
    *num_flows_p = plan->num_flows;
    return plan->flows;
}

int mpath_plan_is_part(const mpath_plan_t *plan)
{
    return plan->is_part;
}

uint32_t mpath_plan_flow_number(const mpath_plan_t *plan, size_t index)
{
    return plan->is_part ? plan->flows[index].number : (uint32_t)index;
}

const uint64_t *mpath_plan_loads(const mpath_plan_t *plan)
{
    return plan->loads;
}

uint64_t mpath_plan_z_ns(const mpath_plan_t *plan)
{
    return mpath_ratio_ns_ceil(plan->z);
}

uint64_t mpath_plan_bound_ns(const mpath_plan_t *plan)
{
    return mpath_ratio_ns_floor(plan->bound);
}

int mpath_plan_bottleneck(const mpath_plan_t *plan)
{
    return plan->bottleneck;
}

uint64_t mpath_plan_relayed_bytes(const mpath_plan_t *plan)
{
    return plan->relayed_bytes;
}

int mpath_plan_is_kept(const mpath_plan_t *plan, uint32_t *loss_ppm_p)
{
    if (loss_ppm_p != NULL) {
        *loss_ppm_p = plan->kept_loss_ppm;
    }
    return plan->is_kept;
}

uint64_t mpath_plan_signature(const mpath_plan_t *plan)
{
    return plan->is_part ? plan->signature : mpath_plan_sign(plan);
}

uint64_t mpath_plan_sign(const mpath_plan_t *plan)
{
    uint64_t hash = 0xcbf29ce484222325ull ^ plan->num_flows;
    size_t i;

    for (i = 0; i < plan->num_flows; i++) {
        const mpath_flow_t *flow = &plan->flows[i];

        hash = (hash ^ ((uint64_t)(uint32_t)flow->source << 32 | (uint32_t)flow->destination)) * 0x9e3779b97f4a7c15ull;
        hash = ((hash ^ (hash >> 32)) ^ (uint64_t)(uint32_t)flow->path ^ flow->offset << 8) * 0xd6e8feb86659fd93ull;
        hash = ((hash ^ (hash >> 32)) ^ flow->bytes) * 0x9e3779b97f4a7c15ull;
        hash ^= hash >> 29;
    }
    return hash;
}
