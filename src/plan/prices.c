/* SPDX-License-Identifier: BSD-3-Clause */
/* Prices: nodes with the same rates are one class, rails that are alike on all nodes one group. */
#include "plan/prices.h"

#include "plan/fixed.h"

#include <stdlib.h>
#include <string.h>

#define UNIT 32768u /* of a factor: 1 */
#define UNIT_BITS 15
#define RATE_BITS 20      /* of a rate, as a part of the largest one */
#define SHARE_BITS 31     /* of a part of a pair's bytes: 1 */
#define USUAL_LEAST 256   /* a usual factor: 1 / 128 */
#define USUAL_ROUNDS 48   /* of these, */
#define USUAL_WORK 100000 /* with so many terms at most */
#define ROUNDS 10         /* of prices, at least; most matrices need none, or one */
#define ROUNDS_NODES 120  /* and by the number of nodes, where few have no average to rely on */
#define SOLVE_ROUNDS 24   /* of a node that looks for its own */
#define ENOUGH_PPM 10000  /* above the bound: prices end, */
#define AIM_PPM 4000      /* and what they aim at */

struct mpath_prices {
    int num_nodes, num_rails, num_groups, num_classes, crosses, round, is_quiet;
    int8_t group_of[MPATH_MAX_NICS];
    uint16_t group_size[MPATH_PRICES_RAILS];
    uint16_t *class_of;                             /* by node */
    uint64_t *rates;                                /* [class * num_groups + group], of one rail */
    uint32_t *scaled;                               /* the same by the largest one */
    uint32_t *own;                                  /* where routes cross: of all NICs of a node, in parts of 2^31 */
    uint16_t *usual;                                /* [class * num_groups + group] */
    uint16_t *now, *best;                           /* [(node * 2 + in) * num_groups + group] */
    uint64_t *class_sum, *class_most, *class_count; /* scratch, by class */
    uint64_t least_ns, slack_ns;
    mpath_prices_terms_t found;
};

/* Two nodes, or two rails, that have the same rates. */
static int nodes_are_alike(int num_rails, const uint64_t *rates_bps, int a, int b)
{
    return memcmp(rates_bps + (size_t)a * (size_t)num_rails, rates_bps + (size_t)b * (size_t)num_rails,
                  (size_t)num_rails * sizeof(*rates_bps)) == 0;
}

/* first[class]: a node of it. */
static int find_classes(int num_nodes, int num_rails, const uint64_t *rates_bps, uint16_t *class_of, int *first)
{
    int count = 0, k;

    for (int node = 0; node < num_nodes; node++) {
        for (k = 0; k < count && !nodes_are_alike(num_rails, rates_bps, first[k], node); k++) {
        }
        if (k == count) {
            first[count++] = node;
        }
        class_of[node] = (uint16_t)k;
    }
    return count;
}

static int rails_are_alike(int num_rails, const uint64_t *rates_bps, const int *first, int num_classes, int a, int b)
{
    for (int k = 0; k < num_classes; k++) {
        const uint64_t *row = rates_bps + (size_t)first[k] * (size_t)num_rails;

        if (row[a] != row[b]) {
            return 0;
        }
    }
    return 1;
}

/* rail_of[group]: a rail of it; 0: there are too many. */
static int find_groups(mpath_prices_t *prices, const uint64_t *rates_bps, const int *first, int num_classes,
                       int *rail_of)
{
    for (int rail = 0; rail < prices->num_rails; rail++) {
        int group = 0;

        while (group < prices->num_groups &&
               !rails_are_alike(prices->num_rails, rates_bps, first, num_classes, rail_of[group], rail)) {
            group++;
        }
        if (group == MPATH_PRICES_RAILS) {
            return 0;
        }
        if (group == prices->num_groups) {
            rail_of[prices->num_groups++] = rail;
        }
        prices->group_of[rail] = (int8_t)group;
        prices->group_size[group]++;
    }
    return 1;
}

