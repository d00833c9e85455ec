/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a rank starts in a call on device memory: one kernel for its small pairs, the pieces of its large pairs in order
 * for the copy engine, what it sends to itself, and its staged messages. Nothing here waits.
 */
#include "coll/alltoallv_gpu_private.h"

#include "util/log.h"

#include <stdlib.h>
#include <string.h>

/* A pair is not cut into smaller pieces for the sake of the order. */
#define ORDER_LEAST_BYTES (2u << 20)
#define ORDER_MAX_PIECES 4096u

mpath_status_t mpath_gpu_coll_order_create(mpath_gpu_coll_t *gpu)
{
    gpu->puts    = calloc(ORDER_MAX_PIECES, sizeof(*gpu->puts));
    gpu->awaited = calloc(ORDER_MAX_PIECES, sizeof(*gpu->awaited));
    if ((gpu->puts == NULL) || (gpu->awaited == NULL)) {
        mpath_error("no memory for the pieces of device buffers; they go through the host");
        return MPATH_ERR_NO_MEMORY;
    }
    return mpath_order_create(gpu->size, &gpu->order);
}

/* Where the message of this rank begins in the receive buffer of `to`, as this process addresses it. */
static mpath_cu_ptr_t target_of(const mpath_gpu_coll_t *gpu, int to)
{
    uint64_t offset = gpu->room.offsets[gpu->half][(size_t)to * (size_t)gpu->size + (size_t)gpu->me];

    return mpath_import_address(gpu->imports[to], gpu_cell(gpu, to)->recv_address + offset);
}

static mpath_cu_ptr_t source_of(const mpath_gpu_coll_t *gpu, const mpath_call_t *call, int to)
{
    return (mpath_cu_ptr_t)(uintptr_t)(gpu->send.buffer + call->send_offsets[to]);
}

static mpath_peer_word_t word_of(const mpath_gpu_coll_t *gpu, const volatile void *word, uint64_t value)
{
    return (mpath_peer_word_t){.address = mpath_room_device(&gpu->room, word), .value = value};
}

/* The order of all ranks' engine pairs; the last one is kept, as matrices often repeat. */
static void make_order(mpath_gpu_coll_t *gpu)
{
    size_t cells = (size_t)gpu->size * (size_t)gpu->size;

    for (size_t i = 0; i < cells; i++) {
        gpu->engine_demand[i] = (gpu->ways[i] == WAY_ENGINE) ? gpu->demand[i] : 0;
    }
    if (!gpu->ordered || (memcmp(gpu->engine_demand, gpu->ordered_demand, cells * sizeof(uint64_t)) != 0)) {
        mpath_order_compute(gpu->order, gpu->engine_demand, ORDER_LEAST_BYTES);
        memcpy(gpu->ordered_demand, gpu->engine_demand, cells * sizeof(uint64_t));
        gpu->ordered = 1;
    }
}

/* Streams may wait for others only where each communicator has its own, and every sender's writes its words. */
static int has_gates(const mpath_gpu_coll_t *gpu)
{
    for (int rank = 0; rank < gpu->size; rank++) {
        for (int to = 0; to < gpu->size; to++) {
            if ((gpu_way(gpu, rank, to) == WAY_ENGINE) && !(gpu_cell(gpu, rank)->flags & MPATH_ROOM_VALUES)) {
                return 0;
            }
        }
    }
    return gpu->gated;
}

/* Marks those of this rank's pieces that are somebody's gate. */
static void find_awaited(mpath_gpu_coll_t *gpu)
{
    memset(gpu->awaited, 0, ORDER_MAX_PIECES);
    for (int rank = 0; rank < gpu->size; rank++) {
        uint32_t count;
        const mpath_order_piece_t *pieces = mpath_order_pieces(gpu->order, rank, &count);

        for (uint32_t i = 0; i < count; i++) {
            if ((pieces[i].gate_rank == gpu->me) && (pieces[i].gate_pieces <= ORDER_MAX_PIECES)) {
                gpu->awaited[pieces[i].gate_pieces - 1] = 1;
            }
        }
    }
}

/* Large pairs: copy engine, in the order that all GPUs follow together. */
static mpath_status_t start_engine(mpath_gpu_coll_t *gpu, const mpath_call_t *call)
{
    mpath_room_words_t *words = gpu->room.words;
    const mpath_order_piece_t *pieces;
    mpath_peer_word_t done = {0};
    mpath_status_t status;
    uint32_t count;
    int gates;

    pieces = mpath_order_pieces(gpu->order, gpu->me, &count);
    if (count == 0) {
        return MPATH_OK;
    }
    gates = has_gates(gpu);
    find_awaited(gpu);
    for (uint32_t i = 0; i < count; i++) {
        const mpath_order_piece_t *piece = &pieces[i];
        mpath_peer_put_t *put            = &gpu->puts[i];

        *put = (mpath_peer_put_t){.target = target_of(gpu, piece->destination) + piece->offset,
                                  .source = source_of(gpu, call, piece->destination) + piece->offset,
                                  .bytes  = piece->bytes};
        if (gates && (piece->gate_rank >= 0)) {
            put->gate = word_of(gpu, &words[piece->gate_rank].pieces, gpu_pieces_value(gpu, piece->gate_pieces));
        }
        if (gates && gpu->awaited[i]) {
            put->after = word_of(gpu, &words[gpu->me].pieces, gpu_pieces_value(gpu, i + 1));
        }
        gpu->counters.engine_bytes += piece->bytes;
    }
    if (!gpu->posts) {
        done = word_of(gpu, &words[gpu->me].engine_done, gpu->number);
    }
    gpu->engine_started = 1;
    mpath_gpu_coll_lock();
    status = mpath_peer_put_engine(gpu->main_stream, gpu->puts, count, done);
    if ((status == MPATH_OK) && gpu->posts) {
        status = mpath_stream_mark(gpu->main_stream, &gpu->engine_mark);
    }
    mpath_gpu_coll_unlock();
    return status;
}

