/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of device/device.h for NVIDIA's GPUs, over the CUDA driver. */
#include "device/cuda/driver.h"
#include "device/gpu.h"
#include "device/kernels/fatbin.h"
#include "device/memory.h"
#include "util/time.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static _Thread_local const char *cuda_failed = "";

static const char *cuda_failed_call(void)
{
    return cuda_failed;
}

static mpath_device_result_t cuda_said(const char *call, mpath_cu_result_t result)
{
    if (result != MPATH_CU_SUCCESS) {
        cuda_failed = call;
    }
    return result;
}

/* The driver. */

static int cuda_is_ready(void)
{
    return mpath_gpu_driver() != NULL;
}

static mpath_device_result_t cuda_driver_version(int *version_p)
{
    return mpath_gpu_driver()->DriverGetVersion(version_p);
}

/* Devices. */

static mpath_device_result_t cuda_device_count(int *count_p)
{
    return mpath_gpu_driver()->DeviceGetCount(count_p);
}

#define CUDA_DEVICES_KNOWN 64

/* The driver's name of a device, which it keeps. */
static mpath_cu_result_t cuda_device(int ordinal, mpath_cu_device_t *device_p)
{
    static atomic_int known[CUDA_DEVICES_KNOWN]; /* names plus 1; 0: not asked for yet */
    int is_kept = ordinal >= 0 && ordinal < CUDA_DEVICES_KNOWN;
    int name    = is_kept ? atomic_load_explicit(&known[ordinal], memory_order_relaxed) : 0;
    mpath_cu_result_t result;

    if (name != 0) {
        *device_p = name - 1;
        return MPATH_CU_SUCCESS;
    }
    result = mpath_gpu_driver()->DeviceGet(device_p, ordinal);
    if (result == MPATH_CU_SUCCESS && is_kept) {
        atomic_store_explicit(&known[ordinal], *device_p + 1, memory_order_relaxed);
    }
    return result;
}

static int cuda_attribute(mpath_cu_device_t device, int attribute, int otherwise)
{
    int value;

    return (mpath_gpu_driver()->DeviceGetAttribute(&value, attribute, device) == MPATH_CU_SUCCESS) ? value : otherwise;
}

static mpath_device_result_t cuda_device_info(int ordinal, mpath_gpu_info_t *info)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    mpath_cu_device_t device;
    mpath_cu_result_t result = cuda_device(ordinal, &device);
    size_t bytes;

    if (result == MPATH_CU_SUCCESS) {
        result = cu->DeviceGetUuid(&info->uuid, device);
    }
    if (result == MPATH_CU_SUCCESS) {
        result = cu->DeviceGetName(info->name, (int)sizeof(info->name), device);
    }
    if (result == MPATH_CU_SUCCESS) {
        result = cu->DeviceTotalMem(&bytes, device);
    }
    if (result != MPATH_CU_SUCCESS) {
        return result;
    }
    info->memory_bytes = bytes;
    snprintf(info->pci, sizeof(info->pci), "%04x:%02x:%02x.0",
             (unsigned)cuda_attribute(device, MPATH_CU_DEV_PCI_DOMAIN, 0) & 0xffff,
             (unsigned)cuda_attribute(device, MPATH_CU_DEV_PCI_BUS, 0) & 0xff,
             (unsigned)cuda_attribute(device, MPATH_CU_DEV_PCI_DEVICE, 0) & 0xff);
    info->capability = 10 * cuda_attribute(device, MPATH_CU_DEV_CAPABILITY_MAJOR, 0) +
                       cuda_attribute(device, MPATH_CU_DEV_CAPABILITY_MINOR, 0);
    info->multiprocessors = cuda_attribute(device, MPATH_CU_DEV_MULTIPROCESSORS, 1);
    info->copy_engines    = cuda_attribute(device, MPATH_CU_DEV_COPY_ENGINES, 1);
    info->numa            = cuda_attribute(device, MPATH_CU_DEV_HOST_NUMA, -1);
    info->pools           = cuda_attribute(device, MPATH_CU_DEV_POOLS, 0) && (cu->MemPoolCreate != NULL);
    info->mps             = cuda_attribute(device, MPATH_CU_DEV_MPS, -1);
    return MPATH_CU_SUCCESS;
}

static mpath_device_result_t cuda_device_uuid(int ordinal, mpath_device_uuid_t *uuid_p)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    mpath_cu_device_t device;
    mpath_cu_result_t result = cuda_device(ordinal, &device);

    return (result == MPATH_CU_SUCCESS) ? cu->DeviceGetUuid(uuid_p, device) : result;
}

static void cuda_device_features(int ordinal, mpath_device_features_t *features_p)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    mpath_cu_device_t device;

    features_p->values = (cu->StreamWriteValue64 != NULL) && (cuda_device(ordinal, &device) == MPATH_CU_SUCCESS) &&
                         cuda_attribute(device, MPATH_CU_DEV_64_BIT_STREAM_OPS, 0);
    features_p->waits = features_p->values && (cu->StreamWaitValue64 != NULL);
}

