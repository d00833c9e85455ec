/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chunks under way: arrivals are taken to their final place or queued for the next hop, queued and own chunks are
 * pushed into the outlets. Chunks for others go before own ones, for they hold slots that somebody waits for.
 */
#include "exec/move_private.h"

#include "util/log.h"

#include <stdlib.h>
#include <string.h>

#define RAIL_PASS_BYTES 65536u /* handed to the rails before others are looked at; one chunk per outlet at least */
#define SLOT_CHUNKS_PER_PASS 2 /* copied into one ring before the rails are looked at again */

static parcel_t *new_parcel(mpath_mover_t *mover, parcel_state_t state, mpath_duty_t *duty)
{
    parcel_t *parcel = mover->spare;

    if (parcel != NULL) {
        mover->spare = parcel->next;
    } else if ((parcel = malloc(sizeof(*parcel))) == NULL) {
        mpath_error("%s: no memory to handle a chunk; the call fails", mover->team->oob.name);
        return NULL;
    }
    memset(parcel, 0, sizeof(*parcel));
    parcel->state     = state;
    parcel->duty      = duty;
    parcel->nic       = ARRIVAL_BY_SLOT;
    parcel->op_nic    = -1;
    parcel->op.status = MPATH_INPROGRESS;
    return parcel;
}

void mpath_mover_drop_parcel(mpath_mover_t *mover, parcel_t *parcel)
{
    parcel->next = mover->spare;
    mover->spare = parcel;
}

static void put_under_way(mpath_mover_t *mover, parcel_t *parcel)
{
    parcel->next     = mover->under_way;
    mover->under_way = parcel;
}

void mpath_mover_end_arrival(mpath_mover_t *mover, int nic, const mpath_arrival_t *arrival)
{
    if (nic >= 0) {
        mpath_fabric_release(mover->fabric, nic, arrival);
    } else {
        arrival->lane->ops->release(arrival->lane, arrival);
    }
}

static mpath_status_t take(mpath_mover_t *mover, parcel_t *parcel, void *to)
{
    mpath_lane_t *lane = parcel->arrival.lane;

    parcel->op_nic = parcel->nic;
    if (parcel->nic >= 0) {
        return mpath_fabric_take(mover->fabric, parcel->nic, &parcel->arrival, to, &parcel->op);
    }
    return lane->ops->take(lane, &parcel->arrival, to, &parcel->op);
}

static mpath_lane_t *slot_lane(const mpath_mover_t *mover, const mpath_outlet_t *outlet)
{
    return (outlet->kind == MPATH_OUTLET_RELAY) ? mover->relay : mover->team->shm;
}

void mpath_mover_commit(mpath_mover_t *mover, parcel_t *parcel)
{
    const mpath_outlet_t *outlet = &mover->schedule->outlets[parcel->duty->outlet];
    mpath_lane_t *lane           = slot_lane(mover, outlet);

    parcel->arrival.chunk.hop = (uint32_t)parcel->duty->hop_out;
    lane->ops->commit(lane, mover->team->local_of[outlet->rank], parcel->slot, &parcel->arrival.chunk);
}

/* Accounts for a parcel whose bytes are where they had to go, and drops it. */
static void finish_parcel(mpath_mover_t *mover, parcel_t *parcel)
{
    mpath_duty_t *duty = parcel->duty;
    uint64_t bytes     = parcel->arrival.chunk.bytes;

    duty->done_bytes += bytes;
    if ((parcel->nic >= 0) && (parcel->arrival.data == NULL)) {
        mpath_rail_clock_came(&mover->clock, duty, parcel->arrival.chunk.bytes);
    }
    switch (parcel->state) {
    case PARCEL_SENDS_OWN:
        mover->send_left -= bytes;
        mover->stats.sent_bytes += bytes;
        break;
    case PARCEL_SENDS_ON:
        mpath_mover_end_arrival(mover, parcel->nic, &parcel->arrival);
        mover->forward_left -= bytes;
        mover->stats.forwarded_bytes += bytes;
        break;
    case PARCEL_TAKES_TO_SLOT:
        mpath_mover_commit(mover, parcel);
        mover->forward_left -= bytes;
        mover->stats.forwarded_bytes += bytes;
        break;
    default:
        mover->receive_left -= bytes;
        mover->stats.received_bytes += bytes;
        break;
    }
    if ((parcel->state == PARCEL_SENDS_OWN) || (parcel->state == PARCEL_SENDS_ON)) {
        mover->stats.rail_bytes[duty->out.nic_from] += bytes;
    }
    mpath_mover_drop_parcel(mover, parcel);
}

