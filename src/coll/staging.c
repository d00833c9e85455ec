/* SPDX-License-Identifier: BSD-3-Clause */
/* Staging buffer: host memory as large as the range, registered where it is short; copies on a stream of its own. */
#include "coll/staging.h"

#include "device/gpu.h"
#include "device/kernels/copy.h"
#include "util/pause.h"
#include "util/time.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Copies of fragments: one copy for each, or for a window of device memory that many of them lie in. */

/* Vectors of MPI_SHORT_INT and its like are combined by extents, of which the last one reaches beyond the data. */
#define IOV_SLACK_BYTES 32u

/* To copy so many bytes more takes less time than to start a copy. */
#define IOV_GAP_BYTES 65536u

#define IOV_WINDOW_BYTES (UINT64_C(4) << 20)

/* An allocation of a device, or memory of the host. */
typedef struct fragment_place {
    int on_host;
    uint64_t base, end; /* on the host: the block that has been asked about */
    mpath_memory_kind_t kind;
    int device;
    mpath_device_context_t context;
} fragment_place_t;

typedef struct fragment {
    uint64_t from, to;
    fragment_place_t place;
} fragment_t;

struct mpath_iov {
    fragment_t *list;
    size_t count, capacity;
    uint64_t bytes;
    fragment_place_t place; /* that was found last; end 0: none */
    int has_devices, gapped;
    char *host; /* NULL: not open */
};

mpath_status_t mpath_iov_create(mpath_iov_t **iov_p)
{
    *iov_p = calloc(1, sizeof(**iov_p));
    if (*iov_p == NULL) {
        mpath_error("no memory to look at the pieces of a buffer; the call fails");
        return MPATH_ERR_NO_MEMORY;
    }
    return MPATH_OK;
}

void mpath_iov_destroy(mpath_iov_t *iov)
{
    if (iov != NULL) {
        free(iov->host);
        free(iov->list);
        free(iov);
    }
}

int mpath_iov_on_host(const mpath_iov_t *iov)
{
    return !iov->has_devices;
}

/* -- where they lie -- */

static mpath_status_t place_find(uint64_t address, fragment_place_t *place)
{
    mpath_memory_t memory;
    mpath_status_t status = mpath_memory_classify((const void *)(uintptr_t)address, 1, &memory);

    if (status != MPATH_OK) {
        return status;
    }
    *place = (fragment_place_t){.on_host = mpath_memory_on_host(memory.kind),
                                .base    = memory.base,
                                .end     = memory.base + memory.bytes,
                                .kind    = memory.kind,
                                .device  = memory.device,
                                .context = memory.context};
    if (place->on_host) {
        place->base = address / MPATH_MEMORY_BLOCK_BYTES * MPATH_MEMORY_BLOCK_BYTES;
        place->end  = place->base + MPATH_MEMORY_BLOCK_BYTES;
    }
    return MPATH_OK;
}

static int same_place(const fragment_place_t *a, const fragment_place_t *b)
{
    return (a->on_host && b->on_host) || (!a->on_host && !b->on_host && (a->base == b->base));
}

/* All of [from, to) lies in iov->place. */
static mpath_status_t iov_put(mpath_iov_t *iov, uint64_t from, uint64_t to)
{
    fragment_t *last = (iov->count > 0) ? &iov->list[iov->count - 1] : NULL;

    iov->bytes += to - from;
    if ((last != NULL) && (from == last->to) && same_place(&last->place, &iov->place)) {
        last->to = to;
        return MPATH_OK;
    }
    if (iov->count == iov->capacity) {
        size_t capacity  = (iov->capacity == 0) ? 16 : 2 * iov->capacity;
        fragment_t *list = realloc(iov->list, capacity * sizeof(*list));

        if (list == NULL) {
            mpath_error("no memory for the %zu pieces of a buffer; the call fails", capacity);
            return MPATH_ERR_NO_MEMORY;
        }
        iov->list     = list;
        iov->capacity = capacity;
    }
    iov->list[iov->count++] = (fragment_t){.from = from, .to = to, .place = iov->place};
    return MPATH_OK;
}

