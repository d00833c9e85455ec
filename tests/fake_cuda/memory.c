/* SPDX-License-Identifier: BSD-3-Clause */
/* Address ranges, allocations, what is known of a pointer, imports. */
#define _GNU_SOURCE
#include "fake.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Address ranges are at the same place in all processes where they can be: addresses that mean different things. */
#define ARENA_HINT ((void *)UINT64_C(0x500000000000))
#define ARENA_BYTES (UINT64_C(64) << 30)
#define TRAILER_MAGIC UINT64_C(0x66616b6563756461)

typedef struct fake_range {
    struct fake_range *next; /* by address */
    uint64_t base, bytes;
} fake_range_t;

static struct {
    uint64_t base;   /* of the device addresses, without access */
    uint64_t offset; /* from a device address to its bytes */
    fake_range_t *ranges;
    fake_region_t *regions;
    uint64_t id;
} arena;

/* Under the lock. */
static void arena_make(void)
{
    char *base;

    if (arena.base != 0) {
        return;
    }
    base = mmap(ARENA_HINT, 2 * ARENA_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        fake_die("no address space: %s", strerror(errno));
    }
    arena.base   = (uint64_t)(uintptr_t)base;
    arena.offset = ARENA_BYTES;
}

uint64_t fake_next_id(void)
{
    return ++arena.id;
}

/* The first hole, with a page on either side that belongs to nobody. */
uint64_t fake_range_take(uint64_t bytes, uint64_t alignment)
{
    fake_range_t **at, *range;
    uint64_t candidate;

    arena_make();
    bytes     = (bytes + FAKE_PAGE - 1) / FAKE_PAGE * FAKE_PAGE;
    candidate = arena.base + FAKE_GRANULE;
    for (at = &arena.ranges;; at = &(*at)->next) {
        candidate = (candidate + alignment - 1) / alignment * alignment;
        if ((*at == NULL) || (candidate + bytes + FAKE_PAGE <= (*at)->base)) {
            break;
        }
        candidate = (*at)->base + (*at)->bytes + FAKE_PAGE;
    }
    if (candidate + bytes > arena.base + ARENA_BYTES) {
        return 0;
    }
    range  = malloc(sizeof(*range));
    *range = (fake_range_t){.next = *at, .base = candidate, .bytes = bytes};
    *at    = range;
    return candidate;
}

static fake_range_t **range_at(uint64_t address)
{
    fake_range_t **at;

    for (at = &arena.ranges; (*at != NULL) && ((*at)->base != address); at = &(*at)->next) {
    }
    return at;
}

void fake_range_give(uint64_t address)
{
    fake_range_t **at = range_at(address), *range = *at;

    if (range == NULL) {
        fake_die("address range 0x%" PRIx64 " is given back, but was never taken", address);
    }
    *at = range->next;
    free(range);
}

uint64_t fake_range_bytes(uint64_t address)
{
    fake_range_t *range = *range_at(address);

    return (range == NULL) ? 0 : range->bytes;
}

/* What the process has of the trailer stays mapped as long as the region. */
static fake_trailer_t *trailer_map(int fd, uint64_t at)
{
    void *trailer = mmap(NULL, FAKE_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)at);

    return (trailer == MAP_FAILED) ? NULL : trailer;
}

int fake_memfd(uint64_t bytes, uint64_t id, int device, fake_trailer_t **trailer_p)
{
    uint64_t rounded = (bytes + FAKE_PAGE - 1) / FAKE_PAGE * FAKE_PAGE;
    fake_trailer_t *trailer;
    int fd = memfd_create("fake-cuda", MFD_CLOEXEC);

    if (fd < 0) {
        return -1;
    }
    if ((ftruncate(fd, (off_t)(rounded + FAKE_PAGE)) != 0) || ((trailer = trailer_map(fd, rounded)) == NULL)) {
        close(fd);
        return -1;
    }
    trailer->id     = id;
    trailer->bytes  = bytes;
    trailer->device = fake_physical_device(device);
    trailer->magic  = TRAILER_MAGIC;
    atomic_store(&trailer->alive, 1);
    *trailer_p = trailer;
    return fd;
}

