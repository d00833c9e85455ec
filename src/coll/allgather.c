/* SPDX-License-Identifier: BSD-3-Clause */
/* Allgather: small blocks travel in the agreement; others are shared out over the rails, once for each node. */
#include "coll/symmetric_private.h"

#include <string.h>

/* `gpus` NULL: host memory on all ranks. */
static mpath_status_t allgather(mpath_symmetric_t *symmetric, const mpath_symmetric_buffers_t *buffers,
                                const uint64_t *bytes, const uint64_t *offsets, mpath_share_gpus_t *gpus)
{
    int algorithm = symmetric->settings->allgather_algorithm, me = symmetric->rank, finished;
    int in_place = buffers->send == NULL, ineligible = buffers->ineligible;
    const void *send = buffers->send;
    void *recv       = buffers->recv;
    uint64_t total = 0, largest = 0, end = 0;
    mpath_share_job_t job = {.flags          = MPATH_SHARE_GATHER,
                             .element_bytes  = 1,
                             .block_elements = bytes,
                             .send_offsets   = symmetric->send_offsets,
                             .recv_buffer    = recv,
                             .recv_offsets   = offsets,
                             .own_in_place   = in_place};
    mpath_agreed_t agreed;
    mpath_status_t status;

    for (int rank = 0; rank < symmetric->size; rank++) {
        total += bytes[rank];
        largest                       = (bytes[rank] > largest) ? bytes[rank] : largest;
        end                           = (offsets[rank] + bytes[rank] > end) ? offsets[rank] + bytes[rank] : end;
        symmetric->send_bytes[rank]   = bytes[me];
        symmetric->send_offsets[rank] = 0;
        symmetric->recv_bytes[rank]   = bytes[rank];
        symmetric->recv_offsets[rank] = offsets[rank];
    }
    status = mpath_symmetric_gate(symmetric, algorithm, MPATH_SHARE_GATHER, total, largest, gpus != NULL);
    if (status != MPATH_OK) {
        return status;
    }
    if (in_place && (bytes[me] > 0) && !ineligible) {
        send = (const char *)recv + offsets[me];
    }
    job.send_buffer = send;
    if (gpus != NULL) {
        gpus->send_bytes = bytes[me];
        gpus->recv_bytes = end;
        job.gpus         = gpus;
    }
    status = mpath_symmetric_agree(symmetric, MPATH_OPERATION_ALLGATHER, algorithm, send, recv, ineligible, &job,
                                   &agreed, &finished);
    if (status != MPATH_OK) {
        return status;
    }
    if (finished || (total == 0)) {
        if (!in_place && (bytes[me] > 0) && (job.gpus == NULL)) {
            memcpy((char *)recv + offsets[me], send, bytes[me]);
        }
    } else {
        job.call = agreed.call;
        status   = mpath_symmetric_share(symmetric, MPATH_OPERATION_ALLGATHER, total, &job);
    }
    symmetric->counters.calls += (status == MPATH_OK) ? 1 : 0;
    return status;
}

mpath_status_t mpath_allgather(mpath_symmetric_t *symmetric, const void *send, void *recv, const uint64_t *bytes,
                               const uint64_t *offsets, int ineligible)
{
    const mpath_symmetric_buffers_t buffers = {.send = send, .recv = recv, .ineligible = ineligible};

    return allgather(symmetric, &buffers, bytes, offsets, NULL);
}

mpath_status_t mpath_allgather_anywhere(mpath_symmetric_t *symmetric, const mpath_symmetric_buffers_t *buffers,
                                        const uint64_t *bytes, const uint64_t *offsets)
{
    uint64_t declined       = symmetric->counters.declined;
    mpath_share_gpus_t gpus = {.send_memory = buffers->send_memory, .recv_memory = buffers->recv_memory};

    return mpath_symmetric_uncounted(symmetric, declined, allgather(symmetric, buffers, bytes, offsets, &gpus));
}
