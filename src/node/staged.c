/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lane "staged": by hosts, which copy into slots and out of them, and by streams, which are given what has been enqueued
 * at the other end, and look at the words.
 */
#include "node/staged.h"

#include "util/time.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <stdatomic.h>

#define STAGED_PAGE 4096u
#define STAGED_MIN_SLOT_BYTES (64u << 10)
#define STAGED_DEPTH 8u /* slots of a pair by streams, at most */

#define SLOT_FREE 0

typedef struct staged_head {
    _Atomic uint64_t given_up; /* some rank has: not all that comes by streams is data */
    uint8_t padding[56];
} staged_head_t;

/*
 * By hosts. Written by its owner while free, by its receiver while full. Full for whom and in which call is one word:
 * between two looks a slot may be emptied by one receiver and be in flight to another.
 */
typedef struct staged_slot {
    _Atomic uint64_t full_for; /* see slot_tag() */
    uint64_t offset, bytes;    /* in the pair's message */
    uint8_t padding[40];
} staged_slot_t;

/*
 * By streams. Chunks of a pair are numbered from 1 on, over all calls. In a call they go round its slots, and with each
 * slot belong two words, which hold the number of the last chunk that was put there, and that has left it.
 */
typedef struct staged_pair {
    /* Of the sender's host. */
    _Atomic uint64_t sends; /* have been enqueued; what follows is of the call of the last one */
    uint64_t at;            /* of the slots, in the sender's */
    uint64_t slot_bytes;
    uint32_t slots;
    int32_t short_ends; /* see staged_chunk() */
    uint8_t padding[32];
    /* Of the receiver's host. */
    _Atomic uint64_t receives; /* have been enqueued */
    uint8_t more_padding[56];
    /* Of their streams. */
    _Atomic uint64_t full[STAGED_DEPTH];
    _Atomic uint64_t emptied[STAGED_DEPTH];
} staged_pair_t;

_Static_assert(sizeof(staged_head_t) == 64, "one line");
_Static_assert(sizeof(staged_slot_t) == 64, "one line");
_Static_assert(sizeof(staged_pair_t) == 256, "four lines");

/* A copy between a slot and device memory that is under way. */
typedef struct staged_copy {
    int active;
    int to; /* of a copy to a slot: the receiver */
    mpath_stream_t *stream;
    mpath_mark_t mark;
} staged_copy_t;

/* One end of a pair, by streams. */
typedef struct staged_flow {
    uint64_t at, slot_bytes; /* as in the pair, of this call */
    uint32_t slots;
    int short_ends;
    uint64_t before;                     /* chunks of earlier calls */
    uint64_t enqueued, done;             /* chunks over all calls */
    uint64_t enqueued_bytes, done_bytes; /* of this call's message */
    uint64_t last[STAGED_DEPTH];         /* chunk of each word */
} staged_flow_t;

struct mpath_staged {
    mpath_staged_shape_t shape;
    int me;
    staged_head_t *head;
    staged_slot_t *slots; /* [ranks][slots] */
    staged_pair_t *pairs; /* [senders][receivers] */
    char *data;
    uint64_t call;
    mpath_staged_side_t send, receive;
    mpath_staged_guard_t guard;
    uint64_t *received; /* of each rank's message: in place */
    uint64_t send_left, receive_left;
    uint64_t sent_bytes;
    unsigned turns[2]; /* of streams, in each direction */
    int may_send;      /* all that was in this rank's slots before the call has left them */

    /* By hosts. */
    uint32_t host_slots;     /* so many of mine, the first ones */
    uint64_t *sent;          /* of each message: in slots, or in flight to them */
    staged_copy_t *filling;  /* [slots] my slots */
    staged_copy_t *emptying; /* [ranks][slots] */
    int copies;              /* active ones */
    int next_to;             /* receivers take turns */

    /* By streams. */
    unsigned char *by_streams; /* [ranks] what this one sends, in this call */
    staged_flow_t *out, *in;   /* [ranks] */
    unsigned leaving, coming;  /* chunks that are under way */
    int next_out, next_in;     /* they take turns */
    int used;                  /* something was enqueued in this call */
    unsigned quiet;            /* looks at streams since something happened */
};

static inline staged_pair_t *staged_pair(const mpath_staged_t *lane, int from, int to)
{
    return &lane->pairs[(size_t)from * (size_t)lane->shape.num_ranks + (size_t)to];
}

