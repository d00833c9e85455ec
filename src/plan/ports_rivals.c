/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which policy without a search loads everything with less than a plan does. Direct has been counted. Where routes
 * cross, stripe and PXN deliver to the NICs beside the destination what comes from other nodes; stripe stages half of
 * what stays: mostly these loads alone tell. Else all loads are added up, without a list of paths.
 */
#include "plan/ports.h"

#include <stdlib.h>
#include <string.h>

#define MOST_STRIPES MPATH_MAX_NICS

static int has_lane(const mpath_ports_t *ports, int rank, int slot)
{
    return (int)((ports->nodes[ports->ports[rank].node].lanes >> slot) & 1);
}

/* What PXN takes; STATIC: it leaves the pair on its static route. */
static int pxn_via(const mpath_ports_t *ports, int source, int destination)
{
    const mpath_port_t *s = &ports->ports[source], *d = &ports->ports[destination];

    return s->node != d->node && d->slot >= 0 && ports->is_beside[destination] && has_lane(ports, source, d->slot)
               ? d->slot
               : MPATH_PORTS_STATIC;
}

static int is_relayless(const mpath_ports_t *ports, int source, int destination, int via)
{
    mpath_ports_route_t route;

    mpath_ports_route(ports, source, destination, via, &route);
    return route.num_relays == 0;
}

/* The rails without a relay, the static route apart, in the order of the paths. */
static int relayless_rails(const mpath_ports_t *ports, int source, int destination, int *vias, int count)
{
    const mpath_port_t *s = &ports->ports[source], *d = &ports->ports[destination];
    uint32_t matched = mpath_ports_matched(ports, source, destination), i, j;
    int from = -1, to = -1;

    mpath_ports_static_slots(ports, source, destination, &from, &to);
    for (i = s->slots & d->slots & matched; i != 0 && count < MOST_STRIPES; i &= i - 1) {
        if (__builtin_ctz(i) != from || from != to) {
            vias[count++] = __builtin_ctz(i);
        }
    }
    for (i = ports->crossing ? s->slots : 0; i != 0; i &= i - 1) {
        j = (matched >> __builtin_ctz(i)) & 1 ? d->slots & ~matched : d->slots;
        for (; j != 0 && count < MOST_STRIPES; j &= j - 1) {
            if (__builtin_ctz(i) != from || __builtin_ctz(j) != to) {
                vias[count++] = MPATH_PORTS_CROSS + __builtin_ctz(i) * MPATH_PORTS_MAX_SLOTS + __builtin_ctz(j);
            }
        }
    }
    return count;
}

