/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What becomes of a call whose rails fail under the engine. A Reduce_scatter and an Allgather are done once more from
 * the start: what they read is what it was. An Allreduce may be in place, where results have taken the place of data:
 * so it goes on where the rank stands that has most of the results. They come segment by segment on every rank; that
 * rank hands those to the others which some of them lack, and of the rest everybody still has the data. The order of
 * combination is the same, and so are the bits.
 */
#include "coll/symmetric_private.h"

#include "exec/wire.h"
#include "util/log.h"

#include <stdlib.h>

/* Where the ranks stand. */
typedef struct stand {
    uint64_t least, most; /* segments of which ranks have the results */
    int holder;           /* a rank that has the most */
} stand_t;

/* A range of the vector, in elements of a node's part: what some ranks lack. */
typedef struct range {
    uint64_t from, to;
} range_t;

static mpath_status_t find_stand(mpath_symmetric_t *symmetric, const mpath_share_job_t *job, uint64_t *all,
                                 stand_t *stand)
{
    uint64_t mine;
    mpath_status_t status = mpath_share_copied(symmetric->share, job, &mine);

    if (status != MPATH_OK) {
        mpath_team_break(symmetric->team, status); /* the others would wait */
        return status;
    }
    status = mpath_team_allgather(symmetric->team, &mine, sizeof(mine), all);
    *stand = (stand_t){.least = UINT64_MAX};
    for (int rank = 0; (status == MPATH_OK) && (rank < symmetric->size); rank++) {
        stand->least = (all[rank] < stand->least) ? all[rank] : stand->least;
        if (all[rank] > stand->most) {
            stand->most   = all[rank];
            stand->holder = rank;
        }
    }
    return status;
}

/* An agreement, so that chunks of the next run meet nobody in the one before; its number. */
static mpath_status_t agree_on_run(mpath_symmetric_t *symmetric, uint64_t *all, uint32_t *call_p)
{
    uint64_t nothing      = 0;
    mpath_status_t status = mpath_team_allgather(symmetric->team, &nothing, sizeof(nothing), all);

    *call_p = mpath_team_call(symmetric->team);
    return status;
}

/* Rails of the topology that there is now; chunks of the attempt before are dropped. */
static mpath_status_t renew(mpath_symmetric_t *symmetric)
{
    mpath_wire_t *wire;
    mpath_status_t status = mpath_wire_get(symmetric->team, &wire);

    if (status == MPATH_OK) {
        status = mpath_wire_restart(wire);
    }
    return (status == MPATH_OK) ? mpath_symmetric_read_topo(symmetric) : status;
}

/* The same in the middle of a call, whose results have taken the place of data. */
static mpath_status_t renew_for_rest(mpath_symmetric_t *symmetric, const mpath_share_job_t *job)
{
    mpath_status_t status = renew(symmetric);

    if ((status == MPATH_OK) && (mpath_share_obstacle(symmetric->share) != NULL)) {
        mpath_error("call %u: %s any more, and results have taken the place of data; the call fails", job->call,
                    mpath_share_obstacle(symmetric->share));
        return MPATH_ERR_UNREACHABLE;
    }
    return status;
}

static mpath_status_t hand_out_once(mpath_symmetric_t *symmetric, mpath_share_job_t *handing, uint64_t *arrays)
{
    mpath_share_stats_t stats = {0};
    mpath_status_t status     = MPATH_OK;

    handing->block_elements = arrays;
    handing->send_offsets = handing->recv_offsets = arrays + symmetric->size;
    if (handing->gpus != NULL) {
        status = mpath_share_gpus_open(symmetric->share, handing, MPATH_CALL_MOVED);
    }
    return (status == MPATH_OK) ? mpath_symmetric_run(symmetric, handing, &stats) : status;
}

/* The holder's `bytes` at `offset` of the result go to all; once more where further rails fail, since they stay there. */
static mpath_status_t hand_out(mpath_symmetric_t *symmetric, const mpath_share_job_t *job, int holder, uint64_t offset,
                               uint64_t bytes, uint64_t *arrays)
{
    size_t size               = (size_t)symmetric->size;
    mpath_share_gpus_t gpus   = {0};
    mpath_share_job_t handing = {.flags         = MPATH_SHARE_GATHER,
                                 .element_bytes = 1,
                                 .send_buffer   = job->recv_buffer,
                                 .recv_buffer   = job->recv_buffer,
                                 .own_in_place  = 1,
                                 .settles       = job->settles};
    mpath_status_t status     = MPATH_AGAIN;
    stand_t stand;

    if (job->gpus != NULL) {
        gpus             = *job->gpus;
        handing.gpus     = &gpus;
        gpus.send_memory = gpus.recv_memory;
        gpus.send_bytes  = gpus.recv_bytes;
    }
    while (status == MPATH_AGAIN) {
        status = agree_on_run(symmetric, arrays, &handing.call);
        for (size_t rank = 0; rank < size; rank++) {
            arrays[rank]        = (rank == (size_t)holder) ? bytes : 0;
            arrays[size + rank] = offset;
        }
        status = (status == MPATH_OK) ? hand_out_once(symmetric, &handing, arrays) : status;
        if (status == MPATH_AGAIN) { /* how far the ranks have come is no matter, but that their copies have ended */
            status = find_stand(symmetric, &handing, arrays, &stand);
            status = (status == MPATH_OK) ? renew_for_rest(symmetric, job) : status;
            status = (status == MPATH_OK) ? MPATH_AGAIN : status;
        }
    }
    if ((status == MPATH_OK) && (symmetric->topo_version != mpath_team_topo_version(symmetric->team))) {
        status = mpath_symmetric_read_topo(symmetric); /* rails are back */
    }
    return status;
}

