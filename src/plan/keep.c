/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether the routes of the previous plan are kept: the comparison behind mpath_plan_follow(). */
#include "plan/follow.h"

#include <stdlib.h>
#include <string.h>

/* The plan on the old routes, with a bound that is quick to find. MPATH_DECLINED: they do not fit the topology. */
static mpath_status_t replay(const mpath_topo_t *topo, const uint64_t *demand, const mpath_plan_params_t *params,
                             const mpath_plan_t *previous, mpath_plan_t *plan)
{
    mpath_wanted_t wanted = {.params = NULL};
    mpath_moved_flow_t *moved;
    mpath_status_t status;
    size_t count;

    status = mpath_plan_scale(previous, demand, mpath_topo_num_ranks(topo), params->min_fragment_bytes, &moved, &count);
    if (status != MPATH_OK) {
        return status;
    }
    wanted.moved     = moved;
    wanted.num_moved = count;
    status           = mpath_plan_construct(plan, topo, demand, &wanted);
    if (status == MPATH_DECLINED) {
        status = mpath_plan_replay(plan, topo, demand, moved, count);
        if (status == MPATH_OK) {
            status = mpath_plan_cuts(topo, demand, &plan->bound);
        }
    }
    free(moved);
    return status;
}

static mpath_plan_t *keep(mpath_plan_t *kept, mpath_ratio_t reference)
{
    kept->is_kept       = 1;
    kept->kept_loss_ppm = mpath_ratio_excess_ppm(kept->z, reference);
    return kept;
}

/* Plans anew, and keeps the old routes all the same where the new ones gain little. Takes the plan on the old ones. */
static mpath_status_t compare(const mpath_topo_t *topo, const uint64_t *demand, const mpath_plan_params_t *params,
                              const mpath_plan_t *previous, mpath_plan_t *kept, mpath_plan_t **plan_p)
{
    mpath_plan_t *plan;
    mpath_status_t status = mpath_plan_create_from(topo, demand, params, previous, &plan);

    if (status == MPATH_OK && mpath_ratio_within(kept->z, plan->z, params->keep_ppm)) {
        kept->bound = mpath_ratio_max(kept->bound, plan->bound);
        *plan_p     = keep(kept, plan->z);
        kept        = plan;
    } else if (status == MPATH_OK) {
        *plan_p = plan;
    }
    mpath_plan_destroy(kept);
    return status;
}

mpath_status_t mpath_plan_follow(const mpath_topo_t *topo, const uint64_t *demand, const mpath_plan_params_t *params,
                                 const mpath_plan_t *previous, mpath_plan_t **plan_p)
{
    mpath_plan_params_t used;
    mpath_status_t status;
    mpath_plan_t *kept;

    if (params == NULL) {
        mpath_plan_params_init(&used);
    } else {
        used = *params;
    }
    used.min_fragment_bytes = used.min_fragment_bytes == 0 ? 1 : used.min_fragment_bytes;
    if (previous == NULL || used.keep_ppm == 0 || used.policy != MPATH_POLICY_MPATH) {
        return mpath_plan_create(topo, demand, &used, plan_p);
    }
    status = mpath_plan_check_total(demand, (size_t)mpath_topo_num_ranks(topo));
    if (status != MPATH_OK) {
        return status;
    }
    kept = mpath_plan_new(topo);
    if (kept == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    status = replay(topo, demand, &used, previous, kept);
    if (status == MPATH_OK && mpath_ratio_within(kept->z, kept->bound, used.keep_ppm)) {
        *plan_p = keep(kept, kept->bound);
        return MPATH_OK;
    }
    if (status == MPATH_OK) {
        return compare(topo, demand, &used, previous, kept, plan_p);
    }
    mpath_plan_destroy(kept);
    return status == MPATH_DECLINED ? mpath_plan_create(topo, demand, &used, plan_p) : status;
}

static int same_nics(const mpath_machine_t *a, const mpath_machine_t *b)
{
    int nic;

    for (nic = 0; nic < a->num_nics && a->num_nics == b->num_nics; nic++) {
        if (a->nics[nic].up != b->nics[nic].up || a->nics[nic].rail != b->nics[nic].rail) {
            return 0;
        }
    }
    return a->num_nics == b->num_nics;
}

static int same_gpus(const mpath_node_gpus_t *a, const mpath_node_gpus_t *b)
{
    int gpu;

    if (a == NULL || b == NULL) {
        return a == b;
    }
    for (gpu = 0; gpu < a->num_gpus && a->num_gpus == b->num_gpus; gpu++) {
        if (a->gpus[gpu].nics != b->gpus[gpu].nics) {
            return 0;
        }
    }
    return a->num_gpus == b->num_gpus && a->link == b->link && a->domain == b->domain;
}

static int same_resources(const mpath_topo_t *topo, const mpath_topo_t *other)
{
    mpath_resource_t a, b;
    int r;

    if (mpath_topo_num_resources(topo) != mpath_topo_num_resources(other)) {
        return 0;
    }
    for (r = 0; r < mpath_topo_num_resources(topo); r++) {
        a = mpath_topo_resource(topo, r);
        b = mpath_topo_resource(other, r);
        if (a.kind != b.kind || a.node != b.node || a.index != b.index || a.peer != b.peer) {
            return 0;
        }
    }
    return 1;
}

int mpath_plan_has_same_paths(const mpath_topo_t *topo, const mpath_topo_t *other)
{
    int num_ranks = mpath_topo_num_ranks(topo), num_nodes = mpath_topo_num_nodes(topo), i;

    if (num_ranks != mpath_topo_num_ranks(other) || num_nodes != mpath_topo_num_nodes(other) ||
        mpath_topo_params(topo)->access != mpath_topo_params(other)->access ||
        mpath_topo_params(topo)->max_paths != mpath_topo_params(other)->max_paths ||
        mpath_topo_params(topo)->fabric != mpath_topo_params(other)->fabric || !same_resources(topo, other)) {
        return 0;
    }
    for (i = 0; i < num_ranks; i++) {
        if (memcmp(mpath_topo_place(topo, i), mpath_topo_place(other, i), sizeof(mpath_place_t)) != 0) {
            return 0;
        }
    }
    for (i = 0; i < num_nodes; i++) {
        if (!same_nics(mpath_topo_machine(topo, i), mpath_topo_machine(other, i)) ||
            !same_gpus(mpath_topo_gpus(topo, i), mpath_topo_gpus(other, i))) {
            return 0;
        }
    }
    return 1;
}