/* Whether a rank sends by streams in this call: once it has enqueued something. */
static inline int staged_comes_by_streams(const mpath_staged_t *lane, int from)
{
    return atomic_load_explicit(&staged_pair(lane, from, lane->me)->sends, memory_order_acquire) >
           lane->in[from].before;
}

/* The stream for the next copy in a direction. */
static inline mpath_stream_t *staged_stream(mpath_staged_t *lane, const mpath_staged_side_t *side, int to_slot)
{
    return ((side->second != NULL) && (++lane->turns[to_slot] % 2 == 0)) ? side->second : side->stream;
}

static void count(staged_flow_t *flow, uint32_t word, uint64_t bytes);

/* Slots of a pair are so long as long as there are two; shorter ones than STAGED_MIN_SLOT_BYTES are not worth waits. */
#define STREAMS_SLOT_BYTES (512u << 10)

/* Chunks of a rank that are under way in each direction: the driver blocks who enqueues much more. */
#define STREAMS_AHEAD 64u

/* Looks without an event between two questions to the driver whether a stream has failed. */
#define STREAMS_LOOKS_PER_CHECK 4096u

/*
 * In all words of a call that was given up: above all numbers of chunks, and so that comparing in a circle holds. A
 * stream may write a number over it, so it is written until nothing waits any more.
 */
#define STREAMS_RELEASED (UINT64_C(1) << 61)

#define STAGED_PIPELINE 8u            /* chunks that a message is cut into when slots are larger */
#define STAGED_END_BYTES (256u << 10) /* of the first and the last ones with two streams */

/*
 * With two streams chunks begin and end short: until the first one is in its slot nothing leaves the host, and while
 * the last one leaves nothing else is under way. Those between are as long as slots.
 */
static uint64_t staged_chunk(uint64_t all, uint64_t at, uint64_t slot_bytes, int short_ends)
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

/* Bytes of a message are in a slot; of another one, in their place. */
static void staged_note_sent(mpath_staged_t *lane, uint64_t bytes)
{
    lane->send_left -= bytes;
    lane->sent_bytes += bytes;
}

/* How long the chunk of a message is that begins after `at` of `all` bytes. */
static mpath_status_t staged_note_received(mpath_staged_t *lane, int from, uint64_t offset, uint64_t bytes)
{
    const mpath_staged_side_t *side = &lane->receive;

    lane->received[from] += bytes;
    lane->receive_left -= bytes;
    return (side->arrived != NULL) ? side->arrived(side->owner, from, offset, bytes) : MPATH_OK;
}

static int goes_by_streams(const mpath_staged_t *lane, int to)
{
    const mpath_staged_message_t *message = &lane->send.messages[to];

    return message->by_streams && (message->bytes > 0) && (lane->send.stream != NULL);
}

/* The slots of each of `count` receivers, in what the hosts leave; 0: they would be too short. */
static uint32_t cut_slots(const mpath_staged_t *lane, unsigned count, uint64_t *slot_bytes_p)
{
    uint64_t share = (uint64_t)(lane->shape.slots - lane->host_slots) * lane->shape.slot_bytes / count;
    uint32_t slots = STAGED_DEPTH;

    while ((slots > 2) && (share / slots < STREAMS_SLOT_BYTES)) {
        slots--;
    }
    *slot_bytes_p = share / slots & ~(uint64_t)(STAGED_PAGE - 1);
    return (*slot_bytes_p < STAGED_MIN_SLOT_BYTES) ? 0 : slots;
}

/* The receivers hear of it with the first chunk. */
static void choose_forms(mpath_staged_t *lane, unsigned streams, unsigned hosts)
{
    uint64_t slot_bytes = 0, at;
    uint32_t slots;

    lane->host_slots = (hosts > 0) ? lane->shape.slots / 2 : 0;
    slots            = (streams > 0) ? cut_slots(lane, streams, &slot_bytes) : 0;
    at               = (uint64_t)lane->host_slots * lane->shape.slot_bytes;
    if (slots == 0) {
        lane->host_slots = lane->shape.slots;
        memset(lane->by_streams, 0, (size_t)lane->shape.num_ranks);
    }
    for (int to = 0; to < lane->shape.num_ranks; to++) {
        staged_flow_t *flow = &lane->out[to];

        if (lane->by_streams[to]) {
            flow->at         = at;
            flow->slot_bytes = slot_bytes;
            flow->slots      = slots;
            flow->short_ends = lane->send.second != NULL;
            at += slots * slot_bytes;
        }
    }
}

