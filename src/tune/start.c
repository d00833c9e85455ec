/* SPDX-License-Identifier: BSD-3-Clause */
/* Tune: moves of share with step halving. */
#include "tune/start.h"

#include <string.h>

#define LEAST_SHARE 1000u /* a rail keeps so much, to be measured by */

void mpath_tune_init(mpath_tune_t *tune, int num_rails, const uint64_t *bps)
{
    double sum = 0;

    memset(tune, 0, sizeof(*tune));
    tune->num_rails = num_rails;
    tune->step      = MPATH_TUNE_WHOLE / (uint32_t)((num_rails > 0) ? num_rails : 1) / 2;
    tune->from = tune->to = -1;
    for (int rail = 0; rail < num_rails; rail++) {
        sum += (double)bps[rail];
    }
    for (int rail = 0; rail < num_rails; rail++) {
        uint32_t share = (sum > 0) ? (uint32_t)((double)bps[rail] / sum * MPATH_TUNE_WHOLE) : 0;

        tune->shares[rail] = (share > LEAST_SHARE) ? share : LEAST_SHARE;
    }
}

int mpath_tune_step(mpath_tune_t *tune, const uint64_t *times_ns)
{
    int slowest = 0, fastest = 0;
    uint32_t most;

    for (int rail = 1; rail < tune->num_rails; rail++) {
        slowest = (times_ns[rail] > times_ns[slowest]) ? rail : slowest;
        fastest = (times_ns[rail] < times_ns[fastest]) ? rail : fastest;
    }
    tune->rounds++;
    if ((tune->rounds > MPATH_TUNE_ROUNDS) || (slowest == fastest) ||
        (times_ns[slowest] - times_ns[fastest] <= times_ns[slowest] / MPATH_TUNE_WHOLE * MPATH_TUNE_CLOSE_PPM)) {
        return 0;
    }
    if ((tune->to == slowest) || (tune->from == fastest)) {
        tune->step /= 2; /* the last move went too far */
    }
    if (tune->step < MPATH_TUNE_LEAST_STEP) {
        return 0;
    }
    /* Never more than half of what the slowest has: its time would not fall below that of the others at once. */
    most = tune->shares[slowest] / 2;
    most = (most > LEAST_SHARE) ? most : 0;
    most = (most < tune->step) ? most : tune->step;
    if (most == 0) {
        return 0;
    }
    tune->shares[slowest] -= most;
    tune->shares[fastest] += most;
    tune->from = slowest;
    tune->to   = fastest;
    return 1;
}
