/* SPDX-License-Identifier: BSD-3-Clause */
/* Builds the planning problem: pairs, paths, resources, the bound from cuts, and the groups of like pairs. */
#include "plan/search/model.h"

#include "util/log.h"

#include <stdlib.h>
#include <string.h>

/* What the first pass over the pairs finds out about the sizes of the tables and about each resource. */
typedef struct census {
    uint64_t *forced;   /* bytes that cannot avoid the resource */
    uint64_t *possible; /* bytes that could use it */
    uint32_t *stamp, *times;
} census_t;

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
    return hash ^ (hash >> 29);
}

static void *grow(void *array, size_t *capacity, size_t needed, size_t size)
{
    size_t larger = *capacity + *capacity / 2;
    void *new_array;

    if (needed <= *capacity) {
        return array;
    }
    larger    = larger < needed ? needed : larger;
    larger    = larger < 64 ? 64 : larger;
    new_array = realloc(array, larger * size);
    if (new_array != NULL) {
        *capacity = larger;
    }
    return new_array;
}

/* Takes the paths of one pair from the topology. */
static mpath_status_t add_pair(mpath_model_t *model, int source, int destination, uint64_t bytes,
                               size_t *pairs_capacity, size_t *paths_capacity, size_t *resources_capacity)
{
    int num_paths = mpath_topo_num_paths(model->topo, source, destination);
    mpath_model_pair_t *pairs, *pair;
    mpath_model_path_t *paths, *to;
    uint32_t *resources;
    mpath_path_t path;
    int index;

    if (num_paths <= 0) {
        mpath_error(
            "plan: rank %d has %llu bytes for rank %d, but no path leads there; the collective cannot be planned",
            source, (unsigned long long)bytes, destination);
        return MPATH_ERR_UNREACHABLE;
    }
    if (model->num_path_resources + (size_t)num_paths * MPATH_PATH_MAX_RESOURCES > UINT32_MAX) {
        mpath_error("plan: too many paths for a search; the collective cannot be planned");
        return MPATH_ERR_NO_MEMORY;
    }
    pairs = grow(model->pairs, pairs_capacity, model->num_pairs + 1, sizeof(*pairs));
    if (pairs == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    model->pairs = pairs;
    paths        = grow(model->paths, paths_capacity, model->num_paths + (size_t)num_paths, sizeof(*paths));
    if (paths == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    model->paths = paths;
    resources    = grow(model->resources, resources_capacity,
                        model->num_path_resources + (size_t)num_paths * MPATH_PATH_MAX_RESOURCES, sizeof(*resources));
    if (resources == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    model->resources = resources;

    pair              = &pairs[model->num_pairs++];
    pair->source      = source;
    pair->destination = destination;
    pair->bytes       = bytes;
    pair->first_path  = model->num_paths;
    pair->num_paths   = (uint32_t)num_paths;
    pair->group       = MPATH_NO_GROUP;
    for (index = 0; index < num_paths; index++) {
        mpath_topo_path(model->topo, source, destination, index, &path);
        to                 = &paths[model->num_paths++];
        to->first_resource = (uint32_t)model->num_path_resources;
        to->num_resources  = (uint16_t)path.num_resources;
        to->num_relays     = (uint16_t)path.num_relays;
        to->group_path     = 0;
        to->bytes          = 0;
        memcpy(&resources[model->num_path_resources], path.resources, (size_t)path.num_resources * sizeof(*resources));
        model->num_path_resources += (size_t)path.num_resources;
    }
    model->total_bytes += bytes;
    return MPATH_OK;
}

/* Bytes that a pair must or may put on each resource. */
static void count_pair(const mpath_model_t *model, const mpath_model_pair_t *pair, census_t *census, uint32_t *serial)
{
    const mpath_model_path_t *path = &model->paths[pair->first_path], *end = path + pair->num_paths;
    const uint32_t *resource;
    const mpath_model_path_t *first = path;
    uint32_t i;

    for (; path < end; path++) {
        resource = &model->resources[path->first_resource];
        (*serial)++; /* one stamp per path: a resource counts once for each path that has it */
        for (i = 0; i < path->num_resources; i++) {
            if (census->stamp[resource[i]] == *serial) {
                continue;
            }
            census->stamp[resource[i]] = *serial;
            census->times[resource[i]]++;
        }
    }
    for (path = first; path < end; path++) {
        resource = &model->resources[path->first_resource];
        for (i = 0; i < path->num_resources; i++) {
            if (census->times[resource[i]] == 0) {
                continue;
            }
            if (census->times[resource[i]] == pair->num_paths) {
                census->forced[resource[i]] += pair->bytes;
            }
            /* a path that passes twice loads twice; two is the most that a path of relays can do */
            census->possible[resource[i]] += pair->bytes;
            census->times[resource[i]] = 0;
        }
    }
    if (pair->num_paths == 1) {
        for (i = 0; i < first->num_resources; i++) {
            model->base[model->resources[first->first_resource + i]] += pair->bytes;
        }
    }
}

static uint64_t add_capped(uint64_t a, uint64_t b)
{
    return a + b < a ? UINT64_MAX : a + b;
}

/* Whether the pair leaves its node and enters the other over NICs, whatever path it takes. */
static int needs_nics(const mpath_model_t *model, const mpath_model_pair_t *pair, int from, int to)
{
    const mpath_model_path_t *path = &model->paths[pair->first_path], *end = path + pair->num_paths;
    mpath_resource_t resource;
    int leaves, enters;
    uint32_t i;

    if (from == to) {
        return 0;
    }
    for (; path < end; path++) {
        leaves = enters = 0;
        for (i = 0; i < path->num_resources; i++) {
            resource = mpath_topo_resource(model->topo, (int)model->resources[path->first_resource + i]);
            leaves |= resource.kind == MPATH_RESOURCE_NIC_TX && resource.node == from;
            enters |= resource.kind == MPATH_RESOURCE_NIC_RX && resource.node == to;
        }
        if (!leaves || !enters) {
            return 0;
        }
    }
    return 1;
}

/* The cuts: what a resource must carry, and what a node's NICs must carry together. */
static mpath_status_t bound_from_cuts(mpath_model_t *model, const census_t *census)
{
    int num_nodes   = mpath_topo_num_nodes(model->topo), node, from, to;
    uint64_t *rate  = calloc((size_t)num_nodes * 4, sizeof(*rate));
    uint64_t *bytes = rate + (size_t)num_nodes * 2;
    mpath_resource_t resource;
    mpath_ratio_t ratio;
    uint32_t r;
    size_t i;

    if (rate == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    for (r = 0; r < model->num_resources; r++) {
        ratio.num    = census->forced[r];
        ratio.den    = model->capacity[r];
        model->bound = mpath_ratio_max(model->bound, ratio);
        resource     = mpath_topo_resource(model->topo, (int)r);
        if (census->possible[r] > 0 && resource.kind == MPATH_RESOURCE_NIC_TX) {
            rate[resource.node * 2] = add_capped(rate[resource.node * 2], resource.capacity_bps);
        } else if (census->possible[r] > 0 && resource.kind == MPATH_RESOURCE_NIC_RX) {
            rate[resource.node * 2 + 1] = add_capped(rate[resource.node * 2 + 1], resource.capacity_bps);
        }
    }
    for (i = 0; i < model->num_pairs; i++) {
        from = mpath_topo_place(model->topo, model->pairs[i].source)->node;
        to   = mpath_topo_place(model->topo, model->pairs[i].destination)->node;
        if (needs_nics(model, &model->pairs[i], from, to)) {
            bytes[from * 2] += model->pairs[i].bytes;
            bytes[to * 2 + 1] += model->pairs[i].bytes;
        }
    }
    for (node = 0; node < num_nodes * 2; node++) {
        ratio.num = bytes[node];
        ratio.den = rate[node];
        if (ratio.den > 0) {
            model->bound = mpath_ratio_max(model->bound, ratio);
        }
    }
    free(rate);
    return MPATH_OK;
}

static uint64_t list_hash(const mpath_model_t *model, const mpath_model_path_t *path, const uint8_t *slack)
{
    const uint32_t *resource = &model->resources[path->first_resource];
    uint64_t hash            = 1;
    uint32_t i;

    for (i = 0; i < path->num_resources; i++) {
        if (!slack[resource[i]]) {
            hash = mix(hash, resource[i]);
        }
    }
    return hash;
}

/* Whether a pair's path and a group's path name the same resources in the same order. */
static int same_list(const mpath_model_t *model, const mpath_model_path_t *path, const mpath_model_path_t *group_path,
                     const uint8_t *slack)
{
    const uint32_t *resource = &model->resources[path->first_resource];
    const uint32_t *other    = &model->group_resources[group_path->first_resource];
    uint32_t i, count = 0;

    for (i = 0; i < path->num_resources; i++) {
        if (slack[resource[i]]) {
            continue;
        }
        if (count == group_path->num_resources || other[count] != resource[i]) {
            return 0;
        }
        count++;
    }
    return count == group_path->num_resources;
}

/* Matches each path of the pair with one of the group; 0 when some path has none. */
static int match_group(mpath_model_t *model, mpath_model_pair_t *pair, const mpath_model_group_t *group,
                       const uint8_t *slack)
{
    uint32_t k, g;

    if (group->num_paths != pair->num_paths) {
        return 0;
    }
    for (k = 0; k < pair->num_paths; k++) {
        mpath_model_path_t *path = &model->paths[pair->first_path + k];

        for (g = 0; g < group->num_paths; g++) {
            if (same_list(model, path, &model->group_paths[group->first_path + g], slack)) {
                break;
            }
        }
        if (g == group->num_paths) {
            return 0;
        }
        path->group_path = g;
    }
    return 1;
}

static void new_group(mpath_model_t *model, mpath_model_pair_t *pair, uint64_t hash, const uint8_t *slack)
{
    mpath_model_group_t *group = &model->groups[model->num_groups];
    mpath_model_path_t *to, *path;
    uint32_t k, i, resource;

    memset(group, 0, sizeof(*group));
    group->first_path = model->num_group_paths;
    group->num_paths  = pair->num_paths;
    group->hash       = hash;
    for (k = 0; k < pair->num_paths; k++) {
        path               = &model->paths[pair->first_path + k];
        path->group_path   = k;
        to                 = &model->group_paths[model->num_group_paths++];
        *to                = *path;
        to->first_resource = (uint32_t)model->num_group_path_resources;
        to->num_resources  = 0;
        for (i = 0; i < path->num_resources; i++) {
            resource = model->resources[path->first_resource + i];
            if (!slack[resource]) {
                model->group_resources[model->num_group_path_resources++] = resource;
                to->num_resources++;
            }
        }
    }
    model->num_groups++;
}

/* Finds each pair's group through a hash table; groups are numbered in order of their first pair. */
static mpath_status_t make_groups(mpath_model_t *model, const uint8_t *slack)
{
    size_t slots = 64, i, slot;
    mpath_model_pair_t *pair;
    uint32_t *table, k;
    uint64_t hash;

    while (slots < model->num_pairs * 2) {
        slots *= 2;
    }
    table                  = malloc(slots * sizeof(*table));
    model->groups          = malloc((model->num_pairs + 1) * sizeof(*model->groups));
    model->group_paths     = malloc((model->num_paths + 1) * sizeof(*model->group_paths));
    model->group_resources = malloc((model->num_path_resources + 1) * sizeof(*model->group_resources));
    if (table == NULL || model->groups == NULL || model->group_paths == NULL || model->group_resources == NULL) {
        free(table);
        return MPATH_ERR_NO_MEMORY;
    }
    memset(table, 0xff, slots * sizeof(*table));
    for (i = 0; i < model->num_pairs; i++) {
        pair = &model->pairs[i];
        if (pair->num_paths < 2) {
            continue;
        }
        hash = pair->num_paths;
        for (k = 0; k < pair->num_paths; k++) {
            hash += list_hash(model, &model->paths[pair->first_path + k], slack); /* any order of the paths */
        }
        for (slot = mix(1, hash) & (slots - 1); table[slot] != UINT32_MAX; slot = (slot + 1) & (slots - 1)) {
            if (model->groups[table[slot]].hash == hash &&
                match_group(model, pair, &model->groups[table[slot]], slack)) {
                break;
            }
        }
        if (table[slot] == UINT32_MAX) {
            table[slot] = model->num_groups;
            new_group(model, pair, hash, slack);
        }
        pair->group = table[slot];
        model->groups[pair->group].bytes += pair->bytes;
        model->groups[pair->group].num_pairs++;
    }
    free(table);
    return MPATH_OK;
}

static mpath_status_t add_pairs(mpath_model_t *model, const uint64_t *demand)
{
    int num_ranks         = mpath_topo_num_ranks(model->topo), source, destination;
    size_t pairs_capacity = 0, paths_capacity = 0, resources_capacity = 0;
    mpath_status_t status;

    for (source = 0; source < num_ranks; source++) {
        for (destination = 0; destination < num_ranks; destination++, demand++) {
            if (*demand == 0 || source == destination) {
                continue;
            }
            status = add_pair(model, source, destination, *demand, &pairs_capacity, &paths_capacity,
                              &resources_capacity);
            if (status != MPATH_OK) {
                return status;
            }
        }
    }
    return MPATH_OK;
}

/* Counts what each resource must and may carry, and derives the bound and the groups. */
static mpath_status_t examine(mpath_model_t *model)
{
    size_t count          = model->num_resources;
    uint64_t *words       = calloc(count + 1, 2 * sizeof(*words));
    uint32_t *stamps      = calloc(count + 1, 2 * sizeof(*stamps));
    uint8_t *slack        = calloc(count + 1, 1);
    uint32_t serial       = 0, r;
    mpath_status_t status = MPATH_ERR_NO_MEMORY;
    mpath_ratio_t most;
    census_t census;
    size_t i;

    if (words == NULL || stamps == NULL || slack == NULL) {
        goto out;
    }
    census.forced   = words;
    census.possible = words + count;
    census.stamp    = stamps;
    census.times    = stamps + count;
    for (i = 0; i < model->num_pairs; i++) {
        count_pair(model, &model->pairs[i], &census, &serial);
    }
    status = bound_from_cuts(model, &census);
    if (status != MPATH_OK) {
        goto out;
    }
    for (r = 0; r < model->num_resources; r++) {
        most.num = add_capped(census.possible[r], census.possible[r]); /* a path may pass a resource twice */
        most.den = model->capacity[r];
        slack[r] = !mpath_ratio_less(model->bound, most);
    }
    status = make_groups(model, slack);
out:
    free(words);
    free(stamps);
    free(slack);
    return status;
}

mpath_status_t mpath_model_init(mpath_model_t *model, const mpath_topo_t *topo, const uint64_t *demand,
                                uint64_t min_fragment_bytes)
{
    mpath_status_t status = MPATH_ERR_NO_MEMORY;
    uint32_t r;

    memset(model, 0, sizeof(*model));
    model->topo               = topo;
    model->min_fragment_bytes = min_fragment_bytes;
    model->num_resources      = (uint32_t)mpath_topo_num_resources(topo);
    model->bound.den          = 1;
    model->capacity           = calloc((size_t)model->num_resources + 1, 3 * sizeof(*model->capacity));
    if (model->capacity == NULL) {
        goto err_release;
    }
    model->load = model->capacity + model->num_resources;
    model->base = model->load + model->num_resources;
    for (r = 0; r < model->num_resources; r++) {
        model->capacity[r] = mpath_topo_resource(topo, (int)r).capacity_bps;
    }
    status = add_pairs(model, demand);
    if (status != MPATH_OK) {
        goto err_release;
    }
    status = examine(model);
    if (status != MPATH_OK) {
        goto err_release;
    }
    return MPATH_OK;

err_release:
    mpath_model_release(model);
    return status;
}

void mpath_model_release(mpath_model_t *model)
{
    free(model->capacity);
    free(model->pairs);
    free(model->paths);
    free(model->resources);
    free(model->groups);
    free(model->group_paths);
    free(model->group_resources);
    memset(model, 0, sizeof(*model));
}

void mpath_model_count_loads(mpath_model_t *model)
{
    const mpath_model_path_t *path;
    size_t k;
    uint32_t i;

    memset(model->load, 0, model->num_resources * sizeof(*model->load));
    for (k = 0; k < model->num_paths; k++) {
        path = &model->paths[k];
        if (path->bytes > 0) {
            for (i = 0; i < path->num_resources; i++) {
                model->load[model->resources[path->first_resource + i]] += path->bytes;
            }
        }
    }
}

mpath_ratio_t mpath_model_z(const mpath_model_t *model)
{
    mpath_ratio_t z = {0, 1}, ratio;
    uint32_t r;

    for (r = 0; r < model->num_resources; r++) {
        ratio.num = model->load[r];
        ratio.den = model->capacity[r];
        z         = mpath_ratio_max(z, ratio);
    }
    return z;
}
