/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Alltoallv on device memory: the board, what a rank tells of its buffers, the order of the steps, and what a rank starts:
 * one kernel for its small pairs, the fragments of its large pairs in order for the copy engine, what it sends to itself,
 * and its staged messages.
 *
 * Help: a kernel on few multiprocessors that writes a part of what copy engines push. An engine leaves the port of its GPU
 * idle for some microseconds between two fragments, which the stores of a kernel can fill; while both are at work they share
 * the port. Two H200 carry 362 GB/s by engines in fragments of 8 MiB with a kernel that writes as much, where the engines
 * alone reach 326 (doc/benchmarks/2026-11-22-h200.md). What it is worth depends on the machine, so it is tried, by
 * kind of call (tune/trial.h), beginning with what others have found (node/history.h).
 */
#include "node/history.h"
#include "node/node_private.h"

#include "device/memory.h"
#include "device/stream.h"
#include "team/wait.h"
#include "tune/trial.h"
#include "util/log.h"
#include "util/time.h"

#include <stdlib.h>
#include <string.h>

/*
 * The end of a call on device memory: a rank waits until its own copies are done and all of its sources have written
 * the number of the call. The words are in host memory, so looking costs nothing and needs no driver; they are written
 * after the bytes have become visible to the whole system. Every wait has a deadline that names who waits for whom.
 */

#define WAIT_GIVE_UP_NS (5 * MPATH_NS_PER_S) /* for what is under way when a call has failed */

static int is_done(const mpath_gpu_coll_t *gpu, const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_acquire) >= gpu->number;
}

/* Where the streams cannot write words, the host does. Also looks at the copy to itself. */
static mpath_status_t look_at_marks(mpath_gpu_coll_t *gpu)
{
    mpath_status_t status = MPATH_OK;

    if (gpu->engine_started && gpu->posts && (gpu->engine_mark != 0)) {
        mpath_gpu_coll_lock();
        status = mpath_stream_done(gpu->engine_stream, gpu->engine_mark);
        mpath_gpu_coll_unlock();
        if (status == MPATH_OK) {
            gpu->engine_mark = 0;
            atomic_store_explicit(&gpu->board.words[gpu->me].engine_done, gpu->number, memory_order_release);
        }
    }
    if (!mpath_status_is_error(status) && (gpu->self_started == 1)) {
        mpath_gpu_coll_lock();
        status = mpath_stream_done(gpu->self_stream, gpu->self_mark);
        mpath_gpu_coll_unlock();
        gpu->self_started = (status == MPATH_OK) ? 0 : 1;
    }
    return mpath_status_is_error(status) ? status : MPATH_OK;
}

/* What a pair's message sends through host memory: all, its end, or nothing. */
static uint64_t gpu_staged_bytes(const mpath_gpu_coll_t *gpu, int source, int destination)
{
    size_t pair = (size_t)source * (size_t)gpu->size + (size_t)destination;

    return (gpu->decided.lanes[pair] == LANE_STAGED) ? gpu->demand[pair] : gpu->decided.beside[pair];
}

/* What the sender's kernel writes of a message that its engine pushes. */
static uint64_t gpu_helped_bytes(const mpath_gpu_coll_t *gpu, int source, int destination)
{
    return gpu->decided.helped[(size_t)source * (size_t)gpu->size + (size_t)destination];
}

/* My own copies have left my send buffer. */
static int is_sent(const mpath_gpu_coll_t *gpu)
{
    const mpath_board_words_t *words = &gpu->board.words[gpu->me];

    return (!gpu->kernel_started || is_done(gpu, &words->kernel_done)) &&
           (!gpu->engine_started || is_done(gpu, &words->engine_done)) && (gpu->self_started != 1);
}

/* Whether rank `rank` has yet to write the word that says that its message is here. */
static int is_missing(const mpath_gpu_coll_t *gpu, int rank)
{
    const mpath_board_words_t *words = &gpu->board.words[rank];
    gpu_lane_t lane                  = gpu_lane(gpu, rank, gpu->me);

    return (((lane == LANE_KERNEL) || (gpu_helped_bytes(gpu, rank, gpu->me) > 0)) &&
            !is_done(gpu, &words->kernel_done)) ||
           ((lane == LANE_PUSH) && !is_done(gpu, &words->engine_done));
}

/* The first rank of which something is missing; -1: none. */
static int first_missing(const mpath_gpu_coll_t *gpu)
{
    int rank = 0;

    while ((rank < gpu->size) && !is_missing(gpu, rank)) {
        rank++;
    }
    return (rank < gpu->size) ? rank : -1;
}

/* Changes whenever anything of what this rank waits for goes on: what others write here is no event of a look. */
static uint64_t copy_landed(const void *engine)
{
    const mpath_gpu_coll_t *gpu = engine;
    uint64_t sum                = 0;

    for (int rank = 0; rank < gpu->size; rank++) {
        const mpath_board_words_t *words = &gpu->board.words[rank];

        sum += atomic_load_explicit(&words->kernel_done, memory_order_relaxed) +
               atomic_load_explicit(&words->engine_done, memory_order_relaxed);
    }
    return sum;
}

/* The streams on which this rank may have work; NULL where not. */
static void own_streams(const mpath_gpu_coll_t *gpu, mpath_stream_t **streams)
{
    streams[0] = (gpu->engine_started || gpu->beside.waits) ? gpu->engine_stream : NULL;
    streams[1] = (gpu->self_started == 1) ? gpu->self_stream : NULL;
    streams[2] = NULL;
    if (gpu->kernel_started) {
        (void)mpath_stream_get(gpu->send.gpu, gpu->first_stream + 1, &streams[2]);
    }
}

/* A fault in a kernel or a copy shows on the streams, never in the words. */
static mpath_status_t check_streams(mpath_gpu_coll_t *gpu)
{
    mpath_stream_t *streams[3];
    mpath_status_t status = MPATH_OK;

    own_streams(gpu, streams);
    mpath_gpu_coll_lock();
    for (int i = 0; (i < 3) && !mpath_status_is_error(status); i++) {
        mpath_mark_t mark;

        if (streams[i] != NULL) {
            status = mpath_stream_mark(streams[i], &mark);
            if (status == MPATH_OK) {
                status = mpath_stream_done(streams[i], mark);
            }
        }
    }
    mpath_gpu_coll_unlock();
    return mpath_status_is_error(status) ? status : MPATH_OK;
}

/* Whether this rank's call still depends on something that rank `rank` has yet to do. */
static int needs(const mpath_gpu_coll_t *gpu, int rank)
{
    return is_missing(gpu, rank) || (gpu->staged_started && mpath_staged_needs(gpu->board.staged, rank));
}

