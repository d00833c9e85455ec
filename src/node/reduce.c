/* SPDX-License-Identifier: BSD-3-Clause */
/* Reductions on device memory: the parts, the agreement, one kernel on each rank. */
#include "node/reduce_private.h"

#include "node/flagged.h"
#include "team/wait.h"
#include "util/log.h"
#include "util/time.h"

#include <stdlib.h>
#include <string.h>

static mpath_status_t launch(mpath_symmetric_gpu_t *gpu, const mpath_reduce_how_t *how, unsigned ctas,
                             mpath_kernel_writes_t *arguments);

/*
 * Large Allreduces with nothing but writes between GPUs (device/kernels/reduce.h): when they are faster, the memory that
 * ranks lend each other for it, and who may. Their kernels wait for each other, so all have to run at once: every rank
 * has a GPU of its own, and of a process one such call is under way at a time. A process that is in one already says so
 * in its cell, and then all ranks take the other kernel, which waits for nobody.
 */

#define WRITES_TILE_MAX (UINT64_C(64) << 10)
#define WRITES_TILE_GRAIN UINT64_C(4096)

/* How long a kernel waits where other ranks may rest, and the host, which stops it, has no deadline. */
#define WRITES_REST_S 86400u

/*
 * Whether elements are combined in the order of a ring: sizes decide, or the way that is forced, so that a call has the
 * same bits on every machine, whatever is the fastest there.
 */
static int goes_round(mpath_gpu_reduce_t forced, unsigned ranks, uint64_t bytes)
{
    switch (forced) {
    case MPATH_GPU_REDUCE_RING:
        return 1;
    case MPATH_GPU_REDUCE_AUTO:
    case MPATH_GPU_REDUCE_DIRECT:
        return mpath_reduce_in_ring(ranks, bytes);
    default:
        return 0;
    }
}

static void choose(mpath_symmetric_gpu_t *gpu, uint64_t bytes, const mpath_reduce_how_t *how)
{
    mpath_gpu_reduce_t forced = (mpath_gpu_reduce_t)gpu->reduce->settings->gpu_reduce;
    gpu_choice_t *choice      = &gpu->choice;
    unsigned ranks = (unsigned)gpu->size, ways = 0;

    *choice = (gpu_choice_t){.bytes = bytes, .how = *how, .rated = gpu->reduce->rated};
    if (mpath_writes_fits(how)) {
        choice->in_ring = goes_round(forced, ranks, bytes);
        ways            = (ranks == 2) ? MPATH_REDUCE_WAY(MPATH_GPU_REDUCE_WRITES) : 0;
        ways            = choice->in_ring ? MPATH_REDUCE_WAY(MPATH_GPU_REDUCE_RING) : ways;
        choice->way     = ((forced == MPATH_GPU_REDUCE_WRITES) || (forced == MPATH_GPU_REDUCE_RING)) ? forced : 0;
    }
    if (choice->way == 0) {
        ways        = (forced == MPATH_GPU_REDUCE_AUTO) ? ways : 0;
        choice->way = mpath_reduce_fastest(&gpu->reduce->rates, ways, ranks, bytes);
    }
}

void mpath_gpu_writes_choose(mpath_symmetric_gpu_t *gpu, uint64_t bytes, const mpath_reduce_how_t *how)
{
    const gpu_choice_t *choice = &gpu->choice;

    if ((choice->bytes != bytes) || (choice->how.op != how->op) || (choice->how.type != how->type) ||
        (choice->rated != gpu->reduce->rated)) {
        choose(gpu, bytes, how);
    }
    gpu->in_ring = choice->in_ring;
    gpu->way     = choice->way;
}

