/* SPDX-License-Identifier: BSD-3-Clause */
/* Relay, which chunk goes next: of the outlets of this rank, of those in its slots, and of its own. */
#include "mover/relay_private.h"

#define DEPTH 4u /* copies of an outlet under way: one runs, one is ready, the others hide the host */

/* The next chunk of those in slots. MPATH_NO_RESOURCE: there is none, or it has to wait. */
static mpath_status_t feed_forwarded(mpath_relay_t *relay, relay_outlet_t *outlet)
{
    relay_item_t *item    = outlet->first;
    mpath_status_t status = (item != NULL) ? mpath_relay_hand(relay, item->duty, item->chunk, item) : MPATH_NO_RESOURCE;

    if (status == MPATH_OK) {
        outlet->first      = item->next;
        outlet->last_p     = (outlet->first == NULL) ? &outlet->first : outlet->last_p;
        item->next         = relay->spare_items;
        relay->spare_items = item;
        outlet->own_turn   = 1;
    }
    return status;
}

/* The own chunk with the longest way ahead of those that do not have to wait. */
static mpath_status_t feed_own(mpath_relay_t *relay, relay_outlet_t *outlet, const mpath_outlet_t *given)
{
    mpath_status_t status = MPATH_NO_RESOURCE;
    int ahead             = INT8_MAX;
    mpath_duty_t *duty;

    while ((status == MPATH_NO_RESOURCE) && (outlet->own_left > 0) &&
           ((duty = mpath_schedule_next_own(relay->bound.schedule, given, ahead)) != NULL)) {
        status = mpath_relay_hand(relay, duty, duty->handed_chunks, NULL);
        ahead  = duty->ahead - 1;
        if (status == MPATH_OK) {
            duty->handed_chunks++;
            outlet->own_left--;
            outlet->own_turn = 0;
        }
    }
    return status;
}

/* In turns, unless one has to wait and the other does not. */
static mpath_status_t feed_one(mpath_relay_t *relay, size_t index)
{
    relay_outlet_t *outlet      = &relay->bound.outlets[index];
    const mpath_outlet_t *given = &relay->bound.schedule->outlets[index];
    int own_first               = outlet->own_turn;
    mpath_status_t status       = own_first ? feed_own(relay, outlet, given) : feed_forwarded(relay, outlet);

    if (status == MPATH_NO_RESOURCE) {
        status = own_first ? feed_forwarded(relay, outlet) : feed_own(relay, outlet, given);
    }
    return status;
}

/* 1: a chunk is on its way; 0: there is none, or it has to wait; or an error. */
static int feed_outlet(mpath_relay_t *relay, size_t index)
{
    mpath_status_t status = feed_one(relay, index);

    relay->bound.outlets[index].in_flight += (status == MPATH_OK) ? 1 : 0;
    return (status == MPATH_OK) ? 1 : mpath_status_is_error(status) ? (int)status : 0;
}

/*
 * A chunk for every outlet that has none under way; if there is no such, one for an outlet with the fewest. To start a
 * copy takes the host microseconds in which no end of another is noticed, so one more has to do until the next round.
 */
int mpath_relay_feed(mpath_relay_t *relay)
{
    size_t num = relay->bound.schedule->num_outlets, first = relay->first_outlet;
    int events = 0;

    for (unsigned under_way = 0; (under_way < DEPTH) && (events == 0); under_way++) {
        for (size_t i = 0; (i < num) && ((events == 0) || (under_way == 0)); i++) {
            size_t index = (first + i) % num;
            int result   = (relay->bound.outlets[index].in_flight == under_way) ? feed_outlet(relay, index) : 0;

            if (result < 0) {
                return result;
            }
            relay->first_outlet = (result > 0) ? (index + 1) % num : relay->first_outlet;
            events += result;
        }
    }
    return events;
}
