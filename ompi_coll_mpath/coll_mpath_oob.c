/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control plane on the PML. Messages are copied through buffers that this file owns, so that a request can be given up
 * at any time: what the PML still holds keeps its own memory until it lets go.
 *
 * Processes that are gone while the ranks of a communicator set something up. Who waits in an exchange looks now and then
 * whether the processes of its node live (coll_mpath_peers.c), and listens whether anybody has given up: on processes of
 * other nodes it depends on those beside them. Who finds out is not alone in waiting, for the one that is gone or for each
 * other, so all are told, by a message of their own, and all come out with the same error. On a node where nobody of the
 * communicator is left nobody looks, and only deadlines end the wait.
 *
 * What ranks ask each other before there is a team, or beside it. Where that fails, because one of them is gone or does
 * not come, this rank cannot know what the others do: every call on the communicator fails from then on, on all of them,
 * as they are told.
 */
#include "coll_mpath.h"
#include "coll_mpath_peers.h"

#include "ompi/mca/pml/pml.h"
#include "ompi/request/request.h"
#include "opal/runtime/opal_progress.h"

#include "lane/segment.h"
#include "team/exchange.h"
#include "util/fiber.h"
#include "util/log.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Looks at the requests that were given up, before they are left to the PML for good. */
#define OOB_LAST_LOOKS 1000

/*
 * Without memory a rank still has to tell the others so, or they would wait for it. The words with which it does are
 * short, and one of either direction is under way at a time; more is for several threads.
 */
#define OOB_RESERVE 16
#define OOB_RESERVE_BYTES 64

typedef struct mca_coll_mpath_oob_message_t {
    struct mca_coll_mpath_oob_message_t *next; /* among those given up */
    ompi_request_t *request;
    bool is_receive;
    void *to; /* of a receive: where the data goes */
    char data[];
} oob_message_t;

typedef union oob_reserve_t {
    union oob_reserve_t *next; /* among the free ones */
    max_align_t aligned;
    char storage[sizeof(oob_message_t) + OOB_RESERVE_BYTES];
} oob_reserve_t;

static oob_reserve_t reserve[OOB_RESERVE];
static oob_reserve_t *reserve_free; /* those that have been used before */
static int reserve_begun;
static pthread_mutex_t reserve_lock = PTHREAD_MUTEX_INITIALIZER;

static mpath_status_t loss_look(mca_coll_mpath_module_t *module);

static oob_message_t *reserve_take(size_t bytes)
{
    oob_reserve_t *taken = NULL;

    if (OOB_RESERVE_BYTES < bytes) {
        return NULL;
    }
    pthread_mutex_lock(&reserve_lock);
    if (NULL != reserve_free) {
        taken        = reserve_free;
        reserve_free = taken->next;
    } else if (OOB_RESERVE > reserve_begun) {
        taken = &reserve[reserve_begun++];
    }
    pthread_mutex_unlock(&reserve_lock);
    return (oob_message_t *)(void *)taken;
}

static void oob_message_free(oob_message_t *message)
{
    oob_reserve_t *taken = (oob_reserve_t *)(void *)message;

    if ((taken < reserve) || (taken >= reserve + OOB_RESERVE)) {
        free(message);
        return;
    }
    pthread_mutex_lock(&reserve_lock);
    taken->next  = reserve_free;
    reserve_free = taken;
    pthread_mutex_unlock(&reserve_lock);
}

static oob_message_t *oob_message_new(size_t bytes)
{
    oob_message_t *message = malloc(sizeof(*message) + bytes);

    if (NULL == message) {
        message = reserve_take(bytes);
    }
    if (NULL == message) {
        mpath_error("no memory for a control message of %zu bytes", bytes);
        return NULL;
    }
    message->next       = NULL;
    message->request    = NULL;
    message->is_receive = false;
    message->to         = NULL;
    return message;
}

static mpath_status_t oob_status(int rc)
{
    if (MPI_ERR_TRUNCATE == rc) {
        return MPATH_ERR_TRUNCATED;
    }
    return MPATH_ERR_UNREACHABLE;
}

