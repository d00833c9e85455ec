/* SPDX-License-Identifier: BSD-3-Clause */
/* Choice of the rail for a packet and measurement of the rails' rates. */
#include "ucx_tl_mpath/spread.h"

#include "util/time.h"

#define SMALL_BACKLOG_BYTES 16384ull
#define SAMPLE_MIN_NS (10 * MPATH_NS_PER_MS)
#define SAMPLE_MIN_PACKETS 4u
#define MIN_RATE_BPS 1000ull
#define SPILL_FACTOR 1.25
#define SETTLED_SAMPLES 4
#define QUEUE_PACKETS 4
#define QUEUE_NS (10 * MPATH_NS_PER_MS)
#define IDLE_NS MPATH_NS_PER_S
#define TRIAL_REST 50 /* times as long as the trial took */

void mpath_spread_rail_init(mpath_spread_rail_t *rail, uint64_t rate_bps)
{
    rail->rate_bps        = rate_bps > MIN_RATE_BPS ? rate_bps : MIN_RATE_BPS;
    rail->nominal_bps     = rail->rate_bps;
    rail->planned_bps     = 0;
    rail->detour_ns       = 0;
    rail->inflight_bytes  = 0;
    rail->sample_start_ns = 0;
    rail->sample_bytes    = 0;
    rail->sample_packets  = 0;
    rail->num_samples     = 0;
    rail->gap             = 0;
    rail->large_ns        = 0;
    rail->trial_ns        = 0;
    rail->rested_ns       = 0;
}

static void restart_sample(mpath_spread_rail_t *rail, uint64_t now_ns)
{
    rail->sample_start_ns = now_ns;
    rail->sample_bytes    = 0;
    rail->sample_packets  = 0;
    rail->gap             = rail->inflight_bytes < SMALL_BACKLOG_BYTES;
}

void mpath_spread_sent(mpath_spread_rail_t *rail, uint64_t bytes, uint64_t now_ns)
{
    if (rail->inflight_bytes == 0 && rail->sample_packets == 0) {
        restart_sample(rail, now_ns);
        rail->gap = 0;
    }
    rail->inflight_bytes += bytes;
    if (bytes < SMALL_BACKLOG_BYTES) {
        return;
    }
    if (now_ns - rail->large_ns >= IDLE_NS && rail->inflight_bytes < bytes + SMALL_BACKLOG_BYTES) {
        rail->trial_ns         = now_ns;
        rail->trial_bytes      = bytes;
        rail->trial_left_bytes = rail->inflight_bytes;
    }
    rail->large_ns = now_ns;
}

static void take_sample(mpath_spread_rail_t *rail, uint64_t elapsed_ns)
{
    uint64_t sample_bps = (uint64_t)((double)rail->sample_bytes * (double)MPATH_NS_PER_S / (double)elapsed_ns);
    int first;

    if (rail->gap && sample_bps <= rail->rate_bps) {
        return;
    }
    /* What the system told at first may be wrong by far; as long as it counts, rails already measured get nothing. */
    first = rail->num_samples < SETTLED_SAMPLES;
    rail->num_samples += first;
    rail->rate_bps = ((rail->num_samples - 1) * rail->rate_bps + sample_bps) / rail->num_samples;
    if (rail->rate_bps < MIN_RATE_BPS) {
        rail->rate_bps = MIN_RATE_BPS;
    }
    if (rail->rate_bps > rail->nominal_bps || (first && rail->num_samples == SETTLED_SAMPLES)) {
        rail->nominal_bps = rail->rate_bps;
    }
}

static void end_trial(mpath_spread_rail_t *rail, uint64_t delivered_bytes, uint64_t now_ns)
{
    uint64_t took_ns = now_ns > rail->trial_ns ? now_ns - rail->trial_ns : 1;
    uint64_t low_bps = (uint64_t)((double)delivered_bytes * (double)MPATH_NS_PER_S / (double)took_ns);

    rail->trial_ns    = 0;
    rail->rested_ns   = now_ns + TRIAL_REST * took_ns;
    rail->rate_bps    = low_bps > rail->rate_bps ? low_bps : rail->rate_bps;
    rail->nominal_bps = rail->rate_bps > rail->nominal_bps ? rail->rate_bps : rail->nominal_bps;
}