static mpath_status_t check_processes(mpath_gpu_coll_t *gpu)
{
    for (int rank = 0; rank < gpu->size; rank++) {
        if ((rank != gpu->me) && needs(gpu, rank) && !mpath_board_is_alive(&gpu->board, gpu->half, rank) &&
            needs(gpu, rank)) { /* it may have done its part and ended between the looks */
            mpath_error("rank %d has ended while rank %d waits for it in call %llu on device memory; the call fails",
                        rank, gpu->me, (unsigned long long)gpu->number);
            return MPATH_ERR_UNREACHABLE;
        }
    }
    return MPATH_OK;
}

static int copy_edge(const void *engine, mpath_wait_why_t why, int *rank_p, char *text, size_t size)
{
    const mpath_gpu_coll_t *gpu = engine;
    int rank                    = first_missing(gpu);
    unsigned long long number   = gpu->number;
    uint64_t bytes              = 0;

    (void)why;
    *rank_p = rank;
    if (rank >= 0) {
        snprintf(text, size, "rank %d waits for rank %d: %llu bytes by lane peer (%s) in call %llu on device memory",
                 gpu->me, rank, (unsigned long long)gpu_bytes(gpu, rank, gpu->me),
                 gpu_lane(gpu, rank, gpu->me) == LANE_KERNEL ? "kernel" : "copy engine", number);
        return 1;
    }
    rank = *rank_p = gpu->staged_started ? mpath_staged_waits_for(gpu->board.staged, &bytes) : -1;
    if (rank >= 0) {
        snprintf(text, size, "rank %d waits for rank %d: %llu bytes by lane staged in call %llu on device memory",
                 gpu->me, rank, (unsigned long long)bytes, number);
        return 1;
    }
    rank = *rank_p = gpu->staged_started ? mpath_staged_waits_to_send(gpu->board.staged, &bytes) : -1;
    if (rank >= 0) {
        snprintf(text, size,
                 "rank %d waits for rank %d to take what came before by lane staged: %llu bytes are left to be sent in "
                 "call %llu on device memory",
                 gpu->me, rank, (unsigned long long)bytes, number);
        return 1;
    }
    snprintf(text, size, "rank %d waits for its own copies in call %llu on device memory", gpu->me, number);
    return 1;
}

/* After a failure: nothing of this rank may be under way when its caller gets its buffers back. */
static void abandon(mpath_gpu_coll_t *gpu)
{
    mpath_stream_t *streams[3];

    atomic_store_explicit(&gpu->board.words[gpu->me].stop, gpu->number, memory_order_release);
    own_streams(gpu, streams);
    for (int i = 0; i < 3; i++) {
        mpath_mark_t mark;

        if (streams[i] != NULL) {
            mpath_gpu_coll_lock();
            if (mpath_stream_mark(streams[i], &mark) == MPATH_OK) {
                (void)mpath_stream_finish(streams[i], mark, WAIT_GIVE_UP_NS, "copies of a call that failed");
            }
            mpath_gpu_coll_unlock();
        }
    }
    if (gpu->staged_started) {
        mpath_staged_abandon(gpu->board.staged, WAIT_GIVE_UP_NS);
    }
}

/*
 * What follows the data that went through the host, once it is here; whether that is done, on all ranks if they wait
 * for each other.
 */
static mpath_status_t look_beside(mpath_gpu_coll_t *gpu)
{
    gpu_beside_t *beside = &gpu->beside;
    int done             = 1;

    if (!mpath_staged_is_finished(gpu->board.staged)) {
        return MPATH_INPROGRESS;
    }
    if (beside->then != NULL) {
        mpath_status_t status = beside->then(gpu);

        beside->then  = NULL;
        beside->waits = 1;
        if (status != MPATH_OK) {
            return status;
        }
    }
    for (int rank = 0; beside->waits && done && (rank < gpu->size); rank++) {
        done = ((rank != gpu->me) && !beside->to_all) || is_done(gpu, &gpu->board.words[rank].engine_done);
    }
    return done ? MPATH_OK : MPATH_INPROGRESS;
}

static void note_time(const gpu_beside_t *beside, uint64_t *time_ns)
{
    if ((beside->start_ns != 0) && (*time_ns == 0)) {
        *time_ns = mpath_time_ns() - beside->start_ns;
    }
}

/* Those that have ended go into the timeline. */
static void look_at_spans(mpath_gpu_coll_t *gpu)
{
    static const int lanes[GPU_SPANS] = {MPATH_TRACE_GPU_KERNEL, MPATH_TRACE_GPU_ENGINE, MPATH_TRACE_GPU_ENGINE,
                                         MPATH_TRACE_GPU_HOST};
    const mpath_board_words_t *words  = &gpu->board.words[gpu->me];
    const int ended[GPU_SPANS]        = {is_done(gpu, &words->kernel_done), is_done(gpu, &words->engine_done),
                                         gpu->self_started != 1,
                                         gpu->staged_started && mpath_staged_is_finished(gpu->board.staged)};

    for (int kind = 0; kind < GPU_SPANS; kind++) {
        gpu_span_t *span = &gpu->spans[kind];

        if (span->began_ns > 0 && ended[kind]) {
            mpath_record_trace_gpu(mpath_team_record(gpu->team), mpath_team_call(gpu->team), lanes[kind], span->bytes,
                                   span->began_ns);
            span->began_ns = 0;
        }
    }
}

/* One look at everything: MPATH_OK when this rank's part is done. */
static mpath_status_t look(mpath_gpu_coll_t *gpu, int *staged_events_p)
{
    mpath_status_t status = look_at_marks(gpu);

    *staged_events_p = 0;
    if ((status == MPATH_OK) && gpu->staged_started && !mpath_staged_is_finished(gpu->board.staged)) {
        int events = mpath_staged_progress(gpu->board.staged);

        if (events < 0) {
            return (mpath_status_t)events;
        }
        *staged_events_p = events;
    }
    if (status != MPATH_OK) {
        return status;
    }
    if (mpath_trace_is_on()) {
        look_at_spans(gpu);
    }
    status = (is_sent(gpu) && (first_missing(gpu) < 0)) ? MPATH_OK : MPATH_INPROGRESS;
    if (status == MPATH_OK) {
        note_time(&gpu->beside, &gpu->beside.first_ns);
    }
    if (gpu->staged_started) {
        mpath_status_t beside = look_beside(gpu);

        if (beside == MPATH_OK) {
            note_time(&gpu->beside, &gpu->beside.second_ns);
        } else {
            status = beside;
        }
    }
    return status;
}

static mpath_status_t copy_look(void *engine, int *events_p)
{
    return look(engine, events_p);
}

static mpath_status_t copy_check(void *engine, uint64_t waited_ns)
{
    mpath_status_t status = check_processes(engine);

    (void)waited_ns;
    return status == MPATH_OK ? check_streams(engine) : status;
}

