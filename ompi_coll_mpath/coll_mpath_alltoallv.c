/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI_Alltoallv, and MPI_Alltoall as its equal case. Who carries a call is never decided here: a rank that cannot take
 * part says so inside the agreement, and all ranks hear the same answer.
 */
#include "coll_mpath_device.h"
#include "coll_mpath_help.h"
#include "coll_mpath_pack.h"
#include "coll_mpath_request.h"

/* The log has named the cause; a text says what to do. */
static void error_tell(mpath_status_t status)
{
    if (MPATH_ERR_TIMED_OUT == status) {
        (void)mca_coll_mpath_help_show("deadline", mpath_status_string(status));
    } else if (MPATH_ERR_UNREACHABLE == status) {
        (void)mca_coll_mpath_help_show("peer-lost", mpath_status_string(status));
    } else if (MPATH_ERR_NO_MEMORY == status) {
        (void)mca_coll_mpath_help_show("no-memory", mpath_status_string(status));
    }
}

int mca_coll_mpath_error(mpath_status_t status)
{
    error_tell(status);
    switch (status) {
    case MPATH_OK:
        return OMPI_SUCCESS;
    case MPATH_ERR_TRUNCATED:
        return MPI_ERR_TRUNCATE;
    case MPATH_ERR_NO_MEMORY:
        return OMPI_ERR_OUT_OF_RESOURCE;
    case MPATH_ERR_PARAM:
        return MPI_ERR_ARG;
    default:
        return MPI_ERR_OTHER;
    }
}

/* One call: the user's arguments, where their buffers are, and both sides in bytes. */
typedef struct alltoallv_work {
    mca_coll_mpath_args_t send_args, recv_args; /* in place, both are the receive arguments */
    bool in_place;
    mca_coll_mpath_device_t send_device, recv_device;
    bool uses_gpus; /* this process does: buffers may be in device memory */
    mca_coll_mpath_side_t send, recv;
    mpath_call_t call;
} alltoallv_work_t;

static alltoallv_work_t work_of(const mca_coll_mpath_args_t *send, const mca_coll_mpath_args_t *recv)
{
    bool in_place = MPI_IN_PLACE == send->buffer;

    return (alltoallv_work_t){.in_place = in_place, .send_args = in_place ? *recv : *send, .recv_args = *recv};
}

static bool device_may_stay(const mca_coll_mpath_module_t *module, const alltoallv_work_t *work,
                            const mca_coll_mpath_device_t *device)
{
    return (NULL != module->coll) && !work->in_place && device->contiguous && !mca_coll_mpath_device_in_parts(device) &&
           mpath_coll_takes_device(module->coll);
}

/* Gives a buffer that only devices can read a copy on the host, unless mpath takes it as it is. */
static mpath_status_t work_shadow(mca_coll_mpath_module_t *module, alltoallv_work_t *work, bool all)
{
    int size              = mca_coll_mpath_parts(module->comm);
    mpath_status_t status = MPATH_OK;

    if (!work->in_place && (all || !device_may_stay(module, work, &work->send_device))) {
        status = mca_coll_mpath_device_shadow(&work->send_args, size, true, &work->send_device);
    }
    if ((MPATH_OK == status) && (all || !device_may_stay(module, work, &work->recv_device))) {
        status = mca_coll_mpath_device_shadow(&work->recv_args, size, work->in_place, &work->recv_device);
    }
    if (work->in_place) {
        work->send_args = work->recv_args;
    }
    return status;
}

/* Finds out where the buffers lie: on the host, unless it says otherwise. In place the receive side stands for both. */
static mpath_status_t work_look(mca_coll_mpath_module_t *module, alltoallv_work_t *work)
{
    int size = mca_coll_mpath_parts(module->comm);
    mpath_status_t status;

    work->uses_gpus = mpath_gpu_available();
    if (!work->uses_gpus) {
        return MPATH_OK;
    }
    status = mca_coll_mpath_device_look(&work->recv_args, size, &work->recv_device);
    if ((MPATH_OK == status) && !work->in_place) {
        status = mca_coll_mpath_device_look(&work->send_args, size, &work->send_device);
    } else {
        work->send_device.memory = (mpath_memory_t){.kind = MPATH_MEMORY_HOST, .device = -1};
    }
    if ((MPATH_OK == status) && (MPATH_SYNC_DEVICE == mca_coll_mpath_component.settings.sync)) {
        status = mca_coll_mpath_device_sync(work->in_place ? NULL : &work->send_device, &work->recv_device);
    }
    return status;
}

