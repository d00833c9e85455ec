/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Function: which function carries a call where no model can tell. Calls on device memory of several nodes: the GPUs move data
 * in steps, each of which takes as long to start and to be noticed as some hundred kilobytes need; copies on the host,
 * made by every rank, take two; and a MPI that knows device memory may have ways of its own to a NIC. Calls on host
 * memory: see tune/doubt.h. What is open is tried (tune/trial.h), by kind of call: kinds are half octaves of bytes, and
 * of skew: how much more the busiest rank has to exchange with other nodes than the ranks of its node have on average,
 * which is what plans gain.
 */
#ifndef MPATH_TUNE_FUNCTION_H
#define MPATH_TUNE_FUNCTION_H

#include "tune/trial.h"

#define MPATH_FUNCTION_SIZES 62 /* from 1 GiB on it is one */
#define MPATH_FUNCTION_SKEWS 5  /* up to 1.25, 1.75, 2.5, 3.5 times the average, and more */
#define MPATH_FUNCTION_KINDS (MPATH_FUNCTION_SKEWS * MPATH_FUNCTION_SIZES)

typedef enum mpath_function {
    MPATH_FUNCTION_OWN,      /* mpath's, as without trials */
    MPATH_FUNCTION_BY_HOST,  /* copies on the host */
    MPATH_FUNCTION_PREVIOUS, /* the function that mpath replaces, on the memory as it is */
    MPATH_FUNCTIONS
} mpath_function_t;

int mpath_function_size(uint64_t bytes);
unsigned mpath_function_skew(uint64_t busiest, uint64_t average);

static inline int mpath_function_kind(uint64_t bytes, unsigned skew)
{
    return (int)skew * MPATH_FUNCTION_SIZES + mpath_function_size(bytes);
}

/* What a call is, and which functions there are for it besides mpath's own; the same on all ranks. */
typedef struct mpath_function_call {
    uint64_t bytes; /* that the busiest rank sends, or receives */
    unsigned skew;  /* mpath_function_skew(); 0 where it does not count */
    /* a mask, 1 << MPATH_FUNCTION_BY_HOST or PREVIOUS; calls of a kind have the same, or one more or less */
    unsigned open;
} mpath_function_call_t;

/*
 * How a blocking call goes that began at `start_ns`; `trials` are those of one operation on a communicator, all zero at
 * first. What calls of that length and less skew have found to be slower than mpath's own function is not tried. Collective when
 * trials are over, on all ranks alike; an error has been logged.
 */
mpath_status_t mpath_function_next(mpath_trials_t *trials, mpath_team_t *team, const mpath_function_call_t *call,
                                   uint64_t start_ns, mpath_function_t *function_p);
/* The same for a call that is no measure: without trials, and not collective. */
mpath_function_t mpath_function_known(const mpath_trials_t *trials, const mpath_function_call_t *call);

#endif
