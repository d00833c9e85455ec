/* SPDX-License-Identifier: BSD-3-Clause */
/* For the tests of the rail lane: ranks as child processes, each with a rail on TCP over the loopback device. */
#ifndef MPATH_TESTS_UNIT_RAIL_SUPPORT_H
#define MPATH_TESTS_UNIT_RAIL_SUPPORT_H

#include "lane/segment.h"
#include "rail/rail.h"
#include "unit/lane_child.h"

#include <stdatomic.h>
#include <sys/types.h>

#define RAIL_MAX_RANKS 4
#define RAIL_MAX_CHUNK (128u * 1024)
#define RAIL_MAX_OPEN (1u << 20)
#define INBOX_CHUNKS 1000 /* of RAIL_MAX_CHUNK: 125 MiB, more than any socket buffers */

/* What the processes of a test share. */
typedef struct rail_world {
    int num_ranks;
    struct {
        atomic_int ready;
        size_t bytes;
        char address[MPATH_RAIL_ADDRESS_MAX];
        pid_t pid;
    } ranks[RAIL_MAX_RANKS];
    atomic_int step;                                /* raised by the processes, as each test wants */
    atomic_int asleep;                              /* reads no more */
    atomic_int sent, finished;                      /* chunks, of the quiet sender */
    atomic_int done;                                /* processes that need nothing any more */
    mpath_segment_address_t queues[RAIL_MAX_RANKS]; /* of shm lanes */
} rail_world_t;

typedef void (*rail_rank_main_t)(rail_world_t *world, int rank, mpath_lane_t *rail);

/* Chunks that came in, in the order of their arrival. */
typedef struct rail_inbox {
    mpath_arrival_t arrivals[INBOX_CHUNKS];
    int count, ended, expected;
} rail_inbox_t;

/* Device and transports (NULL: the default ones) of the rails to come. */
extern const char *rail_nic, *rail_tls;

/* NULL: it did not open. */
mpath_lane_t *rail_open(size_t max_open);
/* Lets the rail run, or others when there is nothing to do. */
void rail_turn(mpath_lane_t *rail);
/* Nobody closes a connection that another still uses. */
void rail_leave(rail_world_t *world, mpath_lane_t *rail);
/* Runs rank_main in num_ranks processes. All must end well, but `victim` (-1: none) by SIGKILL. */
void rail_run_ranks(int num_ranks, int victim, rail_rank_main_t rank_main);
/* Runs child_main in a process of its own, which must end well. */
void rail_run_child(void (*child_main)(void));
/* Keeps the arrival; the argument is an inbox. */
void rail_inbox_arrive(void *argument, const mpath_arrival_t *arrival);
/* Sends `chunks` chunks to the peer and ends as many of its own; the inbox is the rail's. */
void rail_exchange(mpath_lane_t *rail, int peer, rail_inbox_t *inbox, int chunks);
/* 0, or, having said that UCX cannot open a rail here, the exit status of a test that is left out. */
int rail_check_missing(void);

#endif
