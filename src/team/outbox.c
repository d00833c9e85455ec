/* SPDX-License-Identifier: BSD-3-Clause */
/* Blocks are few, as many as teams have data in the outbox: a list in order of their offsets. See outbox.h. */
#include "team/outbox.h"

#include "util/log.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define OUTBOX_TRIES 64 /* while mates leave a call that has ended here */

struct mpath_outbox {
    pthread_mutex_t lock; /* of all that follows, and of all blocks */
    int is_alone;         /* one thread at a time comes here: it is not taken */
    mpath_segment_t segment;
    mpath_segment_address_t address;
    int users;
    mpath_outbox_block_t *blocks;
    mpath_outbox_share_t *ended; /* whose blocks are still read */
};

mpath_status_t mpath_outbox_create(mpath_outbox_t **outbox_p)
{
    mpath_outbox_t *outbox = calloc(1, sizeof(*outbox));

    if (outbox == NULL) {
        mpath_error("no memory for the table of small data in shared memory");
        return MPATH_ERR_NO_MEMORY;
    }
    pthread_mutex_init(&outbox->lock, NULL);
    *outbox_p = outbox;
    return MPATH_OK;
}

void mpath_outbox_set_alone(mpath_outbox_t *outbox, int is_alone)
{
    outbox->is_alone = is_alone;
}

/* Two locked instructions are a part of a short call that can be measured. */
static int outbox_lock(mpath_outbox_t *outbox)
{
    if (outbox->is_alone) {
        return 0;
    }
    pthread_mutex_lock(&outbox->lock);
    return 1;
}

static void outbox_unlock(mpath_outbox_t *outbox, int is_locked)
{
    if (is_locked) {
        pthread_mutex_unlock(&outbox->lock);
    }
}

static int block_is_read(const mpath_outbox_block_t *block)
{
    for (int local = 0; local < block->share->num_local; local++) {
        const mpath_outbox_left_t *left = &block->share->left[local];

        if (((int32_t)(atomic_load_explicit(&left->call, memory_order_acquire) - block->call) < 0) &&
            !atomic_load_explicit(&left->gone, memory_order_acquire)) {
            return 1;
        }
    }
    return 0;
}

static void block_remove(mpath_outbox_t *outbox, mpath_outbox_block_t *block)
{
    mpath_outbox_block_t **at;

    for (at = &outbox->blocks; *at != block; at = &(*at)->next) {
    }
    *at          = block->next;
    block->bytes = 0;
}

static void share_end(mpath_outbox_share_t *share)
{
    mpath_segment_detach(&share->segment);
    free(share);
}

/* What nobody reads any more. */
static void outbox_reclaim(mpath_outbox_t *outbox)
{
    mpath_outbox_block_t *block, *next;
    mpath_outbox_share_t **at;

    for (block = outbox->blocks; block != NULL; block = next) {
        next = block->next;
        if (!block_is_read(block)) {
            block_remove(outbox, block);
        }
    }
    for (at = &outbox->ended; *at != NULL;) {
        mpath_outbox_share_t *share = *at;

        if ((share->blocks[0].bytes > 0) || (share->blocks[1].bytes > 0)) {
            at = &share->next;
        } else {
            *at = share->next;
            share_end(share);
        }
    }
}

/*
 * Puts the block where it fits: those of one half as near as can be to the beginning, those of the other to the
 * end. So two blocks of half the outbox fit, whatever sizes were there before, and one beside another team's last one.
 */
static int outbox_place(mpath_outbox_t *outbox, mpath_outbox_block_t *block, size_t bytes, int at_end)
{
    mpath_outbox_block_t **at = &outbox->blocks, **found = NULL;
    size_t begin = 0, offset = 0;

    for (; (found == NULL) || at_end; at = &(*at)->next) {
        size_t end = (*at != NULL) ? (*at)->offset : outbox->segment.bytes;

        if (end - begin >= bytes) {
            found  = at;
            offset = at_end ? end - bytes : begin;
        }
        if (*at == NULL) {
            break;
        }
        begin = (*at)->offset + (*at)->bytes;
    }
    if (found == NULL) {
        return 0;
    }
    block->offset = offset;
    block->bytes  = bytes;
    block->next   = *found;
    *found        = block;
    return 1;
}

