/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans: creation by policy, accessors, and the bound of inter-node traffic. */
#include "plan/internal.h"

#include "util/log.h"

#include <stdlib.h>
#include <string.h>

#define GENERAL_MAX_RANKS 128

void mpath_plan_params_init(mpath_plan_params_t *params)
{
    params->policy             = MPATH_POLICY_MPATH;
    params->min_fragment_bytes = 32 * 1024;
    params->gap_ppm            = 2000;
    params->max_rounds         = 400;
    params->keep_ppm           = 20000;
}

mpath_status_t mpath_plan_reserve(mpath_plan_t *plan, size_t more)
{
    size_t needed = plan->num_flows + more, capacity = plan->capacity + plan->capacity / 2;
    mpath_flow_t *flows;

    if (needed <= plan->capacity) {
        return MPATH_OK;
    }
    capacity = capacity < needed ? needed : capacity;
    flows    = realloc(plan->flows, capacity * sizeof(*flows));
    if (flows == NULL) {
        mpath_error("plan: no memory for %zu flows; the collective cannot be planned", capacity);
        return MPATH_ERR_NO_MEMORY;
    }
    plan->flows    = flows;
    plan->capacity = capacity;
    return MPATH_OK;
}

mpath_status_t mpath_plan_unreachable(int source, int destination, uint64_t bytes)
{
    mpath_error("plan: rank %d has %llu bytes for rank %d, but no path leads there; the collective cannot be planned",
                source, (unsigned long long)bytes, destination);
    return MPATH_ERR_UNREACHABLE;
}

void mpath_plan_find_bottleneck(mpath_plan_t *plan, const mpath_topo_t *topo)
{
    mpath_ratio_t ratio;
    int r;

    plan->bottleneck = -1;
    plan->z.num      = 0;
    plan->z.den      = 1;
    for (r = 0; r < plan->num_resources; r++) {
        ratio.num = plan->loads[r];
        if (ratio.num > 0) {
            ratio.den = mpath_topo_resource(topo, r)->capacity_bps;
            if (ratio.den == plan->z.den ? ratio.num > plan->z.num : mpath_ratio_less(plan->z, ratio)) {
                plan->z          = ratio;
                plan->bottleneck = r;
            }
        }
    }
}

mpath_plan_t *mpath_plan_new(const mpath_topo_t *topo)
{
    mpath_plan_t *plan = calloc(1, sizeof(*plan));

    if (plan == NULL) {
        return NULL;
    }
    plan->num_resources = mpath_topo_num_resources(topo);
    plan->loads         = calloc((size_t)plan->num_resources + 1, sizeof(*plan->loads));
    plan->z.den         = 1;
    plan->bound.den     = 1;
    if (plan->loads == NULL) {
        free(plan);
        return NULL;
    }
    return plan;
}

void mpath_plan_clear(mpath_plan_t *plan)
{
    memset(plan->loads, 0, (size_t)plan->num_resources * sizeof(*plan->loads));
    plan->num_flows     = 0;
    plan->relayed_bytes = 0;
}

static uint64_t add_capped(uint64_t a, uint64_t b)
{
    return a + b < a ? UINT64_MAX : a + b;
}

mpath_status_t mpath_plan_check_total(const uint64_t *demand, size_t num_ranks)
{
    uint64_t total = 0, sum, seen;
    size_t row, i;

    for (row = 0; row < num_ranks; row++, demand += num_ranks) {
        sum  = 0;
        seen = 0;
        for (i = 0; i < num_ranks; i++) {
            sum += demand[i];
            seen |= demand[i];
        }
        if (seen >> 40) { /* the sum may be wrong, or be that of the diagonal */
            for (i = 0, sum = 0; i < num_ranks; i++) {
                sum = i == row ? sum : add_capped(sum, demand[i]);
            }
        }
        total = add_capped(total, sum);
    }
    if (total >> 62) {
        mpath_error("plan: the demands add up to 2^62 bytes or more; the collective cannot be planned");
        return MPATH_ERR_PARAM;
    }
    return MPATH_OK;
}

/* Whether the general search is affordable: it keeps every path of every pair in memory. */
static int is_small(const mpath_topo_t *topo)
{
    return mpath_topo_num_ranks(topo) <= GENERAL_MAX_RANKS;
}

