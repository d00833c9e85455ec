/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which policy without a search loads everything with less than a plan does. Direct has been counted. Stripe and PXN
 * deliver to the NIC beside the destination what comes from other nodes, and stripe stages half of what stays: mostly
 * these loads alone tell. Else all loads are added up, without a list of paths.
 */
#include "plan/ports.h"

#include <stdlib.h>
#include <string.h>

/* The most that any NIC receives, over its rate, when all bytes arrive beside their destination. */
static mpath_ratio_t arrival_z(const mpath_ports_t *ports)
{
    mpath_ratio_t z = {0, 1}, ratio;
    int rank;

    for (rank = 0; rank < ports->num_ranks && !ports->loose; rank++) {
        if (ports->remote_in[rank] > 0 && ports->is_beside[rank]) {
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

static void add_route(const mpath_ports_t *ports, uint64_t *load, int source, int destination, int via, uint64_t bytes)
{
    mpath_ports_route_t route;
    int i;

    mpath_ports_route(ports, source, destination, via, &route);
    for (i = 0; i < route.num_resources; i++) {
        load[route.resources[i]] += bytes;
    }
}

/* Over the rail beside the destination, by one relay on the source's node. */
static void load_pxn(const mpath_ports_t *ports, uint64_t *load, int source, int destination, uint64_t bytes)
{
    const mpath_port_t *s = &ports->ports[source], *d = &ports->ports[destination];
    int via = MPATH_PORTS_STATIC;

    if (s->node != d->node && d->slot >= 0 && ports->is_beside[destination] &&
        mpath_ports_has_route(ports, source, destination, d->slot)) {
        via = d->slot;
    }

    add_route(ports, load, source, destination, via, bytes);
}

/* Within a node half and half, as both ways have no relay; between nodes there is one such way at most. */
static void load_stripes(const mpath_ports_t *ports, uint64_t *load, int source, int destination, uint64_t bytes)
{
    int is_local    = ports->ports[source].node == ports->ports[destination].node;
    uint64_t staged = is_local && bytes / ports->min_fragment_bytes >= 2 ? bytes / 2 : 0;

    add_route(ports, load, source, destination, MPATH_PORTS_STATIC, bytes - staged);
    if (staged > 0) {
        add_route(ports, load, source, destination, mpath_ports_staged(ports), staged);
    }
}

static mpath_ratio_t policy_z(const mpath_ports_t *ports, uint64_t *load, mpath_policy_t policy)
{
    const uint64_t *demand = ports->demand;
    int source, destination;

    memset(load, 0, (size_t)ports->num_resources * sizeof(*load));
    for (source = 0; source < ports->num_ranks; source++, demand += ports->num_ranks) {
        for (destination = 0; destination < ports->num_ranks; destination++) {
            if (demand[destination] > 0 && destination != source) {
                if (policy == MPATH_POLICY_PXN) {
                    load_pxn(ports, load, source, destination, demand[destination]);
                } else {
                    load_stripes(ports, load, source, destination, demand[destination]);
                }
            }
        }
    }
    return mpath_ports_z(ports, load);
}

/* The policies of which a quick look does not tell that they are no better. */
static uint32_t suspects(const mpath_ports_t *ports, mpath_ratio_t z)
{
    uint32_t rivals       = MPATH_PLAN_ALL_RIVALS;
    mpath_ratio_t arrival = arrival_z(ports);

    if (!mpath_ratio_less(mpath_ports_z(ports, ports->moves == NULL ? ports->load : ports->saved), z)) {
        rivals &= ~(1u << MPATH_POLICY_DIRECT);
        rivals &= ports->one_node ? ~(1u << MPATH_POLICY_PXN) : UINT32_MAX; /* the same routes */
    }
    if (!ports->one_node && !mpath_ratio_less(arrival, z)) {
        rivals &= ~(1u << MPATH_POLICY_PXN);
    }
    if (!mpath_ratio_less(staging_z(ports), z) || (ports->crossing && !mpath_ratio_less(arrival, z))) {
        rivals &= ~(1u << MPATH_POLICY_STRIPE);
    }
    return rivals;
}

mpath_status_t mpath_ports_rivals(const mpath_ports_t *ports, mpath_ratio_t z, uint32_t *rivals_p)
{
    uint32_t left = suspects(ports, z), rivals = left & (1u << MPATH_POLICY_DIRECT);
    mpath_policy_t policy;
    uint64_t *load;

    left &= ~rivals;
    if (left != 0) {
        load = malloc(((size_t)ports->num_resources + 1) * sizeof(*load));
        if (load == NULL) {
            return MPATH_ERR_NO_MEMORY;
        }
        for (; left != 0; left &= left - 1) {
            policy = (mpath_policy_t)__builtin_ctz(left);
            rivals |= mpath_ratio_less(policy_z(ports, load, policy), z) ? 1u << policy : 0;
        }
        free(load);
    }
    *rivals_p = rivals;
    return MPATH_OK;
}
