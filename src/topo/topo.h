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
 * destination) picks the one that relays, so that the load spreads. Without a static route of its own (the source's
 * rail does not reach the destination) a pair's path 0 is the destination's rail, else one picked by the source's
 * number.
 *
 * With MPATH_FABRIC_SPINE a rank may also reach another rail's NIC directly (rail i of s to rail j of d), through the
 * spine; then path 0 of an affine pair is that direct route. Such crossing paths also exist, in order of i and j, where
 * rail i or rail j has no match on the other node. Without a spine only rail-matched NICs are connected.
 *
 * Ranks on GPUs, where the machines' GPUs are described (else a rank's GPU number says nothing). A relay is a rank as
 * well: a GPU without a rank relays nothing.
 *
 *   same node, mesh            [peer s->d]; [peer s->x] [peer x->d] for each GPU x linked to both, by number;
 *                              [staged s->d]. Without a link between s and d staged comes first. (With no_staged it
 *                              is left out where there is another.)
 *   same node, NVSwitch, PCIe  [peer s->d]; [staged s->d]. A relay would use the same ports twice and never helps.
 *   same node, host and GPU    [staged s->d]
 *   same NVLink domain         [peer s->d]; then as other nodes
 *   other node                 [s->a] [rail r: a->b] [b->d] as with affine access, whatever the access mode: a, b are
 *                              ranks on GPUs beside rail r, the outer hops peer where the GPUs are joined, else staged
 *
 * A rail hop also uses the PCIe link of the GPU whose memory the NIC reads or writes, and the uplinks of both nodes.
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
#define MPATH_MAX_NICS 64                   /* per node: mpath_nic_set_t */
#define MPATH_MAX_GPUS 16                   /* per node */
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
    MPATH_RESOURCE_HOST_MEMORY, /* a node's host memory: all shared-memory and staged traffic of the node */
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

