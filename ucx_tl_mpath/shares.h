/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shares: how the peers that an interface sends to divide its rails. Rails that all peers reach equally well are left
 * to peers that have no others, so that all of them end together: the planner (plan/plan.h) routes what they send, with
 * the interface and each peer as nodes and the measured rates as capacities. No UCX in here.
 */
#ifndef UCX_TL_MPATH_SHARES_H
#define UCX_TL_MPATH_SHARES_H

#include "util/status.h"

#include <stdint.h>

#define MPATH_SHARES_MAX_PEERS 31

typedef struct mpath_shares {
    int num_peers, num_rails;     /* at most MPATH_SHARES_MAX_PEERS, MPATH_MAX_NICS */
    const uint64_t *own_bps;      /* by rail, bytes per second that this side can send; 0: no such rail */
    const uint64_t *peer_bps;     /* peer * num_rails + rail: what the peer can take; 0: no such rail */
    const uint64_t *demand_bytes; /* by peer */
} mpath_shares_t;

/*
 * share_bps[peer * num_rails + rail]: bytes per second of the rail for the peer while all of them are busy. They add up
 * to no more than the rail has. MPATH_ERR_PARAM: too many of something, or nothing to send; other errors are the
 * planner's.
 */
mpath_status_t mpath_shares_plan(const mpath_shares_t *shares, uint64_t *share_bps);

#endif
