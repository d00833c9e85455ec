/* SPDX-License-Identifier: BSD-3-Clause */
/* Trial: runs in turns, the median of what the ranks saw, and how long that holds. */
#include "tune/trial.h"

#include "util/log.h"
#include "util/time.h"

#include <stdlib.h>

#define MILLION 1000000u

const mpath_trial_rule_t mpath_trial_of_calls = {.runs         = MPATH_TRIAL_RUNS,
                                                 .margin_ppm   = 10000,
                                                 .holds        = MPATH_TRIAL_HOLDS,
                                                 .holds_unsure = MPATH_TRIAL_HOLDS_UNSURE,
                                                 .holds_kept   = MPATH_TRIAL_HOLDS_KEPT};

static unsigned num_runs(const mpath_trial_t *trial, const mpath_trial_rule_t *rule)
{
    return trial->options * rule->runs;
}

/* Mixed, two options go by the parity of the number's bits (Thue and Morse): 0 1 1 0 1 0 0 1 ... */
static unsigned option_of(const mpath_trial_t *trial, const mpath_trial_rule_t *rule, unsigned run)
{
    return rule->is_mixed ? (unsigned)__builtin_parity(run) : run % trial->options;
}

int mpath_trial_is_due(const mpath_trial_t *trial, const mpath_trial_rule_t *rule)
{
    return (trial->options > 0) && (trial->runs == num_runs(trial, rule));
}

int mpath_trial_is_sure(const mpath_trial_t *trial, const mpath_trial_rule_t *rule)
{
    return trial->holds.length == rule->holds;
}

void mpath_trial_resume(mpath_trial_t *trial, const mpath_trial_rule_t *rule, unsigned options, unsigned option)
{
    *trial = (mpath_trial_t){.option = (uint8_t)option, .options = (uint8_t)options};
    mpath_pause_for(&trial->holds, rule->holds_kept, rule->holds);
}

unsigned mpath_trial_next(mpath_trial_t *trial, const mpath_trial_rule_t *rule, unsigned options, int *run_p)
{
    if (trial->options != options) {
        *trial = (mpath_trial_t){.options = (uint8_t)options};
    }
    if (mpath_pause_passes(&trial->holds)) {
        *run_p = -1;
        return trial->option;
    }
    *run_p                  = (int)trial->runs++;
    trial->times_ns[*run_p] = 0;
    return option_of(trial, rule, (unsigned)*run_p);
}

void mpath_trial_note(mpath_trial_t *trial, int run, uint64_t took_ns)
{
    if (run >= 0) {
        trial->times_ns[run] = (took_ns > 0) ? took_ns : 1;
    }
}

/* Of a run; 0: it was not measured. */
static uint64_t run_ns(const uint64_t *all, unsigned row, int num_ranks, unsigned run, int by_last)
{
    uint64_t time_ns = all[run];

    for (int rank = 1; rank < num_ranks; rank++) {
        uint64_t other_ns = all[(unsigned)rank * row + run];

        time_ns = ((other_ns < time_ns) == by_last) ? other_ns : time_ns;
    }
    return time_ns;
}

/* What an option has taken: the fastest run, and the median, which is that of twice the time where runs are even in number. */
typedef struct taken {
    uint64_t least_ns, median_ns;
} taken_t;

