/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a vector is cut: into segments that hold the same fraction of every node's part, and those into fragments by rail.
 */
#include "pipeline/pipeline_private.h"

#include "util/log.h"
#include "util/time.h"

#include <stdlib.h>

#define FRAGMENT_MS 2       /* a rail is busy for so long with its fragment of one part */
#define SEGMENTS_AT_LEAST 8 /* unless fragments get smaller than the minimum: a pipeline has to fill before it flows */
#define FRAGMENT_MIN_BYTES 8192ull         /* of one rail, for one node */
#define SLICE_MIN_BYTES 16384ull           /* of one rank, where no byte leaves the node */
#define SLICE_MIN_GPU_BYTES (128ull << 10) /* of one GPU, for which a start takes as long as so many bytes */
#define SEGMENT_MAX_BYTES (1ull << 30)

static uint64_t align_line(uint64_t bytes)
{
    return (bytes + SHARE_LINE - 1) / SHARE_LINE * SHARE_LINE;
}

/* About total * k / segments, in grains, without overflow. */
static uint64_t fraction(const mpath_share_t *share, uint64_t total, uint64_t k, uint64_t segments)
{
    uint64_t grains = total / share->grain + (total % share->grain != 0);
    uint64_t at     = (grains / segments * k + grains % segments * k / segments) * share->grain;

    return (at < total) ? at : total;
}

static uint64_t ceiling(uint64_t total, uint64_t segments)
{
    return total / segments + (total % segments != 0);
}

uint64_t mpath_share_part_done(const mpath_share_t *share, int node, uint64_t segments)
{
    return fraction(share, share->part_elements[node], segments, share->num_segments);
}

/* The most elements of a node's part in a segment. */
static uint64_t part_most(const mpath_share_t *share, int node, uint64_t segments)
{
    return ceiling(ceiling(share->part_elements[node], share->grain), segments) * share->grain;
}

static uint64_t largest_part(const mpath_share_t *share, uint64_t segments)
{
    uint64_t largest = 0;

    for (int node = 0; node < share->num_nodes; node++) {
        uint64_t most = part_most(share, node, segments);

        largest = (most > largest) ? most : largest;
    }
    return largest;
}

/* Vectors in a slot before those from other nodes. */
static uint64_t inputs_on(const mpath_share_t *share, int node)
{
    int one = !share_has(share, MPATH_SHARE_REDUCE) || (share->job->gpus != NULL);

    return one ? 1 : (uint64_t)share->num_on[node];
}

/* Bytes of a slot that `segments` segments need on a node. */
static uint64_t slot_need(const mpath_share_t *share, uint64_t segments, int node)
{
    uint64_t element = share->job->element_bytes, all = 0;

    for (int m = 0; m < share->num_nodes; m++) {
        all += part_most(share, m, segments);
    }
    if (!share_has(share, MPATH_SHARE_REDUCE)) {
        return align_line(all * element);
    }
    if (share->job->in_steps) {
        return inputs_on(share, node) * align_line(all * element) +
               mpath_share_steps_bytes(share, largest_part(share, segments) * element, all * element, NULL);
    }
    return inputs_on(share, node) * align_line(all * element) +
           (uint64_t)(share->num_nodes - 1) * align_line(part_most(share, node, segments) * element);
}

static int fits(const mpath_share_t *share, uint64_t segments)
{
    for (int node = 0; node < share->num_nodes; node++) {
        uint64_t slot_bytes = share->rank_bytes * (uint64_t)share->num_on[node] / SHARE_SLOTS / SHARE_LINE * SHARE_LINE;

        if (slot_need(share, segments, node) > slot_bytes) {
            return 0;
        }
    }
    return 1;
}

uint64_t mpath_share_least_local(const mpath_share_t *share)
{
    uint64_t least = UINT64_MAX;

    for (int node = 0; node < share->num_nodes; node++) {
        least = ((uint64_t)share->num_on[node] < least) ? (uint64_t)share->num_on[node] : least;
    }
    return least;
}

/* The size that fills the pipeline soon and still keeps everybody busy with each segment. */
static uint64_t target_bytes(const mpath_share_t *share, uint64_t total_bytes)
{
    uint64_t nodes = (uint64_t)share->num_nodes, least, most = 0, bytes = total_bytes / SEGMENTS_AT_LEAST;

    if (share->num_nodes == 1) {
        least = (uint64_t)share->num_local * SLICE_MIN_BYTES;
        most  = SEGMENT_MAX_BYTES;
    } else {
        least = nodes * (uint64_t)share->num_rails * FRAGMENT_MIN_BYTES;
        if (share->job->gpus != NULL) {
            uint64_t slices = mpath_share_least_local(share) * SLICE_MIN_GPU_BYTES;

            least = (slices > least) ? slices : least;
        }
        for (int rail = 0; rail < share->num_rails; rail++) {
            most += share->rails[rail].rate_bps / 1000 * FRAGMENT_MS;
        }
        most = (most * nodes < SEGMENT_MAX_BYTES) ? most * nodes : SEGMENT_MAX_BYTES;
    }
    bytes = (bytes < most) ? bytes : most;
    return (bytes > least) ? bytes : least;
}

