/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registered memory that peers reach by messages. A region's id travels in remote keys and in every put and get, and
 * the process that serves them looks it up: what is not registered any more, or lies outside, is not touched. So memory
 * can be taken back from a peer that failed (UCT's invalidation), and a stray access spoils nothing. No UCX in here.
 *
 * Registration and accesses may come from several threads: workers of UCX share a memory domain.
 */
#ifndef UCX_TL_MPATH_REGIONS_H
#define UCX_TL_MPATH_REGIONS_H

#include "util/status.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

typedef struct mpath_region {
    uint64_t start, bytes;
    uint32_t generation; /* changes when the region goes: an old id is not taken for a new one */
    uint32_t next_free;  /* slot + 1; 0: none */
} mpath_region_t;

typedef struct mpath_regions {
    pthread_rwlock_t lock; /* read while memory is accessed, written while the table changes */
    mpath_region_t *table;
    uint32_t size, first_free; /* slot + 1; 0: none */
} mpath_regions_t;

mpath_status_t mpath_regions_init(mpath_regions_t *regions);
void mpath_regions_release(mpath_regions_t *regions);

/* Ids are never 0. MPATH_ERR_NO_MEMORY. */
mpath_status_t mpath_regions_add(mpath_regions_t *regions, const void *start, size_t bytes, uint64_t *id_p);
/* When it returns, nobody accesses the region any more, and nobody will. */
void mpath_regions_remove(mpath_regions_t *regions, uint64_t id);

/* Nonzero: `bytes` at `address` lie in the region, which stays until mpath_regions_leave; else there is no leaving. */
int mpath_regions_enter(mpath_regions_t *regions, uint64_t id, uint64_t address, uint64_t bytes);
void mpath_regions_leave(mpath_regions_t *regions);

#endif