/* Until this rank's part is done. On an error nothing of this rank is under way any more. */
static mpath_status_t gpu_coll_wait(mpath_gpu_coll_t *gpu)
{
    static const mpath_wait_ops_t ops = {
        .look = copy_look, .check = copy_check, .landed = copy_landed, .edge = copy_edge};
    mpath_status_t status;
    mpath_wait_t wait;

    mpath_wait_prepare(&wait, gpu->team, 0);
    wait.oob = NULL; /* the MPI library's turns would come between looks at a GPU that takes microseconds */
    status   = mpath_wait(&wait, &ops, gpu);
    if (gpu->staged_started) {
        gpu->counters.staged_bytes += mpath_staged_sent_bytes(gpu->board.staged) - gpu->staged_before;
    }
    if (mpath_status_is_error(status)) {
        mpath_team_break(gpu->team, status);
        abandon(gpu);
    }
    return status;
}

/*
 * Engines that start within 5 us of each other keep step; who is later meets the copies of others at every fragment. A rank
 * that has not come by then is not waited for.
 */
#define MEET_NS 30000u

static mpath_status_t gpu_coll_order_create(mpath_gpu_coll_t *gpu)
{
    mpath_status_t status = mpath_order_create(gpu->size, &gpu->order);

    if (status != MPATH_OK) {
        return status;
    }
    gpu->engine_fragments = calloc(mpath_order_max_fragments(gpu->order), sizeof(*gpu->engine_fragments));
    if (gpu->engine_fragments == NULL) {
        mpath_error("no memory for the fragments of device buffers; they go through the host");
        return MPATH_ERR_NO_MEMORY;
    }
    return MPATH_OK;
}

/* Where this rank's message belongs in the receive buffer of `peer`, as this process addresses it. */
static mpath_device_ptr_t theirs(const mpath_gpu_coll_t *gpu, int peer)
{
    uint64_t offset = mpath_board_offsets(&gpu->board, gpu->half, peer)[gpu->me];

    return mpath_import_address(gpu->decided.imports[MPATH_BOARD_RECV][peer],
                                gpu_cell(gpu, peer)->sides[MPATH_BOARD_RECV].address + offset);
}

/* The same in a buffer of this rank's own. */
static mpath_device_ptr_t mine(const char *buffer, uint64_t offset)
{
    return (mpath_device_ptr_t)(uintptr_t)(buffer + offset);
}

/* The fragments of this rank's engine, in the order that all GPUs follow together. */
static uint32_t make_fragments(mpath_gpu_coll_t *gpu, const mpath_call_t *call, uint64_t *bytes_p)
{
    const mpath_order_fragment_t *fragments;
    uint32_t count;

    fragments = mpath_order_fragments(gpu->order, gpu->me, &count);
    for (uint32_t i = 0; i < count; i++) {
        int peer = fragments[i].destination;

        gpu->engine_fragments[i] = (mpath_peer_fragment_t){.target = theirs(gpu, peer) + fragments[i].offset,
                                                           .source = mine(gpu->send.buffer, call->send_offsets[peer]) +
                                                                     fragments[i].offset,
                                                           .bytes = fragments[i].bytes};
        *bytes_p += fragments[i].bytes;
    }
    gpu->counters.engine_bytes += *bytes_p;
    return count;
}

/* Large pairs: pushed by copy engines. */
static mpath_status_t start_engine(mpath_gpu_coll_t *gpu, const mpath_call_t *call)
{
    mpath_peer_word_t done = {0};
    uint64_t bytes         = 0;
    mpath_status_t status;
    uint32_t count;

    count = gpu->decided.pushes ? make_fragments(gpu, call, &bytes) : 0;
    if (count == 0) {
        return MPATH_OK;
    }
    status = mpath_stream_get(gpu->send.gpu, gpu->first_stream, &gpu->engine_stream);
    if (status != MPATH_OK) {
        return status;
    }
    gpu->posts = !mpath_stream_has_values(gpu->engine_stream);
    if (!gpu->posts) {
        done = (mpath_peer_word_t){.address = mpath_board_device(&gpu->board, &gpu->board.words[gpu->me].engine_done),
                                   .value   = gpu->number};
    }
    gpu->engine_started = 1;
    (void)mpath_board_meet(&gpu->board, gpu->number, gpu->decided.engine_ranks, MEET_NS);
    gpu_span_begin(gpu, GPU_SPAN_ENGINE, bytes);
    mpath_gpu_coll_lock();
    status = mpath_peer_engine(gpu->engine_stream, gpu->engine_fragments, count, done);
    if ((status == MPATH_OK) && gpu->posts) {
        status = mpath_stream_mark(gpu->engine_stream, &gpu->engine_mark);
    }
    mpath_gpu_coll_unlock();
    return status;
}

/* One kernel for some fragments; writes this rank's word at its end. */
static mpath_status_t start_fragments(mpath_gpu_coll_t *gpu, mpath_stream_t *stream, unsigned count, unsigned ctas)
{
    mpath_board_words_t *words       = &gpu->board.words[gpu->me];
    const mpath_kernel_word_t done   = {.address = mpath_board_device(&gpu->board, &words->kernel_done),
                                        .value   = gpu->number};
    const mpath_peer_number_t number = {.word    = &words->number,
                                        .address = mpath_board_device(&gpu->board, &words->number)};
    const mpath_launch_copy_t launch = {
        .fragments = gpu->fragments, .fragments_count = count, .flags = &done, .flags_count = 1, .ctas = ctas};
    mpath_status_t status;
    uint64_t bytes = 0;

    for (unsigned i = 0; i < count; i++) {
        bytes += gpu->fragments[i].bytes;
    }
    gpu->kernel_started = 1;
    gpu_span_begin(gpu, GPU_SPAN_KERNEL, bytes);
    mpath_gpu_coll_lock();
    status = mpath_peer_again_launch(gpu->again, stream, &launch, &number);
    mpath_gpu_coll_unlock();
    return status;
}

#define HELP_CTAS 32 /* of the kernel with a part of what is pushed */

/*
 * Small pairs, and a part of what is pushed: one kernel, and with it what the rank sends to itself, unless it would hold
 * up the small ones while engines are at work.
 */
static mpath_status_t start_kernel(mpath_gpu_coll_t *gpu, const mpath_call_t *call)
{
    int helps     = gpu->decided.help_percent > 0;
    unsigned ctas = helps ? HELP_CTAS : 0, count = 0;
    mpath_stream_t *stream;
    mpath_status_t status;

    for (int i = 1; i < gpu->size; i++) {
        int to         = (gpu->me + i) % gpu->size;
        uint64_t end   = call->send_bytes[to] - gpu->decided.beside[gpu->me * gpu->size + to];
        uint64_t bytes = (gpu_lane(gpu, gpu->me, to) == LANE_KERNEL) ? end : gpu_helped_bytes(gpu, gpu->me, to);

        if (bytes > 0) {
            gpu->fragments[count++] = (mpath_kernel_fragment_t){
                .target = theirs(gpu, to) + end - bytes,
                .source = mine(gpu->send.buffer, call->send_offsets[to] + end - bytes),
                .bytes  = bytes};
            gpu->counters.kernel_bytes += bytes;
        }
    }
    if (count == 0) {
        return MPATH_OK;
    }
    if ((!gpu->decided.pushes || helps) && (call->send_bytes[gpu->me] > 0) && (gpu->receive.gpu == gpu->send.gpu)) {
        gpu->fragments[count++] = (mpath_kernel_fragment_t){
            .target = mine(gpu->receive.buffer, call->recv_offsets[gpu->me]),
            .source = mine(gpu->send.buffer, call->send_offsets[gpu->me]),
            .bytes  = call->send_bytes[gpu->me]};
        gpu->self_started = -1; /* done with the kernel */
        ctas += helps ? MPATH_PEER_LOCAL_CTAS : 0;
    }
    status = mpath_stream_get(gpu->send.gpu, gpu->first_stream + 1, &stream);
    return (status == MPATH_OK) ? start_fragments(gpu, stream, count, ctas) : status;
}

