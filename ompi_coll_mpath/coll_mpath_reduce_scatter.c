/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI_Reduce_scatter, and MPI_Reduce_scatter_block as its equal case. */
#include "coll_mpath_symmetric.h"
#include "coll_mpath_request.h"
#include "coll_mpath_stage.h"
#include "coll_mpath_symmetric_device.h"

/* module->arrays holds the elements of each rank. */
static mpath_status_t reduce_scatter_run(mca_coll_mpath_module_t *module, const void *send, void *recv, uint64_t total,
                                         const mca_coll_mpath_op_t *work)
{
    const uint64_t *elements = module->arrays;
    uint64_t mine            = elements[ompi_comm_rank(module->comm)];
    uint64_t element_bytes   = work->combination.element_bytes;
    bool foreign             = mca_coll_mpath_not_on_host(send, total * element_bytes) ||
                   mca_coll_mpath_not_on_host(recv, mine * element_bytes);

    return mca_coll_mpath_symmetric_done(
        module, "MPI_Reduce_scatter",
        mpath_reduce_scatter(module->symmetric, send, recv, elements, &work->combination, foreign));
}

/* Host memory, or copies there. */
static int reduce_scatter_on_host(const void *sbuf, void *rbuf, mca_coll_mpath_counts_t rcounts,
                                  struct ompi_datatype_t *datatype, struct ompi_op_t *op,
                                  struct ompi_communicator_t *comm, mca_coll_base_module_t *base)
{
    mca_coll_mpath_module_t *module = (mca_coll_mpath_module_t *)base;
    int algorithm                   = mca_coll_mpath_component.settings.reduce_scatter_algorithm;
    int size                        = ompi_comm_size(comm), rank;
    mpath_status_t status           = MPATH_DECLINED;
    mca_coll_mpath_op_t work;
    uint64_t total = 0;
    int rc;

    if (mca_coll_mpath_op_fits(op, datatype)) {
        mca_coll_mpath_op_init(op, datatype, &work);
        for (rank = 0; rank < size; rank++) {
            total += COLL_MPATH_COUNT(rcounts, rank);
        }
        if (mca_coll_mpath_symmetric_ready(module, algorithm, mca_coll_mpath_reduced_bytes(total, datatype))) {
            for (rank = 0; rank < size; rank++) {
                module->arrays[rank] = COLL_MPATH_COUNT(rcounts, rank);
            }
            status = reduce_scatter_run(module, (MPI_IN_PLACE == sbuf) ? rbuf : sbuf, rbuf, total, &work);
        }
    }
    rc = (MPATH_DECLINED == status)
             ? COLL_MPATH_PREVIOUS(module, reduce_scatter, sbuf, rbuf, rcounts, datatype, op, comm)
             : mca_coll_mpath_error(status);
    mca_coll_mpath_symmetric_ended(module);
    return rc;
}

static bool reduce_scatter_passes(mca_coll_mpath_module_t *module, size_t total, struct ompi_datatype_t *datatype)
{
    return mca_coll_mpath_symmetric_passes(module, mca_coll_mpath_component.settings.reduce_scatter_algorithm,
                                           mca_coll_mpath_reduced_bytes(total, datatype));
}

/* Both sides, as far as they are the same for equal and unequal blocks. */
static mca_coll_mpath_stage_t reduce_scatter_sides(const void *sbuf, void *rbuf, struct ompi_datatype_t *datatype,
                                                   size_t total, size_t mine)
{
    bool in_place = MPI_IN_PLACE == sbuf;

    return (mca_coll_mpath_stage_t){
        .send = {.buffer = (void *)sbuf, .datatype = datatype, .equal = true, .count = total, .combined = true},
        .recv =
            {.buffer = rbuf, .datatype = datatype, .equal = true, .count = in_place ? total : mine, .combined = true},
        .send_parts = 1,
        .recv_parts = 1,
        .in_place   = in_place};
}

int mca_coll_mpath_reduce_scatter(const void *sbuf, void *rbuf, mca_coll_mpath_counts_t rcounts,
                                  struct ompi_datatype_t *datatype, struct ompi_op_t *op,
                                  struct ompi_communicator_t *comm, mca_coll_base_module_t *base)
{
    mca_coll_mpath_module_t *module    = (mca_coll_mpath_module_t *)base;
    const mca_coll_mpath_args_t blocks = {.datatype = datatype, .counts = rcounts};
    mca_coll_mpath_stage_t stage;
    size_t total = 0;
    int rank, rc;

