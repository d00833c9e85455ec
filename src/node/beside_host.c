/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What of a large Allreduce's vector travels through pinned host memory (lane "staged") beside a reduction by writes,
 * over PCIe, which is idle otherwise. Each rank receives from all others what it combines. Between two ranks that is
 * the whole end of the vector, for itself, combined in batches that get shorter while the rest is on its way, or at once
 * where the result takes the place of data. Between more it is the end of the rank's part, which the rank combines when
 * all of it has come, and writes to all: who combines an element, and in which order, does not depend on how much
 * goes this way.
 *
 * How much that is follows from the times of earlier calls (tune/share.h), of which ranks tell in their cells: the
 * same on all. It begins with what others have found for such calls (node/kept.h).
 */
#include "node/reduce_private.h"

#include "node/kept.h"
#include "util/log.h"
#include "util/time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOST_GRAIN_BYTES (UINT64_C(64) << 10)
#define ALIGN_BYTES UINT64_C(256)

/* A batch is such a part of what is left of the end, but no less than that: the last one takes some 15 us. */
#define BATCH_OF_REST 3

#define BATCH_MIN_BYTES (UINT64_C(3) << 20)

/* What a call begins with of what a GPU reaches both ways through the host: of two H200, until calls say more. */
#define HOST_REACHED_PERCENT 75

/* The least part of a port's rate that is worth while: with 3 %, as 8 H200 have, calls took longer. */
#define HOST_LEAST_PERCENT 4

/* What the host carries for each rank, while all of them send and receive, and links bring their GPUs the rest. */
static uint64_t each_host_bps(const mpath_gpu_coll_t *coll)
{
    uint64_t each_bps = coll->rates.host_bps / (uint64_t)coll->size;

    each_bps = (each_bps < coll->rates.both_bps) ? each_bps : coll->rates.both_bps;
    return (each_bps < coll->rates.beside_bps) ? each_bps : coll->rates.beside_bps;
}

static int is_worth(const mpath_gpu_coll_t *coll, uint64_t first_bps)
{
    return each_host_bps(coll) >= first_bps / 100 * HOST_LEAST_PERCENT;
}

/* Through a port of that rate, from where on a part goes this way. */
static uint64_t least_of(const mpath_gpu_coll_t *coll, uint64_t first_bps)
{
    uint64_t wanted = coll->settings->gpu_host_min_bytes;

    return (wanted > 0) ? wanted : mpath_reduce_host_least_bytes(first_bps);
}

/* host->last: what is known of calls of that size. Collective in the first of them. */
static mpath_status_t find_beside(gpu_host_t *host, const mpath_gpu_coll_t *coll, uint64_t first_bps, uint64_t bytes)
{
    uint64_t least_bytes  = least_of(coll, first_bps);
    mpath_status_t status = MPATH_OK;
    unsigned class        = 0;
    mpath_learned_t kept;

    while ((class + 1 < GPU_HOST_CLASSES) && (bytes >> (class + 1) >= least_bytes)) {
        class ++;
    }
    host->last = &host->beside[class];
    if (host->known[class]) {
        return MPATH_OK;
    }
    host->known[class]      = 1;
    host->kept_class[class] = 63 - __builtin_clzll(least_bytes << class);
    mpath_beside_init(host->last, first_bps, each_host_bps(coll) / 100 * HOST_REACHED_PERCENT);
    status = mpath_gpu_kept_take(coll, MPATH_HISTORY_HOST_SHARE, host->operation, host->kept_class[class], &kept);
    if (kept.learned_ns > 0) {
        mpath_beside_resume(host->last, kept.value);
        mpath_debug("calls of %llu bytes begin with %llu millionths through the host, as others have found",
                    (unsigned long long)bytes, (unsigned long long)kept.value);
    }
    return status;
}

static int is_two(const mpath_symmetric_gpu_t *gpu)
{
    return gpu->size == 2;
}

/* Of a vector of all ranks: every part goes to the rank that combines it, and back to all. */
static int is_long(const mpath_symmetric_gpu_t *gpu, uint64_t bytes)
{
    return bytes / (uint64_t)gpu->size * 2 * (uint64_t)(gpu->size - 1) >=
           least_of(gpu->reduce, gpu->reduce->rates.kernel_bps);
}

