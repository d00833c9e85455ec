/* SPDX-License-Identifier: BSD-3-Clause */
/* Lane "staged": what both forms share. */
#include "node/staged_private.h"

#include <stdlib.h>
#include <string.h>

static int may_send(mpath_staged_t *lane);
static int staged_hosts_progress(mpath_staged_t *lane);
static void staged_hosts_abandon(mpath_staged_t *lane, uint64_t timeout_ns);

#define STAGED_MAX_SLOTS 8u
#define STAGED_MAX_SLOT_BYTES (4u << 20)
#define STAGED_PIPELINE 8u            /* chunks that a message is cut into when slots are larger */
#define STAGED_END_BYTES (256u << 10) /* of the first and the last ones with two streams */

static size_t slot_headers_bytes(const mpath_staged_shape_t *shape)
{
    return (size_t)shape->num_ranks * shape->slots * sizeof(staged_slot_t);
}

static size_t headers_bytes(const mpath_staged_shape_t *shape)
{
    size_t pairs = (size_t)shape->num_ranks * (size_t)shape->num_ranks;
    size_t bytes = sizeof(staged_head_t) + slot_headers_bytes(shape) + pairs * sizeof(staged_pair_t);

    return (bytes + STAGED_PAGE - 1) & ~(size_t)(STAGED_PAGE - 1);
}

void mpath_staged_shape_choose(int num_ranks, uint64_t memory_bytes, mpath_staged_shape_t *shape)
{
    shape->num_ranks  = num_ranks;
    shape->slots      = STAGED_MAX_SLOTS;
    shape->slot_bytes = STAGED_MAX_SLOT_BYTES;
    while ((shape->slot_bytes > STAGED_MIN_SLOT_BYTES) && ((uint64_t)shape->slots * shape->slot_bytes > memory_bytes)) {
        shape->slot_bytes /= 2;
    }
    while ((shape->slots > 2) && ((uint64_t)shape->slots * shape->slot_bytes > memory_bytes)) {
        shape->slots--;
    }
}

size_t mpath_staged_region_bytes(const mpath_staged_shape_t *shape)
{
    return headers_bytes(shape) + (size_t)shape->num_ranks * shape->slots * shape->slot_bytes;
}

mpath_status_t mpath_staged_open(void *region, const mpath_staged_shape_t *shape, int my_rank, mpath_staged_t **lane_p)
{
    mpath_staged_t *lane = calloc(1, sizeof(*lane));
    size_t ranks         = (size_t)shape->num_ranks;

    if (lane == NULL) {
        goto err_no_memory;
    }
    lane->shape      = *shape;
    lane->me         = my_rank;
    lane->head       = region;
    lane->slots      = (staged_slot_t *)(void *)(lane->head + 1);
    lane->pairs      = (staged_pair_t *)(void *)((char *)lane->slots + slot_headers_bytes(shape));
    lane->data       = (char *)region + headers_bytes(shape);
    lane->sent       = calloc(2 * ranks, sizeof(*lane->sent));
    lane->filling    = calloc(shape->slots, sizeof(*lane->filling));
    lane->emptying   = calloc(ranks * shape->slots, sizeof(*lane->emptying));
    lane->by_streams = calloc(ranks, sizeof(*lane->by_streams));
    lane->out        = calloc(2 * ranks, sizeof(*lane->out));
    if ((lane->sent == NULL) || (lane->filling == NULL) || (lane->emptying == NULL) || (lane->by_streams == NULL) ||
        (lane->out == NULL)) {
        mpath_staged_close(lane);
        goto err_no_memory;
    }
    lane->received = lane->sent + ranks;
    lane->in       = lane->out + ranks;
    *lane_p        = lane;
    return MPATH_OK;

err_no_memory:
    mpath_error("no memory for staged copies between %d ranks; the call fails", shape->num_ranks);
    return MPATH_ERR_NO_MEMORY;
}

void mpath_staged_close(mpath_staged_t *lane)
{
    if (lane != NULL) {
        free(lane->sent);
        free(lane->filling);
        free(lane->emptying);
        free(lane->by_streams);
        free(lane->out);
        free(lane);
    }
}