void mpath_spread_delivered(mpath_spread_rail_t *rail, uint64_t bytes, uint64_t now_ns)
{
    uint64_t elapsed_ns = now_ns - rail->sample_start_ns;

    rail->inflight_bytes -= bytes < rail->inflight_bytes ? bytes : rail->inflight_bytes;
    rail->sample_bytes += bytes;
    ++rail->sample_packets;
    if (rail->inflight_bytes < SMALL_BACKLOG_BYTES) {
        rail->gap = 1; /* small messages are acknowledged late: this little may have arrived long ago */
    }
    if (rail->sample_packets >= SAMPLE_MIN_PACKETS && elapsed_ns >= SAMPLE_MIN_NS &&
        rail->sample_bytes >= SMALL_BACKLOG_BYTES) {
        take_sample(rail, elapsed_ns);
        restart_sample(rail, now_ns);
    }
    if (rail->trial_ns != 0) {
        rail->trial_left_bytes -= bytes < rail->trial_left_bytes ? bytes : rail->trial_left_bytes;
        if (rail->trial_left_bytes == 0) {
            end_trial(rail, rail->trial_bytes, now_ns);
        }
    }
}

void mpath_spread_lost(mpath_spread_rail_t *rail, uint64_t bytes, uint64_t now_ns)
{
    rail->inflight_bytes -= bytes < rail->inflight_bytes ? bytes : rail->inflight_bytes;
    rail->gap = 1;
    if (rail->trial_ns != 0) {
        end_trial(rail, 0, now_ns);
    }
}

/* Seconds until a packet of `bytes` would have arrived. */
static double arrival_s(const mpath_spread_rail_t *rail, uint64_t bytes)
{
    uint64_t backlog_bytes = rail->inflight_bytes > SMALL_BACKLOG_BYTES ? rail->inflight_bytes : 0;

    return (double)(backlog_bytes + bytes) / (double)(rail->planned_bps != 0 ? rail->planned_bps : rail->rate_bps) +
           (double)rail->detour_ns / (double)MPATH_NS_PER_S;
}

int mpath_spread_has_room(const mpath_spread_rail_t *rail, uint64_t packet_bytes)
{
    return rail->inflight_bytes < QUEUE_PACKETS * packet_bytes ||
           (double)rail->inflight_bytes < (double)rail->nominal_bps * QUEUE_NS / MPATH_NS_PER_S;
}

int mpath_spread_pick(const mpath_spread_rail_t *rails, uint64_t usable, uint64_t bytes, int reference)
{
    double best_s = 0, this_s;
    int best      = -1, rail;

    for (; usable != 0; usable &= usable - 1) {
        rail   = __builtin_ctzll(usable);
        this_s = arrival_s(&rails[rail], bytes);
        if (best < 0 || this_s < best_s) {
            best   = rail;
            best_s = this_s;
        }
    }
    if (best >= 0 && reference >= 0 && best_s > SPILL_FACTOR * arrival_s(&rails[reference], bytes)) {
        return -1;
    }
    return best;
}

int mpath_spread_pick_trial(const mpath_spread_rail_t *rails, int picked, uint64_t idle, uint64_t bytes,
                            uint64_t now_ns)
{
    const mpath_spread_rail_t *rail;

    if (picked < 0 || bytes < SMALL_BACKLOG_BYTES || rails[picked].inflight_bytes < SMALL_BACKLOG_BYTES) {
        return -1;
    }
    for (; idle != 0; idle &= idle - 1) {
        rail = &rails[__builtin_ctzll(idle)];
        if (rail->inflight_bytes < SMALL_BACKLOG_BYTES && now_ns - rail->large_ns >= IDLE_NS &&
            now_ns >= rail->rested_ns) {
            return __builtin_ctzll(idle);
        }
    }
    return -1;
}
