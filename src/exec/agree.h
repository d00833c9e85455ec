/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Agreement: step 2 of a collective. One exchange carries each rank's eligibility and its row of byte counts to all
 * ranks, and the data of small pairs with it. Inside a node it goes through cells in shared memory, between nodes each
 * node's leader (its lowest rank) sends one message to every other leader.
 *
 * Cells are double buffered: call k uses half k % 2. A rank that fills half k % 2 has seen all its node mates in call
 * k - 1, so nobody still reads what call k - 2 left there.
 */
#ifndef MPATH_EXEC_AGREE_H
#define MPATH_EXEC_AGREE_H

#include "exec/team.h"
#include "gpu/memory.h"

#include <stdint.h>

/* Flags of a call; the agreed value is the OR over all ranks. */
enum {
    MPATH_CALL_INELIGIBLE = 1u << 0, /* this rank cannot let mpath carry this call */
    MPATH_CALL_IN_PLACE   = 1u << 1,
    MPATH_CALL_MARKED     = 1u << 3,  /* see mpath_team_settle() */
    MPATH_CALL_DEVICE     = 1u << 2,  /* this rank has device memory, which the agreement must not touch */
    MPATH_CALL_APART      = 1u << 4,  /* see mpath_relay_tell() and mpath_share_gpus_tell() */
    MPATH_CALL_GPUS       = 1u << 7,  /* this rank's process uses GPUs: a later call may have device memory */
    MPATH_CALL_SHORT      = 1u << 6,  /* this rank's GPU is short of memory: see mpath_relay_prepare() */
    MPATH_CALL_LOST       = 1u << 8,  /* this rank has another GPU or context than relays: see mpath_relay_prepare() */
    MPATH_CALL_FOREIGN    = 1u << 9,  /* to the MPI: the previous function cannot read this rank's device memory */
    MPATH_CALL_RATES      = 1u << 11, /* this rank's process knows other rates of rails: mpath_coll_rates_tell() */
    MPATH_CALL_SLOW       = 1u << 10, /* this rank's last call of this operation was: see mpath_doubt_t */
    MPATH_CALL_MOVED      = 1u << 5   /* a buffer of this rank is in memory that others may not have opened yet */
};

typedef struct mpath_call {
    uint32_t operation; /* which collective; ranks that differ get MPATH_ERR_PARAM, logged with both */
    uint32_t flags;
    /* Bytes for each rank and where they lie; contiguous. All arrays have team size entries. */
    const uint64_t *send_bytes;
    const uint64_t *send_offsets; /* bytes from send_buffer */
    const void *send_buffer;
    const uint64_t *recv_bytes;
    const uint64_t *recv_offsets;
    void *recv_buffer;
    const mpath_memory_t *send_memory, *recv_memory; /* NULL: host memory */
} mpath_call_t;

typedef struct mpath_agreed {
    uint32_t call;  /* number of this call on the team */
    uint32_t flags; /* OR over the ranks */
    /* [source * size + destination] bytes, all ranks; valid until the next call on the team, gathers included. */
    const uint64_t *demand;
    uint64_t signature;           /* checksum of the demand that is left (without what travelled inside) */
    int finished;                 /* all data has arrived inside the agreement (or there was none) */
    uint64_t inline_bytes;        /* pairs of a node up to this size have travelled inside */
    uint64_t inline_remote_bytes; /* the same between nodes; not more than inline_bytes */
} mpath_agreed_t;

/*
 * Collective. On MPATH_OK all ranks hold the same agreed values (and flags, so that all decide alike). When no rank is
 * ineligible, the small pairs (mpath_agreed_inline_bytes()) are already in the receive buffer, the rank's own diagonal
 * excepted; nothing is delivered when some rank is ineligible or has device memory (then the signature does not cover
 * all pairs).
 * A size that differs between sender and receiver is reported with both ranks: MPATH_ERR_TRUNCATED at the receiver.
 * Waits for late ranks as long as their processes live (agree_timeout_s may end that), saying who is late from time to
 * time; fails when one is gone or the team is broken.
 */
mpath_status_t mpath_agree(mpath_team_t *team, const mpath_call_t *call, mpath_agreed_t *agreed);

/* Up to which size messages from source to destination have travelled inside. */
uint64_t mpath_agreed_inline_bytes(const mpath_team_t *team, const mpath_agreed_t *agreed, int source, int destination);

#endif
