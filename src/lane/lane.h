/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lane: one hop, one way to move one chunk of bytes into the memory of another process.
 *
 * A lane object belongs to one process and reaches several peers, each known by a small number that the creator of the
 * lane gives out. Chunks to the same peer may be delivered in any order; each carries a header that says what it is.
 *
 * Sending     send() takes a chunk from the caller's memory. With MPATH_OK the memory may be reused at once, with
 *             MPATH_INPROGRESS when op->status leaves MPATH_INPROGRESS; with MPATH_NO_RESOURCE nothing was taken.
 *             reserve()/commit() is the way without a copy, for lanes that have slots (shm): the caller fills the slot
 *             itself, from its own memory or from another lane's arrival.
 *             A finished send needs no more progress on this side to get there: who has finished all of its ops may
 *             turn to other things.
 * Receiving   progress() calls the arrival callback for every chunk that came in. The arrival stays valid until the
 *             receiver ends it by take() (which moves the bytes to where they belong, directly if the lane can) or by
 *             release(). What is not ended occupies the lane's buffers: a lane with too many open arrivals stops to
 *             read, so that backlog turns into back-pressure and memory stays bounded.
 *
 * Thread-safety: the caller serialises the calls on one lane object. Callbacks run inside progress() and may call
 * every function of any lane but progress().
 */
#ifndef MPATH_LANE_LANE_H
#define MPATH_LANE_LANE_H

#include "topo/topo.h"
#include "util/status.h"

#include <stddef.h>
#include <stdint.h>

/* What a chunk is. Travels with it. 32 bytes, no padding. */
typedef struct mpath_chunk {
    uint64_t team;   /* id of the team (communicator) */
    uint32_t call;   /* number of the call on that team, modulo 2^32 */
    uint32_t flow;   /* index in the plan's flows */
    uint64_t offset; /* of the chunk, in the pair's message */
    uint32_t bytes;
    uint32_t hop; /* index of the path's hop that carries it */
} mpath_chunk_t;

typedef struct mpath_lane mpath_lane_t;

/* A send or a take under way; the caller's memory, untouched by it until finished. */
typedef struct mpath_lane_op {
    mpath_status_t status; /* MPATH_INPROGRESS until finished */
    void *private_data;    /* the lane's */
} mpath_lane_op_t;

typedef struct mpath_arrival {
    mpath_lane_t *lane;
    mpath_chunk_t chunk;
    int peer;
    const void *data;   /* the bytes, or NULL while they are still at the sender (rendezvous): only take() gets them */
    void *private_data; /* the lane's */
} mpath_arrival_t;

/* Takes over the arrival (a copy of the struct may be kept); must not block. */
typedef void (*mpath_lane_arrive_t)(void *argument, const mpath_arrival_t *arrival);

typedef struct mpath_lane_ops {
    const char *name;
    mpath_lane_kind_t kind;

    /* Sends chunk->bytes bytes from `data` to `peer`; see above. `op` may be NULL only for lanes that always copy, and for chunks without bytes. */
    mpath_status_t (*send)(mpath_lane_t *lane, int peer, const mpath_chunk_t *chunk, const void *data,
                           mpath_lane_op_t *op);

    /*
     * Gets a slot of at least `bytes` bytes towards `peer`: MPATH_OK, MPATH_NO_RESOURCE, or MPATH_ERR_UNSUPPORTED on a
     * lane without slots. Slots are committed in any order; several may be reserved at a time.
     */
    mpath_status_t (*reserve)(mpath_lane_t *lane, int peer, size_t bytes, void **slot_p);
    void (*commit)(mpath_lane_t *lane, int peer, void *slot, const mpath_chunk_t *chunk);

    /*
     * Drives everything. Returns the number of events (chunks that arrived, ops that finished; 0: nothing happened), or
     * an error status. Does nothing while too many arrivals are open, so those may not wait for this lane's own sends.
     */
    int (*progress)(mpath_lane_t *lane);

    /* Moves the arrival's bytes to `to` and ends it; same return values as send(). */
    mpath_status_t (*take)(mpath_lane_t *lane, const mpath_arrival_t *arrival, void *to, mpath_lane_op_t *op);
    void (*release)(mpath_lane_t *lane, const mpath_arrival_t *arrival);

    /* MPATH_OK, or why the peer can no longer be reached. Costs system calls: for a caller that has waited a while. */
    mpath_status_t (*peer_status)(mpath_lane_t *lane, int peer);

    /* Largest chunk that send() takes. */
    size_t (*max_chunk)(const mpath_lane_t *lane);

    /*
     * Gives up everything under way: afterwards no memory of the caller is read or written any more, unfinished ops
     * have the status MPATH_ERR_UNREACHABLE. Ends within a second. Peers with sends under way fail, the others go on;
     * open arrivals stay open.
     */
    void (*abort)(mpath_lane_t *lane);
    void (*destroy)(mpath_lane_t *lane);
} mpath_lane_ops_t;

/* Every lane begins with this. */
struct mpath_lane {
    const mpath_lane_ops_t *ops;
    mpath_lane_arrive_t arrive;
    void *arrive_argument;
};

static inline void mpath_lane_set_arrive(mpath_lane_t *lane, mpath_lane_arrive_t arrive, void *argument)
{
    lane->arrive          = arrive;
    lane->arrive_argument = argument;
}

#endif
