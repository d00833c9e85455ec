/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control plane: how a team's processes exchange small messages before and beside the lanes. The glue implements it on
 * the MPI library's point-to-point layer (on a context of its own, so that it never meets the user's messages); tests
 * implement it on socket pairs. Messages between two ranks arrive in order. Never called by two threads at a time for
 * one team.
 */
#ifndef MPATH_EXEC_OOB_H
#define MPATH_EXEC_OOB_H

#include "util/status.h"

#include <stddef.h>

typedef struct mpath_oob_request {
    void *handle; /* NULL: finished */
} mpath_oob_request_t;

typedef struct mpath_oob {
    void *context;
    int rank, size;
    const char *name; /* of the communicator, for messages */
    /* The bytes may be overwritten as soon as it returns. */
    mpath_status_t (*isend)(void *context, int to, const void *data, size_t bytes, mpath_oob_request_t *request);
    /* `bytes` is the room; a longer message is MPATH_ERR_TRUNCATED at test(). */
    mpath_status_t (*irecv)(void *context, int from, void *data, size_t bytes, mpath_oob_request_t *request);
    /* MPATH_OK when finished (then *bytes_p, unless NULL, is the length of a received message), MPATH_INPROGRESS, or
     * an error. */
    mpath_status_t (*test)(void *context, mpath_oob_request_t *request, size_t *bytes_p);
    /* Gives a request up; a send may still be delivered. */
    void (*cancel)(void *context, mpath_oob_request_t *request);
    /* Lets the MPI library run. test() alone need not do so: whoever waits calls this, too. */
    void (*progress)(void *context);
} mpath_oob_t;

#endif