/* The ways of a stripe; returns their number. */
static int stripe_vias(const mpath_ports_t *ports, int source, int destination, int *vias)
{
    int count = 0, from, to;

    if (is_relayless(ports, source, destination, MPATH_PORTS_STATIC)) {
        vias[count++] = MPATH_PORTS_STATIC;
    }
    if (ports->ports[source].node == ports->ports[destination].node) {
        if (mpath_ports_can_peer(ports, source, destination)) {
            vias[count++] = MPATH_PORTS_STAGED;
        }
        return count;
    }
    if (mpath_ports_is_linked(ports, source, destination) &&
        mpath_ports_static_slots(ports, source, destination, &from, &to)) {
        vias[count] = from == to ? from : MPATH_PORTS_CROSS + from * MPATH_PORTS_MAX_SLOTS + to;
        count += is_relayless(ports, source, destination, vias[count]);
    }
    return relayless_rails(ports, source, destination, vias, count);
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

/* As policy.c divides a pair. */
static void load_stripes(const mpath_ports_t *ports, uint64_t *load, int source, int destination, uint64_t bytes)
{
    int vias[MOST_STRIPES + 2], count = stripe_vias(ports, source, destination, vias), piece;

    if (count > 1 && bytes / ports->min_fragment_bytes < (uint64_t)count) {
        count = (int)(bytes / ports->min_fragment_bytes);
    }
    if (count <= 1) {
        add_route(ports, load, source, destination, MPATH_PORTS_STATIC, bytes);
        return;
    }
    for (piece = 0; piece < count; piece++) {
        add_route(ports, load, source, destination, vias[piece],
                  bytes / (uint64_t)count + ((uint64_t)piece < bytes % (uint64_t)count));
    }
}

static void load_pair(const mpath_ports_t *ports, uint64_t *load, mpath_policy_t policy, int source, int destination)
{
    uint64_t bytes = ports->demand[(size_t)source * (size_t)ports->num_ranks + (size_t)destination];

    if (bytes == 0 || source == destination) {
        return;
    }
    if (policy == MPATH_POLICY_PXN) {
        add_route(ports, load, source, destination, pxn_via(ports, source, destination), bytes);
    } else {
        load_stripes(ports, load, source, destination, bytes);
    }
}

static mpath_ratio_t policy_z(const mpath_ports_t *ports, uint64_t *load, mpath_policy_t policy)
{
    int source, destination;

    memset(load, 0, (size_t)ports->num_resources * sizeof(*load));
    for (source = 0; source < ports->num_ranks; source++) {
        for (destination = 0; destination < ports->num_ranks; destination++) {
            load_pair(ports, load, policy, source, destination);
        }
    }
    return mpath_ports_z(ports, load);
}

static mpath_ratio_t level(const mpath_ports_t *ports, const uint64_t *load, int resource)
{
    mpath_ratio_t ratio = {load[resource], ports->capacity[resource]};

    return ratio;
}

/* Z of a policy on the node where static routes are slowest; no other pairs than its own use its resources. */
static mpath_ratio_t policy_z_there(const mpath_ports_t *ports, uint64_t *load, mpath_policy_t policy)
{
    const uint64_t *fixed = ports->moves.list == NULL ? ports->load : ports->saved;
    mpath_ratio_t z       = {0, 1};
    int worst             = 0, r, i, own, other, node;

    for (r = 1; r < ports->num_resources; r++) {
        worst = mpath_ratio_less(level(ports, fixed, worst), level(ports, fixed, r)) ? r : worst;
    }
    node = mpath_topo_resource(ports->topo, worst)->node;
    memset(load, 0, (size_t)ports->num_resources * sizeof(*load));
    for (i = 0; i < ports->nodes[node].num_ranks; i++) {
        own = ports->members[ports->nodes[node].first + i];
        for (other = 0; other < ports->num_ranks; other++) {
            load_pair(ports, load, policy, own, other);
            if (ports->ports[other].node != node) {
                load_pair(ports, load, policy, other, own);
            }
        }
    }
    for (r = 0; r < ports->num_resources; r++) {
        if (mpath_topo_resource(ports->topo, r)->node == node) {
            z = mpath_ratio_max(z, level(ports, load, r));
        }
    }
    return z;
}

/*
 * Bytes from other nodes that PXN delivers to the NIC beside a rank, at least; `exact`: from nodes with that rail only.
 */
static uint64_t pxn_arrivals(const mpath_ports_t *ports, int rank, int exact)
{
    uint64_t bytes = 0;
    int source;

    if (!exact || ports->uniform) {
        return ports->remote_in[rank];
    }
    for (source = 0; source < ports->num_ranks; source++) {
        if (pxn_via(ports, source, rank) >= 0 && !mpath_ports_is_linked(ports, source, rank)) {
            bytes += ports->demand[(size_t)source * (size_t)ports->num_ranks + (size_t)rank];
        }
    }
    return bytes;
}

/* What a policy delivers to a lane at least, over its rate. */
static mpath_ratio_t lane_arrivals(const mpath_ports_t *ports, const mpath_ports_lane_t *lane, int slot,
                                   mpath_policy_t policy, int exact)
{
    mpath_ratio_t ratio = {0, ports->capacity[lane->rx]};
    uint64_t link;
    int i, rank;

    for (i = 0; i < lane->count; i++) {
        rank = lane->count == 1 ? lane->driver : ports->drivers[lane->driver + i];
        if (ports->ports[rank].slot != slot) {
            continue;
        }
        if (policy == MPATH_POLICY_PXN && ports->is_beside[rank]) {
            ratio.num += pxn_arrivals(ports, rank, exact);
        } else if (policy == MPATH_POLICY_STRIPE && ports->single) {
            ratio.num += ports->remote_in[rank] - ports->odd_in[rank];
        }
        link      = ports->capacity[ports->ports[rank].down];
        ratio.den = lane->count == 1 && link < ratio.den ? link : ratio.den;
    }
    return ratio;
}

/* Whether some NIC, or the PCIe link before it, must take z or more to receive what the policy delivers there. */
static int arrives_late(const mpath_ports_t *ports, mpath_policy_t policy, mpath_ratio_t z)
{
    const mpath_ports_lane_t *lane;
    int node, slot;

    if (policy == MPATH_POLICY_STRIPE && !ports->crossing) {
        return 0;
    }
    for (node = 0; node < ports->num_nodes; node++) {
        for (slot = 0; slot < ports->num_slots; slot++) {
            lane = mpath_ports_lane(ports, node, slot);
            if (lane->count > 0 && !mpath_ratio_less(lane_arrivals(ports, lane, slot, policy, 0), z) &&
                !mpath_ratio_less(lane_arrivals(ports, lane, slot, policy, 1), z)) {
                return 1;
            }
        }
    }
    return 0;
}

/* The same for a rank with several NICs, among which stripes divide what it receives. */
static int stripes_arrive_late(const mpath_ports_t *ports, mpath_ratio_t z)
{
    mpath_ratio_t ratio;
    uint32_t slots;
    int rank;

    for (rank = 0; rank < ports->num_ranks && ports->crossing && !ports->single; rank++) {
        ratio.num = ports->remote_in[rank] - ports->odd_in[rank];
        for (slots = ports->ports[rank].slots, ratio.den = 0; slots != 0; slots &= slots - 1) {
            ratio.den += ports->capacity[mpath_ports_lane(ports, ports->ports[rank].node, __builtin_ctz(slots))->rx];
        }
        if (ratio.den > 0 && !mpath_ratio_less(ratio, z)) {
            return 1;
        }
    }
    return 0;
}

/* What stripes put through host memory. */
static int stages_late(const mpath_ports_t *ports, mpath_ratio_t z)
{
    mpath_ratio_t ratio;
    int node;

    for (node = 0; node < ports->num_nodes; node++) {
        if (ports->nodes[node].staged_bytes > 0) {
            ratio.num = ports->nodes[node].staged_bytes;
            ratio.den = ports->capacity[ports->nodes[node].memory];
            if (!mpath_ratio_less(ratio, z)) {
                return 1;
            }
        }
    }
    return 0;
}

/*
 * Where no rank has several NICs and routes do not cross, stripes load these as static routes do, and PCIe links no
 * less: what stays on a node goes over PCIe anyhow, or half of it does now.
 */
static int nics_as_static_late(const mpath_ports_t *ports, const uint64_t *load, mpath_ratio_t z)
{
    int lane, num_lanes = ports->num_nodes * ports->num_slots, rank;

    if (ports->crossing || !ports->single || ports->has_domains) {
        return 0;
    }
    for (lane = 0; lane < num_lanes; lane++) {
        if (ports->lanes[lane].count > 0 && (!mpath_ratio_less(level(ports, load, (int)ports->lanes[lane].tx), z) ||
                                             !mpath_ratio_less(level(ports, load, (int)ports->lanes[lane].rx), z))) {
            return 1;
        }
    }
    for (rank = 0; rank < ports->num_ranks; rank++) {
        if (!mpath_ratio_less(level(ports, load, (int)ports->ports[rank].up), z) ||
            !mpath_ratio_less(level(ports, load, (int)ports->ports[rank].down), z)) {
            return 1;
        }
    }
    return 0;
}

/* The policies of which a quick look does not tell that they are no better. */
static uint32_t suspects(const mpath_ports_t *ports, mpath_ratio_t z)
{
    const uint64_t *fixed = ports->moves.list == NULL ? ports->load : ports->saved;
    uint32_t rivals       = MPATH_PLAN_ALL_RIVALS;

    if (!mpath_ratio_less(ports->static_z, z)) {
        rivals &= ~(1u << MPATH_POLICY_DIRECT);
        rivals &= ports->one_node ? ~(1u << MPATH_POLICY_PXN) : UINT32_MAX; /* the same routes */
    }
    if (!ports->one_node && arrives_late(ports, MPATH_POLICY_PXN, z)) {
        rivals &= ~(1u << MPATH_POLICY_PXN);
    }
    if (stages_late(ports, z) || arrives_late(ports, MPATH_POLICY_STRIPE, z) || stripes_arrive_late(ports, z) ||
        nics_as_static_late(ports, fixed, z)) {
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
            if (mpath_ratio_less(policy_z_there(ports, load, policy), z) &&
                mpath_ratio_less(policy_z(ports, load, policy), z)) {
                rivals |= 1u << policy;
            }
        }
        free(load);
    }
    *rivals_p = rivals;
    return MPATH_OK;
}
