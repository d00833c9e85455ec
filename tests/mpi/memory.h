/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Buffers of the MPI tests in any kind of memory. MPATH_TEST_MEMORY lists kinds, separated by commas: host registered
 * device pool vmm managed striped; every buffer gets one of them, by rank, round and side. Of vmm and striped it lies in
 * two mappings at least, which are of one GPU and of two. Without it, and where
 * it is empty, all memory is the host's and CUDA is not touched. The device is the rank modulo the number of devices, unless MPATH_TEST_DEVICE names one.
 */
#ifndef MPATH_TESTS_MPI_MEMORY_H
#define MPATH_TESTS_MPI_MEMORY_H

#include <stddef.h>

/* `seed` chooses the kind and a distance between the start of an allocation and the buffer. */
void *memory_new(size_t bytes, unsigned seed);
void memory_free(void *memory);

/*
 * Nonzero: what this rank asks for from now on is of another device, which no rank of so many begins with; with 0 ranks
 * of its first one again. 0: there is none.
 */
int memory_turn(int ranks);

/*
 * From now on every buffer is of the device after that of the buffer before. For one thread, and kinds device and vmm. 0:
 * there is one device only.
 */
int memory_split(void);

/*
 * The application ends the context of its device, as cudaDeviceReset() does, and goes on in a new one. All buffers of
 * this rank are gone.
 */
void memory_reset(void);

/* Between a buffer and host memory, at any place within the buffer. */
void memory_put(void *memory, const void *host, size_t bytes);
void memory_get(void *host, const void *memory, size_t bytes);
void memory_fill(void *memory, unsigned char value, size_t bytes);

/* Host memory that copies read without a stop at the processor, where there is a device; memory_free() frees it. */
void *memory_new_pinned(size_t bytes);

/*
 * Device memory: enqueues `fills` fills of `scratch` (bytes of it) and of the buffer with something else, and then the
 * copy, on a stream of this program, and waits for none of them. `host`, which is pinned, stays as it is until they are
 * done, which memory_get() does not wait for.
 */
typedef struct memory_late {
    void *memory;
    const void *host;
    size_t bytes;
    void *scratch;
    size_t scratch_bytes;
    int fills;
} memory_late_t;
void memory_put_late(const memory_late_t *late);
/* Nonzero: what memory_put_late() has enqueued is not all done. */
int memory_is_late(void);

/* Nonzero: MPATH_TEST_MEMORY names something besides the host's memory. */
int memory_is_special(void);

#endif
