/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Trial: which of two or three options is the fastest for calls of one kind, found by running them where no model can tell.
 * Models know links and hops; what a call costs besides (copies that start late, processes that share a GPU, what another
 * MPI does) differs from machine to machine. Whatever is tried is tried here: plans and static routes of GPUs
 * (coll/alltoallv_relay.c), kernels that help copy engines (node/node.c), other functions than mpath's (tune/function.h,
 * tune/doubt.h), and calls without an agreement (tune/passing.h). These say when there is a trial, and of which kind a call
 * is; the rules of comparison are two.
 *
 * Each option runs some times. Then the ranks exchange what they have measured and all come to the same decision by the same
 * integers: an option takes the median of its runs, and option 0 is what is done without trials: another one has to be better by
 * a margin. An option with a run that was not measured is not compared: option 0 stays.
 *
 * The decision holds for a number of calls, then the trial begins anew: links change. But a few runs on a busy machine can
 * be wrong. Where the fastest run of another way was better than the median of the chosen one, it holds for fewer
 * calls, and for twice as many each time that a trial confirms it. In tests/unit/test_trial a quarter as many calls of
 * eight ranks take an option that is a fifth slower, by as many runs. A decision that has left no doubt may be kept for
 * others, who begin with it and try anew a little later.
 *
 * All ranks make the same calls in the same order. Only what is said to be collective communicates.
 */
#ifndef MPATH_TUNE_TRIAL_H
#define MPATH_TUNE_TRIAL_H

#include "team/team.h"
#include "util/pause.h"

#include <stdint.h>

#define MPATH_TRIAL_OPTIONS 3 /* at most */
#define MPATH_TRIAL_TIMES 16  /* runs of all options, at most */

/* How options are compared. */
typedef struct mpath_trial_rule {
    unsigned runs; /* of each option */
    int is_mixed; /* two options, in an order in which no pattern of the application falls on one of them; else in turns */
    int by_last;           /* a run took what the rank took that came last, which waited for nobody; else the slowest */
    uint32_t margin_ppm;   /* by which an option has to be better than option 0 */
    uint32_t holds;        /* calls for which a decision holds */
    uint32_t holds_unsure; /* the same for one that noise may have made, at first */
    uint32_t holds_kept;   /* and for one of others */
} mpath_trial_rule_t;

/* Of calls that move data. */
#define MPATH_TRIAL_RUNS 3
#define MPATH_TRIAL_HOLDS 1000
#define MPATH_TRIAL_HOLDS_UNSURE 32
#define MPATH_TRIAL_HOLDS_KEPT 256

extern const mpath_trial_rule_t mpath_trial_of_calls;

/* Calls of one kind. All zero: nothing is known. */
typedef struct mpath_trial {
    mpath_pause_t holds;                  /* the decision: calls, in all, and for how many still; 0: there is none */
    uint32_t runs;                        /* begun, of all options */
    uint8_t option;                       /* decided for */
    uint8_t options;                      /* to choose from */
    uint64_t times_ns[MPATH_TRIAL_TIMES]; /* of this rank, by run; 0: not measured */
} mpath_trial_t;

/* There is a decision, which may be due for another trial. */
static inline int mpath_trial_is_known(const mpath_trial_t *trial)
{
    return trial->holds.length > 0;
}

/* There is one, and it is worth keeping. */
int mpath_trial_is_sure(const mpath_trial_t *trial, const mpath_trial_rule_t *rule);

/* Begins with such a decision of others; of an all zero `trial`. */
void mpath_trial_resume(mpath_trial_t *trial, const mpath_trial_rule_t *rule, unsigned options, unsigned option);

/* Nonzero: all options have run, mpath_trial_conclude() comes next. */
int mpath_trial_is_due(const mpath_trial_t *trial, const mpath_trial_rule_t *rule);

/*
 * The option for the next call, where no decision is due, of `options`, two or more; what is known of another number of options is
 * forgotten. *run_p: what mpath_trial_note() wants with the time that the call took, on this rank; negative: the call is no
 * trial.
 */
unsigned mpath_trial_next(mpath_trial_t *trial, const mpath_trial_rule_t *rule, unsigned options, int *run_p);

void mpath_trial_note(mpath_trial_t *trial, int run, uint64_t took_ns);

/* `all`: of every rank the first options * rule->runs of times_ns[]. */
void mpath_trial_decide(mpath_trial_t *trial, const mpath_trial_rule_t *rule, const uint64_t *all, int num_ranks);

/* Exchanges what the ranks have measured, and decides. Collective; an error has been logged. */
mpath_status_t mpath_trial_conclude(mpath_trial_t *trial, const mpath_trial_rule_t *rule, mpath_team_t *team);

/*
 * Trials of blocking calls by kind, numbered from 0 on. All zero at first but for num_kinds.
 */
typedef struct mpath_trials {
    int num_kinds;
    mpath_trial_t *kinds; /* NULL: nothing was tried yet */
    mpath_trial_t *tried; /* the call under way is a trial of it; NULL: it is none */
    int run;
    uint64_t start_ns; /* of it */
} mpath_trials_t;

/* Forgets all. */
void mpath_trials_forget(mpath_trials_t *trials);

/* What is known of a kind; NULL: nothing was tried yet. */
static inline mpath_trial_t *mpath_trials_of(const mpath_trials_t *trials, int kind)
{
    return (trials->kinds != NULL) ? &trials->kinds[kind] : NULL;
}

/* The same, with memory for it. NULL: there is none, which has been logged. */
mpath_trial_t *mpath_trials_get(mpath_trials_t *trials, int kind);

/*
 * The option of a call that began at `start_ns`. *decided_p: calls of its kind go that way from now on. Collective when a decision is due, on all ranks alike; an
 * error has been logged.
 */
mpath_status_t mpath_trials_next(mpath_trials_t *trials, mpath_team_t *team, int kind, unsigned options,
                                 uint64_t start_ns, unsigned *option_p, int *decided_p);

/* The call under way is no trial after all. */
static inline void mpath_trials_drop(mpath_trials_t *trials)
{
    trials->tried = NULL;
}

/* The call under way has ended, whatever it was: now, or after so long. */
void mpath_trials_ended(mpath_trials_t *trials);
void mpath_trials_took(mpath_trials_t *trials, uint64_t took_ns);

/*
 * Kinds of calls by the length of one option, and by how much less the other one is predicted to take; two to an octave each.
 * Demands that differ in details only are of a kind.
 */
#define MPATH_TRIAL_LENGTHS 32

#define MPATH_TRIAL_GAINS 8
#define MPATH_TRIAL_KINDS (MPATH_TRIAL_LENGTHS * MPATH_TRIAL_GAINS)

int mpath_trial_kind(uint64_t static_ns, uint64_t plan_ns);

/* Static routes of this length and longer are of the kind, or, of the first ones, of any length. */
uint64_t mpath_trial_kind_ns(int kind);

/*
 * Whether to try: the plan is predicted to save, or to cost, less than what a model overlooks. All that follows from
 * the model, the same on all ranks.
 */
#define MPATH_TRIAL_UNSURE_NS 5000000u

int mpath_trial_is_open(uint64_t static_ns, uint64_t plan_ns);

#endif
