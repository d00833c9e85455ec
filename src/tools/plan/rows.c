/* SPDX-License-Identifier: BSD-3-Clause */
/* Rows of a demand. */
#include "tools/plan/rows.h"

#include "plan/workload.h"
#include "util/log.h"

#include <stdlib.h>
#include <string.h>

/* One of three: what all send, but one rank; numbers of copies; or blocks of a matrix that is transposed. */
struct plan_rows {
    int num_ranks, is_reversed;
    uint64_t *row; /* of all but one rank, which sends as much to everybody */
    int other;     /* that rank; -1: none */
    uint64_t other_bytes;
    uint16_t *copies; /* [source * num_ranks + destination] */
    uint64_t copy_bytes;
    uint64_t *blocks; /* by rank: rows of the matrix */
    uint64_t element_bytes;
};

static mpath_status_t rows_no_memory(int num_ranks)
{
    mpath_error("plan: no memory for the rows of %d ranks", num_ranks);
    return MPATH_ERR_NO_MEMORY;
}

/* The copies that each source sends to each rank, with `row` as scratch memory. */
static mpath_status_t rows_draw(plan_rows_t *rows, const mpath_moe_t *moe)
{
    size_t ranks = (size_t)rows->num_ranks;
    mpath_moe_draw_t draw;
    mpath_status_t status;

    if (moe->tokens > UINT16_MAX) {
        mpath_error("plan: %llu tokens of a rank: rows of a demand have 65535 at most",
                    (unsigned long long)moe->tokens);
        return MPATH_ERR_PARAM;
    }
    rows->copies = malloc(ranks * ranks * sizeof(*rows->copies));
    if (rows->copies == NULL) {
        return rows_no_memory(rows->num_ranks);
    }
    rows->copy_bytes = moe->token_bytes;
    status           = mpath_moe_begin(rows->num_ranks, moe, &draw);
    if (status != MPATH_OK) {
        return status;
    }
    for (size_t source = 0; source < ranks && status == MPATH_OK; source++) {
        mpath_moe_row(&draw, rows->row);
        for (size_t destination = 0; destination < ranks; destination++) {
            uint64_t copies = rows->row[destination] / moe->token_bytes;

            /* of a token, as many as it has experts there */
            if (copies > UINT16_MAX) {
                mpath_error("plan: rank %zu has %llu copies for one rank: rows of a demand have 65535 at most", source,
                            (unsigned long long)copies);
                status = MPATH_ERR_PARAM;
                break;
            }
            rows->copies[source * ranks + destination] = (uint16_t)copies;
        }
    }
    mpath_moe_end(&draw);
    return status;
}

static mpath_status_t rows_of_experts(plan_rows_t *rows, const plan_input_t *input, const mpath_workload_t *workload)
{
    mpath_moe_t moe;
    uint64_t *weights;
    mpath_status_t status = plan_input_moe(input, workload, &moe, &weights);

    if (status == MPATH_OK) {
        status = rows_draw(rows, &moe);
    }
    free(weights);
    return status;
}

static mpath_status_t rows_of_workload(plan_rows_t *rows, const plan_input_t *input)
{
    mpath_workload_t workload;
    mpath_status_t status = mpath_workload_open(input->workload, &workload);

    if (status != MPATH_OK) {
        return status;
    }
    status = input->use_moe
                 ? rows_of_experts(rows, input, &workload)
                 : mpath_workload_row(&workload, rows->num_ranks, input->seed, input->step, input->bytes, 1, rows->row);
    mpath_workload_close(&workload);
    return status;
}

static mpath_status_t rows_of_transpose(plan_rows_t *rows, const plan_input_t *input)
{
    rows->blocks = calloc((size_t)rows->num_ranks, sizeof(*rows->blocks));
    if (rows->blocks == NULL) {
        return rows_no_memory(rows->num_ranks);
    }
    for (int rank = 0; rank < rows->num_ranks; rank++) {
        rows->blocks[rank] = mpath_transpose_block(rows->num_ranks, &input->transpose, rank);
    }
    rows->element_bytes = input->transpose.element_bytes;
    return MPATH_OK;
}

