/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams of the collectives on device memory: dealt out in pairs, under one lock, and who may wait on them. */
#include "node/node_private.h"

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

void mpath_gpu_coll_claim(mpath_gpu_coll_t *gpu)
{
    if (!gpu->claimed) {
        mpath_gpu_coll_lock();
        gpu->claimed = !gpu_claimed;
        gpu_claimed  = 1;
        mpath_gpu_coll_unlock();
    }
}

void mpath_gpu_coll_release(mpath_gpu_coll_t *gpu)
{
    if (gpu->claimed) {
        mpath_gpu_coll_lock();
        gpu->claimed = 0;
        gpu_claimed  = 0;
        mpath_gpu_coll_unlock();
    }
}

/* Under the lock. */
static int may_wait(const void *owner)
{
    const mpath_gpu_coll_t *gpu = owner;

    return gpu->claimed || !gpu_claimed;
}

void mpath_gpu_coll_begin_staged(mpath_gpu_coll_t *gpu, const mpath_staged_side_t *send,
                                 const mpath_staged_side_t *receive)
{
    const mpath_staged_guard_t guard = {.lock = &gpu_mutex, .may_wait = may_wait, .owner = gpu};

    gpu->staged_before  = mpath_staged_sent_bytes(gpu->room.staged);
    gpu->staged_started = 1;
    mpath_staged_begin(gpu->room.staged, gpu->number, send, receive, &guard);
}
