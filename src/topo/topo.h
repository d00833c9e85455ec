/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Topology: who is connected to whom and how fast.
 *
 * A topology is a set of resources (each a capacity in bytes per second and a latency) and the paths that consume them.
 * It is built from the machines (one per node) and the ranks of a communicator, and is the same on every rank: it is a
 * pure function of its inputs.
 *
 * A path of a pair (source, destination) is an ordered list of hops; a hop moves bytes over one lane into the memory of
 * the process `to`. Paths are not stored: path k of a pair is computed on demand, so a topology of thousands of ranks
 * stays small. Path 0 is the pair's static route, the one that an MPI library without mpath takes (direct, the rail
 * beside the source); the others follow in rail order.
 *
 *   same node                      [shm s->d]
 *   other node, access "all"       [rail r: s->d]                                   for every rail both nodes have
 *   other node, access "affine"    [shm s->a] [rail r: a->b] [shm b->d]             a, b: the ranks beside rail r;
 *                                  hops whose ends coincide are left out
 *
 * An affine rail takes part when at least one rank sits beside it on both nodes; where several do, (source +
 * destination) picks the one that relays, so that the load spreads. Without a static route of its own (the source's rail
 * does not reach the destination) a pair's path 0 is the destination's rail, else one picked by the source's number.
 *
 * With MPATH_FABRIC_SPINE a rank may also reach another rail's NIC directly (rail i of s to rail j of d), through the
 * spine; then path 0 of an affine pair is that direct route. Such crossing paths also exist, in order of i and j, where
 * rail i or rail j has no match on the other node. Without a spine only rail-matched NICs are connected.
 *
 * Ownership: a topology copies what it is given. It is immutable after creation and may be read by several threads.
 */
#ifndef MPATH_TOPO_TOPO_H
#define MPATH_TOPO_TOPO_H

#include "util/status.h"

#include <stddef.h>
#include <stdint.h>

#define MPATH_NIC_NAME_MAX 32
#define MPATH_HOST_NAME_MAX 64
#define MPATH_MAX_NICS 16                   /* per node */
#define MPATH_MAX_RAILS 64                  /* rail numbers are below this */
#define MPATH_MAX_RATE_BPS 10000000000000ll /* of any resource: 10 TB/s */
#define MPATH_PATH_MAX_HOPS 5
#define MPATH_PATH_MAX_RESOURCES 12

typedef enum mpath_access_mode { MPATH_REACH_ALL, MPATH_REACH_AFFINE } mpath_access_mode_t;

typedef enum mpath_lane_kind {
    MPATH_LANE_SHM,   /* host memory shared by two processes of a node */
    MPATH_LANE_RAIL,  /* one NIC to one NIC, through UCX */
    MPATH_LANE_PEER,  /* GPU memory to GPU memory */
    MPATH_LANE_STAGED /* GPU to GPU through pinned host memory */
} mpath_lane_kind_t;

typedef enum mpath_resource_kind {
    MPATH_RESOURCE_HOST_MEMORY, /* a node's host memory: all shared-memory traffic of the node */
    MPATH_RESOURCE_NIC_TX,
    MPATH_RESOURCE_NIC_RX,
    MPATH_RESOURCE_NVLINK,     /* one direction of a direct GPU pair */
    MPATH_RESOURCE_GPU_EGRESS, /* a GPU's port into an NVSwitch */
    MPATH_RESOURCE_GPU_INGRESS,
    MPATH_RESOURCE_PCIE_UP, /* device to host */
    MPATH_RESOURCE_PCIE_DOWN,
    MPATH_RESOURCE_UPLINK_TX, /* a node's or leaf switch's share of an oversubscribed fabric */
    MPATH_RESOURCE_UPLINK_RX
} mpath_resource_kind_t;

typedef struct mpath_resource {
    mpath_resource_kind_t kind;
    int32_t node;
    int32_t index; /* NIC or GPU number on its node; 0 where there is one */
    int32_t peer;  /* the other GPU of an NVLINK; else -1 */
    uint64_t capacity_bps;
    uint32_t latency_ns;
} mpath_resource_t;

/* A NIC as its node sees it. Plain data: it travels between the processes of a job. */
typedef struct mpath_nic {
    char name[MPATH_NIC_NAME_MAX]; /* UCX device name: "eth0", "mlx5_0:1" */
    uint64_t rate_bps;             /* each direction */
    int16_t numa;                  /* -1: unknown */
    int16_t rail;                  /* number of the rail it is plugged into */
    uint8_t up;
    uint8_t reserved[3];
} mpath_nic_t;

