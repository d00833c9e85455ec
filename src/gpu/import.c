/* SPDX-License-Identifier: BSD-3-Clause */
/* Cache of the allocations of other processes that are open in this one. */
#include "gpu/import.h"
#include "gpu/import_open.h"
#include "gpu/private.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IMPORT_LIMIT_START 128 /* until the first communicator says what its parameter is */

struct mpath_import {
    mpath_import_t *next;
    mpath_gpu_t *gpu;
    mpath_export_t export;
    mpath_export_piece_t *pieces; /* of mapped ones */
    mpath_import_mapping_t mapping;
    uint64_t used; /* clock of the last use */
    unsigned users;
    int stale; /* not to be found any more: closed when its last use ends */
};

static struct {
    pthread_mutex_t lock;
    mpath_import_t *first;
    mpath_import_t self; /* only its address counts: stands for memory of this process */
    uint64_t clock;
    uint64_t stamp; /* grows when an entry is closed or not to be found any more */
    unsigned limit;
    mpath_import_counts_t counts;
} imports = {.lock = PTHREAD_MUTEX_INITIALIZER, .stamp = 1, .limit = IMPORT_LIMIT_START};

static int import_same_owner(const mpath_process_t *left, const mpath_process_t *right)
{
    return (left->pid == right->pid) && (left->start_ticks == right->start_ticks) &&
           (left->pid_space == right->pid_space);
}

/* Unlinks and closes; `at` is the link to the entry. */
static void import_close(mpath_import_t **at)
{
    mpath_import_t *entry = *at;

    *at = entry->next;
    imports.stamp++;
    imports.counts.entries--;
    mpath_import_unmap(entry->gpu, &entry->export, &entry->mapping);
    free(entry->pieces);
    free(entry);
}

/* Closes the entry, or has it closed when its use ends. Returns 1 when it is closed. */
static int import_retire(mpath_import_t **at)
{
    if ((*at)->users == 0) {
        import_close(at);
        return 1;
    }
    (*at)->stale = 1;
    imports.stamp++;
    return 0;
}

static int import_is_same(const mpath_export_t *left, const mpath_export_t *right)
{
    return memcmp(left, right, sizeof(*left)) == 0;
}

/* Whether the entry's mapping has gone with its context, or the export shows that what it maps is gone. */
static int import_is_stale(const mpath_import_t *entry, const mpath_export_t *export,
                           const mpath_export_piece_t *pieces)
{
    const mpath_export_t *mapped = &entry->export;

    if (mpath_gpu_is_lost(entry->gpu)) {
        return 1;
    }
    if (!import_same_owner(&mapped->owner, &export->owner) || (mapped->base >= export->base + export->bytes) ||
        (export->base >= mapped->base + mapped->bytes) || import_is_same(mapped, export)) {
        return 0;
    }
    /* Extents over the same pieces of VMM memory are good both; everything else lives at one place only. */
    return !mpath_export_is_mapped(mapped) || !mpath_export_is_mapped(export) ||
           mpath_export_pieces_differ(mapped, entry->pieces, export, pieces) ||
           ((mapped->base == export->base) && (mapped->bytes == export->bytes));
}

/*
 * The entry of this export. When it is there, no other one is stale: that has been found out when the later of them
 * came.
 */
static mpath_import_t *import_lookup(const mpath_export_t *export, const mpath_gpu_t *gpu)
{
    mpath_import_t *entry = imports.first;

    while ((entry != NULL) &&
           (entry->stale || (entry->gpu != gpu) || mpath_gpu_is_lost(gpu) || !import_is_same(&entry->export, export))) {
        entry = entry->next;
    }
    return entry;
}

/* Retires what a new export shows to be stale. */
static void import_retire_stale(const mpath_export_t *export, const mpath_export_piece_t *pieces)
{
    mpath_import_t **at;

    for (at = &imports.first; *at != NULL;) {
        if (!(*at)->stale && import_is_stale(*at, export, pieces)) {
            imports.counts.stale++;
            if (import_retire(at)) {
                continue;
            }
        }
        at = &(*at)->next;
    }
}

/* Closes the least recently used entries above the limit. */
static void import_trim(void)
{
    mpath_import_t **at, **oldest;

    while (imports.counts.entries - imports.counts.in_use > imports.limit) {
        oldest = NULL;
        for (at = &imports.first; *at != NULL; at = &(*at)->next) {
            if (((*at)->users == 0) && ((oldest == NULL) || ((*at)->used < (*oldest)->used))) {
                oldest = at;
            }
        }
        if (oldest == NULL) {
            return;
        }
        import_close(oldest);
        imports.counts.evicted++;
    }
}

static void import_use(mpath_import_t *entry)
{
    entry->used = ++imports.clock;
    imports.counts.in_use += (entry->users++ == 0);
}

