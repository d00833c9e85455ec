/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Symmetric collectives: those whose sizes every rank knows. Allreduce, Reduce_scatter and Allgather (and their
 * variants with equal or unequal blocks) on contiguous memory: of the host, or between several nodes of GPUs on all
 * ranks (in one node: coll/allreduce_gpu.h).
 *
 *   gate       from the sizes, which MPI makes equal on all ranks, and from what the team has agreed on: a gain?
 *   agree      everybody's eligibility; small data travels inside, and then the call is done
 *   share      the engine of coll/share.h
 *
 * What one rank alone can know (the memory is not host memory, there is no room for a copy) travels in the agreement: a
 * rank that decided alone would leave the others waiting.
 *
 * Elements are combined in one order, by rank on each node, then by node, whatever carries them: the same bits on all
 * ranks, in every run, with any shares of the rails.
 */
#ifndef MPATH_COLL_SYMMETRIC_H
#define MPATH_COLL_SYMMETRIC_H

#include "coll/alltoallv.h"
#include "coll/share.h"
#include "exec/team.h"
#include "gpu/memory.h"
#include "gpu/reduce.h"

typedef enum mpath_operation {
    MPATH_OPERATION_ALLTOALLV = 1, /* coll/alltoallv.c */
    MPATH_OPERATION_ALLREDUCE,
    MPATH_OPERATION_REDUCE_SCATTER,
    MPATH_OPERATION_ALLGATHER
} mpath_operation_t;

/* What a communicator keeps between calls. */
typedef struct mpath_symmetric mpath_symmetric_t;

/* `coll`, which outlives it, gets to know the rates that calls have shown. */
mpath_status_t mpath_symmetric_create(mpath_team_t *team, mpath_coll_t *coll, mpath_symmetric_t **symmetric_p);
void mpath_symmetric_destroy(mpath_symmetric_t *symmetric);
/* In the same terms as Alltoallv's; plans are counted as 0. */
void mpath_symmetric_counters(const mpath_symmetric_t *symmetric, mpath_coll_counters_t *counters);
/* Why the last call was declined; static text. */
const char *mpath_symmetric_declined_because(const mpath_symmetric_t *symmetric);

/*
 * Nonzero: every call with this algorithm (a MPATH_ALGORITHM_) is declined, without an exchange, since all ranks share
 * a node. The same on all ranks.
 */
int mpath_symmetric_never_gains(const mpath_symmetric_t *symmetric, int algorithm);

/* A blocking call has ended, whoever carried it. */
void mpath_symmetric_ended(mpath_symmetric_t *symmetric);

/* How elements are combined. Commutative and associative as far as the caller cares. */
typedef struct mpath_combination {
    uint64_t element_bytes; /* from one element to the next */
    mpath_reduce_t reduce;
    void *argument;
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

/* This rank's buffers. send == recv: in place. */
typedef struct mpath_symmetric_buffers {
    const void *send;
    void *recv;
    const mpath_memory_t *send_memory, *recv_memory; /* NULL: host memory */
    int ineligible;                                  /* this rank cannot take part; nothing else is looked at then */
} mpath_symmetric_buffers_t;

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

#endif
