/* SPDX-License-Identifier: BSD-3-Clause */
#include "coll/plans.h"

mpath_status_t mpath_plans_follow(mpath_plans_t *plans, const mpath_settings_t *settings, const mpath_topo_t *topo)
{
    mpath_plan_cache_t *cache;
    mpath_plan_params_t params;
    mpath_status_t status;

    mpath_plan_params_init(&params);
    params.min_fragment_bytes = settings->min_fragment_bytes;
    params.keep_ppm           = (uint32_t)settings->keep_routes_ppm;
    status                    = mpath_plan_cache_create(topo, &params, &cache);
    if (status == MPATH_OK) {
        mpath_plans_release(plans);
        plans->topo  = topo;
        plans->cache = cache;
    }
    return status;
}

mpath_status_t mpath_plans_rate(mpath_plans_t *plans, const mpath_topo_rates_t *rates)
{
    return mpath_topo_rates_apply(plans->topo, rates, plans->cache, &plans->rated);
}

void mpath_plans_release(mpath_plans_t *plans)
{
    if (plans->cache != NULL) {
        mpath_plan_cache_destroy(plans->cache);
    }
    if (plans->rated != NULL) {
        mpath_topo_destroy(plans->rated);
    }
    *plans = (mpath_plans_t){.topo = NULL};
}

int mpath_plans_connect(const mpath_topo_t *topo, const uint64_t *demand)
{
    int size = mpath_topo_num_ranks(topo);

    for (int source = 0; source < size; source++) {
        for (int destination = 0; destination < size; destination++) {
            if (source != destination && demand[(size_t)source * (size_t)size + (size_t)destination] > 0 &&
                mpath_topo_num_paths(topo, source, destination) == 0) {
                return 0;
            }
        }
    }
    return 1;
}

int mpath_plans_fail_alike(mpath_status_t status)
{
    return status == MPATH_ERR_UNREACHABLE || status == MPATH_ERR_UNSUPPORTED || status == MPATH_ERR_PARAM;
}
