/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Symmetric collectives: those whose sizes every rank knows. Allreduce, Reduce_scatter and Allgather (and their
 * variants with equal or unequal blocks) on contiguous memory: of the host, or of GPUs on all ranks.
 *
 *   gate       from the sizes, which MPI makes equal on all ranks, and from what the team has agreed on: a gain?
 *   agree      everybody's eligibility; small data travels inside, and then the call is done
 *   share      the engine of pipeline/pipeline.h
 *   node       on the GPUs of one node: node/reduce.h, which agrees by itself
 *
 * What one rank alone can know (the memory is not host memory, there is no room for a copy) travels in the agreement: a
 * rank that decided alone would leave the others waiting.
 *
 * Elements are combined in one order, by rank on each node, then by node, whatever carries them: the same bits on all
 * ranks, in every run, with any shares of the rails.
 */
#ifndef MPATH_COLL_REDUCTION_H
#define MPATH_COLL_REDUCTION_H

#include "coll/algorithm.h"
#include "coll/alltoallv.h"
#include "pipeline/pipeline.h"
#include "team/call.h"
#include "team/team.h"
#include "device/memory.h"
#include "device/kernels/reduce.h"

/* What a communicator keeps between calls. */
typedef struct mpath_symmetric mpath_symmetric_t;

/* `coll`, which outlives it, gets to know the rates that calls have shown. */
mpath_status_t mpath_symmetric_create(mpath_team_t *team, mpath_coll_t *coll, mpath_symmetric_t **symmetric_p);
void mpath_symmetric_destroy(mpath_symmetric_t *symmetric);
/* In the same terms as Alltoallv's, calls on GPUs of one node included; plans are counted as 0. */
void mpath_symmetric_counters(const mpath_symmetric_t *symmetric, mpath_coll_counters_t *counters);
/* Why the last call was declined; static text. */
const char *mpath_symmetric_declined_because(const mpath_symmetric_t *symmetric);

/*
 * Nonzero: every call of this collective for which no parameter forces anything is declined, without an exchange, since
 * all ranks share a node. The same on all ranks.
 */
int mpath_symmetric_never_gains(const mpath_symmetric_t *symmetric);

/* A blocking call has ended, whoever carried it. */
void mpath_symmetric_ended(mpath_symmetric_t *symmetric);

/* How elements are combined. Commutative and associative as far as the caller cares. */
typedef struct mpath_combination {
    uint64_t element_bytes; /* from one element to the next */
    mpath_reduce_t reduce;
    void *argument;
    uint32_t alike; /* a number of the operation and the type, below 2^24: ranks that differ get MPATH_ERR_PARAM */
    void (*alike_text)(uint32_t operation, char *text, size_t size); /* mpath_operation_t + alike * 256, in words */
} mpath_combination_t;

/*
 * All are collective; with MPATH_DECLINED on one rank it is MPATH_DECLINED on all and the receive buffer is as before,
 * except that small blocks of an Allgather may be in place. `ineligible`: this rank cannot take part; buffers may be
 * NULL then. With send == recv an Allreduce or a Reduce_scatter is in place.
 */
mpath_status_t mpath_allreduce(mpath_symmetric_t *symmetric, const void *send, void *recv, uint64_t elements,
                               const mpath_combination_t *combination, int ineligible);

/* `elements` by rank; the blocks lie one after the other in `send`, this rank's result at the start of `recv`. */
mpath_status_t mpath_reduce_scatter(mpath_symmetric_t *symmetric, const void *send, void *recv,
                                    const uint64_t *elements, const mpath_combination_t *combination, int ineligible);

/* `bytes` and `offsets` (in `recv`) by rank. `send` NULL: this rank's block is in its place in `recv`. */
mpath_status_t mpath_allgather(mpath_symmetric_t *symmetric, const void *send, void *recv, const uint64_t *bytes,
                               const uint64_t *offsets, int ineligible);

/*
 * The same for buffers in whatever memory, on communicators on which every rank may have some of GPUs; all ranks call
 * these then. MPATH_DECLINED also where some ranks have device memory and not all can use it from there: the call may
 * be made again, by all ranks with data on the host, by the functions above. `how` combines as `combination` does. In an
 * Allgather the memory of an empty block is NULL; with send NULL, send_memory is that of the block in its place.
 */
mpath_status_t mpath_allreduce_anywhere(mpath_symmetric_t *symmetric, const mpath_symmetric_buffers_t *buffers,
                                        uint64_t elements, const mpath_combination_t *combination,
                                        const mpath_reduce_how_t *how);
mpath_status_t mpath_reduce_scatter_anywhere(mpath_symmetric_t *symmetric, const mpath_symmetric_buffers_t *buffers,
                                             const uint64_t *elements, const mpath_combination_t *combination,
                                             const mpath_reduce_how_t *how);
mpath_status_t mpath_allgather_anywhere(mpath_symmetric_t *symmetric, const mpath_symmetric_buffers_t *buffers,
                                        const uint64_t *bytes, const uint64_t *offsets);
/* Of an algorithm of these: GPUs of one node are not concerned by it. */
int mpath_reduction_is_for_nodes(const mpath_algorithm_t *algorithm);
/* What the pipeline does of a collective: MPATH_SHARE_... */
unsigned mpath_reduction_flags(mpath_operation_t operation);

#endif
