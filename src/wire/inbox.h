/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inbox: what comes by the rails of a team under one id. While the thread of its call drives the rails a chunk is
 * handled at once, as its bytes are still where the lane has received them; what another thread, or a call on another
 * team, finds for it is queued. Bounded by the rails' limits of open arrivals.
 *
 * Whose inbox it is takes things out and is one thread at a time; any thread puts them in.
 */
#ifndef MPATH_WIRE_INBOX_H
#define MPATH_WIRE_INBOX_H

#include "rail/fabric.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#define MPATH_INBOX_WORD                                                                                               \
    UINT32_MAX /* the hop of a chunk without bytes that belongs to no call: all that it says is in it */

typedef struct mpath_inbox_ops {
    /* A chunk has come by a rail of the fabric: takes it, or ends it. An error is logged. */
    mpath_status_t (*handle)(void *argument, int rail, const mpath_arrival_t *arrival);
    /* Nothing moves any more on a NIC that is driven, by the topology's number. */
    void (*lose)(void *argument, int nic, mpath_status_t status);
} mpath_inbox_ops_t;

typedef struct mpath_inbox_item {
    int rail;
    mpath_arrival_t arrival;
} mpath_inbox_item_t;

typedef struct mpath_inbox {
    struct mpath_inbox *next; /* of the same links */
    mpath_fabric_t *fabric;
    const int16_t *rails; /* by NIC of the topology: the fabric's number */
    uint64_t id;
    const mpath_inbox_ops_t *ops; /* NULL: nobody handles anything yet */
    void (*word)(void *argument,
                 const mpath_chunk_t *chunk); /* takes a word, see MPATH_INBOX_WORD, in any thread; NULL: none come */
    void *word_argument;
    void *argument;
    mpath_status_t failed; /* first error while a chunk was handled; from then on they are queued */

    pthread_mutex_t lock;      /* of what follows */
    mpath_inbox_item_t *items; /* a ring */
    size_t capacity, first;
    size_t count;          /* written under the lock, looked at without */
    int closed;            /* arrivals are ended at once */
    mpath_status_t status; /* not MPATH_OK: an arrival was lost */
} mpath_inbox_t;

/* `rails` is looked up whenever something is done with a NIC. */
mpath_status_t mpath_inbox_init(mpath_inbox_t *inbox, mpath_fabric_t *fabric, const int16_t *rails, uint64_t id);
/* Leaves the rails. */
void mpath_inbox_cleanup(mpath_inbox_t *inbox);

/* Chunks with its id that come by this rail are put here from now on, and those that came before are now. */
mpath_status_t mpath_inbox_join_rail(mpath_inbox_t *inbox, int rail);
/* The same on the rail that new teams use on a NIC of this process's machine: the rail's number; negative status. */
int mpath_inbox_join(mpath_inbox_t *inbox, int machine_nic);
void mpath_inbox_leave_rail(mpath_inbox_t *inbox, int rail);
void mpath_inbox_leave(mpath_inbox_t *inbox);

/*
 * Progresses NICs `nics`, a bit each by the topology's numbers; arrivals are handled inside. Their number, or an error.
 * Other teams' chunks are no events: while they kept coming, this team would not notice that it waits in vain.
 */
int mpath_inbox_drive(mpath_inbox_t *inbox, mpath_nic_set_t nics);
/* Handles what is queued. The number of arrivals, or an error. */
int mpath_inbox_take(mpath_inbox_t *inbox);

/* Drops the chunks that are not looked at yet and all that come. */
void mpath_inbox_close(mpath_inbox_t *inbox);
/* After that: takes chunks again. */
void mpath_inbox_open(mpath_inbox_t *inbox);

#endif
