/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Multiplicative weights: the continuous minimum-congestion problem over groups.
 *
 * Each resource has a price, 2^(alpha (u - 1)) per byte of its capacity, where u is its load relative to the most
 * loaded one: the soft maximum whose weights Garg and Konemann (SIAM J. Comput. 37(2), 2007) update multiplicatively. A
 * sweep visits every group and moves bytes from its dearest used path to its cheapest until both cost the same; alpha
 * doubles as the sweeps settle, so that only resources ever closer to the bottleneck matter. The prices are a solution
 * of the dual LP: sum over groups of bytes * cheapest path / sum over resources of price * capacity is a lower bound of
 * Z, whatever the prices are, and the best of these bounds ends the iteration.
 */
#include "plan/search/model.h"

#include <stdlib.h>
#include <string.h>

#define LOAD_BITS 40 /* loads are shifted to fit: all the bytes of a problem together */
#define ONE (1u << 20)
#define MARGIN 4 /* resources up to 2^MARGIN dearer than the most loaded one was at the start of a sweep */
#define ALPHA_FIRST 32
#define ALPHA_HASTY 64  /* first alpha of the first try, which also leaves an alpha as soon as little moves */
#define ALPHA_WARM 1024 /* first alpha of a search that starts from an earlier solution */
#define ALPHA_LAST 16384
#define SWEEPS_PER_ALPHA 24
#define MOVES_PER_VISIT 24
#define MOVES_HASTY 2
#define TOLERANCE_BITS 11

typedef struct weights {
    mpath_model_t *model;
    int shift;
    uint64_t moved; /* shifted bytes, in the present sweep */
    uint64_t alpha;
    int moves_per_visit;
    uint64_t *load;     /* shifted bytes */
    uint64_t *capacity; /* shifted bytes that the most loaded resource's time allows */
    uint64_t *inverse;  /* 2^44 / capacity */
    uint64_t *scale;    /* of the price: 2^20 at the smallest capacity */
    uint64_t *price;
    uint64_t *shares;   /* the best solution: bytes of each group's path */
    mpath_ratio_t best; /* its Z, in shifted bytes */
    uint8_t *used;      /* by a group's path */
} weights_t;

static void set_price(weights_t *w, uint32_t r)
{
    uint64_t u        = (w->load[r] << 20) / w->capacity[r];
    uint64_t exponent = (uint64_t)MARGIN << 20, value;

    if (u <= ONE) {
        exponent += w->alpha * (ONE - u);
    } else {
        value = w->alpha * (u - ONE);
        exponent -= value < exponent ? value : exponent;
    }
    value       = mpath_exp2_negative(exponent);
    w->price[r] = (value == 0 ? 1 : value) * w->scale[r];
}

static void count_loads(weights_t *w)
{
    const mpath_model_t *model = w->model;
    uint32_t i;
    size_t k;

    for (i = 0; i < model->num_resources; i++) {
        w->load[i] = model->base[i] >> w->shift;
    }
    for (k = 0; k < model->num_group_paths; k++) {
        const mpath_model_path_t *path = &model->group_paths[k];

        for (i = 0; i < path->num_resources; i++) {
            w->load[model->group_resources[path->first_resource + i]] += path->bytes;
        }
    }
}

/* Z of the shifted loads, on the resources that groups use: the others cannot be helped. */
static mpath_ratio_t current_z(const weights_t *w)
{
    mpath_ratio_t z = {0, 1}, ratio;
    uint32_t r;

    for (r = 0; r < w->model->num_resources; r++) {
        if (w->used[r]) {
            ratio.num = w->load[r];
            ratio.den = w->model->capacity[r];
            z         = mpath_ratio_max(z, ratio);
        }
    }
    return z;
}

/* Restates capacities and prices relative to the most loaded resource. */
static void rescale(weights_t *w, mpath_ratio_t z)
{
    uint64_t smallest = UINT64_MAX, limit = 1ull << (LOAD_BITS + 3);
    uint32_t r;

    for (r = 0; r < w->model->num_resources; r++) {
        if (!w->used[r]) {
            continue;
        }
        w->capacity[r] = mpath_ratio_times(z, w->model->capacity[r]);
        w->capacity[r] = w->capacity[r] == 0 ? 1 : w->capacity[r] > limit ? limit : w->capacity[r];
        w->inverse[r]  = (1ull << 44) / w->capacity[r];
        smallest       = w->capacity[r] < smallest ? w->capacity[r] : smallest;
    }
    for (r = 0; r < w->model->num_resources; r++) {
        if (w->used[r]) {
            w->scale[r] = (uint64_t)(((mpath_u128_t)smallest << 20) / w->capacity[r]);
            w->scale[r] = w->scale[r] == 0 ? 1 : w->scale[r];
            set_price(w, r);
        }
    }
}

