/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The reduction kernels. A thread reads one vector of every source, combines them in the order of the sources and
 * writes the result to every target, so each element is combined in one place: all ranks get the same bits, in every
 * run. Included by kernels.cu.
 */
#include <cuda_fp16.h>

#include "device/kernels/reduce_args.h"

/*
 * Loads of a thread that are in flight together: vectors of so many sources each. A group of sources costs a trip over
 * the link, so that of more than REDUCE_SLOTS twice as many are loaded at once.
 */
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

/* Half precision as C has it: combined as float, rounded once. */
static __device__ __forceinline__ float reduce_widen(mpath_reduce_f16_t half)
{
    return __half2float(__ushort_as_half(half.bits));
}

static __device__ __forceinline__ mpath_reduce_f16_t reduce_narrow(float value)
{
    return {__half_as_ushort(__float2half_rn(value))};
}

template <> struct reduce_sum<mpath_reduce_f16_t> {
    static __device__ __forceinline__ mpath_reduce_f16_t apply(mpath_reduce_f16_t a, mpath_reduce_f16_t b)
    {
        return reduce_narrow(reduce_widen(a) + reduce_widen(b));
    }
};

template <> struct reduce_prod<mpath_reduce_f16_t> {
    static __device__ __forceinline__ mpath_reduce_f16_t apply(mpath_reduce_f16_t a, mpath_reduce_f16_t b)
    {
        return reduce_narrow(reduce_widen(a) * reduce_widen(b));
    }
};

template <> struct reduce_max<mpath_reduce_f16_t> {
    static __device__ __forceinline__ mpath_reduce_f16_t apply(mpath_reduce_f16_t a, mpath_reduce_f16_t b)
    {
        return (reduce_widen(a) > reduce_widen(b)) ? a : b;
    }
};

template <> struct reduce_min<mpath_reduce_f16_t> {
    static __device__ __forceinline__ mpath_reduce_f16_t apply(mpath_reduce_f16_t a, mpath_reduce_f16_t b)
    {
        return (reduce_widen(a) < reduce_widen(b)) ? a : b;
    }
};

/* Rounded after each step, never fused: the bits must be those of the host. */
static __device__ __forceinline__ float reduce_times(float a, float b)
{
    return __fmul_rn(a, b);
}

static __device__ __forceinline__ double reduce_times(double a, double b)
{
    return __dmul_rn(a, b);
}

template <typename type_t> struct reduce_sum_complex {
    static __device__ __forceinline__ type_t apply(type_t a, type_t b)
    {
        return {a.real + b.real, a.imag + b.imag};
    }
};

/* Parts of a factor that is infinite: 1 where they are, else 0, with their signs. */
template <typename real_t> static __device__ __forceinline__ real_t reduce_box(real_t part)
{
    return copysign(isinf(part) ? static_cast<real_t>(1) : static_cast<real_t>(0), part);
}

template <typename real_t> static __device__ __forceinline__ real_t reduce_no_nan(real_t part)
{
    return isnan(part) ? copysign(static_cast<real_t>(0), part) : part;
}

/* A product whose parts are both NaN is infinite when a factor or a partial product is: C11, annex G.5.1. */
template <typename type_t, typename real_t>
static __device__ __noinline__ type_t reduce_product_of_infinite(type_t a, type_t b, type_t product)
{
    const real_t ac = reduce_times(a.real, b.real), bd = reduce_times(a.imag, b.imag);
    const real_t ad = reduce_times(a.real, b.imag), bc = reduce_times(a.imag, b.real);
    bool infinite = false;

    if (isinf(a.real) || isinf(a.imag)) {
        a        = {reduce_box(a.real), reduce_box(a.imag)};
        b        = {reduce_no_nan(b.real), reduce_no_nan(b.imag)};
        infinite = true;
    }
    if (isinf(b.real) || isinf(b.imag)) {
        b        = {reduce_box(b.real), reduce_box(b.imag)};
        a        = {reduce_no_nan(a.real), reduce_no_nan(a.imag)};
        infinite = true;
    }
    if (!infinite && (isinf(ac) || isinf(bd) || isinf(ad) || isinf(bc))) {
        a        = {reduce_no_nan(a.real), reduce_no_nan(a.imag)};
        b        = {reduce_no_nan(b.real), reduce_no_nan(b.imag)};
        infinite = true;
    }
    if (infinite) {
        const real_t infinity = static_cast<real_t>(HUGE_VAL);

        product.real = infinity * (reduce_times(a.real, b.real) - reduce_times(a.imag, b.imag));
        product.imag = infinity * (reduce_times(a.real, b.imag) + reduce_times(a.imag, b.real));
    }
    return product;
}

