/* SPDX-License-Identifier: BSD-3-Clause */
/* Plan by pairs of nodes: prices, where nodes are not alike. */
#include "plan/pairs_private.h"

#include <stdlib.h>
#include <string.h>

static mpath_status_t make_prices(mpath_pairs_t *pairs)
{
    size_t nodes = (size_t)pairs->num_nodes, rails = (size_t)pairs->num_rails;
    uint64_t *rates       = malloc(nodes * rails * sizeof(*rates));
    mpath_status_t status = MPATH_ERR_NO_MEMORY;

    pairs->sums = malloc(2 * nodes * sizeof(*pairs->sums));
    if (rates != NULL && pairs->sums != NULL) {
        for (size_t i = 0; i < nodes * rails; i++) {
            rates[i] = mpath_pairs_rate(pairs, (int)(i / rails), (int)(i % rails));
        }
        status = mpath_prices_create(pairs->num_nodes, pairs->num_rails, rates,
                                     pairs->crosses && !pairs->has_same_rails, &pairs->prices);
    }
    if (status != MPATH_OK) {
        free(pairs->sums);
        pairs->sums = NULL;
    }
    free(rates);
    return status;
}

/* What the node sends and receives, or one of both: to or from each other node, and what its NICs take on static routes. */
static void sum_rows(const mpath_pairs_t *pairs, int node, int in, const uint64_t *row, uint64_t *sums,
                     mpath_ratio_t *static_p)
{
    uint64_t on[MPATH_MAX_NICS] = {0};

    memset(sums, 0, (size_t)pairs->num_nodes * sizeof(*sums));
    for (int i = pairs->first_on[node]; i < pairs->first_on[node + 1]; i++, row += pairs->num_ranks) {
        for (int other = 0; other < pairs->num_nodes; other++) {
            for (int k = pairs->first_on[other]; k < pairs->first_on[other + 1] && other != node; k++) {
                int rank = pairs->ranks[k], mate = pairs->ranks[i];

                if (row[rank] > 0) {
                    mpath_arc_t arc = in ? mpath_pairs_static_arc(pairs, other, node, rank, mate)
                                         : mpath_pairs_static_arc(pairs, node, other, mate, rank);

                    sums[other] += row[rank];
                    on[in ? arc.in : arc.out] += row[rank];
                }
            }
        }
    }
    for (int rail = 0; rail < pairs->num_rails; rail++) {
        if (on[rail] > 0) {
            *static_p = mpath_ratio_max(*static_p, (mpath_ratio_t){on[rail], mpath_pairs_rate(pairs, node, rail)});
        }
    }
}

/* What a node takes at its cut: sums of the matrix as sum_rows() makes them. */
static mpath_ratio_t cut_of(const mpath_pairs_t *pairs, int node, const uint64_t *out_bytes, const uint64_t *in_bytes)
{
    uint64_t out = 0, in = 0, rate_bps = mpath_pairs_node_rate(pairs, node);

    for (int other = 0; other < pairs->num_nodes; other++) {
        out += out_bytes[other];
        in += in_bytes[other];
    }
    return (mpath_ratio_t){out > in ? out : in, rate_bps > 0 ? rate_bps : 1};
}

/* What a node says in a round; 1: it has an entry. */
int mpath_pairs_node_say(const mpath_pairs_t *pairs, int node, const uint64_t *out_bytes, const uint64_t *in_bytes,
                         mpath_prices_terms_t *terms, mpath_prices_entry_t *entry)
{
    mpath_ratio_t cut;

    if (!pairs->is_cut) {
        return mpath_prices_say(pairs->prices, node, out_bytes, in_bytes, terms, entry);
    }
    cut             = cut_of(pairs, node, out_bytes, in_bytes);
    terms->bound_ns = mpath_ratio_ns_floor(cut);
    terms->split_ns = mpath_ratio_ns_ceil(cut);
    memset(entry, 0, sizeof(*entry));
    return 0;
}

