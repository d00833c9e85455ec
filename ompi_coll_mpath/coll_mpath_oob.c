/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control plane on the PML. Messages are copied through buffers of this file's own, so that a request can be given up
 * at any time: what the PML still holds keeps its own memory until it lets go.
 */
#include "coll_mpath.h"

#include "ompi/mca/pml/pml.h"
#include "ompi/request/request.h"
#include "opal/runtime/opal_progress.h"

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
    char room[sizeof(oob_message_t) + OOB_RESERVE_BYTES];
} oob_reserve_t;

static oob_reserve_t reserve[OOB_RESERVE];
static oob_reserve_t *reserve_free; /* those that have been used before */
static int reserve_begun;
static pthread_mutex_t reserve_lock = PTHREAD_MUTEX_INITIALIZER;

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

mpath_status_t mca_coll_mpath_oob_withdraw(mca_coll_mpath_oob_t *oob, mpath_oob_request_t *request, size_t *bytes_p)
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

    return mca_coll_mpath_loss_look(oob->module);
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
