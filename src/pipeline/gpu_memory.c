/* SPDX-License-Identifier: BSD-3-Clause */
/* The pipeline on device memory: where the ranks of a node have their buffers, and the arena as GPUs reach it. */
#include "pipeline/gpu.h"

#include "node/streams.h"
#include "team/agree.h"
#include "util/log.h"
#include "util/time.h"

#include <stdlib.h>
#include <string.h>

/*
 * The pipeline on device memory: a rail carries what the GPUs of its node combine, and is not to be borrowed meanwhile
 * by chunks that other communicators pass on (mover/relay_owners.h). A rank whose application computes in the middle of a
 * non-blocking call does not come here: what it has announced ends by itself, 20 ms later at most.
 */

/* Rates of emulated clusters do not hold for these calls. */
static int is_emulated(const mpath_share_t *share)
{
    const mpath_topo_t *topo = mpath_team_gpu_topo(share->team);

    return (topo != NULL) && (mpath_topo_params(topo)->emulated != MPATH_EMULATED_NO);
}

void mpath_share_gpu_owners_begin(mpath_share_t *share)
{
    mpath_owners_t *owners = &share->gpu->owners;
    mpath_machine_t machine;

    if (!owners->opened && (share->num_links > 0) && !is_emulated(share)) {
        mpath_topo_copy_machine(share->topo, share->node, &machine);
        mpath_owners_open(&machine, mpath_team_id(share->team), 0, owners);
    }
}

void mpath_share_gpu_owners_announce(mpath_share_t *share)
{
    mpath_nic_set_t nics = 0;

    if (!share->gpu->owners.opened) {
        return;
    }
    for (int i = 0; i < share->num_links; i++) {
        const share_link_t *link = &share->links[i];

        nics |= (link->freed < share->num_segments) ? mpath_nic_bit(share->rails[link->rail].nic[share->node]) : 0;
    }
    mpath_owners_announce(&share->gpu->owners, (mpath_owner_ports_t){.sends = nics, .receives = nics}, mpath_time_ns());
}

void mpath_share_gpu_owners_end(mpath_share_t *share)
{
    if (share->gpu->owners.opened) {
        mpath_owners_announce(&share->gpu->owners, (mpath_owner_ports_t){0}, 0);
    }
}

#define REFUSALS_MOST 3 /* after so many not every call tries it */
#define LEAVE_NS (10 * MPATH_NS_PER_S)
#define LIFE_ROUNDS 16 /* looks at a counter between two at a process */

static size_t align_line(size_t bytes)
{
    return (bytes + SHARE_LINE - 1) / SHARE_LINE * SHARE_LINE;
}

static size_t cell_bytes(const mpath_share_t *share)
{
    return align_line(sizeof(share_gpu_cell_t) + (size_t)mpath_team_size(share->team) * sizeof(uint64_t));
}

size_t mpath_share_gpu_cells_bytes(const mpath_share_t *share, int num_local)
{
    return 2 * (size_t)num_local * cell_bytes(share);
}

static share_gpu_cell_t *cell_of(const mpath_share_t *share, int local_rank)
{
    size_t index = (size_t)(share->gpu->number % 2) * (size_t)share->num_local + (size_t)local_rank;

    return (share_gpu_cell_t *)(void *)(share->cells + index * cell_bytes(share));
}

static uint64_t *offsets_of(share_gpu_cell_t *cell)
{
    return (uint64_t *)(void *)(cell + 1);
}

/* -- what this rank tells -- */

static int on_device(const mpath_memory_t *memory)
{
    return (memory != NULL) && !mpath_memory_on_host(memory->kind);
}

/* One side, with `bytes` bytes of data: where it is, and what others open it by. 0: they cannot. */
static int look_at_side(const void *buffer, uint64_t bytes, const mpath_memory_t *memory, share_gpu_side_t *side)
{
    memset(side, 0, sizeof(*side));
    side->address = (uint64_t)(uintptr_t)buffer;
    if ((memory == NULL) || (bytes == 0)) {
        return bytes == 0;
    }
    return on_device(memory) && (memory->kind != MPATH_MEMORY_MANAGED) && memory->exportable &&
           (mpath_export_make(buffer, bytes, memory, &side->memory) == MPATH_OK);
}

/* GPUs of the node would read what a Reduce_scatter in place has written. */
static int overwrites(const mpath_share_job_t *job)
{
    return (job->flags == MPATH_SHARE_REDUCE) && (job->send_buffer == job->recv_buffer);
}

