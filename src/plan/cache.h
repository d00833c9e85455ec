/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plan cache: the plans of the last demands, found by checksum and compared in full. A demand that is not there keeps
 * the routes of the most similar one as long as that costs little (mpath_plan_follow()). A few entries of bounded
 * memory; the one that was not used for longest goes first. Plans, hits and misses depend on the sequence of demands
 * and topologies only, so they are the same on all ranks.
 */
#ifndef MPATH_PLAN_CACHE_H
#define MPATH_PLAN_CACHE_H

#include "plan/gate.h"
#include "plan/plan.h"
#include "topo/topo.h"
#include "util/status.h"

#include <stdint.h>

#define MPATH_PLAN_CACHE_ENTRIES 8
#define MPATH_PLAN_CACHE_BYTES (64ull << 20) /* of all entries but the newest */

typedef struct mpath_plan_cache mpath_plan_cache_t;

/* `topo` outlives the cache, or mpath_plan_cache_set_topo(). */
mpath_status_t mpath_plan_cache_create(const mpath_topo_t *topo, const mpath_plan_params_t *params,
                                       mpath_plan_cache_t **cache_p);

void mpath_plan_cache_destroy(mpath_plan_cache_t *cache);

/*
 * From now on plans are for `topo`, of as many ranks. Where only rates are others, the next plans keep the routes of
 * the earlier ones while that costs little. The old topology must still be there. All ranks call it between the same
 * calls.
 */
void mpath_plan_cache_set_topo(mpath_plan_cache_t *cache, const mpath_topo_t *topo);

/*
 * The plan of `demand` (whose checksum is `signature`), made when it is not there; *hit_p says which. Valid until the
 * next call; owned by the cache. Errors are those of mpath_plan_create().
 */
mpath_status_t mpath_plan_cache_get(mpath_plan_cache_t *cache, uint64_t signature, const uint64_t *demand,
                                    const mpath_plan_t **plan_p, int *hit_p);

/* That of the last mpath_plan_cache_get(), for who knows that the demand is the same; NULL where it has to be made anew. */
const mpath_plan_t *mpath_plan_cache_last(const mpath_plan_cache_t *cache);

/*
 * The forecast (plan/gate.h) for the demand of the last mpath_plan_cache_get(); computed once per entry and owned by
 * it.
 */
mpath_status_t mpath_plan_cache_forecast(mpath_plan_cache_t *cache, const mpath_time_params_t *time_params,
                                         const mpath_gate_forecast_t **forecast_p);

/* A topology with other rates: what calls have shown goes to the planner in its capacities. */

/* What NICs carry, by node, then rail. Whoever has made it owns the arrays. */
typedef struct mpath_topo_rates {
    int num_nodes; /* 1: the rates hold for all nodes */
    int num_rails;
    const int *numbers;                /* of rails */
    const uint64_t *nominal_bps, *bps; /* [num_nodes * num_rails]; nominal 0: there is no such NIC */
} mpath_topo_rates_t;

/*
 * A copy of `topo` in which NICs have bps / nominal_bps of their rate. Paths are the same. Errors are those of
 * mpath_topo_create().
 */
mpath_status_t mpath_topo_with_rates(const mpath_topo_t *topo, const mpath_topo_rates_t *rates, mpath_topo_t **topo_p);

/*
 * From now on the cache's plans are for such a copy. *rated_p, the caller's, is the one before or NULL, which it takes
 * the place of. After an error nothing has changed.
 */
mpath_status_t mpath_topo_rates_apply(const mpath_topo_t *topo, const mpath_topo_rates_t *rates,
                                      mpath_plan_cache_t *cache, mpath_topo_t **rated_p);

#endif
