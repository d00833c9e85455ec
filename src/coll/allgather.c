/* SPDX-License-Identifier: BSD-3-Clause */
/* Allgather: small blocks travel in the agreement; others are shared out over the rails, once for each node. */
#include "coll/symmetric_private.h"

#include <string.h>

mpath_status_t mpath_allgather(mpath_symmetric_t *symmetric, const void *send, void *recv, const uint64_t *bytes,
                               const uint64_t *offsets, int ineligible)
{
    int algorithm = symmetric->settings->allgather_algorithm, me = symmetric->rank, finished;
    int in_place   = send == NULL;
    uint64_t total = 0, largest = 0;
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
        symmetric->send_bytes[rank]   = bytes[me];
        symmetric->send_offsets[rank] = 0;
        symmetric->recv_bytes[rank]   = bytes[rank];
        symmetric->recv_offsets[rank] = offsets[rank];
    }
    status = mpath_symmetric_gate(symmetric, algorithm, MPATH_SHARE_GATHER, total, largest);
    if (status != MPATH_OK) {
        return status;
    }
    if (in_place && (bytes[me] > 0) && !ineligible) {
        send = (const char *)recv + offsets[me];
    }
    status = mpath_symmetric_agree(symmetric, MPATH_OPERATION_ALLGATHER, algorithm, send, recv, ineligible, &agreed,
                                   &finished);
    if (status != MPATH_OK) {
        return status;
    }
    if (finished || (total == 0)) {
        if (!in_place && (bytes[me] > 0)) {
            memcpy((char *)recv + offsets[me], send, bytes[me]);
        }
    } else {
        job.call        = agreed.call;
        job.send_buffer = send;
        status          = mpath_symmetric_share(symmetric, MPATH_OPERATION_ALLGATHER, total, &job);
    }
    symmetric->counters.calls += (status == MPATH_OK) ? 1 : 0;
    return status;
}
