/* SPDX-License-Identifier: BSD-3-Clause */
/* Alltoallv on device memory: the room, what a rank tells of its buffers, and the order of the steps. */
#include "coll/alltoallv_gpu_private.h"

#include "util/log.h"

#include <stdlib.h>
#include <string.h>

/*
 * Streams of a GPU: two for each communicator that has a lease of its own, then two for all other communicators, which
 * therefore must not wait for other ranks on them.
 */
#define GPU_OWN_LEASES 2
#define GPU_SHARED_LEASE GPU_OWN_LEASES

static pthread_mutex_t gpu_mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned gpu_leases; /* bit k: lease k is taken */

pthread_mutex_t *mpath_gpu_coll_mutex(void)
{
    return &gpu_mutex;
}

void mpath_gpu_coll_lock(void)
{
    pthread_mutex_lock(&gpu_mutex);
}

void mpath_gpu_coll_unlock(void)
{
    pthread_mutex_unlock(&gpu_mutex);
}

static int lease_take(void)
{
    int lease = 0;

    mpath_gpu_coll_lock();
    while ((lease < GPU_OWN_LEASES) && ((gpu_leases >> lease) & 1)) {
        lease++;
    }
    if (lease < GPU_OWN_LEASES) {
        gpu_leases |= 1u << lease;
    }
    mpath_gpu_coll_unlock();
    return lease;
}

static void lease_give(int lease)
{
    if ((lease >= 0) && (lease < GPU_OWN_LEASES)) {
        mpath_gpu_coll_lock();
        gpu_leases &= ~(1u << lease);
        mpath_gpu_coll_unlock();
    }
}

mpath_status_t mpath_gpu_coll_create(mpath_team_t *team, mpath_gpu_coll_t **gpu_p)
{
    const mpath_topo_t *topo = mpath_team_topo(team);
    size_t size              = (size_t)mpath_team_size(team);
    mpath_gpu_coll_t *gpu    = calloc(1, sizeof(*gpu));

    if (gpu == NULL) {
        goto err_no_memory;
    }
    gpu->team        = team;
    gpu->settings    = mpath_team_settings(team);
    gpu->size        = (int)size;
    gpu->me          = mpath_team_rank(team);
    gpu->lease       = -1;
    gpu->usable      = (mpath_topo_num_nodes(topo) == 1) && (size <= MPATH_ORDER_MAX_RANKS) && gpu->settings->gpu;
    gpu->demand      = calloc(3 * size * size, sizeof(*gpu->demand));
    gpu->ways        = calloc(size * size, sizeof(*gpu->ways));
    gpu->known       = calloc(size, sizeof(*gpu->known));
    gpu->refused     = calloc(size * size, sizeof(*gpu->refused));
    gpu->imports     = calloc(size, sizeof(*gpu->imports));
    gpu->pieces      = calloc(size, sizeof(*gpu->pieces));
    gpu->staged_send = calloc(2 * size, sizeof(*gpu->staged_send));
    if ((gpu->demand == NULL) || (gpu->ways == NULL) || (gpu->known == NULL) || (gpu->refused == NULL) ||
        (gpu->imports == NULL) || (gpu->pieces == NULL) || (gpu->staged_send == NULL)) {
        mpath_gpu_coll_destroy(gpu);
        goto err_no_memory;
    }
    for (size_t i = 0; i < size * size; i++) {
        gpu->refused[i].device = -1;
    }
    gpu->engine_demand  = gpu->demand + size * size;
    gpu->ordered_demand = gpu->engine_demand + size * size;
    gpu->staged_receive = gpu->staged_send + size;
    *gpu_p              = gpu;
    return MPATH_OK;

err_no_memory:
    mpath_error("no memory for device buffers of %zu ranks", size);
    return MPATH_ERR_NO_MEMORY;
}

