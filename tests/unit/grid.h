/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For unit tests: regular topologies, `nodes` nodes of `ranks` ranks and `nics` NICs each, rank r of a node beside NIC
 * r.
 */
#ifndef MPATH_TESTS_UNIT_GRID_H
#define MPATH_TESTS_UNIT_GRID_H

#include "topo/topo.h"
#include "unit/capture.h"

#include <stdio.h>

#define GRID_MAX_NODES 4
#define GRID_MAX_RANKS 32

static inline mpath_topo_t *grid_topo(int nodes, int ranks, int nics, mpath_access_mode_t access)
{
    static mpath_machine_t machines[GRID_MAX_NODES];
    mpath_place_t places[GRID_MAX_RANKS];
    mpath_topo_params_t params = {.access = access};
    mpath_topo_t *topo         = NULL;

    memset(machines, 0, sizeof(machines));
    for (int node = 0; node < nodes; node++) {
        mpath_machine_t *machine = &machines[node];

        snprintf(machine->host, sizeof(machine->host), "host%d", node);
        machine->num_nics        = nics;
        machine->num_numa        = 1;
        machine->host_memory_bps = 8000000000ull;
        for (int nic = 0; nic < nics; nic++) {
            snprintf(machine->nics[nic].name, sizeof(machine->nics[nic].name), "rail%d", nic);
            machine->nics[nic].rate_bps = 25000000;
            machine->nics[nic].rail     = (int16_t)nic;
            machine->nics[nic].numa     = -1;
            machine->nics[nic].up       = 1;
        }
        for (int rank = 0; rank < ranks; rank++) {
            places[node * ranks + rank] = (mpath_place_t){
                .node = node, .nic = (nics > 0) ? rank % nics : -1, .gpu = -1};
        }
    }
    assert_int_equal(mpath_topo_create(machines, nodes, places, nodes * ranks, &params, &topo), MPATH_OK);
    return topo;
}

#endif
