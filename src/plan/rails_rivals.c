/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the policies without a search would load the lanes with, so that a plan is never worse than any of them: direct
 * from the loads of the static routes, stripe and PXN in one pass over the demand each, without a list of paths.
 */
#include "plan/rails.h"

#include <stdlib.h>
#include <string.h>

/* Loads of a policy: the tables of mpath_rails_t with the same names. */
typedef struct loads {
    uint64_t *tx, *rx, *relay;
} loads_t;

static loads_t loads_at(const mpath_rails_t *rails, uint64_t *words)
{
    loads_t loads = {words, words + rails->num_lanes, words + 2 * (size_t)rails->num_lanes};

    return loads;
}

/* Z over the lanes and the memory of the nodes. */
static mpath_ratio_t loads_z(const mpath_rails_t *rails, const loads_t *loads)
{
    mpath_ratio_t z = {0, 1}, ratio;
    int lane, node;

    for (lane = 0; lane < rails->num_lanes; lane++) {
        ratio.num = loads->tx[lane] > loads->rx[lane] ? loads->tx[lane] : loads->rx[lane];
        ratio.den = rails->capacity[lane];
        z         = ratio.num > 0 ? mpath_ratio_max(z, ratio) : z;
    }
    for (node = 0; node < rails->num_nodes; node++) {
        ratio.num = rails->own[node] + loads->relay[node];
        ratio.den = mpath_topo_machine(rails->topo, node)->host_memory_bps;
        z         = ratio.num > 0 ? mpath_ratio_max(z, ratio) : z;
    }
    return z;
}

static void add_route(const mpath_rails_t *rails, loads_t *loads, int source, int destination, mpath_route_t route,
                      uint64_t bytes)
{
    loads->tx[mpath_rails_lane(rails, source, route.tx)] += bytes;
    loads->rx[mpath_rails_lane(rails, destination, route.rx)] += bytes;
    loads->relay[rails->node[source]] += rails->affine && route.tx != rails->home[source] ? bytes : 0;
    loads->relay[rails->node[destination]] += rails->affine && route.rx != rails->home[destination] ? bytes : 0;
}

/* Over the rail beside the destination where both nodes have it. */
static void load_pxn(const mpath_rails_t *rails, loads_t *loads)
{
    const uint64_t *demand = rails->demand;
    int source, destination, home;
    mpath_route_t route;

    for (source = 0; source < rails->num_ranks; source++, demand += rails->num_ranks) {
        for (destination = 0; destination < rails->num_ranks; destination++) {
            if (rails->node[destination] == rails->node[source] || demand[destination] == 0) {
                continue;
            }
            home     = rails->home[destination];
            route.tx = route.rx = home;
            if (home < 0 || !((mpath_rails_common(rails, source, destination) >> home) & 1)) {
                route = mpath_rails_static(rails, source, destination);
            }
            add_route(rails, loads, source, destination, route, demand[destination]);
        }
    }
}

/* Evenly over the rails in common, in pieces of at least a fragment, the first rails take the odd bytes. */
static void stripe_pair(const mpath_rails_t *rails, loads_t *loads, int source, int destination, uint64_t bytes)
{
    uint32_t common = mpath_rails_common(rails, source, destination);
    int tx_lane = mpath_rails_lane(rails, source, 0), rx_lane = mpath_rails_lane(rails, destination, 0), rail;
    uint64_t count = (uint64_t)__builtin_popcount(common), piece, share, odd;

    if (bytes / rails->min_fragment_bytes < count) {
        count = bytes / rails->min_fragment_bytes;
    }
    if (count <= 1) {
        add_route(rails, loads, source, destination, mpath_rails_static(rails, source, destination), bytes);
        return;
    }
    /* the paths' order: the static route's rail comes first */
    rail  = mpath_rails_static(rails, source, destination).tx;
    share = bytes / count;
    odd   = bytes % count;
    for (piece = 0; piece < count; piece++) {
        loads->tx[tx_lane + rail] += share + (piece < odd);
        loads->rx[rx_lane + rail] += share + (piece < odd);
        common &= ~(1u << rail);
        rail = common == 0 ? 0 : __builtin_ctz(common);
    }
}

