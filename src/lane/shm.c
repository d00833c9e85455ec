/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lane "shm": a queue of slots for each process. The memory of a queue, a segment of its process:
 *
 *   shm_header_t    shape and owner, checked by every process that maps it; in lines of their own:
 *                   free    bit s: slot s is nobody's
 *                   ready   bit s: slot s holds a chunk that the owner has not seen
 *   slots [depth]   one line of header, and the payload
 *
 * A sender takes a bit out of `free`, fills the slot, and puts the bit into `ready`; the owner takes it out there, and puts it
 * back into `free` when the chunk has ended. Nobody waits for anybody between two of these steps, so a process that is stopped
 * or killed holds up no more than the slots it has taken, and the owner takes back those of a dead one. An idle owner
 * reads one line.
 */
#include "lane/shm.h"
#include "record/trace.h"

#include "util/log.h"
#include "util/process.h"
#include "util/time.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define SHM_LINE 64u
#define SHM_DEPTH_LEAST 4u
#define SHM_DEPTH_GOOD 12u /* fewer slots are too few for large ones */
#define SHM_DEPTH_PEER 8u  /* slots for each sender, where there is room */
#define SHM_SLOT_BYTES_LEAST 4096u
#define SHM_SLOT_BYTES_GOOD 32768u /* below this, fewer but larger slots are better */
#define SHM_MAX_EVENTS 32          /* arrivals per progress call */
#define SHM_MEND_LOOKS 65536u      /* in vain at a queue without a free slot, until the dead are looked for */
#define SHM_MAGIC 0x6d70617468736d32ull
#define SHM_NO_SLOT UINT32_MAX

typedef struct shm_header {
    uint64_t magic;
    uint32_t depth, slot_bytes;
    mpath_process_t owner;
    uint8_t padding[SHM_LINE - 16 - sizeof(mpath_process_t)];
    _Atomic uint64_t free;
    uint8_t padding_free[SHM_LINE - sizeof(uint64_t)];
    _Atomic uint64_t ready;
    uint8_t padding_ready[SHM_LINE - sizeof(uint64_t)];
} shm_header_t;

typedef struct shm_slot {
    mpath_chunk_t chunk;
    int32_t peer;             /* the sender, by the numbers of the chunk's lane */
    uint32_t reserved;        /* 0 */
    _Atomic uint64_t process; /* the sender, mpath_process_word(); 0: none */
    uint8_t padding[SHM_LINE - sizeof(mpath_chunk_t) - 2 * sizeof(uint64_t)];
} shm_slot_t;

_Static_assert(sizeof(shm_header_t) == 3 * SHM_LINE, "three lines");
_Static_assert(sizeof(shm_slot_t) == SHM_LINE, "one line");

/* The queue of another process. */
typedef struct shm_peer {
    const mpath_segment_t *segment; /* borrowed; NULL: none, it is this process's own */
    mpath_shm_shape_t shape;        /* as when it was opened */
    shm_header_t *header;
} shm_peer_t;

typedef struct shm_lane shm_lane_t;

struct mpath_shm {
    pthread_mutex_t lock; /* of all that follows */
    mpath_shm_port_t *ports;
    uint64_t process; /* this one, mpath_process_word() */
};

struct mpath_shm_port {
    mpath_shm_port_t *next;
    mpath_shm_t *shm;
    mpath_shm_kind_t kind;
    int users;
    mpath_segment_address_t address;
    mpath_segment_t segment;
    mpath_shm_shape_t shape;
    shm_header_t *header;

    pthread_mutex_t lock; /* of what follows, but for lanes_of[], whose entries their slots' holders change */
    shm_lane_t *lanes;
    uint32_t first; /* slot that is looked at first: none waits for others that come again and again */
    uint32_t next_waiting[MPATH_SHM_DEPTH_MAX];
    shm_lane_t *_Atomic lanes_of[MPATH_SHM_DEPTH_MAX]; /* by slot: that has the chunk */
};

typedef enum shm_drops { SHM_DROPS_NONE, SHM_DROPS_UNTIL, SHM_DROPS_ALL } shm_drops_t;

struct shm_lane {
    mpath_lane_t base;
    mpath_shm_port_t *port;
    uint64_t id;
    int num_ranks, my_rank;
    uint32_t most_bytes; /* that the slots of all peers hold */
    uint32_t looks;      /* in vain */

