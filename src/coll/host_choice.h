/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host choice: whether a short Alltoallv on device memory of several nodes goes over relays, or by way of copies on the
 * host that every rank makes. Relays carry more at a time, but a chunk's way has up to three copies by engines, each of
 * which takes as long to start and to be noticed as some hundred kilobytes need; what that costs differs from machine
 * to machine. So both are tried, by kind of call as in adapt/choice.h: kinds are half octaves of the bytes that the
 * busiest rank sends or receives.
 */
#ifndef MPATH_COLL_HOST_CHOICE_H
#define MPATH_COLL_HOST_CHOICE_H

#include "adapt/choice.h"
#include "exec/team.h"

/* Longer calls go over relays. */
#define MPATH_HOST_CHOICE_MOST_BYTES (UINT64_C(4) << 20)
#define MPATH_HOST_CHOICE_KINDS 46 /* two to an octave */

/* Of a communicator. All zero at first. */
typedef struct mpath_host_choice {
    mpath_choice_t kinds[MPATH_HOST_CHOICE_KINDS];
    mpath_choice_t *tried; /* the call under way is a trial of it; NULL: it is none */
    int trial;
    uint64_t start_ns;
} mpath_host_choice_t;

/* The kind of a call whose busiest rank has so many bytes; -1: it is not open to choice. */
int mpath_host_choice_kind(uint64_t bytes);

/*
 * Of a blocking call with demand[source * ranks + destination], which began at `start_ns`: *by_host_p says how it goes.
 * Collective when trials are over, on all ranks alike.
 */
mpath_status_t mpath_host_choice_next(mpath_host_choice_t *choice, mpath_team_t *team, const uint64_t *demand,
                                      uint64_t start_ns, int *by_host_p);
/* The call has ended, on whatever way. */
void mpath_host_choice_ended(mpath_host_choice_t *choice);

#endif
