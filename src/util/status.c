/* SPDX-License-Identifier: BSD-3-Clause */
/* Texts of the status codes. */
#include "util/status.h"

const char *mpath_status_string(mpath_status_t status)
{
    switch (status) {
    case MPATH_OK:
        return "success";
    case MPATH_INPROGRESS:
        return "in progress";
    case MPATH_DECLINED:
        return "declined";
    case MPATH_NO_RESOURCE:
        return "no resource";
    case MPATH_AGAIN:
        return "again";
    case MPATH_ERR_PARAM:
        return "invalid value";
    case MPATH_ERR_NO_MEMORY:
        return "out of memory";
    case MPATH_ERR_UNSUPPORTED:
        return "not supported";
    case MPATH_ERR_IO:
        return "input/output error";
    case MPATH_ERR_TIMED_OUT:
        return "timed out";
    case MPATH_ERR_UNREACHABLE:
        return "peer or rail unreachable";
    case MPATH_ERR_TRUNCATED:
        return "message sizes differ between sender and receiver";
    case MPATH_ERR_INTERNAL:
        return "internal error";
    }
    return "unknown status";
}
