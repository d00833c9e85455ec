/* SPDX-License-Identifier: BSD-3-Clause */
/* Passing: grants that double (util/pause.h), and when short calls are tried. */
#include "tune/passing.h"

enum { AGREED, PASSED };

const mpath_trial_rule_t mpath_passing_rule = {.runs         = MPATH_PASSING_TRIALS,
                                               .is_mixed     = 1,
                                               .by_last      = 1,
                                               .margin_ppm   = 50000,
                                               .holds        = MPATH_PASSING_HOLDS,
                                               .holds_unsure = MPATH_PASSING_HOLDS,
                                               .holds_kept   = MPATH_PASSING_HOLDS};

int mpath_passing_next(mpath_passing_t *passing)
{
    mpath_trial_t *trial = &passing->kinds[passing->kind];

    passing->timed = 0;
    if (mpath_pause_passes(&passing->pause)) {
        return 1;
    }
    if (!passing->tries) {
        return 0;
    }
    if (!passing->asked) {
        if (mpath_trial_is_due(trial, &mpath_passing_rule)) {
            return 0;
        }
        passing->asked = mpath_trial_next(trial, &mpath_passing_rule, 2, &passing->run) == AGREED;
    }
    passing->timed = 1;
    return !passing->asked; /* the run is over with the agreement: until then this may be asked again */
}

void mpath_passing_took(mpath_passing_t *passing, uint64_t took_ns)
{
    mpath_trial_note(&passing->kinds[passing->kind], passing->run, took_ns);
    passing->timed = 0;
}

static void grant(mpath_passing_t *passing)
{
    mpath_pause_begin(&passing->pause, MPATH_PASSING_FIRST, MPATH_PASSING_MOST);
}

int mpath_passing_agreed(mpath_passing_t *passing, mpath_passing_call_t call)
{
    passing->asked = 0;
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

/* Calls of that size pass from now on, or do not, as their trial has shown; and its pause: until when. */
static void follow(mpath_passing_t *passing, const mpath_trial_t *trial)
{
    if (trial->holds.left > 0 && trial->option == PASSED) {
        grant(passing);
    } else {
        mpath_pause_end(&passing->pause);
    }
}

void mpath_passing_short(mpath_passing_t *passing, uint64_t largest_bytes)
{
    uint32_t calls = (passing->pause.length > 0) ? passing->pause.length + 1 : passing->row;
    mpath_trial_t *trial;

    passing->kind = kind_of(largest_bytes);
    passing->row  = 0;
    trial         = &passing->kinds[passing->kind];
    trial->holds.left -= (trial->holds.left > calls) ? calls : trial->holds.left;
    if (trial->holds.left == 0) {
        passing->tries = 1;
        trial->runs    = 0;
    }
    follow(passing, trial);
}

mpath_trial_t *mpath_passing_due(mpath_passing_t *passing)
{
    mpath_trial_t *trial = &passing->kinds[passing->kind];

    return (passing->tries && !passing->asked && mpath_trial_is_due(trial, &mpath_passing_rule)) ? trial : NULL;
}

void mpath_passing_decided(mpath_passing_t *passing)
{
    passing->tries = 0;
    follow(passing, &passing->kinds[passing->kind]);
}
