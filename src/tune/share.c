/* SPDX-License-Identifier: BSD-3-Clause */
/* Beside: when the second path is measured, moved, watched and left alone. */
#include "tune/share.h"

#include <stdlib.h>
#include <string.h>

#define LEAST_SHARE 1000u    /* to be measured by */
#define EARLY_PPM 10000u     /* of the first path's time: the second one had better end by that earlier */
#define CLOSE_PPM 12000u     /* of the call's time: they end together */
#define LATE_PPM 30000u      /* the second one ends later: the call takes as much longer */
#define STRAY_PPM 60000u     /* it ends earlier: a tenth or so of that is lost */
#define MOVES_PART_OF_REST 4 /* share that the second path may gain at once, of what it lacks */
#define SAME_PART 20u        /* shares that differ by less of themselves are the same */

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

static uint64_t part_of(uint64_t ns, uint32_t ppm)
{
    return ns * ppm / MPATH_TUNE_WHOLE;
}

static void enter(mpath_beside_t *beside, mpath_beside_state_t state)
{
    beside->state   = state;
    beside->calls   = 0;
    beside->strayed = 0;
    beside->longer  = 0;
}

static void begin_moves(mpath_beside_t *beside)
{
    beside->rounds  = 0;
    beside->best_ns = UINT64_MAX;
    enter(beside, MPATH_BESIDE_MOVES);
}

void mpath_beside_init(mpath_beside_t *beside, uint64_t first_bps, uint64_t second_bps)
{
    uint64_t sum = first_bps + second_bps;

    memset(beside, 0, sizeof(*beside));
    beside->share = (sum > 0) ? (uint32_t)((double)second_bps / (double)sum * MPATH_TUNE_WHOLE) : 0;
    beside->share = (beside->share > LEAST_SHARE) ? beside->share : LEAST_SHARE;
}

void mpath_beside_resume(mpath_beside_t *beside, uint64_t share)
{
    if (share >= MPATH_TUNE_WHOLE) {
        return;
    }
    beside->is_told = 1;
    beside->told    = (uint32_t)share;
    if (share == 0) {
        enter(beside, MPATH_BESIDE_OFF);
        beside->calls = MPATH_BESIDE_REST - MPATH_BESIDE_REST_KEPT;
        return;
    }
    beside->share   = (share > LEAST_SHARE) ? (uint32_t)share : LEAST_SHARE;
    beside->resumed = 1;
    enter(beside, MPATH_BESIDE_KEPT);
}

uint32_t mpath_beside_share(const mpath_beside_t *beside)
{
    return ((beside->state == MPATH_BESIDE_MOVES) || (beside->state == MPATH_BESIDE_KEPT)) ? beside->share : 0;
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

/*
 * Moves the share to where both would end together if their times were in proportion to their shares. What the second
 * one takes whatever its share makes that move too short, never too long.
 */
static void move_share(mpath_beside_t *beside, const uint64_t *times_ns)
{
    int64_t whole = MPATH_TUNE_WHOLE, share = beside->share;
    int64_t first_ns = (int64_t)times_ns[0], second_ns = (int64_t)times_ns[1];
    int64_t late_ns = second_ns - first_ns + (int64_t)part_of(times_ns[0], EARLY_PPM);
    int64_t per_ns  = (int64_t)beside->alone_ns / 1000 + second_ns * 1000 / share + 1; /* a thousandth */

    share -= late_ns * 1000 / per_ns;
    if (share > beside->share + (whole - beside->share) / MOVES_PART_OF_REST) {
        share = beside->share + (whole - beside->share) / MOVES_PART_OF_REST;
    }
    beside->share = (share > (int64_t)LEAST_SHARE) ? (uint32_t)share : LEAST_SHARE;
}

/* A window of calls while the share moves. */
static void note_move(mpath_beside_t *beside)
{
    uint64_t times_ns[2], call_ns = both(beside, times_ns), close_ns = part_of(call_ns, CLOSE_PPM);
    uint64_t wanted_ns = times_ns[0] - part_of(times_ns[0], EARLY_PPM);
    int close          = (times_ns[1] < wanted_ns + close_ns) && (times_ns[1] + close_ns > wanted_ns);

    beside->calls  = 0;
    beside->longer = (call_ns > beside->alone_ns) ? beside->longer + 1 : 0;
    if (call_ns < beside->best_ns) {
        beside->best_ns    = call_ns;
        beside->best_share = beside->share;
    }
    if (!beside->useful && (beside->longer == MPATH_BESIDE_PATIENCE)) {
        beside->settled = 1;
        enter(beside, MPATH_BESIDE_OFF);
    } else if (close || (++beside->rounds == MPATH_BESIDE_ROUNDS)) {
        beside->share   = beside->best_share;
        beside->useful  = gains(beside, beside->best_ns);
        beside->settled = 1;
        enter(beside, beside->useful ? MPATH_BESIDE_KEPT : MPATH_BESIDE_OFF);
    } else {
        move_share(beside, times_ns);
    }
}

static void watch(mpath_beside_t *beside)
{
    uint64_t times_ns[2], call_ns = both(beside, times_ns);
    int strays = (times_ns[1] > times_ns[0] + part_of(call_ns, LATE_PPM)) ||
                 (times_ns[0] > times_ns[1] + part_of(call_ns, STRAY_PPM));

    beside->strayed = strays ? beside->strayed + 1 : 0;
    beside->calls   = 0;
    if (beside->resumed) {
        beside->best_ns = strays ? UINT64_MAX : call_ns;
        enter(beside, MPATH_BESIDE_ALONE);
        return;
    }
    if ((beside->strayed > 0) && ((beside->strayed == 2) || !gains(beside, call_ns))) {
        begin_moves(beside);
    } else if (!gains(beside, call_ns)) {
        enter(beside, MPATH_BESIDE_OFF);
    }
}

/* A window of calls without the second path. */
static void note_alone(mpath_beside_t *beside)
{
    int goes_on = beside->resumed;

    beside->alone_ns = median(beside->first_ns, beside->calls);
    beside->resumed  = 0;
    beside->useful   = goes_on && gains(beside, beside->best_ns);
    if (beside->useful) {
        enter(beside, MPATH_BESIDE_KEPT);
    } else {
        begin_moves(beside);
    }
}

void mpath_beside_note(mpath_beside_t *beside, uint64_t first_ns, uint64_t second_ns)
{
    unsigned wanted = (beside->state == MPATH_BESIDE_KEPT) ? MPATH_BESIDE_WATCH : MPATH_BESIDE_WINDOW;

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
        note_alone(beside);
        break;
    case MPATH_BESIDE_MOVES:
        note_move(beside);
        break;
    default:
        watch(beside);
    }
}

int mpath_beside_found(mpath_beside_t *beside, uint32_t *share_p)
{
    uint32_t share = (beside->state == MPATH_BESIDE_KEPT) ? beside->share : 0;
    uint32_t more  = (share > beside->told) ? share : beside->told;
    uint32_t less  = (share > beside->told) ? beside->told : share;
    int same       = beside->is_told && ((less > 0) == (more > 0)) && (more - less <= more / SAME_PART);

    if (!beside->settled) {
        return 0;
    }
    beside->settled = 0;
    if (same) {
        return 0;
    }
    beside->is_told = 1;
    beside->told    = share;
    *share_p        = share;
    return 1;
}
