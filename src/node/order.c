/* SPDX-License-Identifier: BSD-3-Clause */
/* Order of the copies between GPUs: list schedules on a fluid model, of which the shortest is kept. */
#include "node/order.h"

#include "util/log.h"

#include <stdlib.h>
#include <string.h>

/* Fragments that end within so much of each other end together: what follows them is chosen at one time. */
#define TOGETHER_NS 1000u

/* A receiver is hot if it has so many percent of what the hottest one has to come. */
#define HOT_PERCENT 90u

/* A time within such a part of the bound is near enough, or what is gained no more than what the next try costs. */
#define NEAR_PART 64
#define TRY_NS UINT64_C(200) /* times the pairs */

/* From so many ranks on only the first rule is tried. */
#define FEW_RANKS 16

/* Messages may be cut into parts of the time that the busiest port takes; not smaller than this. */
#define MAX_PARTS 16
#define PART_MIN_BYTES (UINT64_C(4) << 20)

typedef struct order_rule {
    int senders;  /* may be at a receiver before others are preferred */
    int hot_only; /* at the hot ones; at all others one */
    int yields;   /* where all have as many: to the one whose senders have least to do, not most to come */
    int parts;    /* that messages are cut into; 0: not at all */
} order_rule_t;

/*
 * One after the other until a time is near the bound. An earlier one is kept unless a later one is shorter by a 128th: a
 * port with several senders is never idle between two, and fragments cost something. Hot receivers want the first rules,
 * irregular matrices the last ones.
 */
static const order_rule_t rules[] = {{3, 1, 0, 0}, {1, 0, 0, 0}, {1, 0, 1, 0},
                                     {1, 0, 0, 8}, {1, 0, 1, 8}, {1, 0, 1, MAX_PARTS}};

typedef struct order_list {
    mpath_order_fragment_t *fragments; /* [n][n + 2 * MAX_PARTS] */
    uint32_t *counts;                  /* [n] */
    uint64_t time_ns;
} order_list_t;

typedef struct order_sender {
    uint64_t todo;     /* mask of destinations to which not all is under way */
    uint64_t rest_ns;  /* of what it has not begun, alone on a port */
    uint64_t left_ns;  /* of the fragment that it is at */
    uint64_t begin_ns; /* when that moves its first bytes */
    int destination;   /* of that fragment; -1: it is free */
} order_sender_t;

typedef struct order_receiver {
    uint64_t rest_ns;    /* to come */
    uint64_t busiest_ns; /* what the busiest of those at it still has to do */
    int senders;         /* at it */
    int active;          /* of them, that move bytes */
} order_receiver_t;

struct mpath_order {
    int num_ranks;
    uint32_t max_fragments; /* of a rank */
    uint64_t *begun;        /* [n][n] bytes in fragments so far */
    uint64_t bytes_per_us;  /* of a port */
    order_sender_t *senders;
    order_receiver_t *receivers;
    uint64_t fragment_ns, bound_ns, bound_bytes;
    order_list_t lists[2];
    int best; /* of the lists */
};

static int list_create(order_list_t *list, size_t size, uint32_t max_fragments)
{
    list->fragments = calloc(size * max_fragments, sizeof(*list->fragments));
    list->counts    = calloc(size, sizeof(*list->counts));
    return (list->fragments != NULL) && (list->counts != NULL);
}

mpath_status_t mpath_order_create(int num_ranks, mpath_order_t **order_p)
{
    size_t size          = (size_t)num_ranks;
    mpath_order_t *order = calloc(1, sizeof(*order));

    if (order == NULL) {
        goto err_no_memory;
    }
    order->num_ranks     = num_ranks;
    order->max_fragments = (uint32_t)num_ranks + 2 * MAX_PARTS;
    order->begun         = calloc(size * size, sizeof(*order->begun));
    order->senders       = calloc(size, sizeof(*order->senders));
    order->receivers     = calloc(size, sizeof(*order->receivers));
    if ((order->begun == NULL) || (order->senders == NULL) || (order->receivers == NULL) ||
        !list_create(&order->lists[0], size, order->max_fragments) ||
        !list_create(&order->lists[1], size, order->max_fragments)) {
        mpath_order_destroy(order);
        goto err_no_memory;
    }
    *order_p = order;
    return MPATH_OK;

err_no_memory:
    mpath_error("no memory for the order of copies between %d GPUs; device buffers go through the host", num_ranks);
    return MPATH_ERR_NO_MEMORY;
}

