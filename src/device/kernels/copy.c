/* SPDX-License-Identifier: BSD-3-Clause */
/* Loading of the embedded kernels, and their launches. */
#include "device/kernels/copy.h"
#include "device/gpu_private.h"
#include "device/usage.h"

#include <stdlib.h>
#include <string.h>

/* One vector of 16 bytes per thread. On an H200 8 CTAs already fill an NVLink port; more shorten small launches. */
#define LAUNCH_BYTES_PER_CTA (UINT64_C(16) * MPATH_KERNEL_THREADS)
#define LAUNCH_CTAS_MAX 64

/* Of device memory, on each GPU. */
#define COUNTERS_BYTES (MPATH_GPU_STREAMS_ALL * sizeof(mpath_kernel_counters_t))

/* Small fragments in one CTA follow each other, each for the time of a trip over the link. */
#define LAUNCH_CTAS_FOR_FRAGMENTS 16

_Static_assert(sizeof(mpath_kernel_copy_t) <= 4096, "arguments of a kernel");

/* Under the lock, in the context. */
static mpath_gpu_kernels_t launch_load(mpath_gpu_t *gpu)
{
    const mpath_device_ops_t *ops = mpath_device();
    mpath_device_result_t result  = ops->kernels_load(&gpu->module);

    if (result != MPATH_DEVICE_DONE) {
        const char *missing = ops->kernels_missing();

        gpu->module = NULL;
        if (missing != NULL) {
            mpath_info_by(mpath_log_speaks(), "%s: copies between GPUs use copy engines only", missing);
            return MPATH_GPU_KERNELS_NONE;
        }
        goto err_warn;
    }
    result = ops->kernel_find(gpu->module, MPATH_KERNEL_COPY, &gpu->copy_kernel);
    if (result == MPATH_DEVICE_DONE) {
        result = ops->kernel_find(gpu->module, MPATH_KERNEL_COPY_FEW, &gpu->copy_few_kernel);
    }
    if (result == MPATH_DEVICE_DONE) {
        result = ops->kernel_find(gpu->module, MPATH_KERNEL_COPY_AGAIN, &gpu->copy_again_kernel);
    }
    if (result != MPATH_DEVICE_DONE) {
        goto err_unload;
    }
    result = mpath_gpu_memory_take_zeroed(UINT64_MAX, &gpu->counters, COUNTERS_BYTES);
    if (result != MPATH_DEVICE_DONE) {
        goto err_unload;
    }
    return MPATH_GPU_KERNELS_LOADED;

err_unload:
    ops->kernels_unload(gpu->module);
    gpu->module = NULL;
err_warn:
    mpath_warn("the kernels do not load on GPU %d (%s, compute capability %d.%d): %s; all copies use copy engines",
               gpu->info.ordinal, gpu->info.name, gpu->info.capability / 10, gpu->info.capability % 10,
               mpath_device_error_string(result));
    return MPATH_GPU_KERNELS_NONE;
}

int mpath_kernels_usable(mpath_gpu_t *gpu)
{
    if (gpu->kernels == MPATH_GPU_KERNELS_UNKNOWN) {
        if (mpath_gpu_enter(gpu) != MPATH_OK) {
            return 0;
        }
        mpath_gpu_lock();
        if (gpu->kernels == MPATH_GPU_KERNELS_UNKNOWN) {
            gpu->kernels = launch_load(gpu);
        }
        mpath_gpu_unlock();
        mpath_gpu_leave(gpu);
    }
    return gpu->kernels == MPATH_GPU_KERNELS_LOADED;
}

void mpath_launch_cleanup(mpath_gpu_t *gpu)
{
    if (gpu->kernels == MPATH_GPU_KERNELS_LOADED) {
        mpath_gpu_memory_give(gpu, gpu->counters, COUNTERS_BYTES);
    }
    if ((gpu->kernels == MPATH_GPU_KERNELS_LOADED) && (mpath_gpu_enter(gpu) == MPATH_OK)) {
        mpath_device()->kernels_unload(gpu->module);
        mpath_gpu_leave(gpu);
    }
    while (gpu->functions != NULL) {
        mpath_gpu_function_t *known = gpu->functions;

        gpu->functions = known->next;
        free(known);
    }
    gpu->kernels = MPATH_GPU_KERNELS_UNKNOWN;
}