    /* Under the port's lock */
    shm_lane_t *next;
    uint32_t first_waiting, last_waiting;
    atomic_int num_waiting; /* looked at without it */
    shm_drops_t drops;
    uint32_t drop_call;
    mpath_status_t status; /* not MPATH_OK: a peer has sent what cannot be */

    shm_peer_t peers[]; /* by number */
};

/* -- shapes -- */

static size_t shm_slot_stride(uint32_t slot_bytes)
{
    return SHM_LINE + (((size_t)slot_bytes + SHM_LINE - 1) & ~(size_t)(SHM_LINE - 1));
}

void mpath_shm_shape_choose(int num_ranks, uint64_t memory_bytes, uint64_t chunk_bytes, mpath_shm_shape_t *shape)
{
    uint64_t most = (memory_bytes > sizeof(shm_header_t)) ? memory_bytes - sizeof(shm_header_t) : 0;
    uint64_t good = SHM_DEPTH_PEER * (uint64_t)((num_ranks > 1) ? num_ranks - 1 : 1), depth;
    uint64_t slot = (chunk_bytes < INT32_MAX / 2) ? chunk_bytes : INT32_MAX / 2 + 1;

    good = (good < MPATH_SHM_DEPTH_MAX) ? good : MPATH_SHM_DEPTH_MAX;
    slot = slot & ~(uint64_t)(SHM_LINE - 1);
    do {
        uint64_t enough = (slot > SHM_SLOT_BYTES_GOOD) ? SHM_DEPTH_GOOD : SHM_DEPTH_LEAST;

        slot   = (slot > SHM_SLOT_BYTES_LEAST) ? slot : SHM_SLOT_BYTES_LEAST;
        depth  = most / shm_slot_stride((uint32_t)slot);
        enough = (enough < good) ? enough : good;
        if ((depth >= enough) || (slot == SHM_SLOT_BYTES_LEAST)) {
            break;
        }
        slot = slot / 2 & ~(uint64_t)(SHM_LINE - 1);
    } while (1);
    depth             = (depth < good) ? depth : good;
    shape->depth      = (uint32_t)((depth > SHM_DEPTH_LEAST) ? depth : SHM_DEPTH_LEAST);
    shape->slot_bytes = (uint32_t)slot;
}

uint64_t mpath_shm_least_bytes(void)
{
    const mpath_shm_shape_t least = {.depth = SHM_DEPTH_LEAST, .slot_bytes = SHM_SLOT_BYTES_LEAST};

    return mpath_shm_queue_bytes(&least);
}

size_t mpath_shm_queue_bytes(const mpath_shm_shape_t *shape)
{
    return sizeof(shm_header_t) + shape->depth * shm_slot_stride(shape->slot_bytes);
}

static shm_slot_t *shm_slot(shm_header_t *header, uint32_t slot_bytes, uint32_t index)
{
    return (shm_slot_t *)(void *)((char *)(header + 1) + index * shm_slot_stride(slot_bytes));
}

static uint32_t shm_index(const shm_header_t *header, uint32_t slot_bytes, const void *slot)
{
    return (uint32_t)((size_t)((const char *)slot - (const char *)(header + 1)) / shm_slot_stride(slot_bytes));
}

/* -- the queues of this process -- */

mpath_status_t mpath_shm_create(mpath_shm_t **shm_p)
{
    mpath_shm_t *shm = calloc(1, sizeof(*shm));

    if (shm == NULL) {
        mpath_error("no memory for the table of queues in shared memory");
        return MPATH_ERR_NO_MEMORY;
    }
    pthread_mutex_init(&shm->lock, NULL);
    shm->process = mpath_process_word();
    *shm_p       = shm;
    return MPATH_OK;
}

void mpath_shm_destroy(mpath_shm_t *shm)
{
    if (shm != NULL) {
        pthread_mutex_destroy(&shm->lock);
        free(shm);
    }
}

