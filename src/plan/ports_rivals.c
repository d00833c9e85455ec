/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether a policy without a search may load everything with less than a plan does: a quick look at what it must load.
 * Direct has been counted; stripe and PXN deliver to the NIC beside the destination all that comes from other nodes.
 */
#include "plan/ports.h"

/* The most that any NIC receives, over its rate, when all bytes arrive beside their destination. */
static mpath_ratio_t arrival_z(const mpath_ports_t *ports)
{
    mpath_ratio_t z = {0, 1}, ratio;
    int rank;

    for (rank = 0; rank < ports->num_ranks; rank++) {
        if (ports->remote_in[rank] > 0) {
            ratio.num = ports->remote_in[rank];
            ratio.den = ports->capacity[ports->ports[rank].rx];
            z         = mpath_ratio_max(z, ratio);
            ratio.den = ports->capacity[ports->ports[rank].down];
            z         = mpath_ratio_max(z, ratio);
        }
    }
    return z;
}

/* What stripes put through host memory. */
static mpath_ratio_t staging_z(const mpath_ports_t *ports)
{
    mpath_ratio_t z = {0, 1}, ratio;
    int node;

    for (node = 0; node < ports->num_nodes; node++) {
        if (ports->nodes[node].staged_bytes > 0) {
            ratio.num = ports->nodes[node].staged_bytes;
            ratio.den = ports->capacity[ports->nodes[node].memory];
            z         = mpath_ratio_max(z, ratio);
        }
    }
    return z;
}

uint32_t mpath_ports_rivals(const mpath_ports_t *ports, mpath_ratio_t z)
{
    uint32_t rivals = MPATH_PLAN_ALL_RIVALS;
    mpath_ratio_t arrival, fixed = mpath_ports_z(ports, ports->moves == NULL ? ports->load : ports->saved);
    int one_node = ports->num_ranks == ports->num_slots;

    if (!mpath_ratio_less(fixed, z)) {
        rivals &= ~(1u << MPATH_POLICY_DIRECT);
        if (one_node) {
            rivals &= ~(1u << MPATH_POLICY_PXN); /* the same routes */
        }
    }
    arrival = arrival_z(ports);
    if (!one_node && !mpath_ratio_less(arrival, z)) {
        rivals &= ~(1u << MPATH_POLICY_PXN);
    }
    if (!mpath_ratio_less(staging_z(ports), z) || (ports->crossing && !mpath_ratio_less(arrival, z))) {
        rivals &= ~(1u << MPATH_POLICY_STRIPE);
    }
    return rivals;
}
