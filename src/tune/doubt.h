/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Doubt: whether rails carry what is declared. On host memory between nodes mpath carries calls without asking how fast
 * the previous function would be, which takes the same links (plan/gate.h). That does not hold where the MPI reaches the NICs
 * by another way than UCX does (libfabric or PSM2 on Slingshot, EFA and Omni-Path, where UCX is left with TCP), nor where
 * a topology file is wrong. So a call that takes far longer than its bytes need at the declared rates raises doubt, and
 * where several in a row of a kind do, on any rank, the previous function is tried (tune/function.h). Where the previous function
 * would load the rails alike, nothing but its being slower speaks for mpath, and a few percent are enough.
 *
 * A rail that has become slow makes calls slow, too, until shares follow it (tune/nic_rates.h), and those go first: where
 * the ranks exchange what rails carry, they do so a few calls after doubt has come up, and the previous function is tried
 * when nothing has changed in such a window of calls, or something has in MPATH_DOUBT_WINDOWS of them. As many calls in a
 * row that are not slow as have raised it end the doubt, unless trials have found the previous function to be faster.
 *
 * Calls that others progress (team/wait.h) say nothing: ranks compute meanwhile.
 *
 * Where trials have shown the previous function to be faster, calls of which all ranks know the kind without asking go to
 * it without an agreement, too: after one that was left so 1, then 3, 7 and in the end 63, before the ranks agree on one
 * again, in which they hear what has changed. They count as calls for which the trial's decision holds. Not where some
 * process uses GPUs.
 *
 * Not once rails have failed: what MPI sends itself may take them.
 */
#ifndef MPATH_TUNE_DOUBT_H
#define MPATH_TUNE_DOUBT_H

#include "tune/function.h"
#include "team/team.h"
#include "util/pause.h"

#define MPATH_DOUBT_TIMES 2u          /* a call is slow that takes so many times as long as its bytes */
#define MPATH_DOUBT_EVEN_PERCENT 105u /* the same in percent, where there is nothing to gain */
#define MPATH_DOUBT_FIRST_NS 100000u  /* and so much more: messages, and copies inside nodes */
#define MPATH_DOUBT_ROW 4u            /* slow calls of a kind, one after the other */
#define MPATH_DOUBT_WINDOW_CALLS 4u   /* after so many the ranks exchange what rails carry */
#define MPATH_DOUBT_WINDOWS 4u        /* such exchanges, at most */
#define MPATH_DOUBT_PASS_FIRST 1u     /* calls without an agreement between two with one, see util/pause.h */
#define MPATH_DOUBT_PASS_MOST 63u

/* What the ranks have said of the calls of a kind that mpath carried. */
typedef struct mpath_doubt_kind {
    uint8_t slow;    /* in a row, up to MPATH_DOUBT_ROW: the kind is in doubt then */
    uint8_t fine;    /* in a row since, that were not slow */
    uint8_t windows; /* that shares may still follow the rails in; 0: the previous function is tried */
    uint8_t calls;   /* of the window */
} mpath_doubt_kind_t;

/* Of the calls of one operation on a communicator. All zero at first. */
typedef struct mpath_doubt {
    mpath_doubt_kind_t kinds[MPATH_FUNCTION_KINDS];
    mpath_trials_t trials;
    mpath_doubt_kind_t *last; /* the last call that mpath carried; NULL: nothing is to be said of it */
    int is_even;              /* it */
    int was_slow;             /* it, on this rank */
    mpath_pause_t passes;     /* calls that need no agreement, until the next that does */
} mpath_doubt_t;

/* A call, the same on all ranks. */
typedef struct mpath_doubt_call {
    uint64_t bytes;
    unsigned skew; /* mpath_function_skew() */
    int is_even;   /* the previous function loads the rails as mpath does */
    int adapts;    /* shares follow what such calls show */
} mpath_doubt_call_t;

void mpath_doubt_release(mpath_doubt_t *doubt);

/*
 * Before the agreement of a call on host memory, whose bytes and skew all ranks know without it. Nonzero: it is the previous
 * function's, and nobody agrees on it; asked once for each such call. The same on all ranks, whether others progress the
 * call or not.
 */
int mpath_doubt_passes(mpath_doubt_t *doubt, const mpath_team_t *team, uint64_t bytes, unsigned skew);

/* What this rank has to say in the agreement of the next call: a flag of mpath_call_t, or 0. */
uint32_t mpath_doubt_call_flags(const mpath_doubt_t *doubt);

/*
 * After it, of a call on host memory that is not over yet; `flags` are the agreed ones. Whether the call, which began at
 * `start_ns`, is the previous function's: the same on all ranks. Collective now and then. An error has been logged, and
 * breaks the team.
 */
mpath_status_t mpath_doubt_next(mpath_doubt_t *doubt, mpath_team_t *team, uint32_t flags,
                                const mpath_doubt_call_t *call, uint64_t start_ns, int *previous_p);
/*
 * Of a call of mpath's that shows what rails carry: its number in the window that doubt has begun, at whose end, with
 * number MPATH_DOUBT_WINDOW_CALLS, the ranks exchange what they have seen; 0: in none. The same on all ranks.
 */
unsigned mpath_doubt_window_call(mpath_doubt_t *doubt);
/* They have done so with this call, and shares have changed or not. */
void mpath_doubt_adapted(mpath_doubt_t *doubt, int changed);
/* mpath has carried the call: it took so long after the agreement, and its bytes alone `links_ns`. */
void mpath_doubt_took(mpath_doubt_t *doubt, uint64_t took_ns, uint64_t links_ns);
/* A blocking call has ended, whoever carried it. */
void mpath_doubt_ended(mpath_doubt_t *doubt);

#endif
