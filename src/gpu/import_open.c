/* SPDX-License-Identifier: BSD-3-Clause */
/* Opening exports: CUDA IPC, physical memory behind descriptors or fabric handles, pointers of shared pools. */
#include "gpu/import_open.h"
#include "gpu/private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A pool of another process, imported once per owner and number. */
typedef struct import_pool {
    struct import_pool *next;
    mpath_process_t owner;
    uint32_t number;
    mpath_cu_pool_t pool;
    uint64_t devices; /* bit per ordinal: access has been given */
    unsigned users;   /* mappings */
} import_pool_t;

static import_pool_t *import_pools;

static mpath_status_t import_refused(const mpath_gpu_t *gpu, const mpath_export_t *export, const char *call,
                                     mpath_cu_result_t result)
{
    mpath_error("GPU %d (%s) cannot open %" PRIu64 " bytes of GPU memory of process %" PRId64 ": %s: %s",
                gpu->info.ordinal, gpu->info.pci, export->bytes, export->owner.pid, call,
                mpath_cu_error_string(result));
    return ((result == MPATH_CU_PEER_UNSUPPORTED) || !mpath_process_alive(&export->owner)) ? MPATH_ERR_UNREACHABLE
                                                                                           : mpath_cu_status(result);
}

static mpath_status_t import_map_ipc(mpath_gpu_t *gpu, const mpath_export_t *export, mpath_import_mapping_t *mapping)
{
    mpath_cu_result_t result = mpath_gpu_driver()->IpcOpenMemHandle(&mapping->address, export->handle.ipc,
                                                                    MPATH_CU_IPC_LAZY_PEER_ACCESS);

    return (result == MPATH_CU_SUCCESS) ? MPATH_OK : import_refused(gpu, export, "cuIpcOpenMemHandle", result);
}

/* The physical allocation behind a piece; to be released. Errors are logged. */
static mpath_status_t import_piece(mpath_gpu_t *gpu, const mpath_export_t *export, const mpath_export_piece_t *list,
                                   uint32_t piece, mpath_cu_mem_t *handle_p)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    mpath_cu_fabric_t fabric;
    mpath_cu_result_t result;
    int fd;

    if (export->how == MPATH_EXPORT_FABRIC) {
        fabric = export->handle.fabric[piece];
        result = cu->MemImportFromShareableHandle(handle_p, &fabric, MPATH_CU_HANDLE_FABRIC);
    } else {
        fd = mpath_import_fd(&export->owner, list[piece].fd);
        if (fd < 0) {
            return mpath_process_alive(&export->owner) ? MPATH_ERR_UNSUPPORTED : MPATH_ERR_UNREACHABLE;
        }
        result = cu->MemImportFromShareableHandle(handle_p, (void *)(intptr_t)fd, MPATH_CU_HANDLE_FD);
        close(fd);
    }
    return (result == MPATH_CU_SUCCESS) ? MPATH_OK
                                        : import_refused(gpu, export, "cuMemImportFromShareableHandle", result);
}

/* Maps one piece at `address`. */
static mpath_status_t import_map_piece(mpath_gpu_t *gpu, const mpath_export_t *export, const mpath_export_piece_t *list,
                                       uint32_t piece, mpath_cu_ptr_t address)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    mpath_cu_result_t result;
    mpath_cu_mem_t handle;
    mpath_status_t status = import_piece(gpu, export, list, piece, &handle);

    if (status != MPATH_OK) {
        return status;
    }
    result = cu->MemMap(address, list[piece].bytes, 0, handle, 0);
    cu->MemRelease(handle); /* the mapping holds it */
    return (result == MPATH_CU_SUCCESS) ? MPATH_OK : import_refused(gpu, export, "cuMemMap", result);
}

static mpath_status_t import_map_pieces(mpath_gpu_t *gpu, const mpath_export_t *export,
                                        const mpath_export_piece_t *list, mpath_import_mapping_t *mapping)
{
    const mpath_cu_t *cu     = mpath_gpu_driver();
    mpath_cu_access_t access = {.location = {.type = MPATH_CU_LOCATION_DEVICE, .id = gpu->info.ordinal},
                                .flags    = MPATH_CU_ACCESS_READ_WRITE};
    uint64_t mapped          = 0;
    mpath_status_t status;
    mpath_cu_result_t result;
    uint32_t piece;

    if (cu->MemAddressReserve == NULL) {
        return import_refused(gpu, export, "memory that is mapped by hand", MPATH_CU_NOT_SUPPORTED);
    }
    result = cu->MemAddressReserve(&mapping->address, export->bytes, 0, 0, 0);
    if (result != MPATH_CU_SUCCESS) {
        return import_refused(gpu, export, "cuMemAddressReserve", result);
    }
    mapping->bytes = export->bytes;
    for (piece = 0; piece < export->pieces; piece++) {
        status = import_map_piece(gpu, export, list, piece, mapping->address + mapped);
        if (status != MPATH_OK) {
            goto err_unmap;
        }
        mapped += list[piece].bytes;
    }
    result = cu->MemSetAccess(mapping->address, export->bytes, &access, 1);
    if (result != MPATH_CU_SUCCESS) {
        status = import_refused(gpu, export, "cuMemSetAccess", result);
        goto err_unmap;
    }
    return MPATH_OK;

err_unmap:
    if (mapped > 0) {
        cu->MemUnmap(mapping->address, mapped);
    }
    cu->MemAddressFree(mapping->address, export->bytes);
    return status;
}

static int import_pool_is(const import_pool_t *pool, const mpath_export_t *export)
{
    return (pool->owner.pid == export->owner.pid) && (pool->owner.start_ticks == export->owner.start_ticks) &&
           (pool->number == export->handle.pool.pool);
}

