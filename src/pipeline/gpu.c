/* SPDX-License-Identifier: BSD-3-Clause */
/* The pipeline on device memory: the steps that a rank's GPU does. */
#include "pipeline/gpu.h"

#include "node/streams.h"
#include "util/log.h"
#include "util/time.h"

#include <stdlib.h>
#include <string.h>

/*
 * Launches of a step that belong together, as few as possible: what follows the reduction or copy before it, in all buffers
 * alike, goes with it in one. The streams' lock is held from begin to end.
 */

typedef struct share_batch {
    mpath_share_t *share;
    mpath_stream_t *stream;
    int copies; /* one source, of whatever type: bytes are copied */
    uint64_t bytes;
    mpath_kernel_reduce_t next;
    int launched;
    mpath_status_t status;
} share_batch_t;

static void share_batch_begin(mpath_share_t *share, mpath_stream_t *stream, int copies, share_batch_t *batch)
{
    memset(batch, 0, sizeof(*batch));
    batch->share  = share;
    batch->stream = stream;
    batch->copies = copies;
    mpath_gpu_coll_lock();
}

/* To copy one needs not know what it is: the kernels that combine one source. */
static const mpath_reduce_type_t copy_types[SHARE_GPU_COPIES] = {MPATH_REDUCE_U64, MPATH_REDUCE_U32, MPATH_REDUCE_U8};

mpath_status_t mpath_share_gpu_find_copies(share_gpu_t *gpu)
{
    mpath_status_t status = MPATH_OK;

    if (gpu->copies_on == gpu->device) {
        return MPATH_OK;
    }
    for (int i = 0; (status == MPATH_OK) && (i < SHARE_GPU_COPIES); i++) {
        const mpath_reduce_how_t how = {.op = MPATH_REDUCE_SUM, .type = copy_types[i]};

        status = mpath_reduce_find(gpu->device, &how, NULL, &gpu->copies[i]);
    }
    gpu->copies_on = (status == MPATH_OK) ? gpu->device : NULL;
    return status;
}

/* The largest one of copy_types[] that addresses and length are multiples of. */
static int copy_index(const mpath_kernel_reduce_t *copy, uint64_t bytes)
{
    uint64_t all = copy->sources[0] | bytes;

    for (uint32_t i = 0; i < copy->targets_count; i++) {
        all |= copy->targets[i];
    }
    return (all % 8 == 0) ? 0 : (all % 4 == 0) ? 1 : 2;
}

static mpath_status_t batch_launch(share_batch_t *batch, mpath_kernel_word_t flag)
{
    const share_gpu_t *gpu           = batch->share->gpu;
    int copy                         = copy_index(&batch->next, batch->bytes);
    mpath_reduce_type_t type         = batch->copies ? copy_types[copy] : batch->share->job->gpus->how.type;
    mpath_device_function_t function = batch->copies ? gpu->copies[copy] : gpu->function;

    batch->next.elements = batch->bytes / mpath_reduce_bytes(type);
    batch->bytes         = 0;
    batch->launched++;
    return mpath_launch_reduce_by_host(batch->stream, function, type, flag, &batch->next);
}

/* Whether it begins where the one before ends. */
static int batch_follows(const share_batch_t *batch, const mpath_kernel_reduce_t *reduce)
{
    int follows = batch->bytes > 0;

    for (uint32_t i = 0; i < reduce->sources_count; i++) {
        follows = follows && (reduce->sources[i] == batch->next.sources[i] + batch->bytes);
    }
    for (uint32_t i = 0; i < reduce->targets_count; i++) {
        follows = follows && (reduce->targets[i] == batch->next.targets[i] + batch->bytes);
    }
    return follows;
}

/* `reduce` has sources and targets, as many as all of the batch. */
static void share_batch_add(share_batch_t *batch, const mpath_kernel_reduce_t *reduce, uint64_t bytes)
{
    batch->share->stats.kernel_bytes += bytes;
    if (batch_follows(batch, reduce)) {
        batch->bytes += bytes;
        return;
    }
    if ((batch->bytes > 0) && (batch->status == MPATH_OK)) {
        batch->status = batch_launch(batch, (mpath_kernel_word_t){0});
    }
    batch->next  = *reduce;
    batch->bytes = bytes;
}

