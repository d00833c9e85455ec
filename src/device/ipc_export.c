/* SPDX-License-Identifier: BSD-3-Clause */
/* Exports of this process's allocations, kept so that the driver is asked once per allocation. */

#define _GNU_SOURCE /* memfd_create() */

#include "device/ipc_export.h"

#include "util/file.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The owner's side of device/ipc_export.h: descriptors, and lists of them. */

/* A physical allocation, as long as it is in an export. */
typedef struct descriptor {
    uint64_t block_id;
    int fd;
    unsigned users;
} descriptor_t;

static struct {
    descriptor_t *list;
    size_t count, capacity;
} descriptors;

/* Descriptors that there may be. */
static uint64_t export_blocks_limit(void)
{
    struct rlimit limit;

    return ((getrlimit(RLIMIT_NOFILE, &limit) == 0) && (limit.rlim_cur != RLIM_INFINITY)) ? limit.rlim_cur / 2
                                                                                          : UINT64_C(1) << 20;
}

/* NULL: there is none. */
static descriptor_t *descriptor_find(uint64_t block_id)
{
    for (size_t i = 0; i < descriptors.count; i++) {
        if (descriptors.list[i].block_id == block_id) {
            return &descriptors.list[i];
        }
    }
    return NULL;
}

static void descriptor_put(uint64_t block_id)
{
    descriptor_t *found = descriptor_find(block_id);

    if ((found != NULL) && (--found->users == 0)) {
        close(found->fd);
        *found = descriptors.list[--descriptors.count];
    }
    if (descriptors.count == 0) {
        free(descriptors.list);
        descriptors.list     = NULL;
        descriptors.capacity = 0;
    }
}

static mpath_status_t descriptors_grow(void)
{
    size_t capacity = (descriptors.capacity == 0) ? 64 : 2 * descriptors.capacity;
    descriptor_t *list;

    if (descriptors.count >= export_blocks_limit()) {
        return MPATH_ERR_NO_MEMORY;
    }
    if (descriptors.count < descriptors.capacity) {
        return MPATH_OK;
    }
    list = realloc(descriptors.list, capacity * sizeof(*list));
    if (list == NULL) {
        return MPATH_ERR_NO_MEMORY;
    }
    descriptors.list     = list;
    descriptors.capacity = capacity;
    return MPATH_OK;
}

/* One more use of the physical allocation at that address. */
static mpath_status_t descriptor_get(const mpath_memory_block_t *block, int *fd_p, mpath_export_refusal_t *refusal)
{
    descriptor_t *found = descriptor_find(block->block_id);
    mpath_status_t status;
    int fd;

    if (found != NULL) {
        found->users++;
        *fd_p = found->fd;
        return MPATH_OK;
    }
    status = descriptors_grow();
    if (status != MPATH_OK) {
        return status;
    }
    refusal->result = mpath_device()->block_export_fd(block->base, &fd);
    if (refusal->result != MPATH_DEVICE_DONE) {
        refusal->call = mpath_device()->failed_call();
        return MPATH_DECLINED;
    }
    descriptors.list[descriptors.count++] = (descriptor_t){.block_id = block->block_id, .fd = fd, .users = 1};
    *fd_p                                 = fd;
    return MPATH_OK;
}

/* Fills the list. What it has taken it gives back where it fails. */
static mpath_status_t blocks_take(const mpath_export_t *made, mpath_export_block_t *list,
                                  mpath_export_refusal_t *refusal)
{
    uint64_t at           = made->base;
    mpath_status_t status = MPATH_OK;
    mpath_memory_block_t block;
    uint32_t i;

    for (i = 0; i < made->blocks; i++) {
        status = mpath_memory_block(at, &block);
        if (status == MPATH_OK) {
            status = descriptor_get(&block, &list[i].fd, refusal);
        }
        if (status != MPATH_OK) {
            break;
        }
        list[i].bytes = block.bytes;
        list[i].id    = block.block_id;
        at += block.bytes;
    }
    while ((status != MPATH_OK) && (i-- > 0)) {
        descriptor_put(list[i].id);
    }
    return status;
}

