/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Wire: chunks from NIC to NIC between the ranks of a team, for whoever moves some over rails: planned movement of host and of
 * device memory, and collectives that schedule themselves. It goes over the team's links (wire/links.h) under an id of its own,
 * which is another one after a call that was given up, so that chunks of such a call are never met again.
 *
 * A chunk's team is set here; call, flow, offset and hop are the caller's, and the receiver's callbacks get them back.
 * Data that is sent stays untouched until `sent`; data that comes in goes straight to where `place` says. One call at a
 * time, between begin and end, by one thread; chunks for a call that has not begun here wait.
 */
#ifndef MPATH_WIRE_WIRE_H
#define MPATH_WIRE_WIRE_H

#include "team/team.h"
#include "wire/links.h"

typedef struct mpath_wire mpath_wire_t;

/* What has come by a rail; a copy may be kept. */
typedef struct mpath_wire_arrival {
    int rail; /* the fabric's number */
    mpath_arrival_t lane;
} mpath_wire_arrival_t;

/* `item` is the caller's own: of its send, of its take, or what `place` says of an arrival (NULL by itself). */
typedef struct mpath_wire_ops {
    /*
     * Where the bytes of a chunk go; *to_p NULL: nowhere. MPATH_INPROGRESS: that is not known yet, and the caller ends the
     * arrival by mpath_wire_take() or mpath_wire_drop(). An error, which is logged, ends the call.
     */
    mpath_status_t (*place)(void *argument, const mpath_wire_arrival_t *arrival, void **to_p, void **item_p);
    /* They are there. */
    void (*placed)(void *argument, const mpath_chunk_t *chunk, void *item);
    /* The memory behind a chunk of mpath_wire_send() is free again. */
    void (*sent)(void *argument, const mpath_chunk_t *chunk, void *item);
    /* Instead of both, of a call that is given up: nothing of the chunk is under way any more. NULL: nothing is needed. */
    void (*dropped)(void *argument, void *item);
    /* Around the progress of rails while the call is given up; both NULL: nothing is needed. */
    mpath_status_t (*enter)(void *argument);
    void (*leave)(void *argument);
} mpath_wire_ops_t;

/*
 * The team's wire, which reaches as far as is said here, or further: mpath_links_get(). Collective the first time, and when it is to
 * reach further than before, and sets up what is missing: MPATH_DECLINED, on all ranks alike and for ever, when one of them could
 * not, or could not open a rail again that had failed. After an error the caller breaks the team.
 */
mpath_status_t mpath_wire_get(mpath_team_t *team, mpath_links_reach_t reach, mpath_wire_t **wire_p);

/*
 * For ranks that send and receive on further NICs than those that host memory needs: NICs `nics`, by rank, a bit each.
 * Collective, between calls; MPATH_DECLINED, on all ranks alike and for ever: some rank cannot have them, and the wire is as it was.
 */
mpath_status_t mpath_wire_widen(mpath_wire_t *wire, const mpath_nic_set_t *nics);

/* Largest chunk of host memory, and largest that every rail of the team takes. */
uint64_t mpath_wire_max_chunk(const mpath_wire_t *wire);
uint64_t mpath_wire_rail_chunk(const mpath_wire_t *wire);

/*
 * `nics`: a bit per NIC of the topology's machine that this rank sends or receives on. `repeats`: when one fails, the
 * call is repeated.
 */
void mpath_wire_begin(mpath_wire_t *wire, const mpath_wire_ops_t *ops, void *argument, mpath_nic_set_t nics,
                      int repeats);
void mpath_wire_end(mpath_wire_t *wire);

/*
 * From NIC `nic` to NIC `nic_to` of `rank`. MPATH_OK: `sent` will be called or has been; MPATH_NO_RESOURCE: progress
 * and repeat.
 */
mpath_status_t mpath_wire_send(mpath_wire_t *wire, int nic, int rank, int nic_to, const mpath_chunk_t *chunk,
                               const void *data, void *item);
/* Of an arrival for which there was no place: MPATH_OK: `placed` will be called or has been; an error, which is logged, ends it. */
mpath_status_t mpath_wire_take(mpath_wire_t *wire, const mpath_wire_arrival_t *arrival, void *to, void *item);
void mpath_wire_drop(mpath_wire_t *wire, const mpath_wire_arrival_t *arrival);
/* Drives the NICs of the call; callbacks run inside. Number of events, or an error. */
int mpath_wire_progress(mpath_wire_t *wire);
/* MPATH_OK, or why the peer can no longer be reached. Costs system calls. */
mpath_status_t mpath_wire_peer_status(mpath_wire_t *wire, int nic, int rank, int nic_to);

/* NICs, a bit each by the topology's numbers, on which a transfer of the present call has failed. */
mpath_nic_set_t mpath_wire_lost(const mpath_wire_t *wire);
/* The caller has found that a NIC has failed under the call. */
void mpath_wire_lose(mpath_wire_t *wire, int nic);

/* The call is given up: drops what comes. What is under way ends when the ranks settle, see wire/failover.h. */
void mpath_wire_stop(mpath_wire_t *wire);
/*
 * The same of a team that has failed: waits (a moment, then what does not end is aborted) until no lane touches memory
 * of the caller any more.
 */
void mpath_wire_abandon(mpath_wire_t *wire);
/* After a call that was given up on all ranks: ready for its repetition. What still comes of it is dropped. */
mpath_status_t mpath_wire_restart(mpath_wire_t *wire);

#endif