static int is_aligned(const mpath_share_job_t *job, const void *buffer)
{
    unsigned alignment = mpath_reduce_alignment(job->gpus->how.type);

    return !(job->flags & MPATH_SHARE_REDUCE) || ((uintptr_t)buffer % alignment == 0);
}

/*
 * The memory whose GPU and context do the job; NULL: the sides have none in common. Memory of no context, as mapped and
 * pool memory is, goes with any of its GPU.
 */
static const mpath_memory_t *place_of(const mpath_memory_t *send, const mpath_memory_t *recv)
{
    const mpath_memory_t *some = (recv != NULL) ? recv : send;

    if ((send == NULL) || (recv == NULL)) {
        return some;
    }
    if ((send->device != recv->device) ||
        ((send->context != recv->context) && (send->context != NULL) && (recv->context != NULL))) {
        return NULL;
    }
    return (recv->context != NULL) ? recv : send;
}

/* What the driver refuses now, it does not once others count on it: what was found is kept. */
static int has_function(mpath_share_t *share, const mpath_share_job_t *job)
{
    mpath_device_function_t function;

    return !(job->flags & MPATH_SHARE_REDUCE) ||
           (mpath_reduce_find(share->gpu->device, &job->gpus->how, &share->gpu->no_function, &function) == MPATH_OK);
}

/* Whether this rank's GPU can do its part; share->gpu->mine says what with. */
static int look(mpath_share_t *share, const mpath_share_job_t *job)
{
    const mpath_memory_t *send = job->gpus->send_memory, *recv = job->gpus->recv_memory;
    const mpath_memory_t *place = place_of(send, recv);
    share_gpu_cell_t *mine      = &share->gpu->mine;

    if (!on_device(place) || (share->num_local > SHARE_GPU_RANKS) || overwrites(job) ||
        !is_aligned(job, job->send_buffer) || !is_aligned(job, job->recv_buffer) ||
        (mpath_gpu_get(place->device, place->context, &share->gpu->device) != MPATH_OK) ||
        !mpath_kernels_usable(share->gpu->device) || !has_function(share, job)) {
        return 0;
    }
    mine->uuid  = mpath_gpu_info_of(share->gpu->device)->uuid;
    mine->turns = mpath_gpu_info_of(share->gpu->device)->mps == 0;
    return look_at_side(job->send_buffer, job->gpus->send_bytes, send, &mine->sides[SHARE_GPU_SEND]) &&
           look_at_side(job->recv_buffer, job->gpus->recv_bytes, recv, &mine->sides[SHARE_GPU_RECV]);
}

static share_gpu_opened_t memory_of(const share_gpu_t *gpu)
{
    share_gpu_opened_t memory;

    memset(&memory, 0, sizeof(memory)); /* they are compared as bytes */
    memory.gpu = mpath_gpu_number(gpu->device);
    for (int side = 0; side < SHARE_GPU_SIDES; side++) {
        memory.base[side]      = gpu->mine.sides[side].memory.base;
        memory.bytes[side]     = gpu->mine.sides[side].memory.bytes;
        memory.buffer_id[side] = gpu->mine.sides[side].memory.buffer_id;
    }
    return memory;
}

/* NULL: mates have not met this memory. */
static share_gpu_opened_t *find_opened(share_gpu_t *gpu)
{
    share_gpu_opened_t memory = memory_of(gpu);

    for (int i = 0; i < SHARE_GPU_OPENED; i++) {
        memory.flags = gpu->opened[i].flags;
        if ((memory.flags != 0) && (memcmp(&memory, &gpu->opened[i], sizeof(memory)) == 0)) {
            return &gpu->opened[i];
        }
    }
    return NULL;
}

static int is_opened(share_gpu_t *gpu, unsigned flags)
{
    const share_gpu_opened_t *opened = find_opened(gpu);

    return (opened != NULL) && ((flags & ~opened->flags) == 0);
}

static void remember(share_gpu_t *gpu, unsigned flags)
{
    share_gpu_opened_t *opened = find_opened(gpu);

    if (opened == NULL) {
        opened  = &gpu->opened[gpu->next_opened++ % SHARE_GPU_OPENED];
        *opened = memory_of(gpu);
    }
    opened->flags |= flags;
}

static void write_cell(mpath_share_t *share, const mpath_share_job_t *job)
{
    share_gpu_cell_t *cell = cell_of(share, share->local_rank);

    *cell = share->gpu->mine;
    if (!(job->flags & MPATH_SHARE_REDUCE)) {
        memcpy(offsets_of(cell), job->recv_offsets, (size_t)mpath_team_size(share->team) * sizeof(uint64_t));
    }
}

