/* SPDX-License-Identifier: BSD-3-Clause */
/* A topology with other rates. */
#include "coll/topo_rates.h"

#include "util/log.h"

#include <stdlib.h>

static void scale(mpath_machine_t *machine, int rail, uint64_t nominal_bps, uint64_t rate_bps)
{
    if (nominal_bps == 0) {
        return;
    }
    for (int nic = 0; nic < machine->num_nics; nic++) {
        mpath_nic_t *entry = &machine->nics[nic];

        if (entry->rail == rail) {
            double bps = (double)entry->rate_bps * (double)rate_bps / (double)nominal_bps;

            bps             = (bps < (double)MPATH_MAX_RATE_BPS) ? bps : (double)MPATH_MAX_RATE_BPS;
            entry->rate_bps = (bps < 1) ? 1 : (uint64_t)bps;
        }
    }
}

mpath_status_t mpath_topo_with_rates(const mpath_topo_t *topo, const mpath_topo_rates_t *rates, mpath_topo_t **topo_p)
{
    int num_nodes = mpath_topo_num_nodes(topo), num_ranks = mpath_topo_num_ranks(topo), has_gpus = 0;
    mpath_machine_t *machines = calloc((size_t)num_nodes, sizeof(*machines));
    mpath_node_gpus_t *gpus   = calloc((size_t)num_nodes, sizeof(*gpus));
    mpath_place_t *places     = calloc((size_t)num_ranks, sizeof(*places));
    mpath_status_t status     = MPATH_ERR_NO_MEMORY;

    if ((machines == NULL) || (gpus == NULL) || (places == NULL)) {
        mpath_error("no memory for a topology of %d ranks", num_ranks);
        goto out;
    }
    for (int node = 0; node < num_nodes; node++) {
        const mpath_node_gpus_t *node_gpus = mpath_topo_gpus(topo, node);

        machines[node] = *mpath_topo_machine(topo, node);
        for (int i = 0; i < rates->num_rails; i++) {
            int nic = ((rates->num_nodes > 1) ? node * rates->num_rails : 0) + i;

            scale(&machines[node], rates->numbers[i], rates->nominal_bps[nic], rates->bps[nic]);
        }
        if (node_gpus != NULL) {
            gpus[node] = *node_gpus;
            has_gpus   = 1;
        }
    }
    for (int rank = 0; rank < num_ranks; rank++) {
        places[rank] = *mpath_topo_place(topo, rank);
    }
    status = mpath_topo_create_with_gpus(machines, has_gpus ? gpus : NULL, num_nodes, places, num_ranks,
                                         mpath_topo_params(topo), topo_p);
out:
    free(machines);
    free(gpus);
    free(places);
    return status;
}

mpath_status_t mpath_topo_rates_apply(const mpath_topo_t *topo, const mpath_topo_rates_t *rates,
                                      mpath_plan_cache_t *cache, mpath_topo_t **rated_p)
{
    mpath_topo_t *rated;
    mpath_status_t status = mpath_topo_with_rates(topo, rates, &rated);

    if (status != MPATH_OK) {
        return status;
    }
    mpath_plan_cache_set_topo(cache, rated);
    if (*rated_p != NULL) {
        mpath_topo_destroy(*rated_p);
    }
    *rated_p = rated;
    return MPATH_OK;
}
