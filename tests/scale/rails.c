/* SPDX-License-Identifier: BSD-3-Clause */
/* Rails in memory, in the place of rail/rail.h and rail/gpu_memory.h: a queue of chunks for each NIC of a process. */
#include "scale.h"
#include "rail/gpu_memory.h"
#include "rail/rail.h"

#include <string.h>

#define RAIL_QUEUE_BYTES (4u << 20)
#define RAIL_CHUNKS_AT_ONCE 16

typedef struct rail_chunk {
    struct rail_chunk *next;
    mpath_chunk_t chunk;
    char data[];
} rail_chunk_t;

typedef struct rail {
    mpath_lane_t base;
    uint64_t number;
    size_t max_chunk_bytes, open_bytes, max_open_bytes, queued_bytes;
    rail_chunk_t *first, **last_p;
    struct rail **peers;
    int num_peers, peers_room;
} rail_t;

static rail_t **rails;
static size_t num_rails, rails_room;

/* Doubles an array of pointers that is full. */
static void *rail_grow(void *array, size_t used, size_t *room_p)
{
    size_t room = *room_p > 0 ? 2 * *room_p : 16;
    void *more;

    if (used < *room_p) {
        return array;
    }
    more = scale_allocate(room * sizeof(void *));
    if (used > 0) {
        memcpy(more, array, used * sizeof(void *));
    }
    scale_free(array);
    *room_p = room;
    return more;
}

static mpath_status_t rail_send(mpath_lane_t *base, int peer, const mpath_chunk_t *chunk, const void *data,
                                mpath_lane_op_t *op)
{
    rail_t *to = ((rail_t *)base)->peers[peer];
    uint64_t began_ns;
    rail_chunk_t *queued;

    if (to->queued_bytes > RAIL_QUEUE_BYTES) {
        return MPATH_NO_RESOURCE;
    }
    began_ns      = scale_cpu_ns();
    queued        = scale_allocate(sizeof(*queued) + chunk->bytes);
    queued->chunk = *chunk;
    if (chunk->bytes > 0) {
        memcpy(queued->data, data, chunk->bytes);
    }
    *to->last_p = queued;
    to->last_p  = &queued->next;
    to->queued_bytes += chunk->bytes;
    scale.counts[scale.running].rail_messages++;
    scale.counts[scale.running].rail_bytes += chunk->bytes;
    scale_message_took(began_ns);
    if (op != NULL) {
        op->status = MPATH_OK;
    }
    return MPATH_OK;
}

static mpath_status_t rail_reserve(mpath_lane_t *base, int peer, size_t bytes, void **slot_p)
{
    (void)base;
    (void)peer;
    (void)bytes;
    (void)slot_p;
    return MPATH_ERR_UNSUPPORTED;
}

static void rail_commit(mpath_lane_t *base, int peer, void *slot, const mpath_chunk_t *chunk)
{
    (void)base;
    (void)peer;
    (void)slot;
    (void)chunk;
}

static int rail_progress(mpath_lane_t *base)
{
    rail_t *rail = (rail_t *)base;
    int arrived  = 0;

    while (rail->first != NULL && arrived < RAIL_CHUNKS_AT_ONCE && rail->open_bytes <= rail->max_open_bytes) {
        rail_chunk_t *chunk     = rail->first;
        mpath_arrival_t arrival = {
            .lane = base, .chunk = chunk->chunk, .peer = -1, .data = chunk->data, .private_data = chunk};

        rail->first = chunk->next;
        if (rail->first == NULL) {
            rail->last_p = &rail->first;
        }
        rail->queued_bytes -= chunk->chunk.bytes;
        rail->open_bytes += chunk->chunk.bytes;
        base->arrive(base->arrive_argument, &arrival);
        arrived++;
    }
    return arrived;
}

static void rail_release(mpath_lane_t *base, const mpath_arrival_t *arrival)
{
    ((rail_t *)base)->open_bytes -= arrival->chunk.bytes;
    scale_free(arrival->private_data);
}

static mpath_status_t rail_take(mpath_lane_t *base, const mpath_arrival_t *arrival, void *to, mpath_lane_op_t *op)
{
    uint64_t began_ns = scale_cpu_ns();

    if (arrival->chunk.bytes > 0) {
        memcpy(to, arrival->data, arrival->chunk.bytes);
    }
    rail_release(base, arrival);
    scale_message_took(began_ns);
    if (op != NULL) {
        op->status = MPATH_OK;
    }
    return MPATH_OK;
}