uint32_t mpath_share_gpus_call_flags(mpath_share_t *share, const mpath_share_job_t *job)
{
    share_gpu_t *gpu = share->gpu;
    uint32_t flags   = (on_device(job->gpus->send_memory) || on_device(job->gpus->recv_memory)) ? MPATH_CALL_DEVICE : 0;
    int usable;

    if (gpu == NULL) {
        return flags | MPATH_CALL_APART;
    }
    mpath_gpu_notice_lost();
    usable            = !mpath_pause_passes(&gpu->pause) && look(share, job);
    gpu->cell_written = share->tried && (share->ready == MPATH_OK);
    if (gpu->cell_written) {
        gpu->number++;
        if (usable) {
            write_cell(share, job);
        }
    }
    if (!usable) {
        return flags | MPATH_CALL_APART;
    }
    return flags | (is_opened(gpu, job->flags) ? 0 : MPATH_CALL_MOVED);
}

/* -- what this rank opens -- */

static mpath_status_t open_side(mpath_share_t *share, int local_rank, int side)
{
    const share_gpu_side_t *theirs = &cell_of(share, local_rank)->sides[side];
    share_gpu_t *gpu               = share->gpu;
    mpath_import_t **import_p      = &gpu->imports[side][local_rank];
    int peer                       = mpath_gpu_find(&theirs->memory.uuid); /* -1: only its owner sees it */
    mpath_status_t status;

    if (local_rank == share->local_rank) {
        gpu->buffers[side][local_rank] = theirs->address;
        return MPATH_OK;
    }
    if ((theirs->memory.how == MPATH_EXPORT_NONE) || ((peer >= 0) && !mpath_gpu_can_reach(gpu->device, peer))) {
        return MPATH_ERR_UNREACHABLE;
    }
    status = mpath_import_get(&theirs->memory, gpu->device, import_p);
    if (status != MPATH_OK) {
        *import_p = NULL;
        return status;
    }
    gpu->buffers[side][local_rank] = mpath_import_address(*import_p, theirs->address);
    return MPATH_OK;
}

static int is_in_place(const mpath_share_t *share, int local_rank)
{
    const share_gpu_side_t *sides = cell_of(share, local_rank)->sides;

    return sides[SHARE_GPU_SEND].address == sides[SHARE_GPU_RECV].address;
}

/* Without GATHER ranks may have empty blocks. */
static int has_receiver(const mpath_share_t *share, int local_rank, const mpath_share_job_t *job)
{
    return (job->flags & MPATH_SHARE_GATHER) ||
           (cell_of(share, local_rank)->sides[SHARE_GPU_RECV].memory.how != MPATH_EXPORT_NONE);
}

/* What every job needs. Not in the middle of one, where others count on it. */
static mpath_status_t make_ready(mpath_share_t *share)
{
    share_gpu_t *gpu      = share->gpu;
    mpath_status_t status = mpath_arena_register(share->arena, gpu->device);

    if (!gpu->has_streams) {
        gpu->first_stream = mpath_gpu_coll_streams();
        gpu->has_streams  = 1;
    }
    if (status == MPATH_OK) {
        status = mpath_stream_get(gpu->device, gpu->first_stream, &gpu->to_host);
    }
    if (status == MPATH_OK) {
        status = mpath_stream_get(gpu->device, gpu->first_stream + 1, &gpu->from_host);
    }
    return (status == MPATH_OK) ? mpath_share_gpu_find_copies(gpu) : status;
}

/* All that this rank's GPU reads and writes in the job. */
static mpath_status_t open_all(mpath_share_t *share, const mpath_share_job_t *job)
{
    mpath_status_t status = make_ready(share);

    share->gpu->in_place = 0;
    for (int i = 0; i < share->num_local; i++) {
        share->gpu->in_place |= is_in_place(share, i);
    }
    for (int i = 0; (status == MPATH_OK) && (i < share->num_local); i++) {
        int mine = i == share->local_rank;

        share->gpu->recv_offsets[i] = (job->flags & MPATH_SHARE_REDUCE) ? job->recv_offsets
                                                                        : offsets_of(cell_of(share, i));
        if ((job->flags & MPATH_SHARE_REDUCE) || mine) {
            status = open_side(share, i, SHARE_GPU_SEND);
        }
        if ((status == MPATH_OK) && (mine || has_receiver(share, i, job))) {
            status = open_side(share, i, SHARE_GPU_RECV);
        }
    }
    return status;
}

