/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams, copies, words written by the device, and marks. */
#include "device/gpu_private.h"

#include "device/stream.h"
#include "util/time.h"

#include <inttypes.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

/* See device/stream.h. */

mpath_status_t mpath_gpu_drain(mpath_gpu_t *gpu)
{
    mpath_device_result_t result;
    mpath_status_t status = mpath_gpu_enter(gpu);

    if (status != MPATH_OK) {
        return status;
    }
    result = mpath_device()->context_drain();
    mpath_gpu_leave(gpu);
    if (result != MPATH_DEVICE_DONE) {
        mpath_error("waiting for the work on GPU %d failed: %s; the call fails", gpu->info.ordinal,
                    mpath_device_error_string(result));
        return mpath_device_status(result);
    }
    return MPATH_OK;
}

/* Makes an object for a primary context that the application has begun; none for others. */
static mpath_status_t know_primary(int ordinal)
{
    mpath_gpu_t *gpu;

    if (!mpath_device()->context_is_begun(ordinal)) {
        return MPATH_OK;
    }
    return mpath_gpu_get(ordinal, NULL, &gpu);
}

mpath_status_t mpath_gpu_drain_all(void)
{
    mpath_status_t status = MPATH_OK;
    mpath_gpu_t *gpu;

    if (!mpath_gpu_available()) {
        return MPATH_OK;
    }
    mpath_gpu_notice_lost();
    for (int ordinal = 0, count = mpath_gpu_count(); (ordinal < count) && (status == MPATH_OK); ordinal++) {
        status = know_primary(ordinal);
    }
    (void)mpath_gpu_current(&gpu);
    for (gpu = mpath_gpu_next(NULL); (gpu != NULL) && (status == MPATH_OK); gpu = mpath_gpu_next(gpu)) {
        status = mpath_gpu_drain(gpu);
    }
    return status;
}

/* Polls (some 30 us) after which a waiting host lets others run between two of them. */
#define STREAM_POLLS_WITHOUT_YIELD 1024

/* Polls between two questions to the driver whether the stream has failed; a question costs about a microsecond. */
#define STREAM_POLLS_PER_QUERY 4096

/* For work whose mark the driver has refused. */
#define STREAM_DRAIN_NS (5 * MPATH_NS_PER_S)

static mpath_status_t stream_refused(const mpath_stream_t *stream, const char *call, mpath_device_result_t result)
{
    mpath_error("GPU %d (%s), stream %u: %s: %s", stream->gpu->info.ordinal, stream->gpu->info.pci, stream->index, call,
                mpath_device_error_string(result));
    return mpath_device_status(result);
}

static mpath_status_t stream_call_refused(const mpath_stream_t *stream, mpath_device_result_t result)
{
    return stream_refused(stream, mpath_device()->failed_call(), result);
}

