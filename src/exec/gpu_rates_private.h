/* SPDX-License-Identifier: BSD-3-Clause */
/* The inside of gpu_rates, for the files gpu_rates*.c only. */
#ifndef MPATH_EXEC_GPU_RATES_PRIVATE_H
#define MPATH_EXEC_GPU_RATES_PRIVATE_H

#include "exec/gpu_rates.h"

/* The GPUs of a node, and the first rank on each. */
typedef struct rates_node {
    mpath_gpu_survey_t survey; /* what is said of links is not filled in */
    int ranks[MPATH_MAX_GPUS];
    int measures; /* its figures are not known */
} rates_node_t;

/*
 * Collective: fills nodes[i].probe where places[i].measures, with what could be measured. gpu_rates_measure.c.
 */
mpath_status_t mpath_gpu_rates_measure(mpath_team_t *team, mpath_gpu_t *gpu, const rates_node_t *places,
                                       mpath_node_rates_t *nodes);

#endif
