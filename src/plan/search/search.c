/* SPDX-License-Identifier: BSD-3-Clause */
/* Minimum congestion on any topology: model, weights, assignment, repair, give-back. */
#include "plan/internal.h"

#include "plan/search/model.h"

#include <stdlib.h>

/*
 * From groups to pairs: every path of a group has a supply of bytes; its pairs take from it in order, in flows of at
 * least a fragment, from the paths with the fewest relays first. A pair too small to split takes one path as a whole.
 */

static int64_t *supply_of(int64_t *supply, const mpath_model_t *model, const mpath_model_pair_t *pair,
                          const mpath_model_path_t *path)
{
    return &supply[model->groups[pair->group].first_path + path->group_path];
}

/* A small pair: the path with the fewest relays whose supply still covers all of it, else its static route. */
static void assign_whole(mpath_model_t *model, const mpath_model_pair_t *pair, int64_t *supply)
{
    mpath_model_path_t *paths = &model->paths[pair->first_path], *best = NULL;
    uint32_t k;

    for (k = 0; k < pair->num_paths; k++) {
        if (*supply_of(supply, model, pair, &paths[k]) >= (int64_t)pair->bytes &&
            (best == NULL || paths[k].num_relays < best->num_relays)) {
            best = &paths[k];
        }
    }
    best        = best == NULL ? paths : best;
    best->bytes = pair->bytes;
    *supply_of(supply, model, pair, best) -= (int64_t)pair->bytes;
}

/* Takes what the paths with `relays` relays still offer; returns what is left of the pair. */
static uint64_t take(mpath_model_t *model, const mpath_model_pair_t *pair, int64_t *supply, uint32_t relays,
                     uint64_t rest)
{
    mpath_model_path_t *path = &model->paths[pair->first_path], *end = path + pair->num_paths;
    uint64_t smallest = model->min_fragment_bytes, amount;
    int64_t *offer;

    for (; path < end && rest > 0; path++) {
        offer = supply_of(supply, model, pair, path);
        if (path->num_relays != relays || *offer <= 0) {
            continue;
        }
        amount = (uint64_t)*offer < rest ? (uint64_t)*offer : rest;
        if (amount < rest && rest - amount < smallest) {
            amount = rest > 2 * smallest ? rest - smallest : amount;
        }
        if (amount < rest && (amount < smallest || rest - amount < smallest)) {
            continue;
        }
        path->bytes += amount;
        rest -= amount;
        *offer -= (int64_t)amount;
    }
    return rest;
}

/* What fits nowhere in whole fragments goes where the largest supply is left. */
static void place_rest(mpath_model_t *model, const mpath_model_pair_t *pair, int64_t *supply, uint64_t rest)
{
    mpath_model_path_t *path = &model->paths[pair->first_path], *end = path + pair->num_paths, *best = NULL;
    int64_t offer, most = 0;

    for (; path < end; path++) {
        offer = *supply_of(supply, model, pair, path);
        if ((path->bytes > 0 || rest >= model->min_fragment_bytes) && (best == NULL || offer > most)) {
            best = path;
            most = offer;
        }
    }
    if (best == NULL) {
        best = &model->paths[pair->first_path];
    }
    best->bytes += rest;
    *supply_of(supply, model, pair, best) -= (int64_t)rest;
}

static uint32_t most_relays(const mpath_model_t *model)
{
    uint32_t most = 0;
    size_t i;

    for (i = 0; i < model->num_paths; i++) {
        most = model->paths[i].num_relays > most ? model->paths[i].num_relays : most;
    }
    return most;
}

/* plan/search/search.c: hands the groups' bytes to their pairs in whole fragments, fewest relays first. */
static mpath_status_t model_assign(mpath_model_t *model)
{
    int64_t *supply = malloc((model->num_group_paths + 1) * sizeof(*supply));
    uint64_t *rest  = malloc((model->num_pairs + 1) * sizeof(*rest));
    uint32_t relays, last = most_relays(model);
    mpath_model_pair_t *pair;
    size_t i;

    if (supply == NULL || rest == NULL) {
        free(supply);
        free(rest);
        return MPATH_ERR_NO_MEMORY;
    }
    for (i = 0; i < model->num_group_paths; i++) {
        supply[i] = (int64_t)model->group_paths[i].bytes;
    }
    for (i = 0; i < model->num_pairs; i++) {
        pair    = &model->pairs[i];
        rest[i] = 0;
        if (pair->group == MPATH_NO_GROUP) {
            model->paths[pair->first_path].bytes = pair->bytes;
        } else if (pair->bytes / 2 < model->min_fragment_bytes) {
            assign_whole(model, pair, supply);
        } else {
            rest[i] = pair->bytes;
        }
    }
    for (relays = 0; relays <= last; relays++) {
        for (i = 0; i < model->num_pairs; i++) {
            if (rest[i] > 0) {
                rest[i] = take(model, &model->pairs[i], supply, relays, rest[i]);
            }
        }
    }
    for (i = 0; i < model->num_pairs; i++) {
        if (rest[i] > 0) {
            place_rest(model, &model->pairs[i], supply, rest[i]);
        }
    }
    free(supply);
    free(rest);
    mpath_model_count_loads(model);
    return MPATH_OK;
}