/* As many CTAs as so many bytes are worth. */
static unsigned copy_ctas(const mpath_gpu_t *gpu, uint64_t bytes)
{
    uint64_t ctas = (bytes + LAUNCH_BYTES_PER_CTA - 1) / LAUNCH_BYTES_PER_CTA;
    unsigned most = LAUNCH_CTAS_MAX;

    if ((unsigned)gpu->info.multiprocessors < most) {
        most = (unsigned)gpu->info.multiprocessors;
    }
    return (ctas < 1) ? 1 : (ctas > most) ? most : (unsigned)ctas;
}

/* In the context. */
static mpath_status_t launch_enqueue(mpath_stream_t *stream, mpath_device_function_t function, const void *arguments,
                                     unsigned ctas, unsigned threads)
{
    mpath_device_result_t result = mpath_device()->kernel_launch(stream->native, function, arguments, ctas, threads);

    if (result != MPATH_DEVICE_DONE) {
        mpath_error("GPU %d (%s), stream %u: a kernel does not start: %s: %s", stream->gpu->info.ordinal,
                    stream->gpu->info.pci, stream->index, mpath_device()->failed_call(),
                    mpath_device_error_string(result));
        return mpath_device_status(result);
    }
    mpath_gpu_usage_launch(ctas);
    return MPATH_OK;
}

/* The same for a kernel whose CTAs count themselves. */
static mpath_status_t launch_counted(mpath_stream_t *stream, mpath_device_function_t function, const void *arguments,
                                     unsigned ctas, unsigned threads)
{
    mpath_status_t status = launch_enqueue(stream, function, arguments, ctas, threads);

    stream->arrivals += (status == MPATH_OK) ? ctas : 0;
    return status;
}

void mpath_launch_control(mpath_stream_t *stream, unsigned ctas, mpath_kernel_control_t *control)
{
    memset(control, 0, sizeof(*control));
    control->counters = mpath_launch_counters(stream);
    control->arrivals = stream->arrivals + ctas;
    control->ctas     = ctas;
}

mpath_device_ptr_t mpath_launch_counters(const mpath_stream_t *stream)
{
    return stream->gpu->counters + stream->index * sizeof(mpath_kernel_counters_t);
}

mpath_status_t mpath_launch_mark(mpath_stream_t *stream, mpath_kernel_word_t *flag, mpath_mark_t *mark_p)
{
    if (!stream->gpu->has_values) {
        return MPATH_ERR_UNSUPPORTED;
    }
    stream->marked++;
    *flag   = (mpath_kernel_word_t){.address = stream->done_address, .value = stream->marked};
    *mark_p = stream->marked;
    return MPATH_OK;
}

/* The arguments of one launch, in the struct of the kernel that takes them. */
typedef union launch_copy_arguments {
    mpath_kernel_copy_t many;
    mpath_kernel_copy_few_t few;
} launch_copy_arguments_t;

static uint64_t launch_bytes(const mpath_kernel_fragment_t *fragments, unsigned count)
{
    uint64_t bytes = 0;

    for (unsigned index = 0; index < count; index++) {
        bytes += fragments[index].bytes;
    }
    return bytes;
}

/* CTAs for so many bytes in `count` fragments; at most `most`, if that is not 0. */
static unsigned launch_ctas(const mpath_gpu_t *gpu, uint64_t bytes, unsigned count, unsigned most)
{
    unsigned ctas = copy_ctas(gpu, bytes);

    if (ctas < count) {
        ctas = (count < LAUNCH_CTAS_FOR_FRAGMENTS) ? count : LAUNCH_CTAS_FOR_FRAGMENTS;
    }
    return ((most > 0) && (most < ctas)) ? most : ctas;
}