/* -1: there is no memory or no descriptor for it. */
static int list_write(const mpath_export_t *made, const mpath_export_block_t *list)
{
    const mpath_export_list_t head = {.magic     = MPATH_EXPORT_LIST_MAGIC,
                                      .base      = made->base,
                                      .bytes     = made->bytes,
                                      .buffer_id = made->buffer_id,
                                      .blocks    = made->blocks};
    const size_t bytes             = made->blocks * sizeof(*list);
    int fd                         = memfd_create("mpath-pieces", MFD_CLOEXEC);

    if ((fd >= 0) && ((mpath_file_write(fd, &head, sizeof(head)) != 0) || (mpath_file_write(fd, list, bytes) != 0))) {
        close(fd);
        return -1;
    }
    return fd;
}

static mpath_status_t export_blocks_make(mpath_export_t *made, mpath_export_refusal_t *refusal)
{
    mpath_export_block_t *list = calloc(made->blocks, sizeof(*list));
    mpath_status_t status      = MPATH_ERR_NO_MEMORY;

    if (list != NULL) {
        status = blocks_take(made, list, refusal);
    }
    if (status == MPATH_OK) {
        made->handle.list = list_write(made, list);
        if (made->handle.list < 0) {
            status = MPATH_ERR_NO_MEMORY;
            for (uint32_t i = 0; i < made->blocks; i++) {
                descriptor_put(list[i].id);
            }
        }
    }
    free(list);
    return status;
}

static void export_blocks_close(const mpath_export_t *made)
{
    mpath_export_block_t block;

    for (uint32_t i = 0; i < made->blocks; i++) {
        if (pread(made->handle.list, &block, sizeof(block), (off_t)(sizeof(mpath_export_list_t) + i * sizeof(block))) ==
            (ssize_t)sizeof(block)) {
            descriptor_put(block.id);
        }
    }
    close(made->handle.list);
}

#ifndef KCMP_FILE
#define KCMP_FILE 0 /* of linux/kcmp.h */
#endif

#define EXPORT_POOLS_MAX MPATH_EXPORTS_MAX

_Static_assert(sizeof(mpath_export_t) == 640, "the layout that processes of one node share");

typedef struct export_pool {
    mpath_device_pool_t pool; /* NULL: entry is free */
    int fd;
    uint32_t number; /* never given twice: importers know the pool by it */
    uint64_t used;   /* clock of the last use */
} export_pool_t;

static struct {
    pthread_mutex_t lock;
    uint64_t clock;
    uint64_t used[MPATH_EXPORTS_MAX]; /* clock of the last use; 0: entry is free */
    mpath_export_t entries[MPATH_EXPORTS_MAX];
    export_pool_t pools[EXPORT_POOLS_MAX];
    uint32_t pools_number; /* last one given out */
} exports = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void export_close(unsigned index)
{
    const mpath_export_t *entry = &exports.entries[index];

    if (entry->how == MPATH_EXPORT_FDS) {
        export_blocks_close(entry);
    }
    exports.used[index] = 0;
}

/* Said once for each limit: the application, or who starts it, can do something about it. */
static mpath_status_t export_too_many(const mpath_export_t *made, atomic_flag *warned, const char *limit)
{
    mpath_log_level_t level = atomic_flag_test_and_set(warned) ? MPATH_LOG_DEBUG : MPATH_LOG_WARN;

    mpath_log(level,
              "a buffer in memory of cuMemCreate lies in %" PRIu32 " pieces or more (%" PRIu64
              " bytes up to there), and other processes can open %s; its data goes through host memory, at about a "
              "tenth of the speed, as that of all others like it",
              made->blocks, made->bytes, limit);
    return MPATH_DECLINED;
}

#define EXPORT_TEXT_OF(_number) #_number
#define EXPORT_TEXT(_number) EXPORT_TEXT_OF(_number)

/* Without the blocks' numbers in the identity, a range that was remapped in part would look the same. */
static mpath_status_t export_walk(uint64_t end, mpath_export_t *made)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    uint64_t at               = made->base;
    mpath_memory_block_t block;

    made->bytes     = 0;
    made->buffer_id = 0;
    for (made->blocks = 0; at < end; made->blocks++) {
        if (made->blocks == MPATH_EXPORT_BLOCKS_MAX) {
            return export_too_many(made, &warned, EXPORT_TEXT(MPATH_EXPORT_BLOCKS_MAX) "; larger pieces help");
        }
        if ((mpath_memory_block(at, &block) != MPATH_OK) || (block.base != at)) {
            return MPATH_DECLINED;
        }
        made->block_bytes = (made->blocks == 0) ? block.bytes : made->block_bytes;
        made->buffer_id   = made->buffer_id * 1000003 + block.block_id;
        made->bytes += block.bytes;
        at += block.bytes;
    }
    return MPATH_OK;
}