mpath_status_t mpath_shm_port_find(mpath_shm_t *shm, mpath_shm_kind_t kind, uint32_t slot_bytes,
                                   mpath_shm_port_t **port_p)
{
    mpath_shm_port_t *port, *found = NULL;

    pthread_mutex_lock(&shm->lock);
    for (port = shm->ports; port != NULL; port = port->next) {
        if ((port->kind == kind) && (port->shape.slot_bytes >= slot_bytes) &&
            ((found == NULL) || (port->shape.slot_bytes < found->shape.slot_bytes))) {
            found = port;
        }
    }
    if (found != NULL) {
        found->users++;
    }
    pthread_mutex_unlock(&shm->lock);
    *port_p = found;
    return (found != NULL) ? MPATH_OK : MPATH_DECLINED;
}

static void port_free(mpath_shm_port_t *port)
{
    mpath_segment_detach(&port->segment);
    pthread_mutex_destroy(&port->lock);
    free(port);
}

mpath_status_t mpath_shm_port_create(mpath_shm_t *shm, mpath_shm_kind_t kind, const mpath_shm_shape_t *shape,
                                     mpath_shm_port_t **port_p)
{
    mpath_shm_port_t *port = calloc(1, sizeof(*port));
    mpath_status_t status;

    if (port == NULL) {
        mpath_error("no memory for a queue in shared memory");
        return MPATH_ERR_NO_MEMORY;
    }
    pthread_mutex_init(&port->lock, NULL);
    port->shm   = shm;
    port->kind  = kind;
    port->users = 1;
    port->shape = *shape;
    status      = mpath_segment_create_open(mpath_shm_queue_bytes(shape), &port->segment);
    if (status == MPATH_OK) {
        mpath_segment_note(&port->segment, 1);
        status = mpath_segment_address(&port->segment, &port->address);
    }
    if (status != MPATH_OK) {
        port_free(port);
        return status;
    }
    port->header             = port->segment.base;
    port->header->magic      = SHM_MAGIC;
    port->header->depth      = shape->depth;
    port->header->slot_bytes = shape->slot_bytes;
    mpath_process_self(&port->header->owner);
    atomic_store_explicit(&port->header->free, UINT64_MAX >> (MPATH_SHM_DEPTH_MAX - shape->depth),
                          memory_order_release);

    pthread_mutex_lock(&shm->lock);
    port->next = shm->ports;
    shm->ports = port;
    pthread_mutex_unlock(&shm->lock);
    *port_p = port;
    return MPATH_OK;
}

void mpath_shm_port_put(mpath_shm_port_t *port)
{
    mpath_shm_t *shm = port->shm;
    mpath_shm_port_t **at;
    int is_last;

    pthread_mutex_lock(&shm->lock);
    is_last = --port->users == 0;
    if (is_last) {
        for (at = &shm->ports; *at != port; at = &(*at)->next) {
        }
        *at = port->next;
    }
    pthread_mutex_unlock(&shm->lock);
    if (is_last) {
        port_free(port);
    }
}

const mpath_segment_address_t *mpath_shm_port_address(const mpath_shm_port_t *port)
{
    return &port->address;
}

uint32_t mpath_shm_port_slot_bytes(const mpath_shm_port_t *port)
{
    return port->shape.slot_bytes;
}

size_t mpath_shm_port_bytes(const mpath_shm_port_t *port)
{
    return port->segment.bytes;
}

/* -- those of others -- */

/* What is in it was written by another process. */
static mpath_status_t peer_open(shm_peer_t *peer, const mpath_segment_address_t *address)
{
    mpath_status_t status = mpath_segment_borrow(address, &peer->segment);

    if (status != MPATH_OK) {
        return status;
    }
    peer->header = peer->segment->base;
    if (peer->segment->bytes >= sizeof(*peer->header)) {
        peer->shape = (mpath_shm_shape_t){.depth = peer->header->depth, .slot_bytes = peer->header->slot_bytes};
    }
    if ((peer->shape.depth < 1) || (peer->shape.depth > MPATH_SHM_DEPTH_MAX) || (peer->shape.slot_bytes < 1) ||
        (peer->shape.slot_bytes > INT32_MAX / 2 + 1u) || (peer->header->magic != SHM_MAGIC) ||
        (mpath_shm_queue_bytes(&peer->shape) != peer->segment->bytes)) {
        mpath_error("shm lane: process %lld of the node has shared %zu bytes that are no queue; the lane is not opened",
                    (long long)address->pid, peer->segment->bytes);
        return MPATH_ERR_PARAM;
    }
    return MPATH_OK;
}

