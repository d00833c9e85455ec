/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Clusters of machines of known kinds. Rates are of one direction, in GB/s (10^9); doc/topology.md repeats the table
 * with these sources:
 *
 *   [H200]     measured on one host with 8 H200 and NVSwitch, CUDA 13.0: peer copy by copy engine 391, copy to or from
 *              the host 55 for one GPU, 93 for all of them together
 *   [NIMBLE]   arXiv 2604.00317: direct NVLink of a pair 120, one NDR400 NIC 45.1, both measured
 *   [FlexLink] arXiv 2510.15882: H800, NVLink 400 GB/s both directions together
 *   [NVIDIA]   data sheets: DGX A100, DGX H100, GB200 NVL72, A100 and H100 GPUs; half of a sum of both directions
 *   [PCIe]     16 GT/s x 16 lanes x 128/130 / 8
 *
 * Every NIC reaches every other (fat tree), as on these machines' reference fabrics.
 */
#include "topo/topo.h"
#include "util/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GBPS 1000000000ull
#define MBPS 1000000ull
#define MAX_NODES 65536

typedef struct preset {
    const char *name;
    int num_gpus;         /* a rank on each, NIC g beside GPU g */
    int num_numa;         /* halves of the GPUs where it is 2 */
    int nodes;            /* unless told otherwise */
    int nodes_per_domain; /* nodes that share an NVSwitch fabric; 0: each has its own */
    uint64_t nvlink_bps;  /* of a pair, mesh; 0: NVSwitch */
    uint64_t port_bps;    /* of a GPU, NVSwitch */
    uint64_t pcie_bps;    /* of a GPU */
    uint64_t nic_bps;
    uint64_t host_memory_bps; /* staged bytes of all GPUs of a node */
} preset_t;

static const preset_t presets[] = {
    /* 4 x H100, direct NVLink: [NIMBLE], [NIMBLE]; PCIe and host as [H200] */
    {"h100-mesh4", 4, 1, 2, 0, 120 * GBPS, 0, 55 * GBPS, 45100 * MBPS, 93 * GBPS},
    /* 8 x H100: 18 links of NVLink 4 and PCIe 5 as [H200]; ConnectX-7 400 Gbit/s [NVIDIA] */
    {"hgx-h100", 8, 2, 2, 0, 0, 391 * GBPS, 55 * GBPS, 50 * GBPS, 93 * GBPS},
    /* 8 x H200: [H200]; ConnectX-7 400 Gbit/s [NVIDIA] */
    {"hgx-h200", 8, 2, 2, 0, 0, 391 * GBPS, 55 * GBPS, 50 * GBPS, 93 * GBPS},
    /* 8 x H800: [FlexLink]; the rest as hgx-h100 */
    {"h800", 8, 2, 2, 0, 0, 200 * GBPS, 55 * GBPS, 50 * GBPS, 93 * GBPS},
    /* 8 x A100: NVLink 600 both directions, ConnectX-6 200 Gbit/s [NVIDIA]; [PCIe]; host as [H200], an assumption */
    {"a100", 8, 2, 2, 0, 0, 300 * GBPS, 31500 * MBPS, 25 * GBPS, 93 * GBPS},
    /*
     * 18 trays of 4 GPUs: NVLink 1800 both directions, NVLink-C2C 900 both directions for the two GPUs of a Grace (in
     * place of PCIe), ConnectX-7 400 Gbit/s, LPDDR5X 512 for each of two Graces, half of it as staged bytes are written
     * and read; all [NVIDIA]
     */
    {"gb200-nvl72", 4, 2, 18, 18, 0, 900 * GBPS, 225 * GBPS, 50 * GBPS, 512 * GBPS},
};

#define NUM_PRESETS (sizeof(presets) / sizeof(presets[0]))