/*
 * Yama's ptrace_scope 1 (the default of Ubuntu) lets a process fetch descriptors only of its descendants, unless the
 * owner agrees. Asked for once, with the first descriptors.
 */
static void export_permit_fetching(void)
{
    static int done;
    char scope = '0';
    FILE *file;

    if (done) {
        return;
    }
    done = 1;
    file = fopen("/proc/sys/kernel/yama/ptrace_scope", "r");
    if (file != NULL) {
        if ((fread(&scope, 1, 1, file) == 1) && (scope == '1')) {
            prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
        }
        fclose(file);
    }
}

/* The driver refuses: logged once for each kind of handle, since calls mostly bring the same kind of memory again. */
static mpath_status_t export_refused(mpath_export_how_t how, uint64_t address, const char *call,
                                     mpath_device_result_t result)
{
    static unsigned told; /* bit per mpath_export_how_t */
    mpath_log_level_t level = ((told >> how) & 1) ? MPATH_LOG_DEBUG : MPATH_LOG_WARN;

    told |= 1u << how;
    mpath_log(level,
              "the allocation at 0x%" PRIx64 " of GPU memory cannot be exported: %s: %s; its data goes through host "
              "memory, as that of all others like it",
              address, call, mpath_device_error_string(result));
    return MPATH_DECLINED;
}

/* Closes the least recently used list of descriptors; 0: there is none. */
static int export_close_oldest(void)
{
    unsigned oldest = MPATH_EXPORTS_MAX;

    for (unsigned index = 0; index < MPATH_EXPORTS_MAX; index++) {
        if ((exports.used[index] != 0) && (exports.entries[index].how == MPATH_EXPORT_FDS) &&
            ((oldest == MPATH_EXPORTS_MAX) || (exports.used[index] < exports.used[oldest]))) {
            oldest = index;
        }
    }
    if (oldest < MPATH_EXPORTS_MAX) {
        export_close(oldest);
    }
    return oldest < MPATH_EXPORTS_MAX;
}

static mpath_status_t export_fds(mpath_export_t *made)
{
    static atomic_flag warned      = ATOMIC_FLAG_INIT;
    mpath_export_refusal_t refusal = {.call = NULL};
    mpath_status_t status;
    char limit[128];

    export_permit_fetching();
    do {
        status = export_blocks_make(made, &refusal);
    } while ((status == MPATH_ERR_NO_MEMORY) && export_close_oldest());
    if (status == MPATH_OK) {
        made->how = MPATH_EXPORT_FDS;
        return MPATH_OK;
    }
    if (status == MPATH_ERR_NO_MEMORY) {
        snprintf(limit, sizeof(limit), "%" PRIu64 ", half as many as this process may have files open (ulimit -n)",
                 export_blocks_limit());
        return export_too_many(made, &warned, limit);
    }
    return (refusal.call != NULL) ? export_refused(MPATH_EXPORT_FDS, made->base, refusal.call, refusal.result)
                                  : MPATH_DECLINED;
}

/*
 * Needs an IMEX channel in this process's device nodes, even within a node; without one the driver refuses, and mostly
 * has refused to make such memory before.
 */
static mpath_status_t export_fabric_refused(mpath_device_result_t result)
{
    static int warned;

    if (!warned) {
        warned = 1;
        mpath_warn("GPU memory that was made with fabric handles cannot be exported: %s; is there an IMEX channel? Its "
                   "data goes through host memory, all of its kind",
                   mpath_device_error_string(result));
    }
    return MPATH_DECLINED;
}

static mpath_status_t export_fabric(mpath_export_t *made)
{
    static atomic_flag warned    = ATOMIC_FLAG_INIT;
    mpath_device_result_t result = MPATH_DEVICE_DONE;
    mpath_memory_block_t block;

    if (made->blocks > MPATH_EXPORT_FABRIC_MAX) {
        return export_too_many(
            made, &warned,
            EXPORT_TEXT(MPATH_EXPORT_FABRIC_MAX) " by fabric handles; memory that is made with POSIX file "
                                                 "descriptor handles, too, or in larger pieces, helps");
    }
    for (uint32_t i = 0; (result == MPATH_DEVICE_DONE) && (i < made->blocks); i++) {
        uint64_t at = made->base + i * made->block_bytes;

        if ((mpath_memory_block(at, &block) != MPATH_OK) || (block.base != at) ||
            ((block.bytes != made->block_bytes) && (i + 1 < made->blocks))) {
            return export_too_many(made, &warned, "those of one size by fabric handles");
        }
        result              = mpath_device()->block_export_fabric(at, &made->handle.fabric[i]);
        made->fabric_ids[i] = (uint32_t)block.block_id;
    }
    if (result != MPATH_DEVICE_DONE) {
        return export_fabric_refused(result);
    }
    made->how = MPATH_EXPORT_FABRIC;
    return MPATH_OK;
}