/* -- sending -- */

static mpath_status_t shm_check_target(const shm_lane_t *lane, int peer, size_t bytes)
{
    if ((peer < 0) || (peer >= lane->num_ranks) || (peer == lane->my_rank)) {
        mpath_error("shm lane: process %d of the node's %d is no peer of process %d; nothing is sent", peer,
                    lane->num_ranks, lane->my_rank);
        return MPATH_ERR_PARAM;
    }
    if (bytes > lane->peers[peer].shape.slot_bytes) {
        mpath_error("shm lane: chunk of %zu bytes does not fit a slot of %u; nothing is sent", bytes,
                    (unsigned)lane->peers[peer].shape.slot_bytes);
        return MPATH_ERR_PARAM;
    }
    return MPATH_OK;
}

static mpath_status_t shm_reserve(mpath_lane_t *base, int peer, size_t bytes, void **slot_p)
{
    shm_lane_t *lane      = (shm_lane_t *)base;
    mpath_status_t status = shm_check_target(lane, peer, bytes);
    const shm_peer_t *queue;
    uint64_t free_slots;
    shm_slot_t *slot;

    if (status != MPATH_OK) {
        return status;
    }
    queue      = &lane->peers[peer];
    free_slots = atomic_load_explicit(&queue->header->free, memory_order_relaxed);
    do {
        free_slots &= UINT64_MAX >> (MPATH_SHM_DEPTH_MAX - queue->shape.depth);
        if (free_slots == 0) {
            return MPATH_NO_RESOURCE;
        }
    } while (!atomic_compare_exchange_weak_explicit(&queue->header->free, &free_slots, free_slots & (free_slots - 1),
                                                    memory_order_acquire, memory_order_relaxed));
    slot = shm_slot(queue->header, queue->shape.slot_bytes, (uint32_t)__builtin_ctzll(free_slots));
    atomic_store_explicit(&slot->process, lane->port->shm->process, memory_order_relaxed);
    *slot_p = slot + 1;
    return MPATH_OK;
}

/* For the timeline: a copy into a slot, or out of one. */
static void shm_trace(const mpath_chunk_t *chunk, mpath_trace_kind_t kind, uint64_t began_ns)
{
    const mpath_trace_chunk_t event = {.began_ns = began_ns,
                                       .ended_ns = mpath_time_ns(),
                                       .team     = chunk->team,
                                       .offset   = chunk->offset,
                                       .call     = chunk->call,
                                       .flow     = chunk->flow,
                                       .bytes    = chunk->bytes,
                                       .hop      = (uint16_t)chunk->hop,
                                       .lane     = MPATH_TRACE_SHM,
                                       .kind     = (uint8_t)kind};

    mpath_trace_add_chunk(&event);
}

static void shm_publish(shm_lane_t *lane, int peer, void *payload, const mpath_chunk_t *chunk)
{
    const shm_peer_t *queue = &lane->peers[peer];
    shm_slot_t *slot        = (shm_slot_t *)payload - 1;

    slot->chunk      = *chunk;
    slot->chunk.team = lane->id;
    slot->peer       = lane->my_rank;
    atomic_fetch_or_explicit(&queue->header->ready,
                             UINT64_C(1) << shm_index(queue->header, queue->shape.slot_bytes, slot),
                             memory_order_release);
}

/* The caller has filled the slot, in its own time. */
static void shm_commit(mpath_lane_t *base, int peer, void *payload, const mpath_chunk_t *chunk)
{
    shm_publish((shm_lane_t *)base, peer, payload, chunk);
    if (mpath_trace_is_on()) {
        shm_trace(chunk, MPATH_TRACE_SEND, mpath_time_ns());
    }
}

