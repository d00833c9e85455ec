/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernels that a rank starts before the agreement (device/kernels/eager_args.h), for the files that do: what all ranks have
 * started, and the wait for the end of the own one. The agreement decides: only if every rank says that it has started
 * its kernel do the kernels carry the call. If not, each kernel gives up soon by itself, and the call goes on as if nothing
 * had been tried.
 *
 * A kernel that has given up while a rank was late is launched again, to wait only, once all have started theirs. So
 * nothing waits on a GPU for longer than GPU_EAGER_PATIENCE_NS, and streams that communicators share cannot lock each
 * other.
 */
#ifndef MPATH_NODE_FLAGGED_H
#define MPATH_NODE_FLAGGED_H

#include "node/node_private.h"
#include "device/kernels/eager_args.h"
#include "util/time.h"

#define GPU_EAGER_PATIENCE_NS (2 * MPATH_NS_PER_MS)

/* What a rank publishes in its cell. */
enum {
    GPU_EAGER_NOT,    /* it takes no part in such calls */
    GPU_EAGER_WANTED, /* it would, if it had what they need */
    GPU_EAGER_STARTED /* its kernel is launched */
};

/* The kernel of a call. */
typedef struct gpu_eager_kernel {
    mpath_pinned_t words; /* of its CTAs */
    mpath_stream_t *stream;
    uint64_t number; /* that the words get */
    unsigned ctas;
    const char *what;                         /* it waits for: "vector" */
    mpath_status_t (*launch_again)(void *of); /* the words are 0 */
    void *of;
    uint64_t began_ns, bytes; /* for the timeline */
} gpu_eager_kernel_t;

/* Whether all ranks have started, after an agreement of which all could take part. The same on all ranks. */
int mpath_gpu_eager_all(const mpath_gpu_coll_t *coll);

/* Until the kernel has ended; `all`: with its results, for which all ranks have started theirs. */
mpath_status_t mpath_gpu_eager_await(const mpath_gpu_coll_t *coll, const gpu_eager_kernel_t *kernel, int all);

/* The call has failed: no kernel of this rank may be under way when its caller gets its buffers back. */
void mpath_gpu_eager_abandon(const gpu_eager_kernel_t *kernel);

#endif
