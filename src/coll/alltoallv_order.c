/* SPDX-License-Identifier: BSD-3-Clause */
/* Order of the copies between GPUs: the demand in units, padded, as a sequence of permutations. */
#include "coll/alltoallv_order.h"

#include "util/log.h"

#include <stdlib.h>
#include <string.h>

#define ORDER_UNITS 256u /* of the busiest port, about: rounding up costs little, and a piece is not too small */

struct mpath_order {
    int num_ranks;
    uint32_t max_pieces; /* of a rank */
    uint32_t *real;      /* [n][n] units of data that are left */
    uint32_t *padding;   /* [n][n] units of nothing, that make all rows and columns equal */
    uint64_t *sent;      /* [n][n] bytes that have their place in a piece */
    uint64_t *rows;      /* [n] masks of the columns in which a permutation may use the row */
    mpath_order_piece_t *pieces;
    uint32_t *counts;
    int32_t *last_senders; /* [n] whose piece a receiver gets last */
    uint32_t *last_pieces; /* [n] that sender's number of pieces up to it */
    uint64_t bound_bytes;
    uint32_t num_steps;
};

mpath_status_t mpath_order_create(int num_ranks, mpath_order_t **order_p)
{
    size_t size          = (size_t)num_ranks;
    mpath_order_t *order = calloc(1, sizeof(*order));

    if (order == NULL) {
        goto err_no_memory;
    }
    order->num_ranks    = num_ranks;
    order->max_pieces   = ORDER_UNITS + 2 * (uint32_t)num_ranks + 2;
    order->real         = calloc(size * size, sizeof(*order->real));
    order->padding      = calloc(size * size, sizeof(*order->padding));
    order->sent         = calloc(size * size, sizeof(*order->sent));
    order->rows         = calloc(size, sizeof(*order->rows));
    order->pieces       = calloc(size * order->max_pieces, sizeof(*order->pieces));
    order->counts       = calloc(size, sizeof(*order->counts));
    order->last_senders = calloc(size, sizeof(*order->last_senders));
    order->last_pieces  = calloc(size, sizeof(*order->last_pieces));
    if ((order->real == NULL) || (order->padding == NULL) || (order->sent == NULL) || (order->rows == NULL) ||
        (order->pieces == NULL) || (order->counts == NULL) || (order->last_senders == NULL) ||
        (order->last_pieces == NULL)) {
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
        free(order->real);
        free(order->padding);
        free(order->sent);
        free(order->rows);
        free(order->pieces);
        free(order->counts);
        free(order->last_senders);
        free(order->last_pieces);
        free(order);
    }
}

const mpath_order_piece_t *mpath_order_pieces(const mpath_order_t *order, int source, uint32_t *count_p)
{
    *count_p = order->counts[source];
    return order->pieces + (size_t)source * order->max_pieces;
}

uint64_t mpath_order_bound_bytes(const mpath_order_t *order)
{
    return order->bound_bytes;
}

uint32_t mpath_order_num_steps(const mpath_order_t *order)
{
    return order->num_steps;
}

uint32_t mpath_order_max_pieces(const mpath_order_t *order)
{
    uint32_t most = 0;

    for (int i = 0; i < order->num_ranks; i++) {
        most = (order->counts[i] > most) ? order->counts[i] : most;
    }
    return most;
}

/* The largest row or column sum; the diagonal does not count. */
static uint64_t find_bound(const uint64_t *demand, int n)
{
    uint64_t bound = 0;

    for (int i = 0; i < n; i++) {
        uint64_t row = 0, column = 0;

        for (int j = 0; j < n; j++) {
            row += (i == j) ? 0 : demand[(size_t)i * (size_t)n + (size_t)j];
            column += (i == j) ? 0 : demand[(size_t)j * (size_t)n + (size_t)i];
        }
        bound = (row > bound) ? row : bound;
        bound = (column > bound) ? column : bound;
    }
    return bound;
}

/* Units of all pairs, rounded up; returns the largest sum of a row or column. */
static uint32_t make_units(mpath_order_t *order, const uint64_t *demand, uint64_t unit_bytes)
{
    int n         = order->num_ranks;
    uint32_t most = 0;

    for (int i = 0; i < n * n; i++) {
        order->real[i]    = (i / n == i % n) ? 0 : (uint32_t)((demand[i] + unit_bytes - 1) / unit_bytes);
        order->padding[i] = 0;
        order->sent[i]    = 0;
    }
    for (int i = 0; i < n; i++) {
        uint32_t row = 0, column = 0;

        for (int j = 0; j < n; j++) {
            row += order->real[i * n + j];
            column += order->real[j * n + i];
        }
        most = (row > most) ? row : most;
        most = (column > most) ? column : most;
    }
    return most;
}

/* Fills up rows and columns to `total` units, corner by corner. */
static void make_padding(mpath_order_t *order, uint32_t total)
{
    uint32_t row_room[MPATH_ORDER_MAX_RANKS], column_room[MPATH_ORDER_MAX_RANKS];
    int n = order->num_ranks, i = 0, j = 0;

    for (int k = 0; k < n; k++) {
        row_room[k] = column_room[k] = total;
        for (int l = 0; l < n; l++) {
            row_room[k] -= order->real[k * n + l];
            column_room[k] -= order->real[l * n + k];
        }
    }
    while ((i < n) && (j < n)) {
        uint32_t room = (row_room[i] < column_room[j]) ? row_room[i] : column_room[j];

        order->padding[i * n + j] += room;
        row_room[i] -= room;
        column_room[j] -= room;
        if (row_room[i] == 0) {
            i++;
        } else {
            j++;
        }
    }
}

