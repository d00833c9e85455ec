/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lane "staged": between the ranks of a node through shared, pinned host memory. For device memory that other processes
 * cannot open, for pairs of which one side is in host memory, and beside the lane "peer" to take load off a GPU's port.
 *
 * Every rank owns a few slots. It fills a free one with the next chunk for some receiver (copy engine from device
 * memory, memcpy from host memory) and marks it full; the receiver empties it to where the bytes belong and marks it
 * free. Receivers always have room, so slots always become free again: bounded memory cannot deadlock.
 *
 * Memory layout of the region, shared and zeroed at the start, at the beginning of a page:
 *
 *   slot headers    [ranks][slots], a line each
 *   slots           [ranks][slots][slot_bytes], at the beginning of a page
 *
 * Thread-safety: the caller serialises the calls on one object. Streams may be shared with other objects: `lock` is
 * held around every use of them.
 */
#ifndef MPATH_LANE_STAGED_H
#define MPATH_LANE_STAGED_H

#include "gpu/pinned.h"
#include "gpu/stream.h"

#include <pthread.h>

typedef struct mpath_staged_shape {
    int num_ranks;
    uint32_t slots;      /* of each rank */
    uint32_t slot_bytes; /* a multiple of the page size */
} mpath_staged_shape_t;

/* As many and as large slots as `memory_bytes` per rank allow, at least 2 of 64 KiB, at most 8 of 4 MiB. */
void mpath_staged_shape_choose(int num_ranks, uint64_t memory_bytes, mpath_staged_shape_t *shape);
size_t mpath_staged_region_bytes(const mpath_staged_shape_t *shape);

typedef struct mpath_staged mpath_staged_t;

mpath_status_t mpath_staged_open(void *region, const mpath_staged_shape_t *shape, int my_rank, mpath_staged_t **lane_p);
/* Nothing may be under way. */
void mpath_staged_close(mpath_staged_t *lane);

/* What this rank exchanges with another one in a call. */
typedef struct mpath_staged_message {
    char *address; /* not written on the send side */
    uint64_t bytes;
} mpath_staged_message_t;

/*
 * Told of each chunk that has come to its place: `bytes` bytes at `offset` of the message of rank `from`. Chunks of a
 * message may overtake each other. An error status ends the call.
 */
typedef mpath_status_t (*mpath_staged_arrived_t)(void *owner, int from, uint64_t offset, uint64_t bytes);

/* One side of a call. */
typedef struct mpath_staged_side {
    const mpath_staged_message_t *messages; /* of every rank; stays the caller's and unchanged until the end */
    mpath_stream_t *stream;                 /* NULL: memory that the host reads and writes by itself */
    mpath_stream_t *second;         /* takes every other copy, so that none waits for a mark; NULL: there is none */
    const mpath_pinned_t *pinned;   /* the region, registered; only with a stream */
    mpath_staged_arrived_t arrived; /* of a receiving side; NULL: nobody wants to know */
    void *owner;                    /* its first argument */
} mpath_staged_side_t;

/* `call` differs from call to call and is the same on all ranks. */
void mpath_staged_begin(mpath_staged_t *lane, uint64_t call, const mpath_staged_side_t *send,
                        const mpath_staged_side_t *receive, pthread_mutex_t *lock);

/* Number of events, or an error status. */
int mpath_staged_progress(mpath_staged_t *lane);

/* All bytes for this rank are in place and all of its own are on their way in slots. */
int mpath_staged_is_finished(const mpath_staged_t *lane);

/* Bytes still to come from `rank`, for messages about a wait; the first rank with any, -1: none. */
int mpath_staged_waits_for(const mpath_staged_t *lane, uint64_t *bytes_p);

/* Whether bytes from `rank` are still to come, or bytes for it wait for a slot. */
int mpath_staged_needs(const mpath_staged_t *lane, int rank);

/* Gives the call up: afterwards no copy of this rank is under way. Waits up to `timeout_ns`. */
void mpath_staged_abandon(mpath_staged_t *lane, uint64_t timeout_ns);

/* Bytes that this rank has sent through slots, over all calls. */
uint64_t mpath_staged_sent_bytes(const mpath_staged_t *lane);

#endif
