/* SPDX-License-Identifier: BSD-3-Clause */
/* Demand of a mixture-of-experts layer: who sends how many tokens to whom. */
#ifndef MPATH_PLAN_MOE_H
#define MPATH_PLAN_MOE_H

#include "util/status.h"

#include <stdint.h>

#define MPATH_MOE_MAX_TOPK 64
#define MPATH_MOE_MAX_EXPERTS 65536
#define MPATH_MOE_MAX_CHOICES 1000000000ull /* of all tokens together */

typedef struct mpath_moe {
    uint64_t tokens;      /* of each rank */
    uint32_t topk;        /* different experts that a token goes to */
    uint32_t experts;     /* expert e lives on rank e * ranks / experts */
    uint32_t skew_ppm;    /* exponent of the Zipf law of the experts' popularity, millionths; 0: all alike */
    uint64_t seed;        /* of the popularity and of the choices */
    uint64_t token_bytes; /* of one copy of a token */
} mpath_moe_t;

/*
 * The dispatch of one layer: each token chooses topk different experts, by popularity, and one copy of it goes to the
 * rank of each (two experts on one rank get two copies). The experts' order of popularity is drawn from the seed.
 * Integers only: the same matrix everywhere. demand has num_ranks^2 entries. MPATH_ERR_PARAM, logged, for numbers out
 * of range.
 */
mpath_status_t mpath_demand_moe(int num_ranks, const mpath_moe_t *moe, uint64_t *demand);

#endif
