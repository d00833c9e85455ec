/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Way choice: which way a call goes where no model can tell. Calls on device memory of several nodes: the GPUs move data
 * in steps, each of which takes as long to start and to be noticed as some hundred kilobytes need; copies on the host,
 * made by every rank, take two; and a MPI that knows device memory may have ways of its own to a NIC. Calls on host
 * memory: see tune/doubt.h. What is open is tried, by kind of call as in tune/choice.h: kinds are half octaves of bytes, and
 * of skew: how much more the busiest rank has to exchange with other nodes than the ranks of its node have on average,
 * which is what plans gain.
 */
#ifndef MPATH_TUNE_WAY_CHOICE_H
#define MPATH_TUNE_WAY_CHOICE_H

#include "tune/choice.h"
#include "team/team.h"

#define MPATH_WAY_CHOICE_KINDS 62 /* from 1 GiB on it is one */
#define MPATH_WAY_CHOICE_SKEWS 5  /* up to 1.25, 1.75, 2.5, 3.5 times the average, and more */

typedef enum mpath_way {
    MPATH_WAY_OWN,      /* mpath's, as without trials */
    MPATH_WAY_BY_HOST,  /* copies on the host */
    MPATH_WAY_PREVIOUS, /* the function that mpath replaces, on the memory as it is */
    MPATH_WAYS
} mpath_way_t;

/* Of the calls of one operation on a communicator. All zero at first. */
typedef struct mpath_way_choice {
    mpath_choice_t kinds[MPATH_WAY_CHOICE_SKEWS][MPATH_WAY_CHOICE_KINDS];
    mpath_choice_t *tried; /* the call under way is a trial of it; NULL: it is none */
    int trial;
    uint64_t start_ns;
} mpath_way_choice_t;

int mpath_way_choice_kind(uint64_t bytes);
unsigned mpath_way_choice_skew(uint64_t busiest, uint64_t average);

/* What a call is, and which ways it has besides mpath's own; the same on all ranks. */
typedef struct mpath_way_call {
    uint64_t bytes; /* that the busiest rank sends, or receives */
    unsigned skew;  /* mpath_way_choice_skew(); 0 where it does not count */
    /* a mask, 1 << MPATH_WAY_BY_HOST or PREVIOUS; calls of a kind have the same, or one more or less */
    unsigned open;
} mpath_way_call_t;

/*
 * How a blocking call goes that began at `start_ns`. What calls of that length and less skew have found to be slower
 * than mpath's own way is not tried. Collective when trials are over, on all ranks alike; an error has been logged.
 */
mpath_status_t mpath_way_choice_next(mpath_way_choice_t *choice, mpath_team_t *team, const mpath_way_call_t *call,
                                     uint64_t start_ns, mpath_way_t *way_p);
/* The same for a call that is no measure: without trials, and not collective. */
mpath_way_t mpath_way_choice_known(const mpath_way_choice_t *choice, const mpath_way_call_t *call);
/* The call has ended, on whatever way. */
void mpath_way_choice_ended(mpath_way_choice_t *choice);

#endif
