/* SPDX-License-Identifier: BSD-3-Clause */
/* mpath_bench: the GPU of a rank, buffers of every kind, and their contents. */
#include "tools/bench/memory.h"

#include "device/cuda/driver.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WINDOW_BYTES (4u << 20)

const char *const bench_memory_names[BENCH_MEMORY_KINDS + 1] = {
    [BENCH_MEMORY_HOST] = "host", [BENCH_MEMORY_PINNED] = "pinned",   [BENCH_MEMORY_REGISTERED] = "registered",
    [BENCH_MEMORY_CUDA] = "cuda", [BENCH_MEMORY_EXACT] = "exact",     [BENCH_MEMORY_POOL] = "pool",
    [BENCH_MEMORY_VMM] = "vmm",   [BENCH_MEMORY_MANAGED] = "managed", [BENCH_MEMORY_KINDS] = NULL};

bench_gpu_t bench_gpu;

static unsigned char *window; /* pinned */

#define CHECK(_call, ...) bench_gpu_check(bench_gpu.cu->_call(__VA_ARGS__), "cu" #_call)

/* --- the GPU ----------------------------------------------------------------------------------------------------- */

void bench_gpu_check(mpath_cu_result_t result, const char *call)
{
    if (result != MPATH_CU_SUCCESS) {
        fprintf(stderr, "mpath_bench: GPU %d: %s: %s\n", bench_gpu.ordinal, call, mpath_device_error_string(result));
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int bench_gpu_open(int local_rank)
{
    mpath_cu_context_t context;
    void *memory;

    if (mpath_gpu_driver_start() != MPATH_OK) {
        fprintf(stderr, "mpath_bench: no CUDA driver or no device here; only --memory host runs\n");
        return -1;
    }
    bench_gpu.cu = mpath_gpu_driver();
    CHECK(DeviceGetCount, &bench_gpu.num_devices);
    bench_gpu.ordinal = local_rank % bench_gpu.num_devices;
    CHECK(DriverGetVersion, &bench_gpu.driver_version);
    CHECK(DeviceGet, &bench_gpu.device, bench_gpu.ordinal);
    CHECK(DeviceGetName, bench_gpu.name, sizeof(bench_gpu.name), bench_gpu.device);
    CHECK(DevicePrimaryCtxRetain, &context, bench_gpu.device);
    CHECK(CtxSetCurrent, context);
    CHECK(StreamCreateWithPriority, &bench_gpu.stream, MPATH_CU_STREAM_NON_BLOCKING, 0);
    CHECK(MemHostAlloc, &memory, WINDOW_BYTES, 0);
    window = memory;
    return 0;
}

void bench_gpu_close(void)
{
    if (bench_gpu.cu != NULL) {
        CHECK(MemFreeHost, window);
        CHECK(StreamDestroy, bench_gpu.stream);
        CHECK(DevicePrimaryCtxRelease, bench_gpu.device);
        memset(&bench_gpu, 0, sizeof(bench_gpu));
    }
}

void bench_gpu_settle(void)
{
    if (bench_gpu.cu != NULL) {
        CHECK(CtxSynchronize, );
    }
}

uint64_t bench_gpu_free_bytes(void)
{
    size_t free_bytes = 0, total_bytes;

    if (bench_gpu.cu != NULL) {
        CHECK(MemGetInfo, &free_bytes, &total_bytes);
    }
    return free_bytes;
}

/* --- buffers ----------------------------------------------------------------------------------------------------- */

static mpath_cu_ptr_t device_address(const bench_buffer_t *buffer)
{
    return (mpath_cu_ptr_t)(uintptr_t)buffer->address;
}

static void *device_memory(mpath_cu_ptr_t address)
{
    return (void *)(uintptr_t)address;
}

static mpath_cu_ptr_t pool_create(uint64_t bytes)
{
    mpath_cu_ptr_t address = 0;
    mpath_cu_pool_t pool;

    CHECK(DeviceGetDefaultMemPool, &pool, bench_gpu.device);
    CHECK(MemAllocFromPoolAsync, &address, bytes, pool, bench_gpu.stream);
    CHECK(StreamSynchronize, bench_gpu.stream);
    return address;
}

/*
 * Caching allocators take large blocks from the driver in multiples of 2 MiB, and programs without one mostly ask for
 * round numbers; here guards between the pieces make sizes odd, which other processes map in small pages.
 */
static uint64_t rounded(uint64_t bytes)
{
    const uint64_t least = UINT64_C(1) << 20, block = UINT64_C(2) << 20;

    return (bytes < least) ? bytes : (bytes + block - 1) / block * block;
}

/* As PyTorch's expandable segments grow by. */
#define VMM_PIECE_BYTES (UINT64_C(20) << 20)

/* A physical allocation that may be shared by file descriptor; it lives as long as it is mapped. */
static void vmm_map(mpath_cu_ptr_t address, uint64_t bytes, const mpath_cu_mem_prop_t *prop)
{
    mpath_cu_mem_t physical = 0;

    CHECK(MemCreate, &physical, bytes, prop, 0);
    CHECK(MemMap, address, bytes, 0, physical, 0);
    CHECK(MemRelease, physical);
}

/* Mapped behind each other, in two pieces at least where it is long enough. */
static mpath_cu_ptr_t vmm_create(bench_buffer_t *buffer)
{
    const mpath_cu_mem_prop_t prop = {.type         = MPATH_CU_ALLOCATION_PINNED,
                                      .handle_types = MPATH_CU_HANDLE_FD,
                                      .location     = {.type = MPATH_CU_LOCATION_DEVICE, .id = bench_gpu.ordinal}};
    const mpath_cu_access_t access = {.location = prop.location, .flags = MPATH_CU_ACCESS_READ_WRITE};
    mpath_cu_ptr_t address         = 0;
    size_t granularity             = 1;
    uint64_t piece, at;

    CHECK(MemGetAllocationGranularity, &granularity, &prop, MPATH_CU_GRANULARITY_MINIMUM);
    piece = (buffer->bytes / 2 + granularity - 1) / granularity * granularity;
    if (piece == 0) {
        piece = granularity;
    } else if (piece > VMM_PIECE_BYTES) {
        piece = (VMM_PIECE_BYTES + granularity - 1) / granularity * granularity;
    }
    buffer->mapped_bytes = (buffer->bytes + piece - 1) / piece * piece;
    CHECK(MemAddressReserve, &address, buffer->mapped_bytes, 0, 0, 0);
    for (at = 0; at < buffer->mapped_bytes; at += piece) {
        vmm_map(address + at, piece, &prop);
    }
    CHECK(MemSetAccess, address, buffer->mapped_bytes, &access, 1);
    return address;
}

static void vmm_destroy(const bench_buffer_t *buffer)
{
    CHECK(MemUnmap, device_address(buffer), buffer->mapped_bytes);
    CHECK(MemAddressFree, device_address(buffer), buffer->mapped_bytes);
}

int bench_buffer_create(bench_memory_t kind, uint64_t bytes, bench_buffer_t *buffer_p)
{
    bench_buffer_t buffer  = {.kind = kind, .bytes = bytes};
    mpath_cu_ptr_t address = 0;
    void *memory           = NULL;

    switch (kind) {
    case BENCH_MEMORY_HOST:
        memory = malloc(bytes);
        break;
    case BENCH_MEMORY_PINNED:
        CHECK(MemHostAlloc, &memory, bytes, 0);
        break;
    case BENCH_MEMORY_REGISTERED:
        if (posix_memalign(&memory, (size_t)sysconf(_SC_PAGESIZE), bytes) != 0) {
            return -1;
        }
        CHECK(MemHostRegister, memory, bytes, MPATH_CU_HOST_REGISTER_PORTABLE);
        break;
    case BENCH_MEMORY_CUDA:
        CHECK(MemAlloc, &address, rounded(bytes));
        break;
    case BENCH_MEMORY_EXACT:
        CHECK(MemAlloc, &address, bytes);
        break;
    case BENCH_MEMORY_POOL:
        address = pool_create(bytes);
        break;
    case BENCH_MEMORY_VMM:
        address = vmm_create(&buffer);
        break;
    default:
        CHECK(MemAllocManaged, &address, bytes, MPATH_CU_ATTACH_GLOBAL);
        break;
    }
    buffer.address = bench_memory_on_host(kind) ? memory : device_memory(address);
    if (buffer.address == NULL) {
        return -1;
    }
    *buffer_p = buffer;
    return 0;
}

void bench_buffer_destroy(bench_buffer_t *buffer)
{
    if (buffer->address == NULL) {
        return;
    }
    bench_gpu_settle();
    switch (buffer->kind) {
    case BENCH_MEMORY_HOST:
        free(buffer->address);
        break;
    case BENCH_MEMORY_PINNED:
        CHECK(MemFreeHost, buffer->address);
        break;
    case BENCH_MEMORY_REGISTERED:
        CHECK(MemHostUnregister, buffer->address);
        free(buffer->address);
        break;
    case BENCH_MEMORY_POOL:
        CHECK(MemFreeAsync, device_address(buffer), bench_gpu.stream);
        CHECK(StreamSynchronize, bench_gpu.stream);
        break;
    case BENCH_MEMORY_VMM:
        vmm_destroy(buffer);
        break;
    default:
        CHECK(MemFree, device_address(buffer));
        break;
    }
    memset(buffer, 0, sizeof(*buffer));
}

void bench_buffer_copy(bench_buffer_t *to, const bench_buffer_t *from)
{
    if (bench_memory_on_host(to->kind) && bench_memory_on_host(from->kind)) {
        memcpy(to->address, from->address, from->bytes);
    } else if (bench_memory_on_host(to->kind)) {
        CHECK(MemcpyDtoH, to->address, device_address(from), from->bytes);
    } else {
        CHECK(MemcpyHtoD, device_address(to), from->address, from->bytes);
    }
}

/* --- contents ---------------------------------------------------------------------------------------------------- */

void bench_buffer_set(bench_buffer_t *buffer, int value)
{
    if (bench_memory_on_host(buffer->kind)) {
        memset(buffer->address, value, buffer->bytes);
    } else {
        CHECK(MemsetD8, device_address(buffer), (unsigned char)value, buffer->bytes);
        CHECK(CtxSynchronize, );
    }
}

unsigned char *bench_buffer_window(bench_buffer_t *buffer, uint64_t offset, uint64_t bytes, uint64_t *length_p)
{
    if (bench_memory_on_host(buffer->kind)) {
        *length_p = bytes;
        return buffer->address + offset;
    }
    *length_p = bytes < WINDOW_BYTES ? bytes : WINDOW_BYTES;
    return window;
}

void bench_buffer_put(bench_buffer_t *buffer, uint64_t offset, uint64_t length)
{
    if (!bench_memory_on_host(buffer->kind)) {
        CHECK(MemcpyHtoD, device_address(buffer) + offset, window, length);
    }
}

const unsigned char *bench_buffer_get(const bench_buffer_t *buffer, uint64_t offset, uint64_t bytes, uint64_t *length_p)
{
    if (bench_memory_on_host(buffer->kind)) {
        *length_p = bytes;
        return buffer->address + offset;
    }
    *length_p = bytes < WINDOW_BYTES ? bytes : WINDOW_BYTES;
    CHECK(MemcpyDtoH, window, device_address(buffer) + offset, *length_p);
    return window;
}
