/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Passing: which calls of a communicator the ranks leave to the previous function without agreeing on them first. For
 * communicators in which only short calls can gain, because they travel inside the agreement itself; there agreeing
 * costs the other calls as much as the call itself takes at 8 KiB.
 *
 * After calls that were declined more and more pass, 1, 3, 7 ... 63, before the ranks agree again. Short calls are
 * carried inside the agreement, which takes longer than what it replaces between two ranks, and half as long between
 * many: after a row of them both ways are tried (tune/trial.h), MPATH_PASSING_TRIALS times each, mixed, and a run takes
 * what it took the rank that came last. The decision holds for calls of that size, MPATH_PASSING_HOLDS of them.
 *
 * Pure arithmetic; nothing here communicates or reads a clock. All ranks make the same calls in the same order.
 */
#ifndef MPATH_TUNE_PASSING_H
#define MPATH_TUNE_PASSING_H

#include "tune/trial.h"
#include "util/pause.h"

#include <stdint.h>

#define MPATH_PASSING_FIRST 1u /* calls that pass between two that the ranks agree on, see util/pause.h */
#define MPATH_PASSING_MOST 63u
#define MPATH_PASSING_ROW 16u   /* short calls before a trial, and before the size is looked at again */
#define MPATH_PASSING_TRIALS 8u /* of each way */
#define MPATH_PASSING_TIMES (2u * MPATH_PASSING_TRIALS)
#define MPATH_PASSING_HOLDS 2000u
#define MPATH_PASSING_KINDS 16u /* sizes: octaves */

/* What all ranks know of a call that they have agreed on. */
typedef enum mpath_passing_call {
    MPATH_PASSING_OTHER,    /* mpath carried it, or it failed, or the next one must be agreed on for another reason */
    MPATH_PASSING_DECLINED, /* it was left to the previous function */
    MPATH_PASSING_SHORT     /* it was over when the ranks had agreed */
} mpath_passing_call_t;

/* How short calls are compared: without an agreement, way 1, has to be better by 5 %. */
extern const mpath_trial_rule_t mpath_passing_rule;

/* All zero: nothing is known. */
typedef struct mpath_passing {
    mpath_pause_t pause; /* calls that pass, before the next one is agreed on */
    uint32_t row;        /* short calls since the last look at their size */
    uint8_t tries;       /* a trial is under way */
    uint8_t asked;       /* its next call is one that the ranks agree on, which they have not yet */
    uint8_t timed;       /* somebody wants to know how long the call under way takes */
    uint32_t kind;       /* that is tried */
    int run;             /* of its trial */
    mpath_trial_t kinds[MPATH_PASSING_KINDS];
} mpath_passing_t;

/* Zero: mpath_passing_next() need not be asked, the ranks agree on the next call. */
static inline int mpath_passing_has_plans(const mpath_passing_t *passing)
{
    return (passing->pause.left > 0) || passing->tries;
}

/* Before a call. Nonzero: it passes; asked once for each such call. Zero: the ranks agree on it. */
int mpath_passing_next(mpath_passing_t *passing);

/* The call under way is a trial: mpath_passing_took() wants to know how long it takes this rank. */
static inline int mpath_passing_is_timed(const mpath_passing_t *passing)
{
    return passing->timed;
}

void mpath_passing_took(mpath_passing_t *passing, uint64_t took_ns);

/* After an agreement. Nonzero: mpath_passing_short() wants to know the largest size of any pair of ranks. */
int mpath_passing_agreed(mpath_passing_t *passing, mpath_passing_call_t call);

void mpath_passing_short(mpath_passing_t *passing, uint64_t largest_bytes);

/*
 * After an agreement about a short call. Not NULL: the trial is over, the ranks conclude it by mpath_passing_rule, and
 * mpath_passing_decided() is told.
 */
mpath_trial_t *mpath_passing_due(mpath_passing_t *passing);

void mpath_passing_decided(mpath_passing_t *passing);

#endif
