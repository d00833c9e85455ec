/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI_Alltoallv, and MPI_Alltoall as its equal case. Who carries a call is never decided here: a rank that cannot take
 * part says so inside the agreement, and all ranks hear the same answer.
 */
#include "coll_mpath_device.h"
#include "coll_mpath_pack.h"
#include "coll_mpath_request.h"

/* One call: the user's arguments, where their buffers are, and both sides in bytes. */
typedef struct alltoallv_work {
    mca_coll_mpath_module_t *module;
    mca_coll_mpath_args_t send_args, recv_args; /* in place, both are the receive arguments */
    bool in_place;
    mca_coll_mpath_device_t send_device, recv_device;
    bool uses_gpus; /* this process does: buffers may be in device memory */
    bool passed;    /* the record has it */
    mca_coll_mpath_side_t send, recv;
    mpath_call_t call;
} alltoallv_work_t;

/* Calls for which no device is looked for although their process might use one by now: the other ranks are to hear of it. */
#define LOOKS_ANYWAY_MASK 63u

/*
 * Whether this process uses GPUs. That it does is known for good; where it does not, what it has loaded is looked at, unless the
 * buffers cannot be a device's whatever that is.
 */
static bool uses_gpus(mca_coll_mpath_module_t *module, const mca_coll_mpath_args_t *send,
                      const mca_coll_mpath_args_t *recv)
{
    int size = mca_coll_mpath_parts(module->comm);
    /* Else copies into registered memory, which may be on the heap, are waited for. */
    bool waits_for_none = MPATH_SYNC_NONE == mca_coll_mpath_component.settings.sync;

    if (waits_for_none && !mpath_gpu_was_found() && (0 != (++module->looks & LOOKS_ANYWAY_MASK)) &&
        mca_coll_mpath_device_is_out(recv, size) &&
        ((MPI_IN_PLACE == send->buffer) || mca_coll_mpath_device_is_out(send, size))) {
        return false;
    }
    return mpath_gpu_available();
}

/* All but what is set before it is read: short calls notice what is cleared. */
static void work_init(alltoallv_work_t *work, mca_coll_mpath_module_t *module, const mca_coll_mpath_args_t *send,
                      const mca_coll_mpath_args_t *recv, bool has_gpus)
{
    work->module    = module;
    work->in_place  = MPI_IN_PLACE == send->buffer;
    work->send_args = work->in_place ? *recv : *send;
    work->recv_args = *recv;
    work->uses_gpus = has_gpus;
    mca_coll_mpath_device_none(&work->send_device);
    mca_coll_mpath_device_none(&work->recv_device);
    work->send.copy = work->recv.copy = NULL;
}

static bool device_may_stay(const mca_coll_mpath_module_t *module, const alltoallv_work_t *work,
                            const mca_coll_mpath_device_t *device)
{
    return (NULL != module->coll) && !work->in_place && device->contiguous && !mca_coll_mpath_device_in_parts(device) &&
           mpath_coll_takes_device(module->coll);
}