static mpath_device_result_t cuda_can_access(int ordinal, int peer, int *can_p)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    mpath_cu_device_t device, other;
    mpath_cu_result_t result = cuda_device(ordinal, &device);

    if (result == MPATH_CU_SUCCESS) {
        result = cuda_device(peer, &other);
    }
    return (result == MPATH_CU_SUCCESS) ? cu->DeviceCanAccessPeer(can_p, device, other) : result;
}

static mpath_status_t cuda_needs_flush(int ordinal, int *needs_p)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    int supported = 0, order = MPATH_CU_RDMA_ORDER_NONE, options = 0;
    mpath_cu_device_t device;

    if (cuda_device(ordinal, &device) != MPATH_CU_SUCCESS) {
        return MPATH_ERR_UNSUPPORTED;
    }
    if ((cu->DeviceGetAttribute(&supported, MPATH_CU_DEV_RDMA, device) != MPATH_CU_SUCCESS) || !supported ||
        ((cu->DeviceGetAttribute(&order, MPATH_CU_DEV_RDMA_ORDER, device) == MPATH_CU_SUCCESS) &&
         (order >= MPATH_CU_RDMA_ORDER_OWNER))) {
        *needs_p = 0;
        return MPATH_OK;
    }
    if ((cu->FlushGPUDirectRDMAWrites == NULL) ||
        (cu->DeviceGetAttribute(&options, MPATH_CU_DEV_RDMA_FLUSH, device) != MPATH_CU_SUCCESS) ||
        !(options & MPATH_CU_RDMA_FLUSH_BY_HOST)) {
        return MPATH_ERR_UNSUPPORTED;
    }
    *needs_p = 1;
    return MPATH_OK;
}

static mpath_device_result_t cuda_flush_writes(void)
{
    return mpath_gpu_driver()->FlushGPUDirectRDMAWrites(MPATH_CU_RDMA_FLUSH_CURRENT, MPATH_CU_RDMA_FLUSH_TO_OWNER);
}

/* Contexts. */

/* Retains the primary context when *context_p is that one, or NULL; another is used as it is. */
static mpath_device_result_t cuda_context_take(int ordinal, mpath_device_context_t *context_p, int *primary_p)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    mpath_cu_context_t primary;
    mpath_cu_device_t device;
    mpath_cu_result_t result = cuda_device(ordinal, &device);
    unsigned flags;
    int active = 0;

    if (result != MPATH_CU_SUCCESS) {
        return result;
    }
    *primary_p = 0;
    if ((*context_p != NULL) &&
        ((cu->DevicePrimaryCtxGetState(device, &flags, &active) != MPATH_CU_SUCCESS) || !active)) {
        return MPATH_CU_SUCCESS;
    }
    result = cu->DevicePrimaryCtxRetain(&primary, device);
    if (result != MPATH_CU_SUCCESS) {
        return result;
    }
    if ((*context_p == NULL) || (*context_p == primary)) {
        *context_p = primary;
        *primary_p = 1;
    } else {
        cu->DevicePrimaryCtxRelease(device);
    }
    return MPATH_CU_SUCCESS;
}

static void cuda_context_release(int ordinal)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    mpath_cu_device_t device;

    if (cuda_device(ordinal, &device) == MPATH_CU_SUCCESS) {
        cu->DevicePrimaryCtxRelease(device);
    }
}

static void cuda_exchange_capture_mode(int *mode)
{
    if (mpath_gpu_driver()->ThreadExchangeStreamCaptureMode != NULL) {
        (void)mpath_gpu_driver()->ThreadExchangeStreamCaptureMode(mode);
    }
}

/* A thread keeps the handle of a context that has been reset, in which no call works until somebody retains it. */
static mpath_cu_result_t cuda_current_works(void)
{
    int mode = MPATH_CU_CAPTURE_RELAXED;
    size_t free_bytes, total_bytes;
    mpath_cu_result_t result;

    cuda_exchange_capture_mode(&mode);
    result = mpath_gpu_driver()->MemGetInfo(&free_bytes, &total_bytes);
    cuda_exchange_capture_mode(&mode);
    return result;
}

static mpath_device_result_t cuda_context_current(int *ordinal_p, mpath_device_context_t *context_p)
{
    const mpath_cu_t *cu       = mpath_gpu_driver();
    mpath_cu_context_t context = NULL;
    mpath_cu_device_t device, other;
    mpath_cu_result_t result = cu->CtxGetCurrent(&context);
    int count                = 0;

    if (result != MPATH_CU_SUCCESS) {
        return result;
    }
    if (context == NULL) {
        return MPATH_CU_INVALID_CONTEXT;
    }
    result = cu->CtxGetDevice(&device);
    if (result == MPATH_CU_SUCCESS) {
        result = cuda_current_works();
    }
    if (result == MPATH_CU_SUCCESS) {
        result = cu->DeviceGetCount(&count);
    }
    for (int ordinal = 0; (result == MPATH_CU_SUCCESS) && (ordinal < count); ordinal++) {
        if ((cuda_device(ordinal, &other) == MPATH_CU_SUCCESS) && (other == device)) {
            *ordinal_p = ordinal;
            *context_p = context;
            return MPATH_CU_SUCCESS;
        }
    }
    return (result == MPATH_CU_SUCCESS) ? MPATH_CU_INVALID_DEVICE : result;
}