/* The mark of the end; 0, which is always done, when there was nothing to do. */
static mpath_status_t share_batch_end(share_batch_t *batch, mpath_mark_t *mark_p)
{
    mpath_kernel_word_t flag = {0};
    int marked               = 0;

    *mark_p = 0;
    if ((batch->bytes > 0) && (batch->status == MPATH_OK)) {
        marked        = mpath_launch_mark(batch->stream, &flag, mark_p) == MPATH_OK;
        batch->status = batch_launch(batch, flag);
    }
    if ((batch->launched > 0) && !marked && (batch->status == MPATH_OK)) {
        batch->status = mpath_stream_mark(batch->stream, mark_p);
    }
    mpath_gpu_coll_unlock();
    return batch->status;
}

#define CROWD_SHARES 2 /* of an even share of the own part: more on one GPU are a crowd */

/* -- what lies where -- */

static mpath_device_ptr_t in_arena(const mpath_share_t *share, const void *address)
{
    return mpath_pinned_device(mpath_arena_pinned(share->arena), address);
}

static int is_reduction(const mpath_share_t *share)
{
    return share_has(share, MPATH_SHARE_REDUCE);
}

/* A range of elements of a segment, and the runs of a node's part in it. */
typedef struct range {
    uint64_t from, to;
} range_t;

/* An even share of so many elements of a segment, by rank of this node. */
static range_t even_share(const mpath_share_t *share, int local_rank, uint64_t first, uint64_t all)
{
    uint64_t grains = (all + share->grain - 1) / share->grain;
    uint64_t ranks = (uint64_t)share->num_local, me = (uint64_t)local_rank;
    uint64_t from = grains * me / ranks * share->grain, to = grains * (me + 1) / ranks * share->grain;

    return (range_t){first + from, first + ((to < all) ? to : all)};
}

/*
 * What a rank of this node does of a node's part: its share of the segment; with `apart` that of the own part, and that of
 * the others, which are one range then.
 */
static range_t slice_of(const mpath_share_t *share, const share_cut_t *cut, int local_rank, int node, int apart)
{
    uint64_t own = cut->at[share->node], count = cut->at[share->node + 1] - own, all = cut->at[share->num_nodes];

    if (!apart) {
        return even_share(share, local_rank, 0, all);
    }
    return (node == share->node) ? even_share(share, local_rank, own, count)
                                 : even_share(share, local_rank, (node > share->node) ? count : 0, all - count);
}

/* The part of a run that lies in the range; 0: none does. */
static int clip(share_run_t *run, range_t range)
{
    uint64_t from = (run->in_segment > range.from) ? run->in_segment : range.from;
    uint64_t end = run->in_segment + run->count, to = (end < range.to) ? end : range.to;

    if (from >= to) {
        return 0;
    }
    run->in_block += from - run->in_segment;
    run->in_segment = from;
    run->count      = to - from;
    return 1;
}

/* The elements of a run that lie one behind the other in a slot, from its place `at` in the segment on; the run goes on behind them. */
static int next_in_slot(const mpath_share_t *share, const share_cut_t *cut, int node, share_run_t *run,
                        share_run_t *here, uint64_t *at_p)
{
    if (run->count == 0) {
        return 0;
    }
    *here = *run;
    *at_p = mpath_share_spot(share, cut, node, run->in_segment - cut->at[node], &here->count);
    run->in_block += here->count;
    run->in_segment += here->count;
    run->count -= here->count;
    return 1;
}

/* Where the node's sum of an element lies, or its own data, and at last the result. */
static mpath_device_ptr_t in_slot(const mpath_share_t *share, const share_cut_t *cut, uint64_t at)
{
    return in_arena(share, share_input(share, cut->segment, 0) + at * share->job->element_bytes);
}

/* The same of a result, which of the own part may lie elsewhere. */
static mpath_device_ptr_t result_of(mpath_share_t *share, const share_cut_t *cut, int node, const share_run_t *here,
                                    uint64_t at)
{
    if (node != share->node || share->job->in_steps) {
        return in_slot(share, cut, at);
    }
    return in_arena(share, share_own_result(share, cut->segment)) +
           (here->in_segment - cut->at[node]) * share->job->element_bytes;
}

/* -- segments that the GPU works on -- */

/* What this rank's GPU has been given to do in the call, so far. */
static uint64_t bytes_given(const mpath_share_t *share)
{
    return share->stats.kernel_bytes + share->stats.engine_bytes;
}

