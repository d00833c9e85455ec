/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the driver of a rail does: sends its fragments to the drivers on the other nodes, combines what comes for the own
 * part, and tells the node when a segment is complete on this rail.
 *
 * A chunk's flow is the segment, its offset counts from the fragment's begin; its hop says the rest.
 */
#include "pipeline/gpu.h"

#include "util/log.h"
#include "util/time.h"

#include <string.h>

#define HOP_EMPTY (1u << 1) /* bit 0: the phase */
#define HOP_RAIL_SHIFT 2
#define HOP_RAIL_MASK 63u
#define HOP_TURN_SHIFT 8 /* with direct exchanges the node that sends; see pipeline_private.h */

static uint32_t hop_make(int phase, int empty, int rail, int turn)
{
    return (uint32_t)phase | (empty ? HOP_EMPTY : 0) | ((uint32_t)rail << HOP_RAIL_SHIFT) |
           ((uint32_t)turn << HOP_TURN_SHIFT);
}

static share_link_t *link_of(mpath_share_t *share, uint32_t hop)
{
    int rail = (int)((hop >> HOP_RAIL_SHIFT) & HOP_RAIL_MASK);

    for (int i = 0; i < share->num_links; i++) {
        if (share->links[i].rail == rail) {
            return &share->links[i];
        }
    }
    return NULL;
}

static uint64_t *got_of(const mpath_share_t *share, const share_link_t *link, int phase, uint64_t k, int turn)
{
    return &link->got[phase][k % SHARE_SLOTS * (uint64_t)share->num_nodes + (uint64_t)turn];
}

/* With direct exchanges: the own part, as it comes from all nodes, or goes to them when it is final. */
static void own_fragment(mpath_share_t *share, const share_link_t *link, uint64_t k, uint64_t *first_p,
                         uint64_t *count_p)
{
    mpath_share_fragment(share, mpath_share_cut(share, k), share->node, link->rail, first_p, count_p);
}

/* The part of another node, as this one has it. */
static void other_fragment(mpath_share_t *share, const share_link_t *link, uint64_t k, int node, share_range_t *range)
{
    uint64_t first;

    mpath_share_fragment(share, mpath_share_cut(share, k), node, link->rail, &first, &range->count);
    range->data = share_input(share, k, 0) + first * share->job->element_bytes;
}

static char *own_data(mpath_share_t *share, uint64_t k, uint64_t first)
{
    return share_own_result(share, k) +
           (first - mpath_share_cut(share, k)->at[share->node]) * share->job->element_bytes;
}

/* What comes in a turn, and where it goes. */
static void range_in(mpath_share_t *share, const share_link_t *link, int phase, uint64_t k, int turn,
                     share_range_t *range)
{
    uint64_t first;

    if (share->job->in_steps) {
        (phase == SHARE_SCATTER ? mpath_share_sums_from : mpath_share_others)(share, mpath_share_cut(share, k),
                                                                              link->rail, turn, range);
    } else if (phase == SHARE_GATHER) {
        other_fragment(share, link, k, turn, range);
    } else {
        own_fragment(share, link, k, &first, &range->count);
        range->data = share_from_node(share, k, turn) +
                      (first - mpath_share_cut(share, k)->at[share->node]) * share->job->element_bytes;
    }
}

/* What is sent in a turn. */
static void range_out(mpath_share_t *share, const share_link_t *link, int phase, uint64_t k, int turn,
                      share_range_t *range)
{
    uint64_t first;

    if (share->job->in_steps) {
        (phase == SHARE_SCATTER ? mpath_share_others : mpath_share_sums)(share, mpath_share_cut(share, k), link->rail,
                                                                         turn, range);
    } else if (phase == SHARE_SCATTER) {
        other_fragment(share, link, k, turn, range);
    } else {
        own_fragment(share, link, k, &first, &range->count);
        range->data = own_data(share, k, first);
    }
}

void mpath_share_link_reset(mpath_share_t *share, share_link_t *link)
{
    size_t nodes = (size_t)share->num_nodes;

    for (int phase = 0; phase < SHARE_PHASES; phase++) {
        memset(link->next_send[phase], 0, nodes * sizeof(uint64_t));
        memset(link->sent_bytes[phase], 0, nodes * sizeof(uint64_t));
        memset(link->arrived[phase], 0, nodes * sizeof(uint64_t));
        memset(link->got[phase], 0, SHARE_SLOTS * nodes * sizeof(uint64_t));
    }
    memset(link->added, 0, nodes * sizeof(uint64_t));
    memset(link->in_flight, 0, sizeof(link->in_flight));
    link->combined = link->delivered = link->freed = 0;
    link->taken_bytes = link->busy_ns = link->looked_ns = 0;
    link->busy                                          = 0;
    if (share->rails[link->rail].weight == 0) {
        link->freed = link->delivered = share->num_segments;
        atomic_store_explicit(&share->delivered[link->rail].value, share->base + share->num_segments,
                              memory_order_release);
    }
}

