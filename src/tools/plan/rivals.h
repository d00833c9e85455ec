/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Schedulers of others, on paper: where their bytes go and how long their steps take, from what they have published. Where
 * that leaves something open, it is done in their favour; doc/planner.md says how.
 *
 * FAST (Lei and others, arXiv 2505.09764)   the ranks of a node share what goes to each other node evenly, over its rails;
 *      nodes then send to each other in stages, each node to one other at a time, by a Birkhoff decomposition of the bytes
 *      between nodes; what has arrived goes on to the rank that it is for. A stage runs while what the next one needs is
 *      balanced and what the last one brought is handed out.
 * SABRE (Wei and Bhatele, ICS 2026)         gathering inside the node, exchange between nodes evenly over the NICs, and
 *      redistribution, one after the other; or where traffic is but lightly skewed, two dimensions in a pipeline: to the
 *      rank beside the destination's rail, then over it. The better of the two counts.
 */
#ifndef MPATH_TOOLS_RIVALS_H
#define MPATH_TOOLS_RIVALS_H

#include "plan/plan.h"
#include "plan/time_model.h"

typedef enum rival { RIVAL_FAST, RIVAL_SABRE } rival_t;

typedef struct rival_result {
    mpath_plan_t *plan;      /* its flows; Z is what they take if nothing waits for anything */
    double seconds;          /* in steps */
    size_t steps;            /* that follow each other; 1: all bytes move at once */
    uint64_t crossing_bytes; /* that the steps between nodes move together */
} rival_result_t;

/* `time` as for mpath_time_predict(). The caller destroys the plan. Errors are logged. */
mpath_status_t rival_run(rival_t rival, const mpath_topo_t *topo, const uint64_t *demand,
                         const mpath_time_params_t *time, rival_result_t *result);

/*
 * The same node by node, for more ranks than anybody has the matrix of: SABRE as above; of FAST no steps, but what they cannot
 * be shorter than: all its flows at once, and its latencies.
 */
typedef struct rival_phases rival_phases_t;

mpath_status_t rival_phases_create(const mpath_topo_t *topo, const mpath_time_params_t *time,
                                   rival_phases_t **phases_p);
void rival_phases_destroy(rival_phases_t *phases);
/* What the ranks of a node, in their order, send: sends[i * num_ranks + destination]. Each node once, in any order. */
mpath_status_t rival_phases_add(rival_phases_t *phases, int node, const uint64_t *sends);
void rival_phases_seconds(const rival_phases_t *phases, double *sabre_p, double *fast_at_least_p);

/* A matrix as a sum of stages in each of which every row has one column, and every column one row. */
typedef struct rival_stages {
    int size;
    size_t count;
    int32_t *to;     /* [stage * size + row]: the column */
    uint64_t *bytes; /* the same: of the matrix; what a stage lasts longer than that, the row is idle */
    uint64_t total;  /* lengths of all stages: the largest sum of a row or column */
} rival_stages_t;

/*
 * Birkhoff's decomposition of matrix[row * size + column], rows and columns of which are filled up to the largest sum
 * first. At most size^2 - 2 size + 2 stages and as many as have been filled up. MPATH_ERR_NO_MEMORY, logged.
 */
mpath_status_t rival_decompose(int size, const uint64_t *matrix, rival_stages_t *stages);
void rival_stages_release(rival_stages_t *stages);

#endif
