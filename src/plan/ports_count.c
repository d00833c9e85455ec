/* SPDX-License-Identifier: BSD-3-Clause */
/* Loads of the static routes, in one pass over the demand, and the cuts: what ports and NICs must carry anyhow. */
#include "plan/ports.h"

/* Adds a row to the bytes of each destination; returns its sum. */
static uint64_t add_row(uint64_t *restrict column, const uint64_t *restrict demand, int num_ranks, size_t *num_pairs)
{
    uint64_t sum = 0;
    size_t pairs = 0;
    int i;

    for (i = 0; i < num_ranks; i++) {
        column[i] += demand[i];
        sum += demand[i];
        pairs += demand[i] != 0;
    }
    *num_pairs += pairs;
    return sum;
}

/* One pair inside a node: peer copies, and what stripes would stage. */
static void add_local(mpath_ports_t *ports, int source, int destination, uint64_t bytes)
{
    const mpath_port_t *s = &ports->ports[source], *d = &ports->ports[destination];

    ports->local_out[source] += bytes;
    ports->local_in[destination] += bytes;
    if (bytes >= 2 * ports->min_fragment_bytes) {
        ports->nodes[s->node].staged_bytes += bytes / 2;
    }
    if (ports->has_mesh && ports->nodes[s->node].link == MPATH_GPU_LINK_MESH) {
        ports->load[mpath_ports_link(ports, s, d)] += bytes;
    } else {
        ports->load[s->egress] += bytes;
        ports->load[d->ingress] += bytes;
    }
}

/* The pairs of a row that stay on the node. */
static void add_local_row(mpath_ports_t *ports, int source, const uint64_t *demand)
{
    int node = ports->ports[source].node, first = 0, end = ports->num_ranks, destination;

    if (ports->consecutive) {
        first = ports->nodes[node].first_rank;
        end   = first + ports->nodes[node].num_ranks;
    }
    for (destination = first; destination < end; destination++) {
        if (demand[destination] > 0 && destination != source && ports->ports[destination].node == node) {
            add_local(ports, source, destination, demand[destination]);
        }
    }
}

/* Static routes over the source's rail, forwarded by the rank beside it. */
static void add_matched_row(mpath_ports_t *ports, int source, const uint64_t *demand)
{
    const mpath_port_t *s = &ports->ports[source], *d, *b;
    int destination, driver;
    uint64_t bytes;

    for (destination = 0; destination < ports->num_ranks; destination++) {
        d     = &ports->ports[destination];
        bytes = demand[destination];
        if (bytes == 0 || d->node == s->node) {
            continue;
        }
        driver = mpath_ports_driver(ports, d->node, s->slot);
        b      = &ports->ports[driver];
        ports->load[b->rx] += bytes;
        ports->load[b->down] += bytes;
        if (driver == destination) {
            continue;
        }
        ports->relayed_bytes += bytes;
        if (ports->has_mesh && ports->nodes[d->node].link == MPATH_GPU_LINK_MESH) {
            ports->load[mpath_ports_link(ports, b, d)] += bytes;
        } else {
            ports->load[b->egress] += bytes;
            ports->load[d->ingress] += bytes;
        }
    }
}

/* Static routes as the topology has them; MPATH_DECLINED when a pair has none. */
static mpath_status_t add_loose_row(mpath_ports_t *ports, int source, const uint64_t *demand)
{
    int node = ports->ports[source].node, destination, i;
    mpath_ports_route_t route;

    for (destination = 0; destination < ports->num_ranks; destination++) {
        if (demand[destination] == 0 || ports->ports[destination].node == node) {
            continue;
        }
        mpath_ports_ask_static(ports, source, destination, &route);
        if (route.num_resources == 0) {
            return MPATH_DECLINED;
        }
        for (i = 0; i < route.num_resources; i++) {
            ports->load[route.resources[i]] += demand[destination];
        }
        ports->relayed_bytes += demand[destination] * (uint64_t)route.num_relays;
    }
    return MPATH_OK;
}

static void add_uplinks(mpath_ports_t *ports, int rank)
{
    const mpath_ports_node_t *node = &ports->nodes[ports->ports[rank].node];

    if (node->uplink_tx != MPATH_PORTS_NONE) {
        ports->load[node->uplink_tx] += ports->remote_out[rank];
        ports->load[node->uplink_rx] += ports->remote_in[rank];
    }
}

/* Bytes between nodes, and where routes cross or start beside the source, what they load there. */
static void add_remote(mpath_ports_t *ports, int rank)
{
    const mpath_port_t *port = &ports->ports[rank];
    mpath_ports_node_t *node = &ports->nodes[port->node];

    ports->remote_out[rank] -= ports->local_out[rank];
    ports->remote_in[rank] -= ports->demand[mpath_ports_pair(ports, rank, rank)] + ports->local_in[rank];
    node->remote_out += ports->remote_out[rank];
    node->remote_in += ports->remote_in[rank];
    if (ports->one_node || ports->loose) {
        return;
    }
    ports->load[port->up] += ports->remote_out[rank];
    ports->load[port->tx] += ports->remote_out[rank];
    if (ports->crossing) {
        ports->load[port->down] += ports->remote_in[rank];
        ports->load[port->rx] += ports->remote_in[rank];
    }
    add_uplinks(ports, rank);
}