static mpath_status_t import_make(const mpath_export_t *export, mpath_gpu_t *gpu, mpath_import_t *entry)
{
    mpath_status_t status = MPATH_OK;

    entry->export = *export;
    entry->gpu    = gpu;
    if (mpath_export_is_mapped(export)) {
        status = mpath_import_pieces(export, &entry->pieces);
    }
    if (status == MPATH_OK) {
        import_retire_stale(export, entry->pieces);
        status = mpath_import_map(gpu, export, entry->pieces, &entry->mapping);
    }
    return status;
}

/* Under the lock. */
static mpath_status_t import_open(const mpath_export_t *export, mpath_gpu_t *gpu, mpath_import_t **import_p)
{
    mpath_import_t *entry = calloc(1, sizeof(*entry));
    mpath_status_t status;

    if (entry == NULL) {
        mpath_error("no memory for the import of GPU memory of process %" PRId64, export->owner.pid);
        return MPATH_ERR_NO_MEMORY;
    }
    status = import_make(export, gpu, entry);
    if (status != MPATH_OK) {
        free(entry->pieces);
        free(entry);
        return status;
    }
    entry->next   = imports.first;
    imports.first = entry;
    imports.counts.entries++;
    imports.counts.opened++;
    *import_p = entry;
    return MPATH_OK;
}

mpath_status_t mpath_import_get(const mpath_export_t *export, mpath_gpu_t *gpu, mpath_import_t **import_p)
{
    mpath_status_t status = MPATH_OK;
    mpath_import_t *entry;
    mpath_process_t self;

    if ((export->how < MPATH_EXPORT_IPC) || (export->how > MPATH_EXPORT_FABRIC) || (export->bytes == 0)) {
        mpath_error("an export of kind %" PRIu32 " names no GPU memory", export->how);
        return MPATH_ERR_PARAM;
    }
    if (export->owner.pid == getpid()) {
        mpath_process_self(&self);
        if (import_same_owner(&self, &export->owner)) {
            *import_p = &imports.self;
            return MPATH_OK;
        }
    }
    pthread_mutex_lock(&imports.lock);
    entry = import_lookup(export, gpu);
    if (entry != NULL) {
        imports.counts.reused++;
    } else {
        status = import_open(export, gpu, &entry);
    }
    if (status == MPATH_OK) {
        import_use(entry);
        import_trim();
        *import_p = entry;
    }
    pthread_mutex_unlock(&imports.lock);
    return status;
}

mpath_cu_ptr_t mpath_import_address(const mpath_import_t *import, uint64_t address)
{
    return (import == &imports.self) ? address : import->mapping.address + (address - import->export.base);
}

/* Under the lock. */
static void import_put(mpath_import_t *import)
{
    mpath_import_t **at;

    if (--import->users > 0) {
        return;
    }
    imports.counts.in_use--;
    if (import->stale) {
        for (at = &imports.first; *at != import; at = &(*at)->next) {
        }
        import_close(at);
    } else {
        import_trim();
    }
}

void mpath_import_put(mpath_import_t *import)
{
    (void)mpath_import_put_all(&import, 1);
}

uint64_t mpath_import_put_all(mpath_import_t *const *list, unsigned count)
{
    uint64_t stamp;

    pthread_mutex_lock(&imports.lock);
    stamp = imports.stamp; /* what is closed from here on may be one of these */
    for (unsigned i = 0; i < count; i++) {
        if ((list[i] != NULL) && (list[i] != &imports.self)) {
            stamp = list[i]->stale ? 0 : stamp;
            import_put(list[i]);
        }
    }
    pthread_mutex_unlock(&imports.lock);
    return stamp;
}

int mpath_import_take_again(mpath_import_t *const *list, unsigned count, uint64_t stamp)
{
    int same;

    pthread_mutex_lock(&imports.lock);
    same = stamp == imports.stamp;
    for (unsigned i = 0; same && (i < count); i++) {
        if ((list[i] != NULL) && (list[i] != &imports.self)) {
            import_use(list[i]);
            imports.counts.reused++;
        }
    }
    pthread_mutex_unlock(&imports.lock);
    return same;
}

void mpath_import_forget(const mpath_process_t *owner)
{
    mpath_import_t **at;

    pthread_mutex_lock(&imports.lock);
    for (at = &imports.first; *at != NULL;) {
        if (!import_same_owner(&(*at)->export.owner, owner) || !import_retire(at)) {
            at = &(*at)->next;
        }
    }
    pthread_mutex_unlock(&imports.lock);
}

void mpath_import_set_limit(unsigned entries)
{
    pthread_mutex_lock(&imports.lock);
    imports.limit = entries;
    import_trim();
    pthread_mutex_unlock(&imports.lock);
}

void mpath_import_counts(mpath_import_counts_t *counts)
{
    pthread_mutex_lock(&imports.lock);
    *counts = imports.counts;
    pthread_mutex_unlock(&imports.lock);
}

void mpath_import_cleanup(void)
{
    pthread_mutex_lock(&imports.lock);
    while (imports.first != NULL) {
        import_close(&imports.first);
    }
    memset(&imports.counts, 0, sizeof(imports.counts));
    pthread_mutex_unlock(&imports.lock);
}
