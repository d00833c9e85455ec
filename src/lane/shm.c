/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lane "shm": rings of slots in shared memory.
 *
 * Layout of the region, every part a multiple of 64 bytes:
 *
 *   shm_header_t                 shape, checked by every process that opens the region
 *   shm_member_t [n]             who rank r is; published when r opens
 *   doorbells    [n][words]      bit p of doorbell r: p has committed something to r since r looked last
 *   rings        [n][n - 1]      ring of (producer, consumer), the producer itself left out; depth slots each
 *
 * A slot is one line of header and the payload. Its state is a lap count: with the ring's cursors counting slots from
 * 0, slot c % depth belongs to lap L = c / depth; state 2L means free for lap L, 2L + 1 committed in lap L. The
 * producer moves it from 2L to 2L + 1, the consumer from 2L + 1 to 2(L + 1), in any order over the slots, and each side
 * keeps its own cursor to itself. An idle consumer reads its doorbell only: one line up to 512 processes.
 */
#include "lane/shm.h"
#include "util/log.h"
#include "util/process.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define SHM_LINE 64u
#define SHM_DEPTH_MIN 2u
#define SHM_DEPTH_MAX 8u
#define SHM_SLOT_BYTES_MIN 4096u
#define SHM_SLOT_BYTES_DEEP 32768u /* below this, fewer but larger slots are better */
#define SHM_MAX_EVENTS 32          /* arrivals per progress call */
#define SHM_MAGIC 0x6d70617468736d31ull

typedef struct shm_header {
    _Atomic uint64_t shape; /* checksum; 0 until the first process opens */
    uint8_t padding[SHM_LINE - sizeof(uint64_t)];
} shm_header_t;

typedef struct shm_member {
    mpath_process_t process;
    atomic_uint published;
    uint8_t padding[SHM_LINE - sizeof(mpath_process_t) - sizeof(atomic_uint)];
} shm_member_t;

typedef struct shm_slot {
    _Atomic uint64_t state;
    mpath_chunk_t chunk;
    uint8_t padding[SHM_LINE - sizeof(uint64_t) - sizeof(mpath_chunk_t)];
} shm_slot_t;

_Static_assert(sizeof(shm_header_t) == SHM_LINE, "one line");
_Static_assert(sizeof(shm_member_t) == SHM_LINE, "one line");
_Static_assert(sizeof(shm_slot_t) == SHM_LINE, "one line");

typedef struct shm_lane {
    mpath_lane_t base;
    mpath_shm_shape_t shape;
    int my_rank;
    uint32_t words; /* of a doorbell */
    int next_peer;  /* where progress() goes on, so that a busy ring does not starve others */
    shm_member_t *members;
    _Atomic uint64_t *doorbells;
    char *rings;
    uint64_t *produced; /* per peer: cursor of my ring towards it */
    uint64_t *consumed; /* per peer: cursor of its ring towards me */
    uint64_t *pending;  /* bit per peer: its ring may hold committed slots */
} shm_lane_t;

static uint32_t shm_doorbell_words(int num_ranks)
{
    uint32_t per_line = SHM_LINE / sizeof(uint64_t);

    return (((uint32_t)num_ranks + 64 * per_line - 1) / (64 * per_line)) * per_line;
}

static size_t shm_slot_stride(const mpath_shm_shape_t *shape)
{
    return SHM_LINE + (((size_t)shape->slot_bytes + SHM_LINE - 1) & ~(size_t)(SHM_LINE - 1));
}

static size_t shm_rings_offset(int num_ranks)
{
    return sizeof(shm_header_t) + (size_t)num_ranks * (sizeof(shm_member_t) + shm_doorbell_words(num_ranks) * 8);
}

static uint64_t shm_shape_checksum(const mpath_shm_shape_t *shape)
{
    uint64_t sum = SHM_MAGIC;

    sum = (sum ^ (uint64_t)shape->num_ranks) * 0x9e3779b97f4a7c15ull;
    sum = (sum ^ (uint64_t)shape->depth) * 0x9e3779b97f4a7c15ull;
    sum = (sum ^ (uint64_t)shape->slot_bytes) * 0x9e3779b97f4a7c15ull;
    return sum | 1;
}

