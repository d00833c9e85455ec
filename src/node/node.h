/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Alltoallv on device memory inside a node: the ranks' GPUs write to each other (lane "peer"), and what they cannot
 * reach goes through shared host memory (lane "staged"). Any rank may have any kind of memory on either side.
 *
 * Every decision follows from what all ranks see in the board and the agreement, so all come to the same; see
 * doc/gpu.md for what it means to users.
 */
#ifndef MPATH_NODE_NODE_H
#define MPATH_NODE_NODE_H

#include "node/peer.h"
#include "team/call.h"
#include "team/agree.h"
#include "team/team.h"

/* What a communicator keeps between calls on device memory. */
typedef struct mpath_gpu_coll mpath_gpu_coll_t;

/* Local and cheap: shared memory is made by the first call with device memory. */
mpath_status_t mpath_gpu_coll_create(mpath_team_t *team, mpath_gpu_coll_t **gpu_p);
void mpath_gpu_coll_destroy(mpath_gpu_coll_t *gpu);

/* Whether calls with device memory are served here. The same on all ranks. */
int mpath_gpu_coll_usable(const mpath_gpu_coll_t *gpu);

/* Short messages may be sent before the agreement: once, after mpath_gpu_coll_create(). */
mpath_status_t mpath_gpu_exchange_create(mpath_gpu_coll_t *gpu);
/*
 * Whether a kernel that is started before the agreement is predicted to be faster than one after it, for a rank that sends
 * and receives so many bytes. Pure.
 */
int mpath_gpu_exchange_pays(const mpath_peer_rates_t *rates, int ranks, uint64_t sent, uint64_t received);

/*
 * Before every agreement of an alltoallv, with and without device memory: tells the others of this rank's buffers.
 * Returns how many nanoseconds of it went into starting a kernel for short messages.
 */
uint64_t mpath_gpu_coll_publish(mpath_gpu_coll_t *gpu, const mpath_call_t *call);

/*
 * After every agreement, with its status and flags: *done_p: short messages have been exchanged meanwhile, and the call
 * is done on all ranks. Returns `agreed`, or an error that breaks the team.
 */
mpath_status_t mpath_gpu_coll_exchanged(mpath_gpu_coll_t *gpu, const mpath_call_t *call, mpath_status_t agreed,
                                        uint32_t flags, int *done_p);

/*
 * After an agreement with MPATH_CALL_DEVICE and without MPATH_CALL_INELIGIBLE: moves everything. On MPATH_OK all data of
 * this rank is in place, for any stream of any device, and nobody reads its send buffer any more. MPATH_DECLINED, on all
 * ranks alike: device memory cannot be shared here, from then on, or some rank cannot have what this call needs, or
 * ranks that take turns on a GPU get further with copies on the host in this call; nothing was moved. Any other result
 * breaks the team.
 */
mpath_status_t mpath_gpu_coll_move(mpath_gpu_coll_t *gpu, const mpath_call_t *call, const mpath_agreed_t *agreed);

/* After MPATH_DECLINED of a call with device memory. */
const char *mpath_gpu_coll_declined_because(const mpath_gpu_coll_t *gpu);
/* Whether the last call was declined since some rank cannot have slots in host memory. The same on all ranks. */
int mpath_gpu_coll_lacks_slots(const mpath_gpu_coll_t *gpu);

void mpath_gpu_coll_counters(const mpath_gpu_coll_t *gpu, mpath_gpu_counters_t *counters);

#endif