/* Ranks that share a GPU on which processes take turns would wait for each other at every step. */
static int is_in_turns(const mpath_share_t *share)
{
    for (int i = 0; i < share->num_local; i++) {
        for (int k = 0; k < i; k++) {
            const share_gpu_cell_t *a = cell_of(share, i), *b = cell_of(share, k);

            if (a->turns && (memcmp(&a->uuid, &b->uuid, sizeof(a->uuid)) == 0)) {
                return 1;
            }
        }
    }
    return 0;
}

/* Whether all ranks could; alike on all. Their cells may be read afterwards, too. */
static mpath_status_t exchange(mpath_share_t *share, mpath_status_t mine)
{
    int32_t status = mine, *all = malloc((size_t)mpath_team_size(share->team) * sizeof(*all));
    mpath_status_t result = MPATH_ERR_NO_MEMORY;

    if (all == NULL) {
        mpath_error("no memory to ask %d ranks for their GPUs; the call fails", mpath_team_size(share->team));
        mpath_team_break(share->team, result);
        return result;
    }
    result = mpath_team_allgather(share->team, &status, sizeof(status), all);
    for (int rank = 0; (result == MPATH_OK) && (rank < mpath_team_size(share->team)); rank++) {
        if (all[rank] != MPATH_OK) {
            mpath_info_by(
                mpath_team_rank(share->team) == 0,
                "rank %d: its GPU cannot work on the buffers of its node (%s); the call goes through the host", rank,
                mpath_status_string((mpath_status_t)all[rank]));
            result = MPATH_DECLINED;
        }
    }
    free(all);
    return result;
}

/* Some rank has memory that its mates have not met. */
static mpath_status_t open_together(mpath_share_t *share, const mpath_share_job_t *job)
{
    mpath_status_t status = is_in_turns(share) ? MPATH_ERR_UNSUPPORTED : open_all(share, job);

    status = exchange(share, status);
    if (status == MPATH_OK) {
        remember(share->gpu, job->flags);
    } else {
        mpath_share_gpu_close(share);
        share->gpu->refusals++;
    }
    if (share->gpu->refusals >= REFUSALS_MOST) {
        mpath_pause_note(&share->gpu->pause, status == MPATH_OK);
    }
    return status;
}

mpath_status_t mpath_share_gpu_open(mpath_share_t *share, const mpath_share_job_t *job, uint32_t flags)
{
    mpath_status_t status;

    if (share->gpu->cell_written) {
        status                   = (flags & MPATH_CALL_MOVED) ? open_together(share, job) : open_all(share, job);
        share->gpu->cell_written = 0;
        return status;
    }
    share->gpu->number++;
    (void)look(share, job); /* as it was before */
    write_cell(share, job);
    status = exchange(share, MPATH_OK);
    return (status == MPATH_OK) ? open_together(share, job) : status;
}

/* Its GPU has done all of the call, or it has left. */
static int is_through(const mpath_share_t *share, int local_rank)
{
    return (atomic_load_explicit(&share->left[local_rank].value, memory_order_acquire) != 0) ||
           (mpath_share_least(share, share->consumed + local_rank, 1, NULL) >= share->num_segments);
}

void mpath_share_gpus_leave(mpath_share_t *share)
{
    uint64_t deadline_ns = mpath_time_ns() + LEAVE_NS;

    if (share->left == NULL) {
        return; /* there is no arena */
    }
    atomic_store_explicit(&share->left[share->local_rank].value, 1, memory_order_release);
    mpath_idle_start(&share->wait.idle);
    for (int i = 0; share->gpu->in_use && (i < share->num_local); i++) {
        for (unsigned looks = 0; !is_through(share, i); looks++) {
            int dead = (looks % LIFE_ROUNDS == LIFE_ROUNDS - 1) &&
                       (mpath_team_peer_status(share->team, share->local[i]) != MPATH_OK);

            if (dead || (mpath_time_ns() > deadline_ns)) {
                break;
            }
            (void)mpath_idle_wait(&share->wait.idle);
        }
    }
}

void mpath_share_gpu_close(mpath_share_t *share)
{
    for (int side = 0; side < SHARE_GPU_SIDES; side++) {
        for (int i = 0; i < SHARE_GPU_RANKS; i++) {
            if (share->gpu->imports[side][i] != NULL) {
                mpath_import_put(share->gpu->imports[side][i]);
                share->gpu->imports[side][i] = NULL;
            }
        }
    }
}

void mpath_share_gpu_destroy(mpath_share_t *share)
{
    if (share->gpu != NULL) {
        mpath_gpu_notice_lost();
        mpath_share_gpu_close(share);
        mpath_owners_close(&share->gpu->owners);
        free(share->gpu->combine);
        free(share->gpu);
        share->gpu = NULL;
    }
}
