/* SPDX-License-Identifier: BSD-3-Clause */
/* The inside of reductions on device memory, for node/reduce.c. */
#ifndef MPATH_NODE_REDUCE_PRIVATE_H
#define MPATH_NODE_REDUCE_PRIVATE_H

#include "device/kernels/reduce.h"
#include "node/launches.h"
#include "node/node_private.h"
#include "node/reduce.h"
#include "node/reduce_predict.h"
#include "node/window.h"
#include "tune/share.h"

/* Short vectors that all send to all. */
typedef struct gpu_eager gpu_eager_t;

#define GPU_HOST_CLASSES 4 /* of sizes: twice as much each */
#define GPU_HOST_BATCHES 24

/* What calls have shown of the path through the host. */
typedef struct gpu_host {
    const char *operation; /* in the file, see node/history.h */
    int refused;           /* the same on all ranks: there are no slots for now */
    int history_taken[GPU_HOST_CLASSES];
    int history_class[GPU_HOST_CLASSES]; /* the file's, by the bytes from which on these calls are */
    mpath_beside_t beside[GPU_HOST_CLASSES];
    mpath_beside_t *last; /* of the last call that could have used it; NULL: it has been noted */
    uint64_t last_call;   /* its number */
    uint64_t last_bytes;  /* of it, that went through the host */
    uint64_t first_ns, second_ns;
    /* the call under way: the end of the vector */
    uint64_t begin, end_bytes;
    int in_place;
    mpath_reduce_how_t how;
    mpath_device_function_t function; /* of `how` */
    unsigned batches, launched;       /* that are combined together, between two ranks */
    uint64_t batch_ends[GPU_HOST_BATCHES], batch_left[GPU_HOST_BATCHES]; /* bytes that have yet to come */
} gpu_host_t;

/* A kernel that was looked for by its name, which takes longer than its launch. */
typedef struct gpu_found {
    mpath_gpu_t *device; /* NULL: none */
    mpath_reduce_how_t how;
    int algorithm; /* mpath_gpu_reduce_t */
    mpath_device_function_t function;
} gpu_found_t;

/* How calls of a size, operation and type go; the prediction takes longer than a short call may. */
typedef struct gpu_choice {
    uint64_t bytes; /* 0: nothing has been chosen */
    mpath_reduce_how_t how;
    int rated; /* with the machine's rates */
    int in_ring, algorithm;
    mpath_eager_form_t form; /* instead of both, ahead of the agreement; MPATH_EAGER_FORMS: none */
    int form_known;
} gpu_choice_t;

struct mpath_symmetric_gpu {
    mpath_team_t *team;
    int size, me;
    mpath_gpu_coll_t *reduce, *gather; /* boards, opened memory and streams of their own */
    uint64_t *arrays;                  /* [6][size] */
    uint64_t *send_bytes, *send_offsets, *recv_bytes, *recv_offsets;
    uint64_t *part_bytes, *part_offsets; /* what each rank combines, and where it begins in the send buffers */
    mpath_gpu_t *scratch_gpu;            /* whose memory the scratch is */
    mpath_device_ptr_t scratch;
    uint64_t scratch_bytes;
    mpath_coll_counters_t counters; /* but for those of `reduce` and `gather` */
    gpu_launches_t *launches;
    gpu_eager_t *eager;
    gpu_host_t host, host_gather;
    gpu_window_t *writes;    /* for reductions by writes; NULL until a call was large enough */
    gpu_found_t found;       /* of the last one */
    gpu_choice_t choice;     /* of the last one */
    mpath_pause_t no_writes; /* since there was no kernel for one */
    int algorithm;           /* mpath_gpu_reduce_t of the call under way: direct, writes or ring, where all ranks can */
    int in_ring;             /* its elements are combined in the order of a ring, whatever the algorithm */
};

/*
 * node/reduce.c: the order in which elements are combined, the same for the same size, ranks and parameters,
 * and within it the algorithm that is predicted to be the fastest of those that follow the agreement.
 */
void mpath_gpu_writes_choose(mpath_symmetric_gpu_t *gpu, uint64_t bytes, const mpath_reduce_how_t *how);

#endif
