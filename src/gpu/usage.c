/* SPDX-License-Identifier: BSD-3-Clause */
/* Sums over the process of what mpath launches and allocates on GPUs. */
#include "gpu/usage.h"

#include <stdatomic.h>

static atomic_uint_fast64_t launches, ctas_launched, memory_bytes;

void mpath_gpu_usage(mpath_gpu_usage_t *usage)
{
    usage->launches     = atomic_load_explicit(&launches, memory_order_relaxed);
    usage->ctas         = atomic_load_explicit(&ctas_launched, memory_order_relaxed);
    usage->memory_bytes = atomic_load_explicit(&memory_bytes, memory_order_relaxed);
}

void mpath_gpu_usage_launch(unsigned ctas)
{
    atomic_fetch_add_explicit(&launches, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&ctas_launched, ctas, memory_order_relaxed);
}

mpath_cu_result_t mpath_gpu_memory_take(mpath_cu_ptr_t *address_p, size_t bytes)
{
    mpath_cu_result_t result = mpath_gpu_driver()->MemAlloc(address_p, bytes);

    if (result == MPATH_CU_SUCCESS) {
        atomic_fetch_add_explicit(&memory_bytes, bytes, memory_order_relaxed);
    }
    return result;
}

/* In the context. A stream of its own: the others may be in use, and do not wait for the default one. */
static mpath_cu_result_t fill_with_zeros(mpath_cu_ptr_t address, size_t bytes)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    mpath_cu_stream_t stream;
    mpath_cu_result_t result = cu->StreamCreateWithPriority(&stream, MPATH_CU_STREAM_NON_BLOCKING, 0);

    if (result != MPATH_CU_SUCCESS) {
        return result;
    }
    result = cu->MemsetD8Async(address, 0, bytes, stream);
    if (result == MPATH_CU_SUCCESS) {
        result = cu->StreamSynchronize(stream);
    }
    cu->StreamDestroy(stream);
    return result;
}

mpath_cu_result_t mpath_gpu_memory_take_zeroed(mpath_cu_ptr_t *address_p, size_t bytes)
{
    mpath_cu_result_t result = mpath_gpu_memory_take(address_p, bytes);

    if (result != MPATH_CU_SUCCESS) {
        return result;
    }
    result = fill_with_zeros(*address_p, bytes);
    if (result != MPATH_CU_SUCCESS) {
        mpath_gpu_driver()->MemFree(*address_p);
        atomic_fetch_sub_explicit(&memory_bytes, bytes, memory_order_relaxed);
    }
    return result;
}

void mpath_gpu_memory_give(mpath_gpu_t *gpu, mpath_cu_ptr_t address, size_t bytes)
{
    if (address == 0) {
        return;
    }
    if (mpath_gpu_available() && (mpath_gpu_enter(gpu) == MPATH_OK)) {
        mpath_gpu_driver()->MemFree(address);
        mpath_gpu_leave(gpu);
    }
    atomic_fetch_sub_explicit(&memory_bytes, bytes, memory_order_relaxed);
}
