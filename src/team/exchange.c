/* SPDX-License-Identifier: BSD-3-Clause */
/* Set-up collectives over the control plane: an allgather and a broadcast, on point-to-point messages. */
#include "team/exchange.h"
#include "team/wait.h"
#include "util/fiber.h"
#include "util/log.h"
#include "util/time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AGREE_ALL_WELL INT32_MAX

/* A message of an exchange. */
typedef struct exchange_wait {
    const mpath_oob_t *oob;
    mpath_oob_request_t *request;
    size_t *bytes_p; /* unless NULL: the length of what has come */
    int peer;
    mpath_wait_t *wait;
    int is_told; /* why it ends has been said, here and to the others */
} exchange_wait_t;

static mpath_status_t exchange_look(void *engine, int *events_p)
{
    const exchange_wait_t *wait = engine;
    mpath_status_t status       = wait->oob->test(wait->oob->context, wait->request, wait->bytes_p);

    *events_p = 0;
    if (status == MPATH_INPROGRESS && mpath_fiber_is_ending()) {
        return MPATH_ERR_UNREACHABLE; /* the communicator goes; nobody waits for the result any more */
    }
    return status;
}

static int exchange_edge(const void *engine, mpath_wait_why_t why, int *rank_p, char *text, size_t size)
{
    const exchange_wait_t *wait = engine;

    (void)why;
    *rank_p = wait->peer;
    snprintf(text, size, "%s: rank %d waits for rank %d to set up the communicator", wait->oob->name, wait->oob->rank,
             wait->peer);
    return 1;
}

static void exchange_give_up(const mpath_oob_t *oob, mpath_status_t reason, int peer)
{
    if (oob->give_up != NULL) {
        oob->give_up(oob->context, reason, peer);
    }
}

/* Are the processes of this node there, and has nobody given the set-up up? Has said what is not. */
static mpath_status_t exchange_check(void *engine, uint64_t waited_ns)
{
    exchange_wait_t *wait = engine;
    mpath_status_t status = wait->oob->look != NULL ? wait->oob->look(wait->oob->context) : MPATH_OK;

    if (wait->wait->page == NULL) { /* there is no team yet that has one */
        wait->wait->page = mpath_page_slot_take(wait->oob->name, wait->oob->rank, wait->oob->size);
        if (wait->wait->page != NULL) {
            mpath_count_set(&wait->wait->page->began_ns, mpath_time_ns() - waited_ns);
            atomic_store_explicit(&wait->wait->page->phase, MPATH_RECORD_SETUP, memory_order_relaxed);
        }
    }
    wait->is_told = status != MPATH_OK;
    return status;
}

