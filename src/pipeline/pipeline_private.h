/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The inside of the pipeline. What the ranks of a node share for it is, by communicator, in shared memory,
 *
 *   lines   a counter each on a line of its own: published, reduced, consumed by local rank; delivered by rail; and by
 *           local rank whether it has left a call with an error and uses no memory of the others any more
 *   cells   of jobs in device memory, see pipeline/gpu.h
 *
 * and, for all communicators of the same ranks of the node, by turns, an arena (pipeline/arena.h):
 *
 *   slots   [SHARE_SLOTS]; segment k uses slot k % SHARE_SLOTS:
 *             REDUCE  inputs [local ranks][segment], then [nodes - 1][own part]: what came from the other nodes.
 *                     In device memory one input, the sum. In steps, instead of the latter, what comes in each of them
 *             else    one segment
 *
 * Counters count segments and never go back: a call adds to what the calls before it have left, which is the same for
 * all counters of a node, as every call runs through all its segments.
 *
 * Flow control. A rank publishes segment k when all of its node have consumed k - SHARE_AHEAD. A driver begins to send
 * segment k to a node when k < SHARE_SLOTS or when the first thing it gets from that node for segment k - SHARE_LAG has
 * come, which says that the node has published that segment, so has consumed k - SHARE_LAG - SHARE_AHEAD = k -
 * SHARE_SLOTS: its slot is free. In steps what is combined in the end, or gathered, comes from all nodes: that of segment k -
 * SHARE_LAG says the same of all of them. No credits are exchanged, nothing arrives that has no place, and nothing waits in a
 * rail. At the start of a call all slots of all nodes are free, since all ranks have agreed on the call.
 */
#ifndef MPATH_PIPELINE_PIPELINE_PRIVATE_H
#define MPATH_PIPELINE_PIPELINE_PRIVATE_H

#include "pipeline/pipeline.h"
#include "team/wait.h"
#include "wire/wire.h"
#include "lane/segment.h"
#include "pipeline/arena.h"

#include <stdatomic.h>

#define SHARE_SLOTS 8
#define SHARE_AHEAD 5
#define SHARE_LAG (SHARE_SLOTS - SHARE_AHEAD)
#define SHARE_LINE 64u
#define SHARE_WEIGHT 65536u /* of the fastest rail */
#define SHARE_TURNS_MAX 32  /* in steps */

/* What a rail carries: 0 before the node's own part is final, 1 after. Index of arrays. */
enum { SHARE_SCATTER, SHARE_GATHER, SHARE_PHASES };

typedef struct share_line {
    atomic_ullong value;
    char padding[SHARE_LINE - sizeof(atomic_ullong)];
} share_line_t;

/* A rail that all nodes have. */
typedef struct share_rail {
    int number;        /* as in mpath_nic_t */
    uint64_t rate_bps; /* as the system or the user says */
    uint32_t weight;   /* of its share; 0: nobody sends or waits for anything over it */
    int *nic;          /* by node: number in the topology's machine */
    int *driver;       /* by node: the rank that sends and receives */
} share_rail_t;

/*
 * What a driver knows of one rail in a call. Arrays are by turn: with direct exchanges a node each, in steps one of them, of
 * num_nodes; segments count from the call's first.
 */
typedef struct share_link {
    int rail;                            /* index */
    uint64_t *next_send[SHARE_PHASES];   /* segment */
    uint64_t *sent_bytes[SHARE_PHASES];  /* of that segment's fragment */
    uint64_t *arrived[SHARE_PHASES];     /* segments that are complete */
    uint64_t *got[SHARE_PHASES];         /* [SHARE_SLOTS][nodes] bytes; 1 for an empty fragment */
    uint64_t *added;                     /* segments whose sums of a turn are combined; in steps */
    uint64_t in_flight[SHARE_SLOTS];     /* sends that are not finished */
    uint64_t combined, delivered, freed; /* segments */
    /* What the rail shows of its rate: bytes that came in, and the time in which some were missing. */
    uint64_t taken_bytes, busy_ns, looked_ns;
    int busy;
} share_link_t;

/* Where the parts of a segment lie, in elements. */
typedef struct share_cut {
    uint64_t segment;    /* UINT64_MAX: not computed */
    uint64_t *first;     /* [nodes] of the node's part of the vector */
    uint64_t *at;        /* [nodes + 1] in the segment, if it is in the order of the nodes */
    uint64_t *fragments; /* [rails][nodes + 1] in the segment, where it is in steps; see pipeline/steps.c */
} share_cut_t;

