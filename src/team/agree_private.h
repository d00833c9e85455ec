/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The inside of the agreement. The region in the node's segment has two halves, used in turn; each holds
 *
 *   cells    [num_local]              of this node's ranks: what each says, and how its small data lies
 *   result                            what all say; written by the leader where there are several nodes
 *   came     [num_nodes]              number of the call whose message of that node is here
 *   own      [size]                   of a rank of another node: number of the call whose data of it is here
 *   stride   [size]                   of that data
 *   pairs    [num_local][size]        bytes that a rank's leader is to send for it to each rank of other nodes
 *   expects  [num_local][size]        whether a rank waits for small data of each rank of other nodes
 *   rails    [num_local]              what a rank's pairs that are not small put on the NICs by static routes
 *   rows     [2][num_local][size]     those pairs: bytes sent, bytes received; agreements take turns, gathers between them have none
 *   demand   [size][size]             on one node only: row s: what rank s sends to each rank; written where it is another
 *   data     local [num_local][num_local]   small pairs of the node's own ranks; those of a rank that has larger ones lie
 *                                           in its outbox (team/outbox.h)
 *            out   [num_local][size]        those that the leader sends to other nodes
 *            in    [size][num_local]        those that came from there
 *            or, in a gather, [size] blocks, or what nodes have said: mpath_team_gather_few()
 *
 * Behind them lies what is not of a half: what each rank has left (team/outbox.h), and its beats (team/wait.h).
 *
 * A cell is published last, by storing the call's number in it (release). The small data of one rank lies at a common
 * stride, that of its largest small pair: 8-byte pairs share a cache line, and any pair is found without a sum.
 */
#ifndef MPATH_TEAM_AGREE_PRIVATE_H
#define MPATH_TEAM_AGREE_PRIVATE_H

#include "team/agree.h"
#include "team/attend.h"
#include "team/channel.h"
#include "team/outbox.h"
#include "team/wait.h"
#include "team/team_private.h"
#include "plan/pairs.h"

#include <stdatomic.h>
#include <stddef.h>

/*
 * What is agreed on: of one rank, or of several, put together by mpath_agree_record_add() in any order. The sums are over
 * pairs of ranks, of a hash of both and the bytes.
 */
typedef struct mpath_agree_record {
    uint32_t flags;                 /* OR */
    uint32_t lowest, highest;       /* operations */
    uint32_t lowest_by, highest_by; /* 1 + a rank that has it; 0: nobody has said anything */
    /* The most of any, by mpath_agree_round(): see mpath_agreed_t; the pair is of all, the others of pairs that are left */
    uint32_t pair_bytes, rank_bytes, cross_bytes, node_bytes, static_bytes;
    uint64_t left_sum, sum; /* of the pairs that are not small, of all */
    uint64_t difference;    /* the sum of all that is sent less that of all that is expected */
} mpath_agree_record_t;

_Static_assert(sizeof(mpath_agree_record_t) == 64, "it travels");

/* Of a record's flags. */
#define MPATH_AGREE_LEFT (1u << 31)       /* there are pairs that are not small, */
#define MPATH_AGREE_UNMET (1u << 30)      /* some of them with nodes that are not met, */
#define MPATH_AGREE_UNMET_MANY (1u << 29) /* and of a rank with many of these */
#define MPATH_AGREE_OWN_FLAGS (MPATH_AGREE_LEFT | MPATH_AGREE_UNMET | MPATH_AGREE_UNMET_MANY)

#define MPATH_AGREE_ROUND_BITS 26

/* 26 bits and an exponent, in the order of the numbers: rounded up. */
static inline uint32_t mpath_agree_round(uint64_t bytes)
{
    uint32_t shift = 0;

    while (bytes >> MPATH_AGREE_ROUND_BITS != 0) {
        bytes = (bytes >> 1) + (bytes & 1);
        shift++;
    }
    return shift << MPATH_AGREE_ROUND_BITS | (uint32_t)bytes;
}

static inline uint64_t mpath_agree_rounded(uint32_t number)
{
    uint64_t bytes = number & ((1u << MPATH_AGREE_ROUND_BITS) - 1);
    uint32_t shift = number >> MPATH_AGREE_ROUND_BITS;

    return bytes != 0 && shift >= 64 - MPATH_AGREE_ROUND_BITS ? UINT64_MAX : bytes << shift;
}

#define MPATH_AGREE_RAILS 16 /* with more there is no plan by pairs of nodes */

/* What a rank's pairs put on the NICs of its node by static routes: of each rail of the plan by pairs. */
typedef struct mpath_agree_rails {
    struct {
        uint64_t out, in;
    } of[MPATH_AGREE_RAILS]; /* written are those that the cell names */
} mpath_agree_rails_t;

