/* SPDX-License-Identifier: BSD-3-Clause */
/* Movement, the ends of rails: the peer that a NIC of another rank is, from the addresses that all have exchanged. */
#include "exec/move_private.h"

#include "util/log.h"

#include <stdio.h>

int mpath_mover_peer(mpath_mover_t *mover, int nic, int rank, int nic_to)
{
    const mpath_team_t *team   = mover->team;
    const mover_hello_t *hello = &mover->hellos[rank];
    int *known = &mover->peers[((size_t)nic * (size_t)team->size + (size_t)rank) * MPATH_MAX_NICS + (size_t)nic_to];
    const uint8_t *address;
    char name[96];
    int peer;

    if (*known > 0) {
        return *known - 1;
    }
    if ((mover->hellos[team->rank].address_bytes[nic] == 0) || (hello->address_bytes[nic_to] == 0) ||
        (mover->addresses == NULL)) {
        mpath_error("the plan sends over NIC %d to NIC %d of rank %d, which are not both open", nic, nic_to, rank);
        return MPATH_ERR_INTERNAL;
    }
    address = mover->addresses + (size_t)rank * mover->address_stride;
    for (int before = 0; before < nic_to; before++) {
        address += hello->address_bytes[before];
    }
    snprintf(name, sizeof(name), "rank %d (%s)", rank, mpath_topo_machine(team->topo, team->node_of[rank])->host);
    peer = mpath_fabric_peer(mover->fabric, mover->fabric_nic[nic], address, hello->address_bytes[nic_to], name);
    if (peer >= 0) {
        *known = peer + 1;
    }
    return peer;
}

int mpath_mover_nic_of(const mpath_mover_t *mover, int rail)
{
    for (int nic = 0; nic < MPATH_MAX_NICS; nic++) {
        if (((mover->driven >> nic) & 1) && (mover->fabric_nic[nic] == rail)) {
            return nic;
        }
    }
    return -1;
}

void mpath_mover_forget_peers(mpath_mover_t *mover)
{
    size_t per_nic = (size_t)mover->team->size * MPATH_MAX_NICS;

    for (int nic = 0; nic < MPATH_MAX_NICS; nic++) {
        for (size_t i = 0; i < per_nic; i++) {
            int known = mover->peers[(size_t)nic * per_nic + i];

            if (known > 0) {
                mpath_fabric_forget_peer(mover->fabric, mover->fabric_nic[nic], known - 1);
            }
        }
    }
}
