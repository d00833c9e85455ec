/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allocation, counted by rank: the linker sends what the library asks of the operating system through here. Segments are
 * counted by size and not reserved, so that what a job of many nodes would reserve on each of them fits on one machine.
 */
#include "scale.h"

#include "util/reserve.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void __real_free(void *memory);
void *__real_mpath_reserve(size_t bytes);
void __real_mpath_unreserve(void *memory, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
void __wrap_free(void *memory);
void *__wrap_mpath_reserve(size_t bytes);
void __wrap_mpath_unreserve(void *memory, size_t bytes);
int __wrap_posix_fallocate(int file, off_t offset, off_t bytes);
int __wrap_statvfs(const char *path, struct statvfs *info);
int __wrap_fstatvfs(int file, struct statvfs *info);

static void *memory_count(void *memory, int sign)
{
    if (memory != NULL && scale.running >= 0) {
        scale.counts[scale.running].heap_bytes += sign * (int64_t)malloc_usable_size(memory);
    }
    return memory;
}

void *__wrap_malloc(size_t bytes)
{
    return memory_count(__real_malloc(bytes), 1);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return memory_count(__real_calloc(count, bytes), 1);
}

void *__wrap_realloc(void *memory, size_t bytes)
{
    void *other;

    memory_count(memory, -1);
    other = __real_realloc(memory, bytes);
    memory_count(other != NULL ? other : memory, 1);
    return other;
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    return memory_count(__real_aligned_alloc(alignment, bytes), 1);
}

void __wrap_free(void *memory)
{
    memory_count(memory, -1);
    __real_free(memory);
}

/* What is reserved counts by the pages that are there. */
typedef struct reserved {
    void *memory;
    size_t bytes;
    int rank;
} reserved_t;

static reserved_t *all_reserved;
static size_t num_reserved;

void *__wrap_mpath_reserve(size_t bytes)
{
    void *memory;

    if (bytes < MPATH_RESERVE_LEAST_BYTES) {
        return __wrap_calloc(1, bytes > 0 ? bytes : 1);
    }
    memory = __real_mpath_reserve(bytes);
    if (memory != NULL && scale.running >= 0) {
        if ((num_reserved & (num_reserved - 1)) == 0) {
            all_reserved = __real_realloc(all_reserved, (2 * num_reserved + 1) * sizeof(*all_reserved));
        }
        all_reserved[num_reserved++] = (reserved_t){memory, bytes, scale.running};
    }
    return memory;
}

void __wrap_mpath_unreserve(void *memory, size_t bytes)
{
    if (bytes < MPATH_RESERVE_LEAST_BYTES) {
        __wrap_free(memory);
        return;
    }
    for (size_t i = 0; memory != NULL && i < num_reserved; i++) {
        if (all_reserved[i].memory == memory) {
            all_reserved[i] = all_reserved[--num_reserved];
            break;
        }
    }
    __real_mpath_unreserve(memory, bytes);
}

static size_t pages_there(const reserved_t *reserved, size_t page_bytes)
{
    size_t pages = (reserved->bytes + page_bytes - 1) / page_bytes, count = 0;
    unsigned char *there = scale_allocate(pages);

    if (mincore(reserved->memory, reserved->bytes, there) != 0) {
        perror("scale: mincore");
        exit(1);
    }
    for (size_t i = 0; i < pages; i++) {
        count += there[i] & 1;
    }
    scale_free(there);
    return count;
}

void scale_reserved(int64_t *by_rank, uint64_t *whole_p)
{
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);

    for (size_t i = 0; i < num_reserved; i++) {
        by_rank[all_reserved[i].rank] += (int64_t)(pages_there(&all_reserved[i], page_bytes) * page_bytes);
        *whole_p += all_reserved[i].rank == 0 ? all_reserved[i].bytes : 0;
    }
}

int __wrap_posix_fallocate(int file, off_t offset, off_t bytes)
{
    scale.segment_bytes += (uint64_t)bytes;
    return ftruncate(file, offset + bytes) == 0 ? 0 : -1;
}

/* All nodes of the job have this one's /dev/shm: each of them is to see one of its own. */
static int memory_system(struct statvfs *info)
{
    *info = (struct statvfs){.f_bsize  = 4096,
                             .f_frsize = 4096,
                             .f_blocks = UINT64_C(1) << 34,
                             .f_bfree  = UINT64_C(1) << 34,
                             .f_bavail = UINT64_C(1) << 34};
    return 0;
}

int __wrap_statvfs(const char *path, struct statvfs *info)
{
    (void)path;
    return memory_system(info);
}

int __wrap_fstatvfs(int file, struct statvfs *info)
{
    (void)file;
    return memory_system(info);
}

void *scale_allocate(size_t bytes)
{
    void *memory = __real_calloc(1, bytes > 0 ? bytes : 1);

    if (memory == NULL) {
        fprintf(stderr, "scale: no memory for %zu bytes\n", bytes);
        exit(2);
    }
    return memory;
}

void scale_free(void *memory)
{
    __real_free(memory);
}
