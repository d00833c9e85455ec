/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Clusters of GPUs that stand in no order: nodes of unequal size, NICs shared, doubled, unequal or down, links missing,
 * several NVLink domains, communicators of some of the ranks, narrow uplinks.
 */
#include "tools/plan/clusters.h"

#include <stdio.h>
#include <stdlib.h>

#define GBPS 1000000000ull
#define MOST_PER_NODE 8

enum {
    UNEVEN   = 1 << 0, /* nodes of 6 to 8 GPUs */
    DOWN     = 1 << 1, /* a NIC on every fourth node */
    UNEQUAL  = 1 << 2, /* every NIC has a rate of its own */
    DOUBLED  = 1 << 3, /* 4 GPUs with two NICs each */
    SHARED   = 1 << 4, /* two GPUs for each NIC */
    MISSING  = 1 << 5, /* some NVLinks are not there */
    DOMAINS  = 1 << 6, /* an NVSwitch for 18 nodes of 4 GPUs */
    PARTIAL  = 1 << 7, /* about two GPUs of three have a rank */
    UPLINKED = 1 << 8  /* nodes send less than their NICs can */
};

typedef struct cluster {
    const char *name;
    mpath_gpu_link_t link;
    unsigned traits;
} cluster_t;

static const cluster_t clusters[PLAN_NUM_CLUSTERS] = {
    {"nodes of 6 to 8", MPATH_GPU_LINK_SWITCH, UNEVEN},
    {"NICs down", MPATH_GPU_LINK_SWITCH, DOWN},
    {"NICs unequal", MPATH_GPU_LINK_SWITCH, UNEQUAL},
    {"2 NICs per GPU", MPATH_GPU_LINK_SWITCH, DOUBLED},
    {"2 GPUs per NIC", MPATH_GPU_LINK_SWITCH, SHARED},
    {"mesh, links missing", MPATH_GPU_LINK_MESH, MISSING},
    {"PCIe, NICs unequal", MPATH_GPU_LINK_PCIE, UNEQUAL},
    {"PCIe, NICs down", MPATH_GPU_LINK_PCIE, DOWN},
    {"NVLink domains of 72", MPATH_GPU_LINK_SWITCH, DOMAINS},
    {"host memory only", MPATH_GPU_LINK_NONE, 0},
    {"some GPUs of each node", MPATH_GPU_LINK_SWITCH, PARTIAL},
    {"uplinks, NICs shared", MPATH_GPU_LINK_SWITCH, UPLINKED | SHARED},
};

static uint64_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return *state >> 33;
}

const char *plan_cluster_name(int kind)
{
    return clusters[kind].name;
}

int plan_cluster_needs_spine(int kind)
{
    return (clusters[kind].traits & PARTIAL) != 0;
}

static void fill_machine(const cluster_t *cluster, int node, int num_gpus, uint64_t *state, mpath_machine_t *machine)
{
    int i;

    snprintf(machine->host, sizeof(machine->host), "node%d", node);
    machine->num_numa        = 1;
    machine->host_memory_bps = 93 * GBPS;
    machine->num_nics = cluster->traits & DOUBLED ? 2 * num_gpus : cluster->traits & SHARED ? num_gpus / 2 : num_gpus;
    for (i = 0; i < machine->num_nics; i++) {
        snprintf(machine->nics[i].name, sizeof(machine->nics[i].name), "nic%d", i);
        machine->nics[i].rate_bps = cluster->traits & UNEQUAL ? 50 * GBPS / 4 * (1 + draw(state) % 4) : 50 * GBPS;
        machine->nics[i].rail     = (int16_t)i;
        machine->nics[i].up       = !((cluster->traits & DOWN) && node % 4 == 1 && i == node / 4 % num_gpus);
    }
}

static void fill_gpus(const cluster_t *cluster, int node, int num_gpus, uint64_t *state, mpath_node_gpus_t *gpus)
{
    int from, to;

    gpus->num_gpus   = num_gpus;
    gpus->link       = cluster->link;
    gpus->domain     = cluster->traits & DOMAINS ? node / 18 : -1;
    gpus->uplink_bps = cluster->traits & UPLINKED ? 120 * GBPS : 0;
    for (from = 0; from < num_gpus; from++) {
        gpus->gpus[from].pcie_up_bps = gpus->gpus[from].pcie_down_bps = cluster->traits & DOMAINS   ? 225 * GBPS
                                                                        : cluster->traits & DOUBLED ? 110 * GBPS
                                                                                                    : 55 * GBPS;
        if (cluster->link == MPATH_GPU_LINK_SWITCH) {
            gpus->gpus[from].egress_bps = gpus->gpus[from].ingress_bps = cluster->traits & DOMAINS ? 900 * GBPS
                                                                                                   : 391 * GBPS;
        }
        gpus->gpus[from].nics = cluster->traits & DOUBLED  ? 3u << 2 * from
                                : cluster->traits & SHARED ? 1u << from / 2
                                                           : 1u << from;
        for (to = 0; to < num_gpus; to++) {
            gpus->nvlink_bps[from][to] = from != to && !((cluster->traits & MISSING) && draw(state) % 8 == 0)
                                             ? 120 * GBPS
                                             : 0;
        }
    }
}

static int place_ranks(const cluster_t *cluster, int node, int num_gpus, uint64_t *state, mpath_place_t *places)
{
    int gpu, count = 0;

    for (gpu = 0; gpu < num_gpus; gpu++) {
        if ((cluster->traits & PARTIAL) && draw(state) % 3 == 0) {
            continue;
        }
        places[count].node = node;
        places[count].gpu  = gpu;
        places[count].nic  = cluster->traits & DOUBLED ? 2 * gpu : cluster->traits & SHARED ? gpu / 2 : gpu;
        count++;
    }
    return count;
}

mpath_status_t plan_cluster_make(int kind, int num_ranks, uint32_t fabric, mpath_topo_t **topo_p)
{
    const cluster_t *cluster         = &clusters[kind];
    const mpath_topo_params_t params = {.access = MPATH_REACH_AFFINE, .fabric = fabric};
    int typical = cluster->traits & (DOUBLED | DOMAINS) || cluster->link == MPATH_GPU_LINK_MESH ? 4 : MOST_PER_NODE;
    size_t most = (size_t)num_ranks / 2 + 1;
    mpath_machine_t *machines = calloc(most, sizeof(*machines));
    mpath_node_gpus_t *gpus   = calloc(most, sizeof(*gpus));
    mpath_place_t *places     = calloc((size_t)num_ranks + MOST_PER_NODE, sizeof(*places));
    int nodes = 0, ranks = 0, num_gpus;
    mpath_status_t status = MPATH_ERR_NO_MEMORY;
    uint64_t state        = 1;

    if (machines != NULL && gpus != NULL && places != NULL) {
        for (; ranks < num_ranks && nodes < (int)most; nodes++) {
            num_gpus = cluster->traits & UNEVEN ? typical - nodes % 3 : typical;
            fill_machine(cluster, nodes, num_gpus, &state, &machines[nodes]);
            fill_gpus(cluster, nodes, num_gpus, &state, &gpus[nodes]);
            ranks += place_ranks(cluster, nodes, num_gpus, &state, places + ranks);
        }
        status = mpath_topo_create_with_gpus(machines, gpus, nodes, places, ranks, &params, topo_p);
    }
    free(machines);
    free(gpus);
    free(places);
    return status;
}
