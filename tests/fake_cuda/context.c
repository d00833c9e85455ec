/* SPDX-License-Identifier: BSD-3-Clause */
/* Contexts: primary ones, those that applications make, and their end. */
#include "fake.h"

#define STACK_MAX 32
#define CREATED_MAX 8

static struct mpath_device_context primaries[FAKE_DEVICES_MAX];
static struct mpath_device_context made[CREATED_MAX]; /* retained while they exist */

static _Thread_local struct {
    mpath_cu_context_t at[STACK_MAX];
    int depth;
} stack;

/* Streams that applications capture; no work is recorded. */
static atomic_int captures;
#define FAKE_CAPTURED_IMPLICITLY 906   /* of the default stream: an ordinary one is captured */
static _Thread_local int capture_mode; /* 0: what could belong to any capture is forbidden in this thread */

mpath_cu_context_t fake_current(void)
{
    return (stack.depth > 0) ? stack.at[stack.depth - 1] : NULL;
}

mpath_cu_context_t fake_need_context(const char *call)
{
    mpath_cu_context_t context = fake_current();

    if (context == NULL) {
        fake_die("%s without a current context", call);
    }
    if (context->ended) {
        fake_die("%s in a context that has ended", call);
    }
    if ((atomic_load(&captures) > 0) && (capture_mode != MPATH_CU_CAPTURE_RELAXED)) {
        fake_die("%s while a stream is captured, which fails with that", call);
    }
    return context;
}

static fake_origin_t *origins;

void fake_origin_make(fake_origin_t *origin, const char *call)
{
    const struct mpath_device_context *context = fake_need_context(call);

    pthread_mutex_lock(&fake_lock);
    *origin = (fake_origin_t){.next = origins, .context = context, .life = context->life};
    origins = origin;
    pthread_mutex_unlock(&fake_lock);
}

void fake_origin_drop(fake_origin_t *origin)
{
    fake_origin_t **at;

    pthread_mutex_lock(&fake_lock);
    for (at = &origins; *at != origin; at = &(*at)->next) {
    }
    *at = origin->next;
    pthread_mutex_unlock(&fake_lock);
}

void fake_origin_check(const fake_origin_t *origin, const char *call)
{
    if (origin->life != origin->context->life) {
        fake_die("%s with a handle of a context that has ended since", call);
    }
}

