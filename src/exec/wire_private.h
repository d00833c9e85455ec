/* SPDX-License-Identifier: BSD-3-Clause */
/* Wire, for its own files only: what is under way, and what nobody has looked at yet. */
#ifndef MPATH_EXEC_WIRE_PRIVATE_H
#define MPATH_EXEC_WIRE_PRIVATE_H

#include "exec/fabric.h"
#include "exec/move_private.h"
#include "exec/wire.h"

#include <pthread.h>

/* A transfer under way. The lane knows the address of `op`: never freed before the wire. */
typedef struct mpath_wire_transfer {
    struct mpath_wire_transfer *next;
    mpath_lane_op_t op;
    int nic;  /* the fabric's */
    int rank; /* that it is sent to; -1: something is taken */
    int end;  /* the NIC there; of what is taken the lane's number of its sender, -1: unknown */
    mpath_chunk_t chunk;
} mpath_wire_transfer_t;

/* An arrival that nobody has looked at yet. */
typedef struct mpath_wire_waiting {
    struct mpath_wire_waiting *next;
    int nic;
    mpath_arrival_t arrival;
} mpath_wire_waiting_t;

struct mpath_wire {
    mpath_team_t *team;
    mpath_fabric_t *fabric;
    uint64_t id;

    pthread_mutex_t lock; /* of the queue: other threads append */
    mpath_wire_waiting_t *first, **last_p;
    unsigned queued;       /* written under the lock, looked at without */
    int closed;            /* arrivals are ended at once */
    mpath_status_t failed; /* an arrival was lost */

    mpath_wire_transfer_t *spare, *active;

    /* The call under way */
    const mpath_wire_ops_t *ops;
    void *argument;
    uint32_t nics; /* of the topology */
    int repeats;   /* over the others, when one fails */
    uint32_t lost; /* of them: a transfer has failed */
};

/* A transfer that is over, for the next one. */
void mpath_wire_transfer_put(mpath_wire_t *wire, mpath_wire_transfer_t *transfer);

/* As mpath_mover_sweep(). */
void mpath_wire_sweep(mpath_wire_t *wire, mpath_transfer_visit_t visit, void *argument);

/* The oldest arrival of the queue, the caller's to free; NULL: none. */
mpath_wire_waiting_t *mpath_wire_dequeue(mpath_wire_t *wire);

/* The fabric's callback; `argument` is the wire. */
void mpath_wire_arrive(void *argument, int nic, const mpath_arrival_t *arrival);

#endif
