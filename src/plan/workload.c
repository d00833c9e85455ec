/* SPDX-License-Identifier: BSD-3-Clause */
/* Workloads by name, seed and step. */
#include "plan/workload.h"

#include "plan/fixed.h"
#include "util/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PPM 1000000u
#define BURST_STEPS 8
#define MAX_EXPERTS 65536u
#define LN4_Q20 1453635u    /* 2 ln 2, 20 bits behind the point */
#define LOG2_E_Q20 1512775u /* log2 e */

static const struct {
    const char *name;
    uint32_t value_ppm, most_ppm; /* what is taken when none is named, and the most; most 0: it has no value */
} kinds[] = {[MPATH_WORKLOAD_BALANCED]  = {"balanced", 0, 0},
             [MPATH_WORKLOAD_MILD]      = {"mild", 0, 0},
             [MPATH_WORKLOAD_HOT]       = {"hot", 700000, PPM},
             [MPATH_WORKLOAD_MOVING]    = {"moving", 700000, PPM},
             [MPATH_WORKLOAD_BURST]     = {"burst", 700000, PPM},
             [MPATH_WORKLOAD_ZIPF]      = {"zipf", 800000, 4 * PPM},
             [MPATH_WORKLOAD_LOGNORMAL] = {"lognormal", PPM, 8 * PPM},
             [MPATH_WORKLOAD_FILE]      = {"file", 0, 0}};

#define NUM_KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* --- names ------------------------------------------------------------------------------------------------------- */

/* NUM_KINDS: none */
static size_t find_kind(const char *text)
{
    size_t length = strcspn(text, ":"), kind = 0;

    while (kind < NUM_KINDS && (strlen(kinds[kind].name) != length || strncmp(text, kinds[kind].name, length) != 0)) {
        kind++;
    }
    return kind;
}

int mpath_workload_is_name(const char *text)
{
    return find_kind(text) < NUM_KINDS;
}

static mpath_status_t refuse(const char *text, const char *why)
{
    mpath_error("workload '%s': %s; it is not used", text, why);
    return MPATH_ERR_PARAM;
}

/* "0.7" as millionths; further digits are dropped. */
static int parse_ppm(const char *text, uint32_t most, uint32_t *ppm_p)
{
    uint64_t value = 0, unit = PPM;
    int digits = 0;

    for (; *text >= '0' && *text <= '9' && value <= most; text++, digits++) {
        value = value * 10 + (uint64_t)(*text - '0') * PPM;
    }
    if (*text == '.') {
        for (text++; *text >= '0' && *text <= '9'; text++, digits++) {
            unit /= 10;
            value += (uint64_t)(*text - '0') * unit;
        }
    }
    if (*text != '\0' || digits == 0 || value > most) {
        return 0;
    }
    *ppm_p = (uint32_t)value;
    return 1;
}

/* "PATH" or "PATH:LAYER"; a path may have colons itself, before one that is no number. */
static mpath_status_t open_file(const char *text, const char *value, mpath_workload_t *workload)
{
    const char *colon = strrchr(value, ':');
    mpath_status_t status;
    char *path, *end;
    long layer = -1;

    if (colon != NULL && colon[1] >= '0' && colon[1] <= '9') {
        errno = 0;
        layer = strtol(colon + 1, &end, 10);
        colon = *end == '\0' && errno == 0 ? colon : NULL;
        layer = colon == NULL ? -1 : layer;
    } else {
        colon = NULL;
    }
    path = colon == NULL ? strdup(value) : strndup(value, (size_t)(colon - value));
    if (path == NULL) {
        mpath_error("workload '%s': no memory for it", text);
        return MPATH_ERR_NO_MEMORY;
    }
    status = mpath_table_load(path, &workload->table);
    free(path);
    if (status == MPATH_OK && layer >= (long)workload->table.rows) {
        char why[80];

        snprintf(why, sizeof(why), "the table has layers 0 to %zu", workload->table.rows - 1);
        mpath_table_release(&workload->table);
        return refuse(text, why);
    }
    workload->layer = layer;
    return status;
}

