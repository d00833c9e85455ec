/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI_Allgather and MPI_Allgatherv, of any datatype: what has gaps goes through a packed copy. */
#include "coll_mpath_symmetric.h"
#include "coll_mpath_request.h"
#include "coll_mpath_stage.h"
#include "coll_mpath_symmetric_device.h"
#include "coll_mpath_pack.h"

/* One call: this rank's block, and all blocks. */
typedef struct allgather_work {
    mca_coll_mpath_side_t send, recv;
    uint64_t send_bytes, send_offset;
    const void *block; /* NULL: in its place */
} allgather_work_t;

/* In place, `send` is NULL. */
static mpath_status_t allgather_prepare(mca_coll_mpath_module_t *module, const mca_coll_mpath_args_t *send,
                                        const mca_coll_mpath_args_t *recv, allgather_work_t *work)
{
    int size        = ompi_comm_size(module->comm);
    uint64_t budget = mca_coll_mpath_component.pack_bytes;
    mpath_status_t status;

    status = mca_coll_mpath_side_init(recv, size, false, &budget, module->arrays, module->arrays + size, &work->recv);
    if ((MPATH_OK == status) && (NULL != send)) {
        status = mca_coll_mpath_side_init(send, 1, false, &budget, &work->send_bytes, &work->send_offset, &work->send);
    }
    if (MPATH_OK != status) {
        return status;
    }
    if (mca_coll_mpath_not_on_host(work->recv.buffer, 1) || mca_coll_mpath_not_on_host(work->send.buffer, 1)) {
        return MPATH_ERR_UNSUPPORTED;
    }
    if (NULL == send) {
        return mca_coll_mpath_side_pack(recv, size, &work->recv);
    }
    if (work->send_bytes > 0) {
        work->block = (const char *)work->send.buffer + work->send_offset;
    }
    return mca_coll_mpath_side_pack(send, 1, &work->send);
}

/* A block that is not what the others expect of this rank must be heard of: libmpath compares only what it is told. */
static bool allgather_block_matches(const mca_coll_mpath_module_t *module, const allgather_work_t *work, bool in_place)
{
    uint64_t expected = module->arrays[ompi_comm_rank(module->comm)];

    if (in_place || (expected == work->send_bytes)) {
        return true;
    }
    mpath_error("%s: this rank hands %llu bytes to MPI_Allgather and expects %llu from itself; the call fails",
                module->comm->c_name, (unsigned long long)work->send_bytes, (unsigned long long)expected);
    return false;
}

static mpath_status_t allgather_run(mca_coll_mpath_module_t *module, const mca_coll_mpath_args_t *send,
                                    const mca_coll_mpath_args_t *recv, bool in_place)
{
    int size              = ompi_comm_size(module->comm);
    allgather_work_t work = {0};
    static const char nothing;
    mpath_status_t status, prepared;

    prepared = allgather_prepare(module, in_place ? NULL : send, recv, &work);
    if (MPATH_OK != prepared) {
        mpath_debug("%s: this rank cannot let mpath carry the call (%s)", module->comm->c_name,
                    mpath_status_string(prepared));
    } else if (!allgather_block_matches(module, &work, in_place)) {
        mpath_team_break(module->team, MPATH_ERR_TRUNCATED);
    }
    if (!in_place && (NULL == work.block)) {
        work.block = &nothing; /* an empty block */
    }
    status = mpath_allgather(module->symmetric, work.block, work.recv.buffer, module->arrays, module->arrays + size,
                             MPATH_OK != prepared);
    if (MPATH_OK == status) {
        status = mca_coll_mpath_side_unpack(recv, size, &work.recv);
    }
    mca_coll_mpath_side_free(&work.send);
    mca_coll_mpath_side_free(&work.recv);
    return mca_coll_mpath_symmetric_done(module, "MPI_Allgather", status);
}

/* Of all ranks together. */
static uint64_t allgather_bytes(const mca_coll_mpath_args_t *recv, int parts)
{
    size_t elements = recv->equal ? recv->count * (size_t)parts : 0, type_size = 0;
    int rank;

    (void)ompi_datatype_type_size(recv->datatype, &type_size);
    for (rank = 0; (rank < parts) && !recv->equal; rank++) {
        elements += mca_coll_mpath_args_count(recv, rank);
    }
    return (uint64_t)elements * type_size;
}

/* True: the call is the previous function's, on the user's arguments. */
static bool allgather_passes(mca_coll_mpath_module_t *module, const mca_coll_mpath_args_t *recv)
{
    mca_coll_mpath_queue_before_blocking(module);
    return mca_coll_mpath_symmetric_passes(module, mca_coll_mpath_component.settings.allgather_algorithm,
                                           allgather_bytes(recv, mca_coll_mpath_parts(module->comm)));
}

