/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A libcuda.so.1 without a GPU, for tests: the functions of device/cuda/cuda_abi.h on host memory.
 *
 *   device memory   a number inside an address range without access (a processor that reads it dies, as on a real
 *                   machine); the bytes lie in a memfd, mapped at the same distance for every address, so that other
 *                   processes open them as CUDA IPC would. A freed allocation marks its memfd dead: who still copies
 *                   into an import of it is told. The first hole is given out again, so that addresses return at once.
 *   streams         a thread each, which executes in order and a little late, so that missing synchronisation shows
 *   misuse          whatever CUDA leaves undefined ends the process with a line "fake CUDA: ..."
 *
 * FAKE_CUDA_DEVICES   number of devices (4)
 * FAKE_CUDA_WITHOUT   comma-separated: values peers ipc fds fabric imex pools kernels graphs
 *                     streams: what there then is not
 * FAKE_CUDA_MULTIPROCESSORS  of each device (8)
 * FAKE_CUDA_FULL      number of a device, below 10, that has no free memory
 * FAKE_CUDA_FREE      bytes of free memory that the driver tells of, of 8 GiB (7 GiB)
 * FAKE_CUDA_LARGEST   bytes: longer cuMemAllocs fail, for want of memory
 * FAKE_CUDA_LARGEST_PINNED  bytes: the driver takes no longer piece of host memory
 * FAKE_CUDA_DELAY_US  upper limit of the random delay before each piece of work (30)
 * FAKE_CUDA_PORTS     file of a fake_ports_t: counts the copies of engines out of devices, of all processes
 * FAKE_CUDA_COPY_US   what a copy between two devices takes at least, with FAKE_CUDA_PORTS (0)
 * FAKE_CUDA_ONE_QUEUE  set: all streams of the process are one queue, as a driver short of queues may have it: a piece of work
 *                     begins when what was enqueued before it, on whichever stream, has ended
 * FAKE_CUDA_LATE      set: of a copy from pageable memory the last page comes when somebody waits for the default stream
 * CUDA_VISIBLE_DEVICES  as CUDA's: a list of numbers
 */
#ifndef FAKE_CUDA_FAKE_H
#define FAKE_CUDA_FAKE_H

#include "fake_kernel.h"

#include "device/cuda/cuda_abi.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#define FAKE_API __attribute__((visibility("default")))
#define FAKE_DEVICES_MAX 16
#define FAKE_PAGE 4096
#define FAKE_GRANULE (UINT64_C(2) << 20) /* of cuMemCreate */

struct mpath_device_context {
    int device;     /* ordinal */
    uint32_t peers; /* bit per ordinal */
    int retained;
    unsigned life; /* grows when all that was made in it has gone */
    int ended;     /* a primary one that was reset, until it is retained again: nothing works in it */
};

/* Where something was made, and whether that is still what it was. */
typedef struct fake_origin {
    struct fake_origin *next; /* of all things: those whose context has ended are never destroyed */
    const struct mpath_device_context *context;
    unsigned life;
} fake_origin_t;

/* At the end of every memfd: read by the processes that open it. */
typedef struct fake_trailer {
    uint64_t magic;
    atomic_uint_fast64_t alive; /* 0: the owner has freed it */
    uint64_t id, bytes;
    int64_t device; /* physical number */
} fake_trailer_t;

typedef enum fake_kind { FAKE_DEVICE, FAKE_POOL, FAKE_VMM, FAKE_MANAGED, FAKE_HOST } fake_kind_t;

/* Physical memory of cuMemCreate. */
typedef struct fake_physical {
    int fd, device; /* ordinal */
    uint64_t bytes, id;
    int handle_types, references, imported;
    fake_trailer_t *trailer;
} fake_physical_t;

struct mpath_device_pool {
    struct mpath_device_pool *next; /* of those that have been destroyed: the last one's handle is given out again */
    uint64_t id;
    int fd; /* once exported, of which exports are copies; 0: not yet */
    int device, handle_types, imported;
    uint32_t access; /* bit per ordinal */
};

