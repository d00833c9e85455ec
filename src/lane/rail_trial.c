/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The trial of a rail that may read and write GPU memory: a message to this process itself, from GPU memory to GPU
 * memory, compared on the host. It has a number of active messages of its own and an endpoint of its own, so that it
 * meets no chunk. What UCX does not let go of within seconds keeps its memory for ever, and the rail leaves GPU memory
 * alone from then on.
 */
#include "gpu/direct.h"
#include "gpu/pinned.h"
#include "gpu/usage.h"
#include "lane/rail_memory.h"
#include "lane/rail_private.h"
#include "util/log.h"
#include "util/time.h"

#include <stdlib.h>
#include <string.h>

#define TRIAL_BYTES 8192u
#define TRIAL_NS (3 * MPATH_NS_PER_S)
#define CLOSE_NS MPATH_NS_PER_S

struct rail_trial {
    rail_t *rail;
    mpath_stream_t *stream;
    mpath_cu_ptr_t memory; /* [2][TRIAL_BYTES]: from, to */
    mpath_pinned_t host;   /* the same on the host */
    ucp_ep_h ep;
    void *descriptor;                /* of what has arrived and is not being fetched */
    int awaited;                     /* not arrived and fetched yet */
    int to_send, to_fetch, to_close; /* requests under way */
    ucs_status_t failed;
    const char *reason;
};

/* -- memory -- */

static mpath_status_t copy(rail_trial_t *trial, mpath_cu_ptr_t to, mpath_cu_ptr_t from, size_t bytes)
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
        status = mpath_cu_status(mpath_gpu_memory_take(&trial->memory, 2 * TRIAL_BYTES));
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
    rail_trial_t *trial = ((rail_t *)argument)->trial;

    (void)header;
    (void)header_bytes;
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
    trial->to_send = is_under_way(trial,
                                  ucp_am_send_nbx(trial->ep, RAIL_TRIAL_AM_ID, NULL, 0, from, TRIAL_BYTES, &params));
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
        ucp_worker_progress(trial->rail->worker);
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
        ucp_worker_progress(trial->rail->worker);
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
        mpath_info("rail %s: UCX knows CUDA memory, but a message from GPU to GPU memory did not come through: %s; "
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
