/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams, copies, words written by the device, and marks. */
#include "gpu/private.h"
#include "util/time.h"

#include <inttypes.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Polls (some 30 us) after which a waiting host lets others run between two of them. */
#define STREAM_POLLS_WITHOUT_YIELD 1024

/* Polls between two questions to the driver whether the stream has failed; a question costs about a microsecond. */
#define STREAM_POLLS_PER_QUERY 4096

/* For work whose mark the driver has refused. */
#define STREAM_DRAIN_NS (5 * MPATH_NS_PER_S)

static mpath_status_t stream_refused(const mpath_stream_t *stream, const char *call, mpath_cu_result_t result)
{
    mpath_error("GPU %d (%s), stream %u: %s: %s", stream->gpu->info.ordinal, stream->gpu->info.pci, stream->index, call,
                mpath_cu_error_string(result));
    return mpath_cu_status(result);
}

static mpath_status_t stream_make(mpath_gpu_t *gpu, unsigned index, mpath_stream_t **stream_p)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    mpath_cu_result_t result;
    mpath_status_t status;
    mpath_stream_t *stream;
    int least = 0, greatest = 0;

    stream = calloc(1, sizeof(*stream));
    if (stream == NULL) {
        mpath_error("no memory for stream %u of GPU %d", index, gpu->info.ordinal);
        return MPATH_ERR_NO_MEMORY;
    }
    stream->gpu   = gpu;
    stream->index = index;
    if (gpu->words.base == NULL) {
        status = mpath_pinned_alloc(gpu, MPATH_GPU_STREAMS_ALL * sizeof(mpath_stream_words_t), &gpu->words);
        if (status != MPATH_OK) {
            goto err_free;
        }
    }
    stream->words        = (mpath_stream_words_t *)gpu->words.base + index;
    stream->done_address = mpath_pinned_device(&gpu->words, &stream->words->done);
    stream->words->done  = 0;
    cu->CtxGetStreamPriorityRange(&least, &greatest);
    result = cu->StreamCreateWithPriority(&stream->native, MPATH_CU_STREAM_NON_BLOCKING, greatest);
    if (result != MPATH_CU_SUCCESS) {
        status = stream_refused(stream, "cuStreamCreateWithPriority", result);
        goto err_free;
    }
    result = cu->EventCreate(&stream->event, MPATH_CU_EVENT_DISABLE_TIMING);
    if (result != MPATH_CU_SUCCESS) {
        status = stream_refused(stream, "cuEventCreate", result);
        goto err_destroy;
    }
    *stream_p = stream;
    return MPATH_OK;

err_destroy:
    cu->StreamDestroy(stream->native);
err_free:
    free(stream);
    return status;
}

mpath_status_t mpath_stream_get(mpath_gpu_t *gpu, unsigned index, mpath_stream_t **stream_p)
{
    mpath_status_t status;

    if (index >= MPATH_GPU_STREAMS_ALL) {
        mpath_error("there is no stream %u: a GPU has %d", index, MPATH_GPU_STREAMS_ALL);
        return MPATH_ERR_PARAM;
    }
    status = mpath_gpu_enter(gpu);
    if (status != MPATH_OK) {
        return status;
    }
    mpath_gpu_lock();
    if (gpu->streams[index] == NULL) {
        status = stream_make(gpu, index, &gpu->streams[index]);
    }
    if (status == MPATH_OK) {
        *stream_p = gpu->streams[index];
    }
    mpath_gpu_unlock();
    mpath_gpu_leave(gpu);
    return status;
}

void mpath_stream_cleanup(mpath_gpu_t *gpu)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    int entered          = mpath_gpu_enter(gpu) == MPATH_OK;
    unsigned index;

    for (index = 0; index < MPATH_GPU_STREAMS_ALL; index++) {
        if (entered && (gpu->streams[index] != NULL)) {
            cu->EventDestroy(gpu->streams[index]->event);
            cu->StreamDestroy(gpu->streams[index]->native);
        }
        free(gpu->streams[index]);
        gpu->streams[index] = NULL;
    }
    if (entered) {
        mpath_gpu_leave(gpu);
    }
    mpath_pinned_release(&gpu->words);
}

mpath_gpu_t *mpath_stream_gpu(const mpath_stream_t *stream)
{
    return stream->gpu;
}

