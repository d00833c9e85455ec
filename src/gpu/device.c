/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices of this process, and one object per device and context, made on first use. */
#include "gpu/private.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Contexts that one thread may have entered one inside the other. */
#define GPU_NESTING_MAX 8

static struct {
    pthread_mutex_t lock;
    mpath_gpu_t *first;
    int made; /* objects so far */
} gpus = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Entering what is entered already costs no driver call. */
static _Thread_local struct {
    mpath_gpu_t *gpu[GPU_NESTING_MAX];
    unsigned times[GPU_NESTING_MAX];
    int capture_modes[GPU_NESTING_MAX]; /* of the thread before */
    unsigned depth;
} gpu_entered;

void mpath_gpu_lock(void)
{
    pthread_mutex_lock(&gpus.lock);
}

void mpath_gpu_unlock(void)
{
    pthread_mutex_unlock(&gpus.lock);
}

int mpath_gpu_count(void)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    int count;

    if ((cu == NULL) || (cu->DeviceGetCount(&count) != MPATH_CU_SUCCESS)) {
        return 0;
    }
    return (count < MPATH_GPU_DEVICES_MAX) ? count : MPATH_GPU_DEVICES_MAX;
}

static int gpu_attribute(const mpath_cu_t *cu, mpath_cu_device_t device, int attribute, int otherwise)
{
    int value;

    return (cu->DeviceGetAttribute(&value, attribute, device) == MPATH_CU_SUCCESS) ? value : otherwise;
}

mpath_status_t mpath_gpu_info(int ordinal, mpath_gpu_info_t *info)
{
    const mpath_cu_t *cu  = mpath_gpu_driver();
    mpath_gpu_info_t made = {.ordinal = ordinal};
    mpath_cu_result_t result;
    mpath_cu_device_t device;
    size_t bytes;

    if ((cu == NULL) || (ordinal < 0) || (ordinal >= mpath_gpu_count())) {
        mpath_error("there is no GPU %d: the CUDA driver shows %d", ordinal, mpath_gpu_count());
        return MPATH_ERR_PARAM;
    }
    result = cu->DeviceGet(&device, ordinal);
    if (result == MPATH_CU_SUCCESS) {
        result = cu->DeviceGetUuid(&made.uuid, device);
    }
    if (result == MPATH_CU_SUCCESS) {
        result = cu->DeviceGetName(made.name, (int)sizeof(made.name), device);
    }
    if (result == MPATH_CU_SUCCESS) {
        result            = cu->DeviceTotalMem(&bytes, device);
        made.memory_bytes = bytes;
    }
    if (result != MPATH_CU_SUCCESS) {
        mpath_error("GPU %d cannot be described: %s", ordinal, mpath_cu_error_string(result));
        return mpath_cu_status(result);
    }
    snprintf(made.pci, sizeof(made.pci), "%04x:%02x:%02x.0",
             (unsigned)gpu_attribute(cu, device, MPATH_CU_DEV_PCI_DOMAIN, 0) & 0xffff,
             (unsigned)gpu_attribute(cu, device, MPATH_CU_DEV_PCI_BUS, 0) & 0xff,
             (unsigned)gpu_attribute(cu, device, MPATH_CU_DEV_PCI_DEVICE, 0) & 0xff);
    made.capability = 10 * gpu_attribute(cu, device, MPATH_CU_DEV_CAPABILITY_MAJOR, 0) +
                      gpu_attribute(cu, device, MPATH_CU_DEV_CAPABILITY_MINOR, 0);
    made.multiprocessors = gpu_attribute(cu, device, MPATH_CU_DEV_MULTIPROCESSORS, 1);
    made.copy_engines    = gpu_attribute(cu, device, MPATH_CU_DEV_COPY_ENGINES, 1);
    made.numa            = gpu_attribute(cu, device, MPATH_CU_DEV_HOST_NUMA, -1);
    made.pools           = gpu_attribute(cu, device, MPATH_CU_DEV_POOLS, 0) && (cu->MemPoolCreate != NULL);
    made.mps             = gpu_attribute(cu, device, MPATH_CU_DEV_MPS, -1);
    *info                = made;
    return MPATH_OK;
}

