/* SPDX-License-Identifier: BSD-3-Clause */
/* Demand matrices: hot spot, Zipf, and tokens of experts; what they ask of ranks and links. */
#include "plan/demand.h"

#include "plan/fixed.h"
#include "plan/workload.h"
#include "util/log.h"
#include "util/time.h"

#include <stdlib.h>
#include <string.h>

/* Tokens choose experts: the demand of a mixture-of-experts layer. */

#define PPM 1000000u

/* Draws of an expert that the token has already, before the others are searched one by one. */
#define MAX_REDRAWS 32

static mpath_status_t check(int num_ranks, const mpath_moe_t *moe)
{
    const char *wrong = NULL;

    if ((moe->experts < 1) || (moe->experts > MPATH_MOE_MAX_EXPERTS)) {
        wrong = "experts must be 1 to 65536";
    } else if ((moe->topk < 1) || (moe->topk > MPATH_MOE_MAX_TOPK) || (moe->topk > moe->experts)) {
        wrong = "a token must go to 1 to 64 experts, no more than there are";
    } else if ((moe->tokens < 1) || (moe->tokens > MPATH_MOE_MAX_CHOICES / moe->topk / (uint64_t)num_ranks)) {
        wrong = "tokens of all ranks times experts of a token must be 1 to 1000000000";
    } else if ((moe->token_bytes < 1) || (moe->token_bytes > (1ull << 30))) {
        wrong = "a token must have 1 byte to 1 GiB";
    } else {
        return MPATH_OK;
    }
    mpath_error("demand of experts: %llu tokens to %u of %u experts on %d ranks, %llu bytes each: %s",
                (unsigned long long)moe->tokens, moe->topk, moe->experts, num_ranks,
                (unsigned long long)moe->token_bytes, wrong);
    return MPATH_ERR_PARAM;
}

/* Sums of the weights of experts 0 to e. */
static void sum_popularity(const mpath_moe_t *moe, uint64_t *state, uint64_t *sums)
{
    if (moe->weights != NULL) {
        memcpy(sums, moe->weights, moe->experts * sizeof(*sums));
    } else {
        mpath_popularity_zipf(moe->experts, moe->skew_ppm, state, sums);
    }
    for (uint32_t e = 1; e < moe->experts; e++) {
        sums[e] += sums[e - 1];
    }
}

/* The first expert whose sum is above `value`. */
static uint32_t find(const uint64_t *sums, uint32_t count, uint64_t value)
{
    uint32_t low = 0, high = count - 1;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (sums[middle] > value) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static int is_among(const uint32_t *chosen, uint32_t count, uint32_t expert)
{
    for (uint32_t i = 0; i < count; i++) {
        if (chosen[i] == expert) {
            return 1;
        }
    }
    return 0;
}

/* An expert that the token does not have yet, by popularity. */
static uint32_t choose(const mpath_moe_t *moe, const uint64_t *sums, uint64_t *state, const uint32_t *chosen,
                       uint32_t count)
{
    uint32_t expert = 0;

    for (int draw = 0; draw < MAX_REDRAWS; draw++) {
        expert = find(sums, moe->experts, mpath_random_next(state) % sums[moe->experts - 1]);
        if (!is_among(chosen, count, expert)) {
            return expert;
        }
    }
    while (is_among(chosen, count, expert)) { /* the few popular ones take nearly all: the next in order */
        expert = (expert + 1) % moe->experts;
    }
    return expert;
}

mpath_status_t mpath_moe_begin(int num_ranks, const mpath_moe_t *moe, mpath_moe_draw_t *draw)
{
    mpath_status_t status = check(num_ranks, moe);
    uint64_t *sums;

    if (status != MPATH_OK) {
        return status;
    }
    sums = malloc(moe->experts * sizeof(*sums));
    if (sums == NULL) {
        mpath_error("demand of experts: no memory for %u experts", moe->experts);
        return MPATH_ERR_NO_MEMORY;
    }
    *draw = (mpath_moe_draw_t){.moe = *moe, .num_ranks = num_ranks, .state = moe->seed, .sums = sums};
    sum_popularity(moe, &draw->state, sums);
    return MPATH_OK;
}

void mpath_moe_row(mpath_moe_draw_t *draw, uint64_t *row)
{
    const mpath_moe_t *moe = &draw->moe;
    uint32_t chosen[MPATH_MOE_MAX_TOPK];

    memset(row, 0, (size_t)draw->num_ranks * sizeof(*row));
    for (uint64_t token = 0; token < moe->tokens; token++) {
        for (uint32_t k = 0; k < moe->topk; k++) {
            chosen[k] = choose(moe, draw->sums, &draw->state, chosen, k);
            row[(uint64_t)chosen[k] * (uint64_t)draw->num_ranks / moe->experts] += moe->token_bytes;
        }
    }
}

void mpath_moe_end(mpath_moe_draw_t *draw)
{
    free(draw->sums);
}

mpath_status_t mpath_demand_moe(int num_ranks, const mpath_moe_t *moe, uint64_t *demand)
{
    mpath_moe_draw_t draw;
    mpath_status_t status = mpath_moe_begin(num_ranks, moe, &draw);

    if (status != MPATH_OK) {
        return status;
    }
    for (int source = 0; source < num_ranks; source++) {
        mpath_moe_row(&draw, demand + (size_t)source * (size_t)num_ranks);
    }
    mpath_moe_end(&draw);
    return MPATH_OK;
}

/* Load: sums of a matrix by rank and by node. */

enum { SENT, RECEIVED, SENT_AWAY, RECEIVED_AWAY }; /* which sums, each of all ranks */

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return (a < b) ? b : a;
}

