/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Matrices and tables that programs write: who sends how many bytes to whom, and how often each expert is chosen.
 * Errors are logged, with the file's name, line and column.
 *
 * Lines       one row per line, cells separated by blanks, commas or semicolons, '#' starts a comment; a byte order mark
 *             and a line of names over the columns are skipped. nccl-tests, UCC's transfer matrices, spreadsheets.
 * Lists       the same numbers in brackets, [[1, 2], [3, 4]], over any lines: JSON, Python, numpy; the loads of EPLB.
 * Patterns    UCC perftest's pattern files (*.ptini): [collective] sections of alltoallv with counts of a datatype.
 */
#ifndef MPATH_PLAN_MATRIX_H
#define MPATH_PLAN_MATRIX_H

#include "util/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct mpath_matrix_format {
    uint64_t share_bytes; /* what a share of 1 stands for; 0: a matrix of shares is refused */
    const char *scale;    /* every cell times this number, which may have a fraction or a unit; NULL: as it stands */
    uint64_t step;        /* of a file of several matrices this one, modulo their number */
} mpath_matrix_format_t;

/*
 * Reads a square byte matrix. A cell is a number, with a fraction or an exponent where it likes, and perhaps a unit of a
 * power of 1024 ("31.25M", "1GiB"). Without a scale, a matrix that has fractions of bytes and nothing above 1 is one of
 * shares of share_bytes. `format` NULL: all zero. *demand_p is malloc'ed: num_ranks rows of num_ranks bytes.
 */
mpath_status_t mpath_matrix_load(const char *path, const mpath_matrix_format_t *format, int *num_ranks_p,
                                 int *has_shares_p, uint64_t **demand_p);
mpath_status_t mpath_matrix_parse(const char *name, const char *text, size_t length,
                                  const mpath_matrix_format_t *format, int *num_ranks_p, int *has_shares_p,
                                  uint64_t **demand_p);

/* Nonzero: `text` is a number that `scale` may be. */
int mpath_matrix_is_scale(const char *text);

/* A table of loads, rows of numbers: only their ratios within a row have a meaning. No row is all zero. */
typedef struct mpath_table {
    size_t rows, columns;
    uint64_t *values; /* malloc'ed; each below 2^40 */
} mpath_table_t;

mpath_status_t mpath_table_load(const char *path, mpath_table_t *table);
mpath_status_t mpath_table_parse(const char *name, const char *text, size_t length, mpath_table_t *table);
void mpath_table_release(mpath_table_t *table);

#endif
