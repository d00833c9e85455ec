/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI_Allgather and MPI_Allgatherv, of any datatype: what has gaps goes through a packed copy. */
#include "coll_mpath_pack.h"
#include "coll_mpath_request.h"
#include "coll_mpath_symmetric.h"

/* One call: this rank's block, and all blocks. */
typedef struct allgather_work {
    mca_coll_mpath_reduction_t super;
    mca_coll_mpath_stage_t stage;
    mca_coll_mpath_side_t send, recv; /* packed where they have gaps, in host memory */
    bool is_packed;                   /* they are in use */
    uint64_t send_bytes, send_offset;
} allgather_work_t;

static const char allgather_nothing; /* an empty block */

static mpath_status_t allgather_pack(allgather_work_t *work)
{
    const mca_coll_mpath_module_t *module = work->super.module;
    const mca_coll_mpath_args_t *send = &work->stage.send, *recv = &work->stage.recv;
    int size        = ompi_comm_size(module->comm);
    uint64_t budget = mca_coll_mpath_component.settings.pack_bytes;
    mpath_status_t status;

    work->is_packed = true;
    status = mca_coll_mpath_side_init(recv, size, false, &budget, module->arrays, module->arrays + size, &work->recv);
    if ((MPATH_OK == status) && !work->stage.in_place) {
        status = mca_coll_mpath_side_init(send, 1, false, &budget, &work->send_bytes, &work->send_offset, &work->send);
    }
    if (MPATH_OK != status) {
        return status;
    }
    if (mca_coll_mpath_not_on_host(work->recv.buffer, 1) || mca_coll_mpath_not_on_host(work->send.buffer, 1)) {
        return MPATH_ERR_UNSUPPORTED;
    }
    return work->stage.in_place ? mca_coll_mpath_side_pack(recv, size, &work->recv)
                                : mca_coll_mpath_side_pack(send, 1, &work->send);
}

/* A block that is not what the others expect of this rank must be heard of: libmpath compares only what it is told. */
static bool allgather_block_matches(const allgather_work_t *work)
{
    const mca_coll_mpath_module_t *module = work->super.module;
    uint64_t expected                     = module->arrays[ompi_comm_rank(module->comm)];

    if (work->stage.in_place || (expected == work->send_bytes)) {
        return true;
    }
    mpath_error("%s: this rank hands %llu bytes to MPI_Allgather and expects %llu from itself; the call fails",
                module->comm->c_name, (unsigned long long)work->send_bytes, (unsigned long long)expected);
    return false;
}

static void allgather_describe(allgather_work_t *work)
{
    mca_coll_mpath_module_t *module = work->super.module;
    mpath_reduction_t *call         = &work->super.call;
    mpath_status_t status           = allgather_pack(work);

    call->blocks  = module->arrays;
    call->offsets = module->arrays + ompi_comm_size(module->comm);
    call->buffers = (mpath_symmetric_buffers_t){.recv = work->recv.buffer, .ineligible = MPATH_OK != status};
    if (MPATH_OK != status) {
        mpath_debug("%s: this rank cannot let mpath carry the call (%s)", module->comm->c_name,
                    mpath_status_string(status));
    } else if (!allgather_block_matches(work)) {
        mpath_team_break(module->team, MPATH_ERR_TRUNCATED);
    }
    if (!work->stage.in_place) {
        call->buffers.send = ((MPATH_OK != status) || (0 == work->send_bytes))
                                 ? &allgather_nothing
                                 : (const char *)work->send.buffer + work->send_offset;
    }
}

static mpath_status_t allgather_to_host(mpath_reduction_t *call, int asks, void *user)
{
    allgather_work_t *work = user;
    mpath_status_t status;

    (void)call; /* it is the work's */
    work->stage.keep_known = 0 == asks;
    status                 = mca_coll_mpath_symmetric_open(&work->super);
    if ((MPATH_OK == status) && asks) {
        allgather_describe(work);
    }
    return status;
}

/* What is not contiguous goes through the host, which also complains of a block that is not what the others expect. */
static bool allgather_fits(const allgather_work_t *work, mca_coll_mpath_side_t *send, mca_coll_mpath_side_t *recv)
{
    const mca_coll_mpath_module_t *module = work->super.module;
    int size                              = ompi_comm_size(module->comm);
    uint64_t *arrays = module->arrays, budget = 0;
    bool fits;

    fits = (MPATH_OK == mca_coll_mpath_side_init(&work->stage.recv, size, false, &budget, arrays, arrays + size, recv));
    if (!work->stage.in_place && fits) {
        fits = (MPATH_OK == mca_coll_mpath_side_init(&work->stage.send, 1, false, &budget, arrays + 2 * size,
                                                     arrays + 3 * size, send)) &&
               (arrays[2 * size] == arrays[ompi_comm_rank(module->comm)]);
    }
    return fits;
}