static mpath_status_t rows_fill(plan_rows_t *rows, const plan_input_t *input)
{
    if (input->transpose.size > 0) {
        return rows_of_transpose(rows, input);
    }
    if (input->workload != NULL) {
        return rows_of_workload(rows, input);
    }
    if (input->use_moe) {
        return rows_of_experts(rows, input, NULL);
    }
    if (input->zipf) {
        mpath_demand_zipf_row(rows->num_ranks, input->skew_ppm, input->seed, input->bytes, 1, rows->row);
        return MPATH_OK;
    }
    if (input->hot_rank < 0 || input->hot_rank >= rows->num_ranks) {
        mpath_error("plan: hot rank %d must be 0 to %d", input->hot_rank, rows->num_ranks - 1);
        return MPATH_ERR_PARAM;
    }
    mpath_demand_hot_row(rows->num_ranks, input->hot_rank, input->skew_ppm, input->bytes, 1, input->hot_rank,
                         rows->row);
    rows->other       = input->hot_rank;
    rows->other_bytes = rows->row[0];
    if (rows->num_ranks > 1) {
        mpath_demand_hot_row(rows->num_ranks, input->hot_rank, input->skew_ppm, input->bytes, 1,
                             input->hot_rank == 0 ? 1 : 0, rows->row);
    }
    return MPATH_OK;
}

mpath_status_t plan_rows_open(const plan_input_t *input, int num_ranks, plan_rows_t **rows_p)
{
    mpath_status_t status;
    plan_rows_t *rows;

    if (input->matrix_path != NULL) {
        mpath_error("plan: the matrix of a file is not planned by rows");
        return MPATH_ERR_UNSUPPORTED;
    }
    rows = calloc(1, sizeof(*rows));
    if (rows == NULL) {
        return rows_no_memory(num_ranks);
    }
    rows->num_ranks = num_ranks;
    rows->other     = -1;
    rows->row       = calloc((size_t)num_ranks, sizeof(*rows->row));
    status          = rows->row == NULL ? rows_no_memory(num_ranks) : rows_fill(rows, input);
    if (status != MPATH_OK) {
        plan_rows_close(rows);
        return status;
    }
    *rows_p = rows;
    return MPATH_OK;
}

void plan_rows_close(plan_rows_t *rows)
{
    if (rows != NULL) {
        free(rows->row);
        free(rows->copies);
        free(rows->blocks);
        free(rows);
    }
}

void plan_rows_reverse(plan_rows_t *rows)
{
    rows->is_reversed = !rows->is_reversed;
}

/* Of the matrix as it was made. */
static uint64_t rows_cell(const plan_rows_t *rows, int source, int destination)
{
    if (rows->copies != NULL) {
        return rows->copies[(size_t)source * (size_t)rows->num_ranks + (size_t)destination] * rows->copy_bytes;
    }
    if (rows->blocks != NULL) {
        return rows->blocks[source] * rows->blocks[destination] * rows->element_bytes;
    }
    return source == rows->other ? rows->other_bytes : rows->row[destination];
}

static void rows_copy(const plan_rows_t *rows, int first, int count, uint64_t *sends)
{
    size_t ranks = (size_t)rows->num_ranks;

    for (int i = 0; i < count; i++) {
        for (int other = 0; other < rows->num_ranks; other++) {
            sends[(size_t)i * ranks + (size_t)other] = rows_cell(rows, first + i, other);
        }
    }
}

/* The columns of neighbours lie in the same cache lines. */
static void rows_copy_columns(const plan_rows_t *rows, int first, int count, uint64_t *receives)
{
    size_t ranks = (size_t)rows->num_ranks;

    for (int other = 0; other < rows->num_ranks; other++) {
        for (int i = 0; i < count; i++) {
            receives[(size_t)i * ranks + (size_t)other] = rows_cell(rows, other, first + i);
        }
    }
}

void plan_rows_sends(const plan_rows_t *rows, int first, int count, uint64_t *sends)
{
    (rows->is_reversed ? rows_copy_columns : rows_copy)(rows, first, count, sends);
}

void plan_rows_receives(const plan_rows_t *rows, int first, int count, uint64_t *receives)
{
    (rows->is_reversed ? rows_copy : rows_copy_columns)(rows, first, count, receives);
}
