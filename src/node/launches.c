/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels that have been launched lately, and those that are launched again and again. */
#include "node/launches.h"

#include "device/kernels/eager_args.h"
#include "device/kernels/exchange.h"

#include <stdlib.h>
#include <string.h>

#define LAUNCHES_CACHED 16
#define LAUNCHES_BEFORE_REPEAT 2 /* making one costs as much as it saves in some 20 launches */

/* As the caller has set them. */
typedef union cached_arguments {
    mpath_kernel_reduce_t reduce;
    mpath_kernel_eager_t eager;
    mpath_kernel_exchange_t exchange;
} cached_arguments_t;

typedef struct cached_launch {
    mpath_device_function_t function; /* NULL: empty */
    mpath_stream_t *stream;
    cached_arguments_t arguments;
    mpath_repeat_t *repeat; /* NULL: not made */
    unsigned times;
    uint64_t used; /* clock of the last launch */
} cached_launch_t;

struct gpu_launches {
    uint64_t clock;
    int refused;                  /* this driver takes no graphs */
    mpath_gpu_t *gpu;             /* of the function of the last launch */
    mpath_reduce_how_t how;       /* the same */
    mpath_device_function_t last; /* NULL: none */
    mpath_pause_t no_function;
    cached_launch_t cached[LAUNCHES_CACHED];
};

gpu_launches_t *mpath_gpu_launches_create(void)
{
    return calloc(1, sizeof(gpu_launches_t));
}

void mpath_gpu_launches_destroy(gpu_launches_t *launches)
{
    for (int i = 0; (launches != NULL) && (i < LAUNCHES_CACHED); i++) {
        mpath_repeat_destroy(launches->cached[i].repeat);
    }
    free(launches);
}

/* The entry of this launch: an old one, or one in the place of that which has not been used for longest. */
static cached_launch_t *find_launch(gpu_launches_t *launches, mpath_stream_t *stream, mpath_device_function_t function,
                                    const void *arguments, size_t bytes)
{
    cached_launch_t *oldest = &launches->cached[0];

    launches->clock++;
    for (int i = 0; i < LAUNCHES_CACHED; i++) {
        cached_launch_t *cached = &launches->cached[i];

        if ((cached->function == function) && (cached->stream == stream) &&
            (memcmp(&cached->arguments, arguments, bytes) == 0)) {
            cached->used = launches->clock;
            return cached;
        }
        oldest = (cached->used < oldest->used) ? cached : oldest;
    }
    mpath_repeat_destroy(oldest->repeat);
    *oldest = (cached_launch_t){.function = function, .stream = stream, .used = launches->clock};
    memcpy(&oldest->arguments, arguments, bytes);
    return oldest;
}

/* Whether it is time to make a repeat of it. */
static int wants_repeat(const gpu_launches_t *launches, cached_launch_t *cached)
{
    return (cached->repeat == NULL) && (cached->times++ >= LAUNCHES_BEFORE_REPEAT) && !launches->refused;
}

/* Looking for a name costs more than the rest of a launch. */
static mpath_status_t find_function(gpu_launches_t *launches, mpath_gpu_t *gpu, const mpath_reduce_how_t *how)
{
    mpath_status_t status = MPATH_OK;

    if ((launches->last == NULL) || (launches->gpu != gpu) || (launches->how.op != how->op) ||
        (launches->how.type != how->type)) {
        launches->last = NULL;
        status         = mpath_reduce_find(gpu, how, &launches->no_function, &launches->last);
        launches->gpu  = gpu;
        launches->how  = *how;
    }
    return status;
}

static int is_aligned(const void *address, unsigned alignment)
{
    return (uintptr_t)address % alignment == 0;
}

/* Memory of no context, as mapped and pool memory is, goes with any of its device. */
static int are_together(const mpath_memory_t *a, const mpath_memory_t *b)
{
    return (a->device == b->device) && ((a->context == b->context) || (a->context == NULL) || (b->context == NULL));
}