int mpath_gpu_find(const mpath_cu_uuid_t *uuid)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    mpath_cu_device_t device;
    mpath_cu_uuid_t other;
    int ordinal, count = mpath_gpu_count();

    for (ordinal = 0; ordinal < count; ordinal++) {
        if ((cu->DeviceGet(&device, ordinal) == MPATH_CU_SUCCESS) &&
            (cu->DeviceGetUuid(&other, device) == MPATH_CU_SUCCESS) && (memcmp(&other, uuid, sizeof(other)) == 0)) {
            return ordinal;
        }
    }
    return -1;
}

/* Retains the primary context when `context` is that one, or NULL; another is used as it is. */
static mpath_cu_result_t gpu_take_context(mpath_gpu_t *gpu, mpath_cu_context_t context)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    mpath_cu_context_t primary;
    mpath_cu_result_t result;
    unsigned flags;
    int active = 0;

    gpu->context = context;
    if ((context != NULL) &&
        ((cu->DevicePrimaryCtxGetState(gpu->device, &flags, &active) != MPATH_CU_SUCCESS) || !active)) {
        return MPATH_CU_SUCCESS;
    }
    result = cu->DevicePrimaryCtxRetain(&primary, gpu->device);
    if (result != MPATH_CU_SUCCESS) {
        return result;
    }
    if ((context == NULL) || (context == primary)) {
        gpu->context  = primary;
        gpu->retained = 1;
    } else {
        cu->DevicePrimaryCtxRelease(gpu->device);
    }
    return MPATH_CU_SUCCESS;
}

/* Under the lock. */
static mpath_status_t gpu_make(int ordinal, mpath_cu_context_t context, mpath_gpu_t **gpu_p)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    mpath_cu_result_t result;
    mpath_status_t status;
    mpath_gpu_t *gpu;

    gpu = calloc(1, sizeof(*gpu));
    if (gpu == NULL) {
        mpath_error("no memory for GPU %d; it is not used", ordinal);
        return MPATH_ERR_NO_MEMORY;
    }
    status = mpath_gpu_info(ordinal, &gpu->info);
    if (status != MPATH_OK) {
        goto err_free;
    }
    result = cu->DeviceGet(&gpu->device, ordinal);
    if (result != MPATH_CU_SUCCESS) {
        goto err_driver;
    }
    result = gpu_take_context(gpu, context);
    if (result != MPATH_CU_SUCCESS) {
        goto err_driver;
    }
    gpu->has_values = (cu->StreamWriteValue64 != NULL) &&
                      gpu_attribute(cu, gpu->device, MPATH_CU_DEV_64_BIT_STREAM_OPS, 0);
    gpu->has_waits = gpu->has_values && (cu->StreamWaitValue64 != NULL);
    (void)mpath_pinned_alloc(gpu, MPATH_GPU_STREAMS_ALL * sizeof(mpath_stream_words_t), &gpu->words);
    gpu->peers[ordinal] = MPATH_GPU_PEER_REACHED;
    gpu->number         = gpus.made++;
    gpu->next           = gpus.first;
    gpus.first          = gpu;
    *gpu_p              = gpu;
    return MPATH_OK;

err_driver:
    mpath_error("GPU %d (%s) cannot be used: %s", ordinal, gpu->info.pci, mpath_cu_error_string(result));
    status = mpath_cu_status(result);
err_free:
    free(gpu);
    return status;
}

mpath_status_t mpath_gpu_get(int ordinal, mpath_cu_context_t context, mpath_gpu_t **gpu_p)
{
    mpath_status_t status = MPATH_OK;
    mpath_gpu_t *gpu;

    mpath_gpu_lock();
    for (gpu = gpus.first; gpu != NULL; gpu = gpu->next) {
        /* The primary context is asked for by NULL or by its name. */
        if ((gpu->info.ordinal == ordinal) && !mpath_gpu_is_lost(gpu) &&
            ((context == NULL) ? gpu->retained : (gpu->context == context))) {
            break;
        }
    }
    if (gpu != NULL) {
        *gpu_p = gpu;
    } else {
        status = gpu_make(ordinal, context, gpu_p);
    }
    mpath_gpu_unlock();
    return status;
}

/*
 * While some stream is captured into a graph, by the application in this or another thread, the driver refuses calls
 * that might have to be part of it, such as allocations, and the capture fails. Ours never are.
 */
static void gpu_exchange_capture_mode(int *mode)
{
    if (mpath_gpu_driver()->ThreadExchangeStreamCaptureMode != NULL) {
        (void)mpath_gpu_driver()->ThreadExchangeStreamCaptureMode(mode);
    }
}

