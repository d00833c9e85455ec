/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Relay, rails and the host's part. A chunk for a rail is copied to a slot that rails send from (relay_slots.c: pinned
 * host memory, or the GPU's own), sent from NIC to NIC into the slot of the receiver that the sender has a credit for,
 * and copied from there into a slot of the receiver's pool or to its place; copies out, rails and copies in work on
 * different chunks at a time. The credit goes back when the slot is empty. All credits are back at the end of a call:
 * the rails serve other collectives next.
 */
#include "exec/relay_rail.h"

#include "exec/team_private.h"
#include "gpu/direct.h"
#include "util/log.h"

#include <stdlib.h>
#include <string.h>

#define IN_PLACE RELAY_SENDS /* numbers of sending slots from here on: slots of the pool */
#define STREAM_FROM_RAIL (MPATH_GPU_STREAMS - 1)
#define CREDIT_HOP                                                                                                     \
    0x80000000u /* in mpath_chunk_t.hop; else bits 0 to 7 the hop, 8 to 15 the receiver's slot, 16 to 23 the sender's */
#define CREDIT_BUSY 0x40000000u /* of a credit: the NIC that bits 0 to 7 name is busy with its owner's bytes */

/* -- lists -- */

static void list_put(relay_pinned_list_t *list, const relay_pinned_chunk_t *chunk)
{
    list->items[(list->first + list->count++) % list->room] = *chunk;
}

static relay_pinned_chunk_t *list_first(const relay_pinned_list_t *list)
{
    return (list->count > 0) ? &list->items[list->first] : NULL;
}

static void list_drop(relay_pinned_list_t *list)
{
    list->first = (list->first + 1) % list->room;
    list->count--;
}

/* -- callbacks of the wire -- */

static char *receive_slot(const mpath_relay_t *relay, int rank, int slot)
{
    return relay->rails.receives.base +
           (uint64_t)(relay->rails.sender_of[rank] * RELAY_WINDOW + slot) * relay->rails.slot_bytes;
}

static mpath_status_t wire_place(void *argument, const mpath_chunk_t *chunk, void **to_p)
{
    mpath_relay_t *relay     = argument;
    const mpath_duty_t *duty = mpath_schedule_find(relay->bound.schedule, chunk->flow);
    uint32_t slot            = (chunk->hop >> 8) & 0xff;

    if ((chunk->hop & CREDIT_HOP) && (chunk->bytes == sizeof(relay->rails.sink)) &&
        (chunk->flow < (uint32_t)relay->size) && (chunk->offset < RELAY_WINDOW) &&
        ((chunk->hop & 0xff) < MPATH_MAX_NICS)) {
        *to_p = &relay->rails.sink;
        return MPATH_OK;
    }
    if ((chunk->hop & CREDIT_HOP) || (duty == NULL) || (duty->hop_in == MPATH_DUTY_NO_HOP) ||
        (duty->in.lane != MPATH_LANE_RAIL) || (slot >= RELAY_WINDOW) || (chunk->bytes > relay->rails.slot_bytes) ||
        (relay->rails.receives.base == NULL)) {
        mpath_error(
            "rank %d: a chunk of flow %u that this rank does not expect came by a rail in call %llu on device memory; "
            "the call fails",
            relay->me, chunk->flow, (unsigned long long)relay->number);
        return MPATH_ERR_INTERNAL;
    }
    *to_p = receive_slot(relay, duty->in.from, (int)slot);
    return MPATH_OK;
}

