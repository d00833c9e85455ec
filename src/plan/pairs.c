/* SPDX-License-Identifier: BSD-3-Clause */
/* Plan by pairs of nodes: what a topology means for it, static routes and bounds. */
#include "plan/pairs_private.h"

#include <stdlib.h>
#include <string.h>

#define NUMBERS ((size_t)UINT32_MAX + 1) /* of flows */

/* Takes the ranks by node. */
static void place_ranks(mpath_pairs_t *pairs)
{
    int32_t *first = pairs->first_on;

    for (int rank = 0; rank < pairs->num_ranks; rank++) {
        first[mpath_topo_place(pairs->topo, rank)->node + 1]++;
    }
    for (int node = 0; node < pairs->num_nodes; node++) {
        first[node + 1] += first[node];
    }
    for (int rank = 0; rank < pairs->num_ranks; rank++) {
        pairs->ranks[first[mpath_topo_place(pairs->topo, rank)->node]++] = rank;
    }
    memmove(first + 1, first, (size_t)pairs->num_nodes * sizeof(*first));
    first[0]        = 0;
    pairs->in_order = 1;
    for (int rank = 0; rank < pairs->num_ranks; rank++) {
        pairs->in_order = pairs->in_order && pairs->ranks[rank] == rank;
    }
}

/* The NICs of a node that are in use. */
static mpath_nic_set_t nics_in_use(const mpath_pairs_t *pairs, int node)
{
    const mpath_machine_t *machine = mpath_topo_machine(pairs->topo, node);
    mpath_nic_set_t beside = pairs->affine ? 0 : mpath_machine_nics(machine), up = 0;

    for (int i = pairs->first_on[node]; i < pairs->first_on[node + 1] && pairs->affine; i++) {
        const mpath_place_t *place = mpath_topo_place(pairs->topo, pairs->ranks[i]);

        beside |= place->nic >= 0 ? mpath_nic_bit(place->nic) : 0;
        beside |= mpath_topo_nics_beside(pairs->topo, pairs->ranks[i]);
    }
    for (int nic = 0; nic < machine->num_nics; nic++) {
        up |= machine->nics[nic].up ? mpath_nic_bit(nic) : 0;
    }
    return beside & up;
}

/* Lists the rails that some node has in use, in order, and which of them each node has. */
static void list_rails(mpath_pairs_t *pairs)
{
    int8_t number[MPATH_MAX_RAILS];
    uint64_t rails = 0;

    for (int node = 0; node < pairs->num_nodes; node++) {
        const mpath_machine_t *machine = mpath_topo_machine(pairs->topo, node);

        pairs->has[node] = nics_in_use(pairs, node);
        for (mpath_nic_set_t nics = pairs->has[node]; nics != 0; nics &= nics - 1) {
            rails |= UINT64_C(1) << machine->nics[mpath_nic_first(nics)].rail;
        }
    }
    for (; rails != 0; rails &= rails - 1) {
        number[__builtin_ctzll(rails)]   = (int8_t)pairs->num_rails;
        pairs->rails[pairs->num_rails++] = (int8_t)__builtin_ctzll(rails);
    }
    for (int node = 0; node < pairs->num_nodes; node++) {
        const mpath_machine_t *machine = mpath_topo_machine(pairs->topo, node);
        mpath_nic_set_t nics           = pairs->has[node];

        for (pairs->has[node] = 0; nics != 0; nics &= nics - 1) {
            pairs->has[node] |= mpath_nic_bit(number[machine->nics[mpath_nic_first(nics)].rail]);
        }
    }
}

/* Whether ranks of any two nodes can reach each other. */
static int nodes_are_joined(const mpath_pairs_t *pairs)
{
    for (int node = 0; node < pairs->num_nodes; node++) {
        for (int other = 0; other < node; other++) {
            int are_joined = pairs->crosses ? pairs->has[node] != 0 && pairs->has[other] != 0
                                            : (pairs->has[node] & pairs->has[other]) != 0;

            if (!are_joined && pairs->first_on[node] < pairs->first_on[node + 1] &&
                pairs->first_on[other] < pairs->first_on[other + 1]) {
                return 0;
            }
        }
    }
    return 1;
}

int mpath_pairs_nic(const mpath_pairs_t *pairs, int node, int rail)
{
    const mpath_machine_t *machine = mpath_topo_machine(pairs->topo, node);
    int nic                        = 0;

    while (nic < machine->num_nics - 1 && (!machine->nics[nic].up || machine->nics[nic].rail != pairs->rails[rail])) {
        nic++;
    }
    return nic;
}