int mpath_mover_finish_ops(mpath_mover_t *mover)
{
    parcel_t **at = &mover->under_way;
    int events    = 0;

    while (*at != NULL) {
        parcel_t *parcel      = *at;
        mpath_status_t status = (parcel->op_nic >= 0)
                                    ? mpath_fabric_op_status(mover->fabric, parcel->op_nic, &parcel->op)
                                    : parcel->op.status;

        if (status == MPATH_INPROGRESS) {
            at = &parcel->next;
            continue;
        }
        if (mpath_status_is_error(status)) {
            mpath_mover_op_failed(mover, parcel, status);
            return (int)status;
        }
        *at = parcel->next;
        finish_parcel(mover, parcel);
        events++;
    }
    return events;
}

static void *place_of(const mpath_mover_t *mover, const mpath_duty_t *duty, const mpath_chunk_t *chunk)
{
    return (char *)mover->call->recv_buffer + mover->call->recv_offsets[duty->source] + chunk->offset;
}

static mpath_status_t take_to_user(mpath_mover_t *mover, parcel_t *parcel)
{
    mpath_status_t status = take(mover, parcel, place_of(mover, parcel->duty, &parcel->arrival.chunk));

    switch (status) {
    case MPATH_OK:
        finish_parcel(mover, parcel);
        return MPATH_OK;
    case MPATH_INPROGRESS:
        put_under_way(mover, parcel);
        return MPATH_OK;
    case MPATH_NO_RESOURCE:
        mpath_error("%s: a lane has no room to take a chunk to its final place", mover->team->oob.name);
        mpath_mover_end_arrival(mover, parcel->nic, &parcel->arrival);
        mpath_mover_drop_parcel(mover, parcel);
        return MPATH_ERR_INTERNAL;
    default:
        mpath_mover_op_failed(mover, parcel, status);
        mpath_mover_drop_parcel(mover, parcel);
        return status;
    }
}

static void queue_parcel(mpath_mover_t *mover, parcel_t *parcel)
{
    outlet_queue_t *queue = &mover->queues[parcel->duty->outlet];

    parcel->next   = NULL;
    *queue->last_p = parcel;
    queue->last_p  = &parcel->next;
}

/* The duty that a chunk belongs to; NULL, logged, when it is none that this rank waits for. */
static mpath_duty_t *expect(mpath_mover_t *mover, const mpath_chunk_t *chunk)
{
    mpath_duty_t *duty = NULL;

    if (chunk->call == mover->call_number) {
        duty = mpath_schedule_find(mover->schedule, chunk->flow);
    }
    if ((duty == NULL) || (mpath_schedule_accept(mover->schedule, duty, chunk) != MPATH_OK)) {
        mpath_error("%s: rank %d, in call %u, got a chunk that it does not wait for: call %u, flow %u, offset %llu, %u "
                    "bytes, hop %u; the call fails",
                    mover->team->oob.name, mover->team->rank, mover->call_number, chunk->call, chunk->flow,
                    (unsigned long long)chunk->offset, chunk->bytes, chunk->hop);
        return NULL;
    }
    return duty;
}

static mpath_chunk_t own_chunk(const mpath_mover_t *mover, const mpath_duty_t *duty)
{
    mpath_chunk_t chunk = {
        .team = mover->team->id, .call = mover->call_number, .flow = duty->flow, .hop = (uint32_t)duty->hop_out};

    mpath_duty_chunk(duty, duty->handed_chunks, &chunk.offset, &chunk.bytes);
    return chunk;
}

static const void *source_of(const mpath_mover_t *mover, const mpath_duty_t *duty, const mpath_chunk_t *chunk)
{
    return (const char *)mover->call->send_buffer + mover->call->send_offsets[duty->destination] + chunk->offset;
}

/*
 * What came of pushing a parcel: 1 pushed, 0 the outlet is full, or an error. A parcel that was pushed is taken care
 * of.
 */
static int pushed(mpath_mover_t *mover, outlet_queue_t *queue, parcel_t *parcel, mpath_status_t status)
{
    switch (status) {
    case MPATH_OK:
        finish_parcel(mover, parcel);
        return 1;
    case MPATH_INPROGRESS:
        put_under_way(mover, parcel);
        return 1;
    case MPATH_NO_RESOURCE:
        queue->blocked = 1;
        return 0;
    default:
        mpath_mover_op_failed(mover, parcel, status);
        return (int)status;
    }
}

static mpath_status_t send_on(mpath_mover_t *mover, const mpath_outlet_t *outlet, outlet_queue_t *queue,
                              parcel_t *parcel, const void *data)
{
    mpath_chunk_t chunk = parcel->arrival.chunk;

    chunk.hop      = (uint32_t)parcel->duty->hop_out;
    parcel->op_nic = mover->fabric_nic[outlet->nic];
    mover->fed_bytes += chunk.bytes;
    return mpath_fabric_send(mover->fabric, parcel->op_nic, queue->peer, &chunk, data, &parcel->op);
}

