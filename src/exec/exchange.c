/* SPDX-License-Identifier: BSD-3-Clause */
/* Set-up collectives over the control plane: an allgather and a broadcast, on point-to-point messages. */
#include "exec/exchange.h"
#include "exec/idle.h"
#include "util/fiber.h"
#include "util/log.h"
#include "util/time.h"

#include <stdlib.h>
#include <string.h>

#define AGREE_ALL_WELL INT32_MAX

/* The deadline now; 0: none. */
static uint64_t limit_ns(mpath_patience_t patience)
{
    int limit_s = ((patience.here_s > 0) && !mpath_idle_others_may_rest()) ? patience.here_s : patience.limit_s;

    return (uint64_t)limit_s * MPATH_NS_PER_S;
}

/* *bytes_p, unless NULL, is the length of what has come. */
static mpath_status_t exchange_wait(const mpath_oob_t *oob, mpath_patience_t patience, int peer,
                                    mpath_oob_request_t *request, size_t *bytes_p)
{
    uint64_t warn_every_ns = (uint64_t)patience.warn_s * MPATH_NS_PER_S, warn_ns = warn_every_ns, waited_ns;
    mpath_status_t status;
    mpath_idle_t idle;

    mpath_idle_start(&idle);
    while ((status = oob->test(oob->context, request, bytes_p)) == MPATH_INPROGRESS) {
        oob->progress(oob->context);
        waited_ns = mpath_idle_wait(&idle);
        if (mpath_fiber_is_ending()) {
            status = MPATH_ERR_UNREACHABLE; /* the communicator goes; nobody waits for the result any more */
            break;
        }
        if ((limit_ns(patience) > 0) && (waited_ns > limit_ns(patience))) {
            mpath_error(
                "%s: rank %d waits for rank %d to set up the communicator; nothing came for %llu s, the call fails",
                oob->name, oob->rank, peer, (unsigned long long)(waited_ns / MPATH_NS_PER_S));
            return MPATH_ERR_TIMED_OUT;
        }
        if (waited_ns > warn_ns) {
            mpath_warn("%s: waiting %llu s for rank %d to set up the communicator", oob->name,
                       (unsigned long long)(waited_ns / MPATH_NS_PER_S), peer);
            warn_ns += warn_every_ns;
        }
    }
    if ((status != MPATH_OK) && (status != MPATH_ERR_TRUNCATED)) {
        mpath_error("%s: exchange with rank %d failed (%s); the communicator cannot be set up", oob->name, peer,
                    mpath_status_string(status));
    }
    return status;
}

/* One step of an exchange: a message to `to` and one from `from`; -1 leaves out that half. */
typedef struct step {
    int to, from;
    const void *out;
    void *in;
    size_t out_bytes, in_bytes; /* in_bytes becomes the length of what has come */
} step_t;

static mpath_status_t exchange_step(const mpath_oob_t *oob, mpath_patience_t patience, step_t *step)
{
    mpath_oob_request_t send = {NULL}, receive = {NULL};
    mpath_status_t status = MPATH_OK, sent = MPATH_OK;

    if (step->from >= 0) {
        status = oob->irecv(oob->context, step->from, step->in, step->in_bytes, &receive);
    }
    if (status == MPATH_OK && step->to >= 0) {
        status = oob->isend(oob->context, step->to, step->out, step->out_bytes, &send);
    }
    if (status != MPATH_OK) {
        mpath_error("%s: cannot exchange with ranks %d and %d (%s); the communicator cannot be set up", oob->name,
                    step->to, step->from, mpath_status_string(status));
    }
    if (status == MPATH_OK && step->from >= 0) {
        status = exchange_wait(oob, patience, step->from, &receive, &step->in_bytes);
    }
    if ((status == MPATH_OK || status == MPATH_ERR_TRUNCATED) && step->to >= 0) {
        sent = exchange_wait(oob, patience, step->to, &send, NULL);
    }
    if (receive.handle != NULL) { /* left behind by a failure */
        oob->cancel(oob->context, &receive);
    }
    if (send.handle != NULL) {
        oob->cancel(oob->context, &send);
    }
    return sent != MPATH_OK ? sent : status;
}

/* A step of a member that has failed: an empty message stands for that; what comes does not matter. */
static mpath_status_t exchange_failed_step(const mpath_oob_t *oob, mpath_patience_t patience, step_t *step)
{
    char nothing = 0;
    mpath_status_t status;

    step->out       = &nothing;
    step->in        = &nothing;
    step->out_bytes = 0;
    step->in_bytes  = 0;
    status          = exchange_step(oob, patience, step);
    return status == MPATH_ERR_TRUNCATED ? MPATH_OK : status;
}

/* A full message, or the empty one of a member that has failed. */
static mpath_status_t check_length(const mpath_oob_t *oob, int peer, size_t bytes, size_t expected)
{
    if (bytes == expected) {
        return MPATH_OK;
    }
    if (bytes == 0) {
        return MPATH_DECLINED;
    }
    mpath_error("%s: rank %d sent %zu bytes where %zu were expected; the communicator cannot be set up", oob->name,
                peer, bytes, expected);
    return MPATH_ERR_INTERNAL;
}

