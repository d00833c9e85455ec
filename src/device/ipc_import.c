/* SPDX-License-Identifier: BSD-3-Clause */
/* Cache of the allocations of other processes that are open in this one. */
#include "device/ipc_import.h"

#include "device/ipc_export.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int import_fd(const mpath_process_t *owner, int fd);

/* Opening exports: CUDA IPC, physical memory behind descriptors or fabric handles, pointers of shared pools. */

/* A pool of another process, imported once per owner and number. */
typedef struct import_pool {
    struct import_pool *next;
    mpath_process_t owner;
    uint32_t number;
    mpath_device_pool_t pool;
    uint64_t devices; /* bit per ordinal: access has been given */
    unsigned users;   /* mappings */
} import_pool_t;

static import_pool_t *import_pools;

static mpath_status_t import_refused(const mpath_gpu_t *gpu, const mpath_export_t *export, const char *call,
                                     mpath_device_result_t result)
{
    const mpath_gpu_info_t *info = mpath_gpu_info_of(gpu);

    mpath_error("GPU %d (%s) cannot open %" PRIu64 " bytes of GPU memory of process %" PRId64 ": %s: %s", info->ordinal,
                info->pci, export->bytes, export->owner.pid, call, mpath_device_error_string(result));
    return ((result == MPATH_DEVICE_PEER_UNSUPPORTED) || !mpath_process_alive(&export->owner))
               ? MPATH_ERR_UNREACHABLE
               : mpath_device_status(result);
}

/* Of a function of the driver. */
static mpath_status_t import_status(const mpath_gpu_t *gpu, const mpath_export_t *export, mpath_device_result_t result)
{
    return (result == MPATH_DEVICE_DONE) ? MPATH_OK
                                         : import_refused(gpu, export, mpath_device()->failed_call(), result);
}

/* Maps one block at `address`. Errors are logged. */
static mpath_status_t import_map_block(mpath_gpu_t *gpu, const mpath_export_t *export, const mpath_export_block_t *list,
                                       uint32_t block, mpath_device_ptr_t address)
{
    const mpath_device_ops_t *ops = mpath_device();
    const uint64_t bytes          = list[block].bytes;
    mpath_device_result_t result;
    int fd;

    if (export->how == MPATH_EXPORT_FABRIC) {
        result = ops->block_map_fabric(address, bytes, &export->handle.fabric[block]);
    } else {
        fd = import_fd(&export->owner, list[block].fd);
        if (fd < 0) {
            return mpath_process_alive(&export->owner) ? MPATH_ERR_UNSUPPORTED : MPATH_ERR_UNREACHABLE;
        }
        result = ops->block_map_fd(address, bytes, fd);
        close(fd);
    }
    return import_status(gpu, export, result);
}

static mpath_status_t import_map_blocks(mpath_gpu_t *gpu, const mpath_export_t *export,
                                        const mpath_export_block_t *list, mpath_import_mapping_t *mapping)
{
    const mpath_device_ops_t *ops = mpath_device();
    uint64_t mapped               = 0;
    mpath_status_t status;
    uint32_t block;

    status = import_status(gpu, export, ops->blocks_reserve(export->bytes, &mapping->address));
    if (status != MPATH_OK) {
        return status;
    }
    mapping->bytes = export->bytes;
    for (block = 0; block < export->blocks; block++) {
        status = import_map_block(gpu, export, list, block, mapping->address + mapped);
        if (status != MPATH_OK) {
            goto err_release;
        }
        mapped += list[block].bytes;
    }
    status = import_status(gpu, export,
                           ops->blocks_allow(mapping->address, export->bytes, mpath_gpu_info_of(gpu)->ordinal));
    if (status != MPATH_OK) {
        goto err_release;
    }
    return MPATH_OK;

err_release:
    ops->blocks_release(mapping->address, export->bytes, mapped);
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
    import_pool_t *pool;
    mpath_status_t status;
    int fd;

    for (pool = import_pools; pool != NULL; pool = pool->next) {
        if (import_pool_is(pool, export)) {
            *pool_p = pool;
            return MPATH_OK;
        }
    }
    fd = import_fd(&export->owner, export->handle.pool.fd);
    if (fd < 0) {
        return mpath_process_alive(&export->owner) ? MPATH_ERR_UNSUPPORTED : MPATH_ERR_UNREACHABLE;
    }
    pool = calloc(1, sizeof(*pool));
    if (pool == NULL) {
        close(fd);
        return import_refused(gpu, export, "calloc", MPATH_DEVICE_NO_MEMORY);
    }
    status = import_status(gpu, export, mpath_device()->pool_open(fd, &pool->pool));
    close(fd);
    if (status != MPATH_OK) {
        free(pool);
        return status;
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
    const mpath_device_ops_t *ops = mpath_device();
    const int ordinal             = mpath_gpu_info_of(gpu)->ordinal;
    const uint64_t bit            = UINT64_C(1) << ordinal;
    import_pool_t *pool           = NULL;
    mpath_status_t status         = import_pool_get(gpu, export, &pool);

    if (status != MPATH_OK) {
        return status;
    }
    if (!(pool->devices & bit)) {
        status = import_status(gpu, export, ops->pool_allow(pool->pool, ordinal));
        if (status != MPATH_OK) {
            return status;
        }
        pool->devices |= bit;
    }
    status = import_status(gpu, export,
                           ops->pool_open_ptr(pool->pool, &export->handle.pool.pointer, &mapping->address));
    pool->users += (status == MPATH_OK);
    return status;
}

/* A pool without mappings is given back: it would keep the memory of an owner that has ended. */
static void import_unmap_pool(const mpath_export_t *export, const mpath_import_mapping_t *mapping)
{
    const mpath_device_ops_t *ops = mpath_device();
    import_pool_t **at, *pool;

    ops->pool_close_ptr(mapping->address);
    for (at = &import_pools; *at != NULL; at = &(*at)->next) {
        pool = *at;
        if (import_pool_is(pool, export)) {
            if (--pool->users == 0) {
                *at = pool->next;
                ops->pool_close(pool->pool);
                free(pool);
            }
            return;
        }
    }
}

/* `list`: of FDS and FABRIC (mpath_import_blocks()). Errors as of mpath_import_get(). */
static mpath_status_t import_map(mpath_gpu_t *gpu, const mpath_export_t *export, const mpath_export_block_t *list,
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
        status = import_status(gpu, export, mpath_device()->ipc_open(&export->handle.ipc, &mapping->address));
        break;
    case MPATH_EXPORT_FDS:
    case MPATH_EXPORT_FABRIC:
        status = import_map_blocks(gpu, export, list, mapping);
        break;
    default:
        status = import_map_pool(gpu, export, mapping);
        break;
    }
    mpath_gpu_leave(gpu);
    return status;
}