static mpath_status_t take_to_slot(mpath_mover_t *mover, const mpath_outlet_t *outlet, parcel_t *parcel)
{
    mpath_lane_t *lane = slot_lane(mover, outlet);
    mpath_status_t status;

    if (parcel->slot == NULL) {
        status = lane->ops->reserve(lane, mover->team->local_of[outlet->rank], parcel->arrival.chunk.bytes,
                                    &parcel->slot);
        if (status != MPATH_OK) {
            parcel->slot = NULL;
            return status;
        }
    }
    return take(mover, parcel, parcel->slot);
}

/* Pushes the oldest chunk that waits for the outlet. */
static int push_waiting(mpath_mover_t *mover, size_t index)
{
    const mpath_outlet_t *outlet = &mover->schedule->outlets[index];
    outlet_queue_t *queue        = &mover->queues[index];
    parcel_t *parcel = queue->first, *next = parcel->next;
    mpath_status_t status;
    int result;

    if (outlet->kind == MPATH_OUTLET_RAIL) {
        parcel->state = PARCEL_SENDS_ON;
        status        = send_on(mover, outlet, queue, parcel, parcel->arrival.data);
    } else {
        parcel->state = PARCEL_TAKES_TO_SLOT;
        status        = take_to_slot(mover, outlet, parcel);
    }
    if (mpath_status_is_error(status) && (parcel->state == PARCEL_TAKES_TO_SLOT) && (parcel->slot != NULL)) {
        parcel->nic = ARRIVAL_ENDED; /* by the failed take */
    }
    result = pushed(mover, queue, parcel, status);
    if (result <= 0) {
        parcel->state = PARCEL_WAITS;
        return result;
    }
    queue->first = next;
    if (next == NULL) {
        queue->last_p = &queue->first;
    }
    return result;
}

static int push_own_to_rail(mpath_mover_t *mover, const mpath_outlet_t *outlet, outlet_queue_t *queue,
                            mpath_duty_t *duty)
{
    parcel_t *parcel = new_parcel(mover, PARCEL_SENDS_OWN, duty);
    const void *data;
    int result;

    if (parcel == NULL) {
        return (int)MPATH_ERR_NO_MEMORY;
    }
    parcel->arrival.chunk = own_chunk(mover, duty);
    data                  = source_of(mover, duty, &parcel->arrival.chunk);
    result                = pushed(mover, queue, parcel, send_on(mover, outlet, queue, parcel, data));
    if (result <= 0) {
        mpath_mover_drop_parcel(mover, parcel);
    }
    return result;
}

static int push_own_to_slot(mpath_mover_t *mover, const mpath_outlet_t *outlet, outlet_queue_t *queue,
                            mpath_duty_t *duty)
{
    mpath_lane_t *lane    = slot_lane(mover, outlet);
    int peer              = mover->team->local_of[outlet->rank];
    mpath_chunk_t chunk   = own_chunk(mover, duty);
    mpath_status_t status = lane->ops->send(lane, peer, &chunk, source_of(mover, duty, &chunk), NULL);

    if (status == MPATH_NO_RESOURCE) {
        queue->blocked = 1;
        return 0;
    }
    if (status != MPATH_OK) {
        return (int)status;
    }
    duty->done_bytes += chunk.bytes;
    mover->send_left -= chunk.bytes;
    mover->stats.sent_bytes += chunk.bytes;
    return 1;
}

/* Pushes one chunk into the outlet: 1, or 0 when it is full or nothing is there to push, or an error. */
static int push_one(mpath_mover_t *mover, size_t index)
{
    const mpath_outlet_t *outlet = &mover->schedule->outlets[index];
    outlet_queue_t *queue        = &mover->queues[index];
    mpath_duty_t *duty;
    int result;

    if (queue->first != NULL) {
        return push_waiting(mover, index);
    }
    if ((outlet->kind == MPATH_OUTLET_LAST) && !mover->rails_full) {
        return 0; /* the rails first: a node mate on this core may not have begun with its own */
    }
    duty = (queue->own_left > 0) ? mpath_schedule_next_own(mover->schedule, outlet, 0) : NULL;
    if (duty == NULL) {
        return 0;
    }
    result = (outlet->kind == MPATH_OUTLET_RAIL) ? push_own_to_rail(mover, outlet, queue, duty)
                                                 : push_own_to_slot(mover, outlet, queue, duty);
    if (result > 0) {
        duty->handed_chunks++;
        queue->own_left--;
    }
    return result;
}

