/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages to all GPUs at once, with numbers among the bytes: see device/kernels/exchange_args.h. Included by kernels.cu. */
#include "device/kernels/eager.cuh"
#include "device/kernels/exchange_args.h"

/* Units of a thread that are under way together. */
#define EXCHANGE_DEEP 4

/* Up to 8 bytes. */
static __device__ __forceinline__ uint64_t exchange_fetch(uint64_t address, uint64_t left)
{
    const auto from = reinterpret_cast<const unsigned char *>(address);
    uint64_t bytes  = 0;

    if (left >= MPATH_EAGER_UNIT_BYTES) {
        if (address % 8 == 0) {
            return *reinterpret_cast<const uint64_t *>(from);
        }
        if (address % 4 == 0) {
            const auto halves = reinterpret_cast<const unsigned *>(from);

            return halves[0] | static_cast<uint64_t>(halves[1]) << 32;
        }
    }
#pragma unroll
    for (unsigned k = 0; k < MPATH_EAGER_UNIT_BYTES; k++) {
        bytes |= (k < left) ? static_cast<uint64_t>(from[k]) << (8 * k) : 0;
    }
    return bytes;
}

static __device__ __forceinline__ void exchange_keep(uint64_t address, uint64_t left, uint64_t bytes)
{
    const auto to = reinterpret_cast<unsigned char *>(address);

    if ((left >= MPATH_EAGER_UNIT_BYTES) && (address % 8 == 0)) {
        *reinterpret_cast<uint64_t *>(to) = bytes;
    } else if ((left >= MPATH_EAGER_UNIT_BYTES) && (address % 4 == 0)) {
        reinterpret_cast<unsigned *>(to)[0] = static_cast<unsigned>(bytes);
        reinterpret_cast<unsigned *>(to)[1] = static_cast<unsigned>(bytes >> 32);
    } else {
#pragma unroll
        for (unsigned k = 0; k < MPATH_EAGER_UNIT_BYTES; k++) {
            if (k < left) {
                to[k] = static_cast<unsigned char>(bytes >> (8 * k));
            }
        }
    }
}

/* The message to which a unit belongs; *unit_p: the unit's number in it. */
static __device__ __forceinline__ unsigned exchange_find(const mpath_kernel_message_t *messages, uint64_t index,
                                                         uint64_t *unit_p)
{
    unsigned found = 0;

    while (index >= messages[found].end) {
        found++;
    }
    *unit_p = index - ((found > 0) ? messages[found - 1].end : 0);
    return found;
}

static __device__ __forceinline__ uint64_t exchange_units(const mpath_kernel_message_t *messages, uint32_t count)
{
    return (count > 0) ? messages[count - 1].end : 0;
}

static __device__ __forceinline__ void exchange_send(const mpath_kernel_exchange_t &arguments, uint64_t number)
{
    const uint64_t units = exchange_units(arguments.send, arguments.send_count);
    const uint64_t slots = (number & 1) * arguments.generation_bytes;
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const uint64_t step  = static_cast<uint64_t>(gridDim.x) * blockDim.x;

    for (uint64_t base = first; base < units; base += EXCHANGE_DEEP * step) {
        uint64_t held[EXCHANGE_DEEP], to[EXCHANGE_DEEP], unit;

#pragma unroll
        for (int deep = 0; deep < EXCHANGE_DEEP; deep++) {
            to[deep] = 0;
            if (base + deep * step < units) {
                const mpath_kernel_message_t &message =
                    arguments.send[exchange_find(arguments.send, base + deep * step, &unit)];

                to[deep]   = message.target + slots + unit * 16u;
                held[deep] = exchange_fetch(message.source + unit * MPATH_EAGER_UNIT_BYTES,
                                            message.bytes - unit * MPATH_EAGER_UNIT_BYTES);
            }
        }
#pragma unroll
        for (int deep = 0; deep < EXCHANGE_DEEP; deep++) {
            if (to[deep] != 0) {
                kernel_store_unit(to[deep], held[deep], number);
            }
        }
    }
}

/* Until all units from `from` (0: none) have come; false: that takes too long, or nobody waits for it any more. */
static __device__ __forceinline__ bool exchange_await(const mpath_kernel_exchange_t &arguments, uint64_t number,
                                                      const uint64_t *from, uint64_t *held)
{
    const uint64_t stop = arguments.memory + offsetof(mpath_exchange_head_t, stop);
    uint64_t since_ns   = 0;
    unsigned polls      = 0;

    for (;;) {
        bool all = true;

#pragma unroll
        for (int deep = 0; deep < EXCHANGE_DEEP; deep++) {
            uint64_t found = number;

            if (from[deep] != 0) {
                kernel_load_unit(from[deep], &held[deep], &found);
            }
            all = all && (found == number);
        }
        if (all) {
            return true;
        }
        if (++polls % EAGER_POLLS == 0) {
            const uint64_t now_ns = kernel_now_ns();

            since_ns = (since_ns == 0) ? now_ns : since_ns;
            if ((now_ns - since_ns > arguments.patience_ns) || (kernel_load_relaxed(stop) >= number)) {
                return false;
            }
        }
    }
}

static __device__ __forceinline__ bool exchange_receive(const mpath_kernel_exchange_t &arguments, uint64_t number)
{
    const uint64_t units = exchange_units(arguments.receive, arguments.receive_count);
    const uint64_t slots = (number & 1) * arguments.generation_bytes;
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const uint64_t step  = static_cast<uint64_t>(gridDim.x) * blockDim.x;

    for (uint64_t base = first; base < units; base += EXCHANGE_DEEP * step) {
        uint64_t held[EXCHANGE_DEEP], from[EXCHANGE_DEEP], unit;

#pragma unroll
        for (int deep = 0; deep < EXCHANGE_DEEP; deep++) {
            from[deep] = 0;
            if (base + deep * step < units) {
                const unsigned index                  = exchange_find(arguments.receive, base + deep * step, &unit);
                const mpath_kernel_message_t &message = arguments.receive[index];

                if (index + 1 < arguments.receive_count) {
                    from[deep] = message.source + slots + unit * 16u;
                } else {
                    held[deep] = exchange_fetch(message.source + unit * MPATH_EAGER_UNIT_BYTES,
                                                message.bytes - unit * MPATH_EAGER_UNIT_BYTES);
                }
            }
        }
        if (!exchange_await(arguments, number, from, held)) {
            return false;
        }
#pragma unroll
        for (int deep = 0; deep < EXCHANGE_DEEP; deep++) {
            if (base + deep * step < units) {
                const mpath_kernel_message_t &message =
                    arguments.receive[exchange_find(arguments.receive, base + deep * step, &unit)];

                exchange_keep(message.target + unit * MPATH_EAGER_UNIT_BYTES,
                              message.bytes - unit * MPATH_EAGER_UNIT_BYTES, held[deep]);
            }
        }
    }
    return true;
}

extern "C" __global__ void __launch_bounds__(MPATH_KERNEL_THREADS)
    mpath_kernel_exchange(KERNEL_ARGUMENTS(mpath_kernel_exchange_t))
{
    const uint64_t number = eager_number(arguments.number, arguments.memory);

    if (!arguments.again) {
        exchange_send(arguments, number);
    }
    eager_end(arguments.memory, arguments.words, number, exchange_receive(arguments, number));
}