/* Gives a buffer that only devices can read a copy on the host, unless mpath takes it as it is. */
static mpath_status_t work_staging(mca_coll_mpath_module_t *module, alltoallv_work_t *work, bool all)
{
    int size              = mca_coll_mpath_parts(module->comm);
    mpath_status_t status = MPATH_OK;

    if (!work->in_place && (all || !device_may_stay(module, work, &work->send_device))) {
        status = mca_coll_mpath_device_staging(&work->send_args, size, true, &work->send_device);
    }
    if ((MPATH_OK == status) && (all || !device_may_stay(module, work, &work->recv_device))) {
        status = mca_coll_mpath_device_staging(&work->recv_args, size, work->in_place, &work->recv_device);
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
    uint64_t budget  = mca_coll_mpath_component.settings.pack_bytes;
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

/* The call as libmpath takes it; a rank that cannot take part says so in it. */
static void work_describe(alltoallv_work_t *work)
{
    mca_coll_mpath_module_t *module = work->module;
    mpath_status_t status           = work_prepare(module, work);

    if (MPATH_OK != status) {
        mpath_debug("%s: this rank cannot let mpath carry the call (%s)", module->comm->c_name,
                    (MPATH_ERR_NO_MEMORY == status)
                        ? "packed copies beyond pack_bytes of coll_mpath_internals or no memory for them"
                        : "buffer in device memory");
        work->call.flags |= MPATH_CALL_INELIGIBLE;
    }
}

/*
 * Copies of everything that is a device's, for the call under way. Managed memory, too: the host could read it, but libmpath
 * would take it for memory of a device once more.
 */
static mpath_status_t work_to_host(mpath_call_t *call, void *user)
{
    alltoallv_work_t *work = user;
    mpath_status_t status;

    (void)call; /* it is work->call */
    mca_coll_mpath_side_free(&work->send);
    mca_coll_mpath_side_free(&work->recv);
    if (MPATH_MEMORY_MANAGED == work->send_device.memory.kind) {
        work->send_device.memory.kind = MPATH_MEMORY_DEVICE;
    }
    if (MPATH_MEMORY_MANAGED == work->recv_device.memory.kind) {
        work->recv_device.memory.kind = MPATH_MEMORY_DEVICE;
    }
    status = work_staging(work->module, work, true);
    if (MPATH_OK == status) {
        work_describe(work);
    }
    return status;
}

/* MPATH_DECLINED on all ranks alike; work->send_args and recv_args may lead to copies on the host then. */
static mpath_status_t work_run(mca_coll_mpath_module_t *module, alltoallv_work_t *work)
{
    mpath_status_t status;

    work_describe(work);
    work->call.to_host = work_to_host;
    work->call.user    = work;
    status             = mpath_alltoallv(module->coll, &work->call);
    if (MPATH_OK == status) {
        status = mca_coll_mpath_side_unpack(&work->recv_args, mca_coll_mpath_parts(module->comm), &work->recv);
    }
    mca_coll_mpath_side_free(&work->send);
    mca_coll_mpath_side_free(&work->recv);
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

bool mca_coll_mpath_alltoallv_passes(mca_coll_mpath_module_t *module, uint64_t equal_bytes)
{
    if ((NULL == module->coll) || (0 == mpath_coll_passes(module->coll, equal_bytes))) {
        return false;
    }
    mca_coll_mpath_record_end(module, MPATH_OPERATION_ALLTOALLV, MPATH_DECLINED,
                              mpath_coll_declined_because(module->coll));
    return true;
}

/* What each rank receives from each other one in an MPI_Alltoall; 0: it is none. */
static uint64_t equal_bytes(const mca_coll_mpath_args_t *recv)
{
    size_t bytes = 0;

    if (recv->equal) {
        (void)ompi_datatype_type_size(recv->datatype, &bytes);
    }
    return (uint64_t)recv->count * (uint64_t)bytes;
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
    work->passed = mca_coll_mpath_alltoallv_passes(module, equal_bytes(&work->recv_args));
    asks         = (NULL != module->coll) && !work->passed;
    status       = work_look(module, work);
    if ((MPATH_OK == status) && asks) {
        status = work_staging(module, work, false);
    }
    if (MPATH_OK != status) {
        return work_broken(module, status);
    }
    status = asks ? work_run(module, work) : MPATH_DECLINED;
    if ((MPATH_DECLINED == status) && !mpath_fiber_is_on() && !work_is_known(work)) {
        mpath_status_t staged = work_staging(module, work, true);

        if (MPATH_OK != staged) {
            return work_broken(module, staged);
        }
    }
    return status;
}

/* The same where no buffer can be in device memory: the previous function runs on the user's arguments. */
static bool passes_at_once(mca_coll_mpath_module_t *module, const mca_coll_mpath_args_t *recv, bool has_gpus)
{
    return !has_gpus && mca_coll_mpath_alltoallv_passes(module, equal_bytes(recv));
}

/* A blocking call is over, for the trials of short ones. */
static void ended(mca_coll_mpath_module_t *module)
{
    if ((NULL != module->coll) && !mpath_fiber_is_on()) {
        mpath_coll_ended(module->coll);
    }
}

/* The previous function carries it. */
static void work_left(mca_coll_mpath_module_t *module, alltoallv_work_t *work)
{
    if (!work->passed) {
        mca_coll_mpath_record_end(module, MPATH_OPERATION_ALLTOALLV, MPATH_DECLINED,
                                  (NULL != module->coll) ? mpath_coll_declined_because(module->coll)
                                                         : MPATH_WHY_STAYS_OUT);
        work->passed = true;
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
    if (work->uses_gpus) {
        mca_coll_mpath_device_close(&work->send_device);
        mca_coll_mpath_device_close(&work->recv_device);
    }
    mpath_record_over(module->record);
    if (!work->passed || mpath_status_is_error(status)) {
        mca_coll_mpath_record_end(module, MPATH_OPERATION_ALLTOALLV, status, NULL);
    }
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
    bool has_gpus                   = uses_gpus(module, &send, &recv); /* asked once */
    int previous                    = MPI_SUCCESS;
    alltoallv_work_t work;
    mpath_status_t status;

    mca_coll_mpath_queue_before_blocking(module);
    if (passes_at_once(module, &recv, has_gpus)) {
        previous = COLL_MPATH_PREVIOUS(module, alltoallv, sbuf, scounts, sdisps, sdtype, rbuf, rcounts, rdisps, rdtype,
                                       comm);
        ended(module);
        return previous;
    }
    work_init(&work, module, &send, &recv, has_gpus);
    status = work_begin(module, &work);
    if (MPATH_DECLINED == status) {
        work_left(module, &work);
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
    bool has_gpus              = uses_gpus(module, &send, &recv);
    int previous               = MPI_SUCCESS;
    alltoallv_work_t work;
    mpath_status_t status;

    mca_coll_mpath_queue_before_blocking(module);
    if (passes_at_once(module, &recv, has_gpus)) {
        previous = COLL_MPATH_PREVIOUS(module, alltoall, sbuf, scount, sdtype, rbuf, rcount, rdtype, comm);
        ended(module);
        return previous;
    }
    work_init(&work, module, &send, &recv, has_gpus);
    status = work_begin(module, &work);
    if (MPATH_DECLINED == status) {
        work_left(module, &work);
        previous = COLL_MPATH_PREVIOUS(module, alltoall, work.in_place ? MPI_IN_PLACE : work.send_args.buffer, scount,
                                       work.send_args.datatype, work.recv_args.buffer, rcount, work.recv_args.datatype,
                                       comm);
    }
    return work_end(module, &work, status, previous);
}
