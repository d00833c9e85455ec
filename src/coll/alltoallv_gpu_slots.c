/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What goes through the host in a call on device memory: the share of it beside copies between GPUs, and the slots in
 * host memory that it needs. Where one rank cannot have these, none has, until all ask again.
 */
#include "coll/alltoallv_gpu_private.h"

#include "util/log.h"

#include <string.h>

/* What a kernel leaves to the host is a multiple of this. */
#define SHARE_GRAIN_BYTES (UINT64_C(64) << 10)

static mpath_status_t get_slots(mpath_gpu_coll_t *gpu, uint64_t bytes)
{
    return (gpu->room.staged != NULL)
               ? MPATH_OK
               : mpath_room_open_slots(&gpu->room, bytes, (gpu->send.gpu != NULL) ? gpu->send.gpu : gpu->receive.gpu);
}

/* Where one rank cannot have them, none can, and the call is not carried; nor are those like it for a while. */
static mpath_status_t open_slots(mpath_gpu_coll_t *gpu, uint64_t bytes)
{
    mpath_status_t status = get_slots(gpu, bytes);

    if (!mpath_status_is_error(status) || (mpath_team_status(gpu->team) != MPATH_OK)) {
        return status;
    }
    if (mpath_room_asked_for_slots(&gpu->room)) {
        mpath_info("a rank cannot have the slots for device memory on its way through the host (%s); this call and %u "
                   "after it that need them are left to the previous function",
                   mpath_status_string(status), gpu->room.slots_pause.length);
    }
    gpu->decided.valid = 0; /* it has no slots */
    return MPATH_DECLINED;
}

/* The same for what goes through the host beside copies between GPUs: without slots nothing does, for a while. */
static mpath_status_t open_beside(mpath_gpu_coll_t *gpu, uint64_t bytes)
{
    mpath_status_t status = get_slots(gpu, bytes);

    if (!mpath_status_is_error(status) || (mpath_team_status(gpu->team) != MPATH_OK)) {
        return status;
    }
    if (mpath_room_asked_for_slots(&gpu->room)) {
        mpath_info("a rank cannot have slots in host memory (%s); in %u calls nothing goes through the host beside the "
                   "copies between GPUs",
                   mpath_status_string(status), gpu->room.slots_pause.length);
    }
    gpu->no_beside = 1;
    return MPATH_OK;
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
        status = open_beside(gpu, mpath_gpu_beside_slots_bytes(gpu));
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
    if (decided->engine != WAY_NONE) {
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
        return staged ? open_slots(gpu, gpu->settings->gpu_memory_bytes) : MPATH_OK;
    }
    status = open_beside(gpu, gpu->settings->gpu_memory_bytes);
    if (gpu->no_beside) {
        memset(decided->beside, 0, (size_t)pairs * sizeof(*decided->beside));
        mpath_gpu_coll_make_order(gpu);
    }
    return status;
}
