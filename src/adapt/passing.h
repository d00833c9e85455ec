/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Passing: which calls of a communicator the ranks leave to the previous function without agreeing on them first. For
 * communicators in which only short calls can gain, because they travel inside the agreement itself; there agreeing
 * costs the other calls as much as the call itself takes at 8 KiB.
 *
 * After calls that were declined more and more pass, 1, 3, 7 ... 63, before the ranks agree again. Short calls are
 * carried inside the agreement, which takes longer than what it replaces between two ranks, and half as long between
 * many: after a row of them the two ways are tried, MPATH_PASSING_TRIALS times each, in an order in which no pattern of
 * the application falls on one of them only. All ranks come to the same decision by the same integers: a trial took what
 * the rank took that came last, which waited for nobody; a way takes the median of its trials; and the previous function
 * has to be better by MPATH_PASSING_MARGIN_PPM. The decision holds for calls of that size, MPATH_PASSING_HOLDS of them.
 *
 * Pure arithmetic; nothing here communicates or reads a clock. All ranks make the same calls in the same order.
 */
#ifndef MPATH_ADAPT_PASSING_H
#define MPATH_ADAPT_PASSING_H

#include <stdint.h>

#define MPATH_PASSING_DOUBLINGS 6u /* at most 63 calls pass between two that the ranks agree on */
#define MPATH_PASSING_ROW 16u      /* short calls before a trial, and before the size is looked at again */
#define MPATH_PASSING_TRIALS 8u    /* of each way */
#define MPATH_PASSING_TIMES (2u * MPATH_PASSING_TRIALS)
#define MPATH_PASSING_HOLDS 2000u
#define MPATH_PASSING_MARGIN_PPM 50000u
#define MPATH_PASSING_KINDS 16u /* sizes: octaves */

/* What all ranks know of a call that they have agreed on. */
typedef enum mpath_passing_call {
    MPATH_PASSING_OTHER,    /* mpath carried it, or it failed, or the next one must be agreed on for another reason */
    MPATH_PASSING_DECLINED, /* it was left to the previous function */
    MPATH_PASSING_SHORT     /* it was over when the ranks had agreed */
} mpath_passing_call_t;

/* All zero: nothing is known. */
typedef struct mpath_passing {
    uint32_t doublings; /* of what is granted, in a row */
    uint32_t granted;   /* calls that pass, before the next one is agreed on */
    uint32_t row;       /* short calls since the last look at their size */
    uint32_t kind;      /* that is tried */
    uint8_t tries;      /* a trial is under way */
    uint8_t slot;       /* of its next call; MPATH_PASSING_TIMES: the trials are over */
    uint8_t timed;      /* slot of the call under way, plus 1; 0: nobody wants to know how long it takes */
    uint32_t times_ns[MPATH_PASSING_TIMES]; /* of this rank; 0: not measured */
    struct {
        uint16_t holds; /* calls for which the decision holds; 0: there is none */
        uint8_t passes; /* it */
    } kinds[MPATH_PASSING_KINDS];
} mpath_passing_t;

/* Zero: mpath_passing_next() need not be asked, the ranks agree on the next call. */
static inline int mpath_passing_has_plans(const mpath_passing_t *passing)
{
    return (passing->granted > 0) || passing->tries;
}

/* Before a call. Nonzero: it passes; asked once for each such call. Zero: the ranks agree on it. */
int mpath_passing_next(mpath_passing_t *passing);

/* The call under way is a trial: mpath_passing_took() wants to know how long it takes this rank. */
static inline int mpath_passing_is_timed(const mpath_passing_t *passing)
{
    return passing->timed != 0;
}
void mpath_passing_took(mpath_passing_t *passing, uint64_t took_ns);

/* After an agreement. Nonzero: mpath_passing_short() wants to know the largest size of any pair of ranks. */
int mpath_passing_agreed(mpath_passing_t *passing, mpath_passing_call_t call);
void mpath_passing_short(mpath_passing_t *passing, uint64_t largest_bytes);

/* After an agreement about a short call. Nonzero: the trials are over, exchange times_ns[] and decide. */
int mpath_passing_is_due(const mpath_passing_t *passing);

/* `all`: times_ns[] of every rank. One that has not measured a call leaves everything as it is without trials. */
void mpath_passing_decide(mpath_passing_t *passing, const uint32_t *all, int num_ranks);

#endif
