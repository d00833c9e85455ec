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
 * GPUs as nodes have them that differ in nothing else than their names: these share it. Their resources follow those of
 * the NICs and are numbered from the first one of a node's GPUs: transmit and receive of the uplink, then up and down of
 * each GPU's PCIe, egress and ingress of each GPU's port, the NVLinks.
 */
typedef struct mpath_topo_gpu_kind {
    mpath_node_gpus_t described;
    int16_t num_resources;
    int16_t uplink;                                 /* first of two resources, -1: none */
    int16_t pcie;                                   /* first of two for each GPU */
    int16_t ports[MPATH_MAX_GPUS];                  /* first of two, -1: not on the switch */
    int16_t nvlink[MPATH_MAX_GPUS][MPATH_MAX_GPUS]; /* -1: not linked */
    uint32_t links_to[MPATH_MAX_GPUS];              /* GPUs that GPU g can send to directly, as a mask */
    uint32_t links_from[MPATH_MAX_GPUS];            /* GPUs that can send to GPU g directly */
} mpath_topo_gpu_kind_t;

/* What paths need of a node's GPUs, as above. */
typedef struct mpath_topo_gpu_node {
    const mpath_topo_gpu_kind_t *kind;
    const mpath_rail_set_t *rails; /* NICs that are up and beside a GPU's rank */
    int32_t *on_gpu;               /* ranks on GPU g, as beside: in topo->on_gpu */
    int32_t *beside;               /* ranks on GPUs beside NIC n: in topo->gpu_beside */
    int first_resource;
    uint32_t occupied; /* GPUs with a rank */
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
    mpath_resource_t *resources; /* of all nodes; of the first one, where there are many that are like it */
    uint32_t node_resources;     /* then: how many each has; else 0 */
    uint32_t node_inverse;       /* 2^32 / node_resources, rounded up */
    mpath_topo_node_t *nodes;
    mpath_rail_set_t *rail_sets, *changed_rail_sets; /* of nodes; reserved: a place by node, as of machines */
    int32_t *beside;                                 /* ranks that have a NIC, by node, NIC, rank */
    int32_t *bounds;                                 /* mpath_topo_node_t.beside of all nodes */
    size_t num_bounds, num_gpu_bounds;
    /* NULL where no node has GPUs */
    mpath_topo_gpu_node_t *gpu_nodes;
    mpath_topo_gpu_kind_t *gpu_kinds;
    mpath_rail_set_t *gpu_rail_sets;
    int32_t *gpu_bounds, *gpu_beside_bounds; /* mpath_topo_gpu_node_t.on_gpu and .beside of all nodes */
    int32_t *on_gpu;                         /* ranks on a GPU, by node, GPU, rank */
    int32_t *gpu_beside;                     /* the same by node, NIC, rank: once for each NIC */
    mpath_rail_set_t *reach; /* NICs that a rank on a GPU reaches, by rank; NULL: all of them that its node uses */
    mpath_topo_extra_t *_Atomic extra; /* not part of the topology: mpath_topo_keep() */
};

/* Whether bytes can go from GPU to GPU of one node without touching host memory. */
int mpath_gpu_can_peer(const mpath_topo_t *topo, int node, int from, int to);
/* Whether ranks on GPUs of one node can pass bytes on for each other: without host memory, in both directions. */
int mpath_gpu_can_pass(const mpath_topo_t *topo, int rank, int mate);

static inline mpath_resource_t mpath_topo_resource_at(const mpath_topo_t *topo, int resource)
{
    uint32_t node;
    mpath_resource_t found;

    if (topo->node_resources == 0) {
        return topo->resources[resource];
    }
    node       = (uint32_t)((uint64_t)(uint32_t)resource * topo->node_inverse >> 32);
    found      = topo->resources[(uint32_t)resource - node * topo->node_resources];
    found.node = node;
    return found;
}

static inline const mpath_node_gpus_t *mpath_topo_node_gpus(const mpath_topo_t *topo, int node)
{
    return &topo->gpu_nodes[node].kind->described;
}

/* The GPU that a rank's buffers are in; -1: host memory, or a GPU that is not described. */
static inline int mpath_topo_gpu(const mpath_topo_t *topo, int rank)
{
    const mpath_place_t *place = &topo->places[rank];

    return (topo->gpu_nodes != NULL) && (place->gpu < mpath_topo_node_gpus(topo, place->node)->num_gpus) ? place->gpu
                                                                                                         : -1;
}

/* NICs beside a rank on a GPU: those of the GPU and its own. */
static inline uint64_t mpath_topo_gpu_nics(const mpath_topo_t *topo, int rank)
{
    const mpath_place_t *place = &topo->places[rank];

    return mpath_topo_node_gpus(topo, place->node)->gpus[place->gpu].nics |
           ((place->nic >= 0) ? 1ull << place->nic : 0);
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

/* Of a resource that may be missing: -1 then. */
static inline int mpath_topo_gpu_resource(const mpath_topo_t *topo, int node, int first, int next)
{
    return (first >= 0) ? topo->gpu_nodes[node].first_resource + first + next : -1;
}

static inline int mpath_topo_pcie_up(const mpath_topo_t *topo, int node, int gpu)
{
    return topo->gpu_nodes[node].first_resource + topo->gpu_nodes[node].kind->pcie + 2 * gpu;
}

static inline int mpath_topo_pcie_down(const mpath_topo_t *topo, int node, int gpu)
{
    return mpath_topo_pcie_up(topo, node, gpu) + 1;
}

static inline int mpath_topo_egress(const mpath_topo_t *topo, int node, int gpu)
{
    return mpath_topo_gpu_resource(topo, node, topo->gpu_nodes[node].kind->ports[gpu], 0);
}

static inline int mpath_topo_ingress(const mpath_topo_t *topo, int node, int gpu)
{
    return mpath_topo_gpu_resource(topo, node, topo->gpu_nodes[node].kind->ports[gpu], 1);
}

static inline int mpath_topo_nvlink(const mpath_topo_t *topo, int node, int gpu, int peer)
{
    return mpath_topo_gpu_resource(topo, node, topo->gpu_nodes[node].kind->nvlink[gpu][peer], 0);
}

static inline int mpath_topo_uplink_tx(const mpath_topo_t *topo, int node)
{
    return mpath_topo_gpu_resource(topo, node, topo->gpu_nodes[node].kind->uplink, 0);
}

static inline int mpath_topo_uplink_rx(const mpath_topo_t *topo, int node)
{
    return mpath_topo_gpu_resource(topo, node, topo->gpu_nodes[node].kind->uplink, 1);
}

#endif