static void wire_placed(void *argument, const mpath_chunk_t *chunk)
{
    mpath_relay_t *relay = argument;
    relay_rails_t *rails = &relay->rails;
    mpath_chunk_t header = *chunk;
    mpath_duty_t *duty;

    if (chunk->hop & CREDIT_HOP) {
        rails->credits[chunk->flow] |= 1u << chunk->offset;
        rails->nics_busy[chunk->flow] &= ~(1u << (chunk->hop & 0xff));
        rails->nics_busy[chunk->flow] |= (chunk->hop & CREDIT_BUSY) ? 1u << (chunk->hop & 0xff) : 0;
        return;
    }
    duty       = mpath_schedule_find(relay->bound.schedule, chunk->flow);
    header.hop = chunk->hop & 0xff;
    if (mpath_schedule_accept(relay->bound.schedule, duty, &header) != MPATH_OK) {
        mpath_error("rank %d: a chunk from rank %d came twice, or is cut otherwise than here; the call fails",
                    relay->me, duty->in.from);
        rails->failed = MPATH_ERR_INTERNAL;
        return;
    }
    mpath_rail_clock_came(&relay->clock, duty, chunk->bytes);
    list_put(&rails->landed, &(relay_pinned_chunk_t){.duty  = duty,
                                                     .chunk = mpath_duty_index(duty, chunk->offset),
                                                     .bytes = chunk->bytes,
                                                     .slot  = (int)((chunk->hop >> 8) & 0xff)});
}

/* A slot that rails send from has been read. */
static void free_send(mpath_relay_t *relay, uint32_t send)
{
    if (send >= IN_PLACE) {
        mpath_relay_slot_give(&relay->room.gates[relay->room.my_member], MPATH_RELAY_TO_RAIL, (int)(send - IN_PLACE));
    } else {
        relay->rails.send_free |= 1ull << send;
    }
}

static void wire_sent(void *argument, const mpath_chunk_t *chunk)
{
    mpath_relay_t *relay = argument;
    relay_rails_t *rails = &relay->rails;

    if (chunk->hop & CREDIT_HOP) {
        rails->credits_sent--;
        return;
    }
    free_send(relay, (chunk->hop >> 16) & 0xff);
    mpath_relay_left(relay, mpath_schedule_find(relay->bound.schedule, chunk->flow), chunk->bytes);
}

/* UCX copies memory of the GPU whose context it finds with the thread, which may be none. */
static mpath_status_t enter(void *argument)
{
    const mpath_relay_t *relay = argument;

    return (relay->rails.direct && (relay->gpu != NULL)) ? mpath_gpu_enter(relay->gpu) : MPATH_OK;
}

static void leave(void *argument)
{
    const mpath_relay_t *relay = argument;

    if (relay->rails.direct && (relay->gpu != NULL)) {
        mpath_gpu_leave(relay->gpu);
    }
}

/* -- the call -- */

void mpath_relay_rails_begin(mpath_relay_t *relay)
{
    static const mpath_wire_ops_t ops = {
        .place = wire_place, .placed = wire_placed, .sent = wire_sent, .enter = enter, .leave = leave};

    relay->rails.failed = MPATH_OK;
    relay->rails.active = (relay->rails.wire != NULL) && (relay->bound.schedule->rails != 0);
    if (relay->rails.active) {
        mpath_rail_clock_start(&relay->clock, relay->bound.schedule);
        mpath_wire_begin(relay->rails.wire, &ops, relay, relay->bound.schedule->rails, relay->settles);
    }
}

void mpath_relay_rails_end(mpath_relay_t *relay)
{
    if (relay->rails.active) {
        mpath_wire_end(relay->rails.wire);
        relay->rails.active = 0;
    }
}

/* Slots that are held for chunks of a NIC. */
static unsigned held_by(const uint8_t *nics, uint64_t held, int nic)
{
    unsigned count = 0;

    for (; held != 0; held &= held - 1) {
        count += (nics[__builtin_ctzll(held)] == nic) ? 1 : 0;
    }
    return count;
}

/* Each NIC that this rank sends by has its part of the slots here and there: a slow one would come to hold all. */
static int has_its_part(const mpath_relay_t *relay, const mpath_hop_t *out)
{
    const relay_rails_t *rails = &relay->rails;
    unsigned nics = (unsigned)__builtin_popcount(relay->bound.send_rails), window = (RELAY_WINDOW + nics - 1) / nics;

    return (nics > 1) &&
           ((held_by(rails->credit_nics[out->to], RELAY_ALL_CREDITS & ~rails->credits[out->to], out->nic_from) >=
             window) ||
            (held_by(rails->send_nics, RELAY_ALL_SENDS & ~rails->send_free, out->nic_from) >= 2 * window));
}

