/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reductions on device memory: the parts, the agreement, one kernel on each rank.
 *
 * Allreduces of short vectors (device/kernels/reduce.h): a rank starts its kernel before the agreement (node/flagged.h),
 * which passes while the GPU gets to work; each kernel sends its vector to all and waits for theirs. Of longer ones it
 * sends the part of each rank, combines its own and sends that to all. Unless all have started theirs, nothing is complete
 * anywhere and no kernel has written a result. Each form has memory and numbers of its own.
 *
 * A part of the vector of a large Allreduce travels through pinned host memory (lane "staged") beside a reduction by
 * writes, over PCIe, which is idle otherwise. Each rank receives from all others what it combines. Between two ranks that is
 * the whole end of the vector, for itself, combined in batches that get shorter while the rest still comes, or at once
 * where the result takes the place of data. Between more it is the end of the part of the rank, which it combines when all
 * of it has come, and writes to all: who combines an element, and in which order, does not depend on how much
 * goes through the host.
 *
 * How large that part is follows from the times of earlier calls (tune/share.h), which ranks publish in their cells: the
 * same on all. It begins with what others have found for such calls (node/history.h).
 */
#include "node/flagged.h"
#include "node/history.h"
#include "node/reduce_private.h"

#include "device/usage.h"
#include "team/wait.h"
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

/* What a call begins with of what a GPU reaches in both directions through the host: of two H200, until calls say more. */
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

/* Through a port of that rate, from where on a part goes through the host. */
static uint64_t least_of(const mpath_gpu_coll_t *coll, uint64_t first_bps)
{
    uint64_t wanted = coll->settings->gpu_host_min_bytes;

    return (wanted > 0) ? wanted : mpath_reduce_host_least_bytes(first_bps);
}

