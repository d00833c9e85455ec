/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Naming a device allocation to other processes of the node. The result is a plain value that is copied through shared
 * memory or messages; it stays good until the allocation is freed. Receivers turn it into an address: device/ipc_import.h.
 *
 *   kind     how                                           freed by the owner while others have it open
 *   device   CUDA IPC handle                               memory stays until they close it (device/ipc_import.h notices reuse)
 *   vmm      file descriptors, and a list of them in       the same
 *            one more, fetched with pidfd_getfd; fabric
 *            handles, if it was made with these only
 *   pool     pool's file descriptor + pointer, if the      the pool must not reuse it: the owner's matter, as for
 *            pool was made with such handles               every reader of a freed buffer
 *   others   cannot: MPATH_DECLINED; data goes through host memory. So does VMM memory with
 *            neither kind of handle, and a buffer over more than MPATH_EXPORT_BLOCKS_MAX mappings, over more than half
 *            of the descriptors that the process may have, or with fabric handles over more than
 *            MPATH_EXPORT_FABRIC_MAX or over some of different sizes; a warning names the limit, once
 *
 * Descriptors of VMM and pool memory stay open in the owner, for at most MPATH_EXPORTS_MAX allocations; older ones, and
 * those whose memory is gone, are closed when new ones are made.
 */
#ifndef MPATH_DEVICE_IPC_EXPORT_H
#define MPATH_DEVICE_IPC_EXPORT_H

#include "device/memory.h"
#include "util/process.h"

#define MPATH_EXPORTS_MAX 64
#define MPATH_EXPORT_BLOCKS_MAX 4096
#define MPATH_EXPORT_FABRIC_MAX 8

typedef enum mpath_export_how {
    MPATH_EXPORT_NONE, /* host memory, or an empty buffer */
    MPATH_EXPORT_IPC,
    MPATH_EXPORT_FDS,
    MPATH_EXPORT_POOL,
    MPATH_EXPORT_FABRIC
} mpath_export_how_t;

/* 640 bytes, no pointer that its reader follows. */
typedef struct mpath_export {
    uint32_t how;             /* mpath_export_how_t */
    uint32_t blocks;          /* of FDS and FABRIC: physical allocations behind one another */
    mpath_process_t owner;    /* 24 bytes */
    mpath_device_uuid_t uuid; /* of the device */
    uint64_t base;            /* in the owner: where the exported range begins */
    uint64_t bytes;           /* of the exported range */
    uint64_t buffer_id;       /* in the owner */
    uint64_t block_bytes;     /* of FABRIC: each block but the last */
    union {
        mpath_device_ipc_t ipc;
        int32_t list; /* of FDS: descriptor in the owner, of a file with the blocks (device/ipc_export.h) */
        mpath_device_fabric_t fabric[MPATH_EXPORT_FABRIC_MAX];
        struct {
            int32_t fd;
            uint32_t pool; /* number of the pool in the owner, never given twice: its fd is imported once */
            mpath_device_pool_ptr_t pointer;
        } pool;
    } handle;
    uint32_t fabric_ids[MPATH_EXPORT_FABRIC_MAX];
    uint8_t reserved[16];
} mpath_export_t;

/* Physical allocations mapped behind one another, of which several extents may be exported. */
static inline int mpath_export_is_mapped(const mpath_export_t *export)
{
    return (export->how == MPATH_EXPORT_FDS) || (export->how == MPATH_EXPORT_FABRIC);
}

/*
 * Names the allocations under a classified buffer: the whole of them, from memory->base on, so that one export serves
 * every buffer in them. A cached one is returned when the allocation is still the same. MPATH_DECLINED, silent: memory
 * that cannot be exported; errors are logged.
 */
mpath_status_t mpath_export_make(const void *address, size_t bytes, const mpath_memory_t *memory,
                                 mpath_export_t *export_p);

/*
 * Whether other processes have the memory mapped in small pages: an allocation of cudaMalloc that is no multiple of
 * 64 KiB. On H200 copy engines that write to such a mapping, while data comes in, reach 230 to 305 GB/s from some
 * 32 MiB on, instead of 382 to 391; kernels and reads do not mind.
 */
static inline int mpath_export_has_small_pages(const mpath_export_t *export)
{
    return (export->how == MPATH_EXPORT_IPC) && (export->bytes % (UINT64_C(64) << 10) != 0);
}

/*
 * The blocks of exports that are made of several physical allocations. Those with file descriptors are a list in a file
 * in memory of the owner, which importers fetch like the descriptors in it; fabric handles are in the export itself.
 */

typedef struct mpath_export_block {
    uint64_t bytes;
    uint64_t id; /* another one for another physical allocation */
    int32_t fd;  /* in the owner */
    uint32_t reserved;
} mpath_export_block_t;

/* What the file begins with: the export that it is of, and so many blocks behind it. */
typedef struct mpath_export_list {
    uint64_t magic, base, bytes, buffer_id, blocks;
} mpath_export_list_t;

#define MPATH_EXPORT_LIST_MAGIC UINT64_C(0x6d70617468206c31)

/*
 * Descriptors for the blocks from made->base on, and the list of them. A physical allocation has one descriptor,
 * however many exports it is in. MPATH_ERR_NO_MEMORY, silent: that would take more than half of the descriptors that
 * the process may have; MPATH_DECLINED: the driver refuses, with the call and its result. Under the lock of the exports.
 */
typedef struct mpath_export_refusal {
    const char *call;
    mpath_device_result_t result;
} mpath_export_refusal_t;

/* For importers: an array of export->blocks, to be freed. Errors, logged, as of mpath_import_get(). */
mpath_status_t mpath_import_blocks(const mpath_export_t *export, mpath_export_block_t **list_p);

/* Whether a block of one export begins where the other one has another block, or none that begins there. */
int mpath_export_blocks_differ(const mpath_export_t *a, const mpath_export_block_t *a_list, const mpath_export_t *b,
                               const mpath_export_block_t *b_list);

/* For mpath_gpu_cleanup(). */
void mpath_export_cleanup(void);

#endif