mpath_status_t mpath_stream_enter(mpath_stream_t *stream)
{
    return mpath_gpu_enter(stream->gpu);
}

void mpath_stream_leave(mpath_stream_t *stream)
{
    mpath_gpu_leave(stream->gpu);
}

mpath_status_t mpath_stream_copy(mpath_stream_t *stream, mpath_cu_ptr_t target, mpath_cu_ptr_t source, size_t bytes)
{
    mpath_status_t status;
    mpath_cu_result_t result;

    if (bytes == 0) {
        return MPATH_OK;
    }
    status = mpath_gpu_enter(stream->gpu);
    if (status != MPATH_OK) {
        return status;
    }
    result = mpath_gpu_driver()->MemcpyAsync(target, source, bytes, stream->native);
    mpath_gpu_leave(stream->gpu);
    return (result == MPATH_CU_SUCCESS) ? MPATH_OK : stream_refused(stream, "cuMemcpyAsync", result);
}

mpath_status_t mpath_stream_copy_all(mpath_stream_t *stream, mpath_cu_ptr_t *targets, mpath_cu_ptr_t *sources,
                                     size_t *bytes, size_t count)
{
    mpath_cu_copy_attributes_t attributes = {.source_order = MPATH_CU_COPY_STREAM_ORDER};
    mpath_status_t status                 = mpath_gpu_enter(stream->gpu);
    size_t index                          = 0;
    mpath_cu_result_t result;

    if (status != MPATH_OK) {
        return status;
    }
    if ((count > 1) && (mpath_gpu_driver()->MemcpyBatchAsync != NULL)) {
        result = mpath_gpu_driver()->MemcpyBatchAsync(targets, sources, bytes, count, &attributes, &index, 1,
                                                      stream->native);
        if (result != MPATH_CU_SUCCESS) {
            status = stream_refused(stream, "cuMemcpyBatchAsync", result);
        }
    } else {
        for (size_t i = 0; (status == MPATH_OK) && (i < count); i++) {
            status = mpath_stream_copy(stream, targets[i], sources[i], bytes[i]);
        }
    }
    mpath_gpu_leave(stream->gpu);
    return status;
}

int mpath_stream_has_values(const mpath_stream_t *stream)
{
    return stream->gpu->has_values;
}

mpath_status_t mpath_stream_write(mpath_stream_t *stream, mpath_cu_ptr_t address, uint64_t value)
{
    mpath_status_t status;
    mpath_cu_result_t result;

    if (!stream->gpu->has_values) {
        return MPATH_ERR_UNSUPPORTED;
    }
    status = mpath_gpu_enter(stream->gpu);
    if (status != MPATH_OK) {
        return status;
    }
    result = mpath_gpu_driver()->StreamWriteValue64(stream->native, address, value, MPATH_CU_WRITE_DEFAULT);
    mpath_gpu_leave(stream->gpu);
    return (result == MPATH_CU_SUCCESS) ? MPATH_OK : stream_refused(stream, "cuStreamWriteValue64", result);
}

mpath_status_t mpath_stream_wait(mpath_stream_t *stream, mpath_cu_ptr_t address, uint64_t value)
{
    mpath_status_t status;
    mpath_cu_result_t result;

    if (!stream->gpu->has_waits) {
        return MPATH_ERR_UNSUPPORTED;
    }
    status = mpath_gpu_enter(stream->gpu);
    if (status != MPATH_OK) {
        return status;
    }
    result = mpath_gpu_driver()->StreamWaitValue64(stream->native, address, value, MPATH_CU_WAIT_GEQ);
    mpath_gpu_leave(stream->gpu);
    return (result == MPATH_CU_SUCCESS) ? MPATH_OK : stream_refused(stream, "cuStreamWaitValue64", result);
}

static mpath_status_t stream_record(mpath_stream_t *stream)
{
    mpath_status_t status = mpath_gpu_enter(stream->gpu);
    mpath_cu_result_t result;

    if (status != MPATH_OK) {
        return status;
    }
    result = mpath_gpu_driver()->EventRecord(stream->event, stream->native);
    mpath_gpu_leave(stream->gpu);
    return (result == MPATH_CU_SUCCESS) ? MPATH_OK : stream_refused(stream, "cuEventRecord", result);
}

