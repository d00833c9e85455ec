/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that share a GPU without CUDA MPS: their kernels wait for each other's turns (gpu/turns.h), whatever the size of
 * a message. A short call is done sooner by copies to the host, the function for host memory and copies back, which
 * need no turns. Which is faster is predicted from what all ranks have told, so that all come to the same.
 */
#include "coll/alltoallv_gpu_private.h"

#include "coll/symmetric.h"
#include "gpu/turns.h"
#include "util/log.h"

#include <string.h>

/*
 * With copies on the host, measured between 2, 4 and 8 ranks on an H100: a call without data, and for each rank on the
 * GPU; what the host's functions take for each byte of the busiest rank, of exchanges and of reductions.
 */
#define HOST_CALL_NS 20000u
#define HOST_RANK_NS 10000u
#define HOST_EXCHANGE_PS 125u
#define HOST_REDUCE_PS 250u

/*
 * Copies of a GPU between it and the host, in both directions together, for reductions: those on the host have another
 * order, and bits must not depend on what has been measured on the day.
 */
#define HOST_COPY_BPS UINT64_C(45000000000)

/* The GPU that a rank works on, by the side that tells it; NULL: none. */
static const mpath_cu_uuid_t *gpu_of(const mpath_gpu_coll_t *gpu, int rank)
{
    const mpath_room_side_t *sides = gpu_cell(gpu, rank)->sides;

    if (sides[MPATH_ROOM_SEND].device >= 0) {
        return &sides[MPATH_ROOM_SEND].memory.uuid;
    }
    return (sides[MPATH_ROOM_RECV].device >= 0) ? &sides[MPATH_ROOM_RECV].memory.uuid : NULL;
}

static int first_on_the_same(const mpath_gpu_coll_t *gpu, int rank)
{
    const mpath_cu_uuid_t *mine = gpu_of(gpu, rank);

    for (int other = 0; (mine != NULL) && (other < rank); other++) {
        const mpath_cu_uuid_t *its = gpu_of(gpu, other);

        if ((its != NULL) && (memcmp(mine, its, sizeof(*mine)) == 0)) {
            return other;
        }
    }
    return rank;
}

static int count_on(const gpu_turns_t *turns, int size, int place)
{
    int count = 0;

    for (int rank = 0; rank < size; rank++) {
        count += turns->places[rank] == place;
    }
    return count;
}

static int is_on_the_same(const mpath_room_cell_t *one, const mpath_room_cell_t *other)
{
    int same = 0;

    for (int i = 0; i < MPATH_ROOM_SIDES * MPATH_ROOM_SIDES; i++) {
        const mpath_room_side_t *a = &one->sides[i / MPATH_ROOM_SIDES], *b = &other->sides[i % MPATH_ROOM_SIDES];

        same = same || ((a->device >= 0) && (b->device >= 0) &&
                        (memcmp(&a->memory.uuid, &b->memory.uuid, sizeof(a->memory.uuid)) == 0));
    }
    return same;
}

/* Whether two ranks have memory on one GPU, on whichever side. */
static int is_shared(const mpath_gpu_coll_t *gpu)
{
    for (int rank = 1; rank < gpu->size; rank++) {
        for (int other = 0; other < rank; other++) {
            if (is_on_the_same(gpu_cell(gpu, rank), gpu_cell(gpu, other))) {
                return 1;
            }
        }
    }
    return 0;
}

/* Once per process, by the first rank on the GPU: what makes calls slow, and the cure. */
static void tell_of_turns(const mpath_gpu_coll_t *gpu)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    int other               = gpu->me + 1;
    const char *calls       = (gpu->settings->gpu_way == MPATH_GPU_WAY_AUTO)
                                  ? "short calls on device memory go through the host, longer ones wait"
                                  : "calls on device memory wait";

    while ((other < gpu->size) && (gpu->turns.places[other] != gpu->me)) {
        other++;
    }
    if ((other < gpu->size) && (gpu->send.gpu != NULL) && !atomic_flag_test_and_set(&told)) {
        mpath_warn(
            "ranks %d and %d share the GPU %s, and without CUDA MPS their work on it takes turns: %s 0.15 ms for each of "
            "these ranks. nvidia-cuda-mps-control -d starts MPS, under which both take a fraction of it",
            gpu->me, other, mpath_gpu_info_of(gpu->send.gpu)->pci, calls);
    }
}

