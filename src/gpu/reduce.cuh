/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The reduction kernels. A thread reads one vector of every source, combines them in the order of the sources and writes
 * the result to every target, so each element is combined in one place: all ranks get the same bits, in every run. Included by kernels.cu.
 */
#include "gpu/reduce_args.h"

/* Loads of a thread that are in flight together: vectors of so many sources each. */
#define REDUCE_SLOTS 4
#define REDUCE_DEEP 2

template <typename type_t> struct reduce_sum {
    static __device__ __forceinline__ type_t apply(type_t a, type_t b)
    {
        return static_cast<type_t>(a + b);
    }
};

template <typename type_t> struct reduce_prod {
    static __device__ __forceinline__ type_t apply(type_t a, type_t b)
    {
        return static_cast<type_t>(1u * a * b); /* narrow types would be multiplied as int */
    }
};

template <typename type_t> struct reduce_max {
    static __device__ __forceinline__ type_t apply(type_t a, type_t b)
    {
        return (a > b) ? a : b;
    }
};

template <typename type_t> struct reduce_min {
    static __device__ __forceinline__ type_t apply(type_t a, type_t b)
    {
        return (a < b) ? a : b;
    }
};

template <typename type_t> struct reduce_band {
    static __device__ __forceinline__ type_t apply(type_t a, type_t b)
    {
        return static_cast<type_t>(a & b);
    }
};

template <typename type_t> struct reduce_bor {
    static __device__ __forceinline__ type_t apply(type_t a, type_t b)
    {
        return static_cast<type_t>(a | b);
    }
};

template <typename type_t> struct reduce_bxor {
    static __device__ __forceinline__ type_t apply(type_t a, type_t b)
    {
        return static_cast<type_t>(a ^ b);
    }
};

template <typename type_t> struct reduce_land {
    static __device__ __forceinline__ type_t apply(type_t a, type_t b)
    {
        return ((a != 0) && (b != 0)) ? 1 : 0;
    }
};

template <typename type_t> struct reduce_lor {
    static __device__ __forceinline__ type_t apply(type_t a, type_t b)
    {
        return ((a != 0) || (b != 0)) ? 1 : 0;
    }
};

template <typename type_t> struct reduce_lxor {
    static __device__ __forceinline__ type_t apply(type_t a, type_t b)
    {
        return ((a != 0) != (b != 0)) ? 1 : 0;
    }
};

template <typename type_t> struct reduce_maxloc {
    static __device__ __forceinline__ type_t apply(type_t a, type_t b)
    {
        type_t best = (a.value > b.value) ? a : b;

        if (a.value == b.value) {
            best.place = (a.place < b.place) ? a.place : b.place;
        }
        return best;
    }
};

template <typename type_t> struct reduce_minloc {
    static __device__ __forceinline__ type_t apply(type_t a, type_t b)
    {
        type_t best = (a.value < b.value) ? a : b;

        if (a.value == b.value) {
            best.place = (a.place < b.place) ? a.place : b.place;
        }
        return best;
    }
};

/* What one thread moves at once: as many elements as fit a vector. */
template <typename vector_t, typename type_t> union reduce_pack {
    vector_t vector;
    type_t elements[sizeof(vector_t) / sizeof(type_t)];
};

template <typename vector_t, typename type_t, typename op_t>
static __device__ __forceinline__ void reduce_pair(reduce_pack<vector_t, type_t> &sum,
                                                   const reduce_pack<vector_t, type_t> &next)
{
#pragma unroll
    for (unsigned k = 0; k < sizeof(vector_t) / sizeof(type_t); k++) {
        sum.elements[k] = op_t::apply(next.elements[k], sum.elements[k]);
    }
}

/*
 * The vectors from `from` elements on: REDUCE_DEEP vectors of REDUCE_SLOTS sources are loaded before the first is used; more
 * sources follow in further groups.
 */