/*
 * After rounding: moves bytes between the paths of their pair. Repair lowers Z; giving back lowers the number of
 * relayed bytes and of flows while Z stays. A flow is never left or made smaller than a fragment.
 */

#define REPAIR_PASSES 16
#define NO_TARGET UINT64_MAX

static int uses(const mpath_model_t *model, const mpath_model_path_t *path, uint32_t resource)
{
    const uint32_t *list = &model->resources[path->first_resource];
    uint32_t i;

    for (i = 0; i < path->num_resources; i++) {
        if (list[i] == resource) {
            return 1;
        }
    }
    return 0;
}

/* Bytes that fit on `to` below the target when they leave `from`. */
static uint64_t residual_of(const mpath_model_t *model, const mpath_model_path_t *from, const mpath_model_path_t *to,
                            mpath_ratio_t target)
{
    const uint32_t *list = &model->resources[to->first_resource];
    uint64_t residual    = NO_TARGET, limit;
    uint32_t i;

    for (i = 0; i < to->num_resources && residual > 0; i++) {
        if (uses(model, from, list[i])) {
            continue;
        }
        limit    = mpath_ratio_times(target, model->capacity[list[i]]);
        limit    = limit > model->load[list[i]] ? limit - model->load[list[i]] : 0;
        residual = limit < residual ? limit : residual;
    }
    return residual;
}

/* The largest amount up to `most` that leaves whole fragments on both sides. */
static uint64_t whole_fragments(const mpath_model_t *model, const mpath_model_path_t *from,
                                const mpath_model_path_t *to, uint64_t most)
{
    uint64_t smallest = model->min_fragment_bytes;

    if (most >= from->bytes) {
        return from->bytes;
    }
    if (from->bytes - most < smallest) {
        if (from->bytes <= smallest) {
            return 0;
        }
        most = from->bytes - smallest;
    }
    return most > 0 && to->bytes + most >= smallest ? most : 0;
}

static void move(mpath_model_t *model, mpath_model_path_t *from, mpath_model_path_t *to, uint64_t bytes)
{
    const uint32_t *list = &model->resources[from->first_resource];
    uint32_t i;

    for (i = 0; i < from->num_resources; i++) {
        model->load[list[i]] -= bytes;
    }
    list = &model->resources[to->first_resource];
    for (i = 0; i < to->num_resources; i++) {
        model->load[list[i]] += bytes;
    }
    from->bytes -= bytes;
    to->bytes += bytes;
}

/* The most loaded of a path's resources that `other` does not use, with `more` bytes added to each. */
static mpath_ratio_t path_z(const mpath_model_t *model, const mpath_model_path_t *path, const mpath_model_path_t *other,
                            uint64_t more)
{
    const uint32_t *list = &model->resources[path->first_resource];
    mpath_ratio_t z      = {0, 1}, ratio;
    uint32_t i;

    for (i = 0; i < path->num_resources; i++) {
        if (other != NULL && uses(model, other, list[i])) {
            continue;
        }
        ratio.num = model->load[list[i]] + more;
        ratio.den = model->capacity[list[i]];
        z         = mpath_ratio_max(z, ratio);
    }
    return z;
}

/* The resource of the path that is furthest above the target, and by how many bytes; -1: none is. */
static int64_t worst_of(const mpath_model_t *model, const mpath_model_path_t *path, mpath_ratio_t target,
                        uint64_t *excess_p)
{
    const uint32_t *list = &model->resources[path->first_resource];
    mpath_ratio_t z      = target, ratio;
    int64_t worst        = -1;
    uint32_t i;

    for (i = 0; i < path->num_resources; i++) {
        ratio.num = model->load[list[i]];
        ratio.den = model->capacity[list[i]];
        if (mpath_ratio_less(z, ratio)) {
            z         = ratio;
            worst     = list[i];
            *excess_p = ratio.num - mpath_ratio_times(target, ratio.den);
        }
    }
    return worst;
}

