/* SPDX-License-Identifier: BSD-3-Clause */
/* The policies without a search: direct, stripe and PXN. They are what mpath is compared with. */
#include "plan/internal.h"

#include <stddef.h>

/* The path with one relay at most, on the source's node, over the rail beside the destination; path 0 without one. */
static int pxn_path(const mpath_topo_t *topo, int source, int destination, int num_paths)
{
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

/* Evenly over the paths without a relay, fewer of them where the pieces would fall below a fragment. */
static void stripe_pair(mpath_plan_t *plan, const mpath_topo_t *topo, mpath_flow_t flow, int num_paths,
                        uint64_t smallest)
{
    int indices[MPATH_MAX_NICS], count, piece;
    uint64_t bytes = flow.bytes;

    count = relayless_paths(topo, flow.source, flow.destination, num_paths, indices);
    if (count > 1 && bytes / smallest < (uint64_t)count) {
        count = (int)(bytes / smallest);
    }
    if (count <= 1) {
        add_flow(plan, topo, &flow);
        return;
    }
    for (piece = 0; piece < count; piece++) {
        flow.path  = indices[piece];
        flow.bytes = bytes / (uint64_t)count + ((uint64_t)piece < bytes % (uint64_t)count);
        add_flow(plan, topo, &flow);
        flow.offset += flow.bytes;
    }
}

mpath_status_t mpath_plan_static(mpath_plan_t *plan, const mpath_topo_t *topo, const uint64_t *demand,
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
            flow.path        = params->policy == MPATH_POLICY_PXN ? pxn_path(topo, source, destination, num_paths) : 0;
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
