/* SPDX-License-Identifier: BSD-3-Clause */
/* Choice: trials in turns, the median of what the slowest rank saw, and how long that holds. */
#include "tune/choice.h"

/* Passing: grants that double (util/pause.h), and trials of short calls. */

#define MILLION 1000000u

/* By the parity of the number's bits (Thue and Morse): 0 1 1 0 1 0 0 1 ... */
static int slot_passes(unsigned slot)
{
    return __builtin_parity(slot);
}

int mpath_passing_next(mpath_passing_t *passing)
{
    passing->timed = 0;
    if (mpath_pause_passes(&passing->pause)) {
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
    mpath_pause_begin(&passing->pause, MPATH_PASSING_FIRST, MPATH_PASSING_MOST);
}

int mpath_passing_agreed(mpath_passing_t *passing, mpath_passing_call_t call)
{
    if (call != MPATH_PASSING_SHORT) {
        passing->row   = 0;
        passing->tries = 0;
        if (call == MPATH_PASSING_DECLINED) {
            grant(passing);
        } else {
            mpath_pause_end(&passing->pause);
        }
        return 0;
    }
    if (passing->tries) {
        passing->slot += (passing->slot < MPATH_PASSING_TIMES) ? 1 : 0;
        return 0;
    }
    passing->row++;
    return (passing->pause.length > 0) || (passing->row == MPATH_PASSING_ROW);
}

static unsigned kind_of(uint64_t bytes)
{
    unsigned octave = (bytes > 0) ? 64u - (unsigned)__builtin_clzll(bytes) : 0;

    return (octave < MPATH_PASSING_KINDS) ? octave : MPATH_PASSING_KINDS - 1;
}

void mpath_passing_short(mpath_passing_t *passing, uint64_t largest_bytes)
{
    uint32_t calls = (passing->pause.length > 0) ? passing->pause.length + 1 : passing->row;
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
        mpath_pause_end(&passing->pause);
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

#define LEAST_LENGTH_LOG2 13u /* 8 us and below are one kind */

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return (a < b) ? b : a;
}

int mpath_choice_is_due(const mpath_choice_t *choice)
{
    return (choice->ways > 0) && (choice->trials == choice->ways * MPATH_CHOICE_TRIALS);
}

/* Better by enough to count. */
static int is_better(uint64_t time_ns, uint64_t other_ns)
{
    return time_ns + time_ns / (MILLION / MPATH_CHOICE_MARGIN_PPM) < other_ns;
}

static void sort_trials(const mpath_choice_t *choice, const uint64_t *times_ns, unsigned way, uint64_t *sorted)
{
    for (unsigned i = 0; i < MPATH_CHOICE_TRIALS; i++) {
        uint64_t time = times_ns[i * choice->ways + way];
        unsigned at   = i;

        for (; (at > 0) && (sorted[at - 1] > time); at--) {
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = time;
    }
}

/* One that noise may have made is tried again soon, and holds twice as long each time that it is confirmed. */
static uint32_t holds_for(const mpath_choice_t *choice, unsigned way, int is_clear)
{
    if (is_clear) {
        return MPATH_CHOICE_CALLS;
    }
    if (!choice->is_known || (choice->way != way)) {
        return MPATH_CHOICE_CALLS_UNSURE;
    }
    return (2 * choice->holds < MPATH_CHOICE_CALLS) ? 2 * choice->holds : MPATH_CHOICE_CALLS;
}

void mpath_choice_decide(mpath_choice_t *choice, const uint64_t *all, int num_ranks)
{
    uint64_t slowest_ns[MPATH_CHOICE_TIMES] = {0}, sorted[MPATH_CHOICE_WAYS][MPATH_CHOICE_TRIALS];
    uint64_t median_ns[MPATH_CHOICE_WAYS];
    unsigned way = 0;
    int is_clear = 1;

    for (int rank = 0; rank < num_ranks; rank++) {
        for (int i = 0; i < MPATH_CHOICE_TIMES; i++) {
            slowest_ns[i] = max_u64(slowest_ns[i], all[rank * MPATH_CHOICE_TIMES + i]);
        }
    }
    for (unsigned i = 0; i < choice->ways; i++) {
        sort_trials(choice, slowest_ns, i, sorted[i]);
        median_ns[i] = sorted[i][MPATH_CHOICE_TRIALS / 2];
        if (is_better(median_ns[i], median_ns[0]) && (median_ns[i] < median_ns[way])) {
            way = i;
        }
    }
    for (unsigned i = 0; i < choice->ways; i++) {
        is_clear = is_clear && ((i == way) || !is_better(sorted[i][0], median_ns[way]));
    }
    choice->holds    = holds_for(choice, way, is_clear);
    choice->way      = (uint8_t)way;
    choice->is_known = 1;
    choice->trials   = 0;
    choice->calls    = 0;
}

unsigned mpath_choice_next(mpath_choice_t *choice, unsigned ways, int *trial_p)
{
    if (choice->ways != ways) {
        *choice = (mpath_choice_t){.ways = (uint8_t)ways};
    }
    if (choice->is_known && (choice->calls < choice->holds)) {
        choice->calls++;
        *trial_p = -1;
        return choice->way;
    }
    *trial_p = (int)choice->trials++;
    return (unsigned)*trial_p % ways;
}

void mpath_choice_note(mpath_choice_t *choice, int trial, uint64_t took_ns)
{
    if (trial >= 0) {
        choice->times_ns[trial] = took_ns;
    }
}

int mpath_choice_is_sure(const mpath_choice_t *choice)
{
    return choice->is_known && (choice->holds == MPATH_CHOICE_CALLS);
}

void mpath_choice_resume(mpath_choice_t *choice, unsigned ways, unsigned way)
{
    *choice = (mpath_choice_t){
        .holds = MPATH_CHOICE_CALLS_KEPT, .is_known = 1, .way = (uint8_t)way, .ways = (uint8_t)ways};
}

/* Twice the logarithm to the base 2, rounded down to a half octave. */
static uint32_t half_octaves(uint64_t value)
{
    uint32_t log2, half;

    if (value == 0) {
        return 0;
    }
    log2 = 63u - (uint32_t)__builtin_clzll(value);
    /* 181 / 128 is just below the root of 2 */
    half = (log2 >= 7) ? ((value >> (log2 - 7)) >= 181u) : 0;
    return 2 * log2 + half;
}

int mpath_choice_kind(uint64_t static_ns, uint64_t plan_ns)
{
    uint32_t length = half_octaves(static_ns), least = 2 * LEAST_LENGTH_LOG2;
    /* A plan that takes longer is of the first kind of gain. */
    uint32_t gain = half_octaves(static_ns) + 1, cost = half_octaves(plan_ns);

    length = (length > least) ? length - least : 0;
    length = (length < MPATH_CHOICE_LENGTHS) ? length : MPATH_CHOICE_LENGTHS - 1;
    gain   = (gain > cost) ? gain - cost : 0;
    gain   = (gain < MPATH_CHOICE_GAINS) ? gain : MPATH_CHOICE_GAINS - 1;
    return (int)(length * MPATH_CHOICE_GAINS + gain);
}

uint64_t mpath_choice_kind_ns(int kind)
{
    uint32_t length = (uint32_t)kind / MPATH_CHOICE_GAINS;
    uint64_t power  = UINT64_C(1) << (LEAST_LENGTH_LOG2 + length / 2);

    return (length % 2 == 0) ? power : power / 128 * 181;
}

int mpath_choice_is_open(uint64_t static_ns, uint64_t plan_ns)
{
    uint64_t saves = (static_ns > plan_ns) ? static_ns - plan_ns : plan_ns - static_ns;

    return (saves < MPATH_CHOICE_UNSURE_NS) && (plan_ns / 2 < static_ns);
}