/* Without a mark nobody can wait for what has been enqueued. */
static void stream_drain(mpath_stream_t *stream)
{
    uint64_t deadline_ns = mpath_time_ns() + STREAM_DRAIN_NS;

    if (mpath_gpu_enter(stream->gpu) != MPATH_OK) {
        return; /* the work has gone with the context */
    }
    while (mpath_gpu_driver()->StreamQuery(stream->native) == MPATH_CU_NOT_READY) {
        if (mpath_time_ns() > deadline_ns) {
            mpath_error("GPU %d (%s), stream %u: work without a mark has not ended within %" PRIu64 " ms",
                        stream->gpu->info.ordinal, stream->gpu->info.pci, stream->index,
                        (uint64_t)(STREAM_DRAIN_NS / MPATH_NS_PER_MS));
            break;
        }
        sched_yield();
    }
    mpath_gpu_leave(stream->gpu);
}

mpath_status_t mpath_stream_mark(mpath_stream_t *stream, mpath_mark_t *mark_p)
{
    mpath_status_t status;

    if (stream->gpu->has_values) {
        status = mpath_stream_write(stream, stream->done_address, stream->marked + 1);
    } else {
        status = stream_record(stream);
    }
    if (status != MPATH_OK) {
        stream_drain(stream);
        return status;
    }
    stream->marked++;
    stream->recorded = stream->marked;
    *mark_p          = stream->marked;
    return MPATH_OK;
}

/* Whether the mark has been passed, without looking for failures. */
static int stream_passed(const mpath_stream_t *stream, mpath_mark_t mark)
{
    int passed = stream->words->done >= mark;

    atomic_thread_fence(memory_order_acquire); /* what the device wrote before is visible */
    return passed;
}

/* MPATH_ERR_IO when the stream has failed; without values also moves the done word. */
static mpath_status_t stream_query(mpath_stream_t *stream)
{
    const mpath_cu_t *cu  = mpath_gpu_driver();
    mpath_status_t status = mpath_gpu_enter(stream->gpu);
    mpath_mark_t recorded = stream->recorded;
    mpath_cu_result_t result;

    if (status != MPATH_OK) {
        return status;
    }
    if (stream->gpu->has_values) {
        result = cu->StreamQuery(stream->native);
    } else {
        result = cu->EventQuery(stream->event);
        if ((result == MPATH_CU_SUCCESS) && (stream->words->done < recorded)) {
            stream->words->done = recorded;
        }
    }
    mpath_gpu_leave(stream->gpu);
    if ((result != MPATH_CU_SUCCESS) && (result != MPATH_CU_NOT_READY)) {
        return stream_refused(stream, "work on it has failed", result);
    }
    return MPATH_OK;
}

mpath_status_t mpath_stream_check(mpath_stream_t *stream)
{
    return stream_query(stream);
}

mpath_status_t mpath_stream_done(mpath_stream_t *stream, mpath_mark_t mark)
{
    mpath_status_t status;

    if (stream_passed(stream, mark)) {
        return MPATH_OK;
    }
    if (!stream->gpu->has_values || (++stream->polls % STREAM_POLLS_PER_QUERY == 0)) {
        status = stream_query(stream);
        if (status != MPATH_OK) {
            return status;
        }
    }
    return stream_passed(stream, mark) ? MPATH_OK : MPATH_INPROGRESS;
}

mpath_status_t mpath_stream_finish(mpath_stream_t *stream, mpath_mark_t mark, uint64_t timeout_ns, const char *what)
{
    uint64_t deadline_ns = mpath_time_ns() + timeout_ns;
    mpath_status_t status;
    unsigned polls = 0;

    while ((status = mpath_stream_done(stream, mark)) == MPATH_INPROGRESS) {
        if (mpath_time_ns() > deadline_ns) {
            mpath_error("GPU %d (%s), stream %u: %s has not ended within %" PRIu64 " ms", stream->gpu->info.ordinal,
                        stream->gpu->info.pci, stream->index, what, (uint64_t)(timeout_ns / MPATH_NS_PER_MS));
            return MPATH_ERR_TIMED_OUT;
        }
        if (++polls > STREAM_POLLS_WITHOUT_YIELD) {
            sched_yield();
        }
    }
    return status;
}