uint64_t mpath_pairs_rate(const mpath_pairs_t *pairs, int node, int rail)
{
    return (pairs->has[node] & mpath_nic_bit(rail)) == 0
               ? 0
               : mpath_topo_machine(pairs->topo, node)->nics[mpath_pairs_nic(pairs, node, rail)].rate_bps;
}

/* All NICs of a node. */
uint64_t mpath_pairs_node_rate(const mpath_pairs_t *pairs, int node)
{
    uint64_t rate_bps = 0;

    for (int rail = 0; rail < pairs->num_rails; rail++) {
        rate_bps += mpath_pairs_rate(pairs, node, rail);
    }
    return rate_bps;
}

/* Whether all nodes have the same rails, and whether a rail has the same rate on all that have it. */
static void compare_nodes(mpath_pairs_t *pairs, int *same_rails_p, int *same_rates_p)
{
    *same_rails_p = *same_rates_p = 1;
    for (int rail = 0; rail < pairs->num_rails; rail++) {
        uint64_t rate_bps = 0;

        for (int node = 0; node < pairs->num_nodes; node++) {
            uint64_t here_bps = mpath_pairs_rate(pairs, node, rail);

            *same_rails_p = *same_rails_p && here_bps > 0;
            *same_rates_p = *same_rates_p && (here_bps == 0 || rate_bps == 0 || here_bps == rate_bps);
            rate_bps      = here_bps > 0 ? here_bps : rate_bps;
        }
        if (rail < MPATH_SPINE_RAILS) {
            pairs->rail_bps[rail] = rate_bps;
        }
    }
}

/* What the rails carry, where all nodes have them, and which one each rank is beside. 0: there are none. */
static int find_rails(mpath_pairs_t *pairs, int has_gpus, int *same_rails_p, int *same_rates_p)
{
    list_rails(pairs);
    compare_nodes(pairs, same_rails_p, same_rates_p);
    pairs->is_alike = has_gpus ? *same_rails_p && *same_rates_p : mpath_topo_rails_match(pairs->topo);
    pairs->is_even  = 1;
    for (int rail = 0; rail < pairs->num_rails && pairs->is_alike; rail++) {
        uint64_t rate_bps = mpath_pairs_rate(pairs, 0, rail);

        pairs->is_even              = pairs->is_even && (rail == 0 || rate_bps == pairs->slowest_bps);
        pairs->slowest_bps          = rail == 0 || rate_bps < pairs->slowest_bps ? rate_bps : pairs->slowest_bps;
        pairs->before_bps[rail + 1] = pairs->before_bps[rail] + rate_bps;
    }
    for (int rank = 0; rank < pairs->num_ranks; rank++) {
        const mpath_machine_t *machine = mpath_topo_machine(pairs->topo, mpath_pairs_node(pairs, rank));
        int nic                        = mpath_topo_nic_beside(pairs->topo, rank);

        pairs->home[rank] = -1;
        for (int i = 0; i < pairs->num_rails && nic >= 0; i++) {
            if (machine->nics[nic].rail == pairs->rails[i]) {
                pairs->home[rank] = (int8_t)i;
            }
        }
    }
    for (int i = 0; i < pairs->num_ranks; i++) {
        pairs->home_at[i] = pairs->home[pairs->ranks[i]];
    }
    pairs->flows_per_pair = pairs->num_rails;
    return pairs->num_rails > 0;
}

/* What a spine adds; 0: more than is divided by pairs. */
static int find_crossings(mpath_pairs_t *pairs, int same_rails, int same_rates)
{
    pairs->crosses        = pairs->affine || !same_rails;
    pairs->has_same_rails = same_rails;
    pairs->is_cut         = !same_rails && same_rates;
    for (int node = 0; node < pairs->num_nodes; node++) {
        uint64_t rate_bps = mpath_pairs_node_rate(pairs, node);

        pairs->fastest_node_bps = rate_bps > pairs->fastest_node_bps ? rate_bps : pairs->fastest_node_bps;
    }
    if (pairs->crosses) {
        /* a static route and matched ones; or the three parts of a static route, and all others of the line */
        pairs->flows_per_pair = same_rails ? 1 + pairs->num_rails : 3 + MPATH_SPINE_ARCS * pairs->num_rails;
    }
    return !pairs->crosses || pairs->num_rails <= MPATH_SPINE_RAILS;
}

