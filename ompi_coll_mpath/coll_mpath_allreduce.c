/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI_Allreduce. */
#include "coll_mpath_op.h"
#include "coll_mpath_request.h"
#include "coll_mpath_symmetric.h"

static void allreduce_look(mpath_reduction_t *call, void *user)
{
    (void)call; /* it is the work's */
    mca_coll_mpath_symmetric_look(user);
}

static mpath_status_t allreduce_to_host(mpath_reduction_t *call, int asks, void *user)
{
    mca_coll_mpath_reduction_t *work    = user;
    const mca_coll_mpath_stage_t *stage = work->stage;
    mpath_status_t status               = mca_coll_mpath_symmetric_open(work);
    void *recv                          = stage->recv.buffer;
    const void *send                    = stage->in_place ? recv : stage->send.buffer;

    if ((MPATH_OK == status) && asks) {
        call->buffers = (mpath_symmetric_buffers_t){.send       = send,
                                                    .recv       = recv,
                                                    .ineligible = mca_coll_mpath_not_on_host(send, call->bytes) ||
                                                                  mca_coll_mpath_not_on_host(recv, call->bytes)};
    }
    return status;
}

int mca_coll_mpath_allreduce(const void *sbuf, void *rbuf, mca_coll_mpath_count_t count,
                             struct ompi_datatype_t *datatype, struct ompi_op_t *op, struct ompi_communicator_t *comm,
                             mca_coll_base_module_t *base)
{
    mca_coll_mpath_module_t *module = (mca_coll_mpath_module_t *)base;
    mca_coll_mpath_args_t vector    = {
           .buffer = rbuf, .datatype = datatype, .equal = true, .count = (size_t)count, .combined = true};
    mca_coll_mpath_stage_t stage = {
        .send = vector, .recv = vector, .send_parts = 1, .recv_parts = 1, .in_place = MPI_IN_PLACE == sbuf};
    mca_coll_mpath_reduction_t work = {.module = module,
                                       .stage  = &stage,
                                       .call   = {.collective = MPATH_OPERATION_ALLREDUCE,
                                                  .bytes      = mca_coll_mpath_reduced_bytes((uint64_t)count, datatype),
                                                  .elements   = (uint64_t)count,
                                                  .look       = allreduce_look,
                                                  .to_host    = allreduce_to_host,
                                                  .user       = &work}};
    mca_coll_mpath_op_t combined;
    mpath_reduce_how_t how;
    mpath_status_t status;
    int rc;

    mca_coll_mpath_queue_before_blocking(module);
    if (mca_coll_mpath_symmetric_passes(module, MPATH_OPERATION_ALLREDUCE, work.call.bytes)) {
        return COLL_MPATH_PREVIOUS(module, allreduce, sbuf, rbuf, count, datatype, op, comm);
    }
    stage.send.buffer     = (void *)sbuf;
    work.call.combination = mca_coll_mpath_op_of(op, datatype, &combined);
    work.call.how         = mca_coll_mpath_op_how(op, datatype, &how) ? &how : NULL;
    status                = mca_coll_mpath_symmetric_run(&work);
    rc = (MPATH_DECLINED == status) ? COLL_MPATH_PREVIOUS(module, allreduce, mca_coll_mpath_stage_sbuf(&stage),
                                                          stage.recv.buffer, count, datatype, op, comm)
                                    : mca_coll_mpath_error(status);
    mca_coll_mpath_symmetric_ended(module);
    return mca_coll_mpath_stage_close(&stage, rc);
}
