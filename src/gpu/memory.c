/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory kinds from the driver's pointer attributes. */
#include "gpu/memory.h"

#include <inttypes.h>
#include <string.h>

/* What the driver says about one address of device or managed memory. */
typedef struct memory_attributes {
    unsigned type; /* 0: memory that CUDA does not know */
    unsigned managed, ipc;
    int ordinal;
    mpath_cu_context_t context;
    unsigned long long buffer_id;
    mpath_cu_ptr_t start;
    size_t bytes;
    mpath_cu_pool_t pool;
    uint64_t handles;
} memory_attributes_t;

const char *mpath_memory_kind_name(mpath_memory_kind_t kind)
{
    static const char *const names[] = {"host", "registered", "device", "pool", "vmm", "managed"};

    return ((unsigned)kind < sizeof(names) / sizeof(names[0])) ? names[kind] : "unknown";
}

/*
 * One call for everything: it says of unknown memory that its type is 0, in a quarter of the time that an error takes.
 */
static mpath_cu_result_t memory_attributes(const mpath_cu_t *cu, uint64_t address, memory_attributes_t *found)
{
    int names[]    = {MPATH_CU_PTR_MEMORY_TYPE,    MPATH_CU_PTR_IS_MANAGED,  MPATH_CU_PTR_IS_IPC_CAPABLE,
                      MPATH_CU_PTR_DEVICE_ORDINAL, MPATH_CU_PTR_CONTEXT,     MPATH_CU_PTR_BUFFER_ID,
                      MPATH_CU_PTR_RANGE_START,    MPATH_CU_PTR_RANGE_BYTES, MPATH_CU_PTR_POOL,
                      MPATH_CU_PTR_ALLOWED_HANDLES};
    void *values[] = {&found->type,      &found->managed, &found->ipc,   &found->ordinal, &found->context,
                      &found->buffer_id, &found->start,   &found->bytes, &found->pool,    &found->handles};

    memset(found, 0, sizeof(*found));
    found->ordinal = -1;
    return cu->PointerGetAttributes(sizeof(names) / sizeof(names[0]), names, values, address);
}

/*
 * The one mapping of VMM memory around an address, and what lies behind it. Older drivers do not tell; there the
 * address range is the mapping.
 */
static void memory_mapping(const mpath_cu_t *cu, uint64_t address, const memory_attributes_t *found,
                           mpath_memory_piece_t *piece)
{
    unsigned long long block = 0;
    mpath_cu_ptr_t start     = 0;
    size_t bytes             = 0;

    piece->base     = found->start;
    piece->bytes    = found->bytes;
    piece->block_id = found->buffer_id;
    if ((cu->PointerGetAttribute(&start, MPATH_CU_PTR_MAPPING_START, address) == MPATH_CU_SUCCESS) &&
        (cu->PointerGetAttribute(&bytes, MPATH_CU_PTR_MAPPING_BYTES, address) == MPATH_CU_SUCCESS) && (bytes > 0) &&
        (address >= start) && (address - start < bytes)) {
        piece->base  = start;
        piece->bytes = bytes;
    }
    if ((cu->PointerGetAttribute(&block, MPATH_CU_PTR_PHYSICAL_BLOCK, address) == MPATH_CU_SUCCESS) && (block != 0)) {
        piece->block_id = block;
    }
}

mpath_status_t mpath_memory_piece(uint64_t address, mpath_memory_piece_t *piece)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    memory_attributes_t found;

    if ((cu == NULL) || (memory_attributes(cu, address, &found) != MPATH_CU_SUCCESS) ||
        (found.type != MPATH_CU_MEMORY_DEVICE)) {
        return MPATH_ERR_PARAM;
    }
    piece->device = found.ordinal;
    memory_mapping(cu, address, &found, piece);
    return MPATH_OK;
}

/* Whether the driver's allocation handle can be had: only of memory made with cuMemCreate. */
static int memory_is_vmm(const mpath_cu_t *cu, uint64_t address)
{
    mpath_cu_mem_t handle;

    if ((cu->MemRetainAllocationHandle == NULL) ||
        (cu->MemRetainAllocationHandle(&handle, (void *)(uintptr_t)address) != MPATH_CU_SUCCESS)) {
        return 0;
    }
    cu->MemRelease(handle);
    return 1;
}