/*
 * What a rank sends to itself within a GPU, beside engines at work between GPUs: by engines of its own, which leave the
 * multiprocessors to the application, or by a kernel on few of these.
 */
static mpath_status_t start_local(mpath_gpu_coll_t *gpu, const mpath_kernel_fragment_t *fragment)
{
    const mpath_launch_copy_t launch = {
        .fragments = fragment, .fragments_count = 1, .ctas = MPATH_PEER_LOCAL_CTAS, .mark_p = &gpu->self_mark};
    mpath_status_t status = MPATH_ERR_UNSUPPORTED;

    if (fragment->bytes >= MPATH_PEER_ASIDE_BYTES) {
        mpath_gpu_coll_lock();
        status = mpath_stream_copy_aside(gpu->self_stream, fragment->target, fragment->source, (size_t)fragment->bytes);
        if (status == MPATH_OK) {
            status = mpath_stream_mark(gpu->self_stream, &gpu->self_mark);
        }
        mpath_gpu_coll_unlock();
    }
    if (status != MPATH_ERR_UNSUPPORTED) {
        return status;
    }
    if (!gpu->kernel_started && mpath_kernels_usable(gpu->send.gpu)) {
        gpu->fragments[0]                  = *fragment;
        gpu->self_started                  = -1; /* done with the kernel */
        gpu->spans[GPU_SPAN_SELF].began_ns = 0;
        return start_fragments(gpu, gpu->self_stream, 1, MPATH_PEER_LOCAL_CTAS);
    }
    mpath_gpu_coll_lock();
    status = mpath_launch_copy(gpu->self_stream, &launch);
    if (status == MPATH_ERR_UNSUPPORTED) {
        status = mpath_stream_copy(gpu->self_stream, fragment->target, fragment->source, (size_t)fragment->bytes);
        if (status == MPATH_OK) {
            status = mpath_stream_mark(gpu->self_stream, &gpu->self_mark);
        }
    }
    mpath_gpu_coll_unlock();
    return status;
}

/* What a rank sends to itself, unless the kernel has taken it. */
static mpath_status_t start_self(mpath_gpu_coll_t *gpu, const mpath_call_t *call)
{
    uint64_t bytes        = call->send_bytes[gpu->me];
    char *target          = gpu->receive.buffer + call->recv_offsets[gpu->me];
    const char *source    = gpu->send.buffer + call->send_offsets[gpu->me];
    mpath_gpu_t *device   = (gpu->send.gpu != NULL) ? gpu->send.gpu : gpu->receive.gpu;
    mpath_status_t status = MPATH_OK;

    if ((bytes == 0) || (gpu->self_started != 0)) {
        return MPATH_OK;
    }
    if (device == NULL) {
        memcpy(target, source, bytes);
        return MPATH_OK;
    }
    if ((gpu->send.gpu != NULL) && (gpu->receive.gpu != NULL) && (gpu->receive.gpu != gpu->send.gpu)) {
        (void)mpath_gpu_reaches(gpu->send.gpu, mpath_gpu_info_of(gpu->receive.gpu)->ordinal); /* faster if it does */
    }
    status = mpath_stream_get(device, gpu->first_stream + 1, &gpu->self_stream);
    if (status != MPATH_OK) {
        return status;
    }
    gpu->self_started = 1;
    gpu_span_begin(gpu, GPU_SPAN_SELF, bytes);
    if (gpu->send.gpu == gpu->receive.gpu) {
        return start_local(
            gpu, &(mpath_kernel_fragment_t){.target = mine(target, 0), .source = mine(source, 0), .bytes = bytes});
    }
    mpath_gpu_coll_lock();
    status = mpath_stream_copy(gpu->self_stream, mine(target, 0), mine(source, 0), (size_t)bytes);
    if (status == MPATH_OK) {
        status = mpath_stream_mark(gpu->self_stream, &gpu->self_mark);
    }
    mpath_gpu_coll_unlock();
    return status;
}

/* Streams of the lane "staged": some of the last four of a GPU, shared by all communicators. */
static mpath_status_t staged_side(mpath_gpu_t *device, unsigned stream, int two, const mpath_staged_message_t *messages,
                                  const mpath_pinned_t *pinned, mpath_staged_side_t *side)
{
    mpath_status_t status;

    *side = (mpath_staged_side_t){.messages = messages, .pinned = pinned};
    if (device == NULL) {
        return MPATH_OK;
    }
    status = mpath_stream_get(device, stream, &side->stream);
    return ((status == MPATH_OK) && two) ? mpath_stream_get(device, stream - 2, &side->second) : status;
}

void mpath_gpu_coll_begin_staged(mpath_gpu_coll_t *gpu, const mpath_staged_side_t *send,
                                 const mpath_staged_side_t *receive)
{
    const mpath_staged_guard_t guard = mpath_gpu_coll_guard(&gpu->claimed);

    gpu->staged_before  = mpath_staged_sent_bytes(gpu->board.staged);
    gpu->staged_started = 1;
    mpath_staged_begin(gpu->board.staged, gpu->number, send, receive, &guard);
}

static mpath_status_t start_staged(mpath_gpu_coll_t *gpu, const mpath_call_t *call)
{
    const mpath_pinned_t *pinned = &gpu->board.slots_pinned;
    mpath_staged_side_t send, receive;
    uint64_t bytes = 0;
    int two        = gpu->timed; /* streams for each direction: what has to be fast, and what waits */
    mpath_status_t status;

    for (int rank = 0; rank < gpu->size; rank++) {
        uint64_t out = gpu_staged_bytes(gpu, gpu->me, rank), in = gpu_staged_bytes(gpu, rank, gpu->me);

        gpu->staged_send[rank] = (mpath_staged_message_t){
            .address    = gpu->send.buffer + call->send_offsets[rank] + call->send_bytes[rank] - out,
            .bytes      = out,
            .by_streams = mpath_gpu_coll_by_streams(gpu, gpu->me, rank, out)};
        gpu->staged_receive[rank] = (mpath_staged_message_t){
            .address = gpu->receive.buffer + call->recv_offsets[rank] + call->recv_bytes[rank] - in, .bytes = in};
        bytes += gpu->staged_send[rank].bytes + gpu->staged_receive[rank].bytes;
        two = two || (gpu->decided.beside[gpu->me * gpu->size + rank] > 0) ||
              (gpu->decided.beside[rank * gpu->size + gpu->me] > 0) ||
              ((out > 0) && gpu->staged_send[rank].by_streams) ||
              ((in > 0) && mpath_gpu_coll_by_streams(gpu, rank, gpu->me, in));
    }
    if (bytes == 0) {
        return MPATH_OK;
    }
    status = staged_side(gpu->send.gpu, MPATH_GPU_STREAMS_DIRECT - 2, two, gpu->staged_send, pinned, &send);
    if (status == MPATH_OK) {
        status = staged_side(gpu->receive.gpu, MPATH_GPU_STREAMS_DIRECT - 1, two, gpu->staged_receive, pinned,
                             &receive);
    }
    if (status == MPATH_OK) {
        mpath_gpu_coll_begin_staged(gpu, &send, &receive);
        gpu_span_begin(gpu, GPU_SPAN_HOST, bytes);
    }
    return status;
}