/* What a rank says: a record of one, as far as it is not the same for all ranks of one. Written at once, at the end. */
typedef struct mpath_agree_cell {
    atomic_uint call;
    uint32_t flags, operation;
    uint32_t pair_bytes, rank_bytes, cross_bytes;
    uint32_t stride;     /* of the small data for this node */
    uint32_t out_stride; /* of that for others, which the leader sends */
    uint64_t left_sum, sum, difference;
    uint32_t
        row; /* where in this rank's outbox its data for this node is, where the stride says that it is there: in lines */
    uint8_t sends;   /* there is data for others: `pairs` is written */
    uint8_t expects; /* there is small data from other nodes for it: `expects` is written */
    uint16_t rails;  /* by which something else goes to or comes from other nodes, a bit each: written in `rails` */
    uint8_t padding[64];
} mpath_agree_cell_t;

_Static_assert(offsetof(mpath_agree_cell_t, padding) == 64, "each mate fetches one line of it in each call");
_Static_assert(sizeof(mpath_agree_cell_t) == 128,
               "processors fetch the neighbour of a line with it, which is not to be a mate's");

typedef struct mpath_agree_result {
    atomic_uint call;
    atomic_int awaited; /* the leader that this one waits for */
    atomic_uint marked; /* number of the last call of this half of which a mark of another node has come */
    mpath_agree_record_t record;
    uint8_t padding[48];
} mpath_agree_result_t;

_Static_assert(sizeof(mpath_agree_result_t) == 128, "two lines");

/* What a rank expects of another one. */
enum { MPATH_AGREE_EXPECTS_NONE, MPATH_AGREE_EXPECTS_SMALL, MPATH_AGREE_EXPECTS_OWN };

/* Of an operation: what decides about the form of the messages. */
#define MPATH_AGREE_COLLECTIVE 0xffu /* mpath_call_collective() */

/* Up to so many nodes every leader sends to every other one; beyond, in rounds: agree_nodes.c. */
#define MPATH_AGREE_DIRECT_NODES 4

/* Pairs up to this travel inside. Equal on all ranks. */
typedef struct mpath_agree_limits {
    uint64_t local_bytes;  /* on a node */
    uint64_t remote_bytes; /* between nodes; not more than local_bytes */
    uint64_t leader_bytes; /* between nodes, in the leaders' messages; not more than remote_bytes */
} mpath_agree_limits_t;

/* Offsets of a half in the region. */
typedef struct mpath_agree_offsets {
    size_t cells, result, came, own, stride, pairs, expects, rails, rows, demand, data;
} mpath_agree_offsets_t;

typedef struct mpath_agree_layout {
    mpath_agree_limits_t limits;
    uint64_t local_capacity, remote_capacity; /* of a small pair; multiples of 8 */
    uint64_t block_bytes;                     /* of a rank in a gather; a multiple of 8, at least 64 */
    mpath_agree_offsets_t halves[2];
    size_t left, beats;  /* offsets */
    size_t outbox_bytes; /* of this rank, if it has none yet; 0: none is needed */
    size_t bytes;
} mpath_agree_layout_t;

/* One of the halves. */
typedef struct mpath_agree_half {
    mpath_agree_cell_t *cells; /* by local rank */
    mpath_agree_result_t *result;
    atomic_uint *came; /* by node */
    atomic_uint *own;  /* by rank */
    uint32_t *stride;
    uint32_t *pairs;
    uint8_t *expects;
    mpath_agree_rails_t *rails; /* by local rank */
    uint64_t *rows;
    uint64_t rows_sent, rows_received; /* sums over the pairs that my rows have */
    uint64_t *demand;                  /* NULL on several nodes */
    uint64_t demand_sum;               /* of my row there, as a record has it */
    char *local, *out, *in, *blocks;
} mpath_agree_half_t;

struct mpath_agree_state {
    mpath_agree_layout_t layout;
    mpath_agree_half_t halves[2];
    atomic_uint *beats;            /* by rank, see team/wait.h */
    mpath_outbox_left_t *left;     /* by local rank */
    const mpath_segment_t **mates; /* by local rank: their outboxes; NULL: none are used. This rank's own: NULL */
    int *by_node;                  /* ranks, sorted by node, then rank */
    int *first_on;                 /* node -> its first index in by_node */
    uint64_t *scratch;             /* to find a wrong count */
    uint64_t *matrix;              /* rows of all ranks, see mpath_agree_demand(); NULL: never needed yet */
    char *gathered;                /* a leader's: blocks of all nodes, beginning with its own; NULL: of few nodes */
    int all_here;                  /* the ranks that are waited for are known to be in the call */
    int since;                     /* of mpath_team_gather_met() */
    int settling;                  /* the end of a call, and this node has not told the others that it is there */
    unsigned turn;                 /* which half has the rows of the last agreement */
    mpath_pairs_t *routes;         /* of the topology of that version; NULL: no plans by pairs of nodes */
    mpath_pairs_t *gpu_routes;     /* the same of device memory */
    unsigned routes_version, gpu_routes_version;
    int routes_are_known;
    mpath_attend_t attend;
};

