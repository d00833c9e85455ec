/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What every kernel ends with: telling the world that the launch is complete. And reads and writes of words that
 * others see.
 */
#include "gpu/kernel_args.h"

static __device__ __forceinline__ uint64_t kernel_now_ns()
{
    uint64_t now;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

static __device__ __forceinline__ uint64_t kernel_load_acquire(uint64_t address)
{
    uint64_t value;

    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
    return value;
}

static __device__ __forceinline__ uint64_t kernel_load_relaxed(uint64_t address)
{
    uint64_t value;

    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
    return value;
}

static __device__ __forceinline__ void kernel_store_release(uint64_t address, uint64_t value)
{
    asm volatile("st.release.sys.global.u64 [%0], %1;" : : "l"(address), "l"(value) : "memory");
}

static __device__ __forceinline__ void kernel_store_relaxed(uint64_t address, uint64_t value)
{
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" : : "l"(address), "l"(value) : "memory");
}

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
        uint64_t before;

        asm volatile("atom.acq_rel.sys.global.add.u64 %0, [%1], 1;" : "=l"(before) : "l"(arrivals) : "memory");
        last = before + 1 == control.arrivals;
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
    unsigned before     = 0;

    __syncthreads();
    if (threadIdx.x != 0) {
        return;
    }
    if (gridDim.x > 1) {
        if (blockIdx.x == 0) {
            *reinterpret_cast<volatile uint64_t *>(told) = number;
        }
        asm volatile("atom.acq_rel.sys.global.inc.u32 %0, [%1], %2;"
                     : "=r"(before)
                     : "l"(turn), "r"(gridDim.x - 1)
                     : "memory");
        if (before != gridDim.x - 1) {
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
