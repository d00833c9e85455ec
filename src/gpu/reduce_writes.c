/* SPDX-License-Identifier: BSD-3-Clause */
/* Which kernels reduce with writes only, and their launches. */
#include "gpu/reduce_writes.h"
#include "gpu/private.h"

#include <stdio.h>
#include <string.h>

#define WRITES_NAME_MAX 64
#define WRITES_CTAS_PER_MULTIPROCESSOR 2u /* the kernels are compiled for it */
#define RING_TILE_GRAIN UINT64_C(512)     /* a vector for each thread of a warp */

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

unsigned mpath_ring_ctas(unsigned multiprocessors)
{
    return (multiprocessors < MPATH_RING_CTAS) ? multiprocessors : MPATH_RING_CTAS;
}

uint64_t mpath_ring_tile(uint64_t part_bytes, unsigned ctas, uint64_t most)
{
    uint64_t longest = (most < MPATH_RING_TILE_MAX) ? most & ~(RING_TILE_GRAIN - 1) : MPATH_RING_TILE_MAX;
    uint64_t turns   = (part_bytes + ctas * longest - 1) / (ctas * longest);
    uint64_t tile    = (part_bytes + ctas * turns - 1) / (ctas * turns);

    return (tile + RING_TILE_GRAIN - 1) & ~(RING_TILE_GRAIN - 1);
}

static mpath_status_t find(mpath_gpu_t *gpu, const char *prefix, const mpath_reduce_how_t *how, mpath_pause_t *pause,
                           mpath_cu_function_t *function_p)
{
    char name[WRITES_NAME_MAX], full[2 * WRITES_NAME_MAX];

    mpath_reduce_name(how, name, sizeof(name));
    snprintf(full, sizeof(full), "%s%s", prefix, name);
    return mpath_kernel_find(gpu, full, pause, function_p);
}

mpath_status_t mpath_writes_find(mpath_gpu_t *gpu, const mpath_reduce_how_t *how, mpath_pause_t *pause,
                                 mpath_cu_function_t *function_p)
{
    return find(gpu, MPATH_KERNEL_WRITES, how, pause, function_p);
}

mpath_status_t mpath_ring_find(mpath_gpu_t *gpu, const mpath_reduce_how_t *how, mpath_pause_t *pause,
                               mpath_cu_function_t *function_p)
{
    return find(gpu, MPATH_KERNEL_RING, how, pause, function_p);
}

static mpath_status_t launch(mpath_stream_t *stream, mpath_cu_function_t function, unsigned ctas,
                             mpath_kernel_word_t flag, mpath_kernel_writes_t *arguments)
{
    mpath_launch_control(stream, ctas, &arguments->control);
    arguments->control.flags_count = 1;
    arguments->flags[0]            = flag;
    return mpath_launch_kernel(stream, function, arguments, ctas, MPATH_KERNEL_THREADS);
}

mpath_status_t mpath_launch_writes(mpath_stream_t *stream, mpath_cu_function_t function, mpath_kernel_word_t flag,
                                   mpath_kernel_writes_t *arguments)
{
    return launch(stream, function, MPATH_WRITES_CTAS, flag, arguments);
}

mpath_status_t mpath_launch_ring(mpath_stream_t *stream, mpath_cu_function_t function, unsigned ctas,
                                 mpath_kernel_word_t flag, mpath_kernel_writes_t *arguments)
{
    return launch(stream, function, ctas, flag, arguments);
}