mpath_status_t mpath_workload_open(const char *text, mpath_workload_t *workload)
{
    size_t kind       = find_kind(text);
    const char *colon = strchr(text, ':');
    char why[96];

    if (kind == NUM_KINDS) {
        return refuse(text, "there are balanced, mild, hot, moving, burst, zipf, lognormal and file:PATH");
    }
    *workload = (mpath_workload_t){
        .kind = (mpath_workload_kind_t)kind, .value_ppm = kinds[kind].value_ppm, .layer = -1};
    if (kind == MPATH_WORKLOAD_FILE) {
        return colon != NULL && colon[1] != '\0' ? open_file(text, colon + 1, workload)
                                                 : refuse(text, "the table's path is missing: file:PATH");
    }
    if (colon == NULL) {
        return MPATH_OK;
    }
    if (kinds[kind].most_ppm == 0) {
        return refuse(text, "this workload takes no value");
    }
    if (!parse_ppm(colon + 1, kinds[kind].most_ppm, &workload->value_ppm)) {
        snprintf(why, sizeof(why), "the value is a number between 0 and %u", kinds[kind].most_ppm / PPM);
        return refuse(text, why);
    }
    return MPATH_OK;
}

void mpath_workload_close(mpath_workload_t *workload)
{
    mpath_table_release(&workload->table);
}

uint32_t mpath_workload_experts(const mpath_workload_t *workload)
{
    return workload->kind == MPATH_WORKLOAD_FILE ? (uint32_t)workload->table.columns : 0;
}

/* --- popularity -------------------------------------------------------------------------------------------------- */

static void shuffle(uint32_t count, uint64_t *state, uint64_t *values)
{
    for (uint32_t i = count; i-- > 1;) { /* of none, too */
        uint64_t other = mpath_random_next(state) % ((uint64_t)i + 1), swap = values[i];

        values[i]     = values[other];
        values[other] = swap;
    }
}

void mpath_popularity_zipf(uint32_t experts, uint32_t s_ppm, uint64_t *state, uint64_t *weights)
{
    for (uint32_t e = 0; e < experts; e++) {
        weights[e] = mpath_exp2_negative((uint64_t)((mpath_u128_t)mpath_log2((uint64_t)e + 1) * s_ppm / PPM));
        weights[e] = weights[e] == 0 ? 1 : weights[e];
    }
    shuffle(experts, state, weights);
}

static void fill_even(uint32_t experts, uint64_t *weights)
{
    for (uint32_t e = 0; e < experts; e++) {
        weights[e] = 1;
    }
}

static void fill_mild(uint32_t experts, uint64_t seed, uint64_t *weights)
{
    uint64_t steps = experts > 1 ? experts - 1 : 1;

    for (uint32_t e = 0; e < experts; e++) {
        weights[e] = 2 * steps - e;
    }
    shuffle(experts, &seed, weights);
}

static void fill_hot(uint32_t experts, uint64_t hot, uint32_t ppm, uint64_t *weights)
{
    for (uint32_t e = 0; e < experts; e++) {
        weights[e] = PPM - ppm;
    }
    weights[hot % experts] += (uint64_t)ppm * experts;
}

static uint64_t square_root(mpath_u128_t x)
{
    uint64_t root = 0;

    for (int bit = 63; bit >= 0; bit--) {
        uint64_t next = root | 1ull << bit;

        if ((mpath_u128_t)next * next <= x) {
            root = next;
        }
    }
    return root;
}

/* A normal number with 20 bits behind the point: Marsaglia's polar method (Marsaglia and Bray, SIAM Review 6(3), 1964). */
static int64_t draw_normal(uint64_t *state)
{
    int64_t u, v, size;
    uint64_t square, root;
    mpath_u128_t factor;

    do {
        uint64_t bits = mpath_random_next(state);

        u      = (int64_t)(bits >> 32) - (1ll << 31); /* -1 to 1 with 31 bits behind the point */
        v      = (int64_t)(bits & 0xffffffffu) - (1ll << 31);
        square = (uint64_t)(u * u) + (uint64_t)(v * v); /* 62 bits behind it */
    } while (square == 0 || square >= 1ull << 62);
    /* u * sqrt(-2 ln(square) / square), with the logarithm to base 2 */
    factor = (mpath_u128_t)LN4_Q20 * (uint64_t)((62ll << 20) - mpath_log2(square));
    root   = square_root((factor << 62) / square);
    size   = (int64_t)(((mpath_u128_t)(uint64_t)(u < 0 ? -u : u) * root) >> 31);
    return u < 0 ? -size : size;
}

