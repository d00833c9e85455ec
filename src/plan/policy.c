/* SPDX-License-Identifier: BSD-3-Clause */
/* Policy: who makes the plan. A construction where the topology allows one, the search else, or a fixed rule. */
#include "plan/follow.h"

#include "util/log.h"

#include <stddef.h>

#define GENERAL_MAX_RANKS 128

void mpath_plan_params_init(mpath_plan_params_t *params)
{
    params->policy             = MPATH_POLICY_MPATH;
    params->min_fragment_bytes = 32 * 1024;
    params->gap_ppm            = 2000;
    params->max_rounds         = 400;
    params->keep_ppm           = 20000;
}

/* The policies without a search: direct, stripe and PXN. They are what mpath is compared with. */

int mpath_plan_pxn_path(const mpath_topo_t *topo, int source, int destination)
{
    int num_paths               = mpath_topo_num_paths(topo, source, destination);
    const mpath_place_t *to     = mpath_topo_place(topo, destination);
    const mpath_machine_t *far  = mpath_topo_machine(topo, to->node);
    const mpath_machine_t *near = mpath_topo_machine(topo, mpath_topo_place(topo, source)->node);
    const mpath_hop_t *last;
    mpath_path_t path;
    int index;

    if (to->nic < 0) {
        return 0;
    }
    for (index = 0; index < num_paths; index++) {
        mpath_topo_path(topo, source, destination, index, &path);
        last = &path.hops[path.num_hops - 1];
        if (last->lane == MPATH_LANE_RAIL && path.num_hops <= 2 && last->nic_to == to->nic &&
            near->nics[last->nic_from].rail == far->nics[to->nic].rail) {
            return index;
        }
    }
    return 0;
}

/* The pair's paths without a relay, at most one per NIC; returns their number. */
static int relayless_paths(const mpath_topo_t *topo, int source, int destination, int num_paths, int *indices)
{
    mpath_path_t path;
    int index, count = 0;

    for (index = 0; index < num_paths && count < MPATH_MAX_NICS; index++) {
        mpath_topo_path(topo, source, destination, index, &path);
        if (path.num_relays == 0) {
            indices[count++] = index;
        }
    }
    return count;
}

static void add_flow(mpath_plan_t *plan, const mpath_topo_t *topo, const mpath_flow_t *flow)
{
    mpath_path_t path;
    int i;

    mpath_topo_path(topo, flow->source, flow->destination, flow->path, &path);
    for (i = 0; i < path.num_resources; i++) {
        plan->loads[path.resources[i]] += flow->bytes;
    }
    plan->relayed_bytes += flow->bytes * (uint64_t)path.num_relays;
    mpath_plan_append(plan, flow->source, flow->destination, flow->path, flow->offset, flow->bytes);
}

/* Evenly over the paths without a relay, fewer of them where the flows would fall below a fragment. */
static void stripe_pair(mpath_plan_t *plan, const mpath_topo_t *topo, mpath_flow_t flow, int num_paths,
                        uint64_t smallest)
{
    int indices[MPATH_MAX_NICS], count, i;
    uint64_t bytes = flow.bytes;

    count = relayless_paths(topo, flow.source, flow.destination, num_paths, indices);
    if (count > 1 && bytes / smallest < (uint64_t)count) {
        count = (int)(bytes / smallest);
    }
    if (count <= 1) {
        add_flow(plan, topo, &flow);
        return;
    }
    for (i = 0; i < count; i++) {
        flow.path  = indices[i];
        flow.bytes = bytes / (uint64_t)count + ((uint64_t)i < bytes % (uint64_t)count);
        add_flow(plan, topo, &flow);
        flow.offset += flow.bytes;
    }
}

