/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts: a short list, most recently used first. */
#include "coll/parts.h"

#include "util/log.h"
#include "util/time.h"

#include <stdlib.h>
#include <string.h>

#define PARTS_MOST 8
#define PARTS_LEAST 2
#define PARTS_BYTES (512u << 10) /* of flows, where all pairs have some; but the least are kept anyway */

typedef struct part {
    uint64_t signature;
    mpath_plan_t *plan;
    mpath_pairs_load_t load;
} part_t;

struct mpath_parts {
    mpath_pairs_t *pairs;
    char *entries; /* what nodes tell each other of prices */
    uint64_t waited_ns;
    int count, capacity;
    part_t list[PARTS_MOST];
};

/* The same on all ranks. */
static int parts_capacity(const mpath_topo_t *topo)
{
    size_t num_ranks = (size_t)mpath_topo_num_ranks(topo), num_nodes = (size_t)mpath_topo_num_nodes(topo);
    int passes_on   = mpath_topo_params(topo)->access == MPATH_REACH_AFFINE || mpath_topo_gpus(topo, 0) != NULL;
    size_t capacity = PARTS_BYTES /
                      (2 * num_ranks * sizeof(mpath_flow_t) * (passes_on ? num_ranks / num_nodes + 1 : 1));

    return capacity < PARTS_LEAST ? PARTS_LEAST : capacity > PARTS_MOST ? PARTS_MOST : (int)capacity;
}

mpath_status_t mpath_parts_create(const mpath_topo_t *topo, const mpath_settings_t *settings, mpath_parts_t **parts_p)
{
    mpath_parts_t *parts  = calloc(1, sizeof(*parts));
    mpath_status_t status = parts == NULL ? MPATH_ERR_NO_MEMORY
                                          : mpath_pairs_create(topo, settings->min_fragment_bytes, &parts->pairs);

    if (status != MPATH_OK) {
        if (status != MPATH_DECLINED) {
            mpath_error("no memory for plans of %d ranks", mpath_topo_num_ranks(topo));
        }
        free(parts);
        return status;
    }
    parts->capacity = parts_capacity(topo);
    *parts_p        = parts;
    return MPATH_OK;
}

void mpath_parts_destroy(mpath_parts_t *parts)
{
    if (parts != NULL) {
        for (int i = 0; i < parts->count; i++) {
            mpath_plan_destroy(parts->list[i].plan);
        }
        mpath_pairs_destroy(parts->pairs);
        free(parts->entries);
        free(parts);
    }
}

int mpath_parts_are_alike(const mpath_parts_t *parts)
{
    return mpath_pairs_is_alike(parts->pairs);
}

uint64_t mpath_parts_bound_ns(const mpath_parts_t *parts)
{
    return mpath_pairs_bound_ns(parts->pairs, &parts->list[0].load);
}

void mpath_parts_predict(const mpath_parts_t *parts, uint64_t *plan_ns_p, uint64_t *static_ns_p)
{
    *static_ns_p = mpath_pairs_static_ns(parts->pairs, &parts->list[0].load);
    *plan_ns_p   = mpath_pairs_plan_ns(parts->pairs, &parts->list[0].load);
}

static void parts_put_in_front(mpath_parts_t *parts, part_t part, int others)
{
    memmove(&parts->list[1], &parts->list[0], (size_t)others * sizeof(part));
    parts->list[0] = part;
}

/* Rounds of prices until these are found, for load->terms. */
static mpath_status_t parts_price(mpath_parts_t *parts, mpath_team_t *team, const mpath_pairs_rows_t *rows,
                                  mpath_pairs_load_t *load)
{
    int rank = mpath_team_rank(team), goes_on = 1;
    uint64_t start_ns;
    mpath_status_t status;

    if (parts->entries == NULL) {
        parts->entries = malloc((size_t)mpath_topo_num_nodes(mpath_pairs_topo(parts->pairs)) * MPATH_TEAM_ENTRY_BYTES);
    }
    status = parts->entries == NULL ? MPATH_ERR_NO_MEMORY : mpath_pairs_price(parts->pairs, rank, rows, load);
    if (status != MPATH_OK) {
        return status;
    }
    while (goes_on > 0) {
        mpath_team_few_t said = {.entry_bytes = mpath_pairs_entry_bytes(parts->pairs), .entries = parts->entries};
        mpath_prices_terms_t terms;
        mpath_prices_entry_t entry;

        said.num_entries = (size_t)mpath_pairs_say(parts->pairs, rank, &terms, &entry);
        said.most[0]     = terms.bound_ns;
        said.most[1]     = terms.split_ns;
        said.most[2]     = terms.static_ns;
        memcpy(parts->entries, &entry, said.entry_bytes);
        start_ns = mpath_time_ns();
        status   = mpath_team_gather_few(team, &said);
        parts->waited_ns += mpath_time_ns() - start_ns;
        if (status != MPATH_OK) {
            return status;
        }
        terms   = (mpath_prices_terms_t){said.most[0], said.most[1], said.most[2], 0};
        goes_on = mpath_pairs_hear(parts->pairs, &terms, said.entries, said.num_entries);
    }
    mpath_pairs_priced(parts->pairs, load);
    return goes_on < 0 ? (mpath_status_t)goes_on : MPATH_OK;
}

mpath_status_t mpath_parts_get(mpath_parts_t *parts, mpath_team_t *team, const mpath_agreed_t *agreed,
                               const mpath_plan_t **plan_p, int *hit_p)
{
    const mpath_pairs_rows_t rows = {.sends = agreed->node_sends, .receives = agreed->node_receives};
    part_t part                   = {.signature = agreed->signature,
                                     .load      = {.node_bytes    = agreed->node_bytes,
                                                   .static_bytes  = agreed->static_bytes,
                                                   .largest_bytes = agreed->largest_bytes}};
    mpath_status_t status         = MPATH_OK;
    int at                        = 0;

    parts->waited_ns = 0;
    while (at < parts->count && parts->list[at].signature != agreed->signature) {
        at++;
    }
    *hit_p = at < parts->count;
    if (*hit_p) {
        parts_put_in_front(parts, parts->list[at], at);
        *plan_p = parts->list[0].plan;
        return MPATH_OK;
    }
    if (!mpath_parts_are_alike(parts)) {
        status = parts_price(parts, team, &rows, &part.load);
    }
    if (status == MPATH_OK) {
        status = mpath_pairs_plan(parts->pairs, mpath_team_rank(team), &rows, &part.load, &part.plan);
    }
    if (status != MPATH_OK) {
        if (status == MPATH_ERR_NO_MEMORY) {
            mpath_error("no memory for the plan of a call of %d ranks; the call fails", mpath_team_size(team));
        }
        mpath_team_break(team, status);
        return status;
    }
    if (parts->count == parts->capacity) {
        mpath_plan_destroy(parts->list[--parts->count].plan);
    }
    parts_put_in_front(parts, part, parts->count++);
    *plan_p = part.plan;
    return MPATH_OK;
}

uint64_t mpath_parts_waited_ns(const mpath_parts_t *parts)
{
    return parts->waited_ns;
}

size_t mpath_parts_share_words(const mpath_parts_t *parts)
{
    return 2 * (size_t)mpath_pairs_num_rails(parts->pairs);
}

void mpath_parts_share(const mpath_parts_t *parts, int rank, uint64_t *share)
{
    mpath_pairs_share(parts->pairs, rank, parts->list[0].plan, share);
}

mpath_status_t mpath_parts_set_loads(mpath_parts_t *parts, const uint64_t *shares)
{
    return mpath_pairs_set_loads(parts->pairs, shares, parts->list[0].plan);
}
