/* SPDX-License-Identifier: BSD-3-Clause */
/* Plan by pairs of nodes: the part that a rank makes, and what it puts on NICs. */
#include "plan/pairs_private.h"

#include <stdlib.h>
#include <string.h>

/* The rails that two ranks' nodes both have. */
static mpath_nic_set_t rails_between(const mpath_pairs_t *pairs, int source, int destination)
{
    return pairs->has[mpath_pairs_node(pairs, source)] & pairs->has[mpath_pairs_node(pairs, destination)];
}

/* The rail of a path: the static one is the first, the others follow in order. */
static int rail_of(mpath_nic_set_t rails, int static_rail, int path)
{
    int skip = path <= mpath_nic_count(rails & mpath_nics_below(static_rail)) ? path - 1 : path;

    if (path == 0) {
        return static_rail;
    }
    for (; skip > 0; skip--) {
        rails &= rails - 1;
    }
    return mpath_nic_first(rails);
}

/* Pairs of a rank with bytes. */
static size_t count_pairs(const mpath_pairs_t *pairs, const uint64_t *sends, const uint64_t *receives)
{
    size_t count = 0;

    for (int i = 0; i < pairs->num_ranks; i++) {
        count += (size_t)(sends[i] > 0) + (size_t)(receives[i] > 0);
    }
    return count;
}

/* What the rank receives from mates in these places. */
static mpath_status_t place_from_mates(mpath_placer_t *placer, const uint64_t *receives, int begin, int end)
{
    const int32_t *mates = placer->pairs->ranks +
                           placer->pairs->first_on[mpath_pairs_node(placer->pairs, placer->rank)];
    mpath_status_t status = MPATH_OK;

    for (int i = begin; i < end && status == MPATH_OK; i++) {
        status = mpath_placer_local(placer, mates[i], placer->rank, receives[mates[i]]);
    }
    return status;
}

static mpath_status_t place_to_mates(mpath_placer_t *placer, const uint64_t *sends)
{
    const mpath_pairs_t *pairs = placer->pairs;
    int node                   = mpath_pairs_node(pairs, placer->rank);
    mpath_status_t status      = MPATH_OK;

    for (int i = pairs->first_on[node]; i < pairs->first_on[node + 1] && status == MPATH_OK; i++) {
        status = mpath_placer_local(placer, placer->rank, pairs->ranks[i], sends[pairs->ranks[i]]);
    }
    return status;
}

/*
 * All blocks from and to the node. Where nodes have consecutive ranks this is the order of flows; where the rank passes bytes on, its mates send to several
 * nodes, and only the destinations of each are in order.
 */
static mpath_status_t place_part(mpath_placer_t *placer, const mpath_pairs_rows_t *rows)
{
    const mpath_pairs_t *pairs         = placer->pairs;
    const mpath_pairs_table_t sends    = {.by = MPATH_PAIRS_SENDS, .bytes = rows->sends};
    const mpath_pairs_table_t receives = {.by = MPATH_PAIRS_RECEIVES, .bytes = rows->receives};
    const uint64_t *own_sends          = rows->sends + (size_t)placer->place * (size_t)pairs->num_ranks;
    const uint64_t *own_receives       = rows->receives + (size_t)placer->place * (size_t)pairs->num_ranks;
    int node = mpath_pairs_node(pairs, placer->rank), mates = pairs->first_on[node + 1] - pairs->first_on[node];
    int before = placer->rail < 0 ? placer->place : 0, after = placer->rail < 0 ? before + 1 : mates;
    size_t count          = count_pairs(pairs, own_sends, own_receives), begin;
    mpath_status_t status = mpath_plan_reserve(placer->plan, count + (placer->rail < 0 ? count / 8 : count / 4 * 3));

    for (int other = 0; other < node && status == MPATH_OK; other++) {
        status = mpath_placer_block(placer, &receives, other, node);
    }
    status = status == MPATH_OK ? place_from_mates(placer, own_receives, 0, before) : status;
    begin  = placer->plan->num_flows;
    for (int other = 0; other < pairs->num_nodes && status == MPATH_OK; other++) {
        if (other != node) {
            status = mpath_placer_block(placer, &sends, node, other);
            continue;
        }
        status = place_from_mates(placer, own_receives, before, after);
        status = status == MPATH_OK ? place_to_mates(placer, own_sends) : status;
    }
    if (status == MPATH_OK && pairs->in_order) {
        status = mpath_placer_sort(placer, begin);
    }
    status = status == MPATH_OK ? place_from_mates(placer, own_receives, after, mates) : status;
    for (int other = node + 1; other < pairs->num_nodes && status == MPATH_OK; other++) {
        status = mpath_placer_block(placer, &receives, other, node);
    }
    return status == MPATH_OK && !pairs->in_order ? mpath_placer_sort(placer, 0) : status;
}

/* Gives back what no flow has taken, where that is much: memory of the size that is asked for again keeps its pages. */
static void shrink(mpath_plan_t *plan)
{
    size_t capacity     = plan->num_flows > 0 ? plan->num_flows : 1;
    mpath_flow_t *flows = capacity < plan->capacity - plan->capacity / 4
                              ? realloc(plan->flows, capacity * sizeof(*flows))
                              : NULL;

    if (flows != NULL) {
        plan->flows    = flows;
        plan->capacity = capacity;
    }
}