int fake_memfd_open(int fd, fake_trailer_t **trailer_p)
{
    fake_trailer_t *trailer;
    struct stat info;

    if ((fstat(fd, &info) != 0) || (info.st_size < 2 * FAKE_PAGE)) {
        return -1;
    }
    trailer = trailer_map(fd, (uint64_t)info.st_size - FAKE_PAGE);
    if (trailer == NULL) {
        return -1;
    }
    if (trailer->magic != TRAILER_MAGIC) {
        munmap(trailer, FAKE_PAGE);
        return -1;
    }
    *trailer_p = trailer;
    return 0;
}

char *fake_map(uint64_t address, uint64_t bytes, int fd)
{
    char *at = (char *)(uintptr_t)(address + arena.offset);

    bytes = (bytes + FAKE_PAGE - 1) / FAKE_PAGE * FAKE_PAGE;
    if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        fake_die("mmap: %s", strerror(errno));
    }
    return at;
}

void fake_unmap(uint64_t address, uint64_t bytes)
{
    char *at = (char *)(uintptr_t)(address + arena.offset);

    bytes = (bytes + FAKE_PAGE - 1) / FAKE_PAGE * FAKE_PAGE;
    if (mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
        fake_die("mmap: %s", strerror(errno));
    }
}

fake_region_t *fake_region_add(fake_kind_t kind, uint64_t base, uint64_t bytes)
{
    fake_region_t *region = calloc(1, sizeof(*region));

    region->kind     = kind;
    region->base     = base;
    region->bytes    = bytes;
    region->bytes_at = (char *)(uintptr_t)base;
    region->id       = fake_next_id();
    region->device   = -1;
    region->fd       = -1;
    region->next     = arena.regions;
    arena.regions    = region;
    return region;
}

void fake_region_drop(fake_region_t *region)
{
    fake_region_t **at;

    for (at = &arena.regions; *at != region; at = &(*at)->next) {
    }
    *at = region->next;
    free(region);
}

fake_region_t *fake_find(uint64_t address)
{
    fake_region_t *region;

    for (region = arena.regions; region != NULL; region = region->next) {
        if ((address >= region->base) && (address - region->base < region->bytes)) {
            return region;
        }
    }
    return NULL;
}

static void check_use(const fake_region_t *region, uint64_t address, const struct mpath_device_context *context,
                      fake_user_t user, const char *what)
{
    if ((region->trailer != NULL) && !atomic_load(&region->trailer->alive)) {
        fake_die("%s: 0x%" PRIx64 " is an import of memory that its owner has freed (stale handle)", what, address);
    }
    if ((user == FAKE_BY_KERNEL) && (region->kind != FAKE_HOST) && (region->kind != FAKE_MANAGED) &&
        !(region->access & (UINT32_C(1) << context->device)) &&
        ((region->device < 0) || !(context->peers & (UINT32_C(1) << region->device)))) {
        fake_die("%s: a kernel of device %d may not reach 0x%" PRIx64 " of device %d: no peer access", what,
                 context->device, address, region->device);
    }
}

char *fake_bytes(uint64_t address, uint64_t bytes, const struct mpath_device_context *context, fake_user_t user,
                 const char *what)
{
    fake_region_t *region;
    uint64_t at, part;
    char *found = NULL;

    pthread_mutex_lock(&fake_lock);
    for (at = address; at < address + bytes; at += part) {
        region = fake_find(at);
        if (region == NULL) {
            if ((arena.base != 0) && (at >= arena.base) && (at < arena.base + 2 * ARENA_BYTES)) {
                fake_die("%s: %" PRIu64 " bytes at 0x%" PRIx64 " lie outside every allocation from 0x%" PRIx64
                         " on (freed, "
                         "closed or too long)",
                         what, bytes, address, at);
            }
            if (user == FAKE_BY_KERNEL) {
                fake_die("%s: a kernel of device %d reaches host memory at 0x%" PRIx64 " that is not registered", what,
                         context->device, at);
            }
            found = (found == NULL) ? (char *)(uintptr_t)at : found;
            break; /* host memory, as far as it goes */
        }
        check_use(region, at, context, user, what);
        found = (found == NULL) ? region->bytes_at + (at - region->base) : found;
        part  = region->base + region->bytes - at;
    }
    pthread_mutex_unlock(&fake_lock);
    return found;
}

