/* SPDX-License-Identifier: BSD-3-Clause */
/* Store: reading and writing the file of learned rates. */
#include "adapt/store.h"

#include "util/cache.h"
#include "util/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define STORE_TITLE "mpath-rates 1"
#define LINE_MAX_BYTES 1024
#define LOCK_TRIES 500 /* of 2 ms: whoever holds the file writes a few lines */
#define LOCK_PAUSE_US 2000

typedef mpath_store_line_t line_t;

/* 0, or -1: no line of this kind. */
static int parse(const char *text, line_t *line)
{
    long size_class;
    int at = 0;

    memset(line, 0, sizeof(*line));
    if ((sscanf(text, "%" SCNx64 " %23s %ld%n", &line->machine, line->operation, &size_class, &at) != 3) ||
        (size_class < 0) || (size_class > INT_MAX)) {
        return -1;
    }
    line->size_class = (int)size_class;
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

static void write_line(FILE *out, const line_t *line)
{
    fprintf(out, "%016" PRIx64 " %s %d", line->machine, line->operation, line->size_class);
    for (int rail = 0; rail < line->num_rails; rail++) {
        fprintf(out, " %" PRIu64, line->bps[rail]);
    }
    fputc('\n', out);
}

/* Whatever the file holds, a line is what ends in a newline. 1; 0 at the end; -1: it is too long, or no text. */
static int read_line(FILE *in, char *text, size_t size)
{
    size_t length = 0;
    int next, some = 0, bad = 0;

    while (((next = fgetc(in)) != EOF) && (next != '\n')) {
        some = 1;
        bad  = bad || (next == '\0') || (length + 1 == size);
        if (!bad) {
            text[length++] = (char)next;
        }
    }
    text[length] = '\0';
    return bad ? -1 : (some || (next == '\n'));
}

/* The next line that can be read; 0 at the end. `number` counts the file's lines. */
static int next_line(FILE *in, const char *path, int *number, line_t *line)
{
    char text[LINE_MAX_BYTES];
    int found;

    while ((found = read_line(in, text, sizeof(text))) != 0) {
        (*number)++;
        text[strcspn(text, "\r")] = '\0';
        if (((found > 0) && (text[strspn(text, " \t")] == '\0')) ||
            ((*number == 1) && (strcmp(text, STORE_TITLE) == 0))) {
            continue;
        }
        if ((found > 0) && (parse(text, line) == 0)) {
            return 1;
        }
        mpath_warn("%s:%d: no line of learned rates; it is left out", path, *number);
    }
    return 0;
}

/* A file of something else is neither read nor written over; an empty one is a new one. */
static mpath_status_t check_title(FILE *in, const char *path)
{
    char text[LINE_MAX_BYTES] = "";
    int some                  = fgets(text, sizeof(text), in) != NULL;

    text[strcspn(text, "\r\n")] = '\0';
    rewind(in);
    if (some && (strcmp(text, STORE_TITLE) != 0)) {
        mpath_warn(
            "%s:1: it does not begin with '%s': no file of learned rates; it is left as it is, and none are kept", path,
            STORE_TITLE);
        return MPATH_ERR_PARAM;
    }
    return MPATH_OK;
}

mpath_status_t mpath_store_read(const char *path, mpath_store_visit_t visit, void *argument)
{
    FILE *in   = fopen(path, "re");
    int number = 0;
    mpath_status_t status;
    line_t line;

    if (in == NULL) {
        return (errno == ENOENT) ? MPATH_DECLINED : MPATH_ERR_IO;
    }
    status = check_title(in, path);
    while ((status == MPATH_OK) && next_line(in, path, &number, &line)) {
        visit(argument, &line);
    }
    if ((status == MPATH_OK) && ferror(in)) {
        status = MPATH_ERR_IO;
    }
    fclose(in);
    return status;
}

/* Looking for a key. */
typedef struct search {
    const line_t *key;
    uint64_t *bps;
    int found;
} search_t;

static int same_key(const line_t *a, const line_t *b)
{
    return (a->machine == b->machine) && (strcmp(a->operation, b->operation) == 0) && (a->size_class == b->size_class);
}

static void look(void *argument, const line_t *line)
{
    search_t *search = argument;

    if (same_key(line, search->key) && (line->num_rails == search->key->num_rails)) {
        memcpy(search->bps, line->bps, (size_t)line->num_rails * sizeof(*line->bps));
        search->found = 1;
    }
}

/* Neither is a device moved away by a file in its place, nor does a pipe make a job wait. A folder is an error of its own. */
static int is_special(const char *path)
{
    if (!mpath_cache_is_special(path)) {
        return 0;
    }
    mpath_warn("%s is no regular file; learned rates are neither read from it nor kept", path);
    return 1;
}

mpath_status_t mpath_store_load(const char *path, uint64_t machine, const char *operation, int size_class,
                                int num_rails, uint64_t *bps)
{
    line_t key      = {.machine = machine, .size_class = size_class, .num_rails = num_rails};
    search_t search = {.key = &key, .bps = bps};
    mpath_status_t status;

    if (is_special(path)) {
        return MPATH_DECLINED;
    }
    snprintf(key.operation, sizeof(key.operation), "%s", operation);
    status = mpath_store_read(path, look, &search);
    if (status == MPATH_ERR_IO) {
        mpath_warn("%s cannot be read (%s); rails start with their nominal rates", path, strerror(errno));
    }
    return ((status == MPATH_OK) && search.found) ? MPATH_OK : MPATH_DECLINED;
}

/* -- writing -- */

typedef struct copy {
    FILE *out;
    const line_t *mine;
} copy_t;

static void copy_other(void *argument, const line_t *line)
{
    const copy_t *copy = argument;

    if (!same_key(line, copy->mine)) {
        write_line(copy->out, line);
    }
}

/*
 * Locks the file, which is made when there is none: jobs that write at the same time would lose each other's lines.
 * Another job may have moved a new file into its place before the lock was there. -1: it cannot be opened; where it
 * cannot be locked the lock is missed and nothing else.
 */
static int lock(const char *path)
{
    struct stat mine, there;

    for (int i = 0;; i++) {
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666), locked;

        if (fd < 0) {
            return -1;
        }
        locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
        if ((locked || (errno != EWOULDBLOCK)) && (fstat(fd, &mine) == 0) && (stat(path, &there) == 0) &&
            (mine.st_ino == there.st_ino) && (mine.st_dev == there.st_dev)) {
            return fd;
        }
        if (i == LOCK_TRIES) {
            return fd;
        }
        close(fd);
        if (!locked) {
            usleep(LOCK_PAUSE_US);
        }
    }
}

