/* SPDX-License-Identifier: BSD-3-Clause */
/* Reductions on device memory: the parts, the agreement, one kernel on each rank. */
#include "coll/allreduce_gpu_private.h"
#include "coll/gpu_eager.h"

#include "gpu/usage.h"
#include "util/log.h"
#include "util/time.h"

#include <stdlib.h>
#include <string.h>

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

static void scratch_free(mpath_symmetric_gpu_t *gpu)
{
    mpath_gpu_memory_give(gpu->scratch_gpu, gpu->scratch, (size_t)gpu->scratch_bytes);
    gpu->scratch       = 0;
    gpu->scratch_bytes = 0;
}

void mpath_symmetric_gpu_destroy(mpath_symmetric_gpu_t *gpu)
{
    if (gpu != NULL) {
        mpath_gpu_notice_lost();
        scratch_free(gpu);
        mpath_gpu_launches_destroy(gpu->launches);
        mpath_gpu_eager_destroy(gpu->eager);
        mpath_gpu_lent_destroy(gpu->writes);
        mpath_gpu_coll_destroy(gpu->reduce);
        mpath_gpu_coll_destroy(gpu->gather);
        free(gpu->arrays);
        free(gpu);
    }
}

int mpath_gpu_scratch_get(mpath_symmetric_gpu_t *gpu, const mpath_memory_t *memory, uint64_t bytes)
{
    mpath_cu_result_t result;
    mpath_gpu_t *device;

    if ((bytes > gpu->reduce->settings->gpu_memory_bytes) ||
        (mpath_gpu_get(memory->device, memory->context, &device) != MPATH_OK)) {
        return 0;
    }
    if ((device == gpu->scratch_gpu) && (bytes <= gpu->scratch_bytes)) {
        return 1;
    }
    scratch_free(gpu);
    if (mpath_gpu_enter(device) != MPATH_OK) {
        return 0;
    }
    result = mpath_gpu_memory_take_within(gpu->reduce->settings->gpu_device_bytes, &gpu->scratch, (size_t)bytes);
    mpath_gpu_leave(device);
    if (result != MPATH_CU_SUCCESS) {
        gpu->scratch = 0;
        return 0;
    }
    gpu->scratch_gpu   = device;
    gpu->scratch_bytes = bytes;
    return 1;
}

/* The agreement, with what `gpu` says of sizes; then the room and, of all ranks, their opened memory. */
static mpath_status_t agree(mpath_symmetric_gpu_t *gpu, mpath_gpu_coll_t *coll, mpath_call_t *call,
                            mpath_agreed_t *agreed)
{
    uint64_t start_ns = mpath_time_ns();
    mpath_status_t status;

    call->send_bytes   = gpu->send_bytes;
    call->send_offsets = gpu->send_offsets;
    call->recv_bytes   = gpu->recv_bytes;
    call->recv_offsets = gpu->recv_offsets;
    (void)mpath_gpu_coll_publish(coll, call);
    status = mpath_agree(gpu->team, call, agreed);
    gpu->counters.agree_ns += mpath_time_ns() - start_ns;
    return ((status == MPATH_OK) && (agreed->flags & MPATH_CALL_INELIGIBLE)) ? MPATH_DECLINED : status;
}

mpath_cu_ptr_t mpath_reduce_gpu_address(const mpath_gpu_coll_t *coll, int rank, int side, uint64_t offset)
{
    const char *own = (side == MPATH_ROOM_SEND) ? coll->send.buffer : coll->receive.buffer;

    if (rank == coll->me) {
        return (mpath_cu_ptr_t)(uintptr_t)own + offset;
    }
    return mpath_import_address(coll->decided.imports[side][rank], gpu_cell(coll, rank)->sides[side].address + offset);
}

