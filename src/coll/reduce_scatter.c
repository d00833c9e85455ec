/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduce_scatter: small blocks travel in the agreement, straight to who combines them; others are shared out over the
 * rails.
 */
#include "coll/symmetric_private.h"

#include <stdlib.h>
#include <string.h>

/* What the call is about, in bytes. */
typedef struct sizes {
    uint64_t total, largest; /* of all blocks, of one */
    uint64_t mine, stride;   /* of this rank's block */
} sizes_t;

static void measure(const mpath_symmetric_t *symmetric, const uint64_t *elements, uint64_t element_bytes,
                    sizes_t *sizes)
{
    memset(sizes, 0, sizeof(*sizes));
    for (int rank = 0; rank < symmetric->size; rank++) {
        uint64_t bytes = elements[rank] * element_bytes;

        sizes->total += bytes;
        sizes->largest = (bytes > sizes->largest) ? bytes : sizes->largest;
    }
    sizes->mine   = elements[symmetric->rank] * element_bytes;
    sizes->stride = (sizes->mine + 63) / 64 * 64;
}

static void describe(mpath_symmetric_t *symmetric, const uint64_t *elements, uint64_t element_bytes,
                     const sizes_t *sizes)
{
    uint64_t at = 0;

    for (int rank = 0; rank < symmetric->size; rank++) {
        symmetric->send_bytes[rank]   = elements[rank] * element_bytes;
        symmetric->send_offsets[rank] = at;
        symmetric->recv_bytes[rank]   = sizes->mine;
        symmetric->recv_offsets[rank] = (uint64_t)rank * sizes->stride;
        at += symmetric->send_bytes[rank];
    }
}

/* Room for what may travel in the agreement, or for the result when the input lies where it goes. */
static char *make_room(mpath_symmetric_t *symmetric, const sizes_t *sizes, int in_place)
{
    uint64_t inside = (sizes->mine <= symmetric->settings->small_bytes) ? (uint64_t)symmetric->size * sizes->stride : 0;
    uint64_t result = in_place ? sizes->stride : 0, bytes = (inside > result) ? inside : result;

    return mpath_symmetric_scratch(symmetric, (bytes > 0) ? bytes : 1);
}

static void finish_small(mpath_symmetric_t *symmetric, const void *send, void *recv, const sizes_t *sizes,
                         const mpath_combination_t *combination)
{
    char *scratch = symmetric->scratch;

    if (sizes->mine > 0) {
        memcpy(scratch + (uint64_t)symmetric->rank * sizes->stride,
               (const char *)send + symmetric->send_offsets[symmetric->rank], sizes->mine);
        memcpy(recv,
               mpath_symmetric_combine(symmetric, scratch, sizes->stride, sizes->mine / combination->element_bytes,
                                       combination),
               sizes->mine);
    }
}

/* On GPUs nothing is in place. */
static mpath_status_t carry(mpath_symmetric_t *symmetric, mpath_share_job_t *job, const sizes_t *sizes)
{
    int in_place = job->send_buffer == job->recv_buffer;
    void *recv   = job->recv_buffer;
    mpath_status_t status;

    job->recv_buffer = in_place ? symmetric->scratch : recv;
    memset(symmetric->recv_offsets, 0, (size_t)symmetric->size * sizeof(*symmetric->recv_offsets));
    status = mpath_symmetric_share(symmetric, MPATH_OPERATION_REDUCE_SCATTER, sizes->total, job);
    if ((status == MPATH_OK) && in_place && (sizes->mine > 0)) {
        memcpy(recv, symmetric->scratch, sizes->mine);
    }
    return status;
}

static mpath_share_job_t job_of(const mpath_symmetric_t *symmetric, const mpath_symmetric_buffers_t *buffers,
                                const uint64_t *elements, const mpath_combination_t *combination)
{
    return (mpath_share_job_t){.flags           = MPATH_SHARE_REDUCE,
                               .element_bytes   = combination->element_bytes,
                               .block_elements  = elements,
                               .send_buffer     = buffers->send,
                               .send_offsets    = symmetric->send_offsets,
                               .recv_buffer     = buffers->recv,
                               .recv_offsets    = symmetric->recv_offsets,
                               .reduce          = combination->reduce,
                               .reduce_argument = combination->argument};
}

/* `gpus` NULL: host memory on all ranks. */
static mpath_status_t reduce_scatter(mpath_symmetric_t *symmetric, const mpath_symmetric_buffers_t *buffers,
                                     const uint64_t *elements, const mpath_combination_t *combination,
                                     mpath_share_gpus_t *gpus)
{
    int algorithm         = symmetric->settings->reduce_scatter_algorithm, finished;
    mpath_share_job_t job = job_of(symmetric, buffers, elements, combination);
    mpath_agreed_t agreed;
    sizes_t sizes;
    mpath_status_t status;
    char *scratch;

    measure(symmetric, elements, combination->element_bytes, &sizes);
    status = mpath_symmetric_gate(symmetric, algorithm, job.flags, sizes.total, sizes.largest, gpus != NULL);
    if (status != MPATH_OK) {
        return status;
    }
    if (gpus != NULL) {
        gpus->send_bytes = sizes.total;
        gpus->recv_bytes = sizes.mine;
        job.gpus         = gpus;
    }
    describe(symmetric, elements, combination->element_bytes, &sizes);
    scratch = make_room(symmetric, &sizes, buffers->send == buffers->recv);
    status  = mpath_symmetric_agree(symmetric, MPATH_OPERATION_REDUCE_SCATTER, algorithm, buffers->send, scratch,
                                    buffers->ineligible || (scratch == NULL), &job, &agreed, &finished);
    if (status != MPATH_OK) {
        return status;
    }
    job.call = agreed.call;
    if (finished || (sizes.total == 0)) {
        finish_small(symmetric, buffers->send, buffers->recv, &sizes, combination);
    } else {
        status = carry(symmetric, &job, &sizes);
    }
    symmetric->counters.calls += (status == MPATH_OK) ? 1 : 0;
    return status;
}

mpath_status_t mpath_reduce_scatter(mpath_symmetric_t *symmetric, const void *send, void *recv,
                                    const uint64_t *elements, const mpath_combination_t *combination, int ineligible)
{
    const mpath_symmetric_buffers_t buffers = {.send = send, .recv = recv, .ineligible = ineligible};

    return reduce_scatter(symmetric, &buffers, elements, combination, NULL);
}

mpath_status_t mpath_reduce_scatter_anywhere(mpath_symmetric_t *symmetric, const mpath_symmetric_buffers_t *buffers,
                                             const uint64_t *elements, const mpath_combination_t *combination,
                                             const mpath_reduce_how_t *how)
{
    uint64_t declined       = symmetric->counters.declined;
    mpath_share_gpus_t gpus = {.send_memory = buffers->send_memory, .recv_memory = buffers->recv_memory, .how = *how};

    return mpath_symmetric_uncounted(symmetric, declined,
                                     reduce_scatter(symmetric, buffers, elements, combination, &gpus));
}
