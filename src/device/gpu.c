/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices of this process, and one object per device and context, made on first use. */
#include "device/gpu_private.h"

#include "device/gpu.h"
#include "util/log.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Copies that need no turn on a GPU that processes share. */

/* Of other GPUs the limit is not known: rows cost nothing up to here. */
#define TURNS_PLAIN_BYTES (2 * MPATH_GPU_COMMAND_BYTES)

/* Without others a short copy takes some 10 us. */
#define TURNS_SLOW_NS (MPATH_GPU_TURN_NS / 3 * 2)

#define TURNS_SLOW_COPIES 4

void mpath_gpu_set_turns(mpath_gpu_t *gpu)
{
    atomic_store_explicit(&gpu->turns, 1, memory_order_relaxed);
}

int mpath_gpu_takes_turns(const mpath_gpu_t *gpu)
{
    return atomic_load_explicit(&gpu->turns, memory_order_relaxed);
}

void mpath_gpu_note_copy(mpath_gpu_t *gpu, uint64_t took_ns)
{
    if ((gpu->info.mps != 0) || (took_ns < TURNS_SLOW_NS)) {
        atomic_store_explicit(&gpu->slow_copies, 0, memory_order_relaxed);
    } else if (atomic_fetch_add_explicit(&gpu->slow_copies, 1, memory_order_relaxed) + 1 == TURNS_SLOW_COPIES) {
        mpath_debug("short copies to GPU %d take as long as if it did the work of one process at a time; they avoid "
                    "that from now on",
                    gpu->info.ordinal);
        mpath_gpu_set_turns(gpu);
    }
}

/* Two rows one behind the other. */
static mpath_device_result_t copy_rows(mpath_device_ptr_t target, const void *source, size_t row_bytes,
                                       mpath_device_stream_t stream)
{
    const mpath_device_rows_t rows = {.target = target, .source = source, .row_bytes = row_bytes, .rows = 2};

    return mpath_device()->stream_copy_rows(stream, &rows);
}

mpath_device_result_t mpath_gpu_copy_without_turn(mpath_device_ptr_t target, const void *source, size_t bytes,
                                                  mpath_device_stream_t stream)
{
    mpath_device_result_t result;

    if ((bytes < 2) || (bytes >= TURNS_PLAIN_BYTES)) {
        return mpath_device()->stream_copy(stream, target, (mpath_device_ptr_t)(uintptr_t)source, bytes);
    }
    result = copy_rows(target, source, bytes / 2, stream);
    if ((result == MPATH_DEVICE_DONE) && (bytes % 2 != 0)) { /* the last byte, with the one before it again */
        result = copy_rows(target + bytes - 2, (const char *)source + bytes - 2, 1, stream);
    }
    return result;
}

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
    mpath_device_entered_t before[GPU_NESTING_MAX];
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
    const mpath_device_ops_t *ops = mpath_device();
    int count;

    if ((ops == NULL) || (ops->device_count(&count) != MPATH_DEVICE_DONE)) {
        return 0;
    }
    return (count < MPATH_GPU_DEVICES_MAX) ? count : MPATH_GPU_DEVICES_MAX;
}

mpath_status_t mpath_gpu_info(int ordinal, mpath_gpu_info_t *info)
{
    const mpath_device_ops_t *ops = mpath_device();
    mpath_gpu_info_t made         = {.ordinal = ordinal};
    mpath_device_result_t result;

    if ((ops == NULL) || (ordinal < 0) || (ordinal >= mpath_gpu_count())) {
        mpath_error("there is no GPU %d: the %s driver shows %d", ordinal, mpath_device_driver_name(),
                    mpath_gpu_count());
        return MPATH_ERR_PARAM;
    }
    result = ops->device_info(ordinal, &made);
    if (result != MPATH_DEVICE_DONE) {
        mpath_error("GPU %d cannot be described: %s", ordinal, mpath_device_error_string(result));
        return mpath_device_status(result);
    }
    *info = made;
    return MPATH_OK;
}

int mpath_gpu_find(const mpath_device_uuid_t *uuid)
{
    const mpath_device_ops_t *ops = mpath_device();
    mpath_device_uuid_t other;
    int ordinal, count = mpath_gpu_count();

    for (ordinal = 0; ordinal < count; ordinal++) {
        if ((ops->device_uuid(ordinal, &other) == MPATH_DEVICE_DONE) && (memcmp(&other, uuid, sizeof(other)) == 0)) {
            return ordinal;
        }
    }
    return -1;
}

mpath_status_t mpath_gpu_make_words(mpath_gpu_t *gpu)
{
    mpath_pinned_t made   = {.bytes = MPATH_GPU_STREAMS_ALL * sizeof(mpath_stream_words_t), .gpu = gpu, .owned = 1};
    mpath_status_t status = mpath_gpu_enter(gpu);

    if (status != MPATH_OK) {
        return status;
    }
    status = mpath_device_pin_new(gpu->info.ordinal, made.bytes, &made.base, &made.device_base);
    mpath_gpu_leave(gpu);
    if (status == MPATH_OK) {
        gpu->words = made;
    }
    return status;
}

