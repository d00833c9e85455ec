/* SPDX-License-Identifier: BSD-3-Clause */
/* Doubt: calls that take longer than links explain, and trials of the previous function. */
#include "coll/doubt.h"

#include "exec/agree.h"
#include "exec/idle.h"
#include "util/log.h"

#include <stdlib.h>

void mpath_doubt_release(mpath_doubt_t *doubt)
{
    free(doubt->choice);
    *doubt = (mpath_doubt_t){.last = NULL};
}

uint32_t mpath_doubt_tell(const mpath_doubt_t *doubt)
{
    return ((doubt->last != NULL) && doubt->was_slow) ? MPATH_CALL_SLOW : 0;
}

/* What the ranks have said about the last call. */
static void hear(mpath_doubt_t *doubt, const mpath_team_t *team, uint32_t flags)
{
    uint8_t *slow = doubt->last;

    doubt->last = NULL;
    if ((slow == NULL) || (*slow == MPATH_DOUBT_ROW)) {
        return;
    }
    *slow = (flags & MPATH_CALL_SLOW) ? (uint8_t)(*slow + 1) : 0;
    if (*slow == MPATH_DOUBT_ROW) {
        mpath_log((mpath_team_rank(team) == 0) ? MPATH_LOG_INFO : MPATH_LOG_DEBUG,
                  "calls of %d ranks take more than twice as long as their bytes need at the rates of the rails; the "
                  "previous function is tried for such calls",
                  mpath_team_size(team));
    }
}

mpath_status_t mpath_doubt_next(mpath_doubt_t *doubt, mpath_team_t *team, uint32_t flags, uint64_t bytes, unsigned skew,
                                uint64_t start_ns, int *previous_p)
{
    const mpath_way_call_t call = {.bytes = bytes, .skew = skew, .open = 1u << MPATH_WAY_PREVIOUS};
    uint8_t *slow               = &doubt->slow[skew][mpath_way_choice_kind(bytes)];
    mpath_way_t way             = MPATH_WAY_OWN;
    mpath_status_t status       = MPATH_OK;

    hear(doubt, team, flags);
    *previous_p = 0;
    if (mpath_team_topo_version(team) != 0) {
        return MPATH_OK;
    }
    if ((*slow == MPATH_DOUBT_ROW) && (doubt->choice == NULL)) {
        doubt->choice = calloc(1, sizeof(*doubt->choice));
        if (doubt->choice == NULL) {
            mpath_error("no memory to compare the ways of calls; the call fails");
            status = MPATH_ERR_NO_MEMORY;
        }
    }
    if ((status == MPATH_OK) && (*slow == MPATH_DOUBT_ROW)) {
        if (mpath_idle_others_may_rest()) {
            way = mpath_way_choice_known(doubt->choice, &call);
        } else {
            status = mpath_way_choice_next(doubt->choice, team, &call, start_ns, &way);
        }
    }
    if (status != MPATH_OK) {
        mpath_team_break(team, status);
        return status;
    }
    *previous_p = (way == MPATH_WAY_PREVIOUS);
    doubt->last = *previous_p ? NULL : slow;
    return MPATH_OK;
}

void mpath_doubt_took(mpath_doubt_t *doubt, uint64_t took_ns, uint64_t links_ns)
{
    if (mpath_idle_others_may_rest()) { /* somebody may have computed meanwhile */
        doubt->last = NULL;
        return;
    }
    doubt->was_slow = took_ns > MPATH_DOUBT_TIMES * links_ns + MPATH_DOUBT_FIRST_NS;
}

void mpath_doubt_ended(mpath_doubt_t *doubt)
{
    if (doubt->choice != NULL) {
        mpath_way_choice_ended(doubt->choice);
    }
}