static int cuda_context_is_begun(int ordinal)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    mpath_cu_device_t device;
    unsigned flags;
    int active = 0;

    return (cuda_device(ordinal, &device) == MPATH_CU_SUCCESS) &&
           (cu->DevicePrimaryCtxGetState(device, &flags, &active) == MPATH_CU_SUCCESS) && active;
}

static int cuda_context_knows(const void *base)
{
    unsigned type;
    mpath_cu_result_t result = mpath_gpu_driver()->PointerGetAttribute(&type, MPATH_CU_PTR_MEMORY_TYPE,
                                                                       (mpath_cu_ptr_t)(uintptr_t)base);

    return (result != MPATH_CU_INVALID_VALUE) && (result != MPATH_CU_CONTEXT_IS_DESTROYED);
}

/*
 * While some stream is captured into a graph, by the application in this or another thread, the driver refuses calls
 * that might have to be part of it, such as allocations, and the capture fails. Ours never are.
 */
static mpath_device_result_t cuda_context_enter(mpath_device_context_t context, mpath_device_entered_t *entered_p)
{
    mpath_cu_result_t result = mpath_gpu_driver()->CtxPushCurrent(context);

    if (result == MPATH_CU_SUCCESS) {
        entered_p->mode = MPATH_CU_CAPTURE_RELAXED;
        cuda_exchange_capture_mode(&entered_p->mode);
    }
    return result;
}

static void cuda_context_leave(mpath_device_entered_t *entered)
{
    mpath_cu_context_t context;

    cuda_exchange_capture_mode(&entered->mode);
    mpath_gpu_driver()->CtxPopCurrent(&context);
}

static mpath_device_result_t cuda_context_reach(mpath_device_context_t other)
{
    mpath_cu_result_t result = mpath_gpu_driver()->CtxEnablePeerAccess(other, 0);

    return (result == MPATH_CU_PEER_ALREADY_ENABLED) ? MPATH_CU_SUCCESS : cuda_said("cuCtxEnablePeerAccess", result);
}

static mpath_device_result_t cuda_context_drain(void)
{
    return mpath_gpu_driver()->CtxSynchronize();
}

/* Memory kinds from the driver's pointer attributes. */

/* What the driver says about one address of device or managed memory. */
typedef struct cuda_attributes {
    unsigned type; /* 0: memory that CUDA does not know */
    unsigned managed, ipc;
    int ordinal;
    mpath_cu_context_t context;
    unsigned long long buffer_id;
    mpath_cu_ptr_t start;
    size_t bytes;
    mpath_cu_pool_t pool;
    uint64_t handles;
} cuda_attributes_t;

/*
 * One call for everything: it says of unknown memory that its type is 0, in a quarter of the time that an error takes.
 */
static mpath_cu_result_t cuda_attributes(uint64_t address, cuda_attributes_t *found)
{
    int names[]    = {MPATH_CU_PTR_MEMORY_TYPE,    MPATH_CU_PTR_IS_MANAGED,  MPATH_CU_PTR_IS_IPC_CAPABLE,
                      MPATH_CU_PTR_DEVICE_ORDINAL, MPATH_CU_PTR_CONTEXT,     MPATH_CU_PTR_BUFFER_ID,
                      MPATH_CU_PTR_RANGE_START,    MPATH_CU_PTR_RANGE_BYTES, MPATH_CU_PTR_POOL,
                      MPATH_CU_PTR_ALLOWED_HANDLES};
    void *values[] = {&found->type,      &found->managed, &found->ipc,   &found->ordinal, &found->context,
                      &found->buffer_id, &found->start,   &found->bytes, &found->pool,    &found->handles};

    memset(found, 0, sizeof(*found));
    found->ordinal = -1;
    return mpath_gpu_driver()->PointerGetAttributes(sizeof(names) / sizeof(names[0]), names, values, address);
}

/*
 * The one mapping of VMM memory around an address, and what lies behind it. Older drivers do not tell; there the
 * address range is the mapping.
 */
static void cuda_mapping(uint64_t address, const cuda_attributes_t *found, mpath_memory_block_t *block)
{
    const mpath_cu_t *cu        = mpath_gpu_driver();
    unsigned long long physical = 0;
    mpath_cu_ptr_t start        = 0;
    size_t bytes                = 0;

    block->base     = found->start;
    block->bytes    = found->bytes;
    block->block_id = found->buffer_id;
    if ((cu->PointerGetAttribute(&start, MPATH_CU_PTR_MAPPING_START, address) == MPATH_CU_SUCCESS) &&
        (cu->PointerGetAttribute(&bytes, MPATH_CU_PTR_MAPPING_BYTES, address) == MPATH_CU_SUCCESS) && (bytes > 0) &&
        (address >= start) && (address - start < bytes)) {
        block->base  = start;
        block->bytes = bytes;
    }
    if ((cu->PointerGetAttribute(&physical, MPATH_CU_PTR_PHYSICAL_BLOCK, address) == MPATH_CU_SUCCESS) &&
        (physical != 0)) {
        block->block_id = physical;
    }
}

static mpath_status_t cuda_memory_block(uint64_t address, mpath_memory_block_t *block)
{
    cuda_attributes_t found;

    if ((cuda_attributes(address, &found) != MPATH_CU_SUCCESS) || (found.type != MPATH_CU_MEMORY_DEVICE)) {
        return MPATH_ERR_PARAM;
    }
    block->device = found.ordinal;
    cuda_mapping(address, &found, block);
    return MPATH_OK;
}

