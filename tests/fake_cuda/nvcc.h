/* SPDX-License-Identifier: BSD-3-Clause */
/* What nvcc knows by itself, as far as the kernels use it, for a compiler of the host; before the kernels' sources. */
#ifndef FAKE_CUDA_NVCC_H
#define FAKE_CUDA_NVCC_H

#include "fake_kernel.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <math.h>
#include <time.h>

#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
/*
 * Of a CTA, but here of all CTAs of a launch: right where no thread polls, or leaves its CTA behind in another way, between
 * the write, a barrier and the last read.
 */
#define __shared__ static __thread

#define threadIdx (fake_here->thread)
#define blockIdx (fake_here->block)
#define blockDim (fake_here->block_size)
#define gridDim (fake_here->grid_size)

typedef struct int2 {
    int x, y;
} __attribute__((aligned(8))) int2;

typedef struct int4 {
    int x, y, z, w;
} __attribute__((aligned(16))) int4;

static inline void __syncthreads()
{
    (void)fake_block_all(1);
}

static inline int __syncthreads_and(int good)
{
    return fake_block_all(good);
}

/* Whole warps vote. */
static inline int __all_sync(unsigned mask, int good)
{
    if (mask != 0xffffffffu) {
        fake_die("a part of a warp votes, which is not faked");
    }
    return fake_warp_all(good);
}

static inline void __threadfence()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline void __threadfence_system()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline void __nanosleep(unsigned)
{
    fake_poll();
}

static inline unsigned long long atomicAdd(unsigned long long *word, unsigned long long value)
{
    return __atomic_fetch_add(word, value, __ATOMIC_RELAXED);
}

static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift)
{
    return static_cast<unsigned>((static_cast<uint64_t>(high) << 32 | low) >> (shift & 31));
}

/* Never fused with an addition: see the compiler's options in local.mk. */
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}

static inline double __dmul_rn(double a, double b)
{
    return a * b;
}

/* Caches are not told of. */
template <typename type_t> static inline type_t __ldcs(const type_t *from)
{
    return *from;
}

template <typename type_t> static inline type_t __ldcg(const type_t *from)
{
    return *from;
}

template <typename type_t> static inline void __stcs(type_t *to, const type_t &value)
{
    *to = value;
}

/* For device/kernels/access.cuh. */
static inline void host_poll()
{
    fake_poll();
}

static inline uint64_t host_poll_ns()
{
    struct timespec now;

    fake_poll();
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

#endif