void mpath_shm_shape_choose(int num_ranks, uint64_t memory_bytes, uint64_t chunk_bytes, mpath_shm_shape_t *shape)
{
    uint64_t rings = (num_ranks > 1) ? (uint64_t)num_ranks - 1 : 1;
    uint64_t fixed = SHM_LINE * 2 + shm_doorbell_words(num_ranks) * 8ull;
    uint64_t ring  = ((memory_bytes > fixed) ? memory_bytes - fixed : 0) / rings;
    uint64_t slot, depth = SHM_DEPTH_MAX;

    do {
        slot = (ring / depth > SHM_LINE) ? ring / depth - SHM_LINE : 0;
        if ((slot >= chunk_bytes) || (slot >= SHM_SLOT_BYTES_DEEP) || (depth == SHM_DEPTH_MIN)) {
            break;
        }
        depth /= 2;
    } while (1);
    slot = ((slot < chunk_bytes) ? slot : chunk_bytes) & ~(uint64_t)(SHM_LINE - 1);
    slot = (slot < INT32_MAX / 2) ? slot : INT32_MAX / 2 + 1;
    if (slot < SHM_SLOT_BYTES_MIN) {
        slot = SHM_SLOT_BYTES_MIN;
    }
    shape->num_ranks  = num_ranks;
    shape->depth      = (uint32_t)depth;
    shape->slot_bytes = (uint32_t)slot;
    if (fixed + rings * depth * shm_slot_stride(shape) > memory_bytes) {
        mpath_warn("%d processes of a node need at least %llu bytes of shared memory each, more than the %llu that "
                   "memory_bytes allows; taking them",
                   num_ranks, (unsigned long long)(fixed + rings * depth * shm_slot_stride(shape)),
                   (unsigned long long)memory_bytes);
    }
}

size_t mpath_shm_region_bytes(const mpath_shm_shape_t *shape)
{
    size_t rings = (size_t)shape->num_ranks * (size_t)(shape->num_ranks - 1);

    return shm_rings_offset(shape->num_ranks) + rings * shape->depth * shm_slot_stride(shape);
}

static shm_slot_t *shm_slot(const shm_lane_t *lane, int producer, int consumer, uint64_t cursor)
{
    size_t ring = (size_t)producer * (size_t)(lane->shape.num_ranks - 1) +
                  (size_t)((consumer > producer) ? consumer - 1 : consumer);

    return (shm_slot_t *)(void *)(lane->rings + (ring * lane->shape.depth + (cursor & (lane->shape.depth - 1))) *
                                                    shm_slot_stride(&lane->shape));
}

static mpath_status_t shm_check_target(const shm_lane_t *lane, int peer, size_t bytes)
{
    if ((peer < 0) || (peer >= lane->shape.num_ranks) || (peer == lane->my_rank)) {
        mpath_error("shm lane: process %d of the node's %d is no peer of process %d; nothing is sent", peer,
                    lane->shape.num_ranks, lane->my_rank);
        return MPATH_ERR_PARAM;
    }
    if (bytes > lane->shape.slot_bytes) {
        mpath_error("shm lane: chunk of %zu bytes does not fit a slot of %u; nothing is sent", bytes,
                    (unsigned)lane->shape.slot_bytes);
        return MPATH_ERR_PARAM;
    }
    return MPATH_OK;
}

static mpath_status_t shm_reserve(mpath_lane_t *base, int peer, size_t bytes, void **slot_p)
{
    shm_lane_t *lane      = (shm_lane_t *)base;
    mpath_status_t status = shm_check_target(lane, peer, bytes);
    shm_slot_t *slot;
    uint64_t cursor;

    if (status != MPATH_OK) {
        return status;
    }
    cursor = lane->produced[peer];
    slot   = shm_slot(lane, lane->my_rank, peer, cursor);
    if (atomic_load_explicit(&slot->state, memory_order_acquire) != 2 * (cursor / lane->shape.depth)) {
        return MPATH_NO_RESOURCE;
    }
    lane->produced[peer] = cursor + 1;
    *slot_p              = slot + 1;
    return MPATH_OK;
}

static void shm_commit(mpath_lane_t *base, int peer, void *payload, const mpath_chunk_t *chunk)
{
    shm_lane_t *lane = (shm_lane_t *)base;
    shm_slot_t *slot = (shm_slot_t *)payload - 1;
    uint32_t me      = (uint32_t)lane->my_rank;

    slot->chunk = *chunk;
    atomic_fetch_add_explicit(&slot->state, 1, memory_order_release);
    atomic_fetch_or_explicit(&lane->doorbells[(size_t)peer * lane->words + me / 64], 1ull << (me % 64),
                             memory_order_acq_rel);
}

