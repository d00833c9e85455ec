/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What NVIDIA's management library knows of a GPU's links. libnvidia-ml.so.1 is loaded at run time; the part of its
 * binary interface that is used is declared in topo/discover/nvml.c and documented by NVIDIA (NVML API reference).
 */
#ifndef MPATH_TOPO_DISCOVER_NVML_H
#define MPATH_TOPO_DISCOVER_NVML_H

#include "util/status.h"

#include <stdint.h>

#define MPATH_NVML_MAX_LINKS 36
#define MPATH_NVML_MAX_PEERS 16
#define MPATH_NVML_PCI_MAX 16

typedef enum mpath_nvml_remote {
    MPATH_NVML_REMOTE_GPU,
    MPATH_NVML_REMOTE_SWITCH,
    MPATH_NVML_REMOTE_OTHER
} mpath_nvml_remote_t;

/* An NVLink that is up. */
typedef struct mpath_nvml_link {
    mpath_nvml_remote_t remote;
    char pci[MPATH_NVML_PCI_MAX]; /* of the other end: "0000:3b:00.0"; "" where NVML does not say */
} mpath_nvml_link_t;

/* Another GPU of the machine, whether the CUDA driver shows it to this process or not. */
typedef struct mpath_nvml_peer {
    char pci[MPATH_NVML_PCI_MAX];
    int reached; /* its memory can be read and written */
} mpath_nvml_peer_t;

typedef struct mpath_nvml_gpu {
    int pcie_generation, pcie_width; /* the most that GPU and slot can do; 0: unknown */
    uint64_t link_bps;               /* of one NVLink, each direction, as signalled; 0: unknown */
    int num_links;
    mpath_nvml_link_t links[MPATH_NVML_MAX_LINKS];
    int num_peers; /* of which it tells */
    mpath_nvml_peer_t peers[MPATH_NVML_MAX_PEERS];
} mpath_nvml_gpu_t;

typedef struct mpath_nvml mpath_nvml_t;

/* MPATH_ERR_UNSUPPORTED, silent: there is no such library, or it does not work here. */
mpath_status_t mpath_nvml_open(mpath_nvml_t **nvml_p);
void mpath_nvml_close(mpath_nvml_t *nvml);

/* By PCI address. What NVML does not tell stays 0. MPATH_ERR_UNSUPPORTED, silent: it does not know the GPU. */
mpath_status_t mpath_nvml_read(const mpath_nvml_t *nvml, const char *pci, mpath_nvml_gpu_t *gpu_p);

#endif