void *mpath_outbox_take(mpath_outbox_t *outbox, mpath_outbox_share_t *share, int half, size_t bytes, uint32_t call,
                        size_t *offset_p)
{
    mpath_outbox_block_t *block = &share->blocks[half];
    void *at                    = NULL;
    int is_locked;

    bytes = (bytes + MPATH_OUTBOX_LINE - 1) & ~(size_t)(MPATH_OUTBOX_LINE - 1);
    for (int tries = 0; (at == NULL) && (tries < OUTBOX_TRIES); tries++) {
        if (tries > 1) {
            sched_yield();
        }
        is_locked = outbox_lock(outbox);
        if ((block->bytes > 0) && (block->bytes < bytes) && !block_is_read(block)) {
            block_remove(outbox, block);
        }
        if (tries > 0) {
            outbox_reclaim(outbox);
        }
        if ((block->bytes >= bytes) || ((block->bytes == 0) && outbox_place(outbox, block, bytes, half))) {
            block->call = call;
            *offset_p   = block->offset;
            at          = (char *)outbox->segment.base + block->offset;
        }
        outbox_unlock(outbox, is_locked);
    }
    return at;
}

size_t mpath_outbox_bytes(mpath_outbox_t *outbox)
{
    size_t bytes;
    int is_locked;

    is_locked = outbox_lock(outbox);
    bytes     = outbox->segment.bytes;
    outbox_unlock(outbox, is_locked);
    return bytes;
}

static mpath_status_t outbox_make(mpath_outbox_t *outbox, size_t bytes)
{
    mpath_status_t status = mpath_segment_create_open(bytes, &outbox->segment);

    if (status != MPATH_OK) {
        return status;
    }
    mpath_segment_note(&outbox->segment, 1);
    status = mpath_segment_address(&outbox->segment, &outbox->address);
    if (status != MPATH_OK) {
        mpath_segment_detach(&outbox->segment);
    }
    return status;
}

mpath_status_t mpath_outbox_join(mpath_outbox_t *outbox, size_t bytes, mpath_outbox_share_t **share_p,
                                 mpath_segment_address_t *address_p)
{
    mpath_outbox_share_t *share = calloc(1, sizeof(*share));
    mpath_status_t status       = MPATH_OK;
    int is_locked;

    if (share == NULL) {
        mpath_error("no memory to share small data with the processes of this node");
        return MPATH_ERR_NO_MEMORY;
    }
    share->blocks[0].share = share->blocks[1].share = share;
    is_locked                                       = outbox_lock(outbox);
    if (outbox->segment.base == NULL) {
        status = outbox_make(outbox, bytes);
    }
    if (status == MPATH_OK) {
        outbox->users++;
        *address_p = outbox->address;
        *share_p   = share;
    } else {
        free(share);
    }
    outbox_unlock(outbox, is_locked);
    return status;
}

/* No team is left; mates that still read what is in the outbox have mapped it themselves. */
static void outbox_end(mpath_outbox_t *outbox)
{
    mpath_outbox_share_t *share;

    while ((share = outbox->ended) != NULL) {
        outbox->ended = share->next;
        share_end(share);
    }
    outbox->blocks = NULL;
    mpath_segment_detach(&outbox->segment);
}

void mpath_outbox_leave(mpath_outbox_t *outbox, mpath_outbox_share_t *share, mpath_segment_t *segment)
{
    int is_locked = outbox_lock(outbox);

    share->segment = *segment;
    segment->base  = NULL;
    segment->bytes = 0;
    share->next    = outbox->ended;
    outbox->ended  = share;
    if (--outbox->users == 0) {
        outbox_end(outbox);
    } else {
        outbox_reclaim(outbox);
    }
    outbox_unlock(outbox, is_locked);
}

void mpath_outbox_destroy(mpath_outbox_t *outbox)
{
    if (outbox != NULL) {
        pthread_mutex_destroy(&outbox->lock);
        free(outbox);
    }
}
