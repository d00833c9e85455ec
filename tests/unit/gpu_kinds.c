/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of every kind on a GPU, for tests. */
#include "gpu_kinds.h"
#include "device/kernels/copy.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUIRE(_call)                                                                                                 \
    do {                                                                                                               \
        mpath_cu_result_t require_result = (_call);                                                                    \
        if (require_result != MPATH_CU_SUCCESS) {                                                                      \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #_call, mpath_device_error_string(require_result)); \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

const char *gpu_library(void)
{
    static char path[4096];
    const char *given = getenv("MPATH_TEST_CUDA"), *build = getenv("MPATH_TEST_BUILDDIR");

    if (given != NULL) {
        return given;
    }
    snprintf(path, sizeof(path), "%s/fake_cuda/libcuda.so.1", (build != NULL) ? build : ".");
    return path;
}

void gpu_application_starts(void)
{
    void *library = dlopen(gpu_library(), RTLD_NOW | RTLD_GLOBAL);
    mpath_cu_result_t (*init)(unsigned);
    mpath_cu_context_t context;

    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        abort();
    }
    *(void **)&init = dlsym(library, "cuInit");
    REQUIRE(init(0));
    if (mpath_gpu_driver() == NULL) {
        fprintf(stderr, "mpath does not see the driver that the application has started\n");
        abort();
    }
    REQUIRE(mpath_gpu_driver()->DevicePrimaryCtxRetain(&context, 0));
    REQUIRE(mpath_gpu_driver()->CtxSetCurrent(context));
}

int gpu_group_setup(void **state)
{
    (void)state;
    gpu_application_starts();
    return 0;
}

int gpu_group_teardown(void **state)
{
    (void)state;
    mpath_gpu_cleanup();
    return 0;
}

void gpu_nvml_starts(const char *links)
{
    char path[4096];

    setenv("FAKE_NVML_LINKS", links, 1);
    snprintf(path, sizeof(path), "%.*s/libnvidia-ml.so.1", (int)(strrchr(gpu_library(), '/') - gpu_library()),
             gpu_library());
    if (dlopen(path, RTLD_NOW | RTLD_GLOBAL) == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        abort();
    }
}

void gpu_application_resets(int device)
{
    void *library = dlopen(gpu_library(), RTLD_NOW | RTLD_GLOBAL);
    mpath_cu_result_t (*reset)(mpath_cu_device_t);
    mpath_cu_device_t handle;

    *(void **)&reset = dlsym(library, "cuDevicePrimaryCtxReset_v2");
    REQUIRE(mpath_gpu_driver()->DeviceGet(&handle, device));
    REQUIRE(reset(handle));
    dlclose(library);
}

static mpath_gpu_t *gpu_enter(int device)
{
    mpath_gpu_t *gpu;

    if ((mpath_gpu_get(device, NULL, &gpu) != MPATH_OK) || (mpath_gpu_enter(gpu) != MPATH_OK)) {
        abort();
    }
    return gpu;
}

static void alloc_vmm(const mpath_cu_t *cu, int blocks, gpu_memory_t *memory)
{
    mpath_cu_location_t location = {.type = MPATH_CU_LOCATION_DEVICE, .id = memory->device};
    mpath_cu_mem_prop_t prop     = {.type         = MPATH_CU_ALLOCATION_PINNED,
                                    .handle_types = (blocks > 0) ? MPATH_CU_HANDLE_FD : MPATH_CU_HANDLE_FABRIC,
                                    .location     = location};
    mpath_cu_access_t access     = {.location = location, .flags = MPATH_CU_ACCESS_READ_WRITE};
    mpath_cu_mem_t handle;
    size_t granule;
    int block;

    blocks = abs(blocks);
    REQUIRE(cu->MemGetAllocationGranularity(&granule, &prop, MPATH_CU_GRANULARITY_MINIMUM));
    memory->block_bytes = (memory->bytes / (uint64_t)blocks + granule - 1) / granule * granule;
    memory->bytes       = memory->block_bytes * (uint64_t)blocks;
    REQUIRE(cu->MemAddressReserve((mpath_cu_ptr_t *)&memory->address, memory->bytes, 0, 0, 0));
    for (block = 0; block < blocks; block++) {
        REQUIRE(cu->MemCreate(&handle, memory->block_bytes, &prop, 0));
        REQUIRE(cu->MemMap(memory->address + (uint64_t)block * memory->block_bytes, memory->block_bytes, 0, handle, 0));
        REQUIRE(cu->MemRelease(handle));
    }
    REQUIRE(cu->MemSetAccess(memory->address, memory->bytes, &access, 1));
}

/* Another physical allocation in the place of `count` blocks. */
static void replace_blocks(const gpu_memory_t *memory, int block, int count)
{
    mpath_cu_location_t location = {.type = MPATH_CU_LOCATION_DEVICE, .id = memory->device};
    mpath_cu_mem_prop_t prop     = {
            .type = MPATH_CU_ALLOCATION_PINNED, .handle_types = MPATH_CU_HANDLE_FD, .location = location};
    mpath_cu_access_t access = {.location = location, .flags = MPATH_CU_ACCESS_READ_WRITE};
    const mpath_cu_t *cu     = mpath_gpu_driver();
    mpath_gpu_t *gpu         = gpu_enter(memory->device);
    uint64_t at              = memory->address + (uint64_t)block * memory->block_bytes;
    uint64_t bytes           = (uint64_t)count * memory->block_bytes;
    mpath_cu_mem_t handle;

    REQUIRE(cu->MemUnmap(at, bytes));
    REQUIRE(cu->MemCreate(&handle, bytes, &prop, 0));
    REQUIRE(cu->MemMap(at, bytes, 0, handle, 0));
    REQUIRE(cu->MemRelease(handle));
    REQUIRE(cu->MemSetAccess(at, bytes, &access, 1));
    mpath_gpu_leave(gpu);
}

void gpu_memory_remap(gpu_memory_t *memory, int block)
{
    replace_blocks(memory, block, 1);
}

void gpu_memory_join(gpu_memory_t *memory, int block)
{
    replace_blocks(memory, block, 2);
}

static void alloc_pool(const mpath_cu_t *cu, int exportable, gpu_memory_t *memory)
{
    mpath_cu_pool_prop_t prop = {.type         = MPATH_CU_ALLOCATION_PINNED,
                                 .handle_types = MPATH_CU_HANDLE_FD,
                                 .location     = {.type = MPATH_CU_LOCATION_DEVICE, .id = memory->device}};
    mpath_cu_stream_t stream;
    mpath_cu_pool_t pool;

    if (exportable) {
        REQUIRE(cu->MemPoolCreate(&pool, &prop));
        memory->pool = pool;
    } else {
        REQUIRE(cu->DeviceGetDefaultMemPool(&pool, memory->device));
    }
    REQUIRE(cu->StreamCreateWithPriority(&stream, MPATH_CU_STREAM_NON_BLOCKING, 0));
    REQUIRE(cu->MemAllocFromPoolAsync((mpath_cu_ptr_t *)&memory->address, memory->bytes, pool, stream));
    REQUIRE(cu->StreamSynchronize(stream));
    REQUIRE(cu->StreamDestroy(stream));
}

int gpu_makes_fabric_handles(int device)
{
    const mpath_cu_t *cu           = mpath_gpu_driver();
    const mpath_cu_mem_prop_t prop = {.type         = MPATH_CU_ALLOCATION_PINNED,
                                      .handle_types = MPATH_CU_HANDLE_FABRIC,
                                      .location     = {.type = MPATH_CU_LOCATION_DEVICE, .id = device}};
    mpath_gpu_t *gpu               = gpu_enter(device);
    mpath_cu_mem_t handle;
    size_t granule;
    int makes;

    REQUIRE(cu->MemGetAllocationGranularity(&granule, &prop, MPATH_CU_GRANULARITY_MINIMUM));
    makes = cu->MemCreate(&handle, granule, &prop, 0) == MPATH_CU_SUCCESS;
    if (makes) {
        REQUIRE(cu->MemRelease(handle));
    }
    mpath_gpu_leave(gpu);
    return makes;
}

int gpu_has_kernels(mpath_gpu_t *gpu)
{
    if (mpath_kernels_usable(gpu)) {
        return 1;
    }
    if (getenv("MPATH_TEST_KERNELS") != NULL) {
        fprintf(stderr, "no kernels on the GPU, but MPATH_TEST_KERNELS says that there are: built without nvcc?\n");
        exit(1);
    }
    return 0;
}

void gpu_memory_alloc(mpath_memory_kind_t kind, int device, uint64_t bytes, int blocks, gpu_memory_t *memory)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    mpath_gpu_t *gpu     = gpu_enter(device);
    void *host           = NULL;

    memset(memory, 0, sizeof(*memory));
    memory->kind   = kind;
    memory->device = device;
    memory->bytes  = bytes;
    switch (kind) {
    case MPATH_MEMORY_HOST:
        host = malloc(bytes);
        break;
    case MPATH_MEMORY_REGISTERED:
        REQUIRE(cu->MemHostAlloc(&host, bytes, MPATH_CU_HOST_REGISTER_PORTABLE | MPATH_CU_HOST_REGISTER_DEVICEMAP));
        break;
    case MPATH_MEMORY_DEVICE:
        REQUIRE(cu->MemAlloc((mpath_cu_ptr_t *)&memory->address, bytes));
        break;
    case MPATH_MEMORY_POOL:
        alloc_pool(cu, blocks, memory);
        break;
    case MPATH_MEMORY_VMM:
        alloc_vmm(cu, blocks, memory);
        break;
    case MPATH_MEMORY_MANAGED:
        REQUIRE(cu->MemAllocManaged((mpath_cu_ptr_t *)&memory->address, bytes, MPATH_CU_ATTACH_GLOBAL));
        break;
    }
    if (host != NULL) {
        memory->address = (uint64_t)(uintptr_t)host;
    }
    mpath_gpu_leave(gpu);
}

