/* SPDX-License-Identifier: BSD-3-Clause */
/* What mpath_plan and plan_bench plan for: a topology and a demand, described by options or files. */
#ifndef MPATH_TOOLS_PLAN_INPUT_H
#define MPATH_TOOLS_PLAN_INPUT_H

#include "plan/moe.h"
#include "plan/plan.h"
#include "tools/plan_emulate.h"
#include "topo/topo.h"

typedef struct plan_input {
    /* topology: a file, a preset (of its own number of nodes unless told), or a uniform cluster */
    const char *topo_path, *preset;
    int nodes_given;
    int num_nodes, ranks_per_node, num_nics;
    uint64_t rate_bps, host_memory_bps; /* host memory 0: four times the NICs of a node */
    mpath_topo_params_t topo_params;
    plan_emulate_t emulate; /* mode no and 1000000: as it is */
    /* demand: a file, the experts of a layer, a hot spot or Zipf */
    const char *matrix_path;
    int use_moe;
    mpath_moe_t moe;
    int zipf, hot_rank;
    uint32_t skew_ppm; /* hot-spot ratio or Zipf exponent */
    uint64_t seed, bytes;
} plan_input_t;

/* 2 nodes x 4 ranks x 4 NICs of 25 GB/s, everything reachable, 64 MiB per rank, evenly. */
void plan_input_init(plan_input_t *input);

/* Creates both; the caller destroys the topology and frees the demand. Errors are logged. */
mpath_status_t plan_input_make(const plan_input_t *input, mpath_topo_t **topo_p, uint64_t **demand_p);

/* "0.7" as millionths, "8m" as bytes (powers of 1024), "25g" as a rate (powers of 1000); 0 when the text is no such
 * number. */
int plan_parse_ppm(const char *text, uint32_t *ppm_p);
int plan_parse_bytes(const char *text, uint64_t *bytes_p);
int plan_parse_rate(const char *text, uint64_t *rate_p);
/* "4096,8,256,1.0": tokens of a rank, experts of a token, experts, skew. */
int plan_parse_moe(const char *text, mpath_moe_t *moe);

#endif
