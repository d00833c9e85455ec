/* SPDX-License-Identifier: BSD-3-Clause */
/* Topologies and demands for the planner's tests: random but repeatable, and checks that hold for every plan. */
#ifndef MPATH_TESTS_PLAN_CASES_H
#define MPATH_TESTS_PLAN_CASES_H

#include "plan/plan.h"
#include "topo/topo.h"

#define PLAN_CASE_MAX_NODES 32

typedef struct plan_case {
    int num_nodes, ranks_per_node, num_nics;
    mpath_topo_params_t params;
    mpath_machine_t machines[PLAN_CASE_MAX_NODES];
    mpath_node_gpus_t gpus[PLAN_CASE_MAX_NODES]; /* of the clusters of GPUs */
    mpath_topo_t *topo;
    uint64_t *demand;
    int small;      /* drawn so that pairs have about a fragment: Z is far from that of a linear program */
    char text[200]; /* says what the case is */
} plan_case_t;

uint64_t plan_case_random(uint64_t *state);

/* A uniform cluster: rank i of a node sits beside NIC i modulo num_nics. */
void plan_case_machines(plan_case_t *c, int num_nodes, int num_nics, uint64_t rate_bps, uint64_t host_memory_bps);
/* Creates the topology of the machines as they are now; NULL topo when it has none. demand is all 0. */
void plan_case_build(plan_case_t *c, int ranks_per_node, mpath_access_mode_t access, uint32_t fabric);
/* Everything drawn from `seed`: sizes, access, spine, unequal rates, NICs down, kind of demand. */
void plan_case_draw(plan_case_t *c, uint64_t seed, int max_ranks);
/* The same for a cluster of GPUs (plan_cases_gpu.c), with ranks_per_node and num_nics left 0. */
void plan_case_draw_gpus(plan_case_t *c, uint64_t seed, int max_ranks);
/* A demand of kind 0 to 4: hot spot, Zipf, sparse, one pair, any. */
void plan_case_draw_demand(plan_case_t *c, uint64_t *state, int num_ranks, int kind, uint64_t bytes);
void plan_case_release(plan_case_t *c);

/*
 * Fails the running test unless every byte is shipped once, in order, on paths that exist, and loads, Z, bound and
 * relayed bytes are what the flows say.
 */
void plan_case_check(const plan_case_t *c, const mpath_plan_t *plan);

/* Pieces smaller than `smallest` that are not a whole pair. */
size_t plan_case_crumbs(const plan_case_t *c, const mpath_plan_t *plan, uint64_t smallest);

#endif