/* Gives libmpath a side's device memory as it is. False: the side has none that it would take. */
static bool work_give(const mca_coll_mpath_module_t *module, alltoallv_work_t *work, const mca_coll_mpath_side_t *side,
                      const mca_coll_mpath_device_t *device, const mpath_memory_t **memory_p)
{
    if (!device_may_stay(module, work, device) || !mca_coll_mpath_device_stays(device)) {
        return false;
    }
    *memory_p = &device->memory;
    if (!mca_coll_mpath_is_device(side->buffer)) {
        work->call.flags |= MPATH_CALL_FOREIGN;
    }
    return true;
}

/*
 * Sets work->call up. In place, the receive arguments describe both sides, and the copy is what makes it safe: arriving
 * data must not overwrite what has yet to leave.
 */
static mpath_status_t work_prepare(mca_coll_mpath_module_t *module, alltoallv_work_t *work)
{
    int size         = mca_coll_mpath_parts(module->comm);
    uint64_t *arrays = module->arrays;
    uint64_t budget  = mca_coll_mpath_component.pack_bytes;
    mpath_status_t status;

    work->call = (mpath_call_t){.flags = (work->in_place ? MPATH_CALL_IN_PLACE : 0) |
                                         (work->uses_gpus ? MPATH_CALL_GPUS : 0),
                                .send_bytes   = arrays,
                                .send_offsets = arrays + size,
                                .recv_bytes   = arrays + 2 * size,
                                .recv_offsets = arrays + 3 * size};
    status     = mca_coll_mpath_side_init(&work->send_args, size, work->in_place, &budget, arrays, arrays + size,
                                          &work->send);
    if (MPATH_OK != status) {
        return status;
    }
    status = mca_coll_mpath_side_init(&work->recv_args, size, false, &budget, arrays + 2 * size, arrays + 3 * size,
                                      &work->recv);
    if (MPATH_OK != status) {
        return status;
    }
    if ((!work_give(module, work, &work->send, &work->send_device, &work->call.send_memory) &&
         mca_coll_mpath_is_device(work->send.buffer)) ||
        (!work_give(module, work, &work->recv, &work->recv_device, &work->call.recv_memory) &&
         mca_coll_mpath_is_device(work->recv.buffer))) {
        return MPATH_ERR_UNSUPPORTED;
    }
    status = mca_coll_mpath_side_pack(&work->send_args, size, &work->send);
    if (MPATH_OK != status) {
        return status;
    }
    work->call.send_buffer = work->send.buffer;
    work->call.recv_buffer = work->recv.buffer;
    return MPATH_OK;
}

/* MPATH_DECLINED on all ranks alike. */
static mpath_status_t work_run(mca_coll_mpath_module_t *module, alltoallv_work_t *work)
{
    int size = mca_coll_mpath_parts(module->comm);
    mpath_status_t status;

    status = work_prepare(module, work);
    if (MPATH_OK != status) {
        mpath_debug("%s: this rank cannot let mpath carry the call (%s)", module->comm->c_name,
                    (MPATH_ERR_NO_MEMORY == status) ? "packed copies beyond coll_mpath_pack_bytes or no memory for them"
                                                    : "buffer in device memory");
        work->call.flags |= MPATH_CALL_INELIGIBLE;
    }
    status = mpath_alltoallv(module->coll, &work->call);
    if (MPATH_OK == status) {
        status = mca_coll_mpath_side_unpack(&work->recv_args, size, &work->recv);
    }
    mca_coll_mpath_side_free(&work->send);
    mca_coll_mpath_side_free(&work->recv);
    mca_coll_mpath_pvars_add(module);
    if (MPATH_DECLINED == status) {
        mpath_debug("%s: the previous function runs: %s", module->comm->c_name,
                    mpath_coll_declined_because(module->coll));
    } else if (MPATH_OK == status) {
        mpath_debug("%s: mpath carried the call", module->comm->c_name);
    }
    return status;
}