static uint64_t path_cost(const weights_t *w, const mpath_model_path_t *path)
{
    const uint32_t *resource = &w->model->group_resources[path->first_resource];
    uint64_t cost            = 0;
    uint32_t i;

    for (i = 0; i < path->num_resources; i++) {
        cost += w->price[resource[i]];
    }
    return cost;
}

/* Cost and slope (2^44 times the relative growth of the cost per byte and alpha) of what `path` does not share with
 * `other`. */
static uint64_t own_cost(const weights_t *w, const mpath_model_path_t *path, const mpath_model_path_t *other,
                         uint64_t *slope_p)
{
    const uint32_t *mine = &w->model->group_resources[path->first_resource];
    const uint32_t *its  = &w->model->group_resources[other->first_resource];
    mpath_u128_t slope   = 0;
    uint64_t cost        = 0;
    uint32_t i, j;

    for (i = 0; i < path->num_resources; i++) {
        for (j = 0; j < other->num_resources && its[j] != mine[i]; j++) {
        }
        if (j == other->num_resources) {
            cost += w->price[mine[i]];
            slope += (mpath_u128_t)w->price[mine[i]] * w->inverse[mine[i]];
        }
    }
    *slope_p = cost == 0 ? 0 : (uint64_t)(slope / cost);
    return cost;
}

static void add_load(weights_t *w, const mpath_model_path_t *path, uint64_t bytes)
{
    const uint32_t *resource = &w->model->group_resources[path->first_resource];
    uint32_t i;

    for (i = 0; i < path->num_resources; i++) {
        w->load[resource[i]] += bytes; /* modulo 2^64: a negative amount takes away */
        set_price(w, resource[i]);
    }
}

/* Moves bytes of one group from `dear` to `cheap` until their costs meet, by one step of Newton's method on the
 * logarithms. */
static int move_bytes(weights_t *w, mpath_model_path_t *dear, mpath_model_path_t *cheap)
{
    uint64_t slope_dear, slope_cheap, slope, cost_dear, cost_cheap, bytes;
    int64_t distance;

    cost_dear  = own_cost(w, dear, cheap, &slope_dear);
    cost_cheap = own_cost(w, cheap, dear, &slope_cheap);
    if (cost_dear <= cost_cheap + (cost_cheap >> TOLERANCE_BITS)) {
        return 0;
    }
    distance = mpath_log2(cost_dear) - (cost_cheap == 0 ? 0 : mpath_log2(cost_cheap));
    slope    = w->alpha * (slope_dear + slope_cheap);
    if (distance <= 0) {
        return 0;
    }
    bytes = slope == 0 ? dear->bytes : ((uint64_t)distance << 24) / slope;
    bytes = bytes > dear->bytes ? dear->bytes : bytes;
    if (bytes == 0) {
        return 0;
    }
    dear->bytes -= bytes;
    cheap->bytes += bytes;
    w->moved += bytes;
    add_load(w, dear, 0 - bytes);
    add_load(w, cheap, bytes);
    return 1;
}

static void visit_group(weights_t *w, const mpath_model_group_t *group)
{
    mpath_model_path_t *path = &w->model->group_paths[group->first_path], *dear, *cheap;
    uint64_t cost, most, least;
    uint32_t k;
    int moves;

    for (moves = 0; moves < w->moves_per_visit; moves++) {
        dear  = NULL;
        cheap = path;
        most  = 0;
        least = UINT64_MAX;
        for (k = 0; k < group->num_paths; k++) {
            cost = path_cost(w, &path[k]);
            if (cost < least) {
                least = cost;
                cheap = &path[k];
            }
            if (path[k].bytes > 0 && cost > most) {
                most = cost;
                dear = &path[k];
            }
        }
        if (dear == NULL || dear == cheap || most <= least + (least >> TOLERANCE_BITS) || !move_bytes(w, dear, cheap)) {
            break;
        }
    }
}

