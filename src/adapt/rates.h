/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rates: what each rail of a team carries, as real calls have shown, and when that is reason enough to change shares.
 *
 * Calls are gathered in windows, of a few calls and long enough that bursts and pauses of a few milliseconds, which are
 * no property of a rail, do not count. At the end of a window the ranks exchange what they have seen, and all of them
 * come to the same decision by the same integer arithmetic:
 *
 *   a rail that differs from the others' mean by more than MPATH_RATES_JUMP_PPM          moves at once
 *   by more than MPATH_RATES_DRIFT_PPM, in two windows in a row                          moves then
 *   by less                                                                              is noise
 *
 * In the manner of FlexLink's second stage (arXiv 2510.15882), which watches the last calls and moves shares in small
 * steps. Pure arithmetic; nothing here communicates.
 */
#ifndef MPATH_ADAPT_RATES_H
#define MPATH_ADAPT_RATES_H

#include "topo/topo.h"

#include <stdint.h>

#define MPATH_RATES_WINDOW_CALLS 4 /* at least */
#define MPATH_RATES_WINDOW_NS 40000000ull
#define MPATH_RATES_JUMP_PPM 300000
#define MPATH_RATES_DRIFT_PPM 130000
#define MPATH_RATES_MOST_RISE 2 /* in one window: what a rail with a small share shows of its rate is mostly bursts */
#define MPATH_RATES_MOST_FALL 8
#define MPATH_RATES_SLOW 16       /* a part of the fastest rail's rate that is worth its messages */
#define MPATH_RATES_SEEN_CALLS 64 /* one of so many uses rails that have become slower, to see when they are not */

/* Where a window is. The same on all ranks. All zero at first. */
typedef struct mpath_rates_window {
    int calls;            /* of this window */
    uint64_t expected_ns; /* what its calls were predicted to take */
    int drifts;           /* windows in a row that drifted */
} mpath_rates_window_t;

/* Counts a call that was predicted to take `expected_ns`. Nonzero: the window ends with it. */
int mpath_rates_window_ends(mpath_rates_window_t *window, uint64_t expected_ns);
/*
 * The rules above for `num` rails or NICs of which seen_bps[] has been seen (0: nothing) where plans count on current_bps[]:
 * begins the next window. Nonzero: current_bps have changed.
 */
int mpath_rates_follow(mpath_rates_window_t *window, int num, const uint64_t *seen_bps, uint64_t *current_bps);

typedef struct mpath_rates {
    int num_rails;
    mpath_rates_window_t window;
    uint64_t current_bps[MPATH_MAX_NICS]; /* equal on all ranks; at least 1 */
    uint64_t bytes[MPATH_MAX_NICS];       /* seen by this rank in the window, and in which time */
    uint64_t busy_ns[MPATH_MAX_NICS];
} mpath_rates_t;

/*
 * Rails that are worth using, a bit each: a call waits for the slowest of its messages, so not those with less than a
 * MPATH_RATES_SLOW-th of the fastest one's rate, unless all of these together would add so much to what the others carry.
 */
uint32_t mpath_rates_worth(int num_rails, const uint64_t *bps);

void mpath_rates_init(mpath_rates_t *rates, int num_rails, const uint64_t *bps);

/* Forgets what has been seen in the window, on all ranks alike. */
void mpath_rates_restart(mpath_rates_t *rates);

/* This rank has seen a rail carry `bytes` in the `busy_ns` in which it had something to carry. */
void mpath_rates_observe(mpath_rates_t *rates, int rail, uint64_t bytes, uint64_t busy_ns);

/*
 * Counts a call that was predicted to take `expected_ns`, on all ranks alike. Nonzero: the window ends, exchange
 * mpath_rates_observed() and call mpath_rates_update().
 */
int mpath_rates_end_call(mpath_rates_t *rates, uint64_t expected_ns);
/* What this rank has seen in the window: bps[MPATH_MAX_NICS]; 0: nothing. */
void mpath_rates_observed(const mpath_rates_t *rates, uint64_t *bps);

/*
 * `all`: what every rank has observed, num_ranks * MPATH_MAX_NICS; the smallest that somebody saw counts. Begins the
 * next window, with what is too little yet to say something of a rail. Nonzero: current_bps have changed.
 */
int mpath_rates_update(mpath_rates_t *rates, const uint64_t *all, int num_ranks);

#endif
