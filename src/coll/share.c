/* SPDX-License-Identifier: BSD-3-Clause */
/* The share engine's run: all steps in turn until this rank's duties are done. */
#include "coll/share.h"

#include "coll/share_gpu.h"
#include "util/log.h"
#include "util/time.h"

const char *mpath_share_obstacle(const mpath_share_t *share)
{
    return share->obstacle;
}

int mpath_share_num_rails(const mpath_share_t *share)
{
    return share->num_rails;
}

uint32_t mpath_share_lanes(const mpath_share_t *share)
{
    return share->lanes;
}

int mpath_share_num_lanes(const mpath_share_t *share)
{
    return __builtin_popcount(share->lanes);
}

uint64_t mpath_share_rail_bps(const mpath_share_t *share, int index)
{
    return share->rails[index].rate_bps;
}

int mpath_share_rail_number(const mpath_share_t *share, int index)
{
    return share->rails[index].number;
}

int mpath_share_measured(const mpath_share_t *share, int index, uint64_t *bytes_p, uint64_t *busy_ns_p)
{
    for (int i = 0; i < share->num_links; i++) {
        if (share->links[i].rail == index) {
            *bytes_p   = share->links[i].taken_bytes;
            *busy_ns_p = share->links[i].busy_ns;
            return 1;
        }
    }
    return 0;
}

static mpath_status_t begin(mpath_share_t *share)
{
    share->my_published = share->my_reduced = share->my_copied = share->my_consumed = 0;
    for (int i = 0; i < share->num_links; i++) {
        mpath_share_link_reset(share, &share->links[i]);
    }
    if (share->wire != NULL) {
        share->max_chunk = mpath_wire_max_chunk(share->wire);
        mpath_wire_begin(share->wire, &mpath_share_wire_ops, share, share->nics, share->job->settles);
    }
    mpath_idle_start(&share->idle);
    share->checked_ns = 0;
    share->given_up   = 0;
    if (share->job->gpus == NULL) {
        return MPATH_OK;
    }
    mpath_share_gpu_owners_begin(share);
    return mpath_share_gpu_begin(share);
}

/* Brings the counters that this call has not used to where the others are. */
static void end(mpath_share_t *share)
{
    uint64_t end = share->base + share->num_segments;

    atomic_store_explicit(&share->published[share->local_rank].value, end, memory_order_release);
    atomic_store_explicit(&share->reduced[share->local_rank].value, end, memory_order_release);
    share->base = end;
    if (share->wire != NULL) {
        mpath_wire_end(share->wire);
    }
}

/* The steps inside the node. */
static int node_pass(mpath_share_t *share)
{
    int (*const host[])(mpath_share_t *) = {mpath_share_copy_out, mpath_share_consume, mpath_share_reduce,
                                            mpath_share_publish};
    int (*const gpu[])(mpath_share_t *)  = {mpath_share_gpu_copy_out, mpath_share_consume, mpath_share_gpu_reduce,
                                            mpath_share_gpu_publish};
    int events                           = 0;

    for (size_t i = 0; i < sizeof(host) / sizeof(host[0]); i++) {
        int result = (share->job->gpus != NULL) ? gpu[i](share) : host[i](share);

        if (result < 0) {
            return result;
        }
        events += result;
    }
    return events;
}

/* One look at everything, what moves the rails first. Number of events, or an error. */
static int pass(mpath_share_t *share)
{
    int events = 0, result;

    if (share->num_links > 0) {
        if (share->job->gpus != NULL) {
            mpath_share_gpu_owners_announce(share);
        }
        events = mpath_wire_progress(share->wire);
        if (events < 0) {
            return events;
        }
        for (int i = 0; i < share->num_links; i++) {
            result = mpath_share_link_step(share, &share->links[i]);
            if (result < 0) {
                return result;
            }
            events += result;
        }
    }
    result = node_pass(share);
    return (result < 0) ? result : events + result;
}

/* GPUs of the node read and write each other's buffers: a rank has all only when all others are done. */
static int is_done(const mpath_share_t *share)
{
    return (share->my_consumed == share->num_segments) &&
           ((share->job->gpus == NULL) ||
            (mpath_share_least(share, share->consumed, share->num_local, NULL) >= share->num_segments));
}

static mpath_status_t run(mpath_share_t *share)
{
    while (!is_done(share)) {
        int events = pass(share);

        if (events < 0) {
            return (mpath_status_t)events;
        }
        if (events > 0) {
            mpath_idle_event(&share->idle);
        } else {
            mpath_status_t status = mpath_share_wait(share);

            if (status != MPATH_OK) {
                return status;
            }
        }
    }
    return MPATH_OK;
}

