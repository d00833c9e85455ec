/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * After rounding: moves pieces between the paths of their pair. Repair lowers Z; giving back lowers the number of
 * relayed bytes and of pieces while Z stays. A piece is never left or made smaller than a fragment.
 */
#include "plan/model.h"

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
static uint64_t room_on(const mpath_model_t *model, const mpath_model_path_t *from, const mpath_model_path_t *to,
                        mpath_ratio_t target)
{
    const uint32_t *list = &model->resources[to->first_resource];
    uint64_t room        = NO_TARGET, limit;
    uint32_t i;

    for (i = 0; i < to->num_resources && room > 0; i++) {
        if (uses(model, from, list[i])) {
            continue;
        }
        limit = mpath_ratio_times(target, model->capacity[list[i]]);
        limit = limit > model->load[list[i]] ? limit - model->load[list[i]] : 0;
        room  = limit < room ? limit : room;
    }
    return room;
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

/* Moves what it can of one overloaded piece to the pair's other path with the most room. */
static int relieve(mpath_model_t *model, const mpath_model_pair_t *pair, mpath_model_path_t *from, mpath_ratio_t target)
{
    mpath_model_path_t *path = &model->paths[pair->first_path], *end = path + pair->num_paths, *best = NULL;
    uint64_t excess, amount, room, most = 0;
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
        room   = room_on(model, from, path, target);
        amount = whole_fragments(model, from, path, room < excess ? room : excess);
        amount = amount > room ? 0 : amount;
        if (amount > most || (amount > 0 && amount == most && path->num_relays < best->num_relays)) {
            best = path;
            most = amount;
        }
    }
    if (best != NULL) {
        move(model, from, best, most);
        return 1;
    }
    /* nothing fits below the target: a whole piece still pays where it lands on less than what it leaves */
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

void mpath_model_repair(mpath_model_t *model, mpath_ratio_t target)
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
    uint64_t amount, room;
    uint32_t k, j, relays;

    for (k = pair->num_paths; k-- > 0;) {
        for (relays = 0; relays < paths[k].num_relays && paths[k].bytes > 0; relays++) {
            for (j = 0; j < pair->num_paths && paths[k].bytes > 0; j++) {
                if (j == k || paths[j].num_relays != relays) {
                    continue;
                }
                room   = room_on(model, &paths[k], &paths[j], z);
                amount = whole_fragments(model, &paths[k], &paths[j], room);
                if (amount > 0 && amount <= room) {
                    move(model, &paths[k], &paths[j], amount);
                }
            }
        }
    }
}

/* Whole pieces onto another piece of the same pair that costs no more relays. */
static void merge_pieces(mpath_model_t *model, const mpath_model_pair_t *pair, mpath_ratio_t z)
{
    mpath_model_path_t *paths = &model->paths[pair->first_path];
    uint32_t k, j;

    for (k = pair->num_paths; k-- > 0;) {
        for (j = 0; j < pair->num_paths && paths[k].bytes > 0; j++) {
            if (j != k && (paths[j].bytes > 0 || j == 0) && paths[j].num_relays <= paths[k].num_relays &&
                room_on(model, &paths[k], &paths[j], z) >= paths[k].bytes) {
                move(model, &paths[k], &paths[j], paths[k].bytes);
            }
        }
    }
}

void mpath_model_give_back(mpath_model_t *model)
{
    mpath_ratio_t z = mpath_ratio_max(mpath_model_z(model), model->bound);
    size_t i;

    for (i = 0; i < model->num_pairs; i++) {
        if (model->pairs[i].num_paths > 1) {
            give_back_relays(model, &model->pairs[i], z);
            merge_pieces(model, &model->pairs[i], z);
        }
    }
}
