/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Schedule: step 5 of a collective. Out of a plan's flows, those that one rank has to do with (its duties), cut into
 * chunks, and the ways out of this rank (outlets) that they share. Derived from plan, topology and limits that all
 * ranks hold alike, so both ends of every hop cut a flow in the same way.
 */
#ifndef MPATH_MOVER_SCHEDULE_H
#define MPATH_MOVER_SCHEDULE_H

#include "lane/lane.h"
#include "plan/plan.h"
#include "topo/topo.h"
#include "util/status.h"

#include <stddef.h>
#include <stdint.h>

/*
 * Slots belong to classes, so that a chunk that waits for a rail never blocks one that has crossed it. GPUs serve their
 * outlets in this order: what has the longest path ahead begins first.
 */
typedef enum mpath_outlet_kind {
    MPATH_OUTLET_RELAY, /* towards a rank that passes it on; on GPUs: to a rail */
    MPATH_OUTLET_RAIL,
    MPATH_OUTLET_PASS,   /* on GPUs only: towards a rank that passes it on to the destination */
    MPATH_OUTLET_STAGED, /* on GPUs only: through host memory to the destination */
    MPATH_OUTLET_LAST    /* towards the destination: these chunks are always taken at once */
} mpath_outlet_kind_t;

#define MPATH_DUTY_NO_HOP (-1)

/* What one rank does for one flow. hop_in: brings chunks here; hop_out: takes them on; indices of the path's hops. */
typedef struct mpath_duty {
    uint32_t flow; /* mpath_plan_flow_number() */
    int32_t source, destination;
    int8_t hop_in, hop_out;
    int8_t ahead; /* hops after hop_out, of device memory; else 0 */
    mpath_hop_t in, out;
    uint64_t offset, bytes; /* of the pair's message */
    uint32_t chunk_bytes, num_chunks;
    uint32_t cut;     /* bytes by which the first chunk is shorter */
    uint32_t outlet;  /* index, of hop_out */
    uint64_t seen_at; /* first bit in schedule->seen, of hop_in */
    /* Progress, zeroed by mpath_schedule_reset(). */
    uint32_t handed_chunks;  /* source: handed to the outlet, in order */
    uint32_t arrived_chunks; /* by hop_in */
    uint32_t fetches;        /* of these: chunks whose bytes are still on their way over the rail */
    uint64_t done_bytes;     /* in place, or sent on and finished */
} mpath_duty_t;

typedef struct mpath_outlet {
    mpath_outlet_kind_t kind;
    int rank;              /* who it leads to */
    int nic, nic_to;       /* of RAIL: numbers in the topology's machines; else -1 */
    uint32_t own, num_own; /* schedule->own[own ..]: duties of which this rank is the source */
} mpath_outlet_t;

/* What bounds chunks. Equal on all ranks. */
typedef struct mpath_chunk_limits {
    uint64_t chunk_bytes;            /* of any chunk */
    uint64_t rail_bytes;             /* of one that crosses a rail */
    const uint32_t *last_slot_bytes; /* of a shared memory hop, by node */
    const uint32_t *relay_slot_bytes;
    /* Not 0: chunks of device memory, which take their slowest resource for about so long; no slots by node */
    uint64_t device_ns;
} mpath_chunk_limits_t;

typedef struct mpath_schedule {
    mpath_duty_t *duties; /* ascending by flow */
    size_t num_duties;
    uint32_t *numbers;       /* of their flows: what is searched lies together */
    mpath_outlet_t *outlets; /* in the order of turns, see mover/schedule.c; on GPUs by kind before that */
    size_t num_outlets;
    uint32_t *own;  /* duty indices, grouped by outlet, each group in the order of the destinations' turns */
    uint64_t *seen; /* a bit per chunk that comes in */
    size_t seen_words;
    uint64_t send_bytes, forward_bytes, receive_bytes;
    mpath_nic_set_t rails; /* bit per NIC of this node that this rank sends or receives on */
} mpath_schedule_t;

mpath_status_t mpath_schedule_create(const mpath_topo_t *topo, int rank, const mpath_plan_t *plan,
                                     const mpath_chunk_limits_t *limits, mpath_schedule_t **schedule_p);
void mpath_schedule_destroy(mpath_schedule_t *schedule);

/* Back to the state after creation. */
void mpath_schedule_reset(mpath_schedule_t *schedule);

/* The duty for a flow of that number; NULL when this rank has none. */
mpath_duty_t *mpath_schedule_find(mpath_schedule_t *schedule, uint32_t flow);

/* Chunk `index` of the duty's flow: offset and bytes in the pair's message. */
void mpath_duty_chunk(const mpath_duty_t *duty, uint32_t index, uint64_t *offset_p, uint32_t *bytes_p);

/* The chunk with the byte at that offset. */
static inline uint32_t mpath_duty_index(const mpath_duty_t *duty, uint64_t offset)
{
    return (uint32_t)((offset - duty->offset + duty->cut) / duty->chunk_bytes);
}

static inline int mpath_duty_is_done(const mpath_duty_t *duty)
{
    return duty->done_bytes == duty->bytes;
}

/* Chunks of it are still to come in; else what is left is to be passed on, or fetched. */
static inline int mpath_duty_awaits(const mpath_duty_t *duty)
{
    return duty->hop_in != MPATH_DUTY_NO_HOP && duty->arrived_chunks < duty->num_chunks;
}

/* Notes a chunk that came in; MPATH_ERR_PARAM unless it is one that is still missing, as both ends cut it. */
mpath_status_t mpath_schedule_accept(mpath_schedule_t *schedule, mpath_duty_t *duty, const mpath_chunk_t *chunk);

/*
 * The own duty of the outlet that is furthest behind, of those with the most hops ahead, but no more than `most_ahead`:
 * then the pipelines behind this hop empty while chunks that end with it still move. NULL when all chunks of such duties
 * are handed over.
 */
mpath_duty_t *mpath_schedule_next_own(mpath_schedule_t *schedule, const mpath_outlet_t *outlet, int most_ahead);

#endif