/* Which messages go by streams, and where their slots are. */
static void staged_streams_begin(mpath_staged_t *lane)
{
    unsigned streams = 0, hosts = 0;

    lane->leaving = lane->coming = 0;
    lane->used                   = 0;
    lane->quiet                  = 0;
    lane->next_out = lane->next_in = (lane->me + 1) % lane->shape.num_ranks;
    for (int rank = 0; rank < lane->shape.num_ranks; rank++) {
        staged_flow_t *flows[] = {&lane->out[rank], &lane->in[rank]};

        for (int i = 0; i < 2; i++) {
            flows[i]->before         = flows[i]->done;
            flows[i]->enqueued_bytes = flows[i]->done_bytes = 0;
        }
        lane->by_streams[rank] = (unsigned char)goes_by_streams(lane, rank);
        streams += lane->by_streams[rank];
        hosts += !lane->by_streams[rank] && (lane->send.messages[rank].bytes > 0);
    }
    choose_forms(lane, streams, hosts);
    if (lane->host_slots < lane->shape.slots) {
        mpath_debug("call %llu: rank %d sends to %u ranks through the host by streams, to %u by hosts",
                    (unsigned long long)lane->call, lane->me, streams, hosts);
    }
}

/* -- the words -- */

/* Which words belong to a chunk of this call. */
static uint32_t word_of(const staged_flow_t *flow, uint64_t number)
{
    return (uint32_t)((number - flow->before - 1) % flow->slots);
}

static uint64_t load(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_acquire);
}

/* Whether all that this rank has ever sent has left its slots. */
static int staged_streams_have_left(const mpath_staged_t *lane)
{
    int all = 1;

    for (int to = 0; all && (to < lane->shape.num_ranks); to++) {
        for (uint32_t word = 0; all && (word < STAGED_DEPTH); word++) {
            all = load(&staged_pair(lane, lane->me, to)->emptied[word]) >= lane->out[to].last[word];
        }
    }
    return all;
}

/* Whether the sender's streams have done their part of a message. */
static int is_full(const staged_pair_t *pair, const staged_flow_t *flow, uint64_t all)
{
    uint64_t number = flow->enqueued, at = flow->enqueued_bytes;
    int full = flow->enqueued > flow->before; /* else this side does not know the slots */

    while (full && (at < all)) {
        at += staged_chunk(all, at, flow->slot_bytes, flow->short_ends);
        number++;
    }
    for (uint32_t i = 0; full && (i < flow->slots) && (number > flow->before); i++, number--) {
        full = load(&pair->full[word_of(flow, number)]) >= number;
    }
    return full;
}

/* Whether what goes to rank `rank`, or comes from it, depends on what it has yet to do. */
static int staged_streams_need(const mpath_staged_t *lane, int rank)
{
    return (lane->by_streams[rank] &&
            !is_full(staged_pair(lane, lane->me, rank), &lane->out[rank], lane->send.messages[rank].bytes)) ||
           (staged_comes_by_streams(lane, rank) &&
            !is_full(staged_pair(lane, rank, lane->me), &lane->in[rank], lane->receive.messages[rank].bytes));
}

/* -- enqueueing -- */

/* What a stream does with a chunk. */
typedef struct step {
    _Atomic uint64_t *awaited; /* is to be at least `least`; NULL: the host has seen it, or nothing was before */
    uint64_t least;
    mpath_device_ptr_t target, source;
    uint64_t bytes;
    _Atomic uint64_t *done; /* becomes `number` */
    uint64_t number;
} step_t;

/* Under the lock. */
static mpath_status_t enqueue_on(mpath_stream_t *stream, const mpath_pinned_t *pinned, const step_t *step)
{
    mpath_status_t status = mpath_stream_enter(stream);

    if (status != MPATH_OK) {
        return status;
    }
    if (step->awaited != NULL) {
        status = mpath_stream_wait(stream, mpath_pinned_device(pinned, step->awaited), step->least);
    }
    if (status == MPATH_OK) {
        status = mpath_stream_copy(stream, step->target, step->source, (size_t)step->bytes);
    }
    if (status == MPATH_OK) {
        status = mpath_stream_write(stream, mpath_pinned_device(pinned, step->done), step->number);
    }
    mpath_stream_leave(stream);
    return status;
}

