/* SPDX-License-Identifier: BSD-3-Clause */
/* Graphs of one kernel. */
#include "device/graph.h"
#include "device/gpu_private.h"
#include "device/usage.h"

#include <stdlib.h>

struct mpath_repeat {
    mpath_stream_t *stream;
    mpath_device_graph_t graph;
    unsigned ctas;
};

mpath_status_t mpath_repeat_create(mpath_stream_t *stream, mpath_device_function_t function, const void *arguments,
                                   unsigned ctas, unsigned threads, mpath_repeat_t **repeat_p)
{
    mpath_repeat_t *repeat;
    mpath_device_result_t result;
    mpath_status_t status;

    if (!mpath_device()->has_graphs()) {
        return MPATH_ERR_UNSUPPORTED;
    }
    repeat = calloc(1, sizeof(*repeat));
    if (repeat == NULL) {
        return MPATH_ERR_UNSUPPORTED;
    }
    repeat->stream = stream;
    repeat->ctas   = ctas;
    status         = mpath_gpu_enter(stream->gpu);
    if (status != MPATH_OK) {
        free(repeat);
        return status;
    }
    result = mpath_device()->graph_make(function, arguments, ctas, threads, &repeat->graph);
    mpath_gpu_leave(stream->gpu);
    if (result != MPATH_DEVICE_DONE) {
        mpath_debug("GPU %d: no graph of a kernel: %s; it is launched anew each time", stream->gpu->info.ordinal,
                    mpath_device_error_string(result));
        free(repeat);
        return MPATH_ERR_UNSUPPORTED;
    }
    *repeat_p = repeat;
    return MPATH_OK;
}

mpath_status_t mpath_repeat_start(mpath_repeat_t *repeat)
{
    const mpath_gpu_t *gpu = repeat->stream->gpu;
    mpath_status_t status  = mpath_gpu_enter(repeat->stream->gpu);
    mpath_device_result_t result;

    if (status != MPATH_OK) {
        return status;
    }
    result = mpath_device()->graph_launch(repeat->graph, repeat->stream->native);
    mpath_gpu_leave(repeat->stream->gpu);
    if (result != MPATH_DEVICE_DONE) {
        mpath_error("GPU %d (%s), stream %u: a kernel does not start: %s: %s", gpu->info.ordinal, gpu->info.pci,
                    repeat->stream->index, mpath_device()->failed_call(), mpath_device_error_string(result));
        return mpath_device_status(result);
    }
    mpath_gpu_usage_launch(repeat->ctas);
    return MPATH_OK;
}

void mpath_repeat_destroy(mpath_repeat_t *repeat)
{
    if (repeat == NULL) {
        return;
    }
    if (mpath_gpu_available() && (mpath_gpu_enter(repeat->stream->gpu) == MPATH_OK)) {
        mpath_device()->graph_end(repeat->graph);
        mpath_gpu_leave(repeat->stream->gpu);
    }
    free(repeat);
}