    mca_coll_mpath_queue_before_blocking(module);
    for (rank = 0; rank < ompi_comm_size(comm); rank++) {
        total += COLL_MPATH_COUNT(rcounts, rank);
    }
    if (reduce_scatter_passes(module, total, datatype)) {
        return COLL_MPATH_PREVIOUS(module, reduce_scatter, sbuf, rbuf, rcounts, datatype, op, comm);
    }
    stage = reduce_scatter_sides(sbuf, rbuf, datatype, total, COLL_MPATH_COUNT(rcounts, ompi_comm_rank(comm)));
    if (!mca_coll_mpath_symmetric_begin(module, &stage,
                                        mca_coll_mpath_reduce_scatter_device(module, &stage, &blocks, op), &rc)) {
        return rc;
    }
    return mca_coll_mpath_stage_close(&stage,
                                      reduce_scatter_on_host(mca_coll_mpath_stage_sbuf(&stage), stage.recv.buffer,
                                                             rcounts, datatype, op, comm, base));
}

/* Host memory, or copies there. */
static int reduce_scatter_block_on_host(const void *sbuf, void *rbuf, mca_coll_mpath_count_t rcount,
                                        struct ompi_datatype_t *datatype, struct ompi_op_t *op,
                                        struct ompi_communicator_t *comm, mca_coll_base_module_t *base)
{
    mca_coll_mpath_module_t *module = (mca_coll_mpath_module_t *)base;
    int algorithm                   = mca_coll_mpath_component.settings.reduce_scatter_algorithm;
    int size                        = ompi_comm_size(comm), rank;
    mpath_status_t status           = MPATH_DECLINED;
    mca_coll_mpath_op_t work;
    uint64_t total = (uint64_t)rcount * (uint64_t)size;
    int rc;

    if (mca_coll_mpath_op_fits(op, datatype)) {
        mca_coll_mpath_op_init(op, datatype, &work);
        if (mca_coll_mpath_symmetric_ready(module, algorithm, mca_coll_mpath_reduced_bytes(total, datatype))) {
            for (rank = 0; rank < size; rank++) {
                module->arrays[rank] = (uint64_t)rcount;
            }
            status = reduce_scatter_run(module, (MPI_IN_PLACE == sbuf) ? rbuf : sbuf, rbuf, total, &work);
        }
    }
    rc = (MPATH_DECLINED == status)
             ? COLL_MPATH_PREVIOUS(module, reduce_scatter_block, sbuf, rbuf, rcount, datatype, op, comm)
             : mca_coll_mpath_error(status);
    mca_coll_mpath_symmetric_ended(module);
    return rc;
}

int mca_coll_mpath_reduce_scatter_block(const void *sbuf, void *rbuf, mca_coll_mpath_count_t rcount,
                                        struct ompi_datatype_t *datatype, struct ompi_op_t *op,
                                        struct ompi_communicator_t *comm, mca_coll_base_module_t *base)
{
    mca_coll_mpath_module_t *module    = (mca_coll_mpath_module_t *)base;
    const mca_coll_mpath_args_t blocks = {.datatype = datatype, .equal = true, .count = (size_t)rcount};
    size_t total                       = (size_t)rcount * (size_t)ompi_comm_size(comm);
    mca_coll_mpath_stage_t stage;
    int rc;

    mca_coll_mpath_queue_before_blocking(module);
    if (reduce_scatter_passes(module, total, datatype)) {
        return COLL_MPATH_PREVIOUS(module, reduce_scatter_block, sbuf, rbuf, rcount, datatype, op, comm);
    }
    stage = reduce_scatter_sides(sbuf, rbuf, datatype, total, (size_t)rcount);
    if (!mca_coll_mpath_symmetric_begin(module, &stage,
                                        mca_coll_mpath_reduce_scatter_device(module, &stage, &blocks, op), &rc)) {
        return rc;
    }
    return mca_coll_mpath_stage_close(&stage,
                                      reduce_scatter_block_on_host(mca_coll_mpath_stage_sbuf(&stage), stage.recv.buffer,
                                                                   rcount, datatype, op, comm, base));
}
