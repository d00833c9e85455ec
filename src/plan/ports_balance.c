/* SPDX-License-Identifier: BSD-3-Clause */
/* Balances the NICs of a node of GPUs: which bytes could arrive on, or leave by, which of its NICs, and their moves. */
#include "plan/balance.h"
#include "plan/ports.h"

static uint64_t pair_bytes(const mpath_ports_t *ports, int receives, int own, int other)
{
    return receives ? mpath_ports_static_bytes(ports, other, own) : mpath_ports_static_bytes(ports, own, other);
}

static void set_loads(const mpath_ports_t *ports, mpath_balance_t *balance, int node, int receives)
{
    const mpath_port_t *port;
    uint32_t nic;
    int slot;

    for (slot = 0; slot < ports->num_slots; slot++) {
        port = &ports->ports[mpath_ports_driver(ports, node, slot)];
        nic  = receives ? port->rx : port->tx;
        mpath_balance_set_load(balance, slot, ports->load[nic], ports->target[nic]);
    }
}

/* Bytes on static routes between the slots. */
static void count_arcs(const mpath_ports_t *ports, mpath_balance_t *balance, int node, int receives)
{
    const mpath_port_t *port;
    int rank, slot, own;

    for (rank = 0; rank < ports->num_ranks; rank++) {
        port = &ports->ports[rank];
        for (slot = 0; slot < ports->num_slots && port->node != node; slot++) {
            own = mpath_ports_driver(ports, node, slot);
            balance->left[slot][port->slot] += slot == port->slot ? 0 : pair_bytes(ports, receives, own, rank);
        }
    }
}

/* Moves the bytes of one arc, pair by pair. */
static mpath_status_t move_arc(mpath_ports_t *ports, int node, int receives, int slot, int via, uint64_t bytes)
{
    int own               = mpath_ports_driver(ports, node, slot), other_node, other;
    mpath_status_t status = MPATH_OK;
    uint64_t moved;

    for (other_node = 0; other_node < ports->num_nodes && bytes > 0 && status == MPATH_OK; other_node++) {
        if (other_node != node && ports->nodes[other_node].num_ranks > 0) {
            other  = mpath_ports_driver(ports, other_node, via);
            status = mpath_ports_move_over(ports, receives ? other : own, receives ? own : other, via, bytes, &moved);
            bytes -= moved < bytes ? moved : bytes;
        }
    }
    return status;
}

mpath_status_t mpath_ports_balance(mpath_ports_t *ports, int node, int receives)
{
    mpath_status_t status = MPATH_OK;
    mpath_balance_t balance;
    int j, k;

    if (ports->nodes[node].num_ranks == 0) {
        return MPATH_OK;
    }
    balance.num_nics = ports->num_slots;
    set_loads(ports, &balance, node, receives);
    if (!mpath_balance_is_tight(&balance)) {
        return MPATH_OK;
    }
    mpath_balance_init(&balance, ports->num_slots);
    count_arcs(ports, &balance, node, receives);
    mpath_balance_solve(&balance);
    for (j = 0; j < ports->num_slots; j++) {
        for (k = 0; k < ports->num_slots && status == MPATH_OK; k++) {
            if (balance.flow[j][k] > 0) {
                status = move_arc(ports, node, receives, j, k, balance.flow[j][k]);
            }
        }
    }
    return status;
}
