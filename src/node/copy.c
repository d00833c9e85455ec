/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a rank starts in a call on device memory: one kernel for its small pairs, the pieces of its large pairs in order
 * for the copy engine, what it sends to itself, and its staged messages. Nothing here waits.
 */
#include "node/node_private.h"

#include "team/wait.h"
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
            atomic_store_explicit(&gpu->room.words[gpu->me].engine_done, gpu->number, memory_order_release);
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

/* My own copies have left my send buffer. */
static int is_sent(const mpath_gpu_coll_t *gpu)
{
    const mpath_room_words_t *words = &gpu->room.words[gpu->me];

    return (!gpu->kernel_started || is_done(gpu, &words->kernel_done)) &&
           (!gpu->engine_started || is_done(gpu, &words->engine_done)) && (gpu->self_started != 1);
}

/* Whether rank `rank` has yet to write the word that says that its message is here. */
static int is_missing(const mpath_gpu_coll_t *gpu, int rank)
{
    const mpath_room_words_t *words = &gpu->room.words[rank];
    gpu_way_t way                   = gpu_way(gpu, rank, gpu->me);

    return (((way == WAY_KERNEL) || (gpu_helped_bytes(gpu, rank, gpu->me) > 0)) &&
            !is_done(gpu, &words->kernel_done)) ||
           ((way == WAY_PUSH) && !is_done(gpu, &words->engine_done));
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
        const mpath_room_words_t *words = &gpu->room.words[rank];

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
    return is_missing(gpu, rank) || (gpu->staged_started && mpath_staged_needs(gpu->room.staged, rank));
}

