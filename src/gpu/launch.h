/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpath's kernels. A build without nvcc has none: mpath_kernels_usable() is 0 and everything goes through copy engines.
 *
 * mpath_launch_copy() is one launch for many pieces of any size and alignment. The work is divided over the CTAs by bytes,
 * not by piece, so one long piece among short ones keeps all of them busy. When all bytes are visible to the whole system,
 * the last CTA writes the flags. A launch may first await words (a peer that says its buffer is ready), bounded by the
 * device's clock: after the deadline it copies nothing, writes no flag, and its stream's next mpath_stream_done() returns
 * MPATH_ERR_TIMED_OUT.
 */
#ifndef MPATH_GPU_LAUNCH_H
#define MPATH_GPU_LAUNCH_H

#include "gpu/kernel_args.h"
#include "gpu/stream.h"

/* 1 when the build has kernels and they load on this device (which the first call does: some 10 ms). */
int mpath_kernels_usable(mpath_gpu_t *gpu);

typedef struct mpath_launch_copy {
    const mpath_kernel_piece_t *pieces;
    unsigned pieces_count; /* any number; more than MPATH_KERNEL_PIECES_MAX take several launches */
    const mpath_kernel_word_t *waits;
    unsigned waits_count; /* at most MPATH_KERNEL_WORDS_MAX */
    const mpath_kernel_word_t *flags;
    unsigned flags_count; /* at most MPATH_KERNEL_WORDS_MAX */
    uint64_t timeout_ns;  /* of the waits; 0 only without waits */
    unsigned ctas;        /* upper limit; 0: as many as the bytes are worth */
} mpath_launch_copy_t;

/* Enqueues; the arrays may be reused at once. MPATH_ERR_UNSUPPORTED, silent, when the kernels are not usable. */
mpath_status_t mpath_launch_copy(mpath_stream_t *stream, const mpath_launch_copy_t *launch);

/* CTAs that mpath_launch_copy() takes for so many bytes by itself. */
unsigned mpath_launch_copy_ctas(const mpath_gpu_t *gpu, uint64_t bytes);

/*
 * For other kernels of the fatbin: `arguments` is the one struct that the kernel takes, passed by value.
 * MPATH_ERR_UNSUPPORTED, silent, without kernels.
 */
mpath_status_t mpath_launch_kernel(mpath_stream_t *stream, const char *name, const void *arguments, unsigned ctas,
                                   unsigned threads);

/* Bytes of device memory of a kernel's own on this gpu (counters). */
uint64_t mpath_launch_memory_bytes(void);

#endif