/* Of what a rank gets from all. */
static int is_long_gather(const mpath_symmetric_gpu_t *gpu, uint64_t bytes)
{
    return bytes / (uint64_t)gpu->size * (uint64_t)(gpu->size - 1) >=
           least_of(gpu->gather, gpu->gather->rates.pair_bps);
}

/* What a rank combines, and where in the vector. */
static uint64_t piece_of(const mpath_symmetric_gpu_t *gpu, int rank, uint64_t *at_p)
{
    const gpu_host_t *host = &gpu->host;

    *at_p = is_two(gpu) ? host->begin : gpu->part_offsets[rank] + gpu->part_bytes[rank];
    return is_two(gpu) ? host->end_bytes : host->end_bytes / (uint64_t)gpu->size;
}

/* -- what ranks tell each other -- */

static void tell(mpath_gpu_coll_t *coll, const gpu_host_t *host, uint64_t room_bytes)
{
    coll->told_host = (mpath_room_host_t){
        .room_bytes = room_bytes, .call = host->last_call, .first_ns = host->first_ns, .second_ns = host->second_ns};
}

void mpath_gpu_host_tell(mpath_symmetric_gpu_t *gpu, const mpath_symmetric_buffers_t *buffers, uint64_t bytes,
                         int eligible)
{
    mpath_gpu_coll_t *coll = gpu->reduce;
    gpu_host_t *host       = &gpu->host;
    uint64_t room          = UINT64_MAX;

    if (!is_long(gpu, bytes)) {
        return;
    }
    host->refused = host->refused && mpath_pause_passes(&coll->room.slots_pause);
    if (!eligible || !coll->claimed || (coll->settings->gpu_host_percent == 0) || host->refused) {
        room = 0;
    } else if (!is_two(gpu) || (buffers->send == buffers->recv)) { /* what comes cannot wait in its place */
        room = coll->settings->gpu_memory_bytes;
        room = (room < bytes / 4) ? room : bytes / 4;
        room = mpath_gpu_scratch_get(gpu, buffers->send_memory, room) ? room : 0;
    }
    tell(coll, host, room);
}

/* A call's times for what is known of its kind, and what follows from them for others. */
static void note_times(const mpath_gpu_coll_t *coll, const gpu_host_t *host, const uint64_t *times_ns)
{
    uint32_t share;

    mpath_beside_note(host->last, times_ns[0], times_ns[1]);
    if (mpath_beside_found(host->last, &share)) {
        mpath_gpu_kept_learned(coll, MPATH_HISTORY_HOST_SHARE, host->operation,
                               host->kept_class[host->last - host->beside], share);
    }
}

/* Notes how long the last such call took, the slowest rank counts; returns the least room. */
static uint64_t hear(const mpath_gpu_coll_t *coll, gpu_host_t *host)
{
    uint64_t room = UINT64_MAX, times_ns[2] = {0, 0};
    int all = host->last != NULL;

    for (int rank = 0; rank < coll->size; rank++) {
        const mpath_room_host_t *told = &gpu_cell(coll, rank)->host;

        room        = (told->room_bytes < room) ? told->room_bytes : room;
        times_ns[0] = (told->first_ns > times_ns[0]) ? told->first_ns : times_ns[0];
        times_ns[1] = (told->second_ns > times_ns[1]) ? told->second_ns : times_ns[1];
        all         = all && (told->call == host->last_call);
    }
    if (all && ((times_ns[1] > 0) == (host->last_bytes > 0))) {
        note_times(coll, host, times_ns);
    }
    host->last = NULL;
    return room;
}

/* Slots of the lane, from the first call on that may need them: where one rank cannot have them, none can for a while. */
static mpath_status_t open_slots(mpath_symmetric_gpu_t *gpu)
{
    mpath_status_t status = mpath_gpu_coll_get_slots(gpu->reduce, mpath_gpu_beside_slots_bytes(gpu->reduce),
                                                     "reductions on device memory do without");

    if (status == MPATH_DECLINED) {
        gpu->host.refused = 1;
        return MPATH_OK;
    }
    return status;
}

