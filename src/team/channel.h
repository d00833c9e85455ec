/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Channels: the messages between the nodes of a team, over the control plane.
 *
 * The leader of a node (its lowest rank) has a channel with every other leader: it carries what the nodes tell each other
 * in an agreement, and notices. Every other rank has one to its taker on every other node, the rank of the same number there, modulo
 * that node's ranks: for its own small data, when that is too much for the leaders' message. The deputy (the second
 * rank of a node) sends and gets notices besides: when a leader has died its deputy tells the other nodes. Rank i (0 or
 * 1) of a node sends its notices to rank min(i, ranks of that node - 1) of every other node. A node of one rank has no
 * deputy; when that process dies, only an error of the control plane tells.
 *
 * A receive is posted on every channel at all times, so that no message waits for a place. One message per call and
 * direction, or a few: a channel that holds one of the next call is not read again before that call has used it.
 */
#ifndef MPATH_TEAM_CHANNEL_H
#define MPATH_TEAM_CHANNEL_H

#include "team/team_private.h"

typedef enum mpath_message_type {
    MPATH_MESSAGE_RECORD = 1, /* what a node says, or several; between few nodes its small data, too */
    MPATH_MESSAGE_NOTICE = 2,
    MPATH_MESSAGE_OWN    = 3,
    MPATH_MESSAGE_PULSE  = 4, /* between leaders: which ranks of a node look, see team/wait.h */
    MPATH_MESSAGE_DATA   = 5, /* small data of a node, between many */
    MPATH_MESSAGE_BLOCKS = 6, /* of a gather */
    MPATH_MESSAGE_SAID   = 8, /* mpath_team_gather_few() */
    MPATH_MESSAGE_MARK   = 7 /* a rank has come to the end of the call with a mark: mpath_team_settle(); between many */
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
    int32_t origin;       /* of a notice: the rank that broke the team; of records and blocks: the round */
    uint64_t limit_bytes; /* pairs up to this size travel in the message */
    uint64_t bytes;       /* of the whole message */
} mpath_message_t;

typedef enum mpath_channel_state {
    MPATH_CHANNEL_POSTED,  /* waits for a message */
    MPATH_CHANNEL_ARRIVED, /* holds one */
    MPATH_CHANNEL_FAILED   /* the control plane reported an error: the peer is gone, or has finished with the team */
} mpath_channel_state_t;

typedef struct mpath_channel {
    /* What looks need lies together: there are as many channels as nodes */
    mpath_channel_state_t state;
    int peer; /* rank */
    mpath_oob_request_t receive;
    char *in;
    size_t in_capacity, in_bytes; /* capacity 0: nothing comes */
    int node;
    int leads;      /* between leaders */
    int brings_own; /* the peer's own data comes here */
    int takes_own;  /* the peer takes mine */
    mpath_oob_request_t send, pulse;
    mpath_status_t status;   /* of a failed one */
    uint32_t marked_call;    /* the last one of which a mark has come */
    uint32_t sent, received; /* messages between leaders, without notices; modulo 2^32 */
    uint32_t sent_call;      /* when the last one was sent */
    int is_sending;          /* it is among channels->sending */
} mpath_channel_t;

struct mpath_channels {
    int count;
    mpath_channel_t *list;
    int next;     /* for mpath_channels_next() */
    int *sending; /* those whose last message may not have been let go of yet: indices in the list */
    int num_sending;
    int *of_node; /* node -> its leader's, an index in the list; NULL where this rank leads none */
    char *in;     /* of all channels */
    char *out;    /* where messages are written: whoever sends one has a copy taken */
    size_t in_bytes, out_capacity;
    mpath_message_t notice;
    int num_notices;
    int has_told;                 /* mpath_team_flush_notices() has waited for them, once */
    mpath_oob_request_t *notices; /* sends of my notice */
};

/* Largest messages, in bytes. */
typedef struct mpath_channel_capacities {
    size_t (*nodes)(const mpath_team_t *team, int from, int to); /* between leaders */
    size_t (*own)(const mpath_team_t *team, int destinations);   /* 0: ranks send none of their own */
} mpath_channel_capacities_t;

/* Makes this rank's channels, without posting anything. Leaves team->channels NULL where the rank has none. */
mpath_status_t mpath_channels_create(mpath_team_t *team, const mpath_channel_capacities_t *capacities);
/*
 * Posts the receives: after the last other use of the control plane between the ranks of the team. Errors are left in
 * the channels: the others have the team already, and learn of it in the first call.
 */
void mpath_channels_start(mpath_team_t *team);
void mpath_channels_destroy(mpath_team_t *team);

/*
 * Looks at a few channels, the next ones each time: a wait comes to all of them soon, and none of its passes costs more with
 * more nodes. A notice breaks the team. Returns the number of messages that have come in, or the status of the broken team.
 * *round_p, unless NULL, is set when the last channel was among them. Errors of the control plane are left in the channel:
 * they matter to who needs a message from there.
 */
#define MPATH_CHANNELS_LOOK 8
int mpath_channels_look(mpath_team_t *team, int *round_p);

/* The channel after the one of last time. */
mpath_channel_t *mpath_channels_next(mpath_channels_t *channels);

/* The rank of `node` that takes what the rank of this number on another node sends on its own. */
int mpath_channel_taker(const mpath_team_t *team, int node, int local_rank);

/*
 * Sends what lies in channels->out. A message before it that is still under way is left to the control plane. An error breaks
 * the team.
 */
mpath_status_t mpath_channel_send(mpath_team_t *team, mpath_channel_t *channel, size_t bytes);

/* The same of one. */
int mpath_channel_test(mpath_team_t *team, mpath_channel_t *channel);

/*
 * The message in the channel has been used, and is not posted again yet: gives its pages back, where it has some of its own. Libraries
 * that keep memory registered notice that, as they do when an application frees some.
 */
void mpath_channel_forget(mpath_channel_t *channel);

/* The message in the channel has been used. */
mpath_status_t mpath_channel_post(mpath_team_t *team, mpath_channel_t *channel);

/*
 * A leader says to those that it has sent something in this call how much it was, and whether the team is broken: over
 * the rails, see mpath_team_word_t.
 */
void mpath_channels_say(mpath_team_t *team, mpath_status_t reason, int origin);

#endif
