/* SPDX-License-Identifier: BSD-3-Clause */
/* Shadow: host memory as large as the range, registered where it is short; copies on the default stream. */
#include "coll/shadow.h"
#include "gpu/launch.h"
#include "gpu/turns.h"
#include "util/pause.h"
#include "util/time.h"

#include <pthread.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Vectors of MPI_SHORT_INT and its like are combined by extents, of which the last one reaches beyond the data. */
#define SHADOW_SLACK_BYTES 32u

/* From so many ranges on a kernel takes less time than copies one after the other. */
#define SHADOW_KERNEL_RANGES 3u
#define SHADOW_TIMEOUT_NS (100 * MPATH_NS_PER_S)

mpath_status_t mpath_shadow_open(const void *device, size_t bytes, const mpath_memory_t *memory, mpath_shadow_t *shadow)
{
    mpath_shadow_t made = {.device = device, .bytes = bytes};
    mpath_status_t status;

    mpath_gpu_notice_lost();
    status = mpath_gpu_get((memory->device < 0) ? 0 : memory->device, memory->context, &made.gpu);
    if (status != MPATH_OK) {
        return status;
    }
    if (mpath_pinned_take(made.gpu, bytes + SHADOW_SLACK_BYTES, &made.pinned) == MPATH_OK) {
        made.host = made.pinned.base;
    } else {
        made.host = malloc(bytes + SHADOW_SLACK_BYTES);
    }
    if (made.host == NULL) {
        mpath_error("no host memory for a copy of %zu bytes of device memory; the call fails", bytes);
        return MPATH_ERR_NO_MEMORY;
    }
    *shadow = made;
    return MPATH_OK;
}

void mpath_shadow_close(mpath_shadow_t *shadow)
{
    if (shadow->pinned.base != NULL) {
        mpath_pinned_give(&shadow->pinned);
    } else {
        free(shadow->host);
    }
    shadow->host = NULL;
}

static mpath_cu_result_t start_copy(const mpath_cu_t *driver, const mpath_shadow_t *shadow, mpath_cu_ptr_t device,
                                    char *host, size_t bytes, int to_device)
{
    mpath_cu_ptr_t host_address = (mpath_cu_ptr_t)(uintptr_t)host;

    if (shadow->pinned.base == NULL) {
        return to_device ? driver->MemcpyHtoD(device, host, bytes) : driver->MemcpyDtoH(host, device, bytes);
    }
    if (to_device && mpath_gpu_takes_turns(shadow->gpu)) {
        return mpath_gpu_copy_without_turn(device, host, bytes, NULL);
    }
    return driver->MemcpyAsync(to_device ? device : host_address, to_device ? host_address : device, bytes, NULL);
}

/* The driver with the GPU entered; NULL: logged. */
static const mpath_cu_t *enter(const mpath_shadow_t *shadow, mpath_status_t *status_p)
{
    const mpath_cu_t *driver = mpath_gpu_driver();

    *status_p = MPATH_ERR_IO;
    if (driver == NULL) {
        mpath_error("the CUDA driver has been shut down; %zu bytes cannot be copied and the call fails", shadow->bytes);
        return NULL;
    }
    *status_p = mpath_gpu_enter(shadow->gpu);
    return (*status_p == MPATH_OK) ? driver : NULL;
}

static mpath_status_t leave(const mpath_shadow_t *shadow, size_t bytes, const char *what, mpath_cu_result_t result)
{
    mpath_gpu_leave(shadow->gpu);
    if (result != MPATH_CU_SUCCESS) {
        mpath_error("copying %zu bytes %s device memory failed: %s; the call fails", bytes, what,
                    mpath_cu_error_string(result));
        return mpath_cu_status(result);
    }
    return MPATH_OK;
}

static mpath_status_t shadow_copy(const mpath_shadow_t *shadow, size_t offset, size_t bytes, int to_device)
{
    mpath_cu_ptr_t device = (mpath_cu_ptr_t)(uintptr_t)shadow->device + offset;
    char *host            = (char *)shadow->host + offset;
    const mpath_cu_t *driver;
    mpath_status_t status;

    if (bytes == 0) {
        return MPATH_OK;
    }
    driver = enter(shadow, &status);
    return (driver == NULL) ? status
                            : leave(shadow, bytes, to_device ? "to" : "from",
                                    start_copy(driver, shadow, device, host, bytes, to_device));
}

