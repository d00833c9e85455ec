/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Trace: the last calls, phases and chunks of this process, in rings that are set aside once, and their timeline as Chrome's
 * trace events (doc/seeing.md). Off, each place that records costs a comparison. Any thread.
 */
#ifndef MPATH_RECORD_TRACE_H
#define MPATH_RECORD_TRACE_H

#include "util/status.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Bits of mpath_trace_state. */
enum { MPATH_TRACE_RINGS = 1, MPATH_TRACE_LOG = 2 };
extern atomic_int mpath_trace_state;

static inline int mpath_trace_is_on(void)
{
    return atomic_load_explicit(&mpath_trace_state, memory_order_relaxed);
}

/* From now on so many chunks are kept, and a quarter as many calls and phases. MPATH_ERR_NO_MEMORY is logged. Once. */
mpath_status_t mpath_trace_open(size_t chunks);
/* From now on each chunk is a line of the log, at level trace. */
void mpath_trace_log(void);

/* A lane is a rail's place in mpath_page(), shared memory, or what works of this process's GPUs. */
#define MPATH_TRACE_SHM 64
#define MPATH_TRACE_GPU_KERNEL 65
#define MPATH_TRACE_GPU_ENGINE 66 /* copies */
#define MPATH_TRACE_GPU_HOST 67   /* copies to and from host memory */
#define MPATH_TRACE_LANES 68

typedef enum mpath_trace_kind {
    MPATH_TRACE_SEND, /* from when the lane took it until it let go of the buffer */
    MPATH_TRACE_FETCH,
    MPATH_TRACE_CAME,   /* with its bytes, at `ended_ns` */
    MPATH_TRACE_KERNEL, /* of a GPU: from its launch until this process has seen its end; no flow, offset or hop */
    MPATH_TRACE_COPY    /* the same */
} mpath_trace_kind_t;

typedef struct mpath_trace_chunk {
    uint64_t began_ns, ended_ns;
    uint64_t team, offset; /* of the pair's message */
    uint64_t bytes;
    uint32_t call, flow;
    uint16_t hop;
    uint8_t lane, kind; /* mpath_trace_kind_t */
} mpath_trace_chunk_t;

/* To be called where mpath_trace_is_on(). */
void mpath_trace_add_chunk(const mpath_trace_chunk_t *chunk);

/* A call, or a phase of one. */
typedef struct mpath_trace_call {
    uint64_t began_ns, ended_ns;
    uint64_t bytes, static_ns, mpath_ns, relayed_bytes; /* of a call; 0: not known */
    const char *why;                                    /* it is left; static text, NULL: it is not */
    uint32_t communicator;                              /* mpath_trace_communicator() */
    uint32_t call;                                      /* number of its agreement */
    uint32_t repeats;
    uint8_t phase; /* mpath_record_phase_t; MPATH_RECORD_IDLE: the whole call */
    uint8_t collective, memory, algorithm;
    uint8_t failed;
} mpath_trace_call_t;

void mpath_trace_add_call(const mpath_trace_call_t *call);

/* A number for a communicator, whose name is kept; and the id that chunks and the traces of its other ranks know it by. */
uint32_t mpath_trace_communicator(const char *name);
void mpath_trace_set_team(uint32_t communicator, uint64_t team);
uint64_t mpath_trace_team(uint32_t communicator);

/* Where and when a trace was written. */
typedef struct mpath_trace_about {
    const char *version, *host;
    int rank, num_ranks;
    int has_offset;
    int64_t offset_ns; /* to be added to this process's clock for that of rank 0; */
    uint64_t error_ns; /* wrong by so much at most */
} mpath_trace_about_t;

/* MPATH_ERR_NO_MEMORY is logged; whether writing went well is for the caller to ask of the stream. */
mpath_status_t mpath_trace_write(const mpath_trace_about_t *about, FILE *out);

#endif