/* Around the start of a segment. */
static void flight_begin(const mpath_share_t *share, share_gpu_flight_t *flight)
{
    uint64_t slot = flight->started % SHARE_SLOTS;

    flight->began_ns[slot] = mpath_trace_is_on() ? mpath_time_ns() : 0;
    flight->bytes[slot]    = bytes_given(share);
}

static void flight_add(const mpath_share_t *share, share_gpu_flight_t *flight, mpath_mark_t mark)
{
    uint64_t slot = flight->started++ % SHARE_SLOTS;

    flight->marks[slot] = mark;
    flight->bytes[slot] = bytes_given(share) - flight->bytes[slot];
}

static void flight_trace(const mpath_share_t *share, const share_gpu_flight_t *flight, uint64_t segment)
{
    uint64_t slot = segment % SHARE_SLOTS;
    int lane      = flight == &share->gpu->publish ? MPATH_TRACE_GPU_HOST : MPATH_TRACE_GPU_KERNEL;

    if (flight->began_ns[slot] > 0 && flight->bytes[slot] > 0) {
        mpath_record_trace_gpu(mpath_team_record(share->team), share->job->call, lane, flight->bytes[slot],
                               flight->began_ns[slot]);
    }
}

/* Counts the segments that have been done, and returns how many; or an error. */
static int landed(const mpath_share_t *share, share_gpu_flight_t *flight, mpath_stream_t *stream, uint64_t *done_p)
{
    int events = 0;

    while (*done_p < flight->started) {
        mpath_status_t status;

        mpath_gpu_coll_lock();
        status = mpath_stream_done(stream, flight->marks[*done_p % SHARE_SLOTS]);
        mpath_gpu_coll_unlock();
        if (status == MPATH_INPROGRESS) {
            break;
        }
        if (status != MPATH_OK) {
            return (int)status;
        }
        flight_trace(share, flight, *done_p);
        (*done_p)++;
        events++;
    }
    return events;
}

/* Whether some rank combines so much of the own part that its GPU would be busy with the receive buffers alone. */
static int is_crowded(const mpath_share_t *share)
{
    for (int i = 0; i < share->num_local; i++) {
        uint64_t weight = 0;

        for (int rail = 0; rail < share->num_rails; rail++) {
            int drives = share->rails[rail].driver[share->node] == share->local[i];

            weight += drives ? share->cumulative[rail + 1] - share->cumulative[rail] : 0;
        }
        if (weight * (uint64_t)share->num_local > (uint64_t)CROWD_SHARES * share->cumulative[share->num_rails]) {
            return 1;
        }
    }
    return 0;
}

/*
 * Whether the own part may be in the receive buffers before the others: alike on all ranks of the node. Not where it would
 * take the place of data that is to be combined once more when a rail fails, nor where what it spares is no bottleneck.
 */
static int may_be_early(const mpath_share_t *share)
{
    const mpath_share_job_t *job = share->job;

    return (job->flags & MPATH_SHARE_REDUCE) && (share->num_nodes > 1) && share_gpu_combines(share) &&
           !(share->gpu->in_place && job->settles) &&
           (!share_has(share, MPATH_SHARE_GATHER) || mpath_share_gpu_links_decide(share));
}

mpath_status_t mpath_share_gpu_begin(mpath_share_t *share)
{
    share_gpu_t *gpu      = share->gpu;
    mpath_status_t status = MPATH_OK;

    gpu->keeps     = may_be_early(share);
    gpu->hands_out = gpu->keeps && (!share_has(share, MPATH_SHARE_GATHER) ||
                                    ((share->num_local < SHARE_GPU_RANKS) && !is_crowded(share)));
    if (gpu->combine_links < share->num_links) {
        free(gpu->combine);
        gpu->combine       = calloc((size_t)share->num_links, sizeof(*gpu->combine));
        gpu->combine_links = (gpu->combine != NULL) ? share->num_links : 0;
        status             = (gpu->combine != NULL) ? MPATH_OK : MPATH_ERR_NO_MEMORY;
    }
    gpu->publish.started = gpu->reduce.started = gpu->copy_out.started = 0;
    for (int i = 0; i < gpu->combine_links; i++) {
        gpu->combine[i].started = 0;
    }
    return ((status == MPATH_OK) && is_reduction(share))
               ? mpath_reduce_find(gpu->device, &share->job->gpus->how, NULL, &gpu->function)
               : status;
}

/*
 * The end of what is on a stream. An application's kernels may hold the GPU for as long as data of others may be late; a
 * stream whose context is lost does nothing any more.
 */
