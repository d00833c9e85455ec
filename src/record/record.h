/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Record: what calls on a communicator were, and what the one under way is at. One object per communicator, whose calls
 * are made by one thread at a time; all others only read. What has ended with a communicator stays in the sums.
 *
 *   call of MPI                   who says it
 *   asked mpath                   coll/: phases, bytes, algorithm, predicted and taken times
 *   is over                       the glue: carried, left (and why) or failed
 *
 * Every function takes NULL for a record, and does nothing then.
 */
#ifndef MPATH_RECORD_RECORD_H
#define MPATH_RECORD_RECORD_H

#include "record/names.h"
#include "record/page.h"
#include "record/reason.h"
#include "record/trace.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define MPATH_RECORD_NAME_MAX 64

/* The node, as topologies name it; the first one counts. By itself the name of the host. */
void mpath_record_set_host(const char *name);
void mpath_record_host(char name[MPATH_RECORD_NAME_MAX]);

/* -- counting -- */

/* Of a collective on one kind of memory. Bytes are those of this rank's send buffers. */
typedef struct mpath_record_row {
    mpath_count_t carried, left, failed, repeated;
    mpath_count_t carried_bytes, left_bytes;
    mpath_count_t predicted, static_ns, mpath_ns, taken_ns; /* calls with both times predicted, sums of theirs */
    mpath_count_t algorithms[MPATH_RECORD_ALGORITHMS];
    mpath_count_t reasons[MPATH_REASONS];
} mpath_record_row_t;

/* The call under way, as far as is known. Cleared when it is over. */
typedef struct mpath_record_call {
    uint32_t number; /* of its agreement, the same on all ranks; 0: it had none */
    uint64_t bytes;
    mpath_record_memory_t memory;
    mpath_record_algorithm_t algorithm;
    uint64_t static_ns, mpath_ns; /* predicted; 0: not */
    uint64_t taken_ns;            /* from the end of the agreement on; 0: not measured */
    uint64_t relayed_bytes;       /* of others, by this rank */
    uint32_t repeats, routes;
    int sets_up;                          /* it has made connections: what it took says nothing of predictions */
    int32_t hottest;                      /* the rank that sends or receives most, and how much; bytes 0: not known */
#define MPATH_RECORD_HOTTEST_UNKNOWN (-1) /* only how much */
    uint64_t hottest_bytes;
} mpath_record_call_t;

typedef struct mpath_record {
    struct mpath_record *next;
    mpath_page_slot_t *slot;    /* of the page while there is a team, */
    mpath_page_slot_t own_slot; /* or where that has no place */
    char name[MPATH_RECORD_NAME_MAX];
    uint32_t communicator; /* mpath_trace_communicator() */
    int is_first;          /* rank 0 of the communicator, who counts calls for the job */
    mpath_record_call_t call;
    mpath_trace_call_t left; /* of the timeline: a call that the previous function carries, since left_ns; 0: none */
    uint64_t left_ns;
    const char *last_why; /* and its place in the table */
    int last_reason;
    mpath_record_row_t rows[MPATH_RECORD_COLLECTIVES][MPATH_RECORD_MEMORIES];
} mpath_record_t;

/* For a communicator of which this is rank `rank`. NULL: no memory. Any thread, as below. */
mpath_record_t *mpath_record_open(const char *name, int rank);
/* Its numbers stay in the sums. */
void mpath_record_close(mpath_record_t *record);

/*
 * It has a team, by whose id the other ranks and chunks know it: from now on its place is on the page, as long as there is room;
 * and the team ends.
 */
void mpath_record_enter_team(mpath_record_t *record, uint64_t team, int rank, int size);
void mpath_record_leave_team(mpath_record_t *record);

/* The phase under way ends at `now_ns`: for the timeline. */
void mpath_record_trace_phase(const mpath_record_t *record, uint64_t now_ns);

/* A call of a collective has come to another phase at `now_ns`; the first one begins it. */
static inline void mpath_record_phase(mpath_record_t *record, unsigned collective, mpath_record_phase_t phase,
                                      uint64_t now_ns)
{
    mpath_page_slot_t *slot;

    if (record == NULL) {
        return;
    }
    slot = record->slot;
    if (atomic_load_explicit(&slot->phase, memory_order_relaxed) == MPATH_RECORD_IDLE) {
        mpath_count_add(&slot->calls, 1);
        mpath_count_set(&slot->began_ns, now_ns);
        mpath_count_set(&slot->bytes, 0);
        atomic_store_explicit(&slot->collective, collective, memory_order_relaxed);
    }
    if (mpath_trace_is_on()) {
        mpath_record_trace_phase(record, now_ns);
    }
    mpath_count_set(&slot->since_ns, now_ns);
    atomic_store_explicit(&slot->phase, phase, memory_order_relaxed);
}

/* The ranks begin to agree on a call, in the agreement of this number. */
static inline void mpath_record_agree(mpath_record_t *record, unsigned collective, uint32_t number, uint64_t now_ns)
{
    if (record != NULL) {
        mpath_record_phase(record, collective, MPATH_RECORD_AGREE, now_ns);
        atomic_store_explicit(&record->slot->number, number, memory_order_relaxed);
        record->call.number = number;
    }
}

/* The call sends so much, and may take a while. */
static inline void mpath_record_is_long(mpath_record_t *record, uint64_t bytes)
{
    if (record != NULL) {
        mpath_count_set(&record->slot->bytes, bytes);
    }
}

/*
 * For the timeline, where mpath_trace_is_on(): a part of the call under way that this process's GPU did, from `began_ns` until
 * now. `call`: number of its agreement, where the record does not know it yet. Lanes are those of trace.h.
 */
void mpath_record_trace_gpu(const mpath_record_t *record, uint32_t call, int lane, uint64_t bytes, uint64_t began_ns);

/* The call under way makes connections. */
static inline void mpath_record_setup(mpath_record_t *record, uint64_t now_ns)
{
    if (record != NULL) {
        record->call.sets_up = 1;
        mpath_record_phase(record, 0, MPATH_RECORD_SETUP, now_ns);
    }
}

/* Nonzero: the end of the call will be a line of the log, at level debug, by rank 0 of the communicator. */
int mpath_record_says(const mpath_record_t *record);

/* A call is over. `why`: it is MPATH_RECORD_LEFT for this reason, a text of reason.h, and mpath_record_over() will follow. */
void mpath_record_end(mpath_record_t *record, unsigned collective, mpath_record_end_t end, const char *why);
/* What was left, if anything was, the previous function has carried: for the timeline. It may have made calls of its own. */
void mpath_record_over(mpath_record_t *record);

/* -- sums -- */

/* Of this process: all communicators, or only those whose rank 0 it is. */
void mpath_record_sum(int first_only, mpath_record_row_t rows[MPATH_RECORD_COLLECTIVES][MPATH_RECORD_MEMORIES]);
/* When the first call was counted, mpath_time_ns(); 0: there was none. */
uint64_t mpath_record_began_ns(void);

#endif