/* Writes the new file beside the old one and moves it there. */
static mpath_status_t replace_by(const char *path, const char *other, const line_t *line)
{
    FILE *out   = fopen(other, "we");
    copy_t copy = {.out = out, .mine = line};
    mpath_status_t status;
    int bad;

    if (out == NULL) {
        return MPATH_ERR_IO;
    }
    fprintf(out, "%s\n", STORE_TITLE);
    status = mpath_store_read(path, copy_other, &copy);
    write_line(out, line);
    bad = ferror(out) != 0;
    bad |= fclose(out) != 0;
    if ((status == MPATH_OK) || (status == MPATH_DECLINED)) {
        status = (bad || (rename(other, path) != 0)) ? MPATH_ERR_IO : MPATH_OK;
    }
    if (status != MPATH_OK) {
        int because = errno;

        unlink(other);
        errno = because;
    }
    return status;
}

/* The file exists. Where a link leads to it, the link stays. */
static mpath_status_t replace(const char *path, const line_t *line)
{
    char *file = realpath(path, NULL), *other;
    mpath_status_t status;

    if (file == NULL) {
        return MPATH_ERR_IO;
    }
    other = malloc(strlen(file) + 32);
    if (other == NULL) {
        mpath_error("no memory to write %s; learned rates are not kept", path);
        free(file);
        return MPATH_ERR_NO_MEMORY;
    }
    sprintf(other, "%s.%ld", file, (long)getpid());
    status = replace_by(file, other, line);
    free(other);
    free(file);
    return status;
}

mpath_status_t mpath_store_save(const char *path, uint64_t machine, const char *operation, int size_class,
                                int num_rails, const uint64_t *bps)
{
    line_t line = {.machine = machine, .size_class = size_class, .num_rails = num_rails};
    mpath_status_t status;
    int fd;

    if (is_special(path)) {
        return MPATH_ERR_PARAM;
    }
    snprintf(line.operation, sizeof(line.operation), "%s", operation);
    memcpy(line.bps, bps, (size_t)num_rails * sizeof(*bps));
    fd     = lock(path);
    status = (fd < 0) ? MPATH_ERR_IO : replace(path, &line);
    if (status == MPATH_ERR_IO) {
        mpath_warn("%s cannot be written (%s); learned rates are not kept", path, strerror(errno));
    }
    if (fd >= 0) {
        close(fd);
    }
    return status;
}