static mca_coll_mpath_stage_t allgather_sides(const mca_coll_mpath_module_t *module, const mca_coll_mpath_args_t *send,
                                              const mca_coll_mpath_args_t *recv)
{
    return (mca_coll_mpath_stage_t){.send       = *send,
                                    .recv       = *recv,
                                    .send_parts = 1,
                                    .recv_parts = mca_coll_mpath_parts(module->comm),
                                    .in_place   = MPI_IN_PLACE == send->buffer};
}

/*
 * Everything but the previous function. True: that is to run on the buffers of `stage`; false: the call returns *rc_p.
 */
static bool allgather_is_previous(mca_coll_mpath_module_t *module, mca_coll_mpath_stage_t *stage, int *rc_p)
{
    int algorithm  = mca_coll_mpath_component.settings.allgather_algorithm;
    uint64_t bytes = allgather_bytes(&stage->recv, stage->recv_parts);
    mpath_status_t status;
    bool previous, asks;

    status = mca_coll_mpath_allgather_choose(module, bytes, &previous);
    if (MPATH_OK == status) {
        status = previous ? MPATH_DECLINED : mca_coll_mpath_allgather_device(module, stage, bytes);
    }
    asks = (MPATH_DECLINED == status) && !previous && mca_coll_mpath_symmetric_ready(module, algorithm, bytes);
    stage->keep_known = !asks;
    if (!mca_coll_mpath_symmetric_begin(module, stage, status, rc_p)) {
        return false;
    }
    status = asks ? allgather_run(module, &stage->send, &stage->recv, stage->in_place) : MPATH_DECLINED;
    if (MPATH_DECLINED == status) {
        mca_coll_mpath_stage_restore(stage);
        return true;
    }
    *rc_p = mca_coll_mpath_stage_close(stage, mca_coll_mpath_error(status));
    return false;
}

int mca_coll_mpath_allgather(const void *sbuf, mca_coll_mpath_count_t scount, struct ompi_datatype_t *sdtype,
                             void *rbuf, mca_coll_mpath_count_t rcount, struct ompi_datatype_t *rdtype,
                             struct ompi_communicator_t *comm, mca_coll_base_module_t *base)
{
    mca_coll_mpath_module_t *module = (mca_coll_mpath_module_t *)base;
    mca_coll_mpath_args_t send = {.buffer = (void *)sbuf, .datatype = sdtype, .equal = true, .count = (size_t)scount};
    mca_coll_mpath_args_t recv = {.buffer = rbuf, .datatype = rdtype, .equal = true, .count = (size_t)rcount};
    mca_coll_mpath_stage_t stage;
    int rc;

    if (allgather_passes(module, &recv)) {
        return COLL_MPATH_PREVIOUS(module, allgather, sbuf, scount, sdtype, rbuf, rcount, rdtype, comm);
    }
    stage = allgather_sides(module, &send, &recv);
    if (allgather_is_previous(module, &stage, &rc)) {
        rc = COLL_MPATH_PREVIOUS(module, allgather, mca_coll_mpath_stage_sbuf(&stage), scount, stage.send.datatype,
                                 stage.recv.buffer, rcount, stage.recv.datatype, comm);
        rc = mca_coll_mpath_stage_close(&stage, rc);
    }
    mca_coll_mpath_allgather_ended(module);
    mca_coll_mpath_symmetric_ended(module);
    return rc;
}

int mca_coll_mpath_allgatherv(const void *sbuf, mca_coll_mpath_count_t scount, struct ompi_datatype_t *sdtype,
                              void *rbuf, mca_coll_mpath_counts_t rcounts, mca_coll_mpath_displs_t rdisps,
                              struct ompi_datatype_t *rdtype, struct ompi_communicator_t *comm,
                              mca_coll_base_module_t *base)
{
    mca_coll_mpath_module_t *module = (mca_coll_mpath_module_t *)base;
    mca_coll_mpath_args_t send = {.buffer = (void *)sbuf, .datatype = sdtype, .equal = true, .count = (size_t)scount};
    mca_coll_mpath_args_t recv = {.buffer = rbuf, .datatype = rdtype, .counts = rcounts, .displs = rdisps};
    mca_coll_mpath_stage_t stage;
    int rc;

    if (allgather_passes(module, &recv)) {
        return COLL_MPATH_PREVIOUS(module, allgatherv, sbuf, scount, sdtype, rbuf, rcounts, rdisps, rdtype, comm);
    }
    stage = allgather_sides(module, &send, &recv);
    if (allgather_is_previous(module, &stage, &rc)) {
        rc = COLL_MPATH_PREVIOUS(module, allgatherv, mca_coll_mpath_stage_sbuf(&stage), scount, stage.send.datatype,
                                 stage.recv.buffer, rcounts, stage.recv.displs, stage.recv.datatype, comm);
        rc = mca_coll_mpath_stage_close(&stage, rc);
    }
    mca_coll_mpath_allgather_ended(module);
    mca_coll_mpath_symmetric_ended(module);
    return rc;
}