/* Weights by group of what a node of one class sends to one of another one; their sum, below 2^31. */
static uint64_t weigh(const mpath_prices_t *prices, int from, int to, const uint16_t *out, const uint16_t *in,
                      uint64_t *weight)
{
    size_t groups     = (size_t)prices->num_groups;
    const uint32_t *a = prices->scaled + (size_t)from * groups, *b = prices->scaled + (size_t)to * groups;
    const uint16_t *ua = prices->usual + (size_t)from * groups, *ub = prices->usual + (size_t)to * groups;
    uint64_t sum = 0;
    int shift    = 0;

    for (size_t g = 0; g < groups; g++) {
        uint64_t base = (uint64_t)(a[g] < b[g] ? a[g] : b[g]) * prices->group_size[g];

        /* 27 bits; where both have the rail, not none: some rail carries what there is */
        base      = base > 0 ? ((base * ua[g] >> UNIT_BITS) * ub[g] >> UNIT_BITS) + 1 : 0;
        weight[g] = base * out[g] * in[g];
        sum += weight[g];
    }
    while (sum >> shift >> SHARE_BITS != 0) {
        shift++;
    }
    sum = 0;
    for (size_t g = 0; g < groups; g++) {
        weight[g] >>= shift;
        sum += weight[g];
    }
    return sum;
}

/* All NICs of a group on a node. */
static uint64_t rate_of(const mpath_prices_t *prices, int class, int group)
{
    return prices->rates[(size_t) class * (size_t)prices->num_groups + (size_t)group] * prices->group_size[group];
}

static uint64_t rate_of_node(const mpath_prices_t *prices, int class)
{
    uint64_t sum = 0;

    for (int g = 0; g < prices->num_groups; g++) {
        sum += rate_of(prices, class, g);
    }
    return sum;
}

/* Weights as parts of 2^31. */
static void share_matched(const mpath_prices_t *prices, int from, int to, const uint16_t *out, const uint16_t *in,
                          uint64_t *part)
{
    uint64_t sum = weigh(prices, from, to, out, in, part), one = sum > 0 ? (UINT64_C(1) << 63) / sum : 0;

    for (int g = 0; g < prices->num_groups; g++) {
        part[g] = part[g] * one >> (63 - SHARE_BITS);
    }
}

/*
 * Two nodes as they would fill their NICs by themselves, in parts of 2^31: what each end has in all on rails that the other one lacks, and how much more than
 * the other one on those that both have.
 */
typedef struct ends {
    const uint32_t *own[2];
    uint64_t alone_sum[2], more_sum[2];
} ends_t;

static uint64_t more_of(const ends_t *ends, int end, int group)
{
    uint32_t here = ends->own[end][group], there = ends->own[!end][group];

    return there > 0 && here > there ? here - there : 0;
}

/* 1: routes cross between them. */
static int find_ends(const mpath_prices_t *prices, int from, int to, ends_t *ends)
{
    size_t groups = (size_t)prices->num_groups;

    if (!prices->crosses) {
        return 0;
    }
    *ends = (ends_t){.own = {prices->own + (size_t)from * groups, prices->own + (size_t)to * groups}};
    for (int g = 0; g < prices->num_groups; g++) {
        for (int end = 0; end < 2; end++) {
            ends->alone_sum[end] += ends->own[!end][g] == 0 ? ends->own[end][g] : 0;
            ends->more_sum[end] += more_of(ends, end, g);
        }
    }
    return ends->alone_sum[0] + ends->alone_sum[1] > 0;
}

/*
 * What a node sends to another one, in parts of 2^31 at one end. What the sender has more of a rail that both have can only go to rails that it lacks, and what
 * the receiver has more come from those that this lacks: either both have place there, or neither.
 */
static void share(const mpath_prices_t *prices, int from, int to, const uint16_t *out, const uint16_t *in, int end,
                  uint64_t *part)
{
    ends_t ends;
    uint64_t crossing, matched;

    if (!find_ends(prices, from, to, &ends)) {
        share_matched(prices, from, to, out, in, part);
        return;
    }
    if (ends.more_sum[0] <= ends.alone_sum[1] + (uint64_t)prices->num_groups) { /* as near as integers are */
        for (int g = 0; g < prices->num_groups; g++) {
            part[g] = ends.own[end][g];
        }
        return;
    }
    crossing = ends.alone_sum[0] + ends.alone_sum[1];
    matched  = crossing < 1u << SHARE_BITS ? (1u << SHARE_BITS) - crossing : 0;
    share_matched(prices, from, to, out, in, part);
    for (int g = 0; g < prices->num_groups; g++) {
        part[g] = part[g] * matched >> SHARE_BITS;
        if (ends.own[!end][g] == 0) {
            part[g] = ends.own[end][g];
        } else if (ends.more_sum[end] > 0) {
            part[g] += ends.alone_sum[!end] * more_of(&ends, end, g) / ends.more_sum[end];
        }
    }
}