static void load_stripes(const mpath_rails_t *rails, loads_t *loads)
{
    const uint64_t *demand = rails->demand;
    int source, destination;

    for (source = 0; source < rails->num_ranks; source++, demand += rails->num_ranks) {
        for (destination = 0; destination < rails->num_ranks; destination++) {
            if (rails->node[destination] != rails->node[source] && demand[destination] > 0) {
                stripe_pair(rails, loads, source, destination, demand[destination]);
            }
        }
    }
}

/*
 * Whether a node's bytes, spread by whole bytes over its rails, load some lane with no less than z: then stripes cannot
 * be better. Only for equal rails.
 */
static int stripes_are_no_better(const mpath_rails_t *rails, mpath_ratio_t z)
{
    uint64_t count = (uint64_t)rails->num_rails, most = 0;
    mpath_ratio_t least;
    int node;

    for (node = 0; node < rails->num_nodes; node++) {
        most = rails->out[node] > most ? rails->out[node] : most;
        most = rails->in[node] > most ? rails->in[node] : most;
    }
    least.num = (most + count - 1) / count;
    least.den = rails->capacity[0];
    return rails->equal && !mpath_ratio_less(least, z);
}

/* PXN loads the receiving lanes as crossing routes do, which end beside the destination as well. */
static int pxn_is_no_better(const mpath_rails_t *rails, const loads_t *fixed, mpath_ratio_t z)
{
    mpath_ratio_t ratio;
    int lane;

    for (lane = 0; rails->regular && rails->crossing && lane < rails->num_lanes; lane++) {
        ratio.num = fixed->rx[lane];
        ratio.den = rails->capacity[lane];
        if (!mpath_ratio_less(ratio, z)) {
            return 1;
        }
    }
    return 0;
}

static void consider(mpath_policy_t policy, mpath_ratio_t z, mpath_policy_t *best_p, mpath_ratio_t *best_z_p)
{
    if (mpath_ratio_less(z, *best_z_p)) {
        *best_z_p = z;
        *best_p   = policy;
    }
}

mpath_status_t mpath_rails_rivals(const mpath_rails_t *rails, mpath_ratio_t z, uint32_t *rivals_p)
{
    size_t words         = 2 * (size_t)rails->num_lanes + (size_t)rails->num_nodes;
    uint64_t *scratch    = NULL;
    mpath_policy_t rival = MPATH_POLICY_MPATH; /* none yet */
    loads_t fixed        = loads_at(rails, rails->moves.list == NULL ? rails->tx : rails->saved), loads;

    *rivals_p = MPATH_PLAN_ALL_RIVALS;
    if (!rails->affine && rails->spine && !rails->regular) {
        return MPATH_OK; /* crossings to stripe over that these tables lack */
    }
    if (rails->moves.list != NULL) {
        consider(MPATH_POLICY_DIRECT, loads_z(rails, &fixed), &rival, &z);
    }
    if (!pxn_is_no_better(rails, &fixed, z) || (!rails->affine && !stripes_are_no_better(rails, z))) {
        scratch = malloc(words * sizeof(*scratch));
        if (scratch == NULL) {
            return MPATH_ERR_NO_MEMORY;
        }
        loads = loads_at(rails, scratch);
        if (!pxn_is_no_better(rails, &fixed, z)) {
            memset(scratch, 0, words * sizeof(*scratch));
            load_pxn(rails, &loads);
            consider(MPATH_POLICY_PXN, loads_z(rails, &loads), &rival, &z);
        }
        if (!rails->affine && !stripes_are_no_better(rails, z)) { /* affine ranks have nothing to stripe over */
            memset(scratch, 0, words * sizeof(*scratch));
            load_stripes(rails, &loads);
            consider(MPATH_POLICY_STRIPE, loads_z(rails, &loads), &rival, &z);
        }
        free(scratch);
    }
    *rivals_p = rival == MPATH_POLICY_MPATH ? 0 : 1u << rival;
    return MPATH_OK;
}