/* Whether the driver's allocation handle can be had: only of memory made with cuMemCreate. */
static int cuda_is_vmm(uint64_t address)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    mpath_cu_mem_t handle;

    if ((cu->MemRetainAllocationHandle == NULL) ||
        (cu->MemRetainAllocationHandle(&handle, (void *)(uintptr_t)address) != MPATH_CU_SUCCESS)) {
        return 0;
    }
    cu->MemRelease(handle);
    return 1;
}

static void cuda_set_kind(uint64_t address, const cuda_attributes_t *found, mpath_memory_t *memory)
{
    mpath_memory_block_t block;

    if (found->managed) {
        memory->kind = MPATH_MEMORY_MANAGED;
    } else if (found->ipc) {
        memory->kind       = MPATH_MEMORY_DEVICE;
        memory->exportable = 1;
    } else if (found->pool != NULL) {
        memory->kind       = MPATH_MEMORY_POOL;
        memory->exportable = (found->handles & MPATH_CU_HANDLE_FD) != 0;
    } else if (cuda_is_vmm(address)) {
        memory->kind       = MPATH_MEMORY_VMM;
        memory->exportable = (found->handles & (MPATH_CU_HANDLE_FD | MPATH_CU_HANDLE_FABRIC)) != 0;
        memory->fabric     = (found->handles & MPATH_CU_HANDLE_FD) == 0;
        cuda_mapping(address, found, &block);
        memory->base      = block.base;
        memory->bytes     = block.bytes;
        memory->buffer_id = block.block_id;
    } else {
        memory->kind = MPATH_MEMORY_DEVICE; /* works in this process; nothing names it to others */
    }
}

static mpath_device_result_t cuda_memory_find(uint64_t address, mpath_memory_t *memory)
{
    cuda_attributes_t found;
    mpath_cu_result_t result = cuda_attributes(address, &found);

    *memory = (mpath_memory_t){.kind = MPATH_MEMORY_HOST, .device = -1};
    if ((result == MPATH_CU_DEINITIALIZED) || (result == MPATH_CU_NOT_INITIALIZED)) { /* at exit; after fork */
        return MPATH_CU_SUCCESS;
    }
    if (result != MPATH_CU_SUCCESS) {
        return cuda_said("cuPointerGetAttributes", result);
    }
    if (found.type == 0) {
        return MPATH_CU_SUCCESS;
    }
    if ((found.type == MPATH_CU_MEMORY_HOST) && !found.managed) {
        memory->kind = MPATH_MEMORY_REGISTERED;
        return MPATH_CU_SUCCESS;
    }
    memory->device    = found.ordinal;
    memory->context   = found.context;
    memory->base      = found.start;
    memory->bytes     = found.bytes;
    memory->buffer_id = found.buffer_id;
    cuda_set_kind(address, &found, memory);
    return MPATH_CU_SUCCESS;
}

/* Memory. */

static mpath_device_result_t cuda_memory_info(size_t *free_bytes_p, size_t *total_bytes_p)
{
    return mpath_gpu_driver()->MemGetInfo(free_bytes_p, total_bytes_p);
}

static mpath_device_result_t cuda_memory_take(mpath_device_ptr_t *address_p, size_t bytes)
{
    return mpath_gpu_driver()->MemAlloc(address_p, bytes);
}

static void cuda_memory_give(mpath_device_ptr_t address)
{
    mpath_gpu_driver()->MemFree(address);
}

/* A stream of its own: the others may be in use, and do not wait for the default one. */
static mpath_device_result_t cuda_memory_clear(mpath_device_ptr_t address, size_t bytes)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    mpath_cu_stream_t stream;
    mpath_cu_result_t result = cu->StreamCreateWithPriority(&stream, MPATH_CU_STREAM_NON_BLOCKING, 0);

    if (result != MPATH_CU_SUCCESS) {
        return result;
    }
    result = cu->MemsetD8Async(address, 0, bytes, stream);
    if (result == MPATH_CU_SUCCESS) {
        result = cu->StreamSynchronize(stream);
    }
    cu->StreamDestroy(stream);
    return result;
}

/*
 * The application's copies from pageable memory may return before the data is there, which other streams and GPUs would
 * notice. Not so with this attribute, which stays for the life of the allocation; a driver that refuses it does no harm.
 */
static void cuda_settle_copies(mpath_device_ptr_t base)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    unsigned yes         = 1;

    if (cu->PointerSetAttribute != NULL) {
        (void)cu->PointerSetAttribute(&yes, MPATH_CU_PTR_SYNC_MEMOPS, base);
    }
}

static int cuda_memory_settled(mpath_device_ptr_t base)
{
    unsigned settled = 0;

    if ((mpath_gpu_driver()->PointerGetAttribute(&settled, MPATH_CU_PTR_SYNC_MEMOPS, base) == MPATH_CU_SUCCESS) &&
        (settled != 0)) {
        return 1;
    }
    cuda_settle_copies(base);
    return 0;
}

/* Far more than the last bytes of a copy take that has returned. */
#define SETTLE_MAX_NS (100 * MPATH_NS_PER_MS)

