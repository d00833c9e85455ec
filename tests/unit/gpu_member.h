/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For unit tests: one rank's part of a communicator whose alltoallvs are on device memory. The buffers of a2a.h are
 * copied to the device's before a call and back after it, and the send buffer is overwritten as soon as it returns.
 */
#ifndef MPATH_TESTS_UNIT_GPU_MEMBER_H
#define MPATH_TESTS_UNIT_GPU_MEMBER_H

#include "a2a.h"
#include "coll/alltoallv.h"
#include "gpu_kinds.h"
#include "ranks.h"

#define A2A_GIVEN ((a2a_kind_t)99) /* the demand is in its place already */

/* Which memory a member's next call is made with. */
typedef enum member_memory {
    MEMBER_DEVICE,
    MEMBER_NONE, /* neither side tells of memory */
    MEMBER_HOST
} member_memory_t;

typedef struct member {
    mpath_context_t *context;
    mpath_team_t *team;
    mpath_coll_t *coll;
    a2a_t a2a;
    uint64_t *demand; /* [size * size] */
    gpu_memory_t send, recv;
    member_memory_t memory;
    int copies;     /* it lends copies in host memory */
    int was_copied; /* the last call went by these */
} member_t;

/* On a context of its own: what member_join() makes, with a device for each rank's number. */
void member_open(member_t *member, ranks_self_t *self, const mpath_settings_t *settings, uint64_t room);
/* On member->context: a team over `oob`, and buffers of `room` bytes each on a device, of that kind to receive. */
void member_join(member_t *member, const mpath_oob_t *oob, int device, mpath_memory_kind_t recv_kind, uint64_t room);
/* All but the context and the process's use of the driver. */
void member_leave(member_t *member);
/* All of it. */
void member_end(member_t *member);

/* One alltoallv; round `seed` of the data. */
mpath_status_t member_call(member_t *member, a2a_kind_t kind, uint64_t max_bytes, uint64_t seed);
/* The same, which has to succeed with every byte right. */
void member_round(member_t *member, a2a_kind_t kind, uint64_t max_bytes, uint64_t seed);
/* Bytes of others that each rank has passed on so far, and this rank's counters. Collective. */
void member_forwarded(const member_t *member, uint64_t *bytes, mpath_coll_counters_t *counters);

#endif
