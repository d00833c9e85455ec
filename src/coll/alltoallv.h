/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Alltoallv (and Alltoall as its equal case) on contiguous memory, in bytes: agree, plan (cached), gate, move. Device
 * memory goes by node/node.h inside a node of GPUs, by coll/alltoallv_relay.h where a plan can help, or by copies.
 */
#ifndef MPATH_COLL_ALLTOALLV_H
#define MPATH_COLL_ALLTOALLV_H

#include "node/node.h"
#include "coll/alltoallv_relay.h"
#include "team/agree.h"
#include "mover/mover.h"
#include "team/call.h"
#include "team/team.h"

/* What a communicator keeps between calls: the plan cache and counters. */
typedef struct mpath_coll mpath_coll_t;

mpath_status_t mpath_coll_create(mpath_team_t *team, mpath_coll_t **coll_p);
void mpath_coll_destroy(mpath_coll_t *coll);
/*
 * Calls of others have shown that the rails of these numbers carry bps[i] instead of nominal_bps[i]: plans count on it,
 * and other communicators of this process shall know. The same on all ranks, between the same calls; after an error the
 * caller breaks the team.
 */
mpath_status_t mpath_coll_rates_learned(mpath_coll_t *coll, int num_rails, const int *numbers,
                                        const uint64_t *nominal_bps, const uint64_t *bps);
/*
 * Flags for the agreement of any call: MPATH_CALL_RATES: this process knows rates of other communicators, or of the file.
 * With what was agreed on, on all ranks: takes them; collective where the flag is set; an error breaks the team.
 */
uint32_t mpath_coll_rates_call_flags(mpath_coll_t *coll);
mpath_status_t mpath_coll_rates_take(mpath_coll_t *coll, uint32_t flags);
/* What plans count on for the rail of this number, in terms of that nominal rate. The same on all ranks. */
uint64_t mpath_coll_rates_of(const mpath_coll_t *coll, int number, uint64_t nominal_bps);
/* Nonzero: some communicator of the job has learned it, or it is of the file. The same on all ranks. */
int mpath_coll_rates_are_known(const mpath_coll_t *coll);
void mpath_coll_counters(const mpath_coll_t *coll, mpath_coll_counters_t *counters);

/*
 * Collective. `call` holds this rank's counts, offsets and buffers in bytes; call->operation is set here. With
 * MPATH_DECLINED on one rank it is MPATH_DECLINED on all, and the caller runs the previous function: small pairs may
 * have been written to the receive buffer, but not in place. A rank whose data mpath cannot carry passes
 * MPATH_CALL_INELIGIBLE (then buffers may be NULL, sizes are ignored).
 * Where device memory cannot be moved as it is, or copies are faster, all ranks have their call->to_host() called, and what
 * is said here is of the call as that describes it.
 * MPATH_CALL_IN_PLACE: the caller hands a copy as send buffer (data is overwritten before it is forwarded otherwise);
 * sizes of both sides are the same for each rank.
 */
mpath_status_t mpath_alltoallv(mpath_coll_t *coll, mpath_call_t *call);

/*
 * Nonzero: this call is left to the previous function without asking the others, on all ranks alike: a parameter says
 * so, or what calls before it have shown (tune/passing.h, and tune/doubt.h, which needs to know of an MPI_Alltoall that each
 * pair of ranks exchanges so many bytes; 0: only the ranks together know what they exchange). To be asked before each
 * call, in their order; once where it is nonzero. mpath_coll_ended() says that a call has ended that was carried or
 * passed right after the question; not to be called where the application has done other things meanwhile.
 */
int mpath_coll_passes(mpath_coll_t *coll, uint64_t equal_bytes);
void mpath_coll_ended(mpath_coll_t *coll);

/*
 * Whether a rank may pass buffers in device memory (call->send_memory, call->recv_memory) to mpath_alltoallv() here.
 * The same on all ranks. Where not, only memory that the host can read may be passed, managed memory included.
 */
int mpath_coll_takes_device(const mpath_coll_t *coll);

/* Why the last call was declined, for verbose output; static text, "" when it was not. */
const char *mpath_coll_declined_because(const mpath_coll_t *coll);

#endif
