/* SPDX-License-Identifier: BSD-3-Clause */
/* Demand matrices: the hot-spot and Zipf generators, and the reader of byte-matrix files. */
#include "plan/demand.h"

#include "plan/fixed.h"
#include "util/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PPM 1000000u
#define MAX_FILE_BYTES ((size_t)1 << 30)
#define MAX_RANKS 65536

static uint64_t whole_units(mpath_u128_t bytes, uint64_t unit)
{
    return unit == 0 ? (uint64_t)bytes : (uint64_t)bytes / unit * unit;
}

void mpath_demand_hot(int num_ranks, int hot, uint32_t hot_ppm, uint64_t bytes, uint64_t unit, uint64_t *demand)
{
    uint32_t ppm      = hot_ppm > PPM ? PPM : hot_ppm;
    mpath_u128_t even = (mpath_u128_t)bytes * (PPM - ppm);
    int source, destination;

    for (source = 0; source < num_ranks; source++) {
        for (destination = 0; destination < num_ranks; destination++, demand++) {
            if (source == hot) {
                *demand = whole_units(bytes / (uint64_t)num_ranks, unit);
            } else if (destination == hot) {
                *demand = whole_units((even / (uint64_t)num_ranks + (mpath_u128_t)bytes * ppm) / PPM, unit);
            } else {
                *demand = whole_units(even / (uint64_t)num_ranks / PPM, unit);
            }
        }
    }
}

/* splitmix64 (Steele, Lea, Flood, OOPSLA 2014): small, and the same everywhere. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

void mpath_demand_zipf(int num_ranks, uint32_t s_ppm, uint64_t seed, uint64_t bytes, uint64_t unit, uint64_t *demand)
{
    uint64_t *row = demand, total = 0, other, swap;
    int i;

    /* the first row is the work area: weights by popularity, shuffled, then turned into bytes */
    for (i = 0; i < num_ranks; i++) {
        row[i] = mpath_exp2_negative((uint64_t)((mpath_u128_t)mpath_log2((uint64_t)i + 1) * s_ppm / PPM));
        row[i] = row[i] == 0 ? 1 : row[i];
        total += row[i];
    }
    for (i = num_ranks - 1; i > 0; i--) {
        other      = next_random(&seed) % ((uint64_t)i + 1);
        swap       = row[i];
        row[i]     = row[other];
        row[other] = swap;
    }
    for (i = 0; i < num_ranks; i++) {
        row[i] = whole_units((mpath_u128_t)bytes * row[i] / total, unit);
    }
    for (i = 1; i < num_ranks; i++) {
        memcpy(row + (size_t)i * (size_t)num_ranks, row, (size_t)num_ranks * sizeof(*row));
    }
}

/* Where a reader of a matrix is. */
typedef struct reader {
    const char *name;
    const char *at, *end, *line_start;
    int line;
    uint64_t *values;
    size_t count, capacity;
    size_t columns, rows;
} reader_t;

static int column(const reader_t *reader)
{
    return (int)(reader->at - reader->line_start) + 1;
}

static mpath_status_t push(reader_t *reader, uint64_t value)
{
    size_t capacity = reader->capacity == 0 ? 256 : reader->capacity * 2;
    uint64_t *values;

    if (reader->count == reader->capacity) {
        values = realloc(reader->values, capacity * sizeof(*values));
        if (values == NULL) {
            mpath_error("matrix %s:%d: no memory for %zu entries; the matrix is not used", reader->name, reader->line,
                        capacity);
            return MPATH_ERR_NO_MEMORY;
        }
        reader->values   = values;
        reader->capacity = capacity;
    }
    reader->values[reader->count++] = value;
    return MPATH_OK;
}

static int is_separator(char c)
{
    return c == ' ' || c == '\t' || c == ',' || c == ';' || c == '\r';
}

static mpath_status_t read_number(reader_t *reader)
{
    const char *start = reader->at;
    int start_column  = column(reader);
    uint64_t value    = 0;

    for (; reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9'; reader->at++) {
        if (value > (UINT64_MAX >> 2) / 10 - 1) {
            mpath_error("matrix %s:%d:%d: the number is larger than 2^62; the matrix is not used", reader->name,
                        reader->line, start_column);
            return MPATH_ERR_PARAM;
        }
        value = value * 10 + (uint64_t)(*reader->at - '0');
    }
    if (reader->at == start ||
        (reader->at < reader->end && !is_separator(*reader->at) && *reader->at != '\n' && *reader->at != '#')) {
        mpath_error("matrix %s:%d:%d: '%c' is not part of a number of bytes; the matrix is not used", reader->name,
                    reader->line, column(reader), *reader->at >= ' ' && *reader->at < 127 ? *reader->at : '?');
        return MPATH_ERR_PARAM;
    }
    return push(reader, value);
}