static mpath_status_t check_processes(mpath_gpu_coll_t *gpu)
{
    for (int rank = 0; rank < gpu->size; rank++) {
        if ((rank != gpu->me) && needs(gpu, rank) && !mpath_room_is_alive(&gpu->room, gpu->half, rank) &&
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
                 gpu_way(gpu, rank, gpu->me) == WAY_KERNEL ? "kernel" : "copy engine", number);
        return 1;
    }
    rank = *rank_p = gpu->staged_started ? mpath_staged_waits_for(gpu->room.staged, &bytes) : -1;
    if (rank >= 0) {
        snprintf(text, size, "rank %d waits for rank %d: %llu bytes by lane staged in call %llu on device memory",
                 gpu->me, rank, (unsigned long long)bytes, number);
        return 1;
    }
    rank = *rank_p = gpu->staged_started ? mpath_staged_waits_to_send(gpu->room.staged, &bytes) : -1;
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

    atomic_store_explicit(&gpu->room.words[gpu->me].stop, gpu->number, memory_order_release);
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
        mpath_staged_abandon(gpu->room.staged, WAIT_GIVE_UP_NS);
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

    if (!mpath_staged_is_finished(gpu->room.staged)) {
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
        done = ((rank != gpu->me) && !beside->to_all) || is_done(gpu, &gpu->room.words[rank].engine_done);
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
    const mpath_room_words_t *words   = &gpu->room.words[gpu->me];
    const int ended[GPU_SPANS]        = {is_done(gpu, &words->kernel_done), is_done(gpu, &words->engine_done),
                                         gpu->self_started != 1,
                                         gpu->staged_started && mpath_staged_is_finished(gpu->room.staged)};

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
    if ((status == MPATH_OK) && gpu->staged_started && !mpath_staged_is_finished(gpu->room.staged)) {
        int events = mpath_staged_progress(gpu->room.staged);

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

mpath_status_t mpath_gpu_coll_wait(mpath_gpu_coll_t *gpu)
{
    static const mpath_wait_ops_t ops = {
        .look = copy_look, .check = copy_check, .landed = copy_landed, .edge = copy_edge};
    mpath_status_t status;
    mpath_wait_t wait;

    mpath_wait_prepare(&wait, gpu->team, 0);
    wait.oob = NULL; /* the MPI library's turns would come between looks at a GPU that takes microseconds */
    status   = mpath_wait(&wait, &ops, gpu);
    if (gpu->staged_started) {
        gpu->counters.staged_bytes += mpath_staged_sent_bytes(gpu->room.staged) - gpu->staged_before;
    }
    if (mpath_status_is_error(status)) {
        mpath_team_break(gpu->team, status);
        abandon(gpu);
    }
    return status;
}

/*
 * Engines that start within 5 us of each other keep step; who is later meets the copies of others at every piece. A rank
 * that has not come by then is not waited for.
 */
#define MEET_NS 30000u

mpath_status_t mpath_gpu_coll_order_create(mpath_gpu_coll_t *gpu)
{
    mpath_status_t status = mpath_order_create(gpu->size, &gpu->order);

    if (status != MPATH_OK) {
        return status;
    }
    gpu->engine_pieces = calloc(mpath_order_max_pieces(gpu->order), sizeof(*gpu->engine_pieces));
    if (gpu->engine_pieces == NULL) {
        mpath_error("no memory for the pieces of device buffers; they go through the host");
        return MPATH_ERR_NO_MEMORY;
    }
    return MPATH_OK;
}

/* Where this rank's message belongs in the receive buffer of `peer`, as this process addresses it. */
static mpath_device_ptr_t theirs(const mpath_gpu_coll_t *gpu, int peer)
{
    uint64_t offset = mpath_room_offsets(&gpu->room, gpu->half, peer)[gpu->me];

    return mpath_import_address(gpu->decided.imports[MPATH_ROOM_RECV][peer],
                                gpu_cell(gpu, peer)->sides[MPATH_ROOM_RECV].address + offset);
}

/* The same in a buffer of this rank's own. */
static mpath_device_ptr_t mine(const char *buffer, uint64_t offset)
{
    return (mpath_device_ptr_t)(uintptr_t)(buffer + offset);
}

/* The pieces of this rank's engine, in the order that all GPUs follow together. */
static uint32_t make_pieces(mpath_gpu_coll_t *gpu, const mpath_call_t *call, uint64_t *bytes_p)
{
    const mpath_order_piece_t *pieces;
    uint32_t count;

    pieces = mpath_order_pieces(gpu->order, gpu->me, &count);
    for (uint32_t i = 0; i < count; i++) {
        int peer = pieces[i].destination;

        gpu->engine_pieces[i] = (mpath_peer_piece_t){.target = theirs(gpu, peer) + pieces[i].offset,
                                                     .source = mine(gpu->send.buffer, call->send_offsets[peer]) +
                                                               pieces[i].offset,
                                                     .bytes = pieces[i].bytes};
        *bytes_p += pieces[i].bytes;
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

    count = gpu->decided.pushes ? make_pieces(gpu, call, &bytes) : 0;
    if (count == 0) {
        return MPATH_OK;
    }
    status = mpath_stream_get(gpu->send.gpu, gpu->first_stream, &gpu->engine_stream);
    if (status != MPATH_OK) {
        return status;
    }
    gpu->posts = !mpath_stream_has_values(gpu->engine_stream);
    if (!gpu->posts) {
        done = (mpath_peer_word_t){.address = mpath_room_device(&gpu->room, &gpu->room.words[gpu->me].engine_done),
                                   .value   = gpu->number};
    }
    gpu->engine_started = 1;
    (void)mpath_room_meet(&gpu->room, gpu->number, gpu->decided.engine_ranks, MEET_NS);
    gpu_span_begin(gpu, GPU_SPAN_ENGINE, bytes);
    mpath_gpu_coll_lock();
    status = mpath_peer_engine(gpu->engine_stream, gpu->engine_pieces, count, done);
    if ((status == MPATH_OK) && gpu->posts) {
        status = mpath_stream_mark(gpu->engine_stream, &gpu->engine_mark);
    }
    mpath_gpu_coll_unlock();
    return status;
}

/* One kernel for some pieces; writes this rank's word at its end. */
static mpath_status_t start_pieces(mpath_gpu_coll_t *gpu, mpath_stream_t *stream, unsigned count, unsigned ctas)
{
    mpath_room_words_t *words        = &gpu->room.words[gpu->me];
    const mpath_kernel_word_t done   = {.address = mpath_room_device(&gpu->room, &words->kernel_done),
                                        .value   = gpu->number};
    const mpath_peer_number_t number = {.word    = &words->number,
                                        .address = mpath_room_device(&gpu->room, &words->number)};
    const mpath_launch_copy_t launch = {
        .pieces = gpu->pieces, .pieces_count = count, .flags = &done, .flags_count = 1, .ctas = ctas};
    mpath_status_t status;
    uint64_t bytes = 0;

    for (unsigned i = 0; i < count; i++) {
        bytes += gpu->pieces[i].bytes;
    }
    gpu->kernel_started = 1;
    gpu_span_begin(gpu, GPU_SPAN_KERNEL, bytes);
    mpath_gpu_coll_lock();
    status = mpath_peer_again_launch(gpu->again, stream, &launch, &number);
    mpath_gpu_coll_unlock();
    return status;
}

/*
 * Small pairs, and a part of what is pushed: one kernel, and with it what the rank sends to itself, unless it would hold
 * up the small ones while engines are at work.
 */
static mpath_status_t start_kernel(mpath_gpu_coll_t *gpu, const mpath_call_t *call)
{
    int helps     = gpu->decided.help_percent > 0;
    unsigned ctas = helps ? GPU_HELP_CTAS : 0, count = 0;
    mpath_stream_t *stream;
    mpath_status_t status;

    for (int i = 1; i < gpu->size; i++) {
        int to         = (gpu->me + i) % gpu->size;
        uint64_t end   = call->send_bytes[to] - gpu->decided.beside[gpu->me * gpu->size + to];
        uint64_t bytes = (gpu_way(gpu, gpu->me, to) == WAY_KERNEL) ? end : gpu_helped_bytes(gpu, gpu->me, to);

        if (bytes > 0) {
            gpu->pieces[count++] = (mpath_kernel_piece_t){
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
        gpu->pieces[count++] = (mpath_kernel_piece_t){.target = mine(gpu->receive.buffer, call->recv_offsets[gpu->me]),
                                                      .source = mine(gpu->send.buffer, call->send_offsets[gpu->me]),
                                                      .bytes  = call->send_bytes[gpu->me]};
        gpu->self_started    = -1; /* done with the kernel */
        ctas += helps ? MPATH_PEER_LOCAL_CTAS : 0;
    }
    status = mpath_stream_get(gpu->send.gpu, gpu->first_stream + 1, &stream);
    return (status == MPATH_OK) ? start_pieces(gpu, stream, count, ctas) : status;
}

/* What a rank sends to itself within a GPU: a kernel on few multiprocessors, beside engines at work between GPUs. */
static mpath_status_t start_local(mpath_gpu_coll_t *gpu, const mpath_kernel_piece_t *piece)
{
    const mpath_launch_copy_t launch = {
        .pieces = piece, .pieces_count = 1, .ctas = MPATH_PEER_LOCAL_CTAS, .mark_p = &gpu->self_mark};
    mpath_status_t status;

    if (!gpu->kernel_started && mpath_kernels_usable(gpu->send.gpu)) {
        gpu->pieces[0]                     = *piece;
        gpu->self_started                  = -1; /* done with the kernel */
        gpu->spans[GPU_SPAN_SELF].began_ns = 0;
        return start_pieces(gpu, gpu->self_stream, 1, MPATH_PEER_LOCAL_CTAS);
    }
    mpath_gpu_coll_lock();
    status = mpath_launch_copy(gpu->self_stream, &launch);
    if (status == MPATH_ERR_UNSUPPORTED) {
        status = mpath_stream_copy(gpu->self_stream, piece->target, piece->source, (size_t)piece->bytes);
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
            gpu, &(mpath_kernel_piece_t){.target = mine(target, 0), .source = mine(source, 0), .bytes = bytes});
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

static mpath_status_t start_staged(mpath_gpu_coll_t *gpu, const mpath_call_t *call)
{
    const mpath_pinned_t *pinned = &gpu->room.slots_pinned;
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

mpath_status_t mpath_gpu_coll_start(mpath_gpu_coll_t *gpu, const mpath_call_t *call)
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