/* Frees a finished request; *bytes_p is the length of a received message. */
static mpath_status_t oob_message_finish(oob_message_t *message, size_t *bytes_p)
{
    ompi_status_public_t status;
    int finished = 0, rc;

    status.MPI_ERROR = MPI_SUCCESS;
    rc               = ompi_request_test(&message->request, &finished, &status);
    if ((MPI_SUCCESS != rc) || (MPI_SUCCESS != status.MPI_ERROR)) {
        rc = (MPI_SUCCESS != status.MPI_ERROR) ? status.MPI_ERROR : rc;
        return oob_status(rc);
    }
    *bytes_p = status._ucount;
    return MPATH_OK;
}

static mpath_status_t oob_isend(void *context, int to, const void *data, size_t bytes, mpath_oob_request_t *request)
{
    mca_coll_mpath_oob_t *oob = context;
    oob_message_t *message    = oob_message_new(bytes);
    int rc;

    if (NULL == message) {
        return MPATH_ERR_NO_MEMORY;
    }
    if (bytes > 0) {
        memcpy(message->data, data, bytes);
    }
    rc = MCA_PML_CALL(isend(message->data, bytes, &ompi_mpi_byte.dt, to, oob->tag, MCA_PML_BASE_SEND_STANDARD,
                            oob->comm, &message->request));
    if (OMPI_SUCCESS != rc) {
        /* those who wait send signs of life again and again */
        mpath_log(oob->cannot_send ? MPATH_LOG_DEBUG : MPATH_LOG_ERROR,
                  "a control message to rank %d of %s could not be sent (Open MPI error %d); the call fails", to,
                  oob->comm->c_name, rc);
        oob->cannot_send = true;
        oob_message_free(message);
        return MPATH_ERR_UNREACHABLE;
    }
    request->handle = message;
    return MPATH_OK;
}

static mpath_status_t oob_irecv(void *context, int from, void *data, size_t bytes, mpath_oob_request_t *request)
{
    mca_coll_mpath_oob_t *oob = context;
    oob_message_t *message    = oob_message_new(bytes);
    int rc;

    if (NULL == message) {
        return MPATH_ERR_NO_MEMORY;
    }
    message->is_receive = true;
    message->to         = data;
    rc = MCA_PML_CALL(irecv(message->data, bytes, &ompi_mpi_byte.dt, from, oob->tag, oob->comm, &message->request));
    if (OMPI_SUCCESS != rc) {
        mpath_error("no control message can be received from rank %d of %s (Open MPI error %d); the call fails", from,
                    oob->comm->c_name, rc);
        oob_message_free(message);
        return MPATH_ERR_UNREACHABLE;
    }
    request->handle = message;
    return MPATH_OK;
}

static mpath_status_t oob_test(void *context, mpath_oob_request_t *request, size_t *bytes_p)
{
    oob_message_t *message = request->handle;
    mpath_status_t status;
    size_t bytes = 0;

    (void)context;
    if (NULL == message) {
        return MPATH_OK;
    }
    if (!REQUEST_COMPLETE(message->request)) {
        return MPATH_INPROGRESS;
    }
    status = oob_message_finish(message, &bytes);
    if ((MPATH_OK == status) && message->is_receive) {
        if (bytes > 0) {
            memcpy(message->to, message->data, bytes);
        }
        if (NULL != bytes_p) {
            *bytes_p = bytes;
        }
    }
    oob_message_free(message);
    request->handle = NULL;
    return status;
}

/* Frees those of the given up that have ended since. */
static void oob_sweep(mca_coll_mpath_oob_t *oob)
{
    oob_message_t **link = &oob->given_up;
    oob_message_t *message;
    size_t bytes;

    while (NULL != (message = *link)) {
        if (!REQUEST_COMPLETE(message->request)) {
            link = &message->next;
            continue;
        }
        (void)oob_message_finish(message, &bytes);
        *link = message->next;
        oob_message_free(message);
    }
}

static void oob_leave(mca_coll_mpath_oob_t *oob, mpath_oob_request_t *request)
{
    oob_message_t *message = request->handle;

    message->next   = oob->given_up;
    oob->given_up   = message;
    request->handle = NULL;
    oob_sweep(oob);
}

static void oob_cancel(void *context, mpath_oob_request_t *request)
{
    mca_coll_mpath_oob_t *oob = context;
    oob_message_t *message    = request->handle;

    if (NULL == message) {
        return;
    }
    if (message->is_receive) {
        (void)ompi_request_cancel(message->request);
    }
    oob_leave(oob, request);
}

