/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams of the collectives on device memory: dealt out in pairs, under one lock, and who may wait on them. */
#include "node/streams.h"

#include "device/gpu.h"

#include <pthread.h>
#include <stdatomic.h>

/* The last four of those of calls without relays are for staged copies. */
#define GPU_STREAM_PAIRS ((MPATH_GPU_STREAMS_DIRECT - 4) / 2)

static pthread_mutex_t gpu_mutex = PTHREAD_MUTEX_INITIALIZER;

static atomic_uint gpu_communicators;

unsigned mpath_gpu_coll_streams(void)
{
    return 2 * (atomic_fetch_add(&gpu_communicators, 1) % GPU_STREAM_PAIRS);
}

void mpath_gpu_coll_lock(void)
{
    pthread_mutex_lock(&gpu_mutex);
}

void mpath_gpu_coll_unlock(void)
{
    pthread_mutex_unlock(&gpu_mutex);
}

static int gpu_claimed; /* under the lock of the streams */

void mpath_gpu_coll_claim(int *claimed)
{
    if (!*claimed) {
        mpath_gpu_coll_lock();
        *claimed    = !gpu_claimed;
        gpu_claimed = 1;
        mpath_gpu_coll_unlock();
    }
}

void mpath_gpu_coll_release(int *claimed)
{
    if (*claimed) {
        mpath_gpu_coll_lock();
        *claimed    = 0;
        gpu_claimed = 0;
        mpath_gpu_coll_unlock();
    }
}

/* Under the lock. */
static int may_wait(const void *owner)
{
    const int *claimed = owner;

    return *claimed || !gpu_claimed;
}

mpath_staged_guard_t mpath_gpu_coll_guard(const int *claimed)
{
    return (mpath_staged_guard_t){.lock = &gpu_mutex, .may_wait = may_wait, .owner = claimed};
}
