/* SPDX-License-Identifier: BSD-3-Clause */
/* The inside of the movement, for the files move*.c and wire*.c only. */
#ifndef MPATH_EXEC_MOVE_PRIVATE_H
#define MPATH_EXEC_MOVE_PRIVATE_H

#include "exec/idle.h"
#include "exec/move.h"
#include "exec/schedule.h"
#include "exec/team_private.h"

#include <pthread.h>

/* What a parcel is at, which says what its end means. */
typedef enum parcel_state {
    PARCEL_WAITS,         /* in its outlet's queue */
    PARCEL_SENDS_OWN,     /* send buffer -> rail */
    PARCEL_SENDS_ON,      /* somebody's slot -> rail; then the slot is given back */
    PARCEL_TAKES_TO_SLOT, /* arrival -> slot; then the slot is committed */
    PARCEL_TAKES_TO_USER  /* arrival -> receive buffer */
} parcel_state_t;

#define ARRIVAL_BY_SLOT (-1)
#define ARRIVAL_ENDED (-2)

/* A chunk in this rank's hands. Lanes know the address of `op`: parcels are never freed before the mover. */
typedef struct parcel {
    struct parcel *next;
    parcel_state_t state;
    mpath_lane_op_t op;
    int op_nic; /* the rail that works on op; -1: the lane of the arrival */
    mpath_duty_t *duty;
    int nic;                 /* the rail that brought the arrival, or ARRIVAL_* */
    mpath_arrival_t arrival; /* its chunk is valid in all states */
    void *slot;              /* reserved at the outlet; NULL: none yet */
} parcel_t;

/* Chunks that wait for one outlet, oldest first. */
typedef struct outlet_queue {
    parcel_t *first, **last_p;
    int peer;          /* of the lane */
    int blocked;       /* nothing more fits in this round */
    uint64_t own_left; /* chunks of this rank's own that are not handed over */
} outlet_queue_t;

/* What came by rail and is not looked at yet; other threads may put it here. */
typedef struct inbox_item {
    int nic;
    mpath_arrival_t arrival;
} inbox_item_t;

typedef struct inbox {
    pthread_mutex_t lock;
    inbox_item_t *items; /* a ring */
    size_t room, first;
    size_t count; /* written under the lock, looked at without */
    int closed;   /* arrivals are ended at once: the team has failed */
    int drops;    /* those of calls up to this number are: they are given up here */
    uint32_t drop_call;
    mpath_status_t status; /* not MPATH_OK: an arrival was lost */
} inbox_t;

/* What each rank tells the others when movers are made. Plain data. */
typedef struct mover_hello {
    int32_t status;
    uint32_t last_slot_bytes, relay_slot_bytes; /* of the node's shared memory; 0: none */
    uint32_t rail_chunk_bytes;                  /* smallest of the rails it has opened; 0: none */
    uint64_t relay_region_bytes;
    char relay_segment[MPATH_SEGMENT_NAME_MAX];
    uint16_t address_bytes[MPATH_MAX_NICS]; /* by NIC of the topology; 0: not driven by this rank, or left out */
} mover_hello_t;

typedef struct mover_settle mover_settle_t;

struct mpath_mover {
    mpath_team_t *team;
    mpath_fabric_t *fabric;
    mpath_status_t status; /* MPATH_OK, or MPATH_DECLINED: some rank could not open what it needs */

    /* Set-up, move_setup.c */
    uint32_t driven;                   /* NICs of the topology that this rank drives, those left out too */
    int8_t fabric_nic[MPATH_MAX_NICS]; /* of those: the topology's NIC number on this node -> the fabric's rail */
    mpath_segment_t relay_segment;
    mpath_shm_shape_t relay_shape;
    mpath_lane_t *relay;   /* shared memory towards relays; NULL: no path has one */
    mover_hello_t *hellos; /* by rank */
    uint8_t *addresses;    /* by rank, address_stride bytes each: the addresses in order of the NICs */
    size_t address_stride;
    int *peers; /* [(nic * size + rank) * MPATH_MAX_NICS + nic_to]: number + 1; 0: not known yet. NULL: no rails */
    uint32_t *slot_bytes; /* last, then relay, by node */
    mpath_chunk_limits_t limits;