/* Gives up a receive. MPATH_OK: what has come is there, as from test(). */
static mpath_status_t oob_withdraw(mca_coll_mpath_oob_t *oob, mpath_oob_request_t *request, size_t *bytes_p)
{
    oob_message_t *message = request->handle;

    if (NULL == message) {
        return MPATH_DECLINED;
    }
    (void)ompi_request_cancel(message->request);
    if (REQUEST_COMPLETE(message->request) && !message->request->req_status._cancelled) {
        return oob_test(oob, request, bytes_p);
    }
    oob_leave(oob, request);
    return MPATH_DECLINED;
}

static mpath_status_t oob_look(void *context)
{
    const mca_coll_mpath_oob_t *oob = context;

    return loss_look(oob->module);
}

static void oob_give_up(void *context, mpath_status_t reason, int peer)
{
    const mca_coll_mpath_oob_t *oob = context;

    mca_coll_mpath_loss_give_up(oob->module, reason, peer);
}

static void oob_progress(void *context)
{
    mca_coll_mpath_oob_t *oob = context;

    /*
     * On a fiber the progress engine is running already: its next round comes when the operation's wait has left the
     * fiber.
     */
    if (!mpath_fiber_is_on()) {
        opal_progress();
    }
    if (NULL != oob->given_up) {
        oob_sweep(oob);
    }
}

void mca_coll_mpath_oob_open(mca_coll_mpath_module_t *module, int tag, mca_coll_mpath_oob_t *state, mpath_oob_t *oob)
{
    struct ompi_communicator_t *comm = module->comm;

    memset(state, 0, sizeof(*state));
    state->module = module;
    state->comm   = comm;
    state->tag    = tag;
    oob->context  = state;
    oob->rank     = ompi_comm_rank(comm);
    oob->size     = ompi_comm_size(comm);
    oob->name     = comm->c_name;
    oob->isend    = oob_isend;
    oob->irecv    = oob_irecv;
    oob->test     = oob_test;
    oob->cancel   = oob_cancel;
    oob->progress = oob_progress;
    oob->look     = oob_look;
    oob->give_up  = oob_give_up;
}

void mca_coll_mpath_oob_close(mca_coll_mpath_oob_t *state)
{
    int looks, left = 0;
    oob_message_t *message;

    for (looks = 0; (looks < OOB_LAST_LOOKS) && (NULL != state->given_up); looks++) {
        oob_progress(state);
    }
    /* Whoever would have to answer is gone. The PML frees the request when it ends, and until then uses its memory. */
    for (message = state->given_up; NULL != message; message = message->next) {
        (void)ompi_request_free(&message->request);
        left++;
    }
    if (left > 0) {
        mpath_debug("%d control messages of %s never ended; their memory is left to the point-to-point layer", left,
                    state->comm->c_name);
    }
    state->given_up = NULL;
}

mpath_status_t mca_coll_mpath_oob_create(mca_coll_mpath_module_t *module, int tag, mpath_oob_t *oob,
                                         mca_coll_mpath_oob_t **state_p)
{
    mca_coll_mpath_oob_t *state = malloc(sizeof(*state));

    if (NULL == state) {
        return MPATH_ERR_NO_MEMORY;
    }
    mca_coll_mpath_oob_open(module, tag, state, oob);
    *state_p = state;
    return MPATH_OK;
}

void mca_coll_mpath_oob_destroy(mca_coll_mpath_oob_t *state)
{
    mca_coll_mpath_oob_close(state);
    free(state);
}

#define LOSS_MAGIC 0x6d706c73 /* of a word: this, the reason, the rank that it is about (-1: none), who tells */
#define LOSS_TELLERS 2        /* of a node: one of them may not come to look, or give up in silence */

static void loss_open(mca_coll_mpath_module_t *module)
{
    mca_coll_mpath_loss_t *loss = &module->loss;

    if (!loss->is_open) {
        mca_coll_mpath_oob_open(module, COLL_MPATH_TAG_LOSS, &loss->state, &loss->oob);
        loss->is_open = true;
    }
}

void mca_coll_mpath_loss_note(mca_coll_mpath_module_t *module, mpath_status_t reason)
{
    module->parted = (MPATH_OK == module->parted) ? reason : module->parted;
    if (NULL != module->team) {
        mpath_team_break(module->team, reason); /* others may have it, and be in a call */
    }
}

