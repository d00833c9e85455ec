/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Relay, the hops: what this rank copies. Chunks of its own and chunks in its slots go to outlets, a few at a time
 * each; a copy that is complete, and whose time has come where the topology is emulated, is told to who has it now.
 */
#include "mover/relay_private.h"

#include "mover/relay_rail.h"
#include "util/log.h"
#include "util/time.h"

#include <pthread.h>
#include <stdlib.h>

#define PACE_AHEAD_NS 400000u /* an emulated port takes chunks for so long in advance */
#define STREAM_FETCH (MPATH_GPU_STREAMS - 1)
#define STREAM_TO_HOST (MPATH_GPU_STREAMS - 2)
#define STREAMS_TO_MATES (MPATH_GPU_STREAMS - 2 - MPATH_GPU_STREAMS_DIRECT)

static pthread_mutex_t stream_mutex = PTHREAD_MUTEX_INITIALIZER;

void mpath_relay_lock(void)
{
    pthread_mutex_lock(&stream_mutex);
}

void mpath_relay_unlock(void)
{
    pthread_mutex_unlock(&stream_mutex);
}

/* -- ops and items -- */

static relay_op_t *op_get(mpath_relay_t *relay)
{
    relay_op_t *op = relay->spare_ops;

    if (op != NULL) {
        relay->spare_ops = op->next;
    } else if ((op = malloc(sizeof(*op))) == NULL) {
        mpath_error("no memory for a copy under way; the call fails");
    }
    return op;
}

static relay_item_t *item_get(mpath_relay_t *relay)
{
    relay_item_t *item = relay->spare_items;

    if (item != NULL) {
        relay->spare_items = item->next;
    } else if ((item = malloc(sizeof(*item))) == NULL) {
        mpath_error("no memory for a chunk that waits; the call fails");
    }
    return item;
}

