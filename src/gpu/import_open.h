/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How one allocation of another process is mapped and unmapped, by its kind of export. Under the lock of the import
 * cache.
 */
#ifndef MPATH_GPU_IMPORT_OPEN_H
#define MPATH_GPU_IMPORT_OPEN_H

#include "gpu/device.h"
#include "gpu/export_pieces.h"

typedef struct mpath_import_mapping {
    mpath_cu_ptr_t address; /* of the export's first byte */
    uint64_t bytes;         /* of FDS: address space taken */
} mpath_import_mapping_t;

/* `list`: of FDS and FABRIC (mpath_import_pieces()). Errors as of mpath_import_get(). */
mpath_status_t mpath_import_map(mpath_gpu_t *gpu, const mpath_export_t *export, const mpath_export_piece_t *list,
                                mpath_import_mapping_t *mapping);
void mpath_import_unmap(mpath_gpu_t *gpu, const mpath_export_t *export, const mpath_import_mapping_t *mapping);

#endif
