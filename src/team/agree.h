/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Agreement: step 2 of a collective. One exchange of constant size, whatever the number of ranks: every rank's
 * eligibility, and sums over hashes of what is sent and expected; and the data of small pairs with it. Inside a node it
 * goes through cells in shared memory, between nodes from leader (a node's lowest rank) to leader, see doc/scale.md.
 *
 * Cells are double buffered: call k uses half k % 2. A rank that fills half k % 2 has seen all its node mates in call
 * k - 1, so nobody still reads what call k - 2 left there.
 */
#ifndef MPATH_TEAM_AGREE_H
#define MPATH_TEAM_AGREE_H

#include "team/team.h"
#include "device/memory.h"

#include <stdint.h>

/* Flags of a call; the agreed value is the OR over all ranks. */
enum {
    MPATH_CALL_INELIGIBLE = 1u << 0, /* this rank cannot let mpath carry this call */
    MPATH_CALL_IN_PLACE   = 1u << 1,
    MPATH_CALL_MARKED     = 1u << 3, /* see mpath_team_settle() */
    MPATH_CALL_DEVICE     = 1u << 2, /* this rank has device memory, which the agreement must not touch */
    MPATH_CALL_APART      = 1u << 4, /* see mpath_relay_publish() and mpath_share_gpus_call_flags() */
    MPATH_CALL_GPUS       = 1u << 7, /* this rank's process uses GPUs: a later call may have device memory */
    MPATH_CALL_SHORT      = 1u << 6, /* this rank's GPU is short of memory: see mpath_relay_prepare() */
    MPATH_CALL_LOST       = 1u << 8, /* this rank has another GPU or context than relays: see mpath_relay_prepare() */
    MPATH_CALL_FOREIGN    = 1u << 9, /* to the MPI: the previous function cannot read this rank's device memory */
    MPATH_CALL_RATES   = 1u << 11,   /* this rank's process knows other rates of rails: mpath_coll_rates_call_flags() */
    MPATH_CALL_BUSY    = 1u << 12,   /* see mpath_share_call_flags() */
    MPATH_CALL_WATCHED = 1u << 13,   /* this rank tells of the whole matrix: see mpath_coll_create() */
    MPATH_CALL_SLOW    = 1u << 10,   /* this rank's last call of this operation was: see mpath_doubt_t */
    MPATH_CALL_MOVED   = 1u << 5     /* a buffer of this rank is in memory that others may not have opened yet */
};

/* Of mpath_call_t.operation. */
static inline uint32_t mpath_call_collective(uint32_t operation)
{
    return operation & 0xff;
}

typedef struct mpath_call mpath_call_t;

struct mpath_call {
    /*
     * Which collective, in the lowest byte, and what else the ranks have to give alike: ranks that differ get
     * MPATH_ERR_PARAM, logged with both.
     */
    uint32_t operation;
    void (*operation_text)(uint32_t operation, char *text, size_t size); /* in words; NULL: as a number */
    uint32_t flags;
    /* Bytes for each rank and where they lie; contiguous. All arrays have team size entries. */
    const uint64_t *send_bytes;
    const uint64_t *send_offsets; /* bytes from send_buffer */
    const void *send_buffer;
    const uint64_t *recv_bytes;
    const uint64_t *recv_offsets;
    void *recv_buffer;
    const mpath_memory_t *send_memory, *recv_memory; /* NULL: host memory */
    /*
     * Where all ranks can work on copies in host memory: makes them, of every buffer of this rank that is in device memory,
     * and describes the call by them, in the middle of it. An error is this rank's own. NULL: not here, on all ranks alike.
     */
    mpath_status_t (*to_host)(mpath_call_t *call, void *user);
    void *user;
};

/* Whether some rank has pairs that are left with nodes that its own has not met: mpath_team_meet(). Many: with a quarter of all nodes. */
typedef enum mpath_agreed_unmet { MPATH_UNMET_NONE, MPATH_UNMET_SOME, MPATH_UNMET_MANY } mpath_agreed_unmet_t;

typedef struct mpath_agreed {
    uint32_t call;  /* number of this call on the team */
    uint32_t flags; /* OR over the ranks */
    /*
     * [source * size + destination] bytes, all ranks; valid until the next call on the team, gathers included. NULL on
     * several nodes: see mpath_agree_demand().
     */
    const uint64_t *demand;
    uint64_t signature;     /* checksum of the demand that is left (without what travelled inside) */
    uint64_t largest_bytes; /* of all pairs of two ranks */
    int finished;           /* all data has arrived inside the agreement (or there was none) */
    mpath_agreed_unmet_t unmet;
    /*
     * Of the pairs that are left, on several nodes, the last two where there are plans by pairs of nodes (plan/pairs.h), else 0: the most that a
     * rank, and that it to or from other nodes, sends or receives; that a node does over its NICs; that a NIC does on
     * static routes. Rounded up by 2^-25 at most where they are above 2^26.
     */
    uint64_t busiest_bytes, cross_bytes, node_bytes, static_bytes;
    /*
     * The pairs that are left of this node's ranks, in their order: [i * size + other] bytes that each sends, and receives.
     * Valid until this rank's next agreement. NULL where node_bytes is not known.
     */
    const uint64_t *node_sends, *node_receives;
    uint64_t inline_bytes;        /* pairs of a node up to this size have travelled inside */
    uint64_t inline_remote_bytes; /* the same between nodes; not more than inline_bytes */
} mpath_agreed_t;

/*
 * Collective. On MPATH_OK all ranks hold the same agreed values (and flags, so that all decide alike). When no rank is
 * ineligible, the small pairs (mpath_agreed_inline_bytes()) are already in the receive buffer, the rank's own diagonal
 * excepted; nothing is delivered when some rank is ineligible or has device memory (the signature means nothing in the
 * former case, and covers all pairs in the latter).
 * A size that differs between sender and receiver is MPATH_ERR_TRUNCATED, on all ranks; the receiver names both.
 * Waits for late ranks as long as their processes live (agree_timeout_s may end that), saying who is late from time to
 * time; fails when one is gone or the team is broken.
 */
mpath_status_t mpath_agree(mpath_team_t *team, const mpath_call_t *call, mpath_agreed_t *agreed);

/*
 * Collective, right after a call that has been agreed on, for whoever needs the whole matrix: sets agreed->demand where it is
 * NULL, valid until the next time. Carries the rows of all ranks to all ranks.
 */
mpath_status_t mpath_agree_demand(mpath_team_t *team, const mpath_call_t *call, mpath_agreed_t *agreed);

/* Up to which size messages from source to destination have travelled inside. */
uint64_t mpath_agreed_inline_bytes(const mpath_team_t *team, const mpath_agreed_t *agreed, int source, int destination);

#endif