/* -- arriving -- */

static mpath_status_t not_expected(const mpath_share_t *share, const mpath_chunk_t *chunk)
{
    mpath_error(
        "rank %d, in call %u, got a chunk that it does not wait for: call %u, segment %u of %llu, offset %llu, %u "
        "bytes, hop %x; the call fails",
        share->me, share->job->call, chunk->call, chunk->flow, (unsigned long long)share->num_segments,
        (unsigned long long)chunk->offset, chunk->bytes, chunk->hop);
    return MPATH_ERR_INTERNAL;
}

static mpath_status_t place(void *argument, const mpath_wire_arrival_t *arrival, void **to_p, void **item_p)
{
    const mpath_chunk_t *chunk = &arrival->lane.chunk;
    mpath_share_t *share       = argument;
    share_link_t *link         = link_of(share, chunk->hop);
    int phase = (int)(chunk->hop & 1), turn = (int)(chunk->hop >> HOP_TURN_SHIFT);
    uint64_t k = chunk->flow, bytes;
    share_range_t range;

    (void)item_p;
    if ((link == NULL) || (chunk->call != share->job->call) || (k >= share->num_segments) ||
        (turn >= share->num_turns) || !mpath_share_turn_is_mine(share, turn) || (k < link->arrived[phase][turn]) ||
        (k >= share->my_consumed + SHARE_SLOTS) || (share->rails[link->rail].weight == 0)) {
        return not_expected(share, chunk);
    }
    range_in(share, link, phase, k, turn, &range);
    if (chunk->hop & HOP_EMPTY) {
        *to_p = NULL;
        return (range.count == 0) ? MPATH_OK : not_expected(share, chunk);
    }
    bytes = range.count * share->job->element_bytes;
    if ((chunk->offset > bytes) || (chunk->bytes > bytes - chunk->offset)) {
        return not_expected(share, chunk);
    }
    *to_p = range.data + chunk->offset;
    return MPATH_OK;
}

static void placed(void *argument, const mpath_chunk_t *chunk, void *item)
{
    mpath_share_t *share = argument;
    share_link_t *link   = link_of(share, chunk->hop);
    int phase = (int)(chunk->hop & 1), turn = (int)(chunk->hop >> HOP_TURN_SHIFT);
    uint64_t *arrived = &link->arrived[phase][turn];
    share_range_t range;

    (void)item;
    link->taken_bytes += (chunk->hop & HOP_EMPTY) ? 0 : chunk->bytes;
    *got_of(share, link, phase, chunk->flow, turn) += (chunk->hop & HOP_EMPTY) ? 1 : chunk->bytes;
    while (*arrived < share->num_segments) {
        uint64_t *got = got_of(share, link, phase, *arrived, turn);

        if (*got == 0) {
            return;
        }
        range_in(share, link, phase, *arrived, turn, &range);
        if (*got < ((range.count > 0) ? range.count * share->job->element_bytes : 1)) {
            return;
        }
        *got = 0;
        (*arrived)++;
    }
}

static void sent(void *argument, const mpath_chunk_t *chunk, void *item)
{
    mpath_share_t *share = argument;

    (void)item;
    link_of(share, chunk->hop)->in_flight[chunk->flow % SHARE_SLOTS]--;
}

const mpath_wire_ops_t mpath_share_wire_ops = {.place = place, .placed = placed, .sent = sent};

/* -- combining -- */

static int combine(mpath_share_t *share, share_link_t *link)
{
    const mpath_share_job_t *job = share->job;
    uint64_t k                   = link->combined, first, count, at;
    char *result;

    if (!mpath_share_may_combine(share, link, k)) {
        return 0;
    }
    mpath_share_fragment(share, mpath_share_cut(share, k), share->node, link->rail, &first, &count);
    at     = (first - mpath_share_cut(share, k)->at[share->node]) * job->element_bytes;
    result = own_data(share, k, first);
    for (int node = 1; (node < share->num_nodes) && (count > 0); node++) {
        const char *data = (node == share->node) ? share_input(share, k, 0) + first * job->element_bytes
                                                 : share_from_node(share, k, node) + at;

        job->reduce(job->reduce_argument, data, result, count);
    }
    link->combined++;
    return 1;
}