int mpath_relay_rails_slot(mpath_relay_t *relay, const relay_op_t *op, int yields)
{
    relay_rails_t *rails   = &relay->rails;
    const mpath_hop_t *out = &op->duty->out;
    unsigned credits       = rails->credits[out->to] & (yields ? 1u : RELAY_ALL_CREDITS);
    int in_place = rails->knows_pool && (op->from_slot != RELAY_NO_SLOT) && (op->from_class == MPATH_RELAY_TO_RAIL);
    int send, receive;

    if ((!in_place && (rails->send_free == 0)) || (credits == 0) || has_its_part(relay, out)) {
        return RELAY_NO_SLOT;
    }
    receive = __builtin_ctz(credits);
    if (in_place) {
        send = (int)IN_PLACE + op->from_slot;
    } else {
        send = __builtin_ctzll(rails->send_free);
        rails->send_free &= ~(1ull << send);
        rails->send_nics[send] = (uint8_t)out->nic_from;
    }
    rails->credits[out->to] &= ~(1u << receive);
    rails->credit_nics[out->to][receive] = (uint8_t)out->nic_from;
    return (send << 8) | receive;
}

int mpath_relay_rails_in_place(const relay_op_t *op)
{
    return (op->to_slot >> 8) >= (int)IN_PLACE;
}

void mpath_relay_rails_give(mpath_relay_t *relay, const mpath_duty_t *duty, int slot)
{
    relay->rails.send_free |= ((slot >> 8) < (int)IN_PLACE) ? 1ull << (slot >> 8) : 0;
    relay->rails.credits[duty->out.to] |= 1u << (slot & 0xff);
}

mpath_cu_ptr_t mpath_relay_rails_address(const mpath_relay_t *relay, const mpath_duty_t *duty, int slot)
{
    (void)duty;
    return relay->rails.sends.device_base + (uint64_t)(slot >> 8) * relay->rails.slot_bytes;
}

mpath_status_t mpath_relay_rails_send(mpath_relay_t *relay, const relay_op_t *op)
{
    list_put(&relay->rails.ready,
             &(relay_pinned_chunk_t){.duty = op->duty, .chunk = op->chunk, .bytes = op->bytes, .slot = op->to_slot});
    return MPATH_OK;
}

static const void *send_address(const mpath_relay_t *relay, uint32_t send)
{
    if (send >= IN_PLACE) {
        return (const void *)(uintptr_t)mpath_relay_slot_at(relay->pool, relay, MPATH_RELAY_TO_RAIL,
                                                            (int)(send - IN_PLACE));
    }
    return relay->rails.sends.base + send * relay->rails.slot_bytes;
}

static mpath_status_t send_chunk(mpath_relay_t *relay, const relay_pinned_chunk_t *ready)
{
    const mpath_duty_t *duty = ready->duty;
    uint32_t send = (uint32_t)ready->slot >> 8, receive = (uint32_t)ready->slot & 0xff;
    mpath_chunk_t chunk = {.call = (uint32_t)relay->number,
                           .flow = duty->flow,
                           .hop  = (uint32_t)duty->hop_out | (receive << 8) | (send << 16)};

    mpath_duty_chunk(duty, ready->chunk, &chunk.offset, &chunk.bytes);
    return mpath_wire_send(relay->rails.wire, duty->out.nic_from, duty->out.to, duty->out.nic_to, &chunk,
                           send_address(relay, send));
}