/*
 * Goes through the blocks of the vector: with `hands`, hands out what lies in the ranges of the nodes' parts; without,
 * takes what lies before their ends out of the job.
 */
static mpath_status_t walk(mpath_symmetric_t *symmetric, const mpath_share_job_t *job, const range_t *ranges,
                           int holder, int hands, uint64_t *arrays)
{
    const mpath_topo_t *topo = mpath_team_topo(symmetric->team);
    mpath_status_t status    = MPATH_OK;
    uint64_t at              = 0; /* in the node's part */
    int node                 = -1;

    for (int i = 0; (i < symmetric->size) && (status == MPATH_OK); i++) {
        int rank       = symmetric->order[i];
        uint64_t count = symmetric->elements[rank], from, to;
        const range_t *range;

        if (mpath_topo_place(topo, rank)->node != node) {
            node = mpath_topo_place(topo, rank)->node;
            at   = 0;
        }
        range = &ranges[node];
        from  = ((hands ? range->from : 0) > at) ? range->from : at;
        to    = (range->to < at + count) ? range->to : at + count;
        if ((from < to) && hands) {
            status = hand_out(symmetric, job, holder, symmetric->send_offsets[rank] + (from - at) * job->element_bytes,
                              (to - from) * job->element_bytes, arrays);
        } else if (from < to) {
            symmetric->elements[rank] -= to - from;
            symmetric->send_offsets[rank] += (to - from) * job->element_bytes;
        }
        at += count;
    }
    return status;
}

static uint64_t bytes_left(const mpath_symmetric_t *symmetric, const mpath_share_job_t *job)
{
    uint64_t elements = 0;

    for (int rank = 0; rank < symmetric->size; rank++) {
        elements += job->block_elements[rank];
    }
    return elements * job->element_bytes;
}

/* An Allreduce. */
static mpath_status_t go_on(mpath_symmetric_t *symmetric, mpath_share_job_t *job, range_t *ranges, uint64_t *arrays)
{
    int num_nodes = mpath_topo_num_nodes(mpath_team_topo(symmetric->team));
    mpath_status_t status;
    stand_t stand;

    status = find_stand(symmetric, job, arrays, &stand);
    for (int node = 0; (node < num_nodes) && (status == MPATH_OK); node++) {
        ranges[node].from = mpath_share_part_done(symmetric->share, node, stand.least);
        ranges[node].to   = mpath_share_part_done(symmetric->share, node, stand.most);
    }
    if (status == MPATH_OK) {
        status = (stand.most == 0) ? renew(symmetric) : renew_for_rest(symmetric, job);
    }
    if ((status == MPATH_OK) && (mpath_share_obstacle(symmetric->share) != NULL)) {
        return MPATH_DECLINED;
    }
    if (status == MPATH_OK) {
        mpath_info("call %u goes on behind its first %llu segments; rank %d hands those from %llu on to the others",
                   job->call, (unsigned long long)stand.most, stand.holder, (unsigned long long)stand.least);
        status = walk(symmetric, job, ranges, stand.holder, 1, arrays);
    }
    if (status == MPATH_OK) {
        (void)walk(symmetric, job, ranges, stand.holder, 0, NULL);
        status = agree_on_run(symmetric, arrays, &job->call);
    }
    return (status == MPATH_DECLINED) ? MPATH_ERR_NO_MEMORY
                                      : status; /* in the middle of a call nothing can be left to others */
}

mpath_status_t mpath_symmetric_resume(mpath_symmetric_t *symmetric, mpath_share_job_t *job, uint64_t *bytes_p)
{
    size_t nodes = (size_t)mpath_topo_num_nodes(mpath_team_topo(symmetric->team));
    mpath_status_t status;
    uint64_t *arrays;
    range_t *ranges;

    if (job->flags != (MPATH_SHARE_REDUCE | MPATH_SHARE_GATHER)) {
        status    = renew(symmetric);
        job->call = mpath_team_call(symmetric->team);
        if ((status == MPATH_OK) && (mpath_share_obstacle(symmetric->share) != NULL)) {
            return MPATH_DECLINED;
        }
        return status;
    }
    arrays = calloc(2 * (size_t)symmetric->size, sizeof(*arrays));
    ranges = calloc(nodes, sizeof(*ranges));
    status = MPATH_ERR_NO_MEMORY;
    if ((arrays == NULL) || (ranges == NULL)) {
        mpath_error("no memory to go on with a call of %d ranks after a rail has failed; the call fails",
                    symmetric->size);
    } else {
        status = go_on(symmetric, job, ranges, arrays);
    }
    if (status == MPATH_OK) {
        *bytes_p = bytes_left(symmetric, job);
    }
    free(ranges);
    free(arrays);
    return status;
}
