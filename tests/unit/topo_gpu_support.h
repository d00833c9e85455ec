/* SPDX-License-Identifier: BSD-3-Clause */
/* For the tests of topologies with GPUs: clusters of GPUs, and the rules that hold for every path. */
#ifndef MPATH_TESTS_UNIT_TOPO_GPU_SUPPORT_H
#define MPATH_TESTS_UNIT_TOPO_GPU_SUPPORT_H

#include "unit/topo_support.h"

#define GBPS 1000000000ull

/* Nodes with a NIC beside each GPU and a rank on each; every GPU linked to every other or on the switch. */
void cluster_init_gpus(cluster_t *c, int nodes, int gpus, mpath_gpu_link_t link, uint32_t fabric);
/* Every path of every pair, none of them twice. */
void topo_gpu_check_all_paths(const mpath_topo_t *topo);

#endif
