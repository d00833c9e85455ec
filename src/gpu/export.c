/* SPDX-License-Identifier: BSD-3-Clause */
/* Exports of this process's allocations, kept so that the driver is asked once per allocation. */
#include "gpu/export.h"
#include "gpu/export_pieces.h"
#include "gpu/private.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef KCMP_FILE
#define KCMP_FILE 0 /* of linux/kcmp.h */
#endif

#define EXPORT_POOLS_MAX MPATH_EXPORTS_MAX

_Static_assert(sizeof(mpath_export_t) == 640, "the layout that processes of one node share");

typedef struct export_pool {
    mpath_cu_pool_t pool; /* NULL: entry is free */
    int fd;
    uint32_t number; /* never given twice: importers know the pool by it */
    uint64_t used;   /* clock of the last use */
} export_pool_t;

static struct {
    pthread_mutex_t lock;
    mpath_process_t self;
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
        mpath_export_pieces_close(entry);
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
              made->pieces, made->bytes, limit);
    return MPATH_DECLINED;
}

#define EXPORT_TEXT_OF(_number) #_number
#define EXPORT_TEXT(_number) EXPORT_TEXT_OF(_number)

/* Without the pieces' numbers in the identity, a range that was remapped in part would look the same. */
static mpath_status_t export_walk(uint64_t end, mpath_export_t *made)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    uint64_t at               = made->base;
    mpath_memory_piece_t piece;

    made->bytes     = 0;
    made->buffer_id = 0;
    for (made->pieces = 0; at < end; made->pieces++) {
        if (made->pieces == MPATH_EXPORT_PIECES_MAX) {
            return export_too_many(made, &warned, EXPORT_TEXT(MPATH_EXPORT_PIECES_MAX) "; larger pieces help");
        }
        if ((mpath_memory_piece(at, &piece) != MPATH_OK) || (piece.base != at)) {
            return MPATH_DECLINED;
        }
        made->piece_bytes = (made->pieces == 0) ? piece.bytes : made->piece_bytes;
        made->buffer_id   = made->buffer_id * 1000003 + piece.block_id;
        made->bytes += piece.bytes;
        at += piece.bytes;
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

/* The driver refuses: told of once for each way of exporting, since calls mostly bring the same kind of memory again. */
static mpath_status_t export_refused(mpath_export_how_t how, uint64_t address, const char *call,
                                     mpath_cu_result_t result)
{
    static unsigned told; /* bit per mpath_export_how_t */
    mpath_log_level_t level = ((told >> how) & 1) ? MPATH_LOG_DEBUG : MPATH_LOG_WARN;

    told |= 1u << how;
    mpath_log(level,
              "the allocation at 0x%" PRIx64 " of GPU memory cannot be exported: %s: %s; its data goes through host "
              "memory, as that of all others like it",
              address, call, mpath_cu_error_string(result));
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
        status = mpath_export_pieces_make(made, &refusal);
    } while ((status == MPATH_ERR_NO_MEMORY) && export_close_oldest());
    if (status == MPATH_OK) {
        made->how = MPATH_EXPORT_FDS;
        return MPATH_OK;
    }
    if (status == MPATH_ERR_NO_MEMORY) {
        snprintf(limit, sizeof(limit), "%" PRIu64 ", half as many as this process may have files open (ulimit -n)",
                 mpath_export_pieces_limit());
        return export_too_many(made, &warned, limit);
    }
    return (refusal.call != NULL) ? export_refused(MPATH_EXPORT_FDS, made->base, refusal.call, refusal.result)
                                  : MPATH_DECLINED;
}

/*
 * Needs an IMEX channel in this process's device nodes, even within a node; without one the driver refuses, and mostly
 * has refused to make such memory before.
 */
static mpath_status_t export_fabric_refused(mpath_cu_result_t result)
{
    static int warned;

    if (!warned) {
        warned = 1;
        mpath_warn("GPU memory that was made with fabric handles cannot be exported: %s; is there an IMEX channel? Its "
                   "data goes through host memory, all of its kind",
                   mpath_cu_error_string(result));
    }
    return MPATH_DECLINED;
}