void mpath_gpu_coll_destroy(mpath_gpu_coll_t *gpu)
{
    if (gpu == NULL) {
        return;
    }
    if (gpu->opened) {
        mpath_room_close(&gpu->room);
    }
    lease_give(gpu->lease);
    mpath_order_destroy(gpu->order);
    free(gpu->demand);
    free(gpu->ways);
    free(gpu->known);
    free(gpu->refused);
    free(gpu->imports);
    free(gpu->pieces);
    free(gpu->staged_send);
    free(gpu->puts);
    free(gpu->awaited);
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

/* Once per process: what makes device buffers slow, and what helps. */
static void warn_slow(const mpath_gpu_coll_t *gpu, const mpath_memory_t *memory, const char *side)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;

    if (!atomic_flag_test_and_set(&warned)) {
        mpath_warn("rank %d: the %s buffer is %s memory that other processes cannot open; it goes through host memory, "
                   "at about a tenth of the speed. Memory of cudaMalloc, or of a pool or cuMemCreate with POSIX file "
                   "descriptor handles, goes from GPU to GPU",
                   gpu->me, side, mpath_memory_kind_name(memory->kind));
    }
}

static void fill_cell(mpath_gpu_coll_t *gpu, const mpath_call_t *call, mpath_room_cell_t *cell)
{
    uint64_t *offsets = gpu->room.offsets[gpu->half] + (size_t)gpu->me * (size_t)gpu->size;
    mpath_stream_t *stream;

    cell->send_kind    = (call->send_memory == NULL) ? MPATH_MEMORY_HOST : call->send_memory->kind;
    cell->recv_kind    = (call->recv_memory == NULL) ? MPATH_MEMORY_HOST : call->recv_memory->kind;
    cell->flags        = 0;
    cell->device       = -1;
    cell->recv_address = (uint64_t)(uintptr_t)call->recv_buffer;
    cell->recv.how     = MPATH_EXPORT_NONE;
    if (call->flags & MPATH_CALL_INELIGIBLE) {
        return;
    }
    if (is_device(call->send_memory) && (find_gpu(call->send_memory, &gpu->send.gpu) == MPATH_OK) &&
        (mpath_stream_get(gpu->send.gpu, 0, &stream) == MPATH_OK)) {
        cell->device = call->send_memory->device;
        cell->flags |= mpath_kernels_usable(gpu->send.gpu) ? MPATH_ROOM_KERNELS : 0;
        cell->flags |= mpath_stream_has_values(stream) ? MPATH_ROOM_VALUES : 0;
    }
    if (is_device(call->recv_memory) &&
        (mpath_export_make(call->recv_buffer, span_bytes(call->recv_bytes, call->recv_offsets, gpu->size),
                           call->recv_memory, &cell->recv) != MPATH_OK)) {
        cell->recv.how = MPATH_EXPORT_NONE;
        warn_slow(gpu, call->recv_memory, "receive");
    }
    if (cell->send_kind == MPATH_MEMORY_MANAGED) {
        warn_slow(gpu, call->send_memory, "send");
    } else if (cell->recv_kind == MPATH_MEMORY_MANAGED) {
        warn_slow(gpu, call->recv_memory, "receive");
    }
    memcpy(offsets, call->recv_offsets, (size_t)gpu->size * sizeof(*offsets));
}

void mpath_gpu_coll_publish(mpath_gpu_coll_t *gpu, const mpath_call_t *call)
{
    if (!gpu->opened || !gpu->usable) {
        return;
    }
    gpu->number++;
    gpu->half     = (int)(gpu->number & 1);
    gpu->send.gpu = NULL;
    fill_cell(gpu, call, &gpu->room.cells[gpu->half][gpu->me]);
}

