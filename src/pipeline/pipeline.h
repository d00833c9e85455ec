/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Share: the engine behind Allreduce, Reduce_scatter and Allgather. Every rail carries a share of every byte that has
 * to cross between nodes, in proportion to its rate, and no byte crosses twice in one direction.
 *
 * The vector of a call is the list of all ranks' blocks; the blocks of a node's ranks are the node's part of it. The
 * vector is cut into segments that hold the same fraction of every part, and the segments run through a pipeline:
 *
 *   publish   each rank copies its data of the segment into memory that its node shares (the arena)
 *   reduce    each rank combines a slice of it over the node's ranks                                   (REDUCE)
 *   scatter   on every node the driver of rail r sends its share of part m to the driver of rail r on node m, which
 *             combines what it gets from all nodes                                                    (REDUCE)
 *   gather    the driver sends its share of the own part, now final, to all other nodes               (GATHER)
 *   deliver   each rank copies what it is to have to its receive buffer
 *
 * Allreduce does all five, Reduce_scatter leaves out gather, Allgather leaves out reduce and scatter. Scatter and
 * gather are direct exchanges: each rail carries 2 (N - 1) / N of its share of the vector for N nodes, the least there
 * is (Patarasu and Yuan, JPDC 69(2), 2009), in two steps however many nodes there are. Between many nodes, where a driver
 * would be busy with its 2 (N - 1) messages, they go in 2 ceil(log2 N) steps, with as many bytes (pipeline/steps.c).
 *
 * Elements are combined in the order of the ranks on each node, then in the order of the nodes, or in steps in one that
 * follows from the number of nodes and whose part it is: the result depends neither on shares nor on segments, and is
 * computed once, so that all ranks get the same bits.
 */
#ifndef MPATH_PIPELINE_PIPELINE_H
#define MPATH_PIPELINE_PIPELINE_H

#include "team/team.h"
#include "device/memory.h"
#include "device/kernels/reduce.h"
#include "wire/failover.h"

#include <stdint.h>

/* inout[i] = in[i] op inout[i]; both aligned for the element and not overlapping. */
typedef void (*mpath_reduce_t)(void *argument, const void *in, void *inout, uint64_t elements);

enum { MPATH_SHARE_REDUCE = 1u << 0, MPATH_SHARE_GATHER = 1u << 1 };

/* In device memory parts of blocks are cut at multiples of this, so that vectors are aligned alike everywhere. */
#define MPATH_SHARE_GRAIN_BYTES 256u

/* Of a job in device memory: what this rank's buffers are, and how GPUs combine. Each rank has both on one GPU. */
typedef struct mpath_share_gpus {
    const mpath_memory_t *send_memory, *recv_memory; /* NULL: an empty side, or host memory */
    uint64_t send_bytes, recv_bytes;                 /* from the buffers' begin to the end of the data */
    mpath_reduce_how_t how;                          /* with REDUCE; the same as the job's `reduce` */
} mpath_share_gpus_t;

/* One call; equal on all ranks but for the buffers and their offsets. Arrays have team size entries. */
typedef struct mpath_share_job {
    unsigned flags; /* MPATH_SHARE_* */
    uint32_t call;  /* number of the call on the team */
    uint64_t element_bytes;
    const uint64_t *block_elements;
    /* Bytes. REDUCE: where this rank's input for each rank's block lies. Else only this rank's own entry counts. */
    const void *send_buffer;
    const uint64_t *send_offsets;
    /* Bytes. GATHER: where each rank's block goes. Else where it goes in that rank's own buffer. Not where data that is
     * still to be published lies, unless it is the same place. */
    void *recv_buffer;
    const uint64_t *recv_offsets;
    int own_in_place; /* this rank's own block is in the receive buffer already (without REDUCE only) */
    int settles;      /* the ranks end the call together by mpath_failover_settle() */
    int in_steps;     /* mpath_share_in_steps(), of the whole call */
    mpath_reduce_t reduce;
    void *reduce_argument;
    const mpath_share_gpus_t *gpus; /* NULL: host memory on all ranks */
} mpath_share_job_t;

typedef struct mpath_share_stats {
    uint64_t calls;
    uint64_t rail_bytes;                 /* that this rank sent over rails */
    uint64_t kernel_bytes, engine_bytes; /* of device memory that its GPU read and wrote, in kernels and by engines */
} mpath_share_stats_t;

typedef struct mpath_share mpath_share_t;

/* Local, cheap. Whether the topology lets the engine run at all is known afterwards, alike on all ranks. */
mpath_status_t mpath_share_create(mpath_team_t *team, mpath_share_t **share_p);
/* The same for predictions only: with the rails that the team has lost, or known to be lost when it was made. */
mpath_status_t mpath_share_create_whole(mpath_team_t *team, mpath_share_t **share_p);
/* The same of a topology without a team, for predictions only. */
mpath_status_t mpath_share_create_for(const mpath_topo_t *topo, const mpath_settings_t *settings,
                                      mpath_share_t **share_p);
void mpath_share_destroy(mpath_share_t *share);
/* NULL, or why the engine cannot serve the team; a static text. */
const char *mpath_share_obstacle(const mpath_share_t *share);

