/* SPDX-License-Identifier: BSD-3-Clause */
/* Host memory registered with the driver. */
#include "device/pinned.h"

#include "util/pause.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

mpath_status_t mpath_pinned_register(mpath_gpu_t *gpu, void *base, size_t bytes, mpath_pinned_t *pinned)
{
    mpath_pinned_t made   = {.base = base, .bytes = bytes, .gpu = gpu};
    mpath_status_t status = mpath_gpu_enter(gpu);

    if (status != MPATH_OK) {
        return status;
    }
    status = mpath_device_pin(mpath_gpu_info_of(gpu)->ordinal, base, bytes, &made.device_base);
    mpath_gpu_leave(gpu);
    if (status == MPATH_OK) {
        *pinned = made;
    }
    return status;
}

mpath_status_t mpath_pinned_alloc(mpath_gpu_t *gpu, size_t bytes, mpath_pinned_t *pinned)
{
    mpath_pinned_t made   = {.bytes = bytes, .gpu = gpu, .owned = 1};
    mpath_status_t status = mpath_gpu_enter(gpu);

    if (status != MPATH_OK) {
        return status;
    }
    status = mpath_device_pin_new(mpath_gpu_info_of(gpu)->ordinal, bytes, &made.base, &made.device_base);
    mpath_gpu_leave(gpu);
    if (status == MPATH_OK) {
        *pinned = made;
    }
    return status;
}

void mpath_pinned_release(mpath_pinned_t *pinned)
{
    if (pinned->base == NULL) {
        return;
    }
    if (mpath_gpu_available() && (mpath_gpu_enter(pinned->gpu) == MPATH_OK)) {
        mpath_device()->unpin(pinned->base);
        mpath_gpu_leave(pinned->gpu);
    }
    if (pinned->owned) {
        munmap(pinned->base, pinned->bytes);
    }
    memset(pinned, 0, sizeof(*pinned));
}

void mpath_pinned_release_lost(mpath_pinned_t *pinned)
{
    if ((pinned->base != NULL) && mpath_gpu_is_lost(pinned->gpu)) {
        mpath_pinned_release(pinned);
    }
}

/* Registered blocks that are used again and again: to register one takes longer than most copies. */

#define BLOCKS_KEPT 8u
#define BLOCK_MIN_BYTES (UINT64_C(64) << 10)
#define BLOCK_PAGE UINT64_C(4096)

static struct {
    pthread_mutex_t lock;
    mpath_pinned_t kept[BLOCKS_KEPT]; /* base NULL: no block */
    mpath_pause_t pause;              /* since registering was refused */
} blocks = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Few sizes serve all uses: powers of two, and a page for what may come behind. */
static size_t block_bytes(size_t bytes)
{
    size_t block = BLOCK_MIN_BYTES;

    while (block + BLOCK_PAGE < bytes) {
        block *= 2;
    }
    return block + BLOCK_PAGE;
}

/* Under the lock: the shortest one that is long enough; NULL: none. */
static mpath_pinned_t *find_kept(const mpath_gpu_t *gpu, size_t bytes)
{
    mpath_pinned_t *best = NULL;

    for (unsigned i = 0; i < BLOCKS_KEPT; i++) {
        mpath_pinned_t *block = &blocks.kept[i];

        mpath_pinned_release_lost(block);
        if ((block->base != NULL) && (block->gpu == gpu) && (block->bytes >= bytes) &&
            ((best == NULL) || (block->bytes < best->bytes))) {
            best = block;
        }
    }
    return best;
}

mpath_status_t mpath_pinned_take(mpath_gpu_t *gpu, size_t bytes, mpath_pinned_t *pinned)
{
    mpath_status_t status = MPATH_ERR_UNSUPPORTED;
    mpath_pinned_t *kept;

    if (bytes > MPATH_PINNED_TAKE_MAX + BLOCK_PAGE) {
        return status;
    }
    pthread_mutex_lock(&blocks.lock);
    kept = find_kept(gpu, bytes);
    if (kept != NULL) {
        *pinned    = *kept;
        kept->base = NULL;
        status     = MPATH_OK;
    } else if (!mpath_pause_passes(&blocks.pause)) {
        status = mpath_pinned_alloc(gpu, block_bytes(bytes), pinned);
        mpath_pause_note(&blocks.pause, status == MPATH_OK);
    }
    pthread_mutex_unlock(&blocks.lock);
    return status;
}

/* Under the lock: a free place, or that of the shortest block. */
static mpath_pinned_t *find_place(void)
{
    mpath_pinned_t *place = &blocks.kept[0];

    for (unsigned i = 1; (place->base != NULL) && (i < BLOCKS_KEPT); i++) {
        mpath_pinned_t *block = &blocks.kept[i];

        place = ((block->base == NULL) || (block->bytes < place->bytes)) ? block : place;
    }
    return place;
}

void mpath_pinned_give(mpath_pinned_t *pinned)
{
    mpath_pinned_t *place, given = *pinned;

    pthread_mutex_lock(&blocks.lock);
    place = find_place();
    if ((place->base == NULL) || (place->bytes < given.bytes)) { /* long ones serve for short uses as well */
        *pinned = *place;
        *place  = given;
    }
    pthread_mutex_unlock(&blocks.lock);
    mpath_pinned_release(pinned);
}

void mpath_pinned_cleanup(void)
{
    pthread_mutex_lock(&blocks.lock);
    for (unsigned i = 0; i < BLOCKS_KEPT; i++) {
        mpath_pinned_release(&blocks.kept[i]);
    }
    blocks.pause = (mpath_pause_t){0};
    pthread_mutex_unlock(&blocks.lock);
}
