/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduces of short vectors (gpu/reduce_eager.h). A rank starts its kernel before the agreement (coll/gpu_eager.h),
 * which passes while the GPU gets to work; each kernel sends its vector to all and waits for theirs. Unless all have
 * started theirs, no vector is complete anywhere and no kernel has written a result.
 */
#include "coll/allreduce_gpu_private.h"
#include "coll/gpu_eager.h"

#include "gpu/usage.h"
#include "util/log.h"

#include <stdlib.h>
#include <string.h>

/* Where it was the faster way: up to so many bytes of a vector, and of what a rank sends. */
#define EAGER_MAX_BYTES (UINT64_C(256) << 10)
#define EAGER_MAX_SENT_BYTES (UINT64_C(768) << 10)

struct gpu_eager {
    gpu_lent_t *lent; /* NULL until a call was short enough */
    uint64_t number;  /* of calls that could have gone this way, the same on all ranks */
    uint64_t counted; /* the number that the kernels' counters have */
    /* the call under way */
    mpath_reduce_how_t how;
    int known, fits;              /* of `how` */
    mpath_cu_function_t function; /* the same; NULL: not looked for */
    gpu_eager_kernel_t kernel;
    mpath_kernel_eager_t arguments;
    int wanted; /* its vector is short enough */
    int started;
};

gpu_eager_t *mpath_gpu_eager_create(void)
{
    return calloc(1, sizeof(gpu_eager_t));
}

void mpath_gpu_eager_destroy(gpu_eager_t *eager)
{
    if (eager != NULL) {
        mpath_gpu_lent_destroy(eager->lent);
        mpath_pinned_release(&eager->kernel.words);
        free(eager);
    }
}

/* The longest vector, as far as this rank has memory. */
static uint64_t max_bytes(const mpath_symmetric_gpu_t *gpu)
{
    uint64_t size = (uint64_t)gpu->size, most = EAGER_MAX_SENT_BYTES / (size - 1);
    uint64_t room = (gpu->reduce->settings->gpu_memory_bytes - MPATH_EAGER_COUNTERS_BYTES) / (4 * size);

    most = (most < EAGER_MAX_BYTES) ? most : EAGER_MAX_BYTES;
    return ((most < room) ? most : room) & ~UINT64_C(15);
}

static void look_at_how(gpu_eager_t *eager, const mpath_reduce_how_t *how)
{
    if (!eager->known || (eager->how.op != how->op) || (eager->how.type != how->type)) {
        eager->known    = 1;
        eager->how      = *how;
        eager->fits     = mpath_eager_fits(how);
        eager->function = NULL;
    }
}

/* -- one kernel -- */

static mpath_status_t launch(mpath_symmetric_gpu_t *gpu)
{
    gpu_eager_t *eager        = gpu->eager;
    gpu_eager_launch_t launch = {.function  = eager->function,
                                 .arguments = &eager->arguments,
                                 .bytes     = sizeof(eager->arguments),
                                 .ctas      = eager->kernel.ctas,
                                 .number    = eager->number,
                                 .follows   = eager->counted + 1 == eager->number,
                                 .once      = (int)eager->arguments.again};
    mpath_status_t status;

    mpath_gpu_coll_lock();
    status = mpath_gpu_launches_start_eager(gpu->launches, eager->kernel.stream, &launch);
    mpath_gpu_coll_unlock();
    eager->counted = eager->number;
    return status;
}

static mpath_status_t launch_again(void *of)
{
    mpath_symmetric_gpu_t *gpu = of;

    gpu->eager->arguments.again = 1;
    return launch(gpu);
}

/* This rank's kernel, on the GPU of the memory that it lends. */
static mpath_status_t start(mpath_symmetric_gpu_t *gpu, const mpath_symmetric_buffers_t *buffers, uint64_t elements)
{
    gpu_eager_t *eager    = gpu->eager;
    mpath_gpu_t *device   = eager->lent->device;
    mpath_status_t status = MPATH_OK;

    if (eager->function == NULL) {
        status = mpath_eager_find(device, &eager->how, &eager->function);
    }
    if (status == MPATH_OK) {
        status = mpath_stream_get(device, gpu->reduce->first_stream + 1, &eager->kernel.stream);
    }
    if (status != MPATH_OK) {
        return status;
    }
    memset(&eager->arguments, 0, sizeof(eager->arguments)); /* they are compared as bytes */
    eager->arguments.elements    = elements;
    eager->arguments.send        = (mpath_cu_ptr_t)(uintptr_t)buffers->send;
    eager->arguments.recv        = (mpath_cu_ptr_t)(uintptr_t)buffers->recv;
    eager->arguments.words       = mpath_pinned_device(&eager->kernel.words, eager->kernel.words.base);
    eager->arguments.patience_ns = GPU_EAGER_PATIENCE_NS;
    eager->arguments.slot_bytes  = eager->lent->unit_bytes;
    eager->arguments.ranks       = (uint32_t)gpu->size;
    eager->arguments.me          = (uint32_t)gpu->me;
    for (int rank = 0; rank < gpu->size; rank++) {
        eager->arguments.memory[rank] = mpath_gpu_lent_address(eager->lent, rank);
    }
    eager->kernel.number       = eager->number;
    eager->kernel.ctas         = mpath_eager_ctas(elements * mpath_reduce_bytes(eager->how.type));
    eager->kernel.what         = "vector";
    eager->kernel.launch_again = launch_again;
    eager->kernel.of           = gpu;
    eager->started             = 1;
    return launch(gpu);
}