/* A plan without a list of paths, where the topology is of a kind that allows it; also of the policy direct. */
static mpath_status_t construct(mpath_plan_t *plan, const mpath_topo_t *topo, const uint64_t *demand,
                                const mpath_plan_params_t *params)
{
    mpath_status_t status = MPATH_DECLINED;

    if (mpath_topo_params(topo)->max_paths > 0) {
        return MPATH_DECLINED; /* what is constructed takes all paths for granted */
    }
    status = mpath_plan_rails(plan, topo, demand, params);

    return status == MPATH_DECLINED ? mpath_plan_ports(plan, topo, demand, params) : status;
}

/* A plan of a policy without a search. */
static mpath_status_t make_static(mpath_plan_t *plan, const mpath_topo_t *topo, const uint64_t *demand,
                                  const mpath_plan_params_t *params)
{
    mpath_status_t status = MPATH_DECLINED;

    if (params->policy == MPATH_POLICY_DIRECT) {
        status = construct(plan, topo, demand, params);
    }
    if (status == MPATH_DECLINED) {
        mpath_plan_clear(plan);
        status = mpath_plan_static(plan, topo, demand, params);
        if (status == MPATH_OK) {
            mpath_plan_find_bottleneck(plan, topo);
            status = mpath_plan_cuts(topo, demand, &plan->bound);
        }
    }
    return status;
}