/* A node. Plain data, without pointers. */
typedef struct mpath_machine {
    char host[MPATH_HOST_NAME_MAX];
    int32_t num_nics;
    int32_t num_numa;
    uint64_t host_memory_bps; /* shared-memory copies of all ranks together */
    mpath_nic_t nics[MPATH_MAX_NICS];
} mpath_machine_t;

/* Where a rank sits. */
typedef struct mpath_place {
    int32_t node; /* index into the machines */
    int32_t nic;  /* NIC beside it on its node; -1: none */
    int32_t gpu;  /* -1: host memory */
} mpath_place_t;

enum {
    MPATH_FABRIC_SPINE = 1u << 0 /* NICs of different rails can reach each other */
};

typedef struct mpath_topo_params {
    mpath_access_mode_t access;
    uint32_t fabric; /* MPATH_FABRIC_* */
} mpath_topo_params_t;

typedef struct mpath_hop {
    uint8_t lane;            /* mpath_lane_kind_t */
    int8_t nic_from, nic_to; /* of a RAIL hop: NIC numbers on the two nodes; else -1 */
    int32_t from, to;        /* ranks */
} mpath_hop_t;

typedef struct mpath_path {
    int num_hops;
    int num_resources;
    mpath_hop_t hops[MPATH_PATH_MAX_HOPS];
    uint32_t resources[MPATH_PATH_MAX_RESOURCES]; /* indices of resources, in order along the path */
    uint32_t latency_ns;                          /* sum over the resources */
    int num_relays;                               /* num_hops - 1 */
} mpath_path_t;

typedef struct mpath_topo mpath_topo_t;

/*
 * Builds a topology. `machines` has num_nodes entries, `places` num_ranks (may be 0: resources without paths). NICs that
 * are down take part in no path. The rails of a node's NICs differ. On MPATH_ERR_PARAM the log names the entry.
 */
mpath_status_t mpath_topo_create(const mpath_machine_t *machines, int num_nodes, const mpath_place_t *places,
                                 int num_ranks, const mpath_topo_params_t *params, mpath_topo_t **topo_p);
void mpath_topo_destroy(mpath_topo_t *topo);

int mpath_topo_num_ranks(const mpath_topo_t *topo);
int mpath_topo_num_nodes(const mpath_topo_t *topo);
const mpath_place_t *mpath_topo_place(const mpath_topo_t *topo, int rank);
const mpath_machine_t *mpath_topo_machine(const mpath_topo_t *topo, int node);
const mpath_topo_params_t *mpath_topo_params(const mpath_topo_t *topo);

int mpath_topo_num_resources(const mpath_topo_t *topo);
const mpath_resource_t *mpath_topo_resource(const mpath_topo_t *topo, int resource);
/* "node0/nic2/tx", "node1/host-memory": stable, used in output and JSON. */
void mpath_topo_resource_name(const mpath_topo_t *topo, int resource, char *name, size_t size);

/* The number of a resource; -1 when the topology has no such resource. */
int mpath_topo_resource_find(const mpath_topo_t *topo, mpath_resource_kind_t kind, int node, int index);

/* Number of paths of a pair; 0 when the pair is not connected or source equals destination. */
int mpath_topo_num_paths(const mpath_topo_t *topo, int source, int destination);
/* Path `index` of the pair, 0 <= index < mpath_topo_num_paths(). */
void mpath_topo_path(const mpath_topo_t *topo, int source, int destination, int index, mpath_path_t *path);
/* "0 -shm-> 2 -rail1-> 6 -shm-> 4" */
void mpath_topo_path_format(const mpath_topo_t *topo, const mpath_path_t *path, char *text, size_t size);

/* Static text: "shm", "rail", "peer", "staged". */
const char *mpath_lane_kind_name(mpath_lane_kind_t kind);

/*
 * Nonzero: rails are interchangeable. Every node has the same NICs in use (same numbers, same rails), at least one, and
 * all of them have the same rate. A NIC is in use when it is up and, with affine access, a rank sits beside it.
 */
int mpath_topo_rails_equal(const mpath_topo_t *topo);

/* A checksum over everything that paths and plans depend on. */
uint64_t mpath_topo_signature(const mpath_topo_t *topo);

#endif