static void cut_hear(mpath_pairs_t *pairs, const mpath_prices_terms_t *most)
{
    uint64_t part_ns  = mpath_ratio_times((mpath_ratio_t){most->bound_ns, 1000000}, 1000000 + MPATH_PAIRS_STATIC_PPM);
    uint64_t slack_ns = most->bound_ns + pairs->slack_ns;

    pairs->cut                  = *most;
    pairs->cut.static_is_enough = most->static_ns <= (part_ns > slack_ns ? part_ns : slack_ns);
}

/* Where a spine reaches all cuts there are no prices, but the same is to be known of the matrix. */
static mpath_status_t cut_begin(mpath_pairs_t *pairs, uint64_t slack_bytes)
{
    uint64_t fastest_bps = 1;

    for (int rail = 0; rail < pairs->num_rails; rail++) {
        fastest_bps = pairs->rail_bps[rail] > fastest_bps ? pairs->rail_bps[rail] : fastest_bps;
    }
    pairs->slack_ns = mpath_ratio_ns_floor((mpath_ratio_t){slack_bytes, fastest_bps});
    if (pairs->sums == NULL) {
        pairs->sums = malloc(2 * (size_t)pairs->num_nodes * sizeof(*pairs->sums));
    }
    return pairs->sums == NULL ? MPATH_ERR_NO_MEMORY : MPATH_OK;
}

mpath_status_t mpath_pairs_price_begin(mpath_pairs_t *pairs, const mpath_pairs_load_t *load)
{
    uint64_t fragment = load->largest_bytes < pairs->min_fragment_bytes ? load->largest_bytes
                                                                        : pairs->min_fragment_bytes;

    if (pairs->is_cut) {
        return cut_begin(pairs, fragment);
    }
    if (pairs->prices == NULL) {
        mpath_status_t status = make_prices(pairs);

        if (status != MPATH_OK) {
            return status;
        }
    }
    mpath_prices_begin(pairs->prices, load->node_bytes, fragment);
    return MPATH_OK;
}

mpath_status_t mpath_pairs_price(mpath_pairs_t *pairs, int rank, const mpath_pairs_rows_t *rows,
                                 const mpath_pairs_load_t *load)
{
    mpath_ratio_t longest = {0, 1};
    mpath_status_t status = mpath_pairs_price_begin(pairs, load);

    if (status == MPATH_OK) {
        sum_rows(pairs, mpath_pairs_node(pairs, rank), 0, rows->sends, pairs->sums, &longest);
        sum_rows(pairs, mpath_pairs_node(pairs, rank), 1, rows->receives, pairs->sums + pairs->num_nodes, &longest);
        pairs->static_ns = mpath_ratio_ns_ceil(longest);
    }
    return status;
}

size_t mpath_pairs_entry_bytes(const mpath_pairs_t *pairs)
{
    return pairs->is_cut ? sizeof(uint32_t) : mpath_prices_entry_bytes(pairs->prices);
}

int mpath_pairs_say(const mpath_pairs_t *pairs, int rank, mpath_prices_terms_t *terms, mpath_prices_entry_t *entry)
{
    terms->static_ns = pairs->static_ns;
    return mpath_pairs_node_say(pairs, mpath_pairs_node(pairs, rank), pairs->sums, pairs->sums + pairs->num_nodes,
                                terms, entry);
}

int mpath_pairs_hear(mpath_pairs_t *pairs, const mpath_prices_terms_t *most, const void *entries, size_t count)
{
    if (pairs->is_cut) {
        cut_hear(pairs, most);
        return 0;
    }
    return mpath_prices_hear(pairs->prices, most, entries, count);
}

void mpath_pairs_priced(const mpath_pairs_t *pairs, mpath_pairs_load_t *load)
{
    load->terms = pairs->is_cut ? pairs->cut : *mpath_prices_found(pairs->prices);
}