static mpath_status_t beyond_its_end(const fragment_place_t *place, uint64_t from, size_t bytes)
{
    mpath_error("a piece of %zu bytes at 0x%" PRIx64 " in a buffer reaches beyond its allocation in %s memory of GPU "
                "%d, which ends at 0x%" PRIx64 "; the call fails",
                bytes, from, mpath_memory_kind_name(place->kind), place->device, place->end);
    return MPATH_ERR_PARAM;
}

mpath_status_t mpath_iov_add(mpath_iov_t *iov, const void *address, size_t bytes)
{
    uint64_t from = (uint64_t)(uintptr_t)address, end = from + bytes, at = from, stop;
    mpath_status_t status = MPATH_OK;

    while ((at < end) && (status == MPATH_OK)) {
        fragment_place_t before = iov->place;

        if ((at < before.base) || (at >= before.end)) {
            status = place_find(at, &iov->place);
            if (status != MPATH_OK) {
                return status;
            }
        }
        if ((at > from) && iov->place.on_host) {
            return beyond_its_end(&before, from, bytes);
        }
        stop = (iov->place.on_host || (iov->place.end > end)) ? end : iov->place.end;
        iov->has_devices |= !iov->place.on_host;
        status = iov_put(iov, at, stop);
        at     = stop;
    }
    return status;
}

mpath_status_t mpath_iov_open(mpath_iov_t *iov, int gapped, void **host_p)
{
    iov->gapped = gapped;
    iov->host   = malloc(iov->bytes + IOV_SLACK_BYTES);
    if (iov->host == NULL) {
        mpath_error("no host memory for a copy of %" PRIu64 " bytes in several allocations; the call fails",
                    iov->bytes);
        return MPATH_ERR_NO_MEMORY;
    }
    *host_p = iov->host;
    return MPATH_OK;
}

/* -- copies -- */

/* The streams of all copies of the process, and the kernels on them. */
static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;

/* NULL: the driver has refused one. */
static mpath_stream_t *own_stream(mpath_gpu_t *gpu)
{
    static mpath_pause_t refused;
    mpath_stream_t *stream = NULL;

    pthread_mutex_lock(&streams_lock);
    if (!mpath_pause_passes(&refused)) {
        if (mpath_stream_get(gpu, MPATH_GPU_STREAM_STAGING, &stream) != MPATH_OK) {
            stream = NULL;
        }
        mpath_pause_note(&refused, stream != NULL);
    }
    pthread_mutex_unlock(&streams_lock);
    return stream;
}

static mpath_device_stream_t native_stream(const mpath_stream_t *stream)
{
    return (stream != NULL) ? mpath_stream_native(stream) : NULL;
}

/* The GPU that copies are made in, one after the other. */
typedef struct copier {
    const mpath_device_ops_t *driver;
    mpath_gpu_t *gpu; /* entered; NULL: none */
    mpath_device_stream_t stream;
    char *window; /* made when first needed */
} copier_t;

static mpath_status_t copier_failed(const copier_t *copier, uint64_t bytes, mpath_device_result_t result)
{
    mpath_error("copying %" PRIu64 " bytes to or from memory of GPU %d failed: %s; the call fails", bytes,
                mpath_gpu_info_of(copier->gpu)->ordinal, mpath_device_error_string(result));
    return mpath_device_status(result);
}

/* Waits for its copies. */
static mpath_status_t copier_wait(const copier_t *copier, uint64_t bytes)
{
    mpath_device_result_t result = copier->driver->stream_drain(copier->stream);

    return (result == MPATH_DEVICE_DONE) ? MPATH_OK : copier_failed(copier, bytes, result);
}

static mpath_status_t copier_leave(copier_t *copier)
{
    mpath_status_t status;

    if (copier->gpu == NULL) {
        return MPATH_OK;
    }
    status = copier_wait(copier, 0);
    mpath_gpu_leave(copier->gpu);
    copier->gpu = NULL;
    return status;
}

