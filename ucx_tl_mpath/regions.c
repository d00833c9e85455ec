/* SPDX-License-Identifier: BSD-3-Clause */
/* A table of registered memory. An id is the generation of a slot and its number. */
#include "ucx_tl_mpath/regions.h"

#include <stdlib.h>

#define FIRST_SIZE 16u

mpath_status_t mpath_regions_init(mpath_regions_t *regions)
{
    regions->table      = NULL;
    regions->size       = 0;
    regions->first_free = 0;
    return pthread_rwlock_init(&regions->lock, NULL) == 0 ? MPATH_OK : MPATH_ERR_NO_MEMORY;
}

void mpath_regions_release(mpath_regions_t *regions)
{
    pthread_rwlock_destroy(&regions->lock);
    free(regions->table);
    regions->table = NULL;
}

static mpath_status_t grow(mpath_regions_t *regions)
{
    uint32_t size = regions->size == 0 ? FIRST_SIZE : 2 * regions->size, slot;
    mpath_region_t *table;

    if (size < regions->size) {
        return MPATH_ERR_NO_MEMORY;
    }
    table = realloc(regions->table, size * sizeof(*table));
    if (table == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    for (slot = regions->size; slot < size; ++slot) {
        table[slot] = (mpath_region_t){.next_free = slot + 1 < size ? slot + 2 : 0};
    }
    regions->first_free = regions->size + 1;
    regions->table      = table;
    regions->size       = size;
    return MPATH_OK;
}

mpath_status_t mpath_regions_add(mpath_regions_t *regions, const void *start, size_t bytes, uint64_t *id_p)
{
    mpath_status_t status = MPATH_OK;
    mpath_region_t *region;
    uint32_t slot;

    pthread_rwlock_wrlock(&regions->lock);
    if (regions->first_free == 0) {
        status = grow(regions);
    }
    if (status == MPATH_OK) {
        slot                = regions->first_free - 1;
        region              = &regions->table[slot];
        regions->first_free = region->next_free;
        region->start       = (uint64_t)(uintptr_t)start;
        region->bytes       = bytes;
        region->generation += region->generation == 0;
        *id_p = (uint64_t)region->generation << 32 | slot;
    }
    pthread_rwlock_unlock(&regions->lock);
    return status;
}

static mpath_region_t *find(const mpath_regions_t *regions, uint64_t id)
{
    uint32_t slot = (uint32_t)id;

    return slot < regions->size && regions->table[slot].generation == (uint32_t)(id >> 32) ? &regions->table[slot]
                                                                                           : NULL;
}

void mpath_regions_remove(mpath_regions_t *regions, uint64_t id)
{
    mpath_region_t *region;

    pthread_rwlock_wrlock(&regions->lock);
    region = find(regions, id);
    if (region != NULL) {
        ++region->generation;
        region->bytes       = 0;
        region->next_free   = regions->first_free;
        regions->first_free = (uint32_t)id + 1;
    }
    pthread_rwlock_unlock(&regions->lock);
}

int mpath_regions_enter(mpath_regions_t *regions, uint64_t id, uint64_t address, uint64_t bytes)
{
    const mpath_region_t *region;

    pthread_rwlock_rdlock(&regions->lock);
    region = find(regions, id);
    if (region != NULL && address >= region->start && bytes <= region->bytes &&
        address - region->start <= region->bytes - bytes) {
        return 1;
    }
    pthread_rwlock_unlock(&regions->lock);
    return 0;
}

void mpath_regions_leave(mpath_regions_t *regions)
{
    pthread_rwlock_unlock(&regions->lock);
}
