/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Doubt: whether rails carry what is declared. On host memory between nodes mpath carries calls without asking how fast
 * the previous function would be, which takes the same links (gate.h). That does not hold where the MPI reaches the NICs
 * by another way than UCX does (libfabric or PSM2 on Slingshot, EFA and Omni-Path, where UCX is left with TCP), nor where
 * a topology file is wrong. So a call that takes far longer than its bytes need at the declared rates raises doubt, and
 * where several in a row of a kind do, on any rank, the previous function is tried (way_choice.h).
 *
 * Not once rails have failed: what MPI sends itself may take them.
 */
#ifndef MPATH_COLL_DOUBT_H
#define MPATH_COLL_DOUBT_H

#include "coll/way_choice.h"
#include "exec/team.h"

#define MPATH_DOUBT_TIMES 2u         /* a call is slow that takes so many times as long as its bytes */
#define MPATH_DOUBT_FIRST_NS 100000u /* and so much more: messages, and copies inside nodes */
#define MPATH_DOUBT_ROW 4u           /* slow calls of a kind, one after the other */

/* Of the calls of one operation on a communicator. All zero at first. */
typedef struct mpath_doubt {
    uint8_t slow[MPATH_WAY_CHOICE_SKEWS][MPATH_WAY_CHOICE_KINDS]; /* in a row; stays at MPATH_DOUBT_ROW */
    mpath_way_choice_t *choice;                                   /* NULL: nothing has been tried yet */
    uint8_t *last; /* of slow[], the last call that mpath carried; NULL: the ranks have spoken about it */
    int was_slow;  /* it, on this rank */
} mpath_doubt_t;

void mpath_doubt_release(mpath_doubt_t *doubt);

/* What this rank has to say in the agreement of the next call: a flag of mpath_call_t, or 0. */
uint32_t mpath_doubt_tell(const mpath_doubt_t *doubt);

/*
 * After it, of a call on host memory that is not over yet; `flags` are the agreed ones. Whether the call, which began at
 * `start_ns`, is the previous function's: the same on all ranks. Collective now and then. An error has been logged, and
 * breaks the team.
 */
mpath_status_t mpath_doubt_next(mpath_doubt_t *doubt, mpath_team_t *team, uint32_t flags, uint64_t bytes, unsigned skew,
                                uint64_t start_ns, int *previous_p);
/*
 * mpath has carried the call: it took so long after the agreement, and its bytes alone `links_ns`. One that others
 * progress (exec/idle.h) is no measure.
 */
void mpath_doubt_took(mpath_doubt_t *doubt, uint64_t took_ns, uint64_t links_ns);
/* A blocking call has ended, whoever carried it. */
void mpath_doubt_ended(mpath_doubt_t *doubt);

#endif
