/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Keeps the routes of a plan for another demand: every pair is divided as before, scaled to its bytes, as long as that
 * costs little. So noise in demands or measured rates moves no route back and forth.
 */
#include "plan/follow.h"

#include <stdlib.h>
#include <string.h>

typedef struct scaling {
    uint64_t smallest;
    uint64_t bytes; /* of the pair, now */
    uint64_t total; /* of the flows that stay, then */
    size_t count;   /* of flows that stay */
    size_t largest;
} scaling_t;

static uint64_t scaled(const scaling_t *scaling, uint64_t bytes)
{
    return (uint64_t)((mpath_u128_t)bytes * scaling->bytes / scaling->total);
}

/* What a flow has above a fragment, when all were scaled by the same factor. */
static uint64_t surplus(const scaling_t *scaling, const mpath_flow_t *flow)
{
    uint64_t bytes = scaled(scaling, flow->bytes);

    return bytes > scaling->smallest ? bytes - scaling->smallest : 0;
}

/* Decides how many flows the pair still bears: the largest ones, in whole fragments. Those below `least` go. */
static uint64_t choose_flows(scaling_t *scaling, const mpath_flow_t *flows, size_t num_flows)
{
    uint64_t most = scaling->bytes / 2 < scaling->smallest ? 1 : scaling->bytes / scaling->smallest, least = 0, next;
    size_t i, count;

    for (;;) {
        count          = 0;
        next           = UINT64_MAX;
        scaling->total = 0;
        for (i = 0; i < num_flows; i++) {
            if (flows[i].bytes >= least) {
                count++;
                scaling->total += flows[i].bytes;
                next = flows[i].bytes < next ? flows[i].bytes : next;
            }
        }
        if (count <= most || next == flows[scaling->largest].bytes) {
            scaling->count = count;
            return least;
        }
        least = next + 1;
    }
}

/* Divides the pair's bytes as the flows do; appends what does not take path 0. */
static void scale_pair(const mpath_flow_t *flows, size_t num_flows, uint64_t bytes, uint64_t smallest,
                       mpath_moved_flow_t *moved, size_t *count)
{
    scaling_t scaling = {.smallest = smallest, .bytes = bytes};
    uint64_t least, sum = 0, given = 0, spread, amount;
    size_t i, largest = *count, first = *count;
    int whole, has_largest = 0;

    for (i = 1; i < num_flows; i++) {
        scaling.largest = flows[i].bytes > flows[scaling.largest].bytes ? i : scaling.largest;
    }
    least  = choose_flows(&scaling, flows, num_flows);
    whole  = scaling.count * smallest > bytes || scaling.count == 1; /* equal flows that are too many, or one */
    spread = bytes - (whole ? 0 : scaling.count * smallest);
    for (i = 0; i < num_flows && !whole; i++) {
        sum += flows[i].bytes >= least ? surplus(&scaling, &flows[i]) : 0;
    }
    for (i = 0; i < num_flows; i++) {
        if (flows[i].bytes < least || (whole && i != scaling.largest)) {
            continue;
        }
        amount = whole ? 0 : smallest;
        amount += sum == 0 ? 0 : (uint64_t)((mpath_u128_t)spread * surplus(&scaling, &flows[i]) / sum);
        given += amount;
        if (i == scaling.largest) {
            largest     = *count;
            has_largest = flows[i].path != 0;
        }
        if (flows[i].path != 0) {
            moved[*count].source      = flows[i].source;
            moved[*count].destination = flows[i].destination;
            moved[*count].path        = flows[i].path;
            moved[*count].bytes       = amount;
            (*count)++;
        }
    }
    if (has_largest && *count > first) {
        moved[largest].bytes += bytes - given; /* rounding; path 0 takes it otherwise */
    }
}

