/* SPDX-License-Identifier: BSD-3-Clause */
/* Beside: when the second path is measured, moved, watched and left alone. */
#include "adapt/beside.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_STEP (MPATH_TUNE_WHOLE / 50) /* of a share */
#define NEXT_STEP (MPATH_TUNE_WHOLE / 100)
#define STRAY_PPM 130000u /* of the slower one's time: further apart they do not end together */

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static uint64_t median(const uint64_t *times_ns, unsigned count)
{
    uint64_t sorted[MPATH_BESIDE_WATCH];

    memcpy(sorted, times_ns, count * sizeof(*sorted));
    qsort(sorted, count, sizeof(*sorted), compare);
    return sorted[count / 2];
}

static void enter(mpath_beside_t *beside, mpath_beside_state_t state)
{
    beside->state   = state;
    beside->calls   = 0;
    beside->strayed = 0;
    beside->longer  = 0;
}

static void begin_moves(mpath_beside_t *beside, uint32_t step)
{
    beside->tune.step   = step;
    beside->tune.rounds = 0;
    beside->tune.from = beside->tune.to = -1;
    enter(beside, MPATH_BESIDE_MOVES);
}

void mpath_beside_init(mpath_beside_t *beside, uint64_t first_bps, uint64_t second_bps)
{
    const uint64_t bps[2] = {first_bps, second_bps};

    memset(beside, 0, sizeof(*beside));
    mpath_tune_init(&beside->tune, 2, bps);
}

uint32_t mpath_beside_share(const mpath_beside_t *beside)
{
    return ((beside->state == MPATH_BESIDE_MOVES) || (beside->state == MPATH_BESIDE_KEPT)) ? beside->tune.shares[1] : 0;
}

/* Medians of both, which the call takes the longer of. */
static uint64_t both(const mpath_beside_t *beside, uint64_t *times_ns)
{
    times_ns[0] = median(beside->first_ns, beside->calls);
    times_ns[1] = median(beside->second_ns, beside->calls);
    return (times_ns[0] > times_ns[1]) ? times_ns[0] : times_ns[1];
}

static int gains(const mpath_beside_t *beside, uint64_t call_ns)
{
    return call_ns < beside->alone_ns - beside->alone_ns * MPATH_BESIDE_GAIN_PPM / MPATH_TUNE_WHOLE;
}

static void watch(mpath_beside_t *beside)
{
    uint64_t times_ns[2], call_ns = both(beside, times_ns), apart_ns;

    apart_ns        = (times_ns[0] > times_ns[1]) ? times_ns[0] - times_ns[1] : times_ns[1] - times_ns[0];
    beside->strayed = (apart_ns > call_ns * STRAY_PPM / MPATH_TUNE_WHOLE) ? beside->strayed + 1 : 0;
    beside->calls   = 0;
    if ((beside->strayed > 0) && ((beside->strayed == 2) || !gains(beside, call_ns))) {
        begin_moves(beside, NEXT_STEP);
    } else if (!gains(beside, call_ns)) {
        enter(beside, MPATH_BESIDE_OFF);
    }
}

void mpath_beside_note(mpath_beside_t *beside, uint64_t first_ns, uint64_t second_ns)
{
    unsigned wanted = (beside->state == MPATH_BESIDE_KEPT) ? MPATH_BESIDE_WATCH : MPATH_BESIDE_WINDOW;
    uint64_t times_ns[2], call_ns;

    if (beside->state == MPATH_BESIDE_OFF) {
        if (++beside->calls >= MPATH_BESIDE_REST) {
            enter(beside, MPATH_BESIDE_ALONE);
        }
        return;
    }
    beside->first_ns[beside->calls]  = first_ns;
    beside->second_ns[beside->calls] = second_ns;
    if (++beside->calls < wanted) {
        return;
    }
    switch (beside->state) {
    case MPATH_BESIDE_ALONE:
        beside->alone_ns = median(beside->first_ns, beside->calls);
        beside->useful   = 0;
        begin_moves(beside, FIRST_STEP);
        break;
    case MPATH_BESIDE_MOVES:
        call_ns        = both(beside, times_ns);
        beside->calls  = 0;
        beside->longer = (call_ns > beside->alone_ns) ? beside->longer + 1 : 0;
        if (!beside->useful && (beside->longer == MPATH_BESIDE_PATIENCE)) {
            enter(beside, MPATH_BESIDE_OFF);
        } else if (!mpath_tune_step(&beside->tune, times_ns)) {
            beside->useful = gains(beside, call_ns);
            enter(beside, beside->useful ? MPATH_BESIDE_KEPT : MPATH_BESIDE_OFF);
        }
        break;
    default:
        watch(beside);
    }
}