/* A NIC of each group: of a node with these bytes per group, the one that takes longest. */
static mpath_ratio_t busiest(const mpath_prices_t *prices, int class, const uint64_t *load)
{
    mpath_ratio_t most = {0, 1};

    for (int g = 0; g < prices->num_groups; g++) {
        uint64_t rate = prices->rates[(size_t) class * (size_t)prices->num_groups + (size_t)g];

        if (load[g] > 0 && rate > 0) {
            most = mpath_ratio_max(most, (mpath_ratio_t){load[g], rate * prices->group_size[g]});
        }
    }
    return most;
}

/* A round of the usual factors: a node of each class sends 2^20 bytes to all others. */
static void usual_round(mpath_prices_t *prices, const uint16_t *ones, uint16_t *next)
{
    size_t groups = (size_t)prices->num_groups;

    for (int class = 0; class < prices->num_classes; class ++) {
        uint64_t load[MPATH_PRICES_RAILS] = {0}, part[MPATH_PRICES_RAILS], total = 0, largest = 1;
        uint64_t all = rate_of_node(prices, class) + 1;

        for (int other = 0; other < prices->num_classes; other++) {
            uint64_t bytes = (prices->class_count[other] - (other == class)) << 20;

            share(prices, class, other, ones, ones, 0, part);
            for (size_t g = 0; g < groups; g++) {
                load[g] += (uint64_t)((mpath_u128_t)bytes * part[g] >> SHARE_BITS);
            }
        }
        for (size_t g = 0; g < groups; g++) {
            total += load[g];
        }
        for (size_t g = 0; g < groups; g++) {
            size_t at     = (size_t) class * groups + g;
            uint64_t mean = (uint64_t)((mpath_u128_t)total * prices->rates[at] * prices->group_size[g] / all);

            /* half of what is needed, since the others do the same */
            load[g] = load[g] > 0 ? (uint64_t)((mpath_u128_t)prices->usual[at] * (mean + load[g]) / (2 * load[g]))
                                  : prices->usual[at];
            largest = load[g] > largest ? load[g] : largest;
        }
        for (size_t g = 0; g < groups; g++) {
            uint64_t factor = load[g] * UNIT / largest;

            next[(size_t) class * groups + g] = (uint16_t)(factor > USUAL_LEAST ? factor : USUAL_LEAST);
        }
    }
}

static void find_usual(mpath_prices_t *prices, uint16_t *next)
{
    size_t classes = (size_t)prices->num_classes, count = classes * (size_t)prices->num_groups;
    uint16_t ones[MPATH_PRICES_RAILS];

    for (int g = 0; g < MPATH_PRICES_RAILS; g++) {
        ones[g] = UNIT;
    }
    for (size_t i = 0; i < count; i++) {
        prices->usual[i] = UNIT;
    }
    for (size_t round = 0; round < USUAL_ROUNDS && round * count * classes <= USUAL_WORK; round++) {
        usual_round(prices, ones, next);
        memcpy(prices->usual, next, count * sizeof(*next));
    }
}