mpath_status_t mpath_plan_scale(const mpath_plan_t *previous, const uint64_t *demand, int num_ranks, uint64_t smallest,
                                mpath_moved_flow_t **moved_p, size_t *num_moved_p)
{
    const mpath_flow_t *flow = previous->flows, *end = flow, *first, *last;
    size_t count = 0, i;
    mpath_moved_flow_t *moved;
    uint64_t bytes;

    for (i = 0; i < previous->num_flows; i++) {
        count += flow[i].path != 0;
    }
    moved = malloc((count + 1) * sizeof(*moved));
    if (moved == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    if (previous->num_flows > 0) { /* else there is no array to step through */
        end = flow + previous->num_flows;
    }
    for (count = 0; flow != end; flow++) {
        if (flow->path == 0) {
            continue;
        }
        /* path 0 comes first, so that at most one flow of the pair has gone by */
        for (first = flow;
             first > previous->flows && first[-1].source == flow->source && first[-1].destination == flow->destination;
             first--) {
        }
        for (last = flow; last + 1 < end && last[1].source == flow->source && last[1].destination == flow->destination;
             last++) {
        }
        bytes = demand[(size_t)flow->source * (size_t)num_ranks + (size_t)flow->destination];
        if (bytes > 0) {
            scale_pair(first, (size_t)(last - first) + 1, bytes, smallest, moved, &count);
        }
        flow = last;
    }
    *moved_p     = moved;
    *num_moved_p = count;
    return MPATH_OK;
}

/* Adds a flow and what it loads. */
static void add_flow(mpath_plan_t *plan, const mpath_topo_t *topo, int source, int destination, int number,
                     uint64_t offset, uint64_t bytes)
{
    mpath_path_t path;
    int i;

    mpath_topo_path(topo, source, destination, number, &path);
    for (i = 0; i < path.num_resources; i++) {
        plan->loads[path.resources[i]] += bytes;
    }
    plan->relayed_bytes += bytes * (uint64_t)path.num_relays;
    mpath_plan_append(plan, source, destination, number, offset, bytes);
}

/* One row: its moved flows are those from *next on. */
static mpath_status_t add_row(mpath_plan_t *plan, const mpath_topo_t *topo, int source, const uint64_t *demand,
                              const mpath_moved_flow_t *moved, size_t num_moved, size_t *next)
{
    int num_ranks = mpath_topo_num_ranks(topo), destination, num_paths;
    uint64_t rest, offset;
    size_t i;

    for (destination = 0; destination < num_ranks; destination++) {
        rest = destination == source ? 0 : demand[destination];
        if (rest == 0) {
            continue;
        }
        num_paths = mpath_topo_num_paths(topo, source, destination);
        if (num_paths <= 0) {
            return mpath_plan_unreachable(source, destination, rest);
        }
        for (i = *next; i < num_moved && moved[i].source == source && moved[i].destination == destination; i++) {
            rest -= moved[i].bytes;
        }
        offset = rest;
        if (rest > 0) {
            add_flow(plan, topo, source, destination, 0, 0, rest);
        }
        for (; *next < i; (*next)++) {
            if (moved[*next].path >= num_paths) {
                return MPATH_DECLINED;
            }
            add_flow(plan, topo, source, destination, moved[*next].path, offset, moved[*next].bytes);
            offset += moved[*next].bytes;
        }
    }
    return MPATH_OK;
}

mpath_status_t mpath_plan_replay(mpath_plan_t *plan, const mpath_topo_t *topo, const uint64_t *demand,
                                 const mpath_moved_flow_t *moved, size_t num_moved)
{
    int num_ranks         = mpath_topo_num_ranks(topo), source;
    mpath_status_t status = MPATH_OK;
    size_t next           = 0;

    for (source = 0; source < num_ranks && status == MPATH_OK; source++, demand += num_ranks) {
        status = mpath_plan_reserve(plan, (size_t)num_ranks + num_moved - next);
        if (status == MPATH_OK) {
            status = add_row(plan, topo, source, demand, moved, num_moved, &next);
        }
    }
    if (status == MPATH_OK) {
        mpath_plan_find_bottleneck(plan, topo);
    }
    return status;
}