mpath_status_t mpath_ports_count(mpath_ports_t *ports)
{
    const uint64_t *demand = ports->demand;
    mpath_status_t status;
    int rank;

    for (rank = 0; rank < ports->num_ranks; rank++, demand += ports->num_ranks) {
        ports->remote_out[rank] = add_row(ports->remote_in, demand, ports->num_ranks, &ports->num_pairs);
        ports->remote_out[rank] -= demand[rank];
        ports->num_pairs -= demand[rank] != 0;
        add_local_row(ports, rank, demand);
        if (ports->loose) {
            status = add_loose_row(ports, rank, demand);
            if (status != MPATH_OK) {
                return status;
            }
        } else if (!ports->crossing && !ports->one_node) {
            add_matched_row(ports, rank, demand);
        }
    }
    for (rank = 0; rank < ports->num_ranks; rank++) {
        add_remote(ports, rank);
    }
    return MPATH_OK;
}

mpath_ratio_t mpath_ports_z(const mpath_ports_t *ports, const uint64_t *load)
{
    mpath_ratio_t z = {0, 1}, ratio;
    int r;

    for (r = 0; r < ports->num_resources; r++) {
        if (load[r] > 0) {
            ratio.num = load[r];
            ratio.den = ports->capacity[r];
            z         = mpath_ratio_max(z, ratio);
        }
    }
    return z;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void raise(mpath_ratio_t *bound, uint64_t bytes, uint64_t rate_bps)
{
    mpath_ratio_t ratio = {bytes, rate_bps};

    if (bytes > 0) {
        *bound = mpath_ratio_max(*bound, ratio);
    }
}

/* What peer copies into or out of a rank can use together. */
static uint64_t peer_rate(const mpath_ports_t *ports, int rank, int into)
{
    const mpath_port_t *port = &ports->ports[rank], *other;
    uint64_t rate            = 0;
    int slot;

    if (ports->nodes[port->node].link != MPATH_GPU_LINK_MESH) {
        return ports->capacity[into ? port->ingress : port->egress];
    }
    for (slot = 0; slot < ports->num_slots; slot++) {
        other = &ports->ports[mpath_ports_driver(ports, port->node, slot)];
        if (other != port) {
            rate += ports->capacity[into ? mpath_ports_link(ports, other, port) : mpath_ports_link(ports, port, other)];
        }
    }
    return rate;
}

/*
 * Into (or out of) one rank: everything passes its peer links or its PCIe link, and what comes from other nodes its peer
 * links or its own NIC.
 */
static void cut_rank(const mpath_ports_t *ports, int rank, int into, mpath_ratio_t *bound)
{
    const mpath_port_t *port = &ports->ports[rank];
    uint32_t pcie = into ? port->down : port->up, nic = into ? port->rx : port->tx;
    uint64_t remote = into ? ports->remote_in[rank] : ports->remote_out[rank];
    uint64_t all    = remote + (into ? ports->local_in[rank] : ports->local_out[rank]);
    uint64_t peer   = peer_rate(ports, rank, into);

    if (ports->nodes[port->node].link == MPATH_GPU_LINK_PCIE) {
        raise(bound, all, ports->capacity[pcie]);
        return;
    }
    raise(bound, all, peer + ports->capacity[pcie]);
    if (remote > 0) {
        raise(bound, remote, peer + (port->slot < 0 ? 0 : least(ports->capacity[pcie], ports->capacity[nic])));
    }
}

/* Into or out of a node: the NICs, each no faster than the PCIe link it is reached by, and the uplink. */
static void cut_node(const mpath_ports_t *ports, int node, int into, mpath_ratio_t *bound)
{
    const mpath_ports_node_t *n = &ports->nodes[node];
    uint64_t bytes = into ? n->remote_in : n->remote_out, rate = 0;
    const mpath_port_t *port;
    int slot, rank;

    for (slot = 0; slot < ports->num_slots && bytes > 0; slot++) {
        rank = mpath_ports_driver(ports, node, slot);
        if (rank >= 0) {
            port = &ports->ports[rank];
            rate += least(ports->capacity[into ? port->down : port->up], ports->capacity[into ? port->rx : port->tx]);
        }
    }
    if (bytes == 0 || rate == 0) {
        return;
    }
    raise(bound, bytes, rate);
    if (n->uplink_tx != MPATH_PORTS_NONE) {
        raise(bound, bytes, ports->capacity[into ? n->uplink_rx : n->uplink_tx]);
    }
}

mpath_ratio_t mpath_ports_cuts(const mpath_ports_t *ports)
{
    mpath_ratio_t bound = {0, 1};
    int i;

    for (i = 0; i < ports->num_ranks; i++) {
        cut_rank(ports, i, 0, &bound);
        cut_rank(ports, i, 1, &bound);
    }
    for (i = 0; i < ports->num_nodes && !ports->one_node; i++) {
        cut_node(ports, i, 0, &bound);
        cut_node(ports, i, 1, &bound);
    }
    return bound;
}
