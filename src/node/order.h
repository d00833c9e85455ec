/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The order in which the GPUs of a node copy to each other with their copy engines.
 *
 * An engine does one copy at a time, and copies into one GPU share its port. What ends late is a hot receiver without a
 * sender, or a sender whose copies have met those of others again and again. So the copies are not timed against each
 * other: list schedules (Graham, SIAM J. Appl. Math. 17(2), 1969) decide who sends what when. A sender that is free takes
 * the receiver that has most to come, unless as many as may be are at it; then one that nobody is at. The machine is a
 * fluid model: senders to one receiver share its port, and a fragment begins some microseconds after the one before. Several
 * rules are tried, the last ones for irregular matrices, with messages cut into parts, and the shortest is kept. By the
 * model that is the bound for hot receivers and Zipf's matrices of 64 MiB and more on 8 GPUs, and 1.05 times it, 1.16 at
 * most, where every pair draws its bytes. On 8 H200 the model's times of skewed matrices are within 2 % of those of the
 * copies, at 97 to 100 % of the port's rate; cut messages were not measured. Cuts into permutations, of which every GPU
 * has one copy in and one out at a time, reach 73 to 99 % there (doc/benchmarks/2026-11-22-h200-8.md).
 *
 * Deterministic, in integers: every rank computes the same fragments of all ranks from the same demand. Thread-safety: none.
 */
#ifndef MPATH_NODE_ORDER_H
#define MPATH_NODE_ORDER_H

#include "util/status.h"

#include <stdint.h>

#define MPATH_ORDER_MAX_RANKS 64

typedef struct mpath_order mpath_order_t;

/* bytes [offset, offset + bytes) of the message to `destination`. */
typedef struct mpath_order_fragment {
    int32_t destination;
    uint64_t offset, bytes;
} mpath_order_fragment_t;

typedef struct mpath_order_rates {
    uint64_t port_bps;    /* of a GPU, in each direction; not 0 */
    uint64_t fragment_ns; /* from the end of a fragment to the first bytes of the next */
} mpath_order_rates_t;

/* Up to MPATH_ORDER_MAX_RANKS ranks. All memory is allocated here. */
mpath_status_t mpath_order_create(int num_ranks, mpath_order_t **order_p);
void mpath_order_destroy(mpath_order_t *order);

/* demand[source * num_ranks + destination] in bytes; the diagonal is ignored. */
void mpath_order_compute(mpath_order_t *order, const uint64_t *demand, const mpath_order_rates_t *rates);

/* The fragments of a rank in the order in which it sends them; valid until the next mpath_order_compute(). */
const mpath_order_fragment_t *mpath_order_fragments(const mpath_order_t *order, int source, uint32_t *count_p);

/* The most that a rank can have. */
uint32_t mpath_order_max_fragments(const mpath_order_t *order);

/* What the model says that all of it takes, and what the busiest port at least takes. */
uint64_t mpath_order_time_ns(const mpath_order_t *order);
uint64_t mpath_order_bound_ns(const mpath_order_t *order);

#endif
