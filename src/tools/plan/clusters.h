/* SPDX-License-Identifier: BSD-3-Clause */
/* Clusters of GPUs that stand in no order, for measuring the planner. */
#ifndef MPATH_TOOLS_PLAN_CLUSTERS_H
#define MPATH_TOOLS_PLAN_CLUSTERS_H

#include "topo/topo.h"

#define PLAN_NUM_CLUSTERS 12

/* Static text, at most 24 characters. `kind` is 0 to PLAN_NUM_CLUSTERS - 1. */
const char *plan_cluster_name(int kind);
/* Nonzero: without a spine some ranks have no path to others. */
int plan_cluster_needs_spine(int kind);
/* About `num_ranks` ranks, in whole nodes. `fabric`: MPATH_FABRIC_*. The same cluster in every run. */
mpath_status_t plan_cluster_make(int kind, int num_ranks, uint32_t fabric, mpath_topo_t **topo_p);

#endif
