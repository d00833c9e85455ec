/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI_Alltoallv, and MPI_Alltoall as its equal case. Who carries a call is never decided here: a rank that cannot take
 * part says so inside the agreement, and all ranks hear the same answer.
 */
#include "coll_mpath.h"
#include "coll_mpath_pack.h"

int mca_coll_mpath_error(mpath_status_t status)
{
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

/* One call: both sides in bytes. */
typedef struct alltoallv_work {
    mca_coll_mpath_side_t send, recv;
    mpath_call_t call;
} alltoallv_work_t;

/*
 * Sets work->call up. In place, the receive arguments describe both sides, and the copy is what makes it safe: arriving
 * data must not overwrite what has yet to leave.
 */
static mpath_status_t work_prepare(mca_coll_mpath_module_t *module, const mca_coll_mpath_args_t *send,
                                   const mca_coll_mpath_args_t *recv, bool in_place, alltoallv_work_t *work)
{
    int size         = ompi_comm_size(module->comm);
    uint64_t *arrays = module->arrays;
    uint64_t budget  = mca_coll_mpath_component.pack_bytes;
    mpath_status_t status;

    work->call = (mpath_call_t){.flags        = in_place ? MPATH_CALL_IN_PLACE : 0,
                                .send_bytes   = arrays,
                                .send_offsets = arrays + size,
                                .recv_bytes   = arrays + 2 * size,
                                .recv_offsets = arrays + 3 * size};
    status     = mca_coll_mpath_side_init(send, size, in_place, &budget, arrays, arrays + size, &work->send);
    if (MPATH_OK != status) {
        return status;
    }
    status = mca_coll_mpath_side_init(recv, size, false, &budget, arrays + 2 * size, arrays + 3 * size, &work->recv);
    if (MPATH_OK != status) {
        return status;
    }
    if (mca_coll_mpath_is_device(work->send.buffer) || mca_coll_mpath_is_device(work->recv.buffer)) {
        return MPATH_ERR_UNSUPPORTED;
    }
    status = mca_coll_mpath_side_pack(send, size, &work->send);
    if (MPATH_OK != status) {
        return status;
    }
    work->call.send_buffer = work->send.buffer;
    work->call.recv_buffer = work->recv.buffer;
    return MPATH_OK;
}

/* MPATH_DECLINED on all ranks alike. */
static mpath_status_t alltoallv_run(mca_coll_mpath_module_t *module, const mca_coll_mpath_args_t *send,
                                    const mca_coll_mpath_args_t *recv, bool in_place)
{
    int size              = ompi_comm_size(module->comm);
    alltoallv_work_t work = {0};
    mpath_status_t status;

    status = work_prepare(module, send, recv, in_place, &work);
    if (MPATH_OK != status) {
        mpath_debug("%s: this rank cannot let mpath carry the call (%s)", module->comm->c_name,
                    (MPATH_ERR_NO_MEMORY == status) ? "packed copies beyond coll_mpath_pack_bytes or no memory for them"
                                                    : "buffer in device memory");
        work.call.flags |= MPATH_CALL_INELIGIBLE;
    }
    status = mpath_alltoallv(module->coll, &work.call);
    if (MPATH_OK == status) {
        status = mca_coll_mpath_side_unpack(recv, size, &work.recv);
    }
    mca_coll_mpath_side_free(&work.send);
    mca_coll_mpath_side_free(&work.recv);
    mca_coll_mpath_pvars_add(module);
    if (MPATH_DECLINED == status) {
        mpath_debug("%s: the previous function runs: %s", module->comm->c_name,
                    mpath_coll_declined_because(module->coll));
    } else if (MPATH_OK == status) {
        mpath_debug("%s: mpath carried the call", module->comm->c_name);
    }
    return status;
}

/* Nonzero: libmpath serves the communicator. The first call finds out, together with the other ranks. */
static bool alltoallv_ready(mca_coll_mpath_module_t *module)
{
    if (!module->tried) {
        mca_coll_mpath_team_make(module);
    }
    return NULL != module->coll;
}

int mca_coll_mpath_alltoallv(const void *sbuf, mca_coll_mpath_counts_t scounts, mca_coll_mpath_displs_t sdisps,
                             struct ompi_datatype_t *sdtype, void *rbuf, mca_coll_mpath_counts_t rcounts,
                             mca_coll_mpath_displs_t rdisps, struct ompi_datatype_t *rdtype,
                             struct ompi_communicator_t *comm, mca_coll_base_module_t *base)
{
    mca_coll_mpath_module_t *module = (mca_coll_mpath_module_t *)base;
    bool in_place                   = (MPI_IN_PLACE == sbuf);
    mpath_status_t status           = MPATH_DECLINED;

    if (alltoallv_ready(module)) {
        mca_coll_mpath_args_t recv = {.buffer = rbuf, .datatype = rdtype, .counts = rcounts, .displs = rdisps};
        mca_coll_mpath_args_t send = {.buffer = (void *)sbuf, .datatype = sdtype, .counts = scounts, .displs = sdisps};

        status = alltoallv_run(module, in_place ? &recv : &send, &recv, in_place);
    }
    if (MPATH_DECLINED == status) {
        return module->previous_alltoallv(sbuf, scounts, sdisps, sdtype, rbuf, rcounts, rdisps, rdtype, comm,
                                          module->previous_alltoallv_module);
    }
    return mca_coll_mpath_error(status);
}

int mca_coll_mpath_alltoall(const void *sbuf, mca_coll_mpath_count_t scount, struct ompi_datatype_t *sdtype, void *rbuf,
                            mca_coll_mpath_count_t rcount, struct ompi_datatype_t *rdtype,
                            struct ompi_communicator_t *comm, mca_coll_base_module_t *base)
{
    mca_coll_mpath_module_t *module = (mca_coll_mpath_module_t *)base;
    bool in_place                   = (MPI_IN_PLACE == sbuf);
    mpath_status_t status           = MPATH_DECLINED;

    if (alltoallv_ready(module)) {
        mca_coll_mpath_args_t recv = {.buffer = rbuf, .datatype = rdtype, .equal = true, .count = (size_t)rcount};
        mca_coll_mpath_args_t send = {
            .buffer = (void *)sbuf, .datatype = sdtype, .equal = true, .count = (size_t)scount};

        status = alltoallv_run(module, in_place ? &recv : &send, &recv, in_place);
    }
    if (MPATH_DECLINED == status) {
        return module->previous_alltoall(sbuf, scount, sdtype, rbuf, rcount, rdtype, comm,
                                         module->previous_alltoall_module);
    }
    return mca_coll_mpath_error(status);
}