static mpath_status_t copier_enter(copier_t *copier, const fragment_place_t *place)
{
    mpath_gpu_t *gpu;
    mpath_status_t status = mpath_gpu_get((place->device < 0) ? 0 : place->device, place->context, &gpu);

    if ((status != MPATH_OK) || (gpu == copier->gpu)) {
        return status;
    }
    status = copier_leave(copier);
    if (status == MPATH_OK) {
        status = mpath_gpu_enter(gpu);
    }
    if (status == MPATH_OK) {
        copier->gpu    = gpu;
        copier->stream = native_stream(own_stream(gpu));
        copier->driver->memory_settle();
    }
    return status;
}

/* Of the device that has been entered. */
static mpath_status_t copier_copy(const copier_t *copier, uint64_t device, char *host, uint64_t bytes, int store)
{
    uint64_t host_address        = (uint64_t)(uintptr_t)host;
    mpath_device_result_t result = copier->driver->stream_copy(copier->stream, store ? device : host_address,
                                                               store ? host_address : device, bytes);

    return (result == MPATH_DEVICE_DONE) ? MPATH_OK : copier_failed(copier, bytes, result);
}

/* How many fragments from the first on, all of one allocation, are worth one copy of what they lie in. */
static size_t window_count(const fragment_t *first, const fragment_t *end)
{
    const fragment_t *next = first + 1;

    while ((next < end) && same_place(&first->place, &next->place) && (next->from >= next[-1].to) &&
           (next->from - next[-1].to <= IOV_GAP_BYTES) && (next->to - first->from <= IOV_WINDOW_BYTES)) {
        next++;
    }
    return (size_t)(next - first);
}

static mpath_status_t window_copy(copier_t *copier, const fragment_t *first, size_t count, char *host, int store)
{
    uint64_t bytes = first[count - 1].to - first->from;
    mpath_status_t status;

    if (copier->window == NULL) {
        copier->window = malloc(IOV_WINDOW_BYTES);
    }
    if (copier->window == NULL) {
        mpath_error("no host memory for a copy of %" PRIu64 " bytes of device memory; the call fails", bytes);
        return MPATH_ERR_NO_MEMORY;
    }
    status = copier_copy(copier, first->from, copier->window, bytes, 0);
    if (status == MPATH_OK) {
        status = copier_wait(copier, bytes);
    }
    if (status != MPATH_OK) {
        return status;
    }
    for (const fragment_t *fragment = first; fragment < first + count; fragment++) {
        char *inside  = copier->window + (fragment->from - first->from);
        size_t length = fragment->to - fragment->from;

        memcpy(store ? inside : host, store ? host : inside, length);
        host += length;
    }
    return store ? copier_copy(copier, first->from, copier->window, bytes, 1) : MPATH_OK;
}

/* One fragment, or several; *fragment_p and *host_p go on behind them. */
static mpath_status_t iov_step(const mpath_iov_t *iov, copier_t *copier, const fragment_t **fragment_p, char **host_p,
                               int store)
{
    const fragment_t *fragment = *fragment_p, *end = iov->list + iov->count;
    void *user            = (void *)(uintptr_t)fragment->from;
    uint64_t bytes        = fragment->to - fragment->from;
    size_t count          = 1;
    mpath_status_t status = MPATH_OK;

    if (fragment->place.on_host) {
        memcpy(store ? user : *host_p, store ? *host_p : user, bytes);
    } else {
        status = copier_enter(copier, &fragment->place);
        count  = iov->gapped ? window_count(fragment, end) : 1;
        if ((status == MPATH_OK) && (count > 1)) {
            status = window_copy(copier, fragment, count, *host_p, store);
        } else if (status == MPATH_OK) {
            status = copier_copy(copier, fragment->from, *host_p, bytes, store);
        }
    }
    for (; count > 0; count--, fragment++) {
        *host_p += fragment->to - fragment->from;
    }
    *fragment_p = fragment;
    return status;
}

static mpath_status_t iov_copy(const mpath_iov_t *iov, int store)
{
    const fragment_t *fragment = iov->list;
    copier_t copier            = {.driver = mpath_device()};
    mpath_status_t status      = MPATH_OK, left;
    char *host                 = iov->host;

    if (copier.driver == NULL) {
        mpath_error("the CUDA driver has been shut down; a buffer cannot be copied and the call fails");
        return MPATH_ERR_IO;
    }
    mpath_gpu_notice_lost();
    while ((fragment < iov->list + iov->count) && (status == MPATH_OK)) {
        status = iov_step(iov, &copier, &fragment, &host, store);
    }
    left = copier_leave(&copier);
    free(copier.window);
    return (status == MPATH_OK) ? left : status;
}

