/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Alltoallv on device memory over relays: plan for the GPUs' topology, gate, move (exec/relay.h). For nodes of which a
 * plan can get more than GPUs that write to each other directly: several nodes, direct links between pairs of GPUs.
 */
#ifndef MPATH_COLL_ALLTOALLV_RELAY_H
#define MPATH_COLL_ALLTOALLV_RELAY_H

#include "coll/topo_rates.h"
#include "exec/agree.h"
#include "exec/relay.h"
#include "exec/team.h"

typedef struct mpath_relay_coll mpath_relay_coll_t;

typedef struct mpath_relay_counters {
    mpath_relay_stats_t moved;
    uint64_t plans, plan_hits, plan_ns;
    uint64_t choices; /* decisions between plan and static routes by what calls took */
    uint64_t repeats; /* of calls whose rails had failed */
} mpath_relay_counters_t;

/* Local and cheap. */
mpath_status_t mpath_relay_coll_create(mpath_team_t *team, mpath_relay_coll_t **coll_p);
void mpath_relay_coll_destroy(mpath_relay_coll_t *coll);

/* NULL: nobody has learned rates. From the next call on; the arrays live until others are set. */
void mpath_relay_coll_set_rates(mpath_relay_coll_t *coll, const mpath_topo_rates_t *rates);

/* Whether calls with device memory may be served here. The same on all ranks. */
int mpath_relay_coll_usable(const mpath_relay_coll_t *coll);

/* As mpath_relay_tell() and mpath_relay_hear(). */
void mpath_relay_coll_publish(mpath_relay_coll_t *coll, mpath_call_t *call);
void mpath_relay_coll_hear(mpath_relay_coll_t *coll, uint32_t flags);

/*
 * After an agreement with MPATH_CALL_DEVICE and without MPATH_CALL_INELIGIBLE: plans and moves everything.
 * MPATH_DECLINED, on all ranks alike: nothing was moved, another way may do it. Any other result but MPATH_OK breaks
 * the team.
 */
mpath_status_t mpath_relay_coll_move(mpath_relay_coll_t *coll, const mpath_call_t *call, const mpath_agreed_t *agreed);

/*
 * What the last call of mpath_relay_coll_move() was moved by, until the next one, and the topology with the rates that
 * the plan is for; NULL: it has moved nothing. And what that has shown of the rails, see mpath_relay_times().
 */
const mpath_plan_t *mpath_relay_coll_moved(const mpath_relay_coll_t *coll, const mpath_topo_t **topo_p);
void mpath_relay_coll_times(mpath_relay_coll_t *coll, mpath_rail_times_t *times);

/*
 * How long the call under way took on this rank, whichever way served it after mpath_relay_coll_move(): plan and static
 * routes are compared by that where the time model cannot tell.
 */
void mpath_relay_coll_took(mpath_relay_coll_t *coll, uint64_t took_ns);

void mpath_relay_coll_counters(const mpath_relay_coll_t *coll, mpath_relay_counters_t *counters);

#endif
