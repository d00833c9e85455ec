/* SPDX-License-Identifier: BSD-3-Clause */
/* GPUDirect RDMA: asks UCX for the kinds of memory that it knows, and the system for devices and modules. */
#include "lane/rail_gpu.h"

#include "util/log.h"

#include <dirent.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

static pthread_once_t asked = PTHREAD_ONCE_INIT;
static int has_cuda;

static void ask_ucx(void)
{
    ucp_params_t params     = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_AM};
    ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};
    ucp_context_h context;
    ucp_config_t *config;
    ucs_status_t status;

    if (ucp_config_read(NULL, NULL, &config) != UCS_OK) {
        return;
    }
    status = ucp_init(&params, config, &context);
    ucp_config_release(config);
    if (status != UCS_OK) {
        return;
    }
    if (ucp_context_query(context, &attr) == UCS_OK) {
        has_cuda = (attr.memory_types & (UINT64_C(1) << UCS_MEMORY_TYPE_CUDA)) != 0;
    }
    ucp_cleanup(context);
}

int mpath_rail_gpu_ucx(void)
{
    pthread_once(&asked, ask_ucx);
    return has_cuda;
}

static int has_entries(const char *sys, const char *folder)
{
    char path[PATH_MAX];
    struct dirent *entry;
    int found = 0;
    DIR *dir;

    snprintf(path, sizeof(path), "%s/%s", sys, folder);
    dir = opendir(path);
    while ((dir != NULL) && !found && ((entry = readdir(dir)) != NULL)) {
        found = entry->d_name[0] != '.';
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return found;
}

static int exists(const char *sys, const char *file)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", sys, file);
    return access(path, F_OK) == 0;
}

mpath_rail_gpu_t mpath_rail_gpu_judge(int ucx_has, int rdma, int module)
{
    if (!ucx_has) {
        return MPATH_RAIL_GPU_NO_CUDA;
    }
    if (!rdma) {
        return MPATH_RAIL_GPU_NO_RDMA;
    }
    return module ? MPATH_RAIL_GPU_DIRECT : MPATH_RAIL_GPU_NO_MODULE;
}

static int has_rdma(const char *sys)
{
    return has_entries(sys, "class/infiniband");
}

static int has_module(const char *sys)
{
    return exists(sys, "module/nvidia_peermem") || exists(sys, "kernel/mm/memory_peers/nv_mem");
}

mpath_rail_gpu_t mpath_rail_gpu_find(const char *sys)
{
    return mpath_rail_gpu_judge(mpath_rail_gpu_ucx(), has_rdma(sys), has_module(sys));
}

int mpath_rail_gpu_can(const char *sys)
{
    return has_rdma(sys) && has_module(sys) && mpath_rail_gpu_ucx();
}

const char *mpath_rail_gpu_text(mpath_rail_gpu_t what)
{
    switch (what) {
    case MPATH_RAIL_GPU_NO_CUDA:
        return "pinned host slots; the UCX at hand does not know CUDA memory";
    case MPATH_RAIL_GPU_NO_RDMA:
        return "pinned host slots; UCX knows CUDA memory, but there is no RDMA device";
    case MPATH_RAIL_GPU_NO_MODULE:
        return "pinned host slots; UCX knows CUDA memory, but the kernel registers none with NICs (nvidia_peermem)";
    default:
        return "GPUDirect RDMA";
    }
}