/* Everything that this rank starts. */
static mpath_status_t gpu_coll_start(mpath_gpu_coll_t *gpu, const mpath_call_t *call)
{
    mpath_status_t status = start_engine(gpu, call);

    if (status == MPATH_OK) {
        status = start_kernel(gpu, call);
    }
    if (status == MPATH_OK) {
        status = start_self(gpu, call);
    }
    return (status == MPATH_OK) ? start_staged(gpu, call) : status;
}

/* Ways to choose from: in percent of what is pushed. */
static const unsigned shares[] = {0, 30, 12};
#define NUM_SHARES (sizeof(shares) / sizeof(shares[0]))

#define OPERATION "alltoallv" /* in the file */

/* Parts of a message are multiples of this. */
#define HELP_GRAIN_BYTES (UINT64_C(64) << 10)

/*
 * From how many fragments of an engine on there is something to fill (a single one was not faster with any help), and from
 * what part of its time.
 */
#define HELP_LEAST_FRAGMENTS 3u
#define HELP_LEAST_GAPS_PERCENT 2u

static void gpu_help_destroy(mpath_gpu_coll_t *gpu)
{
    mpath_trials_forget(&gpu->help);
}

/* Whether kernels can help: the same on all ranks. */
static int is_possible(const mpath_gpu_coll_t *gpu)
{
    const gpu_decided_t *decided = &gpu->decided;
    int possible                 = decided->pushes && !gpu->timed;

    for (int rank = 0; rank < gpu->size; rank++) {
        possible = possible && (!((decided->engine_ranks >> rank) & 1) || gpu_cell(gpu, rank)->kernels);
    }
    return possible;
}

/* The most fragments of a rank whose messages are not cut. */
static unsigned most_fragments(const mpath_gpu_coll_t *gpu)
{
    unsigned most = 0;

    for (int rank = 0; rank < gpu->size; rank++) {
        unsigned fragments = 0;

        for (int peer = 0; peer < gpu->size; peer++) {
            fragments += (gpu_lane(gpu, rank, peer) == LANE_PUSH) ? 1 : 0;
        }
        most = (fragments > most) ? fragments : most;
    }
    return most;
}

/* Whether it may be worth it. */
static int has_gaps(const mpath_gpu_coll_t *gpu)
{
    const gpu_decided_t *decided = &gpu->decided;

    return (decided->order_ns - decided->bound_ns >= decided->order_ns / 100 * HELP_LEAST_GAPS_PERCENT) &&
           (most_fragments(gpu) >= HELP_LEAST_FRAGMENTS);
}

/* Calls of a kind begin. */
static mpath_status_t begin(const mpath_gpu_coll_t *gpu, int number, mpath_trial_t *kind)
{
    mpath_learned_t learned;
    mpath_status_t status = mpath_gpu_history_take(gpu, MPATH_HISTORY_HELP, OPERATION, number, &learned);

    for (unsigned option = 0; (option < NUM_SHARES) && (learned.learned_ns > 0); option++) {
        if (shares[option] == learned.value) {
            mpath_trial_resume(kind, &mpath_trial_of_calls, NUM_SHARES, option);
        }
    }
    return status;
}

/* The trials of calls of a kind are over. */
static void tell_decided(const mpath_gpu_coll_t *gpu, int number, const mpath_trial_t *kind)
{
    mpath_debug("device memory: pushes like these have been measured: a kernel writes %u %% of them from now on",
                shares[kind->option]);
    if (mpath_trial_is_sure(kind, &mpath_trial_of_calls)) {
        mpath_gpu_history_note(gpu, MPATH_HISTORY_HELP, OPERATION, number, shares[kind->option]);
    }
}

/* What is found by trial for calls like this one. */
static mpath_status_t next_share(mpath_gpu_coll_t *gpu, unsigned *percent_p)
{
    int number            = mpath_trial_kind(gpu->decided.order_ns, gpu->decided.bound_ns), decided;
    mpath_status_t status = MPATH_OK;
    mpath_trial_t *kind;
    unsigned option;

    gpu->help.num_kinds = MPATH_TRIAL_KINDS;

    kind = mpath_trials_get(&gpu->help, number);
    if (kind == NULL) {
        return MPATH_ERR_NO_MEMORY; /* the others count on this rank's times */
    }
    if (kind->options == 0) {
        status = begin(gpu, number, kind);
    }
    if (status == MPATH_OK) {
        status = mpath_trials_next(&gpu->help, gpu->team, number, NUM_SHARES, mpath_time_ns(), &option, &decided);
    }
    if (status != MPATH_OK) {
        return status;
    }
    if (decided) {
        tell_decided(gpu, number, kind);
    }
    *percent_p = shares[option];
    return MPATH_OK;
}

/* Brings the kernel's parts, and the order of what is left, up to date. */
static void set_share(mpath_gpu_coll_t *gpu, unsigned percent)
{
    gpu_decided_t *decided = &gpu->decided;

    if (decided->help_percent == percent) {
        return;
    }
    for (int i = 0; i < gpu->size * gpu->size; i++) {
        decided->helped[i] = (decided->lanes[i] == LANE_PUSH)
                                 ? (gpu->demand[i] - decided->beside[i]) / 100 * percent & ~(HELP_GRAIN_BYTES - 1)
                                 : 0;
    }
    decided->help_percent = percent;
    mpath_gpu_coll_order_rest(gpu);
}

/*
 * A kernel on few multiprocessors that writes a part of what engines push. Brings gpu->decided up
 * to date with what trials say of calls like this one. Collective when trials are over, on all ranks alike.
 */
static mpath_status_t gpu_help_next(mpath_gpu_coll_t *gpu)
{
    int wanted            = gpu->settings->gpu_help_percent;
    unsigned percent      = 0;
    mpath_status_t status = MPATH_OK;

    if (is_possible(gpu)) {
        if (wanted >= 0) {
            percent = (unsigned)wanted;
        } else if ((gpu->settings->gpu_way == MPATH_GPU_WAY_AUTO) && (gpu->settings->adapt != MPATH_ADAPT_OFF) &&
                   has_gaps(gpu)) {
            status = next_share(gpu, &percent);
        }
    }
    if (status == MPATH_OK) {
        set_share(gpu, percent);
    }
    return status;
}