/* One augmenting path of Kuhn's algorithm. */
static int augment(const mpath_order_t *order, int row, uint64_t *seen, int *row_of)
{
    uint64_t columns;

    while ((columns = order->rows[row] & ~*seen) != 0) {
        int column = __builtin_ctzll(columns);

        *seen |= 1ull << column;
        if ((row_of[column] < 0) || augment(order, row_of[column], seen, row_of)) {
            row_of[column] = row;
            return 1;
        }
    }
    return 0;
}

/* A permutation that only uses cells of `least` units or more: columns' rows in row_of. Nonzero when there is one. */
static int find_permutation(mpath_order_t *order, uint32_t least, int *row_of)
{
    int n = order->num_ranks;

    for (int i = 0; i < n; i++) {
        order->rows[i] = 0;
        row_of[i]      = -1;
        for (int j = 0; j < n; j++) {
            if (order->real[i * n + j] + order->padding[i * n + j] >= least) {
                order->rows[i] |= 1ull << j;
            }
        }
    }
    for (int i = 0; i < n; i++) {
        uint64_t seen = 0;

        if (!augment(order, i, &seen, row_of)) {
            return 0;
        }
    }
    return 1;
}

/* The next piece of a pair, or more of the piece that the sender is at. */
static void add_piece(mpath_order_t *order, int source, int destination, uint64_t bytes)
{
    mpath_order_piece_t *pieces = order->pieces + (size_t)source * order->max_pieces;
    uint32_t count              = order->counts[source];
    uint64_t *sent              = &order->sent[source * order->num_ranks + destination];
    mpath_order_piece_t *piece;

    if ((count > 0) && (pieces[count - 1].destination == destination) && (order->last_senders[destination] == source)) {
        pieces[count - 1].bytes += bytes;
    } else {
        piece                            = &pieces[count];
        piece->destination               = destination;
        piece->step                      = order->num_steps;
        piece->offset                    = *sent;
        piece->bytes                     = bytes;
        piece->after_rank                = order->last_senders[destination];
        piece->after_pieces              = order->last_pieces[destination];
        order->last_senders[destination] = source;
        order->last_pieces[destination]  = ++order->counts[source];
    }
    *sent += bytes;
}

/* Takes `units` off every cell of the permutation, data before padding. */
static void take_step(mpath_order_t *order, const uint64_t *demand, const int *row_of, uint32_t units,
                      uint64_t unit_bytes)
{
    int n = order->num_ranks;

    for (int column = 0; column < n; column++) {
        int cell      = row_of[column] * n + column;
        uint32_t real = (order->real[cell] < units) ? order->real[cell] : units;
        uint64_t left = demand[cell] - order->sent[cell], bytes = real * unit_bytes;

        order->real[cell] -= real;
        order->padding[cell] -= units - real;
        if (real > 0) {
            add_piece(order, row_of[column], column, (bytes < left) ? bytes : left);
        }
    }
    order->num_steps++;
}

/* The largest power of two for which there is a permutation, then as many units as all of its cells have. */
static uint32_t find_step(mpath_order_t *order, uint32_t total, uint32_t *least_p, int *row_of)
{
    int n          = order->num_ranks;
    uint32_t units = total;

    while (!find_permutation(order, *least_p, row_of)) {
        *least_p /= 2; /* with 1 there always is one: rows and columns are equal */
    }
    for (int column = 0; column < n; column++) {
        int cell      = row_of[column] * n + column;
        uint32_t have = order->real[cell] + order->padding[cell];

        units = (have < units) ? have : units;
    }
    return units;
}

void mpath_order_compute(mpath_order_t *order, const uint64_t *demand, uint64_t least_bytes)
{
    int n = order->num_ranks, row_of[MPATH_ORDER_MAX_RANKS];
    uint64_t unit_bytes;
    uint32_t total, least = 1;

    order->bound_bytes = find_bound(demand, n);
    order->num_steps   = 0;
    memset(order->counts, 0, (size_t)n * sizeof(*order->counts));
    for (int i = 0; i < n; i++) {
        order->last_senders[i] = -1;
        order->last_pieces[i]  = 0;
    }
    unit_bytes = (order->bound_bytes + ORDER_UNITS - 1) / ORDER_UNITS;
    unit_bytes = (unit_bytes > least_bytes) ? unit_bytes : least_bytes;
    unit_bytes = (unit_bytes > 0) ? (unit_bytes + 255) & ~255ull : 256; /* pieces begin where engines like it */
    total      = make_units(order, demand, unit_bytes);
    make_padding(order, total);
    while (2 * least <= total) {
        least *= 2;
    }
    while (total > 0) {
        uint32_t units = find_step(order, total, &least, row_of);

        take_step(order, demand, row_of, units, unit_bytes);
        total -= units;
    }
}