/* A wait inside a call. */
typedef struct mpath_agree_wait {
    mpath_wait_t wait;
    mpath_team_t *team;
    int is_prepared; /* who comes last prepares none */
    int rank;        /* that is waited for, or MPATH_AGREE_LATE */
    int data_limit_s, late_limit_s;
    int uses_own;   /* messages of single ranks are under way here: the library has to run */
    int asks_rails; /* has waited so long that it does */
    uint64_t
        missing_ns; /* how long it had waited when it learned that something sent to it has not come; 0: nothing of that kind */
    int for_data; /* waits for data of one that is in the call */
} mpath_agree_wait_t;

/* The rest is set by the first moment of a wait: a short call has none. */
static inline void mpath_agree_wait_init(mpath_agree_wait_t *wait)
{
    wait->is_prepared      = 0;
    wait->uses_own         = 0;
    wait->for_data         = 0;
    wait->wait.idle.rounds = 0;
    wait->wait.is_told     = 0;
}

/* Shared memory that the ranks have for it; the same on all. */
typedef struct mpath_agree_memory {
    uint64_t bytes;        /* that each may still take */
    uint64_t outbox_bytes; /* the smallest outbox there is; UINT64_MAX: there is none */
    int needs_outbox;      /* some rank with node mates has none */
    uint64_t processes;    /* of the job, on the node that has most */
} mpath_agree_memory_t;

/*
 * Limits (the same on all ranks) and the layout on this node. MPATH_DECLINED, on all ranks, when the least that it needs
 * is more than memory_bytes allows, or than there is shared memory left.
 */
mpath_status_t mpath_agree_layout(const mpath_team_t *team, const mpath_agree_memory_t *memory,
                                  mpath_agree_layout_t *layout);
/* `region` is zeroed, 64-byte aligned. Makes the channels, too, but does not start them. */
mpath_status_t mpath_agree_create(mpath_team_t *team, const mpath_agree_layout_t *layout, void *region);
void mpath_agree_destroy(mpath_team_t *team);

/* team/agree_nodes.c: puts what others say to what one says. */
void mpath_agree_record_add(mpath_agree_record_t *record, const mpath_agree_record_t *other);

/* team/agree_wait.c: a wait begins anew. */
void mpath_agree_wait_start(mpath_agree_wait_t *wait);
#define MPATH_AGREE_LATE                                                                                               \
    (-1) /* who is late of those that the leader waits for, its mates first: found out when somebody asks */

/* Nothing has come of `rank`: a moment of the loop that all waits share. MPATH_OK to look again, or the team's status. */
mpath_status_t mpath_agree_idle(mpath_team_t *team, int rank, mpath_agree_wait_t *wait);

/*
 * team/agree_nodes.c: the leader's part, once the cells of its node are there. What it hears of other nodes it writes to
 * the segment, data included where the messages have some. An error breaks the team.
 */

/* The largest message from one node's leader to another's. */
size_t mpath_agree_message_max_bytes(const mpath_team_t *team, int from, int to);
/* What all nodes may say at once: mpath_team_gather_few(). */
static inline size_t mpath_agree_said_bytes(int num_nodes)
{
    return sizeof(mpath_team_few_t) + (size_t)num_nodes * MPATH_TEAM_ENTRY_BYTES;
}

/* Of what a leader of so many nodes gathers; 0: it needs no memory for it. */
size_t mpath_agree_gathered_bytes(const mpath_team_t *team);
/* *record: in: what this node says; out: what all say. Sends this node's small data, too. */
mpath_status_t mpath_agree_nodes_exchange(mpath_team_t *team, const mpath_call_t *call,
                                          const mpath_agree_limits_t *limits, mpath_agree_record_t *record,
                                          mpath_agree_wait_t *wait);
/* The same of a gather of `bytes` bytes of each rank. */
mpath_status_t mpath_agree_nodes_gather(mpath_team_t *team, const mpath_call_t *call, size_t bytes,
                                        mpath_agree_record_t *record, mpath_agree_wait_t *wait);