/* This rank's part. `target` 0: the result goes to all ranks. */
static mpath_status_t start_part(mpath_symmetric_gpu_t *gpu, const mpath_reduce_how_t *how, mpath_cu_ptr_t target)
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
        arguments.sources[arguments.sources_count++] = mpath_reduce_gpu_address(coll, mpath_reduce_gpu_source(gpu, i),
                                                                                MPATH_ROOM_SEND, offset);
    }
    for (int i = 0; (target == 0) && (i < gpu->size); i++) { /* GPUs begin with different targets */
        arguments.targets[arguments.targets_count++] = mpath_reduce_gpu_address(coll, (gpu->me + i) % gpu->size,
                                                                                MPATH_ROOM_RECV, offset);
    }
    if (target != 0) {
        arguments.targets[arguments.targets_count++] = target;
    }
    coll->kernel_started = 1;
    coll->counters.kernel_bytes += bytes;
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
    mpath_status_t status = mpath_gpu_writes_start(gpu, how);

    return (status == MPATH_OK) ? mpath_gpu_host_start(gpu, begin, how) : status;
}

/* Between the agreement and the end of everybody's kernels. */
static mpath_status_t reduce_parts(mpath_symmetric_gpu_t *gpu, const mpath_call_t *call, const mpath_agreed_t *agreed,
                                   const mpath_reduce_how_t *how, mpath_cu_ptr_t target)
{
    mpath_gpu_coll_t *coll = gpu->reduce;
    int by_writes = 0, may_write = (call->operation == MPATH_OPERATION_ALLREDUCE) && (target == 0);
    uint64_t start_ns = mpath_time_ns(), bytes = 0, end_bytes = 0;
    mpath_status_t status = mpath_gpu_coll_prepare(coll, call, agreed);

    if ((status == MPATH_OK) && (call->operation == MPATH_OPERATION_ALLREDUCE)) {
        status = mpath_gpu_coll_find_rates(coll); /* for the calls that follow */
        status = (status == MPATH_OK) ? mpath_gpu_eager_prepare(gpu) : status;
    }
    if (status == MPATH_OK) {
        status = mpath_gpu_coll_open_all(coll, mpath_gpu_writes_works(gpu, may_write));
    }
    if ((status == MPATH_OK) && may_write) {
        status = mpath_gpu_writes_prepare(gpu, &by_writes);
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
    mpath_call_t call = {.operation   = (uint32_t)operation,
                         .flags       = ineligible ? MPATH_CALL_INELIGIBLE : 0,
                         .send_buffer = buffers->send,
                         .recv_buffer = buffers->recv,
                         .send_memory = buffers->send_memory,
                         .recv_memory = buffers->recv_memory};

    if ((call.send_memory != NULL) || (call.recv_memory != NULL)) {
        call.flags |= MPATH_CALL_DEVICE;
    }
    return call;
}

static mpath_status_t reduce_vector(mpath_symmetric_gpu_t *gpu, const mpath_call_t *call, const mpath_agreed_t *agreed,
                                    uint64_t bytes, const mpath_reduce_how_t *how)
{
    if (mpath_gpu_writes_does_without(gpu, agreed->flags)) {
        for (int rank = 0; rank < gpu->size; rank++) {
            gpu->part_offsets[rank] = 0;
            gpu->part_bytes[rank]   = bytes;
        }
        return reduce_parts(gpu, call, agreed, how, (mpath_cu_ptr_t)(uintptr_t)call->recv_buffer);
    }
    cut_parts(gpu, bytes);
    return reduce_parts(gpu, call, agreed, how, 0);
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
    call.flags |= (buffers->send == buffers->recv) ? MPATH_CALL_IN_PLACE : 0;
    for (int rank = 0; rank < gpu->size; rank++) {
        gpu->send_bytes[rank] = gpu->recv_bytes[rank] = bytes;
        gpu->send_offsets[rank] = gpu->recv_offsets[rank] = 0;
    }
    if (device != NULL) {
        mpath_gpu_writes_claim(gpu, device, how);
    }
    mpath_gpu_host_tell(gpu, buffers, bytes, device != NULL);
    status = mpath_gpu_eager_finish(gpu, agree(gpu, gpu->reduce, &call, &agreed), &done);
    if ((status == MPATH_OK) && !done) {
        status = reduce_vector(gpu, &call, &agreed, bytes, how);
    }
    mpath_gpu_writes_release(gpu);
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
    status = mpath_stream_copy(stream, (mpath_cu_ptr_t)(uintptr_t)recv, gpu->scratch, (size_t)bytes);
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
    mpath_cu_ptr_t target           = (mpath_cu_ptr_t)(uintptr_t)buffers->recv;
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