/* One launch of up to MPATH_KERNEL_FRAGMENTS_MAX fragments, in the context. */
static mpath_status_t launch_copy_some(mpath_stream_t *stream, const mpath_launch_copy_t *launch, unsigned first,
                                       unsigned count)
{
    const int few = (count <= MPATH_KERNEL_FRAGMENTS_FEW) && (launch->flags_count < MPATH_KERNEL_FLAGS_FEW);
    launch_copy_arguments_t arguments;
    mpath_kernel_control_t control;
    mpath_kernel_word_t *flags = few ? arguments.few.flags : arguments.many.flags;
    const uint64_t bytes       = launch_bytes(launch->fragments + first, count);
    const unsigned ctas        = launch_ctas(stream->gpu, bytes, count, launch->ctas);

    mpath_launch_control(stream, ctas, &control);
    if (first + count == launch->fragments_count) {
        control.flags_count = launch->flags_count;
        if (launch->flags_count > 0) {
            memcpy(flags, launch->flags, launch->flags_count * sizeof(*launch->flags));
        }
        if ((launch->mark_p != NULL) && stream->gpu->has_values) {
            mpath_launch_mark(stream, &flags[control.flags_count++], launch->mark_p);
        }
    }
    if (count > 0) {
        memcpy(few ? arguments.few.fragments : arguments.many.fragments, launch->fragments + first,
               count * sizeof(*launch->fragments));
    }
    if (few) {
        arguments.few.control         = control;
        arguments.few.bytes           = bytes;
        arguments.few.fragments_count = count;
        arguments.few.reserved        = 0;
        return launch_counted(stream, stream->gpu->copy_few_kernel, &arguments, ctas, MPATH_KERNEL_THREADS);
    }
    arguments.many.control         = control;
    arguments.many.bytes           = bytes;
    arguments.many.fragments_count = count;
    arguments.many.reserved        = 0;
    return launch_counted(stream, stream->gpu->copy_kernel, &arguments, ctas, MPATH_KERNEL_THREADS);
}

mpath_status_t mpath_launch_copy(mpath_stream_t *stream, const mpath_launch_copy_t *launch)
{
    mpath_status_t status;
    unsigned first = 0, count;

    if (!mpath_kernels_usable(stream->gpu)) {
        return MPATH_ERR_UNSUPPORTED;
    }
    if (launch->flags_count >= MPATH_KERNEL_FLAGS_MAX) {
        mpath_error("a copy kernel has no room for %u flags", launch->flags_count);
        return MPATH_ERR_PARAM;
    }
    status = mpath_gpu_enter(stream->gpu);
    if (status != MPATH_OK) {
        return status;
    }
    do {
        count = launch->fragments_count - first;
        if (count > MPATH_KERNEL_FRAGMENTS_MAX) {
            count = MPATH_KERNEL_FRAGMENTS_MAX;
        }
        status = launch_copy_some(stream, launch, first, count);
        first += count;
    } while ((status == MPATH_OK) && (first < launch->fragments_count));
    if ((status == MPATH_OK) && (launch->mark_p != NULL) && !stream->gpu->has_values) {
        status = mpath_stream_mark(stream, launch->mark_p);
    }
    mpath_gpu_leave(stream->gpu);
    return status;
}

mpath_status_t mpath_repeat_copy(mpath_stream_t *stream, const mpath_launch_copy_t *launch, mpath_device_ptr_t number,
                                 mpath_repeat_t **repeat_p)
{
    const uint64_t bytes = launch_bytes(launch->fragments, launch->fragments_count);
    const unsigned ctas  = launch_ctas(stream->gpu, bytes, launch->fragments_count, launch->ctas);
    mpath_kernel_copy_again_t arguments;

    if (!mpath_kernels_usable(stream->gpu) || (launch->fragments_count > MPATH_KERNEL_FRAGMENTS_FEW) ||
        (launch->flags_count != 1) || (launch->mark_p != NULL)) {
        return MPATH_ERR_UNSUPPORTED;
    }
    memset(&arguments, 0, sizeof(arguments));
    arguments.control = (mpath_kernel_control_t){
        .counters = mpath_launch_counters(stream), .flags_count = 1, .ctas = ctas};
    arguments.bytes            = bytes;
    arguments.number           = number;
    arguments.fragments_count  = launch->fragments_count;
    arguments.flags[0].address = launch->flags[0].address;
    memcpy(arguments.fragments, launch->fragments, launch->fragments_count * sizeof(*launch->fragments));
    return mpath_repeat_create(stream, stream->gpu->copy_again_kernel, &arguments, ctas, MPATH_KERNEL_THREADS,
                               repeat_p);
}

