/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How many of a hot receiver's bytes go through host memory beside the copies from GPU to GPU, in closed form.
 *
 * With one hot port there are two resources that matter, its ingress and the host's way into its GPU; the least of the
 * larger load / capacity is where both end together. That is the optimum of the planner for the same capacities (a unit
 * test compares), and this form knows two things that the planner's loads do not: the host's copies begin late, and no
 * other port may become the slowest for it. Integers: the same on all ranks.
 */
#ifndef MPATH_COLL_HOST_SHARE_H
#define MPATH_COLL_HOST_SHARE_H

#include <stdint.h>

typedef struct mpath_host_share {
    uint64_t hot_bytes;    /* through the hot port */
    uint64_t next_bytes;   /* through the busiest other port, or the hot one's other way: not relieved by the host */
    uint64_t port_ns;      /* what the hot port takes for all of its bytes */
    uint64_t host_bps;     /* of staged copies into one GPU */
    uint64_t start_ns;     /* until the host's first bytes are there */
    unsigned take_percent; /* of the share at which both end together; the rest is for the host's unsteadiness */
    unsigned most_percent; /* of hot_bytes at most */
} mpath_host_share_t;

/* Bytes, at most hot_bytes - next_bytes; 0: the host is no help. */
uint64_t mpath_host_share_bytes(const mpath_host_share_t *share);

#endif
