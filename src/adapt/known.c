/* SPDX-License-Identifier: BSD-3-Clause */
/* Known: the table of this process. */
#include "adapt/known.h"

#include "util/time.h"

#include <pthread.h>
#include <stdatomic.h>

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static mpath_known_rail_t table[MPATH_MAX_RAILS];
static atomic_uint num_changes;

uint64_t mpath_known_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * MPATH_NS_PER_S + (uint64_t)now.tv_nsec;
}

const mpath_known_rail_t *mpath_known_later(const mpath_known_rail_t *a, const mpath_known_rail_t *b)
{
    if (a->learned_ns != b->learned_ns) {
        return (a->learned_ns > b->learned_ns) ? a : b;
    }
    return (a->bps <= b->bps) ? a : b;
}

unsigned mpath_known_note(int rail, const mpath_known_rail_t *known)
{
    unsigned changed = 0;

    pthread_mutex_lock(&table_lock);
    if (known->learned_ns > table[rail].learned_ns) {
        changed     = (known->bps != table[rail].bps) || (known->nominal_bps != table[rail].nominal_bps);
        table[rail] = *known;
        atomic_fetch_add(&num_changes, changed);
    }
    pthread_mutex_unlock(&table_lock);
    return changed;
}

mpath_known_rail_t mpath_known_of(int rail)
{
    mpath_known_rail_t known;

    pthread_mutex_lock(&table_lock);
    known = table[rail];
    pthread_mutex_unlock(&table_lock);
    return known;
}

unsigned mpath_known_changes(void)
{
    return atomic_load(&num_changes);
}
