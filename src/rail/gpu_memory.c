/* SPDX-License-Identifier: BSD-3-Clause */
/* Rails that read and write GPU memory themselves: what is registered, and how send and take tell UCX of it. */
#include "rail/gpu_memory.h"

#include "device/gpu.h"
#include "device/pinned.h"
#include "device/usage.h"
#include "rail/rail_private.h"
#include "util/log.h"
#include "util/time.h"

#include <dirent.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

/* GPUDirect RDMA: asks UCX for the kinds of memory that it knows, and the system for devices and modules. */

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

int mpath_rail_memory_usable(const mpath_lane_t *lane)
{
    const rail_t *rail = (const rail_t *)lane;

    return rail->has_cuda && (rail->worker != NULL);
}

static rail_region_t *region_at(const rail_t *rail, uint64_t address)
{
    rail_region_t *region = rail->regions;

    while ((region != NULL) && ((address < region->address) || (address >= region->address + region->bytes) ||
                                mpath_gpu_is_lost(region->gpu))) {
        region = region->next;
    }
    return region;
}

static void region_free(rail_t *rail, rail_region_t **link)
{
    rail_region_t *region = *link;

    *link = region->next;
    (void)ucp_mem_unmap(rail->context, region->memh);
    free(region);
}

/* What is allocated next may have their addresses. */
static void drop_lost(rail_t *rail)
{
    rail_region_t **link = &rail->regions;

    while (*link != NULL) {
        if (mpath_gpu_is_lost((*link)->gpu)) {
            region_free(rail, link);
        } else {
            link = &(*link)->next;
        }
    }
}

mpath_status_t mpath_rail_memory_add(mpath_lane_t *lane, const mpath_gpu_t *gpu, mpath_device_ptr_t address,
                                     size_t bytes)
{
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                                                 UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE,
                                   .address     = (void *)(uintptr_t)address,
                                   .length      = bytes,
                                   .memory_type = UCS_MEMORY_TYPE_CUDA};
    rail_t *rail                = (rail_t *)lane;
    rail_region_t *region;
    ucs_status_t status;

    if (!mpath_rail_memory_usable(lane)) {
        return MPATH_ERR_UNSUPPORTED;
    }
    drop_lost(rail);
    if (region_at(rail, address) != NULL) {
        return MPATH_OK;
    }
    region = malloc(sizeof(*region));
    if (region == NULL) {
        mpath_error("rail %s: no memory to note that it knows memory of a GPU", rail->nic);
        return MPATH_ERR_NO_MEMORY;
    }
    *region = (rail_region_t){.next = rail->regions, .gpu = gpu, .address = address, .bytes = bytes};
    status  = ucp_mem_map(rail->context, &params, &region->memh);
    if (status != UCS_OK) {
        mpath_info_by(
            mpath_log_speaks(),
            "rail %s: UCX does not register %zu bytes of GPU memory: %s; its device memory goes through pinned "
            "host slots",
            rail->nic, bytes, ucs_status_string(status));
        free(region);
        return MPATH_ERR_UNSUPPORTED;
    }
    rail->regions = region;
    return MPATH_OK;
}

void mpath_rail_memory_remove(mpath_lane_t *lane, const mpath_gpu_t *gpu, mpath_device_ptr_t address)
{
    rail_t *rail         = (rail_t *)lane;
    rail_region_t **link = &rail->regions;

    while ((*link != NULL) && (((*link)->gpu != gpu) || ((*link)->address != address))) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        region_free(rail, link);
    }
}

void rail_memory_drop(rail_t *rail)
{
    while (rail->regions != NULL) {
        region_free(rail, &rail->regions);
    }
}

int rail_memory_is_gpu(const rail_t *rail, const void *address)
{
    return region_at(rail, (uint64_t)(uintptr_t)address) != NULL;
}

