/* SPDX-License-Identifier: BSD-3-Clause */
/* The inside of alltoallv on device memory, for the files alltoallv_gpu*.c only. */
#ifndef MPATH_COLL_ALLTOALLV_GPU_PRIVATE_H
#define MPATH_COLL_ALLTOALLV_GPU_PRIVATE_H

#include "coll/alltoallv_gpu.h"
#include "coll/alltoallv_order.h"
#include "coll/alltoallv_room.h"
#include "gpu/import.h"
#include "lane/peer.h"

/* How the message of a pair travels. */
typedef enum gpu_way { WAY_NONE, WAY_KERNEL, WAY_ENGINE, WAY_STAGED } gpu_way_t;

#define GPU_KNOWN_EXPORTS 8

/* An allocation of some rank, and who has opened it. The same on all ranks: it follows from what all have seen. */
typedef struct gpu_known {
    uint64_t base, buffer_id; /* 0, 0: empty */
    uint64_t opened, failed;  /* masks of senders */
} gpu_known_t;

typedef struct gpu_known_list {
    gpu_known_t exports[GPU_KNOWN_EXPORTS];
    int next; /* to be replaced */
} gpu_known_list_t;

/* A pair of GPUs between which opening memory has failed: not tried again. The same on all ranks. */
typedef struct gpu_refused {
    int32_t device;       /* that sends, as its process numbers it; -1: none */
    mpath_cu_uuid_t uuid; /* that receives */
} gpu_refused_t;

/* What this rank needs for one side of a call. */
typedef struct gpu_side {
    mpath_gpu_t *gpu; /* NULL: the host reads and writes the buffer itself */
    char *buffer;
} gpu_side_t;

struct mpath_gpu_coll {
    mpath_team_t *team;
    const mpath_settings_t *settings;
    int size, me;
    int usable;
    int opened; /* the room is there */
    mpath_room_t room;
    int lease;       /* which streams; -1: none */
    int gated;       /* all ranks have streams of their own, so that some may wait for others */
    uint64_t number; /* of the call; its half of the room is number % 2 */
    int half;

    uint64_t *demand;         /* [n][n] of the call */
    uint8_t *ways;            /* [n][n] gpu_way_t */
    gpu_known_list_t *known;  /* [n] */
    gpu_refused_t *refused;   /* [n][n] */
    mpath_import_t **imports; /* [n] receive buffers that are in use in this call */
    mpath_order_t *order;
    uint64_t *engine_demand, *ordered_demand; /* [n][n] what engines carry now, and what the order was made for */
    int ordered;
    mpath_peer_put_t *puts;                               /* room for all pieces of an order */
    uint8_t *awaited;                                     /* [pieces] somebody's gate is this piece of mine */
    mpath_kernel_piece_t *pieces;                         /* [n] */
    mpath_staged_message_t *staged_send, *staged_receive; /* [n] */

    gpu_side_t send, receive;
    mpath_stream_t *main_stream, *side_stream; /* of the sending GPU; NULL without one */
    int kernel_started, engine_started, self_started, staged_started;
    int posts; /* the host writes the words, since the streams cannot */
    mpath_mark_t engine_mark, self_mark;
    mpath_stream_t *self_stream;
    uint64_t staged_before;
    mpath_gpu_counters_t counters;
};

/* One at a time uses streams that communicators share. */
void mpath_gpu_coll_lock(void);
void mpath_gpu_coll_unlock(void);
pthread_mutex_t *mpath_gpu_coll_mutex(void);

/* alltoallv_gpu_ways.c: fills gpu->ways; opens the receive buffers that this rank writes to. Collective. */
mpath_status_t mpath_gpu_coll_find_ways(mpath_gpu_coll_t *gpu);

/* alltoallv_gpu_start.c: everything that this rank starts. */
mpath_status_t mpath_gpu_coll_start(mpath_gpu_coll_t *gpu, const mpath_call_t *call);
mpath_status_t mpath_gpu_coll_order_create(mpath_gpu_coll_t *gpu);

/* alltoallv_gpu_wait.c: until this rank's part is done. On an error nothing of this rank is under way any more. */
mpath_status_t mpath_gpu_coll_wait(mpath_gpu_coll_t *gpu);

static inline gpu_way_t gpu_way(const mpath_gpu_coll_t *gpu, int source, int destination)
{
    return (gpu_way_t)gpu->ways[(size_t)source * (size_t)gpu->size + (size_t)destination];
}

static inline uint64_t gpu_bytes(const mpath_gpu_coll_t *gpu, int source, int destination)
{
    return gpu->demand[(size_t)source * (size_t)gpu->size + (size_t)destination];
}

static inline const mpath_room_cell_t *gpu_cell(const mpath_gpu_coll_t *gpu, int rank)
{
    return &gpu->room.cells[gpu->half][rank];
}

/* A value of the word `pieces`: so many pieces of the call are in place. */
static inline uint64_t gpu_pieces_value(const mpath_gpu_coll_t *gpu, uint32_t pieces)
{
    return (gpu->number << 16) + pieces;
}

#endif