static mpath_status_t stream_make(mpath_gpu_t *gpu, unsigned index, mpath_stream_t **stream_p)
{
    const mpath_device_ops_t *ops = mpath_device();
    mpath_device_result_t result;
    mpath_status_t status;
    mpath_stream_t *stream;

    stream = calloc(1, sizeof(*stream));
    if (stream == NULL) {
        mpath_error("no memory for stream %u of GPU %d", index, gpu->info.ordinal);
        return MPATH_ERR_NO_MEMORY;
    }
    stream->gpu   = gpu;
    stream->index = index;
    if (gpu->words.base == NULL) {
        status = mpath_gpu_make_words(gpu);
        if (status != MPATH_OK) {
            goto err_free;
        }
    }
    stream->words        = (mpath_stream_words_t *)gpu->words.base + index;
    stream->done_address = mpath_pinned_device(&gpu->words, &stream->words->done);
    stream->words->done  = 0;
    result               = ops->stream_make(&stream->native);
    if (result != MPATH_DEVICE_DONE) {
        status = stream_call_refused(stream, result);
        goto err_free;
    }
    result = ops->event_make(&stream->event);
    if (result != MPATH_DEVICE_DONE) {
        status = stream_call_refused(stream, result);
        goto err_end;
    }
    *stream_p = stream;
    return MPATH_OK;

err_end:
    ops->stream_end(stream->native);
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
    const mpath_device_ops_t *ops = mpath_device();
    int entered                   = mpath_gpu_enter(gpu) == MPATH_OK;
    unsigned index;

    for (index = 0; index < MPATH_GPU_STREAMS_ALL; index++) {
        if (entered && (gpu->streams[index] != NULL)) {
            ops->event_end(gpu->streams[index]->event);
            ops->stream_end(gpu->streams[index]->native);
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

mpath_device_stream_t mpath_stream_native(const mpath_stream_t *stream)
{
    return stream->native;
}

mpath_status_t mpath_stream_enter(mpath_stream_t *stream)
{
    return mpath_gpu_enter(stream->gpu);
}

void mpath_stream_leave(mpath_stream_t *stream)
{
    mpath_gpu_leave(stream->gpu);
}

mpath_status_t mpath_stream_copy(mpath_stream_t *stream, mpath_device_ptr_t target, mpath_device_ptr_t source,
                                 size_t bytes)
{
    mpath_status_t status;
    mpath_device_result_t result;

    if (bytes == 0) {
        return MPATH_OK;
    }
    status = mpath_gpu_enter(stream->gpu);
    if (status != MPATH_OK) {
        return status;
    }
    result = mpath_device()->stream_copy(stream->native, target, source, bytes);
    mpath_gpu_leave(stream->gpu);
    return (result == MPATH_DEVICE_DONE) ? MPATH_OK : stream_call_refused(stream, result);
}

mpath_status_t mpath_stream_copy_all(mpath_stream_t *stream, mpath_device_ptr_t *targets, mpath_device_ptr_t *sources,
                                     size_t *bytes, size_t count)
{
    mpath_status_t status        = mpath_gpu_enter(stream->gpu);
    mpath_device_result_t result = MPATH_DEVICE_NOT_SUPPORTED;

    if (status != MPATH_OK) {
        return status;
    }
    if (count > 1) {
        result = mpath_device()->stream_copy_all(stream->native, targets, sources, bytes, count);
    }
    if (result == MPATH_DEVICE_NOT_SUPPORTED) {
        for (size_t i = 0; (status == MPATH_OK) && (i < count); i++) {
            status = mpath_stream_copy(stream, targets[i], sources[i], bytes[i]);
        }
    } else if (result != MPATH_DEVICE_DONE) {
        status = stream_call_refused(stream, result);
    }
    mpath_gpu_leave(stream->gpu);
    return status;
}

mpath_status_t mpath_stream_copy_aside(mpath_stream_t *stream, mpath_device_ptr_t target, mpath_device_ptr_t source,
                                       size_t bytes)
{
    mpath_status_t status = mpath_gpu_enter(stream->gpu);
    mpath_device_result_t result;

    if (status != MPATH_OK) {
        return status;
    }
    result = mpath_device()->stream_copy_aside(stream->native, target, source, bytes);
    mpath_gpu_leave(stream->gpu);
    if (result == MPATH_DEVICE_NOT_SUPPORTED) {
        return MPATH_ERR_UNSUPPORTED;
    }
    return (result == MPATH_DEVICE_DONE) ? MPATH_OK : stream_call_refused(stream, result);
}

int mpath_stream_has_values(const mpath_stream_t *stream)
{
    return stream->gpu->has_values;
}

mpath_status_t mpath_stream_write(mpath_stream_t *stream, mpath_device_ptr_t address, uint64_t value)
{
    mpath_status_t status;
    mpath_device_result_t result;

    if (!stream->gpu->has_values) {
        return MPATH_ERR_UNSUPPORTED;
    }
    status = mpath_gpu_enter(stream->gpu);
    if (status != MPATH_OK) {
        return status;
    }
    result = mpath_device()->stream_write(stream->native, address, value);
    mpath_gpu_leave(stream->gpu);
    return (result == MPATH_DEVICE_DONE) ? MPATH_OK : stream_call_refused(stream, result);
}

mpath_status_t mpath_stream_wait(mpath_stream_t *stream, mpath_device_ptr_t address, uint64_t value)
{
    mpath_status_t status;
    mpath_device_result_t result;

    if (!stream->gpu->has_waits) {
        return MPATH_ERR_UNSUPPORTED;
    }
    status = mpath_gpu_enter(stream->gpu);
    if (status != MPATH_OK) {
        return status;
    }
    result = mpath_device()->stream_wait(stream->native, address, value);
    mpath_gpu_leave(stream->gpu);
    return (result == MPATH_DEVICE_DONE) ? MPATH_OK : stream_call_refused(stream, result);
}

static mpath_status_t stream_record(mpath_stream_t *stream)
{
    mpath_status_t status = mpath_gpu_enter(stream->gpu);
    mpath_device_result_t result;

    if (status != MPATH_OK) {
        return status;
    }
    result = mpath_device()->event_record(stream->event, stream->native);
    mpath_gpu_leave(stream->gpu);
    return (result == MPATH_DEVICE_DONE) ? MPATH_OK : stream_call_refused(stream, result);
}

/* Without a mark nobody can wait for what has been enqueued. */
static void stream_drain(mpath_stream_t *stream)
{
    uint64_t deadline_ns = mpath_time_ns() + STREAM_DRAIN_NS;

    if (mpath_gpu_enter(stream->gpu) != MPATH_OK) {
        return; /* the work has gone with the context */
    }
    while (mpath_device()->stream_query(stream->native) == MPATH_DEVICE_NOT_READY) {
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
    const mpath_device_ops_t *ops = mpath_device();
    mpath_status_t status         = mpath_gpu_enter(stream->gpu);
    mpath_mark_t recorded         = stream->recorded;
    mpath_device_result_t result;

    if (status != MPATH_OK) {
        return status;
    }
    if (stream->gpu->has_values) {
        result = ops->stream_query(stream->native);
    } else {
        result = ops->event_query(stream->event);
        if ((result == MPATH_DEVICE_DONE) && (stream->words->done < recorded)) {
            stream->words->done = recorded;
        }
    }
    mpath_gpu_leave(stream->gpu);
    if ((result != MPATH_DEVICE_DONE) && (result != MPATH_DEVICE_NOT_READY)) {
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
