/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Balances the NICs of one node without touching those at the other ends, where static routes cross from rail to rail.
 * A byte from a rank beside rail k to a rank beside rail j arrives on NIC j; over rail k it arrives on NIC k and leaves
 * its own node as before. So the bytes between ranks of two rails are an arc between the node's NICs, and a maximum
 * flow over the arcs, from the overloaded NICs to those with room, says how many bytes take which. Sending is the same
 * the other way round.
 */
#ifndef MPATH_PLAN_BALANCE_H
#define MPATH_PLAN_BALANCE_H

#include "topo/topo.h"

#include <stdint.h>

typedef struct mpath_balance {
    int num_nics;
    uint64_t excess[MPATH_MAX_NICS], room[MPATH_MAX_NICS]; /* by NIC, bytes above and below its target */
    uint64_t left[MPATH_MAX_NICS][MPATH_MAX_NICS];         /* [j][k]: bytes on NIC j that could be on NIC k */
    uint64_t flow[MPATH_MAX_NICS][MPATH_MAX_NICS];         /* [j][k]: bytes that move from NIC j to NIC k */
} mpath_balance_t;

/* Clears the arcs. */
void mpath_balance_init(mpath_balance_t *balance, int num_nics);
/* States the load of a NIC. */
static inline void mpath_balance_set_load(mpath_balance_t *balance, int nic, uint64_t load, uint64_t target)
{
    balance->excess[nic] = load > target ? load - target : 0;
    balance->room[nic]   = load < target ? target - load : 0;
}
/* Nonzero when some NIC is overloaded and the others have little more room than it takes: else no care is needed. */
int mpath_balance_is_tight(const mpath_balance_t *balance);
/* Finds the flow; uses up excess, room and left. */
void mpath_balance_solve(mpath_balance_t *balance);

#endif