/* The dual bound of the present prices. */
static void raise_bound(const weights_t *w)
{
    mpath_model_t *model = w->model;
    mpath_u128_t num = 0, den = 0, part;
    uint64_t cost, least;
    uint32_t g, k, r;

    for (g = 0; g < model->num_groups; g++) {
        least = UINT64_MAX;
        for (k = 0; k < model->groups[g].num_paths; k++) {
            cost  = path_cost(w, &model->group_paths[model->groups[g].first_path + k]);
            least = cost < least ? cost : least;
        }
        num += (mpath_u128_t)model->groups[g].bytes * least; /* below 2^64 bytes in all, costs below 2^56 */
    }
    for (r = 0; r < model->num_resources; r++) {
        if (w->used[r]) {
            num += (mpath_u128_t)model->base[r] * w->price[r];
            part = (mpath_u128_t)model->capacity[r] * w->price[r];
            if (den + part < den) {
                return; /* absurd capacities: no bound from these prices */
            }
            den += part;
        }
    }
    if (den > 0) {
        model->bound = mpath_ratio_max(model->bound, mpath_ratio_floor(num, den));
    }
}

/* Marks the resources that groups use. */
static void mark_used(weights_t *w)
{
    const mpath_model_t *model = w->model;
    size_t i;

    for (i = 0; i < model->num_group_path_resources; i++) {
        w->used[model->group_resources[i]] = 1;
    }
}

/* Start: from given bytes, made to add up to their group's in shifted bytes; the largest takes the rest. */
static void adopt(weights_t *w)
{
    mpath_model_t *model = w->model;
    mpath_model_path_t *paths;
    uint64_t rest, total;
    uint32_t g, k, largest;

    for (g = 0; g < model->num_groups; g++) {
        paths = &model->group_paths[model->groups[g].first_path];
        for (k = 0, largest = 0, total = 0; k < model->groups[g].num_paths; k++) {
            total += paths[k].bytes;
            largest = paths[k].bytes > paths[largest].bytes ? k : largest;
        }
        rest = model->groups[g].bytes >> w->shift;
        rest = rest == 0 ? 1 : rest;
        for (k = 0; k < model->groups[g].num_paths; k++) {
            paths[k].bytes = k == largest || total == 0 ? 0
                                                        : (uint64_t)((mpath_u128_t)paths[k].bytes *
                                                                     (model->groups[g].bytes >> w->shift) / total);
            rest -= paths[k].bytes;
        }
        paths[largest].bytes = rest;
    }
}

/* Start: each group spread by the narrowest resource of its paths. */
static void spread(weights_t *w)
{
    mpath_model_t *model = w->model;
    mpath_model_path_t *path;
    const mpath_model_group_t *group;
    mpath_u128_t total;
    uint64_t rest, narrowest, capacity;
    uint32_t g, k, i;

    for (g = 0; g < model->num_groups; g++) {
        group = &model->groups[g];
        total = 0;
        for (k = 0; k < group->num_paths; k++) {
            path      = &model->group_paths[group->first_path + k];
            narrowest = UINT64_MAX >> 8;
            for (i = 0; i < path->num_resources; i++) {
                capacity  = model->capacity[model->group_resources[path->first_resource + i]];
                narrowest = capacity < narrowest ? capacity : narrowest;
            }
            path->bytes = narrowest;
            total += narrowest;
        }
        rest = group->bytes >> w->shift;
        rest = rest == 0 ? 1 : rest;
        for (k = group->num_paths; k-- > 0;) {
            path        = &model->group_paths[group->first_path + k];
            capacity    = path->bytes;
            path->bytes = k == 0 ? rest : (uint64_t)((mpath_u128_t)rest * capacity / (total == 0 ? 1 : total));
            rest -= path->bytes;
            total -= capacity;
        }
    }
}

/* From shifted bytes to the groups' own, which they cover exactly. */
static void restore(const weights_t *w)
{
    mpath_model_t *model = w->model;
    const mpath_model_group_t *group;
    uint64_t all, given, share;
    uint32_t g, k, largest;

    for (g = 0; g < model->num_groups; g++) {
        group   = &model->groups[g];
        all     = group->bytes >> w->shift;
        all     = all == 0 ? 1 : all;
        given   = 0;
        largest = 0;
        for (k = 0; k < group->num_paths; k++) {
            share                                           = w->shares[group->first_path + k];
            model->group_paths[group->first_path + k].bytes = (uint64_t)((mpath_u128_t)share * group->bytes / all);
            given += model->group_paths[group->first_path + k].bytes;
            largest = share > w->shares[group->first_path + largest] ? k : largest;
        }
        model->group_paths[group->first_path + largest].bytes += group->bytes - given;
    }
}

