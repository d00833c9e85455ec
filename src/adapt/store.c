/* SPDX-License-Identifier: BSD-3-Clause */
/* Store: reading and writing the file of learned rates. */
#include "adapt/store.h"

#include "util/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STORE_TITLE "mpath-rates 1"
#define LINE_MAX_BYTES 1024

typedef struct line {
    uint64_t machine;
    char operation[MPATH_STORE_OPERATION_MAX];
    int size_class, num_rails;
    uint64_t bps[MPATH_MAX_NICS];
} line_t;

/* 0, or -1: no line of this kind. */
static int parse(const char *text, line_t *line)
{
    int at = 0;

    memset(line, 0, sizeof(*line));
    if (sscanf(text, "%" SCNx64 " %23s %d%n", &line->machine, line->operation, &line->size_class, &at) != 3) {
        return -1;
    }
    for (text += at; line->num_rails < MPATH_MAX_NICS; text += at) {
        if (sscanf(text, "%" SCNu64 "%n", &line->bps[line->num_rails], &at) != 1) {
            break;
        }
        if ((line->bps[line->num_rails] == 0) || (line->bps[line->num_rails] > (uint64_t)MPATH_MAX_RATE_BPS)) {
            return -1;
        }
        line->num_rails++;
    }
    return ((line->num_rails > 0) && (text[strspn(text, " \t\r\n")] == '\0')) ? 0 : -1;
}

static int is_key(const line_t *line, uint64_t machine, const char *operation, int size_class)
{
    return (line->machine == machine) && (strcmp(line->operation, operation) == 0) && (line->size_class == size_class);
}

static void write_line(FILE *out, const line_t *line)
{
    fprintf(out, "%016" PRIx64 " %s %d", line->machine, line->operation, line->size_class);
    for (int rail = 0; rail < line->num_rails; rail++) {
        fprintf(out, " %" PRIu64, line->bps[rail]);
    }
    fputc('\n', out);
}

/* The next line that can be read; 0 at the end. `number` counts the file's lines. */
static int next_line(FILE *in, const char *path, int *number, line_t *line)
{
    char text[LINE_MAX_BYTES];

    while (fgets(text, sizeof(text), in) != NULL) {
        (*number)++;
        text[strcspn(text, "\r\n")] = '\0';
        if ((text[strspn(text, " \t")] == '\0') || ((*number == 1) && (strcmp(text, STORE_TITLE) == 0))) {
            continue;
        }
        if (parse(text, line) == 0) {
            return 1;
        }
        mpath_warn("%s:%d: no line of learned rates; it is left out", path, *number);
    }
    return 0;
}

mpath_status_t mpath_store_load(const char *path, uint64_t machine, const char *operation, int size_class,
                                int num_rails, uint64_t *bps)
{
    mpath_status_t status = MPATH_DECLINED;
    FILE *in              = fopen(path, "r");
    int number            = 0;
    line_t line;

    if (in == NULL) {
        if (errno != ENOENT) {
            mpath_warn("%s cannot be read (%s); rails start with their nominal rates", path, strerror(errno));
        }
        return MPATH_DECLINED;
    }
    while (next_line(in, path, &number, &line)) {
        if (is_key(&line, machine, operation, size_class) && (line.num_rails == num_rails)) {
            memcpy(bps, line.bps, (size_t)num_rails * sizeof(*bps));
            status = MPATH_OK;
        }
    }
    fclose(in);
    return status;
}

/* Everything of the old file but the key's line. */
static void copy_others(const char *path, FILE *out, const line_t *mine)
{
    FILE *in   = fopen(path, "r");
    int number = 0;
    line_t line;

    if (in == NULL) {
        return;
    }
    while (next_line(in, path, &number, &line)) {
        if (!is_key(&line, mine->machine, mine->operation, mine->size_class)) {
            write_line(out, &line);
        }
    }
    fclose(in);
}

mpath_status_t mpath_store_save(const char *path, uint64_t machine, const char *operation, int size_class,
                                int num_rails, const uint64_t *bps)
{
    line_t line = {.machine = machine, .size_class = size_class, .num_rails = num_rails};
    char *other = malloc(strlen(path) + 32);
    FILE *out;
    int bad;

    if (other == NULL) {
        mpath_error("no memory to write %s; learned rates are not kept", path);
        return MPATH_ERR_NO_MEMORY;
    }
    snprintf(line.operation, sizeof(line.operation), "%s", operation);
    memcpy(line.bps, bps, (size_t)num_rails * sizeof(*bps));
    sprintf(other, "%s.%ld", path, (long)getpid());
    out = fopen(other, "w");
    bad = out == NULL;
    if (out != NULL) {
        fprintf(out, "%s\n", STORE_TITLE);
        copy_others(path, out, &line);
        write_line(out, &line);
        bad = ferror(out) != 0;
        bad |= fclose(out) != 0;
        bad = bad || (rename(other, path) != 0);
    }
    if (bad) {
        mpath_warn("%s cannot be written (%s); learned rates are not kept", path, strerror(errno));
        if (out != NULL) {
            unlink(other);
        }
    }
    free(other);
    return bad ? MPATH_ERR_IO : MPATH_OK;
}