static mpath_status_t drain(mpath_share_t *share, mpath_stream_t *stream)
{
    uint64_t end_ns       = mpath_time_ns() + (uint64_t)share->settings->timeout_s * MPATH_NS_PER_S;
    mpath_status_t status = MPATH_ERR_UNREACHABLE;
    mpath_mark_t mark;

    mpath_gpu_coll_lock();
    if (stream != NULL) {
        status = mpath_stream_mark(stream, &mark);
    }
    mpath_gpu_coll_unlock();
    if (status != MPATH_OK) {
        return MPATH_OK;
    }
    while (1) {
        mpath_gpu_coll_lock();
        status = mpath_stream_done(stream, mark);
        mpath_gpu_coll_unlock();
        if (status != MPATH_INPROGRESS) {
            return MPATH_OK;
        }
        if (mpath_time_ns() > end_ns) {
            mpath_error("call %u: the GPU of rank %d has not ended its part within %d s; the call fails",
                        share->job->call, share->me, share->settings->timeout_s);
            return MPATH_ERR_TIMED_OUT;
        }
        (void)mpath_idle_wait(&share->wait.idle);
    }
}

mpath_status_t mpath_share_gpu_drain(mpath_share_t *share)
{
    mpath_status_t to_host   = drain(share, share->gpu->to_host);
    mpath_status_t from_host = (to_host == MPATH_OK) ? drain(share, share->gpu->from_host) : MPATH_OK;

    return (to_host != MPATH_OK) ? to_host : from_host;
}

/* -- the steps -- */

/* This rank's data of a segment, to the arena: by a copy engine. */
static mpath_status_t publish_start(mpath_share_t *share, uint64_t k, mpath_mark_t *mark_p)
{
    const mpath_share_job_t *job = share->job;
    const share_cut_t *cut       = mpath_share_cut(share, k);
    mpath_device_ptr_t mine      = share->gpu->buffers[SHARE_GPU_SEND][share->local_rank];
    mpath_status_t status        = MPATH_OK;
    share_run_t run              = {0}, rest, here;
    int copies                   = 0;
    uint64_t at;

    *mark_p = 0;
    mpath_gpu_coll_lock();
    while ((status == MPATH_OK) && mpath_share_run_next(share, cut, share->node, &run)) {
        rest = run;
        while ((run.rank == share->me) && (status == MPATH_OK) &&
               next_in_slot(share, cut, share->node, &rest, &here, &at)) {
            status = mpath_stream_copy(share->gpu->to_host, in_slot(share, cut, at),
                                       mine + job->send_offsets[run.rank] + here.in_block * job->element_bytes,
                                       here.count * job->element_bytes);
            share->stats.engine_bytes += here.count * job->element_bytes;
            copies++;
        }
    }
    if ((status == MPATH_OK) && (copies > 0)) {
        status = mpath_stream_mark(share->gpu->to_host, mark_p);
    }
    mpath_gpu_coll_unlock();
    return status;
}

int mpath_share_gpu_publish(mpath_share_t *share)
{
    share_gpu_flight_t *flight = &share->gpu->publish;
    int events                 = 0;

    while (mpath_share_may_publish(share, flight->started)) {
        mpath_mark_t mark     = 0;
        mpath_status_t status = MPATH_OK;

        flight_begin(share, flight);
        if (!is_reduction(share)) {
            status = publish_start(share, flight->started, &mark);
        }
        if (status != MPATH_OK) {
            return (int)status;
        }
        flight_add(share, flight, mark);
    }
    events = landed(share, flight, share->gpu->to_host, &share->my_published);
    if (events > 0) {
        mpath_share_step(share, share->published, share->my_published);
    }
    return events;
}

/* Where `here` lies in the receive buffer of a rank of this node. */
static mpath_device_ptr_t in_receiver(const mpath_share_t *share, int local_rank, const share_run_t *here)
{
    const share_gpu_t *gpu = share->gpu;

    return gpu->buffers[SHARE_GPU_RECV][local_rank] + gpu->recv_offsets[local_rank][here->rank] +
           here->in_block * share->job->element_bytes;
}

/* The same, as targets, in all receive buffers that are to have it. */
static void add_receivers(const mpath_share_t *share, const share_run_t *here, mpath_kernel_reduce_t *reduce)
{
    for (int turn = 0; turn < share->num_local; turn++) { /* GPUs begin with different targets */
        int i = (share->local_rank + turn) % share->num_local;

        if (share_has(share, MPATH_SHARE_GATHER) || (share->local[i] == here->rank)) {
            reduce->targets[reduce->targets_count++] = in_receiver(share, i, here);
        }
    }
}