/* Elements in a grain, where a number of them is one. */
static uint64_t grain_of(const mpath_share_job_t *job)
{
    int in_grains = (job->gpus != NULL) && (MPATH_SHARE_GRAIN_BYTES % job->element_bytes == 0);

    return in_grains ? MPATH_SHARE_GRAIN_BYTES / job->element_bytes : 1;
}

/* The first call in steps. */
static mpath_status_t fragments_allocate(mpath_share_t *share)
{
    size_t fragments = (size_t)share->num_rails * (size_t)(share->num_nodes + 1);

    if (share->fragment_memory == NULL) {
        share->fragment_memory = calloc(SHARE_SLOTS * fragments, sizeof(uint64_t));
    }
    if (share->fragment_memory == NULL) {
        mpath_error("no memory for the collectives of a communicator");
        return MPATH_ERR_NO_MEMORY;
    }
    for (int slot = 0; slot < SHARE_SLOTS; slot++) {
        share->cuts[slot].fragments = share->fragment_memory + (size_t)slot * fragments;
    }
    return MPATH_OK;
}

mpath_status_t mpath_share_cut_job(mpath_share_t *share)
{
    const mpath_share_job_t *job = share->job;
    uint64_t total = 0, most = 0, segments, element = job->element_bytes;

    share->grain = grain_of(job);

    for (int node = 0; node < share->num_nodes; node++) {
        share->part_elements[node] = 0;
        for (int i = 0; i < share->num_on[node]; i++) {
            share->part_elements[node] += job->block_elements[share->by_node[share->first_on[node] + i]];
        }
        total += share->part_elements[node];
        most = (share->part_elements[node] > most) ? share->part_elements[node] : most;
    }
    segments = ceiling(total * element, target_bytes(share, total * element));
    segments = (segments == 0) ? 1 : segments;
    while (!fits(share, segments)) {
        if (segments >= most) {
            return MPATH_DECLINED;
        }
        segments += segments / 4 + 1;
    }
    share->num_segments = segments;
    share->num_inputs   = inputs_on(share, share->node);
    share->input_bytes  = 0;
    for (int node = 0; node < share->num_nodes; node++) {
        share->input_bytes += part_most(share, node, segments);
    }
    (void)mpath_share_steps_bytes(share, largest_part(share, segments) * element, share->input_bytes * element,
                                  share->turn_at);
    share->input_bytes = align_line(share->input_bytes * element);
    share->other_bytes = align_line(part_most(share, share->node, segments) * element);
    for (int slot = 0; slot < SHARE_SLOTS; slot++) {
        share->cuts[slot].segment = UINT64_MAX;
    }
    mpath_share_begin_turns(share);
    return job->in_steps ? fragments_allocate(share) : MPATH_OK;
}

const share_cut_t *mpath_share_cut(mpath_share_t *share, uint64_t segment)
{
    share_cut_t *cut = &share->cuts[segment % SHARE_SLOTS];

    if (cut->segment != segment) {
        cut->segment = segment;
        cut->at[0]   = 0;
        for (int node = 0; node < share->num_nodes; node++) {
            uint64_t total = share->part_elements[node];

            cut->first[node]  = fraction(share, total, segment, share->num_segments);
            cut->at[node + 1] = cut->at[node] + fraction(share, total, segment + 1, share->num_segments) -
                                cut->first[node];
        }
        if (share->job->in_steps) {
            mpath_share_cut_by_rail(share, cut);
        }
    }
    return cut;
}

void mpath_share_fragment(const mpath_share_t *share, const share_cut_t *cut, int node, int rail, uint64_t *first_p,
                          uint64_t *count_p)
{
    uint64_t count = cut->at[node + 1] - cut->at[node], whole = share->cumulative[share->num_rails];
    uint64_t from = count * share->cumulative[rail] / whole, to = count * share->cumulative[rail + 1] / whole;

    *first_p = cut->at[node] + from;
    *count_p = to - from;
}

/*
 * Predicted times: of a call through the pipeline, and of the function that it would replace. Both from the
 * topology alone, so that all ranks come to the same. Terms that both have in common (bytes over all rails at their
 * rate) cancel out; what counts is what each does one after the other that the other does at the same time.
 */

