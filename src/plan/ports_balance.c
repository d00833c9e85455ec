/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Balances the NICs of one node without touching those at the other ends, where static routes cross from rail to rail. A
 * byte from a rank in slot k to the rank in slot j arrives on NIC j; by slot k it arrives on NIC k and leaves its own
 * node as before. So the bytes between slots are arcs between the node's NICs, and a maximum flow over them from the
 * overloaded NICs to those with room (shortest paths first: Edmonds and Karp, J. ACM 19(2), 1972) says how many bytes
 * take which arc. Sending is the same the other way round.
 */
#include "plan/ports.h"

#include <string.h>

#define MAX_SLOTS MPATH_PORTS_MAX_SLOTS

typedef struct balance {
    int node, receives;
    uint64_t excess[MAX_SLOTS], room[MAX_SLOTS];
    uint64_t left[MAX_SLOTS][MAX_SLOTS]; /* [j][k]: bytes on NIC j that could be on NIC k; grows where flow returns */
    uint64_t flow[MAX_SLOTS][MAX_SLOTS];
} balance_t;

static uint32_t nic_of(const mpath_ports_t *ports, int rank, int receives)
{
    return receives ? ports->ports[rank].rx : ports->ports[rank].tx;
}

/* Nonzero when some NIC is overloaded and the others have little more room than it takes: else no care is needed. */
static int look(const mpath_ports_t *ports, balance_t *b)
{
    uint64_t load, target, excess = 0, room = 0;
    uint32_t nic;
    int slot;

    for (slot = 0; slot < ports->num_slots; slot++) {
        nic             = nic_of(ports, mpath_ports_driver(ports, b->node, slot), b->receives);
        load            = ports->load[nic];
        target          = ports->target[nic];
        b->excess[slot] = load > target ? load - target : 0;
        b->room[slot]   = load < target ? target - load : 0;
        excess += b->excess[slot];
        room += b->room[slot];
    }
    return excess > 0 && room / 2 < excess;
}

static uint64_t pair_bytes(const mpath_ports_t *ports, const balance_t *b, int own, int other)
{
    return b->receives ? mpath_ports_static_bytes(ports, other, own) : mpath_ports_static_bytes(ports, own, other);
}

/* Bytes on static routes between the slots. */
static void count_arcs(const mpath_ports_t *ports, balance_t *b)
{
    int rank, slot, own;

    memset(b->left, 0, sizeof(b->left));
    memset(b->flow, 0, sizeof(b->flow));
    for (rank = 0; rank < ports->num_ranks; rank++) {
        const mpath_port_t *port = &ports->ports[rank];

        for (slot = 0; slot < ports->num_slots && port->node != b->node; slot++) {
            own = mpath_ports_driver(ports, b->node, slot);
            b->left[slot][port->slot] += slot == port->slot ? 0 : pair_bytes(ports, b, own, rank);
        }
    }
}

/* A shortest path of arcs from overloaded NICs to one with room; its end, -1: there is none. */
static int find_path(const balance_t *b, int num_slots, int *from)
{
    int queue[MAX_SLOTS], head = 0, tail = 0, j, k;

    for (k = 0; k < num_slots; k++) {
        from[k] = -1;
        if (b->excess[k] > 0) {
            from[k]       = k;
            queue[tail++] = k;
        }
    }
    while (head < tail) {
        j = queue[head++];
        for (k = 0; k < num_slots; k++) {
            if (from[k] < 0 && b->left[j][k] > 0) {
                from[k] = j;
                if (b->room[k] > 0) {
                    return k;
                }
                queue[tail++] = k;
            }
        }
    }
    return -1;
}

/* Sends what the path carries. */
static void augment(balance_t *b, const int *from, int end)
{
    uint64_t bytes = b->room[end], back;
    int j, k;

    for (k = end; from[k] != k; k = from[k]) {
        bytes = b->left[from[k]][k] < bytes ? b->left[from[k]][k] : bytes;
    }
    bytes = b->excess[k] < bytes ? b->excess[k] : bytes;
    b->excess[k] -= bytes;
    b->room[end] -= bytes;
    for (k = end; from[k] != k; k = from[k]) {
        j    = from[k];
        back = b->flow[k][j] < bytes ? b->flow[k][j] : bytes;
        b->flow[k][j] -= back;
        b->flow[j][k] += bytes - back;
        b->left[j][k] -= bytes;
        b->left[k][j] += bytes;
    }
}

/* Moves the bytes of one arc, pair by pair. */
static mpath_status_t move_arc(mpath_ports_t *ports, const balance_t *b, int slot, int via)
{
    int own               = mpath_ports_driver(ports, b->node, slot), node, other;
    uint64_t bytes        = b->flow[slot][via], moved;
    mpath_status_t status = MPATH_OK;

    for (node = 0; node < ports->num_nodes && bytes > 0 && status == MPATH_OK; node++) {
        if (node != b->node && ports->nodes[node].num_ranks > 0) {
            other  = mpath_ports_driver(ports, node, via);
            status = mpath_ports_move_over(ports, b->receives ? other : own, b->receives ? own : other, via, bytes,
                                           &moved);
            bytes -= moved < bytes ? moved : bytes;
        }
    }
    return status;
}

mpath_status_t mpath_ports_balance(mpath_ports_t *ports, int node, int receives)
{
    mpath_status_t status = MPATH_OK;
    int from[MAX_SLOTS], end, j, k;
    balance_t b;

    b.node     = node;
    b.receives = receives;
    if (ports->nodes[node].num_ranks == 0 || !look(ports, &b)) {
        return MPATH_OK;
    }
    count_arcs(ports, &b);
    for (end = find_path(&b, ports->num_slots, from); end >= 0; end = find_path(&b, ports->num_slots, from)) {
        augment(&b, from, end);
    }
    for (j = 0; j < ports->num_slots; j++) {
        for (k = 0; k < ports->num_slots && status == MPATH_OK; k++) {
            status = b.flow[j][k] > 0 ? move_arc(ports, &b, j, k) : MPATH_OK;
        }
    }
    return status;
}