mpath_status_t mpath_exchange_allgather(const mpath_oob_t *oob, mpath_patience_t patience, const int *members,
                                        int num_members, int me, const void *mine, size_t bytes, void *all)
{
    int can_gather      = mine != NULL && all != NULL;
    char *blocks        = can_gather ? malloc((size_t)num_members * bytes)
                                     : NULL; /* i is that of member (me + i) % num_members */
    mpath_status_t fate = blocks != NULL ? MPATH_OK : MPATH_ERR_NO_MEMORY, status = MPATH_OK;

    if (blocks != NULL) {
        memcpy(blocks, mine, bytes);
    } else {
        mpath_error("%s: no memory to gather %zu bytes of %d ranks; the communicator cannot be set up", oob->name,
                    bytes, num_members);
    }
    for (int have = 1; have < num_members && status == MPATH_OK; have *= 2) {
        int count   = have < num_members - have ? have : num_members - have;
        int to      = (me - have + num_members) % num_members;
        int from    = (me + have) % num_members;
        step_t step = {.to        = members != NULL ? members[to] : to,
                       .from      = members != NULL ? members[from] : from,
                       .out       = blocks,
                       .in        = fate == MPATH_OK ? blocks + (size_t)have * bytes : NULL,
                       .out_bytes = (size_t)count * bytes,
                       .in_bytes  = (size_t)count * bytes};

        if (fate == MPATH_OK) {
            status = exchange_step(oob, patience, &step);
            fate   = status == MPATH_OK ? check_length(oob, step.from, step.in_bytes, (size_t)count * bytes) : fate;
        } else {
            status = exchange_failed_step(oob, patience, &step);
        }
    }
    if (status == MPATH_OK && fate == MPATH_OK) {
        size_t front = (size_t)(num_members - me) * bytes;

        memcpy((char *)all + (size_t)me * bytes, blocks, front);
        memcpy(all, blocks + front, (size_t)me * bytes);
    }
    free(blocks);
    return status != MPATH_OK ? status : fate;
}

mpath_status_t mpath_exchange_broadcast(const mpath_oob_t *oob, mpath_patience_t patience, const int *members,
                                        int num_members, int me, void *data, size_t bytes)
{
    step_t step           = {.to = -1, .from = -1};
    mpath_status_t status = MPATH_OK;

    if (me != 0) {
        step.from     = members[0];
        step.in       = data;
        step.in_bytes = bytes;
        status        = data != NULL ? exchange_step(oob, patience, &step) : exchange_failed_step(oob, patience, &step);
        if (data == NULL && status == MPATH_OK) {
            return MPATH_ERR_NO_MEMORY;
        }
        return status == MPATH_OK ? check_length(oob, members[0], step.in_bytes, bytes) : status;
    }
    for (int i = 1; i < num_members && status == MPATH_OK; i++) {
        step.to        = members[i];
        step.out       = data;
        step.out_bytes = bytes;
        status = data != NULL ? exchange_step(oob, patience, &step) : exchange_failed_step(oob, patience, &step);
    }
    return status;
}

/* What a rank has heard of so far; the lower number wins. */
typedef struct verdict {
    int32_t rank; /* that has failed; AGREE_ALL_WELL: none */
    int32_t status;
} verdict_t;

mpath_status_t mpath_exchange_agree(const mpath_oob_t *oob, mpath_patience_t patience, mpath_status_t mine)
{
    verdict_t verdict     = {.rank = mine == MPATH_OK ? AGREE_ALL_WELL : oob->rank, .status = (int32_t)mine}, heard;
    mpath_status_t status = MPATH_OK;

    for (int distance = 1; distance < oob->size && status == MPATH_OK; distance *= 2) {
        step_t step = {.to        = (oob->rank - distance + oob->size) % oob->size,
                       .from      = (oob->rank + distance) % oob->size,
                       .out       = &verdict,
                       .in        = &heard,
                       .out_bytes = sizeof(verdict),
                       .in_bytes  = sizeof(heard)};

        status = exchange_step(oob, patience, &step);
        if (status == MPATH_OK) {
            status = step.in_bytes == sizeof(heard) ? MPATH_OK : MPATH_ERR_INTERNAL;
        }
        if (status == MPATH_OK && heard.rank < verdict.rank) {
            verdict = heard;
        }
    }
    if (status != MPATH_OK || mine != MPATH_OK) {
        return status != MPATH_OK ? status : mine;
    }
    if (verdict.rank == AGREE_ALL_WELL) {
        return MPATH_OK;
    }
    mpath_info("%s: rank %d cannot set up the communicator (%s); the previous functions serve it", oob->name,
               (int)verdict.rank, mpath_status_string((mpath_status_t)verdict.status));
    return MPATH_DECLINED;
}
