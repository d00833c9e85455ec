/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plans: what the plans of a communicator's Alltoallv are made with, a topology, what its NICs have been seen to carry, and the
 * plans of the last calls. There is one for host memory and one for device memory, whose topology has GPUs.
 */
#ifndef MPATH_COLL_PLANS_H
#define MPATH_COLL_PLANS_H

#include "plan/cache.h"
#include "util/param.h"

/* Zeroed: there are none yet. */
typedef struct mpath_plans {
    const mpath_topo_t *topo; /* that they are for; who has given it keeps it until the next mpath_plans_follow() */
    mpath_topo_t *rated;      /* that with rates which calls have shown; NULL: with those of the system */
    mpath_plan_cache_t *cache;
} mpath_plans_t;

/* From now on they are for this topology, with the rates of the system; earlier ones are forgotten. After an error all is as before. */
mpath_status_t mpath_plans_follow(mpath_plans_t *plans, const mpath_settings_t *settings, const mpath_topo_t *topo);

/* They count on these rates, see mpath_topo_rates_apply(). */
mpath_status_t mpath_plans_rate(mpath_plans_t *plans, const mpath_topo_rates_t *rates);

void mpath_plans_release(mpath_plans_t *plans);

/* The topology with the rates that plans count on. */
static inline const mpath_topo_t *mpath_plans_topo(const mpath_plans_t *plans)
{
    return plans->rated != NULL ? plans->rated : plans->topo;
}

/* Whether every two ranks with something in `demand` have a path. The diagonal is not looked at. */
int mpath_plans_connect(const mpath_topo_t *topo, const uint64_t *demand);

/* Errors of a plan that every rank comes to from the same data are a reason to step aside; the others end the call. */
int mpath_plans_fail_alike(mpath_status_t status);

#endif
