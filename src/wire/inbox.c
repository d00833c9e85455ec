/* SPDX-License-Identifier: BSD-3-Clause */
/* The queue of an inbox is a ring that grows; see wire/inbox.h. */
#include "wire/inbox.h"

#include "util/log.h"

#include <stdlib.h>
#include <string.h>

#define INBOX_START 64

/* The inbox that this thread drives rails for. */
static _Thread_local mpath_inbox_t *driven;

static _Thread_local int driven_events;

mpath_status_t mpath_inbox_init(mpath_inbox_t *inbox, mpath_fabric_t *fabric, const int16_t *rails, uint64_t id)
{
    *inbox = (mpath_inbox_t){.fabric = fabric, .rails = rails, .id = id, .capacity = INBOX_START};

    inbox->items = malloc(INBOX_START * sizeof(*inbox->items));
    if (inbox->items == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    pthread_mutex_init(&inbox->lock, NULL);
    return MPATH_OK;
}

void mpath_inbox_cleanup(mpath_inbox_t *inbox)
{
    mpath_inbox_leave(inbox);
    pthread_mutex_destroy(&inbox->lock);
    free(inbox->items);
}

static mpath_status_t inbox_grow(mpath_inbox_t *inbox)
{
    size_t capacity           = 2 * inbox->capacity, head;
    mpath_inbox_item_t *items = malloc(capacity * sizeof(*items));

    if (items == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    head = inbox->capacity - inbox->first;
    memcpy(items, inbox->items + inbox->first, head * sizeof(*items));
    memcpy(items + head, inbox->items, inbox->first * sizeof(*items));
    free(inbox->items);
    inbox->items    = items;
    inbox->capacity = capacity;
    inbox->first    = 0;
    return MPATH_OK;
}

/* Nonzero when the arrival is in the inbox; else the caller ends it. */
static int inbox_push(mpath_inbox_t *inbox, int rail, const mpath_arrival_t *arrival)
{
    int is_taken = 0;

    pthread_mutex_lock(&inbox->lock);
    if (!inbox->closed) {
        if (inbox->count == inbox->capacity && inbox_grow(inbox) != MPATH_OK) {
            mpath_error("no memory to queue an arrived chunk; the call fails");
            inbox->status = MPATH_ERR_NO_MEMORY;
        } else {
            inbox->items[(inbox->first + inbox->count) % inbox->capacity] = (mpath_inbox_item_t){.rail    = rail,
                                                                                                 .arrival = *arrival};
            __atomic_store_n(&inbox->count, inbox->count + 1, __ATOMIC_RELEASE);
            is_taken = 1;
        }
    }
    pthread_mutex_unlock(&inbox->lock);
    return is_taken;
}

/* Takes the oldest arrival out; 0 when there is none. */
static int inbox_pop(mpath_inbox_t *inbox, mpath_inbox_item_t *item_p)
{
    int is_found = 0;

    if (__atomic_load_n(&inbox->count, __ATOMIC_ACQUIRE) == 0) {
        return 0;
    }
    pthread_mutex_lock(&inbox->lock);
    if (inbox->count > 0) {
        *item_p      = inbox->items[inbox->first];
        inbox->first = (inbox->first + 1) % inbox->capacity;
        __atomic_store_n(&inbox->count, inbox->count - 1, __ATOMIC_RELEASE);
        is_found = 1;
    }
    pthread_mutex_unlock(&inbox->lock);
    return is_found;
}

/* The fabric's callback; `argument` is the inbox. */
static void inbox_arrive(void *argument, int rail, const mpath_arrival_t *arrival)
{
    mpath_inbox_t *inbox = argument;

    if (arrival->chunk.hop == MPATH_INBOX_WORD && inbox->word != NULL) {
        inbox->word(inbox->word_argument, &arrival->chunk);
        mpath_fabric_release(inbox->fabric, rail, arrival);
    } else if (inbox == driven && inbox->failed == MPATH_OK) {
        driven_events++;
        inbox->failed = inbox->ops->handle(inbox->argument, rail, arrival);
    } else if (!inbox_push(inbox, rail, arrival)) {
        mpath_fabric_release(inbox->fabric, rail, arrival);
    }
}

mpath_status_t mpath_inbox_join_rail(mpath_inbox_t *inbox, int rail)
{
    return mpath_fabric_join_rail(inbox->fabric, rail, inbox->id, inbox_arrive, inbox);
}

int mpath_inbox_join(mpath_inbox_t *inbox, int machine_nic)
{
    return mpath_fabric_join(inbox->fabric, machine_nic, inbox->id, inbox_arrive, inbox);
}

void mpath_inbox_leave_rail(mpath_inbox_t *inbox, int rail)
{
    mpath_fabric_leave_rail(inbox->fabric, rail, inbox->id);
}

void mpath_inbox_leave(mpath_inbox_t *inbox)
{
    mpath_fabric_leave(inbox->fabric, inbox->id);
}

int mpath_inbox_drive(mpath_inbox_t *inbox, mpath_nic_set_t nics)
{
    int result = 0;

    driven        = inbox;
    driven_events = 0;
    for (; nics != 0 && result >= 0; nics &= nics - 1) {
        result = mpath_fabric_progress(inbox->fabric, inbox->rails[mpath_nic_first(nics)]);
        if (result < 0) {
            inbox->ops->lose(inbox->argument, mpath_nic_first(nics), (mpath_status_t)result);
        }
    }
    driven = NULL;
    if (inbox->failed != MPATH_OK) {
        return (int)inbox->failed;
    }
    return result < 0 ? result : driven_events;
}

int mpath_inbox_take(mpath_inbox_t *inbox)
{
    mpath_inbox_item_t item;
    int events = 0;

    while (inbox_pop(inbox, &item)) {
        mpath_status_t status = inbox->ops->handle(inbox->argument, item.rail, &item.arrival);

        if (status != MPATH_OK) {
            return (int)status;
        }
        events++;
    }
    return inbox->status != MPATH_OK ? (int)inbox->status : events;
}

static void inbox_set_closed(mpath_inbox_t *inbox, int closed)
{
    pthread_mutex_lock(&inbox->lock);
    inbox->closed = closed;
    pthread_mutex_unlock(&inbox->lock);
}

void mpath_inbox_close(mpath_inbox_t *inbox)
{
    mpath_inbox_item_t item;

    inbox_set_closed(inbox, 1);
    while (inbox_pop(inbox, &item)) {
        mpath_fabric_release(inbox->fabric, item.rail, &item.arrival);
    }
}

void mpath_inbox_open(mpath_inbox_t *inbox)
{
    inbox_set_closed(inbox, 0);
}