    /* The schedule of the last plan */
    mpath_schedule_t *schedule;
    uint64_t schedule_signature;
    outlet_queue_t *queues; /* by outlet */

    inbox_t inbox;
    parcel_t *spare;
    parcel_t *under_way; /* parcels whose op is not finished */

    /* The call under way */
    const mpath_call_t *call;
    uint32_t call_number;
    mpath_move_stats_t stats;
    uint64_t send_left, forward_left, receive_left; /* bytes not finished */
    uint64_t self_done;                             /* of the diagonal */
    size_t first_outlet;                            /* where the next round begins */
    uint64_t fed_bytes;                             /* handed to rails in this pass */
    int rails_full;                                 /* had no room once: from then on copies hold up no rail */
    mpath_idle_t idle;
    uint64_t checked_ns;   /* when peers and team were last looked at */
    mpath_status_t failed; /* first error inside a callback */
    mpath_rail_clock_t clock;

    /* Rails that fail, move_retry.c */
    int settles_call;        /* the ranks end this call together */
    uint32_t lost;           /* NICs of this node that failed in this call, bits by the topology's numbers */
    uint32_t drained;        /* of this rank, while others may still send what is given up */
    unsigned repeats;        /* of calls, on this team */
    mover_settle_t *settles; /* by rank */
};

/* move_setup.c */
/* Collective. On MPATH_OK team->mover exists on all ranks; its status says whether it is usable, alike on all. */
mpath_status_t mpath_mover_create(mpath_team_t *team);
/* Collective: goes over to other rails on the NICs of these numbers and exchanges addresses. When a rank fails, the
 * mover declines from then on. */
mpath_status_t mpath_mover_reopen(mpath_mover_t *mover, uint32_t nics);
/*
 * Rails beyond those that host memory needs, in three steps. Whether some rank has none yet on NICs `nics`, by rank, a
 * bit each: the same on all ranks. Opens those of this rank, and notes them in `hello`. When all have: collective, tells
 * the others; an error breaks the team.
 */
int mpath_mover_is_narrow(const mpath_mover_t *mover, const uint32_t *nics);
mpath_status_t mpath_mover_open(mpath_mover_t *mover, uint32_t nics, mover_hello_t *hello);
mpath_status_t mpath_mover_tell(mpath_mover_t *mover, const mover_hello_t *hello);
/* move_peers.c. The lane's number of `rank` as reached from NIC `nic` at its NIC `nic_to`; negative status on error. */
int mpath_mover_peer(mpath_mover_t *mover, int nic, int rank, int nic_to);
/* The topology's number of the NIC on which this rank has a rail of the fabric; -1: it has not. */
int mpath_mover_nic_of(const mpath_mover_t *mover, int rail);
/* Before the rails. */
void mpath_mover_forget_peers(mpath_mover_t *mover);

/* move_inbox.c */
mpath_status_t mpath_inbox_init(inbox_t *inbox);
void mpath_inbox_cleanup(inbox_t *inbox);
/* Fabric callback; `argument` is the mover. */
void mpath_inbox_arrive(void *argument, int nic, const mpath_arrival_t *arrival);
/* Progresses the rails of the schedule; arrivals of this mover are handled inside. Their number, or an error. */
int mpath_inbox_drive(mpath_mover_t *mover);
/* After mpath_inbox_close(): takes chunks again, but with `drops` only those of calls that come after this one. */
void mpath_inbox_open(mpath_mover_t *mover, int drops);
/* Takes the oldest item out; 0 when there is none. */
int mpath_inbox_pop(inbox_t *inbox, inbox_item_t *item_p);

