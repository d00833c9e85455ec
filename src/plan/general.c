/* SPDX-License-Identifier: BSD-3-Clause */
/* Minimum congestion on any topology: model, weights, assignment, repair, give-back. */
#include "plan/internal.h"
#include "plan/model.h"

#define MOST_RELAXED_PPM 2000000

static mpath_status_t emit(mpath_plan_t *plan, const mpath_model_t *model)
{
    const mpath_model_pair_t *pair;
    const mpath_model_path_t *path;
    mpath_status_t status;
    size_t pieces = 0, i;
    uint64_t offset;
    uint32_t k;

    for (i = 0; i < model->num_paths; i++) {
        pieces += model->paths[i].bytes > 0;
    }
    status = mpath_plan_reserve(plan, pieces);
    if (status != MPATH_OK) {
        return status;
    }
    for (i = 0; i < model->num_pairs; i++) {
        pair   = &model->pairs[i];
        offset = 0;
        for (k = 0; k < pair->num_paths; k++) {
            path = &model->paths[pair->first_path + k];
            if (path->bytes > 0) {
                mpath_plan_append(plan, pair->source, pair->destination, (int)k, offset, path->bytes);
                plan->relayed_bytes += path->bytes * path->num_relays;
                offset += path->bytes;
            }
        }
    }
    for (k = 0; k < model->num_resources; k++) {
        plan->loads[k] = model->load[k];
    }
    plan->bound = model->bound;
    return MPATH_OK;
}

/* All bytes on path 0, when that is good enough already. */
static int direct_suffices(mpath_model_t *model, uint32_t gap_ppm)
{
    size_t i;

    for (i = 0; i < model->num_pairs; i++) {
        model->paths[model->pairs[i].first_path].bytes = model->pairs[i].bytes;
    }
    mpath_model_count_loads(model);
    if (mpath_ratio_within(mpath_model_z(model), model->bound, gap_ppm)) {
        return 1;
    }
    for (i = 0; i < model->num_pairs; i++) {
        model->paths[model->pairs[i].first_path].bytes = 0;
    }
    return 0;
}

/*
 * Whole small pairs may fit nowhere within the target: raises it step by step until what is left above it finds a
 * place.
 */
static void repair(mpath_model_t *model, mpath_ratio_t target, uint32_t gap_ppm)
{
    uint32_t ppm;

    mpath_model_repair(model, target);
    for (ppm = gap_ppm < 1000 ? 1000 : gap_ppm; ppm < MOST_RELAXED_PPM; ppm += ppm / 2) {
        if (mpath_ratio_within(mpath_model_z(model), target, ppm)) {
            break;
        }
        mpath_model_repair(model, mpath_ratio_raise(target, ppm));
    }
}

/* Divides the groups' bytes as an earlier plan did those of their pairs; 0: it says nothing about some pair. */
static int start_from(mpath_model_t *model, const mpath_plan_t *previous)
{
    const mpath_flow_t *flow = previous->flows, *end = flow + previous->num_flows, *first;
    mpath_model_path_t *path;
    uint64_t total;
    size_t i;

    for (i = 0; i < model->num_pairs; i++) {
        const mpath_model_pair_t *pair = &model->pairs[i];

        for (; flow < end &&
               (flow->source < pair->source || (flow->source == pair->source && flow->destination < pair->destination));
             flow++) {
        }
        for (first = flow, total = 0;
             flow < end && flow->source == pair->source && flow->destination == pair->destination; flow++) {
            total += flow->bytes;
        }
        if (total == 0) {
            return 0;
        }
        for (; first < flow && pair->group != MPATH_NO_GROUP; first++) {
            if ((uint32_t)first->path >= pair->num_paths) {
                return 0;
            }
            path = &model->paths[pair->first_path + (size_t)first->path];
            path = &model->group_paths[model->groups[pair->group].first_path + path->group_path];
            path->bytes += (uint64_t)((mpath_u128_t)pair->bytes * first->bytes / total);
        }
    }
    return 1;
}

mpath_status_t mpath_plan_general(mpath_plan_t *plan, const mpath_topo_t *topo, const uint64_t *demand,
                                  const mpath_plan_params_t *params, const mpath_plan_t *previous)
{
    mpath_status_t status;
    mpath_ratio_t target;
    mpath_model_t model;

    status = mpath_model_init(&model, topo, demand, params->min_fragment_bytes);
    if (status != MPATH_OK) {
        return status;
    }
    if (!direct_suffices(&model, params->gap_ppm)) {
        status = mpath_weights_solve(&model, params->gap_ppm, params->max_rounds,
                                     previous != NULL && previous->num_flows > 0 && start_from(&model, previous),
                                     &target);
        if (status != MPATH_OK) {
            goto out;
        }
        status = mpath_model_assign(&model);
        if (status != MPATH_OK) {
            goto out;
        }
        repair(&model, target, params->gap_ppm);
    }
    mpath_model_give_back(&model);
    status = emit(plan, &model);
out:
    mpath_model_release(&model);
    return status;
}
