/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpath's kernels. A build without nvcc has none: mpath_kernels_usable() is 0 and everything goes through copy engines.
 *
 * mpath_launch_copy() is one launch for many fragments of any size and alignment. The work is divided over the CTAs by
 * bytes, not by fragment, so one long fragment among short ones keeps all of them busy. When all bytes are visible to the
 * whole system, the last CTA writes the flags.
 *
 * Seen on an H200, enqueue to mark seen by the host: 10 us without fragments, 11 us for 8 x 64 KiB to a peer; a copy
 * engine takes 8 us for one copy, 2 us of which the host spends enqueuing. Misaligned fragments run at 260 to 310 instead
 * of 366 GB/s.
 */
#ifndef MPATH_DEVICE_KERNELS_COPY_H
#define MPATH_DEVICE_KERNELS_COPY_H

#include "device/kernels/kernel_args.h"
#include "device/graph.h"
#include "device/stream.h"
#include "util/pause.h"

/* 1 when the build has kernels and they load on this device (which the first call does: some 10 ms). */
int mpath_kernels_usable(mpath_gpu_t *gpu);

typedef struct mpath_launch_copy {
    const mpath_kernel_fragment_t *fragments;
    unsigned fragments_count; /* any number; more than MPATH_KERNEL_FRAGMENTS_MAX take several launches */
    const mpath_kernel_word_t *flags;
    unsigned flags_count; /* at most MPATH_KERNEL_FLAGS_MAX - 1 */
    unsigned ctas;        /* upper limit; 0: as many as the bytes are worth */
    mpath_mark_t *mark_p; /* not NULL: marks the end of the launch, cheaper than mpath_stream_mark() after it */
} mpath_launch_copy_t;

/* Enqueues; the arrays may be reused at once. MPATH_ERR_UNSUPPORTED, silent, when the kernels are not usable. */
mpath_status_t mpath_launch_copy(mpath_stream_t *stream, const mpath_launch_copy_t *launch);

/*
 * The same launch, to be started often: no mark, one flag, which gets what the word of host memory at
 * `number` holds instead of the flag's value; at most MPATH_KERNEL_FRAGMENTS_FEW fragments. MPATH_ERR_UNSUPPORTED, silent:
 * not this one, or as mpath_repeat_create().
 */
mpath_status_t mpath_repeat_copy(mpath_stream_t *stream, const mpath_launch_copy_t *launch, mpath_device_ptr_t number,
                                 mpath_repeat_t **repeat_p);

/*
 * For other kernels of the fatbin: find once, then per launch fill the control of the arguments (flags_count is 0 and
 * the caller's to set) and launch with the same number of CTAs. `arguments` is the one struct that the kernel takes,
 * beginning with the control; it may be reused at once. MPATH_ERR_UNSUPPORTED, silent, without kernels;
 * MPATH_ERR_PARAM, logged, for a name that is not there. A driver loads some kernels only now, which it may refuse: other
 * errors. Where it does, the caller's `pause` says when it is asked again; NULL: now. What was found once is found always.
 */
mpath_status_t mpath_kernel_find(mpath_gpu_t *gpu, const char *name, mpath_pause_t *pause,
                                 mpath_device_function_t *function_p);
void mpath_launch_control(mpath_stream_t *stream, unsigned ctas, mpath_kernel_control_t *control);
mpath_status_t mpath_launch_kernel(mpath_stream_t *stream, mpath_device_function_t function, const void *arguments,
                                   unsigned ctas, unsigned threads);

/* The same for a kernel whose arguments have no control: it takes no part in the stream's counters. */
mpath_status_t mpath_launch_uncounted(mpath_stream_t *stream, mpath_device_function_t function, const void *arguments,
                                      unsigned ctas, unsigned threads);

/*
 * The word that a kernel's flag writes to mark the end of its launch, and the mark; without values:
 * MPATH_ERR_UNSUPPORTED.
 */
mpath_status_t mpath_launch_mark(mpath_stream_t *stream, mpath_kernel_word_t *flag, mpath_mark_t *mark_p);

/* Address of the stream's mpath_kernel_counters_t. */
mpath_device_ptr_t mpath_launch_counters(const mpath_stream_t *stream);

/* For mpath_gpu_cleanup(). */
void mpath_launch_cleanup(mpath_gpu_t *gpu);

#endif