void mpath_order_destroy(mpath_order_t *order)
{
    if (order != NULL) {
        for (int i = 0; i < 2; i++) {
            free(order->lists[i].fragments);
            free(order->lists[i].counts);
        }
        free(order->begun);
        free(order->senders);
        free(order->receivers);
        free(order);
    }
}

const mpath_order_fragment_t *mpath_order_fragments(const mpath_order_t *order, int source, uint32_t *count_p)
{
    const order_list_t *list = &order->lists[order->best];

    *count_p = list->counts[source];
    return list->fragments + (size_t)source * order->max_fragments;
}

uint32_t mpath_order_max_fragments(const mpath_order_t *order)
{
    return order->max_fragments;
}

uint64_t mpath_order_time_ns(const mpath_order_t *order)
{
    return order->lists[order->best].time_ns;
}

uint64_t mpath_order_bound_ns(const mpath_order_t *order)
{
    return order->bound_ns;
}

/* Alone on a port. */
static uint64_t time_of(const mpath_order_t *order, uint64_t bytes)
{
    return bytes / order->bytes_per_us * 1000 + bytes % order->bytes_per_us * 1000 / order->bytes_per_us;
}

/* Everybody at the start: nothing is under way. */
static void reset(mpath_order_t *order, const uint64_t *demand, order_list_t *list)
{
    int n = order->num_ranks;

    memset(order->begun, 0, (size_t)n * (size_t)n * sizeof(*order->begun));
    memset(order->senders, 0, (size_t)n * sizeof(*order->senders));
    memset(order->receivers, 0, (size_t)n * sizeof(*order->receivers));
    memset(list->counts, 0, (size_t)n * sizeof(*list->counts));
    for (int i = 0; i < n; i++) {
        order->senders[i].destination = -1;
        for (int j = 0; j < n; j++) {
            if ((i != j) && (demand[i * n + j] > 0)) {
                uint64_t alone_ns = time_of(order, demand[i * n + j]);

                order->senders[i].todo |= 1ull << j;
                order->senders[i].rest_ns += alone_ns;
                order->receivers[j].rest_ns += alone_ns;
            }
        }
    }
}

/* How many may be at the receiver before others are preferred. */
static int senders_allowed(const order_receiver_t *receiver, const order_rule_t *rule, uint64_t hottest_ns)
{
    return (rule->hot_only && (receiver->rest_ns < hottest_ns / 100 * HOT_PERCENT)) ? 1 : rule->senders;
}

/* Whether a sender that is free had better take receiver `j` than `k`. */
static int is_better(const mpath_order_t *order, int j, int k, const order_rule_t *rule, uint64_t hottest_ns)
{
    const order_receiver_t *a = &order->receivers[j], *b = &order->receivers[k];
    int takes_a = a->senders < senders_allowed(a, rule, hottest_ns),
        takes_b = b->senders < senders_allowed(b, rule, hottest_ns);

    if (takes_a != takes_b) {
        return takes_a;
    }
    if (!takes_a && rule->yields && (a->busiest_ns != b->busiest_ns)) {
        return a->busiest_ns < b->busiest_ns;
    }
    if (!takes_a && (a->senders != b->senders)) {
        return a->senders < b->senders;
    }
    return (a->rest_ns != b->rest_ns) ? (a->rest_ns > b->rest_ns) : (a->senders < b->senders);
}

/* What a fragment takes of what is left of a message; a rest of less than half a part goes with the last one. */
static uint64_t cut(const mpath_order_t *order, const order_rule_t *rule, uint64_t left)
{
    uint64_t part;

    if (rule->parts == 0) {
        return left;
    }
    part = order->bound_bytes / (uint64_t)rule->parts & ~UINT64_C(0xffff);
    part = (part > PART_MIN_BYTES) ? part : PART_MIN_BYTES;
    return (left > part + part / 2) ? part : left;
}

