/* SPDX-License-Identifier: BSD-3-Clause */
/* Share engine on device memory: launches that belong together, as few as possible. */
#include "coll/share_gpu_batch.h"

#include "coll/gpu_streams.h"

#include <string.h>

void mpath_share_batch_begin(mpath_share_t *share, mpath_stream_t *stream, int copies, share_batch_t *batch)
{
    memset(batch, 0, sizeof(*batch));
    batch->share  = share;
    batch->stream = stream;
    batch->copies = copies;
    mpath_gpu_coll_lock();
}

/* To copy one needs not know what it is: the kernels that combine one source. */
static const mpath_reduce_type_t copy_types[SHARE_GPU_COPIES] = {MPATH_REDUCE_U64, MPATH_REDUCE_U32, MPATH_REDUCE_U8};

mpath_status_t mpath_share_batch_find(share_gpu_t *gpu)
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
    const share_gpu_t *gpu       = batch->share->gpu;
    int copy                     = copy_index(&batch->next, batch->bytes);
    mpath_reduce_type_t type     = batch->copies ? copy_types[copy] : batch->share->job->gpus->how.type;
    mpath_cu_function_t function = batch->copies ? gpu->copies[copy] : gpu->function;

    batch->next.elements = batch->bytes / mpath_reduce_bytes(type);
    batch->bytes         = 0;
    batch->launched++;
    return mpath_launch_reduce_by_host(batch->stream, function, type, flag, &batch->next);
}

/* Whether it begins where the one before ends. */
static int batch_follows(const share_batch_t *batch, const mpath_kernel_reduce_t *piece)
{
    int follows = batch->bytes > 0;

    for (uint32_t i = 0; i < piece->sources_count; i++) {
        follows = follows && (piece->sources[i] == batch->next.sources[i] + batch->bytes);
    }
    for (uint32_t i = 0; i < piece->targets_count; i++) {
        follows = follows && (piece->targets[i] == batch->next.targets[i] + batch->bytes);
    }
    return follows;
}

void mpath_share_batch_add(share_batch_t *batch, const mpath_kernel_reduce_t *piece, uint64_t bytes)
{
    batch->share->stats.kernel_bytes += bytes;
    if (batch_follows(batch, piece)) {
        batch->bytes += bytes;
        return;
    }
    if ((batch->bytes > 0) && (batch->status == MPATH_OK)) {
        batch->status = batch_launch(batch, (mpath_kernel_word_t){0});
    }
    batch->next  = *piece;
    batch->bytes = bytes;
}

mpath_status_t mpath_share_batch_end(share_batch_t *batch, mpath_mark_t *mark_p)
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