/* Fills flows, loads and relayed bytes. */
static mpath_status_t plan_static(mpath_plan_t *plan, const mpath_topo_t *topo, const uint64_t *demand,
                                  const mpath_plan_params_t *params)
{
    int num_ranks     = mpath_topo_num_ranks(topo), source, destination, num_paths;
    mpath_flow_t flow = {0};
    mpath_status_t status;

    for (source = 0; source < num_ranks; source++) {
        status = mpath_plan_reserve(plan,
                                    (size_t)num_ranks * (params->policy == MPATH_POLICY_STRIPE ? MPATH_MAX_NICS : 1));
        if (status != MPATH_OK) {
            return status;
        }
        for (destination = 0; destination < num_ranks; destination++, demand++) {
            if (*demand == 0 || source == destination) {
                continue;
            }
            num_paths = mpath_topo_num_paths(topo, source, destination);
            if (num_paths <= 0) {
                return mpath_plan_unreachable(source, destination, *demand);
            }
            flow.source      = source;
            flow.destination = destination;
            flow.path        = params->policy == MPATH_POLICY_PXN ? mpath_plan_pxn_path(topo, source, destination) : 0;
            flow.offset      = 0;
            flow.bytes       = *demand;
            if (params->policy == MPATH_POLICY_STRIPE) {
                stripe_pair(plan, topo, flow, num_paths, params->min_fragment_bytes);
            } else {
                add_flow(plan, topo, &flow);
            }
        }
    }
    return MPATH_OK;
}

/* The policy mpath: minimum congestion. */

/* Whether the general search is affordable: it keeps every path of every pair in memory. */
static int is_small(const mpath_topo_t *topo)
{
    return mpath_topo_num_ranks(topo) <= GENERAL_MAX_RANKS;
}

mpath_status_t mpath_plan_construct(mpath_plan_t *plan, const mpath_topo_t *topo, const uint64_t *demand,
                                    const mpath_wanted_t *wanted)
{
    mpath_status_t status = MPATH_DECLINED;

    if (mpath_topo_params(topo)->max_paths == 0) { /* what is constructed takes all paths for granted */
        status = mpath_plan_ports(plan, topo, demand, wanted);
    }
    if (status == MPATH_DECLINED) {
        mpath_plan_clear(plan);
    }
    return status;
}

/* A plan of a policy without a search. */
static mpath_status_t make_static(mpath_plan_t *plan, const mpath_topo_t *topo, const uint64_t *demand,
                                  const mpath_plan_params_t *params)
{
    mpath_wanted_t wanted = {.params = params};
    mpath_status_t status = MPATH_DECLINED;

    if (params->policy == MPATH_POLICY_DIRECT) {
        status = mpath_plan_construct(plan, topo, demand, &wanted);
    }
    if (status == MPATH_DECLINED) {
        status = plan_static(plan, topo, demand, params);
        if (status == MPATH_OK) {
            mpath_plan_find_bottleneck(plan, topo);
            status = mpath_plan_cuts(topo, demand, &plan->bound);
        }
    }
    return status;
}