/* Small pairs: one kernel, and with it what the rank sends to itself if that is small as well. */
static mpath_status_t start_kernel(mpath_gpu_coll_t *gpu, const mpath_call_t *call)
{
    unsigned count        = 0;
    int alone             = 1;
    mpath_status_t status = MPATH_OK;

    for (int to = 0; to < gpu->size; to++) {
        gpu_way_t way = gpu_way(gpu, gpu->me, to);

        alone = alone && (way != WAY_ENGINE);
        if (way == WAY_KERNEL) {
            gpu->pieces[count++] = (mpath_kernel_piece_t){
                .target = target_of(gpu, to), .source = source_of(gpu, call, to), .bytes = call->send_bytes[to]};
            gpu->counters.kernel_bytes += call->send_bytes[to];
        }
    }
    if (count == 0) {
        return MPATH_OK;
    }
    if (alone && (call->send_bytes[gpu->me] > 0) && (gpu->receive.gpu == gpu->send.gpu)) {
        gpu->pieces[count++] = (mpath_kernel_piece_t){
            .target = (mpath_cu_ptr_t)(uintptr_t)(gpu->receive.buffer + call->recv_offsets[gpu->me]),
            .source = source_of(gpu, call, gpu->me),
            .bytes  = call->send_bytes[gpu->me]};
        gpu->self_started = -1; /* done with the kernel */
    }
    gpu->kernel_started = 1;
    mpath_gpu_coll_lock();
    status = mpath_peer_put_kernel(alone ? gpu->main_stream : gpu->side_stream, gpu->pieces, count,
                                   word_of(gpu, &gpu->room.words[gpu->me].kernel_done, gpu->number));
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
    status = mpath_stream_get(device, 2 * (unsigned)gpu->lease + 1, &gpu->self_stream);
    if (status != MPATH_OK) {
        return status;
    }
    gpu->self_started = 1;
    mpath_gpu_coll_lock();
    status = mpath_stream_copy(gpu->self_stream, (mpath_cu_ptr_t)(uintptr_t)target, (mpath_cu_ptr_t)(uintptr_t)source,
                               (size_t)bytes);
    if (status == MPATH_OK) {
        status = mpath_stream_mark(gpu->self_stream, &gpu->self_mark);
    }
    mpath_gpu_coll_unlock();
    return status;
}

/* Streams of the lane "staged": the last two of a GPU, shared by all communicators. */
static mpath_status_t staged_side(mpath_gpu_coll_t *gpu, mpath_gpu_t *device, unsigned stream,
                                  const mpath_staged_message_t *messages, mpath_staged_side_t *side)
{
    *side = (mpath_staged_side_t){.messages = messages, .pinned = &gpu->room.slots_pinned};
    return (device == NULL) ? MPATH_OK : mpath_stream_get(device, stream, &side->stream);
}

static mpath_status_t start_staged(mpath_gpu_coll_t *gpu, const mpath_call_t *call)
{
    mpath_staged_side_t send, receive;
    uint64_t bytes = 0;
    mpath_status_t status;

    for (int rank = 0; rank < gpu->size; rank++) {
        int out = gpu_way(gpu, gpu->me, rank) == WAY_STAGED, in = gpu_way(gpu, rank, gpu->me) == WAY_STAGED;

        gpu->staged_send[rank]    = (mpath_staged_message_t){.address = gpu->send.buffer + call->send_offsets[rank],
                                                             .bytes   = out ? call->send_bytes[rank] : 0};
        gpu->staged_receive[rank] = (mpath_staged_message_t){.address = gpu->receive.buffer + call->recv_offsets[rank],
                                                             .bytes   = in ? call->recv_bytes[rank] : 0};
        bytes += gpu->staged_send[rank].bytes + gpu->staged_receive[rank].bytes;
    }
    if (bytes == 0) {
        return MPATH_OK;
    }
    status = staged_side(gpu, gpu->send.gpu, MPATH_GPU_STREAMS - 2, gpu->staged_send, &send);
    if (status == MPATH_OK) {
        status = staged_side(gpu, gpu->receive.gpu, MPATH_GPU_STREAMS - 1, gpu->staged_receive, &receive);
    }
    if (status == MPATH_OK) {
        gpu->staged_before  = mpath_staged_sent_bytes(gpu->room.staged);
        gpu->staged_started = 1;
        mpath_staged_begin(gpu->room.staged, gpu->number, &send, &receive, mpath_gpu_coll_mutex());
    }
    return status;
}

mpath_status_t mpath_gpu_coll_start(mpath_gpu_coll_t *gpu, const mpath_call_t *call)
{
    mpath_status_t status = MPATH_OK;

    gpu->posts = !(gpu_cell(gpu, gpu->me)->flags & MPATH_ROOM_VALUES);
    if (gpu->main_stream != NULL) {
        make_order(gpu);
        status = start_engine(gpu, call);
        if (status == MPATH_OK) {
            status = start_kernel(gpu, call);
        }
    }
    if (status == MPATH_OK) {
        status = start_self(gpu, call);
    }
    return (status == MPATH_OK) ? start_staged(gpu, call) : status;
}
