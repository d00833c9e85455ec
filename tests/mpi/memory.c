/* SPDX-License-Identifier: BSD-3-Clause */
/* Test buffers through the driver's own interface, as an application has them; a call that fails ends the job. */
#include "mpi/memory.h"

#include "device/cuda/cuda_abi.h"

#include <dlfcn.h>
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum kind { HOST, REGISTERED, DEVICE, POOL, VMM, MANAGED, STRIPED, KINDS } kind_t;

static const char *const kind_names[KINDS] = {"host", "registered", "device", "pool", "vmm", "managed", "striped"};

#define PIECE_BYTES ((size_t)2 << 20) /* of what is mapped */

typedef struct buffer {
    struct buffer *next;
    kind_t kind;
    char *start, *address; /* the buffer begins somewhat after the allocation */
    size_t bytes;          /* of the allocation */
} buffer_t;

static mpath_cu_t cu;
static mpath_cu_result_t (*reset_context)(mpath_cu_device_t device); /* mpath has no use for it */
static int ready, num_kinds, device, first_device, num_devices, rank, splits;
static kind_t kinds[16];
static buffer_t *buffers;
static mpath_cu_context_t context;                       /* NULL without a device */
static mpath_cu_stream_t stream;                         /* pools allocate in stream order */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of everything above */

static void fail(const char *what, int error)
{
    fprintf(stderr, "rank %d: %s failed (%d)\n", rank, what, error);
    MPI_Abort(MPI_COMM_WORLD, 98);
}