mpath_status_t mpath_mover_handle(mpath_mover_t *mover, int nic, const mpath_arrival_t *arrival)
{
    mpath_duty_t *duty;
    outlet_queue_t *queue;
    parcel_t *parcel;
    int result;

    if (mpath_mover_is_stale(mover, &arrival->chunk)) {
        mpath_mover_end_arrival(mover, nic, arrival);
        return MPATH_OK;
    }
    duty = expect(mover, &arrival->chunk);
    if (duty == NULL) {
        mpath_mover_end_arrival(mover, nic, arrival);
        return MPATH_ERR_INTERNAL;
    }
    parcel = new_parcel(mover, PARCEL_TAKES_TO_USER, duty);
    if (parcel == NULL) {
        mpath_mover_end_arrival(mover, nic, arrival);
        return MPATH_ERR_NO_MEMORY;
    }
    parcel->nic     = nic;
    parcel->arrival = *arrival;
    if ((nic >= 0) && (arrival->data != NULL)) {
        mpath_rail_clock_came(&mover->clock, duty, arrival->chunk.bytes);
    }
    if (duty->hop_out == MPATH_DUTY_NO_HOP) {
        return take_to_user(mover, parcel);
    }
    queue         = &mover->queues[duty->outlet];
    parcel->state = PARCEL_WAITS;
    queue_parcel(mover, parcel);
    /* Not one that waited before: it may be of another rail, whose lock must not be taken under this one's. */
    result = (queue->blocked || (queue->first != parcel)) ? 0 : push_waiting(mover, duty->outlet);
    return (result < 0) ? (mpath_status_t)result : MPATH_OK;
}

void mpath_mover_arrive(void *argument, const mpath_arrival_t *arrival)
{
    mpath_mover_t *mover  = argument;
    mpath_status_t status = MPATH_ERR_INTERNAL;

    if (mover->failed == MPATH_OK) {
        status = mpath_mover_handle(mover, ARRIVAL_BY_SLOT, arrival);
        if (status != MPATH_OK) {
            mover->failed = status;
        }
    } else {
        mpath_mover_end_arrival(mover, ARRIVAL_BY_SLOT, arrival);
    }
}

int mpath_mover_take_arrivals(mpath_mover_t *mover)
{
    inbox_item_t item;
    int events = 0;

    while (mpath_inbox_pop(&mover->inbox, &item)) {
        mpath_status_t status = mpath_mover_handle(mover, item.nic, &item.arrival);

        if (status != MPATH_OK) {
            return (int)status;
        }
        events++;
    }
    return (mover->inbox.status != MPATH_OK) ? (int)mover->inbox.status : events;
}

/* One chunk into every outlet of the kind that has room. */
static int push_round(mpath_mover_t *mover, mpath_outlet_kind_t kind)
{
    size_t count = mover->schedule->num_outlets, index = mover->first_outlet;
    int events = 0;

    for (size_t i = 0; i < count; i++, index = (index + 1 < count) ? index + 1 : 0) {
        int result;

        if ((mover->schedule->outlets[index].kind != kind) || mover->queues[index].blocked) {
            continue;
        }
        result = push_one(mover, index);
        if (result < 0) {
            return result;
        }
        events += result;
    }
    return events;
}

static int push_rounds(mpath_mover_t *mover, mpath_outlet_kind_t kind, int rounds)
{
    int events = 0;

    for (int round = 0; round < rounds; round++) {
        int result = push_round(mover, kind);

        if (result <= 0) {
            return (result < 0) ? result : events;
        }
        events += result;
    }
    return events;
}

/* A little into each outlet with room, so that all processes that share a core soon have their rails at work. */
int mpath_mover_feed_rails(mpath_mover_t *mover)
{
    size_t count = mover->schedule->num_outlets;
    int events   = 0, result;

    for (size_t i = 0; i < count; i++) {
        mover->queues[i].blocked = 0;
    }
    mover->fed_bytes = 0;
    do {
        result = push_round(mover, MPATH_OUTLET_RAIL);
        events += result;
    } while ((result > 0) && (mover->fed_bytes < RAIL_PASS_BYTES));
    mover->first_outlet = (mover->first_outlet + 1 < count) ? mover->first_outlet + 1 : 0;
    mover->rails_full |= (events == 0);
    return (result < 0) ? result : events;
}

int mpath_mover_feed_slots(mpath_mover_t *mover)
{
    int relay = push_rounds(mover, MPATH_OUTLET_RELAY, SLOT_CHUNKS_PER_PASS), last;

    if (relay < 0) {
        return relay;
    }
    last = push_rounds(mover, MPATH_OUTLET_LAST, SLOT_CHUNKS_PER_PASS);
    return (last < 0) ? last : relay + last;
}