static int may_wait(const mpath_staged_t *lane)
{
    return (lane->guard.may_wait == NULL) || lane->guard.may_wait(lane->guard.owner);
}

/* MPATH_INPROGRESS: not now. *waits_p: the other rank may wait for it. */
static mpath_status_t flow_enqueue(mpath_staged_t *lane, const mpath_staged_side_t *side, int to_slot,
                                   const step_t *step, int *waits_p)
{
    mpath_status_t status = MPATH_INPROGRESS;

    pthread_mutex_lock(lane->guard.lock);
    *waits_p = may_wait(lane);
    if (*waits_p || (step->awaited == NULL)) {
        lane->used = 1;
        status     = enqueue_on(staged_stream(lane, side, to_slot), side->pinned, step);
    }
    pthread_mutex_unlock(lane->guard.lock);
    return status;
}

/* To the other host, before or after the chunk has come there. */
static void word_raise(_Atomic uint64_t *word, uint64_t number)
{
    if (atomic_load_explicit(word, memory_order_relaxed) < number) {
        atomic_store_explicit(word, number, memory_order_release);
    }
}

static char *flow_slot_data(const mpath_staged_t *lane, int owner, const staged_flow_t *flow, uint32_t word)
{
    uint64_t all = (uint64_t)lane->shape.slots * lane->shape.slot_bytes;

    return lane->data + (uint64_t)owner * all + flow->at + word * flow->slot_bytes;
}

static void count(staged_flow_t *flow, uint32_t word, uint64_t bytes)
{
    flow->enqueued++;
    flow->enqueued_bytes += bytes;
    flow->last[word] = flow->enqueued;
}

/* The next chunk for a receiver: 1, 0: there is none that may be enqueued, or an error status. */
static int send_next(mpath_staged_t *lane, int to)
{
    const mpath_staged_message_t *message = &lane->send.messages[to];
    staged_pair_t *pair                   = staged_pair(lane, lane->me, to);
    staged_flow_t *flow                   = &lane->out[to];
    uint64_t number                       = flow->enqueued + 1;
    uint64_t before = (number - flow->before > flow->slots) ? number - flow->slots : 0; /* in the same slot */
    mpath_status_t status;
    uint32_t word;
    int at_once;
    step_t step;

    if (!lane->by_streams[to] || (flow->enqueued_bytes == message->bytes) || (load(&pair->receives) < before)) {
        return 0;
    }
    word   = word_of(flow, number);
    step   = (step_t){.awaited = (load(&pair->emptied[word]) < before) ? &pair->emptied[word] : NULL,
                      .least   = before,
                      .target  = mpath_pinned_device(lane->send.pinned, flow_slot_data(lane, lane->me, flow, word)),
                      .source  = (mpath_device_ptr_t)(uintptr_t)(message->address + flow->enqueued_bytes),
                      .bytes   = staged_chunk(message->bytes, flow->enqueued_bytes, flow->slot_bytes, flow->short_ends),
                      .done    = &pair->full[word],
                      .number  = number};
    status = flow_enqueue(lane, &lane->send, 1, &step, &at_once);
    if (status != MPATH_OK) {
        return (status == MPATH_INPROGRESS) ? 0 : (int)status;
    }
    if (number == flow->before + 1) {
        pair->at         = flow->at;
        pair->slot_bytes = flow->slot_bytes;
        pair->slots      = flow->slots;
        pair->short_ends = flow->short_ends;
    }
    count(flow, word, step.bytes);
    lane->leaving++;
    if (at_once) {
        word_raise(&pair->sends, number);
    }
    return 1;
}