static mpath_status_t shm_send(mpath_lane_t *base, int peer, const mpath_chunk_t *chunk, const void *data,
                               mpath_lane_op_t *op)
{
    mpath_status_t status;
    void *payload;

    status = shm_reserve(base, peer, chunk->bytes, &payload);
    if (status != MPATH_OK) {
        return status;
    }
    if (chunk->bytes > 0) {
        memcpy(payload, data, chunk->bytes);
    }
    shm_commit(base, peer, payload, chunk);
    if (op != NULL) {
        op->status = MPATH_OK;
    }
    return MPATH_OK;
}

/* Moves doorbell bits to the pending ones; returns 0 when there are none. */
static int shm_look(shm_lane_t *lane)
{
    _Atomic uint64_t *doorbell = &lane->doorbells[(size_t)lane->my_rank * lane->words];
    uint32_t used              = ((uint32_t)lane->shape.num_ranks + 63) / 64, word;
    uint64_t any               = 0;

    for (word = 0; word < used; word++) {
        if (atomic_load_explicit(&doorbell[word], memory_order_relaxed) != 0) {
            lane->pending[word] |= atomic_exchange_explicit(&doorbell[word], 0, memory_order_acq_rel);
        }
        any |= lane->pending[word];
    }
    return any != 0;
}

/* Delivers what is committed at the front of a peer's ring, at most `limit` chunks; number of them or an error. */
static int shm_deliver(shm_lane_t *lane, int peer, int limit)
{
    mpath_arrival_t arrival = {.lane = &lane->base, .peer = peer};
    shm_slot_t *slot;
    uint64_t cursor;
    int count;

    for (count = 0; count < limit; count++) {
        cursor = lane->consumed[peer];
        slot   = shm_slot(lane, peer, lane->my_rank, cursor);
        if (atomic_load_explicit(&slot->state, memory_order_acquire) != 2 * (cursor / lane->shape.depth) + 1) {
            lane->pending[peer / 64] &= ~(1ull << (peer % 64));
            break;
        }
        if (slot->chunk.bytes > lane->shape.slot_bytes) {
            mpath_error("shm lane: process %d of the node sent a chunk of %u bytes in a slot of %u; the lane fails",
                        peer, (unsigned)slot->chunk.bytes, (unsigned)lane->shape.slot_bytes);
            return MPATH_ERR_INTERNAL;
        }
        lane->consumed[peer] = cursor + 1;
        arrival.chunk        = slot->chunk;
        arrival.data         = slot + 1;
        arrival.private_data = slot;
        lane->base.arrive(lane->base.arrive_argument, &arrival);
    }
    return count;
}

static int shm_progress(mpath_lane_t *base)
{
    shm_lane_t *lane = (shm_lane_t *)base;
    int i, peer, count, events = 0;

    if (!shm_look(lane)) {
        return 0;
    }
    peer = lane->next_peer;
    for (i = 0; (i < lane->shape.num_ranks) && (events < SHM_MAX_EVENTS); i++) {
        if ((lane->pending[peer / 64] >> (peer % 64)) & 1) {
            count = shm_deliver(lane, peer, (int)lane->shape.depth);
            if (count < 0) {
                return count;
            }
            events += count;
        }
        peer = (peer + 1 < lane->shape.num_ranks) ? peer + 1 : 0;
    }
    lane->next_peer = peer;
    return events;
}

static void shm_release(mpath_lane_t *base, const mpath_arrival_t *arrival)
{
    shm_slot_t *slot = arrival->private_data;

    (void)base;
    atomic_fetch_add_explicit(&slot->state, 1, memory_order_release); /* 2L + 1 -> 2(L + 1) */
}

static mpath_status_t shm_take(mpath_lane_t *base, const mpath_arrival_t *arrival, void *to, mpath_lane_op_t *op)
{
    if (arrival->chunk.bytes > 0) {
        memcpy(to, arrival->data, arrival->chunk.bytes);
    }
    shm_release(base, arrival);
    if (op != NULL) {
        op->status = MPATH_OK;
    }
    return MPATH_OK;
}

