/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Move: binds a call to the schedule of its plan and drives the lanes until this rank's duties are done. Arrivals are
 * taken to their final place or queued for the next hop, queued and own chunks are pushed into the outlets. Chunks for
 * others go before own ones, for they hold slots that somebody waits for. What goes over rails goes through the wire
 * (wire/wire.h), which knows what is under way there and who has failed.
 */
#include "mover/mover.h"

#include "mover/schedule.h"
#include "team/team.h"
#include "team/wait.h"
#include "util/log.h"
#include "util/time.h"
#include "wire/failover.h"
#include "wire/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARRIVAL_BY_SLOT (-1) /* in place of the rail that has brought it */
#define ARRIVAL_NONE (-2)    /* the chunk is this rank's own, or its arrival has ended */

/* A chunk in this rank's hands: it waits for its outlet, or is an item of the wire. */
typedef struct flight {
    struct flight *next;
    mpath_duty_t *duty;
    mpath_wire_arrival_t arrival; /* its chunk is valid in any case */
    void *slot;                   /* reserved at the outlet; NULL: none yet */
} flight_t;

/* Chunks that wait for one outlet, oldest first. */
typedef struct outlet_queue {
    flight_t *first, **last_p;
    uint64_t own_chunks; /* of this rank's own in a call, */
    uint64_t own_left;   /* and those that are not handed over */
} outlet_queue_t;

#define OUTLET_KINDS ((size_t)MPATH_OUTLET_LAST + 1)
#define WORD_BITS 64u

typedef struct mpath_mover {
    /* What a pass looks at */
    mpath_team_t *team;
    mpath_links_t *links;
    mpath_wire_t *wire;
    mpath_lane_t *shm;          /* peers are local ranks; NULL when alone on the node */
    mpath_lane_t *relay;        /* towards relays; NULL: no path has one */
    mpath_schedule_t *schedule; /* of the last plan */
    outlet_queue_t *queues;     /* by outlet */
    /* Sets of outlets, of `words` words each: a pass looks at no others than those that have something to push. */
    size_t words;
    uint64_t *pending[OUTLET_KINDS]; /* of a kind: those with something */
    uint64_t *blocked;               /* nothing more fits in this round */
    flight_t *spare;

    /* The call under way */
    const mpath_call_t *call;
    uint64_t send_left, forward_left, receive_left; /* bytes not finished */
    uint64_t self_left;                             /* of the diagonal */
    size_t first_outlet;                            /* where the next round begins */
    uint64_t fed_bytes;                             /* handed to rails in this pass */
    uint32_t call_number;
    int rails_full;        /* had no room once: from then on copies hold up no rail */
    int is_timed;          /* the clock runs: somebody may ask for the times of the rails */
    int settles_call;      /* the ranks end this call together */
    mpath_status_t failed; /* of handling what has come by slots */
    mpath_move_stats_t stats;
    mpath_wait_t wait;

    uint64_t schedule_signature;
    mpath_team_user_t user; /* of the team */
    mpath_links_user_t links_user;
    mpath_rail_clock_t clock;
} mpath_mover_t;

/* Chunks under way. */

#define RAIL_PASS_BYTES 65536u /* handed to the rails before others are looked at; one chunk per outlet at least */
#define SLOT_CHUNKS_PER_PASS 2 /* copied into one ring before the rails are looked at again */

/* `arrival` NULL: of this rank's own. */
static flight_t *flight_get(mpath_mover_t *mover, mpath_duty_t *duty, const mpath_wire_arrival_t *arrival)
{
    flight_t *flight = mover->spare;

    if (flight != NULL) {
        mover->spare = flight->next;
    } else if ((flight = malloc(sizeof(*flight))) == NULL) {
        mpath_error("%s: no memory to handle a chunk; the call fails", mpath_team_name(mover->team));
        return NULL;
    }
    *flight = (flight_t){.duty = duty, .arrival = {.rail = ARRIVAL_NONE}};
    if (arrival != NULL) {
        flight->arrival = *arrival;
    }
    return flight;
}

static void flight_put(mpath_mover_t *mover, flight_t *flight)
{
    flight->next = mover->spare;
    mover->spare = flight;
}

