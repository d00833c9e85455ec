/* SPDX-License-Identifier: BSD-3-Clause */
/* History file: reading and writing. */
#include "tune/history_file.h"

#include "tune/start.h"
#include "util/file.h"
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

#define VERSION 3 /* the last one */
#define LINE_MAX_BYTES 1024
#define LOCK_TRIES 500 /* of 2 ms: whoever holds the file writes a few lines */
#define LOCK_PAUSE_US 2000

typedef mpath_history_line_t line_t;

static const char *const titles[] = {NULL, "mpath-rates 1", "mpath-rates 2", "mpath-rates 3"};

static const struct {
    const char *word;
    uint64_t most; /* of what follows */
} kinds[MPATH_HISTORY_KINDS] = {[MPATH_HISTORY_RATES]      = {"rates", (uint64_t)MPATH_MAX_RATE_BPS},
                                [MPATH_HISTORY_HOST_SHARE] = {"host-share", MPATH_TUNE_WHOLE - 1},
                                [MPATH_HISTORY_HELP]       = {"help", 100},
                                [MPATH_HISTORY_NODE_RATES] = {"node-rates", (uint64_t)MPATH_MAX_RATE_BPS}};

static int has_rates(const line_t *line)
{
    return (line->key.kind == MPATH_HISTORY_RATES) || (line->key.kind == MPATH_HISTORY_NODE_RATES);
}

/* The word for a kind at the start of `text`; what comes after it, or NULL. */
static const char *parse_kind(const char *text, mpath_history_kind_t *kind_p)
{
    size_t length;

    text += strspn(text, " \t");
    length = strcspn(text, " \t");
    for (int kind = 0; kind < MPATH_HISTORY_KINDS; kind++) {
        if ((strlen(kinds[kind].word) == length) && (strncmp(text, kinds[kind].word, length) == 0)) {
            *kind_p = (mpath_history_kind_t)kind;
            return text + length;
        }
    }
    return NULL;
}

/* What comes after the number of a node, if it is one. */
static const char *parse_node(const char *text, line_t *line)
{
    long node;
    int at = 0;

    if ((sscanf(text, "%ld%n", &node, &at) != 1) || (node < 0) || (node > INT_MAX)) {
        return NULL;
    }
    line->key.node = (int)node;
    return text + at;
}

/* What comes after the last rate. Nodes need not have all NICs, but some. */
static const char *parse_rates(const char *text, line_t *line)
{
    uint64_t most = 0;
    int at        = 0;

    for (; line->num_rails < MPATH_MAX_NICS; text += at) {
        uint64_t bps;

        if (sscanf(text, "%" SCNu64 "%n", &bps, &at) != 1) {
            break;
        }
        if (((bps == 0) && (line->key.kind == MPATH_HISTORY_RATES)) || (bps > kinds[line->key.kind].most)) {
            return NULL;
        }
        most                         = (bps > most) ? bps : most;
        line->bps[line->num_rails++] = bps;
    }
    return (most > 0) ? text : NULL;
}

static const char *parse_value(const char *text, line_t *line)
{
    int at = 0;

    return ((sscanf(text, "%" SCNu64 "%n", &line->value, &at) == 1) && (line->value <= kinds[line->key.kind].most))
               ? text + at
               : NULL;
}

/* 0, or -1: no line of a file with that version. */
static int parse(const char *text, int version, line_t *line)
{
    long size_class;
    int at = 0;

    memset(line, 0, sizeof(*line));
    if ((sscanf(text, "%" SCNx64 " %23s %ld%n", &line->key.machine, line->key.operation, &size_class, &at) != 3) ||
        (size_class < 0) || (size_class > INT_MAX)) {
        return -1;
    }
    line->key.size_class = (int)size_class;
    text += at;
    if (version > 1) {
        text = parse_kind(text, &line->key.kind);
    }
    if ((text != NULL) && (line->key.kind == MPATH_HISTORY_NODE_RATES)) {
        text = (version > 2) ? parse_node(text, line) : NULL;
    }
    if (text != NULL) {
        text = has_rates(line) ? parse_rates(text, line) : parse_value(text, line);
    }
    return ((text != NULL) && (text[strspn(text, " \t\r\n")] == '\0')) ? 0 : -1;
}

