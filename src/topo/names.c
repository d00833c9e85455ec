/* SPDX-License-Identifier: BSD-3-Clause */
/* Names of resources and paths, for output, JSON and messages. */
#include "topo/topo_internal.h"

#include <stdio.h>

void mpath_topo_resource_name(const mpath_topo_t *topo, int resource, char *name, size_t size)
{
    const mpath_resource_t r = mpath_topo_resource_at(topo, resource);

    switch (r.kind) {
    case MPATH_RESOURCE_HOST_MEMORY:
        snprintf(name, size, "node%d/host-memory", r.node);
        return;
    case MPATH_RESOURCE_NIC_TX:
        snprintf(name, size, "node%d/nic%d/tx", r.node, r.index);
        return;
    case MPATH_RESOURCE_NIC_RX:
        snprintf(name, size, "node%d/nic%d/rx", r.node, r.index);
        return;
    case MPATH_RESOURCE_NVLINK:
        snprintf(name, size, "node%d/nvlink%d-%d", r.node, r.index, r.peer);
        return;
    case MPATH_RESOURCE_GPU_EGRESS:
        snprintf(name, size, "node%d/gpu%d/egress", r.node, r.index);
        return;
    case MPATH_RESOURCE_GPU_INGRESS:
        snprintf(name, size, "node%d/gpu%d/ingress", r.node, r.index);
        return;
    case MPATH_RESOURCE_PCIE_UP:
        snprintf(name, size, "node%d/gpu%d/pcie-up", r.node, r.index);
        return;
    case MPATH_RESOURCE_PCIE_DOWN:
        snprintf(name, size, "node%d/gpu%d/pcie-down", r.node, r.index);
        return;
    case MPATH_RESOURCE_UPLINK_TX:
        snprintf(name, size, "node%d/uplink%d/tx", r.node, r.index);
        return;
    case MPATH_RESOURCE_UPLINK_RX:
        snprintf(name, size, "node%d/uplink%d/rx", r.node, r.index);
        return;
    }
    snprintf(name, size, "node%d/resource%d", r.node, resource);
}

const char *const mpath_gpu_link_names[] = {"none", "pcie", "mesh", "switch", NULL};

const char *const mpath_emulation_names[] = {"no", "copies", "rails", NULL};

const char *mpath_lane_kind_name(mpath_lane_kind_t kind)
{
    switch (kind) {
    case MPATH_LANE_SHM:
        return "shm";
    case MPATH_LANE_RAIL:
        return "rail";
    case MPATH_LANE_PEER:
        return "peer";
    case MPATH_LANE_STAGED:
        return "staged";
    }
    return "unknown";
}

/* "rail1", or "rail1-2" across rails. */
static int rail_hop_format(const mpath_topo_t *topo, const mpath_hop_t *hop, char *text, size_t size)
{
    int from = topo->machines[topo->places[hop->from].node]->nics[hop->nic_from].rail;
    int to   = topo->machines[topo->places[hop->to].node]->nics[hop->nic_to].rail;

    if (from == to) {
        return snprintf(text, size, " -rail%d-> %d", from, hop->to);
    }
    return snprintf(text, size, " -rail%d-%d-> %d", from, to, hop->to);
}

void mpath_topo_path_format(const mpath_topo_t *topo, const mpath_path_t *path, char *text, size_t size)
{
    const mpath_hop_t *hop;
    size_t length;
    int i, added;

    added = snprintf(text, size, "%d", path->hops[0].from);
    for (i = 0, length = (size_t)added; (i < path->num_hops) && (length < size); i++, length += (size_t)added) {
        hop = &path->hops[i];
        if (hop->lane == MPATH_LANE_RAIL) {
            added = rail_hop_format(topo, hop, text + length, size - length);
        } else {
            added = snprintf(text + length, size - length, " -%s-> %d", mpath_lane_kind_name(hop->lane), hop->to);
        }
    }
}
