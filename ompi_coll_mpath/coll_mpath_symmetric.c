/* SPDX-License-Identifier: BSD-3-Clause */
/* See coll_mpath_symmetric.h. */
#include "coll_mpath_symmetric.h"

#include "device/memory.h"

#include "ompi/group/group.h"

#include <pthread.h>
#include <stdlib.h>

/* -- what libmpath asks of the communicator -- */

static mpath_tuning_t tuning;

static void tuning_read(void)
{
    mpath_tuning_read(&mca_coll_mpath_component.settings, 0, &tuning);
}

static int symmetric_team(void *user, int makes, mpath_symmetric_t **symmetric_p)
{
    mca_coll_mpath_module_t *module = user;

    if (makes && !module->tried) {
        mca_coll_mpath_team_make(module);
    }
    *symmetric_p = module->symmetric;
    return module->tried;
}

static int symmetric_all(void *user, int mine, int here)
{
    return here ? mca_coll_mpath_all_here(user, 0 != mine) : mca_coll_mpath_all(user, 0 != mine);
}

static int symmetric_same(void *user, uint64_t key)
{
    mca_coll_mpath_module_t *module = user;
    int size                        = ompi_comm_size(module->comm), rank;
    uint64_t *all                   = calloc((size_t)size, sizeof(*all));
    bool same                       = MPATH_OK == mca_coll_mpath_gather(module, key, all);

    for (rank = 0; same && (rank < size); rank++) {
        same = key == all[rank];
    }
    free(all);
    if (!same && (MPATH_OK == module->parted)) {
        mpath_warn("%s: parameters of mpath differ between the ranks; the previous functions serve MPI_Allreduce, "
                   "MPI_Reduce_scatter and MPI_Allgather there",
                   module->comm->c_name);
    }
    return same;
}

static int symmetric_knows_devices(void *user)
{
    (void)user;
    return mca_coll_mpath_knows_devices();
}

static const char *symmetric_name(void *user)
{
    const mca_coll_mpath_module_t *module = user;

    return module->comm->c_name;
}

void mca_coll_mpath_symmetric_enable(mca_coll_mpath_module_t *module)
{
    static const mpath_entry_ops_t ops = {.team          = symmetric_team,
                                          .all           = symmetric_all,
                                          .same          = symmetric_same,
                                          .knows_devices = symmetric_knows_devices,
                                          .name          = symmetric_name};
    static pthread_once_t once         = PTHREAD_ONCE_INIT;
    struct ompi_communicator_t *comm   = module->comm;
    bool asks                          = !OMPI_COMM_IS_INTER(comm) && (NULL != module->previous_allreduce);

    (void)pthread_once(&once, tuning_read);
    mpath_entry_init(&module->entry, &mca_coll_mpath_component.settings, &tuning, asks ? &ops : NULL, module,
                     ompi_comm_size(comm), ompi_comm_rank(comm), ompi_group_have_remote_peers(comm->c_local_group));
}

/* -- where the data lies -- */

/* Device memory that mpath knows nothing of, though Open MPI does. */
static bool device_is_foreign(const mca_coll_mpath_device_t *device, const void *buffer)
{
    return mpath_memory_on_host(device->memory.kind) && mca_coll_mpath_is_device(buffer);
}

/* Memory in parts is not for the GPUs: it gets a copy later. */
static bool device_drop_parts(mca_coll_mpath_device_t *device)
{
    if (!mca_coll_mpath_device_in_parts(device)) {
        return false;
    }
    mca_coll_mpath_device_close(device);
    device->memory.kind = MPATH_MEMORY_HOST;
    return true;
}

/* Where both sides lie, and that nobody works on them any more if the user wants that. */
static mpath_status_t device_look_both(mca_coll_mpath_stage_t *sides)
{
    mpath_status_t status = mca_coll_mpath_device_look(&sides->recv, sides->recv_parts, &sides->recv_device);

    if ((MPATH_OK == status) && !sides->in_place) {
        status = mca_coll_mpath_device_look(&sides->send, sides->send_parts, &sides->send_device);
    }
    if ((MPATH_OK == status) && (MPATH_SYNC_DEVICE == mca_coll_mpath_component.settings.sync)) {
        status = mca_coll_mpath_device_sync(sides->in_place ? NULL : &sides->send_device, &sides->recv_device);
    }
    return status;
}

void mca_coll_mpath_symmetric_look(mca_coll_mpath_reduction_t *work)
{
    mpath_symmetric_buffers_t *buffers = &work->call.buffers;
    mca_coll_mpath_stage_t *sides      = &work->looked;
    mpath_status_t status;
    bool in_parts;

    *sides   = *work->stage;
    status   = device_look_both(sides);
    in_parts = device_drop_parts(&sides->recv_device);

    if (sides->in_place) {
        sides->send_device = sides->recv_device;
    } else {
        in_parts |= device_drop_parts(&sides->send_device);
    }
    *buffers            = (mpath_symmetric_buffers_t){.send = sides->in_place ? sides->recv.buffer : sides->send.buffer,
                                                      .recv = sides->recv.buffer};
    buffers->ineligible = (MPATH_OK != status) || in_parts || device_is_foreign(&sides->recv_device, buffers->recv) ||
                          device_is_foreign(&sides->send_device, buffers->send);
    if (MPATH_OK != status) {
        mpath_team_break(work->module->team, status);
    }
    if (!mpath_memory_on_host(sides->send_device.memory.kind)) {
        buffers->send_memory = &sides->send_device.memory;
    }
    if (!mpath_memory_on_host(sides->recv_device.memory.kind)) {
        buffers->recv_memory = &sides->recv_device.memory;
    }
}

bool mca_coll_mpath_not_on_host(const void *buffer, size_t bytes)
{
    mpath_memory_t memory;

    if ((NULL == buffer) || (0 == bytes)) {
        return false;
    }
    return (MPATH_OK != mpath_memory_classify(buffer, bytes, &memory)) || !mpath_memory_on_host(memory.kind) ||
           mca_coll_mpath_is_device(buffer);
}

/* -- the calls -- */

bool mca_coll_mpath_symmetric_passes(mca_coll_mpath_module_t *module, mpath_operation_t collective, uint64_t bytes)
{
    if ((MPATH_OK != module->parted) || !mpath_entry_passes(&module->entry, collective, bytes)) {
        return false;
    }
    mca_coll_mpath_record_end(module, collective, MPATH_DECLINED, module->entry.why);
    return true;
}

mpath_status_t mca_coll_mpath_symmetric_open(mca_coll_mpath_reduction_t *work)
{
    mpath_status_t status = mca_coll_mpath_stage_open(work->stage);

    return (MPATH_DECLINED == status) ? MPATH_OK : status; /* the latter: the host can read the buffers as they are */
}

mpath_status_t mca_coll_mpath_symmetric_run(mca_coll_mpath_reduction_t *work)
{
    mpath_status_t status = mpath_entry_run(&work->module->entry, &work->call);

    mca_coll_mpath_pvars_add_symmetric(work->module);
    mca_coll_mpath_record_end(work->module, work->call.collective, status, work->module->entry.why);
    return status;
}

void mca_coll_mpath_symmetric_ended(mca_coll_mpath_module_t *module)
{
    mpath_record_over(module->record);
    mpath_entry_ended(&module->entry);
}
