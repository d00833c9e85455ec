/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lane "peer": a GPU writes straight into the memory of another GPU of its node, at the place where the bytes belong. The
 * sender does everything (push): the target is an imported allocation, see gpu/import.h. Two ways:
 *
 *   engine  copy engines, one piece after the other on one stream. Fastest for large pieces, takes no multiprocessor. A
 *           piece may wait for a word (its receiver is free now) and write one when it is done.
 *   kernel  one launch for all pieces, divided over its CTAs by bytes. Fastest for small ones.
 *
 * Completion is a word of host memory that all processes of the node see, written after the bytes: a number that only
 * grows, so nothing is ever reset.
 */
#ifndef MPATH_LANE_PEER_H
#define MPATH_LANE_PEER_H

#include "gpu/launch.h"
#include "gpu/stream.h"

/* A word as devices address it; address 0: none. */
typedef struct mpath_peer_word {
    mpath_cu_ptr_t address;
    uint64_t value;
} mpath_peer_word_t;

/* A piece for a copy engine. */
typedef struct mpath_peer_put {
    mpath_cu_ptr_t target, source;
    uint64_t bytes;
    mpath_peer_word_t gate; /* starts when the word has reached the value */
    mpath_peer_word_t after;
} mpath_peer_put_t;

/*
 * Enqueues the pieces in order and then writes `done`. With a stream that cannot handle words (mpath_stream_has_values())
 * none may be asked for. Errors are logged.
 */
mpath_status_t mpath_peer_put_engine(mpath_stream_t *stream, const mpath_peer_put_t *puts, unsigned count,
                                     mpath_peer_word_t done);

/* Enqueues one launch (several when the pieces are very many) that writes `done` at its end. Errors are logged. */
mpath_status_t mpath_peer_put_kernel(mpath_stream_t *stream, const mpath_kernel_piece_t *pieces, unsigned count,
                                     mpath_peer_word_t done);

/*
 * What both ways cost, from measurements on Hopper GPUs behind an NVSwitch (doc/gpu.md): nanoseconds until `port_bytes`
 * bytes have passed the busiest port.
 */
uint64_t mpath_peer_kernel_ns(uint64_t port_bytes);
uint64_t mpath_peer_engine_ns(uint64_t port_bytes, unsigned pieces);

#endif