static void fill_machine(const preset_t *preset, int node, mpath_machine_t *machine)
{
    mpath_nic_t *nic;
    int i;

    snprintf(machine->host, sizeof(machine->host), "node%d", node);
    machine->num_nics        = preset->num_gpus;
    machine->num_numa        = preset->num_numa;
    machine->host_memory_bps = preset->host_memory_bps;
    for (i = 0; i < preset->num_gpus; i++) {
        nic = &machine->nics[i];
        snprintf(nic->name, sizeof(nic->name), "mlx5_%d:1", i);
        nic->rate_bps = preset->nic_bps;
        nic->numa     = (int16_t)(i * preset->num_numa / preset->num_gpus);
        nic->rail     = (int16_t)i;
        nic->up       = 1;
    }
}

static void fill_gpus(const preset_t *preset, int node, mpath_node_gpus_t *gpus)
{
    int from, to;

    gpus->num_gpus = preset->num_gpus;
    gpus->link     = (preset->nvlink_bps > 0) ? MPATH_GPU_LINK_MESH : MPATH_GPU_LINK_SWITCH;
    gpus->domain   = (preset->nodes_per_domain > 0) ? node / preset->nodes_per_domain : -1;
    for (from = 0; from < preset->num_gpus; from++) {
        gpus->gpus[from] = (mpath_gpu_t){.egress_bps    = preset->port_bps,
                                         .ingress_bps   = preset->port_bps,
                                         .pcie_up_bps   = preset->pcie_bps,
                                         .pcie_down_bps = preset->pcie_bps,
                                         .nics          = 1ull << from};
        for (to = 0; to < preset->num_gpus; to++) {
            gpus->nvlink_bps[from][to] = (from != to) ? preset->nvlink_bps : 0;
        }
    }
}

static mpath_status_t preset_build(const preset_t *preset, int num_nodes, mpath_topo_t **topo_p)
{
    const mpath_topo_params_t params = {.access = MPATH_REACH_AFFINE, .fabric = MPATH_FABRIC_SPINE};
    int num_ranks                    = num_nodes * preset->num_gpus, i;
    mpath_status_t status            = MPATH_ERR_NO_MEMORY;
    mpath_machine_t *machines        = calloc((size_t)num_nodes, sizeof(*machines));
    mpath_node_gpus_t *gpus          = calloc((size_t)num_nodes, sizeof(*gpus));
    mpath_place_t *places            = calloc((size_t)num_ranks, sizeof(*places));

    if ((machines == NULL) || (gpus == NULL) || (places == NULL)) {
        mpath_error("topology: no memory for %d nodes of preset '%s'; no topology built", num_nodes, preset->name);
        goto out;
    }
    for (i = 0; i < num_nodes; i++) {
        fill_machine(preset, i, &machines[i]);
        fill_gpus(preset, i, &gpus[i]);
    }
    for (i = 0; i < num_ranks; i++) {
        places[i] = (mpath_place_t){
            .node = i / preset->num_gpus, .nic = i % preset->num_gpus, .gpu = i % preset->num_gpus};
    }
    status = mpath_topo_create_with_gpus(machines, gpus, num_nodes, places, num_ranks, &params, topo_p);
out:
    free(machines);
    free(gpus);
    free(places);
    return status;
}

static void report_unknown(const char *name)
{
    char list[256] = "";
    size_t i;

    for (i = 0; i < NUM_PRESETS; i++) {
        strncat(list, (i > 0) ? ", " : "", sizeof(list) - strlen(list) - 1);
        strncat(list, presets[i].name, sizeof(list) - strlen(list) - 1);
    }
    mpath_error("topology: preset '%.40s' is none of %s; no topology built", name, list);
}

mpath_status_t mpath_topo_preset(const char *name, int num_nodes, mpath_topo_t **topo_p)
{
    size_t i;

    for (i = 0; (i < NUM_PRESETS) && (strcmp(presets[i].name, name) != 0); i++) {
    }
    if (i == NUM_PRESETS) {
        report_unknown(name);
        return MPATH_ERR_PARAM;
    }
    if ((num_nodes < 0) || (num_nodes > MAX_NODES)) {
        mpath_error("topology: %d nodes of preset '%s' must be 1 to %d, 0 for its own number; no topology built",
                    num_nodes, name, MAX_NODES);
        return MPATH_ERR_PARAM;
    }
    return preset_build(&presets[i], (num_nodes > 0) ? num_nodes : presets[i].nodes, topo_p);
}