/* exp of normal numbers, the largest of which is 2^32. */
static void fill_lognormal(uint32_t experts, uint32_t sigma_ppm, uint64_t seed, uint64_t *weights)
{
    int64_t most = INT64_MIN, *normal = (int64_t *)weights;

    for (uint32_t e = 0; e < experts; e++) {
        normal[e] = draw_normal(&seed);
        most      = normal[e] > most ? normal[e] : most;
    }
    for (uint32_t e = 0; e < experts; e++) {
        mpath_u128_t below = (mpath_u128_t)(uint64_t)(most - normal[e]) * sigma_ppm * LOG2_E_Q20;

        weights[e] = mpath_exp2_negative((uint64_t)((below >> 20) / PPM));
        weights[e] = weights[e] == 0 ? 1 : weights[e];
    }
}

static mpath_status_t fill_table(const mpath_workload_t *workload, uint32_t experts, uint64_t step, uint64_t *weights)
{
    const mpath_table_t *table = &workload->table;
    size_t row                 = workload->layer >= 0 ? (size_t)workload->layer : (size_t)(step % table->rows);

    if (table->columns != experts) {
        mpath_error("workload: the table has loads of %zu experts, and %u are needed; it is not used", table->columns,
                    experts);
        return MPATH_ERR_PARAM;
    }
    memcpy(weights, table->values + row * table->columns, experts * sizeof(*weights));
    return MPATH_OK;
}

mpath_status_t mpath_workload_popularity(const mpath_workload_t *workload, uint32_t experts, uint64_t seed,
                                         uint64_t step, uint64_t *weights)
{
    if (experts < 1 || experts > MAX_EXPERTS) {
        mpath_error("workload: %u experts must be 1 to %u; it is not used", experts, MAX_EXPERTS);
        return MPATH_ERR_PARAM;
    }
    switch (workload->kind) {
    case MPATH_WORKLOAD_MILD:
        fill_mild(experts, seed, weights);
        return MPATH_OK;
    case MPATH_WORKLOAD_HOT:
        fill_hot(experts, seed % experts, workload->value_ppm, weights);
        return MPATH_OK;
    case MPATH_WORKLOAD_MOVING:
        fill_hot(experts, seed % experts + step % experts, workload->value_ppm, weights);
        return MPATH_OK;
    case MPATH_WORKLOAD_BURST:
        fill_hot(experts, seed % experts, step % BURST_STEPS == 0 ? workload->value_ppm : 0, weights);
        return MPATH_OK;
    case MPATH_WORKLOAD_ZIPF:
        mpath_popularity_zipf(experts, workload->value_ppm, &seed, weights);
        return MPATH_OK;
    case MPATH_WORKLOAD_LOGNORMAL:
        fill_lognormal(experts, workload->value_ppm, seed, weights);
        return MPATH_OK;
    case MPATH_WORKLOAD_FILE:
        return fill_table(workload, experts, step, weights);
    default:
        fill_even(experts, weights);
        return MPATH_OK;
    }
}

mpath_status_t mpath_workload_row(const mpath_workload_t *workload, int num_ranks, uint64_t seed, uint64_t step,
                                  uint64_t bytes, uint64_t unit, uint64_t *row)
{
    uint32_t experts  = mpath_workload_experts(workload) > 0 ? mpath_workload_experts(workload) : (uint32_t)num_ranks;
    size_t ranks      = (size_t)num_ranks;
    uint64_t *weights = malloc(experts * sizeof(*weights)), total = 0;
    mpath_status_t status;

    if (weights == NULL) {
        mpath_error("workload: no memory for %u experts", experts);
        return MPATH_ERR_NO_MEMORY;
    }
    status = mpath_workload_popularity(workload, experts, seed, step, weights);
    if (status == MPATH_OK) {
        memset(row, 0, ranks * sizeof(*row));
        for (uint32_t e = 0; e < experts; e++) {
            row[(uint64_t)e * ranks / experts] += weights[e];
            total += weights[e];
        }
        for (size_t rank = 0; rank < ranks; rank++) {
            uint64_t cell = (uint64_t)((mpath_u128_t)bytes * row[rank] / total);

            row[rank] = unit == 0 ? cell : cell / unit * unit;
        }
    }
    free(weights);
    return status;
}

mpath_status_t mpath_workload_demand(const mpath_workload_t *workload, int num_ranks, uint64_t seed, uint64_t step,
                                     uint64_t bytes, uint64_t unit, uint64_t *demand)
{
    size_t ranks          = (size_t)num_ranks;
    mpath_status_t status = mpath_workload_row(workload, num_ranks, seed, step, bytes, unit, demand);

    for (size_t rank = 1; rank < ranks && status == MPATH_OK; rank++) {
        memcpy(demand + rank * ranks, demand, ranks * sizeof(*demand));
    }
    return status;
}
