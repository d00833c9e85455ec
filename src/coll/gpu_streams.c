/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams of the collectives on device memory: dealt out in pairs, under one lock. */
#include "coll/gpu_streams.h"

#include "gpu/stream.h"

#include <stdatomic.h>

/* The last four of those of calls without relays are for staged copies. */
#define GPU_STREAM_PAIRS ((MPATH_GPU_STREAMS_DIRECT - 4) / 2)

static pthread_mutex_t gpu_mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint gpu_communicators;

unsigned mpath_gpu_coll_streams(void)
{
    return 2 * (atomic_fetch_add(&gpu_communicators, 1) % GPU_STREAM_PAIRS);
}

pthread_mutex_t *mpath_gpu_coll_mutex(void)
{
    return &gpu_mutex;
}

void mpath_gpu_coll_lock(void)
{
    pthread_mutex_lock(&gpu_mutex);
}

void mpath_gpu_coll_unlock(void)
{
    pthread_mutex_unlock(&gpu_mutex);
}
