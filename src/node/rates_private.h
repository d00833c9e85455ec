/* SPDX-License-Identifier: BSD-3-Clause */
/* The inside of gpu_rates, for the files gpu_rates*.c only. */
#ifndef MPATH_NODE_RATES_PRIVATE_H
#define MPATH_NODE_RATES_PRIVATE_H

#include "node/rates.h"

/* The GPUs of a node, and the first rank on each. */
typedef struct rates_node {
    mpath_gpu_survey_t survey; /* what is said of links is not filled in */
    int ranks[MPATH_MAX_GPUS];
    int measures; /* its figures are not known */
} rates_node_t;

#endif
