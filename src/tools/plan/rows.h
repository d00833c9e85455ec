/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A demand by rows: the matrix that plan_input_make() makes, without being made. Most demands have the same row for all
 * sources; the tokens of experts are kept as numbers of copies, 2 bytes for each pair of ranks.
 */
#ifndef MPATH_TOOLS_PLAN_ROWS_H
#define MPATH_TOOLS_PLAN_ROWS_H

#include "tools/plan/input.h"

typedef struct plan_rows plan_rows_t;

/* MPATH_ERR_UNSUPPORTED for a matrix of a file. Errors are logged. */
mpath_status_t plan_rows_open(const plan_input_t *input, int num_ranks, plan_rows_t **rows_p);
void plan_rows_close(plan_rows_t *rows);

/* From now on everybody sends what it received, and the other way round: how the tokens of a layer come back. */
void plan_rows_reverse(plan_rows_t *rows);

/* What `count` ranks from `first` on send to each rank: sends[i * num_ranks + destination]. */
void plan_rows_sends(const plan_rows_t *rows, int first, int count, uint64_t *sends);
/* What they receive from each: receives[i * num_ranks + source]. */
void plan_rows_receives(const plan_rows_t *rows, int first, int count, uint64_t *receives);

#endif