/* Moves what it can of one overloaded flow to the pair's other path that takes most of it. */
static int relieve(mpath_model_t *model, const mpath_model_pair_t *pair, mpath_model_path_t *from, mpath_ratio_t target)
{
    mpath_model_path_t *path = &model->paths[pair->first_path], *end = path + pair->num_paths, *best = NULL;
    uint64_t excess, amount, residual, most = 0;
    int64_t worst = worst_of(model, from, target, &excess);
    mpath_ratio_t here, there;

    if (worst < 0) {
        return 0;
    }
    here.num = model->load[worst];
    here.den = model->capacity[worst];
    for (; path < end; path++) {
        if (path == from || uses(model, path, (uint32_t)worst)) {
            continue;
        }
        residual = residual_of(model, from, path, target);
        amount   = whole_fragments(model, from, path, residual < excess ? residual : excess);
        amount   = amount > residual ? 0 : amount;
        if (amount > most || (amount > 0 && amount == most && path->num_relays < best->num_relays)) {
            best = path;
            most = amount;
        }
    }
    if (best != NULL) {
        move(model, from, best, most);
        return 1;
    }
    /* nothing fits below the target: a whole flow still pays where it lands on less than what it leaves */
    for (path = &model->paths[pair->first_path]; path < end; path++) {
        if (path != from && !uses(model, path, (uint32_t)worst)) {
            there = path_z(model, path, from, from->bytes);
            if (mpath_ratio_less(there, here)) {
                best = path;
                here = there;
            }
        }
    }
    if (best != NULL) {
        move(model, from, best, from->bytes);
        return 1;
    }
    return 0;
}

/* plan/search/search.c: moves bytes off resources loaded above `target`, then takes back relays and splits that do not pay. */
static void model_repair(mpath_model_t *model, mpath_ratio_t target)
{
    int pass, moved = 1;
    size_t i;
    uint32_t k;

    for (pass = 0; pass < REPAIR_PASSES && moved && mpath_ratio_less(target, mpath_model_z(model)); pass++) {
        moved = 0;
        for (i = 0; i < model->num_pairs; i++) {
            const mpath_model_pair_t *pair = &model->pairs[i];

            for (k = 0; k < pair->num_paths && pair->num_paths > 1; k++) {
                if (model->paths[pair->first_path + k].bytes > 0) {
                    moved |= relieve(model, pair, &model->paths[pair->first_path + k], target);
                }
            }
        }
    }
}

/* Back to paths with fewer relays, the fewest first. */
static void give_back_relays(mpath_model_t *model, const mpath_model_pair_t *pair, mpath_ratio_t z)
{
    mpath_model_path_t *paths = &model->paths[pair->first_path];
    uint64_t amount, residual;
    uint32_t k, j, relays;

    for (k = pair->num_paths; k-- > 0;) {
        for (relays = 0; relays < paths[k].num_relays && paths[k].bytes > 0; relays++) {
            for (j = 0; j < pair->num_paths && paths[k].bytes > 0; j++) {
                if (j == k || paths[j].num_relays != relays) {
                    continue;
                }
                residual = residual_of(model, &paths[k], &paths[j], z);
                amount   = whole_fragments(model, &paths[k], &paths[j], residual);
                if (amount > 0 && amount <= residual) {
                    move(model, &paths[k], &paths[j], amount);
                }
            }
        }
    }
}

/* Whole flows onto another flow of the same pair that costs no more relays. */
static void merge_flows(mpath_model_t *model, const mpath_model_pair_t *pair, mpath_ratio_t z)
{
    mpath_model_path_t *paths = &model->paths[pair->first_path];
    uint32_t k, j;

    for (k = pair->num_paths; k-- > 0;) {
        for (j = 0; j < pair->num_paths && paths[k].bytes > 0; j++) {
            if (j != k && (paths[j].bytes > 0 || j == 0) && paths[j].num_relays <= paths[k].num_relays &&
                residual_of(model, &paths[k], &paths[j], z) >= paths[k].bytes) {
                move(model, &paths[k], &paths[j], paths[k].bytes);
            }
        }
    }
}

/* plan/search/search.c: moves bytes off resources loaded above `target`, then takes back relays and splits that do not pay. */
static void model_give_back(mpath_model_t *model)
{
    mpath_ratio_t z = mpath_ratio_max(mpath_model_z(model), model->bound);
    size_t i;

    for (i = 0; i < model->num_pairs; i++) {
        if (model->pairs[i].num_paths > 1) {
            give_back_relays(model, &model->pairs[i], z);
            merge_flows(model, &model->pairs[i], z);
        }
    }
}

#define MOST_RELAXED_PPM 2000000

static mpath_status_t emit(mpath_plan_t *plan, const mpath_model_t *model)
{
    const mpath_model_pair_t *pair;
    const mpath_model_path_t *path;
    mpath_status_t status;
    size_t num_flows = 0, i;
    uint64_t offset;
    uint32_t k;

    for (i = 0; i < model->num_paths; i++) {
        num_flows += model->paths[i].bytes > 0;
    }
    status = mpath_plan_reserve(plan, num_flows);
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

    model_repair(model, target);
    for (ppm = gap_ppm < 1000 ? 1000 : gap_ppm; ppm < MOST_RELAXED_PPM; ppm += ppm / 2) {
        if (mpath_ratio_within(mpath_model_z(model), target, ppm)) {
            break;
        }
        model_repair(model, mpath_ratio_raise(target, ppm));
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
        status = model_assign(&model);
        if (status != MPATH_OK) {
            goto out;
        }
        repair(&model, target, params->gap_ppm);
    }
    model_give_back(&model);
    status = emit(plan, &model);
out:
    mpath_model_release(&model);
    return status;
}