/* Bytes of a tile for which there is memory; 0: none. */
static uint64_t tile_bytes(const gpu_lent_t *lent, const mpath_gpu_coll_t *coll)
{
    uint64_t blocks = (uint64_t)MPATH_WRITES_CTAS * MPATH_WRITES_DEPTH * ((uint64_t)coll->size - 1);
    uint64_t tile   = mpath_gpu_lent_most(lent, coll, coll->settings->gpu_memory_bytes) / blocks;

    tile = (tile < WRITES_TILE_MAX) ? tile : WRITES_TILE_MAX;
    return mpath_writes_usable(coll->send.gpu) ? tile & ~(WRITES_TILE_GRAIN - 1) : 0;
}

/* The kernel of the way that has been chosen. */
static mpath_status_t reduce_writes_find_function(mpath_symmetric_gpu_t *gpu, mpath_gpu_t *device,
                                                  const mpath_reduce_how_t *how)
{
    gpu_found_t *found    = &gpu->found;
    mpath_status_t status = MPATH_OK;

    if ((found->device != device) || (found->way != gpu->way) || (found->how.op != how->op) ||
        (found->how.type != how->type)) {
        status        = (gpu->way == MPATH_GPU_REDUCE_RING)
                            ? mpath_ring_find(device, how, &gpu->no_writes, &found->function)
                            : mpath_writes_find(device, how, &gpu->no_writes, &found->function);
        found->device = (status == MPATH_OK) ? device : NULL;
        found->way    = gpu->way;
        found->how    = *how;
    }
    return status;
}

/*
 * Before the agreement, with kernels for `how` on its GPU, claims what those that wait for each other need, of which
 * this rank's cell tells; given back after the call. Then, with everything open, whether all can go this way:
 * collective, the same on all ranks.
 */
static void gpu_writes_claim(mpath_symmetric_gpu_t *gpu, mpath_gpu_t *device, const mpath_reduce_how_t *how)
{
    if ((gpu->way != MPATH_GPU_REDUCE_DIRECT) && (reduce_writes_find_function(gpu, device, how) == MPATH_OK)) {
        mpath_gpu_coll_claim(gpu->reduce);
    }
}

static void gpu_writes_release(mpath_symmetric_gpu_t *gpu)
{
    mpath_gpu_coll_release(gpu->reduce);
}

/* Whether all ranks have claimed what they need, for buffers that such a kernel takes. */
static int is_claimed(const mpath_symmetric_gpu_t *gpu)
{
    int all = 1;

    for (int rank = 0; rank < gpu->size; rank++) {
        const mpath_room_cell_t *cell = gpu_cell(gpu->reduce, rank);

        all = all && cell->claimed &&
              ((cell->sides[MPATH_ROOM_SEND].address | cell->sides[MPATH_ROOM_RECV].address) % 16 == 0);
    }
    return all;
}

/* Whether this rank works on the memory of others: it has a part, or all may go this way, if that may be. */
static int gpu_writes_works(const mpath_symmetric_gpu_t *gpu, int may_write)
{
    return (gpu->part_bytes[gpu->me] > 0) ||
           (may_write && is_claimed(gpu) &&
            ((gpu->writes == NULL) || gpu->writes->usable || mpath_gpu_lent_is_due(gpu->writes, gpu->reduce)));
}

static mpath_status_t gpu_writes_prepare(mpath_symmetric_gpu_t *gpu, int *use_p)
{
    mpath_gpu_coll_t *coll = gpu->reduce;
    mpath_status_t status  = MPATH_OK;
    uint64_t tile;

    *use_p = 0;
    if (!is_claimed(gpu)) {
        return MPATH_OK;
    }
    if (gpu->writes == NULL) {
        gpu->writes = mpath_gpu_lent_create(gpu->size, gpu->me);
        if (gpu->writes == NULL) {
            mpath_error("no memory for reductions of %d ranks on device memory; the call fails", gpu->size);
            return MPATH_ERR_NO_MEMORY; /* the others count on it */
        }
    }
    if (!mpath_gpu_lent_is_due(gpu->writes, coll)) {
        mpath_gpu_lent_pass(gpu->writes);
    } else {
        tile   = tile_bytes(gpu->writes, coll);
        status = mpath_gpu_lent_share(gpu->writes, coll, tile, MPATH_WRITES_MEMORY_BYTES((uint64_t)gpu->size, tile));
        if ((status == MPATH_OK) && gpu->writes->usable) {
            mpath_debug(
                "device memory of %d ranks can be reduced by writes only, in tiles of %u bytes, and round a ring "
                "with %u CTAs",
                gpu->size, (unsigned)gpu->writes->unit_bytes, mpath_ring_ctas(gpu->writes->multiprocessors));
        }
    }
    *use_p = gpu->writes->usable;
    return status;
}