/* A policy's plan takes the place of a plan that is worse; the bound is of the problem, and stays. */
static mpath_status_t take_better(mpath_plan_t **plan_p, const mpath_topo_t *topo, const uint64_t *demand,
                                  const mpath_plan_params_t *params, mpath_policy_t policy)
{
    mpath_plan_params_t other_params = *params;
    mpath_plan_t *other              = mpath_plan_new(topo), *swap;
    mpath_status_t status;

    if (other == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    other_params.policy = policy;
    status              = make_static(other, topo, demand, &other_params);
    if (status == MPATH_OK && mpath_ratio_less(other->z, (*plan_p)->z)) {
        other->bound = (*plan_p)->bound;
        swap         = *plan_p;
        *plan_p      = other;
        other        = swap;
    }
    mpath_plan_destroy(other);
    return status;
}

/* The same with each policy of a mask. */
static mpath_status_t take_best(mpath_plan_t **plan_p, const mpath_topo_t *topo, const uint64_t *demand,
                                const mpath_plan_params_t *params, uint32_t rivals)
{
    mpath_status_t status = MPATH_OK;

    for (; rivals != 0 && status == MPATH_OK; rivals &= rivals - 1) {
        if (mpath_ratio_less((*plan_p)->bound, (*plan_p)->z)) {
            status = take_better(plan_p, topo, demand, params, (mpath_policy_t)__builtin_ctz(rivals));
        }
    }
    return status;
}

/* The plan of the general search in place of one that the construction left above the bound, when it is better. */
static mpath_status_t search_better(mpath_plan_t **plan_p, const mpath_topo_t *topo, const uint64_t *demand,
                                    const mpath_plan_params_t *params, const mpath_plan_t *previous)
{
    mpath_plan_t *other = mpath_plan_new(topo), *swap;
    mpath_status_t status;

    if (other == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    status = mpath_plan_general(other, topo, demand, params, previous);
    if (status == MPATH_OK) {
        mpath_plan_find_bottleneck(other, topo);
        other->bound = (*plan_p)->bound = mpath_ratio_max(other->bound, (*plan_p)->bound);
        if (mpath_ratio_less(other->z, (*plan_p)->z)) {
            swap    = *plan_p;
            *plan_p = other;
            other   = swap;
        }
    }
    mpath_plan_destroy(other);
    return status;
}

static mpath_status_t plan_congestion(mpath_plan_t **plan_p, const mpath_topo_t *topo, const uint64_t *demand,
                                      const mpath_plan_params_t *params, const mpath_plan_t *previous)
{
    mpath_status_t status = construct(*plan_p, topo, demand, params);

    if (status == MPATH_DECLINED) {
        mpath_plan_clear(*plan_p);
        status = mpath_plan_general(*plan_p, topo, demand, params, previous);
        if (status == MPATH_OK) {
            mpath_plan_find_bottleneck(*plan_p, topo);
            status = take_best(plan_p, topo, demand, params, MPATH_PLAN_ALL_RIVALS);
        }
        return status;
    }
    if (status == MPATH_OK) {
        status = take_best(plan_p, topo, demand, params, (*plan_p)->rivals);
    }
    if (status == MPATH_OK && is_small(topo) && !mpath_ratio_within((*plan_p)->z, (*plan_p)->bound, params->gap_ppm)) {
        status = search_better(plan_p, topo, demand, params, previous);
    }
    return status;
}

static mpath_status_t plan_make(mpath_plan_t **plan_p, const mpath_topo_t *topo, const uint64_t *demand,
                                const mpath_plan_params_t *params, const mpath_plan_t *previous)
{
    if (params->policy == MPATH_POLICY_MPATH) {
        return plan_congestion(plan_p, topo, demand, params, previous);
    }
    return make_static(*plan_p, topo, demand, params);
}

mpath_status_t mpath_plan_create(const mpath_topo_t *topo, const uint64_t *demand, const mpath_plan_params_t *params,
                                 mpath_plan_t **plan_p)
{
    return mpath_plan_create_from(topo, demand, params, NULL, plan_p);
}

mpath_status_t mpath_plan_create_from(const mpath_topo_t *topo, const uint64_t *demand,
                                      const mpath_plan_params_t *params, const mpath_plan_t *previous,
                                      mpath_plan_t **plan_p)
{
    size_t num_ranks = (size_t)mpath_topo_num_ranks(topo);
    mpath_plan_params_t used;
    mpath_status_t status;
    mpath_plan_t *plan;

    if (params == NULL) {
        mpath_plan_params_init(&used);
    } else {
        used = *params;
    }
    used.min_fragment_bytes = used.min_fragment_bytes == 0 ? 1 : used.min_fragment_bytes;
    status                  = mpath_plan_check_total(demand, num_ranks);
    if (status != MPATH_OK) {
        return status;
    }
    plan = mpath_plan_new(topo);
    if (plan == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    status = plan_make(&plan, topo, demand, &used, previous);
    if (status != MPATH_OK) {
        mpath_plan_destroy(plan);
        return status;
    }
    *plan_p = plan;
    return MPATH_OK;
}

void mpath_plan_destroy(mpath_plan_t *plan)
{
    if (plan != NULL) {
        free(plan->flows);
        free(plan->loads);
        free(plan);
    }
}

const mpath_flow_t *mpath_plan_flows(const mpath_plan_t *plan, size_t *num_flows_p)
{
    *num_flows_p = plan->num_flows;
    return plan->flows;
}

const uint64_t *mpath_plan_loads(const mpath_plan_t *plan)
{
    return plan->loads;
}

uint64_t mpath_plan_z_ns(const mpath_plan_t *plan)
{
    return mpath_ratio_ns_ceil(plan->z);
}

uint64_t mpath_plan_bound_ns(const mpath_plan_t *plan)
{
    return mpath_ratio_ns_floor(plan->bound);
}

int mpath_plan_bottleneck(const mpath_plan_t *plan)
{
    return plan->bottleneck;
}

uint64_t mpath_plan_relayed_bytes(const mpath_plan_t *plan)
{
    return plan->relayed_bytes;
}

int mpath_plan_is_kept(const mpath_plan_t *plan, uint32_t *loss_ppm_p)
{
    if (loss_ppm_p != NULL) {
        *loss_ppm_p = plan->kept_loss_ppm;
    }
    return plan->is_kept;
}

uint64_t mpath_plan_signature(const mpath_plan_t *plan)
{
    uint64_t hash = 0xcbf29ce484222325ull ^ plan->num_flows;
    size_t i;

    for (i = 0; i < plan->num_flows; i++) {
        const mpath_flow_t *flow = &plan->flows[i];

        hash = (hash ^ ((uint64_t)(uint32_t)flow->source << 32 | (uint32_t)flow->destination)) * 0x9e3779b97f4a7c15ull;
        hash = ((hash ^ (hash >> 32)) ^ (uint64_t)(uint32_t)flow->path ^ flow->offset << 8) * 0xd6e8feb86659fd93ull;
        hash = ((hash ^ (hash >> 32)) ^ flow->bytes) * 0x9e3779b97f4a7c15ull;
        hash ^= hash >> 29;
    }
    return hash;
}