#define MESSAGE_NS 10000            /* a message between nodes, software included, beyond the latency of the NICs */
#define CALL_NS 20000               /* set-up and end of a call */
#define SEGMENT_NS 10000            /* of a segment through the steps, once */
#define SEGMENTS_TYPICAL 8u         /* of a call that is just worth it */
#define GPU_STEP_NS 12000           /* what a GPU does with a segment, from its start until the host knows of its end */
#define GPU_LINK_BPS 25000000000ull /* of a GPU's link to the host's memory, in both directions at a time */
#define GPU_LINKS_MARGIN_PART 4     /* a quarter: on one H100 behind slow rails such launches cost up to 14 % */
#define COPY_NS 10000               /* a copy to the host or from it, for a function that works there */
#define COPY_BPS 20000000000ull

/* bytes / bps in nanoseconds, for times below some days */
static uint64_t time_of(uint64_t bytes, uint64_t bps)
{
    return (uint64_t)((double)bytes * (double)MPATH_NS_PER_S / (double)((bps > 0) ? bps : 1));
}

/* Of those that are worth using. */
static uint64_t rails_bps(const mpath_share_t *share, uint64_t *fastest_p)
{
    uint64_t sum = 0;

    *fastest_p = 0;
    for (int i = 0; i < share->num_rails; i++) {
        sum += ((share->lanes >> i) & 1) ? share->rails[i].rate_bps : 0;
        *fastest_p = (share->rails[i].rate_bps > *fastest_p) ? share->rails[i].rate_bps : *fastest_p;
    }
    return sum;
}

/* What the copies and combinations in a node take, were they done alone: in the one that takes longest. */
static uint64_t memory_ns(const mpath_share_t *share, unsigned flags, uint64_t bytes)
{
    uint64_t longest = 0;

    for (int node = 0; node < share->num_nodes; node++) {
        uint64_t bps = mpath_topo_machine(share->topo, node)->host_memory_bps, ranks = (uint64_t)share->num_on[node];
        uint64_t copies = ((flags & MPATH_SHARE_REDUCE) ? 2 * ranks : 1) + ((flags & MPATH_SHARE_GATHER) ? ranks : 0);
        uint64_t time   = (bps > 0) ? time_of(bytes * copies, bps) : 0;

        longest = (time > longest) ? time : longest;
    }
    return longest;
}

/* What crosses between nodes in each direction, of the whole vector, over all rails of a node. */
static uint64_t crossing_bytes(const mpath_share_t *share, unsigned flags, uint64_t bytes)
{
    uint64_t phases = ((flags & MPATH_SHARE_REDUCE) != 0) + ((flags & MPATH_SHARE_GATHER) != 0);

    return phases * (bytes / (uint64_t)share->num_nodes * (uint64_t)(share->num_nodes - 1));
}

uint64_t mpath_share_links_ns(const mpath_share_t *share, unsigned flags, uint64_t bytes)
{
    uint64_t fastest_bps;

    return (share->num_nodes > 1) ? time_of(crossing_bytes(share, flags, bytes), rails_bps(share, &fastest_bps)) : 0;
}

static uint64_t log2_ceiling(uint64_t value)
{
    uint64_t log = 0;

    while ((1ull << log) < value) {
        log++;
    }
    return log;
}

uint64_t mpath_share_predict_ns(const mpath_share_t *share, unsigned flags, uint64_t bytes)
{
    uint64_t rails = mpath_share_links_ns(share, flags, bytes), memory = memory_ns(share, flags, bytes);
    uint64_t agree = (share->num_nodes > 1) ? 2 * MESSAGE_NS : 0;

    /* The pipeline is filled by the first segment and emptied by the last one. */
    return agree + CALL_NS + SEGMENTS_TYPICAL * SEGMENT_NS + ((rails > memory) ? rails : memory) +
           2 * ((rails > memory) ? memory : rails) / SEGMENTS_TYPICAL;
}

/*
 * The best that MPI libraries do without regard to rails: halving and doubling, whose last and first steps cross
 * between nodes on all rails at once (Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005), or plain doubling for short
 * vectors. A gather hands whole blocks from rank to rank: what a node needs comes once for each of its ranks.
 */