/* The kernel's own deadline is later than the host's. */
static uint64_t timeout_ns(const mpath_gpu_coll_t *coll)
{
    return (mpath_idle_others_may_rest() ? WRITES_REST_S : 2 * (uint64_t)coll->settings->timeout_s) * MPATH_NS_PER_S;
}

static mpath_status_t launch(mpath_symmetric_gpu_t *gpu, const mpath_reduce_how_t *how, unsigned ctas,
                             mpath_kernel_writes_t *arguments)
{
    mpath_gpu_coll_t *coll   = gpu->reduce;
    mpath_kernel_word_t done = {.address = mpath_room_device(&coll->room, &coll->room.words[gpu->me].kernel_done),
                                .value   = coll->number};
    mpath_stream_t *stream;
    mpath_status_t status = mpath_stream_get(coll->send.gpu, coll->first_stream + 1, &stream);

    if (status == MPATH_OK) {
        status = reduce_writes_find_function(gpu, coll->send.gpu, how);
    }
    if (status != MPATH_OK) {
        return status;
    }
    coll->kernel_started = 1;
    coll->counters.kernel_bytes += gpu->part_bytes[gpu->me];
    gpu_span_begin(coll, GPU_SPAN_KERNEL, gpu->part_bytes[gpu->me]);
    mpath_gpu_coll_lock();
    status = (gpu->way == MPATH_GPU_REDUCE_RING) ? mpath_launch_ring(stream, gpu->found.function, ctas, done, arguments)
                                                 : mpath_launch_writes(stream, gpu->found.function, done, arguments);
    mpath_gpu_coll_unlock();
    return status;
}

static mpath_status_t gpu_writes_start(mpath_symmetric_gpu_t *gpu, const mpath_reduce_how_t *how)
{
    mpath_gpu_coll_t *coll          = gpu->reduce;
    const gpu_lent_t *writes        = gpu->writes;
    unsigned ctas                   = MPATH_WRITES_CTAS;
    uint64_t tile                   = writes->unit_bytes;
    mpath_kernel_writes_t arguments = {
        .number     = coll->number,
        .stop       = mpath_room_device(&coll->room, &coll->room.words[gpu->me].stop),
        .timeout_ns = timeout_ns(coll),
        .ranks      = (uint32_t)gpu->size,
        .me         = (uint32_t)gpu->me,
        .send       = (mpath_device_ptr_t)(uintptr_t)coll->send.buffer,
    };

    if (gpu->way == MPATH_GPU_REDUCE_RING) { /* the first part is the longest */
        ctas                 = mpath_ring_ctas(writes->multiprocessors);
        tile                 = mpath_ring_tile(gpu->part_bytes[0], ctas,
                                               MPATH_RING_TILE_BYTES((uint64_t)gpu->size, ctas, writes->unit_bytes));
        arguments.stagger_ns = mpath_reduce_ring_ns(&coll->rates, tile * ctas / MPATH_RING_GROUPS);
    }
    arguments.tile_bytes = tile;
    for (int rank = 0; rank < gpu->size; rank++) {
        arguments.part_offsets[rank] = gpu->part_offsets[rank];
        arguments.part_bytes[rank]   = gpu->part_bytes[rank];
        arguments.targets[rank]      = gpu_address(coll, rank, MPATH_ROOM_RECV, 0);
        arguments.memory[rank]       = mpath_gpu_lent_address(writes, rank);
    }
    return launch(gpu, how, ctas, &arguments);
}