template <typename type_t, typename op_t>
static __device__ __forceinline__ void reduce_vectors(const mpath_kernel_reduce_t &arguments, uint64_t from,
                                                      uint64_t count)
{
    const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    const uint64_t skip   = from * sizeof(type_t);
    const int sources     = static_cast<int>(arguments.sources_count);
    uint64_t base         = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    reduce_pack<int4, type_t> held[REDUCE_DEEP][REDUCE_SLOTS], sum[REDUCE_DEEP];

    for (; base < count; base += REDUCE_DEEP * stride) {
        for (int group = 0; group < sources; group += REDUCE_SLOTS) {
#pragma unroll
            for (int deep = 0; deep < REDUCE_DEEP; deep++) {
#pragma unroll
                for (int slot = 0; slot < REDUCE_SLOTS; slot++) {
                    if ((group + slot < sources) && (base + deep * stride < count)) {
                        held[deep][slot].vector = reinterpret_cast<const int4 *>(arguments.sources[group + slot] +
                                                                                 skip)[base + deep * stride];
                    }
                }
            }
#pragma unroll
            for (int deep = 0; deep < REDUCE_DEEP; deep++) {
#pragma unroll
                for (int slot = 0; slot < REDUCE_SLOTS; slot++) {
                    if ((slot == 0) && (group == 0)) {
                        sum[deep] = held[deep][slot];
                    } else if (group + slot < sources) {
                        reduce_pair<int4, type_t, op_t>(sum[deep], held[deep][slot]);
                    }
                }
            }
        }
        for (unsigned target = 0; target < arguments.targets_count; target++) {
#pragma unroll
            for (int deep = 0; deep < REDUCE_DEEP; deep++) {
                if (base + deep * stride < count) {
                    reinterpret_cast<int4 *>(arguments.targets[target] + skip)[base + deep * stride] = sum[deep].vector;
                }
            }
        }
    }
}

/* One by one: what lies before and behind the `hole` elements that the vectors hold from `head` on. */
template <typename type_t, typename op_t>
static __device__ __forceinline__ void reduce_elements(const mpath_kernel_reduce_t &arguments, uint64_t head,
                                                       uint64_t hole)
{
    const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    const int sources     = static_cast<int>(arguments.sources_count);
    uint64_t index        = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    type_t held[REDUCE_SLOTS], sum;

    for (; index < arguments.elements - hole; index += stride) {
        const uint64_t at = (index < head) ? index : index + hole;

        for (int group = 0; group < sources; group += REDUCE_SLOTS) {
#pragma unroll
            for (int slot = 0; slot < REDUCE_SLOTS; slot++) {
                if (group + slot < sources) {
                    held[slot] = reinterpret_cast<const type_t *>(arguments.sources[group + slot])[at];
                }
            }
#pragma unroll
            for (int slot = 0; slot < REDUCE_SLOTS; slot++) {
                if ((slot == 0) && (group == 0)) {
                    sum = held[slot];
                } else if (group + slot < sources) {
                    sum = op_t::apply(held[slot], sum);
                }
            }
        }
        for (unsigned target = 0; target < arguments.targets_count; target++) {
            reinterpret_cast<type_t *>(arguments.targets[target])[at] = sum;
        }
    }
}

/* Bytes of an element or a vector behind a multiple of 16, when they are the same everywhere; else 16. */
static __device__ __forceinline__ unsigned reduce_offset(const mpath_kernel_reduce_t &arguments)
{
    const unsigned offset = static_cast<unsigned>(arguments.sources[0]) & 15;
    bool same             = true;

    for (unsigned index = 1; index < arguments.sources_count; index++) {
        same = same && ((arguments.sources[index] & 15) == offset);
    }
    for (unsigned index = 0; index < arguments.targets_count; index++) {
        same = same && ((arguments.targets[index] & 15) == offset);
    }
    return same ? offset : 16;
}

template <typename type_t, typename op_t>
static __device__ __forceinline__ void reduce_all(const mpath_kernel_reduce_t &arguments)
{
    const unsigned offset = reduce_offset(arguments), per_vector = 16 / sizeof(type_t);
    uint64_t head = 0, vectors = 0, number = 0;

    if (arguments.number != 0) {
        if ((threadIdx.x == 0) && (blockIdx.x == 0)) {
            number = kernel_load_relaxed(arguments.number); /* under way with the data */
        }
    } else if (!kernel_begin(arguments.control, nullptr)) {
        kernel_skip(arguments.control);
        return;
    }
    if ((offset < 16) && (sizeof(type_t) < 16)) {
        head    = ((16 - offset) & 15) / sizeof(type_t);
        head    = (head < arguments.elements) ? head : arguments.elements;
        vectors = (arguments.elements - head) / per_vector;
        reduce_vectors<type_t, op_t>(arguments, head, vectors);
    }
    reduce_elements<type_t, op_t>(arguments, head, vectors * per_vector);
    if (arguments.number != 0) {
        kernel_end_repeated(arguments.counters, arguments.control, arguments.flags, number);
    } else {
        kernel_end(arguments.control, arguments.flags);
    }
}

#define REDUCE_KERNEL(_op, _type)                                                                                      \
    extern "C" __global__ void __launch_bounds__(MPATH_KERNEL_THREADS)                                                 \
        mpath_kernel_reduce_##_op##_##_type(const __grid_constant__ mpath_kernel_reduce_t arguments)                   \
    {                                                                                                                  \
        reduce_all<mpath_reduce_##_type##_t, reduce_##_op<mpath_reduce_##_type##_t>>(arguments);                       \
    }

MPATH_REDUCE_KERNELS(REDUCE_KERNEL)