static void write_line(FILE *out, const line_t *line)
{
    fprintf(out, "%016" PRIx64 " %s %d %s", line->key.machine, line->key.operation, line->key.size_class,
            kinds[line->key.kind].word);
    if (line->key.kind == MPATH_HISTORY_NODE_RATES) {
        fprintf(out, " %d", line->key.node);
    }
    for (int rail = 0; rail < line->num_rails; rail++) {
        fprintf(out, " %" PRIu64, line->bps[rail]);
    }
    if (!has_rates(line)) {
        fprintf(out, " %" PRIu64, line->value);
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

/* The next line that can be read; 0 at the end. `number` counts the file's lines; the first one is the title. */
static int next_line(FILE *in, const char *name, int version, int *number, line_t *line)
{
    char text[LINE_MAX_BYTES];
    int found;

    while ((found = read_line(in, text, sizeof(text))) != 0) {
        (*number)++;
        text[strcspn(text, "\r#")] = '\0'; /* a remark ends the line */
        if ((*number == 1) || ((found > 0) && (text[strspn(text, " \t")] == '\0'))) {
            continue;
        }
        if ((found > 0) && (parse(text, version, line) == 0)) {
            return 1;
        }
        mpath_warn("%s:%d: this line cannot be read; it is left out", name, *number);
    }
    return 0;
}

/* The version. 0: a file of something else, which is neither read nor written over; an empty one is a new one. */
static int check_title(FILE *in, const char *name)
{
    char text[LINE_MAX_BYTES] = "";
    int some                  = fgets(text, sizeof(text), in) != NULL;

    text[strcspn(text, "\r\n")] = '\0';
    rewind(in);
    if (!some) {
        return VERSION;
    }
    for (int version = 1; version <= VERSION; version++) {
        if (strcmp(text, titles[version]) == 0) {
            return version;
        }
    }
    mpath_warn("%s:1: it does not begin with '%s' or an older version's title: a file of something else, or of a newer "
               "version; it is left as it is, and nothing is kept",
               name, titles[VERSION]);
    return 0;
}

mpath_status_t mpath_history_parse(FILE *in, const char *name, mpath_history_visit_t visit, void *argument)
{
    int version = check_title(in, name), number = 0;
    line_t line;

    if (version == 0) {
        return MPATH_ERR_PARAM;
    }
    while (next_line(in, name, version, &number, &line)) {
        visit(argument, &line);
    }
    return ferror(in) ? MPATH_ERR_IO : MPATH_OK;
}

mpath_status_t mpath_history_read(const char *path, mpath_history_visit_t visit, void *argument)
{
    mpath_status_t status;
    FILE *in;

    status = mpath_file_open(path, &in);
    if (status != MPATH_OK) {
        return ((status == MPATH_ERR_IO) && (errno == ENOENT)) ? MPATH_DECLINED : status;
    }
    status = mpath_history_parse(in, path, visit, argument);
    fclose(in);
    return status;
}

/* Looking for a key. */
typedef struct search {
    mpath_history_key_t key;
    int num_rails;
    uint64_t *bps;
    int found;
} search_t;

int mpath_history_is_same(const mpath_history_key_t *a, const mpath_history_key_t *b)
{
    return (a->machine == b->machine) && (strcmp(a->operation, b->operation) == 0) &&
           (a->size_class == b->size_class) && (a->kind == b->kind) && (a->node == b->node);
}

static void look(void *argument, const line_t *line)
{
    search_t *search = argument;

    if (mpath_history_is_same(&line->key, &search->key) && (line->num_rails == search->num_rails)) {
        memcpy(search->bps, line->bps, (size_t)line->num_rails * sizeof(*line->bps));
        search->found = 1;
    }
}

/* Neither is a device moved away by a file in its place, nor does a pipe make a job wait. A folder is an error of its own. */
static int is_special(const char *path)
{
    if (!mpath_file_is_special(path)) {
        return 0;
    }
    mpath_warn("%s is no regular file, or a link of another user; nothing is read from it, and nothing kept", path);
    return 1;
}

mpath_status_t mpath_history_take(const char *path, mpath_history_visit_t visit, void *argument)
{
    mpath_status_t status;

    if (is_special(path)) {
        return MPATH_DECLINED;
    }
    status = mpath_history_read(path, visit, argument);
    if (status == MPATH_ERR_IO) {
        mpath_warn("%s cannot be read (%s); rails start with their nominal rates", path, strerror(errno));
    }
    return status;
}

mpath_status_t mpath_history_load(const char *path, uint64_t machine, const char *operation, int size_class,
                                  int num_rails, uint64_t *bps)
{
    search_t search = {.key = {.machine = machine, .size_class = size_class}, .num_rails = num_rails, .bps = bps};

    snprintf(search.key.operation, sizeof(search.key.operation), "%s", operation);
    return ((mpath_history_take(path, look, &search) == MPATH_OK) && search.found) ? MPATH_OK : MPATH_DECLINED;
}

/* -- writing -- */

typedef struct copy {
    FILE *out;
    const line_t *mine;
    int num_mine;
} copy_t;

static void copy_other(void *argument, const line_t *line)
{
    const copy_t *copy = argument;

    for (int i = 0; i < copy->num_mine; i++) {
        if (mpath_history_is_same(&line->key, &copy->mine[i].key)) {
            return;
        }
    }
    write_line(copy->out, line);
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
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666), locked;

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

/* Writes the new file beside the old one, with the rights of that, and moves it there. */
static mpath_status_t replace_by(const char *path, int fd, const char *other, const line_t *lines, int num_lines)
{
    FILE *out   = fdopen(fd, "w");
    copy_t copy = {.out = out, .mine = lines, .num_mine = num_lines};
    struct stat old;
    mpath_status_t status;
    int bad;

    if (out == NULL) {
        close(fd);
        unlink(other);
        return MPATH_ERR_NO_MEMORY;
    }
    if (stat(path, &old) == 0) {
        (void)fchmod(fd, old.st_mode & 0777);
    }
    fprintf(out, "%s\n", titles[VERSION]);
    status = mpath_history_read(path, copy_other, &copy);
    for (int i = 0; i < num_lines; i++) {
        write_line(out, &lines[i]);
    }
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
static mpath_status_t replace(const char *path, const line_t *lines, int num_lines)
{
    char *file = realpath(path, NULL), *other;
    mpath_status_t status;
    size_t size;
    int fd;

    if (file == NULL) {
        return MPATH_ERR_IO;
    }
    size  = strlen(file) + 16;
    other = malloc(size);
    if (other == NULL) {
        mpath_error("no memory to write %s; what calls have shown is not kept", path);
        free(file);
        return MPATH_ERR_NO_MEMORY;
    }
    fd     = mpath_file_create_beside(file, other, size);
    status = (fd < 0) ? MPATH_ERR_IO : replace_by(file, fd, other, lines, num_lines);
    free(other);
    free(file);
    return status;
}

mpath_status_t mpath_history_put(const char *path, const mpath_history_line_t *lines, int num_lines)
{
    mpath_file_guard_t guard;
    mpath_status_t status;
    int fd;

    if (is_special(path)) {
        return MPATH_ERR_PARAM;
    }
    mpath_file_guard_begin(&guard);
    fd     = lock(path);
    status = (fd < 0) ? MPATH_ERR_IO : replace(path, lines, num_lines);
    if (status == MPATH_ERR_IO) {
        mpath_warn("%s cannot be written (%s); what calls have shown is not kept", path, strerror(errno));
    }
    if (fd >= 0) {
        close(fd);
    }
    mpath_file_guard_end(&guard);
    return status;
}

mpath_status_t mpath_history_save(const char *path, uint64_t machine, const char *operation, int size_class,
                                  int num_rails, const uint64_t *bps)
{
    line_t line = {.key = {.machine = machine, .size_class = size_class}, .num_rails = num_rails};

    snprintf(line.key.operation, sizeof(line.key.operation), "%s", operation);
    memcpy(line.bps, bps, (size_t)num_rails * sizeof(*bps));
    return mpath_history_put(path, &line, 1);
}