/* Parts are cut at multiples of this, so that their vectors are aligned alike, whatever the element. */
#define PART_GRAIN_BYTES 256u

mpath_status_t mpath_symmetric_gpu_create(mpath_team_t *team, mpath_symmetric_gpu_t **gpu_p)
{
    mpath_symmetric_gpu_t *gpu = calloc(1, sizeof(*gpu));
    size_t size                = (size_t)mpath_team_size(team);
    mpath_status_t status      = MPATH_ERR_NO_MEMORY;

    if (gpu == NULL) {
        goto err_log;
    }
    gpu->team     = team;
    gpu->size     = (int)size;
    gpu->me       = mpath_team_rank(team);
    gpu->arrays   = calloc(6 * size, sizeof(*gpu->arrays));
    gpu->launches = mpath_gpu_launches_create();
    gpu->eager    = mpath_gpu_eager_create();
    if ((gpu->arrays == NULL) || (gpu->launches == NULL) || (gpu->eager == NULL)) {
        goto err_destroy;
    }
    gpu->send_bytes   = gpu->arrays;
    gpu->send_offsets = gpu->send_bytes + size;
    gpu->recv_bytes   = gpu->send_offsets + size;
    gpu->recv_offsets = gpu->recv_bytes + size;
    gpu->part_bytes   = gpu->recv_offsets + size;
    gpu->part_offsets = gpu->part_bytes + size;

    gpu->host.operation        = "allreduce";
    gpu->host_gather.operation = "allgather";
    status                     = mpath_gpu_coll_create(team, &gpu->reduce);
    if (status == MPATH_OK) {
        status = mpath_gpu_coll_create(team, &gpu->gather);
    }
    if (status == MPATH_OK) {
        status = mpath_gpu_exchange_create(gpu->gather);
    }
    if ((status == MPATH_OK) && (!mpath_gpu_coll_usable(gpu->reduce) || (size > MPATH_KERNEL_REDUCE_RANKS))) {
        status = MPATH_DECLINED;
    }
    if (status != MPATH_OK) {
        mpath_symmetric_gpu_destroy(gpu);
        return status;
    }
    *gpu_p = gpu;
    return MPATH_OK;

err_destroy:
    mpath_symmetric_gpu_destroy(gpu);
err_log:
    mpath_error("no memory for reductions on device memory of %zu ranks", size);
    return status;
}

void mpath_symmetric_gpu_counters(const mpath_symmetric_gpu_t *gpu, mpath_coll_counters_t *counters)
{
    mpath_gpu_counters_t gather;

    *counters = gpu->counters;
    mpath_gpu_coll_counters(gpu->reduce, &counters->gpu);
    mpath_gpu_coll_counters(gpu->gather, &gather);
    counters->gpu.calls += gather.calls;
    counters->gpu.kernel_bytes += gather.kernel_bytes;
    counters->gpu.engine_bytes += gather.engine_bytes;
    counters->gpu.staged_bytes += gather.staged_bytes;
    counters->gpu.imports += gather.imports;
    counters->gpu.eager += gather.eager;
}

void mpath_symmetric_gpu_destroy(mpath_symmetric_gpu_t *gpu)
{
    if (gpu != NULL) {
        mpath_gpu_notice_lost();
        mpath_gpu_scratch_free(gpu);
        mpath_gpu_launches_destroy(gpu->launches);
        mpath_gpu_eager_destroy(gpu->eager);
        mpath_gpu_lent_destroy(gpu->writes);
        mpath_gpu_coll_destroy(gpu->reduce);
        mpath_gpu_coll_destroy(gpu->gather);
        free(gpu->arrays);
        free(gpu);
    }
}

