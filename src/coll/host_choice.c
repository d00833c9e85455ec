/* SPDX-License-Identifier: BSD-3-Clause */
#include "coll/host_choice.h"

#include "util/log.h"
#include "util/time.h"

#include <stdlib.h>

int mpath_host_choice_kind(uint64_t bytes)
{
    int log2 = (bytes > 0) ? 63 - __builtin_clzll(bytes) : 0;

    if ((bytes == 0) || (bytes > MPATH_HOST_CHOICE_MOST_BYTES)) {
        return -1;
    }
    return 2 * log2 + (((bytes - (UINT64_C(1) << log2)) * 2) >> log2 != 0);
}

static uint64_t busiest_bytes(const uint64_t *demand, int ranks)
{
    uint64_t most = 0;

    for (int rank = 0; rank < ranks; rank++) {
        uint64_t sent = 0, received = 0;

        for (int peer = 0; peer < ranks; peer++) {
            sent += demand[(size_t)rank * (size_t)ranks + (size_t)peer];
            received += demand[(size_t)peer * (size_t)ranks + (size_t)rank];
        }
        most = (sent > most) ? sent : most;
        most = (received > most) ? received : most;
    }
    return most;
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
        mpath_debug("device memory: calls like this one have been measured: they go %s from now on",
                    (kind->way == MPATH_CHOICE_PLAN) ? "by way of the host" : "over relays");
    }
    free(all);
    return status;
}

mpath_status_t mpath_host_choice_next(mpath_host_choice_t *choice, mpath_team_t *team, const uint64_t *demand,
                                      uint64_t start_ns, int *by_host_p)
{
    int kind = mpath_host_choice_kind(busiest_bytes(demand, mpath_team_size(team)));
    mpath_status_t status;

    *by_host_p    = 0;
    choice->tried = NULL;
    if (kind < 0) {
        return MPATH_OK;
    }
    if (mpath_choice_is_due(&choice->kinds[kind])) {
        status = decide(&choice->kinds[kind], team);
        if (status != MPATH_OK) {
            return status;
        }
    }
    *by_host_p       = mpath_choice_next(&choice->kinds[kind], &choice->trial) == MPATH_CHOICE_PLAN;
    choice->tried    = (choice->trial >= 0) ? &choice->kinds[kind] : NULL;
    choice->start_ns = start_ns;
    return MPATH_OK;
}

void mpath_host_choice_ended(mpath_host_choice_t *choice)
{
    if (choice->tried != NULL) {
        mpath_choice_note(choice->tried, choice->trial, mpath_time_ns() - choice->start_ns);
        choice->tried = NULL;
    }
}