mpath_status_t mpath_prices_create(int num_nodes, int num_rails, const uint64_t *rates_bps, int crosses,
                                   mpath_prices_t **prices_p)
{
    size_t nodes           = (size_t)num_nodes, cells;
    mpath_prices_t *prices = calloc(1, sizeof(*prices));
    int *first             = malloc(nodes * sizeof(*first)), rail_of[MPATH_PRICES_RAILS];
    uint64_t largest       = 1;

    if (prices == NULL || first == NULL) {
        goto err_no_memory;
    }
    prices->num_nodes = num_nodes;
    prices->num_rails = num_rails;
    prices->crosses   = crosses;
    prices->class_of  = malloc(nodes * sizeof(*prices->class_of));
    if (prices->class_of == NULL) {
        goto err_no_memory;
    }
    prices->num_classes = find_classes(num_nodes, num_rails, rates_bps, prices->class_of, first);
    if (!find_groups(prices, rates_bps, first, prices->num_classes, rail_of)) {
        mpath_prices_destroy(prices);
        free(first);
        return MPATH_DECLINED;
    }
    cells             = (size_t)prices->num_classes * (size_t)prices->num_groups;
    prices->rates     = malloc(cells * sizeof(*prices->rates));
    prices->scaled    = malloc(cells * sizeof(*prices->scaled));
    prices->own       = malloc(cells * sizeof(*prices->own));
    prices->usual     = malloc(cells * sizeof(*prices->usual));
    prices->now       = malloc(2 * nodes * (size_t)prices->num_groups * sizeof(*prices->now));
    prices->best      = malloc(2 * nodes * (size_t)prices->num_groups * sizeof(*prices->best));
    prices->class_sum = calloc(3 * (size_t)prices->num_classes, sizeof(*prices->class_sum));
    if (prices->rates == NULL || prices->scaled == NULL || prices->own == NULL || prices->usual == NULL ||
        prices->now == NULL || prices->best == NULL || prices->class_sum == NULL) {
        goto err_no_memory;
    }
    prices->class_most  = prices->class_sum + prices->num_classes;
    prices->class_count = prices->class_most + prices->num_classes;
    for (size_t i = 0; i < cells; i++) {
        size_t groups = (size_t)prices->num_groups;

        prices->rates[i] = rates_bps[(size_t)first[i / groups] * (size_t)num_rails + (size_t)rail_of[i % groups]];
        largest          = prices->rates[i] > largest ? prices->rates[i] : largest;
    }
    for (size_t i = 0; i < cells; i++) {
        prices->scaled[i] = (uint32_t)((((mpath_u128_t)prices->rates[i] << RATE_BITS) + largest - 1) / largest);
    }
    for (size_t i = 0; i < cells; i++) {
        int class = (int)(i / (size_t)prices->num_groups), group = (int)(i % (size_t)prices->num_groups);
        uint64_t all = rate_of_node(prices, class);

        /* what is there has a part */
        prices->own[i] = all > 0
                             ? (uint32_t)((((mpath_u128_t)rate_of(prices, class, group) << SHARE_BITS) + all - 1) / all)
                             : 0;
    }
    for (int node = 0; node < num_nodes; node++) {
        prices->class_count[prices->class_of[node]]++;
    }
    find_usual(prices, prices->best);
    free(first);
    *prices_p = prices;
    return MPATH_OK;

err_no_memory:
    free(first);
    mpath_prices_destroy(prices);
    return MPATH_ERR_NO_MEMORY;
}

void mpath_prices_destroy(mpath_prices_t *prices)
{
    if (prices != NULL) {
        free(prices->class_sum);
        free(prices->best);
        free(prices->now);
        free(prices->usual);
        free(prices->own);
        free(prices->scaled);
        free(prices->rates);
        free(prices->class_of);
        free(prices);
    }
}

static size_t table_bytes(const mpath_prices_t *prices)
{
    return 2 * (size_t)prices->num_nodes * (size_t)prices->num_groups * sizeof(*prices->now);
}

static const uint16_t *price_of(const mpath_prices_t *prices, const uint16_t *table, int node, int in)
{
    return table + ((size_t)node * 2 + (size_t)in) * (size_t)prices->num_groups;
}

void mpath_prices_begin(mpath_prices_t *prices, uint64_t node_bytes, uint64_t slack_bytes)
{
    size_t cells         = (size_t)prices->num_classes * (size_t)prices->num_groups;
    uint64_t fastest_bps = 1, node_bps = 1;

    for (size_t i = 0; i < cells; i++) {
        fastest_bps = prices->rates[i] > fastest_bps ? prices->rates[i] : fastest_bps;
    }
    for (int class = 0; class < prices->num_classes; class ++) {
        uint64_t rate_bps = rate_of_node(prices, class);

        node_bps = rate_bps > node_bps ? rate_bps : node_bps;
    }
    for (size_t i = 0; i < table_bytes(prices) / sizeof(*prices->now); i++) {
        prices->now[i] = UNIT;
    }
    memset(&prices->found, 0, sizeof(prices->found));
    prices->least_ns = mpath_ratio_ns_floor((mpath_ratio_t){node_bytes, node_bps});
    prices->slack_ns = mpath_ratio_ns_floor((mpath_ratio_t){slack_bytes, fastest_bps});
    prices->round    = 0;
    prices->is_quiet = 0;
}

size_t mpath_prices_entry_bytes(const mpath_prices_t *prices)
{
    return sizeof(uint32_t) + 2 * (size_t)prices->num_groups * sizeof(uint16_t);
}