static void memory_set_kind(const mpath_cu_t *cu, uint64_t address, const memory_attributes_t *found,
                            mpath_memory_t *memory)
{
    mpath_memory_piece_t piece;

    if (found->managed) {
        memory->kind = MPATH_MEMORY_MANAGED;
    } else if (found->ipc) {
        memory->kind       = MPATH_MEMORY_DEVICE;
        memory->exportable = 1;
    } else if (found->pool != NULL) {
        memory->kind       = MPATH_MEMORY_POOL;
        memory->exportable = (found->handles & MPATH_CU_HANDLE_FD) != 0;
    } else if (memory_is_vmm(cu, address)) {
        memory->kind       = MPATH_MEMORY_VMM;
        memory->exportable = (found->handles & (MPATH_CU_HANDLE_FD | MPATH_CU_HANDLE_FABRIC)) != 0;
        memory->fabric     = (found->handles & MPATH_CU_HANDLE_FD) == 0;
        memory_mapping(cu, address, found, &piece);
        memory->base      = piece.base;
        memory->bytes     = piece.bytes;
        memory->buffer_id = piece.block_id;
    } else {
        memory->kind = MPATH_MEMORY_DEVICE; /* works in this process; nothing names it to others */
    }
}

/* Counts the mappings under a VMM buffer; 0: it reaches beyond mapped memory or onto another device. */
static int memory_count_pieces(uint64_t end, const mpath_memory_t *memory)
{
    uint64_t at = memory->base + memory->bytes;
    mpath_memory_piece_t piece;
    int pieces;

    for (pieces = 1; at < end; pieces++) {
        if ((mpath_memory_piece(at, &piece) != MPATH_OK) || (piece.base != at) || (piece.device != memory->device)) {
            return 0;
        }
        at += piece.bytes;
    }
    return pieces;
}

mpath_status_t mpath_memory_find(const void *address, size_t bytes, mpath_memory_t *memory)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    uint64_t at          = (uint64_t)(uintptr_t)address;
    mpath_memory_t made  = {.kind = MPATH_MEMORY_HOST, .device = -1};
    memory_attributes_t found;
    mpath_cu_result_t result;

    if ((cu == NULL) || (address == NULL) || (bytes == 0)) {
        *memory = made;
        return MPATH_OK;
    }
    result = memory_attributes(cu, at, &found);
    if ((result == MPATH_CU_DEINITIALIZED) || (result == MPATH_CU_NOT_INITIALIZED)) { /* at exit; after fork */
        *memory = made;
        return MPATH_OK;
    }
    if (result != MPATH_CU_SUCCESS) {
        mpath_error("the CUDA driver does not tell what the buffer at %p is: cuPointerGetAttributes: %s", address,
                    mpath_cu_error_string(result));
        return mpath_cu_status(result);
    }
    if (found.type == 0) {
        *memory = made;
        return MPATH_OK;
    }
    if ((found.type == MPATH_CU_MEMORY_HOST) && !found.managed) {
        made.kind = MPATH_MEMORY_REGISTERED;
        *memory   = made;
        return MPATH_OK;
    }
    made.device    = found.ordinal;
    made.context   = found.context;
    made.base      = found.start;
    made.bytes     = found.bytes;
    made.buffer_id = found.buffer_id;
    made.pieces    = 1;
    memory_set_kind(cu, at, &found, &made);
    if (bytes > made.bytes - (at - made.base)) {
        made.pieces = (made.kind == MPATH_MEMORY_VMM) ? memory_count_pieces(at + bytes, &made) : 0;
    }
    *memory = made;
    return MPATH_OK;
}

mpath_status_t mpath_memory_classify(const void *address, size_t bytes, mpath_memory_t *memory)
{
    mpath_memory_t made;
    mpath_status_t status = mpath_memory_find(address, bytes, &made);

    if (status != MPATH_OK) {
        return status;
    }
    if (!mpath_memory_on_host(made.kind) && (made.pieces == 0)) {
        mpath_error("the buffer of %zu bytes at %p reaches beyond its allocation in %s memory of GPU %d: %" PRIu64
                    " bytes at 0x%" PRIx64,
                    bytes, address, mpath_memory_kind_name(made.kind), made.device, made.bytes, made.base);
        return MPATH_ERR_PARAM;
    }
    *memory = made;
    return MPATH_OK;
}