uint64_t mpath_share_previous_ns(const mpath_share_t *share, unsigned flags, uint64_t bytes)
{
    uint64_t fastest_bps, sum_bps = rails_bps(share, &fastest_bps), memory = memory_ns(share, flags, bytes);
    uint64_t crossing = crossing_bytes(share, flags, bytes), ranks = 0, steps, rails, plain;

    for (int node = 0; node < share->num_nodes; node++) {
        ranks += (uint64_t)share->num_on[node];
    }
    steps = log2_ceiling(ranks);
    if (share->num_nodes == 1) {
        return steps * MESSAGE_NS / 4 + memory;
    }
    switch (flags & (MPATH_SHARE_REDUCE | MPATH_SHARE_GATHER)) {
    case MPATH_SHARE_GATHER:
        return steps * MESSAGE_NS + memory + time_of(crossing, fastest_bps);
    case MPATH_SHARE_REDUCE:
        return steps * MESSAGE_NS + memory + time_of(crossing, sum_bps);
    default:
        rails = 2 * steps * MESSAGE_NS + memory + time_of(crossing, sum_bps);
        plain = steps * MESSAGE_NS + memory + time_of(bytes * log2_ceiling((uint64_t)share->num_nodes), fastest_bps);
        return (rails < plain) ? rails : plain;
    }
}

/*
 * Whether the links between the GPUs of a node and its host, and not the rails, decide how long an Allreduce takes, by so
 * much that it is worth some more launches to let less cross them. In full what rails bring and the whole result come
 * in.
 */
int mpath_share_gpu_links_decide(const mpath_share_t *share)
{
    const unsigned flags = MPATH_SHARE_REDUCE | MPATH_SHARE_GATHER;
    const uint64_t bytes = UINT64_C(1) << 30;
    uint64_t fastest_bps, rails = time_of(crossing_bytes(share, flags, bytes), rails_bps(share, &fastest_bps));

    return time_of(2 * bytes / mpath_share_least_local(share), GPU_LINK_BPS) > rails + rails / GPU_LINKS_MARGIN_PART;
}

/*
 * What crosses the links between the GPUs of a node and its host in the direction that carries more: of a reduction what
 * rails bring, or as much as the result of the own part and what is sent of the others.
 */
static uint64_t gpu_links_bytes(const mpath_share_t *share, unsigned flags, uint64_t bytes)
{
    uint64_t others = bytes / (uint64_t)share->num_nodes * (uint64_t)(share->num_nodes - 1);

    switch (flags & (MPATH_SHARE_REDUCE | MPATH_SHARE_GATHER)) {
    case MPATH_SHARE_GATHER:
        return bytes;
    case MPATH_SHARE_REDUCE:
        return others;
    default:
        return !mpath_share_gpu_links_decide(share) ? 2 * bytes : (2 * others > bytes) ? 2 * others : bytes;
    }
}

/* On every node the ranks share the links to the host and back, and what GPUs do between is faster than that. */
uint64_t mpath_share_predict_gpus_ns(const mpath_share_t *share, unsigned flags, uint64_t bytes)
{
    uint64_t reduces = (flags & MPATH_SHARE_REDUCE) != 0, gathers = (flags & MPATH_SHARE_GATHER) != 0;
    uint64_t fastest_bps, rails = time_of(crossing_bytes(share, flags, bytes), rails_bps(share, &fastest_bps));
    uint64_t link = time_of(gpu_links_bytes(share, flags, bytes) / mpath_share_least_local(share), GPU_LINK_BPS);

    return 2 * MESSAGE_NS + CALL_NS + (2 + reduces) * GPU_STEP_NS + (reduces + gathers) * MESSAGE_NS +
           ((rails > link) ? rails : link) + 2 * ((rails > link) ? link : rails) / SEGMENTS_TYPICAL;
}

uint64_t mpath_share_previous_gpus_ns(const mpath_share_t *share, unsigned flags, uint64_t bytes)
{
    uint64_t sides = ((flags & MPATH_SHARE_REDUCE) != 0) + ((flags & MPATH_SHARE_GATHER) != 0);

    return mpath_share_previous_ns(share, flags, bytes) + 2 * COPY_NS + time_of(sides * bytes, COPY_BPS);
}

int mpath_share_run_next(const mpath_share_t *share, const share_cut_t *cut, int node, share_run_t *run)
{
    uint64_t first = cut->first[node], end = first + cut->at[node + 1] - cut->at[node];

    while (run->next < share->num_on[node]) {
        int rank       = share->by_node[share->first_on[node] + run->next];
        uint64_t start = run->start, stop = start + share->job->block_elements[rank];
        uint64_t from = (start > first) ? start : first, to = (stop < end) ? stop : end;

        run->next++;
        run->start = stop;
        if (from < to) {
            run->rank       = rank;
            run->in_block   = from - start;
            run->in_segment = cut->at[node] + from - first;
            run->count      = to - from;
            return 1;
        }
    }
    return 0;
}