/* This rank cannot go on, and the others would wait for it. */
static mpath_status_t work_broken(mca_coll_mpath_module_t *module, mpath_status_t status)
{
    if (NULL != module->team) {
        mpath_team_break(module->team, status);
    }
    return status;
}

bool mca_coll_mpath_alltoallv_passes(mca_coll_mpath_module_t *module)
{
    if ((NULL == module->coll) || (0 == mpath_coll_passes(module->coll))) {
        return false;
    }
    mca_coll_mpath_pvars_add_passed(module);
    mpath_debug("%s: the previous function runs: %s", module->comm->c_name, mpath_coll_declined_because(module->coll));
    return true;
}

/*
 * Copies of everything that is a device's. Managed memory, too: the host could read it, but libmpath would take it for
 * memory of a device once more.
 */
static mpath_status_t work_to_host(mca_coll_mpath_module_t *module, alltoallv_work_t *work)
{
    if (MPATH_MEMORY_MANAGED == work->send_device.memory.kind) {
        work->send_device.memory.kind = MPATH_MEMORY_DEVICE;
    }
    if (MPATH_MEMORY_MANAGED == work->recv_device.memory.kind) {
        work->recv_device.memory.kind = MPATH_MEMORY_DEVICE;
    }
    return work_shadow(module, work, true);
}

/* This Open MPI knows how to handle the buffers, as far as each is one piece of memory. */
static bool work_is_known(const alltoallv_work_t *work)
{
    return !mca_coll_mpath_device_in_parts(&work->send_device) && !mca_coll_mpath_device_in_parts(&work->recv_device) &&
           (mca_coll_mpath_is_device(work->recv_args.buffer) || mca_coll_mpath_is_device(work->send_args.buffer));
}

/*
 * Everything but the previous function, which runs on work->send_args and recv_args when the result is MPATH_DECLINED:
 * buffers that the host can read, unless this Open MPI knows how to handle them.
 */
static mpath_status_t work_begin(mca_coll_mpath_module_t *module, alltoallv_work_t *work)
{
    mpath_status_t status;
    bool asks;

    if (!module->tried) {
        mca_coll_mpath_team_make(module); /* together with the other ranks */
    }
    asks   = (NULL != module->coll) && !mca_coll_mpath_alltoallv_passes(module);
    status = work_look(module, work);
    if ((MPATH_OK == status) && asks) {
        status = work_shadow(module, work, false);
    }
    if (MPATH_OK != status) {
        return work_broken(module, status);
    }
    status = asks ? work_run(module, work) : MPATH_DECLINED;
    if ((MPATH_DECLINED == status) && asks && mpath_coll_wants_host(module->coll)) {
        status = work_to_host(module, work); /* on all ranks alike: once more, with copies on the host */
        if (MPATH_OK != status) {
            return work_broken(module, status);
        }
        status = work_run(module, work);
    }
    if ((MPATH_DECLINED == status) && !mpath_fiber_is_on() && !work_is_known(work)) {
        mpath_status_t shadowed = work_shadow(module, work, true);

        if (MPATH_OK != shadowed) {
            return work_broken(module, shadowed);
        }
    }
    return status;
}

/* The same where no buffer can be in device memory: the previous function runs on the user's arguments. */
static bool passes_at_once(mca_coll_mpath_module_t *module)
{
    return !mpath_gpu_available() && mca_coll_mpath_alltoallv_passes(module);
}

/* A blocking call is over, for the trials of short ones. */
static void ended(mca_coll_mpath_module_t *module)
{
    if ((NULL != module->coll) && !mpath_fiber_is_on()) {
        mpath_coll_ended(module->coll);
    }
}