/* A hash of a flow, whose number tells the pair. */
static uint64_t flow_term(const mpath_flow_t *flow)
{
    uint64_t term = ((uint64_t)flow->number << 32 | (uint32_t)flow->path) * 0x9e3779b97f4a7c15ull;

    term = ((term ^ term >> 32) + flow->offset) * 0xd6e8feb86659fd93ull;
    term = ((term ^ term >> 29) + flow->bytes) * 0x9e3779b97f4a7c15ull;
    term = (term ^ term >> 32) * 0xd6e8feb86659fd93ull;
    return term ^ term >> 29;
}

/* A sum does not make one flow wait for the other. */
static uint64_t part_sign(const mpath_plan_t *part)
{
    uint64_t sum = part->num_flows;

    for (size_t i = 0; i < part->num_flows; i++) {
        sum += flow_term(&part->flows[i]);
    }
    return sum;
}

mpath_status_t mpath_pairs_plan(const mpath_pairs_t *pairs, int rank, const mpath_pairs_rows_t *rows,
                                const mpath_pairs_load_t *load, mpath_plan_t **plan_p)
{
    int moves          = mpath_pairs_moves(pairs, load);
    mpath_plan_t *plan = mpath_plan_new(NULL);
    mpath_placer_t placer;
    mpath_status_t status;

    if (plan == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    status = mpath_placer_begin(&placer, pairs, rank, moves, plan);
    if (status == MPATH_OK) {
        status = place_part(&placer, rows);
    }
    mpath_placer_end(&placer);
    if (status != MPATH_OK) {
        mpath_plan_destroy(plan);
        return status;
    }
    shrink(plan);
    free(plan->loads);
    plan->loads     = NULL;
    plan->is_part   = 1;
    plan->signature = part_sign(plan);
    plan->bound     = mpath_pairs_bound(pairs, load);
    plan->z         = !moves            ? mpath_pairs_static(pairs, load)
                      : pairs->is_alike ? plan->bound
                                        : (mpath_ratio_t){load->terms.split_ns, MPATH_PAIRS_SECOND_NS};
    *plan_p         = plan;
    return MPATH_OK;
}

uint64_t mpath_pairs_balance(int rank, const mpath_plan_t *part)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < part->num_flows; i++) {
        const mpath_flow_t *flow = &part->flows[i];
        uint64_t term            = flow_term(flow);

        sum += flow->source == rank ? term : 0;
        sum -= flow->destination == rank ? term : 0;
    }
    return sum;
}

/* The number of the rail of a node's NIC among those in use. */
static int8_t rail_number(const mpath_pairs_t *pairs, int node, int nic)
{
    int8_t rail = 0;

    while (pairs->rails[rail] != mpath_topo_machine(pairs->topo, node)->nics[nic].rail) {
        rail++;
    }
    return rail;
}

/* The rails of a flow between two nodes. */
static mpath_arc_t flow_arc(const mpath_pairs_t *pairs, const mpath_flow_t *flow)
{
    mpath_arc_t arc = {0, 0};
    mpath_path_t path;

    if (!pairs->crosses) {
        arc.out = (int8_t)rail_of(rails_between(pairs, flow->source, flow->destination),
                                  mpath_pairs_static_rail(pairs, flow->source, flow->destination), flow->path);
        arc.in  = arc.out;
        return arc;
    }
    mpath_topo_path(pairs->topo, flow->source, flow->destination, flow->path, &path);
    for (int i = 0; i < path.num_hops; i++) {
        if (path.hops[i].lane == MPATH_LANE_RAIL) {
            arc.out = rail_number(pairs, mpath_pairs_node(pairs, flow->source), path.hops[i].nic_from);
            arc.in  = rail_number(pairs, mpath_pairs_node(pairs, flow->destination), path.hops[i].nic_to);
        }
    }
    return arc;
}

void mpath_pairs_share(const mpath_pairs_t *pairs, int rank, const mpath_plan_t *part, uint64_t *share)
{
    memset(share, 0, 2 * (size_t)pairs->num_rails * sizeof(*share));
    for (size_t i = 0; i < part->num_flows; i++) {
        const mpath_flow_t *flow = &part->flows[i];

        if ((flow->source == rank || flow->destination == rank) &&
            mpath_pairs_node(pairs, flow->source) != mpath_pairs_node(pairs, flow->destination)) {
            mpath_arc_t arc = flow_arc(pairs, flow);

            share[flow->source == rank ? arc.out : pairs->num_rails + arc.in] += flow->bytes;
        }
    }
}

mpath_status_t mpath_pairs_set_loads(const mpath_pairs_t *pairs, const uint64_t *shares, mpath_plan_t *part)
{
    int num_resources = mpath_topo_num_resources(pairs->topo);
    uint64_t *loads   = calloc((size_t)num_resources + 1, sizeof(*loads));

    if (loads == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    for (int rank = 0; rank < pairs->num_ranks; rank++) {
        for (int rail = 0; rail < pairs->num_rails; rail++, shares++) {
            int node = mpath_pairs_node(pairs, rank), nic = mpath_pairs_nic(pairs, node, rail);

            if ((pairs->has[node] & mpath_nic_bit(rail)) == 0) {
                continue;
            }
            loads[mpath_topo_resource_find(pairs->topo, MPATH_RESOURCE_NIC_TX, node, nic)] += shares[0];
            loads[mpath_topo_resource_find(pairs->topo, MPATH_RESOURCE_NIC_RX, node, nic)] += shares[pairs->num_rails];
        }
        shares += pairs->num_rails;
    }
    free(part->loads);
    part->loads         = loads;
    part->num_resources = num_resources;
    return MPATH_OK;
}