/* UCX would ask the driver about every address that it is not told of. */
int rail_memory_describe(const rail_t *rail, const void *address, ucp_request_param_t *params)
{
    const rail_region_t *region;

    if (!rail->has_cuda) {
        return 0;
    }
    region = region_at(rail, (uint64_t)(uintptr_t)address);
    params->op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    params->memory_type = UCS_MEMORY_TYPE_HOST;
    if (region != NULL) {
        params->op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
        params->memory_type = UCS_MEMORY_TYPE_CUDA;
        params->memh        = region->memh;
    }
    return region != NULL;
}

/*
 * The trial of a rail that may read and write GPU memory: a message to this process itself, from GPU memory to GPU
 * memory, compared on the host. It has a number of active messages of its own and an endpoint of its own, so that it
 * meets no chunk. What UCX does not let go of within seconds keeps its memory for ever, and the rail leaves GPU memory
 * alone from then on.
 */

#define TRIAL_BYTES 8192u
#define TRIAL_NS (3 * MPATH_NS_PER_S)
#define CLOSE_NS MPATH_NS_PER_S

struct rail_trial {
    rail_t *rail;
    mpath_stream_t *stream;
    mpath_device_ptr_t memory; /* [2][TRIAL_BYTES]: from, to */
    mpath_pinned_t host;       /* the same on the host */
    ucp_ep_h ep;
    void *descriptor;                /* of what has arrived and is not being fetched */
    int awaited;                     /* not arrived and fetched yet */
    int to_send, to_fetch, to_close; /* requests under way */
    ucs_status_t failed;
    const char *reason;
};

/* -- memory -- */

static mpath_status_t copy(rail_trial_t *trial, mpath_device_ptr_t to, mpath_device_ptr_t from, size_t bytes)
{
    mpath_mark_t mark;
    mpath_status_t status = mpath_stream_copy(trial->stream, to, from, bytes);

    if (status == MPATH_OK) {
        status = mpath_stream_mark(trial->stream, &mark);
    }
    return (status == MPATH_OK) ? mpath_stream_finish(trial->stream, mark, TRIAL_NS, "the trial of a rail") : status;
}

static unsigned char pattern(size_t i)
{
    return (unsigned char)((i * 2654435761u) >> 13);
}

static mpath_status_t memory_make(rail_trial_t *trial)
{
    mpath_gpu_t *gpu      = mpath_stream_gpu(trial->stream);
    mpath_status_t status = mpath_pinned_alloc(gpu, 2 * TRIAL_BYTES, &trial->host);
    unsigned char *bytes  = trial->host.base;

    if (status != MPATH_OK) {
        return status;
    }
    for (size_t i = 0; i < TRIAL_BYTES; i++) {
        bytes[i]               = pattern(i);
        bytes[TRIAL_BYTES + i] = (unsigned char)~pattern(i);
    }
    status = mpath_gpu_enter(gpu);
    if (status == MPATH_OK) {
        status = mpath_device_status(mpath_gpu_memory_take(&trial->memory, 2 * TRIAL_BYTES));
        mpath_gpu_leave(gpu);
    }
    if (status == MPATH_OK) {
        status = copy(trial, trial->memory, trial->host.device_base, 2 * TRIAL_BYTES);
    }
    return status;
}

static void memory_free(rail_trial_t *trial)
{
    mpath_gpu_memory_give(mpath_stream_gpu(trial->stream), trial->memory, 2 * TRIAL_BYTES);
    mpath_pinned_release(&trial->host);
}

/* -- the message -- */