/* `previous`: what the previous function has returned. */
static int work_end(mca_coll_mpath_module_t *module, alltoallv_work_t *work, mpath_status_t status, int previous)
{
    int size = mca_coll_mpath_parts(module->comm);

    if ((MPATH_OK == status) || ((MPATH_DECLINED == status) && (MPI_SUCCESS == previous))) {
        mpath_status_t stored = mca_coll_mpath_device_store(size, &work->recv_device);

        if (MPATH_OK != stored) {
            status = stored;
        }
    }
    mca_coll_mpath_device_close(&work->send_device);
    mca_coll_mpath_device_close(&work->recv_device);
    ended(module);
    return (MPATH_DECLINED == status) ? previous : mca_coll_mpath_error(status);
}

int mca_coll_mpath_alltoallv(const void *sbuf, mca_coll_mpath_counts_t scounts, mca_coll_mpath_displs_t sdisps,
                             struct ompi_datatype_t *sdtype, void *rbuf, mca_coll_mpath_counts_t rcounts,
                             mca_coll_mpath_displs_t rdisps, struct ompi_datatype_t *rdtype,
                             struct ompi_communicator_t *comm, mca_coll_base_module_t *base)
{
    mca_coll_mpath_module_t *module = (mca_coll_mpath_module_t *)base;
    mca_coll_mpath_args_t send      = {.buffer = (void *)sbuf, .datatype = sdtype, .counts = scounts, .displs = sdisps};
    mca_coll_mpath_args_t recv      = {.buffer = rbuf, .datatype = rdtype, .counts = rcounts, .displs = rdisps};
    int previous                    = MPI_SUCCESS;
    alltoallv_work_t work;
    mpath_status_t status;

    mca_coll_mpath_queue_before_blocking(module);
    if (passes_at_once(module)) {
        previous = COLL_MPATH_PREVIOUS(module, alltoallv, sbuf, scounts, sdisps, sdtype, rbuf, rcounts, rdisps, rdtype,
                                       comm);
        ended(module);
        return previous;
    }
    work   = work_of(&send, &recv);
    status = work_begin(module, &work);
    if (MPATH_DECLINED == status) {
        previous = COLL_MPATH_PREVIOUS(module, alltoallv, work.in_place ? MPI_IN_PLACE : work.send_args.buffer, scounts,
                                       work.send_args.displs, work.send_args.datatype, work.recv_args.buffer, rcounts,
                                       work.recv_args.displs, work.recv_args.datatype, comm);
    }
    return work_end(module, &work, status, previous);
}

int mca_coll_mpath_alltoall(const void *sbuf, mca_coll_mpath_count_t scount, struct ompi_datatype_t *sdtype, void *rbuf,
                            mca_coll_mpath_count_t rcount, struct ompi_datatype_t *rdtype,
                            struct ompi_communicator_t *comm, mca_coll_base_module_t *base)
{
    mca_coll_mpath_module_t *module = (mca_coll_mpath_module_t *)base;
    mca_coll_mpath_args_t send = {.buffer = (void *)sbuf, .datatype = sdtype, .equal = true, .count = (size_t)scount};
    mca_coll_mpath_args_t recv = {.buffer = rbuf, .datatype = rdtype, .equal = true, .count = (size_t)rcount};
    int previous               = MPI_SUCCESS;
    alltoallv_work_t work;
    mpath_status_t status;

    mca_coll_mpath_queue_before_blocking(module);
    if (passes_at_once(module)) {
        previous = COLL_MPATH_PREVIOUS(module, alltoall, sbuf, scount, sdtype, rbuf, rcount, rdtype, comm);
        ended(module);
        return previous;
    }
    work   = work_of(&send, &recv);
    status = work_begin(module, &work);
    if (MPATH_DECLINED == status) {
        previous = COLL_MPATH_PREVIOUS(module, alltoall, work.in_place ? MPI_IN_PLACE : work.send_args.buffer, scount,
                                       work.send_args.datatype, work.recv_args.buffer, rcount, work.recv_args.datatype,
                                       comm);
    }
    return work_end(module, &work, status, previous);
}