FAKE_API mpath_cu_result_t cuThreadExchangeStreamCaptureMode(int *mode)
{
    int before = capture_mode;

    capture_mode = *mode;
    *mode        = before;
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuStreamBeginCapture_v2(mpath_cu_stream_t stream, int mode)
{
    (void)stream;
    atomic_fetch_add(&captures, mode == 0);
    return MPATH_CU_SUCCESS;
}

void fake_default_stream_is_free(const char *call)
{
    if (atomic_load(&captures) > 0) {
        fake_die("%s on the default stream while an ordinary one is captured, which fails with that", call);
    }
}

FAKE_API mpath_cu_result_t cuStreamIsCapturing(mpath_cu_stream_t stream, int *status)
{
    *status = 0;
    return ((stream == NULL) && (atomic_load(&captures) > 0)) ? FAKE_CAPTURED_IMPLICITLY : MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuStreamEndCapture(mpath_cu_stream_t stream, mpath_cu_graph_t *graph)
{
    (void)stream;
    atomic_fetch_sub(&captures, 1);
    *graph = NULL;
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuDevicePrimaryCtxRetain(mpath_cu_context_t *context, mpath_cu_device_t device)
{
    if (!fake_ready()) {
        return MPATH_CU_NOT_INITIALIZED;
    }
    if ((device < 0) || (device >= fake_devices())) {
        return MPATH_CU_INVALID_DEVICE;
    }
    pthread_mutex_lock(&fake_lock);
    primaries[device].device = device;
    primaries[device].retained++;
    primaries[device].ended = 0;
    pthread_mutex_unlock(&fake_lock);
    *context = &primaries[device];
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuDevicePrimaryCtxRelease_v2(mpath_cu_device_t device)
{
    pthread_mutex_lock(&fake_lock);
    if (primaries[device].retained-- <= 0) {
        fake_die("the primary context of device %d is released more often than retained", device);
    }
    pthread_mutex_unlock(&fake_lock);
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuDevicePrimaryCtxGetState(mpath_cu_device_t device, unsigned *flags, int *active)
{
    *flags  = 0;
    *active = (primaries[device].retained > 0) && !primaries[device].ended;
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuCtxGetCurrent(mpath_cu_context_t *context)
{
    if (!fake_ready()) {
        return MPATH_CU_NOT_INITIALIZED;
    }
    *context = fake_current();
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuCtxPushCurrent_v2(mpath_cu_context_t context);

static void check_context(mpath_cu_context_t context, const char *call)
{
    int primary = (context >= primaries) && (context < primaries + fake_devices());
    int created = (context >= made) && (context < made + CREATED_MAX);

    if ((!primary && !created) || (context->retained == 0)) {
        fake_die("%s of a context that does not exist (any more)", call);
    }
}

/* mpath makes no contexts; applications do. */
FAKE_API mpath_cu_result_t cuCtxCreate_v2(mpath_cu_context_t *context, unsigned flags, mpath_cu_device_t device)
{
    int index;

    (void)flags;
    for (index = 0; index < CREATED_MAX; index++) {
        if (made[index].retained == 0) {
            made[index] = (struct mpath_device_context){.device = device, .retained = 1, .life = made[index].life};
            *context    = &made[index];
            return cuCtxPushCurrent_v2(*context);
        }
    }
    return MPATH_CU_OUT_OF_MEMORY;
}

/* All that was made in it is gone; but other processes keep the memory of it that they have opened. */
static void end(mpath_cu_context_t context)
{
    fake_drain(context);
    context->life++;
    context->peers = 0;
    fake_forget_memory(context);
}

/*
 * What cudaDeviceReset does. Threads keep the handle, as current as it was, and it is good again once somebody retains
 * the context, as the CUDA runtime does in the application's next call.
 */
FAKE_API mpath_cu_result_t cuDevicePrimaryCtxReset_v2(mpath_cu_device_t device)
{
    if ((device < 0) || (device >= fake_devices())) {
        return MPATH_CU_INVALID_DEVICE;
    }
    end(&primaries[device]);
    primaries[device].ended = 1;
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuCtxDestroy_v2(mpath_cu_context_t context)
{
    check_context(context, "cuCtxDestroy");
    end(context);
    if (fake_current() == context) {
        stack.depth--;
    }
    context->retained = 0;
    return MPATH_CU_SUCCESS;
}

static atomic_uint flushes;

FAKE_API mpath_cu_result_t cuFlushGPUDirectRDMAWrites(int target, int scope)
{
    mpath_cu_context_t context;

    if ((cuCtxGetCurrent(&context) != MPATH_CU_SUCCESS) || (context == NULL)) {
        return MPATH_CU_INVALID_CONTEXT;
    }
    if ((target != MPATH_CU_RDMA_FLUSH_CURRENT) || (scope != MPATH_CU_RDMA_FLUSH_TO_OWNER)) {
        return MPATH_CU_INVALID_VALUE;
    }
    atomic_fetch_add(&flushes, 1);
    return MPATH_CU_SUCCESS;
}

/* For tests: how often writes of NICs were flushed. */
FAKE_API unsigned fake_cuda_flushes(void)
{
    return atomic_load(&flushes);
}

FAKE_API mpath_cu_result_t cuCtxSetCurrent(mpath_cu_context_t context)
{
    if (context == NULL) {
        stack.depth -= (stack.depth > 0);
        return MPATH_CU_SUCCESS;
    }
    check_context(context, "cuCtxSetCurrent");
    stack.depth += (stack.depth == 0);
    stack.at[stack.depth - 1] = context;
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuCtxPushCurrent_v2(mpath_cu_context_t context)
{
    check_context(context, "cuCtxPushCurrent");
    if (stack.depth == STACK_MAX) {
        fake_die("cuCtxPushCurrent without end");
    }
    stack.at[stack.depth++] = context;
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuCtxPopCurrent_v2(mpath_cu_context_t *context)
{
    if (stack.depth == 0) {
        fake_die("cuCtxPopCurrent without a current context");
    }
    *context = stack.at[--stack.depth];
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuCtxGetDevice(mpath_cu_device_t *device)
{
    if (fake_current() == NULL) {
        return MPATH_CU_INVALID_CONTEXT;
    }
    *device = fake_current()->device;
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuCtxSynchronize(void)
{
    if (atomic_load(&captures) > 0) {
        fake_die("cuCtxSynchronize while a stream is captured, which fails with that");
    }
    fake_drain(fake_need_context("cuCtxSynchronize"));
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuCtxEnablePeerAccess(mpath_cu_context_t peer, unsigned flags)
{
    mpath_cu_context_t context = fake_need_context("cuCtxEnablePeerAccess");

    (void)flags;
    check_context(peer, "cuCtxEnablePeerAccess");
    if (fake_without("peers")) {
        return MPATH_CU_PEER_UNSUPPORTED;
    }
    if (context->peers & (UINT32_C(1) << peer->device)) {
        return MPATH_CU_PEER_ALREADY_ENABLED;
    }
    context->peers |= UINT32_C(1) << peer->device;
    return MPATH_CU_SUCCESS;
}
