/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The pipeline on device memory, for the files of this room only. The arena is host memory that all GPUs of the node
 * reach, so that rails send from it and receive into it as ever; what a rank does inside its node its GPU does:
 *
 *   publish   without REDUCE: copies the rank's data into the arena; else nothing
 *   reduce    reads its slice of every local rank's send buffer, combines it and writes the sum into the arena, from which
 *             rails send; that of the own part, where it may, into its receive buffer, where the result is to be
 *   combine   of what has come for the own part, from the arena into the arena; and to every local rank's receive buffer
 *             in an Allreduce that hands out
 *   deliver   reads its slice of the result that is not in the receive buffers yet and writes it to every local rank's
 *
 * so that what crosses PCIe is divided by the ranks on the node, and the own part crosses only for rails. Steps are
 * started when their data is there, and counted when the GPU has done them.
 *
 * After the lines there are cells, in which the ranks of the node tell each other where their buffers lie. They
 * are double buffered as those of the agreement: call k uses half k % 2, written before the agreement of call k and
 * read after it.
 */
#ifndef MPATH_PIPELINE_GPU_H
#define MPATH_PIPELINE_GPU_H

#include "device/ipc_export.h"
#include "device/ipc_import.h"
#include "device/pinned.h"
#include "mover/relay_owners.h"
#include "pipeline/pipeline_private.h"

#define SHARE_GPU_RANKS MPATH_KERNEL_REDUCE_RANKS /* of a node, at most; and nodes that a GPU combines */
#define SHARE_GPU_OPENED 8
#define SHARE_GPU_COPIES 3 /* types that differ in what addresses are a multiple of */

/* Sides of a rank. */
enum { SHARE_GPU_SEND, SHARE_GPU_RECV, SHARE_GPU_SIDES };

typedef struct share_gpu_side {
    uint64_t address;      /* of the buffer, in its owner */
    mpath_export_t memory; /* how NONE: an empty side */
} share_gpu_side_t;

/* The rank's recv_offsets, of team size, follow it. */
typedef struct share_gpu_cell {
    mpath_device_uuid_t uuid; /* of the rank's GPU */
    int32_t turns;            /* on which processes take turns, as far as the driver tells */
    int32_t reserved;
    share_gpu_side_t sides[SHARE_GPU_SIDES];
} share_gpu_cell_t;

/* Buffers of this rank that all mates have opened: in jobs with these flags, which say what sides. */
typedef struct share_gpu_opened {
    unsigned flags; /* MPATH_SHARE_* */
    int gpu;        /* mpath_gpu_number() */
    uint64_t base[SHARE_GPU_SIDES], bytes[SHARE_GPU_SIDES], buffer_id[SHARE_GPU_SIDES];
} share_gpu_opened_t;

/* Segments that the GPU works on. */
typedef struct share_gpu_flight {
    uint64_t started;
    mpath_mark_t marks[SHARE_SLOTS];
    uint64_t began_ns[SHARE_SLOTS], bytes[SHARE_SLOTS]; /* for the timeline; 0: nobody wants to know */
} share_gpu_flight_t;

struct share_gpu {
    /* pipeline/gpu_memory.c */
    mpath_gpu_t *device; /* of the buffers of this rank */
    share_gpu_cell_t mine;
    uint64_t number;     /* of the call; its half of the cells is number % 2 */
    int cell_written;    /* of this call */
    int refusals;        /* calls in which some rank could not open what it had to; the same on all ranks */
    mpath_pause_t pause; /* since there were too many */
    int in_use;          /* mates may still read and write this rank's buffers */
    share_gpu_opened_t opened[SHARE_GPU_OPENED];
    unsigned next_opened;
    mpath_import_t *imports[SHARE_GPU_SIDES][SHARE_GPU_RANKS];
    mpath_device_ptr_t buffers[SHARE_GPU_SIDES][SHARE_GPU_RANKS]; /* by local rank */
    const uint64_t *recv_offsets[SHARE_GPU_RANKS];
    int in_place; /* some rank of the node has its result where its data is */

    /* pipeline/gpu.c: the call under way */
    int keeps;     /* sums of the own part wait in the receive buffer of the rank that has reduced them */
    int hands_out; /* who combines a fragment of the own part brings it to all receive buffers */
    int has_streams;
    unsigned first_stream;
    mpath_stream_t *to_host, *from_host;
    mpath_device_function_t function; /* of the job's operation and type */
    mpath_pause_t no_function;        /* since there was none for a job */
    mpath_gpu_t *copies_on;           /* the device whose functions the next are; NULL: none */
    mpath_device_function_t copies[SHARE_GPU_COPIES];
    share_gpu_flight_t publish, reduce, copy_out;
    share_gpu_flight_t *combine; /* by link; NULL: none */
    int combine_links;
    mpath_owners_t owners; /* pipeline/gpu_memory.c */
};

/* In steps, and of more nodes than a kernel has sources, the host combines, where the arena is. */
static inline int share_gpu_combines(const mpath_share_t *share)
{
    return (share->job->gpus != NULL) && !share->job->in_steps && (share->num_nodes <= SHARE_GPU_RANKS);
}

/* Bytes of the cells. */
size_t mpath_share_gpu_cells_bytes(const mpath_share_t *share, int num_local);

/* As mpath_share_gpus_open(), once the share is prepared, for which there was no need where the cell of the call is written. */
mpath_status_t mpath_share_gpu_open(mpath_share_t *share, const mpath_share_job_t *job, uint32_t flags);

/* Ends the use of the mates' memory; and of the whole. */
void mpath_share_gpu_close(mpath_share_t *share);

void mpath_share_gpu_destroy(mpath_share_t *share);

/*
 * Before the first step of a call; and after one that does not end well: waits for what this rank's GPU has still to do.
 * MPATH_ERR_TIMED_OUT, logged: it does it later, so that the call cannot be made again.
 */
mpath_status_t mpath_share_gpu_begin(mpath_share_t *share);

mpath_status_t mpath_share_gpu_drain(mpath_share_t *share);

/*
 * pipeline/gpu_memory.c, for a call on the GPUs of several nodes: before its first step, in every round, and when it has
 * ended, however: tells other communicators of rails that this rank drives and that still have to do.
 */
void mpath_share_gpu_owners_begin(mpath_share_t *share);

void mpath_share_gpu_owners_announce(mpath_share_t *share);
void mpath_share_gpu_owners_end(mpath_share_t *share);

/* The steps of pipeline/pipeline_private.h; number of events, or an error. */
int mpath_share_gpu_publish(mpath_share_t *share);

int mpath_share_gpu_reduce(mpath_share_t *share);
int mpath_share_gpu_combine(mpath_share_t *share, share_link_t *link);
int mpath_share_gpu_copy_out(mpath_share_t *share);

/* pipeline/gpu.c: the functions that copy, on the device of the call: looking for a name costs more than a launch. */
mpath_status_t mpath_share_gpu_find_copies(share_gpu_t *gpu);

#endif
