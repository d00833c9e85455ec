/* SPDX-License-Identifier: BSD-3-Clause */
/* Set-up collectives over the control plane: an allgather and a broadcast, on point-to-point messages. */
#include "exec/exchange.h"
#include "exec/idle.h"
#include "util/fiber.h"
#include "util/log.h"
#include "util/time.h"

#include <stdlib.h>
#include <string.h>

static mpath_status_t exchange_wait(const mpath_oob_t *oob, int timeout_s, int peer, mpath_oob_request_t *request,
                                    const size_t *expected)
{
    uint64_t patience_ns = (uint64_t)timeout_s * MPATH_NS_PER_S, waited_ns, warn_ns = patience_ns;
    size_t bytes = 0;
    mpath_status_t status;
    mpath_idle_t idle;

    mpath_idle_start(&idle);
    while ((status = oob->test(oob->context, request, expected != NULL ? &bytes : NULL)) == MPATH_INPROGRESS) {
        oob->progress(oob->context);
        waited_ns = mpath_idle_wait(&idle);
        if (mpath_fiber_is_ending()) {
            status = MPATH_ERR_UNREACHABLE; /* the communicator goes; nobody waits for the result any more */
            break;
        }
        if (waited_ns > warn_ns) {
            mpath_warn("%s: waiting %llu s for rank %d to set up the communicator", oob->name,
                       (unsigned long long)(waited_ns / MPATH_NS_PER_S), peer);
            warn_ns += patience_ns;
        }
    }
    if (status == MPATH_OK && expected != NULL && bytes != *expected) {
        mpath_error("%s: rank %d sent %zu bytes where %zu were expected; mpath does not serve the communicator",
                    oob->name, peer, bytes, *expected);
        return MPATH_ERR_INTERNAL;
    }
    if (status != MPATH_OK) {
        mpath_error("%s: exchange with rank %d failed (%s); mpath does not serve the communicator", oob->name, peer,
                    mpath_status_string(status));
    }
    return status;
}

/* Sends to one peer and receives from another; NULL data leaves out that half. */
static mpath_status_t exchange_step(const mpath_oob_t *oob, int timeout_s, int to, const void *out, size_t out_bytes,
                                    int from, void *in, size_t in_bytes)
{
    mpath_oob_request_t send = {NULL}, receive = {NULL};
    mpath_status_t status = MPATH_OK;

    if (in != NULL) {
        status = oob->irecv(oob->context, from, in, in_bytes, &receive);
    }
    if (status == MPATH_OK && out != NULL) {
        status = oob->isend(oob->context, to, out, out_bytes, &send);
    }
    if (status != MPATH_OK) {
        mpath_error("%s: cannot exchange with ranks %d and %d (%s); mpath does not serve the communicator", oob->name,
                    to, from, mpath_status_string(status));
    }
    if (status == MPATH_OK && in != NULL) {
        status = exchange_wait(oob, timeout_s, from, &receive, &in_bytes);
    }
    if (status == MPATH_OK && out != NULL) {
        status = exchange_wait(oob, timeout_s, to, &send, NULL);
    }
    if (receive.handle != NULL) { /* left behind by a failure */
        oob->cancel(oob->context, &receive);
    }
    if (send.handle != NULL) {
        oob->cancel(oob->context, &send);
    }
    return status;
}

mpath_status_t mpath_exchange_allgather(const mpath_oob_t *oob, int timeout_s, const int *members, int num_members,
                                        int me, const void *mine, size_t bytes, void *all)
{
    char *blocks          = malloc((size_t)num_members * bytes); /* block i is that of member (me + i) % num_members */
    mpath_status_t status = MPATH_OK;

    if (blocks == NULL) {
        mpath_error("%s: no memory to gather %zu bytes of %d ranks; mpath does not serve the communicator", oob->name,
                    bytes, num_members);
        return MPATH_ERR_NO_MEMORY;
    }
    memcpy(blocks, mine, bytes);
    for (int have = 1; have < num_members && status == MPATH_OK; have *= 2) {
        int count = have < num_members - have ? have : num_members - have;
        int to    = (me - have + num_members) % num_members;
        int from  = (me + have) % num_members;

        status = exchange_step(oob, timeout_s, members != NULL ? members[to] : to, blocks, (size_t)count * bytes,
                               members != NULL ? members[from] : from, blocks + (size_t)have * bytes,
                               (size_t)count * bytes);
    }
    if (status == MPATH_OK) {
        size_t front = (size_t)(num_members - me) * bytes;

        memcpy((char *)all + (size_t)me * bytes, blocks, front);
        memcpy(all, blocks + front, (size_t)me * bytes);
    }
    free(blocks);
    return status;
}

mpath_status_t mpath_exchange_broadcast(const mpath_oob_t *oob, int timeout_s, const int *members, int num_members,
                                        int me, void *data, size_t bytes)
{
    mpath_status_t status = MPATH_OK;

    if (me != 0) {
        return exchange_step(oob, timeout_s, -1, NULL, 0, members[0], data, bytes);
    }
    for (int i = 1; i < num_members && status == MPATH_OK; i++) {
        status = exchange_step(oob, timeout_s, members[i], data, bytes, -1, NULL, 0);
    }
    return status;
}