static mpath_status_t shm_send(mpath_lane_t *base, int peer, const mpath_chunk_t *chunk, const void *data,
                               mpath_lane_op_t *op)
{
    mpath_status_t status;
    uint64_t began_ns;
    void *payload;

    status = shm_reserve(base, peer, chunk->bytes, &payload);
    if (status != MPATH_OK) {
        return status;
    }
    began_ns = mpath_trace_is_on() ? mpath_time_ns() : 0;
    if (chunk->bytes > 0) {
        memcpy(payload, data, chunk->bytes);
    }
    shm_publish((shm_lane_t *)base, peer, payload, chunk);
    if (began_ns > 0) {
        shm_trace(chunk, MPATH_TRACE_SEND, began_ns);
    }
    if (op != NULL) {
        op->status = MPATH_OK;
    }
    return MPATH_OK;
}

/* -- receiving -- */

/* The slot's chunk has ended. */
static void port_free_slot(mpath_shm_port_t *port, uint32_t index)
{
    shm_slot_t *slot = shm_slot(port->header, port->shape.slot_bytes, index);

    atomic_store_explicit(&slot->process, 0, memory_order_relaxed);
    atomic_store_explicit(&port->lanes_of[index], NULL, memory_order_relaxed);
    atomic_fetch_or_explicit(&port->header->free, UINT64_C(1) << index, memory_order_release);
}

/* Slots whose sender has ended before it had filled them; under the port's lock. System calls. */
static void port_mend(mpath_shm_port_t *port)
{
    uint64_t free_slots = atomic_load(&port->header->free), ready = atomic_load(&port->header->ready);

    for (uint32_t index = 0; index < port->shape.depth; index++) {
        uint64_t process = atomic_load_explicit(&shm_slot(port->header, port->shape.slot_bytes, index)->process,
                                                memory_order_acquire);

        if (((((free_slots | ready) >> index) & 1) == 0) && (atomic_load(&port->lanes_of[index]) == NULL) &&
            (process != 0) && !mpath_process_word_alive(process) &&
            (((atomic_load(&port->header->ready) >> index) & 1) == 0)) {
            mpath_info("a process that has ended had a slot of this one's queue in shared memory; it is free again");
            port_free_slot(port, index);
        }
    }
}

static int lane_drops(const shm_lane_t *lane, const mpath_chunk_t *chunk)
{
    return (lane->drops == SHM_DROPS_ALL) ||
           ((lane->drops == SHM_DROPS_UNTIL) && ((int32_t)(lane->drop_call - chunk->call) >= 0));
}

