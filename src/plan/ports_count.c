/* SPDX-License-Identifier: BSD-3-Clause */
/* Loads of the static routes, in one pass over the demand. */
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

static void load_leg(mpath_ports_t *ports, int from, int to, uint64_t bytes)
{
    mpath_ports_route_t leg = {.num_resources = 0};
    int i;

    mpath_ports_add_leg(ports, &leg, from, to);
    for (i = 0; i < leg.num_resources; i++) {
        ports->load[leg.resources[i]] += bytes;
    }
}

/* The pairs of a row that stay on the node: copies, and what stripes would stage. */
static void add_local_row(mpath_ports_t *ports, int source, const uint64_t *demand)
{
    mpath_ports_node_t *node = &ports->nodes[ports->ports[source].node];
    int i, destination;
    uint64_t bytes;

    for (i = node->first; i < node->first + node->num_ranks; i++) {
        destination = ports->members[i];
        bytes       = demand[destination];
        if (bytes == 0 || destination == source) {
            continue;
        }
        ports->local_out[source] += bytes;
        ports->local_in[destination] += bytes;
        if (bytes >= 2 * ports->min_fragment_bytes && mpath_ports_can_peer(ports, source, destination)) {
            node->staged_bytes += bytes / 2;
        }
        load_leg(ports, source, destination, bytes);
    }
}

/* Those to other nodes of the NVSwitch. */
static void add_linked_row(mpath_ports_t *ports, int source, const uint64_t *demand)
{
    const mpath_port_t *s = &ports->ports[source], *d;
    int destination;
    uint64_t bytes;

    for (destination = 0; destination < ports->num_ranks; destination++) {
        bytes = demand[destination];
        if (bytes > 0 && mpath_ports_is_linked(ports, source, destination)) {
            d = &ports->ports[destination];
            ports->load[s->egress] += bytes;
            ports->load[d->ingress] += bytes;
            ports->linked_out[source] += bytes;
            ports->linked_in[destination] += bytes;
        }
    }
}

/* One pair over rails; 0: it has no route. */
static int add_odd(mpath_ports_t *ports, int source, int destination, uint64_t bytes)
{
    mpath_ports_route_t route;
    int i;

    if (bytes == 0 || mpath_ports_is_linked(ports, source, destination)) {
        return 1;
    }
    mpath_ports_route(ports, source, destination, MPATH_PORTS_STATIC, &route);
    for (i = 0; i < route.num_resources; i++) {
        ports->load[route.resources[i]] += bytes;
    }
    ports->relayed_bytes += bytes * (uint64_t)route.num_relays;
    ports->odd_out[source] += bytes;
    ports->odd_in[destination] += bytes;
    return route.num_resources > 0;
}

/* All pairs of a row to a node, or with `only_odd` those whose destination has no NIC; 0: one has no route. */
static int add_odd_node(mpath_ports_t *ports, int source, const mpath_ports_node_t *node, const uint64_t *demand,
                        int only_odd)
{
    int i;

    for (i = node->first; i < node->first + node->num_ranks; i++) {
        if ((!only_odd || ports->ports[ports->members[i]].slot < 0) &&
            !add_odd(ports, source, ports->members[i], demand[ports->members[i]])) {
            return 0;
        }
    }
    return 1;
}

/* Where routes cross, all but those to and from ranks without a NIC are added later, in sums. */
static int add_crossing_row(mpath_ports_t *ports, int source, const uint64_t *demand)
{
    int node, only_odd = ports->ports[source].slot >= 0;

    for (node = 0; node < ports->num_nodes; node++) {
        if (node != ports->ports[source].node && !add_odd_node(ports, source, &ports->nodes[node], demand, only_odd)) {
            return 0;
        }
    }
    return 1;
}

