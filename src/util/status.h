/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Status codes. Every function that can fail returns one; 0 is success, errors are negative. MPATH_INPROGRESS is no
 * error: the work goes on and the caller has to progress and ask again. MPATH_DECLINED is a decision, not a failure:
 * the caller runs what mpath would have replaced.
 */
#ifndef MPATH_UTIL_STATUS_H
#define MPATH_UTIL_STATUS_H

typedef enum mpath_status {
    MPATH_OK              = 0,
    MPATH_INPROGRESS      = 1,
    MPATH_DECLINED        = 2,
    MPATH_NO_RESOURCE     = 3,  /* no slot is free now: nothing was taken, progress and repeat */
    MPATH_AGAIN           = 4,  /* rails have failed, on all ranks alike: plan without them and repeat */
    MPATH_ERR_PARAM       = -1, /* an argument, parameter or file has no usable value */
    MPATH_ERR_NO_MEMORY   = -2,
    MPATH_ERR_UNSUPPORTED = -3, /* this machine, library or configuration cannot do it */
    MPATH_ERR_IO          = -4, /* the system or a library refused; the log names the call */
    MPATH_ERR_TIMED_OUT   = -5, /* a deadline passed; the log names who waited for whom */
    MPATH_ERR_UNREACHABLE = -6, /* a peer or a rail is gone */
    MPATH_ERR_TRUNCATED   = -7, /* sender and receiver disagree about the size of a message */
    MPATH_ERR_INTERNAL    = -8
} mpath_status_t;

/* Static text, never NULL. */
const char *mpath_status_string(mpath_status_t status);

static inline int mpath_status_is_error(mpath_status_t status)
{
    return status < 0;
}

#endif
