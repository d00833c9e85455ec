/* SPDX-License-Identifier: BSD-3-Clause */
/* Lane "staged", by hosts: fills own slots, empties those of others that are for this rank. */
#include "lane/staged_private.h"

#include <string.h>

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
static mpath_status_t enqueue(mpath_cu_ptr_t target, mpath_cu_ptr_t source, uint64_t bytes, staged_copy_t *copy)
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
    mpath_cu_ptr_t slot_device, device = (mpath_cu_ptr_t)(uintptr_t)memory;
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

int mpath_staged_hosts_progress(mpath_staged_t *lane)
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

void mpath_staged_hosts_abandon(mpath_staged_t *lane, uint64_t timeout_ns)
{
    size_t slots = (size_t)lane->shape.num_ranks * lane->shape.slots;

    for (uint32_t number = 0; number < lane->shape.slots; number++) {
        abandon_copy(lane, &lane->filling[number], timeout_ns);
    }
    for (size_t index = 0; index < slots; index++) {
        abandon_copy(lane, &lane->emptying[index], timeout_ns);
    }
}
