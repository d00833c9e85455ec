/* SPDX-License-Identifier: BSD-3-Clause */
/* mpath_bench: buffers and their contents. */
#include "tools/bench_memory.h"

#include <stdlib.h>
#include <string.h>

int bench_buffer_create(bench_memory_t kind, uint64_t bytes, bench_buffer_t *buffer_p)
{
    bench_buffer_t buffer = {.kind = kind, .bytes = bytes};

    buffer.address = malloc(bytes);
    if (buffer.address == NULL) {
        return -1;
    }
    *buffer_p = buffer;
    return 0;
}

void bench_buffer_destroy(bench_buffer_t *buffer)
{
    free(buffer->address);
    memset(buffer, 0, sizeof(*buffer));
}

void bench_buffer_set(bench_buffer_t *buffer, int value)
{
    memset(buffer->address, value, buffer->bytes);
}

unsigned char *bench_buffer_window(bench_buffer_t *buffer, uint64_t offset, uint64_t bytes, uint64_t *length_p)
{
    *length_p = bytes;
    return buffer->address + offset;
}

void bench_buffer_put(bench_buffer_t *buffer, uint64_t offset, uint64_t length)
{
    (void)buffer;
    (void)offset;
    (void)length;
}

const unsigned char *bench_buffer_get(const bench_buffer_t *buffer, uint64_t offset, uint64_t bytes, uint64_t *length_p)
{
    *length_p = bytes;
    return buffer->address + offset;
}