/* Elements in a slot. */
typedef struct share_range {
    char *data;
    uint64_t count;
} share_range_t;

typedef struct share_gpu share_gpu_t;

struct mpath_share {
    mpath_team_t *team;
    const mpath_topo_t *topo;
    const mpath_settings_t *settings;
    const char *obstacle;
    int whole; /* rails that the team has lost count, too */
    int num_nodes, node, num_local, local_rank, me;
    int *local;    /* ranks of my node */
    int *num_on;   /* by node */
    int *by_node;  /* ranks, sorted by node, then rank */
    int *first_on; /* by node: first index in by_node */
    int num_rails;
    mpath_nic_set_t lanes; /* rails that are worth using at the system's rates, a bit each by index */
    share_rail_t *rails;
    int *rail_memory;
    int num_declared;                         /* rails that all nodes have, those lost since too, */
    uint64_t declared_bps;                    /* and what they carry together, as the system or the user says */
    uint32_t cumulative[MPATH_MAX_RAILS + 1]; /* of the weights */

    /* Set up by the first call */
    int tried;
    mpath_status_t ready;    /* MPATH_OK or MPATH_DECLINED, alike on all ranks */
    mpath_segment_t segment; /* lines and cells */
    mpath_arena_t *arena;
    uint32_t arena_number; /* this communicator's in it; of who takes it */
    int is_taken;          /* by this rank for its node, for the next call or that under way */
    int is_inside;         /* the call under way uses the arena */
    int lines_attached;
    int is_alone;        /* no memory is left for one more; the same on all ranks */
    uint64_t rank_bytes; /* of arena per rank; equal on all ranks */
    uint64_t slot_bytes; /* of this node */
    share_line_t *published, *reduced, *consumed, *delivered, *left;
    char *cells, *slots;
    mpath_wire_t *wire;
    int num_links;
    share_link_t *links;
    mpath_nic_set_t nics; /* that this rank drives */
    uint64_t *link_memory;
    uint64_t *cut_memory, *fragment_memory; /* the latter in steps only */
    share_cut_t cuts[SHARE_SLOTS];
    uint64_t *part_elements; /* by node */

    /* The call under way */
    const mpath_share_job_t *job;
    uint64_t base; /* of the counters */
    uint64_t num_segments;
    int num_turns;
    uint64_t turn_at[SHARE_TURNS_MAX]; /* in steps: bytes in a slot, behind the inputs, of what comes in a turn */
    uint64_t num_inputs;               /* of a slot */
    uint64_t input_bytes, other_bytes; /* strides of the slot's areas */
    uint64_t grain;                    /* elements: parts of segments begin at multiples of it */
    uint64_t max_chunk;
    uint64_t my_published, my_reduced, my_copied, my_consumed;
    mpath_share_stats_t stats;
    mpath_failover_loss_t loss; /* at its end */
    mpath_wait_t wait;
    int given_up; /* for silence */

    share_gpu_t *gpu; /* NULL: a parameter says that there are none */
};

/* pipeline/setup.c: what a job needs, and a wire that reaches as far. Collective the first time, and when it has to reach further. */
mpath_status_t mpath_share_prepare(mpath_share_t *share, const mpath_share_job_t *job);

/* pipeline/cut.c */
/* Ranks on the node that has the fewest. */
uint64_t mpath_share_least_local(const mpath_share_t *share);
/* Chooses segments for the job; MPATH_DECLINED when none fits. */
mpath_status_t mpath_share_cut_job(mpath_share_t *share);
const share_cut_t *mpath_share_cut(mpath_share_t *share, uint64_t segment);
/* The elements of a part that a rail carries: first, in the segment, and number. */
void mpath_share_fragment(const mpath_share_t *share, const share_cut_t *cut, int node, int rail, uint64_t *first_p,
                          uint64_t *count_p);

/* A run of elements of one rank's block in a segment. */
typedef struct share_run {
    int rank;
    uint64_t in_block, in_segment, count; /* elements */
    int next;                             /* index on the node of the rank to look at next */
    uint64_t start;                       /* of that rank's block in the node's part */
} share_run_t;

/* The next run of a node's part; 0: there is none. Begin with a zeroed one. */
int mpath_share_run_next(const mpath_share_t *share, const share_cut_t *cut, int node, share_run_t *run);

