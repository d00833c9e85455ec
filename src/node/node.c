/* SPDX-License-Identifier: BSD-3-Clause */
/* Alltoallv on device memory: the room, what a rank tells of its buffers, and the order of the steps. */
#include "node/node_private.h"

#include "device/memory.h"
#include "device/stream.h"
#include "util/log.h"
#include "util/time.h"

#include <stdlib.h>
#include <string.h>

static int decided_create(mpath_gpu_coll_t *gpu)
{
    gpu_decided_t *decided = &gpu->decided;
    size_t size = (size_t)gpu->size, cells = gpu->usable ? size * size : 1; /* else nothing is decided here */

    decided->generations              = calloc(size, sizeof(*decided->generations));
    decided->demand                   = calloc(4 * cells, sizeof(*decided->demand));
    decided->ways                     = calloc(cells, sizeof(*decided->ways));
    decided->imports[MPATH_ROOM_RECV] = calloc(4 * size, sizeof(mpath_import_t *));
    if ((decided->generations == NULL) || (decided->demand == NULL) || (decided->ways == NULL) ||
        (decided->imports[MPATH_ROOM_RECV] == NULL)) {
        return 0;
    }
    decided->by_engine                = decided->demand + cells;
    decided->beside                   = decided->by_engine + cells;
    decided->helped                   = decided->beside + cells;
    decided->imports[MPATH_ROOM_SEND] = decided->imports[MPATH_ROOM_RECV] + size;
    decided->closed                   = decided->imports[MPATH_ROOM_SEND] + size;
    return 1;
}

mpath_status_t mpath_gpu_coll_create(mpath_team_t *team, mpath_gpu_coll_t **gpu_p)
{
    const mpath_topo_t *topo = mpath_team_topo(team);
    size_t size              = (size_t)mpath_team_size(team), cells;
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
    gpu->usable       = (mpath_topo_num_nodes(topo) == 1) && (size <= MPATH_ORDER_MAX_RANKS) && gpu->settings->gpu;
    cells             = gpu->usable ? size * size : 1;
    gpu->demand       = calloc(cells, sizeof(*gpu->demand));
    gpu->known        = calloc(MPATH_ROOM_SIDES * size, sizeof(*gpu->known));
    gpu->refused      = calloc(cells, sizeof(*gpu->refused));
    gpu->devices      = calloc(MPATH_ROOM_SIDES * size, sizeof(*gpu->devices));
    gpu->pieces       = calloc(size, sizeof(*gpu->pieces));
    gpu->turns.places = calloc(size, sizeof(*gpu->turns.places));
    gpu->staged_send  = calloc(2 * size, sizeof(*gpu->staged_send));
    if ((gpu->demand == NULL) || (gpu->known == NULL) || (gpu->refused == NULL) || (gpu->devices == NULL) ||
        (gpu->pieces == NULL) || (gpu->turns.places == NULL) || (gpu->staged_send == NULL) || !decided_create(gpu)) {
        mpath_gpu_coll_destroy(gpu);
        goto err_no_memory;
    }
    for (size_t i = 0; i < cells; i++) {
        gpu->refused[i].device = -1;
    }
    for (size_t i = 0; i < MPATH_ROOM_SIDES * size; i++) {
        gpu->devices[i] = -1;
    }
    gpu->staged_receive = gpu->staged_send + size;
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
                "gone since, %llu closed to make room; %u are open",
                gpu->me, (unsigned long long)counts.opened, (unsigned long long)counts.reused,
                (unsigned long long)counts.stale, (unsigned long long)counts.evicted, counts.entries);
}

void mpath_gpu_coll_destroy(mpath_gpu_coll_t *gpu)
{
    if (gpu == NULL) {
        return;
    }
    mpath_gpu_coll_release(gpu);
    if (gpu->opened) {
        tell_of_imports(gpu);
        mpath_gpu_coll_forget_ways(gpu);
        mpath_room_close(&gpu->room);
    }
    mpath_gpu_exchange_destroy(gpu);
    mpath_gpu_help_destroy(gpu);
    mpath_peer_again_destroy(gpu->again);
    mpath_order_destroy(gpu->order);
    free(gpu->demand);
    free(gpu->known);
    free(gpu->refused);
    free(gpu->devices);
    free(gpu->pieces);
    free(gpu->turns.places);
    free(gpu->staged_send);
    free(gpu->engine_pieces);
    free(gpu->decided.generations);
    free(gpu->decided.demand);
    free(gpu->decided.ways);
    free(gpu->decided.imports[MPATH_ROOM_RECV]);
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
        return MPATH_ROOM_WAITS_NOT;
    }
    return (mpath_gpu_info_of(device)->mps == 1) ? MPATH_ROOM_WAITS_BESIDE : MPATH_ROOM_WAITS_ALONE;
}

/* What a rank tells of one side. */
static void fill_side(mpath_gpu_coll_t *gpu, const void *buffer, const uint64_t *bytes, const uint64_t *offsets,
                      const mpath_memory_t *memory, int number, mpath_room_side_t *side)
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
        ((number == MPATH_ROOM_RECV) && (side->device >= 0) && (side->memory.how == MPATH_EXPORT_NONE))) {
        mpath_memory_is_slow(gpu->me, (number == MPATH_ROOM_RECV) ? "receive" : "send", memory);
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
    return (status == MPATH_OK) ? mpath_room_register(&gpu->room, device) : status;
}

/*
 * Whether this rank has what its GPUs need, which it makes before the others count on it. What the driver has refused is
 * asked for again after some calls.
 */
