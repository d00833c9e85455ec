/* SPDX-License-Identifier: BSD-3-Clause */
/* Device choice: trials of ways for device memory, and what all ranks make of the times. */
#include "coll/device_choice.h"

#include "util/log.h"
#include "util/time.h"

#include <stdlib.h>

int mpath_device_choice_kind(uint64_t bytes)
{
    int log2       = (bytes > 0) ? 63 - __builtin_clzll(bytes) : 0;
    uint64_t power = UINT64_C(1) << log2;
    int kind       = 2 * log2 + ((bytes >= power + (power + 1) / 2) ? 1 : 0);

    return (kind < MPATH_DEVICE_CHOICE_KINDS) ? kind : MPATH_DEVICE_CHOICE_KINDS - 1;
}

/* The number-th of the open ways. */
static mpath_device_way_t way_of(unsigned open, unsigned number)
{
    unsigned way = MPATH_DEVICE_BY_GPUS;

    while (number > 0) {
        way++;
        number -= (open >> way) & 1;
    }
    return (mpath_device_way_t)way;
}

static mpath_status_t decide(mpath_choice_t *kind, mpath_team_t *team)
{
    int size              = mpath_team_size(team);
    uint64_t *all         = malloc((size_t)size * sizeof(kind->times_ns));
    mpath_status_t status = MPATH_ERR_NO_MEMORY;

    if (all == NULL) {
        mpath_error("no memory to compare the ways of device memory; the call fails");
        return status;
    }
    status = mpath_team_allgather(team, kind->times_ns, sizeof(kind->times_ns), all);
    if (status == MPATH_OK) {
        mpath_choice_decide(kind, all, size);
    }
    free(all);
    return status;
}

mpath_status_t mpath_device_choice_next(mpath_device_choice_t *choice, mpath_team_t *team, uint64_t bytes,
                                        unsigned open, uint64_t start_ns, mpath_device_way_t *way_p)
{
    static const char *const names[] = {"by the GPUs", "by way of the host", "by the previous function"};
    mpath_choice_t *kind             = &choice->kinds[mpath_device_choice_kind(bytes)];
    mpath_status_t status            = MPATH_OK;
    int decides;

    *way_p        = MPATH_DEVICE_BY_GPUS;
    choice->tried = NULL;
    if (open == 0) {
        return MPATH_OK;
    }
    decides = mpath_choice_is_due(kind);
    if (decides) {
        status = decide(kind, team);
    }
    if (status != MPATH_OK) {
        return status;
    }
    *way_p           = way_of(open, mpath_choice_next(kind, 1 + (unsigned)__builtin_popcount(open), &choice->trial));
    choice->tried    = (choice->trial >= 0) ? kind : NULL;
    choice->start_ns = start_ns;
    if (decides) {
        mpath_debug("device memory: calls like this one have been measured: they go %s from now on", names[*way_p]);
    }
    return MPATH_OK;
}

void mpath_device_choice_ended(mpath_device_choice_t *choice)
{
    if (choice->tried != NULL) {
        mpath_choice_note(choice->tried, choice->trial, mpath_time_ns() - choice->start_ns);
        choice->tried = NULL;
    }
}
