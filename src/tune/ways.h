/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ways: by which function a call goes where no model can tell. Calls on device memory of several nodes: the GPUs move data
 * in steps, each of which takes as long to start and to be noticed as some hundred kilobytes need; copies on the host,
 * made by every rank, take two; and a MPI that knows device memory may have ways of its own to a NIC. Calls on host
 * memory: see tune/doubt.h. What is open is tried (tune/trial.h), by kind of call: kinds are half octaves of bytes, and
 * of skew: how much more the busiest rank has to exchange with other nodes than the ranks of its node have on average,
 * which is what plans gain.
 */
#ifndef MPATH_TUNE_WAYS_H
#define MPATH_TUNE_WAYS_H

#include "tune/trial.h"

#define MPATH_WAYS_SIZES 62 /* from 1 GiB on it is one */
#define MPATH_WAYS_SKEWS 5  /* up to 1.25, 1.75, 2.5, 3.5 times the average, and more */
#define MPATH_WAYS_KINDS (MPATH_WAYS_SKEWS * MPATH_WAYS_SIZES)

typedef enum mpath_way {
    MPATH_WAY_OWN,      /* mpath's, as without trials */
    MPATH_WAY_BY_HOST,  /* copies on the host */
    MPATH_WAY_PREVIOUS, /* the function that mpath replaces, on the memory as it is */
    MPATH_WAYS
} mpath_way_t;

int mpath_ways_size(uint64_t bytes);
unsigned mpath_ways_skew(uint64_t busiest, uint64_t average);

static inline int mpath_ways_kind(uint64_t bytes, unsigned skew)
{
    return (int)skew * MPATH_WAYS_SIZES + mpath_ways_size(bytes);
}

/* What a call is, and which ways it has besides mpath's own; the same on all ranks. */
typedef struct mpath_way_call {
    uint64_t bytes; /* that the busiest rank sends, or receives */
    unsigned skew;  /* mpath_ways_skew(); 0 where it does not count */
    /* a mask, 1 << MPATH_WAY_BY_HOST or PREVIOUS; calls of a kind have the same, or one more or less */
    unsigned open;
} mpath_way_call_t;

/*
 * How a blocking call goes that began at `start_ns`; `trials` are those of one operation on a communicator, all zero at
 * first. What calls of that length and less skew have found to be slower than mpath's own way is not tried. Collective when
 * trials are over, on all ranks alike; an error has been logged.
 */
mpath_status_t mpath_ways_next(mpath_trials_t *trials, mpath_team_t *team, const mpath_way_call_t *call,
                               uint64_t start_ns, mpath_way_t *way_p);
/* The same for a call that is no measure: without trials, and not collective. */
mpath_way_t mpath_ways_known(const mpath_trials_t *trials, const mpath_way_call_t *call);

#endif