static void mover_end_arrival(mpath_mover_t *mover, const mpath_wire_arrival_t *arrival)
{
    if (arrival->rail >= 0) {
        mpath_wire_drop(mover->wire, arrival);
    } else if (arrival->rail == ARRIVAL_BY_SLOT) {
        arrival->lane.lane->ops->release(arrival->lane.lane, &arrival->lane);
    }
}

static mpath_lane_t *slot_lane(const mpath_mover_t *mover, const mpath_outlet_t *outlet)
{
    return (outlet->kind == MPATH_OUTLET_RELAY) ? mover->relay : mover->shm;
}

/* Hands the flight's slot, filled or given up, to its reader. */
static void mover_commit(mpath_mover_t *mover, flight_t *flight)
{
    const mpath_outlet_t *outlet = &mover->schedule->outlets[flight->duty->outlet];
    mpath_lane_t *lane           = slot_lane(mover, outlet);

    flight->arrival.lane.chunk.team = mpath_team_id(mover->team); /* by rail it came with the wire's */
    flight->arrival.lane.chunk.hop  = (uint32_t)flight->duty->hop_out;
    lane->ops->commit(lane, mpath_team_local_of(mover->team, outlet->rank), flight->slot, &flight->arrival.lane.chunk);
}

/* Bytes of a duty are where they had to go. */
static void mover_count(mpath_mover_t *mover, mpath_duty_t *duty, uint32_t bytes)
{
    duty->done_bytes += bytes;
    if (duty->hop_in == MPATH_DUTY_NO_HOP) {
        mover->send_left -= bytes;
        mover->stats.sent_bytes += bytes;
    } else if (duty->hop_out == MPATH_DUTY_NO_HOP) {
        mover->receive_left -= bytes;
        mover->stats.received_bytes += bytes;
    } else {
        mover->forward_left -= bytes;
        mover->stats.forwarded_bytes += bytes;
    }
}

/* The same of those of a flight, which is over. */
static void flight_finish(mpath_mover_t *mover, flight_t *flight)
{
    uint32_t bytes = flight->arrival.lane.chunk.bytes;

    if (flight->slot != NULL) {
        mover_commit(mover, flight);
    }
    mover_count(mover, flight->duty, bytes);
    flight_put(mover, flight);
}

static void *place_of(const mpath_mover_t *mover, const mpath_duty_t *duty, const mpath_chunk_t *chunk)
{
    return (char *)mover->call->recv_buffer + mover->call->recv_offsets[duty->source] + chunk->offset;
}

static inline uint64_t outlet_bit(size_t index)
{
    return UINT64_C(1) << index % WORD_BITS;
}

/* Nothing more fits in this round. */
static int outlet_is_blocked(const mpath_mover_t *mover, size_t index)
{
    return (mover->blocked[index / WORD_BITS] & outlet_bit(index)) != 0;
}

/* Whether an outlet has something to push. */
static void outlet_note(mpath_mover_t *mover, size_t index)
{
    const outlet_queue_t *queue = &mover->queues[index];
    uint64_t *word              = &mover->pending[mover->schedule->outlets[index].kind][index / WORD_BITS];

    *word = queue->first != NULL || queue->own_left > 0 ? *word | outlet_bit(index) : *word & ~outlet_bit(index);
}

static void flight_queue(mpath_mover_t *mover, flight_t *flight)
{
    outlet_queue_t *queue = &mover->queues[flight->duty->outlet];

    flight->next   = NULL;
    *queue->last_p = flight;
    queue->last_p  = &flight->next;
    outlet_note(mover, flight->duty->outlet);
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
                    mpath_team_name(mover->team), mpath_team_rank(mover->team), mover->call_number, chunk->call,
                    chunk->flow, (unsigned long long)chunk->offset, chunk->bytes, chunk->hop);
        return NULL;
    }
    return duty;
}

static mpath_chunk_t own_chunk(const mpath_mover_t *mover, const mpath_duty_t *duty)
{
    mpath_chunk_t chunk = {.team = mpath_team_id(mover->team),
                           .call = mover->call_number,
                           .flow = duty->flow,
                           .hop  = (uint32_t)duty->hop_out};

    mpath_duty_chunk(duty, duty->handed_chunks, &chunk.offset, &chunk.bytes);
    return chunk;
}

