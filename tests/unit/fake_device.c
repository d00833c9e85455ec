/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A backend of device/device.h that is not CUDA: four devices whose memory lies in files in memory, which other processes map by
 * /proc. Work on a stream is done when it has been enqueued. There are no kernels, no pools, no physical blocks and no waits.
 */
#define _GNU_SOURCE /* memfd_create() */

#include "fake_device.h"

#include "device/gpu.h"
#include "device/memory.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE UINT64_C(4096)
#define DEVICE_BYTES (UINT64_C(1) << 30)
#define RANGES_MAX (1u << 18)

enum { FAKE_INVALID = 9001, FAKE_GONE = 9002 };

struct mpath_device_context {
    int ordinal;
};

struct mpath_device_stream {
    struct mpath_device_context *context;
};

struct mpath_device_event {
    struct mpath_device_context *context;
};

/* What the driver knows of addresses: memory of devices, that of other processes, and pinned memory of the host. */
typedef struct range {
    char *base;
    size_t bytes;
    int ordinal; /* -1: pinned */
    int fd;      /* -1: not of this process */
    uint64_t id;
} range_t;

typedef struct handle {
    int64_t pid, fd;
    uint64_t bytes;
} handle_t;

_Static_assert(sizeof(handle_t) <= sizeof(mpath_device_ipc_t), "fits into what other processes are told");

static struct mpath_device_context contexts[FAKE_DEVICES] = {{0}, {1}, {2}, {3}};

static struct {
    pthread_mutex_t lock;
    int is_started;
    range_t ranges[RANGES_MAX]; /* by address: thousands of ranks may have some */
    size_t num_ranges;
    uint64_t last_id;
    uint64_t used_bytes[FAKE_DEVICES];
    unsigned retained[FAKE_DEVICES];
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER};

static atomic_uint copies, made; /* made: streams and events */
static _Thread_local struct mpath_device_context *current;
static _Thread_local const char *failed = "";

void fake_device_starts(void)
{
    fake.is_started = 1;
}

unsigned fake_device_copies(void)
{
    return atomic_load(&copies);
}

unsigned fake_device_held(void)
{
    unsigned held = atomic_load(&made);

    pthread_mutex_lock(&fake.lock);
    held += (unsigned)fake.num_ranges;
    for (int ordinal = 0; ordinal < FAKE_DEVICES; ordinal++) {
        held += fake.retained[ordinal];
    }
    pthread_mutex_unlock(&fake.lock);
    return held;
}

static mpath_device_result_t refuse(const char *call, mpath_device_result_t result)
{
    failed = call;
    return result;
}

/* Ranges, under the lock. */

