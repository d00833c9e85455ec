/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The order in which the GPUs of a node copy to each other with their copy engines.
 *
 * Engines are fastest when a GPU sends to one and receives from one at a time, and a hot receiver is done soonest when
 * it is never without a sender. That is the preemptive open shop: ranks are both machines and jobs, and the optimum is
 * the largest row or column sum (Gonzalez and Sahni, J. ACM 23(4), 1976). The matrix is cut into units, padded to equal
 * row and column sums, and taken apart into permutations (Birkhoff; von Neumann), the longest first; a sender's steps
 * in a row to the same receiver become one piece.
 *
 * Each piece names the one that its receiver gets before it. Who waits for that keeps every port at one copy at a time
 * however late some ranks are; steps only ever wait for earlier ones, so such waits end. Where few GPUs are busy both
 * ways it is better not to wait: senders that run ahead cost less than a wait between any two copies.
 *
 * Deterministic: every rank computes the same pieces of all ranks from the same demand. Thread-safety: none.
 */
#ifndef MPATH_COLL_ALLTOALLV_ORDER_H
#define MPATH_COLL_ALLTOALLV_ORDER_H

#include "util/status.h"

#include <stdint.h>

#define MPATH_ORDER_MAX_RANKS 64

typedef struct mpath_order mpath_order_t;

/* bytes [offset, offset + bytes) of the message to `destination`. */
typedef struct mpath_order_piece {
    int32_t destination;
    uint32_t step; /* the permutation in which it starts */
    uint64_t offset, bytes;
    int32_t after_rank;    /* whose piece the destination gets before this one; -1: it is the first */
    uint32_t after_pieces; /* of that rank are done by then: all up to that one */
} mpath_order_piece_t;

/* Up to MPATH_ORDER_MAX_RANKS ranks. All memory is allocated here. */
mpath_status_t mpath_order_create(int num_ranks, mpath_order_t **order_p);
void mpath_order_destroy(mpath_order_t *order);

/*
 * demand[source * num_ranks + destination] in bytes; the diagonal is ignored. No piece is smaller than `least_bytes`,
 * the last one of a pair excepted.
 */
void mpath_order_compute(mpath_order_t *order, const uint64_t *demand, uint64_t least_bytes);

/* The pieces of a rank in the order in which it sends them; valid until the next mpath_order_compute(). */
const mpath_order_piece_t *mpath_order_pieces(const mpath_order_t *order, int source, uint32_t *count_p);

/* The largest row or column sum in bytes: what the busiest port has to carry. */
uint64_t mpath_order_bound_bytes(const mpath_order_t *order);
uint32_t mpath_order_num_steps(const mpath_order_t *order);
/* The most pieces of one rank. */
uint32_t mpath_order_max_pieces(const mpath_order_t *order);

#endif
