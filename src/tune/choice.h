/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Choice: which of two or three ways is the fastest for calls of one kind, found by trial where the time model cannot
 * tell. Models know links and hops; what a call costs besides (copies that start late, processes that share a GPU)
 * differs from machine to machine and decides when calls are short.
 *
 * Calls take the ways in turns until each has run MPATH_CHOICE_TRIALS times. Then the ranks exchange what they have
 * measured and all come to the same decision by the same integers: the time of a trial is that of its slowest rank,
 * that of a way the median of its trials. Way 0 is what is done without any: another one has to be better by
 * MPATH_CHOICE_MARGIN_PPM.
 *
 * The decision holds for MPATH_CHOICE_CALLS calls, then the trials begin anew: links change. But three trials on a busy
 * machine can be wrong. Where the fastest trial of another way was better than the median of the chosen one, it holds
 * for MPATH_CHOICE_CALLS_UNSURE calls only, and for twice as many each time that trials confirm it. In
 * tests/unit/test_adapt_choice a quarter as many calls of eight ranks take a way that is a fifth slower, by as many
 * trials.
 *
 * A decision that has left no doubt may be kept for others, who begin with it and try anew after
 * MPATH_CHOICE_CALLS_KEPT calls.
 *
 * Pure arithmetic; nothing here communicates. All ranks make the same calls in the same order.
 */
#ifndef MPATH_TUNE_CHOICE_H
#define MPATH_TUNE_CHOICE_H

#include "util/pause.h"

#include <stdint.h>

#define MPATH_CHOICE_WAYS 3   /* at most */
#define MPATH_CHOICE_TRIALS 3 /* odd; of each way */
#define MPATH_CHOICE_TIMES (MPATH_CHOICE_WAYS * MPATH_CHOICE_TRIALS)
#define MPATH_CHOICE_CALLS 1000
#define MPATH_CHOICE_CALLS_UNSURE 32
#define MPATH_CHOICE_CALLS_KEPT 256
#define MPATH_CHOICE_MARGIN_PPM 10000u

/* All zero: nothing is known. */
typedef struct mpath_choice {
    uint32_t trials;                       /* begun, of all ways */
    uint32_t calls;                        /* since the decision */
    uint32_t holds;                        /* for so many of them */
    uint8_t is_known;                      /* there is a decision */
    uint8_t way;                           /* it */
    uint8_t ways;                          /* to choose from */
    uint64_t times_ns[MPATH_CHOICE_TIMES]; /* of this rank, by trial; the ways take turns */
} mpath_choice_t;

/* Nonzero: the trials are over, exchange times_ns[] and call mpath_choice_decide(). */
int mpath_choice_is_due(const mpath_choice_t *choice);

/* `all`: times_ns[] of every rank. */
void mpath_choice_decide(mpath_choice_t *choice, const uint64_t *all, int num_ranks);

/*
 * The way for the next call, which is not due, of `ways`, two or more; what is known of another number of ways is
 * forgotten. *trial_p: what mpath_choice_note() wants with the time that the call took, on this rank; negative: it is no
 * trial.
 */
unsigned mpath_choice_next(mpath_choice_t *choice, unsigned ways, int *trial_p);

void mpath_choice_note(mpath_choice_t *choice, int trial, uint64_t took_ns);

/* There is a decision, and it is worth keeping. */
int mpath_choice_is_sure(const mpath_choice_t *choice);

/* Begins with such a decision of others; of an all zero `choice`. */
void mpath_choice_resume(mpath_choice_t *choice, unsigned ways, unsigned way);

/*
 * Kinds of calls: by the length of the static routes, and by how much less the plan is predicted to take; two to an
 * octave each. Calls of a kind share a choice: demands that differ in details only.
 */
#define MPATH_CHOICE_LENGTHS 32

#define MPATH_CHOICE_GAINS 8
#define MPATH_CHOICE_KINDS (MPATH_CHOICE_LENGTHS * MPATH_CHOICE_GAINS)

int mpath_choice_kind(uint64_t static_ns, uint64_t plan_ns);

/* Static routes of this length and longer are of the kind, or, of the first ones, of any length. */
uint64_t mpath_choice_kind_ns(int kind);

/*
 * Whether to try: the plan is predicted to save, or to cost, less than what a model overlooks. All that follows from
 * the model, the same on all ranks.
 */
#define MPATH_CHOICE_UNSURE_NS 5000000u

int mpath_choice_is_open(uint64_t static_ns, uint64_t plan_ns);

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

#define MPATH_PASSING_FIRST 1u /* calls that pass between two that the ranks agree on, see util/pause.h */
#define MPATH_PASSING_MOST 63u
#define MPATH_PASSING_ROW 16u   /* short calls before a trial, and before the size is looked at again */
#define MPATH_PASSING_TRIALS 8u /* of each way */
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
    mpath_pause_t pause; /* calls that pass, before the next one is agreed on */
    uint32_t row;        /* short calls since the last look at their size */
    uint32_t kind;       /* that is tried */
    uint8_t tries;       /* a trial is under way */
    uint8_t slot;        /* of its next call; MPATH_PASSING_TIMES: the trials are over */
    uint8_t timed;       /* slot of the call under way, plus 1; 0: nobody wants to know how long it takes */
    uint32_t times_ns[MPATH_PASSING_TIMES]; /* of this rank; 0: not measured */
    struct {
        uint16_t holds; /* calls for which the decision holds; 0: there is none */
        uint8_t passes; /* it */
    } kinds[MPATH_PASSING_KINDS];
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
