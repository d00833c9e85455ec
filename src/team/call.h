/* SPDX-License-Identifier: BSD-3-Clause */
/* What describes a call, for what carries it and for what counts it. */
#ifndef MPATH_TEAM_CALL_H
#define MPATH_TEAM_CALL_H

#include "device/memory.h"
#include "topo/topo.h"

#include <stdint.h>

typedef enum mpath_operation {
    MPATH_OPERATION_ALLTOALLV = 1, /* coll/alltoallv.c */
    MPATH_OPERATION_ALLREDUCE,
    MPATH_OPERATION_REDUCE_SCATTER,
    MPATH_OPERATION_ALLGATHER
} mpath_operation_t;

/* This rank's buffers. send == recv: in place. */
typedef struct mpath_symmetric_buffers {
    const void *send;
    void *recv;
    const mpath_memory_t *send_memory, *recv_memory; /* NULL: host memory */
    int ineligible;                                  /* this rank cannot take part; nothing else is looked at then */
    /* Of a reduction of the GPUs of a node: as mpath_combination_t has them */
    uint32_t alike;
    void (*alike_text)(uint32_t operation, char *text, size_t size);
} mpath_symmetric_buffers_t;

typedef struct mpath_move_stats {
    uint64_t sent_bytes, received_bytes; /* mine */
    uint64_t forwarded_bytes;            /* others', through me */
} mpath_move_stats_t;

typedef struct mpath_relay_stats {
    uint64_t calls;
    uint64_t sent_bytes;               /* that left this rank's send buffers */
    uint64_t forwarded_bytes;          /* of others, through this rank's GPU */
    uint64_t rail_bytes, staged_bytes; /* of both, over rails and through the host */
    uint64_t yields;         /* times that a chunk waited since the NIC ahead was busy with its owner's bytes */
    uint64_t receive_yields; /* the same for the NIC at the other end of a rail */
    uint64_t slot_bytes;     /* of GPU memory, now */
} mpath_relay_stats_t;

typedef struct mpath_relay_counters {
    mpath_relay_stats_t moved;
    uint64_t plans, plan_hits, plan_ns;
    uint64_t choices; /* decisions between plan and static routes by what calls took */
    uint64_t repeats; /* of calls whose rails had failed */
} mpath_relay_counters_t;

typedef struct mpath_gpu_counters {
    uint64_t calls;        /* with device memory on some rank */
    uint64_t kernel_bytes; /* that this rank's GPU sent with its multiprocessors */
    uint64_t engine_bytes; /* with its copy engines */
    uint64_t staged_bytes; /* that this rank sent through host memory */
    uint64_t imports;      /* rounds in which ranks opened each other's memory */
    uint64_t eager;        /* calls for which the ranks' kernels were started before the agreement */
    uint64_t plans;        /* lanes and orders found; opening memory and measuring are no part of plan_ns */
    uint64_t plan_hits;    /* calls like the one before, which have kept them */
    uint64_t plan_ns;
} mpath_gpu_counters_t;

typedef struct mpath_coll_counters {
    uint64_t calls;                      /* carried by mpath */
    uint64_t declined;                   /* left to the previous function */
    uint64_t plans;                      /* computed */
    uint64_t plan_hits;                  /* found in the cache */
    uint64_t agree_ns, plan_ns, move_ns; /* sums */
    mpath_move_stats_t moved;
    mpath_gpu_counters_t gpu;
    mpath_relay_counters_t relay;
} mpath_coll_counters_t;

#endif
