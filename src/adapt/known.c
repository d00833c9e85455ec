/* SPDX-License-Identifier: BSD-3-Clause */
/* Known: the table of this process. */
#include "adapt/known.h"

#include "exec/node_key.h"
#include "util/time.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry {
    mpath_known_nic_t nic;
    mpath_known_rate_t known;
} table[MPATH_KNOWN_MAX];
static int num_entries;
static atomic_uint num_changes;

uint64_t mpath_known_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * MPATH_NS_PER_S + (uint64_t)now.tv_nsec;
}

const mpath_known_rate_t *mpath_known_later(const mpath_known_rate_t *a, const mpath_known_rate_t *b)
{
    if (a->learned_ns != b->learned_ns) {
        return (a->learned_ns > b->learned_ns) ? a : b;
    }
    return (a->bps <= b->bps) ? a : b;
}

uint64_t mpath_known_node(const char *host)
{
    return mpath_key_mix(1, host, strlen(host));
}

/* With the lock held; NULL: nothing is known. */
static struct entry *find(mpath_known_nic_t nic)
{
    for (int i = 0; i < num_entries; i++) {
        if ((table[i].nic.node == nic.node) && (table[i].nic.rail == nic.rail)) {
            return &table[i];
        }
    }
    return NULL;
}

/* With the lock held: an entry of which nothing is known. */
static struct entry *add(mpath_known_nic_t nic)
{
    struct entry *first = &table[0];

    if (num_entries < MPATH_KNOWN_MAX) {
        first = &table[num_entries++];
    }
    for (int i = 0; i < num_entries; i++) {
        first = (table[i].known.learned_ns < first->known.learned_ns) ? &table[i] : first;
    }
    *first = (struct entry){.nic = nic};
    return first;
}

unsigned mpath_known_note(mpath_known_nic_t nic, const mpath_known_rate_t *known)
{
    struct entry *entry;
    unsigned changed = 0;

    pthread_mutex_lock(&table_lock);
    entry = find(nic);
    entry = (entry != NULL) ? entry : add(nic);
    if (known->learned_ns > entry->known.learned_ns) {
        changed      = (known->bps != entry->known.bps) || (known->nominal_bps != entry->known.nominal_bps);
        entry->known = *known;
        atomic_fetch_add(&num_changes, changed);
    }
    pthread_mutex_unlock(&table_lock);
    return changed;
}

mpath_known_rate_t mpath_known_of(mpath_known_nic_t nic)
{
    mpath_known_rate_t known = {.learned_ns = 0};
    const struct entry *entry;

    pthread_mutex_lock(&table_lock);
    entry = find(nic);
    known = (entry != NULL) ? entry->known : known;
    pthread_mutex_unlock(&table_lock);
    return known;
}

unsigned mpath_known_changes(void)
{
    return atomic_load(&num_changes);
}