/* Under the lock; NULL: it has not been found. */
static mpath_gpu_function_t *function_known(const mpath_gpu_t *gpu, const char *name)
{
    mpath_gpu_function_t *known = gpu->functions;

    while ((known != NULL) && (strcmp(known->name, name) != 0)) {
        known = known->next;
    }
    return known;
}

/* Under the lock: asks the driver, and keeps what it gives. */
static mpath_status_t function_load(mpath_gpu_t *gpu, const char *name, mpath_gpu_function_t **known_p)
{
    size_t bytes                = strlen(name) + 1;
    mpath_gpu_function_t *known = malloc(sizeof(*known) + bytes);
    mpath_status_t status       = (known != NULL) ? mpath_gpu_enter(gpu) : MPATH_ERR_NO_MEMORY;
    mpath_device_result_t result;

    if (status != MPATH_OK) {
        goto err_free;
    }
    result = mpath_device()->kernel_find(gpu->module, name, &known->function);
    mpath_gpu_leave(gpu);
    if (result == MPATH_DEVICE_NOT_FOUND) {
        mpath_error("there is no kernel %s", name);
        status = MPATH_ERR_PARAM;
        goto err_free;
    }
    if (result != MPATH_DEVICE_DONE) {
        mpath_info("GPU %d (%s): kernel %s cannot be loaded: %s; what needs it goes another way", gpu->info.ordinal,
                   gpu->info.name, name, mpath_device_error_string(result));
        status = mpath_device_status(result);
        goto err_free;
    }
    memcpy(known->name, name, bytes);
    known->next    = gpu->functions;
    gpu->functions = known;
    *known_p       = known;
    return MPATH_OK;

err_free:
    free(known);
    return status;
}

mpath_status_t mpath_kernel_find(mpath_gpu_t *gpu, const char *name, mpath_pause_t *pause,
                                 mpath_device_function_t *function_p)
{
    mpath_status_t status = MPATH_OK;
    mpath_gpu_function_t *known;

    if (!mpath_kernels_usable(gpu)) {
        return MPATH_ERR_UNSUPPORTED;
    }
    mpath_gpu_lock();
    known = function_known(gpu, name);
    if ((known == NULL) && (pause != NULL) && mpath_pause_passes(pause)) {
        status = MPATH_ERR_NO_MEMORY;
    } else if (known == NULL) {
        status = function_load(gpu, name, &known);
        if (pause != NULL) {
            mpath_pause_note(pause, status == MPATH_OK);
        }
    }
    if (status == MPATH_OK) {
        *function_p = known->function;
    }
    mpath_gpu_unlock();
    return status;
}

typedef mpath_status_t (*launch_function_t)(mpath_stream_t *stream, mpath_device_function_t function,
                                            const void *arguments, unsigned ctas, unsigned threads);

static mpath_status_t launch_entered(launch_function_t launch, mpath_stream_t *stream, mpath_device_function_t function,
                                     const void *arguments, unsigned ctas, unsigned threads)
{
    mpath_status_t status;

    if (!mpath_kernels_usable(stream->gpu)) {
        return MPATH_ERR_UNSUPPORTED;
    }
    status = mpath_gpu_enter(stream->gpu);
    if (status == MPATH_OK) {
        status = launch(stream, function, arguments, ctas, threads);
        mpath_gpu_leave(stream->gpu);
    }
    return status;
}

mpath_status_t mpath_launch_kernel(mpath_stream_t *stream, mpath_device_function_t function, const void *arguments,
                                   unsigned ctas, unsigned threads)
{
    return launch_entered(launch_counted, stream, function, arguments, ctas, threads);
}

mpath_status_t mpath_launch_uncounted(mpath_stream_t *stream, mpath_device_function_t function, const void *arguments,
                                      unsigned ctas, unsigned threads)
{
    return launch_entered(launch_enqueue, stream, function, arguments, ctas, threads);
}
