/* SPDX-License-Identifier: BSD-3-Clause */
/* What mpath_plan and plan_bench plan for: a topology and a demand, described by options or files. */
#ifndef MPATH_TOOLS_PLAN_INPUT_H
#define MPATH_TOOLS_PLAN_INPUT_H

#include "plan/demand.h"
#include "plan/plan.h"
#include "plan/workload.h"
#include "tools/plan/emulate.h"
#include "topo/topo.h"

typedef struct plan_input {
    /*
     * topology: a file (if it has no ranks, --nodes of its machines, and access and spine as given), a preset (of its own number of nodes unless told), or a uniform cluster
     */
    const char *topo_path, *preset;
    int nodes_given, access_given;
    int num_nodes, ranks_per_node, num_nics;
    uint64_t rate_bps, host_memory_bps; /* host memory 0: four times the NICs of a node */
    mpath_topo_params_t topo_params;
    plan_emulate_t emulate; /* mode no and 1000000: as it is */
    /* demand: a file (of bytes, or of shares of `bytes`), the experts of a layer, a workload, a hot spot or Zipf */
    const char *matrix_path, *matrix_scale; /* scale NULL: as it stands */
    const char *workload;                   /* its name; with use_moe: popularity of the experts; NULL: none */
    int use_moe;
    mpath_moe_t moe;
    mpath_transpose_t transpose; /* size 0: none */
    int zipf, hot_rank;
    uint32_t skew_ppm; /* hot-spot ratio or Zipf exponent */
    uint64_t seed, step, bytes;
    int bytes_given;
} plan_input_t;

/* For getopt_long(): those of a topology and a demand. A program has others, of other letters, beside them. */
#define PLAN_INPUT_OPTIONS                                                                                             \
    {"topo", 1, NULL, 't'}, {"preset", 1, NULL, 'k'}, {"nodes", 1, NULL, 'n'}, {"ranks-per-node", 1, NULL, 'l'},       \
        {"nics", 1, NULL, 'i'}, {"rate", 1, NULL, 'R'}, {"host-memory", 1, NULL, 'H'}, {"access", 1, NULL, 'a'},       \
        {"spine", 0, NULL, 'p'}, {"scale", 1, NULL, 'x'}, {"emulated", 1, NULL, 'e'}, {"device", 1, NULL, 'V'},        \
        {"matrix", 1, NULL, 'm'}, {"bytes", 1, NULL, 'b'}, {"hot", 1, NULL, 'K'}, {"hot-rank", 1, NULL, 'r'},          \
        {"zipf", 1, NULL, 'z'}, {"moe", 1, NULL, 'M'}, {"token-bytes", 1, NULL, 'B'}, {"workload", 1, NULL, 'w'},      \
        {"step", 1, NULL, 'q'}, {"matrix-scale", 1, NULL, 'y'}, {"transpose", 1, NULL, 'G'},                           \
    {                                                                                                                  \
        "seed", 1, NULL, 's'                                                                                           \
    }

/* What --help says of them. */
extern const char plan_input_help[];

/* Takes one of them: 1; 0: its value is wrong; -1: it is none of them. */
int plan_input_option(plan_input_t *input, int option, const char *text);
/*
 * Whether those that were given, with a nonzero entry in `given` for each letter, go together; if not, says so on standard
 * error for `program`, whose options are `names`.
 */
struct option;
int plan_input_fits(const plan_input_t *input, const char *program, const struct option *names, const char *given);

/* Each in a line: "2 nodes of preset h100-mesh4: 8 ranks, ...", and "0.7 of all bytes to rank 0: 537 MB in all, ...". */
#define PLAN_INPUT_TEXT 320
typedef struct plan_captions {
    char machine[PLAN_INPUT_TEXT], matrix[PLAN_INPUT_TEXT];
} plan_captions_t;
void plan_input_describe(const plan_input_t *input, const mpath_topo_t *topo, const uint64_t *demand,
                         plan_captions_t *captions);

/* 2 nodes x 4 ranks x 4 NICs of 25 GB/s, everything reachable, 64 MiB per rank, evenly. */
void plan_input_init(plan_input_t *input);

/* Creates both; the caller destroys the topology and frees the demand. Errors are logged. */
mpath_status_t plan_input_make(const plan_input_t *input, mpath_topo_t **topo_p, uint64_t **demand_p);

/* The topology alone. */
mpath_status_t plan_input_make_topo(const plan_input_t *input, mpath_topo_t **topo_p);
/*
 * Tokens of experts, whose popularity is a workload's unless that is NULL; *weights_p is what *moe points to then, for free(),
 * also after an error, which is logged.
 */
mpath_status_t plan_input_moe(const plan_input_t *input, const mpath_workload_t *workload, mpath_moe_t *moe,
                              uint64_t **weights_p);

/* Lines of PLAN_INPUT_TEXT at most, without the bytes. */
void plan_input_describe_machine(const plan_input_t *input, const mpath_topo_t *topo, char *text);
void plan_input_describe_demand(const plan_input_t *input, char *text);

/* "0.7" as millionths, "8m" as bytes (powers of 1024), "25g" as a rate (powers of 1000); 0 when the text is no such
 * number. */
int plan_parse_ppm(const char *text, uint32_t *ppm_p);
int plan_parse_bytes(const char *text, uint64_t *bytes_p);
int plan_parse_rate(const char *text, uint64_t *rate_p);
/* "4096,8,256,1.0": tokens of a rank, experts of a token, experts, skew; or the name of a workload in place of the skew. */
int plan_parse_moe(const char *text, plan_input_t *input);

#endif
