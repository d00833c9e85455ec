/* SPDX-License-Identifier: BSD-3-Clause */
/* Plan by pairs of nodes: the division of a block, the bytes from the ranks of one node to those of another one. */
#include "plan/pairs_private.h"

#include <stdlib.h>
#include <string.h>

#define GOLDEN 0x9e3779b9u               /* the golden section of 2^32 */
#define NUMBERS ((size_t)UINT32_MAX + 1) /* of flows */
#define DITHER_BITS 32                   /* of the point at which what cannot be cut is looked at */

/* The division of a block: bytes in the order of their pairs, of each static rail by themselves. */
typedef struct block {
    int moves;                         /* some rail has more than its part */
    uint64_t on[MPATH_MAX_NICS];       /* bytes whose static route is this rail, */
    uint64_t keep[MPATH_MAX_NICS];     /* the first of which stay there */
    uint64_t over_at[MPATH_MAX_NICS];  /* where the others begin on the line of all that move, */
    uint64_t room_end[MPATH_MAX_NICS]; /* and where the part of it ends that this rail takes */
    uint32_t dither;
} block_t;

static int node_of(const mpath_pairs_t *pairs, int rank)
{
    return mpath_topo_place(pairs->topo, rank)->node;
}

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
    first[0] = 0;
}

static mpath_nic_set_t nics_up(const mpath_machine_t *machine)
{
    mpath_nic_set_t up = 0;

    for (int nic = 0; nic < machine->num_nics; nic++) {
        up |= machine->nics[nic].up ? mpath_nic_bit(nic) : 0;
    }
    return up;
}

/* The NICs of a node that are in use. */
static mpath_nic_set_t nics_in_use(const mpath_pairs_t *pairs, int node)
{
    const mpath_machine_t *machine = mpath_topo_machine(pairs->topo, node);
    mpath_nic_set_t beside         = pairs->affine ? 0 : mpath_machine_nics(machine);

    for (int i = pairs->first_on[node]; i < pairs->first_on[node + 1] && pairs->affine; i++) {
        const mpath_place_t *place = mpath_topo_place(pairs->topo, pairs->ranks[i]);

        beside |= place->nic >= 0 ? mpath_nic_bit(place->nic) : 0;
        beside |= mpath_topo_nics_beside(pairs->topo, pairs->ranks[i]);
    }
    return beside & nics_up(machine);
}