/* The agreement, with what `gpu` says of sizes; then the room and, of all ranks, their opened memory. */
static mpath_status_t agree(mpath_symmetric_gpu_t *gpu, mpath_gpu_coll_t *coll, mpath_call_t *call,
                            mpath_agreed_t *agreed)
{
    mpath_record_t *record = mpath_team_record(gpu->team);
    uint64_t start_ns      = mpath_time_ns(), agreed_ns;
    mpath_status_t status;

    call->send_bytes   = gpu->send_bytes;
    call->send_offsets = gpu->send_offsets;
    call->recv_bytes   = gpu->recv_bytes;
    call->recv_offsets = gpu->recv_offsets;
    mpath_record_agree(record, mpath_call_collective(call->operation), mpath_team_call(gpu->team) + 1, start_ns);
    (void)mpath_gpu_coll_publish(coll, call);
    status    = mpath_agree(gpu->team, call, agreed);
    agreed_ns = mpath_time_ns();
    gpu->counters.agree_ns += agreed_ns - start_ns;
    mpath_record_phase(record, mpath_call_collective(call->operation), MPATH_RECORD_MOVE, agreed_ns);
    return ((status == MPATH_OK) && (agreed->flags & MPATH_CALL_INELIGIBLE)) ? MPATH_DECLINED : status;
}

/* This rank's part. `target` 0: the result goes to all ranks. */
static mpath_status_t start_part(mpath_symmetric_gpu_t *gpu, const mpath_reduce_how_t *how, mpath_device_ptr_t target)
{
    mpath_gpu_coll_t *coll = gpu->reduce;
    uint64_t bytes = gpu->part_bytes[gpu->me], offset = gpu->part_offsets[gpu->me];
    mpath_kernel_reduce_t arguments;
    mpath_stream_t *stream;
    mpath_status_t status;

    if (bytes == 0) {
        return MPATH_OK;
    }
    status = mpath_stream_get(coll->send.gpu, coll->first_stream + 1, &stream);
    if (status != MPATH_OK) {
        return status;
    }
    memset(&arguments, 0, sizeof(arguments)); /* they are compared as bytes */
    arguments.elements = bytes / mpath_reduce_bytes(how->type);
    arguments.first    = gpu->in_ring ? 0 : (uint32_t)((gpu->me + 1) % gpu->size);
    for (int i = 0; i < gpu->size; i++) {
        arguments.sources[arguments.sources_count++] = gpu_address(coll, gpu_source(gpu, i), MPATH_ROOM_SEND, offset);
    }
    for (int i = 0; (target == 0) && (i < gpu->size); i++) { /* GPUs begin with different targets */
        arguments.targets[arguments.targets_count++] = gpu_address(coll, (gpu->me + i) % gpu->size, MPATH_ROOM_RECV,
                                                                   offset);
    }
    if (target != 0) {
        arguments.targets[arguments.targets_count++] = target;
    }
    coll->kernel_started = 1;
    coll->counters.kernel_bytes += bytes;
    gpu_span_begin(coll, GPU_SPAN_KERNEL, bytes);
    mpath_gpu_coll_lock();
    status = mpath_gpu_launches_start(gpu->launches, coll, stream, how, &arguments);
    mpath_gpu_coll_unlock();
    return status;
}

static void count_call(mpath_symmetric_gpu_t *gpu, uint64_t start_ns, mpath_status_t status)
{
    if (status == MPATH_OK) {
        gpu->counters.calls++;
        gpu->counters.move_ns += mpath_time_ns() - start_ns;
    }
}

/* Equal parts of the vector, in grains. */
static void cut_parts(mpath_symmetric_gpu_t *gpu, uint64_t bytes)
{
    uint64_t grains = (bytes + PART_GRAIN_BYTES - 1) / PART_GRAIN_BYTES, size = (uint64_t)gpu->size;

    for (uint64_t rank = 0; rank < size; rank++) {
        uint64_t from = grains / size * rank + ((rank < grains % size) ? rank : grains % size);
        uint64_t to   = from + grains / size + (rank < grains % size);

        from *= PART_GRAIN_BYTES;
        to                      = (to * PART_GRAIN_BYTES < bytes) ? to * PART_GRAIN_BYTES : bytes;
        gpu->part_offsets[rank] = from;
        gpu->part_bytes[rank]   = (to > from) ? to - from : 0;
    }
}

