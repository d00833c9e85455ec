/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI_Alltoallw in its three forms, which libmpath does not have: where a rank's side is in device memory that this Open
 * MPI does not know, the previous function gets a copy of it in host memory. It changes nothing for the others.
 */
#include "coll_mpath.h"
#include "coll_mpath_request.h"

/* What a rank sends, or receives: each part has a datatype of its own, and its displacement is in bytes. */
typedef struct alltoallw_side_t {
    char *buffer;
    mca_coll_mpath_counts_t counts;
    mca_coll_mpath_displs_t displs;
    struct ompi_datatype_t *const *datatypes;
} alltoallw_side_t;

/* The side as one block of bytes, of which parts are in use; *lowest_p: from its buffer to there. */
static mca_coll_mpath_args_t alltoallw_block(const alltoallw_side_t *side, int parts, ptrdiff_t *lowest_p)
{
    ptrdiff_t low = 0, high = 0, from, to;
    int rank;

    for (rank = 0; rank < parts; rank++) {
        const mca_coll_mpath_args_t part = {
            .datatype = side->datatypes[rank], .equal = true, .count = COLL_MPATH_COUNT(side->counts, rank)};

        if (0 == part.count) {
            continue; /* the datatype may be none */
        }
        mca_coll_mpath_piece_range(&part, 0, &from, &to);
        from += COLL_MPATH_DISPL(side->displs, rank);
        to += COLL_MPATH_DISPL(side->displs, rank);
        if (from < to) {
            low  = ((low == high) || (from < low)) ? from : low;
            high = ((low == high) || (to > high)) ? to : high;
        }
    }
    *lowest_p = low;
    return (mca_coll_mpath_args_t){
        .buffer = side->buffer + low, .datatype = &ompi_mpi_byte.dt, .equal = true, .count = (size_t)(high - low)};
}

/* A copy can be made of it: what is not in one allocation stays as it is. */
static bool alltoallw_is_one(const mca_coll_mpath_args_t *block)
{
    mpath_memory_t memory;

    return (0 == block->count) || ((MPATH_OK == mpath_memory_find(block->buffer, block->count, &memory)) &&
                                   (mpath_memory_on_host(memory.kind) || (0 < memory.blocks)));
}

/*
 * MPATH_OK: the call is to be made on copies, to which the buffers lead then; MPATH_DECLINED: on the buffers as they are.
 */
static mpath_status_t alltoallw_open(alltoallw_side_t *send, alltoallw_side_t *recv, struct ompi_communicator_t *comm,
                                     mca_coll_mpath_stage_t *stage)
{
    int parts          = mca_coll_mpath_parts(comm);
    ptrdiff_t send_low = 0, recv_low = 0;
    mpath_status_t status;

    *stage = (mca_coll_mpath_stage_t){.send_parts = 1,
                                      .recv_parts = 1,
                                      .in_place   = MPI_IN_PLACE == (void *)send->buffer,
                                      .keep_known = true,
                                      .loads_recv = true};
    if (!mpath_gpu_available()) {
        return MPATH_DECLINED;
    }
    stage->recv = alltoallw_block(recv, parts, &recv_low);
    if (!stage->in_place) {
        stage->send = alltoallw_block(send, parts, &send_low);
    }
    if (!alltoallw_is_one(&stage->recv) || (!stage->in_place && !alltoallw_is_one(&stage->send))) {
        return MPATH_DECLINED;
    }
    status = mca_coll_mpath_stage_open(stage);
    if (MPATH_OK == status) {
        recv->buffer = (char *)stage->recv.buffer - recv_low;
        send->buffer = stage->in_place ? send->buffer : (char *)stage->send.buffer - send_low;
    }
    return status;
}

int mca_coll_mpath_alltoallw(const void *sbuf, mca_coll_mpath_counts_t scounts, mca_coll_mpath_displs_t sdisps,
                             struct ompi_datatype_t *const *sdtypes, void *rbuf, mca_coll_mpath_counts_t rcounts,
                             mca_coll_mpath_displs_t rdisps, struct ompi_datatype_t *const *rdtypes,
                             struct ompi_communicator_t *comm, mca_coll_base_module_t *base)
{
    mca_coll_mpath_module_t *module = (mca_coll_mpath_module_t *)base;
    alltoallw_side_t send           = {(char *)sbuf, scounts, sdisps, sdtypes};
    alltoallw_side_t recv           = {rbuf, rcounts, rdisps, rdtypes};
    mca_coll_mpath_stage_t stage;
    mpath_status_t status = alltoallw_open(&send, &recv, comm, &stage);
    int rc;

