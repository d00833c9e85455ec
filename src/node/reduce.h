/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduce, Reduce_scatter and Allgather on device memory inside a node.
 *
 * A reduction is cut into one part for each rank. Once all ranks have agreed that their data is ready, each rank's GPU
 * reads its part of every send buffer, combines it in the order of the ranks and writes the result to every receive
 * buffer, in one kernel. No GPU waits for another, a port carries 2 (n - 1) / n of the vector in either direction, and
 * since every element is combined in one place by one thread all ranks get the same bits, in place as well. Short
 * Allreduces and large ones (node/reduce.c) have kernels that wait for each other.
 *
 * An Allgather is an Alltoallv that sends the same block to everybody.
 *
 * Ranks may call with any memory; what is not served here is declined by all ranks alike.
 */
#ifndef MPATH_NODE_REDUCE_H
#define MPATH_NODE_REDUCE_H

#include "device/kernels/reduce.h"
#include "node/node.h"
#include "team/call.h"
#include "team/team.h"

/* What a communicator keeps between calls. */
typedef struct mpath_symmetric_gpu mpath_symmetric_gpu_t;

/*
 * Local and cheap. MPATH_DECLINED: never of use here (several nodes, too many ranks, a parameter); the same on all
 * ranks.
 */
mpath_status_t mpath_symmetric_gpu_create(mpath_team_t *team, mpath_symmetric_gpu_t **gpu_p);
void mpath_symmetric_gpu_destroy(mpath_symmetric_gpu_t *gpu);

/* In the same terms as Alltoallv's; nothing is planned, and what is declined is not counted. */
void mpath_symmetric_gpu_counters(const mpath_symmetric_gpu_t *gpu, mpath_coll_counters_t *counters);

/*
 * Collective. MPATH_OK: the result is in place, for any stream, and nobody reads this rank's send buffer any more.
 * MPATH_DECLINED, on all ranks alike: nothing has changed, except that blocks of an Allgather may be in place. Other
 * results break the team. `how` is the same on all ranks and fits (mpath_reduce_fits()).
 */
mpath_status_t mpath_allreduce_gpu(mpath_symmetric_gpu_t *gpu, const mpath_symmetric_buffers_t *buffers,
                                   uint64_t elements, const mpath_reduce_how_t *how);

/* As mpath_reduce_scatter(). In place the result is written through memory of the GPU, at most gpu_memory_bytes. */
mpath_status_t mpath_reduce_scatter_gpu(mpath_symmetric_gpu_t *gpu, const mpath_symmetric_buffers_t *buffers,
                                        const uint64_t *elements, const mpath_reduce_how_t *how);

/* As mpath_allgather(); with send NULL this rank's block is in its place, and send_memory classifies it there. */
mpath_status_t mpath_allgather_gpu(mpath_symmetric_gpu_t *gpu, const mpath_symmetric_buffers_t *buffers,
                                   const uint64_t *bytes, const uint64_t *offsets);

#endif
