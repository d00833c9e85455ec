/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpath_bench: buffers in the kinds of memory that an application may hand to MPI, and access to their contents. Memory
 * that the processor does not reach is read and written through a window of pinned memory, piece by piece. A CUDA call
 * that fails here ends the job with a message: a benchmark without its buffers has nothing to measure.
 */
#ifndef MPATH_TOOLS_BENCH_MEMORY_H
#define MPATH_TOOLS_BENCH_MEMORY_H

#include "device/cuda/cuda_abi.h"

#include <stddef.h>
#include <stdint.h>

typedef enum bench_memory {
    BENCH_MEMORY_HOST,       /* malloc */
    BENCH_MEMORY_PINNED,     /* cuMemHostAlloc */
    BENCH_MEMORY_REGISTERED, /* malloc and cuMemHostRegister */
    BENCH_MEMORY_CUDA,       /* cuMemAlloc, what cudaMalloc does; from a MiB on rounded up, as caching allocators do */
    BENCH_MEMORY_EXACT,      /* the same, not rounded */
    BENCH_MEMORY_POOL,       /* from the device's default pool, what cudaMallocAsync does */
    BENCH_MEMORY_VMM,        /* cuMemCreate and cuMemMap, what expandable segments do */
    BENCH_MEMORY_MANAGED,    /* cuMemAllocManaged */
    BENCH_MEMORY_KINDS
} bench_memory_t;

/* Names of --memory; NULL after the last. */
extern const char *const bench_memory_names[BENCH_MEMORY_KINDS + 1];

static inline int bench_memory_on_host(bench_memory_t kind)
{
    return kind <= BENCH_MEMORY_REGISTERED;
}

typedef struct bench_buffer {
    bench_memory_t kind;
    unsigned char *address; /* what MPI gets */
    uint64_t bytes;
    uint64_t mapped_bytes; /* VMM */
} bench_buffer_t;

/* The GPU of this rank, as an application has it: the primary context of its device is current in this thread. */
typedef struct bench_gpu {
    const mpath_cu_t *cu; /* NULL: without GPU memory */
    mpath_cu_device_t device;
    mpath_cu_stream_t stream; /* of pool memory */
    int ordinal, num_devices, driver_version;
    char name[64];
} bench_gpu_t;

extern bench_gpu_t bench_gpu;

/* Device: local rank modulo their number. Returns 0, or -1 with a message: no driver, no device. */
int bench_gpu_open(int local_rank);
void bench_gpu_close(void);
/* Waits until the device is idle. */
void bench_gpu_settle(void);
/* Bytes of the device that are free; 0 without one. */
uint64_t bench_gpu_free_bytes(void);
/* Ends the job with a message that names the call unless it succeeded. */
void bench_gpu_check(mpath_cu_result_t result, const char *call);

/* Returns 0, or -1 without a message when host memory is short. */
int bench_buffer_create(bench_memory_t kind, uint64_t bytes, bench_buffer_t *buffer_p);
/* Takes a zeroed buffer as well. */
void bench_buffer_destroy(bench_buffer_t *buffer);
/* The whole contents; buffers of the same size. */
void bench_buffer_copy(bench_buffer_t *to, const bench_buffer_t *from);

void bench_buffer_set(bench_buffer_t *buffer, int value);
/*
 * Bytes from `offset` on, up to `bytes` of them: *length_p says how many, a multiple of 8 unless it is the rest. The
 * contents of a window to write are undefined until it is written, and take effect with bench_buffer_put(). A window is
 * valid until the next call of this header.
 */
unsigned char *bench_buffer_window(bench_buffer_t *buffer, uint64_t offset, uint64_t bytes, uint64_t *length_p);
void bench_buffer_put(bench_buffer_t *buffer, uint64_t offset, uint64_t length);
const unsigned char *bench_buffer_get(const bench_buffer_t *buffer, uint64_t offset, uint64_t bytes,
                                      uint64_t *length_p);

#endif