static void note_sender(order_receiver_t *receiver, const order_sender_t *sender)
{
    uint64_t work_ns = sender->rest_ns + sender->left_ns;

    receiver->busiest_ns = (work_ns > receiver->busiest_ns) ? work_ns : receiver->busiest_ns;
}

/* The next fragment of a free sender, or more of the one before; of equal receivers the next rank after it. */
static void begin_fragment(mpath_order_t *order, const uint64_t *demand, int i, const order_rule_t *rule,
                           uint64_t hottest_ns, order_list_t *list)
{
    mpath_order_fragment_t *fragments = list->fragments + (size_t)i * order->max_fragments;
    order_sender_t *sender            = &order->senders[i];
    int n = order->num_ranks, best = -1;
    uint64_t *begun, bytes;

    for (int k = 1; k < n; k++) {
        int j = (i + k) % n;

        if (((sender->todo >> j) & 1) && ((best < 0) || is_better(order, j, best, rule, hottest_ns))) {
            best = j;
        }
    }
    begun            = &order->begun[i * n + best];
    bytes            = cut(order, rule, demand[i * n + best] - *begun);
    sender->begin_ns = list->time_ns;
    if ((list->counts[i] > 0) && (fragments[list->counts[i] - 1].destination == best)) {
        fragments[list->counts[i] - 1].bytes += bytes;
    } else {
        fragments[list->counts[i]++] = (mpath_order_fragment_t){.destination = best, .offset = *begun, .bytes = bytes};
        sender->begin_ns += order->fragment_ns;
    }
    *begun += bytes;
    sender->todo &= (*begun == demand[i * n + best]) ? ~(1ull << best) : UINT64_MAX;
    sender->destination = best;
    sender->left_ns     = time_of(order, bytes);
    sender->rest_ns -= (sender->left_ns < sender->rest_ns) ? sender->left_ns : sender->rest_ns;
    note_sender(&order->receivers[best], sender);
    order->receivers[best].senders++;
}

/* All that are free begin: who has most to send first. */
static void begin_fragments(mpath_order_t *order, const uint64_t *demand, const order_rule_t *rule, order_list_t *list)
{
    uint64_t hottest_ns = 0;
    int n               = order->num_ranks, next;

    for (int j = 0; j < n; j++) {
        hottest_ns = (order->receivers[j].rest_ns > hottest_ns) ? order->receivers[j].rest_ns : hottest_ns;
        order->receivers[j].busiest_ns = 0;
    }
    for (int i = 0; i < n; i++) {
        if (order->senders[i].destination >= 0) {
            note_sender(&order->receivers[order->senders[i].destination], &order->senders[i]);
        }
    }
    do {
        next = -1;
        for (int i = 0; i < n; i++) {
            const order_sender_t *sender = &order->senders[i];

            if ((sender->destination < 0) && (sender->todo != 0) &&
                ((next < 0) || (sender->rest_ns > order->senders[next].rest_ns))) {
                next = i;
            }
        }
        if (next >= 0) {
            begin_fragment(order, demand, next, rule, hottest_ns, list);
        }
    } while (next >= 0);
}

/* Until the next fragment moves its first bytes or its last one; 0 and no sender at work: all is done. */
static uint64_t find_step(mpath_order_t *order, uint64_t now_ns, int *working_p)
{
    uint64_t step_ns = UINT64_MAX;

    *working_p = 0;
    for (int j = 0; j < order->num_ranks; j++) {
        order->receivers[j].active = 0;
    }
    for (int i = 0; i < order->num_ranks; i++) {
        const order_sender_t *sender = &order->senders[i];

        if ((sender->destination >= 0) && (sender->begin_ns <= now_ns)) {
            order->receivers[sender->destination].active++;
        }
    }
    for (int i = 0; i < order->num_ranks; i++) {
        const order_sender_t *sender = &order->senders[i];

        if (sender->destination >= 0) {
            uint64_t until_ns = (sender->begin_ns > now_ns)
                                    ? sender->begin_ns - now_ns
                                    : sender->left_ns * (uint64_t)order->receivers[sender->destination].active;

            step_ns    = (until_ns < step_ns) ? until_ns : step_ns;
            *working_p = 1;
        }
    }
    return *working_p ? step_ns : 0;
}

