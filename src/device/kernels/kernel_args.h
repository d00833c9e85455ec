/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arguments of the kernels: shared by the host code, kernels.cu and the fake driver of the tests. Plain C, fixed
 * layout; a kernel takes one struct by value (at most 4096 bytes), which begins with mpath_kernel_control_t. Addresses
 * are device addresses of the launching context.
 */
#ifndef MPATH_DEVICE_KERNELS_KERNEL_ARGS_H
#define MPATH_DEVICE_KERNELS_KERNEL_ARGS_H

#include <stdint.h>

#define MPATH_KERNEL_THREADS 512
#define MPATH_KERNEL_FRAGMENTS_MAX 96
#define MPATH_KERNEL_FLAGS_MAX 32

/* Bytes to copy. */
typedef struct mpath_kernel_fragment {
    uint64_t target, source, bytes;
} mpath_kernel_fragment_t;

/* A 64-bit word to be written, aligned to 8. */
typedef struct mpath_kernel_word {
    uint64_t address, value;
} mpath_kernel_word_t;

/* In device memory, one per stream; only ever grow, so nothing is reset between launches. */
typedef struct mpath_kernel_counters {
    uint64_t arrivals; /* CTAs that have finished, over all launches on the stream */
    uint64_t turn;     /* 32 bits: CTAs of a launch that repeats which have finished; 0 again after the last one */
    uint64_t number;   /* of the call, from CTA 0 of such a launch to its last one */
    uint64_t reserved[5];
} mpath_kernel_counters_t;

/* What every kernel of mpath shares. */
typedef struct mpath_kernel_control {
    uint64_t counters; /* address of the stream's mpath_kernel_counters_t */
    uint64_t arrivals; /* value of counters->arrivals when the last CTA of this launch has finished */
    uint32_t flags_count, ctas;
} mpath_kernel_control_t;

#define MPATH_KERNEL_COPY "mpath_kernel_copy"

typedef struct mpath_kernel_copy {
    mpath_kernel_control_t control;
    uint64_t bytes; /* of all fragments */
    uint32_t fragments_count, reserved;
    mpath_kernel_word_t flags[MPATH_KERNEL_FLAGS_MAX]; /* the last one is written after the others */
    mpath_kernel_fragment_t fragments[MPATH_KERNEL_FRAGMENTS_MAX];
} mpath_kernel_copy_t;

/* The same for few fragments: arguments are copied on each launch. */
#define MPATH_KERNEL_COPY_FEW "mpath_kernel_copy_few"
#define MPATH_KERNEL_FRAGMENTS_FEW 12
#define MPATH_KERNEL_FLAGS_FEW 8

typedef struct mpath_kernel_copy_few {
    mpath_kernel_control_t control;
    uint64_t bytes;
    uint32_t fragments_count, reserved;
    mpath_kernel_word_t flags[MPATH_KERNEL_FLAGS_FEW];
    mpath_kernel_fragment_t fragments[MPATH_KERNEL_FRAGMENTS_FEW];
} mpath_kernel_copy_few_t;

/* The same for a launch that repeats (device/graph.h): its flag gets what `number` holds. */
#define MPATH_KERNEL_COPY_AGAIN "mpath_kernel_copy_again"

typedef struct mpath_kernel_copy_again {
    mpath_kernel_control_t control; /* counters, flags_count and ctas; the rest is 0 */
    uint64_t bytes;
    uint64_t number; /* address of a word of host memory */
    uint32_t fragments_count, reserved;
    mpath_kernel_word_t flags[1]; /* the value is 0 */
    mpath_kernel_fragment_t fragments[MPATH_KERNEL_FRAGMENTS_FEW];
} mpath_kernel_copy_again_t;

#endif