mpath_status_t mpath_gpu_host_share(mpath_symmetric_gpu_t *gpu, uint64_t bytes, uint64_t *end_bytes_p)
{
    gpu_host_t *host      = &gpu->host;
    mpath_status_t status = MPATH_OK;
    uint64_t room, share, end, first_bps;

    *end_bytes_p    = 0;
    host->end_bytes = 0;
    if (!is_long(gpu, bytes)) {
        return MPATH_OK;
    }
    first_bps = gpu->reduce->rates.kernel_bps;
    if (!is_worth(gpu->reduce, first_bps)) {
        return MPATH_OK;
    }
    room = hear(gpu->reduce, host);
    if ((room > 0) && !host->refused) {
        status = open_slots(gpu);
    }
    if ((room == 0) || host->refused || (status != MPATH_OK)) {
        return status;
    }
    status = find_beside(host, gpu->reduce, first_bps, bytes);
    if (status != MPATH_OK) {
        return status;
    }
    host->last_call = gpu->reduce->number;
    share           = mpath_beside_share(host->last);
    end             = bytes / MPATH_TUNE_WHOLE * share;
    if (is_two(gpu)) { /* it begins where vectors of elements do */
        room -= (room >= ALIGN_BYTES) ? ALIGN_BYTES : room;
        end = ((end < room) ? end : room) & ~(HOST_GRAIN_BYTES - 1);
        end = (end > 0) ? bytes - ((bytes - end) & ~(ALIGN_BYTES - 1)) : 0;
    } else { /* there is room for what all others send for this rank's part */
        room /= (uint64_t)gpu->size - 1;
        end /= (uint64_t)gpu->size;
        end = (((end < room) ? end : room) & ~(HOST_GRAIN_BYTES - 1)) * (uint64_t)gpu->size;
    }
    host->end_bytes = *end_bytes_p = end;
    return MPATH_OK;
}

/* -- a call -- */

/* Where what rank `from` sends to this one comes to lie. */
static mpath_device_ptr_t landing(const mpath_symmetric_gpu_t *gpu, int from)
{
    const gpu_host_t *host = &gpu->host;
    uint64_t at, bytes = piece_of(gpu, gpu->me, &at);

    if (host->in_place || !is_two(gpu)) {
        return gpu->scratch + (uint64_t)(from - (from > gpu->me)) * bytes;
    }
    return (mpath_device_ptr_t)(uintptr_t)gpu->reduce->receive.buffer + at;
}

/* Between two ranks. The last batch is short: nothing else is under way when it is combined. */
static void cut_batches(gpu_host_t *host)
{
    uint64_t from = 0, bytes;

    for (host->batches = 0; from < host->end_bytes; host->batches++) {
        bytes = ((host->end_bytes - from) / BATCH_OF_REST) & ~(HOST_GRAIN_BYTES - 1);
        bytes = (bytes > BATCH_MIN_BYTES) ? bytes : BATCH_MIN_BYTES;
        if ((host->batches == GPU_HOST_BATCHES - 1) || (bytes > host->end_bytes - from)) {
            bytes = host->end_bytes - from;
        }
        from += bytes;
        host->batch_ends[host->batches] = from;
        host->batch_left[host->batches] = bytes;
    }
    host->launched = 0;
}

/* All of a batch has come. The last one to do so tells that the others are done, too: the stream keeps their order. */
static mpath_status_t combine_batch(mpath_symmetric_gpu_t *gpu, unsigned batch)
{
    gpu_host_t *host       = &gpu->host;
    mpath_gpu_coll_t *coll = gpu->reduce;
    uint64_t offset = (batch > 0) ? host->batch_ends[batch - 1] : 0, bytes = host->batch_ends[batch] - offset;
    uint64_t at                     = host->begin + offset;
    mpath_kernel_word_t done        = {0};
    mpath_kernel_reduce_t arguments = {
        .elements = bytes / mpath_reduce_bytes(host->how.type), .sources_count = 2, .targets_count = 1};
    mpath_status_t status;

    arguments.sources[gpu->me]     = (mpath_device_ptr_t)(uintptr_t)coll->send.buffer + at;
    arguments.sources[1 - gpu->me] = landing(gpu, 1 - gpu->me) + offset;
    arguments.targets[0]           = (mpath_device_ptr_t)(uintptr_t)coll->receive.buffer + at;
    if (++host->launched == host->batches) {
        done = (mpath_kernel_word_t){.address = mpath_room_device(&coll->room, &coll->room.words[gpu->me].engine_done),
                                     .value   = coll->number};
    }
    mpath_gpu_coll_lock();
    status = mpath_launch_reduce_beside(coll->engine_stream, host->function, host->how.type, done, &arguments);
    mpath_gpu_coll_unlock();
    return status;
}