/* To a node that has the source's slot: received there, and forwarded by its driver. */
static void add_matched_node(mpath_ports_t *ports, int source, const mpath_ports_node_t *node, const uint64_t *demand)
{
    int slot = ports->ports[source].slot, i, destination, driver;
    const mpath_ports_lane_t *lane;
    uint64_t bytes;

    for (i = node->first; i < node->first + node->num_ranks; i++) {
        destination = ports->members[i];
        bytes       = demand[destination];
        if (bytes == 0 || mpath_ports_is_linked(ports, source, destination)) {
            continue;
        }
        driver = mpath_ports_driver(ports, destination, slot, source, destination);
        lane   = mpath_ports_lane(ports, ports->ports[driver].node, slot);
        ports->load[lane->rx] += bytes;
        ports->load[ports->ports[driver].down] += bytes;
        if (driver != destination) {
            ports->relayed_bytes += bytes;
            load_leg(ports, driver, destination, bytes);
        }
    }
}

static int add_matched_row(mpath_ports_t *ports, int source, const uint64_t *demand)
{
    int slot = ports->ports[source].slot, node;

    for (node = 0; node < ports->num_nodes; node++) {
        if (node == ports->ports[source].node || ports->nodes[node].num_ranks == 0) {
            continue;
        }
        if (slot >= 0 && ((ports->nodes[node].lanes >> slot) & 1)) {
            add_matched_node(ports, source, &ports->nodes[node], demand);
        } else if (!add_odd_node(ports, source, &ports->nodes[node], demand, 0)) {
            return 0;
        }
    }
    return 1;
}

/* What the rank's own NIC sends and, where routes cross, receives. */
static void add_own_nic(mpath_ports_t *ports, int rank)
{
    const mpath_port_t *port       = &ports->ports[rank];
    const mpath_ports_node_t *node = &ports->nodes[port->node];
    uint64_t out = ports->remote_out[rank] - ports->odd_out[rank], in = ports->remote_in[rank] - ports->odd_in[rank];

    if (node->uplink_tx != MPATH_PORTS_NONE) {
        ports->load[node->uplink_tx] += out;
        ports->load[node->uplink_rx] += in;
    }
    if (port->slot < 0) {
        return;
    }
    ports->load[port->up] += out;
    ports->load[mpath_ports_lane(ports, port->node, port->slot)->tx] += out;
    if (ports->crossing) {
        ports->load[port->down] += in;
        ports->load[mpath_ports_lane(ports, port->node, port->slot)->rx] += in;
    }
}

/* Bytes between nodes, once all rows are summed up. */
static void add_remote(mpath_ports_t *ports, int rank)
{
    mpath_ports_node_t *node = &ports->nodes[ports->ports[rank].node];

    ports->remote_out[rank] -= ports->local_out[rank] + ports->linked_out[rank];
    ports->remote_in[rank] -= ports->demand[(size_t)rank * (size_t)(ports->num_ranks + 1)] + ports->local_in[rank] +
                              ports->linked_in[rank];
    node->remote_out += ports->remote_out[rank];
    node->remote_in += ports->remote_in[rank];
    if (!ports->one_node) {
        add_own_nic(ports, rank);
    }
}

mpath_status_t mpath_ports_count(mpath_ports_t *ports)
{
    const uint64_t *demand = ports->demand;
    int rank, has_routes = 1;

    for (rank = 0; rank < ports->num_ranks && has_routes; rank++, demand += ports->num_ranks) {
        ports->remote_out[rank] = add_row(ports->remote_in, demand, ports->num_ranks, &ports->num_pairs);
        ports->remote_out[rank] -= demand[rank];
        ports->num_pairs -= demand[rank] != 0;
        add_local_row(ports, rank, demand);
        if (ports->has_domains) {
            add_linked_row(ports, rank, demand);
        }
        if (ports->one_node) {
            continue;
        }
        if (!ports->crossing) {
            has_routes = add_matched_row(ports, rank, demand);
        } else if (!ports->uniform) {
            has_routes = add_crossing_row(ports, rank, demand);
        }
    }
    for (rank = 0; rank < ports->num_ranks; rank++) {
        add_remote(ports, rank);
    }
    return has_routes ? MPATH_OK : MPATH_DECLINED;
}