static void allgather_look(mpath_reduction_t *call, void *user)
{
    allgather_work_t *work             = user;
    mpath_symmetric_buffers_t *buffers = &call->buffers;
    mca_coll_mpath_side_t send = {0}, recv = {0};
    uint64_t *arrays = work->super.module->arrays;
    int size         = ompi_comm_size(work->super.module->comm);
    int rank         = ompi_comm_rank(work->super.module->comm);

    mca_coll_mpath_symmetric_look(&work->super);
    if (!allgather_fits(work, &send, &recv)) {
        buffers->ineligible = true;
    }
    call->blocks  = arrays;
    call->offsets = arrays + size;
    buffers->recv = recv.buffer;
    buffers->send = NULL;
    if (!work->stage.in_place) {
        buffers->send = (NULL == send.buffer) ? &allgather_nothing : (const char *)send.buffer + arrays[3 * size];
    } else if ((NULL != buffers->recv_memory) && !buffers->ineligible) {
        mpath_memory_t *memory = &work->super.looked.send_device.memory;

        /* this rank's block may lie in another allocation than the beginning of the buffer */
        buffers->ineligible  = (MPATH_OK !=
                               mpath_memory_classify((char *)recv.buffer + arrays[size + rank], arrays[rank], memory));
        buffers->send_memory = (arrays[rank] > 0) ? memory : NULL;
    }
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
    return mca_coll_mpath_symmetric_passes(module, MPATH_OPERATION_ALLGATHER,
                                           allgather_bytes(recv, mca_coll_mpath_parts(module->comm)));
}

/* MPATH_DECLINED: the previous function, on the work's stage. */
static mpath_status_t allgather_run(mca_coll_mpath_module_t *module, const mca_coll_mpath_args_t *send,
                                    const mca_coll_mpath_args_t *recv, allgather_work_t *work)
{
    int parts = mca_coll_mpath_parts(module->comm);
    mpath_status_t status;

    *work  = (allgather_work_t){.super = {.module = module,
                                          .stage  = &work->stage,
                                          .call   = {.collective = MPATH_OPERATION_ALLGATHER,
                                                     .bytes      = allgather_bytes(recv, parts),
                                                     .look       = allgather_look,
                                                     .to_host    = allgather_to_host,
                                                     .user       = work}},
                                .stage = {.send       = *send,
                                          .recv       = *recv,
                                          .send_parts = 1,
                                          .recv_parts = parts,
                                          .in_place   = MPI_IN_PLACE == send->buffer}};
    status = mca_coll_mpath_symmetric_run(&work->super);
    if ((MPATH_OK == status) && work->is_packed) {
        status = mca_coll_mpath_side_unpack(&work->stage.recv, parts, &work->recv);
    }
    mca_coll_mpath_side_free(&work->send);
    mca_coll_mpath_side_free(&work->recv);
    if (MPATH_DECLINED == status) {
        mca_coll_mpath_stage_restore(&work->stage);
    }
    return status;
}

/* `rc`: what the call returns but for what may go wrong now. */
static int allgather_end(allgather_work_t *work, int rc)
{
    rc = mca_coll_mpath_stage_close(&work->stage, rc);
    mca_coll_mpath_symmetric_ended(work->super.module);
    return rc;
}

int mca_coll_mpath_allgather(const void *sbuf, mca_coll_mpath_count_t scount, struct ompi_datatype_t *sdtype,
                             void *rbuf, mca_coll_mpath_count_t rcount, struct ompi_datatype_t *rdtype,
                             struct ompi_communicator_t *comm, mca_coll_base_module_t *base)
{
    mca_coll_mpath_module_t *module = (mca_coll_mpath_module_t *)base;
    mca_coll_mpath_args_t send = {.buffer = (void *)sbuf, .datatype = sdtype, .equal = true, .count = (size_t)scount};
    mca_coll_mpath_args_t recv = {.buffer = rbuf, .datatype = rdtype, .equal = true, .count = (size_t)rcount};
    allgather_work_t work;
    mpath_status_t status;
    int rc;

    if (allgather_passes(module, &recv)) {
        return COLL_MPATH_PREVIOUS(module, allgather, sbuf, scount, sdtype, rbuf, rcount, rdtype, comm);
    }
    status = allgather_run(module, &send, &recv, &work);
    rc     = (MPATH_DECLINED == status) ? COLL_MPATH_PREVIOUS(module, allgather, mca_coll_mpath_stage_sbuf(&work.stage),
                                                              scount, work.stage.send.datatype, work.stage.recv.buffer,
                                                              rcount, work.stage.recv.datatype, comm)
                                        : mca_coll_mpath_error(status);
    return allgather_end(&work, rc);
}

int mca_coll_mpath_allgatherv(const void *sbuf, mca_coll_mpath_count_t scount, struct ompi_datatype_t *sdtype,
                              void *rbuf, mca_coll_mpath_counts_t rcounts, mca_coll_mpath_displs_t rdisps,
                              struct ompi_datatype_t *rdtype, struct ompi_communicator_t *comm,
                              mca_coll_base_module_t *base)
{
    mca_coll_mpath_module_t *module = (mca_coll_mpath_module_t *)base;
    mca_coll_mpath_args_t send = {.buffer = (void *)sbuf, .datatype = sdtype, .equal = true, .count = (size_t)scount};
    mca_coll_mpath_args_t recv = {.buffer = rbuf, .datatype = rdtype, .counts = rcounts, .displs = rdisps};
    allgather_work_t work;
    mpath_status_t status;
    int rc;

    if (allgather_passes(module, &recv)) {
        return COLL_MPATH_PREVIOUS(module, allgatherv, sbuf, scount, sdtype, rbuf, rcounts, rdisps, rdtype, comm);
    }
    status = allgather_run(module, &send, &recv, &work);
    rc     = (MPATH_DECLINED == status)
                 ? COLL_MPATH_PREVIOUS(module, allgatherv, mca_coll_mpath_stage_sbuf(&work.stage), scount,
                                       work.stage.send.datatype, work.stage.recv.buffer, rcounts, work.stage.recv.displs,
                                       work.stage.recv.datatype, comm)
                 : mca_coll_mpath_error(status);
    return allgather_end(&work, rc);
}
