/* SPDX-License-Identifier: BSD-3-Clause */
/* The inside of a topology, shared by topo.c (builds it), paths.c (reads it) and names.c. */
#ifndef MPATH_TOPO_TOPO_INTERNAL_H
#define MPATH_TOPO_TOPO_INTERNAL_H

#include "topo/topo.h"

/*
 * What paths need of a node. Its resources are numbered first_resource (host memory), then transmit and receive of
 * NIC 0, of NIC 1, ... A NIC is in use when it is up and, with affine access, a rank sits beside it.
 */
typedef struct mpath_topo_node {
    int first_resource;
    int num_used;
    uint64_t rail_mask;                  /* rails of the NICs in use */
    int8_t used[MPATH_MAX_NICS];         /* NICs in use, in rail order */
    int8_t nic_of_rail[MPATH_MAX_RAILS]; /* -1: none in use */
    int32_t beside[MPATH_MAX_NICS + 1];  /* ranks beside NIC n: topo->beside[beside[n]] up to beside[n + 1] */
} mpath_topo_node_t;

struct mpath_topo {
    int num_nodes, num_ranks, num_resources;
    int rails_equal;
    uint64_t signature;
    mpath_topo_params_t params;
    mpath_machine_t *machines;
    mpath_place_t *places;
    mpath_resource_t *resources;
    mpath_topo_node_t *nodes;
    int32_t *beside; /* ranks that have a NIC, by node, NIC, rank */
};

static inline int mpath_topo_nic_tx(const mpath_topo_t *topo, int node, int nic)
{
    return topo->nodes[node].first_resource + 1 + 2 * nic;
}

static inline int mpath_topo_nic_rx(const mpath_topo_t *topo, int node, int nic)
{
    return topo->nodes[node].first_resource + 2 + 2 * nic;
}

#endif