ucs_status_t rail_trial_arrived(void *argument, const void *header, size_t header_bytes, void *data, size_t bytes,
                                const ucp_am_recv_param_t *param)
{
    rail_t *rail        = argument;
    rail_trial_t *trial = rail->trial;

    if ((header_bytes != sizeof(rail->uid)) || (memcmp(header, &rail->uid, sizeof(rail->uid)) != 0)) {
        rail_note_stranger(rail);
        return UCS_OK;
    }
    if (trial == NULL) {
        return UCS_OK; /* it was given up */
    }
    if ((bytes != TRIAL_BYTES) || !(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
        trial->failed = UCS_ERR_INVALID_PARAM;
        return UCS_OK;
    }
    trial->descriptor = data;
    return UCS_INPROGRESS;
}

static void sent(void *request, ucs_status_t status, void *user_data)
{
    rail_trial_t *trial = user_data;

    ucp_request_free(request);
    trial->to_send = 0;
    trial->failed  = (status != UCS_OK) ? status : trial->failed;
}

static void fetched(void *request, ucs_status_t status, size_t bytes, void *user_data)
{
    rail_trial_t *trial = user_data;

    (void)bytes;
    ucp_request_free(request);
    trial->to_fetch = 0;
    trial->awaited  = 0;
    trial->failed   = (status != UCS_OK) ? status : trial->failed;
}

static void closed(void *request, ucs_status_t status, void *user_data)
{
    (void)status;
    ucp_request_free(request);
    ((rail_trial_t *)user_data)->to_close = 0;
}

static void ep_failed(void *argument, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    ((rail_trial_t *)argument)->failed = status;
}

/* Requests that end at once have no callback. */
static int is_under_way(rail_trial_t *trial, ucs_status_ptr_t request)
{
    if (UCS_PTR_IS_PTR(request)) {
        return 1;
    }
    trial->failed = (UCS_PTR_STATUS(request) != UCS_OK) ? UCS_PTR_STATUS(request) : trial->failed;
    return 0;
}

static void send_it(rail_trial_t *trial)
{
    ucp_ep_params_t ep = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                        UCP_EP_PARAM_FIELD_ERR_HANDLER,
                          .address     = (const ucp_address_t *)(trial->rail->address + 1),
                          .err_mode    = UCP_ERR_HANDLING_MODE_PEER,
                          .err_handler = {.cb = ep_failed, .arg = trial}};
    ucp_request_param_t params = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                                                  UCP_OP_ATTR_FIELD_FLAGS,
                                  .flags     = UCP_AM_SEND_FLAG_RNDV,
                                  .cb        = {.send = sent},
                                  .user_data = trial};
    const void *from           = (const void *)(uintptr_t)trial->memory;
    ucs_status_t status        = ucp_ep_create(trial->rail->worker, &ep, &trial->ep);

    if (status != UCS_OK) {
        trial->ep     = NULL;
        trial->failed = status;
        return;
    }
    rail_memory_describe(trial->rail, from, &params);
    trial->awaited = 1;
    trial->to_send = 1;
    trial->to_send = is_under_way(trial, ucp_am_send_nbx(trial->ep, RAIL_TRIAL_AM_ID, &trial->rail->uid,
                                                         sizeof(trial->rail->uid), from, TRIAL_BYTES, &params));
}

static void fetch_it(rail_trial_t *trial)
{
    ucp_request_param_t params = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                  .cb           = {.recv_am = fetched},
                                  .user_data    = trial};
    void *to = (void *)(uintptr_t)(trial->memory + TRIAL_BYTES), *descriptor = trial->descriptor;

    trial->descriptor = NULL;
    rail_memory_describe(trial->rail, to, &params);
    trial->to_fetch = 1;
    trial->to_fetch = is_under_way(trial,
                                   ucp_am_recv_data_nbx(trial->rail->worker, descriptor, to, TRIAL_BYTES, &params));
    trial->awaited  = trial->to_fetch;
}

static void transfer(rail_trial_t *trial)
{
    uint64_t end_ns = mpath_time_ns() + TRIAL_NS;

    send_it(trial);
    while ((trial->failed == UCS_OK) && (trial->to_send || trial->awaited) && (mpath_time_ns() < end_ns)) {
        rail_poll(trial->rail);
        if (trial->descriptor != NULL) {
            fetch_it(trial);
        }
    }
    if (trial->failed != UCS_OK) {
        trial->reason = ucs_status_string(trial->failed);
    } else if (trial->to_send || trial->awaited) {
        trial->reason = "it does not end";
    }
}

