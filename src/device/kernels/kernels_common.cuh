/* SPDX-License-Identifier: BSD-3-Clause */
/* What every kernel ends with: telling the world that the launch is complete. */
#include "device/kernels/kernel_args.h"

#include "device/kernels/access.cuh"

/*
 * The last CTA writes the flags. The barrier puts the CTA's writes before the arrival of its first thread, which
 * releases them to the whole system; the last arrival acquires what all have released, and the flags' own releases hand
 * it on. The last flag follows the others: it is the launch's mark, when there is one.
 */
static __device__ void kernel_end(const mpath_kernel_control_t &control, const mpath_kernel_word_t *flags)
{
    __shared__ bool last;

    __syncthreads();
    if (threadIdx.x == 0) {
        const uint64_t arrivals = control.counters + offsetof(mpath_kernel_counters_t, arrivals);

        last = kernel_count_one(arrivals) + 1 == control.arrivals;
    }
    __syncthreads();
    if (!last || (control.flags_count == 0)) {
        return;
    }
    if (control.flags_count > 1) {
        if (threadIdx.x + 1 < control.flags_count) {
            kernel_store_release(flags[threadIdx.x].address, flags[threadIdx.x].value);
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        kernel_store_release(flags[control.flags_count - 1].address, flags[control.flags_count - 1].value);
    }
}

/*
 * The same for a launch that repeats: its CTAs are counted round and round, so nothing has to be told to it, and the
 * flags get the number of the call. `number` counts in the first thread of CTA 0 only, which hands it to the last CTA:
 * reads of the same host memory by many CTAs go one after the other.
 */
static __device__ void kernel_end_repeated(uint64_t counters, const mpath_kernel_control_t &control,
                                           const mpath_kernel_word_t *flags, uint64_t number)
{
    const uint64_t turn = counters + offsetof(mpath_kernel_counters_t, turn);
    const uint64_t told = counters + offsetof(mpath_kernel_counters_t, number);

    __syncthreads();
    if (threadIdx.x != 0) {
        return;
    }
    if (gridDim.x > 1) {
        if (blockIdx.x == 0) {
            *reinterpret_cast<volatile uint64_t *>(told) = number;
        }
        if (kernel_count_round(turn, gridDim.x - 1) != gridDim.x - 1) {
            return;
        }
        number = *reinterpret_cast<const volatile uint64_t *>(told);
    }
    for (uint32_t index = 0; index < control.flags_count; index++) {
        kernel_store_release(flags[index].address, number);
    }
}

/* Ends a launch that has given up: its CTAs count as well. */
static __device__ void kernel_skip(const mpath_kernel_control_t &control)
{
    if (threadIdx.x == 0) {
        atomicAdd(reinterpret_cast<unsigned long long *>(control.counters + offsetof(mpath_kernel_counters_t, arrivals)),
                  1ull);
    }
}