/* `beside`: those of this node, too, which may not look. */
static void loss_tell(mca_coll_mpath_module_t *module, mpath_status_t reason, int about, bool beside)
{
    mca_coll_mpath_loss_t *loss = &module->loss;
    int rank, me = ompi_comm_rank(module->comm), size = ompi_comm_size(module->comm);
    const int32_t word[4] = {LOSS_MAGIC, (int32_t)reason, about, me};
    mpath_oob_request_t *words, word_sent;

    if (loss->has_told) {
        return;
    }
    loss->has_told = true;
    loss_open(module);
    (void)mca_coll_mpath_lifetime_watch(module);  /* what is under way keeps the communicator */
    words = calloc((size_t)size, sizeof(*words)); /* without memory words go as well, and nobody waits for them */
    for (rank = 0; rank < size; rank++) {
        mpath_oob_request_t *request = (NULL != words) ? &words[rank] : &word_sent;

        request->handle = NULL;
        /* Who is said to be gone may not be: only messages to it have failed, or it is late. */
        if ((me != rank) && (beside || !mca_coll_mpath_peers_watched(module->comm, rank)) &&
            !mca_coll_mpath_peers_gone(module->comm, rank)) {
            (void)loss->oob.isend(&loss->state, rank, word, sizeof(word), request);
        }
        if ((NULL == words) && (NULL != request->handle)) {
            loss->oob.cancel(&loss->state, request); /* it goes all the same */
        }
    }
    if (NULL == words) {
        return;
    }
    mpath_exchange_let_go(&loss->oob, words, size);
    for (rank = 0; rank < size; rank++) {
        if (NULL != words[rank].handle) {
            loss->oob.cancel(&loss->state, &words[rank]); /* it may go all the same */
        }
    }
    free(words);
}

void mca_coll_mpath_loss_give_up(mca_coll_mpath_module_t *module, mpath_status_t reason, int peer)
{
    if (MPATH_OK == module->parted) {
        mca_coll_mpath_loss_note(module, reason);
        loss_tell(module, reason, peer, true);
    }
}

static void loss_heard(mca_coll_mpath_module_t *module, size_t bytes)
{
    const int32_t *word   = module->loss.heard;
    mpath_status_t reason = (mpath_status_t)word[1];
    const char *name      = module->comm->c_name;

    if ((sizeof(module->loss.heard) != bytes) || (LOSS_MAGIC != word[0]) || (MPATH_OK != module->parted)) {
        return;
    }
    reason = mpath_status_is_error(reason) ? reason : MPATH_ERR_INTERNAL;
    if (0 > word[2]) {
        mpath_error("%s: rank %d has given up to set up the communicator (%s): every call of mpath on it fails", name,
                    (int)word[3], mpath_status_string(reason));
    } else {
        mpath_error("%s: rank %d has told that rank %d %s (%s): the communicator cannot be set up, and every call of "
                    "mpath on it fails",
                    name, (int)word[3], (int)word[2],
                    (MPATH_ERR_TIMED_OUT == reason) ? "does not come" : "cannot be reached any more",
                    mpath_status_string(reason));
    }
    mca_coll_mpath_loss_note(module, reason);
}

/* A failure to listen is left to the processes beside, and to deadlines. */
static void loss_listen(mca_coll_mpath_module_t *module)
{
    mca_coll_mpath_loss_t *loss = &module->loss;
    size_t bytes                = 0;
    mpath_status_t status;

    loss_open(module);
    if (NULL == loss->listens.handle) {
        (void)loss->oob.irecv(&loss->state, MPI_ANY_SOURCE, loss->heard, sizeof(loss->heard), &loss->listens);
    }
    if (NULL != loss->listens.handle) {
        status = loss->oob.test(&loss->state, &loss->listens, &bytes);
        if (MPATH_OK == status) {
            loss_heard(module, bytes);
        }
    }
}

