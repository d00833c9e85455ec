/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Discovery of the GPUs that this process sees: what they are and how they are linked, from the CUDA driver and NVML,
 * and out of that what the topology says of a node's GPUs. Rates are those of the links times what copies were seen to
 * reach of them (topo/discover/gpus_model.c); a probe (topo/discover/gpu_probe.h) puts measured ones in their place.
 *
 * GPUs are numbered in the order of their PCI addresses, so that processes which see them under other numbers
 * (CUDA_VISIBLE_DEVICES) agree; `ordinal` is the driver's number in this process. Processes of a node may each see
 * another GPU only: what one knows of its own makes, with what the others know of theirs, a survey of the node.
 */
#ifndef MPATH_TOPO_DISCOVER_GPUS_H
#define MPATH_TOPO_DISCOVER_GPUS_H

#include "device/gpu.h"
#include "topo/topo.h"

/* Whether a GPU can address another one's memory: the driver knows, NVML's no is not taken for certain. */
typedef enum mpath_gpu_reach {
    MPATH_GPU_REACH_UNTOLD,
    MPATH_GPU_REACH_DOUBTED, /* by NVML */
    MPATH_GPU_REACH_NO,
    MPATH_GPU_REACH_YES
} mpath_gpu_reach_t;

/* What a GPU knows of what is at another PCI address; this process may not see that. */
typedef struct mpath_gpu_other {
    char pci[MPATH_GPU_PCI_MAX]; /* "": nothing tells */
    int32_t links;               /* NVLinks that are up */
    int32_t reach;               /* mpath_gpu_reach_t */
} mpath_gpu_other_t;

/* Plain data: it travels between the processes of a job, up to what follows from the other GPUs of a survey. */
typedef struct mpath_gpu_facts {
    mpath_gpu_info_t info;
    int pcie_generation, pcie_width; /* 0: unknown */
    uint64_t link_bps;               /* of one NVLink, each direction, as signalled; 0: unknown */
    int links_to_switch;             /* NVLinks that are up */
    uint64_t nics;                   /* beside it, a bit each; 0: nothing tells, or nobody has looked */
    int num_others;
    mpath_gpu_other_t others[MPATH_MAX_GPUS];
    /* mpath_gpu_survey_number() */
    int links_to[MPATH_MAX_GPUS]; /* NVLinks to other GPUs of the survey, by number */
    int links_elsewhere;          /* NVLinks to what is not in it */
    uint32_t reaches;             /* GPUs whose memory it can address, bit per number */
    uint32_t untold;              /* those of which nothing says for sure whether it can */
} mpath_gpu_facts_t;

typedef struct mpath_gpu_survey {
    int num_gpus;
    int driver_version; /* 13000: CUDA 13.0 */
    int has_nvml;
    mpath_gpu_facts_t gpus[MPATH_MAX_GPUS];
} mpath_gpu_survey_t;

/*
 * Uses the driver if it runs (mpath_device()); without it, or without a device, num_gpus is 0. A program that wants
 * to see GPUs in any case calls mpath_gpu_driver_start() before. Makes no context. More than MPATH_MAX_GPUS are left
 * out, with a warning.
 */
mpath_status_t mpath_gpu_survey(mpath_gpu_survey_t *survey_p);

/* "GPU-12345678-...", as nvidia-smi writes it. `text` has MPATH_GPU_UUID_TEXT bytes. */
#define MPATH_GPU_UUID_TEXT 48
void mpath_gpu_uuid_text(const mpath_device_uuid_t *uuid, char *text);

/* The number of a GPU in a survey; -1: it is not there. */
int mpath_gpu_survey_find(const mpath_gpu_survey_t *survey, const mpath_device_uuid_t *uuid);

/*
 * A survey out of what several processes know of GPUs, each one once: adds them, in any order, then numbers them, which
 * tells what each says of the others. The same for the same GPUs, whoever does it.
 */
void mpath_gpu_survey_add(mpath_gpu_survey_t *survey, const mpath_gpu_facts_t *facts);
void mpath_gpu_survey_number(mpath_gpu_survey_t *survey);

/* facts->nics, as far as the machine tells: by its PCIe tree or NUMA nodes (mpath_beside_nics()). */
void mpath_gpu_find_nics(mpath_gpu_facts_t *facts, const mpath_machine_t *machine);

/*
 * The GPUs of a node for a topology. Where nothing tells of NICs beside a GPU, it is the one of its number. What nothing
 * tells of being reached is out of reach, and where some GPU does not reach all others by PCIe, none does.
 */
void mpath_gpu_survey_model(const mpath_gpu_survey_t *survey, const mpath_machine_t *machine,
                            mpath_node_gpus_t *gpus_p);

#endif