/*
 * Without an end to it, work would be waited for that may itself wait for the call: the application's kernels on that
 * stream, and what it makes them come after, such as another library's exchange in which a peer has no part yet.
 */
static void cuda_memory_settle(void)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    uint64_t end_ns      = mpath_time_ns() + SETTLE_MAX_NS;
    int captured;

    /* While an ordinary stream is captured the default one must not be looked at. */
    if ((cu->StreamIsCapturing != NULL) && (cu->StreamIsCapturing(NULL, &captured) != MPATH_CU_SUCCESS)) {
        return;
    }
    while ((cu->StreamQuery(NULL) == MPATH_CU_NOT_READY) && (mpath_time_ns() < end_ns)) {
        sched_yield();
    }
}

static mpath_device_result_t cuda_pin(void *base, size_t bytes, mpath_device_ptr_t *device_base_p)
{
    const mpath_cu_t *cu     = mpath_gpu_driver();
    mpath_cu_result_t result = cu->MemHostRegister(base, bytes,
                                                   MPATH_CU_HOST_REGISTER_PORTABLE | MPATH_CU_HOST_REGISTER_DEVICEMAP);

    if (result != MPATH_CU_SUCCESS) {
        return cuda_said("cuMemHostRegister", result);
    }
    result = cu->MemHostGetDevicePointer(device_base_p, base, 0);
    if (result != MPATH_CU_SUCCESS) {
        cu->MemHostUnregister(base);
    }
    return cuda_said("cuMemHostGetDevicePointer", result);
}

static void cuda_unpin(void *base)
{
    mpath_gpu_driver()->MemHostUnregister(base);
}

/* Streams. */

static mpath_device_result_t cuda_stream_make(mpath_device_stream_t *stream_p)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    int least = 0, greatest = 0;

    cu->CtxGetStreamPriorityRange(&least, &greatest);
    return cuda_said("cuStreamCreateWithPriority",
                     cu->StreamCreateWithPriority(stream_p, MPATH_CU_STREAM_NON_BLOCKING, greatest));
}

static void cuda_stream_end(mpath_device_stream_t stream)
{
    mpath_gpu_driver()->StreamDestroy(stream);
}

static mpath_device_result_t cuda_stream_copy(mpath_device_stream_t stream, mpath_device_ptr_t target,
                                              mpath_device_ptr_t source, size_t bytes)
{
    return cuda_said("cuMemcpyAsync", mpath_gpu_driver()->MemcpyAsync(target, source, bytes, stream));
}

static mpath_device_result_t cuda_stream_drain(mpath_device_stream_t stream)
{
    return mpath_gpu_driver()->StreamSynchronize(stream);
}

static mpath_device_result_t cuda_stream_copy_all(mpath_device_stream_t stream, mpath_device_ptr_t *targets,
                                                  mpath_device_ptr_t *sources, size_t *bytes, size_t count)
{
    mpath_cu_copy_attributes_t attributes = {.source_order = MPATH_CU_COPY_STREAM_ORDER};
    const mpath_cu_t *cu                  = mpath_gpu_driver();
    size_t index                          = 0;

    if (cu->MemcpyBatchAsync == NULL) {
        return MPATH_CU_NOT_SUPPORTED;
    }
    return cuda_said("cuMemcpyBatchAsync",
                     cu->MemcpyBatchAsync(targets, sources, bytes, count, &attributes, &index, 1, stream));
}

/*
 * The driver takes engines for a batch of several copies that may overlap with computing, and the multiprocessors for one
 * copy, whatever its flags say (seen on H200: doc/benchmarks/2026-11-28-two-gpus.md).
 */
#define ASIDE_PARTS 4
#define ASIDE_GRAIN_BYTES ((size_t)64 << 10)

static mpath_device_result_t cuda_stream_copy_aside(mpath_device_stream_t stream, mpath_device_ptr_t target,
                                                    mpath_device_ptr_t source, size_t bytes)
{
    mpath_cu_copy_attributes_t attributes = {.source_order = MPATH_CU_COPY_STREAM_ORDER,
                                             .flags        = MPATH_CU_COPY_OVERLAP_WITH_COMPUTE};
    mpath_device_ptr_t targets[ASIDE_PARTS], sources[ASIDE_PARTS];
    size_t sizes[ASIDE_PARTS], part = bytes / ASIDE_PARTS & ~(size_t)(ASIDE_GRAIN_BYTES - 1), index = 0;
    const mpath_cu_t *cu = mpath_gpu_driver();

    if ((cu->MemcpyBatchAsync == NULL) || (part == 0)) {
        return MPATH_CU_NOT_SUPPORTED;
    }
    for (size_t i = 0; i < ASIDE_PARTS; i++) {
        targets[i] = target + i * part;
        sources[i] = source + i * part;
        sizes[i]   = (i == ASIDE_PARTS - 1) ? bytes - i * part : part;
    }
    return cuda_said("cuMemcpyBatchAsync",
                     cu->MemcpyBatchAsync(targets, sources, sizes, ASIDE_PARTS, &attributes, &index, 1, stream));
}

