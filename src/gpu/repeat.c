/* SPDX-License-Identifier: BSD-3-Clause */
/* Graphs of one kernel. */
#include "gpu/repeat.h"
#include "gpu/private.h"
#include "gpu/usage.h"

#include <stdlib.h>

struct mpath_repeat {
    mpath_stream_t *stream;
    mpath_cu_graph_exec_t exec;
    unsigned ctas;
};

/* In the context. */
static mpath_cu_result_t repeat_instantiate(const mpath_cu_kernel_node_t *kernel, mpath_cu_graph_exec_t *exec_p)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    mpath_cu_graph_node_t node;
    mpath_cu_graph_t graph;
    mpath_cu_result_t result = cu->GraphCreate(&graph, 0);

    if (result != MPATH_CU_SUCCESS) {
        return result;
    }
    result = cu->GraphAddKernelNode(&node, graph, NULL, 0, kernel);
    if (result == MPATH_CU_SUCCESS) {
        result = cu->GraphInstantiate(exec_p, graph, 0);
    }
    cu->GraphDestroy(graph);
    return result;
}

mpath_status_t mpath_repeat_create(mpath_stream_t *stream, mpath_cu_function_t function, const void *arguments,
                                   unsigned ctas, unsigned threads, mpath_repeat_t **repeat_p)
{
    const mpath_cu_t *cu                = mpath_gpu_driver();
    void *pointers[]                    = {(void *)(uintptr_t)arguments};
    const mpath_cu_kernel_node_t kernel = {.function  = function,
                                           .grid_x    = ctas,
                                           .grid_y    = 1,
                                           .grid_z    = 1,
                                           .block_x   = threads,
                                           .block_y   = 1,
                                           .block_z   = 1,
                                           .arguments = pointers};
    mpath_repeat_t *repeat;
    mpath_cu_result_t result;
    mpath_status_t status;

    if ((cu->GraphCreate == NULL) || (cu->GraphAddKernelNode == NULL) || (cu->GraphInstantiate == NULL) ||
        (cu->GraphLaunch == NULL) || (cu->GraphExecDestroy == NULL) || (cu->GraphDestroy == NULL)) {
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
    result = repeat_instantiate(&kernel, &repeat->exec);
    mpath_gpu_leave(stream->gpu);
    if (result != MPATH_CU_SUCCESS) {
        mpath_debug("GPU %d: no graph of a kernel: %s; it is launched anew each time", stream->gpu->info.ordinal,
                    mpath_cu_error_string(result));
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
    mpath_cu_result_t result;

    if (status != MPATH_OK) {
        return status;
    }
    result = mpath_gpu_driver()->GraphLaunch(repeat->exec, repeat->stream->native);
    mpath_gpu_leave(repeat->stream->gpu);
    if (result != MPATH_CU_SUCCESS) {
        mpath_error("GPU %d (%s), stream %u: a kernel does not start: cuGraphLaunch: %s", gpu->info.ordinal,
                    gpu->info.pci, repeat->stream->index, mpath_cu_error_string(result));
        return mpath_cu_status(result);
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
        mpath_gpu_driver()->GraphExecDestroy(repeat->exec);
        mpath_gpu_leave(repeat->stream->gpu);
    }
    free(repeat);
}