/* A thread keeps the handle of a context that has been reset, in which no call works until somebody retains it. */
static int gpu_current_has_ended(const mpath_cu_t *cu)
{
    int mode = MPATH_CU_CAPTURE_RELAXED;
    size_t free_bytes, total_bytes;
    mpath_cu_result_t result;

    gpu_exchange_capture_mode(&mode);
    result = cu->MemGetInfo(&free_bytes, &total_bytes);
    gpu_exchange_capture_mode(&mode);
    return result != MPATH_CU_SUCCESS;
}

mpath_status_t mpath_gpu_current(mpath_gpu_t **gpu_p)
{
    const mpath_cu_t *cu       = mpath_gpu_driver();
    mpath_cu_context_t context = NULL;
    mpath_cu_device_t device;
    int ordinal, count;

    if ((cu == NULL) || (cu->CtxGetCurrent(&context) != MPATH_CU_SUCCESS) || (context == NULL) ||
        (cu->CtxGetDevice(&device) != MPATH_CU_SUCCESS) || gpu_current_has_ended(cu)) {
        return MPATH_ERR_UNSUPPORTED;
    }
    for (ordinal = 0, count = mpath_gpu_count(); ordinal < count; ordinal++) {
        mpath_cu_device_t other;

        if ((cu->DeviceGet(&other, ordinal) == MPATH_CU_SUCCESS) && (other == device)) {
            return mpath_gpu_get(ordinal, context, gpu_p);
        }
    }
    return MPATH_ERR_UNSUPPORTED;
}

const mpath_gpu_info_t *mpath_gpu_info_of(const mpath_gpu_t *gpu)
{
    return &gpu->info;
}

int mpath_gpu_number(const mpath_gpu_t *gpu)
{
    return gpu->number;
}

int mpath_gpu_has_waits(const mpath_gpu_t *gpu)
{
    return gpu->has_waits;
}

/* The words were registered in the context: what the driver knows of them ends with it, on every way it may end. */
static int gpu_has_context(const mpath_cu_t *cu, const mpath_gpu_t *gpu)
{
    mpath_cu_result_t result;
    unsigned type;

    if (gpu->words.base == NULL) {
        return 1; /* they could not be registered: nothing tells */
    }
    result = cu->PointerGetAttribute(&type, MPATH_CU_PTR_MEMORY_TYPE, (mpath_cu_ptr_t)(uintptr_t)gpu->words.base);
    return (result != MPATH_CU_INVALID_VALUE) && (result != MPATH_CU_CONTEXT_IS_DESTROYED);
}

/* Under the lock. */
static void gpu_lose(mpath_gpu_t *gpu)
{
    mpath_debug("GPU %d (%s): the application has ended the context that mpath used; another is used from now on",
                gpu->info.ordinal, gpu->info.pci);
    atomic_store_explicit(&gpu->lost, 1, memory_order_relaxed);
    for (mpath_gpu_t *other = gpus.first; other != NULL; other = other->next) {
        other->peers[gpu->info.ordinal] = (other->info.ordinal == gpu->info.ordinal) ? MPATH_GPU_PEER_REACHED
                                                                                     : MPATH_GPU_PEER_UNKNOWN;
    }
}

void mpath_gpu_notice_lost(void)
{
    const mpath_cu_t *cu = mpath_gpu_driver();

    if (cu == NULL) {
        return;
    }
    mpath_gpu_lock();
    for (mpath_gpu_t *gpu = gpus.first; gpu != NULL; gpu = gpu->next) {
        if (!mpath_gpu_is_lost(gpu) && !gpu_has_context(cu, gpu)) {
            gpu_lose(gpu);
        }
    }
    mpath_gpu_unlock();
}

mpath_gpu_t *mpath_gpu_next(const mpath_gpu_t *gpu)
{
    mpath_gpu_t *next;

    mpath_gpu_lock();
    next = (gpu == NULL) ? gpus.first : gpu->next;
    while ((next != NULL) && mpath_gpu_is_lost(next)) {
        next = next->next;
    }
    mpath_gpu_unlock();
    return next;
}

int mpath_gpu_is_lost(const mpath_gpu_t *gpu)
{
    return atomic_load_explicit(&gpu->lost, memory_order_relaxed);
}

