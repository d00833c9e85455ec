/* SPDX-License-Identifier: BSD-3-Clause */
/* A topology for virtual nodes of one host (doc/gpu.md), out of one of a real cluster. */
#ifndef MPATH_TOOLS_PLAN_EMULATE_H
#define MPATH_TOOLS_PLAN_EMULATE_H

#include "topo/topo.h"

typedef struct plan_emulate {
    mpath_emulation_t mode;
    uint32_t scale_ppm; /* of all rates, in millionths: 250000 makes 120 GB/s 30 GB/s */
    const char *device; /* MPATH_EMULATED_RAILS: UCX device that all NICs share; NULL: as they are named */
} plan_emulate_t;

/* Errors are logged. The caller destroys both topologies. */
mpath_status_t plan_emulate(const plan_emulate_t *emulate, const mpath_topo_t *topo, mpath_topo_t **emulated_p);

#endif