/* In steps: segments of which the sums that a turn sends are complete here, and those that it adds to. */
static uint64_t added_before(const mpath_share_t *share, const share_link_t *link, int turn)
{
    return (turn == 0) ? mpath_share_least(share, share->reduced, share->num_local, NULL) : link->added[turn - 1];
}

/* Segments whose own part is final, and, in steps, that a gather has brought from this turn on, which goes before those below. */
static uint64_t gathered_until(const mpath_share_t *share, const share_link_t *link, int turn)
{
    uint64_t until = share_has(share, MPATH_SHARE_REDUCE)
                         ? link->combined
                         : mpath_share_least(share, share->published, share->num_local, NULL);

    for (; turn < share->num_turns; turn++) {
        until = (link->arrived[SHARE_GATHER][turn] < until) ? link->arrived[SHARE_GATHER][turn] : until;
    }
    return until;
}

/* In steps: adds what has come. Number of events. */
static int add(mpath_share_t *share, share_link_t *link)
{
    const mpath_share_job_t *job = share->job;
    int events                   = 0;

    for (int turn = 0; turn < share->num_turns; turn++) {
        uint64_t *added_p = &link->added[turn], k = *added_p;
        const share_cut_t *cut;
        share_range_t from, to;

        if ((k == share->num_segments) || (link->arrived[SHARE_SCATTER][turn] <= k) ||
            (added_before(share, link, turn) <= k)) {
            continue;
        }
        cut = mpath_share_cut(share, k);
        mpath_share_sums_from(share, cut, link->rail, turn, &from);
        mpath_share_sums(share, cut, link->rail, turn, &to);
        if (to.count > 0) {
            job->reduce(job->reduce_argument, from.data, to.data, to.count);
        }
        (*added_p)++;
        events++;
    }
    link->combined = link->added[share->num_turns - 1];
    return events;
}

static int deliver(mpath_share_t *share, share_link_t *link)
{
    uint64_t until = share_has(share, MPATH_SHARE_REDUCE)
                         ? link->combined
                         : mpath_share_least(share, share->published, share->num_local, NULL);

    if (share_has(share, MPATH_SHARE_GATHER)) {
        uint64_t arrived = mpath_share_arrived(share, link, SHARE_GATHER);

        until = (arrived < until) ? arrived : until;
    }
    if (until == link->delivered) {
        return 0;
    }
    link->delivered = until;
    atomic_store_explicit(&share->delivered[link->rail].value, share->base + until, memory_order_release);
    return 1;
}

/* -- sending -- */

/* What comes first over a rail in this call. */
static int first_phase(const mpath_share_t *share)
{
    return share_has(share, MPATH_SHARE_REDUCE) ? SHARE_SCATTER : SHARE_GATHER;
}

/* Nonzero: the node has a slot for the segment; see pipeline/pipeline_private.h. */
static int has_slot(const mpath_share_t *share, const share_link_t *link, int phase, int turn, uint64_t k)
{
    uint64_t heard;

    if ((phase != first_phase(share)) || (k < SHARE_SLOTS)) {
        return 1;
    }
    if (!share->job->in_steps) {
        heard = link->arrived[phase][turn];
    } else {
        heard = (phase == SHARE_SCATTER) ? link->combined : mpath_share_arrived(share, link, phase);
    }
    return heard > k - SHARE_LAG;
}

/* Sends the next chunk of a turn: 1, 0 when the rail is full, or an error. */
static int send_chunk(mpath_share_t *share, share_link_t *link, int phase, int turn)
{
    const share_rail_t *rail = &share->rails[link->rail];
    uint64_t k = link->next_send[phase][turn], *sent_p = &link->sent_bytes[phase][turn], all, bytes;
    int node = mpath_share_turn_to(share, phase, turn);
    share_range_t range;
    mpath_chunk_t chunk;
    mpath_status_t status;

    range_out(share, link, phase, k, turn, &range);
    all   = range.count * share->job->element_bytes;
    bytes = (all - *sent_p < share->max_chunk) ? all - *sent_p : share->max_chunk;
    chunk = (mpath_chunk_t){.call   = share->job->call,
                            .flow   = (uint32_t)k,
                            .offset = *sent_p,
                            .bytes  = (uint32_t)((all > 0) ? bytes : 1), /* whatever it holds */
                            .hop    = hop_make(phase, all == 0, link->rail, share->job->in_steps ? turn : share->node)};
    link->in_flight[k % SHARE_SLOTS]++;
    status = mpath_wire_send(share->wire, rail->nic[share->node], rail->driver[node], rail->nic[node], &chunk,
                             (all > 0) ? range.data + *sent_p : share_slot(share, k), NULL);
    if (status != MPATH_OK) {
        link->in_flight[k % SHARE_SLOTS]--;
        return (status == MPATH_NO_RESOURCE) ? 0 : (int)status;
    }
    *sent_p += (all > 0) ? bytes : 0;
    share->stats.rail_bytes += (all > 0) ? bytes : 0;
    if (*sent_p == all) {
        *sent_p = 0;
        link->next_send[phase][turn]++;
    }
    return 1;
}