/* The owner's pool, imported when it is met first. */
static mpath_status_t import_pool_get(mpath_gpu_t *gpu, const mpath_export_t *export, import_pool_t **pool_p)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    import_pool_t *pool  = NULL;
    mpath_cu_result_t result;
    int fd;

    for (pool = import_pools; pool != NULL; pool = pool->next) {
        if (import_pool_is(pool, export)) {
            *pool_p = pool;
            return MPATH_OK;
        }
    }
    fd = mpath_import_fd(&export->owner, export->handle.pool.fd);
    if (fd < 0) {
        return mpath_process_alive(&export->owner) ? MPATH_ERR_UNSUPPORTED : MPATH_ERR_UNREACHABLE;
    }
    pool = calloc(1, sizeof(*pool));
    if (pool == NULL) {
        close(fd);
        return import_refused(gpu, export, "calloc", MPATH_CU_OUT_OF_MEMORY);
    }
    result = cu->MemPoolImportFromShareableHandle(&pool->pool, (void *)(intptr_t)fd, MPATH_CU_HANDLE_FD, 0);
    close(fd);
    if (result != MPATH_CU_SUCCESS) {
        free(pool);
        return import_refused(gpu, export, "cuMemPoolImportFromShareableHandle", result);
    }
    pool->owner  = export->owner;
    pool->number = export->handle.pool.pool;
    pool->next   = import_pools;
    import_pools = pool;
    *pool_p      = pool;
    return MPATH_OK;
}

static mpath_status_t import_map_pool(mpath_gpu_t *gpu, const mpath_export_t *export, mpath_import_mapping_t *mapping)
{
    const mpath_cu_t *cu        = mpath_gpu_driver();
    mpath_cu_access_t access    = {.location = {.type = MPATH_CU_LOCATION_DEVICE, .id = gpu->info.ordinal},
                                   .flags    = MPATH_CU_ACCESS_READ_WRITE};
    mpath_cu_pool_ptr_t pointer = export->handle.pool.pointer;
    uint64_t bit                = UINT64_C(1) << gpu->info.ordinal;
    mpath_cu_result_t result;
    mpath_status_t status;
    import_pool_t *pool = NULL;

    if (cu->MemPoolImportPointer == NULL) {
        return import_refused(gpu, export, "memory of pools", MPATH_CU_NOT_SUPPORTED);
    }
    status = import_pool_get(gpu, export, &pool);
    if (status != MPATH_OK) {
        return status;
    }
    if (!(pool->devices & bit)) {
        result = cu->MemPoolSetAccess(pool->pool, &access, 1);
        if (result != MPATH_CU_SUCCESS) {
            return import_refused(gpu, export, "cuMemPoolSetAccess", result);
        }
        pool->devices |= bit;
    }
    result = cu->MemPoolImportPointer(&mapping->address, pool->pool, &pointer);
    if (result != MPATH_CU_SUCCESS) {
        return import_refused(gpu, export, "cuMemPoolImportPointer", result);
    }
    pool->users++;
    return MPATH_OK;
}

/* A pool without mappings is given back: it would keep the memory of an owner that has ended. */
static void import_unmap_pool(const mpath_export_t *export, const mpath_import_mapping_t *mapping)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    import_pool_t **at, *pool;

    cu->MemFree(mapping->address);
    for (at = &import_pools; *at != NULL; at = &(*at)->next) {
        pool = *at;
        if (import_pool_is(pool, export)) {
            if (--pool->users == 0) {
                *at = pool->next;
                cu->MemPoolDestroy(pool->pool);
                free(pool);
            }
            return;
        }
    }
}

mpath_status_t mpath_import_map(mpath_gpu_t *gpu, const mpath_export_t *export, const mpath_export_piece_t *list,
                                mpath_import_mapping_t *mapping)
{
    mpath_status_t status;

    if (!mpath_process_alive(&export->owner)) {
        mpath_error("the GPU memory of process %" PRId64 " cannot be opened: the process has ended", export->owner.pid);
        return MPATH_ERR_UNREACHABLE;
    }
    status = mpath_gpu_enter(gpu);
    if (status != MPATH_OK) {
        return status;
    }
    memset(mapping, 0, sizeof(*mapping));
    switch (export->how) {
    case MPATH_EXPORT_IPC:
        status = import_map_ipc(gpu, export, mapping);
        break;
    case MPATH_EXPORT_FDS:
    case MPATH_EXPORT_FABRIC:
        status = import_map_pieces(gpu, export, list, mapping);
        break;
    default:
        status = import_map_pool(gpu, export, mapping);
        break;
    }
    mpath_gpu_leave(gpu);
    return status;
}

/*
 * Errors are of no use here: the driver may have shut down, the owner may be gone. Of a GPU that is lost CUDA IPC's
 * mappings have gone with the context; the others belong to the process, and the driver needs no context to end them.
 */
void mpath_import_unmap(mpath_gpu_t *gpu, const mpath_export_t *export, const mpath_import_mapping_t *mapping)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    int entered          = (cu != NULL) && (mpath_gpu_enter(gpu) == MPATH_OK);

    if ((cu == NULL) || (!entered && (export->how == MPATH_EXPORT_IPC))) {
        return;
    }
    switch (export->how) {
    case MPATH_EXPORT_IPC:
        cu->IpcCloseMemHandle(mapping->address);
        break;
    case MPATH_EXPORT_FDS:
    case MPATH_EXPORT_FABRIC:
        cu->MemUnmap(mapping->address, mapping->bytes);
        cu->MemAddressFree(mapping->address, mapping->bytes);
        break;
    default:
        import_unmap_pool(export, mapping);
        break;
    }
    if (entered) {
        mpath_gpu_leave(gpu);
    }
}