/* The sum of a run over the node, to its place in the slot: what is kept of it waits where its result is to be. */
static void reduce_add(share_batch_t *batch, const share_cut_t *cut, int node, const share_run_t *here, uint64_t at)
{
    mpath_share_t *share         = batch->share;
    uint64_t element             = share->job->element_bytes;
    uint64_t offset              = share->job->send_offsets[here->rank] + here->in_block * element;
    int keeps                    = share->gpu->keeps && (node == share->node);
    mpath_kernel_reduce_t reduce = {.first = (uint32_t)share->local_rank};

    for (int i = 0; i < share->num_local; i++) {
        reduce.sources[reduce.sources_count++] = share->gpu->buffers[SHARE_GPU_SEND][i] + offset;
    }
    if (!keeps) {
        reduce.targets[reduce.targets_count++] = in_slot(share, cut, at);
    } else if (share_has(share, MPATH_SHARE_GATHER)) {
        reduce.targets[reduce.targets_count++] = in_receiver(share, share->local_rank, here);
    } else {
        add_receivers(share, here, &reduce);
    }
    share_batch_add(batch, &reduce, here->count * element);
}

/* The sum of this rank's slice over the node. */
static mpath_status_t reduce_start(mpath_share_t *share, uint64_t k, mpath_mark_t *mark_p)
{
    const share_cut_t *cut = mpath_share_cut(share, k);
    share_batch_t batch;

    share_batch_begin(share, share->gpu->to_host, 0, &batch);
    for (int node = 0; node < share->num_nodes; node++) {
        range_t slice   = slice_of(share, cut, share->local_rank, node, share->gpu->keeps);
        share_run_t run = {0};

        while (mpath_share_run_next(share, cut, node, &run)) {
            share_run_t rest = run, here;
            uint64_t at;

            while (clip(&rest, slice) && next_in_slot(share, cut, node, &rest, &here, &at)) {
                reduce_add(&batch, cut, node, &here, at);
            }
        }
    }
    return share_batch_end(&batch, mark_p);
}

int mpath_share_gpu_reduce(mpath_share_t *share)
{
    share_gpu_flight_t *flight = &share->gpu->reduce;
    int events;

    if (!is_reduction(share)) {
        return 0;
    }
    while ((flight->started < share->num_segments) &&
           (mpath_share_least(share, share->published, share->num_local, NULL) > flight->started)) {
        mpath_status_t status;
        mpath_mark_t mark;

        flight_begin(share, flight);
        status = reduce_start(share, flight->started, &mark);
        if (status != MPATH_OK) {
            return (int)status;
        }
        flight_add(share, flight, mark);
    }
    events = landed(share, flight, share->gpu->to_host, &share->my_reduced);
    if (events > 0) {
        mpath_share_step(share, share->reduced, share->my_reduced);
    }
    return events;
}

/* Whether a rank of this node keeps sums of the run, of the own part: with GATHER which of it, by whom has reduced them. */
static int clip_kept(const mpath_share_t *share, const share_cut_t *cut, int local_rank, share_run_t *here)
{
    return share_has(share, MPATH_SHARE_GATHER) ? clip(here, slice_of(share, cut, local_rank, share->node, 1))
                                                : share->local[local_rank] == here->rank;
}

/*
 * A run of the own part: what has come from the other nodes with the own sum, which the keeper has where sums are kept, in
 * the order of the nodes.
 */
static void combine_add(share_batch_t *batch, const share_cut_t *cut, int keeper, const share_run_t *here)
{
    mpath_share_t *share         = batch->share;
    uint64_t element             = share->job->element_bytes;
    uint64_t at                  = (here->in_segment - cut->at[share->node]) * element;
    mpath_kernel_reduce_t reduce = {0};

    for (int node = 0; node < share->num_nodes; node++) {
        const char *data = (node == share->node) ? share_input(share, cut->segment, 0) + here->in_segment * element
                                                 : share_from_node(share, cut->segment, node) + at;
        int kept         = share->gpu->keeps && (node == share->node);

        reduce.sources[reduce.sources_count++] = kept ? in_receiver(share, keeper, here) : in_arena(share, data);
    }
    if (share_has(share, MPATH_SHARE_GATHER) || !share->gpu->hands_out) {
        reduce.targets[reduce.targets_count++] = result_of(share, cut, share->node, here, here->in_segment);
    }
    if (share->gpu->hands_out) {
        add_receivers(share, here, &reduce);
    }
    share_batch_add(batch, &reduce, here->count * element);
}