void mpath_staged_begin(mpath_staged_t *lane, uint64_t call, const mpath_staged_side_t *send,
                        const mpath_staged_side_t *receive, const mpath_staged_guard_t *guard)
{
    lane->call         = call;
    lane->send         = *send;
    lane->receive      = *receive;
    lane->guard        = *guard;
    lane->send_left    = 0;
    lane->receive_left = 0;
    lane->may_send     = 0;
    lane->next_to      = (lane->me + 1) % lane->shape.num_ranks;
    for (int rank = 0; rank < lane->shape.num_ranks; rank++) {
        lane->sent[rank]     = 0;
        lane->received[rank] = 0;
        lane->send_left += send->messages[rank].bytes;
        lane->receive_left += receive->messages[rank].bytes;
    }
    mpath_staged_streams_begin(lane);
}

/*
 * With two streams chunks begin and end short: until the first one is in its slot nothing leaves the host, and while
 * the last one leaves nothing else is under way. Those between are as long as slots.
 */
uint64_t mpath_staged_chunk(uint64_t all, uint64_t at, uint64_t slot_bytes, int short_ends)
{
    uint64_t left = all - at, chunk;

    if (short_ends) {
        chunk = (at < left / 2) ? at : left / 2;
        chunk = (chunk < STAGED_END_BYTES) ? STAGED_END_BYTES : chunk;
    } else {
        chunk = all / STAGED_PIPELINE;
        chunk = (chunk < STAGED_MIN_SLOT_BYTES) ? STAGED_MIN_SLOT_BYTES : chunk;
    }
    chunk = (chunk > slot_bytes) ? slot_bytes : chunk & ~63ull;
    return (chunk < left) ? chunk : left;
}

void mpath_staged_note_sent(mpath_staged_t *lane, uint64_t bytes)
{
    lane->send_left -= bytes;
    lane->sent_bytes += bytes;
}

mpath_status_t mpath_staged_note_received(mpath_staged_t *lane, int from, uint64_t offset, uint64_t bytes)
{
    const mpath_staged_side_t *side = &lane->receive;

    lane->received[from] += bytes;
    lane->receive_left -= bytes;
    return (side->arrived != NULL) ? side->arrived(side->owner, from, offset, bytes) : MPATH_OK;
}

/*
 * A call divides the slots anew. All ranks have mostly ended the call before when they agree on the next one; where they
 * have not, what they have yet to take stays.
 */
static int may_send(mpath_staged_t *lane)
{
    const staged_slot_t *mine = &lane->slots[(size_t)lane->me * lane->shape.slots];
    int all                   = mpath_staged_streams_have_left(lane);

    for (uint32_t number = 0; all && (number < lane->shape.slots); number++) {
        all = atomic_load_explicit(&mine[number].full_for, memory_order_acquire) == SLOT_FREE;
    }
    return all;
}

int mpath_staged_progress(mpath_staged_t *lane)
{
    int by_hosts, by_streams;

    if (!lane->may_send && (lane->send_left > 0)) {
        lane->may_send = may_send(lane);
    }
    by_hosts = staged_hosts_progress(lane);
    if (by_hosts < 0) {
        return by_hosts;
    }
    by_streams = mpath_staged_streams_progress(lane);
    return (by_streams < 0) ? by_streams : by_hosts + by_streams;
}

int mpath_staged_is_finished(const mpath_staged_t *lane)
{
    return (lane->send_left | lane->receive_left) == 0;
}

int mpath_staged_waits_for(const mpath_staged_t *lane, uint64_t *bytes_p)
{
    for (int from = 0; from < lane->shape.num_ranks; from++) {
        if (lane->received[from] < lane->receive.messages[from].bytes) {
            *bytes_p = lane->receive.messages[from].bytes - lane->received[from];
            return from;
        }
    }
    return -1;
}

int mpath_staged_waits_to_send(const mpath_staged_t *lane, uint64_t *bytes_p)
{
    for (int to = 0; to < lane->shape.num_ranks; to++) {
        uint64_t sent = lane->by_streams[to] ? lane->out[to].done_bytes : lane->sent[to];

        if (sent < lane->send.messages[to].bytes) {
            *bytes_p = lane->send.messages[to].bytes - sent;
            return to;
        }
    }
    return -1;
}

int mpath_staged_needs(const mpath_staged_t *lane, int rank)
{
    int sends = !lane->by_streams[rank] && (lane->sent[rank] < lane->send.messages[rank].bytes);
    int comes = !staged_comes_by_streams(lane, rank) && (lane->received[rank] < lane->receive.messages[rank].bytes);

    return sends || comes || mpath_staged_streams_need(lane, rank);
}

void mpath_staged_abandon(mpath_staged_t *lane, uint64_t timeout_ns)
{
    mpath_staged_streams_abandon(lane, timeout_ns);
    staged_hosts_abandon(lane, timeout_ns);
    lane->send_left    = 0;
    lane->receive_left = 0;
}