/* Time goes on: who moves bytes has its part of the receiver's port, and is free once all are there. */
static void go_on(mpath_order_t *order, uint64_t now_ns, uint64_t step_ns)
{
    for (int i = 0; i < order->num_ranks; i++) {
        order_sender_t *sender = &order->senders[i];
        order_receiver_t *receiver;
        uint64_t moved_ns;

        if ((sender->destination < 0) || (sender->begin_ns > now_ns)) {
            continue;
        }
        receiver = &order->receivers[sender->destination];
        moved_ns = step_ns / (uint64_t)receiver->active;
        if (sender->left_ns <= moved_ns + TOGETHER_NS) {
            moved_ns            = sender->left_ns;
            sender->destination = -1;
            receiver->senders--;
        }
        sender->left_ns -= moved_ns;
        receiver->rest_ns -= (moved_ns < receiver->rest_ns) ? moved_ns : receiver->rest_ns;
    }
}

static void run_list(mpath_order_t *order, const uint64_t *demand, const order_rule_t *rule, order_list_t *list)
{
    int working = 1;

    list->time_ns = 0;
    reset(order, demand, list);
    while (working) {
        uint64_t step_ns;

        begin_fragments(order, demand, rule, list);
        step_ns = find_step(order, list->time_ns, &working);
        go_on(order, list->time_ns, step_ns);
        list->time_ns += step_ns;
    }
}

/*
 * What the busiest port has to carry, the diagonal is nothing; and how long that takes at least: a sender pauses before
 * each of its messages, a receiver before the first one only.
 */
static void set_bound(mpath_order_t *order, const uint64_t *demand)
{
    int n = order->num_ranks;

    order->bound_bytes = order->bound_ns = 0;
    for (int i = 0; i < n; i++) {
        uint64_t out = 0, in = 0, messages = 0, most_ns;

        for (int j = 0; j < n; j++) {
            out += (i == j) ? 0 : demand[i * n + j];
            in += (i == j) ? 0 : demand[j * n + i];
            messages += (i != j) && (demand[i * n + j] > 0);
        }
        order->bound_bytes = (out > order->bound_bytes) ? out : order->bound_bytes;
        order->bound_bytes = (in > order->bound_bytes) ? in : order->bound_bytes;
        most_ns            = time_of(order, out) + messages * order->fragment_ns;
        order->bound_ns    = (most_ns > order->bound_ns) ? most_ns : order->bound_ns;
        most_ns            = (in > 0) ? time_of(order, in) + order->fragment_ns : 0;
        order->bound_ns    = (most_ns > order->bound_ns) ? most_ns : order->bound_ns;
    }
}

void mpath_order_compute(mpath_order_t *order, const uint64_t *demand, const mpath_order_rates_t *rates)
{
    int num_rules   = (order->num_ranks <= FEW_RANKS) ? (int)(sizeof(rules) / sizeof(rules[0])) : 1;
    uint64_t try_ns = TRY_NS * (uint64_t)order->num_ranks * (uint64_t)order->num_ranks;

    order->bytes_per_us = rates->port_bps / 1000000 + 1;
    order->fragment_ns  = rates->fragment_ns;
    order->best         = 0;
    set_bound(order, demand);
    for (int i = 0; i < num_rules; i++) {
        int other = (i == 0) ? 0 : 1 - order->best;

        if ((rules[i].parts > 0) && (order->bound_bytes < 2 * PART_MIN_BYTES)) {
            break;
        }
        run_list(order, demand, &rules[i], &order->lists[other]);
        if (order->lists[other].time_ns + order->lists[other].time_ns / 128 < mpath_order_time_ns(order)) {
            order->best = other;
        }
        if (mpath_order_time_ns(order) <= order->bound_ns + order->bound_ns / NEAR_PART + try_ns) {
            break;
        }
    }
}