/* Whether this rank's GPU can work on its buffers: one device has both, and its kernels take the addresses. */
static int are_eligible(const mpath_symmetric_buffers_t *buffers, const mpath_reduce_how_t *how)
{
    const mpath_memory_t *send = buffers->send_memory, *recv = buffers->recv_memory;
    unsigned alignment = mpath_reduce_alignment(how->type);

    return !buffers->ineligible && (send != NULL) && (recv != NULL) && !mpath_memory_on_host(send->kind) &&
           !mpath_memory_on_host(recv->kind) && (send->kind != MPATH_MEMORY_MANAGED) &&
           (recv->kind != MPATH_MEMORY_MANAGED) && are_together(send, recv) && is_aligned(buffers->send, alignment) &&
           is_aligned(buffers->recv, alignment);
}

mpath_gpu_t *mpath_gpu_launches_gpu(gpu_launches_t *launches, const mpath_symmetric_buffers_t *buffers,
                                    const mpath_reduce_how_t *how)
{
    mpath_gpu_t *gpu;

    return (are_eligible(buffers, how) &&
            (mpath_gpu_get(buffers->send_memory->device, buffers->send_memory->context, &gpu) == MPATH_OK) &&
            (find_function(launches, gpu, how) == MPATH_OK))
               ? gpu
               : NULL;
}

mpath_status_t mpath_gpu_launches_start(gpu_launches_t *launches, mpath_stream_t *stream, const mpath_reduce_how_t *how,
                                        const gpu_reduce_launch_t *launch)
{
    mpath_kernel_reduce_t *arguments = launch->arguments;
    mpath_board_words_t *words       = &launch->board->words[launch->me];
    mpath_kernel_word_t done         = {.address = mpath_board_device(launch->board, &words->kernel_done),
                                        .value   = launch->number};
    mpath_status_t status            = find_function(launches, launch->gpu, how);
    mpath_device_function_t function;
    cached_launch_t *cached;

    if (status != MPATH_OK) {
        return status;
    }
    function = launches->last;
    cached   = find_launch(launches, stream, function, arguments, sizeof(*arguments));
    if (wants_repeat(launches, cached)) {
        status            = mpath_repeat_reduce(stream, function, how->type, done.address,
                                                mpath_board_device(launch->board, &words->number), arguments, &cached->repeat);
        launches->refused = status == MPATH_ERR_UNSUPPORTED;
        if ((status != MPATH_OK) && !launches->refused) {
            return status;
        }
        *arguments = cached->arguments.reduce;
    }
    if (cached->repeat != NULL) {
        atomic_store_explicit(&words->number, launch->number, memory_order_release);
        return mpath_repeat_start(cached->repeat);
    }
    return mpath_launch_reduce(stream, function, how->type, done, arguments);
}

mpath_status_t mpath_gpu_launches_start_eager(gpu_launches_t *launches, mpath_stream_t *stream,
                                              const gpu_eager_launch_t *launch)
{
    cached_launch_t *cached;
    mpath_status_t status;

    if (!launch->once) {
        cached = find_launch(launches, stream, launch->function, launch->arguments, launch->bytes);
        if (wants_repeat(launches, cached)) {
            status            = mpath_repeat_create(stream, launch->function, launch->arguments, launch->ctas,
                                                    MPATH_KERNEL_THREADS, &cached->repeat);
            launches->refused = status == MPATH_ERR_UNSUPPORTED;
            if ((status != MPATH_OK) && !launches->refused) {
                return status;
            }
        }
        if ((cached->repeat != NULL) && launch->follows) {
            return mpath_repeat_start(cached->repeat);
        }
    }
    memcpy(launch->arguments, &launch->number, sizeof(launch->number));
    return mpath_launch_uncounted(stream, launch->function, launch->arguments, launch->ctas, MPATH_KERNEL_THREADS);
}