uint64_t mpath_staged_sent_bytes(const mpath_staged_t *lane)
{
    return lane->sent_bytes;
}

/* Lane "staged", by hosts: fills own slots, empties those of others that are for this rank. */

static size_t slot_index(const mpath_staged_t *lane, int owner, uint32_t slot)
{
    return (size_t)owner * lane->shape.slots + slot;
}

/* Never SLOT_FREE. */
static uint64_t slot_tag(const mpath_staged_t *lane, int to)
{
    return lane->call * (uint64_t)lane->shape.num_ranks + (uint64_t)to + 1;
}

static char *slot_data(const mpath_staged_t *lane, size_t index)
{
    return lane->data + index * lane->shape.slot_bytes;
}

/* Under the lock. */
static mpath_status_t enqueue(mpath_device_ptr_t target, mpath_device_ptr_t source, uint64_t bytes, staged_copy_t *copy)
{
    mpath_status_t status = mpath_stream_enter(copy->stream);

    if (status != MPATH_OK) {
        return status;
    }
    status = mpath_stream_copy(copy->stream, target, source, (size_t)bytes);
    if (status == MPATH_OK) {
        status = mpath_stream_mark(copy->stream, &copy->mark);
    }
    mpath_stream_leave(copy->stream);
    return status;
}

/* Copies from memory of a side to a slot, or back; with a stream the copy goes on when this returns. */
static mpath_status_t copy_start(mpath_staged_t *lane, const mpath_staged_side_t *side, size_t index, char *memory,
                                 int to_slot, staged_copy_t *copy)
{
    mpath_device_ptr_t slot_device, device = (mpath_device_ptr_t)(uintptr_t)memory;
    const staged_slot_t *slot = &lane->slots[index];
    char *data                = slot_data(lane, index);
    mpath_status_t status;

    if (side->stream == NULL) {
        memcpy(to_slot ? data : memory, to_slot ? memory : data, (size_t)slot->bytes);
        return MPATH_OK;
    }
    slot_device  = mpath_pinned_device(side->pinned, data);
    copy->stream = staged_stream(lane, side, to_slot);
    pthread_mutex_lock(lane->guard.lock);
    status = enqueue(to_slot ? slot_device : device, to_slot ? device : slot_device, slot->bytes, copy);
    pthread_mutex_unlock(lane->guard.lock);
    if (status == MPATH_OK) {
        copy->active = 1;
        lane->copies++;
    }
    return status;
}

/* MPATH_OK when it has ended, which takes it off the list. */
static mpath_status_t copy_test(mpath_staged_t *lane, staged_copy_t *copy)
{
    mpath_status_t status;

    pthread_mutex_lock(lane->guard.lock);
    status = mpath_stream_done(copy->stream, copy->mark);
    pthread_mutex_unlock(lane->guard.lock);
    if (status == MPATH_OK) {
        copy->active = 0;
        lane->copies--;
    }
    return status;
}

static void publish(mpath_staged_t *lane, uint32_t number)
{
    staged_slot_t *slot = &lane->slots[slot_index(lane, lane->me, number)];

    mpath_staged_note_sent(lane, slot->bytes);
    atomic_store_explicit(&slot->full_for, slot_tag(lane, lane->filling[number].to), memory_order_release);
}

/* The next receiver that has bytes left to be put into slots; -1: none. */
static int next_receiver(mpath_staged_t *lane)
{
    int n = lane->shape.num_ranks;

    for (int i = 0; i < n; i++) {
        int to = (lane->next_to + i) % n;

        if (!lane->by_streams[to] && (lane->sent[to] < lane->send.messages[to].bytes)) {
            lane->next_to = (to + 1) % n;
            return to;
        }
    }
    return -1;
}

static int fill(mpath_staged_t *lane, uint32_t number, int to)
{
    size_t index        = slot_index(lane, lane->me, number);
    staged_slot_t *slot = &lane->slots[index];
    staged_copy_t *copy = &lane->filling[number];
    mpath_status_t status;

    copy->to     = to;
    slot->offset = lane->sent[to];
    slot->bytes  = mpath_staged_chunk(lane->send.messages[to].bytes, slot->offset, lane->shape.slot_bytes,
                                      lane->send.second != NULL);
    lane->sent[to] += slot->bytes;
    status = copy_start(lane, &lane->send, index, lane->send.messages[to].address + slot->offset, 1, copy);
    if (status != MPATH_OK) {
        return (int)status;
    }
    if (!copy->active) {
        publish(lane, number);
    }
    return 1;
}

