/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Outbox: memory of this process, shared with its node, in which it leaves the small data of an agreement for its node
 * mates, who copy it from there. All teams of the process share it: each takes a block for each half of its cells
 * (team/agree_private.h) when it has data that does not fit in its own segment, and keeps it for its next calls until another
 * team needs memory.
 *
 * A block may be used anew when all mates have left the call that it was written in: they note that in the team's segment
 * (mpath_outbox_left_t), which therefore stays mapped as long as a block of a team that has ended is still read.
 *
 * Threads: any, unless it was said that there is one at a time.
 */
#ifndef MPATH_TEAM_OUTBOX_H
#define MPATH_TEAM_OUTBOX_H

#include "lane/segment.h"
#include "util/status.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

typedef struct mpath_outbox mpath_outbox_t;

#define MPATH_OUTBOX_LINE 64u /* offsets are multiples of it */

/* By local rank, in the team's segment; written by that rank. */
typedef struct mpath_outbox_left {
    atomic_uint call; /* the last one that it has left */
    atomic_uint gone; /* it reads nothing of this team any more */
    uint8_t padding[56];
} mpath_outbox_left_t;

typedef struct mpath_outbox_block {
    struct mpath_outbox_block *next;
    const struct mpath_outbox_share *share;
    size_t offset, bytes; /* 0 bytes: there is none */
    uint32_t call;        /* that it was written in last */
} mpath_outbox_block_t;

/* What a team has of it. */
typedef struct mpath_outbox_share {
    struct mpath_outbox_share *next; /* of those whose team has ended */
    mpath_outbox_block_t blocks[2];
    const mpath_outbox_left_t *left; /* set by the team, as is */
    int num_local;
    mpath_segment_t segment; /* of a team that has ended */
} mpath_outbox_share_t;

/* Takes no shared memory yet. */
mpath_status_t mpath_outbox_create(mpath_outbox_t **outbox_p);
/* Whether one thread at a time calls these functions, as is not so by itself. Before teams of several threads are made. */
void mpath_outbox_set_alone(mpath_outbox_t *outbox, int is_alone);
/* All teams have left it. */
void mpath_outbox_destroy(mpath_outbox_t *outbox);

/* Bytes of the outbox; 0: no team needs one. */
size_t mpath_outbox_bytes(mpath_outbox_t *outbox);
/* For one more team; makes it, of so many bytes, if there is none. *address_p: where the mates find it. */
mpath_status_t mpath_outbox_join(mpath_outbox_t *outbox, size_t bytes, mpath_outbox_share_t **share_p,
                                 mpath_segment_address_t *address_p);
/*
 * The team ends. Its blocks may still be read by mates that are in their last call, who note in its segment when they leave
 * it: the outbox takes that over, `segment` is empty afterwards.
 */
void mpath_outbox_leave(mpath_outbox_t *outbox, mpath_outbox_share_t *share, mpath_segment_t *segment);

/*
 * The block of a half, of `bytes` bytes at least, for a call, and its offset. NULL: no block is free, since mates of this
 * process have not left calls of other teams for some time.
 */
void *mpath_outbox_take(mpath_outbox_t *outbox, mpath_outbox_share_t *share, int half, size_t bytes, uint32_t call,
                        size_t *offset_p);

#endif