/* Puts a slot behind those that wait; under the port's lock. */
static void lane_append(shm_lane_t *lane, uint32_t index)
{
    mpath_shm_port_t *port = lane->port;

    atomic_store_explicit(&port->lanes_of[index], lane, memory_order_relaxed);
    port->next_waiting[index] = SHM_NO_SLOT;
    if (lane->first_waiting == SHM_NO_SLOT) {
        lane->first_waiting = index;
    } else {
        port->next_waiting[lane->last_waiting] = index;
    }
    lane->last_waiting = index;
    atomic_store_explicit(&lane->num_waiting, atomic_load_explicit(&lane->num_waiting, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

/* A chunk has come: it waits for its lane, or is dropped. Under the port's lock. */
static void port_sort(mpath_shm_port_t *port, shm_lane_t *looking, uint32_t index)
{
    const shm_slot_t *slot = shm_slot(port->header, port->shape.slot_bytes, index);
    shm_lane_t *lane       = looking;

    if (slot->chunk.team != looking->id) {
        for (lane = port->lanes; (lane != NULL) && (lane->id != slot->chunk.team); lane = lane->next) {
        }
    }
    if ((lane != NULL) && ((slot->chunk.bytes > port->shape.slot_bytes) || (slot->peer < 0) ||
                           (slot->peer >= lane->num_ranks) || (slot->peer == lane->my_rank))) {
        mpath_error("shm lane: process %d of the node's %d sent a chunk of %u bytes in a slot of %u; the lane fails",
                    (int)slot->peer, lane->num_ranks, (unsigned)slot->chunk.bytes, (unsigned)port->shape.slot_bytes);
        lane->status = MPATH_ERR_INTERNAL;
        lane         = NULL;
    }
    if ((lane == NULL) || lane_drops(lane, &slot->chunk)) {
        port_free_slot(port, index);
    } else {
        lane_append(lane, index);
    }
}

/* Sorts what is ready, unless another thread is at it. */
static void port_look(mpath_shm_port_t *port, shm_lane_t *looking)
{
    uint64_t ready = atomic_load_explicit(&port->header->ready, memory_order_relaxed), from, taken = 0;

    if ((ready == 0) && ((++looking->looks % SHM_MEND_LOOKS) != 0)) {
        return;
    }
    if (pthread_mutex_trylock(&port->lock) != 0) {
        return;
    }
    if ((ready == 0) && (atomic_load_explicit(&port->header->free, memory_order_relaxed) == 0)) {
        port_mend(port);
    }
    /* Only who has the lock takes bits out: what was seen without it may have been sorted by another thread. */
    ready = atomic_load_explicit(&port->header->ready, memory_order_relaxed);
    ready &= UINT64_MAX >> (MPATH_SHM_DEPTH_MAX - port->shape.depth);
    for (int count = 0; (ready != 0) && (count < SHM_MAX_EVENTS); count++) {
        from = ready & (UINT64_MAX << port->first);
        from = (from != 0) ? from : ready;
        from &= -from;
        taken |= from;
        ready &= ~from;
        port->first = (uint32_t)(__builtin_ctzll(from) + 1) % MPATH_SHM_DEPTH_MAX;
    }
    atomic_fetch_and_explicit(&port->header->ready, ~taken, memory_order_acquire);
    for (; taken != 0; taken &= taken - 1) {
        port_sort(port, looking, (uint32_t)__builtin_ctzll(taken));
    }
    pthread_mutex_unlock(&port->lock);
}

/* Takes out all that waits: the first slot of it. */
static uint32_t lane_take_waiting(shm_lane_t *lane)
{
    uint32_t first;

    pthread_mutex_lock(&lane->port->lock);
    first               = lane->first_waiting;
    lane->first_waiting = SHM_NO_SLOT;
    atomic_store_explicit(&lane->num_waiting, 0, memory_order_relaxed);
    pthread_mutex_unlock(&lane->port->lock);
    return first;
}

static int shm_progress(mpath_lane_t *base)
{
    shm_lane_t *lane        = (shm_lane_t *)base;
    mpath_shm_port_t *port  = lane->port;
    mpath_arrival_t arrival = {.lane = base};
    uint32_t index, next;
    int events = 0;

    port_look(port, lane);
    if (atomic_load_explicit(&lane->num_waiting, memory_order_relaxed) == 0) {
        return (lane->status != MPATH_OK) ? (int)lane->status : 0;
    }
    for (index = lane_take_waiting(lane); index != SHM_NO_SLOT; index = next) {
        shm_slot_t *slot = shm_slot(port->header, port->shape.slot_bytes, index);

        next                 = port->next_waiting[index];
        arrival.chunk        = slot->chunk;
        arrival.peer         = slot->peer;
        arrival.data         = slot + 1;
        arrival.private_data = slot;
        base->arrive(base->arrive_argument, &arrival);
        events++;
    }
    return events;
}

static void shm_release(mpath_lane_t *base, const mpath_arrival_t *arrival)
{
    mpath_shm_port_t *port = ((shm_lane_t *)base)->port;

    port_free_slot(port, shm_index(port->header, port->shape.slot_bytes, arrival->private_data));
}

static mpath_status_t shm_take(mpath_lane_t *base, const mpath_arrival_t *arrival, void *to, mpath_lane_op_t *op)
{
    uint64_t began_ns = mpath_trace_is_on() ? mpath_time_ns() : 0;

    if (arrival->chunk.bytes > 0) {
        memcpy(to, arrival->data, arrival->chunk.bytes);
    }
    if (began_ns > 0) {
        shm_trace(&arrival->chunk, MPATH_TRACE_FETCH, began_ns);
    }
    shm_release(base, arrival);
    if (op != NULL) {
        op->status = MPATH_OK;
    }
    return MPATH_OK;
}

static void lane_set_drops(mpath_lane_t *base, shm_drops_t drops, uint32_t call)
{
    shm_lane_t *lane       = (shm_lane_t *)base;
    mpath_shm_port_t *port = lane->port;
    uint32_t index, next;

    pthread_mutex_lock(&port->lock);
    lane->drops         = drops;
    lane->drop_call     = call;
    index               = lane->first_waiting;
    lane->first_waiting = SHM_NO_SLOT;
    atomic_store_explicit(&lane->num_waiting, 0, memory_order_relaxed);
    for (; index != SHM_NO_SLOT; index = next) {
        next = port->next_waiting[index];
        if (lane_drops(lane, &shm_slot(port->header, port->shape.slot_bytes, index)->chunk)) {
            port_free_slot(port, index);
        } else {
            lane_append(lane, index);
        }
    }
    pthread_mutex_unlock(&port->lock);
}

void mpath_shm_drop_until(mpath_lane_t *lane, uint32_t call)
{
    lane_set_drops(lane, SHM_DROPS_UNTIL, call);
}

void mpath_shm_drop_all(mpath_lane_t *lane)
{
    lane_set_drops(lane, SHM_DROPS_ALL, 0);
}

/* -- the rest of the vtable -- */

/* System calls: for a caller that has waited a while. */
static mpath_status_t shm_peer_status(mpath_lane_t *base, int peer)
{
    shm_lane_t *lane = (shm_lane_t *)base;

    if ((peer < 0) || (peer >= lane->num_ranks)) {
        return MPATH_ERR_PARAM;
    }
    if (peer == lane->my_rank) {
        return MPATH_OK;
    }
    return mpath_process_alive(&lane->peers[peer].header->owner) ? MPATH_OK : MPATH_ERR_UNREACHABLE;
}

static size_t shm_max_chunk(const mpath_lane_t *base)
{
    return ((const shm_lane_t *)base)->most_bytes;
}

/* Sends and takes copy before they return, so nothing of the caller is ever under way. */
static void shm_abort(mpath_lane_t *base)
{
    (void)base;
}

/* Ends what its owner has not ended, and what waits: slots belong to all lanes of the process. */
static void lane_leave(shm_lane_t *lane)
{
    mpath_shm_port_t *port = lane->port;
    shm_lane_t **at;

    pthread_mutex_lock(&port->lock);
    for (at = &port->lanes; (*at != NULL) && (*at != lane); at = &(*at)->next) {
    }
    if (*at != NULL) {
        *at = lane->next;
    }
    for (uint32_t index = 0; index < port->shape.depth; index++) {
        if (atomic_load_explicit(&port->lanes_of[index], memory_order_relaxed) == lane) {
            port_free_slot(port, index);
        }
    }
    pthread_mutex_unlock(&port->lock);
}

static void shm_destroy(mpath_lane_t *base)
{
    shm_lane_t *lane = (shm_lane_t *)base;

    lane_leave(lane);
    for (int rank = 0; rank < lane->num_ranks; rank++) {
        if (lane->peers[rank].segment != NULL) {
            mpath_segment_return(lane->peers[rank].segment);
        }
    }
    free(lane);
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

mpath_status_t mpath_shm_open(mpath_shm_port_t *port, uint64_t id, const mpath_segment_address_t *queues, int num_ranks,
                              int my_rank, mpath_lane_t **lane_p)
{
    shm_lane_t *lane = calloc(1, sizeof(*lane) + (size_t)num_ranks * sizeof(lane->peers[0]));

    if (lane == NULL) {
        mpath_error("shm lane: no memory for the queues of %d processes; the lane is not opened", num_ranks);
        return MPATH_ERR_NO_MEMORY;
    }
    lane->base.ops      = &shm_ops;
    lane->port          = port;
    lane->id            = id;
    lane->num_ranks     = num_ranks;
    lane->my_rank       = my_rank;
    lane->most_bytes    = port->shape.slot_bytes;
    lane->first_waiting = SHM_NO_SLOT;
    lane->status        = MPATH_OK;
    for (int rank = 0; rank < num_ranks; rank++) {
        mpath_status_t status = (rank != my_rank) ? peer_open(&lane->peers[rank], &queues[rank]) : MPATH_OK;

        if (status != MPATH_OK) {
            shm_destroy(&lane->base);
            return status;
        }
        if ((rank != my_rank) && (lane->peers[rank].shape.slot_bytes < lane->most_bytes)) {
            lane->most_bytes = lane->peers[rank].shape.slot_bytes;
        }
    }
    pthread_mutex_lock(&port->lock);
    lane->next  = port->lanes;
    port->lanes = lane;
    pthread_mutex_unlock(&port->lock);
    *lane_p = &lane->base;
    return MPATH_OK;
}