/* Starts one copy at most: what has come is looked at between two of them. */
static int progress_send(mpath_staged_t *lane)
{
    int events = 0, started = 0;

    if (!lane->may_send || (lane->send_left == 0)) {
        return 0;
    }
    for (uint32_t number = 0; number < lane->host_slots; number++) {
        staged_slot_t *slot = &lane->slots[slot_index(lane, lane->me, number)];
        mpath_status_t status;
        int to, result;

        if (lane->filling[number].active) {
            status = copy_test(lane, &lane->filling[number]);
            if (mpath_status_is_error(status)) {
                return (int)status;
            }
            if (status == MPATH_OK) {
                publish(lane, number);
                events++;
            }
        } else if (!started && (atomic_load_explicit(&slot->full_for, memory_order_acquire) == SLOT_FREE) &&
                   ((to = next_receiver(lane)) >= 0)) {
            result = fill(lane, number, to);
            if (result < 0) {
                return result;
            }
            started = 1;
            events += result;
        }
    }
    return events;
}

/* A chunk is in its place. */
static mpath_status_t set_free(mpath_staged_t *lane, int from, staged_slot_t *slot)
{
    uint64_t offset = slot->offset, bytes = slot->bytes;

    atomic_store_explicit(&slot->full_for, SLOT_FREE, memory_order_release);
    return mpath_staged_note_received(lane, from, offset, bytes);
}

/* Starts to empty a full slot, or looks whether it is empty. */
static int empty(mpath_staged_t *lane, int from, uint32_t number)
{
    size_t index        = slot_index(lane, from, number);
    staged_slot_t *slot = &lane->slots[index];
    staged_copy_t *copy = &lane->emptying[index];
    mpath_status_t status;

    if (copy->active) {
        status = copy_test(lane, copy);
        if (status == MPATH_OK) {
            status = set_free(lane, from, slot);
        }
        return (status == MPATH_OK) ? 1 : (status == MPATH_INPROGRESS) ? 0 : (int)status;
    }
    if (atomic_load_explicit(&slot->full_for, memory_order_acquire) != slot_tag(lane, lane->me)) {
        return 0;
    }
    if ((slot->bytes > lane->receive.messages[from].bytes) ||
        (slot->offset > lane->receive.messages[from].bytes - slot->bytes)) {
        mpath_error("rank %d stages bytes up to %llu for rank %d, beyond their message; the call fails", from,
                    (unsigned long long)(slot->offset + slot->bytes), lane->me);
        return (int)MPATH_ERR_INTERNAL;
    }
    status = copy_start(lane, &lane->receive, index, lane->receive.messages[from].address + slot->offset, 0, copy);
    if (status != MPATH_OK) {
        return (int)status;
    }
    if (!copy->active) {
        status = set_free(lane, from, slot);
    }
    return (status == MPATH_OK) ? 1 : (int)status;
}

static int progress_receive(mpath_staged_t *lane)
{
    int events = 0;

    for (int from = 0; (lane->receive_left > 0) && (from < lane->shape.num_ranks); from++) {
        if ((lane->received[from] == lane->receive.messages[from].bytes) || staged_comes_by_streams(lane, from)) {
            continue;
        }
        for (uint32_t number = 0; number < lane->shape.slots; number++) {
            int result = empty(lane, from, number);

            if (result < 0) {
                return result;
            }
            events += result;
        }
    }
    return events;
}

static int staged_hosts_progress(mpath_staged_t *lane)
{
    int sent = progress_send(lane), received;

    if (sent < 0) {
        return sent;
    }
    received = progress_receive(lane);
    return (received < 0) ? received : sent + received;
}

static void abandon_copy(mpath_staged_t *lane, staged_copy_t *copy, uint64_t timeout_ns)
{
    if (copy->active) {
        pthread_mutex_lock(lane->guard.lock);
        (void)mpath_stream_finish(copy->stream, copy->mark, timeout_ns, "a staged copy of a call that failed");
        pthread_mutex_unlock(lane->guard.lock);
        copy->active = 0;
        lane->copies--;
    }
}

static void staged_hosts_abandon(mpath_staged_t *lane, uint64_t timeout_ns)
{
    size_t slots = (size_t)lane->shape.num_ranks * lane->shape.slots;

    for (uint32_t number = 0; number < lane->shape.slots; number++) {
        abandon_copy(lane, &lane->filling[number], timeout_ns);
    }
    for (size_t index = 0; index < slots; index++) {
        abandon_copy(lane, &lane->emptying[index], timeout_ns);
    }
}
