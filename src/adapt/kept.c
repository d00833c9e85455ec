/* SPDX-License-Identifier: BSD-3-Clause */
/* Kept: the table of this process. */
#include "adapt/kept.h"

#include "util/cache.h"

#include <pthread.h>

#define MACHINES_MAX 16 /* one that is forgotten is looked for again */
#define FROM_FILE_NS 1  /* learned before everything else */

static struct {
    pthread_mutex_t lock;
    int num_lines;
    mpath_store_line_t keys[MPATH_KEPT_MAX];
    mpath_kept_t values[MPATH_KEPT_MAX];
    uint64_t looked[MACHINES_MAX]; /* in the file, for these */
    unsigned num_looked;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

const mpath_kept_t *mpath_kept_later(const mpath_kept_t *a, const mpath_kept_t *b)
{
    if (a->learned_ns != b->learned_ns) {
        return (a->learned_ns > b->learned_ns) ? a : b;
    }
    return (a->value <= b->value) ? a : b;
}

/* With the lock held; -1: nowhere. */
static int find(const mpath_store_line_t *key)
{
    int at = table.num_lines - 1;

    while ((at >= 0) && !mpath_store_is_same(&table.keys[at], key)) {
        at--;
    }
    return at;
}

/* With the lock held: where a new line goes. */
static int room(void)
{
    int first = 0;

    if (table.num_lines < MPATH_KEPT_MAX) {
        return table.num_lines++;
    }
    for (int at = 1; at < MPATH_KEPT_MAX; at++) {
        first = (table.values[at].learned_ns < table.values[first].learned_ns) ? at : first;
    }
    return first;
}

mpath_kept_t mpath_kept_of(const mpath_store_line_t *key)
{
    mpath_kept_t kept = {.learned_ns = 0};
    int at;

    pthread_mutex_lock(&table.lock);
    at   = find(key);
    kept = (at >= 0) ? table.values[at] : kept;
    pthread_mutex_unlock(&table.lock);
    return kept;
}

void mpath_kept_note(const mpath_store_line_t *key, const mpath_kept_t *kept)
{
    int at;

    pthread_mutex_lock(&table.lock);
    at = find(key);
    if (at < 0) {
        at               = room();
        table.keys[at]   = *key;
        table.values[at] = *kept;
    } else if (kept->learned_ns >= table.values[at].learned_ns) {
        table.values[at] = *kept;
    }
    pthread_mutex_unlock(&table.lock);
}

static void take_line(void *argument, const mpath_store_line_t *line)
{
    const uint64_t *machine = argument;
    const mpath_kept_t kept = {.learned_ns = FROM_FILE_NS, .value = line->value};

    if ((line->num_rails == 0) && (line->machine == *machine)) {
        mpath_kept_note(line, &kept);
    }
}

/* Whether the file has been looked into for a machine; from now on it has. */
static int has_looked(uint64_t machine)
{
    int has = 0;

    pthread_mutex_lock(&table.lock);
    for (unsigned i = 0; (i < MACHINES_MAX) && (i < table.num_looked); i++) {
        has = has || (table.looked[i] == machine);
    }
    if (!has) {
        table.looked[table.num_looked++ % MACHINES_MAX] = machine;
    }
    pthread_mutex_unlock(&table.lock);
    return has;
}

void mpath_kept_look(const char *path, uint64_t machine)
{
    if (!has_looked(machine) && !mpath_cache_is_special(path)) {
        (void)mpath_store_read(path, take_line, &machine); /* that it cannot be read is said when something is kept */
    }
}