/* move_chunk.c: each returns the number of events, or an error that is logged */
int mpath_mover_take_arrivals(mpath_mover_t *mover);
/* One arrival: takes it to its place, or on to the next outlet when that has room. Ends it in case of an error. */
mpath_status_t mpath_mover_handle(mpath_mover_t *mover, int nic, const mpath_arrival_t *arrival);
int mpath_mover_feed_rails(mpath_mover_t *mover);
int mpath_mover_feed_slots(mpath_mover_t *mover);
int mpath_mover_finish_ops(mpath_mover_t *mover);
/* Lane callback of the shared memory lanes; `argument` is the mover. */
void mpath_mover_arrive(void *argument, const mpath_arrival_t *arrival);
/* Hands the parcel's slot, filled or given up, to its reader. */
void mpath_mover_commit(mpath_mover_t *mover, parcel_t *parcel);
void mpath_mover_drop_parcel(mpath_mover_t *mover, parcel_t *parcel);
void mpath_mover_end_arrival(mpath_mover_t *mover, int nic, const mpath_arrival_t *arrival);

/* A transfer on a rail, of the movement or of the wire, when its call is given up. */
typedef struct mpath_transfer {
    mpath_status_t status;
    int sends;        /* from here; else what is fetched */
    int rail;         /* the fabric's number */
    int nic;          /* the topology's, of this node */
    int rank, nic_to; /* the other end; rank -1: unknown */
} mpath_transfer_t;
typedef void (*mpath_transfer_visit_t)(void *argument, const mpath_transfer_t *transfer);

/* move_abandon.c */
/* Nothing more is fed: drops what is queued, and what comes from now on. */
void mpath_mover_stop(mpath_mover_t *mover);
/* Shows what was under way, and drops what of it has ended, whatever came of it. */
void mpath_mover_sweep(mpath_mover_t *mover, mpath_transfer_visit_t visit, void *argument);
/* After an error of the team: afterwards no lane touches memory of the caller any more. */
void mpath_mover_abandon(mpath_mover_t *mover);

/* move_end.c, for the movement and the wire, which have been stopped; `nics`: those of this rank that are driven. */
/* Reads what the others still send, which is dropped. Number of events. */
int mpath_transfers_drive(const mpath_mover_t *mover, uint32_t nics);
/*
 * All ranks are in this and know which NICs the team has lost: until nothing of this rank is under way. *lost_p: NICs of
 * this node that have failed meanwhile. Errors, which are logged, leave something under way.
 */
mpath_status_t mpath_transfers_end(mpath_mover_t *mover, uint32_t nics, uint32_t *lost_p);
/* The others may do anything: what does not end in a moment is aborted. */
void mpath_transfers_abandon(mpath_mover_t *mover, uint32_t nics);

/* move_retry.c */
mpath_status_t mpath_mover_retry_init(mpath_mover_t *mover);
/* Whether the ranks end a call with this plan together; alike on all. */
int mpath_mover_settles(const mpath_mover_t *mover, const mpath_plan_t *plan);
/*
 * A NIC of this node has failed; the caller returns MPATH_ERR_UNREACHABLE. Nothing to it in calls that are not settled.
 */
void mpath_mover_lose(mpath_mover_t *mover, int nic);
/*
 * The end of a call for this rank, whatever came of it: waits for the others. MPATH_OK: all have their bytes.
 * MPATH_AGAIN, on all ranks: rails have failed, the topology has changed, nothing is under way, the call is to be
 * repeated.
 */
mpath_status_t mpath_mover_settle(mpath_mover_t *mover, mpath_status_t status);
/* A chunk of an attempt that was given up, or a slot that was given up before a chunk was in it. */
int mpath_mover_is_stale(const mpath_mover_t *mover, const mpath_chunk_t *chunk);

/* move_wait.c */
/* A transfer has failed: says so, and whose rail it was is lost. */
void mpath_mover_op_failed(mpath_mover_t *mover, const parcel_t *parcel, mpath_status_t status);
/* The same of a NIC of this node on which nothing moves any more. */
void mpath_mover_rail_failed(mpath_mover_t *mover, int nic, mpath_status_t status);
/* Nothing happened: waits a moment, looks at the clock, the peers and the team. MPATH_OK to go on. */
mpath_status_t mpath_mover_wait(mpath_mover_t *mover);

#endif
