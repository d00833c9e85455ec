/* SPDX-License-Identifier: BSD-3-Clause */
/* The inside of the lane "staged": what is in shared memory, and what both forms know of a call. */
#ifndef MPATH_NODE_STAGED_PRIVATE_H
#define MPATH_NODE_STAGED_PRIVATE_H

#include "node/staged.h"

#include <stdatomic.h>

#define STAGED_PAGE 4096u
#define STAGED_MIN_SLOT_BYTES (64u << 10)
#define STAGED_DEPTH 8u /* slots of a pair by streams, at most */

#define SLOT_FREE 0

typedef struct staged_head {
    _Atomic uint64_t given_up; /* some rank has: not all that comes by streams is data */
    uint8_t padding[56];
} staged_head_t;

/*
 * By hosts. Written by its owner while free, by its receiver while full. Full for whom and in which call is one word:
 * between two looks a slot may be emptied by one receiver and be on its way to another.
 */
typedef struct staged_slot {
    _Atomic uint64_t full_for; /* see slot_tag() */
    uint64_t offset, bytes;    /* in the pair's message */
    uint8_t padding[40];
} staged_slot_t;

/*
 * By streams. Chunks of a pair are numbered from 1 on, over all calls. In a call they go round its slots, and with each
 * slot belong two words, which hold the number of the last chunk that was put there, and that has left it.
 */
typedef struct staged_pair {
    /* Of the sender's host. */
    _Atomic uint64_t sends; /* have been enqueued; what follows is of the call of the last one */
    uint64_t at;            /* of the slots, in the sender's */
    uint64_t slot_bytes;
    uint32_t slots;
    int32_t short_ends; /* see mpath_staged_chunk() */
    uint8_t padding[32];
    /* Of the receiver's host. */
    _Atomic uint64_t receives; /* have been enqueued */
    uint8_t more_padding[56];
    /* Of their streams. */
    _Atomic uint64_t full[STAGED_DEPTH];
    _Atomic uint64_t emptied[STAGED_DEPTH];
} staged_pair_t;

_Static_assert(sizeof(staged_head_t) == 64, "one line");
_Static_assert(sizeof(staged_slot_t) == 64, "one line");
_Static_assert(sizeof(staged_pair_t) == 256, "four lines");

/* A copy between a slot and device memory that is under way. */
typedef struct staged_copy {
    int active;
    int to; /* of a copy to a slot: the receiver */
    mpath_stream_t *stream;
    mpath_mark_t mark;
} staged_copy_t;

/* One end of a pair, by streams. */
typedef struct staged_flow {
    uint64_t at, slot_bytes; /* as in the pair, of this call */
    uint32_t slots;
    int short_ends;
    uint64_t before;                     /* chunks of earlier calls */
    uint64_t enqueued, done;             /* chunks over all calls */
    uint64_t enqueued_bytes, done_bytes; /* of this call's message */
    uint64_t last[STAGED_DEPTH];         /* chunk of each word */
} staged_flow_t;

struct mpath_staged {
    mpath_staged_shape_t shape;
    int me;
    staged_head_t *head;
    staged_slot_t *slots; /* [ranks][slots] */
    staged_pair_t *pairs; /* [senders][receivers] */
    char *data;
    uint64_t call;
    mpath_staged_side_t send, receive;
    mpath_staged_guard_t guard;
    uint64_t *received; /* of each rank's message: in place */
    uint64_t send_left, receive_left;
    uint64_t sent_bytes;
    unsigned turns[2]; /* of streams, in each direction */
    int may_send;      /* all that was in this rank's slots before the call has left them */

    /* By hosts. */
    uint32_t host_slots;     /* so many of mine, the first ones */
    uint64_t *sent;          /* of each message: in slots, or on its way there */
    staged_copy_t *filling;  /* [slots] my slots */
    staged_copy_t *emptying; /* [ranks][slots] */
    int copies;              /* active ones */
    int next_to;             /* receivers take turns */

    /* By streams. */
    unsigned char *by_streams; /* [ranks] what this one sends, in this call */
    staged_flow_t *out, *in;   /* [ranks] */
    unsigned leaving, coming;  /* chunks that are under way */
    int next_out, next_in;     /* they take turns */
    int used;                  /* something was enqueued in this call */
    unsigned quiet;            /* looks at streams since something happened */
};

static inline staged_pair_t *staged_pair(const mpath_staged_t *lane, int from, int to)
{
    return &lane->pairs[(size_t)from * (size_t)lane->shape.num_ranks + (size_t)to];
}

/* Whether a rank sends by streams in this call: once it has enqueued something. */
static inline int staged_comes_by_streams(const mpath_staged_t *lane, int from)
{
    return atomic_load_explicit(&staged_pair(lane, from, lane->me)->sends, memory_order_acquire) >
           lane->in[from].before;
}

/* The stream for the next copy in a direction. */
static inline mpath_stream_t *staged_stream(mpath_staged_t *lane, const mpath_staged_side_t *side, int to_slot)
{
    return ((side->second != NULL) && (++lane->turns[to_slot] % 2 == 0)) ? side->second : side->stream;
}

/* -- node/staged.c -- */

/* How long the chunk of a message is that begins after `at` of `all` bytes. */
uint64_t mpath_staged_chunk(uint64_t all, uint64_t at, uint64_t slot_bytes, int short_ends);

/* Bytes of a message are in a slot; of another one, in their place. */
void mpath_staged_note_sent(mpath_staged_t *lane, uint64_t bytes);
mpath_status_t mpath_staged_note_received(mpath_staged_t *lane, int from, uint64_t offset, uint64_t bytes);

/* -- node/staged.c -- */

/* -- node/staged_streams.c -- */

/* Which messages go this way, and where their slots are. */
void mpath_staged_streams_begin(mpath_staged_t *lane);
/* Whether all that this rank has ever sent has left its slots. */
int mpath_staged_streams_have_left(const mpath_staged_t *lane);
int mpath_staged_streams_progress(mpath_staged_t *lane);
/* Whether what goes to rank `rank`, or comes from it, depends on what it has yet to do. */
int mpath_staged_streams_need(const mpath_staged_t *lane, int rank);
void mpath_staged_streams_abandon(mpath_staged_t *lane, uint64_t timeout_ns);

#endif
