/* SPDX-License-Identifier: BSD-3-Clause */
/* Tokens choose experts: the demand of a mixture-of-experts layer. */
#include "plan/moe.h"

#include "plan/fixed.h"
#include "util/log.h"

#include <stdlib.h>
#include <string.h>

#define PPM 1000000u
/* Draws of an expert that the token has already, before the others are searched one by one. */
#define MAX_REDRAWS 32

/* splitmix64 (Steele, Lea, Flood, OOPSLA 2014): small, and the same everywhere. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

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

/* Sums of the weights of experts 0 to e, in a drawn order of popularity. */
static void draw_popularity(const mpath_moe_t *moe, uint64_t *state, uint64_t *sums)
{
    uint32_t e;

    for (e = 0; e < moe->experts; e++) {
        sums[e] = mpath_exp2_negative((uint64_t)((mpath_u128_t)mpath_log2((uint64_t)e + 1) * moe->skew_ppm / PPM));
        sums[e] = (sums[e] == 0) ? 1 : sums[e];
    }
    for (e = moe->experts - 1; e > 0; e--) {
        uint64_t other = next_random(state) % ((uint64_t)e + 1), swap = sums[e];

        sums[e]     = sums[other];
        sums[other] = swap;
    }
    for (e = 1; e < moe->experts; e++) {
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
        expert = find(sums, moe->experts, next_random(state) % sums[moe->experts - 1]);
        if (!is_among(chosen, count, expert)) {
            return expert;
        }
    }
    while (is_among(chosen, count, expert)) { /* the few popular ones take nearly all: the next in order */
        expert = (expert + 1) % moe->experts;
    }
    return expert;
}

mpath_status_t mpath_demand_moe(int num_ranks, const mpath_moe_t *moe, uint64_t *demand)
{
    uint64_t state        = moe->seed;
    mpath_status_t status = check(num_ranks, moe);
    uint32_t chosen[MPATH_MOE_MAX_TOPK];
    uint64_t *sums;

    if (status != MPATH_OK) {
        return status;
    }
    sums = malloc(moe->experts * sizeof(*sums));
    if (sums == NULL) {
        mpath_error("demand of experts: no memory for %u experts", moe->experts);
        return MPATH_ERR_NO_MEMORY;
    }
    draw_popularity(moe, &state, sums);
    memset(demand, 0, (size_t)num_ranks * (size_t)num_ranks * sizeof(*demand));
    for (int source = 0; source < num_ranks; source++) {
        uint64_t *row = demand + (size_t)source * (size_t)num_ranks;

        for (uint64_t token = 0; token < moe->tokens; token++) {
            for (uint32_t k = 0; k < moe->topk; k++) {
                chosen[k] = choose(moe, sums, &state, chosen, k);
                row[(uint64_t)chosen[k] * (uint64_t)num_ranks / moe->experts] += moe->token_bytes;
            }
        }
    }
    free(sums);
    return MPATH_OK;
}