mpath_status_t mpath_relay_launch(mpath_relay_t *relay, unsigned stream, mpath_device_ptr_t to, mpath_device_ptr_t from,
                                  const relay_op_t *op)
{
    relay_op_t *copy = op_get(relay);
    mpath_status_t status;

    if (copy == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    *copy          = *op;
    copy->next     = NULL;
    copy->began_ns = mpath_trace_is_on() ? mpath_time_ns() : 0;
    status         = mpath_gpu_enter(relay->gpu); /* once for all that follows */
    if (status == MPATH_OK) {
        status = mpath_stream_get(relay->gpu, stream, &copy->stream);
        if (status == MPATH_OK) {
            mpath_relay_lock();
            status = mpath_stream_copy(copy->stream, to, from, copy->bytes);
            if (status == MPATH_OK) {
                status = mpath_stream_mark(copy->stream, &copy->mark);
            }
            mpath_relay_unlock();
        }
        mpath_gpu_leave(relay->gpu);
    }
    if (status != MPATH_OK) {
        copy->next       = relay->spare_ops;
        relay->spare_ops = copy;
        return status;
    }
    *relay->under_way_last_p = copy;
    relay->under_way_last_p  = &copy->next;
    return MPATH_OK;
}

/* An op without a copy: the bytes are where they have to be. */
static mpath_status_t note(mpath_relay_t *relay, const relay_op_t *op)
{
    relay_op_t *noted = op_get(relay);

    if (noted == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    *noted                   = *op;
    noted->next              = NULL;
    noted->stream            = NULL;
    noted->began_ns          = 0;
    *relay->under_way_last_p = noted;
    relay->under_way_last_p  = &noted->next;
    return MPATH_OK;
}

mpath_status_t mpath_relay_queue(mpath_relay_t *relay, mpath_duty_t *duty, uint32_t chunk,
                                 mpath_relay_class_t slot_class, int slot, int owner)
{
    relay_outlet_t *outlet = &relay->bound.outlets[duty->outlet];
    relay_item_t *item     = item_get(relay);

    if (item == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    *item = (relay_item_t){.duty = duty, .chunk = chunk, .slot_class = slot_class, .slot = slot, .owner = owner};
    *outlet->last_p = item;
    outlet->last_p  = &item->next;
    return MPATH_OK;
}

/* -- arrivals -- */

/* A chunk in a host slot of a mate: this rank is its destination. */
static mpath_status_t fetch(mpath_relay_t *relay, mpath_duty_t *duty, uint32_t chunk, int owner, int slot)
{
    relay_op_t op         = {.step       = RELAY_FETCH,
                             .duty       = duty,
                             .chunk      = chunk,
                             .from_class = MPATH_RELAY_ON_HOST,
                             .from_slot  = slot,
                             .from_owner = owner,
                             .to_slot    = RELAY_NO_SLOT};
    mpath_device_ptr_t to = (mpath_device_ptr_t)(uintptr_t)relay->call->recv_buffer;
    uint64_t offset;

    mpath_duty_chunk(duty, chunk, &offset, &op.bytes);
    to += relay->call->recv_offsets[duty->source] + offset;
    return mpath_relay_launch(relay, STREAM_FETCH, to, mpath_relay_host_slot(relay, owner, slot), &op);
}

/* A chunk has come into a slot. */
static mpath_status_t arrive(mpath_relay_t *relay, int producer, uint64_t entry)
{
    mpath_duty_t *duty             = mpath_schedule_find(relay->bound.schedule, (uint32_t)(entry >> 32));
    uint32_t chunk                 = (uint32_t)(entry >> 8) & (MPATH_RELAY_MAX_CHUNKS - 1);
    mpath_relay_class_t slot_class = (mpath_relay_class_t)((entry >> 6) & 3);
    int slot                       = (int)(entry & 63);
    mpath_chunk_t header           = {0};
    mpath_status_t status          = MPATH_ERR_PARAM;

    if ((duty != NULL) && (chunk < duty->num_chunks)) {
        header.hop = (uint32_t)duty->hop_in;
        mpath_duty_chunk(duty, chunk, &header.offset, &header.bytes);
        status = mpath_schedule_accept(relay->bound.schedule, duty, &header);
    }
    if ((status != MPATH_OK) || ((slot_class != MPATH_RELAY_ON_HOST) && (duty->hop_out == MPATH_DUTY_NO_HOP))) {
        mpath_error("rank %d: chunk %u of flow %u from rank %d is not one that is still to come in call %llu on device "
                    "memory; the call fails",
                    relay->me, chunk, (unsigned)(entry >> 32), relay->room.members[producer],
                    (unsigned long long)relay->number);
        return MPATH_ERR_INTERNAL;
    }
    return (slot_class == MPATH_RELAY_ON_HOST) ? fetch(relay, duty, chunk, producer, slot)
                                               : mpath_relay_queue(relay, duty, chunk, slot_class, slot, -1);
}

int mpath_relay_take_arrivals(mpath_relay_t *relay)
{
    int events = 0;

    for (int producer = 0; producer < relay->room.num_members; producer++) {
        mpath_relay_ring_t *ring = mpath_relay_ring(&relay->room, relay->room.my_member, producer);
        uint64_t entry;

        while (mpath_relay_ring_get(ring, &entry)) {
            mpath_status_t status = arrive(relay, producer, entry);

            if (status != MPATH_OK) {
                return (int)status;
            }
            events++;
        }
    }
    return events;
}

/* -- departures -- */

/* Where the bytes of a chunk lie here. */
static mpath_device_ptr_t source_of(const mpath_relay_t *relay, const mpath_duty_t *duty, const relay_item_t *item,
                                    uint64_t offset)
{
    if (item != NULL) {
        return mpath_relay_slot_at(relay->pool, relay, item->slot_class, item->slot);
    }
    return (mpath_device_ptr_t)(uintptr_t)relay->call->send_buffer + relay->call->send_offsets[duty->destination] +
           offset;
}

/* Where in the destination's receive buffer they go, as this process addresses it. */
static mpath_device_ptr_t final_of(const mpath_relay_t *relay, const mpath_duty_t *duty, uint64_t offset)
{
    const mpath_relay_cell_t *cell = mpath_relay_cell(&relay->room, relay->half, duty->destination);
    const uint64_t *offsets        = mpath_relay_offsets(&relay->room, relay->half, duty->destination);

    return mpath_import_address(relay->buffers[duty->destination], cell->address + offsets[duty->source] + offset);
}

/* What the copy of a hop does, and the class of the slot that it needs. */
static relay_step_t step_of(const mpath_relay_t *relay, const mpath_duty_t *duty, mpath_relay_class_t *class_p)
{
    switch (relay->bound.schedule->outlets[duty->outlet].kind) {
    case MPATH_OUTLET_RAIL:
        *class_p = MPATH_RELAY_TO_LAST;
        if (!relay->by_copies) {
            return RELAY_TO_WIRE;
        }
        return (duty->out.to == duty->destination) ? RELAY_TO_FINAL : RELAY_TO_SLOT;
    case MPATH_OUTLET_RELAY:
        *class_p = MPATH_RELAY_TO_RAIL;
        return RELAY_TO_SLOT;
    case MPATH_OUTLET_PASS:
        *class_p = MPATH_RELAY_TO_LAST;
        return RELAY_TO_SLOT;
    case MPATH_OUTLET_STAGED:
        *class_p = MPATH_RELAY_ON_HOST;
        return RELAY_TO_HOST;
    default:
        *class_p = MPATH_RELAY_TO_LAST;
        return RELAY_TO_FINAL;
    }
}

/* The gate of the slot that the op needs. */
static mpath_relay_gate_t *gate_of(const mpath_relay_t *relay, const relay_op_t *op)
{
    int rank = (op->step == RELAY_TO_HOST) ? relay->me : op->duty->out.to;

    return &relay->room.gates[relay->room.member_of[rank]];
}

/* Gets the slot that the op needs. A NIC that is busy with its owner's bytes is lent by one slot at a time. */
static mpath_status_t take_slot(mpath_relay_t *relay, relay_op_t *op)
{
    mpath_relay_gate_t *gate = gate_of(relay, op);
    int slots                = (op->step == RELAY_TO_HOST) ? mpath_relay_host_slots(relay) : relay->bound.slots;
    int yields               = mpath_relay_yields(relay, op);

    if (op->step == RELAY_TO_WIRE) {
        op->to_slot = mpath_relay_rails_slot(relay, op, yields);
    } else {
        op->to_slot = mpath_relay_slot_take(gate, op->to_class, yields ? 1 : slots);
    }
    if (yields && (op->to_slot == RELAY_NO_SLOT)) {
        *((op->duty->out.lane == MPATH_LANE_RAIL) ? &relay->stats.receive_yields : &relay->stats.yields) += 1;
    }
    return (op->to_slot == RELAY_NO_SLOT) ? MPATH_NO_RESOURCE : MPATH_OK;
}

static void give_slot(mpath_relay_t *relay, const relay_op_t *op)
{
    if (op->to_slot == RELAY_NO_SLOT) {
        return;
    }
    if (op->step == RELAY_TO_WIRE) {
        mpath_relay_rails_give(relay, op->duty, op->to_slot);
    } else {
        mpath_relay_slot_give(gate_of(relay, op), op->to_class, op->to_slot);
    }
}

/* Where the op's bytes go, and the stream for it: a GPU's copies to different mates run beside one another. */
static mpath_device_ptr_t target_of(const mpath_relay_t *relay, const relay_op_t *op, uint64_t offset,
                                    unsigned *stream_p)
{
    int to = op->duty->out.to;

    *stream_p = MPATH_GPU_STREAMS_DIRECT + (unsigned)to % STREAMS_TO_MATES;
    switch (op->step) {
    case RELAY_TO_FINAL:
        return final_of(relay, op->duty, offset);
    case RELAY_TO_SLOT:
        return mpath_relay_slot_at(
            mpath_import_address(relay->pools[to], relay->room.pools[relay->room.member_of[to]].base), relay,
            op->to_class, op->to_slot);
    case RELAY_TO_WIRE:
        *stream_p = STREAM_TO_HOST;
        return mpath_relay_rails_address(relay, op->duty, op->to_slot);
    default:
        *stream_p = STREAM_TO_HOST;
        return mpath_relay_host_slot(relay, relay->room.my_member, op->to_slot);
    }
}

mpath_status_t mpath_relay_hand(mpath_relay_t *relay, mpath_duty_t *duty, uint32_t chunk, const relay_item_t *item)
{
    relay_op_t op            = {.duty       = duty,
                                .chunk      = chunk,
                                .outlet     = duty->outlet,
                                .from_class = (item != NULL) ? item->slot_class : MPATH_RELAY_TO_LAST,
                                .from_slot  = (item != NULL) ? item->slot : RELAY_NO_SLOT,
                                .to_slot    = RELAY_NO_SLOT};
    relay_outlet_t *outlet   = &relay->bound.outlets[duty->outlet];
    const mpath_path_t *path = &relay->bound.paths[duty - relay->bound.schedule->duties];
    mpath_status_t status    = MPATH_OK;
    mpath_device_ptr_t target;
    uint64_t offset, when_ns = 0;
    unsigned stream;

    mpath_duty_chunk(duty, chunk, &offset, &op.bytes);
    op.step = step_of(relay, duty, &op.to_class);
    if (op.step != RELAY_TO_FINAL) {
        status          = take_slot(relay, &op);
        outlet->blocked = (op.step == RELAY_TO_WIRE) ? "room at the other end of the rail" : "a slot";
    }
    if ((status == MPATH_OK) && (relay->pace != NULL)) {
        status = mpath_pace_take(relay->pace, path, duty->hop_out, op.bytes, mpath_time_ns(), PACE_AHEAD_NS, &when_ns);
        outlet->blocked = "its emulated port";
        op.arrives_ns   = when_ns;
        if (status != MPATH_OK) {
            give_slot(relay, &op);
        }
    }
    if (status != MPATH_OK) {
        return status;
    }
    outlet->blocked = NULL;
    if ((op.step == RELAY_TO_WIRE) && mpath_relay_rails_in_place(&op)) {
        return note(relay, &op);
    }
    target = target_of(relay, &op, offset, &stream);
    return mpath_relay_launch(relay, stream, target, source_of(relay, duty, item, offset), &op);
}

/* -- ends -- */

/* Tells who has the chunk now. */
static void tell(mpath_relay_t *relay, const relay_op_t *op)
{
    mpath_relay_ring_t *ring = mpath_relay_ring(&relay->room, relay->room.member_of[op->duty->out.to],
                                                relay->room.my_member);

    if (op->step == RELAY_TO_FINAL) {
        atomic_fetch_add_explicit(&ring->landed_bytes, op->bytes, memory_order_release);
    } else {
        mpath_relay_ring_put(ring, mpath_relay_entry(op->duty->flow, op->chunk, op->to_class, op->to_slot));
    }
}

/* The bytes have left this rank: its slot is free, or its send buffer no longer read. */
void mpath_relay_left(mpath_relay_t *relay, mpath_duty_t *duty, uint32_t bytes)
{
    duty->done_bytes += bytes;
    if (duty->hop_in == MPATH_DUTY_NO_HOP) {
        relay->send_left -= bytes;
        relay->stats.sent_bytes += bytes;
    } else {
        relay->forward_left -= bytes;
        relay->stats.forwarded_bytes += bytes;
    }
    relay->stats.rail_bytes += (duty->out.lane == MPATH_LANE_RAIL) ? bytes : 0;
    relay->stats.staged_bytes += (duty->out.lane == MPATH_LANE_STAGED) ? bytes : 0;
}

static mpath_status_t op_end(mpath_relay_t *relay, const relay_op_t *op)
{
    mpath_relay_gate_t *mine = &relay->room.gates[relay->room.my_member];

    switch (op->step) {
    case RELAY_FETCH:
        op->duty->done_bytes += op->bytes;
        relay->fetch_left -= op->bytes;
        mpath_relay_slot_give(&relay->room.gates[op->from_owner], MPATH_RELAY_ON_HOST, op->from_slot);
        return MPATH_OK;
    case RELAY_FROM_WIRE:
        return mpath_relay_rails_taken(relay, op);
    case RELAY_TO_WIRE:
        relay->bound.outlets[op->outlet].in_flight--;
        if ((op->from_slot != RELAY_NO_SLOT) && !mpath_relay_rails_in_place(op)) {
            mpath_relay_slot_give(mine, op->from_class, op->from_slot);
        }
        return mpath_relay_rails_send(relay, op);
    default:
        relay->bound.outlets[op->outlet].in_flight--;
        tell(relay, op);
        if (op->from_slot != RELAY_NO_SLOT) {
            mpath_relay_slot_give(mine, op->from_class, op->from_slot);
        }
        mpath_relay_left(relay, op->duty, op->bytes);
        return MPATH_OK;
    }
}

/* MPATH_OK when the copy is complete and, where ports are emulated, they have carried it. */
static mpath_status_t op_status(relay_op_t *op, uint64_t now_ns)
{
    mpath_status_t status = (op->stream == NULL) ? MPATH_OK : mpath_stream_done(op->stream, op->mark);

    if (status == MPATH_OK) {
        op->stream = NULL;
        status     = (op->arrives_ns <= now_ns) ? MPATH_OK : MPATH_INPROGRESS;
    }
    return status;
}

int mpath_relay_finish_ops(mpath_relay_t *relay)
{
    uint64_t now_ns = (relay->pace != NULL) ? mpath_time_ns() : 0;
    relay_op_t **at = &relay->under_way;
    int events      = 0;

    while (*at != NULL) {
        relay_op_t *op = *at;
        mpath_status_t status;

        mpath_relay_lock();
        status = op_status(op, now_ns);
        mpath_relay_unlock();
        if (status == MPATH_INPROGRESS) {
            at = &op->next;
            continue;
        }
        if (status == MPATH_OK) {
            *at                     = op->next;
            relay->under_way_last_p = (op->next == NULL) ? at : relay->under_way_last_p;
            if (op->began_ns > 0) {
                mpath_record_trace_gpu(mpath_team_record(relay->team), mpath_team_call(relay->team),
                                       MPATH_TRACE_GPU_ENGINE, op->bytes, op->began_ns);
            }
            status           = op_end(relay, op);
            op->next         = relay->spare_ops;
            relay->spare_ops = op;
        }
        if (status != MPATH_OK) {
            return (int)status;
        }
        events++;
    }
    return events;
}
