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

/*
 * Nodes have equal parts of the vector, and so have the ranks of a node: that is the least for every rail. Parts are cut
 * at multiples of `grain` elements.
 */
static void cut_blocks(mpath_symmetric_t *symmetric, uint64_t elements, uint64_t element_bytes, uint64_t grain)
{
    const mpath_topo_t *topo = mpath_team_topo(symmetric->team);
    uint64_t grains = elements / grain + (elements % grain != 0), nodes = (uint64_t)mpath_topo_num_nodes(topo), at = 0;

    for (int first = 0, last; first < symmetric->size; first = last) {
        uint64_t node = (uint64_t)mpath_topo_place(topo, symmetric->order[first])->node, part, ranks;

        last = first;
        while ((last < symmetric->size) && ((uint64_t)mpath_topo_place(topo, symmetric->order[last])->node == node)) {
            last++;
        }
        ranks = (uint64_t)(last - first);
        part  = grains / nodes + (node < grains % nodes);
        for (uint64_t i = 0; i < ranks; i++) {
            symmetric->elements[symmetric->order[first + (int)i]] = (part / ranks + (i < part % ranks)) * grain;
        }
    }
    for (int rank = 0; rank < symmetric->size; rank++) {
        uint64_t left = elements - at; /* the last grain may be short */

        symmetric->elements[rank]     = (symmetric->elements[rank] < left) ? symmetric->elements[rank] : left;
        symmetric->send_offsets[rank] = at * element_bytes;
        at += symmetric->elements[rank];
    }
}

static mpath_status_t carry(mpath_symmetric_t *symmetric, mpath_share_job_t *job, uint64_t elements, uint32_t call)
{
    uint64_t element_bytes = job->element_bytes;
    int in_grains          = (job->gpus != NULL) && (MPATH_SHARE_GRAIN_BYTES % element_bytes == 0);

    job->call = call;
    cut_blocks(symmetric, elements, element_bytes, in_grains ? MPATH_SHARE_GRAIN_BYTES / element_bytes : 1);
    return mpath_symmetric_share(symmetric, MPATH_OPERATION_ALLREDUCE, elements * element_bytes, job);
}

static mpath_share_job_t job_of(const mpath_symmetric_t *symmetric, const mpath_symmetric_buffers_t *buffers,
                                const mpath_combination_t *combination)
{
    return (mpath_share_job_t){.flags           = MPATH_SHARE_REDUCE | MPATH_SHARE_GATHER,
                               .element_bytes   = combination->element_bytes,
                               .block_elements  = symmetric->elements,
                               .send_buffer     = buffers->send,
                               .send_offsets    = symmetric->send_offsets,
                               .recv_buffer     = buffers->recv,
                               .recv_offsets    = symmetric->send_offsets,
                               .reduce          = combination->reduce,
                               .reduce_argument = combination->argument};
}

/* `gpus` NULL: host memory on all ranks. */
static mpath_status_t allreduce(mpath_symmetric_t *symmetric, const mpath_symmetric_buffers_t *buffers,
                                uint64_t elements, const mpath_combination_t *combination,
                                const mpath_share_gpus_t *gpus)
{
    int algorithm = symmetric->settings->allreduce_algorithm, ineligible = buffers->ineligible, finished;
    uint64_t bytes        = elements * combination->element_bytes, stride;
    mpath_share_job_t job = job_of(symmetric, buffers, combination);
    mpath_agreed_t agreed;
    mpath_status_t status = mpath_symmetric_gate(symmetric, algorithm, job.flags, bytes, bytes, gpus != NULL);
    char *scratch;

    if (status != MPATH_OK) {
        return status;
    }
    job.gpus   = gpus;
    scratch    = describe(symmetric, bytes, &stride);
    ineligible = ineligible || ((scratch == NULL) && (bytes <= symmetric->settings->small_bytes) && (bytes > 0));
    status = mpath_symmetric_agree(symmetric, MPATH_OPERATION_ALLREDUCE, algorithm, buffers->send, scratch, ineligible,
                                   &job, &agreed, &finished);
    if (status != MPATH_OK) {
        return status;
    }
    if (finished || (elements == 0)) {
        finish_small(symmetric, buffers->send, buffers->recv, elements, stride, combination);
    } else {
        status = carry(symmetric, &job, elements, agreed.call);
    }
    symmetric->counters.calls += (status == MPATH_OK) ? 1 : 0;
    return status;
}

mpath_status_t mpath_allreduce(mpath_symmetric_t *symmetric, const void *send, void *recv, uint64_t elements,
                               const mpath_combination_t *combination, int ineligible)
{
    const mpath_symmetric_buffers_t buffers = {.send = send, .recv = recv, .ineligible = ineligible};

    return allreduce(symmetric, &buffers, elements, combination, NULL);
}

mpath_status_t mpath_allreduce_anywhere(mpath_symmetric_t *symmetric, const mpath_symmetric_buffers_t *buffers,
                                        uint64_t elements, const mpath_combination_t *combination,
                                        const mpath_reduce_how_t *how)
{
    uint64_t declined             = symmetric->counters.declined;
    uint64_t bytes                = elements * combination->element_bytes;
    const mpath_share_gpus_t gpus = {.send_memory = buffers->send_memory,
                                     .recv_memory = buffers->recv_memory,
                                     .send_bytes  = bytes,
                                     .recv_bytes  = bytes,
                                     .how         = *how};

    return mpath_symmetric_uncounted(symmetric, declined, allreduce(symmetric, buffers, elements, combination, &gpus));
}
