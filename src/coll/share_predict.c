/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Predicted times: of a call through the share engine, and of the function that it would replace. Both from the
 * topology alone, so that all ranks come to the same. Terms that both have in common (bytes over all rails at their
 * rate) cancel out; what counts is what each does one after the other that the other does at the same time.
 */
#include "coll/share_private.h"

#include "util/time.h"

#define MESSAGE_NS 10000            /* a message between nodes, software included, beyond the latency of the NICs */
#define CALL_NS 20000               /* set-up and end of a call */
#define SEGMENT_NS 10000            /* a segment on its way through the steps, once */
#define SEGMENTS_TYPICAL 8u         /* of a call that is just worth it */
#define GPU_STEP_NS 12000           /* what a GPU does with a segment, from its start until the host knows of its end */
#define GPU_LINK_BPS 25000000000ull /* of a GPU's way to the host's memory, in both directions at a time */
#define WAYS_MARGIN_PART 4          /* a quarter: on one H100 behind slow rails such launches cost up to 14 % */
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
 * Whether the ways between the GPUs of a node and its host, and not the rails, decide how long an Allreduce takes, by so
 * much that it is worth some more launches to let less cross them. In full what rails bring and the whole result come
 * in.
 */
int mpath_share_ways_decide(const mpath_share_t *share)
{
    const unsigned flags = MPATH_SHARE_REDUCE | MPATH_SHARE_GATHER;
    const uint64_t bytes = UINT64_C(1) << 30;
    uint64_t fastest_bps, rails = time_of(crossing_bytes(share, flags, bytes), rails_bps(share, &fastest_bps));

    return time_of(2 * bytes / mpath_share_least_local(share), GPU_LINK_BPS) > rails + rails / WAYS_MARGIN_PART;
}

/*
 * What crosses the ways between the GPUs of a node and its host in the direction that carries more: of a reduction what
 * rails bring, or as much as the result of the own part and what is sent of the others.
 */
static uint64_t ways_bytes(const mpath_share_t *share, unsigned flags, uint64_t bytes)
{
    uint64_t others = bytes / (uint64_t)share->num_nodes * (uint64_t)(share->num_nodes - 1);

    switch (flags & (MPATH_SHARE_REDUCE | MPATH_SHARE_GATHER)) {
    case MPATH_SHARE_GATHER:
        return bytes;
    case MPATH_SHARE_REDUCE:
        return others;
    default:
        return !mpath_share_ways_decide(share) ? 2 * bytes : (2 * others > bytes) ? 2 * others : bytes;
    }
}

/* On every node the ranks share the ways to the host and back, and what GPUs do between is faster than that. */
uint64_t mpath_share_predict_gpus_ns(const mpath_share_t *share, unsigned flags, uint64_t bytes)
{
    uint64_t reduces = (flags & MPATH_SHARE_REDUCE) != 0, gathers = (flags & MPATH_SHARE_GATHER) != 0;
    uint64_t fastest_bps, rails = time_of(crossing_bytes(share, flags, bytes), rails_bps(share, &fastest_bps));
    uint64_t link = time_of(ways_bytes(share, flags, bytes) / mpath_share_least_local(share), GPU_LINK_BPS);

    return 2 * MESSAGE_NS + CALL_NS + (2 + reduces) * GPU_STEP_NS + (reduces + gathers) * MESSAGE_NS +
           ((rails > link) ? rails : link) + 2 * ((rails > link) ? link : rails) / SEGMENTS_TYPICAL;
}

uint64_t mpath_share_previous_gpus_ns(const mpath_share_t *share, unsigned flags, uint64_t bytes)
{
    uint64_t sides = ((flags & MPATH_SHARE_REDUCE) != 0) + ((flags & MPATH_SHARE_GATHER) != 0);

    return mpath_share_previous_ns(share, flags, bytes) + 2 * COPY_NS + time_of(sides * bytes, COPY_BPS);
}
