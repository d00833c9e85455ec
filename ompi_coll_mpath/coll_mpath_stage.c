/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies in host memory for collectives that take no device memory. */
#include "coll_mpath.h"
#include "coll_mpath_stage.h"

static mpath_status_t stage_look(mca_coll_mpath_stage_t *stage)
{
    mpath_status_t status = mca_coll_mpath_device_look(&stage->recv, stage->recv_parts, &stage->recv_device);

    stage->send_device.memory.kind = MPATH_MEMORY_HOST;
    if ((MPATH_OK == status) && !stage->in_place) {
        status = mca_coll_mpath_device_look(&stage->send, stage->send_parts, &stage->send_device);
    }
    return status;
}

static void stage_drop(mca_coll_mpath_stage_t *stage)
{
    mca_coll_mpath_device_close(&stage->recv_device);
    if (!stage->in_place) {
        mca_coll_mpath_device_close(&stage->send_device);
    }
}

/* Open MPI knows that the memory is a device's, or the host can read it. */
static bool stage_knows(const mca_coll_mpath_device_t *device)
{
    if (mca_coll_mpath_device_in_parts(device)) {
        return false;
    }
    return mpath_memory_on_host(device->memory.kind) || (MPATH_MEMORY_MANAGED == device->memory.kind) ||
           mca_coll_mpath_is_device((char *)device->user.buffer + device->lowest);
}

static bool stage_knows_both(const mca_coll_mpath_stage_t *stage)
{
    return stage_knows(&stage->recv_device) && (stage->in_place || stage_knows(&stage->send_device));
}

void mca_coll_mpath_stage_restore(mca_coll_mpath_stage_t *stage)
{
    if (stage->is_open && stage_knows_both(stage)) {
        stage_drop(stage);
        stage->recv    = stage->recv_device.user;
        stage->send    = stage->in_place ? stage->send : stage->send_device.user;
        stage->is_open = false;
    }
}

mpath_status_t mca_coll_mpath_stage_open(mca_coll_mpath_stage_t *stage)
{
    mpath_status_t status;

    if (!mpath_gpu_available()) {
        return MPATH_DECLINED;
    }
    status = stage_look(stage);
    if ((MPATH_OK == status) && (MPATH_SYNC_DEVICE == mca_coll_mpath_component.settings.sync)) {
        status = mca_coll_mpath_device_sync(stage->in_place ? NULL : &stage->send_device, &stage->recv_device);
    }
    if (MPATH_OK != status) {
        stage_drop(stage);
        return status;
    }
    if (!mca_coll_mpath_device_needs_staging(&stage->recv_device) &&
        !mca_coll_mpath_device_needs_staging(&stage->send_device)) {
        return MPATH_DECLINED;
    }
    if ((MPATH_OK == status) && stage->keep_known && stage_knows_both(stage)) {
        return MPATH_DECLINED;
    }
    if ((MPATH_OK == status) && !stage->in_place) {
        status = mca_coll_mpath_device_staging(&stage->send, stage->send_parts, true, &stage->send_device);
    }
    if (MPATH_OK == status) {
        status = mca_coll_mpath_device_staging(&stage->recv, stage->recv_parts, stage->in_place || stage->loads_recv,
                                               &stage->recv_device);
    }
    if (MPATH_OK != status) {
        stage_drop(stage);
    }
    stage->is_open = (MPATH_OK == status);
    return status;
}

int mca_coll_mpath_stage_close(mca_coll_mpath_stage_t *stage, int rc)
{
    mpath_status_t status = MPATH_OK;

    if (!stage->is_open) {
        return rc;
    }
    if (OMPI_SUCCESS == rc) {
        status = mca_coll_mpath_device_store(stage->recv_parts, &stage->recv_device);
    }
    stage_drop(stage);
    return (MPATH_OK == status) ? rc : mca_coll_mpath_error(status);
}
