/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allocations of other processes as addresses in this one: a cache, one per process, bounded (least recently used goes
 * first), since opening takes 1 to 10 ms and a driver opens one allocation only once.
 *
 * An entry is known by owner, base and device that opened it. When the owner has freed the allocation and the address
 * belongs to a new one, the export carries another buffer id and handle: the old mapping is closed and the new one
 * opened, without anybody asking for it; so it is with extents of which a block has been mapped anew. Entries in use
 * (between get and put) are never closed by the cache.
 *
 * Closing is safe after the owner has ended: the driver keeps the memory until the last mapping goes.
 *
 * Thread-safety: every function may be called by any thread.
 */
#ifndef MPATH_DEVICE_IPC_IMPORT_H
#define MPATH_DEVICE_IPC_IMPORT_H

#include "device/gpu.h"
#include "device/ipc_export.h"

typedef struct mpath_import mpath_import_t;

/*
 * Opens `export` for copies and kernels of `gpu`. An export of this very process yields its own address. Errors,
 * logged: MPATH_ERR_UNREACHABLE when the devices have no peer access or the owner is gone, MPATH_ERR_UNSUPPORTED when
 * the owner's descriptors cannot be fetched, MPATH_ERR_IO when the driver refuses.
 */
mpath_status_t mpath_import_get(const mpath_export_t *export, mpath_gpu_t *gpu, mpath_import_t **import_p);

/* The address here of what is `address` in the owner, which the export covers. */
mpath_device_ptr_t mpath_import_address(const mpath_import_t *import, uint64_t address);

/* Ends a use; the mapping stays in the cache. All work on it must have finished. */
void mpath_import_put(mpath_import_t *import);

/*
 * The same for several, NULL where there is none. The stamp serves to take all of them again without looking: 1, unless
 * some entry of the cache has been closed or given up since this use began to end; then 0, and nothing is taken.
 */
uint64_t mpath_import_put_all(mpath_import_t *const *list, unsigned count);

int mpath_import_take_again(mpath_import_t *const *list, unsigned count, uint64_t stamp);

/* Closes every entry of that owner that is not in use, and the others when their use ends. */
void mpath_import_forget(const mpath_process_t *owner);

/* Upper limit of open mappings that are not in use, for the whole process. */
void mpath_import_set_limit(unsigned entries);

typedef struct mpath_import_counts {
    uint64_t opened, reused, stale, evicted; /* stale: gone, or the address belongs to another allocation now */
    unsigned entries, in_use;
} mpath_import_counts_t;

void mpath_import_counts(mpath_import_counts_t *counts);

/*
 * How one allocation of another process is mapped and unmapped, by its kind of export. Under the lock of the import
 * cache.
 */

typedef struct mpath_import_mapping {
    mpath_device_ptr_t address; /* of the export's first byte */
    uint64_t bytes;             /* of FDS: address space taken */
} mpath_import_mapping_t;

/* For mpath_gpu_cleanup(). */
void mpath_import_cleanup(void);

#endif