/* Of those that are up, together. */
static uint64_t nics_bps(const mpath_machine_t *machine)
{
    uint64_t bps = 0;

    for (int nic = 0; nic < machine->num_nics; nic++) {
        bps += machine->nics[nic].up ? machine->nics[nic].rate_bps : 0;
    }
    return bps;
}

/* For times below some days. */
static uint64_t time_of(uint64_t bytes, uint64_t bps)
{
    return (uint64_t)((double)bytes * (double)MPATH_NS_PER_S / (double)((bps > 0) ? bps : 1));
}

static void add_rank(const mpath_topo_t *topo, const uint64_t *demand, int source, uint64_t *sums)
{
    int size = mpath_topo_num_ranks(topo), node = mpath_topo_place(topo, source)->node;
    size_t ranks = (size_t)size, from = (size_t)source;
    const uint64_t *row = demand + from * ranks;

    for (int destination = 0; destination < size; destination++) {
        uint64_t bytes = row[destination];
        size_t to      = (size_t)destination;

        if (bytes == 0) {
            continue;
        }
        sums[SENT * ranks + from] += bytes;
        sums[RECEIVED * ranks + to] += bytes;
        if (mpath_topo_place(topo, destination)->node != node) {
            sums[SENT_AWAY * ranks + from] += bytes;
            sums[RECEIVED_AWAY * ranks + to] += bytes;
        }
    }
}

static void add_node(const mpath_topo_t *topo, int node, const uint64_t *sums, mpath_load_t *load)
{
    size_t ranks  = (size_t)mpath_topo_num_ranks(topo);
    uint64_t sent = 0, received = 0, local = 0;

    for (size_t rank = 0; rank < ranks; rank++) {
        if (mpath_topo_place(topo, (int)rank)->node == node) {
            sent += sums[SENT_AWAY * ranks + rank];
            received += sums[RECEIVED_AWAY * ranks + rank];
            local++;
        }
    }
    load->node_cross = max_u64(load->node_cross, max_u64(sent, received) / max_u64(local, 1));
    load->links_ns   = max_u64(load->links_ns,
                               time_of(max_u64(sent, received), nics_bps(mpath_topo_machine(topo, node))));
}

