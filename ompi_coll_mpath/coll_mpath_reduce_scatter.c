/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI_Reduce_scatter, and MPI_Reduce_scatter_block as its equal case. */
#include "coll_mpath_symmetric.h"
#include "coll_mpath_stage.h"

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

int mca_coll_mpath_reduce_scatter(const void *sbuf, void *rbuf, mca_coll_mpath_counts_t rcounts,
                                  struct ompi_datatype_t *datatype, struct ompi_op_t *op,
                                  struct ompi_communicator_t *comm, mca_coll_base_module_t *base)
{
    mca_coll_mpath_module_t *module = (mca_coll_mpath_module_t *)base;
    int algorithm                   = mca_coll_mpath_component.settings.reduce_scatter_algorithm;
    int size                        = ompi_comm_size(comm), rank;
    mpath_status_t status           = MPATH_DECLINED;
    mca_coll_mpath_op_t work;
    uint64_t total               = 0;
    mca_coll_mpath_stage_t stage = {.send = {.buffer = (void *)sbuf, .datatype = datatype, .equal = true, .count = 0},
                                    .recv = {.buffer = rbuf, .datatype = datatype, .equal = true, .count = 0},
                                    .send_parts = 1,
                                    .recv_parts = 1,
                                    .in_place   = MPI_IN_PLACE == sbuf};
    mpath_status_t staged;

    for (rank = 0; rank < size; rank++) {
        stage.send.count += COLL_MPATH_COUNT(rcounts, rank);
    }
    stage.recv.count = stage.in_place ? stage.send.count : COLL_MPATH_COUNT(rcounts, ompi_comm_rank(comm));
    staged           = mca_coll_mpath_stage_open(&stage);
    if (MPATH_OK == staged) {
        return mca_coll_mpath_stage_close(
            &stage, mca_coll_mpath_reduce_scatter(stage.in_place ? MPI_IN_PLACE : stage.send.buffer, stage.recv.buffer,
                                                  rcounts, datatype, op, comm, base));
    }
    if (MPATH_DECLINED != staged) {
        return mca_coll_mpath_error(staged);
    }
    if (mca_coll_mpath_op_fits(op, datatype)) {
        mca_coll_mpath_op_init(op, datatype, &work);
        for (rank = 0; rank < size; rank++) {
            total += COLL_MPATH_COUNT(rcounts, rank);
        }
        if (mca_coll_mpath_symmetric_ready(module, algorithm, total * work.combination.element_bytes)) {
            for (rank = 0; rank < size; rank++) {
                module->arrays[rank] = COLL_MPATH_COUNT(rcounts, rank);
            }
            status = reduce_scatter_run(module, (MPI_IN_PLACE == sbuf) ? rbuf : sbuf, rbuf, total, &work);
        }
    }
    if (MPATH_DECLINED == status) {
        return module->previous_reduce_scatter(sbuf, rbuf, rcounts, datatype, op, comm,
                                               module->previous_reduce_scatter_module);
    }
    return mca_coll_mpath_error(status);
}

int mca_coll_mpath_reduce_scatter_block(const void *sbuf, void *rbuf, mca_coll_mpath_count_t rcount,
                                        struct ompi_datatype_t *datatype, struct ompi_op_t *op,
                                        struct ompi_communicator_t *comm, mca_coll_base_module_t *base)
{
    mca_coll_mpath_module_t *module = (mca_coll_mpath_module_t *)base;
    int algorithm                   = mca_coll_mpath_component.settings.reduce_scatter_algorithm;
    int size                        = ompi_comm_size(comm), rank;
    mpath_status_t status           = MPATH_DECLINED;
    mca_coll_mpath_op_t work;
    uint64_t total               = (uint64_t)rcount * (uint64_t)size;
    mca_coll_mpath_stage_t stage = {
        .send       = {.buffer   = (void *)sbuf,
                       .datatype = datatype,
                       .equal    = true,
                       .count    = (size_t)rcount * (size_t)ompi_comm_size(comm)},
        .recv       = {.buffer = rbuf, .datatype = datatype, .equal = true, .count = (size_t)rcount},
        .send_parts = 1,
        .recv_parts = 1,
        .in_place   = MPI_IN_PLACE == sbuf};
    mpath_status_t staged;

    if (stage.in_place) {
        stage.recv.count = stage.send.count;
    }
    staged = mca_coll_mpath_stage_open(&stage);
    if (MPATH_OK == staged) {
        return mca_coll_mpath_stage_close(
            &stage, mca_coll_mpath_reduce_scatter_block(stage.in_place ? MPI_IN_PLACE : stage.send.buffer,
                                                        stage.recv.buffer, rcount, datatype, op, comm, base));
    }
    if (MPATH_DECLINED != staged) {
        return mca_coll_mpath_error(staged);
    }
    if (mca_coll_mpath_op_fits(op, datatype)) {
        mca_coll_mpath_op_init(op, datatype, &work);
        if (mca_coll_mpath_symmetric_ready(module, algorithm, total * work.combination.element_bytes)) {
            for (rank = 0; rank < size; rank++) {
                module->arrays[rank] = (uint64_t)rcount;
            }
            status = reduce_scatter_run(module, (MPI_IN_PLACE == sbuf) ? rbuf : sbuf, rbuf, total, &work);
        }
    }
    if (MPATH_DECLINED == status) {
        return module->previous_reduce_scatter_block(sbuf, rbuf, rcount, datatype, op, comm,
                                                     module->previous_reduce_scatter_block_module);
    }
    return mca_coll_mpath_error(status);
}