static taken_t take_runs(const mpath_trial_t *trial, const mpath_trial_rule_t *rule, const uint64_t *all, int num_ranks,
                         unsigned option)
{
    unsigned count = 0, row = num_runs(trial, rule), half = rule->runs / 2;
    uint64_t sorted[MPATH_TRIAL_TIMES];

    for (unsigned run = 0; run < row; run++) {
        uint64_t time_ns = run_ns(all, row, num_ranks, run, rule->by_last);
        unsigned at      = count;

        if (option_of(trial, rule, run) != option) {
            continue;
        }
        for (; (at > 0) && (sorted[at - 1] > time_ns); at--) {
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = time_ns;
        count++;
    }
    return (rule->runs % 2 == 0) ? (taken_t){2 * sorted[0], sorted[half - 1] + sorted[half]}
                                 : (taken_t){sorted[0], sorted[half]};
}

/* Better by enough to count. */
static int is_better(const mpath_trial_rule_t *rule, uint64_t time_ns, uint64_t other_ns)
{
    return time_ns + time_ns / (MILLION / rule->margin_ppm) < other_ns;
}

/* One that noise may have made is tried again soon, and holds twice as long each time that it is confirmed. */
static uint32_t holds_for(const mpath_trial_t *trial, const mpath_trial_rule_t *rule, unsigned option, int is_clear)
{
    if (is_clear) {
        return rule->holds;
    }
    return (mpath_trial_is_known(trial) && (trial->option == option)) ? 2 * trial->holds.length : rule->holds_unsure;
}

void mpath_trial_decide(mpath_trial_t *trial, const mpath_trial_rule_t *rule, const uint64_t *all, int num_ranks)
{
    taken_t taken[MPATH_TRIAL_OPTIONS];
    unsigned option = 0;
    int is_clear = 1, has_all = 1;

    for (unsigned i = 0; i < trial->options; i++) {
        taken[i] = take_runs(trial, rule, all, num_ranks, i);
        has_all  = has_all && (taken[i].least_ns > 0);
    }
    for (unsigned i = 1; (i < trial->options) && has_all; i++) {
        if (is_better(rule, taken[i].median_ns, taken[0].median_ns) && (taken[i].median_ns < taken[option].median_ns)) {
            option = i;
        }
    }
    for (unsigned i = 0; i < trial->options; i++) {
        is_clear = is_clear && ((i == option) || !is_better(rule, taken[i].least_ns, taken[option].median_ns));
    }
    mpath_pause_for(&trial->holds, holds_for(trial, rule, option, is_clear), rule->holds);
    trial->option = (uint8_t)option;
    trial->runs   = 0;
}

mpath_status_t mpath_trial_conclude(mpath_trial_t *trial, const mpath_trial_rule_t *rule, mpath_team_t *team)
{
    size_t size = (size_t)mpath_team_size(team), row = num_runs(trial, rule) * sizeof(trial->times_ns[0]);
    uint64_t *all         = malloc(size * row);
    mpath_status_t status = MPATH_ERR_NO_MEMORY;

    if (all == NULL) {
        mpath_error("no memory to compare the ways of calls; the call fails");
        return status;
    }
    status = mpath_team_allgather(team, trial->times_ns, row, all);
    if (status == MPATH_OK) {
        mpath_trial_decide(trial, rule, all, (int)size);
    }
    free(all);
    return status;
}

/* -- by kind of call -- */

void mpath_trials_forget(mpath_trials_t *trials)
{
    free(trials->kinds);
    trials->kinds = NULL;
    trials->tried = NULL;
}

mpath_trial_t *mpath_trials_get(mpath_trials_t *trials, int kind)
{
    if (trials->kinds == NULL) {
        trials->kinds = calloc((size_t)trials->num_kinds, sizeof(*trials->kinds));
    }
    if (trials->kinds == NULL) {
        mpath_error("no memory to compare the ways of calls; the call fails");
    }
    return mpath_trials_of(trials, kind);
}

mpath_status_t mpath_trials_next(mpath_trials_t *trials, mpath_team_t *team, int kind, unsigned options,
                                 uint64_t start_ns, unsigned *option_p, int *decided_p)
{
    mpath_trial_t *trial  = mpath_trials_get(trials, kind);
    mpath_status_t status = (trial != NULL) ? MPATH_OK : MPATH_ERR_NO_MEMORY;

    *decided_p = 0;
    if (trial != NULL && mpath_trial_is_due(trial, &mpath_trial_of_calls)) {
        status     = mpath_trial_conclude(trial, &mpath_trial_of_calls, team);
        *decided_p = status == MPATH_OK;
    }
    if (status != MPATH_OK) {
        return status;
    }
    *option_p        = mpath_trial_next(trial, &mpath_trial_of_calls, options, &trials->run);
    trials->tried    = (trials->run >= 0) ? trial : NULL;
    trials->start_ns = start_ns;
    return MPATH_OK;
}

void mpath_trials_took(mpath_trials_t *trials, uint64_t took_ns)
{
    if (trials->tried != NULL) {
        mpath_trial_note(trials->tried, trials->run, took_ns);
        trials->tried = NULL;
    }
}

void mpath_trials_ended(mpath_trials_t *trials)
{
    if (trials->tried != NULL) {
        mpath_trials_took(trials, mpath_time_ns() - trials->start_ns);
    }
}

/* -- kinds -- */

#define LEAST_LENGTH_LOG2 13u /* 8 us and below are one kind */

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

int mpath_trial_kind(uint64_t static_ns, uint64_t plan_ns)
{
    uint32_t length = half_octaves(static_ns), least = 2 * LEAST_LENGTH_LOG2;
    /* A plan that takes longer is of the first kind of gain. */
    uint32_t gain = half_octaves(static_ns) + 1, cost = half_octaves(plan_ns);

    length = (length > least) ? length - least : 0;
    length = (length < MPATH_TRIAL_LENGTHS) ? length : MPATH_TRIAL_LENGTHS - 1;
    gain   = (gain > cost) ? gain - cost : 0;
    gain   = (gain < MPATH_TRIAL_GAINS) ? gain : MPATH_TRIAL_GAINS - 1;
    return (int)(length * MPATH_TRIAL_GAINS + gain);
}

uint64_t mpath_trial_kind_ns(int kind)
{
    uint32_t length = (uint32_t)kind / MPATH_TRIAL_GAINS;
    uint64_t power  = UINT64_C(1) << (LEAST_LENGTH_LOG2 + length / 2);

    return (length % 2 == 0) ? power : power / 128 * 181;
}

int mpath_trial_is_open(uint64_t static_ns, uint64_t plan_ns)
{
    uint64_t saves = (static_ns > plan_ns) ? static_ns - plan_ns : plan_ns - static_ns;

    return (saves < MPATH_TRIAL_UNSURE_NS) && (plan_ns / 2 < static_ns);
}
