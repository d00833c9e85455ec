/* SPDX-License-Identifier: BSD-3-Clause */
/* Order of the copies between GPUs: list schedules on a fluid model, of which the shortest is kept. */
#include "coll/alltoallv_order.h"

#include "util/log.h"

#include <stdlib.h>
#include <string.h>

/* Pieces that end within so much of each other end together: what follows them is chosen at one time. */
#define TOGETHER_NS 1000u

/* A receiver is hot if it has so many percent of what the hottest one has to come. */
#define HOT_PERCENT 90u

/* From so many ranks on only the first rule is tried. */
#define FEW_RANKS 16

/* How many may be at a receiver before others are preferred. */
typedef struct order_rule {
    int senders;
    int hot_only; /* at the hot ones; at all others one */
} order_rule_t;

/* The first one is kept unless another is shorter by a 128th: a port with several senders is never idle between two. */
static const order_rule_t rules[] = {{3, 1}, {2, 0}, {1, 0}};

typedef struct order_list {
    mpath_order_piece_t *pieces; /* [n][n] */
    uint32_t *counts;            /* [n] */
    uint64_t time_ns;
} order_list_t;

typedef struct order_sender {
    uint64_t todo;     /* mask of destinations */
    uint64_t rest_ns;  /* of what it has not begun, alone on a port */
    uint64_t left_ns;  /* of the piece that it is at */
    uint64_t begin_ns; /* when that moves its first bytes */
    int destination;   /* of that piece; -1: it is free */
} order_sender_t;

typedef struct order_receiver {
    uint64_t rest_ns; /* to come */
    int senders;      /* at it */
    int active;       /* of them, that move bytes */
} order_receiver_t;

struct mpath_order {
    int num_ranks;
    uint64_t *alone_ns; /* [n][n] */
    order_sender_t *senders;
    order_receiver_t *receivers;
    uint64_t piece_ns, bound_ns;
    order_list_t lists[2];
    int best; /* of the lists */
};

static int list_create(order_list_t *list, size_t size)
{
    list->pieces = calloc(size * size, sizeof(*list->pieces));
    list->counts = calloc(size, sizeof(*list->counts));
    return (list->pieces != NULL) && (list->counts != NULL);
}

mpath_status_t mpath_order_create(int num_ranks, mpath_order_t **order_p)
{
    size_t size          = (size_t)num_ranks;
    mpath_order_t *order = calloc(1, sizeof(*order));

    if (order == NULL) {
        goto err_no_memory;
    }
    order->num_ranks = num_ranks;
    order->alone_ns  = calloc(size * size, sizeof(*order->alone_ns));
    order->senders   = calloc(size, sizeof(*order->senders));
    order->receivers = calloc(size, sizeof(*order->receivers));
    if ((order->alone_ns == NULL) || (order->senders == NULL) || (order->receivers == NULL) ||
        !list_create(&order->lists[0], size) || !list_create(&order->lists[1], size)) {
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
            free(order->lists[i].pieces);
            free(order->lists[i].counts);
        }
        free(order->alone_ns);
        free(order->senders);
        free(order->receivers);
        free(order);
    }
}

const mpath_order_piece_t *mpath_order_pieces(const mpath_order_t *order, int source, uint32_t *count_p)
{
    const order_list_t *list = &order->lists[order->best];

    *count_p = list->counts[source];
    return list->pieces + (size_t)source * (size_t)order->num_ranks;
}

uint64_t mpath_order_time_ns(const mpath_order_t *order)
{
    return order->lists[order->best].time_ns;
}

uint64_t mpath_order_bound_ns(const mpath_order_t *order)
{
    return order->bound_ns;
}

/* Everybody at the start: nothing is under way. */
static void reset(mpath_order_t *order, const uint64_t *demand, order_list_t *list)
{
    int n = order->num_ranks;

    memset(order->senders, 0, (size_t)n * sizeof(*order->senders));
    memset(order->receivers, 0, (size_t)n * sizeof(*order->receivers));
    memset(list->counts, 0, (size_t)n * sizeof(*list->counts));
    for (int i = 0; i < n; i++) {
        order->senders[i].destination = -1;
        for (int j = 0; j < n; j++) {
            if ((i != j) && (demand[i * n + j] > 0)) {
                order->senders[i].todo |= 1ull << j;
                order->senders[i].rest_ns += order->alone_ns[i * n + j];
                order->receivers[j].rest_ns += order->alone_ns[i * n + j];
            }
        }
    }
}

/* How many may be at the receiver before others are preferred. */
static int room_at(const order_receiver_t *receiver, const order_rule_t *rule, uint64_t hottest_ns)
{
    return (rule->hot_only && (receiver->rest_ns < hottest_ns / 100 * HOT_PERCENT)) ? 1 : rule->senders;
}

