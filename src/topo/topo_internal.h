/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The inside of a topology, shared by topo.c, which builds it, and paths.c and names.c, which read it.
 */
#ifndef MPATH_TOPO_TOPO_INTERNAL_H
#define MPATH_TOPO_TOPO_INTERNAL_H

#include "topo/topo.h"

#include <stdatomic.h>

/* NICs that can be used, by rail. */
typedef struct mpath_rail_set {
    uint64_t mask;
    int num_used;
    int8_t used[MPATH_MAX_NICS];         /* NICs, in rail order */
    int8_t nic_of_rail[MPATH_MAX_RAILS]; /* -1: none */
} mpath_rail_set_t;

/*
 * What paths need of a node. Its resources are numbered first_resource (host memory), then transmit and receive of
 * NIC 0, of NIC 1, ... A NIC is in use when it is up and, with affine access, a rank sits beside it.
 */
typedef struct mpath_topo_node {
    int first_resource;
    const mpath_rail_set_t *rails; /* NICs in use; nodes with the same ones share them */
    int32_t *beside;               /* ranks beside NIC n: topo->beside[beside[n]] up to beside[n + 1] */
} mpath_topo_node_t;

/*
 * The same of its GPUs. Their resources follow those of its NICs: transmit and receive of the uplink, then up and down
 * of each GPU's PCIe, egress and ingress of each GPU's port, the NVLinks.
 */
typedef struct mpath_topo_gpu_node {
    int uplink_tx, uplink_rx;       /* resources, -1: none */
    int pcie;                       /* first of two resources for each GPU */
    int32_t egress[MPATH_MAX_GPUS]; /* resources, -1: not on the switch */
    int32_t ingress[MPATH_MAX_GPUS];
    int32_t nvlink[MPATH_MAX_GPUS][MPATH_MAX_GPUS]; /* resources, -1: not linked */
    uint32_t links_to[MPATH_MAX_GPUS];              /* GPUs that GPU g can send to directly, as a mask */
    uint32_t links_from[MPATH_MAX_GPUS];            /* GPUs that can send to GPU g directly */
    uint32_t occupied;                              /* GPUs with a rank */
    mpath_rail_set_t rails;                         /* NICs that are up and beside a GPU's rank */
    int32_t on_gpu[MPATH_MAX_GPUS + 1];             /* ranks on GPU g, as beside: in topo->on_gpu */
    int32_t beside[MPATH_MAX_NICS + 1];             /* ranks on GPUs beside NIC n: in topo->gpu_beside */
} mpath_topo_gpu_node_t;

struct mpath_topo {
    int num_nodes, num_ranks, num_resources;
    int rails_match;
    uint64_t signature;
    mpath_topo_params_t params;
    mpath_machine_t **machines; /* by node, with the NICs that it has and no name; equal ones are shared */
    void *machine_memory;
    void *changed_machines; /* reserved: a place by node, for one that is another one now */
    size_t changed_bytes;
    char *hosts;           /* names, one behind the other */
    uint32_t *host_places; /* of these, by node */
    mpath_place_t *places;
    mpath_resource_t *resources;
    mpath_topo_node_t *nodes;
    mpath_rail_set_t *rail_sets, *changed_rail_sets; /* of nodes; reserved: a place by node, as of machines */
    int32_t *beside;                                 /* ranks that have a NIC, by node, NIC, rank */
    int32_t *bounds;                                 /* mpath_topo_node_t.beside of all nodes */
    /* NULL where no node has GPUs */
    mpath_node_gpus_t *gpus;
    mpath_topo_gpu_node_t *gpu_nodes;
    int32_t *on_gpu;         /* ranks on a GPU, by node, GPU, rank */
    int32_t *gpu_beside;     /* the same by node, NIC, rank: once for each NIC */
    mpath_rail_set_t *reach; /* NICs that a rank on a GPU reaches, by rank; NULL: all of them that its node uses */
    mpath_topo_extra_t *_Atomic extra; /* not part of the topology: mpath_topo_keep() */
};

/* Whether bytes can go from GPU to GPU of one node without touching host memory. */
int mpath_gpu_can_peer(const mpath_topo_t *topo, int node, int from, int to);
/* Whether ranks on GPUs of one node can pass bytes on for each other: without host memory, in both directions. */
int mpath_gpu_can_pass(const mpath_topo_t *topo, int rank, int mate);

/* The GPU that a rank's buffers are in; -1: host memory, or a GPU that is not described. */
static inline int mpath_topo_gpu(const mpath_topo_t *topo, int rank)
{
    const mpath_place_t *place = &topo->places[rank];

    return (topo->gpus != NULL) && (place->gpu < topo->gpus[place->node].num_gpus) ? place->gpu : -1;
}

/* NICs beside a rank on a GPU: those of the GPU and its own. */
static inline uint64_t mpath_topo_gpu_nics(const mpath_topo_t *topo, int rank)
{
    const mpath_place_t *place = &topo->places[rank];

    return topo->gpus[place->node].gpus[place->gpu].nics | ((place->nic >= 0) ? 1ull << place->nic : 0);
}

/* Of the ranks from bounds[0] up to bounds[1], the one that relays for a pair. */
static inline int32_t mpath_topo_pick(const int32_t *ranks, const int32_t *bounds, int source, int destination)
{
    uint32_t count = (uint32_t)(bounds[1] - bounds[0]);

    return ranks[bounds[0] + (int32_t)(((uint32_t)source + (uint32_t)destination) % count)];
}

static inline int mpath_topo_nic_tx(const mpath_topo_t *topo, int node, int nic)
{
    return topo->nodes[node].first_resource + 1 + 2 * nic;
}

static inline int mpath_topo_nic_rx(const mpath_topo_t *topo, int node, int nic)
{
    return topo->nodes[node].first_resource + 2 + 2 * nic;
}

static inline int mpath_topo_pcie_up(const mpath_topo_t *topo, int node, int gpu)
{
    return topo->gpu_nodes[node].pcie + 2 * gpu;
}

static inline int mpath_topo_pcie_down(const mpath_topo_t *topo, int node, int gpu)
{
    return topo->gpu_nodes[node].pcie + 2 * gpu + 1;
}

static inline int mpath_topo_egress(const mpath_topo_t *topo, int node, int gpu)
{
    return topo->gpu_nodes[node].egress[gpu];
}

static inline int mpath_topo_ingress(const mpath_topo_t *topo, int node, int gpu)
{
    return topo->gpu_nodes[node].ingress[gpu];
}

#endif