mpath_status_t mpath_iov_load(const mpath_iov_t *iov)
{
    return iov_copy(iov, 0);
}

mpath_status_t mpath_iov_store(const mpath_iov_t *iov)
{
    return iov_copy(iov, 1);
}

/* Vectors of MPI_SHORT_INT and its like are combined by extents, of which the last one reaches beyond the data. */
#define STAGING_SLACK_BYTES 32u

/* From so many ranges on a kernel takes less time than copies one after the other. */
#define STAGING_KERNEL_RANGES 3u

#define STAGING_TIMEOUT_NS (100 * MPATH_NS_PER_S)

mpath_status_t mpath_staging_open(const void *device, size_t bytes, const mpath_memory_t *memory,
                                  mpath_staging_t *staging)
{
    mpath_staging_t made = {.device = device, .bytes = bytes};
    mpath_status_t status;

    mpath_gpu_notice_lost();
    status = mpath_gpu_get((memory->device < 0) ? 0 : memory->device, memory->context, &made.gpu);
    if (status != MPATH_OK) {
        return status;
    }
    if (mpath_pinned_take(made.gpu, bytes + STAGING_SLACK_BYTES, &made.pinned) == MPATH_OK) {
        made.host = made.pinned.base;
    } else {
        made.host = malloc(bytes + STAGING_SLACK_BYTES);
    }
    if (made.host == NULL) {
        mpath_error("no host memory for a copy of %zu bytes of device memory; the call fails", bytes);
        return MPATH_ERR_NO_MEMORY;
    }
    made.stream  = native_stream(own_stream(made.gpu));
    made.settled = (memory->kind == MPATH_MEMORY_DEVICE) && mpath_device()->memory_settled(memory->base);
    *staging     = made;
    return MPATH_OK;
}

void mpath_staging_close(mpath_staging_t *staging)
{
    if (staging->pinned.base != NULL) {
        mpath_pinned_give(&staging->pinned);
    } else {
        free(staging->host);
    }
    staging->host = NULL;
}

static mpath_device_result_t start_copy(const mpath_device_ops_t *driver, const mpath_staging_t *staging,
                                        mpath_device_ptr_t device, char *host, size_t bytes, int to_device)
{
    mpath_device_ptr_t host_address = (mpath_device_ptr_t)(uintptr_t)host;

    if (to_device && (staging->pinned.base != NULL) && mpath_gpu_takes_turns(staging->gpu)) {
        return mpath_gpu_copy_without_turn(device, host, bytes, staging->stream);
    }
    return driver->stream_copy(staging->stream, to_device ? device : host_address, to_device ? host_address : device,
                               bytes);
}

/* The driver with the GPU entered; NULL: logged. */
static const mpath_device_ops_t *enter(const mpath_staging_t *staging, mpath_status_t *status_p)
{
    const mpath_device_ops_t *driver = mpath_device();

    *status_p = MPATH_ERR_IO;
    if (driver == NULL) {
        mpath_error("the CUDA driver has been shut down; %zu bytes cannot be copied and the call fails",
                    staging->bytes);
        return NULL;
    }
    *status_p = mpath_gpu_enter(staging->gpu);
    return (*status_p == MPATH_OK) ? driver : NULL;
}

static mpath_status_t leave(const mpath_staging_t *staging, size_t bytes, const char *what,
                            mpath_device_result_t result)
{
    mpath_gpu_leave(staging->gpu);
    if (result != MPATH_DEVICE_DONE) {
        mpath_error("copying %zu bytes %s device memory failed: %s; the call fails", bytes, what,
                    mpath_device_error_string(result));
        return mpath_device_status(result);
    }
    return MPATH_OK;
}