static int is_ready(mpath_gpu_coll_t *gpu, const mpath_call_t *call, const mpath_room_side_t *sides)
{
    const mpath_memory_t *memories[] = {[MPATH_ROOM_RECV] = call->recv_memory, [MPATH_ROOM_SEND] = call->send_memory};
    mpath_status_t status            = MPATH_OK;

    if (mpath_pause_passes(&gpu->ready_pause)) {
        return 0;
    }
    for (int side = 0; (side < MPATH_ROOM_SIDES) && (status == MPATH_OK); side++) {
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
static int is_same_side(const mpath_room_side_t *a, const mpath_room_side_t *b)
{
    return (a->kind == b->kind) && (a->device == b->device) && (memcmp(&a->memory, &b->memory, sizeof(a->memory)) == 0);
}

/* The cell of this half may hold most of it already: exports are large, and buffers mostly stay. */
static void write_cell(mpath_gpu_coll_t *gpu, const mpath_room_cell_t *now)
{
    mpath_room_cell_t *cell = &gpu->room.cells[gpu->half][gpu->me];

    if (cell->generation != now->generation) {
        *cell = *now;
    } else {
        cell->claimed                        = now->claimed;
        cell->eager                          = now->eager;
        cell->ready                          = now->ready;
        cell->host                           = now->host;
        cell->sides[MPATH_ROOM_RECV].address = now->sides[MPATH_ROOM_RECV].address;
        cell->sides[MPATH_ROOM_SEND].address = now->sides[MPATH_ROOM_SEND].address;
    }
}

/* What this rank tells of its buffers. */
static void publish_sides(mpath_gpu_coll_t *gpu, const mpath_call_t *call)
{
    mpath_room_cell_t *now                    = &gpu->told;
    size_t row_bytes                          = (size_t)gpu->size * sizeof(uint64_t);
    mpath_room_side_t sides[MPATH_ROOM_SIDES] = {{0}};
    mpath_room_side_t *recv = &sides[MPATH_ROOM_RECV], *send = &sides[MPATH_ROOM_SEND];
    mpath_gpu_t *device = NULL;
    int32_t kernels, turns;

    fill_side(gpu, call->recv_buffer, call->recv_bytes, call->recv_offsets, call->recv_memory, MPATH_ROOM_RECV, recv);
    fill_side(gpu, call->send_buffer, call->send_bytes, call->send_offsets, call->send_memory, MPATH_ROOM_SEND, send);
    kernels = (send->device >= 0) && (find_gpu(call->send_memory, &device) == MPATH_OK) && mpath_kernels_usable(device);
    turns   = takes_turns(call);
    if (kernels && (device != gpu->told_gpu)) {
        gpu->told_gpu = device;
        now->generation++;
        now->place++;
    }
    if (!is_same_side(recv, &now->sides[MPATH_ROOM_RECV]) || !is_same_side(send, &now->sides[MPATH_ROOM_SEND]) ||
        (kernels != now->kernels) || (turns != now->turns) || (now->generation == 0)) {
        now->generation++;
    }
    now->kernels                = kernels;
    now->turns                  = turns;
    now->claimed                = gpu->claimed;
    now->eager                  = gpu->eager;
    now->ready                  = is_ready(gpu, call, sides);
    now->host                   = gpu->told_host;
    now->sides[MPATH_ROOM_RECV] = *recv;
    now->sides[MPATH_ROOM_SEND] = *send;
    write_cell(gpu, now);
    memcpy(mpath_room_offsets(&gpu->room, gpu->half, gpu->me), call->recv_offsets, row_bytes);
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

/* The first call with device memory: the room, and what would have been told before the agreement. */
static mpath_status_t open_room(mpath_gpu_coll_t *gpu, const mpath_call_t *call)
{
    uint8_t mine, all[MPATH_ORDER_MAX_RANKS];
    mpath_status_t status;

    status = mpath_room_open(gpu->team, &gpu->room);
    if (status != MPATH_OK) {
        gpu->usable = 0;
        return (mpath_team_status(gpu->team) == MPATH_OK) ? MPATH_DECLINED : status;
    }
    gpu->opened       = 1;
    gpu->first_stream = mpath_gpu_coll_streams();
    mpath_process_self(&gpu->told.process);
    (void)mpath_gpu_coll_publish(gpu, call);
    mine   = mpath_gpu_coll_order_create(gpu) == MPATH_OK;
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
        status = open_room(gpu, call);
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
    mpath_status_t status = mpath_gpu_coll_find_ways(gpu);

    if (status == MPATH_OK) {
        gpu_plan_begins(gpu);
        status = mpath_gpu_help_next(gpu);
        gpu_plan_ends(gpu);
    }
    gpu->beside.start_ns = gpu->timed ? mpath_time_ns() : 0;
    if (status == MPATH_OK) {
        status = mpath_gpu_coll_finish(gpu, mpath_gpu_coll_start(gpu, call));
    }
    if (status == MPATH_OK) {
        mpath_gpu_help_ended(gpu);
    }
    return status;
}

mpath_status_t mpath_gpu_coll_finish(mpath_gpu_coll_t *gpu, mpath_status_t started)
{
    if (started == MPATH_OK) {
        return mpath_gpu_coll_wait(gpu);
    }
    mpath_team_break(gpu->team, started); /* the wait will end at once, and bring back what has started */
    (void)mpath_gpu_coll_wait(gpu);
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
    mpath_gpu_coll_release(gpu);
    if (mpath_status_is_error(status)) {
        mpath_team_break(gpu->team, status);
        return status;
    }
    gpu->counters.calls += (status == MPATH_OK) ? 1 : 0;
    return status;
}
