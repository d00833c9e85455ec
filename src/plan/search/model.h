/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The planning problem, spelled out: every pair with bytes, its paths, and the resources of each path. Pairs whose
 * choices cost the same resources form a group, and the continuous problem is solved for groups:
 *
 *   pair  --first_path, num_paths-->  paths[]  --first_resource, num_resources-->  resources[]
 *     \--group--> groups[] --first_path, num_paths--> group_paths[] --...--> the same, without slack resources
 *
 * A resource is slack when not even all the bytes that could touch it load it above the lower bound; leaving slack
 * resources out merges most pairs of two nodes into one group.
 */
#ifndef MPATH_PLAN_SEARCH_MODEL_H
#define MPATH_PLAN_SEARCH_MODEL_H

#include "plan/fixed.h"
#include "plan/plan.h"

#define MPATH_NO_GROUP UINT32_MAX

typedef struct mpath_model_path {
    uint32_t first_resource;
    uint16_t num_resources;
    uint16_t num_relays;
    uint32_t group_path; /* of a pair's path: the path of its group, counted from the group's first */
    uint64_t bytes;      /* the solution */
} mpath_model_path_t;

typedef struct mpath_model_pair {
    int32_t source, destination;
    uint64_t bytes;
    size_t first_path;
    uint32_t num_paths;
    uint32_t group; /* MPATH_NO_GROUP: one path only */
} mpath_model_pair_t;

typedef struct mpath_model_group {
    uint64_t bytes; /* of all its pairs */
    size_t first_path;
    uint32_t num_paths;
    uint32_t num_pairs;
    uint64_t hash;
} mpath_model_group_t;

typedef struct mpath_model {
    const mpath_topo_t *topo;
    uint64_t min_fragment_bytes;
    uint32_t num_resources;
    uint64_t *capacity;        /* bytes per second, by resource */
    uint64_t *load;            /* of the pairs' paths as they are now */
    uint64_t *base;            /* of the pairs with one path only */
    mpath_ratio_t bound;       /* proved lower bound of Z */
    uint64_t total_bytes;      /* of all pairs */
    mpath_model_pair_t *pairs; /* by source, destination */
    size_t num_pairs;
    mpath_model_path_t *paths;
    size_t num_paths;
    uint32_t *resources;
    size_t num_path_resources;
    mpath_model_group_t *groups;
    uint32_t num_groups;
    mpath_model_path_t *group_paths;
    size_t num_group_paths;
    uint32_t *group_resources;
    size_t num_group_path_resources;
} mpath_model_t;

/*
 * Builds the problem without a solution (all paths hold 0 bytes). The bound is that of the cuts. demand has been
 * checked: the sum of its entries fits 64 bits. MPATH_ERR_UNREACHABLE is logged here.
 */
mpath_status_t mpath_model_init(mpath_model_t *model, const mpath_topo_t *topo, const uint64_t *demand,
                                uint64_t min_fragment_bytes);
void mpath_model_release(mpath_model_t *model);

/* Loads from the bytes on the pairs' paths. */
void mpath_model_count_loads(mpath_model_t *model);
/* The largest load over capacity; 0 when nothing is loaded. */
mpath_ratio_t mpath_model_z(const mpath_model_t *model);

/*
 * plan/search/weights.c: bytes on the groups' paths that (nearly) minimise Z, in shares of each group; improves the bound. Sets
 * *z_p to the Z of the shares. `rounds` limits the sweeps. `is_warm`: the paths hold bytes to start from, about those
 * of their groups.
 */
mpath_status_t mpath_weights_solve(mpath_model_t *model, uint32_t gap_ppm, uint32_t rounds, int is_warm,
                                   mpath_ratio_t *z_p);

#endif
