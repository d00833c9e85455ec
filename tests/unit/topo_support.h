/* SPDX-License-Identifier: BSD-3-Clause */
/* For the tests of topologies: clusters to make them of, and what is said of their paths. */
#ifndef MPATH_TESTS_UNIT_TOPO_SUPPORT_H
#define MPATH_TESTS_UNIT_TOPO_SUPPORT_H

#include "topo/topo.h"

#define MAX_TEST_NODES 4
#define MAX_TEST_RANKS 32

/* Machines, their GPUs, and where each rank is. */
typedef struct cluster {
    mpath_machine_t machines[MAX_TEST_NODES];
    mpath_node_gpus_t gpus[MAX_TEST_NODES];
    mpath_place_t places[MAX_TEST_RANKS];
    mpath_topo_params_t params;
    int num_nodes, num_ranks;
    int with_gpus; /* the GPUs are told; else the topology is made without them */
} cluster_t;

/* `nodes` nodes without GPUs, a NIC of NIC_BPS per rank, rank r of a node beside NIC r. */
#define NIC_BPS 25000000ull
void cluster_of_nics(cluster_t *c, int nodes, int nics, mpath_access_mode_t access, uint32_t fabric);
/* The cluster's topology; it must have one. */
mpath_topo_t *cluster_build(const cluster_t *c);
/* The cluster has no topology, and the one line of the log has `expected` in it. */
void topo_check_rejected(const cluster_t *c, const char *expected);
uint64_t topo_signature_of(const cluster_t *c);
/* The pair's paths, one per line, against `expected`. */
void topo_check_text(const mpath_topo_t *topo, int source, int destination, const char *expected);
/* The resources of one path by name. */
void topo_check_resources(const mpath_topo_t *topo, int source, int destination, int index, const char *expected);
/* 0 to limit - 1; a linear congruential generator (Knuth's MMIX). */
int topo_draw(uint64_t *seed, int limit);

#endif
