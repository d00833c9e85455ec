/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lane "staged": between the ranks of a node through shared, pinned host memory. For device memory that other processes
 * cannot open, for pairs of which one side is in host memory, and beside the lane "peer" to take load off a GPU's port.
 *
 * Every rank owns a few slots. A chunk for some receiver is put into a free one (copy engine from device memory, memcpy
 * from host memory), which is marked full; it is emptied to where the bytes belong, and the slot marked free. There are
 * two forms:
 *
 *   by hosts    The sender's host fills whichever slot is free for whoever has something to come, and the receiver's
 *               host empties what it finds: each step takes a look of a host. Receivers always have memory, so slots
 *               always become free again: bounded memory cannot deadlock.
 *   by streams  Between device memory on both sides, where streams wait for words of memory. A call divides the
 *               sender's slots among those who receive in this form. Both hosts enqueue some chunks in advance: the
 *               sender's stream waits until the slot's chunk before has left it, copies, and writes the number of the
 *               chunk; the receiver's stream waits for the number, copies, and writes it back. What is enqueued runs to
 *               its end whatever the hosts do meanwhile. The sender chooses the form of each pair in each call.
 *
 * By streams, too, bounded memory cannot deadlock: a host enqueues a wait only for what it has seen that the other one
 * has enqueued (staged_pair_t: `sends`, `receives`). The first chunks, one for each slot, wait for nothing; a receiver
 * enqueues those that the sender has enqueued; the sender goes on with those whose slots' receivers have been. So
 * everything waits only for what was enqueued before it, and there is no circle, not even where the driver puts several
 * streams, of several communicators or of the application, into one queue, whose work runs in the order in which it was
 * enqueued. Nor does anything on a stream wait for what a host has yet to do: who synchronises a device does not wait
 * for another rank to look. The price is that a host has to look once for as many chunks as there are slots.
 *
 * Kernels that wait for those of other ranks, whenever these come, do not keep that rule. A process where such a kernel
 * may be (mpath_staged_guard_t) enqueues only what has nothing to wait for, and tells of it when it is done.
 *
 * Numbers of chunks are those of a pair over all calls: nothing is ever reset. A rank that gives a call up writes to all
 * words that streams wait for; what it let through so is rubbish, and nobody takes it for data, since the rank has noted
 * before that it gave up. The rubbish remains in slots and receive buffers of the call, and the region is used no more.
 *
 * Memory layout of the region, shared and zeroed at the start, at the beginning of a page:
 *
 *   head            a line
 *   slot headers    [ranks][slots], a line each; by hosts
 *   pairs           [senders][receivers], four lines each; by streams
 *   slots           [ranks][slots][slot_bytes], at the beginning of a page
 *
 * Thread-safety: the caller serialises the calls on one object. Streams may be shared with other objects: the
 * guard's lock is held around every use of them.
 */
#ifndef MPATH_NODE_STAGED_H
#define MPATH_NODE_STAGED_H

#include "device/pinned.h"
#include "device/stream.h"

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
    int by_streams; /* of the send side: its streams and the receiver's wait for words, see mpath_gpu_has_waits() */
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

/* How streams are used. */
typedef struct mpath_staged_guard {
    pthread_mutex_t *lock;              /* around every use */
    int (*may_wait)(const void *owner); /* under the lock: whether no other call's kernels wait; NULL: none ever do */
    const void *owner;
} mpath_staged_guard_t;

/* `call` differs from call to call and is the same on all ranks. */
void mpath_staged_begin(mpath_staged_t *lane, uint64_t call, const mpath_staged_side_t *send,
                        const mpath_staged_side_t *receive, const mpath_staged_guard_t *guard);

/* Number of events, or an error status. The first one starts what can be started. */
int mpath_staged_progress(mpath_staged_t *lane);

/* All bytes for this rank are in place and all of its own are in slots or in flight to them. */
int mpath_staged_is_finished(const mpath_staged_t *lane);

/* Bytes still to come from `rank`, for messages about a wait; the first rank with any, -1: none. */
int mpath_staged_waits_for(const mpath_staged_t *lane, uint64_t *bytes_p);

/* Bytes for `rank` that are in no slot yet, for such messages; the first rank with any, -1: none. */
int mpath_staged_waits_to_send(const mpath_staged_t *lane, uint64_t *bytes_p);

/* Whether bytes from `rank` are still to come, or bytes for it wait for a slot. */
int mpath_staged_needs(const mpath_staged_t *lane, int rank);

/*
 * Gives the call up: afterwards no copy of this rank is under way. Waits up to `timeout_ns`. Once something went by
 * streams, those of the other ranks do not get any further with it, and the region is used no more.
 */
void mpath_staged_abandon(mpath_staged_t *lane, uint64_t timeout_ns);

/* Bytes that this rank has sent through slots, over all calls. */
uint64_t mpath_staged_sent_bytes(const mpath_staged_t *lane);

#endif
