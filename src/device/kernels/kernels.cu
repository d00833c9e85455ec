/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The copy kernel: many fragments of any length and alignment, divided over the CTAs by bytes. Reductions come beside it,
 * in files of their own, included at the end: nvcc makes one image of this file.
 */
#include <cstddef>

#include "device/kernels/kernels_common.cuh"

/* Loads in flight per thread. */
#define COPY_UNROLL 8

/* Ranges of CTAs begin at multiples of this, so that few vectors are cut. */
#define COPY_GRAIN 512

template <typename vector_t>
static __device__ __forceinline__ void copy_vectors(char *target, const char *source, uint64_t bytes)
{
    const uint64_t count = bytes / sizeof(vector_t), stride = blockDim.x;
    auto to       = reinterpret_cast<vector_t *>(target);
    auto from     = reinterpret_cast<const vector_t *>(source);
    uint64_t base = 0;
    vector_t held[COPY_UNROLL];

    for (; base + COPY_UNROLL * stride <= count; base += COPY_UNROLL * stride) {
#pragma unroll
        for (int k = 0; k < COPY_UNROLL; k++) {
            held[k] = __ldcs(from + base + k * stride + threadIdx.x);
        }
#pragma unroll
        for (int k = 0; k < COPY_UNROLL; k++) {
            __stcs(to + base + k * stride + threadIdx.x, held[k]);
        }
    }
    /* The rest, all loads before the first store as well. */
#pragma unroll
    for (int k = 0; k < COPY_UNROLL; k++) {
        uint64_t at = base + k * stride + threadIdx.x;
        if (at < count) {
            held[k] = __ldcs(from + at);
        }
    }
#pragma unroll
    for (int k = 0; k < COPY_UNROLL; k++) {
        uint64_t at = base + k * stride + threadIdx.x;
        if (at < count) {
            __stcs(to + at, held[k]);
        }
    }
}

static __device__ __forceinline__ void copy_bytes(char *target, const char *source, uint64_t bytes)
{
    for (uint64_t at = threadIdx.x; at < bytes; at += blockDim.x) {
        target[at] = source[at];
    }
}

/*
 * Source and target differ modulo 4: words of the target are put together from two words of the source. Reads only
 * words that lie inside the source, so that nothing behind an allocation is touched.
 */
static __device__ __forceinline__ void copy_shifted(char *target, const char *source, uint64_t bytes)
{
    const unsigned shift = static_cast<unsigned>(reinterpret_cast<uintptr_t>(source) & 3); /* target is at a word */
    auto to              = reinterpret_cast<unsigned *>(target);
    auto from            = reinterpret_cast<const unsigned *>(source - shift);
    uint64_t first, words, stride = blockDim.x, base;
    unsigned held[COPY_UNROLL + 1][2];

    /* Word k needs source words k and k + 1: bytes 4k - shift up to 4k + 8 - shift. */
    first = 1;
    words = (bytes + shift) / 4;
    words = (words > 1) ? words - 1 : first;
    for (base = first; base < words; base += COPY_UNROLL * stride) {
#pragma unroll
        for (int k = 0; k < COPY_UNROLL; k++) {
            uint64_t at = base + k * stride + threadIdx.x;
            if (at < words) {
                held[k][0] = from[at];
                held[k][1] = from[at + 1];
            }
        }
#pragma unroll
        for (int k = 0; k < COPY_UNROLL; k++) {
            uint64_t at = base + k * stride + threadIdx.x;
            if (at < words) {
                to[at] = __funnelshift_r(held[k][0], held[k][1], 8 * shift);
            }
        }
    }
    copy_bytes(target, source, (bytes < 4 * first) ? bytes : 4 * first);
    if (bytes > 4 * words) {
        copy_bytes(target + 4 * words, source + 4 * words, bytes - 4 * words);
    }
}

/* All threads of the CTA. */
static __device__ void copy_range(char *target, const char *source, uint64_t bytes)
{
    const uintptr_t to = reinterpret_cast<uintptr_t>(target), from = reinterpret_cast<uintptr_t>(source);
    const unsigned differ = static_cast<unsigned>(to ^ from) & 15;
    unsigned vector_bytes, head;
    uint64_t body;

    vector_bytes = (differ == 0) ? 16 : ((differ & 7) == 0) ? 8 : 4;
    head         = static_cast<unsigned>(-to) & (vector_bytes - 1);
    if (bytes < head + vector_bytes) {
        copy_bytes(target, source, bytes);
        return;
    }
    copy_bytes(target, source, head);
    target += head;
    source += head;
    bytes -= head;
    if ((differ & 3) != 0) {
        copy_shifted(target, source, bytes);
        return;
    }
    body = bytes & ~static_cast<uint64_t>(vector_bytes - 1);
    if (vector_bytes == 16) {
        copy_vectors<int4>(target, source, body);
    } else if (vector_bytes == 8) {
        copy_vectors<int2>(target, source, body);
    } else {
        copy_vectors<int>(target, source, body);
    }
    copy_bytes(target + body, source + body, bytes - body);
}

/* This CTA's share of all bytes. */
template <typename arguments_t> static __device__ __forceinline__ void copy_share(const arguments_t &arguments)
{
    const uint64_t grains = (arguments.bytes + COPY_GRAIN - 1) / COPY_GRAIN;
    const uint64_t begin  = grains * blockIdx.x / gridDim.x * COPY_GRAIN;
    const uint64_t end    = grains * (blockIdx.x + 1) / gridDim.x * COPY_GRAIN;
    uint64_t at           = 0;

    for (uint32_t index = 0; (index < arguments.fragments_count) && (at < end); index++) {
        const mpath_kernel_fragment_t &fragment = arguments.fragments[index];
        const uint64_t next                     = at + fragment.bytes;

        if (next > begin) {
            const uint64_t from = (begin > at) ? begin - at : 0;
            const uint64_t to   = (end < next) ? end - at : fragment.bytes;

            copy_range(reinterpret_cast<char *>(fragment.target) + from,
                       reinterpret_cast<const char *>(fragment.source) + from, to - from);
        }
        at = next;
    }
}

template <typename arguments_t> static __device__ __forceinline__ void copy_fragments(const arguments_t &arguments)
{
    copy_share(arguments);
    kernel_end(arguments.control, arguments.flags);
}

extern "C" __global__ void __launch_bounds__(MPATH_KERNEL_THREADS)
    mpath_kernel_copy(KERNEL_ARGUMENTS(mpath_kernel_copy_t))
{
    copy_fragments(arguments);
}

extern "C" __global__ void __launch_bounds__(MPATH_KERNEL_THREADS)
    mpath_kernel_copy_few(KERNEL_ARGUMENTS(mpath_kernel_copy_few_t))
{
    copy_fragments(arguments);
}

extern "C" __global__ void __launch_bounds__(MPATH_KERNEL_THREADS)
    mpath_kernel_copy_again(KERNEL_ARGUMENTS(mpath_kernel_copy_again_t))
{
    uint64_t number = 0;

    if ((threadIdx.x == 0) && (blockIdx.x == 0)) {
        number = kernel_load_relaxed(arguments.number); /* under way with the data */
    }
    copy_share(arguments);
    kernel_end_repeated(arguments.control.counters, arguments.control, arguments.flags, number);
}

#include "device/kernels/reduce.cuh"
#include "device/kernels/reduce_writes.cuh"
#include "device/kernels/reduce_eager.cuh"
#include "device/kernels/reduce_eager_parts.cuh"
#include "device/kernels/exchange.cuh"
