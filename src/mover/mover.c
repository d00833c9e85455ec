/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Move: binds a call to the schedule of its plan and drives the lanes until this rank's duties are done. Arrivals are
 * taken to their final place or queued for the next hop, queued and own chunks are pushed into the outlets. Chunks for
 * others go before own ones, for they hold slots that somebody waits for.
 */
#include "mover/mover.h"

#include "mover/schedule.h"
#include "team/team_private.h"
#include "team/wait.h"
#include "util/log.h"
#include "util/time.h"
#include "wire/failover.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a parcel is at, which says what its end means. */
typedef enum parcel_state {
    PARCEL_WAITS,         /* in its outlet's queue */
    PARCEL_SENDS_OWN,     /* send buffer -> rail */
    PARCEL_SENDS_ON,      /* somebody's slot -> rail; then the slot is given back */
    PARCEL_TAKES_TO_SLOT, /* arrival -> slot; then the slot is committed */
    PARCEL_TAKES_TO_USER  /* arrival -> receive buffer */
} parcel_state_t;

#define ARRIVAL_BY_SLOT (-1)
#define ARRIVAL_ENDED (-2)

/* A chunk in this rank's hands. Lanes know the address of `op`: parcels are never freed before the mover. */
typedef struct parcel {
    struct parcel *next;
    parcel_state_t state;
    mpath_lane_op_t op;
    int op_nic; /* the rail that works on op; -1: the lane of the arrival */
    mpath_duty_t *duty;
    int nic;                 /* the rail that brought the arrival, or ARRIVAL_* */
    mpath_arrival_t arrival; /* its chunk is valid in all states */
    void *slot;              /* reserved at the outlet; NULL: none yet */
} parcel_t;

/* Chunks that wait for one outlet, oldest first. */
typedef struct outlet_queue {
    parcel_t *first, **last_p;
    int peer;            /* of the lane */
    uint64_t own_chunks; /* of this rank's own in a call, */
    uint64_t own_left;   /* and those that are not handed over */
} outlet_queue_t;

#define OUTLET_KINDS ((size_t)MPATH_OUTLET_LAST + 1)
#define WORD_BITS 64u

typedef struct mpath_mover {
    /* What a pass looks at */
    mpath_team_t *team;
    mpath_links_t *links;
    mpath_fabric_t *fabric;
    mpath_inbox_t *inbox;       /* of the links */
    mpath_lane_t *shm;          /* peers are local ranks; NULL when alone on the node */
    mpath_lane_t *relay;        /* towards relays; NULL: no path has one */
    mpath_schedule_t *schedule; /* of the last plan */
    mpath_nic_set_t rails;      /* of the schedule */
    outlet_queue_t *queues;     /* by outlet */
    /* Sets of outlets, of `words` words each: a pass looks at no others than those that have something to push. */
    size_t words;
    uint64_t *pending[OUTLET_KINDS]; /* of a kind: those with something */
    uint64_t *blocked;               /* nothing more fits in this round */
    parcel_t *spare;
    parcel_t *under_way; /* parcels whose op is not finished */

    /* The call under way */
    const mpath_call_t *call;
    uint64_t send_left, forward_left, receive_left; /* bytes not finished */
    uint64_t self_left;                             /* of the diagonal */
    size_t first_outlet;                            /* where the next round begins */
    uint64_t fed_bytes;                             /* handed to rails in this pass */
    uint32_t call_number;
    int rails_full;   /* had no room once: from then on copies hold up no rail */
    int is_timed;     /* the clock runs: somebody may ask for the times of the rails */
    int settles_call; /* the ranks end this call together */
    mpath_move_stats_t stats;
    mpath_nic_set_t lost; /* NICs of this node that failed in this call, bits by the topology's numbers */
    mpath_wait_t wait;

    uint64_t schedule_signature;
    mpath_team_user_t user; /* of the team */
    mpath_links_user_t links_user;
    mpath_rail_clock_t clock;
} mpath_mover_t;

static void mover_op_failed(mpath_mover_t *mover, const parcel_t *parcel, mpath_status_t status);

/* Chunks under way. */

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

static void drop_parcel(mpath_mover_t *mover, parcel_t *parcel)
{
    parcel->next = mover->spare;
    mover->spare = parcel;
}

static void put_under_way(mpath_mover_t *mover, parcel_t *parcel)
{
    parcel->next     = mover->under_way;
    mover->under_way = parcel;
}

static void mover_end_arrival(mpath_mover_t *mover, int nic, const mpath_arrival_t *arrival)
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
    return (outlet->kind == MPATH_OUTLET_RELAY) ? mover->relay : mover->shm;
}

/* Hands the parcel's slot, filled or given up, to its reader. */
static void mover_commit(mpath_mover_t *mover, parcel_t *parcel)
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
    if (mover->is_timed && (parcel->nic >= 0) && (parcel->arrival.data == NULL)) {
        mpath_rail_clock_came(&mover->clock, duty, parcel->arrival.chunk.bytes);
    }
    switch (parcel->state) {
    case PARCEL_SENDS_OWN:
        mover->send_left -= bytes;
        mover->stats.sent_bytes += bytes;
        break;
    case PARCEL_SENDS_ON:
        mover_end_arrival(mover, parcel->nic, &parcel->arrival);
        mover->forward_left -= bytes;
        mover->stats.forwarded_bytes += bytes;
        break;
    case PARCEL_TAKES_TO_SLOT:
        mover_commit(mover, parcel);
        mover->forward_left -= bytes;
        mover->stats.forwarded_bytes += bytes;
        break;
    default:
        mover->receive_left -= bytes;
        mover->stats.received_bytes += bytes;
        break;
    }
    drop_parcel(mover, parcel);
}

