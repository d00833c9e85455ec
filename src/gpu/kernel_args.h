/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arguments of the kernels: shared by the host code, kernels.cu and the fake driver of the tests. Plain C, fixed layout; a
 * kernel takes one struct by value (at most 4096 bytes). Addresses are device addresses of the launching context.
 */
#ifndef MPATH_GPU_KERNEL_ARGS_H
#define MPATH_GPU_KERNEL_ARGS_H

#include <stdint.h>

#define MPATH_KERNEL_THREADS 512
#define MPATH_KERNEL_PIECES_MAX 96
#define MPATH_KERNEL_WORDS_MAX 32

/* Bytes to copy. */
typedef struct mpath_kernel_piece {
    uint64_t target, source, bytes;
} mpath_kernel_piece_t;

/* A 64-bit word, aligned to 8: to be written, or to be awaited until it is at least `value`. */
typedef struct mpath_kernel_word {
    uint64_t address, value;
} mpath_kernel_word_t;

/* What every kernel of mpath shares. 48 bytes. */
typedef struct mpath_kernel_control {
    uint64_t arrivals; /* address of a 64-bit counter in device memory: CTAs that have finished, over all launches */
    uint64_t arrivals_last; /* its value when the last CTA of this launch has */
    uint64_t failure;       /* address of a word of host memory: set to 1 when a wait has timed out */
    uint64_t timeout_ns;
    uint32_t waits_count, flags_count;
    uint32_t ctas, reserved;
} mpath_kernel_control_t;

#define MPATH_KERNEL_COPY "mpath_kernel_copy"

typedef struct mpath_kernel_copy {
    mpath_kernel_control_t control;
    uint64_t bytes; /* of all pieces */
    uint32_t pieces_count, reserved;
    mpath_kernel_word_t waits[MPATH_KERNEL_WORDS_MAX];
    mpath_kernel_word_t flags[MPATH_KERNEL_WORDS_MAX];
    mpath_kernel_piece_t pieces[MPATH_KERNEL_PIECES_MAX];
} mpath_kernel_copy_t;

#endif