/* Under the lock. */
static mpath_status_t gpu_make(int ordinal, mpath_device_context_t context, mpath_gpu_t **gpu_p)
{
    const mpath_device_ops_t *ops = mpath_device();
    mpath_device_features_t features;
    mpath_device_result_t result;
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
    gpu->context = context;
    result       = ops->context_take(ordinal, &gpu->context, &gpu->retained);
    if (result != MPATH_DEVICE_DONE) {
        mpath_error("GPU %d (%s) cannot be used: %s", ordinal, gpu->info.pci, mpath_device_error_string(result));
        status = mpath_device_status(result);
        goto err_free;
    }
    ops->device_features(ordinal, &features);
    gpu->has_values = features.values;
    gpu->has_waits  = features.waits;
    (void)mpath_gpu_make_words(gpu);
    gpu->peers[ordinal] = MPATH_GPU_PEER_REACHED;
    gpu->number         = gpus.made++;
    gpu->next           = gpus.first;
    gpus.first          = gpu;
    *gpu_p              = gpu;
    return MPATH_OK;

err_free:
    free(gpu);
    return status;
}

mpath_status_t mpath_gpu_get(int ordinal, mpath_device_context_t context, mpath_gpu_t **gpu_p)
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

mpath_status_t mpath_gpu_current(mpath_gpu_t **gpu_p)
{
    const mpath_device_ops_t *ops = mpath_device();
    mpath_device_context_t context;
    int ordinal;

    if ((ops == NULL) || (ops->context_current(&ordinal, &context) != MPATH_DEVICE_DONE) ||
        (ordinal >= MPATH_GPU_DEVICES_MAX)) {
        return MPATH_ERR_UNSUPPORTED;
    }
    return mpath_gpu_get(ordinal, context, gpu_p);
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

/* The words were registered in the context; without them nothing tells. */
static int gpu_has_context(const mpath_gpu_t *gpu)
{
    return (gpu->words.base == NULL) || mpath_device()->context_knows(gpu->words.base);
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
    if (!mpath_gpu_was_found() || !mpath_gpu_available()) {
        return;
    }
    mpath_gpu_lock();
    for (mpath_gpu_t *gpu = gpus.first; gpu != NULL; gpu = gpu->next) {
        if (!mpath_gpu_is_lost(gpu) && !gpu_has_context(gpu)) {
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
    mpath_device_result_t result;

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
    result = mpath_device()->context_enter(gpu->context, &gpu_entered.before[top]);
    if (result != MPATH_DEVICE_DONE) {
        mpath_error("the context of GPU %d cannot be made current: %s", gpu->info.ordinal,
                    mpath_device_error_string(result));
        return mpath_device_status(result);
    }
    gpu_entered.gpu[top]   = gpu;
    gpu_entered.times[top] = 1;
    gpu_entered.depth      = top + 1;
    return MPATH_OK;
}

void mpath_gpu_leave(mpath_gpu_t *gpu)
{
    unsigned top = gpu_entered.depth;

    if ((top == 0) || (gpu_entered.gpu[top - 1] != gpu)) {
        mpath_error("GPU %d is left without having been entered", gpu->info.ordinal);
        return;
    }
    if (--gpu_entered.times[top - 1] == 0) {
        gpu_entered.depth = top - 1;
        mpath_device()->context_leave(&gpu_entered.before[top - 1]);
    }
}

int mpath_gpu_can_reach(const mpath_gpu_t *gpu, int peer)
{
    int can = 0;

    return (peer == gpu->info.ordinal) ||
           ((mpath_device()->can_access(gpu->info.ordinal, peer, &can) == MPATH_DEVICE_DONE) && can);
}

/* Enables access from gpu's context to the primary context of `peer`. */
static mpath_gpu_peer_t gpu_probe_peer(mpath_gpu_t *gpu, int peer)
{
    mpath_device_result_t result;
    mpath_gpu_t *other;

    if (!mpath_gpu_can_reach(gpu, peer)) {
        return MPATH_GPU_PEER_OUT_OF_REACH;
    }
    if ((mpath_gpu_get(peer, NULL, &other) != MPATH_OK) || (mpath_gpu_enter(gpu) != MPATH_OK)) {
        return MPATH_GPU_PEER_OUT_OF_REACH;
    }
    result = mpath_device()->context_reach(other->context);
    mpath_gpu_leave(gpu);
    if (result != MPATH_DEVICE_DONE) {
        mpath_warn("GPU %d cannot reach GPU %d: %s: %s; data between them goes through host memory", gpu->info.ordinal,
                   peer, mpath_device()->failed_call(), mpath_device_error_string(result));
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

void mpath_gpu_end_all(void (*end)(mpath_gpu_t *gpu))
{
    mpath_gpu_t *gpu;

    mpath_gpu_lock();
    while (gpus.first != NULL) {
        gpu        = gpus.first;
        gpus.first = gpu->next;
        end(gpu);
        if (gpu->retained && !mpath_gpu_is_lost(gpu)) {
            mpath_device()->context_release(gpu->info.ordinal);
        }
        free(gpu);
    }
    mpath_gpu_unlock();
}

/* GPUDirect RDMA: the order of a NIC's writes and the GPU's work, as the driver tells of it. */

mpath_status_t mpath_gpu_needs_flush(const mpath_gpu_t *gpu, int *needs_p)
{
    const mpath_device_ops_t *ops = mpath_device();

    return (ops != NULL) ? ops->needs_flush(gpu->info.ordinal, needs_p) : MPATH_ERR_UNSUPPORTED;
}

mpath_status_t mpath_gpu_flush_writes(mpath_gpu_t *gpu)
{
    mpath_status_t status = mpath_gpu_enter(gpu);
    mpath_device_result_t result;

    if (status != MPATH_OK) {
        return status;
    }
    result = mpath_device()->flush_writes();
    mpath_gpu_leave(gpu);
    if (result != MPATH_DEVICE_DONE) {
        mpath_error("GPU %d: what a NIC has written cannot be flushed: %s; the call fails", gpu->info.ordinal,
                    mpath_device_error_string(result));
        return mpath_device_status(result);
    }
    return MPATH_OK;
}