/* Whether mpath_team_gather_met() goes between this node and another one. */
static inline int mpath_agree_gathers_with(const mpath_team_t *team, int node)
{
    return node != team->node && team->met[node] > team->agree->since;
}

/* The same, with those nodes only: *record is what these say. */
mpath_status_t mpath_agree_nodes_gather_met(mpath_team_t *team, const mpath_call_t *call, size_t bytes,
                                            mpath_agree_record_t *record, mpath_agree_wait_t *wait);
/* mpath_team_gather_few(): with the entries of all nodes. */
mpath_status_t mpath_agree_nodes_say(mpath_team_t *team, const mpath_call_t *call, mpath_team_few_t *said,
                                     mpath_agree_wait_t *wait);
/* What is sent is what is expected: waits for the small data of the nodes that have some for this one. */
mpath_status_t mpath_agree_nodes_await_data(mpath_team_t *team, const mpath_call_t *call,
                                            const mpath_agree_limits_t *limits, mpath_agree_wait_t *wait);
/* A message of that call has come whose node has a mark. */
int mpath_agree_nodes_marked(const mpath_team_t *team, uint32_t call);
/*
 * The control plane lets go of this call's messages. `needed`: others wait for all of them, so that they end soon. Else nobody may take them, as small
 * data of a call that is left to the previous function, and no later call waits for them: one behind another has no place before that is taken.
 */
mpath_status_t mpath_agree_flush(mpath_team_t *team, int needed, mpath_agree_wait_t *wait);

/*
 * team/agree_remote.c: small data between nodes. A rank whose small pairs to a node are all within leader_bytes leaves them
 * to the leaders; else all of them go in one message from it to its taker there. The leader's own go with those that it
 * sends for others, whatever their size.
 */

/* Whether this rank sends its small pairs with `node` by itself. */
int mpath_agree_sends_own(const mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits,
                          int node);
size_t mpath_agree_own_max_bytes(const mpath_team_t *team, int destinations);
mpath_status_t mpath_agree_own_send(mpath_team_t *team, const mpath_call_t *call, const mpath_agree_limits_t *limits,
                                    mpath_agree_wait_t *wait);
/* The call is left, or has device memory: nobody takes the own data of ranks that has come. */
void mpath_agree_own_drop(mpath_team_t *team);
/* What is sent is what is expected: waits for the messages that this rank takes, and for those with data for it. */
mpath_status_t mpath_agree_own_await(mpath_team_t *team, const mpath_agree_limits_t *limits, mpath_agree_wait_t *wait);

/* The leader's: writes what this node's ranks have for `node`; the bytes used, 0 where there is nothing. */
size_t mpath_agree_data_pack(const mpath_team_t *team, int node, char *out);
size_t mpath_agree_data_max_bytes(const mpath_team_t *team, int sources, int destinations);
/* Spreads what came from a node over the segment. Zero where its length does not fit its sizes. */
int mpath_agree_data_unpack(mpath_team_t *team, const mpath_agree_limits_t *limits, int node, const char *in,
                            size_t bytes);

static inline int mpath_agree_is_local(const mpath_team_t *team, int rank)
{
    return team->node_of[rank] == team->node;
}

/* That of the call under way. */
static inline const mpath_agree_half_t *mpath_agree_half(const mpath_team_t *team)
{
    return &team->agree->halves[team->call & 1];
}

/* What all nodes say is not there yet. */
static inline int mpath_agree_lacks_result(const mpath_team_t *team)
{
    return atomic_load_explicit(&mpath_agree_half(team)->result->call, memory_order_acquire) != team->call;
}

/* What a rank of this node expects of one of another node. */
static inline int mpath_agree_expects(const mpath_team_t *team, int local_rank, int source)
{
    const mpath_agree_half_t *half = mpath_agree_half(team);

    return half->cells[local_rank].expects ? half->expects[(size_t)local_rank * (size_t)team->size + (size_t)source]
                                           : MPATH_AGREE_EXPECTS_NONE;
}

/* Whether a rank of another node sends those for this node by itself; the cells of this node are there. */
static inline int mpath_agree_brings_own(const mpath_team_t *team, const mpath_agree_limits_t *limits, int source)
{
    if (limits->leader_bytes == limits->remote_bytes || team->local_of[source] == 0) {
        return 0;
    }
    for (int i = 0; i < team->num_local; i++) {
        if (mpath_agree_expects(team, i, source) == MPATH_AGREE_EXPECTS_OWN) {
            return 1;
        }
    }
    return 0;
}

static inline int mpath_agree_data_is_missing(const mpath_team_t *team, int source)
{
    return atomic_load_explicit(&mpath_agree_half(team)->own[source], memory_order_acquire) != team->call;
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