/* This rank's copies on the GPUs of this call need no turns from now on. */
static void avoid_turns(const mpath_gpu_coll_t *gpu)
{
    if (gpu->send.gpu != NULL) {
        mpath_gpu_set_turns(gpu->send.gpu);
    }
    if (gpu->receive.gpu != NULL) {
        mpath_gpu_set_turns(gpu->receive.gpu);
    }
}

/* Who is where, whenever some rank has told something new. */
static void look(mpath_gpu_coll_t *gpu)
{
    gpu_turns_t *turns   = &gpu->turns;
    uint64_t generations = 0;

    for (int rank = 0; rank < gpu->size; rank++) {
        generations += gpu_cell(gpu, rank)->generation; /* each only grows */
    }
    if (generations == turns->generations) {
        return;
    }
    turns->generations = generations;
    turns->most        = 0;
    turns->shared      = is_shared(gpu);
    for (int rank = 0; rank < gpu->size; rank++) {
        turns->places[rank] = first_on_the_same(gpu, rank);
    }
    for (int rank = 0; rank < gpu->size; rank++) {
        int count = gpu_cell(gpu, rank)->turns ? count_on(turns, gpu->size, turns->places[rank]) : 0;

        turns->most = ((count > 1) && (count > turns->most)) ? count : turns->most;
    }
    if (gpu_cell(gpu, gpu->me)->turns && (count_on(turns, gpu->size, turns->places[gpu->me]) > 1)) {
        avoid_turns(gpu);
        tell_of_turns(gpu);
    }
}

/* What a rank copies to the host, or back; of reductions and gathers the demand names the same bytes for every peer. */
static uint64_t copied(const mpath_gpu_coll_t *gpu, int rank, int back, uint32_t operation)
{
    int same = (operation == MPATH_OPERATION_ALLREDUCE) ||
               (operation == (back ? MPATH_OPERATION_REDUCE_SCATTER : MPATH_OPERATION_ALLGATHER));
    uint64_t sum = 0, most = 0;

    for (int peer = 0; peer < gpu->size; peer++) {
        uint64_t bytes = back ? gpu_bytes(gpu, peer, rank) : gpu_bytes(gpu, rank, peer);

        sum += bytes;
        most = (bytes > most) ? bytes : most;
    }
    return same ? most : sum;
}

static uint64_t host_ns(const mpath_gpu_coll_t *gpu, uint32_t operation)
{
    int reduces = (operation == MPATH_OPERATION_ALLREDUCE) || (operation == MPATH_OPERATION_REDUCE_SCATTER);
    uint64_t of_ranks[MPATH_ORDER_MAX_RANKS] = {0}, busiest = 0, most = 0;

    for (int rank = 0; rank < gpu->size; rank++) {
        uint64_t bytes = copied(gpu, rank, 0, operation) + copied(gpu, rank, 1, operation);
        int place      = gpu->turns.places[rank];

        of_ranks[place] += bytes;
        busiest = (of_ranks[place] > busiest) ? of_ranks[place] : busiest;
        most    = (bytes > most) ? bytes : most;
    }
    return HOST_CALL_NS + (uint64_t)gpu->turns.most * HOST_RANK_NS +
           busiest / 1024 * (UINT64_C(1024000000000) / (reduces ? HOST_COPY_BPS : gpu->rates.staged_bps)) +
           most / 1000 * (reduces ? HOST_REDUCE_PS : HOST_EXCHANGE_PS);
}

int mpath_gpu_coll_leaves_to_host(mpath_gpu_coll_t *gpu, uint32_t operation)
{
    look(gpu);
    gpu->turns.left = (gpu->turns.most > 0) && (gpu->settings->gpu_way == MPATH_GPU_WAY_AUTO) &&
                      (host_ns(gpu, operation) < (uint64_t)gpu->turns.most * MPATH_GPU_TURN_NS);
    return gpu->turns.left;
}

const char *mpath_gpu_coll_declined_because(const mpath_gpu_coll_t *gpu)
{
    if (gpu->lacks_slots) {
        return "a rank cannot have slots in host memory";
    }
    return gpu->turns.left ? "ranks that take turns on a GPU are faster with copies on the host"
                           : "device memory cannot be shared on these nodes";
}
