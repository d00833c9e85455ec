/* SPDX-License-Identifier: BSD-3-Clause */
/* Which driver's devices this process works with: the one place that knows of several. And memory of the host for them. */
#include "device/device.h"

#include "util/log.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

/* In the order in which they are asked. */
static const mpath_device_ops_t *const backends[] = {&mpath_device_cuda};

#define BACKENDS (sizeof(backends) / sizeof(backends[0]))

static const mpath_device_ops_t *device_added; /* asked before them; NULL: none */
static const mpath_device_ops_t *_Atomic device_chosen;

void mpath_device_add(const mpath_device_ops_t *ops)
{
    device_added = ops;
    atomic_store(&device_chosen, NULL);
}

/* From 0 on; NULL: there are no more. */
static const mpath_device_ops_t *device_backend(size_t index)
{
    if (device_added != NULL) {
        return (index == 0) ? device_added : (index <= BACKENDS) ? backends[index - 1] : NULL;
    }
    return (index < BACKENDS) ? backends[index] : NULL;
}

const mpath_device_ops_t *mpath_device(void)
{
    const mpath_device_ops_t *ops = atomic_load_explicit(&device_chosen, memory_order_acquire);

    if (ops != NULL) {
        return ops->is_ready() ? ops : NULL;
    }
    for (size_t index = 0; (ops = device_backend(index)) != NULL; index++) {
        if (ops->is_ready()) {
            const mpath_device_ops_t *none = NULL;

            /* Two threads may have found one each. */
            return atomic_compare_exchange_strong(&device_chosen, &none, ops) ? ops : none;
        }
    }
    return NULL;
}

int mpath_gpu_was_found(void)
{
    return atomic_load_explicit(&device_chosen, memory_order_relaxed) != NULL;
}

/* For what is said of a driver before one is ready. */
static const mpath_device_ops_t *device_or_first(void)
{
    const mpath_device_ops_t *ops = mpath_device();

    return (ops != NULL) ? ops : device_backend(0);
}

const char *mpath_device_driver_name(void)
{
    return device_or_first()->name;
}

mpath_status_t mpath_gpu_driver_start(void)
{
    mpath_status_t status = MPATH_ERR_UNSUPPORTED;
    const mpath_device_ops_t *ops;

    if (mpath_device() != NULL) {
        return MPATH_OK;
    }
    for (size_t index = 0; (ops = device_backend(index)) != NULL; index++) {
        mpath_status_t started = ops->start();

        if (started == MPATH_OK) {
            return MPATH_OK;
        }
        status = (started == MPATH_ERR_UNSUPPORTED) ? status : started;
    }
    return status;
}

const char *mpath_device_error_string(mpath_device_result_t result)
{
    return device_or_first()->error_string(result);
}

mpath_status_t mpath_device_status(mpath_device_result_t result)
{
    switch (result) {
    case MPATH_DEVICE_DONE:
        return MPATH_OK;
    case MPATH_DEVICE_NO_MEMORY:
        return MPATH_ERR_NO_MEMORY;
    case MPATH_DEVICE_NOT_SUPPORTED:
        return MPATH_ERR_UNSUPPORTED;
    default:
        return MPATH_ERR_IO;
    }
}

mpath_status_t mpath_device_pin(int ordinal, void *base, size_t bytes, mpath_device_ptr_t *device_base_p)
{
    const mpath_device_ops_t *ops = mpath_device();
    mpath_device_result_t result  = ops->pin(base, bytes, device_base_p);

    if (result != MPATH_DEVICE_DONE) {
        mpath_error("%zu bytes of host memory cannot be made known to GPU %d: %s: %s; is the limit of locked memory "
                    "(ulimit -l) high enough?",
                    bytes, ordinal, ops->failed_call(), ops->error_string(result));
    }
    return mpath_device_status(result);
}

mpath_status_t mpath_device_pin_new(int ordinal, size_t bytes, void **base_p, mpath_device_ptr_t *device_base_p)
{
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mpath_status_t status;

    if (base == MAP_FAILED) {
        mpath_error("%zu bytes of host memory for GPU %d cannot be had: %s", bytes, ordinal, strerror(errno));
        return MPATH_ERR_NO_MEMORY;
    }
    status = mpath_device_pin(ordinal, base, bytes, device_base_p);
    if (status != MPATH_OK) {
        munmap(base, bytes);
        return status;
    }
    *base_p = base;
    return MPATH_OK;
}