/* The call has ended well. */
static void gpu_help_ended(mpath_gpu_coll_t *gpu)
{
    mpath_trials_ended(&gpu->help);
}

static int decided_create(mpath_gpu_coll_t *gpu)
{
    gpu_decided_t *decided = &gpu->decided;
    size_t ranks = gpu->usable ? (size_t)gpu->size : 1, cells = ranks * ranks; /* else nothing is decided here */

    decided->generations               = calloc(ranks, sizeof(*decided->generations));
    decided->demand                    = calloc(4 * cells, sizeof(*decided->demand));
    decided->lanes                     = calloc(cells, sizeof(*decided->lanes));
    decided->imports[MPATH_BOARD_RECV] = calloc(4 * ranks, sizeof(mpath_import_t *));
    if ((decided->generations == NULL) || (decided->demand == NULL) || (decided->lanes == NULL) ||
        (decided->imports[MPATH_BOARD_RECV] == NULL)) {
        return 0;
    }
    decided->by_engine                 = decided->demand + cells;
    decided->beside                    = decided->by_engine + cells;
    decided->helped                    = decided->beside + cells;
    decided->imports[MPATH_BOARD_SEND] = decided->imports[MPATH_BOARD_RECV] + ranks;
    decided->closed                    = decided->imports[MPATH_BOARD_SEND] + ranks;
    return 1;
}

mpath_status_t mpath_gpu_coll_create(mpath_team_t *team, mpath_gpu_coll_t **gpu_p)
{
    const mpath_topo_t *topo = mpath_team_topo(team);
    size_t size              = (size_t)mpath_team_size(team), ranks, cells;
    mpath_gpu_coll_t *gpu    = calloc(1, sizeof(*gpu));

    if (gpu == NULL) {
        goto err_no_memory;
    }
    gpu->team     = team;
    gpu->settings = mpath_team_settings(team);
    gpu->size     = (int)size;
    gpu->me       = mpath_team_rank(team);
    mpath_import_set_limit((unsigned)gpu->settings->gpu_imports);
    mpath_peer_rates_init(&gpu->rates);
    gpu->usable        = (mpath_topo_num_nodes(topo) == 1) && (size <= MPATH_ORDER_MAX_RANKS) && gpu->settings->gpu;
    ranks              = gpu->usable ? size : 1; /* between nodes nothing here is used, whatever their number */
    cells              = ranks * ranks;
    gpu->demand        = calloc(cells, sizeof(*gpu->demand));
    gpu->export_states = calloc(MPATH_BOARD_SIDES * ranks, sizeof(*gpu->export_states));
    gpu->refused       = calloc(cells, sizeof(*gpu->refused));
    gpu->devices       = calloc(MPATH_BOARD_SIDES * ranks, sizeof(*gpu->devices));
    gpu->fragments     = calloc(ranks, sizeof(*gpu->fragments));
    gpu->turns.places  = calloc(ranks, sizeof(*gpu->turns.places));
    gpu->staged_send   = calloc(2 * ranks, sizeof(*gpu->staged_send));
    if ((gpu->demand == NULL) || (gpu->export_states == NULL) || (gpu->refused == NULL) || (gpu->devices == NULL) ||
        (gpu->fragments == NULL) || (gpu->turns.places == NULL) || (gpu->staged_send == NULL) || !decided_create(gpu)) {
        mpath_gpu_coll_destroy(gpu);
        goto err_no_memory;
    }
    for (size_t i = 0; i < cells; i++) {
        gpu->refused[i].device = -1;
    }
    for (size_t i = 0; i < MPATH_BOARD_SIDES * ranks; i++) {
        gpu->devices[i] = -1;
    }
    gpu->staged_receive = gpu->staged_send + ranks;
    gpu->again          = mpath_peer_again_create();
    *gpu_p              = gpu;
    return MPATH_OK;

err_no_memory:
    mpath_error("no memory for device buffers of %zu ranks", size);
    return MPATH_ERR_NO_MEMORY;
}

/* Of the whole process so far: many that are opened or evicted say that buffers change, or that more should stay. */
static void tell_of_imports(const mpath_gpu_coll_t *gpu)
{
    mpath_import_counts_t counts;

    mpath_import_counts(&counts);
    mpath_debug("rank %d: allocations of other processes so far: %llu times opened, %llu times used again, %llu were "
                "gone since, %llu closed for others; %u are open",
                gpu->me, (unsigned long long)counts.opened, (unsigned long long)counts.reused,
                (unsigned long long)counts.stale, (unsigned long long)counts.evicted, counts.entries);
}

void mpath_gpu_coll_destroy(mpath_gpu_coll_t *gpu)
{
    if (gpu == NULL) {
        return;
    }
    mpath_gpu_coll_release(&gpu->claimed);
    if (gpu->opened) {
        tell_of_imports(gpu);
        mpath_gpu_coll_forget_lanes(gpu);
        mpath_board_close(&gpu->board);
    }
    mpath_gpu_exchange_destroy(gpu);
    gpu_help_destroy(gpu);
    mpath_peer_again_destroy(gpu->again);
    mpath_order_destroy(gpu->order);
    free(gpu->demand);
    free(gpu->export_states);
    free(gpu->refused);
    free(gpu->devices);
    free(gpu->fragments);
    free(gpu->turns.places);
    free(gpu->staged_send);
    free(gpu->engine_fragments);
    free(gpu->decided.generations);
    free(gpu->decided.demand);
    free(gpu->decided.lanes);
    free(gpu->decided.imports[MPATH_BOARD_RECV]);
    free(gpu);
}

int mpath_gpu_coll_usable(const mpath_gpu_coll_t *gpu)
{
    return gpu->usable;
}

void mpath_gpu_coll_counters(const mpath_gpu_coll_t *gpu, mpath_gpu_counters_t *counters)
{
    *counters = gpu->counters;
}

/* Memory that the host must not touch. */
static int is_device(const mpath_memory_t *memory)
{
    return (memory != NULL) && !mpath_memory_on_host(memory->kind) && (memory->kind != MPATH_MEMORY_MANAGED);
}

static uint64_t span_bytes(const uint64_t *bytes, const uint64_t *offsets, int size)
{
    uint64_t end = 0;

    for (int rank = 0; rank < size; rank++) {
        if ((bytes[rank] > 0) && (offsets[rank] + bytes[rank] > end)) {
            end = offsets[rank] + bytes[rank];
        }
    }
    return end;
}

/* The GPU of a side; failing, the call fails later, when everybody can hear of it. */
static mpath_status_t find_gpu(const mpath_memory_t *memory, mpath_gpu_t **gpu_p)
{
    *gpu_p = NULL;
    return is_device(memory) ? mpath_gpu_get(memory->device, memory->context, gpu_p) : MPATH_OK;
}

