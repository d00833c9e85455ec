/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpath_bench: buffers in the kinds of memory that an application may hand to MPI, and access to their contents. Memory
 * that the processor does not reach is read and written through a window of pinned memory, piece by piece. What fails
 * here ends the job with a message: a benchmark without its buffers has nothing to measure.
 */
#ifndef MPATH_TOOLS_BENCH_MEMORY_H
#define MPATH_TOOLS_BENCH_MEMORY_H

#include <stddef.h>
#include <stdint.h>

typedef enum bench_memory {
    BENCH_MEMORY_HOST /* malloc */
} bench_memory_t;

typedef struct bench_buffer {
    bench_memory_t kind;
    unsigned char *address; /* what MPI gets */
    uint64_t bytes;
} bench_buffer_t;

/* Returns 0, or -1 without a message when memory is short. */
int bench_buffer_create(bench_memory_t kind, uint64_t bytes, bench_buffer_t *buffer_p);
/* Takes a zeroed buffer as well. */
void bench_buffer_destroy(bench_buffer_t *buffer);

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
