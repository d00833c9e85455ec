/* SPDX-License-Identifier: BSD-3-Clause */
/* What a GPU and a stream are made of: for gpu.c, stream.c, graph.c and kernels/copy.c. */
#ifndef MPATH_DEVICE_GPU_PRIVATE_H
#define MPATH_DEVICE_GPU_PRIVATE_H

#include "device/gpu.h"
#include "device/pinned.h"
#include "device/stream.h"

#include <stdatomic.h>

#define MPATH_GPU_DEVICES_MAX 64

typedef enum mpath_gpu_peer {
    MPATH_GPU_PEER_UNKNOWN,
    MPATH_GPU_PEER_REACHED,
    MPATH_GPU_PEER_OUT_OF_REACH
} mpath_gpu_peer_t;

typedef enum mpath_gpu_kernels {
    MPATH_GPU_KERNELS_UNKNOWN,
    MPATH_GPU_KERNELS_LOADED,
    MPATH_GPU_KERNELS_NONE
} mpath_gpu_kernels_t;

/* Words of host memory that the device writes, one line per stream. */
typedef struct mpath_stream_words {
    volatile uint64_t done; /* the last mark that has been passed */
    uint64_t reserved[7];
} mpath_stream_words_t;

struct mpath_stream {
    mpath_gpu_t *gpu;
    mpath_device_stream_t native;
    mpath_stream_words_t *words;
    mpath_device_ptr_t done_address; /* of words->done, as the device sees it */
    mpath_device_event_t event;      /* for marks where values are missing */
    mpath_mark_t marked;             /* last one given out */
    mpath_mark_t recorded;           /* without values: the mark that `event` stands for */
    uint64_t arrivals;               /* of all CTAs launched on this stream so far */
    unsigned index, polls;
};

/* A kernel that was found by its name. */
typedef struct mpath_gpu_function {
    struct mpath_gpu_function *next;
    mpath_device_function_t function;
    char name[];
} mpath_gpu_function_t;

struct mpath_gpu {
    mpath_gpu_t *next;
    int number;
    atomic_int lost; /* the context is gone, and with it all that was made in it */
    mpath_gpu_info_t info;
    mpath_device_context_t context;
    int retained;                               /* the primary context: given back at the end */
    unsigned char peers[MPATH_GPU_DEVICES_MAX]; /* mpath_gpu_peer_t, per ordinal */
    int has_values, has_waits;                  /* of streams: they write words, and wait for some */
    atomic_int turns;                           /* other processes work on it as well, one at a time */
    atomic_int slow_copies;                     /* one after the other */
    mpath_pinned_t words; /* mpath_stream_words_t[MPATH_GPU_STREAMS_ALL]; the driver forgets them with the context */
    mpath_stream_t *streams[MPATH_GPU_STREAMS_ALL];
    mpath_gpu_kernels_t kernels;
    mpath_device_module_t module;
    mpath_device_function_t copy_kernel, copy_few_kernel, copy_again_kernel;
    mpath_gpu_function_t *functions; /* the others, as far as they have been found */
    mpath_device_ptr_t counters;     /* mpath_kernel_counters_t[MPATH_GPU_STREAMS_ALL] in device memory */
};

/* Guards the making of devices, streams and modules. */
void mpath_gpu_lock(void);
void mpath_gpu_unlock(void);

/* Registers the words anew where that has failed before. Errors are logged. */
mpath_status_t mpath_gpu_make_words(mpath_gpu_t *gpu);

/* The objects that are not lost, one after the other; NULL: the first one, the end. */
mpath_gpu_t *mpath_gpu_next(const mpath_gpu_t *gpu);

#endif