/* host->last: what calls of that size have shown. Collective in the first of them. */
static mpath_status_t find_beside(gpu_host_t *host, const mpath_gpu_coll_t *coll, uint64_t first_bps, uint64_t bytes)
{
    uint64_t least_bytes  = least_of(coll, first_bps);
    mpath_status_t status = MPATH_OK;
    unsigned class        = 0;
    mpath_learned_t learned;

    while ((class + 1 < GPU_HOST_CLASSES) && (bytes >> (class + 1) >= least_bytes)) {
        class ++;
    }
    host->last = &host->beside[class];
    if (host->history_taken[class]) {
        return MPATH_OK;
    }
    host->history_taken[class] = 1;
    host->history_class[class] = 63 - __builtin_clzll(least_bytes << class);
    mpath_beside_init(host->last, first_bps, each_host_bps(coll) / 100 * HOST_REACHED_PERCENT);
    status = mpath_gpu_history_take(coll, MPATH_HISTORY_HOST_SHARE, host->operation, host->history_class[class],
                                    &learned);
    if (learned.learned_ns > 0) {
        mpath_beside_resume(host->last, learned.value);
        mpath_debug("calls of %llu bytes begin with %llu millionths through the host, as others have found",
                    (unsigned long long)bytes, (unsigned long long)learned.value);
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
static uint64_t fragment_of(const mpath_symmetric_gpu_t *gpu, int rank, uint64_t *at_p)
{
    const gpu_host_t *host = &gpu->host;

    *at_p = is_two(gpu) ? host->begin : gpu->part_offsets[rank] + gpu->part_bytes[rank];
    return is_two(gpu) ? host->end_bytes : host->end_bytes / (uint64_t)gpu->size;
}

/* -- memory on the GPU for this rank alone -- */

static void gpu_scratch_free(mpath_symmetric_gpu_t *gpu)
{
    mpath_gpu_memory_give(gpu->scratch_gpu, gpu->scratch, (size_t)gpu->scratch_bytes);
    gpu->scratch       = 0;
    gpu->scratch_bytes = 0;
}

/* For `bytes` bytes on the device of `memory`, gpu->scratch; 0: there is none. */
static int gpu_scratch_get(mpath_symmetric_gpu_t *gpu, const mpath_memory_t *memory, uint64_t bytes)
{
    mpath_device_result_t result;
    mpath_gpu_t *device;

    if ((bytes > gpu->reduce->settings->gpu_memory_bytes) ||
        (mpath_gpu_get(memory->device, memory->context, &device) != MPATH_OK)) {
        return 0;
    }
    if ((device == gpu->scratch_gpu) && (bytes <= gpu->scratch_bytes)) {
        return 1;
    }
    gpu_scratch_free(gpu);
    if (mpath_gpu_enter(device) != MPATH_OK) {
        return 0;
    }
    result = mpath_gpu_memory_take_within(gpu->reduce->settings->gpu_device_bytes, &gpu->scratch, (size_t)bytes);
    mpath_gpu_leave(device);
    if (result != MPATH_DEVICE_DONE) {
        gpu->scratch = 0;
        return 0;
    }
    gpu->scratch_gpu   = device;
    gpu->scratch_bytes = bytes;
    return 1;
}

/* -- what ranks publish in their cells -- */

static void host_publish(mpath_gpu_coll_t *coll, const gpu_host_t *host, uint64_t capacity_bytes)
{
    coll->published_host = (mpath_board_host_t){.capacity_bytes = capacity_bytes,
                                                .call           = host->last_call,
                                                .first_ns       = host->first_ns,
                                                .second_ns      = host->second_ns};
}

/*
 * For reductions by writes: what goes into the cell, after the claim; how many bytes at the end
 * of the vector go through the host, collective and the same on all ranks; starts them, beside the others; the end of
 * the call.
 */
static void gpu_host_publish(mpath_symmetric_gpu_t *gpu, const mpath_symmetric_buffers_t *buffers, uint64_t bytes,
                             int eligible)
{
    mpath_gpu_coll_t *coll = gpu->reduce;
    gpu_host_t *host       = &gpu->host;
    uint64_t capacity      = UINT64_MAX;

    if (!is_long(gpu, bytes)) {
        return;
    }
    host->refused = host->refused && mpath_pause_passes(&coll->board.slots_pause);
    if (!eligible || !coll->claimed || (coll->settings->gpu_host_percent == 0) || host->refused) {
        capacity = 0;
    } else if (!is_two(gpu) || (buffers->send == buffers->recv)) { /* what comes cannot wait in its place */
        capacity = coll->settings->gpu_memory_bytes;
        capacity = (capacity < bytes / 4) ? capacity : bytes / 4;
        capacity = gpu_scratch_get(gpu, buffers->send_memory, capacity) ? capacity : 0;
    }
    host_publish(coll, host, capacity);
}

/* A call's times for the history of its kind, and what follows from them for others. */
static void note_times(const mpath_gpu_coll_t *coll, const gpu_host_t *host, const uint64_t *times_ns)
{
    uint32_t share;

    mpath_beside_note(host->last, times_ns[0], times_ns[1]);
    if (mpath_beside_found(host->last, &share)) {
        mpath_gpu_history_note(coll, MPATH_HISTORY_HOST_SHARE, host->operation,
                               host->history_class[host->last - host->beside], share);
    }
}

/* Notes how long the last such call took, the slowest rank counts; returns the least capacity. */
static uint64_t host_collect(const mpath_gpu_coll_t *coll, gpu_host_t *host)
{
    uint64_t capacity = UINT64_MAX, times_ns[2] = {0, 0};
    int all = host->last != NULL;

    for (int rank = 0; rank < coll->size; rank++) {
        const mpath_board_host_t *published = &gpu_cell(coll, rank)->host;

        capacity    = (published->capacity_bytes < capacity) ? published->capacity_bytes : capacity;
        times_ns[0] = (published->first_ns > times_ns[0]) ? published->first_ns : times_ns[0];
        times_ns[1] = (published->second_ns > times_ns[1]) ? published->second_ns : times_ns[1];
        all         = all && (published->call == host->last_call);
    }
    if (all && ((times_ns[1] > 0) == (host->last_bytes > 0))) {
        note_times(coll, host, times_ns);
    }
    host->last = NULL;
    return capacity;
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

static mpath_status_t gpu_host_share(mpath_symmetric_gpu_t *gpu, uint64_t bytes, uint64_t *end_bytes_p)
{
    gpu_host_t *host      = &gpu->host;
    mpath_status_t status = MPATH_OK;
    uint64_t capacity, share, end, first_bps;

    *end_bytes_p    = 0;
    host->end_bytes = 0;
    if (!is_long(gpu, bytes)) {
        return MPATH_OK;
    }
    first_bps = gpu->reduce->rates.kernel_bps;
    if (!is_worth(gpu->reduce, first_bps)) {
        return MPATH_OK;
    }
    capacity = host_collect(gpu->reduce, host);
    if ((capacity > 0) && !host->refused) {
        status = open_slots(gpu);
    }
    if ((capacity == 0) || host->refused || (status != MPATH_OK)) {
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
        capacity -= (capacity >= ALIGN_BYTES) ? ALIGN_BYTES : capacity;
        end = ((end < capacity) ? end : capacity) & ~(HOST_GRAIN_BYTES - 1);
        end = (end > 0) ? bytes - ((bytes - end) & ~(ALIGN_BYTES - 1)) : 0;
    } else { /* the capacity holds what all others send for this rank's part */
        capacity /= (uint64_t)gpu->size - 1;
        end /= (uint64_t)gpu->size;
        end = (((end < capacity) ? end : capacity) & ~(HOST_GRAIN_BYTES - 1)) * (uint64_t)gpu->size;
    }
    host->end_bytes = *end_bytes_p = end;
    return MPATH_OK;
}

/* -- a call -- */

/* Where what rank `from` sends to this one comes to lie. */
static mpath_device_ptr_t landing(const mpath_symmetric_gpu_t *gpu, int from)
{
    const gpu_host_t *host = &gpu->host;
    uint64_t at, bytes = fragment_of(gpu, gpu->me, &at);

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
        done = (mpath_kernel_word_t){
            .address = mpath_board_device(&coll->board, &coll->board.words[gpu->me].engine_done),
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

/* Where rank `rank` has the byte `offset` of a side, as this process addresses it. */
static mpath_device_ptr_t gpu_address(const mpath_gpu_coll_t *coll, int rank, int side, uint64_t offset)
{
    const char *own = (side == MPATH_BOARD_SEND) ? coll->send.buffer : coll->receive.buffer;

    if (rank == coll->me) {
        return (mpath_device_ptr_t)(uintptr_t)own + offset;
    }
    return mpath_import_address(coll->decided.imports[side][rank], gpu_cell(coll, rank)->sides[side].address + offset);
}

/* The rank whose elements are combined as number `index`, in this rank's part. */
static int gpu_source(const mpath_symmetric_gpu_t *gpu, int index)
{
    return gpu->in_ring ? (gpu->me + 1 + index) % gpu->size : index;
}

/* Everything for this rank has come: its kernel. */
static mpath_status_t combine(mpath_gpu_coll_t *coll)
{
    mpath_symmetric_gpu_t *gpu = coll->beside.owner;
    gpu_host_t *host           = &gpu->host;
    uint64_t at, bytes = fragment_of(gpu, gpu->me, &at);
    mpath_kernel_reduce_t arguments = {.elements      = bytes / mpath_reduce_bytes(host->how.type),
                                       .sources_count = (uint32_t)gpu->size};
    mpath_kernel_word_t done = {.address = mpath_board_device(&coll->board, &coll->board.words[gpu->me].engine_done),
                                .value   = coll->number};
    mpath_status_t status;

    for (int i = 0; i < gpu->size; i++) {
        int rank = gpu_source(gpu, i);

        arguments.sources[i] = (rank == gpu->me) ? (mpath_device_ptr_t)(uintptr_t)coll->send.buffer + at
                                                 : landing(gpu, rank);
    }
    for (int i = 0; i < (is_two(gpu) ? 1 : gpu->size); i++) {
        arguments.targets[arguments.targets_count++] = gpu_address(coll, (gpu->me + i) % gpu->size, MPATH_BOARD_RECV,
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

static mpath_status_t gpu_host_start(mpath_symmetric_gpu_t *gpu, uint64_t begin, const mpath_reduce_how_t *how)
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
    send           = (mpath_staged_side_t){.messages = coll->staged_send, .pinned = &coll->board.slots_pinned};
    receive        = (mpath_staged_side_t){.messages = coll->staged_receive, .pinned = &coll->board.slots_pinned};
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
        bytes                   = (rank == gpu->me) ? 0 : fragment_of(gpu, rank, &at);
        coll->staged_send[rank] = (mpath_staged_message_t){
            .address    = (bytes > 0) ? coll->send.buffer + at : NULL,
            .bytes      = bytes,
            .by_streams = mpath_gpu_coll_by_streams(coll, gpu->me, rank, bytes)};
        bytes                      = (rank == gpu->me) ? 0 : fragment_of(gpu, gpu->me, &at);
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

static void gpu_host_end(mpath_symmetric_gpu_t *gpu)
{
    note(&gpu->host, gpu->reduce);
}

/* -- Allgathers: a part of what each rank sends to each other -- */

/*
 * The same for Allgathers of `bytes` bytes, all blocks together: before the agreement, after mpath_gpu_coll_prepare(),
 * and at the end.
 */
static void gpu_host_publish_gather(mpath_symmetric_gpu_t *gpu, uint64_t bytes, int eligible)
{
    mpath_gpu_coll_t *coll = gpu->gather;

    coll->timed     = 0;
    coll->share_ppm = 0;
    if (is_long_gather(gpu, bytes)) {
        host_publish(coll, &gpu->host_gather, (eligible && (coll->settings->gpu_host_percent > 0)) ? UINT64_MAX : 0);
    }
}

static mpath_status_t gpu_host_share_gather(mpath_symmetric_gpu_t *gpu, uint64_t bytes)
{
    mpath_gpu_coll_t *coll = gpu->gather;
    gpu_host_t *host       = &gpu->host_gather;
    mpath_status_t status;

    if (!is_long_gather(gpu, bytes) || coll->no_beside || !coll->rated || !is_worth(coll, coll->rates.pair_bps) ||
        (host_collect(coll, host) == 0)) {
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

static void gpu_host_end_gather(mpath_symmetric_gpu_t *gpu)
{
    if (gpu->gather->timed) {
        note(&gpu->host_gather, gpu->gather);
    }
}

/* Of each GPU, for parts: holds MPATH_REDUCE_PARTS_MAX_BYTES, nearly. */
#define PARTS_MEMORY_MAX (UINT64_C(16) << 20)

/* What one form of the kernels needs. */
typedef struct eager_form {
    gpu_window_t *window;             /* NULL until there was a call for it */
    uint64_t number;                  /* of calls that could have used it, the same on all ranks */
    uint64_t counted;                 /* the number that the kernels' counters have */
    mpath_device_function_t function; /* of the last operation and type; NULL: not looked for */
    gpu_eager_kernel_t kernel;
    uint64_t longest_bytes; /* vector that it takes */
    int longest_known;      /* 1: with rates of the H200, 2: of this machine */
} eager_form_t;

struct gpu_eager {
    eager_form_t forms[MPATH_EAGER_FORMS];
    /* the call under way */
    mpath_reduce_how_t how;
    int known, fits;         /* of `how` */
    mpath_eager_form_t form; /* MPATH_EAGER_FORMS: none */
    uint64_t bytes;
    mpath_kernel_eager_t arguments;
    int wanted; /* there is memory for its vector, or may be */
    int started;
};

/*
 * Before the agreement of an Allreduce, starts this rank's kernel on its GPU (NULL: the rank is
 * not eligible), if that is predicted to be faster than the algorithm that has been chosen, and it may expect that all others
 * do the same. After it: whether all have, so that nothing but waiting is left; otherwise the kernel is called back, and
 * the call goes on with another algorithm. Of both, errors break the team.
 */
static gpu_eager_t *gpu_eager_create(void)
{
    return calloc(1, sizeof(gpu_eager_t));
}

static void gpu_eager_destroy(gpu_eager_t *eager)
{
    for (int form = 0; (eager != NULL) && (form < MPATH_EAGER_FORMS); form++) {
        mpath_gpu_window_destroy(eager->forms[form].window);
        mpath_pinned_release(&eager->forms[form].kernel.words);
    }
    free(eager);
}

/* -- which form -- */

/* For vectors of so many bytes; MPATH_EAGER_FORMS: the algorithm that has been chosen for after the agreement is faster. */
static mpath_eager_form_t form_of(const mpath_symmetric_gpu_t *gpu, uint64_t bytes)
{
    mpath_gpu_reduce_t algorithm = (mpath_gpu_reduce_t)gpu->reduce->settings->gpu_reduce;
    unsigned algorithms          = MPATH_REDUCE_BIT(gpu->algorithm) | MPATH_REDUCE_BIT(MPATH_GPU_REDUCE_PARTS) |
                          MPATH_REDUCE_BIT(MPATH_GPU_REDUCE_WHOLE);

    if (gpu->in_ring) {
        return MPATH_EAGER_FORMS; /* they combine in the order of the ranks */
    }
    if (algorithm == MPATH_GPU_REDUCE_AUTO) {
        algorithm = mpath_reduce_fastest(&gpu->reduce->rates, algorithms, (unsigned)gpu->size, bytes);
    }
    if (algorithm == MPATH_GPU_REDUCE_WHOLE) {
        return (bytes <= MPATH_REDUCE_WHOLE_MAX_BYTES) ? MPATH_EAGER_WHOLE : MPATH_EAGER_FORMS;
    }
    return ((algorithm == MPATH_GPU_REDUCE_PARTS) && (bytes <= MPATH_REDUCE_PARTS_MAX_BYTES)) ? MPATH_EAGER_PARTS
                                                                                              : MPATH_EAGER_FORMS;
}

/* The longest vector that goes in a form: for which it may be predicted to be the fastest, or is forced. */
static uint64_t longest(const mpath_symmetric_gpu_t *gpu, mpath_eager_form_t what)
{
    mpath_gpu_reduce_t algorithm = (what == MPATH_EAGER_WHOLE) ? MPATH_GPU_REDUCE_WHOLE : MPATH_GPU_REDUCE_PARTS;
    mpath_gpu_reduce_t other     = (what == MPATH_EAGER_WHOLE) ? MPATH_GPU_REDUCE_PARTS : MPATH_GPU_REDUCE_DIRECT;
    uint64_t limit     = (what == MPATH_EAGER_WHOLE) ? MPATH_REDUCE_WHOLE_MAX_BYTES : MPATH_REDUCE_PARTS_MAX_BYTES;
    eager_form_t *form = &gpu->eager->forms[what];
    int known          = gpu->reduce->rated ? 2 : 1;

    if (gpu->reduce->settings->gpu_reduce == (int)algorithm) {
        return limit;
    }
    if (form->longest_known != known) {
        form->longest_known = known;
        form->longest_bytes = mpath_reduce_most_bytes(&gpu->reduce->rates, algorithm, other, (unsigned)gpu->size,
                                                      limit);
    }
    return form->longest_bytes;
}

/* The longest vector for a form, as far as this rank has memory; 0: it has none. */
static uint64_t max_bytes(const mpath_symmetric_gpu_t *gpu, mpath_eager_form_t form)
{
    uint64_t size = (uint64_t)gpu->size, memory = gpu->reduce->settings->gpu_memory_bytes, capacity;
    uint64_t most   = longest(gpu, form);
    uint64_t wanted = mpath_eager_memory_bytes(form, (unsigned)size,
                                               mpath_eager_slot_bytes(form, (unsigned)size, most));

    if (form != MPATH_EAGER_WHOLE) {
        memory = (memory / 2 < PARTS_MEMORY_MAX) ? memory / 2 : PARTS_MEMORY_MAX;
    }
    memory = (wanted < memory) ? wanted : memory;
    memory = mpath_gpu_window_most(gpu->eager->forms[form].window, gpu->reduce, memory);
    if (memory <= MPATH_EAGER_COUNTERS_BYTES) {
        return 0;
    }
    capacity = (memory - MPATH_EAGER_COUNTERS_BYTES) / (4 * size);
    capacity = (form == MPATH_EAGER_WHOLE) ? capacity
                                           : capacity / MPATH_EAGER_GROUP_SLOT_BYTES * size * MPATH_EAGER_GROUP_BYTES;
    return ((most < capacity) ? most : capacity) & ~UINT64_C(15);
}

/* Whether its memory is there, with numbers left. The same on all ranks. */
static int is_usable(const eager_form_t *form)
{
    return (form->window != NULL) && form->window->usable && (form->number < MPATH_EAGER_PARTS_CALLS);
}

static int window_holds(const mpath_symmetric_gpu_t *gpu, mpath_eager_form_t form, uint64_t bytes)
{
    const eager_form_t *of = &gpu->eager->forms[form];

    return is_usable(of) ? (mpath_eager_slot_bytes(form, (unsigned)gpu->size, bytes) <= of->window->unit_bytes)
                         : (bytes <= max_bytes(gpu, form));
}

static void look_at_how(gpu_eager_t *eager, const mpath_reduce_how_t *how)
{
    if (!eager->known || (eager->how.op != how->op) || (eager->how.type != how->type)) {
        eager->known = 1;
        eager->how   = *how;
        eager->fits  = mpath_eager_fits(how);
        for (int form = 0; form < MPATH_EAGER_FORMS; form++) {
            eager->forms[form].function = NULL;
        }
    }
}

/* -- one kernel -- */

static mpath_status_t launch(mpath_symmetric_gpu_t *gpu)
{
    gpu_eager_t *eager        = gpu->eager;
    eager_form_t *form        = &eager->forms[eager->form];
    gpu_eager_launch_t launch = {.function  = form->function,
                                 .arguments = &eager->arguments,
                                 .bytes     = sizeof(eager->arguments),
                                 .ctas      = form->kernel.ctas,
                                 .number    = form->number,
                                 .follows   = form->counted + 1 == form->number,
                                 .once      = (int)eager->arguments.again};
    mpath_status_t status;

    mpath_gpu_coll_lock();
    status = mpath_gpu_launches_start_eager(gpu->launches, form->kernel.stream, &launch);
    mpath_gpu_coll_unlock();
    form->counted = form->number;
    return status;
}

static mpath_status_t launch_again(void *of)
{
    mpath_symmetric_gpu_t *gpu = of;

    gpu->eager->arguments.again = 1;
    return launch(gpu);
}

static mpath_status_t find(mpath_symmetric_gpu_t *gpu, eager_form_t *form)
{
    gpu_eager_t *eager    = gpu->eager;
    mpath_status_t status = MPATH_OK;

    if (form->function == NULL) {
        status = mpath_eager_find(form->window->device, &eager->how, eager->form, &form->function);
    }
    if (status == MPATH_OK) {
        status = mpath_stream_get(form->window->device, gpu->reduce->first_stream + 1, &form->kernel.stream);
    }
    return status;
}

/* This rank's kernel, on the GPU of its window. */
static mpath_status_t start(mpath_symmetric_gpu_t *gpu, const mpath_symmetric_buffers_t *buffers, uint64_t elements)
{
    gpu_eager_t *eager              = gpu->eager;
    eager_form_t *form              = &eager->forms[eager->form];
    mpath_kernel_eager_t *arguments = &eager->arguments;

    memset(arguments, 0, sizeof(*arguments)); /* they are compared as bytes */
    arguments->elements    = elements;
    arguments->send        = (mpath_device_ptr_t)(uintptr_t)buffers->send;
    arguments->recv        = (mpath_device_ptr_t)(uintptr_t)buffers->recv;
    arguments->words       = mpath_pinned_device(&form->kernel.words, form->kernel.words.base);
    arguments->patience_ns = GPU_EAGER_PATIENCE_NS;
    arguments->slot_bytes  = form->window->unit_bytes;
    arguments->ranks       = (uint32_t)gpu->size;
    arguments->me          = (uint32_t)gpu->me;
    for (int rank = 0; rank < gpu->size; rank++) {
        arguments->memory[rank] = mpath_gpu_window_address(form->window, rank);
    }
    form->kernel.number       = form->number;
    form->kernel.ctas         = mpath_eager_ctas(eager->form, (unsigned)gpu->size, eager->bytes);
    form->kernel.what         = "vector";
    form->kernel.launch_again = launch_again;
    form->kernel.of           = gpu;
    eager->started            = 1;
    return launch(gpu);
}

/* Whether this rank could do it: its form is there, or may be once it is. */
static int is_wanted(mpath_symmetric_gpu_t *gpu, const mpath_reduce_how_t *how)
{
    gpu_eager_t *eager = gpu->eager;

    look_at_how(eager, how);
    if (!gpu->choice.form_known) {
        gpu->choice.form_known = 1;
        gpu->choice.form       = eager->fits ? form_of(gpu, eager->bytes) : MPATH_EAGER_FORMS;
    }
    eager->form = gpu->choice.form;
    return (eager->form != MPATH_EAGER_FORMS) && window_holds(gpu, eager->form, eager->bytes);
}

static mpath_status_t gpu_eager_start(mpath_symmetric_gpu_t *gpu, const mpath_symmetric_buffers_t *buffers,
                                      uint64_t elements, const mpath_reduce_how_t *how, const mpath_gpu_t *device)
{
    gpu_eager_t *eager    = gpu->eager;
    mpath_status_t status = MPATH_OK;
    eager_form_t *form;
    uint64_t start_ns;

    eager->bytes       = elements * mpath_reduce_bytes(how->type);
    eager->started     = 0;
    eager->wanted      = is_wanted(gpu, how);
    gpu->reduce->eager = GPU_EAGER_NOT;
    if (!eager->wanted) {
        return MPATH_OK;
    }
    form = &eager->forms[eager->form];
    if (device != NULL) {
        gpu->reduce->eager = GPU_EAGER_WANTED;
    }
    if (is_usable(form)) {
        form->number++;
        if (gpu->reduce->eager && (device == form->window->device) && (find(gpu, form) == MPATH_OK)) {
            gpu->reduce->eager    = GPU_EAGER_STARTED;
            start_ns              = mpath_time_ns();
            form->kernel.began_ns = start_ns;
            form->kernel.bytes    = eager->bytes;
            status                = start(gpu, buffers, elements);
            gpu->counters.move_ns += mpath_time_ns() - start_ns;
        }
    }
    if (status != MPATH_OK) {
        mpath_team_break(gpu->team, status);
    }
    return status;
}

static mpath_status_t gpu_eager_finish(mpath_symmetric_gpu_t *gpu, mpath_status_t agreed, int *done_p)
{
    mpath_gpu_coll_t *coll = gpu->reduce;
    gpu_eager_t *eager     = gpu->eager;
    uint64_t start_ns      = mpath_time_ns();
    mpath_status_t status  = agreed;
    gpu_eager_kernel_t *kernel;

    *done_p = (agreed == MPATH_OK) && eager->started && mpath_gpu_eager_all(coll);
    if (!eager->started) {
        return agreed;
    }
    kernel = &eager->forms[eager->form].kernel;
    if (!mpath_status_is_error(agreed)) {
        status = mpath_gpu_eager_await(coll, kernel, *done_p);
    }
    if (mpath_status_is_error(status)) {
        mpath_team_break(gpu->team, status);
        mpath_gpu_eager_abandon(kernel);
        return status;
    }
    if (*done_p) {
        atomic_store_explicit(&coll->board.words[gpu->me].kernel_done, coll->number, memory_order_release);
        coll->counters.calls++;
        coll->counters.eager++;
        coll->counters.kernel_bytes += eager->bytes;
        gpu->counters.calls++;
        gpu->counters.move_ns += mpath_time_ns() - start_ns;
    }
    return agreed;
}

/* -- what it needs -- */

/*
 * Whether a rank could have started its kernel and has not: the driver has refused it. In all calls to come the others
 * would start theirs in vain. The same on all ranks.
 */
static int is_refused(const mpath_gpu_coll_t *coll, const eager_form_t *form)
{
    int refused = 0;

    for (int rank = 0; is_usable(form) && (rank < coll->size); rank++) {
        refused = refused || (gpu_cell(coll, rank)->eager != GPU_EAGER_STARTED);
    }
    return refused;
}

/* Anew, since some rank's GPU has changed or had no memory, or there are no numbers left. */
static mpath_status_t share(const mpath_symmetric_gpu_t *gpu, mpath_eager_form_t what, eager_form_t *form)
{
    const mpath_gpu_coll_t *coll = gpu->reduce;
    unsigned size                = (unsigned)gpu->size;
    uint64_t most                = max_bytes(gpu, what), unit;
    mpath_status_t status;

    form->number = form->counted = 0;
    form->function               = NULL;
    unit                         = (most > 0) ? mpath_eager_slot_bytes(what, size, most) : 0;
    mpath_pinned_release_lost(&form->kernel.words);
    if (mpath_eager_find(coll->send.gpu, &gpu->eager->how, what, &form->function) != MPATH_OK) {
        unit = 0;
    }
    if ((form->kernel.words.base == NULL) &&
        (mpath_pinned_alloc(coll->send.gpu, MPATH_EAGER_CTAS * sizeof(uint64_t), &form->kernel.words) != MPATH_OK)) {
        unit = 0;
    }
    if (form->kernel.words.base != NULL) {
        memset(form->kernel.words.base, 0, MPATH_EAGER_CTAS * sizeof(uint64_t)); /* they may have the new numbers */
    }
    status = mpath_gpu_window_share(form->window, coll, unit, mpath_eager_memory_bytes(what, size, unit));
    if ((status == MPATH_OK) && form->window->usable) {
        mpath_debug("device memory of %u ranks can be reduced eagerly, %s of up to %llu bytes", size,
                    (what == MPATH_EAGER_PARTS) ? "parts" : "vectors", (unsigned long long)most);
    }
    return status;
}

/* In a call that another algorithm carries: makes what eager ones need, for those that follow. Collective. */
static mpath_status_t gpu_eager_prepare(mpath_symmetric_gpu_t *gpu)
{
    const mpath_gpu_coll_t *coll = gpu->reduce;
    eager_form_t *form;

    for (int rank = 0; rank < gpu->size; rank++) {
        if (gpu_cell(coll, rank)->eager == GPU_EAGER_NOT) {
            return MPATH_OK;
        }
    }
    form = &gpu->eager->forms[gpu->eager->form];
    if (form->window == NULL) {
        form->window = mpath_gpu_window_create(gpu->size, gpu->me);
        if (form->window == NULL) {
            mpath_error("no memory for reductions of %d ranks on device memory; the call fails", gpu->size);
            return MPATH_ERR_NO_MEMORY; /* the others count on it */
        }
    }
    if (mpath_gpu_window_is_current(form->window, coll) && is_refused(coll, form)) {
        form->window->usable = 0;
        mpath_pause_note(&form->window->pause, 0);
        return MPATH_OK;
    }
    if (!mpath_gpu_window_is_due(form->window, coll) && (form->number < MPATH_EAGER_PARTS_CALLS)) {
        mpath_gpu_window_pass(form->window);
        return MPATH_OK;
    }
    return share(gpu, gpu->eager->form, form);
}

static mpath_status_t reduce_launch(mpath_symmetric_gpu_t *gpu, const mpath_reduce_how_t *how, unsigned ctas,
                                    mpath_kernel_writes_t *arguments);

/*
 * Large Allreduces with nothing but writes between GPUs (device/kernels/reduce.h): when they are faster, the memory that
 * ranks open to each other for it, and who may. Their kernels wait for each other, so all have to run at once: every rank
 * has a GPU of its own, and of a process one such call is under way at a time. A process that is in one already says so
 * in its cell, and then all ranks take the other kernel, which waits for nobody.
 */

#define WRITES_TILE_MAX (UINT64_C(64) << 10)
#define WRITES_TILE_GRAIN UINT64_C(4096)

/* How long a kernel waits where other ranks may rest, and the host, which stops it, has no deadline. */
#define WRITES_REST_S 86400u

/*
 * Whether elements are combined in the order of a ring: sizes decide, or the algorithm that is forced, so that a call has the
 * same bits on every machine, whatever is the fastest there.
 */
static int goes_round(mpath_gpu_reduce_t forced, unsigned ranks, uint64_t bytes)
{
    switch (forced) {
    case MPATH_GPU_REDUCE_RING:
        return 1;
    case MPATH_GPU_REDUCE_AUTO:
    case MPATH_GPU_REDUCE_DIRECT:
        return mpath_reduce_in_ring(ranks, bytes);
    default:
        return 0;
    }
}

static void choose(mpath_symmetric_gpu_t *gpu, uint64_t bytes, const mpath_reduce_how_t *how)
{
    mpath_gpu_reduce_t forced = (mpath_gpu_reduce_t)gpu->reduce->settings->gpu_reduce;
    gpu_choice_t *choice      = &gpu->choice;
    unsigned ranks = (unsigned)gpu->size, algorithms = 0;

    *choice = (gpu_choice_t){.bytes = bytes, .how = *how, .rated = gpu->reduce->rated};
    if (mpath_writes_fits(how)) {
        choice->in_ring   = goes_round(forced, ranks, bytes);
        algorithms        = (ranks == 2) ? MPATH_REDUCE_BIT(MPATH_GPU_REDUCE_WRITES) : 0;
        algorithms        = choice->in_ring ? MPATH_REDUCE_BIT(MPATH_GPU_REDUCE_RING) : algorithms;
        choice->algorithm = ((forced == MPATH_GPU_REDUCE_WRITES) || (forced == MPATH_GPU_REDUCE_RING)) ? forced : 0;
    }
    if (choice->algorithm == 0) {
        algorithms        = (forced == MPATH_GPU_REDUCE_AUTO) ? algorithms : 0;
        choice->algorithm = mpath_reduce_fastest(&gpu->reduce->rates, algorithms, ranks, bytes);
    }
}

void mpath_gpu_writes_choose(mpath_symmetric_gpu_t *gpu, uint64_t bytes, const mpath_reduce_how_t *how)
{
    const gpu_choice_t *choice = &gpu->choice;

    if ((choice->bytes != bytes) || (choice->how.op != how->op) || (choice->how.type != how->type) ||
        (choice->rated != gpu->reduce->rated)) {
        choose(gpu, bytes, how);
    }
    gpu->in_ring   = choice->in_ring;
    gpu->algorithm = choice->algorithm;
}

/* Bytes of a tile for which there is memory; 0: none. */
static uint64_t tile_bytes(const gpu_window_t *window, const mpath_gpu_coll_t *coll)
{
    uint64_t blocks = (uint64_t)MPATH_WRITES_CTAS * MPATH_WRITES_DEPTH * ((uint64_t)coll->size - 1);
    uint64_t tile   = mpath_gpu_window_most(window, coll, coll->settings->gpu_memory_bytes) / blocks;

    tile = (tile < WRITES_TILE_MAX) ? tile : WRITES_TILE_MAX;
    return mpath_writes_usable(coll->send.gpu) ? tile & ~(WRITES_TILE_GRAIN - 1) : 0;
}

/* The kernel of the algorithm that has been chosen. */
static mpath_status_t reduce_writes_find_function(mpath_symmetric_gpu_t *gpu, mpath_gpu_t *device,
                                                  const mpath_reduce_how_t *how)
{
    gpu_found_t *found    = &gpu->found;
    mpath_status_t status = MPATH_OK;

    if ((found->device != device) || (found->algorithm != gpu->algorithm) || (found->how.op != how->op) ||
        (found->how.type != how->type)) {
        status           = (gpu->algorithm == MPATH_GPU_REDUCE_RING)
                               ? mpath_ring_find(device, how, &gpu->no_writes, &found->function)
                               : mpath_writes_find(device, how, &gpu->no_writes, &found->function);
        found->device    = (status == MPATH_OK) ? device : NULL;
        found->algorithm = gpu->algorithm;
        found->how       = *how;
    }
    return status;
}

/*
 * Before the agreement, with kernels for `how` on its GPU, claims what those that wait for each other need, which
 * this rank's cell says; given back after the call. Then, with everything open, whether all can use them:
 * collective, the same on all ranks.
 */
static void gpu_writes_claim(mpath_symmetric_gpu_t *gpu, mpath_gpu_t *device, const mpath_reduce_how_t *how)
{
    if ((gpu->algorithm != MPATH_GPU_REDUCE_DIRECT) && (reduce_writes_find_function(gpu, device, how) == MPATH_OK)) {
        mpath_gpu_coll_claim(&gpu->reduce->claimed);
    }
}

static void gpu_writes_release(mpath_symmetric_gpu_t *gpu)
{
    mpath_gpu_coll_release(&gpu->reduce->claimed);
}

/* Whether all ranks have claimed what they need, for buffers that such a kernel takes. */
static int is_claimed(const mpath_symmetric_gpu_t *gpu)
{
    int all = 1;

    for (int rank = 0; rank < gpu->size; rank++) {
        const mpath_board_cell_t *cell = gpu_cell(gpu->reduce, rank);

        all = all && cell->claimed &&
              ((cell->sides[MPATH_BOARD_SEND].address | cell->sides[MPATH_BOARD_RECV].address) % 16 == 0);
    }
    return all;
}

/* Whether this rank works on the memory of others: it has a part, or all may write, if that may be. */
static int gpu_writes_works(const mpath_symmetric_gpu_t *gpu, int may_write)
{
    return (gpu->part_bytes[gpu->me] > 0) ||
           (may_write && is_claimed(gpu) &&
            ((gpu->writes == NULL) || gpu->writes->usable || mpath_gpu_window_is_due(gpu->writes, gpu->reduce)));
}

static mpath_status_t gpu_writes_prepare(mpath_symmetric_gpu_t *gpu, int *use_p)
{
    mpath_gpu_coll_t *coll = gpu->reduce;
    mpath_status_t status  = MPATH_OK;
    uint64_t tile;

    *use_p = 0;
    if (!is_claimed(gpu)) {
        return MPATH_OK;
    }
    if (gpu->writes == NULL) {
        gpu->writes = mpath_gpu_window_create(gpu->size, gpu->me);
        if (gpu->writes == NULL) {
            mpath_error("no memory for reductions of %d ranks on device memory; the call fails", gpu->size);
            return MPATH_ERR_NO_MEMORY; /* the others count on it */
        }
    }
    if (!mpath_gpu_window_is_due(gpu->writes, coll)) {
        mpath_gpu_window_pass(gpu->writes);
    } else {
        tile   = tile_bytes(gpu->writes, coll);
        status = mpath_gpu_window_share(gpu->writes, coll, tile, MPATH_WRITES_MEMORY_BYTES((uint64_t)gpu->size, tile));
        if ((status == MPATH_OK) && gpu->writes->usable) {
            mpath_debug(
                "device memory of %d ranks can be reduced by writes only, in tiles of %u bytes, and round a ring "
                "with %u CTAs",
                gpu->size, (unsigned)gpu->writes->unit_bytes, mpath_ring_ctas(gpu->writes->multiprocessors));
        }
    }
    *use_p = gpu->writes->usable;
    return status;
}

/* The kernel's own deadline is later than the host's. */
static uint64_t timeout_ns(const mpath_gpu_coll_t *coll)
{
    return (mpath_idle_others_may_rest() ? WRITES_REST_S : 2 * (uint64_t)coll->settings->timeout_s) * MPATH_NS_PER_S;
}

static mpath_status_t reduce_launch(mpath_symmetric_gpu_t *gpu, const mpath_reduce_how_t *how, unsigned ctas,
                                    mpath_kernel_writes_t *arguments)
{
    mpath_gpu_coll_t *coll   = gpu->reduce;
    mpath_kernel_word_t done = {.address = mpath_board_device(&coll->board, &coll->board.words[gpu->me].kernel_done),
                                .value   = coll->number};
    mpath_stream_t *stream;
    mpath_status_t status = mpath_stream_get(coll->send.gpu, coll->first_stream + 1, &stream);

    if (status == MPATH_OK) {
        status = reduce_writes_find_function(gpu, coll->send.gpu, how);
    }
    if (status != MPATH_OK) {
        return status;
    }
    coll->kernel_started = 1;
    coll->counters.kernel_bytes += gpu->part_bytes[gpu->me];
    gpu_span_begin(coll, GPU_SPAN_KERNEL, gpu->part_bytes[gpu->me]);
    mpath_gpu_coll_lock();
    status = (gpu->algorithm == MPATH_GPU_REDUCE_RING)
                 ? mpath_launch_ring(stream, gpu->found.function, ctas, done, arguments)
                 : mpath_launch_writes(stream, gpu->found.function, done, arguments);
    mpath_gpu_coll_unlock();
    return status;
}

static mpath_status_t gpu_writes_start(mpath_symmetric_gpu_t *gpu, const mpath_reduce_how_t *how)
{
    mpath_gpu_coll_t *coll          = gpu->reduce;
    const gpu_window_t *writes      = gpu->writes;
    unsigned ctas                   = MPATH_WRITES_CTAS;
    uint64_t tile                   = writes->unit_bytes;
    mpath_kernel_writes_t arguments = {
        .number     = coll->number,
        .stop       = mpath_board_device(&coll->board, &coll->board.words[gpu->me].stop),
        .timeout_ns = timeout_ns(coll),
        .ranks      = (uint32_t)gpu->size,
        .me         = (uint32_t)gpu->me,
        .send       = (mpath_device_ptr_t)(uintptr_t)coll->send.buffer,
    };

    if (gpu->algorithm == MPATH_GPU_REDUCE_RING) { /* the first part is the longest */
        ctas                 = mpath_ring_ctas(writes->multiprocessors);
        tile                 = mpath_ring_tile(gpu->part_bytes[0], ctas,
                                               MPATH_RING_TILE_BYTES((uint64_t)gpu->size, ctas, writes->unit_bytes));
        arguments.stagger_ns = mpath_reduce_ring_ns(&coll->rates, tile * ctas / MPATH_RING_GROUPS);
    }
    arguments.tile_bytes = tile;
    for (int rank = 0; rank < gpu->size; rank++) {
        arguments.part_offsets[rank] = gpu->part_offsets[rank];
        arguments.part_bytes[rank]   = gpu->part_bytes[rank];
        arguments.targets[rank]      = gpu_address(coll, rank, MPATH_BOARD_RECV, 0);
        arguments.memory[rank]       = mpath_gpu_window_address(writes, rank);
    }
    return reduce_launch(gpu, how, ctas, &arguments);
}

/* Parts are cut at multiples of this, so that their vectors are aligned alike, whatever the element. */
#define PART_GRAIN_BYTES 256u

mpath_status_t mpath_symmetric_gpu_create(mpath_team_t *team, mpath_symmetric_gpu_t **gpu_p)
{
    mpath_symmetric_gpu_t *gpu = calloc(1, sizeof(*gpu));
    size_t size                = (size_t)mpath_team_size(team);
    mpath_status_t status      = MPATH_ERR_NO_MEMORY;

    if (gpu == NULL) {
        goto err_log;
    }
    gpu->team     = team;
    gpu->size     = (int)size;
    gpu->me       = mpath_team_rank(team);
    gpu->arrays   = calloc(6 * size, sizeof(*gpu->arrays));
    gpu->launches = mpath_gpu_launches_create();
    gpu->eager    = gpu_eager_create();
    if ((gpu->arrays == NULL) || (gpu->launches == NULL) || (gpu->eager == NULL)) {
        goto err_destroy;
    }
    gpu->send_bytes   = gpu->arrays;
    gpu->send_offsets = gpu->send_bytes + size;
    gpu->recv_bytes   = gpu->send_offsets + size;
    gpu->recv_offsets = gpu->recv_bytes + size;
    gpu->part_bytes   = gpu->recv_offsets + size;
    gpu->part_offsets = gpu->part_bytes + size;

    gpu->host.operation        = "allreduce";
    gpu->host_gather.operation = "allgather";
    status                     = mpath_gpu_coll_create(team, &gpu->reduce);
    if (status == MPATH_OK) {
        status = mpath_gpu_coll_create(team, &gpu->gather);
    }
    if (status == MPATH_OK) {
        status = mpath_gpu_exchange_create(gpu->gather);
    }
    if ((status == MPATH_OK) && (!mpath_gpu_coll_usable(gpu->reduce) || (size > MPATH_KERNEL_REDUCE_RANKS))) {
        status = MPATH_DECLINED;
    }
    if (status != MPATH_OK) {
        mpath_symmetric_gpu_destroy(gpu);
        return status;
    }
    *gpu_p = gpu;
    return MPATH_OK;

err_destroy:
    mpath_symmetric_gpu_destroy(gpu);
err_log:
    mpath_error("no memory for reductions on device memory of %zu ranks", size);
    return status;
}

void mpath_symmetric_gpu_counters(const mpath_symmetric_gpu_t *gpu, mpath_coll_counters_t *counters)
{
    mpath_gpu_counters_t gather;

    *counters = gpu->counters;
    mpath_gpu_coll_counters(gpu->reduce, &counters->gpu);
    mpath_gpu_coll_counters(gpu->gather, &gather);
    counters->gpu.calls += gather.calls;
    counters->gpu.kernel_bytes += gather.kernel_bytes;
    counters->gpu.engine_bytes += gather.engine_bytes;
    counters->gpu.staged_bytes += gather.staged_bytes;
    counters->gpu.imports += gather.imports;
    counters->gpu.eager += gather.eager;
}

void mpath_symmetric_gpu_destroy(mpath_symmetric_gpu_t *gpu)
{
    if (gpu != NULL) {
        mpath_gpu_notice_lost();
        gpu_scratch_free(gpu);
        mpath_gpu_launches_destroy(gpu->launches);
        gpu_eager_destroy(gpu->eager);
        mpath_gpu_window_destroy(gpu->writes);
        mpath_gpu_coll_destroy(gpu->reduce);
        mpath_gpu_coll_destroy(gpu->gather);
        free(gpu->arrays);
        free(gpu);
    }
}

/* The agreement, with what `gpu` says of sizes; then the board and, of all ranks, their opened memory. */
static mpath_status_t agree(mpath_symmetric_gpu_t *gpu, mpath_gpu_coll_t *coll, mpath_call_t *call,
                            mpath_agreed_t *agreed)
{
    mpath_record_t *record = mpath_team_record(gpu->team);
    uint64_t start_ns      = mpath_time_ns(), agreed_ns;
    mpath_status_t status;

    call->send_bytes   = gpu->send_bytes;
    call->send_offsets = gpu->send_offsets;
    call->recv_bytes   = gpu->recv_bytes;
    call->recv_offsets = gpu->recv_offsets;
    mpath_record_agree(record, mpath_call_collective(call->operation), mpath_team_call(gpu->team) + 1, start_ns);
    (void)mpath_gpu_coll_publish(coll, call);
    status    = mpath_agree(gpu->team, call, agreed);
    agreed_ns = mpath_time_ns();
    gpu->counters.agree_ns += agreed_ns - start_ns;
    mpath_record_phase(record, mpath_call_collective(call->operation), MPATH_RECORD_MOVE, agreed_ns);
    return ((status == MPATH_OK) && (agreed->flags & MPATH_CALL_INELIGIBLE)) ? MPATH_DECLINED : status;
}

/* This rank's part. `target` 0: the result goes to all ranks. */
static mpath_status_t start_part(mpath_symmetric_gpu_t *gpu, const mpath_reduce_how_t *how, mpath_device_ptr_t target)
{
    mpath_gpu_coll_t *coll = gpu->reduce;
    uint64_t bytes = gpu->part_bytes[gpu->me], offset = gpu->part_offsets[gpu->me];
    mpath_kernel_reduce_t arguments;
    mpath_stream_t *stream;
    mpath_status_t status;

    if (bytes == 0) {
        return MPATH_OK;
    }
    status = mpath_stream_get(coll->send.gpu, coll->first_stream + 1, &stream);
    if (status != MPATH_OK) {
        return status;
    }
    memset(&arguments, 0, sizeof(arguments)); /* they are compared as bytes */
    arguments.elements = bytes / mpath_reduce_bytes(how->type);
    arguments.first    = gpu->in_ring ? 0 : (uint32_t)((gpu->me + 1) % gpu->size);
    for (int i = 0; i < gpu->size; i++) {
        arguments.sources[arguments.sources_count++] = gpu_address(coll, gpu_source(gpu, i), MPATH_BOARD_SEND, offset);
    }
    for (int i = 0; (target == 0) && (i < gpu->size); i++) { /* GPUs begin with different targets */
        arguments.targets[arguments.targets_count++] = gpu_address(coll, (gpu->me + i) % gpu->size, MPATH_BOARD_RECV,
                                                                   offset);
    }
    if (target != 0) {
        arguments.targets[arguments.targets_count++] = target;
    }
    coll->kernel_started = 1;
    coll->counters.kernel_bytes += bytes;
    gpu_span_begin(coll, GPU_SPAN_KERNEL, bytes);
    mpath_gpu_coll_lock();
    status = mpath_gpu_launches_start(gpu->launches, stream, how,
                                      &(gpu_reduce_launch_t){.gpu       = coll->send.gpu,
                                                             .board     = &coll->board,
                                                             .me        = coll->me,
                                                             .number    = coll->number,
                                                             .arguments = &arguments});
    mpath_gpu_coll_unlock();
    return status;
}

static void count_call(mpath_symmetric_gpu_t *gpu, uint64_t start_ns, mpath_status_t status)
{
    if (status == MPATH_OK) {
        gpu->counters.calls++;
        gpu->counters.move_ns += mpath_time_ns() - start_ns;
    }
}

/* Equal parts of the vector, in grains. */
static void cut_parts(mpath_symmetric_gpu_t *gpu, uint64_t bytes)
{
    uint64_t grains = (bytes + PART_GRAIN_BYTES - 1) / PART_GRAIN_BYTES, size = (uint64_t)gpu->size;

    for (uint64_t rank = 0; rank < size; rank++) {
        uint64_t from = grains / size * rank + ((rank < grains % size) ? rank : grains % size);
        uint64_t to   = from + grains / size + (rank < grains % size);

        from *= PART_GRAIN_BYTES;
        to                      = (to * PART_GRAIN_BYTES < bytes) ? to * PART_GRAIN_BYTES : bytes;
        gpu->part_offsets[rank] = from;
        gpu->part_bytes[rank]   = (to > from) ? to - from : 0;
    }
}

/* Leaves the end of the vector to the path through the host: between more than two ranks, the end of every part. */
static void leave_end(mpath_symmetric_gpu_t *gpu, uint64_t bytes, uint64_t end_bytes)
{
    cut_parts(gpu, (gpu->size == 2) ? bytes - end_bytes : bytes);
    for (int rank = 0; (gpu->size > 2) && (rank < gpu->size); rank++) {
        gpu->part_bytes[rank] -= end_bytes / (uint64_t)gpu->size;
    }
}

/* A reduction by writes, and beside it the end of the vector through the host. */
static mpath_status_t start_writes(mpath_symmetric_gpu_t *gpu, uint64_t begin, const mpath_reduce_how_t *how)
{
    mpath_status_t status = gpu_writes_start(gpu, how);

    return (status == MPATH_OK) ? gpu_host_start(gpu, begin, how) : status;
}

/* Between the agreement and the end of everybody's kernels. */
static mpath_status_t reduce_parts(mpath_symmetric_gpu_t *gpu, const mpath_call_t *call, const mpath_agreed_t *agreed,
                                   const mpath_reduce_how_t *how, mpath_device_ptr_t target)
{
    mpath_gpu_coll_t *coll = gpu->reduce;
    int by_writes = 0, may_write = mpath_call_collective(call->operation) == MPATH_OPERATION_ALLREDUCE;
    uint64_t start_ns = mpath_time_ns(), bytes = 0, end_bytes = 0;
    mpath_status_t status = mpath_gpu_coll_prepare(coll, call, agreed);

    if ((status == MPATH_OK) && (mpath_call_collective(call->operation) == MPATH_OPERATION_ALLREDUCE)) {
        status = mpath_gpu_coll_find_rates(coll); /* for the calls that follow */
        status = (status == MPATH_OK) ? gpu_eager_prepare(gpu) : status;
    }
    if (status == MPATH_OK) {
        status = mpath_gpu_coll_open_all(coll, gpu_writes_works(gpu, may_write));
    }
    if ((status == MPATH_OK) && may_write) {
        status = gpu_writes_prepare(gpu, &by_writes);
    }
    for (int rank = 0; rank < gpu->size; rank++) {
        bytes += gpu->part_bytes[rank];
    }
    if ((status == MPATH_OK) && by_writes) {
        status = gpu_host_share(gpu, bytes, &end_bytes);
        leave_end(gpu, bytes, end_bytes);
    }
    if (status == MPATH_OK) {
        for (int i = 0; i < gpu->size * gpu->size; i++) { /* a rank with a part works on everybody's memory */
            coll->decided.lanes[i] = (gpu->part_bytes[i / gpu->size] > 0) ? LANE_KERNEL : LANE_NONE;
        }
        status = mpath_gpu_coll_finish(coll, by_writes ? start_writes(gpu, bytes - end_bytes, how)
                                                       : start_part(gpu, how, target));
    }
    if ((status == MPATH_OK) && by_writes) {
        gpu_host_end(gpu);
    }
    mpath_gpu_coll_close_imports(coll);
    if (mpath_status_is_error(status)) {
        mpath_team_break(gpu->team, status);
    }
    coll->counters.calls += (status == MPATH_OK) ? 1 : 0;
    count_call(gpu, start_ns, status);
    return status;
}

static mpath_call_t call_of(mpath_operation_t operation, const mpath_symmetric_buffers_t *buffers, int ineligible)
{
    mpath_call_t call = {.operation      = (uint32_t)operation | buffers->alike << 8,
                         .operation_text = buffers->alike_text,
                         .flags          = ineligible ? MPATH_CALL_INELIGIBLE : 0,
                         .send_buffer    = buffers->send,
                         .recv_buffer    = buffers->recv,
                         .send_memory    = buffers->send_memory,
                         .recv_memory    = buffers->recv_memory};

    if ((call.send_memory != NULL) || (call.recv_memory != NULL)) {
        call.flags |= MPATH_CALL_DEVICE;
    }
    return call;
}

mpath_status_t mpath_allreduce_gpu(mpath_symmetric_gpu_t *gpu, const mpath_symmetric_buffers_t *buffers,
                                   uint64_t elements, const mpath_reduce_how_t *how)
{
    uint64_t bytes = elements * mpath_reduce_bytes(how->type);
    mpath_agreed_t agreed;
    mpath_status_t status;
    mpath_gpu_t *device;
    mpath_call_t call;
    int done;

    if (elements == 0) {
        return MPATH_DECLINED; /* all ranks know */
    }
    mpath_gpu_notice_lost();
    device = mpath_gpu_launches_gpu(gpu->launches, buffers, how);
    mpath_gpu_writes_choose(gpu, bytes, how);
    status = gpu_eager_start(gpu, buffers, elements, how, device);
    if (status != MPATH_OK) {
        return status;
    }
    call = call_of(MPATH_OPERATION_ALLREDUCE, buffers, device == NULL);
    for (int rank = 0; rank < gpu->size; rank++) {
        gpu->send_bytes[rank] = gpu->recv_bytes[rank] = bytes;
        gpu->send_offsets[rank] = gpu->recv_offsets[rank] = 0;
    }
    if (device != NULL) {
        gpu_writes_claim(gpu, device, how);
    }
    gpu_host_publish(gpu, buffers, bytes, device != NULL);
    status = gpu_eager_finish(gpu, agree(gpu, gpu->reduce, &call, &agreed), &done);
    if ((status == MPATH_OK) && !done) {
        cut_parts(gpu, bytes);
        status = reduce_parts(gpu, &call, &agreed, how, 0);
    }
    gpu_writes_release(gpu);
    gpu->in_ring       = 0;
    gpu->reduce->eager = GPU_EAGER_NOT;
    return status;
}

/* After everybody has read: the result to its place. */
static mpath_status_t scratch_store(mpath_symmetric_gpu_t *gpu, void *recv, uint64_t bytes)
{
    mpath_gpu_coll_t *coll = gpu->reduce;
    mpath_stream_t *stream;
    mpath_status_t status;
    mpath_mark_t mark;

    status = mpath_stream_get(coll->receive.gpu, coll->first_stream + 1, &stream);
    if (status != MPATH_OK) {
        return status;
    }
    mpath_gpu_coll_lock();
    status = mpath_stream_copy(stream, (mpath_device_ptr_t)(uintptr_t)recv, gpu->scratch, (size_t)bytes);
    if (status == MPATH_OK) {
        status = mpath_stream_mark(stream, &mark);
    }
    if (status == MPATH_OK) {
        status = mpath_stream_finish(stream, mark, (uint64_t)coll->settings->timeout_s * 1000000000u,
                                     "copying the result of an MPI_Reduce_scatter to its place");
    }
    mpath_gpu_coll_unlock();
    return status;
}

/* Who gets nothing needs no memory to get it in, and may give none: that of the data takes its place. */
static mpath_symmetric_buffers_t with_both_sides(const mpath_symmetric_buffers_t *buffers, uint64_t recv_bytes)
{
    mpath_symmetric_buffers_t sides = *buffers;

    if (recv_bytes == 0) {
        sides.recv        = (void *)(uintptr_t)buffers->send;
        sides.recv_memory = buffers->send_memory;
    }
    return sides;
}

mpath_status_t mpath_reduce_scatter_gpu(mpath_symmetric_gpu_t *gpu, const mpath_symmetric_buffers_t *buffers,
                                        const uint64_t *elements, const mpath_reduce_how_t *how)
{
    unsigned element_bytes = mpath_reduce_bytes(how->type);
    uint64_t mine = elements[gpu->me] * element_bytes, total = 0;
    mpath_symmetric_buffers_t sides = with_both_sides(buffers, mine);
    int in_place                    = buffers->send == buffers->recv, eligible;
    mpath_device_ptr_t target       = (mpath_device_ptr_t)(uintptr_t)buffers->recv;
    mpath_agreed_t agreed;
    mpath_status_t status;
    mpath_call_t call;

    for (int rank = 0; rank < gpu->size; rank++) {
        gpu->part_bytes[rank]   = elements[rank] * element_bytes;
        gpu->part_offsets[rank] = total;
        gpu->send_bytes[rank]   = gpu->part_bytes[rank];
        gpu->send_offsets[rank] = total;
        gpu->recv_bytes[rank]   = mine;
        gpu->recv_offsets[rank] = 0;
        total += gpu->part_bytes[rank];
    }
    if (total == 0) {
        return MPATH_DECLINED; /* all ranks know */
    }
    mpath_gpu_notice_lost();
    eligible = mpath_gpu_launches_gpu(gpu->launches, &sides, how) != NULL;
    if (in_place && eligible && (mine > 0)) {
        eligible = gpu_scratch_get(gpu, buffers->recv_memory, mine);
        target   = gpu->scratch;
    }
    call   = call_of(MPATH_OPERATION_REDUCE_SCATTER, &sides, !eligible);
    status = agree(gpu, gpu->reduce, &call, &agreed);
    if (status == MPATH_OK) {
        status = reduce_parts(gpu, &call, &agreed, how, target);
    }
    if ((status == MPATH_OK) && in_place && (mine > 0)) {
        status = scratch_store(gpu, buffers->recv, mine);
        if (status != MPATH_OK) {
            mpath_team_break(gpu->team, status);
        }
    }
    return status;
}

mpath_status_t mpath_allgather_gpu(mpath_symmetric_gpu_t *gpu, const mpath_symmetric_buffers_t *buffers,
                                   const uint64_t *bytes, const uint64_t *offsets)
{
    int me = gpu->me, in_place = buffers->send == NULL, done;
    uint64_t start_ns, total   = 0;
    mpath_symmetric_buffers_t sides = *buffers;
    mpath_agreed_t agreed;
    mpath_status_t status;
    mpath_call_t call;

    if (in_place && !buffers->ineligible) {
        sides.send = (const char *)buffers->recv + offsets[me];
    }
    for (int rank = 0; rank < gpu->size; rank++) {
        gpu->send_bytes[rank]   = bytes[me];
        gpu->send_offsets[rank] = 0;
        gpu->recv_bytes[rank]   = bytes[rank];
        gpu->recv_offsets[rank] = offsets[rank];
        total += bytes[rank];
    }
    if (in_place) {
        gpu->send_bytes[me] = gpu->recv_bytes[me] = 0;
    }
    mpath_gpu_notice_lost();
    gpu_host_publish_gather(gpu, total, !buffers->ineligible);
    call     = call_of(MPATH_OPERATION_ALLGATHER, &sides, buffers->ineligible);
    status   = agree(gpu, gpu->gather, &call, &agreed);
    start_ns = mpath_time_ns();
    status   = mpath_gpu_coll_exchanged(gpu->gather, &call, status, (status == MPATH_OK) ? agreed.flags : 0, &done);
    if (done) {
        count_call(gpu, start_ns, status);
    }
    if (done || (status != MPATH_OK)) {
        return status;
    }
    if (!(agreed.flags & MPATH_CALL_DEVICE)) {
        return MPATH_DECLINED;
    }
    status = mpath_gpu_coll_prepare(gpu->gather, &call, &agreed);
    if (status == MPATH_OK) {
        status = gpu_host_share_gather(gpu, total);
    }
    status = mpath_gpu_coll_move_prepared(gpu->gather, &call, status);
    if (status == MPATH_OK) {
        gpu_host_end_gather(gpu);
    }
    count_call(gpu, start_ns, status);
    return status;
}