static mpath_device_result_t cuda_stream_copy_rows(mpath_device_stream_t stream, const mpath_device_rows_t *rows)
{
    const mpath_cu_copy_2d_t copy = {.source_type  = MPATH_CU_MEMORY_HOST,
                                     .source_host  = rows->source,
                                     .source_pitch = rows->row_bytes,
                                     .target_type  = MPATH_CU_MEMORY_DEVICE,
                                     .target       = rows->target,
                                     .target_pitch = rows->row_bytes,
                                     .row_bytes    = rows->row_bytes,
                                     .rows         = rows->rows};

    return mpath_gpu_driver()->Memcpy2DAsync(&copy, stream);
}

static mpath_device_result_t cuda_stream_write(mpath_device_stream_t stream, mpath_device_ptr_t address, uint64_t value)
{
    return cuda_said("cuStreamWriteValue64",
                     mpath_gpu_driver()->StreamWriteValue64(stream, address, value, MPATH_CU_WRITE_DEFAULT));
}

static mpath_device_result_t cuda_stream_wait(mpath_device_stream_t stream, mpath_device_ptr_t address, uint64_t value)
{
    return cuda_said("cuStreamWaitValue64",
                     mpath_gpu_driver()->StreamWaitValue64(stream, address, value, MPATH_CU_WAIT_GEQ));
}

static mpath_device_result_t cuda_stream_query(mpath_device_stream_t stream)
{
    return mpath_gpu_driver()->StreamQuery(stream);
}

static mpath_device_result_t cuda_event_make(mpath_device_event_t *event_p)
{
    return cuda_said("cuEventCreate", mpath_gpu_driver()->EventCreate(event_p, MPATH_CU_EVENT_DISABLE_TIMING));
}

static void cuda_event_end(mpath_device_event_t event)
{
    mpath_gpu_driver()->EventDestroy(event);
}

static mpath_device_result_t cuda_event_record(mpath_device_event_t event, mpath_device_stream_t stream)
{
    return cuda_said("cuEventRecord", mpath_gpu_driver()->EventRecord(event, stream));
}

static mpath_device_result_t cuda_event_query(mpath_device_event_t event)
{
    return mpath_gpu_driver()->EventQuery(event);
}

/* Kernels. */

static const char *cuda_kernels_missing(void)
{
    return mpath_fatbin_built ? NULL : "built without nvcc";
}

static mpath_device_result_t cuda_kernels_load(mpath_device_module_t *module_p)
{
    return mpath_gpu_driver()->ModuleLoadData(module_p, mpath_fatbin);
}

static void cuda_kernels_unload(mpath_device_module_t module)
{
    mpath_gpu_driver()->ModuleUnload(module);
}

static mpath_device_result_t cuda_kernel_find(mpath_device_module_t module, const char *name,
                                              mpath_device_function_t *function_p)
{
    return mpath_gpu_driver()->ModuleGetFunction(function_p, module, name);
}

static mpath_device_result_t cuda_kernel_launch(mpath_device_stream_t stream, mpath_device_function_t function,
                                                const void *arguments, unsigned ctas, unsigned threads)
{
    void *pointers[] = {(void *)(uintptr_t)arguments};

    return cuda_said("cuLaunchKernel",
                     mpath_gpu_driver()->LaunchKernel(function, ctas, 1, 1, threads, 1, 1, 0, stream, pointers, NULL));
}

static int cuda_has_graphs(void)
{
    const mpath_cu_t *cu = mpath_gpu_driver();

    return (cu->GraphCreate != NULL) && (cu->GraphAddKernelNode != NULL) && (cu->GraphInstantiate != NULL) &&
           (cu->GraphLaunch != NULL) && (cu->GraphExecDestroy != NULL) && (cu->GraphDestroy != NULL);
}

static mpath_device_result_t cuda_graph_make(mpath_device_function_t function, const void *arguments, unsigned ctas,
                                             unsigned threads, mpath_device_graph_t *graph_p)
{
    const mpath_cu_t *cu                = mpath_gpu_driver();
    void *pointers[]                    = {(void *)(uintptr_t)arguments};
    const mpath_cu_kernel_node_t kernel = {.function  = function,
                                           .grid_x    = ctas,
                                           .grid_y    = 1,
                                           .grid_z    = 1,
                                           .block_x   = threads,
                                           .block_y   = 1,
                                           .block_z   = 1,
                                           .arguments = pointers};
    mpath_cu_graph_node_t node;
    mpath_cu_graph_t graph;
    mpath_cu_result_t result = cu->GraphCreate(&graph, 0);

    if (result != MPATH_CU_SUCCESS) {
        return result;
    }
    result = cu->GraphAddKernelNode(&node, graph, NULL, 0, &kernel);
    if (result == MPATH_CU_SUCCESS) {
        result = cu->GraphInstantiate(graph_p, graph, 0);
    }
    cu->GraphDestroy(graph);
    return result;
}

static mpath_device_result_t cuda_graph_launch(mpath_device_graph_t graph, mpath_device_stream_t stream)
{
    return cuda_said("cuGraphLaunch", mpath_gpu_driver()->GraphLaunch(graph, stream));
}

static void cuda_graph_end(mpath_device_graph_t graph)
{
    mpath_gpu_driver()->GraphExecDestroy(graph);
}

/* Memory for other processes: CUDA IPC. */

