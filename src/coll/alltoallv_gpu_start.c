/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a rank starts in a call on device memory: one kernel for its small pairs, the pieces of its large pairs in order
 * for the copy engine, what it sends to itself, and its staged messages. Nothing here waits.
 */
#include "coll/alltoallv_gpu_private.h"

#include "util/log.h"

#include <stdlib.h>
#include <string.h>

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

/* Where the message between this rank and `peer` lies in a buffer of the peer, as this process addresses it. */
static mpath_cu_ptr_t theirs(const mpath_gpu_coll_t *gpu, int peer, int side)
{
    uint64_t offset = mpath_room_offsets(&gpu->room, gpu->half, peer, side)[gpu->me];

    return mpath_import_address(gpu->decided.imports[side][peer], gpu_cell(gpu, peer)->sides[side].address + offset);
}

/* The same in this rank's own. */
static mpath_cu_ptr_t mine(const char *buffer, uint64_t offset)
{
    return (mpath_cu_ptr_t)(uintptr_t)(buffer + offset);
}

/* The pieces of this rank's engine, in the order that all GPUs follow together. */
static uint32_t make_pieces(mpath_gpu_coll_t *gpu, const mpath_call_t *call, int pull)
{
    const mpath_order_piece_t *pieces;
    uint32_t count;

    pieces = mpath_order_pieces(gpu->order, gpu->me, &count);
    for (uint32_t i = 0; i < count; i++) {
        int peer = pieces[i].destination; /* whom the engine works on */
        mpath_cu_ptr_t target, source;

        target = pull ? mine(gpu->receive.buffer, call->recv_offsets[peer]) : theirs(gpu, peer, MPATH_ROOM_RECV);
        source = pull ? theirs(gpu, peer, MPATH_ROOM_SEND) : mine(gpu->send.buffer, call->send_offsets[peer]);
        gpu->engine_pieces[i] = (mpath_peer_piece_t){
            .target = target + pieces[i].offset, .source = source + pieces[i].offset, .bytes = pieces[i].bytes};
        gpu->counters.engine_bytes += pieces[i].bytes;
    }
    return count;
}

/* Large pairs: pushed or pulled by copy engines. */
static mpath_status_t start_engine(mpath_gpu_coll_t *gpu, const mpath_call_t *call)
{
    int pull               = gpu->decided.engine == WAY_PULL;
    mpath_peer_word_t done = {0};
    mpath_status_t status;
    uint32_t count;

    count = (gpu->decided.engine == WAY_NONE) ? 0 : make_pieces(gpu, call, pull);
    if (count == 0) {
        return MPATH_OK;
    }
    status = mpath_stream_get(pull ? gpu->receive.gpu : gpu->send.gpu, gpu->first_stream, &gpu->engine_stream);
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
    mpath_gpu_coll_lock();
    status = mpath_peer_engine(gpu->engine_stream, gpu->engine_pieces, count, gpu->settings->gpu_batch, done);
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

    gpu->kernel_started = 1;
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
                .target = theirs(gpu, to, MPATH_ROOM_RECV) + end - bytes,
                .source = mine(gpu->send.buffer, call->send_offsets[to] + end - bytes),
                .bytes  = bytes};
            gpu->counters.kernel_bytes += bytes;
        }
    }
    if (count == 0) {
        return MPATH_OK;
    }
    if (((gpu->decided.engine == WAY_NONE) || helps) && (call->send_bytes[gpu->me] > 0) &&
        (gpu->receive.gpu == gpu->send.gpu)) {
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
        gpu->pieces[0]    = *piece;
        gpu->self_started = -1; /* done with the kernel */
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