/* One line: a row, or nothing. */
static mpath_status_t read_line(reader_t *reader)
{
    size_t before = reader->count, columns;
    mpath_status_t status;

    reader->line++;
    reader->line_start = reader->at;
    while (reader->at < reader->end && *reader->at != '\n' && *reader->at != '#') {
        if (is_separator(*reader->at)) {
            reader->at++;
            continue;
        }
        status = read_number(reader);
        if (status != MPATH_OK) {
            return status;
        }
    }
    columns = reader->count - before;
    if (columns > 0) {
        reader->columns = reader->rows == 0 ? columns : reader->columns;
        reader->rows++;
        if (columns != reader->columns || columns > MAX_RANKS) {
            mpath_error("matrix %s:%d:%d: the row has %zu entries where %zu are needed; the matrix is not used",
                        reader->name, reader->line, column(reader), columns,
                        columns > MAX_RANKS ? (size_t)MAX_RANKS : reader->columns);
            return MPATH_ERR_PARAM;
        }
    }
    while (reader->at < reader->end && *reader->at != '\n') {
        reader->at++;
    }
    reader->at += reader->at < reader->end;
    return MPATH_OK;
}

mpath_status_t mpath_demand_parse(const char *name, const char *text, size_t length, int *num_ranks_p,
                                  uint64_t **demand_p)
{
    reader_t reader       = {.name = name, .at = text, .end = text + length, .line_start = text};
    mpath_status_t status = MPATH_OK;

    while (reader.at < reader.end && status == MPATH_OK) {
        status = read_line(&reader);
    }
    if (status == MPATH_OK && (reader.rows == 0 || reader.rows != reader.columns)) {
        mpath_error("matrix %s:%d:1: %zu rows of %zu entries are not a square matrix; the matrix is not used", name,
                    reader.line, reader.rows, reader.columns);
        status = MPATH_ERR_PARAM;
    }
    if (status != MPATH_OK) {
        free(reader.values);
        return status;
    }
    *num_ranks_p = (int)reader.rows;
    *demand_p    = reader.values;
    return MPATH_OK;
}

/* The whole file in memory, malloc'ed. */
static mpath_status_t read_file(FILE *file, const char *path, char **text_p, size_t *length_p)
{
    size_t capacity = 1 << 16, length = 0, got;
    char *text = malloc(capacity), *larger;

    while (text != NULL && (got = fread(text + length, 1, capacity - length, file)) > 0) {
        length += got;
        if (length > MAX_FILE_BYTES) {
            mpath_error("matrix %s: larger than 1 GiB; the matrix is not used", path);
            free(text);
            return MPATH_ERR_PARAM;
        }
        if (length == capacity) {
            capacity *= 2;
            larger = realloc(text, capacity);
            if (larger == NULL) {
                free(text);
            }
            text = larger;
        }
    }
    if (text == NULL) {
        mpath_error("matrix %s: no memory for it; the matrix is not used", path);
        return MPATH_ERR_NO_MEMORY;
    }
    if (ferror(file)) {
        mpath_error("matrix %s: read failed: %s; the matrix is not used", path, strerror(errno));
        free(text);
        return MPATH_ERR_IO;
    }
    *text_p   = text;
    *length_p = length;
    return MPATH_OK;
}

mpath_status_t mpath_demand_load(const char *path, int *num_ranks_p, uint64_t **demand_p)
{
    FILE *file = fopen(path, "r");
    mpath_status_t status;
    size_t length;
    char *text;

    if (file == NULL) {
        mpath_error("matrix %s: cannot be opened: %s; the matrix is not used", path, strerror(errno));
        return MPATH_ERR_IO;
    }
    status = read_file(file, path, &text, &length);
    fclose(file);
    if (status != MPATH_OK) {
        return status;
    }
    status = mpath_demand_parse(path, text, length, num_ranks_p, demand_p);
    free(text);
    return status;
}