/* Also what is named by its descriptor. */
static void export_pool_close(export_pool_t *entry)
{
    for (unsigned index = 0; (entry->pool != NULL) && (index < MPATH_EXPORTS_MAX); index++) {
        const mpath_export_t *export = &exports.entries[index];

        if ((exports.used[index] != 0) && (export->how == MPATH_EXPORT_POOL) &&
            (export->handle.pool.pool == entry->number)) {
            export_close(index);
        }
    }
    if (entry->pool != NULL) {
        close(entry->fd);
        entry->pool = NULL;
        entry->used = 0;
    }
}

/* The entry with that handle, else the least recently used one. */
static export_pool_t *export_pool_entry(mpath_device_pool_t pool)
{
    export_pool_t *entry = &exports.pools[0];

    for (unsigned index = 0; index < EXPORT_POOLS_MAX; index++) {
        if (exports.pools[index].pool == pool) {
            return &exports.pools[index];
        }
        entry = (exports.pools[index].used < entry->used) ? &exports.pools[index] : entry;
    }
    return entry;
}

/*
 * The entry of the pool; NULL when the pool does not allow it. A pool may have the handle of one that has been
 * destroyed. Then its descriptor is another: of a pool that is still there the driver gives copies of the first one.
 */
static export_pool_t *export_pool_get(mpath_device_pool_t pool)
{
    export_pool_t *entry = export_pool_entry(pool);
    pid_t me             = getpid();
    int fd;

    if (mpath_device()->pool_export(pool, &fd) != MPATH_DEVICE_DONE) {
        return NULL;
    }
    if ((entry->pool == pool) && (syscall(SYS_kcmp, me, me, KCMP_FILE, entry->fd, fd) == 0)) {
        close(fd);
    } else {
        export_pool_close(entry);
        *entry = (export_pool_t){.pool = pool, .fd = fd, .number = ++exports.pools_number};
    }
    entry->used = ++exports.clock;
    return entry;
}

static mpath_status_t export_pool(mpath_export_t *made)
{
    const mpath_device_ops_t *ops = mpath_device();
    mpath_device_pool_t pool;
    mpath_device_result_t result;
    export_pool_t *entry;

    if (ops->pool_find(made->base, &pool) != MPATH_DEVICE_DONE) {
        return MPATH_DECLINED;
    }
    entry = export_pool_get(pool);
    if (entry == NULL) {
        return MPATH_DECLINED;
    }
    result = ops->pool_export_ptr(made->base, &made->handle.pool.pointer);
    if (result != MPATH_DEVICE_DONE) {
        return export_refused(MPATH_EXPORT_POOL, made->base, ops->failed_call(), result);
    }
    export_permit_fetching();
    made->handle.pool.fd   = entry->fd;
    made->handle.pool.pool = entry->number;
    made->how              = MPATH_EXPORT_POOL;
    return MPATH_OK;
}

static mpath_status_t export_ipc(mpath_export_t *made)
{
    mpath_device_result_t result = mpath_device()->ipc_export(made->base, &made->handle.ipc);

    if (result != MPATH_DEVICE_DONE) {
        return export_refused(MPATH_EXPORT_IPC, made->base, mpath_device()->failed_call(), result);
    }
    made->how = MPATH_EXPORT_IPC;
    return MPATH_OK;
}

/* The entry of the same range; a stale one, or one that overlaps, is closed. -1: none. */
static int export_lookup(const mpath_export_t *made)
{
    unsigned index;

    for (index = 0; index < MPATH_EXPORTS_MAX; index++) {
        const mpath_export_t *entry = &exports.entries[index];

        if ((exports.used[index] == 0) || (entry->base >= made->base + made->bytes) ||
            (made->base >= entry->base + entry->bytes)) {
            continue;
        }
        if ((entry->base == made->base) && (entry->bytes == made->bytes) && (entry->buffer_id == made->buffer_id)) {
            return (int)index;
        }
        /* Another extent over the same blocks is as good as this one and stays; anything else is gone. */
        if (!mpath_export_is_mapped(entry)) {
            export_close(index);
        }
    }
    return -1;
}

