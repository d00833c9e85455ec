/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduce: small vectors travel in the agreement and every rank combines them; others are shared out over the rails.
 */
#include "coll/symmetric_private.h"

#include <string.h>

/* Everybody's vector to everybody, as far as it is small. */
static char *describe(mpath_symmetric_t *symmetric, uint64_t bytes, uint64_t *stride_p)
{
    uint64_t stride = (bytes + 63) / 64 * 64;
    int small       = bytes <= symmetric->settings->small_bytes;

    for (int rank = 0; rank < symmetric->size; rank++) {
        symmetric->send_bytes[rank]   = bytes;
        symmetric->send_offsets[rank] = 0;
        symmetric->recv_bytes[rank]   = bytes;
        symmetric->recv_offsets[rank] = (uint64_t)rank * stride;
    }
    *stride_p = stride;
    return small ? mpath_symmetric_scratch(symmetric, (uint64_t)symmetric->size * stride) : NULL;
}

/* All vectors are here. */
static void finish_small(mpath_symmetric_t *symmetric, const void *send, void *recv, uint64_t elements, uint64_t stride,
                         const mpath_combination_t *combination)
{
    uint64_t bytes = elements * combination->element_bytes;

    if (bytes > 0) {
        memcpy(symmetric->scratch + (uint64_t)symmetric->rank * stride, send, bytes);
        memcpy(recv, mpath_symmetric_combine(symmetric, symmetric->scratch, stride, elements, combination), bytes);
    }
}

/* Nodes have equal parts of the vector, and so have the ranks of a node: that is the least for every rail. */
static void cut_blocks(mpath_symmetric_t *symmetric, uint64_t elements, uint64_t element_bytes)
{
    const mpath_topo_t *topo = mpath_team_topo(symmetric->team);
    uint64_t nodes = (uint64_t)mpath_topo_num_nodes(topo), at = 0;

    for (int first = 0, last; first < symmetric->size; first = last) {
        uint64_t node = (uint64_t)mpath_topo_place(topo, symmetric->order[first])->node, part, ranks;

        last = first;
        while ((last < symmetric->size) && ((uint64_t)mpath_topo_place(topo, symmetric->order[last])->node == node)) {
            last++;
        }
        ranks = (uint64_t)(last - first);
        part  = elements / nodes + (node < elements % nodes);
        for (uint64_t i = 0; i < ranks; i++) {
            symmetric->elements[symmetric->order[first + (int)i]] = part / ranks + (i < part % ranks);
        }
    }
    for (int rank = 0; rank < symmetric->size; rank++) {
        symmetric->send_offsets[rank] = at * element_bytes;
        at += symmetric->elements[rank];
    }
}

static mpath_status_t carry(mpath_symmetric_t *symmetric, const void *send, void *recv, uint64_t elements,
                            const mpath_combination_t *combination, uint32_t call)
{
    mpath_share_job_t job = {.flags           = MPATH_SHARE_REDUCE | MPATH_SHARE_GATHER,
                             .call            = call,
                             .element_bytes   = combination->element_bytes,
                             .block_elements  = symmetric->elements,
                             .send_buffer     = send,
                             .send_offsets    = symmetric->send_offsets,
                             .recv_buffer     = recv,
                             .recv_offsets    = symmetric->send_offsets,
                             .reduce          = combination->reduce,
                             .reduce_argument = combination->argument};

    cut_blocks(symmetric, elements, combination->element_bytes);
    return mpath_symmetric_share(symmetric, MPATH_OPERATION_ALLREDUCE, elements * combination->element_bytes, &job);
}

mpath_status_t mpath_allreduce(mpath_symmetric_t *symmetric, const void *send, void *recv, uint64_t elements,
                               const mpath_combination_t *combination, int ineligible)
{
    int algorithm  = symmetric->settings->allreduce_algorithm, finished;
    uint64_t bytes = elements * combination->element_bytes, stride;
    mpath_agreed_t agreed;
    mpath_status_t status = mpath_symmetric_gate(symmetric, algorithm, MPATH_SHARE_REDUCE | MPATH_SHARE_GATHER, bytes,
                                                 bytes);
    char *scratch;

    if (status != MPATH_OK) {
        return status;
    }
    scratch    = describe(symmetric, bytes, &stride);
    ineligible = ineligible || ((scratch == NULL) && (bytes <= symmetric->settings->small_bytes) && (bytes > 0));
    status = mpath_symmetric_agree(symmetric, MPATH_OPERATION_ALLREDUCE, algorithm, send, scratch, ineligible, &agreed,
                                   &finished);
    if (status != MPATH_OK) {
        return status;
    }
    if (finished || (elements == 0)) {
        finish_small(symmetric, send, recv, elements, stride, combination);
    } else {
        status = carry(symmetric, send, recv, elements, combination, agreed.call);
    }
    symmetric->counters.calls += (status == MPATH_OK) ? 1 : 0;
    return status;
}