/* Rails that every node has, with their number and their rate as the system says it: the smallest over the nodes. */
int mpath_share_num_rails(const mpath_share_t *share);
int mpath_share_rail_number(const mpath_share_t *share, int index);
uint64_t mpath_share_rail_bps(const mpath_share_t *share, int index);
/* Those that are worth using at these rates (tune/nic_rates.h), a bit each by index, and their number; 0: no rails. */
mpath_nic_set_t mpath_share_lanes(const mpath_share_t *share);
int mpath_share_num_lanes(const mpath_share_t *share);
/*
 * Rates that shares follow from now on, the same on all ranks, of the rails of a mask; one of them at least is not 0.
 * The other rails carry nothing. Predictions stay with the system's rates: what is measured differs from run to run, and
 * with it the function that carries a call, and the bits, would.
 */
void mpath_share_set_rates(mpath_share_t *share, const uint64_t *rates_bps, mpath_nic_set_t lanes);
/*
 * Nonzero: this rank drives the rail; bytes that it brought in the last call, and the time in which some were missing.
 */
int mpath_share_measured(const mpath_share_t *share, int index, uint64_t *bytes_p, uint64_t *busy_ns_p);

/*
 * Whether a call of `bytes` in total goes in steps, by predicted time. The same on all ranks, and with what
 * is left of the rails when some have failed: the order of combination follows from it.
 */
int mpath_share_in_steps(const mpath_share_t *share, unsigned flags, uint64_t bytes);

/* What the rails take at least for what a call of `bytes` in total sends between nodes, at their declared rates. */
uint64_t mpath_share_links_ns(const mpath_share_t *share, unsigned flags, uint64_t bytes);
/*
 * Predicted time of a call of `bytes` in total (the whole vector), in nanoseconds: through the engine, and by the
 * function that it replaces, taken at its best.
 */
uint64_t mpath_share_predict_ns(const mpath_share_t *share, unsigned flags, uint64_t bytes);
uint64_t mpath_share_previous_ns(const mpath_share_t *share, unsigned flags, uint64_t bytes);
/* The same with device memory on all ranks, which the previous function needs copied to the host and back. */
uint64_t mpath_share_predict_gpus_ns(const mpath_share_t *share, unsigned flags, uint64_t bytes);
uint64_t mpath_share_previous_gpus_ns(const mpath_share_t *share, unsigned flags, uint64_t bytes);

/*
 * After a job that was given up, once all ranks have: segments of which this rank has the results, and the elements of a
 * node's part in its first segments. On device memory they are those of all its node, after an exchange in which every
 * rank has come through here.
 */
mpath_status_t mpath_share_copied(mpath_share_t *share, const mpath_share_job_t *job, uint64_t *segments_p);
uint64_t mpath_share_part_done(const mpath_share_t *share, int node, uint64_t segments);

/*
 * The arena, where the ranks of a node exchange data, serves several communicators. Before the agreement: flags of this
 * rank's call. MPATH_CALL_BUSY: it has found it in use by another call; afterwards then, in a call that is to run, all ranks
 * make one more. MPATH_DECLINED, on all alike: no shared memory is left for it. And at the end of each call that the
 * ranks have been asked about, however it ends.
 */
uint32_t mpath_share_call_flags(mpath_share_t *share);
mpath_status_t mpath_share_arena_add(mpath_share_t *share);
void mpath_share_leave(mpath_share_t *share, mpath_status_t status);

/*
 * Device memory. Before the agreement: flags of this rank's call. MPATH_CALL_DEVICE: it has some; MPATH_CALL_APART: its
 * GPU cannot do its part of the job, whose buffers and flags alone are looked at, and without REDUCE its recv_offsets;
 * MPATH_CALL_MOVED: the buffers are in memory that the mates may not have opened yet. Afterwards, where all have device
 * memory and none is apart, `flags` being what was agreed on: opens everything. Collective; MPATH_DECLINED, on all ranks
 * alike: some rank cannot.
 */
uint32_t mpath_share_gpus_call_flags(mpath_share_t *share, const mpath_share_job_t *job);
mpath_status_t mpath_share_gpus_open(mpath_share_t *share, const mpath_share_job_t *job, uint32_t flags);
/*
 * After an error, when the team is broken: this rank uses its mates' buffers no more. Waits for them to say the same, as
 * far as they can: 10 s at most.
 */
void mpath_share_gpus_leave(mpath_share_t *share);

/* What the last call has lost on this rank, for mpath_failover_settle(). */
void mpath_share_loss(const mpath_share_t *share, mpath_failover_loss_t *loss);

/*
 * Collective, after an agreement that all ranks have taken part in. The first call sets up arena and rails:
 * MPATH_DECLINED, on all ranks alike, when one of them could not, or when an element does not fit. After any error the
 * team is broken; the caller's buffers are touched by this rank only (in device memory, by those of its node), and not
 * after the return. In a job that settles the team stays whole when the call is given up: MPATH_ERR_UNREACHABLE when
 * this rank has lost a rail, MPATH_AGAIN when another one has; what rails have under way then ends with
 * mpath_failover_settle(), or mpath_share_abandon() where that fails. Not where its GPU has still to do something of it
 * after timeout_s: MPATH_ERR_TIMED_OUT.
 */
mpath_status_t mpath_share_run(mpath_share_t *share, const mpath_share_job_t *job, mpath_share_stats_t *stats);
/* Breaks the team; nothing is under way on rails afterwards. */
void mpath_share_abandon(mpath_share_t *share, mpath_status_t status);

#endif