/* Leaves the end of the vector to the way through the host: between more than two ranks, the end of every part. */
static void leave_end(mpath_symmetric_gpu_t *gpu, uint64_t bytes, uint64_t end_bytes)
{
    cut_parts(gpu, (gpu->size == 2) ? bytes - end_bytes : bytes);
    for (int rank = 0; (gpu->size > 2) && (rank < gpu->size); rank++) {
        gpu->part_bytes[rank] -= end_bytes / (uint64_t)gpu->size;
    }
}

/* A reduction by writes, and beside it the end of the vector through the host. */
static mpath_status_t start_writes(mpath_symmetric_gpu_t *gpu, uint64_t begin, const mpath_reduce_how_t *how)
{
    mpath_status_t status = gpu_writes_start(gpu, how);

    return (status == MPATH_OK) ? mpath_gpu_host_start(gpu, begin, how) : status;
}

/* Between the agreement and the end of everybody's kernels. */
static mpath_status_t reduce_parts(mpath_symmetric_gpu_t *gpu, const mpath_call_t *call, const mpath_agreed_t *agreed,
                                   const mpath_reduce_how_t *how, mpath_device_ptr_t target)
{
    mpath_gpu_coll_t *coll = gpu->reduce;
    int by_writes = 0, may_write = mpath_call_collective(call->operation) == MPATH_OPERATION_ALLREDUCE;
    uint64_t start_ns = mpath_time_ns(), bytes = 0, end_bytes = 0;
    mpath_status_t status = mpath_gpu_coll_prepare(coll, call, agreed);

    if ((status == MPATH_OK) && (mpath_call_collective(call->operation) == MPATH_OPERATION_ALLREDUCE)) {
        status = mpath_gpu_coll_find_rates(coll); /* for the calls that follow */
        status = (status == MPATH_OK) ? mpath_gpu_eager_prepare(gpu) : status;
    }
    if (status == MPATH_OK) {
        status = mpath_gpu_coll_open_all(coll, gpu_writes_works(gpu, may_write));
    }
    if ((status == MPATH_OK) && may_write) {
        status = gpu_writes_prepare(gpu, &by_writes);
    }
    for (int rank = 0; rank < gpu->size; rank++) {
        bytes += gpu->part_bytes[rank];
    }
    if ((status == MPATH_OK) && by_writes) {
        status = mpath_gpu_host_share(gpu, bytes, &end_bytes);
        leave_end(gpu, bytes, end_bytes);
    }
    if (status == MPATH_OK) {
        for (int i = 0; i < gpu->size * gpu->size; i++) { /* a rank with a part works on everybody's memory */
            coll->decided.ways[i] = (gpu->part_bytes[i / gpu->size] > 0) ? WAY_KERNEL : WAY_NONE;
        }
        status = mpath_gpu_coll_finish(coll, by_writes ? start_writes(gpu, bytes - end_bytes, how)
                                                       : start_part(gpu, how, target));
    }
    if ((status == MPATH_OK) && by_writes) {
        mpath_gpu_host_end(gpu);
    }
    mpath_gpu_coll_close_imports(coll);
    if (mpath_status_is_error(status)) {
        mpath_team_break(gpu->team, status);
    }
    coll->counters.calls += (status == MPATH_OK) ? 1 : 0;
    count_call(gpu, start_ns, status);
    return status;
}

static mpath_call_t call_of(mpath_operation_t operation, const mpath_symmetric_buffers_t *buffers, int ineligible)
{
    mpath_call_t call = {.operation      = (uint32_t)operation | buffers->alike << 8,
                         .operation_text = buffers->alike_text,
                         .flags          = ineligible ? MPATH_CALL_INELIGIBLE : 0,
                         .send_buffer    = buffers->send,
                         .recv_buffer    = buffers->recv,
                         .send_memory    = buffers->send_memory,
                         .recv_memory    = buffers->recv_memory};

    if ((call.send_memory != NULL) || (call.recv_memory != NULL)) {
        call.flags |= MPATH_CALL_DEVICE;
    }
    return call;
}

