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
#ifndef MPATH_ADAPT_CHOICE_H
#define MPATH_ADAPT_CHOICE_H

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

#endif