template <typename type_t, typename real_t> struct reduce_prod_complex {
    static __device__ __forceinline__ type_t apply(type_t a, type_t b)
    {
        const type_t product = {reduce_times(a.real, b.real) - reduce_times(a.imag, b.imag),
                                reduce_times(a.real, b.imag) + reduce_times(a.imag, b.real)};

        if (isnan(product.real) && isnan(product.imag)) {
            return reduce_product_of_infinite<type_t, real_t>(a, b, product);
        }
        return product;
    }
};

template <> struct reduce_sum<mpath_reduce_c64_t> : reduce_sum_complex<mpath_reduce_c64_t> {
};
template <> struct reduce_sum<mpath_reduce_c128_t> : reduce_sum_complex<mpath_reduce_c128_t> {
};
template <> struct reduce_prod<mpath_reduce_c64_t> : reduce_prod_complex<mpath_reduce_c64_t, float> {
};
template <> struct reduce_prod<mpath_reduce_c128_t> : reduce_prod_complex<mpath_reduce_c128_t, double> {
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

/* What one thread moves at once: as many elements as fit a vector. Of 16 bytes only what has no padding. */
template <typename type_t> struct reduce_packs {
    static const bool some = sizeof(type_t) < 16;
};

template <> struct reduce_packs<mpath_reduce_c128_t> {
    static const bool some = true;
};

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
 * The vectors from `from` elements on: `deep_count` vectors of `slots_count` sources are loaded before the first is used;
 * more sources follow in further groups.
 */
template <typename type_t, typename op_t, int slots_count, int deep_count>
static __device__ __forceinline__ void reduce_vectors(const mpath_kernel_reduce_t &arguments, uint64_t from,
                                                      uint64_t count)
{
    const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    const uint64_t skip   = from * sizeof(type_t);
    const int sources     = static_cast<int>(arguments.sources_count);
    const int first       = static_cast<int>(arguments.first);
    uint64_t base         = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    reduce_pack<int4, type_t> held[deep_count][slots_count], sum[deep_count];

    for (; base < count; base += deep_count * stride) {
        for (int group = 0; group < sources; group += slots_count) {
#pragma unroll
            for (int deep = 0; deep < deep_count; deep++) {
#pragma unroll
                for (int turn = 0; turn < 2 * slots_count; turn++) { /* from the first one on, then those before it */
                    const int slot = turn % slots_count;

                    if ((group + slot < sources) && ((group + slot >= first) == (turn < slots_count)) &&
                        (base + deep * stride < count)) {
                        held[deep][slot].vector = reinterpret_cast<const int4 *>(arguments.sources[group + slot] +
                                                                                 skip)[base + deep * stride];
                    }
                }
            }
#pragma unroll
            for (int deep = 0; deep < deep_count; deep++) {
#pragma unroll
                for (int slot = 0; slot < slots_count; slot++) {
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
            for (int deep = 0; deep < deep_count; deep++) {
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

    if ((arguments.number != 0) && (threadIdx.x == 0) && (blockIdx.x == 0)) {
        number = kernel_load_relaxed(arguments.number); /* under way with the data */
    }
    /* Where the type is aligned to less than its size, elements may lie across vectors everywhere. */
    if ((offset < 16) && reduce_packs<type_t>::some && (((16 - offset) & 15) % sizeof(type_t) == 0)) {
        head    = ((16 - offset) & 15) / sizeof(type_t);
        head    = (head < arguments.elements) ? head : arguments.elements;
        vectors = (arguments.elements - head) / per_vector;
        if (arguments.sources_count > REDUCE_SLOTS) {
            reduce_vectors<type_t, op_t, REDUCE_SLOTS * REDUCE_DEEP, 1>(arguments, head, vectors);
        } else {
            reduce_vectors<type_t, op_t, REDUCE_SLOTS, REDUCE_DEEP>(arguments, head, vectors);
        }
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
        mpath_kernel_reduce_##_op##_##_type(KERNEL_ARGUMENTS(mpath_kernel_reduce_t))                                   \
    {                                                                                                                  \
        reduce_all<mpath_reduce_##_type##_t, reduce_##_op<mpath_reduce_##_type##_t>>(arguments);                       \
    }

MPATH_REDUCE_KERNELS(REDUCE_KERNEL)