static mpath_status_t export_fabric(mpath_export_t *made)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    const mpath_cu_t *cu      = mpath_gpu_driver();
    mpath_cu_result_t result  = MPATH_CU_SUCCESS;
    mpath_memory_piece_t piece;
    mpath_cu_mem_t handle;

    if (made->pieces > MPATH_EXPORT_FABRIC_MAX) {
        return export_too_many(
            made, &warned,
            EXPORT_TEXT(MPATH_EXPORT_FABRIC_MAX) " by fabric handles; memory that is made with POSIX file "
                                                 "descriptor handles, too, or in larger pieces, helps");
    }
    for (uint32_t i = 0; (result == MPATH_CU_SUCCESS) && (i < made->pieces); i++) {
        uint64_t at = made->base + i * made->piece_bytes;

        if ((mpath_memory_piece(at, &piece) != MPATH_OK) || (piece.base != at) ||
            ((piece.bytes != made->piece_bytes) && (i + 1 < made->pieces))) {
            return export_too_many(made, &warned, "those of one size by fabric handles");
        }
        result = cu->MemRetainAllocationHandle(&handle, (void *)(uintptr_t)at);
        if (result == MPATH_CU_SUCCESS) {
            result = cu->MemExportToShareableHandle(&made->handle.fabric[i], handle, MPATH_CU_HANDLE_FABRIC, 0);
            cu->MemRelease(handle);
        }
        made->fabric_ids[i] = (uint32_t)piece.block_id;
    }
    if (result != MPATH_CU_SUCCESS) {
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
static export_pool_t *export_pool_entry(mpath_cu_pool_t pool)
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
static export_pool_t *export_pool_get(mpath_cu_pool_t pool)
{
    export_pool_t *entry = export_pool_entry(pool);
    pid_t me             = getpid();
    int fd;

    if (mpath_gpu_driver()->MemPoolExportToShareableHandle(&fd, pool, MPATH_CU_HANDLE_FD, 0) != MPATH_CU_SUCCESS) {
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
    const mpath_cu_t *cu = mpath_gpu_driver();
    mpath_cu_pool_t pool = NULL;
    mpath_cu_result_t result;
    export_pool_t *entry;

    if ((cu->PointerGetAttribute(&pool, MPATH_CU_PTR_POOL, made->base) != MPATH_CU_SUCCESS) || (pool == NULL)) {
        return MPATH_DECLINED;
    }
    entry = export_pool_get(pool);
    if (entry == NULL) {
        return MPATH_DECLINED;
    }
    result = cu->MemPoolExportPointer(&made->handle.pool.pointer, made->base);
    if (result != MPATH_CU_SUCCESS) {
        return export_refused(MPATH_EXPORT_POOL, made->base, "cuMemPoolExportPointer", result);
    }
    export_permit_fetching();
    made->handle.pool.fd   = entry->fd;
    made->handle.pool.pool = entry->number;
    made->how              = MPATH_EXPORT_POOL;
    return MPATH_OK;
}

/*
 * The application's copies from pageable memory may return before the data is there, which other streams and GPUs would
 * notice. Not so with this attribute, which stays for the life of the allocation; a driver that refuses it does no harm.
 */
static void export_settle_copies(const mpath_export_t *made)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    unsigned yes         = 1;

    if (cu->PointerSetAttribute != NULL) {
        (void)cu->PointerSetAttribute(&yes, MPATH_CU_PTR_SYNC_MEMOPS, made->base);
    }
}

static mpath_status_t export_ipc(mpath_export_t *made)
{
    mpath_cu_result_t result = mpath_gpu_driver()->IpcGetMemHandle(&made->handle.ipc, made->base);

    if (result != MPATH_CU_SUCCESS) {
        return export_refused(MPATH_EXPORT_IPC, made->base, "cuIpcGetMemHandle", result);
    }
    export_settle_copies(made);
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
        /* Another extent over the same pieces is as good as this one and stays; anything else is gone. */
        if (!mpath_export_is_mapped(entry)) {
            export_close(index);
        }
    }
    return -1;
}

/* Closes what is no longer mapped; its descriptors keep freed memory from the application. Returns a free entry. */
static unsigned export_make_room(void)
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
    if (exports.self.pid != getpid()) {
        mpath_process_self(&exports.self);
    }
    made->owner = exports.self;
    made->uuid  = mpath_gpu_info_of(gpu)->uuid;
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
    made.pieces    = 1;
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
            found                  = (int)export_make_room();
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
    exports.self.pid = 0;
    pthread_mutex_unlock(&exports.lock);
}