static int mover_finish_ops(mpath_mover_t *mover)
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
            mover_op_failed(mover, parcel, status);
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
        mover_end_arrival(mover, parcel->nic, &parcel->arrival);
        drop_parcel(mover, parcel);
        return MPATH_ERR_INTERNAL;
    default:
        mover_op_failed(mover, parcel, status);
        drop_parcel(mover, parcel);
        return status;
    }
}

static inline uint64_t outlet_bit(size_t index)
{
    return UINT64_C(1) << index % WORD_BITS;
}

/* Whether an outlet has something to push. */
static void outlet_note(mpath_mover_t *mover, size_t index)
{
    const outlet_queue_t *queue = &mover->queues[index];
    uint64_t *word              = &mover->pending[mover->schedule->outlets[index].kind][index / WORD_BITS];

    *word = queue->first != NULL || queue->own_left > 0 ? *word | outlet_bit(index) : *word & ~outlet_bit(index);
}

static void queue_parcel(mpath_mover_t *mover, parcel_t *parcel)
{
    outlet_queue_t *queue = &mover->queues[parcel->duty->outlet];

    parcel->next   = NULL;
    *queue->last_p = parcel;
    queue->last_p  = &parcel->next;
    outlet_note(mover, parcel->duty->outlet);
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
static int pushed(mpath_mover_t *mover, size_t index, parcel_t *parcel, mpath_status_t status)
{
    switch (status) {
    case MPATH_OK:
        finish_parcel(mover, parcel);
        return 1;
    case MPATH_INPROGRESS:
        put_under_way(mover, parcel);
        return 1;
    case MPATH_NO_RESOURCE:
        mover->blocked[index / WORD_BITS] |= outlet_bit(index);
        return 0;
    default:
        mover_op_failed(mover, parcel, status);
        return (int)status;
    }
}

static mpath_status_t send_on(mpath_mover_t *mover, const mpath_outlet_t *outlet, outlet_queue_t *queue,
                              parcel_t *parcel, const void *data)
{
    mpath_chunk_t chunk = parcel->arrival.chunk;

    chunk.hop      = (uint32_t)parcel->duty->hop_out;
    parcel->op_nic = mpath_links_rail(mover->links, outlet->nic);
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
    result = pushed(mover, index, parcel, status);
    if (result <= 0) {
        parcel->state = PARCEL_WAITS;
        return result;
    }
    queue->first = next;
    if (next == NULL) {
        queue->last_p = &queue->first;
        outlet_note(mover, index);
    }
    return result;
}

static int push_own_to_rail(mpath_mover_t *mover, size_t index, mpath_duty_t *duty)
{
    const mpath_outlet_t *outlet = &mover->schedule->outlets[index];
    parcel_t *parcel             = new_parcel(mover, PARCEL_SENDS_OWN, duty);
    const void *data;
    int result;

    if (parcel == NULL) {
        return (int)MPATH_ERR_NO_MEMORY;
    }
    parcel->arrival.chunk = own_chunk(mover, duty);
    data                  = source_of(mover, duty, &parcel->arrival.chunk);
    result                = pushed(mover, index, parcel, send_on(mover, outlet, &mover->queues[index], parcel, data));
    if (result <= 0) {
        drop_parcel(mover, parcel);
    }
    return result;
}

static int push_own_to_slot(mpath_mover_t *mover, size_t index, mpath_duty_t *duty)
{
    const mpath_outlet_t *outlet = &mover->schedule->outlets[index];
    mpath_lane_t *lane           = slot_lane(mover, outlet);
    int peer                     = mover->team->local_of[outlet->rank];
    mpath_chunk_t chunk          = own_chunk(mover, duty);
    mpath_status_t status        = lane->ops->send(lane, peer, &chunk, source_of(mover, duty, &chunk), NULL);

    if (status == MPATH_NO_RESOURCE) {
        mover->blocked[index / WORD_BITS] |= outlet_bit(index);
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
    result = (outlet->kind == MPATH_OUTLET_RAIL) ? push_own_to_rail(mover, index, duty)
                                                 : push_own_to_slot(mover, index, duty);
    if (result > 0) {
        duty->handed_chunks++;
        queue->own_left--;
        outlet_note(mover, index);
    }
    return result;
}

/* A chunk of an attempt that was given up, or a slot that was given up before a chunk was in it. */
static int is_stale(const mpath_mover_t *mover, const mpath_chunk_t *chunk)
{
    return (chunk->bytes == 0) ||
           ((mpath_links_repeats(mover->links) > 0) && ((int32_t)(mover->call_number - chunk->call) > 0));
}

/* One arrival: takes it to its place, or on to the next outlet when that has room. Ends it in case of an error. */
static mpath_status_t mover_handle(void *self, int nic, const mpath_arrival_t *arrival)
{
    mpath_mover_t *mover = self;
    mpath_duty_t *duty;
    outlet_queue_t *queue;
    parcel_t *parcel;
    int result;

    if (is_stale(mover, &arrival->chunk)) {
        mover_end_arrival(mover, nic, arrival);
        return MPATH_OK;
    }
    duty = expect(mover, &arrival->chunk);
    if (duty == NULL) {
        mover_end_arrival(mover, nic, arrival);
        return MPATH_ERR_INTERNAL;
    }
    parcel = new_parcel(mover, PARCEL_TAKES_TO_USER, duty);
    if (parcel == NULL) {
        mover_end_arrival(mover, nic, arrival);
        return MPATH_ERR_NO_MEMORY;
    }
    parcel->nic     = nic;
    parcel->arrival = *arrival;
    if (mover->is_timed && (nic >= 0) && (arrival->data != NULL)) {
        mpath_rail_clock_came(&mover->clock, duty, arrival->chunk.bytes);
    }
    if (duty->hop_out == MPATH_DUTY_NO_HOP) {
        return take_to_user(mover, parcel);
    }
    queue         = &mover->queues[duty->outlet];
    parcel->state = PARCEL_WAITS;
    queue_parcel(mover, parcel);
    /* Not one that waited before: it may be of another rail, whose lock must not be taken under this one's. */
    result = (queue->first != parcel || (mover->blocked[duty->outlet / WORD_BITS] & outlet_bit(duty->outlet)) != 0)
                 ? 0
                 : push_waiting(mover, duty->outlet);
    return (result < 0) ? (mpath_status_t)result : MPATH_OK;
}

/* Lane callback of the shared memory lanes; `argument` is the mover. */
static void mover_arrive(void *argument, const mpath_arrival_t *arrival)
{
    mpath_mover_t *mover  = argument;
    mpath_status_t status = MPATH_ERR_INTERNAL;

    if (mover->inbox->failed == MPATH_OK) {
        status = mover_handle(mover, ARRIVAL_BY_SLOT, arrival);
        if (status != MPATH_OK) {
            mover->inbox->failed = status;
        }
    } else {
        mover_end_arrival(mover, ARRIVAL_BY_SLOT, arrival);
    }
}

/* One chunk into every outlet of the kind that has something to push and room, beginning with the first one of the pass. */
static int push_round(mpath_mover_t *mover, mpath_outlet_kind_t kind)
{
    size_t begin   = mover->first_outlet / WORD_BITS;
    uint64_t later = UINT64_MAX << mover->first_outlet % WORD_BITS;
    int events     = 0;

    for (size_t i = 0; i <= mover->words; i++) { /* the word with the first one twice */
        size_t word   = begin + i < mover->words ? begin + i : begin + i - mover->words;
        uint64_t bits = mover->pending[kind][word] & ~mover->blocked[word];

        bits &= i == 0 ? later : i == mover->words ? ~later : UINT64_MAX;
        for (; bits != 0; bits &= bits - 1) {
            int result = push_one(mover, word * WORD_BITS + (size_t)__builtin_ctzll(bits));

            if (result < 0) {
                return result;
            }
            events += result;
        }
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
static int mover_feed_rails(mpath_mover_t *mover)
{
    size_t count = mover->schedule->num_outlets;
    int events   = 0, result;

    memset(mover->blocked, 0, mover->words * sizeof(*mover->blocked));
    mover->fed_bytes = 0;
    do {
        result = push_round(mover, MPATH_OUTLET_RAIL);
        events += result;
    } while ((result > 0) && (mover->fed_bytes < RAIL_PASS_BYTES));
    mover->first_outlet = (mover->first_outlet + 1 < count) ? mover->first_outlet + 1 : 0;
    mover->rails_full |= (events == 0);
    return (result < 0) ? result : events;
}

static int mover_feed_slots(mpath_mover_t *mover)
{
    int relay = push_rounds(mover, MPATH_OUTLET_RELAY, SLOT_CHUNKS_PER_PASS), last;

    if (relay < 0) {
        return relay;
    }
    last = push_rounds(mover, MPATH_OUTLET_LAST, SLOT_CHUNKS_PER_PASS);
    return (last < 0) ? last : relay + last;
}

/* The movement when its call is given up: nothing more is fed, and what has ended is dropped. */

/*
 * A slot that is never committed would be lost to everybody. What is in it is no chunk, which its reader, who may still be
 * in this attempt, sees by its length.
 */
static void give_slot_back(mpath_mover_t *mover, parcel_t *parcel)
{
    if (parcel->slot != NULL) {
        parcel->arrival.chunk.bytes = 0;
        mover_commit(mover, parcel);
        parcel->slot = NULL;
    }
}

static mpath_transfer_t transfer_of(const mpath_mover_t *mover, const parcel_t *parcel)
{
    int sends              = (parcel->state == PARCEL_SENDS_OWN) || (parcel->state == PARCEL_SENDS_ON);
    const mpath_hop_t *hop = sends ? &parcel->duty->out : &parcel->duty->in;

    return (mpath_transfer_t){.status = mpath_fabric_op_status(mover->fabric, parcel->op_nic, &parcel->op),
                              .sends  = sends,
                              .rail   = parcel->op_nic,
                              .nic    = sends ? hop->nic_from : hop->nic_to,
                              .rank   = sends ? hop->to : hop->from,
                              .nic_to = sends ? hop->nic_to : hop->nic_from};
}

static void mover_sweep(void *self, mpath_transfer_visit_t visit, void *argument)
{
    mpath_mover_t *mover = self;
    parcel_t **at        = &mover->under_way;

    while (*at != NULL) {
        parcel_t *parcel = *at;

        if (parcel->op_nic >= 0) {
            mpath_transfer_t transfer = transfer_of(mover, parcel);

            visit(argument, &transfer);
            if (transfer.status == MPATH_INPROGRESS) {
                at = &parcel->next;
                continue;
            }
        }
        *at = parcel->next;
        if (parcel->state == PARCEL_SENDS_ON) {
            mover_end_arrival(mover, parcel->nic, &parcel->arrival);
        }
        give_slot_back(mover, parcel);
        drop_parcel(mover, parcel);
    }
}

static void drop_queues(mpath_mover_t *mover)
{
    for (size_t i = 0; i < mover->schedule->num_outlets; i++) {
        outlet_queue_t *queue = &mover->queues[i];

        while (queue->first != NULL) {
            parcel_t *parcel = queue->first;

            queue->first = parcel->next;
            if (parcel->nic != ARRIVAL_ENDED) {
                mover_end_arrival(mover, parcel->nic, &parcel->arrival);
            }
            give_slot_back(mover, parcel);
            drop_parcel(mover, parcel);
        }
        queue->last_p = &queue->first;
    }
}

/* What comes by shared memory, of which other teams need the slots: chunks of calls up to this number are dropped. */
static void mover_drop_until(mpath_mover_t *mover, uint32_t call)
{
    mpath_lane_t *const lanes[] = {mover->relay, mover->shm};

    for (size_t i = 0; i < sizeof(lanes) / sizeof(lanes[0]); i++) {
        if (lanes[i] != NULL) {
            mpath_shm_drop_until(lanes[i], call);
        }
    }
}

/* Nothing more is fed: drops what is queued, and what comes from now on. */
static void mover_stop(mpath_mover_t *mover)
{
    mpath_inbox_close(mover->inbox);
    mover_drop_until(mover, mover->call_number);
    if (mover->schedule != NULL) {
        drop_queues(mover);
    }
}

/* After an error of the team: afterwards no lane touches memory of the caller any more. */
static void mover_abandon(mpath_mover_t *mover)
{
    mover_stop(mover);
    if (mover->schedule != NULL) { /* else the call has ended, and rails were taken back since */
        mpath_links_abandon(mover->links, mover->schedule->rails);
    }
}

/* The end of a call for this rank, whatever came of it, as of mpath_failover_settle(). */
static mpath_status_t mover_settle(mpath_mover_t *mover, mpath_status_t status)
{
    const mpath_failover_loss_t loss = {.lost = mover->lost};
    int gives_up                     = status != MPATH_OK;

    if (gives_up) {
        mover_stop(mover);
        mpath_inbox_open_after(mover->inbox, mover->call_number);
        mover->inbox->failed = MPATH_OK;
    }
    mover->lost = 0;
    status      = mpath_failover_settle(mover->team, status, &loss);
    if (gives_up) {
        mpath_inbox_open(mover->inbox);
    }
    return status;
}

/* A NIC of this node has failed; the caller returns MPATH_ERR_UNREACHABLE. Nothing to it in calls that are not settled. */
static void mover_lose(mpath_mover_t *mover, int nic)
{
    if (mover->settles_call) {
        mover->lost |= mpath_nic_bit(nic);
    }
}

/* Waiting inside a call (team/wait.h): whether the others still answer, and who is waited for. */

static const char *host_of(const mpath_team_t *team, int rank)
{
    return mpath_topo_machine(team->topo, team->node_of[rank])->host;
}

static void hop_text(const mpath_mover_t *mover, const mpath_hop_t *hop, char *text, size_t size)
{
    const mpath_team_t *team = mover->team;

    if (hop->lane == MPATH_LANE_RAIL) {
        snprintf(text, size, "rail %s",
                 mpath_topo_machine(team->topo, team->node_of[hop->from])->nics[hop->nic_from].name);
    } else {
        snprintf(text, size, "shared memory");
    }
}

static int is_done(const mpath_duty_t *duty)
{
    return duty->done_bytes == duty->bytes;
}

/* Chunks are missing, or a chunk that has come is not passed on: which of the two does this rank wait for? */
static int waits_for_arrival(const mpath_duty_t *duty)
{
    return (duty->hop_in != MPATH_DUTY_NO_HOP) && (duty->arrived_chunks < duty->num_chunks);
}

static mpath_status_t hop_status(mpath_mover_t *mover, const mpath_duty_t *duty, const mpath_hop_t *hop, int peer_rank)
{
    mpath_team_t *team = mover->team;
    int peer;

    if (hop->lane != MPATH_LANE_RAIL) {
        return mpath_team_peer_status(team, peer_rank);
    }
    if (hop == &duty->out) {
        peer = mover->queues[duty->outlet].peer;
        return mpath_fabric_peer_status(mover->fabric, mpath_links_rail(mover->links, hop->nic_from), peer);
    }
    /* What TCP has taken for sent may be lost with the connection, which then only the receiver misses. */
    peer = mpath_links_peer(mover->links, hop->nic_to, peer_rank, hop->nic_from);
    return (peer < 0) ? (mpath_status_t)peer
                      : mpath_fabric_peer_status(mover->fabric, mpath_links_rail(mover->links, hop->nic_to), peer);
}

static void lose_hop(mpath_mover_t *mover, const mpath_duty_t *duty, const mpath_hop_t *hop)
{
    if (hop->lane == MPATH_LANE_RAIL) {
        mover_lose(mover, (hop == &duty->out) ? hop->nic_from : hop->nic_to);
    }
}

/* A chunk that has come, while its bytes are still fetched over the rail that brought it. */
static int is_fetched(const parcel_t *parcel)
{
    return (parcel->nic >= 0) && ((parcel->state == PARCEL_TAKES_TO_SLOT) || (parcel->state == PARCEL_TAKES_TO_USER));
}

static void give_up(mpath_mover_t *mover, const mpath_duty_t *duty, const mpath_hop_t *hop, int seconds)
{
    char text[MPATH_NIC_NAME_MAX + 16];

    if (mover->lost == 0) {
        hop_text(mover, hop, text, sizeof(text));
        mpath_warn("%s: nothing has moved between rank %d (%s) and rank %d (%s) by %s for %d s; the call is repeated "
                   "over other rails",
                   mover->team->oob.name, hop->from, host_of(mover->team, hop->from), hop->to,
                   host_of(mover->team, hop->to), text, seconds);
    }
    lose_hop(mover, duty, hop);
}

/* Nothing has come for long: takes the rails that chunks, or their bytes, are awaited on for failed. */
static mpath_status_t mover_lose_silent(void *engine, int seconds)
{
    mpath_mover_t *mover = engine;

    for (size_t i = 0; i < mover->schedule->num_duties; i++) {
        const mpath_duty_t *duty = &mover->schedule->duties[i];
        const mpath_hop_t *hop   = waits_for_arrival(duty) ? &duty->in : &duty->out;

        if (!is_done(duty) && (hop->lane == MPATH_LANE_RAIL) && (waits_for_arrival(duty) || (duty->hop_out >= 0))) {
            give_up(mover, duty, hop, seconds);
        }
    }
    for (const parcel_t *parcel = mover->under_way; parcel != NULL; parcel = parcel->next) {
        if (is_fetched(parcel)) {
            give_up(mover, parcel->duty, &parcel->duty->in, seconds);
        }
    }
    return (mover->lost != 0) ? MPATH_ERR_UNREACHABLE : MPATH_OK;
}

/* What becomes of a call that has lost a rail. */
static const char *outcome(const mpath_mover_t *mover, int rail, mpath_log_level_t *level_p)
{
    int repeats = rail && mover->settles_call;

    *level_p = repeats ? MPATH_LOG_WARN : MPATH_LOG_ERROR;
    return repeats ? "is repeated over the other rails" : "fails";
}

static void say_lost(const mpath_mover_t *mover, const mpath_duty_t *duty, const mpath_hop_t *hop,
                     mpath_status_t status)
{
    int peer_rank = (hop == &duty->out) ? hop->to : hop->from;
    char text[MPATH_NIC_NAME_MAX + 16];
    mpath_log_level_t level;
    const char *next = outcome(mover, (hop->lane == MPATH_LANE_RAIL) && (status == MPATH_ERR_UNREACHABLE), &level);

    hop_text(mover, hop, text, sizeof(text));
    mpath_log(
        level,
        "%s: rank %d (%s) can no longer be reached by %s: %s; %llu bytes from rank %d to rank %d are missing, the "
        "call %s",
        mover->team->oob.name, peer_rank, host_of(mover->team, peer_rank), text, mpath_status_string(status),
        (unsigned long long)(duty->bytes - duty->done_bytes), duty->source, duty->destination, next);
}

/* A transfer has failed: says so, and whose rail it was is lost. */
static void mover_op_failed(mpath_mover_t *mover, const parcel_t *parcel, mpath_status_t status)
{
    int sends              = (parcel->state == PARCEL_SENDS_OWN) || (parcel->state == PARCEL_SENDS_ON);
    const mpath_hop_t *hop = sends ? &parcel->duty->out : &parcel->duty->in;

    if (parcel->op_nic >= 0) {
        say_lost(mover, parcel->duty, hop, status);
    }
    if ((parcel->op_nic >= 0) && (status == MPATH_ERR_UNREACHABLE)) {
        lose_hop(mover, parcel->duty, hop);
    }
}

/* The same of a NIC of this node on which nothing moves any more. */
static void mover_rail_failed(void *self, int nic, mpath_status_t status)
{
    mpath_mover_t *mover     = self;
    const mpath_team_t *team = mover->team;
    mpath_log_level_t level;
    const char *next = outcome(mover, status == MPATH_ERR_UNREACHABLE, &level);

    mpath_log(level, "%s: rank %d (%s): rail %s has failed: %s; the call %s", team->oob.name, team->rank,
              host_of(team, team->rank), mpath_topo_machine(team->topo, team->node)->nics[nic].name,
              mpath_status_string(status), next);
    if (status == MPATH_ERR_UNREACHABLE) {
        mover_lose(mover, nic);
    }
}

/* Whether the other end of a hop answers. */
static mpath_status_t check_hop(mpath_mover_t *mover, const mpath_duty_t *duty, const mpath_hop_t *hop)
{
    mpath_status_t status = hop_status(mover, duty, hop, (hop == &duty->out) ? hop->to : hop->from);

    if (status != MPATH_OK) {
        say_lost(mover, duty, hop, status);
        lose_hop(mover, duty, hop);
    }
    return status;
}

static mpath_status_t check_duty(mpath_mover_t *mover, const mpath_duty_t *duty)
{
    if (is_done(duty)) {
        return MPATH_OK;
    }
    if (waits_for_arrival(duty)) {
        return check_hop(mover, duty, &duty->in);
    }
    return (duty->hop_out != MPATH_DUTY_NO_HOP) ? check_hop(mover, duty, &duty->out) : MPATH_OK;
}

static mpath_status_t mover_check(void *engine, uint64_t waited_ns)
{
    mpath_mover_t *mover  = engine;
    mpath_status_t status = MPATH_OK;

    (void)waited_ns;

    for (size_t i = 0; (i < mover->schedule->num_duties) && (status == MPATH_OK); i++) {
        status = check_duty(mover, &mover->schedule->duties[i]);
    }
    for (const parcel_t *parcel = mover->under_way; (parcel != NULL) && (status == MPATH_OK); parcel = parcel->next) {
        status = is_fetched(parcel) ? check_hop(mover, parcel->duty, &parcel->duty->in) : MPATH_OK;
    }
    return status;
}

/* The edge of a chunk which has not come, for it is the likelier cause; else of one that is not passed on. */
static const mpath_duty_t *mover_first_missing(const mpath_mover_t *mover)
{
    const mpath_duty_t *edge = NULL;

    for (size_t i = 0; i < mover->schedule->num_duties; i++) {
        const mpath_duty_t *duty = &mover->schedule->duties[i];

        if (!is_done(duty) && ((edge == NULL) || (waits_for_arrival(duty) && !waits_for_arrival(edge)))) {
            edge = duty;
        }
    }
    return edge;
}

static int mover_edge(const void *engine, mpath_wait_why_t why, int *rank_p, char *text, size_t size)
{
    const mpath_mover_t *mover = engine;
    const mpath_team_t *team   = mover->team;
    const mpath_duty_t *duty   = mover_first_missing(mover);
    int waits                  = duty != NULL && waits_for_arrival(duty), peer;
    char lane[MPATH_NIC_NAME_MAX + 16];
    const mpath_hop_t *hop;

    (void)why;
    if (duty == NULL) {
        snprintf(text, size, "%s, call %u: rank %d (%s) waits to end what it sends", team->oob.name, mover->call_number,
                 team->rank, host_of(team, team->rank));
        return 1;
    }
    hop  = waits ? &duty->in : &duty->out;
    peer = *rank_p = waits ? hop->from : hop->to;
    if (!waits && duty->hop_out == MPATH_DUTY_NO_HOP) {
        hop = &duty->in;
    }
    hop_text(mover, hop, lane, sizeof(lane));
    snprintf(text, size,
             "%s, call %u: rank %d (%s) waits %s rank %d (%s) by %s: %llu of %llu bytes from rank %d to rank %d are "
             "missing",
             team->oob.name, mover->call_number, team->rank, host_of(team, team->rank),
             waits ? "for chunks of" : "to hand chunks to", peer, host_of(team, peer), lane,
             (unsigned long long)(duty->bytes - duty->done_bytes), (unsigned long long)duty->bytes, duty->source,
             duty->destination);
    return 1;
}

#define SELF_PIECE_BYTES 65536u /* of the diagonal, copied between two looks at the lanes */

/* Tells the queues of a new schedule where they lead. */
static mpath_status_t make_queues(mpath_mover_t *mover, mpath_schedule_t *schedule)
{
    size_t words = schedule->num_outlets / WORD_BITS + 1;
    size_t bytes = schedule->num_outlets * sizeof(outlet_queue_t) + (OUTLET_KINDS + 1) * words * sizeof(uint64_t);
    outlet_queue_t *queues = calloc(1, bytes);
    uint64_t *sets;

    if (queues == NULL) {
        mpath_error("%s: no memory for %zu queues; the call fails", mover->team->oob.name, schedule->num_outlets);
        return MPATH_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < schedule->num_outlets; i++) {
        const mpath_outlet_t *outlet = &schedule->outlets[i];

        for (uint32_t k = 0; k < outlet->num_own; k++) {
            queues[i].own_chunks += schedule->duties[schedule->own[outlet->own + k]].num_chunks;
        }
        if (outlet->kind == MPATH_OUTLET_RAIL) {
            queues[i].peer = mpath_links_peer(mover->links, outlet->nic, outlet->rank, outlet->nic_to);
            if (queues[i].peer < 0) {
                mpath_status_t status = (mpath_status_t)queues[i].peer;

                free(queues);
                return status;
            }
        }
    }
    free(mover->queues);
    mover->queues  = queues;
    mover->words   = words;
    mover->blocked = sets = (uint64_t *)(void *)(queues + schedule->num_outlets);
    for (size_t kind = 0; kind < OUTLET_KINDS; kind++) {
        mover->pending[kind] = sets += words;
    }
    return MPATH_OK;
}

/* Calls with the same plan share a schedule. */
static mpath_status_t find_schedule(mpath_mover_t *mover, const mpath_plan_t *plan)
{
    uint64_t signature                = mpath_plan_signature(plan);
    const mpath_chunk_limits_t limits = {.chunk_bytes      = mpath_team_settings(mover->team)->chunk_bytes,
                                         .rail_bytes       = mpath_links_rail_chunk(mover->links),
                                         .last_slot_bytes  = mpath_links_slot_bytes(mover->links),
                                         .relay_slot_bytes = mpath_links_relay_slot_bytes(mover->links)};
    mpath_schedule_t *schedule;
    mpath_status_t status;

    if ((mover->schedule != NULL) && (mover->schedule_signature == signature)) {
        return MPATH_OK;
    }
    status = mpath_schedule_create(mover->team->topo, mover->team->rank, plan, &limits, &schedule);
    if (status != MPATH_OK) {
        return status;
    }
    status = make_queues(mover, schedule);
    if (status != MPATH_OK) {
        mpath_schedule_destroy(schedule);
        return status;
    }
    mpath_schedule_destroy(mover->schedule);
    mover->schedule           = schedule;
    mover->schedule_signature = signature;
    return MPATH_OK;
}

/* A plan must stay inside the buffers of the call, whatever it was made from. */
static mpath_status_t check_bounds(const mpath_mover_t *mover, const mpath_call_t *call)
{
    int me = mover->team->rank;

    for (size_t i = 0; i < mover->schedule->num_duties; i++) {
        const mpath_duty_t *duty = &mover->schedule->duties[i];
        uint64_t end             = duty->offset + duty->bytes;

        if (((duty->source == me) && (end > call->send_bytes[duty->destination])) ||
            ((duty->destination == me) && (end > call->recv_bytes[duty->source]))) {
            mpath_error("%s: the plan moves bytes up to %llu from rank %d to rank %d, beyond their message; the call "
                        "fails",
                        mover->team->oob.name, (unsigned long long)end, duty->source, duty->destination);
            return MPATH_ERR_INTERNAL;
        }
    }
    return MPATH_OK;
}

static mpath_status_t bind_call(mpath_mover_t *mover, const mpath_call_t *call, const mpath_agreed_t *agreed,
                                const mpath_plan_t *plan)
{
    mpath_status_t status = find_schedule(mover, plan);

    if (status == MPATH_OK) {
        status = check_bounds(mover, call);
    }
    if (status != MPATH_OK) {
        return status;
    }
    mpath_schedule_reset(mover->schedule);
    for (size_t i = 0; i < mover->schedule->num_outlets; i++) {
        outlet_queue_t *queue = &mover->queues[i];

        queue->first    = NULL;
        queue->last_p   = &queue->first;
        queue->own_left = queue->own_chunks;
        outlet_note(mover, i);
    }
    mover->call        = call;
    mover->call_number = agreed->call;
    if (mpath_links_repeats(mover->links) > 0) {
        mover_drop_until(mover, agreed->call - 1); /* else the numbers of calls would come round to what was given up */
    }
    mover->send_left    = mover->schedule->send_bytes;
    mover->forward_left = mover->schedule->forward_bytes;
    mover->receive_left = mover->schedule->receive_bytes;
    mover->self_left    = call->send_bytes[mover->team->rank];
    mover->rails        = mover->schedule->rails;
    mover->first_outlet = 0;
    mover->rails_full   = 0;
    mover->lost         = 0;
    mover->is_timed     = mpath_plan_z_ns(plan) >= MPATH_RAIL_TIMES_LEAST_NS;
    mover->settles_call = mpath_failover_settles(mover->team, mpath_plan_z_ns(plan));
    memset(&mover->stats, 0, sizeof(mover->stats));
    return MPATH_OK;
}

/* What came by rail while another thread, or a call on another team, progressed it. */
static int take_arrivals(mpath_mover_t *mover)
{
    return mpath_inbox_take(mover->inbox);
}

/* The rails of the schedule. Ops of this mover that end are counted where they are looked at. */
static int drive_rails(mpath_mover_t *mover)
{
    return mpath_inbox_drive(mover->inbox, mover->rails);
}

/* Arrivals are handled inside, see mover_arrive(). */
static int progress_slots(mpath_mover_t *mover)
{
    mpath_lane_t *lanes[] = {mover->relay, mover->shm};
    int events            = 0;

    for (size_t i = 0; i < sizeof(lanes) / sizeof(lanes[0]); i++) {
        int result = (lanes[i] == NULL) ? 0 : lanes[i]->ops->progress(lanes[i]);

        if (result < 0) {
            return result;
        }
        events += result;
    }
    return (mover->inbox->failed != MPATH_OK) ? (int)mover->inbox->failed : events;
}

/* A piece of what this rank sends to itself. */
static int copy_self(mpath_mover_t *mover)
{
    const mpath_call_t *call = mover->call;
    int me                   = mover->team->rank;
    size_t piece             = (size_t)((mover->self_left < SELF_PIECE_BYTES) ? mover->self_left : SELF_PIECE_BYTES);
    uint64_t done;

    if ((piece == 0) || !mover->rails_full) {
        return 0;
    }
    done = call->send_bytes[me] - mover->self_left;
    memcpy((char *)call->recv_buffer + call->recv_offsets[me] + done,
           (const char *)call->send_buffer + call->send_offsets[me] + done, piece);
    mover->self_left -= piece;
    return 1;
}

/* One look at everything, what moves the rails first. Number of events, or an error. */
static int pass(mpath_mover_t *mover)
{
    static int (*const steps[])(mpath_mover_t *) = {drive_rails,      mover_finish_ops, take_arrivals, progress_slots,
                                                    mover_feed_rails, mover_feed_slots, copy_self};
    int events                                   = 0;

    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        int result = steps[i](mover);

        if (result < 0) {
            return result;
        }
        events += result;
    }
    return events;
}

static int is_finished(const mpath_mover_t *mover)
{
    return (mover->send_left | mover->forward_left | mover->receive_left | mover->self_left) == 0;
}

static mpath_status_t mover_look(void *engine, int *events_p)
{
    mpath_mover_t *mover = engine;

    if (is_finished(mover)) {
        return MPATH_OK;
    }
    *events_p = pass(mover);
    if (*events_p > 0) {
        mpath_idle_give_way();
    }
    return *events_p < 0 ? (mpath_status_t)*events_p : MPATH_INPROGRESS;
}

static mpath_status_t run(mpath_mover_t *mover)
{
    static const mpath_wait_ops_t ops = {
        .look = mover_look, .check = mover_check, .lose_silent = mover_lose_silent, .edge = mover_edge};

    if (mover->is_timed) {
        mpath_rail_clock_start(&mover->clock, mover->schedule);
    }
    mpath_wait_prepare(&mover->wait, mover->team, mover->settles_call);
    return mpath_wait(&mover->wait, &ops, mover);
}

static void add_stats(mpath_move_stats_t *sum, const mpath_move_stats_t *stats)
{
    sum->sent_bytes += stats->sent_bytes;
    sum->received_bytes += stats->received_bytes;
    sum->forwarded_bytes += stats->forwarded_bytes;
}

static void mover_changed(void *self)
{
    mpath_mover_t *mover = self;

    mpath_schedule_destroy(mover->schedule);
    mover->schedule = NULL;
}

static void mover_destroy(void *self)
{
    mpath_mover_t *mover = self;
    parcel_t *parcel;

    while ((parcel = mover->spare) != NULL) {
        mover->spare = parcel->next;
        free(parcel);
    }
    mpath_schedule_destroy(mover->schedule);
    free(mover->queues);
    mpath_rail_clock_release(&mover->clock);
    free(mover);
}

static const mpath_inbox_ops_t mover_inbox_ops      = {.handle = mover_handle, .lose = mover_rail_failed};
static const mpath_links_user_ops_t mover_links_ops = {.sweep = mover_sweep, .changed = mover_changed};
static const mpath_team_user_ops_t mover_user_ops   = {.destroy = mover_destroy};

static mpath_status_t mover_create(mpath_links_t *links, mpath_team_t *team, mpath_mover_t **mover_p)
{
    mpath_mover_t *mover = calloc(1, sizeof(*mover));

    if ((mover == NULL) || (mpath_rail_clock_init(&mover->clock, team) != MPATH_OK)) {
        mpath_error("%s: no memory to set up the movement of data", team->oob.name);
        free(mover);
        return MPATH_ERR_NO_MEMORY;
    }
    mover->team            = team;
    mover->links           = links;
    mover->fabric          = team->context->fabric;
    mover->inbox           = mpath_links_inbox(links);
    mover->shm             = mpath_links_shm(links);
    mover->relay           = mpath_links_relay(links);
    mover->inbox->argument = mover;
    mover->inbox->ops      = &mover_inbox_ops;
    if (mover->shm != NULL) {
        mpath_lane_set_arrive(mover->shm, mover_arrive, mover);
    }
    if (mover->relay != NULL) {
        mpath_lane_set_arrive(mover->relay, mover_arrive, mover);
    }
    mpath_links_attach(links, &mover->links_user, &mover_links_ops, mover);
    mpath_team_attach(team, &mover->user, &mover_user_ops, mover);
    *mover_p = mover;
    return MPATH_OK;
}

/* The first time it is collective. Declines and fails as mpath_links_get() does. */
static mpath_status_t mover_get(mpath_team_t *team, mpath_mover_t **mover_p)
{
    mpath_links_t *links;
    mpath_status_t status;

    *mover_p = mpath_team_attached(team, &mover_user_ops);
    if (*mover_p != NULL) {
        return mpath_links_status((*mover_p)->links);
    }
    status = mpath_links_get(team, &links);
    return (status == MPATH_OK) ? mover_create(links, team, mover_p) : status;
}

mpath_status_t mpath_move(mpath_team_t *team, const mpath_call_t *call, const mpath_agreed_t *agreed,
                          const mpath_plan_t *plan, mpath_move_stats_t *stats)
{
    mpath_status_t status = mpath_team_status(team);
    mpath_mover_t *mover  = NULL;
    unsigned version      = team->topo_version;
    int bound             = 0;

    if (status == MPATH_OK) {
        status = mover_get(team, &mover);
    }
    if (status == MPATH_DECLINED) {
        return status;
    }
    if ((status == MPATH_OK) && (version != team->topo_version)) {
        return MPATH_AGAIN; /* nothing was moved yet: NICs that the plan counts on do not open */
    }
    if (status == MPATH_OK) {
        status = bind_call(mover, call, agreed, plan);
        bound  = (status == MPATH_OK);
    }
    if (bound) {
        status = run(mover);
        if (mover->settles_call && ((status == MPATH_OK) || (status == MPATH_AGAIN) ||
                                    ((status == MPATH_ERR_UNREACHABLE) && (mover->lost != 0)))) {
            status = mover_settle(mover, status);
        } else if (status == MPATH_OK) {
            status = mpath_failover_recover(team);
        }
        if (status == MPATH_AGAIN) {
            mover_drop_until(mover, mover->call_number);
            return status;
        }
    }
    if (status != MPATH_OK) {
        mpath_team_break(team, status);
        if (bound) {
            mover_abandon(mover);
        }
        return status;
    }
    mover->call = NULL;
    if (stats != NULL) {
        add_stats(stats, &mover->stats);
    }
    return MPATH_OK;
}

void mpath_move_times(const mpath_team_t *team, const mpath_topo_t *topo, const mpath_plan_t *plan,
                      mpath_rail_times_t *times)
{
    mpath_mover_t *mover = mpath_team_attached(team, &mover_user_ops);

    mpath_rail_times_read(&mover->clock, team, topo, mover->schedule, plan, times);
}