/* The first call with device memory: the room, streams, and what would have been told before the agreement. */
static mpath_status_t open_room(mpath_gpu_coll_t *gpu, const mpath_call_t *call)
{
    uint8_t mine, all[MPATH_ORDER_MAX_RANKS];
    mpath_status_t status;

    status = mpath_room_open(gpu->team, &gpu->room);
    if (status != MPATH_OK) {
        gpu->usable = 0;
        return (mpath_team_status(gpu->team) == MPATH_OK) ? MPATH_DECLINED : status;
    }
    gpu->opened = 1;
    gpu->lease  = lease_take();
    for (int half = 0; half < 2; half++) {
        mpath_process_self(&gpu->room.cells[half][gpu->me].process);
    }
    mpath_gpu_coll_publish(gpu, call);
    status = mpath_gpu_coll_order_create(gpu);
    mine   = (status != MPATH_OK) ? 2 : (gpu->lease < GPU_OWN_LEASES) ? 1 : 0;
    status = mpath_team_allgather(gpu->team, &mine, sizeof(mine), all);
    if (status != MPATH_OK) {
        return status;
    }
    gpu->gated = 1;
    for (int rank = 0; rank < gpu->size; rank++) {
        gpu->gated = gpu->gated && (all[rank] == 1);
        if (all[rank] == 2) {
            gpu->usable = 0;
        }
    }
    return gpu->usable ? MPATH_OK : MPATH_DECLINED;
}

/* GPUs and streams of this rank's two sides. */
static mpath_status_t bind_sides(mpath_gpu_coll_t *gpu, const mpath_call_t *call)
{
    mpath_status_t status = find_gpu(call->send_memory, &gpu->send.gpu);

    gpu->main_stream = gpu->side_stream = NULL;
    gpu->send.buffer                    = (char *)(uintptr_t)call->send_buffer;
    gpu->receive.buffer                 = call->recv_buffer;
    if (status == MPATH_OK) {
        status = find_gpu(call->recv_memory, &gpu->receive.gpu);
    }
    if ((status == MPATH_OK) && (gpu->send.gpu != NULL)) {
        status = mpath_stream_get(gpu->send.gpu, 2 * (unsigned)gpu->lease, &gpu->main_stream);
        if (status == MPATH_OK) {
            status = mpath_stream_get(gpu->send.gpu, 2 * (unsigned)gpu->lease + 1, &gpu->side_stream);
        }
    }
    if ((status == MPATH_OK) && ((gpu->send.gpu != NULL) || (gpu->receive.gpu != NULL))) {
        status = mpath_room_register(&gpu->room, (gpu->send.gpu != NULL) ? gpu->send.gpu : gpu->receive.gpu);
    }
    return status;
}

static void put_imports(mpath_gpu_coll_t *gpu)
{
    for (int rank = 0; rank < gpu->size; rank++) {
        if (gpu->imports[rank] != NULL) {
            mpath_import_put(gpu->imports[rank]);
            gpu->imports[rank] = NULL;
        }
    }
}

static mpath_status_t run(mpath_gpu_coll_t *gpu, const mpath_call_t *call)
{
    mpath_status_t status = bind_sides(gpu, call);

    if (status == MPATH_OK) {
        status = mpath_gpu_coll_find_ways(gpu);
    }
    if (status == MPATH_OK) {
        gpu->kernel_started = gpu->engine_started = gpu->self_started = gpu->staged_started = 0;

        status = mpath_gpu_coll_start(gpu, call);
        if (status != MPATH_OK) {
            mpath_team_break(gpu->team, status); /* the wait will end at once, and bring back what has started */
            (void)mpath_gpu_coll_wait(gpu);
        } else {
            status = mpath_gpu_coll_wait(gpu);
        }
    }
    put_imports(gpu);
    return status;
}

mpath_status_t mpath_gpu_coll_move(mpath_gpu_coll_t *gpu, const mpath_call_t *call, const mpath_agreed_t *agreed)
{
    size_t cells = (size_t)gpu->size * (size_t)gpu->size;
    mpath_status_t status;

    if (!gpu->usable) {
        return MPATH_DECLINED;
    }
    memcpy(gpu->demand, agreed->demand, cells * sizeof(*gpu->demand)); /* further gathers would overwrite it */
    if (!gpu->opened) {
        status = open_room(gpu, call);
        if (status != MPATH_OK) {
            return status;
        }
    }
    status = run(gpu, call);
    if (mpath_status_is_error(status)) {
        mpath_team_break(gpu->team, status);
        return status;
    }
    gpu->counters.calls++;
    return status;
}
