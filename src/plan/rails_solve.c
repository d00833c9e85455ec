/* SPDX-License-Identifier: BSD-3-Clause */
/* Shares of unequal rails: the weights' search over the bytes between nodes, one group per pair of nodes. */
#include "plan/model.h"
#include "plan/rails.h"

#include <stdlib.h>
#include <string.h>

static void add_group(mpath_model_t *model, const mpath_rails_t *rails, int from, int to)
{
    mpath_model_group_t *group = &model->groups[model->num_groups++];
    uint32_t common            = rails->in_use[from] & rails->in_use[to];
    mpath_model_path_t *path;
    uint32_t *resources;
    int rail;

    group->bytes      = rails->between[(size_t)from * (size_t)rails->num_nodes + (size_t)to];
    group->first_path = model->num_group_paths;
    model->total_bytes += group->bytes;
    for (rail = 0; rail < rails->num_rails; rail++) {
        if ((common >> rail) & 1) {
            path                 = &model->group_paths[model->num_group_paths++];
            path->first_resource = (uint32_t)model->num_group_path_resources;
            path->num_resources  = 2;
            path->group_path     = (uint32_t)rail;
            resources            = &model->group_resources[model->num_group_path_resources];
            resources[0]         = (uint32_t)(from * rails->num_rails + rail);
            resources[1]         = (uint32_t)(rails->num_lanes + to * rails->num_rails + rail);
            model->num_group_path_resources += 2;
            group->num_paths++;
        }
    }
}

/* Transmitting lanes are resources 0 up to num_lanes, receiving ones follow. */
static mpath_status_t make_model(mpath_model_t *model, const mpath_rails_t *rails)
{
    size_t nodes = (size_t)rails->num_nodes, lanes = (size_t)rails->num_lanes, from, to, groups = 0, i;

    memset(model, 0, sizeof(*model));
    for (i = 0; i < nodes * nodes; i++) {
        groups += rails->between[i] > 0;
    }
    model->num_resources   = (uint32_t)(2 * lanes);
    model->capacity        = calloc(2 * lanes, 3 * sizeof(*model->capacity));
    model->groups          = calloc(groups + 1, sizeof(*model->groups));
    model->group_paths     = calloc(groups * (size_t)rails->num_rails + 1, sizeof(*model->group_paths));
    model->group_resources = calloc(groups * (size_t)rails->num_rails * 2 + 1, sizeof(*model->group_resources));
    if (model->capacity == NULL || model->groups == NULL || model->group_paths == NULL ||
        model->group_resources == NULL) {
        mpath_model_release(model);
        return MPATH_ERR_NO_MEMORY;
    }
    model->load = model->capacity + 2 * lanes;
    model->base = model->load + 2 * lanes;
    memcpy(model->capacity, rails->capacity, lanes * sizeof(*model->capacity));
    memcpy(model->capacity + lanes, rails->capacity, lanes * sizeof(*model->capacity));
    for (from = 0; from < nodes; from++) {
        for (to = 0; to < nodes; to++) {
            if (rails->between[from * nodes + to] > 0) {
                add_group(model, rails, (int)from, (int)to);
            }
        }
    }
    return MPATH_OK;
}

mpath_status_t mpath_rails_solve(const mpath_rails_t *rails, uint32_t gap_ppm, uint32_t rounds, uint64_t *shares,
                                 mpath_ratio_t *bound, mpath_ratio_t *z_p)
{
    size_t nodes = (size_t)rails->num_nodes, i, next = 0;
    mpath_status_t status;
    mpath_model_t model;
    uint32_t k;

    status = make_model(&model, rails);
    if (status != MPATH_OK) {
        return status;
    }
    model.bound = *bound;
    status      = mpath_weights_solve(&model, gap_ppm, rounds, 0, z_p);
    if (status == MPATH_OK) {
        memset(shares, 0, nodes * nodes * (size_t)rails->num_rails * sizeof(*shares));
        for (i = 0; i < nodes * nodes; i++) {
            if (rails->between[i] == 0) {
                continue;
            }
            for (k = 0; k < model.groups[next].num_paths; k++) {
                const mpath_model_path_t *path = &model.group_paths[model.groups[next].first_path + k];

                shares[i * (size_t)rails->num_rails + path->group_path] = path->bytes;
            }
            next++;
        }
        if (!rails->spine) { /* a spine has more paths than these */
            *bound = mpath_ratio_max(*bound, model.bound);
        }
    }
    mpath_model_release(&model);
    return status;
}
