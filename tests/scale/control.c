/* SPDX-License-Identifier: BSD-3-Clause */
/* A control plane in memory: a queue of messages and of posted receives for each pair of ranks that talks. */
#include "scale.h"

#include <string.h>

typedef struct control_message {
    struct control_message *next;
    size_t bytes;
    char data[];
} control_message_t;

typedef struct control_request {
    struct control_request *next;
    struct control_box *box; /* NULL: a send */
    void *data;
    size_t room, bytes;
    int is_done;
    mpath_status_t status;
} control_request_t;

/* What one rank has sent to another and what that waits for: one of the lists is empty. */
typedef struct control_box {
    struct control_box *next;
    int from;
    control_message_t *first, **last_p;
    control_request_t *posted, **posted_last_p;
} control_box_t;

#define CONTROL_BINS 64

static control_box_t **control_bins; /* [to][CONTROL_BINS] */

static control_box_t *control_box(int to, int from)
{
    control_box_t **at = &control_bins[(size_t)to * CONTROL_BINS + (size_t)from % CONTROL_BINS];

    while (*at != NULL && (*at)->from != from) {
        at = &(*at)->next;
    }
    if (*at == NULL) {
        *at                  = scale_allocate(sizeof(**at));
        (*at)->from          = from;
        (*at)->last_p        = &(*at)->first;
        (*at)->posted_last_p = &(*at)->posted;
    }
    return *at;
}

static void control_fill(control_request_t *request, const void *data, size_t bytes)
{
    request->is_done = 1;
    request->bytes   = bytes;
    request->status  = bytes <= request->room ? MPATH_OK : MPATH_ERR_TRUNCATED;
    if (bytes <= request->room && bytes > 0) {
        memcpy(request->data, data, bytes);
    }
}

static mpath_status_t control_isend(void *context, int to, const void *data, size_t bytes, mpath_oob_request_t *request)
{
    int from              = *(int *)context;
    control_box_t *box    = control_box(to, from);
    control_request_t *in = box->posted;

    if (scale_node(to) != scale_node(from)) {
        scale.counts[from].control_messages++;
        scale.counts[from].control_bytes += bytes;
    }
    if (in != NULL) {
        box->posted = in->next;
        if (box->posted == NULL) {
            box->posted_last_p = &box->posted;
        }
        control_fill(in, data, bytes);
    } else {
        control_message_t *message = scale_allocate(sizeof(*message) + bytes);

        message->bytes = bytes;
        if (bytes > 0) {
            memcpy(message->data, data, bytes);
        }
        *box->last_p = message;
        box->last_p  = &message->next;
    }
    request->handle = NULL; /* a copy was taken */
    return MPATH_OK;
}

static mpath_status_t control_irecv(void *context, int from, void *data, size_t bytes, mpath_oob_request_t *request)
{
    control_box_t *box         = control_box(*(int *)context, from);
    control_request_t *in      = scale_allocate(sizeof(*in));
    control_message_t *message = box->first;

    in->box         = box;
    in->data        = data;
    in->room        = bytes;
    request->handle = in;
    if (message != NULL) {
        box->first = message->next;
        if (box->first == NULL) {
            box->last_p = &box->first;
        }
        control_fill(in, message->data, message->bytes);
        scale_free(message);
    } else {
        *box->posted_last_p = in;
        box->posted_last_p  = &in->next;
    }
    return MPATH_OK;
}

static mpath_status_t control_test(void *context, mpath_oob_request_t *request, size_t *bytes_p)
{
    control_request_t *in = request->handle;
    mpath_status_t status;

    (void)context;
    if (in == NULL) {
        return MPATH_OK;
    }
    if (!in->is_done) {
        return MPATH_INPROGRESS;
    }
    if (bytes_p != NULL) {
        *bytes_p = in->bytes;
    }
    status          = in->status;
    request->handle = NULL;
    scale_free(in);
    return status;
}

static void control_cancel(void *context, mpath_oob_request_t *request)
{
    control_request_t *in = request->handle, **at;

    (void)context;
    request->handle = NULL;
    if (in == NULL) {
        return;
    }
    if (!in->is_done) {
        for (at = &in->box->posted; *at != in; at = &(*at)->next) {
        }
        *at = in->next;
        for (at = &in->box->posted; *at != NULL; at = &(*at)->next) {
        }
        in->box->posted_last_p = at;
    }
    scale_free(in);
}

static void control_progress(void *context)
{
    (void)context;
}

void scale_control_init(void)
{
    control_bins = scale_allocate((size_t)scale.size * CONTROL_BINS * sizeof(*control_bins));
}

void scale_control_oob(int *rank, mpath_oob_t *oob_p)
{
    *oob_p = (mpath_oob_t){.context  = rank,
                           .rank     = *rank,
                           .size     = scale.size,
                           .name     = "scale",
                           .isend    = control_isend,
                           .irecv    = control_irecv,
                           .test     = control_test,
                           .cancel   = control_cancel,
                           .progress = control_progress};
}
