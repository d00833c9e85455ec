/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lane "shm": host memory shared by the processes of a node. Every process has a queue of slots, in which all others, of
 * whatever communicator, leave chunks for it; slots are taken, filled and freed in any order. So the memory depends on the
 * number of processes, neither on that of pairs nor of communicators. Queues are made when they are first needed, and
 * end with the last lane of their process that uses them.
 *
 * Threads: the lanes of a process may be used by different threads at a time, one at each. Whoever looks into the queue
 * hands the chunks of other lanes to these, which get them when they look themselves. So who waits with one lane lets all
 * others of its process go on meanwhile (the turns of team/wait.h): else their chunks would fill the queue.
 *
 * Memory layout of a queue: see shm.c.
 */
#ifndef MPATH_LANE_SHM_H
#define MPATH_LANE_SHM_H

#include "lane/lane.h"
#include "lane/segment.h"

#define MPATH_SHM_DEPTH_MAX 64 /* slots of a queue */

typedef struct mpath_shm_shape {
    uint32_t depth;      /* slots */
    uint32_t slot_bytes; /* payload of a slot */
} mpath_shm_shape_t;

/*
 * Chooses depth and slot size of a queue for `num_ranks` processes so that it takes at most `memory_bytes` and a slot
 * at most `chunk_bytes`; what mpath_shm_least_bytes() says at least, whatever the limit.
 */
void mpath_shm_shape_choose(int num_ranks, uint64_t memory_bytes, uint64_t chunk_bytes, mpath_shm_shape_t *shape);
uint64_t mpath_shm_least_bytes(void);
size_t mpath_shm_queue_bytes(const mpath_shm_shape_t *shape);

/* The queues of a process. */
typedef struct mpath_shm mpath_shm_t;

mpath_status_t mpath_shm_create(mpath_shm_t **shm_p);
/* All ports have been given back. */
void mpath_shm_destroy(mpath_shm_t *shm);

/* Chunks of one kind never wait in a queue for those of another. */
typedef enum mpath_shm_kind {
    MPATH_SHM_LAST,  /* for their destination */
    MPATH_SHM_RELAY, /* for a relay */
    MPATH_SHM_KINDS
} mpath_shm_kind_t;

/* A queue of this process. */
typedef struct mpath_shm_port mpath_shm_port_t;

/*
 * One of the kind whose slots are large enough; there may be several. MPATH_DECLINED: there is none. Each success is
 * undone by mpath_shm_port_put().
 */
mpath_status_t mpath_shm_port_find(mpath_shm_t *shm, mpath_shm_kind_t kind, uint32_t slot_bytes,
                                   mpath_shm_port_t **port_p);
mpath_status_t mpath_shm_port_create(mpath_shm_t *shm, mpath_shm_kind_t kind, const mpath_shm_shape_t *shape,
                                     mpath_shm_port_t **port_p);
void mpath_shm_port_put(mpath_shm_port_t *port);
/* Where others find it, and its payloads. */
const mpath_segment_address_t *mpath_shm_port_address(const mpath_shm_port_t *port);
uint32_t mpath_shm_port_slot_bytes(const mpath_shm_port_t *port);
size_t mpath_shm_port_bytes(const mpath_shm_port_t *port);

/*
 * A lane of `num_ranks` processes by numbers from 0 on, this one is `my_rank`; queues[r] is that of process r, this one's
 * not looked at. What is sent has `id` as its chunk's team, which no other lane of these processes has at that time, and is for the lane
 * that has it there; where there is none (any more) it is dropped. All have opened their lanes before one of them sends.
 */
mpath_status_t mpath_shm_open(mpath_shm_port_t *port, uint64_t id, const mpath_segment_address_t *queues, int num_ranks,
                              int my_rank, mpath_lane_t **lane_p);
/* Chunks of calls up to this number are dropped, also those that wait, and no others; of all calls. */
void mpath_shm_drop_until(mpath_lane_t *lane, uint32_t call);
void mpath_shm_drop_all(mpath_lane_t *lane);

#endif