void gpu_memory_free(gpu_memory_t *memory)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    mpath_gpu_t *gpu     = gpu_enter(memory->device);

    switch (memory->kind) {
    case MPATH_MEMORY_HOST:
        free((void *)(uintptr_t)memory->address);
        break;
    case MPATH_MEMORY_REGISTERED:
        REQUIRE(cu->MemFreeHost((void *)(uintptr_t)memory->address));
        break;
    case MPATH_MEMORY_VMM:
        REQUIRE(cu->MemUnmap(memory->address, memory->bytes));
        REQUIRE(cu->MemAddressFree(memory->address, memory->bytes));
        break;
    default:
        REQUIRE(cu->MemFree(memory->address));
        if (memory->pool != NULL) {
            REQUIRE(cu->MemPoolDestroy(memory->pool));
        }
        break;
    }
    mpath_gpu_leave(gpu);
}

/* That of the memory: others may have no access to it. */
static int device_of(uint64_t address)
{
    mpath_memory_t memory;

    return ((mpath_memory_classify((const void *)(uintptr_t)address, 1, &memory) == MPATH_OK) && (memory.device >= 0))
               ? memory.device
               : 0;
}

void gpu_memory_write(uint64_t address, const void *from, size_t bytes)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    mpath_gpu_t *gpu     = gpu_enter(device_of(address));

    REQUIRE(cu->Memcpy(address, (mpath_cu_ptr_t)(uintptr_t)from, bytes));
    REQUIRE(cu->CtxSynchronize());
    mpath_gpu_leave(gpu);
}