/* Chunks that are in their slots, to the NICs. Those of a NIC without room wait behind the others, in their order. */
static mpath_status_t send_ready(mpath_relay_t *relay, int *events_p)
{
    relay_pinned_list_t *ready = &relay->rails.ready;
    uint32_t full              = 0;

    for (uint32_t left = ready->count; left > 0; left--) {
        relay_pinned_chunk_t chunk = *list_first(ready);
        uint32_t nic               = 1u << chunk.duty->out.nic_from;
        mpath_status_t status;

        list_drop(ready);
        status = (full & nic) ? MPATH_NO_RESOURCE : send_chunk(relay, &chunk);
        if (status == MPATH_NO_RESOURCE) {
            full |= nic;
            list_put(ready, &chunk);
        } else if (status != MPATH_OK) {
            return status;
        } else {
            *events_p += 1;
        }
    }
    return MPATH_OK;
}

static mpath_status_t send_credits(mpath_relay_t *relay, int *events_p)
{
    relay_rails_t *rails = &relay->rails;
    relay_pinned_chunk_t *owed;

    while ((owed = list_first(&rails->owed)) != NULL) {
        const mpath_hop_t *in = &owed->duty->in;
        uint32_t busy = atomic_load_explicit(&relay->room.gates[relay->room.my_member].nics_busy, memory_order_relaxed);
        mpath_chunk_t chunk = {.call   = (uint32_t)relay->number,
                               .flow   = (uint32_t)relay->me,
                               .offset = (uint64_t)owed->slot,
                               .bytes  = sizeof(rails->credit),
                               .hop    = CREDIT_HOP | (uint32_t)in->nic_to |
                                      (((busy >> in->nic_to) & 1) ? CREDIT_BUSY : 0)};
        mpath_status_t status;

        rails->credits_sent++; /* `sent` may be called inside */
        status = mpath_wire_send(rails->wire, in->nic_to, in->from, in->nic_from, &chunk, &rails->credit);
        if (status != MPATH_OK) {
            rails->credits_sent--;
            return (status == MPATH_NO_RESOURCE) ? MPATH_OK : status;
        }
        list_drop(&rails->owed);
        *events_p += 1;
    }
    return MPATH_OK;
}

/* What NICs have written into this rank's GPU, before copies read it. */
static mpath_status_t flush(const mpath_relay_t *relay)
{
    return (relay->rails.needs_flush && (relay->rails.landed.count > 0)) ? mpath_gpu_flush_writes(relay->gpu)
                                                                         : MPATH_OK;
}

/* Chunks that rails have brought: to their place, or into a slot of the pool when there is one. */
static mpath_status_t take_landed(mpath_relay_t *relay, int *events_p)
{
    relay_rails_t *rails     = &relay->rails;
    mpath_relay_gate_t *gate = &relay->room.gates[relay->room.my_member];
    relay_pinned_chunk_t *landed;
    mpath_status_t flushed = flush(relay);

    if (flushed != MPATH_OK) {
        return flushed;
    }
    while ((landed = list_first(&rails->landed)) != NULL) {
        mpath_duty_t *duty = landed->duty;
        relay_op_t op      = {.step      = RELAY_FROM_WIRE,
                              .duty      = duty,
                              .chunk     = landed->chunk,
                              .bytes     = landed->bytes,
                              .from_slot = landed->slot,
                              .to_class  = MPATH_RELAY_TO_LAST,
                              .to_slot   = RELAY_NO_SLOT};
        size_t from        = (size_t)(receive_slot(relay, duty->in.from, landed->slot) - rails->receives.base);
        mpath_cu_ptr_t to;
        mpath_status_t status;
        uint64_t offset;
        uint32_t bytes;

        mpath_duty_chunk(duty, landed->chunk, &offset, &bytes);
        if (duty->hop_out == MPATH_DUTY_NO_HOP) {
            to = (mpath_cu_ptr_t)(uintptr_t)relay->call->recv_buffer + relay->call->recv_offsets[duty->source] + offset;
        } else {
            op.to_slot = mpath_relay_slot_take(gate, op.to_class, relay->bound.slots);
            if (op.to_slot == RELAY_NO_SLOT) {
                return MPATH_OK;
            }
            to = mpath_relay_slot_at(relay->pool, relay, op.to_class, op.to_slot);
        }
        list_drop(&rails->landed);
        status = mpath_relay_launch(relay, STREAM_FROM_RAIL, to, rails->receives.device_base + from, &op);
        if (status != MPATH_OK) {
            return status;
        }
        *events_p += 1;
    }
    return MPATH_OK;
}