/* Whether links between GPUs leave nodes. */
static int domains_are_shared(const mpath_pairs_t *pairs)
{
    for (int node = 0; node < pairs->num_nodes; node++) {
        const mpath_node_gpus_t *gpus = mpath_topo_gpus(pairs->topo, node);

        for (int other = 0; other < node && gpus->link == MPATH_GPU_LINK_SWITCH && gpus->domain >= 0; other++) {
            const mpath_node_gpus_t *theirs = mpath_topo_gpus(pairs->topo, other);

            if (theirs->link == MPATH_GPU_LINK_SWITCH && theirs->domain == gpus->domain) {
                return 1;
            }
        }
    }
    return 0;
}

/*
 * GPUs: whether all ranks have one with one NIC beside it, which may be lost, each reaches all rails of its node and passes on for others, and
 * nothing but rails joins nodes.
 */
static int gpus_are_plain(const mpath_pairs_t *pairs)
{
    const mpath_topo_t *topo = pairs->topo;

    for (int rank = 0; rank < pairs->num_ranks; rank++) {
        if (mpath_topo_place(topo, rank)->gpu < 0 || mpath_topo_place(topo, rank)->no_relay ||
            mpath_nic_count(mpath_topo_nics_beside(topo, rank)) != 1) {
            return 0;
        }
    }
    return !domains_are_shared(pairs) && !mpath_topo_reach_is_limited(topo);
}