mpath_status_t mpath_allreduce_gpu(mpath_symmetric_gpu_t *gpu, const mpath_symmetric_buffers_t *buffers,
                                   uint64_t elements, const mpath_reduce_how_t *how)
{
    uint64_t bytes = elements * mpath_reduce_bytes(how->type);
    mpath_agreed_t agreed;
    mpath_status_t status;
    mpath_gpu_t *device;
    mpath_call_t call;
    int done;

    if (elements == 0) {
        return MPATH_DECLINED; /* all ranks know */
    }
    mpath_gpu_notice_lost();
    device = mpath_gpu_launches_gpu(gpu->launches, buffers, how);
    mpath_gpu_writes_choose(gpu, bytes, how);
    status = mpath_gpu_eager_start(gpu, buffers, elements, how, device);
    if (status != MPATH_OK) {
        return status;
    }
    call = call_of(MPATH_OPERATION_ALLREDUCE, buffers, device == NULL);
    for (int rank = 0; rank < gpu->size; rank++) {
        gpu->send_bytes[rank] = gpu->recv_bytes[rank] = bytes;
        gpu->send_offsets[rank] = gpu->recv_offsets[rank] = 0;
    }
    if (device != NULL) {
        gpu_writes_claim(gpu, device, how);
    }
    mpath_gpu_host_tell(gpu, buffers, bytes, device != NULL);
    status = mpath_gpu_eager_finish(gpu, agree(gpu, gpu->reduce, &call, &agreed), &done);
    if ((status == MPATH_OK) && !done) {
        cut_parts(gpu, bytes);
        status = reduce_parts(gpu, &call, &agreed, how, 0);
    }
    gpu_writes_release(gpu);
    gpu->in_ring       = 0;
    gpu->reduce->eager = GPU_EAGER_NOT;
    return status;
}

/* After everybody has read: the result to its place. */
static mpath_status_t scratch_store(mpath_symmetric_gpu_t *gpu, void *recv, uint64_t bytes)
{
    mpath_gpu_coll_t *coll = gpu->reduce;
    mpath_stream_t *stream;
    mpath_status_t status;
    mpath_mark_t mark;

    status = mpath_stream_get(coll->receive.gpu, coll->first_stream + 1, &stream);
    if (status != MPATH_OK) {
        return status;
    }
    mpath_gpu_coll_lock();
    status = mpath_stream_copy(stream, (mpath_device_ptr_t)(uintptr_t)recv, gpu->scratch, (size_t)bytes);
    if (status == MPATH_OK) {
        status = mpath_stream_mark(stream, &mark);
    }
    if (status == MPATH_OK) {
        status = mpath_stream_finish(stream, mark, (uint64_t)coll->settings->timeout_s * 1000000000u,
                                     "copying the result of an MPI_Reduce_scatter to its place");
    }
    mpath_gpu_coll_unlock();
    return status;
}

/* Who gets nothing needs no memory to get it in, and may give none: that of the data takes its place. */
static mpath_symmetric_buffers_t with_both_sides(const mpath_symmetric_buffers_t *buffers, uint64_t recv_bytes)
{
    mpath_symmetric_buffers_t sides = *buffers;

    if (recv_bytes == 0) {
        sides.recv        = (void *)(uintptr_t)buffers->send;
        sides.recv_memory = buffers->send_memory;
    }
    return sides;
}