/* Copies from pageable memory may have returned before the last bytes are there, and other streams do not wait. */
mpath_status_t mpath_shadow_wait(const mpath_shadow_t *shadow, int stored)
{
    uint64_t start_ns = mpath_time_ns();
    mpath_cu_result_t result;
    mpath_status_t status;
    const mpath_cu_t *driver = enter(shadow, &status);

    if (driver == NULL) {
        return status;
    }
    result = driver->StreamSynchronize(NULL);
    if (stored && (shadow->pinned.base != NULL) && (shadow->bytes < MPATH_GPU_COMMAND_BYTES)) {
        mpath_gpu_note_copy(shadow->gpu, mpath_time_ns() - start_ns);
    }
    return leave(shadow, shadow->bytes, "to or from", result);
}

mpath_status_t mpath_shadow_load(const mpath_shadow_t *shadow, size_t offset, size_t bytes)
{
    return shadow_copy(shadow, offset, bytes, 0);
}

mpath_status_t mpath_shadow_store(const mpath_shadow_t *shadow, size_t offset, size_t bytes)
{
    return shadow_copy(shadow, offset, bytes, 1);
}

/* The kernels of all shadows of the process. */
static pthread_mutex_t kernels_lock = PTHREAD_MUTEX_INITIALIZER;

/* Of a kernel that stores so many ranges; NULL: copies do, also where the driver has refused a stream for it. */
static mpath_stream_t *kernel_stream(const mpath_shadow_t *shadow, unsigned count)
{
    static mpath_pause_t refused;
    mpath_stream_t *stream = NULL;

    if ((count < SHADOW_KERNEL_RANGES) || (shadow->pinned.base == NULL) || mpath_gpu_takes_turns(shadow->gpu) ||
        !mpath_kernels_usable(shadow->gpu)) {
        return NULL;
    }
    pthread_mutex_lock(&kernels_lock);
    if (!mpath_pause_passes(&refused)) {
        if (mpath_stream_get(shadow->gpu, MPATH_GPU_STREAM_SHADOW, &stream) != MPATH_OK) {
            stream = NULL;
        }
        mpath_pause_note(&refused, stream != NULL);
    }
    pthread_mutex_unlock(&kernels_lock);
    return stream;
}

/* To the end. What the default stream has under way comes before, as it does before copies on that stream. */
static mpath_status_t store_by_kernel(const mpath_shadow_t *shadow, mpath_stream_t *stream,
                                      const mpath_kernel_piece_t *pieces, unsigned count)
{
    mpath_mark_t mark          = 0;
    mpath_launch_copy_t launch = {.pieces = pieces, .pieces_count = count, .mark_p = &mark};
    mpath_status_t status      = mpath_shadow_wait(shadow, 0);

    if (status != MPATH_OK) {
        return status;
    }
    pthread_mutex_lock(&kernels_lock);
    status = mpath_launch_copy(stream, &launch);
    if (status == MPATH_OK) {
        status = mpath_stream_finish(stream, mark, SHADOW_TIMEOUT_NS, "storing a copy in device memory");
    }
    pthread_mutex_unlock(&kernels_lock);
    return status;
}

mpath_status_t mpath_shadow_store_all(const mpath_shadow_t *shadow, const mpath_shadow_range_t *ranges, unsigned count)
{
    mpath_stream_t *stream       = kernel_stream(shadow, count);
    mpath_kernel_piece_t *pieces = (stream != NULL) ? malloc(count * sizeof(*pieces)) : NULL;
    mpath_status_t status        = MPATH_OK;

    for (unsigned i = 0; i < count; i++) {
        if (pieces != NULL) {
            pieces[i] = (mpath_kernel_piece_t){
                .target = (mpath_cu_ptr_t)(uintptr_t)shadow->device + ranges[i].offset,
                .source = mpath_pinned_device(&shadow->pinned, (const char *)shadow->host + ranges[i].offset),
                .bytes  = ranges[i].bytes};
        } else if (status == MPATH_OK) {
            status = mpath_shadow_store(shadow, ranges[i].offset, ranges[i].bytes);
        }
    }
    if (pieces != NULL) {
        status = store_by_kernel(shadow, stream, pieces, count);
        free(pieces);
    }
    return status;
}
