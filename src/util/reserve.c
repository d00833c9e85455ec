/* SPDX-License-Identifier: BSD-3-Clause */
/* Reserved memory: private mappings, of small pages whatever the system prefers. */
#include "util/reserve.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void *mpath_reserve(size_t bytes)
{
    void *memory;

    if (bytes < MPATH_RESERVE_LEAST_BYTES) {
        return calloc(1, bytes > 0 ? bytes : 1);
    }
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return NULL;
    }
    (void)madvise(memory, bytes, MADV_NOHUGEPAGE); /* else the first byte may take 2 MiB; unknown to some kernels */
    return memory;
}

void mpath_reserve_clear(void *memory, size_t bytes)
{
    if (bytes < MPATH_RESERVE_LEAST_BYTES || madvise(memory, bytes, MADV_DONTNEED) != 0) {
        memset(memory, 0, bytes);
    }
}

size_t mpath_reserve_pages(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    return (bytes + page - 1) / page * page;
}

void mpath_unreserve(void *memory, size_t bytes)
{
    if (bytes < MPATH_RESERVE_LEAST_BYTES) {
        free(memory);
    } else if (memory != NULL) {
        munmap(memory, bytes);
    }
}
