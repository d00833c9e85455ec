/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The GPUs of a node for a topology, out of what discovery found. What copies reach of a link as signalled was seen on
 * one host with 8 H200: 391 GB/s of 18 links of 26.562 GB/s; of PCIe, see tune/share.c.
 */
#include "topo/beside.h"
#include "topo/discover/gpus.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NVLINK_PER_MILLE 818
static uint64_t links_bps(const mpath_gpu_facts_t *facts, int links)
{
    return facts->link_bps * (uint64_t)links * NVLINK_PER_MILLE / 1000;
}

static mpath_gpu_link_t link_kind(const mpath_gpu_survey_t *survey)
{
    uint32_t all = (1u << survey->num_gpus) - 1;
    int g, p, mesh = 0, reached = survey->num_gpus > 1, on_switch = 0;

    for (g = 0; g < survey->num_gpus; g++) {
        on_switch |= survey->gpus[g].links_to_switch > 0;
        reached = reached && ((survey->gpus[g].reaches | (1u << g)) == all);
        for (p = 0; p < survey->num_gpus; p++) {
            mesh |= (survey->gpus[g].links_to[p] > 0) && (((survey->gpus[g].reaches >> p) & 1) != 0);
        }
    }
    if (on_switch) {
        return MPATH_GPU_LINK_SWITCH;
    }
    return mesh ? MPATH_GPU_LINK_MESH : (reached ? MPATH_GPU_LINK_PCIE : MPATH_GPU_LINK_NONE);
}

/* --- NICs beside GPUs -------------------------------------------------------------------------------------------- */

/* The place of a device in sysfs' tree: "/sys/devices/pci0000:00/...". */
static int device_path(const char *link, char path[PATH_MAX])
{
    return (realpath(link, path) != NULL) ? 0 : -1;
}

static int nic_path(const mpath_nic_t *nic, char path[PATH_MAX])
{
    char link[128];

    snprintf(link, sizeof(link), "/sys/class/infiniband/%.*s/device", (int)strcspn(nic->name, ":"), nic->name);
    if (device_path(link, path) == 0) {
        return 0;
    }
    snprintf(link, sizeof(link), "/sys/class/net/%s/device", nic->name);
    return device_path(link, path);
}

/* Folders that two paths have in common. */
static int common_depth(const char *a, const char *b)
{
    int depth = 0;

    for (; (*a == *b) && (*a != '\0'); a++, b++) {
        depth += (*a == '/');
    }
    return depth;
}

#define ROOT_DEPTH 4 /* "/sys/devices/pci0000:00/": below one root complex */

/* PCIe bridges that NICs have in common with a GPU; 0 where nothing tells. */
static void count_bridges(const mpath_gpu_facts_t *facts, const mpath_machine_t *machine, int *bridges)
{
    char link[128], gpu[PATH_MAX], nic[PATH_MAX];
    int i, depth;

    memset(bridges, 0, MPATH_MAX_NICS * sizeof(*bridges));
    snprintf(link, sizeof(link), "/sys/bus/pci/devices/%s", facts->info.pci);
    if (device_path(link, gpu) != 0) {
        return;
    }
    for (i = 0; i < machine->num_nics; i++) {
        depth      = (nic_path(&machine->nics[i], nic) == 0) ? common_depth(gpu, nic) : 0;
        bridges[i] = (depth > ROOT_DEPTH) ? depth - ROOT_DEPTH : 0;
    }
}

void mpath_gpu_find_nics(mpath_gpu_facts_t *facts, const mpath_machine_t *machine)
{
    int bridges[MPATH_MAX_NICS];

    count_bridges(facts, machine, bridges);
    facts->nics = mpath_beside_nics(machine, bridges, facts->info.numa, -1, 0);
}

/* --- the whole --------------------------------------------------------------------------------------------------- */

void mpath_gpu_survey_model(const mpath_gpu_survey_t *survey, const mpath_machine_t *machine, mpath_node_gpus_t *gpus_p)
{
    const mpath_gpu_facts_t *facts;
    mpath_gpu_t *gpu;
    int g, p;

    memset(gpus_p, 0, sizeof(*gpus_p));
    gpus_p->num_gpus = survey->num_gpus;
    gpus_p->domain   = -1;
    gpus_p->link     = (int32_t)link_kind(survey);
    for (g = 0; g < survey->num_gpus; g++) {
        facts            = &survey->gpus[g];
        gpu              = &gpus_p->gpus[g];
        gpu->pcie_up_bps = gpu->pcie_down_bps = mpath_pcie_bps(facts->pcie_generation, facts->pcie_width);
        gpu->nics = (facts->nics != 0) ? facts->nics : mpath_beside_nics(machine, NULL, -1, g, survey->num_gpus);
        if (gpus_p->link == MPATH_GPU_LINK_SWITCH) {
            gpu->egress_bps = gpu->ingress_bps = links_bps(facts, facts->links_to_switch);
        }
        for (p = 0; (p < survey->num_gpus) && (gpus_p->link == MPATH_GPU_LINK_MESH); p++) {
            if ((facts->reaches >> p) & 1) {
                gpus_p->nvlink_bps[g][p] = links_bps(facts, facts->links_to[p]);
            }
        }
    }
    if (survey->num_gpus == 0) {
        gpus_p->link = MPATH_GPU_LINK_NONE;
    }
}
