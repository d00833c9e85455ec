/* SPDX-License-Identifier: BSD-3-Clause */
/* Way choice: trials of ways, and what all ranks make of the times. */
#include "tune/way_choice.h"

#include "util/log.h"
#include "util/time.h"

#include <stdlib.h>

int mpath_way_choice_kind(uint64_t bytes)
{
    int log2       = (bytes > 0) ? 63 - __builtin_clzll(bytes) : 0;
    uint64_t power = UINT64_C(1) << log2;
    int kind       = 2 * log2 + ((bytes >= power + (power + 1) / 2) ? 1 : 0);

    return (kind < MPATH_WAY_CHOICE_KINDS) ? kind : MPATH_WAY_CHOICE_KINDS - 1;
}

unsigned mpath_way_choice_skew(uint64_t busiest, uint64_t average)
{
    static const unsigned quarters[MPATH_WAY_CHOICE_SKEWS - 1] = {5, 7, 10, 14};
    unsigned skew                                              = 0;

    while ((skew < MPATH_WAY_CHOICE_SKEWS - 1) && (busiest > (average + 3) / 4 * quarters[skew])) {
        skew++;
    }
    return skew;
}

/* The number-th of the open ways. */
static mpath_way_t way_of(unsigned open, unsigned number)
{
    unsigned way = MPATH_WAY_OWN;

    while (number > 0) {
        way++;
        number -= (open >> way) & 1;
    }
    return (mpath_way_t)way;
}

static mpath_status_t decide(mpath_choice_t *kind, mpath_team_t *team)
{
    int size              = mpath_team_size(team);
    uint64_t *all         = malloc((size_t)size * sizeof(kind->times_ns));
    mpath_status_t status = MPATH_ERR_NO_MEMORY;

    if (all == NULL) {
        mpath_error("no memory to compare the ways of calls; the call fails");
        return status;
    }
    status = mpath_team_allgather(team, kind->times_ns, sizeof(kind->times_ns), all);
    if (status == MPATH_OK) {
        mpath_choice_decide(kind, all, size);
    }
    free(all);
    return status;
}

/* Skew makes plans gain more: where mpath's own way is the fastest without, it is with it. */
static int is_lost(const mpath_way_choice_t *choice, const mpath_way_call_t *call, int kind)
{
    for (unsigned skew = 0; skew < call->skew; skew++) {
        const mpath_choice_t *less = &choice->kinds[skew][kind];

        if (less->is_known && (less->way == MPATH_WAY_OWN)) {
            return 1;
        }
    }
    return 0;
}

mpath_status_t mpath_way_choice_next(mpath_way_choice_t *choice, mpath_team_t *team, const mpath_way_call_t *call,
                                     uint64_t start_ns, mpath_way_t *way_p)
{
    static const char *const names[] = {"by mpath's own way", "by way of the host", "by the previous function"};
    int number                       = mpath_way_choice_kind(call->bytes);
    mpath_status_t status            = MPATH_OK;
    unsigned ways                    = 1 + (unsigned)__builtin_popcount(call->open);
    mpath_choice_t *kind;
    int decides;

    *way_p        = MPATH_WAY_OWN;
    choice->tried = NULL;
    if ((call->open == 0) || is_lost(choice, call, number)) {
        return MPATH_OK;
    }
    kind    = &choice->kinds[call->skew][number];
    decides = mpath_choice_is_due(kind);
    if (decides) {
        status = decide(kind, team);
    }
    if (status != MPATH_OK) {
        return status;
    }
    *way_p           = way_of(call->open, mpath_choice_next(kind, ways, &choice->trial));
    choice->tried    = (choice->trial >= 0) ? kind : NULL;
    choice->start_ns = start_ns;
    if (decides) {
        mpath_debug("calls like this one have been measured: they go %s from now on", names[*way_p]);
    }
    return MPATH_OK;
}

mpath_way_t mpath_way_choice_known(const mpath_way_choice_t *choice, const mpath_way_call_t *call)
{
    int number                 = mpath_way_choice_kind(call->bytes);
    const mpath_choice_t *kind = &choice->kinds[call->skew][number];

    if (!kind->is_known || (kind->ways != 1 + (unsigned)__builtin_popcount(call->open)) ||
        is_lost(choice, call, number)) {
        return MPATH_WAY_OWN;
    }
    return way_of(call->open, kind->way);
}

void mpath_way_choice_ended(mpath_way_choice_t *choice)
{
    if (choice->tried != NULL) {
        mpath_choice_note(choice->tried, choice->trial, mpath_time_ns() - choice->start_ns);
        choice->tried = NULL;
    }
}