mpath_status_t mpath_gpu_eager_start(mpath_symmetric_gpu_t *gpu, const mpath_symmetric_buffers_t *buffers,
                                     uint64_t elements, const mpath_reduce_how_t *how, int eligible)
{
    int way               = gpu->reduce->settings->gpu_reduce;
    gpu_eager_t *eager    = gpu->eager;
    uint64_t bytes        = elements * mpath_reduce_bytes(how->type);
    mpath_status_t status = MPATH_OK;
    mpath_gpu_t *device;
    int usable;

    look_at_how(eager, how);
    usable        = (eager->lent != NULL) && eager->lent->usable;
    eager->wanted = eager->fits &&
                    (usable ? (MPATH_EAGER_SLOT_BYTES(bytes) <= eager->lent->unit_bytes) : (bytes <= max_bytes(gpu)));
    eager->started = 0;
    eager->number += (usable && eager->wanted) ? 1 : 0;
    gpu->reduce->eager = (eligible && eager->wanted && (way == MPATH_GPU_REDUCE_AUTO)) ? GPU_EAGER_WANTED
                                                                                       : GPU_EAGER_NOT;
    if (gpu->reduce->eager && usable &&
        (mpath_gpu_get(buffers->send_memory->device, buffers->send_memory->context, &device) == MPATH_OK) &&
        (device == eager->lent->device)) {
        gpu->reduce->eager = GPU_EAGER_STARTED;
        status             = start(gpu, buffers, elements);
    }
    if (status != MPATH_OK) {
        mpath_team_break(gpu->team, status);
    }
    return status;
}

mpath_status_t mpath_gpu_eager_finish(mpath_symmetric_gpu_t *gpu, mpath_status_t agreed, int *done_p)
{
    mpath_gpu_coll_t *coll = gpu->reduce;
    gpu_eager_t *eager     = gpu->eager;
    uint64_t start_ns      = mpath_time_ns();
    mpath_status_t status  = agreed;

    *done_p = (agreed == MPATH_OK) && eager->started && mpath_gpu_eager_all(coll);
    if (!eager->started) {
        return agreed;
    }
    if (!mpath_status_is_error(agreed)) {
        status = mpath_gpu_eager_await(coll, &eager->kernel, *done_p);
    }
    if (mpath_status_is_error(status)) {
        mpath_team_break(gpu->team, status);
        mpath_gpu_eager_abandon(&eager->kernel);
        return status;
    }
    if (*done_p) {
        atomic_store_explicit(&coll->room.words[gpu->me].kernel_done, coll->number, memory_order_release);
        coll->counters.calls++;
        coll->counters.eager++;
        coll->counters.kernel_bytes += eager->arguments.elements * mpath_reduce_bytes(eager->how.type);
        gpu->counters.calls++;
        gpu->counters.move_ns += mpath_time_ns() - start_ns;
    }
    return agreed;
}

/* -- what it needs -- */

mpath_status_t mpath_gpu_eager_prepare(mpath_symmetric_gpu_t *gpu)
{
    const mpath_gpu_coll_t *coll = gpu->reduce;
    gpu_eager_t *eager           = gpu->eager;
    mpath_status_t status;
    uint64_t unit;

    for (int rank = 0; rank < gpu->size; rank++) {
        if (gpu_cell(coll, rank)->eager == GPU_EAGER_NOT) {
            return MPATH_OK;
        }
    }
    if (eager->lent == NULL) {
        eager->lent = mpath_gpu_lent_create(gpu->size, gpu->me);
        if (eager->lent == NULL) {
            mpath_error("no memory for reductions of %d ranks on device memory; the call fails", gpu->size);
            return MPATH_ERR_NO_MEMORY; /* the others count on it */
        }
    }
    if (mpath_gpu_lent_is_current(eager->lent, coll)) {
        return MPATH_OK;
    }
    eager->number = eager->counted = 0;
    eager->function                = NULL;
    unit                           = MPATH_EAGER_SLOT_BYTES(max_bytes(gpu));
    if ((eager->kernel.words.base == NULL) &&
        (mpath_pinned_alloc(coll->send.gpu, MPATH_EAGER_CTAS * sizeof(uint64_t), &eager->kernel.words) != MPATH_OK)) {
        unit = 0;
    }
    status = mpath_gpu_lent_share(eager->lent, coll, unit, MPATH_EAGER_MEMORY_BYTES((uint64_t)gpu->size, unit));
    if ((status == MPATH_OK) && eager->lent->usable) {
        mpath_debug("device memory of %d ranks can be reduced eagerly, up to %llu bytes", gpu->size,
                    (unsigned long long)eager->lent->unit_bytes / 2);
    }
    return status;
}