mpath_status_t mpath_reduce_scatter_gpu(mpath_symmetric_gpu_t *gpu, const mpath_symmetric_buffers_t *buffers,
                                        const uint64_t *elements, const mpath_reduce_how_t *how)
{
    unsigned element_bytes = mpath_reduce_bytes(how->type);
    uint64_t mine = elements[gpu->me] * element_bytes, total = 0;
    mpath_symmetric_buffers_t sides = with_both_sides(buffers, mine);
    int in_place                    = buffers->send == buffers->recv, eligible;
    mpath_device_ptr_t target       = (mpath_device_ptr_t)(uintptr_t)buffers->recv;
    mpath_agreed_t agreed;
    mpath_status_t status;
    mpath_call_t call;

    for (int rank = 0; rank < gpu->size; rank++) {
        gpu->part_bytes[rank]   = elements[rank] * element_bytes;
        gpu->part_offsets[rank] = total;
        gpu->send_bytes[rank]   = gpu->part_bytes[rank];
        gpu->send_offsets[rank] = total;
        gpu->recv_bytes[rank]   = mine;
        gpu->recv_offsets[rank] = 0;
        total += gpu->part_bytes[rank];
    }
    if (total == 0) {
        return MPATH_DECLINED; /* all ranks know */
    }
    mpath_gpu_notice_lost();
    eligible = mpath_gpu_launches_gpu(gpu->launches, &sides, how) != NULL;
    if (in_place && eligible && (mine > 0)) {
        eligible = mpath_gpu_scratch_get(gpu, buffers->recv_memory, mine);
        target   = gpu->scratch;
    }
    call   = call_of(MPATH_OPERATION_REDUCE_SCATTER, &sides, !eligible);
    status = agree(gpu, gpu->reduce, &call, &agreed);
    if (status == MPATH_OK) {
        status = reduce_parts(gpu, &call, &agreed, how, target);
    }
    if ((status == MPATH_OK) && in_place && (mine > 0)) {
        status = scratch_store(gpu, buffers->recv, mine);
        if (status != MPATH_OK) {
            mpath_team_break(gpu->team, status);
        }
    }
    return status;
}

mpath_status_t mpath_allgather_gpu(mpath_symmetric_gpu_t *gpu, const mpath_symmetric_buffers_t *buffers,
                                   const uint64_t *bytes, const uint64_t *offsets)
{
    int me = gpu->me, in_place = buffers->send == NULL, done;
    uint64_t start_ns, total   = 0;
    mpath_symmetric_buffers_t sides = *buffers;
    mpath_agreed_t agreed;
    mpath_status_t status;
    mpath_call_t call;

    if (in_place && !buffers->ineligible) {
        sides.send = (const char *)buffers->recv + offsets[me];
    }
    for (int rank = 0; rank < gpu->size; rank++) {
        gpu->send_bytes[rank]   = bytes[me];
        gpu->send_offsets[rank] = 0;
        gpu->recv_bytes[rank]   = bytes[rank];
        gpu->recv_offsets[rank] = offsets[rank];
        total += bytes[rank];
    }
    if (in_place) {
        gpu->send_bytes[me] = gpu->recv_bytes[me] = 0;
    }
    mpath_gpu_notice_lost();
    mpath_gpu_host_tell_gather(gpu, total, !buffers->ineligible);
    call     = call_of(MPATH_OPERATION_ALLGATHER, &sides, buffers->ineligible);
    status   = agree(gpu, gpu->gather, &call, &agreed);
    start_ns = mpath_time_ns();
    status   = mpath_gpu_coll_exchanged(gpu->gather, &call, status, (status == MPATH_OK) ? agreed.flags : 0, &done);
    if (done) {
        count_call(gpu, start_ns, status);
    }
    if (done || (status != MPATH_OK)) {
        return status;
    }
    if (!(agreed.flags & MPATH_CALL_DEVICE)) {
        return MPATH_DECLINED;
    }
    status = mpath_gpu_coll_prepare(gpu->gather, &call, &agreed);
    if (status == MPATH_OK) {
        status = mpath_gpu_host_share_gather(gpu, total);
    }
    status = mpath_gpu_coll_move_prepared(gpu->gather, &call, status);
    if (status == MPATH_OK) {
        mpath_gpu_host_end_gather(gpu);
    }
    count_call(gpu, start_ns, status);
    return status;
}
