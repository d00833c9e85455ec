/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What each algorithm of an Allreduce on device memory of one node takes, from the rates that all ranks have alike: pure
 * arithmetic in integers. The figures are those of two to eight H200 (doc/benchmarks); on other machines what bytes take
 * is stretched as the rate of kernels is, and what does not depend on bytes as their latency is. So of a machine with
 * half the rate, or twice the latency, every boundary between two algorithms is at half or at twice the bytes.
 *
 * The order in which elements are combined, and with it the bits, must not depend on what has been measured on the day:
 * mpath_reduce_in_ring() knows sizes only.
 */
#ifndef MPATH_NODE_REDUCE_PREDICT_H
#define MPATH_NODE_REDUCE_PREDICT_H

#include "node/peer.h"
#include "util/param.h"

/* Vectors that are sent before the agreement, whole and in parts, are no longer, so that slots for them stay small. */
#define MPATH_REDUCE_WHOLE_MAX_BYTES (UINT64_C(256) << 10)
#define MPATH_REDUCE_PARTS_MAX_BYTES (UINT64_C(3) << 20)

/*
 * Whether vectors of kinds for which there are such kernels are combined in the order of a ring: longer ones than are
 * ever sent before the agreement, of more than two ranks.
 */
int mpath_reduce_in_ring(unsigned ranks, uint64_t bytes);

/* Nanoseconds of a call; UINT64_MAX: it does not take vectors of that size. `algorithm` is not "auto". */
uint64_t mpath_reduce_predict_ns(const mpath_peer_rates_t *rates, mpath_gpu_reduce_t algorithm, unsigned ranks,
                                 uint64_t bytes);

/* A set of algorithms. */
#define MPATH_REDUCE_BIT(_algorithm) (1u << (_algorithm))

/* The fastest of `algorithms`; DIRECT, which may always be, is one of them. */
mpath_gpu_reduce_t mpath_reduce_fastest(const mpath_peer_rates_t *rates, unsigned algorithms, unsigned ranks,
                                        uint64_t bytes);

/* The longest vector, up to `limit` bytes and in units of 16, for which `algorithm` is not slower than `other`. */
uint64_t mpath_reduce_most_bytes(const mpath_peer_rates_t *rates, mpath_gpu_reduce_t algorithm,
                                 mpath_gpu_reduce_t other, unsigned ranks, uint64_t limit);

/* What bytes take from a GPU to the next one of a ring. */
uint64_t mpath_reduce_ring_ns(const mpath_peer_rates_t *rates, uint64_t bytes);

/* From how many bytes through a port of that rate on a part of them is worth sending through the host. */
uint64_t mpath_reduce_host_least_bytes(uint64_t port_bps);

#endif