/* For tests: the bytes of device memory, as a NIC would get at them; NULL: it is no device memory. */
FAKE_API char *fake_cuda_bytes(uint64_t address, uint64_t bytes)
{
    fake_region_t *region;
    char *found = NULL;

    pthread_mutex_lock(&fake_lock);
    region = fake_find(address);
    if ((region != NULL) && (region->kind == FAKE_DEVICE) && (address + bytes <= region->base + region->bytes)) {
        found = region->bytes_at + (address - region->base);
    }
    pthread_mutex_unlock(&fake_lock);
    return found;
}

/* Under the lock. */
mpath_cu_result_t fake_allocate(uint64_t bytes, int device, fake_region_t **region_p)
{
    fake_trailer_t *trailer;
    fake_region_t *region;
    uint64_t base, id;
    int fd;

    if (bytes == 0) {
        return MPATH_CU_INVALID_VALUE;
    }
    base = fake_range_take(bytes, FAKE_PAGE);
    if (base == 0) {
        return MPATH_CU_OUT_OF_MEMORY;
    }
    id = fake_next_id();
    fd = fake_memfd(bytes, id, device, &trailer);
    if (fd < 0) {
        fake_range_give(base);
        return MPATH_CU_OUT_OF_MEMORY;
    }
    region           = fake_region_add(FAKE_DEVICE, base, bytes);
    region->id       = id;
    region->bytes_at = fake_map(base, bytes, fd);
    region->device   = device;
    region->access   = UINT32_C(1) << device;
    region->fd       = fd;
    region->trailer  = trailer;
    *region_p        = region;
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuMemAlloc_v2(mpath_cu_ptr_t *pointer, size_t bytes)
{
    mpath_cu_context_t context = fake_need_context("cuMemAlloc");
    mpath_cu_result_t result;
    fake_region_t *region;

    if (fake_is_too_large("FAKE_CUDA_LARGEST", bytes)) {
        return MPATH_CU_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&fake_lock);
    result = fake_allocate(bytes, context->device, &region);
    if (result == MPATH_CU_SUCCESS) {
        region->context = context;
        *pointer        = region->base;
    }
    pthread_mutex_unlock(&fake_lock);
    return result;
}

/* Under the lock. */
static void forget(fake_region_t *region)
{
    munmap(region->trailer, FAKE_PAGE);
    fake_unmap(region->base, region->bytes);
    if (region->fd >= 0) {
        close(region->fd);
    }
    fake_range_give(region->base);
    fake_region_drop(region);
}

/* Under the lock. */
static void release(fake_region_t *region)
{
    if (!region->imported) {
        atomic_store(&region->trailer->alive, 0);
    }
    forget(region);
}

void fake_forget_memory(const struct mpath_device_context *context)
{
    fake_region_t *region, *next;

    pthread_mutex_lock(&fake_lock);
    for (region = arena.regions; region != NULL; region = next) {
        next = region->next;
        if (region->context != context) {
            continue;
        }
        if (region->kind == FAKE_DEVICE) {
            forget(region);
        } else if (region->kind == FAKE_MANAGED) {
            munmap(region->bytes_at, region->mapped);
            fake_region_drop(region);
        } else if (region->kind == FAKE_HOST) {
            fake_region_drop(region);
        }
    }
    pthread_mutex_unlock(&fake_lock);
}

mpath_cu_result_t fake_free(uint64_t address, int from_stream)
{
    fake_region_t *region;

    pthread_mutex_lock(&fake_lock);
    region = fake_find(address);
    if ((region == NULL) || (region->base != address) || (region->kind == FAKE_VMM) || (region->kind == FAKE_HOST) ||
        (region->imported && (region->kind != FAKE_POOL)) || (from_stream && (region->kind != FAKE_POOL))) {
        fake_die("0x%" PRIx64 " is freed, but is no allocation that this call frees", address);
    }
    if (region->kind == FAKE_MANAGED) {
        munmap(region->bytes_at, region->mapped);
        fake_region_drop(region);
    } else {
        release(region);
    }
    pthread_mutex_unlock(&fake_lock);
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuMemFree_v2(mpath_cu_ptr_t pointer)
{
    fake_drain(NULL);
    return fake_free(pointer, 0);
}

FAKE_API mpath_cu_result_t cuMemAllocManaged(mpath_cu_ptr_t *pointer, size_t bytes, unsigned flags)
{
    mpath_cu_context_t context = fake_need_context("cuMemAllocManaged");
    fake_region_t *region;
    void *base;

    (void)flags;
    base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
        return MPATH_CU_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&fake_lock);
    region          = fake_region_add(FAKE_MANAGED, (uint64_t)(uintptr_t)base, bytes);
    region->mapped  = bytes;
    region->device  = context->device;
    region->context = context;
    pthread_mutex_unlock(&fake_lock);
    *pointer = (uint64_t)(uintptr_t)base;
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned flags)
{
    fake_region_t *region;

    (void)flags;
    fake_need_context("cuMemHostRegister");
    if (fake_is_too_large("FAKE_CUDA_LARGEST_PINNED", bytes)) {
        return MPATH_CU_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&fake_lock);
    if ((fake_find((uint64_t)(uintptr_t)pointer) != NULL) || (bytes == 0)) {
        pthread_mutex_unlock(&fake_lock);
        return (bytes == 0) ? MPATH_CU_INVALID_VALUE : MPATH_CU_HOST_ALREADY_REGISTERED;
    }
    region          = fake_region_add(FAKE_HOST, (uint64_t)(uintptr_t)pointer, bytes);
    region->context = fake_current();
    pthread_mutex_unlock(&fake_lock);
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuMemHostUnregister(void *pointer)
{
    fake_region_t *region;

    fake_drain(NULL);
    pthread_mutex_lock(&fake_lock);
    region = fake_find((uint64_t)(uintptr_t)pointer);
    if ((region == NULL) || (region->kind != FAKE_HOST) || (region->base != (uint64_t)(uintptr_t)pointer)) {
        fake_die("cuMemHostUnregister of %p, which is not registered", pointer);
    }
    fake_region_drop(region);
    pthread_mutex_unlock(&fake_lock);
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
    void *base;

    fake_need_context("cuMemHostAlloc");
    if (posix_memalign(&base, FAKE_PAGE, bytes) != 0) {
        return MPATH_CU_OUT_OF_MEMORY;
    }
    *pointer = base;
    return cuMemHostRegister_v2(base, bytes, flags);
}

FAKE_API mpath_cu_result_t cuMemFreeHost(void *pointer)
{
    mpath_cu_result_t result = cuMemHostUnregister(pointer);

    free(pointer);
    return result;
}

FAKE_API mpath_cu_result_t cuMemHostGetDevicePointer_v2(mpath_cu_ptr_t *device_pointer, void *pointer, unsigned flags)
{
    fake_region_t *region;

    (void)flags;
    pthread_mutex_lock(&fake_lock);
    region = fake_find((uint64_t)(uintptr_t)pointer);
    pthread_mutex_unlock(&fake_lock);
    if ((region == NULL) || (region->kind != FAKE_HOST)) {
        return MPATH_CU_INVALID_VALUE;
    }
    *device_pointer = (uint64_t)(uintptr_t)pointer;
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    const struct mpath_device_context *context = fake_current();
    const char *full = getenv("FAKE_CUDA_FULL"), *free_text = getenv("FAKE_CUDA_FREE");

    if ((context != NULL) && context->ended) {
        return MPATH_CU_CONTEXT_IS_DESTROYED;
    }
    context      = fake_need_context("cuMemGetInfo");
    *free_bytes  = ((free_text != NULL) && (free_text[0] != '\0')) ? strtoull(free_text, NULL, 10) : (size_t)7 << 30;
    *free_bytes  = ((full != NULL) && (full[0] == '0' + context->device)) ? 0 : *free_bytes;
    *total_bytes = (size_t)8 << 30;
    return MPATH_CU_SUCCESS;
}

/* Under the lock: opens descriptor `fd` of process `pid`, when it is still allocation `id`. */
mpath_cu_result_t fake_import(int64_t pid, int fd, uint64_t id, mpath_cu_context_t context, fake_region_t **region_p)
{
    fake_trailer_t *trailer;
    fake_region_t *region;
    uint64_t base;
    char path[64];
    int mine;

    snprintf(path, sizeof(path), "/proc/%" PRId64 "/fd/%d", pid, fd);
    mine = open(path, O_RDWR | O_CLOEXEC);
    if ((mine < 0) || (fake_memfd_open(mine, &trailer) != 0)) {
        goto err_close;
    }
    base = 0;
    if ((trailer->id == id) && atomic_load(&trailer->alive)) {
        base = fake_range_take(trailer->bytes, FAKE_PAGE);
    }
    if (base == 0) {
        munmap(trailer, FAKE_PAGE);
        goto err_close;
    }
    region           = fake_region_add(FAKE_DEVICE, base, trailer->bytes);
    region->bytes_at = fake_map(base, trailer->bytes, mine);
    region->device   = fake_ordinal_of(trailer->device);
    region->context  = context;
    region->access   = UINT32_C(1) << context->device;
    region->trailer  = trailer;
    region->imported = 1;
    close(mine);
    *region_p = region;
    return MPATH_CU_SUCCESS;

err_close:
    if (mine >= 0) {
        close(mine);
    }
    return MPATH_CU_INVALID_VALUE;
}

typedef struct fake_ipc {
    uint64_t magic;
    int64_t pid;
    uint64_t id;
    int fd, device; /* physical number */
} fake_ipc_t;

FAKE_API mpath_cu_result_t cuIpcGetMemHandle(mpath_cu_ipc_t *handle, mpath_cu_ptr_t pointer)
{
    fake_ipc_t made = {.id = 0};
    fake_region_t *region;

    fake_need_context("cuIpcGetMemHandle");
    pthread_mutex_lock(&fake_lock);
    region = fake_find(pointer);
    if ((region != NULL) && (region->kind == FAKE_DEVICE) && !region->imported && !fake_without("ipc")) {
        made = (fake_ipc_t){TRAILER_MAGIC, getpid(), region->id, region->fd, fake_physical_device(region->device)};
    }
    pthread_mutex_unlock(&fake_lock);
    if (made.id == 0) {
        return MPATH_CU_INVALID_VALUE;
    }
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &made, sizeof(made));
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuIpcOpenMemHandle_v2(mpath_cu_ptr_t *pointer, mpath_cu_ipc_t handle, unsigned flags)
{
    mpath_cu_context_t context = fake_need_context("cuIpcOpenMemHandle");
    mpath_cu_result_t result   = MPATH_CU_SUCCESS;
    fake_region_t *region;
    fake_ipc_t ipc;

    (void)flags;
    memcpy(&ipc, &handle, sizeof(ipc));
    if (ipc.magic != TRAILER_MAGIC) {
        return MPATH_CU_INVALID_VALUE;
    }
    if (ipc.pid == getpid()) {
        return MPATH_CU_INVALID_CONTEXT;
    }
    if (fake_without("peers") && (ipc.device != fake_physical_device(context->device))) {
        return MPATH_CU_PEER_UNSUPPORTED;
    }
    pthread_mutex_lock(&fake_lock);
    for (region = arena.regions; region != NULL; region = region->next) {
        if ((region->kind == FAKE_DEVICE) && region->imported && (region->trailer->id == ipc.id) &&
            (region->id == (uint64_t)ipc.pid) && (region->context == context)) {
            result = MPATH_CU_ALREADY_MAPPED;
        }
    }
    if (result == MPATH_CU_SUCCESS) {
        result = fake_import(ipc.pid, ipc.fd, ipc.id, context, &region);
    }
    if (result == MPATH_CU_SUCCESS) {
        region->id = (uint64_t)ipc.pid; /* tells the owner from here on */
        *pointer   = region->base;
    }
    pthread_mutex_unlock(&fake_lock);
    return result;
}

FAKE_API mpath_cu_result_t cuIpcCloseMemHandle(mpath_cu_ptr_t pointer)
{
    fake_region_t *region;

    fake_drain(NULL);
    pthread_mutex_lock(&fake_lock);
    region = fake_find(pointer);
    if ((region == NULL) || (region->base != pointer) || (region->kind != FAKE_DEVICE) || !region->imported) {
        fake_die("cuIpcCloseMemHandle of 0x%llx, which is no open import", pointer);
    }
    if (region->context != fake_need_context("cuIpcCloseMemHandle")) {
        fake_die("cuIpcCloseMemHandle of 0x%llx in another context than it was opened in", pointer);
    }
    release(region);
    pthread_mutex_unlock(&fake_lock);
    return MPATH_CU_SUCCESS;
}