/* The plan of the general search in place of one that the construction left above the bound, when it is better. */
static mpath_status_t search_better(mpath_plan_t **plan_p, const mpath_topo_t *topo, const uint64_t *demand,
                                    const mpath_plan_params_t *params, const mpath_plan_t *previous)
{
    mpath_plan_t *other = mpath_plan_new(topo), *swap;
    mpath_status_t status;

    if (other == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    status = mpath_plan_general(other, topo, demand, params, previous);
    if (status == MPATH_OK) {
        mpath_plan_find_bottleneck(other, topo);
        other->bound = (*plan_p)->bound = mpath_ratio_max(other->bound, (*plan_p)->bound);
        if (mpath_ratio_less(other->z, (*plan_p)->z)) {
            swap    = *plan_p;
            *plan_p = other;
            other   = swap;
        }
    }
    mpath_plan_destroy(other);
    return status;
}

static mpath_status_t plan_congestion(mpath_plan_t **plan_p, const mpath_topo_t *topo, const uint64_t *demand,
                                      const mpath_plan_params_t *params, const mpath_plan_t *previous)
{
    mpath_wanted_t wanted = {.params = params};
    mpath_status_t status = mpath_plan_construct(*plan_p, topo, demand, &wanted);

    if (status == MPATH_DECLINED) {
        status = mpath_plan_general(*plan_p, topo, demand, params, previous);
        if (status == MPATH_OK) {
            mpath_plan_find_bottleneck(*plan_p, topo);
        }
        return status;
    }
    if (status == MPATH_OK && is_small(topo) && !mpath_ratio_within((*plan_p)->z, (*plan_p)->bound, params->gap_ppm)) {
        status = search_better(plan_p, topo, demand, params, previous);
    }
    return status;
}

static mpath_status_t plan_make(mpath_plan_t **plan_p, const mpath_topo_t *topo, const uint64_t *demand,
                                const mpath_plan_params_t *params, const mpath_plan_t *previous)
{
    mpath_plan_params_t whole = *params;
    mpath_status_t status     = MPATH_DECLINED;

    whole.policy = MPATH_POLICY_MPATH;
    if (params->policy == MPATH_POLICY_PAIRS) {
        status = mpath_plan_pairs(*plan_p, topo, demand, params);
    } else if (params->policy != MPATH_POLICY_MPATH) {
        return make_static(*plan_p, topo, demand, params);
    }
    return status == MPATH_DECLINED ? plan_congestion(plan_p, topo, demand, &whole, previous) : status;
}

mpath_status_t mpath_plan_create(const mpath_topo_t *topo, const uint64_t *demand, const mpath_plan_params_t *params,
                                 mpath_plan_t **plan_p)
{
    return mpath_plan_create_from(topo, demand, params, NULL, plan_p);
}

mpath_status_t mpath_plan_create_from(const mpath_topo_t *topo, const uint64_t *demand,
                                      const mpath_plan_params_t *params, const mpath_plan_t *previous,
                                      mpath_plan_t **plan_p)
{
    size_t num_ranks = (size_t)mpath_topo_num_ranks(topo);
    mpath_plan_params_t used;
    mpath_status_t status;
    mpath_plan_t *plan;

    if (params == NULL) {
        mpath_plan_params_init(&used);
    } else {
        used = *params;
    }
    used.min_fragment_bytes = used.min_fragment_bytes == 0 ? 1 : used.min_fragment_bytes;
    status                  = mpath_plan_check_total(demand, num_ranks);
    if (status != MPATH_OK) {
        return status;
    }
    plan = mpath_plan_new(topo);
    if (plan == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    status = plan_make(&plan, topo, demand, &used, previous);
    if (status != MPATH_OK) {
        mpath_plan_destroy(plan);
        return status;
    }
    *plan_p = plan;
    return MPATH_OK;
}

/* The first pair whose flows are not its bytes, or whose path is none; -1: there is none. */
static int64_t find_uncovered(const mpath_topo_t *topo, const uint64_t *demand, const mpath_flow_t *flows,
                              size_t num_flows)
{
    int64_t ranks = mpath_topo_num_ranks(topo);
    size_t next   = 0;

    for (int64_t pair = 0; pair < ranks * ranks; pair++) {
        int source = (int)(pair / ranks), destination = (int)(pair % ranks);
        uint64_t offset = 0;

        for (; next < num_flows && flows[next].source == source && flows[next].destination == destination; next++) {
            if (flows[next].offset != offset || flows[next].bytes == 0 || flows[next].path < 0 ||
                flows[next].path >= mpath_topo_num_paths(topo, source, destination)) {
                return pair;
            }
            offset += flows[next].bytes;
        }
        if (source != destination && offset != demand[pair]) {
            return pair;
        }
    }
    return next == num_flows ? -1 : flows[next].source * ranks + flows[next].destination;
}

mpath_status_t mpath_plan_from_flows(const mpath_topo_t *topo, const uint64_t *demand, const mpath_flow_t *flows,
                                     size_t num_flows, mpath_plan_t **plan_p)
{
    size_t num_ranks      = (size_t)mpath_topo_num_ranks(topo);
    mpath_status_t status = mpath_plan_check_total(demand, num_ranks);
    mpath_plan_t *plan;
    int64_t pair;

    if (status != MPATH_OK) {
        return status;
    }
    pair = find_uncovered(topo, demand, flows, num_flows);
    if (pair >= 0) {
        mpath_error(
            "plan: the flows from rank %d to rank %d are not the bytes between them, in order; they are not used",
            (int)((size_t)pair / num_ranks), (int)((size_t)pair % num_ranks));
        return MPATH_ERR_PARAM;
    }
    plan = mpath_plan_new(topo);
    if (plan == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    status = mpath_plan_reserve(plan, num_flows);
    for (size_t i = 0; status == MPATH_OK && i < num_flows; i++) {
        add_flow(plan, topo, &flows[i]);
    }
    if (status == MPATH_OK) {
        mpath_plan_find_bottleneck(plan, topo);
        status = mpath_plan_cuts(topo, demand, &plan->bound);
    }
    if (status != MPATH_OK) {
        mpath_plan_destroy(plan);
        return status;
    }
    *plan_p = plan;
    return MPATH_OK;
}