/* *bytes_p, unless NULL, is the length of what has come. */
static mpath_status_t exchange_wait(const mpath_oob_t *oob, mpath_patience_t patience, int peer,
                                    mpath_oob_request_t *request, size_t *bytes_p)
{
    static const mpath_wait_ops_t ops = {.look = exchange_look, .check = exchange_check, .edge = exchange_edge};
    mpath_wait_t wait                 = {.oob          = oob,
                                         .turn_mask    = MPATH_WAIT_TURN_ALWAYS,
                                         .limit_s      = patience.here_s > 0 ? patience.here_s : patience.limit_s,
                                         .rest_limit_s = patience.limit_s,
                                         .word_s       = patience.warn_s};
    exchange_wait_t engine = {.oob = oob, .request = request, .bytes_p = bytes_p, .peer = peer, .wait = &wait};
    mpath_status_t status  = mpath_wait(&wait, &ops, &engine);

    if (wait.page != NULL) {
        mpath_page_slot_give(wait.page);
    }
    if (engine
            .is_told) { /* not this rank's own edge, which leads from the rank that was named to the one that is missing */
        char text[MPATH_WAIT_TEXT];
        int rank;

        (void)exchange_edge(&engine, MPATH_WAIT_FAILS, &rank, text, sizeof(text));
        mpath_error("%s, which has been given up; the call fails", text);
        return status;
    }
    if (status == MPATH_ERR_TIMED_OUT) { /* has been said */
        exchange_give_up(oob, status, peer);
    } else if (status != MPATH_OK && status != MPATH_ERR_TRUNCATED) {
        mpath_error("%s: exchange with rank %d failed (%s); the communicator cannot be set up", oob->name, peer,
                    mpath_status_string(status));
        if (!mpath_fiber_is_ending()) {
            exchange_give_up(oob, status, peer);
        }
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

/*
 * A member that has no memory for a message takes part with an empty one, which says so; what comes does not matter
 * then. *fate_p becomes MPATH_ERR_NO_MEMORY in that case.
 */
static mpath_status_t post_receive(const mpath_oob_t *oob, const step_t *step, mpath_oob_request_t *request,
                                   mpath_status_t *fate_p)
{
    mpath_status_t status = oob->irecv(oob->context, step->from, step->in, step->in_bytes, request);

    if ((status == MPATH_ERR_NO_MEMORY) && (step->in_bytes > 0)) {
        *fate_p = status;
        status  = oob->irecv(oob->context, step->from, step->in, 0, request);
    }
    return status;
}

static mpath_status_t post_send(const mpath_oob_t *oob, const step_t *step, mpath_oob_request_t *request,
                                mpath_status_t *fate_p)
{
    mpath_status_t status = oob->isend(oob->context, step->to, step->out, step->out_bytes, request);

    if ((status == MPATH_ERR_NO_MEMORY) && (step->out_bytes > 0)) {
        *fate_p = status;
        status  = oob->isend(oob->context, step->to, step->out, 0, request);
    }
    return status;
}

/* *fate_p: this member's, MPATH_OK before. The status is that of the control plane. */
static mpath_status_t exchange_step(const mpath_oob_t *oob, mpath_patience_t patience, step_t *step,
                                    mpath_status_t *fate_p)
{
    mpath_oob_request_t send = {NULL}, receive = {NULL};
    mpath_status_t status = MPATH_OK, sent = MPATH_OK;
    int peer = -1;

    if (step->from >= 0) {
        status = post_receive(oob, step, &receive, fate_p);
        peer   = step->from;
    }
    if (status == MPATH_OK && step->to >= 0) {
        status = post_send(oob, step, &send, fate_p);
        peer   = step->to;
    }
    if (status != MPATH_OK) {
        mpath_error("%s: nothing can be exchanged with rank %d (%s); the communicator cannot be set up", oob->name,
                    peer, mpath_status_string(status));
        exchange_give_up(oob, status, peer);
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
    status = (status == MPATH_ERR_TRUNCATED && *fate_p != MPATH_OK) ? MPATH_OK : status;
    return sent != MPATH_OK ? sent : status;
}

/* A step of a member that has failed before. */
static mpath_status_t exchange_failed_step(const mpath_oob_t *oob, mpath_patience_t patience, step_t *step)
{
    mpath_status_t fate = MPATH_ERR_NO_MEMORY;
    char nothing        = 0;

    step->out       = &nothing;
    step->in        = &nothing;
    step->out_bytes = 0;
    step->in_bytes  = 0;
    return exchange_step(oob, patience, step, &fate);
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
            status = exchange_step(oob, patience, &step, &fate);
            if (status == MPATH_OK && fate == MPATH_OK) {
                fate = check_length(oob, step.from, step.in_bytes, (size_t)count * bytes);
            }
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
    mpath_status_t status = MPATH_OK, fate = data != NULL ? MPATH_OK : MPATH_ERR_NO_MEMORY;

    if (me != 0) {
        step.from     = members[0];
        step.in       = data;
        step.in_bytes = bytes;
        status = data != NULL ? exchange_step(oob, patience, &step, &fate) : exchange_failed_step(oob, patience, &step);
        if (status == MPATH_OK && fate == MPATH_OK) {
            fate = check_length(oob, members[0], step.in_bytes, bytes);
        }
        return status != MPATH_OK ? status : fate;
    }
    for (int i = 1; i < num_members && status == MPATH_OK; i++) {
        step.to        = members[i];
        step.out       = data;
        step.out_bytes = bytes;
        status = data != NULL ? exchange_step(oob, patience, &step, &fate) : exchange_failed_step(oob, patience, &step);
    }
    return status != MPATH_OK || data == NULL ? status : fate;
}

/* What a rank has heard of so far: of one that has given up if there is such, else the lower number wins. */
typedef struct verdict {
    int32_t rank; /* that has failed; AGREE_ALL_WELL: none */
    int32_t status;
} verdict_t;

static int verdict_wins(const verdict_t *heard, const verdict_t *verdict)
{
    int heard_parted = mpath_exchange_is_parted((mpath_status_t)heard->status);
    int parted       = mpath_exchange_is_parted((mpath_status_t)verdict->status);

    return heard_parted != parted ? heard_parted : heard->rank < verdict->rank;
}

mpath_status_t mpath_exchange_agree(const mpath_oob_t *oob, mpath_patience_t patience, mpath_status_t mine)
{
    verdict_t verdict     = {.rank = mine == MPATH_OK ? AGREE_ALL_WELL : oob->rank, .status = (int32_t)mine}, heard;
    mpath_status_t status = MPATH_OK, fate = MPATH_OK;

    for (int distance = 1; distance < oob->size && status == MPATH_OK; distance *= 2) {
        step_t step = {.to        = (oob->rank - distance + oob->size) % oob->size,
                       .from      = (oob->rank + distance) % oob->size,
                       .out       = &verdict,
                       .in        = &heard,
                       .out_bytes = sizeof(verdict),
                       .in_bytes  = sizeof(heard)};

        status = exchange_step(oob, patience, &step, &fate);
        status = status == MPATH_OK ? fate : status;
        if (status == MPATH_OK) {
            status = step.in_bytes == sizeof(heard) ? MPATH_OK : MPATH_ERR_INTERNAL;
        }
        if (status == MPATH_OK && verdict_wins(&heard, &verdict)) {
            verdict = heard;
        }
    }
    if (status != MPATH_OK || verdict.rank == oob->rank || verdict.rank == AGREE_ALL_WELL) {
        return status != MPATH_OK ? status : mine;
    }
    if (mpath_exchange_is_parted((mpath_status_t)verdict.status)) {
        mpath_error("%s: rank %d has given up to set up the communicator (%s), which fails", oob->name,
                    (int)verdict.rank, mpath_status_string((mpath_status_t)verdict.status));
        return (mpath_status_t)verdict.status;
    }
    if (mine != MPATH_OK) {
        return mine;
    }
    mpath_info_by(oob->rank == 0, "%s: rank %d cannot set up the communicator (%s); the previous functions serve it",
                  oob->name, (int)verdict.rank, mpath_status_string((mpath_status_t)verdict.status));
    return MPATH_DECLINED;
}

#define LET_GO_NS MPATH_NS_PER_S

typedef struct let_go {
    const mpath_oob_t *oob;
    mpath_oob_request_t *requests;
    int count;
    uint64_t end_ns;
} let_go_t;

static mpath_status_t let_go_look(void *engine, int *events_p)
{
    const let_go_t *going = engine;
    int left              = 0;

    *events_p = 0;
    for (int i = 0; i < going->count; i++) {
        left += going->requests[i].handle != NULL &&
                going->oob->test(going->oob->context, &going->requests[i], NULL) == MPATH_INPROGRESS;
    }
    return left > 0 && mpath_time_ns() < going->end_ns ? MPATH_INPROGRESS : MPATH_OK;
}

static int let_go_edge(const void *engine, mpath_wait_why_t why, int *rank_p, char *text, size_t size)
{
    (void)engine;
    (void)why;
    (void)rank_p;
    (void)text;
    (void)size;
    return 0;
}

void mpath_exchange_let_go(const mpath_oob_t *oob, mpath_oob_request_t *requests, int count)
{
    static const mpath_wait_ops_t ops = {.look = let_go_look, .edge = let_go_edge};
    mpath_wait_t wait                 = {.oob = oob, .turn_mask = MPATH_WAIT_TURN_ALWAYS};
    let_go_t going = {.oob = oob, .requests = requests, .count = count, .end_ns = mpath_time_ns() + LET_GO_NS};

    mpath_wait_start(&wait);
    (void)mpath_wait(&wait, &ops, &going);
}