/* System calls: for a caller that has waited a while. */
static mpath_status_t shm_peer_status(mpath_lane_t *base, int peer)
{
    shm_lane_t *lane = (shm_lane_t *)base;
    shm_member_t *member;

    if ((peer < 0) || (peer >= lane->shape.num_ranks)) {
        return MPATH_ERR_PARAM;
    }
    member = &lane->members[peer];
    if (!atomic_load_explicit(&member->published, memory_order_acquire)) {
        return MPATH_OK; /* has not opened the lane yet */
    }
    return mpath_process_alive(&member->process) ? MPATH_OK : MPATH_ERR_UNREACHABLE;
}

static size_t shm_max_chunk(const mpath_lane_t *base)
{
    return ((const shm_lane_t *)base)->shape.slot_bytes;
}

/* Sends and takes copy before they return, so nothing of the caller is ever under way. */
static void shm_abort(mpath_lane_t *base)
{
    (void)base;
}

static void shm_destroy(mpath_lane_t *base)
{
    free(base);
}

static const mpath_lane_ops_t shm_ops = {
    .name        = "shm",
    .kind        = MPATH_LANE_SHM,
    .send        = shm_send,
    .reserve     = shm_reserve,
    .commit      = shm_commit,
    .progress    = shm_progress,
    .take        = shm_take,
    .release     = shm_release,
    .peer_status = shm_peer_status,
    .max_chunk   = shm_max_chunk,
    .abort       = shm_abort,
    .destroy     = shm_destroy,
};

static mpath_status_t shm_check_open(void *region, const mpath_shm_shape_t *shape, int my_rank)
{
    shm_header_t *header = region;
    uint64_t expected = 0, sum = shm_shape_checksum(shape);

    if ((shape->num_ranks < 1) || (my_rank < 0) || (my_rank >= shape->num_ranks) || (shape->depth < 1) ||
        ((shape->depth & (shape->depth - 1)) != 0) || (shape->slot_bytes < 1) || ((uintptr_t)region % SHM_LINE != 0)) {
        mpath_error("shm lane: process %d of %d, %u slots of %u bytes at %p is no usable shape; the lane is not opened",
                    my_rank, shape->num_ranks, (unsigned)shape->depth, (unsigned)shape->slot_bytes, region);
        return MPATH_ERR_PARAM;
    }
    if (!atomic_compare_exchange_strong(&header->shape, &expected, sum) && (expected != sum)) {
        mpath_error("shm lane: the region was opened by another process with other than %d processes, %u slots of %u "
                    "bytes; the lane is not opened",
                    shape->num_ranks, (unsigned)shape->depth, (unsigned)shape->slot_bytes);
        return MPATH_ERR_PARAM;
    }
    return MPATH_OK;
}

mpath_status_t mpath_shm_open(void *region, const mpath_shm_shape_t *shape, int my_rank, mpath_lane_t **lane_p)
{
    mpath_status_t status = shm_check_open(region, shape, my_rank);
    size_t num_ranks, words;
    shm_lane_t *lane;

    if (status != MPATH_OK) {
        return status;
    }
    num_ranks = (size_t)shape->num_ranks;
    words     = shm_doorbell_words(shape->num_ranks);
    lane      = calloc(1, sizeof(*lane) + (2 * num_ranks + words) * sizeof(uint64_t));
    if (lane == NULL) {
        mpath_error("shm lane: no memory for the cursors of %zu processes; the lane is not opened", num_ranks);
        return MPATH_ERR_NO_MEMORY;
    }
    lane->base.ops  = &shm_ops;
    lane->shape     = *shape;
    lane->my_rank   = my_rank;
    lane->words     = (uint32_t)words;
    lane->members   = (shm_member_t *)(void *)((char *)region + sizeof(shm_header_t));
    lane->doorbells = (_Atomic uint64_t *)(void *)(lane->members + num_ranks);
    lane->rings     = (char *)region + shm_rings_offset(shape->num_ranks);
    lane->produced  = (uint64_t *)(void *)(lane + 1);
    lane->consumed  = lane->produced + num_ranks;
    lane->pending   = lane->consumed + num_ranks;

    mpath_process_self(&lane->members[my_rank].process);
    atomic_store_explicit(&lane->members[my_rank].published, 1, memory_order_release);
    *lane_p = &lane->base;
    return MPATH_OK;
}
