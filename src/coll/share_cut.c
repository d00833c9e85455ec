/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a vector is cut: into segments that hold the same fraction of every node's part, and those into pieces by rail.
 */
#include "coll/share_private.h"

#define PIECE_MS 2              /* a rail is busy for so long with its piece of one part */
#define SEGMENTS_AT_LEAST 8     /* unless pieces get smaller than the minimum: a pipeline has to fill before it flows */
#define PIECE_MIN_BYTES 8192ull /* of one rail, for one node */
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
        least = nodes * (uint64_t)share->num_rails * PIECE_MIN_BYTES;
        if (share->job->gpus != NULL) {
            uint64_t slices = mpath_share_least_local(share) * SLICE_MIN_GPU_BYTES;

            least = (slices > least) ? slices : least;
        }
        for (int rail = 0; rail < share->num_rails; rail++) {
            most += share->rails[rail].rate_bps / 1000 * PIECE_MS;
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
    share->input_bytes = align_line(share->input_bytes * element);
    share->other_bytes = align_line(part_most(share, share->node, segments) * element);
    for (int slot = 0; slot < SHARE_SLOTS; slot++) {
        share->cuts[slot].segment = UINT64_MAX;
    }
    return MPATH_OK;
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
    }
    return cut;
}

void mpath_share_piece(const mpath_share_t *share, const share_cut_t *cut, int node, int rail, uint64_t *first_p,
                       uint64_t *count_p)
{
    uint64_t count = cut->at[node + 1] - cut->at[node], whole = share->cumulative[share->num_rails];
    uint64_t from = count * share->cumulative[rail] / whole, to = count * share->cumulative[rail + 1] / whole;

    *first_p = cut->at[node] + from;
    *count_p = to - from;
}
