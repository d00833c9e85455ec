/* SPDX-License-Identifier: BSD-3-Clause */
/* The ways of a pair, and the pieces that use a resource. */
#include "plan/ports.h"

int mpath_ports_list_ways(const mpath_ports_t *ports, int source, int destination, int *vias)
{
    const mpath_port_t *s = &ports->ports[source], *d = &ports->ports[destination];
    uint32_t matched, from, to;
    int count = 0;

    vias[count++] = MPATH_PORTS_STATIC;
    if (s->node == d->node) {
        for (from = s->links_to & d->links_from; from != 0; from &= from - 1) {
            vias[count++] = __builtin_ctz(from);
        }
        if (mpath_ports_can_peer(ports, source, destination)) {
            vias[count++] = MPATH_PORTS_STAGED;
        }
        return count;
    }
    matched = mpath_ports_matched(ports, source, destination);
    for (from = matched; from != 0; from &= from - 1) {
        vias[count++] = __builtin_ctz(from);
    }
    if (!ports->crossing || ports->nodes[s->node].lanes == ports->nodes[d->node].lanes) {
        return count;
    }
    for (from = ports->nodes[s->node].lanes; from != 0; from &= from - 1) {
        to = ports->nodes[d->node].lanes & ((matched >> __builtin_ctz(from)) & 1 ? ~matched : UINT32_MAX);
        for (; to != 0; to &= to - 1) {
            vias[count++] = MPATH_PORTS_CROSS + __builtin_ctz(from) * MPATH_PORTS_MAX_SLOTS + __builtin_ctz(to);
        }
    }
    return count;
}

typedef struct visitor {
    uint32_t resource;
    mpath_ports_visit_t visit;
    void *arg;
} visitor_t;

static mpath_status_t visit_piece(mpath_ports_t *ports, const visitor_t *v, int source, int destination, int via,
                                  uint64_t bytes)
{
    mpath_ports_piece_t piece = {.source = source, .destination = destination, .via = via, .bytes = bytes};

    mpath_ports_route(ports, source, destination, via, &piece.route);
    return mpath_ports_uses(&piece.route, v->resource) ? v->visit(v->arg, &piece) : MPATH_OK;
}

static mpath_status_t visit_pair(mpath_ports_t *ports, const visitor_t *v, int source, int destination)
{
    size_t pair           = mpath_moves_pair(&ports->moves, source, destination);
    mpath_status_t status = MPATH_OK;
    uint64_t bytes        = ports->demand[pair];
    uint32_t move, next;

    if (bytes == 0 || source == destination) {
        return MPATH_OK;
    }
    for (move = ports->moves.head[pair]; move != 0; move = ports->moves.list[move].next) {
        bytes -= ports->moves.list[move].bytes;
    }
    move = ports->moves.head[pair];
    if (bytes > 0) {
        status = visit_piece(ports, v, source, destination, MPATH_PORTS_STATIC, bytes);
    }
    for (; move != 0 && status == MPATH_OK; move = next) { /* moves that are added meanwhile stand before */
        next  = ports->moves.list[move].next;
        bytes = ports->moves.list[move].bytes;
        if (bytes > 0) {
            status = visit_piece(ports, v, source, destination, ports->moves.list[move].via, bytes);
        }
    }
    return status;
}

/* All pairs that a node's ranks send or receive. */
static mpath_status_t visit_node(mpath_ports_t *ports, const visitor_t *v, int node, int receives)
{
    const mpath_ports_node_t *n = &ports->nodes[node];
    mpath_status_t status       = MPATH_OK;
    int i, own, other;

    for (i = n->first; i < n->first + n->num_ranks; i++) {
        own = ports->members[i];
        for (other = 0; other < ports->num_ranks && status == MPATH_OK; other++) {
            if (!receives || ports->ports[other].node != node) { /* pairs inside have been sent */
                status = visit_pair(ports, v, receives ? other : own, receives ? own : other);
            }
        }
    }
    return status;
}

mpath_status_t mpath_ports_visit(mpath_ports_t *ports, uint32_t resource, mpath_ports_visit_t visit, void *arg)
{
    const mpath_resource_t *r = mpath_topo_resource(ports->topo, (int)resource);
    visitor_t v               = {.resource = resource, .visit = visit, .arg = arg};
    int is_sender             = r->kind == MPATH_RESOURCE_NIC_TX || r->kind == MPATH_RESOURCE_UPLINK_TX;
    int is_receiver           = r->kind == MPATH_RESOURCE_NIC_RX || r->kind == MPATH_RESOURCE_UPLINK_RX;
    mpath_status_t status     = MPATH_OK;

    /* ports and links inside a node carry what it sends and what it receives */
    if (!is_receiver) {
        status = visit_node(ports, &v, r->node, 0);
    }
    return status == MPATH_OK && !is_sender ? visit_node(ports, &v, r->node, 1) : status;
}
