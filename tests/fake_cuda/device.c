/* SPDX-License-Identifier: BSD-3-Clause */
/* Initialisation, devices, errors, ports. */
#define _GNU_SOURCE
#include "fake.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct {
    atomic_int ready;
    int count;
    int physical[FAKE_DEVICES_MAX];
    pid_t pid;
} fake;

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;

void fake_die(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    fprintf(stderr, "fake CUDA [%d]: ", (int)getpid());
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    abort();
}

int fake_without(const char *what)
{
    const char *list = getenv("FAKE_CUDA_WITHOUT"), *at;
    size_t length    = strlen(what);

    for (at = list; (at != NULL) && (*at != '\0'); at = (strchr(at, ',') != NULL) ? strchr(at, ',') + 1 : NULL) {
        if ((strncmp(at, what, length) == 0) && ((at[length] == ',') || (at[length] == '\0'))) {
            return 1;
        }
    }
    return 0;
}

int fake_is_too_large(const char *variable, uint64_t bytes)
{
    const char *text = getenv(variable);

    return (text != NULL) && (text[0] != '\0') && (bytes > strtoull(text, NULL, 10));
}

/* In a forked child the driver is not usable. */
int fake_ready(void)
{
    return atomic_load(&fake.ready) && (fake.pid == getpid());
}

int fake_devices(void)
{
    return fake.count;
}

int fake_physical_device(int ordinal)
{
    return fake.physical[ordinal];
}

int fake_ordinal_of(int64_t physical)
{
    int ordinal;

    for (ordinal = 0; ordinal < fake.count; ordinal++) {
        if (fake.physical[ordinal] == physical) {
            return ordinal;
        }
    }
    return -1;
}

