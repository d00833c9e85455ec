/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What goes through the host in a call on device memory: the share of it beside copies between GPUs, the slots in host
 * memory that it needs (where one rank cannot have these, none has until all ask again), and which pairs go by streams.
 */
#include "node/node_private.h"

#include "team/wait.h"
#include "util/log.h"

#include <string.h>

/* What a kernel leaves to the host is a multiple of this. */
#define SHARE_GRAIN_BYTES (UINT64_C(64) << 10)

/* On an H100 that two and four ranks share, and on two of them: doc/benchmarks/2026-11-24-streams.md. */
#define STREAMS_LEAST_BYTES (UINT64_C(128) << 10)
#define STREAMS_MOST_BYTES (UINT64_C(2) << 20)

mpath_status_t mpath_gpu_coll_get_slots(mpath_gpu_coll_t *gpu, uint64_t bytes, const char *without)
{
    mpath_status_t status;

    if (gpu->room.staged != NULL) {
        return MPATH_OK;
    }
    status = mpath_room_open_slots(&gpu->room, bytes, (gpu->send.gpu != NULL) ? gpu->send.gpu : gpu->receive.gpu);
    if ((status == MPATH_OK) || (mpath_team_status(gpu->team) != MPATH_OK)) {
        return status;
    }
    if (mpath_room_asked_for_slots(&gpu->room)) {
        mpath_info_by(gpu->me == 0,
                      "a rank cannot have slots in host memory (%s); in this call and %u after it that need them %s",
                      mpath_status_string(status), gpu->room.slots_pause.length, without);
    }
    return MPATH_DECLINED;
}

/* For what goes through the host beside copies between GPUs: without slots nothing does, for a while. */
static mpath_status_t get_slots_beside(mpath_gpu_coll_t *gpu, uint64_t bytes)
{
    mpath_status_t status = mpath_gpu_coll_get_slots(gpu, bytes,
                                                     "nothing goes through the host beside the copies between GPUs");

    if (status == MPATH_DECLINED) {
        gpu->no_beside = 1;
        return MPATH_OK;
    }
    return status;
}

/* For what has no other way: the call is not carried; nor are those like it for a while. */
static mpath_status_t get_slots_alone(mpath_gpu_coll_t *gpu, uint64_t bytes)
{
    mpath_status_t status = mpath_gpu_coll_get_slots(gpu, bytes, "device memory is copied as a whole");

    if (status == MPATH_DECLINED) {
        gpu->lacks_slots   = 1;
        gpu->decided.valid = 0; /* it has no slots */
    }
    return status;
}

void mpath_gpu_coll_count_pause(mpath_gpu_coll_t *gpu)
{
    if (gpu->no_beside && !mpath_pause_passes(&gpu->room.slots_pause)) {
        gpu->no_beside     = 0;
        gpu->decided.valid = 0; /* with nothing beside */
    }
}

static int goes_direct(const gpu_decided_t *decided, int pair)
{
    return (decided->ways[pair] != WAY_NONE) && (decided->ways[pair] != WAY_STAGED);
}

/*
 * What goes from GPU to GPU goes through the host in part, as the caller wants it: the same on all ranks. The slots are
 * there from the first call on that may need them, which takes longer anyway.
 */
mpath_status_t mpath_gpu_coll_share_direct(mpath_gpu_coll_t *gpu)
{
    gpu_decided_t *decided = &gpu->decided;
    mpath_status_t status  = MPATH_OK;
    int direct             = 0;

    for (int i = 0; gpu->timed && !direct && (gpu->room.staged == NULL) && (i < gpu->size * gpu->size); i++) {
        direct = goes_direct(decided, i);
    }
    if (direct && !gpu->no_beside) {
        status = get_slots_beside(gpu, mpath_gpu_beside_slots_bytes(gpu));
    }
    gpu->share_ppm = gpu->no_beside ? 0 : gpu->share_ppm;
    if ((status != MPATH_OK) || (decided->share_ppm == gpu->share_ppm)) {
        return status;
    }
    for (int i = 0; i < gpu->size * gpu->size; i++) {
        if (goes_direct(decided, i)) {
            decided->beside[i] = gpu->demand[i] / 1000000 * gpu->share_ppm & ~(SHARE_GRAIN_BYTES - 1);
        }
    }
    if (decided->pushes) {
        mpath_gpu_coll_order_rest(gpu);
    }
    decided->share_ppm = gpu->share_ppm;
    return MPATH_OK;
}

/* Slots for what was decided; what goes beside other copies can do without. */
mpath_status_t mpath_gpu_coll_open_slots(mpath_gpu_coll_t *gpu)
{
    gpu_decided_t *decided = &gpu->decided;
    int staged = 0, beside = 0, pairs = gpu->size * gpu->size;
    mpath_status_t status;

    for (int i = 0; i < pairs; i++) {
        staged = staged || (decided->ways[i] == WAY_STAGED);
        beside = beside || (decided->beside[i] > 0);
    }
    if (staged || !beside) {
        return staged ? get_slots_alone(gpu, gpu->settings->gpu_memory_bytes) : MPATH_OK;
    }
    status = get_slots_beside(gpu, gpu->settings->gpu_memory_bytes);
    if (gpu->no_beside) {
        memset(decided->beside, 0, (size_t)pairs * sizeof(*decided->beside));
        mpath_gpu_coll_make_order(gpu);
    }
    return status;
}

/*
 * Shorter messages are copied sooner than streams are told to wait. Of longer ones streams pass chunks of 512 KiB, hosts
 * those of whole slots, which is faster if the hosts look all the time.
 */
static int is_for_streams(const mpath_gpu_coll_t *gpu, uint64_t bytes)
{
    return (gpu->settings->gpu_stream_waits == MPATH_GPU_WAITS_YES) ||
           ((bytes >= STREAMS_LEAST_BYTES) && ((bytes <= STREAMS_MOST_BYTES) || mpath_idle_is_crowded()));
}

int mpath_gpu_coll_by_streams(const mpath_gpu_coll_t *gpu, int from, int to, uint64_t bytes)
{
    int32_t least = gpu->turns.shared ? MPATH_ROOM_WAITS_BESIDE : MPATH_ROOM_WAITS_ALONE;

    return is_for_streams(gpu, bytes) && (gpu_cell(gpu, from)->sides[MPATH_ROOM_SEND].waits >= least) &&
           (gpu_cell(gpu, to)->sides[MPATH_ROOM_RECV].waits >= least);
}