static const void *source_of(const mpath_mover_t *mover, const mpath_duty_t *duty, const mpath_chunk_t *chunk)
{
    return (const char *)mover->call->send_buffer + mover->call->send_offsets[duty->destination] + chunk->offset;
}

/* What came of pushing something: 1 pushed, 0 the outlet is full, or an error. */
static int pushed(mpath_mover_t *mover, size_t index, mpath_status_t status)
{
    if (status == MPATH_NO_RESOURCE) {
        mover->blocked[index / WORD_BITS] |= outlet_bit(index);
        return 0;
    }
    return (status == MPATH_OK) ? 1 : (int)status;
}

/* Afterwards the flight is the wire's, unless that has no room or fails. */
static mpath_status_t send_on(mpath_mover_t *mover, flight_t *flight, const void *data)
{
    const mpath_hop_t *out = &flight->duty->out;
    mpath_chunk_t chunk    = flight->arrival.lane.chunk;

    chunk.hop = (uint32_t)flight->duty->hop_out;
    mover->fed_bytes += chunk.bytes;
    return mpath_wire_send(mover->wire, out->nic_from, out->to, out->nic_to, &chunk, data, flight);
}

/* Gets a slot at the flight's outlet, unless it has one. */
static mpath_status_t flight_reserve(mpath_mover_t *mover, flight_t *flight)
{
    const mpath_outlet_t *outlet = &mover->schedule->outlets[flight->duty->outlet];
    mpath_lane_t *lane           = slot_lane(mover, outlet);
    mpath_status_t status;

    if (flight->slot != NULL) {
        return MPATH_OK;
    }
    status = lane->ops->reserve(lane, mpath_team_local_of(mover->team, outlet->rank), flight->arrival.lane.chunk.bytes,
                                &flight->slot);
    if (status != MPATH_OK) {
        flight->slot = NULL;
    }
    return status;
}

/* The bytes of an arrival that waits into the flight's slot, which ends the arrival. */
static mpath_status_t take_to_slot(mpath_mover_t *mover, flight_t *flight)
{
    mpath_arrival_t *lane = &flight->arrival.lane;
    mpath_status_t status;

    if (flight->arrival.rail >= 0) {
        flight->duty->fetches++;
        status = mpath_wire_take(mover->wire, &flight->arrival, flight->slot, flight);
    } else {
        status = lane->lane->ops->take(lane->lane, lane, flight->slot, NULL);
        if (status == MPATH_OK) {
            flight_finish(mover, flight);
        }
    }
    if (status != MPATH_OK) {
        flight->arrival.rail = ARRIVAL_NONE;
    }
    return status;
}

