/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI_Reduce_scatter, and MPI_Reduce_scatter_block as its equal case. */
#include "coll_mpath_op.h"
#include "coll_mpath_request.h"
#include "coll_mpath_symmetric.h"

/* A call, of equal or unequal blocks. */
typedef struct reduce_scatter_work {
    mca_coll_mpath_reduction_t super;
    mca_coll_mpath_stage_t stage;
    mca_coll_mpath_args_t blocks; /* how many elements each rank gets */
    mca_coll_mpath_op_t combined;
    mpath_reduce_how_t how;
} reduce_scatter_work_t;

/* There is a team: libmpath is asked. */
static void reduce_scatter_set_blocks(reduce_scatter_work_t *work)
{
    mca_coll_mpath_module_t *module = work->super.module;
    int rank;

    for (rank = 0; rank < ompi_comm_size(module->comm); rank++) {
        module->arrays[rank] = mca_coll_mpath_args_count(&work->blocks, rank);
    }
    work->super.call.blocks = module->arrays;
}

static void reduce_scatter_look(mpath_reduction_t *call, void *user)
{
    reduce_scatter_work_t *work = user;

    (void)call; /* it is the work's */
    reduce_scatter_set_blocks(work);
    mca_coll_mpath_symmetric_look(&work->super);
}

static mpath_status_t reduce_scatter_to_host(mpath_reduction_t *call, int asks, void *user)
{
    reduce_scatter_work_t *work = user;
    mpath_status_t status       = mca_coll_mpath_symmetric_open(&work->super);
    void *recv                  = work->stage.recv.buffer;
    const void *send            = work->stage.in_place ? recv : work->stage.send.buffer;
    uint64_t mine;

    if ((MPATH_OK == status) && asks) {
        reduce_scatter_set_blocks(work);
        mine          = call->blocks[ompi_comm_rank(work->super.module->comm)] * call->combination->element_bytes;
        call->buffers = (mpath_symmetric_buffers_t){.send       = send,
                                                    .recv       = recv,
                                                    .ineligible = mca_coll_mpath_not_on_host(send, call->bytes) ||
                                                                  mca_coll_mpath_not_on_host(recv, mine)};
    }
    return status;
}

static bool reduce_scatter_passes(mca_coll_mpath_module_t *module, size_t total, struct ompi_datatype_t *datatype)
{
    mca_coll_mpath_queue_before_blocking(module);
    return mca_coll_mpath_symmetric_passes(module, MPATH_OPERATION_REDUCE_SCATTER,
                                           mca_coll_mpath_reduced_bytes(total, datatype));
}

/* `total` elements of all blocks, `mine` of this rank's. MPATH_DECLINED: the previous function, on the work's stage. */
static mpath_status_t reduce_scatter_run(mca_coll_mpath_module_t *module, const void *sbuf, void *rbuf,
                                         const mca_coll_mpath_args_t *blocks, struct ompi_op_t *op, size_t total,
                                         size_t mine, reduce_scatter_work_t *work)
{
    struct ompi_datatype_t *datatype = blocks->datatype;
    bool in_place                    = MPI_IN_PLACE == sbuf;

    *work = (reduce_scatter_work_t){
        .super = {.module = module,
                  .stage  = &work->stage,
                  .call   = {.collective = MPATH_OPERATION_REDUCE_SCATTER,
                             .bytes      = mca_coll_mpath_reduced_bytes(total, datatype),
                             .look       = reduce_scatter_look,
                             .to_host    = reduce_scatter_to_host,
                             .user       = work}},
        .stage =
            {.send = {.buffer = (void *)sbuf, .datatype = datatype, .equal = true, .count = total, .combined = true},
             .recv = {.buffer   = rbuf,
                      .datatype = datatype,
                      .equal    = true,
                      .count    = in_place ? total : mine,
                      .combined = true},
             .send_parts = 1,
             .recv_parts = 1,
             .in_place   = in_place},
        .blocks = *blocks};
    work->super.call.combination = mca_coll_mpath_op_of(op, datatype, &work->combined);
    work->super.call.how         = mca_coll_mpath_op_how(op, datatype, &work->how) ? &work->how : NULL;
    return mca_coll_mpath_symmetric_run(&work->super);
}

int mca_coll_mpath_reduce_scatter(const void *sbuf, void *rbuf, mca_coll_mpath_counts_t rcounts,
                                  struct ompi_datatype_t *datatype, struct ompi_op_t *op,
                                  struct ompi_communicator_t *comm, mca_coll_base_module_t *base)
{
    mca_coll_mpath_module_t *module    = (mca_coll_mpath_module_t *)base;
    const mca_coll_mpath_args_t blocks = {.datatype = datatype, .counts = rcounts};
    reduce_scatter_work_t work;
    mpath_status_t status;
    size_t total = 0;
    int rank, rc;

    for (rank = 0; rank < ompi_comm_size(comm); rank++) {
        total += COLL_MPATH_COUNT(rcounts, rank);
    }
    if (reduce_scatter_passes(module, total, datatype)) {
        return COLL_MPATH_PREVIOUS(module, reduce_scatter, sbuf, rbuf, rcounts, datatype, op, comm);
    }
    status = reduce_scatter_run(module, sbuf, rbuf, &blocks, op, total, COLL_MPATH_COUNT(rcounts, ompi_comm_rank(comm)),
                                &work);
    rc     = (MPATH_DECLINED == status)
                 ? COLL_MPATH_PREVIOUS(module, reduce_scatter, mca_coll_mpath_stage_sbuf(&work.stage),
                                       work.stage.recv.buffer, rcounts, datatype, op, comm)
                 : mca_coll_mpath_error(status);
    mca_coll_mpath_symmetric_ended(module);
    return mca_coll_mpath_stage_close(&work.stage, rc);
}

int mca_coll_mpath_reduce_scatter_block(const void *sbuf, void *rbuf, mca_coll_mpath_count_t rcount,
                                        struct ompi_datatype_t *datatype, struct ompi_op_t *op,
                                        struct ompi_communicator_t *comm, mca_coll_base_module_t *base)
{
    mca_coll_mpath_module_t *module    = (mca_coll_mpath_module_t *)base;
    const mca_coll_mpath_args_t blocks = {.datatype = datatype, .equal = true, .count = (size_t)rcount};
    size_t total                       = (size_t)rcount * (size_t)ompi_comm_size(comm);
    reduce_scatter_work_t work;
    mpath_status_t status;
    int rc;

    if (reduce_scatter_passes(module, total, datatype)) {
        return COLL_MPATH_PREVIOUS(module, reduce_scatter_block, sbuf, rbuf, rcount, datatype, op, comm);
    }
    status = reduce_scatter_run(module, sbuf, rbuf, &blocks, op, total, (size_t)rcount, &work);
    rc     = (MPATH_DECLINED == status)
                 ? COLL_MPATH_PREVIOUS(module, reduce_scatter_block, mca_coll_mpath_stage_sbuf(&work.stage),
                                       work.stage.recv.buffer, rcount, datatype, op, comm)
                 : mca_coll_mpath_error(status);
    mca_coll_mpath_symmetric_ended(module);
    return mca_coll_mpath_stage_close(&work.stage, rc);
}
