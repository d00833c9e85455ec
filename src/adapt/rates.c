/* SPDX-License-Identifier: BSD-3-Clause */
/* Rates: windows and hysteresis. */
#include "adapt/rates.h"

#include "util/time.h"

#include <string.h>

#define MILLION 1000000ull
#define TRUSTED_BYTES 65536u /* fewer say little about a rate */

uint32_t mpath_rates_worth(int num_rails, const uint64_t *bps)
{
    uint64_t most = 0, slow_bps = 0, others_bps = 0;
    uint32_t slow = 0, empty = 0;

    for (int rail = 0; rail < num_rails; rail++) {
        most = (bps[rail] > most) ? bps[rail] : most;
    }
    for (int rail = 0; rail < num_rails; rail++) {
        if (bps[rail] < most / MPATH_RATES_SLOW) {
            slow |= 1u << rail;
            slow_bps += bps[rail];
        } else {
            others_bps += bps[rail];
        }
        empty |= (bps[rail] == 0) ? 1u << rail : 0;
    }
    return ((UINT32_C(1) << num_rails) - 1) & ~empty & ~((slow_bps < others_bps / MPATH_RATES_SLOW) ? slow : 0);
}

void mpath_rates_init(mpath_rates_t *rates, int num_rails, const uint64_t *bps)
{
    memset(rates, 0, sizeof(*rates));
    rates->num_rails = num_rails;
    for (int rail = 0; rail < num_rails; rail++) {
        rates->current_bps[rail] = (bps[rail] > 0) ? bps[rail] : 1;
    }
}

static void restart(mpath_rates_t *rates, uint64_t forgets_bytes)
{
    rates->window.calls       = 0;
    rates->window.expected_ns = 0;
    for (int rail = 0; rail < rates->num_rails; rail++) {
        if (rates->bytes[rail] >= forgets_bytes) {
            rates->bytes[rail]   = 0;
            rates->busy_ns[rail] = 0;
        }
    }
}

void mpath_rates_restart(mpath_rates_t *rates)
{
    restart(rates, 0);
}

void mpath_rates_observe(mpath_rates_t *rates, int rail, uint64_t bytes, uint64_t busy_ns)
{
    rates->bytes[rail] += bytes;
    rates->busy_ns[rail] += busy_ns;
}

int mpath_rates_window_ends(mpath_rates_window_t *window, uint64_t expected_ns)
{
    window->expected_ns += expected_ns;
    return (++window->calls >= MPATH_RATES_WINDOW_CALLS) && (window->expected_ns >= MPATH_RATES_WINDOW_NS);
}

int mpath_rates_end_call(mpath_rates_t *rates, uint64_t expected_ns)
{
    return mpath_rates_window_ends(&rates->window, expected_ns);
}

void mpath_rates_observed(const mpath_rates_t *rates, uint64_t *bps)
{
    memset(bps, 0, MPATH_MAX_NICS * sizeof(*bps));
    for (int rail = 0; rail < rates->num_rails; rail++) {
        if ((rates->bytes[rail] >= TRUSTED_BYTES) && (rates->busy_ns[rail] > 0)) {
            double rate = (double)rates->bytes[rail] * (double)MPATH_NS_PER_S / (double)rates->busy_ns[rail];

            bps[rail] = (rate < (double)MPATH_MAX_RATE_BPS) ? (uint64_t)rate : (uint64_t)MPATH_MAX_RATE_BPS;
        }
    }
}

/* The least that a rank saw of each rail; 0: nobody saw anything. */
static void combine(const mpath_rates_t *rates, const uint64_t *all, int num_ranks, uint64_t *seen_bps)
{
    for (int rail = 0; rail < rates->num_rails; rail++) {
        seen_bps[rail] = 0;
        for (int rank = 0; rank < num_ranks; rank++) {
            uint64_t bps = all[(size_t)rank * MPATH_MAX_NICS + (size_t)rail];

            if ((bps > 0) && ((seen_bps[rail] == 0) || (bps < seen_bps[rail]))) {
                seen_bps[rail] = bps;
            }
        }
    }
}

/* a * MILLION / b for sums of rates; the product may be beyond 64 bits. */
static uint64_t ratio_ppm(uint64_t a, uint64_t b)
{
    return (uint64_t)((double)a * (double)MILLION / (double)b);
}

/* How far the one that stands out most is from the mean of all, in millionths of the mean. */
static uint64_t spread_ppm(int num, const uint64_t *seen_bps, const uint64_t *current_bps)
{
    uint64_t sum_seen = 0, sum_current = 0, mean, most = 0;

    for (int i = 0; i < num; i++) {
        if (seen_bps[i] > 0) {
            sum_seen += seen_bps[i];
            sum_current += current_bps[i];
        }
    }
    if (sum_seen == 0) {
        return 0;
    }
    mean = ratio_ppm(sum_seen, sum_current);
    mean = (mean > 0) ? mean : 1;
    for (int i = 0; i < num; i++) {
        uint64_t ratio, away;

        if (seen_bps[i] > 0) {
            ratio = ratio_ppm(seen_bps[i], current_bps[i]);
            away  = (ratio > mean) ? ratio - mean : mean - ratio;
            away  = (uint64_t)((double)away * (double)MILLION / (double)mean);
            most  = (away > most) ? away : most;
        }
    }
    return most;
}

static uint64_t limited(uint64_t bps, uint64_t current_bps)
{
    uint64_t most = current_bps * MPATH_RATES_MOST_RISE, least = current_bps / MPATH_RATES_MOST_FALL;

    bps = (bps < most) ? bps : most;
    bps = (bps > least) ? bps : least;
    return (bps > 0) ? bps : 1;
}

int mpath_rates_follow(mpath_rates_window_t *window, int num, const uint64_t *seen_bps, uint64_t *current_bps)
{
    uint64_t away = spread_ppm(num, seen_bps, current_bps);

    window->calls       = 0;
    window->expected_ns = 0;
    window->drifts      = (away > MPATH_RATES_DRIFT_PPM) ? window->drifts + 1 : 0;
    if ((away <= MPATH_RATES_JUMP_PPM) && (window->drifts < 2)) {
        return 0;
    }
    window->drifts = 0;
    for (int i = 0; i < num; i++) {
        if (seen_bps[i] > 0) {
            current_bps[i] = limited(seen_bps[i], current_bps[i]);
        }
    }
    return 1;
}

int mpath_rates_update(mpath_rates_t *rates, const uint64_t *all, int num_ranks)
{
    uint64_t seen_bps[MPATH_MAX_NICS];

    combine(rates, all, num_ranks, seen_bps);
    restart(rates, TRUSTED_BYTES); /* fewer are kept until they are enough */
    return mpath_rates_follow(&rates->window, rates->num_rails, seen_bps, rates->current_bps);
}