/* There are many: of 16 bytes. */
typedef struct mpath_resource {
    uint64_t capacity_bps;
    uint32_t node : 24;
    uint32_t kind : 8; /* mpath_resource_kind_t */
    uint16_t latency_ns;
    int8_t index; /* NIC or GPU number on its node; 0 where there is one */
    int8_t peer;  /* the other GPU of an NVLINK; else -1 */
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

/* NICs of a node, or rails, a bit each by their numbers. */
typedef uint64_t mpath_nic_set_t;

#define MPATH_NIC_SET_ALL UINT64_MAX

static inline mpath_nic_set_t mpath_nic_bit(int nic)
{
    return UINT64_C(1) << nic;
}

/* The lowest number; the set is not empty. */
static inline int mpath_nic_first(mpath_nic_set_t nics)
{
    return __builtin_ctzll(nics);
}

static inline int mpath_nic_count(mpath_nic_set_t nics)
{
    return __builtin_popcountll(nics);
}

/* Those of lower numbers. */
static inline mpath_nic_set_t mpath_nics_below(int nic)
{
    return nic < MPATH_MAX_NICS ? mpath_nic_bit(nic) - 1 : MPATH_NIC_SET_ALL;
}

/* Those of a machine: whatever else another process has set is none. */
static inline mpath_nic_set_t mpath_machine_nics(const mpath_machine_t *machine)
{
    return mpath_nics_below(machine->num_nics);
}

/* How the GPUs of a node reach each other. */
typedef enum mpath_gpu_link {
    MPATH_GPU_LINK_NONE,  /* only through host memory */
    MPATH_GPU_LINK_PCIE,  /* peer access over PCIe */
    MPATH_GPU_LINK_MESH,  /* direct NVLinks between pairs */
    MPATH_GPU_LINK_SWITCH /* each GPU has a port into an NVSwitch fabric */
} mpath_gpu_link_t;

typedef struct mpath_gpu {
    uint64_t egress_bps, ingress_bps;    /* SWITCH: its port; 0 and 0: not on the switch */
    uint64_t pcie_up_bps, pcie_down_bps; /* device to host, host to device; the link that NICs reach it by as well */
    mpath_nic_set_t nics;                /* bit n: NIC n of its node is beside it */
} mpath_gpu_t;

/* The GPUs of a node, apart from mpath_machine_t so that nodes without any exchange little. Plain data, no pointers. */
typedef struct mpath_node_gpus {
    int32_t num_gpus;
    int32_t link;   /* mpath_gpu_link_t */
    int32_t domain; /* SWITCH: nodes of one number share the NVSwitch fabric; -1: this node alone */
    int32_t reserved;
    uint64_t uplink_bps; /* each direction, of all NICs of the node together; 0: no limit beyond the NICs */
    mpath_gpu_t gpus[MPATH_MAX_GPUS];
    uint64_t nvlink_bps[MPATH_MAX_GPUS][MPATH_MAX_GPUS]; /* MESH: from, to; 0: not linked */
} mpath_node_gpus_t;

/* Where a rank sits. Without padding: places are compared and summed up as bytes. */
typedef struct mpath_place {
    int32_t node;     /* index into the machines */
    int16_t gpu;      /* GPU of its node whose memory its buffers are in; -1: host memory */
    int8_t nic;       /* NIC beside it on its node; -1: none */
    uint8_t no_relay; /* nonzero: its GPU passes nothing on, nor serves the NIC beside it for others */
} mpath_place_t;

enum {
    MPATH_FABRIC_SPINE = 1u << 0 /* NICs of different rails can reach each other */
};

/*
 * Virtual nodes on one host. Their rates hold by a clock and not by nature (mover/pace.h): for tests and benchmarks,
 * which name it in every line that they print.
 */
typedef enum mpath_emulation {
    MPATH_EMULATED_NO,
    MPATH_EMULATED_COPIES, /* a rail is a copy between GPUs of the host */
    MPATH_EMULATED_RAILS   /* a rail is UCX over what the host offers */
} mpath_emulation_t;

typedef struct mpath_topo_params {
    mpath_access_mode_t access;
    uint32_t fabric; /* MPATH_FABRIC_* */
    mpath_emulation_t emulated;
    int max_paths; /* of a pair: only its first ones exist; 0: all */
    int peer_legs; /* nonzero: what a GPU passes on comes to it from a GPU or a NIC, and goes on so; else host memory may
                      be between it and the pair's end, which the executor (src/exec) has no lane for */
    int no_staged; /* nonzero: in a node only those pairs go through host memory that have no other path */
} mpath_topo_params_t;

typedef struct mpath_hop {
    uint8_t lane;            /* mpath_lane_kind_t */
    int8_t nic_from, nic_to; /* of a RAIL hop: NIC numbers on the two nodes; else -1 */
    uint8_t first_resource;  /* index in the path's resources: its own go up to those of the next hop */
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
 * Builds a topology. `machines` has num_nodes entries, `places` num_ranks (may be 0: resources without paths). NICs
 * that are down take part in no path. The rails of a node's NICs differ. On MPATH_ERR_PARAM the log names the entry.
 */
mpath_status_t mpath_topo_create(const mpath_machine_t *machines, int num_nodes, const mpath_place_t *places,
                                 int num_ranks, const mpath_topo_params_t *params, mpath_topo_t **topo_p);
/* The same with the GPUs of the nodes, num_nodes entries; NULL, or nodes without GPUs and uplinks: as without. */
mpath_status_t mpath_topo_create_with_gpus(const mpath_machine_t *machines, const mpath_node_gpus_t *gpus,
                                           int num_nodes, const mpath_place_t *places, int num_ranks,
                                           const mpath_topo_params_t *params, mpath_topo_t **topo_p);
/*
 * Takes a NIC out, or in again: paths and signature change as if the topology had been built so. Not where GPUs are
 * described (MPATH_ERR_UNSUPPORTED). All ranks make the same changes between the same calls; nobody uses the topology
 * meanwhile.
 */
mpath_status_t mpath_topo_set_nic(mpath_topo_t *topo, int node, int nic, int up);
void mpath_topo_destroy(mpath_topo_t *topo);

/* What a user has computed of a topology alone, and keeps with it: the first member of a type of its own. */
typedef struct mpath_topo_extra {
    void (*release)(struct mpath_topo_extra *extra); /* frees it with the topology, or when a NIC is taken out or in */
} mpath_topo_extra_t;

/* What is kept; NULL: nothing. */
const mpath_topo_extra_t *mpath_topo_extra(const mpath_topo_t *topo);
/*
 * Keeps it: one in all. Returns what is kept, which is another one where another thread was faster; `extra` has been
 * released then.
 */
const mpath_topo_extra_t *mpath_topo_keep(const mpath_topo_t *topo, mpath_topo_extra_t *extra);

int mpath_topo_num_ranks(const mpath_topo_t *topo);
int mpath_topo_num_nodes(const mpath_topo_t *topo);
const mpath_place_t *mpath_topo_place(const mpath_topo_t *topo, int rank);
/* Most that a node has. */
int mpath_topo_most_nics(const mpath_topo_t *topo);
/*
 * With the NICs that it has and no memory behind them, nor its name, which mpath_topo_host() tells: nodes that differ in nothing else
 * have the same one. mpath_topo_copy_machine() copies all of it.
 */
const mpath_machine_t *mpath_topo_machine(const mpath_topo_t *topo, int node);
const char *mpath_topo_host(const mpath_topo_t *topo, int node);
void mpath_topo_copy_machine(const mpath_topo_t *topo, int node, mpath_machine_t *machine);
const mpath_topo_params_t *mpath_topo_params(const mpath_topo_t *topo);
/* The GPUs of a node; NULL where the topology describes none (on any node). */
const mpath_node_gpus_t *mpath_topo_gpus(const mpath_topo_t *topo, int node);
/* NICs that a rank drives for device memory, a bit each: those beside its GPU and its own; 0: it has no GPU. */
uint64_t mpath_topo_nics_beside(const mpath_topo_t *topo, int rank);
/* The NIC by which a rank's static routes leave and arrive, of its GPU where it has one; -1: none beside it is in use. */
int mpath_topo_nic_beside(const mpath_topo_t *topo, int rank);
/*
 * Ranks beside one NIC take turns in passing on what others of their node send and receive over it, on hosts with affine access and where GPUs reach
 * all NICs: `rank`, which has one, does so for pairs of which (source + destination) % *turns_p is what this returns, unless their own end sits there, too.
 */
uint32_t mpath_topo_turn(const mpath_topo_t *topo, int rank, uint32_t *turns_p);
/* Nonzero: some rank on a GPU does not reach all NICs that its node uses, for want of a path that peer_legs allows. */
int mpath_topo_reach_is_limited(const mpath_topo_t *topo);
/* Nonzero: two ranks have a path that uses no NIC. */
int mpath_topo_is_linked(const mpath_topo_t *topo, int source, int destination);

int mpath_topo_num_resources(const mpath_topo_t *topo);
mpath_resource_t mpath_topo_resource(const mpath_topo_t *topo, int resource);
/* "node0/nic2/tx", "node1/host-memory": stable, used in output and JSON. */
void mpath_topo_resource_name(const mpath_topo_t *topo, int resource, char *name, size_t size);

/* The number of a resource; -1 when the topology has no such resource. */
int mpath_topo_resource_find(const mpath_topo_t *topo, mpath_resource_kind_t kind, int node, int index);
/* The same for the link of a mesh from one GPU to another. */
int mpath_topo_nvlink_find(const mpath_topo_t *topo, int node, int gpu, int peer);

/* Number of paths of a pair; 0 when the pair is not connected or source equals destination. */
int mpath_topo_num_paths(const mpath_topo_t *topo, int source, int destination);
/* Path `index` of the pair, 0 <= index < mpath_topo_num_paths(). */
void mpath_topo_path(const mpath_topo_t *topo, int source, int destination, int index, mpath_path_t *path);
/*
 * Pairs of nodes without a path between their ranks, both directions counted; every node has some. Not where GPUs are described:
 * there it depends on more than the nodes' NICs.
 */
size_t mpath_topo_num_apart(const mpath_topo_t *topo);
/* "0 -shm-> 2 -rail1-> 6 -shm-> 4" */
void mpath_topo_path_format(const mpath_topo_t *topo, const mpath_path_t *path, char *text, size_t size);

/* Values of a topology file's gpu-link, by mpath_gpu_link_t; NULL-terminated. */
extern const char *const mpath_gpu_link_names[];
/* Values of a topology file's emulated, by mpath_emulation_t: "no", "copies", "rails"; NULL-terminated. */
extern const char *const mpath_emulation_names[];

/* Static text: "shm", "rail", "peer", "staged". */
const char *mpath_lane_kind_name(mpath_lane_kind_t kind);

/* Nonzero: every node has the same NICs in use, by ranks on GPUs too, at least one, and all have the same rate. */
int mpath_topo_rails_alike(const mpath_topo_t *topo);
/*
 * Nonzero: every node has the same NICs in use, with the same numbers; each rail may have a rate of its own, which it has on all nodes.
 * A NIC is in use when it is up and, with affine access, a rank sits beside it. Never where GPUs are described: there the way to a rail
 * counts too.
 */
int mpath_topo_rails_match(const mpath_topo_t *topo);

/* A checksum over everything that paths and plans depend on. */
uint64_t mpath_topo_signature(const mpath_topo_t *topo);

/*
 * A cluster of machines of a known kind, with a rank on every GPU: "h100-mesh4", "hgx-h200", ... doc/topology.md lists
 * them with the sources of their figures. `num_nodes` 0: the kind's own number (2; a rack for those that come in
 * racks). MPATH_ERR_PARAM for a name that is unknown; the log lists those that are not.
 */
mpath_status_t mpath_topo_preset(const char *name, int num_nodes, mpath_topo_t **topo_p);

#endif