#define CHECK(_call)                                                                                                   \
    do {                                                                                                               \
        int _error = (_call);                                                                                          \
        if (_error != 0) {                                                                                             \
            fail(#_call, _error);                                                                                      \
        }                                                                                                              \
    } while (0)

static void use_device(int index)
{
    mpath_cu_device_t handle;

    device = index;
    CHECK(cu.DeviceGet(&handle, device));
    CHECK(cu.DevicePrimaryCtxRetain(&context, handle));
    CHECK(cu.CtxSetCurrent(context));
}

static void make_stream(void)
{
    CHECK(cu.StreamCreateWithPriority(&stream, MPATH_CU_STREAM_NON_BLOCKING, 0));
}

static void load_driver(void)
{
    void *library      = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    const char *chosen = getenv("MPATH_TEST_DEVICE");
    int count          = 0;

    if (library == NULL) {
        fail(dlerror(), 0);
    }
#define LOAD(_member, _symbol, _parameters) *(void **)&cu._member = dlsym(library, #_symbol);
    MPATH_CU_FUNCTIONS(LOAD)
    MPATH_CU_OPTIONAL_FUNCTIONS(LOAD)
    CHECK(cu.Init(0));
    CHECK(cu.DeviceGetCount(&count));
    if (count == 0) {
        fail("looking for a device", 0);
    }
    num_devices  = count;
    first_device = (chosen != NULL) ? atoi(chosen) % count : rank % count;
    use_device(first_device);
    make_stream();
    *(void **)&reset_context = dlsym(library, "cuDevicePrimaryCtxReset_v2");
}

static void setup_locked(void)
{
    const char *list = getenv("MPATH_TEST_MEMORY");
    char *copy, *name, *rest = NULL;
    int kind, special = 0;

    if (ready) {
        return;
    }
    ready = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    copy = strdup((list != NULL) ? list : "");
    for (name = strtok_r(copy, ",", &rest); name != NULL && num_kinds < 16; name = strtok_r(NULL, ",", &rest)) {
        for (kind = 0; kind < KINDS && strcmp(name, kind_names[kind]) != 0; kind++) {
        }
        if (kind == KINDS) {
            fprintf(stderr, "MPATH_TEST_MEMORY: there is no memory '%s'\n", name);
            MPI_Abort(MPI_COMM_WORLD, 97);
        }
        kinds[num_kinds++] = (kind_t)kind;
        special            = special || kind != HOST;
    }
    free(copy);
    if (num_kinds == 0) {
        kinds[num_kinds++] = HOST;
    }
    if (special) {
        load_driver();
    }
}

/* Every thread needs the context. */
static void setup(void)
{
    pthread_mutex_lock(&lock);
    setup_locked();
    pthread_mutex_unlock(&lock);
    if (context != NULL) {
        CHECK(cu.CtxSetCurrent(context));
    }
}

int memory_turn(int ranks)
{
    setup();
    if (ranks >= num_devices || getenv("MPATH_TEST_DEVICE") != NULL || getenv("CUDA_VISIBLE_DEVICES") != NULL) {
        return 0;
    }
    use_device((ranks == 0) ? first_device : num_devices - 1);
    return 1;
}

int memory_split(void)
{
    setup();
    splits = num_devices > 1;
    return splits;
}

int memory_is_special(void)
{
    setup();
    return num_kinds > 1 || kinds[0] != HOST;
}

/* Physical memory that can be handed to other processes, of one GPU. */
static void map_piece(mpath_cu_ptr_t address, int owner)
{
    mpath_cu_mem_prop_t prop = {.type         = MPATH_CU_ALLOCATION_PINNED,
                                .handle_types = MPATH_CU_HANDLE_FD,
                                .location     = {.type = MPATH_CU_LOCATION_DEVICE, .id = owner}};
    mpath_cu_access_t access = {.location = {.type = MPATH_CU_LOCATION_DEVICE, .id = owner},
                                .flags    = MPATH_CU_ACCESS_READ_WRITE};
    mpath_cu_mem_t physical;

    CHECK(cu.MemCreate(&physical, PIECE_BYTES, &prop, 0));
    CHECK(cu.MemMap(address, PIECE_BYTES, 0, physical, 0));
    CHECK(cu.MemRelease(physical)); /* lives as long as it is mapped */
    CHECK(cu.MemSetAccess(address, PIECE_BYTES, &access, 1));
}

/*
 * Mapped in two pieces at least, as a growing segment is, with the border in the middle of the buffer; striped: every
 * other piece is of the next GPU.
 */
static void new_vmm(buffer_t *buffer, size_t bytes)
{
    size_t pieces = (buffer->bytes + 2 * PIECE_BYTES - 1) / PIECE_BYTES, i;
    mpath_cu_ptr_t address;

    buffer->bytes = pieces * PIECE_BYTES;
    CHECK(cu.MemAddressReserve(&address, buffer->bytes, 0, 0, 0));
    for (i = 0; i < pieces; i++) {
        map_piece(address + i * PIECE_BYTES, (buffer->kind == VMM) ? device : (device + (int)(i % 2)) % num_devices);
    }
    buffer->start   = (char *)(uintptr_t)address;
    buffer->address = buffer->start + ((bytes < PIECE_BYTES) ? (PIECE_BYTES - bytes / 2) / 64 * 64 : 0);
}

/* `bytes` are the user's. */
static void allocate(buffer_t *buffer, size_t bytes)
{
    mpath_cu_ptr_t address = 0;
    mpath_cu_pool_t pool;
    mpath_cu_device_t handle;

    switch (buffer->kind) {
    case HOST:
        buffer->start = malloc(buffer->bytes);
        return;
    case REGISTERED:
        CHECK(cu.MemHostAlloc((void **)&buffer->start, buffer->bytes, MPATH_CU_HOST_REGISTER_PORTABLE));
        return;
    case DEVICE:
        CHECK(cu.MemAlloc(&address, buffer->bytes));
        break;
    case POOL:
        CHECK(cu.DeviceGet(&handle, device));
        CHECK(cu.DeviceGetDefaultMemPool(&pool, handle));
        CHECK(cu.MemAllocFromPoolAsync(&address, buffer->bytes, pool, stream));
        CHECK(cu.StreamSynchronize(stream));
        break;
    case VMM:
    case STRIPED:
        new_vmm(buffer, bytes);
        return;
    default:
        CHECK(cu.MemAllocManaged(&address, buffer->bytes, MPATH_CU_ATTACH_GLOBAL));
        break;
    }
    buffer->start = (char *)(uintptr_t)address;
}

static void remember(buffer_t *buffer)
{
    pthread_mutex_lock(&lock);
    buffer->next = buffers;
    buffers      = buffer;
    pthread_mutex_unlock(&lock);
}

void *memory_new(size_t bytes, unsigned seed)
{
    buffer_t *buffer = calloc(1, sizeof(*buffer));
    size_t distance;

    setup();
    if (buffer == NULL) {
        fail("calloc", 0);
    }
    seed          = (seed + (unsigned)rank * 2654435761u) * 2654435761u;
    buffer->kind  = kinds[(seed >> 8) % (unsigned)num_kinds];
    distance      = (seed >> 16) % 3 == 0 ? 0 : (seed >> 18) % 700;
    buffer->bytes = bytes + distance + 1;
    if (splits) {
        use_device((device + 1) % num_devices);
    }
    allocate(buffer, bytes);
    buffer->address = ((buffer->address == NULL) ? buffer->start : buffer->address) + distance;
    remember(buffer);
    return buffer->address;
}

void *memory_new_pinned(size_t bytes)
{
    buffer_t *buffer = calloc(1, sizeof(*buffer));

    setup();
    if (buffer == NULL) {
        fail("calloc", 0);
    }
    buffer->kind  = (context != NULL) ? REGISTERED : HOST;
    buffer->bytes = bytes;
    allocate(buffer, bytes);
    buffer->address = buffer->start;
    remember(buffer);
    return buffer->address;
}

static void release(buffer_t *buffer)
{
    mpath_cu_ptr_t address = (mpath_cu_ptr_t)(uintptr_t)buffer->start;

    switch (buffer->kind) {
    case HOST:
        free(buffer->start);
        break;
    case REGISTERED:
        CHECK(cu.MemFreeHost(buffer->start));
        break;
    case POOL:
        CHECK(cu.MemFreeAsync(address, stream));
        CHECK(cu.StreamSynchronize(stream));
        break;
    case VMM:
    case STRIPED:
        CHECK(cu.MemUnmap(address, buffer->bytes));
        CHECK(cu.MemAddressFree(address, buffer->bytes));
        break;
    default:
        CHECK(cu.MemFree(address));
        break;
    }
}

void memory_free(void *memory)
{
    buffer_t **link = &buffers, *buffer;

    setup();
    pthread_mutex_lock(&lock);
    while (*link != NULL && (*link)->address != memory) {
        link = &(*link)->next;
    }
    buffer = *link;
    if (buffer != NULL) {
        *link = buffer->next;
    }
    pthread_mutex_unlock(&lock);
    if (buffer == NULL) {
        fail("looking for a buffer", 0);
        return;
    }
    release(buffer);
    free(buffer);
}

void memory_reset(void)
{
    mpath_cu_device_t handle;
    buffer_t *buffer;

    setup();
    pthread_mutex_lock(&lock);
    while (buffers != NULL) {
        buffer  = buffers;
        buffers = buffer->next;
        release(buffer);
        free(buffer);
    }
    if (context != NULL) {
        CHECK(cu.DeviceGet(&handle, device));
        CHECK(reset_context(handle));
        use_device(device);
        make_stream();
    }
    pthread_mutex_unlock(&lock);
}

/* Whether the processor may touch the address; buffers are few. */
static int on_host(const void *memory)
{
    const buffer_t *buffer;
    int result;

    setup();
    pthread_mutex_lock(&lock);
    buffer = buffers;
    while (buffer != NULL &&
           ((const char *)memory < buffer->start || (const char *)memory >= buffer->start + buffer->bytes)) {
        buffer = buffer->next;
    }
    result = buffer == NULL || buffer->kind == HOST || buffer->kind == REGISTERED || buffer->kind == MANAGED;
    pthread_mutex_unlock(&lock);
    return result;
}

/* From an address on, at most so many bytes: what one copy may touch. */
static size_t part_of(const char *memory, size_t bytes)
{
    size_t rest = PIECE_BYTES - (uintptr_t)memory % PIECE_BYTES;

    return (bytes < rest) ? bytes : rest;
}

void memory_put(void *memory, const void *host, size_t bytes)
{
    char *to         = memory;
    const char *from = host;

    if ((bytes > 0) && on_host(memory)) {
        memcpy(memory, host, bytes);
        return;
    }
    for (size_t part; bytes > 0; to += part, from += part, bytes -= part) {
        part = part_of(to, bytes);
        CHECK(cu.MemcpyHtoD((mpath_cu_ptr_t)(uintptr_t)to, from, part));
        CHECK(cu.CtxSynchronize()); /* one from pageable memory may return before it is done */
    }
}

void memory_get(void *host, const void *memory, size_t bytes)
{
    char *to         = host;
    const char *from = memory;

    if ((bytes > 0) && on_host(memory)) {
        memcpy(host, memory, bytes);
        return;
    }
    for (size_t part; bytes > 0; to += part, from += part, bytes -= part) {
        part = part_of(from, bytes);
        CHECK(cu.MemcpyDtoH(to, (mpath_cu_ptr_t)(uintptr_t)from, part));
    }
}

void memory_fill(void *memory, unsigned char value, size_t bytes)
{
    char *to = memory;

    if ((bytes > 0) && on_host(memory)) {
        memset(memory, value, bytes);
        return;
    }
    for (size_t part; bytes > 0; to += part, bytes -= part) {
        part = part_of(to, bytes);
        CHECK(cu.MemsetD8((mpath_cu_ptr_t)(uintptr_t)to, value, part));
        CHECK(cu.CtxSynchronize()); /* a fill may return before it is done */
    }
}

void memory_put_late(const memory_late_t *late)
{
    mpath_cu_ptr_t memory = (mpath_cu_ptr_t)(uintptr_t)late->memory;

    pthread_mutex_lock(&lock);
    CHECK(cu.CtxSetCurrent(context));
    for (int i = 0; i < late->fills; i++) {
        if (late->scratch_bytes > 0) {
            CHECK(cu.MemsetD8Async((mpath_cu_ptr_t)(uintptr_t)late->scratch, 0xdd, late->scratch_bytes, stream));
        }
        CHECK(cu.MemsetD8Async(memory, 0xee, late->bytes, stream));
    }
    CHECK(cu.MemcpyAsync(memory, (mpath_cu_ptr_t)(uintptr_t)late->host, late->bytes, stream));
    pthread_mutex_unlock(&lock);
}

int memory_is_late(void)
{
    mpath_cu_result_t result;

    pthread_mutex_lock(&lock);
    CHECK(cu.CtxSetCurrent(context));
    result = cu.StreamQuery(stream);
    pthread_mutex_unlock(&lock);
    if (result != MPATH_CU_NOT_READY) {
        CHECK(result);
    }
    return result == MPATH_CU_NOT_READY;
}
