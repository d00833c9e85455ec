/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Page: what calls of a process are at and what its NICs have carried, for whoever looks: counters and the summary inside it, and
 * others as the same user while it runs (mpath_info --job). Since it is read from outside, it has no pointers, and lies in a
 * file of 24 KiB in /dev/shm, named like a segment, so that it goes with the process or is swept as segments are. Readers map or
 * read it without a word to the process, which may be stopped.
 *
 * Written by relaxed stores: a reader looks twice and takes what is the same. Who waits for whom is written once a wait has
 * lasted a while (team/wait.c), so a short call costs some stores to a line of its own. A process without a file has its page in
 * memory of its own, so that nothing has to be asked before.
 */
#ifndef MPATH_RECORD_PAGE_H
#define MPATH_RECORD_PAGE_H

#include "util/process.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Of one writer: a load and a store. */
typedef _Atomic uint64_t mpath_count_t;

static inline uint64_t mpath_count_get(const mpath_count_t *count)
{
    return atomic_load_explicit(count, memory_order_relaxed);
}

static inline void mpath_count_set(mpath_count_t *count, uint64_t value)
{
    atomic_store_explicit(count, value, memory_order_relaxed);
}

static inline void mpath_count_add(mpath_count_t *count, uint64_t more)
{
    mpath_count_set(count, mpath_count_get(count) + more);
}

#define MPATH_PAGE_BYTES 24576u
#define MPATH_PAGE_MAGIC UINT64_C(0x3370616a6874706d) /* changes with the layout */
#define MPATH_PAGE_SLOTS 12                           /* communicators; what is beyond is not told */
#define MPATH_PAGE_RAILS 64
#define MPATH_PAGE_NAME_MAX 40
#define MPATH_PAGE_TEXT_MAX 448

/* Number that the page has among the names of a process; segments have random ones. */
#define MPATH_PAGE_NAME_END "-00000000"

/* A NIC of this process's node. Counted by any thread. */
typedef struct mpath_page_rail {
    char name[MPATH_PAGE_NAME_MAX]; /* "": the place is free */
    int32_t number;                 /* of the rail */
    _Atomic int32_t is_used;        /* it has been opened here */
    _Atomic uint64_t rate_bps;
    _Atomic uint64_t lost_ns; /* when it was left out, since it had failed or did not open; 0: it is not */
    _Atomic uint64_t sent_bytes, received_bytes; /* of chunks, by this process */
    _Atomic uint64_t failures;
    uint64_t unused[5];
} mpath_page_rail_t;

_Static_assert(sizeof(mpath_page_rail_t) == 128, "two lines");

/* What a communicator is at. */
typedef enum mpath_record_phase {
    MPATH_RECORD_IDLE,  /* no call, or none that mpath has to do with */
    MPATH_RECORD_SETUP, /* connections are made, or the communicator is set up */
    MPATH_RECORD_AGREE,
    MPATH_RECORD_PLAN, /* and choose */
    MPATH_RECORD_MOVE,
    MPATH_RECORD_SETTLE,   /* the ranks end the call together */
    MPATH_RECORD_PREVIOUS, /* the function that mpath replaces runs */
    MPATH_RECORD_PHASES
} mpath_record_phase_t;

typedef enum mpath_record_end {
    MPATH_RECORD_CARRIED,
    MPATH_RECORD_LEFT, /* to the function that mpath replaces */
    MPATH_RECORD_FAILED
} mpath_record_end_t;

/* A wait that lasts: two of them in turns, so that one is whole whenever the process is stopped. */
typedef struct mpath_page_edge {
    _Atomic uint64_t call;      /* mpath_page_slot_t.calls then */
    _Atomic uint64_t since_ns;  /* nothing has come since */
    _Atomic uint64_t looked_ns; /* when this rank looked last */
    _Atomic int32_t rank;       /* that it waits for, of the communicator; -1: itself */
    char text[MPATH_PAGE_TEXT_MAX];
} mpath_page_edge_t;

/* A communicator. One thread at a time writes here. */
typedef struct mpath_page_slot {
    mpath_count_t calls;              /* that asked mpath, so far */
    mpath_count_t began_ns, since_ns; /* the call, the phase; mpath_time_ns() */
    mpath_count_t bytes;              /* that this rank sends; 0: a short call, or not known yet */
    _Atomic uint32_t collective;      /* mpath_operation_t */
    _Atomic uint32_t phase, end;      /* mpath_record_phase_t; of the last call, mpath_record_end_t */
    _Atomic uint32_t number;          /* of the call as the log has it: that of its agreement */
    _Atomic uint32_t edge;            /* 1 + index of the present wait; 0: none */
    _Atomic int32_t used;
    uint64_t padding;

    /* And what stands for longer. */
    _Atomic uint64_t team; /* the same on all ranks; 0: not known yet */
    int32_t rank, size;
    char name[MPATH_PAGE_NAME_MAX];
    uint64_t unused;
    mpath_page_edge_t edges[2];
} mpath_page_slot_t;

typedef struct mpath_page {
    _Atomic uint64_t magic; /* written last */
    mpath_process_t process;
    uint64_t job;       /* the same in all processes of a job, unlike that of other jobs of a node */
    int32_t rank, size; /* in the job */
    uint64_t began_ns;  /* monotonic */
    char version[24];   /* of mpath */
    _Alignas(64) mpath_page_rail_t rails[MPATH_PAGE_RAILS];
    _Alignas(64) mpath_page_slot_t slots[MPATH_PAGE_SLOTS];
} mpath_page_t;

_Static_assert(offsetof(mpath_page_slot_t, team) == 64 && sizeof(mpath_page_slot_t) % 64 == 0,
               "calls write to one line");
_Static_assert(sizeof(mpath_page_t) <= MPATH_PAGE_BYTES, "it fits");

/*
 * Gives the process's page its file; once, before contexts, while nobody has a slot of it. Without room there is none, which is
 * said at level info.
 */
void mpath_page_open(uint64_t job, int rank, int size);
/* Removes it. What the NICs have carried stays. After the last team and context have ended. */
void mpath_page_close(void);

const mpath_page_t *mpath_page(void);

/*
 * The NIC of that name on the rail of that number, whose place stays where it is; never NULL: what finds no place shares the last
 * one. Any thread.
 */
mpath_page_rail_t *mpath_page_rail(const char *name, int number);
/* It is left out from now on, or used again. */
void mpath_page_rail_lose(mpath_page_rail_t *rail, int is_lost);

/* A place for a communicator, until it is given back; NULL: there is none, or nobody could look. */
mpath_page_slot_t *mpath_page_slot_take(const char *name, int rank, int size);
void mpath_page_slot_give(mpath_page_slot_t *slot);

/* A wait has lasted; and it is over. */
void mpath_page_wait_begin(mpath_page_slot_t *slot, int rank, uint64_t waited_ns, const char *text);

static inline void mpath_page_wait_end(mpath_page_slot_t *slot)
{
    atomic_store_explicit(&slot->edge, 0, memory_order_relaxed);
}

#endif
