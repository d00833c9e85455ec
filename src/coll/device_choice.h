/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Device choice: which way a call on device memory of several nodes goes, where no model can tell. The GPUs move data
 * in steps, each of which takes as long to start and to be noticed as some hundred kilobytes need; copies on the host,
 * made by every rank, take two; and a MPI that knows device memory may have ways of its own to a NIC. So what is open is
 * tried, by kind of call as in adapt/choice.h: kinds are half octaves of bytes.
 */
#ifndef MPATH_COLL_DEVICE_CHOICE_H
#define MPATH_COLL_DEVICE_CHOICE_H

#include "adapt/choice.h"
#include "exec/team.h"

#define MPATH_DEVICE_CHOICE_KINDS 62 /* from 1 GiB on it is one */

typedef enum mpath_device_way {
    MPATH_DEVICE_BY_GPUS,  /* without trials */
    MPATH_DEVICE_BY_HOST,  /* copies on the host */
    MPATH_DEVICE_PREVIOUS, /* the function that mpath replaces, on the memory as it is */
    MPATH_DEVICE_WAYS
} mpath_device_way_t;

/* Of the calls of one operation on a communicator. All zero at first. */
typedef struct mpath_device_choice {
    mpath_choice_t kinds[MPATH_DEVICE_CHOICE_KINDS];
    mpath_choice_t *tried; /* the call under way is a trial of it; NULL: it is none */
    int trial;
    uint64_t start_ns;
} mpath_device_choice_t;

int mpath_device_choice_kind(uint64_t bytes);

/*
 * How a blocking call goes that began at `start_ns`. `open`: a mask of further ways, 1 << MPATH_DEVICE_BY_HOST or
 * PREVIOUS, of which calls of a kind have the same, or one more or less. Collective when trials are over, on all ranks
 * alike; an error has been logged.
 */
mpath_status_t mpath_device_choice_next(mpath_device_choice_t *choice, mpath_team_t *team, uint64_t bytes,
                                        unsigned open, uint64_t start_ns, mpath_device_way_t *way_p);
/* The call has ended, on whatever way. */
void mpath_device_choice_ended(mpath_device_choice_t *choice);

#endif
