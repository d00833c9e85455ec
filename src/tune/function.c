/* SPDX-License-Identifier: BSD-3-Clause */
/* Function: kinds of calls, and which functions are tried for them. */
#include "tune/function.h"

#include "util/log.h"

int mpath_function_size(uint64_t bytes)
{
    int log2       = (bytes > 0) ? 63 - __builtin_clzll(bytes) : 0;
    uint64_t power = UINT64_C(1) << log2;
    int size       = 2 * log2 + ((bytes >= power + (power + 1) / 2) ? 1 : 0);

    return (size < MPATH_FUNCTION_SIZES) ? size : MPATH_FUNCTION_SIZES - 1;
}

unsigned mpath_function_skew(uint64_t busiest, uint64_t average)
{
    static const unsigned quarters[MPATH_FUNCTION_SKEWS - 1] = {5, 7, 10, 14};
    unsigned skew                                            = 0;

    while ((skew < MPATH_FUNCTION_SKEWS - 1) && (busiest > (average + 3) / 4 * quarters[skew])) {
        skew++;
    }
    return skew;
}

/* The number-th of the open functions. */
static mpath_function_t function_of(unsigned open, unsigned number)
{
    unsigned function = MPATH_FUNCTION_OWN;

    while (number > 0) {
        function++;
        number -= (open >> function) & 1;
    }
    return (mpath_function_t)function;
}

static unsigned num_functions(const mpath_function_call_t *call)
{
    return 1 + (unsigned)__builtin_popcount(call->open);
}

/* Skew makes plans gain more: where mpath's own function is the fastest without, it is with it. */
static int is_lost(const mpath_trials_t *trials, const mpath_function_call_t *call)
{
    for (unsigned skew = 0; (trials->kinds != NULL) && (skew < call->skew); skew++) {
        const mpath_trial_t *less = mpath_trials_of(trials, mpath_function_kind(call->bytes, skew));

        if (mpath_trial_is_known(less) && (less->option == MPATH_FUNCTION_OWN)) {
            return 1;
        }
    }
    return 0;
}

mpath_status_t mpath_function_next(mpath_trials_t *trials, mpath_team_t *team, const mpath_function_call_t *call,
                                   uint64_t start_ns, mpath_function_t *function_p)
{
    static const char *const names[] = {"by mpath's own way", "by way of the host", "by the previous function"};
    mpath_status_t status;
    unsigned number;
    int decided;

    *function_p = MPATH_FUNCTION_OWN;
    mpath_trials_drop(trials);
    if ((call->open == 0) || is_lost(trials, call)) {
        return MPATH_OK;
    }
    trials->num_kinds = MPATH_FUNCTION_KINDS;
    status = mpath_trials_next(trials, team, mpath_function_kind(call->bytes, call->skew), num_functions(call),
                               start_ns, &number, &decided);
    if (status != MPATH_OK) {
        return status;
    }
    *function_p = function_of(call->open, number);
    if (decided) {
        mpath_debug("calls like this one have been measured: they go %s from now on", names[*function_p]);
    }
    return MPATH_OK;
}

mpath_function_t mpath_function_known(const mpath_trials_t *trials, const mpath_function_call_t *call)
{
    const mpath_trial_t *trial = mpath_trials_of(trials, mpath_function_kind(call->bytes, call->skew));

    if ((trial == NULL) || !mpath_trial_is_known(trial) || (trial->options != num_functions(call)) ||
        is_lost(trials, call)) {
        return MPATH_FUNCTION_OWN;
    }
    return function_of(call->open, trial->option);
}