/* The same from a sender. */
static int receive_next(mpath_staged_t *lane, int from)
{
    const mpath_staged_message_t *message = &lane->receive.messages[from];
    staged_pair_t *pair                   = staged_pair(lane, from, lane->me);
    staged_flow_t *flow                   = &lane->in[from];
    uint64_t number                       = flow->enqueued + 1;
    mpath_status_t status;
    uint32_t word;
    int at_once;
    step_t step;

    if ((flow->enqueued_bytes == message->bytes) || (load(&pair->sends) < number)) {
        return 0;
    }
    if (number == flow->before + 1) {
        flow->at         = pair->at;
        flow->slot_bytes = pair->slot_bytes;
        flow->slots      = pair->slots;
        flow->short_ends = pair->short_ends;
    }
    word   = word_of(flow, number);
    step   = (step_t){.awaited = (load(&pair->full[word]) < number) ? &pair->full[word] : NULL,
                      .least   = number,
                      .target  = (mpath_device_ptr_t)(uintptr_t)(message->address + flow->enqueued_bytes),
                      .source  = mpath_pinned_device(lane->receive.pinned, flow_slot_data(lane, from, flow, word)),
                      .bytes   = staged_chunk(message->bytes, flow->enqueued_bytes, flow->slot_bytes, flow->short_ends),
                      .done    = &pair->emptied[word],
                      .number  = number};
    status = flow_enqueue(lane, &lane->receive, 0, &step, &at_once);
    if (status != MPATH_OK) {
        return (status == MPATH_INPROGRESS) ? 0 : (int)status;
    }
    count(flow, word, step.bytes);
    lane->coming++;
    if (at_once) {
        word_raise(&pair->receives, number);
    }
    return 1;
}

/* One chunk for the next receiver that has any, and one from the next sender. */
static int start_some(mpath_staged_t *lane)
{
    int n = lane->shape.num_ranks, sent = 0, received = 0;

    for (int i = 0, to = lane->next_out; lane->may_send && (lane->leaving < STREAMS_AHEAD) && (i < n) && (sent == 0);
         i++) {
        sent           = send_next(lane, to);
        to             = (to + 1) % n;
        lane->next_out = to;
    }
    for (int i = 0, from = lane->next_in; (lane->coming < STREAMS_AHEAD) && (i < n) && (received == 0); i++) {
        received      = receive_next(lane, from);
        from          = (from + 1) % n;
        lane->next_in = from;
    }
    return (sent < 0) ? sent : (received < 0) ? received : sent + received;
}

/* -- looking -- */

static int look_at_sent(mpath_staged_t *lane, int to)
{
    staged_pair_t *pair = staged_pair(lane, lane->me, to);
    staged_flow_t *flow = &lane->out[to];
    uint64_t bytes;
    int events = 0;

    while ((flow->done < flow->enqueued) && (load(&pair->full[word_of(flow, flow->done + 1)]) > flow->done)) {
        bytes = staged_chunk(lane->send.messages[to].bytes, flow->done_bytes, flow->slot_bytes, flow->short_ends);
        flow->done++;
        flow->done_bytes += bytes;
        lane->leaving--;
        word_raise(&pair->sends, flow->done);
        staged_note_sent(lane, bytes);
        events++;
    }
    return events;
}

/* The rank that gave up has noted it before it let anything through. */
static mpath_status_t heed(const mpath_staged_t *lane)
{
    if (load(&lane->head->given_up)) {
        mpath_debug("rank %d: another rank has given up what goes through the host by streams", lane->me);
        return MPATH_ERR_UNREACHABLE;
    }
    return MPATH_OK;
}

static int look_at_received(mpath_staged_t *lane, int from)
{
    staged_pair_t *pair   = staged_pair(lane, from, lane->me);
    staged_flow_t *flow   = &lane->in[from];
    mpath_status_t status = MPATH_OK;
    uint64_t bytes, at;
    int events = 0;

    while ((status == MPATH_OK) && (flow->done < flow->enqueued) &&
           (load(&pair->emptied[word_of(flow, flow->done + 1)]) > flow->done)) {
        at     = flow->done_bytes;
        bytes  = staged_chunk(lane->receive.messages[from].bytes, at, flow->slot_bytes, flow->short_ends);
        status = heed(lane);
        if (status == MPATH_OK) {
            flow->done++;
            flow->done_bytes += bytes;
            lane->coming--;
            word_raise(&pair->receives, flow->done);
            status = staged_note_received(lane, from, at, bytes);
        }
        events++;
    }
    return (status == MPATH_OK) ? events : (int)status;
}

static void streams_of(const mpath_staged_t *lane, mpath_stream_t **streams)
{
    streams[0] = lane->send.stream;
    streams[1] = lane->send.second;
    streams[2] = lane->receive.stream;
    streams[3] = lane->receive.second;
}

/* Nothing happens: words tell of no failures. */
static mpath_status_t look_at_streams(mpath_staged_t *lane)
{
    mpath_status_t status = heed(lane);
    mpath_stream_t *streams[4];

    if ((status != MPATH_OK) || (++lane->quiet % STREAMS_LOOKS_PER_CHECK != 0)) {
        return status;
    }
    streams_of(lane, streams);
    pthread_mutex_lock(lane->guard.lock);
    for (int i = 0; (i < 4) && (status == MPATH_OK); i++) {
        status = (streams[i] != NULL) ? mpath_stream_check(streams[i]) : MPATH_OK;
    }
    pthread_mutex_unlock(lane->guard.lock);
    return status;
}

