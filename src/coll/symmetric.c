/* SPDX-License-Identifier: BSD-3-Clause */
/* What the symmetric collectives have in common: life, gate, agreement, the order of combination. */
#include "coll/symmetric_private.h"

#include "exec/move.h"
#include "util/log.h"
#include "util/time.h"

#include <stdlib.h>
#include <string.h>

#define SCRATCH_ALIGN 64u

/* By node, then rank: the order in which elements are combined. */
static void order_ranks(mpath_symmetric_t *symmetric)
{
    const mpath_topo_t *topo = mpath_team_topo(symmetric->team);
    int next                 = 0;

    for (int node = 0; node < mpath_topo_num_nodes(topo); node++) {
        for (int rank = 0; rank < symmetric->size; rank++) {
            if (mpath_topo_place(topo, rank)->node == node) {
                symmetric->order[next++] = rank;
            }
        }
    }
}

mpath_status_t mpath_symmetric_create(mpath_team_t *team, mpath_coll_t *coll, mpath_symmetric_t **symmetric_p)
{
    mpath_symmetric_t *symmetric = calloc(1, sizeof(*symmetric));
    size_t size                  = (size_t)mpath_team_size(team);
    mpath_status_t status        = MPATH_ERR_NO_MEMORY;

    if (symmetric == NULL) {
        goto err_no_memory;
    }
    symmetric->team             = team;
    symmetric->coll             = coll;
    symmetric->settings         = mpath_team_settings(team);
    symmetric->size             = mpath_team_size(team);
    symmetric->rank             = mpath_team_rank(team);
    symmetric->declined_because = "";
    symmetric->send_bytes       = calloc(5 * size, sizeof(uint64_t));
    symmetric->order            = calloc(size, sizeof(int));
    if ((symmetric->send_bytes == NULL) || (symmetric->order == NULL)) {
        goto err_no_memory;
    }
    symmetric->send_offsets = symmetric->send_bytes + size;
    symmetric->recv_bytes   = symmetric->send_offsets + size;
    symmetric->recv_offsets = symmetric->recv_bytes + size;
    symmetric->elements     = symmetric->recv_offsets + size;
    order_ranks(symmetric);
    status = mpath_share_create(team, &symmetric->share);
    if ((status == MPATH_OK) && symmetric->settings->deterministic) {
        status = mpath_share_create_whole(team, &symmetric->judge);
    }
    if (status != MPATH_OK) {
        mpath_symmetric_destroy(symmetric);
        return status;
    }
    symmetric->topo_version = mpath_team_topo_version(team);
    *symmetric_p            = symmetric;
    return MPATH_OK;

err_no_memory:
    mpath_error("no memory for the collectives of a communicator of %zu ranks", size);
    mpath_symmetric_destroy(symmetric);
    return status;
}

void mpath_symmetric_destroy(mpath_symmetric_t *symmetric)
{
    if (symmetric != NULL) {
        mpath_share_destroy(symmetric->judge);
        mpath_share_destroy(symmetric->share);
        for (size_t i = 0; i < sizeof(symmetric->doubts) / sizeof(symmetric->doubts[0]); i++) {
            mpath_doubt_release(&symmetric->doubts[i]);
        }
        free(symmetric->scratch);
        free(symmetric->order);
        free(symmetric->send_bytes);
        free(symmetric);
    }
}

void mpath_symmetric_counters(const mpath_symmetric_t *symmetric, mpath_coll_counters_t *counters)
{
    *counters = symmetric->counters;
}

const char *mpath_symmetric_declined_because(const mpath_symmetric_t *symmetric)
{
    return symmetric->declined_because;
}

/* Notes why. MPATH_DECLINED. */
static mpath_status_t decline(mpath_symmetric_t *symmetric, const char *because)
{
    symmetric->declined_because = because;
    symmetric->counters.declined++;
    return MPATH_DECLINED;
}