static int32_t waits_on(const mpath_gpu_coll_t *gpu, const mpath_gpu_t *device)
{
    if ((gpu->settings->gpu_stream_waits == MPATH_GPU_WAITS_NO) || !mpath_gpu_has_waits(device)) {
        return MPATH_BOARD_WAITS_NOT;
    }
    return (mpath_gpu_info_of(device)->mps == 1) ? MPATH_BOARD_WAITS_BESIDE : MPATH_BOARD_WAITS_ALONE;
}

/* What a rank tells of one side. */
static void fill_side(mpath_gpu_coll_t *gpu, const void *buffer, const uint64_t *bytes, const uint64_t *offsets,
                      const mpath_memory_t *memory, int number, mpath_board_side_t *side)
{
    mpath_gpu_t *device;

    side->kind       = (memory == NULL) ? MPATH_MEMORY_HOST : memory->kind;
    side->device     = -1;
    side->address    = (uint64_t)(uintptr_t)buffer;
    side->memory.how = MPATH_EXPORT_NONE;
    if (is_device(memory) && (find_gpu(memory, &device) == MPATH_OK)) {
        side->device = mpath_gpu_number(device);
        side->waits  = waits_on(gpu, device);
        if (mpath_export_make(buffer, span_bytes(bytes, offsets, gpu->size), memory, &side->memory) != MPATH_OK) {
            side->memory.how  = MPATH_EXPORT_NONE;
            side->memory.uuid = mpath_gpu_info_of(device)->uuid;
        }
    }
    if ((side->kind == MPATH_MEMORY_MANAGED) ||
        ((number == MPATH_BOARD_RECV) && (side->device >= 0) && (side->memory.how == MPATH_EXPORT_NONE))) {
        mpath_memory_is_slow(gpu->me, (number == MPATH_BOARD_RECV) ? "receive" : "send", memory);
    }
}

/* Whether the GPU that the call's data is on does the work of one process at a time, as far as the driver tells. */
static int32_t takes_turns(const mpath_call_t *call)
{
    const mpath_memory_t *memory = is_device(call->send_memory) ? call->send_memory : call->recv_memory;
    mpath_gpu_t *device;

    return (find_gpu(memory, &device) == MPATH_OK) && (device != NULL) && (mpath_gpu_info_of(device)->mps == 0);
}

/* All streams that calls may need; those of the lane "staged" are the last four, shared by all communicators. */
static mpath_status_t make_streams(const mpath_gpu_coll_t *gpu, mpath_gpu_t *device)
{
    const unsigned first[]   = {gpu->first_stream, MPATH_GPU_STREAMS_DIRECT - 4};
    const unsigned streams[] = {first[0], first[0] + 1, first[1], first[1] + 1, first[1] + 2, first[1] + 3};
    mpath_status_t status    = MPATH_OK;
    mpath_stream_t *stream;

    for (size_t i = 0; (i < sizeof(streams) / sizeof(streams[0])) && (status == MPATH_OK); i++) {
        status = mpath_stream_get(device, streams[i], &stream);
    }
    return status;
}

static mpath_status_t make_side_ready(mpath_gpu_coll_t *gpu, int side, const mpath_memory_t *memory, int32_t number)
{
    mpath_gpu_t *device   = gpu->ready[side];
    mpath_status_t status = MPATH_OK;

    if ((device == NULL) || (mpath_gpu_number(device) != number)) {
        status = find_gpu(memory, &device);
        if (status == MPATH_OK) {
            status = make_streams(gpu, device);
        }
        gpu->ready[side] = (status == MPATH_OK) ? device : NULL;
    }
    return (status == MPATH_OK) ? mpath_board_register(&gpu->board, device) : status;
}

/*
 * Whether this rank has what its GPUs need, which it makes before the others count on it. What the driver has refused is
 * asked for again after some calls.
 */
static int is_ready(mpath_gpu_coll_t *gpu, const mpath_call_t *call, const mpath_board_side_t *sides)
{
    const mpath_memory_t *memories[] = {[MPATH_BOARD_RECV] = call->recv_memory, [MPATH_BOARD_SEND] = call->send_memory};
    mpath_status_t status            = MPATH_OK;

    if (mpath_pause_passes(&gpu->ready_pause)) {
        return 0;
    }
    for (int side = 0; (side < MPATH_BOARD_SIDES) && (status == MPATH_OK); side++) {
        if (is_device(memories[side])) {
            status = (sides[side].device >= 0) ? make_side_ready(gpu, side, memories[side], sides[side].device)
                                               : MPATH_ERR_UNREACHABLE;
        }
    }
    mpath_pause_note(&gpu->ready_pause, status == MPATH_OK);
    if (status != MPATH_OK) {
        mpath_info(
            "rank %d cannot have what its GPU needs (%s): this call on device memory and %u after it in this communicator "
            "are left to the host",
            gpu->me, mpath_status_string(status), gpu->ready_pause.length);
    }
    return status == MPATH_OK;
}

/* Also by what others open it with: of the same memory, named anew, the descriptors have other numbers. */
static int is_same_side(const mpath_board_side_t *a, const mpath_board_side_t *b)
{
    return (a->kind == b->kind) && (a->device == b->device) && (memcmp(&a->memory, &b->memory, sizeof(a->memory)) == 0);
}

/* The cell of this half may hold most of it already: exports are large, and buffers mostly stay. */
static void write_cell(mpath_gpu_coll_t *gpu, const mpath_board_cell_t *now)
{
    mpath_board_cell_t *cell = &gpu->board.cells[gpu->half][gpu->me];

    if (cell->generation != now->generation) {
        *cell = *now;
    } else {
        cell->claimed                         = now->claimed;
        cell->eager                           = now->eager;
        cell->ready                           = now->ready;
        cell->host                            = now->host;
        cell->sides[MPATH_BOARD_RECV].address = now->sides[MPATH_BOARD_RECV].address;
        cell->sides[MPATH_BOARD_SEND].address = now->sides[MPATH_BOARD_SEND].address;
    }
}