static mpath_status_t arrived(void *owner, int from, uint64_t offset, uint64_t bytes)
{
    mpath_symmetric_gpu_t *gpu = owner;
    gpu_host_t *host           = &gpu->host;
    mpath_status_t status      = MPATH_OK;
    uint64_t begin             = 0;

    (void)from; /* there is one other rank */
    for (unsigned batch = 0; (batch < host->batches) && (status == MPATH_OK); batch++) {
        uint64_t end  = host->batch_ends[batch];
        uint64_t low  = (offset > begin) ? offset : begin;
        uint64_t high = (offset + bytes < end) ? offset + bytes : end;

        if (low < high) {
            host->batch_left[batch] -= high - low;
            status = (host->batch_left[batch] == 0) ? combine_batch(gpu, batch) : MPATH_OK;
        }
        begin = end;
    }
    return status;
}

/* Everything for this rank has come: its kernel. */
static mpath_status_t combine(mpath_gpu_coll_t *coll)
{
    mpath_symmetric_gpu_t *gpu = coll->beside.owner;
    gpu_host_t *host           = &gpu->host;
    uint64_t at, bytes = piece_of(gpu, gpu->me, &at);
    mpath_kernel_reduce_t arguments = {.elements      = bytes / mpath_reduce_bytes(host->how.type),
                                       .sources_count = (uint32_t)gpu->size};
    mpath_kernel_word_t done = {.address = mpath_room_device(&coll->room, &coll->room.words[gpu->me].engine_done),
                                .value   = coll->number};
    mpath_status_t status;

    for (int i = 0; i < gpu->size; i++) {
        int rank = gpu_source(gpu, i);

        arguments.sources[i] = (rank == gpu->me) ? (mpath_device_ptr_t)(uintptr_t)coll->send.buffer + at
                                                 : landing(gpu, rank);
    }
    for (int i = 0; i < (is_two(gpu) ? 1 : gpu->size); i++) {
        arguments.targets[arguments.targets_count++] = gpu_address(coll, (gpu->me + i) % gpu->size, MPATH_ROOM_RECV,
                                                                   at);
    }
    mpath_gpu_coll_lock();
    status = mpath_launch_reduce_beside(coll->engine_stream, host->function, host->how.type, done, &arguments);
    mpath_gpu_coll_unlock();
    return status;
}

/* Two streams for each direction. */
static mpath_status_t get_streams(mpath_gpu_t *device, mpath_staged_side_t *send, mpath_staged_side_t *receive)
{
    mpath_stream_t **streams[] = {&send->second, &receive->second, &send->stream, &receive->stream};
    mpath_status_t status      = MPATH_OK;

    for (unsigned i = 0; (i < 4) && (status == MPATH_OK); i++) {
        status = mpath_stream_get(device, MPATH_GPU_STREAMS_DIRECT - 4 + i, streams[i]);
    }
    return status;
}