/* The control plane's look() and give_up(), for exchanges that set something up on the communicator. */
static mpath_status_t loss_look(mca_coll_mpath_module_t *module)
{
    struct ompi_communicator_t *comm = module->comm;
    int rank, gone = -1, before = 0, me = ompi_comm_rank(comm);

    loss_listen(module);
    for (rank = 0; (MPATH_OK == module->parted) && (rank < ompi_comm_size(comm)); rank++) {
        if ((me == rank) || !mca_coll_mpath_peers_watched(comm, rank)) {
            continue;
        }
        if (mca_coll_mpath_peers_gone(comm, rank)) {
            gone = (0 > gone) ? rank : gone;
        } else if (rank < me) {
            before++;
        }
    }
    if ((MPATH_OK == module->parted) && (0 <= gone)) {
        mpath_error("%s: the process of rank %d, on this node, is gone: the communicator cannot be set up, and every "
                    "call of mpath on it fails",
                    comm->c_name, gone);
        mpath_segment_sweep(); /* it may have been about to share memory */
        mca_coll_mpath_loss_note(module, MPATH_ERR_UNREACHABLE);
        if (LOSS_TELLERS > before) {
            loss_tell(module, MPATH_ERR_UNREACHABLE, gone, false);
        }
    }
    return (MPATH_OK != module->parted) ? MPATH_ERR_UNREACHABLE : MPATH_OK;
}

/* An exchange is over: nothing of it stays posted on the communicator. */
static void loss_rest(mca_coll_mpath_module_t *module)
{
    mca_coll_mpath_loss_t *loss = &module->loss;
    size_t bytes                = 0;

    if ((NULL != loss->listens.handle) && (MPATH_OK == oob_withdraw(&loss->state, &loss->listens, &bytes))) {
        loss_heard(module, bytes);
    }
}

void mca_coll_mpath_loss_end(mca_coll_mpath_module_t *module)
{
    if (module->loss.is_open) {
        loss_rest(module);
        mca_coll_mpath_oob_close(&module->loss.state);
        module->loss.is_open = false;
    }
}

static mpath_status_t gather_end(mca_coll_mpath_module_t *module, mca_coll_mpath_oob_t *state, mpath_status_t status)
{
    mca_coll_mpath_oob_close(state);
    if (MPATH_ERR_INTERNAL == status) {
        mca_coll_mpath_loss_give_up(module, status, -1);
    }
    if (mpath_exchange_is_parted(status) || (MPATH_ERR_INTERNAL == status)) {
        mca_coll_mpath_loss_note(module, status);
    }
    loss_rest(module);
    return status;
}

mpath_status_t mca_coll_mpath_gather(mca_coll_mpath_module_t *module, uint64_t mine, uint64_t *all)
{
    const mpath_settings_t *settings = &mca_coll_mpath_component.settings;
    mca_coll_mpath_oob_t state;
    mpath_oob_t oob;
    mpath_status_t status;

    if (MPATH_OK != module->parted) {
        return module->parted;
    }
    mca_coll_mpath_oob_open(module, COLL_MPATH_TAG_GATHER, &state, &oob);
    status = mpath_exchange_allgather(&oob, mpath_patience_late(settings), NULL, oob.size, oob.rank, &mine,
                                      sizeof(mine), all);
    if (!mpath_exchange_is_parted(status)) {
        status = mpath_exchange_agree(&oob, mpath_patience_here(settings), status);
    }
    return gather_end(module, &state, status);
}

static bool gather_all(mca_coll_mpath_module_t *module, mpath_patience_t patience, bool mine)
{
    mca_coll_mpath_oob_t state;
    mpath_oob_t oob;
    mpath_status_t status;

    mca_coll_mpath_oob_open(module, COLL_MPATH_TAG_GATHER, &state, &oob);
    status = mpath_exchange_agree(&oob, patience,
                                  (MPATH_OK != module->parted) ? MPATH_ERR_UNREACHABLE
                                  : mine                       ? MPATH_OK
                                                               : MPATH_DECLINED);
    if (MPATH_ERR_NO_MEMORY == status) {
        status = MPATH_ERR_INTERNAL; /* a message could not be sent, for which another rank waits */
    }
    return MPATH_OK == gather_end(module, &state, status);
}

bool mca_coll_mpath_all(mca_coll_mpath_module_t *module, bool mine)
{
    return (MPATH_OK == module->parted) &&
           gather_all(module, mpath_patience_late(&mca_coll_mpath_component.settings), mine);
}

bool mca_coll_mpath_all_here(mca_coll_mpath_module_t *module, bool mine)
{
    return gather_all(module, mpath_patience_here(&mca_coll_mpath_component.settings), mine);
}