/* The NIC of a rank's static routes; -1: none. */
static int nic_beside(const mpath_pairs_t *pairs, int rank)
{
    const mpath_place_t *place = mpath_topo_place(pairs->topo, rank);
    mpath_nic_set_t up         = nics_up(mpath_topo_machine(pairs->topo, place->node));
    mpath_nic_set_t of_gpu     = mpath_topo_nics_beside(pairs->topo, rank) & up;

    if (place->nic >= 0 && (up & mpath_nic_bit(place->nic)) != 0) {
        return place->nic;
    }
    return of_gpu != 0 ? mpath_nic_first(of_gpu) : -1;
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

/* The NIC of a rail, which the node has. */
static int nic_of(const mpath_pairs_t *pairs, int node, int rail)
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
               : mpath_topo_machine(pairs->topo, node)->nics[nic_of(pairs, node, rail)].rate_bps;
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

/* What the rails carry, where all nodes have them, and which one each rank is beside. 0: there are none. */
static int find_rails(mpath_pairs_t *pairs)
{
    list_rails(pairs);
    pairs->is_even = 1;
    for (int rail = 0; rail < pairs->num_rails && pairs->is_alike; rail++) {
        uint64_t rate_bps = mpath_pairs_rate(pairs, 0, rail);

        pairs->is_even              = pairs->is_even && (rail == 0 || rate_bps == pairs->slowest_bps);
        pairs->slowest_bps          = rail == 0 || rate_bps < pairs->slowest_bps ? rate_bps : pairs->slowest_bps;
        pairs->before_bps[rail + 1] = pairs->before_bps[rail] + rate_bps;
    }
    pairs->has_homes = 1;
    for (int rank = 0; rank < pairs->num_ranks; rank++) {
        const mpath_machine_t *machine = mpath_topo_machine(pairs->topo, node_of(pairs, rank));
        int nic                        = nic_beside(pairs, rank);

        pairs->home[rank] = -1;
        for (int i = 0; i < pairs->num_rails && nic >= 0; i++) {
            if (machine->nics[nic].rail == pairs->rails[i]) {
                pairs->home[rank] = (int8_t)i;
            }
        }
        pairs->has_homes &= pairs->home[rank] >= 0;
    }
    pairs->pieces = pairs->num_rails;
    return pairs->num_rails > 0;
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

/* What a spine adds; 0: more than is divided by pairs. */
static int find_crossings(mpath_pairs_t *pairs)
{
    int same_rails, same_rates;

    compare_nodes(pairs, &same_rails, &same_rates);
    pairs->crosses = pairs->affine || !same_rails;
    pairs->is_cut  = !same_rails;
    for (int node = 0; node < pairs->num_nodes; node++) {
        uint64_t rate_bps = mpath_pairs_node_rate(pairs, node);

        pairs->fastest_node_bps = rate_bps > pairs->fastest_node_bps ? rate_bps : pairs->fastest_node_bps;
    }
    if (pairs->crosses) {
        /* a static route and matched ones; or the three parts of a static route, and all others of the line */
        pairs->pieces = pairs->is_cut ? 3 + MPATH_SPINE_ARCS / MPATH_SPINE_RAILS * pairs->num_rails
                                      : 1 + pairs->num_rails;
    }
    return !pairs->crosses || (pairs->num_rails <= MPATH_SPINE_RAILS && (same_rates || same_rails));
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
 * GPUs: whether all ranks have one, each reaches all rails of its node and passes on for others, nothing but rails joins nodes, and
 * all of these have the same ones.
 */
static int gpus_are_plain(mpath_pairs_t *pairs)
{
    const mpath_topo_t *topo = pairs->topo;
    int same_rails, same_rates;

    for (int rank = 0; rank < pairs->num_ranks; rank++) {
        if (mpath_topo_place(topo, rank)->gpu < 0 || mpath_topo_place(topo, rank)->no_relay ||
            mpath_topo_nics_beside(topo, rank) == 0) {
            return 0;
        }
    }
    compare_nodes(pairs, &same_rails, &same_rates);
    return same_rails && same_rates && !domains_are_shared(pairs) && !mpath_topo_reach_is_limited(topo) &&
           mpath_topo_params(topo)->max_paths == 0;
}

mpath_status_t mpath_pairs_create(const mpath_topo_t *topo, uint64_t min_fragment_bytes, mpath_pairs_t **pairs_p)
{
    const mpath_topo_params_t *params = mpath_topo_params(topo);
    size_t num_ranks = (size_t)mpath_topo_num_ranks(topo), num_nodes = (size_t)mpath_topo_num_nodes(topo);
    int has_gpus = mpath_topo_gpus(topo, 0) != NULL, is_alike = has_gpus || mpath_topo_rails_match(topo);
    int has_spine  = (params->fabric & MPATH_FABRIC_SPINE) != 0;
    size_t by_rank = sizeof(int8_t) + sizeof(int32_t), by_node = sizeof(mpath_nic_set_t) + sizeof(int32_t);
    mpath_pairs_t *pairs;

    if (!is_alike && params->max_paths != 0) {
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
    pairs->is_alike           = is_alike;
    pairs->min_fragment_bytes = min_fragment_bytes > 0 ? min_fragment_bytes : 1;
    pairs->has                = (mpath_nic_set_t *)(void *)(pairs + 1);
    pairs->ranks              = (int32_t *)(void *)(pairs->has + num_nodes);
    pairs->first_on           = pairs->ranks + num_ranks;
    pairs->home               = (int8_t *)(pairs->first_on + num_nodes + 2);
    place_ranks(pairs);
    if (!find_rails(pairs) || (has_gpus && !gpus_are_plain(pairs)) || (has_spine && !find_crossings(pairs)) ||
        num_ranks * num_ranks * (size_t)pairs->pieces > NUMBERS || (!is_alike && !nodes_are_joined(pairs))) {
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

/* The rails that two ranks' nodes both have. */
static mpath_nic_set_t rails_between(const mpath_pairs_t *pairs, int source, int destination)
{
    return pairs->has[mpath_pairs_node(pairs, source)] & pairs->has[mpath_pairs_node(pairs, destination)];
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

/* At most: nobody says on which rail the NIC is that has most. */
static mpath_ratio_t static_of(const mpath_pairs_t *pairs, const mpath_pairs_load_t *load)
{
    return pairs->is_alike ? (mpath_ratio_t){load->static_bytes, pairs->slowest_bps}
                           : (mpath_ratio_t){load->terms.static_ns, MPATH_PAIRS_SECOND_NS};
}

static uint64_t part_of(uint64_t bytes, uint64_t part, uint64_t all)
{
    return (uint64_t)((mpath_u128_t)bytes * part / all);
}

uint64_t mpath_pairs_bound_ns(const mpath_pairs_t *pairs, const mpath_pairs_load_t *load)
{
    return mpath_ratio_ns_ceil(mpath_pairs_bound(pairs, load));
}

uint64_t mpath_pairs_static_ns(const mpath_pairs_t *pairs, const mpath_pairs_load_t *load)
{
    return mpath_ratio_ns_ceil(static_of(pairs, load));
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
           !mpath_ratio_within(static_of(pairs, load), mpath_pairs_bound(pairs, load), MPATH_PAIRS_STATIC_PPM);
}

int mpath_pairs_is_alike(const mpath_pairs_t *pairs)
{
    return pairs->is_alike;
}

/* The part of `total` bytes that each rail is to have of what one node sends to another. */
static void find_parts(const mpath_pairs_t *pairs, int from, int to, uint64_t total, uint64_t *part)
{
    uint64_t count = (uint64_t)pairs->num_rails, turn = (uint64_t)(from + to), weights[MPATH_MAX_NICS + 1];
    const uint64_t *before = pairs->before_bps;

    if (!pairs->is_alike) {
        mpath_prices_split(pairs->prices, from, to, weights);
        before = weights;
    }
    for (uint64_t rail = 0; rail < count; rail++) {
        /* the odd bytes of different pairs of nodes go to different rails */
        part[rail] = pairs->is_even && pairs->is_alike ? total / count + ((rail + turn) % count < total % count)
                                                       : part_of(total, before[rail + 1], before[count]) -
                                                             part_of(total, before[rail], before[count]);
    }
}

/* The part of each NIC of a node at its cut. */
static void find_cut_parts(const mpath_pairs_t *pairs, int node, uint64_t total, uint64_t *part)
{
    uint64_t all_bps = 0, before_bps = 0, before = 0;

    for (mpath_nic_set_t rails = pairs->has[node]; rails != 0; rails &= rails - 1) {
        all_bps += pairs->rail_bps[mpath_nic_first(rails)];
    }
    for (mpath_nic_set_t rails = pairs->has[node]; rails != 0; rails &= rails - 1) {
        int rail = mpath_nic_first(rails);
        uint64_t end;

        before_bps += pairs->rail_bps[rail];
        end        = part_of(total, before_bps, all_bps);
        part[rail] = end - before;
        before     = end;
    }
}

static uint32_t dither_of(int from, int to)
{
    return (uint32_t)(from + to) * GOLDEN + (1u << 31);
}

/* The block's sums by static rail are there. */
static void block_divide(const mpath_pairs_t *pairs, int from, int to, block_t *block)
{
    uint64_t total = 0, over = 0, room = 0, parts[MPATH_MAX_NICS];
    int rail;

    for (rail = 0; rail < pairs->num_rails; rail++) {
        total += block->on[rail];
    }
    find_parts(pairs, from, to, total, parts);
    for (rail = 0; rail < pairs->num_rails; rail++) {
        uint64_t part = parts[rail];

        block->keep[rail]    = block->on[rail] < part ? block->on[rail] : part;
        block->over_at[rail] = over;
        over += block->on[rail] - block->keep[rail];
        room += part - block->keep[rail];
        block->room_end[rail] = room;
    }
    block->moves  = over > 0;
    block->dither = dither_of(from, to);
}

/* Number of the path over a rail, of those between two nodes: the static one is the first, the others follow in order. */
static int path_of(mpath_nic_set_t rails, int static_rail, int rail)
{
    int at = mpath_nic_count(rails & mpath_nics_below(rail));

    return rail == static_rail ? 0 : rail < static_rail ? at + 1 : at;
}

/* The other way round. */
static int rail_of(mpath_nic_set_t rails, int static_rail, int path)
{
    int skip = path <= mpath_nic_count(rails & mpath_nics_below(static_rail)) ? path - 1 : path;

    if (path == 0) {
        return static_rail;
    }
    for (; skip > 0; skip--) {
        rails &= rails - 1;
    }
    return mpath_nic_first(rails);
}

/* Pieces of one pair, in the order of their offsets. */
typedef struct cutter {
    const mpath_pairs_t *pairs;
    mpath_plan_t *plan;
    int source, destination, rail; /* the static one */
    mpath_nic_set_t rails;         /* that both nodes have */
    uint64_t bytes, done;
    uint32_t pieces;
} cutter_t;

static void piece_add_path(cutter_t *cutter, int path, uint64_t end)
{
    mpath_plan_t *plan = cutter->plan;

    mpath_plan_append(plan, cutter->source, cutter->destination, path, cutter->done, end - cutter->done);
    plan->flows[plan->num_flows - 1].number = ((uint32_t)cutter->source * (uint32_t)cutter->pairs->num_ranks +
                                               (uint32_t)cutter->destination) *
                                                  (uint32_t)cutter->pairs->pieces +
                                              cutter->pieces;
    cutter->pieces++;
    cutter->done = end;
}

static void piece_add(cutter_t *cutter, int rail, uint64_t end)
{
    piece_add_path(cutter, path_of(cutter->rails, cutter->rail, rail), end);
}

/* Whether the point at which this block looks at `bytes` lies in the first `part` of them. */
static int is_before(uint32_t dither, uint64_t bytes, uint64_t part)
{
    return (mpath_u128_t)bytes * dither < (mpath_u128_t)part << DITHER_BITS;
}

/*
 * The pair's bytes up to `end` are some route's, those before `done` are placed. Where one side of the cut would be smaller
 * than a fragment it is one fragment or nothing; what is smaller than two is not cut. Returns where the cut is.
 */
static uint64_t cut_at(const mpath_pairs_t *pairs, uint32_t dither, const cutter_t *cutter, uint64_t end)
{
    uint64_t least = pairs->min_fragment_bytes, done = cutter->done, left = cutter->bytes - done;

    if (end <= done) {
        return done;
    }
    if (end < cutter->bytes && left / 2 < least) {
        return is_before(dither, left, end - done) ? cutter->bytes : done;
    }
    if (end - done < least && end < cutter->bytes) {
        return is_before(dither, least, end - done) ? done + least : done;
    }
    if (end < cutter->bytes && cutter->bytes - end < least) {
        return is_before(dither, least, least - (cutter->bytes - end)) ? cutter->bytes : cutter->bytes - least;
    }
    return end;
}

/* The bytes up to `end` are this rail's. Returns nonzero when all is placed. */
static int cut(const mpath_pairs_t *pairs, const block_t *block, cutter_t *cutter, int rail, uint64_t end)
{
    end = cut_at(pairs, block->dither, cutter, end);
    if (end > cutter->done) {
        piece_add(cutter, rail, end);
    }
    return cutter->done == cutter->bytes;
}

/* The pieces of a pair whose bytes begin at `at` among those of its static rail. */
static void pair_place(const mpath_pairs_t *pairs, const block_t *block, uint64_t at, cutter_t *cutter)
{
    uint64_t keep = block->keep[cutter->rail], line;
    int rail;

    if (at + cutter->bytes <= keep) {
        piece_add(cutter, cutter->rail, cutter->bytes);
        return;
    }
    if (at < keep && cut(pairs, block, cutter, cutter->rail, keep - at)) {
        return;
    }
    /* byte x of the pair is byte line + x - at of all that move */
    line = block->over_at[cutter->rail] + at - (at < keep ? at : keep);
    keep = at < keep ? keep - at : 0;
    for (rail = 0; rail < pairs->num_rails; rail++) {
        uint64_t end = block->room_end[rail];

        if (end > line && end > (rail > 0 ? block->room_end[rail - 1] : 0) &&
            cut(pairs, block, cutter, rail, end - line < cutter->bytes - keep ? keep + end - line : cutter->bytes)) {
            return;
        }
    }
}

static inline uint64_t table_bytes(const mpath_pairs_table_t *table, int source, int source_place, int destination,
                                   int destination_place)
{
    size_t row    = (size_t)(table->sources ? source_place : source) * table->by_source;
    size_t column = (size_t)(table->destinations ? destination_place : destination) * table->by_destination;

    return table->bytes[row + column];
}

/* The rail of all that a rank sends between two nodes; -1: it depends on who receives. */
static int rail_of_source(const mpath_pairs_t *pairs, mpath_nic_set_t rails, int source)
{
    int home = pairs->home[source];

    return home >= 0 && (rails & mpath_nic_bit(home)) != 0 ? home : -1;
}

/* What a source sends to the destinations of these places. */
static uint64_t table_sum(const mpath_pairs_table_t *table, int source, int place, const int32_t *destinations,
                          int begin, int end)
{
    uint64_t sum = 0;

    for (int k = begin; k < end; k++) {
        sum += table_bytes(table, source, place, destinations[k], k);
    }
    return sum;
}

/* Blocks whose routes may cross. */

/* Where a route stands among those of two nodes: matched ones, then crossing ones; see topo/paths.c. */
static int arc_position(const mpath_spine_block_t *block, mpath_arc_t arc)
{
    mpath_nic_set_t both = block->from & block->to, out = mpath_nic_bit(arc.out);
    int num_both = mpath_nic_count(both), num_to = mpath_nic_count(block->to), position = num_both;

    if (arc.out == arc.in) {
        return mpath_nic_count(both & mpath_nics_below(arc.out));
    }
    position += mpath_nic_count(block->from & mpath_nics_below(arc.out)) * num_to -
                mpath_nic_count(both & mpath_nics_below(arc.out)) * num_both;
    return position + mpath_nic_count(block->to & mpath_nics_below(arc.in)) -
           ((both & out) != 0 ? mpath_nic_count(both & mpath_nics_below(arc.in)) : 0);
}

/* Number of its path: the static route goes first, which is among the others, or between rails that both nodes have. */
static int arc_path(const mpath_spine_block_t *block, mpath_arc_t first, mpath_arc_t arc)
{
    mpath_nic_set_t both = block->from & block->to;
    int position         = arc_position(block, arc);
    int is_extra         = first.out != first.in && (both & mpath_nic_bit(first.out)) != 0 &&
                   (both & mpath_nic_bit(first.in)) != 0;

    return mpath_arc_is(arc, first) ? 0 : is_extra || position < arc_position(block, first) ? position + 1 : position;
}

/* The pieces of a pair whose bytes begin at `at` among those of its static route. */
static void arc_pair_place(const mpath_pairs_t *pairs, const mpath_spine_block_t *block, uint32_t dither,
                           mpath_arc_t first, uint64_t at, cutter_t *cutter)
{
    const mpath_spine_cell_t *cell = &block->cells[first.out * block->num_rails + first.in];
    const mpath_arc_t of_cell[]    = {first, {first.out, first.out}, {first.in, first.in}};
    const uint64_t ends[]          = {cell->keep, cell->out_end, cell->in_end};
    uint64_t end, line;

    for (int i = 0; i < 3 && cutter->done < cutter->bytes; i++) {
        if (ends[i] > at && ends[i] > (i > 0 ? ends[i - 1] : 0)) {
            end = ends[i] - at < cutter->bytes ? ends[i] - at : cutter->bytes;
            end = cut_at(pairs, dither, cutter, end);
            if (end > cutter->done) {
                piece_add_path(cutter, arc_path(block, first, of_cell[i]), end);
            }
        }
    }
    /* byte x of the pair is byte line + at + x - cell->in_end of all on the line */
    line = cell->line_at;
    for (int i = 0; i < block->num_arcs && cutter->done < cutter->bytes; i++) {
        if (block->arc_end[i] > line && block->arc_end[i] - line + cell->in_end > at) {
            end = block->arc_end[i] - line + cell->in_end - at;
            end = cut_at(pairs, dither, cutter, end < cutter->bytes ? end : cutter->bytes);
            if (end > cutter->done) {
                piece_add_path(cutter, arc_path(block, first, block->arcs[i]), end);
            }
        }
    }
}

/* The block has begun. */
static void arc_block_divide(const mpath_pairs_t *pairs, const mpath_pairs_table_t *table, int from, int to,
                             mpath_spine_block_t *block)
{
    const int32_t *sources = pairs->ranks + pairs->first_on[from], *destinations = pairs->ranks + pairs->first_on[to];
    int num_sources       = pairs->first_on[from + 1] - pairs->first_on[from];
    int num_destinations  = pairs->first_on[to + 1] - pairs->first_on[to];
    mpath_nic_set_t rails = pairs->has[from] & pairs->has[to];
    uint64_t total        = 0;

    for (int i = 0; i < num_sources; i++) {
        int rail = pairs->affine ? -1 : rail_of_source(pairs, rails, sources[i]);

        if (rail >= 0) {
            uint64_t sum = table_sum(table, sources[i], i, destinations, 0, num_destinations);

            mpath_spine_cell(block, (mpath_arc_t){(int8_t)rail, (int8_t)rail})->bytes += sum;
            total += sum;
        }
        for (int k = 0; k < num_destinations && rail < 0; k++) {
            uint64_t bytes = table_bytes(table, sources[i], i, destinations[k], k);

            if (bytes > 0) {
                mpath_spine_cell(block, mpath_pairs_static_arc(pairs, from, to, sources[i], destinations[k]))
                    ->bytes += bytes;
                total += bytes;
            }
        }
    }
    if (pairs->is_cut) {
        find_cut_parts(pairs, from, total, block->out);
        find_cut_parts(pairs, to, total, block->in);
    } else {
        find_parts(pairs, from, to, total, block->out);
        memcpy(block->in, block->out, (size_t)pairs->num_rails * sizeof(*block->in));
    }
    mpath_spine_divide(block);
}

/* As mpath_pairs_block_place(). */
static void arc_block_place(const mpath_pairs_t *pairs, const mpath_pairs_table_t *table, int from, int to, int moves,
                            int only, mpath_plan_t *plan)
{
    const int32_t *sources = pairs->ranks + pairs->first_on[from], *destinations = pairs->ranks + pairs->first_on[to];
    int num_sources       = pairs->first_on[from + 1] - pairs->first_on[from];
    int num_destinations  = pairs->first_on[to + 1] - pairs->first_on[to];
    mpath_nic_set_t rails = pairs->has[from] & pairs->has[to];
    uint64_t at[MPATH_SPINE_CELLS];
    mpath_spine_block_t block;

    mpath_spine_begin(&block, pairs->num_rails, pairs->has[from], pairs->has[to]);
    memset(at, 0, (size_t)pairs->num_rails * (size_t)pairs->num_rails * sizeof(*at));
    if (moves) {
        arc_block_divide(pairs, table, from, to, &block);
    }
    for (int i = 0; i < num_sources; i++) {
        int rail = pairs->affine ? -1 : rail_of_source(pairs, rails, sources[i]);

        for (int k = 0; k < num_destinations; k++) {
            cutter_t cutter   = {.pairs       = pairs,
                                 .plan        = plan,
                                 .source      = sources[i],
                                 .destination = destinations[k],
                                 .bytes       = table_bytes(table, sources[i], i, destinations[k], k)};
            int concerns      = only < 0 || sources[i] == only || destinations[k] == only;
            mpath_arc_t first = {(int8_t)rail, (int8_t)rail};
            uint64_t *begin;

            if (cutter.bytes == 0) {
                continue;
            }
            if (!block.moves) {
                if (concerns) {
                    piece_add_path(&cutter, 0, cutter.bytes);
                }
                continue;
            }
            if (rail < 0) {
                first = mpath_pairs_static_arc(pairs, from, to, sources[i], destinations[k]);
            }
            begin = &at[first.out * pairs->num_rails + first.in];
            if (concerns) {
                arc_pair_place(pairs, &block, dither_of(from, to), first, *begin, &cutter);
            }
            *begin += cutter.bytes;
        }
    }
}

/* The division of the block from one node to another one. Room for the flows is there. `only` -1: of all ranks. */
void mpath_pairs_block_place(const mpath_pairs_t *pairs, const mpath_pairs_table_t *table, int from, int to, int moves,
                             int only, mpath_plan_t *plan)
{
    const int32_t *sources = pairs->ranks + pairs->first_on[from], *destinations = pairs->ranks + pairs->first_on[to];
    int num_sources             = pairs->first_on[from + 1] - pairs->first_on[from];
    int num_destinations        = pairs->first_on[to + 1] - pairs->first_on[to];
    mpath_nic_set_t rails       = pairs->has[from] & pairs->has[to];
    uint64_t at[MPATH_MAX_NICS] = {0};
    block_t block               = {.moves = 0};

    if (pairs->crosses) {
        arc_block_place(pairs, table, from, to, moves, only, plan);
        return;
    }
    for (int i = 0; i < num_sources && moves; i++) {
        int rail = rail_of_source(pairs, rails, sources[i]);

        if (rail >= 0) {
            block.on[rail] += table_sum(table, sources[i], i, destinations, 0, num_destinations);
        }
        for (int k = 0; k < num_destinations && rail < 0; k++) {
            block.on[static_among(pairs, rails, sources[i], destinations[k])] += table_bytes(table, sources[i], i,
                                                                                             destinations[k], k);
        }
    }
    if (moves) {
        block_divide(pairs, from, to, &block);
    }
    for (int i = 0; i < num_sources; i++) {
        int rail = rail_of_source(pairs, rails, sources[i]), begin_at = 0, end_at = num_destinations;

        /* Of the others' pairs only what goes before counts, and no more than its sum. */
        if (only >= 0 && sources[i] != only && rail >= 0) {
            while (begin_at < num_destinations && destinations[begin_at] != only) {
                begin_at++;
            }
            end_at = begin_at < num_destinations ? begin_at + 1 : begin_at;
            at[rail] += table_sum(table, sources[i], i, destinations, 0, block.moves ? begin_at : 0);
        }
        for (int k = begin_at; k < end_at; k++) {
            cutter_t cutter = {.pairs       = pairs,
                               .plan        = plan,
                               .source      = sources[i],
                               .destination = destinations[k],
                               .rail        = static_among(pairs, rails, sources[i], destinations[k]),
                               .rails       = rails,
                               .bytes       = table_bytes(table, sources[i], i, destinations[k], k)};
            uint64_t begin  = at[cutter.rail];

            at[cutter.rail] += cutter.bytes;
            if (cutter.bytes == 0 || (only >= 0 && sources[i] != only && destinations[k] != only)) {
                continue;
            }
            if (block.moves) {
                pair_place(pairs, &block, begin, &cutter);
            } else {
                piece_add(&cutter, cutter.rail, cutter.bytes);
            }
        }
        at[rail >= 0 ? rail : 0] += table_sum(table, sources[i], i, destinations, end_at, num_destinations);
    }
}

/* Inside of a node there is one path that counts. */
void mpath_pairs_local_place(const mpath_pairs_t *pairs, int source, int destination, uint64_t bytes,
                             mpath_plan_t *plan)
{
    cutter_t cutter = {.pairs = pairs, .plan = plan, .source = source, .destination = destination, .bytes = bytes};

    if (bytes > 0) {
        piece_add(&cutter, 0, bytes);
    }
}

/* Flows are in order of source and destination, a pair's in that of their offsets. */
static int in_order(const mpath_plan_t *plan)
{
    for (size_t i = 1; i < plan->num_flows; i++) {
        if (plan->flows[i].number < plan->flows[i - 1].number) {
            return 0;
        }
    }
    return 1;
}

/* A counting sort that keeps the order of equals. */
static void sort_by(const mpath_flow_t *from, size_t count, int by_source, size_t num_ranks, size_t *first,
                    mpath_flow_t *to)
{
    memset(first, 0, (num_ranks + 1) * sizeof(*first));
    for (size_t i = 0; i < count; i++) {
        first[(by_source ? from[i].source : from[i].destination) + 1]++;
    }
    for (size_t i = 0; i < num_ranks; i++) {
        first[i + 1] += first[i];
    }
    for (size_t i = 0; i < count; i++) {
        to[first[by_source ? from[i].source : from[i].destination]++] = from[i];
    }
}

mpath_status_t mpath_pairs_sort(const mpath_pairs_t *pairs, mpath_plan_t *plan)
{
    size_t num_ranks = (size_t)pairs->num_ranks, *first;
    mpath_flow_t *other;

    if (in_order(plan)) {
        return MPATH_OK;
    }
    other = malloc(plan->num_flows * sizeof(*other));
    first = malloc((num_ranks + 1) * sizeof(*first));
    if (other == NULL || first == NULL) {
        free(other);
        free(first);
        return MPATH_ERR_NO_MEMORY;
    }
    sort_by(plan->flows, plan->num_flows, 0, num_ranks, first, other);
    sort_by(other, plan->num_flows, 1, num_ranks, first, plan->flows);
    free(other);
    free(first);
    return MPATH_OK;
}

/* Whether a rank has bytes for, or from, some rank of a node: most have nothing to do with most nodes. */
static int row_reaches(const mpath_pairs_t *pairs, const uint64_t *row, int node)
{
    uint64_t any = 0;

    for (int i = pairs->first_on[node]; i < pairs->first_on[node + 1]; i++) {
        any |= row[pairs->ranks[i]];
    }
    return any > 0;
}

/* Ranks without a part in relays: what one sends and receives, where all static routes leave by the rank's own rail. */

/* What the ranks of `other` send to this node by static rail, and where the bytes for `place` begin: before[i] of rank i. */
static void column_sums(const mpath_pairs_t *pairs, const uint64_t *receives, int other, int num_local, int place,
                        block_t *block, uint64_t *sums, uint64_t *before)
{
    const int32_t *sources = pairs->ranks + pairs->first_on[other];
    int num_sources        = pairs->first_on[other + 1] - pairs->first_on[other];

    memset(sums, 0, (size_t)num_sources * sizeof(*sums));
    for (int k = 0; k < num_local; k++) {
        const uint64_t *row = receives + (size_t)k * (size_t)pairs->num_ranks;

        if (k == place) {
            memcpy(before, sums, (size_t)num_sources * sizeof(*sums));
        }
        for (int i = 0; i < num_sources; i++) {
            sums[i] += row[sources[i]];
        }
    }
    memset(block->on, 0, sizeof(block->on));
    for (int i = 0; i < num_sources; i++) {
        before[i] += block->on[pairs->home[sources[i]]];
        block->on[pairs->home[sources[i]]] += sums[i];
    }
}

static void receive_place(const mpath_pairs_t *pairs, int rank, int place, const mpath_pairs_rows_t *rows, int other,
                          int moves, uint64_t *scratch, mpath_plan_t *plan)
{
    const int32_t *sources = pairs->ranks + pairs->first_on[other];
    int num_sources = pairs->first_on[other + 1] - pairs->first_on[other], node = mpath_pairs_node(pairs, rank);
    const uint64_t *row = rows->receives + (size_t)place * (size_t)pairs->num_ranks;
    uint64_t *before    = scratch + num_sources;
    block_t block       = {.moves = 0};

    if (!row_reaches(pairs, row, other)) {
        return;
    }
    if (moves) {
        column_sums(pairs, rows->receives, other, pairs->first_on[node + 1] - pairs->first_on[node], place, &block,
                    scratch, before);
        block_divide(pairs, other, node, &block);
    }
    for (int i = 0; i < num_sources; i++) {
        cutter_t cutter = {.pairs       = pairs,
                           .plan        = plan,
                           .source      = sources[i],
                           .destination = rank,
                           .rail        = pairs->home[sources[i]],
                           .rails       = pairs->has[node],
                           .bytes       = row[sources[i]]};

        if (cutter.bytes == 0) {
            continue;
        }
        if (block.moves) {
            pair_place(pairs, &block, before[i], &cutter);
        } else {
            piece_add(&cutter, cutter.rail, cutter.bytes);
        }
    }
}

static void send_place(const mpath_pairs_t *pairs, int rank, int place, const mpath_pairs_rows_t *rows, int other,
                       int moves, mpath_plan_t *plan)
{
    const int32_t *destinations = pairs->ranks + pairs->first_on[other];
    int num_destinations = pairs->first_on[other + 1] - pairs->first_on[other], node = mpath_pairs_node(pairs, rank);
    const int32_t *mates = pairs->ranks + pairs->first_on[node];
    int num_local = pairs->first_on[node + 1] - pairs->first_on[node], home = pairs->home[rank];
    const uint64_t *row = rows->sends;
    block_t block       = {.moves = 0};
    uint64_t at         = 0;

    if (!row_reaches(pairs, row + (size_t)place * (size_t)pairs->num_ranks, other)) {
        return;
    }
    for (int i = 0; i < num_local && moves; i++, row += pairs->num_ranks) {
        uint64_t sum = 0;

        for (int k = 0; k < num_destinations; k++) {
            sum += row[destinations[k]];
        }
        at = i == place ? block.on[home] : at;
        block.on[pairs->home[mates[i]]] += sum;
    }
    if (moves) {
        block_divide(pairs, node, other, &block);
    }
    row = rows->sends + (size_t)place * (size_t)pairs->num_ranks;
    for (int k = 0; k < num_destinations; k++) {
        cutter_t cutter = {.pairs       = pairs,
                           .plan        = plan,
                           .source      = rank,
                           .destination = destinations[k],
                           .rail        = home,
                           .rails       = pairs->has[node],
                           .bytes       = row[destinations[k]]};

        if (cutter.bytes == 0) {
            continue;
        }
        if (block.moves) {
            pair_place(pairs, &block, at, &cutter);
        } else {
            piece_add(&cutter, home, cutter.bytes);
        }
        at += cutter.bytes;
    }
}

/* In the order of flows, where nodes have consecutive ranks. */
static void part_of_own(const mpath_pairs_t *pairs, int rank, int place, const mpath_pairs_rows_t *rows, int moves,
                        uint64_t *scratch, mpath_plan_t *plan)
{
    const int node = mpath_pairs_node(pairs, rank), begin = pairs->first_on[node], end = pairs->first_on[node + 1];
    const uint64_t *sends    = rows->sends + (size_t)place * (size_t)pairs->num_ranks;
    const uint64_t *receives = rows->receives + (size_t)place * (size_t)pairs->num_ranks;

    for (int other = 0; other < node; other++) {
        receive_place(pairs, rank, place, rows, other, moves, scratch, plan);
    }
    for (int i = begin; i < begin + place; i++) {
        mpath_pairs_local_place(pairs, pairs->ranks[i], rank, receives[pairs->ranks[i]], plan);
    }
    for (int other = 0; other < pairs->num_nodes; other++) {
        if (other != node) {
            send_place(pairs, rank, place, rows, other, moves, plan);
            continue;
        }
        for (int i = begin; i < end; i++) {
            mpath_pairs_local_place(pairs, rank, pairs->ranks[i], i == begin + place ? 0 : sends[pairs->ranks[i]],
                                    plan);
        }
    }
    for (int i = begin + place + 1; i < end; i++) {
        mpath_pairs_local_place(pairs, pairs->ranks[i], rank, receives[pairs->ranks[i]], plan);
    }
    for (int other = node + 1; other < pairs->num_nodes; other++) {
        receive_place(pairs, rank, place, rows, other, moves, scratch, plan);
    }
}

/* All blocks from and to the node. */
static void part_of_node(const mpath_pairs_t *pairs, int rank, int place, const mpath_pairs_rows_t *rows, int moves,
                         mpath_plan_t *plan)
{
    const int node = mpath_pairs_node(pairs, rank), only = pairs->affine ? -1 : rank;
    size_t step                   = (size_t)pairs->num_ranks;
    const mpath_pairs_table_t out = {.bytes = rows->sends, .by_source = step, .by_destination = 1, .sources = 1};
    const mpath_pairs_table_t in = {.bytes = rows->receives, .by_source = 1, .by_destination = step, .destinations = 1};

    for (int other = 0; other < pairs->num_nodes; other++) {
        if (other != node && (only < 0 || row_reaches(pairs, rows->sends + (size_t)place * step, other))) {
            mpath_pairs_block_place(pairs, &out, node, other, moves, only, plan);
        }
        if (other != node && (only < 0 || row_reaches(pairs, rows->receives + (size_t)place * step, other))) {
            mpath_pairs_block_place(pairs, &in, other, node, moves, only, plan);
        }
    }
    for (int i = pairs->first_on[node]; i < pairs->first_on[node + 1]; i++) {
        int mate = pairs->ranks[i];

        if (mate != rank) {
            mpath_pairs_local_place(pairs, rank, mate, rows->sends[(size_t)place * step + (size_t)mate], plan);
            mpath_pairs_local_place(pairs, mate, rank, rows->receives[(size_t)place * step + (size_t)mate], plan);
        }
    }
}

static size_t count_pairs(const uint64_t *bytes, size_t count)
{
    size_t pairs = 0;

    for (size_t i = 0; i < count; i++) {
        pairs += bytes[i] > 0;
    }
    return pairs;
}

/*
 * Pairs and, for each pair of nodes, the cuts: one for each rail at its part, one at the place on the line, at which it ends.
 */
size_t mpath_pairs_flows_room(const mpath_pairs_t *pairs, size_t num_pairs, size_t num_blocks)
{
    size_t arcs = (size_t)pairs->pieces;

    if (pairs->crosses) {
        /* three ends of the parts of each static route, or of each pair, and those of the line twice */
        size_t cells = 3 * num_blocks * (size_t)pairs->num_rails * (size_t)pairs->num_rails;

        return num_pairs + (cells < 3 * num_pairs ? cells : 3 * num_pairs) + num_blocks * 2 * arcs;
    }
    return num_pairs + 2 * num_blocks * (size_t)pairs->num_rails;
}

/* Gives back what no flow has taken. */
static void shrink(mpath_plan_t *plan)
{
    size_t capacity     = plan->num_flows > 0 ? plan->num_flows : 1;
    mpath_flow_t *flows = capacity < plan->capacity ? realloc(plan->flows, capacity * sizeof(*flows)) : NULL;

    if (flows != NULL) {
        plan->flows    = flows;
        plan->capacity = capacity;
    }
}

mpath_status_t mpath_pairs_plan(const mpath_pairs_t *pairs, int rank, const mpath_pairs_rows_t *rows,
                                const mpath_pairs_load_t *load, mpath_plan_t **plan_p)
{
    int node = mpath_pairs_node(pairs, rank), moves = mpath_pairs_moves(pairs, load), place = 0;
    size_t num_ranks   = (size_t)pairs->num_ranks, num_local, first, num_pairs;
    int is_own         = pairs->has_homes && pairs->is_alike && !pairs->affine;
    mpath_plan_t *plan = mpath_plan_new(NULL);
    uint64_t *scratch  = malloc(2 * num_ranks * sizeof(*scratch));
    mpath_status_t status;

    if (plan == NULL || scratch == NULL) {
        status = MPATH_ERR_NO_MEMORY;
        goto err;
    }
    num_local = (size_t)(pairs->first_on[node + 1] - pairs->first_on[node]);
    while (pairs->ranks[pairs->first_on[node] + place] != rank) {
        place++;
    }
    first     = pairs->affine ? 0 : (size_t)place * num_ranks;
    num_local = pairs->affine ? num_local : 1;
    num_pairs = count_pairs(rows->sends + first, num_local * num_ranks) +
                count_pairs(rows->receives + first, num_local * num_ranks);
    status = mpath_plan_reserve(plan, mpath_pairs_flows_room(pairs, num_pairs, 2 * (size_t)pairs->num_nodes));
    if (status != MPATH_OK) {
        goto err;
    }
    if (is_own) {
        part_of_own(pairs, rank, place, rows, moves, scratch, plan);
    } else {
        part_of_node(pairs, rank, place, rows, moves, plan);
    }
    status = mpath_pairs_sort(pairs, plan);
    if (status != MPATH_OK) {
        goto err;
    }
    shrink(plan);
    free(plan->loads);
    plan->loads     = NULL;
    plan->is_part   = 1;
    plan->signature = mpath_plan_sign(plan);
    plan->bound     = mpath_pairs_bound(pairs, load);
    plan->z         = !moves            ? static_of(pairs, load)
                      : pairs->is_alike ? plan->bound
                                        : (mpath_ratio_t){load->terms.split_ns, MPATH_PAIRS_SECOND_NS};
    free(scratch);
    *plan_p = plan;
    return MPATH_OK;

err:
    free(scratch);
    mpath_plan_destroy(plan);
    return status;
}

uint64_t mpath_pairs_balance(int rank, const mpath_plan_t *part)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < part->num_flows; i++) {
        const mpath_flow_t *flow = &part->flows[i];
        uint64_t term            = (flow->offset ^ flow->bytes << 24 ^ (uint64_t)(uint32_t)flow->path << 56) *
                        0x9e3779b97f4a7c15ull;

        term = (term ^ term >> 29 ^ flow->number) * 0xd6e8feb86659fd93ull;
        sum += flow->source == rank ? term : 0;
        sum -= flow->destination == rank ? term : 0;
    }
    return sum;
}

/* The number of the rail of a node's NIC among those in use. */
static int8_t rail_number(const mpath_pairs_t *pairs, int node, int nic)
{
    int8_t rail = 0;

    while (pairs->rails[rail] != mpath_topo_machine(pairs->topo, node)->nics[nic].rail) {
        rail++;
    }
    return rail;
}

/* The rails of a flow between two nodes. */
static mpath_arc_t flow_arc(const mpath_pairs_t *pairs, const mpath_flow_t *flow)
{
    mpath_arc_t arc = {0, 0};
    mpath_path_t path;

    if (!pairs->crosses) {
        arc.out = (int8_t)rail_of(rails_between(pairs, flow->source, flow->destination),
                                  mpath_pairs_static_rail(pairs, flow->source, flow->destination), flow->path);
        arc.in  = arc.out;
        return arc;
    }
    mpath_topo_path(pairs->topo, flow->source, flow->destination, flow->path, &path);
    for (int i = 0; i < path.num_hops; i++) {
        if (path.hops[i].lane == MPATH_LANE_RAIL) {
            arc.out = rail_number(pairs, mpath_pairs_node(pairs, flow->source), path.hops[i].nic_from);
            arc.in  = rail_number(pairs, mpath_pairs_node(pairs, flow->destination), path.hops[i].nic_to);
        }
    }
    return arc;
}

void mpath_pairs_share(const mpath_pairs_t *pairs, int rank, const mpath_plan_t *part, uint64_t *share)
{
    memset(share, 0, 2 * (size_t)pairs->num_rails * sizeof(*share));
    for (size_t i = 0; i < part->num_flows; i++) {
        const mpath_flow_t *flow = &part->flows[i];

        if ((flow->source == rank || flow->destination == rank) &&
            mpath_pairs_node(pairs, flow->source) != mpath_pairs_node(pairs, flow->destination)) {
            mpath_arc_t arc = flow_arc(pairs, flow);

            share[flow->source == rank ? arc.out : pairs->num_rails + arc.in] += flow->bytes;
        }
    }
}

mpath_status_t mpath_pairs_set_loads(const mpath_pairs_t *pairs, const uint64_t *shares, mpath_plan_t *part)
{
    int num_resources = mpath_topo_num_resources(pairs->topo);
    uint64_t *loads   = calloc((size_t)num_resources + 1, sizeof(*loads));

    if (loads == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    for (int rank = 0; rank < pairs->num_ranks; rank++) {
        for (int rail = 0; rail < pairs->num_rails; rail++, shares++) {
            int node = mpath_pairs_node(pairs, rank), nic = nic_of(pairs, node, rail);

            if ((pairs->has[node] & mpath_nic_bit(rail)) == 0) {
                continue;
            }
            loads[mpath_topo_resource_find(pairs->topo, MPATH_RESOURCE_NIC_TX, node, nic)] += shares[0];
            loads[mpath_topo_resource_find(pairs->topo, MPATH_RESOURCE_NIC_RX, node, nic)] += shares[pairs->num_rails];
        }
        shares += pairs->num_rails;
    }
    free(part->loads);
    part->loads         = loads;
    part->num_resources = num_resources;
    return MPATH_OK;
}
