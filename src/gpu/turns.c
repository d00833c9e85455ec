/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies that need no turn on a GPU that processes share. */
#include "gpu/turns.h"
#include "gpu/private.h"

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
static mpath_cu_result_t copy_rows(mpath_cu_ptr_t target, const void *source, size_t row_bytes,
                                   mpath_cu_stream_t stream)
{
    const mpath_cu_copy_2d_t copy = {.source_type  = MPATH_CU_MEMORY_HOST,
                                     .source_host  = source,
                                     .source_pitch = row_bytes,
                                     .target_type  = MPATH_CU_MEMORY_DEVICE,
                                     .target       = target,
                                     .target_pitch = row_bytes,
                                     .row_bytes    = row_bytes,
                                     .rows         = 2};

    return mpath_gpu_driver()->Memcpy2DAsync(&copy, stream);
}

mpath_cu_result_t mpath_gpu_copy_without_turn(mpath_cu_ptr_t target, const void *source, size_t bytes,
                                              mpath_cu_stream_t stream)
{
    mpath_cu_result_t result;

    if ((bytes < 2) || (bytes >= TURNS_PLAIN_BYTES)) {
        return mpath_gpu_driver()->MemcpyAsync(target, (mpath_cu_ptr_t)(uintptr_t)source, bytes, stream);
    }
    result = copy_rows(target, source, bytes / 2, stream);
    if ((result == MPATH_CU_SUCCESS) && (bytes % 2 != 0)) { /* the last byte, with the one before it again */
        result = copy_rows(target + bytes - 2, (const char *)source + bytes - 2, 1, stream);
    }
    return result;
}