static mpath_device_result_t cuda_ipc_export(mpath_device_ptr_t base, mpath_device_ipc_t *handle_p)
{
    mpath_cu_result_t result = mpath_gpu_driver()->IpcGetMemHandle(handle_p, base);

    if (result == MPATH_CU_SUCCESS) {
        cuda_settle_copies(base);
    }
    return cuda_said("cuIpcGetMemHandle", result);
}

static mpath_device_result_t cuda_ipc_open(const mpath_device_ipc_t *handle, mpath_device_ptr_t *address_p)
{
    return cuda_said("cuIpcOpenMemHandle",
                     mpath_gpu_driver()->IpcOpenMemHandle(address_p, *handle, MPATH_CU_IPC_LAZY_PEER_ACCESS));
}

static void cuda_ipc_close(mpath_device_ptr_t address)
{
    mpath_gpu_driver()->IpcCloseMemHandle(address);
}

/* Physical allocations. */

static mpath_device_result_t cuda_block_export(mpath_device_ptr_t address, int type, void *handle_p)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    mpath_cu_mem_t handle;
    mpath_cu_result_t result = cu->MemRetainAllocationHandle(&handle, (void *)(uintptr_t)address);

    if (result != MPATH_CU_SUCCESS) {
        return cuda_said("cuMemRetainAllocationHandle", result);
    }
    result = cu->MemExportToShareableHandle(handle_p, handle, type, 0);
    cu->MemRelease(handle);
    return cuda_said("cuMemExportToShareableHandle", result);
}

static mpath_device_result_t cuda_block_export_fd(mpath_device_ptr_t address, int *fd_p)
{
    return cuda_block_export(address, MPATH_CU_HANDLE_FD, fd_p);
}

static mpath_device_result_t cuda_block_export_fabric(mpath_device_ptr_t address, mpath_device_fabric_t *handle_p)
{
    return cuda_block_export(address, MPATH_CU_HANDLE_FABRIC, handle_p);
}

static mpath_device_result_t cuda_blocks_reserve(size_t bytes, mpath_device_ptr_t *address_p)
{
    const mpath_cu_t *cu = mpath_gpu_driver();

    if (cu->MemAddressReserve == NULL) {
        return cuda_said("memory that is mapped by hand", MPATH_CU_NOT_SUPPORTED);
    }
    return cuda_said("cuMemAddressReserve", cu->MemAddressReserve(address_p, bytes, 0, 0, 0));
}

static mpath_device_result_t cuda_block_map(mpath_device_ptr_t address, size_t bytes, int type, void *shareable)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    mpath_cu_mem_t handle;
    mpath_cu_result_t result = cu->MemImportFromShareableHandle(&handle, shareable, type);

    if (result != MPATH_CU_SUCCESS) {
        return cuda_said("cuMemImportFromShareableHandle", result);
    }
    result = cu->MemMap(address, bytes, 0, handle, 0);
    cu->MemRelease(handle); /* the mapping holds it */
    return cuda_said("cuMemMap", result);
}

static mpath_device_result_t cuda_block_map_fd(mpath_device_ptr_t address, size_t bytes, int fd)
{
    return cuda_block_map(address, bytes, MPATH_CU_HANDLE_FD, (void *)(intptr_t)fd);
}

static mpath_device_result_t cuda_block_map_fabric(mpath_device_ptr_t address, size_t bytes,
                                                   const mpath_device_fabric_t *handle)
{
    mpath_cu_fabric_t fabric = *handle;

    return cuda_block_map(address, bytes, MPATH_CU_HANDLE_FABRIC, &fabric);
}

static mpath_cu_access_t cuda_access_of(int ordinal)
{
    return (mpath_cu_access_t){.location = {.type = MPATH_CU_LOCATION_DEVICE, .id = ordinal},
                               .flags    = MPATH_CU_ACCESS_READ_WRITE};
}

static mpath_device_result_t cuda_blocks_allow(mpath_device_ptr_t address, size_t bytes, int ordinal)
{
    mpath_cu_access_t access = cuda_access_of(ordinal);

    return cuda_said("cuMemSetAccess", mpath_gpu_driver()->MemSetAccess(address, bytes, &access, 1));
}

static void cuda_blocks_release(mpath_device_ptr_t address, size_t bytes, size_t mapped_bytes)
{
    const mpath_cu_t *cu = mpath_gpu_driver();

    if (mapped_bytes > 0) {
        cu->MemUnmap(address, mapped_bytes);
    }
    cu->MemAddressFree(address, bytes);
}

/* Pools. */

static mpath_device_result_t cuda_pool_find(mpath_device_ptr_t address, mpath_device_pool_t *pool_p)
{
    mpath_cu_pool_t pool     = NULL;
    mpath_cu_result_t result = mpath_gpu_driver()->PointerGetAttribute(&pool, MPATH_CU_PTR_POOL, address);

    if (result != MPATH_CU_SUCCESS) {
        return result;
    }
    *pool_p = pool;
    return (pool != NULL) ? MPATH_CU_SUCCESS : MPATH_CU_NOT_FOUND;
}

static mpath_device_result_t cuda_pool_export(mpath_device_pool_t pool, int *fd_p)
{
    return mpath_gpu_driver()->MemPoolExportToShareableHandle(fd_p, pool, MPATH_CU_HANDLE_FD, 0);
}

