/* SPDX-License-Identifier: BSD-3-Clause */
/* Plan cache: a short list, most recently used first. */
#include "plan/cache.h"

#include "util/log.h"

#include <stdlib.h>
#include <string.h>

#define COMPARED_ROWS 16

typedef struct entry {
    uint64_t signature;
    uint64_t *demand;
    mpath_plan_t *plan;
    uint64_t bytes; /* about what the entry takes */
    mpath_gate_forecast_t forecast;
    int has_forecast;
    int is_stale; /* of a topology with other rates: no hit any more, but its routes may be kept */
} entry_t;

struct mpath_plan_cache {
    const mpath_topo_t *topo;
    mpath_plan_params_t params;
    size_t demand_bytes;
    int num_entries;
    entry_t entries[MPATH_PLAN_CACHE_ENTRIES];
};

mpath_status_t mpath_plan_cache_create(const mpath_topo_t *topo, const mpath_plan_params_t *params,
                                       mpath_plan_cache_t **cache_p)
{
    mpath_plan_cache_t *cache = calloc(1, sizeof(*cache));
    size_t num_ranks          = (size_t)mpath_topo_num_ranks(topo);

    if (cache == NULL) {
        mpath_error("no memory for the plan cache");
        return MPATH_ERR_NO_MEMORY;
    }
    cache->topo         = topo;
    cache->params       = *params;
    cache->demand_bytes = num_ranks * num_ranks * sizeof(uint64_t);
    *cache_p            = cache;
    return MPATH_OK;
}

static void entry_release(entry_t *entry)
{
    mpath_gate_forecast_release(&entry->forecast);
    mpath_plan_destroy(entry->plan);
    free(entry->demand);
}

void mpath_plan_cache_destroy(mpath_plan_cache_t *cache)
{
    if (cache != NULL) {
        for (int i = 0; i < cache->num_entries; i++) {
            entry_release(&cache->entries[i]);
        }
        free(cache);
    }
}

static void move_to_front(mpath_plan_cache_t *cache, int index)
{
    entry_t entry = cache->entries[index];

    memmove(&cache->entries[1], &cache->entries[0], (size_t)index * sizeof(entry));
    cache->entries[0] = entry;
}

static uint64_t difference(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* How far a demand is from an entry's, over some rows. */
static uint64_t distance(const mpath_plan_cache_t *cache, const entry_t *entry, const uint64_t *demand)
{
    size_t num_ranks = (size_t)mpath_topo_num_ranks(cache->topo),
           step      = (num_ranks + COMPARED_ROWS - 1) / COMPARED_ROWS;
    uint64_t sum     = 0;

    for (size_t row = 0; row < num_ranks; row += step) {
        for (size_t i = row * num_ranks; i < (row + 1) * num_ranks; i++) {
            sum += difference(entry->demand[i], demand[i]);
        }
    }
    return sum;
}

/* The plan whose routes a new one may keep: that of the most similar demand, since layers of a model alternate. */
static const mpath_plan_t *most_similar(const mpath_plan_cache_t *cache, const uint64_t *demand)
{
    const mpath_plan_t *plan = NULL;
    uint64_t least           = UINT64_MAX, here;

    for (int i = 0; i < cache->num_entries; i++) {
        here = distance(cache, &cache->entries[i], demand);
        if ((plan == NULL) || (here < least)) {
            plan  = cache->entries[i].plan;
            least = here;
        }
    }
    return plan;
}

static mpath_status_t entry_make(const mpath_plan_cache_t *cache, uint64_t signature, const uint64_t *demand,
                                 entry_t *entry)
{
    size_t num_flows;
    mpath_status_t status;

    memset(entry, 0, sizeof(*entry));
    entry->signature = signature;
    entry->demand    = malloc(cache->demand_bytes);
    if (entry->demand == NULL) {
        mpath_error("no memory to keep a plan; the call fails");
        return MPATH_ERR_NO_MEMORY;
    }
    memcpy(entry->demand, demand, cache->demand_bytes);
    status = mpath_plan_follow(cache->topo, demand, &cache->params, most_similar(cache, demand), &entry->plan);
    if (status != MPATH_OK) {
        free(entry->demand);
        return status;
    }
    mpath_plan_flows(entry->plan, &num_flows);
    entry->bytes = cache->demand_bytes + num_flows * sizeof(mpath_flow_t) +
                   (size_t)mpath_topo_num_resources(cache->topo) * sizeof(uint64_t);
    return MPATH_OK;
}

void mpath_plan_cache_set_topo(mpath_plan_cache_t *cache, const mpath_topo_t *topo)
{
    int keep = mpath_plan_has_same_paths(cache->topo, topo);

    for (int i = 0; i < cache->num_entries; i++) {
        if (keep) {
            cache->entries[i].is_stale = 1;
        } else {
            entry_release(&cache->entries[i]);
        }
    }
    cache->num_entries = keep ? cache->num_entries : 0;
    cache->topo        = topo;
}

/* Evicts entries until there is memory for one more, in front. */
static void evict(mpath_plan_cache_t *cache)
{
    uint64_t bytes = 0;

    for (int i = 0; i < cache->num_entries; i++) {
        bytes += cache->entries[i].bytes;
    }
    while ((cache->num_entries > 0) &&
           ((cache->num_entries == MPATH_PLAN_CACHE_ENTRIES) || (bytes > MPATH_PLAN_CACHE_BYTES))) {
        entry_t *last = &cache->entries[--cache->num_entries];

        bytes -= last->bytes;
        entry_release(last);
    }
}

mpath_status_t mpath_plan_cache_get(mpath_plan_cache_t *cache, uint64_t signature, const uint64_t *demand,
                                    const mpath_plan_t **plan_p, int *hit_p)
{
    mpath_status_t status;
    entry_t entry;
    int hit = 0;

    for (int i = 0; (i < cache->num_entries) && !hit; i++) {
        if ((cache->entries[i].signature == signature) && !cache->entries[i].is_stale &&
            (memcmp(cache->entries[i].demand, demand, cache->demand_bytes) == 0)) {
            move_to_front(cache, i);
            hit = 1;
        }
    }
    if (!hit) {
        status = entry_make(cache, signature, demand, &entry);
        if (status != MPATH_OK) {
            return status;
        }
        evict(cache);
        cache->entries[cache->num_entries++] = entry;
        move_to_front(cache, cache->num_entries - 1);
    }
    *plan_p = cache->entries[0].plan;
    *hit_p  = hit;
    return MPATH_OK;
}

const mpath_plan_t *mpath_plan_cache_last(const mpath_plan_cache_t *cache)
{
    return ((cache->num_entries > 0) && !cache->entries[0].is_stale) ? cache->entries[0].plan : NULL;
}

mpath_status_t mpath_plan_cache_forecast(mpath_plan_cache_t *cache, const mpath_time_params_t *time_params,
                                         const mpath_gate_forecast_t **forecast_p)
{
    entry_t *entry = &cache->entries[0];
    size_t num_flows;
    mpath_status_t status;

    if (!entry->has_forecast) {
        status = mpath_gate_forecast(cache->topo, entry->demand, &cache->params, time_params, entry->plan,
                                     &entry->forecast);
        if (status != MPATH_OK) {
            return status;
        }
        entry->has_forecast = 1;
        if (entry->forecast.direct != NULL) {
            mpath_plan_flows(entry->forecast.direct, &num_flows);
            entry->bytes += num_flows * sizeof(mpath_flow_t);
        }
    }
    *forecast_p = &entry->forecast;
    return MPATH_OK;
}

/* A topology with other rates. */

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

        mpath_topo_copy_machine(topo, node, &machines[node]);
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
