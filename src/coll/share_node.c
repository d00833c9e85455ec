/* SPDX-License-Identifier: BSD-3-Clause */
/* What a rank does inside its node: publishes its data, combines its slice, copies the result out. */
#include "coll/share_private.h"

#include <string.h>

int mpath_share_run_next(const mpath_share_t *share, const share_cut_t *cut, int node, share_run_t *run)
{
    uint64_t first = cut->first[node], end = first + cut->at[node + 1] - cut->at[node];

    while (run->next < share->num_on[node]) {
        int rank       = share->by_node[share->first_on[node] + run->next];
        uint64_t start = run->start, stop = start + share->job->block_elements[rank];
        uint64_t from = (start > first) ? start : first, to = (stop < end) ? stop : end;

        run->next++;
        run->start = stop;
        if (from < to) {
            run->rank       = rank;
            run->in_block   = from - start;
            run->in_segment = cut->at[node] + from - first;
            run->count      = to - from;
            return 1;
        }
    }
    return 0;
}

uint64_t mpath_share_least(const mpath_share_t *share, const share_line_t *lines, int count, int *who_p)
{
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < count; i++) {
        uint64_t value = atomic_load_explicit(&lines[i].value, memory_order_acquire) - share->base;

        if (value < least) {
            least = value;
            if (who_p != NULL) {
                *who_p = i;
            }
        }
    }
    return least;
}

void mpath_share_step(const mpath_share_t *share, share_line_t *lines, uint64_t value)
{
    atomic_store_explicit(&lines[share->local_rank].value, share->base + value, memory_order_release);
}

static void publish_part(mpath_share_t *share, const share_cut_t *cut, int node, char *to)
{
    const mpath_share_job_t *job = share->job;
    int only_mine                = !share_has(share, MPATH_SHARE_REDUCE);
    share_run_t run              = {0};

    while (mpath_share_run_next(share, cut, node, &run)) {
        if (!only_mine || (run.rank == share->me)) {
            memcpy(to + run.in_segment * job->element_bytes,
                   (const char *)job->send_buffer + job->send_offsets[run.rank] + run.in_block * job->element_bytes,
                   run.count * job->element_bytes);
        }
    }
}

int mpath_share_may_publish(const mpath_share_t *share, uint64_t k)
{
    return (k < share->num_segments) &&
           ((k < SHARE_AHEAD) || (mpath_share_least(share, share->consumed, share->num_local, NULL) > k - SHARE_AHEAD));
}

int mpath_share_publish(mpath_share_t *share)
{
    uint64_t k = share->my_published;
    const share_cut_t *cut;

    if (!mpath_share_may_publish(share, k)) {
        return 0;
    }
    cut = mpath_share_cut(share, k);
    if (share_has(share, MPATH_SHARE_REDUCE)) {
        for (int node = 0; node < share->num_nodes; node++) {
            publish_part(share, cut, node, share_input(share, k, share->local_rank));
        }
    } else {
        publish_part(share, cut, share->node, share_input(share, k, 0));
    }
    mpath_share_step(share, share->published, ++share->my_published);
    return 1;
}

int mpath_share_reduce(mpath_share_t *share)
{
    const mpath_share_job_t *job = share->job;
    uint64_t k = share->my_reduced, all, from, to, ranks = (uint64_t)share->num_local;

    if (!share_has(share, MPATH_SHARE_REDUCE) || (k == share->num_segments) ||
        (mpath_share_least(share, share->published, share->num_local, NULL) <= k)) {
        return 0;
    }
    all  = mpath_share_cut(share, k)->at[share->num_nodes];
    from = all * (uint64_t)share->local_rank / ranks;
    to   = all * ((uint64_t)share->local_rank + 1) / ranks;
    for (int i = 1; (i < share->num_local) && (from < to); i++) {
        job->reduce(job->reduce_argument, share_input(share, k, i) + from * job->element_bytes,
                    share_input(share, k, 0) + from * job->element_bytes, to - from);
    }
    mpath_share_step(share, share->reduced, ++share->my_reduced);
    return 1;
}

int mpath_share_is_delivered(const mpath_share_t *share, uint64_t k)
{
    if (share->num_nodes > 1) {
        return mpath_share_least(share, share->delivered, share->num_rails, NULL) > k;
    }
    return mpath_share_least(share, share_has(share, MPATH_SHARE_REDUCE) ? share->reduced : share->published,
                             share->num_local, NULL) > k;
}

static void copy_part(mpath_share_t *share, const share_cut_t *cut, int node)
{
    const mpath_share_job_t *job = share->job;
    uint64_t element             = job->element_bytes;
    const char *part;
    share_run_t run = {0};

    if (node == share->node) {
        part = share_own_result(share, cut->segment);
    } else {
        part = share_input(share, cut->segment, 0) + cut->at[node] * element;
    }
    while (mpath_share_run_next(share, cut, node, &run)) {
        int mine = run.rank == share->me;

        if (mine ? !job->own_in_place : share_has(share, MPATH_SHARE_GATHER)) {
            memcpy((char *)job->recv_buffer + job->recv_offsets[run.rank] + run.in_block * element,
                   part + (run.in_segment - cut->at[node]) * element, run.count * element);
        }
    }
}

int mpath_share_copy_out(mpath_share_t *share)
{
    uint64_t k = share->my_copied;
    const share_cut_t *cut;

    if ((k == share->num_segments) || !mpath_share_is_delivered(share, k)) {
        return 0;
    }
    cut = mpath_share_cut(share, k);
    if (share_has(share, MPATH_SHARE_GATHER)) {
        for (int node = 0; node < share->num_nodes; node++) {
            copy_part(share, cut, node);
        }
    } else {
        copy_part(share, cut, share->node);
    }
    share->my_copied++;
    return 1;
}

int mpath_share_consume(mpath_share_t *share)
{
    uint64_t until = share->my_copied;

    for (int i = 0; i < share->num_links; i++) {
        until = (share->links[i].freed < until) ? share->links[i].freed : until;
    }
    if (until == share->my_consumed) {
        return 0;
    }
    share->my_consumed = until;
    mpath_share_step(share, share->consumed, until);
    return 1;
}
