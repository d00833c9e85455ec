/* SPDX-License-Identifier: BSD-3-Clause */
/* Physical memory that is mapped by hand, and memory pools. */
#define _GNU_SOURCE
#include "fake.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

FAKE_API mpath_cu_result_t cuMemGetAllocationGranularity(size_t *bytes, const mpath_cu_mem_prop_t *prop, int option)
{
    (void)prop;
    (void)option;
    *bytes = FAKE_GRANULE;
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuMemCreate(mpath_cu_mem_t *handle, size_t bytes, const mpath_cu_mem_prop_t *prop,
                                       unsigned long long flags)
{
    fake_physical_t *physical;

    if (fake_without("fds")) {
        return MPATH_CU_NOT_SUPPORTED;
    }
    if ((prop->handle_types & MPATH_CU_HANDLE_FABRIC) && fake_without("fabric")) {
        return MPATH_CU_NOT_PERMITTED;
    }
    if ((bytes == 0) || (bytes % FAKE_GRANULE != 0) || (flags != 0) || (prop->location.id >= fake_devices())) {
        return MPATH_CU_INVALID_VALUE;
    }
    physical               = calloc(1, sizeof(*physical));
    physical->bytes        = bytes;
    physical->device       = prop->location.id;
    physical->handle_types = prop->handle_types;
    physical->references   = 1;
    pthread_mutex_lock(&fake_lock);
    physical->id = fake_next_id();
    physical->fd = fake_memfd(bytes, physical->id, physical->device, &physical->trailer);
    pthread_mutex_unlock(&fake_lock);
    if (physical->fd < 0) {
        free(physical);
        return MPATH_CU_OUT_OF_MEMORY;
    }
    *handle = (uint64_t)(uintptr_t)physical;
    return MPATH_CU_SUCCESS;
}

/* Under the lock. */
static void physical_unref(fake_physical_t *physical)
{
    if (--physical->references > 0) {
        return;
    }
    if (!physical->imported) {
        atomic_store(&physical->trailer->alive, 0);
    }
    munmap(physical->trailer, FAKE_PAGE);
    close(physical->fd);
    free(physical);
}

FAKE_API mpath_cu_result_t cuMemRelease(mpath_cu_mem_t handle)
{
    pthread_mutex_lock(&fake_lock);
    physical_unref((fake_physical_t *)(uintptr_t)handle);
    pthread_mutex_unlock(&fake_lock);
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuMemAddressReserve(mpath_cu_ptr_t *pointer, size_t bytes, size_t alignment,
                                               mpath_cu_ptr_t hint, unsigned long long flags)
{
    (void)hint;
    (void)flags;
    if ((bytes == 0) || (bytes % FAKE_GRANULE != 0)) {
        return MPATH_CU_INVALID_VALUE;
    }
    pthread_mutex_lock(&fake_lock);
    *pointer = fake_range_take(bytes, (alignment > FAKE_GRANULE) ? alignment : FAKE_GRANULE);
    pthread_mutex_unlock(&fake_lock);
    return (*pointer != 0) ? MPATH_CU_SUCCESS : MPATH_CU_OUT_OF_MEMORY;
}

FAKE_API mpath_cu_result_t cuMemAddressFree(mpath_cu_ptr_t pointer, size_t bytes)
{
    uint64_t at;

    pthread_mutex_lock(&fake_lock);
    if (fake_range_bytes(pointer) != bytes) {
        fake_die("cuMemAddressFree of %zu bytes at 0x%llx, which is no reservation of that size", bytes, pointer);
    }
    for (at = pointer; at < pointer + bytes; at += FAKE_GRANULE) {
        if (fake_find(at) != NULL) {
            fake_die("cuMemAddressFree of 0x%llx while memory is mapped at 0x%" PRIx64, pointer, at);
        }
    }
    fake_range_give(pointer);
    pthread_mutex_unlock(&fake_lock);
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuMemMap(mpath_cu_ptr_t pointer, size_t bytes, size_t offset, mpath_cu_mem_t handle,
                                    unsigned long long flags)
{
    fake_physical_t *physical = (fake_physical_t *)(uintptr_t)handle;
    fake_region_t *region;

    if ((offset != 0) || (flags != 0) || (bytes != physical->bytes) || (pointer % FAKE_GRANULE != 0)) {
        return MPATH_CU_INVALID_VALUE;
    }
    pthread_mutex_lock(&fake_lock);
    if (fake_find(pointer) != NULL) {
        pthread_mutex_unlock(&fake_lock);
        return MPATH_CU_ALREADY_MAPPED;
    }
    region               = fake_region_add(FAKE_VMM, pointer, bytes);
    region->bytes_at     = fake_map(pointer, bytes, physical->fd);
    region->device       = physical->device;
    region->physical     = physical;
    region->handle_types = physical->handle_types;
    region->trailer      = physical->trailer;
    region->imported     = physical->imported;
    physical->references++;
    pthread_mutex_unlock(&fake_lock);
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuMemUnmap(mpath_cu_ptr_t pointer, size_t bytes)
{
    fake_physical_t *physical;
    fake_region_t *region;
    uint64_t at, part;

    pthread_mutex_lock(&fake_lock);
    for (at = pointer; at < pointer + bytes; at += part) {
        region = fake_find(at);
        if ((region == NULL) || (region->kind != FAKE_VMM) || (region->base != at) ||
            (region->bytes > pointer + bytes - at)) {
            fake_die("cuMemUnmap of %zu bytes at 0x%llx: 0x%" PRIx64 " is not the begin of a mapping inside", bytes,
                     pointer, at);
        }
        part     = region->bytes;
        physical = region->physical;
        fake_unmap(at, part);
        fake_region_drop(region);
        physical_unref(physical);
    }
    pthread_mutex_unlock(&fake_lock);
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuMemSetAccess(mpath_cu_ptr_t pointer, size_t bytes, const mpath_cu_access_t *access,
                                          size_t count)
{
    mpath_cu_result_t result = MPATH_CU_SUCCESS;
    fake_region_t *region;
    uint64_t at, part;
    size_t index;

    pthread_mutex_lock(&fake_lock);
    for (at = pointer; (at < pointer + bytes) && (result == MPATH_CU_SUCCESS); at += part) {
        region = fake_find(at);
        if ((region == NULL) || (region->kind != FAKE_VMM)) {
            result = MPATH_CU_INVALID_VALUE;
            break;
        }
        part = region->base + region->bytes - at;
        for (index = 0; index < count; index++) {
            if ((access[index].location.id != region->device) && fake_without("peers")) {
                result = MPATH_CU_PEER_UNSUPPORTED;
            } else if (access[index].flags == MPATH_CU_ACCESS_READ_WRITE) {
                region->access |= UINT32_C(1) << access[index].location.id;
            }
        }
    }
    pthread_mutex_unlock(&fake_lock);
    return result;
}

FAKE_API mpath_cu_result_t cuMemRetainAllocationHandle(mpath_cu_mem_t *handle, void *pointer)
{
    mpath_cu_result_t result = MPATH_CU_INVALID_VALUE;
    fake_region_t *region;

    pthread_mutex_lock(&fake_lock);
    region = fake_find((uint64_t)(uintptr_t)pointer);
    if ((region != NULL) && (region->kind == FAKE_VMM)) {
        region->physical->references++;
        *handle = (uint64_t)(uintptr_t)region->physical;
        result  = MPATH_CU_SUCCESS;
    }
    pthread_mutex_unlock(&fake_lock);
    return result;
}

/* What the 64 bytes of a fabric handle hold: the allocation stays its maker's. */
typedef struct fake_fabric {
    int64_t pid;
    uint64_t id;
    int fd;
} fake_fabric_t;

_Static_assert(sizeof(fake_fabric_t) <= sizeof(mpath_cu_fabric_t), "the driver's handle");

/* A descriptor of the allocation; -1: it is gone. */
static int fabric_open(const void *shareable)
{
    fake_trailer_t *trailer;
    fake_fabric_t fabric;
    char path[64];
    int fd, same;

    memcpy(&fabric, shareable, sizeof(fabric));
    snprintf(path, sizeof(path), "/proc/%" PRId64 "/fd/%d", fabric.pid, fabric.fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if ((fd >= 0) && (fake_memfd_open(fd, &trailer) == 0)) {
        same = trailer->id == fabric.id;
        munmap(trailer, FAKE_PAGE);
        if (same) {
            return fd;
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    return -1;
}

FAKE_API mpath_cu_result_t cuMemExportToShareableHandle(void *shareable, mpath_cu_mem_t handle, int type,
                                                        unsigned long long flags)
{
    const fake_physical_t *physical = (const fake_physical_t *)(uintptr_t)handle;
    int fd;

    (void)flags;
    if (!(physical->handle_types & type)) {
        return MPATH_CU_INVALID_VALUE;
    }
    if (type == MPATH_CU_HANDLE_FABRIC) {
        const fake_fabric_t fabric = {.pid = getpid(), .id = physical->id, .fd = physical->fd};

        if (fake_without("imex")) {
            return MPATH_CU_NOT_PERMITTED;
        }
        memset(shareable, 0, sizeof(mpath_cu_fabric_t));
        memcpy(shareable, &fabric, sizeof(fabric));
        return MPATH_CU_SUCCESS;
    }
    fd = fcntl(physical->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) {
        return MPATH_CU_OUT_OF_MEMORY;
    }
    *(int *)shareable = fd;
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuMemImportFromShareableHandle(mpath_cu_mem_t *handle, void *shareable, int type)
{
    int fabric = type == MPATH_CU_HANDLE_FABRIC;
    int fd     = fabric ? fabric_open(shareable) : (int)(intptr_t)shareable;
    fake_physical_t *physical;
    fake_trailer_t *trailer;

    if ((fd < 0) || (!fabric && (type != MPATH_CU_HANDLE_FD)) || (fake_memfd_open(fd, &trailer) != 0)) {
        return MPATH_CU_INVALID_VALUE;
    }
    physical               = calloc(1, sizeof(*physical));
    physical->fd           = fabric ? fd : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    physical->bytes        = trailer->bytes;
    physical->id           = trailer->id;
    physical->device       = fake_ordinal_of(trailer->device);
    physical->handle_types = type;
    physical->references   = 1;
    physical->imported     = 1;
    physical->trailer      = trailer;
    *handle                = (uint64_t)(uintptr_t)physical;
    return MPATH_CU_SUCCESS;
}

static mpath_cu_pool_t pools_gone;

static mpath_cu_pool_t pool_make(int device, uint64_t id)
{
    mpath_cu_pool_t made;

    pthread_mutex_lock(&fake_lock);
    made = pools_gone;
    if (made != NULL) {
        pools_gone = made->next;
    } else {
        made = malloc(sizeof(*made));
    }
    *made = (struct mpath_device_pool){.id = (id != 0) ? id : fake_next_id(), .device = device};
    pthread_mutex_unlock(&fake_lock);
    return made;
}

FAKE_API mpath_cu_result_t cuMemPoolCreate(mpath_cu_pool_t *pool, const mpath_cu_pool_prop_t *prop)
{
    mpath_cu_pool_t made;

    if (fake_without("pools")) {
        return MPATH_CU_NOT_SUPPORTED;
    }
    made               = pool_make(prop->location.id, 0);
    made->handle_types = prop->handle_types;
    made->access       = UINT32_C(1) << prop->location.id;
    *pool              = made;
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuMemPoolDestroy(mpath_cu_pool_t pool)
{
    pthread_mutex_lock(&fake_lock);
    if (pool->fd > 0) {
        close(pool->fd);
    }
    pool->next = pools_gone;
    pools_gone = pool;
    pthread_mutex_unlock(&fake_lock);
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuDeviceGetDefaultMemPool(mpath_cu_pool_t *pool, mpath_cu_device_t device)
{
    static struct mpath_device_pool pools[FAKE_DEVICES_MAX];

    if (fake_without("pools")) {
        return MPATH_CU_NOT_SUPPORTED;
    }
    pools[device].device = device;
    pools[device].access = UINT32_C(1) << device;
    *pool                = &pools[device];
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuMemAllocFromPoolAsync(mpath_cu_ptr_t *pointer, size_t bytes, mpath_cu_pool_t pool,
                                                   mpath_cu_stream_t stream)
{
    mpath_cu_result_t result;
    fake_region_t *region;

    (void)stream;
    if (pool->imported) {
        return MPATH_CU_INVALID_VALUE;
    }
    pthread_mutex_lock(&fake_lock);
    result = fake_allocate(bytes, pool->device, &region);
    if (result == MPATH_CU_SUCCESS) {
        region->kind         = FAKE_POOL;
        region->pool         = pool;
        region->handle_types = pool->handle_types;
        region->access       = pool->access;
        *pointer             = region->base;
    }
    pthread_mutex_unlock(&fake_lock);
    return result;
}

FAKE_API mpath_cu_result_t cuMemFreeAsync(mpath_cu_ptr_t pointer, mpath_cu_stream_t stream)
{
    return fake_enqueue_free(stream, pointer);
}

FAKE_API mpath_cu_result_t cuMemPoolSetAccess(mpath_cu_pool_t pool, const mpath_cu_access_t *access, size_t count)
{
    size_t index;

    for (index = 0; index < count; index++) {
        if ((access[index].location.id != pool->device) && fake_without("peers")) {
            return MPATH_CU_PEER_UNSUPPORTED;
        }
        pool->access |= UINT32_C(1) << access[index].location.id;
    }
    return MPATH_CU_SUCCESS;
}

/* The descriptor says which pool it is, and on which device. */
FAKE_API mpath_cu_result_t cuMemPoolExportToShareableHandle(void *shareable, mpath_cu_pool_t pool, int type,
                                                            unsigned long long flags)
{
    fake_trailer_t *trailer;

    (void)flags;
    if ((type != MPATH_CU_HANDLE_FD) || !(pool->handle_types & type)) {
        return MPATH_CU_INVALID_VALUE;
    }
    if (pool->fd == 0) {
        pool->fd = fake_memfd(1, pool->id, pool->device, &trailer);
        munmap(trailer, FAKE_PAGE);
    }
    *(int *)shareable = fcntl(pool->fd, F_DUPFD_CLOEXEC, 0);
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuMemPoolImportFromShareableHandle(mpath_cu_pool_t *pool, void *shareable, int type,
                                                              unsigned long long flags)
{
    fake_trailer_t *trailer;
    mpath_cu_pool_t made;

    (void)flags;
    if ((type != MPATH_CU_HANDLE_FD) || (fake_memfd_open((int)(intptr_t)shareable, &trailer) != 0)) {
        return MPATH_CU_INVALID_VALUE;
    }
    made           = pool_make(fake_ordinal_of(trailer->device), trailer->id);
    made->imported = 1;
    munmap(trailer, FAKE_PAGE);
    *pool = made;
    return MPATH_CU_SUCCESS;
}

typedef struct fake_pool_ptr {
    int64_t pid;
    uint64_t id, pool;
    int fd;
} fake_pool_ptr_t;

FAKE_API mpath_cu_result_t cuMemPoolExportPointer(mpath_cu_pool_ptr_t *data, mpath_cu_ptr_t pointer)
{
    fake_pool_ptr_t made = {.pid = getpid()};
    fake_region_t *region;

    pthread_mutex_lock(&fake_lock);
    region = fake_find(pointer);
    if ((region != NULL) && (region->kind == FAKE_POOL) && (region->base == pointer) && !region->imported &&
        (region->handle_types & MPATH_CU_HANDLE_FD)) {
        made.id   = region->id;
        made.pool = region->pool->id;
        made.fd   = region->fd;
    }
    pthread_mutex_unlock(&fake_lock);
    if (made.id == 0) {
        return MPATH_CU_INVALID_VALUE;
    }
    memset(data, 0, sizeof(*data));
    memcpy(data, &made, sizeof(made));
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuMemPoolImportPointer(mpath_cu_ptr_t *pointer, mpath_cu_pool_t pool,
                                                  mpath_cu_pool_ptr_t *data)
{
    mpath_cu_context_t context = fake_need_context("cuMemPoolImportPointer");
    mpath_cu_result_t result;
    fake_region_t *region;
    fake_pool_ptr_t from;

    memcpy(&from, data, sizeof(from));
    if (!pool->imported || (pool->id != from.pool)) {
        return MPATH_CU_INVALID_VALUE;
    }
    pthread_mutex_lock(&fake_lock);
    result = fake_import(from.pid, from.fd, from.id, context, &region);
    if (result == MPATH_CU_SUCCESS) {
        region->kind   = FAKE_POOL;
        region->pool   = pool;
        region->access = pool->access;
        *pointer       = region->base;
    }
    pthread_mutex_unlock(&fake_lock);
    return result;
}