void gpu_memory_read(uint64_t address, void *to, size_t bytes)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    mpath_gpu_t *gpu     = gpu_enter(device_of(address));

    REQUIRE(cu->Memcpy((mpath_cu_ptr_t)(uintptr_t)to, address, bytes));
    REQUIRE(cu->CtxSynchronize());
    mpath_gpu_leave(gpu);
}

void gpu_memory_fill(uint64_t address, unsigned char value, size_t bytes)
{
    const mpath_cu_t *cu = mpath_gpu_driver();
    mpath_gpu_t *gpu     = gpu_enter(device_of(address));

    REQUIRE(cu->MemsetD8(address, value, bytes));
    REQUIRE(cu->CtxSynchronize());
    mpath_gpu_leave(gpu);
}

void gpu_pattern_write(uint64_t address, size_t bytes, uint64_t seed)
{
    unsigned char *data = malloc(bytes + 1);
    size_t i;

    for (i = 0; i < bytes; i++) {
        data[i] = gpu_pattern(seed, i);
    }
    gpu_memory_write(address, data, bytes);
    free(data);
}

uint64_t gpu_pattern_check(uint64_t address, size_t bytes, uint64_t seed)
{
    unsigned char *data = malloc(bytes + 1);
    uint64_t wrong      = 0;
    size_t i;

    gpu_memory_read(address, data, bytes);
    for (i = 0; (wrong == 0) && (i < bytes); i++) {
        wrong = (data[i] == gpu_pattern(seed, i)) ? 0 : i + 1;
    }
    free(data);
    return wrong;
}
