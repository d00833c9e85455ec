/* SPDX-License-Identifier: BSD-3-Clause */
/* The cuts: what ports, NICs and nodes of GPUs must carry whatever the routes are. */
#include "plan/ports.h"

mpath_ratio_t mpath_ports_z_at(const mpath_ports_t *ports, const uint64_t *load, int *resource_p)
{
    mpath_ratio_t z = {0, 1}, ratio;
    int r;

    *resource_p = -1;
    for (r = 0; r < ports->num_resources; r++) {
        ratio.num = load[r];
        ratio.den = ports->capacity[r];
        if (ratio.den == z.den ? ratio.num > z.num : mpath_ratio_less(z, ratio)) { /* many are alike */
            z           = ratio;
            *resource_p = r;
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

    if (bytes > 0 && rate_bps > 0) {
        *bound = mpath_ratio_max(*bound, ratio);
    }
}

/* What peer copies into or out of a rank can use together; 0: none but over PCIe. */
static uint64_t peer_rate(const mpath_ports_t *ports, int rank, int into)
{
    const mpath_port_t *port = &ports->ports[rank], *other;
    uint32_t resource        = into ? port->ingress : port->egress, gpus;
    uint64_t rate            = 0;

    if (ports->nodes[port->node].link != MPATH_GPU_LINK_MESH) {
        return resource == MPATH_PORTS_NONE || resource == port->up || resource == port->down
                   ? 0
                   : ports->capacity[resource];
    }
    for (gpus = into ? port->links_from : port->links_to; gpus != 0; gpus &= gpus - 1) {
        other = &ports->ports[ports->on_gpu[port->node * ports->gpus_per_node + __builtin_ctz(gpus)]];
        rate += ports->capacity[into ? mpath_ports_link(ports, other, port) : mpath_ports_link(ports, port, other)];
    }
    return rate;
}

/* What the NICs beside a rank and the PCIe link behind them can do. */
static uint64_t own_nics_rate(const mpath_ports_t *ports, const mpath_port_t *port, int into)
{
    const mpath_ports_lane_t *lane;
    uint64_t rate = 0;
    uint32_t slots;

    for (slots = port->slots; slots != 0 && !ports->one_node; slots &= slots - 1) {
        lane = mpath_ports_lane(ports, port->node, __builtin_ctz(slots));
        rate += ports->capacity[into ? lane->rx : lane->tx];
    }
    return least(rate, ports->capacity[into ? port->down : port->up]);
}

/*
 * Into (or out of) one rank: everything passes its peer links or its PCIe link, and what comes from other nodes its
 * peer links or its own NICs.
 */
static void cut_rank(const mpath_ports_t *ports, int rank, int into, mpath_ratio_t *bound)
{
    const mpath_port_t *port = &ports->ports[rank];
    uint64_t remote          = into ? ports->remote_in[rank] : ports->remote_out[rank];
    uint64_t local           = into ? ports->local_in[rank] + ports->linked_in[rank]
                                    : ports->local_out[rank] + ports->linked_out[rank];
    uint64_t peer, nics = own_nics_rate(ports, port, into);
    mpath_ratio_t alone = {remote + local, nics};

    if (nics > 0 && !mpath_ratio_less(*bound, alone)) {
        return; /* even without peer links */
    }
    peer = peer_rate(ports, rank, into);
    raise(bound, remote + local, peer + ports->capacity[into ? port->down : port->up]);
    if (remote > 0 && peer > 0) {
        raise(bound, remote, peer + nics);
    }
}

/* The NICs of a node, each no faster than the PCIe links it is reached by. */
static uint64_t lanes_rate(const mpath_ports_t *ports, int node, int into)
{
    const mpath_ports_lane_t *lane;
    const mpath_port_t *port;
    uint64_t rate = 0, links;
    int slot, i, driver;

    for (slot = 0; slot < ports->num_slots; slot++) {
        lane = mpath_ports_lane(ports, node, slot);
        for (i = 0, links = 0; i < lane->count; i++) {
            driver = lane->count == 1 ? lane->driver : ports->drivers[lane->driver + i];
            port   = &ports->ports[driver];
            links += ports->capacity[into ? port->down : port->up];
        }
        rate += lane->count == 0 ? 0 : least(links, ports->capacity[into ? lane->rx : lane->tx]);
    }
    return rate;
}

/* Into or out of a node: the NICs, by lane or by rank, and the uplink. */
static void cut_node(const mpath_ports_t *ports, int node, int into, mpath_ratio_t *bound)
{
    const mpath_ports_node_t *n = &ports->nodes[node];
    uint64_t bytes = into ? n->remote_in : n->remote_out, by_rank = 0;
    int i;

    if (bytes == 0) {
        return;
    }
    raise(bound, bytes, lanes_rate(ports, node, into));
    for (i = n->first; i < n->first + n->num_ranks && !ports->single; i++) {
        by_rank += own_nics_rate(ports, &ports->ports[ports->members[i]], into);
    }
    raise(bound, bytes, by_rank);
    if (n->uplink_tx != MPATH_PORTS_NONE) {
        raise(bound, bytes, ports->capacity[into ? n->uplink_rx : n->uplink_tx]);
    }
}

/* Host memory, where it is the only way between GPUs of a node. */
static void cut_memory(const mpath_ports_t *ports, int node, mpath_ratio_t *bound)
{
    const mpath_ports_node_t *n = &ports->nodes[node];
    uint64_t bytes              = 0;
    int i;

    for (i = n->first; i < n->first + n->num_ranks; i++) {
        bytes += ports->local_out[ports->members[i]];
    }
    raise(bound, bytes, ports->capacity[n->memory]);
}

mpath_ratio_t mpath_ports_cuts(const mpath_ports_t *ports)
{
    mpath_ratio_t bound = {0, 1};
    int i;

    for (i = 0; i < ports->num_nodes; i++) {
        if (!ports->one_node) {
            cut_node(ports, i, 0, &bound);
            cut_node(ports, i, 1, &bound);
        }
        if (ports->nodes[i].link == MPATH_GPU_LINK_NONE) {
            cut_memory(ports, i, &bound);
        }
    }
    for (i = 0; i < ports->num_ranks; i++) {
        cut_rank(ports, i, 0, &bound);
        cut_rank(ports, i, 1, &bound);
    }
    return bound;
}