mpath_status_t mpath_gpu_host_start(mpath_symmetric_gpu_t *gpu, uint64_t begin, const mpath_reduce_how_t *how)
{
    mpath_gpu_coll_t *coll = gpu->reduce;
    gpu_host_t *host       = &gpu->host;
    mpath_staged_side_t send, receive;
    mpath_status_t status;
    uint64_t at, bytes;

    coll->beside = (gpu_beside_t){.owner = gpu, .start_ns = mpath_time_ns()};
    if (host->end_bytes == 0) {
        return MPATH_OK;
    }
    host->begin    = begin;
    host->in_place = coll->send.buffer == coll->receive.buffer;
    host->how      = *how;
    send           = (mpath_staged_side_t){.messages = coll->staged_send, .pinned = &coll->room.slots_pinned};
    receive        = (mpath_staged_side_t){.messages = coll->staged_receive, .pinned = &coll->room.slots_pinned};
    status         = get_streams(coll->send.gpu, &send, &receive);
    if (status == MPATH_OK) {
        status = mpath_stream_get(coll->send.gpu, coll->first_stream, &coll->engine_stream);
    }
    if (status == MPATH_OK) {
        status = mpath_reduce_find(coll->send.gpu, how, NULL, &host->function);
    }
    if (status != MPATH_OK) {
        return status;
    }
    for (int rank = 0; rank < gpu->size; rank++) {
        bytes                   = (rank == gpu->me) ? 0 : piece_of(gpu, rank, &at);
        coll->staged_send[rank] = (mpath_staged_message_t){
            .address    = (bytes > 0) ? coll->send.buffer + at : NULL,
            .bytes      = bytes,
            .by_streams = mpath_gpu_coll_by_streams(coll, gpu->me, rank, bytes)};
        bytes                      = (rank == gpu->me) ? 0 : piece_of(gpu, gpu->me, &at);
        coll->staged_receive[rank] = (mpath_staged_message_t){
            .address = (bytes > 0) ? (char *)(uintptr_t)landing(gpu, rank) : NULL, .bytes = bytes};
    }
    if (is_two(gpu) && !host->in_place) {
        cut_batches(host);
        receive.arrived    = arrived;
        receive.owner      = gpu;
        coll->beside.waits = 1;
    } else { /* in place only when this rank's own data has left */
        coll->beside.then   = combine;
        coll->beside.to_all = !is_two(gpu);
    }
    mpath_gpu_coll_begin_staged(coll, &send, &receive);
    return MPATH_OK;
}

/* Of the call that has ended, as this rank saw it. */
static void note(gpu_host_t *host, const mpath_gpu_coll_t *coll)
{
    host->last_bytes = host->end_bytes;
    host->first_ns   = coll->beside.first_ns;
    host->second_ns  = coll->beside.second_ns;
    if (host->last != NULL) {
        mpath_debug(
            "call %llu on device memory: %llu bytes through the host, done after %llu us; the others after %llu us",
            (unsigned long long)coll->number, (unsigned long long)host->end_bytes,
            (unsigned long long)host->second_ns / 1000, (unsigned long long)host->first_ns / 1000);
    }
}

void mpath_gpu_host_end(mpath_symmetric_gpu_t *gpu)
{
    note(&gpu->host, gpu->reduce);
}

/* -- Allgathers: a part of what each rank sends to each other -- */

void mpath_gpu_host_tell_gather(mpath_symmetric_gpu_t *gpu, uint64_t bytes, int eligible)
{
    mpath_gpu_coll_t *coll = gpu->gather;

    coll->timed     = 0;
    coll->share_ppm = 0;
    if (is_long_gather(gpu, bytes)) {
        tell(coll, &gpu->host_gather, (eligible && (coll->settings->gpu_host_percent > 0)) ? UINT64_MAX : 0);
    }
}

mpath_status_t mpath_gpu_host_share_gather(mpath_symmetric_gpu_t *gpu, uint64_t bytes)
{
    mpath_gpu_coll_t *coll = gpu->gather;
    gpu_host_t *host       = &gpu->host_gather;
    mpath_status_t status;

    if (!is_long_gather(gpu, bytes) || coll->no_beside || !coll->rated || !is_worth(coll, coll->rates.pair_bps) ||
        (hear(coll, host) == 0)) {
        return MPATH_OK;
    }
    status = find_beside(host, coll, coll->rates.pair_bps, bytes);
    if (status != MPATH_OK) {
        return status;
    }
    host->last_call = coll->number;
    coll->timed     = 1;
    coll->share_ppm = mpath_beside_share(host->last);
    host->end_bytes = bytes / MPATH_TUNE_WHOLE * coll->share_ppm;
    return MPATH_OK;
}

void mpath_gpu_host_end_gather(mpath_symmetric_gpu_t *gpu)
{
    if (gpu->gather->timed) {
        note(&gpu->host_gather, gpu->gather);
    }
}
