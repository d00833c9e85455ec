/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the copies of the GPUs of a team reach: read from a file that an earlier probe has left (topo/discover/gpu_probe.h), or
 * measured by the ranks together, each with its own GPU, which has a context already: copies to the next GPU and to the
 * host, one at a time, both into a GPU at once, and all at once. That takes some tens of milliseconds and, for as long,
 * 32 MiB of each GPU; who uses the GPUs besides makes it slower, and so does a debugger; mpath_gpu_probe_doubt() knows
 * the signs, and such figures are not used. What was measured is kept in the file and in the process.
 *
 * One rank of each node reads and writes; all ranks come to the same figures, bit for bit, since these are exchanged.
 */
#ifndef MPATH_NODE_RATES_H
#define MPATH_NODE_RATES_H

#include "team/team.h"
#include "topo/discover/gpu_probe.h"

/* The GPUs that ranks of a node use, in the order of their PCI addresses. Plain data. */
typedef struct mpath_node_rates {
    int32_t known; /* 0: there are no figures */
    int32_t num_gpus;
    mpath_device_uuid_t uuids[MPATH_MAX_GPUS];
    mpath_gpu_probe_t probe; /* 0: not measured */
} mpath_node_rates_t;

/*
 * Collective over the team, for set-up inside of calls that have been agreed on. `gpu`: this rank's, NULL: none. Fills
 * nodes[number of nodes]. Errors are those of the exchanges, whose deadline names who is missing; whatever else goes
 * wrong leaves a node without figures.
 */
mpath_status_t mpath_gpu_rates_agree(mpath_team_t *team, mpath_gpu_t *gpu, mpath_node_rates_t *nodes);

/* The figures for GPUs as somebody else numbers them; num_gpus of *probe is 0 when nothing is known of them. */
void mpath_gpu_rates_of(const mpath_node_rates_t *node, const mpath_device_uuid_t *uuids, int num_gpus,
                        mpath_gpu_probe_t *probe);

#endif