/* Whether a sender that is free had better take `a` than `b`. */
static int is_better(const order_receiver_t *a, const order_receiver_t *b, const order_rule_t *rule,
                     uint64_t hottest_ns)
{
    int room_a = a->senders < room_at(a, rule, hottest_ns), room_b = b->senders < room_at(b, rule, hottest_ns);

    if (room_a != room_b) {
        return room_a;
    }
    if (!room_a && (a->senders != b->senders)) {
        return a->senders < b->senders;
    }
    return (a->rest_ns != b->rest_ns) ? (a->rest_ns > b->rest_ns) : (a->senders < b->senders);
}

/* The next piece of a free sender; of equals the next rank after it. */
static void begin_piece(mpath_order_t *order, const uint64_t *demand, int i, const order_rule_t *rule,
                        uint64_t hottest_ns, order_list_t *list)
{
    order_sender_t *sender = &order->senders[i];
    int n = order->num_ranks, best = -1;

    for (int k = 1; k < n; k++) {
        int j = (i + k) % n;

        if (((sender->todo >> j) & 1) &&
            ((best < 0) || is_better(&order->receivers[j], &order->receivers[best], rule, hottest_ns))) {
            best = j;
        }
    }
    list->pieces[i * n + (int)list->counts[i]++] = (mpath_order_piece_t){.destination = best,
                                                                         .bytes       = demand[i * n + best]};
    sender->destination                          = best;
    sender->todo &= ~(1ull << best);
    sender->left_ns = order->alone_ns[i * n + best];
    sender->rest_ns -= sender->left_ns;
    sender->begin_ns = list->time_ns + order->piece_ns;
    order->receivers[best].senders++;
}

/* All that are free begin: who has most to send first. */
static void begin_pieces(mpath_order_t *order, const uint64_t *demand, const order_rule_t *rule, order_list_t *list)
{
    uint64_t hottest_ns = 0;
    int n               = order->num_ranks, next;

    for (int j = 0; j < n; j++) {
        hottest_ns = (order->receivers[j].rest_ns > hottest_ns) ? order->receivers[j].rest_ns : hottest_ns;
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
            begin_piece(order, demand, next, rule, hottest_ns, list);
        }
    } while (next >= 0);
}

/* Until the next piece moves its first bytes or its last one; 0 and no sender at work: all is done. */
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
        receiver->rest_ns -= moved_ns;
    }
}

static void run_list(mpath_order_t *order, const uint64_t *demand, const order_rule_t *rule, order_list_t *list)
{
    int working = 1;

    list->time_ns = 0;
    reset(order, demand, list);
    while (working) {
        uint64_t step_ns;

        begin_pieces(order, demand, rule, list);
        step_ns = find_step(order, list->time_ns, &working);
        go_on(order, list->time_ns, step_ns);
        list->time_ns += step_ns;
    }
}

/* Alone on a port; the diagonal is nothing. */
static void set_times(mpath_order_t *order, const uint64_t *demand, const mpath_order_rates_t *rates)
{
    uint64_t bytes_per_us = rates->port_bps / 1000000 + 1;
    int n                 = order->num_ranks;

    order->piece_ns = rates->piece_ns;
    order->bound_ns = 0;
    for (int i = 0; i < n; i++) {
        uint64_t row_ns = 0, column_ns = 0;

        for (int j = 0; j < n; j++) {
            uint64_t out = (i == j) ? 0 : demand[i * n + j], in = (i == j) ? 0 : demand[j * n + i];

            order->alone_ns[i * n + j] = out / bytes_per_us * 1000 + out % bytes_per_us * 1000 / bytes_per_us;
            row_ns += order->alone_ns[i * n + j];
            column_ns += in / bytes_per_us * 1000 + in % bytes_per_us * 1000 / bytes_per_us;
        }
        order->bound_ns = (row_ns > order->bound_ns) ? row_ns : order->bound_ns;
        order->bound_ns = (column_ns > order->bound_ns) ? column_ns : order->bound_ns;
    }
}

void mpath_order_compute(mpath_order_t *order, const uint64_t *demand, const mpath_order_rates_t *rates)
{
    int num_rules = (order->num_ranks <= FEW_RANKS) ? (int)(sizeof(rules) / sizeof(rules[0])) : 1;

    set_times(order, demand, rates);
    order->best = 0;
    for (int i = 0; i < num_rules; i++) {
        int other = (i == 0) ? 0 : 1 - order->best;

        run_list(order, demand, &rules[i], &order->lists[other]);
        if (order->lists[other].time_ns + order->lists[other].time_ns / 128 < mpath_order_time_ns(order)) {
            order->best = other;
        }
    }
}
