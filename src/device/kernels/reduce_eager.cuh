/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reductions of short vectors that every GPU sends to all at once, with numbers among the bytes: see
 * device/kernels/reduce_eager_args.h. Included by kernels.cu.
 */
#include "device/kernels/eager.cuh"
#include "device/kernels/reduce_eager_args.h"

/* Units of a thread, and ranks' units, that are under way together. */
#define EAGER_DEEP 2
#define EAGER_SLOTS 4

template <typename type_t> union eager_unit {
    uint64_t bytes;
    type_t elements[MPATH_EAGER_UNIT_BYTES / sizeof(type_t)];
};

/* One unit of the vector; the last one may be short, and buffers may be aligned to elements only. */
template <typename type_t>
static __device__ __forceinline__ uint64_t eager_fetch(const mpath_kernel_eager_t &arguments, uint64_t index)
{
    const uint64_t per = MPATH_EAGER_UNIT_BYTES / sizeof(type_t), at = index * per;
    const auto source  = reinterpret_cast<const type_t *>(arguments.send) + at;
    eager_unit<type_t> unit;

    if ((arguments.send % MPATH_EAGER_UNIT_BYTES == 0) && (at + per <= arguments.elements)) {
        return *reinterpret_cast<const uint64_t *>(source);
    }
    unit.bytes = 0;
#pragma unroll
    for (unsigned k = 0; k < per; k++) {
        if (at + k < arguments.elements) {
            unit.elements[k] = source[k];
        }
    }
    return unit.bytes;
}

template <typename type_t>
static __device__ __forceinline__ void eager_keep(const mpath_kernel_eager_t &arguments, uint64_t index,
                                                  const eager_unit<type_t> &unit)
{
    const uint64_t per = MPATH_EAGER_UNIT_BYTES / sizeof(type_t), at = index * per;
    const auto target  = reinterpret_cast<type_t *>(arguments.recv) + at;

    if ((arguments.recv % MPATH_EAGER_UNIT_BYTES == 0) && (at + per <= arguments.elements)) {
        *reinterpret_cast<uint64_t *>(target) = unit.bytes;
        return;
    }
#pragma unroll
    for (unsigned k = 0; k < per; k++) {
        if (at + k < arguments.elements) {
            target[k] = unit.elements[k];
        }
    }
}

/* Up to EAGER_SLOTS ranks' units from `group` on, once they have come; false: that takes too long. */
static __device__ __forceinline__ bool eager_await(uint64_t from, uint64_t slot_bytes, unsigned ranks, uint64_t number,
                                                   uint64_t patience_ns, uint64_t *held)
{
    uint64_t since_ns = 0;
    unsigned polls    = 0;

    for (;;) {
        bool all = true;

#pragma unroll
        for (unsigned slot = 0; slot < EAGER_SLOTS; slot++) {
            uint64_t found = number;

            if (slot < ranks) {
                kernel_load_unit(from + slot * slot_bytes, &held[slot], &found);
            }
            all = all && (found == number);
        }
        if (all) {
            return true;
        }
        if (++polls % EAGER_POLLS == 0) {
            const uint64_t now_ns = kernel_now_ns();

            since_ns = (since_ns == 0) ? now_ns : since_ns;
            if (now_ns - since_ns > patience_ns) {
                return false;
            }
        }
    }
}

/* One unit of the result. */
template <typename type_t, typename op_t>
static __device__ __forceinline__ bool eager_combine(const mpath_kernel_eager_t &arguments, uint64_t slots,
                                                     uint64_t number, uint64_t index)
{
    eager_unit<type_t> sum, next;
    uint64_t held[EAGER_SLOTS];

    for (unsigned group = 0; group < arguments.ranks; group += EAGER_SLOTS) {
        if (!eager_await(slots + group * arguments.slot_bytes + index * 16u, arguments.slot_bytes, arguments.ranks - group,
                         number, arguments.patience_ns, held)) {
            return false;
        }
#pragma unroll
        for (unsigned slot = 0; slot < EAGER_SLOTS; slot++) {
            next.bytes = held[slot];
            if ((group == 0) && (slot == 0)) {
                sum = next;
            } else if (group + slot < arguments.ranks) {
#pragma unroll
                for (unsigned k = 0; k < MPATH_EAGER_UNIT_BYTES / sizeof(type_t); k++) {
                    sum.elements[k] = op_t::apply(next.elements[k], sum.elements[k]);
                }
            }
        }
    }
    eager_keep<type_t>(arguments, index, sum);
    return true;
}

template <typename type_t>
static __device__ __forceinline__ void eager_send(const mpath_kernel_eager_t &arguments, uint64_t slot, uint64_t number,
                                                  uint64_t base, uint64_t stride, uint64_t units)
{
    uint64_t own[EAGER_DEEP];

#pragma unroll
    for (int deep = 0; deep < EAGER_DEEP; deep++) {
        if (base + deep * stride < units) {
            own[deep] = eager_fetch<type_t>(arguments, base + deep * stride);
        }
    }
    for (unsigned i = 1; i <= arguments.ranks; i++) { /* GPUs begin with different ones, and end with their own */
        const uint64_t to = arguments.memory[(arguments.me + i) % arguments.ranks] + slot;

#pragma unroll
        for (int deep = 0; deep < EAGER_DEEP; deep++) {
            if (base + deep * stride < units) {
                kernel_store_unit(to + (base + deep * stride) * 16u, own[deep], number);
            }
        }
    }
}

template <typename type_t, typename op_t>
static __device__ __forceinline__ void eager_all(const mpath_kernel_eager_t &arguments)
{
    const uint64_t per    = MPATH_EAGER_UNIT_BYTES / sizeof(type_t);
    const uint64_t units  = (arguments.elements + per - 1) / per;
    const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    const uint64_t number = eager_number(arguments.number, arguments.memory[arguments.me]);
    const uint64_t slots  = MPATH_EAGER_COUNTERS_BYTES + (number & 1) * arguments.ranks * arguments.slot_bytes;
    bool good             = true;

    for (uint64_t base = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; base < units;
         base += EAGER_DEEP * stride) {
        if (!arguments.again) {
            eager_send<type_t>(arguments, slots + arguments.me * arguments.slot_bytes, number, base, stride, units);
        }
        for (uint64_t index = base; (index < base + EAGER_DEEP * stride) && (index < units); index += stride) {
            good = good &&
                   eager_combine<type_t, op_t>(arguments, arguments.memory[arguments.me] + slots, number, index);
        }
    }
    eager_end(arguments.memory[arguments.me], arguments.words, number, good);
}

#define EAGER_KERNEL(_op, _type)                                                                                       \
    extern "C" __global__ void __launch_bounds__(MPATH_KERNEL_THREADS)                                                 \
        mpath_kernel_eager_##_op##_##_type(KERNEL_ARGUMENTS(mpath_kernel_eager_t))                                     \
    {                                                                                                                  \
        eager_all<mpath_reduce_##_type##_t, reduce_##_op<mpath_reduce_##_type##_t>>(arguments);                        \
    }

MPATH_EAGER_KERNELS(EAGER_KERNEL)
