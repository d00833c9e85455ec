/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parts: this rank's parts of the last plans by pairs of nodes (plan/pairs.h), by the signatures that were agreed on. A few,
 * as many as memory for dense matrices allows; the one that was not used for longest goes first. All ranks keep those of the same calls.
 */
#ifndef MPATH_COLL_PARTS_H
#define MPATH_COLL_PARTS_H

#include "plan/pairs.h"
#include "plan/plan.h"
#include "team/agree.h"
#include "topo/topo.h"
#include "util/param.h"

/* Plans of calls of more ranks are made by pairs of nodes where they can be; of fewer where a parameter says so. */
#define MPATH_PARTS_WHOLE_RANKS 32

typedef struct mpath_parts mpath_parts_t;

/* MPATH_DECLINED as mpath_pairs_create(). `topo` outlives it. */
mpath_status_t mpath_parts_create(const mpath_topo_t *topo, const mpath_settings_t *settings, mpath_parts_t **parts_p);
void mpath_parts_destroy(mpath_parts_t *parts);

/*
 * The part of this rank for the call that was just agreed on, where agreed->node_sends is there; *hit_p: it was kept. Valid
 * until the next time, owned by the parts. Collective where it was not kept and nodes are not alike: they tell each other
 * their prices; an error breaks the team.
 */
mpath_status_t mpath_parts_get(mpath_parts_t *parts, mpath_team_t *team, const mpath_agreed_t *agreed,
                               const mpath_plan_t **plan_p, int *hit_p);
/* How long that has waited for what others tell. */
uint64_t mpath_parts_waited_ns(const mpath_parts_t *parts);

/*
 * Whether nodes are alike: plans need what the agreement has counted, on the static routes of this topology. Elsewhere they count
 * themselves.
 */
int mpath_parts_are_alike(const mpath_parts_t *parts);

/* Of the last part: what the NICs of the busiest node take at least. The same on all ranks, as the next. */
uint64_t mpath_parts_bound_ns(const mpath_parts_t *parts);
/* What the plan takes, and the static routes. */
void mpath_parts_predict(const mpath_parts_t *parts, uint64_t *plan_ns_p, uint64_t *static_ns_p);

/*
 * Loads of the last part, as of a whole plan: of what every rank puts on the NICs of its node (mpath_pairs_share()), which
 * the ranks have exchanged. It has none: mpath_plan_loads() is NULL.
 */
mpath_status_t mpath_parts_set_loads(mpath_parts_t *parts, const uint64_t *shares);
/* Of one rank, mpath_parts_share_words() of them: for the last part. */
size_t mpath_parts_share_words(const mpath_parts_t *parts);
void mpath_parts_share(const mpath_parts_t *parts, int rank, uint64_t *share);

#endif