void mpath_load_find(const mpath_topo_t *topo, const uint64_t *demand, uint64_t *sums, mpath_load_t *load)
{
    size_t ranks = (size_t)mpath_topo_num_ranks(topo);

    *load = (mpath_load_t){0};
    memset(sums, 0, MPATH_LOAD_SUMS * ranks * sizeof(*sums));
    for (size_t rank = 0; rank < ranks; rank++) {
        add_rank(topo, demand, (int)rank, sums);
    }
    for (size_t rank = 0; rank < ranks; rank++) {
        load->busiest       = max_u64(load->busiest, max_u64(sums[SENT * ranks + rank], sums[RECEIVED * ranks + rank]));
        load->busiest_cross = max_u64(load->busiest_cross,
                                      max_u64(sums[SENT_AWAY * ranks + rank], sums[RECEIVED_AWAY * ranks + rank]));
    }
    for (int node = 0; node < mpath_topo_num_nodes(topo); node++) {
        add_node(topo, node, sums, load);
    }
}

static uint64_t whole_units(mpath_u128_t bytes, uint64_t unit)
{
    return unit == 0 ? (uint64_t)bytes : (uint64_t)bytes / unit * unit;
}

void mpath_demand_hot_row(int num_ranks, int hot, uint32_t hot_ppm, uint64_t bytes, uint64_t unit, int source,
                          uint64_t *row)
{
    uint32_t ppm      = hot_ppm > PPM ? PPM : hot_ppm;
    mpath_u128_t even = (mpath_u128_t)bytes * (PPM - ppm);

    for (int destination = 0; destination < num_ranks; destination++) {
        if (source == hot) {
            row[destination] = whole_units(bytes / (uint64_t)num_ranks, unit);
        } else if (destination == hot) {
            row[destination] = whole_units((even / (uint64_t)num_ranks + (mpath_u128_t)bytes * ppm) / PPM, unit);
        } else {
            row[destination] = whole_units(even / (uint64_t)num_ranks / PPM, unit);
        }
    }
}

void mpath_demand_hot(int num_ranks, int hot, uint32_t hot_ppm, uint64_t bytes, uint64_t unit, uint64_t *demand)
{
    for (int source = 0; source < num_ranks; source++, demand += num_ranks) {
        mpath_demand_hot_row(num_ranks, hot, hot_ppm, bytes, unit, source, demand);
    }
}

void mpath_demand_zipf_row(int num_ranks, uint32_t s_ppm, uint64_t seed, uint64_t bytes, uint64_t unit, uint64_t *row)
{
    uint64_t total = 0;

    /* the row is the work area: weights, then bytes */
    mpath_popularity_zipf((uint32_t)num_ranks, s_ppm, &seed, row);
    for (int i = 0; i < num_ranks; i++) {
        total += row[i];
    }
    for (int i = 0; i < num_ranks; i++) {
        row[i] = whole_units((mpath_u128_t)bytes * row[i] / total, unit);
    }
}

void mpath_demand_zipf(int num_ranks, uint32_t s_ppm, uint64_t seed, uint64_t bytes, uint64_t unit, uint64_t *demand)
{
    mpath_demand_zipf_row(num_ranks, s_ppm, seed, bytes, unit, demand);
    for (int i = 1; i < num_ranks; i++) {
        memcpy(demand + (size_t)i * (size_t)num_ranks, demand, (size_t)num_ranks * sizeof(*demand));
    }
}

uint64_t mpath_transpose_block(int num_ranks, const mpath_transpose_t *transpose, int rank)
{
    uint64_t ranks = (uint64_t)num_ranks, number = (uint64_t)rank;

    return transpose->size * (number + 1) / ranks - transpose->size * number / ranks;
}

void mpath_demand_transpose(int num_ranks, const mpath_transpose_t *transpose, uint64_t *demand)
{
    for (int source = 0; source < num_ranks; source++) {
        uint64_t rows = mpath_transpose_block(num_ranks, transpose, source);

        for (int destination = 0; destination < num_ranks; destination++, demand++) {
            *demand = rows * mpath_transpose_block(num_ranks, transpose, destination) * transpose->element_bytes;
        }
    }
}
