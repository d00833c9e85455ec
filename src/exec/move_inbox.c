/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inbox: what came by rail while another thread, or another team, progressed it. The team's own thread takes it out;
 * what comes while that thread progresses its rails itself does not pass through here. Bounded by the rails' limits of
 * open arrivals.
 */
#include "exec/move_private.h"

#include "util/log.h"

#include <stdlib.h>
#include <string.h>

#define INBOX_START 64

mpath_status_t mpath_inbox_init(inbox_t *inbox)
{
    inbox->items = malloc(INBOX_START * sizeof(*inbox->items));
    if (inbox->items == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    inbox->room = INBOX_START;
    pthread_mutex_init(&inbox->lock, NULL);
    return MPATH_OK;
}

void mpath_inbox_cleanup(inbox_t *inbox)
{
    pthread_mutex_destroy(&inbox->lock);
    free(inbox->items);
}

static mpath_status_t inbox_grow(inbox_t *inbox)
{
    size_t room         = 2 * inbox->room, head;
    inbox_item_t *items = malloc(room * sizeof(*items));

    if (items == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    head = inbox->room - inbox->first;
    memcpy(items, inbox->items + inbox->first, head * sizeof(*items));
    memcpy(items + head, inbox->items, inbox->first * sizeof(*items));
    free(inbox->items);
    inbox->items = items;
    inbox->room  = room;
    inbox->first = 0;
    return MPATH_OK;
}

/* Nonzero when the item is in the inbox; else the caller ends the arrival. */
static int inbox_push(inbox_t *inbox, int nic, const mpath_arrival_t *arrival)
{
    int taken = 0;

    pthread_mutex_lock(&inbox->lock);
    if (!inbox->closed && !(inbox->drops && ((int32_t)(inbox->drop_call - arrival->chunk.call) >= 0))) {
        if ((inbox->count == inbox->room) && (inbox_grow(inbox) != MPATH_OK)) {
            mpath_error("no memory to queue an arrived chunk; the call fails");
            inbox->status = MPATH_ERR_NO_MEMORY;
        } else {
            inbox->items[(inbox->first + inbox->count) % inbox->room] = (inbox_item_t){.nic = nic, .arrival = *arrival};
            __atomic_store_n(&inbox->count, inbox->count + 1, __ATOMIC_RELEASE);
            taken = 1;
        }
    }
    pthread_mutex_unlock(&inbox->lock);
    return taken;
}

/* The mover that this thread progresses its rails for: what comes for it is handled at once, while the bytes are still
 * where the lane has received them. */
static _Thread_local mpath_mover_t *driven;
static _Thread_local int driven_events;

/* Other teams' chunks are no events: while they kept coming, this team would not notice that it waits in vain. Its own
 * ops that end are counted where they are looked at. */
int mpath_inbox_drive(mpath_mover_t *mover)
{
    int result = 0;

    driven        = mover;
    driven_events = 0;
    for (uint32_t rails = mover->schedule->rails; (rails != 0) && (result >= 0); rails &= rails - 1) {
        result = mpath_fabric_progress(mover->fabric, mover->fabric_nic[__builtin_ctz(rails)]);
        if (result < 0) {
            mpath_mover_rail_failed(mover, __builtin_ctz(rails), (mpath_status_t)result);
        }
    }
    driven = NULL;
    if (mover->failed != MPATH_OK) {
        return (int)mover->failed;
    }
    return (result < 0) ? result : driven_events;
}

void mpath_inbox_arrive(void *argument, int nic, const mpath_arrival_t *arrival)
{
    mpath_mover_t *mover = argument;

    if ((mover == driven) && (mover->failed == MPATH_OK)) {
        driven_events++;
        mover->failed = mpath_mover_handle(mover, nic, arrival);
    } else if (!inbox_push(&mover->inbox, nic, arrival)) {
        mpath_fabric_release(mover->fabric, nic, arrival);
    }
}

int mpath_inbox_pop(inbox_t *inbox, inbox_item_t *item_p)
{
    int found = 0;

    if (__atomic_load_n(&inbox->count, __ATOMIC_ACQUIRE) == 0) {
        return 0;
    }
    pthread_mutex_lock(&inbox->lock);
    if (inbox->count > 0) {
        *item_p      = inbox->items[inbox->first];
        inbox->first = (inbox->first + 1) % inbox->room;
        __atomic_store_n(&inbox->count, inbox->count - 1, __ATOMIC_RELEASE);
        found = 1;
    }
    pthread_mutex_unlock(&inbox->lock);
    return found;
}

void mpath_inbox_open(mpath_mover_t *mover, int drops)
{
    pthread_mutex_lock(&mover->inbox.lock);
    mover->inbox.closed    = 0;
    mover->inbox.drops     = drops;
    mover->inbox.drop_call = mover->call_number;
    pthread_mutex_unlock(&mover->inbox.lock);
}

void mpath_inbox_close(mpath_mover_t *mover)
{
    inbox_item_t item;

    pthread_mutex_lock(&mover->inbox.lock);
    mover->inbox.closed = 1;
    pthread_mutex_unlock(&mover->inbox.lock);
    while (mpath_inbox_pop(&mover->inbox, &item)) {
        mpath_fabric_release(mover->fabric, item.nic, &item.arrival);
    }
}