/* pipeline/steps.c. Turns of a phase: one for each other node with direct exchanges. */
void mpath_share_begin_turns(mpath_share_t *share);
int mpath_share_turn_is_mine(const mpath_share_t *share, int turn);
/* The nodes that something goes to in a turn, and comes from. */
int mpath_share_turn_to(const mpath_share_t *share, int phase, int turn);
int mpath_share_turn_from(const mpath_share_t *share, int phase, int turn);
/* In steps: parts of which a node has sums before a turn, beginning with its own. */
uint64_t mpath_share_width(const mpath_share_t *share, int turn);
/* Bytes of a slot for what comes in all turns, where parts have so many at most, and all together; at: of each turn, or NULL. */
uint64_t mpath_share_steps_bytes(const mpath_share_t *share, uint64_t part_bytes, uint64_t all_bytes, uint64_t *at);
/* In steps: where the fragments of a segment lie. */
void mpath_share_cut_by_rail(const mpath_share_t *share, share_cut_t *cut);
/* Where an element of a node's part lies in the segment; *count_p: cut down to those that follow it there. */
uint64_t mpath_share_spot(const mpath_share_t *share, const share_cut_t *cut, int node, uint64_t element,
                          uint64_t *count_p);
/*
 * In steps, of a segment, a rail and a turn: the sums that stay in a scatter, to which those of another node are added, and that a gather
 * sends; those of another node; and those of others, which a scatter sends and a gather brings.
 */
void mpath_share_sums(const mpath_share_t *share, const share_cut_t *cut, int rail, int turn, share_range_t *range);
void mpath_share_sums_from(const mpath_share_t *share, const share_cut_t *cut, int rail, int turn,
                           share_range_t *range);
void mpath_share_others(const mpath_share_t *share, const share_cut_t *cut, int rail, int turn, share_range_t *range);

/* pipeline/lines.c */
/* Sets this rank's counter. */
void mpath_share_step(const mpath_share_t *share, share_line_t *lines, uint64_t value);
/* Whether segment k may be published: its slot is free. Whether the result of segment k is complete on this node. */
int mpath_share_may_publish(const mpath_share_t *share, uint64_t k);
int mpath_share_is_delivered(const mpath_share_t *share, uint64_t k);
/* Segments that have come by the link completely, in all turns of a phase. */
uint64_t mpath_share_arrived(const mpath_share_t *share, const share_link_t *link, int phase);
/* Whether all that is to be combined on this rail in segment k is here. */
int mpath_share_may_combine(const mpath_share_t *share, const share_link_t *link, uint64_t k);

/* The smallest of the counters, less the base; *who_p is its index. */
uint64_t mpath_share_least(const mpath_share_t *share, const share_line_t *lines, int count, int *who_p);

/* pipeline/link.c: steps of a driver. Number of events, or an error. */
extern const mpath_wire_ops_t mpath_share_wire_ops;

void mpath_share_link_reset(mpath_share_t *share, share_link_t *link);
int mpath_share_link_step(mpath_share_t *share, share_link_t *link);

static inline int share_has(const mpath_share_t *share, unsigned flag)
{
    return (share->job->flags & flag) != 0;
}

static inline char *share_slot(const mpath_share_t *share, uint64_t segment)
{
    return share->slots + segment % SHARE_SLOTS * share->slot_bytes;
}

/* Where the segment of a local rank lies; that of the first one becomes the sum, and the whole result. */
static inline char *share_input(const mpath_share_t *share, uint64_t segment, int local_rank)
{
    return share_slot(share, segment) + (uint64_t)local_rank * share->input_bytes;
}

/* Where the own part that another node has sent lies. */
static inline char *share_from_node(const mpath_share_t *share, uint64_t segment, int node)
{
    int index = (node < share->node) ? node : node - 1;

    return share_slot(share, segment) + share->num_inputs * share->input_bytes + (uint64_t)index * share->other_bytes;
}

/* Where the own part of the result lies: combination begins with node 0, and the result is in place of its data. */
static inline char *share_own_result(mpath_share_t *share, uint64_t segment)
{
    if (share_has(share, MPATH_SHARE_REDUCE) && !share->job->in_steps && (share->node > 0)) {
        return share_from_node(share, segment, 0);
    }
    return share_input(share, segment, 0) +
           mpath_share_cut(share, segment)->at[share->node] * share->job->element_bytes;
}

/* pipeline/cut.c */
/* Whether less over the links between the GPUs of a node and its host makes an Allreduce shorter. The same on all ranks. */
int mpath_share_gpu_links_decide(const mpath_share_t *share);

#endif