/* Cuts between a node and those of a class that it exchanges bytes with, in one direction. */
static mpath_ratio_t bound_of(const mpath_prices_t *prices, int node, const uint64_t *bytes)
{
    size_t groups = (size_t)prices->num_groups, classes = (size_t)prices->num_classes;
    int mine           = prices->class_of[node];
    const uint64_t *my = prices->rates + (size_t)mine * groups;
    mpath_ratio_t most = {0, rate_of_node(prices, mine) > 0 ? rate_of_node(prices, mine) : 1};
    uint64_t *sum = prices->class_sum, *largest = prices->class_most, *count = prices->class_count;
    ends_t ends;

    memset(sum, 0, 3 * classes * sizeof(*sum));
    for (int other = 0; other < prices->num_nodes; other++) {
        int class = prices->class_of[other];

        if (bytes[other] > 0) {
            most.num += bytes[other];
            sum[class] += bytes[other];
            largest[class] = bytes[other] > largest[class] ? bytes[other] : largest[class];
            count[class]++;
        }
    }
    for (size_t class = 0; class < classes; class ++) {
        const uint64_t *theirs = prices->rates + class * groups;
        uint64_t one = 0, all = 0;

        for (size_t g = 0; g < groups && sum[class] > 0; g++) {
            mpath_u128_t together = (mpath_u128_t)theirs[g] * count[class];

            one += (my[g] < theirs[g] ? my[g] : theirs[g]) * prices->group_size[g];
            all += (together < my[g] ? (uint64_t)together : my[g]) * prices->group_size[g];
        }
        if (one > 0 && !find_ends(prices, mine, (int)class, &ends)) {
            most = mpath_ratio_max(most, (mpath_ratio_t){sum[class], all});
            most = mpath_ratio_max(most, (mpath_ratio_t){largest[class], one});
        }
    }
    return most;
}

/* What a node's groups of NICs have in one direction. */
static void load_of(const mpath_prices_t *prices, int node, int in, const uint64_t *bytes, const uint16_t *price,
                    uint64_t *load)
{
    uint64_t part[MPATH_PRICES_RAILS];
    int mine = prices->class_of[node];

    memset(load, 0, (size_t)prices->num_groups * sizeof(*load));
    for (int other = 0; other < prices->num_nodes; other++) {
        const uint16_t *theirs = price_of(prices, prices->now, other, !in);

        if (bytes[other] == 0) {
            continue;
        }
        share(prices, in ? prices->class_of[other] : mine, in ? mine : prices->class_of[other], in ? theirs : price,
              in ? price : theirs, in, part);
        for (int g = 0; g < prices->num_groups; g++) {
            load[g] += (uint64_t)((mpath_u128_t)bytes[other] * part[g] >> SHARE_BITS);
        }
    }
}

/* Prices with which no NIC of the node takes longer than `aim`, as far as that can be. */
static void solve(const mpath_prices_t *prices, int node, int in, const uint64_t *bytes, uint64_t aim_ns,
                  uint64_t *load, uint16_t *price)
{
    const uint64_t *rates = prices->rates + (size_t)prices->class_of[node] * (size_t)prices->num_groups;

    for (int round = 0; round < SOLVE_ROUNDS; round++) {
        int moved = 0;

        for (int g = 0; g < prices->num_groups; g++) {
            uint64_t capacity = (uint64_t)((mpath_u128_t)rates[g] * prices->group_size[g] * aim_ns / 1000000000u), next;

            next     = load[g] > 0 ? (uint64_t)((mpath_u128_t)price[g] * capacity / load[g]) : UNIT;
            next     = next > UNIT ? UNIT : next > 0 ? next : 1;
            moved    = moved || next + UNIT / 4096 < price[g] || next > price[g] + UNIT / 4096;
            price[g] = (uint16_t)next;
        }
        if (!moved) {
            return;
        }
        load_of(prices, node, in, bytes, price, load);
    }
}

static uint64_t raise(uint64_t ns, uint32_t ppm)
{
    return mpath_ratio_times((mpath_ratio_t){ns, 1000000}, 1000000 + ppm);
}

