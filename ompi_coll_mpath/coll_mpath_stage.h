/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives that libmpath has for host memory only, called with buffers in device memory: each rank that has such a
 * buffer works on a copy in host memory. It changes nothing for the others, so ranks may differ in it.
 */
#ifndef COLL_MPATH_STAGE_H
#define COLL_MPATH_STAGE_H

#include "coll_mpath_device.h"

typedef struct mca_coll_mpath_stage_t {
    /* The caller fills these; `parts` as the size of mca_coll_mpath_args_t's functions. */
    mca_coll_mpath_args_t send, recv;
    int send_parts, recv_parts;
    bool in_place;   /* there is no send side, and the input is in the other one */
    bool loads_recv; /* what lies between the elements to be received is within what comes back: it is copied first */
    bool keep_known; /* no copies of memory that this Open MPI knows itself: its own function is next, and only moves */
    bool is_open;
    mca_coll_mpath_device_t send_device, recv_device;
} mca_coll_mpath_stage_t;

/* The send buffer to call the collective with. */
static inline const void *mca_coll_mpath_stage_sbuf(const mca_coll_mpath_stage_t *stage)
{
    return stage->in_place ? MPI_IN_PLACE : stage->send.buffer;
}

/*
 * MPATH_OK: the buffers of `send` and `recv` are copies now, to call the collective with again; MPATH_DECLINED: the
 * host can read the buffers as they are. Errors are logged.
 */
mpath_status_t mca_coll_mpath_stage_open(mca_coll_mpath_stage_t *stage);

/* After libmpath has declined the copies: gives up those that a function of Open MPI, which only moves, does without. */
void mca_coll_mpath_stage_restore(mca_coll_mpath_stage_t *stage);

/*
 * After the collective has returned `rc`: brings the result to the device if need be, and returns what the call
 * returns.
 */
int mca_coll_mpath_stage_close(mca_coll_mpath_stage_t *stage, int rc);

#endif