/*
 * Errors are of no use here: the driver may have shut down, the owner may be gone. Of a GPU that is lost the mappings
 * of whole allocations have gone with the context; the others belong to the process, and the driver needs no context to end them.
 */
static void import_unmap(mpath_gpu_t *gpu, const mpath_export_t *export, const mpath_import_mapping_t *mapping)
{
    const mpath_device_ops_t *ops = mpath_device();
    int entered                   = (ops != NULL) && (mpath_gpu_enter(gpu) == MPATH_OK);

    if ((ops == NULL) || (!entered && (export->how == MPATH_EXPORT_IPC))) {
        return;
    }
    switch (export->how) {
    case MPATH_EXPORT_IPC:
        ops->ipc_close(mapping->address);
        break;
    case MPATH_EXPORT_FDS:
    case MPATH_EXPORT_FABRIC:
        ops->blocks_release(mapping->address, mapping->bytes, mapping->bytes);
        break;
    default:
        import_unmap_pool(export, mapping);
        break;
    }
    if (entered) {
        mpath_gpu_leave(gpu);
    }
}

/* The importers' side of device/ipc_export.h. */

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

/* For importers: copies a descriptor of the owner into this process. -1: logged. */
static int import_fd(const mpath_process_t *owner, int fd)
{
    int pidfd, mine;

    pidfd = (int)syscall(SYS_pidfd_open, (pid_t)owner->pid, 0);
    if (pidfd < 0) {
        mpath_error("process %" PRId64 " cannot be asked for its GPU memory: pidfd_open: %s", owner->pid,
                    strerror(errno));
        return -1;
    }
    mine = (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
    if (mine < 0) {
        mpath_error("the descriptor of GPU memory of process %" PRId64 " cannot be fetched: pidfd_getfd: %s%s",
                    owner->pid, strerror(errno),
                    (errno == EPERM) ? "; processes of one user need kernel.yama.ptrace_scope 0 or 1" : "");
    }
    close(pidfd);
    return mine;
}

/* Whether the file is the list of the export, whose owner may have given it up. */
static int list_read(int fd, const mpath_export_t *export, mpath_export_block_t *list)
{
    const ssize_t bytes = (ssize_t)(export->blocks * sizeof(*list));
    mpath_export_list_t head;
    uint64_t sum = 0;

    if ((pread(fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head)) || (head.magic != MPATH_EXPORT_LIST_MAGIC) ||
        (head.base != export->base) || (head.bytes != export->bytes) || (head.buffer_id != export->buffer_id) ||
        (head.blocks != export->blocks) || (pread(fd, list, (size_t)bytes, sizeof(head)) != bytes)) {
        return 0;
    }
    for (uint32_t i = 0; i < export->blocks; i++) {
        sum += list[i].bytes;
    }
    return sum == export->bytes;
}

static mpath_status_t list_fetch(const mpath_export_t *export, mpath_export_block_t *list)
{
    int fd = import_fd(&export->owner, export->handle.list), good;

    if (fd < 0) {
        return mpath_process_alive(&export->owner) ? MPATH_ERR_UNSUPPORTED : MPATH_ERR_UNREACHABLE;
    }
    good = list_read(fd, export, list);
    close(fd);
    if (!good) {
        mpath_error("the list of %" PRIu32 " pieces of GPU memory of process %" PRId64 " is no longer there",
                    export->blocks, export->owner.pid);
        return MPATH_ERR_UNSUPPORTED;
    }
    return MPATH_OK;
}

mpath_status_t mpath_import_blocks(const mpath_export_t *export, mpath_export_block_t **list_p)
{
    const uint32_t most = (export->how == MPATH_EXPORT_FDS) ? MPATH_EXPORT_BLOCKS_MAX : MPATH_EXPORT_FABRIC_MAX;
    mpath_export_block_t *list;
    mpath_status_t status = MPATH_OK;

    if ((export->blocks == 0) || (export->blocks > most)) {
        mpath_error("an export names %" PRIu32 " pieces of GPU memory", export->blocks);
        return MPATH_ERR_PARAM;
    }
    list = calloc(export->blocks, sizeof(*list));
    if (list == NULL) {
        mpath_error("no memory for the list of %" PRIu32 " pieces of GPU memory", export->blocks);
        return MPATH_ERR_NO_MEMORY;
    }
    if (export->how == MPATH_EXPORT_FDS) {
        status = list_fetch(export, list);
    }
    for (uint32_t i = 0; (export->how == MPATH_EXPORT_FABRIC) && (i < export->blocks); i++) {
        uint64_t rest = export->bytes - i * export->block_bytes;

        list[i].bytes = (i + 1 < export->blocks) ? export->block_bytes : rest;
        list[i].id    = export->fabric_ids[i];
    }
    if (status != MPATH_OK) {
        free(list);
        return status;
    }
    *list_p = list;
    return MPATH_OK;
}

int mpath_export_blocks_differ(const mpath_export_t *a, const mpath_export_block_t *a_list, const mpath_export_t *b,
                               const mpath_export_block_t *b_list)
{
    uint64_t a_at = a->base, b_at = b->base;
    uint32_t i = 0, k = 0;

    while ((i < a->blocks) && (k < b->blocks)) {
        if (a_at == b_at) {
            if ((a_list[i].id != b_list[k].id) || (a_list[i].bytes != b_list[k].bytes)) {
                return 1;
            }
            a_at += a_list[i++].bytes;
            b_at += b_list[k++].bytes;
        } else if (a_at < b_at) {
            a_at += a_list[i++].bytes;
            if (a_at > b_at) {
                return 1; /* it reaches over the border */
            }
        } else {
            b_at += b_list[k++].bytes;
            if (b_at > a_at) {
                return 1;
            }
        }
    }
    return 0;
}

#define IMPORT_LIMIT_START 128 /* until the first communicator says what its parameter is */

struct mpath_import {
    mpath_import_t *next;
    mpath_gpu_t *gpu;
    mpath_export_t export;
    mpath_export_block_t *blocks; /* of mapped ones */
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
    import_unmap(entry->gpu, &entry->export, &entry->mapping);
    free(entry->blocks);
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
                           const mpath_export_block_t *blocks)
{
    const mpath_export_t *mapped = &entry->export;

    if (mpath_gpu_is_lost(entry->gpu)) {
        return 1;
    }
    if (!import_same_owner(&mapped->owner, &export->owner) || (mapped->base >= export->base + export->bytes) ||
        (export->base >= mapped->base + mapped->bytes) || import_is_same(mapped, export)) {
        return 0;
    }
    /* Extents over the same blocks of VMM memory are good both; everything else lives at one place only. */
    return !mpath_export_is_mapped(mapped) || !mpath_export_is_mapped(export) ||
           mpath_export_blocks_differ(mapped, entry->blocks, export, blocks) ||
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
static void import_retire_stale(const mpath_export_t *export, const mpath_export_block_t *blocks)
{
    mpath_import_t **at;

    for (at = &imports.first; *at != NULL;) {
        if (!(*at)->stale && import_is_stale(*at, export, blocks)) {
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
        status = mpath_import_blocks(export, &entry->blocks);
    }
    if (status == MPATH_OK) {
        import_retire_stale(export, entry->blocks);
        status = import_map(gpu, export, entry->blocks, &entry->mapping);
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
        free(entry->blocks);
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
    mpath_process_self(&self);
    if (import_same_owner(&self, &export->owner)) {
        *import_p = &imports.self;
        return MPATH_OK;
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

mpath_device_ptr_t mpath_import_address(const mpath_import_t *import, uint64_t address)
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