mpath_status_t mpath_relay_rails_taken(mpath_relay_t *relay, const relay_op_t *op)
{
    list_put(&relay->rails.owed,
             &(relay_pinned_chunk_t){.duty = op->duty, .chunk = op->chunk, .bytes = op->bytes, .slot = op->from_slot});
    if (op->to_slot != RELAY_NO_SLOT) {
        return mpath_relay_queue(relay, op->duty, op->chunk, op->to_class, op->to_slot, -1);
    }
    op->duty->done_bytes += op->bytes;
    relay->fetch_left -= op->bytes;
    return MPATH_OK;
}

int mpath_relay_rails_progress(mpath_relay_t *relay)
{
    relay_rails_t *rails = &relay->rails;
    mpath_status_t status;
    int events = 0, result;

    if (!rails->active) {
        return 0;
    }
    status = enter(relay);
    if (status != MPATH_OK) {
        return (int)status;
    }
    result = mpath_wire_progress(rails->wire);
    status = (result < 0) ? (mpath_status_t)result : rails->failed;
    events = result;
    if (status == MPATH_OK) {
        status = send_ready(relay, &events);
    }
    if (status == MPATH_OK) {
        status = take_landed(relay, &events);
    }
    if (status == MPATH_OK) {
        status = send_credits(relay, &events);
    }
    leave(relay);
    return (status == MPATH_OK) ? events : (int)status;
}

int mpath_relay_rails_idle(const mpath_relay_t *relay)
{
    const relay_rails_t *rails = &relay->rails;
    int idle                   = 1;

    if (!rails->active) {
        return 1;
    }
    for (int rank = 0; rank < relay->size; rank++) {
        idle = idle && (rails->credits[rank] == RELAY_ALL_CREDITS);
    }
    return idle && (rails->ready.count == 0) && (rails->landed.count == 0) && (rails->owed.count == 0) &&
           (rails->credits_sent == 0);
}

int mpath_relay_rails_owe(const mpath_relay_t *relay, const mpath_duty_t *duty)
{
    return relay->rails.active && (duty->hop_out != MPATH_DUTY_NO_HOP) && (duty->out.lane == MPATH_LANE_RAIL) &&
           (relay->rails.credits[duty->out.to] != RELAY_ALL_CREDITS);
}

const char *mpath_relay_rails_name(const mpath_relay_t *relay, int nic)
{
    return mpath_topo_machine(relay->team->topo, relay->team->node)->nics[nic].name;
}

void mpath_relay_rails_stop(mpath_relay_t *relay)
{
    if (relay->rails.active) {
        mpath_wire_stop(relay->rails.wire);
    }
}

void mpath_relay_rails_abandon(mpath_relay_t *relay)
{
    if (relay->rails.active) {
        mpath_wire_abandon(relay->rails.wire);
    }
}

uint32_t mpath_relay_rails_lost(const mpath_relay_t *relay)
{
    return relay->rails.active ? mpath_wire_lost(relay->rails.wire) : 0;
}

static void list_clear(relay_pinned_list_t *list)
{
    list->first = list->count = 0;
}

mpath_status_t mpath_relay_rails_restart(mpath_relay_t *relay)
{
    relay_rails_t *rails = &relay->rails;

    rails->send_free = RELAY_ALL_SENDS;
    for (int rank = 0; rank < relay->size; rank++) {
        rails->credits[rank] = RELAY_ALL_CREDITS;
    }
    memset(rails->nics_busy, 0, sizeof(rails->nics_busy));
    list_clear(&rails->ready);
    list_clear(&rails->landed);
    list_clear(&rails->owed);
    rails->credits_sent = 0;
    rails->failed       = MPATH_OK;
    return mpath_wire_restart(rails->wire);
}