char *mpath_symmetric_scratch(mpath_symmetric_t *symmetric, uint64_t bytes)
{
    bytes = (bytes + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
    if (bytes > symmetric->scratch_bytes) {
        free(symmetric->scratch);
        symmetric->scratch       = aligned_alloc(SCRATCH_ALIGN, bytes);
        symmetric->scratch_bytes = (symmetric->scratch != NULL) ? bytes : 0;
    }
    return symmetric->scratch;
}

/*
 * A rail was left out of the topology, or is used again: the engine starts anew with those that there are now, and so
 * does what was learned, which is kept by the rails' numbers in the engine. All ranks come here in the same call.
 */
mpath_status_t mpath_symmetric_read_topo(mpath_symmetric_t *symmetric)
{
    mpath_share_t *share;
    mpath_status_t status = mpath_share_create(symmetric->team, &share);

    if (status != MPATH_OK) {
        mpath_team_break(symmetric->team, status); /* the others go on, and would wait */
        return status;
    }
    mpath_share_destroy(symmetric->share);
    symmetric->share        = share;
    symmetric->topo_version = mpath_team_topo_version(symmetric->team);
    memset(&symmetric->adapt, 0, sizeof(symmetric->adapt));
    return MPATH_OK;
}

/* Whose predictions decide: with `deterministic` those of the rails at the start, whatever has become of them. */
static const mpath_share_t *judge_of(const mpath_symmetric_t *symmetric)
{
    return (symmetric->judge != NULL) ? symmetric->judge : symmetric->share;
}

/* Between nodes a call gains by more rails than one; in one node there is no rail to gain. */
static const char *no_gain(const mpath_symmetric_t *symmetric, unsigned flags, uint64_t bytes)
{
    const mpath_share_t *share = judge_of(symmetric);

    if (mpath_topo_num_nodes(mpath_team_topo(symmetric->team)) == 1) {
        return "all ranks share one node";
    }
    if (mpath_share_num_rails(share) < 2) {
        return "there is one rail";
    }
    if (mpath_share_num_lanes(share) < 2) {
        return "all rails but one are too slow to gain by";
    }
    if (bytes < symmetric->settings->symmetric_min_bytes) {
        return "less than symmetric_min_bytes";
    }
    return (mpath_share_predict_ns(share, flags, bytes) > mpath_share_previous_ns(share, flags, bytes))
               ? "predicted to be no faster than the previous function"
               : NULL;
}

int mpath_symmetric_never_gains(const mpath_symmetric_t *symmetric, int algorithm)
{
    return (algorithm == MPATH_ALGORITHM_AUTO) && (symmetric->settings->gate == MPATH_GATE_AUTO) &&
           (mpath_topo_num_nodes(mpath_team_topo(symmetric->team)) == 1) &&
           (mpath_team_status(symmetric->team) == MPATH_OK);
}

/* The same for a large call, maybe for rails that have failed: the next one shall find those that are back. */
static mpath_status_t decline_for_rails(mpath_symmetric_t *symmetric, const char *because)
{
    mpath_status_t status = mpath_move_recover(symmetric->team);

    if (status != MPATH_OK) {
        mpath_team_break(symmetric->team, status);
        return status;
    }
    return decline(symmetric, because);
}

/*
 * On GPUs of several nodes even one rail may be a gain: what is left to the previous function goes through the host,
 * whole on every rank.
 */
static int gains_on_gpus(const mpath_symmetric_t *symmetric, int algorithm, unsigned flags, uint64_t bytes)
{
    const mpath_settings_t *settings = symmetric->settings;
    const mpath_share_t *share       = judge_of(symmetric);
    int forced                       = (settings->gate == MPATH_GATE_ALWAYS) || (algorithm == MPATH_ALGORITHM_LANES);

    return (mpath_share_obstacle(symmetric->share) == NULL) && (algorithm != MPATH_ALGORITHM_SMALL) &&
           (mpath_topo_num_nodes(mpath_team_topo(symmetric->team)) > 1) &&
           (forced ||
            ((bytes >= settings->symmetric_min_bytes) &&
             (mpath_share_predict_gpus_ns(share, flags, bytes) <= mpath_share_previous_gpus_ns(share, flags, bytes))));
}

mpath_status_t mpath_symmetric_gate(mpath_symmetric_t *symmetric, int algorithm, unsigned flags, uint64_t bytes,
                                    uint64_t largest, int gpus)
{
    const mpath_settings_t *settings = symmetric->settings;
    const char *obstacle, *because = NULL;
    int small = largest <= settings->small_bytes;
    mpath_status_t status;

    symmetric->declined_because = "";
    symmetric->host_because     = NULL;
    symmetric->bytes            = bytes;
    if (symmetric->topo_version != mpath_team_topo_version(symmetric->team)) {
        status = mpath_symmetric_read_topo(symmetric);
        if (status != MPATH_OK) {
            return status;
        }
    }
    obstacle = mpath_share_obstacle(symmetric->share);
    if ((settings->gate == MPATH_GATE_NEVER) || (algorithm == MPATH_ALGORITHM_PREVIOUS)) {
        return decline(symmetric, "a parameter says never");
    }
    if ((obstacle != NULL) && ((algorithm == MPATH_ALGORITHM_LANES) || !small)) {
        because = obstacle;
    } else if ((algorithm == MPATH_ALGORITHM_SMALL) && !small) {
        return decline(symmetric, "more than travels in the agreement");
    } else if ((algorithm == MPATH_ALGORITHM_AUTO) && (settings->gate == MPATH_GATE_AUTO)) {
        because = no_gain(symmetric, flags, bytes);
    }
    if ((because == NULL) || (gpus && gains_on_gpus(symmetric, algorithm, flags, bytes))) {
        symmetric->host_because = because;
        return MPATH_OK;
    }
    return (bytes < settings->symmetric_min_bytes) ? decline(symmetric, because)
                                                   : decline_for_rails(symmetric, because);
}

/* Where the data of all ranks is: `flags` is what they have agreed on. NULL: the call goes on. */
static const char *settle_memory(mpath_symmetric_t *symmetric, mpath_share_job_t *job, uint32_t flags)
{
    if ((job->gpus != NULL) && (flags & MPATH_CALL_DEVICE)) {
        return (flags & MPATH_CALL_APART) ? "not all ranks have data that their GPUs can share" : NULL;
    }
    job->gpus = NULL;
    return symmetric->host_because;
}

/*
 * Whether a call on host memory is the previous function's, for what calls before have shown. Not with `deterministic`:
 * that function combines in another order.
 */
static mpath_status_t settle_doubt(mpath_symmetric_t *symmetric, mpath_doubt_t *doubt, int algorithm, uint64_t start_ns)
{
    const mpath_settings_t *settings = symmetric->settings;
    const mpath_doubt_call_t call    = {.bytes  = symmetric->bytes,
                                        .adapts = mpath_symmetric_adapts(symmetric, symmetric->bytes)};
    mpath_status_t status;
    int previous;

    if ((settings->gate != MPATH_GATE_AUTO) || (algorithm != MPATH_ALGORITHM_AUTO) || settings->deterministic) {
        return MPATH_OK;
    }
    status = mpath_doubt_next(doubt, symmetric->team, symmetric->agreed_flags, &call, start_ns, &previous);
    if (status != MPATH_OK) {
        return status;
    }
    return previous ? decline(symmetric, "calls like this one are faster with it, or that is tried") : MPATH_OK;
}

void mpath_symmetric_ended(mpath_symmetric_t *symmetric)
{
    for (size_t i = 0; i < sizeof(symmetric->doubts) / sizeof(symmetric->doubts[0]); i++) {
        mpath_doubt_ended(&symmetric->doubts[i]);
    }
}

mpath_status_t mpath_symmetric_agree(mpath_symmetric_t *symmetric, mpath_operation_t operation, int algorithm,
                                     const void *send, void *recv, int ineligible, mpath_share_job_t *job,
                                     mpath_agreed_t *agreed, int *finished_p)
{
    mpath_call_t call    = {.operation    = (uint32_t)operation,
                            .flags        = ineligible ? MPATH_CALL_INELIGIBLE : 0,
                            .send_bytes   = symmetric->send_bytes,
                            .send_offsets = symmetric->send_offsets,
                            .send_buffer  = send,
                            .recv_bytes   = symmetric->recv_bytes,
                            .recv_offsets = symmetric->recv_offsets,
                            .recv_buffer  = recv};
    mpath_doubt_t *doubt = &symmetric->doubts[mpath_symmetric_index(operation)];
    uint64_t start_ns    = mpath_time_ns();
    const char *because;
    mpath_status_t status;

    call.flags |= mpath_doubt_tell(doubt) | mpath_symmetric_adapt_tell(symmetric);
    if (job->gpus != NULL) {
        call.flags |= mpath_share_gpus_tell(symmetric->share, job);
    }
    status = mpath_agree(symmetric->team, &call, agreed);
    symmetric->counters.agree_ns += mpath_time_ns() - start_ns;
    if (status != MPATH_OK) {
        return status;
    }
    symmetric->agreed_flags = agreed->flags;
    if (agreed->flags & MPATH_CALL_INELIGIBLE) {
        return decline(symmetric, "some rank has data that mpath does not carry");
    }
    because = settle_memory(symmetric, job, agreed->flags);
    if (because != NULL) {
        return decline(symmetric, because);
    }
    *finished_p = agreed->finished && (algorithm != MPATH_ALGORITHM_LANES);
    if (!*finished_p && (algorithm == MPATH_ALGORITHM_SMALL)) {
        return decline(symmetric, "more than travels in the agreement");
    }
    if (!*finished_p && (mpath_share_obstacle(symmetric->share) != NULL)) {
        return decline(symmetric, mpath_share_obstacle(symmetric->share));
    }
    return (*finished_p || (job->gpus != NULL)) ? MPATH_OK : settle_doubt(symmetric, doubt, algorithm, start_ns);
}

char *mpath_symmetric_combine(const mpath_symmetric_t *symmetric, char *data, uint64_t stride, uint64_t elements,
                              const mpath_combination_t *combination)
{
    const mpath_topo_t *topo = mpath_team_topo(symmetric->team);
    const int *order         = symmetric->order;
    char *whole = data + (uint64_t)order[0] * stride, *sum = whole;

    for (int i = 1; i < symmetric->size; i++) {
        char *next = data + (uint64_t)order[i] * stride;

        if (mpath_topo_place(topo, order[i])->node == mpath_topo_place(topo, order[i - 1])->node) {
            combination->reduce(combination->argument, next, sum, elements);
            continue;
        }
        if (sum != whole) {
            combination->reduce(combination->argument, sum, whole, elements);
        }
        sum = next;
    }
    if (sum != whole) {
        combination->reduce(combination->argument, sum, whole, elements);
    }
    return whole;
}

mpath_status_t mpath_symmetric_run(mpath_symmetric_t *symmetric, const mpath_share_job_t *job,
                                   mpath_share_stats_t *stats)
{
    mpath_status_t status = mpath_share_run(symmetric->share, job, stats);
    mpath_move_loss_t loss;

    if (job->settles && ((status == MPATH_OK) || (status == MPATH_AGAIN) ||
                         ((status == MPATH_ERR_UNREACHABLE) && (mpath_team_status(symmetric->team) == MPATH_OK)))) {
        mpath_share_loss(symmetric->share, &loss);
        status = mpath_move_settle_loss(symmetric->team, status, &loss);
    }
    if (mpath_status_is_error(status)) {
        mpath_share_abandon(symmetric->share, status);
    }
    return status;
}

/* One attempt. MPATH_AGAIN, on all ranks: rails have failed and are left out. */
static mpath_status_t share_once(mpath_symmetric_t *symmetric, mpath_operation_t operation, uint64_t bytes,
                                 mpath_share_job_t *job, mpath_share_stats_t *stats)
{
    mpath_share_t *share  = symmetric->share;
    mpath_status_t status = mpath_symmetric_adapt_before(symmetric, operation, bytes);

    if (status != MPATH_OK) {
        return status;
    }
    if (job->gpus != NULL) {
        status = mpath_share_gpus_open(share, job, symmetric->agreed_flags);
        if (status != MPATH_OK) {
            return status;
        }
    }
    if (!job->settles) { /* the rest of one that does, does, however short it is */
        job->settles = mpath_move_settles_ns(symmetric->team, mpath_share_predict_ns(share, job->flags, bytes));
    }
    status = mpath_symmetric_run(symmetric, job, stats);
    if (status == MPATH_OK) {
        status = mpath_symmetric_adapt_after(symmetric, operation, job->flags, bytes);
    }
    return ((status == MPATH_OK) && !job->settles) ? mpath_move_recover(symmetric->team) : status;
}

mpath_status_t mpath_symmetric_share(mpath_symmetric_t *symmetric, mpath_operation_t operation, uint64_t bytes,
                                     mpath_share_job_t *job)
{
    uint64_t start_ns         = mpath_time_ns();
    mpath_share_stats_t stats = {0};
    mpath_status_t status     = share_once(symmetric, operation, bytes, job, &stats);

    if (job->gpus == NULL) {
        mpath_doubt_took(&symmetric->doubts[mpath_symmetric_index(operation)], mpath_time_ns() - start_ns,
                         mpath_share_links_ns(symmetric->share, job->flags, bytes));
    }
    while (status == MPATH_AGAIN) { /* each time with a rail less */
        status = mpath_symmetric_resume(symmetric, job, &bytes);
        if ((status == MPATH_OK) && (bytes > 0)) {
            status = share_once(symmetric, operation, bytes, job, &stats);
            status = (status == MPATH_DECLINED) ? MPATH_ERR_NO_MEMORY : status; /* a part of the call is done */
        }
    }
    symmetric->counters.move_ns += mpath_time_ns() - start_ns;
    if (status == MPATH_DECLINED) {
        return decline(symmetric, "some rank could not set up its rails or its memory");
    }
    if (mpath_status_is_error(status)) {
        mpath_team_break(symmetric->team, status);
        if (job->gpus != NULL) {
            mpath_share_gpus_leave(symmetric->share);
        }
    }
    symmetric->counters.moved.sent_bytes += stats.rail_bytes;
    symmetric->counters.gpu.calls += (job->gpus != NULL) && (status == MPATH_OK);
    symmetric->counters.gpu.kernel_bytes += stats.kernel_bytes;
    symmetric->counters.gpu.engine_bytes += stats.engine_bytes;
    return status;
}
