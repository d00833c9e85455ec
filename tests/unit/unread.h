/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For unit tests of the wire: a rank that is late, for which what others send to it is under way for long. The linker
 * has to put the functions here in the place of mpath_fabric_send, _op_status, _abort and _abort_peer.
 */
#ifndef MPATH_TESTS_UNIT_UNREAD_H
#define MPATH_TESTS_UNIT_UNREAD_H

#include "rail/fabric.h"
#include "util/time.h"

#include <unistd.h>

static uint64_t late_ns;   /* until then this rank rests in unread_rest(), */
static uint64_t unread_ns; /* or what it sends is not read */
static int aborts;         /* of connections */

static inline void unread_rest(void)
{
    while (late_ns > mpath_time_ns()) {
        usleep(1000);
    }
}

mpath_status_t __real_mpath_fabric_send(mpath_fabric_t *fabric, int rail, int peer, const mpath_chunk_t *chunk,
                                        const void *data, mpath_lane_op_t *op);
mpath_status_t __wrap_mpath_fabric_send(mpath_fabric_t *fabric, int rail, int peer, const mpath_chunk_t *chunk,
                                        const void *data, mpath_lane_op_t *op);
mpath_status_t __wrap_mpath_fabric_send(mpath_fabric_t *fabric, int rail, int peer, const mpath_chunk_t *chunk,
                                        const void *data, mpath_lane_op_t *op)
{
    mpath_status_t status = __real_mpath_fabric_send(fabric, rail, peer, chunk, data, op);

    return ((status == MPATH_OK) && (unread_ns > mpath_time_ns())) ? MPATH_INPROGRESS : status;
}

mpath_status_t __real_mpath_fabric_op_status(mpath_fabric_t *fabric, int rail, const mpath_lane_op_t *op);
mpath_status_t __wrap_mpath_fabric_op_status(mpath_fabric_t *fabric, int rail, const mpath_lane_op_t *op);
mpath_status_t __wrap_mpath_fabric_op_status(mpath_fabric_t *fabric, int rail, const mpath_lane_op_t *op)
{
    return (unread_ns > mpath_time_ns()) ? MPATH_INPROGRESS : __real_mpath_fabric_op_status(fabric, rail, op);
}

void __real_mpath_fabric_abort(mpath_fabric_t *fabric, int rail);
void __wrap_mpath_fabric_abort(mpath_fabric_t *fabric, int rail);
void __wrap_mpath_fabric_abort(mpath_fabric_t *fabric, int rail)
{
    aborts++;
    unread_ns = 0;
    __real_mpath_fabric_abort(fabric, rail);
}

void __real_mpath_fabric_abort_peer(mpath_fabric_t *fabric, int rail, int peer);
void __wrap_mpath_fabric_abort_peer(mpath_fabric_t *fabric, int rail, int peer);
void __wrap_mpath_fabric_abort_peer(mpath_fabric_t *fabric, int rail, int peer)
{
    aborts++;
    unread_ns = 0;
    __real_mpath_fabric_abort_peer(fabric, rail, peer);
}

#endif
