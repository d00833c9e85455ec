/* SPDX-License-Identifier: BSD-3-Clause */
/* For tests: memory of every kind on a GPU, through the driver that the test has loaded (fake or real). */
#ifndef MPATH_TESTS_UNIT_GPU_KINDS_H
#define MPATH_TESTS_UNIT_GPU_KINDS_H

#include "device/cuda/driver.h"
#include "device/memory.h"
#include "device/stream.h"

typedef struct gpu_memory {
    mpath_memory_kind_t kind;
    int device;
    uint64_t address, bytes;
    uint64_t block_bytes; /* of VMM: each mapping */
    mpath_cu_pool_t pool; /* of POOL, when it was made for this allocation */
} gpu_memory_t;

/* Path of libcuda.so.1: $MPATH_TEST_CUDA, or the fake one of the build. */
const char *gpu_library(void);
/* As an application does: loads the library, initialises the driver, makes device 0's primary context current. */
void gpu_application_starts(void);
/* Around a group of tests: the application starts; mpath gives back what it holds of the driver. */
int gpu_group_setup(void **state);
int gpu_group_teardown(void **state);
/* The fake NVML is found by its name from here on, since it is loaded; it tells of such links (tests/gpu/fake_nvml.c). */
void gpu_nvml_starts(const char *links);
/* As cudaDeviceReset does: ends the primary context of a device, and all that was made in it. */
void gpu_application_resets(int device);

/*
 * mpath_kernels_usable(); but where MPATH_TEST_KERNELS says that there have to be kernels (tests/gpu/run sets it), none
 * end the program: tests that skip would hide it.
 */
int gpu_has_kernels(mpath_gpu_t *gpu);

/*
 * Allocates, or ends the program. VMM: `blocks` mappings behind one another, -`blocks` with fabric handles. POOL:
 * exportable when `blocks` is 1, from the default pool when it is 0.
 */
void gpu_memory_alloc(mpath_memory_kind_t kind, int device, uint64_t bytes, int blocks, gpu_memory_t *memory);
/* Another physical allocation in the place of one block of VMM memory. */
void gpu_memory_remap(gpu_memory_t *memory, int block);
/* One physical allocation in the place of two neighbouring blocks of VMM memory: blocks differ in size from then on. */
void gpu_memory_join(gpu_memory_t *memory, int block);
void gpu_memory_free(gpu_memory_t *memory);
/* Whether the driver lets this process make VMM memory with fabric handles, which takes an IMEX channel. */
int gpu_makes_fabric_handles(int device);

/* Copies between host memory and memory of any kind, at once. */
void gpu_memory_write(uint64_t address, const void *from, size_t bytes);
void gpu_memory_read(uint64_t address, void *to, size_t bytes);
/* Device memory, at once. */
void gpu_memory_fill(uint64_t address, unsigned char value, size_t bytes);

/* Byte i of pattern `seed`. */
static inline unsigned char gpu_pattern(uint64_t seed, uint64_t i)
{
    uint64_t x = (i + 1) * UINT64_C(0x9e3779b97f4a7c15) + seed * UINT64_C(0xd1342543de82ef95);

    return (unsigned char)(x >> 56);
}
void gpu_pattern_write(uint64_t address, size_t bytes, uint64_t seed);
/* 0 when all bytes are right; else the number of the first wrong one plus 1. */
uint64_t gpu_pattern_check(uint64_t address, size_t bytes, uint64_t seed);

#endif