/* A job that settles has lost a rail, or hears that another rank has. */
static int is_given_up(const mpath_share_t *share, mpath_status_t status)
{
    return share->job->settles && (share->wire != NULL) &&
           ((status == MPATH_AGAIN) ||
            ((status == MPATH_ERR_UNREACHABLE) && (share->given_up || (mpath_wire_lost(share->wire) != 0))));
}

/* The rails of this rank that are furthest behind: the others wait for them. */
static void find_silent(const mpath_share_t *share, mpath_move_loss_t *loss)
{
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < share->num_links; i++) {
        const share_link_t *link = &share->links[i];
        uint32_t nic             = 1u << share->rails[link->rail].nic[share->node];

        if (link->delivered < least) {
            least        = link->delivered;
            loss->silent = 0;
        }
        loss->silent |= ((link->delivered == least) && (least < share->num_segments)) ? nic : 0;
    }
    loss->progress = (least < UINT32_MAX) ? (uint32_t)least : UINT32_MAX;
}

static void note_loss(mpath_share_t *share)
{
    share->loss = (mpath_move_loss_t){.lost = (share->wire != NULL) ? mpath_wire_lost(share->wire) : 0};
    find_silent(share, &share->loss);
}

/* What is complete on the node is brought to its ranks, so that no buffer has a part of a segment. */
static mpath_status_t copy_rest(mpath_share_t *share)
{
    uint64_t start_ns = mpath_time_ns(), limit_ns = (uint64_t)share->settings->timeout_s * MPATH_NS_PER_S;
    int result = 0;

    while ((result >= 0) && (share->my_copied < share->num_segments) &&
           ((share->my_copied < share->gpu->copy_out.started) || mpath_share_is_delivered(share, share->my_copied))) {
        result = mpath_share_gpu_copy_out(share);
        if ((result == 0) && (mpath_time_ns() - start_ns > limit_ns)) {
            mpath_error("call %u: the GPU of rank %d has not brought segment %llu to its place within %d s; the call "
                        "fails",
                        share->job->call, share->me, (unsigned long long)share->my_copied, share->settings->timeout_s);
            return MPATH_ERR_TIMED_OUT;
        }
        if (result == 0) {
            (void)mpath_idle_wait(&share->idle);
        }
    }
    return (result < 0) ? (mpath_status_t)result : MPATH_OK;
}

mpath_status_t mpath_share_copied(mpath_share_t *share, const mpath_share_job_t *job, uint64_t *segments_p)
{
    mpath_status_t status = MPATH_OK, drained;

    if (job->gpus != NULL) {
        share->job = job;
        status     = copy_rest(share);
        drained    = mpath_share_gpu_drain(share);
        status     = (status == MPATH_OK) ? drained : status;
        mpath_share_gpu_close(share);
        share->job = NULL;
    }
    *segments_p = share->my_copied;
    return status;
}

void mpath_share_loss(const mpath_share_t *share, mpath_move_loss_t *loss)
{
    *loss = share->loss;
}

static mpath_status_t run_steps(mpath_share_t *share)
{
    mpath_status_t status = begin(share);

    if (status == MPATH_OK) {
        status = run(share);
    }
    if (share->job->gpus != NULL) {
        mpath_share_gpu_owners_end(share);
        share->gpu->in_use = status != MPATH_OK;
        if (share->gpu->in_use && (mpath_share_gpu_drain(share) != MPATH_OK) && is_given_up(share, status)) {
            status = MPATH_ERR_TIMED_OUT; /* what the GPU does later would meet another attempt */
        }
    }
    note_loss(share);
    return status;
}

void mpath_share_abandon(mpath_share_t *share, mpath_status_t status)
{
    mpath_team_break(share->team, status);
    if (share->wire != NULL) {
        mpath_wire_abandon(share->wire);
    }
}

mpath_status_t mpath_share_run(mpath_share_t *share, const mpath_share_job_t *job, mpath_share_stats_t *stats)
{
    mpath_status_t status = mpath_share_prepare(share);

    if (status == MPATH_OK) {
        share->job   = job;
        share->stats = (mpath_share_stats_t){.calls = 1};
        status       = mpath_share_cut_job(share);
    }
    if (status == MPATH_OK) {
        status = run_steps(share);
        if (is_given_up(share, status)) {
            mpath_wire_stop(share->wire);
        } else if (status != MPATH_OK) {
            mpath_share_abandon(share, status);
        } else {
            end(share);
            stats->calls++;
            stats->rail_bytes += share->stats.rail_bytes;
            stats->kernel_bytes += share->stats.kernel_bytes;
            stats->engine_bytes += share->stats.engine_bytes;
        }
    } else if (mpath_status_is_error(status)) {
        mpath_team_break(share->team, status);
    }
    if ((job->gpus != NULL) && ((status == MPATH_OK) || (status == MPATH_DECLINED))) {
        mpath_share_gpu_close(share); /* after a job that is given up, what is complete is still to be copied */
    }
    share->job = NULL;
    return status;
}
