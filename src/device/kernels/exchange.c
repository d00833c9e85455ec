/* SPDX-License-Identifier: BSD-3-Clause */
/* What the kernel for short messages is told of them. */
#include "device/kernels/exchange.h"

/* One unit for each thread, as for short reductions (device/kernels/reduce.c). */
#define EXCHANGE_UNITS_PER_CTA ((uint64_t)MPATH_KERNEL_THREADS)

_Static_assert(sizeof(mpath_kernel_exchange_t) <= 4096, "arguments of a kernel");

mpath_status_t mpath_exchange_find(mpath_gpu_t *gpu, mpath_device_function_t *function_p)
{
    return mpath_kernel_find(gpu, MPATH_KERNEL_EXCHANGE, NULL, function_p);
}

static uint64_t set_ends(mpath_kernel_message_t *messages, uint32_t count)
{
    uint64_t units = 0;

    for (uint32_t i = 0; i < count; i++) {
        units += MPATH_EAGER_UNITS(messages[i].bytes);
        messages[i].end = units;
    }
    return units;
}

unsigned mpath_exchange_count(mpath_kernel_exchange_t *arguments)
{
    uint64_t sent     = set_ends(arguments->send, arguments->send_count);
    uint64_t received = set_ends(arguments->receive, arguments->receive_count), units, ctas;

    units = (sent > received) ? sent : received;
    ctas  = (units + EXCHANGE_UNITS_PER_CTA - 1) / EXCHANGE_UNITS_PER_CTA;
    return (unsigned)((ctas < 1) ? 1 : (ctas > MPATH_EAGER_CTAS) ? MPATH_EAGER_CTAS : ctas);
}