/* Nonzero: nothing of the trial is left in UCX. */
static int end_transfer(rail_trial_t *trial)
{
    ucp_request_param_t params = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                                                  UCP_OP_ATTR_FIELD_FLAGS,
                                  .flags     = UCP_EP_CLOSE_FLAG_FORCE,
                                  .cb        = {.send = closed},
                                  .user_data = trial};
    uint64_t end_ns            = mpath_time_ns() + CLOSE_NS;

    if (trial->ep == NULL) {
        return 1;
    }
    if (trial->descriptor != NULL) {
        ucp_am_data_release(trial->rail->worker, trial->descriptor);
        trial->descriptor = NULL;
    }
    trial->to_close = 1;
    trial->to_close = UCS_PTR_IS_PTR(ucp_ep_close_nbx(trial->ep, &params));
    while ((trial->to_close || trial->to_send || trial->to_fetch) && (mpath_time_ns() < end_ns)) {
        rail_poll(trial->rail);
    }
    return !trial->to_close && !trial->to_send && !trial->to_fetch;
}

/* -- the verdict -- */

static void compare(rail_trial_t *trial)
{
    const unsigned char *bytes = trial->host.base;
    mpath_gpu_t *gpu           = mpath_stream_gpu(trial->stream);
    int needs_flush            = 0;

    if (mpath_gpu_needs_flush(gpu, &needs_flush) != MPATH_OK) {
        trial->reason = "the GPU does not order what NICs write, and the driver cannot flush it";
        return;
    }
    if ((needs_flush && (mpath_gpu_flush_writes(gpu) != MPATH_OK)) ||
        (copy(trial, trial->host.device_base, trial->memory, 2 * TRIAL_BYTES) != MPATH_OK)) {
        trial->reason = "the GPU reports an error";
        return;
    }
    for (size_t i = 0; (i < TRIAL_BYTES) && (trial->reason == NULL); i++) {
        trial->reason = (bytes[TRIAL_BYTES + i] != pattern(i)) ? "other bytes arrived than were sent" : NULL;
    }
}

/* `trial` is freed unless UCX may still use it. */
static void run(rail_trial_t *trial)
{
    mpath_gpu_t *gpu = mpath_stream_gpu(trial->stream);
    rail_t *rail     = trial->rail;
    int ended        = 1, entered;

    trial->reason = (memory_make(trial) == MPATH_OK) ? NULL : "no memory for it on the GPU";
    if ((trial->reason == NULL) && (mpath_gpu_enter(gpu) != MPATH_OK)) {
        trial->reason = "the GPU's context is gone";
    }
    entered = trial->reason == NULL;
    if ((trial->reason == NULL) &&
        (mpath_rail_memory_add(&rail->base, gpu, trial->memory, 2 * TRIAL_BYTES) != MPATH_OK)) {
        trial->reason = "UCX does not register GPU memory";
    }
    if (trial->reason == NULL) {
        transfer(trial);
        ended = end_transfer(trial);
    }
    if (entered) {
        mpath_gpu_leave(gpu);
    }
    if (trial->reason == NULL) {
        compare(trial);
    }
    rail->tried = (trial->reason == NULL) ? 1 : -1;
    if (trial->reason != NULL) {
        mpath_info_by(mpath_log_speaks(),
                      "rail %s: UCX knows CUDA memory, but a message from GPU to GPU memory did not come through: %s; "
                      "device memory goes through pinned host slots",
                      rail->nic, trial->reason);
    }
    rail->trial = NULL;
    if (ended) {
        mpath_rail_memory_remove(&rail->base, gpu, trial->memory);
        memory_free(trial);
        free(trial);
    } else {
        rail->has_cuda = 0;
    }
}

mpath_status_t mpath_rail_memory_try(mpath_lane_t *lane, mpath_stream_t *stream)
{
    rail_t *rail = (rail_t *)lane;

    if (!mpath_rail_memory_usable(lane)) {
        return MPATH_ERR_UNSUPPORTED;
    }
    if (rail->tried == 0) {
        rail->trial = calloc(1, sizeof(*rail->trial));
        if (rail->trial == NULL) {
            mpath_error("rail %s: no memory to try whether it reads GPU memory", rail->nic);
            return MPATH_ERR_NO_MEMORY;
        }
        rail->trial->rail   = rail;
        rail->trial->stream = stream;
        run(rail->trial);
    }
    return (rail->tried > 0) ? MPATH_OK : MPATH_ERR_UNSUPPORTED;
}
