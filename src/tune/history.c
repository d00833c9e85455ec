/* SPDX-License-Identifier: BSD-3-Clause */
/* History: the table of this process, and what all ranks make of theirs. */
#include "tune/history.h"

#include "util/file.h"
#include "util/log.h"
#include "util/number.h"
#include "util/time.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MACHINES_MAX 16 /* one that is forgotten is looked for again */

typedef struct entry {
    mpath_history_key_t key;
    mpath_learned_t learned;
} entry_t;

static struct {
    pthread_mutex_t lock;
    int num_entries;
    entry_t entries[MPATH_HISTORY_MAX];
    uint64_t looked[MACHINES_MAX]; /* in the file, for these */
    unsigned num_looked;
} history = {.lock = PTHREAD_MUTEX_INITIALIZER};

static atomic_uint num_changes;

mpath_history_key_t mpath_history_nic(const char *host, int rail)
{
    return (mpath_history_key_t){.machine = (host != NULL) ? mpath_key_mix(1, host, strlen(host)) : 0,
                                 .kind    = MPATH_HISTORY_NODE_RATES,
                                 .node    = rail};
}

uint64_t mpath_history_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * MPATH_NS_PER_S + (uint64_t)now.tv_nsec;
}

const mpath_learned_t *mpath_history_later(const mpath_learned_t *a, const mpath_learned_t *b)
{
    if (a->learned_ns != b->learned_ns) {
        return (a->learned_ns > b->learned_ns) ? a : b;
    }
    return (a->value <= b->value) ? a : b;
}

/* With the lock held; NULL: nothing is known. */
static entry_t *find(const mpath_history_key_t *key)
{
    for (int i = 0; i < history.num_entries; i++) {
        if (mpath_history_is_same(&history.entries[i].key, key)) {
            return &history.entries[i];
        }
    }
    return NULL;
}

/* With the lock held: an entry of which nothing is known. */
static entry_t *add(const mpath_history_key_t *key)
{
    entry_t *first = &history.entries[0];

    if (history.num_entries < MPATH_HISTORY_MAX) {
        first = &history.entries[history.num_entries++];
    } else {
        for (int i = 1; i < MPATH_HISTORY_MAX; i++) {
            entry_t *entry = &history.entries[i];

            first = (entry->learned.learned_ns < first->learned.learned_ns) ? entry : first;
        }
    }
    *first = (entry_t){.key = *key};
    return first;
}

unsigned mpath_history_note(const mpath_history_key_t *key, const mpath_learned_t *learned)
{
    unsigned changed = 0;
    entry_t *entry;

    pthread_mutex_lock(&history.lock);
    entry = find(key);
    entry = (entry != NULL) ? entry : add(key);
    if (learned->learned_ns >= entry->learned.learned_ns) {
        changed = (learned->value != entry->learned.value) || (learned->nominal_bps != entry->learned.nominal_bps);
        entry->learned = *learned;
        atomic_fetch_add(&num_changes, (key->kind == MPATH_HISTORY_NODE_RATES) ? changed : 0);
    }
    pthread_mutex_unlock(&history.lock);
    return changed;
}

mpath_learned_t mpath_history_of(const mpath_history_key_t *key)
{
    mpath_learned_t learned = {.learned_ns = 0};
    const entry_t *entry;

    pthread_mutex_lock(&history.lock);
    entry   = find(key);
    learned = (entry != NULL) ? entry->learned : learned;
    pthread_mutex_unlock(&history.lock);
    return learned;
}

unsigned mpath_history_changes(void)
{
    return atomic_load(&num_changes);
}

/* -- the file -- */

static void take_line(void *argument, const mpath_history_line_t *line)
{
    const uint64_t *machine       = argument;
    const mpath_learned_t learned = {.learned_ns = MPATH_HISTORY_FROM_FILE_NS, .value = line->value};

    if ((line->num_rails == 0) && (line->key.machine == *machine)) {
        (void)mpath_history_note(&line->key, &learned);
    }
}

/* Whether the file has been looked into for a machine; from now on it has. */
static int has_looked(uint64_t machine)
{
    int has = 0;

    pthread_mutex_lock(&history.lock);
    for (unsigned i = 0; (i < MACHINES_MAX) && (i < history.num_looked); i++) {
        has = has || (history.looked[i] == machine);
    }
    if (!has) {
        history.looked[history.num_looked++ % MACHINES_MAX] = machine;
    }
    pthread_mutex_unlock(&history.lock);
    return has;
}

void mpath_history_look(const char *path, uint64_t machine)
{
    static pthread_mutex_t looking = PTHREAD_MUTEX_INITIALIZER;

    pthread_mutex_lock(&looking); /* a thread that comes meanwhile is to know what the file says */
    if (!has_looked(machine) && !mpath_file_is_special(path)) {
        (void)mpath_history_read(path, take_line, &machine); /* that it cannot be read is said when something is kept */
    }
    pthread_mutex_unlock(&looking);
}

/* -- what all ranks know -- */

mpath_status_t mpath_history_agree(mpath_team_t *team, mpath_learned_t *learned, size_t count)
{
    size_t size          = (size_t)mpath_team_size(team);
    mpath_learned_t *all = malloc(size * count * sizeof(*all));
    mpath_status_t status;

    if (all == NULL) {
        mpath_error("no memory for what %zu ranks have learned; the call fails", size);
        return MPATH_ERR_NO_MEMORY;
    }
    status = mpath_team_allgather(team, learned, count * sizeof(*learned), all);
    for (size_t i = 0; (i < count) && (status == MPATH_OK); i++) {
        learned[i] = all[i];
        for (size_t rank = 1; rank < size; rank++) {
            learned[i] = *mpath_history_later(&learned[i], &all[rank * count + i]);
        }
    }
    free(all);
    return status;
}