static int staged_streams_progress(mpath_staged_t *lane)
{
    int events = 0, result;

    do {
        result = start_some(lane);
        events += result;
    } while (result > 0);
    for (int rank = 0; (result >= 0) && (rank < lane->shape.num_ranks); rank++) {
        events += look_at_sent(lane, rank);
        result = look_at_received(lane, rank);
        events += result;
    }
    if ((result >= 0) && (events == 0) && lane->used) {
        result = (int)look_at_streams(lane);
    }
    return (result < 0) ? result : events;
}

/* -- giving up -- */

static void release(staged_pair_t *pair)
{
    for (uint32_t word = 0; word < STAGED_DEPTH; word++) {
        atomic_store(&pair->full[word], STREAMS_RELEASED);
        atomic_store(&pair->emptied[word], STREAMS_RELEASED);
    }
}

/* A number may have come over it since. */
static void release_mine(const mpath_staged_t *lane)
{
    for (int rank = 0; rank < lane->shape.num_ranks; rank++) {
        release(staged_pair(lane, lane->me, rank));
        release(staged_pair(lane, rank, lane->me));
    }
}

static void finish(mpath_staged_t *lane, mpath_stream_t *stream, uint64_t deadline_ns)
{
    mpath_status_t status;
    mpath_mark_t mark;

    pthread_mutex_lock(lane->guard.lock);
    status = mpath_stream_mark(stream, &mark);
    pthread_mutex_unlock(lane->guard.lock);
    if (status != MPATH_OK) {
        return;
    }
    do {
        release_mine(lane);
        sched_yield();
        pthread_mutex_lock(lane->guard.lock);
        status = mpath_stream_done(stream, mark);
        pthread_mutex_unlock(lane->guard.lock);
    } while ((status == MPATH_INPROGRESS) && (mpath_time_ns() < deadline_ns));
    if (status == MPATH_INPROGRESS) {
        mpath_error("rank %d: staged copies of a call that failed have not ended in time", lane->me);
    }
}

/* The streams of all ranks go on, whoever looks: those of a rank that has died would be waited for without end. */
static void staged_streams_abandon(mpath_staged_t *lane, uint64_t timeout_ns)
{
    size_t pairs         = (size_t)lane->shape.num_ranks * (size_t)lane->shape.num_ranks;
    uint64_t deadline_ns = mpath_time_ns() + timeout_ns;
    mpath_stream_t *streams[4];

    if (!lane->used) {
        return;
    }
    atomic_store(&lane->head->given_up, 1);
    for (size_t i = 0; i < pairs; i++) {
        release(&lane->pairs[i]);
    }
    streams_of(lane, streams);
    for (int i = 0; i < 4; i++) {
        if (streams[i] != NULL) {
            finish(lane, streams[i], deadline_ns);
        }
    }
    lane->used = 0;
}

static int may_send(mpath_staged_t *lane);
static int staged_hosts_progress(mpath_staged_t *lane);
static void staged_hosts_abandon(mpath_staged_t *lane, uint64_t timeout_ns);

#define STAGED_MAX_SLOTS 8u
#define STAGED_MAX_SLOT_BYTES (4u << 20)

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
    staged_streams_begin(lane);
}

/*
 * A call divides the slots anew. All ranks have mostly ended the call before when they agree on the next one; where they
 * have not, what they have yet to take stays.
 */
static int may_send(mpath_staged_t *lane)
{
    const staged_slot_t *mine = &lane->slots[(size_t)lane->me * lane->shape.slots];
    int all                   = staged_streams_have_left(lane);

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
    by_streams = staged_streams_progress(lane);
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

    return sends || comes || staged_streams_need(lane, rank);
}

void mpath_staged_abandon(mpath_staged_t *lane, uint64_t timeout_ns)
{
    staged_streams_abandon(lane, timeout_ns);
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

    staged_note_sent(lane, slot->bytes);
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
    slot->bytes  = staged_chunk(lane->send.messages[to].bytes, slot->offset, lane->shape.slot_bytes,
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
    return staged_note_received(lane, from, offset, bytes);
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
