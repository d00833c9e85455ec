/* SPDX-License-Identifier: BSD-3-Clause */
/* What a topology is built from: machines and places that cannot be used are named, and nothing is built. */
#include "topo/topo_internal.h"
#include "util/log.h"

#include <string.h>

#define MAX_NODES 65536
#define MAX_RANKS (1 << 20)

static mpath_status_t check_nic(const mpath_machine_t *machine, int node, int nic, uint64_t *rails)
{
    const mpath_nic_t *n = &machine->nics[nic];

    if (memchr(n->name, '\0', sizeof(n->name)) == NULL) {
        mpath_error("topology: node %d: the name of NIC %d has no end; no topology built", node, nic);
        return MPATH_ERR_PARAM;
    }
    if ((n->rate_bps == 0) || (n->rate_bps > MPATH_MAX_RATE_BPS)) {
        mpath_error("topology: node %d: rate %llu of NIC %d '%s' must be 1 to %lld bytes/s; no topology built", node,
                    (unsigned long long)n->rate_bps, nic, n->name, MPATH_MAX_RATE_BPS);
        return MPATH_ERR_PARAM;
    }
    if ((n->rail < 0) || (n->rail >= MPATH_MAX_RAILS)) {
        mpath_error("topology: node %d: rail %d of NIC %d '%s' must be 0 to %d; no topology built", node, n->rail, nic,
                    n->name, MPATH_MAX_RAILS - 1);
        return MPATH_ERR_PARAM;
    }
    if (*rails & (1ull << n->rail)) {
        mpath_error("topology: node %d: NIC %d '%s' is on rail %d as another NIC before it; no topology built", node,
                    nic, n->name, n->rail);
        return MPATH_ERR_PARAM;
    }
    *rails |= 1ull << n->rail;
    return MPATH_OK;
}

static mpath_status_t check_machine(const mpath_machine_t *machine, int node)
{
    mpath_status_t status;
    uint64_t rails = 0;
    int nic;

    if (memchr(machine->host, '\0', sizeof(machine->host)) == NULL) {
        mpath_error("topology: node %d: the host name has no end; no topology built", node);
        return MPATH_ERR_PARAM;
    }
    if ((machine->num_nics < 0) || (machine->num_nics > MPATH_MAX_NICS)) {
        mpath_error("topology: node %d: number of NICs %d must be 0 to %d; no topology built", node, machine->num_nics,
                    MPATH_MAX_NICS);
        return MPATH_ERR_PARAM;
    }
    if ((machine->host_memory_bps == 0) || (machine->host_memory_bps > MPATH_MAX_RATE_BPS)) {
        mpath_error("topology: node %d: host memory rate %llu must be 1 to %lld bytes/s; no topology built", node,
                    (unsigned long long)machine->host_memory_bps, MPATH_MAX_RATE_BPS);
        return MPATH_ERR_PARAM;
    }
    for (nic = 0; nic < machine->num_nics; nic++) {
        status = check_nic(machine, node, nic, &rails);
        if (status != MPATH_OK) {
            return status;
        }
    }
    return MPATH_OK;
}

static mpath_status_t check_place(const mpath_machine_t *machines, int num_nodes, const mpath_place_t *place, int rank)
{
    if ((place->node < 0) || (place->node >= num_nodes)) {
        mpath_error("topology: rank %d: node %d must be 0 to %d; no topology built", rank, place->node, num_nodes - 1);
        return MPATH_ERR_PARAM;
    }
    if ((place->nic < -1) || (place->nic >= machines[place->node].num_nics)) {
        mpath_error("topology: rank %d: NIC %d must be -1 to %d on node %d; no topology built", rank, place->nic,
                    machines[place->node].num_nics - 1, place->node);
        return MPATH_ERR_PARAM;
    }
    if (place->gpu < -1) {
        mpath_error("topology: rank %d: GPU %d must be -1 or more; no topology built", rank, place->gpu);
        return MPATH_ERR_PARAM;
    }
    return MPATH_OK;
}

mpath_status_t mpath_topo_check(const mpath_machine_t *machines, int num_nodes, const mpath_place_t *places,
                                int num_ranks, const mpath_topo_params_t *params)
{
    mpath_status_t status;
    int i;

    if ((num_nodes < 1) || (num_nodes > MAX_NODES) || (num_ranks < 0) || (num_ranks > MAX_RANKS)) {
        mpath_error("topology: %d nodes and %d ranks must be 1 to %d and 0 to %d; no topology built", num_nodes,
                    num_ranks, MAX_NODES, MAX_RANKS);
        return MPATH_ERR_PARAM;
    }
    if ((params->access != MPATH_REACH_ALL) && (params->access != MPATH_REACH_AFFINE)) {
        mpath_error("topology: access mode %d is unknown; no topology built", (int)params->access);
        return MPATH_ERR_PARAM;
    }
    for (i = 0; i < num_nodes; i++) {
        status = check_machine(&machines[i], i);
        if (status != MPATH_OK) {
            return status;
        }
    }
    for (i = 0; i < num_ranks; i++) {
        status = check_place(machines, num_nodes, &places[i], i);
        if (status != MPATH_OK) {
            return status;
        }
    }
    return MPATH_OK;
}
