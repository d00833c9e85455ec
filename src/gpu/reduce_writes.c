/* SPDX-License-Identifier: BSD-3-Clause */
/* Which kernel reduces with writes only, and its launch. */
#include "gpu/reduce_writes.h"
#include "gpu/private.h"

#include <stdio.h>
#include <string.h>

#define WRITES_NAME_MAX 64
#define WRITES_CTAS_PER_MULTIPROCESSOR 2u /* the kernels are compiled for it */

_Static_assert(sizeof(mpath_kernel_writes_t) <= 4096, "arguments of a kernel");

#define WRITES_NAME(_op, _type) #_op "_" #_type,

static const char *const names[] = {MPATH_WRITES_KERNELS(WRITES_NAME)};

int mpath_writes_fits(const mpath_reduce_how_t *how)
{
    char name[WRITES_NAME_MAX];

    mpath_reduce_name(how, name, sizeof(name));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(name, names[i]) == 0) {
            return 1;
        }
    }
    return 0;
}

int mpath_writes_usable(const mpath_gpu_t *gpu)
{
    return (unsigned)gpu->info.multiprocessors * WRITES_CTAS_PER_MULTIPROCESSOR >= MPATH_WRITES_CTAS;
}

mpath_status_t mpath_writes_find(mpath_gpu_t *gpu, const mpath_reduce_how_t *how, mpath_cu_function_t *function_p)
{
    char name[WRITES_NAME_MAX], full[2 * WRITES_NAME_MAX];

    mpath_reduce_name(how, name, sizeof(name));
    snprintf(full, sizeof(full), MPATH_KERNEL_WRITES "%s", name);
    return mpath_kernel_find(gpu, full, function_p);
}

mpath_status_t mpath_launch_writes(mpath_stream_t *stream, mpath_cu_function_t function, mpath_kernel_word_t flag,
                                   uint64_t timeout_ns, mpath_kernel_writes_t *arguments)
{
    mpath_launch_control(stream, MPATH_WRITES_CTAS, timeout_ns, &arguments->control);
    arguments->control.flags_count = 1;
    arguments->flags[0]            = flag;
    return mpath_launch_kernel(stream, function, arguments, MPATH_WRITES_CTAS, MPATH_KERNEL_THREADS);
}