/* Segments whose data for a turn of the phase is there. */
static uint64_t sendable(const mpath_share_t *share, const share_link_t *link, int phase, int turn)
{
    if (phase == SHARE_SCATTER) {
        return share->job->in_steps ? added_before(share, link, turn)
                                    : mpath_share_least(share, share->reduced, share->num_local, NULL);
    }
    return gathered_until(share, link, share->job->in_steps ? turn + 1 : share->num_turns);
}

/* One chunk of every turn whose node has a slot, until none has. */
static int send_phase(mpath_share_t *share, share_link_t *link, int phase)
{
    uint64_t until = sendable(share, link, phase, 0);
    int events     = 0, round;

    do {
        round = 0;
        for (int i = 1; i <= share->num_turns; i++) {
            int turn = (share->node + i) % share->num_turns, result;
            uint64_t k;

            if (!mpath_share_turn_is_mine(share, turn)) {
                continue;
            }
            k     = link->next_send[phase][turn];
            until = share->job->in_steps ? sendable(share, link, phase, turn) : until;
            if ((k < until) && has_slot(share, link, phase, turn, k)) {
                result = send_chunk(share, link, phase, turn);
                if (result < 0) {
                    return result;
                }
                round += result;
            }
        }
        events += round;
    } while (round > 0);
    return events;
}

static int is_sent(const mpath_share_t *share, const share_link_t *link, uint64_t k)
{
    for (int turn = 0; turn < share->num_turns; turn++) {
        if (mpath_share_turn_is_mine(share, turn) &&
            ((share_has(share, MPATH_SHARE_REDUCE) && (link->next_send[SHARE_SCATTER][turn] <= k)) ||
             (share_has(share, MPATH_SHARE_GATHER) && (link->next_send[SHARE_GATHER][turn] <= k)))) {
            return 0;
        }
    }
    return link->in_flight[k % SHARE_SLOTS] == 0;
}

/*
 * Nonzero: something is missing that the other node has surely begun to send, since this one, which is about as far,
 * has done so.
 */
static int is_busy(const mpath_share_t *share, const share_link_t *link)
{
    for (int phase = first_phase(share); phase < SHARE_PHASES; phase++) {
        for (int turn = 0; turn < share->num_turns; turn++) {
            uint64_t begun = link->next_send[phase][turn] + (link->sent_bytes[phase][turn] > 0);

            if (mpath_share_turn_is_mine(share, turn) && (link->arrived[phase][turn] < begun)) {
                return 1;
            }
        }
    }
    return 0;
}

static void count_time(const mpath_share_t *share, share_link_t *link)
{
    uint64_t now_ns = mpath_time_ns();

    link->busy_ns += link->busy ? now_ns - link->looked_ns : 0;
    link->looked_ns = now_ns;
    link->busy      = is_busy(share, link);
}

int mpath_share_link_step(mpath_share_t *share, share_link_t *link)
{
    int events = 0, result;

    if (share->rails[link->rail].weight == 0) {
        return 0;
    }
    count_time(share, link);
    if (share_has(share, MPATH_SHARE_REDUCE)) {
        result = share->job->in_steps        ? add(share, link)
                 : share_gpu_combines(share) ? mpath_share_gpu_combine(share, link)
                                             : combine(share, link);
        if (result < 0) {
            return result;
        }
        events += result;
    }
    for (int phase = SHARE_PHASES - 1; phase >= 0; phase--) {
        if (share_has(share, (phase == SHARE_SCATTER) ? MPATH_SHARE_REDUCE : MPATH_SHARE_GATHER)) {
            result = send_phase(share, link, phase);
            if (result < 0) {
                return result;
            }
            events += result;
        }
    }
    events += deliver(share, link);
    while ((link->freed < link->delivered) && is_sent(share, link, link->freed)) {
        link->freed++;
        events++;
    }
    return events;
}