/* What this rank tells of its buffers. */
static void publish_sides(mpath_gpu_coll_t *gpu, const mpath_call_t *call)
{
    mpath_board_cell_t *now                     = &gpu->published;
    size_t row_bytes                            = (size_t)gpu->size * sizeof(uint64_t);
    mpath_board_side_t sides[MPATH_BOARD_SIDES] = {{0}};
    mpath_board_side_t *recv = &sides[MPATH_BOARD_RECV], *send = &sides[MPATH_BOARD_SEND];
    mpath_gpu_t *device = NULL;
    int32_t kernels, turns;

    fill_side(gpu, call->recv_buffer, call->recv_bytes, call->recv_offsets, call->recv_memory, MPATH_BOARD_RECV, recv);
    fill_side(gpu, call->send_buffer, call->send_bytes, call->send_offsets, call->send_memory, MPATH_BOARD_SEND, send);
    kernels = (send->device >= 0) && (find_gpu(call->send_memory, &device) == MPATH_OK) && mpath_kernels_usable(device);
    turns   = takes_turns(call);
    if (kernels && (device != gpu->published_gpu)) {
        gpu->published_gpu = device;
        now->generation++;
        now->place++;
    }
    if (!is_same_side(recv, &now->sides[MPATH_BOARD_RECV]) || !is_same_side(send, &now->sides[MPATH_BOARD_SEND]) ||
        (kernels != now->kernels) || (turns != now->turns) || (now->generation == 0)) {
        now->generation++;
    }
    now->kernels                 = kernels;
    now->turns                   = turns;
    now->claimed                 = gpu->claimed;
    now->eager                   = gpu->eager;
    now->ready                   = is_ready(gpu, call, sides);
    now->host                    = gpu->published_host;
    now->sides[MPATH_BOARD_RECV] = *recv;
    now->sides[MPATH_BOARD_SEND] = *send;
    write_cell(gpu, now);
    memcpy(mpath_board_offsets(&gpu->board, gpu->half, gpu->me), call->recv_offsets, row_bytes);
}

uint64_t mpath_gpu_coll_publish(mpath_gpu_coll_t *gpu, const mpath_call_t *call)
{
    uint64_t launch_ns;

    if (!gpu->opened || !gpu->usable) {
        return 0;
    }
    gpu->number++;
    gpu->half = (int)(gpu->number & 1);
    launch_ns = mpath_gpu_exchange_start(gpu, call); /* the rest passes while the GPU gets to work */
    if (!(call->flags & MPATH_CALL_INELIGIBLE)) {
        publish_sides(gpu, call);
    }
    return launch_ns;
}

/* The first call with device memory: the board, and what would have been published before the agreement. */
static mpath_status_t open_board(mpath_gpu_coll_t *gpu, const mpath_call_t *call)
{
    uint8_t mine, all[MPATH_ORDER_MAX_RANKS];
    mpath_status_t status;

    status = mpath_board_open(gpu->team, &gpu->board);
    if (status != MPATH_OK) {
        gpu->usable = 0;
        return (mpath_team_status(gpu->team) == MPATH_OK) ? MPATH_DECLINED : status;
    }
    gpu->opened       = 1;
    gpu->first_stream = mpath_gpu_coll_streams();
    mpath_process_self(&gpu->published.process);
    (void)mpath_gpu_coll_publish(gpu, call);
    mine   = gpu_coll_order_create(gpu) == MPATH_OK;
    status = mpath_team_allgather(gpu->team, &mine, sizeof(mine), all);
    for (int rank = 0; (status == MPATH_OK) && (rank < gpu->size); rank++) {
        gpu->usable = gpu->usable && all[rank];
    }
    return ((status == MPATH_OK) && !gpu->usable) ? MPATH_DECLINED : status;
}

/* GPUs of this rank's two sides. */
static mpath_status_t bind_sides(mpath_gpu_coll_t *gpu, const mpath_call_t *call)
{
    mpath_status_t status = find_gpu(call->send_memory, &gpu->send.gpu);

    gpu->send.buffer    = (char *)(uintptr_t)call->send_buffer;
    gpu->receive.buffer = call->recv_buffer;
    if (status == MPATH_OK) {
        status = find_gpu(call->recv_memory, &gpu->receive.gpu);
    }
    return status;
}

/* The same on all ranks. */
static int are_all_ready(const mpath_gpu_coll_t *gpu)
{
    int all = 1;

    for (int rank = 0; rank < gpu->size; rank++) {
        all = all && gpu_cell(gpu, rank)->ready;
    }
    return all;
}

mpath_status_t mpath_gpu_coll_prepare(mpath_gpu_coll_t *gpu, const mpath_call_t *call, const mpath_agreed_t *agreed)
{
    size_t cells          = (size_t)gpu->size * (size_t)gpu->size;
    mpath_status_t status = MPATH_OK;

    gpu->turns.left  = 0;
    gpu->lacks_slots = 0;
    if (!gpu->usable) {
        return MPATH_DECLINED;
    }
    memcpy(gpu->demand, agreed->demand, cells * sizeof(*gpu->demand)); /* further gathers would overwrite it */
    if (!gpu->opened) {
        status = open_board(gpu, call);
    }
    if (status != MPATH_OK) {
        return status;
    }
    if (!are_all_ready(gpu)) {
        return MPATH_DECLINED;
    }
    mpath_gpu_coll_count_pause(gpu);
    gpu->kernel_started = gpu->engine_started = gpu->self_started = gpu->staged_started = 0;
    memset(gpu->spans, 0, sizeof(gpu->spans));
    gpu->beside = (gpu_beside_t){0};
    status      = bind_sides(gpu, call);
    return ((status == MPATH_OK) && mpath_gpu_coll_leaves_to_host(gpu, mpath_call_collective(call->operation)))
               ? MPATH_DECLINED
               : status;
}

int mpath_gpu_coll_lacks_slots(const mpath_gpu_coll_t *gpu)
{
    return gpu->lacks_slots;
}

static mpath_status_t run(mpath_gpu_coll_t *gpu, const mpath_call_t *call)
{
    mpath_status_t status = mpath_gpu_coll_find_lanes(gpu);

    if (status == MPATH_OK) {
        gpu_plan_begins(gpu);
        status = gpu_help_next(gpu);
        gpu_plan_ends(gpu);
    }
    gpu->beside.start_ns = gpu->timed ? mpath_time_ns() : 0;
    if (status == MPATH_OK) {
        status = mpath_gpu_coll_finish(gpu, gpu_coll_start(gpu, call));
    }
    if (status == MPATH_OK) {
        gpu_help_ended(gpu);
    }
    return status;
}

mpath_status_t mpath_gpu_coll_finish(mpath_gpu_coll_t *gpu, mpath_status_t started)
{
    if (started == MPATH_OK) {
        return gpu_coll_wait(gpu);
    }
    mpath_team_break(gpu->team, started); /* the wait will end at once, and bring back what has started */
    (void)gpu_coll_wait(gpu);
    return started;
}

mpath_status_t mpath_gpu_coll_move(mpath_gpu_coll_t *gpu, const mpath_call_t *call, const mpath_agreed_t *agreed)
{
    return mpath_gpu_coll_move_prepared(gpu, call, mpath_gpu_coll_prepare(gpu, call, agreed));
}

mpath_status_t mpath_gpu_coll_move_prepared(mpath_gpu_coll_t *gpu, const mpath_call_t *call, mpath_status_t status)
{
    if (status == MPATH_OK) {
        status = mpath_gpu_exchange_prepare(gpu);
    }
    if (status == MPATH_OK) {
        status = run(gpu, call);
        mpath_gpu_coll_close_imports(gpu);
    }
    mpath_gpu_coll_release(&gpu->claimed);
    if (mpath_status_is_error(status)) {
        mpath_team_break(gpu->team, status);
        return status;
    }
    gpu->counters.calls += (status == MPATH_OK) ? 1 : 0;
    return status;
}