/* Closes what is no longer mapped; its descriptors keep freed memory from the application. Returns a free entry. */
static unsigned export_close_unused(void)
{
    unsigned index, oldest = 0, free_index = MPATH_EXPORTS_MAX;
    mpath_export_t now;

    for (index = 0; index < MPATH_EXPORTS_MAX; index++) {
        if ((exports.used[index] != 0) && mpath_export_is_mapped(&exports.entries[index])) {
            now = exports.entries[index];
            if ((export_walk(now.base + now.bytes, &now) != MPATH_OK) ||
                (now.buffer_id != exports.entries[index].buffer_id)) {
                export_close(index);
            }
        }
        if (exports.used[index] == 0) {
            free_index = index;
        } else if ((exports.used[oldest] == 0) || (exports.used[index] < exports.used[oldest])) {
            oldest = index;
        }
    }
    if (free_index == MPATH_EXPORTS_MAX) {
        export_close(oldest);
        free_index = oldest;
    }
    return free_index;
}

static mpath_status_t export_make_new(const mpath_memory_t *memory, mpath_export_t *made)
{
    mpath_status_t status;
    mpath_gpu_t *gpu;

    status = mpath_gpu_get(memory->device, memory->context, &gpu);
    if (status != MPATH_OK) {
        return status;
    }
    status = mpath_gpu_enter(gpu);
    if (status != MPATH_OK) {
        return status;
    }
    mpath_process_self(&made->owner);
    made->uuid = mpath_gpu_info_of(gpu)->uuid;
    switch (memory->kind) {
    case MPATH_MEMORY_DEVICE:
        status = export_ipc(made);
        break;
    case MPATH_MEMORY_VMM:
        status = memory->fabric ? export_fabric(made) : export_fds(made);
        break;
    default:
        status = export_pool(made);
        break;
    }
    mpath_gpu_leave(gpu);
    return status;
}

/* Of a pool whose allocations are still asked for, the descriptor stays. */
static void export_use_pool(const mpath_export_t *made)
{
    for (unsigned index = 0; (made->how == MPATH_EXPORT_POOL) && (index < EXPORT_POOLS_MAX); index++) {
        if (exports.pools[index].number == made->handle.pool.pool) {
            exports.pools[index].used = exports.clock;
        }
    }
}

mpath_status_t mpath_export_make(const void *address, size_t bytes, const mpath_memory_t *memory,
                                 mpath_export_t *export_p)
{
    uint64_t end          = (uint64_t)(uintptr_t)address + bytes;
    mpath_status_t status = MPATH_OK;
    mpath_export_t made;
    int found;

    if (!memory->exportable) {
        return MPATH_DECLINED;
    }
    memset(&made, 0, sizeof(made));
    made.blocks    = 1;
    made.base      = memory->base;
    made.bytes     = memory->bytes;
    made.buffer_id = memory->buffer_id;
    if (memory->kind == MPATH_MEMORY_VMM) {
        status = export_walk(end, &made);
        if (status != MPATH_OK) {
            return status;
        }
    }
    pthread_mutex_lock(&exports.lock);
    found = export_lookup(&made);
    if (found < 0) {
        status = export_make_new(memory, &made);
        if (status == MPATH_OK) {
            found                  = (int)export_close_unused();
            exports.entries[found] = made;
        }
    }
    if (status == MPATH_OK) {
        exports.used[found] = ++exports.clock;
        *export_p           = exports.entries[found];
        export_use_pool(export_p);
    }
    pthread_mutex_unlock(&exports.lock);
    return status;
}

void mpath_export_cleanup(void)
{
    unsigned index;

    pthread_mutex_lock(&exports.lock);
    for (index = 0; index < MPATH_EXPORTS_MAX; index++) {
        if (exports.used[index] != 0) {
            export_close(index);
        }
    }
    for (index = 0; index < EXPORT_POOLS_MAX; index++) {
        export_pool_close(&exports.pools[index]);
    }
    pthread_mutex_unlock(&exports.lock);
}