int mpath_prices_say(const mpath_prices_t *prices, int node, const uint64_t *out_bytes, const uint64_t *in_bytes,
                     mpath_prices_terms_t *terms, mpath_prices_entry_t *entry)
{
    const uint64_t *bytes[2] = {out_bytes, in_bytes};
    uint64_t load[2][MPATH_PRICES_RAILS], aim_ns;
    size_t groups       = (size_t)prices->num_groups;
    mpath_ratio_t bound = {0, 1}, took[2];
    int needs           = 0;

    for (int in = 0; in < 2; in++) {
        bound = mpath_ratio_max(bound, bound_of(prices, node, bytes[in]));
        load_of(prices, node, in, bytes[in], price_of(prices, prices->now, node, in), load[in]);
        took[in] = busiest(prices, prices->class_of[node], load[in]);
    }
    terms->bound_ns = mpath_ratio_ns_floor(bound);
    terms->split_ns = mpath_ratio_ns_ceil(mpath_ratio_max(took[0], took[1]));
    memset(entry, 0, sizeof(*entry));
    entry->node = (uint32_t)node;
    aim_ns      = terms->bound_ns > prices->least_ns ? terms->bound_ns : prices->least_ns;
    aim_ns      = raise(aim_ns, AIM_PPM);
    for (int in = 0; in < 2; in++) {
        uint16_t *price = entry->price + (size_t)in * groups;

        memcpy(price, price_of(prices, prices->now, node, in), groups * sizeof(*price));
        /* the first time in both directions, then in turns, so that each sees what the other has done */
        if (prices->round == 0 ? mpath_ratio_ns_floor(took[in]) > aim_ns : (prices->round & 1) == in) {
            solve(prices, node, in, bytes[in], aim_ns, load[in], price);
            needs = needs || memcmp(price, price_of(prices, prices->now, node, in), groups * sizeof(*price)) != 0;
        }
    }
    return needs;
}

static uint64_t enough(const mpath_prices_t *prices)
{
    uint64_t part_ns = raise(prices->found.bound_ns, ENOUGH_PPM), slack_ns = prices->found.bound_ns + prices->slack_ns;

    return part_ns > slack_ns ? part_ns : slack_ns;
}

int mpath_prices_hear(mpath_prices_t *prices, const mpath_prices_terms_t *most, const void *entries, size_t count)
{
    size_t bytes = mpath_prices_entry_bytes(prices), price_bytes = bytes - sizeof(uint32_t);
    const char *at = entries;

    if (prices->round == 0) {
        prices->found                  = *most;
        prices->found.static_is_enough = most->static_ns <= enough(prices);
        prices->least_ns               = most->bound_ns > prices->least_ns ? most->bound_ns : prices->least_ns;
    }
    if (prices->round == 0 || most->split_ns < prices->found.split_ns) {
        prices->found.split_ns = most->split_ns;
        memcpy(prices->best, prices->now, table_bytes(prices));
    }
    if (prices->found.static_is_enough || prices->found.split_ns <= enough(prices) ||
        prices->round == ROUNDS + ROUNDS_NODES / prices->num_nodes || (count == 0 && prices->is_quiet)) {
        return 0;
    }
    prices->is_quiet = count == 0;
    for (size_t i = 0; i < count; i++, at += bytes) {
        mpath_prices_entry_t entry;

        memcpy(&entry, at, bytes);
        if (entry.node >= (uint32_t)prices->num_nodes) {
            return MPATH_ERR_PARAM;
        }
        for (size_t k = 0; k < price_bytes / sizeof(uint16_t); k++) {
            entry.price[k] = entry.price[k] > UNIT ? UNIT : entry.price[k] > 0 ? entry.price[k] : 1;
        }
        memcpy(prices->now + (size_t)entry.node * 2 * (size_t)prices->num_groups, entry.price, price_bytes);
    }
    prices->round++;
    return 1;
}

const mpath_prices_terms_t *mpath_prices_found(const mpath_prices_t *prices)
{
    return &prices->found;
}

void mpath_prices_split(const mpath_prices_t *prices, int from, int to, int is_receiver, uint64_t *before)
{
    const uint16_t *out = price_of(prices, prices->best, from, 0), *in = price_of(prices, prices->best, to, 1);
    uint64_t weight[MPATH_PRICES_RAILS];

    if (prices->crosses) {
        share(prices, prices->class_of[from], prices->class_of[to], out, in, is_receiver, weight);
    } else {
        (void)weigh(prices, prices->class_of[from], prices->class_of[to], out, in, weight);
    }
    before[0] = 0;
    for (int rail = 0; rail < prices->num_rails; rail++) {
        int group = prices->group_of[rail];

        before[rail + 1] = before[rail] + weight[group] / prices->group_size[group];
    }
}
