/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Scatter and gather in steps, where the nodes are many: which node gets what in each turn, where that lies, and when it is
 * worth it.
 *
 * N nodes need J = ceil(log2 N) turns. Before turn j a node has sums for w(j) = ceil(N / 2^j) parts, beginning with its own and
 * going round. Those behind the first w(j + 1) it sends to the node that is w(j + 1) further, which adds them to its first
 * ones; at the end it has its own part. All these nodes are near each other (mpath_team_is_near()), so that rails need no address of
 * others. The gather goes back along the same steps (Träff, "Optimal, non-pipelined reduce-scatter and
 * allreduce algorithms", arXiv 2410.14234, 2024; Bruck et al., IEEE TPDS 8(11), 1997). As many bytes as with direct exchanges,
 * N - 1 parts in each direction, in J messages instead of N - 1.
 *
 * So that a message is one range of memory, and one call combines it, a segment lies otherwise in its slot than with direct
 * exchanges: by rail, and of each rail the fragments of the node's own part, of that of the next node, and so on round.
 */
#include "pipeline/pipeline_private.h"

#include "util/time.h"

#define DIRECT_NODES 16 /* up to so many exchange directly */
#define TURN_NS 10000   /* a message between nodes, from one to the other */
#define MESSAGE_NS 2000 /* what each further one costs a driver, at both ends */

/* Segments, roughly as cut.c chooses them, but by rails that there were, too: those that have failed are not to change the order. */
#define FRAGMENT_BYTES 8192u
#define SEGMENTS_MOST 8u

uint64_t mpath_share_width(const mpath_share_t *share, int turn)
{
    return ((uint64_t)share->num_nodes + (UINT64_C(1) << turn) - 1) >> turn;
}

static int turns_of(int num_nodes)
{
    int turns = 0;

    while ((1 << turns) < num_nodes) {
        turns++;
    }
    return turns;
}

static int node_at(const mpath_share_t *share, uint64_t distance)
{
    return (int)(((uint64_t)share->node + distance) % (uint64_t)share->num_nodes);
}

static uint64_t size_of(const share_cut_t *cut, int node)
{
    return cut->at[node + 1] - cut->at[node];
}

/* -- who -- */

void mpath_share_begin_turns(mpath_share_t *share)
{
    share->num_turns = share->job->in_steps ? turns_of(share->num_nodes) : share->num_nodes;
}

int mpath_share_turn_is_mine(const mpath_share_t *share, int turn)
{
    return share->job->in_steps || turn != share->node;
}

int mpath_share_turn_to(const mpath_share_t *share, int phase, int turn)
{
    uint64_t width;

    if (!share->job->in_steps) {
        return turn; /* of which there may be more than a number has bits */
    }
    width = mpath_share_width(share, turn + 1);
    return node_at(share, phase == SHARE_SCATTER ? width : (uint64_t)share->num_nodes - width);
}

int mpath_share_turn_from(const mpath_share_t *share, int phase, int turn)
{
    return share->job->in_steps ? mpath_share_turn_to(share, SHARE_PHASES - 1 - phase, turn) : turn;
}

/* -- what -- */

/* Parts whose sums go to another node in a turn, or are there at its end. */
static uint64_t parts_of(const mpath_share_t *share, int turn)
{
    return mpath_share_width(share, turn) - mpath_share_width(share, turn + 1);
}

uint64_t mpath_share_steps_bytes(const mpath_share_t *share, uint64_t part_bytes, uint64_t all_bytes, uint64_t *at)
{
    uint64_t sum = 0;

    for (int turn = 0; turn < turns_of(share->num_nodes); turn++) {
        uint64_t bytes = parts_of(share, turn) * part_bytes;

        if (at != NULL) {
            at[turn] = sum;
        }
        bytes = bytes < all_bytes ? bytes : all_bytes;
        sum += (bytes + SHARE_LINE - 1) / SHARE_LINE * SHARE_LINE;
    }
    return sum;
}

void mpath_share_cut_by_rail(const mpath_share_t *share, share_cut_t *cut)
{
    uint64_t whole = share->cumulative[share->num_rails], at = 0, *fragment = cut->fragments;

    for (int rail = 0; rail < share->num_rails; rail++) {
        for (int i = 0; i < share->num_nodes; i++) {
            uint64_t count = size_of(cut, node_at(share, (uint64_t)i));

            *fragment++ = at;
            at += count * share->cumulative[rail + 1] / whole - count * share->cumulative[rail] / whole;
        }
        *fragment++ = at;
    }
}

uint64_t mpath_share_spot(const mpath_share_t *share, const share_cut_t *cut, int node, uint64_t element,
                          uint64_t *count_p)
{
    uint64_t whole = share->cumulative[share->num_rails], count = size_of(cut, node), from = 0, to;
    size_t index = (size_t)((node - share->node + share->num_nodes) % share->num_nodes);

    if (!share->job->in_steps) {
        return cut->at[node] + element;
    }
    for (int rail = 0; rail < share->num_rails; rail++) {
        to = count * share->cumulative[rail + 1] / whole;
        if (element < to) {
            *count_p = *count_p < to - element ? *count_p : to - element;
            return cut->fragments[(size_t)rail * (size_t)(share->num_nodes + 1) + index] + element - from;
        }
        from = to;
    }
    return cut->at[share->num_nodes]; /* not of the part */
}

/* Of the elements that a node has for others and for itself: those of a rail from one part to another, in order from its own. */
static void fragments_between(const mpath_share_t *share, const share_cut_t *cut, int rail, uint64_t from, uint64_t to,
                              share_range_t *range)
{
    const uint64_t *fragments = cut->fragments + (size_t)rail * (size_t)(share->num_nodes + 1);

    range->count = fragments[to] - fragments[from];
    range->data  = share_input(share, cut->segment, 0) + fragments[from] * share->job->element_bytes;
}

void mpath_share_sums(const mpath_share_t *share, const share_cut_t *cut, int rail, int turn, share_range_t *range)
{
    fragments_between(share, cut, rail, 0, parts_of(share, turn), range);
}

/* Where the sums of another node come to: behind those of the rails before this one. */
void mpath_share_sums_from(const mpath_share_t *share, const share_cut_t *cut, int rail, int turn, share_range_t *range)
{
    const uint64_t *fragments = cut->fragments;
    uint64_t parts = parts_of(share, turn), before = 0;

    for (int i = 0; i < rail; i++, fragments += share->num_nodes + 1) {
        before += fragments[parts] - fragments[0];
    }
    range->count = fragments[parts] - fragments[0];
    range->data  = share_slot(share, cut->segment) + share->num_inputs * share->input_bytes + share->turn_at[turn] +
                  before * share->job->element_bytes;
}

void mpath_share_others(const mpath_share_t *share, const share_cut_t *cut, int rail, int turn, share_range_t *range)
{
    fragments_between(share, cut, rail, mpath_share_width(share, turn + 1), mpath_share_width(share, turn), range);
}

/* -- when -- */

/* What a call takes that goes through the rails in so many messages of each driver and segment, so many after each other. */
static uint64_t exchange_ns(uint64_t phases, uint64_t segments, uint64_t messages, uint64_t waits, uint64_t bytes_ns)
{
    uint64_t messages_ns = phases * segments * messages * MESSAGE_NS;

    return phases * waits * TURN_NS + (messages_ns > bytes_ns ? messages_ns : bytes_ns);
}

int mpath_share_in_steps(const mpath_share_t *share, unsigned flags, uint64_t bytes)
{
    uint64_t nodes = (uint64_t)share->num_nodes, turns = (uint64_t)turns_of(share->num_nodes);
    uint64_t phases  = ((flags & MPATH_SHARE_REDUCE) != 0) + ((flags & MPATH_SHARE_GATHER) != 0);
    uint64_t segment = nodes * (uint64_t)share->num_declared * FRAGMENT_BYTES, segments, bytes_ns;

    if (share->settings->steps_nodes > 0) {
        return share->num_nodes > 1 && share->num_nodes >= share->settings->steps_nodes;
    }
    if (share->num_nodes <= DIRECT_NODES || share->declared_bps == 0) {
        return 0;
    }
    segments = segment > 0 ? (bytes + segment - 1) / segment : 1;
    segments = segments < SEGMENTS_MOST ? segments : SEGMENTS_MOST;
    bytes_ns = (uint64_t)((double)phases * (double)bytes / (double)nodes * (double)(nodes - 1) /
                          (double)share->declared_bps * (double)MPATH_NS_PER_S);
    return exchange_ns(phases, segments, nodes - 1, 1, bytes_ns) >
           exchange_ns(phases, segments, turns, turns, bytes_ns);
}
