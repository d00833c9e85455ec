/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Help: a kernel on few multiprocessors that writes a part of what copy engines push. An engine leaves its GPU's port
 * idle for some microseconds between two pieces, which a kernel's stores can fill; while both are at work they share
 * the port. Two H200 carry 362 GB/s by engines in pieces of 8 MiB with a kernel that writes as much, where the engines
 * alone reach 326 (doc/benchmarks/2026-11-22-h200.md). What it is worth depends on the machine, so it is tried, by
 * kind of call (tune/trial.h), beginning with what others have found (node/kept.h).
 */
#include "node/kept.h"
#include "node/node_private.h"

#include "tune/trial.h"
#include "util/log.h"
#include "util/time.h"

/* Ways to choose from: in percent of what is pushed. */
static const unsigned shares[] = {0, 30, 12};
#define NUM_SHARES (sizeof(shares) / sizeof(shares[0]))

#define OPERATION "alltoallv" /* in the file */

/* Parts of a message are multiples of this. */
#define HELP_GRAIN_BYTES (UINT64_C(64) << 10)

/*
 * From how many pieces of an engine on there is something to fill (a single one was not faster with any help), and from
 * what part of its time.
 */
#define HELP_LEAST_PIECES 3u
#define HELP_LEAST_GAPS_PERCENT 2u

void mpath_gpu_help_destroy(mpath_gpu_coll_t *gpu)
{
    mpath_trials_forget(&gpu->help);
}

/* Whether kernels can help: the same on all ranks. */
static int is_possible(const mpath_gpu_coll_t *gpu)
{
    const gpu_decided_t *decided = &gpu->decided;
    int possible                 = decided->pushes && !gpu->timed;

    for (int rank = 0; rank < gpu->size; rank++) {
        possible = possible && (!((decided->engine_ranks >> rank) & 1) || gpu_cell(gpu, rank)->kernels);
    }
    return possible;
}

/* The most pieces of a rank whose messages are not cut. */
static unsigned most_pieces(const mpath_gpu_coll_t *gpu)
{
    unsigned most = 0;

    for (int rank = 0; rank < gpu->size; rank++) {
        unsigned pieces = 0;

        for (int peer = 0; peer < gpu->size; peer++) {
            pieces += (gpu_way(gpu, rank, peer) == WAY_PUSH) ? 1 : 0;
        }
        most = (pieces > most) ? pieces : most;
    }
    return most;
}

/* Whether it may be worth it. */
static int has_gaps(const mpath_gpu_coll_t *gpu)
{
    const gpu_decided_t *decided = &gpu->decided;

    return (decided->order_ns - decided->bound_ns >= decided->order_ns / 100 * HELP_LEAST_GAPS_PERCENT) &&
           (most_pieces(gpu) >= HELP_LEAST_PIECES);
}

/* Calls of a kind begin. */
static mpath_status_t begin(const mpath_gpu_coll_t *gpu, int number, mpath_trial_t *kind)
{
    mpath_learned_t kept;
    mpath_status_t status = mpath_gpu_kept_take(gpu, MPATH_HISTORY_HELP, OPERATION, number, &kept);

    for (unsigned way = 0; (way < NUM_SHARES) && (kept.learned_ns > 0); way++) {
        if (shares[way] == kept.value) {
            mpath_trial_resume(kind, &mpath_trial_of_calls, NUM_SHARES, way);
        }
    }
    return status;
}

/* The trials of calls of a kind are over. */
static void tell_decided(const mpath_gpu_coll_t *gpu, int number, const mpath_trial_t *kind)
{
    mpath_debug("device memory: pushes like these have been measured: a kernel writes %u %% of them from now on",
                shares[kind->way]);
    if (mpath_trial_is_sure(kind, &mpath_trial_of_calls)) {
        mpath_gpu_kept_learned(gpu, MPATH_HISTORY_HELP, OPERATION, number, shares[kind->way]);
    }
}

/* What is found by trial for calls like this one. */
static mpath_status_t next_share(mpath_gpu_coll_t *gpu, unsigned *percent_p)
{
    int number            = mpath_trial_kind(gpu->decided.order_ns, gpu->decided.bound_ns), decided;
    mpath_status_t status = MPATH_OK;
    mpath_trial_t *kind;
    unsigned way;

    gpu->help.num_kinds = MPATH_TRIAL_KINDS;

    kind = mpath_trials_get(&gpu->help, number);
    if (kind == NULL) {
        return MPATH_ERR_NO_MEMORY; /* the others count on this rank's times */
    }
    if (kind->ways == 0) {
        status = begin(gpu, number, kind);
    }
    if (status == MPATH_OK) {
        status = mpath_trials_next(&gpu->help, gpu->team, number, NUM_SHARES, mpath_time_ns(), &way, &decided);
    }
    if (status != MPATH_OK) {
        return status;
    }
    if (decided) {
        tell_decided(gpu, number, kind);
    }
    *percent_p = shares[way];
    return MPATH_OK;
}

/* Brings the kernel's parts, and the order of what is left, up to date. */
static void set_share(mpath_gpu_coll_t *gpu, unsigned percent)
{
    gpu_decided_t *decided = &gpu->decided;

    if (decided->help_percent == percent) {
        return;
    }
    for (int i = 0; i < gpu->size * gpu->size; i++) {
        decided->helped[i] = (decided->ways[i] == WAY_PUSH)
                                 ? (gpu->demand[i] - decided->beside[i]) / 100 * percent & ~(HELP_GRAIN_BYTES - 1)
                                 : 0;
    }
    decided->help_percent = percent;
    mpath_gpu_coll_order_rest(gpu);
}

mpath_status_t mpath_gpu_help_next(mpath_gpu_coll_t *gpu)
{
    int wanted            = gpu->settings->gpu_help_percent;
    unsigned percent      = 0;
    mpath_status_t status = MPATH_OK;

    if (is_possible(gpu)) {
        if (wanted >= 0) {
            percent = (unsigned)wanted;
        } else if ((gpu->settings->gpu_way == MPATH_GPU_WAY_AUTO) && (gpu->settings->adapt != MPATH_ADAPT_OFF) &&
                   has_gaps(gpu)) {
            status = next_share(gpu, &percent);
        }
    }
    if (status == MPATH_OK) {
        set_share(gpu, percent);
    }
    return status;
}

void mpath_gpu_help_ended(mpath_gpu_coll_t *gpu)
{
    mpath_trials_ended(&gpu->help);
}