/* Memory that the driver knows. */
typedef struct fake_region {
    struct fake_region *next;
    fake_kind_t kind;
    uint64_t base, bytes; /* as the caller asked */
    char *bytes_at;       /* where this process reads and writes the first byte */
    uint64_t mapped;      /* bytes mapped there */
    int device;
    mpath_cu_context_t context;
    uint64_t id;
    int fd, imported, handle_types;
    unsigned settled; /* MPATH_CU_PTR_SYNC_MEMOPS */
    uint32_t access;  /* bit per ordinal that may use it from a kernel */
    mpath_cu_pool_t pool;
    fake_physical_t *physical;
    fake_trailer_t *trailer; /* of device memory, imports too */
} fake_region_t;

typedef enum fake_op_kind {
    FAKE_OP_COPY,
    FAKE_OP_FILL,
    FAKE_OP_WRITE,
    FAKE_OP_WAIT,
    FAKE_OP_RECORD,
    FAKE_OP_KERNEL,
    FAKE_OP_FREE
} fake_op_kind_t;

/* By physical number: copies to other devices that are under way, and the most there were at a time. */
typedef struct fake_ports {
    atomic_int out[FAKE_DEVICES_MAX], most_out[FAKE_DEVICES_MAX];
    atomic_int copies;   /* of all devices */
    atomic_int commands; /* short copies to devices that a driver sends with its commands */
} fake_ports_t;

extern pthread_mutex_t fake_lock;

int fake_without(const char *what);
/* Whether an environment variable holds a number of bytes, and these are more. */
int fake_is_too_large(const char *variable, uint64_t bytes);

/* Device. */
int fake_ready(void);
int fake_devices(void);
int fake_physical_device(int ordinal);
int fake_ordinal_of(int64_t physical); /* -1 */
mpath_cu_context_t fake_current(void); /* NULL when there is none */
mpath_cu_context_t fake_need_context(const char *call);

/* Dies where an ordinary stream is captured. */
void fake_default_stream_is_free(const char *call);
/* Part of everything that is made in the current context; dies when that has ended since. */
void fake_origin_make(fake_origin_t *origin, const char *call);
void fake_origin_drop(fake_origin_t *origin);
void fake_origin_check(const fake_origin_t *origin, const char *call);

/* Around a copy of an engine; -1: not counted. */
int fake_port_begin(uint64_t target, uint64_t source);
void fake_port_end(int port);

/* A plain copy from the host to a device. */
void fake_port_count_commands(uint64_t target, uint64_t source, uint64_t bytes);

/* Memory. */
/* Under the lock. */
fake_region_t *fake_find(uint64_t address);
uint64_t fake_next_id(void);
uint64_t fake_range_take(uint64_t bytes, uint64_t alignment); /* device addresses; 0: none left */
void fake_range_give(uint64_t address);
uint64_t fake_range_bytes(uint64_t address);
int fake_memfd(uint64_t bytes, uint64_t id, int device, fake_trailer_t **trailer_p); /* -1 */
int fake_memfd_open(int fd, fake_trailer_t **trailer_p);
char *fake_map(uint64_t address, uint64_t bytes, int fd);
void fake_unmap(uint64_t address, uint64_t bytes);
fake_region_t *fake_region_add(fake_kind_t kind, uint64_t base, uint64_t bytes);
void fake_region_drop(fake_region_t *region);
void fake_forget_memory(const struct mpath_device_context *context); /* of its own; the lock is taken inside */
mpath_cu_result_t fake_import(int64_t pid, int fd, uint64_t id, mpath_cu_context_t context, fake_region_t **region_p);
mpath_cu_result_t fake_allocate(uint64_t bytes, int device, fake_region_t **region_p);

/* Streams. */
void fake_drain(const struct mpath_device_context *context); /* waits for all work; not under the lock */
mpath_cu_result_t fake_enqueue_free(mpath_cu_stream_t stream, uint64_t address);
mpath_cu_result_t fake_free(uint64_t address, int from_stream);
/* `context`: the function's, which has to be the stream's. Copies the arguments. */
mpath_cu_result_t fake_enqueue_kernel(mpath_cu_stream_t stream, const struct mpath_device_context *context,
                                      mpath_cu_function_t function, const void *arguments, unsigned ctas,
                                      unsigned threads);

#endif
