/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What kind of memory a buffer is. Asked anew on every call, of the driver: a cache of address ranges would be wrong as
 * soon as the application frees and allocates again. Costs nothing without a driver, otherwise one driver call (0.1 to
 * 0.2 us, VMM 0.4 us, on an H200 machine).
 */
#ifndef MPATH_DEVICE_MEMORY_H
#define MPATH_DEVICE_MEMORY_H

#include "device/gpu.h"

#include <stddef.h>
#include <stdint.h>

typedef enum mpath_memory_kind {
    MPATH_MEMORY_HOST,       /* pageable, unknown to CUDA; also every empty or NULL buffer */
    MPATH_MEMORY_REGISTERED, /* host memory that CUDA has pinned (cudaHostAlloc, cudaHostRegister) */
    MPATH_MEMORY_DEVICE,     /* cudaMalloc */
    MPATH_MEMORY_POOL,       /* cudaMallocAsync: a memory pool */
    MPATH_MEMORY_VMM,        /* cuMemCreate + cuMemMap, for instance PyTorch's expandable segments */
    MPATH_MEMORY_MANAGED     /* cudaMallocManaged: moves between host and device by itself */
} mpath_memory_kind_t;

typedef struct mpath_memory {
    mpath_memory_kind_t kind;
    int device;                     /* ordinal; -1 for host memory, and for managed memory without a home */
    mpath_device_context_t context; /* that allocated it; NULL: the primary context of the device */
    uint64_t base;                  /* first address of the allocation that holds the buffer's first byte */
    uint64_t bytes;                 /* of that allocation */
    uint64_t buffer_id;             /* of that allocation: never given twice in a process */
    int blocks;                     /* 1: the buffer lies inside that allocation; more: it spans several (VMM only) */
    int exportable;                 /* mpath_export_make() can name it to other processes */
    int fabric;                     /* VMM: only by fabric handles */
} mpath_memory_t;

/* Memory of the host and of devices does not share an aligned block of so many bytes. */
#define MPATH_MEMORY_BLOCK_BYTES 65536u

static inline int mpath_memory_on_host(mpath_memory_kind_t kind)
{
    return (kind == MPATH_MEMORY_HOST) || (kind == MPATH_MEMORY_REGISTERED);
}

/* "host", "registered", "device", "pool", "vmm", "managed". */
const char *mpath_memory_kind_name(mpath_memory_kind_t kind);

/*
 * Classifies the `bytes` bytes at `address`. MPATH_ERR_PARAM, logged: the buffer begins in device memory and reaches
 * beyond its end. For host memory only kind and device are set, the rest is 0.
 */
mpath_status_t mpath_memory_classify(const void *address, size_t bytes, mpath_memory_t *memory);

/* The same without that error: device memory that the buffer reaches beyond has 0 blocks. */
mpath_status_t mpath_memory_find(const void *address, size_t bytes, mpath_memory_t *memory);

/* One mapping of VMM memory: a physical allocation, or a part of one, at consecutive addresses. */
typedef struct mpath_memory_block {
    uint64_t base, bytes;
    uint64_t block_id; /* of the physical allocation: never given twice in a process */
    int device;
} mpath_memory_block_t;

/* The mapping around an address of VMM memory. MPATH_ERR_PARAM, silent, when it is no mapped device memory. */
mpath_status_t mpath_memory_block(uint64_t address, mpath_memory_block_t *block);

/*
 * Whether the `bytes` bytes at `address` are variables of the program or lie in its heap below the program break: no driver gives
 * out such memory, whatever has been loaded since anybody looked. Zero says nothing. Costs a few comparisons.
 */
int mpath_memory_is_programs(const void *address, size_t bytes);

/* What makes device buffers slow, and what helps: said once per process. */

/*
 * The buffer of `side` ("send", "receive") of a rank goes through host memory, since other processes cannot open its
 * memory. Silent where the driver has refused: that has been told of (device/ipc_export.h).
 */
void mpath_memory_is_slow(int rank, const char *side, const mpath_memory_t *memory);

#endif
