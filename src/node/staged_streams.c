/* SPDX-License-Identifier: BSD-3-Clause */
/* Lane "staged", by streams: enqueues what has been enqueued at the other end, looks at the words. */
#include "node/staged_private.h"

#include "util/time.h"

#include <sched.h>
#include <string.h>

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

void mpath_staged_streams_begin(mpath_staged_t *lane)
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

int mpath_staged_streams_have_left(const mpath_staged_t *lane)
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
        at += mpath_staged_chunk(all, at, flow->slot_bytes, flow->short_ends);
        number++;
    }
    for (uint32_t i = 0; full && (i < flow->slots) && (number > flow->before); i++, number--) {
        full = load(&pair->full[word_of(flow, number)]) >= number;
    }
    return full;
}

int mpath_staged_streams_need(const mpath_staged_t *lane, int rank)
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

/* MPATH_INPROGRESS: not now. *tell_p: the other rank may wait for it. */
static mpath_status_t enqueue(mpath_staged_t *lane, const mpath_staged_side_t *side, int to_slot, const step_t *step,
                              int *tell_p)
{
    mpath_status_t status = MPATH_INPROGRESS;

    pthread_mutex_lock(lane->guard.lock);
    *tell_p = may_wait(lane);
    if (*tell_p || (step->awaited == NULL)) {
        lane->used = 1;
        status     = enqueue_on(staged_stream(lane, side, to_slot), side->pinned, step);
    }
    pthread_mutex_unlock(lane->guard.lock);
    return status;
}

/* To the other host, before or after the chunk has come there. */
static void tell(_Atomic uint64_t *word, uint64_t number)
{
    if (atomic_load_explicit(word, memory_order_relaxed) < number) {
        atomic_store_explicit(word, number, memory_order_release);
    }
}

static char *slot_data(const mpath_staged_t *lane, int owner, const staged_flow_t *flow, uint32_t word)
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
    word = word_of(flow, number);
    step = (step_t){
        .awaited = (load(&pair->emptied[word]) < before) ? &pair->emptied[word] : NULL,
        .least   = before,
        .target  = mpath_pinned_device(lane->send.pinned, slot_data(lane, lane->me, flow, word)),
        .source  = (mpath_device_ptr_t)(uintptr_t)(message->address + flow->enqueued_bytes),
        .bytes   = mpath_staged_chunk(message->bytes, flow->enqueued_bytes, flow->slot_bytes, flow->short_ends),
        .done    = &pair->full[word],
        .number  = number};
    status = enqueue(lane, &lane->send, 1, &step, &at_once);
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
        tell(&pair->sends, number);
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
    word = word_of(flow, number);
    step = (step_t){
        .awaited = (load(&pair->full[word]) < number) ? &pair->full[word] : NULL,
        .least   = number,
        .target  = (mpath_device_ptr_t)(uintptr_t)(message->address + flow->enqueued_bytes),
        .source  = mpath_pinned_device(lane->receive.pinned, slot_data(lane, from, flow, word)),
        .bytes   = mpath_staged_chunk(message->bytes, flow->enqueued_bytes, flow->slot_bytes, flow->short_ends),
        .done    = &pair->emptied[word],
        .number  = number};
    status = enqueue(lane, &lane->receive, 0, &step, &at_once);
    if (status != MPATH_OK) {
        return (status == MPATH_INPROGRESS) ? 0 : (int)status;
    }
    count(flow, word, step.bytes);
    lane->coming++;
    if (at_once) {
        tell(&pair->receives, number);
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
        bytes = mpath_staged_chunk(lane->send.messages[to].bytes, flow->done_bytes, flow->slot_bytes, flow->short_ends);
        flow->done++;
        flow->done_bytes += bytes;
        lane->leaving--;
        tell(&pair->sends, flow->done);
        mpath_staged_note_sent(lane, bytes);
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
        bytes  = mpath_staged_chunk(lane->receive.messages[from].bytes, at, flow->slot_bytes, flow->short_ends);
        status = heed(lane);
        if (status == MPATH_OK) {
            flow->done++;
            flow->done_bytes += bytes;
            lane->coming--;
            tell(&pair->receives, flow->done);
            status = mpath_staged_note_received(lane, from, at, bytes);
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

int mpath_staged_streams_progress(mpath_staged_t *lane)
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
void mpath_staged_streams_abandon(mpath_staged_t *lane, uint64_t timeout_ns)
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
