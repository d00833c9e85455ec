/* SPDX-License-Identifier: BSD-3-Clause */
/* Shares: the interface and its peers as a topology of one rank per node, and the planner's flows as rates. */
#include "ucx_tl_mpath/shares.h"

#include "plan/plan.h"
#include "util/time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Only proportions count; so much in all that the planner's smallest piece is small beside a share. */
#define WHOLE_BYTES (1ull << 32)
/* What was measured is noise in its last digits, and equal rails have a closed form. */
#define RATE_STEPS 64

/* Rounded to about 1.5 percent, within what the topology takes. */
static uint64_t rounded_bps(uint64_t bps)
{
    uint64_t step = 1;

    while (bps / step > 2 * RATE_STEPS) {
        step *= 2;
    }
    bps = bps / step * step;
    return bps < (uint64_t)MPATH_MAX_RATE_BPS ? bps : (uint64_t)MPATH_MAX_RATE_BPS;
}

static void describe_node(mpath_machine_t *machine, int node, int num_rails, const uint64_t *bps)
{
    mpath_nic_t *nic;
    int rail;

    memset(machine, 0, sizeof(*machine));
    snprintf(machine->host, sizeof(machine->host), "node%d", node);
    machine->num_numa        = 1;
    machine->host_memory_bps = (uint64_t)MPATH_MAX_RATE_BPS;
    for (rail = 0; rail < num_rails; ++rail) {
        if (bps[rail] == 0) {
            continue;
        }
        nic = &machine->nics[machine->num_nics++];
        snprintf(nic->name, sizeof(nic->name), "rail%d", rail);
        nic->rate_bps = rounded_bps(bps[rail]);
        nic->numa     = -1;
        nic->rail     = (int16_t)rail;
        nic->up       = 1;
    }
}

static mpath_status_t describe(const mpath_shares_t *shares, mpath_machine_t *machines, mpath_topo_t **topo_p)
{
    mpath_place_t places[MPATH_SHARES_MAX_PEERS + 1];
    mpath_topo_params_t params = {.access = MPATH_REACH_ALL};
    int node;

    memset(places, 0, sizeof(places));
    for (node = 0; node <= shares->num_peers; ++node) {
        describe_node(&machines[node], node, shares->num_rails,
                      node == 0 ? shares->own_bps : shares->peer_bps + (node - 1) * shares->num_rails);
        places[node].node = node;
        places[node].nic  = -1;
        places[node].gpu  = -1;
    }
    return mpath_topo_create(machines, shares->num_peers + 1, places, shares->num_peers + 1, &params, topo_p);
}

static mpath_status_t route(const mpath_shares_t *shares, const mpath_topo_t *topo, mpath_plan_t **plan_p)
{
    int num_ranks = shares->num_peers + 1, peer;
    uint64_t *demand, all_bytes = 0;
    mpath_status_t status;

    for (peer = 0; peer < shares->num_peers; ++peer) {
        all_bytes += shares->demand_bytes[peer];
    }
    if (all_bytes == 0) {
        return MPATH_ERR_PARAM;
    }
    demand = calloc((size_t)num_ranks * (size_t)num_ranks, sizeof(*demand));
    if (demand == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    for (peer = 0; peer < shares->num_peers; ++peer) {
        demand[1 + peer] = (uint64_t)((double)shares->demand_bytes[peer] / (double)all_bytes * (double)WHOLE_BYTES);
    }
    status = mpath_plan_create(topo, demand, NULL, plan_p);
    free(demand);
    return status;
}

static void read_flows(const mpath_shares_t *shares, const mpath_machine_t *own, const mpath_topo_t *topo,
                       const mpath_plan_t *plan, uint64_t *share_bps)
{
    double whole_s = (double)mpath_plan_z_ns(plan) / (double)MPATH_NS_PER_S;
    const mpath_flow_t *flows;
    mpath_path_t path;
    size_t count, i;
    int rail;

    memset(share_bps, 0, (size_t)shares->num_peers * (size_t)shares->num_rails * sizeof(*share_bps));
    flows = mpath_plan_flows(plan, &count);
    for (i = 0; i < count; ++i) {
        mpath_topo_path(topo, flows[i].source, flows[i].destination, flows[i].path, &path);
        rail = own->nics[path.hops[0].nic_from].rail;
        share_bps[(flows[i].destination - 1) * shares->num_rails + rail] += (uint64_t)((double)flows[i].bytes /
                                                                                       whole_s);
    }
}

mpath_status_t mpath_shares_plan(const mpath_shares_t *shares, uint64_t *share_bps)
{
    mpath_machine_t *machines;
    mpath_topo_t *topo;
    mpath_plan_t *plan;
    mpath_status_t status;

    if (shares->num_peers < 1 || shares->num_peers > MPATH_SHARES_MAX_PEERS || shares->num_rails < 1 ||
        shares->num_rails > MPATH_MAX_NICS) {
        return MPATH_ERR_PARAM;
    }
    machines = calloc((size_t)shares->num_peers + 1, sizeof(*machines));
    if (machines == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    status = describe(shares, machines, &topo);
    if (status != MPATH_OK) {
        goto out_machines;
    }
    status = route(shares, topo, &plan);
    if (status != MPATH_OK) {
        goto out_topo;
    }
    read_flows(shares, &machines[0], topo, plan, share_bps);
    mpath_plan_destroy(plan);
out_topo:
    mpath_topo_destroy(topo);
out_machines:
    free(machines);
    return status;
}
