/* SPDX-License-Identifier: BSD-3-Clause */
/* The inside of the fabric, for fabric*.c only. */
#ifndef MPATH_RAIL_FABRIC_PRIVATE_H
#define MPATH_RAIL_FABRIC_PRIVATE_H

#include "rail/fabric.h"
#include "rail/rail.h"

#include <pthread.h>
#include <stdatomic.h>

#define LEFT_TEAMS 32 /* that a rail remembers */

/* An arrival that is not ended; users hold a copy whose private_data points here. */
typedef struct open_arrival {
    struct open_arrival *next, *previous;
    mpath_arrival_t arrival; /* as the lane gave it */
    int waiting;             /* its team has not joined yet */
} open_arrival_t;

typedef struct rail_team {
    uint64_t id;
    mpath_fabric_arrive_t arrive;
    void *argument;
} rail_team_t;

/* Peers without users keep their connection: the next communicator of the same processes finds it. */
typedef struct rail_peer {
    int number; /* the lane's */
    unsigned users;
    size_t bytes;
    void *address; /* NULL: the place is free */
} rail_peer_t;

/*
 * One instance of a NIC's lane, with its own address and connections. Most NICs have one all the time; see
 * rail/fabric.c.
 */
typedef struct rail {
    int number;         /* in the fabric */
    int nic;            /* of the machine; -1: free. Changes under the fabric's lock, then the rail's */
    atomic_int suspect; /* a team has lost it, or a connection of it: it is for those that have it already */
    pthread_mutex_t lock;
    mpath_lane_t *lane;    /* NULL until opened */
    int for_gpus;          /* it was opened to read and write their memory, too */
    mpath_status_t status; /* why it could not be opened, or lost a chunk */
    open_arrival_t *spare;
    rail_team_t *teams;
    size_t num_teams;
    open_arrival_t open; /* head of the ring of open arrivals, oldest first */
    uint64_t
        unused_ns; /* when the last team left it after it was replaced; 0: in use, or free. Under the fabric's lock */
    uint64_t left[LEFT_TEAMS]; /* ids of teams that have left, a ring; 0: none */
    size_t num_left;
    rail_peer_t *peers;
    size_t num_peers;
} rail_t;

/* GPU memory that rails use; that of a lost GPU is there until its owner takes it away, and counts no more. */
typedef struct fabric_memory {
    struct fabric_memory *next;
    const mpath_gpu_t *gpu;
    mpath_device_ptr_t address;
    size_t bytes;
} fabric_memory_t;

struct mpath_fabric {
    const mpath_settings_t *settings;
    const mpath_machine_t *machine;
    pthread_mutex_t lock;              /* of the choice of rails, before that of any rail */
    int newest[MPATH_MAX_NICS];        /* by NIC: the rail that new teams use */
    atomic_int num_peers, num_sharing; /* of rails that are opened from now on, see rail/rail.h */
    int num_rails;
    rail_t *rails;
    pthread_mutex_t memory_lock; /* of what follows; after that of any rail */
    fabric_memory_t *memory;
    char why[MPATH_MAX_NICS][MPATH_RAIL_WHY_MAX]; /* by NIC: of the last failure to open a rail on it */
};

static inline rail_t *rail_lock(mpath_fabric_t *fabric, int number)
{
    pthread_mutex_lock(&fabric->rails[number].lock);
    return &fabric->rails[number];
}

static inline void rail_unlock(rail_t *rail)
{
    pthread_mutex_unlock(&rail->lock);
}

#endif