/* Whether the last sweep moved less than what a price notices: a few alpha-ths of all bytes. */
static int is_settled(const weights_t *w)
{
    return w->moved < 4 * ((w->model->total_bytes >> w->shift) / w->alpha);
}

/* Sweeps from the present shares on; nonzero when the best Z came within the gap of the bound. */
static int iterate(weights_t *w, uint64_t alpha, int hasty, uint32_t gap_ppm, uint32_t rounds)
{
    mpath_model_t *model = w->model;
    uint32_t round, sweeps = 0, g;
    mpath_ratio_t z, real;
    size_t i;

    w->alpha           = alpha;
    w->moves_per_visit = hasty ? MOVES_HASTY : MOVES_PER_VISIT;
    for (round = 0;; round++) {
        count_loads(w);
        z = current_z(w);
        if (w->best.num == 0 || mpath_ratio_less(z, w->best)) {
            w->best = z;
            for (i = 0; i < model->num_group_paths; i++) {
                w->shares[i] = model->group_paths[i].bytes;
            }
        }
        rescale(w, z);
        raise_bound(w);
        real = w->best;
        if (w->shift > 0) { /* the bound is in bytes */
            real.num = (real.num + 1) << w->shift;
        }
        if (z.num == 0 || mpath_ratio_within(real, model->bound, gap_ppm)) {
            return 1;
        }
        sweeps++;
        if (sweeps > SWEEPS_PER_ALPHA || (hasty && sweeps > 1 && is_settled(w))) {
            sweeps = 0;
            w->alpha *= 2;
            if (w->alpha <= ALPHA_LAST) {
                rescale(w, z);
            }
        }
        if (round == rounds || w->alpha > ALPHA_LAST) {
            return 0;
        }
        w->moved = 0;
        for (g = 0; g < model->num_groups; g++) {
            visit_group(w, &model->groups[g]);
        }
    }
}

/* From what is there, then hastily, then with care. */
static void search(weights_t *w, uint32_t gap_ppm, uint32_t rounds, int is_warm)
{
    mark_used(w);
    if (is_warm) {
        adopt(w);
        if (iterate(w, ALPHA_WARM, 1, gap_ppm, rounds)) {
            return;
        }
    }
    spread(w);
    if (!iterate(w, ALPHA_HASTY, 1, gap_ppm, rounds)) {
        spread(w);
        iterate(w, ALPHA_FIRST, 0, gap_ppm, rounds);
    }
}

mpath_status_t mpath_weights_solve(mpath_model_t *model, uint32_t gap_ppm, uint32_t rounds, int is_warm,
                                   mpath_ratio_t *z_p)
{
    size_t count = model->num_resources;
    weights_t w  = {.model = model, .best = {0, 1}};
    uint32_t r, i;
    size_t k;
    mpath_ratio_t ratio;
    const mpath_model_path_t *path;

    while ((model->total_bytes >> w.shift) >> LOAD_BITS) {
        w.shift++;
    }
    w.load   = calloc(count + 1, 5 * sizeof(*w.load));
    w.shares = calloc(model->num_group_paths + 1, sizeof(*w.shares));
    w.used   = calloc(count + 1, 1);
    if (w.load == NULL || w.shares == NULL || w.used == NULL) {
        free(w.load);
        free(w.shares);
        free(w.used);
        return MPATH_ERR_NO_MEMORY;
    }
    w.capacity = w.load + count;
    w.inverse  = w.capacity + count;
    w.scale    = w.inverse + count;
    w.price    = w.scale + count;
    search(&w, gap_ppm, rounds, is_warm);
    restore(&w);
    memcpy(w.load, model->base, count * sizeof(*w.load));
    for (k = 0; k < model->num_group_paths; k++) {
        path = &model->group_paths[k];
        for (i = 0; i < path->num_resources; i++) {
            w.load[model->group_resources[path->first_resource + i]] += path->bytes;
        }
    }
    *z_p = model->bound;
    for (r = 0; r < count; r++) {
        ratio.num = w.load[r];
        ratio.den = model->capacity[r];
        *z_p      = mpath_ratio_max(*z_p, ratio);
    }
    free(w.load);
    free(w.shares);
    free(w.used);
    return MPATH_OK;
}