/* The fragment of the own part that has come over a rail. */
static mpath_status_t combine_start(mpath_share_t *share, const share_link_t *link, uint64_t k, mpath_mark_t *mark_p)
{
    const share_cut_t *cut = mpath_share_cut(share, k);
    share_run_t run        = {0};
    uint64_t first, count;
    share_batch_t batch;

    mpath_share_fragment(share, cut, share->node, link->rail, &first, &count);
    share_batch_begin(share, share->gpu->from_host, 0, &batch);
    while (mpath_share_run_next(share, cut, share->node, &run)) {
        for (int i = 0; i < (share->gpu->keeps ? share->num_local : 1); i++) {
            share_run_t here = run;

            if (clip(&here, (range_t){first, first + count}) &&
                (!share->gpu->keeps || clip_kept(share, cut, i, &here))) {
                combine_add(&batch, cut, i, &here);
            }
        }
    }
    return share_batch_end(&batch, mark_p);
}

int mpath_share_gpu_combine(mpath_share_t *share, share_link_t *link)
{
    share_gpu_flight_t *flight = &share->gpu->combine[link - share->links];

    while (mpath_share_may_combine(share, link, flight->started)) {
        mpath_status_t status;
        mpath_mark_t mark;

        flight_begin(share, flight);
        status = combine_start(share, link, flight->started, &mark);
        if (status != MPATH_OK) {
            return (int)status;
        }
        flight_add(share, flight, mark);
    }
    return landed(share, flight, share->gpu->from_host, &link->combined);
}

/* A run of the result, from its place in the slot, in all receive buffers that get it. */
static void copy_add(share_batch_t *batch, const share_cut_t *cut, int node, const share_run_t *here, uint64_t at)
{
    uint64_t element             = batch->share->job->element_bytes;
    mpath_kernel_reduce_t reduce = {0};

    reduce.sources[reduce.sources_count++] = result_of(batch->share, cut, node, here, at);
    add_receivers(batch->share, here, &reduce);
    share_batch_add(batch, &reduce, here->count * element);
}

/* What this rank copies of a node's part; where each rank has only its own block, all of that. */
static range_t copy_range(const mpath_share_t *share, const share_cut_t *cut, int node)
{
    if (share->gpu->hands_out && (node == share->node)) {
        return (range_t){0, 0};
    }
    if (!share_has(share, MPATH_SHARE_GATHER)) {
        return (node == share->node) ? (range_t){0, UINT64_MAX} : (range_t){0, 0};
    }
    return slice_of(share, cut, share->local_rank, node, share->gpu->hands_out);
}

static mpath_status_t copy_out_start(mpath_share_t *share, uint64_t k, mpath_mark_t *mark_p)
{
    const share_cut_t *cut = mpath_share_cut(share, k);
    int to_all             = share_has(share, MPATH_SHARE_GATHER);
    share_batch_t batch;

    share_batch_begin(share, share->gpu->from_host, 1, &batch);
    for (int node = 0; node < share->num_nodes; node++) {
        range_t range   = copy_range(share, cut, node);
        share_run_t run = {0};

        while ((range.from < range.to) && mpath_share_run_next(share, cut, node, &run)) {
            share_run_t rest = run, here;
            uint64_t at;

            while ((to_all || (run.rank == share->me)) && clip(&rest, range) &&
                   next_in_slot(share, cut, node, &rest, &here, &at)) {
                copy_add(&batch, cut, node, &here, at);
            }
        }
    }
    return share_batch_end(&batch, mark_p);
}

int mpath_share_gpu_copy_out(mpath_share_t *share)
{
    share_gpu_flight_t *flight = &share->gpu->copy_out;

    while ((flight->started < share->num_segments) && mpath_share_is_delivered(share, flight->started)) {
        mpath_status_t status;
        mpath_mark_t mark;

        flight_begin(share, flight);
        status = copy_out_start(share, flight->started, &mark);
        if (status != MPATH_OK) {
            return (int)status;
        }
        flight_add(share, flight, mark);
    }
    return landed(share, flight, share->gpu->from_host, &share->my_copied);
}