static mpath_status_t staging_copy(const mpath_staging_t *staging, size_t offset, size_t bytes, int to_device)
{
    mpath_device_ptr_t device = (mpath_device_ptr_t)(uintptr_t)staging->device + offset;
    char *host                = (char *)staging->host + offset;
    const mpath_device_ops_t *driver;
    mpath_status_t status;

    if (bytes == 0) {
        return MPATH_OK;
    }
    driver = enter(staging, &status);
    return (driver == NULL) ? status
                            : leave(staging, bytes, to_device ? "to" : "from",
                                    start_copy(driver, staging, device, host, bytes, to_device));
}

mpath_status_t mpath_staging_settle(const mpath_staging_t *staging)
{
    const mpath_device_ops_t *driver;
    mpath_status_t status;

    if (staging->settled || (staging->stream == NULL)) { /* the default stream comes after them */
        return MPATH_OK;
    }
    driver = enter(staging, &status);
    if (driver != NULL) {
        driver->memory_settle();
        mpath_gpu_leave(staging->gpu);
    }
    return status;
}

mpath_status_t mpath_staging_wait(const mpath_staging_t *staging, int stored)
{
    uint64_t start_ns = mpath_time_ns();
    mpath_device_result_t result;
    mpath_status_t status;
    const mpath_device_ops_t *driver = enter(staging, &status);

    if (driver == NULL) {
        return status;
    }
    result = driver->stream_drain(staging->stream);
    if (stored && (staging->pinned.base != NULL) && (staging->bytes < MPATH_GPU_COMMAND_BYTES)) {
        mpath_gpu_note_copy(staging->gpu, mpath_time_ns() - start_ns);
    }
    return leave(staging, staging->bytes, "to or from", result);
}

mpath_status_t mpath_staging_load(const mpath_staging_t *staging, size_t offset, size_t bytes)
{
    return staging_copy(staging, offset, bytes, 0);
}

mpath_status_t mpath_staging_store(const mpath_staging_t *staging, size_t offset, size_t bytes)
{
    return staging_copy(staging, offset, bytes, 1);
}

/* Of a kernel that stores so many ranges; NULL: copies do, also where the driver has refused a stream for it. */
static mpath_stream_t *kernel_stream(const mpath_staging_t *staging, unsigned count)
{
    if ((count < STAGING_KERNEL_RANGES) || (staging->pinned.base == NULL) || mpath_gpu_takes_turns(staging->gpu) ||
        !mpath_kernels_usable(staging->gpu)) {
        return NULL;
    }
    return (staging->stream != NULL) ? own_stream(staging->gpu) : NULL;
}

/* To the end. */
static mpath_status_t store_by_kernel(mpath_stream_t *stream, const mpath_kernel_fragment_t *fragments, unsigned count)
{
    mpath_mark_t mark          = 0;
    mpath_launch_copy_t launch = {.fragments = fragments, .fragments_count = count, .mark_p = &mark};
    mpath_status_t status;

    pthread_mutex_lock(&streams_lock);
    status = mpath_launch_copy(stream, &launch);
    if (status == MPATH_OK) {
        status = mpath_stream_finish(stream, mark, STAGING_TIMEOUT_NS, "storing a copy in device memory");
    }
    pthread_mutex_unlock(&streams_lock);
    return status;
}

mpath_status_t mpath_staging_store_all(const mpath_staging_t *staging, const mpath_staging_range_t *ranges,
                                       unsigned count)
{
    mpath_stream_t *stream             = kernel_stream(staging, count);
    mpath_kernel_fragment_t *fragments = (stream != NULL) ? malloc(count * sizeof(*fragments)) : NULL;
    mpath_status_t status              = MPATH_OK;

    for (unsigned i = 0; i < count; i++) {
        if (fragments != NULL) {
            fragments[i] = (mpath_kernel_fragment_t){
                .target = (mpath_device_ptr_t)(uintptr_t)staging->device + ranges[i].offset,
                .source = mpath_pinned_device(&staging->pinned, (const char *)staging->host + ranges[i].offset),
                .bytes  = ranges[i].bytes};
        } else if (status == MPATH_OK) {
            status = mpath_staging_store(staging, ranges[i].offset, ranges[i].bytes);
        }
    }
    if (fragments != NULL) {
        status = store_by_kernel(stream, fragments, count);
        free(fragments);
    }
    return status;
}
