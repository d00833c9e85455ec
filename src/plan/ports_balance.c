/* SPDX-License-Identifier: BSD-3-Clause */
/* Balances the NICs of a node of GPUs: which bytes could arrive on, or leave by, which of its NICs, and their moves. */
#include "plan/balance.h"
#include "plan/ports.h"

static uint64_t pair_bytes(const mpath_ports_t *ports, int receives, int own, int other)
{
    return mpath_moves_left(&ports->moves, receives ? other : own, receives ? own : other);
}

static void set_loads(const mpath_ports_t *ports, mpath_balance_t *balance, int node, int receives)
{
    const mpath_ports_lane_t *lane;
    uint32_t nic;
    int slot;

    for (slot = 0; slot < ports->num_slots; slot++) {
        lane = mpath_ports_lane(ports, node, slot);
        nic  = receives ? lane->rx : lane->tx;
        mpath_balance_set_load(balance, slot, ports->load[nic], ports->target[nic]);
    }
}

/* Bytes on static routes between the slots. */
static void count_arcs(const mpath_ports_t *ports, mpath_balance_t *balance, const mpath_ports_node_t *node,
                       int receives)
{
    const mpath_port_t *port;
    int other, i, own, slot;

    for (other = 0; other < ports->num_ranks; other++) {
        port = &ports->ports[other];
        for (i = 0; i < node->num_ranks && &ports->nodes[port->node] != node; i++) {
            own  = ports->members[node->first + i];
            slot = ports->ports[own].slot;
            balance->left[slot][port->slot] += slot == port->slot || mpath_ports_is_linked(ports, own, other)
                                                   ? 0
                                                   : pair_bytes(ports, receives, own, other);
        }
    }
}

/* Moves the bytes of one arc, pair by pair. */
static mpath_status_t move_arc(mpath_ports_t *ports, const mpath_ports_node_t *node, int receives, int own, int via,
                               uint64_t *left)
{
    mpath_status_t status = MPATH_OK;
    uint64_t moved;
    int i, other;

    for (i = 0; i<ports->num_ranks && * left> 0 && status == MPATH_OK; i++) {
        other = ports->members[i];
        if (ports->ports[other].slot != via || &ports->nodes[ports->ports[other].node] == node ||
            mpath_ports_is_linked(ports, own, other)) {
            continue;
        }
        status = mpath_ports_move_over(ports, receives ? other : own, receives ? own : other, via, *left, &moved);
        *left -= moved < *left ? moved : *left;
    }
    return status;
}

mpath_status_t mpath_ports_balance(mpath_ports_t *ports, int node, int receives)
{
    const mpath_ports_node_t *n = &ports->nodes[node];
    mpath_status_t status       = MPATH_OK;
    mpath_balance_t balance;
    int slot, via, i, own;

    if (n->num_ranks == 0) {
        return MPATH_OK;
    }
    balance.num_nics = ports->num_slots;
    set_loads(ports, &balance, node, receives);
    if (!mpath_balance_is_tight(&balance)) {
        return MPATH_OK;
    }
    mpath_balance_init(&balance, ports->num_slots);
    count_arcs(ports, &balance, n, receives);
    mpath_balance_solve(&balance);
    for (slot = 0; slot < ports->num_slots; slot++) {
        for (via = 0; via < ports->num_slots; via++) {
            for (i = 0; i < n->num_ranks && balance.flow[slot][via] > 0 && status == MPATH_OK; i++) {
                own = ports->members[n->first + i];
                if (ports->ports[own].slot == slot) {
                    status = move_arc(ports, n, receives, own, via, &balance.flow[slot][via]);
                }
            }
        }
    }
    return status;
}