/* Pushes the oldest chunk that waits for the outlet. */
static int push_waiting(mpath_mover_t *mover, size_t index)
{
    outlet_queue_t *queue = &mover->queues[index];
    flight_t *flight = queue->first, *next = flight->next;
    mpath_status_t status;
    int result;

    if (mover->schedule->outlets[index].kind == MPATH_OUTLET_RAIL) {
        status = send_on(mover, flight, flight->arrival.lane.data);
    } else {
        status = flight_reserve(mover, flight);
        status = (status == MPATH_OK) ? take_to_slot(mover, flight) : status;
    }
    result = pushed(mover, index, status);
    if (result <= 0) {
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
    flight_t *flight = flight_get(mover, duty, NULL);
    int result;

    if (flight == NULL) {
        return (int)MPATH_ERR_NO_MEMORY;
    }
    flight->arrival.lane.chunk = own_chunk(mover, duty);
    result = pushed(mover, index, send_on(mover, flight, source_of(mover, duty, &flight->arrival.lane.chunk)));
    if (result <= 0) {
        flight_put(mover, flight);
    }
    return result;
}

static int push_own_to_slot(mpath_mover_t *mover, size_t index, mpath_duty_t *duty)
{
    const mpath_outlet_t *outlet = &mover->schedule->outlets[index];
    mpath_lane_t *lane           = slot_lane(mover, outlet);
    int peer                     = mpath_team_local_of(mover->team, outlet->rank);
    mpath_chunk_t chunk          = own_chunk(mover, duty);
    mpath_status_t status        = lane->ops->send(lane, peer, &chunk, source_of(mover, duty, &chunk), NULL);

    if (status == MPATH_OK) {
        mover_count(mover, duty, chunk.bytes);
    }
    return pushed(mover, index, status);
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

/* What comes by rail (wire/wire.h); items are flights. */

static mpath_status_t mover_place(void *argument, const mpath_wire_arrival_t *arrival, void **to_p, void **item_p)
{
    mpath_mover_t *mover  = argument;
    mpath_duty_t *duty    = expect(mover, &arrival->lane.chunk);
    flight_t *flight      = (duty != NULL) ? flight_get(mover, duty, arrival) : NULL;
    mpath_status_t status = MPATH_OK;

    if (flight == NULL) {
        return (duty == NULL) ? MPATH_ERR_INTERNAL : MPATH_ERR_NO_MEMORY;
    }
    if (mover->is_timed && (arrival->lane.data != NULL)) {
        mpath_rail_clock_came(&mover->clock, duty, arrival->lane.chunk.bytes);
    }
    if (duty->hop_out == MPATH_DUTY_NO_HOP) {
        *to_p = place_of(mover, duty, &arrival->lane.chunk);
    } else {
        /* No chunk that waited before is pushed here: it may be of another rail, whose lock must not be taken under this one's. */
        status = (mover->queues[duty->outlet].first == NULL && !outlet_is_blocked(mover, duty->outlet))
                     ? flight_reserve(mover, flight)
                     : MPATH_NO_RESOURCE;
        *to_p  = flight->slot;
    }
    if (status == MPATH_NO_RESOURCE) {
        flight_queue(mover, flight);
        return MPATH_INPROGRESS;
    }
    if (status != MPATH_OK) {
        flight_put(mover, flight);
        return status;
    }
    *item_p = flight;
    duty->fetches++;
    return MPATH_OK;
}

static void mover_placed(void *argument, const mpath_chunk_t *chunk, void *item)
{
    mpath_mover_t *mover = argument;
    flight_t *flight     = item;

    flight->duty->fetches--;
    if (mover->is_timed && (flight->arrival.lane.data == NULL)) {
        mpath_rail_clock_came(&mover->clock, flight->duty, chunk->bytes);
    }
    flight_finish(mover, flight);
}

static void mover_sent(void *argument, const mpath_chunk_t *chunk, void *item)
{
    mpath_mover_t *mover = argument;
    flight_t *flight     = item;

    (void)chunk;
    mover_end_arrival(mover, &flight->arrival);
    flight_finish(mover, flight);
}

/*
 * A slot that is never committed would be lost to everybody. What is in it is no chunk, which its reader, who may still be
 * in this attempt, sees by its length.
 */
static void give_slot_back(mpath_mover_t *mover, flight_t *flight)
{
    if (flight->slot != NULL) {
        flight->arrival.lane.chunk.bytes = 0;
        mover_commit(mover, flight);
    }
}

static void mover_dropped(void *argument, void *item)
{
    mpath_mover_t *mover = argument;
    flight_t *flight     = item;

    if (flight->arrival.rail == ARRIVAL_BY_SLOT) { /* it was sent on; what was taken has ended */
        mover_end_arrival(mover, &flight->arrival);
    }
    give_slot_back(mover, flight);
    flight_put(mover, flight);
}

/* What comes by slots. */

/* A chunk of an attempt that was given up, or a slot that was given up before a chunk was in it. */
static int is_stale(const mpath_mover_t *mover, const mpath_chunk_t *chunk)
{
    return (chunk->bytes == 0) ||
           ((mpath_links_repeats(mover->links) > 0) && ((int32_t)(mover->call_number - chunk->call) > 0));
}

/* Takes it to its place, or on to the next outlet when that has room. Ends it in case of an error. */
static mpath_status_t mover_handle(mpath_mover_t *mover, const mpath_wire_arrival_t *arrival)
{
    const mpath_chunk_t *chunk = &arrival->lane.chunk;
    mpath_lane_t *lane         = arrival->lane.lane;
    outlet_queue_t *queue;
    mpath_duty_t *duty;
    flight_t *flight;
    int result = 0;

    if (mover->failed != MPATH_OK || is_stale(mover, chunk)) {
        mover_end_arrival(mover, arrival);
        return mover->failed;
    }
    duty = expect(mover, chunk);
    if (duty == NULL) {
        mover_end_arrival(mover, arrival);
        return MPATH_ERR_INTERNAL;
    }
    if (duty->hop_out == MPATH_DUTY_NO_HOP) {
        mpath_status_t status = lane->ops->take(lane, &arrival->lane, place_of(mover, duty, chunk), NULL);

        if (status == MPATH_OK) {
            mover_count(mover, duty, chunk->bytes);
        }
        return status;
    }
    flight = flight_get(mover, duty, arrival);
    if (flight == NULL) {
        mover_end_arrival(mover, arrival);
        return MPATH_ERR_NO_MEMORY;
    }
    queue = &mover->queues[duty->outlet];
    flight_queue(mover, flight);
    if (queue->first == flight && !outlet_is_blocked(mover, duty->outlet)) {
        result = push_waiting(mover, duty->outlet);
    }
    return (result < 0) ? (mpath_status_t)result : MPATH_OK;
}

/* Lane callback of the shared memory lanes; `argument` is the mover. */
static void mover_arrive(void *argument, const mpath_arrival_t *arrival)
{
    mpath_mover_t *mover = argument;

    mover->failed = mover_handle(mover, &(mpath_wire_arrival_t){.rail = ARRIVAL_BY_SLOT, .lane = *arrival});
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

static void drop_queues(mpath_mover_t *mover)
{
    for (size_t i = 0; i < mover->schedule->num_outlets; i++) {
        outlet_queue_t *queue = &mover->queues[i];

        while (queue->first != NULL) {
            flight_t *flight = queue->first;

            queue->first = flight->next;
            mover_end_arrival(mover, &flight->arrival);
            give_slot_back(mover, flight);
            flight_put(mover, flight);
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
    mpath_wire_stop(mover->wire);
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
        mpath_wire_abandon(mover->wire);
    }
}

/* The end of a call for this rank, whatever came of it, as of mpath_failover_settle(). */
static mpath_status_t mover_settle(mpath_mover_t *mover, mpath_status_t status)
{
    const mpath_failover_loss_t loss = {.lost = mpath_wire_lost(mover->wire)};

    if (status != MPATH_OK) {
        mover_stop(mover);
        mover->failed = MPATH_OK;
    }
    status = mpath_failover_settle(mover->team, status, &loss);
    if (status == MPATH_AGAIN) {
        mpath_status_t restarted = mpath_wire_restart(mover->wire);

        mover_drop_until(mover, mover->call_number);
        status = (restarted == MPATH_OK) ? MPATH_AGAIN : restarted;
    }
    return status;
}

/* Waiting inside a call (team/wait.h): whether the others still answer, and who is waited for. */

static const char *host_of(const mpath_team_t *team, int rank)
{
    return mpath_topo_host(mpath_team_topo(team), mpath_team_node_of(team, rank));
}

static void hop_text(const mpath_mover_t *mover, const mpath_hop_t *hop, char *text, size_t size)
{
    const mpath_team_t *team = mover->team;

    if (hop->lane == MPATH_LANE_RAIL) {
        snprintf(
            text, size, "rail %s",
            mpath_topo_machine(mpath_team_topo(team), mpath_team_node_of(team, hop->from))->nics[hop->nic_from].name);
    } else {
        snprintf(text, size, "shared memory");
    }
}

static mpath_status_t hop_status(mpath_mover_t *mover, const mpath_duty_t *duty, const mpath_hop_t *hop, int peer_rank)
{
    if (hop->lane != MPATH_LANE_RAIL) {
        return mpath_team_peer_status(mover->team, peer_rank);
    }
    /* What TCP has taken for sent may be lost with the connection, which then only the receiver misses. */
    return (hop == &duty->out) ? mpath_wire_peer_status(mover->wire, hop->nic_from, peer_rank, hop->nic_to)
                               : mpath_wire_peer_status(mover->wire, hop->nic_to, peer_rank, hop->nic_from);
}

static void lose_hop(mpath_mover_t *mover, const mpath_duty_t *duty, const mpath_hop_t *hop)
{
    if (hop->lane == MPATH_LANE_RAIL) {
        mpath_wire_lose(mover->wire, (hop == &duty->out) ? hop->nic_from : hop->nic_to);
    }
}

static void give_up(mpath_mover_t *mover, const mpath_duty_t *duty, const mpath_hop_t *hop, int seconds)
{
    char text[MPATH_NIC_NAME_MAX + 16];

    if (mpath_wire_lost(mover->wire) == 0) {
        hop_text(mover, hop, text, sizeof(text));
        mpath_warn("%s: nothing has moved between rank %d (%s) and rank %d (%s) by %s for %d s; the call is repeated "
                   "over other rails",
                   mpath_team_name(mover->team), hop->from, host_of(mover->team, hop->from), hop->to,
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
        const mpath_hop_t *hop   = mpath_duty_awaits(duty) ? &duty->in : &duty->out;

        if (!mpath_duty_is_done(duty) && (hop->lane == MPATH_LANE_RAIL) &&
            (mpath_duty_awaits(duty) || (duty->hop_out >= 0))) {
            give_up(mover, duty, hop, seconds);
        }
        if (duty->fetches > 0) {
            give_up(mover, duty, &duty->in, seconds);
        }
    }
    return (mpath_wire_lost(mover->wire) != 0) ? MPATH_ERR_UNREACHABLE : MPATH_OK;
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
        mpath_team_name(mover->team), peer_rank, host_of(mover->team, peer_rank), text, mpath_status_string(status),
        (unsigned long long)(duty->bytes - duty->done_bytes), duty->source, duty->destination, next);
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
    int waits             = mpath_duty_awaits(duty);
    mpath_status_t status = MPATH_OK;

    if (mpath_duty_is_done(duty)) {
        return MPATH_OK;
    }
    if (waits || duty->fetches > 0) {
        status = check_hop(mover, duty, &duty->in);
    }
    return (status == MPATH_OK) && !waits && (duty->hop_out != MPATH_DUTY_NO_HOP) ? check_hop(mover, duty, &duty->out)
                                                                                  : status;
}

static mpath_status_t mover_check(void *engine, uint64_t waited_ns)
{
    mpath_mover_t *mover  = engine;
    mpath_status_t status = MPATH_OK;

    (void)waited_ns;

    for (size_t i = 0; (i < mover->schedule->num_duties) && (status == MPATH_OK); i++) {
        status = check_duty(mover, &mover->schedule->duties[i]);
    }
    return status;
}

/* The edge of a chunk which has not come, for it is the likelier cause; else of one that is not passed on. */
static const mpath_duty_t *mover_first_missing(const mpath_mover_t *mover)
{
    const mpath_duty_t *edge = NULL;

    for (size_t i = 0; i < mover->schedule->num_duties; i++) {
        const mpath_duty_t *duty = &mover->schedule->duties[i];

        if (!mpath_duty_is_done(duty) && ((edge == NULL) || (mpath_duty_awaits(duty) && !mpath_duty_awaits(edge)))) {
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
    int waits                  = duty != NULL && mpath_duty_awaits(duty), peer;
    char lane[MPATH_NIC_NAME_MAX + 16];
    const mpath_hop_t *hop;

    (void)why;
    if (duty == NULL) {
        snprintf(text, size, "%s, call %u: rank %d (%s) waits to end what it sends", mpath_team_name(team),
                 mover->call_number, mpath_team_rank(team), host_of(team, mpath_team_rank(team)));
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
             mpath_team_name(team), mover->call_number, mpath_team_rank(team), host_of(team, mpath_team_rank(team)),
             waits ? "for chunks of" : "to hand chunks to", peer, host_of(team, peer), lane,
             (unsigned long long)(duty->bytes - duty->done_bytes), (unsigned long long)duty->bytes, duty->source,
             duty->destination);
    return 1;
}

#define SELF_PIECE_BYTES 65536u /* of the diagonal, copied between two looks at the lanes */

/* Makes the queues of a new schedule, and connects to where they lead. */
static mpath_status_t make_queues(mpath_mover_t *mover, mpath_schedule_t *schedule)
{
    size_t words = schedule->num_outlets / WORD_BITS + 1;
    size_t bytes = schedule->num_outlets * sizeof(outlet_queue_t) + (OUTLET_KINDS + 1) * words * sizeof(uint64_t);
    outlet_queue_t *queues = calloc(1, bytes);
    uint64_t *sets;
    int peer;

    if (queues == NULL) {
        mpath_error("%s: no memory for %zu queues; the call fails", mpath_team_name(mover->team),
                    schedule->num_outlets);
        return MPATH_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < schedule->num_outlets; i++) {
        const mpath_outlet_t *outlet = &schedule->outlets[i];

        for (uint32_t k = 0; k < outlet->num_own; k++) {
            queues[i].own_chunks += schedule->duties[schedule->own[outlet->own + k]].num_chunks;
        }
        /*
         * Connections begin before anything is sent. One that does while its call is given up ends, with what it has to
         * send, before the other end has answered, which UCX before 1.14 does not survive there.
         */
        if (outlet->kind == MPATH_OUTLET_RAIL) {
            peer = mpath_links_peer(mover->links, outlet->nic, outlet->rank, outlet->nic_to);
            if (peer < 0) {
                free(queues);
                return (mpath_status_t)peer;
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
    status = mpath_schedule_create(mpath_team_topo(mover->team), mpath_team_rank(mover->team), plan, &limits,
                                   &schedule);
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
    int me = mpath_team_rank(mover->team);

    for (size_t i = 0; i < mover->schedule->num_duties; i++) {
        const mpath_duty_t *duty = &mover->schedule->duties[i];
        uint64_t end             = duty->offset + duty->bytes;

        if (((duty->source == me) && (end > call->send_bytes[duty->destination])) ||
            ((duty->destination == me) && (end > call->recv_bytes[duty->source]))) {
            mpath_error("%s: the plan moves bytes up to %llu from rank %d to rank %d, beyond their message; the call "
                        "fails",
                        mpath_team_name(mover->team), (unsigned long long)end, duty->source, duty->destination);
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
    mover->self_left    = call->send_bytes[mpath_team_rank(mover->team)];
    mover->first_outlet = 0;
    mover->rails_full   = 0;
    mover->failed       = MPATH_OK;
    mover->is_timed     = mpath_plan_z_ns(plan) >= MPATH_RAIL_TIMES_LEAST_NS;
    mover->settles_call = mpath_team_settles(mover->team, mpath_plan_z_ns(plan));
    memset(&mover->stats, 0, sizeof(mover->stats));
    return MPATH_OK;
}

static int drive_wire(mpath_mover_t *mover)
{
    return mpath_wire_progress(mover->wire);
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
    return (mover->failed != MPATH_OK) ? (int)mover->failed : events;
}

/* A piece of what this rank sends to itself. */
static int copy_self(mpath_mover_t *mover)
{
    const mpath_call_t *call = mover->call;
    int me                   = mpath_team_rank(mover->team);
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
    static int (*const steps[])(mpath_mover_t *) = {drive_wire, progress_slots, mover_feed_rails, mover_feed_slots,
                                                    copy_self};
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
        mpath_idle_yield();
    }
    return *events_p < 0 ? (mpath_status_t)*events_p : MPATH_INPROGRESS;
}

static mpath_status_t run(mpath_mover_t *mover)
{
    static const mpath_wire_ops_t wire_ops = {
        .place = mover_place, .placed = mover_placed, .sent = mover_sent, .dropped = mover_dropped};
    static const mpath_wait_ops_t ops = {
        .look = mover_look, .check = mover_check, .lose_silent = mover_lose_silent, .edge = mover_edge};

    mpath_wire_begin(mover->wire, &wire_ops, mover, mover->schedule->rails, mover->settles_call);
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
    flight_t *flight;

    while ((flight = mover->spare) != NULL) {
        mover->spare = flight->next;
        free(flight);
    }
    mpath_schedule_destroy(mover->schedule);
    free(mover->queues);
    mpath_rail_clock_release(&mover->clock);
    free(mover);
}

static const mpath_links_user_ops_t mover_links_ops = {.changed = mover_changed};
static const mpath_team_user_ops_t mover_user_ops   = {.destroy = mover_destroy};

static mpath_status_t mover_create(mpath_wire_t *wire, mpath_team_t *team, mpath_mover_t **mover_p)
{
    mpath_mover_t *mover = calloc(1, sizeof(*mover));
    mpath_links_t *links = mpath_links_of(team);

    if ((mover == NULL) || (mpath_rail_clock_init(&mover->clock, team) != MPATH_OK)) {
        mpath_error("%s: no memory to set up the movement of data", mpath_team_name(team));
        free(mover);
        return MPATH_ERR_NO_MEMORY;
    }
    mover->team  = team;
    mover->links = links;
    mover->wire  = wire;
    mover->shm   = mpath_links_shm(links);
    mover->relay = mpath_links_relay(links);
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

/* The first time it is collective. Declines and fails as mpath_wire_get() does. Whom a plan needs is met afterwards. */
static mpath_status_t mover_get(mpath_team_t *team, mpath_mover_t **mover_p)
{
    mpath_wire_t *wire;
    mpath_status_t status;

    *mover_p = mpath_team_attached(team, &mover_user_ops);
    if (*mover_p != NULL) {
        return mpath_links_status((*mover_p)->links);
    }
    status = mpath_wire_get(team, MPATH_LINKS_MET, &wire);
    return (status == MPATH_OK) ? mover_create(wire, team, mover_p) : status;
}

/* Nodes whose ranks have pairs have each other's addresses: no plan goes over others. Collective where that is new to some. */
static mpath_status_t mover_reach(mpath_mover_t *mover, const mpath_agreed_t *agreed)
{
    if (agreed->unmet == MPATH_UNMET_NONE) {
        return MPATH_OK;
    }
    return agreed->unmet == MPATH_UNMET_SOME && agreed->node_sends != NULL
               ? mpath_links_meet(mover->links, agreed)
               : mpath_links_get(mover->team, MPATH_LINKS_ALL, &mover->links);
}

mpath_status_t mpath_move(mpath_team_t *team, const mpath_call_t *call, const mpath_agreed_t *agreed,
                          const mpath_plan_t *plan, mpath_move_stats_t *stats)
{
    mpath_status_t status = mpath_team_status(team);
    mpath_mover_t *mover  = NULL;
    unsigned version      = mpath_team_topo_version(team);
    int bound             = 0;

    if (status == MPATH_OK) {
        status = mover_get(team, &mover);
    }
    if ((status == MPATH_OK) && (version == mpath_team_topo_version(team))) {
        status = mover_reach(mover, agreed);
    }
    if (status == MPATH_DECLINED) {
        return status;
    }
    if ((status == MPATH_OK) && (version != mpath_team_topo_version(team))) {
        return MPATH_AGAIN; /* nothing was moved yet: NICs that the plan counts on do not open */
    }
    if (status == MPATH_OK) {
        status = bind_call(mover, call, agreed, plan);
        bound  = (status == MPATH_OK);
    }
    if (bound) {
        status = run(mover);
        if (mover->settles_call && ((status == MPATH_OK) || (status == MPATH_AGAIN) ||
                                    ((status == MPATH_ERR_UNREACHABLE) && (mpath_wire_lost(mover->wire) != 0)))) {
            status = mover_settle(mover, status);
        } else if (status == MPATH_OK) {
            status = mpath_failover_recover(team);
        }
    }
    if (status != MPATH_OK && status != MPATH_AGAIN) {
        mpath_team_break(team, status);
        if (bound) {
            mover_abandon(mover);
        }
    }
    if (bound) {
        mpath_wire_end(mover->wire);
        mover->call = NULL;
    }
    if (status != MPATH_OK) {
        return status;
    }
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