/* How many begin at an address or before it. */
static size_t ranges_until(uint64_t address)
{
    size_t from = 0, to = fake.num_ranges;

    while (from < to) {
        size_t middle = from + (to - from) / 2;

        if ((uint64_t)(uintptr_t)fake.ranges[middle].base <= address) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return from;
}

static range_t *range_find(uint64_t address)
{
    size_t count   = ranges_until(address);
    range_t *range = (count > 0) ? &fake.ranges[count - 1] : NULL;

    return ((range != NULL) && (address - (uint64_t)(uintptr_t)range->base < range->bytes)) ? range : NULL;
}

static void range_add(range_t range)
{
    size_t at = ranges_until((uint64_t)(uintptr_t)range.base);

    if (fake.num_ranges == RANGES_MAX) {
        abort();
    }
    range.id = ++fake.last_id;
    memmove(fake.ranges + at + 1, fake.ranges + at, (fake.num_ranges++ - at) * sizeof(range));
    fake.ranges[at] = range;
}

/* Ends the program where there is none that begins there: misuse. */
static range_t range_remove(const void *base)
{
    range_t *found = range_find((uint64_t)(uintptr_t)base), removed;

    if ((found == NULL) || (found->base != base)) {
        fprintf(stderr, "fake device: nothing begins at %p\n", base);
        abort();
    }
    removed = *found;
    memmove(found, found + 1, (size_t)(fake.ranges + --fake.num_ranges - found) * sizeof(removed));
    return removed;
}

/* All bytes have to be of memory that the device knows. */
static int is_known(mpath_device_ptr_t address, size_t bytes)
{
    const range_t *range;
    int known;

    pthread_mutex_lock(&fake.lock);
    range = range_find(address);
    known = (range != NULL) && (bytes <= range->bytes - (address - (uint64_t)(uintptr_t)range->base));
    pthread_mutex_unlock(&fake.lock);
    return known;
}

/* The driver and its devices. */

static int fake_is_ready(void)
{
    return fake.is_started;
}

static mpath_status_t fake_start(void)
{
    fake_device_starts();
    return MPATH_OK;
}

static mpath_device_result_t fake_driver_version(int *version_p)
{
    *version_p = 3;
    return MPATH_DEVICE_DONE;
}

static const char *fake_error_string(mpath_device_result_t result)
{
    switch (result) {
    case MPATH_DEVICE_NO_MEMORY:
        return "fake device: no memory";
    case MPATH_DEVICE_NOT_SUPPORTED:
        return "fake device: not supported";
    case FAKE_GONE:
        return "fake device: the owner does not show its memory";
    default:
        return "fake device: invalid";
    }
}

static const char *fake_failed_call(void)
{
    return failed;
}

static mpath_device_result_t fake_device_count(int *count_p)
{
    *count_p = FAKE_DEVICES;
    return MPATH_DEVICE_DONE;
}

static mpath_device_result_t fake_device_uuid(int ordinal, mpath_device_uuid_t *uuid_p)
{
    memset(uuid_p, 0, sizeof(*uuid_p));
    memcpy(uuid_p->bytes, "fake device", 11);
    uuid_p->bytes[15] = (unsigned char)ordinal;
    return MPATH_DEVICE_DONE;
}

static mpath_device_result_t fake_device_info(int ordinal, mpath_gpu_info_t *info)
{
    snprintf(info->pci, sizeof(info->pci), "fa4e:%02x:00.0", (unsigned)ordinal & 0xff);
    snprintf(info->name, sizeof(info->name), "fake device");
    info->memory_bytes    = DEVICE_BYTES;
    info->multiprocessors = 1;
    info->copy_engines    = 1;
    info->numa            = -1;
    info->mps             = -1;
    return fake_device_uuid(ordinal, &info->uuid);
}

static void fake_device_features(int ordinal, mpath_device_features_t *features_p)
{
    (void)ordinal;
    *features_p = (mpath_device_features_t){.values = 1};
}

static mpath_device_result_t fake_can_access(int ordinal, int peer, int *can_p)
{
    (void)ordinal;
    (void)peer;
    *can_p = 1;
    return MPATH_DEVICE_DONE;
}

static mpath_status_t fake_needs_flush(int ordinal, int *needs_p)
{
    (void)ordinal;
    *needs_p = 0;
    return MPATH_OK;
}

/* Contexts: a device has one. */

static mpath_device_result_t fake_context_take(int ordinal, mpath_device_context_t *context_p, int *primary_p)
{
    pthread_mutex_lock(&fake.lock);
    fake.retained[ordinal]++;
    pthread_mutex_unlock(&fake.lock);
    *context_p = &contexts[ordinal];
    *primary_p = 1;
    return MPATH_DEVICE_DONE;
}

static void fake_context_release(int ordinal)
{
    pthread_mutex_lock(&fake.lock);
    fake.retained[ordinal]--;
    pthread_mutex_unlock(&fake.lock);
}

static mpath_device_result_t fake_context_current(int *ordinal_p, mpath_device_context_t *context_p)
{
    if (current == NULL) {
        return FAKE_INVALID;
    }
    *ordinal_p = current->ordinal;
    *context_p = current;
    return MPATH_DEVICE_DONE;
}

static int fake_context_is_begun(int ordinal)
{
    return fake.retained[ordinal] > 0;
}

static int fake_context_knows(const void *base)
{
    return is_known((uint64_t)(uintptr_t)base, 1);
}

/* The one before is in `entered`, as a number. */
static mpath_device_result_t fake_context_enter(mpath_device_context_t context, mpath_device_entered_t *entered_p)
{
    entered_p->mode = (current == NULL) ? -1 : current->ordinal;
    current         = context;
    return MPATH_DEVICE_DONE;
}

static void fake_context_leave(mpath_device_entered_t *entered)
{
    current = (entered->mode < 0) ? NULL : &contexts[entered->mode];
}

static mpath_device_result_t fake_context_reach(mpath_device_context_t other)
{
    (void)other;
    return MPATH_DEVICE_DONE;
}

static mpath_device_result_t fake_context_drain(void)
{
    return MPATH_DEVICE_DONE;
}

/* Memory. */

static mpath_device_result_t fake_memory_find(uint64_t address, mpath_memory_t *memory)
{
    const range_t *range;

    *memory = (mpath_memory_t){.kind = MPATH_MEMORY_HOST, .device = -1};
    pthread_mutex_lock(&fake.lock);
    range = range_find(address);
    if (range != NULL) {
        memory->kind = (range->ordinal < 0) ? MPATH_MEMORY_REGISTERED : MPATH_MEMORY_DEVICE;
    }
    if (memory->kind == MPATH_MEMORY_DEVICE) {
        memory->device     = range->ordinal;
        memory->context    = &contexts[range->ordinal];
        memory->base       = (uint64_t)(uintptr_t)range->base;
        memory->bytes      = range->bytes;
        memory->buffer_id  = range->id;
        memory->exportable = range->fd >= 0;
    }
    pthread_mutex_unlock(&fake.lock);
    return MPATH_DEVICE_DONE;
}

static mpath_device_result_t fake_memory_info(size_t *free_bytes_p, size_t *total_bytes_p)
{
    pthread_mutex_lock(&fake.lock);
    *free_bytes_p = DEVICE_BYTES - fake.used_bytes[current->ordinal];
    pthread_mutex_unlock(&fake.lock);
    *total_bytes_p = DEVICE_BYTES;
    return MPATH_DEVICE_DONE;
}

void *fake_device_take(int ordinal, size_t bytes)
{
    const size_t pages = (bytes + PAGE - 1) / PAGE * PAGE;
    int fd             = memfd_create("fake-device", MFD_CLOEXEC);
    char *base;

    if ((fd < 0) || (ftruncate(fd, (off_t)pages) != 0)) {
        goto err_close;
    }
    base = mmap(NULL, pages, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        goto err_close;
    }
    pthread_mutex_lock(&fake.lock);
    fake.used_bytes[ordinal] += bytes;
    range_add((range_t){.base = base, .bytes = bytes, .ordinal = ordinal, .fd = fd});
    pthread_mutex_unlock(&fake.lock);
    return base;

err_close:
    if (fd >= 0) {
        close(fd);
    }
    return NULL;
}

void fake_device_give(void *address)
{
    range_t range;

    pthread_mutex_lock(&fake.lock);
    range = range_remove(address);
    fake.used_bytes[range.ordinal] -= range.bytes;
    pthread_mutex_unlock(&fake.lock);
    munmap(range.base, range.bytes);
    close(range.fd);
}

static mpath_device_result_t fake_memory_take(mpath_device_ptr_t *address_p, size_t bytes)
{
    void *taken = fake_device_take(current->ordinal, bytes);

    *address_p = (mpath_device_ptr_t)(uintptr_t)taken;
    return (taken != NULL) ? MPATH_DEVICE_DONE : refuse("memory_take", MPATH_DEVICE_NO_MEMORY);
}

static void fake_memory_give(mpath_device_ptr_t address)
{
    fake_device_give((void *)(uintptr_t)address);
}

static mpath_device_result_t fake_memory_clear(mpath_device_ptr_t address, size_t bytes)
{
    memset((void *)(uintptr_t)address, 0, bytes);
    return MPATH_DEVICE_DONE;
}

/* Copies have ended when they return. */
static int fake_memory_settled(mpath_device_ptr_t base)
{
    (void)base;
    return 1;
}

static void fake_memory_settle(void)
{
}

static mpath_device_result_t fake_copy(mpath_device_ptr_t target, mpath_device_ptr_t source, size_t bytes)
{
    if (!is_known(target, bytes) || !is_known(source, bytes)) {
        return refuse("copy", FAKE_INVALID);
    }
    memmove((void *)(uintptr_t)target, (const void *)(uintptr_t)source, bytes);
    atomic_fetch_add(&copies, 1);
    return MPATH_DEVICE_DONE;
}

static mpath_device_result_t fake_stream_drain(mpath_device_stream_t stream)
{
    (void)stream;
    return MPATH_DEVICE_DONE;
}

static mpath_device_result_t fake_pin(void *base, size_t bytes, mpath_device_ptr_t *device_base_p)
{
    pthread_mutex_lock(&fake.lock);
    range_add((range_t){.base = base, .bytes = bytes, .ordinal = -1, .fd = -1});
    pthread_mutex_unlock(&fake.lock);
    *device_base_p = (mpath_device_ptr_t)(uintptr_t)base;
    return MPATH_DEVICE_DONE;
}

static void fake_unpin(void *base)
{
    pthread_mutex_lock(&fake.lock);
    (void)range_remove(base);
    pthread_mutex_unlock(&fake.lock);
}

/* Streams. */

/* Ends the program where a stream is used outside of its context: a driver would refuse. */
static void need_context(const struct mpath_device_context *context)
{
    if (current != context) {
        fprintf(stderr, "fake device: a stream is used outside of its context\n");
        abort();
    }
}

static mpath_device_result_t fake_stream_make(mpath_device_stream_t *stream_p)
{
    *stream_p = malloc(sizeof(**stream_p));
    if (*stream_p == NULL) {
        return refuse("stream_make", MPATH_DEVICE_NO_MEMORY);
    }
    (*stream_p)->context = current;
    atomic_fetch_add(&made, 1);
    return MPATH_DEVICE_DONE;
}

static void fake_stream_end(mpath_device_stream_t stream)
{
    need_context(stream->context);
    atomic_fetch_sub(&made, 1);
    free(stream);
}

static mpath_device_result_t fake_stream_copy(mpath_device_stream_t stream, mpath_device_ptr_t target,
                                              mpath_device_ptr_t source, size_t bytes)
{
    need_context(stream->context);
    return fake_copy(target, source, bytes);
}

static mpath_device_result_t fake_stream_copy_all(mpath_device_stream_t stream, mpath_device_ptr_t *targets,
                                                  mpath_device_ptr_t *sources, size_t *bytes, size_t count)
{
    (void)stream;
    (void)targets;
    (void)sources;
    (void)bytes;
    (void)count;
    return MPATH_DEVICE_NOT_SUPPORTED;
}

static mpath_device_result_t fake_stream_copy_aside(mpath_device_stream_t stream, mpath_device_ptr_t target,
                                                    mpath_device_ptr_t source, size_t bytes)
{
    return fake_stream_copy(stream, target, source, bytes);
}

static mpath_device_result_t fake_stream_copy_rows(mpath_device_stream_t stream, const mpath_device_rows_t *rows)
{
    return fake_stream_copy(stream, rows->target, (mpath_device_ptr_t)(uintptr_t)rows->source,
                            rows->row_bytes * rows->rows);
}

static mpath_device_result_t fake_stream_write(mpath_device_stream_t stream, mpath_device_ptr_t address, uint64_t value)
{
    need_context(stream->context);
    if (!is_known(address, sizeof(value))) {
        return refuse("stream_write", FAKE_INVALID);
    }
    atomic_thread_fence(memory_order_release);
    *(volatile uint64_t *)(uintptr_t)address = value;
    return MPATH_DEVICE_DONE;
}

static mpath_device_result_t fake_stream_wait(mpath_device_stream_t stream, mpath_device_ptr_t address, uint64_t value)
{
    (void)stream;
    (void)address;
    (void)value;
    return refuse("stream_wait", MPATH_DEVICE_NOT_SUPPORTED);
}

static mpath_device_result_t fake_stream_query(mpath_device_stream_t stream)
{
    need_context(stream->context);
    return MPATH_DEVICE_DONE;
}

static mpath_device_result_t fake_event_make(mpath_device_event_t *event_p)
{
    *event_p = malloc(sizeof(**event_p));
    if (*event_p == NULL) {
        return refuse("event_make", MPATH_DEVICE_NO_MEMORY);
    }
    (*event_p)->context = current;
    atomic_fetch_add(&made, 1);
    return MPATH_DEVICE_DONE;
}

static void fake_event_end(mpath_device_event_t event)
{
    need_context(event->context);
    atomic_fetch_sub(&made, 1);
    free(event);
}

static mpath_device_result_t fake_event_record(mpath_device_event_t event, mpath_device_stream_t stream)
{
    need_context(event->context);
    need_context(stream->context);
    return MPATH_DEVICE_DONE;
}

static mpath_device_result_t fake_event_query(mpath_device_event_t event)
{
    need_context(event->context);
    return MPATH_DEVICE_DONE;
}

/* Kernels: none. */

static const char *fake_kernels_missing(void)
{
    return "fake devices have no kernels";
}

static mpath_device_result_t fake_kernels_load(mpath_device_module_t *module_p)
{
    (void)module_p;
    return refuse("kernels_load", MPATH_DEVICE_NOT_SUPPORTED);
}

static int fake_has_graphs(void)
{
    return 0;
}

/* Memory for other processes. */

static mpath_device_result_t fake_ipc_export(mpath_device_ptr_t base, mpath_device_ipc_t *handle_p)
{
    handle_t handle = {.pid = getpid(), .fd = -1};
    const range_t *range;

    pthread_mutex_lock(&fake.lock);
    range = range_find(base);
    if (range != NULL) {
        handle.fd    = range->fd;
        handle.bytes = range->bytes;
    }
    pthread_mutex_unlock(&fake.lock);
    memset(handle_p, 0, sizeof(*handle_p));
    memcpy(handle_p, &handle, sizeof(handle));
    return (handle.fd >= 0) ? MPATH_DEVICE_DONE : refuse("ipc_export", FAKE_INVALID);
}

static mpath_device_result_t fake_ipc_open(const mpath_device_ipc_t *handle, mpath_device_ptr_t *address_p)
{
    handle_t told;
    char path[64];
    void *base;
    int fd;

    memcpy(&told, handle, sizeof(told));
    snprintf(path, sizeof(path), "/proc/%lld/fd/%lld", (long long)told.pid, (long long)told.fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return refuse("ipc_open", FAKE_GONE);
    }
    base = mmap(NULL, told.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (base == MAP_FAILED) {
        return refuse("ipc_open", MPATH_DEVICE_NO_MEMORY);
    }
    pthread_mutex_lock(&fake.lock);
    range_add((range_t){.base = base, .bytes = told.bytes, .ordinal = current->ordinal, .fd = -1});
    pthread_mutex_unlock(&fake.lock);
    *address_p = (mpath_device_ptr_t)(uintptr_t)base;
    return MPATH_DEVICE_DONE;
}

static void fake_ipc_close(mpath_device_ptr_t address)
{
    range_t range;

    pthread_mutex_lock(&fake.lock);
    range = range_remove((void *)(uintptr_t)address);
    pthread_mutex_unlock(&fake.lock);
    munmap(range.base, range.bytes);
}

const mpath_device_ops_t fake_device = {
    .name              = "fake",
    .is_ready          = fake_is_ready,
    .start             = fake_start,
    .driver_version    = fake_driver_version,
    .error_string      = fake_error_string,
    .failed_call       = fake_failed_call,
    .device_count      = fake_device_count,
    .device_info       = fake_device_info,
    .device_uuid       = fake_device_uuid,
    .device_features   = fake_device_features,
    .can_access        = fake_can_access,
    .needs_flush       = fake_needs_flush,
    .context_take      = fake_context_take,
    .context_release   = fake_context_release,
    .context_current   = fake_context_current,
    .context_is_begun  = fake_context_is_begun,
    .context_knows     = fake_context_knows,
    .context_enter     = fake_context_enter,
    .context_leave     = fake_context_leave,
    .context_reach     = fake_context_reach,
    .context_drain     = fake_context_drain,
    .memory_find       = fake_memory_find,
    .memory_info       = fake_memory_info,
    .memory_take       = fake_memory_take,
    .memory_give       = fake_memory_give,
    .memory_clear      = fake_memory_clear,
    .memory_settled    = fake_memory_settled,
    .memory_settle     = fake_memory_settle,
    .stream_drain      = fake_stream_drain,
    .pin               = fake_pin,
    .unpin             = fake_unpin,
    .stream_make       = fake_stream_make,
    .stream_end        = fake_stream_end,
    .stream_copy       = fake_stream_copy,
    .stream_copy_all   = fake_stream_copy_all,
    .stream_copy_aside = fake_stream_copy_aside,
    .stream_copy_rows  = fake_stream_copy_rows,
    .stream_write      = fake_stream_write,
    .stream_wait       = fake_stream_wait,
    .stream_query      = fake_stream_query,
    .event_make        = fake_event_make,
    .event_end         = fake_event_end,
    .event_record      = fake_event_record,
    .event_query       = fake_event_query,
    .kernels_missing   = fake_kernels_missing,
    .kernels_load      = fake_kernels_load,
    .has_graphs        = fake_has_graphs,
    .ipc_export        = fake_ipc_export,
    .ipc_open          = fake_ipc_open,
    .ipc_close         = fake_ipc_close,
};
