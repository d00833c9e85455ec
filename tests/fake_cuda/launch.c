/* SPDX-License-Identifier: BSD-3-Clause */
/* Modules, launches of their kernels, and graphs of one kernel. */
#include "fake.h"

#include <stdlib.h>
#include <string.h>

/* A function of a module: it runs in the context in which that was loaded. */
typedef struct fake_function {
    struct mpath_device_function function; /* first */
    fake_origin_t origin;
    struct fake_function *next;
} fake_function_t;

struct mpath_device_module {
    fake_origin_t origin;
    fake_function_t *functions;
};

FAKE_API mpath_cu_result_t cuModuleLoadData(mpath_cu_module_t *module, const void *image)
{
    struct mpath_device_module *loaded;

    (void)image;
    fake_need_context("cuModuleLoadData");
    if (fake_without("kernels")) {
        return MPATH_CU_NO_BINARY_FOR_GPU;
    }
    loaded = calloc(1, sizeof(*loaded));
    fake_origin_make(&loaded->origin, "cuModuleLoadData");
    *module = loaded;
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuModuleUnload(mpath_cu_module_t module)
{
    fake_function_t *next;

    fake_origin_check(&module->origin, "cuModuleUnload");
    fake_drain(NULL);
    for (fake_function_t *function = module->functions; function != NULL; function = next) {
        next = function->next;
        free(function);
    }
    fake_origin_drop(&module->origin);
    free(module);
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuModuleGetFunction(mpath_cu_function_t *function, mpath_cu_module_t module,
                                               const char *name)
{
    const struct mpath_device_function *found = fake_kernel(name);
    fake_function_t *got;

    fake_origin_check(&module->origin, "cuModuleGetFunction");
    if (found == NULL) {
        return MPATH_CU_NOT_FOUND;
    }
    got           = calloc(1, sizeof(*got));
    got->function = *found;
    got->origin   = module->origin;
    *function     = &got->function;
    pthread_mutex_lock(&fake_lock);
    got->next         = module->functions;
    module->functions = got;
    pthread_mutex_unlock(&fake_lock);
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuLaunchKernel(mpath_cu_function_t function, unsigned grid_x, unsigned grid_y,
                                          unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                                          unsigned shared_bytes, mpath_cu_stream_t stream, void **arguments,
                                          void **extra)
{
    const fake_origin_t *origin = &((const fake_function_t *)function)->origin;

    fake_origin_check(origin, "cuLaunchKernel");
    if ((grid_x == 0) || (grid_y != 1) || (grid_z != 1) || (block_x == 0) || (block_x > 1024) || (block_y != 1) ||
        (block_z != 1) || (extra != NULL) || (shared_bytes > 48 << 10)) {
        fake_die("%s is launched in a shape that is out of bounds or not faked", function->name);
    }
    return fake_enqueue_kernel(stream, origin->context, function, arguments[0], grid_x, block_x);
}

/* A graph is one kernel here. */
struct CUgraph_st {
    mpath_cu_kernel_node_t kernel;
    void *arguments; /* a copy; NULL: there is no node yet */
};

struct mpath_device_graph {
    struct CUgraph_st graph;
    fake_origin_t origin;
};

static void graph_copy(struct CUgraph_st *to, const mpath_cu_kernel_node_t *kernel, const void *arguments)
{
    to->kernel    = *kernel;
    to->arguments = malloc(kernel->function->arguments_bytes);
    memcpy(to->arguments, arguments, kernel->function->arguments_bytes);
}

FAKE_API mpath_cu_result_t cuGraphCreate(mpath_cu_graph_t *graph, unsigned flags)
{
    fake_need_context("cuGraphCreate");
    if (fake_without("graphs")) {
        return MPATH_CU_NOT_SUPPORTED;
    }
    if (flags != 0) {
        return MPATH_CU_INVALID_VALUE;
    }
    *graph = calloc(1, sizeof(**graph));
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuGraphAddKernelNode(mpath_cu_graph_node_t *node, mpath_cu_graph_t graph,
                                                const mpath_cu_graph_node_t *after, size_t after_count,
                                                const mpath_cu_kernel_node_t *kernel)
{
    (void)after;
    if ((after_count != 0) || (graph->arguments != NULL)) {
        fake_die("graphs of one kernel are faked, this one has more");
    }
    graph_copy(graph, kernel, kernel->arguments[0]);
    *node = NULL;
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuGraphInstantiateWithFlags(mpath_cu_graph_exec_t *exec, mpath_cu_graph_t graph,
                                                       unsigned long long flags)
{
    fake_need_context("cuGraphInstantiateWithFlags");
    if ((flags != 0) || (graph->arguments == NULL)) {
        return MPATH_CU_INVALID_VALUE;
    }
    *exec = calloc(1, sizeof(**exec));
    fake_origin_make(&(*exec)->origin, "cuGraphInstantiateWithFlags");
    graph_copy(&(*exec)->graph, &graph->kernel, graph->arguments);
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuGraphLaunch(mpath_cu_graph_exec_t exec, mpath_cu_stream_t stream)
{
    const mpath_cu_kernel_node_t *kernel = &exec->graph.kernel;

    fake_origin_check(&exec->origin, "cuGraphLaunch");
    return cuLaunchKernel(kernel->function, kernel->grid_x, kernel->grid_y, kernel->grid_z, kernel->block_x,
                          kernel->block_y, kernel->block_z, kernel->shared_bytes, stream, &exec->graph.arguments, NULL);
}

FAKE_API mpath_cu_result_t cuGraphExecDestroy(mpath_cu_graph_exec_t exec)
{
    fake_origin_check(&exec->origin, "cuGraphExecDestroy");
    fake_origin_drop(&exec->origin);
    free(exec->graph.arguments);
    free(exec);
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuGraphDestroy(mpath_cu_graph_t graph)
{
    free(graph->arguments);
    free(graph);
    return MPATH_CU_SUCCESS;
}
