/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From groups to pairs: every path of a group has a supply of bytes; its pairs take from it in order, in pieces of at
 * least a fragment, from the paths with the fewest relays first. A pair too small to split takes one path as a whole.
 */
#include "plan/model.h"

#include <stdlib.h>

static int64_t *supply_of(int64_t *supply, const mpath_model_t *model, const mpath_model_pair_t *pair,
                          const mpath_model_path_t *path)
{
    return &supply[model->groups[pair->group].first_path + path->group_path];
}

/* A small pair: the path with the fewest relays that still has room for all of it, else its static route. */
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

mpath_status_t mpath_model_assign(mpath_model_t *model)
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
