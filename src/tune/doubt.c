/* SPDX-License-Identifier: BSD-3-Clause */
/* Doubt: calls that take longer than links explain, and trials of the previous function. */
#include "tune/doubt.h"

#include "team/agree.h"
#include "team/wait.h"
#include "util/log.h"

void mpath_doubt_release(mpath_doubt_t *doubt)
{
    mpath_trials_forget(&doubt->trials);
    *doubt = (mpath_doubt_t){.last = NULL};
}

uint32_t mpath_doubt_call_flags(const mpath_doubt_t *doubt)
{
    return ((doubt->last != NULL) && doubt->was_slow) ? MPATH_CALL_SLOW : 0;
}

/* Calls are no longer slow: trust as at the start, unless trials have found the previous function to be faster. */
static void end_doubt(mpath_doubt_t *doubt, mpath_doubt_kind_t *kind)
{
    mpath_trial_t *trial = mpath_trials_of(&doubt->trials, (int)(kind - doubt->kinds));

    if (trial != NULL) {
        if (mpath_trial_is_known(trial) && (trial->option != MPATH_FUNCTION_OWN)) {
            return;
        }
        *trial = (mpath_trial_t){.options = 0};
    }
    *kind = (mpath_doubt_kind_t){.slow = 0};
}

static void log_doubt(const mpath_team_t *team, const char *next)
{
    mpath_info_by(mpath_team_rank(team) == 0,
                  "calls of %d ranks take longer than their bytes need at the rates of the rails; %s",
                  mpath_team_size(team), next);
}

/* Looks at nothing but what the ranks have agreed on, and counts calls. */
int mpath_doubt_passes(mpath_doubt_t *doubt, const mpath_team_t *team, uint64_t bytes, unsigned skew)
{
    const mpath_function_call_t call = {.bytes = bytes, .skew = skew, .open = 1u << MPATH_FUNCTION_PREVIOUS};
    int number                       = mpath_function_kind(bytes, skew);
    const mpath_doubt_kind_t *kind   = &doubt->kinds[number];

    return (doubt->passes.left > 0) && (mpath_team_topo_version(team) == 0) && (kind->slow == MPATH_DOUBT_ROW) &&
           (kind->windows == 0) && (mpath_function_known(&doubt->trials, &call) == MPATH_FUNCTION_PREVIOUS) &&
           mpath_pause_passes(&mpath_trials_of(&doubt->trials, number)->holds) && mpath_pause_passes(&doubt->passes);
}

/*
 * The call that the ranks have agreed on is the previous function's, by a decision or in a trial. Who uses GPUs may find only
 * in a call that its data cannot be copied to the host, of which the others hear in the agreement.
 */
static void grant_passes(mpath_doubt_t *doubt, uint32_t flags)
{
    int decided = mpath_idle_others_may_rest() || (doubt->trials.run < 0);

    if (decided && !(flags & (MPATH_CALL_GPUS | MPATH_CALL_DEVICE))) {
        mpath_pause_begin(&doubt->passes, MPATH_DOUBT_PASS_FIRST, MPATH_DOUBT_PASS_MOST);
    } else {
        mpath_pause_end(&doubt->passes);
    }
}

/* What the ranks have said about the last call. */
static void hear(mpath_doubt_t *doubt, const mpath_team_t *team, uint32_t flags)
{
    mpath_doubt_kind_t *kind = doubt->last;

    doubt->last = NULL;
    if (kind == NULL) {
        return;
    }
    if (kind->slow < MPATH_DOUBT_ROW) {
        kind->slow = (flags & MPATH_CALL_SLOW) ? (uint8_t)(kind->slow + 1) : 0;
        if (kind->slow == MPATH_DOUBT_ROW) {
            kind->windows = MPATH_DOUBT_WINDOWS;
            log_doubt(team, "where shares that follow the rails do not help, the previous function is tried");
        }
        return;
    }
    kind->fine += (kind->fine < MPATH_DOUBT_ROW) ? 1 : 0;
    kind->fine = (flags & MPATH_CALL_SLOW) ? 0 : kind->fine;
    if (kind->fine == MPATH_DOUBT_ROW) {
        end_doubt(doubt, kind);
    }
}

/* The function for a call of a kind in doubt. */
static mpath_status_t choose(mpath_doubt_t *doubt, mpath_team_t *team, const mpath_doubt_call_t *call,
                             uint64_t start_ns, mpath_function_t *function_p)
{
    const mpath_function_call_t by_previous = {
        .bytes = call->bytes, .skew = call->skew, .open = 1u << MPATH_FUNCTION_PREVIOUS};

    if (mpath_idle_others_may_rest()) {
        *function_p = mpath_function_known(&doubt->trials, &by_previous);
        return MPATH_OK;
    }
    return mpath_function_next(&doubt->trials, team, &by_previous, start_ns, function_p);
}

mpath_status_t mpath_doubt_next(mpath_doubt_t *doubt, mpath_team_t *team, uint32_t flags,
                                const mpath_doubt_call_t *call, uint64_t start_ns, int *previous_p)
{
    mpath_doubt_kind_t *kind  = &doubt->kinds[mpath_function_kind(call->bytes, call->skew)];
    mpath_function_t function = MPATH_FUNCTION_OWN;
    mpath_status_t status;

    hear(doubt, team, flags);
    *previous_p = 0;
    if (mpath_team_topo_version(team) != 0) {
        return MPATH_OK;
    }
    kind->windows = call->adapts ? kind->windows : 0;
    if ((kind->slow == MPATH_DOUBT_ROW) && (kind->windows == 0)) {
        status = choose(doubt, team, call, start_ns, &function);
        if (status != MPATH_OK) {
            mpath_team_break(team, status);
            return status;
        }
    }
    *previous_p = (function == MPATH_FUNCTION_PREVIOUS);
    if (*previous_p) {
        grant_passes(doubt, flags);
    }
    /* of what others progress nobody says anything: ranks compute meanwhile */
    doubt->last    = (*previous_p || mpath_idle_others_may_rest()) ? NULL : kind;
    doubt->is_even = call->is_even;
    return MPATH_OK;
}

unsigned mpath_doubt_window_call(mpath_doubt_t *doubt)
{
    mpath_doubt_kind_t *kind = doubt->last;

    return ((kind != NULL) && (kind->windows > 0)) ? ++kind->calls : 0;
}

void mpath_doubt_adapted(mpath_doubt_t *doubt, int changed)
{
    mpath_doubt_kind_t *kind = doubt->last;

    if ((kind != NULL) && (kind->windows > 0)) {
        kind->windows = changed ? (uint8_t)(kind->windows - 1) : 0;
        kind->calls   = 0;
    }
}

void mpath_doubt_took(mpath_doubt_t *doubt, uint64_t took_ns, uint64_t links_ns)
{
    uint64_t fine_ns = doubt->is_even ? links_ns / 100 * MPATH_DOUBT_EVEN_PERCENT : links_ns * MPATH_DOUBT_TIMES;

    doubt->was_slow = took_ns > fine_ns + MPATH_DOUBT_FIRST_NS;
}

void mpath_doubt_ended(mpath_doubt_t *doubt)
{
    mpath_trials_ended(&doubt->trials);
}
