/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Relay segment: the memory that ranks on one host share to move device memory in chunks (mover/relay.h). One per team and
 * host, made collectively. Ranks of the host are known by their number in `members`.
 *
 *   pools     [members]             export of each rank's slots; written once, before the others look
 *   cells     [2][members]          what a rank tells of its receive buffer in a call
 *   offsets   [2][members][ranks]   where in that buffer the message of each source belongs
 *   gates     [members]             which slots of a rank are free
 *   rings     [consumer][producer]  chunks that the producer has put into slots of the consumer, or into its receive
 *                                   buffer
 *
 * Cells are double buffered as those of the agreement: call k uses half k % 2, written before the agreement of call k
 * and read after it. Slots are free and rings empty between calls: nobody begins a call before all have ended the one
 * before.
 */
#ifndef MPATH_MOVER_RELAY_SEGMENT_H
#define MPATH_MOVER_RELAY_SEGMENT_H

#include "team/team.h"
#include "device/ipc_export.h"
#include "lane/segment.h"
#include "util/process.h"

#include <stdatomic.h>

#define MPATH_RELAY_MAX_RANKS 16384 /* of a team, and */
#define MPATH_RELAY_MAX_MEMBERS 64  /* of a host: masks of members are words */
#define MPATH_RELAY_MAX_SLOTS 32    /* of each class */
#define MPATH_RELAY_RING 128        /* more than all slots that one producer can fill for one consumer */

/*
 * Classes of slots: a chunk in one waits only for room in the next, and at last for a receive buffer, which always has
 * it. HOST slots are pinned memory of the rank that fills them; the others are memory of the GPU that passes them on.
 */
typedef enum mpath_relay_class {
    MPATH_RELAY_TO_RAIL, /* a rail comes next */
    MPATH_RELAY_TO_LAST, /* the destination comes next */
    MPATH_RELAY_ON_HOST, /* the destination fetches it */
    MPATH_RELAY_CLASSES
} mpath_relay_class_t;

typedef struct mpath_relay_cell {
    uint64_t generation; /* as long as it stays the same, so does the memory */
    mpath_process_t process;
    uint64_t address;      /* of the receive buffer, in its owner */
    mpath_export_t memory; /* how NONE: nothing to receive */
} mpath_relay_cell_t;

/* A line each. */
typedef struct mpath_relay_gate {
    _Atomic uint64_t free[MPATH_RELAY_CLASSES]; /* bit per slot */
    _Atomic mpath_nic_set_t nics_busy;          /* NICs that chunks for the rank come by, busy with its owner's bytes */
    uint8_t padding[32];
} mpath_relay_gate_t;

typedef struct mpath_relay_ring {
    _Atomic uint64_t head;         /* entries ever put in; written by the producer */
    _Atomic uint64_t landed_bytes; /* ever put into the consumer's receive buffers, by the producer */
    uint64_t tail;                 /* entries taken out; the consumer's */
    uint8_t padding[40];
    _Atomic uint64_t entries[MPATH_RELAY_RING];
} mpath_relay_ring_t;

typedef struct mpath_relay_segment {
    mpath_team_t *team;
    int size, me; /* of the team */
    int num_members, my_member;
    int members[MPATH_RELAY_MAX_MEMBERS]; /* member -> rank, ascending */
    int8_t *member_of;                    /* rank -> member; -1: on another host */
    mpath_segment_t segment;
    mpath_export_t *pools;
    mpath_relay_cell_t *cells[2];
    uint64_t *offsets[2];
    mpath_relay_gate_t *gates;
    mpath_relay_ring_t *rings;
} mpath_relay_segment_t;

/* Every rank of the team has it: MPATH_OK; else the first error, or that of the exchange. Collective. */
mpath_status_t mpath_relay_all(mpath_team_t *team, mpath_status_t mine);

/*
 * Collective: the first of each host's members makes a segment, the others attach it. `members` as in the struct: the ranks of a
 * node, or all.
 * Either all ranks of the team have their segment or all get an error, logged where it arose.
 */
mpath_status_t mpath_relay_segment_open(mpath_team_t *team, const int *members, int num_members,
                                        mpath_relay_segment_t *shared);
void mpath_relay_segment_close(mpath_relay_segment_t *shared);
/* Collective, in the same way: one more segment of the members. */
mpath_status_t mpath_relay_segment_share(const mpath_relay_segment_t *shared, size_t bytes, mpath_segment_t *segment);

/* A free slot of the class with a number below `slots`, now taken; -1: none. */
int mpath_relay_slot_take(mpath_relay_gate_t *gate, mpath_relay_class_t slot_class, int slots);
void mpath_relay_slot_give(mpath_relay_gate_t *gate, mpath_relay_class_t slot_class, int slot);

static inline mpath_relay_ring_t *mpath_relay_ring(const mpath_relay_segment_t *shared, int consumer, int producer)
{
    return &shared->rings[consumer * shared->num_members + producer];
}

/* An entry: flow, chunk (24 bits), class (2 bits), slot (6 bits). */
#define MPATH_RELAY_MAX_CHUNKS (1u << 24)
static inline uint64_t mpath_relay_entry(uint32_t flow, uint32_t chunk, mpath_relay_class_t slot_class, int slot)
{
    return ((uint64_t)flow << 32) | ((uint64_t)chunk << 8) | ((uint64_t)slot_class << 6) | (uint64_t)slot;
}

/* By the ring's producer, and by its consumer; 0: it is empty. */
void mpath_relay_ring_put(mpath_relay_ring_t *ring, uint64_t entry);
int mpath_relay_ring_get(mpath_relay_ring_t *ring, uint64_t *entry_p);

static inline const mpath_relay_cell_t *mpath_relay_cell(const mpath_relay_segment_t *shared, int half, int rank)
{
    return &shared->cells[half][shared->member_of[rank]];
}

static inline uint64_t *mpath_relay_offsets(const mpath_relay_segment_t *shared, int half, int rank)
{
    return shared->offsets[half] + (size_t)shared->member_of[rank] * (size_t)shared->size;
}

#endif