mpath_status_t mpath_gpu_enter(mpath_gpu_t *gpu)
{
    unsigned top = gpu_entered.depth;
    mpath_cu_result_t result;

    if (mpath_gpu_is_lost(gpu)) {
        return MPATH_ERR_UNREACHABLE;
    }
    if ((top > 0) && (gpu_entered.gpu[top - 1] == gpu)) {
        gpu_entered.times[top - 1]++;
        return MPATH_OK;
    }
    if (top == GPU_NESTING_MAX) {
        mpath_error("more than %d GPU contexts entered one inside the other", GPU_NESTING_MAX);
        return MPATH_ERR_INTERNAL;
    }
    result = mpath_gpu_driver()->CtxPushCurrent(gpu->context);
    if (result != MPATH_CU_SUCCESS) {
        mpath_error("the context of GPU %d cannot be made current: %s", gpu->info.ordinal,
                    mpath_cu_error_string(result));
        return mpath_cu_status(result);
    }
    gpu_entered.gpu[top]           = gpu;
    gpu_entered.times[top]         = 1;
    gpu_entered.capture_modes[top] = MPATH_CU_CAPTURE_RELAXED;
    gpu_entered.depth              = top + 1;
    gpu_exchange_capture_mode(&gpu_entered.capture_modes[top]);
    return MPATH_OK;
}

void mpath_gpu_leave(mpath_gpu_t *gpu)
{
    unsigned top = gpu_entered.depth;
    mpath_cu_context_t context;

    if ((top == 0) || (gpu_entered.gpu[top - 1] != gpu)) {
        mpath_error("GPU %d is left without having been entered", gpu->info.ordinal);
        return;
    }
    if (--gpu_entered.times[top - 1] == 0) {
        gpu_entered.depth = top - 1;
        gpu_exchange_capture_mode(&gpu_entered.capture_modes[top - 1]);
        mpath_gpu_driver()->CtxPopCurrent(&context);
    }
}

int mpath_gpu_can_reach(const mpath_gpu_t *gpu, int peer)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    mpath_cu_device_t device;
    int can = 0;

    return (peer == gpu->info.ordinal) ||
           ((cu->DeviceGet(&device, peer) == MPATH_CU_SUCCESS) &&
            (cu->DeviceCanAccessPeer(&can, gpu->device, device) == MPATH_CU_SUCCESS) && can);
}

/* Enables access from gpu's context to the primary context of `peer`. */
static mpath_gpu_peer_t gpu_probe_peer(mpath_gpu_t *gpu, int peer)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    mpath_cu_result_t result;
    mpath_gpu_t *other;

    if (!mpath_gpu_can_reach(gpu, peer)) {
        return MPATH_GPU_PEER_OUT_OF_REACH;
    }
    if ((mpath_gpu_get(peer, NULL, &other) != MPATH_OK) || (mpath_gpu_enter(gpu) != MPATH_OK)) {
        return MPATH_GPU_PEER_OUT_OF_REACH;
    }
    result = cu->CtxEnablePeerAccess(other->context, 0);
    mpath_gpu_leave(gpu);
    if ((result != MPATH_CU_SUCCESS) && (result != MPATH_CU_PEER_ALREADY_ENABLED)) {
        mpath_warn("GPU %d cannot reach GPU %d: cuCtxEnablePeerAccess: %s; data between them goes through host memory",
                   gpu->info.ordinal, peer, mpath_cu_error_string(result));
        return MPATH_GPU_PEER_OUT_OF_REACH;
    }
    return MPATH_GPU_PEER_REACHED;
}

int mpath_gpu_reaches(mpath_gpu_t *gpu, int peer)
{
    if ((peer < 0) || (peer >= mpath_gpu_count())) {
        return 0;
    }
    if (gpu->peers[peer] == MPATH_GPU_PEER_UNKNOWN) {
        gpu->peers[peer] = (unsigned char)gpu_probe_peer(gpu, peer);
    }
    return gpu->peers[peer] == MPATH_GPU_PEER_REACHED;
}

void mpath_gpu_cleanup(void)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    mpath_gpu_t *gpu;

    mpath_gpu_notice_lost();
    mpath_import_cleanup();
    mpath_export_cleanup();
    mpath_pinned_cleanup();
    mpath_gpu_lock();
    while (gpus.first != NULL) {
        gpu        = gpus.first;
        gpus.first = gpu->next;
        mpath_launch_cleanup(gpu);
        mpath_stream_cleanup(gpu);
        if (gpu->retained && !mpath_gpu_is_lost(gpu)) {
            cu->DevicePrimaryCtxRelease(gpu->device);
        }
        free(gpu);
    }
    mpath_gpu_unlock();
}