    if (mpath_status_is_error(status)) {
        return mca_coll_mpath_error(status);
    }
    rc = module->previous_alltoallw(send.buffer, scounts, sdisps, sdtypes, recv.buffer, rcounts, rdisps, rdtypes, comm,
                                    module->previous_alltoallw_module);
    return mca_coll_mpath_stage_close(&stage, rc);
}

/* -- non-blocking and persistent: the previous component's request on the copies, inside one of mpath's -- */

static int alltoallw_adopt(mca_coll_mpath_module_t *module, mca_coll_mpath_stage_t *stage, bool persistent,
                           mca_coll_mpath_request_t **new_p)
{
    int rc = mca_coll_mpath_request_adopt(module, stage, persistent, new_p);

    return (OMPI_SUCCESS == rc) ? rc : mca_coll_mpath_stage_close(stage, rc);
}

/* `rc`: of the previous function. A request that is not persistent is under way. */
static int alltoallw_hand_over(mca_coll_mpath_request_t *adopted, int rc, bool persistent, ompi_request_t **request)
{
    if (NULL == adopted) {
        return rc;
    }
    if (OMPI_SUCCESS != rc) {
        mca_coll_mpath_request_release(adopted);
    } else if (persistent) {
        *request = &adopted->super;
    } else {
        mca_coll_mpath_request_watch(adopted, request);
    }
    return rc;
}

int mca_coll_mpath_ialltoallw(const void *sbuf, mca_coll_mpath_counts_t scounts, mca_coll_mpath_displs_t sdisps,
                              struct ompi_datatype_t *const *sdtypes, void *rbuf, mca_coll_mpath_counts_t rcounts,
                              mca_coll_mpath_displs_t rdisps, struct ompi_datatype_t *const *rdtypes,
                              struct ompi_communicator_t *comm, ompi_request_t **request, mca_coll_base_module_t *base)
{
    mca_coll_mpath_module_t *module = (mca_coll_mpath_module_t *)base;
    alltoallw_side_t send           = {(char *)sbuf, scounts, sdisps, sdtypes};
    alltoallw_side_t recv           = {rbuf, rcounts, rdisps, rdtypes};
    mca_coll_mpath_stage_t stage;
    mpath_status_t status             = alltoallw_open(&send, &recv, comm, &stage);
    mca_coll_mpath_request_t *adopted = NULL;
    int rc                            = OMPI_SUCCESS;

    if (mpath_status_is_error(status)) {
        return mca_coll_mpath_error(status);
    }
    if (MPATH_OK == status) {
        rc = alltoallw_adopt(module, &stage, false, &adopted);
    }
    if (OMPI_SUCCESS == rc) {
        rc = module->previous_ialltoallw(send.buffer, scounts, sdisps, sdtypes, recv.buffer, rcounts, rdisps, rdtypes,
                                         comm, (NULL != adopted) ? &adopted->previous : request,
                                         module->previous_ialltoallw_module);
    }
    return alltoallw_hand_over(adopted, rc, false, request);
}

int mca_coll_mpath_alltoallw_init(const void *sbuf, mca_coll_mpath_counts_t scounts, mca_coll_mpath_displs_t sdisps,
                                  struct ompi_datatype_t *const *sdtypes, void *rbuf, mca_coll_mpath_counts_t rcounts,
                                  mca_coll_mpath_displs_t rdisps, struct ompi_datatype_t *const *rdtypes,
                                  struct ompi_communicator_t *comm, struct ompi_info_t *info, ompi_request_t **request,
                                  mca_coll_base_module_t *base)
{
    mca_coll_mpath_module_t *module = (mca_coll_mpath_module_t *)base;
    alltoallw_side_t send           = {(char *)sbuf, scounts, sdisps, sdtypes};
    alltoallw_side_t recv           = {rbuf, rcounts, rdisps, rdtypes};
    mca_coll_mpath_stage_t stage;
    mpath_status_t status             = alltoallw_open(&send, &recv, comm, &stage);
    mca_coll_mpath_request_t *adopted = NULL;
    int rc                            = OMPI_SUCCESS;

    if (mpath_status_is_error(status)) {
        return mca_coll_mpath_error(status);
    }
    if (MPATH_OK == status) {
        rc = alltoallw_adopt(module, &stage, true, &adopted);
    }
    if (OMPI_SUCCESS == rc) {
        rc = module->previous_alltoallw_init(send.buffer, scounts, sdisps, sdtypes, recv.buffer, rcounts, rdisps,
                                             rdtypes, comm, info, (NULL != adopted) ? &adopted->previous : request,
                                             module->previous_alltoallw_init_module);
    }
    return alltoallw_hand_over(adopted, rc, true, request);
}