mpath_status_t mpath_pairs_create(const mpath_topo_t *topo, uint64_t min_fragment_bytes, mpath_pairs_t **pairs_p)
{
    const mpath_topo_params_t *params = mpath_topo_params(topo);
    size_t num_ranks = (size_t)mpath_topo_num_ranks(topo), num_nodes = (size_t)mpath_topo_num_nodes(topo);
    int has_gpus = mpath_topo_gpus(topo, 0) != NULL, has_spine = (params->fabric & MPATH_FABRIC_SPINE) != 0;
    int same_rails, same_rates;
    size_t by_rank = 2 * sizeof(int8_t) + sizeof(int32_t), by_node = sizeof(mpath_nic_set_t) + sizeof(int32_t);
    mpath_pairs_t *pairs;

    if (params->max_paths != 0) { /* nodes do not match then (mpath_topo_rails_match()) */
        return MPATH_DECLINED;
    }
    pairs = calloc(1, sizeof(*pairs) + num_ranks * by_rank + (num_nodes + 2) * by_node);
    if (pairs == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    pairs->topo               = topo;
    pairs->num_ranks          = (int)num_ranks;
    pairs->num_nodes          = (int)num_nodes;
    pairs->affine             = has_gpus || params->access == MPATH_REACH_AFFINE;
    pairs->min_fragment_bytes = min_fragment_bytes > 0 ? min_fragment_bytes : 1;
    pairs->has                = (mpath_nic_set_t *)(void *)(pairs + 1);
    pairs->ranks              = (int32_t *)(void *)(pairs->has + num_nodes);
    pairs->first_on           = pairs->ranks + num_ranks;
    pairs->home               = (int8_t *)(pairs->first_on + num_nodes + 2);
    pairs->home_at            = pairs->home + num_ranks;
    place_ranks(pairs);
    if (!find_rails(pairs, has_gpus, &same_rails, &same_rates) || (has_gpus && !gpus_are_plain(pairs)) ||
        (has_spine && !find_crossings(pairs, same_rails, same_rates)) ||
        num_ranks * num_ranks * (size_t)pairs->flows_per_pair > NUMBERS ||
        (!pairs->is_alike && !nodes_are_joined(pairs))) {
        mpath_pairs_destroy(pairs);
        return MPATH_DECLINED;
    }
    *pairs_p = pairs;
    return MPATH_OK;
}

void mpath_pairs_destroy(mpath_pairs_t *pairs)
{
    if (pairs != NULL) {
        mpath_prices_destroy(pairs->prices);
        free(pairs->sums);
        free(pairs);
    }
}

const mpath_topo_t *mpath_pairs_topo(const mpath_pairs_t *pairs)
{
    return pairs->topo;
}

int mpath_pairs_num_rails(const mpath_pairs_t *pairs)
{
    return pairs->num_rails;
}

/* Of two ranks whose nodes both have `rails`. */
static int static_among(const mpath_pairs_t *pairs, mpath_nic_set_t rails, int source, int destination)
{
    int home = pairs->home[source], other = pairs->home[destination];

    if (home >= 0 && (rails & mpath_nic_bit(home)) != 0) {
        return home;
    }
    if (other >= 0 && (rails & mpath_nic_bit(other)) != 0) {
        return other;
    }
    for (int skip = source % mpath_nic_count(rails); skip > 0; skip--) {
        rails &= rails - 1;
    }
    return mpath_nic_first(rails);
}

/* The static route between two nodes where some cross: see topo/topo.h. */
mpath_arc_t mpath_pairs_static_arc(const mpath_pairs_t *pairs, int from, int to, int source, int destination)
{
    mpath_nic_set_t both = pairs->has[from] & pairs->has[to];
    int home = pairs->home[source], other = pairs->home[destination], rail;

    if (home >= 0 && other >= 0 && pairs->crosses &&
        (pairs->affine || (both & (mpath_nic_bit(home) | mpath_nic_bit(other))) == 0)) {
        return (mpath_arc_t){(int8_t)home, (int8_t)other};
    }
    if (both == 0) {
        return (mpath_arc_t){(int8_t)mpath_nic_first(pairs->has[from]), (int8_t)mpath_nic_first(pairs->has[to])};
    }
    rail = static_among(pairs, both, source, destination);
    return (mpath_arc_t){(int8_t)rail, (int8_t)rail};
}

int mpath_pairs_static_rail(const mpath_pairs_t *pairs, int source, int destination)
{
    return pairs->is_alike && pairs->home[source] >= 0
               ? pairs->home[source]
               : mpath_pairs_static_arc(pairs, mpath_pairs_node(pairs, source), mpath_pairs_node(pairs, destination),
                                        source, destination)
                     .out;
}

int mpath_pairs_static_rail_in(const mpath_pairs_t *pairs, int source, int destination)
{
    return pairs->crosses ? mpath_pairs_static_arc(pairs, mpath_pairs_node(pairs, source),
                                                   mpath_pairs_node(pairs, destination), source, destination)
                                .in
                          : mpath_pairs_static_rail(pairs, source, destination);
}

/*
 * Whole bytes, so that a plan of its ratio never promises less than it takes. Prices prove what matched rails can do, which is not all where static
 * routes cross as well: there it is the cut at the fastest of nodes, for the bytes of the busiest one.
 */
mpath_ratio_t mpath_pairs_bound(const mpath_pairs_t *pairs, const mpath_pairs_load_t *load)
{
    return pairs->is_alike                    ? (mpath_ratio_t){load->node_bytes, pairs->before_bps[pairs->num_rails]}
           : pairs->crosses && !pairs->is_cut ? (mpath_ratio_t){load->node_bytes, pairs->fastest_node_bps}
                                              : (mpath_ratio_t){load->terms.bound_ns, MPATH_PAIRS_SECOND_NS};
}

mpath_ratio_t mpath_pairs_static(const mpath_pairs_t *pairs, const mpath_pairs_load_t *load)
{
    return pairs->is_alike ? (mpath_ratio_t){load->static_bytes, pairs->slowest_bps}
                           : (mpath_ratio_t){load->terms.static_ns, MPATH_PAIRS_SECOND_NS};
}

uint64_t mpath_pairs_bound_ns(const mpath_pairs_t *pairs, const mpath_pairs_load_t *load)
{
    return mpath_ratio_ns_ceil(mpath_pairs_bound(pairs, load));
}

uint64_t mpath_pairs_static_ns(const mpath_pairs_t *pairs, const mpath_pairs_load_t *load)
{
    return mpath_ratio_ns_ceil(mpath_pairs_static(pairs, load));
}

uint64_t mpath_pairs_plan_ns(const mpath_pairs_t *pairs, const mpath_pairs_load_t *load)
{
    return !mpath_pairs_moves(pairs, load) ? mpath_pairs_static_ns(pairs, load)
           : pairs->is_alike               ? mpath_pairs_bound_ns(pairs, load)
                                           : load->terms.split_ns;
}

int mpath_pairs_moves(const mpath_pairs_t *pairs, const mpath_pairs_load_t *load)
{
    uint64_t all_bps = pairs->before_bps[pairs->num_rails], part, fragment;

    if (!pairs->is_alike) {
        return load->terms.split_ns < load->terms.static_ns && !load->terms.static_is_enough;
    }
    part     = (uint64_t)((mpath_u128_t)load->node_bytes * pairs->slowest_bps / all_bps);
    fragment = load->largest_bytes < pairs->min_fragment_bytes ? load->largest_bytes : pairs->min_fragment_bytes;
    return load->static_bytes > part + fragment &&
           !mpath_ratio_within(mpath_pairs_static(pairs, load), mpath_pairs_bound(pairs, load), MPATH_PAIRS_STATIC_PPM);
}

int mpath_pairs_is_alike(const mpath_pairs_t *pairs)
{
    return pairs->is_alike;
}