static mpath_device_result_t cuda_pool_export_ptr(mpath_device_ptr_t address, mpath_device_pool_ptr_t *handle_p)
{
    return cuda_said("cuMemPoolExportPointer", mpath_gpu_driver()->MemPoolExportPointer(handle_p, address));
}

static mpath_device_result_t cuda_pool_open(int fd, mpath_device_pool_t *pool_p)
{
    if (mpath_gpu_driver()->MemPoolImportPointer == NULL) {
        return cuda_said("memory of pools", MPATH_CU_NOT_SUPPORTED);
    }
    return cuda_said("cuMemPoolImportFromShareableHandle", mpath_gpu_driver()->MemPoolImportFromShareableHandle(
                                                               pool_p, (void *)(intptr_t)fd, MPATH_CU_HANDLE_FD, 0));
}

static mpath_device_result_t cuda_pool_allow(mpath_device_pool_t pool, int ordinal)
{
    mpath_cu_access_t access = cuda_access_of(ordinal);

    return cuda_said("cuMemPoolSetAccess", mpath_gpu_driver()->MemPoolSetAccess(pool, &access, 1));
}

static mpath_device_result_t cuda_pool_open_ptr(mpath_device_pool_t pool, const mpath_device_pool_ptr_t *handle,
                                                mpath_device_ptr_t *address_p)
{
    mpath_cu_pool_ptr_t pointer = *handle;

    return cuda_said("cuMemPoolImportPointer", mpath_gpu_driver()->MemPoolImportPointer(address_p, pool, &pointer));
}

static void cuda_pool_close(mpath_device_pool_t pool)
{
    mpath_gpu_driver()->MemPoolDestroy(pool);
}

const mpath_device_ops_t mpath_device_cuda = {
    .name                = "CUDA",
    .is_ready            = cuda_is_ready,
    .start               = mpath_cuda_start,
    .driver_version      = cuda_driver_version,
    .error_string        = mpath_cuda_error_string,
    .failed_call         = cuda_failed_call,
    .device_count        = cuda_device_count,
    .device_info         = cuda_device_info,
    .device_uuid         = cuda_device_uuid,
    .device_features     = cuda_device_features,
    .can_access          = cuda_can_access,
    .needs_flush         = cuda_needs_flush,
    .flush_writes        = cuda_flush_writes,
    .context_take        = cuda_context_take,
    .context_release     = cuda_context_release,
    .context_current     = cuda_context_current,
    .context_is_begun    = cuda_context_is_begun,
    .context_knows       = cuda_context_knows,
    .context_enter       = cuda_context_enter,
    .context_leave       = cuda_context_leave,
    .context_reach       = cuda_context_reach,
    .context_drain       = cuda_context_drain,
    .memory_find         = cuda_memory_find,
    .memory_block        = cuda_memory_block,
    .memory_info         = cuda_memory_info,
    .memory_take         = cuda_memory_take,
    .memory_give         = cuda_memory_give,
    .memory_clear        = cuda_memory_clear,
    .memory_settled      = cuda_memory_settled,
    .memory_settle       = cuda_memory_settle,
    .pin                 = cuda_pin,
    .unpin               = cuda_unpin,
    .stream_make         = cuda_stream_make,
    .stream_end          = cuda_stream_end,
    .stream_copy         = cuda_stream_copy,
    .stream_drain        = cuda_stream_drain,
    .stream_copy_all     = cuda_stream_copy_all,
    .stream_copy_aside   = cuda_stream_copy_aside,
    .stream_copy_rows    = cuda_stream_copy_rows,
    .stream_write        = cuda_stream_write,
    .stream_wait         = cuda_stream_wait,
    .stream_query        = cuda_stream_query,
    .event_make          = cuda_event_make,
    .event_end           = cuda_event_end,
    .event_record        = cuda_event_record,
    .event_query         = cuda_event_query,
    .kernels_missing     = cuda_kernels_missing,
    .kernels_load        = cuda_kernels_load,
    .kernels_unload      = cuda_kernels_unload,
    .kernel_find         = cuda_kernel_find,
    .kernel_launch       = cuda_kernel_launch,
    .has_graphs          = cuda_has_graphs,
    .graph_make          = cuda_graph_make,
    .graph_launch        = cuda_graph_launch,
    .graph_end           = cuda_graph_end,
    .ipc_export          = cuda_ipc_export,
    .ipc_open            = cuda_ipc_open,
    .ipc_close           = cuda_ipc_close,
    .block_export_fd     = cuda_block_export_fd,
    .block_export_fabric = cuda_block_export_fabric,
    .blocks_reserve      = cuda_blocks_reserve,
    .block_map_fd        = cuda_block_map_fd,
    .block_map_fabric    = cuda_block_map_fabric,
    .blocks_allow        = cuda_blocks_allow,
    .blocks_release      = cuda_blocks_release,
    .pool_find           = cuda_pool_find,
    .pool_export         = cuda_pool_export,
    .pool_export_ptr     = cuda_pool_export_ptr,
    .pool_open           = cuda_pool_open,
    .pool_allow          = cuda_pool_allow,
    .pool_open_ptr       = cuda_pool_open_ptr,
    .pool_close_ptr      = cuda_memory_give,
    .pool_close          = cuda_pool_close,
};
