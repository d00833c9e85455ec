/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tune: finds the shares with which all rails end together, from nothing but how long each took. Share moves from the
 * slowest to the fastest rail, by a step that halves whenever the direction turns: the first stage of FlexLink (arXiv
 * 2510.15882). Pure arithmetic, the same on all ranks.
 */
#ifndef MPATH_TUNE_START_H
#define MPATH_TUNE_START_H

#include "topo/topo.h"

#include <stdint.h>

#define MPATH_TUNE_WHOLE 1000000u   /* the sum of the shares */
#define MPATH_TUNE_ROUNDS 24        /* at most */
#define MPATH_TUNE_CLOSE_PPM 60000u /* slowest and fastest within this of each other: done */
#define MPATH_TUNE_LEAST_STEP 2500u /* of a share, in parts of the whole */

typedef struct mpath_tune {
    int num_rails, rounds;
    uint32_t shares[MPATH_MAX_NICS]; /* in parts of MPATH_TUNE_WHOLE; none is 0 */
    uint32_t step;
    int from, to; /* of the last move; -1: none yet */
} mpath_tune_t;

/* Begins with shares in proportion to the rates. */
void mpath_tune_init(mpath_tune_t *tune, int num_rails, const uint64_t *bps);

/* How long each rail took with the present shares. Nonzero: the shares have changed, measure again. */
int mpath_tune_step(mpath_tune_t *tune, const uint64_t *times_ns);

#endif
