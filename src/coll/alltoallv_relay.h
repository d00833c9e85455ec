/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Alltoallv on device memory over relays: a plan for the GPUs' topology, and moving by it (mover/relay.h). For nodes of
 * which a plan can get more than GPUs that write to each other directly: several nodes, direct links between pairs of GPUs.
 * Who takes it decides, see coll/algorithm.h.
 */
#ifndef MPATH_COLL_ALLTOALLV_RELAY_H
#define MPATH_COLL_ALLTOALLV_RELAY_H

#include "coll/parts.h"
#include "team/call.h"
#include "plan/cache.h"
#include "plan/gate.h"
#include "team/agree.h"
#include "mover/relay.h"
#include "team/team.h"

typedef struct mpath_relay_coll mpath_relay_coll_t;

/* Local and cheap. */
mpath_status_t mpath_relay_coll_create(mpath_team_t *team, mpath_relay_coll_t **coll_p);
void mpath_relay_coll_destroy(mpath_relay_coll_t *coll);

/* NULL: nobody has learned rates. From the next call on; the arrays live until others are set. */
void mpath_relay_coll_set_rates(mpath_relay_coll_t *coll, const mpath_topo_rates_t *rates);

/* Whether calls with device memory may be served here. The same on all ranks. */
int mpath_relay_coll_usable(const mpath_relay_coll_t *coll);

/* As mpath_relay_publish() and mpath_relay_take_flags(). */
void mpath_relay_coll_publish(mpath_relay_coll_t *coll, mpath_call_t *call);
void mpath_relay_coll_take_flags(mpath_relay_coll_t *coll, uint32_t flags);

/* A call with this demand, which stays until it ends, begins: what follows is of it. */
void mpath_relay_coll_begin(mpath_relay_coll_t *coll, const uint64_t *demand, uint64_t signature);
/*
 * Or one whose plan is made by pairs of nodes, right after its agreement: *part_p, this rank's part (coll/parts.h); NULL: there is no
 * such plan, and the call begins with its demand. MPATH_DECLINED, on all ranks alike: relays do not carry the call, which needs none.
 * Collective; any other result than MPATH_OK breaks the team.
 */
mpath_status_t mpath_relay_coll_begin_part(mpath_relay_coll_t *coll, const mpath_call_t *call,
                                           const mpath_agreed_t *agreed, const mpath_plan_t **part_p);

/* Whether plan and static routes are to be compared: not, by predicted times, by trials too where these may be wrong. */
typedef enum mpath_relay_compares {
    MPATH_RELAY_COMPARES_NOT,
    MPATH_RELAY_COMPARES_BY_TIME,
    MPATH_RELAY_COMPARES_BY_TRIAL
} mpath_relay_compares_t;

/* What trials say: nothing, the plan, the static routes. */
typedef enum mpath_relay_tuned { MPATH_RELAY_BY_TIME, MPATH_RELAY_PLANNED, MPATH_RELAY_STATIC } mpath_relay_tuned_t;

typedef struct mpath_relay_found {
    const mpath_topo_t *topo; /* that it is for; NULL: none */
    const char *obstacle;     /* why it is of no use; static text; NULL: it is */
    const mpath_plan_t *plan;
    const mpath_gate_forecast_t *forecast; /* NULL: not asked for */
    mpath_relay_tuned_t tuned;
} mpath_relay_found_t;

/* The obstacle of GPUs of one node whose plan takes the links between them. */
#define MPATH_RELAY_MATES_KNOW_MORE                                                                                    \
    "the plan takes the links between the GPUs, for which one node has kernels and engines"

/* Whether the ranks share a node whose rates are its own: they can do without a plan. */
static inline int mpath_relay_coll_are_mates(const mpath_topo_t *topo)
{
    return mpath_topo_num_nodes(topo) == 1 && mpath_topo_params(topo)->emulated == MPATH_EMULATED_NO;
}

/* How times of plans are predicted. */
void mpath_relay_coll_time_params(mpath_time_params_t *params);

/*
 * After an agreement with MPATH_CALL_DEVICE and without MPATH_CALL_INELIGIBLE: a plan for what relays have now. Collective.
 * Any other result but MPATH_OK breaks the team.
 */
mpath_status_t mpath_relay_coll_plan(mpath_relay_coll_t *coll, const mpath_call_t *call, const mpath_agreed_t *agreed,
                                     mpath_relay_compares_t compares, mpath_relay_found_t *found);

/*
 * Moves everything by that plan, or by the static routes of its forecast. On all ranks alike: MPATH_DECLINED: nothing was
 * moved, another algorithm may do it; MPATH_AGAIN: relays do not have what it needs any more, and have left that out:
 * another plan is to be made, at least one rail smaller each time. Any other result but MPATH_OK breaks the team.
 */
mpath_status_t mpath_relay_coll_move(mpath_relay_coll_t *coll, const mpath_plan_t *plan);

/*
 * What the call under way was moved by, until the next one, and the topology with the rates that
 * the plan is for; NULL: it has moved nothing. And what that has shown of the rails, see mpath_relay_times().
 */
const mpath_plan_t *mpath_relay_coll_moved(const mpath_relay_coll_t *coll, const mpath_topo_t **topo_p);
void mpath_relay_coll_times(mpath_relay_coll_t *coll, mpath_rail_times_t *times);
/* Whose last plan that is, where it is a part. */
mpath_parts_t *mpath_relay_coll_parts(const mpath_relay_coll_t *coll);

/*
 * How long the call under way took on this rank, whichever way served it after mpath_relay_coll_move(): plan and static
 * routes are compared by that where the time model cannot tell.
 */
void mpath_relay_coll_took(mpath_relay_coll_t *coll, uint64_t took_ns);

void mpath_relay_coll_counters(const mpath_relay_coll_t *coll, mpath_relay_counters_t *counters);

#endif
