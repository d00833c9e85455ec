/* SPDX-License-Identifier: BSD-3-Clause */
/* A topology with other rates: what calls have shown goes to the planner by way of its capacities. */
#ifndef MPATH_COLL_TOPO_RATES_H
#define MPATH_COLL_TOPO_RATES_H

#include "coll/plan_cache.h"
#include "topo/topo.h"

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
