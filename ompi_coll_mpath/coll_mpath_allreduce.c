/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI_Allreduce. */
#include "coll_mpath_symmetric.h"
#include "coll_mpath_request.h"
#include "coll_mpath_stage.h"
#include "coll_mpath_symmetric_device.h"

/* Host memory, or copies there. */
static int allreduce_on_host(const void *sbuf, void *rbuf, mca_coll_mpath_count_t count,
                             struct ompi_datatype_t *datatype, struct ompi_op_t *op, struct ompi_communicator_t *comm,
                             mca_coll_base_module_t *base)
{
    mca_coll_mpath_module_t *module = (mca_coll_mpath_module_t *)base;
    int algorithm                   = mca_coll_mpath_component.settings.allreduce_algorithm;
    const void *send                = (MPI_IN_PLACE == sbuf) ? rbuf : sbuf;
    mpath_status_t status           = MPATH_DECLINED;
    mca_coll_mpath_op_t work;
    uint64_t bytes;
    int rc;

    if (mca_coll_mpath_op_fits(op, datatype)) {
        mca_coll_mpath_op_init(op, datatype, &work);
        bytes = mca_coll_mpath_reduced_bytes((uint64_t)count, datatype);
        if (mca_coll_mpath_symmetric_ready(module, algorithm, bytes)) {
            bool foreign = mca_coll_mpath_not_on_host(send, bytes) || mca_coll_mpath_not_on_host(rbuf, bytes);

            status = mca_coll_mpath_symmetric_done(
                module, "MPI_Allreduce",
                mpath_allreduce(module->symmetric, send, rbuf, (uint64_t)count, &work.combination, foreign));
        }
    }
    rc = (MPATH_DECLINED == status) ? COLL_MPATH_PREVIOUS(module, allreduce, sbuf, rbuf, count, datatype, op, comm)
                                    : mca_coll_mpath_error(status);
    mca_coll_mpath_symmetric_ended(module);
    return rc;
}

/* On the GPUs or on the host, by mpath or by the previous function. */
static int allreduce_anywhere(const void *sbuf, void *rbuf, mca_coll_mpath_count_t count,
                              struct ompi_datatype_t *datatype, struct ompi_op_t *op, struct ompi_communicator_t *comm,
                              mca_coll_base_module_t *base)
{
    mca_coll_mpath_module_t *module = (mca_coll_mpath_module_t *)base;
    mca_coll_mpath_args_t vector    = {
           .buffer = rbuf, .datatype = datatype, .equal = true, .count = (size_t)count, .combined = true};
    mca_coll_mpath_stage_t stage = {
        .send = vector, .recv = vector, .send_parts = 1, .recv_parts = 1, .in_place = MPI_IN_PLACE == sbuf};
    int rc;

    stage.send.buffer = (void *)sbuf;
    if (!mca_coll_mpath_symmetric_begin(module, &stage, mca_coll_mpath_allreduce_device(module, &stage, op), &rc)) {
        return rc;
    }
    return mca_coll_mpath_stage_close(&stage, allreduce_on_host(mca_coll_mpath_stage_sbuf(&stage), stage.recv.buffer,
                                                                count, datatype, op, comm, base));
}

int mca_coll_mpath_allreduce(const void *sbuf, void *rbuf, mca_coll_mpath_count_t count,
                             struct ompi_datatype_t *datatype, struct ompi_op_t *op, struct ompi_communicator_t *comm,
                             mca_coll_base_module_t *base)
{
    mca_coll_mpath_module_t *module = (mca_coll_mpath_module_t *)base;

    mca_coll_mpath_queue_before_blocking(module);
    if (mca_coll_mpath_symmetric_passes(module, mca_coll_mpath_component.settings.allreduce_algorithm,
                                        mca_coll_mpath_reduced_bytes((uint64_t)count, datatype))) {
        return COLL_MPATH_PREVIOUS(module, allreduce, sbuf, rbuf, count, datatype, op, comm);
    }
    return allreduce_anywhere(sbuf, rbuf, count, datatype, op, comm, base);
}
