/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Discovery of the GPUs that this process sees: what they are and how they are linked, from the CUDA driver and NVML,
 * and out of that what the topology says of a node's GPUs. Rates are those of the links times what copies were seen to
 * reach of them (machine_gpus.c); a probe (gpu_probe.h) puts measured ones in their place.
 *
 * GPUs are numbered in the order of their PCI addresses, so that processes which see them under other numbers
 * (CUDA_VISIBLE_DEVICES) agree; `ordinal` is the driver's number in this process.
 */
#ifndef MPATH_TOPO_MACHINE_GPUS_H
#define MPATH_TOPO_MACHINE_GPUS_H

#include "gpu/device.h"
#include "topo/topo.h"

typedef struct mpath_gpu_facts {
    mpath_gpu_info_t info;
    int pcie_generation, pcie_width; /* 0: unknown */
    uint64_t link_bps;               /* of one NVLink, each direction, as signalled; 0: unknown */
    int links_to_switch;             /* NVLinks that are up */
    int links_to[MPATH_MAX_GPUS];    /* NVLinks to other GPUs here, by number */
    int links_elsewhere;             /* NVLinks to what this process does not see */
    uint32_t reaches;                /* GPUs whose memory it can address, bit per number */
} mpath_gpu_facts_t;

typedef struct mpath_gpu_survey {
    int num_gpus;
    int driver_version; /* 13000: CUDA 13.0 */
    int has_nvml;
    mpath_gpu_facts_t gpus[MPATH_MAX_GPUS];
} mpath_gpu_survey_t;

/*
 * Uses the driver if it runs (mpath_gpu_driver()); without it, or without a device, num_gpus is 0. A program that wants
 * to see GPUs in any case calls mpath_gpu_driver_start() before. Makes no context. More than MPATH_MAX_GPUS are left
 * out, with a warning.
 */
mpath_status_t mpath_gpu_survey(mpath_gpu_survey_t *survey_p);

/* "GPU-12345678-...", as nvidia-smi writes it. `text` has MPATH_GPU_UUID_TEXT bytes. */
#define MPATH_GPU_UUID_TEXT 48
void mpath_gpu_uuid_text(const mpath_cu_uuid_t *uuid, char *text);

/*
 * The GPUs of a node for a topology. NICs beside a GPU are those that share the longest way through the PCIe tree with
 * it, else those of its NUMA node, else the NIC of its number.
 */
void mpath_gpu_survey_model(const mpath_gpu_survey_t *survey, const mpath_machine_t *machine,
                            mpath_node_gpus_t *gpus_p);

#endif
