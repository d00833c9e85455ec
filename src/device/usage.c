/* SPDX-License-Identifier: BSD-3-Clause */
/* Sums over the process of what mpath launches and allocates on GPUs. */
#include "device/usage.h"

#include "util/log.h"

#include <stdatomic.h>

#define BLOCK_BYTES (UINT64_C(2) << 20) /* of the driver: what is exported begins one */

static atomic_uint_fast64_t launches, ctas_launched, memory_bytes, pinned_bytes;

void mpath_gpu_usage(mpath_gpu_usage_t *usage)
{
    usage->launches     = atomic_load_explicit(&launches, memory_order_relaxed);
    usage->ctas         = atomic_load_explicit(&ctas_launched, memory_order_relaxed);
    usage->memory_bytes = atomic_load_explicit(&memory_bytes, memory_order_relaxed);
    usage->pinned_bytes = atomic_load_explicit(&pinned_bytes, memory_order_relaxed);
}

void mpath_gpu_usage_launch(unsigned ctas)
{
    atomic_fetch_add_explicit(&launches, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&ctas_launched, ctas, memory_order_relaxed);
}

mpath_device_result_t mpath_gpu_memory_take(mpath_device_ptr_t *address_p, size_t bytes)
{
    mpath_device_result_t result = mpath_device()->memory_take(address_p, bytes);

    if (result == MPATH_DEVICE_DONE) {
        atomic_fetch_add_explicit(&memory_bytes, bytes, memory_order_relaxed);
    }
    return result;
}

/* -- limits -- */

/* Once for either kind of memory. */
static void say_used_up(atomic_flag *said, const char *what, const char *parameter, uint64_t limit_bytes)
{
    if (!atomic_flag_test_and_set(said)) {
        mpath_info("of the %llu bytes of %s that this process may take (%s) there is less left than wanted: "
                   "communicators do with less, or go other ways",
                   (unsigned long long)limit_bytes, what, parameter);
    }
}

static void say_device(uint64_t limit_bytes)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;

    say_used_up(&said, "GPU memory", "gpu_device_bytes", limit_bytes);
}

static void say_pinned(uint64_t limit_bytes)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;

    say_used_up(&said, "pinned host memory", "gpu_pinned_bytes", limit_bytes);
}

/* Nonzero: the sum is that much larger, and within the limit. */
static int add_within(atomic_uint_fast64_t *sum, uint64_t limit_bytes, uint64_t bytes)
{
    uint_fast64_t held = atomic_load(sum);

    do {
        if ((held > limit_bytes) || (bytes > limit_bytes - held)) {
            return 0;
        }
    } while (!atomic_compare_exchange_weak(sum, &held, held + bytes));
    return 1;
}

static uint64_t rest_of(uint64_t limit_bytes, uint64_t held)
{
    return (held < limit_bytes) ? limit_bytes - held : 0;
}

mpath_device_result_t mpath_gpu_memory_take_within(uint64_t limit_bytes, mpath_device_ptr_t *address_p, size_t bytes)
{
    mpath_device_result_t result;

    if (!add_within(&memory_bytes, limit_bytes, bytes)) {
        say_device(limit_bytes);
        return MPATH_DEVICE_NO_MEMORY;
    }
    result = mpath_device()->memory_take(address_p, bytes);
    if (result != MPATH_DEVICE_DONE) {
        atomic_fetch_sub_explicit(&memory_bytes, bytes, memory_order_relaxed);
    }
    return result;
}

uint64_t mpath_gpu_memory_share(uint64_t limit_bytes, uint64_t wanted_bytes, uint64_t own_bytes)
{
    uint64_t held  = atomic_load_explicit(&memory_bytes, memory_order_relaxed);
    uint64_t rest  = rest_of(limit_bytes, (held > own_bytes) ? held - own_bytes : 0);
    uint64_t share = (rest / 2 + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;

    share = (share <= rest) ? share : 0;
    if (share >= wanted_bytes) {
        return wanted_bytes;
    }
    say_device(limit_bytes);
    return share;
}

uint64_t mpath_pins_share(uint64_t limit_bytes, uint64_t wanted_bytes)
{
    uint64_t share = rest_of(limit_bytes, atomic_load_explicit(&pinned_bytes, memory_order_relaxed)) / 2;

    if (share >= wanted_bytes) {
        return wanted_bytes;
    }
    say_pinned(limit_bytes);
    return share;
}

int mpath_pins_take(uint64_t limit_bytes, uint64_t bytes)
{
    int fits = add_within(&pinned_bytes, limit_bytes, bytes);

    if (!fits) {
        say_pinned(limit_bytes);
    }
    return fits;
}

void mpath_pins_give(uint64_t bytes)
{
    atomic_fetch_sub_explicit(&pinned_bytes, bytes, memory_order_relaxed);
}

mpath_device_result_t mpath_gpu_memory_take_zeroed(uint64_t limit_bytes, mpath_device_ptr_t *address_p, size_t bytes)
{
    mpath_device_result_t result = mpath_gpu_memory_take_within(limit_bytes, address_p, bytes);

    if (result != MPATH_DEVICE_DONE) {
        return result;
    }
    result = mpath_device()->memory_clear(*address_p, bytes);
    if (result != MPATH_DEVICE_DONE) {
        mpath_device()->memory_give(*address_p);
        atomic_fetch_sub_explicit(&memory_bytes, bytes, memory_order_relaxed);
    }
    return result;
}

void mpath_gpu_memory_give(mpath_gpu_t *gpu, mpath_device_ptr_t address, size_t bytes)
{
    if (address == 0) {
        return;
    }
    if (mpath_gpu_available() && (mpath_gpu_enter(gpu) == MPATH_OK)) {
        mpath_device()->memory_give(address);
        mpath_gpu_leave(gpu);
    }
    atomic_fetch_sub_explicit(&memory_bytes, bytes, memory_order_relaxed);
}
