/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Channels: the messages between the nodes of a team, over the control plane.
 *
 * The leader of a node (its lowest rank) has a channel with every other leader: it carries the rows of an agreement,
 * and notices. Every other rank has one to its taker on every other node, the rank of the same number there, modulo
 * that node's ranks: for its own small data, when that is too much for the leaders' message. The deputy (the second
 * rank of a node) sends and gets notices besides: when a leader has died its deputy tells the other nodes. Rank i (0 or
 * 1) of a node sends its notices to rank min(i, ranks of that node - 1) of every other node. A node of one rank has no
 * deputy; when that process dies, only an error of the control plane tells.
 *
 * A receive is posted on every channel at all times, so that no message waits for a place. One message per call and
 * direction: a channel that holds the message of the next call is not read again before that call has used it.
 */
#ifndef MPATH_EXEC_CHANNEL_H
#define MPATH_EXEC_CHANNEL_H

#include "exec/team_private.h"

typedef enum mpath_message_type {
    MPATH_MESSAGE_ROWS   = 1,
    MPATH_MESSAGE_NOTICE = 2,
    MPATH_MESSAGE_OWN    = 3,
    MPATH_MESSAGE_PULSE  = 4 /* between leaders: which ranks of a node look, see attend.h */
} mpath_message_type_t;

#define MPATH_MESSAGE_MAGIC 0x6d706368u
#define MPATH_PULSE_RANKS 256 /* of a node, at most; of the others no silence is proved */

/* Begins every message. */
typedef struct mpath_message {
    uint32_t magic;
    uint32_t type; /* mpath_message_type_t */
    uint32_t call;
    uint32_t operation;
    int32_t reason;       /* of a notice: mpath_status_t */
    int32_t origin;       /* of a notice: the rank that broke the team */
    uint64_t limit_bytes; /* pairs up to this size travel in the message */
    uint64_t bytes;       /* of the whole message */
} mpath_message_t;

typedef enum mpath_channel_state {
    MPATH_CHANNEL_POSTED,  /* waits for a message */
    MPATH_CHANNEL_ARRIVED, /* holds one */
    MPATH_CHANNEL_FAILED   /* the control plane reported an error: the peer is gone, or has finished with the team */
} mpath_channel_state_t;

typedef struct mpath_channel {
    int peer; /* rank */
    int node;
    int carries_rows; /* between leaders */
    int brings_own;   /* the peer's own data comes here */
    int takes_own;    /* the peer takes mine */
    mpath_channel_state_t state;
    mpath_status_t status; /* of a failed one */
    mpath_oob_request_t receive, send, pulse;
    char *in, *out;
    size_t in_room, in_bytes, out_room; /* in_room 0: nothing comes */
} mpath_channel_t;

struct mpath_channels {
    int count;
    mpath_channel_t *list;
    mpath_message_t notice;
    int num_notices;
    mpath_oob_request_t *notices; /* sends of my notice */
};

/* Largest messages, in bytes. */
typedef struct mpath_channel_rooms {
    size_t (*rows)(const mpath_team_t *team, int sources, int destinations);
    size_t (*own)(const mpath_team_t *team, int destinations); /* 0: ranks send none of their own */
} mpath_channel_rooms_t;

/* Makes this rank's channels, without posting anything. Leaves team->channels NULL where the rank has none. */
mpath_status_t mpath_channels_create(mpath_team_t *team, const mpath_channel_rooms_t *rooms);
/*
 * Posts the receives: after the last other use of the control plane between the ranks of the team. Errors are left in
 * the channels: the others have the team already, and learn of it in the first call.
 */
void mpath_channels_start(mpath_team_t *team);
void mpath_channels_destroy(mpath_team_t *team);
uint64_t mpath_channels_memory_bytes(const mpath_team_t *team);

/*
 * Looks at every channel. A notice breaks the team. Returns the number of messages that have come in, or the status of
 * the broken team. Errors of the control plane are left in the channel: they matter to who needs a message from there.
 */
int mpath_channels_test(mpath_team_t *team);

/* The rank of `node` that takes what the rank of this number on another node sends on its own. */
int mpath_channel_taker(const mpath_team_t *team, int node, int local_rank);

/* attend.c: a pulse has come. */
void mpath_attend_pulse(mpath_team_t *team, int node, const char *looked, size_t bytes);

/* The message in the channel has been used. */
mpath_status_t mpath_channel_post(mpath_team_t *team, mpath_channel_t *channel);

/* Tells the other nodes that the team is broken; once. */
void mpath_channels_notify(mpath_team_t *team, mpath_status_t reason, int origin);

#endif
