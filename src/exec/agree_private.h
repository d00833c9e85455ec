/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The inside of the agreement. The region in the node's segment has two halves, used in turn; each holds
 *
 *   cells   [size]                    of every rank of the team: a rank fills its own, the leader those of other nodes
 *   demand  [size][size]              row s: what rank s sends to each rank; written by whoever fills cell s
 *   data    [num_local][size * capacity]             small pairs of the node's own ranks
 *           [size - num_local][num_local * capacity] small pairs that came from other nodes
 *
 * A cell is published last, by storing the call's number in it (release). The small data of one rank lies at a common
 * stride, that of its largest small pair: 8-byte pairs share a cache line, and any pair is found without a sum.
 */
#ifndef MPATH_EXEC_AGREE_PRIVATE_H
#define MPATH_EXEC_AGREE_PRIVATE_H

#include "exec/agree.h"
#include "exec/attend.h"
#include "exec/channel.h"
#include "exec/idle.h"
#include "exec/team_private.h"

#include <stdatomic.h>

typedef struct mpath_agree_cell {
    atomic_uint call;
    uint32_t flags;
    uint32_t operation;
    uint32_t stride;   /* of the small data */
    uint64_t sum;      /* checksum of the pairs that are not small */
    uint64_t left;     /* their number */
    atomic_uint own;   /* number of the call whose data, sent by the rank itself, is here; written by its taker */
    atomic_uint beats; /* see attend.h; in the first half only */
    uint8_t padding[24];
} mpath_agree_cell_t;

_Static_assert(sizeof(mpath_agree_cell_t) == 64, "one line");

/* Pairs up to this travel inside. Equal on all ranks. */
typedef struct mpath_agree_limits {
    uint64_t local_bytes;  /* on a node */
    uint64_t remote_bytes; /* between nodes; not more than local_bytes */
    uint64_t leader_bytes; /* between nodes, in the leaders' messages; not more than remote_bytes */
} mpath_agree_limits_t;

typedef struct mpath_agree_layout {
    mpath_agree_limits_t limits;
    uint64_t capacity; /* room for a small pair; a multiple of 8, at least 64 */
    size_t data_offset[2], demand_offset[2], cells_offset[2];
    size_t bytes;
} mpath_agree_layout_t;

struct mpath_agree_state {
    mpath_agree_layout_t layout;
    mpath_agree_cell_t *cells[2];
    uint64_t *demand[2];
    char *data[2];
    uint32_t call;     /* number of the last call */
    int *by_node;      /* ranks, sorted by node, then rank */
    int *first_on;     /* node -> its first index in by_node */
    int *index_of;     /* rank -> row of the data: own node's first, then the others' in order of by_node */
    uint64_t *scratch; /* arrays for mpath_team_allgather() */
    int all_here;      /* the ranks that are waited for are known to be in the call */
    int settling;      /* the end of a call, and this node has not told the others that it is there */
    mpath_attend_t attend;
};

/* A wait inside a call. */
typedef struct mpath_agree_wait {
    mpath_idle_t idle;
    unsigned rounds;
    uint64_t next_check_ns, next_warn_ns;
    int uses_own; /* messages of single ranks are under way here: the library has to run */
    int for_own;  /* waits for one, whose row has come */
} mpath_agree_wait_t;

/*
 * Limits (the same on all ranks) and the layout on this node. MPATH_DECLINED, on all ranks, when the rows alone take
 * more than memory_bytes allows.
 */
mpath_status_t mpath_agree_layout(const mpath_team_t *team, mpath_agree_layout_t *layout);
/* `region` is zeroed, 64-byte aligned. Makes the channels, too, but does not start them. */
mpath_status_t mpath_agree_create(mpath_team_t *team, const mpath_agree_layout_t *layout, void *region);
void mpath_agree_destroy(mpath_team_t *team);

/* agree_wait.c: waits until the ranks' cells are published for the current call; MPATH_OK or the team's status. */
mpath_status_t mpath_agree_await(mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits,
                                 const int *ranks, int count, mpath_agree_wait_t *wait);
void mpath_agree_wait_start(mpath_agree_wait_t *wait, const mpath_team_t *team);
/* One idle round of a wait for `rank`. */
mpath_status_t mpath_agree_idle(mpath_team_t *team, int rank, mpath_agree_wait_t *wait);

/*
 * agree_own.c: what a rank sends to another node by itself. A rank whose small pairs to a node are all within
 * leader_bytes leaves them to the leaders; else all of them go in one message from it to its taker there. The leader's
 * own go with the rows, whatever their size.
 */
/* Largest pair from source to `node` that the leaders carry; the row is there. */
uint64_t mpath_agree_by_leader(const mpath_team_t *team, const mpath_agree_limits_t *limits, int source, int node);
size_t mpath_agree_own_room(const mpath_team_t *team, int destinations);
mpath_status_t mpath_agree_own_send(mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits,
                                    mpath_agree_wait_t *wait);
int mpath_agree_own_is_missing(const mpath_team_t *team, int source);
/* All cells are published: waits for the messages that this rank takes, and for those with data for it. */
mpath_status_t mpath_agree_own_await(mpath_team_t *team, const mpath_agree_limits_t *limits, mpath_agree_wait_t *wait);

/* agree_remote.c: the leader's part. */
size_t mpath_agree_message_room(const mpath_team_t *team, int sources, int destinations);
/* Sends what lies in a channel's `out`. An error breaks the team. */
mpath_status_t mpath_agree_post(mpath_team_t *team, mpath_channel_t *channel, size_t bytes);
mpath_status_t mpath_agree_send(mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits,
                                mpath_agree_wait_t *wait);
/* Takes what has come in; number of messages, or a status. */
int mpath_agree_receive(mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits);
/* A message of the next call has come whose node has a mark. */
int mpath_agree_remote_marked(const mpath_team_t *team);
/* Waits until the control plane has let go of this call's messages. */
mpath_status_t mpath_agree_flush(mpath_team_t *team, mpath_agree_wait_t *wait);

static inline int mpath_agree_is_local(const mpath_team_t *team, int rank)
{
    return team->node_of[rank] == team->node;
}

/* Where the small data from `source` lies in a half; slots of a source of this node are by rank, else by local rank. */
static inline char *mpath_agree_data(const mpath_team_t *team, int half, int source)
{
    const mpath_agree_state_t *state = team->agree;
    size_t index                     = (size_t)state->index_of[source];
    size_t num_local                 = (size_t)team->num_local;
    size_t own_row                   = (size_t)team->size * state->layout.capacity;

    if (index < num_local) {
        return state->data[half] + index * own_row;
    }
    return state->data[half] + num_local * own_row + (index - num_local) * num_local * state->layout.capacity;
}

static inline uint64_t mpath_agree_limit(const mpath_team_t *team, const mpath_agree_limits_t *limits, int source,
                                         int destination)
{
    return team->node_of[source] == team->node_of[destination] ? limits->local_bytes : limits->remote_bytes;
}

static inline uint32_t mpath_agree_stride(uint64_t largest_bytes)
{
    return (uint32_t)((largest_bytes + 7) & ~7ull);
}

#endif