FAKE_API mpath_cu_result_t cuInit(unsigned flags)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES"), *number = getenv("FAKE_CUDA_DEVICES");
    int all = (number != NULL) ? atoi(number) : 4, index;
    char *end;

    (void)flags;
    if (fake_ready()) {
        return MPATH_CU_SUCCESS;
    }
    if (atomic_load(&fake.ready)) {
        return MPATH_CU_NOT_INITIALIZED;
    }
    all        = (all > FAKE_DEVICES_MAX) ? FAKE_DEVICES_MAX : all;
    fake.count = 0;
    if (visible == NULL) {
        for (index = 0; index < all; index++) {
            fake.physical[fake.count++] = index;
        }
    }
    while ((visible != NULL) && (*visible != '\0') && (fake.count < FAKE_DEVICES_MAX)) {
        index = (int)strtol(visible, &end, 10);
        if ((end == visible) || (index < 0) || (index >= all)) {
            break;
        }
        fake.physical[fake.count++] = index;
        visible                     = (*end == ',') ? end + 1 : end;
    }
    if (fake.count == 0) {
        return MPATH_CU_NO_DEVICE;
    }
    fake.pid = getpid();
    atomic_store(&fake.ready, 1);
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuDriverGetVersion(int *version)
{
    *version = 13000;
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuGetErrorName(mpath_cu_result_t error, const char **text)
{
    static const struct {
        int error;
        const char *name;
    } names[] = {{0, "CUDA_SUCCESS"},
                 {1, "CUDA_ERROR_INVALID_VALUE"},
                 {2, "CUDA_ERROR_OUT_OF_MEMORY"},
                 {3, "CUDA_ERROR_NOT_INITIALIZED"},
                 {100, "CUDA_ERROR_NO_DEVICE"},
                 {101, "CUDA_ERROR_INVALID_DEVICE"},
                 {200, "CUDA_ERROR_INVALID_IMAGE"},
                 {201, "CUDA_ERROR_INVALID_CONTEXT"},
                 {208, "CUDA_ERROR_ALREADY_MAPPED"},
                 {217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"},
                 {400, "CUDA_ERROR_INVALID_HANDLE"},
                 {500, "CUDA_ERROR_NOT_FOUND"},
                 {600, "CUDA_ERROR_NOT_READY"},
                 {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"},
                 {801, "CUDA_ERROR_NOT_SUPPORTED"}};
    size_t index;

    for (index = 0; index < sizeof(names) / sizeof(names[0]); index++) {
        if (names[index].error == error) {
            *text = names[index].name;
            return MPATH_CU_SUCCESS;
        }
    }
    return MPATH_CU_INVALID_VALUE;
}

FAKE_API mpath_cu_result_t cuGetErrorString(mpath_cu_result_t error, const char **text)
{
    (void)error;
    *text = "said by the fake driver";
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuDeviceGetCount(int *count)
{
    if (!fake_ready()) {
        return MPATH_CU_NOT_INITIALIZED;
    }
    *count = fake.count;
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuDeviceGet(mpath_cu_device_t *device, int ordinal)
{
    if (!fake_ready()) {
        return MPATH_CU_NOT_INITIALIZED;
    }
    if ((ordinal < 0) || (ordinal >= fake.count)) {
        return MPATH_CU_INVALID_DEVICE;
    }
    *device = ordinal;
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuDeviceGetName(char *name, int bytes, mpath_cu_device_t device)
{
    snprintf(name, (size_t)bytes, "fake GPU %d", fake.physical[device]);
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuDeviceGetUuid(mpath_cu_uuid_t *uuid, mpath_cu_device_t device)
{
    memset(uuid, 0, sizeof(*uuid));
    memcpy(uuid->bytes, "fake gpu", 8);
    uuid->bytes[15] = (unsigned char)fake.physical[device];
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuDeviceTotalMem_v2(size_t *bytes, mpath_cu_device_t device)
{
    (void)device;
    *bytes = (size_t)8 << 30;
    return MPATH_CU_SUCCESS;
}

static int multiprocessors(void)
{
    const char *text = getenv("FAKE_CUDA_MULTIPROCESSORS");

    return (text != NULL) ? atoi(text) : 8;
}

FAKE_API mpath_cu_result_t cuDeviceGetAttribute(int *value, int attribute, mpath_cu_device_t device)
{
    if ((device < 0) || (device >= fake.count)) {
        return MPATH_CU_INVALID_DEVICE;
    }
    switch (attribute) {
    case MPATH_CU_DEV_MULTIPROCESSORS:
        *value = multiprocessors();
        break;
    case MPATH_CU_DEV_PCI_BUS:
        *value = 0x10 + fake.physical[device];
        break;
    case MPATH_CU_DEV_COPY_ENGINES:
        *value = 3;
        break;
    case MPATH_CU_DEV_CAPABILITY_MAJOR:
        *value = 9;
        break;
    case MPATH_CU_DEV_POOLS:
        *value = !fake_without("pools");
        break;
    case MPATH_CU_DEV_64_BIT_STREAM_OPS:
        *value = !fake_without("values");
        break;
    case MPATH_CU_DEV_MPS:
        *value = !fake_without("mps");
        break;
    case MPATH_CU_DEV_RDMA:
        *value = 1;
        break;
    case MPATH_CU_DEV_RDMA_FLUSH:
        *value = MPATH_CU_RDMA_FLUSH_BY_HOST;
        break;
    case MPATH_CU_DEV_RDMA_ORDER:
        *value = MPATH_CU_RDMA_ORDER_NONE;
        break;
    case MPATH_CU_DEV_PCI_DEVICE:
    case MPATH_CU_DEV_PCI_DOMAIN:
    case MPATH_CU_DEV_CAPABILITY_MINOR:
    case MPATH_CU_DEV_HOST_NUMA:
        *value = 0;
        break;
    default:
        return MPATH_CU_INVALID_VALUE;
    }
    return MPATH_CU_SUCCESS;
}

FAKE_API mpath_cu_result_t cuDeviceCanAccessPeer(int *can, mpath_cu_device_t device, mpath_cu_device_t peer)
{
    *can = (device != peer) && !fake_without("peers");
    return MPATH_CU_SUCCESS;
}

/* --- ports ------------------------------------------------------------------------------------------------------- */

/* NULL: nobody counts. */
static fake_ports_t *watched_ports(void)
{
    static fake_ports_t *ports;
    static int looked;
    const char *path = getenv("FAKE_CUDA_PORTS");
    int file;

    pthread_mutex_lock(&fake_lock);
    if (!looked && (path != NULL)) {
        file  = open(path, O_RDWR | O_CLOEXEC);
        ports = (file >= 0) ? mmap(NULL, sizeof(*ports), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
        if (ports == MAP_FAILED) {
            fake_die("FAKE_CUDA_PORTS=%s cannot be mapped", path);
        }
        close(file);
    }
    looked = 1;
    pthread_mutex_unlock(&fake_lock);
    return ports;
}

static int device_of(uint64_t address)
{
    fake_region_t *region;
    int device;

    pthread_mutex_lock(&fake_lock);
    region = fake_find(address);
    device = ((region != NULL) && (region->trailer != NULL)) ? (int)region->trailer->device : -1;
    pthread_mutex_unlock(&fake_lock);
    return device;
}

int fake_port_begin(uint64_t target, uint64_t source)
{
    fake_ports_t *watched = watched_ports();
    const char *least_us  = getenv("FAKE_CUDA_COPY_US");
    int port, copies, seen;

    if (watched == NULL) {
        return -1;
    }
    port = device_of(source);
    if ((port < 0) || (device_of(target) < 0) || (port == device_of(target))) {
        return -1;
    }
    atomic_fetch_add(&watched->copies, 1);
    copies = atomic_fetch_add(&watched->out[port], 1) + 1;
    seen   = atomic_load(&watched->most_out[port]);
    while ((copies > seen) && !atomic_compare_exchange_weak(&watched->most_out[port], &seen, copies)) {
    }
    if (least_us != NULL) {
        usleep((useconds_t)atoi(least_us));
    }
    return port;
}

void fake_port_end(int port)
{
    if (port >= 0) {
        atomic_fetch_sub(&watched_ports()->out[port], 1);
    }
}

void fake_port_count_commands(uint64_t target, uint64_t source, uint64_t bytes)
{
    fake_ports_t *watched = watched_ports();

    if ((watched != NULL) && (bytes > 0) && (bytes < 32768) && (device_of(target) >= 0) && (device_of(source) < 0)) {
        atomic_fetch_add(&watched->commands, 1);
    }
}
