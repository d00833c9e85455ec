/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which rail takes the next packet. Each rail is a queue with a rate; a packet goes where it would arrive first, so
 * that every rail carries bytes in proportion to its rate. The rate starts as the topology's and then follows what the
 * receiver acknowledges while the rail has something to do all the time (as the delivery rate of BBR, Cardwell et al.,
 * ACM Queue 14(5), 2016); what a rail delivers with gaps is only a lower limit of its rate. No UCX in here.
 */
#ifndef UCX_TL_MPATH_SPREAD_H
#define UCX_TL_MPATH_SPREAD_H

#include <stdint.h>

typedef struct mpath_spread_rail {
    uint64_t rate_bps;
    uint64_t nominal_bps;    /* as it was at first, until it has been measured; then the best that was */
    uint64_t planned_bps;    /* what a plan gives it (shares.h); 0: none, the rate counts */
    uint64_t detour_ns;      /* what everything takes longer on this rail: relays */
    uint64_t inflight_bytes; /* sent and not acknowledged */
    uint64_t sample_start_ns;
    uint64_t sample_bytes; /* acknowledged since */
    uint32_t sample_packets;
    uint8_t num_samples;                    /* that the rate follows from, up to those that it is the running mean of */
    uint8_t gap;                            /* the rail was empty at some time since */
    uint64_t large_ns;                      /* when more than small messages was sent last */
    uint64_t trial_ns;                      /* when the first such packet since long was sent; 0: it is not under way */
    uint64_t trial_bytes, trial_left_bytes; /* its, and those that have to be acknowledged before it is */
    uint64_t rested_ns;                     /* no trial before that */
} mpath_spread_rail_t;

void mpath_spread_rail_init(mpath_spread_rail_t *rail, uint64_t rate_bps);
void mpath_spread_sent(mpath_spread_rail_t *rail, uint64_t bytes, uint64_t now_ns);
void mpath_spread_delivered(mpath_spread_rail_t *rail, uint64_t bytes, uint64_t now_ns);
/* Bytes that the rail will not deliver: it failed. */
void mpath_spread_lost(mpath_spread_rail_t *rail, uint64_t bytes, uint64_t now_ns);

/*
 * Nonzero when the rail may take more: its queue holds less than a few packets or a few milliseconds of its nominal
 * rate, whichever is more (of the measured one it would shrink together with it, when acknowledgements are late). What
 * lies in a queue cannot go over another rail any more, however rates turn out; a full rail is passed over like one
 * that refuses.
 */
int mpath_spread_has_room(const mpath_spread_rail_t *rail, uint64_t packet_bytes);

/*
 * The rail of those in `usable` (bit n: rail n) on which `bytes` arrive first; the lowest number of equals, and small
 * backlogs count as none, so that small messages stay together on one rail. -1: none is usable.
 *
 * `reference` is the rail that was picked first for this packet and turned out to be full, or -1: no rail is taken that
 * would need a quarter longer, because waiting is better then.
 */
int mpath_spread_pick(const mpath_spread_rail_t *rails, uint64_t usable, uint64_t bytes, int reference);

/*
 * A rail of `idle` to be tried in the place of the one that was picked; -1: none. A rail that seems slow is left out as
 * long as the others have room, and nobody would find out that it is not slow any more, or never was. So a large packet
 * that would have to wait on its rail goes now and then over one that has carried none for a second. Trials take no more
 * than a fiftieth of the time: that long is a rail left alone after one.
 */
int mpath_spread_pick_trial(const mpath_spread_rail_t *rails, int picked, uint64_t idle, uint64_t bytes,
                            uint64_t now_ns);

#endif