static mpath_status_t rail_peer_status(mpath_lane_t *base, int peer)
{
    (void)base;
    (void)peer;
    return MPATH_OK;
}

static size_t rail_max_chunk(const mpath_lane_t *base)
{
    return ((const rail_t *)base)->max_chunk_bytes;
}

static void rail_abort(mpath_lane_t *base)
{
    (void)base;
}

static void rail_destroy(mpath_lane_t *base)
{
    (void)base; /* others may still have it as a peer */
}

static const mpath_lane_ops_t rail_ops = {.name        = "memory",
                                          .kind        = MPATH_LANE_RAIL,
                                          .send        = rail_send,
                                          .reserve     = rail_reserve,
                                          .commit      = rail_commit,
                                          .progress    = rail_progress,
                                          .take        = rail_take,
                                          .release     = rail_release,
                                          .peer_status = rail_peer_status,
                                          .max_chunk   = rail_max_chunk,
                                          .abort       = rail_abort,
                                          .destroy     = rail_destroy};

mpath_status_t mpath_rail_open(const mpath_rail_params_t *params, mpath_lane_t **lane_p)
{
    rail_t *rail = scale_allocate(sizeof(*rail));

    rail->base.ops        = &rail_ops;
    rail->last_p          = &rail->first;
    rail->max_chunk_bytes = params->max_chunk_bytes;
    rail->max_open_bytes  = params->max_open_arrival_bytes;
    rails                 = rail_grow(rails, num_rails, &rails_room);
    rail->number          = num_rails;
    rails[num_rails++]    = rail;
    *lane_p               = &rail->base;
    return MPATH_OK;
}

void mpath_rail_address(mpath_lane_t *lane, const void **address_p, size_t *bytes_p)
{
    *address_p = &((rail_t *)lane)->number;
    *bytes_p   = sizeof(uint64_t);
}

int mpath_rail_add_peer(mpath_lane_t *lane, const void *address, size_t bytes, const char *name)
{
    rail_t *rail = (rail_t *)lane;
    size_t room  = (size_t)rail->peers_room;
    uint64_t number;

    (void)bytes;
    (void)name;
    memcpy(&number, address, sizeof(number));
    rail->peers                    = rail_grow(rail->peers, (size_t)rail->num_peers, &room);
    rail->peers_room               = (int)room;
    rail->peers[rail->num_peers++] = rails[number];
    return rail->num_peers - 1;
}

void mpath_rail_remove_peer(mpath_lane_t *lane, int peer)
{
    (void)lane;
    (void)peer;
}

void mpath_rail_abort_peer(mpath_lane_t *lane, int peer)
{
    (void)lane;
    (void)peer;
}

mpath_status_t mpath_rail_probe(mpath_lane_t *lane, int peer, int anew)
{
    (void)lane;
    (void)peer;
    (void)anew;
    return MPATH_OK;
}

int mpath_rail_takes_writes(const mpath_lane_t *lane)
{
    (void)lane;
    return 0;
}

int mpath_rail_memory_usable(const mpath_lane_t *lane)
{
    (void)lane;
    return 0;
}

mpath_status_t mpath_rail_memory_add(mpath_lane_t *lane, const mpath_gpu_t *gpu, mpath_device_ptr_t address,
                                     size_t bytes)
{
    (void)lane;
    (void)gpu;
    (void)address;
    (void)bytes;
    return MPATH_ERR_UNSUPPORTED;
}

void mpath_rail_memory_remove(mpath_lane_t *lane, const mpath_gpu_t *gpu, mpath_device_ptr_t address)
{
    (void)lane;
    (void)gpu;
    (void)address;
}

mpath_status_t mpath_rail_memory_try(mpath_lane_t *lane, mpath_stream_t *stream)
{
    (void)lane;
    (void)stream;
    return MPATH_ERR_UNSUPPORTED;
}

int mpath_rail_gpu_ucx(void)
{
    return 0;
}

mpath_rail_gpu_t mpath_rail_gpu_judge(int ucx_has, int rdma, int module)
{
    (void)ucx_has;
    (void)rdma;
    (void)module;
    return MPATH_RAIL_GPU_NO_CUDA;
}

mpath_rail_gpu_t mpath_rail_gpu_find(const char *sys)
{
    (void)sys;
    return MPATH_RAIL_GPU_NO_CUDA;
}

int mpath_rail_gpu_can(const char *sys)
{
    (void)sys;
    return 0;
}

const char *mpath_rail_gpu_text(mpath_rail_gpu_t what)
{
    (void)what;
    return "none";
}
