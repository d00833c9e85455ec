/* SPDX-License-Identifier: BSD-3-Clause */
/* Passing: grants that double, and trials of short calls. */
#include "adapt/passing.h"

#define MILLION 1000000u

/* By the parity of the number's bits (Thue and Morse): 0 1 1 0 1 0 0 1 ... */
static int slot_passes(unsigned slot)
{
    return __builtin_parity(slot);
}

int mpath_passing_next(mpath_passing_t *passing)
{
    passing->timed = 0;
    if (passing->granted > 0) {
        passing->granted--;
        return 1;
    }
    if (!passing->tries || (passing->slot == MPATH_PASSING_TIMES)) {
        return 0;
    }
    passing->timed                   = (uint8_t)(passing->slot + 1);
    passing->times_ns[passing->slot] = 0;
    if (!slot_passes(passing->slot)) {
        return 0; /* the slot is over with the agreement: until then this may be asked again */
    }
    passing->slot++;
    return 1;
}

void mpath_passing_took(mpath_passing_t *passing, uint64_t took_ns)
{
    uint32_t *time = &passing->times_ns[passing->timed - 1];

    *time          = (took_ns < UINT32_MAX) ? (uint32_t)took_ns : UINT32_MAX;
    *time          = (*time > 0) ? *time : 1;
    passing->timed = 0;
}

static void grant(mpath_passing_t *passing)
{
    passing->doublings += (passing->doublings < MPATH_PASSING_DOUBLINGS) ? 1 : 0;
    passing->granted = (1u << passing->doublings) - 1;
}

static void grant_none(mpath_passing_t *passing)
{
    passing->doublings = 0;
    passing->granted   = 0;
}

int mpath_passing_agreed(mpath_passing_t *passing, mpath_passing_call_t call)
{
    if (call != MPATH_PASSING_SHORT) {
        passing->row   = 0;
        passing->tries = 0;
        if (call == MPATH_PASSING_DECLINED) {
            grant(passing);
        } else {
            grant_none(passing);
        }
        return 0;
    }
    if (passing->tries) {
        passing->slot += (passing->slot < MPATH_PASSING_TIMES) ? 1 : 0;
        return 0;
    }
    passing->row++;
    return (passing->doublings > 0) || (passing->row == MPATH_PASSING_ROW);
}

static unsigned kind_of(uint64_t bytes)
{
    unsigned octave = (bytes > 0) ? 64u - (unsigned)__builtin_clzll(bytes) : 0;

    return (octave < MPATH_PASSING_KINDS) ? octave : MPATH_PASSING_KINDS - 1;
}

void mpath_passing_short(mpath_passing_t *passing, uint64_t largest_bytes)
{
    uint32_t calls = (passing->doublings > 0) ? 1u << passing->doublings : passing->row;
    uint16_t *holds;

    passing->kind = kind_of(largest_bytes);
    passing->row  = 0;
    holds         = &passing->kinds[passing->kind].holds;
    *holds        = (uint16_t)((*holds > calls) ? *holds - calls : 0);
    if (*holds == 0) {
        passing->tries = 1;
        passing->slot  = 0;
    }
    if ((*holds > 0) && passing->kinds[passing->kind].passes) {
        grant(passing);
    } else {
        grant_none(passing);
    }
}

int mpath_passing_is_due(const mpath_passing_t *passing)
{
    return passing->tries && (passing->slot == MPATH_PASSING_TIMES);
}

/* Of a slot, by the rank that came last; 0: some rank has not measured it. */
static uint32_t slot_ns(const uint32_t *all, int num_ranks, unsigned slot)
{
    uint32_t least = UINT32_MAX;

    for (int rank = 0; rank < num_ranks; rank++) {
        uint32_t time = all[(unsigned)rank * MPATH_PASSING_TIMES + slot];

        least = (time < least) ? time : least;
    }
    return least;
}

/* Twice the median of a way's slots; 0: one was not measured. */
static uint64_t median2_ns(const uint32_t *all, int num_ranks, int passes)
{
    uint32_t sorted[MPATH_PASSING_TRIALS];
    unsigned count = 0;

    for (unsigned slot = 0; slot < MPATH_PASSING_TIMES; slot++) {
        uint32_t time = slot_ns(all, num_ranks, slot);
        unsigned at   = count;

        if (slot_passes(slot) != passes) {
            continue;
        }
        for (; (at > 0) && (sorted[at - 1] > time); at--) {
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = time;
        count++;
    }
    return (sorted[0] == 0) ? 0 : (uint64_t)sorted[count / 2 - 1] + sorted[count / 2];
}

void mpath_passing_decide(mpath_passing_t *passing, const uint32_t *all, int num_ranks)
{
    uint64_t agreed = median2_ns(all, num_ranks, 0), passed = median2_ns(all, num_ranks, 1);

    passing->tries                       = 0;
    passing->kinds[passing->kind].holds  = MPATH_PASSING_HOLDS;
    passing->kinds[passing->kind].passes = (agreed > 0) && (passed > 0) &&
                                           (passed + passed / (MILLION / MPATH_PASSING_MARGIN_PPM) < agreed);
    if (passing->kinds[passing->kind].passes) {
        grant(passing);
    }
}
